/** The library as Pi's users call it: its answers, its writes and their times, and the files it leaves alone. */

import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type {
  AssistantMessage,
  FileEntry,
  SessionEntry,
  SessionTreeNode,
  ToolResultMessage,
  UserMessage,
} from "../src/index.ts";
import * as library from "../src/index.ts";
import { realDisk } from "../src/storage/fs/disk.ts";
import { locateLock } from "../src/storage/locks/lock-paths.ts";
import { isLock, makeLocks } from "../src/storage/locks/locks.ts";
import { chain, entryText, fileText, headerText, id, SESSION, TIME, userText } from "./support/lines.ts";
import { type Place, serveHere, temporaryFolder } from "./support/server.ts";
import { SWEEP } from "./support/tiers.ts";

const { CURRENT_SESSION_VERSION, SessionManager, buildContextEntries, buildSessionContext } = library;
const { findMostRecentSession, getDefaultSessionDir, getLatestCompactionEntry, loadEntriesFromFile } = library;
const { migrateSessionEntries, parseSessionEntries, sessionEntryToContextMessages } = library;
type SessionManager = library.SessionManager;

const CWD = "/home/me/project";
const NOW = Date.parse("2026-02-03T10:00:00.000Z");

let home: string;
/** The folder of a test's sessions. */
let folder: string;
let state: string;

