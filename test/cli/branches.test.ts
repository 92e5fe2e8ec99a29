/** Branches as rows: what is drawn, and that size and depth do not matter. */

import { describe, expect, test } from "vitest";
import { Branches } from "../../src/cli/branches.ts";
import { coloured, type OutputStyle, plain } from "../../src/cli/terminal/page.ts";
import { widthOf } from "../../src/cli/terminal/text.ts";
import { forSeeds } from "../support/random.ts";
import type { Json } from "../support/server.ts";

const PAGE: OutputStyle = { width: 80, paint: plain, now: 0, home: "", isTerminal: false };

function node(id: string, parentId: string | null, more: object = {}): Json {
  return { id, parentId, type: "message", role: "user", preview: `say ${id}`, childCount: 0, ...more };
}

function drawn(nodes: Json[], leafId: string | null, width = 80): string[] {
  const branches = new Branches(nodes, leafId);
  return Array.from({ length: branches.rows }, (_, row) => branches.text(row, { ...PAGE, width }));
}

describe("rows", () => {
  test("branches indent, what follows one another does not", () => {
    const nodes = [
      node("r", null),
      node("a", "r"),
      node("b", "a"),
      node("b2", "b"),
      node("c", "a", { label: "tried" }),
      node("d", "b2"),
      node("e", "b2"),
      node("f", "c", { type: "compaction", role: undefined }),
    ];
    expect(drawn(nodes, "d")).toEqual([
      "  r   user: say r",
      "  a   user: say a",
      "  b   ├─ user: say b",
      "  b2  │  user: say b2",
      "* d   │  ├─ user: say d",
      "  e   │  └─ user: say e",
      "  c   └─ user: say c [tried]",
      "  f      compaction: say f",
    ]);
  });

  test("several roots are branches; a lost parent makes a root", () => {
    expect(drawn([node("a", null), node("b", "a"), node("c", "nowhere")], null)).toEqual([
      "  a  ├─ user: say a",
      "  b  │  user: say b",
      "  c  └─ user: say c",
    ]);
    expect(drawn([], null)).toEqual([]);
  });

  test("each entry stands once, below its parent, siblings in file order, on one line of the page", () => {
    forSeeds(40, (random) => {
      const nodes: Json[] = [];
      for (let i = 0; i < 1 + random.int(60); i++) {
        const parent = random.chance(0.05) || i === 0 ? null : `n${random.chance(0.6) ? i - 1 : random.int(i)}`;
        const preview = random.pick([undefined, "plain", "日本語".repeat(20), "x".repeat(200), "\u001b[2J\u202e\n"]);
        nodes.push(node(`n${i}`, parent, { preview, label: random.chance(0.1) ? "l".repeat(50) : undefined }));
      }
      const width = 40 + random.int(100);
      const branches = new Branches(nodes, random.pick(nodes).id);
      const rows = new Map<string, number>();
      for (let row = 0; row < branches.rows; row++) {
        const { id, parentId } = branches.node(row);
        expect(rows.has(id)).toBe(false);
        if (parentId !== null) expect(rows.get(parentId)).toBeLessThan(row);
        rows.set(id, row);
        const text = branches.text(row, { ...PAGE, width });
        expect(widthOf(text)).toBeLessThanOrEqual(width);
        expect(text).not.toMatch(/[\p{Cc}\u202e]/u);
        const inColour = branches.text(row, { ...PAGE, width, paint: coloured });
        // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are what is looked for
        expect(inColour.replace(/\u001b\[\d+m/g, "")).toBe(text);
      }
      expect(rows.size).toBe(nodes.length);
      for (let i = 1; i < nodes.length; i++)
        for (let j = 0; j < i; j++)
          if (nodes[i].parentId === nodes[j].parentId)
            expect(rows.get(nodes[j].id)).toBeLessThan(rows.get(nodes[i].id) as number);
    });
  });
});

describe("100,000 entries", () => {
  const SIZE = 100_000;

  test("in a chain stay in one column", () => {
    const lines = drawn(
      Array.from({ length: SIZE }, (_, i) => node(`${i}`, i === 0 ? null : `${i - 1}`)),
      `${SIZE - 1}`,
    );
    expect(lines).toHaveLength(SIZE);
    expect(lines[SIZE - 1]).toBe(`* ${SIZE - 1}  user: say ${SIZE - 1}`);
  });

  test("that branch at every step fit the page; where the lines begin says that there are more", () => {
    const nodes = Array.from({ length: SIZE }, (_, i) => node(`${i}`, i === 0 ? null : `${i - 1 - ((i - 1) % 2)}`));
    const branches = new Branches(nodes, null);
    for (const row of [100, SIZE / 2, SIZE - 1]) {
      const text = branches.text(row, PAGE);
      expect(text).toContain("…  ");
      expect(widthOf(text)).toBeLessThanOrEqual(80);
      expect(text).toMatch(/user: say \d+$/);
    }
  });

  test("that are all roots", () => {
    const branches = new Branches(
      Array.from({ length: SIZE }, (_, i) => node(`${i}`, null)),
      "0",
    );
    expect([branches.text(0, PAGE), branches.text(SIZE - 1, PAGE)]).toEqual([
      "* 0      ├─ user: say 0",
      `  ${SIZE - 1}  └─ user: say ${SIZE - 1}`,
    ]);
  });
});
