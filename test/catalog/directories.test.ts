/** A working directory is meant by every path that leads to it: with a slash at its end, or through a link. */

import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { putSession, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, entryText } from "../support/lines.ts";
import { type Json, type Place, temporaryPlace } from "../support/server.ts";

/** A place with a session that names a directory by its path, one by a link, and one of another directory. */
function place(): { place: Place; ways: string[] } {
  const made = temporaryPlace();
  const real = join(made.home, "real");
  mkdirSync(real);
  symlinkSync(real, join(made.home, "link"));
  const usage = { input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2 };
  const answer = { role: "assistant", content: [{ type: "text", text: "Yes." }], provider: "p", model: "m", usage };
  const lines = [...chain(3), entryText("message", "b0000000", "a0000002", { message: answer })];
  putSession(made, 1, { cwd: real, lines });
  putSession(made, 2, { cwd: join(made.home, "link"), lines });
  putSession(made, 3, { cwd: `${real}-other` });
  const link = join(made.home, "link");
  return { place: made, ways: [real, `${real}/`, `${real}/../real`, link, `${link}/`] };
}

const BOTH = [sessionId(1), sessionId(2)];

test("lists, searches and usage find the sessions of a directory by each", async () => {
  const { place: there, ways } = place();
  const server = serveLibrary(there);
  const ids = (sessions: Json[]): string[] => [...new Set(sessions.map((session) => session.sessionId))].sort();
  for (const cwd of ways) {
    expect([cwd, ids((await server.result("list_sessions", { cwd })).sessions)]).toEqual([cwd, BOTH]);
    expect([cwd, ids((await server.result("list_sessions", { cwd, sort: "cost" })).sessions)]).toEqual([cwd, BOTH]);
    expect([cwd, ids((await server.result("search_sessions", { query: "say", cwd })).hits)]).toEqual([cwd, BOTH]);
    const { rows } = await server.result("get_usage", { cwd, groupBy: ["session"] });
    expect([cwd, rows.map((row: Json) => row.sessionId).sort()]).toEqual([cwd, BOTH]);
    const { sessions } = await server.result("list_sessions", { cwd, quick: true });
    expect(ids(sessions).length, cwd).toBeGreaterThan(0);
  }
});

test("a directory that is not there is meant by its path, whatever is at the end of that", async () => {
  const made = temporaryPlace();
  putSession(made, 1, { cwd: "/gone/away" });
  const server = serveLibrary(made);
  for (const cwd of ["/gone/away", "/gone/away/", "/gone/./away"])
    expect((await server.result("list_sessions", { cwd })).sessions, cwd).toHaveLength(1);
  expect((await server.result("list_sessions", { cwd: "/gone" })).sessions).toEqual([]);
});

test("--continue and --session-id go on with a session that names the directory otherwise, in a flat folder", async () => {
  const { place: there } = place();
  const flat = join(there.home, "flat");
  putSession(there, 4, { cwd: join(there.home, "link"), folder: flat });
  for (const more of [["--continue"], ["--session-id", sessionId(4)]]) {
    const server = serveLibrary({ ...there, cwd: join(there.home, "real") }, ["--session-dir", flat, ...more]);
    expect(await server.result("get_state")).toMatchObject({ sessionId: sessionId(4), persisted: true });
  }
});
