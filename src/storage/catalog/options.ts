/** Everything that the parts of the catalog need from around it. */

import type { Env } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import type { LeafMemory } from "../../core/ports/stores.ts";
import type { Disk } from "../fs/disk.ts";
import type { StoragePaths } from "../fs/paths.ts";
import type { OpenDatabase } from "../fs/sqlite.ts";

export interface CatalogOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly paths: StoragePaths;
  readonly leaves: LeafMemory;
  /** Opens a session file or container for reading. */
  readonly openLog: (file: string) => Log;
  /** Returns the available SQLite. It is called when SQLite is first needed. */
  readonly sqlite?: () => OpenDatabase | undefined;
  /** Number of files from which on folders are watched instead of read on every call. */
  readonly watchFrom?: number;
  /** Whether texts are indexed after a list, before the first search. */
  readonly indexAhead?: boolean;
  /** Whether an index that is written for scripts is durable when `exportIndex` resolves. */
  readonly isDurable?: boolean;
}
