/** Builds the program once before the tests that spawn it, when it is missing or older than its sources. */

import { execFileSync } from "node:child_process";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** The built program, which the tests spawn. */
export const PROGRAM = join(root, "dist/bin/pi-session-server.js");

export default function setup(): void {
  const newest = newestSource();
  if (modified(PROGRAM) > newest) return;
  try {
    execFileSync(process.execPath, ["scripts/build.js"], { cwd: root, stdio: "pipe" });
  } catch (error) {
    // The program is built before the types are checked, which is not these tests' business.
    if (modified(PROGRAM) <= newest) throw new Error(`The build failed: ${(error as { stderr: Buffer }).stderr}`);
  }
}

function newestSource(): number {
  const sources = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" }).map((name) =>
    join(root, "src", name),
  );
  return Math.max(...[...sources, join(root, "scripts/build.js"), join(root, "package-lock.json")].map(modified));
}

/** 0 for what is not there, which is older than any source. */
function modified(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}
