/** Text for terminals: what it measures, how it is cut, and that nothing in it acts. */

import { describe, expect, onTestFinished, test, vi } from "vitest";
import {
  ageText,
  clockText,
  column,
  cutFront,
  cutTo,
  grouped,
  inert,
  inertLines,
  oneLine,
  shortPath,
  widthOf,
  wrap,
} from "../../../src/cli/terminal/text.ts";
import { forSeeds } from "../../support/random.ts";

describe("width", () => {
  // By Unicode's East Asian Width and emoji data, version 15.
  test.each([
    ["", 0],
    ["plain", 5],
    ["naïve", 5],
    ["nai\u0308ve", 5],
    ["日本語", 6],
    ["ｆｕｌｌ", 8],
    ["ﾊﾝｶｸ", 4],
    ["한국어", 6],
    ["\u1112\u1161\u11ab", 2],
    ["😀", 2],
    ["👍🏽", 2],
    ["👩‍👩‍👧", 2],
    ["🇫🇮", 2],
    ["❤️", 2],
    ["1️⃣", 2],
    ["✓", 1],
    ["—", 1],
    ["│├─", 3],
    ["नमस्ते", 4],
    ["עברית", 5],
    ["a\u200bb", 2],
    ["𝒳", 1],
    ["𠮷", 2],
  ])("%j takes %i columns", (text, width) => {
    expect(widthOf(text)).toBe(width);
  });
});

const PIECES = ["a", "bc ", "日本", "é", "e\u0301", "😀", "👩‍👩‍👧", "🇫🇮🇸🇪", "한", "│", " ", "word"];

describe("cutting", () => {
  test("keeps to the width, keeps characters whole, and says that there is more", () => {
    forSeeds(120, (random) => {
      const text = Array.from({ length: random.int(20) }, () => random.pick(PIECES)).join("");
      const width = random.int(24);
      for (const cut of [cutTo(text, width), cutFront(text, width)]) {
        expect(widthOf(cut)).toBeLessThanOrEqual(width);
        if (widthOf(text) <= width) expect(cut).toBe(text);
        else if (width > 0) expect(cut).toContain("…");
      }
      const [begin, end] = [cutTo(text, width).replace("…", ""), cutFront(text, width).replace("…", "")];
      expect(text.startsWith(begin) && text.endsWith(end)).toBe(true);
      const parts = Array.from(new Intl.Segmenter("en").segment(text), ({ segment }) => segment);
      expect(parts.join("").startsWith(begin)).toBe(true);
      let whole = "";
      for (const part of parts) if (whole !== begin) whole += part;
      expect(whole === begin || begin === "").toBe(true);
      for (const side of ["left", "right"] as const) expect(widthOf(column(text, width, side))).toBe(width);
    });
  });

  test("gives up on marks upon marks", () => {
    const zalgo = `z${"\u0301".repeat(5000)}`;
    expect(cutTo(`${zalgo}abc`, 3).length).toBeLessThan(100);
    expect(cutTo("x".repeat(1_000_000), 5)).toBe("xxxx…");
    expect(cutTo("日".repeat(1_000_000), 5)).toBe("日日…");
  });

  test("wraps between words, and inside those that do not fit", () => {
    expect(wrap("one two three", 8)).toEqual(["one two", "three"]);
    expect(wrap("日本語 テスト", 6)).toEqual(["日本語", "テスト"]);
    expect(wrap("abcdefghij kl", 4)).toEqual(["abcd", "efgh", "ij", "kl"]);
    forSeeds(80, (random) => {
      const text = Array.from({ length: 1 + random.int(20) }, () => random.pick(PIECES))
        .join("")
        .trim();
      const width = 2 + random.int(20);
      const lines = wrap(text, width);
      for (const line of lines) expect(widthOf(line)).toBeLessThanOrEqual(width);
      expect(lines.join("").replaceAll(" ", "")).toBe(text.replaceAll(" ", ""));
    });
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

test("numbers, ages and paths are short", () => {
  expect([0, 999, 1000, 1234567].map(grouped)).toEqual(["0", "999", "1,000", "1,234,567"]);
  const minute = 60_000;
  const day = 1440 * minute;
  expect(
    [-day, 0, minute, 59 * minute, 60 * minute, day, 13 * day, 14 * day, 60 * day, 729 * day, 730 * day].map(ageText),
  ).toEqual(["now", "now", "1m", "59m", "1h", "1d", "13d", "2w", "1mo", "23mo", "1y"]);
  expect([shortPath("/home/me/a", "/home/me"), shortPath("/home/me2/a", "/home/me"), shortPath("/x", "")]).toEqual([
    "~/a",
    "/home/me2/a",
    "/x",
  ]);
});

test.each([
  ["Asia/Tokyo", "2026-01-25 01:22"],
  ["America/Los_Angeles", "2026-01-24 08:22"],
])("times are those of clocks here (%s)", (zone, shown) => {
  vi.stubEnv("TZ", zone);
  onTestFinished(() => void vi.unstubAllEnvs());
  expect(clockText("2026-01-24T16:22:26.831Z")).toBe(shown);
});
