/** The formats of export_session: lossless, inert, and as the seed maps them. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test, vi } from "vitest";
import { FileLog } from "../../src/storage/log/file-log.ts";
import { fileOf, sessionFile } from "../support/cases.ts";
import { lookAtDocument } from "../support/documents.ts";
import { assistant, user } from "../support/drafts.ts";
import { contentsOf, put, read } from "../support/lifecycle.ts";
import { assistantText, chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { lookAt } from "../support/pages.ts";
import { processorTimeOf } from "../support/processor.ts";
import {
  type HereServer,
  type Json,
  type Place,
  serveHere,
  temporaryFolder,
  temporaryPlace,
} from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

// An export loads them when it is asked for, which takes longer than a test may.
import "../../src/core/redact/main.ts";
import "../../src/page/main.ts";

function open(place: Place, file: string, args: string[] = []): HereServer {
  return serveHere(["--session", file, "--events", "none", ...args], { place });
}

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
    const place = temporaryPlace();
    const content = `\ufeff${fileText(headerText(), ...chain(3)).replaceAll("\n", "\r\n")}}{\n{"type":"mess`;
    const file = fileOf(place, content);
    const server = open(place, file);
    const { content: told, path, sessionId } = await server.result("export_session", { format: "jsonl" });
    expect([told, path, sessionId]).toEqual([content, undefined, JSON.parse(headerText()).id]);
    const outputPath = join(place.cwd, "out.jsonl");
    expect(await server.result("export_session", { format: "jsonl", outputPath })).toEqual({
      sessionId,
      path: outputPath,
    });
    expect(readFileSync(outputPath)).toEqual(readFileSync(file));
  });

  test.each(["html", "markdown", "jsonl", "training", "claude", "codex"])(
    "as %s is made of a session whose damage it finds",
    async (format) => {
      const place = temporaryPlace();
      const [first, second, third] = chain(3);
      const server = open(
        place,
        fileOf(place, fileText(headerText(), first, second.replace("say", "s\u0000y"), third)),
      );
      const { content } = await server.result("export_session", { format });
      expect(content).toContain(id(2));
    },
  );

  test("bytes that are no text go to a file only", async () => {
    const place = temporaryPlace();
    const bytes = Buffer.concat([
      Buffer.from(fileText(headerText(), ...chain(2))),
      Buffer.from([0x7b, 0xff, 0x7d, 0x0a]),
    ]);
    const server = open(place, fileOf(place, bytes));
    expect((await server.failure("export_session", { format: "jsonl" })).data.name).toBe("corrupt");
    const { path } = await server.result("export_session", { format: "jsonl", outputPath: "out.jsonl" });
    expect(readFileSync(path)).toEqual(bytes);
  });

  test("of the path has the header and the path's lines as they are", async () => {
    const place = temporaryPlace();
    const server = open(place, sessionFile(place, BRANCHED));
    const { content } = await server.result("export_session", { format: "jsonl", branches: "path" });
    expect(content).toBe(fileText(headerText(), BRANCHED[0], BRANCHED[1], BRANCHED[6], BRANCHED[7]));
  });

  test("of a session that has no file yet is what would be written", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    await server.result("append", { entries: [{ type: "message", message: { role: "user", content: "hi" } }] });
    const { content } = await server.result("export_session", { format: "jsonl" });
    const lines = content
      .trim()
      .split("\n")
      .map((line: string) => JSON.parse(line));
    expect(lines.map(({ type }: Json) => type)).toEqual(["session", "message"]);
  });

  test("imported again, it is the same session; its attachments come along", async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(2));
    const name = "ab".repeat(32);
    put(join(`${file}.blobs`, name), "media");
    const server = open(place, file);
    const { path } = await server.result("export_session", {
      format: "jsonl",
      outputPath: join(temporaryFolder(), "x.jsonl"),
    });
    expect(read(join(`${path}.blobs`, name))).toBe("media");
    const { sessionPath } = await server.result("import_session", { path });
    expect([read(sessionPath), read(join(`${sessionPath}.blobs`, name))]).toEqual([read(file), "media"]);
  });
});

describe("a file that exists", () => {
  test("is overwritten only when that is said", async () => {
    const place = temporaryPlace();
    const server = open(place, sessionFile(place, BRANCHED));
    for (const format of ["jsonl", "html", "markdown", "training", "claude", "codex"]) {
      const outputPath = join(place.cwd, `out.${format}`);
      writeFileSync(outputPath, "mine");
      const { data } = await server.failure("export_session", { format, outputPath });
      expect([data.name, read(outputPath)]).toEqual(["already_exists", "mine"]);
      await server.result("export_session", { format, outputPath, overwrite: true });
      expect(read(outputPath)).not.toBe("mine");
    }
    expect(Object.keys(contentsOf(place.cwd)).filter((path) => path.endsWith(".tmp"))).toEqual([]);
  });

  test("outside of the allowed folders is refused", async () => {
    const place = temporaryPlace();
    const flat = join(place.home, "flat");
    mkdirSync(flat);
    const server = open(place, put(join(flat, "s.jsonl"), fileText(headerText(), ...chain(1))), [
      "--confine",
      "--session-dir",
      flat,
    ]);
    const outputPath = join(temporaryFolder(), "x.html");
    expect((await server.failure("export_session", { format: "html", outputPath })).data.name).toBe(
      "path_outside_root",
    );
  });

  test("a reply that is larger than the host takes is not begun", async () => {
    const place = temporaryPlace();
    const server = open(place, sessionFile(place, chain(100)));
    await server.result("initialize", { maxReplyBytes: 4096 });
    for (const format of ["jsonl", "html", "markdown", "training", "claude", "codex"])
      expect((await server.failure("export_session", { format })).data.name).toBe("message_too_large");
  });
});

test("a session that is not open is exported by its path, and stays closed and as it is", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, BRANCHED, "other.jsonl", headerText({ id: "other" }));
  const server = open(place, sessionFile(place, chain(1), "open.jsonl"));
  const before = read(file);
  for (const format of ["jsonl", "html", "markdown", "training", "claude", "codex"]) {
    const { sessionId, content } = await server.result("export_session", { sessionPath: file, format });
    expect([sessionId, content.includes("new answer")]).toEqual(["other", true]);
  }
  expect([read(file), (await server.result("list_open_sessions")).sessions.length]).toEqual([before, 1]);
  const { data } = await server.failure("export_session", {
    sessionPath: join(place.cwd, "none.jsonl"),
    format: "html",
  });
  expect(data.name).toBe("session_not_found");
});

// --- inert -----------------------------------------------------------------------------------------------------------

const HOSTILE = [
  "<script>alert(1)</script>",
  '"><img src=x onerror=alert(2)>',
  "</pre></article><iframe src=javascript:alert(3)>",
  "<!-- --><style>*{display:none}</style><link rel=stylesheet href=//evil>",
  "&lt;script&gt; &#60;b&#62;",
  "\u001b[31mred\u001b[0m\u001b]0;title\u0007 \u009b2J \u0000 \u007f",
  "\u202egnp.exe\u202c \u2066x\u2069 \u200f \u061c",
  "```\n<script>alert(4)</script>\n````\n~~~~\n# heading",
  "[click](javascript:alert(5)) ![x](http://evil/x.png) <http://evil> http://evil www.evil.com",
  "line\u2028separator\u2029paragraph\rreturn\r\nboth",
  "| a | b |\n|---|---|\n1. list\n- item\n> quote\n<b>bold</b>\n\n    code",
  "\ud800 lone surrogate",
];

/** Every text that a session has says every hostile thing. */
function hostileSession(place: Place): string {
  const evil = HOSTILE.join("\n");
  const one = evil.replaceAll("\n", " ");
  const lines: string[] = [];
  let parent: string | null = null;
  const add = (type: string, rest: Record<string, unknown>): void => {
    const own = id(lines.length);
    lines.push(JSON.stringify({ type, id: own, parentId: parent, timestamp: one, ...rest }));
    parent = own;
  };
  add("message", { message: { role: "user", content: evil } });
  add("message", {
    message: {
      role: "assistant",
      provider: evil,
      model: evil,
      content: [
        { type: "text", text: evil },
        { type: "thinking", thinking: evil },
        { type: "toolCall", id: evil, name: evil, arguments: { [evil]: evil } },
        { type: "image", mimeType: `image/png" onload="${one}`, data: "AAAA" },
        { type: "image", mimeType: "image/svg+xml", data: evil },
        { type: evil, text: evil },
      ],
    },
  });
  add("message", {
    message: { role: "toolResult", toolName: evil, content: [{ type: "text", text: evil }], isError: true },
  });
  add("message", { message: { role: "bashExecution", command: evil, output: evil } });
  add("message", { message: { role: evil, content: evil } });
  add("custom_message", { customType: evil, content: evil });
  add("compaction", { summary: evil, firstKeptEntryId: id(0), tokensBefore: 1 });
  add("branch_summary", { summary: evil, fromId: evil });
  add("model_change", { provider: evil, modelId: evil });
  add("thinking_level_change", { thinkingLevel: evil });
  add("label", { targetId: id(0), label: evil });
  add("session_info", { name: evil });
  add(evil, { anything: evil });
  lines.push(
    JSON.stringify({
      type: "message",
      id: "b0000000",
      parentId: id(0),
      timestamp: one,
      message: { role: "user", content: evil },
    }),
  );
  add("message", { message: { role: "user", content: "the end" } });
  return sessionFile(place, lines, "hostile.jsonl", headerText({ cwd: evil, parentSession: evil }));
}

