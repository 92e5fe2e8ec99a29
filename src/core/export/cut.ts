/** Entries with as much of them as a page can show: one with a million members would be one piece of many seconds. */

import { isObject } from "../foreign/messages.ts";
import type { LooseMembers } from "../format/loose.ts";
import { MOST_MEMBERS, makeOmissionNote, parseOmissionNote, REST } from "../json/few-members.ts";

/** Members and elements of an entry that are shown, besides the blocks of its content, and those blocks. */
const MOST = MOST_MEMBERS;
const MOST_BLOCKS = 50_000;

/** Members of a block that count as one with it. */
const USUAL_MEMBERS = 20;

/** Members without which nothing is known of an entry or a message. */
const NEEDED = ["type", "timestamp", "role", "toolCallId"];

/** Levels of a value below which nothing is cut. */
const DEEPEST = 100;

/** Bytes of the shortest line that can have more than is shown: each element takes two. */
export const LONGEST_WHOLE = 2 * MOST;

/** Returns an entry without the members, elements and blocks beyond the limits of a page, with a note instead. */
export function cutEntry(body: LooseMembers): LooseMembers {
  const cutter = new Cutter();
  if (body.type !== "message" || !isObject(body.message)) return cutter.withContent(body);
  return { ...body, message: cutter.withContent(body.message) };
}

class Cutter {
  private left = MOST;

  /** Returns an object whose `content` is that of a message. */
  withContent(whole: LooseMembers): LooseMembers {
    const { content, ...rest } = whole;
    const needed = NEEDED.filter((name) => typeof whole[name] === "string").map((name) => [name, whole[name]]);
    const shown = { ...(this.cut(rest, 0) as LooseMembers), ...Object.fromEntries(needed) };
    return content === undefined ? shown : { ...shown, content: this.blocks(content) };
  }

  private blocks(content: unknown): unknown {
    if (!Array.isArray(content)) return this.cut(content, 0);
    const shown = content.slice(0, MOST_BLOCKS).map((block) => this.block(block));
    const left = content.length - shown.length;
    return left === 0 ? shown : [...shown, { type: "text", text: `(${makeOmissionNote(left)})` }];
  }

  private block(block: unknown): unknown {
    if (!isObject(block) || Object.keys(block).length > USUAL_MEMBERS) return this.cut(block, 1);
    return Object.fromEntries(Object.entries(block).map(([name, value]) => [name, this.cut(value, 1)]));
  }

  private cut(value: unknown, depth: number): unknown {
    if (typeof value !== "object" || value === null || depth > DEEPEST) return value;
    if (Array.isArray(value)) {
      const shown: unknown[] = [];
      for (const element of value) {
        if (this.left-- <= 0) return [...shown, makeOmissionNote(value.length - shown.length)];
        shown.push(this.cut(element, depth + 1));
      }
      return shown;
    }
    const shown: [string, unknown][] = [];
    const names = Object.keys(value);
    for (const name of names) {
      if (this.left-- <= 0) {
        const rest = parseOmissionNote((value as LooseMembers)[REST]);
        shown.push([REST, makeOmissionNote(names.length - 1 - shown.length + rest)]);
        break;
      }
      shown.push([name, this.cut((value as LooseMembers)[name], depth + 1)]);
    }
    return Object.fromEntries(shown);
  }
}
