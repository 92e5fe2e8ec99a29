/** The meaning of a query, for every search: its terms, their places in a text, and the score. */

/** The terms of a query, folded by {@link fold}: all of them must occur in a text, anywhere. */
export type Query = readonly string[];

/** Returns text in the one form for comparing texts and terms: composed, and without case. */
export function fold(text: string): string {
  const folded = text.normalize("NFC").toLowerCase();
  // Two forms of one letter, at the end of a word and elsewhere.
  return folded.includes("ς") ? folded.replaceAll("ς", "σ") : folded;
}

/** Parses words, and text between quotation marks as one term. Returns null when there is nothing to search for. */
export function parseQuery(query: string): Query | null {
  const terms = new Set<string>();
  for (const [, quoted, word] of query.matchAll(/"([^"]*)"|([^\s"]+)/g)) terms.add(fold((quoted ?? word).trim()));
  terms.delete("");
  return terms.size === 0 ? null : [...terms];
}

/** Returns a pattern of the places of words, in any case; where several begin, the longest counts. */
export function makeWordsPattern(words: readonly string[]): RegExp {
  const longestFirst = [...words].sort((a, b) => b.length - a.length);
  return new RegExp(`(${longestFirst.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "giu");
}

export function containsTerms(folded: string, query: Query): boolean {
  for (const term of query) if (!folded.includes(term)) return false;
  return true;
}

// --- tokens of the index -----------------------------------------------------------------------------------------
//
// An ASCII run is a word, which is found by its parts through a list of all words. Any other script gives its
// characters and pairs of them, because many scripts put no space between words.

/** Runs that are one piece to the index: ASCII letters, digits and underscores; or neither ASCII nor punctuation. */
const RUN = /[a-z0-9_]+|[\u00c0-\u1fff\u2070-\u2fff\u3040-\ufefe\uff10-\uffff]+/g;
/** Characters of a word. Longer ones are cut into pieces that overlap by half: a part of half of it is in one. */
const LONGEST_WORD = 64;

const OTHER_SCRIPT = /[\u00c0-\u1fff\u2070-\u2fff\u3040-\ufefe\uff10-\uffff]+/g;
const NOT_ASCII = /[\u0080-\uffff]/;
const NO_ASCII = /[\u0080-\uffff]+/g;
const TOKEN = /[a-z0-9_]+|[^\0-\x7f]+/g;

/**
 * Returns whether a text has a run that is longer than a word. It looks at one character in 64 if words are short, as
 * they mostly are.
 */
function hasLongRun(text: string): boolean {
  for (let at = LONGEST_WORD; at < text.length; ) {
    let back = at;
    while (back >= at - LONGEST_WORD && isOfRun(text.charCodeAt(back))) back--;
    if (back < at - LONGEST_WORD) return true;
    at = back + LONGEST_WORD + 1;
  }
  return false;
}

function isOfRun(code: number): boolean {
  return (code >= 0x61 && code <= 0x7a) || (code >= 0x30 && code <= 0x39) || code === 0x5f;
}

/** Returns a folded text in the form of the index, which splits at ASCII punctuation only. */
export function toTokens(folded: string, longestRun: number): string {
  // Some libraries end a text at a NUL.
  let words = folded.includes("\0") ? folded.replaceAll("\0", " ") : folded;
  let parts = "";
  if (NOT_ASCII.test(folded)) {
    const found = new Set<string>();
    for (const run of folded.match(OTHER_SCRIPT) ?? []) for (const part of partsOf(run)) found.add(part);
    parts = ` ${[...found].join(" ")}`;
    words = words.replace(NO_ASCII, " ");
  }
  return (longestRun > LONGEST_WORD && hasLongRun(words) ? withCutRuns(words) : words) + parts;
}

/** Cuts runs that are longer than a word. A regular expression may find no stack for one of 6 MB. */
function withCutRuns(words: string): string {
  let cut = "";
  let copied = 0;
  for (let end = 0; end < words.length; end++) {
    const start = end;
    while (isOfRun(words.charCodeAt(end))) end++;
    if (end - start <= LONGEST_WORD) continue;
    cut += `${words.slice(copied, start)}${[...piecesOf(words.slice(start, end))].join(" ")}`;
    copied = end;
  }
  return cut + words.slice(copied);
}

/** Yields the words of a folded text, for a list that an index without a tokenizer keeps. */
export function* splitWords(folded: string): Generator<string> {
  for (const [word] of toTokens(folded, Number.POSITIVE_INFINITY).matchAll(TOKEN)) yield word;
}

function* piecesOf(run: string): Generator<string> {
  for (let i = 0; i < run.length - LONGEST_WORD / 2; i += LONGEST_WORD / 2) yield run.slice(i, i + LONGEST_WORD);
}

/** Facts that a {@link Lexicon} finds in a text. */
export interface Reading {
  /** Words that it had not seen before. */
  readonly unseen: readonly string[];
  /** Characters of the longest ASCII run. */
  readonly longestRun: number;
  /** A checksum: equal for texts with the same runs, and hardly ever for others. */
  readonly sum: string;
}

/** The words that were seen, stored as letters: a text is read in one pass, without a string for each of its words. */
export class Lexicon {
  /** Positions of words in `letters`, by their hash; 0: free. */
  private slots = new Int32Array(1 << 12);
  /** Each word, after its length. */
  private letters = new Uint8Array(1 << 15);
  private used = 1;
  count = 0;

  clear(): void {
    this.slots.fill(0);
    this.used = 1;
    this.count = 0;
  }

  read(folded: string): Reading {
    const unseen: string[] = [];
    let longestRun = 0;
    let a = 0x9e3779b9;
    let b = 0x85ebca6b;
    const { length } = folded;
    for (let i = 0; i <= length; i++) {
      const start = i;
      let hash = 0x811c9dc5;
      let c = 0;
      for (; i < length; i++) {
        c = folded.charCodeAt(i);
        if (!((c >= 0x61 && c <= 0x7a) || (c >= 0x30 && c <= 0x39) || c === 0x5f)) break;
        hash = Math.imul(hash ^ c, 0x01000193);
      }
      const run = i - start;
      if (run > 0) {
        if (run > longestRun) longestRun = run;
        a = Math.imul(a ^ hash, 0x85ebca77);
        b = Math.imul((b << 5) ^ (b >>> 27) ^ hash, 0xc2b2ae3d);
        if (run <= LONGEST_WORD) {
          if (!this.has(folded, start, run, hash)) unseen.push(folded.slice(start, i));
        } else
          for (const piece of piecesOf(folded.slice(start, i)))
            if (!this.has(piece, 0, piece.length, hashOf(piece))) unseen.push(piece);
      }
      if (i < length && c >= 0x80) {
        a = Math.imul(a ^ c, 0x85ebca77);
        b = Math.imul((b << 5) ^ (b >>> 27) ^ c, 0xc2b2ae3d);
      }
    }
    return { unseen, longestRun, sum: `${(a >>> 0).toString(36)}.${(b >>> 0).toString(36)}` };
  }

  /** Returns whether a word was seen before, and adds it. */
  private has(text: string, start: number, length: number, hash: number): boolean {
    const { letters, slots } = this;
    const mask = slots.length - 1;
    let slot = spread(hash) & mask;
    for (let at = slots[slot]; at !== 0; at = slots[slot]) {
      if (letters[at] === length) {
        let i = 0;
        while (i < length && letters[at + 1 + i] === text.charCodeAt(start + i)) i++;
        if (i === length) return true;
      }
      slot = (slot + 1) & mask;
    }
    if (this.used + length + 1 > letters.length) {
      this.letters = new Uint8Array(letters.length * 2);
      this.letters.set(letters);
    }
    slots[slot] = this.used;
    this.letters[this.used++] = length;
    for (let i = 0; i < length; i++) this.letters[this.used++] = text.charCodeAt(start + i);
    if (++this.count * 2 > slots.length) this.grow();
    return false;
  }

  private grow(): void {
    const slots = new Int32Array(this.slots.length * 4);
    const mask = slots.length - 1;
    for (let at = 1; at < this.used; at += this.letters[at] + 1) {
      let hash = 0x811c9dc5;
      for (let i = 1; i <= this.letters[at]; i++) hash = Math.imul(hash ^ this.letters[at + i], 0x01000193);
      let slot = spread(hash) & mask;
      while (slots[slot] !== 0) slot = (slot + 1) & mask;
      slots[slot] = at;
    }
    this.slots = slots;
  }
}

/** Returns the FNV-1a hash of a word. */
function hashOf(word: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < word.length; i++) hash = Math.imul(hash ^ word.charCodeAt(i), 0x01000193);
  return hash;
}

function spread(hash: number): number {
  return hash ^ (hash >>> 15);
}

/**
 * Limits on the runs of a query for the index, and on the characters of one in another script: the found texts are
 * read, and must have all terms. Each word is looked up in the list of all words: a million of them, in a query of 7
 * MB, kept all clients waiting for minutes.
 */
const MOST_RUNS = 32;
const LONGEST_OTHER = 64;

/** Returns the runs of terms that narrow a search most. */
function narrowingRuns(terms: Query): string[] {
  const runs = [...new Set(terms.flatMap((term) => term.match(RUN) ?? []))];
  return runs.length <= MOST_RUNS ? runs : runs.sort((a, b) => b.length - a.length).slice(0, MOST_RUNS);
}

/** Returns the beginning of a run in another script, without cutting a character. */
function beginningOf(run: string): string {
  return run.length <= LONGEST_OTHER ? run : [...run.slice(0, LONGEST_OTHER)].slice(0, -1).join("");
}

/** Returns the characters of a run, and its pairs. */
function partsOf(run: string): string[] {
  const characters = [...run];
  return [...characters, ...characters.slice(1).map((character, i) => characters[i] + character)];
}

/** The words that an index is asked for: one of each list must be there. */
export type Sought = readonly (readonly string[])[];

/**
 * Returns the request to an index over the tokens: texts with the terms as whole words, and all that may contain them;
 * undefined if the index cannot decide. `wordsWith` returns the words that contain a part; undefined: too many.
 */
export function toSought(
  terms: Query,
  wordsWith: (part: string) => readonly string[] | undefined,
): { words: Sought | undefined; parts: Sought | undefined } {
  const words: (readonly string[])[] = [];
  const parts: (readonly string[])[] = [];
  let isWhole = true;
  for (const run of narrowingRuns(terms)) {
    if (run.charCodeAt(0) >= 128) {
      const found = partsOf(beginningOf(run)).filter((part, _, all) => all.length === 1 || [...part].length === 2);
      for (const list of [words, parts]) list.push(...found.map((part) => [part]));
      continue;
    }
    if (run.length <= LONGEST_WORD) words.push([run]);
    else isWhole = false;
    const matching = wordsWith(partOf(run));
    // If no word contains it, it is no word itself either; searching for it then finds nothing.
    if (matching) parts.push(matching.length === 0 ? [run] : matching);
  }
  return {
    words: isWhole && words.length > 0 ? words : undefined,
    parts: parts.length > 0 ? parts : undefined,
  };
}

/** Returns the beginning of a run that is in one word of the index, wherever that was cut. */
function partOf(run: string): string {
  return run.slice(0, LONGEST_WORD / 2);
}

/** Returns the parts of words that {@link toSought} asks about. */
export function getAskedParts(terms: Query): string[] {
  return narrowingRuns(terms)
    .filter((run) => run.charCodeAt(0) < 128)
    .map(partOf);
}

/** Returns the request to the index as expressions for FTS5. */
export function toExpressions(terms: Query, wordsWith: (part: string) => readonly string[] | undefined) {
  const { words, parts } = toSought(terms, wordsWith);
  return { words: words && toFts(words), parts: parts && toFts(parts) };
}

export function toFts(sought: Sought): string {
  return sought.map((any) => (any.length === 1 ? quoted(any[0]) : `(${any.map(quoted).join(" OR ")})`)).join(" AND ");
}

function quoted(token: string): string {
  return `"${token}"`;
}

// --- the shown line ----------------------------------------------------------------------------------------------

/** Returns how well a folded text with all terms fits: higher is better, 0 to 1 for each term, more for neighbours. */
export function score(folded: string, terms: Query): number {
  // Long texts hold many words by chance (BM25's idea, with constants for messages).
  const weight = 1.2 * (0.25 + 0.75 * Math.min(4, folded.length / 800));
  let sum = 0;
  let after = -1;
  for (const text of terms) {
    let times = 0;
    let whole = false;
    for (let at = folded.indexOf(text); at >= 0 && times < 20; at = folded.indexOf(text, at + text.length)) {
      times++;
      whole ||= !isWordAt(folded, at - 1) && !isWordAt(folded, at + text.length);
    }
    sum += (times / (times + weight)) * (whole ? 1 : 0.5);
    const at = folded.indexOf(text);
    if (after >= 0 && at >= after && at - after <= 2) sum += 0.5;
    after = at + text.length;
  }
  return Math.round(sum * 1e6) / 1e6;
}

function isWordAt(text: string, at: number): boolean {
  const c = at < 0 || at >= text.length ? 0 : text.charCodeAt(at);
  return (c >= 0x30 && c <= 0x39) || (c >= 0x61 && c <= 0x7a) || c === 0x5f;
}

/** Characters of a snippet around the first term, and of a line around the place. */
const SNIPPET = 160;
const LINE = 240;
/** Occurrences of one term that are looked at for the best line. */
const MAX_PLACES = 100;

/** Returns one line of the text around the first occurrence of a term. `folded` is the folded text. */
export function makeSnippet(text: string, folded: string, terms: Query): string {
  const found = terms.map((term) => folded.indexOf(term)).filter((at) => at >= 0);
  return cutOut(text, inProportion(found.length === 0 ? 0 : Math.min(...found), folded, text) - SNIPPET / 4, SNIPPET);
}

/** Returns the line of the text with most of the terms, the first of such lines; of a long one the part around them. */
export function findBestLine(text: string, folded: string, terms: Query): string {
  const { start, place } = bestLine(folded, terms);
  const line = lineAt(text, folded.length === text.length ? start : startOfSameLine(folded, start, text));
  const at = inProportion(place - start, lineAt(folded, start), line);
  return cutOut(line, Math.min(at - LINE / 4, line.length - LINE), LINE);
}

/** Words of a line that says what failed. */
const FAILURE =
  /\b(?:[a-z]*error|exception|fatal|panic(?:ked)?|fail(?:ed|ure|s)?|denied|refused|cannot|not found|no such|traceback)\b/i;

/** Returns the first line of a failure's text that says what failed, or else the last one. */
export function findFailureLine(text: string): string {
  const lines = text.split("\n").filter((line) => /\S/.test(line));
  const line = lines.find((one) => FAILURE.test(one)) ?? lines.at(-1) ?? "";
  return cutOut(line, Math.min(line.search(FAILURE) - LINE / 4, line.length - LINE), LINE);
}

/** Returns the start of the line with most of the terms, and the first place of a term in it. */
function bestLine(folded: string, terms: Query): { start: number; place: number } {
  const lines = new Map<number, { start: number; place: number; terms: number }>();
  for (const term of terms) {
    let at = folded.indexOf(term);
    for (let places = 0; at >= 0 && places < MAX_PLACES; places++) {
      const start = lineStart(folded, at);
      const line = lines.get(start);
      if (line) Object.assign(line, { place: Math.min(line.place, at), terms: line.terms + 1 });
      else lines.set(start, { start, place: at, terms: 1 });
      // A line counts once for each term.
      const end = folded.indexOf("\n", at + term.length);
      at = end < 0 ? -1 : folded.indexOf(term, end);
    }
  }
  let best: { start: number; place: number; terms: number } | undefined;
  for (const line of lines.values())
    if (!best || line.terms > best.terms || (line.terms === best.terms && line.start < best.start)) best = line;
  if (best) return best;
  const place = Math.max(0, folded.search(/\S/));
  return { start: lineStart(folded, place), place };
}

function lineStart(text: string, place: number): number {
  return place === 0 ? 0 : text.lastIndexOf("\n", place - 1) + 1;
}

function lineAt(text: string, start: number): string {
  const end = text.indexOf("\n", start);
  return text.slice(start, end < 0 ? text.length : end);
}

/** Returns the start of a folded text's line in the text itself, which has other lengths and the same lines. */
function startOfSameLine(folded: string, start: number, text: string): number {
  let at = 0;
  for (let passed = folded.indexOf("\n"); passed >= 0 && passed < start; passed = folded.indexOf("\n", passed + 1))
    at = text.indexOf("\n", at) + 1;
  return at;
}

/** Returns a place of a folded text in the text itself: if folding changed lengths, it is found in proportion. */
function inProportion(place: number, folded: string, text: string): number {
  return folded.length === text.length ? place : Math.round((place / folded.length) * text.length);
}

/** Returns a stretch of a text on one line, with marks at its cut ends. */
function cutOut(text: string, from: number, length: number): string {
  let start = Math.max(0, from);
  let past = Math.min(text.length, start + length);
  // Surrogate pairs stay whole.
  if (start > 0 && /[\udc00-\udfff]/.test(text[start])) start--;
  if (past < text.length && /[\udc00-\udfff]/.test(text[past])) past++;
  const line = text.slice(start, past).replace(/\s+/g, " ").trim();
  return `${start > 0 ? "…" : ""}${line}${past < text.length ? "…" : ""}`;
}
