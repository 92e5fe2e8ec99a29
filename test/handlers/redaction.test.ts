/** Redacted exports: what is planted in every place is gone in every format, nothing else changes, and counts add up. */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { fileOf } from "../support/cases.ts";
import { assistantText, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { share } from "../support/random.ts";
import { harmlessTexts, type Planted, plantedSecrets } from "../support/secrets.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const escaped = (text: string): string =>
  [...text].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

/** Puts a text into every place that a session has for one. The ids and types are those of any session. */
function everywhere(text: string): string[] {
  const half = Math.ceil(text.length / 2);
  const image = { type: "text", text: `seen: ${text}` };
  const message = (role: string, content: unknown, more: object = {}): Record<string, unknown> => ({
    message: { role, content, ...more },
  });
  const calls = [
    { type: "toolCall", id: "call_1", name: "bash", arguments: { command: `run "${text}" now` } },
    { type: "toolCall", id: "call_2", name: "write", arguments: { [`key ${text}`]: { deep: [[text]] } } },
    { type: "toolCall", id: "call_3", name: "post", arguments: { body: JSON.stringify({ inner: `is ${text}` }) } },
    { type: "toolCall", id: "call_4", name: "post", arguments: JSON.stringify({ inner: JSON.stringify([text]) }) },
  ];
  const lines = [
    entryText("session_info", id(0), null, { name: `name ${text}` }),
    entryText("message", id(1), id(0), message("user", `please use ${text} for it`)),
    entryText(
      "message",
      id(2),
      id(1),
      message("assistant", [
        { type: "thinking", thinking: `thought ${text}`, thinkingSignature: `sig ${text}` },
        { type: "text", text: `the value\n${text}\nis set` },
        ...calls,
      ]),
    ),
    entryText(
      "message",
      id(3),
      id(2),
      message("toolResult", [image], {
        toolCallId: "call_1",
        toolName: "bash",
        isError: false,
        details: { diff: `+ 1 ${text}\n- 2 old`, list: [text] },
      }),
    ),
    entryText("message", id(4), id(3), {
      message: {
        role: "bashExecution",
        command: `echo '${text}'`,
        output: `\u001b[31m${text}\u001b[0m\n`,
        exitCode: 0,
      },
    }),
    entryText("custom", id(5), id(4), { customType: "note", data: { [text]: text } }),
    entryText("custom_message", id(6), id(5), {
      customType: "note",
      content: `custom ${text}`,
      display: true,
      details: { text },
    }),
    entryText("compaction", id(7), id(6), {
      summary: `so far: ${text}`,
      firstKeptEntryId: id(6),
      tokensBefore: 5,
      details: { text },
    }),
    entryText("branch_summary", id(8), id(7), { fromId: id(1), summary: `left ${text}` }),
    entryText("label", id(9), id(8), { targetId: id(1), label: `label ${text}` }),
    entryText(
      "message",
      id(10),
      id(9),
      message("user", [
        { type: "text", text: `split ${text.slice(0, half)}` },
        { type: "text", text: `${text.slice(half)} end` },
      ]),
    ),
    // Escapes that no writer needs.
    `{"type":"message","id":"${id(11)}","parentId":"${id(10)}","timestamp":"2026-01-24T16:22:26.831Z","message":{"role":"user","content":"x ${escaped(text)} y"}}`,
    entryText(
      "message",
      id(12),
      id(11),
      message("user", `base64: ${Buffer.from(`value=1\nkey: ${text}\n`).toString("base64")}`),
    ),
  ];
  return lines;
}

function opened(lines: readonly string[], header: Record<string, unknown> = {}) {
  const place = temporaryPlace();
  const file = fileOf(place, fileText(headerText({ cwd: "/home/me/project", ...header }), ...lines));
  return { place, file, server: serveHere(["--session", file, "--events", "none"], { place }) };
}

const FORMATS = ["jsonl", "html", "markdown", "training", "claude", "codex"] as const;

async function exported(server: HereServer, format: string, more: object = {}): Promise<Json> {
  const branches = format === "codex" ? "path" : "all";
  return server.result("export_session", { format, branches, redact: true, ...more });
}

const total = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0);
const without = (text: string): string => text.replace(/\s+/g, " ");

