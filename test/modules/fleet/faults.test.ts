/**
 * Outcomes of commits where calls of the fleet fail, of copies that differ from the fleet's lines, and reports to a
 * host where the disk fails, too: each report is true, whichever part failed.
 */

import { describe, expect, test, vi } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { LEAF_MARKER } from "../../../src/core/format/node-reader.ts";
import { toBytes } from "../../../src/core/json/json.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { id, SESSION } from "../../support/lines.ts";
import { isEvery } from "../../support/random.ts";
import { beginning, textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { failed, line, lines, type MachineKind, written } from "./support/machine.ts";
import { lineOf, Scene, testScenes } from "./support/scene.ts";
import type { FleetFault } from "./support/table-fleet.ts";
import { journaled } from "./support/unsent-lines.ts";

/** A session's life with a fault at call number `at`; its host looks before it tries again. Returns the number of calls. */
async function live(kind: MachineKind, at: number, fault: FleetFault, tries: number): Promise<number> {
  const scene = new Scene(kind, { tries });
  const { fleet } = scene.one;
  fleet.faultAt = (call) => (call === at ? fault : undefined);
  const all: string[] = [];
  for (const words of ["0", "1 2", "3", "4"]) {
    // The disk has the same lines, and the fleet sees that.
    if (words === "4") await scene.play("waits; copy 0 1 2 3; closes");
    const before = [...all];
    const more = words.split(" ").map(lineOf);
    all.push(...more);
    for (let times = 0; ; times++) {
      expect(times).toBeLessThan(5);
      await scene.play("asks; looks");
      const there = textsOf(scene.log).filter((text) => more.includes(text));
      if (there.length > 0) {
        expect(there).toEqual(more);
        break;
      }
      const result = await scene.play(`writes ${words}`).catch((error: Error) => error);
      if (result === scene) break;
      const { name } = result as Error;
      expect(["outcome_unknown", "storage_failed"]).toContain(name);
      // A host that asks often enough gets the true outcome.
      if (words !== "4") expect(tries).toBe(0);
      // A refused line is not there.
      if (name === "storage_failed") expect(scene.table.linesOf(SESSION)).toEqual(before);
    }
    expect(scene.table.linesOf(SESSION)).toEqual(all);
    if (words === "1 2") scene.log.lock.release();
  }
  await scene.play("copy 0 1 2 3 4");
  return fleet.calls.length;
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  const begun = (options = {}, ...steps: string[]): Promise<Scene> =>
    new Scene(kind, options).play("writes 0", ...steps);

  testScenes(
    kind,
    {},
    {
      // As long as its outcome is unknown, nothing is written.
      "a commit whose answer is lost, and that cannot be asked about, is unknown, and comes back as another's": `
        writes 0; loses append after before; writes 1 !outcome_unknown?; copy 0; durable 1; asks; refuses storage_failed
        heals; asks; copy 0 1; writes 2; fleet 0 1 2`,
      "a commit that the fleet never heard of fails as if the disk had refused":
        "cut; writes 0 !storage_failed?; copy; durable 0; heals; writes 0; fleet 0",
      // A server died after its disk had the line, and before the database. That both have the same is found out once.
      "a copy with a line that the fleet never got has it as a branch after what the fleet has": `
        writes 0; closes; adds 8<0; two has 0; leaves; two writes 1; two closes; leaves; again follows; again reopens
        again copy 0 1 8<0 @1; again follows; fleet 0 1 8<0 @1; again told diverged:8; again aside; again closes
        again follows; again told; again marks; again follows; again asked look`,
      "lines of a dead server that the fleet never got are a branch after what others wrote": `
        writes 0; writes 1; closes; two has 0 8<0; two asks; two reopens; two copy 0 1 8<0 @1; two asks; two writes 2
        fleet 0 1 8<0 @1 2; two told diverged:8`,
      "lines that a dead server had not given to the fleet are given with the next commit":
        "writes 0; closes; adds 1; asks; writes 2; fleet 0 1 2",
      "a commit that is refused from the start is not told as unknown, also by one who has just opened the session":
        "writes 0; two has 0; two writes 1 !session_locked; two copy 0; fleet 0",
      "a server whose lease ran out goes on where nobody else wrote":
        "writes 0; two takes 0; two closes; writes 1; fleet 0 1",
      "a copy gives back what a database has lost that went back in time":
        "writes 0; remembers; writes 1; forgets; writes 2; fleet 0 1 2",
      "a copy that is open gives back what an older state of the database lacks, without another write":
        "writes 0; remembers; writes 1; unlocks; forgets; follows; fleet 0 1",
      // As long as it is sure that it has the session, nothing is asked.
      "who had a session and was not heard of for long finds out without a write that others write": `
        writes 0; writes 1; marks; follows; asked; elsewhere 0 1 : 2; later 5000; follows; looks; copy 0 1 2; fleet 0 1 2
        writes 3; fleet 0 1 2 3`,
      "who had a session and was not heard of for long finds out without a write that an older state is restored": `
        writes 0; remembers; writes 1; marks; follows; asked; forgets; later 5000; follows; looks; copy 0 1; fleet 0 1
        writes 2; fleet 0 1 2`,
      "who has a session that rests finds out without a write that others write, and that they took it": `
        writes 0; writes 1; marks; follows; asked; rests; follows; asked look; elsewhere 0 1 : 2; follows; looks
        copy 0 1 2; fleet 0 1 2; writes 3; fleet 0 1 2 3; two takes 0 1 2 3; follows; looks; marks; asks
        refuses session_locked; asked take`,
      "who has a session that rests writes to it without taking it again, unless others have": `
        writes 0; rests; follows; marks; writes 1; asked append; fleet 0 1`,
      "who was refused, because another machine writes, shows what that writes, and that it does as long as it does": `
        writes 0; closes; two has 0; two asks; two writes 1; asks; refuses session_locked 1; two writes 2; follows; looks
        copy 0 1 2; locked by two; two closes; follows; locked by nobody; writes 3; fleet 0 1 2 3`,
      "a copy of a session that was deleted is refused that as long as it is followed, and nothing is fetched for it": `
        writes 0 1; closes; two has 0; deleted; two asks; two refuses session_not_found; two marks; two follows
        two asked look; two refuses session_not_found`,
      "a copy of another session with the same id is not written to, as long as it is followed, and nothing is fetched": `
        writes 0 1; closes; two has 0< 8<0; two asks; two refuses read_only; holder nobody; two marks; two follows
        two asked look; two refuses read_only; fleet 0 1; two copy 0< 8<0`,
      "a copy whose first line was edited or damaged gets that of the fleet, and keeps its own aside":
        "writes 0 1; closes; two has 0< 1; two asks; two reopens; two copy 0 1; two aside 0<; two writes 2; fleet 0 1 2",
    },
  );
  testScenes(kind, journaled, {
    "a key is repeated while the fleet is away, though somebody else had the session before": `
      writes 0; unlocks; two has 0; two asks; asks; refuses session_locked; outage; cut; adds 1; looks; confirms
      is local; copy 0 1`,
  });

  test("the file gets a commit after the fleet has it, and nobody waits for the medium", async () => {
    const { one, log } = await begun();
    const { disk, fleet } = one;
    const inFile = (): boolean => textsOf(one.plain.open(one.file)).includes(line(1));
    const seen: boolean[] = [];
    fleet.turns = async () => void seen.push(inFile());
    disk.sync = () => Promise.reject(new Error("test: nothing is synced"));
    await written(log, 1);
    expect([...new Set(seen), inFile()]).toEqual([false, true]);
    expect([log.durableCount, log.nodes.count]).toEqual([2, 2]);
  });

  test("a commit that goes on without the fleet is acknowledged when the disk has it, and not if the disk refuses", async () => {
    const scene = await begun(journaled, "cut");
    const { disk } = scene.one;
    const sync = disk.sync.bind(disk);
    disk.sync = () => Promise.reject(Object.assign(new Error("test"), { code: "EIO" }));
    // Once while the fleet is found to be away, and once when that is known.
    const refused = "asks; writes 50<0 !storage_failed; durable 1; copy 0; is replicated;";
    await scene.play(refused.repeat(2));
    disk.sync = sync;
    await scene.play("writes 1; durable 2; is local");
  });

  test("a session that was silent is taken again, but for one whose lease the fleet has just renewed", async () => {
    const scene = await begun();
    const { fleet } = scene.one;
    fleet.renewed = 10;
    await scene.play("marks; later 5000; asks; writes 1; asked append");
    fleet.renewed = 5000;
    await scene.play("marks; later 5000; asks; writes 2; asked take append");
  });

  test("others are looked for the less often the longer nothing happens, until they write or somebody asks", async () => {
    const scene = await begun({ followedEvery: 2000 }, "leaves");
    const { calls } = scene.one.fleet;
    const looksIn = async (seconds: number, asked?: number): Promise<number> => {
      const before = calls.length;
      for (let n = 0; n < seconds; n += 2) {
        scene.clock += 2000;
        await scene.log.replica?.follow(asked);
        await scene.play("waits");
      }
      return calls.slice(before).filter((name) => name === "look").length;
    };
    expect(await looksIn(20)).toBeGreaterThan(8);
    expect(await looksIn(1800)).toBeLessThan(60);
    // Ten thousand of them are 56 looks a second.
    expect(await looksIn(1800)).toBe(10);
    expect(await looksIn(20, 0)).toBe(10);
    await scene.play("two has 0; two asks; two writes 1; two closes");
    await looksIn(190);
    await scene.play("copy 0 1");
    expect(await looksIn(10)).toBeGreaterThan(3);
  });

  test.each(["before", "after", "late"] as const)(
    "each line is there once, whatever call fails (%s)",
    async (fault) => {
      const calls = await live(kind, -1, "before", 0);
      expect(calls).toBeGreaterThan(8);
      for (const tries of [0, 2]) for (let at = 0; at < calls; at++) await live(kind, at, fault, tries);
    },
  );

  test.each(["nothing", "taking"] as const)(
    "a commit that is refused stays away, however late it is (breaks %s)",
    async (breaks) => {
      const scene = await begun({ tries: 1 });
      const { fleet } = scene.one;
      fleet.breaks = breaks;
      const first = fleet.calls.length;
      // The taking is answered, and after it nothing.
      fleet.faultAt = (call) => (["late", undefined, "before", "before"] as const)[call - first];
      await scene.play(`writes 1 !storage_failed; fleet 0${breaks === "taking" ? " 1" : ""}`);
    },
  );

  test("a server that was stopped while another took over is refused, and all that waits is kept aside", async () => {
    const scene = await begun({}, "two has 0; two asks; two refuses session_locked");
    expect(scene.actor("two").log.lock.holder).toMatchObject({ client: "one", host: "host of one" });
    await scene.play("two expires; two asks; two writes 1");
    const outcomes = ["7<0", "8<7"].map((word) => {
      scene.actor("one").append([word]);
      return scene.log.commit().catch((error) => error);
    });
    const details = { holder: scene.actor("two").machine.fleet.holder.shown, keptAt: `/aside/${SESSION}` };
    for (const outcome of await Promise.all(outcomes)) expect(outcome).toEqual(failed("session_locked", { details }));
    await scene.play("aside 7<0 8<7; copy 0; fleet 0 1; two closes; asks; writes 2; copy 0 1 2");
  });

  test("what waits in memory for the first append of a session is kept aside with the lines that continue it", async () => {
    // The record of the machine says that the fleet had the session, which both have lost.
    const scene = await begun({}, "closes; leaves; gone");
    scene.table.rows.delete(SESSION);
    const { one } = scene;
    scene.actor("one").opened = one.create();
    scene.log.append([toBytes(lineOf("5<"))], { defer: true });
    await scene.play("two has; two asks; two writes 1<; writes 7<5 !session_locked?; aside 5< 7<5; fleet 1<; copy 5<");
  });

  test("a copy of another session under the same id is compared once, until others go on with that, and is free", async () => {
    const scene = await begun({}, "writes 1; closes; leaves; two has 7< 8<7");
    const { machine, log } = scene.actor("two");
    const copy = vi.spyOn(log, "copy");
    const counts = (): number[] => [
      machine.fleet.calls.filter((name) => name === "lines").length,
      copy.mock.calls.length,
    ];
    await scene.play("two follows");
    const once = counts();
    expect(once[1]).toBeGreaterThan(0);
    await scene.play("two follows");
    expect(counts()).toEqual(once);
    await scene.play("writes 2; closes; two follows");
    expect(counts()[1]).toBeGreaterThan(once[1]);
    // Other processes of this machine may read it.
    const reader = machine.other.open(machine.file);
    expect(reader.lock.acquire()).toBe(true);
    reader.close();
  });

  test.each([
    [false, "what others wrote is fetched"],
    [true, "what others wrote is fetched"],
    [true, "its branch is noted"],
  ])("what another program writes while a copy gives way is kept (alone %s, while %s)", async (isJournaled, when) => {
    const scene = await begun({ isJournaled });
    const { one } = scene;
    await scene.play(isJournaled ? "cut; writes 5<0" : "adds 5<0", "unlocks; elsewhere 0 : 1 2; leaves; heals");
    let hasWritten = false;
    const meanwhile = async (): Promise<void> => {
      if (hasWritten) return;
      hasWritten = true;
      await scene.play("adds 6<5");
    };
    const { diverged } = one.journal;
    if (when === "its branch is noted")
      one.journal.diverged = async (...given) => {
        await diverged.apply(one.journal, given);
        await meanwhile();
      };
    else
      one.fleet.turns = async () => {
        if (one.fleet.calls.at(-1) === "lines") await meanwhile();
      };
    await scene.play("finds; finds");
    expect(hasWritten).toBe(true);
    expect([...textsOf(scene.log), ...one.quarantined]).toEqual(expect.arrayContaining(["5<0", "6<5"].map(lineOf)));
    expect(textsOf(scene.log)).toEqual(expect.arrayContaining([0, 1, 2].map(line)));
    // The abandoned branch is not reported.
    expect(scene.log.damage.filter(({ kind }) => kind === "diverged")).toHaveLength(1);
  });

  test("an acknowledged line of a writer that was then fenced is acknowledged, with what others wrote after it", async () => {
    const scene = await begun({ patience: async () => true });
    const { fleet } = scene.one;
    // The answer is lost, and before it is asked for another machine takes over and writes.
    scene.one.fails((name) => (name === "append" ? "after" : undefined));
    const asked = fleet.take.bind(fleet);
    fleet.take = async (...given) => {
      fleet.take = asked;
      await scene.play("two takes 0 1; two writes 2");
      return asked(...given);
    };
    await scene.play("writes 1; fleet 0 1 2; copy 0 1");
  });

  test.each(["writes to it", "has its lock"] as const)(
    "what another process may take back is not confirmed: it %s",
    async (does) => {
      const scene = await begun({}, "closes");
      const { one, table } = scene;
      if (does === "has its lock") table.rows.clear();
      const other = one.other.open(one.file);
      if (does === "has its lock") other.lock.acquire();
      else other.append(lines(1));
      scene.log.refresh();
      // Next to a writer, only indexed entries of a container are read.
      if (scene.log.nodes.count > table.linesOf(SESSION).length) await scene.play("confirms !session_locked");
      other.rollBack();
      other.close();
      if (scene.log.refresh().kind === "replaced") scene.actor("one").opened = scene.log.reopen();
      await scene.play("confirms; copy 0; fleet 0");
    },
  );

  test("what lists show of a commit that is sent in parts is right at once, and what is found comes behind, once", async () => {
    const scene = new Scene(kind, { partBytes: 350 });
    const batches = vi.spyOn(scene.one.fleet, "append");
    await scene.play("writes 0 1 2 3 4; fleet 0 1 2 3 4");
    const shown = { counts: { messages: 5, modified: expect.any(Number), isPlain: true }, areBehind: true };
    const description = expect.objectContaining({ firstMessage: expect.any(String) });
    for (const [{ facts }] of batches.mock.calls) expect(facts).toMatchObject({ ...shown, description });
    await vi.waitFor(() => expect(scene.row.indexed).toBe(5), { timeout: 20_000 });
    await scene.play("writes 5", ({ row }) => expect(row.indexed).toBe(6));
  });

  test.each([
    ["whose parent is missing", "5<99", ["missing_parent"]],
    ["whose parent comes after it", "5<6 6<0", []],
    ["that are each other's parent", "5<6 6<5", ["cycle"]],
  ] as const)("lines that others have are taken as they are, also those %s", async (_, words, kinds) => {
    const scene = await new Scene("jsonl").play("writes 0; closes; two has 0; two follows");
    // A program without the fleet wrote them.
    await scene.play(`adds ${words}; confirms; closes; fleet 0 ${words}; two follows`);
    const { nodes } = scene.actor("two").log;
    for (let at = nodes.count - 1, steps = 0; at >= 0; at = nodes.parent(at)) expect(steps++).toBeLessThan(5);
    await scene.play("two asks; two writes 1");
    for (const state of ["as it is", "opened anew"]) {
      const { damage, readOnly } = scene.actor("two").log;
      expect([damage.map(({ kind }) => kind), readOnly], state).toEqual([expect.arrayContaining([...kinds]), null]);
      scene.actor("two").close();
    }
    await scene.play(`fleet 0 ${words} 1; two copy 0 ${words} 1`);
  });

  test("a session that is published is there as a whole, or not at all", async () => {
    const content = [toBytes(`${[0, 1, 2].map(line).join("\n")}\n`)];
    for (const fault of ["before", "after"] as const) {
      const scene = new Scene(kind);
      const { file, fleet, store } = scene.one;
      fleet.faultAt = (call) => (call >= 1 ? fault : undefined);
      const name = fault === "before" ? "storage_failed" : "outcome_unknown";
      await expect(store.publish(beginning(undefined, file), content)).rejects.toEqual(failed(name));
      await scene.play("heals");
      // A session unknown to the fleet stays where a repeated request looks for it.
      if (fault === "before") scene.actor("one").opened = await store.publish(beginning(undefined, file), content);
      await scene.play("confirms; fleet 0 1 2; writes 3; fleet 0 1 2 3");
    }
  });
});

