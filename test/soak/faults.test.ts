/** Every operation of the disk fails in every way, one at a time. */

import { pipelineWithFault, runWithFault } from "../support/proof-faults.ts";
import { soak } from "../support/soak.ts";

const ERRORS = ["EIO", "ENOSPC", "EDQUOT", "EROFS"] as const;
const KINDS = ["fail", "short"] as const;
const RUNS = [runWithFault, pipelineWithFault];

const STORES = ["jsonl", "v2"] as const;

/** Every combination of the four. */
const UNITS = ERRORS.flatMap((errno) =>
  KINDS.flatMap((kind) => RUNS.flatMap((run) => STORES.map((store) => ({ errno, kind, run, store })))),
);

soak("faults", async (_random, number) => {
  const { errno, kind, run, store } = UNITS[(number - 1) % UNITS.length];
  const operations = await run(undefined, store);
  for (let at = 1; at <= operations; at++) await run({ kind, at, errno }, store);
  return { runs: 1, faults: operations };
});
