/** The contract of the module that reads and writes the sessions of other agents. */

import type { MakeResumable, ResumableSession } from "../core/export/resumable.ts";
import type { Failure } from "../core/failure.ts";
import type { UnreadFile } from "../core/ports/catalog.ts";
import type { Env } from "../core/ports/env.ts";
import type { Holder } from "../core/ports/lock.ts";
import type { Log } from "../core/ports/store.ts";
import type { ListedFiles } from "./catalog/listed-files.ts";
import type { Disk } from "./fs/disk.ts";
import type { Variables } from "./fs/paths.ts";

export interface ForeignModule {
  /** Returns the access to other agents' sessions. Looks at nothing before a member is called. */
  openAgentSessions(place: {
    readonly disk: Disk;
    readonly env: Env;
    /** Our state folder, which has the cache. */
    readonly stateFolder: string;
    /** Name the folders of the agents. */
    readonly variables: Variables;
  }): AgentSessions;
  /** See {@link MakeResumable}. `variables`: as above. */
  makeResumable(variables: Variables, ...of: Parameters<MakeResumable>): ResumableSession;
}

/** Opens single files of other agents, which are only read. */
export interface ForeignFiles {
  /**
   * Opens a file of another agent; returns undefined for any other, and for a missing one. `but`: an agent whose
   * sessions other backends may know better. `asReader`: it is read once, so that nothing is cached for a next time.
   */
  open(file: string, options?: { readonly but?: string; readonly asReader?: boolean | undefined }): Log | undefined;
  /** Returns why a file cannot be changed that is one of another agent's; undefined for any other. `but`: as for open. */
  refusal(file: string, but?: string): Failure | undefined;
}

/** The sessions of other agents on this machine. */
export interface AgentSessions extends ForeignFiles {
  /** Returns the files for a catalog. `watchFrom`: number of files from which on their folders are watched. */
  listFiles(watchFrom?: number): ListedFiles;
  /** Returns the databases, tasks and compressed rollouts in the agents' folders that no session can be read from. */
  listUnread(): UnreadFile[];
  /** Returns the processes that have sessions open, by the paths of these, as far as they show it. */
  findHolders(paths: readonly string[]): Map<string, Holder>;
}
