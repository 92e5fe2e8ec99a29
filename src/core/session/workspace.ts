/** The sessions that this process has open: makes, opens, forks and replaces them. */

import { toNotMadeFailure } from "../errno.ts";
import { Failure } from "../failure.ts";
import {
  type Entry,
  makeDraft,
  makeEntryLine,
  makeHeaderLine,
  SESSION_ID,
  type SessionHeader,
} from "../format/entry.ts";
import { concat, parse, toBytes } from "../json/json.ts";
import type { Progress } from "../ports/catalog.ts";
import { type Env, makeTimestamp } from "../ports/env.ts";
import type { Beginning, CopiedLines, Log } from "../ports/store.ts";
import type { Stores, WantedSession } from "../ports/stores.ts";
import { type ForkPlan, patchLine, planFork } from "./fork.ts";
import { type KeyedRequest, makeKeyUsedFailure, mayHaveMade } from "./keyed-request.ts";
import { Session } from "./session.ts";
import { SessionTable } from "./session-table.ts";

export interface NewSession {
  readonly cwd?: string;
  readonly parentSession?: string;
  readonly id?: string;
  readonly name?: string;
  readonly file?: string;
  /** True if a session of another working directory may have the id. */
  readonly isOfDirectory?: boolean;
  /** Idempotency key of the request that asks for it; it is stored in the header. */
  readonly key?: string;
  /** The session whose folder the new one gets if no file is named and this is not another agent's. */
  readonly comesOf?: Session;
}

export class Workspace {
  readonly stores: Stores;
  readonly env: Env;
  /** Working directory of sessions that name none. */
  readonly cwd: string;
  /** The head of our host in sessions that it opens from now on; null: their shared leaf. */
  head: string | null = null;
  private readonly here: SessionTable;
  /** Sessions that were published for a request that has no reply yet. */
  private readonly unannounced = new WeakSet<Session>();
  /** The operations that forks are, by their logs. */
  private readonly forks = new WeakMap<Log, string>();
  /** Sessions that were opened to be read only. */
  private readonly readers = new WeakSet<Session>();
  /** Sessions that were made because none of their directory had the id, and the number of entries that set them up. */
  private readonly ofDirectory = new WeakMap<Session, number>();
  private absence = new Failure("no_session");
  /** Times of the folders' creation for sessions without a file. */
  private readonly folderPrepared = new WeakMap<Session, number>();
  /** Called with every new session, before anyone else sees it. */
  private readonly setUp: (session: Session) => void;

  constructor(stores: Stores, env: Env, cwd: string, setUp: (session: Session) => void = () => {}) {
    this.stores = stores;
    this.env = env;
    this.cwd = cwd;
    this.setUp = setUp;
    this.here = new SessionTable(stores);
  }

  get current(): Session | null {
    return this.here.current;
  }

  /** Returns the current session, or the open one with an id. Throws no_session or session_not_found. */
  session(id?: string): Session {
    if (id === undefined || id === this.current?.id) {
      if (!this.current) throw this.absence;
      return this.current;
    }
    const open = this.here.get(id) ?? this.wake(id);
    if (!open)
      throw new Failure("session_not_found", `No open session has the id ${id}. open_session opens one.`, {
        sessionId: id,
      });
    this.here.use(open);
    return open;
  }

  /** Notes that a session is used now, so that others are closed before it to make room. */
  use(session: Session): void {
    this.here.use(session);
  }

  /** Every open session, the current one first, the others from the least recently used one on. */
  get sessions(): readonly Session[] {
    return this.here.all;
  }

  get sessionCount(): number {
    return this.here.count;
  }

  /** Returns the open session with an id. */
  openWith(id: string): Session | undefined {
    return this.here.get(id);
  }

  isOpen(session: Session): boolean {
    return this.here.includes(session);
  }

  /** Returns whether a session is open or was only closed to stay within the limit. */
  has(id: string): boolean {
    return this.here.has(id);
  }

