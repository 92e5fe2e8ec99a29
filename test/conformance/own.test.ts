/** Our own server keeps every rule, in all combinations of framing and dialect. */

import { expect, test } from "vitest";
import { COMBINATIONS } from "../../src/conformance/combination.ts";
import { evidenceOf, OWN, rulesThat, runHere, runKit } from "../support/conformance.ts";
import { isEvery, share } from "../support/random.ts";

/** A limit of messages that is quick to go beyond. */
const COMMAND = [...OWN, "--max-message-bytes", "1000000"];

/** Combinations in which the built program is started: that is most of the time. In the others it serves here. */
const SPAWNED = share(COMBINATIONS, 1);

/** Combinations of the ordinary suite: one with each framing and each dialect. The long runs go through all. */
const [CHOSEN] = SPAWNED;
const TRIED = COMBINATIONS.filter(
  ({ framing, dialect }) => isEvery() || (framing === CHOSEN.framing) === (dialect === CHOSEN.dialect),
);

for (const combination of TRIED) {
  const { framing, dialect } = combination;
  const isSpawned = SPAWNED.includes(combination);

  test.concurrent(`${framing}, ${dialect}`, async () => {
    const combinations = [combination];
    const result = isSpawned ? await runKit({ combinations, command: COMMAND }) : await runHere({ combinations });
    expect(evidenceOf(result)).toBe("");
    // The command takes no path of a session.
    expect(rulesThat("skipped", result)).toEqual(["unopenable-session"]);
    expect(result.ok).toBe(true);
    expect(result.notes).toEqual([]);
  });
}
