/** Documents that are cut or damaged: the parts of them that are whole, and all else as it is. */

import { expect, test } from "vitest";
import { partsOf } from "../../src/core/foreign/partial.ts";

/** The parts of a text as texts, those that are no JSON with a mark. */
function partsIn(text: string): string[] {
  const b = Buffer.from(text);
  return partsOf(b).parts.map(({ name, start, end, isWhole }) => {
    const value = b.subarray(start, end).toString();
    return `${isWhole ? "" : "!"}${name === "" ? "" : `${name}=`}${value}`;
  });
}

test.each([
  ["a whole array", "[1,[2],3]", ["1", "[2]", "3"]],
  ["a whole object", ' {"a":1,"b":{"c":2}}', ["a=1", 'b={"c":2}']],
  ["an array that is cut", '[1,{"a":2},{"b', ["1", '{"a":2}', '!{"b']],
  ["an object that is cut in a name", '{"a":1,"b', ["a=1", '!"b']],
  ["a word that is none", '[{"a":tru},{"b":2}]', ['!{"a":tru}', '{"b":2}']],
  ["a missing comma", '["x" "y"]', ['"x"', '"y"']],
  ["nothing", "", []],
  ["a scalar", "1", []],
])("%s", (_, text, expected) => {
  expect(partsIn(text)).toEqual(expected);
});

const LINES = JSON.stringify([{ text: "one" }, { text: "two", list: [1] }, { text: "three" }], null, 2);

test("where a quote is lost in a document with lines, only one of its parts is", () => {
  const parts = partsIn(LINES.replace('"two"', '"two'));
  expect(parts).toHaveLength(3);
  expect(parts[1].startsWith("!")).toBe(true);
  expect(JSON.parse(parts[2])).toEqual({ text: "three" });
});

test("of a part that is damaged, the parts that are whole are there", () => {
  const text = LINES.replace('"two"', '"two');
  const b = Buffer.from(text);
  const [, { start, end }] = partsOf(b).parts;
  expect(partsIn(b.subarray(start, end).toString())).toContain("list=[\n      1\n    ]");
});

test("a line that is lost at its end costs what is in it", () => {
  expect(partsIn('{\n  "a": "x,\n  "b": 1\n}')).toEqual(['!a="x', "b=1"]);
  expect(partsIn('{\n  "a: {\n    "c": 1\n  },\n  "b": 1\n}').at(-1)).toBe("b=1");
});

test("of very many damaged parts, the last are one", () => {
  const parts = partsIn(`[${Array.from({ length: 1000 }, (_, n) => `{"n":x${n}}`).join(",")}]`);
  expect(parts).toHaveLength(101);
  expect(parts.at(-1)).toContain('{"n":x999}');
});
