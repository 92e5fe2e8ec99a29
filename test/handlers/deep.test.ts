/**
 * A linear session of 13,000 entries: nothing here may depend on the stack, which holds 11,400 calls of the smallest
 * function. The case T1 takes 100,000.
 *
 * @module-tag system
 */

import { statSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { fileOf } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";

const COUNT = 13_000;
const LAST = `n${COUNT - 1}`;
const NEXT_TO_LAST = `n${COUNT - 2}`;

describe("13,000 entries in a row", () => {
  const entries = Array.from({ length: COUNT }, (_, i) =>
    user(`text ${i}`, { id: `n${i}`, parentId: i === 0 ? null : `n${i - 1}` }),
  );
  const text = sessionText({ id: "deep", cwd: "/project" }, entries);
  function opened(): { server: HereServer; file: string } {
    const place = temporaryPlace();
    const file = fileOf(place, text);
    return { server: serveHere(["--session", file, "--events", "none"], { place }), file };
  }

  test("are answered nested", async () => {
    const { tree } = await opened().server.result("get_tree", { format: "nested" });
    let depth = 0;
    let last: Json;
    let level = tree;
    for (; level.length === 1; level = level[0].children, depth++) last = level[0].entry;
    expect([depth, level]).toEqual([COUNT, []]);
    expect(last).toMatchObject({ id: LAST, message: { content: `text ${COUNT - 1}` } });
  });

  test("are forked, cloned and branched", async () => {
    const { server, file } = opened();
    const state = (): Promise<Json> => server.result("get_state");
    const clone = await server.result("clone");
    expect(await state()).toMatchObject({ entryCount: COUNT, messageCount: COUNT, leafId: LAST });
    expect(Math.abs(statSync(clone.sessionFile).size - statSync(file).size)).toBeLessThan(500);
    expect((await server.result("fork", { entryId: LAST })).text).toBe(`text ${COUNT - 1}`);
    expect(await state()).toMatchObject({ entryCount: COUNT - 1, leafId: NEXT_TO_LAST });
    await server.result("branch", { entryId: "n0", summary: { summary: "All of it." } });
    expect(await state()).toMatchObject({ entryCount: COUNT, messageCount: 2, branchCount: 1 });
    await server.result("branch", { entryId: NEXT_TO_LAST });
    await server.result("compact_append", { summary: "s", firstKeptEntryId: `n${COUNT - 3}`, tokensBefore: 1 });
    expect((await state()).messageCount).toBe(3);
  });
});
