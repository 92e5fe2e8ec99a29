/** Two open sessions with one id, as where a person copied a file: each has its own order, and what is asked of one is done there. */

import { dirname, extname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { OpenRoom } from "../../src/server/dispatch/open-room.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { assistant, user } from "../support/drafts.ts";
import { makeSession } from "../support/made-sessions.ts";
import { closedAfterALook } from "../support/open-sessions.ts";
import { copyTo, type StoreName } from "../support/other-programs.ts";
import { call, type HereOptions, type HereServer, type Json, serveHere, stopTimers } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const STORES: readonly StoreName[] = ["jsonl", "v2"];

const HOOKS = ["session_before_tree", "session_before_compact", "session_before_fork"].map((name) => ({ name }));

/** Sessions that are open: one beside the current one, and a copy of it that is closed. */
async function twins(store: StoreName, options: HereOptions = {}) {
  const server = serveHere(["--events", "none", "--store", store], options);
  await server.result("initialize", { capabilities: { hooks: HOOKS } });
  const made = await makeSession(server, "one", assistant("two"), "three");
  const { sessionId, sessionFile: first, entryIds: ids } = made;
  await makeSession(server, "of the current one");
  await server.result("open_session", { sessionPath: first });
  const copy = join(dirname(first), `copy${extname(first)}`);
  copyTo(first, copy);
  return { server, sessionId, first, copy, ids };
}

/** Returns what a session has. */
async function stateOf(server: HereServer, sessionPath: string): Promise<{ leafId: string; entryCount: number }> {
  await server.result("switch_session", { sessionPath });
  const { leafId, entryCount } = await server.result("get_state");
  return { leafId, entryCount };
}

acrossTiers(describe, STORES)("of two open sessions with one id (%s)", (store) => {
  const compaction = (ids: readonly string[]) => ({ summary: "short", firstKeptEntryId: ids[2], tokensBefore: 9 });

  test.each([
    ["branch", "switch_session"],
    ["compact", "open_session"],
  ])("%s is done in the one that it was asked of, also after %s to the other", async (method, meanwhile) => {
    const { server, sessionId, first, copy, ids } = await twins(store);
    const params = method === "branch" ? { entryId: ids[0], label: "here" } : {};
    server.send({ jsonrpc: "2.0", id: "b", method, params: { sessionId, ...params } });
    const { id } = await server.next();
    await server.result(meanwhile, { sessionPath: copy });
    server.answer(id, method === "branch" ? {} : { compaction: compaction(ids) });
    expect((await server.reply("b")).error).toBeUndefined();
    const changed = await stateOf(server, first);
    expect(changed.entryCount).toBe(4);
    if (method === "branch") expect(changed.leafId).not.toBe(ids[2]);
    expect(await stateOf(server, copy)).toEqual({ leafId: ids[2], entryCount: 3 });
  });

  test.each(["open_session", "switch_session"])(
    "what waits for one is done there, also after %s",
    async (meanwhile) => {
      const { server, sessionId, first, copy, ids } = await twins(store);
      server.ask("b", "branch", { sessionId, entryId: ids[0] });
      const { id } = await server.next();
      server.ask("a", "append", { sessionId, entries: [user("after", { id: "after" })] });
      await server.result(meanwhile, { sessionPath: copy });
      server.answer(id, {});
      expect((await server.reply("a")).result.entryIds).toEqual(["after"]);
      expect(await stateOf(server, copy)).toEqual({ leafId: ids[2], entryCount: 3 });
      expect((await stateOf(server, first)).leafId).toBe("after");
      expect((await server.result("get_entry", { entryId: "after" })).entry.parentId).toBe(ids[0]);
    },
  );

  test("what waits for the current one is done there, also after another session has become the current one", async () => {
    const { server, sessionId, first, copy, ids } = await twins(store);
    await server.result("switch_session", { sessionPath: first });
    await server.result("open_session", { sessionPath: copy });
    server.ask("n", "clone");
    const { id } = await server.next();
    const entries = [user("after", { id: "after" })];
    server.ask("a", "append", { sessionId, entries });
    server.answer(id, {});
    expect((await server.reply("a")).result.entryIds).toEqual(["after"]);
    expect(await stateOf(server, copy)).toEqual({ leafId: ids[2], entryCount: 3 });
    expect(await stateOf(server, first)).toEqual({ leafId: "after", entryCount: 4 });
  });

  test("each keeps its order after the other was closed", async () => {
    const { server, sessionId, first, copy, ids } = await twins(store);
    await server.result("get_state", { sessionId });
    await server.result("open_session", { sessionPath: copy });
    server.ask("b", "branch", { sessionId, entryId: ids[0] });
    const { id } = await server.next();
    await server.result("open_session", { sessionPath: first });
    await server.result("close_session", { sessionId });
    const entries = [user("after", { id: "after" })];
    server.ask("a", "append", { sessionId, entries });
    await server.result("list_open_sessions");
    server.answer(id, {});
    expect(((await server.next()) as Json).id).toBe("b");
    expect((await server.reply("a")).result.entryIds).toEqual(["after"]);
    expect((await server.result("get_entry", { sessionId, entryId: "after" })).entry.parentId).toBe(ids[0]);
  });

  test("a write to the one that was closed to make room is durable when it is answered", async () => {
    stopTimers();
    let fails = false;
    const refusing = (): void => {
      if (fails) throw Object.assign(new Error("the medium fails"), { code: "EIO" });
    };
    const disk: Disk = {
      ...realDisk,
      async sync(fd) {
        refusing();
        return realDisk.sync(fd);
      },
      syncNow(fd) {
        refusing();
        realDisk.syncNow(fd);
      },
    };
    const room = new OpenRoom(1, () => ({ bytes: 0, handles: 0 }));
    const { server, sessionId, first, copy } = await twins(store, { disk, room });
    // One whose leaf is in no file yet stays open.
    await server.result("open_session", { sessionPath: first, leaf: "own" });
    const { sessionId: other } = await server.result("get_state");
    await server.result("open_session", { sessionPath: copy });
    await server.result("open_session", { sessionId: other });
    await closedAfterALook(server, copy);
    fails = true;
    const entries = [user("lost")];
    server.send(call("s", "get_session_stats", { sessionPath: first }), call("a", "append", { sessionId, entries }));
    expect((await server.reply("a")).error?.data.name).toBe("storage_failed");
    fails = false;
    for (const sessionPath of [first, copy]) expect((await stateOf(server, sessionPath)).entryCount).toBe(3);
  });
});
