/** The byte scanner agrees with JSON.parse on valid JSON and its positions. */

import { describe, expect, test } from "vitest";
import {
  areSameBytes,
  concat,
  decodeText,
  findKnownValueEnd,
  findMember,
  findStringEnd,
  findValue,
  findValueEnd,
  getElements,
  getMembers,
  isJson,
  type Member,
  parse,
  parseAbridged,
  parseStringAt,
  toBytes,
  toOneLine,
} from "../../../src/core/json/json.ts";
import { isJson as isJsonText, mutated, randomJson, type Style } from "../../support/json-texts.ts";
import { forSeeds, type Random } from "../../support/random.ts";

/** Names of members; equal ones meet. */
const STRINGS = String.raw`""|"a"|"\u0041\n"|"\\"|"\""|"é漢😀"|"\u2028"|"\ud800"|"}],:"|"__proto__"`.split("|");
const STYLE: Style = {
  space: (random) => random.pick(["", "", "", " ", "\n", "\t", "\r", " \n "]),
  names: () => STRINGS,
};

describe("what is JSON", () => {
  test("texts, valid and mutated, as JSON.parse has it", () => {
    let refused = 0;
    forSeeds(1600, (random) => {
      let text = `${STYLE.space(random)}${randomJson(random, STYLE).text}${STYLE.space(random)}`;
      const isWhole = random.chance(0.4);
      for (let n = isWhole ? 0 : 1 + random.int(3); n > 0; n--) text = mutated(random, text);
      if (isWhole) JSON.parse(text);
      if (!isJsonText(text)) refused++;
      expect(isJson(toBytes(text)), JSON.stringify(text)).toBe(isJsonText(text));
    });
    expect(refused).toBeGreaterThan(400);
  });

  const BARE = "01|-|1.|.5|1e|+1|tru|nulll|[1,]|[,1]|{a:1}|[|{|]|[}|{]|| |1 2|\ufeff1|'a'|NaN";
  const QUOTED = '{"a":1,}|{"a"}|{"a":1"b":2}|"\\x"|"\\u12g4"|"\\u12|"a\nb"|"a\tb"|"';
  test.each([...BARE.split("|"), ...QUOTED.split("|")])("%j is not", (text) => {
    expect([isJsonText(text), isJson(toBytes(text))]).toEqual([false, false]);
  });

  test("in what is known to be JSON values end where a look at all of it says", () => {
    const long = (random: Random) =>
      `"${Array.from({ length: random.int(300) }, () => random.pick(["a", "b", "é", "[", "}", '\\"', "\\\\", "\\u0022"])).join("")}"`;
    forSeeds(600, (random) => {
      const text = `${STYLE.space(random)}{${long(random)}:${randomJson(random, STYLE).text},"b":[${long(random)},${randomJson(random, STYLE).text}]}`;
      const bytes = toBytes(text);
      const ranges = getMembers(bytes);
      expect(ranges).toHaveLength(2);
      expect(getMembers(bytes, 0, bytes.length, findKnownValueEnd)).toEqual(ranges);
      const list = (ranges as Member[])[1];
      expect(getElements(bytes, list.start, list.end, findKnownValueEnd)).toEqual(
        getElements(bytes, list.start, list.end),
      );
    });
    const endless = toBytes(`"${"a".repeat(200)}\\"`);
    for (const end of [1, 3, 100, endless.length]) {
      expect(findKnownValueEnd(endless, 0, end), `${end}`).toBe(-1);
      expect(findKnownValueEnd(endless.subarray(0, end), 0, end), `${end}`).toBe(-1);
    }
  });

  test("only the given range counts", () => {
    const bytes = toBytes('x{"a":[1]}y');
    expect(isJson(bytes, 1, 10)).toBe(true);
    expect(isJson(bytes, 1, 9)).toBe(false);
    expect(isJson(bytes, 0, 10)).toBe(false);
    expect(findValueEnd(bytes, 6, bytes.length)).toBe(9);
    expect(findStringEnd(bytes, 2, 4)).toBe(-1);
  });
});