/** What in a page acts instead of being read. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
describe("html", () => {
  test("shows every branch once, with links between them", async () => {
    const place = temporaryPlace();
    const server = open(place, sessionFile(place, BRANCHED));
    const { content } = await server.result("export_session", { format: "html" });
    const { ids, links, text } = lookAt(content);
    for (const said of [
      "first question",
      "first answer",
      "on the old branch",
      "old answer",
      "a third way",
      "new answer",
    ])
      expect([said, content.split(`<p>${said}</p>`).length - 1]).toEqual([said, 1]);
    expect(text.indexOf("new answer")).toBeLessThan(text.indexOf("old answer"));
    expect(text).toContain("turning point");
    // Each entry can be linked to by its id.
    for (const n of [0, 1, 2, 3, 4, 5, 6, 7]) expect(ids).toContain(id(n));
    // The branches that go off are named where they do, and name that.
    expect(links.filter((link) => link === "branch.2").length).toBe(2);
    expect(content).toContain(`It leaves <a href="#${id(1)}">this entry</a>`);
    const one = lookAt((await server.result("export_session", { format: "html", branches: "path" })).content);
    expect([one.text.includes("old answer"), one.text.includes("new answer")]).toEqual([false, true]);
  });

  test("of hostile text stays inert for a parser of HTML", async () => {
    const place = temporaryPlace();
    const server = open(place, hostileSession(place));
    const { content } = await server.result("export_session", { format: "html" });
    const { elements, text } = lookAt(content);
    expect(elements.filter((name) => name === "pre").length).toBeGreaterThan(10);
    // What was said is there to be read.
    for (const said of ["<script>alert(1)</script>", "onerror=alert(2)", "␛[31mred", "<b>bold</b>"])
      expect(text).toContain(said);
  });

  test("export_html is the same page", async () => {
    const place = temporaryPlace();
    const server = open(place, hostileSession(place));
    const { path } = await server.result("export_html", { outputPath: "page.html" });
    const { content } = await server.result("export_session", { format: "html" });
    expect(readFileSync(path, "utf8")).toBe(content);
  });

  test("export_html names its file after the session and no folder, whatever the session's id says", async () => {
    const place = temporaryPlace();
    const server = open(place, fileOf(place, fileText(headerText({ id: "/../../escaped" }), ...chain(1))));
    const { path } = await server.result("export_html");
    expect(path).toBe(join(place.cwd, "pi-session-_escaped.html"));
  });

  test("shows images, those beside the session too", async () => {
    const place = temporaryPlace();
    const picture = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
    const data = picture.toString("base64");
    const sha = "2bf7c7b1ad2b4a5b8e6f4c0f".padEnd(64, "0");
    const lines = [
      entryText("message", id(0), null, {
        message: { role: "user", content: [{ type: "image", mimeType: "image/png", data }] },
      }),
      entryText("message", id(1), id(0), {
        message: {
          role: "user",
          content: [
            {
              type: "image",
              mimeType: "image/png",
              data: { $piBlob: `sha256:${sha}`, sizeBytes: 8, encoding: "base64" },
            },
          ],
        },
      }),
    ];
    const file = sessionFile(place, lines);
    mkdirSync(`${file}.blobs`);
    writeFileSync(join(`${file}.blobs`, sha), picture);
    const server = serveHere(["--session", file, "--events", "none"], { place, env: { sha256: () => sha } });
    const { content } = await server.result("export_session", { format: "html" });
    expect(lookAt(content).elements.filter((name) => name === "img").length).toBe(2);
    expect(content.split(`base64,${data}`).length).toBe(3);
  });
});

describe("markdown", () => {
  /** Exports a session of these entries, and looks at it as GitHub shows it. */
  async function seen(place: Place, file: string, params: object = {}) {
    const server = open(place, file);
    const { content } = await server.result("export_session", { format: "markdown", ...params });
    return { content: content as string, ...lookAtDocument(content) };
  }

  test("of hostile text has nothing that acts, and forges no heading", async () => {
    const place = temporaryPlace();
    const { content, text, headings } = await seen(place, hostileSession(place), { branches: "all" });
    expect(content).not.toMatch(CONTROLS);
    for (const said of ["<script>alert(1)</script>", "onerror=alert(2)", "<b>bold</b>"]) expect(text).toContain(said);
    expect(headings.slice(1)).toEqual([
      "0 h2 Conversation",
      // The compaction replaced it.
      "0 h3 You 1",
      "0 h3 You 2",
      "0 h2 Other branches",
      "1 h3 You 1",
    ]);
  });

  test("reads as it was written, one branch or all", async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, BRANCHED);
    const { content } = await seen(place, file);
    expect(content.slice(content.indexOf("## Conversation"))).toBe(
      [
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
        "",
      ].join("\n\n"),
    );
    const all = await seen(place, file, { branches: "all" });
    expect(all.content).toContain("Another way was taken here, too:\n\n- [on the old branch](#branch.2), 2 entries\n");
    expect(all.content).toContain(
      "<details><summary>a third way (1 entry)</summary>\n\nIt leaves [this entry](#a0000000).\n",
    );
    for (const n of [0, 1, 2, 3, 4, 5, 6, 7]) expect(all.ids).toContain(id(n));
    expect(all.content.split("\n\nfirst question\n").length).toBe(2);
  });

  test("has the head as a table", async () => {
    const place = temporaryPlace();
    const usage = { input: 1200, output: 30, totalTokens: 1230, cost: { total: 0.5 } };
    const lines = [
      userText(id(0), null, "hello"),
      entryText("message", id(1), id(0), {
        message: { role: "assistant", provider: "p|q", model: "m", usage, content: [{ type: "text", text: "hi" }] },
      }),
    ];
    const { content } = await seen(
      place,
      sessionFile(place, lines, "s.jsonl", headerText({ parentSession: "/old|`.jsonl" })),
    );
    expect(content.slice(0, content.indexOf("\n\n##"))).toBe(
      [
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
        "",
      ]
        .join("\n")
        .trimEnd(),
    );
  });

  test("has calls with their results, failures in words, and long output folded", async () => {
    const place = temporaryPlace();
    const call = (n: number, name: string, args: object): object => ({
      type: "toolCall",
      id: `c${n}`,
      name,
      arguments: args,
    });
    const result = (n: number, text: string, more: object = {}): string =>
      entryText("message", id(n + 1), id(n), {
        message: { role: "toolResult", toolCallId: `c${n}`, content: [{ type: "text", text }], ...more },
      });
    const long = "```\n</details>\n\n\n".repeat(10);
    const lines = [
      entryText("message", id(0), null, {
        message: {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "first\n\nthen" },
            call(0, "bash", { command: "npm test" }),
            call(1, "edit", { path: "a.ts", oldText: "x", newText: "```" }),
            call(2, "read", { path: "b.py", offset: 3, limit: 2 }),
            call(3, "grep", { pattern: "a`b", path: "src" }),
            call(4, "write", { path: "c.json", content: "{}" }),
          ],
        },
      }),
      result(0, "\u001b[31mno\u001b[0m", { isError: true }),
      result(1, "Edited."),
      result(2, "def f(): pass"),
      result(3, long),
    ];
    const { content, text } = await seen(place, sessionFile(place, lines));
    expect(content.slice(content.indexOf("<details>"), content.indexOf("**grep**"))).toBe(
      [
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
        "",
      ].join("\n\n"),
    );
    expect(content).toContain("**grep** `src`\n\n```json\n{\n");
    expect(content).toContain(
      "<details><summary>Output: 40 lines, 170 B</summary>\n<pre><code>```\n&lt;/details&gt;&#10;&#10;\n",
    );
    expect(content).toContain("**write** `c.json` — **no result**\n\n```json\n{}\n```");
    expect(text).toContain(long.trimEnd());
  });

  test("writes prose anew: its Markdown stays, its headings, links, pictures and markup do nothing", async () => {
    const place = temporaryPlace();
    const said = [
      "# Title\n\nSetext\n---\n\na **b** *c* ~~d~~ `e|<f>` snake_case\nnext line",
      "1. one\n2. two\n   - deep\n\n- [x] done\n- [ ] open\n\n> quote\n>\n> - item",
      "| a | b |\n|:-:|--:|\n| 1\\|2 | <i> |",
      "```ts\nlet x;\n```\n\n```dataviewjs\nrun()\n```\n\n---",
      "[web](https://a.example/?a=1&b=(2)) [file](src/a.ts) [bad](javascript:alert(1)) ![pic](https://a.example/p.png)",
      "see https://a.example/x_y. @types/node #tag [[note]] %%gone%% $x$ ==hi== <b>&amp;",
    ].join("\n\n");
    const file = sessionFile(place, [userText(id(0), null, said)]);
    const { content, addresses } = await seen(place, file);
    expect(content.slice(content.indexOf("#### "))).toBe(
      [
        "#### Title\n\n##### Setext\n\na **b** *c* ~~d~~ `e|<f>` snake_case  \nnext line",
        "1. one\n2. two\n   - deep\n\n* [x] done\n* [ ] open\n\n> quote\n>\n> - item",
        "| a | b |\n| :-: | --: |\n| 1\\|2 | &lt;i> |",
        "```ts\nlet x;\n```\n\n```\nrun()\n```\n\n***",
        "[web](<https://a.example/?a=1&b=(2)>) file `src/a.ts` bad `javascript:alert(1)` \\[image pic\\] `https://a.example/p.png`",
        "see <https://a.example/x_y>. @&#8203;types/node \\#tag \\[\\[note\\]\\] \\%\\%gone\\%\\% \\$x\\$ \\=\\=hi\\=\\= &lt;b>&",
        "",
      ].join("\n\n"),
    );
    expect(addresses).toEqual(["https://a.example/?a=1&b=(2)", "https://a.example/x_y"]);
  });
});

