/** What terminals send for keys, whole and in pieces. */

import { expect, test } from "vitest";
import { type Key, keysAtRest, keysIn } from "../../../src/cli/terminal/keys.ts";
import { forSeeds } from "../../support/random.ts";

function told(keys: readonly Key[]): string[] {
  return keys.map((key) => ("name" in key ? `<${key.name}>` : key.text));
}

const SENT: readonly (readonly [string, string])[] = [
  ["\u001b[A", "<up>"],
  ["\u001bOA", "<up>"],
  ["\u001b[B", "<down>"],
  ["\u001b[1;5B", "<down>"],
  ["\u001b[5~", "<pageUp>"],
  ["\u001b[6~", "<pageDown>"],
  ["\u001b[H", "<home>"],
  ["\u001b[1~", "<home>"],
  ["\u001bOF", "<end>"],
  ["\u001b[4~", "<end>"],
  ["\r", "<enter>"],
  ["\n", "<enter>"],
  ["\t", "<tab>"],
  ["\u007f", "<backspace>"],
  ["\u0003", "<ctrl+c>"],
  ["\u0004", "<ctrl+d>"],
  ["\u001a", "<ctrl+z>"],
  ["\u0012", "<ctrl+r>"],
  ["\u001b[C", "<right>"],
  ["\u001bOD", "<left>"],
  ["\u001b[3~", "<delete>"],
  ["\u001b[Z", "<tab>"],
  ["j", "j"],
  ["日", "日"],
  ["😀", "😀"],
];

test.each(SENT)("%j is %s", (sent, key) => {
  expect([told(keysIn(sent).keys), keysIn(sent).rest]).toEqual([[key], ""]);
});

test("keys that mean nothing here are none", () => {
  for (const sent of ["\u001b[15~", "\u0001", "\u001b[200~"]) expect(keysIn(sent)).toEqual({ keys: [], rest: "" });
});

test("a sequence may come in pieces; the escape key is one that nothing follows", () => {
  expect(keysIn("\u001b")).toEqual({ keys: [], rest: "\u001b" });
  expect(told(keysAtRest("\u001b"))).toEqual(["<escape>"]);
  expect(told(keysAtRest("\u001b["))).toEqual(["<escape>", "["]);
  expect(told(keysIn("\u001b\u001b[A").keys)).toEqual(["<escape>", "<up>"]);
  expect(told(keysIn("\u001bq").keys)).toEqual(["<escape>", "q"]);
  forSeeds(80, (random) => {
    const keys = Array.from({ length: 1 + random.int(8) }, () => random.pick(SENT));
    const all = keys.map(([sent]) => sent).join("");
    let rest = "";
    const heard: Key[] = [];
    for (let at = 0; at < all.length; ) {
      const end = at + 1 + random.int(3);
      // Characters are cut between, as a decoder does.
      const chunk = /[\ud800-\udbff]$/.test(all.slice(at, end)) ? all.slice(at, end + 1) : all.slice(at, end);
      at += chunk.length;
      const found = keysIn(rest + chunk);
      heard.push(...found.keys);
      rest = found.rest;
    }
    expect([told(heard), rest]).toEqual([keys.map(([, key]) => key), ""]);
  });
});
