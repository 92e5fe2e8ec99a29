/** Finds and replaces secrets in texts, and remembers the found ones. */

import { findContexts, findEmails } from "./contexts.ts";
import { findDumps } from "./dumps.ts";
import { Homes } from "./homes.ts";
import { isOpenValue } from "./names.ts";
import { findPrintedSecrets } from "./sources.ts";
import { findShapes, findTokens, type SecretSpan } from "./tokens.ts";
import { decodeViews, findEncoded, LONG_RUN, stripLineNumbers } from "./views.ts";

/** A stretch that is replaced by a text; the rest of a secret that is split has an empty one and is not counted. */
export interface Finding extends SecretSpan {
  readonly replacement: string;
  readonly counts: boolean;
}

/** Secrets that are replaced wherever they are; each has a number. */
const MOST_KNOWN = 200;
const MOST_NUMBERED = 10_000;
/** Lengths of secrets that are distinct from other words. */
const KNOWN_LENGTH = { least: 8, most: 512 };
/** Number of nested encodings that are decoded. */
const MOST_ENCODED = 2;
/** Kinds whose stretches are no secret as a whole. */
const NOT_KNOWN = new Set(["home_path", "email", "cookie", "private_key"]);
/** Order of kinds for two findings of one place: a recognised token is the surest. */
const VAGUE = new Set([
  "secret",
  "password",
  "cookie",
  "authorization",
  "encoded",
  "home_path",
  "email",
  "known_secret",
]);
/** Texts with a smaller share of other characters are damaged in one place and not binary. */
const BINARY_SHARE = 0.05;
const STRING = /"([^"]{8,65536})(?=")/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const NOT_TEXT = /[\u0000-\u0006\u000e-\u001a\ufffd]/g;

const OPEN_BLOCK =
  /-----BEGIN ([A-Z0-9 ]{0,32}(?:CERTIFICATE|PUBLIC KEY|PARAMETERS|CRL|REQUEST)(?: BLOCK)?)-----[^-]{0,65536}-----END \1-----/g;

/** The rest of a value: on the next line after a backslash, or as another string that a program adds. */
const MORE =
  /(?:\\\r?\n[ \t]{0,16}(?!-)(?=[^\s"'`]{6,512}(?:[\\"'`;,)]|\s|$))|["'`]\s{0,16}(?:(?:\.\.?|[+&\\_])\s{0,40}|(?<=\n[ \t]{0,16}))["'`])[A-Za-z0-9+/=_.!@#$%^&*~-]{2,512}/y;

function endOf(text: string, at: number): number {
  for (let end = at; ; end = MORE.lastIndex) {
    MORE.lastIndex = end;
    if (!MORE.test(text)) return end;
  }
}

export class TextRedactor {
  readonly homes = new Homes();
  private readonly emails: boolean;
  private readonly numbers = new Map<string, number>();
  private readonly known = new Set<string>();
  private anyKnown: RegExp | undefined;

  constructor(emails: boolean) {
    this.emails = emails;
  }

  /**
   * Returns the findings in a text, in their order, without overlaps; `whole` is the kind of the whole text by its
   * name. `isAccount`: true if addresses in it belong to a person's account. `isPrinted`: true if a command that prints
   * secrets printed it.
   */
  find(text: string, whole?: { readonly kind: string }, isAccount = false, isPrinted = false): Finding[] {
    const found: Finding[] = whole ? [this.finding({ start: 0, end: text.length, kind: whole.kind }, text)] : [];
    if (text.length < 6 && !whole) return found;
    if (isAccount)
      for (const span of findEmails(text))
        found.push(this.finding({ ...span, kind: "account_email" }, text.slice(span.start, span.end)));
    if (isPrinted)
      for (const span of findPrintedSecrets(text)) found.push(this.finding(span, text.slice(span.start, span.end)));
    const isJson = /^\s{0,64}[[{]/.test(text);
    const itself = stripLineNumbers(text);
    for (const { text: shown, parts, origin } of [itself, ...decodeViews(itself)]) {
      const readAt = (from: number, to: number): void =>
        this.read(
          shown.slice(from, to),
          (span) => origin({ ...span, start: span.start + from, end: span.end + from }),
          found,
        );
      for (const [from, to] of isJson ? [[0, shown.length]] : parts) readAt(from, to);
      if (!isJson) continue;
      // A string of JSON is a text of its own, which begins and ends with it.
      for (const { 1: inner, index } of shown.matchAll(STRING)) readAt(index + 1, index + 1 + inner.length);
    }
    for (const { start, end, text: inner } of findEncoded(text)) {
      const first = inner === undefined ? undefined : this.firstIn(inner);
      if (first) found.push(this.finding({ start, end, kind: first }, text.slice(start, end)));
    }
    return merged(found);
  }

  /** Adds the findings of one reading of a text. */
  private read(text: string, origin: (span: SecretSpan) => SecretSpan, found: Finding[]): void {
    for (const one of this.spans(text)) {
      if (one.kind !== "private_key" && isOpenValue(text.slice(one.start, one.end), VAGUE.has(one.kind))) continue;
      const span = NOT_KNOWN.has(one.kind) ? one : { ...one, end: endOf(text, one.end) };
      found.push(this.finding(origin(span), text.slice(span.start, span.end)));
    }
    for (const dump of findDumps(text))
      for (const span of this.spans(dump.text)) {
        const place = { ...dump.origin(span.start, span.end), kind: span.kind };
        found.push(this.finding(origin(place), text.slice(place.start, place.end)));
      }
    for (const { neutral, ...home } of this.homes.in(text)) {
      const span = origin(home);
      const isSame = span.end - span.start === home.end - home.start;
      found.push({ ...span, replacement: isSame ? neutral : neutral.replaceAll("\\", "/"), counts: true });
    }
  }

  private *spans(text: string): Generator<SecretSpan> {
    yield* findTokens(text);
    yield* findShapes(text);
    yield* findContexts(text);
    if (this.emails) yield* findEmails(text);
    if (!this.anyKnown) return;
    for (const { 0: value, index } of text.matchAll(this.anyKnown))
      yield { start: index, end: index + value.length, kind: "known_secret" };
  }

  /** Returns the kind of the first finding in a decoded text, which may be encoded once more. */
  private firstIn(text: string, depth = 0): string | undefined {
    for (const { kind } of this.spans(text)) return kind;
    for (const { kind } of this.homes.in(text)) return kind;
    if (depth >= MOST_ENCODED) return undefined;
    for (const { text: inner } of [...decodeViews(stripLineNumbers(text)), ...findEncoded(text), ...findDumps(text)]) {
      const kind = inner === undefined ? undefined : this.firstIn(inner, depth + 1);
      if (kind !== undefined) return kind;
    }
    return undefined;
  }

  private finding(span: SecretSpan, value: string): Finding {
    return { ...span, replacement: `[redacted:${span.kind}:${this.numberOf(value, span.kind)}]`, counts: true };
  }

  /** Returns the number of a secret: the same for the same one, so that a reader can distinguish them. */
  private numberOf(value: string, kind: string): number {
    const number = this.numbers.get(value) ?? Math.min(this.numbers.size + 1, MOST_NUMBERED);
    if (this.numbers.size < MOST_NUMBERED && value.length <= 16_384) this.numbers.set(value, number);
    const isKnown = !NOT_KNOWN.has(kind) && this.known.size < MOST_KNOWN && isDistinctive(value);
    if (isKnown && !this.anyKnown) this.known.add(value);
    return number;
  }

  /** Searches from now on for all found secrets, also without a context that shows them. */
  knowAll(): void {
    if (this.known.size === 0) return;
    const values = [...this.known]
      .flatMap((value) => [value, ...encodingsOf(value)])
      .sort((a, b) => b.length - a.length);
    this.anyKnown = new RegExp(values.map((value) => value.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")).join("|"), "g");
  }

  /** Returns whether a text has, as it is written, a secret that was found elsewhere. */
  hasKnown(text: string): boolean {
    return this.anyKnown !== undefined && text.search(this.anyKnown) >= 0;
  }
}

/** Returns how a secret looks within base64, wherever in its groups of three bytes it begins, and in hex. */
function encodingsOf(value: string): string[] {
  const bytes = [...new TextEncoder().encode(value)];
  const hex = bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const base64 = [0, 1, 2].map((before) => {
    const all = btoa("\0".repeat(before) + String.fromCharCode(...bytes));
    return all.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
  });
  return [...base64, hex, hex.toUpperCase()];
}

function isDistinctive(value: string): boolean {
  if (value.length < KNOWN_LENGTH.least || value.length > KNOWN_LENGTH.most) return false;
  return /\d/.test(value) ? /[A-Za-z]/.test(value) : value.length >= 16;
}

/** Returns the findings in their order; overlapping ones become one. */
function merged(found: Finding[]): Finding[] {
  if (found.length < 2) return found;
  found.sort((a, b) => a.start - b.start || b.end - a.end);
  const all: Finding[] = [];
  for (const next of found) {
    const last = all.at(-1);
    if (!last || next.start >= last.end) all.push(next);
    else all[all.length - 1] = { ...moreSpecific(last, next), start: last.start, end: Math.max(last.end, next.end) };
  }
  return all;
}

/** Returns the more specific of two findings of one place. */
function moreSpecific(a: Finding, b: Finding): Finding {
  if (a.kind === "home_path") return b;
  return VAGUE.has(a.kind) && !VAGUE.has(b.kind) ? b : a;
}

export function replaceFindings(text: string, findings: readonly Finding[]): string {
  const parts: string[] = [];
  let copied = 0;
  for (const { start, end, replacement } of findings) {
    parts.push(text.slice(copied, start), replacement);
    copied = end;
  }
  parts.push(text.slice(copied));
  return parts.join("");
}

/** Returns whether a text has binary data in it, which cannot be searched: in base64, or as other characters. */
export function holdsBinary(text: string): boolean {
  if (text.length < 64) return false;
  const odd = text.search(NOT_TEXT) < 0 ? 0 : (text.match(NOT_TEXT) ?? []).length;
  if (odd > text.length * BINARY_SHARE) return true;
  if (text.length < LONG_RUN) return false;
  // The first line decides whether the data is public.
  for (const { text: inner } of findEncoded(text.replace(OPEN_BLOCK, ""), LONG_RUN))
    if (inner === undefined) return true;
  return false;
}
