/** What a search query means, for every way of searching: its terms, where they stand in a text, how well they fit. */

/** A query as its terms: all of them must stand in a text, in any place, whatever their case. */
export interface Query {
  readonly terms: readonly Term[];
}

export interface Term {
  /** Folded, as {@link fold} does it. */
  readonly text: string;
  /** The pieces of it that the index knows. */
  readonly runs: readonly string[];
}

/** Text in the one form in which texts and terms are compared: composed, and without case. */
export function fold(text: string): string {
  const folded = text.normalize("NFC").toLowerCase();
  // The same letter at the end of a word and elsewhere.
  return folded.includes("ς") ? folded.replaceAll("ς", "σ") : folded;
}

/** Words, and what stands between quotation marks as one term. Null when there is nothing to look for. */
export function parseQuery(query: string): Query | null {
  const terms: Term[] = [];
  const known = new Set<string>();
  for (const [, quoted, word] of query.matchAll(/"([^"]*)"|([^\s"]+)/g)) {
    const text = fold((quoted ?? word).trim());
    if (text === "" || known.has(text)) continue;
    known.add(text);
    terms.push({ text, runs: text.match(RUN) ?? [] });
  }
  return terms.length === 0 ? null : { terms };
}

/** Whether a folded text holds every term. */
export function holds(folded: string, query: Query): boolean {
  for (const { text } of query.terms) if (!folded.includes(text)) return false;
  return true;
}

// --- tokens of the index -----------------------------------------------------------------------------------------

/** What the index takes for one piece: ASCII letters, digits and underscores; or what is neither ASCII nor punctuation. */
const RUN = /[a-z0-9_]+|[\u00c0-\u1fff\u2070-\u2fff\u3040-\ufefe\uff10-\uffff]+/g;
/** Longer words are cut into pieces that overlap by half, so that all parts up to half of it are in one of them. */
const LONGEST_WORD = 64;

/**
 * The tokens of folded texts, each once. An ASCII run is a word, which is found by its parts through a list of all
 * words. Any other script gives its characters and pairs of them, as many put no space between words.
 */
export class Tokens {
  readonly words = new Set<string>();
  private readonly parts = new Set<string>();

  clear(): void {
    this.words.clear();
    this.parts.clear();
  }

  add(folded: string): void {
    for (const run of folded.match(RUN) ?? []) {
      if (run.charCodeAt(0) >= 128) for (const part of partsOf(run)) this.parts.add(part);
      else if (run.length <= LONGEST_WORD) this.words.add(run);
      else
        for (let i = 0; i < run.length - LONGEST_WORD / 2; i += LONGEST_WORD / 2)
          this.words.add(run.slice(i, i + LONGEST_WORD));
    }
  }

  /** Separated by spaces. */
  text(): string {
    return [...this.words, ...this.parts].join(" ");
  }
}

/** The characters of a run, and its pairs. */
function partsOf(run: string): string[] {
  const characters = [...run];
  return [...characters, ...characters.slice(1).map((character, i) => characters[i] + character)];
}

/** Expressions for FTS5 over the tokens; undefined where the index cannot tell and any text has to be looked at. */
export interface Expression {
  /** Texts in which the terms are whole words. */
  readonly words?: string;
  /** All texts that may hold the terms. */
  readonly parts?: string;
}

/** `wordsWith` answers the words that have something in them, or undefined when they are too many to ask for. */
export function expressionOf({ terms }: Query, wordsWith: (part: string) => readonly string[] | undefined): Expression {
  const words: string[] = [];
  const parts: string[] = [];
  let isWhole = true;
  for (const run of new Set(terms.flatMap((term) => term.runs))) {
    if (run.charCodeAt(0) >= 128) {
      const found = partsOf(run).filter((part, _, all) => all.length === 1 || [...part].length === 2);
      for (const list of [words, parts]) list.push(...found.map(quoted));
      continue;
    }
    if (run.length <= LONGEST_WORD) words.push(quoted(run));
    else isWhole = false;
    const matching = wordsWith(run.slice(0, LONGEST_WORD / 2));
    // Without a word that has it the whole word does not occur either; it stands for that.
    if (matching) parts.push(`(${(matching.length === 0 ? [run] : matching).map(quoted).join(" OR ")})`);
  }
  return {
    words: isWhole && words.length > 0 ? words.join(" AND ") : undefined,
    parts: parts.length > 0 ? parts.join(" AND ") : undefined,
  };
}

function quoted(token: string): string {
  return `"${token}"`;
}

// --- what is shown -----------------------------------------------------------------------------------------------

/** How well a folded text that holds the terms fits: higher is better, 0 to 1 for each term, more for neighbours. */
export function score(folded: string, { terms }: Query): number {
  // Long texts hold many words by chance (BM25's idea, with constants for messages).
  const weight = 1.2 * (0.25 + 0.75 * Math.min(4, folded.length / 800));
  let sum = 0;
  let after = -1;
  for (const { text } of terms) {
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

/** Characters of a snippet around the first term. */
const SNIPPET = 160;

/** One line of the text around the first place where a term stands. */
export function snippet(text: string, { terms }: Query): string {
  const folded = fold(text);
  let first = folded.length;
  for (const term of terms) {
    const at = folded.indexOf(term.text);
    if (at >= 0 && at < first) first = at;
  }
  // Folding may have changed lengths before it; then the place is found in proportion.
  const place = folded.length === text.length ? first : Math.round((first / folded.length) * text.length);
  let start = Math.max(0, place - SNIPPET / 4);
  let past = Math.min(text.length, start + SNIPPET);
  // Half a character is none.
  if (start > 0 && /[\udc00-\udfff]/.test(text[start])) start--;
  if (past < text.length && /[\udc00-\udfff]/.test(text[past])) past++;
  const line = text.slice(start, past).replace(/\s+/g, " ").trim();
  return `${start > 0 ? "…" : ""}${line}${past < text.length ? "…" : ""}`;
}
