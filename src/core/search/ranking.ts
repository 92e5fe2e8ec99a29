/** Ranked searches: texts with the most telling of the words, by BM25 with weights by the speaker. */

import { fold } from "./query.ts";

/** A word of a ranked query. */
export interface RankedTerm {
  /** Folded. */
  readonly text: string;
  /** Its beginning without an English ending, which finds its other forms; the word itself if it has none. */
  readonly stem: string;
}

/** Words that say nothing about what is sought. */
const COMMON = new Set(
  (
    "a about all also am an and any are as at be been but by can could did do does doing done for from get had has have " +
    "how i if in into is it its just me my no not of on or our out over please should so some than that the their them " +
    "then there these they this those to too up us use used using was we were what when where which who why will with " +
    "would you your"
  ).split(" "),
);
const ENDING = /(?:ations?|ings?|ions?|ers?|ed|es|ly|s)$/;
/** Characters of a stem, and of a word that may have an ending. */
const LEAST = { stem: 4, word: 5 };
/** Words of a query that count: the longest. */
const MOST_TERMS = 16;

/** How much a word counts by who said it, before it saturates. */
const WEIGHTS: Readonly<Record<string, number>> = { user: 3, assistant: 2, toolCall: 1, output: 0.5 };
const K1 = 1.2;
const B = 0.75;
/** Characters of an average text. */
const AVERAGE = 900;
/** The share of a score that does not depend on how many of the words are there. */
const UNCOVERED = 0.35;
const NEAR = 40;

/** Parses a ranked query. Returns null when there is nothing to search for. */
export function parseRankedQuery(query: string): RankedTerm[] | null {
  const found = new Map<string, RankedTerm>();
  for (const [, quoted, word] of query.matchAll(/"([^"]*)"|([^\s"]+)/g)) {
    const text = fold((quoted ?? word).trim());
    const trimmed = quoted === undefined ? text.replace(/^[^\p{L}\p{N}_]+|[^\p{L}\p{N}_]+$/gu, "") || text : text;
    if (trimmed !== "") found.set(trimmed, { text: trimmed, stem: stemOf(trimmed) });
  }
  const all = [...found.values()];
  const telling = all.filter(({ text }) => !COMMON.has(text));
  const terms = telling.length > 0 ? telling : all;
  if (terms.length === 0) return null;
  return terms.length <= MOST_TERMS ? terms : terms.sort((a, b) => b.text.length - a.text.length).slice(0, MOST_TERMS);
}

function stemOf(text: string): string {
  if (text.length < LEAST.word || !/^[a-z]+$/.test(text)) return text;
  const stem = text.replace(ENDING, "");
  return stem.length >= LEAST.stem ? stem : text;
}

/** Returns how much a word tells that so many of all texts have, in hundredths; 0 for one that none has. */
export function weighTerm(count: number, all: number): number {
  if (count === 0) return 0;
  return Math.max(1, Math.round(100 * Math.log(1 + (Math.max(0, all - count) + 0.5) / (count + 0.5))));
}

/** Returns the hundredths by which one word counts in a text, for a first order of the texts. */
export function getSpeakerShares(): Readonly<Record<keyof typeof WEIGHTS, number>> {
  return Object.fromEntries(
    Object.entries(WEIGHTS).map(([name, weight]) => [name, Math.round((100 * weight * (K1 + 1)) / (weight + K1))]),
  );
}

/** Returns how well a folded text fits; 0 if it has none of the words. */
export function rankText(
  folded: string,
  terms: readonly RankedTerm[],
  weights: readonly number[],
  speaker: string,
): number {
  const length = K1 * (1 - B + B * Math.min(4, folded.length / AVERAGE));
  let sum = 0;
  let all = 0;
  let covered = 0;
  let last = -1;
  for (const [n, term] of terms.entries()) {
    all += weights[n];
    const { count, first } = occurrencesOf(folded, term);
    if (count === 0) continue;
    covered += weights[n];
    const weighed = count * WEIGHTS[speaker];
    sum += (weights[n] * weighed * (K1 + 1)) / (weighed + length);
    if (last >= 0 && Math.abs(first - last) < NEAR) sum += weights[n] * 0.3;
    last = first;
  }
  return Math.round(sum * (UNCOVERED + ((1 - UNCOVERED) * covered) / all) * 100) / 100;
}

/** Counts a term: whole words as one, other forms of it and parts of words as less. */
function occurrencesOf(folded: string, { text, stem }: RankedTerm): { count: number; first: number } {
  let count = 0;
  let first = -1;
  for (let at = folded.indexOf(stem); at >= 0 && count < 12; at = folded.indexOf(stem, at + stem.length)) {
    const begins = !isWordAt(folded, at - 1);
    const isWhole = begins && folded.startsWith(text, at) && !isWordAt(folded, at + text.length);
    if (!isWhole && stem.length < LEAST.stem) continue;
    count += isWhole ? 1 : begins ? 0.8 : 0.4;
    if (first < 0) first = at;
  }
  return { count, first };
}

function isWordAt(text: string, at: number): boolean {
  return at >= 0 && at < text.length && /[a-z0-9]/.test(text[at]);
}
