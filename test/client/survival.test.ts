/**
 * What a client keeps when its server dies, on every store.
 *
 * @module-tag system
 */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { SpawnedClient } from "../../src/client/index.ts";
import { user } from "../support/drafts.ts";
import { Random } from "../support/random.ts";
import { type Place, temporaryPlace } from "../support/server.ts";
import { kill, survivingClient, textsOf, writesUnderKills } from "../support/survival.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

async function spawned(...given: Parameters<typeof survivingClient>): Promise<SpawnedClient> {
  const client = await survivingClient(...given);
  onTestFinished(() => client.close());
  return client;
}

acrossTiers(describe, ["jsonl", "v2"])("--store %s", (store) => {
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
      const place = temporaryPlace();
      const client = await spawned(store, {}, place);
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
      const types = (await client.request("get_entries")).entries
        .map(({ type }) => type)
        .filter((type) => type !== "custom");
      expect(
        nodes
          .filter(({ parentId }) => parentId === "a")
          .map(({ id }) => id)
          .sort(),
      ).toEqual(["b", "c"]);
      expect(types.sort()).toEqual(["message", "message", "message", "message", "model_change", "session_info"]);
      expect(await textsOf(client)).toEqual(["one", "two", "four"]);
      expect(sessionFilesIn(place, sessionFile as string)).toBe(2);
    },
  );

  test("a session that is not on disk yet keeps its id, its name and its model", async () => {
    const client = await spawned(store, { args: ["--name", "first"] });
    const before = await client.request("get_state");
    await client.request("set_model", { provider: "p", modelId: "m" });
    kill(client);
    const after = await client.request("get_state");
    expect(after).toMatchObject({
      sessionId: before.sessionId,
      sessionName: "first",
      model: { provider: "p", id: "m" },
      persisted: false,
    });
    const { sessionId } = await client.request("new_session", { name: "second" });
    kill(client);
    await client.request("set_thinking_level", { level: "high" });
    kill(client);
    await client.request("append", { entries: [user("x")] });
    kill(client);
    expect(await client.request("get_state")).toMatchObject({
      sessionId,
      sessionName: "second",
      thinkingLevel: "high",
    });
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
    await expect(client.request("get_messages", { sessionId: first.sessionId })).rejects.toMatchObject({
      name: "session_not_found",
    });
    expect(await textsOf(client)).toEqual(["in the second"]);
  });

  test("what cannot be sent again fails with outcome_unknown, and only that", async () => {
    const client = await spawned(store);
    await client.request("append", { entries: [user("x")] });
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
});

test("a session in memory dies with its server, which is said", async () => {
  const client = await spawned("jsonl", { args: ["--no-session"] });
  await client.request("append", { entries: [user("x")] });
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
  const place = temporaryPlace();
  const client = await spawned("jsonl", {}, place);
  await client.request("append", { entries: [user("x")] });
  client.onRestart(() => kill(client));
  kill(client);
  const outcomes = await Promise.allSettled([
    client.request("append", { entries: [user("y")] }),
    client.request("get_state"),
  ]);
  expect(outcomes.map(({ status }) => status)).toContain("rejected");
  await expect(client.request("get_state")).rejects.toMatchObject({ name: "connection_closed" });
});

/** Returns how many sessions lie beside a session. */
function sessionFilesIn(_place: Place, sessionFile: string): number {
  return readdirSync(join(sessionFile, "..")).filter((name) => /\.jsonl$|\.v2$/.test(name)).length;
}
