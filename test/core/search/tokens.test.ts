/** The words of a text, as an index keeps them. */

import { expect, test } from "vitest";
import { wordsOf } from "../../../src/core/search/query.ts";

test.each([100, 7_000_000])("a run of %d characters is cut into pieces that overlap by half", (length) => {
  const run = Array.from({ length: 10 }, (_, n) => `${n}`.repeat(Math.floor(length / 10))).join("");
  const words = [...wordsOf(`before ${run} after`)];
  expect([words[0], words.at(-1)]).toEqual(["before", "after"]);
  const pieces = words.slice(1, -1);
  for (const [n, piece] of pieces.entries()) {
    expect(piece.length).toBeLessThanOrEqual(64);
    if (n > 0) expect(piece.startsWith(pieces[n - 1].slice(32))).toBe(true);
  }
  expect(pieces.map((piece, n) => (n === 0 ? piece : piece.slice(32))).join("")).toBe(run);
});
