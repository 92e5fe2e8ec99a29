/** The tree against the simplest model of one: a list of parents. */

import { describe, expect, test } from "vitest";
import { LEAF_MARKER } from "../../../src/core/format/head.ts";
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
  readonly parents: number[];
  readonly markers: boolean[];
  constructor(parents: number[], markers: boolean[]) {
    this.parents = parents;
    this.markers = markers;
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
  test("in file order", () => {
    forSeeds(6, (random) => {
      const plan = randomPlan(random, false);
      const { nodes, add } = grown();
      for (const [n, node] of plan.entries()) add(entryOf(node, n));
      new Reference(
        plan.map(({ parent }) => parent),
        plan.map(({ marker }) => marker),
      ).check(treeOf(nodes));
    });
  });

  test("with parents that stand later in the file, and cycles", () => {
    forSeeds(6, (random) => {
      const plan = randomPlan(random, true);
      const { nodes, add } = grown();
      for (const [n, node] of plan.entries()) add(entryOf(node, n));
      const parents = plan.map(({ parent }) => parent);
      for (const cut of nodes.cutCycles()) parents[cut] = MISSING;
      new Reference(
        parents,
        plan.map(({ marker }) => marker),
      ).check(treeOf(nodes));
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
        const before = new Reference(
          plan.slice(0, n).map(({ parent }) => parent),
          plan.slice(0, n).map(({ marker }) => marker),
        );
        if (random.chance(0.3)) expect([...tree.children(ROOT)]).toEqual(before.children(ROOT));
        tree.extend(add(entryOf(plan[n], n)));
        if (random.chance(0.2) && n > 0) expect([...tree.children(n)]).toEqual([]);
      }
      new Reference(
        plan.map(({ parent }) => parent),
        plan.map(({ marker }) => marker),
      ).check(tree);
    });
  });

  test("after going back are as if nothing had come", () => {
    forSeeds(6, (random) => {
      const plan = randomPlan(random, true);
      const { nodes, add } = grown();
      for (const [n, node] of plan.entries()) add(entryOf(node, n));
      const keep = random.int(plan.length + 1);
      nodes.truncate(keep);
      const parents = plan.slice(0, keep).map(({ parent }) => (parent >= keep ? MISSING : parent));
      for (const cut of nodes.cutCycles()) parents[cut] = MISSING;
      new Reference(
        parents,
        plan.slice(0, keep).map(({ marker }) => marker),
      ).check(treeOf(nodes));
    });
  });
});

describe("the leaf", () => {
  test("before the first entry has an empty path and no ancestor", () => {
    const { nodes, add } = grown();
    add({ id: "a", parentId: null });
    const tree = treeOf(nodes);
    expect(tree.leaf).toBe(ROOT);
    expect([...tree.path()]).toEqual([]);
    expect(tree.commonAncestor(ROOT, 0)).toBe(ROOT);
    expect(tree.commonAncestor(0, ROOT)).toBe(ROOT);
    expect(tree.isAncestor(ROOT, 0)).toBe(false);
    expect(tree.isAncestor(0, ROOT)).toBe(false);
    expect([tree.yieldCount(ROOT), tree.systemCount(ROOT), tree.lastCompaction(ROOT)]).toEqual([0, 0, ROOT]);
  });
});

describe("labels", () => {
  test("are the last ones set, in file order, as in a plain reading", async () => {
    await forSeedsAsync(6, async (random) => {
      const model = randomModel(random, { entries: 60, branching: 0.3 });
      const session = await sessionOf(model.lines());
      const found = new Map<string, string>();
      for (const [target, { label }] of session.tree.labels) found.set(session.log.nodes.id(target), label);
      const wanted = new Map<string, string>();
      for (const [target, { label }] of model.labels()) wanted.set(target, label);
      expect(found).toEqual(wanted);
    });
  });

  test("name the entry that set them; empty, missing and null ones clear; unknown targets are none", async () => {
    const label = (n: number, target: number | string, value?: unknown) =>
      entryText("label", id(n), id(n - 1), {
        targetId: typeof target === "string" ? target : id(target),
        ...(value === undefined ? {} : { label: value }),
      });
    const session = await sessionOf([
      entryText("custom", id(0), null),
      label(1, 0, "one"),
      label(2, 0, "two"),
      label(3, 1, "on a label"),
      label(4, 2, "cleared by empty"),
      label(5, 2, ""),
      label(6, 3, "cleared by null"),
      label(7, 3, null),
      label(8, 4, "cleared by nothing"),
      label(9, 4),
      label(10, "nowhere", "lost"),
      label(11, 5, { not: "a text" }),
    ]);
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
