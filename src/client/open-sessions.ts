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
  /** Whether it is on disk; a session is not before its first conversation entry. */
  isPersisted: boolean;
  /** The params of the `new_session` that made it; undefined for the session of the start. */
  readonly made?: object;
  /** Entries that only the server's memory has. */
  entries: readonly object[];
}

/** Options that choose the first session, and whether a value follows. */
const CHOICES: Readonly<Record<string, boolean>> = {
  "--session": true,
  "--continue": false,
  "-c": false,
  "--fork": true,
  "--session-id": true,
};

/** Options that become entries of a new session. */
const FIRST_ENTRIES: Readonly<Record<string, boolean>> = {
  "--name": true,
  "-n": true,
  "--provider": true,
  "--model": true,
  "--thinking": true,
};

/** Params that are of the request and not of the new session. */
type RequestParams = Readonly<Record<string, unknown>>;

export class OpenSessions {
  private current: Current | null = null;
  private hasStarted = false;
  /** Params of `open_session`, by the id of the session. */
  private readonly others = new Map<string, object>();

  /** Whether a server that dies can be replaced: sessions in memory die with it. */
  get canBeReopened(): boolean {
    return this.current === null || this.current.file !== null;
  }

  /** Whether the server has entries that are nowhere else. */
  get isUnpersisted(): boolean {
    return this.current !== null && this.current.file !== null && !this.current.isPersisted;
  }

  get currentId(): string | null {
    return this.current?.id ?? null;
  }

  /** Notes what `get_state` or `initialize` returned. */
  noteState(state: Commands["get_state"]["result"] | null): void {
    if (state === null) {
      if (!this.hasStarted) this.current = null;
    } else if (this.current?.id === state.sessionId) {
      this.current.file = state.sessionFile;
      this.current.isPersisted = state.persisted;
    } else if (this.current === null || !this.hasStarted)
      this.current = { id: state.sessionId, file: state.sessionFile, isPersisted: state.persisted, entries: [] };
    this.hasStarted = true;
  }

  /** Notes the entries of a session that is not on disk. They keep their ids; where they are is said by their order. */
  noteEntries(entries: readonly object[]): void {
    if (this.current)
      this.current.entries = entries.map((entry) => ({ ...entry, parentId: undefined, _batch: undefined }));
  }

  /** Notes what a command did to the sessions. Returns whether another session became the current one. */
  note(name: string, params: RequestParams, result: unknown): boolean {
    const done = (result ?? {}) as { sessionId?: string; sessionFile?: string | null; sessionPath?: string };
    switch (name) {
      case "new_session":
      case "switch_session":
      case "fork":
      case "clone": {
        if ((done as { cancelled?: boolean }).cancelled || done.sessionId === undefined) return false;
        const made = name === "new_session" ? params : undefined;
        // Until the server says otherwise: only a new session is not on disk.
        const isPersisted = made === undefined;
        this.current = { id: done.sessionId, file: done.sessionFile ?? null, isPersisted, made, entries: [] };
        return true;
      }
      case "open_session":
        if (done.sessionId !== undefined && done.sessionId !== this.currentId)
          this.others.set(done.sessionId, { sessionPath: done.sessionFile, readOnly: params["readOnly"] });
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
    const rest = without(args, { ...CHOICES, ...FIRST_ENTRIES });
    if (current?.file == null || (current.made && !current.isPersisted)) return rest;
    return [...rest, "--session", current.file, ...(current.isPersisted ? [] : ["--session-id", current.id])];
  }

  /** Returns what is to be asked of the server after its start, in this order. `state`: as `initialize` returned it. */
  stepsAfter(state: Commands["get_state"]["result"] | null): RestoreRequest[] {
    const { current } = this;
    const steps: RestoreRequest[] = [];
    if (current === null) {
      if (state !== null) steps.push({ name: "close_session", params: {} });
    } else if (!current.isPersisted) {
      if (current.made) steps.push({ name: "new_session", params: { ...current.made, newSessionId: current.id } });
      // When an append that was not answered made the file, the entries are in it.
      if (current.entries.length > 0 && (current.made || state?.persisted === false))
        steps.push({ name: "append", params: { entries: current.entries } });
    }
    for (const params of this.others.values()) steps.push({ name: "open_session", params });
    return steps;
  }
}

/** Returns arguments without some options and their values. */
function without(args: readonly string[], options: Readonly<Record<string, boolean>>): string[] {
  const kept: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const [name] = args[i].split("=", 1);
    if (!(name in options) && !(args[i] in options)) kept.push(args[i]);
    else if (options[name] && !args[i].includes("=")) i++;
  }
  return kept;
}
