/** Several servers that are started at once with one new `--session-id`. */

import { describe, expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { heard } from "../../support/hosts.ts";
import { type HereServer, type Json, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";
import { said, texts } from "../../support/shared-session.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

acrossTiers(describe, ["jsonl", "v2"])("the servers of one new id, in the store %s,", (store) => {
  const ARGS = ["--session-id", "01991f6e-0000-7000-8000-000000000001", "--store", store];

  /** Servers of the id, each of which has begun it as a new session. */
  async function begun(...options: string[][]): Promise<HereServer[]> {
    const place = temporaryPlace();
    const servers = options.map((more, n) =>
      // Session files have names that begin with the time.
      serveHere([...ARGS, ...more], { place, env: { now: () => Date.UTC(2026, 1, 1) + 1000 * n } }),
    );
    for (const server of servers) expect(await server.result("get_state")).toMatchObject({ persisted: false });
    return servers;
  }

  test("write to one session, whatever their first write is", async () => {
    const setUp = ["--provider", "p", "--model", "m", "--name", "mine"];
    const [one, two, three, four] = await begun([], [], setUp, []);
    const { leafId } = await one.result("append", said("one"));
    const joined = await two.result("append", said("two"));
    expect((await two.result("get_entry", { entryId: joined.entryIds[0] })).entry.parentId).toBe(leafId);
    expect((await heard(two, "session_append")).entryIds).toEqual([leafId]);
    await three.result("append", { ...said("three"), idempotencyKey: "k" });
    expect((await four.result("append", { ...said("three"), idempotencyKey: "k" })).entryIds).toHaveLength(1);
    await four.result("set_session_name", { name: "of all" });
    for (const server of [one, two, three, four]) {
      expect(await texts(server)).toEqual(["one", "two", "three"]);
      expect((await server.result("get_state")).sessionName).toBe("of all");
      expect(server.events.filter(({ method }) => method === "session_damage")).toEqual([]);
    }
    expect((await one.result("list_sessions")).sessions).toHaveLength(1);
  });

  test("write only where they expect, and alone if they join nobody", async () => {
    const [one, two, three] = await begun([], [], ["--attach", "off"]);
    const { leafId } = await one.result("append", said("one"));
    const { data } = await two.failure("append", { ...said("two"), expectedLeafId: null });
    expect(data).toMatchObject({ name: "content_modified", leafId });
    expect((await three.failure("append", said("three"))).data.name).toBe("session_locked");
    for (const server of [one, two]) await server.finish();
    await three.result("append", said("three"));
    expect(await texts(three)).toEqual(["one", "three"]);
  });

  test("keep what was set before the other began, and say how to go on", async () => {
    const [one, two] = await begun([], []);
    await two.result("set_model", { provider: "p", modelId: "m" });
    await one.result("append", said("one"));
    expect((await two.failure("append", said("two"))).data.name).toBe("already_exists");
    expect((await two.result("get_state")).model).toMatchObject({ id: "m" });
  });

  test("write to one session when they begin it at the same moment", SYSTEM, async () => {
    const place = temporaryPlace();
    const servers = [1, 2, 3, 4].map(() => spawnServer(ARGS, "lines", place));
    const answers = await Promise.all(
      servers.map(async (server, n): Promise<Json> => {
        await server.result("get_state");
        return server.result("append", { entries: [user(`text ${n}`)] });
      }),
    );
    expect(answers.every(({ entryIds }) => entryIds.length === 1)).toBe(true);
    for (const server of servers)
      expect((await texts(server)).sort()).toEqual(["text 0", "text 1", "text 2", "text 3"]);
    for (const server of servers) await server.finish();
  });
});
