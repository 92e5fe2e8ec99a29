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
const COMMON = splitWords(
  "a about all also am an and any are as at be because been being between both but by can could did do does doing done each " +
    "either else for from get got had has have having he her here him his how i if in into is it its itself just let may me " +
    "might mine more most much must my no not of off on or other our ours out over own please shall she should since so some " +
    "such than that the their them then there these they this those though to too up upon us use used uses using very was we " +
    "were what when where whether which while who whom whose why will with within without would yet you your",
);
/** Words of questions about work, which say little about its subject. */
const OF_QUESTIONS = splitWords(
  "again against already anyone anything before change changed choose chose chosen currently decide decided decision end " +
    "ended ever finally find fix fixed happen happened happens instead issue keep kept know longer look made make makes many " +
    "need needed needs never new now once one only problem reason remember said same solution solve solved someone " +
    "something still stop thing things time times today tried trouble try trying want wanted way went wrong",
);
const ENDINGS = "ations ation ments ment ings ing ions ion ies ers er ed es ly s e y".split(" ");
/** Characters of a stem. */
const LEAST_STEM = 4;
const OF_A_NAME = 0.5;
const OF_A_QUESTION = 0.3;
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
/** Characters of a stretch in which words belong together. */
const STRETCH = 160;
/** How much a word counts that is not in the text, but near it. */
const COVERED_NEAR = 0.5;
const SUM_NEAR = 0.4;

/** Parses a ranked query. Returns null when there is nothing to search for. */
export function parseRankedQuery(query: string): RankedTerm[] | null {
  const found = new Map<string, RankedTerm>();
  const add = (named: string, share: number): void => {
    // "What's" and "didn't" are common words, too.
    const text = fold(named).replace(/(?:n['’]t|['’](?:s|d|m|ll|re|ve))$/, "");
    const telling = OF_QUESTIONS.has(text) ? share * OF_A_QUESTION : share;
    if (text !== "" && (found.get(text)?.share ?? 0) < telling)
      found.set(text, { text, stem: stemOf(text), share: telling });
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
  if (/[ius]s$/.test(text)) return text;
  if (ending !== undefined) return text.slice(0, -ending.length);
  return text.length === LEAST_STEM && text.endsWith("s") ? text.slice(0, -1) : text;
}

function splitWords(list: string): ReadonlySet<string> {
  return new Set(list.split(" "));
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
  if (stem.length < LEAST_STEM)
    return `(${[stem, `${stem}s`].map((word) => `"${word}" OR "${toPartMark(word)}"`).join(" OR ")})`;
  const forms = wordsFrom(stem)?.map((word) => `"${word}"`) ?? [`"${stem}"*`];
  return `(${[...forms, `"${toPartMark(stem)}"*`].join(" OR ")})`;
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

/** How well a text fits by its own words. */
export interface TextMeasure {
  /** The weighed occurrences of the words. */
  readonly sum: number;
  /** The words' weights in the whole text and in its best stretch. */
  readonly covered: number;
  /** A bit for each of the words that are there. */
  readonly words: number;
}

/** Measures a text against the words of a query. `folded`: the same text. */
export function measureText(
  text: string,
  folded: string,
  terms: readonly RankedTerm[],
  weights: readonly number[],
  speaker: string,
): TextMeasure {
  const length = K1 * (1 - B + B * Math.min(4, folded.length / AVERAGE));
  let sum = 0;
  let covered = 0;
  let words = 0;
  const places: { at: number; n: number }[] = [];
  for (const [n, term] of terms.entries()) {
    const found = places.length;
    const count = addOccurrences(text, folded, term, n, places);
    if (places.length === found) continue;
    words |= 1 << n;
    covered += weights[n];
    const weighed = count * WEIGHTS[speaker];
    sum += (weights[n] * weighed * (K1 + 1)) / (weighed + length);
  }
  const stretch = weighBestStretch(places, weights);
  return { sum: sum + stretch * 0.3, covered: (covered + stretch) / 2, words };
}

/** Returns the most weight of different words in a stretch of a sentence's length. */
function weighBestStretch(places: { readonly at: number; readonly n: number }[], weights: readonly number[]): number {
  places.sort((a, b) => a.at - b.at);
  const there = weights.map(() => 0);
  let best = 0;
  let weight = 0;
  let from = 0;
  for (const { at, n } of places) {
    for (; at - places[from].at > STRETCH; from++) if (--there[places[from].n] === 0) weight -= weights[places[from].n];
    if (there[n]++ === 0) weight += weights[n];
    best = Math.max(best, weight);
  }
  return best;
}

/**
 * Returns how well a text fits, from 0, if it has none of the words, to about 300. `around`: a bit for each word near the
 * text. It does not depend on how many texts there are, so that it can be compared with that of another index.
 */
export function rankText({ sum, covered, words }: TextMeasure, weights: readonly number[], around = 0): number {
  let all = 0;
  let near = 0;
  for (const [n, weight] of weights.entries()) {
    all += weight;
    if ((around & ~words & (1 << n)) !== 0) near += weight;
  }
  if (words === 0) return 0;
  const share = (covered + near * COVERED_NEAR) / all;
  return Math.round(((sum + near * SUM_NEAR) / all) * (UNCOVERED + (1 - UNCOVERED) * share) * 10_000) / 100;
}

/** Returns a bit for each of the words that a text has. */
export function findWords(text: string, terms: readonly RankedTerm[]): number {
  const folded = fold(text);
  const places: { at: number; n: number }[] = [];
  for (const [n, term] of terms.entries()) addOccurrences(text, folded, term, n, places);
  return places.reduce((words, { n }) => words | (1 << n), 0);
}

/** Adds the places of a term, and counts it: whole words as one, other forms of it and parts of words as less. */
function addOccurrences(
  text: string,
  folded: string,
  { text: whole, stem }: RankedTerm,
  n: number,
  places: { at: number; n: number }[],
): number {
  let count = 0;
  // Places are the same where folding changed no length.
  const shown = text.length === folded.length ? text : folded;
  for (let at = folded.indexOf(stem); at >= 0 && count < 12; at = folded.indexOf(stem, at + stem.length)) {
    const begins = beginsPart(shown, at);
    const past = at + whole.length;
    const isWhole = begins && folded.startsWith(whole, at) && (!isWordAt(folded, past) || beginsPart(shown, past));
    const isForm = !isWhole && begins && isFormAt(folded, at + stem.length, stem.length < LEAST_STEM);
    if (!isWhole && !isForm && stem.length < LEAST_STEM) continue;
    count += isWhole ? 1 : isForm ? 0.8 : 0.4;
    places.push({ at, n });
  }
  return count;
}

/** Returns whether only an ending, perhaps with the stem's last letter before it, is left of a word after its stem. */
function isFormAt(folded: string, at: number, isShort: boolean): boolean {
  const rest = /^[a-z]*/.exec(folded.slice(at, at + LONGEST_REST))?.[0] ?? "";
  if (isShort) return rest === "" || rest === "s";
  return rest === "" || ENDINGS.includes(rest) || (rest[0] === folded[at - 1] && ENDINGS.includes(rest.slice(1)));
}

function isWordAt(text: string, at: number): boolean {
  return at >= 0 && at < text.length && /[a-z0-9]/.test(text[at]);
}