beforeEach(() => {
  home = temporaryFolder();
  folder = join(home, "sessions");
  state = join(home, "state");
  vi.stubEnv("HOME", home);
  vi.stubEnv("PI_SESSION_SERVER_STATE_DIR", state);
  for (const name of ["PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "PI_SESSIONS_DIR"])
    vi.stubEnv(name, undefined);
  vi.useFakeTimers({ now: NOW, toFake: ["Date", "setTimeout", "clearTimeout"] });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
});

const user = (text: string): UserMessage => ({ role: "user", content: text, timestamp: 1 });

const COSTS = { input: 0.5, output: 0.25, cacheRead: 0, cacheWrite: 0, total: 0.75 };
const USAGE = { input: 1, output: 2, cacheRead: 0, cacheWrite: 0, totalTokens: 3, cost: COSTS };

const assistant = (text: string): AssistantMessage => ({
  ...{ role: "assistant", content: [{ type: "text", text }], usage: USAGE, stopReason: "stop", timestamp: 2 },
  ...{ api: "messages", provider: "anthropic", model: "sonnet" },
});

const toolResult = (text: string): ToolResultMessage => ({
  ...{ role: "toolResult", toolCallId: "call", toolName: "bash", content: [{ type: "text", text }] },
  ...{ isError: false, timestamp: 3 },
});

const created = (): SessionManager => SessionManager.create(CWD, folder);

/** A manager with the conversation one, two, three; their ids. */
function talked(manager = created()): { manager: SessionManager; one: string; two: string; three: string } {
  const one = manager.appendMessage(user("one"));
  const two = manager.appendMessage(assistant("two"));
  const three = manager.appendMessage(user("three"));
  return { manager, one, two, three };
}

const file = (manager: SessionManager): string => manager.getSessionFile() as string;
const textIn = (path: string): string => readFileSync(path, "utf8");
/** The lines of a file, as values. */
const linesOf = (path: string): FileEntry[] => parseSessionEntries(textIn(path));

function write(text: string, name = "session.jsonl"): string {
  const path = join(folder, name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(path, text);
  return path;
}

/** The texts of the messages at the leaf. */
function texts(manager: SessionManager): unknown[] {
  return manager.buildSessionContext().messages.map(({ role, ...message }) => {
    const { content } = message as { content?: unknown };
    return Array.isArray(content) ? content.map((block) => block.text).join("") : (content ?? role);
  });
}

/** An entry of version 1. */
const said = (text: string) =>
  JSON.stringify({ type: "message", timestamp: TIME, message: { role: "user", content: text } });

const WRITTEN = "2026-02-03T10:00:00.000Z";
const idsOf = (entries: readonly FileEntry[]) => entries.map((entry) => entry.id);
const named = (name: string) => expect.objectContaining({ name });

describe("creation", () => {
  test("create names the session and its file, and makes the folder; what is made is private", () => {
    const manager = created();
    const sessionId = manager.getSessionId();
    expect(sessionId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(file(manager)).toBe(join(folder, `2026-02-03T10-00-00-000Z_${sessionId}.jsonl`));
    expect(readdirSync(folder)).toEqual([]);
    const header = { type: "session", version: CURRENT_SESSION_VERSION, id: sessionId, timestamp: WRITTEN, cwd: CWD };
    expect(manager.getHeader()).toEqual(header);
    expect([manager.getCwd(), manager.getSessionDir(), manager.isPersisted()]).toEqual([CWD, folder, true]);
    expect([manager.getLeafId(), manager.getEntries(), manager.getTree()]).toEqual([null, [], []]);
    expect([manager.getLeafEntry(), manager.getSessionName()]).toEqual([undefined, undefined]);
    talked(manager);
    expect([file(manager), folder].map((path) => statSync(path).mode & 0o777)).toEqual([0o600, 0o700]);
  });

  test("without a folder it is that of the working directory, as Pi has it", () => {
    const manager = SessionManager.create("/home/me/a:b");
    expect(manager.getSessionDir()).toBe(join(home, ".pi/agent/sessions/--home-me-a-b--"));
    expect([manager.usesDefaultSessionDir(), created().usesDefaultSessionDir()]).toEqual([true, false]);
    vi.stubEnv("PI_CODING_AGENT_DIR", join(home, "agent"));
    expect(SessionManager.create("/x").getSessionDir()).toBe(join(home, "agent/sessions/--x--"));
    expect(getDefaultSessionDir("/y", join(home, "other"))).toBe(join(home, "other/sessions/--y--"));
    expect(existsSync(join(home, "other/sessions/--y--"))).toBe(true);
  });

  test("an id and a parent may be given; a file of the same name is not touched", () => {
    const manager = SessionManager.create(CWD, folder, { id: "my.session-1", parentSession: "/a.jsonl" });
    expect(manager.getHeader()).toMatchObject({ id: "my.session-1", parentSession: "/a.jsonl" });
    for (const id of ["-bad", ""])
      expect(() => SessionManager.create(CWD, folder, { id })).toThrow(named("invalid_id"));
    const twice = talked(SessionManager.create(CWD, folder, { id: "twice" })).manager;
    const before = textIn(file(twice));
    expect(() => SessionManager.create(CWD, folder, { id: "twice" })).toThrow(named("already_exists"));
    expect(textIn(file(twice))).toBe(before);
  });

  test("what is no conversation waits for the first message of the user or the assistant", () => {
    for (const first of [user("hello"), assistant("hello")]) {
      const manager = created();
      for (const append of [
        () => manager.appendModelChange("p", "m"),
        () => manager.appendThinkingLevelChange("high"),
        () => manager.appendSessionInfo("name"),
        () => manager.appendCustomMessageEntry("x", "text", true),
        () => manager.appendMessage({ role: "system", content: "be kind", timestamp: 1 }),
        () => manager.appendMessage(toolResult("done")),
        () => manager.branchWithSummary(null, "before"),
        () => manager.appendLabelChange(manager.appendCustomEntry("x"), "here"),
      ])
        expect([append(), existsSync(file(manager))]).toEqual([manager.getLeafId(), false]);
      const waiting = manager.getEntries();
      manager.appendMessage(first);
      expect(linesOf(file(manager))).toEqual([manager.getHeader(), ...waiting, manager.getLeafEntry()]);
    }
  });

  test("in memory nothing is written, and a session may begin with entries", () => {
    const { manager, one } = talked(SessionManager.inMemory(CWD, { id: "mine" }));
    expect([manager.isPersisted(), manager.getSessionFile(), manager.getSessionDir()]).toEqual([false, undefined, ""]);
    expect([manager.getSessionId(), texts(manager)]).toEqual(["mine", ["one", "two", "three"]]);
    expect([manager.createBranchedSession(one), texts(manager)]).toEqual([undefined, ["one"]]);
    expect([manager.newSession(), manager.getEntries(), readdirSync(home)]).toEqual([undefined, [], []]);
    const source = talked().manager;
    const [header, ...more] = linesOf(file(source));
    const copy = SessionManager.inMemory(CWD, {}, [header, ...more]);
    expect([copy.getHeader(), copy.getEntries(), copy.getLeafId()]).toEqual([header, more, source.getLeafId()]);
    copy.appendMessage(user("four"));
    expect(texts(copy)).toEqual(["one", "two", "three", "four"]);
    const bare = SessionManager.inMemory(CWD, { id: "mine" }, more);
    expect([bare.getSessionId(), texts(bare)]).toEqual(["mine", ["one", "two", "three"]]);
    const old = parseSessionEntries(fileText(headerText({ version: 1 }), said("a"), said("b")));
    expect([texts(SessionManager.inMemory(CWD, {}, old)), old[0]]).toMatchObject([["a", "b"], { version: 1 }]);
  });

  test("newSession goes on in another file of the folder", () => {
    const { manager } = talked();
    const before = file(manager);
    const next = manager.newSession({ parentSession: before }) as string;
    expect([next === file(manager), next === before, existsSync(next)]).toEqual([true, false, false]);
    expect([manager.getEntries(), manager.getLeafId()]).toEqual([[], null]);
    manager.appendMessage(user("again"));
    expect(linesOf(next)[0]).toMatchObject({ parentSession: before, cwd: CWD });
    expect(SessionManager.open(before).getEntries()).toHaveLength(3);
  });
});

describe("opening", () => {
  test("gives back what was written, with the working directory and the folder that are given", () => {
    const { manager, one } = talked();
    manager.appendLabelChange(one, "start");
    manager.appendSessionInfo("A name");
    const getState = (of: SessionManager) => [of.getHeader(), of.getEntries(), of.getTree(), of.getLeafId()];
    for (const path of [file(manager), `~/sessions/${basename(file(manager))}`, `file://${file(manager)}`]) {
      const again = SessionManager.open(path);
      expect(getState(again)).toEqual(getState(manager));
      expect([again.getSessionName(), again.getCwd(), again.getSessionDir()]).toEqual(["A name", CWD, folder]);
    }
    const other = SessionManager.open(file(manager), join(home, "elsewhere"), "/other");
    expect([other.getCwd(), other.getSessionDir()]).toEqual(["/other", join(home, "elsewhere")]);
    expect(dirname(other.newSession() as string)).toBe(join(home, "elsewhere"));
  });

  test("a path without a file becomes a session there", () => {
    const path = join(folder, "deep", "my session.jsonl");
    const manager = SessionManager.open(path, undefined, CWD);
    expect([file(manager), manager.getEntries(), existsSync(dirname(path))]).toEqual([path, [], true]);
    manager.appendMessage(user("hello"));
    expect(linesOf(path)).toHaveLength(2);
  });

  test.each([
    ["version 1", fileText(headerText({ version: undefined }), said("one"), said("two"))],
    ["version 2", fileText(headerText({ version: 2 }), ...chain(2))],
    ["no line feed at the end", fileText(headerText(), ...chain(2)).slice(0, -1)],
    ["a torn line at the end", `${fileText(headerText(), ...chain(2))}{"type":"mess`],
    ["a leaf in the header", fileText(headerText({ leafId: id(0) }), ...chain(2))],
  ])("writes nothing: %s", (_what, text) => {
    const manager = SessionManager.open(write(text));
    expect(manager.getEntries()).toHaveLength(2);
    manager.buildSessionContext();
    manager.branch(manager.getEntries()[0].id);
    expect([textIn(file(manager)), readdirSync(folder)]).toEqual([text, ["session.jsonl"]]);
  });

  test("an old version is raised by the first append, and kept beside", () => {
    const text = fileText(headerText({ version: undefined }), said("one"), said("two"));
    const path = write(text);
    const manager = SessionManager.open(path);
    expect(manager.getHeader()).toMatchObject({ version: 3, id: SESSION });
    const [one, two] = manager.getEntries();
    expect([one.parentId, two.parentId]).toEqual([null, one.id]);
    const three = manager.appendCustomEntry("x");
    expect(linesOf(path)).toEqual([manager.getHeader(), one, two, manager.getEntry(three)]);
    expect(textIn(`${path}.v1.bak`)).toBe(text);
  });

  test.each([
    ["an empty file", ""],
    ["a text", "not a session\n"],
    ["JSON of something else", '{"type":"package"}\n'],
  ])("%s is refused and left as it is", (_what, text) => {
    const path = write(text);
    const { manager } = talked(SessionManager.inMemory());
    for (const open of [SessionManager.open, (path: string) => manager.setSessionFile(path)])
      expect(() => open(path)).toThrow(named("not_a_session"));
    expect(texts(manager)).toEqual(["one", "two", "three"]);
    expect([textIn(path), readdirSync(folder)]).toEqual([text, ["session.jsonl"]]);
  });

  test("setSessionFile goes on with another session; in memory it reads the file and leaves it alone", () => {
    const text = fileText(headerText(), ...chain(2));
    const path = write(text);
    const { manager } = talked();
    manager.setSessionFile(path);
    expect([manager.getSessionId(), manager.getLeafId()]).toEqual([SESSION, id(1)]);
    manager.setSessionFile(join(folder, "new.jsonl"));
    expect([file(manager), manager.getEntries()]).toEqual([join(folder, "new.jsonl"), []]);
    const copy = SessionManager.inMemory();
    copy.setSessionFile(path);
    copy.appendMessage(user("more"));
    expect([file(copy), copy.getSessionId(), copy.getEntryCount(), textIn(path)]).toEqual([path, SESSION, 3, text]);
  });

  test("continueRecent takes the working directory's session that was changed last", () => {
    const sessions = ["/a/b", "/a/b", "/a-b"].map((cwd) => talked(SessionManager.create(cwd)).manager);
    const folders = sessions.map((manager) => manager.getSessionDir());
    expect(new Set(folders).size).toBe(1);
    for (const [n, manager] of sessions.entries()) {
      // When something was said counts for lists alone.
      manager.appendMessage({ ...user("later"), timestamp: NOW - n });
      utimesSync(file(manager), NOW / 1000 + n, NOW / 1000 + n);
    }
    expect(SessionManager.continueRecent("/a/b").getSessionId()).toBe(sessions[1].getSessionId());
    expect(SessionManager.continueRecent("/a-b").getSessionId()).toBe(sessions[2].getSessionId());
    expect(SessionManager.continueRecent("/a/c").getEntries()).toEqual([]);
    expect(findMostRecentSession(folders[0])).toBe(file(sessions[2]));
    expect(findMostRecentSession(folders[0], "/a/b")).toBe(file(sessions[1]));
    expect(findMostRecentSession(join(home, "nowhere"))).toBeNull();
  });

  test.each([
    ["is long", fileText(headerText({ parentSession: `/${"p".repeat(9000)}` }), ...chain(1))],
    ["comes after blank lines", `${"\n".repeat(5000)}${fileText(headerText(), ...chain(1))}`],
  ])("continueRecent finds a header that %s", (_how, text) => {
    const path = write(text, `2026-01-24T16-22-26-831Z_${SESSION}.jsonl`);
    expect(findMostRecentSession(folder, CWD)).toBe(path);
    expect(findMostRecentSession(folder, "/home/me/other")).toBeNull();
  });
});

describe("appending", () => {
  const X = { type: "custom", customType: "x" };
  const ABOUT = { type: "usage", kind: "cache_warm", provider: "p", model: "m", usage: USAGE, note: "why" };
  const CONTENT = [{ type: "text" as const, text: "t" }];
  const TEXT = { type: "custom_message", customType: "x", content: CONTENT, display: false, details: { d: 1 } };
  const KEPT = { firstKeptEntryId: expect.any(String), fromHook: true };
  const SUM = { type: "compaction", summary: "sum", tokensBefore: 12, details: { files: [] }, usage: USAGE, ...KEPT };
  const TARGET = { targetId: expect.any(String) };
  const edit = (content: unknown) => ({ type: "context_edit", ...TARGET, replacement: { content } });

  test.each<[string, (manager: SessionManager, ids: Record<"one" | "two" | "three", string>) => unknown, object]>([
    ["a message", (m) => m.appendMessage(user("hi")), { type: "message", message: user("hi") }],
    ["a level", (m) => m.appendThinkingLevelChange("high"), { type: "thinking_level_change", thinkingLevel: "high" }],
    ["a model", (m) => m.appendModelChange("p", "m"), { type: "model_change", provider: "p", modelId: "m" }],
    ["usage", (m) => m.appendUsage("cache_warm", "p", "m", USAGE, "why").id, ABOUT],
    ["state of an extension", (m) => m.appendCustomEntry("x", { a: [1] }), { ...X, data: { a: [1] } }],
    ["state without data", (m) => m.appendCustomEntry("x"), X],
    ["state that JSON leaves out", (m) => m.appendCustomEntry("x", () => {}), X],
    ["bytes as JSON has them", (m) => m.appendCustomEntry("x", new Uint8Array([7])), { ...X, data: { 0: 7 } }],
    ["a name", (m) => m.appendSessionInfo("  my\n name "), { type: "session_info", name: "my  name" }],
    ["a message of an extension", (m) => m.appendCustomMessageEntry("x", CONTENT, false, { d: 1 }), TEXT],
    ["a label", (m, { one }) => m.appendLabelChange(one, "start"), { type: "label", ...TARGET, label: "start" }],
    ["a compaction", (m, { three }) => m.appendCompaction("sum", three, 12, { files: [] }, true, USAGE), SUM],
    ["an edit of a question", (m, { one }) => m.appendContextEdit(one, { content: "other" }), edit("other")],
    ["an edit of an answer", (m, { two }) => m.appendContextEdit(two, { content: "t" }), edit(CONTENT)],
  ])("%s", (_what, append, expected) => {
    const { manager, one, two, three } = talked();
    expect(append(manager, { one, two, three })).toBe(manager.getLeafId());
    const entry = manager.getLeafEntry();
    const base = { id: expect.stringMatching(/^[0-9a-f]{8}$/), timestamp: WRITTEN, parentId: three };
    expect(entry).toEqual({ ...base, ...expected });
    expect(linesOf(file(manager)).at(-1)).toEqual(entry);
    expect(SessionManager.open(file(manager)).getLeafEntry()).toEqual(entry);
  });

  test("the line has the usual order, members that are undefined left out, and is the caller's message no more", () => {
    const { manager, three } = talked();
    const entryId = manager.appendCompaction("sum", null, 5);
    expect(textIn(file(manager)).trim().split("\n").at(-1)).toBe(
      `{"type":"compaction","id":"${entryId}","parentId":"${three}","timestamp":"${WRITTEN}","summary":"sum",` +
        `"firstKeptEntryId":"${entryId}","tokensBefore":5}`,
    );
    const message = user("before");
    const said = manager.appendMessage(message);
    message.content = "after";
    expect(manager.getEntry(said)).toHaveProperty("message.content", "before");
  });

  test("what cannot be written changes nothing", () => {
    const { manager, one, two, three } = talked();
    const level = manager.appendThinkingLevelChange("low");
    const before = [manager.getEntries(), textIn(file(manager))];
    const cycle: Record<string, unknown> = {};
    cycle.self = cycle;
    const refused: [error: unknown, act: () => unknown][] = [
      [TypeError, () => manager.appendCustomEntry("x", cycle)],
      [named("invalid_entry"), () => manager.appendMessage(null as never)],
      ["Entry nobody not found", () => manager.appendLabelChange("nobody", "x")],
      [named("entry_not_found"), () => manager.branchWithSummary("nobody", "x")],
      [named("invalid_boundary"), () => manager.appendCompaction("s", "nobody", 1)],
      [named("entry_not_found"), () => manager.appendContextEdit("nobody", null)],
      [named("invalid_entry"), () => manager.appendContextEdit(level, null)],
      [named("invalid_entry"), () => manager.appendContextEdit(one, { content: 5 } as never)],
      [named("invalid_entry"), () => manager.appendContextEdit(one, undefined as never)],
      ["Entry nobody not found", () => manager.branch("nobody")],
      ["Entry nobody not found", () => manager.createBranchedSession("nobody")],
    ];
    for (const [error, act] of refused) expect(act).toThrow(error as never);
    expect([manager.getEntries(), textIn(file(manager))]).toEqual(before);
    manager.branch(one);
    expect(() => manager.appendCompaction("s", three, 1)).toThrow(named("invalid_boundary"));
    expect(() => manager.appendContextEdit(two, null)).toThrow(named("invalid_entry"));
  });

  test("a compaction keeps a call with its result", () => {
    const { manager, three } = talked();
    const content: AssistantMessage["content"] = [{ type: "toolCall", id: "call", name: "bash", arguments: {} }];
    manager.appendMessage({ ...assistant(""), content });
    const result = manager.appendMessage(toolResult("done"));
    expect(() => manager.appendCompaction("s", result, 1)).toThrow(named("invalid_boundary"));
    manager.appendCompaction("s", three, 1);
    expect(texts(manager)).toEqual(["compactionSummary", "three", "", "done"]);
  });
});

describe("other writers", () => {
  /** Locks of another process, as far as the system can tell. */
  const others = () => makeLocks({ disk: realDisk, stateFolder: state, client: "another program", now: () => TIME });
  const keyOf = (path: string) => realDisk.info(path);
  const placeOf = (path: string) => locateLock(realDisk, path, keyOf(path).inode);

  test("of another process keep us from writing", () => {
    const path = write(fileText(headerText(), ...chain(2)));
    const lock = others().acquire(keyOf(path), placeOf(path));
    const manager = SessionManager.open(path);
    expect(() => manager.appendMessage(user("mine"))).toThrow(named("session_locked"));
    expect(manager.getLeafId()).toBe(id(1));
    if (isLock(lock)) lock.release();
    expect(() => manager.appendMessage(user("mine"))).not.toThrow();
    expect(isLock(others().acquire(keyOf(path), placeOf(path)))).toBe(false);
  });

  test("may write when nothing was appended for a second, and at once after close", () => {
    const { manager } = talked();
    const holder = () => others().holder(keyOf(file(manager)), placeOf(file(manager)))?.pid;
    expect(holder()).toBe(process.pid);
    vi.advanceTimersByTime(900);
    manager.appendMessage(user("four"));
    vi.advanceTimersByTime(900);
    expect(holder()).toBe(process.pid);
    vi.advanceTimersByTime(100);
    expect(holder()).toBe(undefined);
    manager.appendMessage(user("five"));
    expect(holder()).toBe(process.pid);
    manager.close();
    expect(holder()).toBe(undefined);
    expect(() => manager.appendMessage(user("six"))).toThrow(named("storage_failed"));
  });

  test("of this process write to the same file", () => {
    const { manager, three } = talked();
    const second = SessionManager.open(file(manager));
    const mine = manager.appendMessage(user("mine"));
    const other = second.appendMessage(user("other"));
    expect(second.getEntry(other)?.parentId).toBe(three);
    expect(second.getEntry(mine)).toEqual(manager.getEntry(mine));
    vi.advanceTimersByTime(1);
    const next = manager.appendMessage(user("next"));
    expect([manager.getEntry(next)?.parentId, manager.getEntryCount()]).toEqual([mine, 6]);
    manager.close();
    expect(() => second.appendMessage(user("last"))).not.toThrow();
    expect(isLock(others().acquire(keyOf(file(second))))).toBe(false);
  });

  test("are taken in before an append, and the leaf stays", () => {
    const path = write(fileText(headerText(), ...chain(2)));
    const manager = SessionManager.open(path);
    appendFileSync(path, `${userText(id(2), id(1))}\n`);
    const mine = manager.appendMessage(user("mine"));
    expect(idsOf(manager.getEntries())).toEqual([id(0), id(1), id(2), mine]);
    expect([manager.getEntry(mine)?.parentId, linesOf(path).length]).toEqual([id(1), 5]);
  });
});

describe("navigation", () => {
  test("branch moves the leaf and writes nothing", () => {
    const { manager, one, two, three } = talked();
    const text = textIn(file(manager));
    manager.branch(one);
    expect([manager.getLeafId(), texts(manager), textIn(file(manager))]).toEqual([one, ["one"], text]);
    expect(existsSync(join(state, "leaves"))).toBe(false);
    expect(SessionManager.open(file(manager)).getLeafId()).toBe(three);
    const other = manager.appendMessage(user("other"));
    expect([idsOf(manager.getBranch()), idsOf(manager.getChildren(one))]).toEqual([
      [one, other],
      [two, other],
    ]);
  });

  test("resetLeaf begins another root", () => {
    const { manager, one } = talked();
    manager.resetLeaf();
    expect([manager.getLeafId(), manager.getLeafEntry()]).toEqual([null, undefined]);
    expect([manager.getBranch(), texts(manager)]).toEqual([[], []]);
    const other = manager.appendMessage(user("other"));
    expect(manager.getEntry(other)?.parentId).toBeNull();
    expect(manager.getTree().map(({ entry }) => entry.id)).toEqual([one, other]);
  });

  test("branchWithSummary tells of the leaf that was left", () => {
    const { manager, one, three } = talked();
    const id = manager.branchWithSummary(one, "tried this", { files: [] }, false, USAGE);
    const summary = { fromId: three, summary: "tried this" };
    const more = { details: { files: [] }, usage: USAGE, fromHook: false };
    const entry = { type: "branch_summary", id, parentId: one, timestamp: WRITTEN, ...summary, ...more };
    expect(manager.getLeafEntry()).toEqual(entry);
    const { messages } = manager.buildSessionContext();
    expect(messages.at(-1)).toEqual({ role: "branchSummary", ...summary, timestamp: NOW });
    manager.resetLeaf();
    expect(manager.getEntry(manager.branchWithSummary(null, "all"))).toMatchObject({ parentId: null, fromId: "root" });
  });

  test("labels are set, changed and cleared", () => {
    const { manager, one, two } = talked();
    manager.appendLabelChange(one, "first");
    vi.advanceTimersByTime(1000);
    manager.appendLabelChange(one, "renamed");
    const cleared = manager.appendLabelChange(two, "gone");
    manager.appendLabelChange(two, undefined);
    manager.appendLabelChange(cleared, "");
    const labels = [one, two, "nobody"].map((id) => manager.getLabel(id));
    expect(labels).toEqual(["renamed", undefined, undefined]);
    expect(manager.getTree()[0]).toMatchObject({ label: "renamed", labelTimestamp: "2026-02-03T10:00:01.000Z" });
    expect(manager.getLeafEntry()).toMatchObject({ type: "label", targetId: cleared, label: "" });
    expect(manager.getEntries().at(-2)).not.toHaveProperty("label");
  });

  test("the tree has children by time, and entries without their parent as roots", () => {
    const late = userText(id(5), id(0)).replace(TIME, "2026-01-25T00:00:00.000Z");
    const lines = [userText(id(0), null), late, userText(id(6), id(0)), userText(id(7), "nowhere0")];
    const manager = SessionManager.open(write(fileText(headerText(), ...lines)));
    const shape = (nodes: SessionTreeNode[]): unknown =>
      Object.fromEntries(nodes.map(({ entry, children }) => [entry.id, shape(children)]));
    expect(JSON.stringify(shape(manager.getTree()))).toBe(`{"${id(0)}":{"${id(6)}":{},"${id(5)}":{}},"${id(7)}":{}}`);
    expect(manager.getTree()[0].entry).toBe(manager.getEntry(id(0)));
    expect(idsOf(manager.getChildren(id(0)))).toEqual([id(5), id(6)]);
    expect(idsOf(manager.getChildren(null))).toEqual([id(0)]);
  });

  test("13,000 children and as deep a chain are no trouble", SWEEP, () => {
    // The stack holds 11,400 calls of the smallest function.
    const wide = SessionManager.inMemory(CWD);
    const root = wide.appendMessage(user("root"));
    const deep = SessionManager.inMemory(CWD);
    for (let n = 0; n < 13_000; n++) {
      wide.branch(root);
      wide.appendCustomEntry("x");
      deep.appendCustomEntry("x");
    }
    expect(wide.getTree()[0].children).toHaveLength(13_000);
    expect(deep.getBranch()).toHaveLength(13_000);
    let depth = 0;
    for (let [node] = deep.getTree(); node; [node] = node.children) depth++;
    expect(depth).toBe(13_000);
  });

  test("an unknown id leads nowhere, and an entry is the same object at every call", () => {
    const { manager, one } = talked();
    const nobody = [manager.getEntry("nobody"), manager.getBranch("nobody"), manager.getChildren("nobody")];
    expect(nobody).toEqual([undefined, [], []]);
    const entry = manager.getEntry(one) as { message?: unknown };
    expect(entry).toBe(manager.getEntries()[0]);
    expect(manager.getBranch()[0]).toBe(entry);
    expect(manager.buildSessionContext().messages[0]).toBe(entry.message);
    expect(manager.getEntries()).not.toBe(manager.getEntries());
  });
});

describe("sessions made from others", () => {
  test("createBranchedSession goes on with the path, labels made again", () => {
    const { manager, one, two, three } = talked();
    manager.appendLabelChange(one, "start");
    const four = manager.appendMessage(user("four"));
    manager.appendLabelChange(three, "off the path");
    const source = file(manager);
    const text = textIn(source);
    const path = manager.createBranchedSession(four) as string;
    expect([file(manager), manager.getSessionId()]).toEqual([path, linesOf(path)[0].id]);
    expect(linesOf(path)[0]).toMatchObject({ parentSession: source, cwd: CWD });
    const parents = manager.getEntries().map((entry) => `${entry.type} ${entry.parentId}`);
    const wanted = `message null, message ${one}, message ${two}, message ${three}, label ${four}, label `;
    expect([parents.length, parents.join(", ").startsWith(wanted)]).toEqual([6, true]);
    expect([manager.getLabel(one), manager.getLabel(three)]).toEqual(["start", "off the path"]);
    expect(linesOf(path).slice(1)).toEqual(manager.getEntries());
    expect(textIn(source)).toBe(text);
  });

  test("without a conversation its file waits, too, and a session that has none yet is no parent", () => {
    const manager = created();
    const level = manager.appendThinkingLevelChange("low");
    manager.createBranchedSession(level);
    expect(manager.getHeader()).not.toHaveProperty("parentSession");
    manager.appendMessage(user("hello"));
    const path = manager.createBranchedSession(level) as string;
    expect([existsSync(path), manager.getLeafId()]).toEqual([false, level]);
    manager.appendMessage(user("other"));
    expect(linesOf(path)).toHaveLength(3);
  });

  test("forkFrom takes everything into another working directory, at once, and raises old versions in the fork", () => {
    const { manager, one } = talked();
    manager.branch(one);
    manager.appendLabelChange(one, "start");
    manager.appendMessage(user("other"));
    const fork = SessionManager.forkFrom(file(manager), "/other", join(home, "forks"), { id: "fork" });
    expect(fork.getHeader()).toMatchObject({ id: "fork", cwd: "/other", parentSession: file(manager) });
    expect(fork.getEntries()).toEqual(manager.getEntries());
    expect([fork.getLeafId(), fork.getLabel(one)]).toEqual([manager.getLeafId(), "start"]);
    expect(linesOf(file(fork)).slice(1)).toEqual(linesOf(file(manager)).slice(1));
    const empty = SessionManager.forkFrom(write(fileText(headerText())), "/other", folder);
    expect(linesOf(file(empty))).toEqual([empty.getHeader()]);
    const text = fileText(headerText({ version: 1 }), said("one"), said("two"));
    const old = SessionManager.forkFrom(write(text), "/other", folder);
    expect(texts(SessionManager.open(file(old)))).toEqual(["one", "two"]);
    expect(textIn(join(folder, "session.jsonl"))).toBe(text);
    const forkOf = (path: string) => () => SessionManager.forkFrom(path, "/other", folder);
    expect(forkOf(join(home, "none.jsonl"))).toThrow(named("session_not_found"));
    expect(forkOf(write("nonsense"))).toThrow(named("not_a_session"));
  });

  test("have the leaf and the attachments of those that they were made from", () => {
    const source = write(fileText(headerText({ leafId: id(0) }), ...chain(3)));
    expect(SessionManager.open(source).getLeafId()).toBe(id(0));
    expect(SessionManager.forkFrom(source, "/other", folder).getLeafId()).toBe(id(0));
    const { manager, three } = talked();
    const name = "a".repeat(64);
    mkdirSync(`${file(manager)}.blobs`);
    writeFileSync(`${file(manager)}.blobs/${name}`, "kept beside");
    const fork = file(SessionManager.forkFrom(file(manager), "/other", folder));
    for (const path of [fork, manager.createBranchedSession(three)])
      expect(textIn(`${path}.blobs/${name}`)).toBe("kept beside");
  });

  test("what a lost line joined stays joined", () => {
    const torn = '{"type":"message","id":"a0000001","parentId":"a0000000","ti';
    const [first, , ...rest] = chain(4);
    const path = write(fileText(headerText(), first, torn, ...rest));
    const manager = SessionManager.open(path);
    const said = [0, 2, 3].map((n) => `say ${id(n)}`);
    const fork = SessionManager.forkFrom(path, "/other", folder);
    const branched = SessionManager.open(path).createBranchedSession(id(3)) as string;
    for (const one of [manager, SessionManager.open(file(fork)), SessionManager.open(branched)])
      expect(texts(one)).toEqual(said);
  });
});

describe("context", () => {
  test("has messages, level and model of the path, or of the header, and not what is damaged", () => {
    const { manager, one } = talked();
    manager.appendModelChange("openai", "gpt");
    manager.appendThinkingLevelChange("high");
    const messages = [user("one"), assistant("two"), user("three")];
    const model = { provider: "openai", modelId: "gpt" };
    expect(manager.buildSessionContext()).toEqual({ messages, thinkingLevel: "high", model });
    manager.branch(one);
    expect(manager.buildSessionContext()).toEqual({ messages: [user("one")], thinkingLevel: "off", model: null });
    const header = headerText({ provider: "p", modelId: "m", thinkingLevel: "low" });
    const lines = [...chain(2), entryText("message", id(2), id(1), { message: null }), userText(id(3), id(2))];
    const other = SessionManager.open(write(fileText(header, ...lines)));
    const known = { thinkingLevel: "low", model: { provider: "p", modelId: "m" } };
    expect(other.buildSessionContext()).toMatchObject(known);
    expect([texts(other), other.getEntryCount()]).toEqual([[0, 1, 3].map((n) => `say ${id(n)}`), 4]);
  });

  test("begins with the summary of a compaction, and tells where each message comes from", () => {
    const { manager, three } = talked();
    const level = manager.appendThinkingLevelChange("low");
    const compaction = manager.appendCompaction("sum", three, 9);
    const four = manager.appendMessage(user("four"));
    const summary = { role: "compactionSummary", summary: "sum", tokensBefore: 9, timestamp: NOW };
    const { messages, entries } = manager.buildSessionProjection();
    expect(messages).toEqual([summary, user("three"), user("four")]);
    expect(entries.map(({ sourceEntry, messages: own }) => [sourceEntry.id, own])).toEqual([
      [compaction, [summary]],
      [three, [user("three")]],
      [level, []],
      [four, [user("four")]],
    ]);
    expect(idsOf(manager.buildContextEntries())).toEqual([compaction, three, level, four]);
    manager.appendCompaction("nothing kept", null, 9);
    expect(texts(manager)).toEqual(["compactionSummary"]);
  });

  test("keeps the system prompt through a compaction, told in one message", () => {
    const manager = created();
    const system = (more: object) => manager.appendMessage({ role: "system", content: "", timestamp: 4, ...more });
    const [bash, read] = [[{ name: "bash" }], [{ name: "read" }]];
    system({ content: "Be kind.", sections: { cwd: "/a", tools: "bash" }, toolsAdded: bash });
    const one = manager.appendMessage(user("one"));
    system({ content: "Be brief.", sections: { tools: null, cwd: "/b" }, toolsAdded: read, toolsRemoved: bash });
    manager.appendCompaction("sum", one, 9);
    const content = "Be kind.\n\nBe brief.";
    const prompt = { role: "system", content, sections: { cwd: "/b" }, toolsAdded: read, timestamp: NOW };
    expect(manager.getLeafEntry()).toMatchObject({ systemMessage: prompt });
    expect(manager.buildSessionContext().messages[0]).toEqual(prompt);
    expect(texts(manager).slice(1)).toEqual(["compactionSummary", "one"]);
    system({ sections: { cwd: "/c" } });
    manager.appendCompaction("again", null, 9);
    expect(manager.getLeafEntry()).toMatchObject({ systemMessage: { ...prompt, sections: { cwd: "/c" } } });
  });
});

describe("functions over entries", () => {
  test("contexts of entries that the caller holds; a cycle ends", () => {
    const { manager, one, two } = talked();
    const entries = manager.getEntries();
    expect(buildSessionContext(entries)).toEqual(manager.buildSessionContext());
    expect(buildSessionContext(entries, two).messages).toEqual([user("one"), assistant("two")]);
    expect(buildSessionContext(entries, null)).toEqual({ messages: [], thinkingLevel: "off", model: null });
    expect(buildSessionContext(entries, "nobody")).toEqual(manager.buildSessionContext());
    const byId = new Map(entries.map((entry) => [entry.id, entry]));
    expect(buildSessionContext(entries, one, byId).messages).toEqual([user("one")]);
    expect(buildSessionContext([]).messages).toEqual([]);
    expect(buildContextEntries(entries, two)).toEqual(entries.slice(0, 2));
    expect(buildContextEntries(entries)[0]).toBe(entries[0]);
    expect(buildSessionContext(entries).messages[0]).toBe((entries[0] as { message?: unknown }).message);
    const circle = [userText(id(0), id(1)), userText(id(1), id(0))].map((line) => JSON.parse(line) as SessionEntry);
    expect(buildSessionContext(circle).messages).toHaveLength(2);
  });

  test("the messages of one entry", () => {
    const { manager, one } = talked();
    const messagesOf = (id: string) => sessionEntryToContextMessages(manager.getEntry(id) as SessionEntry);
    expect(messagesOf(one)).toEqual([user("one")]);
    const compaction = manager.appendCompaction("sum", one, 9);
    const summary = { role: "compactionSummary", summary: "sum", tokensBefore: 9, timestamp: NOW };
    expect(messagesOf(compaction)).toEqual([summary]);
    expect(messagesOf(manager.appendCustomEntry("x"))).toEqual([]);
    expect(getLatestCompactionEntry(manager.getEntries())).toBe(manager.getEntry(compaction));
    expect(getLatestCompactionEntry([])).toBeNull();
  });

  test("parsing passes over what is no entry, and reads lines that are longer than a read", () => {
    const text = `\ufeff${headerText()}\n\n${userText(id(0), null)}\nnonsense\n5\n[]\nnull\n${userText(id(1), id(0))}`;
    expect(idsOf(parseSessionEntries(text))).toEqual([SESSION, id(0), id(1)]);
    const path = write(text);
    expect(loadEntriesFromFile(path)).toEqual(parseSessionEntries(text));
    expect(textIn(path)).toBe(text);
    expect(loadEntriesFromFile(join(folder, "none.jsonl"))).toEqual([]);
    expect(loadEntriesFromFile(write(userText(id(0), null)))).toEqual([]);
    const long = [userText(id(0), null, "x".repeat(3 << 20)), userText(id(1), id(0))];
    const entries = loadEntriesFromFile(write(fileText(headerText(), ...long)));
    expect(entries.slice(1)).toEqual(long.map((line) => JSON.parse(line)));
  });

  test("migration is in place, with the ids that opening gives", () => {
    const old = (type: string, rest: object) => JSON.stringify({ type, timestamp: TIME, ...rest });
    const compaction = old("compaction", { summary: "s", firstKeptEntryIndex: 2, tokensBefore: 1 });
    const hook = old("message", { message: { role: "hookMessage", content: "h" } });
    const text = fileText(headerText({ version: undefined }), said("one"), hook, compaction);
    const entries = parseSessionEntries(text);
    const kept = [...entries];
    migrateSessionEntries(entries);
    for (const [n, entry] of entries.entries()) expect(entry).toBe(kept[n]);
    const manager = SessionManager.open(write(text));
    expect(entries).toEqual([manager.getHeader(), ...manager.getEntries()]);
    expect(entries[2]).toMatchObject({ message: { role: "custom" } });
    expect(entries[3]).toMatchObject({ firstKeptEntryId: entries[2].id });
  });
});

describe("listing", () => {
  test("tells of every session, the most recently active first", async () => {
    const first = created();
    first.appendMessage({ ...user("older\u2028words"), timestamp: NOW - 5000 });
    first.appendSessionInfo("Named");
    const second = SessionManager.create(CWD, folder, { parentSession: "/parent.jsonl" });
    second.appendMessage({ ...user(""), timestamp: NOW });
    second.appendMessage({ ...assistant("answer"), timestamp: NOW + 5 });
    const content = ["a", "b"].map((text) => ({ type: "text" as const, text }));
    second.appendMessage({ role: "user", content, timestamp: NOW });
    write("nonsense", "other.jsonl");
    const common = { cwd: CWD, created: new Date(NOW) };
    expect(await SessionManager.list(CWD, folder)).toEqual([
      {
        ...{ ...common, path: file(second), id: second.getSessionId(), name: undefined, messageCount: 3 },
        ...{ parentSessionPath: "/parent.jsonl", modified: new Date(NOW + 5) },
        ...{ firstMessage: "a b", allMessagesText: "answer a b" },
      },
      {
        ...{ ...common, path: file(first), id: first.getSessionId(), name: "Named", messageCount: 1 },
        ...{ parentSessionPath: undefined, modified: new Date(NOW - 5000) },
        ...{ firstMessage: "older\u2028words", allMessagesText: "older\u2028words" },
      },
    ]);
  });

  test("looks at the working directory", async () => {
    const [ab, a_b] = ["/a/b", "/a-b"].map((cwd) => talked(SessionManager.create(cwd)).manager);
    const ids = async (sessions: ReturnType<typeof SessionManager.list>) => (await sessions).map(({ id }) => id).sort();
    const [one, two] = [ab.getSessionId(), a_b.getSessionId()];
    expect(await ids(SessionManager.list("/a/b"))).toEqual([one]);
    expect(await ids(SessionManager.list("/a-b", ab.getSessionDir()))).toEqual([two]);
    expect(await ids(SessionManager.list("/nowhere"))).toEqual([]);
    expect(await ids(SessionManager.listAll())).toEqual([one, two].sort());
    expect(await ids(SessionManager.listAll(join(home, "nowhere")))).toEqual([]);
    const found = [one, two, one.slice(0, 8)].map((id) => SessionManager.findById("/a/b", id));
    expect(found).toEqual([file(ab), undefined, undefined]);
    expect(existsSync(join(home, ".pi/agent/sessions/--nowhere--"))).toBe(false);
  });

  test("tells what has changed since the last list, which is kept by whoever has it", async () => {
    const path = write(fileText(headerText({ id: "kept" }), said("one")), "kept.jsonl");
    // A file that changed just now may change again without a trace.
    vi.setSystemTime(statSync(path).ctimeMs + 10_000);
    const lists = [await SessionManager.listAll(folder), await SessionManager.listAll(folder)];
    expect(lists[1][0]).toBe(lists[0][0]);
    const manager = SessionManager.open(path);
    manager.appendMessage(user("two"));
    manager.appendSessionInfo("Named");
    const now = { id: "kept", name: "Named", messageCount: 2, allMessagesText: "one two" };
    expect(await SessionManager.listAll(folder)).toMatchObject([now]);
    expect(lists[0]).toMatchObject([{ messageCount: 1, allMessagesText: "one" }]);
    rmSync(path);
    expect(await SessionManager.listAll(folder)).toEqual([]);
  });

  test("tells how far it is, and can be ended", async () => {
    for (let n = 0; n < 12; n++) talked();
    const calls: string[] = [];
    await SessionManager.list(CWD, folder, (loaded, total, part) =>
      calls.push(`${loaded} of ${total}: ${part?.length}`),
    );
    expect(calls).toHaveLength(12);
    expect(calls.filter((one) => !one.endsWith("undefined"))).toEqual(["1 of 12: 1", "10 of 12: 10", "12 of 12: 12"]);
    const controller = new AbortController();
    const ended = SessionManager.listAll(folder, () => controller.abort(new Error("enough")), controller.signal);
    await expect(ended).rejects.toThrow("enough");
    await expect(SessionManager.list(CWD, folder, undefined, AbortSignal.abort())).rejects.toThrow();
  });
});

describe("containers of Session Store V2", () => {
  beforeEach(() => void vi.useRealTimers());

  async function container(n: number, cwd: string, text: string): Promise<string> {
    const place: Place = { home, state, cwd, variables: { HOME: home, PI_SESSION_SERVER_STATE_DIR: state } };
    const id = `01991f6e-1f1d-7c3e-b0a4-0242ac12000${n}`;
    const server = serveHere(["--store", "v2", "--session-id", id, "--events", "none"], { place });
    await server.result("append", { entries: [{ type: "message", message: user(text) }] });
    const { sessionFile } = await server.result("get_state");
    await server.finish();
    return sessionFile;
  }

  test("are listed, found by their id and taken for the latest among the session files", async () => {
    const path = await container(1, CWD, "in a container");
    const { manager } = talked(SessionManager.create(CWD));
    await container(2, "/elsewhere", "of another directory");
    const all = (await SessionManager.listAll()).map(({ firstMessage }) => firstMessage);
    expect(all.sort()).toEqual(["in a container", "of another directory", "one"]);
    const here = await SessionManager.list(CWD);
    expect(here.map(({ path }) => path).sort()).toEqual([file(manager), path].sort());
    const id = basename(path, ".v2");
    const info = { id, cwd: CWD, messageCount: 1, allMessagesText: "in a container" };
    expect(here.find((one) => one.path === path)).toMatchObject(info);
    expect(await SessionManager.listAll(dirname(path))).toEqual(await SessionManager.list(CWD, dirname(path)));
    expect(SessionManager.findById(CWD, id)).toBe(path);
    utimesSync(file(manager), 1, 1);
    expect(findMostRecentSession(dirname(path))).toBe(path);
    const recent = SessionManager.continueRecent(CWD);
    expect([recent.getSessionFile(), texts(recent)]).toEqual([path, ["in a container"]]);
    recent.appendMessage(user("and on"));
    recent.close();
    const segments = readdirSync(join(path, "segments")).map((name) => join(path, "segments", name));
    for (const one of [...segments, join(path, "header.jsonl"), `${path.slice(0, -3)}.store.json`])
      utimesSync(one, 0, 0);
    expect(SessionManager.continueRecent(CWD).getSessionFile()).toBe(file(manager));
    expect((await SessionManager.list(CWD)).find((one) => one.path === path)?.messageCount).toBe(2);
  });

  test("that were rolled back are passed over; one whose pointer is damaged is the session", async () => {
    const path = await container(1, CWD, "in a container");
    const pointer = `${path.slice(0, -3)}.store.json`;
    writeFileSync(pointer, textIn(pointer).replace('"native_v2"', '"jsonl_v3"'));
    expect(await SessionManager.listAll()).toEqual([]);
    expect(findMostRecentSession(dirname(path))).toBeNull();
    expect(SessionManager.findById(CWD, basename(path, ".v2"))).toBeUndefined();
    writeFileSync(pointer, "{");
    expect(await SessionManager.listAll()).toMatchObject([{ path }]);
    expect(findMostRecentSession(dirname(path))).toBe(path);
  });
});

test("the server opens what the library wrote, and the library goes on with what it wrote", async () => {
  vi.useRealTimers();
  const { manager, one } = talked();
  manager.appendLabelChange(one, "start");
  manager.appendSessionInfo("Shared");
  manager.close();
  const server = serveHere(["--session", file(manager)]);
  const known = { sessionId: manager.getSessionId(), sessionName: "Shared" };
  expect(await server.result("get_state")).toMatchObject(known);
  const { messages } = await server.result("get_messages");
  expect(messages).toEqual([user("one"), assistant("two"), user("three")]);
  await server.result("append", { entries: [{ type: "message", message: user("four") }] });
  await server.result("branch", { entryId: one });
  const locked = SessionManager.open(file(manager));
  expect(() => locked.appendMessage(user("not now"))).toThrow(named("session_locked"));
  // Its calls are synchronous, so it says who holds the session and what can wait for that.
  const how = `(process ${process.pid}) holds this session, and these calls cannot wait for it. A server joins it: spawnServer({ args: ["--session", ${JSON.stringify(file(manager))}] })`;
  expect(() => locked.appendMessage(user("not now"))).toThrow(how);
  await server.finish();

  const again = SessionManager.open(file(manager));
  expect([again.getLeafId(), again.getSessionName(), again.getLabel(one)]).toEqual([one, "Shared", "start"]);
  const types = again.getEntries().map(({ type }) => type);
  expect([types.filter((type) => type === "message").length, types.includes("custom")]).toEqual([4, false]);
  const five = again.appendMessage(user("five"));
  expect(again.getEntry(five)?.parentId).toBe(one);
  expect(SessionManager.open(file(manager)).getLeafId()).toBe(five);
  again.close();
});

test("durability sync makes appends durable by flush, which takes back what it could not make durable", async () => {
  vi.useRealTimers();
  const manager = SessionManager.create(CWD, folder, { durability: "sync" });
  manager.appendThinkingLevelChange("low");
  await manager.flush();
  expect(existsSync(file(manager))).toBe(false);
  const one = manager.appendMessage(user("one"));
  await manager.flush();
  const sync = vi.spyOn(realDisk, "sync").mockRejectedValue(Object.assign(new Error("no"), { code: "EIO" }));
  const two = manager.appendMessage(assistant("two"));
  expect(manager.getEntry(two)).toBeDefined();
  await expect(manager.flush()).rejects.toThrow(named("storage_failed"));
  sync.mockRestore();
  expect([manager.getEntry(two), manager.getLeafId(), linesOf(file(manager)).length]).toEqual([undefined, one, 3]);
  manager.appendMessage(assistant("three"));
  await manager.flush();
  manager.close();
  const again = SessionManager.open(file(manager), undefined, undefined, { durability: "sync" });
  again.appendMessage(user("four"));
  await again.flush();
  expect(texts(SessionManager.open(file(manager)))).toEqual(["one", "three", "four"]);
});