  /** Returns the open session with a file, by any name of it. Throws path_outside_root. */
  openAt(sessionPath: string): Session | undefined {
    const file = this.stores.absolute(sessionPath);
    const open = this.here.at(file);
    const copy = open ? undefined : this.stores.copyAt?.(file);
    return copy === undefined ? open : this.here.at(copy);
  }

  /** Returns the id of the session that is open with a file, or was only closed to make room. */
  idAt(file: string): string | undefined {
    return this.here.idAt(this.stores.absolute(file));
  }

  keep(session: Session): void {
    this.here.keep(session);
  }

  /** Returns the open session that is wanted. */
  private openOf({ sessionPath, sessionId }: WantedSession): Session | undefined {
    return sessionPath === undefined ? this.openWith(sessionId as string) : this.openAt(sessionPath);
  }

  /** Opens a session again that was closed for the limit, with the same head of its host, if its file still exists. */
  private resumed({ sessionPath, sessionId }: WantedSession): Session | undefined {
    const id = sessionPath === undefined ? sessionId : this.here.suspendedAt(this.stores.absolute(sessionPath));
    const resting = id === undefined ? undefined : this.here.suspendedWith(id);
    return resting && this.stores.exists(resting.file) ? this.wake(id as string) : undefined;
  }

  /** Opens a session as its host has it: again, if it was closed for the limit. */
  reopened(where: WantedSession, readOnly = false): Session {
    return this.openOf(where) ?? this.resumed(where) ?? this.openFile(where, readOnly);
  }

  private wake(id: string): Session | undefined {
    const resting = this.here.suspendedWith(id);
    if (resting === undefined) return undefined;
    const session = this.open({ sessionPath: resting.file }, resting.isReader);
    if (session.id !== id) {
      // Another program put another session there.
      this.release(session);
      this.here.forgetSuspended(id);
      return undefined;
    }
    session.heads.setOwn(resting.head);
    this.keep(session);
    return session;
  }

  /** Commits, leaves and closes a session. If it was the current one, no session is current then. */
  async closeSession(session: Session): Promise<void> {
    await session.commit();
    await session.leave();
    this.here.forget(session);
    if (session === this.current) this.none(new Failure("no_session"));
    session.close();
  }

  /**
   * Closes a session that is not in use, until it is named again. A session in memory stays open, and one whose host
   * position is only in memory.
   */
  async suspend(session: Session): Promise<void> {
    const { file, heads } = session;
    if (session === this.current || file === null || !session.log.persisted || heads.isUnwritten) return;
    await session.leave();
    this.here.suspend(session, { file, head: heads.own, isReader: this.readers.has(session) });
    session.close();
  }

  /** Makes a new session that is not on disk yet. Throws invalid_id, already_exists. */
  create(wanted: NewSession = {}): Session {
    const beginning = this.beginning(wanted);
    if (wanted.id !== undefined && !wanted.isOfDirectory) this.requireNew(wanted.id);
    const session = this.sessionOn(this.stores.forNew.create(beginning));
    this.setUp(session);
    if (session.file !== null && this.stores.exists(session.file))
      throw new Failure("already_exists", `There is a file at ${session.file} already. switch_session opens it.`, {
        sessionPath: session.file,
      });
    if (wanted.name !== undefined) session.append([makeDraft("session_info", { name: toSessionName(wanted.name) })]);
    if (wanted.isOfDirectory && wanted.id !== undefined) this.ofDirectory.set(session, session.log.nodes.count);
    return session;
  }

  /**
   * Has a session that was made because none of its directory had the id go on as the one that another process has stored
   * with it since. It drops only the entries that set it up. Returns whether it goes on so.
   */
  goesOnAsStored(session: Session): boolean {
    if (!this.mayGoOnAsStored(session)) return false;
    const stored = this.stores.findOf(session.cwd, session.id);
    if (stored === undefined) return false;
    session.externalChanges.rebase(this.stores.open(stored), { isRepair: true, follows: true });
    return true;
  }

