/**
 * The project without each of its modules: the rest compiles and passes its unit tests.
 */

import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { modules } from "../../src/compose.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** Milliseconds for one module: two minutes on an idle machine. */
const PATIENCE = 30 * 60_000;
/** Failures are at the end of what a run prints, in characters. */
const SHOWN = 30_000;

const folder = mkdtempSync(join(tmpdir(), "pi-session-server-"));
// All copies have one path, because Vitest finds what it made of a file before by the path of that.
const copy = join(folder, "copy");
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs a program of Node; fails with what it prints. */
async function run(cwd: string, ...args: string[]): Promise<void> {
  // Variables of this run for its workers are not for those of the other.
  const own = Object.entries(process.env).filter(([name]) => !/^VITEST|^PI_TEST_(?!RETRY$)|^NODE_ENV$/.test(name));
  const env = { ...Object.fromEntries(own), NO_COLOR: "1" };
  const failure = await new Promise<string | null>((resolve) => {
    execFile(process.execPath, args, { cwd, env, maxBuffer: 2 ** 28, timeout: PATIENCE }, (error, stdout, stderr) =>
      resolve(error && `${args.join(" ")}: ${error.code ?? error.signal}\n${`${stdout}${stderr}`.slice(-SHOWN)}`),
    );
  });
  expect(failure, failure ?? "").toBeNull();
}

test.each(Object.keys(modules))(
  "without %s the rest compiles and passes the unit tests",
  async (name) => {
    rmSync(copy, { recursive: true, force: true });
    await run(ROOT, "scripts/without-module.js", name, copy);
    await run(copy, "node_modules/typescript/bin/tsc", "--noEmit");
    await run(copy, "node_modules/vitest/vitest.mjs", "run", "--project", "unit");
  },
  PATIENCE,
);
