/** Counts the messages of Claude Code's lines by how these begin. */

import { beginningIn, type Skim } from "../skim.ts";

/** Types of records about the session that lists do not show. */
const ASIDE = new Set([
  "file-history-snapshot",
  "file-history-delta",
  "queue-operation",
  "progress",
  "cost-state",
  "mode",
]);

export function claudeSkim(): Skim {
  // The blocks of one answer are lines of their own.
  let answer = "";
  return (line) => {
    const begun = beginningIn(line);
    const [, type] = /^\{"type":"([a-z-]+)"/.exec(begun) ?? [];
    if (type !== undefined && ASIDE.has(type)) return 0;
    // It belongs to a session of its own.
    if (begun.includes('"isSidechain":true')) return undefined;
    const at = begun.indexOf('"message":{');
    if (at < 0) return undefined;
    if (begun.startsWith('"role":"user"', at + 11)) return begun.includes('"isMeta":true') ? 0 : 1;
    if (!begun.includes('"role":"assistant"', at)) return undefined;
    const [, id = ""] = /"id":"(msg_[^"]*)"/.exec(begun.slice(at)) ?? [];
    if (id !== "" && id === answer) return 0;
    answer = id;
    return 1;
  };
}
