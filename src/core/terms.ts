/** What a search query means, for every way of searching: its terms, where they stand in a text, how well they fit. */

/** A query as its terms: all of them must stand in a text, in any place, whatever their case. */
export interface Query {
  readonly terms: readonly Term[];
}

export interface Term {
  /** Folded, as {@link fold} does it. */
  readonly text: string;
  /** The runs of letters, digits and underscores in it. */
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

/** What the index takes for one piece: ASCII letters, digits, underscores, and what is neither ASCII nor punctuation. */
const RUN = /[a-z0-9_\u00c0-\u1fff\u2070-\u2fff\u3040-\ufefe\uff10-\uffff]+/g;
/** Runs beyond this length are found by their parts only. */
const LONGEST_WORD = 64;
/** Marks a token that is a whole run. */
const WHOLE = "=";

/**
 * The tokens of a folded text, each once: its runs as wholes, and their parts, by which substrings are found. Parts
 * are three ASCII characters or two (for short terms), and one or two where a character is not ASCII, as in scripts
 * that put no space between words. Whatever part a term has, every text that holds the term has it too.
 */
export class Tokens {
  private readonly found = new Set<string>();
  private readonly marks = new Uint32Array(1 << 21);
  private round = 0;
  private parts: string[] = [];

  clear(): void {
    this.found.clear();
    this.parts = [];
    this.round++;
  }

  add(folded: string): void {
    for (const run of folded.match(RUN) ?? []) {
      if (run.length <= LONGEST_WORD) {
        if (this.found.has(run)) continue;
        this.found.add(run);
        this.parts.push(WHOLE + run);
      }
      this.addParts(run);
    }
  }

  private addParts(run: string): void {
    const { marks, round, parts, found } = this;
    const past = run.length;
    for (let i = 0; i < past; i++) {
      const a = run.charCodeAt(i);
      const b = i + 1 < past ? run.charCodeAt(i + 1) : 0;
      if (a < 128 && b < 128) {
        if (b === 0) continue;
        const two = (a << 7) | b;
        if (marks[two] !== round) {
          marks[two] = round;
          parts.push(run.slice(i, i + 2));
        }
        const c = i + 2 < past ? run.charCodeAt(i + 2) : 0;
        if (c === 0 || c >= 128) continue;
        const three = (two << 7) | c;
        if (marks[three] === round) continue;
        marks[three] = round;
        parts.push(run.slice(i, i + 3));
        continue;
      }
      for (const part of unusualParts(run, i)) {
        if (found.has(` ${part}`)) continue;
        found.add(` ${part}`);
        parts.push(part);
      }
    }
  }

  /** Separated by spaces. */
  text(): string {
    return this.parts.join(" ");
  }
}

/** The parts that begin at `i`, where at least one of two characters is not ASCII. */
function unusualParts(run: string, i: number): string[] {
  const a = run.charCodeAt(i);
  const b = i + 1 < run.length ? run.charCodeAt(i + 1) : 0;
  // Halves of a character outside the basic plane are no text by themselves.
  if (isLow(a) || (b !== 0 && isHigh(b))) return a >= 128 && !isHalf(a) ? [run[i]] : [];
  if (isHigh(a)) return isLow(b) ? [run.slice(i, i + 2)] : [];
  const parts: string[] = [];
  if (a >= 128) parts.push(run[i]);
  if (b !== 0 && !isLow(b)) parts.push(run.slice(i, i + 2));
  return parts;
}

function isHigh(c: number): boolean {
  return c >= 0xd800 && c < 0xdc00;
}

function isLow(c: number): boolean {
  return c >= 0xdc00 && c < 0xe000;
}

function isHalf(c: number): boolean {
  return c >= 0xd800 && c < 0xe000;
}

/** The longest parts that every text with the term has. */
function partsOf(term: Term): string[] {
  const parts = new Set<string>();
  for (const run of term.runs)
    for (let i = 0; i < run.length; i++) {
      const a = run.charCodeAt(i);
      const b = i + 1 < run.length ? run.charCodeAt(i + 1) : 0;
      const c = i + 2 < run.length ? run.charCodeAt(i + 2) : 0;
      if (a >= 128 || b >= 128) for (const part of unusualParts(run, i)) parts.add(part);
      else if (b !== 0 && c !== 0 && c < 128) parts.add(run.slice(i, i + 3));
      else if (b !== 0 && (i === 0 || run.charCodeAt(i - 1) >= 128)) parts.add(run.slice(i, i + 2));
    }
  return [...parts];
}

/** Expressions for FTS5 over the tokens: what to ask for in turn. */
export interface Expression {
  /** Texts in which the terms are whole words; undefined when the index cannot tell. */
  readonly words?: string;
  /** All texts that may hold the terms; undefined when that is any text. */
  readonly parts?: string;
}

export function expressionOf({ terms }: Query): Expression {
  const runs = new Set(terms.flatMap((term) => term.runs));
  const words = [...runs].filter((run) => run.length <= LONGEST_WORD).map((run) => quoted(WHOLE + run));
  const parts = [...new Set(terms.flatMap(partsOf))].map(quoted);
  return {
    words: words.length > 0 && words.length === runs.size ? words.join(" AND ") : undefined,
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
  if (start > 0 && isLow(text.charCodeAt(start))) start--;
  if (past < text.length && isLow(text.charCodeAt(past))) past++;
  const line = text.slice(start, past).replace(/\s+/g, " ").trim();
  return `${start > 0 ? "…" : ""}${line}${past < text.length ? "…" : ""}`;
}
