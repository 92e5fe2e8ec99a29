/** Lines that say why the output may lack sessions of other machines. */

import type { OutputStyle } from "./terminal/page.ts";
import { show } from "./terminal/text.ts";

/** Yields the lines if the reply has `limited`. */
export function* formatLimits({ limited }: { readonly limited?: string }, { paint }: OutputStyle): Generator<string> {
  if (limited === undefined) return;
  yield paint("yellow", show`Sessions on other machines may be missing: ${limited}`);
}
