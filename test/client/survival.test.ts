/**
 * A client's state after its server dies and comes back: which session, with which entries. On every store.
 *
 * @module-tag system
 */

import { readdirSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Restart, SpawnedClient } from "../../src/client/index.ts";
import { PROGRAM } from "../support/build.ts";
import { user } from "../support/drafts.ts";
import { STORES } from "../support/hosts.ts";
import { Random } from "../support/random.ts";
import { ScriptedServer, STATE, scriptedClient, settled } from "../support/scripted.ts";
import { temporaryFolder } from "../support/server.ts";
import { kill, survivingClient, textsOf, writesUnderKills } from "../support/survival.ts";
import { acrossTiers, SWEEP, UNIT } from "../support/tiers.ts";

async function spawned(...given: Parameters<typeof survivingClient>): Promise<SpawnedClient> {
  const client = await survivingClient(...given);
  onTestFinished(() => client.close());
  return client;
}

/** A client whose session has one message. */
async function begun(...given: Parameters<typeof survivingClient>): Promise<SpawnedClient> {
  const client = await spawned(...given);
  await client.request("append", { entries: [user("x")] });
  return client;
}

/** Collects the restarts that are reported. */
function restartsOf(client: SpawnedClient): Restart[] {
  const restarts: Restart[] = [];
  client.onRestart((restart) => restarts.push(restart));
  return restarts;
}

async function entriesOf(client: SpawnedClient) {
  const { entries } = await client.request("get_entries");
  return entries.map(({ id, parentId, type }) => [id, parentId, type]);
}

