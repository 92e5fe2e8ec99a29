/** The columns of nodes: ids found again, links to later lines, cycles, duplicates, going back. */

import { describe, expect, test } from "vitest";
import { MISSING, Nodes, packId, ROOT, unpackId } from "../../../src/core/tree/nodes.ts";
import { grown } from "../../support/nodes.ts";
import { forSeeds, type Random } from "../../support/random.ts";
import { SWEEP } from "../../support/tiers.ts";

/** Ids of every shape; few enough to meet again. */
function randomId(random: Random, range: number): string {
  const n = random.int(range);
  return random.pick([
    () => n.toString(16).padStart(8, "0"),
    () => `e5f6g7h${n % 10}`,
    () => `${n}`,
    () => random.pick(["__proto__", "constructor", "toString", "0", "-1"]),
    () => `ABCDEF0${n % 10}`,
    () => `id with spaces ${n} 漢`,
  ])();
}

/** Nodes of entries that are written as `id<parent`. */
function nodesOf(text: string): Nodes {
  const { nodes, add } = grown();
  for (const [id, parentId = null] of text.split(" ").map((entry) => entry.split("<"))) add({ id, parentId });
  return nodes;
}

function parentIds(nodes: Nodes): (string | null)[] {
  return Array.from({ length: nodes.count }, (_, p) => {
    const parent = nodes.parent(p);
    return parent === ROOT ? null : parent === MISSING ? `?${nodes.missingParent.get(p)}` : nodes.id(parent);
  });
}

describe("ids", () => {
  test("eight lower-case hex digits are packed, everything else is not", () => {
    for (const id of ["00000000", "ffffffff", "0a1b2c3d", "80000000"]) expect(unpackId(packId(id))).toBe(id);
    for (const id of ["", "0", "0a1b2c3", "0a1b2c3d4", "0A1B2C3D", "0a1b2c3g", "0a1b2c3 ", "-a1b2c3d", "０a1b2c3d"])
      expect(packId(id), id).toBe(-1);
  });

  test("are found again, whatever their shape", () => {
    forSeeds(4, (random) => {
      const { nodes, add } = grown();
      const first = new Map<string, number>();
      const names: string[] = [];
      for (let n = 0; n < 400; n++) {
        const id = randomId(random, 300);
        const position = add({ id, parentId: null });
        expect(position).toBe(n);
        names.push(nodes.id(position));
        if (!first.has(id)) first.set(id, position);
        else expect(nodes.id(position)).toMatch(/~\d+$/);
      }
      expect([...first.keys()].map((id) => nodes.position(id))).toEqual([...first.values()]);
      expect(new Set(names).size).toBe(names.length);
      expect(names.map((name) => nodes.position(name))).toEqual([...names.keys()]);
      expect(nodes.aliases).toBe(names.length - first.size);
      for (const id of ["deadbeef", "nowhere", "", "hasOwnProperty"]) expect(nodes.position(id), id).toBe(-1);
    });
  });

  test("that are taken become aliases, and references go to the first; an entry that has an alias's name keeps it", () => {
    const nodes = nodesOf("a a<a a c<a d<a~2 x~2 x x");
    expect(parentIds(nodes)).toEqual([null, "a", null, "a", "a~2", null, null, null]);
    const ids = Array.from({ length: nodes.count }, (_, n) => nodes.id(n));
    expect(ids).toEqual(["a", "a~2", "a~3", "c", "d", "x~2", "x", "x~3"]);
    expect(nodes.position("x~2")).toBe(5);
  });
});

describe("parents", () => {
  test("in any file order lead where the ids say", () => {
    forSeeds(12, (random) => {
      const count = 1 + random.int(120);
      const ids = Array.from({ length: count }, (_, n) => (random.chance(0.5) ? unpackId(n * 7919) : `odd-${n}`));
      const parents = ids.map((_, n) => (n === 0 || random.chance(0.1) ? null : ids[random.int(n)]));
      const order = ids.map((_, n) => n);
      for (let n = count - 1; n > 0; n--) {
        const other = random.int(n + 1);
        [order[n], order[other]] = [order[other], order[n]];
      }
      const { nodes, add } = grown();
      for (const n of order) add({ id: ids[n], parentId: parents[n] });
      expect(nodes.cutCycles()).toEqual([]);
      expect(parentIds(nodes)).toEqual(order.map((n) => parents[n]));
      expect(nodes.missingParent.size).toBe(0);
      // Those whose parent stood later.
      const later = order.map((n) => order.indexOf(ids.indexOf(parents[n] ?? "")));
      expect([...nodes.forward].sort((a, b) => a - b)).toEqual(later.flatMap((at, n) => (at > n ? [n] : [])));
    });
  });
});

