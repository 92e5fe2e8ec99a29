/** Names of secrets (`DB_PASSWORD`, `clientSecret`), and values that can be one. */

import { isFiller } from "./tokens.ts";

/** Last words of names of secrets; the same with `key`, if the word before qualifies it. */
const SECRET_WORDS = new Set(
  "token apikey authtoken accesstoken accesskey privatekey secretkey apitoken cred creds credential credentials auth bearer".split(
    " ",
  ),
);
const SECRET_KEYS = new Set(
  "api access account private secret signing encryption master shared storage license auth service deploy ssh session jwt app client subscription preshared".split(
    " ",
  ),
);
const COOKIES = new Set(
  "cookie cookies setcookie sessid phpsessid jsessionid csrftoken connectsid sessionid".split(" "),
);
/** Ends of names in one word (`PGPASSWORD`, `jwtsecret`), and a short one only after a thing that has a password. */
const PASSWORD_END =
  /(?:passwords?|passwd|passphrase|passcode|pwd|passwort|kennwort|contrasena|motdepasse|wachtwoord|kodeord)$|^(?:pass|pw|pswd|psk|mnemonic)$|^(?:db|my|pg|sql|user|usr|admin|root|smtp|mail|ftp|ssh|ldap|redis|mongo|mysql|store|key|trust|login|sudo|become|http|proxy|wifi|vnc|rdp|ap|sta)(?:pass|pw)$/;
/** Words before `pass` that make it a test, a turn or a way. */
const NO_PASSWORDS =
  /^(?:all|any|first|second|third|last|next|single|multi|two|one|render|low|high|band|by|over|under|dry|shadow|color|depth|did|does|is|must|should|will|can|not|expected|optimization|compiler)$/;
const SECRET_END = /(?:secrets?|token|api_?key|secretkey|accesskey|privatekey|credentials?|authorization)$/;
/** Words for a password and for another secret in other languages, without the marks of their letters. */
const PASSWORD_ABROAD = `passwort|kennwort|contrasena|mot de passe|mdp|senha|palavra[- ]passe|wachtwoord|losenord|passord|adgangskode|kodeord|salasana|haslo|heslo|jelsz[oa]v?|zaporka|sifre|parola|lozinka|gesl[oa]|slaptazodis|parool|(?:kata )?sandi|mat khau|парол[ья]|парола|лозинка|密码|密碼|口令|暗証番号|パス(?:ワード)?|ハスワート|비밀번호|비번|암호|كلمة المرور|كلمة السر|رمز عبور|סיסמה|סיסמא|κωδικο[ςσ]|รหัสผ่าน|पासवर्ड`;
const SECRET_ABROAD = `zugangsdaten|anmeldedaten|identifiants|credenciales|credenziali|ログイン|账号|帳號|로그인|логин|geheimnis|segret[oa]|segredo|schlussel|clave|chave|jeton|(?<![a-z])cles?(?![a-z])|токен|секрет|ключ|密钥|密鑰|秘钥|令牌|トークン|トークン|鍵|토큰|비밀키|(?<![ァ-ヴー])キー(?![ァ-ヴー])|키(?=[는가: 입])|llave|chiave|klucz|anahtar|sleutel|nyckel|कुंजी`;
/** The words for both. */
export const ABROAD_WORDS = { password: PASSWORD_ABROAD, secret: SECRET_ABROAD };
/** With possible additions at their end. */
export const ABROAD = new RegExp(
  `(?<![A-Za-z\\p{Script=Cyrillic}])(?:api[- ]?)?(?:(${PASSWORD_ABROAD})|${SECRET_ABROAD})(?:\\p{L}{1,2}(?=[\\s:=]))?`,
  "giu",
);
const LABEL = new RegExp(`^(?:${PASSWORD_ABROAD}|${SECRET_ABROAD})(?:\\s\\S+){0,2}[?:!]?$`, "iu");
const ABROAD_END = new RegExp(`(?:(${PASSWORD_ABROAD})|${SECRET_ABROAD})$`, "iu");
/** Words that may follow. */
const TRAILING =
  /^(?:prod|production|dev|test|staging|live|value|new|old|b64|base64|base|data|default|string|text|plain|plaintext|raw|\d+)$/;
