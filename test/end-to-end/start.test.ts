/** The session with which a server starts, and the folders of sessions (protocol, section 1). */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { user } from "../support/drafts.ts";
import { put } from "../support/lifecycle.ts";
import { fileText, userText } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { MKFIFO } from "../support/programs.ts";
import { HereLives, type HereLivesOptions, imprint, readPlainly, sessionFiles } from "../support/proof.ts";
import { type Json, type Place, serveHere, spawnServer, temporaryPlace, type Wire } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

/** A server in a place, and the state that it begins with. */
async function started(args: string[], options: HereLivesOptions = {}) {
  const lives = new HereLives(options);
  const wire = await lives.start(args);
  return { lives, wire, state: await wire.result("get_state") };
}

let made = 0;

/** A session file as another program leaves it; the younger, the later it was made here. */
function sessionIn(folder: string, cwd: string, more: Json = {}): { file: string; id: string; text: string } {
  const id = more.id ?? `01991f6e-0000-7000-9000-${String(++made).padStart(12, "0")}`;
  const text = `says ${id}`;
  const header = { type: "session", version: 3, id, timestamp: "2026-01-24T16:22:26.831Z", cwd, ...more };
  const file = join(folder, `2026-01-24T16-22-26-831Z_${id}.jsonl`);
  put(file, fileText(JSON.stringify(header), userText("a0000001", null, text)));
  utimesSync(file, 1_700_000_000 + ++made, 1_700_000_000 + made);
  return { file, id, text };
}

async function said(wire: Wire): Promise<Json> {
  const { messages } = await wire.result("get_messages");
  return messages.map(({ content }: Json) => content);
}

describe("sessions lie", () => {
  const ROOT = ".pi/agent/sessions";
  const FLAT = { PI_CODING_AGENT_SESSION_DIR: "HERE/variable", PI_SESSIONS_DIR: "HERE/root" };

  /** HERE is the home; a root has one folder for each working directory. */
  test.each<{ root?: string; flat?: string; variables?: Json; sessionDir?: unknown; args?: string[] }>([
    { root: ROOT },
    { root: "agent/sessions", variables: { PI_CODING_AGENT_DIR: "HERE/agent" } },
    { root: "all", variables: { PI_CODING_AGENT_DIR: "HERE/agent", PI_SESSIONS_DIR: "HERE/all" } },
    { root: "all", variables: { PI_SESSIONS_DIR: "~/all" } },
    { root: ROOT, variables: { PI_SESSIONS_DIR: "", PI_CODING_AGENT_DIR: "", PI_CODING_AGENT_SESSION_DIR: "" } },
    { flat: "variable", variables: FLAT, sessionDir: "~/settings" },
    { flat: "option", variables: FLAT, args: ["--session-dir", "~/option"] },
    { flat: "other", variables: FLAT, args: ["--session-dir=HERE/other"] },
    { flat: "settings", variables: { PI_SESSIONS_DIR: "HERE/root" }, sessionDir: "~/settings" },
    { flat: "abs", sessionDir: "HERE/abs" },
    ...[5, "", null, []].map((sessionDir) => ({ root: ROOT, sessionDir })),
  ])("in the root or the flat folder of the option, the variables or the settings: %j", async (given) => {
    const place = temporaryPlace();
    const { root, flat, variables, args, ...rest } = JSON.parse(JSON.stringify(given).replaceAll("HERE", place.home));
    const settings = (path: string) => (path.endsWith(join(".pi", "agent", "settings.json")) ? rest : undefined);
    const own = { ...place, variables: { ...place.variables, ...variables } };
    const project = `--${place.cwd.slice(1).replaceAll("/", "-")}--`;
    const folder = flat === undefined ? join(place.home, root, project) : join(place.home, flat);
    const { wire, state } = await started(args, { place: own, settings: "sessionDir" in rest ? settings : undefined });
    expect(dirname(state.sessionFile)).toBe(folder);
    await wire.result("append", { entries: [user("hello")] });
    expect(readPlainly(state.sessionFile)).toHaveLength(2);
  });

  test("where the settings of the agent's own folder say, read by the real program", SYSTEM, async () => {
    const place = temporaryPlace();
    mkdirSync(join(place.home, "agent"));
    writeFileSync(join(place.home, "agent", "settings.json"), JSON.stringify({ sessionDir: "~/mine", other: 1 }));
    const variables = { ...place.variables, PI_CODING_AGENT_DIR: join(place.home, "agent") };
    const server = spawnServer([], "lines", { ...place, variables });
    expect(dirname((await server.result("get_state")).sessionFile)).toBe(join(place.home, "mine"));
  });

  test("nowhere with --no-session", async () => {
    const { lives, wire } = await started(["--no-session"]);
    await wire.result("append", { entries: [user("hello")] });
    expect(await wire.result("get_state")).toMatchObject({ sessionFile: null, persisted: false, entryCount: 1 });
    await wire.result("clone");
    await lives.end();
    expect(readdirSync(lives.place.home)).toEqual(["project"]);
  });
});

