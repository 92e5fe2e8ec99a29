/** Branches as rows: drawn, folded and found rows; size and depth do not matter. */

import { describe, expect, test } from "vitest";
import { Branches, FILTERS, FOLDED, type Folds } from "../../../src/cli/browse/branches.ts";
import { formatPlainRow, formatTreeRow } from "../../../src/cli/browse/tree-rows.ts";
import { coloured, type OutputStyle, plain } from "../../../src/cli/terminal/page.ts";
import { forSeeds, type Random, range } from "../../support/random.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { expectTame } from "../../support/verbs.ts";

const PAGE: OutputStyle = { width: 80, paint: plain, now: 0, home: "", isTerminal: false };

function node(id: string, parentId: string | null, more: object = {}): Json {
  return { id, parentId, type: "message", role: "user", preview: `say ${id}`, childCount: 0, ...more };
}

const answer = (id: string, parentId: string, more: object = {}): Json =>
  node(id, parentId, { role: "assistant", ...more });

function drawn(branches: Branches): string[] {
  return Array.from({ length: branches.rows }, (_, row) =>
    formatTreeRow(branches, row, { ...PAGE, width: 80 }, { idWidth: 0 }).trimEnd(),
  );
}

describe("rows", () => {
  test.each([{ type: "constructor" }, { role: "constructor" }])("have the name of an unknown kind: %j", (kind) => {
    expect(drawn(new Branches([node("r", null, kind)], null, "all"))).toEqual(["  constructor: say r"]);
  });

  test("what leads to the leaf stays in the first column; other branches are indented, where they leave it", () => {
    const users = Object.entries({ r: null, a: "r", b: "a", b2: "b", d: "b2", e: "b2" });
    const nodes = users.map(([id, parentId]) => node(id, parentId));
    nodes.push(node("c", "a", { label: "tried" }), node("f", "c", { type: "compaction", role: undefined }));
    expect(drawn(new Branches(nodes, "d"))).toEqual([
      "  user: say r",
      "  user: say a",
      "  ├─ user: say c [tried]",
      "  │  compaction: say f",
      "  user: say b",
      "  user: say b2",
      "  ├─ user: say e",
      "* user: say d",
    ]);
    expect(drawn(new Branches(nodes, "f")).slice(2)).toEqual([
      "  ├─ user: say b",
      "  │  user: say b2",
      "  │  ├─ user: say d",
      "  │  user: say e",
      "  user: say c [tried]",
      "* compaction: say f",
    ]);
  });

  test("several roots begin in the first column; a lost parent makes a root, and a circle nothing", () => {
    const roots = [node("a", null), node("b", "a"), node("c", "nowhere")];
    expect(drawn(new Branches(roots, null))).toEqual(["  user: say a", "  user: say b", "  user: say c"]);
    expect(drawn(new Branches([], null))).toEqual([]);
    expect(drawn(new Branches([node("a", "b"), node("b", "a"), node("c", null)], "b"))).toEqual(["  user: say c"]);
  });

  test("calls are shown with their argument, and what failed says so", () => {
    const call = (name: string, argument: string): object => ({ calls: [{ name, argument }] });
    const nodes = [
      node("a", null),
      answer("b", "a", { preview: "[bash: npm test]", ...call("bash", "npm test") }),
      node("c", "b", { role: "toolResult", toolName: "bash", preview: "no such test", isError: true }),
      answer("d", "c", { preview: "I write it.", ...call("edit", "src/store.ts") }),
      node("e", "d", { role: "toolResult", toolName: "edit", preview: "done" }),
      node("f", "e", { role: "bashExecution", preview: "ls" }),
      answer("g", "f", { preview: undefined, isError: true }),
    ];
    expect(drawn(new Branches(nodes, "g"))).toEqual([
      "  user: say a",
      "  assistant: [bash: npm test]",
      "  failed bash: no such test",
      "  assistant: I write it. [edit: src/store.ts]",
      "  result edit: done",
      "  bash: $ ls",
      "* failed assistant",
    ]);
    expect(formatPlainRow(new Branches(nodes, "g"), 6, PAGE, { idWidth: 8 })).toBe("g (leaf) failed assistant");
  });

  test("filters leave out, and what is below moves up to what is left", () => {
    const nodes = [
      node("a", null),
      answer("b", "a", { preview: "[read: x]", calls: [{ name: "read", argument: "x" }] }),
      node("c", "b", { role: "toolResult", toolName: "read", preview: "x" }),
      answer("d", "c", { label: "good" }),
      node("e", "d", { type: "model_change", role: undefined }),
      node("f", "e"),
      node("f2", "e"),
    ];
    const shown = (filter: (typeof FILTERS)[number]): string =>
      drawn(new Branches(nodes, "f2", filter))
        .map((row) => row.replace(/: .*/, "").trim())
        .join(",");
    expect(shown("all")).toBe("user,assistant,result read,assistant,model,├─ user,* user");
    expect(shown("default")).toBe("user,assistant,result read,assistant,├─ user,* user");
    expect(shown("no tools")).toBe("user,assistant,├─ user,* user");
    expect(shown("user")).toBe("user,assistant,├─ user,* user");
    // The leaf is not among them.
    expect(shown("labelled")).toBe("assistant");
  });

  test.each(["session_info", "label", "custom", "thinking_level_change"])(
    "the last entry shown on the way to the leaf has the star where the leaf is a %s",
    (type) => {
      const nodes = [node("a", null), answer("b", "a"), node("c", "b", { type, role: undefined })];
      expect(drawn(new Branches(nodes, "c", "default"))).toEqual(["  user: say a", "* assistant: say b"]);
    },
  );
});

