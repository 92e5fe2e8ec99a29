/** Sessions of other agents by the paths that lists print, by their ids and by their names, wherever a session is named. */

import { existsSync, mkdirSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { SessionManager } from "../../../src/index.ts";
import { wholeClaudeSession } from "../../support/foreign/claude.ts";
import { opencodeDatabase } from "../../support/foreign/databases.ts";
import { GEMINI_SESSION, GeminiWriter } from "../../support/foreign/gemini.ts";
import { wholeOpencodeExport } from "../../support/foreign/opencode.ts";
import { contentsOf, put, putSession, serveLibrary } from "../../support/lifecycle.ts";
import { type HereServer, type Json, type Place, temporaryPlace } from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";

const CLAUDE_ID = "7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11";

/** A place with a session of Claude Code and one of opencode. */
function placeOfOthers(): { place: Place; claude: string; database: string } {
  const place = temporaryPlace();
  const claude = join(place.home, ".claude", "projects", "-home-me-project", `${CLAUDE_ID}.jsonl`);
  put(claude, wholeClaudeSession().text);
  const database = join(place.home, ".local/share/opencode/opencode.db");
  mkdirSync(dirname(database), { recursive: true });
  opencodeDatabase(database, [wholeOpencodeExport()]).close();
  return { place, claude, database };
}

async function listedIn(place: Place): Promise<Json[]> {
  return withServer(place, [], async (server) => (await server.result("list_sessions", { agents: "all" })).sessions);
}

async function withServer<T>(place: Place, args: string[], ask: (server: HereServer) => Promise<T>): Promise<T> {
  const server = serveLibrary(place, args);
  const answer = await ask(server);
  await server.finish();
  return answer;
}

/** Returns the names of a session in a list: its path, its id, the beginning of that, and its name. */
function namesOf({ sessionId, sessionPath, name }: Json): string[] {
  return [sessionPath, sessionId, sessionId.slice(0, -1), ...(name === null ? [] : [name])];
}

for (const given of ["one of them for each", "all for each"])
  test.each([given])(
    "--session opens every session that a list shows: by its path, its id, and its name (%s)",
    given === "one of them for each" ? SYSTEM : SWEEP,
    async (which) => {
      const { place } = placeOfOthers();
      putSession(place, 1);
      const sessions = await listedIn(place);
      expect(sessions.map(({ agent = "ours" }) => agent).sort()).toEqual(["claude", "opencode", "ours"]);
      for (const [n, session] of sessions.entries())
        for (const given of namesOf(session).filter((_, at) => which === "all for each" || at === n % 3)) {
          const args = ["--session", given];
          const { sessionFile, sessionId } = await withServer(place, args, (server) => server.result("get_state"));
          expect([given, sessionFile, sessionId]).toEqual([given, session.sessionPath, session.sessionId]);
        }
    },
  );

test("commands open other agents' sessions by their ids, and refuse to change them", async () => {
  const { place, claude } = placeOfOthers();
  const [{ sessionId }] = (await listedIn(place)).filter(({ agent }) => agent === "claude");
  const server = serveLibrary(place);
  for (const command of ["open_session", "switch_session"])
    expect(await server.result(command, { sessionId })).toMatchObject({ sessionFile: claude });
  await server.result("new_session", {});
  await server.result("close_session", { sessionId });
  for (const [command, params] of [
    ["delete_session", {}],
    ["archive_session", {}],
    ["relocate_session", { cwd: place.cwd }],
  ] as const)
    expect((await server.failure(command, { sessionId, ...params })).data.name, command).toBe("read_only");
  expect((await server.failure("open_session", { sessionId: "nothing-like-it" })).data.name).toBe("session_not_found");
});

test("families and comparisons take every id that open_session takes", async () => {
  const { place, claude } = placeOfOthers();
  const own = putSession(place, 1);
  const sessions = await listedIn(place);
  const [{ sessionId }] = sessions.filter(({ agent }) => agent === "claude");
  const [{ sessionId: ownId }] = sessions.filter(({ agent }) => agent === undefined);
  for (const [file, ids] of [
    [claude, [CLAUDE_ID, sessionId, sessionId.slice(0, 12)]],
    [own, [ownId, ownId.slice(0, -1)]],
  ] as const)
    for (const id of ids) {
      const server = serveLibrary(place);
      const { nodes } = await server.result("get_session_family", { sessionId: id });
      expect([id, nodes.map(({ sessionPath }: Json) => sessionPath)]).toEqual([id, [file]]);
      expect(await server.result("list_open_sessions")).toMatchObject({ sessions: [{}] });
      await server.result("open_session", { sessionPath: file });
      const compared = await server.result("compare_branches", { sessionPath: file, otherId: id });
      expect([id, compared.a.entryCount, compared.b.entryCount]).toEqual([id, 0, 0]);
      const clone = (await server.result("clone", {})).sessionId;
      const merged = { sessionId: clone, otherId: id, from: "leaf", summary: "s" };
      if (file === own) expect((await server.failure("merge_branch", merged)).data.name).not.toBe("session_not_found");
      await server.finish();
    }
  const server = serveLibrary(place);
  for (const [command, params] of [
    ["get_session_family", { sessionId: "nothing-like-it" }],
    ["compare_branches", { otherId: "nothing-like-it" }],
  ] as const)
    expect([command, (await server.failure(command, params)).data.name]).toEqual([command, "session_not_found"]);
});

test("an archived session is opened by its id", async () => {
  const place = temporaryPlace();
  putSession(place, 1);
  const server = serveLibrary(place);
  const [{ sessionId }] = (await server.result("list_sessions")).sessions;
  const { movedTo } = await server.result("archive_session", { sessionId });
  expect(await server.result("open_session", { sessionId })).toMatchObject({ sessionFile: movedTo });
});

test("a path at which no file can be made begins no session: not at the start, and not in the library", async () => {
  const { place, claude, database } = placeOfOthers();
  const own = putSession(place, 1);
  const before = Object.keys(contentsOf(place.home));
  const [loose, looseFolder] = ["loose.jsonl", "loose"].map((name) => join(place.home, name));
  for (const link of [loose, looseFolder]) symlinkSync(join(place.home, "nothing"), link);
  const ofLinks = [loose, join(looseFolder, "new.jsonl"), `${join(place.home, "no-folder")}/`];
  for (const file of [claude, database, own])
    for (const path of [join(file, "ses_nothing"), join(file, "deeper", "new.jsonl"), `${file}/`, ...ofLinks]) {
      const { data, message } = await withServer(place, ["--session", path], (server) => server.failure("get_state"));
      expect([path, data.name]).toEqual([path, "session_not_found"]);
      expect(message).toContain(path);
      // As Pi's, the library takes a path without the separator at its end.
      if (!path.endsWith("/"))
        expect(() => SessionManager.open(path)).toThrow(expect.objectContaining({ name: "session_not_found" }));
    }
  expect(Object.keys(contentsOf(place.home))).toEqual(expect.arrayContaining(before));
  expect(existsSync(own)).toBe(true);
});

describe("of two files that Gemini CLI has of one session", () => {
  const whole = new GeminiWriter();
  whole.ask("Where is the jam?");
  whole.reply("On the second shelf.");
  const empty = new GeminiWriter();
  empty.message("info", "Resumed");
  test.each(["16-00", "15-00"])("the one with the conversation is the session (%s)", async (at) => {
    const atOther = at === "16-00" ? "15-00" : "16-00";
    const place = temporaryPlace();
    const chats = join(place.home, ".gemini", "tmp", "project", "chats");
    const file = put(join(chats, `session-2026-08-21T${at}-3f0c6d52.jsonl`), whole.text);
    put(join(chats, `session-2026-08-21T${atOther}-3f0c6d52.jsonl`), empty.text);
    const another = put(
      join(chats, "session-2026-08-20T09-00-3f0c6d52.jsonl"),
      whole.text.replaceAll(GEMINI_SESSION, "3f0c6d52-0000-4000-8000-000000000000"),
    );
    const server = serveLibrary(place);
    const { sessions } = await server.result("list_sessions", { agents: "all" });
    const paths = sessions.map(({ sessionPath }: Json) => sessionPath);
    expect(paths.sort()).toEqual([another, file].sort());
    const { sessionFile } = await server.result("open_session", { sessionId: GEMINI_SESSION });
    expect(sessionFile).toBe(file);
  });
});
