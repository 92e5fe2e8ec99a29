/** A session of ours and the one in which an agent of the Agent Client Protocol goes on with it: turns are recorded and told. */

import { Failure } from "../../core/failure.ts";
import { draftOf } from "../../core/format/entry.ts";
import { type LooseMembers, membersOf } from "../../core/format/loose.ts";
import { stringOf } from "../../core/format/message.ts";
import type { Session } from "../../core/session/session.ts";
import { becomeWriter } from "../../core/session/writer.ts";
import type { Acquaintance, AgentReply, AgentSession, PromptBlock, Telling } from "../acp/agent.ts";
import { OURS, type PathEntry } from "../acp/narrator.ts";
import type { AcpLink } from "./acp-link.ts";
import { SessionSettings } from "./acp-settings.ts";
import { NOTE, standOf } from "./acp-stand.ts";
import { type AcpDraft, type AcpSpeaker, AcpTurn, userBlocks } from "./acp-turn.ts";
import { type AgentMeans, runInOrder, type ServerEnds, tellOfWritten } from "./joining.ts";
import { seedOf } from "./seed.ts";

/** How a session of the agent knows what was said in ours: of itself, or because it was told so in words. */
type AgentKnowledge = "native" | "seeded";

/** An agent that was met. */
export interface MetAgent {
  readonly link: AcpLink;
  readonly name: string;
  readonly info: LooseMembers;
  readonly capabilities: LooseMembers;
}

/** The session of the agent that goes on with ours. */
interface Bond {
  readonly agent: MetAgent;
  readonly agentSessionId: string;
  readonly fidelity: AgentKnowledge;
  readonly settings: SessionSettings;
  /** Whether the next prompt begins with the conversation so far. */
  needsSeed: boolean;
  /** Whether the session says which one of the agent it is. */
  isNoted: boolean;
  /** The leaf up to which it knows the conversation. */
  leafId: string | null;
}

/** Updates that are kept until the client knows the session. */
const MOST_EARLY = 256;
/** Updates that are written between turns and the client was shown, whose entries it need not be shown. */
const MOST_JUDGED = 1024;
/** Kinds of updates that are messages of a session. */
const SPOKEN = /_chunk$|^tool_call/;
/** Kinds of updates that tell what was said. */
const PAST = /_chunk$|^tool_call|^plan$|^usage_update$|^compaction/;

interface RunningTurn {
  readonly recorded: AcpTurn;
  readonly telling: Telling;
  isCancelled: boolean;
  /** Why it cannot be recorded. */
  failure: Error | undefined;
  /** Called when all of it is in the session. */
  readonly recordedAll: () => void;
  readonly whenRecorded: Promise<void>;
}

export class AcpSeat {
  readonly sessionId: string;
  telling: Telling | undefined;
  private readonly ends: ServerEnds;
  private bond: Bond | undefined;
  private turn: RunningTurn | undefined;
  /** Ends with what was said of the session so far, told and recorded. */
  private last: Promise<unknown> = Promise.resolve();
  /** Updates that came before the client knew the session. */
  private readonly early: LooseMembers[] = [];
  /** Collects what the agent says between turns, which the next look at the session finds there. */
  private between: AcpTurn | undefined;
  /** Entries of that, which the client was shown while it came. */
  private readonly shown = new Set<string>();
  /** Ends when the session of the agent that was wanted last is found or made. */
  private joined: Promise<unknown> = Promise.resolve();
  private isIntroduced = false;
  /** Whether updates are those of a past that the client has. */
  private isReplay = false;
  private readonly within: number;
  private readonly printError: (sentence: string) => void;

  constructor(sessionId: string, ends: ServerEnds, { within, printError }: AgentMeans) {
    this.sessionId = sessionId;
    this.ends = ends;
    this.within = within;
    this.printError = printError;
  }

  get agentSessionId(): string | undefined {
    return this.bond?.agentSessionId;
  }

  get settings(): SessionSettings | undefined {
    return this.bond?.settings;
  }

  get isAtWork(): boolean {
    return this.turn !== undefined;
  }

  /** Runs work on the session in the order of its calls. */
  private inOrder<T>(work: (session: Session) => Promise<T> | T): Promise<T> {
    return new Promise((resolve, reject) => {
      const run = async (): Promise<void> => {
        try {
          resolve(await work(this.ends.workspace.session(this.sessionId)));
        } catch (error) {
          reject(error);
        }
      };
      void runInOrder(this.ends.dispatcher, run, this.sessionId);
    });
  }

