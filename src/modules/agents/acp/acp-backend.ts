/** An agent of the Agent Client Protocol behind our conversation with an editor. The history is ours. */

import { isDeepStrictEqual } from "node:util";
import { Failure } from "../../../core/failure.ts";
import { isObject, type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import type { Session } from "../../../core/session/session.ts";
import type { Call } from "../../../server/connection/call.ts";
import type { Gate } from "../../../server/dispatch/gate.ts";
import type { FaceWire } from "../../../server/face.ts";
import type { AgentSetup } from "../behind/agent-server.ts";
import { AcpConnection } from "./acp-connection.ts";
import { AcpSession, type ConnectedAgent } from "./acp-session.ts";
import type { AgentBackend, AgentReply, AgentSession, ClientAccess, ClientDescription, PromptBlock } from "./agent.ts";
import { AcpError, makeBusyFailure, NOT_FOUND, toUnsentError } from "./errors.ts";
import { listUnusedParams } from "./params.ts";
import { SERVER_NAME } from "./update-mapper.ts";

/** Limits of updates, in number and bytes, that are kept while their session is being opened. */
const MOST_EARLY = 256;
const MOST_EARLY_BYTES = 4 << 20;

export class AcpBackend implements AgentBackend, Gate {
  readonly reportsUsage = true;
  readonly uses = ["mcpServers", "additionalDirectories"];
  promptCapabilities: AgentReply = { image: false, audio: false, embeddedContext: false };
  private readonly wire: FaceWire;
  private readonly options: AgentSetup;
  private readonly version: string;
  private client: ClientDescription = {};
  private access: ClientAccess | undefined;
  /** Resolves when all notifications about no session are delivered. */
  private lastNotice: Promise<unknown> = Promise.resolve();
  private agent: Promise<ConnectedAgent> | undefined;
  private link: AcpConnection | undefined;
  private readonly sessions = new Map<string, AcpSession>();
  private readonly byAgentId = new Map<string, AcpSession>();
  /** Updates about sessions of the agent that are not registered yet. */
  private earlyUpdates: {
    readonly id: string;
    readonly update: LooseMembers;
    readonly bytes: number;
    readonly meta: unknown;
  }[] = [];
  private earlyBytes = 0;
  /** Number of sessions of the agent that are being opened. */
  private opening = 0;
  private isEnding = false;

  constructor(wire: FaceWire, options: AgentSetup, version: string) {
    this.wire = wire;
    this.options = options;
    wire.dispatcher.addGate(this);
    this.version = version;
  }

  /** True if the agent does not read its input. */
  get isFull(): boolean {
    return this.link?.isFull === true;
  }

  resume(): void {
    this.link?.countHeldBytes(0);
  }

  async end(): Promise<void> {
    this.isEnding = true;
    for (const acpSession of this.sessions.values()) acpSession.cancel();
    await this.link?.end();
    await Promise.all([...this.sessions.values()].map((acpSession) => acpSession.end()));
  }

  // --- the agent -----------------------------------------------------------------------------------------------

  async initialize(client: ClientDescription, access: ClientAccess): Promise<AgentReply> {
    this.client = client;
    this.access = access;
    try {
      const { capabilities, authMethods } = await this.connect();
      return { agentCapabilities: capabilities, ...(Array.isArray(authMethods) ? { authMethods } : {}) };
    } catch {
      // The history can be read without the agent.
      return {};
    }
  }

  async authenticate(params: LooseMembers): Promise<AgentReply> {
    return (await this.connect()).link.request("authenticate", params, true);
  }

  /** Returns the agent. Starts it if it does not run. */
  private connect(): Promise<ConnectedAgent & { readonly authMethods: unknown }> {
    this.agent ??= this.start();
    return this.agent as ReturnType<AcpBackend["connect"]>;
  }

  private async start(): Promise<ConnectedAgent & { readonly authMethods: unknown }> {
    if (this.isEnding) throw new Failure("shutting_down");
    const link: AcpConnection = new AcpConnection(this.options, this.options.cwdFor(null), {
      updated: (id, update, bytes, meta) => {
        const acpSession = this.byAgentId.get(id);
        if (acpSession) acpSession.updated(update, bytes, meta);
        // An update may precede the reply that has the session's id.
        else if (this.opening > 0 && this.earlyUpdates.length < MOST_EARLY && this.earlyBytes < MOST_EARLY_BYTES) {
          this.earlyUpdates.push({ id, update, bytes, meta });
          this.earlyBytes += bytes;
        }
      },
      asked: async (method, params, signal) => {
        const { sessionId } = toMembers(params);
        if (typeof sessionId !== "string") return this.access?.askClient(method, params, signal);
        const acpSession = this.byAgentId.get(sessionId);
        if (!acpSession) throw new AcpError(NOT_FOUND, "The client has no such session.");
        return acpSession.asked(method, toMembers(params), signal);
      },
      noticed: (method, params, bytes) => {
        const { sessionId } = toMembers(params);
        if (typeof sessionId === "string")
          return this.byAgentId.get(sessionId)?.noticed(method, toMembers(params), bytes);
        link.countHeldBytes(bytes);
        this.lastNotice = this.lastNotice
          .then(() => this.access?.notifyClient(method, params))
          // A client that has gone gets none.
          .catch(() => {})
          .then(() => link.countHeldBytes(-bytes));
      },
      drained: () => this.wire.resumeInput(),
      ended: () => {
        if (this.link !== link) return;
        this.link = undefined;
        this.agent = undefined;
        this.byAgentId.clear();
      },
    });
    this.link = link;
    const { clientCapabilities = {}, clientInfo = { name: SERVER_NAME, version: this.version } } = this.client;
    try {
      const begun = await link.request("initialize", { protocolVersion: 1, clientCapabilities, clientInfo });
      const { protocolVersion = 1 } = begun;
      if (protocolVersion !== 1)
        throw makeFailure(`speaks version ${String(protocolVersion)} of the protocol, and not 1`);
      const info = toMembers(begun.agentInfo);
      const capabilities = toMembers(begun.agentCapabilities);
      if (isObject(capabilities.promptCapabilities)) this.promptCapabilities = capabilities.promptCapabilities;
      return { link, info, name: toStored(info.name) || "acp", capabilities, authMethods: begun.authMethods };
    } catch (error) {
      // The next request starts another agent.
      await link.end();
      if (!this.isEnding) this.options.printError((error as Error).message);
      throw error;
    }
  }

  private getSession(sessionId: string): AcpSession {
    const acpSession = this.sessions.get(sessionId) ?? new AcpSession(sessionId, this.wire, this.options);
    this.sessions.set(sessionId, acpSession);
    return acpSession;
  }

  private async openBinding(session: AgentSession) {
    const acpSession = this.getSession(session.sessionId);
    acpSession.channel = session.channel;
    const openParams = session.openParams ?? this.openParamsById.get(session.sessionId);
    if (openParams) this.openParamsById.set(session.sessionId, openParams);
    this.opening++;
    try {
      const register = (id: string): void => this.register(acpSession, id);
      return {
        acpSession,
        binding: await acpSession.bind(await this.connect(), { ...session, openParams }, register),
      };
    } finally {
      this.opening--;
      if (this.opening === 0) {
        this.earlyUpdates = [];
        this.earlyBytes = 0;
      }
    }
  }

  /** Registers the agent's session that continues an ACP session, in place of the one before. */
  private register(acpSession: AcpSession, id: string): void {
    const other = this.byAgentId.get(id);
    if (id === "") throw makeFailure("gave no id to the session that it made");
    if (other && other !== acpSession) throw makeFailure("gave a session that it has given to another one of yours");
    // The client has closed the session.
    if (this.sessions.get(acpSession.sessionId) !== acpSession) throw new Failure("cancelled");
    for (const [before, its] of this.byAgentId) if (its === acpSession) this.byAgentId.delete(before);
    this.byAgentId.set(id, acpSession);
    const meant = this.earlyUpdates.filter((said) => said.id === id);
    this.earlyUpdates = this.earlyUpdates.filter((said) => said.id !== id);
    for (const { update, bytes, meta } of meant) acpSession.updated(update, bytes, meta);
  }

  /** The client's params that opened each session, for an agent that is started again. */
  private readonly openParamsById = new Map<string, LooseMembers>();

  // --- requests of the client ----------------------------------------------------------------------------------

  async getSettings(session: AgentSession): Promise<AgentReply> {
    try {
      const { binding } = await this.openBinding(session);
      const { openParams = {} } = session;
      const ignored = listUnusedParams(openParams).filter(
        (name) => this.uses.includes(name) && !isDeepStrictEqual(openParams[name], binding.where[name]),
      );
      const facts = { fidelity: binding.fidelity, ...(ignored.length === 0 ? {} : { ignored }) };
      return { ...binding.settings.current, _meta: { [SERVER_NAME]: facts } };
    } catch (error) {
      // The client must see that it has to log in; after any other error the history can be read.
      if ((error as { code?: unknown }).code === AUTH_REQUIRED) throw error;
      return {};
    }
  }

  async sendInitialUpdates(sessionId: string): Promise<void> {
    await this.sessions.get(sessionId)?.sendEarlyUpdates();
  }

  async prompt(session: AgentSession, prompt: readonly PromptBlock[], isCancelled: () => boolean): Promise<AgentReply> {
    const { channel } = session;
    const before = this.getSession(session.sessionId).settings;
    const { acpSession, binding } = await this.openBinding(session).catch((error) => {
      throw toUnsentError(error);
    });
    if (before) for (const update of binding.settings.changesSince(before)) await channel.update(update);
    if (isCancelled()) return { stopReason: "cancelled" };
    return acpSession.prompt(binding, prompt, channel, session.params);
  }

  listUnwritten(sessionId: string) {
    return this.sessions.get(sessionId)?.listUnwritten() ?? [];
  }

  findClassifier(sessionId: string) {
    return this.sessions.get(sessionId)?.classify;
  }

  cancel(sessionId: string): void {
    this.sessions.get(sessionId)?.cancel();
  }

  async setMode(session: AgentSession, modeId: string): Promise<AgentReply> {
    const { binding } = await this.openBinding(session);
    const done = await binding.agent.link.request("session/set_mode", {
      ...session.params,
      sessionId: binding.agentSessionId,
      modeId,
    });
    binding.settings.setMode(modeId);
    return done;
  }

  async setConfigOption(session: AgentSession, configId: string, value: unknown): Promise<AgentReply> {
    const { binding } = await this.openBinding(session);
    const { agentSessionId: sessionId, agent } = binding;
    const type = typeof value === "boolean" ? { type: "boolean" } : {};
    const params = { ...session.params, sessionId, configId, value, ...type };
    const done = await agent.link.request("session/set_config_option", params);
    binding.settings.setOptions(done.configOptions);
    return { ...done, configOptions: binding.settings.configOptions ?? [] };
  }

  async pass(method: string, params: unknown, signal: AbortSignal, session?: AgentSession): Promise<unknown> {
    const { link } = session ? (await this.openBinding(session)).binding.agent : await this.connect();
    return link.pass(method, this.toAgentParams(params), signal);
  }

  passNotice(method: string, params: unknown): void {
    this.link?.notify(method, this.toAgentParams(params));
  }

  /** Returns params with the agent's id of a session in place of ours. */
  private toAgentParams(params: unknown): unknown {
    const members = toMembers(params);
    const sessionId = this.sessions.get(toStored(members.sessionId))?.agentSessionId;
    return sessionId === undefined ? params : { ...members, sessionId };
  }

  async close(sessionId: string): Promise<void> {
    const acpSession = this.sessions.get(sessionId);
    if (!acpSession) return;
    await acpSession.end();
    this.sessions.delete(sessionId);
    this.openParamsById.delete(sessionId);
    const id = acpSession.agentSessionId;
    if (id === undefined) return;
    this.byAgentId.delete(id);
    const met = await this.agent?.catch(() => undefined);
    if (met && toMembers(met.capabilities.sessionCapabilities).close)
      await met.link.request("session/close", { sessionId: id }).catch(() => {});
  }

  // --- the gate of calls ---------------------------------------------------------------------------------------

  before({ command: { effect } }: Call, session: Session | null): Promise<void> | undefined {
    const acpSession = session && this.sessions.get(session.id);
    if (!session || !acpSession) return undefined;
    if (!acpSession.isAtWork) return effect === "control" ? undefined : acpSession.writeBetweenTurns(session);
    return effect === "write" ? Promise.reject(makeBusyFailure()) : undefined;
  }
}

const AUTH_REQUIRED = -32000;

function makeFailure(how: string): Failure {
  return new Failure("agent_failed", `The agent ${how}. Look for a newer version of it, or name another with --agent.`);
}
