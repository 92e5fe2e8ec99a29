/** Counts the messages of Claude Code's lines by how these begin. */

import { parseBegunMembers, readLineBeginning, type Skim } from "../skim.ts";

/** Types of records about the session that lists do not show. */
const NOT_SPOKEN = new Set([
  "file-history-snapshot",
  "file-history-delta",
  "queue-operation",
  "progress",
  "cost-state",
  "mode",
]);

export function makeClaudeSkim(): Skim {
  // The blocks of one answer are lines of their own.
  let answer = "";
  return (line) => {
    const begun = readLineBeginning(line);
    const { values, starts } = parseBegunMembers(begun);
    // It belongs to a session of its own.
    if (values.get("isSidechain") === "true") return undefined;
    const type = values.get("type")?.slice(1, -1) ?? "";
    if (NOT_SPOKEN.has(type)) return 0;
    const at = starts.get("message");
    if (at === undefined || (type !== "user" && type !== "assistant")) return undefined;
    if (type === "user") return begun.includes('"isMeta":true') ? 0 : 1;
    const [, id = ""] = /"id":"(msg_[^"]*)"/.exec(begun.slice(at)) ?? [];
    if (id !== "" && id === answer) return 0;
    answer = id;
    return 1;
  };
}