test(
  "the head names the session that one was forked from, and its forks; a redacted one tells only ids",
  SYSTEM,
  async () => {
    const server = serveHere(["--events", "none"]);
    await server.result("append", { entries: [user("which <way>?"), assistant("this | that"), user("more")] });
    const parent = await server.result("get_state");
    const { entryIds } = await server.result("append", { entries: [user("end")] });
    const forks = [];
    for (const name of ["a `fork`", undefined]) {
      await server.result("switch_session", { sessionId: parent.sessionId });
      await server.result("fork", { entryId: entryIds[0] });
      await server.result("append", { entries: [user("other")] });
      if (name !== undefined) await server.result("set_session_name", { name });
      forks.push(await server.result("get_state"));
    }
    const told = async ({ sessionFile }: Json, format: string, more: object = {}): Promise<string> => {
      const params = { sessionPath: sessionFile, format, ...more };
      const { content } = await server.result("export_session", params);
      const fact = /Fork(?:s|ed from)?(?: \||<\/dt>)(.*)$/m.exec(content);
      return fact?.[1].replace(/<[^>]*>| \|$/g, "").trim() ?? "";
    };
    const [first, second] = forks.map(({ sessionId }) => sessionId);
    expect(await told(parent, "html")).toBe(`a \`fork\` ${first}, which &lt;way&gt;? ${second}`);
    expect(await told(parent, "markdown")).toBe(`a \\\`fork\\\` \`${first}\`, which &lt;way>? \`${second}\``);
    expect(await told(forks[0], "html")).toBe(`which &lt;way&gt;? ${parent.sessionId}`);
    expect(await told(forks[0], "markdown", { redact: true })).toBe(`\`${parent.sessionId}\``);
    await server.result("archive_session", { sessionPath: parent.sessionFile });
    expect((await server.result("list_sessions", { archived: true })).sessions).toHaveLength(1);
    expect(await told(forks[1], "markdown")).toContain(parent.sessionId);
  },
);

