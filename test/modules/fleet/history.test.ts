/** Random histories over a fleet in memory, and the faults that they find in fleets that break a rule. */

import { describe, expect, test } from "vitest";
import type { Fleet, FleetBatch, FleetOutcome } from "../../../src/core/ports/fleet.ts";
import { finishFacts } from "../../../src/modules/fleet/replica/late-facts.ts";
import { Outage } from "../../../src/modules/fleet/replica/outage.ts";
import { makeMemoryStore } from "../../../src/storage/memory.ts";
import { forSeedsAsync, Random, range } from "../../support/random.ts";
import { SWEEP } from "../../support/tiers.ts";
import { type HistoryFigures, runHistory } from "./support/history.ts";
import { FleetTable, MemoryFleet } from "./support/table-fleet.ts";

interface Kind {
  /** The rule that the fleet breaks. */
  readonly breaks?: (fleet: MemoryFleet) => Fleet;
  /** True if machines go on while the fleet is away. */
  readonly isJournaled?: boolean;
  /** Changes that a standby may lack when it is promoted, at most; without it, none is promoted. */
  readonly missing?: number;
}

const FAULTS = ["before", "after", "late"] as const;

async function histories(random: Random, kind: Kind = {}): Promise<HistoryFigures> {
  const { breaks = (fleet) => fleet, isJournaled = false, missing } = kind;
  const table = new FleetTable();
  if (missing !== undefined) table.past = [];
  const chaos = new Random(random.int(2 ** 31));
  const share = chaos.pick([0.05, 0.15, 0.4]);
  const tries = chaos.pick([0, 1, 3]);
  let isCalm = false;
  const turns = async (most: number): Promise<void> => {
    for (let n = chaos.int(most); n > 0; n--) await Promise.resolve();
  };
  /** Machines that do not reach the fleet now, by their numbers. */
  const cut = new Set<number>();
  const figures = await runHistory(
    {
      random,
      machines: 3,
      sessions: 2,
      steps: 12,
      tries,
      mayLose: missing !== undefined && missing > 0,
      fleetOf(machine, life) {
        const fleet = new MemoryFleet(table, `machine ${machine}, life ${life}`);
        fleet.turns = () => turns(4);
        fleet.faultAt = () => {
          if (missing !== undefined && !isCalm && chaos.chance(0.02)) table.promote(chaos.int(missing + 1));
          fleet.leasesEnd = isCalm || chaos.chance(0.3);
          if (isJournaled && chaos.chance(0.08) && !cut.delete(machine)) cut.add(machine);
          if (isCalm) return undefined;
          return cut.has(machine) ? "before" : chaos.chance(share) ? chaos.pick(FAULTS) : undefined;
        };
        return breaks(fleet);
      },
      outageOf: (fleet) => (isJournaled ? new Outage(fleet, 0, () => 0) : undefined),
      wait: () => turns(20),
      async pause() {
        await turns(200);
        // Lets the work after replies run.
        await new Promise((resolve) => setImmediate(resolve));
      },
    },
    async () => {
      isCalm = true;
    },
    (id) => table.linesOf(id),
  );
  const place = { fleet: new MemoryFleet(table, "the next one"), memory: makeMemoryStore() };
  for (const [id, { headerLine, end, epoch, indexed }] of table.rows)
    if (indexed < end.entries) expect(await finishFacts(place, { id, headerLine, end, epoch, indexed })).toBe(true);
  table.check();
  await Promise.all(table.packings);
  return figures;
}

/** Declares a test of one history, and one of many in the sweep. */
function testHistories(title: string, many: number, run: (count: number) => Promise<void>): void {
  test(title, () => run(1));
  test(`${title} (${many} times)`, SWEEP, () => run(many));
}

/** Runs histories, each with its own kind. Returns the sums of their figures. */
async function sums(count: number, kindOf: (random: Random) => Kind = () => ({})): Promise<HistoryFigures> {
  const all: HistoryFigures[] = [];
  await forSeedsAsync(count, async (random) => {
    const kind = kindOf(random);
    const figures = await histories(random, kind);
    all.push(figures);
  });
  const sum = (name: keyof HistoryFigures): number => all.reduce((total, figures) => total + figures[name], 0);
  return Object.fromEntries(Object.keys(all[0]).map((name) => [name, sum(name as keyof HistoryFigures)])) as never;
}

testHistories(
  "what is acknowledged is there once, what is refused is not, and copies say the same",
  20,
  async (count) => {
    expect((await sums(count)).acknowledged).toBeGreaterThan(10 * count);
  },
);

// One call that fails is no outage: fewer of them have two machines go on alone.
testHistories("what is acknowledged while the fleet is away is there once, or as a branch", 40, async (count) => {
  const { local, branches } = await sums(count, () => ({ isJournaled: true }));
  expect(local).toBeGreaterThan(2.5 * count);
  // A few histories may have none.
  expect(branches).toBeGreaterThanOrEqual(Math.floor(count / 10));
});

testHistories("what is acknowledged outlives promotions, in order or as a branch", 20, async (count) => {
  const pickMissing = (random: Random): Kind => ({ missing: random.pick([0, 2, 10]), isJournaled: random.chance(0.3) });
  expect((await sums(count, pickMissing)).branches).toBeGreaterThanOrEqual(Math.floor(count / 20));
});

describe("a fleet is found out", () => {
  /** Has a fleet say something else of appends than what became of them. */
  const report =
    (say: (outcome: FleetOutcome) => FleetOutcome) =>
    (fleet: MemoryFleet): Fleet => {
      const append = fleet.append.bind(fleet);
      return Object.assign(fleet, { append: async (batch: FleetBatch) => say(await append(batch)) });
    };
  const MUTANTS: Readonly<Record<string, (fleet: MemoryFleet) => Fleet>> = {
    "that does not look at the epoch": (fleet) => Object.assign(fleet, { breaks: "epoch" }),
    "that looks at neither": (fleet) => Object.assign(fleet, { breaks: "both" }),
    "that says of what is unknown that it was not sent": report((outcome) =>
      outcome.kind === "unknown" ? { kind: "away", reason: "not sent" } : outcome,
    ),
    "that takes no answer for a yes": report((outcome) =>
      outcome.kind === "unknown" ? { kind: "committed", durability: "replicated" } : outcome,
    ),
  };
  test.each(Object.entries(MUTANTS))("%s", async (_, breaks) => {
    // The first two are enough for most rules.
    for (const seed of [11, 18, ...range(1, 61)])
      try {
        await histories(new Random(seed), { breaks });
      } catch {
        return;
      }
    expect.unreachable();
  });
});
