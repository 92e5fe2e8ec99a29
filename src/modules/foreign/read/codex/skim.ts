/** Counts the messages of Codex's lines by how these begin. */

import { readLineBeginning, type Skim } from "../skim.ts";

const LINE = /^\{"timestamp":"[^"]*",(?:"ordinal":\d+,)?"type":"([a-z_]+)","payload":\{(?:"type":"([a-z_]+)")?/;
/** Events that change the conversation, or its name. */
const READ = new Set(["thread_rolled_back", "thread_name_updated"]);
/** Texts that the program puts in a person's place begin so. */
const HARNESS = /"text":"(?:<|# AGENTS\.md)/;

export function makeCodexSkim(): Skim {
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
