/** An agent of the Agent Client Protocol behind our own conversation with an editor: it answers, and the history is ours. */

import { Failure } from "../../core/failure.ts";
import { type LooseMembers, membersOf } from "../../core/format/loose.ts";
import { stringOf } from "../../core/format/message.ts";
import type { Session } from "../../core/session/session.ts";
import type { Command } from "../../handlers/shared/command.ts";
import type { AgentBehind, AgentReply, AgentSession, MetClient, PromptBlock, Telling } from "../acp/agent.ts";
import { atWork } from "../acp/errors.ts";
import { OURS } from "../acp/narrator.ts";
import type { AgentGate } from "../dispatch/agent-gate.ts";
import { AcpLink, unknownMethod } from "./acp-link.ts";
import { AcpSeat, type MetAgent } from "./acp-seat.ts";
import type { AgentMeans, ServerEnds } from "./joining.ts";

/** Updates about sessions that are being opened, and their bytes, that are kept until it is known whose they are. */
const MOST_EARLY = 256;
const MOST_EARLY_BYTES = 4 << 20;
/** Capabilities of an agent that the client hears of; those about sessions are ours. */
const PASSED_ON = ["promptCapabilities", "mcpCapabilities", "auth"];

export class AcpAgents implements AgentBehind, AgentGate {
  readonly tellsUsage = true;
  readonly uses = ["mcpServers", "additionalDirectories"];
  promptCapabilities: AgentReply = { image: false, audio: false, embeddedContext: false };
  private readonly ends: ServerEnds;
  private readonly means: AgentMeans;
  private readonly version: string;
  private client: MetClient = {};
  private agent: Promise<MetAgent> | undefined;
  private link: AcpLink | undefined;
  private readonly seats = new Map<string, AcpSeat>();
  private readonly byAgentId = new Map<string, AcpSeat>();
  /** Updates about sessions of the agent that are not known yet. */
  private early: { readonly id: string; readonly update: LooseMembers; readonly bytes: number }[] = [];
  private earlyBytes = 0;
  /** How many sessions of the agent are being opened. */
  private opening = 0;
  private isEnding = false;

  constructor(ends: ServerEnds, means: AgentMeans, version: string) {
    this.ends = ends;
    this.means = means;
    this.version = version;
  }

  /** Whether the agent does not read what it was sent. */
  get isFull(): boolean {
    return this.link?.isFull === true;
  }

  resume(): void {
    this.link?.held(0);
  }

  async end(): Promise<void> {
    this.isEnding = true;
    for (const seat of this.seats.values()) seat.cancel();
    await this.link?.end();
    await Promise.all([...this.seats.values()].map((seat) => seat.end()));
  }

  // --- the agent -----------------------------------------------------------------------------------------------

  async meet(client: MetClient): Promise<AgentReply> {
    this.client = client;
    try {
      const { capabilities, authMethods } = await this.met();
      const known = Object.fromEntries(
        PASSED_ON.filter((name) => isMembers(capabilities[name])).map((name) => [name, capabilities[name]]),
      );
      return { agentCapabilities: known, ...(Array.isArray(authMethods) ? { authMethods } : {}) };
    } catch {
      // What there is can be read without it, and the next prompt says what is wrong.
      return {};
    }
  }

  async authenticate(params: LooseMembers): Promise<AgentReply> {
    return (await this.met()).link.request("authenticate", params, true);
  }

  /** Returns the agent, which is started if it does not run. */
  private met(): Promise<MetAgent & { readonly authMethods: unknown }> {
    this.agent ??= this.start();
    return this.agent as ReturnType<AcpAgents["met"]>;
  }

  private async start(): Promise<MetAgent & { readonly authMethods: unknown }> {
    if (this.isEnding) throw new Failure("shutting_down");
    const link: AcpLink = new AcpLink(this.means, this.means.cwdFor(null), this.means.within, {
      updated: (id, update, bytes) => {
        const seat = this.byAgentId.get(id);
        if (seat) seat.updated(update, bytes);
        // It may say something of a session before we have read that it made it.
        else if (this.opening > 0 && this.early.length < MOST_EARLY && this.earlyBytes < MOST_EARLY_BYTES) {
          this.early.push({ id, update, bytes });
          this.earlyBytes += bytes;
        }
      },
      asked: (method, params) => {
        const seat = this.byAgentId.get(stringOf(params.sessionId));
        if (!seat) throw unknownMethod(method);
        return seat.asked(method, params);
      },
      drained: () => this.ends.goOn(),
      ended: () => {
        if (this.link !== link) return;
        this.link = undefined;
        this.agent = undefined;
        this.byAgentId.clear();
      },
    });
    this.link = link;
    const { clientCapabilities = {}, clientInfo = { name: OURS, version: this.version } } = this.client;
    try {
      const begun = await link.request("initialize", { protocolVersion: 1, clientCapabilities, clientInfo });
      const { protocolVersion = 1 } = begun;
      if (protocolVersion !== 1) throw failed(`speaks version ${String(protocolVersion)} of the protocol, and not 1`);
      const info = membersOf(begun.agentInfo);
      const capabilities = membersOf(begun.agentCapabilities);
      if (isMembers(capabilities.promptCapabilities)) this.promptCapabilities = capabilities.promptCapabilities;
      return { link, info, name: stringOf(info.name) || "acp", capabilities, authMethods: begun.authMethods };
    } catch (error) {
      // The next one to ask starts another.
      await link.end();
      throw error;
    }
  }

