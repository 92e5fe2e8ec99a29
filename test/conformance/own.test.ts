/**
 * Our own server keeps every rule, in all combinations of framing and dialect.
 *
 * @module-tag system
 */

import { expect, test } from "vitest";
import { COMBINATIONS } from "../../src/conformance/combination.ts";
import type { Theme } from "../../src/conformance/rule.ts";
import { THEMES } from "../../src/conformance/rules.ts";
import { evidenceOf, OWN, rulesThat, runHere, runKit } from "../support/conformance.ts";
import { isEvery, range, share } from "../support/random.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

/** A limit of messages that is quick to go beyond. */
const COMMAND = [...OWN, "--max-message-bytes", "1000000"];

/** Combinations with the built program as a process, whose start is most of the time. The others serve here. */
const SPAWNED = share(COMBINATIONS, 1);

/** Combinations of the ordinary suite: one with each framing and each dialect. The long runs go through all. */
const [CHOSEN] = SPAWNED;
const TRIED = COMBINATIONS.filter(
  ({ framing, dialect }) => isEvery() || (framing === CHOSEN.framing) === (dialect === CHOSEN.dialect),
);

/** The themes are checked in so many parts, each with its own servers. */
const PARTS = 4;

/** Returns the themes of a part, and the one that judges what all servers have done. */
function themesOf(part: number): Theme[] {
  return THEMES.filter(({ name }, n) => n % PARTS === part || name === "throughout");
}

for (const combination of TRIED) {
  const { framing, dialect } = combination;
  const isSpawned = SPAWNED.includes(combination);

  test.each(range(0, PARTS))(`${framing}, ${dialect}, part %i`, isSpawned ? SWEEP : SYSTEM, async (part) => {
    const combinations = [combination];
    const themes = themesOf(part);
    const result = isSpawned
      ? await runKit({ combinations, themes, command: COMMAND })
      : await runHere({ combinations, themes });
    expect(evidenceOf(result)).toBe("");
    // The command takes no path of a session.
    const rules = themes.flatMap((theme) => theme.rules.map(({ name }) => name));
    expect(rulesThat("skipped", result)).toEqual(rules.filter((name) => name === "unopenable-session"));
    expect(result.ok).toBe(true);
    expect(result.notes).toEqual([]);
  });
}
