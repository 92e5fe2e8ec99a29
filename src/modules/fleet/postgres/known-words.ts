/**
 * The words that the fleet is known to have: few words of a text are new, and only those are sent. They are forgotten
 * from time to time, because unused words are removed.
 */

import type { FleetText } from "../../../core/ports/fleet.ts";

/** Words that are remembered. The fleet ignores one that it has already. */
const MOST = 200_000;
/** Milliseconds until they are forgotten, much less than the time for which unused words stay. */
const LIFETIME = 3_600_000;
/** A word of ASCII, whose parts are searchable; words of other scripts are in the index by themselves. */
const ASCII = /^[a-z0-9_]+$/;

export class KnownWords {
  private readonly known = new Set<string>();
  private readonly now: () => number;
  private since: number;

  /** `now` returns the time in milliseconds, also of a machine that slept. */
  constructor(now: () => number) {
    this.now = now;
    this.since = now();
  }

  /** Returns the searchable words of texts that are not known, ordered so that two processes never wait for each other. */
  unseen(texts: readonly FleetText[]): string[] {
    if (Math.abs(this.now() - this.since) > LIFETIME) {
      this.known.clear();
      this.since = this.now();
    }
    const words = texts.flatMap((text) => text.words.filter((word) => !this.known.has(word) && ASCII.test(word)));
    return [...new Set(words)].sort();
  }

  /** Notes words that the fleet has. */
  note(words: readonly string[]): void {
    if (this.known.size + words.length > MOST) this.known.clear();
    for (const word of words) this.known.add(word);
  }
}
