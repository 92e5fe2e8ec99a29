/** Every row of the reliability table, named after its id; docs/reliability.md lists them. */

import { describe, test } from "vitest";
import { framing } from "./cases/framing.ts";
import type { Case } from "../support/cases.ts";

const SECTIONS: Readonly<Record<string, readonly Case[]>> = { F: framing };

for (const [section, cases] of Object.entries(SECTIONS))
  describe(section, () => {
    for (const row of cases)
      if ("run" in row) test(`${row.id} ${row.fault}`, row.run);
      else test.skip(`${row.id} ${row.fault}: ${row.why}`);
  });

