/** Joins a session of ours to the agent's session that continues it. Records turns and reports them. */

import { toParagraphs } from "../../../core/context/summariser-input.ts";
import { Failure } from "../../../core/failure.ts";
import { makeDraft } from "../../../core/format/entry.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import { parse } from "../../../core/json/json.ts";
import type { Session } from "../../../core/session/session.ts";
import { becomeWriter } from "../../../core/session/writer.ts";
import type { FaceWire } from "../../../server/face.ts";
import { type AgentSetup, notifyWrittenEntries, runInOrder } from "../behind/agent-server.ts";
import type { AcpConnection } from "./acp-connection.ts";
import { type AcpDraft, type AcpSpeaker, AcpTurn } from "./acp-turn.ts";
import type { AgentReply, AgentSession, ClientChannel, EntryVisibility, PromptBlock } from "./agent.ts";
import { type AcpUpdate, type PathEntry, SERVER_NAME } from "./update-mapper.ts";

/** Source of the agent session's knowledge of ours: its own history, or the seed, a text of the conversation. */
type HistoryFidelity = "native" | "seeded";

/** A running agent. */
export interface ConnectedAgent {
  readonly link: AcpConnection;
  readonly name: string;
  readonly info: LooseMembers;
  readonly capabilities: LooseMembers;
}

/** The agent's session that continues ours. */
interface AgentBinding {
  readonly agent: ConnectedAgent;
  readonly agentSessionId: string;
  readonly fidelity: HistoryFidelity;
  readonly settings: SessionSettings;
  /** The params that opened it. */
  readonly where: LooseMembers;
  /** True if the next prompt begins with the seed. */
  needsSeed: boolean;
  /** True if our session has an entry that names the agent's. */
  isNoted: boolean;
  /** The last leaf of our session that the agent's session has. */
  leafId: string | null;
}

/** Updates that are kept until the client has the session. */
const MAX_EARLY = 256;
/** Entries written between turns that are remembered as shown to the client. */
const MAX_SHOWN = 1024;
/** Kinds of updates about the history. */
const HISTORY_KINDS = /_chunk$|^tool_call|^plan$|^usage_update$|^compaction/;

interface RunningTurn {
  readonly recorded: AcpTurn;
  readonly channel: ClientChannel;
  isCancelled: boolean;
  /** The reason why the turn cannot be recorded. */
  failure: Error | undefined;
  /** Called when the whole turn is in the session. */
  readonly recordedAll: () => void;
  readonly whenRecorded: Promise<void>;
}

export class AcpSession {
  readonly sessionId: string;
  channel: ClientChannel | undefined;
  private readonly wire: FaceWire;
  private binding: AgentBinding | undefined;
  private turn: RunningTurn | undefined;
  /** Resolves when all updates so far are sent and recorded. */
  private last: Promise<unknown> = Promise.resolve();
  /** Updates that came before the client had the session. */
  private readonly earlyUpdates: { readonly update: LooseMembers; readonly meta: unknown }[] = [];
  /** Collects the agent's messages between turns, until the next call on the session writes them. */
  private betweenTurns: AcpTurn | undefined;
  /** Their entries; the client was shown them while they came. */
  private readonly shown = new Set<string>();
  /** Resolves when the last requested binding is found or made. */
  private joined: Promise<unknown> = Promise.resolve();
  private isIntroduced = false;
  /** A chunk that was not sent: the first half of a character. */
  private half: LooseMembers | undefined;
  /** True if updates replay a past that the client has. */
  private isReplay = false;
  private readonly within: number;
  private readonly printError: (sentence: string) => void;

  constructor(sessionId: string, wire: FaceWire, { within, printError }: AgentSetup) {
    this.sessionId = sessionId;
    this.wire = wire;
    this.within = within;
    this.printError = printError;
  }

  get agentSessionId(): string | undefined {
    return this.binding?.agentSessionId;
  }

  get settings(): SessionSettings | undefined {
    return this.binding?.settings;
  }

  get isAtWork(): boolean {
    return this.turn !== undefined;
  }

  /** Runs work on the session in the order of its calls. */
  private inOrder<T>(work: (session: Session) => Promise<T> | T): Promise<T> {
    const run = async (): Promise<T> => work(this.wire.workspace.session(this.sessionId));
    return runInOrder(this.wire.dispatcher, run, this.sessionId);
  }

