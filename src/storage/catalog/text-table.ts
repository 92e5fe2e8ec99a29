/** The tables of texts in the catalog's SQLite file: their places, and an index of their words for each kind. */

import type { SearchRequest } from "../../core/ports/catalog.ts";
import { Lexicon, type Reading, toTokens } from "../../core/search/query.ts";
import type { Statement } from "../fs/sqlite.ts";
import { CatalogDamaged } from "./database-files.ts";
import { hash } from "./summary.ts";

/** Words with a part, beyond which reading the texts is faster than asking for each word. */
const MAX_WORDS = 200;
/** Words with a beginning, beyond which the index looks for that itself, which takes longer. */
const MAX_FORMS = 64;
/** Words with all trigrams of a part, beyond which they are not checked for the part itself. */
const MAX_CANDIDATES = 5000;
const REMEMBERED_WORDS = 200_000;
/** Bytes that FTS5 gathers in memory before it writes a part of an index: more than one transaction adds. */
const HASH_BYTES = 16 << 20;

/** Kinds of text: messages of users and assistants; the output of tools; and their arguments. */
export type TextKind = "talk" | "tools" | "calls";
const KINDS: readonly TextKind[] = ["talk", "tools", "calls"];

const INDEX = KINDS.map(
  (kind) => `
CREATE VIRTUAL TABLE ${kind}_index USING fts5(t, content='', contentless_delete=1, detail=none, tokenize="ascii tokenchars '_'");
INSERT INTO ${kind}_index(${kind}_index, rank) VALUES ('hashsize', ${HASH_BYTES});`,
);

export const TEXT_SCHEMA = `
CREATE TABLE said(
  id INTEGER PRIMARY KEY,
  file INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  start INTEGER NOT NULL,
  length INTEGER NOT NULL,
  nth INTEGER NOT NULL,
  role TEXT NOT NULL,
  time REAL,
  entry TEXT,
  sum TEXT NOT NULL,
  text TEXT NOT NULL
);
CREATE INDEX said_in_file ON said(file, kind, start);${INDEX.join("")}
CREATE TABLE words(id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE parts USING fts5(word, content='', detail=none, tokenize=trigram);
`;

/** The place of one text. */
export interface TextSpan {
  /** Offset in the session file; the entry's position when the line does not contain the entry's id. */
  readonly start: number;
  readonly length: number;
  /** Its number among the texts of its kind in the entry. */
  readonly nth: number;
  readonly role: string;
  /** Milliseconds. */
  readonly time: number | null;
  /** The entry's id, when the line does not contain it. */
  readonly entry: string | null;
}

/** A place in the index. Texts that were added later have higher numbers. */
export interface Numbered extends TextSpan {
  readonly id: number;
  readonly path: string;
  readonly kind: TextKind;
}

export interface NewText extends TextSpan {
  readonly folded: string;
  /** Tokens that find it in addition to its words; texts found by them are read and checked, as by words. */
  readonly marks: readonly string[];
}

interface Asked extends Pick<SearchRequest, "since" | "until"> {
  /** The working directories of the sessions; undefined: any. */
  readonly cwds: readonly string[] | undefined;
  /** Kinds of text, each with the role if only one is asked for. */
  readonly kinds: ReadonlyMap<TextKind, string | undefined>;
  /** An FTS5 expression; undefined: any text. */
  readonly expression: string | undefined;
  /** The number below which texts are returned. */
  readonly below: number;
  readonly count: number;
}

/** The texts that match an expression. */
export interface Matches {
  /** Their numbers, the highest first; perhaps not all. */
  readonly ids: Float64Array;
  /** Their number, estimated if not all are there. */
  readonly count: number;
}

/** A request for the best texts by their words alone. */
interface Best extends Omit<Asked, "expression" | "cwds"> {
  /** The sessions; undefined: any. */
  readonly paths: readonly string[] | undefined;
  readonly terms: readonly { readonly ids: Float64Array; readonly weight: number }[];
  /** By speaker, in hundredths. */
  readonly shares: Readonly<Record<string, number>>;
  /** The last text of the window before. */
  readonly above: { readonly rank: number; readonly id: number } | undefined;
}

/** A place with its rank, by which it is found. */
interface Ranked extends Numbered {
  readonly rank: number;
}

/** Weight below which a word of many texts only adds to those that others find, and texts that are ranked at most. */
const TOO_COMMON = 120;
const MANY_TEXTS = 20_000;
const MOST_RANKED = 1500;
/** Number of fitting texts after that no more are checked for a limit. */
const ENOUGH = 1000;
/** Bits of a text's weight, next to its number. */
const WEIGHT_BITS = 16;
const COMMA = 0x2c;

