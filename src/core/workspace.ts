/** What this process has open, and how sessions are made, opened, forked and replaced. */

import { draftOf, entryLine, headerLine, SESSION_ID, type SessionHeader } from "./entry.ts";
import { type Env, timestamp } from "./env.ts";
import { Failure } from "./failure.ts";
import { type ForkPlan, patchLine, planFork } from "./fork.ts";
import { bytesOf, concat, parse } from "./json.ts";
import { type LeafMemory, Session } from "./session.ts";
import type { Beginning, Log, Store } from "./store/store.ts";

/** The stores as the workspace needs them. */
export interface Stores {
  readonly names: readonly string[];
  readonly forNew: Store;
  readonly leaves: LeafMemory;
  /** Opens a session file. Throws session_not_found, not_a_session, storage_failed. */
  open(file: string): Log;
  absolute(file: string): string;
  exists(file: string): boolean;
  isSame(a: string, b: string): boolean;
  /** The file of a session id or of an unambiguous beginning of one. */
  find(id: string): string;
  /** Makes the folder of a session's file, if that can be done; its first append says why not. */
  prepareFolder(file: string): void;
  /**
   * Writes a file for a person, whole or not at all, and answers its path. When the name is taken: refuses
   * (already_exists), takes a name beside it, or replaces what is there.
   */
  writeOutput(file: string, pieces: Iterable<string>, taken: "refuse" | "rename" | "replace"): string;
  /** The working directory's session that was active last. */
  latest(cwd: string): string | undefined;
}

export interface NewSession {
  readonly cwd?: string;
  readonly parentSession?: string;
  readonly id?: string;
  readonly name?: string;
  readonly file?: string;
}

export class Workspace {
  readonly stores: Stores;
  readonly env: Env;
  /** Working directory of sessions that name none. */
  readonly cwd: string;
  private currentSession: Session | null = null;
  /** Why there is no current session. */
  private absence = new Failure("no_session");
  /** Called with every session that this workspace makes or opens, before anyone else sees it. */
  private readonly setUp: (session: Session) => void;

  constructor(stores: Stores, env: Env, cwd: string, setUp: (session: Session) => void = () => {}) {
    this.stores = stores;
    this.env = env;
    this.cwd = cwd;
    this.setUp = setUp;
  }

  get current(): Session | null {
    return this.currentSession;
  }

  /** The current session, or the open one with an id. Throws no_session or session_not_found. */
  session(id?: string): Session {
    if (id !== undefined && id !== this.currentSession?.id)
      throw new Failure("session_not_found", `No open session has the id ${id}. switch_session opens one.`, {
        sessionId: id,
      });
    if (!this.currentSession) throw this.absence;
    return this.currentSession;
  }

  /** A new session that nothing on disk tells of yet. Throws invalid_id, already_exists. */
  create(wanted: NewSession = {}): Session {
    const { forNew } = this.stores;
    const beginning = this.beginning({ ...wanted, cwd: wanted.cwd ?? this.cwd });
    const session = this.sessionOn(forNew.create(beginning));
    if (session.file !== null && this.stores.exists(session.file))
      throw new Failure("already_exists", `There is a file at ${session.file} already. switch_session opens it.`, {
        sessionPath: session.file,
      });
    if (wanted.name !== undefined) session.append([draftOf("session_info", { name: sessionName(wanted.name) })]);
    return session;
  }

  /** Opens a session by path or id. The session that is current already is not opened twice. */
  open(where: { sessionPath?: string; sessionId?: string }): Session {
    const current = this.currentSession;
    if (where.sessionId !== undefined && where.sessionId === current?.id) return current;
    const file =
      where.sessionPath !== undefined
        ? this.stores.absolute(where.sessionPath)
        : this.stores.find(where.sessionId as string);
    if (current?.file && this.stores.isSame(file, current.file)) return current;
    return this.sessionOn(this.stores.open(file));
  }

  /** A session to look at; unless it is the current one, the caller closes it. */
  look(where: { sessionPath: string }): Session {
    return this.open(where);
  }

  /** Clients of Pi look into the folder of a session as soon as they know its path. */
  prepareFolder(session: Session): void {
    if (session.file !== null && !session.log.persisted) this.stores.prepareFolder(session.file);
  }

  private sessionOn(log: Log): Session {
    const session = new Session(log, this.env, this.stores.leaves);
    if (log.nodes.count === 0) this.setUp(session);
    return session;
  }

  /**
   * A new session that holds the path to `end` ({@link ROOT}: no entries). It exists, whole, when this resolves,
   * and the source is not touched.
   */
  async fork(source: Session, end: number): Promise<Session> {
    const plan = planFork(source.tree, end, (compaction) => source.firstKeptId(compaction));
    const beginning = this.beginning({
      cwd: source.cwd,
      ...(source.log.persisted ? { parentSession: source.file as string } : {}),
    });
    const log = await this.stores.forNew.publish(beginning, this.forkContent(source, plan));
    return new Session(log, this.env, this.stores.leaves);
  }

  /** Copies whole stretches of the source; only entries that a patch names are read one by one. */
  private *forkContent(source: Session, plan: ForkPlan): Generator<Uint8Array> {
    const { positions, patches } = plan;
    let first = 0;
    for (let i = 0; i < positions.length; i++) {
      const patch = patches.get(positions[i]);
      if (!patch) continue;
      yield* source.log.copy(positions.subarray(first, i));
      yield concat([patchLine(source.line(positions[i]), patch), LF]);
      first = i + 1;
    }
    yield* source.log.copy(positions.subarray(first));
    let parentId = positions.length > 0 ? source.log.nodes.id(positions[positions.length - 1]) : null;
    const taken = new Set<string>();
    for (const { targetId, label, setBy } of plan.labels) {
      const id = this.freshId(source, taken);
      const since = source.entry(setBy).timestamp;
      yield concat([
        entryLine({ ...draftOf("label", { targetId, label }), id, parentId, timestamp: since ?? timestamp(this.env) }),
        LF,
      ]);
      parentId = id;
    }
  }

  private freshId(source: Session, taken: Set<string>): string {
    for (;;) {
      const id = this.env.entryId();
      if (taken.has(id) || source.log.nodes.position(id) >= 0) continue;
      taken.add(id);
      return id;
    }
  }

  /** Makes a session the current one; the one before is left in order and closed. Answers it. */
  async replace(next: Session): Promise<Session | null> {
    const before = this.currentSession;
    if (before === next) return before;
    if (before) await before.leave();
    this.currentSession = next;
    before?.close();
    return before;
  }

  /** There is no current session, for this reason. */
  none(absence: Failure): void {
    this.currentSession = null;
    this.absence = absence;
  }

  /** Leaves what is open in order. */
  async close(): Promise<void> {
    const session = this.currentSession;
    if (!session) return;
    try {
      await session.commit();
      await session.leave();
    } finally {
      session.close();
    }
  }

  private beginning(wanted: NewSession): Beginning {
    const id = wanted.id ?? this.env.sessionId();
    if (!SESSION_ID.test(id)) throw new Failure("invalid_id", undefined, { sessionId: id });
    const line = headerLine({
      id,
      timestamp: timestamp(this.env),
      cwd: wanted.cwd ?? this.cwd,
      parentSession: wanted.parentSession,
    });
    const file = wanted.file === undefined ? undefined : this.stores.absolute(wanted.file);
    return { headerLine: line, header: parse(line) as SessionHeader, file };
  }
}

const LF = bytesOf("\n");

/** A display name on one line. */
export function sessionName(name: string): string {
  return name.replace(/[\r\n]+/g, " ").trim();
}