  /** Returns whether a session has nothing that would be lost if it went on as the stored one with its id. */
  mayGoOnAsStored(session: Session): boolean {
    const { persisted, nodes } = session.log;
    return !persisted && nodes.count === this.ofDirectory.get(session);
  }

  /** Throws already_exists if a session has this id, open or stored. */
  private requireNew(id: string): void {
    const open = this.openWith(id);
    const [sessionPath] = open ? [open.file] : this.stores.withId(id);
    if (sessionPath === undefined) return;
    const sentence = `A session has the id ${id} already. switch_session opens it; leave the id out to get another.`;
    throw new Failure("already_exists", sentence, { sessionId: id, sessionPath });
  }

  /** Fetches a session that other machines have, too. Returns undefined if there is nothing to wait for. */
  arrive(where: WantedSession): Promise<void> | undefined {
    if (!this.stores.arrive) return undefined;
    const { sessionPath, sessionId } = where;
    const isKnown = sessionPath === undefined ? this.has(sessionId as string) : this.openAt(sessionPath) !== undefined;
    return isKnown ? undefined : this.stores.arrive(where, this.isOpenWith);
  }

  private readonly isOpenWith = (id: string): boolean => this.openWith(id) !== undefined;

  /** Opens a session to work with it, which may be fetched first. `progress` counts the bytes of that. */
  async opened(where: WantedSession, readOnly = false, progress?: Progress): Promise<Session> {
    try {
      const known = this.openOf(where) ?? this.resumed(where);
      if (known) return known;
      const arriving = this.stores.arrive?.(where, this.isOpenWith, progress);
      if (arriving === undefined) return this.openFile(where, readOnly);
      await arriving;
      return this.open(where, readOnly);
    } catch (error) {
      return this.reopened(await this.lookedUp(where, error), readOnly);
    }
  }

  /** Opens the session that another process has stored in the place of one that has no entry yet, if one has. */
  overtaking({ log, file, id, cwd }: Session): Session | undefined {
    if (log.persisted || file === null) return undefined;
    const { stores } = this;
    const stored = stores.exists(file) ? file : stores.findOf(cwd, id);
    return stored === undefined ? undefined : this.sessionOn(stores.open(stored));
  }

  /** Returns the path of another agent's session for an id that is not ours. Throws the given failure. */
  async lookedUp(where: WantedSession, failure: unknown): Promise<{ readonly sessionPath: string }> {
    const { sessionPath, sessionId, isWhole, mayBeName } = where;
    // Most names look like no id, and an unreachable fleet is not asked for them.
    const isUnknown =
      failure instanceof Failure &&
      (["session_not_found", "invalid_id"].includes(failure.name) || (mayBeName && failure.details.fleet === true));
    if (sessionPath !== undefined || sessionId === undefined || isWhole || !isUnknown) throw failure;
    const found = await this.stores.lookUp(sessionId, mayBeName ? "name" : "id");
    if (found === undefined) throw failure;
    return { sessionPath: found };
  }

  /** Opens a session by path or id, to be kept or released. A session that is open already is not opened twice. */
  open(where: WantedSession, readOnly = false): Session {
    const { sessionId, sessionPath } = where;
    const known =
      sessionId === undefined
        ? this.here.at(this.stores.absolute(sessionPath as string))
        : (this.openWith(sessionId) ?? this.resumed(where));
    return known ?? this.openFile(where, readOnly);
  }