acrossTiers(describe, STORES)("--store %s", (store) => {
  // 10,000 writes at once are the unit of `npm run soak -- --part survival`.
  test("writes with a kill every few hundred: none is lost, none doubled, and their order stays", SWEEP, async () => {
    const client = await spawned(store);
    const { kills, ...figures } = await writesUnderKills(client, 900, new Random(20));
    expect(figures).toEqual({ writes: 900, lost: 0, doubled: 0, misplaced: 0 });
    expect(kills).toBeGreaterThan(1);
  });

  // A kill after so many answers each time.
  acrossTiers(test, [3, 1])(
    "commands of every kind are sent again in their order, and what they make is made once (%i)",
    async (every) => {
      const client = await spawned(store);
      await client.request("append", { entries: [user("one", { id: "a" }), user("two", { id: "b" })] });
      const { sessionId } = await client.request("get_state");
      const asked = [
        client.request("branch", { entryId: "a" }),
        client.request("append", { entries: [user("three", { id: "c" })] }),
        client.request("set_model", { provider: "p", modelId: "m" }),
        client.request("set_session_name", { name: "n" }),
        client.request("branch", { entryId: "b" }),
        client.request("append", { entries: [user("four", { id: "d" })] }),
        client.request("fork", { entryId: "d" }),
        client.request("append", { entries: [user("five", { id: "e" })] }),
        client.request("get_state"),
      ] as const;
      for (const [index, request] of asked.entries()) {
        const isDue = index % every === 0;
        // A kill before the answer of every other one, and directly after the others.
        if (isDue && index % 2 === 0 && client.pid !== undefined) kill(client);
        await request;
        if (isDue && index % 2 === 1 && client.pid !== undefined) kill(client);
      }
      const state = await asked[8];
      expect(state.sessionId).not.toBe(sessionId);
      expect(await textsOf(client)).toEqual(["one", "two", "five"]);
      const { sessionFile } = await client.request("switch_session", { sessionId });
      const { nodes = [] } = await client.request("get_tree", { format: "flat" });
      const types = (await entriesOf(client)).map(([, , type]) => type as string).filter((type) => type !== "custom");
      const branches = nodes.filter(({ parentId }) => parentId === "a").map(({ id }) => id);
      expect(branches.sort()).toEqual(["b", "c"]);
      expect(types.sort()).toEqual(["message", "message", "message", "message", "model_change", "session_info"]);
      expect(await textsOf(client)).toEqual(["one", "two", "four"]);
      const names = readdirSync(dirname(sessionFile as string));
      expect(names.filter((name) => /\.jsonl$|\.v2$/.test(name))).toHaveLength(2);
    },
  );

  test("a session that is not on disk yet keeps its id, its name and its model", async () => {
    const client = await spawned(store, { args: ["--name", "first"] });
    const before = await client.request("get_state");
    await client.request("set_model", { provider: "p", modelId: "m" });
    kill(client);
    const kept = { sessionId: before.sessionId, sessionName: "first", model: { provider: "p", id: "m" } };
    expect(await client.request("get_state")).toMatchObject(kept);
    const { sessionId } = await client.request("new_session", { name: "second" });
    kill(client);
    await client.request("set_thinking_level", { level: "high" });
    kill(client);
    await client.request("append", { entries: [user("x")] });
    kill(client);
    const then = { sessionId, sessionName: "second", thinkingLevel: "high" };
    expect(await client.request("get_state")).toMatchObject(then);
    expect(await textsOf(client)).toEqual(["x"]);
  });

  test("sessions that are open beside the current one are opened again", SWEEP, async () => {
    const client = await spawned(store);
    await client.request("append", { entries: [user("in the first")] });
    const first = await client.request("get_state");
    await client.request("new_session");
    await client.request("append", { entries: [user("in the second")] });
    await client.request("open_session", { sessionId: first.sessionId });
    kill(client);
    await client.request("append", { sessionId: first.sessionId, entries: [user("more")] });
    expect((await client.request("get_messages", { sessionId: first.sessionId })).messages).toHaveLength(2);
    await client.request("close_session", { sessionId: first.sessionId });
    kill(client);
    const closed = client.request("get_messages", { sessionId: first.sessionId });
    await expect(closed).rejects.toMatchObject({ name: "session_not_found" });
    expect(await textsOf(client)).toEqual(["in the second"]);
  });

  test("what cannot be sent again fails with outcome_unknown, and only that", async () => {
    const client = await begun(store);
    // The command waits until its server is dead.
    process.kill(client.pid as number, "SIGSTOP");
    const outcomes = Promise.allSettled([
      client.request("get_messages"),
      client.request("append", { entries: [user("y")] }),
      client.request("repair_session"),
      client.request("append", { entries: [user("z")] }),
    ]);
    await new Promise(setImmediate);
    kill(client);
    expect(await outcomes).toMatchObject([
      { status: "fulfilled" },
      { status: "fulfilled" },
      { status: "rejected", reason: { name: "outcome_unknown", data: { command: "repair_session" } } },
      { status: "fulfilled" },
    ]);
    expect(await textsOf(client)).toEqual(["x", "y", "z"]);
  });

  test("a hook that was asked by the dead server is asked again by the next", async () => {
    let asked = 0;
    const aborted: boolean[] = [];
    const client: SpawnedClient = await spawned(store, {
      hooks: {
        session_before_fork: (_, { signal }) => {
          asked++;
          if (asked > 1) return { cancel: true };
          kill(client);
          return new Promise((resolve) => {
            signal.addEventListener("abort", () => {
              aborted.push(signal.aborted);
              resolve({});
            });
          });
        },
      },
    });
    await client.request("append", { entries: [user("x", { id: "a" })] });
    expect(await client.request("fork", { entryId: "a" })).toMatchObject({ cancelled: true, reason: "hook" });
    expect([asked, aborted]).toEqual([2, [true]]);
  });

  test("without a current session there is none after a restart", SWEEP, async () => {
    const client = await begun(store);
    const restarts = restartsOf(client);
    await client.request("close_session");
    kill(client);
    await expect(client.request("get_state")).rejects.toMatchObject({ name: "no_session" });
    expect(restarts).toMatchObject([{ state: null }]);
  });

  test("a client with a leaf of its own is there again after a restart, in every session", async () => {
    const client = await spawned(store, { leaf: "own", clientInfo: { name: "agent" } });
    const { sessionId: first, sessionFile, head } = await client.request("get_state");
    expect(head).toMatch(/^agent-/);
    await client.request("append", { entries: [user("own")] });
    kill(client);
    await client.request("append", { entries: [user("own again")] });
    expect(await client.request("get_state")).toMatchObject({ head, sharedLeafId: null, messageCount: 2 });
    const { sessionId: second } = await client.request("new_session");
    await client.request("append", { entries: [user("shared")] });
    await client.request("open_session", { sessionPath: sessionFile as string, head: "other" });
    kill(client);
    await client.request("append", { entries: [user("shared again")] });
    await client.request("append", { entries: [user("other")], sessionId: first });
    expect(await client.request("get_state", { sessionId: second })).not.toHaveProperty("head");
    expect((await client.request("list_heads", { sessionId: second })).heads).toEqual([]);
    expect(await client.request("get_state", { sessionId: first })).toMatchObject({ head: "other", messageCount: 1 });
    const { heads } = await client.request("list_heads", { sessionId: first });
    expect(heads.map(({ name }) => name)).toEqual(["other", head]);
  });

  test("a session that is gone is not replaced by another: writes to it fail", async () => {
    const client = await begun(store);
    const restarts = restartsOf(client);
    const { sessionFile } = await client.request("get_state");
    process.kill(client.pid as number, "SIGSTOP");
    const sent = client.request("append", { entries: [user("y")] });
    rmSync(sessionFile as string, { recursive: true });
    kill(client);
    await expect(sent).rejects.toMatchObject({ name: "outcome_unknown" });
    await expect(client.request("append", { entries: [user("z")] })).rejects.toMatchObject({ name: "no_session" });
    expect(restarts).toMatchObject([{ state: null }]);
    await client.request("new_session");
    await client.request("append", { entries: [user("in another")] });
    expect(await textsOf(client)).toEqual(["in another"]);
  });

  test("a session that is not on disk has the same entries after a restart, each once, with their keys", async () => {
    const client = await begun(store, { maxReplyBytes: 4096 });
    const restarts = restartsOf(client);
    const { leafId } = await client.request("get_state");
    const { sessionId } = await client.request("new_session", { name: "n", expectedLeafId: leafId });
    const model = { provider: "p", modelId: "m".repeat(200), idempotencyKey: "k" };
    await client.request("set_model", model);
    for (let i = 0; i < 20; i++) await client.request("set_model", { provider: "p", modelId: "m".repeat(200) });
    const before: unknown[] = [];
    for await (const { entries } of client.pages("get_entries")) before.push(...entries);
    kill(client);
    const after: unknown[] = [];
    await client.request("set_model", model);
    for await (const { entries } of client.pages("get_entries")) after.push(...entries);
    const strip = (entries: unknown[]) => entries.map((entry) => ({ ...(entry as object), _batch: undefined }));
    expect(strip(after)).toEqual(strip(before));
    expect(restarts).toMatchObject([{ state: { sessionId, sessionName: "n", entryCount: before.length } }]);
  });

  test("a session that is not on disk yet is made again where it was to be, and no hook is asked", async () => {
    let asked = 0;
    const client = await begun(store, {
      args: ["--session", join(temporaryFolder(), `first.${store}`)],
      hooks: { session_before_switch: () => ({ cancel: ++asked > 1 }) },
    });
    const made = await client.request("new_session");
    kill(client);
    const state = await client.request("get_state");
    expect(state.sessionId).toBe(made.sessionId);
    expect(dirname(state.sessionFile as string)).toBe(dirname(made.sessionFile as string));
    expect(asked).toBe(1);
  });

  test("the model of the command line is also that of sessions that are made after a restart", async () => {
    const client = await begun(store, { args: ["--provider", "p", "--model", "m", "--name", "n"] });
    const before = await entriesOf(client);
    kill(client);
    expect(await entriesOf(client)).toEqual(before);
    await client.request("new_session");
    expect(await client.request("get_state")).toMatchObject({ sessionName: null, model: { provider: "p", id: "m" } });
  });

  test("closing does what was asked before, also when the server dies meanwhile, and leaves no server", async () => {
    const client = await spawned(store);
    const asked = Array.from({ length: 30 }, (_, i) => client.request("append", { entries: [user(`${i}`)] }));
    const closed = client.close();
    kill(client);
    expect(await Promise.all(asked)).toHaveLength(30);
    await closed;
    expect(client.pid).toBeUndefined();
  });

  test("a program that is there no more cannot take the place of one that died", async () => {
    const node = join(temporaryFolder(), "node");
    symlinkSync(process.execPath, node);
    const client = await begun(store, { program: [node, PROGRAM] });
    process.kill(client.pid as number, "SIGSTOP");
    const [write, read] = [client.request("append", { entries: [user("y")] }), client.request("get_state")];
    const outcomes = Promise.allSettled([write, read]);
    rmSync(node);
    kill(client);
    expect(await outcomes).toMatchObject([
      { reason: { name: "outcome_unknown" } },
      { reason: { name: "connection_closed", message: expect.stringContaining("There is no program at") } },
    ]);
    await client.close();
  });
});

