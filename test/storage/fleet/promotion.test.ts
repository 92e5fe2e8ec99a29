/** What becomes of copies when another server of the database is promoted, which has all or lacks the last changes. */

import { describe, expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import { assistant, user } from "../../support/drafts.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { failed, followed, line, lines, Machine, written } from "../../support/fleet-machine.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { HereLives } from "../../support/proof.ts";
import type { Wire } from "../../support/server.ts";
import { textsOf } from "../../support/sessions.ts";

describe.each(["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  const table = (): FleetTable => Object.assign(new FleetTable(), { past: [] });

  test("the session is taken anew, in a greater epoch, before anything is written", async () => {
    const machine = new Machine(kind, table());
    const log = machine.create();
    await written(log, 0, 1);
    machine.fleet.table.promote(0);
    const first = machine.fleet.calls.length;
    await written(log, 2);
    expect(machine.fleet.calls.slice(first)).toEqual(["take", "append"]);
    expect(machine.fleet.table.rows.get(SESSION)?.epochs).toEqual([1, 1, 2]);
    await log.ready?.();
    expect(machine.fleet.calls.slice(first)).toEqual(["take", "append"]);
    log.close();
  });

  test("an epoch is not given again, although the database forgot that it was", async () => {
    const machine = new Machine(kind, table());
    const log = machine.create();
    await written(log, 0);
    log.unlock();
    await log.ready?.();
    // The second taking is forgotten.
    machine.fleet.table.promote(1);
    expect(machine.fleet.table.rows.get(SESSION)?.epoch).toBe(1);
    await written(log, 1);
    expect(machine.fleet.table.rows.get(SESSION)?.epochs).toEqual([1, 3]);
    log.close();
  });

  test.each(["nothing", "above"] as const)(
    "a line that was refused stays away when it arrives at the next server; a fleet that gives an epoch twice is found out (breaks %s)",
    async (breaks) => {
      const machine = new Machine(kind, table(), "one", { tries: 1 });
      const log = machine.create();
      await written(log, 0);
      log.unlock();
      await log.ready?.();
      machine.fleet.breaks = breaks;
      const first = machine.fleet.calls.length;
      // A pooler holds the append back until another server is there, which lacks the taking before it.
      machine.fleet.faultAt = (call) => {
        if (call === first + 1) machine.fleet.table.promote(1);
        return (["late", undefined, "before", "before"] as const)[call - first];
      };
      log.append(lines(1));
      await expect(log.commit()).rejects.toEqual(failed("storage_failed"));
      expect(machine.fleet.table.linesOf(SESSION).includes(line(1))).toBe(breaks === "above");
      log.close();
    },
  );

  test("what was acknowledged and is lost is given back with the next write, a whole session, too", async () => {
    for (const lost of [1, 2, 10]) {
      const machine = new Machine(kind, table());
      const log = machine.create();
      await written(log, 0);
      await written(log, 1);
      await written(log, 2);
      machine.fleet.table.promote(lost);
      expect(machine.fleet.table.linesOf(SESSION).length).toBeLessThan(3);
      await written(log, 3);
      expect(machine.fleet.table.linesOf(SESSION)).toEqual([0, 1, 2, 3].map(line));
      machine.fleet.table.check();
      log.close();
    }
  });

  test("it is given back without a write by whoever has the session open, also who only reads", async () => {
    const one = new Machine(kind, table());
    const log = one.create();
    await written(log, 0);
    await written(log, 1);
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([line(0)]);
    const reading = two.store.open(two.file);
    await followed(reading);
    expect(textsOf(reading)).toEqual([0, 1].map(line));
    log.close();
    for (const lost of [2, 20]) {
      one.fleet.table.promote(lost);
      one.fleet.table.leave();
      await followed(reading);
      expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1].map(line));
      one.fleet.table.check();
    }
    reading.close();
  });

  test("a whole session is given back by who only reads, and had all of it from the beginning", async () => {
    const one = new Machine(kind, table());
    const log = one.create();
    await written(log, 0);
    await written(log, 1);
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([0, 1].map(line));
    const reading = two.store.open(two.file);
    await followed(reading);
    log.close();
    one.fleet.table.promote(20);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([]);
    await followed(reading);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1].map(line));
    one.fleet.table.check();
    reading.close();
  });

  test("a copy of which the fleet has another session since then takes it from nobody", async () => {
    const one = new Machine(kind, table());
    const log = one.create();
    await written(log, 0);
    await written(log, 1);
    log.unlock();
    one.fleet.table.promote(20);
    one.fleet.table.leave();
    const two = new Machine(kind, one.fleet.table, "two");
    const theirs = two.create();
    theirs.append([bytesOf(userText(id(9), null))]);
    await theirs.commit();
    one.fleet.leasesEnd = true;
    const first = one.fleet.calls.length;
    await followed(log);
    expect(one.fleet.calls.slice(first)).toContain("look");
    expect(one.fleet.calls.slice(first)).not.toContain("take");
    expect(one.fleet.table.rows.get(SESSION)?.holder).toBe(two.fleet.holder);
    // When that has more, it is still the others'.
    theirs.append([bytesOf(userText(id(10), id(9)))]);
    await theirs.commit();
    await followed(log);
    expect(one.fleet.calls.slice(first)).not.toContain("take");
    expect(textsOf(log)).toEqual([0, 1].map(line));
  });

  test("it is given back without a write, too, after a write that was refused", async () => {
    const one = new Machine(kind, table());
    const log = one.create();
    await written(log, 0);
    await written(log, 1);
    for (const lost of [2, 20]) {
      one.fleet.faultAt = () => "before";
      log.append(lines(2));
      await expect(log.commit()).rejects.toEqual(failed("storage_failed"));
      await log.ready?.();
      expect(() => log.append(lines(2))).toThrow(failed("storage_failed"));
      one.fleet.faultAt = () => undefined;
      one.fleet.table.promote(lost);
      one.fleet.table.leave();
      await followed(log);
      expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1].map(line));
      one.fleet.table.check();
    }
    await written(log, 2);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1, 2].map(line));
  });

  test("it is given back, too, where that failed at first, and by who has opened a copy that had all of it", async () => {
    const one = new Machine(kind, table());
    const log = one.create();
    await written(log, 0);
    await written(log, 1);
    for (const isAsked of [false, true]) {
      log.unlock();
      one.fleet.table.promote(1);
      one.fleet.table.leave();
      one.fleet.faultAt = (_, name) => (name === "append" ? "before" : undefined);
      // Asked by a host that is about to write, and only followed.
      await (isAsked ? log.ready?.() : followed(log));
      expect(one.fleet.table.linesOf(SESSION)).toEqual([line(0)]);
      one.fleet.faultAt = () => undefined;
      await followed(log);
      expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1].map(line));
    }
    log.close();
    const again = new Machine(kind, one.fleet.table, "again", { disk: one.disk });
    const reading = again.store.open(again.file);
    await followed(reading);
    one.fleet.table.promote(2);
    one.fleet.table.leave();
    await followed(reading);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1].map(line));
    reading.close();
  });

  test("it is given back, too, where another server has answered others since the session was taken", async () => {
    const one = new Machine(kind, table());
    const log = one.create();
    await written(log, 0);
    log.unlock();
    const take = one.fleet.take.bind(one.fleet);
    one.fleet.take = async (...given) => {
      const taking = await take(...given);
      one.fleet.take = take;
      // Before that answer is read, another session's question has been answered by a server that has nothing.
      one.fleet.table.promote(20);
      await one.fleet.look("another");
      return taking;
    };
    await log.ready?.();
    expect(one.fleet.table.linesOf(SESSION)).toEqual([]);
    await followed(log);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([line(0)]);
    log.close();
  });

  test.each([
    ["as much, and let go", 2, false],
    ["less, and have it", 3, true],
  ])("where others have written %s, a copy that is only read shows what they wrote", async (_, count, isHeld) => {
    const one = new Machine(kind, table());
    const log = one.create();
    await written(log, 0);
    for (let n = 1; n < count; n++) await written(log, n);
    log.unlock();
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([line(0)]);
    one.fleet.table.promote(count - 1);
    one.fleet.table.leave();
    const theirs = two.store.open(two.file);
    theirs.append([bytesOf(userText(id(9), id(0)))]);
    await theirs.commit();
    if (!isHeld) theirs.close();
    await followed(log);
    expect(log.refresh().kind).toBe("replaced");
    const now = log.reopen();
    expect(textsOf(now)).toEqual(one.fleet.table.linesOf(SESSION));
    expect(textsOf(now)).toHaveLength(2);
    expect(one.aside).toEqual(Array.from({ length: count - 1 }, (_, n) => line(n + 1)));
    for (const one of [log, now, theirs]) one.close();
  });

  test("where others have written since, the copy that has it gives way, and keeps it aside", async () => {
    const one = new Machine(kind, table());
    const log = one.create();
    await written(log, 0);
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([line(0)]);
    await written(log, 1);
    one.fleet.table.promote(1);
    one.fleet.table.leave();
    const theirs = two.store.open(two.file);
    theirs.append([bytesOf(userText(id(2), id(0)))]);
    await theirs.commit();
    theirs.close();
    const late = userText(id(3), id(1));
    log.append([bytesOf(late)]);
    await expect(log.commit()).rejects.toEqual(failed("content_modified"));
    await log.ready?.();
    expect(log.refresh().kind).toBe("replaced");
    expect(one.aside).toEqual([late, line(1)]);
    const now = log.reopen();
    log.close();
    expect(textsOf(now)).toEqual([line(0), userText(id(2), id(0))]);
    now.close();
  });

  test("what gave way is written anew when its request is repeated with its key", async () => {
    const shared = table();
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
