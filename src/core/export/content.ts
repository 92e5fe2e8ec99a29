/** Text of a session as a person may read it, in every format. */

// Control characters except line feeds and tabs, and marks that change the direction of the text after them.
// biome-ignore lint/suspicious/noControlCharactersInRegex: the expression searches for these
const ACTIVE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Makes characters visible that act instead of being seen: controls as their pictures, others as a replacement. */
export function toVisibleText(text: string): string {
  return text
    .replace(/\r\n/g, "\n")
    .replace(ACTIVE, (c) => (c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : "\ufffd"));
}
