/** Documents that are cut or damaged: the parts of them that are whole, and all else as it is. */

import { expect, test } from "vitest";
import { readDocumentRecords, splitParts, toWholePart } from "../../../src/modules/foreign/read/documents.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";

/** The parts of a text as texts, those that are no JSON with a mark. */
function partsIn(text: string): string[] {
  const b = Buffer.from(text);
  return splitParts(b, toWholePart(b)).parts.map(({ name, start, end, isWhole }) => {
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
  ["a line that is lost at its end", '{\n  "a": "x,\n  "b": 1\n}', ['!a="x', "b=1"]],
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
  const [, damaged] = partsIn(LINES.replace('"two"', '"two'));
  expect(partsIn(damaged.slice(1))).toContain("list=[\n      1\n    ]");
  expect(partsIn('{\n  "a: {\n    "c": 1\n  },\n  "b": 1\n}').at(-1)).toBe("b=1");
});

test("of very many damaged parts, each is one", () => {
  const texts = Array.from({ length: 1000 }, (_, n) => (n % 2 === 0 ? `{"n":x${n}}` : `{"n":${n}}`));
  const expected = texts.map((text) => (text.includes("x") ? `!${text}` : text));
  expect(partsIn(`[${texts.join(",")}]`)).toEqual(expected);
  expect(partsIn(`[\n  ${texts.join(",\n  ")}\n]`)).toEqual(expected);
});

/** The records of a text as texts. */
function recordsIn(text: string): string[] {
  return [...readDocumentRecords(Buffer.from(text), "list")].map((record) => Buffer.from(record).toString());
}

test("a line that is lost between two elements costs these two, and a closing bracket alone nothing else", () => {
  const lines = JSON.stringify({ list: [{ n: 1 }, { n: 2 }, { n: 3 }, { n: 4 }] }, null, 2).split("\n");
  const closing = lines.indexOf("    },");
  const records = recordsIn(lines.filter((_, n) => n !== closing).join("\n"));
  expect(records.slice(-3).map((text) => JSON.parse(text))).toEqual([{ n: 2 }, { n: 3 }, { n: 4 }]);
});

test("facts that are damaged leave the list as it is", () => {
  for (const text of ['{"a":"x,"list":[1,{"n":2}]}', '{"a":1 "b" 2,"list":[1,{"n":2}]}', 'x{"list":[1,{"n":2}]}'])
    expect(recordsIn(text).slice(-3), text).toEqual(expect.arrayContaining(["1", '{"n":2}']));
  expect(recordsIn('{"a":1,"b":x,"list":[1],"c":2}')).toEqual(['{"a":1,"c":2}', '"b":x', "1"]);
});

test("nothing that is no white space is left out, with or without a byte order mark", () => {
  const text = '{"a":1,"list":[1,x],"b":2} rest';
  for (const document of [text, `\uFEFF${text}`])
    expect(recordsIn(document)).toEqual(['{"a":1,"b":2}', "1", "x", "rest"]);
});

test("documents that look unclosed in each of their parts are read in linear time", SWEEP, () => {
  // Looking from each part to the end of the document would be 30,000 times 300 kB.
  for (const [opening, part, count] of [
    ['{"list":[', "[[[[\n  ],\n  ", 30_000],
    ['{"list":[\n  ', "[[[[\n  ],\n  ", 30_000],
    ['{"list":[\n  ', '{"a":[{\n  "b": {"c": "\n  ', 20_000],
    ['{"list":[', "{x,", 100_000],
    ['{"list":[', '{"a":[1},', 30_000],
    ["{", '"list":', 50_000],
    ["{", '"list":[', 40_000],
    ["{", '"list":[x],', 30_000],
    ["{\n  ", '"list":[\n   {"\n  ', 20_000],
  ] as const) {
    let bytes = 0;
    for (const record of readDocumentRecords(Buffer.from(opening + part.repeat(count)), "list")) bytes += record.length;
    expect(bytes).toBeGreaterThan(0);
  }
});

acrossTiers(test, [5, 1])(
  "a byte of any value, at each %ith place of a document, costs no more than the part that it is in",
  (step) => {
    const text = JSON.stringify({ a: 1, list: [{ n: 1 }, { n: 2 }] }, null, 2);
    for (const document of [text, text.replaceAll(/\n */g, "")])
      for (let at = 0; at <= document.length; at += step)
        for (const byte of [0x00, 0x1c, 0x22, 0x2c, 0x3a, 0x5b, 0x5c, 0x5d, 0x7b, 0x7d, 0x7f, 0xff])
          for (const removed of [0, 1]) {
            const [before, after] = [document.slice(0, at), document.slice(at + removed)].map((text) =>
              Buffer.from(text),
            );
            const records = [...readDocumentRecords(Buffer.concat([before, Buffer.of(byte), after]), "list")];
            expect(records.every(({ length }) => length > 0)).toBe(true);
            expect(records.length, `${byte} at ${at}`).toBeLessThan(document.length + 1);
          }
  },
);
