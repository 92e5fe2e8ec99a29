/**
 * Records the messages between an editor and an agent of the Agent Client Protocol: each session of the agent becomes
 * one of ours, with the same id if possible. Lines are only read here; the caller passes them on, after the returned
 * promise if there is one.
 */

import { Failure } from "../../../core/failure.ts";
import { makeDraft, SESSION_ID } from "../../../core/format/entry.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import type { Session } from "../../../core/session/session.ts";
import type { Workspace } from "../../../core/session/workspace.ts";
import { becomeWriter } from "../../../core/session/writer.ts";
import type { RemoteOutage } from "../../../server/agents-module.ts";
import { type AcpDraft, type AcpSpeaker, AcpTurn, makePermissionDraft } from "./acp-turn.ts";

/** A session of the agent, and its record. */
interface RecordedSession {
  readonly agentSessionId: string;
  readonly session: Session;
  turn: AcpTurn;
  /** True if the agent replays the past of a session that was recorded. */
  isReplay: boolean;
  /**
   * Resolves when other machines have answered about the session, and the pending entries are written. Until then
   * nothing else is written or asked. Never rejects.
   */
  busy?: Promise<void>;
}

/** A request without a reply. */
interface OpenRequest {
  readonly method: string;
  readonly params: LooseMembers;
}

/** Requests of either side that are kept until their reply. */
const MAX_OPEN = 10_000;
/** The `customType` of the entry that names the agent and its session. */
const CUSTOM = "acp";

export class AcpRecorder {
  private readonly workspace: Workspace;
  private readonly complain: (sentence: string) => void;
  private readonly outage: RemoteOutage | undefined;
  private readonly sessions = new Map<string, RecordedSession>();
  /** Unanswered requests of the client, and of the agent, by the JSON text of their ids. */
  private readonly clientRequests = new Map<string, OpenRequest>();
  private readonly agentRequests = new Map<string, OpenRequest>();
  private speaker: AcpSpeaker = { api: "acp", provider: "acp", model: "unknown" };
  private agentInfo: LooseMembers = {};
  private hasFailed = false;
  /** Sessions whose last read failed. */
  private readonly unread = new WeakSet<Session>();

  /** `outage`: undefined if nothing is recorded while other machines cannot be asked. */
  constructor(workspace: Workspace, complain: (sentence: string) => void, outage?: RemoteOutage) {
    this.workspace = workspace;
    this.complain = complain;
    this.outage = outage;
  }

  /** Ids, as JSON text, of unanswered requests of the client. */
  get unanswered(): readonly string[] {
    return [...this.clientRequests.keys()];
  }

  // --- from the client -----------------------------------------------------------------------------------------

  /**
   * Takes a message of the client. Returns a promise that must resolve before the message is passed on: a prompt is
   * durable before the agent gets it. Rejects when it cannot be written.
   */
  fromClient(message: LooseMembers): Promise<void> | undefined {
    const { id, method } = message;
    const params = toMembers(message.params);
    if (typeof method !== "string") {
      return this.answered(this.agentRequests, message);
    }
    if (id !== undefined) remember(this.clientRequests, id, { method, params });
    if (method === "session/prompt") return this.prompted(params);
    if (method === "session/load" || method === "session/resume")
      return this.begin(params, method === "session/load").then(() => {});
    return undefined;
  }

  private async prompted({ sessionId, prompt }: LooseMembers): Promise<void> {
    const recorded = this.sessions.get(String(sessionId)) ?? (await this.begin({ sessionId }, false));
    await this.writeDurably(recorded, recorded.turn.begin(Array.isArray(prompt) ? prompt : []));
  }

  /** Starts or continues the record of a session of the agent, also when another machine has recorded it. */
  private async begin({ sessionId, cwd }: LooseMembers, isLoaded: boolean, isNew = false): Promise<RecordedSession> {
    const agentSessionId = String(sessionId);
    const isMeant = !this.sessions.has(agentSessionId) && SESSION_ID.test(agentSessionId);
    const mayHaveId = !isMeant || (await this.fetchRemote(agentSessionId, isNew));
    const known = this.sessions.get(agentSessionId);
    if (known) {
      known.isReplay = isLoaded;
      return known;
    }
    const found = this.find(agentSessionId);
    const session = found ?? this.make(agentSessionId, typeof cwd === "string" ? cwd : undefined, mayHaveId);
    const turn = new AcpTurn(this.speaker, () => this.workspace.env.now());
    const recorded = { agentSessionId, session, turn, isReplay: isLoaded && found !== undefined };
    this.sessions.set(agentSessionId, recorded);
    return recorded;
  }

