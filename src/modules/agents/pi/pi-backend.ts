/** Pi behind an editor: one process for each session with prompts, and its settings. */

import { Failure, INVALID_PARAMS } from "../../../core/failure.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import type { Session } from "../../../core/session/session.ts";
import type { Call } from "../../../server/connection/call.ts";
import type { Gate } from "../../../server/dispatch/gate.ts";
import type { FaceWire } from "../../../server/face.ts";
import type { AgentBackend, AgentReply, AgentSession, PromptBlock } from "../acp/agent.ts";
import { AcpError, makeBusyFailure, REFUSED } from "../acp/errors.ts";
import type { AgentSetup } from "../behind/agent-server.ts";
import type { PiReply } from "../behind/lines.ts";
import { PiSession } from "./pi-session.ts";

/** Idle processes that are kept; above that, those used longest ago are ended. */
const MAX_IDLE = 8;
/** Milliseconds that an editor waits for the agent's offer when it opens a session. */
const OFFERED_WITHIN = 5000;

/** Pi's offer in a directory. */
interface PiOffer {
  readonly models: readonly LooseMembers[];
  readonly commands: readonly LooseMembers[];
  /** Pi's initial model and level. */
  readonly model: LooseMembers | undefined;
  readonly thinkingLevel: string;
}

/** The current model and level of a session. */
interface PiSelection {
  readonly model: LooseMembers | undefined;
  readonly thinkingLevel: string;
  /** The levels of the model, from Pi itself. */
  readonly levels?: readonly string[];
}

const LEVELS = ["off", "minimal", "low", "medium", "high"];
const MODEL_OPTION = "model";
const LEVEL_OPTION = "thought_level";

export class PiBackend implements AgentBackend, Gate {
  readonly promptCapabilities = { image: true, audio: false, embeddedContext: true };
  private readonly wire: FaceWire;
  private readonly options: AgentSetup;
  /** In the order of their last use. */
  private readonly sessions = new Map<string, PiSession>();
  /** Sessions that are ending. */
  private readonly leaving = new Map<string, Promise<void>>();
  /** By directory. */
  private readonly offers = new Map<string, Promise<PiOffer>>();
  /** Settings that came too late for the reply, by session. */
  private readonly lateSettings = new Map<string, Promise<AgentReply>>();
  private isEnding = false;

  constructor(wire: FaceWire, options: AgentSetup) {
    this.wire = wire;
    this.options = { ...options, cwdFor: (session) => requireOwnDirectory(session, options.cwdFor(session)) };
    wire.dispatcher.addGate(this);
  }

  // --- processes -----------------------------------------------------------------------------------------------

  private async getSession(sessionId: string): Promise<PiSession> {
    for (let left = this.leaving.get(sessionId); left; left = this.leaving.get(sessionId)) await left;
    const piSession = this.sessions.get(sessionId) ?? new PiSession(sessionId, this.wire, this.options);
    this.sessions.delete(sessionId);
    this.sessions.set(sessionId, piSession);
    if (this.isEnding) await piSession.end();
    this.dropIdle(piSession);
    return piSession;
  }

  /** Ends idle processes, if there are too many. */
  private dropIdle(but: PiSession): void {
    const idle = [...this.sessions.values()].filter((one) => one !== but && !one.isAtWork && one.agent.isRunning);
    for (const piSession of idle.slice(0, Math.max(0, idle.length - MAX_IDLE))) void this.leave(piSession);
  }

  private leave(piSession: PiSession): Promise<void> {
    const { sessionId } = piSession;
    this.sessions.delete(sessionId);
    const left = piSession.end().finally(() => this.leaving.delete(sessionId));
    this.leaving.set(sessionId, left);
    return left;
  }

  async end(): Promise<void> {
    this.isEnding = true;
    await Promise.all([...[...this.sessions.values()].map((piSession) => piSession.end()), ...this.leaving.values()]);
  }

  /** Resumes reading from the agents, when the host reads again. */
  resume(): void {
    for (const { agent } of this.sessions.values()) agent.resume();
  }

  /** True if an agent does not read its input. */
  get isFull(): boolean {
    return [...this.sessions.values()].some(({ agent }) => agent.isFull);
  }

  // --- the gate of calls ---------------------------------------------------------------------------------------

  before(call: Call, session: Session | null): Promise<void> | undefined {
    const { agent, isAtWork } = (session && this.sessions.get(session.id)) ?? {};
    const { effect } = call.command;
    // A fork opens a copy, and the session stays open.
    if (effect === "replace") return session === null ? undefined : agent?.readNews(session);
    return isAtWork && effect === "write" ? Promise.reject(makeBusyFailure()) : agent?.before(call, session);
  }

  // --- settings ------------------------------------------------------------------------------------------------

