/** Whole lines are recognized as JSON.parse does, by the thorough reading and by the first look alike. */

import { describe, expect, test } from "vitest";
import { holdsAttachment } from "../../../src/core/format/attachments.ts";
import { type FastPath, getFastPath, MAX_BYTES } from "../../../src/core/json/fast-path.ts";
import { mayHoldSurrogate, replaceHalvesInBytes } from "../../../src/core/json/halves.ts";
import { toBytes } from "../../../src/core/json/json.ts";
import { LineValidator } from "../../../src/core/json/validate.ts";
import { isJson, mutated, randomJson, type Style } from "../../support/json-texts.ts";
import { forSeeds, type Random } from "../../support/random.ts";
import { acrossTiers } from "../../support/tiers.ts";

const MEMBERS = ["type", "id", "parentId", "message", "customType", "_batch"];

const quoted = (names: string): string[] => names.split(" ").map((name) => `"${name}"`);
const STYLE: Style = {
  space: (random) => (random.chance(0.03) ? random.pick([" ", "\t", "\r", "  "]) : ""),
  names: (depth) => quoted(depth > 0 ? "role content a b data $piBlob" : `${MEMBERS.join(" ")} timestamp data`),
};

const line = (random: Random): string => randomJson(random, STYLE, 0, 6).text;

/** Reads a line somewhere among others. */
function look({ bytes, read }: FastPath, text: string, at: number): number {
  const b = toBytes(text);
  bytes.set(toBytes('{"a":["before\n'), Math.max(0, at - 14));
  bytes.set(b, at);
  bytes.set(toBytes('\n"]}, "behind'), at + b.length);
  return read(at, at + b.length);
}

const first = getFastPath() as FastPath;

acrossTiers(describe, [400, 1600])("lines of every kind (%i)", (count) => {
  const cases = (property: (text: string, random: Random) => void): void =>
    forSeeds(count, (random) => {
      const whole = line(random);
      property(whole, random);
      property(mutated(random, whole), random);
    });

  test("are JSON where JSON.parse says so", () => {
    const bodies = new LineValidator();
    cases((text, random) => {
      const b = toBytes(`${"x".repeat(random.int(20))}`);
      const all = toBytes(`${"x".repeat(b.length)}${text}\n{"next":1}`);
      expect(bodies.read(all, b.length, b.length + toBytes(text).length), text).toBe(isJson(text));
    });
  });

  test("pass the first look only if a thorough reading finds the same", () => {
    const bodies = new LineValidator();
    let passed = 0;
    cases((text, random) => {
      const found = look(first, text, 14 + random.int(40));
      if (found < 0) return;
      passed++;
      const b = toBytes(text);
      expect(bodies.read(b, 0, b.length), text).toBe(true);
      expect(bodies.isAmbiguous, text).toBe(false);
      expect(bodies.messageStart, text).toBe(found);
      expect(replaceHalvesInBytes(b), text).toBe(b);
      expect(text).not.toMatch(/[:[]"blob:sha256:|"\$piBlob":/);
    });
    expect(passed).toBeGreaterThan(0.6 * count);
  });

  test("pass the first look as JSON.stringify writes them, unless something stands twice or is replaced", () => {
    forSeeds(400, (random) => {
      let isUsual = true;
      const entry = JSON.parse(line(random), (name, inside) => {
        isUsual &&= JSON.stringify(name) === `"${name}"`;
        return inside;
      });
      const text = JSON.stringify(entry);
      isUsual &&= !mayHoldSurrogate(toBytes(text)) && !holdsAttachment(toBytes(text));
      if (isUsual) expect(look(first, text, 20), text).toBeGreaterThanOrEqual(0);
    });
  });

  test("tell their message and whether their head stands twice", () => {
    const bodies = new LineValidator();
    cases((text) => {
      const b = toBytes(text);
      if (!bodies.read(b, 0, b.length) || !text.startsWith("{")) return;
      const { messageStart, isAmbiguous } = bodies;
      if (messageStart > 0) {
        expect(text.endsWith("}"), text).toBe(true);
        const message = Buffer.from(b).toString("utf8", messageStart, b.length - 1);
        expect(JSON.parse(message), text).toEqual(JSON.parse(text).message);
      }
      if (!text.includes("\\") && !text.includes(" "))
        for (const name of MEMBERS)
          if (text.split(`"${name}":`).length === 2) expect(text.indexOf(`"${name}":`)).toBeGreaterThan(0);
          else if (new RegExp(`^{"${name}":[0-9]+,"${name}":`).test(text)) expect(isAmbiguous, text).toBe(true);
    });
  });
});

test.each([
  ['{"type":"message","message":{"role":"user"}}', 28, false],
  ['{"type":"message","message":{"role":"user"},"more":1}', 0, false],
  ['{"type":"message","message":"text"}', 28, false],
  ['{"message":{"role":"user","role":"assistant"}}', 11, true],
  ['{"message":{"content":{"role":1},"role":"user"}}', 11, false],
  ['{"message":[{"role":1},{"role":1,"role":2}]}', 11, false],
  ['{"id":"a","id":"b"}', 0, true],
  ['{"id":"a","\\u0069d":"b"}', 0, true],
  ['{"ids":"a","id":"b"}', 0, false],
  ['{"_batch":{},"data":{"_batch":1,"_batch":2}}', 0, false],
])("%s", (text, messageStart, isAmbiguous) => {
  const bodies = new LineValidator();
  const b = toBytes(text);
  expect(bodies.read(b, 0, b.length)).toBe(true);
  expect(bodies).toMatchObject({ messageStart, isAmbiguous });
  expect(look(first, text, 100)).toBe(isAmbiguous ? -1 : messageStart);
});

test("the first look goes as deep as it is long, and no further than its memory", () => {
  const half = MAX_BYTES / 2;
  first.bytes.fill(0x5b, 0, half).fill(0x5d, half, MAX_BYTES);
  expect(first.read(0, MAX_BYTES)).toBe(0);
  first.bytes.fill(0x5b);
  expect(first.read(0, MAX_BYTES)).toBe(-1);
  first.bytes.fill(0x61).set([0x22]);
  expect(first.read(0, MAX_BYTES)).toBe(-1);
  first.bytes.set([0x5c], MAX_BYTES - 1);
  expect(first.read(0, MAX_BYTES)).toBe(-1);
  first.bytes.fill(0x31);
  expect(first.read(0, MAX_BYTES)).toBe(0);
});