// --- training --------------------------------------------------------------------------------------------------------

const EXAMPLES = fileURLToPath(new URL("../../examples", import.meta.url));

async function records(server: HereServer, params: object = {}): Promise<Json[]> {
  const { content, records: count } = await server.result("export_session", { format: "training", ...params });
  const lines = content.split("\n");
  expect([lines.pop(), lines.length]).toEqual(["", count]);
  return lines.map((line: string) => JSON.parse(line));
}

/** The mapping table of seed 002, row by row, over the entries of a path: other code than the exporter's. */
function mapped(entries: readonly Json[]): Json[] {
  const turns: Json[] = [];
  const joined = (content: Json): string =>
    typeof content === "string"
      ? content
      : content
          .filter(({ type }: Json) => type === "text")
          .map(({ text }: Json) => text)
          .join("");
  for (const { type, message } of entries) {
    if (type !== "message") continue;
    const { role, content } = message;
    if (role === "user") turns.push({ role: "user", content: joined(content), tool_calls: [], tool_results: [] });
    if (role === "assistant")
      turns.push({
        role: "assistant",
        content: joined(content),
        tool_calls: content
          .filter(({ type }: Json) => type === "toolCall")
          .map(({ id, name, arguments: args }: Json) => ({ id, name, arguments: args })),
        tool_results: [],
      });
    if (role === "toolResult")
      turns
        .findLast(({ role }) => role === "assistant")
        .tool_results.push({
          tool_call_id: message.toolCallId,
          tool_name: message.toolName,
          content: joined(content),
          is_error: message.isError,
        });
  }
  return turns;
}

