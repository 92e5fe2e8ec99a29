/** The rule "what was learned without the lock is a guess", checked in every state of small worlds (docs/model.md). */

import { describe, expect, test } from "vitest";
import { SYSTEM } from "../support/tiers.ts";
import { explore } from "./explorer.ts";
import { noteOf } from "./note.ts";
import { ruleOf } from "./rule.ts";
import { inWords, MUTANTS, SMALL } from "./worlds.ts";

describe("the rule", () => {
  test.each(SMALL.map((world) => [inWords(world), world] as const))(
    "holds in every state: %s",
    SYSTEM,
    (_words, world) => {
      const explored = explore(ruleOf(world));
      expect(explored.found).toBeNull();
      expect(explored.isWhole).toBe(true);
      noteOf("suite").row(inWords(world), [explored.states, explored.steps, explored.depth]);
    },
  );

  const small = MUTANTS.filter(({ isLarge }) => !isLarge);

  test.each(small.map((mutant) => [mutant.name, inWords(mutant.world), mutant] as const))(
    "is broken by a log that %s: %s",
    (_name, _words, { name, world, mutation, fault }) => {
      const { found, states } = explore(
        ruleOf(world, mutation),
        fault === undefined ? {} : { fault: (at) => at === fault },
      );
      expect(found).not.toBeNull();
      noteOf("mutants").row(`${name} (${inWords(world)})`, [found?.fault ?? "", states, found?.trace.join(", ") ?? ""]);
    },
  );
});

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
