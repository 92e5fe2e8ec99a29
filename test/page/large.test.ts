/** A page of a long session leaves as it is made. */

import { describe, expect, test, vi } from "vitest";
import { cutEntry } from "../../src/core/export/cut.ts";
import { makeExportPage } from "../../src/core/export/page.ts";
import { PictureLimit } from "../../src/core/export/pictures.ts";
import { renderHtml, writeMarkdown } from "../../src/page/main.ts";
import { toolResult } from "../support/drafts.ts";
import { assistantText, entryText, id, userText } from "../support/lines.ts";
import { longConversation } from "../support/long-conversation.ts";
import { processorTimeOf } from "../support/processor.ts";
import { range } from "../support/random.ts";
import { sessionOf } from "../support/sessions.ts";
import { SWEEP } from "../support/tiers.ts";

/** Returns what a session is drawn as, in both formats. */
const drawn = async (lines: string[], part: "all" | "path" | "recent") => {
  const session = await sessionOf(lines);
  return [renderHtml, writeMarkdown].map((draw) => [...draw(makeExportPage(session, part))].join(""));
};

test("of 300 entries, no more are read than the next block needs", async () => {
  const [, ...lines] = longConversation(300).trimEnd().split("\n");
  const page = makeExportPage(await sessionOf(lines), "all");
  let read = 0;
  const branches = page.branches.map((branch) => ({
    ...branch,
    *entries() {
      for (const entry of branch.entries()) {
        read++;
        yield entry;
      }
    },
  }));
  let drawn = 0;
  let most = 0;
  let largest = 0;
  for (const piece of renderHtml({ ...page, branches })) {
    drawn += piece.match(/ id="[0-9a-f]{8}"/g)?.length ?? 0;
    most = Math.max(most, read - drawn);
    largest = Math.max(largest, piece.length);
  }
  expect([read, drawn]).toEqual([lines.length, lines.length]);
  expect(most).toBeLessThanOrEqual(3);
  // Blocks are the largest pieces, and the script.
  expect(largest).toBeLessThan(1 << 17);
});

test("of 1,200 branches at one entry, few are read between two places for a pause", async () => {
  const answers = range(0, 1200).map((n) => assistantText(id(n + 1), id(0), `answer ${n} ${"x".repeat(100)}`));
  const session = await sessionOf([userText(id(0), null), ...answers]);
  for (const draw of [renderHtml, writeMarkdown]) {
    const read = vi.spyOn(session.log, "read");
    const page = makeExportPage(session, "all");
    expect(read.mock.calls.length).toBe(0);
    let waiting = 0;
    let most = 0;
    let last = 0;
    // Pieces are written in blocks of this size, or up to an empty one, and a pause may come behind each.
    for (const { length } of draw(page)) {
      const { calls } = read.mock;
      waiting = length === 0 || waiting + length > 1 << 16 ? 0 : waiting + length;
      if (waiting !== 0) continue;
      most = Math.max(most, calls.length - last);
      last = calls.length;
    }
    expect(last).toBeGreaterThan(1200);
    expect(most).toBeLessThan(700);
    read.mockRestore();
  }
});

describe("takes no time that grows with the square", SWEEP, () => {
  const COUNT = 40_000;
  const calls = range(0, COUNT).map((n) => ({ type: "toolCall", id: `call-${n}`, name: "read", arguments: {} }));
  const result = (n: number) =>
    entryText("message", id(n + 2), id(n + 1), { message: toolResult(`call-${n}`, "").message });
  const asking = entryText("message", id(1), id(0), { message: { role: "assistant", content: calls } });
  test.each<[string, () => string[]]>([
    ["of the branches at one entry", () => range(0, COUNT).map((n) => userText(id(n + 1), id(0)))],
    ["of the calls of one answer", () => [asking, ...range(0, COUNT).map(result)]],
  ])("%s", async (_, rest) => {
    const session = await sessionOf([userText(id(0), null), ...rest()]);
    let size = 0;
    const took = await processorTimeOf(() => {
      for (const piece of renderHtml(makeExportPage(session, "all"))) size += piece.length;
    });
    expect(size).toBeGreaterThan(50 * COUNT);
    // A square would take minutes; a slow machine takes 8 s.
    expect(took).toBeLessThan(20_000);
  });
});

