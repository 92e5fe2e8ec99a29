import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { serveHere, temporaryPlace } from "./support/server.ts";
import { SYSTEM } from "./support/tiers.ts";

const path = (name: string): string => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));

test("the demo runs to its end and leaves the example files unchanged", SYSTEM, async () => {
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [path("demo.js")], {
    env: { ...process.env, HOME: temporaryPlace().home },
  });
  expect(stdout).toMatch(/The example files are unchanged .*\n$/);
  expect(stdout).not.toContain("\u001b[");
  expect(stderr).toBe("");
});

test("the example session has what there is to show, and no damage", async () => {
  const server = serveHere(["--read-only", "--session", path("branches.jsonl")]);
  const state = await server.result("get_state");
  expect(state).toMatchObject({ version: 3, sessionName: "Notes app: search and tags", diagnostics: [] });
  expect(state.entryCount).toBeGreaterThanOrEqual(60);
  expect(state.branchCount).toBeGreaterThanOrEqual(3);
  const { entries } = await server.result("get_entries");
  const types = new Set(entries.map((entry: { type: string }) => entry.type));
  for (const type of ["message", "compaction", "branch_summary", "label", "custom_message", "model_change"])
    expect(types).toContain(type);
});

test("the version 1 example opens as it is", async () => {
  const server = serveHere(["--read-only", "--session", path("old-v1.jsonl")]);
  expect(await server.result("get_state")).toMatchObject({
    version: 1,
    entryCount: 13,
    branchCount: 0,
    diagnostics: [],
  });
  const { messages } = await server.result("get_messages");
  expect(messages[0]).toMatchObject({ role: "compactionSummary", tokensBefore: 6120 });
  expect(messages[1]).toMatchObject({ role: "user", content: "Keep the notes in one JSON line each." });
});
