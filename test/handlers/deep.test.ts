/**
 * A linear session of 13,000 entries: nothing here may depend on the stack, which holds 11,400 calls of the smallest
 * function. The case T1 takes 100,000.
 *
 * @module-tag system
 */

import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { SWEEP } from "../support/tiers.ts";

const COUNT = 13_000;
const LAST = `n${COUNT - 1}`;

describe("13,000 entries in a row", () => {
  const entries = Array.from({ length: COUNT }, (_, i) =>
    user(`text ${i}`, { id: `n${i}`, parentId: i === 0 ? null : `n${i - 1}` }),
  );
  const text = sessionText({ id: "deep", cwd: "/project" }, entries);
  let server: HereServer;
  let file: string;

  beforeEach(async () => {
    const place = temporaryPlace();
    file = join(place.cwd, "deep.jsonl");
    writeFileSync(file, text);
    server = serveHere(["--session", file, "--events", "none"], { place });
  });

  test("are answered as a flat tree, whole and in pages", SWEEP, async () => {
    const { nodes, leafId } = await server.result("get_tree");
    expect(nodes).toHaveLength(COUNT);
    expect(leafId).toBe(LAST);
    expect(nodes.at(-1)).toMatchObject({
      id: LAST,
      parentId: `n${COUNT - 2}`,
      preview: `text ${COUNT - 1}`,
      childCount: 0,
    });
    let count = 0;
    let cursor: string | undefined;
    do {
      const page = await server.result("get_tree", { limit: 9000, ...(cursor ? { cursor } : {}) });
      expect(page.nodes[0].id).toBe(`n${count}`);
      count += page.nodes.length;
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    expect(count).toBe(COUNT);
  });

  test("are answered nested", async () => {
    const { tree } = await server.result("get_tree", { format: "nested" });
    let depth = 0;
    let last: Json;
    let level = tree;
    for (; level.length === 1; level = level[0].children) {
      last = level[0].entry;
      depth++;
    }
    expect([depth, level]).toEqual([COUNT, []]);
    expect(last).toMatchObject({ id: LAST, message: { content: `text ${COUNT - 1}` } });
  });

  test("are answered as messages", SWEEP, async () => {
    const { messages } = await server.result("get_messages");
    expect(messages).toHaveLength(COUNT);
    expect(messages.at(-1)).toEqual({ role: "user", content: `text ${COUNT - 1}` });
    expect((await server.result("get_fork_messages", { scope: "path" })).messages).toHaveLength(COUNT);
  });

  test("are forked, cloned and branched", async () => {
    const { size } = statSync(file);
    const clone = await server.result("clone");
    expect(await server.result("get_state")).toMatchObject({ entryCount: COUNT, messageCount: COUNT, leafId: LAST });
    expect(Math.abs(statSync(clone.sessionFile).size - size)).toBeLessThan(500);
    const fork = await server.result("fork", { entryId: LAST });
    expect(fork.text).toBe(`text ${COUNT - 1}`);
    expect(await server.result("get_state")).toMatchObject({ entryCount: COUNT - 1, leafId: `n${COUNT - 2}` });
    await server.result("branch", { entryId: "n0", summary: { summary: "All of it." } });
    expect(await server.result("get_state")).toMatchObject({ entryCount: COUNT, messageCount: 2, branchCount: 1 });
    await server.result("branch", { entryId: `n${COUNT - 2}` });
    await server.result("compact_append", { summary: "s", firstKeptEntryId: `n${COUNT - 3}`, tokensBefore: 1 });
    expect((await server.result("get_state")).messageCount).toBe(3);
  });
});
