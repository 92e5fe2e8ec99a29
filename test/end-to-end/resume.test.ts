/** Going on where a host was when its server ended: `initialize` with `resume`. */

import { describe, expect, test } from "vitest";
import { STORES, sessionOf } from "../support/hosts.ts";
import type { Json } from "../support/server.ts";
import { said, turn } from "../support/shared-session.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

/** The cursor of a host that got some events, as it keeps it from the result of `initialize` on. */
function cursorAfter(cursor: Json, events: Json[]): Json {
  const next = { ...cursor };
  for (const { method, params } of events) {
    if (method === "session_append") next.lastEntryId = params.entryIds.at(-1);
    if (params && "leafId" in params) next.leafId = params.leafId;
  }
  return next;
}

acrossTiers(describe, STORES)("on a session of %s", (store) => {
  function begin() {
    const { open, spawn } = sessionOf(store);
    return { open: () => open([]), spawn: () => spawn([]) };
  }

  test(
    "a host whose server was killed is told what others did meanwhile, and then goes on without a gap",
    SYSTEM,
    async () => {
      const { open, spawn } = begin();
      const killed = spawn();
      const { cursor, seq } = await killed.result("initialize");
      expect([cursor.lastEntryId, seq]).toEqual([null, 0]);
      await killed.result("append", said("mine"));
      const other = open();
      const { entryIds } = await other.result("append", said("yours"));
      const getReported = (): string[] => killed.events.flatMap(({ params }) => params?.entryIds ?? []);
      while (!getReported().includes(entryIds[0])) await killed.result("get_state");
      const kept = cursorAfter(cursor, killed.events);
      killed.process.kill("SIGKILL");
      const missed = await other.result("append", said("missed"));
      await other.result("branch", { entryId: entryIds[0] });
      await other.result("append", said("missed, too"));
      await other.result("branch", { entryId: getReported()[0] });
      const again = open();
      const { resumed, state } = await again.result("initialize", { resume: { ...kept, epoch: 1, lastSeq: 4 } });
      expect(resumed.type).toBe("replay");
      expect(resumed.events.map(({ event }: Json) => event)).toEqual(["session_append", "session_tree"]);
      const [{ entryIds: ids, entries, leafId, origin }, tree] = resumed.events;
      expect([ids[0], ids.length, leafId, origin]).toEqual([missed.entryIds[0], 2, missed.entryIds[0], "foreign"]);
      expect(entries.map(({ message }: Json) => message.content)).toEqual(["missed", "missed, too"]);
      expect(tree).toMatchObject({ newLeafId: state.leafId, oldLeafId: leafId });
      // From here on it gets events: every entry once.
      const later: string[] = [];
      for (let n = 0; n < 5; n++) {
        later.push(...(await other.result("append", said(`later ${n}`))).entryIds);
        await turn();
      }
      later.push(...(await again.result("append", said("mine again"))).entryIds);
      await again.result("get_state");
      expect(again.events.flatMap(({ params }) => params.entryIds ?? [])).toEqual(later);
    },
  );

  test("a host that missed nothing is told so, by whichever server, and of what was not answered if it was done", async () => {
    const { open } = begin();
    const first = open();
    const { cursor } = await first.result("initialize");
    await first.result("append", said("one"));
    await first.result("get_state");
    const kept = cursorAfter(cursor, first.events);
    first.send({ jsonrpc: "2.0", id: "unheard", method: "append", params: said("two") });
    await first.finish();
    const second = open();
    const result = await second.result("initialize", { resume: kept });
    expect(result.resumed).toMatchObject({ type: "replay", events: [{ event: "session_append" }] });
    expect(result.resumed.events[0].entries[0].message.content).toBe("two");
    const third = open();
    expect((await third.result("initialize", { resume: result.cursor })).resumed).toEqual({
      type: "replay",
      events: [],
    });
  });

  test("a cursor that says nothing of the session is answered with where that is", async () => {
    const { open } = begin();
    const first = open();
    const { entryIds } = await first.result("append", said("one"));
    const { sessionId } = await first.result("get_state");
    const snapshot = { type: "snapshot", sessionId, leafId: entryIds[0], lastEntryId: entryIds[0], entryCount: 1 };
    for (const rest of [
      {},
      { epoch: 9_007_199_254_740_991, lastSeq: 3 },
      { lastEntryId: "nowhere" },
      { lastEntryId: entryIds[0], leafId: "nowhere" },
      { lastEntryId: "x".repeat(1 << 20) },
    ])
      expect((await open().result("initialize", { resume: { sessionId, ...rest } })).resumed).toEqual(snapshot);
    const elsewhere = { sessionId: "another", lastEntryId: entryIds[0] };
    expect((await open().result("initialize", { resume: elsewhere })).resumed).toEqual({
      type: "missing",
      sessionId: "another",
    });
    for (const wrong of [{}, { sessionId, lastSeq: -1 }, { sessionId, epoch: 1.5 }, { sessionId, lastEntryId: 7 }, "x"])
      expect((await open().failure("initialize", { resume: wrong })).code).toBe(-32602);
  });

  test("who missed more than 1,000 entries, or a megabyte, is told where to read them", SYSTEM, async () => {
    const { open } = begin();
    const first = open();
    const { cursor } = await first.result("initialize");
    const many = Array.from({ length: 1000 }, (_, n) => said(`entry ${n}`).entries[0]);
    const { entryIds } = await first.result("append", { entries: many });
    const typeOf = async (): Promise<string> => (await open().result("initialize", { resume: cursor })).resumed.type;
    expect(await typeOf()).toBe("replay");
    await first.result("append", said("one more"));
    expect(await typeOf()).toBe("snapshot");
    const resume = { ...cursor, lastEntryId: entryIds.at(-1), leafId: entryIds.at(-1) };
    expect((await open().result("initialize", { resume })).resumed.type).toBe("replay");
    await first.result("append", said("m".repeat(1 << 20)));
    expect((await open().result("initialize", { resume })).resumed.type).toBe("snapshot");
  });
});
