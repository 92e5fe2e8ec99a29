/** The model of the rule in larger worlds, and what alone does no harm to it. */

import { holds, isBroken } from "../model/checks.ts";
import { HARMLESS, LARGE, MUTANTS } from "../model/worlds.ts";

holds(
  LARGE.map((world) => ({ world })),
  "soak",
);
isBroken(
  MUTANTS.filter(({ isLarge }) => isLarge),
  "losses",
);
holds(HARMLESS, undefined);
