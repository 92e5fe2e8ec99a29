/** The rule "what was learned without the lock is a guess", checked in every state of small worlds (docs/model.md). */

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
