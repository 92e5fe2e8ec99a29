/** Makes the seed: the text of a conversation for a new session of an agent that cannot load it. */

import { toParagraphs } from "../../../core/context/summary.ts";
import { parse } from "../../../core/json/json.ts";
import type { Session } from "../../../core/session/session.ts";

/** Characters of a seed: some 50,000 tokens, which leaves most models room to work. The newest ones are kept. */
const LONGEST = 200_000;

/** Returns the model's context at the leaf as text; undefined when it is empty. */
export function makeSeed(session: Session): string | undefined {
  const { items } = session.context();
  const words: string[] = [];
  for (const text of session.messageTexts(items)) words.push(...toParagraphs(parse(text) as Record<string, unknown>));
  if (words.length === 0) return undefined;
  const kept: string[] = [];
  let length = 0;
  for (const paragraph of words.reverse()) {
    if (length + paragraph.length > LONGEST) {
      kept.push(kept.length === 0 ? paragraph.slice(-LONGEST) : "[What came before is left out.]");
      break;
    }
    length += paragraph.length;
    kept.push(paragraph);
  }
  const intro =
    "This conversation was begun in another session, which follows. Go on with it: what comes after it is the next message of the person.";
  return `${intro}\n\n<conversation>\n${kept.reverse().join("\n\n")}\n</conversation>\n\n`;
}