/** Words before `token` that make it something to be shown: of a page, or of a text. */
const HARMLESS =
  /(?:page|next|continuation|sync|prev|previous|max|min|stop|eos|bos|pad|unk|special|first|last|current|total|cancellation|start|end|mask|image)$/;
/** Words before a key that is public, or that only finds something. */
const OPEN_KEYS =
  /^(?:|public|pub|publishable|primary|foreign|cache|partition|sort|object|idempotency|hot|shortcut|registry|row|query|lookup|group|dedupe|hash|map|index|react|translation|i18n|message|state|site|host|s3|route|storage|tree|node|item|session|config|settings|cursor|redis|data|bucket|range|unique|composite|compound|blob|search|artifact|file)$/;

/** `key`: only a value that looks made by chance counts. `pin`: digits count. */
export type NameKind = "password" | "cookie" | "secret" | "key" | "pin";

/** Returns the label that replaces a secret of a kind. */
export const getLabel = (kind: NameKind): string => (kind === "key" ? "secret" : kind === "pin" ? "password" : kind);

/** Returns the kind of secret that a name means, if it does. */
export function getSecretKind(name: string): NameKind | undefined {
  const words = wordsOf(name);
  while (words.length > 1 && TRAILING.test(words.at(-1) as string)) words.pop();
  const last = words.at(-1) ?? "";
  const before = words.at(-2) ?? "";
  if (COOKIES.has(last)) return "cookie";
  if (last === "pin" && !/gpio|led/.test(before)) return "pin";
  if (last === "pass" && NO_PASSWORDS.test(before)) return undefined;
  if (
    PASSWORD_END.test(last) ||
    (/^(?:phrase|seed|words)$/.test(last) && /^(?:seed|recovery|mnemonic|secret|wallet|pass)$/.test(before))
  )
    return "password";
  if (last.endsWith("token") && HARMLESS.test(last === "token" ? before : last.slice(0, -5))) return undefined;
  if (last === "auth") return words.length === 1 || /^_|_AUTH$/.test(name) ? "secret" : undefined;
  if (last === "id" && before === "secret") return "secret";
  if (last === "seed") return /^(?:totp|otp|2fa|mfa)$/.test(before) ? "secret" : undefined;
  if (SECRET_WORDS.has(last) || SECRET_END.test(last) || (last === "key" && SECRET_KEYS.has(before))) return "secret";
  // A single word of small letters that ends so is rather a monkey.
  const isKey = last.endsWith("key") && (last === "key" || /KEY|Key/.test(name));
  if (isKey && !OPEN_KEYS.test(last === "key" ? before : last.slice(0, -3))) return "key";
  if (last === "pat" || last === "wif" || (last === "session" && before === "bw")) return "key";
  const abroad = /[^ -~]/.test(name) || words.length === 1 ? ABROAD_END.exec(stripMarks(name)) : null;
  return abroad ? (abroad[1] ? "password" : "secret") : undefined;
}

/** Returns the text without the marks of its letters, as long as it was. */
export function stripMarks(text: string): string {
  return text.replace(/[\u00c0-\u024f\u0370-\u03ff\u1e00-\u1eff]/g, (c) => STROKES[c] ?? c.normalize("NFD")[0]);
}

const STROKES: Readonly<Record<string, string>> = { ł: "l", Ł: "L", ø: "o", ı: "i", đ: "d" };

/** Words of names for an account, or for a thing tied to one; and those that end its id or its own name. */
const ACCOUNT_WORDS = new Set(
  "account organization organisation org user owner oauth customer subscriber tenant github installation device machine bridge remote anonymous".split(
    " ",
  ),
);
const ACCOUNT_ENDS = new Set("id uuid guid login handle name".split(" "));

