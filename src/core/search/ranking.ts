/** Ranked searches: texts with the most telling of the words, by BM25 with weights by the speaker. */

import { beginsPart, splitIdentifier } from "./identifiers.ts";
import { fold, toExpressions } from "./query.ts";

/** A word of a ranked query. */
export interface RankedTerm {
  /** Folded. */
  readonly text: string;
  /** Its beginning without an English ending, which finds its other forms; the word itself if it has none. */
  readonly stem: string;
  /** Its share of the score: 1, or less for a part of a name that is asked for. */
  readonly share: number;
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
const ENDINGS = "ations ation ments ment ings ing ions ion ies ers er ed es ly s e y".split(" ");
/** Characters of a stem. */
const LEAST_STEM = 4;
const OF_A_NAME = 0.5;
const LONGEST_REST = 8;
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
  const add = (named: string, share: number): void => {
    const text = fold(named);
    if (text !== "" && (found.get(text)?.share ?? 0) < share) found.set(text, { text, stem: stemOf(text), share });
  };
  for (const [, quoted, word] of query.matchAll(/"([^"]*)"|([^\s"]+)/g)) {
    const text = (quoted ?? word).trim();
    const trimmed = quoted === undefined ? text.replace(/^[^\p{L}\p{N}_]+|[^\p{L}\p{N}_]+$/gu, "") || text : text;
    add(trimmed, 1);
    const parts = quoted === undefined ? splitIdentifier(trimmed) : [];
    if (parts.length > 1) for (const part of parts) add(part, OF_A_NAME);
  }
  const all = [...found.values()];
  const telling = all.filter(({ text }) => !COMMON.has(text));
  const terms = telling.length > 0 ? telling : all;
  if (terms.length === 0) return null;
  return terms.length <= MOST_TERMS ? terms : terms.sort((a, b) => b.text.length - a.text.length).slice(0, MOST_TERMS);
}

function stemOf(text: string): string {
  if (!/^[a-z]+$/.test(text)) return text;
  const ending = ENDINGS.find((one) => text.length >= LEAST_STEM + one.length && text.endsWith(one));
  // Redis and status are no plurals.
  return ending === undefined || /[ius]s$/.test(text) ? text : text.slice(0, -ending.length);
}

/**
 * Returns the expression of the index for texts with a term, as a word or as a part of a name. `wordsFrom` returns the words
 * with a beginning; undefined: too many.
 */
export function toRankedExpression(
  { stem }: RankedTerm,
  wordsFrom: (beginning: string) => readonly string[] | undefined,
): string | undefined {
  if (!/^[a-z0-9_]{1,60}$/.test(stem)) return toExpressions([stem], () => undefined).words;
  const part = `"${toPartMark(stem)}"`;
  if (stem.length < LEAST_STEM) return `("${stem}" OR ${part})`;
  const forms = wordsFrom(stem)?.map((word) => `"${word}"`) ?? [`"${stem}"*`];
  return `(${[...forms, `${part}*`].join(" OR ")})`;
}

/** Returns the token that finds a text with a part of a name in it. */
export function toPartMark(part: string): string {
  return `_i${part}`;
}

/** Returns the weight of a word that so many of all texts have, in hundredths: the fewer, the more. */
export function weighTerm(count: number, all: number, share: number): number {
  return Math.max(1, Math.round(share * 100 * Math.log(1 + (Math.max(0, all - count) + 0.5) / (count + 0.5))));
}

/** Returns the hundredths by which one word counts in a text, for a first order of the texts. */
export function getSpeakerShares(): Readonly<Record<keyof typeof WEIGHTS, number>> {
  return Object.fromEntries(
    Object.entries(WEIGHTS).map(([name, weight]) => [name, Math.round((100 * weight * (K1 + 1)) / (weight + K1))]),
  );
}

/**
 * Returns how well a text fits, from 0, if it has none of the words, to about 300. It does not depend on how many texts
 * there are, so that it can be compared with that of another index. `folded`: the same text.
 */
export function rankText(
  text: string,
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
    const { count, first } = occurrencesOf(text, folded, term);
    if (count === 0) continue;
    covered += weights[n];
    const weighed = count * WEIGHTS[speaker];
    sum += (weights[n] * weighed * (K1 + 1)) / (weighed + length);
    if (last >= 0 && Math.abs(first - last) < NEAR) sum += weights[n] * 0.3;
    last = first;
  }
  return Math.round((sum / all) * (UNCOVERED + ((1 - UNCOVERED) * covered) / all) * 10_000) / 100;
}

/** Counts a term: whole words as one, other forms of it and parts of words as less. */
function occurrencesOf(text: string, folded: string, term: RankedTerm): { count: number; first: number } {
  const { text: whole, stem } = term;
  let count = 0;
  let first = -1;
  // Places are the same where folding changed no length.
  const shown = text.length === folded.length ? text : folded;
  for (let at = folded.indexOf(stem); at >= 0 && count < 12; at = folded.indexOf(stem, at + stem.length)) {
    const begins = beginsPart(shown, at);
    const past = at + whole.length;
    const isWhole = begins && folded.startsWith(whole, at) && (!isWordAt(folded, past) || beginsPart(shown, past));
    if (!isWhole && stem.length < LEAST_STEM) continue;
    count += isWhole ? 1 : begins && isFormAt(folded, at + stem.length) ? 0.8 : 0.4;
    if (first < 0) first = at;
  }
  return { count, first };
}

/** Returns whether only an ending, perhaps with the stem's last letter before it, is left of a word after its stem. */
function isFormAt(folded: string, at: number): boolean {
  const rest = /^[a-z]*/.exec(folded.slice(at, at + LONGEST_REST))?.[0] ?? "";
  return rest === "" || ENDINGS.includes(rest) || (rest[0] === folded[at - 1] && ENDINGS.includes(rest.slice(1)));
}

function isWordAt(text: string, at: number): boolean {
  return at >= 0 && at < text.length && /[a-z0-9]/.test(text[at]);
}