describe("pictures", () => {
  const data = "iVBORw0KGgo".padEnd(4000, "A");
  const content = [{ type: "image", mimeType: "image/png", data }];
  const lines = [
    entryText("message", id(0), null, { message: { role: "user", content } }),
    entryText("custom_message", id(1), id(0), { customType: "x", content, display: true }),
    entryText("message", id(2), id(1), { message: { role: "toolResult", toolCallId: "c", toolName: "see", content } }),
  ];

  test.each([
    [12_000, 0],
    [8000, 1],
    [0, 3],
  ])("for which a page of %i characters has no room are named with type and size", async (most, left) => {
    const limit = new PictureLimit(most);
    const html = [...renderHtml(makeExportPage(await sessionOf(lines), "all", undefined, limit))].join("");
    expect(html.split(data).length - 1).toBe(3 - left);
    expect(html.match(/\[image image\/png, [\d.]+ .B: left out/g)?.length ?? 0).toBe(left);
    expect([limit.pictures, limit.bytes]).toEqual([left, left * 3000]);
  });
});

test("a page of the recent part has what the last compaction kept, by its entry or in itself, and what came then", async () => {
  const compacted = (parent: number, more: object) =>
    entryText("compaction", id(3), id(parent), { summary: "what was", tokensBefore: 1, ...more });
  const call = { type: "toolCall", id: "c", name: "bash", arguments: { command: "ls" } };
  const retainedTail = [
    { role: "user", content: "kept one" },
    { role: "assistant", content: [{ type: "text", text: "kept two" }, call] },
    toolResult("c", "kept three").message,
  ];
  const before = [userText(id(0), null, "long ago"), userText(id(1), id(0), "ago")];
  const now = userText(id(4), id(3), "now");
  const kept = compacted(2, { firstKeptEntryId: id(2) });
  for (const text of await drawn([...before, userText(id(2), id(1), "kept one"), kept, now], "recent")) {
    for (const said of ["kept one", "what was", "now", "2 entries before these"]) expect(text).toContain(said);
    expect(text).not.toContain("ago");
  }
  const carrying = [...before, compacted(1, { retainedTail }), now];
  for (const text of await drawn(carrying, "path")) expect(text).not.toContain("kept one");
  for (const text of await drawn(carrying, "recent")) {
    const places = ["what was", "kept one", "kept two", "kept three", "now"].map((said) => text.lastIndexOf(said));
    expect([places.includes(-1), places]).toEqual([false, places.toSorted((a, b) => a - b)]);
  }
});

describe("of an entry with a million members", () => {
  const members = Object.fromEntries(range(0, 30_000).map((n) => [`m${n}`, n]));
  const list = range(0, 30_000);
  const call = { type: "toolCall", id: "c", name: "other", arguments: members };
  const texts = range(0, 60_000).map((n) => ({ type: "text", text: `${n}` }));
  test.each<[string, object]>([
    ["data", { type: "custom", customType: "x", data: { list } }],
    ["unknown", { type: "new", ...members }],
    ["details", { type: "custom_message", customType: "x", content: "hi", display: true, details: members }],
    ["arguments", { type: "message", message: { role: "assistant", content: [call] } }],
    ["summary", { type: "compaction", summary: members, firstKeptEntryId: "x" }],
    ["content", { type: "message", message: { role: "user", content: texts } }],
  ])("as much is shown as helps anybody, and how much more there is: %s", (_, entry) => {
    const shown = cutEntry({ timestamp: "2026", ...entry });
    const text = JSON.stringify(shown);
    expect(/10\d\d\d more are not shown here/.test(text)).toBe(true);
    expect(text.length).toBeLessThan(JSON.stringify(entry).length);
    expect([shown.type, shown.timestamp]).toEqual([(entry as { type: string }).type, "2026"]);
  });

  test("a page has the note, and all of an entry that is no larger", async () => {
    const custom = (n: number, data: unknown) =>
      entryText("custom", id(n), n === 0 ? null : id(n - 1), { customType: "x", data });
    for (const text of await drawn([custom(0, { some: list.slice(0, 10_000) }), custom(1, { list })], "all")) {
      expect(text.match(/\d+ more are not shown here/g)?.length).toBeGreaterThan(0);
      expect(text).toContain("9999");
      expect(text).not.toContain("29999");
    }
  });
});
