/** The contract of the catalog: what is known of sessions without opening them. */

/** What a list tells of a session file. */
export interface Listed {
  readonly path: string;
  readonly id: string;
  readonly cwd: string | null;
  /** The last name in file order, as Pi has it. */
  readonly name: string | null;
  /** As the header has it. */
  readonly parentSession: string | null;
  /** Milliseconds since the epoch. */
  readonly created: number | null;
  /** When a person or the model said something last; never when the file was written. */
  readonly modified: number | null;
  readonly messageCount: number;
  /** The beginning of the first thing a person said. */
  readonly firstMessage: string | null;
  readonly sizeBytes: number;
  /** Nothing but a header stands in the file. */
  readonly headerOnly: boolean;
  /** It lies in the archive. */
  readonly archived: boolean;
}

export type Order = "modified" | "created" | "name";

export interface ListWish {
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

/** Called with how much of how much is done. */
export type Progress = (done: number, total: number) => void;

/** The same, with the sessions that fit among those that were read since the last call. */
export type ListProgress = (done: number, total: number, found: readonly Listed[]) => void;

export interface SearchWish {
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
  /** Where a page that begins after this hit begins. */
  readonly cursor: string;
}

export interface Relative {
  readonly path: string;
  readonly id: string;
  readonly parentSession: string | null;
  readonly forkedAtEntryId?: string;
}

/** Everything that is found without opening a session. Nothing of it is kept but by files: it can be lost any time. */
export interface Catalog {
  /** All sessions that fit, behind the cursor; `total` counts those before it too. Throws cursor_expired. */
  list(wish: ListWish, progress?: ListProgress): Promise<{ found: readonly Listed[]; total: number }>;
  /** Throws cursor_expired. */
  search(wish: SearchWish, progress?: Progress): Promise<{ hits: Hit[]; more: boolean }>;
  /** The family of the session with this id, or of a session that lies elsewhere. Throws session_not_found. */
  family(
    of: { id: string; beside?: Relative },
    progress?: Progress,
  ): Promise<{ root: string | null; nodes: Relative[] }>;
  /**
   * Writes the index that scripts of pi_agent_rust read (seed 002) to a SQLite file, new or in place of such an index;
   * returns how many sessions it has. Throws already_exists, session_locked, storage_full, storage_failed.
   */
  exportIndex(file: string): Promise<number>;
  close(): void;
}
