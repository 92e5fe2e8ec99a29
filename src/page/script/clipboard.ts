/** Links as they are copied. */

import { type PagePlace, toHash } from "./links.ts";

/** Returns the page's address with another place. */
export function makePageLink(place: PagePlace): string {
  return location.href.replace(/#.*$/s, "") + toHash(place);
}

/** Copies a text, also where the clipboard may not be written directly. Returns whether it could. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "vh";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