/** The last words of names that are public identifiers. */
const OPEN_ENDS =
  /^(?:\w*ids?|x?uid|u?uids?|guid|sids?|hash|sha\d*|shasum|md5|crc\w*|digest|arn|e?tag|commit|rev|revision|fingerprint|checksum|integrity|thumbprint|sum|kid|jti|sub|track|ray|h\d|nonce|ulid|cid|oid|address|addr|build|release|trace|span|accept|version|reference|resolved|state|challenge)$/;

/** Returns whether a name is that of an id or a sum, and does not mark this one as secret. */
export function isOpenName(name: string): boolean {
  const words = wordsOf(name);
  const last = words.at(-1) ?? "";
  return (
    OPEN_ENDS.test(last) && !(last.endsWith("id") && words.at(-2) === "secret") && !/^(?:paid|void|valid)$/.test(last)
  );
}

/** Ids of messages, tools, objects and accounts by how they begin, and names of resources. */
const OPEN_VALUE =
  /^(?:(?:toolu|srvtoolu|msg|call|resp|req|run|item|fc|rs|ws|ctc|step|thread|asst|file|batch|evt|cus|sub|si|pi|ch|pm|in|ii|tr|po|txn|price|prod|acct|card|src|seti|cs_test|cs_live|vs|ft|conv|session|sess|org|user|usr|proj|wrkspc|prj|dpl|team|job|task|trace|span|inv|order|event|ses|prt|tooluse|functions|snap|gen|chatcmpl|cmpl|batch_req|container|file_search)[_-](?!.*_secret_)|(?:AIDA|AROA|AGPA|AIPA|ANPA|ANVA|APKA|ASCA)(?=[A-Z2-7]{12})|[A-Z]{2}[0-9a-f]{32}$|arn:aws|sha\d+[:-]|0x[0-9A-Fa-f]{6,40}$|phc_|age1[02-9ac-z]{40}|@?[\w./-]+@v?\d+\.\d|[a-z]{2}-[a-z]+-\d_\w+$)|\.googleusercontent\.com$/;
/** Texts that documents have in the place of a key: a word, a row of the same or of following signs. */
const EXAMPLE = /EXAMPLE|your[-_]|[-_]here$|x{5}|X{5}|([B-Za-z0-9])\1{9}|A{10}.{0,30}$|<[A-Za-z][\w -]*>|\.{3}$/;

/** Returns whether a value is an example, or, if only its place marks it as secret, the id of something. */
export const isOpenValue = (value: string, isVague: boolean): boolean =>
  value.length < 600 && (EXAMPLE.test(value) || (isVague && OPEN_VALUE.test(value)));