/** Whether a secret, or a half of it, is in a text, as it is or escaped. */
function isIn(text: string, { secret }: Planted): boolean {
  const [first] = secret.split("\n");
  const middle = first.slice(Math.floor(first.length / 4), Math.ceil((first.length * 3) / 4));
  const parts = first.length >= 16 ? [first, middle] : [first];
  return parts.some(
    (part) => text.includes(part) || text.includes(escaped(part)) || text.includes(encodeURIComponent(part)),
  );
}

describe("planted secrets", () => {
  const planted = plantedSecrets(7);

  test("there are enough kinds of them", () => {
    expect(new Set(planted.map(({ kind }) => kind)).size).toBeGreaterThanOrEqual(60);
  });

  for (const [count, tier] of [
    [2, SYSTEM],
    [Number.POSITIVE_INFINITY, SWEEP],
  ] as const)
    test(
      `none is left in any place of any format, and the counts are those of the marks (of up to ${count})`,
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
            if (isIn(content, one)) missed.push(`${one.kind} in ${format}: ${placeOf(content, one)}`);
            if (format !== "jsonl") continue;
            const { home_path = 0, signature: _, ...others } = redactions;
            expect(total(others), `${one.kind}: ${JSON.stringify(redactions)}`).toBe(
              (content.match(/\[redacted:/g) ?? []).length,
            );
            expect(home_path).toBeGreaterThan(0);
            keepsItsShape(lines, content);
          }
        }
        expect(missed).toEqual([]);
      },
    );

  test("all of them in one text are found, and each has its number", async () => {
    const { server } = opened([userText(id(0), null, planted.map(({ text }) => text).join("\n\n"))]);
    const { content, redactions } = await exported(server, "jsonl");
    expect(planted.filter((one) => isIn(content, one)).map(({ kind }) => kind)).toEqual([]);
    expect(total(redactions)).toBeGreaterThanOrEqual(planted.length);
  });

  test("one that stresses and code of Markdown cut is found, because pages show it whole", async () => {
    const secret = `ghp_${"a1B2c3D4e5F6".repeat(3)}`;
    const signs = ["**", "*", "***", "`", "``", "~~"];
    const cut = signs.map((sign) => `is ${sign}${secret.slice(0, 12)}${sign}${secret.slice(12)}, 2*3*4 and \`a\`b`);
    const { server } = opened(cut.map((text, n) => userText(id(n), n === 0 ? null : id(n - 1), text)));
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

/** The line with the secret, shortened. */
function placeOf(content: string, { secret }: Planted): string {
  const at = content.indexOf(secret.split("\n")[0].slice(4, 12));
  return without(content.slice(Math.max(0, at - 120), at + 60));
}

/** Holds each line against the one that was stored: the same but for texts. */
function keepsItsShape(lines: readonly string[], content: string): void {
  const [, ...after] = content.trimEnd().split("\n");
  expect(after).toHaveLength(lines.length);
  for (const [index, line] of after.entries()) {
    const was = JSON.parse(lines[index]);
    const is = JSON.parse(line);
    for (const name of ["type", "id", "parentId", "timestamp", "targetId", "fromId", "firstKeptEntryId", "customType"])
      expect(is[name]).toBe(was[name]);
    expect(is.message?.role).toBe(was.message?.role);
    expect(Object.keys(is)).toEqual(Object.keys(was));
  }
}

test("nothing harmless is replaced, and lines without findings keep their bytes", async () => {
  const lines = harmlessTexts(11).map((text, n) => userText(id(n), n === 0 ? null : id(n - 1), text));
  const { server, file } = opened(lines, { cwd: "/srv/project" });
  const { content, redactions } = await exported(server, "jsonl", { redactEmails: false });
  expect(content).toBe(readFileSync(file, "utf8"));
  expect(redactions).toEqual({});
});

test("homes become ~, those of others a number, e-mail addresses only on request", async () => {
  const text =
    "/home/me/a /Users/ann/b C:\\Users\\Bob\\c file:///home/me/d ann@example.org /home/me2/e --home-me-project--";
  const { server } = opened([userText(id(0), null, text)], {
    parentSession: "/home/me/.pi/agent/sessions/--home-me-project--/a.jsonl",
  });
  const plain = await exported(server, "jsonl");
  const [header, line] = plain.content.split("\n").map((one: string) => one && JSON.parse(one));
  expect([header.cwd, header.parentSession]).toEqual([
    "~/project",
    "~/.pi/agent/sessions/--home-user-project--/a.jsonl",
  ]);
  expect(line.message.content).toBe(
    "~/a /Users/user2/b C:\\Users\\user4\\c file://~/d ann@example.org /home/user3/e --home-user-project--",
  );
  const { content, redactions } = await server.result("export_session", { format: "markdown", redactEmails: true });
  expect(content).not.toContain("ann@example");
  expect(redactions.email).toBe(1);
});

describe("what cannot be judged", () => {
  const png = Buffer.from([0x89, 0x50, 0x4e, 0x47, ...Array.from({ length: 900 }, (_, i) => (i * 37) % 256)]).toString(
    "base64",
  );
  const images = entryText("message", id(0), null, {
    message: {
      role: "user",
      content: [
        { type: "image", data: png, mimeType: "image/png" },
        { type: "text", text: "look" },
      ],
    },
  });

  test.each([
    ["an image", [images], { image: 1 }],
    ["binary data", [userText(id(0), null, `see ${png}`)], { binary: 1 }],
    ["damage", [userText(id(0), null), '{"type":"message","id":', userText(id(1), id(0))], { damage: 1 }],
    ["an id", [userText(`ghp_${"aB3dE6".repeat(6)}`, null)], { id: 1 }],
  ])("%s stops every format, and is told when allowed", async (_, lines, unjudged) => {
    const { server, place } = opened(lines as string[]);
    for (const format of FORMATS) {
      const outputPath = join(place.cwd, `out.${format}`);
      const { data, message } = await server.failure("export_session", {
        format,
        branches: format === "codex" ? "path" : "all",
        redact: true,
        outputPath,
      });
      expect([data.name, data.unjudged]).toEqual(["unjudged", unjudged]);
      expect(message).toContain("allowUnjudged");
      expect(existsSync(outputPath)).toBe(false);
      const told = await exported(server, format, { allowUnjudged: true });
      expect(told.unjudged).toEqual(unjudged);
      if (format === "jsonl") for (const line of told.content.trim().split("\n")) JSON.parse(line);
    }
  });

  test("export_html is stopped too", async () => {
    const { server, place } = opened([images]);
    const outputPath = join(place.cwd, "page.html");
    expect((await server.failure("export_html", { outputPath, redact: true })).data.name).toBe("unjudged");
    const told = await server.result("export_html", { outputPath, redact: true, allowUnjudged: true });
    expect([told.unjudged, told.redactions]).toEqual([{ image: 1 }, { home_path: 1 }]);
    expect(readFileSync(outputPath, "utf8")).not.toContain("/home/me");
  });
});

test("signatures that nobody can read are emptied", async () => {
  const thinking = { type: "thinking", thinking: "hm", thinkingSignature: "Ab3+".repeat(200) };
  const { server } = opened([
    entryText("message", id(0), null, { message: { role: "assistant", content: [thinking] } }),
  ]);
  const { content, redactions } = await exported(server, "jsonl");
  expect(JSON.parse(content.split("\n")[1]).message.content[0]).toEqual({ ...thinking, thinkingSignature: "" });
  expect(redactions.signature).toBe(1);
});

test("the verb writes the file, tells what it replaced, and names the option that allows the rest", async () => {
  const { place, file } = opened([userText(id(0), null, "password: hunter42"), userText(id(1), id(0))]);
  const out = join(place.cwd, "shared.md");
  const run = await runHere(place, ["export", file, out, "--redact"]);
  expect([run.status, run.stderr]).toEqual([
    0,
    "Replaced: home_path 1, password 1.\nA secret that no rule knows stays: look through the export before you share it.\n",
  ]);
  expect(readFileSync(out, "utf8")).not.toContain("hunter42");
  writeFileSync(file, `${readFileSync(file, "utf8")}{broken\n${userText(id(2), id(1))}\n`);
  const refused = await runHere(place, ["export", file, out, "--redact", "--overwrite"]);
  expect(refused.status).toBe(1);
  expect(refused.stderr).toContain("--allow-unjudged");
});

acrossTiers(test, [8000, 25_000, 200_000])(
  "hostile lines of %i characters take a moment, not minutes",
  async (length) => {
    const hostile = ["a", "password=", "-----BEGIN PRIVATE KEY-----\n", "cookie: a=", "eyJ.", "\\\\u0041", "://a:b@"];
    const lines = hostile.map((text, n) =>
      userText(id(n), n === 0 ? null : id(n - 1), text.repeat(length / text.length)),
    );
    const { server } = opened(lines);
    const begun = process.cpuUsage();
    await exported(server, "jsonl", { allowUnjudged: true });
    const { user } = process.cpuUsage(begun);
    expect(user / 1e6).toBeLessThan(length / 20_000);
  },
);

test("accounts that records of other agents name are taken out, and their addresses wherever else they are", async () => {
  const mail = "anna.account7@example.com";
  const account = "0f3a9c1d-77aa-4e0b-9c55-aabbccddeeff";
  const data = {
    type: "attachment",
    uuid: "u1",
    attachment: {
      type: "session_context",
      userEmail: mail,
      oauth: { accountUuid: account, organizationName: "Anna's own" },
    },
  };
  const git = { type: "session_meta", payload: { id: "s1", chatgpt_account_id: account, contact: `mail ${mail}` } };
  const lines = [
    entryText("custom", id(0), null, { customType: "import:claude", data }),
    entryText("custom", id(1), id(0), { customType: "import:codex", data: git }),
    userText(id(2), id(1), `I am ${mail}, write to other@example.org`),
    entryText("custom", id(3), id(2), {
      customType: "mine",
      data: { userId: "plain-user-1", userEmail: "b@example.org" },
    }),
  ];
  const { server } = opened(lines);
  for (const format of ["jsonl", "claude", "codex"]) {
    const { content, redactions } = await exported(server, format);
    expect(content).not.toContain(mail);
    expect(content).not.toContain(account);
    expect(content).not.toContain("Anna's own");
    expect(content).toContain("other@example.org");
    expect(redactions.account_email).toBeGreaterThanOrEqual(2);
    expect(redactions.account_id).toBeGreaterThanOrEqual(3);
    if (format === "jsonl") expect(content).toContain("plain-user-1");
  }
});

test("the caller's home is one wherever it lies, and each redacted export says that somebody has to look through it", async () => {
  const place = temporaryPlace();
  const file = fileOf(
    place,
    fileText(headerText({ cwd: "/srv/app" }), userText(id(0), null, `see ${place.home}/notes and /root/.ssh`)),
  );
  const server = serveHere(["--session", file, "--events", "none"], { place });
  const { content, review } = await exported(server, "jsonl");
  expect(JSON.parse(content.split("\n")[1]).message.content).toBe("see ~/notes and ~/.ssh");
  expect(review).toContain("look through the export");
  expect((await server.result("export_html", { redact: true })).review).toBe(review);
  expect(await server.result("export_session", { format: "jsonl" })).not.toHaveProperty("review");
});
