/**
 * Operations on whole sessions of a fleet that are taken back, that the fleet did not confirm, or that the disk refused in
 * the middle: what the fleet has then, and what finishes them. Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { appendFileSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { FleetPruning } from "../../../src/storage/fleet/pruning.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { suiteDatabase } from "../../support/database.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Wire } from "../../support/server.ts";
import type { SqlFleet } from "../../support/sql-fleet.ts";
import { acrossTiers } from "../../support/tiers.ts";

/** Removes a file, unless it is the original of a session that was relocated. */
function refuseBackups(path: string): void {
  if (path.includes(".relocated.bak")) throw Object.assign(new Error("refused"), { code: "EACCES" });
  realDisk.remove(path);
}

describe("taking back in a fleet", needs(POSTGRESQL), () => {
  acrossTiers(describe, ["jsonl", "v2"])("with copies as %s", (kind) => {
    const database = suiteDatabase();
    const machine = async (disk?: Disk) => {
      const fleet = database.connect();
      const lives = new HereLives({ fleet, disk, seed: database.fleets.length });
      return { fleet, lives, wire: await lives.start(["--store", kind]) };
    };
    /** Leaves a session, and waits until its lease is given back, which happens after the reply. */
    const leave = async (wire: Wire, sessionId: string): Promise<void> => {
      await wire.result("new_session");
      const held = `select count(holder) from pi_fleet.session where id = '${sessionId}'`;
      await expect.poll(() => database.server.sql(held), { timeout: 30_000, interval: 20 }).toBe("0");
    };
    /** Two machines, and a session that the first has made and closed. */
    const pair = async (disk?: Disk) => {
      const [first, second] = [await machine(disk), await machine()];
      const { wire: one } = first;
      await one.result("new_session", { cwd: first.lives.place.cwd });
      await one.result("append", { entries: [user("one"), assistant("two")] });
      const { sessionId, sessionFile } = await one.result("get_state");
      await leave(one, sessionId);
      const home = first.lives.place.home as string;
      return { one, two: second.wire, fleet: first.fleet, home, sessionId, sessionPath: sessionFile as string };
    };
    const listed = async (wire: Wire, sessionId: string, params: Json = {}): Promise<Json | undefined> =>
      (await wire.result("list_sessions", params)).sessions.find((one: Json) => one.sessionId === sessionId);
    const name = async (wire: Wire, sessionId: string, title: string): Promise<void> => {
      await wire.result("switch_session", { sessionId });
      await wire.result("set_session_name", { name: title });
      await leave(wire, sessionId);
    };
    const stateOf = (sessionId: string): string =>
      database.server.sql(`select state from pi_fleet.session where id = '${sessionId}'`);
    const headerOf = (sessionId: string): Json =>
      JSON.parse(
        database.server.sql(`select convert_from(header, 'utf8') from pi_fleet.session where id = '${sessionId}'`),
      );
    /** Has the fleet confirm nothing while something is done. */
    const unconfirmed = async ({ keeper }: SqlFleet, run: () => Promise<Json>): Promise<Json> => {
      const keep = keeper.keep.bind(keeper);
      keeper.keep = async () => false;
      const error = await run();
      keeper.keep = keep;
      return error;
    };

    test.runIf(kind === "jsonl")("the undo of a repair brings nothing back that another machine deleted", async () => {
      const { one, two, sessionId, sessionPath } = await pair();
      // What is between entries is not in the fleet.
      appendFileSync(sessionPath, "{damaged\n");
      await one.result("switch_session", { sessionPath });
      expect((await one.result("repair_session")).backupPath).not.toBeNull();
      await leave(one, sessionId);
      await two.result("delete_session", { sessionId });
      expect((await one.result("undo", { sessionPath })).kind).toBe("repair");
      expect(stateOf(sessionId)).toBe("2");
      expect(await listed(two, sessionId)).toBeUndefined();
    });

    test("a name that another machine gave meanwhile stays when the archiving is taken back", async () => {
      const { one, two, sessionId } = await pair();
      await one.result("archive_session", { sessionId });
      await name(two, sessionId, "X");
      await one.result("undo", {});
      expect(await listed(two, sessionId)).toMatchObject({ name: "X" });
      expect(await listed(one, sessionId)).toMatchObject({ name: "X" });
    });

    test("a name that another machine gave meanwhile stays through a relocation, its undo and its redo", async () => {
      const { one, two, home, sessionId } = await pair();
      await name(two, sessionId, "X");
      await one.result("relocate_session", { sessionId, cwd: home });
      expect(await listed(two, sessionId)).toMatchObject({ name: "X", cwd: home });
      for (const [n, method] of ["undo", "redo"].entries()) {
        await name(two, sessionId, method);
        await one.result(method, {});
        const seen = await listed(two, sessionId);
        expect(seen).toMatchObject({ name: method });
        expect(seen?.cwd === home).toBe(n === 1);
      }
    });

    test("the undo of the relocation of an archived session has its directory and the archive again for all", async () => {
      const { one, two, home, sessionId } = await pair();
      const { cwd } = headerOf(sessionId);
      await one.result("archive_session", { sessionId });
      await one.result("relocate_session", { sessionId, cwd: home });
      expect(await listed(two, sessionId)).toMatchObject({ cwd: home });
      await one.result("undo", {});
      expect(headerOf(sessionId).cwd).toBe(cwd);
      expect(await listed(two, sessionId)).toBeUndefined();
      expect(await listed(two, sessionId, { archived: true })).toMatchObject({ cwd });
    });

    test("a relocation that the fleet did not confirm is finished by the same again", async () => {
      const { one, two, fleet, home, sessionId } = await pair();
      const again = { sessionId, cwd: home };
      const { message } = await unconfirmed(fleet, () => one.failure("relocate_session", again));
      expect(message).toContain("Do it again");
      expect(headerOf(sessionId).cwd).not.toBe(home);
      const { movedTo, keptAt } = await one.result("relocate_session", again);
      expect(existsSync(movedTo)).toBe(true);
      expect(existsSync(keptAt)).toBe(true);
      expect(await listed(two, sessionId)).toMatchObject({ cwd: home });
      expect((await one.failure("relocate_session", again)).data.name).toBe("already_exists");
      // It was one relocation, and one undo takes it back.
      await one.result("undo", {});
      expect((await listed(two, sessionId))?.cwd).not.toBe(home);
    });

    test.each(["archive", "unarchive", "relocate", "restore"])(
      "the undo of %s that the fleet did not confirm is finished by what the failure names",
      async (what) => {
        const { one, two, fleet, home, sessionId } = await pair();
        const { cwd } = headerOf(sessionId);
        // An older operation that an undo more would take back.
        await name(one, sessionId, "older");
        if (what === "unarchive") await one.result("archive_session", { sessionId });
        if (what === "restore") await one.result("delete_session", { sessionId });
        const { operationId } = await one.result(`${what}_session`, {
          sessionId,
          ...(what === "relocate" ? { cwd: home } : {}),
        });
        const named = operationId ?? (await one.result("list_operations")).operations[0].operationId;
        const { message, data } = await unconfirmed(fleet, () => one.failure("undo", { operationId: named }));
        // Who tries again by itself would take something else back.
        expect(data).toMatchObject({ name: "storage_failed", retryable: false });
        const finishes: Readonly<Record<string, string>> = {
          archive: "unarchive_session",
          unarchive: "archive_session",
          relocate: `relocate_session to ${cwd}`,
          restore: "delete_session",
        };
        expect(message).toContain(finishes[what]);
        const [method] = finishes[what].split(" ");
        await one.result(method, { sessionId, ...(what === "relocate" ? { cwd } : {}) });
        const isListed = what === "archive" || what === "relocate";
        const seen = await listed(two, sessionId);
        if (isListed) expect(seen).toMatchObject({ name: "older", cwd });
        else expect(seen).toBeUndefined();
        expect(stateOf(sessionId)).toBe(what === "restore" ? "2" : "1");
      },
    );

    test("the undo of a deletion that the fleet did not confirm is finished by restore_session", async () => {
      const { one, two, fleet, sessionId } = await pair();
      const { operationId } = await one.result("delete_session", { sessionId });
      const restore = fleet.keeper.restore.bind(fleet.keeper);
      fleet.keeper.restore = async () => {
        throw new Failure("storage_failed", "test: away", { fleet: true });
      };
      const { data, message } = await one.failure("undo", { operationId });
      fleet.keeper.restore = restore;
      expect(data).toMatchObject({ name: "storage_failed", retryable: false });
      expect(message).toContain("restore it again");
      await one.result("restore_session", { sessionId });
      expect(await listed(two, sessionId)).toBeDefined();
    });

    test("one that is deleted for good, of which the disk keeps a rest, is deleted for all", async () => {
      const { one, two, home, sessionId } = await pair({ ...realDisk, remove: refuseBackups });
      const { keptAt } = await one.result("relocate_session", { sessionId, cwd: home });
      const { message, data } = await one.failure("delete_session", { sessionId, permanent: true });
      expect(message).toContain("The session is deleted, but the disk refused to remove");
      expect(data.left).toHaveLength(1);
      if (kind === "jsonl") expect(existsSync(keptAt)).toBe(true);
      expect(stateOf(sessionId)).toBe("2");
      expect(await listed(two, sessionId)).toBeUndefined();
    });

    test.each([true, false])(
      "one whose file another program takes away before it is deleted stays for others (permanent: %s)",
      async (permanent) => {
        const { one, two, fleet, sessionId, sessionPath } = await pair();
        const take = fleet.fleet.take.bind(fleet.fleet);
        fleet.fleet.take = async (...given) => {
          fleet.fleet.take = take;
          renameSync(sessionPath, `${sessionPath}.away`);
          return take(...given);
        };
        expect((await one.failure("delete_session", { sessionPath, permanent })).data.name).toBe("session_not_found");
        expect(stateOf(sessionId)).toBe("1");
        await name(two, sessionId, "still there");
        expect(await listed(two, sessionId)).toMatchObject({ name: "still there" });
      },
    );

    test("one that is deleted for good is so for all when the same is done again, and the failure says which", async () => {
      const { one, two, fleet, sessionId } = await pair();
      const again = { sessionId, permanent: true };
      const { message } = await unconfirmed(fleet, () => one.failure("delete_session", again));
      expect(message).toContain("delete_session with permanent");
      expect(stateOf(sessionId)).toBe("1");
      expect((await one.result("delete_session", again)).trash).toBe("none");
      expect(stateOf(sessionId)).toBe("2");
      expect(await listed(two, sessionId)).toBeUndefined();
    });

    test.each(["relocate", "undo"])(
      "one that cannot be read after a relocation (%s) is let go, and the failure says what finishes it",
      async (what) => {
        let isRefused = (_path: string): boolean => false;
        const refusing =
          (open: Disk["openRead"]): Disk["openRead"] =>
          (path, plain) => {
            if (isRefused(path)) throw Object.assign(new Error("refused"), { code: "EIO" });
            return open(path, plain);
          };
        const [openRead, openAppend] = [realDisk.openRead, realDisk.openAppend].map(refusing);
        const { one, two, home, sessionId, sessionPath } = await pair({ ...realDisk, openRead, openAppend });
        const { cwd } = headerOf(sessionId);
        if (what === "undo") await one.result("relocate_session", { sessionId, cwd: home });
        const folder = dirname(sessionPath);
        const isIn = (path: string): boolean => path.startsWith(dirname(folder)) && path.includes(sessionId);
        isRefused = (path) => isIn(path) && path.startsWith(folder) === (what === "undo");
        const { message, data } = await (what === "undo"
          ? one.failure("undo", {})
          : one.failure("relocate_session", { sessionId, cwd: home }));
        isRefused = () => false;
        expect(data).toMatchObject({ name: "storage_failed", retryable: what !== "undo" });
        expect(message).toMatch(/^It is done on this machine.*relocate_session to the directory that it has here/);
        // Nobody waits for a lease.
        await name(two, sessionId, "X");
        const goal = what === "undo" ? cwd : home;
        expect(await listed(two, sessionId)).not.toMatchObject({ cwd: goal });
        await one.result("relocate_session", { sessionId, cwd: goal });
        expect(await listed(two, sessionId)).toMatchObject({ name: "X", cwd: goal });
      },
    );

    test("a relocation of which only the fleet has to be told keeps no original, and is no operation", async () => {
      const { one, two, home, sessionId, sessionPath } = await pair();
      const { cwd } = headerOf(sessionId);
      await two.result("relocate_session", { sessionId, cwd: home });
      const { movedTo, keptAt } = await one.result("relocate_session", { sessionId, cwd });
      expect([movedTo, keptAt]).toEqual([sessionPath, null]);
      expect(await listed(two, sessionId)).toMatchObject({ cwd });
      const { operations } = await one.result("list_operations");
      expect(operations.map(({ kind }: Json) => kind)).not.toContain("relocate");
    });

    test.runIf(kind === "jsonl").each([0, 1])(
      "a file that has other entries under its id is relocated, and the session of the others is not (lines less: %s)",
      async (less) => {
        const { one, two, home, sessionId, sessionPath } = await pair();
        const before = headerOf(sessionId);
        const text = readFileSync(sessionPath, "utf8").replaceAll(/"_batch":\{[^}]*\},/g, "");
        const lines = text.replace('"one"', '"of another"').trimEnd().split("\n");
        writeFileSync(sessionPath, `${lines.slice(0, lines.length - less).join("\n")}\n`);
        const { movedTo } = await one.result("relocate_session", { sessionPath, cwd: home });
        expect(readFileSync(movedTo, "utf8")).toContain("of another");
        expect((await one.failure("relocate_session", { sessionId, cwd: home })).data.name).toBe("already_exists");
        expect(headerOf(sessionId)).toEqual(before);
        await name(two, sessionId, "X");
        expect(await listed(two, sessionId)).toMatchObject({ name: "X", firstMessage: "one", cwd: before.cwd });
      },
    );

    test.runIf(kind === "jsonl")("a relocation tells nothing of lines that the fleet has not got", async () => {
      const { one, two, fleet, home, sessionId, sessionPath } = await pair();
      await name(one, sessionId, "told");
      const take = fleet.fleet.take.bind(fleet.fleet);
      fleet.fleet.take = async (...given) => {
        fleet.fleet.take = take;
        writeFileSync(sessionPath, readFileSync(sessionPath, "utf8").replace('"told"', '"of another"'));
        return take(...given);
      };
      const { movedTo } = await one.result("relocate_session", { sessionId, cwd: home });
      expect(readFileSync(movedTo, "utf8")).toContain('"told"');
      expect(await listed(two, sessionId)).toMatchObject({ name: "told", cwd: home });
    });

    test("a restore whose lines another machine begins to give at the same moment says so", async () => {
      const { one, two, fleet, sessionId } = await pair();
      await one.result("delete_session", { sessionId });
      await new FleetPruning(fleet.connections, "").prune({ rows: 0 });
      const beginAgain = fleet.keeper.beginAgain.bind(fleet.keeper);
      fleet.keeper.beginAgain = async () => false;
      const { data, message } = await one.failure("restore_session", { sessionId });
      expect(data).toMatchObject({ name: "storage_failed", retryable: true });
      expect(message).toContain("restore it again");
      fleet.keeper.beginAgain = beginAgain;
      await one.result("restore_session", { sessionId });
      expect(await listed(two, sessionId)).toBeDefined();
    });
  });
});
