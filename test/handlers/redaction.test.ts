/** Redacted exports: planted secrets are gone everywhere in every format, nothing else changes, and counts add up. */

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { modules } from "../../src/compose.ts";
import { nameOf } from "../support/asking.ts";
import { serveLines } from "../support/cases.ts";
import { assistantText, entryText, headerText, id, userText } from "../support/lines.ts";
import { share } from "../support/random.ts";
import { harmlessTexts, type Planted, plantedSecrets } from "../support/secrets.ts";
import { type HereServer, type Json, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const escaped = (text: string): string =>
  [...text].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

/** Puts a text into every place that a session has for one. The ids and types are those of any session. */
function everywhere(text: string): string[] {
  const half = Math.ceil(text.length / 2);
  const textBlock = (of: string): Json => ({ type: "text", text: of });
  const call = (n: number, name: string, args: Json): Json => ({
    type: "toolCall",
    id: `call_${n}`,
    name,
    arguments: args,
  });
  const thought = { type: "thinking", thinking: `thought ${text}`, thinkingSignature: `sig ${text}` };
  const answer = [
    thought,
    textBlock(`the value\n${text}\nis set`),
    call(1, "bash", { command: `run "${text}" now` }),
    call(2, "write", { [`key ${text}`]: { deep: [[text]] } }),
    call(3, "post", { body: JSON.stringify({ inner: `is ${text}` }) }),
    call(4, "post", JSON.stringify({ inner: JSON.stringify([text]) })),
  ];
  const details = { diff: `+ 1 ${text}\n- 2 old`, list: [text] };
  const result = { toolCallId: "call_1", toolName: "bash", isError: false, details };
  const output = `\u001b[31m${text}\u001b[0m\n`;
  const compaction = { summary: `so far: ${text}`, firstKeptEntryId: id(6), tokensBefore: 5, details: { text } };
  const message = (role: string, content: unknown, more: object = {}): [string, object] => [
    "message",
    { message: { role, content, ...more } },
  ];
  const entries: [type: string, rest: object][] = [
    ["session_info", { name: `name ${text}` }],
    message("user", `please use ${text} for it`),
    message("assistant", answer),
    message("toolResult", [textBlock(`seen: ${text}`)], result),
    ["message", { message: { role: "bashExecution", command: `echo '${text}'`, output, exitCode: 0 } }],
    ["custom", { customType: "note", data: { [text]: text } }],
    ["custom_message", { customType: "note", content: `custom ${text}`, display: true, details: { text } }],
    ["compaction", compaction],
    ["branch_summary", { fromId: id(1), summary: `left ${text}` }],
    ["label", { targetId: id(1), label: `label ${text}` }],
    message("user", [textBlock(`split ${text.slice(0, half)}`), textBlock(`${text.slice(half)} end`)]),
    message("user", `base64: ${Buffer.from(`value=1\nkey: ${text}\n`).toString("base64")}`),
  ];
  const lines = entries.map(([type, rest], n) => entryText(type, id(n), n === 0 ? null : id(n - 1), { ...rest }));
  // Escapes that no writer needs.
  return [...lines, userText(id(12), id(11), "x TEXT y").replace("TEXT", () => escaped(text))];
}

const opened = (lines: readonly string[], header: Record<string, unknown> = {}) =>
  serveLines(lines, { header: headerText({ cwd: "/home/me/project", ...header }), args: ["--events", "none"] });

/** A session of these messages of the user. */
const said = (...texts: string[]) => opened(texts.map((text, n) => userText(id(n), n === 0 ? null : id(n - 1), text)));

/** The agents whose files this build writes. */
const RESUMED = modules.foreign ? ["claude", "codex"] : [];
const FORMATS = ["jsonl", "html", "markdown", "training", ...RESUMED] as const;

const paramsOf = (format: string, more: object = {}): object => {
  const branches = format === "codex" ? "path" : "all";
  return { format, branches, redact: true, ...more };
};
const exported = (server: HereServer, format: string, more: object = {}): Promise<Json> =>
  server.result("export_session", paramsOf(format, more));

const messageIn = ({ content }: Json, line = 1): Json => JSON.parse(content.split("\n")[line]).message;
const total = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0);

