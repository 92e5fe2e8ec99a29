/** Sessions of a fleet that are named by paths at which nothing is on this machine. */

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { user } from "../../support/drafts.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { type Json, temporaryFolder, type Wire } from "../../support/server.ts";
import { fleetSuite } from "../../support/sql-machines.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"];
const [ID, OTHER_ID] = ["01a207fe-a9e0-7627-b723-b2b3affbbe10", "01a207fe-a9e0-7627-b723-b2b3affbbe11"];
let seeds = 0;

/** A machine whose server is not started yet. */
function machine(table: FleetTable, { isJournaled = false, disk = realDisk } = {}) {
  const fleet = new MemoryFleet(table, `machine ${seeds}`);
  fleet.leasesEnd = true;
  const outage = isJournaled ? new Outage(fleet, 0, () => 0) : undefined;
  return { fleet, lives: new HereLives({ seed: ++seeds, disk, fleet: fleetOptions(fleet, { outage }) }) };
}

/** Makes a session on another machine, in the folder of its working directory or at a path. */
async function made(table: FleetTable, store: string, args: string[] = []) {
  const { lives } = machine(table);
  const wire = await lives.start(["--store", store, ...args]);
  await wire.result("append", { entries: [user("one", { id: "one" })] });
  const { sessionId, sessionFile } = await wire.result("get_state");
  await lives.end();
  table.leave();
  return { sessionId: String(sessionId), sessionFile: String(sessionFile), place: lives.place };
}

const entriesOf = async (wire: Wire): Promise<string[]> =>
  (await wire.result("get_entries")).entries.map(({ id }: Json) => id);

/** Fails unless the current session is a new one, which is written to its path. */
async function requireNew(wire: Wire, path: string): Promise<void> {
  expect(await entriesOf(wire)).toEqual([]);
  await wire.result("append", { entries: [user("new")] });
  expect(existsSync(path)).toBe(true);
}

/** Returns the names of all session files on a machine. */
const namesOf = (home: string): string[] =>
  readdirSync(home, { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(jsonl|v2)$/.test(name) && !/\.v2\/|state/.test(name))
    .map((name) => basename(name));

acrossTiers(describe, STORES)("with copies as %s", (store) => {
  test.each(["the copy's", "another home's"])(
    "a start with the path of one brings it, and makes no other (%s path)",
    async (where) => {
      const table = new FleetTable();
      const { sessionId, sessionFile, place: theirs } = await made(table, store);
      const { lives } = machine(table);
      const { home } = lives.place;
      const path = where === "the copy's" ? sessionFile.replace(theirs.home, home) : sessionFile;
      renameSync(theirs.home, `${theirs.home}.gone`);
      const wire = await lives.start(["--store", store, "--session", path]);
      expect([(await wire.result("get_state")).sessionId, await entriesOf(wire)]).toEqual([sessionId, ["one"]]);
      await wire.result("append", { entries: [user("two", { id: "two" })] });
      expect(table.linesOf(sessionId)).toHaveLength(2);
      await wire.result("new_session");
      await wire.result("switch_session", { sessionId });
      expect(await entriesOf(wire)).toEqual(["one", "two"]);
      await lives.end();
      expect([[...table.rows.keys()], namesOf(home)]).toEqual([[sessionId], [basename(sessionFile)]]);
    },
  );

  test.each([false, true])(
    "while the fleet cannot be asked, a start makes none under the name of one that it may have (goes on alone: %s)",
    async (isJournaled) => {
      const table = new FleetTable();
      const { sessionId, sessionFile } = await made(table, store);
      const { fleet, lives } = machine(table, { isJournaled });
      const path = join(temporaryFolder(), basename(sessionFile));
      fleet.faultAt = () => "before";
      let wire = await lives.start(["--store", store, "--session", path]);
      expect((await wire.failure("get_entries")).data.name).toBe("storage_failed");
      expect(lives.said).toHaveLength(1);
      fleet.faultAt = () => undefined;
      await wire.result("switch_session", { sessionPath: path });
      expect((await wire.result("get_state")).sessionId).toBe(sessionId);
      await lives.end();
      // A name that no copy has is that of a new session, whether or not the fleet is there.
      fleet.faultAt = () => "before";
      wire = await lives.start(["--store", store, "--session", join(dirname(path), `work.${store}`)]);
      expect(await entriesOf(wire)).toEqual([]);
    },
  );

  test("a start with a path that no session of the fleet has makes one there", async () => {
    const table = new FleetTable();
    const { sessionFile } = await made(table, store, ["--session-id", ID]);
    for (const name of [`work.${store}`, basename(sessionFile).replace(ID, OTHER_ID)]) {
      const path = join(temporaryFolder(), name);
      const { lives } = machine(table);
      await requireNew(await lives.start(["--store", store, "--session", path]), path);
      await lives.end();
    }
    expect(table.rows.size).toBe(3);
  });

  test("the path that one had outside the session folders means its copy", async () => {
    const table = new FleetTable();
    const { lives: first } = machine(table);
    const there = await first.start(["--store", store, "--session", join(temporaryFolder(), `notes.${store}`)]);
    await there.result("append", { entries: [user("one", { id: "one" })] });
    await there.result("clone");
    const { sessionId, sessionFile: sessionPath } = await there.result("get_state");
    await first.end();
    table.leave();
    renameSync(dirname(sessionPath), `${dirname(sessionPath)}.gone`);
    for (const [method, more] of [
      ["switch_session", {}],
      ["open_session", {}],
      ["open_session", { readOnly: true }],
      ["archive_session", {}],
      ["delete_session", {}],
    ] as const) {
      const { lives } = machine(table);
      const wire = await lives.start(["--store", store]);
      expect((await wire.result(method, { sessionPath, ...more })).sessionId).toBe(sessionId);
      await lives.end();
      table.leave();
    }
    const wire = await machine(table).lives.start(["--store", store, "--fork", sessionPath]);
    expect((await entriesOf(wire))[0]).toBe("one");
    // It is open once, whichever of its paths is named.
    await wire.result("open_session", { sessionId });
    await wire.result("open_session", { sessionPath });
    expect((await wire.result("list_open_sessions")).sessions).toHaveLength(2);
    expect((await wire.failure("delete_session", { sessionPath })).message).toContain("open in this server");
  });

  test("a path with an id that several files here have is that of a new session", async () => {
    const { sessionId, sessionFile } = await made(new FleetTable(), "jsonl");
    const { lives } = machine(new FleetTable());
    for (const name of ["--a--", "--b--"]) {
      const folder = join(lives.place.home, ".pi", "agent", "sessions", name);
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, basename(sessionFile)), readFileSync(sessionFile, "utf8").replace("one", name));
    }
    const path = join(temporaryFolder(), store === "v2" ? `${sessionId}.v2` : basename(sessionFile));
    await requireNew(await lives.start(["--store", store, "--session", path]), path);
  });
});

