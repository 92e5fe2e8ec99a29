/**
 * kill -9 in the middle of migrations, rollbacks and undos, beside a program that knows no pointer (300 kills in soak).
 *
 * @module-tag sweep
 */

import { expect, test } from "vitest";
import { killBeside } from "../support/beside-pi.ts";
import { forSeedsAsync } from "../support/random.ts";

test("there is one session after kill -9, which has every line of the other program", {
  timeout: 300_000,
}, async () => {
  await forSeedsAsync(1, async (random) => {
    const { kills } = await killBeside(random, 30);
    expect(kills).toBe(30);
  });
});