/** Returns whether a name of another agent's record means the id or name of a person's account. */
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
  /^(?:<[^>]*>?|\$[A-Za-z_]\w*|\$[{(].*|%\w+%?|\{.*|\[.*\]|\(.*\)|(?:your|insert|enter|put|add|some|the)[_-].*|my[_-][A-Za-z_-]*|.*[_-]here|(?:change|replace|fill|generate)[_-]?(?:me|in|this|with|by|an?)(?:[_-].*)?|example\w*|redacted|null|nil|undefined|none|true|false|string|number|boolean|bool|bytes|required|optional|todo|(?:dummy|fake|sample|placeholder).*|u?int\d*\w*|float\d*\w*|b(?:ase)?64\w*|utf-?\d*\w*|sha\d+|md5|process\.env.*|os\.(?:environ|getenv).*|import\.meta.*|env[.:].*|secrets?[.:].*|vars?\..*|data\..*|self\..*|this\..*|file:.*|https?:.*|varchar\S*|.*%[sd].*|(?:option|flag|argument|parameter|field|propert|package|prompt)(?:y|ies|s)?|\?(?!\w{8}).*|function|object|symbol|pass(?:ed|es|ing)|plaintext|encrypted|hashed|hidden|empty|blank|mandatory|nullable|missing|fail(?:ed|s)?|[~^<>=]*\d+(?:\.\d+)+|[&@]\w+\.?|!\w+)$/i;
/** Words that a test or a form uses instead of a password: its description, and that it is wrong. */
export const NO_VALUE =
  /^(?:(?:wrong|bad|invalid|incorrect|falsch\w{0,2}|mauvais|fake|not|too|other|old|new|my|some|test)?[ _-]?(?:the|my|an?|your)?[ _-]?(?:right|correct|real|valid|same)?[ _-]?(?:pass(?:word|wd|phrase)?|secret|token|pw|pwd|credentials?|one|short|long|weak|user|string|tests?|testing|null|none|true|false)\d?|(?:wrong|bad|invalid|incorrect|falsch\w{0,2}|mauvais)[ _-]?(?:pass(?:word|wd)?|pw|pwd|secret|token|one|value)?[ _-]?\d{0,4}|incorrect[oa]|nope|\$\w+)$/i;
/** An expression of a program: names with dots between. */
const EXPRESSION = /^[A-Za-z_$][A-Za-z_$0-9]{0,19}(?:\??\.[A-Za-z_$][A-Za-z_$0-9]{0,19})+$/;
const ABOUT = /pass|secret|token|apikey|密码/i;
/** Words with one sign between, as makers of passphrases join them: four, or three with capitals. */
const JOINED =
  /^(?:[A-Za-z][a-z]{2,11}([._-])[A-Za-z][a-z]{2,11}(?:\1[A-Za-z][a-z]{2,11}){2,7}\d{0,4}|[A-Z][a-z]{3,11}(?:-[A-Z][a-z]{3,11}){2})$/;
/** Words of programs and of sentences, and beginnings of them. */
const PROGRAM_WORD = new RegExp(
  `(?:^|[._-])(?:(?:${"accept account add admin api app auth cert client config content context cred cross current data default delete dev email env error event field file form forward gen help host http identi index info initial input internal invalid key label list local log manag message number object option page param plain policy priv prod provide quer random re read request response result return secur serv session set should source stor string sys table test type update url user util val vault view".split(" ").join("|")})\\w*|` +
    "all|and|are|arg|args|base|body|but|by|can|check|class|code|column|com|conn|core|create|created|do|does|edit|enable|enabled|end|enter|entry|for|forgot|from|function|get|global|has|have|in|is|item|lib|main|max|min|model|module|must|my|name|names|net|new|next|node|not|null|of|old|one|only|org|process|public|ref|required|reset|root|run|same|sample|schema|self|spec|spring|sql|state|text|that|the|this|title|to|too|var|was|web|with|you|your)(?=[._-]|\\d*$)",
  "i",
);
/** Two groups and more of six with one digit and one capital, as Apple makes them. */
export const APPLE = /^(?=[^A-Z]*[A-Z][^A-Z]*$)(?=\D*\d\D*$)[A-Za-z\d]{6}(?:-[A-Za-z\d]{6}){2}$/;
/** A place in a file system. */
const PATH = /^(?:~|\.{1,2}|[A-Z]:)?(?:[\\/][\w.@+-]{1,40}){2,}[\\/]?$|^(?:~|\.{1,2})?\/[a-z._-]*$/;
/** Names of anything with a number, as programs and documents have them. */
export const NUMBERED =
  /^(?:value|arg|param|str|string|text|field|user|key|test|item|step|foo|bar|input|var|val|tmp|line|col|row|node|password|pass|pw|pwd|token|secret|name|type|version|v|aes|rsa|es|rs|hs|ps|oauth|http|h|level|part|option|column)[_-]?\d{1,4}$/i;
export const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const VERSION = /^v?\d+\.\d/;
/** Words and numbers with signs between, which name something. */
export const WORDS = /^[a-z]+\d{0,2}(?:[./_-](?:[a-z]+\d{0,2}|v?\d{1,4}))+$/;
/** Groups of four characters, as programs show codes for people to copy. */
const GROUPED = /^(?:[a-z0-9]{4} ){3,15}[a-z0-9]{4}$/i;
/** Words of sentences about passwords, which no passphrase has. */
const SENTENCE =
  /\b(?:the|your|a|an|is|are|was|must|be|at|least|have|has|for|to|of|please|enter|and|or|with|not|no|required|invalid|incorrect|expired|minimum|characters|digits?|forgot|reset|confirm|new|old|current|should|can|this|that|type|use|de|la|das|der|ist|es|le|du|user|data)\b|['’]s\b|[.:?!]$/i;

/** Words around a number in rules for passwords, in messages, and in names of steps, versions and times. */
const COUNTED =
  /\d[ -]?(?:(?:or|to|of|and) )?(?:more|(?:lower|upper)case|char|digit|letter|byte|bit|word|symbol|sign|special|number|day|hour|hr|min|sec|week|month|year|time|tr(?:y|ies)|attempt|round|item|user|entr|step|point|percent|left|remaining|zeichen|ziffern|caract|caratt|tekens|znak|tag|stunden|jour|dia|hora|heure|giorni|tecken|tegn)|(?:least|most|min\w*|max\w*|up to|only|between|exactly|after|in|on|every|step|version|level|page|chapter|section|figure|error|code|status|port|line|option|type|phase|part|no\.?|room|item|case|windows|rfc|iso|sha|aes|tls|http|length|than|over|under|ab|bis|mindestens|max\w*|jan\w*|feb\w*|mar\w*|apr\w*|may|june?|july?|aug\w*|sep\w*|oct\w*|nov\w*|dec\w*)[ -]?\d/i;

/**
 * The notation of a value: as a JSON value or in quotes, after `=` with no space (a setting or a flag), as a word that
 * may be an expression of a program as well, or after a weak sign of a value (a comma, a call, `is`).
 */
export type Writing = "quoted" | "setting" | "bare" | "loose";

/** Returns whether a value that has the name of a secret can be one. `isVariable`: the name is that of an environment. */
export function canBeSecret(value: string, kind: NameKind, writing: Writing, isVariable = false): boolean {
  if (kind === "pin") return /^\d{4,12}$/.test(value) && writing !== "loose";
  if (value.length < (kind === "password" ? 5 : 8) || PLACEHOLDER.test(value.slice(0, 80)) || isFillerOrMask(value))
    return false;
  if (kind === "password" && NO_VALUE.test(value)) return false;
  if (PATH.test(value) && !/[+=]|(?=\S*\d\S*\d)[A-Za-z0-9]{24}/.test(value)) return false;
  // The word for it, as the text of a label; a hash after the names of a cache.
  if (LABEL.test(stripMarks(value)) || (kind === "key" && /^[A-Za-z].*-[0-9a-f]{32,64}$/.test(value))) return false;
  const pieces = value.split(/[:/]/);
  if (kind === "key" && value.includes(":") && pieces.some(isChance))
    return pieces.every((piece) => isChance(piece) || /^\d+$/.test(piece));
  if (kind === "key")
    // Salts of WordPress have every sign there is; an id is not a secret, except in a variable of a shell.
    return writing === "quoted"
      ? (/^[!-~]{48,}$/.test(value) && !/abcdefgh/i.test(value)) || (isChance(value) && !UUID.test(value))
      : isChance(value);
  const isMixed = /\d/.test(value) && /[A-Za-z]/.test(value);
  if (kind === "cookie") return value.includes("=") || (isMixed && value.length >= 12);
  if (/\s/.test(value))
    return kind === "password" && (GROUPED.test(value) || (writing !== "loose" && isPhrase(value, isVariable)));
  const isExpression = EXPRESSION.test(value);
  return kind === "password"
    ? canBePassword(value, writing, isMixed, isExpression)
    : canBeToken(value, writing, isMixed, isExpression);
}

/** Returns whether a value is words of a passphrase with signs between, or a password of Apple's generator. */
export const isJoined = (value: string): boolean =>
  APPLE.test(value) || (JOINED.test(value) && !PROGRAM_WORD.test(value) && !ABOUT.test(value));

function canBePassword(value: string, writing: Writing, isMixed: boolean, isExpression: boolean): boolean {
  if (isJoined(value)) return true;
  // A label of an ideographic language, or of any: it has no letter or digit of ASCII, or is more than a word.
  if (/[^ -~]{4}/.test(value) && !/\d[!-~]*[A-Za-z]|[A-Za-z][!-~]*\d/.test(value)) return false;
  // The name of a setting, as another one's value.
  if (/^[a-z]+(?:[A-Z][a-z]+){0,4}Password$/.test(value)) return false;
  if (writing === "quoted")
    return !isExpression || /^(?!.*i18n)(?=.*[A-Z])(?:.*\d[a-z]|(?=.*\d).*[A-Z]{2}[a-z])/.test(value);
  if (writing === "setting") return isMixed || !(isExpression || ABOUT.test(value));
  // A sign within the word is of no program, or not alone.
  const hasSign = /[A-Za-z0-9][!@#$][A-Za-z0-9!@#$]/.test(value) && !/^[\w.]+@[\w.]+$/.test(value);
  if (writing === "bare" && /^\d{6,}$/.test(value)) return true;
  if (/^[A-Za-z_]\w*(?:password|passwd|secret|token)$/i.test(value)) return false;
  return ((isMixed && !NUMBERED.test(value) && !VERSION.test(value)) || hasSign) && !isExpression;
}

function canBeToken(value: string, writing: Writing, isMixed: boolean, isExpression: boolean): boolean {
  if (isExpression && writing !== "quoted") return false;
  // The name of a type or of another setting.
  if (/^[\w-]{0,48}(?:key|token|secret|keydata|credential)s?$/i.test(value) && !isJumpy(value)) return false;
  const looksMade = isMixed || (value.length >= 20 && /[a-z]/.test(value) && /[A-Z]/.test(value));
  if (writing === "quoted") return looksMade && !WORDS.test(value);
  if (writing === "setting") return looksMade || (!ABOUT.test(value) && value.length >= 12);
  const digits = (value.match(/\d/g) ?? []).length;
  if (WORDS.test(value) || NUMBERED.test(value) || VERSION.test(value)) return false;
  if (!isMixed && !(value.length >= 20 && isJumpy(value))) return false;
  return value.length >= (writing === "loose" ? 16 : 10) && (digits >= 2 || isJumpy(value));
}

/** Returns whether the kind of character changes as often as in no word. */
export function isJumpy(value: string): boolean {
  return (value.match(/[a-z](?=[A-Z0-9])|[A-Z](?=\d)|\d(?=[A-Za-z])/g) ?? []).length * 4 >= value.length;
}

/** Returns whether characters look as if chance had chosen them. */
export function isChance(value: string): boolean {
  if (!/^(?:0x)?[A-Za-z0-9+/_-]{20,}={0,2}$/.test(value)) return false;
  if (
    WORDS.test(value) ||
    /^[a-z]+\d{0,4}(?:_[a-z]+\d{0,4})+$/.test(value) ||
    /abcdefgh|01234567/i.test(value) ||
    (value.match(/[A-Za-z]/g) ?? []).length < 3
  )
    return false;
  return (value.match(/\d/g) ?? []).length >= 3 || (value.length >= 24 && /\d/.test(value) && isJumpy(value));
}

/** Returns whether a word of a sentence is one that people make only for a password, or programs for a token. */
export function isOdd(value: string, kind: NameKind): boolean {
  if (
    /^[a-z]+:\/\/|[_/\\(){}<>=:;,|]|\.\w/i.test(value) ||
    /sha\d|md5|aes|rsa|hmac|pbkdf|argon|utf|base64|crypt|oauth|x509|ISO|RFC|ES\d/i.test(value)
  )
    return false;
  const has = [/[a-z]/, /[A-Z]/, /\d/, /[!@#$%^&*?~+-]/].map((one) => one.test(value));
  if (kind === "password") {
    if (value.length < 8 || WORDS.test(value) || NUMBERED.test(value) || EXPRESSION.test(value)) return false;
    const hasSign = /[A-Za-z0-9][!@#$%^&*?~][A-Za-z0-9!@#$%^&*?~]|\d[!#$%^&*]$/.test(value) && !/@.*\./.test(value);
    return (hasSign && has[2] && (has[0] || has[1])) || (has[0] && has[1] && has[2] && isJumpy(value));
  }
  return value.length >= 24 && has[0] && has[1] && has[2] && isJumpy(value) && isChance(value);
}

/** Names of things that keep, hash or write passwords, numbers with a unit, and numbers of tickets. */
export const TERM =
  /sha-?\d|md[45]|hmac|pbkdf|utf-?\d|base\d\d|crypt|argon|oauth|x509|ntlm|(?:^|[^a-z\d])(?:aes|rsa|iso|rfc)[-_]?\d|^\d+(?:[.,]\d+)?[a-z]{0,8}(?:-[a-z]+)*$|^[a-z]{2,6}-\d+$/i;

/** Returns whether a word that a sentence states to be a password is unusual. `isLinked`: a linking word states it. */
export function isStatedSecret(value: string, isLinked: boolean, isQuoted: boolean): boolean {
  if (/\s/.test(value)) return isLinked && isQuoted && canBeSecret(value, "password", "quoted");
  if (
    value.length < 6 ||
    /[/\\(){}<>|]|^[@#.-]/.test(value) ||
    (value.includes("=") && !isJumpy(value) && !(isQuoted && /\d.*[!#$%^&*?~+]|[!#$%^&*?~+].*\d/.test(value))) ||
    TERM.test(value) ||
    UUID.test(value)
  )
    return false;
  if (ABOUT.test(value) || /^[A-Z][A-Z\d]*_[A-Z\d_]+$/.test(value)) return false;
  if (!isLinked && !/\d\D*\d\D*\d|\d.*[!#$%^&*]/.test(value) && !isJoined(value)) return false;
  return canBeSecret(value, "password", "bare") || (value.length >= 8 && isJumpy(value));
}

/** Returns whether words are those of a passphrase and not of a sentence. */
function isPhrase(value: string, isVariable: boolean): boolean {
  const words = value.trim().split(/\s+/);
  if (hasNumber(value, words)) return true;
  if (words.length > 30 || SENTENCE.test(value)) return false;
  if (isVariable && words.length > 1) return true;
  if (words.length >= 4 && words.every((word) => /^(?:[a-z]{3,12}|\d{1,4})$/.test(word)))
    return !(ABOUT.test(value) || COUNTED.test(value));
  return (
    words.length <= 8 &&
    words.some((word) => /\d.*[A-Za-z]|[A-Za-z].*\d|\w[!@#$%^&*]/.test(word)) &&
    !NUMBERED.test(words.join(""))
  );
}

/** Returns whether a number is among words as in a passphrase, and not as in a sentence or a rule. */
function hasNumber(value: string, words: readonly string[]): boolean {
  const plain = value.replace(/\band\b|!$/g, "");
  return (
    words.length >= 3 &&
    words.length <= 8 &&
    /^[ -~]+$/.test(value) &&
    words.some((word) => /^\d{2,6}\W?$/.test(word)) &&
    !(SENTENCE.test(plain) || ABOUT.test(value) || COUNTED.test(value)) &&
    !PROGRAM_WORD.test(plain.trim().replace(/\s+/g, "-"))
  );
}

function isFillerOrMask(value: string): boolean {
  return /[*•…]{3}|\.{3}|x{6}/i.test(value) || (value.length >= 8 ? isFiller(value) : new Set(value).size < 3);
}
