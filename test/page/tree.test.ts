/** The tree of the page's script without a browser: the rows of a list, the folded ones, and the hits of a query. */

import { expect, test } from "vitest";
import type { RowTuple } from "../../src/page/row.ts";
import { parsePlace } from "../../src/page/script/links.ts";
import { type FilterName, TreeModel } from "../../src/page/script/model.ts";
import { describeStretch } from "../../src/page/script/say.ts";
import { collectWords, countPlaces, findPlaces, lowerText, makePattern } from "../../src/page/script/text.ts";
import { forSeeds, range } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

/** A conversation: a question, two calls with results and an answer; from the question a branch, and one from that. */
const ROWS: readonly RowTuple[] = [
  ["q1", 0, 0, "u", "First", 100],
  ["a1", 1, 1, "a", "", 101, { c: [["read", "a.ts"]], u: [10, 0.5] }],
  ["r1", 2, 1, "r", "text", 102, { n: "read" }],
  ["a2", 3, 1, "a", "", 103, { c: [["edit", "a.ts"]], u: [10, 0.5] }],
  ["r2", 4, 1, "r", "no", 104, { n: "edit", f: 1 }],
  ["a3", 5, 1, "a", "Done", 110],
  ["q2", 6, 6, "u", "Otherwise", 120],
  ["a4", 7, 1, "a", "So", 121, { l: "good" }],
  ["q3", 8, 2, "u", "Or so", 130],
  ["m1", 9, 4, "m", "p/m2", 140],
  ["q4", 10, 1, "u", "Second", 150],
];

function modelOf(rows: readonly RowTuple[], leafId: string): TreeModel {
  const model = new TreeModel();
  model.take(rows);
  model.join(leafId);
  return model;
}

/** Returns a list as texts: levels as dots, rails as bits, stretches in brackets. */
function listed(model: TreeModel, filter: FilterName, opened: readonly number[] = [], found?: string[]): string[] {
  const rows = found && new Set(found.map((id) => model.find(id)));
  return model.lines(filter, model.leaf, new Set(opened), rows).map(({ at, folded, level, rails, begins }) => {
    const name = folded ? `[${folded.map((row) => model.rows[row].id).join(" ")}]` : model.rows[at].id;
    return `${".".repeat(level)}${name}${rails > 0 ? `/${rails}` : ""}${begins ? "*" : ""}`;
  });
}

test("branches stand beside the path that they left, steps within a turn are folded, and filters show their kinds", () => {
  const model = modelOf(ROWS, "q4");
  expect(listed(model, "talk")).toEqual(["q1*", ".q2/1*", "..a4/3*", ".q3/1", "[a1 r1 a2 r2]", "a3", "q4"]);
  expect(listed(model, "talk", [model.find("a1")])).toContain("r2");
  expect(listed(model, "tools")).toEqual(["q1*", ".q2/1*", "..a4/3*", ".q3/1", "a3", "q4"]);
  expect(listed(model, "user")).toEqual(["q1*", ".q2/1*", ".q3/1", "q4"]);
  expect(listed(model, "labels")).toEqual(["..a4/3*"]);
  expect(listed(model, "all")).toHaveLength(ROWS.length);
  expect(listed(model, "user", [], ["r2", "a4"])).toEqual(["..a4/3*", "r2*"]);
  expect(describeStretch(model, [1, 2, 3, 4])).toEqual({ words: "4 steps: read, edit", failed: 1 });
});

test("a branch goes on to the leaf, or else to what was said last", () => {
  const model = modelOf(ROWS, "a4");
  expect(model.path(model.leaf).map((row) => model.rows[row].id)).toEqual(["q1", "q2", "a4"]);
  expect(model.rows[model.tip(model.find("a1"))].id).toBe("q4");
  expect(listed(model, "user")[1]).toBe(".q4/1*");
  expect(modelOf(ROWS, "nobody").leaf).toBe(-1);
});

acrossTiers(test, [1, 3])("any tree is listed whole, each entry once and after its parent (%i)", (count) => {
  forSeeds(count, (random) => {
    const rows = range(0, 3000).map((n): RowTuple => {
      const back = n === 0 || random.chance(0.002) ? 0 : random.chance(0.7) ? 1 : 1 + random.int(n);
      return [`e${n}`, n, back, "u", "", 0];
    });
    const model = modelOf(rows, `e${random.int(3000)}`);
    const order = model.lines("all", model.leaf, new Set()).map(({ at }) => at);
    const place = new Map(order.map((at, index) => [at, index]));
    expect([order.length, place.size]).toEqual([3000, 3000]);
    for (const at of order) {
      const above = model.parents[at];
      if (above >= 0) expect(place.get(above)).toBeLessThan(place.get(at) as number);
    }
  });
});

test("rows that come later take their places by the ids of their parents, and their own by their ids", () => {
  const model = modelOf(ROWS, "q4");
  model.take([["new", -1, "a3", "u", "Third", 0]]);
  model.take([["a3", -1, "r2", "a", "Done now", 0]]);
  model.join("new");
  expect(model.path(model.leaf).map((row) => model.rows[row].id)).toEqual(["q1", "a1", "r1", "a2", "r2", "a3", "new"]);
  expect(model.rows[model.find("a3")].text).toBe("Done now");
  expect(model.rows).toHaveLength(ROWS.length + 1);
});

test("words of entries are taken from their blocks, without heads, folds' beginnings and buttons", () => {
  const html =
    '<article id="a" class="assistant"><header><h4>Assistant</h4></header><div class="prose"><p>One &lt;two&gt;</p></div>' +
    '<div class="call"><p class="what"><b>bash</b></p><details class="long"><summary>beginning</summary><pre>all</pre></details>' +
    '<div class="result" id="r"><pre class="out">three<br>four</pre></div></div></article>\n<div class="left" data-at="a">no</div>' +
    '<div class="note" id="n"><p>Model</p></div>';
  const found: Record<string, string> = {};
  collectWords(html, (id, words) => {
    found[id] = words;
  });
  expect(found).toEqual({ a: "One <two>bashall", r: "threefour", n: "Model" });
});

test("queries of several words are found over any space, and signs are signs", () => {
  const text = lowerText("The LOCK\n  file (v2) and the lock file");
  const counts = ["lock file", "the", "(v2)", "missing"].map((query) => countPlaces(text, makePattern(query) as never));
  expect([counts, makePattern(" ")]).toEqual([[2, 2, 1, 0], undefined]);
  const places = findPlaces(text, makePattern("lock file") as never, 10);
  expect(places.map(([from, to]) => text.slice(from, to))).toEqual(["lock\n  file", "lock file"]);
  // The small letter of this one is two.
  expect(lowerText("aİB")).toBe("aİb");
});

test.each([
  ["#a1", { id: "a1" }],
  ["#a1@b-2", { id: "a1", end: "b-2" }],
  ["#a1%40b", { id: "a1", end: "b" }],
  ["#", undefined],
  ["#%E0%A4%A", undefined],
  ["#a@b@c", undefined],
  ['#"><img>', undefined],
])("%s leads to %j", (hash, place) => expect(parsePlace(hash)).toEqual(place));
