/** What becomes of copies when another server of the database is promoted, which has all or lacks the last changes. */

import { describe, expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { assistant, user } from "../../support/drafts.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { failed, followed, line, lines, Machine, type MachineKind, written } from "../../support/fleet-machine.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { HereLives } from "../../support/proof.ts";
import type { Wire } from "../../support/server.ts";
import { textsOf } from "../../support/sessions.ts";

const tableWithPast = (): FleetTable => Object.assign(new FleetTable(), { past: [] });

/** A machine with a session, each line of which is a commit of its own. */
async function writing(kind: MachineKind, count: number, tries = 0) {
  const one = new Machine(kind, tableWithPast(), "one", { tries });
  const log = one.create();
  for (let n = 0; n < count; n++) await written(log, n);
  const { fleet } = one;
  const { table } = fleet;
  return { one, log, fleet, table, inFleet: () => table.linesOf(SESSION), row: () => table.rows.get(SESSION) };
}

/** Another machine with the same copy, or a part of it, that has opened it. */
async function opening(kind: MachineKind, one: Machine, texts: readonly string[]): Promise<Log> {
  const two = new Machine(kind, one.fleet.table, "two");
  await two.put(texts);
  return two.store.open(two.file);
}

async function commits(log: Log, ...texts: string[]): Promise<void> {
  log.append(texts.map((text) => bytesOf(text)));
  await log.commit();
}

/** Ways in which a copy comes to have the two lines that are lost, each with what goes on before that. */
const COPIES: Readonly<
  Record<string, (kind: MachineKind, one: Machine, log: Log) => Promise<[copy: Log, before?: () => Promise<void>]>>
> = {
  "who only reads, and lacked some of it": async (kind, one, log) => {
    const reading = await opening(kind, one, [line(0)]);
    await followed(reading);
    expect(textsOf(reading)).toEqual([0, 1].map(line));
    log.close();
    return [reading];
  },
  "who only reads, and had all of it from the beginning": async (kind, one, log) => {
    const reading = await opening(kind, one, [0, 1].map(line));
    await followed(reading);
    log.close();
    return [reading];
  },
  "who has opened the copy again": async (kind, one, log) => {
    log.close();
    const again = new Machine(kind, one.fleet.table, "again", { disk: one.disk });
    const reading = again.store.open(again.file);
    await followed(reading);
    return [reading];
  },
  "the writer, after a write that was refused": async (_, one, log) => [
    log,
    async () => {
      one.fleet.faultAt = () => "before";
      log.append(lines(2));
      await expect(log.commit()).rejects.toEqual(failed("storage_failed"));
      await log.ready?.();
      expect(() => log.append(lines(2))).toThrow(failed("storage_failed"));
      one.fleet.faultAt = () => undefined;
    },
  ],
};

describe.each(["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  test("the session is taken anew, in a greater epoch, before anything is written", async () => {
    const { log, fleet, table, row } = await writing(kind, 2);
    table.promote(0);
    const first = fleet.calls.length;
    await written(log, 2);
    await log.ready?.();
    expect([fleet.calls.slice(first), row()?.epochs]).toEqual([
      ["take", "append"],
      [1, 1, 2],
    ]);
  });

  test("an epoch is not given again, although the database forgot that it was", async () => {
    const { log, table, row } = await writing(kind, 1);
    log.unlock();
    await log.ready?.();
    // The second taking is forgotten.
    table.promote(1);
    expect(row()?.epoch).toBe(1);
    await written(log, 1);
    expect(row()?.epochs).toEqual([1, 3]);
  });

  test.each(["nothing", "above"] as const)(
    "a line that was refused stays away when it arrives at the next server; a fleet that gives an epoch twice is found out (breaks %s)",
    async (breaks) => {
      const { log, fleet, table, inFleet } = await writing(kind, 1, 1);
      log.unlock();
      await log.ready?.();
      fleet.breaks = breaks;
      const first = fleet.calls.length;
      // A pooler holds the append back until another server is there, which lacks the taking before it.
      fleet.faultAt = (call) => {
        if (call === first + 1) table.promote(1);
        return (["late", undefined, "before", "before"] as const)[call - first];
      };
      await expect(written(log, 1)).rejects.toEqual(failed("storage_failed"));
      expect(inFleet().includes(line(1))).toBe(breaks === "above");
    },
  );

  test.each([1, 2, 10])(
    "what was acknowledged and is lost is given back with the next write (%i changes)",
    async (lost) => {
      const { log, table, inFleet } = await writing(kind, 3);
      table.promote(lost);
      expect(inFleet().length).toBeLessThan(3);
      await written(log, 3);
      expect(inFleet()).toEqual([0, 1, 2, 3].map(line));
      table.check();
    },
  );

  test.each(Object.keys(COPIES))("it is given back without a write by %s", async (who) => {
    const { one, log, table, inFleet } = await writing(kind, 2);
    const [copy, before] = await COPIES[who](kind, one, log);
    for (const lost of [2, 20]) {
      await before?.();
      table.promote(lost);
      table.leave();
      expect(inFleet().length).toBeLessThan(2);
      await followed(copy);
      expect(inFleet()).toEqual([0, 1].map(line));
      table.check();
    }
    if (before) await written(copy, 2);
    expect(inFleet()).toEqual([0, 1, ...(before ? [2] : [])].map(line));
  });

  test.each([false, true])(
    "it is given back, too, where that failed at first (asked by who is about to write: %s)",
    async (isAsked) => {
      const { log, fleet, table, inFleet } = await writing(kind, 2);
      log.unlock();
      table.promote(1);
      table.leave();
      fleet.faultAt = (_, name) => (name === "append" ? "before" : undefined);
      await (isAsked ? log.ready?.() : followed(log));
      expect(inFleet()).toEqual([line(0)]);
      fleet.faultAt = () => undefined;
      await followed(log);
      expect(inFleet()).toEqual([0, 1].map(line));
    },
  );

  test("it is given back, too, where another server has answered others since the session was taken", async () => {
    const { log, fleet, table, inFleet } = await writing(kind, 1);
    log.unlock();
    const take = fleet.take.bind(fleet);
    fleet.take = async (...given) => {
      const taking = await take(...given);
      fleet.take = take;
      // Before that answer is read, another session's question has been answered by a server that has nothing.
      table.promote(20);
      await fleet.look("another");
      return taking;
    };
    await log.ready?.();
    expect(inFleet()).toEqual([]);
    await followed(log);
    expect(inFleet()).toEqual([line(0)]);
  });

  test("a copy of which the fleet has another session since then takes it from nobody", async () => {
    const { log, fleet, table, row } = await writing(kind, 2);
    log.unlock();
    table.promote(20);
    table.leave();
    const two = new Machine(kind, table, "two");
    const theirs = two.create();
    fleet.leasesEnd = true;
    const first = fleet.calls.length;
    // When that has more, it is still the others'.
    for (const text of [userText(id(9), null), userText(id(10), id(9))]) {
      await commits(theirs, text);
      await followed(log);
      expect(fleet.calls.slice(first)).toContain("look");
      expect(fleet.calls.slice(first)).not.toContain("take");
    }
    expect([row()?.holder, textsOf(log)]).toEqual([two.fleet.holder, [0, 1].map(line)]);
  });

  test.each([
    ["as much, and let go", 2, false],
    ["less, and have it", 3, true],
  ])("where others have written %s, a copy that is only read shows what they wrote", async (_, count, isHeld) => {
    const { one, log, table, inFleet } = await writing(kind, count);
    log.unlock();
    const theirs = await opening(kind, one, [line(0)]);
    table.promote(count - 1);
    table.leave();
    await commits(theirs, userText(id(9), id(0)));
    if (!isHeld) theirs.close();
    await followed(log);
    expect(log.refresh().kind).toBe("replaced");
    expect(textsOf(log.reopen())).toEqual([line(0), userText(id(9), id(0))]);
    expect(inFleet()).toEqual([line(0), userText(id(9), id(0))]);
    expect(one.aside).toEqual(Array.from({ length: count - 1 }, (_, n) => line(n + 1)));
  });

  test("where others have written since, the copy that has it gives way, and keeps it aside", async () => {
    const { one, log, table } = await writing(kind, 1);
    const theirs = await opening(kind, one, [line(0)]);
    await written(log, 1);
    table.promote(1);
    table.leave();
    await commits(theirs, userText(id(2), id(0)));
    theirs.close();
    const late = userText(id(3), id(1));
    await expect(commits(log, late)).rejects.toEqual(failed("content_modified"));
    await log.ready?.();
    expect([log.refresh().kind, one.aside]).toEqual(["replaced", [late, line(1)]]);
    expect(textsOf(log.reopen())).toEqual([line(0), userText(id(2), id(0))]);
  });

  test("what gave way is written anew when its request is repeated with its key", async () => {
    const shared = tableWithPast();
    const server = async (name: string, seed: number): Promise<Wire> => {
      const fleet = new MemoryFleet(shared, name);
      fleet.leasesEnd = true;
      return new HereLives({ seed, fleet: fleetOptions(fleet) }).start(["--store", kind]);
    };
    const one = await server("one", 1);
    await one.result("append", { entries: [user("one"), assistant("two")] });
    const { sessionId } = await one.result("get_state");
    const two = await server("two", 2);
    await two.result("switch_session", { sessionId });
    const mine = { entries: [user("mine")], idempotencyKey: "mine" };
    await one.result("append", mine);
    shared.promote(1);
    await two.result("append", { entries: [user("theirs")] });
    // The write that finds it out is refused.
    expect((await one.failure("append", { entries: [user("next")] })).data.name).toBe("content_modified");
    const again = await one.result("append", mine);
    const there = shared.linesOf(sessionId).map((text) => JSON.parse(text));
    const texts = there.map(({ message }) => message.content.at(-1).text ?? message.content);
    expect(texts).toEqual(["one", "two", "theirs", "mine"]);
    expect(again.entryIds).toEqual([there[3].id]);
    expect(await one.result("append", mine)).toEqual(again);
    expect(shared.linesOf(sessionId)).toHaveLength(4);
  });
});
