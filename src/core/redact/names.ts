/** Names of what is secret (`DB_PASSWORD`, `clientSecret`), and values that can be one. */

import { isFiller } from "./tokens.ts";

/** Last words of names that stand for a secret; the same with `key`, where the word before says which. */
const SECRET_WORDS = new Set(
  "password passwd passphrase passcode pwd pass pw secret secrets token apikey authtoken accesstoken accesskey credential credentials cookie cookies setcookie authorization bearer privatekey secretkey clientsecret apitoken".split(
    " ",
  ),
);
const SECRET_KEYS = new Set(
  "api access account private secret signing encryption master shared storage license auth service deploy ssh session jwt app client subscription".split(
    " ",
  ),
);
/** Words that may follow. */
const TRAILING = /^(?:prod|production|dev|test|staging|live|value|new|old|b64|base64|default|\d+)$/;
/** Words before `token` that make it something to be shown: of a page, or of a text. */
const HARMLESS = new Set(
  "page next continuation sync prev previous max min stop eos bos pad unk special first last current total cancellation start end mask image".split(
    " ",
  ),
);
const PASSWORD = /^(?:pass|pw)/;

/** Returns the kind of secret that a name stands for, if it does. */
export function secretKind(name: string): "password" | "cookie" | "secret" | undefined {
  const words = wordsOf(name);
  while (words.length > 1 && TRAILING.test(words.at(-1) as string)) words.pop();
  const [before = "", last = ""] = words.length > 1 ? words.slice(-2) : ["", words[0] ?? ""];
  if (last === "cookie" || last === "cookies" || last === "setcookie") return "cookie";
  if (PASSWORD.test(last) && SECRET_WORDS.has(last)) return "password";
  if (last === "token" && HARMLESS.has(before)) return undefined;
  if (SECRET_WORDS.has(last) || (last === "key" && SECRET_KEYS.has(before))) return "secret";
  return last === "auth" && (words.length === 1 || name.startsWith("_")) ? "secret" : undefined;
}

/** Words of names that stand for an account, or for what is tied to one; and those that end its id or its own name. */
const ACCOUNT_WORDS = new Set(
  "account organization organisation org user owner oauth customer subscriber tenant github installation device machine bridge remote anonymous".split(
    " ",
  ),
);
const ACCOUNT_ENDS = new Set("id uuid guid login handle name".split(" "));

/** Returns whether a name of another agent's record stands for the id or name of a person's account. */
export function isAccountName(name: string): boolean {
  const words = wordsOf(name);
  if (words.length === 1) return words[0] === "login";
  return ACCOUNT_ENDS.has(words.at(-1) as string) && words.slice(0, -1).some((word) => ACCOUNT_WORDS.has(word));
}

/** Returns the words of a name in lower case: of snake_case, kebab-case and camelCase. */
function wordsOf(name: string): string[] {
  return name
    .slice(-64)
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
}

const PLACEHOLDER =
  /^(?:<.*|\$.*|%\w+%|\{.*|\[.*|\(.*|your[_-].*|my[_-].*|(?:change|replace|fill)[_-]?(?:me|in|this).*|example\w*|redacted|null|nil|undefined|none|true|false|string|number|boolean|bool|bytes|required|optional|todo|dummy\w*|placeholder\w*|u?int\d*\w*|float\d*\w*|base64\w*|utf-?\d*\w*|sha\d+|md5|process\.env.*|os\.(?:environ|getenv).*|import\.meta.*|env[.:].*|secrets?[.:].*|vars?\..*|self\..*|this\..*|file:.*|https?:.*)$/i;
/** An expression of a program: names with dots between. */
const EXPRESSION = /^[A-Za-z_$][A-Za-z_$0-9]{0,19}(?:\??\.[A-Za-z_$][A-Za-z_$0-9]{0,19})+$/;
const ABOUT = /pass|secret|token|apikey/i;

/**
 * How a value is written: as a JSON value or in quotes, after `=` with no space (a setting or a flag), or as a word
 * that may be an expression of a program as well.
 */
export type Writing = "quoted" | "setting" | "bare";

/** Returns whether a value that has the name of a secret can be one. */
export function canBeSecret(value: string, kind: string, writing: Writing): boolean {
  if (value.length < (kind === "password" ? 5 : 8) || PLACEHOLDER.test(value.slice(0, 80)) || isFillerOrMask(value))
    return false;
  const hasDigit = /\d/.test(value);
  const hasLetter = /[A-Za-z]/.test(value);
  const isMixed = hasDigit && hasLetter;
  if (kind === "cookie") return value.includes("=") || (isMixed && value.length >= 12);
  if (/\s/.test(value)) return false;
  const isExpression = EXPRESSION.test(value);
  if (kind === "password") {
    if (writing === "quoted") return !isExpression && !/^(?:password|passwd|passphrase)$/i.test(value);
    if (writing === "setting") return isMixed || !(isExpression || ABOUT.test(value));
    return isMixed && !isExpression;
  }
  if (isExpression && writing !== "quoted") return false;
  const looksMade = isMixed || (value.length >= 20 && /[a-z]/.test(value) && /[A-Z]/.test(value));
  if (writing === "quoted") return looksMade && !/^[a-z]+(?:[.-][a-z]+)+\d?$/.test(value);
  if (writing === "setting") return looksMade || (!ABOUT.test(value) && value.length >= 12);
  return value.length >= 16 && isMixed && (value.match(/\d/g) ?? []).length >= 2;
}

function isFillerOrMask(value: string): boolean {
  return /[*•…]{3}|\.{3}|x{6}/i.test(value) || (value.length >= 8 ? isFiller(value) : new Set(value).size < 3);
}
