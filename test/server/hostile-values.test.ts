/**
 * Values of a file are never taken for their expected types: every question about any value is answered.
 *
 * @module-tag system
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { toBytes } from "../../src/core/json/json.ts";
import type { Command } from "../../src/handlers/shared/command.ts";
import { findCommand } from "../../src/handlers/shared/find.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { toFolderName } from "../../src/storage/fs/paths.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { makeSegmentedStore } from "../../src/storage/v2/store.ts";
import { testEnv } from "../support/env.ts";
import { hostileSession } from "../support/hostile.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { beginning } from "../support/sessions.ts";
import { acrossTiers } from "../support/tiers.ts";

/** `PI_SOAK_SEEDS=<n>` takes more, and so do the long runs, with both dialects on both stores. */
const SEEDS = Number(process.env.PI_SOAK_SEEDS ?? 1);

/** Members of results whose bytes are those of the file. */
const AS_STORED = new Set<PropertyKey>("entry entries messages tree entriesToSummarize messagesToSummarize".split(" "));

const ID = "01991f6e-1f1d-7c3e-b0a4-0242ac12000";

/** Stores a session where sessions are found. */
async function store(place: Place, kind: "jsonl" | "v2", id: string, random: Random): Promise<string> {
  const { header, entries } = hostileSession(random, id, place.cwd);
  const folder = join(place.home, ".pi", "agent", "sessions", toFolderName(place.cwd));
  mkdirSync(folder, { recursive: true });
  const file = join(folder, kind === "v2" ? `${id}.v2` : `2026-01-24T16-22-26-831Z_${id}.jsonl`);
  const text = entries.map((line) => `${line}\n`).join("");
  if (kind === "jsonl") writeFileSync(file, `${header}\n${text}`);
  else {
    const containers = makeSegmentedStore({
      disk: realDisk,
      env: testEnv(1),
      locks: noLocks,
      durability: "os",
      quarantine: join(place.state, "quarantine"),
      containerFor: () => file,
    });
    (await containers.publish(beginning(header, file), [toBytes(text)])).close();
  }
  return file;
}

/** Everything that can be asked of sessions, whose files are these. */
function questions([file, other]: readonly string[], home: string, random: Random): [string, Json][] {
  const entryId = (): string => random.int(30).toString(16).padStart(8, "0");
  const formats = ["jsonl", "html", "markdown", "training", "claude", "codex"];
  const all = Array.from({ length: 30 }, (_, n): [string, Json] => [
    "get_entry",
    { entryId: n.toString(16).padStart(8, "0") },
  ]);
  const plain = (...names: string[]): [string, Json][] => names.map((name) => [name, {}]);
  const ofOther = { sessionPath: other };
  return [
    ...plain("get_state", "get_messages", "get_entries"),
    ["get_path", { limit: 5 }],
    ["get_tree", { format: "flat" }],
    ["get_tree", { format: "nested" }],
    ...all,
    ["get_context", { strict: true, explain: true }],
    ["get_context", { leafId: entryId(), explain: true }],
    ...plain("get_fork_messages", "get_last_assistant_text", "get_session_stats", "get_available_models"),
    ...plain("list_open_sessions", "list_sessions"),
    ["list_sessions", { query: "name", sort: "name" }],
    ["search_sessions", { query: "said OR name OR x" }],
    ...plain("get_session_family"),
    ["preview_session", { entryId: entryId() }],
    ["preview_session", { ...ofOther, characters: 1 }],
    ...plain("prepare_compaction"),
    ["prepare_branch_summary", { targetId: entryId() }],
    ["prepare_branch_summary", { fromId: entryId() }],
    ["compare_branches", { a: entryId(), b: entryId() }],
    ["get_session_stats", { leafId: entryId() }],
    ["get_session_stats", ofOther],
    ["merge_branch", { from: entryId(), summary: "s" }],
    ...plain("verify_session"),
    ["verify_session", ofOther],
    ...plain("migration_status"),
    ["repair_session", { dryRun: true }],
    ...formats.flatMap((format): [string, Json][] => [
      ["export_session", { format, branches: format === "codex" ? "path" : "all" }],
      ["export_session", { format, branches: "path", outputPath: join(home, `${format}.out`), overwrite: true }],
      ["export_session", { format, ...ofOther }],
    ]),
    ["export_html", { outputPath: join(home, "page.html") }],
    ["branch", { entryId: entryId(), summary: { summary: "s" } }],
    ["set_label", { entryId: entryId(), label: "l" }],
    ["edit_context", { targetId: entryId(), replacement: { content: "c" } }],
    ["compact_append", { summary: "s", firstKeptEntryId: entryId(), tokensBefore: 1 }],
    ["compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 }],
    ...plain("cycle_model", "cycle_thinking_level"),
    ["append", { entries: [{ type: "message", message: { role: "user", content: "x" } }] }],
    ...plain("get_state", "get_messages"),
    ["clone", { idempotencyKey: "key" }],
    ["switch_session", { sessionPath: file }],
    ["fork", { entryId: entryId(), position: "at" }],
    ["new_session", { idempotencyKey: "key" }],
    ["open_session", ofOther],
    ["import_session", { path: other }],
    ["migrate_session", { ...ofOther, dryRun: true }],
    ...plain("get_state"),
  ];
}

acrossTiers(test, ["jsonl", "v2"] as const)("on %s", async (kind) => {
  const spy = vi.spyOn(process.stderr, "write").mockImplementation(() => true);
  const found: string[] = [];
  await forSeedsAsync(SEEDS, async (random) => {
    const place = temporaryPlace();
    const files = [await store(place, kind, `${ID}1`, random), await store(place, kind, `${ID}2`, random)];
    // Half of the seeds speak Pi's dialect, whose results have shapes of their own; of one seed, one of the stores does.
    const dialect = (random.seed % 2 === 0) === (kind === "jsonl") ? "pi" : "jsonrpc";
    const server = serveHere(["--session", files[0], "--dialect", dialect], { place });
    for (const [name, params] of questions(files, place.home, random)) {
      const reply = dialect === "pi" ? await server.command(name, params) : await server.request(name, params);
      const bug = reply.code === "internal_error" || reply.error?.data?.name === "internal_error";
      const isRefused = reply.code === "invalid_params" || reply.error?.data?.name === "invalid_params";
      // Headers of the files name the key for requests that they cannot be of.
      const wrong = isRefused && params.idempotencyKey === undefined;
      const { result } = findCommand(name) as Command;
      const issues = reply.result === undefined ? [] : (result.safeParse(reply.result).error?.issues ?? []);
      for (const { path, message } of issues)
        if (!AS_STORED.has(path[0])) found.push(`${name} has ${path.join(".")}: ${message}`);
      if (bug || wrong) found.push(`${name} ${JSON.stringify(reply).slice(0, 200)} ${spy.mock.calls.at(-1)?.[0]}`);
    }
    await server.finish();
  });
  expect(spy.mock.calls.map(([text]) => text)).toEqual([]);
  expect(found).toEqual([]);
});
