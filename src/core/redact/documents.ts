/** Secrets in documents that put a name and its value apart: XML, lists of names and values, forms, keys of the web. */

import { readQuoted } from "./assigned.ts";
import { isMade } from "./hinted.ts";
import { canBeSecret, getLabel, getSecretKind, isChance, isOdd, type Writing } from "./names.ts";
import { findMatches, type SecretSpan } from "./tokens.ts";

export function* findDocumentSecrets(text: string): Generator<SecretSpan> {
  yield* elements(text);
  yield* pairs(text);
  yield* lines(text);
  yield* secretsOfKubernetes(text);
  yield* rows(text);
  yield* webKeys(text);
}

/** An element with text: its name, its attributes, its text. */
const ELEMENT =
  /<([A-Za-z_][\w.:-]{0,63})((?:[ \t\n][^<>]{0,255})?)>(?:\s{0,16}<!\[CDATA\[)?\s{0,16}([^<>\s][^<>]{2,4095})(?=<|\]\]>)/g;
/** The attribute that names the element's value. */
const NAME = /(?:^|\s)(?:name|key|id|n)[ \t]?=[ \t]?["']([\w.:-]{2,64})["']/i;
/** A member or element for the value of the one around it, and the name of that, with nothing closed between. */
const VALUE_OF =
  /(?:value|plaintext|secret_?string|default|data)["']?[ \t]{0,4}[:=>]\s{0,4}["']?([^\s"'<>{},]{5,1024})/gi;
