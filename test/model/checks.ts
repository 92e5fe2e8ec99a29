/** Results of a run of the model, checked against the tables of docs/model.md, in small worlds and in large ones. */

import { expect, type TestOptions, test } from "vitest";
import { explore } from "./explorer.ts";
import { noteOf } from "./note.ts";
import { ruleOf } from "./rule.ts";
import { inWords, type Mutant } from "./worlds.ts";

/** Tests that the rule holds in every state of some worlds. */
export function holds(
  mutants: readonly (Omit<Mutant, "name"> & Partial<Mutant>)[],
  table: string | undefined,
  options: TestOptions = {},
): void {
  const named = (words: string, name?: string): string => (name ? `${words}, by a log that ${name}` : words);
  test.each(mutants.map((mutant) => [named(inWords(mutant.world), mutant.name), mutant] as const))(
    "the rule holds in every state: %s",
    options,
    (words, { world, mutation }) => {
      const { found, states, steps, depth } = explore(ruleOf(world, mutation));
      expect(found).toBeNull();
      if (table !== undefined) noteOf(table).row(words, [states, steps, depth]);
    },
  );
}

/** Tests that logs which do not keep the rule are found out. */
export function isBroken(mutants: readonly Mutant[], table: string): void {
  test.each(mutants.map((mutant) => [mutant.name, inWords(mutant.world), mutant] as const))(
    "the rule is broken by a log that %s: %s",
    (name, words, { world, mutation, fault }) => {
      const { found, states } = explore(ruleOf(world, mutation), (at) => at === (fault ?? at));
      expect(found).not.toBeNull();
      noteOf(table).row(`${name} (${words})`, table === "mutants" ? [found?.fault ?? "", states] : [states]);
    },
  );
}
