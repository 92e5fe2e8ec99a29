/**
 * Codex's rollout files: lines of `{timestamp, type, payload}`. The conversation is in the response items; events
 * repeat much of it, and have the usage and the rollbacks.
 */

import { isObject } from "../../../../core/foreign/messages.ts";
import { readLineBeginning, type Skim } from "../skim.ts";
import type { Beginnings, SourceBase, Translator } from "../translator.ts";
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

// --- counting messages for lists ------------------------------------------------------------------------------------

const LINE = /^\{"timestamp":"[^"]*",(?:"ordinal":\d+,)?"type":"([a-z_]+)","payload":\{(?:"type":"([a-z_]+)")?/;
/** Events that change the conversation, or its name. */
const READ = new Set(["thread_rolled_back", "thread_name_updated"]);
/** Texts that the program puts in a person's place begin so. */
const HARNESS = /"text":"(?:<|# AGENTS\.md)/;

function makeCodexSkim(): Skim {
  // The parts of one answer are lines of their own, up to the first result.
  let isInAnswer = false;
  const part = (): number => {
    const count = isInAnswer ? 0 : 1;
    isInAnswer = true;
    return count;
  };
  return (line) => {
    const begun = readLineBeginning(line);
    const [, type, kind = ""] = LINE.exec(begun) ?? [];
    if (type === "turn_context" || type === "world_state") return 0;
    if (type === "event_msg" && !READ.has(kind)) {
      if (kind === "token_count") isInAnswer = false;
      return 0;
    }
    if (type === "token_usage_record") {
      isInAnswer = false;
      return 0;
    }
    if (type !== "response_item") return undefined;
    if (kind === "reasoning" || kind.endsWith("_call")) return part();
    if (kind !== "message" && !kind.endsWith("_output")) return undefined;
    if (begun.includes('"role":"assistant"')) return part();
    isInAnswer = false;
    const isHarness = kind === "message" && (!begun.includes('"role":"user"') || HARNESS.test(begun));
    return isHarness ? 0 : 1;
  };
}
