// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are holes for secrets
/** Planted secrets, which are known anywhere in a text, and texts without a secret. */

import { Random } from "./random.ts";
import { filled, TOKENS } from "./secret-texts.ts";

/** A text with a secret in it that must be removed whole. */
export interface Planted {
  readonly kind: string;
  readonly text: string;
  readonly secret: string;
}

/** Secrets that are known by the text around them. */
const PLACED = [
  `-----BEGIN EC PRIVATE ${"KEY"}-----\n{b64}\n{b64}\n{b64}\n{b64}`,
  `-----BEGIN OPENSSH PRIVATE ${"KEY"}-----\n{b64}\n{b64}\n{b64}\n-----END OPENSSH PRIVATE ${"KEY"}-----`,
  "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhQjNTbWNSOUVIQlJab3kxIn0.{l43}",
  "postgres://app:{p}@db.internal:5432/main",
  "git clone https://{l30}@example.org/a/b.git",
  "redis://:{l22}@10.0.0.3:6379/0",
  "curl -H 'Authorization: Bearer {l30}' https://x.test",
  "authorization: Basic {l30}",
  "Cookie: sid={l22}; theme=dark",
  "Set-Cookie: session={l22}; Path=/; HttpOnly",
  "DB_PASSWORD={p}",
  'password: "{p}"',
  "curl -u admin:{p} https://x.test",
  "mysql --password={p} -h db",
  "machine api.test login bob password {p}",
  "AWS_SECRET_ACCESS_KEY={l40}",
  'const apiKey = "{l22}";',
  "client_secret: {l22}",
  "//registry.npmjs.org/:_authToken={l22}",
  "https://x.test/cb?access_token={l22}&state=1",
  "AccountName=a;AccountKey={l86}==;EndpointSuffix=core",
  "https://a.blob.core.windows.net/c/b?sv=2022&sig={l52}%3D",
  "110201543:A{l34}",
  "root:$6$abcdefgh${l86}:19000::",
];

/** One of each kind, other ones with each seed. */
export function plantedSecrets(seed = 1): Planted[] {
  const random = new Random(seed);
  return [...TOKENS, ...PLACED].map((template) => {
    const { text, secrets } = filled(template, random);
    return { kind: template, text, secret: secrets[0] };
  });
}

/** Returns texts without a secret. */
export function harmlessTexts(seed = 1): string[] {
  const random = new Random(seed);
  const sha = `sha256:${random.hex(64)}`;
  const prose =
    "The quick brown fox jumps over the lazy dog while the tokenizer counts tokens; no password is needed to read this. ";
  return [
    `commit ${random.hex(40)} (HEAD -> main)`,
    `"integrity": "sha512-${Buffer.from(random.hex(64)).toString("base64")}=="`,
    '"resolved": "https://registry.npmjs.org/tokenize-this/-/tokenize-this-1.2.3.tgz"',
    Buffer.from(prose.repeat(20)).toString("base64"),
    prose.repeat(30),
    "const { password, token } = await readCredentials(); const next = getToken(request.headers);",
    "if (password.length < 8) throw new Error('password: too short');",
    `token: ${"$"}{{ secrets.GITHUB_TOKEN }}, password: string; accessToken?: string }`,
    "max_tokens: 4096, stop_token_id: 128001, total_tokens=53211",
    "postgres://localhost:5432/app and https://user@example.org/a and http://[::1]:8080/@scope/pkg",
    "ghp_ is how tokens of GitHub begin, and sk- those of OpenAI; AKIA… those of AWS.",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "-----BEGIN PRIVATE KEY----- is the first line of a key, -----END PRIVATE KEY----- the last.",
    "the author: someone@ and the cookie: a small one; basic training, bearer of news",
    "/home/ is where homes are, https://example.com/home/page2 is not one, nor is ./users/list.ts",
    "2026-01-24T16:22:26.831Z 1234567890123 0xdeadbeefcafebabe toolu_01A09q90qw90lq917835lq9",
    `docker pull node@${sha}, call_abc123DEF456ghi789JKL`,
    '<input type="password" name="password" placeholder="Password">',
  ];
}
