/** The words that the fleet is known to have: few of a text's words are new, and only those are sent. */

import type { FleetText } from "../../core/ports/fleet.ts";

/** Words that are remembered. The fleet ignores one that it has already. */
const MOST = 200_000;
/** A word of ASCII, whose parts are looked for; those of other scripts are in the index by themselves. */
const ASCII = /^[a-z0-9_]+$/;

/** Returns the words of texts whose parts are looked for, in an order in which no two processes wait for each other. */
export function asciiWords(texts: readonly FleetText[], isKnown: (word: string) => boolean = () => false): string[] {
  const found = new Set<string>();
  for (const { words } of texts) for (const word of words) if (!isKnown(word) && ASCII.test(word)) found.add(word);
  return [...found].sort();
}

export class KnownWords {
  private readonly known = new Set<string>();

  /** Returns those words of texts that are not known. */
  unseen(texts: readonly FleetText[]): string[] {
    return asciiWords(texts, (word) => this.known.has(word));
  }

  /** Notes words that the fleet has. */
  note(words: readonly string[]): void {
    if (this.known.size + words.length > MOST) this.known.clear();
    for (const word of words) this.known.add(word);
  }
}
