/** Output and input of terminals: the width of text, its cutting, its harmlessness; keys whole and in pieces. */

import { expect, onTestFinished, test, vi } from "vitest";
import { flushKeys, type Key, parseKeys } from "../../../src/cli/terminal/keys.ts";
import * as terminalText from "../../../src/cli/terminal/text.ts";
import type { Verb } from "../../../src/cli/verb.ts";
import { forSeeds, type Random } from "../../support/random.ts";
import { temporaryPlace } from "../../support/server.ts";
import { expectTame, runVerbHere } from "../../support/verbs.ts";

const {
  formatAge: ageText,
  formatClock: clockText,
  pad: column,
  cutFront,
  cutMiddle,
  cutTo,
  group: grouped,
} = terminalText;
const { escapeLines: inertLines, escapeLine: oneLine, shortenPath: shortPath, getWidth: widthOf, wrap } = terminalText;

// By Unicode's East Asian Width and emoji data, version 15.
test.each<[columns: number, texts: string[]]>([
  [0, [""]],
  [1, ["✓", "—", "𝒳"]],
  [2, ["\u1112\u1161\u11ab", "😀", "👍🏽", "👩‍👩‍👧", "🇫🇮", "❤️", "1️⃣", "a\u200bb", "𠮷"]],
  [3, ["│├─"]],
  [4, ["ﾊﾝｶｸ", "नमस्ते"]],
  [5, ["plain", "naïve", "nai\u0308ve", "עברית"]],
  [6, ["日本語", "한국어"]],
  [8, ["ｆｕｌｌ"]],
])("%i columns are taken by each of %j", (width, texts) => {
  expect(texts.map(widthOf)).toEqual(texts.map(() => width));
});

const inert = (text: string): string => terminalText.show`${text}`;
const PIECES = ["a", "bc ", "日本", "é", "e\u0301", "😀", "👩‍👩‍👧", "🇫🇮🇸🇪", "한", "│", " ", "word"];
const textOf = (random: Random): string => Array.from({ length: random.int(20) }, () => random.pick(PIECES)).join("");

test("cutting keeps to the width, keeps characters whole, and says that there is more", () => {
  forSeeds(120, (random) => {
    const text = textOf(random);
    const width = random.int(24);
    for (const cut of [cutTo(text, width), cutFront(text, width), cutMiddle(text, width)]) {
      expect(widthOf(cut)).toBeLessThanOrEqual(width);
      if (widthOf(text) <= width) expect(cut).toBe(text);
      else if (width > 0) expect(cut).toContain("…");
    }
    const [begin, end] = [cutTo(text, width).replace("…", ""), cutFront(text, width).replace("…", "")];
    const parts = Array.from(new Intl.Segmenter("en").segment(text), ({ segment }) => segment);
    const beginnings = parts.map((_, n) => parts.slice(0, n + 1).join(""));
    expect(["", ...beginnings]).toContain(begin);
    expect(text.endsWith(end)).toBe(true);
    for (const align of ["left", "right"] as const) expect(widthOf(column(text, width, align))).toBe(width);
  });
  expect(cutTo(`z${"\u0301".repeat(5000)}abc`, 3).length).toBeLessThan(100);
  expect(cutTo("x".repeat(1_000_000), 5)).toBe("xxxx…");
  expect(cutMiddle("claude-sonnet-4-20250514", 12)).toBe("claude…50514");
  expect(cutTo("日".repeat(1_000_000), 5)).toBe("日日…");
});

test("wraps between words, and inside those that do not fit", () => {
  expect(wrap("one two three", 8)).toEqual(["one two", "three"]);
  expect(wrap("日本語 テスト", 6)).toEqual(["日本語", "テスト"]);
  expect(wrap("abcdefghij kl", 4)).toEqual(["abcd", "efgh", "ij", "kl"]);
  forSeeds(80, (random) => {
    const text = textOf(random).trim();
    const width = 2 + random.int(20);
    const lines = wrap(text, width);
    for (const line of lines) expect(widthOf(line)).toBeLessThanOrEqual(width);
    expect(lines.join("").replaceAll(" ", "")).toBe(text.replaceAll(" ", ""));
  });
});

