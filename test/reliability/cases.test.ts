/** Every row of the reliability table, named after its id; docs/reliability.md lists them. */

import { describe, test } from "vitest";
import type { Case } from "../support/cases.ts";
import { context } from "./cases/context.ts";
import { crash } from "./cases/crash.ts";
import { disk } from "./cases/disk.ts";
import { fork } from "./cases/fork.ts";
import { framing } from "./cases/framing.ts";
import { load } from "./cases/load.ts";
import { locks } from "./cases/locks.ts";
import { protocol } from "./cases/protocol.ts";
import { security } from "./cases/security.ts";
import { tree } from "./cases/tree.ts";

const SECTIONS: Readonly<Record<string, readonly Case[]>> = {
  F: framing,
  R: protocol,
  L: load,
  T: tree,
  C: context,
  K: fork,
  X: locks,
  S: crash,
  D: disk,
  P: security,
};

for (const [section, cases] of Object.entries(SECTIONS))
  describe(section, () => {
    for (const row of cases)
      if ("run" in row) test(`${row.id} ${row.fault}`, row.run);
      else test.skip(`${row.id} ${row.fault}: ${row.why}`);
  });
