/**
 * Codex's rollout files: lines of `{timestamp, type, payload}`. The conversation is in the response items; events say
 * much of it again, and what was spent and taken back.
 */

import { isObject } from "../messages.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { CodexTranslation } from "./translation.ts";

const TYPES = new Set(["session_meta", "response_item", "event_msg", "turn_context", "compacted"]);

export const codex: Translator = {
  agent: "codex",
  title: "Codex",
  form: { kind: "lines" },
  recognises,
  begin: (tools) => new CodexTranslation(tools),
};

function recognises({ bytes, lines }: Beginnings): boolean {
  if (lines.some(({ type, payload }) => TYPES.has(type as string) && isObject(payload))) return true;
  if (lines.length > 0) return false;
  // The first line holds the instructions and is longer than what was read of it.
  const begun = new TextDecoder().decode(bytes.subarray(0, 512));
  return /^\s*\{/.test(begun) && /"type":"session_meta"/.test(begun) && /"payload":\{/.test(begun);
}
