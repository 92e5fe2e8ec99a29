/** The rule "what was learned without the lock is a guess", checked in every state of small worlds (docs/model.md). */

import { expect, test } from "vitest";
import { SYSTEM } from "../support/tiers.ts";
import { holds, isBroken } from "./checks.ts";
import { explore } from "./explorer.ts";
import { MUTANTS, SMALL } from "./worlds.ts";

holds(
  SMALL.map((world) => ({ world })),
  "suite",
  SYSTEM,
);

isBroken(
  MUTANTS.filter(({ isLarge }) => !isLarge),
  "mutants",
);

test("the explorer finds a shortest way, and all states where nothing is wrong", () => {
  const counter = {
    initial: 0,
    *steps(n: number): Generator<readonly [string, number]> {
      if (n < 20) yield ["one", n + 1];
      if (n < 19) yield ["two", n + 2];
    },
    keyOf: String,
    faults: (n: number) => (n === 7 ? ["seven"] : n === 5 ? ["five"] : []),
  };
  expect(explore(counter).found).toEqual({ fault: "five", trace: ["one", "two", "two"], state: 5 });
  expect(explore(counter, { fault: (name) => name === "seven" }).found?.trace).toHaveLength(4);
  const whole = explore(counter, { fault: () => false });
  expect([whole.states, whole.isWhole, whole.depth]).toEqual([21, true, 10]);
  expect(explore(counter, { depth: 2 }).isWhole).toBe(false);
  expect(explore(counter, { states: 4, fault: () => false }).isWhole).toBe(false);
});
