/** The words of a text, as an index keeps them. */

import { expect, test } from "vitest";
import { wordsOf } from "../../../src/core/search/query.ts";
import { acrossTiers } from "../../support/tiers.ts";

acrossTiers(test, [100, 7_000_000])("a run of %d characters is cut into pieces that overlap by half", (length) => {
  const run = Array.from({ length: 10 }, (_, n) => `${n}`.repeat(Math.floor(length / 10))).join("");
  const words = [...wordsOf(`before ${run} after`)];
  expect([words[0], words.at(-1)]).toEqual(["before", "after"]);
  const pieces = words.slice(1, -1);
  expect(pieces.filter((piece) => piece.length > 64)).toEqual([]);
  expect(pieces.slice(1).filter((piece, n) => !piece.startsWith(pieces[n].slice(32)))).toEqual([]);
  expect(pieces.map((piece, n) => (n === 0 ? piece : piece.slice(32))).join("")).toBe(run);
});
