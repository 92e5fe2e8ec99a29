/**
 * Migrations and rollbacks that were cut off, found by a server with the session open: the reply that refuses an append
 * names the command that repairs it, that command works, and appends go on.
 */

import { describe, expect, test } from "vitest";
import { decodeText, toBytes } from "../../src/core/json/json.ts";
import { getPointerFile } from "../../src/storage/fs/container-paths.ts";
import {
  CONTAINER,
  FILE,
  idsOf,
  leadOutOfAll,
  migratedDisk,
  namedIn,
  SNAPSHOT,
  serveOn,
  WAYS,
} from "../support/cut-off.ts";
import type { FaultDisk } from "../support/disk.ts";
import { user } from "../support/drafts.ts";
import { id } from "../support/lines.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

describe.each(WAYS)("$name that was cut off", (way) => {
  const leadOut = async (most: number): Promise<void> => {
    expect(await leadOutOfAll(way, { most })).toBeGreaterThan(0);
  };
  test.each([5])("leads out by what the refused append names (%d deaths)", SYSTEM, leadOut);
  test.each([Number.POSITIVE_INFINITY])("leads out by what the refused append names (%d deaths)", SWEEP, leadOut);
});

describe("a cutover that was cut off, with no file to go back to", () => {
  const begin = async (): Promise<FaultDisk> => {
    const disk = await migratedDisk();
    const pointer = JSON.parse(decodeText(disk.content(getPointerFile(CONTAINER)) as Uint8Array));
    disk.put(getPointerFile(CONTAINER), toBytes(JSON.stringify({ ...pointer, phase: "cutover_commit" })));
    return disk;
  };

  test.each([FILE, CONTAINER])("is FAILED, and rolled back when an operator asks again, opened as %s", async (path) => {
    const disk = await begin();
    disk.remove(SNAPSHOT);
    const server = serveOn(disk, "--session", path);
    const ids = [id(0), id(1)];
    expect(await idsOf(server)).toEqual(ids);
    expect(namedIn(await server.failure("append", { entries: [user("x")] }))).toContain("rollback_migration");
    // The first failure is hard, as seed 003 has it; that it named the way is the operator's part.
    const failed = await server.failure("rollback_migration");
    expect(failed.data).toMatchObject({ name: "migration_failed", state: "FAILED" });
    expect(namedIn(failed)).toContain("rollback_migration");
    expect(await server.result("migration_status")).toMatchObject({ state: "FAILED", phase: "failed" });
    for (const command of ["append", "migrate_session"])
      expect(namedIn(await server.failure(command, command === "append" ? { entries: [user("x")] } : {}))).toContain(
        "rollback_migration",
      );
    expect(await server.result("rollback_migration")).toMatchObject({ state: "ROLLED_BACK", rebuilt: true });
    expect(await idsOf(server)).toEqual(ids);
    await server.result("append", { entries: [user("x")] });
    expect((await server.result("get_state")).sessionFile).toBe(FILE);
  });

  test.each([SNAPSHOT, FILE])("takes the file that was put back as %s", async (path) => {
    const disk = await begin();
    const bytes = disk.content(SNAPSHOT) as Uint8Array;
    disk.remove(SNAPSHOT);
    const server = serveOn(disk, "--session", CONTAINER);
    await server.failure("rollback_migration");
    disk.put(path, bytes);
    expect(await server.result("rollback_migration")).toMatchObject({ state: "ROLLED_BACK", rebuilt: false });
    await server.result("append", { entries: [user("x")] });
    const after = disk.content(FILE) as Uint8Array;
    expect(after.subarray(0, bytes.length)).toEqual(bytes);
    expect(disk.content(SNAPSHOT)).toBeUndefined();
  });
});
