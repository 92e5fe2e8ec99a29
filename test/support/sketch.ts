/**
 * Sessions in a line of text: `0 1 2 9<0` is a chain of three entries and one that continues the first. A word is an entry:
 * its kind (none: what a user says), its number, `<` and the number of its parent (`<-`: a root; by default the entry
 * before it), and after a colon what the kind needs: an entry's number, or a text.
 */

import { assistantText, entryText, id, SESSION, userText } from "./lines.ts";

type Members = Record<string, unknown>;

/** The id that a word means: a number is that of an entry. */
function idOf(text: string): string {
  return /^\d+$/.test(text) ? id(Number(text)) : text;
}

function batchOf(head = "", session = SESSION): Members {
  return { session, head, index: 0, count: 1 };
}

const MARKER = "pi-session-server.leaf";

/** Makes the members of an entry of a kind from what comes after its colon. */
const KINDS: Readonly<Record<string, readonly [type: string, members: (given: string, n: number) => Members]>> = {
  /** A label of an entry. */
  L: ["label", (given) => ({ targetId: idOf(given), label: "here" })],
  /** The session's name. */
  I: ["session_info", (given) => ({ name: given })],
  /** A compaction that keeps from an entry on. */
  C: ["compaction", (given, n) => ({ summary: `summary ${n}`, firstKeptEntryId: idOf(given), tokensBefore: 100 + n })],
  /** An edit that leaves an entry out. */
  E: ["context_edit", (given) => ({ targetId: idOf(given), replacement: null })],
  /** An edit that replaces an entry's content: `E2:0=x`. */
  R: [
    "context_edit",
    (given) => ({ targetId: idOf(given.split("=")[0]), replacement: { content: given.split("=")[1] } }),
  ],
  /** A marker of the leaf. */
  M: ["custom", (given) => ({ customType: MARKER, ...(given === "" ? {} : { data: { leafId: null } }) })],
  /** Texts of a head: its name, and after a slash the session that it names. */
  H: ["message", (given) => ({ _batch: batchOf(...given.split("/")), message: { role: "user", content: "x" } })],
  /** A change of the model, and one of the level. */
  P: ["model_change", (modelId) => ({ provider: "p", modelId })],
  T: ["thinking_level_change", (thinkingLevel) => ({ thinkingLevel })],
  /** An entry of another type. */
  X: ["custom", (given) => ({ customType: given || "x" })],
};

/** Returns the lines of the entries. */
export function sketch(text: string): string[] {
  let last: string | null = null;
  return text
    .split(" ")
    .filter(Boolean)
    .map((word) => {
      const [, kind, number, parent, given = ""] = /^([a-zA-Z]?)(\d+)(?:<([^:]+))?(?::(.*))?$/.exec(word) as string[];
      const own = id(Number(number));
      const parentId = parent === undefined ? last : parent === "-" ? null : idOf(parent);
      last = own;
      if (kind === "") return userText(own, parentId);
      if (kind === "a") return assistantText(own, parentId);
      const [type, members] = KINDS[kind];
      return entryText(type, own, parentId, members(given, Number(number)));
    });
}