/** Returns whether a secret, or a half of it, is in a text, as it is or escaped. */
function isIn(text: string, { secret }: Planted): boolean {
  const [first] = secret.split("\n");
  const middle = first.slice(Math.floor(first.length / 4), Math.ceil((first.length * 3) / 4));
  const parts = first.length >= 16 ? [first, middle] : [first];
  return parts.some(
    (part) => text.includes(part) || text.includes(escaped(part)) || text.includes(encodeURIComponent(part)),
  );
}

/** Holds each line against the one that was stored: the same but for texts. */
function keepsItsShape(lines: readonly string[], content: string): void {
  const [, ...after] = content.trimEnd().split("\n");
  expect(after).toHaveLength(lines.length);
  for (const [index, line] of after.entries()) {
    const [was, is] = [lines[index], line].map((text) => JSON.parse(text));
    for (const name of ["type", "id", "parentId", "timestamp", "targetId", "fromId", "firstKeptEntryId", "customType"])
      expect(is[name]).toBe(was[name]);
    expect([is.message?.role, Object.keys(is)]).toEqual([was.message?.role, Object.keys(was)]);
  }
}

describe("planted secrets", () => {
  const planted = plantedSecrets(7);

  for (const [count, tier] of [
    [2, SYSTEM],
    [Number.POSITIVE_INFINITY, SWEEP],
  ] as const)
    test(
      `none is left in any place of any format, and counts are those of the marks (of up to ${count})`,
      tier,
      async () => {
        const missed: string[] = [];
        // Every format is made of the same redacted lines, so that a share of the secrets shows that they are.
        const inAll = new Set(share(planted, 2));
        for (const one of share(planted, count)) {
          const lines = everywhere(one.text);
          const { server } = opened(lines, { cwd: `/home/me/in ${one.text}`, parentSession: `/tmp/of ${one.text}` });
          const { content: stored } = await server.result("export_session", { format: "jsonl" });
          expect(isIn(stored, one), one.kind).toBe(true);
          for (const format of inAll.has(one) ? FORMATS : (["jsonl"] as const)) {
            const { content, redactions } = await exported(server, format);
            const at = content.indexOf(one.secret.slice(4, 12));
            if (isIn(content, one))
              missed.push(`${one.kind} in ${format}: ${content.slice(Math.max(0, at - 120), at + 60)}`);
            if (format !== "jsonl") continue;
            const { home_path = 0, signature: _, ...others } = redactions;
            const marks = (content.match(/\[redacted:/g) ?? []).length;
            expect(total(others), `${one.kind}: ${JSON.stringify(redactions)}`).toBe(marks);
            expect(home_path).toBeGreaterThan(0);
            keepsItsShape(lines, content);
          }
        }
        expect(missed).toEqual([]);
      },
    );

  test("all of them in one text are found, and each has its number", async () => {
    const { server } = said(planted.map(({ text }) => text).join("\n\n"));
    const { content, redactions } = await exported(server, "jsonl");
    expect(planted.filter((one) => isIn(content, one)).map(({ kind }) => kind)).toEqual([]);
    expect(total(redactions)).toBeGreaterThanOrEqual(planted.length);
  });

  test("one that stresses and code of Markdown cut is found, because pages show it whole", async () => {
    const secret = `ghp_${"a1B2c3D4e5F6".repeat(3)}`;
    const signs = ["**", "*", "***", "`", "``", "~~"];
    const cut = signs.map((sign) => `is ${sign}${secret.slice(0, 12)}${sign}${secret.slice(12)}, 2*3*4 and \`a\`b`);
    const { server } = said(...cut);
    for (const format of ["jsonl", "html"]) {
      const { content } = await exported(server, format);
      for (const half of [secret.slice(0, 12), secret.slice(12)]) expect(content).not.toContain(half);
      expect(content).toContain("2*3*4");
    }
  });

  test("a secret that its place tells is found where nothing tells it", async () => {
    const secret = "correct7Horse9Battery";
    const { server } = opened([
      userText(id(0), null, `it was ${secret}!`),
      assistantText(id(1), id(0), `API_KEY=${secret}`),
    ]);
    const { content, redactions } = await exported(server, "jsonl");
    expect(content).not.toContain(secret);
    expect(content.match(/:1\]/g)).toHaveLength(2);
    expect(redactions).toEqual({ home_path: 1, known_secret: 1, secret: 1 });
  });
});

