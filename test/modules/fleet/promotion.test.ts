/** Copies after the promotion of another server of the database, which has all or misses the last changes. */

import { describe, expect, test } from "vitest";
import { toBytes } from "../../../src/core/json/json.ts";
import { FoundEntries } from "../../../src/modules/fleet/replica/acknowledged-ends.ts";
import { POWER_CUTS } from "../../support/disk.ts";
import { assistant, user } from "../../support/drafts.ts";
import { SESSION } from "../../support/lines.ts";
import { HereLives } from "../../support/proof.ts";
import type { Wire } from "../../support/server.ts";
import { failed, found, line, Machine, type MachineKind, written } from "./support/machine.ts";
import { lineOf, Scene } from "./support/scene.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "./support/table-fleet.ts";

/** Plays a scene with promotions of servers that miss so many changes. */
async function play(kind: MachineKind, script: string, options = {}): Promise<Scene> {
  const scene = new Scene(kind, options);
  scene.table.past = [];
  const steps = script.split(/promote (\d+)/);
  return scene.play(...steps.map((step, n) => (n % 2 === 0 ? step : () => scene.table.promote(Number(step)))));
}

/** The lost changes, of three lines, are uploaded again with the next write. */
const givenBack = (lost: number): string =>
  `writes 0; writes 1; writes 2; promote ${lost}; writes 3; fleet 0 1 2 3; copy 0 1 2 3`;

const SCENES: Readonly<Record<string, string>> = {
  "the session is taken anew, in a greater epoch, before anything is written":
    "writes 0 1; marks; promote 0; writes 2; asks; asked take append; epochs 1 1 2",
  // The second taking is forgotten.
  "an epoch is not given again, although the database forgot that it was":
    "writes 0; unlocks; asks; promote 1; writes 1; epochs 1 3",
  "the last commit that was acknowledged and is lost is given back with the next write": givenBack(1),
  "more of them are given back with the next write": givenBack(2),
  "a whole session is given back with the next write": givenBack(10),
  "it is given back without a write by who only reads, and lacked some of it": `
    writes 0; writes 1; two has 0; two follows; two copy 0 1; closes; promote 2; leaves; fleet; two follows; fleet 0 1
    promote 20; leaves; two follows; fleet 0 1`,
  "it is given back by who only reads, and had all of it from the beginning": `
    writes 0; writes 1; two has 0 1; two follows; closes; promote 20; fleet; two follows; fleet 0 1`,
  "it is given back by who has opened the copy again":
    "writes 0; writes 1; closes; again follows; promote 2; leaves; fleet; again follows; fleet 0 1",
  "it is given back by the writer, after writes that were refused": `
    writes 0; writes 1; cut; writes 2 !storage_failed; asks; refuses storage_failed; heals; promote 2; leaves; follows
    fleet 0 1; cut; writes 2 !storage_failed; asks; refuses storage_failed; heals; promote 20; leaves; follows; fleet 0 1
    writes 2; fleet 0 1 2`,
  "it is given back, too, where that failed at first, for who follows and for who is about to write": `
    writes 0; writes 1; unlocks; promote 1; leaves; loses append before; follows; fleet 0; heals; follows; fleet 0 1
    unlocks; promote 1; leaves; loses append before; asks; fleet 0; heals; follows; fleet 0 1`,
  "where the fleet has another session with the id since then, what was acknowledged is a branch of that": `
    writes 0; writes 1; unlocks; promote 20; leaves; two writes 9<; follows; fleet 9<; two closes; follows; finds
    fleet 9< 0 1 @9; told diverged:1; aside`,
  "a copy of which nothing was acknowledged here takes another session with its id from nobody": `
    two writes 9<; has 0 1; expires; marks; follows; asked look lines; holder two; two writes 10<9; marks; follows
    asked look lines; holder two; copy 0 1`,
  "where others have written as much, and let go, what was acknowledged is a branch, of which the host hears": `
    writes 0; writes 1; unlocks; two has 0; promote 1; leaves; two writes 9<0; two closes; follows; reopens; copy 0 9<0 1 @9
    aside; is local; asks; fleet 0 9<0 1 @9; told diverged:1; is replicated; notes 1; closes; follows; told`,
  "where others have written less, and have it, what was acknowledged is a branch as soon as they let go": `
    writes 0; writes 1; writes 2; unlocks; two has 0; promote 2; leaves; two writes 9<0; follows; reopens
    copy 0 9<0 1 2 @9; is local; fleet 0 9<0; two closes; asks; fleet 0 9<0 1 2 @9; told diverged:2; aside`,
  "where others have written since, a refused write is kept aside, and what was acknowledged is a branch": `
    writes 0; two has 0; writes 1; promote 1; leaves; two writes 2<0; two closes; writes 3<1 !content_modified; asks
    reopens; aside 3<1; copy 0 2<0 1 @2; asks; fleet 0 2<0 1 @2; told diverged:1`,
  "what was acknowledged is given back in order by a process that begins later, without a write, which says so": `
    writes 0; writes 1; writes 2; closes; promote 2; leaves; again follows; fleet 0 1 2; again told restored_entries:2
    again is replicated; again notes 0; again closes; again follows; again told`,
  "a whole session that is lost comes back, too, and a session that was deleted does not": `
    writes 0; writes 1; closes; promote 20; leaves; again follows; fleet 0 1; again told restored_entries:1; again closes
    deleted; again marks; again follows; again asked look isMissing; again told`,
  "where a killed process had not given back all of it, the next one does": `
    writes 0; writes 1; writes 2; closes; promote 2; leaves; again loses append before; again follows; fleet 0
    again notes 1; again closes; leaves; last follows; fleet 0 1 2; last told restored_entries:2; last notes 0`,
  "an end that another process of this machine had acknowledged before is in the record, too": `
    writes 0; closes; leaves; again writes 1; again closes; promote 1; leaves; last follows; fleet 0 1
    last told restored_entries:1`,
  "two machines that acknowledged different entries give back the ones that they have, each once": `
    writes 0; closes; leaves; two has 0; two writes 1; two closes; follows; closes; promote 20; leaves; follows; fleet 0 1
    closes; two follows; fleet 0 1; two told`,
};