  async getSettings(session: AgentSession): Promise<AgentReply> {
    const { sessionId } = session;
    const piSession = await this.getSession(sessionId);
    piSession.channel = session.channel;
    piSession.onLevel = (level) => this.levelChanged(session, level);
    const settled = this.getShownSettings(piSession, session);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), OFFERED_WITHIN);
    });
    try {
      const settings = await Promise.race([settled, late]);
      if (settings) return settings;
      this.lateSettings.set(sessionId, settled);
      settled.catch((error) => this.reportUnsettled(piSession, error));
    } catch (error) {
      // The history can be read without the agent.
      this.reportUnsettled(piSession, error as Error);
    } finally {
      clearTimeout(timer);
    }
    return {};
  }

  /** Tells the person why an agent offers nothing, unless this server has ended it. */
  private reportUnsettled({ sessionId }: PiSession, { message }: Error): void {
    if (!this.isEnding && this.sessions.has(sessionId)) this.options.printError(message);
  }

  async sendInitialUpdates(sessionId: string): Promise<void> {
    const { channel, current } = this.sessions.get(sessionId) ?? {};
    if (!channel) return;
    const late = this.lateSettings.get(sessionId);
    this.lateSettings.delete(sessionId);
    if (late) await channel.update({ sessionUpdate: "config_option_update", ...pickOptions(await late) });
    const offer = await this.offers.get(this.options.cwdFor(current ?? null));
    if (offer && offer.commands.length > 0) await channel.update(toCommandsUpdate(offer) as never);
  }

  /** Returns Pi's offer in the directory of a session. */
  private async getOffer(piSession: PiSession, { cwd }: AgentSession): Promise<PiOffer> {
    const place = this.options.cwdFor({ cwd });
    const known = this.offers.get(place);
    if (known) return known;
    const asked = requestOffer(piSession);
    this.offers.set(place, asked);
    // The next request asks again.
    asked.catch(() => this.offers.delete(place));
    return asked;
  }

  private async getSelection(piSession: PiSession, session: AgentSession, offer: PiOffer): Promise<PiSelection> {
    const { current, agent } = piSession;
    if (current && agent.isAt(current)) {
      const state = await piSession.state();
      const model = toMembers(state?.model);
      if (typeof model.id === "string") {
        const levels = await requestLevels(piSession);
        return { model, thinkingLevel: toStored(state?.thinkingLevel) || "off", levels };
      }
    }
    const { model, thinkingLevel } = session;
    const chosen = model && offer.models.find((one) => one.provider === model.provider && one.id === model.id);
    return { model: chosen ?? offer.model, thinkingLevel: thinkingLevel ?? offer.thinkingLevel };
  }

  private async getShownSettings(piSession: PiSession, session: AgentSession): Promise<AgentReply> {
    const offer = await this.getOffer(piSession, session);
    return toSettings(offer, await this.getSelection(piSession, session, offer));
  }

  async setMode(session: AgentSession, modeId: string): Promise<AgentReply> {
    const settings = await this.set(session, LEVEL_OPTION, modeId);
    await session.channel.update({ sessionUpdate: "config_option_update", ...pickOptions(settings) });
    return {};
  }

  async setConfigOption(session: AgentSession, configId: string, value: unknown): Promise<AgentReply> {
    const { modes, ...settings } = await this.set(session, configId, String(value));
    const { currentModeId } = toMembers(modes);
    if (currentModeId !== undefined)
      await session.channel.update({ sessionUpdate: "current_mode_update", currentModeId });
    return pickOptions(settings);
  }

  /** Sets a model or a level in Pi for a session. Returns the new settings. */
  private async set(session: AgentSession, what: string, value: string): Promise<AgentReply> {
    const piSession = await this.getSession(session.sessionId);
    piSession.channel = session.channel;
    if (what !== MODEL_OPTION && what !== LEVEL_OPTION)
      throw new AcpError(INVALID_PARAMS, `There is no option ${what}. There are ${MODEL_OPTION} and ${LEVEL_OPTION}.`);
    const offer = await this.getOffer(piSession, session);
    if (what === MODEL_OPTION) {
      const model = offer.models.find((one) => toModelName(one) === value);
      if (!model) throw new AcpError(INVALID_PARAMS, `The agent has no model ${value}.`);
      requireSuccess(await piSession.question("set_model", { provider: model.provider, modelId: model.id }, true));
    } else {
      const { model, levels = listLevels(model) } = await this.getSelection(piSession, session, offer);
      if (!levels.includes(value)) throw new AcpError(INVALID_PARAMS, `The model has no thinking level ${value}.`);
      requireSuccess(await piSession.question("set_thinking_level", { level: value }, true));
    }
    return this.getShownSettings(piSession, session);
  }

  private async levelChanged({ cwd, channel }: AgentSession, level: string): Promise<void> {
    const offer = await this.offers.get(this.options.cwdFor({ cwd }))?.catch(() => undefined);
    if (!offer || level === "") return;
    await channel.update({ sessionUpdate: "current_mode_update", currentModeId: level });
  }

  // --- turns ---------------------------------------------------------------------------------------------------

  async prompt(session: AgentSession, prompt: readonly PromptBlock[], isCancelled: () => boolean): Promise<AgentReply> {
    const piSession = await this.getSession(session.sessionId);
    if (isCancelled()) return { stopReason: "cancelled" };
    return piSession.prompt(prompt, session);
  }

  cancel(sessionId: string): void {
    this.sessions.get(sessionId)?.cancel();
  }

  async close(sessionId: string): Promise<void> {
    this.lateSettings.delete(sessionId);
    const piSession = this.sessions.get(sessionId);
    if (piSession) await this.leave(piSession);
    else await this.leaving.get(sessionId);
  }
}

