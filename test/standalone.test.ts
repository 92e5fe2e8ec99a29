/**
 * The program and Node as one file, which `node scripts/package.js` makes and PI_TEST_STANDALONE names: it is what the program of
 * the package is, on a machine without Node.
 */

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { PROGRAM } from "./support/build.ts";
import type { Json } from "./support/server.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const file = process.env.PI_TEST_STANDALONE;
const home = mkdtempSync(join(tmpdir(), "pi-session-server-standalone-"));
const env = { HOME: home, PATH: "/nowhere" };
afterAll(() => rmSync(home, { recursive: true, force: true }));

const run = (...args: readonly string[]): string =>
  execFileSync(file as string, args, { env, cwd: home, encoding: "utf8", timeout: 300_000 });

/** Sends requests, one after the other, to a server that is started for them. Returns its results. */
function asked([program, ...args]: readonly string[], ...requests: readonly [method: string, params?: object][]) {
  const input = requests.map(([method, params], id) => `${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
  const options = { env, cwd: home, input: input.join(""), encoding: "utf8" } as const;
  const { stdout } = spawnSync(program, [...args, "--events", "none"], options);
  const replies = stdout
    .trimEnd()
    .split("\n")
    .map((line): Json => JSON.parse(line));
  return requests.map((_, id) => replies.find((reply) => reply.id === id).result);
}

describe.skipIf(file === undefined)("the program and Node as one file", () => {
  test("keeps all rules of the conformance kit, which is in it", () => {
    const { ok, failed, passed } = JSON.parse(run("conformance", "--json", "--", file as string));
    expect({ ok, failed }).toEqual({ ok: true, failed: 0 });
    expect(passed).toBeGreaterThan(500);
  });

  test("has the schema and the licences of what is in it", () => {
    for (const [word, name] of [
      ["openrpc", "openrpc.json"],
      ["json", "schema.json"],
      ["types", "protocol.d.ts"],
    ])
      expect(run("schema", word)).toBe(readFileSync(join(ROOT, "dist/schema", name), "utf8"));
    const licences = readFileSync(`${file}.LICENSES.txt`, "utf8");
    for (const name of ["Node.js", "zod", "uuid", "pg"]) expect(licences).toMatch(new RegExp(`^${name}\\b`, "m"));
  });

  test("shares sessions with the program of the package: its catalog, its locks, its pages", () => {
    const entries = [{ type: "message", message: { role: "user", content: "a needle for two" } }];
    const [appended] = asked([file as string], ["append", { entries }]);
    const ours = [process.execPath, PROGRAM, "--continue"];
    expect(asked(ours, ["get_state"])).toMatchObject([{ leafId: appended.leafId, messageCount: 1 }]);
    expect(asked([file as string], ["list_sessions", { query: "needle" }])).toMatchObject([
      { sessions: [{ firstMessage: "a needle for two" }] },
    ]);
    const [{ sessionFile }] = asked(ours, ["get_state"]);
    run("export", sessionFile, join(home, "page.html"), "--redact");
    expect(readFileSync(join(home, "page.html"), "utf8")).toContain("a needle for two");
  });
});
