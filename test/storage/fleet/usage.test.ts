/** The sums of a fleet: each call of a model counts once, also of forks whose originals are gone. No database is needed. */

import { expect, test } from "vitest";
import { headerLine, headerOf } from "../../../src/core/format/entry.ts";
import { bytesOf, parse } from "../../../src/core/json/json.ts";
import type { Catalog, Listed } from "../../../src/core/ports/catalog.ts";
import type { FleetCatalog, FleetListed, FleetSpent } from "../../../src/core/ports/fleet-catalog.ts";
import type { LocalCatalog } from "../../../src/storage/catalog/catalog.ts";
import { factsBase, foundIn } from "../../../src/storage/fleet/facts.ts";
import { JointFleetCatalog } from "../../../src/storage/fleet/joint-catalog.ts";
import { memoryStore } from "../../../src/storage/memory.ts";
import { realEnv } from "../../support/catalog.ts";

/** A session of the fleet with an answer that it took over and one of its own. */
function spentBy(id: string, parentSession: string | null, [taken, own]: readonly [number, number]): FleetSpent {
  const facts = { cwd: "/p", name: null, firstMessage: null, parentSession, timestamp: null, modified: null };
  const session = { ...facts, id, shortId: id, messages: 1, isPlain: true, entries: 1, sizeBytes: 1, archived: false };
  const spending = (isInherited: boolean, cost: number) => ({
    ...{ quarter: 0, provider: "p", model: "m", isInherited, numbers: [1, 0, 1, 1, 0, 0, 2, cost] },
  });
  return {
    session: { ...session, parent: null, key: 0 } as FleetListed,
    spendings: [spending(true, taken), spending(false, own)],
  };
}

async function costs(spent: readonly FleetSpent[], present: readonly string[]): Promise<unknown> {
  const there = {
    spent: async () => spent,
    known: async (ids: readonly string[]) =>
      new Map(ids.filter((id) => present.includes(id)).map((id) => [id, { messages: 1, isDeleted: false }])),
    list: async () => ({ sessions: [], total: 0 }),
    behind: async () => 0,
  } as unknown as FleetCatalog;
  const local = {
    counted: async () => ({ sessions: [], models: [], incomplete: [], archivedLeftOut: 0 }),
    list: async () => ({ found: [] as Listed[], total: 0, shortId: (id: string) => id }),
  } as unknown as LocalCatalog;
  const sha256 = (bytes: Uint8Array): string => realEnv.sha256(bytes);
  const placeFor = ({ id }: FleetListed) => ({ path: `/there/${id}.jsonl`, store: "jsonl" as const });
  const catalog = new JointFleetCatalog({ there, local, here: local as unknown as Catalog, placeFor, sha256 });
  const { totals } = await catalog.usage({ groupBy: [], dayOf: () => 0 });
  return [totals.cost, totals.inherited.cost];
}

test("what forks took over counts in their original, or, where that is gone, in one of them", async () => {
  const forks = [spentBy("a", "/x/1_parent.jsonl", [4, 1]), spentBy("b", "/x/1_parent.jsonl", [4, 2])];
  expect(await costs(forks, ["parent"])).toEqual([3, 8]);
  expect(await costs(forks, [])).toEqual([7, 4]);
});

test("an imported fork takes over what its header says, whatever times its entries have", () => {
  const answer = (id: string): Uint8Array => {
    const usage = { input: 1, output: 1, cost: { total: 1 } };
    const message = { role: "assistant", content: [], usage, timestamp: 9e12 };
    return bytesOf(JSON.stringify({ type: "message", id, parentId: null, timestamp: "2027-01-01T00:00:00Z", message }));
  };
  const line = headerLine({
    ...{ id: "f", timestamp: "2026-01-01T00:00:00Z", cwd: "/p", parentSession: "/x/o.json" },
    importedFrom: { agent: "opencode", id: "f", takenOver: { session: "o", lastId: "bbbbbbbb" } },
  });
  const log = memoryStore().create({ headerLine: line, header: headerOf(parse(line) as object) });
  log.append(["aaaaaaaa", "bbbbbbbb", "cccccccc"].map(answer));
  const { spendings } = foundIn(log, factsBase(log.header), true, 0, 3);
  expect(spendings.map(({ isInherited, numbers }) => [isInherited, numbers[0]])).toEqual([
    [true, 2],
    [false, 1],
  ]);
});