  /** Opens a session that is not known to be open; by its id, it may be found to be. */
  private openFile({ sessionPath, sessionId, isWhole }: WantedSession, readOnly: boolean): Session {
    const file =
      sessionPath !== undefined ? this.stores.absolute(sessionPath) : this.stores.find(sessionId as string, isWhole);
    const same = sessionPath !== undefined ? undefined : this.here.at(file);
    if (same) return same;
    const log = this.stores.open(file, readOnly);
    // It may be open under the path that it has now.
    const there = log.file === file || log.file === null ? undefined : this.here.at(log.file);
    if (there) {
      log.close();
      return there;
    }
    const session = this.sessionOn(log);
    if (readOnly) this.readers.add(session);
    return session;
  }

  /** Opens a session for reading only, even while another process, or this one, has it open. The caller closes it. */
  look(sessionPath: string): Session {
    return this.sessionOn(this.stores.open(this.stores.absolute(sessionPath), true));
  }

  /** Closes a session that was looked at, unless it is open. */
  release(session: Session): void {
    if (!this.isOpen(session)) session.close();
  }

  /**
   * Makes the folder of a session: clients of Pi look into it as soon as they know its path. Looks whether it is there once
   * a millisecond, for a look takes as long as the rest of get_state.
   */
  prepareFolder(session: Session): void {
    if (session.file === null || session.log.persisted || session.log.readOnly) return;
    const now = this.env.now();
    if (this.folderPrepared.get(session) === now) return;
    this.folderPrepared.set(session, now);
    this.stores.prepareFolder(session.file);
  }

  /** Returns the session that a request with this idempotency key made, and opens it if needed. Throws BadParams. */
  async made(request: KeyedRequest): Promise<Session | undefined> {
    const { id, key } = request;
    const { current, stores } = this;
    const ours = id === undefined ? undefined : this.openWith(id);
    const isOf = (one: Session | null | undefined): one is Session => one?.log.header.idempotencyKey === key;
    if (isOf(ours) && (ours.log.persisted || ours.file === null)) return ours;
    const stored = await this.storedWith(request);
    // Another process may have begun it while ours has no entry yet.
    if (stored !== undefined)
      return ours ? this.sessionOn(stores.open(stored)) : this.reopened({ sessionPath: stored });
    if (isOf(ours)) return ours;
    // A request that is repeated in the session that it made names no other source.
    const idAt = (file: string): string | undefined => (stores.exists(file) ? stores.idIn(file) : undefined);
    if (isOf(current) && mayHaveMade(this.env, request, current.log.header, idAt)) return current;
    if (isOf(current)) throw makeKeyUsedFailure(current.id);
    const used = this.findUse(request);
    if (used === undefined) return undefined;
    const usedBy = stores.idIn(used);
    // Another process may have made it since the look for its id.
    if (usedBy === id) return this.reopened({ sessionPath: used });
    throw makeKeyUsedFailure(usedBy);
  }

  /** Returns the file of the session that a request with a key made, which is fetched if only other machines have it. */
  private async storedWith({ id, key }: KeyedRequest): Promise<string | undefined> {
    if (id === undefined) return undefined;
    const find = (): string | undefined => this.stores.made(key, { id });
    const found = find();
    if (found !== undefined || !this.stores.arrive) return found;
    try {
      await this.stores.arrive({ sessionId: id, isWhole: true }, this.isOpenWith);
    } catch (error) {
      // Making it says why not, if that matters then.
      if (!(error instanceof Failure)) throw error;
    }
    return find();
  }

  /** Returns the file of a session whose request had this key, among the newest where that of this one would be. */
  private findUse({ key, cwd, source }: KeyedRequest): string | undefined {
    const { current } = this;
    const { made } = this.stores;
    for (const one of new Set([cwd, source?.cwd, current?.cwd, this.cwd])) {
      const file = one === undefined ? undefined : made(key, { cwd: one });
      if (file !== undefined) return file;
    }
    for (const one of new Set([source, current])) {
      const file = one?.file && !one.log.foreign ? made(key, { nextTo: one.file }) : undefined;
      if (file !== undefined) return file;
    }
    return undefined;
  }