describe("training", () => {
  test.each(["branches.jsonl", "old-v1.jsonl"])("of examples/%s is what the seed's table says", async (name) => {
    const place = temporaryPlace();
    const server = open(place, put(join(place.cwd, name), readFileSync(join(EXAMPLES, name))));
    const all = await records(server, { branches: "all" });
    const one = await records(server);
    expect(one).toEqual([all[0]]);
    const { entries } = await server.result("get_entries");
    const header = JSON.parse(readFileSync(join(EXAMPLES, name), "utf8").split("\n")[0]);
    const byId = new Map<string, Json>(entries.map((entry: Json) => [entry.id, entry]));
    const leaves = new Set<string>();
    for (const { session_id, turns, metadata } of all) {
      expect(session_id).toBe(header.id);
      const path: Json[] = [];
      for (let at = byId.get(metadata.leaf_id); at; at = byId.get(at.parentId)) path.unshift(at);
      expect(turns).toEqual(mapped(path));
      leaves.add(metadata.leaf_id);
      const answers = path.filter(({ message }) => message?.role === "assistant");
      expect(metadata).toMatchObject({
        cwd: header.cwd,
        provider: header.provider ?? answers.at(-1)?.message.provider ?? null,
        model: header.modelId ?? answers.at(-1)?.message.model ?? null,
        timestamp: header.timestamp,
        usage: { input: answers.reduce((sum, { message }) => sum + (message.usage?.input ?? 0), 0) },
      });
      expect(metadata.turn_usage.length).toBe(turns.length);
      for (const [index, usage] of metadata.turn_usage.entries())
        expect(usage === null).toBe(turns[index].role !== "assistant" || !answers.some(({ message }) => message.usage));
    }
    expect(leaves.size).toBe(all.length);
    // Every message of the session is in some record.
    const spoken = entries.filter(({ type }: Json) => type === "message").length;
    expect(spoken).toBeGreaterThan(0);
    expect(all[0].metadata.active).toBe(true);
    expect(all.slice(1).every(({ metadata }: Json) => metadata.active === false)).toBe(true);
  });

  test("of the seed's own session is the seed's record", async () => {
    const place = temporaryPlace();
    const header = headerText({
      cwd: "/home/ubuntu/gt/deacon",
      provider: "Alibaba",
      modelId: "qwen3-coder-plus",
      thinkingLevel: "off",
    });
    const said = "[GAS TOWN] deacon <- daemon ...";
    const lines = [
      entryText("model_change", "87517077", null, { provider: "Alibaba", modelId: "qwen3-coder-plus" }),
      entryText("thinking_level_change", "f51247f9", "87517077", { thinkingLevel: "off" }),
      userText("57f9d64c", "f51247f9", said),
      entryText("message", "da68c815", "57f9d64c", {
        message: {
          role: "assistant",
          content: [
            { type: "text", text: "I'll start...\n\n" },
            { type: "text", text: "Now." },
            { type: "toolCall", id: "", name: "bash", arguments: { command: "gt deacon heartbeat" } },
            { type: "toolCall", id: "", name: "read", arguments: { path: "x" } },
          ],
          provider: "Alibaba",
          model: "qwen3-coder-plus",
          usage: {
            input: 3341,
            output: 41,
            cacheRead: 0,
            cacheWrite: 0,
            totalTokens: 3382,
            cost: { input: 0.5, output: 0.25 },
          },
        },
      }),
      ...["bash", "read"].map((toolName, index) =>
        entryText("message", `b811789${index}`, index === 0 ? "da68c815" : "b8117890", {
          message: {
            role: "toolResult",
            toolCallId: "",
            toolName,
            content: [
              { type: "text", text: "✓ " },
              { type: "text", text: toolName },
            ],
            isError: index === 1,
          },
        }),
      ),
    ];
    const server = open(place, sessionFile(place, lines, "seed.jsonl", header));
    expect(await records(server)).toEqual([
      {
        session_id: JSON.parse(header).id,
        turns: [
          { role: "user", content: said, tool_calls: [], tool_results: [] },
          {
            role: "assistant",
            content: "I'll start...\n\nNow.",
            tool_calls: [
              { id: "", name: "bash", arguments: { command: "gt deacon heartbeat" } },
              { id: "", name: "read", arguments: { path: "x" } },
            ],
            tool_results: [
              { tool_call_id: "", tool_name: "bash", content: "✓ bash", is_error: false },
              { tool_call_id: "", tool_name: "read", content: "✓ read", is_error: true },
            ],
          },
        ],
        metadata: {
          cwd: "/home/ubuntu/gt/deacon",
          role: "deacon",
          rig: null,
          provider: "Alibaba",
          model: "qwen3-coder-plus",
          thinking_level: "off",
          timestamp: JSON.parse(header).timestamp,
          name: null,
          parent_session: null,
          usage: { input: 3341, output: 41, cache_read: 0, cache_write: 0, total: 3382 },
          cost: 0.75,
          turn_usage: [null, { input: 3341, output: 41, cache_read: 0, cache_write: 0, total: 3382, cost: 0.75 }],
          leaf_id: "b8117891",
          active: true,
          left_out: {},
        },
      },
    ]);
  });

  test("names a role by the seven patterns, then by the first message", async () => {
    for (const [cwd, said, role, rig] of [
      ["/home/ubuntu/gt/deacon", "", "deacon", null],
      ["/home/ubuntu/gt/deacon/dogs/boot", "", "boot", null],
      ["/home/ubuntu/gt/beads/witness", "", "witness", "beads"],
      ["/home/ubuntu/gt/beads/refinery/rig", "", "refinery", "beads"],
      ["/home/ubuntu/gt/beads/mayor/rig", "", "mayor", "beads"],
      ["/home/ubuntu/gt/beads/crew/max", "", "crew", "beads"],
      ["/home/ubuntu/gt/beads/crew/josé", "", "crew", "beads"],
      ["/home/ubuntu/gt/beads/crew/max/src", "", null, null],
      ["/home/ubuntu/gt/beads/polecats/nux", "", "polecat", "beads"],
      ["/home/ubuntu/gt/beads/polecats/nux/src", "", "polecat", "beads"],
      ["/home/ubuntu/gt/deacon/x", "", null, null],
      ["/home/me/app", "[GAS TOWN] deacon <- daemon", "deacon", null],
      ["/home/me/app", "Hello.\n[GAS TOWN] witness: look", "witness", null],
      ["/home/me/app", "[GAS TOWN] beads/polecats/nux <- witness", "polecat", "beads"],
      ["/home/me/app", "[GAS TOWN] beads/refinery", "refinery", null],
      ["/home/me/app", "[GAS TOWN]", null, null],
      ["/home/ubuntu/gt/deacon", "[GAS TOWN] witness", "deacon", null],
      ["", "nothing", null, null],
    ] as const) {
      const place = temporaryPlace();
      const server = open(place, sessionFile(place, [userText(id(0), null, said)], "r.jsonl", headerText({ cwd })));
      const [{ metadata }] = await records(server);
      expect([cwd, said, metadata.role, metadata.rig]).toEqual([cwd, said, role, rig]);
    }
  });

  test("takes other patterns and another marker, and refuses what could take for ever", async () => {
    const place = temporaryPlace();
    const server = open(
      place,
      sessionFile(place, [userText(id(0), null, "<<TEAM>> lead go")], "r.jsonl", headerText({ cwd: "/work/api" })),
    );
    const roleBy = async (params: object): Promise<string> => (await records(server, params))[0].metadata.role;
    expect(await roleBy({ rolePatterns: { "/api$": "backend", "/work/": "any" } })).toBe("backend");
    expect(await roleBy({ rolePatterns: { "/work/\\w+$": "any", "/api$": "backend" } })).toBe("any");
    expect(await roleBy({ rolePatterns: {}, roleMarker: "<<TEAM>>" })).toBe("lead");
    expect(await roleBy({ roleMarker: "" })).toBe(null);
    for (const pattern of ["(a+)+$", "(?:x)", "a*b*c*", "[", "\\"]) {
      const { code, data } = await server.failure("export_session", {
        format: "training",
        rolePatterns: { [pattern]: "x" },
      });
      expect([code, data.issues[0].path]).toEqual([-32602, `rolePatterns.${pattern}`]);
    }
  });

  test("results go to the calls they answer, others to a turn of their own, and what has no place is counted", async () => {
    const place = temporaryPlace();
    const result = (entryId: string, parentId: string, toolCallId: string): string =>
      entryText("message", entryId, parentId, {
        message: { role: "toolResult", toolCallId, toolName: "t", content: toolCallId },
      });
    const lines = [
      userText(id(0), null),
      result(id(1), id(0), "nobody asked"),
      entryText("message", id(2), id(1), {
        message: {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "hm" },
            { type: "toolCall", id: "one", name: "t", arguments: {} },
            { type: "toolCall", id: "two", name: "t" },
            { type: "image", data: "AAAA" },
          ],
        },
      }),
      result(id(3), id(2), "two"),
      entryText("custom_message", id(4), id(3), { customType: "x", content: "y" }),
      result(id(5), id(4), "one"),
      result(id(6), id(5), "three"),
      entryText("message", id(7), id(6), { message: null }),
      entryText("message", id(8), id(7), { message: { role: "bashExecution", command: "ls", output: "" } }),
      entryText("label", id(9), id(8), { targetId: id(0), label: "x" }),
    ];
    const server = open(place, sessionFile(place, lines));
    const [{ turns, metadata }] = await records(server);
    expect(turns.map(({ role, tool_results }: Json) => [role, tool_results.map((one: Json) => one.content)])).toEqual([
      ["user", []],
      ["tool", ["nobody asked"]],
      ["assistant", ["one", "two"]],
      ["tool", ["three"]],
    ]);
    expect(turns[2].tool_calls[1]).toEqual({ id: "two", name: "t", arguments: {} });
    expect(metadata.left_out).toEqual({
      "thinking block": 1,
      "image block": 1,
      custom_message: 1,
      message: 1,
      "bashExecution message": 1,
    });
    expect(metadata.turn_usage).toEqual([null, null, null, null]);
  });
});

