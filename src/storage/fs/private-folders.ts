/**
 * The folders for announcements of holders: the one next to the session, so that every process that can open the
 * session finds it, whatever its state folder, its temporary folder and its namespaces; where no socket can be there,
 * one of the user's. Only folders and files are used that this user alone can have made or changed.
 */

import { createHash } from "node:crypto";
import { basename, dirname, isAbsolute, join } from "node:path";
import type { Disk, FileInfo } from "./disk.ts";
import { getInfo, isNameTaken } from "./files.ts";
import type { Variables } from "./paths.ts";

/** The folder next to sessions. No agent takes a name with a dot for a session, or a folder of them. */
export const ANNOUNCEMENT_FOLDER = ".pi-session-server";
/** The folder in that of the user's session on this machine. */
const OWN = "pi-session-server";
/** Hex digits of a hash that distinguishes sessions of all folders. */
const DIGITS = 24;

/** A folder, and names in it, for announcing the holder of one session. */
export interface PrivatePlace {
  readonly disk: Disk;
  readonly folder: string;
  /** The beginning of the names of the session's files in the folder. */
  readonly name: string;
}

/** Dependencies for finding the folders. */
export interface PlacesDeps {
  /** The disk of the sessions, which may be confined. */
  readonly disk: Disk;
  /** The disk of folders that no host can name. */
  readonly ownDisk: Disk;
  readonly variables: Variables;
  /** The folder for temporary files, the same for all processes whatever their environment: `/tmp`. */
  readonly temporary?: string;
}

/** Returns the folders for the holder of a session, the best first. Throws errno errors if nothing has its path. */
export function listPlaces(deps: PlacesDeps, session: string): PrivatePlace[] {
  const { disk } = deps;
  const real = disk.realPath(session);
  const { device, inode } = disk.info(real);
  const name = createHash("sha256").update(`${device}:${inode}`).digest("hex").slice(0, DIGITS);
  return [
    { disk, folder: join(dirname(real), ANNOUNCEMENT_FOLDER), name: String(inode) },
    ...listUserFolders(deps).map((folder) => ({ disk: deps.ownDisk, folder, name })),
  ];
}

/** Returns the folders of the user's that are tried instead of the one next to a session. */
function listUserFolders({ ownDisk, variables, temporary = "/tmp" }: PlacesDeps): string[] {
  const runtime = variables.XDG_RUNTIME_DIR ?? "";
  const info = isAbsolute(runtime) ? getInfo(ownDisk, runtime) : null;
  const isOurs = info?.kind === "folder" && info.owner === process.getuid?.();
  return [...(isOurs ? [join(runtime, OWN)] : []), join(temporary, `${OWN}-${process.getuid?.()}`)];
}

/** Returns whether a file has the wanted kind, belongs to this user, and is closed to others. Sockets are `other`. */
export function isPrivate({ kind, owner, mode }: FileInfo, wanted: FileInfo["kind"]): boolean {
  return kind === wanted && owner !== undefined && owner === process.getuid?.() && (mode & 0o077) === 0;
}

/** Throws EPERM for anything that is not private. */
export function requirePrivate(info: FileInfo, wanted: FileInfo["kind"]): void {
  if (!isPrivate(info, wanted)) throw Object.assign(new Error("others may have made it"), { code: "EPERM" });
}

/** Runs `use` with a path to the folder, which is private and stays the same until `use` returns. */
export function usePrivateFolder<T>({ disk, folder }: PrivatePlace, use: (path: string, disk: Disk) => T): T {
  if (!disk.inFolder) throw Object.assign(new Error("the disk has no sockets"), { code: "ENOTSUP" });
  return disk.inFolder(folder, (path, held) => {
    requirePrivate(held.info(`${path}/.`), "folder");
    return use(path, held);
  });
}

/** Makes the folder for an announcement, but none above it, unless something has its name. */
export function makePrivateFolder({ disk, folder }: PrivatePlace): void {
  try {
    disk.inFolder?.(`${dirname(folder)}/.`, (above, held) => {
      const path = join(above, basename(folder));
      if (held.folders) held.folders.make(path);
      else held.makeFolder(path);
    });
  } catch (error) {
    if (!isNameTaken(error)) throw error;
  }
}

/** Removes the folder for an announcement if it is ours and empty. */
export function removeIfEmpty({ disk, folder }: PrivatePlace): void {
  try {
    if (disk.info(folder, true).owner === process.getuid?.()) disk.removeFolder(folder);
  } catch {
    // It contains other announcements, or is gone.
  }
}