  // --- the session of the agent --------------------------------------------------------------------------------

  /**
   * Returns the agent's session that has ours up to its leaf: finds, loads, copies or makes it. `register` notes its
   * id, and throws if it is invalid.
   */
  bind(agent: ConnectedAgent, about: AgentSession, register: (agentSessionId: string) => void): Promise<AgentBinding> {
    // Two concurrent calls would make two sessions.
    const joined = this.joined.then(async () => {
      const { binding: before } = this;
      const binding = await this.findOrMake(agent, about, register);
      if (before && before !== binding) await restoreSettings(binding, before.settings);
      return binding;
    });
    this.joined = joined.catch(() => {});
    return joined;
  }

  private async findOrMake(
    agent: ConnectedAgent,
    about: AgentSession,
    register: (id: string) => void,
  ): Promise<AgentBinding> {
    const state = await this.inOrder(async (session) => {
      await this.writeBetweenTurns(session);
      const { binding } = this;
      // A turn moves the leaf with the agent's own messages.
      return binding?.agent === agent && (this.turn || binding.leafId === session.leafId)
        ? undefined
        : matchAgentSession(session, agent.name);
    });
    const { binding } = this;
    if (!state) return binding as AgentBinding;
    const known =
      binding && !binding.needsSeed && binding.leafId === state.leafId ? binding.agentSessionId : state.knownAs;
    const { cwd, openParams } = about;
    const where = {
      ...{ cwd, mcpServers: openParams?.mcpServers ?? [] },
      ...pickMember(openParams, "additionalDirectories"),
      ...pickMember(openParams, "_meta"),
    };
    const start = (id: string, fidelity: HistoryFidelity, opened: LooseMembers, isNoted: boolean): AgentBinding => {
      const needsSeed = fidelity === "seeded";
      const settings = new SessionSettings(opened);
      const begun = { agent, agentSessionId: id, fidelity, settings, where, needsSeed, isNoted, leafId: state.leafId };
      this.binding = begun;
      try {
        register(id);
      } catch (error) {
        this.binding = binding;
        throw error;
      }
      return begun;
    };
    const { sessionCapabilities, loadSession } = agent.capabilities;
    const method = toMembers(sessionCapabilities).resume ? "session/resume" : loadSession === true && "session/load";
    if (known !== undefined && method) {
      const begin = (): AgentBinding => start(known, "native", {}, known === state.knownAs);
      const reopened = await this.reopen(begin, method, where);
      if (reopened) return reopened;
    }
    const copied = state.copyOf === undefined ? undefined : await forkInAgent(agent, state.copyOf, where);
    if (copied) return start(toStored(copied.sessionId), "native", copied, false);
    const made = await agent.link.request("session/new", where);
    return start(toStored(made.sessionId), state.isEmpty ? "native" : "seeded", made, false);
  }

  /** Has the agent reopen one of its sessions. Returns undefined if it cannot. */
  private async reopen(begin: () => AgentBinding, method: string, where: object): Promise<AgentBinding | undefined> {
    // The client has the past from us.
    this.isReplay = true;
    try {
      const binding = begin();
      const { agent, agentSessionId: sessionId, settings } = binding;
      settings.take(await agent.link.request(method, { sessionId, ...where }));
      return binding;
    } catch (error) {
      this.binding = undefined;
      if (error instanceof Failure) throw error;
      return undefined;
    } finally {
      await this.whenDelivered();
      this.isReplay = false;
    }
  }

  /** Sends the updates that came before the client had the session. */
  async sendEarlyUpdates(): Promise<void> {
    this.isIntroduced = true;
    for (const { update, meta } of this.earlyUpdates.splice(0)) await this.channel?.update(moveMessageId(update), meta);
  }

  // --- a turn --------------------------------------------------------------------------------------------------

