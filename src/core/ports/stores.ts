/** The contract of everything that is stored, as the workspace needs it. */

import type { SessionHeader } from "../format/entry.ts";
import type { Catalog } from "./catalog.ts";
import type { LifeCycle } from "./lifecycle.ts";
import type { Migrations } from "./migrations.ts";
import type { Log, Store } from "./store.ts";

/** Keeps the position of a leaf that the session file itself does not tell (session-format reference, section 5). */
export interface LeafMemory {
  /** The recorded position, if the session's file is still as it was then: an id, null for before the first entry. */
  recall(log: Log): string | null | undefined;
  /** Records a position durably. */
  record(log: Log, leafId: string | null): Promise<void>;
  forget(log: Log): void;
}

/** The stores as the workspace needs them. */
export interface Stores {
  readonly names: readonly string[];
  readonly forNew: Store;
  readonly leaves: LeafMemory;
  /** Opens a session file. Throws session_not_found, not_a_session, storage_failed. */
  open(file: string, readOnly?: boolean): Log;
  /** The absolute path of what the host calls so. Throws path_outside_root where paths are confined. */
  absolute(file: string): string;
  exists(file: string): boolean;
  /** Whether there is something at a path, or the session that was there is in another place now. Throws path_outside_root. */
  holds(file: string): boolean;
  isSame(a: string, b: string): boolean;
  /** The file of a session id or of an unambiguous beginning of one. */
  find(id: string): string;
  /** Makes the folder of a session's file, if that can be done; its first append says why not. */
  prepareFolder(file: string): void;
  /**
   * Writes a file for a person, whole or not at all and as durable as an append, and returns its path. When the name is taken: refuses
   * (already_exists), takes a name beside it, or replaces what is there. With the session file whose attachments it
   * refers to, it gets them too.
   */
  writeOutput(
    file: string,
    pieces: Iterable<string | Uint8Array>,
    taken: "refuse" | "rename" | "replace",
    attachmentsOf?: string,
  ): Promise<string>;
  /** The bytes of a session as it is stored, damage and all, in pieces. */
  bytesOf(log: Log): Iterable<Uint8Array>;
  /** Returns the working directory's session that was changed last. */
  latest(cwd: string): string | undefined;
  /**
   * Returns the path of a new session that comes of the one at `file`: beside it, where that lies outside the session
   * folders and no flat one was named; undefined where it goes to the folder of its working directory.
   */
  beside(file: string, header: SessionHeader): string | undefined;
  /**
   * Returns the session that was made lately by a request with an idempotency key: of a working directory, or of those
   * that came to lie beside a file.
   */
  made(key: string, of: { readonly cwd: string } | { readonly beside: string }): string | undefined;
  /** What is found without opening sessions. */
  readonly catalog: Catalog;
  /** What happens to sessions that are not open. */
  readonly lifeCycle: LifeCycle;
  /** The way between a JSONL file and Session Store V2. */
  readonly migrations: Migrations;
}
