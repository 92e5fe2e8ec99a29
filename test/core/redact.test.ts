/** Redaction of texts: no secret stays in any form, and no text without one changes. The exports have their own tests. */

import { describe, expect, test } from "vitest";
import { LineRedactor } from "../../src/core/redact/main.ts";
import { moreHarmlessTexts } from "../support/harmless-texts.ts";
import { id, userText } from "../support/lines.ts";
import { share } from "../support/random.ts";
import { type SecretText, secretTexts } from "../support/secret-texts.ts";
import { harmlessTexts } from "../support/secrets.ts";
import { SWEEP } from "../support/tiers.ts";

const bytes = new TextEncoder();
const chars = new TextDecoder();

/** Redacts a line as an export does: it is read once, then written. */
function redactedLine(line: string): string {
  const redactor = new LineRedactor();
  redactor.learn(bytes.encode(line), new Map());
  redactor.texts.knowAll();
  return chars.decode(redactor.redact(bytes.encode(line), new Map()));
}

const redacted = (text: string): string => JSON.parse(redactedLine(userText(id(0), null, text))).message.content;

/** Returns whether a third of a secret, or 6 characters of it, is in a text. */
function isLeft(text: string, secret: string): boolean {
  const size = Math.min(secret.length, Math.max(6, Math.floor(secret.length / 3)));
  for (let at = 0; at + size <= secret.length; at++) if (text.includes(secret.slice(at, at + size))) return true;
  return false;
}

const leaks = (texts: readonly SecretText[]): string[] =>
  texts.flatMap(({ template, text, secrets }) => {
    const shown = redacted(text);
    return secrets.some((secret) => isLeft(shown, secret)) ? [`${template} => ${shown.slice(0, 160)}`] : [];
  });

describe("secrets as people leave them", () => {
  test("none of a share of them stays", () => {
    const texts = secretTexts(1);
    expect(texts.length).toBeGreaterThan(400);
    expect(leaks(share(texts, 6))).toEqual([]);
  });

  test.each([1, 2, 3])("none of them stays, whatever its characters are (%i)", SWEEP, (seed) => {
    expect(leaks(secretTexts(seed))).toEqual([]);
  });

  test("none stays as an argument of a call, or within a text in a text", SWEEP, () => {
    const texts = secretTexts(5).map(({ template, text, secrets }) => {
      const line = JSON.stringify({ command: text, more: [JSON.stringify({ text })] });
      return { template, text: line, secrets };
    });
    expect(leaks(texts)).toEqual([]);
  });
});

const changed = (texts: readonly string[]): string[] =>
  texts.flatMap((text) => (redacted(text) === text ? [] : [`${text} => ${redacted(text)}`]));

test("no text of a share of harmless ones changes", () => {
  const texts = [...moreHarmlessTexts(1), ...harmlessTexts(1)];
  expect(texts.length).toBeGreaterThan(180);
  expect(changed(share(texts, 4))).toEqual([]);
});

test.each([1, 2, 3])("no harmless text changes, whatever its hashes are (%i)", SWEEP, (seed) => {
  expect(changed([...moreHarmlessTexts(seed), ...harmlessTexts(seed)])).toEqual([]);
});

test.each([
  ['"password": "Blue Horse 42 jumps!"', "Blue Horse 42 jumps!"],
  ["password = 'Rainy Day 1987 London'", "Rainy Day 1987 London"],
  ['password: "two words and spaces 77"', "two words and spaces 77"],
  ['{"db_password": "hello World 99 x"}', "hello World 99 x"],
  ['let password = "Lazy Sunday 77 Morning!";', "Lazy Sunday 77 Morning!"],
  ['"smtp_password" : "salt and pepper 4411"', "salt and pepper 4411"],
  ['ENV["PASSWORD"] = "tall tree 55 river"', "tall tree 55 river"],
  ["mysql -p'sp ace pw 8'", "sp ace pw 8"],
  ['sshpass -p "my dog 12 rex" ssh host', "my dog 12 rex"],
])("words with a number are a password in quotes: %s", (text, secret) => {
  expect(redacted(text)).toBe(text.replace(secret, "[redacted:password:1]"));
});

