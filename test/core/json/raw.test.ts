/** Pieces that are gathered are the same bytes, and no character is cut. */

import { expect, test } from "vitest";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import { gathered, Raw } from "../../../src/core/json/raw.ts";
import { forSeeds } from "../../support/random.ts";
import { acrossTiers } from "../../support/tiers.ts";

acrossTiers(test, [2, 5])(
  "pieces come in few blocks, each of whole characters, whatever becomes of their memory (%i)",
  (count) => {
    forSeeds(count, (random) => {
      const texts = Array.from({ length: random.int(60) }, () =>
        random.pick(["", "a", "é", "漢\u2028", "😀"]).repeat(random.pick([0, 1, 100, 5000, 150_000])),
      );
      const memory = new Uint8Array(1 << 20);
      const pieces = function* (): Generator<Uint8Array> {
        for (const text of texts) {
          const bytes = bytesOf(text);
          memory.set(bytes);
          yield memory.subarray(0, bytes.length);
          memory.fill(0x78, 0, bytes.length);
        }
      };
      const blocks = [...gathered(pieces())];
      // Text that is not whole does not decode.
      expect(blocks.map((block) => textOf(block)).join("") === texts.join("")).toBe(true);
      expect(blocks.length).toBeLessThan(3 + Buffer.byteLength(texts.join("")) / 200_000);
    });
  },
);

test("an array has its brackets and commas", () => {
  const array = (...items: string[]): string => textOf(Raw.array(() => items.map(bytesOf)).bytes());
  expect([array(), array("1"), array("1", "2", "{}")]).toEqual(["[]", "[1]", "[1,2,{}]"]);
});
