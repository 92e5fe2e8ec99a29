/** Counts the messages of Gemini CLI's lines by how these begin, and by the results that are in them. */

import { toBytes } from "../../../../core/json/json.ts";
import { readLineBeginning, type Skim } from "../skim.ts";

const LINE = /^\{"id":"([^"\\]+)","timestamp":"[^"]*","type":"(user|gemini)"/;
/** The beginning of a result; in a text, its quotes are escaped. */
const RESULT = toBytes('"functionResponse":{');

export function makeGeminiSkim(): Skim {
  // A message is written again when something is added to it.
  const counted = new Map<string, number>();
  return (line) => {
    const begun = readLineBeginning(line);
    if (begun.startsWith('{"$set":{"lastUpdated":"') && line.length < 80) return 0;
    // The repeated conversation has hardly anything new, and counting the new part would need all the unread lines.
    if (begun.startsWith('{"$set":{"messages":[')) return 0;
    const [, id, type] = LINE.exec(begun) ?? [];
    if (id === undefined) return undefined;
    const results = resultsIn(line);
    // A person's message with results is those of the answer before it once more.
    const messages = type === "gemini" ? 1 + results : results > 0 ? 0 : 1;
    const before = counted.get(id) ?? 0;
    counted.set(id, messages);
    return messages - before;
  };
}

function resultsIn(line: Uint8Array): number {
  const bytes = Buffer.from(line.buffer, line.byteOffset, line.length);
  let results = 0;
  for (let at = bytes.indexOf(RESULT); at >= 0; at = bytes.indexOf(RESULT, at + 1)) results++;
  return results;
}
