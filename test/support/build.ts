/** Builds the program once before the tests that spawn it, when it is missing or older than its sources. */

import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** The built program, which the tests spawn. */
export const PROGRAM = join(root, "dist/bin/pi-session-server.js");

/** The folder with the program's machine code for all tests. */
export const KEPT_CODE = join(root, "node_modules/.cache/pi-session-server-tests");

export default function setup(): void {
  buildIfOld();
  keepCode();
}

/**
 * Runs the program next to the first tests until it keeps its machine code, unless that code is there. Only a server
 * that lives for two seconds keeps it. A start then takes 50 of 500 ms of CPU less.
 */
function keepCode(): void {
  const build = createHash("sha256")
    .update(readFileSync(join(root, "dist/bin/program.js")))
    .digest("hex");
  const name = `${build.slice(0, 16)}-${process.versions.v8}-${process.arch}.code`;
  if (modified(join(KEPT_CODE, "pi-session-server", name)) > 0) return;
  const home = mkdtempSync(join(tmpdir(), "pi-session-server-"));
  const env = { PATH: process.env.PATH, HOME: home, PI_SESSION_SERVER_STATE_DIR: home, XDG_CACHE_HOME: KEPT_CODE };
  const child = spawn(process.execPath, [PROGRAM, "--session-dir", home], {
    cwd: home,
    env,
    stdio: ["pipe", "ignore", "ignore"],
  });
  const entries = [{ type: "message", message: { role: "user", content: "x" } }];
  const methods = "append get_state get_entries get_messages get_tree clone list_sessions".split(" ");
  for (const [id, method] of methods.entries()) {
    const params = method === "append" ? { entries } : {};
    child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
  }
  setTimeout(() => child.stdin.end(), 3000);
  child.on("close", () => rmSync(home, { recursive: true, force: true }));
}

function buildIfOld(): void {
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

/** Returns the time of a file's last change; 0 for a missing file, which is older than any source. */
function modified(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}