test("nothing that a terminal obeys is left", () => {
  const all = String.fromCharCode(...Array.from({ length: 0x2100 }, (_, i) => i));
  for (const text of [inert(all), oneLine(all), inertLines(all).join("")])
    expect(text).not.toMatch(/[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u);
  expect(inert("\u001b[2J\u202e")).toBe("\\u001b[2J\\u202e");
  expect(inertLines("a\tb\r\n日\tc")).toEqual(["a       b", "日      c"]);
  expect(oneLine(" a\n\t b ")).toBe("a b");
});

test("numbers, ages, paths and times are short, and those of clocks here", () => {
  expect([0, 999, 1000, 1234567].map(grouped)).toEqual(["0", "999", "1,000", "1,234,567"]);
  const minute = 60_000;
  const day = 1440 * minute;
  const ages = [-day, 0, minute, 59 * minute, 60 * minute, day, 13 * day, 14 * day, 60 * day, 729 * day, 730 * day];
  expect(ages.map(ageText).join(" ")).toBe("now now 1m 59m 1h 1d 13d 2w 1mo 23mo 1y");
  const paths = [shortPath("/home/me/a", "/home/me"), shortPath("/home/me2/a", "/home/me"), shortPath("/x", "")];
  expect(paths).toEqual(["~/a", "/home/me2/a", "/x"]);
  onTestFinished(() => void vi.unstubAllEnvs());
  for (const [zone, shown] of Object.entries({ "Asia/Tokyo": "25 01:22", "America/Los_Angeles": "24 08:22" })) {
    vi.stubEnv("TZ", zone);
    expect(clockText("2026-01-24T16:22:26.831Z")).toBe(`2026-01-${shown}`);
  }
});

/** The bytes that terminals send for each key. */
const SENT: readonly (readonly [key: string, sent: string[]])[] = [
  ["<up>", ["\u001b[A", "\u001bOA"]],
  ["<down>", ["\u001b[B", "\u001b[1;5B"]],
  ["<pageUp>", ["\u001b[5~"]],
  ["<pageDown>", ["\u001b[6~"]],
  ["<home>", ["\u001b[H", "\u001b[1~"]],
  ["<end>", ["\u001bOF", "\u001b[4~"]],
  ["<enter>", ["\r", "\n"]],
  ["<tab>", ["\t", "\u001b[Z"]],
  ["<backspace>", ["\u007f"]],
  ["<ctrl+c>", ["\u0003"]],
  ["<ctrl+d>", ["\u0004"]],
  ["<ctrl+z>", ["\u001a"]],
  ["<ctrl+r>", ["\u0012"]],
  ["<right>", ["\u001b[C"]],
  ["<left>", ["\u001bOD"]],
  ["<delete>", ["\u001b[3~"]],
  ["j", ["j"]],
  ["日", ["日"]],
  ["😀", ["😀"]],
];

const toTexts = (keys: readonly Key[]): string[] => keys.map((key) => ("name" in key ? `<${key.name}>` : key.text));

test.each(SENT)("%s is each of %j", (key, all) => {
  for (const sent of all) expect([toTexts(parseKeys(sent).keys), parseKeys(sent).rest]).toEqual([[key], ""]);
});

test("a sequence may come in pieces; the escape key is one that nothing follows; other keys are none", () => {
  for (const sent of ["\u001b[15~", "\u0001", "\u001b[200~"]) expect(parseKeys(sent)).toEqual({ keys: [], rest: "" });
  expect(parseKeys("\u001b")).toEqual({ keys: [], rest: "\u001b" });
  expect(toTexts(flushKeys("\u001b"))).toEqual(["<escape>"]);
  expect(toTexts(flushKeys("\u001b["))).toEqual(["<escape>", "["]);
  expect(toTexts(parseKeys("\u001b\u001b[A").keys)).toEqual(["<escape>", "<up>"]);
  expect(toTexts(parseKeys("\u001bq").keys)).toEqual(["<escape>", "q"]);
  forSeeds(80, (random) => {
    const keys = Array.from({ length: 1 + random.int(8) }, () => random.pick(SENT));
    const all = keys.map(([, sent]) => random.pick(sent)).join("");
    let rest = "";
    const heard: Key[] = [];
    for (let at = 0; at < all.length; ) {
      const end = at + 1 + random.int(3);
      // Characters are cut between, as a decoder does.
      const chunk = all.slice(at, /[\ud800-\udbff]$/.test(all.slice(at, end)) ? end + 1 : end);
      at += chunk.length;
      const found = parseKeys(rest + chunk);
      heard.push(...found.keys);
      rest = found.rest;
    }
    expect([toTexts(heard), rest]).toEqual([keys.map(([key]) => key), ""]);
  });
});

const HOSTILE = "\u001b[2J\u001b]52;c;eA==\u0007\u202eevil\r\u009b1A";

test("a line escapes its values, and not its own words", () => {
  const { show, escapeUnpainted } = terminalText;
  expect(show`It is ${HOSTILE}, ${1} and ${null}.\n`).toBe(`It is ${inert(HOSTILE)}, 1 and null.\n`);
  expect(show`${show`${HOSTILE}`}`).toBe(inert(HOSTILE));
  expect(escapeUnpainted(`\u001b[2m${HOSTILE}\u001b[22m\n`)).toBe(`\u001b[2m${inert(HOSTILE)}\u001b[22m\n`);
});

test.each([
  ["lines", (): string[] => [`The name is ${HOSTILE}.`, HOSTILE.repeat(30)]],
  ["a text", () => `The name is ${HOSTILE}.\n`],
])("%s of a verb that escapes nothing do nothing to a terminal, and reach a program whole", async (_, print) => {
  const place = temporaryPlace();
  for (const isExact of [true, false]) {
    const run = async (): Promise<undefined> => undefined;
    const verb: Verb = { name: "tried", meaning: "", operands: [], isExact: () => isExact, run, print };
    expectTame((await runVerbHere(place, verb, [], { terminal: { columns: 80, errorColumns: 80 } })).stdout);
    expect((await runVerbHere(place, verb, [])).stdout).toContain(HOSTILE);
  }
});

test("a path that is wider than the terminal stays whole, and a line that is wrapped keeps its colour", async () => {
  const path = `/home/me/${"a-long-folder/".repeat(5)}with a space.jsonl`;
  const word = path.replaceAll(" ", "-");
  const run = async (): Promise<undefined> => undefined;
  const print = (): string[] => [`  ${path}`, `It is now at ${word}.`, `\u001b[33m  two words of ${word}\u001b[39m`];
  const verb: Verb = { name: "tried", meaning: "", operands: [], run, print };
  const { stdout } = await runVerbHere(temporaryPlace(), verb, [], { terminal: { columns: 20 } });
  const painted = [`  two words of`, `  ${word}`].map((line) => `\u001b[33m${line}\u001b[39m`);
  expect(stdout.split("\n")).toEqual([`  ${path}`, "It is now at", `${word}.`, ...painted, ""]);
  expect((await runVerbHere(temporaryPlace(), verb, [])).stdout.split("\n")).toEqual([...print(), ""]);
});