test("nothing harmless is replaced, and lines without findings keep their bytes", async () => {
  const lines = harmlessTexts(11).map((text, n) => userText(id(n), n === 0 ? null : id(n - 1), text));
  const { server, file } = opened(lines, { cwd: "/srv/project" });
  const { content, redactions } = await exported(server, "jsonl", { redactEmails: false });
  expect([content, redactions]).toEqual([readFileSync(file, "utf8"), {}]);
});

test("homes become ~, those of others a number, e-mail addresses only on request", async () => {
  const text =
    "/home/me/a /Users/ann/b C:\\Users\\Bob\\c file:///home/me/d ann@example.org /home/me2/e --home-me-project--";
  const parentSession = "/home/me/.pi/agent/sessions/--home-me-project--/a.jsonl";
  const { server } = opened([userText(id(0), null, text)], { parentSession });
  const plain = await exported(server, "jsonl");
  const header = { cwd: "~/project", parentSession: "~/.pi/agent/sessions/--home-user-project--/a.jsonl" };
  expect(JSON.parse(plain.content.split("\n")[0])).toMatchObject(header);
  expect(messageIn(plain).content).toBe(
    "~/a /Users/user2/b C:\\Users\\user4\\c file://~/d ann@example.org /home/user3/e --home-user-project--",
  );
  const mailed = { format: "markdown", redactEmails: true };
  const { content, redactions } = await server.result("export_session", mailed);
  expect([content.includes("ann@example"), redactions.email]).toEqual([false, 1]);
});

test("the caller's home is one wherever it lies, and each redacted export says that somebody has to look through it", async () => {
  const place = temporaryPlace();
  const lines = [userText(id(0), null, `see ${place.home}/notes and /root/.ssh`)];
  const { server } = serveLines(lines, { place, header: headerText({ cwd: "/srv/app" }) });
  const output = await exported(server, "jsonl");
  expect([messageIn(output).content, output.review]).toEqual([
    "see ~/notes and ~/.ssh",
    expect.stringContaining("look through the export"),
  ]);
  expect((await server.result("export_html", { redact: true })).review).toBe(output.review);
  expect(await server.result("export_session", { format: "jsonl" })).not.toHaveProperty("review");
});

describe("what cannot be judged", () => {
  const noise = Array.from({ length: 900 }, (_, i) => (i * 37) % 256);
  const png = Buffer.from([0x89, 0x50, 0x4e, 0x47, ...noise]).toString("base64");
  const content = [
    { type: "image", data: png, mimeType: "image/png" },
    { type: "text", text: "look" },
  ];
  const images = entryText("message", id(0), null, { message: { role: "user", content } });

  test.each<[string, string[], object]>([
    ["an image", [images], { image: 1 }],
    ["binary data", [userText(id(0), null, `see ${png}`)], { binary: 1 }],
    ["damage", [userText(id(0), null), '{"type":"message","id":', userText(id(1), id(0))], { damage: 1 }],
    ["an id", [userText(`ghp_${"aB3dE6".repeat(6)}`, null)], { id: 1 }],
  ])("%s stops every format, and is told when allowed", async (_, lines, unjudged) => {
    const { server, place } = opened(lines);
    for (const format of FORMATS) {
      const outputPath = join(place.cwd, `out.${format}`);
      const { data, message } = await server.failure("export_session", paramsOf(format, { outputPath }));
      expect([data.name, data.unjudged, message]).toEqual([
        "unjudged",
        unjudged,
        expect.stringContaining("allowUnjudged"),
      ]);
      expect(existsSync(outputPath)).toBe(false);
      const output = await exported(server, format, { allowUnjudged: true });
      expect(output.unjudged).toEqual(unjudged);
      if (format === "jsonl") for (const line of output.content.trim().split("\n")) JSON.parse(line);
    }
  });

  test("export_html is stopped too", async () => {
    const { server, place } = opened([images]);
    const params = { outputPath: join(place.cwd, "page.html"), redact: true };
    expect(await nameOf(server, "export_html", params)).toBe("unjudged");
    const output = await server.result("export_html", { ...params, allowUnjudged: true });
    expect([output.unjudged, output.redactions]).toEqual([{ image: 1 }, { home_path: 1 }]);
    expect(readFileSync(params.outputPath, "utf8")).not.toContain("/home/me");
  });
});

