/** Texts of sessions as data: controls visible, fenced, cut at whole characters, within a budget of bytes. */

/** Bytes of an answer: the most ever, and of its first line and its last. */
export const MOST_BYTES = 32_000;
const HEAD_BYTES = 700;
const FOOT_BYTES = 1200;
/** Backticks in a row that are shown as they are. */
const LONGEST_RUN = 24;

/** Characters that act on a terminal, change the direction of text, or are not seen at all. */
const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: matches the control characters
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]|[\u200c\u200d](?![^\x00-\x7f\u200b-\u200f])|(?<![^\x00-\x7f\u200b-\u200f])[\u200c\u200d]|[\u180b-\u180e]|[\ufe00-\ufe0e]|[\u{e0000}-\u{e0fff}]/gu;

/** Halves of surrogate pairs. */
const HALVES = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Makes controls and characters that no reader sees visible, as their escapes. */
export function showControls(text: string): string {
  const plain = text.replace(HALVES, "\ufffd").replaceAll("\r\n", "\n");
  return plain.replace(HIDDEN, (c) => {
    const code = (c.codePointAt(0) as number).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });
}

/** Returns a text on one line of so many characters at most. */
export function toInline(text: string, most: number): string {
  const line = showControls(
    text
      .slice(0, most * 8)
      .replace(/\s+/g, " ")
      .trim(),
  );
  const characters = [...line];
  const shown = characters.length <= most ? line : `${characters.slice(0, most - 1).join("")}…`;
  // A line that begins with a fence would open one.
  return shown.replace(/`{3,}/g, (run) => "'".repeat(run.length));
}

/** Returns a text that a session chose, in quotation marks on one line. */
export function quote(text: string, most: number): string {
  return `"${toInline(text, most).replaceAll('"', "'")}"`;
}

/** Returns as many whole characters as fit into so many bytes, with a mark where it was cut. */
export function cutBytes(text: string, most: number): { readonly text: string; readonly used: number } {
  if (Buffer.byteLength(text) <= most) return { text, used: text.length };
  let end = Math.min(text.length, most);
  while (end > 0 && Buffer.byteLength(text.slice(0, end)) > most - 3) end = Math.floor(end * 0.9);
  if (end > 0 && /[\ud800-\udbff]/.test(text[end - 1])) end--;
  return { text: `${text.slice(0, end)}…`, used: end };
}

/** Returns a text between fences that are longer than any in it. */
export function fence(text: string): string {
  const shown = showControls(text).replace(/`{25,}/g, (run) => `${"`".repeat(LONGEST_RUN)}(${run.length} in all)`);
  const longest = (shown.match(/`{3,}/g) ?? []).reduce((most, run) => Math.max(most, run.length), 2);
  const ticks = "`".repeat(longest + 1);
  return `${ticks}\n${shown.replace(/\n+$/, "")}\n${ticks}`;
}

/** Removes the end of a text that was cut somewhere: half a secret is not recognised. */
export function dropCutEnd(text: string): string {
  return text.replace(/\S{1,2048}$/, "");
}

/** The text of an answer: a first line, parts as far as they fit, and a last line. */
export class AnswerText {
  private readonly parts: string[] = [];
  private left: number;

  constructor(bytes: number) {
    this.left = Math.min(MOST_BYTES, bytes) - HEAD_BYTES - FOOT_BYTES;
  }

  /** Bytes that a part may have. */
  get room(): number {
    return Math.max(0, this.left - 2);
  }

  get isEmpty(): boolean {
    return this.parts.length === 0;
  }

  /** Adds a part if it fits; returns whether it did. */
  add(part: string): boolean {
    const size = Buffer.byteLength(part) + 2;
    if (size > this.left) return false;
    this.left -= size;
    this.parts.push(part);
    return true;
  }

  /** Returns the whole, with the parts on lines of their own. */
  finish(head: string, foot = "", between = "\n\n"): string {
    const last = cutBytes(foot, FOOT_BYTES - 2).text;
    const body = this.parts.join(between);
    return [cutBytes(head, HEAD_BYTES - 2).text, body, last].filter((part) => part !== "").join("\n\n");
  }
}