/** Faults of an append; undefined: the fleet answers. */
const FAULTS = [undefined, "before", "after", "late"] as const;
const UNCHANGED = "Nothing was changed";

/** Has a disk fail. Returns what ends that, and says whether it did fail. */
type Failing = (disk: FaultDisk) => () => boolean;

/** There is room for so many changes, and for no more. */
const fullAfter =
  (bytes: number): Failing =>
  (disk) => {
    let left = bytes;
    let isOver = false;
    for (const name of ["write", "create", "makeFolder", "sync", "syncFolder"] as const) {
      const change = disk[name].bind(disk) as (...given: unknown[]) => unknown;
      Object.assign(disk, {
        [name]: (...given: unknown[]) => {
          if (!isOver && left-- <= 0) throw Object.assign(new Error("test: full"), { code: "ENOSPC" });
          return change(...given);
        },
      });
    }
    return () => {
      isOver = true;
      return left < 0;
    };
  };

/** One operation fails. */
const failingAt =
  (at: number, errno: string): Failing =>
  (disk) => {
    disk.set({ kind: "fail", at, errno });
    return () => {
      const { struck } = disk;
      disk.set(undefined);
      return struck;
    };
  };

/** One commit at which the fleet fails this way, and then is away, and the disk fails. Returns whether the disk did. */
async function commitsOnce(
  kind: "jsonl" | "v2",
  isJournaled: boolean,
  fault: FleetFault | undefined,
  failing: Failing,
): Promise<boolean> {
  const scene = await new Scene(kind, { isJournaled }).play("writes 0");
  scene.one.fails((name) => (name === "append" || fault === undefined ? fault : "before"));
  const end = failing(scene.one.disk);
  const failure: Failure | undefined = await written(scene.log, 1).then(
    () => undefined,
    (error) => error,
  );
  const struck = end();
  const fleet = (): string[] => scene.table.linesOf(SESSION);
  const isSaidUnchanged = failure?.message.includes(UNCHANGED) === true;
  const what = `${failure?.name}: ${failure?.message}`;
  if (failure) expect(["outcome_unknown", "storage_full", "storage_failed"], what).toContain(failure.name);
  if (failure?.name === "outcome_unknown") expect(isSaidUnchanged, what).toBe(false);
  else if (failure) expect(fleet(), what).toEqual([line(0)]);
  await scene.play("heals; finds");
  if (isSaidUnchanged || !failure) expect(fleet(), what).toEqual([0, ...(failure ? [] : [1])].map(line));
  // A host repeats an append with an unknown outcome, unless it finds its entry.
  await written(scene.log, ...(scene.log.nodes.position(id(1)) < 0 ? [1, 2] : [2]));
  expect([fleet(), textsOf(scene.log)], what).toEqual([[0, 1, 2].map(line), [0, 1, 2].map(line)]);
  scene.table.check();
  return struck;
}