  /**
   * Fetches the session if another machine has recorded it. Returns whether a new session may have this id: another
   * machine may have it while it cannot be asked, unless the agent has just made it. Rejects when it must be asked.
   */
  private async fetchRemote(sessionId: string, isNew: boolean): Promise<boolean> {
    const isAlone = this.outage?.lasts === true;
    try {
      await this.workspace.arrive({ sessionId, isWhole: true });
      return isNew || !isAlone;
    } catch (error) {
      // A deleted session stays deleted; the record continues in a new one.
      if (error instanceof Failure && error.details.deleted === true) return false;
      const begins = await this.outage?.begins();
      // The agent has made the session anyway. If the failure lasts, the first write reports it.
      if (!isNew && !begins) throw error;
      return isNew;
    }
  }

  /** Returns the record of a session of the agent, if it exists. */
  private find(agentSessionId: string): Session | undefined {
    if (!SESSION_ID.test(agentSessionId)) return undefined;
    try {
      return this.workspace.open({ sessionId: agentSessionId, isWhole: true });
    } catch {
      // A missing or unreadable record is replaced by a new one.
    }
    return undefined;
  }

  private make(agentSessionId: string, cwd: string | undefined, mayHaveId: boolean): Session {
    const id = mayHaveId && SESSION_ID.test(agentSessionId) ? agentSessionId : undefined;
    let session: Session;
    try {
      session = this.workspace.create({ cwd, id });
    } catch {
      session = this.workspace.create({ cwd });
    }
    this.appendNote(session, agentSessionId);
    return session;
  }

  private appendNote(session: Session, agentSessionId: string): void {
    const data = { agent: this.agentInfo, agentSessionId };
    session.append([makeDraft("custom", { customType: CUSTOM, data })], undefined, true);
  }

  /** Continues in a copy of the record, because the agent forked its session. */
  private async copy({ session }: RecordedSession, agentSessionId: string): Promise<void> {
    if (this.sessions.has(agentSessionId) || !SESSION_ID.test(agentSessionId) || !session.log.persisted) return;
    await session.commit();
    const copied = await this.workspace.fork(session, session.tree.leaf, { comesOf: session, id: agentSessionId });
    await this.workspace.complete(copied, () => this.appendNote(copied, agentSessionId));
    const turn = new AcpTurn(this.speaker, () => this.workspace.env.now());
    this.sessions.set(agentSessionId, { agentSessionId, session: copied, turn, isReplay: false });
  }

  /** Ends the record of a session that the client has closed. Other programs may then write to it. */
  private async closeRecord(recorded: RecordedSession): Promise<void> {
    this.sessions.delete(recorded.agentSessionId);
    await this.finishRecord(recorded, recorded.turn.end({}));
  }

  /** Forgets a request of the client that was not passed on. */
  forget({ id }: LooseMembers): void {
    this.clientRequests.delete(JSON.stringify(id ?? null));
  }

  // --- from the agent ------------------------------------------------------------------------------------------

  /**
   * Takes a message of the agent. Finished messages are written before it is passed on. At the end of a turn, returns a
   * promise that resolves when they are durable.
   */
  fromAgent(message: LooseMembers): Promise<void> | undefined {
    const { id, method } = message;
    const params = toMembers(message.params);
    if (method === "session/update") {
      const recorded = this.sessions.get(String(params.sessionId));
      if (!recorded || recorded.isReplay) return undefined;
      return this.write(recorded, recorded.turn.update(toMembers(params.update)));
    }
    if (typeof method === "string") {
      if (id !== undefined) remember(this.agentRequests, id, { method, params });
      return undefined;
    }
    return this.answered(this.clientRequests, message);
  }

  private answered(asked: Map<string, OpenRequest>, { id, result, error }: LooseMembers): Promise<void> | undefined {
    const key = JSON.stringify(id ?? null);
    const request = asked.get(key);
    if (!request) return undefined;
    asked.delete(key);
    const { method, params } = request;
    const outcome = toMembers(result);
    const recorded = this.sessions.get(String(params.sessionId));
    if (method === "initialize") this.identify(outcome);
    else if (method === "session/new" && typeof outcome.sessionId === "string")
      return this.begin({ ...params, sessionId: outcome.sessionId }, false, true).then(() => {});
    else if (method === "session/fork" && recorded && typeof outcome.sessionId === "string")
      return this.copy(recorded, outcome.sessionId);
    else if (method === "session/close" && recorded && error === undefined) return this.closeRecord(recorded);
    else if (method === "session/load" && recorded) {
      // A replayed past that was not recorded is written.
      const { isReplay } = recorded;
      recorded.isReplay = false;
      if (!isReplay) return this.write(recorded, recorded.turn.end({}));
    } else if (method === "session/request_permission" && recorded)
      return this.write(recorded, [makePermissionDraft(params, { result, error })]);
    else if (method === "session/prompt" && recorded) {
      const failed = error === undefined ? undefined : String(toMembers(error).message ?? "The agent refused.");
      return this.writeDurably(recorded, recorded.turn.end({ ...outcome, errorMessage: failed }));
    }
    return undefined;
  }

