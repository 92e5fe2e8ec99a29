/** Programs that the system would find by their names. */

import { delimiter, resolve } from "node:path";
import type { Disk } from "./disk.ts";
import { getInfo } from "./files.ts";
import type { Variables } from "./paths.ts";

/** Returns the path of a program in the folders of PATH, or undefined. Empty parts of PATH are ignored. */
export function findProgram(disk: Disk, { PATH = "" }: Variables, name: string): string | undefined {
  const folders = PATH.split(delimiter).filter((folder) => folder !== "");
  return folders.map((folder) => resolve(folder, name)).find((path) => isProgram(disk, path));
}

export function isProgram(disk: Disk, path: string): boolean {
  const info = getInfo(disk, path);
  return info?.kind === "file" && (info.mode & 0o111) !== 0;
}
