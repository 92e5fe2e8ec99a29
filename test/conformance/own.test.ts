/** Our own server keeps every rule, in all combinations of framing and dialect. */

import { expect, test } from "vitest";
import { COMBINATIONS } from "../../src/conformance/combination.ts";
import { evidenceOf, OWN, rulesThat, runHere, runKit } from "../support/conformance.ts";
import { isEvery } from "../support/random.ts";

/** A limit of messages that is quick to go beyond. */
const COMMAND = [...OWN, "--max-message-bytes", "1000000"];

for (const combination of COMBINATIONS) {
  const { framing, dialect } = combination;
  // Starting processes is most of the time: the ordinary suite does it for each framing and each dialect.
  const isSpawned = isEvery() || (framing === "lines") === (dialect === "jsonrpc");

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
