/** Text of a session as HTML that shows it and does nothing else. */

import { toVisibleText } from "../core/export/content.ts";

const ESCAPED: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Characters that are replaced at a time: V8 ends the process where one call replaces many millions. */
const SLICE = 1 << 16;

/** Returns what a function makes of a text, a slice at a time; line ends and pairs of characters stay whole. */
export function changeBySlices(text: string, change: (slice: string) => string): string {
  if (text.length <= SLICE) return change(text);
  let changed = "";
  for (let from = 0; from < text.length; ) {
    let end = Math.min(text.length, from + SLICE);
    if (/[\r\ud800-\udbff]/.test(text[end - 1])) end++;
    changed += change(text.slice(from, end));
    from = end;
  }
  return changed;
}

/** Returns text without characters that act: controls, marks of direction, and halves of characters. */
export function toReadable(text: string): string {
  return changeBySlices(text, withoutActors);
}

function withoutActors(text: string): string {
  return toVisibleText(text).replace(/[\ud800-\udfff]/gu, "\ufffd");
}

/** Returns text that a browser shows as it is. */
export function escapeHtml(text: string): string {
  return changeBySlices(text, (slice) => withoutActors(slice).replace(/[&<>"']/g, (c) => ESCAPED[c]));
}

/** Returns whether a link may lead there. */
export function isLinkable(address: string): boolean {
  return /^(?:https?:\/\/|mailto:)[^\s"'<>\\]+$/i.test(toReadable(address));
}
