/** Every operation of the disk fails in every way, one at a time. */

import { test } from "vitest";
import { pipelineWithFault, runWithFault } from "../support/proof-faults.ts";

test.each(["EIO", "ENOSPC", "EDQUOT", "EROFS"])("%s at every operation", async (errno) => {
  const kinds = ["fail", "short"] as const;
  for (const run of [runWithFault, pipelineWithFault]) {
    const operations = await run(undefined);
    for (const kind of kinds) for (let at = 1; at <= operations; at++) await run({ kind, at, errno });
  }
});
