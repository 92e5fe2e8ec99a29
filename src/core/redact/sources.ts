/** Commands and files whose text is a secret as a whole, without any sign of that in it. */

import { isJoined, isJumpy, UUID } from "./names.ts";
import type { SecretSpan } from "./tokens.ts";

/** A file by its name: one of a key, or one of a secret that is no program and no document. */
const FILE =
  /(?:^|[\s"'=:/\\<>])(?:[\w.-]{0,64}(?:\.key|[_-]pass|(?:pass(?:word|phrase|wd)|secret|token|credential)[\w-]{0,32}(?:\.(?:txt|key|b64|bin|enc|gpg|hex|dat))?|(?:master|aes|encryption|private|signing|hmac|jwt|api|access|session)[_-]?key(?:\.(?:txt|b64|bin|hex))?)|run\/secrets\/[\w.-]{1,64})(?=$|[\s"';|&)>])/i;
const PASSWD = /\/etc\/passwd|getent/;
const READER = /(?:^|[\s;&|($])(?:cat|bat|less|more|head|tail|xxd|od|hexdump|base64|strings|type|Get-Content)[ \t]/;
/** Commands that print nothing but a secret. */
const PRINTER =
  /(?:pass|secret|token|key|cred)[^\n]{0,200}\|[ \t]{0,4}base64[ \t]{1,4}(?:-d|-D|--decode)|(?:dump|print|export|show|get)[_-]?priv(?:ate)?[_-]?key|print-(?:access|identity)-token|get-(?:login-password|access-token|secret-value)|(?:initial|reset|generate)-(?:\w{1,12}-)?password|(?:auth|create)[ \t]token|auth:token|(?:^|[\s;&|])(?:pass|gopass)[ \t]show|op[ \t](?:read|item get)|bw[ \t]get[ \t]password|find-(?:generic|internet)-password|secrets[ \t]versions[ \t]access|kv[ \t]get[^\n]{0,100}-field|openssl[ \t]rand|key:generate|randomBytes|get_random_secret|gen\.secret|rails[ \t]secret|(?:echo[ \t]["']?\$\{?|printenv[ \t]|(?:environ|ENV|env)\W{1,6})\w{0,32}(?:PASS|SECRET|TOKEN|_KEY|PWD)|(?:^|[\s;&|])pwgen[ \t]/;

/** Returns whether a command's output, or a file's content, is a secret. */
export function printsSecret(command: string): boolean {
  const text = command.slice(0, 4096);
  if (PRINTER.test(text)) return true;
  return FILE.test(text) && !PASSWD.test(text) && (READER.test(text) || !/\s/.test(text));
}

/** A line with one word, or a line of a dump. */
const LONE = /(?<=^|\n)(?:=> )?[ \t"']{0,8}([^\s"']{8,512})["']?[ \t]{0,8}(?=\r?\n|$)/dg;
const DUMPED = /(?<=^|\n)[0-9a-f]{6,16}:?[ \t]{1,4}((?:[0-9a-f]{2,8}[ \t|]{1,4}){1,16}[^\n]{0,40})/dg;
const MOST = 8192;

/** Yields the secrets in a text that a command of those printed. */
export function* findPrintedSecrets(text: string): Generator<SecretSpan> {
  if (text.length > MOST) return;
  for (const { 1: value, indices } of text.matchAll(LONE)) {
    const [start, end] = indices?.[1] ?? [0, 0];
    const isMade = /^(?=.*\d)(?=.*[A-Za-z])/.test(value) || isJumpy(value) || isJoined(value);
    if (isMade && !UUID.test(value) && !/^(?:[\w+.-]*:\/)?[./~]|^-----/.test(value))
      yield { start, end, kind: "secret" };
  }
  for (const { indices } of text.matchAll(DUMPED)) {
    const [start, end] = indices?.[1] ?? [0, 0];
    yield { start, end, kind: "secret" };
  }
}

/** A command with its prompt, and its output: up to the next prompt. */
const PROMPT =
  /(?<=^|\n)(?:PS )?[^\s$#%>]{0,64}[ \t]?[$#%>][ \t]([^\n]{4,1024})\n((?:(?!(?:PS )?[^\s$#%>]{0,64}[ \t]?[$#%>][ \t])[^\n]{0,1024}(?:\n|$)){1,64})/dg;
/** A command that writes a value into a file. */
const WRITTEN =
  /(?:echo|printf)[ \t]{1,4}(?:-n[ \t]{1,4})?["']?([^\s"'$<>|;&]{6,1024})["']?[ \t]{0,4}(?:\|[^\n>]{0,80})?>>?[ \t]{0,4}([^\s;&|<>]{4,256})/dg;

/** Yields the output of such commands in a text. */
export function* findShownSecrets(text: string): Generator<SecretSpan> {
  if (/[$#%>][ \t]/.test(text))
    for (const { 1: command, 2: printed, indices } of text.matchAll(PROMPT)) {
      if (!printsSecret(command)) continue;
      const [from] = indices?.[2] ?? [0];
      for (const { start, end, kind } of findPrintedSecrets(printed))
        yield { start: from + start, end: from + end, kind };
    }
  if (!text.includes(">")) return;
  for (const { 2: file, indices } of text.matchAll(WRITTEN)) {
    const [start, end] = indices?.[1] ?? [0, 0];
    if (printsSecret(file)) yield { start, end, kind: "secret" };
  }
}
