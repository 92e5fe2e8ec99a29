/** Objects of a great many members are cut before they are made. */

import { expect, test } from "vitest";
import { withFewMembers } from "../../../src/core/json/few-members.ts";
import { bytesOf, parse, textOf } from "../../../src/core/json/json.ts";

const MOST = 20;
const COUNT = MOST + 5;

test("an object keeps its first members and those that an entry needs, and says how many more there are", () => {
  const many = Array.from({ length: COUNT }, (_, n) => `"m${n}": {"a":[${n},"},{"]}`).join(" ,");
  const text = `{"type":"x","data":{${many}},"list":[${"1,".repeat(COUNT)}1],${many},"role" : "user","last":{"b":1}}`;
  const cut = parse(withFewMembers(bytesOf(text), MOST)) as Record<string, Record<string, unknown>>;
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
  // Of the entry's own, the first three and the last one are no `m...`.
  expect(cut["…"]).toBe("9 more are not shown here");
});

test("what has no such object stays as it is", () => {
  const text = bytesOf(`[${`{"a":1,"b":[2,3]},`.repeat(COUNT)}"\\",{"]`);
  expect(withFewMembers(text, MOST)).toBe(text);
  expect(textOf(withFewMembers(bytesOf("{}")))).toBe("{}");
});
