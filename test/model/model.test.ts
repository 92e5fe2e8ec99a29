/** The rule "facts learned without the lock are guesses", checked in every state of small worlds (docs/model.md). */

import { SYSTEM } from "../support/tiers.ts";
import { holds, isBroken } from "./checks.ts";
import { MUTANTS, SMALL } from "./worlds.ts";

holds(
  SMALL.map((world) => ({ world })),
  "suite",
  SYSTEM,
);

isBroken(
  MUTANTS.filter(({ isLarge }) => !isLarge),
  "mutants",
);