  /** Runs a turn. `params`: those of the client's request. */
  async prompt(
    binding: AgentBinding,
    blocks: readonly PromptBlock[],
    channel: ClientChannel,
    params?: AgentReply,
  ): Promise<AgentReply> {
    const { agent, agentSessionId } = binding;
    const speaker: AcpSpeaker = { api: "acp", provider: agent.name, model: agent.name };
    const recorded = new AcpTurn(speaker, () => this.wire.workspace.env.now());
    let recordedAll = (): void => {};
    const whenRecorded = new Promise<void>((resolve) => {
      recordedAll = resolve;
    });
    const turn: RunningTurn = {
      ...{ recorded, channel, isCancelled: false, failure: undefined },
      ...{ recordedAll, whenRecorded },
    };
    this.turn = turn;
    this.channel = channel;
    let sent = blocks;
    let hasBegun = false;
    try {
      await this.inOrder(async (session) => {
        await becomeWriter(session);
        const seed = binding.needsSeed ? makeSeed(session) : undefined;
        if (seed !== undefined) sent = [{ type: "text", text: seed }, ...blocks];
        // The prompt is durable before the agent gets it.
        await this.append(session, [...this.makeNote(binding), ...this.takeBetweenTurns(), ...recorded.begin(blocks)]);
        hasBegun = true;
      });
      const { fidelity } = binding;
      if (turn.isCancelled) return await this.ended(binding, turn, { stopReason: "cancelled" });
      const request = { ...params, sessionId: agentSessionId, prompt: sent };
      const result = await agent.link.request("session/prompt", request, true);
      binding.needsSeed = false;
      await this.ended(binding, turn, result);
      return {
        ...result,
        stopReason: toStored(result.stopReason) || "end_turn",
        ...(fidelity === "native" ? {} : { _meta: { ...toMembers(result._meta), [SERVER_NAME]: { fidelity } } }),
      };
    } catch (error) {
      // Nothing of the turn was written.
      if (!hasBegun || error === turn.failure) throw error;
      const isCancelled = turn.isCancelled;
      const stopReason = isCancelled ? "aborted" : "error";
      await this.ended(binding, turn, { stopReason }, isCancelled ? "The turn was ended." : (error as Error).message);
      if (isCancelled) return { stopReason: "cancelled" };
      throw error;
    } finally {
      turn.recordedAll();
      this.turn = undefined;
    }
  }

  private makeNote(binding: AgentBinding): AcpDraft[] {
    if (binding.isNoted) return [];
    binding.isNoted = true;
    const { agent, agentSessionId, fidelity } = binding;
    const data = { agent: agent.info, agentSessionId, sessionId: this.sessionId, fidelity };
    return [{ type: "custom", rest: { customType: SESSION_NOTE, data } }];
  }

  /** Records the end of a turn, and reports the entries that it added. */
  private async ended(
    binding: AgentBinding,
    turn: RunningTurn,
    result: LooseMembers,
    why?: string,
  ): Promise<AgentReply> {
    await this.whenDelivered();
    try {
      await this.inOrder(async (session) => {
        await this.append(session, turn.recorded.end({ ...result, errorMessage: turn.failure?.message ?? why }));
        binding.leafId = session.leafId;
      });
    } catch (error) {
      turn.failure ??= error as Error;
    }
    turn.recordedAll();
    if (this.half) await turn.channel.update(moveMessageId(this.half)).catch(() => {});
    this.half = undefined;
    await turn.channel.sendNewEntries(() => "shown").catch(() => {});
    if (turn.failure) throw turn.failure;
    return result;
  }

  /** Writes entries, and reports them when they are durable. Returns their ids. */
  private async append(session: Session, drafts: readonly AcpDraft[]): Promise<readonly string[]> {
    if (drafts.length === 0) return [];
    const ready = becomeWriter(session);
    if (ready instanceof Promise) await ready;
    const { ids } = session.append(drafts.map(({ type, rest }) => makeDraft(type, rest)));
    await session.commit();
    notifyWrittenEntries(this.wire.dispatcher, session, ids);
    return ids;
  }

  // --- between turns -------------------------------------------------------------------------------------------

  /** Returns the agent's messages since its turn, and clears them. */
  private takeBetweenTurns(): AcpDraft[] {
    const said = this.betweenTurns?.end({}) ?? [];
    this.betweenTurns = undefined;
    return said;
  }

  /**
   * Writes the agent's messages since its turn, before a call looks at the session. A session without a turn is not
   * created for them. Never rejects.
   */
  writeBetweenTurns(session: Session): Promise<void> | undefined {
    if (!this.betweenTurns || this.turn || !session.log.persisted) return undefined;
    return this.write(session, this.takeBetweenTurns());
  }

