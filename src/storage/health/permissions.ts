/** Finds folders and files of sessions that other users of the machine can read. */

import { dirname, join } from "node:path";
import type { Exposed } from "../../core/ports/health.ts";
import type { Disk } from "../fs/disk.ts";
import { getInfo } from "../fs/files.ts";
import { listFolderIfAllowed } from "../fs/folders.ts";

/** Permission bits of the group and of everybody else, and of those the right to read and to enter. */
const [GROUP, OTHERS] = [0o070, 0o007];
const [READ, ENTER] = [0o044, 0o011];

/** Returns what other users can read in folders of sessions, and in our state folder, which only this user needs. */
export function findExposed(disk: Disk, folders: Iterable<string>, stateFolder: string): Exposed[] {
  if (process.platform === "win32") return [];
  const found: Exposed[] = [];
  const state = getInfo(disk, stateFolder);
  if (state !== null && (state.mode & (GROUP | OTHERS)) !== 0)
    found.push({ path: stateFolder, mode: octal(state.mode), isOwn: true, fileCount: 0 });
  for (const path of folders) {
    const info = getInfo(disk, path);
    const reach = info === null ? 0 : info.mode & reachOf(disk, path);
    if (info === null || (reach & (READ | ENTER)) === 0) continue;
    // A user who may enter a folder can read the files in it by their names.
    const within = enteredBy(reach);
    const modes = listFolderIfAllowed(disk, path)
      .filter(({ kind }) => kind === "file")
      .map(({ name }) => (getInfo(disk, join(path, name), true)?.mode ?? 0) & within & READ)
      .filter((mode) => mode !== 0);
    if ((reach & READ) === 0 && modes.length === 0) continue;
    found.push({ path, mode: octal(info.mode), isOwn: false, fileCount: modes.length });
  }
  return found;
}

/** Returns the bits of users who may enter all folders above a path. An unreadable folder counts as open. */
function reachOf(disk: Disk, path: string): number {
  let reach = GROUP | OTHERS;
  for (let at = dirname(path); ; at = dirname(at)) {
    const info = getInfo(disk, at);
    if (info !== null) reach &= enteredBy(info.mode);
    if (at === dirname(at)) return reach;
  }
}

/** Returns the bits of users who may enter a folder with this mode. */
function enteredBy(mode: number): number {
  return ((mode & 0o010) === 0 ? 0 : GROUP) | ((mode & 0o001) === 0 ? 0 : OTHERS);
}

function octal(mode: number): string {
  return (mode & 0o777).toString(8).padStart(3, "0");
}
