/** Finds secrets by their context: names, headers, addresses, and the lines around a private key. */

import { findAssigned, findQuerySecrets } from "./assigned.ts";
import { findLogins } from "./commands.ts";
import { findDocumentSecrets } from "./documents.ts";
import { findHinted, findOdd } from "./hinted.ts";
import { canBeSecret } from "./names.ts";
import { findShownSecrets } from "./sources.ts";
import { findTableSecrets } from "./tables.ts";
import { findMatches, type SecretSpan } from "./tokens.ts";

/** Yields all of them in a text. */
export function* findContexts(text: string): Generator<SecretSpan> {
  yield* privateKeys(text);
  yield* keyEnds(text);
  yield* addresses(text);
  yield* headers(text);
  yield* findAssigned(text);
  yield* findQuerySecrets(text);
  yield* findLogins(text);
  yield* findDocumentSecrets(text);
  yield* findTableSecrets(text);
  yield* findShownSecrets(text);
  yield* findHinted(text);
  yield* findOdd(text);
}

/** Keys of any program, except public ones. */
const KEY_BEGINS =
  /-----BEGIN (?:(?!PUBLIC)[A-Za-z0-9]{1,16} ){1,4}KEY(?: (?:BLOCK|V\d))?-----|PuTTY-User-Key-File-\d/gi;
const KEY_ENDS = /-----END (?:(?!PUBLIC)[A-Za-z0-9]{1,16} ){1,4}KEY(?: (?:BLOCK|V\d))?-----|\nPrivate-MAC: [0-9a-f]+/gi;
/** The characters of a key that lacks its last line. */
const KEY_BODY = /[A-Za-z0-9+/=\s\\:,]{0,32768}/y;

/** Longest private key with its lines. */
const LONGEST_KEY = 32_768;

/** A truncated key is one too: it ends where its characters do. */
function* privateKeys(text: string): Generator<SecretSpan> {
  let past = 0;
  /** The next end, which many beginnings share, so that the text is searched once. */
  let ends = { start: 0, end: 0 };
  for (const { 0: begin, index } of findMatches(KEY_BEGINS, text)) {
    if (index < past) continue;
    const from = index + begin.length;
    if (ends.start < from) {
      KEY_ENDS.lastIndex = from;
      const found = KEY_ENDS.exec(text);
      ends = found
        ? { start: found.index, end: found.index + found[0].length }
        : { start: Number.POSITIVE_INFINITY, end: 0 };
    }
    if (ends.start - from < LONGEST_KEY) past = ends.end;
    else {
      KEY_BODY.lastIndex = from;
      past = from + (KEY_BODY.exec(text)?.[0].trimEnd().length ?? 0);
    }
    // Two marks without lines between, or one alone, are a search for keys or an example.
    if (past - from > 80) yield { start: index, end: past, kind: "private_key" };
    else past = from;
  }
}