  // --- the session of the agent --------------------------------------------------------------------------------

  /**
   * Returns the session of the agent that knows ours as it is now; finds, loads, copies or makes it. `register` notes the
   * id of that, and throws where it cannot be.
   */
  join(agent: MetAgent, about: AgentSession, register: (agentSessionId: string) => void): Promise<Bond> {
    // Two at a time would make two of them.
    const joined = this.joined.then(() => this.findOrMake(agent, about, register));
    this.joined = joined.catch(() => {});
    return joined;
  }

  private async findOrMake(agent: MetAgent, about: AgentSession, register: (id: string) => void): Promise<Bond> {
    const state = await this.inOrder(async (session) => {
      await this.keep(session);
      const { bond } = this;
      return bond?.agent === agent && bond.leafId === session.leafId ? undefined : standOf(session, agent.name);
    });
    const { bond } = this;
    if (!state) return bond as Bond;
    const known = bond && !bond.needsSeed && bond.leafId === state.leafId ? bond.agentSessionId : state.knownAs;
    const { cwd, given } = about;
    const where = { cwd, mcpServers: given?.mcpServers ?? [], ...pick(given, "additionalDirectories") };
    const begin = (id: string, fidelity: AgentKnowledge, opened: LooseMembers, isNoted: boolean): Bond => {
      const needsSeed = fidelity === "seeded";
      const settings = new SessionSettings(opened);
      const begun = { agent, agentSessionId: id, fidelity, settings, needsSeed, isNoted, leafId: state.leafId };
      this.bond = begun;
      try {
        register(id);
      } catch (error) {
        this.bond = bond;
        throw error;
      }
      return begun;
    };
    if (known !== undefined) {
      const settings = await this.reopen(agent, known, where, register);
      if (settings) return begin(known, "native", settings, known === state.knownAs);
    }
    const copied = state.copyOf === undefined ? undefined : await copy(agent, state.copyOf, where);
    if (copied) return begin(stringOf(copied.sessionId), "native", copied, false);
    const made = await agent.link.request("session/new", where);
    return begin(stringOf(made.sessionId), state.isEmpty ? "native" : "seeded", made, false);
  }

  /** Has the agent open a session of its own again. Returns undefined where it cannot. */
  private async reopen(
    agent: MetAgent,
    sessionId: string,
    where: object,
    register: (agentSessionId: string) => void,
  ): Promise<LooseMembers | undefined> {
    const { sessionCapabilities, loadSession } = agent.capabilities;
    const method = membersOf(sessionCapabilities).resume ? "session/resume" : loadSession === true && "session/load";
    if (!method) return undefined;
    // What it tells of the past, the client has from us.
    this.isReplay = true;
    this.bond = {
      agent,
      agentSessionId: sessionId,
      fidelity: "native",
      settings: new SessionSettings({}),
      needsSeed: false,
      isNoted: true,
      leafId: null,
    };
    try {
      register(sessionId);
      return await agent.link.request(method, { sessionId, ...where });
    } catch (error) {
      this.bond = undefined;
      if (error instanceof Failure) throw error;
      return undefined;
    } finally {
      await this.settled();
      this.isReplay = false;
    }
  }

  /** Tells what the agent has said of the session before the client knew it. */
  async introduce(): Promise<void> {
    this.isIntroduced = true;
    for (const update of this.early.splice(0)) await this.telling?.update(ofOurs(update));
  }

  // --- a turn --------------------------------------------------------------------------------------------------