const SAID = `Must be at least 8 characters|Minimum 12 characters required|12 or more characters|Use 8 to 64 characters
Between 12 and 64|Mindestens 10 Zeichen eingeben|Al menos 12 caracteres|Le mot de passe fait 12 caractères
8 Zeichen, 1 Zahl, 1 Sonderzeichen|Reset in 24 hours|Only 10 tries left!|Try again after 15 minutes
Last changed 12 March 2024|Step 10 of 12|See section 12 below|bcrypt hash 12 rounds|SHA 256 hash value
varchar 255 not null|Optional string up to 128 chars|Login to Windows 11 computer|HTTP status 401 returned
Error 404 not found`.split(/[|\n]/);

test("words with a number are none where a form, a message or a description has them", () => {
  expect(changed(SAID.map((text) => `"password": "${text}",`))).toEqual([]);
  expect(changed(['mysql -p "$(cat file 2)"', 't("password", "Choose 12 letters or more")'])).toEqual([]);
});

test("numbers are replaced where their member has the name of a password, and nowhere else", () => {
  const data = { password: 48273645, pin: 4821, max_tokens: 4096, token: 12345678, pass: 12345678, tokens: [50256123] };
  const line = JSON.stringify({ type: "custom", id: id(0), parentId: null, timestamp: "2026-01-01T00:00:00Z", data });
  expect(JSON.parse(redactedLine(line)).data).toEqual({
    ...data,
    password: "[redacted:password:1]",
    pin: "[redacted:password:2]",
  });
});

describe("what a tool printed, or is to write", () => {
  /** The result of a call, or what the call writes, once both were read. */
  const shown = (call: Record<string, string>, printed: string): string => {
    const at = '"parentId":null,"timestamp":"2026-01-01T00:00:00Z"';
    const block = { type: "toolCall", id: "call_1", name: "tool", arguments: { ...call, content: printed } };
    const result = { role: "toolResult", toolCallId: "call_1", content: [{ type: "text", text: printed }] };
    const lines = [{ role: "assistant", content: [block], model: "some-model-4-5" }, result].map((message, n) =>
      bytes.encode(`{"type":"message","id":"${id(n)}",${at},"message":${JSON.stringify(message)}}`),
    );
    const redactor = new LineRedactor();
    for (const line of lines) redactor.learn(line, new Map());
    const [first, second] = lines.map((line) => JSON.parse(chars.decode(redactor.redact(line, new Map()))).message);
    expect(first.model).toBe("some-model-4-5");
    expect(first.content[0].arguments.content).toBe(second.content[0].text);
    return second.content[0].text;
  };
  const hex = "4c33a91f74d6741a136f5ccf0774b068";

  test.each([
    ["cat a file of a key", { command: "cat config/credentials/production.key" }, hex],
    ["a file of a secret", { path: "/run/secrets/api_token" }, "Zk3vQ9tLm2Xw8RbN\n"],
    [
      "a value in base64",
      { command: "kubectl get secret x -o jsonpath='{.data.password}' | base64 -d" },
      "0V4aPCiheQOr",
    ],
    ["a key of a wallet", { command: "bitcoin-cli dumpprivkey bc1qx" }, "LNRbiwKcPtXEB1KzKLTG5RRNYjnRVus2Eh"],
    ["a dump", { command: "xxd hmac.key" }, "00000000: 387e fe7c 5e5d bdb4 e098 db55 983c c47c  8~.|^]...."],
  ])("%s is a secret", (_, call, printed) => {
    expect(shown(call, printed)).toMatch(/^(?:00000000: )?\[redacted:\w+:1\]\n?$/);
  });

  test.each([
    [{ command: "cat src/token.ts" }, hex],
    [{ command: "cat /etc/passwd" }, "root:x:0:0:root:/:/bin/sh4"],
    [{ command: "git rev-parse HEAD" }, hex],
    [{ path: "src/secret-store.test.ts" }, "export2"],
    [{ command: "cat config/master.key" }, "cat: config/master.key: No such file or directory"],
  ])("%j prints none", (call, printed) => {
    expect(shown(call as Record<string, string>, printed)).toBe(printed);
  });
});

