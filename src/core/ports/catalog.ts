/** The contract of the catalog: facts about sessions that are known without opening them. */

/** A session file in a list. */
export interface Listed {
  readonly path: string;
  readonly id: string;
  readonly cwd: string | null;
  /** The last name in file order, as in Pi. */
  readonly name: string | null;
  /** As in the header. */
  readonly parentSession: string | null;
  /** Milliseconds since the epoch. */
  readonly created: number | null;
  /** Time of the last message of a person or the model; never the time when the file was written. */
  readonly modified: number | null;
  readonly messageCount: number;
  /** The beginning of the first message of a person. */
  readonly firstMessage: string | null;
  readonly sizeBytes: number;
  /** Whether the file has nothing but a header. */
  readonly headerOnly: boolean;
  readonly archived: boolean;
}

export type Order = "modified" | "created" | "name";

export interface ListRequest {
  readonly cwd?: string;
  readonly query?: string;
  readonly name?: string;
  readonly parent?: string;
  /** Milliseconds. */
  readonly since?: number;
  readonly archived?: boolean;
  readonly headerOnly?: boolean;
  readonly sort?: Order;
  readonly cursor?: string;
}

/** A callback for progress: `done` of `total`. */
export type Progress = (done: number, total: number) => void;

/** A callback for progress, with the sessions that fit among those read since the last call. */
export type ListProgress = (done: number, total: number, found: readonly Listed[]) => void;

export interface SearchRequest {
  readonly query: string;
  readonly cwd?: string;
  readonly role?: string;
  /** Milliseconds, both included. */
  readonly since?: number;
  readonly until?: number;
  readonly toolResults?: boolean;
  readonly limit: number;
  readonly cursor?: string;
  /** Whether an entry is on the active path of a session that is open here; undefined for any other session. */
  readonly isActive: (path: string, entryId: string) => boolean | undefined;
}

export interface Hit {
  readonly path: string;
  readonly sessionId: string;
  readonly entryId: string;
  readonly role: string;
  readonly snippet: string;
  readonly onActivePath: boolean;
  /** Cursor of the page that begins after this hit. */
  readonly cursor: string;
}

export interface Relative {
  readonly path: string;
  readonly id: string;
  readonly parentSession: string | null;
  readonly forkedAtEntryId?: string;
}

/** All that is found without opening a session. All of it is derived from files, and can be rebuilt from them. */
export interface Catalog {
  /** Returns all sessions after the cursor that fit; `total` counts those before it too. Throws cursor_expired. */
  list(request: ListRequest, progress?: ListProgress): Promise<{ found: readonly Listed[]; total: number }>;
  /** Throws cursor_expired. */
  search(request: SearchRequest, progress?: Progress): Promise<{ hits: Hit[]; more: boolean }>;
  /** Returns the family of the session with this id, or of a session that lies elsewhere. Throws session_not_found. */
  family(of: { id: string; open?: Relative }, progress?: Progress): Promise<{ root: string | null; nodes: Relative[] }>;
  /**
   * Writes the index that scripts of pi_agent_rust read (seed 002) to a SQLite file, new or in place of such an index;
   * returns how many sessions it has. Throws already_exists, session_locked, storage_full, storage_failed.
   */
  exportIndex(file: string): Promise<number>;
  close(): void;
}
