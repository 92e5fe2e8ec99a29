/** export_session for Claude Code and Codex: what it returns, where the file belongs, and what is refused. */

import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, test } from "vitest";
import { contentText } from "../../src/core/format/message.ts";
import { sessionFile } from "../support/cases.ts";
import { requireSum } from "../support/foreign/checks.ts";
import { CODEX_SESSION, wholeCodexSession } from "../support/foreign/codex.ts";
import { put, read, serveLibrary } from "../support/lifecycle.ts";
import { assistantText, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { type Json, temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const AGENTS = ["claude", "codex"] as const;

const BRANCHED = [
  userText(id(0), null, "first question"),
  assistantText(id(1), id(0), "first answer"),
  userText(id(2), id(1), "another way"),
  userText(id(3), id(1), "this way"),
  assistantText(id(4), id(3), "last answer"),
];

test.each(AGENTS)("%s: where the file belongs, it is listed and opens; nothing is put there before", async (format) => {
  const place = temporaryPlace();
  const sessionPath = sessionFile(place, BRANCHED, "branched.jsonl");
  const server = serveLibrary(place);
  const asked = { sessionPath, format, outputPath: join(place.cwd, "out.jsonl") };
  const { path, resume, fidelity, sessionId } = await server.result("export_session", asked);
  requireSum(fidelity);
  expect([sessionId, fidelity.agent]).toEqual([JSON.parse(headerText()).id, format]);
  expect(fidelity.records).toBe(format === "claude" ? 5 : 4);
  expect([fidelity.warningCount, fidelity.warnings[0]?.record]).toEqual(format === "claude" ? [0, undefined] : [1, 0]);
  expect(existsSync(dirname(resume.path))).toBe(false);
  expect(resume.command).toContain(resume.sessionId);
  const { content } = await server.result("export_session", { sessionPath, format });
  expect(content).toBe(read(path));
  mkdirSync(dirname(resume.path), { recursive: true });
  copyFileSync(path, resume.path);
  const { sessions } = await server.result("list_sessions", { agents: [format] });
  expect(sessions.map((row: Json) => row.sessionPath)).toEqual([resume.path]);
  await server.result("switch_session", { sessionPath: resume.path });
  const { messages } = await server.result("get_context", { strict: true });
  const said = messages.map(({ content }: Json) => (typeof content === "string" ? content : content[0].text));
  expect(said).toEqual(["first question", "first answer", "this way", "last answer"]);
});

test("from another entry it is another session; entries and options that do not fit are refused", async () => {
  const place = temporaryPlace();
  const sessionPath = sessionFile(place, BRANCHED, "branched.jsonl");
  const server = serveLibrary(place);
  const ids = new Set<string>();
  for (const leafId of [undefined, id(2), id(1)])
    for (const format of AGENTS) {
      const { content, resume } = await server.result("export_session", { sessionPath, format, leafId });
      ids.add(resume.sessionId);
      if (format === "codex") expect(content.includes("another way")).toBe(leafId === id(2));
    }
  expect(ids.size).toBe(6);
  const { content } = await server.result("export_session", { sessionPath, format: "claude", branches: "path" });
  expect(content).not.toContain("another way");
  const nameOf = async (params: Json): Promise<string> =>
    (await server.failure("export_session", { sessionPath, ...params })).data.name;
  expect(await nameOf({ format: "codex", leafId: "nobody" })).toBe("entry_not_found");
  expect(await nameOf({ format: "codex", branches: "all" })).toBe("invalid_params");
  expect(await nameOf({ format: "html", leafId: id(1) })).toBe("invalid_params");
});

test("no id, time or directory leads anywhere else, and the command of a shell is one", SYSTEM, async () => {
  const place = temporaryPlace();
  const folder = { claude: join(place.home, ".claude/projects"), codex: join(place.home, ".codex/sessions") };
  const server = serveLibrary(place);
  const cwds = [
    '/tmp/it\'s "$(touch x)"; `y`',
    "/a/../../../etc",
    "~/x",
    "/x".repeat(300),
    "-n",
    "/\u2028/\ud800\u0000z",
  ];
  for (const cwd of cwds)
    for (const format of AGENTS) {
      const header = headerText({ id: "../../../../x", cwd, timestamp: "+012026-13-45T../../../x" });
      const sessionPath = put(join(place.cwd, "hostile.jsonl"), fileText(header, ...BRANCHED));
      const { resume } = await server.result("export_session", { sessionPath, format });
      expect(relative(folder[format], resume.path)).not.toMatch(/^\.\.|^\//);
      expect(resume.path.slice(folder[format].length)).not.toContain("..");
      expect(resume.sessionId).toMatch(/^[0-9a-f-]{36}$/);
      if (process.platform === "win32" || cwd.includes("\0")) continue;
      const told = `cd() { printf '%s|' "$@"; }; claude() { printf '%s|' "$@"; }; codex() { printf '%s|' "$@"; }; ${resume.command}`;
      const [went, ...words] = execFileSync("sh", ["-c", told], { encoding: "utf8" })
        .split("|")
        .filter((word) => word !== "--");
      expect(went).toBe(cwd);
      expect(words).toEqual([format === "claude" ? "--resume" : "resume", resume.sessionId, ""]);
    }
});

describe("messages that a compaction carries", () => {
  const call = { type: "toolCall", id: "call_1", name: "bash", arguments: { command: "ls" } };
  const tail = (kept: string): Json[] => [
    { role: "user", content: kept, timestamp: 1 },
    { ...JSON.parse(assistantText(id(1), id(0), "")).message, content: [call], stopReason: "toolUse" },
    {
      role: "toolResult",
      toolCallId: "call_1",
      toolName: "bash",
      content: [{ type: "text", text: "files" }],
      timestamp: 3,
    },
  ];
  const fatesOf = ({ kinds }: Json): number[] =>
    ["preserved", "derived", "dropped"].map((fate) => kinds.reduce((sum: number, kind: Json) => sum + kind[fate], 0));
  const messages = (all: readonly Json[]): string[] =>
    all.map((message, n) => entryText("message", id(n), n === 0 ? null : id(n - 1), { message }));
  const carrying = (n: number, retainedTail: unknown): string =>
    entryText("compaction", id(n), id(n - 1), { summary: "the summary", tokensBefore: 9, retainedTail });

  test.each(AGENTS)("%s: are in the context of the session that is resumed, and paid for once", async (format) => {
    const place = temporaryPlace();
    const old = [{ role: "user", content: "long ago", timestamp: 1 }, ...tail("kept")];
    const lines = [...messages(old), carrying(4, tail("kept")), userText(id(5), id(4), "what follows")];
    const sessionPath = sessionFile(place, lines, "carrying.jsonl");
    const server = serveLibrary(place);
    const { content, resume, fidelity } = await server.result("export_session", { sessionPath, format });
    expect([fatesOf(fidelity), fidelity.warnings]).toEqual([[6, 0, 0], []]);
    mkdirSync(dirname(resume.path), { recursive: true });
    writeFileSync(resume.path, content);
    const contextOf = async (path: string): Promise<unknown[]> => {
      await server.result("switch_session", { sessionPath: path });
      const { messages } = await server.result("get_context", { strict: true });
      return messages.map(({ role, content, summary }: Json) => [role, summary ?? contentText(content)]);
    };
    if (format === "claude") expect(await contextOf(resume.path)).toEqual(await contextOf(sessionPath));
    else {
      const compacted: Json = JSON.parse(content.split("\n").find((line: string) => line.includes('"compacted"')));
      const history = compacted.payload.replacement_history.map(({ type, call_id, content, output }: Json) => [
        type,
        call_id ?? content[0].text,
        output,
      ]);
      expect(history).toEqual([
        ["message", "the summary", undefined],
        ["message", "kept", undefined],
        ["function_call", "call_1", undefined],
        ["function_call_output", "call_1", "files"],
      ]);
    }
    await server.result("switch_session", { sessionPath: resume.path });
    const { tokens } = await server.result("get_session_stats");
    await server.result("switch_session", { sessionPath });
    expect((await server.result("get_session_stats")).tokens).toEqual(tokens);
  });

  test.each(AGENTS)("%s: are there where no entry has them, and calls without results get one", async (format) => {
    const place = temporaryPlace();
    const [user, asked, result] = tail("only here");
    const strange = { role: "hat", content: "x" };
    const carried = [user, asked, strange, asked, result, result];
    const lines = [
      ...messages([{ role: "user", content: "long ago" }]),
      carrying(1, carried),
      userText(id(2), id(1), "on"),
    ];
    const server = serveLibrary(place);
    const sessionPath = sessionFile(place, lines, "carrying.jsonl");
    const { content, fidelity } = await server.result("export_session", { sessionPath, format });
    expect(fatesOf(fidelity)).toEqual([2, 1, 0]);
    expect(fidelity.warnings.map(({ sentence }: Json) => sentence).join()).toMatch(/role hat.*It answers no call/);
    const records: Json[] = content
      .trimEnd()
      .split("\n")
      .map((line: string) => JSON.parse(line));
    const past = records.findIndex(({ subtype, type }) => subtype === "compact_boundary" || type === "compacted");
    const text = JSON.stringify(records.slice(past));
    for (const said of ["only here", "files", "is unknown"]) expect([said, text.split(said).length]).toEqual([said, 2]);
  });
});

test("branches behind calls without results share the results that are added", async () => {
  const place = temporaryPlace();
  const content = Array.from({ length: 30 }, (_, n) => ({
    type: "toolCall",
    id: `call_${n}`,
    name: "x",
    arguments: {},
  }));
  const lines = [entryText("message", id(0), null, { message: { role: "assistant", content } })];
  for (let n = 1; n <= 30; n++) lines.push(userText(id(n), id(0)));
  const sessionPath = sessionFile(place, lines, "open.jsonl");
  const { content: told, fidelity } = await serveLibrary(place).result("export_session", {
    sessionPath,
    format: "claude",
  });
  // The answer, a result for each call, the branches, and the leaf.
  expect(told.trim().split("\n")).toHaveLength(1 + 30 + 30 + 1);
  expect(fidelity.warningCount).toBe(30);
});

test("the verb says what became of it, where it belongs, and how it is resumed", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, BRANCHED, "branched.jsonl");
  const { status, stdout, stderr } = await runHere(place, [
    "export",
    file,
    "out.jsonl",
    "--format",
    "codex",
    "--at",
    id(2),
  ]);
  expect([status, stdout.trim().endsWith("out.jsonl")]).toEqual([0, true]);
  expect(stderr).toContain("3 entries: 3 preserved");
  expect(stderr).toMatch(/It belongs at \S+rollout-\S+\.jsonl/);
  expect(stderr).toMatch(/codex resume [0-9a-f-]{36}/);
});

test("changes of another agent's session say what it is and what to do, whether or not it is open", async () => {
  const place = temporaryPlace();
  const file = put(join(place.home, `.codex/sessions/rollout-${CODEX_SESSION}.jsonl`), wholeCodexSession().text);
  const before = read(file);
  const server = serveLibrary(place);
  const asked: [string, Json][] = [
    ["migrate_session", {}],
    ["migrate_session", { dryRun: true }],
    ["migrate_session", { to: "jsonl" }],
    ["rollback_migration", {}],
    ["migration_status", {}],
    ["delete_session", {}],
    ["archive_session", {}],
    ["relocate_session", { cwd: place.cwd }],
    ["create_checkpoint", {}],
    ["set_session_name", { name: "x" }],
  ];
  for (const [method, params] of asked) {
    const { message, data } = await server.failure(method, { sessionPath: file, ...params }).catch((error) => {
      throw new Error(`${method}: ${error}`);
    });
    if (data.name === "invalid_params") continue;
    expect([method, data.name, data.agent]).toEqual([method, "read_only", "codex"]);
    expect(message).toMatch(/Codex's own file.*import_session/);
  }
  expect(read(file)).toBe(before);
});
