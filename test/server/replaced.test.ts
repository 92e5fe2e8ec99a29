/** What another program did to a session by putting another file or container in its place is told by events. */

import { cpSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";

/** What holds the bytes of the entries. */
const BODY = { jsonl: "", v2: "/segments/0000000000000001.seg" };

/** Replaces some letters in a file by as many others. */
function spoil(path: string, text: string, by: string): void {
  const bytes = readFileSync(path, "latin1");
  expect(bytes).toContain(text);
  writeFileSync(path, bytes.replace(text, by), "latin1");
}

/** Puts what lies at `from` in the place of a session. */
function replace(sessionFile: string, from: string): void {
  renameSync(sessionFile, `${sessionFile}.away`);
  renameSync(from, sessionFile);
  rmSync(`${sessionFile}.away`, { recursive: true });
}

describe.each(["jsonl", "v2"] as const)("a session on %s in whose place another program puts", (store) => {
  async function serverWith(...entries: Json[]): Promise<{ server: HereServer; sessionFile: string }> {
    const server = serveHere(["--store", store]);
    await server.request("append", { entries });
    return { server, sessionFile: (await server.result("get_state")).sessionFile };
  }

  /** Returns which kinds of damage were told with the next request. */
  async function damageTold(server: HereServer): Promise<string[]> {
    const before = server.events.length;
    await server.request("append", { entries: [user("next")] });
    const events = [...server.events, ...(await server.finish()).messages].slice(before);
    return events
      .filter(({ method }) => method === "session_damage")
      .flatMap(({ params }) => params.damage.map(({ kind }: Json) => kind));
  }

  test("an older copy: the entries that are gone are told as lost, although they were damaged before", async () => {
    const { server, sessionFile } = await serverWith(user("a"), assistant("b"));
    cpSync(sessionFile, `${sessionFile}.old`, { recursive: true });
    await server.request("append", { entries: [user("cccccccc")] });
    spoil(`${sessionFile}${BODY[store]}`, "cccccccc", 'c"cc\\cc{');
    const { entries } = await server.result("get_entries");
    expect(entries[2]).toMatchObject({ damaged: true });
    replace(sessionFile, `${sessionFile}.old`);
    expect(await damageTold(server)).toContain("lost_entries");
  });

  test("a copy that is damaged: the damage is told", async () => {
    const { server, sessionFile } = await serverWith(user("a"), assistant("bbbbbbbb"), user("c"));
    cpSync(sessionFile, `${sessionFile}.copy`, { recursive: true });
    spoil(`${sessionFile}.copy${BODY[store]}`, '"type":"message","id"', '"typ":"message","idd"');
    replace(sessionFile, `${sessionFile}.copy`);
    const told = await damageTold(server);
    expect(told.filter((kind) => kind === "bad_line" || kind === "bad_body")).not.toEqual([]);
  });

  test("a copy of itself, just before it is left with a place to be marked: leaving works", async () => {
    const { server, sessionFile } = await serverWith(user("a", { id: "aaaaaaaa" }), assistant("b", { id: "bbbbbbbb" }));
    await server.request("branch", { entryId: "aaaaaaaa" });
    cpSync(sessionFile, `${sessionFile}.copy`, { recursive: true });
    replace(sessionFile, `${sessionFile}.copy`);
    expect((await server.request("new_session")).error).toBeUndefined();
    expect(await server.result("switch_session", { sessionPath: sessionFile })).toMatchObject({ leafId: "aaaaaaaa" });
    expect((await server.finish()).status).toBe(0);
  });
});