describe("members and elements", () => {
  test("give what the text says, the last of equal names", () => {
    forSeeds(600, (random) => {
      const { text, value } = randomJson(random, STYLE);
      const bytes = toBytes(text);
      const found = getMembers(bytes);
      const list = getElements(bytes);
      expect(list !== null).toBe(Array.isArray(value));
      expect(found !== null).toBe(typeof value === "object" && value !== null && !Array.isArray(value));
      if (list) expect(list.map(({ start, end }) => parse(bytes, start, end))).toEqual(value);
      if (!found) return;
      for (const { name, nameStart, start, end } of found) {
        expect(parseStringAt(bytes, nameStart, bytes.length)).toBe(name);
        expect(() => parse(bytes, start, end)).not.toThrow();
      }
      expect(new Set(found.map(({ name }) => name))).toEqual(new Set(Object.keys(value as object)));
      for (const name of Object.keys(value as object)) {
        const { start, end } = findMember(found, name) ?? { start: 0, end: 0 };
        expect(parse(bytes, start, end)).toEqual(Object.getOwnPropertyDescriptor(value as object, name)?.value);
      }
    });
  });

  test("duplicates and their order are kept", () => {
    const bytes = toBytes('{"b":1, "a":2 ,"b":[3],"\\u0062":4}');
    expect(getMembers(bytes)?.map(({ name, start, end }) => [name, decodeText(bytes, start, end)])).toEqual([
      ["b", "1"],
      ["a", "2"],
      ["b", "[3]"],
      ["b", "4"],
    ]);
  });

  test("of anything else there are none", () => {
    for (const text of '1|null|"a"|[1]|{|{"a":1}x|{"a":}|{"a":1,}|{"a" 1}|{"a":1;"b":2}|'.split("|"))
      expect(getMembers(toBytes(text)), text).toBeNull();
    for (const text of "1|null|{}|[|[1|[1]x|[1,]|[1;2]|".split("|"))
      expect(getElements(toBytes(text)), text).toBeNull();
    expect(getMembers(toBytes(" {} "))).toEqual([]);
    expect(getElements(toBytes(" [ ] "))).toEqual([]);
  });

  const PATHS = '{"a":[{"b":1,"b":2},"x"],"c":null,"__proto__":5}';
  const CODED = '{"é":1,"ab":2,"":3}';

  test.each<[string, (string | number)[], string?]>([
    [PATHS, [], PATHS],
    [PATHS, ["a", 0, "b"], "2"],
    [PATHS, ["a", 1], '"x"'],
    [PATHS, ["c"], "null"],
    [PATHS, ["__proto__"], "5"],
    ...[["d"], ["a", 2], ["a", "b"], ["c", 0], [0], ["constructor"], ["a", 0, "b", "c"]].map(
      (path): [string, (string | number)[]] => [PATHS, path],
    ),
    // The last member of a name counts, however that is written, and where it leads nowhere, too.
    ['{"a":{"b":1},"\\u0061":{"b":2}}', ["a", "b"], "2"],
    ['{"a":{"b":1},"a":[1]}', ["a", "b"]],
    [CODED, ["é"], "1"],
    [CODED, [""], "3"],
    [CODED, ["a"]],
    [' { "a" : [ 1 , [ ] , { "b" : " " } ] } ', ["a", 2, "b"], '" "'],
    ...['{"a":1', '{"a":1}}', '{"a":1,}', '{"a" 1}', '{"a":1,"b"}', '{"a":1;"b":2}', "{"].map(
      (text): [string, string[]] => [text, ["a"]],
    ),
  ])("in %s the path %j leads to a value or nowhere", (text, path, wanted) => {
    const bytes = toBytes(text);
    const range = findValue(bytes, { start: 0, end: bytes.length }, path);
    expect(range && decodeText(bytes, range.start, range.end)).toBe(wanted);
  });
});

describe("parse", () => {
  test("gives the values that the text says, names with escapes included, whatever was parsed before", () => {
    forSeeds(600, (random) => {
      const { text, value } = randomJson(random, STYLE);
      expect(parse(toBytes(text)), JSON.stringify(text)).toEqual(value);
    });
  });

  // Each first text makes V8 (13.6 of Node 24, and that of 26) expect a name with a backslash where the second has one
  // that is as long and is written with the same characters: JSON.parse takes it for the expected one.
  test.each([
    ['{"x":1,"\\\\":2}', '{"x":1,"\\"":2}', ["x", '"']],
    ['{"x":1,"\\\\":2}', '{"x":1,"\\u0041":2}', ["x", "A"]],
    ['{"y":1,"ab\\\\":2}', '{"y":1,"ab\\n":2}', ["y", "ab\n"]],
    ['{"\\\\u00":2}', '{"\\u0074ype":2}', ["type"]],
    ['{"z":1,"\\\\n":2}', '[[{"z":1,"\\nx":2}]]', ["z", "\nx"]],
    ['{"m":1,"\\\\":{}}', '{"a":{"m":1,"\\t":{"m":1,"\\r":[]}}}', ["m", "\t", "m", "\r"]],
    ['{"d":1,"\\\\":2}', '{"d":1,"\\"":2,"d":3,"__proto__":4,"\\"":5}', ["d", '"', "__proto__"]],
    ['[{"e":1,"\\\\":2},{"e":1,"\\b":2}]', '{"e":1,"\\\\":2}', ["e", "\\"]],
  ])("after %j the names of %j are its own", (before, text, names) => {
    const seen: string[] = [];
    const look = (value: unknown): void => {
      if (typeof value !== "object" || value === null) return;
      if (!Array.isArray(value)) for (const name of Object.keys(value)) if (name !== "a") seen.push(name);
      for (const inside of Object.values(value)) look(inside);
    };
    parse(toBytes(before));
    look(parse(toBytes(text)));
    expect(seen).toEqual(names);
  });

  test("has of equal names the last, where the first was, and no name means anything", () => {
    parse(toBytes('{"d":1,"\\\\":2}'));
    const value = parse(toBytes('{"d":1,"\\"":2,"d":3,"__proto__":4,"\\"":5}')) as object;
    expect(Object.entries(value)).toEqual([
      ["d", 3],
      ['"', 5],
      ["__proto__", 4],
    ]);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  });

  test("refuses what JSON.parse refuses, and takes what is deep", () => {
    for (const text of ["", "{", '{"a":}', '"\\', "[1,]"])
      expect(() => parse(toBytes(text)), text).toThrow(SyntaxError);
    parse(toBytes('{"deep":1,"\\\\":2}'));
    const depth = 100_000;
    const text = `${"[".repeat(depth)}{"deep":1,"\\"":2}${"]".repeat(depth)}`;
    let value = parse(toBytes(text));
    for (let level = 0; level < depth; level++) [value] = value as unknown[];
    expect(Object.keys(value as object)).toEqual(["deep", '"']);
  });
});

