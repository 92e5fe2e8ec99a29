/** The desktop's trash, through the `trash` command that Pi uses too. */

import { basename, join } from "node:path";
import type { Disk } from "../fs/disk.ts";
import { getInfo } from "../fs/files.ts";
import type { Variables } from "../fs/paths.ts";
import { findProgram } from "../fs/programs.ts";

/** Milliseconds after which a command that has not ended is stopped. */
const PATIENCE = 30_000;

/** Returns a function that moves paths to the trash and returns the first one's new path; undefined without `trash`. */
export function findDesktopTrash(
  disk: Disk,
  variables: Variables,
): ((paths: readonly string[]) => Promise<string | undefined>) | undefined {
  const command = process.platform === "win32" ? undefined : findProgram(disk, variables, "trash");
  if (command === undefined) return undefined;
  return async (paths) => {
    const inode = disk.info(paths[0]).inode;
    await run(command, paths, variables);
    // The trash of Linux and that of macOS keep the name if they can; the inode shows that it is the same file.
    for (const folder of trashFolders(variables)) {
      const path = join(folder, basename(paths[0]));
      if (getInfo(disk, path)?.inode === inode) return path;
    }
    return undefined;
  };
}

function trashFolders({ HOME: home, XDG_DATA_HOME: data }: Variables): string[] {
  if (home === undefined) return [];
  return [join(data || join(home, ".local", "share"), "Trash", "files"), join(home, ".Trash")];
}

/** Resolves when the command has ended, successful or not: the caller checks the files for the outcome. */
function run(command: string, paths: readonly string[], variables: Variables): Promise<void> {
  return new Promise((resolve) => {
    // Loaded only when it is needed.
    const { spawn } = process.getBuiltinModule("node:child_process");
    // Paths are absolute, so none is parsed as an option.
    const child = spawn(command, [...paths], { stdio: "ignore", timeout: PATIENCE, env: { ...variables } });
    child.on("error", () => resolve());
    child.on("close", () => resolve());
  });
}
