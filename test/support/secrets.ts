/** Planted secrets, made when they are needed: a repository with tokens in it is refused by those who look for them. */

import { Random } from "./random.ts";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SETS = {
  hex: "0123456789abcdef",
  upper: "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
  letters: `${LETTERS}0123456789`,
  dashed: `${LETTERS}0123456789_-`,
  base64: `${LETTERS}0123456789+/`,
} as const;

/** A text with a secret in it, of which nothing may be left. */
export interface Planted {
  readonly kind: string;
  readonly text: string;
  readonly secret: string;
}

/** Beginning, characters after it, how many; what is printed in a text is the token alone. */
const TOKENS: readonly (readonly [kind: string, begin: string, of: keyof typeof SETS, length: number])[] = [
  ["github_token", "ghp_", "letters", 36],
  ["github_token", "gho_", "letters", 36],
  ["github_token", "github_pat_", "letters", 82],
  ["gitlab_token", "glpat-", "letters", 20],
  ["anthropic_key", "sk-ant-api03-", "dashed", 93],
  ["openrouter_key", "sk-or-v1-", "hex", 64],
  ["openai_key", "sk-proj-", "dashed", 120],
  ["api_key_sk", "sk-", "letters", 48],
  ["google_api_key", "AIza", "letters", 35],
  ["google_oauth_token", "ya29.", "letters", 60],
  ["google_client_secret", "GOCSPX-", "letters", 28],
  ["aws_access_key", "AKIA", "upper", 16],
  ["alibaba_key", "LTAI", "letters", 20],
  ["slack_token", "xoxb-123456789012-1234567890123-", "letters", 24],
  ["slack_webhook", "hooks.slack.com/services/T00000000/B00000000/", "letters", 24],
  ["discord_webhook", "discord.com/api/webhooks/123456789012345678/", "letters", 68],
  ["stripe_key", "sk_live_", "letters", 24],
  ["stripe_webhook_secret", "whsec_", "letters", 32],
  ["npm_token", "npm_", "letters", 36],
  ["pypi_token", "pypi-AgEIcHlwaS5vcmc", "dashed", 100],
  ["rubygems_key", "rubygems_", "hex", 48],
  ["huggingface_token", "hf_", "letters", 34],
  ["groq_key", "gsk_", "letters", 52],
  ["xai_key", "xai-", "letters", 80],
  ["perplexity_key", "pplx-", "letters", 48],
  ["replicate_token", "r8_", "letters", 37],
  ["nvidia_key", "nvapi-", "letters", 64],
  ["langsmith_key", "lsv2_pt_", "hex", 32],
  ["brevo_key", "xkeysib-", "hex", 64],
  ["mailgun_key", "key-", "hex", 32],
  ["twilio_key", "SK", "hex", 32],
  ["digitalocean_token", "dop_v1_", "hex", 64],
  ["shopify_token", "shpat_", "hex", 32],
  ["databricks_token", "dapi", "hex", 32],
  ["docker_token", "dckr_pat_", "letters", 27],
  ["vault_token", "hvs.", "letters", 95],
  ["grafana_token", "glsa_", "letters", 41],
  ["linear_key", "lin_api_", "letters", 40],
  ["notion_token", "ntn_", "letters", 46],
  ["figma_token", "figd_", "letters", 43],
  ["vercel_token", "vcp_", "letters", 24],
  ["netlify_token", "nfp_", "letters", 40],
  ["newrelic_key", "NRAK-", "upper", 27],
  ["sentry_token", "sntrys_", "base64", 80],
  ["doppler_token", "dp.pt.", "letters", 43],
  ["pulumi_token", "pul-", "hex", 40],
  ["planetscale_token", "pscale_tkn_", "letters", 43],
  ["supabase_key", "sbp_", "hex", 40],
  ["tailscale_key", "tskey-auth-", "letters", 32],
  ["age_key", "AGE-SECRET-KEY-1", "letters", 58],
  ["atlassian_token", "ATATT3", "letters", 60],
  ["sourcegraph_token", "sgp_", "hex", 40],
  ["dropbox_token", "sl.u.", "dashed", 140],
  ["dropbox_token", "sl.B", "dashed", 130],
  ["swarm_token", "SWMTKN-1-", "letters", 70],
  ["api_key", "apify_api_", "letters", 36],
  ["api_key", "vk1.a.", "letters", 100],
  ["api_key", "p8e-", "letters", 32],
  ["stripe_key", "sk_prod_", "letters", 24],
  ["wallet_key", "suiprivkey1", "letters", 58],
];

