/** export_session for Claude Code and Codex: its result, the place of the file, and the refusals. */

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, test } from "vitest";
import { getContentText } from "../../../src/core/format/message.ts";
import { nameOf } from "../../support/asking.ts";
import { sessionFile } from "../../support/cases.ts";
import { library, put, read } from "../../support/lifecycle.ts";
import { assistantText, entryText, fileText, headerText, id, userText } from "../../support/lines.ts";
import type { HereServer, Json, Place } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";
import { requireSum } from "./support/checks.ts";

const AGENTS = ["claude", "codex"] as const;

const BRANCHED = [
  userText(id(0), null, "first question"),
  assistantText(id(1), id(0), "first answer"),
  userText(id(2), id(1), "another way"),
  userText(id(3), id(1), "this way"),
  assistantText(id(4), id(3), "last answer"),
];

/** A server, and a session of these lines. */
function within(lines: readonly string[] = BRANCHED): { place: Place; server: HereServer; sessionPath: string } {
  const { place, server } = library(0);
  return { place, server, sessionPath: sessionFile(place, lines, "branched.jsonl") };
}

/** The roles and texts of the context of a session. */
async function contextOf(server: HereServer, sessionPath: string): Promise<[role: string, text: string][]> {
  await server.result("switch_session", { sessionPath });
  const { messages } = await server.result("get_context", { strict: true });
  return messages.map(({ role, content, summary }: Json) => [role, summary ?? getContentText(content)]);
}

test.each(AGENTS)("%s: where the file belongs, it is listed and opens; nothing is put there before", async (format) => {
  const { place, server, sessionPath } = within();
  const asked = { sessionPath, format, outputPath: join(place.cwd, "out.jsonl") };
  const { path, resume, fidelity, sessionId } = await server.result("export_session", asked);
  requireSum(fidelity);
  const isClaude = format === "claude";
  expect([sessionId, fidelity.agent]).toEqual([JSON.parse(headerText()).id, format]);
  expect([fidelity.records, fidelity.warningCount, fidelity.warnings[0]?.record]).toEqual(
    isClaude ? [5, 0, undefined] : [4, 1, 0],
  );
  expect([existsSync(dirname(resume.path)), resume.command]).toEqual([
    false,
    expect.stringContaining(resume.sessionId),
  ]);
  const { content } = await server.result("export_session", { sessionPath, format });
  expect(content).toBe(read(path));
  put(resume.path, content);
  const { sessions } = await server.result("list_sessions", { agents: [format] });
  expect(sessions.map((row: Json) => row.sessionPath)).toEqual([resume.path]);
  const said = (await contextOf(server, resume.path)).map(([, text]) => text);
  expect(said).toEqual(["first question", "first answer", "this way", "last answer"]);
});

test("from another entry it is another session; entries and options that do not fit are refused", async () => {
  const { server, sessionPath } = within();
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
  for (const [params, name] of [
    [{ format: "codex", leafId: "nobody" }, "entry_not_found"],
    [{ format: "codex", branches: "all" }, "invalid_params"],
    [{ format: "html", leafId: id(1) }, "invalid_params"],
  ] as const)
    expect(await nameOf(server, "export_session", { sessionPath, ...params })).toBe(name);
});

