/** The order of a lane: nothing leaves before everything applied ahead of it is durable, and nothing out of its turn. */

import { describe, expect, test } from "vitest";
import { Lane } from "../../../src/server/dispatch/lane.ts";
import { forSeeds } from "../../support/random.ts";

const NOTHING = { outcome: { result: null }, events: [] };

describe("a lane", () => {
  test("keeps slot.after <= durable <= applied for whatever leaves, in the order in which it came", () => {
    forSeeds(80, (random) => {
      const lane = new Lane(null);
      /** Numbers of writes that must be durable, of those pushed; those that have left are taken out at the front. */
      const waiting: number[] = [];
      let applied = 0;
      let durable = 0;
      const marks: number[] = [];
      const errors: unknown[] = [];
      const expected: unknown[] = [];
      for (let step = 0; step < 100; step++) {
        const what = random.int(6);
        if (what === 0) {
          const settled = random.chance(0.3);
          lane.apply(settled);
          applied++;
          if (settled) durable = applied;
        } else if (what === 1) {
          lane.push({ ...NOTHING });
          waiting.push(applied);
        } else if (what === 2) marks.push(lane.applied);
        else if (what === 3 && marks.length > 0) {
          // Commits end in any order, as far as the lane knows.
          const [mark] = marks.splice(random.int(marks.length), 1);
          lane.markDurable(mark);
          durable = Math.max(durable, mark);
        } else {
          const slot = lane.shift();
          errors.push(slot?.after);
          expected.push(waiting.length > 0 && waiting[0] <= durable ? waiting.shift() : undefined);
        }
        errors.push([lane.applied, lane.durable, lane.slots.length, lane.isDurable]);
        expected.push([applied, durable, waiting.length, applied === durable]);
      }
      expect(errors).toEqual(expected);
    });
  });

  test("refuses to call durable what was not applied", () => {
    const lane = new Lane(null);
    lane.apply(false);
    expect(() => lane.markDurable(2)).toThrow("no write is durable that was not applied");
    expect([lane.applied, lane.durable]).toEqual([1, 0]);
  });
});