  /** Returns an entry of a session that need not be open, if both exist. */
  entryIn(sessionPath: string | null, entryId: string): Entry | undefined {
    if (sessionPath === null || !this.stores.exists(sessionPath)) return undefined;
    const session = this.open({ sessionPath });
    try {
      const position = session.log.nodes.position(entryId);
      return position < 0 ? undefined : session.entry(position);
    } finally {
      this.release(session);
    }
  }

  private sessionOn(log: Log, unannounced = false): Session {
    try {
      const session = this.madeOn(log);
      if (unannounced) this.unannounced.add(session);
      return session;
    } catch (error) {
      if (unannounced) throw this.discarded(log, error);
      log.close();
      throw error;
    }
  }

  private madeOn(log: Log): Session {
    const session = new Session(log, this.env, this.stores.leaves);
    session.operations = this.stores.operations;
    return session;
  }

  /**
   * Makes a new session that holds the path to `end` ({@link ROOT}: no entries). It exists, whole, when this resolves,
   * and was changed later than the session that it replaces. The source gets at most its leaf marker.
   */
  async fork(
    source: Session,
    end: number,
    { name, ...wanted }: Pick<NewSession, "key" | "id" | "comesOf" | "name"> = {},
  ): Promise<Session> {
    // A marker that is written after the fork would make the old session the one changed last.
    await this.current?.leave();
    const plan = planFork(source.tree, end, (compaction) => source.firstKeptId(compaction));
    const beginning = this.beginning({
      ...wanted,
      cwd: source.cwd,
      ...(source.log.persisted ? { parentSession: source.file as string } : {}),
    });
    if (wanted.id !== undefined) this.requireNew(wanted.id);
    const attachmentsOf = source.file ?? undefined;
    const log = await this.stores.forNew.publish({ ...beginning, attachmentsOf }, readForkedLines(source, plan, name));
    this.noteFork(source, log, name);
    return this.sessionOn(log, true);
  }

  /** Records a fork as an operation, if it outlasts this process. */
  private noteFork({ title }: Session, log: Log, name: string | undefined): void {
    const { file, header, nodes } = log;
    if (file === null) return;
    const { operations } = this.stores;
    const step = { do: "appear" as const, to: file, count: nodes.count };
    const session = { sessionId: header.id, sessionPath: file, name: name === undefined ? null : toSessionName(name) };
    const id = operations.note({ kind: "fork", ...session, text: `Forked ${title}.`, step });
    this.forks.set(log, id);
    operations.flush();
    operations.settle([id]);
  }

  /** Prepares a new session in addition to its content. If that fails, it is removed, if it may be, and closed. */
  async complete(session: Session, work: () => unknown): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.unannounced.delete(session);
      throw this.discarded(session.log, error);
    }
  }

  /** Removes the session of a failed request, if allowed. Returns the failure, which states that it does not exist. */
  private discarded(log: Log, error: unknown): unknown {
    log.discard();
    const forked = this.forks.get(log);
    if (forked !== undefined) this.stores.operations.failed([forked]);
    const { file: sessionPath, header } = log;
    if (sessionPath === null) return error;
    const found = this.stores.exists(sessionPath) ? this.stores.idIn(sessionPath) : null;
    return toNotMadeFailure(error, "opening the new session", { id: header.id, sessionPath, found });
  }

  /**
   * Makes a session the current one. Leaves the one before, closes it unless it was kept open, and returns it. Before
   * it is the current one, `ready` is awaited, and in the turn of the change, `became` is called. Throws
   * session_not_found for one that was closed in between.
   */
  async replace(next: Session, ready?: () => Promise<void>, became?: () => void): Promise<Session | null> {
    const before = this.current;
    if (before === next) return before;
    try {
      await before?.leave();
      await ready?.();
      if (next.isClosed) throw closedMeanwhile(next);
    } catch (error) {
      if (this.unannounced.has(next)) throw this.discarded(next.log, error);
      this.release(next);
      throw error;
    }
    this.unannounced.delete(next);
    this.here.makeCurrent(next);
    if (before && !this.here.isKept(before)) before.close();
    became?.();
    return before;
  }

  none(absence: Failure): void {
    this.here.current = null;
    this.absence = absence;
  }

  async close(): Promise<void> {
    let failed: unknown;
    for (const session of this.sessions)
      try {
        // Another program may have changed the files so that they cannot be read. All that was acknowledged is durable then.
        if (!session.isUnread) await session.commit();
        await session.leave();
      } catch (error) {
        failed ??= error;
      } finally {
        session.close();
      }
    this.stores.settle?.();
    this.stores.catalog.close();
    if (failed !== undefined) throw failed;
  }

  private beginning(wanted: NewSession): Beginning {
    const { comesOf } = wanted;
    const file = wanted.file === undefined ? undefined : this.stores.absolute(wanted.file);
    const beginning = makeBeginning(this.env, { ...wanted, cwd: wanted.cwd ?? this.cwd, file });
    // Nothing is written into the folders of other agents.
    if (file !== undefined || !comesOf?.file || comesOf.log.foreign) return beginning;
    return { ...beginning, file: this.stores.nextTo(comesOf.file, beginning.header) };
  }
}

