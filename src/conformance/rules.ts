/** Every rule, in the order of their checks. A new theme is a new file and a line here. */

import type { Theme } from "./rule.ts";
import { batchesTheme } from "./rules/batches.ts";
import { damageTheme } from "./rules/damage.ts";
import { durabilityTheme } from "./rules/durability.ts";
import { eventsTheme } from "./rules/events.ts";
import { framingTheme, onlyFrames } from "./rules/framing.ts";
import { hooksTheme } from "./rules/hooks.ts";
import { idsTheme } from "./rules/ids.ts";
import { introductionTheme } from "./rules/introduction.ts";
import { oneReply, orderTheme } from "./rules/order.ts";
import { pagingTheme } from "./rules/paging.ts";
import { piTheme } from "./rules/pi.ts";
import { readingTheme } from "./rules/reading.ts";
import { requestsTheme } from "./rules/requests.ts";
import { sessionsTheme } from "./rules/sessions.ts";
import { startingTheme } from "./rules/starting.ts";
import { writingTheme } from "./rules/writing.ts";

/** The rules by their themes. */
export const THEMES: readonly Theme[] = [
  startingTheme,
  introductionTheme,
  framingTheme,
  requestsTheme,
  idsTheme,
  batchesTheme,
  piTheme,
  orderTheme,
  eventsTheme,
  readingTheme,
  pagingTheme,
  writingTheme,
  durabilityTheme,
  damageTheme,
  hooksTheme,
  sessionsTheme,
  // Judges what all servers have done, so that it comes last.
  { name: "throughout", rules: [oneReply, onlyFrames] },
];
