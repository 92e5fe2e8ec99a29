/** Text of a session as HTML that shows it and does nothing else. */

const ESCAPED: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

// Control characters except line feeds and tabs, and marks that change the direction of the text after them.
// biome-ignore lint/suspicious/noControlCharactersInRegex: the expression searches for these
const ACTIVE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Makes characters visible that act instead of being seen: controls as their pictures, others as a replacement. */
function toVisibleText(text: string): string {
  return text
    .replace(/\r\n/g, "\n")
    .replace(ACTIVE, (c) => (c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : "\ufffd"));
}

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
