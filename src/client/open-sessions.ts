/** The sessions that a server has open, and how another server gets to have them open when it died. */

import type { Commands } from "./protocol.ts";

/** A request that brings a new server to where the dead one was. */
export interface RestoreRequest {
  readonly name: keyof Commands;
  readonly params: object;
}

/** The current session. */
interface Current {
  readonly id: string;
  file: string | null;
  /** True if it is on disk; a session is not before its first conversation entry. */
  isPersisted: boolean;
  /** The client's head; undefined at the shared leaf. */
  head?: string;
  /** The params of the `new_session` that made it; undefined for the session of the start. */
  readonly made?: RequestParams;
  /** File of the previous current session, whose folder it may belong to. */
  readonly after?: string | null;
  /** Entries that only the server's memory has. */
  entries: readonly KeptEntry[];
}

/** An entry that only the server's memory has, with the key of the write that it is of. */
interface KeptEntry {
  readonly key: string | undefined;
  readonly entry: object;
}

/** Options that choose the first session, or name it. */
const OF_FIRST_SESSION = ["--session", "--continue", "-c", "--fork", "--session-id", "--name", "-n"];
/** Those without a value. */
const WITHOUT_VALUE = ["--continue", "-c"];
/** Options that become entries of every new session. */
const FIRST_ENTRIES = ["--provider", "--model", "--thinking"];

/** Params that are of the request and not of the new session. */
type RequestParams = Readonly<Record<string, unknown>>;

/** The parts of results that show which sessions are open. */
interface NotedResult {
  readonly sessionId?: string;
  readonly sessionFile?: string | null;
  readonly sessionPath?: string;
  readonly head?: string;
}

export class OpenSessions {
  private current: Current | null = null;
  private hasStarted = false;
  /** Params of `open_session`, by the id of the session. */
  private readonly others = new Map<string, object>();

  /** True if a server that dies can be replaced: sessions in memory die with it. */
  get canBeReopened(): boolean {
    return this.current === null || this.current.file !== null;
  }

  /** True if the server has entries that are nowhere else. */
  get isUnpersisted(): boolean {
    return this.current !== null && this.current.file !== null && !this.current.isPersisted;
  }

  get currentId(): string | null {
    return this.current?.id ?? null;
  }

  /** Notes what `get_state` or `initialize` returned. */
  noteState(state: Commands["get_state"]["result"] | null): void {
    if (state !== null && this.current?.id === state.sessionId) {
      this.current.file = state.sessionFile;
      this.current.isPersisted = state.persisted;
    } else if (state !== null && !this.hasStarted)
      this.current = {
        id: state.sessionId,
        file: state.sessionFile,
        isPersisted: state.persisted,
        head: state.head,
        entries: [],
      };
    this.hasStarted = true;
  }

  /** Notes the entries of a session that is not on disk. */
  noteEntries(entries: readonly object[]): void {
    if (!this.current) return;
    this.current.entries = entries.map((entry) => {
      const { _batch, ...rest } = entry as { _batch?: { key?: string } };
      return { key: _batch?.key, entry: rest };
    });
  }

  /** Notes what a command did to the sessions. Returns whether another session became the current one. */
  note(name: string, params: RequestParams, result: unknown): boolean {
    const done = (result ?? {}) as NotedResult;
    switch (name) {
      case "new_session":
      case "switch_session":
      case "fork":
      case "clone": {
        if ((done as { cancelled?: boolean }).cancelled || done.sessionId === undefined) return false;
        const made = name === "new_session" ? params : undefined;
        // Until the server says otherwise: only a new session is not on disk.
        const isPersisted = made === undefined;
        const after = this.current?.isPersisted ? this.current.file : this.current?.after;
        const { sessionId: id, sessionFile: file = null, head } = done;
        this.current = { id, file, isPersisted, head, made, after, entries: [] };
        return true;
      }
      case "open_session":
        if (done.sessionId === undefined) return false;
        if (done.sessionId === this.current?.id) this.current.head = done.head;
        else {
          const { readOnly } = params;
          this.others.set(done.sessionId, {
            sessionPath: done.sessionFile,
            readOnly,
            ...leafParamsAt(done.head, params),
          });
        }
        return false;
      case "close_session": {
        const id = params["sessionId"] ?? this.currentId;
        if (id === this.currentId) this.current = null;
        this.others.delete(id as string);
        return false;
      }
      case "migrate_session":
      case "rollback_migration":
        if (this.current && done.sessionId === this.current.id && done.sessionPath)
          this.current.file = done.sessionPath;
        return false;
      default:
        return false;
    }
  }

