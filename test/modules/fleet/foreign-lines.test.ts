/** Lines that other programs write to a working copy: they come to the fleet soon, from who is the writer here. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { SESSION } from "../../support/lines.ts";
import { beginning } from "../../support/sessions.ts";
import { failed, lines, type MachineKind } from "./support/machine.ts";
import { Scene, testScenes } from "./support/scene.ts";
import { MemoryFleet } from "./support/table-fleet.ts";

const KINDS: readonly MachineKind[] = ["jsonl", "v2"];

// Containers have no writers that know no lock.
describe("what another program writes (jsonl)", () => {
  const begun = (options = {}, ...steps: string[]): Promise<Scene> =>
    new Scene("jsonl", options).play("writes 0", ...steps);

  testScenes(
    "jsonl",
    {},
    {
      // It is not given twice, and nothing is asked when there is nothing new.
      "comes to the fleet while this process has the session, though nobody writes here":
        "writes 0; sees 1 2; follows; fleet 0 1 2; marks; follows; asked",
      "begins the session in the fleet, where it never was": "has 0; locks; sees 1; follows; fleet 0 1",
      "stays here while this process only reads: it takes the session from nobody":
        "writes 0; leaves; again sees 1; again follows; fleet 0; holder nobody",
      "stays here while another machine has the session, and comes when that has let go of it":
        "writes 0; two robs; sees 1; follows; fleet 0; holder two; leaves; follows; fleet 0 1",
      "is noted where the fleet is away, and given when it is back":
        "writes 0; cut; sees 1; gives; owes 1; heals; follows; follows; follows; fleet 0 1; owes nothing",
      "is not owed where the fleet was never seen to have what it continues":
        "has 0; cut; asks; gives; owes nothing; confirms !outcome_unknown?",
      "is there as a branch before a repeated key is answered with it, where another machine has written":
        "writes 0; closes; leaves; two takes 0; two writes 8<0; two closes; leaves; adds 1; confirms; fleet 0 8<0 1 @8",
      "is given when the session is left, though for a while another machine has deleted the session":
        "writes 0; deleted; sees 1; follows; follows; fleet 0; restored; gives; fleet 0 1",
    },
  );
  testScenes(
    "jsonl",
    { isJournaled: true },
    {
      "is noted where the fleet is away, and given when it is back, also by who goes on alone":
        "writes 0; cut; sees 1; gives; owes 1; heals; follows; follows; follows; fleet 0 1; owes nothing",
      "is not owed where the fleet was never seen to have what it continues, also by who goes on alone":
        "has 0; cut; asks; locks; follows; gives; owes nothing",
      "is owed where the fleet was away from the beginning, as what was told here":
        "writes 0; closes; waits; cut; asks; locks; sees 1; follows; is local; owes 0",
    },
  );

  test("comes from who had the session before the first entry was there", async () => {
    const scene = new Scene("jsonl");
    const { one, table } = scene;
    one.plain.create(beginning(undefined, one.file)).append([]);
    await scene.play("asks; holder one");
    expect(await one.fleet.look(SESSION)).toBe(null);
    expect((await new MemoryFleet(table, "two").take(SESSION)).kind).toBe("held");
    await scene.play("sees 0; follows; fleet 0");
  });

  test("has nobody wait where the fleet is away, nor keeps anybody from leaving, though its file is gone", async () => {
    let waits = 0;
    const patience = async (): Promise<boolean> => ++waits < 100;
    const scene = await begun({ patience }, "cut; sees 1; follows");
    expect(waits).toBe(0);
    scene.one.disk.remove(scene.one.file);
    await expect(Promise.resolve(scene.log.replica?.upload())).resolves.toBeUndefined();
  });

  test("is not given again and again where the fleet refuses it for good", async () => {
    const scene = await begun();
    const { fleet } = scene.one;
    const { append } = fleet;
    let appends = 0;
    fleet.append = async () => {
      appends++;
      return { kind: "unfit", reason: "a value", isOfValue: false };
    };
    await scene.play("sees 1", "follows;".repeat(10));
    expect(appends).toBeGreaterThan(0);
    expect(appends).toBeLessThan(4);
    fleet.append = append;
    await scene.play("sees 2; follows; fleet 0 1 2");
  });

  test.each(["the database takes nothing from this role", "the journal cannot be read"])(
    "is given when the session is left, though for a while %s",
    async (what) => {
      const scene = await begun();
      const { fleet, journal } = scene.one;
      const [{ append }, { of }] = [fleet, journal];
      if (what.includes("database"))
        fleet.append = async () => ({ kind: "unfit", reason: "permission denied", isOfValue: false });
      else
        journal.of = () => {
          throw new Failure("storage_failed", "EACCES", {}, { retryable: false });
        };
      await scene.play("sees 1; follows; follows; fleet 0");
      Object.assign(fleet, { append });
      Object.assign(journal, { of });
      await scene.play("gives; fleet 0 1");
    },
  );

  test("is given once, whichever call of that fails (each in turn)", async () => {
    for (const fault of ["before", "after", "late"] as const)
      for (let at = 0; at < 6; at++) {
        const scene = await begun({}, "expires");
        const { fleet } = scene.one;
        const from = fleet.calls.length;
        fleet.faultAt = (call) => (call === from + at ? fault : undefined);
        await scene.play("sees 1 2; follows; follows; follows; fleet 0 1 2");
      }
  });
});

describe.each(KINDS)("a new session with the id of one that is there (%s)", (kind) => {
  test("cannot be begun, however often, and nobody is kept from the one that is there", async () => {
    const scene = await new Scene(kind).play("writes 0; closes; waits");
    const two = scene.actor("two");
    for (let tries = 0; tries < 2; tries++) {
      await scene.play("two writes 5 !already_exists", () => two.log.rollBack(), "two aside; holder nobody");
      expect(two.machine.disk.names("/root/sessions")).toEqual([]);
    }
    // Nor while another machine has it.
    await scene.play("fleet 0; asks; writes 1; two writes 5 !already_exists; holder one; fleet 0 1");
  });

  test("is the one whose entry is there first; until then it is refused for the time of the other's lease", async () => {
    const scene = await new Scene(kind).play("two loses append before; two writes 5 !storage_failed; holder two");
    const undone = (name: string) => (): void => void scene.actor(name).log.rollBack();
    await scene.play("writes 0 !session_locked?", undone("one"), "fleet", undone("two"), "two heals; two writes 5");
    await scene.play("writes 0 !already_exists", undone("one"), "fleet 5");
    // Where the other never comes back.
    const next = await new Scene(kind).play("two loses append before; two writes 5 !storage_failed; expires; writes 0");
    await next.play("fleet 0; holder one");
  });

  test("cannot be published", async () => {
    const scene = await new Scene(kind).play("writes 0; leaves");
    const { machine: two } = scene.actor("two");
    const content = lines(5).map((bytes) => Buffer.concat([bytes, Buffer.from("\n")]));
    await expect(two.store.publish(beginning(undefined, two.file), content)).rejects.toEqual(failed("already_exists"));
    await scene.play("holder nobody");
    expect(two.disk.names("/root/sessions")).toEqual([]);
  });
});
