/** The contracts every backend keeps. `test/storage/contract.ts` holds each of them to these sentences. */

import type { Failure } from "../failure.ts";
import type { Damage } from "../format/damage.ts";
import type { SessionHeader } from "../format/entry.ts";
import type { Nodes } from "../tree/nodes.ts";

/** What the file of a log was like when it was last looked at; equal stamps mean an unchanged file. */
export interface FileStamp {
  readonly device: number;
  readonly inode: number;
  readonly size: number;
  readonly modified: number;
}

/** What another program did to a file that a log has open. */
export type Change =
  | { readonly kind: "none" }
  /** It appended; its entries stand from `first` on. */
  | { readonly kind: "grown"; readonly first: number }
  /** It wrote the file anew, cut it or put another in its place: what is known of it no longer holds. */
  | { readonly kind: "replaced" }
  | { readonly kind: "gone" };

/**
 * How far a lock reaches. `sqlite` and `flock`: a file beside the session carries it, so that it holds wherever that
 * file can be opened; `socket`: within one network namespace of Linux; `file`: among those who share a state folder or a
 * user's folder for temporary files.
 */
export type LockKind = "sqlite" | "flock" | "socket" | "file";

/** Who else is writing to a session. */
export interface Holder {
  /** What it calls itself. */
  readonly client: string;
  readonly pid: number;
  /** ISO 8601. */
  readonly since: string;
}

/**
 * The durable sequence of one session. Positions count entries in file order, from 0, and never change.
 *
 * Opening reads ids, parents, types and offsets, never bodies, and writes nothing. Reading and appending are
 * synchronous; only `commit` waits.
 *
 * What was learned of the stored bytes without the lock is a guess. At the first look after the lock was taken, and
 * whenever identity, size or change time moved since the last look, the log compares what it knows with the medium in
 * content (its beginning and its last known records) before it writes, cuts or replaces the first byte, judges anew what
 * comes after, and says "replaced" where anything known differs. A cut needs the lock, and the proof that the bytes are
 * still those that were judged, or those that this log wrote.
 */
export interface Log {
  readonly store: string;
  /** Where the session is or, when nothing is written yet, will be; null when it lives in memory only. */
  readonly file: string | null;
  readonly header: SessionHeader;
  /** The header as it was read. */
  readonly headerLine: Uint8Array;
  /** Format version of the stored bytes, before any migration. */
  readonly version: number;
  readonly nodes: Nodes;
  /** What was wrong in the stored bytes and was read past. Grows when bodies are read. */
  readonly damage: readonly Damage[];
  /** Why appends are refused, or null. */
  readonly readOnly: Failure | null;
  /** Another process that is writing to it now; appending would fail with session_locked. */
  readonly lockedBy: Holder | null;
  /** Which lock keeps other writers out while this process writes; null or missing while it holds none. */
  readonly lockKind?: LockKind | null;
  /** Whether the session exists in its store; a new one does from its first append that is not held. */
  readonly persisted: boolean;
  /** Entries before this position survive what the store's durability promises to survive. */
  readonly durableCount: number;
  /** `commit` has something to do though every entry is durable. */
  readonly isCheckpointDue?: boolean;
  readonly stamp: FileStamp | null;

  /** Bytes of an entry's line, without reading it. */
  length(position: number): number;

  /**
   * The line of one entry, byte for byte as stored, without line feed; checked to be UTF-8 and JSON when it is
   * read for the first time. An entry whose bytes fail that check is answered with a stand-in that has its head
   * and `"damaged":true`, and stands in `damage` from then on. Throws storage_failed when it cannot be read.
   */
  read(position: number): Uint8Array;
  /**
   * `read` for many, with fewer operations where they lie together. Lazy. Whoever says `passing` is done with each line
   * when asking for the next, whose bytes may then take its place.
   */
  readMany(positions: ArrayLike<number>, passing?: boolean): Iterable<Uint8Array>;
  /**
   * The bytes of these lines, each with its line feed, unchecked and in large pieces. Lazy; `passing` is as with
   * `readMany`.
   */
  copy(positions: ArrayLike<number>, passing?: boolean): Iterable<Uint8Array>;
  /**
   * Whether each node is what its line alone says, nothing being damaged, renamed or migrated, and the lines stand where
   * they were read: then copies of lines have the nodes that the lines have here. Not every log can tell.
   */
  readonly isPlain?: boolean;