function made(random: Random, of: keyof typeof SETS, length: number): string {
  // A digit and a letter of each case, whatever chance does.
  let text = of === "hex" ? "a1" : of === "upper" ? "Q2" : "aB3";
  while (text.length < length) text += random.pick([...SETS[of].replace(/[-_+/]/g, "")]);
  return text.slice(0, length);
}

/** Secrets that are known by what is around them. */
function around(random: Random): Planted[] {
  const secret = made(random, "letters", 22);
  const other = made(random, "letters", 30);
  const pass = `hunter${random.int(900) + 100}`;
  const body = Array.from({ length: 12 }, () => made(random, "base64", 64)).join("\n");
  const pem = (name: string): Planted => ({
    kind: "private_key",
    text: `-----BEGIN ${name}PRIVATE KEY-----\n${body}\n-----END ${name}PRIVATE KEY-----`,
    secret: body.slice(0, 64),
  });
  const jwt = [{ alg: "HS256", typ: "JWT" }, { sub: other }].map((part) =>
    Buffer.from(JSON.stringify(part)).toString("base64url"),
  );
  const token = `eyJ${jwt.join(".").slice(3)}.${made(random, "letters", 43)}`;
  const basic = Buffer.from(`bob:${secret}`).toString("base64");
  return [
    pem(""),
    pem("RSA "),
    pem("OPENSSH "),
    { kind: "private_key", text: `-----BEGIN EC PRIVATE KEY-----\n${body}`, secret: body.slice(0, 64) },
    { kind: "jwt", text: token, secret: token },
    { kind: "url_password", text: `postgres://app:${pass}@db.internal:5432/main`, secret: pass },
    { kind: "url_password", text: `mongodb+srv://u:${secret}@cluster0.mongodb.net/x?retryWrites=true`, secret },
    { kind: "url_password", text: `git clone https://${other}@example.org/a/b.git`, secret: other },
    { kind: "url_password", text: `redis://:${secret}@10.0.0.3:6379/0`, secret },
    { kind: "authorization", text: `curl -H 'Authorization: Bearer ${other}' https://x.test`, secret: other },
    { kind: "authorization", text: `authorization: Basic ${basic}`, secret: basic },
    { kind: "cookie", text: `Cookie: sid=${secret}; theme=dark`, secret },
    { kind: "cookie", text: `Set-Cookie: session=${secret}; Path=/; HttpOnly`, secret },
    { kind: "password", text: `DB_PASSWORD=${pass}`, secret: pass },
    { kind: "password", text: `password: "${pass}"`, secret: pass },
    { kind: "password", text: `curl -u admin:${pass} https://x.test`, secret: pass },
    { kind: "password", text: `mysql --password=${pass} -h db`, secret: pass },
    { kind: "password", text: `machine api.test login bob password ${pass}`, secret: pass },
    { kind: "secret", text: `AWS_SECRET_ACCESS_KEY=${made(random, "letters", 40)}`, secret: "" },
    { kind: "secret", text: `const apiKey = "${secret}";`, secret },
    { kind: "secret", text: `client_secret: ${secret}`, secret },
    { kind: "secret", text: `//registry.npmjs.org/:_authToken=${secret}`, secret },
    { kind: "secret", text: `https://x.test/cb?access_token=${secret}&state=1`, secret },
    {
      kind: "secret",
      text: `AccountName=a;AccountKey=${made(random, "letters", 86)}==;EndpointSuffix=core`,
      secret: "",
    },
    { kind: "secret", text: `export GITHUB_TOKEN='${secret}'`, secret },
    {
      kind: "signed_link",
      text: `https://a.blob.core.windows.net/c/b?sv=2022&sig=${other}${secret}%3D`,
      secret: other,
    },
    { kind: "telegram_token", text: `${110201543 + random.int(1000)}:A${made(random, "letters", 34)}`, secret: "" },
    { kind: "mailchimp_key", text: `${random.hex(32)}-us12`, secret: "" },
    {
      kind: "deepl_key",
      text: `${[8, 4, 4, 4, 12].map((digits) => random.hex(digits)).join("-")}:fx`,
      secret: "",
    },
    {
      kind: "password_hash",
      text: `root:$6$${made(random, "letters", 8)}$${made(random, "letters", 86)}:19000::`,
      secret: "",
    },
    {
      kind: "azure_client_secret",
      text: `abc8Q~${made(random, "letters", 34)}`,
      secret: "",
    },
  ].map((one) =>
    one.secret === "" ? { ...one, secret: /(?:[=:$~]|^)([A-Za-z0-9~-]{24,})/.exec(one.text)?.[1] ?? one.text } : one,
  );
}

