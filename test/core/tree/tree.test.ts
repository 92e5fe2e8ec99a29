/** The tree against the simplest model of one: a list of parents. */

import { describe, expect, test } from "vitest";
import { LEAF_MARKER } from "../../../src/core/format/node-reader.ts";
import { MISSING, ROOT } from "../../../src/core/tree/nodes.ts";
import type { Tree } from "../../../src/core/tree/tree.ts";
import { entryText, id } from "../../support/lines.ts";
import { randomModel } from "../../support/model.ts";
import { grown, treeOf } from "../../support/nodes.ts";
import { forSeeds, forSeedsAsync, type Random } from "../../support/random.ts";
import { sessionOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

interface Plan {
  readonly parent: number;
  readonly marker: boolean;
}

/** Parents by number, among them markers, roots, missing parents; in file order a parent may come later. */
function randomPlan(random: Random, forward: boolean): Plan[] {
  const count = 1 + random.int(60);
  return Array.from({ length: count }, (_, n) => {
    let parent = n - 1;
    if (random.chance(0.4)) parent = random.int(forward ? count : n + 1) - 1;
    if (random.chance(0.05)) parent = MISSING;
    return { parent, marker: random.chance(0.15) };
  });
}

function entryOf({ parent, marker }: Plan, n: number) {
  const parentId = parent === ROOT ? null : parent === MISSING ? `gone-${n}` : id(parent);
  return { id: id(n), parentId, ...(marker ? { customType: LEAF_MARKER } : {}) };
}

/** The same questions answered the slow way. */
class Reference {
  private readonly parents: number[];
  private readonly markers: boolean[];

  constructor(plan: readonly Plan[], parents = plan.map(({ parent }) => parent)) {
    this.parents = parents;
    this.markers = plan.map(({ marker }) => marker);
  }

  get all(): number[] {
    return this.parents.map((_, n) => n);
  }

  visible(n: number): boolean {
    return !this.markers[n] || this.children(n).length > 0;
  }

  children(of: number): number[] {
    return this.all.filter((n) => (of < 0 ? this.parents[n] < 0 : this.parents[n] === of) && this.visible(n));
  }

  path(of: number): number[] {
    const path: number[] = [];
    for (let at = of; at >= 0; at = this.parents[at]) path.unshift(at);
    return path;
  }

  check(tree: Tree): void {
    const { all } = this;
    expect(tree.entryCount).toBe(all.filter((n) => this.visible(n)).length);
    expect(tree.branchCount).toBe(all.filter((n) => this.children(n).length > 1).length);
    expect([...tree.children(ROOT)]).toEqual(this.children(ROOT));
    for (const n of all) {
      expect(tree.isVisible(n), `${n}`).toBe(this.visible(n));
      expect([...tree.children(n)], `children of ${n}`).toEqual(this.children(n));
      expect(tree.childCount(n)).toBe(this.children(n).length);
      expect(tree.depth(n)).toBe(this.path(n).length - 1);
      expect([...tree.path(n)]).toEqual(this.path(n));
    }
    const paths = all.map((n) => this.path(n));
    const wrong: string[] = [];
    for (const a of all)
      for (const b of all) {
        const shared = paths[a].filter((n) => paths[b].includes(n)).at(-1) ?? ROOT;
        if (tree.commonAncestor(a, b) !== shared) wrong.push(`common ancestor of ${a} and ${b}`);
        if (tree.isAncestor(a, b) !== (shared === a)) wrong.push(`${a} above ${b}`);
      }
    expect(wrong).toEqual([]);
  }
}

describe("random trees", () => {
  test("in file order, with parents that stand later and cycles, and after going back as if nothing had come", () => {
    forSeeds(18, (random) => {
      const plan = randomPlan(random, random.seed % 3 > 0);
      const { nodes, add } = grown();
      for (const [n, node] of plan.entries()) add(entryOf(node, n));
      const keep = random.seed % 3 === 2 ? random.int(plan.length + 1) : plan.length;
      nodes.truncate(keep);
      const kept = plan.slice(0, keep);
      const parents = kept.map(({ parent }) => (parent >= keep ? MISSING : parent));
      for (const cut of nodes.cutCycles()) parents[cut] = MISSING;
      new Reference(kept, parents).check(treeOf(nodes));
    });
  });

  test("grow node by node to the same as when they are read at once", () => {
    forSeeds(6, (random) => {
      const plan = randomPlan(random, false);
      const { nodes, add } = grown();
      const first = random.int(plan.length + 1);
      for (const [n, node] of plan.slice(0, first).entries()) add(entryOf(node, n));
      const tree = treeOf(nodes);
      for (let n = first; n < plan.length; n++) {
        // Lists of children are built when they are first asked for; asking must not change what comes.
        const before = new Reference(plan.slice(0, n));
        if (random.chance(0.3)) expect([...tree.children(ROOT)]).toEqual(before.children(ROOT));
        tree.extend(add(entryOf(plan[n], n)));
        if (random.chance(0.2) && n > 0) expect([...tree.children(n)]).toEqual([]);
      }
      new Reference(plan).check(tree);
    });
  });
});

test("the leaf before the first entry has an empty path and no ancestor", () => {
  const { nodes, add } = grown();
  add({ id: "a", parentId: null });
  const tree = treeOf(nodes);
  expect([tree.leaf, ...tree.path()]).toEqual([ROOT]);
  expect([tree.commonAncestor(ROOT, 0), tree.commonAncestor(0, ROOT)]).toEqual([ROOT, ROOT]);
  expect([tree.isAncestor(ROOT, 0), tree.isAncestor(0, ROOT)]).toEqual([false, false]);
  expect([tree.yieldCount(ROOT), tree.systemCount(ROOT), tree.lastCompaction(ROOT)]).toEqual([0, 0, ROOT]);
});

describe("labels", () => {
  test("are the last ones set, in file order, as in a plain reading", async () => {
    await forSeedsAsync(6, async (random) => {
      const model = randomModel(random, { entries: 60, branching: 0.3 });
      const session = await sessionOf(model.lines());
      const found = [...session.tree.labels].map(
        ([target, { label }]) => [session.log.nodes.id(target), label] as const,
      );
      expect(new Map(found)).toEqual(new Map([...model.labels()].map(([target, { label }]) => [target, label])));
    });
  });

  test("name the entry that set them; empty, missing and null ones clear; unknown targets are none", async () => {
    const labels: [number | string, unknown?][] = [
      [0, "one"],
      [0, "two"],
      [1, "on a label"],
      [2, "cleared by empty"],
      [2, ""],
      [3, "cleared by null"],
      [3, null],
      [4, "cleared by nothing"],
      [4],
      ["nowhere", "lost"],
      [5, { not: "a text" }],
    ];
    const lines = labels.map(([target, label], n) => {
      const targetId = typeof target === "string" ? target : id(target);
      return entryText("label", id(n + 1), id(n), { targetId, label });
    });
    const session = await sessionOf([entryText("custom", id(0), null), ...lines]);
    expect([...session.tree.labels]).toEqual([
      [0, { label: "two", setBy: 2 }],
      [1, { label: "on a label", setBy: 3 }],
    ]);
  });
});

describe("size", () => {
  acrossTiers(test, [6000, 40_000])("a chain and a fan of %i are linear", (count) => {
    const chain = grown();
    const fan = grown();
    for (let n = 0; n < count; n++) {
      chain.add({ id: id(n), parentId: n === 0 ? null : id(n - 1) });
      fan.add({ id: id(n), parentId: n === 0 ? null : id(0) });
    }
    const deep = treeOf(chain.nodes);
    expect(deep.depth(count - 1)).toBe(count - 1);
    expect(deep.path(count - 1)).toHaveLength(count);
    const wide = treeOf(fan.nodes);
    expect([...wide.children(0)]).toHaveLength(count - 1);
    expect(wide.branchCount).toBe(1);
  });

  acrossTiers(test, [8000, 20_000])("a chain of %i that stands the wrong way round is read", (count) => {
    const { nodes, add } = grown();
    for (let n = count - 1; n >= 0; n--) add({ id: id(n), parentId: n === 0 ? null : id(n - 1) });
    expect(nodes.cutCycles()).toEqual([]);
    expect(treeOf(nodes).depth(0)).toBe(count - 1);
  });
});