test("no id, time or directory leads anywhere else, and the command of a shell is one", SYSTEM, async () => {
  const { place, server } = within();
  const folder = { claude: join(place.home, ".claude/projects"), codex: join(place.home, ".codex/sessions") };
  const odd = [
    '/tmp/it\'s "$(touch x)"; `y`',
    "/a/../../../etc",
    "~/x",
    "/x".repeat(300),
    "-n",
    "/\u2028/\ud800\u0000z",
  ];
  for (const cwd of odd)
    for (const format of AGENTS) {
      const header = headerText({ id: "../../../../x", cwd, timestamp: "+012026-13-45T../../../x" });
      const sessionPath = put(join(place.cwd, "hostile.jsonl"), fileText(header, ...BRANCHED));
      const { resume } = await server.result("export_session", { sessionPath, format });
      expect(relative(folder[format], resume.path)).not.toMatch(/^\.\.|^\//);
      expect(resume.path.slice(folder[format].length)).not.toContain("..");
      expect(resume.sessionId).toMatch(/^[0-9a-f-]{36}$/);
      if (process.platform === "win32" || cwd.includes("\0")) continue;
      const functions = ["cd", "claude", "codex"].map((name) => `${name}() { printf '%s|' "$@"; }`);
      const printed = execFileSync("sh", ["-c", [...functions, resume.command].join("; ")], { encoding: "utf8" });
      const words = printed.split("|").filter((word) => word !== "--");
      expect(words).toEqual([cwd, format === "claude" ? "--resume" : "resume", resume.sessionId, ""]);
    }
});

describe("messages that a compaction carries", () => {
  const call = { type: "toolCall", id: "call_1", name: "bash", arguments: { command: "ls" } };
  const files = [{ type: "text", text: "files" }];
  const tail = (kept: string): Json[] => [
    { role: "user", content: kept, timestamp: 1 },
    { ...JSON.parse(assistantText(id(1), id(0), "")).message, content: [call], stopReason: "toolUse" },
    { role: "toolResult", toolCallId: "call_1", toolName: "bash", content: files, timestamp: 3 },
  ];
  const fatesOf = ({ kinds }: Json): number[] =>
    ["preserved", "derived", "dropped"].map((part) => kinds.reduce((sum: number, kind: Json) => sum + kind[part], 0));
  /** A session of these messages, and a compaction with others and what follows. */
  const carrying = (all: readonly Json[], retainedTail: unknown): string[] => {
    const lines = all.map((message, n) => entryText("message", id(n), n === 0 ? null : id(n - 1), { message }));
    const n = lines.length;
    const compaction = { summary: "the summary", tokensBefore: 9, retainedTail };
    return [
      ...lines,
      entryText("compaction", id(n), id(n - 1), compaction),
      userText(id(n + 1), id(n), "what follows"),
    ];
  };

  test.each(AGENTS)("%s: are in the context of the session that is resumed, and paid for once", async (format) => {
    const old = [{ role: "user", content: "long ago", timestamp: 1 }, ...tail("kept")];
    const { server, sessionPath } = within(carrying(old, tail("kept")));
    const { content, resume, fidelity } = await server.result("export_session", { sessionPath, format });
    expect([fatesOf(fidelity), fidelity.warnings]).toEqual([[6, 0, 0], []]);
    put(resume.path, content);
    if (format === "claude") expect(await contextOf(server, resume.path)).toEqual(await contextOf(server, sessionPath));
    else {
      const compacted = content.split("\n").find((line: string) => line.includes('"compacted"'));
      const history = JSON.parse(compacted).payload.replacement_history;
      const short = history.map(({ type, call_id, content, output }: Json) =>
        [type, call_id ?? content[0].text, output].join(" "),
      );
      expect(short).toEqual([
        "message the summary ",
        "message kept ",
        "function_call call_1 ",
        "function_call_output call_1 files",
      ]);
    }
    await server.result("switch_session", { sessionPath: resume.path });
    const { tokens } = await server.result("get_session_stats");
    await server.result("switch_session", { sessionPath });
    expect((await server.result("get_session_stats")).tokens).toEqual(tokens);
  });

  test.each(AGENTS)("%s: are there where no entry has them, and calls without results get one", async (format) => {
    const [user, asked, result] = tail("only here");
    const carried = [user, asked, { role: "hat", content: "x" }, asked, result, result];
    const { server, sessionPath } = within(carrying([{ role: "user", content: "long ago" }], carried));
    const { content, fidelity } = await server.result("export_session", { sessionPath, format });
    expect(fatesOf(fidelity)).toEqual([2, 1, 0]);
    expect(fidelity.warnings.map(({ sentence }: Json) => sentence).join()).toMatch(/role hat.*It answers no call/);
    const lines: string[] = content.trimEnd().split("\n");
    const past = lines.findIndex((line) => /"subtype":"compact_boundary"|"type":"compacted"/.test(line));
    const text = JSON.stringify(lines.slice(past).map((line) => JSON.parse(line)));
    for (const said of ["only here", "files", "is unknown"]) expect([said, text.split(said).length]).toEqual([said, 2]);
  });
});

test("the verb says what became of it, where it belongs, and how it is resumed", async () => {
  const { place, sessionPath } = within();
  const words = ["export", sessionPath, "out.jsonl", "--format", "codex", "--at", id(2)];
  const { status, stdout, stderr } = await runHere(place, words);
  expect([status, stdout.trim().endsWith("out.jsonl")]).toEqual([0, true]);
  for (const said of [/3 entries: 3 preserved/, /It belongs at \S+rollout-\S+\.jsonl/, /codex resume [0-9a-f-]{36}/])
    expect(stderr).toMatch(said);
});
