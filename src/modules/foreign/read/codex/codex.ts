/**
 * Codex's rollout files: lines of `{timestamp, type, payload}`. The conversation is in the response items; events
 * repeat much of it, and have the usage and the rollbacks.
 */

import { isObject } from "../../../../core/foreign/messages.ts";
import type { Beginnings, SourceBase, Translator } from "../translator.ts";
import { makeCodexSkim } from "./skim.ts";
import { CodexTranslation } from "./translation.ts";

const TYPES = new Set(["session_meta", "response_item", "event_msg", "turn_context", "compacted"]);

export const codex: Translator = {
  agent: "codex",
  title: "Codex",
  form: { kind: "lines" },
  recognises,
  isRecord: ({ timestamp, type, payload }) =>
    typeof timestamp === "string" && typeof type === "string" && isObject(payload),
  base,
  skim: makeCodexSkim,
  begin: (tools) => new CodexTranslation(tools),
};

/** Returns the beginning of the other file that a paginated thread continues: it is a fork, or something was taken back. */
function base(first: unknown): SourceBase | undefined {
  const payload = isObject(first) && first.type === "session_meta" ? first.payload : undefined;
  if (!isObject(payload) || !isObject(payload.history_base)) return undefined;
  const { thread_id: nativeId, end_byte_offset: end } = payload.history_base;
  if (typeof nativeId !== "string" || !Number.isSafeInteger(end) || (end as number) < 0) return undefined;
  return { nativeId, end: end as number, isOwn: nativeId === payload.id };
}

function recognises({ bytes, lines }: Beginnings): boolean {
  if (lines.some(({ type, payload }) => TYPES.has(type as string) && isObject(payload))) return true;
  if (lines.length > 0) return false;
  // The first line holds the instructions and is longer than the part that was read.
  const begun = new TextDecoder().decode(bytes.subarray(0, 512));
  return /^\s*\{/.test(begun) && /"type":"session_meta"/.test(begun) && /"payload":\{/.test(begun);
}
