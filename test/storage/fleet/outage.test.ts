/** How long nobody waits for a fleet's database. */

import { expect, test, vi } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";

test.each([
  ["answers", null, false],
  ["does not answer", new Failure("storage_failed", "away", { fleet: true }), true],
  ["refuses", new Failure("storage_failed", "wrong password", { fleet: true }, { retryable: false }), false],
])("an outage lasts as it should where the database %s", async (_what, failure, lasts) => {
  let now = 0;
  const elapsed = (): number => {
    now += 10;
    return now;
  };
  const look = vi.fn(async () => {
    if (failure) throw failure;
    return null;
  });
  const outage = new Outage({ look }, 1, elapsed);
  outage.begin();
  for (let n = 1; n < 4; n++) {
    expect(outage.lasts).toBe(n === 1 || lasts);
    await new Promise(setImmediate);
  }
  expect(look.mock.calls.length).toBe(lasts ? 3 : 1);
});
