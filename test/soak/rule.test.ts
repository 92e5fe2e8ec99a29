/** The model of the rule, in larger worlds, and its traces on the real stores, many. */

import { expect, test } from "vitest";
import { explore } from "../model/explorer.ts";
import { noteOf } from "../model/note.ts";
import { ruleOf } from "../model/rule.ts";
import { HARMLESS, inWords, LARGE, MUTANTS } from "../model/worlds.ts";

test.each(LARGE.map((world) => [inWords(world), world] as const))(
  "the rule holds in every state: %s",
  (_words, world) => {
    const explored = explore(ruleOf(world));
    expect(explored.found).toBeNull();
    expect(explored.isWhole).toBe(true);
    noteOf("soak").row(inWords(world), [explored.states, explored.steps, explored.depth]);
  },
);

const large = MUTANTS.filter(({ isLarge }) => isLarge);

test.each(large.map((mutant) => [mutant.name, inWords(mutant.world), mutant] as const))(
  "the rule is broken by a log that %s: %s",
  (_name, _words, { name, world, mutation, fault }) => {
    const { found, states } = explore(ruleOf(world, mutation), { fault: (at) => at === fault });
    expect(found).not.toBeNull();
    noteOf("losses").row(`${name} (${inWords(world)})`, [states, found?.trace.join(", ") ?? ""]);
  },
);

test.each(HARMLESS.map((mutant) => [mutant.name, inWords(mutant.world), mutant] as const))(
  "the rule holds for a log that %s: %s",
  (_name, _words, { world, mutation }) => {
    const explored = explore(ruleOf(world, mutation));
    expect(explored.found).toBeNull();
    expect(explored.isWhole).toBe(true);
  },
);
