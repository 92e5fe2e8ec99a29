/** The contract of the files that a catalog lists: ours, or those of other agents. */

import type { ListRequest, UnreadFile } from "../../core/ports/catalog.ts";
import type { FoundStamp } from "../fs/stamps.ts";
import type { SessionRow } from "./session-row.ts";
import type { Scan } from "./summary.ts";

/** The result of `changes`, by path. Files that are in neither list have not changed. */
export interface FolderChanges {
  /** Files whose stamps must be compared. */
  readonly there: ReadonlyMap<string, FoundStamp>;
  readonly removed: readonly string[];
  /** True if nothing changed since the last call. */
  readonly isSame?: boolean;
}

/** No change since the last call. */
export const NO_CHANGES: FolderChanges = { there: new Map(), removed: [], isSame: true };

/** The files that a catalog lists. */
export interface ListedFiles {
  /** True if they are other agents'. */
  readonly isForeign: boolean;
  /** Returns the changes since the last call. */
  changes(): Promise<FolderChanges>;
  /**
   * Returns the summary of a session; null for a file that is no session. `before`: its row, unless it is another file
   * now; `hasGrown`: true if it may have grown since that.
   */
  scan(path: string, stamp: FoundStamp, before: SessionRow | undefined, hasGrown: boolean): Scan | null;
  /** Returns the stamps of the sessions within a file, by their paths. */
  stampInner?(path: string, stamp: FoundStamp, names: readonly string[]): [string, FoundStamp][];
  /** Returns the files that no session can be read from, as far as `changes` found them. */
  listUnread(request: Pick<ListRequest, "agents">): Iterable<UnreadFile>;
  /** Describes a file that is no session; undefined if that is not worth a sentence. */
  describe?(path: string): UnreadFile | undefined;
  close(): void;
}