test("a session in memory dies with its server, which is said", async () => {
  const client = await begun("jsonl", { args: ["--no-session"] });
  kill(client);
  await expect(client.request("get_messages")).rejects.toMatchObject({ name: "connection_closed" });
  await client.close();
});

test("without survival, nothing is started again and nothing is sent again", async () => {
  const client = await spawned("jsonl", { survive: false });
  const { entryIds } = await client.request("append", { entries: [user("x")] });
  const { entry } = await client.request("get_entry", { entryId: entryIds[0] });
  expect(entry).not.toHaveProperty("_batch");
  process.kill(client.pid as number, "SIGSTOP");
  const outcome = client.request("append", { entries: [user("y")] });
  await new Promise(setImmediate);
  kill(client);
  await expect(outcome).rejects.toMatchObject({ name: "outcome_unknown" });
  await expect(client.request("get_state")).rejects.toMatchObject({ name: "connection_closed" });
});

test("a server that always dies is given up, and what is asked of it fails", async () => {
  const client = await begun("jsonl");
  client.onRestart(() => kill(client));
  kill(client);
  const write = client.request("append", { entries: [user("y")] });
  const outcomes = await Promise.allSettled([write, client.request("get_state")]);
  expect(outcomes.map(({ status }) => status)).toContain("rejected");
  await expect(client.request("get_state")).rejects.toMatchObject({ name: "connection_closed" });
});