test("a copy of a line has the node that the line has", () => {
  forSeeds(4, (random) => {
    const { nodes, add } = grown();
    const copies = new Nodes();
    const ids = [...new Set(Array.from({ length: 200 }, () => randomId(random, 200)))];
    for (const id of ids) {
      const parentId = random.chance(0.1) ? null : random.chance(0.1) ? randomId(random, 400) : random.pick(ids);
      const message = { role: random.pick(["user", "assistant", "bashExecution", "unheard of"]) };
      add({ id, parentId, type: random.pick(["message", "label", "one", "other"]), message });
    }
    for (let position = 0; position < nodes.count; position++) expect(copies.addLike(nodes, position)).toBe(position);
    const { table, ...copied } = copies.image();
    const { table: itsTable, ...image } = nodes.image();
    expect(copied).toEqual(image);
    expect(table.length).toBe(itsTable.length);
  });
});

describe("cycles", () => {
  test("anywhere are cut at the last node whose parent comes later, else at the last, and cost one link each", () => {
    forSeeds(20, (random) => {
      const count = 1 + random.int(60);
      const { nodes, add } = grown();
      const parents = Array.from({ length: count }, () => (random.chance(0.1) ? -1 : random.int(count)));
      for (const [n, parent] of parents.entries()) add({ id: `n${n}`, parentId: parent < 0 ? null : `n${parent}` });
      const cut = new Set(nodes.cutCycles());
      const onCycle = (start: number): number[] => {
        const walked: number[] = [];
        for (let at = start; at >= 0; at = parents[at]) {
          if (walked.includes(at)) return walked.slice(walked.indexOf(at));
          walked.push(at);
        }
        return [];
      };
      const expected = new Set<number>();
      for (let n = 0; n < count; n++) {
        const cycle = onCycle(n);
        const forward = cycle.filter((at) => parents[at] > at);
        if (cycle.length > 0) expected.add(Math.max(...(forward.length > 0 ? forward : cycle)));
      }
      expect(cut).toEqual(expected);
      for (let n = 0; n < count; n++)
        expect(nodes.parent(n)).toBe(cut.has(n) ? MISSING : parents[n] < 0 ? ROOT : parents[n]);
      for (const n of cut) expect(nodes.missingParent.get(n)).toBe(`n${parents[n]}`);
      expect(nodes.cutCycles()).toEqual([]);
    });
  });
});

test("going back forgets what came after and nothing before", () => {
  forSeeds(8, (random) => {
    const entries = Array.from({ length: 80 }, () => ({
      id: randomId(random, 60),
      parentId: random.chance(0.2) ? null : randomId(random, 60),
    }));
    const keep = random.int(entries.length);
    const whole = grown();
    for (const entry of entries) whole.add(entry);
    whole.nodes.truncate(keep);
    const half = grown();
    for (const entry of entries.slice(0, keep)) half.add(entry);
    // In another order, so that positions mean something else, and among them ids that were waited for in vain.
    const more = entries
      .slice(keep)
      .reverse()
      .map((entry) => (random.chance(0.5) ? entry : { ...entry, id: random.pick(entries).parentId ?? "x" }));
    for (const { nodes, add } of [whole, half]) {
      expect(nodes.count).toBe(keep);
      for (const entry of more) add(entry);
      nodes.cutCycles();
    }
    const idsIn = (nodes: Nodes) => Array.from({ length: nodes.count }, (_, p) => nodes.id(p));
    expect(idsIn(whole.nodes)).toEqual(idsIn(half.nodes));
    for (const id of [...idsIn(half.nodes), ...entries.map((entry) => entry.id)])
      expect(whole.nodes.position(id), id).toBe(half.nodes.position(id));
    expect(parentIds(whole.nodes)).toEqual(parentIds(half.nodes));
  });
});

describe("types and roles", () => {
  test("any type is answered as it was given", () => {
    const { nodes, add } = grown();
    const types = ["message", "compaction", "unheard_of", "__proto__", "unheard_of", "漢字", "toString"];
    for (const [n, type] of types.entries()) add({ id: `n${n}`, parentId: null, type });
    expect(types.map((_, n) => nodes.type(n))).toEqual(types);
    expect(nodes.isType(1, "compaction")).toBe(true);
    expect(nodes.isType(2, "compaction")).toBe(false);
  });

  test("more types than there are codes do not mix with known ones", SWEEP, () => {
    const { nodes, add } = grown();
    for (let n = 0; n < 70_000; n++) add({ id: `n${n}`, parentId: null, type: `t${n}` });
    const last = add({ id: "m", parentId: null, type: "message", message: { role: "user" } });
    expect(nodes.type(last)).toBe("message");
    expect(nodes.role(last)).toBe("user");
    expect(nodes.type(100)).toBe("t100");
  });

  test("a message's role is known, and whether it has a message at all", () => {
    const { nodes, add } = grown();
    const known = ["user", "assistant", "toolResult", "system", "custom", "bashExecution"];
    const roles = [...known, "unheard_of", "hookMessage", 5];
    for (const [n, role] of roles.entries()) add({ id: `n${n}`, parentId: null, type: "message", message: { role } });
    expect(roles.map((_, n) => nodes.role(n))).toEqual([...known, "other", "custom", "other"]);
    const none = add({ id: "none", parentId: null, type: "message", message: null });
    const other = add({ id: "other", parentId: null, type: "custom", message: { role: "user" } });
    expect([nodes.hasNoMessage(none), nodes.hasNoMessage(0)]).toEqual([true, false]);
    expect(nodes.role(other)).toBe("");
  });
});
