/** Who holds a lock, as files tell it: the content of lock files and of the notes beside locks. */

import { hostname, tmpdir, userInfo } from "node:os";
import { basename, dirname, join } from "node:path";
import { isMissing } from "../../core/errno.ts";
import { parse } from "../../core/json/json.ts";
import type { Holder } from "../../core/ports/store.ts";
import { type Disk, exists, readWhole } from "../fs/disk.ts";
import { type Answers, isSameProcess, processStart } from "../fs/processes.ts";
import { type LockOptions, UNKNOWN } from "./contract.ts";

/** A holder as its lock or its note tells of it. */
export interface Claim extends Holder {
  readonly host: string;
  /** When its process started, as {@link processStart} has it: tells a reused pid from the same process. */
  readonly started: string;
  /** The pid namespace in which its pid means something; 0 where there is none. */
  readonly space?: number;
  /** Of the locked file. */
  readonly inode?: number;
}

/** What is known of processes, kept by one instance of locks. */
export class Claims {
  private readonly options: LockOptions;
  private readonly answers: Answers = new Map();
  /** The facts of this process that stay. */
  private own: { pid: number; host: string; started: string; space: number } | undefined;

  constructor(options: LockOptions) {
    this.options = options;
  }

  /** Returns our claim on a file. */
  make(inode: number): Claim {
    const { client, now } = this.options;
    const { pid, host, started, space } = this.facts();
    return { client, pid, since: now(), host, started, space, inode };
  }

  /** Whether the process of a claim runs no more; false where it cannot be known from here. */
  isStale(claim: Partial<Claim>): boolean {
    const { host, space } = this.facts();
    if (claim.host !== host || (claim.space ?? space) !== space) return false;
    return !isSameProcess(this.options.disk, claim.pid, claim.started, undefined, this.answers);
  }

  isOfThisHost(claim: Partial<Claim>): boolean {
    return claim.host === this.facts().host;
  }

  private facts(): { pid: number; host: string; started: string; space: number } {
    const { disk } = this.options;
    const { pid } = process;
    this.own ??= {
      pid,
      host: hostname(),
      started: processStart(disk, pid, undefined, this.answers) ?? "",
      space: pidNamespace(disk),
    };
    return this.own;
  }
}

function pidNamespace(disk: Disk): number {
  try {
    return disk.info("/proc/self/ns/pid").inode;
  } catch {
    // Only Linux has them.
    return 0;
  }
}

export function holderIn({ client, pid, since }: Partial<Claim>): Holder {
  return {
    client: typeof client === "string" ? client : UNKNOWN.client,
    pid: typeof pid === "number" ? pid : UNKNOWN.pid,
    since: typeof since === "string" ? since : UNKNOWN.since,
  };
}

/** Returns the content of a file about a lock; the claim is null when it is none. Null when there is no file. */
export function readClaim(disk: Disk, path: string): { bytes: Uint8Array; claim: Partial<Claim> | null } | null {
  let bytes: Uint8Array = new Uint8Array(0);
  try {
    bytes = readWhole(disk, path);
    const claim = parse(bytes);
    return { bytes, claim: typeof claim === "object" && claim !== null ? (claim as Partial<Claim>) : null };
  } catch (error) {
    return isMissing(error) ? null : { bytes, claim: null };
  }
}

/**
 * Returns folders for small files about locks: the one in our state folder, and one that servers with other state
 * folders know, too.
 */
export function lockFolders({ disk, stateFolder }: LockOptions): string[] {
  const common = commonFolder();
  const folders = [join(stateFolder, "locks")];
  if (isOurs(disk, common)) folders.push(join(common, "locks"));
  return folders;
}

/** Returns the folder of a user's servers, whatever their state folders are. */
export function commonFolder(): string {
  let user = String(userId());
  try {
    user = userInfo().username;
  } catch {
    // A user without a name still has a number.
  }
  return join(tmpdir(), `pi-session-server-${user}`);
}

/** Whether a folder that anybody can make is not there yet or is ours alone. */
function isOurs(disk: Disk, folder: string): boolean {
  try {
    if (!exists(disk, folder)) return true;
    const { kind, owner, mode } = disk.info(folder);
    const real = join(disk.realPath(dirname(folder)), basename(folder));
    return (
      kind === "folder" && (owner ?? userId()) === userId() && (mode & 0o022) === 0 && disk.realPath(folder) === real
    );
  } catch {
    return false;
  }
}

function userId(): number {
  return process.getuid?.() ?? 0;
}
