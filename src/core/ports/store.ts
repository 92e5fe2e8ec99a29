/** The contracts that every backend keeps. `test/storage/contract.ts` tests each backend against these sentences. */

import type { Failure } from "../failure.ts";
import type { Damage } from "../format/damage.ts";
import type { SessionHeader } from "../format/entry.ts";
import type { Head, Nodes } from "../tree/nodes.ts";
import type { FidelityReport } from "./fidelity.ts";
import type { LogLock } from "./lock.ts";
import type { Replica } from "./replica.ts";

/** Properties of a log's file when it was last checked; equal stamps mean an unchanged file. */
export interface FileStamp {
  readonly device: number;
  readonly inode: number;
  readonly size: number;
  readonly modified: number;
}

/** A change that another program made to a file that a log has open. */
export type Change =
  | { readonly kind: "none" }
  /** It appended entries, from position `first` on. */
  | { readonly kind: "grown"; readonly first: number }
  /** Another program rewrote, cut or replaced the file: everything known of it is invalid. */
  | { readonly kind: "replaced" }
  | { readonly kind: "gone" };

/**
 * The durable sequence of one session. Positions count entries in file order, from 0, and never change. Opening reads
 * ids, parents, types and offsets, never bodies, and writes nothing. Reading and appending are synchronous; only
 * `commit` waits.
 *
 * Everything learned about the stored bytes without the lock is provisional. At the first check after the lock was
 * taken, and whenever identity, size or change time moved since the last check, the log compares its knowledge with the
 * content of the medium (its beginning and its last known records) before it writes, cuts or replaces the first byte.
 * It then parses again all bytes after those, and returns "replaced" if anything known differs. A cut requires the
 * lock, and proof that the bytes are still those that were parsed, or those that this log wrote.
 */
export interface Log {
  readonly store: string;
  /** Path of the session, or its future path when nothing is written yet; null when it lives in memory only. */
  readonly file: string | null;
  readonly header: SessionHeader;
  /** The header as it was read. */
  readonly headerLine: Uint8Array;
  /** Format version of the stored bytes, before any migration. */
  readonly version: number;
  readonly nodes: Nodes;
  /** Damage in the stored bytes that was read past. Grows when bodies are read. */
  readonly damage: readonly Damage[];
  /** The reason why appends are refused, or null. */
  readonly readOnly: Failure | null;
  /** True if the session exists in its store; a new one does from its first append without `defer`. */
  readonly persisted: boolean;
  /** Entries before this position survive everything that the store's durability promises to survive. */
  readonly durableCount: number;
  /** True if `commit` has something to do although every entry is durable. */
  readonly isCommitDue: boolean;
  readonly stamp: FileStamp | null;

  /** Returns the size of an entry's line in bytes, without reading it. */
  length(position: number): number;

  /**
   * Returns the line of one entry, byte for byte as stored, without line feed. It is checked to be UTF-8 and JSON when
   * it is read for the first time. An entry whose bytes fail that check is replaced by a placeholder that has its head
   * and `"damaged":true`, and is in `damage` from then on. Throws storage_failed when it cannot be read.
   */
  read(position: number): Uint8Array;
  /**
   * Reads many lines as `read` does, with fewer operations if they are adjacent. Lazy. With `passing`, the caller is
   * done with each line when it asks for the next, which may then overwrite its bytes.
   */
  readMany(positions: ArrayLike<number>, passing?: boolean): Iterable<Uint8Array>;
  /** Returns these lines, each with its line feed, unchecked, in large pieces. Lazy; `passing` as in `readMany`. */
  copy(positions: ArrayLike<number>, passing?: boolean): Iterable<Uint8Array>;
  /**
   * True if each node follows from its line alone (nothing is damaged, renamed or migrated) and the lines are where
   * they were read. Copies of the lines then have the same nodes. False in a log that does not know.
   */
  readonly isPlain: boolean;

  /**
   * Returns the base64 text of a file that is kept next to the session for an entry (session-format reference, section
   * 8.6). Returns null if the file is missing or is another one, and adds that to `damage`.
   */
  attachment(position: number, sha256: string, sizeBytes: number): string | null;

  /** True if a line whose head looked right was found damaged: it may hold entries that only `reopen` finds. */
  readonly mayHideEntries: boolean;

  /**
   * Checks for changes by other processes to the stored bytes, and adds the entries that they appended. After
   * "replaced" and after a failure, the log is as before.
   */
  refresh(): Change;
  /** Opens the log that replaced this one; this one must then be closed. Throws the failures of `open`. */
  reopen(): Log;
  /** Another place that has the entries and decides what the session contains; null for most logs. */
  readonly replica: Replica | null;
  /** Returns the durability of an entry: `certain` in a log with a replica, whose `confirm` finds it out. */
  outcome(position: number): EntryOutcome;
  /** Returns the position of the first entry that remained although its commit failed, once; undefined if none did. */
  takeFirstUncertain(): number | undefined;
  readonly lock: LogLock;
  /**
   * Moves entries that a dead writer left to a place that concurrent readers see, and makes them durable as far as the
   * durability promises. Does nothing without the lock, or while a commit does it. Removes nothing if it fails, with
   * storage_failed or storage_full. Call `refresh` before.
   */
  settle(): void;

