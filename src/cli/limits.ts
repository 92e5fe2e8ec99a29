/** Lines that say why sessions of other machines may be missing from what was printed. */

import type { OutputStyle } from "./terminal/page.ts";
import { inert, wrap } from "./terminal/text.ts";

/** Yields them, where a reply says so. */
export function* limitLines(
  { limited }: { readonly limited?: string },
  { width, paint }: OutputStyle,
): Generator<string> {
  if (limited === undefined) return;
  const sentence = `Sessions on other machines may be missing: ${inert(limited)}`;
  for (const line of wrap(sentence, width)) yield paint("yellow", line);
}
