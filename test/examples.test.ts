/** The examples: sessions that show what there is, and programs that live their whole life at the built program. */

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { serveHere, temporaryPlace } from "./support/server.ts";
import { SWEEP, SYSTEM } from "./support/tiers.ts";

const path = (name: string): string => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));

/** Returns what an example prints. */
async function printed(name: string): Promise<string> {
  const env = { ...process.env, HOME: temporaryPlace().home };
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [path(name)], { env });
  expect(stderr).toBe("");
  return stdout;
}

test("the demo runs to its end and leaves the example files unchanged", SYSTEM, async () => {
  const stdout = await printed("demo.js");
  expect(stdout).toMatch(/The example files are unchanged .*\n$/);
  expect(stdout).not.toContain("\u001b[");
});

test("the example agent lives its whole life, and all its checks hold", SYSTEM, async () => {
  const stdout = await printed("agent.js");
  expect(stdout).toContain("compacted: ");
  expect(stdout.match(/^ {3}ok: /gm)).toHaveLength(11);
  expect(stdout).not.toContain("FAILED");
});

test("two hosts share a session, also when the server that holds it is killed", SWEEP, async () => {
  const stdout = await printed("two-hosts.js");
  expect(stdout).toContain("holds the session now");
  const listed = stdout.slice(stdout.indexOf("each of them once")).matchAll(/^ +(?:user|assistant): (.*)$/gm);
  expect([...listed].map(([, text]) => text).join(" ")).toBe(
    "Rename the store. And keep the old name as an alias. Done, with an alias. Did the tests pass? Yes: 12 of 12.",
  );
});

test("the example session has what there is to show, and no damage; that of version 1 opens as it is", async () => {
  const server = serveHere(["--read-only", "--session", path("branches.jsonl")]);
  const state = await server.result("get_state");
  expect(state).toMatchObject({ version: 3, sessionName: "Notes app: search and tags", diagnostics: [] });
  expect(state.entryCount).toBeGreaterThanOrEqual(60);
  expect(state.branchCount).toBeGreaterThanOrEqual(3);
  const { entries } = await server.result("get_entries");
  const types = entries.map((entry: { type: string }) => entry.type);
  const wanted = ["message", "compaction", "branch_summary", "label", "custom_message", "model_change"];
  expect(types).toEqual(expect.arrayContaining(wanted));
  const old = serveHere(["--read-only", "--session", path("old-v1.jsonl")]);
  const counts = { version: 1, entryCount: 13, branchCount: 0, diagnostics: [] };
  expect(await old.result("get_state")).toMatchObject(counts);
  expect((await old.result("get_messages")).messages.slice(0, 2)).toMatchObject([
    { role: "compactionSummary", tokensBefore: 6120 },
    { role: "user", content: "Keep the notes in one JSON line each." },
  ]);
});