test(
  "a write that was answered from memory alone is sent again when the server dies before it is known",
  UNIT,
  async () => {
    const state = { ...STATE, persisted: false };
    const first = new ScriptedServer(({ method, id }, server) => {
      if (method === "initialize") return { state };
      // The first questions are those of the start.
      if (method === "get_state" && id === 2) return state;
      if (method === "get_entries") return { entries: [] };
      if (method === "set_model") return { entryId: "a" };
      if (method === "get_state") server.die();
      return undefined;
    });
    const second = new ScriptedServer(({ method }) => {
      if (method === "initialize") return { state };
      if (method === "get_state") return state;
      return method === "get_entries" ? { entries: [] } : { entryId: "b" };
    });
    const client = await scriptedClient([first, second]);
    const asked = ["m", "n", "o"].map((modelId) => client.request("set_model", { provider: "p", modelId }));
    await settled();
    expect(await Promise.all(asked)).toEqual([{ entryId: "b" }, { entryId: "b" }, { entryId: "b" }]);
    const sentTo = (server: ScriptedServer) =>
      server.heard
        .filter(({ method }) => method === "set_model")
        .map(({ params }) => [params.modelId, params.idempotencyKey]);
    expect(sentTo(second)).toEqual(sentTo(first));
    expect(sentTo(second).map(([modelId]) => modelId)).toEqual(["m", "n", "o"]);
  },
);