  private seatOf(sessionId: string): AcpSeat {
    const seat = this.seats.get(sessionId) ?? new AcpSeat(sessionId, this.ends, this.means);
    this.seats.set(sessionId, seat);
    return seat;
  }

  private async bondOf(session: AgentSession, telling: Telling) {
    const seat = this.seatOf(session.sessionId);
    seat.telling = telling;
    const given = session.given ?? this.given.get(session.sessionId);
    if (given) this.given.set(session.sessionId, given);
    this.opening++;
    try {
      const register = (id: string): void => this.register(seat, id);
      return { seat, bond: await seat.join(await this.met(), { ...session, given }, register) };
    } finally {
      this.opening--;
      if (this.opening === 0) {
        this.early = [];
        this.earlyBytes = 0;
      }
    }
  }

  /** Notes that a session of the agent goes on with that of a seat, in place of the one before. */
  private register(seat: AcpSeat, id: string): void {
    const other = this.byAgentId.get(id);
    if (id === "") throw failed("gave no id to the session that it made");
    if (other && other !== seat) throw failed("gave a session that it has given to another one of yours");
    // The client has closed it meanwhile.
    if (this.seats.get(seat.sessionId) !== seat) throw new Failure("cancelled");
    for (const [before, its] of this.byAgentId) if (its === seat) this.byAgentId.delete(before);
    this.byAgentId.set(id, seat);
    const meant = this.early.filter((said) => said.id === id);
    this.early = this.early.filter((said) => said.id !== id);
    for (const { update, bytes } of meant) seat.updated(update, bytes);
  }

  /** The params with which the client opened each session, for an agent that is started again. */
  private readonly given = new Map<string, LooseMembers>();

  // --- what the client asks ------------------------------------------------------------------------------------

  async settings(session: AgentSession, telling: Telling): Promise<AgentReply> {
    try {
      const { bond } = await this.bondOf(session, telling);
      return { ...bond.settings.inForce, _meta: { [OURS]: { fidelity: bond.fidelity } } };
    } catch (error) {
      // One that must be logged in to says so; without any other, the history can be read.
      if ((error as { code?: unknown }).code === AUTH_REQUIRED) throw error;
      return {};
    }
  }

  async introduce(sessionId: string): Promise<void> {
    await this.seats.get(sessionId)?.introduce();
  }

  async prompt(
    session: AgentSession,
    prompt: readonly PromptBlock[],
    telling: Telling,
    isCancelled: () => boolean,
  ): Promise<AgentReply> {
    const before = this.seatOf(session.sessionId).settings;
    const { seat, bond } = await this.bondOf(session, telling);
    if (before) for (const update of bond.settings.changesSince(before)) await telling.update(update);
    if (isCancelled()) return { stopReason: "cancelled" };
    return seat.prompt(bond, prompt, telling);
  }

  judgeOf(sessionId: string) {
    return this.seats.get(sessionId)?.judge;
  }

  cancel(sessionId: string): void {
    this.seats.get(sessionId)?.cancel();
  }

  async setMode(session: AgentSession, modeId: string, telling: Telling): Promise<AgentReply> {
    const { bond } = await this.bondOf(session, telling);
    const done = await bond.agent.link.request("session/set_mode", { sessionId: bond.agentSessionId, modeId });
    bond.settings.modeIs(modeId);
    return done;
  }

  async setConfigOption(
    session: AgentSession,
    configId: string,
    value: unknown,
    telling: Telling,
  ): Promise<AgentReply> {
    const { bond } = await this.bondOf(session, telling);
    const { agentSessionId: sessionId, agent } = bond;
    const type = typeof value === "boolean" ? { type: "boolean" } : {};
    const params = { sessionId, configId, value, ...type };
    const done = await agent.link.request("session/set_config_option", params);
    bond.settings.optionsAre(done.configOptions);
    return { ...done, configOptions: bond.settings.configOptions ?? [] };
  }

  async close(sessionId: string): Promise<void> {
    const seat = this.seats.get(sessionId);
    if (!seat) return;
    await seat.end();
    this.seats.delete(sessionId);
    this.given.delete(sessionId);
    const id = seat.agentSessionId;
    if (id === undefined) return;
    this.byAgentId.delete(id);
    const met = await this.agent?.catch(() => undefined);
    if (met && membersOf(met.capabilities.sessionCapabilities).close)
      await met.link.request("session/close", { sessionId: id }).catch(() => {});
  }

  // --- calls beside it -----------------------------------------------------------------------------------------

  mayHaveWritten(): boolean {
    return false;
  }

  before({ effect }: Command, session: Session): Promise<void> | undefined {
    const seat = this.seats.get(session.id);
    if (!seat?.isAtWork) return effect === "control" ? undefined : seat?.keep(session);
    return effect === "write" ? Promise.reject(atWork()) : undefined;
  }
}

const AUTH_REQUIRED = -32000;

function isMembers(value: unknown): value is LooseMembers {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function failed(how: string): Failure {
  return new Failure("agent_failed", `The agent ${how}. Look for a newer version of it, or name another with --agent.`);
}
