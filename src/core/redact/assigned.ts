/** Values after the name of a secret: settings, programs, YAML, arguments of commands, queries of addresses, sentences. */

import {
  ABROAD,
  canBeSecret,
  getLabel,
  getSecretKind,
  isChance,
  isJoined,
  isOdd,
  isStatedSecret,
  type NameKind,
  stripMarks,
  UUID,
  type Writing,
} from "./names.ts";
import { findMatches, type SecretSpan } from "./tokens.ts";

/** Beginnings of the words that secretKind knows. */
const NAMED =
  /pass(?:w|p|c|[^a-z]|$)|(?:pass|pw|pswd)(?![a-z])|pwd|secret|token|api[ _-]?key|_?auth(?:orization)?(?![a-z])|(?:access|account|private|signing|encryption|master|shared|storage|license|service|ssh|session|jwt|app|client|subscription|deploy|preshared)[ _-]?key|(?:[A-Z0-9_]KEY|[a-z]Key|[a-z0-9][_-]key)(?![A-Za-z])|bearer(?=["'])|(?<![A-Za-z])(?:PAT|WIF)(?![A-Za-z])|BW_SESSION|credential|(?<![a-z])creds?(?![a-z])|(?<![a-z])pin(?![a-z])|(?<![a-z])psk(?![a-z])|mnemonic|(?:seed|recovery|secret|wallet)[ _](?:phrase|seed|words)|(?:totp|2fa|mfa|otp) seed|PHPSESSID|JSESSIONID|(?<![A-Za-z])sessionid(?![a-z])|csrf-?token/gi;
const NAME_CHARACTER = /[A-Za-z0-9_.-]/;
const NAME_END = /[A-Za-z0-9_-]{0,48}(?:\.[a-z][\w-]{0,32}(?=["']?[ \t]?[=:]))?/y;
/** More words of a name in a sentence or a form (`Secret Access Key`). */
const MORE_WORDS = /[ _-](?:access[ _-]?key|key|phrase|token)(?![A-Za-z])(?:[ _-](?:base|id)(?![A-Za-z]))?/iy;
/** The end of a name with more about it, before the sign that gives it its value. */
const CLOSING =
  /\\{0,3}["'`]?\]?(?:[*_]{1,3}|[ \t]?\[[^\]\n]{0,40}\](?=:)|[ \t]?\([^()\n]{0,30}\)(?=:)|[ \t]for[ \t][^\s:]{1,64}(?=:)|(?:[ \t]\.){2,16}(?=[ \t]?:))?/y;
const SIGN =
  /[*_]{0,3}([ \t]{0,24})(=>|->|→|<-|:=|\?=|\+=|[=!]==?|={1,2}|:-|:=|:(?!:)|\)?[ \t]{0,2}(?:\|\||\?\?|\?:)=?|\)?\.(?:type|fill|unwrap_or|orElse|or|equals|sendKeys|setValue|set|default|value)\(|,|\(|[|│]|(?:is|was|est|ist|es|é|è|jest|är|er)(?=[ \t])|是|为|為|は|(?=[ \t]))[*_]{0,3}([ \t]{0,24}(?:(?:!!?[a-z]{2,12}|&\w{1,32})[ \t](?=[^\s=]))?)/y;
/** A type of a program, or a member, around a quoted value. */
const WRAPPED =
  /(?:&?(?:'\w{1,16} )?[A-Za-z][\w.<>?[\]]{1,32}(?: \| \w{1,24}){0,3}[ \t]?=[ \t]?)?(?:(?:\{\s{0,8}\\{0,3}"(?:value|default|plaintext|text|data)\\{0,3}"\s{0,2}:|\[\]byte|by lazy|default[ \t]?=|(?:new )?[A-Z]\w{0,20}(?:(?:::|\.)\w{1,20})?)[ \t]?[({]?[ \t]?)?[bBrRuUfFN@L$]?(?=\\{0,3}["'`])/y;
const LINE_VALUE = /[^\s"'`]{4,1024}(?=[ \t]*(?:\r?\n|$))/y;
const PLAIN = /[A-Za-z0-9+/=_-]{1024,8192}|[^\s"'`,;&<>()[\]{}\\|]{4,1024}/y;
/** A value of a connection, with braces as quotes; a name in them is a placeholder. */
const BRACED = /\{((?![A-Za-z_.]*\d?\})[^\s{}"'`]{4,128})\}(?=[;"'`\s\\]|$)/y;
/** A value that has a line of its own. */
const NEXT_LINE = /[|>]?[+-]?[ \t]{0,4}\r?\n[ \t]{0,16}(?:["'`])?([^\s"'`:]{6,128})["'`]?[ \t]{0,4}(?=\r?\n|$)/y;
const PHRASE = /[a-z]{3,12}(?:[ \t][a-z]{3,12}){3,29}(?=[ \t]*(?:\r?\n|$|\.))/y;

/** Signs that only a value can follow. */
const SURE = new Set(["=>", "->", "→", "<-", ":=", "?=", "+=", "=", "==", "===", "!=", "!==", ":", ":-"]);

/** A value with the way it is written. */
interface FoundValue {
  readonly start: number;
  readonly end: number;
  readonly writing: Writing;
}

/** Yields the values after all names in a text. */
export function* findAssigned(text: string): Generator<SecretSpan> {
  let past = 0;
  for (const { 0: found, index } of text.matchAll(NAMED)) {
    if (index < past) continue;
    let nameEnd = index + found.trimEnd().length;
    nameEnd = afterOf(NAME_END, text, /[^A-Za-z0-9_-]$/.test(found) ? nameEnd - 1 : nameEnd);
    past = nameEnd;
    for (let words = 0; words < 2; words++) nameEnd = afterOf(MORE_WORDS, text, nameEnd);
    let start = index;
    while (start > 0 && index - start < 48 && NAME_CHARACTER.test(text[start - 1])) start--;
    const kind = getSecretKind(text.slice(start, nameEnd));
    // The login of an address, and the type of a resource.
    if (
      /:\/\/[^\s/;?&@]{0,64}$|(?:^|[^A-Za-z])arn:\S{0,200}:$|(?:checksum|hash|sha\d{1,3}|digest)[/.]$/.test(
        text.slice(Math.max(0, start - 210), start),
      )
    )
      continue;
    const span = kind && valueAfter(text, start, nameEnd, kind);
    if (!span) continue;
    yield span;
    const after = changedTo(text, span.end);
    if (after) yield { ...after, kind: span.kind };
    past = span.end;
  }
  for (const { 0: found, 1: isPassword, index } of stripMarks(text).matchAll(ABROAD)) {
    const kind = isPassword ? "password" : "secret";
    const span =
      valueAfter(text, index, index + found.length, kind) ?? oddAfter(text, index + found.length, kind, true);
    if (span) yield span;
  }
}

/** The sign of a plan before the new value. */
const CHANGED = /["'`][ \t]{1,4}(?:->|→|=>)[ \t]{1,4}(?=["'`])/y;

function changedTo(text: string, at: number): { readonly start: number; readonly end: number } | undefined {
  const sign = afterOf(CHANGED, text, at);
  return sign > at ? readQuoted(text, sign) : undefined;
}

/** Returns whether words are those of a name for a passphrase, and no label. */
const isPassphrase = (name: string, value: string): boolean =>
  /(?:psk|phrase)$/i.test(name) && /^\w+(?: \w+){2,9}$/.test(value) && !/phrase|key|secret|password/i.test(value);

function afterOf(part: RegExp, text: string, at: number): number {
  part.lastIndex = at;
  return at + (part.exec(text)?.[0].length ?? 0);
}

function valueAfter(text: string, start: number, nameEnd: number, kind: NameKind): SecretSpan | undefined {
  const name = text.slice(start, nameEnd);
  const closed = afterOf(CLOSING, text, nameEnd);
  SIGN.lastIndex = closed;
  const operator = SIGN.exec(text);
  if (!operator) return undefined;
  const [whole, before, sign, after] = operator;
  const isQuotedName = /["'`]/.test(text.slice(nameEnd, closed));
  const isFlag = /^--?[A-Za-z]/.test(name);
  const isSure = SURE.has(sign);
  const isTight = sign === "=" && before === "" && after === "";
  const isVariable = /^[A-Z0-9_]+$/.test(name) && name.length > 3;
  const at = closed + whole.length;
  // In a query, and in the name of a variable of a shell, nothing else is meant.
  const isShellDefault =
    text[start - 1] === "{" && text[start - 2] === "$" && /^:?[-=]?$/.test(sign) && sign !== "" && after === "";
  const isSetting =
    isFlag ||
    isShellDefault ||
    (isSure && isVariable) ||
    (isTight && (isVariable || name.startsWith("-") || /[?&;]/.test(text[start - 1] ?? "")));
  const found = valueAt(
    text,
    at,
    isTight || isFlag ? "setting" : "bare",
    isVariable && isTight && isLineStart(text, start),
  );
  const accept = (value: FoundValue | undefined): SecretSpan | undefined => {
    if (!value) return undefined;
    const shown = text.slice(value.start, value.end);
    const writing = value.writing === "quoted" && isVariable && kind === "secret" ? "setting" : value.writing;
    const isOfWords = isVariable || (value.writing === "quoted" && isPassphrase(name, shown));
    return canBeSecret(shown, kind, writing, isOfWords) ? { ...value, kind: getLabel(kind) } : undefined;
  };
  if (isSure || (sign === "" && isFlag)) {
    const writing = found?.writing === "bare" && isSetting ? "setting" : found?.writing;
    const span =
      found &&
      writing &&
      !(
        kind === "password" &&
        /(?:^|[^A-Za-z])pass$/i.test(name) &&
        /^\d+$/.test(text.slice(found.start, found.end)) &&
        found.writing === "bare"
      )
        ? accept({ ...found, writing })
        : undefined;
    return span ?? accept(otherAt(text, at, sign, kind)) ?? (sign === ":" ? oddAfter(text, at, kind) : undefined);
  }
  const odd = (): SecretSpan | undefined => oddAfter(text, closed, kind);
  if (!found) return (sign === "" && kind === "password" ? accept(phraseAt(text, at)) : undefined) ?? odd();
  if (/^[|│]$/.test(sign)) return accept({ ...found, writing: "loose" });
  if (found.writing === "quoted") {
    const isDefault = /\|\||\?\?|\?:/.test(sign);
    const isCall = sign === "(" && /(?:^|\.)(?:set|with)|^PASSWORD$/i.test(name);
    // A list of names is no list of values.
    const isArgument = sign === "," && isQuotedName && isArgumentOfCall(text, start);
    const value = text.slice(found.start, found.end);
    if (sign === "," && !isArgument && /^[a-z]+(?:-\w{1,8})+$/.test(value) && !isJoined(value)) return undefined;
    if (isDefault || isCall || isArgument || (sign === "" && (isVariable || isConfigured(text, start))))
      return accept(found);
    return sign === "," && !isQuotedName ? undefined : accept({ ...found, writing: "loose" });
  }
  if (
    sign === "," ||
    sign === "(" ||
    sign.startsWith(")") ||
    sign.startsWith(".") ||
    sign.includes("|") ||
    sign.includes("?")
  )
    return undefined;
  const isSentence = sign !== "" || /\t| {2}/.test(whole) || isConfigured(text, start);
  return (isSentence ? accept({ ...found, writing: "loose" }) : undefined) ?? odd();
}

/** Pieces of a sentence: quoted text, words, and stretches of letters that need no blanks. */
const PIECES =
  /(["'`])(?! )[^"'`\n]{4,80}(?<! )\1|[«“„「][^«»“”„「」\n]{4,80}[»”“」]|[!-~\u00c0-\u024f]+|[^\s!-~\u00c0-\u024f«“„「]+/gu;
/** Words between a name and its value, in languages that need one. */
const LINK =
  /^(?:is|are|was|be|to|lautet|ist|war|heißt|es|era|est|é|è|jest|är|er|bylo|je|olarak|[=–—-]|->|=>)$|[:：是为為はが는은→]$/i;

/** Second words that make another thing of a password: its prompt, its hash. */
const ANOTHER =
  /^s?[ \t-](?:hash|prompt|field|manager|dialog|reset|check|test|polic|length|hint|file|form|page|box|input|valid|screen|error|stor|strength|generat|column|variable|rule|rate|label)/i;

/**
 * Returns the first word after a name that is like no other word, within the same sentence. After a linking word, or if
 * the language of the name needs none (`isAbroad`), weaker evidence is enough.
 */
function oddAfter(text: string, at: number, kind: NameKind, isAbroad = false): SecretSpan | undefined {
  if (kind === "cookie") return undefined;
  const line = /^[^\n]{0,160}/.exec(text.slice(at, at + 160))?.[0] ?? "";
  const isNoun = (isAbroad || !ANOTHER.test(line)) && !/pass$/i.test(text.slice(at - 4, at));
  let words = 0;
  let isLinked = false;
  for (const { 0: word, index } of line.matchAll(PIECES)) {
    if (words++ > (kind === "password" || kind === "pin" ? 9 : 3)) return undefined;
    if (/^[^!-~«“„「\u00c0-\u024f]/.test(word)) {
      // Letters of other scripts are no part of a value.
      isLinked = LINK.test(word.slice(-16));
      if (/[。！？、，]/.test(word)) return undefined;
      continue;
    }
    const from = /^["'`([{«“„「]*\s?/.exec(word)?.[0].length ?? 0;
    const value = word.slice(from).replace(/\s?["'`)\]}».,;:”“」]+$/, "");
    const span = { start: at + index + from, end: at + index + from + value.length, kind: getLabel(kind) };
    if (kind === "pin") {
      if (isLinked && /^\d{4,8}$/.test(value)) return span;
    } else if (
      kind === "password" &&
      isNoun &&
      (isLinked || isAbroad || (words === 1 && isJoined(value))) &&
      isStatedSecret(value, isLinked, from > 0)
    )
      return span;
    const isSecret =
      kind !== "pin" &&
      (isOdd(value, kind) || (kind === "secret" && words === 1 && index < 4 && value.length >= 32 && isChance(value)));
    if (isSecret && words < 7 && canBeSecret(value, kind, "loose")) return span;
    if (/[.!?,;]["'`)]?$/.test(word)) return undefined;
    isLinked = LINK.test(word) || (isLinked && /^(?:now|still|just|currently|jetzt|ahora|agora|nu)$/i.test(word));
  }
  return undefined;
}

/** Returns whether a name begins its line, except for a word that exports or sets it. */
function isLineStart(text: string, start: number): boolean {
  return /(?:^|\n)[ \t]{0,16}(?:(?:export|set|ENV|ARG|setx?|declare|-e|-)[ \t]+)?$/.test(
    text.slice(Math.max(0, start - 40), start),
  );
}

/** Returns whether a command before the name on its line sets it. */
function isConfigured(text: string, start: number): boolean {
  return /(?:^|[^\w-])(?:config(?:ure)?|set|define|#define|setx|setq|setf|def|kv put|env add|wifi connect)[ \t][^\n]{0,40}$/i.test(
    text.slice(Math.max(0, start - 64), start),
  );
}

/** Returns whether the quoted name at `start` is the first argument of a call that reads or sets something. */
function isArgumentOfCall(text: string, start: number): boolean {
  return /(?:env|get|set|fetch|config|property|param|put|add|default|define|header|secret|fill|type|item|lookup|option|update|append|read|store|write|save|constant)\w{0,20}!?\([ \t]{0,4}\\{0,3}["'`][#.]?$/i.test(
    text.slice(Math.max(0, start - 52), start),
  );
}

/** Returns the value at a place. `isWholeLine`: without quotes, it ends with the line. */
function valueAt(text: string, at: number, plain: Writing, isWholeLine: boolean): FoundValue | undefined {
  const quoted = readQuoted(text, afterOf(WRAPPED, text, at));
  if (quoted) return { ...quoted, writing: "quoted" };
  if (isWholeLine) {
    LINE_VALUE.lastIndex = at;
    const line = LINE_VALUE.exec(text)?.[0];
    if (line && !/\$[({]|\(\)/.test(line)) return { start: at, end: at + line.length, writing: plain };
  }
  BRACED.lastIndex = at;
  const braced = plain === "setting" ? BRACED.exec(text)?.[1] : undefined;
  if (braced !== undefined) return { start: at + 1, end: at + 1 + braced.length, writing: "quoted" };
  PLAIN.lastIndex = at;
  const found = PLAIN.exec(text)?.[0].replace(
    /(?<=^[!-~]{5,64})[\u3000-\u9fff\uac00-\ud7af\uff00-\uffef].*$|[.:]+$/,
    "",
  );
  if (!found) return undefined;
  const next = text[at + found.length] ?? "";
  // A call or an index: an expression of a program.
  return next === "(" || next === "[" ? undefined : { start: at, end: at + found.length, writing: plain };
}

/** Returns the text between the quotes that open at a place, with its escapes. */
export function readQuoted(text: string, at: number): { readonly start: number; readonly end: number } | undefined {
  let start = at;
  while (start - at < 3 && text[start] === "\\") start++;
  const quote = text[start];
  if (quote !== '"' && quote !== "'" && quote !== "`") return undefined;
  let sign = text.slice(at, ++start);
  if (sign === quote && text.startsWith(quote + quote, start)) {
    sign = quote.repeat(3);
    start += 2;
  }
  const limit = Math.min(text.length, start + 1024);
  for (let end = text.indexOf(sign, start); end >= 0 && end < limit; end = text.indexOf(sign, end + 1)) {
    // A quote with more escapes before it than the opening one is part of the value.
    if (text[end - 1] === "\\" && sign.length === 1) continue;
    const value = text.slice(start, end);
    if (end - start < 3 || /[\r\n]/.test(value)) return undefined;
    return { start, end };
  }
  return undefined;
}

/** Returns a value on the line after its name, or one of several words. */
function otherAt(text: string, at: number, sign: string, kind: NameKind): FoundValue | undefined {
  const phrase = phraseAt(text, at);
  if (phrase && kind === "password") return phrase;
  if (sign !== ":") return undefined;
  NEXT_LINE.lastIndex = at;
  const found = NEXT_LINE.exec(text);
  if (!found) return undefined;
  const start = at + found[0].indexOf(found[1], found[0].indexOf("\n"));
  return { start, end: start + found[1].length, writing: "loose" };
}

function phraseAt(text: string, at: number): FoundValue | undefined {
  PHRASE.lastIndex = at;
  const phrase = PHRASE.exec(text)?.[0];
  return phrase === undefined ? undefined : { start: at, end: at + phrase.length, writing: "bare" };
}

/** Names in the query of an address whose value is a secret if it looks made. */
const QUERY =
  /[?&#;](?:amp;)?(?:key|k|appid|app_?key|code|ticket|sid|session(?:_?id)?|auth|hmac|sig|sign|signature|pass|otp|jwt|nonce_?str|X-Amz-Signature|X-Amz-Security-Token|X-Goog-Signature|access_?key|invite|magic|oobCode|PHPSESSID)=([A-Za-z0-9%+/=_~.-]{4,2048})/gi;

/** Yields the secrets in the queries of addresses. */
export function* findQuerySecrets(text: string): Generator<SecretSpan> {
  for (const { 0: found, 1: value, index } of findMatches(QUERY, text)) {
    const name = found.slice(0, -value.length).toLowerCase();
    const isPassword = /pass=$/.test(name) && canBeSecret(value, "password", "setting");
    const isMade = value.length >= 16 && /\d/.test(value) && /[A-Za-z]/.test(value);
    if (!isPassword && !UUID.test(value) && !(isMade && (isChance(value) || /\d[A-Za-z]+\d|^.{43}%3D$/i.test(value))))
      continue;
    const end = index + found.length;
    const kind = isPassword ? "password" : /sig|hmac/.test(name) ? "signed_link" : "secret";
    yield { start: end - value.length, end, kind };
  }
}
