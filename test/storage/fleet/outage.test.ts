/** How long nobody waits for a fleet's database. */

import { expect, test, vi } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";

const failing = (retryable: boolean) => new Failure("storage_failed", "test", { fleet: true }, { retryable });

test.each([
  ["answers", null, false],
  ["does not answer", failing(true), true],
  ["refuses", failing(false), false],
])("an outage lasts as it should where the database %s", async (_what, failure, lasts) => {
  let now = 0;
  const look = vi.fn(() => (failure ? Promise.reject(failure) : Promise.resolve(null)));
  const outage = new Outage({ look }, 1, () => (now += 10));
  outage.begin();
  for (let n = 1; n < 4; n++) {
    expect(outage.lasts).toBe(n === 1 || lasts);
    await new Promise(setImmediate);
  }
  expect(look.mock.calls.length).toBe(lasts ? 3 : 1);
});