test.each([
  ["https://x-access-token:~@github.com/a/b.git", "Zk3vQ9tLm2Xw8RbN", "url_password"],
  ["パスワードは~です。ログを", "pebble-vortex-52", "password"],
  ["kind: Secret\ndata:\n  username: YWRtaW4x\n  x: ~", "Zk3vQ9tL", "secret"],
])("no more than the secret goes from %s", (template, secret, kind) => {
  expect(redacted(template.replace("~", secret))).toBe(template.replace("~", `[redacted:${kind}:1]`));
});

test("a certificate is no binary data", () => {
  const body = Buffer.from(Array.from({ length: 900 }, (_, at) => (at * 89 + (at >> 3)) % 256)).toString("base64");
  const lines = body.replace(/(.{64})/g, "$1\n");
  const unjudged = new Map();
  for (const kind of ["CERTIFICATE", "PUBLIC KEY"]) {
    const block = `-----BEGIN ${kind}-----\n${lines}\n-----END ${kind}-----`;
    new LineRedactor().learn(bytes.encode(userText(id(0), null, `${block}\n${block}`)), unjudged);
  }
  expect([...unjudged]).toEqual([]);
  new LineRedactor().learn(bytes.encode(userText(id(0), null, lines)), unjudged);
  expect([...unjudged]).toEqual([["binary", 1]]);
});

describe("homes", () => {
  const without = (text: string, cwd: string, home?: string): string => {
    const redactor = new LineRedactor();
    redactor.texts.homes.learn(cwd);
    if (home !== undefined) redactor.texts.homes.learnHome(home);
    return redactor.text(text);
  };

  test.each([
    ["root's", "/srv/app", undefined, "see /root/.bashrc, /root.", "see ~/.bashrc, ~."],
    ["that of the session's directory", "/data/home/ann/app", undefined, "/data/home/ann/app/x.ts", "~/app/x.ts"],
    ["one with a number", "/home2/ann/app", undefined, "cd /home2/ann && ls", "cd ~ && ls"],
    ["the caller's", "/srv/app", "/var/lib/people/ann", "/var/lib/people/ann/.ssh", "~/.ssh"],
    ["the caller's on another drive", "D:\\app", "D:\\P\\ann", "D:\\P\\ann\\x D:/P/ann/y", "~\\x ~/y"],
    ["a folder that is made of one", "/data/home/ann/app", undefined, "--data-home-ann-app--", "--user-app--"],
    ["a folder that is made of root's", "/root/app", undefined, "projects/-root-app/a", "projects/-user-app/a"],
    ["others keep their number", "/home/me/app", "/home/ann", "/home/me/a /home/ann/b", "~/a /home/user2/b"],
  ])("%s", (_, cwd, home, text, shown) => {
    expect(without(text, cwd, home)).toBe(shown);
  });

  // A home of many users does not count.
  test.each(["/", "", "/tmp", "/nonexistent", "/home"])("%j is not replaced as the home of the caller", (home) => {
    const text = "/tmp/a / /nonexistent /home";
    expect(without(text, "/srv/app", home)).toBe(text);
  });

  test.each(["https://x.test/root/a", "/rooted", "--root-dir=x", "src/root/a", "/root-a", "a/data/home/ann2"])(
    "%s is none",
    (text) => {
      expect(without(text, "/data/home/ann/app", "/")).toBe(text);
    },
  );
});

