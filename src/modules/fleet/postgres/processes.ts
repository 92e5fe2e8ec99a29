/**
 * The processes of this machine that take sessions of a fleet. Each has a note in the state folder, so that another one sees
 * that it has exited, and does not wait for its leases.
 */

import { join } from "node:path";
import { toBytes } from "../../../core/json/json.ts";
import { removeQuietly } from "../../../storage/fs/disk.ts";
import { putInPlaceNow } from "../../../storage/fs/files.ts";
import { listNames } from "../../../storage/fs/folders.ts";
import { Claims, readClaim } from "../../../storage/locks/claims.ts";
import type { LockOptions } from "../../../storage/locks/contract.ts";

/** Maximum notes of other processes that are kept: the latest. */
const MOST_NOTES = 100;
/** The id of a process. Ids in the database are written by others. */
const ID = /^[\w-]{1,64}$/;
const NOTE = /^[\w-]{1,64}\.json$/;

export class FleetProcesses {
  private readonly options: LockOptions;
  private readonly folder: string;
  private readonly claims: Claims;

  constructor(options: LockOptions) {
    this.options = options;
    this.folder = join(options.stateFolder, "fleet-processes");
    this.claims = new Claims(options);
  }

  private pathOf(id: string): string {
    return join(this.folder, `${id}.json`);
  }

  /** Writes the note of this process. Without a note, others wait for its leases. */
  note(id: string): void {
    const { options, folder } = this;
    try {
      options.disk.makeFolder(folder);
      // Ids begin with the time. Whether processes of other containers and runs have exited is unknown.
      const notes = listNames(options.disk, folder).filter((name) => NOTE.test(name));
      for (const name of notes.slice(0, -MOST_NOTES)) removeQuietly(options.disk, join(folder, name));
      const bytes = toBytes(JSON.stringify(this.claims.make(0)));
      putInPlaceNow(options.disk, this.pathOf(id), bytes, { replace: true, sync: false });
    } catch {
      // Then no process can know that this one exited.
    }
  }

  forget(id: string): void {
    removeQuietly(this.options.disk, this.pathOf(id));
  }

  /**
   * Returns whether a process is known to have exited: it left a note in this state folder, in this run of the system. A
   * copied folder says nothing about another run, and a folder that containers share says nothing about the other
   * containers.
   */
  hasEnded(id: string): boolean {
    const claim = ID.test(id) ? readClaim(this.options.disk, this.pathOf(id))?.claim : null;
    if (!claim || typeof claim.pid !== "number") return false;
    const run = runOf(this.claims.make(0));
    return run !== "" && runOf(claim) === run && this.claims.isStale(claim);
  }
}

/** Returns the run of the system from the start time of a process; empty if it is unknown. */
function runOf({ started }: { readonly started?: unknown }): string {
  return String(started ?? "").split(" ")[0];
}
