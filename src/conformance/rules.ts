/** Every rule, in the order in which they are checked. A new theme is a new file and a line here. */

import type { Theme } from "./rule.ts";
import { batches } from "./rules/batches.ts";
import { damage } from "./rules/damage.ts";
import { durability } from "./rules/durability.ts";
import { events } from "./rules/events.ts";
import { framing, onlyFrames } from "./rules/framing.ts";
import { hooks } from "./rules/hooks.ts";
import { ids } from "./rules/ids.ts";
import { introduction } from "./rules/introduction.ts";
import { oneReply, order } from "./rules/order.ts";
import { paging } from "./rules/paging.ts";
import { pi } from "./rules/pi.ts";
import { reading } from "./rules/reading.ts";
import { requests } from "./rules/requests.ts";
import { sessions } from "./rules/sessions.ts";
import { starting } from "./rules/starting.ts";
import { writing } from "./rules/writing.ts";
import { transcriptTheme } from "./transcripts.ts";

/** Returns the rules by their themes, with those of the transcripts of this package. */
export function allThemes(): Theme[] {
  return [...THEMES, transcriptTheme(), THROUGHOUT];
}

const THEMES: readonly Theme[] = [
  starting,
  introduction,
  framing,
  requests,
  ids,
  batches,
  pi,
  order,
  events,
  reading,
  paging,
  writing,
  durability,
  damage,
  hooks,
  sessions,
];

/** Judges what all servers have done, so that it comes last. */
const THROUGHOUT: Theme = { name: "throughout", rules: [oneReply, onlyFrames] };