test("a name that looks like that of another id means no session", async () => {
  const table = new FleetTable();
  const { sessionFile, sessionId } = await made(table, "jsonl", ["--session-id", "a_b"]);
  const sessionPath = sessionFile.replace(/T\d\d/, "T23");
  for (const isHere of [false, true]) {
    const { lives } = machine(table);
    const wire = await lives.start();
    if (isHere) await wire.result("open_session", { sessionId });
    expect((await wire.failure("switch_session", { sessionPath })).data.name).toBe("session_not_found");
    await wire.result("switch_session", { sessionPath: sessionFile });
    expect((await wire.result("get_state")).sessionId).toBe("a_b");
    await lives.end();
    table.leave();
  }
});

acrossTiers(test, [18, 20])(
  "to find out whether a path means one, nothing but its header is read (2^%i)",
  async (size) => {
    let bytes = 0;
    const disk: Disk = {
      ...realDisk,
      read(fd, ...where) {
        const count = realDisk.read(fd, ...where);
        bytes += count;
        return count;
      },
    };
    const wire = await machine(new FleetTable(), { disk }).lives.start(["--session-id", "a_b"]);
    await wire.result("append", { entries: [user("x".repeat(1 << size))] });
    const sessionPath = (await wire.result("get_state")).sessionFile.replace(/T\d\d/, "T23");
    await wire.result("new_session");
    bytes = 0;
    expect((await wire.failure("switch_session", { sessionPath })).data.name).toBe("session_not_found");
    expect(bytes).toBeLessThan(1 << (size - 1));
  },
);

describe("the path by which a list names one", { ...SYSTEM, ...needs(POSTGRESQL) }, () => {
  const suite = fleetSuite();

  acrossTiers(test, STORES)("opens it there, whatever its id is (%s)", async (store) => {
    const [one, two] = [await suite.machine(), await suite.machine({ args: ["--store", store] })];
    await one.wire.result("new_session", { newSessionId: "a_b" });
    await one.wire.result("append", { entries: [user("in a_b")] });
    const { sessionFile } = await one.wire.result("get_state");
    await one.wire.result("new_session");
    const ids = ["a_b", "task-1", "a_b more", "a:b more", "-begun", "x".repeat(130)];
    for (const [n, id] of ids.slice(1).entries()) {
      const path = join(one.place.home, "carried.jsonl");
      const text = readFileSync(sessionFile, "utf8").replace("in a_b", `in ${id}`);
      writeFileSync(path, text.replace(/"id":"[^"]+"/, `"id":"${id}"`).replace(/\.\d{3}Z/, `.0${n % 2}1Z`));
      expect((await one.wire.result("import_session", { path })).sessionId).toBe(id);
    }
    const { wire } = two;
    await wire.result("open_session", { sessionId: "a_b" });
    const { sessions } = await wire.result("list_sessions");
    for (const id of ids) {
      const { sessionPath } = sessions.find(({ sessionId }: Json) => sessionId === id);
      const { sessionFile } = await wire.result("switch_session", { sessionPath });
      expect([sessionFile, (await wire.result("get_state")).sessionId]).toEqual([sessionPath, id]);
      expect(JSON.stringify(await wire.result("get_messages"))).toContain(`in ${id}"`);
      await wire.result("append", { entries: [user(`more in ${id}`)] });
    }
  });
});