  /**
   * The base64 text of a file that is kept beside the session for an entry (session-format reference, section 8.6), or
   * null when it is not there or not the one that is meant; then it stands in `damage`.
   */
  attachment(position: number, sha256: string, sizeBytes: number): string | null;

  /** Whether a line whose head looked right was found damaged: it may hold entries that only `reopen` finds. */
  readonly mayHideEntries: boolean;

  /**
   * Looks for what others did to the stored bytes, and takes in what they appended. After "replaced" and after a failure
   * the log knows what it knew before.
   */
  refresh(): Change;
  /** The log of what stands in this one's place now; this one is to be closed. Throws what `open` throws. */
  reopen(): Log;

  /**
   * Becomes the only writer, if the log is persisted; `append` does it by itself. Answers whether it was not before,
   * so that others may have written meanwhile. Throws session_locked, naming the holder.
   */
  takeLock(): boolean;
  /** Lets others write. */
  unlock(): void;

  /**
   * Adds entries at the end, all or none, each as its line without line feed: visible to this process at once,
   * durable after `commit`. With `hold`, a log that is not persisted yet keeps them in memory until the next
   * append without it. Entries of others that came in between come first; find yours by their ids. On a failure
   * (storage_full, storage_failed, read_only, session_locked) the log is as before.
   */
  append(lines: readonly Uint8Array[], options?: { hold?: boolean }): void;

  /**
   * Resolves when everything appended before the call is durable. Calls share one disk operation. Rejects with
   * storage_failed or storage_full after the log has gone back to `durableCount` entries.
   */
  commit(): Promise<void>;

  /**
   * Gives up everything after `durableCount`, here and, as far as the disk lets us, there; an entry that was never
   * acknowledged does not come back.
   */
  rollBack(): void;

  /**
   * Publishes the session anew without what is damaged, if anything is; the stored bytes as they were stay beside it,
   * and their path is answered. `mended` gives entries other lines, which is reason enough. Null when there is nothing to
   * mend. The log is to be opened again after it.
   */
  repair(mended?: Mended): string | null;
  /** The damage that `repair` takes out. */
  readonly mendable: readonly Damage[];

  /** Of a V2 store: which of its nine states it is in. */
  readonly state?: string;

  /**
   * Of a V2 store: marks the durable end, so that the next opening reads no more than what comes behind; answers the
   * number of the checkpoint, null when there are no entries. Throws read_only, session_locked and what `commit` does.
   */
  checkpointNow?(reason?: "manual" | "pre_migration"): Promise<number | null>;

  /** Gives up what the log holds open. Later calls throw. Nothing that was committed is lost. */
  close(): void;

  /**
   * Closes a log that was published and that nobody was told of, and takes it back as far as the disk lets us; what
   * somebody else has written to since stays. Not every store can.
   */
  discard?(): void;
}

/** By position, what makes the line of an entry of the one that is stored. */
export type Mended = ReadonlyMap<number, (line: Uint8Array) => Uint8Array>;

/** What a new log begins with. */
export interface Beginning {
  readonly headerLine: Uint8Array;
  /** File name time and id come from the header; cwd decides the folder. */
  readonly header: SessionHeader;
  /** Where to create it; by default the store chooses. */
  readonly file?: string;
  /** The session whose attachments the new one gets too. */
  readonly attachmentsOf?: string;
}

/** Lines of another log, as they are, each with its line feed. */
export interface CopiedLines {
  readonly log: Log;
  readonly positions: ArrayLike<number>;
}

/** What a new log holds from the start: lines of others, and bytes that may be cut anywhere. */
export type Content = Iterable<Uint8Array | CopiedLines>;

/** Content as bytes alone. */
export function* bytesOfContent(content: Content): Generator<Uint8Array> {
  for (const part of content)
    if (part instanceof Uint8Array) yield part;
    else yield* part.log.copy(part.positions);
}

/** A place that holds logs. */
export interface Store {
  readonly name: string;
  /** A log with a header and no entries, which is not persisted until something is appended. */
  create(beginning: Beginning): Log;
  /**
   * A log that exists from the start with these lines, each with its line feed; published in one step: either all of
   * it is there or nothing. Throws already_exists, storage_full, storage_failed.
   */
  publish(beginning: Beginning, content: Content): Promise<Log>;
  /**
   * Opens what stands at `file`. Throws session_not_found, not_a_session (nothing is touched), storage_failed.
   */
  open(file: string, readOnly?: boolean): Log;
}