  async prompt(bond: Bond, blocks: readonly PromptBlock[], telling: Telling): Promise<AgentReply> {
    const { agent, agentSessionId } = bond;
    const speaker: AcpSpeaker = { api: "acp", provider: agent.name, model: agent.name };
    const recorded = new AcpTurn(speaker, () => this.ends.workspace.env.now());
    let recordedAll = (): void => {};
    const whenRecorded = new Promise<void>((resolve) => {
      recordedAll = resolve;
    });
    const turn: RunningTurn = {
      ...{ recorded, telling, isCancelled: false, failure: undefined },
      ...{ recordedAll, whenRecorded },
    };
    this.turn = turn;
    this.telling = telling;
    let given = blocks;
    let hasBegun = false;
    try {
      await this.inOrder(async (session) => {
        await becomeWriter(session);
        const seed = bond.needsSeed ? seedOf(session) : undefined;
        if (seed !== undefined) given = [{ type: "text", text: seed }, ...blocks];
        await this.append(session, [
          ...this.noteOf(bond),
          ...this.takeBetween(),
          ...promptOf(blocks, this.ends.workspace.env.now()),
        ]);
        // What the agent hears is durable.
        await session.commit();
        hasBegun = true;
      });
      const { fidelity } = bond;
      if (turn.isCancelled) return await this.ended(bond, turn, { stopReason: "cancelled" });
      const result = await agent.link.request("session/prompt", { sessionId: agentSessionId, prompt: given }, true);
      bond.needsSeed = false;
      await this.ended(bond, turn, result);
      return {
        ...result,
        stopReason: stringOf(result.stopReason) || "end_turn",
        ...(fidelity === "native" ? {} : { _meta: { ...membersOf(result._meta), [OURS]: { fidelity } } }),
      };
    } catch (error) {
      // Nothing of it is there.
      if (!hasBegun || error === turn.failure) throw error;
      const isCancelled = turn.isCancelled;
      const stopReason = isCancelled ? "aborted" : "error";
      await this.ended(bond, turn, { stopReason }, isCancelled ? "The turn was ended." : (error as Error).message);
      if (isCancelled) return { stopReason: "cancelled" };
      throw error;
    } finally {
      turn.recordedAll();
      this.turn = undefined;
    }
  }

  private noteOf(bond: Bond): AcpDraft[] {
    if (bond.isNoted) return [];
    bond.isNoted = true;
    const { agent, agentSessionId, fidelity } = bond;
    const data = { agent: agent.info, agentSessionId, sessionId: this.sessionId, fidelity };
    return [{ type: "custom", rest: { customType: NOTE, data } }];
  }

  /** Records the end of a turn, and tells what of it is in the session. */
  private async ended(bond: Bond, turn: RunningTurn, result: LooseMembers, why?: string): Promise<AgentReply> {
    await this.settled();
    try {
      await this.inOrder(async (session) => {
        await this.append(session, turn.recorded.end(result, turn.failure?.message ?? why));
        await session.commit();
        bond.leafId = session.leafId;
      });
    } catch (error) {
      turn.failure ??= error as Error;
    }
    turn.recordedAll();
    await turn.telling.keepUp(() => "shown").catch(() => {});
    if (turn.failure) throw turn.failure;
    return result;
  }

  private async append(session: Session, drafts: readonly AcpDraft[]): Promise<readonly string[]> {
    if (drafts.length === 0) return [];
    const becoming = becomeWriter(session);
    if (becoming) await becoming;
    session.refreshToWrite();
    const { ids } = session.append(drafts.map(({ type, rest }) => draftOf(type, rest)));
    tellOfWritten(this.ends.dispatcher, session, ids);
    return ids;
  }

  // --- between turns -------------------------------------------------------------------------------------------

  /** Returns what the agent has said since its turn, and forgets it. */
  private takeBetween(): AcpDraft[] {
    const said = this.between?.end({}) ?? [];
    this.between = undefined;
    return said;
  }

  /**
   * Writes what the agent has said since its turn, before the session is looked at. A session without a turn is not made
   * for it. Never rejects.
   */
  keep(session: Session): Promise<void> | undefined {
    if (!this.between || this.turn || !session.log.persisted) return undefined;
    return this.write(session, this.takeBetween());
  }

  private async write(session: Session, said: readonly AcpDraft[]): Promise<void> {
    const { bond } = this;
    const { leafId } = session;
    try {
      for (const id of await this.append(session, said)) this.shown.add(id);
      if (bond?.leafId === leafId) bond.leafId = session.leafId;
      await session.commit();
    } catch (error) {
      this.printError(`What the agent said between turns could not be written. ${(error as Error).message}`);
    }
    for (const id of this.shown) {
      if (this.shown.size <= MOST_JUDGED) break;
      this.shown.delete(id);
    }
  }

  /** Says how the client stands to an entry that was written between turns. */
  readonly judge = ({ id }: PathEntry): Acquaintance => (this.shown.delete(id) ? "shown" : "new");

  /** Resolves when what the agent has said is told. */
  private async settled(): Promise<void> {
    let last: unknown;
    while (last !== this.last) {
      last = this.last;
      await this.last;
    }
  }

  cancel(): void {
    const { turn, bond } = this;
    if (!turn || turn.isCancelled) return;
    turn.isCancelled = true;
    bond?.agent.link.notify("session/cancel", { sessionId: bond.agentSessionId });
    const late = setTimeout(() => {
      if (this.turn === turn) bond?.agent.link.giveUp(`did not end a turn for ${this.within} ms and was ended`);
    }, this.within);
    late.unref();
  }

