/** Output: gathered pieces keep their bytes, and objects of a great many members are cut. */

import { expect, test } from "vitest";
import { limitMembers } from "../../../src/core/json/few-members.ts";
import { decodeText, parse, toBytes } from "../../../src/core/json/json.ts";
import { gatherPieces, Raw } from "../../../src/core/json/raw.ts";
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
          const bytes = toBytes(text);
          memory.set(bytes);
          yield memory.subarray(0, bytes.length);
          memory.fill(0x78, 0, bytes.length);
        }
      };
      const blocks = [...gatherPieces(pieces())];
      // Text that is not whole does not decode.
      expect(blocks.map((block) => decodeText(block)).join("") === texts.join("")).toBe(true);
      expect(blocks.length).toBeLessThan(3 + Buffer.byteLength(texts.join("")) / 200_000);
    });
  },
);

test("an array has its brackets and commas", () => {
  const array = (...items: string[]): string => decodeText(Raw.array(() => items.map(toBytes)).bytes());
  expect([array(), array("1"), array("1", "2", "{}")]).toEqual(["[]", "[1]", "[1,2,{}]"]);
});

const MOST = 20;
const COUNT = MOST + 5;

test("an object keeps its first members and those that an entry needs, and says how many more there are", () => {
  const many = Array.from({ length: COUNT }, (_, n) => `"m${n}": {"a":[${n},"},{"]}`).join(" ,");
  const text = `{"type":"x","data":{${many}},"list":[${"1,".repeat(COUNT)}1],${many},"role" : "user","last":{"b":1}}`;
  const cut = parse(limitMembers(toBytes(text), MOST)) as Record<string, Record<string, unknown>>;
  const { data, list } = cut;
  expect([Object.keys(data).length, data.m0, data["…"]]).toEqual([
    MOST + 1,
    { a: [0, "},{"] },
    "5 more are not shown here",
  ]);
  expect([(list as unknown as number[]).length, cut.type, cut.role, cut.last]).toEqual([
    COUNT + 1,
    "x",
    "user",
    undefined,
  ]);
  // The first three of the entry's own members and the last one are no `m...`.
  expect(cut["…"]).toBe("9 more are not shown here");
});

test("what has no such object stays as it is", () => {
  const text = toBytes(`[${`{"a":1,"b":[2,3]},`.repeat(COUNT)}"\\",{"]`);
  expect(limitMembers(text, MOST)).toBe(text);
  expect(decodeText(limitMembers(toBytes("{}")))).toBe("{}");
});
