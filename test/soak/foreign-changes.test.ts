/** Files changed under an open server in every way, both stores, framings and dialects in turn. */

import { changeUnderneath, expectSound } from "../support/foreign-changes.ts";
import { soak } from "../support/soak.ts";

const CHANGES = 100;
/** How often the server is left alone until it looks by itself. */
const PATIENCE = 0.03;

soak("foreign-changes", async (random, number) => {
  const store = number % 2 === 0 ? "jsonl" : "v2";
  const framing = number % 4 < 3 ? "lines" : "headers";
  const dialect = number % 6 < 5 ? "jsonrpc" : "pi";
  const changed = await changeUnderneath(random, { store, framing, dialect, changes: CHANGES }, PATIENCE);
  expectSound(changed);
  const { changes, unseen, requests, acknowledged, damageTold, internalErrors, lost, unsound, hidden } = changed;
  return {
    changes,
    unseen,
    requests,
    acknowledged,
    damageTold,
    internalErrors,
    lost: lost.length,
    unsound: unsound.length,
    hidden: hidden.length,
  };
});