/** A conflict that is settled while the disk fails. Returns whether it did. */
async function settlesOnce(kind: "jsonl" | "v2", failing: Failing): Promise<boolean> {
  const scene = await new Scene(kind, { isJournaled: true }).play(
    "writes 0; cut; writes 7<0; elsewhere 0 : 1 2; heals",
  );
  const end = failing(scene.one.disk);
  const { log } = scene;
  const result = await scene.play("finds").catch((error: unknown) => error);
  if (result !== scene) expect(result).toBeInstanceOf(Failure);
  const struck = end();
  if (struck && scene.log === log) log.close();
  // The next process finds whatever was left.
  await scene.play("again finds; again writes 3; aside; again aside");
  const texts = scene.table.linesOf(SESSION);
  const isLine = (text: string): boolean => !text.includes(LEAF_MARKER);
  expect(texts.filter(isLine).sort()).toEqual(["0", "1", "2", "3", "7<0"].map(lineOf).sort());
  expect(textsOf(scene.actor("again").log)).toEqual(texts);
  return struck;
}

acrossTiers(describe, ["jsonl", "v2"] as const)("where the disk fails, too, with a copy as %s", (kind) => {
  let sweeps = 0;
  /** Goes through all operations, or each of so many, from another one on each time. */
  const sweep = async (fails: (at: number) => Promise<boolean>, ofMany: number): Promise<void> => {
    const step = isEvery() ? 1 : ofMany;
    for (let at = sweeps++ % step; await fails(at); at += step);
  };
  /** Containers ask the disk for so much that all of it takes seconds. */
  const strides = (few: number, container: number): number[] => (kind === "jsonl" ? [few, 1] : [container]);

  test.each([
    ["an answer is lost", "after"],
    ["an append comes late", "late"],
  ] as const)("a first append of which nobody knows is found, or made anew: %s", async (_, fault) => {
    for (const held of [[], ["0", "1"]])
      for (const finds of ["asks", "follows"]) {
        const scene = new Scene(kind);
        const { log } = scene;
        const append = (word: string, defer = false): void => log.append([toBytes(lineOf(word))], { defer });
        for (const word of held) append(word, true);
        const parent = held.at(-1) ?? "";
        scene.one.fails((name) => (name === "append" ? fault : undefined));
        await scene.play(`writes 5<${parent} !outcome_unknown`);
        expect(log.nodes.count).toBe(held.length);
        // As long as the fleet cannot be asked, nothing else takes its place.
        await scene.play("cut; asks");
        for (const defer of [true, false]) expect(() => append(`8<${parent}`, defer)).toThrow(failed("storage_failed"));
        await scene.play(`heals; ${finds}; looks`);
        // A host that does not find its entry sends it again, and it gets another id.
        if (log.nodes.position(id(5)) < 0) append(`6<${parent}`);
        await log.commit();
        const first = log.nodes.position(id(5)) < 0 ? 6 : 5;
        if (fault !== "late") expect(first).toBe(5);
        const all = `${held.join(" ")} ${first}<${parent} 7<${first}`;
        await scene.play(`writes 7<${first}; copy ${all}; fleet ${all}; aside; closes; copy ${all}; closes`);
      }
  });

  acrossTiers(test, strides(41, 17))("a conflict is settled once (each of %i)", async (ofMany) => {
    for (const errno of ["EIO", "ENOSPC"]) await sweep((at) => settlesOnce(kind, failingAt(at + 1, errno)), ofMany);
    await sweep((bytes) => settlesOnce(kind, fullAfter(bytes)), ofMany);
  });

  describe.each([true, false])("with a journal: %s", (isJournaled) => {
    const sweepFaults = async (ofMany: number, ways: readonly ((at: number) => Failing)[]): Promise<void> => {
      for (const fault of FAULTS)
        for (const way of ways) await sweep((at) => commitsOnce(kind, isJournaled, fault, way(at)), ofMany);
    };

    acrossTiers(test, strides(11, 3))(
      "a commit is told as it is, at whichever operation the disk fails (each of %i)",
      (ofMany) =>
        sweepFaults(
          ofMany,
          ["EIO", "ENOSPC"].map((errno) => (at) => failingAt(at + 1, errno)),
        ),
    );

    acrossTiers(test, strides(3, 3))(
      "a commit is told as it is, whenever the disk is full from then on (each of %i)",
      (ofMany) => sweepFaults(ofMany, [fullAfter]),
    );
  });
});
