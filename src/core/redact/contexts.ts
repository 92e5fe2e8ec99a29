/** Secrets that are known by what is around them: names, headers, addresses, and the lines around a private key. */

import { canBeSecret, secretKind, type Writing } from "./names.ts";
import type { SecretSpan } from "./tokens.ts";

/** Yields all of them in a text. */
export function* contextsIn(text: string): Generator<SecretSpan> {
  yield* privateKeys(text);
  yield* addresses(text);
  yield* headers(text);
  yield* assigned(text);
  yield* logins(text);
}

const KEY_BEGINS = /-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d/g;
const KEY_ENDS = /-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|\nPrivate-MAC: [0-9a-f]+/g;
/** The characters of a key that lacks its last line. */
const KEY_BODY = /[A-Za-z0-9+/=\s\\:,]{0,32768}/y;

/** Longest private key with its lines. */
const LONGEST_KEY = 32_768;

/** A key that was cut off is one too: it ends where its characters do. */
function* privateKeys(text: string): Generator<SecretSpan> {
  let past = 0;
  /** The next end, which many beginnings share, so that the text is searched once. */
  let ends = { start: 0, end: 0 };
  for (const { 0: begin, index } of text.matchAll(KEY_BEGINS)) {
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
    const isPlaceholder = /^(?:\$|<|\{|%s|%[A-Z_]+%|\*+$|x+$|\.+$|pass(?:word)?$|pwd$|secret$|token$)/i.test(secret);
    if (secret === "" || isName || isPlaceholder) continue;
    yield { start: start + from, end: start + sign, kind: "url_password" };
  }
}

const BEARER = /(?<![A-Za-z])(?:Bearer|token|Basic|ApiKey|Digest)\s{1,3}([A-Za-z0-9._~+/=:-]{16,4096})/g;
const COOKIE = /(?<![A-Za-z])(set-cookie2?|cookie)\\?["'`]?\s{0,3}[:=]\s{0,3}\\?["'`]?(?=[A-Za-z0-9_.$-]{1,128}=)/gi;

function* headers(text: string): Generator<SecretSpan> {
  for (const { 0: found, 1: value, index } of text.matchAll(BEARER)) {
    if (!/\d/.test(value) || !/[A-Za-z]/.test(value)) continue;
    const start = index + found.length - value.length;
    yield { start, end: index + found.length, kind: "authorization" };
  }
  let past = 0;
  for (const { 0: found, index } of text.matchAll(COOKIE)) {
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

/** Beginnings of the words that secretKind knows. */
const NAMED =
  /pass(?:w|p|c|[^a-z]|$)|pwd|(?<![a-z])pw(?![a-z])|secret|token|api[_-]?key|_?auth(?![a-z])|(?:access|account|private|signing|encryption|master|shared|storage|license|service|ssh|session|jwt|app|client|subscription|deploy)[_-]?key|credential/gi;
const NAME_CHARACTER = /[A-Za-z0-9_.-]/;
const NAME_END = /[A-Za-z0-9_-]{0,48}/y;
/** The name's quote, and what gives it its value. */
const OPERATOR = /\\{0,3}["'`]?\]?([ \t]{0,8})(=>|:=|\?=|==?|:(?!:)|(?=[ \t]))([ \t]{0,8})/y;
const QUOTED = /(\\{0,3}["'`])([^"'`\r\n\\]{3,1024})\1/y;
const PLAIN = /[^\s"'`,;&<>()[\]{}\\|]{4,1024}/y;

/** Values after the name of a secret: settings, programs, YAML, arguments of commands, queries of addresses. */
function* assigned(text: string): Generator<SecretSpan> {
  let past = 0;
  for (const { index } of text.matchAll(NAMED)) {
    if (index < past) continue;
    NAME_END.lastIndex = index;
    const nameEnd = index + (NAME_END.exec(text)?.[0].length ?? 0);
    past = nameEnd;
    let start = index;
    while (start > 0 && index - start < 48 && NAME_CHARACTER.test(text[start - 1])) start--;
    const name = text.slice(start, nameEnd);
    const kind = secretKind(name);
    if (!kind) continue;
    OPERATOR.lastIndex = nameEnd;
    const operator = OPERATOR.exec(text);
    if (!operator) continue;
    const [whole, before, sign, after] = operator;
    const isFlag = /^--?[a-z]/.test(name);
    if (sign === "" && !isFlag) continue;
    const valueStart = nameEnd + whole.length;
    const isTight = sign === "=" && before === "" && after === "";
    const found = valueAt(text, valueStart, isTight || isFlag ? "setting" : "bare");
    if (!found) continue;
    const value = text.slice(found.start, found.end);
    // In a query, and in the name of a variable of a shell, nothing else is meant.
    const isSure = isTight && (/[?&]/.test(text[start - 1] ?? "") || /^[A-Z0-9_]+$/.test(name));
    const writing: Writing = found.writing === "bare" && isSure ? "setting" : found.writing;
    if (!canBeSecret(value, kind, writing)) continue;
    yield { start: found.start, end: found.end, kind };
    past = found.end;
  }
}

function valueAt(text: string, at: number, plain: Writing) {
  QUOTED.lastIndex = at;
  const quoted = QUOTED.exec(text);
  if (quoted) {
    const start = at + quoted[1].length;
    return { start, end: start + quoted[2].length, writing: "quoted" as const };
  }
  PLAIN.lastIndex = at;
  const found = PLAIN.exec(text)?.[0].replace(/[.:]+$/, "");
  if (!found) return undefined;
  const next = text[at + found.length] ?? "";
  // A call or an index: an expression of a program.
  return next === "(" || next === "[" ? undefined : { start: at, end: at + found.length, writing: plain };
}

/** The login of curl and of a .netrc file, and the signature of a shared link. */
const LOGINS: readonly (readonly [kind: string, RegExp])[] = [
  ["password", /(?<![A-Za-z0-9-])(?:-u|--user|--proxy-user)[ =]["']?[A-Za-z0-9_.@-]{1,64}:([^\s"'$]{4,128})/g],
  ["password", /(?<![A-Za-z])login[ \t]{1,4}\S{1,64}\s{1,4}password[ \t]{1,4}(\S{4,128})/g],
  ["password", /(?<![A-Za-z0-9])sshpass[ \t]{1,4}-p[ \t]{0,2}["']?([^\s"'$]{4,128})/g],
  ["signed_link", /[?&;](?:sig|X-Amz-Signature|X-Goog-Signature|Signature)=([A-Za-z0-9%+/=_~-]{32,1024})/g],
];

function* logins(text: string): Generator<SecretSpan> {
  for (const [kind, shape] of LOGINS)
    for (const { 0: found, 1: value, index } of text.matchAll(shape)) {
      const end = index + found.length;
      yield { start: end - value.length, end, kind };
    }
}

const EMAIL =
  /(?<![A-Za-z0-9._%+-])[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}(?![A-Za-z0-9-])/g;

/** Yields addresses of people. Those of git's transports (`git@github.com`) are not. */
export function* emailsIn(text: string): Generator<SecretSpan> {
  if (!text.includes("@")) return;
  for (const { 0: found, index } of text.matchAll(EMAIL))
    if (!found.startsWith("git@")) yield { start: index, end: index + found.length, kind: "email" };
}