describe("--continue", () => {
  test("takes the youngest session of this directory alone, though another's folder has the same name", async () => {
    const place = temporaryPlace();
    const project = join(place.home, "a", "b");
    const other = join(place.home, "a-b");
    const folder = join(place.home, ".pi/agent/sessions", `--${project.slice(1).replaceAll("/", "-")}--`);
    expect(`--${other.slice(1).replaceAll("/", "-")}--`).toBe(basename(folder));
    sessionIn(folder, project);
    const mine = sessionIn(folder, project);
    sessionIn(folder, other);
    sessionIn(folder, `${project}/c`);
    for (const flag of ["--continue", "-c"]) {
      const { lives, state } = await started([flag], { place: { ...place, cwd: project } });
      expect(state).toMatchObject({ sessionId: mine.id, sessionFile: mine.file });
      await lives.end();
    }
    expect((await started(["-c"], { place: { ...place, cwd: other } })).state.cwd).toBe(other);
  });

  test("picks from a flat folder by the header, past files that are no sessions", async () => {
    const place = temporaryPlace();
    const folder = join(place.home, "flat");
    const mine = sessionIn(folder, place.cwd);
    sessionIn(folder, "/elsewhere");
    put(join(folder, "notes.jsonl"), "not a session\n");
    put(join(folder, "empty.jsonl"), "");
    put(join(folder, ".hidden.jsonl"), fileText(JSON.stringify({ type: "session", id: "x", cwd: place.cwd })));
    mkdirSync(join(folder, "folder.jsonl"));
    const { state } = await started(["--session-dir", folder, "--continue"], { place });
    expect(state.sessionId).toBe(mine.id);
  });

  test("without a session of this directory begins a new one", async () => {
    const place = temporaryPlace();
    const folder = join(place.home, "flat");
    const theirs = sessionIn(folder, "/elsewhere");
    const named = ["--name", "new", "--session-id", "mine-1"];
    const { lives, state } = await started(["--session-dir", folder, "--continue", ...named], { place });
    expect(state).toMatchObject({ sessionId: "mine-1", sessionName: "new", persisted: false });
    await lives.end();
    expect(sessionFiles(folder)).toEqual([theirs.file]);
  });
});