const LF = toBytes("\n");

/** Returns the beginning of a new session; `file` is absolute. Throws invalid_id. */
export function makeBeginning(env: Env, wanted: NewSession & { readonly cwd: string }): Beginning {
  const id = wanted.id ?? env.sessionId();
  if (!SESSION_ID.test(id)) throw new Failure("invalid_id", undefined, { sessionId: id });
  const line = makeHeaderLine({
    id,
    timestamp: makeTimestamp(env),
    cwd: wanted.cwd,
    parentSession: wanted.parentSession,
    idempotencyKey: wanted.key,
  });
  const header = parse(line) as SessionHeader;
  return { headerLine: line, header, file: wanted.file, ...(wanted.id === undefined ? {} : { isGivenId: true }) };
}

/** Yields the lines of a forked session, and its own name. Only entries with a patch are read, the others copied in runs. */
export function* readForkedLines(source: Session, plan: ForkPlan, name?: string): Generator<Uint8Array | CopiedLines> {
  const { log } = source;
  const { positions, patches } = plan;
  let first = 0;
  for (let i = 0; i < positions.length; i++) {
    const patch = patches.get(positions[i]);
    if (!patch) continue;
    if (first < i) yield { log, positions: positions.subarray(first, i) };
    yield concat([patchLine(source.line(positions[i]), patch), LF]);
    first = i + 1;
  }
  if (first < positions.length) yield { log, positions: positions.subarray(first) };
  let parentId = positions.length > 0 ? log.nodes.id(positions[positions.length - 1]) : null;
  const usedIds = new Set<string>();
  for (const { targetId, label, setBy } of plan.labels) {
    const id = source.newEntryId(usedIds);
    const since = source.entry(setBy).timestamp;
    const draft = makeDraft("label", { targetId, label });
    yield concat([makeEntryLine({ ...draft, id, parentId, timestamp: since ?? makeTimestamp(source.env) }), LF]);
    usedIds.add(id);
    parentId = id;
  }
  if (name === undefined) return;
  const draft = makeDraft("session_info", { name: toSessionName(name) });
  const id = source.newEntryId(usedIds);
  yield concat([makeEntryLine({ ...draft, id, parentId, timestamp: makeTimestamp(source.env) }), LF]);
}

export function toSessionName(name: string): string {
  return name.replace(/[\r\n]+/g, " ").trim();
}

function closedMeanwhile({ id, file }: Session): Failure {
  const sentence = "The session was closed while it was to become the current one. switch_session opens it again.";
  return new Failure("session_not_found", sentence, { sessionId: id, sessionPath: file });
}