  /** Returns the arguments of the server that follows a dead one that was started with `args`. */
  argumentsAfter(args: readonly string[]): string[] {
    const { current } = this;
    if (!this.hasStarted) return [...args];
    const rest = without(args, [...OF_FIRST_SESSION, ...(this.isUnpersisted ? FIRST_ENTRIES : [])]);
    if (current?.file == null) return rest;
    if (current.isPersisted) return [...rest, "--session", current.file];
    if (current.made === undefined) return [...rest, "--session", current.file, "--session-id", current.id];
    return current.after ? [...rest, "--session", current.after] : rest;
  }

  /** Returns the requests for the server after its start, in this order. `state`: as `initialize` returned it. */
  stepsAfter(state: Commands["get_state"]["result"] | null): RestoreRequest[] {
    const isMade = this.current?.made !== undefined && !this.current.isPersisted;
    // If its file is gone, the server has begun another session.
    if (!isMade && state !== null && state.sessionId !== this.currentId) this.current = null;
    const { current } = this;
    const steps: RestoreRequest[] = [];
    if (current === null) {
      if (state !== null) steps.push({ name: "close_session", params: {} });
    } else if (isMade) steps.push({ name: "new_session", params: paramsOfMaking(current) });
    // It stands at the head that all sessions are opened at, and at none in one that it made.
    if (current !== null && current.head !== (isMade ? undefined : state?.head)) {
      const place = current.head === undefined ? { leaf: "shared" } : { head: current.head };
      steps.push({ name: "open_session", params: { sessionId: current.id, ...place } });
    }
    if (current?.isPersisted === false) {
      // When an append that was not answered made the file, the entries are in it.
      if (isMade || state?.persisted === false) steps.push(...appendsOf(current.entries));
    }
    for (const params of this.others.values()) steps.push({ name: "open_session", params });
    return steps;
  }
}

/** Returns the params that open a session at its previous leaf. */
function leafParamsAt(head: string | undefined, { leaf }: RequestParams): { leaf?: unknown; head?: string } {
  return head === undefined ? (leaf === undefined ? {} : { leaf }) : { head };
}

/** Returns params that make a session again: it has its id and its key; its name is among its entries. */
function paramsOfMaking({ id, made, entries }: Current): object {
  const { name, cwd, parentSession, idempotencyKey } = made ?? {};
  return { name: entries.length === 0 ? name : undefined, cwd, parentSession, idempotencyKey, newSessionId: id };
}

/** Returns the writes that leave these entries, each with its key: it may be among those that are sent again. */
function appendsOf(entries: readonly KeptEntry[]): RestoreRequest[] {
  const groups: { key: string | undefined; entries: object[] }[] = [];
  for (const { key, entry } of entries) {
    const last = groups.at(-1);
    if (last && last.key === key) last.entries.push(entry);
    else groups.push({ key, entries: [entry] });
  }
  return groups.map(({ key, entries }) => ({ name: "append", params: { entries, idempotencyKey: key } }));
}

/** Returns arguments without some options and their values. */
function without(args: readonly string[], options: readonly string[]): string[] {
  const kept: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const [name] = args[i].split("=", 1);
    if (!options.includes(name)) kept.push(args[i]);
    else if (!WITHOUT_VALUE.includes(name) && !args[i].includes("=")) i++;
  }
  return kept;
}