describe("redact", () => {
  const KEY = `sk-ant-${"a1B2".repeat(8)}`;
  const PEM = `-----BEGIN RSA PRIVATE KEY-----\nMIIEow${"Ab1/".repeat(20)}\n-----END RSA PRIVATE KEY-----`;
  const SECRETS = [
    KEY,
    `ghp_${"x9".repeat(18)}`,
    "AKIAIOSFODNN7Q2MBLEK",
    "hunter22",
    "pa55word",
    PEM.split("\n")[1],
    "jdoe",
  ];
  const said =
    `Use ${SECRETS.slice(0, 3).join(", ")}. DB_PASSWORD="hunter22" and https://me:pa55word@host/x\n${PEM}\n` +
    "in /home/jdoe/app; const token = next(); the token is read, keys stay";

  test.each(["markdown", "html", "training"])("takes secrets out of %s, and leaves the rest", async (format) => {
    const place = temporaryPlace();
    const file = fileOf(place, fileText(headerText(), userText(id(0), null, said)));
    const server = open(place, file);
    await server.result("set_session_name", { name: `Rotate ${KEY}` });
    const { content, redactions } = await server.result("export_session", { format, redact: true });
    for (const secret of SECRETS) expect(content).not.toContain(secret);
    expect(content).toContain("const token = next(); the token is read, keys stay");
    const read = format === "markdown" ? lookAtDocument(content).text.replaceAll("\u200b", "") : content;
    expect(read).toMatch(/\[redacted:url_password:\d+\]@host\/x/);
    expect(redactions).toMatchObject({ anthropic_key: 2, github_token: 1, private_key: 1, url_password: 1 });
    if (format === "training") JSON.parse(content);
    expect((await server.result("export_session", { format })).content).toContain(KEY);
  });

  test("takes linear time on hostile text", SWEEP, async () => {
    const hostile = ["eyJ-", "-----BEGIN PRIVATE KEY-----", "token:", "sk-", "://a:", "Bearer ", "eyJaaaaaaaa."];
    const timeOf = (times: number): Promise<number> => {
      const place = temporaryPlace();
      const text = hostile.map((part) => part.repeat(times)).join(" ");
      const server = open(place, fileOf(place, fileText(headerText(), userText(id(0), null, text))));
      return processorTimeOf(() =>
        server.result("export_session", { format: "markdown", redact: true, allowUnjudged: true }),
      );
    };
    // Eight times as much takes eight times as long, and 64 times what takes the square of it; 22 is as far from both.
    expect(await timeOf(2000)).toBeGreaterThan((await timeOf(16_000)) / 22);
  });
});

