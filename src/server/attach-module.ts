/** The contract of the module that shares sessions between processes. Without it, this server works alone. */

import type { Env } from "../core/ports/env.ts";
import type { Disk } from "../storage/fs/disk.ts";
import type { Variables } from "../storage/fs/paths.ts";
import type { SharingStart } from "./dispatch/sharing.ts";

export interface AttachModule {
  /** Prepares sharing for a server. */
  makeSharing(options: SharingOptions): SharingStart;
}

export interface SharingOptions {
  readonly disk: Disk;
  /** The disk of this server's own files, which no option confines. */
  readonly ownDisk: Disk;
  readonly variables: Variables;
  readonly env: Env;
  readonly version: string;
  /** The event that an acknowledged change survives. */
  readonly durability: "sync" | "os";
  /** Milliseconds of silence after which waiting for a process ends, if not the default. */
  readonly holderTimeout?: number;
}