/** Lines of a key, even if a mail, a program or line numbers surround its characters. */
const KEY_LINE = /^[\s>|"'+\d:.)\u2502-]{0,16}([A-Za-z0-9+/]{1,76})={0,2}(?:\\n)?["'+\s,\\]{0,8}$/;

/** The rest of keys whose first line is missing. */
function* keyEnds(text: string): Generator<SecretSpan> {
  let past = 0;
  for (const { 0: end, index } of findMatches(KEY_ENDS, text)) {
    let start = index;
    const least = Math.max(past, index - LONGEST_KEY);
    for (let to = index; to > least; ) {
      const from = text.lastIndexOf("\n", to - 2) + 1;
      const line = KEY_LINE.exec(text.slice(Math.max(from, least), to));
      // A short line is the last one, or the end of one that was cut.
      if (!line || (line[1].length < 24 && start < index)) break;
      start = to = Math.max(from, least);
      if (from <= least) break;
    }
    past = index + end.length;
    if (index - start > 40) yield { start, end: past, kind: "private_key" };
  }
}

/** Longest user and password of an address. */
const LOGIN = 256;

/** The password of an address (`postgres://app:secret@db`), or the token that is there alone. */
function* addresses(text: string): Generator<SecretSpan> {
  for (let at = text.indexOf("://"); at >= 0; at = text.indexOf("://", at + 3)) {
    const start = at + 3;
    const part = /^[^\s/?#"'`<>\\]+/.exec(text.slice(start, start + LOGIN))?.[0] ?? "";
    // A password may have slashes although it must not; the host that follows has a letter.
    const sign = part.lastIndexOf("@");
    const colon = part.indexOf(":");
    if (sign < 0) {
      const odd = /^[^\s:/@["'`<>]{1,64}:([^\s@"'`<>]{3,128})@[A-Za-z0-9]/.exec(text.slice(start, start + LOGIN));
      if (!odd || /^\d+\//.test(odd[1])) continue;
      yield { start: start + odd[0].length - 2 - odd[1].length, end: start + odd[0].length - 2, kind: "url_password" };
      continue;
    }
    const from = colon >= 0 && colon < sign ? colon + 1 : 0;
    const secret = part.slice(from, sign);
    const isName = from === 0 && !(secret.length >= 20 && /\d/.test(secret));
    const isPlaceholder = /^(?:\$|<|\{|%s|%[A-Z_]+%|\*+$|x+$|\.+$|pass(?:word|wd|phrase)?$|pwd$|secret$|token$)/i.test(
      secret,
    );
    if (secret === "" || isName || isPlaceholder) continue;
    yield { start: start + from, end: start + sign, kind: "url_password" };
  }
}

const BEARER =
  /(?<![A-Za-z])(?:[Bb]earer|[Tt]oken|[Bb]asic|ApiKey|Api-Key|Digest|GenieKey|OAuth|Splunk)\s{1,3}([A-Za-z0-9._~+/=:-]{16,4096})/g;
/** The header with a scheme of one word or none, up to the end of its line or string. */
const HEADER =
  /(?<![A-Za-z])(?:proxy-|x-)?authorization\\{0,3}["'`]?\]?\s{0,3}[:=,]\s{0,3}(?:[bfrBFR]?\\{0,3}["'`])?(?:(Basic|Digest|AWS4-HMAC-SHA256|[A-Za-z][\w-]{1,24})[ \t]{1,3})?([^\s\r\n'`$<{\\](?:[^\r\n'`\\]{4,4096}))/gi;
const COOKIE = /(?<![A-Za-z])(set-cookie2?|cookie)\\?["'`]?\s{0,3}[:=]\s{0,3}\\?["'`]?(?=[A-Za-z0-9_.$-]{1,128}=)/gi;

/** Returns whether base64 encodes a name and a password. */
function isLogin(value: string): boolean {
  if (!/^[A-Za-z0-9+/_-]{6,}={0,2}$/.test(value)) return false;
  try {
    return /^[^:\s]+:[ -~]+$/.test(atob(value.replaceAll("-", "+").replaceAll("_", "/")));
  } catch {
    return false;
  }
}

const isCredential = (value: string): boolean =>
  value.length >= 16 &&
  !/[([]|:\/\//.test(value) &&
  /\d/.test(value) &&
  /[A-Za-z]/.test(value) &&
  canBeSecret(value, "secret", "quoted");

function* headers(text: string): Generator<SecretSpan> {
  for (const { 0: found, 1: value, index } of findMatches(BEARER, text)) {
    if (!/\d|(?:[a-z][A-Z].*){4}/.test(value) || !/[A-Za-z]/.test(value) || value.includes("://")) continue;
    const start = index + found.length - value.length;
    yield { start, end: index + found.length, kind: "authorization" };
  }
  for (const { 0: found, 1: scheme = "", 2: rest, index } of findMatches(HEADER, text)) {
    const start = index + found.length - rest.length;
    const isList = /^(?:Digest|AWS4-HMAC-SHA256|OAuth|Hawk|Signature|Credential)$/i.test(scheme);
    // A list of members has quotes of its own.
    const value = isList ? rest.trimEnd() : (/^[^\s"]+/.exec(rest)?.[0].replace(/[,;)\]}.]+$/, "") ?? "");
    const isBasic = /^basic$/i.test(scheme) && isLogin(value);
    if (isBasic || (isList && /[0-9a-f]{16}|\d/.test(value)) || isCredential(value))
      yield { start, end: start + value.length, kind: "authorization" };
  }
  let past = 0;
  for (const { 0: found, index } of findMatches(COOKIE, text)) {
    if (index < past) continue;
    const start = index + found.length;
    const isSet = /^set/i.test(found);
    const line = text.slice(start, start + 8192);
    const value = (isSet ? /^[^\r\n"'`;\\]+/ : /^[^\r\n"'`\\]+/).exec(line)?.[0] ?? "";
    past = start + value.length;
    const [, first = ""] = value.split("=", 2);
    if (first.trim().length >= 6 && !/^[$<{(\s]/.test(first))
      yield { start, end: start + value.trimEnd().length, kind: "cookie" };
  }
}

const EMAIL =
  /(?<![A-Za-z0-9._%+-])[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}(?![A-Za-z0-9-])/g;

/** Yields addresses of people. Those of git's transports (`git@github.com`) are not. */
export function* findEmails(text: string): Generator<SecretSpan> {
  if (!text.includes("@")) return;
  for (const { 0: found, index } of findMatches(EMAIL, text))
    if (!found.startsWith("git@")) yield { start: index, end: index + found.length, kind: "email" };
}
