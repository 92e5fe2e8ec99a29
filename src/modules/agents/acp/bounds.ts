/** Cuts updates that clients would refuse, because their lines exceed some 32 MiB, and marks the cuts. */

import { toMembers } from "../../../core/format/loose.ts";
import { toJsonText } from "../../../core/json/json.ts";
import { type AcpUpdate, addMeta } from "./update-mapper.ts";

/** Characters of the longest update that is sent whole. */
const LONGEST_UPDATE = 8 << 20;
/** Characters kept of a text. */
const LONGEST_REST = 1 << 16;

/** Returns the params of an update as JSON text, within the limit of clients. */
export function encodeUpdate(sessionId: string, update: AcpUpdate): string {
  const text = toJsonText({ sessionId, update });
  return text.length <= LONGEST_UPDATE ? text : toJsonText({ sessionId, update: cut(update, text.length) });
}

/** Returns an update without its large members. `_meta` has its size, `_pi-session-server/entries` all of it. */
function cut(update: AcpUpdate, length: number): AcpUpdate {
  const { rawInput: _input, rawOutput: _output, entries: _entries, content, summary, ...rest } = update;
  const members: Record<string, unknown> = {};
  if (Array.isArray(content)) members.content = content.slice(0, 16).map(cutContent);
  else if (content !== undefined) members.content = cutBlock(content);
  if (Array.isArray(summary)) members.summary = summary.slice(0, 16).map(cutBlock);
  if (update.sessionUpdate === "plan") members.entries = [];
  return addMeta({ ...rest, ...members, sessionUpdate: update.sessionUpdate }, { cutFrom: length });
}

function cutContent(part: unknown): object {
  const { type, content } = toMembers(part);
  const words = { type: "text", text: "[a change that is too large to be shown]" };
  return { type: "content", content: type === "content" ? cutBlock(content) : words };
}

function cutBlock(block: unknown): object {
  const { type, text } = toMembers(block);
  if (type !== "text" || typeof text !== "string")
    return { type: "text", text: `[${String(type)} that is too large to be shown]` };
  return text.length <= LONGEST_REST ? { type, text } : { type, text: `${text.slice(0, LONGEST_REST)}\n[cut here]` };
}
