/** Lines that say why the output may lack sessions of other machines. */

import type { OutputStyle } from "./terminal/page.ts";
import { show, wrap } from "./terminal/text.ts";

/** Yields the lines if the reply has `limited`. */
export function* formatLimits(
  { limited }: { readonly limited?: string },
  { width, paint }: OutputStyle,
): Generator<string> {
  if (limited === undefined) return;
  const sentence = show`Sessions on other machines may be missing: ${limited}`;
  for (const line of wrap(sentence, width)) yield paint("yellow", line);
}
