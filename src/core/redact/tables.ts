/** Secrets in tables: of CSV, Markdown, and programs that print rows, whose first line names the columns. */

import { isMade } from "./hinted.ts";
import { canBeSecret, getLabel, getSecretKind, isJumpy } from "./names.ts";
import type { SecretSpan } from "./tokens.ts";

/** A first line: names with one sign between them, one of which may name a secret. */
const HEAD = /(?<=^|[\n"])[ \t>]{0,8}(?:["\w .*`-]{0,48}([,;|│\t]))(?:["\w .*`-]{0,48}\1){0,24}["\w .*`-]{0,48}\r?\n/gi;
/** A first line of a dump of PostgreSQL, whose rows have tabs. */
const COPIED = /(?<=^|[\n"])COPY [\w."]{1,128} \(([^()\n]{1,2048})\) FROM stdin;\r?\n/g;
const MOST_ROWS = 2000;

/** Yields the secrets in the columns that a table names. */
export function* findTableSecrets(text: string): Generator<SecretSpan> {
  if (!/pass|pwd|secret|token|key/i.test(text)) return;
  let past = 0;
  for (const { 0: head, 1: sign, index } of text.matchAll(HEAD)) {
    if (index < past) continue;
    const names = head.split(sign).map((name) => name.replace(/["*`]/g, "").trim());
    // A column of passed tests comes with one of failed tests.
    if (!/fail/i.test(head)) past = yield* rowsOf(text, names, sign, index + head.length);
  }
  for (const { 0: head, 1: names, index } of text.matchAll(COPIED))
    yield* rowsOf(text, names.split(/, ?/), "\t", index + head.length);
}

/** Yields the secrets in the rows from `at` on, and returns the end of the rows. */
function* rowsOf(text: string, names: readonly string[], sign: string, from: number): Generator<SecretSpan, number> {
  const kinds = names.map((name) => getSecretKind(name.replaceAll(" ", "_")));
  if (!kinds.some((kind) => kind !== undefined)) return 0;
  let at = from;
  for (let row = 0; row < MOST_ROWS && at < text.length; row++) {
    const end = text.indexOf("\n", at) < 0 ? text.length : text.indexOf("\n", at);
    const cells = text.slice(at, end).split(sign);
    // A line of signs is below the head; another number of cells is no row.
    const isRule = /^[\s|+:│├┼┤─-]+$/.test(text.slice(at, end));
    if (!isRule && cells.length !== names.length) break;
    if (!isRule) yield* secretsOf(cells, kinds, at, sign);
    at = end + 1;
  }
  return at;
}

function* secretsOf(
  cells: readonly string[],
  kinds: readonly ReturnType<typeof getSecretKind>[],
  from: number,
  sign: string,
): Generator<SecretSpan> {
  let at = from;
  for (const [column, cell] of cells.entries()) {
    const value = cell.trim().replace(/^["'`*]+|["'`*]+$/g, "");
    const kind = kinds[column];
    const isKnown = kind && value !== "" && canBeSecret(value, kind, /[|│]/.test(sign) ? "bare" : "setting");
    if (kind && (isKnown || (kind !== "key" && value.length >= 8 && (isJumpy(value) || isMade(value))))) {
      const start = at + cell.indexOf(value);
      yield { start, end: start + value.length, kind: getLabel(kind) };
    }
    at += cell.length + sign.length;
  }
}