/** Returns the directory to start Pi in. Throws unless it is the session's: Pi's tools would change other files. */
function requireOwnDirectory(session: Pick<Session, "cwd"> | null, directory: string): string {
  const { cwd = "" } = session ?? {};
  if (cwd === "" || cwd === directory) return directory;
  throw new Failure("agent_failed", {
    what: `The directory of the session, ${cwd}, is missing.`,
    advice: "Make it again, or name another one with pi-session-server relocate <session> <dir>.",
  });
}

async function requestOffer(piSession: PiSession): Promise<PiOffer> {
  const state = getData(await piSession.question("get_state"));
  const { models } = getData(await piSession.question("get_available_models"));
  const { commands } = getData(await piSession.question("get_commands"));
  const model = toMembers(state.model);
  return {
    models: Array.isArray(models) ? models.map(toMembers) : [],
    commands: Array.isArray(commands) ? commands.map(toMembers) : [],
    model: typeof model.id === "string" ? model : undefined,
    thinkingLevel: toStored(state.thinkingLevel) || "off",
  };
}

/** Returns the levels of Pi's current model; undefined if Pi does not know the question. */
async function requestLevels(piSession: PiSession): Promise<readonly string[] | undefined> {
  const { levels } = getData(await piSession.question("get_available_thinking_levels"));
  return Array.isArray(levels) ? levels.map(toStored) : undefined;
}

function getData({ data }: PiReply): LooseMembers {
  return data ?? {};
}

function requireSuccess({ success, error }: PiReply): void {
  if (success !== true)
    throw new AcpError(
      REFUSED,
      error || "The agent refused without a reason. Look at the agent's own messages, then try again.",
    );
}

function pickOptions({ configOptions }: LooseMembers): { configOptions: unknown } {
  return { configOptions: configOptions ?? [] };
}

// --- the offer, as modes and options of an editor ---------------------------------------------------------------

/** Returns the option value of a model. */
function toModelName(model: LooseMembers): string {
  return `${toStored(model.provider)}/${toStored(model.id)}`;
}

/** Returns the declared levels of a model, or the usual ones. */
function listLevels(model: LooseMembers | undefined): readonly string[] {
  if (model?.reasoning !== true) return [];
  const map = toMembers(model.thinkingLevelMap);
  const more = ["xhigh", "max"].filter((level) => typeof map[level] === "string");
  return [...LEVELS.filter((level) => map[level] !== null), ...more];
}

/** Returns the thinking levels as modes, and `configOptions`; a setting with a single value is left out. */
function toSettings({ models }: PiOffer, { model, thinkingLevel, levels }: PiSelection): LooseMembers {
  const offered = levels ?? listLevels(model);
  const known = offered.includes(thinkingLevel) ? offered : [thinkingLevel, ...offered];
  const configOptions: object[] = [];
  const listed = model && !models.some((one) => toModelName(one) === toModelName(model)) ? [model, ...models] : models;
  if (model && listed.length > 0)
    configOptions.push({
      ...{ id: MODEL_OPTION, name: "Model", category: "model", type: "select", currentValue: toModelName(model) },
      options: listed.map((one) => ({
        value: toModelName(one),
        name: toStored(one.name) || toStored(one.id),
        description: toStored(one.provider),
      })),
    });
  if (offered.length < 2) return { configOptions };
  configOptions.push({
    ...{
      id: LEVEL_OPTION,
      name: "Thinking",
      category: "thought_level",
      type: "select",
      currentValue: thinkingLevel,
    },
    options: known.map((value) => ({ value, name: value })),
  });
  const availableModes = known.map((id) => ({ id, name: `Thinking: ${id}` }));
  return { modes: { currentModeId: thinkingLevel, availableModes }, configOptions };
}

/** Returns Pi's slash commands: prompts, skills and those of extensions. */
function toCommandsUpdate({ commands }: PiOffer): object {
  const availableCommands = commands
    .filter(({ name }) => typeof name === "string" && name !== "")
    .map(({ name, description, source }) => ({
      name,
      description: toStored(description) || toStored(source) || "A command of the agent",
      input: { hint: "arguments" },
    }));
  return { sessionUpdate: "available_commands_update", availableCommands };
}
