/** The formats of export_session: lossless, and as the seed maps them. Hostile contents are in test/page/hostile.test.ts. */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { modules } from "../../src/compose.ts";
import { FileLog } from "../../src/storage/log/file-log.ts";
import { append, conversation, nameOf } from "../support/asking.ts";
import { serveContent, serveLines, sessionFile } from "../support/cases.ts";
import { lookAtDocument } from "../support/documents.ts";
import { assistant, user } from "../support/drafts.ts";
import { contentsOf, put, read } from "../support/lifecycle.ts";
import { assistantText, chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { lookAt } from "../support/pages.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

// An export loads them when it is asked for, which takes longer than a test may.
import "../../src/core/redact/main.ts";
import "../../src/page/main.ts";

/** The formats of this build. */
const FORMATS = ["jsonl", "html", "markdown", "training", ...(modules.foreign ? ["claude", "codex"] : [])];

const exported = async (server: HereServer, format: string, more: object = {}): Promise<string> =>
  (await server.result("export_session", { format, ...more })).content;

/** Three branches: 0-1-2-3, 1-4-5 (the leaf), 0-6. */
const BRANCHED = [
  userText(id(0), null, "first question"),
  assistantText(id(1), id(0), "first answer"),
  userText(id(2), id(1), "on the old branch"),
  assistantText(id(3), id(2), "old answer"),
  userText(id(6), id(0), "a third way"),
  entryText("label", id(7), id(3), { targetId: id(1), label: "turning point" }),
  userText(id(4), id(1), "on the new branch"),
  assistantText(id(5), id(4), "new answer"),
];

describe("jsonl", () => {
  test("is the file's bytes, damage and all", async () => {
    const content = `\ufeff${fileText(headerText(), ...chain(3)).replaceAll("\n", "\r\n")}}{\n{"type":"mess`;
    const { server, file, place } = serveContent(content);
    const { sessionId, ...rest } = await server.result("export_session", { format: "jsonl" });
    expect([rest.content, rest.path, sessionId]).toEqual([content, undefined, JSON.parse(headerText()).id]);
    const path = join(place.cwd, "out.jsonl");
    expect(await server.result("export_session", { format: "jsonl", outputPath: path })).toEqual({ sessionId, path });
    expect(readFileSync(path)).toEqual(readFileSync(file));
  });

  test("of bytes that are no text goes to a file only", async () => {
    const text = Buffer.from(fileText(headerText(), ...chain(2)));
    const bytes = Buffer.concat([text, Buffer.from([0x7b, 0xff, 0x7d, 0x0a])]);
    const { server } = serveContent(bytes);
    expect(await nameOf(server, "export_session", { format: "jsonl" })).toBe("corrupt");
    const { path } = await server.result("export_session", { format: "jsonl", outputPath: "out.jsonl" });
    expect(readFileSync(path)).toEqual(bytes);
  });

  test("of the path has the header and the path's lines as they are", async () => {
    const content = await exported(serveLines(BRANCHED).server, "jsonl", { branches: "path" });
    expect(content).toBe(fileText(headerText(), BRANCHED[0], BRANCHED[1], BRANCHED[6], BRANCHED[7]));
  });

  test("of a session that has no file yet is what would be written", async () => {
    const lines = (await exported((await conversation(user("hi"))).server, "jsonl")).trim().split("\n");
    expect(lines.map((line) => JSON.parse(line).type)).toEqual(["session", "message"]);
  });

  test("has its attachments beside it", async () => {
    const { server, file } = serveLines(chain(2));
    const name = "ab".repeat(32);
    put(join(`${file}.blobs`, name), "media");
    const { path } = await server.result("export_session", { format: "jsonl", outputPath: "x.jsonl" });
    expect(read(join(`${path}.blobs`, name))).toBe("media");
  });
});

test.each(FORMATS)("%s is made of a session whose damage it finds", async (format) => {
  const [first, second, third] = chain(3);
  const { server } = serveLines([first, second.replace("say", "s\u0000y"), third]);
  expect(await exported(server, format)).toContain(id(2));
});

test("a file that exists is overwritten only when that is said", async () => {
  const { server, place } = serveLines(BRANCHED);
  for (const format of FORMATS) {
    const outputPath = join(place.cwd, `out.${format}`);
    writeFileSync(outputPath, "mine");
    const refused = await nameOf(server, "export_session", { format, outputPath });
    expect([refused, read(outputPath)]).toEqual(["already_exists", "mine"]);
    await server.result("export_session", { format, outputPath, overwrite: true });
    expect(read(outputPath)).not.toBe("mine");
  }
  expect(Object.keys(contentsOf(place.cwd)).filter((path) => path.endsWith(".tmp"))).toEqual([]);
});

test("a reply that is larger than the host takes is not begun", async () => {
  const { server } = serveLines(chain(100));
  await server.result("initialize", { maxReplyBytes: 4096 });
  for (const format of FORMATS) expect(await nameOf(server, "export_session", { format })).toBe("message_too_large");
});

test("a session that is not open is exported by its path, and stays closed and as it is", async () => {
  const { server, place } = serveLines(chain(1), { args: ["--events", "none"] });
  const sessionPath = sessionFile(place, BRANCHED, "other.jsonl", headerText({ id: "other" }));
  const before = read(sessionPath);
  for (const format of FORMATS) {
    const { sessionId, content } = await server.result("export_session", { sessionPath, format });
    expect([sessionId, content.includes("new answer")]).toEqual(["other", true]);
  }
  expect([read(sessionPath), (await server.result("list_open_sessions")).sessions.length]).toEqual([before, 1]);
  const none = { sessionPath: join(place.cwd, "none.jsonl"), format: "html" };
  expect(await nameOf(server, "export_session", none)).toBe("session_not_found");
});

describe("html", () => {
  test("shows every branch once, with links between them; export_html writes the same page", async () => {
    const { server } = serveLines(BRANCHED);
    const content = await exported(server, "html");
    const { ids, links, text } = lookAt(content);
    const all = ["first question", "first answer", "on the old branch", "old answer", "a third way", "new answer"];
    for (const said of all) expect([said, content.split(`<p>${said}</p>`).length - 1]).toEqual([said, 1]);
    expect(text.indexOf("new answer")).toBeLessThan(text.indexOf("old answer"));
    expect(text).toContain("turning point");
    // Each entry can be linked to by its id.
    for (const n of BRANCHED.keys()) expect(ids).toContain(id(n));
    // The branches that go off are named where they do, and name that.
    expect(links.filter((link) => link === "branch.2").length).toBe(2);
    expect(content).toContain(`It leaves <a href="#${id(1)}">this entry</a>`);
    const one = lookAt(await exported(server, "html", { branches: "path" }));
    expect([one.text.includes("old answer"), one.text.includes("new answer")]).toEqual([false, true]);
    const { path } = await server.result("export_html", { outputPath: "page.html" });
    expect(readFileSync(path, "utf8")).toBe(content);
  });

  test("export_html names its file after the session and no folder, whatever the session's id says", async () => {
    const { server, place } = serveLines(chain(1), { header: headerText({ id: "/../../escaped" }) });
    const { path } = await server.result("export_html");
    expect(path).toBe(join(place.cwd, "pi-session-_escaped.html"));
  });

  test("shows images, those beside the session too", async () => {
    const picture = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
    const sha = "2bf7c7b1ad2b4a5b8e6f4c0f".padEnd(64, "0");
    const shown = (n: number, data: Json): string => {
      const content = [{ type: "image", mimeType: "image/png", data }];
      return entryText("message", id(n), n === 0 ? null : id(n - 1), { message: { role: "user", content } });
    };
    const blob = { $piBlob: `sha256:${sha}`, sizeBytes: 8, encoding: "base64" };
    const data = picture.toString("base64");
    const { server, file } = serveLines([shown(0, data), shown(1, blob)], { env: { sha256: () => sha } });
    put(join(`${file}.blobs`, sha), picture);
    const content = await exported(server, "html");
    expect(lookAt(content).elements.filter((name) => name === "img").length).toBe(2);
    expect(content.split(`base64,${data}`).length).toBe(3);
  });
});

// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern is to find these
const SIGNS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;

describe("markdown", () => {
  /** Exports a session of these entries, and looks at it as GitHub shows it. */
  async function seen(lines: readonly string[], params: object = {}, header?: string) {
    const content = await exported(serveLines(lines, { header }).server, "markdown", params);
    return { content, ...lookAtDocument(content) };
  }
  const blocks = (...all: string[]): string => [...all, ""].join("\n\n");

  test("reads as it was written, one branch or all", async () => {
    const { content } = await seen(BRANCHED);
    expect(content.slice(content.indexOf("## Conversation"))).toBe(
      blocks(
        "## Conversation",
        '<a id="a0000000"></a>',
        "### You 1",
        "2026-01-24 16:22",
        "first question",
        '<a id="a0000001"></a>**Assistant** · sonnet · label **turning point** · 2026-01-24 16:22',
        "first answer",
        '<a id="a0000004"></a>',
        "### You 2",
        "2026-01-24 16:22",
        "on the new branch",
        '<a id="a0000005"></a>**Assistant** · 2026-01-24 16:22',
        "new answer",
      ),
    );
    const all = await seen(BRANCHED, { branches: "all" });
    expect(all.content).toContain("Other branches from here:\n\n- [on the old branch](#branch.2), 2 entries\n");
    const folded = "<details><summary>a third way (1 entry)</summary>\n\nIt branches off at [this entry](#a0000000).\n";
    expect(all.content).toContain(folded);
    for (const n of BRANCHED.keys()) expect(all.ids).toContain(id(n));
    expect(all.content.split("\n\nfirst question\n").length).toBe(2);
  });

  test("has the head as a table", async () => {
    const usage = { input: 1200, output: 30, totalTokens: 1230, cost: { total: 0.5 } };
    const answer = { role: "assistant", provider: "p|q", model: "m", usage, content: [{ type: "text", text: "hi" }] };
    const lines = [userText(id(0), null, "hello"), entryText("message", id(1), id(0), { message: answer })];
    // It was given long after the conversation.
    lines.push(entryText("session_info", id(2), id(1), { name: "hello", timestamp: "2026-03-01T00:00:00Z" }));
    const { content } = await seen(lines, {}, headerText({ parentSession: "/old|`.jsonl" }));
    expect(content.slice(0, content.indexOf("\n\n##")).split("\n")).toEqual([
      "# hello",
      "",
      "| Session | `01991f6e-1f1d-7c3e-b0a4-0242ac120002` |",
      "| --- | --- |",
      "| Directory | `/home/me/project` |",
      "| Dates | 2026-01-24 16:22 |",
      "| Model | p\\|q/m |",
      "| Messages | 2: 1 question, 1 answer |",
      "| Tokens | 1.2k: 1.2k in, 30 out |",
      "| Cost | \\$0 and \\$0.50 inherited |",
      "| Forked from | ``/old\\|`.jsonl`` |",
    ]);
  });

  test("has calls with their results, failures in words, and long output folded", async () => {
    const given: [name: string, args: object, result?: string][] = [
      ["bash", { command: "npm test" }, "\u001b[31mno\u001b[0m"],
      ["edit", { path: "a.ts", oldText: "x", newText: "```" }, "Edited."],
      ["read", { path: "b.py", offset: 3, limit: 2 }, "def f(): pass"],
      ["grep", { pattern: "a`b", path: "src" }, "```\n</details>\n\n\n".repeat(10)],
      ["write", { path: "c.json", content: "{}" }],
    ];
    const calls = given.map(([name, args]) => ({ type: "toolCall", id: name, name, arguments: args }));
    const content = [{ type: "thinking", thinking: "first\n\nthen" }, ...calls];
    const results = given.flatMap(([name, , text], n) => {
      const message = { role: "toolResult", toolCallId: name, content: [{ type: "text", text }], isError: n === 0 };
      return text === undefined ? [] : [entryText("message", id(n + 1), id(n), { message })];
    });
    const first = entryText("message", id(0), null, { message: { role: "assistant", content } });
    const shown = await seen([first, ...results]);
    expect(shown.content.slice(shown.content.indexOf("<details>"), shown.content.indexOf("**grep**"))).toBe(
      blocks(
        "<details><summary>Thinking</summary>\nfirst<br>\n<br>\nthen</details>",
        "**bash** `npm test` — **failed**",
        '<a id="a0000001"></a>',
        "```\nno\n```",
        "**edit** `a.ts` +1 −1",
        "````diff\n-x\n+```\n````",
        '<a id="a0000002"></a>Edited.',
        "**read** `b.py` lines 3–4",
        '<a id="a0000003"></a>',
        "```py\ndef f(): pass\n```",
      ),
    );
    expect(shown.content).toContain("**grep** `src`\n\n```json\n{\n");
    const folded = "<details><summary>Output: 40 lines, 170 B</summary>\n<pre><code>```\n&lt;/details&gt;&#10;&#10;\n";
    expect(shown.content).toContain(folded);
    expect(shown.content).toContain("**write** `c.json` — **no result**\n\n```json\n{}\n```");
    expect(shown.text).toContain(given[3][2]?.trimEnd());
  });

  test("writes prose anew: its Markdown stays, its headings, links, pictures, signs and markup do nothing", async () => {
    const said = [
      "# Title\n\nSetext\n---\n\na **b** *c* ~~d~~ `e|<f>` snake_case\nnext line",
      "1. one\n2. two\n   - deep\n\n- [x] done\n- [ ] open\n\n> quote\n>\n> - item",
      "| a | b |\n|:-:|--:|\n| 1\\|2 | <i> |",
      "```ts\nlet x;\n```\n\n```dataviewjs\nrun()\n```\n\n---",
      "[web](https://a.example/?a=1&b=(2)) [file](src/a.ts) [bad](javascript:alert(1)) ![pic](https://a.example/p.png)",
      "see https://a.example/x_y. @types/node #tag [[note]] %%gone%% $x$ ==hi== <b>&amp;",
    ];
    const { content, addresses } = await seen([userText(id(0), null, said.join("\n\n"))]);
    expect(content.slice(content.indexOf("#### "))).toBe(
      blocks(
        "#### Title\n\n##### Setext\n\na **b** *c* ~~d~~ `e|<f>` snake_case  \nnext line",
        "1. one\n2. two\n   - deep\n\n* [x] done\n* [ ] open\n\n> quote\n>\n> - item",
        "| a | b |\n| :-: | --: |\n| 1\\|2 | &lt;i> |",
        "```ts\nlet x;\n```\n\n```\nrun()\n```\n\n***",
        "[web](<https://a.example/?a=1&b=(2)>) file `src/a.ts` bad `javascript:alert(1)` \\[image pic\\] `https://a.example/p.png`",
        "see <https://a.example/x_y>. @&#8203;types/node \\#tag \\[\\[note\\]\\] \\%\\%gone\\%\\% \\$x\\$ \\=\\=hi\\=\\= &lt;b>&",
      ),
    );
    expect(addresses).toEqual(["https://a.example/?a=1&b=(2)", "https://a.example/x_y"]);
    const signs =
      "\u001b[31mred \u009b2J \u0000\u007f \u202egnp.exe\u202c \u2066x\u2069 \u200f\u061c line\u2028separator";
    const result = { role: "toolResult", content: [{ type: "text", text: signs }] };
    const odd = await seen([userText(id(0), null, signs), entryText("message", id(1), id(0), { message: result })]);
    expect(odd.content).not.toMatch(SIGNS);
  });
});

test(
  "the head names the session that one was forked from, and its forks; a redacted one tells only ids",
  SYSTEM,
  async () => {
    const server = serveHere(["--events", "none"]);
    await append(server, user("which <way>?"), assistant("this | that"), user("more"));
    const parent = await server.result("get_state");
    const [entryId] = await append(server, user("end"));
    const forks: Json[] = [];
    for (const name of ["a `fork`", undefined]) {
      await server.result("switch_session", { sessionId: parent.sessionId });
      await server.result("fork", { entryId });
      await append(server, user("other"));
      if (name !== undefined) await server.result("set_session_name", { name });
      forks.push(await server.result("get_state"));
    }
    const readExport = async ({ sessionFile }: Json, format: string, more: object = {}): Promise<string> => {
      const content = await exported(server, format, { sessionPath: sessionFile, ...more });
      const fact = /Fork(?:s|ed from)?(?: \||<\/dt>)(.*)$/m.exec(content);
      return fact?.[1].replace(/<[^>]*>| \|$/g, "").trim() ?? "";
    };
    const [first, second] = forks.map(({ sessionId }) => sessionId);
    expect(await readExport(parent, "html")).toBe(`a \`fork\` ${first}, which &lt;way&gt;? ${second}`);
    expect(await readExport(parent, "markdown")).toBe(`a \\\`fork\\\` \`${first}\`, which &lt;way>? \`${second}\``);
    expect(await readExport(forks[0], "html")).toBe(`which &lt;way&gt;? ${parent.sessionId}`);
    expect(await readExport(forks[0], "markdown", { redact: true })).toBe(`\`${parent.sessionId}\``);
    await server.result("archive_session", { sessionPath: parent.sessionFile });
    expect((await server.result("list_sessions", { archived: true })).sessions).toHaveLength(1);
    expect(await readExport(forks[1], "markdown")).toContain(parent.sessionId);
  },
);

describe("training", () => {
  async function records(server: HereServer, params: object = {}): Promise<Json[]> {
    const { content, records: count } = await server.result("export_session", { format: "training", ...params });
    const lines = content.split("\n");
    expect([lines.pop(), lines.length]).toEqual(["", count]);
    return lines.map((line: string) => JSON.parse(line));
  }
  const record = async (lines: readonly string[], header?: string): Promise<Json> =>
    (await records(serveLines(lines, { header }).server))[0];

  test.each(["branches.jsonl", "old-v1.jsonl"])("of examples/%s has a record of each branch", async (name) => {
    const text = readFileSync(new URL(`../../examples/${name}`, import.meta.url), "utf8");
    const { server } = serveContent(text);
    const all = await records(server, { branches: "all" });
    expect(await records(server)).toEqual([all[0]]);
    const header = JSON.parse(text.split("\n")[0]);
    const { entries } = await server.result("get_entries");
    const parents = new Set(entries.map(({ parentId }: Json) => parentId));
    expect(all.length).toBeGreaterThanOrEqual(
      entries.filter(({ id, type }: Json) => type === "message" && !parents.has(id)).length,
    );
    expect(new Set(all.map(({ metadata }) => metadata.leaf_id)).size).toBe(all.length);
    for (const [n, { session_id, turns, metadata }] of all.entries()) {
      await server.result("branch", { entryId: metadata.leaf_id });
      const path = (await server.result("get_path")).entries;
      const roles = path.flatMap(({ message }: Json) =>
        /^(user|assistant)$/.test(message?.role) ? [message.role] : [],
      );
      expect(turns.map(({ role }: Json) => role)).toEqual(roles);
      const about = { cwd: header.cwd, timestamp: header.timestamp, active: n === 0 };
      expect([session_id, metadata]).toMatchObject([header.id, about]);
      expect(metadata.turn_usage.length).toBe(turns.length);
    }
  });

  test("of the seed's own session is the seed's record", async () => {
    const model = { provider: "Alibaba", modelId: "qwen3-coder-plus" };
    const header = headerText({ cwd: "/home/ubuntu/gt/deacon", ...model, thinkingLevel: "off" });
    const said = "[GAS TOWN] deacon <- daemon ...";
    const asked = [
      { id: "", name: "bash", arguments: { command: "gt deacon heartbeat" } },
      { id: "", name: "read", arguments: { path: "x" } },
    ];
    const text = (one: string): Json => ({ type: "text", text: one });
    const answer = {
      role: "assistant",
      content: [text("I'll start...\n\n"), text("Now."), ...asked.map((call) => ({ type: "toolCall", ...call }))],
      ...{ provider: "Alibaba", model: "qwen3-coder-plus" },
      usage: { input: 3341, output: 41, cacheRead: 0, totalTokens: 3382, cost: { input: 0.5, output: 0.25 } },
    };
    const result = (toolName: string, isError: boolean): object => {
      const content = [text("✓ "), text(toolName)];
      return { message: { role: "toolResult", toolCallId: "", toolName, content, isError } };
    };
    const lines = [
      entryText("model_change", "87517077", null, model),
      entryText("thinking_level_change", "f51247f9", "87517077", { thinkingLevel: "off" }),
      userText("57f9d64c", "f51247f9", said),
      entryText("message", "da68c815", "57f9d64c", { message: answer }),
      entryText("message", "b8117890", "da68c815", { ...result("bash", false) }),
      entryText("message", "b8117891", "b8117890", { ...result("read", true) }),
    ];
    const usage = { input: 3341, output: 41, cache_read: 0, cache_write: 0, total: 3382 };
    expect(await record(lines, header)).toEqual({
      session_id: JSON.parse(header).id,
      turns: [
        { role: "user", content: said, tool_calls: [], tool_results: [] },
        {
          role: "assistant",
          content: "I'll start...\n\nNow.",
          tool_calls: asked,
          tool_results: [
            { tool_call_id: "", tool_name: "bash", content: "✓ bash", is_error: false },
            { tool_call_id: "", tool_name: "read", content: "✓ read", is_error: true },
          ],
        },
      ],
      metadata: {
        ...{ cwd: "/home/ubuntu/gt/deacon", role: "deacon", rig: null, provider: "Alibaba", model: "qwen3-coder-plus" },
        ...{ thinking_level: "off", timestamp: JSON.parse(header).timestamp, name: null, parent_session: null },
        ...{ usage, cost: 0.75, turn_usage: [null, { ...usage, cost: 0.75 }] },
        ...{ leaf_id: "b8117891", active: true, left_out: {} },
      },
    });
  });

  test.each([
    ["/home/ubuntu/gt/deacon", "", "deacon", null],
    ["/home/ubuntu/gt/deacon/dogs/boot", "", "boot", null],
    ["/home/ubuntu/gt/beads/witness", "", "witness", "beads"],
    ["/home/ubuntu/gt/beads/refinery/rig", "", "refinery", "beads"],
    ["/home/ubuntu/gt/beads/mayor/rig", "", "mayor", "beads"],
    ["/home/ubuntu/gt/beads/crew/josé", "", "crew", "beads"],
    ["/home/ubuntu/gt/beads/crew/max/src", "", null, null],
    ["/home/ubuntu/gt/beads/polecats/nux", "", "polecat", "beads"],
    ["/home/me/app", "[GAS TOWN] deacon <- daemon", "deacon", null],
    ["/home/me/app", "Hello.\n[GAS TOWN] witness: look", "witness", null],
    ["/home/me/app", "[GAS TOWN] beads/polecats/nux <- witness", "polecat", "beads"],
    ["/home/me/app", "[GAS TOWN] beads/refinery", "refinery", null],
    ["/home/ubuntu/gt/deacon", "[GAS TOWN] witness", "deacon", null],
  ])("names a role by the seven patterns, then by the first message: %s %j", async (cwd, said, role, rig) => {
    const { metadata } = await record([userText(id(0), null, said)], headerText({ cwd }));
    expect([metadata.role, metadata.rig]).toEqual([role, rig]);
  });

  test("takes other patterns and another marker, and refuses what could take for ever", async () => {
    const lines = [userText(id(0), null, "<<TEAM>> lead go")];
    const { server } = serveLines(lines, { header: headerText({ cwd: "/work/api" }) });
    for (const [params, role] of [
      [{ rolePatterns: { "/api$": "backend", "/work/": "any" } }, "backend"],
      [{ rolePatterns: { "/work/\\w+$": "any", "/api$": "backend" } }, "any"],
      [{ rolePatterns: {}, roleMarker: "<<TEAM>>" }, "lead"],
      [{ roleMarker: "" }, null],
    ] as const)
      expect((await records(server, params))[0].metadata.role).toBe(role);
    for (const pattern of ["(a+)+$", "(?:x)", "a*b*c*", "[", "\\"]) {
      const params = { format: "training", rolePatterns: { [pattern]: "x" } };
      const { code, data } = await server.failure("export_session", params);
      expect([code, data.issues[0].path]).toEqual([-32602, `rolePatterns.${pattern}`]);
    }
  });

  test("results go to the calls they answer, others to a turn of their own, and what has no place is counted", async () => {
    const message = (n: number, of: unknown): string =>
      entryText("message", id(n), n === 0 ? null : id(n - 1), { message: of });
    const result = (n: number, toolCallId: string): string =>
      message(n, { role: "toolResult", toolCallId, toolName: "t", content: toolCallId });
    const call = (callId: string, more: object = {}): object => ({ type: "toolCall", id: callId, name: "t", ...more });
    const thought = { type: "thinking", thinking: "hm" };
    const content = [thought, call("one", { arguments: {} }), call("two"), { type: "image", data: "AAAA" }];
    const { turns, metadata } = await record([
      userText(id(0), null),
      result(1, "nobody asked"),
      message(2, { role: "assistant", content }),
      result(3, "two"),
      entryText("custom_message", id(4), id(3), { customType: "x", content: "y" }),
      result(5, "one"),
      result(6, "three"),
      message(7, null),
      message(8, { role: "bashExecution", command: "ls", output: "" }),
      entryText("label", id(9), id(8), { targetId: id(0), label: "x" }),
    ]);
    expect(turns.map(({ role, tool_results }: Json) => [role, tool_results.map((one: Json) => one.content)])).toEqual([
      ["user", []],
      ["tool", ["nobody asked"]],
      ["assistant", ["one", "two"]],
      ["tool", ["three"]],
    ]);
    expect(turns[2].tool_calls[1]).toEqual({ id: "two", name: "t", arguments: {} });
    const leftOut = ["thinking block", "image block", "custom_message", "message", "bashExecution message"];
    expect(metadata.left_out).toEqual(Object.fromEntries(leftOut.map((what) => [what, 1])));
    expect(metadata.turn_usage).toEqual([null, null, null, null]);
  });
});

test("a page or file whose size is known to be over that of a reply is refused before anything is read", async () => {
  const compaction = { summary: "what was", firstKeptEntryId: id(2), tokensBefore: 1 };
  const { server, place } = serveLines([...chain(3), entryText("compaction", id(3), id(2), compaction)]);
  await server.result("get_state");
  vi.spyOn(FileLog.prototype, "length").mockReturnValue(100 << 20);
  const reads = vi.spyOn(FileLog.prototype, "readMany");
  const read = vi.spyOn(FileLog.prototype, "read");
  for (const format of ["html", "jsonl"]) {
    const { message, data } = await server.failure("export_session", { format });
    expect([data.name, reads.mock.calls, read.mock.calls]).toEqual(["message_too_large", [], []]);
    expect(message.includes("recent")).toBe(format === "html");
  }
  expect(await exported(server, "html", { branches: "recent" })).toContain("2 entries before these");
  const outputPath = join(place.cwd, "out.html");
  const { leftOut } = await server.result("export_session", { format: "html", outputPath });
  expect(leftOut).toEqual({ pictures: 0, bytes: 0, jsonl: true });
  expect(await nameOf(server, "export_session", { format: "jsonl", branches: "recent" })).toBe("invalid_params");
});

test("a long export without a file lets other requests in between", async () => {
  const { server } = serveLines([1, 2, 3].map((n) => userText(id(n), n === 1 ? null : id(n - 1), "x".repeat(1 << 19))));
  await server.result("get_state");
  let turns = 0;
  const count = (): void => {
    turns++;
    next = setImmediate(count);
  };
  let next = setImmediate(count);
  await server.result("export_session", { format: "jsonl" });
  clearImmediate(next);
  expect(turns).toBeGreaterThan(0);
});