test("texts that are made to take long take a moment", SWEEP, () => {
  const words =
    "password='|password: |<a>|<password>|67 68 |0x67, |\\x67|ghp_1\n|'a'+|\"a\" . |mysql -p |creds: a/|authorization: a |" +
    "name: password value: |INSERT INTO users (password) VALUES (|recovery codes: a1b2c3 |AKIAABCDEFGHIJKLMNOP |" +
    "-----END PRIVATE KEY-----|kind: Secret\ndata:\n  a: b\n|$ANSIBLE_VAULT;1.1;AES256\n6162|密码是|ａ：|password,a\n|" +
    "$ cat a.key\n|echo a > |password |recovery codes:\nabcde1\n|00000000: 6768 705f\n";
  const hostile = [...words.split("|"), "aB3".repeat(3), "AbCd1234".repeat(8).concat("\n")];
  const usual = hostile.map(
    (_, n) => `The run of test ${n} passed in build ${n * 7}, see src/lib/file${n}.ts for it.\n`,
  );
  const redactor = new LineRedactor();
  const timeOf = (parts: readonly string[]): number => {
    const begun = process.cpuUsage();
    for (const part of parts) redactor.texts.find(part.repeat(Math.ceil(100_000 / part.length)));
    return process.cpuUsage(begun).user;
  };
  // Compared with usual texts right before and after, because other work makes processor time longer, too. It is nine times.
  const before = timeOf(usual);
  const took = timeOf(hostile);
  expect(took / ((before + timeOf(usual)) / 2)).toBeLessThan(20);
});

