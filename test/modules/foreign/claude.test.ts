/** Sessions of Claude Code: what a table of short sources (trees.test.ts) has no room for, and records in any order. */

import { describe, expect, test } from "vitest";
import { ClaudeWriter, call } from "../../support/foreign/claude.ts";
import { forSeeds, type Random } from "../../support/random.ts";
import { acrossTiers } from "../../support/tiers.ts";
import {
  diskWithForeign,
  drawnContext,
  entriesOf,
  FOREIGN_FILE,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requireSound,
  strictContext,
} from "./support/checks.ts";
import { requireResumable } from "./support/round-trip.ts";

const textOf = (lines: readonly string[]): string => `${lines.join("\n")}\n`;

test("what is neither a text nor a picture is given to the model as a text, with the block itself beside it", () => {
  const pdf = { type: "document", source: { type: "base64", media_type: "application/pdf", data: "JVBERg==" } };
  const plain = { type: "document", title: "Notes", source: { type: "text", media_type: "text/plain", data: "All." } };
  const found = { type: "tool_reference", tool_name: "Search" };
  const w = new ClaudeWriter();
  w.user([pdf, plain]);
  w.answer([call("toolu_1")]);
  w.user([{ type: "tool_result", tool_use_id: "toolu_1", content: [found] }]);
  const session = foreignSession(w.text);
  requireSound(session);
  const asked = [
    { type: "text", text: "[document: application/pdf]", original: pdf },
    { type: "text", text: "All.", original: plain },
  ];
  const result = [{ type: "text", text: "[tool_reference: Search]", original: found }];
  expect(strictContext(session).map(({ content }) => content)).toMatchObject([asked, [{ type: "toolCall" }], result]);
  expect(strictContext(foreignSession(requireResumable("claude", session).text))[0].content).toEqual(asked);
});

test("a fork has the ids of what it shares with its original, and another id itself", () => {
  const w = new ClaudeWriter();
  w.ask("First");
  w.reply("One.");
  const original = foreignSession(w.text);
  const other = "aaaaaaaa-0000-4000-8000-000000000001";
  for (const record of w.records) record.sessionId = other;
  w.ask("On");
  const fork = foreignSession(w.text, `/elsewhere/project/${other}.jsonl`);
  expect(fork.id).not.toBe(original.id);
  const idsOf = (session: typeof fork) => entriesOf(session).map(({ id }) => id);
  expect(idsOf(fork).slice(0, idsOf(original).length)).toEqual(idsOf(original));
});

acrossTiers(test, [20, 1_150_001, 2_250_001])(
  "lines that are longer than what is read at once are there, the last of %i",
  (last) => {
    const w = new ClaudeWriter();
    const texts = [(1 << 20) + 9, 10, last].map((length, n) => `${n} ${"x".repeat(length)}`);
    for (const text of texts) w.ask(text);
    for (const content of [w.text, w.text.trimEnd()]) {
      const session = foreignSession(content);
      // A difference of texts this long would take minutes to be shown.
      expect(strictContext(session).map(({ content: found }) => texts.indexOf(found as string))).toEqual([0, 1, 2]);
      expect(fidelityOf(session.log)).toMatchObject({ records: 3, warnings: [] });
    }
    const cut = fidelityOf(foreignSession(w.text.slice(0, -9)).log);
    expect(cut.kinds).toContainEqual(expect.objectContaining({ kind: "(unfinished line)", first: 3, dropped: 1 }));
  },
);

describe("the order of records in the file does not matter", () => {
  const SAID = ["user: First", "model: Yes.", "user: Second", "model: Done."];
  // A hook's attachment names a prompt, and the answer names the attachment.
  const w = new ClaudeWriter();
  w.ask("First");
  w.reply("Yes.");
  w.ask("Second");
  w.node("attachment", { attachment: { type: "hook_additional_context", content: ["context"] } });
  w.reply("Done.");
  const { lines, records } = w;
  const mixed = (random: Random, all: readonly string[]): string[] => {
    const keyed = all.map((line) => [random.next(), line] as const);
    return keyed.sort(([a], [b]) => a - b).map(([, line]) => line);
  };
  /** The records, some with another parent. */
  const linked = (parentOf: (n: number) => unknown): string[] =>
    records.map((record, n) => JSON.stringify({ ...record, parentUuid: parentOf(n) ?? record.parentUuid }));

  test("any order, and an attachment before the prompt that it continues", () => {
    const swapped = [lines[0], lines[1], lines[3], lines[2], lines[4]];
    expect(fidelityOf(foreignSession(textOf(swapped)).log).warnings).toEqual([]);
    forSeeds(20, (random) => {
      const session = foreignSession(textOf(random.seed === 1 ? swapped : mixed(random, lines)));
      requireSound(session);
      expect(drawnContext(session)).toEqual(SAID);
    });
  });

  test("a prompt that comes while the file is followed, after the attachment that names it", () => {
    const disk = diskWithForeign(textOf([lines[0], lines[1], lines[3]]));
    const { log } = foreignSessionOn(disk);
    disk.put(FOREIGN_FILE, Buffer.from(textOf([lines[0], lines[1], lines[3], lines[2], lines[4]])));
    expect(log.refresh()).toEqual({ kind: "replaced" });
    expect(drawnContext(foreignSessionOn(disk))).toEqual(SAID);
  });

  // The ends of the circle, the record before it, and the one that it is of alone; and a parent that is nowhere.
  test.each([
    [0, 4],
    [0, 1],
    [1, 3],
    [2, 2],
    [1, 4],
    [2, -1],
  ])(
    "record %i continues record %i, in a circle or from nowhere: nothing is lost, and the report says so",
    (from, to) => {
      const session = foreignSession(textOf(linked((n) => (n === from ? (records[to]?.uuid ?? "gone") : undefined))));
      requireSound(session);
      expect([drawnContext(session), fidelityOf(session.log).warningCount]).toEqual([SAID, 1]);
    },
  );

  test("records in a circle and in any order are all there", () => {
    forSeeds(20, (random) => {
      const circles = linked(() => random.pick(records).uuid);
      const session = foreignSession(textOf(mixed(random, circles)));
      requireSound(session);
      for (const text of ["First", "Yes.", "Second", "Done."])
        expect(JSON.stringify(entriesOf(session))).toContain(text);
    });
  });
});