  private async write(session: Session, said: readonly AcpDraft[]): Promise<void> {
    const { binding } = this;
    const { leafId } = session;
    try {
      for (const id of await this.append(session, said)) this.shown.add(id);
      if (binding?.leafId === leafId) binding.leafId = session.leafId;
    } catch (error) {
      this.printError(`What the agent said between turns could not be written. ${(error as Error).message}`);
    }
    for (const id of this.shown) {
      if (this.shown.size <= MAX_SHOWN) break;
      this.shown.delete(id);
    }
  }

  /** Classifies an entry that was written between turns. */
  readonly classify = ({ id }: PathEntry): EntryVisibility => (this.shown.delete(id) ? "shown" : "new");

  /** Resolves when all updates of the agent are delivered. */
  private async whenDelivered(): Promise<void> {
    let last: unknown;
    while (last !== this.last) {
      last = this.last;
      await this.last;
    }
  }

  cancel(): void {
    const { turn, binding } = this;
    if (!turn || turn.isCancelled) return;
    turn.isCancelled = true;
    binding?.agent.link.notify("session/cancel", { sessionId: binding.agentSessionId });
    const late = setTimeout(() => {
      if (this.turn === turn) binding?.agent.link.stopLate("did not end a cancelled turn of one of its sessions");
    }, this.within);
    late.unref();
  }

  /** Ends the running turn, and waits until the agent's messages are in the session. */
  async end(): Promise<void> {
    this.cancel();
    await this.turn?.whenRecorded;
    await this.whenDelivered();
    if (this.betweenTurns) await this.inOrder((session) => this.writeBetweenTurns(session)).catch(() => {});
  }

  // --- from the agent ------------------------------------------------------------------------------------------

  updated(update: LooseMembers, bytes: number, meta?: unknown): void {
    if (this.isReplay && HISTORY_KINDS.test(String(update.sessionUpdate))) return;
    const { turn, binding, channel = turn?.channel } = this;
    if (!turn && !this.isIntroduced) {
      if (this.earlyUpdates.length < MAX_EARLY) this.earlyUpdates.push({ update, meta });
      return;
    }
    binding?.settings.note(update);
    this.deliver(bytes, () => this.take(update, turn, channel, meta));
  }

  /** Takes another notification of the agent. */
  noticed(method: string, { sessionId: _, ...params }: LooseMembers, bytes: number): void {
    const { channel } = this;
    this.deliver(bytes, () => channel?.notify(method, params));
  }

  /** Delivers a message of the agent after those before it. */
  private deliver(bytes: number, work: () => Promise<void> | undefined): void {
    const { binding } = this;
    binding?.agent.link.countHeldBytes(bytes);
    this.last = this.last.then(async () => {
      try {
        await work();
      } catch {
        // A client that has gone gets no updates; a turn that cannot be written fails at its end.
      } finally {
        binding?.agent.link.countHeldBytes(-bytes);
      }
    });
  }

  private async take(
    update: LooseMembers,
    turn: RunningTurn | undefined,
    channel: ClientChannel | undefined,
    meta: unknown,
  ): Promise<void> {
    const drafts = turn?.recorded.update(update) ?? [];
    if (turn && drafts.length > 0) await this.record(turn, drafts);
    else if (!turn && HISTORY_KINDS.test(String(update.sessionUpdate))) await this.collectBetweenTurns(update);
    for (const sent of this.joinHalves(update)) await channel?.update(moveMessageId(sent), meta);
  }

  /** Returns the updates to send: half of a character at the end of a chunk waits for the next chunk. */
  private joinHalves(update: LooseMembers): LooseMembers[] {
    const { half } = this;
    this.half = undefined;
    const { type, text } = toMembers(update.content);
    const isText = /^agent_.*_chunk$/.test(String(update.sessionUpdate)) && type === "text" && typeof text === "string";
    if (half && (!isText || half.sessionUpdate !== update.sessionUpdate)) return [half, ...this.joinHalves(update)];
    if (!isText) return [update];
    const whole = `${toStored(toMembers(half?.content).text)}${text}`;
    const end = /[\ud800-\udbff]$/.test(text) ? whole.length - 1 : whole.length;
    if (end === text.length) return [update];
    const cut = (...range: [number, number?]): LooseMembers => ({
      ...update,
      content: { ...toMembers(update.content), text: whole.slice(...range) },
    });
    if (end < whole.length) this.half = cut(end);
    return end > 0 ? [cut(0, end)] : [];
  }

