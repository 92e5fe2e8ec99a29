/** Forks of sessions of a fleet that fail after the fleet has them: the fork is here, too, and the failure says so. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { makeValueDraft } from "../../../src/core/format/entry.ts";
import { Workspace } from "../../../src/core/session/workspace.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { makeStores } from "../../../src/storage/stores.ts";
import { FaultDisk } from "../../support/disk.ts";
import { user } from "../../support/drafts.ts";
import { testEnv } from "../../support/env.ts";
import { SESSION } from "../../support/lines.ts";
import type { Json } from "../../support/server.ts";
import { FOLDER, idsOf, STATE } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "./support/table-fleet.ts";

const FORK = "0198d7c5-0000-7000-8000-00000000f0f0";

function workspaceOf(disk: FaultDisk, kind: "jsonl" | "v2", table: FleetTable): Workspace {
  const env = testEnv(3);
  return new Workspace(
    makeStores({
      ...{ disk, env, kind, locks: noLocks, durability: "sync", cwd: "/" },
      paths: { flat: FOLDER, state: STATE },
      fleet: fleetOptions(new MemoryFleet(table), { disk }),
    }),
    env,
    "/home/me/project",
  );
}

acrossTiers(describe, ["jsonl", "v2"] as const)("a fork of a session of a fleet, %s", (kind) => {
  /** Forks, and makes the fork the current session; the disk fails at an operation, or the last wait fails. */
  async function forked(failing: number, ready?: () => Promise<void>) {
    const disk = new FaultDisk();
    disk.makeFolder(FOLDER);
    const table = new FleetTable();
    const workspace = workspaceOf(disk, kind, table);
    const session = workspace.create({ id: SESSION });
    const { message } = user("one") as Json;
    await session.log.replica?.ready();
    session.append([makeValueDraft("message", { message }), makeValueDraft("session_info", { name: "one" })]);
    await session.commit();
    await workspace.replace(session);
    disk.set(failing > 0 ? { kind: "fail", at: failing, errno: "EIO" } : undefined);
    let failure: unknown;
    try {
      const fork = await workspace.fork(session, session.tree.leaf, { id: FORK, comesOf: session });
      await workspace.replace(fork, ready);
    } catch (error) {
      failure = error;
    }
    const { length: count } = disk.operations;
    disk.set(undefined);
    await workspace.close();
    const made = disk
      .paths()
      .find((path) => path.includes(FORK) && /\.jsonl$|header/.test(path) && !path.includes("/."));
    return { disk, table, failure, count, made };
  }

  type Forked = Awaited<ReturnType<typeof forked>>;

  function requireBoth({ disk, table, failure, made }: Forked, context: string, isLookRefused: boolean): void {
    const there = table.rows.get(FORK)?.lines.length ?? 0;
    expect(made !== undefined, context).toBe(there > 0);
    if (made === undefined) return;
    const path = kind === "v2" ? made.replace(/\.v2\/.*/, ".v2") : made;
    const log = workspaceOf(disk, kind, new FleetTable()).look(path).log;
    expect(idsOf(log), context).toHaveLength(2);
    if (failure === undefined) return;
    const { name, message, details } = failure as Failure;
    if (name === "outcome_unknown") return;
    expect(message, context).not.toContain("Nothing was changed");
    // If the disk refuses the look whether it is there, the failure does not mention it.
    if (!isLookRefused)
      expect([message, details], context).toMatchObject([/is there all the same/, { sessionPath: path }]);
  }

  describe.each([
    ["made the current one", undefined],
    ["refused at the end", () => Promise.reject(new Failure("storage_failed", "It cannot be."))],
  ])("that is %s", (_, ready) => {
    acrossTiers(test, kind === "jsonl" ? [4, 1] : [1])("is in both places or in none (each of %i)", async (ofMany) => {
      const { count, failure, made } = await forked(0, ready);
      expect([failure === undefined, made === undefined, count > 10]).toEqual([ready === undefined, false, true]);
      for (let failing = 0; failing <= count; failing += ofMany) {
        const outcome = await forked(failing, ready);
        if (outcome.failure !== undefined) expect(outcome.failure).toBeInstanceOf(Failure);
        requireBoth(outcome, `operation ${failing} of ${count}`, failing === outcome.count);
      }
    });
  });
});
