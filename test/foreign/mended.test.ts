/** Damaged lines in other agents' files cost no record that is whole: the repairs of Pi's reader, for every agent with lines. */

import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { realDisk } from "../../src/storage/fs/disk.ts";
import {
  entriesOf,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import { ClaudeWriter, said } from "../support/foreign/claude.ts";
import { FORMATS } from "../support/foreign/formats.ts";
import { put } from "../support/lifecycle.ts";
import { temporaryPlace } from "../support/server.ts";

const LINES = FORMATS.filter(({ format }) => ["claude", "codex", "copilot", "gemini", "goose lines"].includes(format));

/** Returns what is said in a file, and how many bytes of it are damaged. */
function read(path: string, lines: readonly (string | Buffer)[], end = "\n") {
  const parts = lines.flatMap((line, n) => [Buffer.from(n === 0 ? "" : "\n"), Buffer.from(line)]);
  const session = foreignSession(Buffer.concat([...parts, Buffer.from(end)]), `/home/me/${path}`);
  requireSound(session);
  const damaged = session.log.damage.filter(({ reason }) => /kept as an entry/.test(reason));
  return {
    context: strictContext(session),
    damage: session.log.damage.length,
    lost: damaged.reduce((sum, { length }) => sum + length, 0),
    kinds: fidelityOf(session.log).kinds.filter(({ kind }) => kind.startsWith("(")),
  };
}

describe.each(LINES.map((one) => [one.format, one.path, one.text.trimEnd().split("\n")] as const))(
  "%s",
  (_, path, lines) => {
    const whole = read(path, lines);
    const at = Math.floor(lines.length / 2);
    const before = lines.slice(0, at);
    const after = lines.slice(at + 1);

    test("a torn record before a whole one in the same line", () => {
      const torn = lines[1].slice(0, Math.floor(lines[1].length * 0.7));
      const found = read(path, [...before, torn + lines[at], ...after]);
      expect(found.context).toEqual(whole.context);
      expect(found.lost).toBe(Buffer.byteLength(torn));
    });

    test("NUL characters before and after a record, also at the end without a line feed", () => {
      const zeros = "\0".repeat(600);
      const found = read(path, [...before, zeros + lines[at] + zeros, ...after]);
      expect(found.context).toEqual(whole.context);
      expect(found.lost).toBe(1200);
      const last = read(path, [...lines.slice(0, -1), `${lines.at(-1)}${zeros}`], "");
      expect(last.context).toEqual(whole.context);
      expect(last.lost).toBe(600);
    });

    test("two records in one line", () => {
      const found = read(path, [...before, lines[at] + (after[0] ?? ""), ...after.slice(1)]);
      expect(found.context).toEqual(whole.context);
      expect(found.lost).toBe(0);
    });

    test("line feeds in the strings of a record, and between its members", () => {
      const said = lines.findIndex((line, n) => n > 1 && /[a-z] [a-z]/.test(line));
      const withText = (text: string, between: string): string =>
        lines[said].replace(/([a-z]) ([a-z])/, `$1${text}$2`).replace(',"', `,${between}"`);
      const rest = lines.slice(said + 1);
      const right = read(path, [...lines.slice(0, said), withText("\\n", ""), ...rest]);
      const found = read(path, [...lines.slice(0, said), withText("\n", "\n"), ...rest]);
      expect(found.context).toEqual(right.context);
      expect(found).toMatchObject({ lost: 0, damage: 1 });
      const last = read(path, [...lines, withText("\n", "\n")], "");
      expect(last).toMatchObject({ lost: 0, damage: 1 });
    });

    test("a record that is cut off takes none of those after it with it", () => {
      const cut = lines[1].slice(0, Math.floor(lines[1].length * 0.7));
      const found = read(path, [...before, cut, ...lines.slice(at)]);
      expect(found.context).toEqual(whole.context);
      expect(found.lost).toBe(Buffer.byteLength(cut));
    });
  },
);

test("a part of a record is none: a torn record with blocks and records of others in it adds nothing", () => {
  const w = new ClaudeWriter();
  w.human("Hello");
  w.answer([said("Hi.")]);
  const nested = { type: "assistant", uuid: "n", timestamp: "2026-09-14T08:00:00.000Z", message: w.records[1].message };
  const torn = JSON.stringify({ type: "progress", data: { message: nested, normalizedMessages: [] } });
  const session = foreignSession(`${w.lines[0]}\n${torn.slice(0, -30)}${w.lines[1]}\n`);
  expect(strictContext(session).map(({ role }) => role)).toEqual(["user", "assistant"]);
});

test("a record of a side chain behind a torn one belongs to the side chain", () => {
  const w = new ClaudeWriter();
  w.human("Hello");
  w.answer([said("I ask.")]);
  w.isSidechain = true;
  const chain = w.human("Look", null);
  w.answer([said("Looked.")]);
  const lines = w.lines;
  lines[3] = `{"type":"user","mess${lines[3]}`;
  const { home } = temporaryPlace();
  const file = put(join(home, "7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11.jsonl"), `${lines.join("\n")}\n`);
  const session = foreignSessionOn(realDisk, join(file, chain), join(home, "state"));
  expect(strictContext(session).map(({ role }) => role)).toEqual(["user", "assistant"]);
  expect(
    entriesOf(foreignSession(lines.join("\n"))).some(({ customType }) => customType === "import:claude:damaged"),
  ).toBe(true);
});
