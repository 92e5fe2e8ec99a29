/** Another program's replacement of a session's file or container is reported by events. */

import { cpSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

/** The file with the bytes of the entries. */
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

acrossTiers(describe, ["jsonl", "v2"] as const)("a session on %s in whose place another program puts", (store) => {
  async function serverWith(...entries: Json[]): Promise<{ server: HereServer; sessionFile: string }> {
    const server = serveHere(["--store", store]);
    await server.request("append", { entries });
    return { server, sessionFile: (await server.result("get_state")).sessionFile };
  }

  /** Returns the kinds of damage reported with the next request. */
  async function readDamage(server: HereServer): Promise<string[]> {
    const before = server.events.length;
    await server.request("append", { entries: [user("next")] });
    const events = [...server.events, ...(await server.finish()).messages].slice(before);
    const damage = events.filter(({ method }) => method === "session_damage").flatMap(({ params }) => params.damage);
    return damage.map(({ kind }: Json) => kind);
  }

  test("an older copy: the entries that are gone are told as lost, although they were damaged before", async () => {
    const { server, sessionFile } = await serverWith(user("a"), assistant("b"));
    cpSync(sessionFile, `${sessionFile}.old`, { recursive: true });
    await server.request("append", { entries: [user("cccccccc")] });
    spoil(`${sessionFile}${BODY[store]}`, "cccccccc", 'c"cc\\cc{');
    const { entries } = await server.result("get_entries");
    expect(entries[2]).toMatchObject({ damaged: true });
    replace(sessionFile, `${sessionFile}.old`);
    expect(await readDamage(server)).toContain("lost_entries");
  });

  test("nothing: a write is refused for good, and a clone has what is still known", async () => {
    const { server, sessionFile } = await serverWith(user("a"), assistant("b"));
    rmSync(sessionFile, { recursive: true });
    const { data } = await server.failure("append", { entries: [user("c")] });
    expect(data).toMatchObject({ name: "storage_failed", retryable: false, errno: "ENOENT" });
    await server.result("clone");
    expect(await server.result("get_state")).toMatchObject({ entryCount: 2, persisted: true });
  });

  test("a copy that is damaged: the damage is told", async () => {
    const { server, sessionFile } = await serverWith(user("a"), assistant("bbbbbbbb"), user("c"));
    cpSync(sessionFile, `${sessionFile}.copy`, { recursive: true });
    spoil(`${sessionFile}.copy${BODY[store]}`, '"type":"message","id"', '"typ":"message","idd"');
    replace(sessionFile, `${sessionFile}.copy`);
    const damage = await readDamage(server);
    expect(damage.filter((kind) => kind === "bad_line" || kind === "bad_body")).not.toEqual([]);
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

  test.each(["open", "closed and opened again"])(
    "an older copy, while it is %s: what is gone is done again for its key",
    async (how) => {
      const { server, sessionFile } = await serverWith(user("a", { id: "aaaaaaaa" }), user("b", { id: "bbbbbbbb" }));
      const older = [
        ["append", { entries: [user("older")], idempotencyKey: "older" }],
        ["branch", { entryId: "aaaaaaaa", idempotencyKey: "leaf" }],
      ] as const;
      const newer = [
        ["append", { entries: [user("one"), assistant("two")], idempotencyKey: "append" }],
        ["set_label", { entryId: "bbbbbbbb", label: "here", idempotencyKey: "label" }],
        ["set_model", { provider: "anthropic", modelId: "other", idempotencyKey: "model" }],
        ["branch", { entryId: "bbbbbbbb", summary: { summary: "left" }, idempotencyKey: "branch" }],
      ] as const;
      const results: Json[] = [];
      for (const [method, params] of older) results.push(await server.result(method, params));
      cpSync(sessionFile, `${sessionFile}.old`, { recursive: true });
      const before = (await server.result("get_entries")).entries.length;
      for (const [method, params] of newer) await server.result(method, params);
      const count = (await server.result("get_entries")).entries.length + 1;
      expect(count).toBeGreaterThan(before + newer.length + 1);
      if (how !== "open") await server.result("new_session");
      replace(sessionFile, `${sessionFile}.old`);
      if (how !== "open") await server.result("switch_session", { sessionPath: sessionFile });
      // A write finds the new file.
      await server.result("append", { entries: [user("next")] });
      const again: Json[] = [];
      for (const [method, params] of [...newer, ...newer]) again.push(await server.result(method, params));
      expect(again.slice(0, newer.length)).toEqual(again.slice(newer.length));
      const { entries } = await server.result("get_entries");
      expect(entries.length).toBe(count);
      const there = entries.map(({ id }: Json) => id);
      for (const { entryIds = [], entryId = there[0], leafId = there[0] } of again)
        expect(there).toEqual(expect.arrayContaining([...entryIds, entryId, leafId]));
      // Requests with entries in the copy, or without an entry, are not repeated.
      for (const [n, [method, params]] of older.entries())
        expect(await server.result(method, params)).toEqual(results[n]);
      expect((await server.result("get_entries")).entries.length).toBe(count);
    },
  );
});