describe("depth", () => {
  const DEEP = 200_000;
  const arrays = toBytes("[".repeat(DEEP) + "]".repeat(DEEP));
  const objects = toBytes(`${'{"a":'.repeat(DEEP)}1${"}".repeat(DEEP)}`);

  test("200,000 levels are read without a stack", () => {
    expect(isJson(arrays)).toBe(true);
    expect(isJson(objects)).toBe(true);
    expect(isJson(arrays, 0, arrays.length - 1)).toBe(false);
    expect(isJson(objects, 0, objects.length - 1)).toBe(false);
    expect(getMembers(objects)).toHaveLength(1);
    expect(getElements(arrays)).toHaveLength(1);
  });

  test("levels of both kinds must close in their order", () => {
    const mixed = '[{"a":'.repeat(1000);
    expect(isJson(toBytes(`${mixed}1${"}]".repeat(1000)}`))).toBe(true);
    expect(isJson(toBytes(`${mixed}1${"}]".repeat(999)}]}`))).toBe(false);
  });
});

describe("texts", () => {
  test("oneLine changes line breaks between tokens only, and nothing of the value", () => {
    forSeeds(120, (random) => {
      const text = randomJson(random, STYLE).text;
      const given = toBytes(text);
      const line = decodeText(toOneLine(given));
      expect(decodeText(given)).toBe(text);
      expect(line).not.toMatch(/[\r\n]/);
      expect(parse(toBytes(line))).toEqual(parse(toBytes(text)));
      expect(line.replace(/[ \t]/g, "")).toBe(text.replace(/\s/g, (c) => (c === "\u2028" ? c : "")));
    });
  });

  test("bytes that are not UTF-8 have no text", () => {
    expect(() => decodeText(Uint8Array.of(0x22, 0xff, 0x22))).toThrow(TypeError);
    expect(() => decodeText(Uint8Array.of(0x22, 0xc3), 0, 2)).toThrow(TypeError);
    // A surrogate as bytes, and a text longer than it need be.
    expect(() => decodeText(Uint8Array.of(0xed, 0xa0, 0x80))).toThrow(TypeError);
    expect(() => decodeText(Uint8Array.of(0xc0, 0xaf))).toThrow(TypeError);
  });

  test("a byte order mark is a character like others", () => {
    expect(decodeText(toBytes("\ufeffa"))).toBe("\ufeffa");
  });

  test("sameBytes and concat", () => {
    expect(areSameBytes(toBytes("ab"), toBytes("ab"))).toBe(true);
    expect(areSameBytes(toBytes("ab"), toBytes("ac"))).toBe(false);
    expect(areSameBytes(toBytes("ab"), toBytes("abc"))).toBe(false);
    expect(decodeText(concat([toBytes("a"), toBytes(""), toBytes("bc")]))).toBe("abc");
    expect(concat([])).toHaveLength(0);
  });
});

describe("a look at what is large", () => {
  /** Returns whether a value is the other one with long strings cut. */
  function isCut(cut: unknown, whole: unknown, longest: number): boolean {
    if (typeof whole === "string" && typeof cut === "string") {
      if (toBytes(JSON.stringify(whole)).length <= longest) return cut === whole;
      return whole.startsWith(cut) && JSON.stringify(cut).length > longest / 8;
    }
    if (typeof whole !== "object" || whole === null) return Object.is(cut, whole);
    const names = Object.keys(whole);
    return (
      Object.keys(cut as object).join() === names.join() &&
      names.every((name) => isCut((cut as never)[name], whole[name as never], longest))
    );
  }

  test("gives the value with the beginnings of its long strings", () => {
    forSeeds(120, (random) => {
      const longest = 64 + random.int(64);
      const long = (): string =>
        Array.from({ length: random.int(300) }, () =>
          random.pick(["a", '"', "\\", "\n", "é", "漢", "😀", "\u0001"]),
        ).join("");
      const value = { a: long(), b: [long(), 1, null, { c: long() }], d: long(), e: "short" };
      for (const endOf of [findValueEnd, findKnownValueEnd]) {
        const abridged = parseAbridged(toBytes(JSON.stringify(value)), longest, 2 * longest, endOf);
        expect(isCut(abridged, value, longest)).toBe(true);
      }
    });
  });
});