describe("folding", () => {
  const chain = (length: number): Json[] => {
    const calls = [{ name: "bash", argument: "ls" }];
    const step = (n: number): Json =>
      answer(`n${n}`, n === 0 ? "q" : `n${n - 1}`, { calls, isError: n === 1 || undefined });
    return [node("q", null), ...range(0, length).map(step), node("z", `n${length - 1}`)];
  };

  test("makes one row of a line, which opens and closes", () => {
    const folded = new Branches(chain(9), "z", "default", FOLDED);
    expect(drawn(folded)).toEqual(["  user: say q", "  … 9 entries, 9 calls, 1 failed", "* user: say z"]);
    const opened = folded.with({ folds: { ...FOLDED, opened: new Set(["n0"]) } });
    expect(opened.rows).toBe(11);
    expect([folded.row("n7"), opened.row("n7")]).toEqual([1, 8]);
    expect(folded.revealing("n7").rows).toBe(11);
  });

  test("short lines, questions, labels, the leaf and branches stay", () => {
    expect(new Branches(chain(3), "z", "default", FOLDED).rows).toBe(5);
    const labelled = new Branches(chain(9), "z", "default", FOLDED).labelled("n4", "here");
    expect(drawn(labelled)[2]).toMatch(/^ {2}assistant: say n4.*\[here\]$/);
    expect(drawn(new Branches(chain(9), "n5", "default", FOLDED)).filter((row) => row.startsWith("*"))).toHaveLength(1);
  });

  test("a closed branch says how much it hides", () => {
    const nodes = [...chain(2), node("s", "q"), answer("s1", "s"), answer("s2", "s1")];
    const closed = new Branches(nodes, "z", "default", { ...FOLDED, closed: new Set(["s"]) });
    expect(drawn(closed)[1]).toBe("  ├─ user: say s (+2)");
    expect(closed.row("s2")).toBe(1);
    expect(closed.revealing("s2").row("s2")).toBe(3);
  });
});

function randomNodes(random: Random): Json[] {
  return range(0, 1 + random.int(60)).map((i) => {
    const parent = random.chance(0.05) || i === 0 ? null : `n${random.chance(0.6) ? i - 1 : random.int(i)}`;
    return node(`n${i}`, parent, {
      preview: random.pick([undefined, "plain", "日本語".repeat(20), "x".repeat(200), "\u001b[2J\u202e\n"]),
      type: random.pick(["message", "message", "message", "label", "custom"]),
      role: random.pick(["user", "assistant", "toolResult", undefined]),
      calls: random.chance(0.2) ? [{ name: "\u001b[1m", argument: "y".repeat(80) }] : undefined,
      label: random.chance(0.1) ? "l".repeat(50) : undefined,
    });
  });
}

