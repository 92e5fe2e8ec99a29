/**
 * Claude Code's session files, `<sessionId>.jsonl` in a folder for each directory, and those of its subagents. A record
 * with a `uuid` continues the one that its `parentUuid` names; others are about the session, and the last one counts.
 * In older versions, the session's own file has the messages of its subagents (`side-chains.ts`).
 */

import { isObject } from "../../../../core/foreign/messages.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { trackInnerSessions } from "./side-chains.ts";
import { makeClaudeSkim } from "./skim.ts";
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