describe("--session", () => {
  test("opens by path, relative path, id and the beginning of an id", async () => {
    const place = temporaryPlace();
    const folder = join(place.home, ".pi/agent/sessions/--elsewhere--");
    const one = sessionIn(folder, "/elsewhere", { id: "abc-1" });
    sessionIn(folder, "/elsewhere", { id: "abd-2" });
    const before = imprint(one.file);
    for (const name of [one.file, join("..", one.file.slice(place.home.length)), "abc-1", "abc"]) {
      const { lives, wire } = await started(["--session", name], { place });
      expect(await said(wire), name).toEqual([one.text]);
      const [start] = wire.events;
      expect(start).toMatchObject({ method: "session_start", params: { reason: "startup", sessionFile: one.file } });
      await lives.end();
      expect(lives.said).toEqual([]);
    }
    expect(imprint(one.file)).toEqual(before);
  });

  test("with a path that is not there yet begins a session at that path", async () => {
    const place = temporaryPlace();
    for (const [given, file] of [
      ["new.jsonl", join(place.cwd, "new.jsonl")],
      [join(place.home, "deep/er/new"), join(place.home, "deep/er/new")],
    ]) {
      const named = ["--session-id", "mine-1", "--name", "early"];
      const { lives, wire, state } = await started(["--session", given, ...named], { place });
      const expected = { sessionId: "mine-1", sessionFile: file, sessionName: "early", cwd: place.cwd };
      expect(state).toMatchObject({ ...expected, persisted: false });
      expect(existsSync(file)).toBe(false);
      await wire.result("append", { entries: [user("hello")] });
      const lines = [{ type: "session", id: "mine-1" }, { name: "early" }, { type: "message" }];
      expect(readPlainly(file)).toMatchObject(lines);
      expect(statSync(file).mode & 0o777).toBe(0o600);
      await lives.end();
    }
  });

  test("of an existing session does not take the id, the name and the model of the command line", async () => {
    const place = temporaryPlace();
    const empty = sessionIn(join(place.home, "s"), place.cwd, { id: "empty" });
    put(empty.file, fileText(JSON.stringify({ type: "session", version: 3, id: "empty", cwd: place.cwd })));
    const full = sessionIn(join(place.home, "s"), place.cwd, { id: "full" });
    for (const { file, id } of [empty, full]) {
      const before = imprint(file);
      const more = ["--session-id", "other", "--name", "n", "--provider", "p", "--model", "m", "--thinking", "high"];
      const { lives, state } = await started(["--session", file, ...more], { place });
      expect(state).toMatchObject({ sessionId: id, sessionName: null, model: null });
      await lives.end();
      expect(imprint(file)).toEqual(before);
    }
  });

  test("with --read-only changes nothing, and says so", async () => {
    const place = temporaryPlace();
    const one = sessionIn(join(place.home, "s"), place.cwd);
    const before = imprint(one.file);
    const { lives, wire, state } = await started(["--session", one.file, "--read-only"], { place });
    expect(state).toMatchObject({ readOnly: true, persisted: true });
    expect(await said(wire)).toEqual([one.text]);
    for (const [method, params] of [
      ["append", { entries: [user("x")] }],
      ["set_label", { entryId: "a0000001", label: "x" }],
      ["set_session_name", { name: "x" }],
      ["set_model", { provider: "p", modelId: "m" }],
      ["compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 }],
      ["branch", { entryId: "a0000001", label: "x" }],
    ] as const)
      expect((await wire.failure(method, params)).data.name, method).toBe("read_only");
    await lives.end();
    expect(imprint(one.file)).toEqual(before);
  });
});

test("--fork starts in a fork by path or id, takes id and name, and leaves the source alone", async () => {
  const place = temporaryPlace();
  const folder = join(place.home, ".pi/agent/sessions/--elsewhere--");
  const source = sessionIn(folder, "/elsewhere", { id: "source-1" });
  const before = imprint(source.file);
  for (const name of [source.file, "source-1", "source"]) {
    const { lives, wire, state } = await started(["--fork", name], { place });
    expect(state).toMatchObject({ parentSession: source.file, persisted: true, cwd: "/elsewhere", entryCount: 1 });
    expect(state.sessionFile).not.toBe(source.file);
    expect(await said(wire)).toEqual([source.text]);
    expect(readPlainly(state.sessionFile)).toHaveLength(2);
    await lives.end();
  }
  const args = ["--fork", source.file, "--session-id", "mine-1", "--name", "a\nfork"];
  const { lives, state } = await started(args, { place });
  expect(state).toMatchObject({ sessionId: "mine-1", sessionName: "a fork", parentSession: source.file });
  await lives.kill();
  expect(readPlainly(state.sessionFile).at(-1)).toMatchObject({ type: "session_info", name: "a fork" });
  expect(imprint(source.file)).toEqual(before);
});

describe("a session that cannot be opened at start", needs(MKFIFO), () => {
  function wrong(place: Place): [string, string[], string][] {
    const folder = join(place.home, "s");
    sessionIn(folder, place.cwd, { id: "twin-1" });
    sessionIn(folder, place.cwd, { id: "twin-2" });
    put(join(folder, "notes.txt"), "these are\nprivate notes\n");
    put(join(folder, "empty.jsonl"), "");
    put(join(folder, "other.jsonl"), '{"type":"other","id":"x"}\n');
    mkdirSync(join(folder, "folder.jsonl"));
    execFileSync("mkfifo", [join(folder, "fifo.jsonl")]);
    return [
      ["an id that is nowhere", ["--session", "nothing-like-it"], "session_not_found"],
      ["a part of a first message", ["--session", "win-1", "--session-dir", folder], "session_not_found"],
      ["an ambiguous id", ["--session", "twin", "--session-dir", folder], "ambiguous_id"],
      ["an id that is none", ["--session-id", "no id"], "invalid_id"],
      ["notes", ["--session", join(folder, "notes.txt")], "not_a_session"],
      ["an empty file", ["--session", join(folder, "empty.jsonl")], "not_a_session"],
      ["another kind of file", ["--session", join(folder, "other.jsonl")], "not_a_session"],
      ["a folder", ["--session", join(folder, "folder.jsonl")], "not_a_session"],
      ["a FIFO", ["--session", join(folder, "fifo.jsonl")], "not_a_session"],
      ["a fork of nothing", ["--fork", join(folder, "gone.jsonl")], "session_not_found"],
      ["a fork of notes", ["--fork", join(folder, "notes.txt")], "not_a_session"],
    ];
  }

  test("leaves the server without one, with that failure, until another is opened", async () => {
    const place = temporaryPlace();
    const one = sessionIn(join(place.home, "one"), place.cwd);
    for (const [what, args, name] of wrong(place)) {
      const lives = new HereLives({ place });
      const wire = await lives.start(args);
      expect((await wire.failure("append", { entries: [user("x")] })).data.name, what).toBe(name);
      expect(wire.events, "there is no session to tell of").toEqual([]);
      expect((await wire.result("initialize")).state).toBeNull();
      expect(lives.said, what).toEqual([expect.stringMatching(/^[^\n]{10,}\.$/)]);
      expect(lives.said[0]).not.toContain("private");
      // The failure of a switch leaves things as they are.
      const lost = await wire.failure("switch_session", { sessionPath: "nowhere.jsonl" });
      expect(lost.data.name).toBe("session_not_found");
      for (const method of ["get_state", "get_messages", "clone"])
        expect((await wire.failure(method)).data.name, what).toBe(name);
      await wire.result("switch_session", { sessionPath: one.file });
      expect(await said(wire)).toEqual([one.text]);
      expect(wire.events.map(({ method }) => method)).toEqual(["session_start"]);
      await lives.end();
      expect(await lives.done, what).toBe(0);
    }
  });

  test("is one sentence on the standard error of the real program, which lives", SYSTEM, async () => {
    const place = temporaryPlace();
    for (const [what, args, name] of wrong(place).slice(0, 3)) {
      const server = spawnServer(args, "lines", place);
      expect((await server.failure("get_state")).data.name, what).toBe(name);
      expect(await server.finish(), what).toEqual({ messages: [], status: 0 });
      expect(server.stderr, what).toMatch(/^pi-session-server: [^\n]+\.\n$/);
    }
  });
});

test("--continue=top and top of list_sessions pass over forks, such as those of subagents", async () => {
  const place = temporaryPlace();
  const first = serveHere(["--events", "none"], { place });
  await first.result("append", { entries: [user("asked")] });
  const { sessionId, leafId, sessionFile: file } = await first.result("get_state");
  await first.result("fork", { entryId: leafId, position: "at" });
  await first.result("append", { entries: [user("of the subagent")] });
  const { sessionFile } = await first.result("get_state");
  await first.finish();
  // A header of an earlier Pi, and one that names nothing.
  writeFileSync(sessionFile, readFileSync(sessionFile, "utf8").replace("parentSession", "branchedFrom"));
  writeFileSync(file, readFileSync(file, "utf8").replace('"cwd"', '"parentSession":"","cwd"'));
  utimesSync(file, 1, 1);
  const at = async (flag: string) => {
    const server = serveHere([flag, "--events", "none"], { place });
    const { sessionId: found } = await server.result("get_state");
    const { sessions } = await server.result("list_sessions", { top: true });
    await server.finish();
    return [found === sessionId, sessions.map((one: Json) => one.sessionId === sessionId)];
  };
  expect(await at("--continue")).toEqual([false, [true]]);
  expect(await at("--continue=top")).toEqual([true, [true]]);
});
