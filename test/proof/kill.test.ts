/** kill -9 on the real program and the real file system (short form; 200 runs in soak). */

import { expect, test } from "vitest";
import { killRuns } from "../support/proof-kill.ts";
import { forSeedsAsync } from "../support/random.ts";

test("every answered entry and position is there after kill -9, and what is sent again is there once", async () => {
  await forSeedsAsync(1, async (random) => {
    const runs = await killRuns(random, 8);
    // A run in which all was answered before the kill shows nothing.
    expect(runs.filter(({ sent, answered }) => answered < sent).length).toBeGreaterThan(0);
  });
});