  /**
   * Adds entries at the end, all or none, each as its line without line feed: visible to this process at once, durable
   * after `commit`. With `defer`, a log that is not persisted yet keeps them in memory until the next append without
   * it. Entries that other processes appended in between come first; the caller finds its own by their ids. On a
   * failure (storage_full, storage_failed, read_only, session_locked) the log is as before, except for outcome_unknown:
   * then they stay, because another program wrote after them, as in `commit`. `heads` has the heads of the lines that
   * the caller knows; others are read from the lines.
   */
  append(lines: readonly Uint8Array[], options?: { defer?: boolean; heads?: readonly (Head | undefined)[] }): void;

  /**
   * Resolves when everything appended before the call is durable. Calls share one disk operation. Rejects with
   * storage_failed or storage_full after the log has gone back to `durableCount` entries, and with outcome_unknown if
   * the entries stay, durable or not, because another program wrote after them. It also rejects so, once, if entries
   * without a commit were discarded; until then nothing is appended after them. With a replica, outcome_unknown may
   * also mean that the log has gone back, but the entries may have become durable in the replica, and then return as
   * those of another program.
   */
  commit(): Promise<void>;

  /**
   * Removes everything after `durableCount`, from memory and, as far as the disk allows, from the file; an entry that
   * was never acknowledged does not come back, unless its outcome was unknown.
   */
  rollBack(): void;

  /**
   * Publishes the session anew without its damage, and returns the path of the kept original bytes. `repairs` gives
   * entries other lines, which is reason enough to publish. Returns null when nothing needs a repair. The log must be
   * reopened afterwards.
   */
  repair(repairs?: Repairs): string | null;
  /** The damage that `repair` removes. */
  readonly repairable: readonly Damage[];

  /** The container that has the session; null in other stores. */
  readonly container: LogContainer | null;

  /** The agent that wrote this file, if it is no session of ours: it is only read, and its entries are derived. */
  readonly foreign: ForeignSource | null;

  /** Releases the log's open files and locks. Later calls throw. Committed entries are never lost. */
  close(): void;

  /**
   * Closes a log that was published but not announced, and removes it as far as the disk allows; it stays if another
   * process has written to it since, other machines have it, or its store cannot remove it.
   */
  discard(): void;
}

/**
 * The durability of an entry, as far as it is known. `certain`: no process discards it, and it is as durable as the log promises.
 * `uncertain`: it may be of a process that has not answered yet and discards it if its disk refuses; `settle` makes it
 * certain. `unknown`: it remained although its commit failed, and never becomes certain.
 */
export type EntryOutcome = "certain" | "uncertain" | "unknown";

/** The container of a session in Session Store V2. */
export interface LogContainer {
  /** One of nine. */
  readonly state: string;
  /**
   * Marks the durable end, so that the next opening reads only the entries after it. Returns the number of the checkpoint,
   * or null without entries. Throws read_only, session_locked and the failures of `commit`.
   */
  checkpoint(reason?: "manual" | "pre_migration"): Promise<number | null>;
}

/** Another agent's file that a log reads. */
export interface ForeignSource {
  /** Its name in options and ids, such as `claude`. */
  readonly agent: string;
  /** Its name for people. */
  readonly title: string;
  /** Returns the fidelity of each record of the file. */
  fidelity(): FidelityReport;
  /** Returns the paths of the sessions within its file, as older versions of an agent wrote subagents. */
  inner(): readonly string[];
}

/** New lines by position: a function that makes the line of an entry from the stored one. */
export type Repairs = ReadonlyMap<number, (line: Uint8Array) => Uint8Array>;

/** The header of a new log, and its path. */
export interface Beginning {
  readonly headerLine: Uint8Array;
  /** File name time and id come from the header; cwd decides the folder. */
  readonly header: SessionHeader;
  /** True if a host gave the id, so that another process may make a session with the same id. */
  readonly isGivenId?: boolean;
  /** Path of the new log; by default the store chooses. */
  readonly file?: string;
  /** The session whose attachments the new one gets too. */
  readonly attachmentsOf?: string;
  /** Called right before the session gets its name; a failure that it throws is that of publishing. */
  readonly requireNew?: () => void;
}

/** Lines of another log, as they are, each with its line feed. */
export interface CopiedLines {
  readonly log: Log;
  readonly positions: ArrayLike<number>;
}

/** The initial content of a new log: lines of other logs, and bytes that may be cut anywhere. */
export type Content = Iterable<Uint8Array | CopiedLines>;

/** Lines that are still on their way: pieces of whole lines, each with its line feed. */
export type ComingContent = AsyncIterable<Uint8Array>;

export function* readContent(content: Content): Generator<Uint8Array> {
  for (const part of content)
    if (part instanceof Uint8Array) yield part;
    else yield* part.log.copy(part.positions);
}

/** A place that holds logs. */
export interface Store {
  readonly name: string;
  /** Creates a log with a header and no entries, which is not persisted until something is appended. */
  create(beginning: Beginning): Log;
  /**
   * Publishes a log with these lines, each with its line feed, in one step: either all of it exists or nothing. Throws
   * already_exists, storage_full, storage_failed.
   */
  publish(beginning: Beginning, content: Content | ComingContent): Promise<Log>;
  /** Does the same, and blocks everything else until it is done. */
  publishNow?(beginning: Beginning, content: Content): Log;
  /** Opens the log at `file`. Throws session_not_found, not_a_session (nothing is touched), storage_failed. */
  open(file: string, readOnly?: boolean | Failure): Log;
}