  private identify({ agentInfo }: LooseMembers): void {
    this.agentInfo = toMembers(agentInfo);
    const name = typeof this.agentInfo.name === "string" && this.agentInfo.name !== "" ? this.agentInfo.name : "acp";
    this.speaker = { api: "acp", provider: name, model: name };
  }

  // --- writing -------------------------------------------------------------------------------------------------

  /** Writes entries. Returns a promise to wait for if other machines may write to the session, too. */
  private write(recorded: RecordedSession, written: readonly AcpDraft[]): Promise<void> | undefined {
    if (written.length === 0) return undefined;
    const { session, busy } = recorded;
    if (busy) return busy.then(() => this.write(recorded, written));
    const ready = becomeWriter(session);
    if (ready instanceof Promise)
      return markBusy(
        recorded,
        ready.then(() => this.append(session, written)),
      );
    this.append(session, written);
    return undefined;
  }

  private append(session: Session, written: readonly AcpDraft[]): void {
    session.append(written.map(({ type, rest }) => makeDraft(type, rest)));
    // A failure is reported here too, because this commit has no caller that waits.
    session.commit().catch((error) => this.fail(error));
  }

  private async writeDurably(recorded: RecordedSession, written: readonly AcpDraft[]): Promise<void> {
    await this.write(recorded, written);
    await recorded.session.commit();
  }

  /** Synchronizes sessions with other machines between messages: reads their entries, and uploads pending ones. */
  synchronize(): void {
    const { stores } = this.workspace;
    stores.uploadPending?.(() => Array.from(this.sessions.values(), ({ session }) => session.log));
    for (const recorded of this.sessions.values()) {
      const { session } = recorded;
      const { log } = session;
      if (recorded.busy || log.durableCount < log.nodes.count) continue;
      try {
        this.report(session, session.refresh() ?? undefined);
        this.unread.delete(session);
      } catch (error) {
        if (!this.unread.has(session))
          this.complain(`${describeRecord(session)} cannot be read. ${(error as Error).message}`);
        this.unread.add(session);
        continue;
      }
      // The next prompt meets the same failure and reports it.
      const followed = session.log.replica?.follow();
      if (followed) markBusy(recorded, followed).catch(() => {});
    }
  }

  /** Reports entries that another program removed from a record, or damaged: no host sees the record. */
  private report(session: Session, { lost }: { readonly lost: number } = { lost: 0 }): void {
    const reasons = session.externalChanges.freshDamage().map(({ reason }) => reason);
    if (lost > 0) reasons.unshift(`another program rewrote it without ${lost} entries that were there`);
    for (const reason of reasons)
      this.complain(
        `${describeRecord(session)} is damaged: ${reason}. verify shows the rest; new messages are recorded.`,
      );
  }

  /** Reports once that turns cannot be recorded. */
  fail(error: unknown): void {
    if (this.hasFailed) return;
    this.hasFailed = true;
    this.complain(`A turn could not be recorded. ${(error as Error).message}`);
  }

  /** Writes the unfinished part of the running turns, and the reason why they ended. Never rejects. */
  async end(errorMessage: string, stopReason: "error" | "aborted"): Promise<void> {
    const running = new Set<string>();
    for (const { method, params } of this.clientRequests.values())
      if (method === "session/prompt") running.add(String(params.sessionId));
    for (const recorded of this.sessions.values()) {
      const { agentSessionId, turn } = recorded;
      await this.finishRecord(
        recorded,
        running.has(agentSessionId) ? turn.end({ stopReason, errorMessage }) : turn.end({}),
      );
    }
    this.sessions.clear();
  }

  /** Writes the last entries of a session, and closes it. Never rejects. */
  private async finishRecord(recorded: RecordedSession, last: readonly AcpDraft[]): Promise<void> {
    const { session } = recorded;
    try {
      await recorded.busy;
      await this.writeDurably(recorded, last);
      await session.leave();
    } catch (error) {
      this.complain(`A part of a turn could not be written. ${(error as Error).message}`);
    } finally {
      session.close();
    }
  }
}

function describeRecord({ title, file }: Session): string {
  return `The record of the agent's session ${title} (${file})`;
}

/** Marks a session as busy until some work has ended. Returns that work. */
function markBusy(recorded: RecordedSession, work: Promise<void>): Promise<void> {
  recorded.busy = work
    .catch(() => {})
    .then(() => {
      recorded.busy = undefined;
    });
  return work;
}

/** Keeps a request until its reply; drops the oldest of too many. */
function remember(asked: Map<string, OpenRequest>, id: unknown, { method, params }: OpenRequest): void {
  asked.set(JSON.stringify(id), { method, params: needsParams(method) ? params : { sessionId: params.sessionId } });
  if (asked.size <= MAX_OPEN) return;
  for (const oldest of asked.keys()) {
    asked.delete(oldest);
    return;
  }
}

/** Returns whether the reply to a request needs its params. */
function needsParams(method: string): boolean {
  return method === "session/request_permission" || method === "session/new";
}