export class TextTable {
  /** Returns the statement of a text. */
  private readonly sql: (text: string) => Statement;
  /** Words that are in the table already. */
  private readonly lexicon = new Lexicon();

  constructor(sql: (text: string) => Statement) {
    this.sql = sql;
  }

  /** Forgets the data of a transaction that was not committed, or of too many words. */
  forget(isCommitted: boolean): void {
    if (!isCommitted || this.lexicon.count > REMEMBERED_WORDS) this.lexicon.clear();
  }

  /** Replaces the texts of a file at and after an offset; undefined: it has none yet. */
  put(file: number, kind: TextKind, from: number | undefined, texts: readonly NewText[]): void {
    // An unchanged text keeps its number, so that a client that pages through hits misses none.
    const before = from === undefined ? [] : this.textsFrom(file, kind, from);
    const there = new Map(before.map(({ id, sum, text }) => [sum + text, id]));
    const added: (() => void)[] = [];
    for (const text of texts) {
      const { folded, marks } = text;
      const sum = sumOfSpan(text);
      const reading = this.lexicon.read(folded);
      const content = marks.length === 0 ? reading.sum : `${reading.sum} ${hash(marks.join())}`;
      if (there.delete(sum + content)) this.addWords(reading.unseen);
      else added.push(() => this.add(file, kind, text, sum, content, reading));
    }
    for (const id of there.values()) this.dropOne(kind, id);
    for (const add of added) add();
  }