describe.each(["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  test.each(POWER_CUTS)("a refused line does not come back after a loss of power (%o)", async (cut) => {
    const scene = await play(
      kind,
      "writes 0; unlocks; two takes 0; two writes 9<0; two closes; writes 1 !content_modified",
    );
    const { table } = scene;
    const { disk } = scene.one;
    table.leave();
    const later = new Machine(kind, table, "later", { disk: disk.after(cut) });
    await found(later.store.open(later.file));
    expect(table.linesOf(SESSION)).not.toContain(line(1));
  });

  test("a copy that was compared while the database changed is not called another session's", async () => {
    const scene = await play(
      kind,
      "writes 0; writes 1; unlocks; two has 0; promote 1; leaves; two writes 9<0; two closes",
    );
    const { fleet } = scene.one;
    let isPromoted = false;
    fleet.turns = async () => {
      if (isPromoted || fleet.calls.at(-1) !== "lines") return;
      isPromoted = true;
      scene.table.promote(2);
      scene.table.leave();
    };
    await scene.play("asks; refuses storage_failed 2; finds; asks; fleet 0 1; writes 2; fleet 0 1 2");
    expect(isPromoted).toBe(true);
  });

  test("what another process of the machine acknowledged since the copy was opened is known, too", async () => {
    const scene = await play(
      kind,
      "writes 0; closes; leaves; one looks; again writes 1; again closes; promote 1; leaves",
    );
    await scene.play(
      "two has 0; two writes 9<0; two closes; leaves; follows; finds; asks; fleet 0 9<0 1 @9; told diverged:1; aside",
    );
    expect(scene.log.damage[0].reason).toContain("lost entries that were acknowledged");
  });

  test("what is neither in the fleet nor in the copy any more is told once, and its record is kept", async () => {
    const scene = await play(kind, "writes 0; writes 1; closes; promote 1; leaves");
    const { disk, file } = scene.one;
    disk.rename(file, `${file}.away`);
    await scene.play("has 0; asks; fleet 0; told lost_entries; writes 2<0; closes; leaves; again asks; again told");
    expect(scene.one.journal.ends.all()).toMatchObject([{ end: { entries: 2 } }, { end: { entries: 2 } }]);
    // A second loss of the session.
    await scene.play("again writes 8<2; again closes", () => scene.table.promote(1), "leaves");
    disk.rename(file, `${file}.gone`);
    await scene.play("last begins beside; last has 0 2<0; last asks; fleet 0 2<0; last told lost_entries; last closes");
    const losses = scene.one.journal.ends.all().map(({ end, lost }) => [end.entries, lost]);
    expect(losses.sort()).toEqual([
      [2, 1],
      [3, 1],
    ]);
    await scene.play("leaves; next begins beside; next asks; next told");
  });

  test("the number of lost entries is that of those acknowledged here, however many others have written since", async () => {
    // Two commits of three entries are lost.
    const scene = await play(kind, "writes 0; writes 1 2; writes 3; closes; promote 2; leaves");
    const { disk, file, journal } = scene.one;
    await scene.play("two has 0; two writes 7<0; two writes 8<7; two writes 9<8; two writes 10<9; two closes; leaves");
    disk.rename(file, `${file}.away`);
    await scene.play("has 0 7<0 8<7 9<8 10<9; asks; told lost_entries");
    expect(scene.log.damage[0].reason).toMatch(/, 3 of them\. /);
    expect(journal.ends.all()).toMatchObject([{ lost: 3, isLeast: false }]);
    await scene.play("writes 11<10; writes 12<11");
    // A record that does not go back to a commit that is there has the least number.
    const found = new FoundEntries(SESSION);
    expect(journal.ends.findLoss(SESSION, found)).toMatchObject({ entries: 2, isLeast: true });
    found.add(toBytes(lineOf("11<10")));
    expect(journal.ends.findLoss(SESSION, found)).toMatchObject({ entries: 1, isLeast: false });
  });

  test.each(Object.entries(SCENES))("%s", async (_, script) => void (await play(kind, script)));

  test.each(["nothing", "above"] as const)(
    "a line that was refused stays away when it arrives at the next server; a fleet that gives an epoch twice is found out (breaks %s)",
    async (breaks) => {
      const { one, log, table } = await play(kind, "writes 0; unlocks; asks", { tries: 1 });
      const { fleet } = one;
      fleet.breaks = breaks;
      const first = fleet.calls.length;
      // A pooler holds the append back until another server is there, which lacks the taking before it.
      fleet.faultAt = (call) => {
        if (call === first + 1) table.promote(1);
        return (["late", undefined, "before", "before"] as const)[call - first];
      };
      await expect(written(log, 1)).rejects.toEqual(failed("storage_failed"));
      expect(table.linesOf(SESSION).includes(line(1))).toBe(breaks === "above");
    },
  );

  test("it is given back, too, where another server has answered others since the session was taken", async () => {
    const scene = await play(kind, "writes 0; unlocks");
    const { fleet } = scene.one;
    const take = fleet.take.bind(fleet);
    fleet.take = async (...given) => {
      const taking = await take(...given);
      fleet.take = take;
      // Before that answer is read, another session's question has been answered by a server that has nothing.
      scene.table.promote(20);
      await fleet.look("another");
      return taking;
    };
    await scene.play("asks; fleet; follows; fleet 0");
  });

  test("a request whose entries were lost, and became a branch, is answered with them when it is repeated with its key", async () => {
    const shared = Object.assign(new FleetTable(), { past: [] });
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
    // The write that finds it out is refused, though it expected no leaf, and says so.
    const refused = await one.failure("append", { entries: [user("next")] });
    expect(refused).toMatchObject({ data: { name: "content_modified", retryable: true } });
    expect(refused.message).toMatch(/another machine wrote to this session.*Send it again to continue after/);
    const again = await one.result("append", mine);
    const there = shared.linesOf(sessionId).map((text) => JSON.parse(text));
    expect(there.pop()).toMatchObject({ type: "custom" });
    const texts = there.map(({ message }) => message.content.at(-1).text ?? message.content);
    expect(texts).toEqual(["one", "two", "theirs", "mine"]);
    expect(again.entryIds).toEqual([there[3].id]);
    expect(await one.result("append", mine)).toEqual(again);
    expect(shared.linesOf(sessionId)).toHaveLength(5);
  });
});