describe("words that look made, near a word that says secret", () => {
  test.each([
    ["a sentence with more between", "The password for the box (10.2.7.8, user etl) is ~.", "Glacier%Pelican738"],
    ["a name with a slip", "just use user warehouse and pasword: ~", "Glacier%Orchid993"],
    ["a suffix of Turkish", "Sunucunun yeni \u015fifresi ~, l\u00fctfen", "Saffron.Nimbus92"],
    ["a debugger", '$1 = {user = 0x1f "ann", password = 0x0f "~", keepalive = 60}', "Glacier2024!"],
    ["a call", 'red:auth("anika", "~")', "Meadow+Tundra480"],
    ["a line of a router", "radius server A\n address ipv4 10.4.2.8\n key ~\n!", "Bosque_Walnut71"],
    ["a trace", "+ '[' -z ~ ']'", "xkuDgeCGMKfNwesMzMODqNIfCKflHr7f6y6O"],
    ["a type of Rust", 'const X_TOKEN: &str = "~";', "abcDEF123456ghiJKL"],
    ["a choice of types", "apiToken: string | undefined = '~'", "abcDEF123456ghiJKL"],
    ["a column of a dump", "COPY public.i (id, api_secret, on) FROM stdin;\n1\t~\tt\n\\.", "Vni6GaIiI3SE_ugbuKSq"],
    ["base32", "Your new secret key is: ~", "SYADDLVYXNEL5GPHJ43MCH2XKG"],
    ["a hash that is a token", "new Gitea token since then: ~ (valid)", "2cc8c401d1922f8c3394064d4286101c5d126eb7"],
    ["a member of a member", '{"db_password": {\n "sensitive": true,\n "value": "~"\n}}', "plover-jade-mint"],
    ["an element in an element", "<Password>\n <Value>~</Value>\n</Password>", "maple-heron-quilt"],
    ["the answer of a dialogue", "334 UGFzc3dvcmQ6\n>>> ~\n235 ok", "T0tsSjR1emMrfnU="],
    ["an address that lets in", "https://chat.example.org/hooks/~", "5tdfymq2jbhna2qt4emlfzgvei"],
    ["a feed", "https://x.test/ical/private-~/basic.ics", "c0740664ebfe2c31261fa2702ede745c"],
    ["no hint at all", "crackmapexec smb 10.0.0.1 -u ann -p '~'", "Rain!Cloud74"],
    ["what a command prints", "$ printenv GITHUB_TOKEN\n~", "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3"],
  ])("%s", (_, template, secret) => {
    const [before, after] = template.split("~");
    const shown = redacted(before + secret + after);
    expect(shown.startsWith(before)).toBe(true);
    expect(shown.endsWith(after)).toBe(true);
    expect(shown.slice(before.length, shown.length - after.length)).toMatch(/^\[redacted:\w+:\d\]$/);
  });

  test("a value that goes on after the end of a line, and bytes of a wallet", () => {
    const half = "z9iREtSs7kAHvF_k0i80-TwzoPK";
    expect(redacted(`SECRET_KEY_BASE=${half}\\\n4NSdUtBjHpsW_AOO8Im0\nA=b`)).toMatch(
      /^SECRET_KEY_BASE=\[redacted:secret:\d\]\nA=b$/,
    );
    expect(redacted(`const clientSecret =\n  "${half}" +\n  "4NSdUtBjHpsW_AOO8Im0";`)).not.toMatch(/z9iR|4NSd/);
    expect(redacted(`[${Array.from({ length: 64 }, (_, at) => (at * 37) % 256)}]`)).toMatch(/^\[redacted/);
  });

  test.each([
    '{ "login.password": "Passwort", "login.forgotPassword": "Passwort vergessen?" }',
    "Cache restored from key: Linux-node-5543ba7eb074aaf95855c7719c53b4807c4c6c3b35e7311fdfa1755d7c317b0c",
    "int PK11_GetTokenInfo(PK11SlotInfo *slot, CK_TOKEN_INFO *info);",
    "The key F5 starts the debugger, Shift+F5 stops it",
    "token commit 2cc8c401d1922f8c3394064d4286101c5d126eb7",
    "for all passwords. UTF-8 for non-PKCS#12 files",
    "setlocal omnifunc=python3complete#Complete",
    "secretary: ann2020smith",
    "C: AUTH LOGIN\nS: 235 done",
  ])("no word of %s", (text) => {
    expect(redacted(text)).toBe(text);
  });
});

describe("what everybody may know", () => {
  test("ids, sums, examples, accounts and public keys stay, whatever word is near", () => {
    expect(
      changed([
        '{"type":"tool_use","id":"toolu_01bRRJcU9pwY09sdIQftWU9u","input":{"command":"grep token"}}',
        "call_vMH0lm5PdYnqOLmARwvaWfPS -> read auth/token.ts",
        '"UserId": "AIDA2GD5IZYYMPYHUXVZN", "login": true',
        "token_id: mFPyB9Dm68nBeEUDPTTL",
        "id,email,password_set\nY1OPhofJiPVoGadfflWf,a@example.org,true",
        "aws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "    16→KEY=sk_live_xxxxxxxxxxxxxxxxxxxxxxxx\n    17→JWT_SECRET=change-me",
        "$ getent passwd ann\nann:x:1001:1001:,,,:/home/ann:/bin/bash",
        "docker secret ls\nID                          NAME\n22qt6xi2tsfw7hkg7y7ovtzio   db_password",
      ]),
    ).toEqual([]);
  });

  test.each([
    ["a value in braces", "DRIVER={ODBC};UID=app;PWD={~};", "S+OA%!Hi^HGOCvWi"],
    ["a target of a tool", "psexec.py 'CORP/ann:~@10.1.2.3'", "kg2ldaigutymt3dt1g0h"],
    ["a list of pairs", '3) "api_token"\n4) "~"', "85d42d114d826f7f3f21e64df17136a99ebc2dd6"],
    ["an endpoint", "https://eth-mainnet.g.alchemy.com/v2/~", "USbGzHc9Ud1uA3eiVqZTZE_1CU4nJhyn"],
    [
      "numbered lines",
      "    23→machine a\n    24→  login ann\n    25→  password ~",
      "ff7f3e2a-a38e-4e4b-86c1-8bb0b91941bc",
    ],
    ["words", 'psk="~"', "lantern monsoon maple ember 30"],
    ["pieces", "ASANA_PAT=~", "2/3343487136939087/9259221883018600:9ac17e02c4162b19038bae9d82292c7e"],
  ])("%s stays not", (_, template, secret) => {
    expect(isLeft(redacted(template.replace("~", () => secret)), secret)).toBe(false);
  });
});
