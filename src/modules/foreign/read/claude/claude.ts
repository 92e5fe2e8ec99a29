/**
 * Claude Code's session files, `<sessionId>.jsonl` in a folder for each directory, and those of its subagents. A record
 * with a `uuid` continues the one that its `parentUuid` names; others are about the session, and the last one counts.
 * In older versions, the session's own file has the messages of its subagents (`side-chains.ts`).
 */

import { isObject } from "../../../../core/foreign/messages.ts";
import { parseBegunMembers, readLineBeginning, type Skim } from "../skim.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { trackInnerSessions } from "./side-chains.ts";
import { ClaudeTranslation } from "./translation.ts";

/** Kinds of records without a uuid that only Claude Code writes. */
const NAMED = new Set(["summary", "ai-title", "custom-title", "agent-name", "last-prompt", "queue-operation"]);
const ABOUT_FILES = new Set(["file-history-snapshot", "file-history-delta", "fork-context-ref", "content-replacement"]);

export const claude: Translator = {
  agent: "claude",
  title: "Claude Code",
  form: { kind: "lines" },
  recognises,
  idMember: "uuid",
  // Records of other sessions are within some, without a sessionId.
  isRecord: (record) =>
    typeof record.type === "string" &&
    (typeof record.sessionId === "string" || (isOfClaude(record) && !("message" in record))),
  inner: trackInnerSessions,
  skim: makeClaudeSkim,
  begin: (tools) => new ClaudeTranslation(tools),
};

function recognises({ bytes, lines }: Beginnings): boolean {
  if (lines.some(isOfClaude)) return true;
  if (lines.length > 0) return false;
  // The first line is longer than the part that was read. Its own members come before or after a long message.
  const begun = new TextDecoder().decode(bytes.subarray(0, 4096));
  return /^\s*\{/.test(begun) && /"parentUuid":(?:null|")/.test(begun) && /"sessionId":"/.test(begun);
}

function isOfClaude(record: Readonly<Record<string, unknown>>): boolean {
  const { type, uuid, parentUuid, sessionId, leafUuid, messageId } = record;
  if (typeof type !== "string") return false;
  if (typeof uuid === "string" && (parentUuid === null || typeof parentUuid === "string")) return true;
  // The oldest versions name no parents.
  const { message, timestamp } = record;
  if ((type === "user" || type === "assistant") && isObject(message) && typeof timestamp === "string")
    return "content" in message && (message.role ?? type) === type;
  if (NAMED.has(type)) return typeof sessionId === "string" || typeof leafUuid === "string";
  return ABOUT_FILES.has(type) && (typeof messageId === "string" || typeof sessionId === "string");
}

// --- counting messages for lists ------------------------------------------------------------------------------------

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
