/** The contract of a log with a replica, as the replica uses it. The session's files are a copy. */

import type { Damage } from "../../core/format/damage.ts";
import type { Log } from "../../core/ports/store.ts";
import type { AttachmentFolder } from "./attachments.ts";

/** Other changes of a session that is published anew. */
export interface ReplacedParts {
  /** Entries of the log with another id in the new lines. */
  readonly renamed?: ReadonlyMap<string, string>;
  /** The line of its header; by default it stays. */
  readonly headerLine?: Uint8Array;
}

/** A log with a replica: it holds lines in memory until the replica has them durably, then writes its files. */
export interface ReplicatedLog extends Log {
  readonly attachments: AttachmentFolder;
  /**
   * True if the files lack durable entries, which are read from memory: the disk refused them, or another program
   * interferes.
   */
  readonly isBehind: boolean;
  /** True if another program changed the files at the place of those entries, so that they have to be written anew. */
  readonly isDisturbed: boolean;
  /** Writes those entries. They stay in memory if that fails. */
  writeBehind(): void;
  /** Makes the next `refresh` return "replaced". */
  markReplaced(): void;
  /**
   * Adds lines that are durable in the replica, writes them to the files, and creates a session that is not created yet.
   * This process has the lock, and no commit waits.
   */
  applyRemote(lines: readonly Uint8Array[]): void;
  /**
   * Publishes the session anew with its first `count` entries and these lines, durably, and returns the path of the previous
   * state. From then on `refresh` returns "replaced". This process has the lock, and no commit waits.
   */
  replaceFrom(count: number, lines: readonly Uint8Array[], changes?: ReplacedParts): string;
  /** Number of times that one of both was called. */
  readonly remoteChangeCount: number;
  /** The `renamed` of `replaceFrom`, once it was called. */
  readonly renamed: ReadonlyMap<string, string> | undefined;
  /** Adds to the reported damage of the session. */
  addDamage(damage: Damage): void;
}