test("signatures that nobody can read are emptied", async () => {
  const thinking = { type: "thinking", thinking: "hm", thinkingSignature: "Ab3+".repeat(200) };
  const { server } = opened([
    entryText("message", id(0), null, { message: { role: "assistant", content: [thinking] } }),
  ]);
  const made = await exported(server, "jsonl");
  expect([messageIn(made).content[0], made.redactions.signature]).toEqual([{ ...thinking, thinkingSignature: "" }, 1]);
});

test("the verb writes the file, tells what it replaced, and names the option that allows the rest", async () => {
  const { place, file } = said("password: hunter42", "more");
  const out = join(place.cwd, "shared.md");
  const { status, stderr } = await runHere(place, ["export", file, out, "--redact"]);
  expect([status, stderr.split("\n")]).toEqual([
    0,
    [
      "Replaced: home_path 1, password 1.",
      "A secret that no rule knows stays: look through the export before you share it.",
      "",
    ],
  ]);
  expect(readFileSync(out, "utf8")).not.toContain("hunter42");
  appendFileSync(file, `{broken\n${userText(id(2), id(1))}\n`);
  const refused = await runHere(place, ["export", file, out, "--redact", "--overwrite"]);
  expect([refused.status, refused.stderr]).toEqual([1, expect.stringContaining("--allow-unjudged")]);
});

acrossTiers(test, [8000, 25_000, 200_000])(
  "hostile lines of %i characters take a moment, not minutes",
  async (length) => {
    const hostile = ["a", "password=", "-----BEGIN PRIVATE KEY-----\n", "cookie: a=", "eyJ.", "\\\\u0041", "://a:b@"];
    const { server } = said(...hostile.map((text) => text.repeat(length / text.length)));
    const begun = process.cpuUsage();
    await exported(server, "jsonl", { allowUnjudged: true });
    expect(process.cpuUsage(begun).user / 1e6).toBeLessThan(length / 8_000);
  },
);

test("accounts that records of other agents name are taken out, and their addresses wherever else they are", async () => {
  const mail = "anna.account7@example.com";
  const account = "0f3a9c1d-77aa-4e0b-9c55-aabbccddeeff";
  const oauth = { accountUuid: account, organizationName: "Anna's own" };
  const claude = { type: "attachment", uuid: "u1", attachment: { type: "session_context", userEmail: mail, oauth } };
  const codex = { type: "session_meta", payload: { id: "s1", chatgpt_account_id: account, contact: `mail ${mail}` } };
  const custom = (n: number, customType: string, data: object): string =>
    entryText("custom", id(n), n === 0 ? null : id(n - 1), { customType, data });
  const { server } = opened([
    custom(0, "import:claude", claude),
    custom(1, "import:codex", codex),
    userText(id(2), id(1), `I am ${mail}, write to other@example.org`),
    custom(3, "mine", { userId: "plain-user-1", userEmail: "b@example.org" }),
  ]);
  for (const format of ["jsonl", ...RESUMED]) {
    const { content, redactions } = await exported(server, format);
    for (const secret of [mail, account, "Anna's own"]) expect(content).not.toContain(secret);
    expect(content).toContain("other@example.org");
    expect(redactions.account_email).toBeGreaterThanOrEqual(2);
    expect(redactions.account_id).toBeGreaterThanOrEqual(3);
    if (format === "jsonl") expect(content).toContain("plain-user-1");
  }
});
