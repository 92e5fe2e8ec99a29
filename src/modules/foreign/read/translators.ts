/** The list of translators, and which of them knows a file. A new format is a new file and a line here. */

import { isObject } from "../../../core/foreign/messages.ts";
import { tryParse } from "../../../core/json/json.ts";
import { claude } from "./claude/claude.ts";
import { clineHistory, clineMessages, clineScreen, rooHistory, rooScreen } from "./cline/cline.ts";
import { codex } from "./codex/codex.ts";
import { copilot } from "./copilot/copilot.ts";
import { geminiDocument, geminiLines } from "./gemini/gemini.ts";
import { goose } from "./goose/goose.ts";
import { omp } from "./omp/omp.ts";
import { opencode, opencodeFacts } from "./opencode/opencode.ts";
import { pirust } from "./pirust/pirust.ts";
import { type Beginnings, LINES_SEEN, type Translator } from "./translator.ts";

/** The formats, most specific first. */
const TRANSLATORS: readonly Translator[] = [
  claude,
  codex,
  copilot,
  geminiDocument,
  geminiLines,
  opencode,
  opencodeFacts,
  goose,
  clineMessages,
  rooHistory,
  clineHistory,
  rooScreen,
  clineScreen,
  pirust,
  omp,
];

/** Returns the translator of a file that begins so; undefined for a session of ours, or anything else. */
export function findTranslator(bytes: Uint8Array, isWhole: boolean): Translator | undefined {
  const lines = linesOf(bytes, isWhole);
  if (lines === null) return undefined;
  const beginning: Beginnings = { bytes, lines, isWhole };
  return TRANSLATORS.find((translator) => translator.recognises(beginning));
}

/** Returns the first lines that are objects; null if the first is our own header: then the whole file is ours. */
function linesOf(bytes: Uint8Array, isWhole: boolean): Readonly<Record<string, unknown>>[] | null {
  const lines: Readonly<Record<string, unknown>>[] = [];
  for (let at = 0, n = 0; at < bytes.length && n < LINES_SEEN; n++) {
    const feed = bytes.indexOf(0x0a, at);
    if (feed < 0 && !isWhole) break;
    const end = feed < 0 ? bytes.length : feed;
    const value = tryParse(bytes, at, end);
    at = end + 1;
    // Damage, a part of a document, or no JSON at all.
    if (!isObject(value)) continue;
    if (lines.length === 0 && value.type === "session" && typeof value.id === "string") return null;
    lines.push(value);
  }
  return lines;
}