const PARENT =
  /(?:([\w.-]{2,64})["']?\s{0,4}(?:[:=]\s{0,4})?\{[^{}]{0,300}|<([\w.:-]{2,64})[^<>]{0,80}>\s{0,40}(?:<[^<>]{1,64}>[^<>]{0,64}<\/[^<>]{1,64}>\s{0,40}){0,4}<|([\w.-]{2,64}):[ \t]{0,4}\n(?:[ \t]{1,16}[^\n]{0,120}\n){0,4}[ \t]{1,16})$/;
const ABOUT = /pass|pwd|secret|token|key|cred/i;
/** Elements of a property list: a key, and its value. */
const LISTED = /<key>([^<>]{2,64})<\/key>\s{0,32}<(?:string|data)>([^<>]{4,4096})</g;

function* elements(text: string): Generator<SecretSpan> {
  for (const { 0: found, 1: name, 2: attributes, 3: value, index } of findMatches(ELEMENT, text)) {
    const named = NAME.exec(attributes)?.[1];
    const end = index + found.length;
    const start = end - value.length;
    yield* valueNamed(named ?? name.replace(/^.*:/, ""), value.trimEnd(), start, "quoted");
  }
  for (const { 0: found, 1: value, index } of findMatches(VALUE_OF, text)) {
    const before = text.slice(Math.max(0, index - 200), index);
    const above = ABOUT.test(before) ? PARENT.exec(before.replace(/["']$/, "")) : undefined;
    const name = above?.[1] ?? above?.[2] ?? above?.[3];
    if (name !== undefined) yield* valueNamed(name, value, index + found.length - value.length, "quoted");
  }
  for (const { 0: found, 1: name, 2: value, index } of findMatches(LISTED, text))
    yield* valueNamed(name, value.trimEnd(), index + found.length - 1 - value.length, "quoted");
}

function* valueNamed(name: string, value: string, start: number, writing: Writing): Generator<SecretSpan> {
  const kind = getSecretKind(name);
  if (!kind || !canBeSecret(value, kind, writing, /^[A-Z0-9_]+$/.test(name))) return;
  yield { start, end: start + value.length, kind: getLabel(kind) };
}

/** A name that is a value, and a value that follows it: of YAML, JSON, HCL, XML, forms. */
const PAIR =
  /(?<![A-Za-z])(?:name|key|id|variable|parameter_?key|option_?name|field|header)\\{0,3}["']?[ \t]{0,4}[:= ][ \t]{0,4}\\{0,3}["']?([\w.-]{2,64})\\{0,3}["']?[\s,;/{]{1,40}(?:(?:type|description|sensitive|secret|secure|namespace|in)\\{0,3}["']?[ \t]{0,12}[:=][ \t]{0,4}[^\n,]{1,80}[\n,]\s{0,32}\\{0,3}["']?){0,3}\\{0,3}["']?(?:value|default|parameter_?value|content|text)\\{0,3}["']?[ \t]{0,12}[:=][ \t]{0,4}/gi;
const FORM = /form-data;[ \t]{0,4}name=\\{0,3}"([\w.-]{2,64})\\{0,3}"(?:\r?\n){2}([^\r\n]{4,4096})/g;
const WORD = /[^\s"'`,;<>{}]{4,1024}/y;

function* pairs(text: string): Generator<SecretSpan> {
  for (const { 0: found, 1: name, index } of findMatches(PAIR, text)) {
    const at = index + found.length;
    const quoted = readQuoted(text, at);
    WORD.lastIndex = at;
    const end = quoted?.end ?? at + (WORD.exec(text)?.[0].length ?? 0);
    const start = quoted?.start ?? at;
    yield* valueNamed(name, text.slice(start, end), start, quoted ? "quoted" : "setting");
  }
  for (const { 0: found, 1: name, 2: value, index } of findMatches(FORM, text))
    yield* valueNamed(name, value, index + found.length - value.length, "quoted");
}

/** A line with a name and a line with one word, as Redis, forms and pages show them. */
const LINES =
  /(?<=^|[\n"])[ \t]{0,8}(?:\d{1,4}[.)][ \t]{1,4}|[-*][ \t])?(["'`*]{0,2})([A-Za-z][\w .-]{2,40})\1:?[ \t]{0,4}\r?\n(?=[ \t]{0,8}(?:\d{1,4}[.)][ \t]{1,4})?["'`]?([^\s"'`]{6,512})["'`\]}),]{0,8}[ \t]{0,4}(?:\r?\n|$))/dg;

function* lines(text: string): Generator<SecretSpan> {
  if (!ABOUT.test(text)) return;
  for (const { 1: quote, 2: name, 3: value, indices } of findMatches(LINES, text))
    if (quote === '"' || isMade(value) || isChance(value))
      yield* valueNamed(name.replaceAll(" ", "_"), value, indices?.[3]?.[0] ?? 0, quote === "" ? "bare" : "quoted");
}

const KIND = /(?:^|\n)[ \t]{0,8}kind:[ \t]{1,4}["']?Secret["']?[ \t]{0,4}(?:\r?\n|$)/g;
const DATA = /(?:^|\n)([ \t]{0,8})(?:data|stringData):[ \t]{0,4}\r?\n/g;
const MEMBER = /([ \t]{1,16})([\w.-]{1,128}):[ \t]{1,4}["']?([^\s"'|>{[][^\s"']{3,65535})["']?[^\n]{0,16}\r?(?:\n|$)/y;

/** Values of a Secret of Kubernetes, whatever their names are. */
function* secretsOfKubernetes(text: string): Generator<SecretSpan> {
  if (text.search(KIND) < 0) return;
  const documents = text.split(/^---/m);
  let from = 0;
  for (const document of documents) {
    if (document.search(KIND) >= 0)
      for (const { 0: found, 1: indent, index } of document.matchAll(DATA)) {
        for (let at = index + found.length; ; ) {
          MEMBER.lastIndex = at;
          const member = MEMBER.exec(document);
          if (!member || member[1].length <= indent.length) break;
          at += member[0].length;
          if (/user(?:_?name)?$|^(?:host|port|namespace|type)$/i.test(member[2])) continue;
          const shift = member[0].indexOf(member[3], member[1].length + member[2].length + 1);
          const start = from + at - member[0].length + shift;
          yield { start, end: start + member[3].length, kind: "secret" };
        }
      }
    from += document.length + 3;
  }
}

const ROWS =
  /(?:\(([\w\s,"`.]{5,500})\)|INTO\s{1,8}["`]?\w{0,32}(?:user|account|login|member|admin|credential)\w{0,32}["`]?)\s{0,8}VALUES\s{0,8}\(/gi;
const CELL = /\s{0,8}(?:[NEB]?'((?:[^'\n]|''){0,1024})'|[^,'()]{1,256}(?:\([^()]{0,256}\))?)\s{0,8}(,|\))/dy;

/** Values of the columns of a statement that have the name of a secret. */
function* rows(text: string): Generator<SecretSpan> {
  for (const { 0: found, 1: columns, index } of findMatches(ROWS, text)) {
    let at = index + found.length;
    for (const column of columns?.split(",") ?? Array.from({ length: 16 }, () => "")) {
      CELL.lastIndex = at;
      const cell = CELL.exec(text);
      if (!cell) break;
      at += cell[0].length;
      const place = cell.indices?.[1];
      if (place && column === "" && isOdd(cell[1], "password"))
        yield { start: place[0], end: place[1], kind: "password" };
      else if (place) yield* valueNamed(column.replace(/[\s"`]/g, ""), cell[1], place[0], "quoted");
      if (cell[2] === ")") break;
    }
  }
}

/** The private members of a JSON Web Key. */
const WEB_KEY = /"kty\\{0,3}"/;
const PRIVATE_MEMBER = /"(?:d|k|p|q|dp|dq|qi)\\{0,3}"\s{0,4}:\s{0,4}\\{0,3}"([\w-]{16,8192})/g;

function* webKeys(text: string): Generator<SecretSpan> {
  if (!WEB_KEY.test(text)) return;
  for (const { 0: found, 1: value, index } of findMatches(PRIVATE_MEMBER, text))
    if (isChance(value))
      yield { start: index + found.length - value.length, end: index + found.length, kind: "private_key" };
}