/** One of each kind, other ones with each seed. */
export function plantedSecrets(seed = 1): Planted[] {
  const random = new Random(seed);
  const tokens = TOKENS.map(([kind, begin, of, length]) => {
    const secret = begin + made(random, of, length);
    return { kind, text: secret, secret };
  });
  return [...tokens, ...around(random)];
}

const prose =
  "The quick brown fox jumps over the lazy dog while the tokenizer counts tokens; no password is needed to read this. ";

/** Texts in which nothing is secret. */
export function harmlessTexts(seed = 1): string[] {
  const random = new Random(seed);
  const hex = (digits: number): string => random.hex(digits);
  const base64 = (length: number): string => made(random, "base64", length);
  return [
    hex(40),
    `commit ${hex(40)} (HEAD -> main)`,
    hex(64),
    `sha256:${hex(64)}`,
    `${hex(8)}-${hex(4)}-4${hex(3)}-a${hex(3)}-${hex(12)}`,
    `"integrity": "sha512-${base64(86)}=="`,
    `"resolved": "https://registry.npmjs.org/tokenize-this/-/tokenize-this-1.2.3.tgz"`,
    `h1:${base64(43)}=`,
    Buffer.from(prose.repeat(20)).toString("base64"),
    prose.repeat(30),
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore.",
    "const token = getToken(request.headers);",
    "const { password, token } = await readCredentials();",
    "if (password.length < 8) throw new Error('password: too short');",
    "token = self.tokenizer.decode(tokens[index])",
    "password = os.environ['DB_PASSWORD']",
    "DB_PASSWORD=$DB_PASSWORD",
    "apiKey: process.env.OPENAI_API_KEY,",
    "export ANTHROPIC_API_KEY=your-api-key-here",
    `token: ${"$"}{{ secrets.GITHUB_TOKEN }}`,
    "password: string;",
    "interface Login { password: string; accessToken?: string }",
    "max_tokens: 4096, stop_token_id: 128001, total_tokens=53211",
    '"nextPageToken": "CAUQAA1234567890abcdef"',
    "postgres://localhost:5432/app and https://user@example.org/a and http://[::1]:8080/@scope/pkg",
    "https://registry.npmjs.org/@types/node/-/node-20.19.43.tgz",
    "https://github.com/a/b/blob/main/src/core/session/session.ts#L10-L20",
    "npm install @scope/secret-tool@1.2.3 --save-dev",
    "src/core/export/markdown.ts:12:3 lint/suspicious/noControlCharactersInRegex",
    "ghp_ is how tokens of GitHub begin, and sk- those of OpenAI; AKIA… those of AWS.",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "-----BEGIN PRIVATE KEY----- is the first line of a key, -----END PRIVATE KEY----- the last.",
    "grep -rn 'BEGIN RSA PRIVATE KEY' . | head",
    "task-management-dashboard-overview-component-2024",
    "the author: someone@ and the cookie: a small one; basic training, bearer of news",
    "Basic authentication uses base64. Bearer tokens do not.",
    "function isSecret(name: string): boolean { return SECRET_WORDS.has(name); }",
    "/home/ is where homes are, https://example.com/home/page2 is not one, nor is ./users/list.ts",
    "class AuthToken extends Token { readonly secretKey: Uint8Array; }",
    "2026-01-24T16:22:26.831Z 1234567890123 0xdeadbeefcafebabe",
    "toolu_01A09q90qw90lq917835lq9 call_abc123DEF456ghi789JKL",
    `docker pull node@sha256:${hex(64)}`,
    'import { password as passwordPrompt } from "@inquirer/prompts";',
    '{"type":"password","name":"token","label":"Your token"}',
    '<input type="password" name="password" placeholder="Password">',
    "data:text/plain;charset=utf-8,hello",
    `${random.int(1e9)} ${random.next()}`,
  ];
}
