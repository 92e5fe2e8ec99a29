/** Finds words that look generated close to a word for a secret. A weak word needs a stronger shape. */

import { ABROAD_WORDS, APPLE, isJumpy, isOpenName, NO_VALUE, NUMBERED, stripMarks, UUID } from "./names.ts";
import type { SecretSpan } from "./tokens.ts";

/** Words for a password (1), for another secret (2), and for a thing that often comes with one (3). */
const HINT = new RegExp(
  `(pas{1,2}(?:w|ph|c)\\w|paswor|pwd|pswd|(?:require|user|db|smtp|store|root|master)pass(?![a-z])|rootpw|(?<![a-z])(?:pass|pw|psk)(?![a-z])|${ABROAD_WORDS.password})|` +
    `(secret(?!ar)|token|add-mask|fernet|secretbox|aes\\.new|credential|(?<![a-z])creds?(?![a-z])|api[ _-]?key|private[ _-]?key|t?otp(?![a-z])|(?<![a-z])[2m]fa(?![a-z])|authenticator|webhook|bearer|(?<![a-z])psk|${ABROAD_WORDS.secret})|` +
    "((?<![a-z])(?:(?:auth|join|priv|sign|app|access|master)?[_-]?key|cookie|encrypt|auth(?:entication)?|login|log ?in|sign ?in|user|account|pin|unlock|identify|radius|community|wi-?fi|vpn|ssh|s?ftp|sudo|admin|root)(?![a-z])|-[nz](?<=(?:^|\\n)\\+{1,4} [\"']?\\[{1,2}[\"']? -.))",
  "gi",
);
/** A word as it may be a secret; the characters around words in programs and sentences end it. */
const WORD = /[A-Za-z0-9\u00c0-\u04ff!@#$%^&*+~?_./=:-]{8,256}/g;
/** The rest of a word that begins so. */
const WORD_END = /[\w\u00c0-\u04ff]*/y;
/** Lines after that of a hint that may have a value. */
const MOST_LINES = 4;
const REACH = 320;
/** A longer line was not written by a person, and is no setting: only the text close to the hint counts. */
const NEAR = 160;

/** Yields the words that look made near to a hint. */
export function* findHinted(whole: string): Generator<SecretSpan> {
  // An escaped end of a line ends it, too.
  const text = whole.includes("\\n") ? whole.replaceAll("\\n", " \n") : whole;
  const plain = /[\u00c0-\u024f]/.test(text) ? stripMarks(text) : text;
  /** The words of the text, so that each is found once, and the first that a hint may reach. */
  let words: RegExpExecArray[] | undefined;
  let first = 0;
  let past = -1;
  let lineStart = 0;
  let lineEnd = 0;
  for (const { 0: hint, 1: isPassword, 2: isToken, index } of plain.matchAll(HINT)) {
    const strength = isPassword ? 3 : isToken ? 2 : 1;
    WORD_END.lastIndex = index + hint.length;
    WORD_END.test(text);
    const after = WORD_END.lastIndex;
    // One line may have many hints.
    if (index >= lineEnd) {
      lineStart = text.lastIndexOf("\n", index) + 1;
      lineEnd = text.indexOf("\n", index);
      if (lineEnd < 0) lineEnd = text.length;
    }
    const from = Math.max(lineStart, index - NEAR);
    const to = Math.min(lineEnd, after + NEAR);
    if (text.length - from < 8) return;
    const rest = strength > 1 || text[to - 1] === ":" ? to + following(text, to) : to;
    words ??= [...text.matchAll(WORD)];
    while (first < words.length && words[first].index < from) first++;
    for (let at = first; at < words.length && words[at].index < rest; at++) {
      const word = words[at];
      const [start, value] = trimmed(word[0], word.index);
      if (start < past && start + value.length <= past) continue;
      const place = start < index ? "before" : start < to ? "after" : "below";
      if (start + value.length > index && start < after) continue;
      // A line of a setting has nothing but its name, at most a number of its type, and the value.
      const isSetting =
        start + value.length >= to &&
        /^[ \t]+(?:\d+[ \t]+)?(?:md5[ \t]+|--\w+[ \t]+)?["']?$/.test(text.slice(after, start));
      if (
        text[start - 1] === "\\" ||
        // The middle of a run longer than any secret.
        word[0].length === 256 ||
        words[at - 1]?.[0].length === 256 ||
        SUM.test(word[0]) ||
        !isEnough(value, isSetting ? 3 : strength, place, text, after, start) ||
        isOpen(text, start, index)
      )
        continue;
      past = Math.max(past, start + value.length);
      yield { start, end: start + value.length, kind: isPassword ? "password" : "secret" };
    }
  }
}

/** A fingerprint with the name of its algorithm. */
const SUM = /^(?:SHA|MD)\d+:/;

/** A name before a value, and the text between them. */
const NAME_BEFORE = /([A-Za-z][\w.-]{0,63})[\\"'`\])]*[ \t]*(?:[:=|]|=>|->|→)?[ \t]*[\\"'`<([#{]*$/;

/** Returns whether the name of a value, or of its column in a table, marks it as public. */
function isOpen(text: string, start: number, hint: number): boolean {
  const line = text.slice(Math.max(0, start - 80), start).replace(/^.*\n/s, "");
  const name = NAME_BEFORE.exec(line)?.[1];
  if ((name !== undefined && isOpenName(name)) || OPEN_BEFORE.test(line)) return true;
  const lineStart = text.lastIndexOf("\n", start) + 1;
  const before = text.slice(lineStart, start);
  return text
    .slice(text.lastIndexOf("\n", Math.min(hint, lineStart - 2)) + 1, lineStart)
    .split("\n")
    .some((head) => isOpenName(columnAt(head.replace(/^.*":[ \t]?\\*"/, ""), before)));
}

/** Texts before a key that everybody may know, encrypted text, and a picture. */
const OPEN_BEFORE = /(?:public|gpg|rsa|cache|recv)[ _-]?keys?\W{0,4}$|ENC\[[^\]]*$|data:image\/[\w+]+;base64,$/i;

/** Returns the name of the column in the first line of a table that a place in another line is in. */
function columnAt(head: string, before: string): string {
  const sign = /[,;|\t]/.exec(head)?.[0];
  if (sign !== undefined) return head.split(sign)[before.split(sign).length - 1] ?? "";
  // Columns with blanks between.
  const from = head.slice(0, before.length + 1).replace(/\S*$/, "").length;
  return /\S {2,}\S/.test(head) ? (/^\S+(?: \S+)*/.exec(head.slice(from))?.[0] ?? "") : "";
}

/** Returns how many characters after a line are lines of the same structure or dialogue. */
function following(text: string, at: number): number {
  let end = at;
  for (let lines = 0; lines < MOST_LINES && end < text.length && end - at < REACH; lines++) {
    const next = text.indexOf("\n", end + 1);
    // A blank line ends it.
    if (next === end + 1) break;
    end = next < 0 ? text.length : next;
  }
  return Math.min(end - at, REACH);
}

/** Returns a word without a name before it, and without the signs of the sentence around it. */
function trimmed(word: string, at: number): [start: number, value: string] {
  const before = /^(?:[\w.-]{1,64}[=:](?=[^=/])|[-.:=/*#$@&+?%]+)+/.exec(word)?.[0].length ?? 0;
  return [at + before, word.slice(before).replace(/(?:[.:?*]+|=(?=\w)|(?<!=)=)$/, "")];
}

type HintPlace = "before" | "after" | "below";

function isEnough(
  value: string,
  strength: number,
  place: HintPlace,
  text: string,
  after: number,
  start: number,
): boolean {
  const shape = shapeOf(value);
  if (shape === "none") return false;
  const between = place === "after" ? text.slice(after, start) : "";
  const isLinked =
    LINKED.test(between) ||
    (strength === 3 && place === "after" && /^,? ["']?$/.test(between)) ||
    (strength === 2 && /^ ["']$/.test(between)) ||
    (between === " " && /key$/.test(text.slice(after - 3, after)));
  if (shape === "hex")
    return (
      ((strength > 1 && isLinked) ||
        (/^[= ]$/.test(between) &&
          /(?:login|[a-z]{3,} key|token|secret)$/i.test(text.slice(Math.max(0, after - 24), after)))) &&
      !/commit|sha|md5|\btx|hash|digest|checksum|revision|etag|version|public|cache|fingerprint|\bid\b/i.test(
        text.slice(Math.max(0, after - 60), start),
      )
    );
  if (shape === "phrase") return isLinked && /phrase$/i.test(text.slice(after - 12, after));
  const needed = NEEDED[strength - 1];
  return LEVELS[shape] + (isLinked ? 1 : 0) >= needed[place];
}

/** Evidence that a shape needs on the line of a hint, after the hint, and below, by the strength of the hint. */
const NEEDED = [
  { before: 3.5, after: 3, below: 3.5 },
  { before: 3, after: 3, below: 3 },
  { before: 2, after: 2, below: 2 },
] as const;

/** Words and signs that tie a value to the name before it. */
const LINKED =
  /(?:^\(|[:=：]|->|→|\b(?:is|ist|lautet|es|est|é|jest|är|este|to|as)|[は是为為])[ \t]{0,4}["'`*[(]{0,3}$|\(b?["']$/;

const LEVELS = { none: 0, phrase: 0, plain: 1, words: 2, mixed: 3, odd: 3.5, random: 3, long: 4, hex: 0 } as const;

/** Texts that are never secrets: addresses, ids, versions, ranges of characters, places, names of algorithms, expressions. */
const NEVER =
  /:\/\/|@[\w-]+\.|\d\.\d+\.\d|A-Z|a-z|0-9|\$\{|%[sd\d]|\.\w{1,4}$|^[@#$]|[=:].*[=:]|&&|\+\+|^\d+[a-z%]*$|pkcs|sha\d|md5|utf|base64|crypt|aes|rsa|x86|argon|^pk_|\w__\w|amd64|arm64|\$\$|^[a-z]+(?:\.\w+)+\$|^AAAA[A-Z]3Nza|^[A-Za-z]{2,}[\w.-]*-[0-9a-f]{32,64}$|\+F\d+$|SHA\d|abcdef|012345|123456|xxxx/i;

/** Returns how a word is made. */
function shapeOf(value: string): keyof typeof LEVELS {
  if (value.length < 8 || NEVER.test(value) || NO_VALUE.test(value) || UUID.test(value)) return "none";
  const has = (one: RegExp): boolean => one.test(value);
  if (!has(/\d/)) return has(/^[a-z]{3,}(?:-[a-z]{3,}){2,}$/) ? "phrase" : "none";
  if (has(/^(?:0x)?[0-9a-f]+$/i)) return value.length >= 32 && has(/[a-f]/i) ? "hex" : "none";
  if (has(/^[A-Z2-7]{16,}$/)) return (value.match(/[A-Z](?=\d)/g) ?? []).length > 1 ? "random" : "none";
  const isBoth = has(/[a-z]/) && has(/[A-Z]/);
  if (APPLE.test(value)) return "random";
  // Words with digits in place of letters.
  if (has(/^[A-Z][a-z\d]{4,}[_.-][A-Za-z\d]{3,}\d\d$/) && has(/[A-Za-z]\d[a-z]{2}|[a-z]{2}\d[a-z]/)) return "words";
  if (
    has(/^[A-Z][a-z\d]{2,}(?:[._%+&!-]?[A-Z][a-z\d]{2,})*(?:[._%+&!-][A-Z][a-z\d]{0,16}\d|[._-]\d\d|\d\d\d?)\d{0,3}!?$/)
  )
    return has(/[%+&!]/) ? "mixed" : "words";
  if (has(/^[a-z]{3,}(?:-[a-z]{3,}){2,}-\d{2,4}$|^(?=.*-.*\d.*-)[A-Z\d]{4,6}(?:-[A-Z\d]{4,6}){3,}$/)) return "words";
  if (isBoth && has(/[\p{L}\d][!@#$%^&*+~?]/u) && !has(/[/=:]/)) return has(/[\p{L}\d][!#@$]/u) ? "odd" : "mixed";
  if (has(/[a-z]/) && has(/[a-z\d][!@#$%^&*~][a-z\d!]/i) && !has(/[/=:.+_]|^[a-z]+\W\d+$/)) return "words";
  if (has(/^[a-z]{3,}[A-Z][a-z]{2,}\d\d$/)) return "plain";
  if (has(/[/.:=]/) && !has(/^[A-Za-z0-9+/]{30,}={0,2}$/)) return "none";
  if (isBoth && !has(/^[A-Z]?[a-z]{3,}\d{2,}[A-Z]?[a-z]*$/))
    return !(
      isJumpy(value) ||
      (value.length >= 30 && has(/(?:[a-z][A-Z\d].*){5}/) && has(/\d.*\d/) && !has(/(?:[A-Z][a-z]{2,}.*){5}/))
    ) ||
      value.length < 12 ||
      (value.length < 20 && !has(/\d\D+\d/))
      ? "none"
      : value.length < 16
        ? "words"
        : value.length < 28
          ? "random"
          : "long";
  if (has(/^[a-z0-9]{16,}$/)) return (value.match(/[a-z](?=\d)/g) ?? []).length > 2 ? "random" : "none";
  return has(/^(?=.*[A-Za-z]{3})(?=.*\d\d)[A-Za-z\d]+$/) && !has(/^[A-Za-z]{1,5}\d+$/) && !NUMBERED.test(value)
    ? "plain"
    : "none";
}

/** Returns whether a word is made like one. */
export const isMade = (value: string): boolean => LEVELS[shapeOf(value)] > 1;

/** A sign within a word that no program has there. */
const SIGN = /[A-Za-z0-9][!#$%^&](?=[A-Za-z0-9])/g;
const ODD_WORD = /(?<![^\s"'`>(:=/,|[])[A-Za-z0-9!#$%^&]{10,48}(?=["'`\s,;)\]|@]|$)/y;

/** Yields the words that nothing but a password looks like. */
export function* findOdd(text: string): Generator<SecretSpan> {
  let past = 0;
  for (const { index } of text.matchAll(SIGN)) {
    if (index < past) continue;
    let start = index;
    while (start > past && index - start < 24 && /[A-Za-z0-9]/.test(text[start - 1])) start--;
    ODD_WORD.lastIndex = start;
    const value = ODD_WORD.exec(text)?.[0] ?? "";
    past = Math.max(index + 1, start + value.length);
    if (
      /\d/.test(value) &&
      /^[A-Za-z\d]{2,}\W+\w/.test(value) &&
      !/^[A-Za-z]\w*#[A-Za-z]\w*$|#.*#/.test(value) &&
      LEVELS[shapeOf(value)] >= 3
    )
      yield { start, end: start + value.length, kind: "password" };
  }
}
