/** Files and folders as the kit sees them: from outside, as any other program. */

import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

/** Makes a folder of its own for one run, and returns its path without links. */
export function makeRunFolder(): string {
  return realpathSync(mkdtempSync(join(tmpdir(), "pi-session-conformance-")));
}

/** Removes a folder and everything in it. Throws nothing: what cannot be removed is left to the system. */
export function removeFolder(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true, maxRetries: 3 });
  } catch {
    // A server that was not ours to end may still write there.
  }
}

/** Makes a folder and those around it. */
export function makeFolder(path: string): string {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  return path;
}

export function writeTo(path: string, bytes: string | Uint8Array): void {
  makeFolder(dirname(path));
  writeFileSync(path, bytes);
}

export function appendTo(path: string, bytes: string | Uint8Array): void {
  appendFileSync(path, bytes);
}

export function readBytes(path: string): Buffer {
  return readFileSync(path);
}

export function isThere(path: string): boolean {
  return existsSync(path);
}

/** Returns whether the path leads to a file, and not to a folder. */
export function isFileAt(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

/** Returns the names in a folder, in order; none where there is no folder. */
export function listNames(path: string): string[] {
  return existsSync(path) ? readdirSync(path).sort() : [];
}

/**
 * Returns the ids of the processes whose environment contains a text. Works on Linux, and there only for the user's own
 * processes; finds none elsewhere.
 */
export function findProcesses(text: string): number[] {
  if (process.platform !== "linux") return [];
  return listNames("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/environ`).includes(text);
      } catch {
        // It has ended, or is another user's.
        return false;
      }
    })
    .map(Number);
}