acrossTiers(test, [15, 40])("each entry stands once, on a line below its parent, whatever is shown (%i)", (count) => {
  forSeeds(count, (random) => {
    const nodes = randomNodes(random);
    const width = 20 + random.int(100);
    const ids = nodes.map(({ id }) => id);
    const folds: Folds = {
      isFolding: random.chance(0.5),
      opened: new Set(ids.filter(() => random.chance(0.2))),
      closed: new Set(ids.filter(() => random.chance(0.1))),
    };
    const [leafId, filter] = [random.pick(ids), random.pick(FILTERS)];
    const branches = new Branches(nodes, leafId, filter, random.chance(0.3) ? undefined : folds);
    const rows = new Map<string, number>();
    let hidden = 0;
    for (let row = 0; row < branches.rows; row++) {
      const members = [...branches.entries(row)].map(({ id }) => id);
      expect(members).toHaveLength(Math.max(1, branches.lineLength(row)));
      for (const id of members) {
        expect(rows.has(id)).toBe(false);
        expect(branches.row(id)).toBe(row);
        rows.set(id, row);
      }
      hidden += branches.hiddenBehind(row);
      expectTame(formatTreeRow(branches, row, { ...PAGE, width }, { idWidth: random.pick([0, 2, 8]) }), width);
      const inColour = formatTreeRow(branches, row, { ...PAGE, width, paint: coloured }, { idWidth: 8 });
      expect(expectTame(inColour)).toBe(formatTreeRow(branches, row, { ...PAGE, width }, { idWidth: 8 }));
    }
    for (const { id, parentId } of nodes)
      if (parentId !== null && rows.has(id) && rows.has(parentId))
        expect(rows.get(parentId)).toBeLessThanOrEqual(rows.get(id) as number);
    expect(rows.size + hidden).toBe(new Branches(nodes, leafId, filter).rows);
    const whole = new Branches(nodes, leafId, filter);
    for (const id of ids) {
      if (whole.row(id) < 0 || whole.node(whole.row(id)).id !== id) continue;
      const shown = branches.revealing(id);
      expect(shown.node(shown.row(id)).id).toBe(id);
    }
  });
});

describe("20,000 entries", () => {
  const SIZE = 20_000;
  /** Branches over entries whose parents are by a rule, and the row that is indented most. */
  function large(parentOf: (i: number) => number | null, leafId: string | null) {
    const nodes = range(0, SIZE).map((i) => node(`${i}`, i === 0 ? null : (parentOf(i)?.toString() ?? null)));
    const branches = new Branches(nodes, leafId);
    let deepest = 0;
    for (let row = 0; row < branches.rows; row++) if (branches.level(row) > branches.level(deepest)) deepest = row;
    expect(branches.rows).toBe(SIZE);
    return { branches, deepest, level: branches.level(deepest) };
  }

  test("in a chain stay in one column, and so do roots", () => {
    expect(large((i) => i - 1, `${SIZE - 1}`).level).toBe(0);
    const { branches, level } = large(() => null, "0");
    expect([level, branches.leafRow, branches.row(`${SIZE - 1}`)]).toEqual([0, 0, SIZE - 1]);
  });

  acrossTiers(test, [{ leaves: [`${SIZE / 2}`] }, { leaves: [null, "0", `${SIZE - 1}`] }])(
    "that branch at every step are indented once",
    ({ leaves }) => {
      for (const leafId of leaves) expect(large((i) => i - 1 - ((i - 1) % 2), leafId).level).toBeLessThanOrEqual(2);
    },
  );

  test("in a whole binary tree are indented by its height, and the page keeps room for the text", () => {
    const { branches, deepest, level } = large((i) => (i - 1) >> 1, null);
    expect(level).toBeLessThanOrEqual(15);
    const text = formatTreeRow(branches, deepest, { ...PAGE, width: 40 }, { idWidth: 0 });
    expect(text).toMatch(/^ +\d+… .*├─ user: say \d+$/);
  });
});