  /** Writes the finished messages of a turn before the client is sent the update. */
  private async record(turn: RunningTurn, drafts: readonly AcpDraft[]): Promise<void> {
    try {
      await this.inOrder((session) => this.append(session, drafts));
    } catch (error) {
      // The turn must not be reported as successful.
      turn.failure ??= error as Error;
      throw error;
    }
    await turn.channel.sendNewEntries(() => "shown");
  }

  /** Returns the updates of the running turn that no entry has yet. */
  listUnwritten(): LooseMembers[] {
    return this.turn?.recorded.listUnwritten() ?? [];
  }

  /** Collects the agent's messages between turns. */
  private async collectBetweenTurns(update: LooseMembers): Promise<void> {
    const { name } = this.binding?.agent ?? { name: "acp" };
    this.betweenTurns ??= new AcpTurn({ api: "acp", provider: name, model: name }, () => this.wire.workspace.env.now());
    const said = this.betweenTurns.update(update);
    if (said.length > 0) await this.inOrder((session) => this.write(session, said));
  }

  /** Passes a request of the agent to the client. */
  async asked(method: string, params: LooseMembers, signal: AbortSignal): Promise<unknown> {
    const { turn } = this;
    const channel = turn?.channel ?? this.channel;
    if (!channel) throw new Failure("cancelled");
    await this.whenDelivered();
    const { sessionId: _, ...rest } = params;
    if (method !== "session/request_permission" || !turn) return channel.ask(method, rest, signal);
    // The call is durable before the person decides about it, unless another one is still running.
    await this.record(turn, turn.recorded.flush());
    const asked = channel.ask(method, rest, signal);
    const answer = await asked.then(
      (result) => ({ result }),
      ({ code, message }) => ({ error: { code, message } }),
    );
    if (turn === this.turn) await this.record(turn, turn.recorded.permit(rest, answer));
    return asked;
  }
}

/** Moves the agent's message id to `_meta`: our message ids are those of the entries, which come later. */
function moveMessageId(update: LooseMembers): never {
  const { messageId, ...rest } = update;
  if (messageId === undefined || messageId === null) return update as never;
  return { ...rest, _meta: { ...toMembers(rest._meta), [SERVER_NAME]: { agentMessageId: messageId } } } as never;
}

/** Has the agent fork one of its sessions. Returns undefined if it cannot. */
async function forkInAgent(
  { link, capabilities }: ConnectedAgent,
  sessionId: string,
  where: object,
): Promise<LooseMembers | undefined> {
  if (!toMembers(capabilities.sessionCapabilities).fork) return undefined;
  try {
    // What `_meta` says about the end of the copy is for this server.
    return await link.request("session/fork", { sessionId, ...where, _meta: undefined });
  } catch (error) {
    if (error instanceof Failure) throw error;
    return undefined;
  }
}

function pickMember(from: LooseMembers | undefined, name: string): LooseMembers {
  return from?.[name] === undefined ? {} : { [name]: from[name] };
}

// --- mode and options of a session ----------------------------------------------------------------------------------

class SessionSettings {
  private modes: LooseMembers | undefined;
  configOptions: readonly unknown[] | undefined;

  constructor(opened: LooseMembers) {
    this.take(opened);
  }

  /** Takes those in the agent's reply to the request that opened the session. */
  take({ modes, configOptions }: LooseMembers): void {
    if (toStored(toMembers(modes).currentModeId) !== "") this.modes = toMembers(modes);
    this.setOptions(configOptions);
  }

  /** The settings, as members of a reply. */
  get current(): LooseMembers {
    const { modes, configOptions } = this;
    return { ...(modes ? { modes } : {}), ...(configOptions ? { configOptions } : {}) };
  }

  /** Applies an update of the settings. */
  note({ sessionUpdate, currentModeId, configOptions }: LooseMembers): void {
    if (sessionUpdate === "current_mode_update") this.setMode(currentModeId);
    if (sessionUpdate === "config_option_update") this.setOptions(configOptions);
  }

  setMode(currentModeId: unknown): void {
    if (this.modes && typeof currentModeId === "string") this.modes = { ...this.modes, currentModeId };
  }

  setOptions(configOptions: unknown): void {
    if (Array.isArray(configOptions)) this.configOptions = configOptions;
  }