  /** Ends the turn that runs, and waits until what the agent has said is in the session. */
  async end(): Promise<void> {
    this.cancel();
    await this.turn?.whenRecorded;
    await this.settled();
    if (this.between) await this.inOrder((session) => this.keep(session)).catch(() => {});
  }

  // --- what the agent says -------------------------------------------------------------------------------------

  updated(update: LooseMembers, bytes: number): void {
    if (this.isReplay && PAST.test(String(update.sessionUpdate))) return;
    const { turn, bond, telling = turn?.telling } = this;
    if (!turn && !this.isIntroduced) {
      if (this.early.length < MOST_EARLY) this.early.push(update);
      return;
    }
    bond?.settings.note(update);
    bond?.agent.link.held(bytes);
    this.last = this.last.then(async () => {
      try {
        await this.take(update, turn, telling);
      } catch {
        // A client that has gone hears no more; a turn that cannot be written fails at its end.
      } finally {
        bond?.agent.link.held(-bytes);
      }
    });
  }

  private async take(update: LooseMembers, turn: RunningTurn | undefined, telling: Telling | undefined): Promise<void> {
    const drafts = turn?.recorded.take(update) ?? [];
    if (turn && drafts.length > 0) await this.record(turn, drafts);
    else if (!turn && SPOKEN.test(String(update.sessionUpdate))) await this.hear(update);
    await telling?.update(ofOurs(update));
  }

  /** Writes what is finished of a turn, before the client is told of it. */
  private async record(turn: RunningTurn, drafts: readonly AcpDraft[]): Promise<void> {
    try {
      await this.inOrder(async (session) => {
        await this.append(session, drafts);
        await session.commit();
      });
    } catch (error) {
      // The turn is not told of as one that ended well.
      turn.failure ??= error as Error;
      throw error;
    }
    await turn.telling.keepUp(() => "shown");
  }

  /** Takes what the agent says between turns. */
  private async hear(update: LooseMembers): Promise<void> {
    const { name } = this.bond?.agent ?? { name: "acp" };
    this.between ??= new AcpTurn({ api: "acp", provider: name, model: name }, () => this.ends.workspace.env.now());
    const said = this.between.take(update);
    if (said.length > 0) await this.inOrder((session) => this.write(session, said));
  }

  /** Asks the client what the agent asks of it. */
  async asked(method: string, params: LooseMembers): Promise<unknown> {
    const { turn } = this;
    const telling = turn?.telling ?? this.telling;
    if (!telling) throw new Failure("cancelled");
    await this.settled();
    const { sessionId: _, ...rest } = params;
    const result = await telling.ask(method, rest);
    if (method === "session/request_permission" && turn && turn === this.turn)
      await this.inOrder(async (session) =>
        this.append(session, [
          { type: "custom", rest: { customType: "acp_permission", data: { request: rest, result } } },
        ]),
      );
    return result;
  }
}

/** Returns an update with ids that the session has: those of messages are the entries', which come later. */
function ofOurs(update: LooseMembers): never {
  const { messageId, ...rest } = update;
  if (messageId === undefined || messageId === null) return update as never;
  return { ...rest, _meta: { ...membersOf(rest._meta), [OURS]: { agentMessageId: messageId } } } as never;
}

function promptOf(prompt: readonly PromptBlock[], timestamp: number): AcpDraft[] {
  const { blocks, isWhole } = userBlocks(prompt);
  const message = { role: "user", content: blocks, timestamp };
  const drafts: AcpDraft[] = [{ type: "message", rest: { message } }];
  if (!isWhole) drafts.push({ type: "custom", rest: { customType: "acp_prompt", data: { prompt } } });
  return drafts;
}

/** Has the agent copy a session of its own. Returns undefined where it cannot. */
async function copy(
  { link, capabilities }: MetAgent,
  sessionId: string,
  where: object,
): Promise<LooseMembers | undefined> {
  if (!membersOf(capabilities.sessionCapabilities).fork) return undefined;
  try {
    return await link.request("session/fork", { sessionId, ...where });
  } catch (error) {
    if (error instanceof Failure) throw error;
    return undefined;
  }
}

function pick(from: LooseMembers | undefined, name: string): LooseMembers {
  return from?.[name] === undefined ? {} : { [name]: from[name] };
}