test("redact finds secrets in html where colours and marks would split them", async () => {
  const place = temporaryPlace();
  const key = `sk-${"a1B2".repeat(6)}`;
  const said = `${key}\n**${key}**\n\n\`\`\`ts\nconst apiKey = "${key}";\n\`\`\`\n`;
  const result = {
    role: "toolResult",
    toolName: "x",
    content: [{ type: "text", text: `\u001b[31msk-\u001b[0m ${key}` }],
  };
  const call = {
    type: "toolCall",
    id: "c",
    name: "edit",
    arguments: { path: "/home/ann/x", oldText: key, newText: said },
  };
  const lines = [
    userText(id(0), null, said),
    entryText("message", id(1), id(0), { message: { role: "assistant", content: [call] } }),
    entryText("message", id(2), id(1), {
      message: { ...result, details: { diff: `+1 ${key}`, password: "hunter2hunter" } },
    }),
    entryText("custom", id(3), id(2), { customType: "x", data: { password: "hunter2hunter" } }),
  ];
  const server = open(place, sessionFile(place, lines, "s.jsonl", headerText({ cwd: "/home/ann/app" })));
  const { content, redactions } = await server.result("export_session", { format: "html", redact: true });
  lookAt(content);
  for (const secret of [key, "a1B2a1B2", "hunter2", "/home/ann"]) expect(content).not.toContain(secret);
  const counts: number[] = Object.values(redactions);
  expect(counts.reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(8);
});

test("a page or file whose size is known to be over that of a reply is refused before anything is read", async () => {
  const place = temporaryPlace();
  const compaction = { summary: "what was", firstKeptEntryId: id(2), tokensBefore: 1 };
  const file = sessionFile(place, [...chain(3), entryText("compaction", id(3), id(2), compaction)]);
  const server = open(place, file);
  await server.result("get_state");
  vi.spyOn(FileLog.prototype, "length").mockReturnValue(100 << 20);
  const reads = vi.spyOn(FileLog.prototype, "readMany");
  const read = vi.spyOn(FileLog.prototype, "read");
  for (const format of ["html", "jsonl"]) {
    const { message, data } = await server.failure("export_session", { format });
    expect([data.name, reads.mock.calls, read.mock.calls]).toEqual(["message_too_large", [], []]);
    expect(message.includes("recent")).toBe(format === "html");
  }
  const { content } = await server.result("export_session", { format: "html", branches: "recent" });
  expect(content).toContain("2 entries before these");
  const outputPath = join(place.cwd, "out.html");
  const { leftOut } = await server.result("export_session", { format: "html", outputPath });
  expect(leftOut).toEqual({ pictures: 0, bytes: 0, jsonl: true });
  expect((await server.failure("export_session", { format: "jsonl", branches: "recent" })).data.name).toBe(
    "invalid_params",
  );
});

test("a long export without a file lets other requests in between", async () => {
  const place = temporaryPlace();
  const lines = [1, 2, 3].map((n) => userText(id(n), n === 1 ? null : id(n - 1), "x".repeat(1 << 19)));
  const server = open(place, sessionFile(place, lines));
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