  private add(file: number, kind: TextKind, text: NewText, sum: string, content: string, reading: Reading): void {
    const { start, length, nth, role, time, entry, folded, marks } = text;
    const packed = entry === null ? null : JSON.stringify(entry);
    this.addWords(reading.unseen);
    const { lastInsertRowid: id } = this.sql(
      `INSERT INTO said(file, kind, start, length, nth, role, time, entry, sum, text)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ).run(file, KINDS.indexOf(kind), start, length, nth, role, time, packed, sum, content);
    const words = toTokens(folded, reading.longestRun);
    const tokens = marks.length === 0 ? words : `${words} ${marks.join(" ")}`;
    this.sql(`INSERT INTO ${kind}_index(rowid, t) VALUES (?, ?)`).run(id, tokens);
  }

  private addWords(words: readonly string[]): void {
    for (const word of words) {
      const { changes, lastInsertRowid: id } = this.sql("INSERT OR IGNORE INTO words(word) VALUES (?)").run(word);
      if (Number(changes) > 0) this.sql("INSERT INTO parts(rowid, word) VALUES (?, ?)").run(id, word);
    }
  }

  /** Returns the words that contain a part; undefined when there are more than can be queried. */
  wordsWith(part: string): string[] | undefined {
    // Short parts have no trigrams.
    const isShort = part.length < 3;
    const most = isShort ? MAX_WORDS : MAX_CANDIDATES;
    const source = isShort
      ? "words w WHERE word LIKE ? ESCAPE '\\'"
      : "parts p CROSS JOIN words w ON w.id = p.rowid WHERE parts MATCH ?";
    const pattern = isShort ? `%${part.replaceAll("_", "\\_")}%` : trigramsOf(part);
    const rows = this.sql(`SELECT w.word FROM ${source} LIMIT ?`).all(pattern, most + 1) as { word: string }[];
    if (rows.length > most) return undefined;
    const words = rows.map(({ word }) => word).filter((word) => word.includes(part));
    return words.length > MAX_WORDS ? undefined : words;
  }

  private textsFrom(file: number, kind: TextKind, from: number): { id: number; sum: string; text: string }[] {
    const texts = this.sql("SELECT id, sum, text FROM said WHERE file = ? AND kind = ? AND start >= ?");
    return texts.all(file, KINDS.indexOf(kind), from) as { id: number; sum: string; text: string }[];
  }

  drop(file: number): void {
    for (const kind of KINDS) for (const { id } of this.textsFrom(file, kind, -1)) this.dropOne(kind, id);
  }

  private dropOne(kind: TextKind, id: number): void {
    this.sql(`DELETE FROM ${kind}_index WHERE rowid = ?`).run(id);
    this.sql("DELETE FROM said WHERE id = ?").run(id);
  }

  /** Returns a number above that of every text. */
  ceiling(): number {
    return (this.sql("SELECT coalesce(max(id), 0) + 1 AS ceiling FROM said").get() as { ceiling: number }).ceiling;
  }

  /** Returns the words that begin with a text; undefined when there are more than can be queried. */
  wordsFrom(beginning: string): string[] | undefined {
    const sql = "SELECT word FROM words WHERE word >= ? AND word < ? LIMIT ?";
    const rows = this.sql(sql).all(beginning, `${beginning}{`, MAX_FORMS + 1) as { word: string }[];
    return rows.length > MAX_FORMS ? undefined : rows.map(({ word }) => word);
  }

  /** Returns the numbers that a query returns as `id`. As one text they take a tenth of the time of rows. */
  private list(query: string, values: readonly (string | number)[]): Float64Array {
    const sql = `SELECT count(*) AS count, group_concat(id) AS ids FROM (${query})`;
    const { count, ids } = this.sql(sql).get(...values) as { count: number; ids: string | null };
    return parseNumbers(ids, count);
  }

  /** Returns the texts below a number that match an expression; of more than `most` only the latest. */
  match(kinds: Asked["kinds"], expression: string, below: number, most: number): Matches {
    const found: Float64Array[] = [];
    let count = 0;
    for (const kind of kinds.keys()) {
      const ids = this.list(
        `SELECT rowid AS id FROM ${kind}_index WHERE ${kind}_index MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?`,
        [expression, below, most],
      );
      found.push(ids);
      // As many are taken to be in the same stretch of all before these.
      const stretch = ids[0] - ids[ids.length - 1];
      count += ids.length < most ? ids.length : Math.round((ids.length / stretch) * ids[0]);
    }
    if (found.length === 1) return { ids: found[0], count };
    const all = new Float64Array(found.reduce((sum, { length }) => sum + length, 0));
    for (let at = 0, n = 0; n < found.length; at += found[n++].length) all.set(found[n], at);
    return { ids: all.sort().reverse(), count };
  }

  /** Returns the places of the texts with any of the terms, those with the most telling ones first. Throws CatalogDamaged. */
  findBest({ kinds, terms, shares, below, above, paths, since, until, count }: Best): Ranked[] {
    const telling = below < MANY_TEXTS ? [] : terms.filter(({ weight }) => weight >= TOO_COMMON);
    const weighed = sumWeights(terms, telling.length > 0 ? telling : terms);
    const all = paths ? this.ofSessions(weighed, paths) : weighed;
    const roles = [...kinds].flatMap(([kind, role]) => (role === undefined ? [] : { kind: KINDS.indexOf(kind), role }));
    const limits: [condition: string, values: readonly (string | number | undefined)[]][] = [
      ["s.time >= ?", [since]],
      ["s.time <= ?", [until]],
      ...roles.map(({ kind, role }) => ["(s.kind <> ? OR s.role = ?)", [kind, role]] as [string, (string | number)[]]),
    ];
    const given = limits.filter(([, [value]]) => value !== undefined);
    const ranked = given.length === 0 ? take(all, MOST_RANKED) : this.limited(all, given);
    const share = `CASE s.kind WHEN ${KINDS.indexOf("calls")} THEN ${shares.toolCall} WHEN ${KINDS.indexOf("tools")} THEN ${shares.output}
      ELSE CASE s.role WHEN 'user' THEN ${shares.user} ELSE ${shares.assistant} END END`;
    const { rank, id } = above ?? { rank: Number.MAX_SAFE_INTEGER, id: 0 };
    const rows = this.sql(
      `SELECT * FROM (SELECT s.*, f.path, (j.value & ${(1 << WEIGHT_BITS) - 1}) * ${share} AS rank FROM ${JOINED})
        WHERE rank < ? OR (rank = ? AND id < ?) ORDER BY rank DESC, id DESC LIMIT ?`,
    ).all(JSON.stringify(ranked), rank, rank, id, count) as (Omit<Ranked, "kind"> & { kind: number; sum: string })[];
    return rows.map((row) => ({ ...this.checked(row), rank: row.rank }));
  }

  /** Yields the weighed texts of sessions. */
  private *ofSessions(weighed: Iterable<number>, paths: readonly string[]): Generator<number> {
    const ids = this.list(
      "SELECT s.id FROM json_each(?) j CROSS JOIN files f ON f.path = j.value CROSS JOIN said s ON s.file = f.id",
      [JSON.stringify(paths)],
    );
    const wanted = new Set(ids);
    for (const one of weighed) if (wanted.has(Math.floor(one / (1 << WEIGHT_BITS)))) yield one;
  }

  /** Returns the first of weighed texts that fit all conditions. */
  private limited(
    all: Generator<number>,
    given: readonly (readonly [string, readonly unknown[]])[],
  ): readonly number[] {
    const found: number[] = [];
    const sql = `SELECT j.value AS id FROM ${JOINED} WHERE ${given.map(([one]) => one).join(" AND ")}`;
    const values = given.flatMap(([, of]) => of) as (string | number)[];
    while (found.length < ENOUGH) {
      const part = take(all, MOST_RANKED);
      if (part.length === 0) break;
      found.push(...this.list(sql, [JSON.stringify(part), ...values]));
    }
    return found;
  }

  /** Returns the places of the texts that match a query, the latest first. Throws CatalogDamaged. */
  find({ kinds, expression, below, cwds, since, until, count }: Asked): Numbered[] {
    const directories = cwds && JSON.stringify(cwds);
    const found = [...kinds].flatMap(([kind, role]) => {
      const limits = {
        "f.head ->> 1 IN (SELECT value FROM json_each(?))": directories,
        "s.role = ?": role,
        "s.time >= ?": since,
        "s.time <= ?": until,
      };
      const more = Object.entries(limits).filter(([, value]) => value !== undefined);
      // The index comes first in the join, so that the result has its order and nothing beyond the limit is read.
      const [source, id] =
        expression === undefined
          ? ["said s CROSS JOIN files f ON f.id = s.file WHERE s.kind = ?", "s.id"]
          : [
              `${kind}_index t CROSS JOIN said s ON s.id = t.rowid CROSS JOIN files f ON f.id = s.file WHERE ${kind}_index MATCH ?`,
              "t.rowid",
            ];
      return this.sql(
        `SELECT s.*, f.path FROM ${source} AND ${id} < ?${more.map(([condition]) => ` AND ${condition}`).join("")}
          ORDER BY ${id} DESC LIMIT ?`,
      ).all(expression ?? KINDS.indexOf(kind), below, ...more.map(([, value]) => value), count) as (Omit<
        Numbered,
        "kind"
      > & { kind: number; sum: string })[];
    });
    if (kinds.size > 1) found.sort((a, b) => b.id - a.id);
    return found.slice(0, count).map((row) => this.checked(row));
  }

  private checked(row: Omit<Numbered, "kind"> & { readonly kind: number; readonly sum: string }): Numbered {
    const place = { ...row, kind: KINDS[row.kind], entry: unpackedEntry(row.entry) };
    if (row.sum !== sumOfSpan(place)) throw new CatalogDamaged("a place is not as it was written");
    return place;
  }
}

/** The texts that a list of numbers names, each with a weight in its last bits. */
const JOINED = `json_each(?) j CROSS JOIN said s ON s.id = (j.value >> ${WEIGHT_BITS}) CROSS JOIN files f ON f.id = s.file`;

/** Yields the numbers of the texts of terms, with the sum of the terms' weights in the last bits: the heaviest first, then the latest. */
function* sumWeights(terms: Best["terms"], finding: Best["terms"]): Generator<number> {
  const sums = new Uint16Array(1 + terms.reduce((most, { ids }) => Math.max(most, ids[0] ?? 0), 0));
  for (const { ids, weight } of terms) for (let at = 0; at < ids.length; at++) sums[ids[at]] += weight;
  const bySum = new Map<number, number[]>();
  for (const { ids } of finding)
    for (let at = 0; at < ids.length; at++) {
      const id = ids[at];
      const sum = sums[id];
      if (sum === 0) continue;
      // The next term with this text leaves it out.
      sums[id] = 0;
      const packed = id * (1 << WEIGHT_BITS) + sum;
      const same = bySum.get(sum);
      if (same) same.push(packed);
      else bySum.set(sum, [packed]);
    }
  for (const sum of [...bySum.keys()].sort((a, b) => b - a)) yield* (bySum.get(sum) ?? []).sort((a, b) => b - a);
}

/** Returns so many of the next numbers, if there are as many. */
function take(numbers: Generator<number>, count: number): number[] {
  const taken: number[] = [];
  while (taken.length < count) {
    const { value, done } = numbers.next();
    if (done) break;
    taken.push(value);
  }
  return taken;
}

/** Returns so many numbers, from a list with commas. */
function parseNumbers(list: string | null, count: number): Float64Array {
  const numbers = new Float64Array(count);
  if (list === null) return numbers;
  let parsed = 0;
  let number = 0;
  for (let at = 0; at < list.length; at++) {
    const code = list.charCodeAt(at);
    if (code === COMMA) {
      numbers[parsed++] = number;
      number = 0;
    } else number = number * 10 + code - 0x30;
  }
  numbers[parsed] = number;
  return numbers;
}

/** Returns an expression for all trigrams of a part: the index stores no positions, so each is queried on its own. */
function trigramsOf(part: string): string {
  const found = Array.from({ length: part.length - 2 }, (_, i) => `"${part.slice(i, i + 3)}"`);
  return [...new Set(found)].join(" AND ");
}

/** Parses an entry's id. It is stored as JSON: ids may contain characters that SQLite does not return unchanged. */
function unpackedEntry(text: string | null): string | null {
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    throw new CatalogDamaged("an entry's id is not as it was written");
  }
}

function sumOfSpan({ start, length, nth, role, time, entry }: TextSpan): string {
  return hash(JSON.stringify([start, length, nth, role, time, entry]));
}