  /** Yields the requests that set former settings again, where these are others. */
  *requestsFor(before: SessionSettings): Generator<[method: string, params: LooseMembers]> {
    const modeId = before.modes?.currentModeId;
    if (this.modes && modeId !== undefined && modeId !== this.modes.currentModeId)
      yield ["session/set_mode", { modeId }];
    for (const { id: configId, type, currentValue: value } of (before.configOptions ?? []).map(toMembers)) {
      const now = this.configOptions?.map(toMembers).find(({ id }) => id === configId);
      if (!now || now.currentValue === value) continue;
      yield ["session/set_config_option", { configId, value, ...(type === "boolean" ? { type } : {}) }];
    }
  }

  /** Yields the updates from the client's former settings to these. */
  *changesSince(before: SessionSettings): Generator<AcpUpdate> {
    const { modes, configOptions } = this;
    if (modes && modes.currentModeId !== before.modes?.currentModeId)
      yield { sessionUpdate: "current_mode_update", currentModeId: modes.currentModeId };
    if (configOptions && JSON.stringify(configOptions) !== JSON.stringify(before.configOptions))
      yield { sessionUpdate: "config_option_update", configOptions };
  }
}

/** Sets again in a session of the agent what was in force in the one before. The client is told where that fails. */
async function restoreSettings({ agent, agentSessionId, settings }: AgentBinding, before: SessionSettings) {
  for (const [method, params] of settings.requestsFor(before))
    try {
      settings.take(await agent.link.request(method, { sessionId: agentSessionId, ...params }));
      settings.setMode(params.modeId);
    } catch {
      // The settings are the agent's own, then.
    }
}

// --- the agent's session that continues one of ours -----------------------------------------------------------------

/** The `customType` of the entry that names the agent's session. */
const SESSION_NOTE = "acp";

/** The match of a session with those of an agent. */
interface AgentSessionMatch {
  readonly leafId: string | null;
  readonly isEmpty: boolean;
  /** The agent's session with exactly the entries of the path. */
  readonly knownAs: string | undefined;
  /** The agent's session that ours was copied from, with all its entries. */
  readonly copyOf: string | undefined;
}

/** Matches by the entries of the path. */
function matchAgentSession(session: Session, agentName: string): AgentSessionMatch {
  const { tree, log, leafId } = session;
  const { nodes } = log;
  let isEmpty = true;
  const hasMore = tree.leaf >= 0 && tree.childCount(tree.leaf) > 0;
  let match: Pick<AgentSessionMatch, "knownAs" | "copyOf"> = { knownAs: undefined, copyOf: undefined };
  let isTheirs = true;
  for (let at = tree.leaf; at >= 0; at = nodes.parent(at)) {
    const type = nodes.type(at);
    if (type === "message") {
      isEmpty = false;
      // Another agent continued from there.
      if (nodes.role(at) === "assistant" && toMembers(session.entry(at).message).api !== "acp") isTheirs = false;
    }
    if (type !== "custom") continue;
    const { customType, data } = session.entry(at) as LooseMembers;
    if (customType !== SESSION_NOTE) continue;
    const { agent, agentSessionId, sessionId = session.id } = toMembers(data);
    const isMeant = isTheirs && !hasMore && toStored(toMembers(agent).name) === agentName;
    if (isMeant && typeof agentSessionId === "string")
      match = sessionId === session.id ? { ...match, knownAs: agentSessionId } : { ...match, copyOf: agentSessionId };
    isEmpty = false;
    break;
  }
  return { leafId, isEmpty, ...match };
}

/** Characters of a seed: some 50,000 tokens, which leaves most models room to work. The newest ones are kept. */
const LONGEST = 200_000;

/** Returns the seed, the conversation at the leaf as text for an agent that cannot load it; undefined when it is empty. */
function makeSeed(session: Session): string | undefined {
  const { items } = session.context();
  const words: string[] = [];
  for (const text of session.messageTexts(items)) words.push(...toParagraphs(parse(text) as Record<string, unknown>));
  if (words.length === 0) return undefined;
  const kept: string[] = [];
  let length = 0;
  for (const paragraph of words.reverse()) {
    if (length + paragraph.length > LONGEST) {
      kept.push(kept.length === 0 ? paragraph.slice(-LONGEST) : "[What came before is left out.]");
      break;
    }
    length += paragraph.length;
    kept.push(paragraph);
  }
  const intro =
    "This conversation was begun in another session, which follows. Go on with it: what comes after it is the next message of the person.";
  return `${intro}\n\n<conversation>\n${kept.reverse().join("\n\n")}\n</conversation>\n\n`;
}
