/**
 * A first look at a file, for lists: the same entries are made of its records, but none becomes a line, long texts are
 * cut off before they are read, and ids are unique within the file only. It takes a third of a derivation's time.
 */

import { isObject } from "../../../core/foreign/messages.ts";
import { getContentText } from "../../../core/format/message.ts";
import type { Env } from "../../../core/ports/env.ts";
import { parseTime } from "../../../core/search/listing.ts";
import type { TranslatedEntry } from "./translator.ts";

/** Bytes of a text that are read of a record. */
export const LONGEST_SURVEYED = 2048;
/** Characters of a first message that are kept for lists. */
const FIRST_MESSAGE = 1000;

/** Facts of a session that lists show. */
export class SurveyFacts {
  entries = 0;
  messages = 0;
  /** The last name, null without one. */
  name: string | null = null;
  /** The beginning of the first message of a person. */
  first: string | null = null;
  /** The time of the last message of a person or the model, in milliseconds. */
  activity: number | null = null;

  add({ type, timestamp, members }: Pick<TranslatedEntry, "type" | "timestamp" | "members">): void {
    this.entries++;
    if (type === "session_info") {
      const { name } = members;
      this.name = typeof name === "string" && name.trim() !== "" ? name.trim() : null;
    }
    const { message } = members;
    if (type !== "message" || !isObject(message)) return;
    this.messages++;
    const { role, content, timestamp: at } = message;
    if (role !== "user" && role !== "assistant") return;
    const moment = typeof at === "number" && Number.isFinite(at) ? at : parseTime(timestamp);
    // If no record has a time, entries have the first of all.
    if (moment !== null && moment > 0) this.activity = moment;
    if (role !== "user" || this.first !== null) return;
    const text = getContentText(content).trim();
    this.first = text === "" ? null : text.slice(0, FIRST_MESSAGE);
  }
}

/** Returns a hash that is unique within one file only: it takes a tenth of the time of a SHA-256. */
export const hashQuickly: Env["sha256"] = (bytes) => {
  const { length } = bytes;
  let a = 0x811c9dc5 ^ length;
  let b = 0x1b873593 ^ length;
  // It reads only parts of a long text.
  const step = length > 256 ? Math.floor(length / 128) : 1;
  for (let i = 0; i < length; i += step) {
    a = Math.imul(a ^ bytes[i], 0x01000193);
    b = Math.imul(b ^ bytes[i], 0x85ebca6b);
    b ^= b >>> 13;
  }
  const text = (a >>> 0).toString(16).padStart(8, "0") + (b >>> 0).toString(16).padStart(8, "0");
  return text + text + text + text;
};
