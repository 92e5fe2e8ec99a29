/** Sessions of a fleet that are named by ids of the host's own, or by paths without a file on this machine. */

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { type Json, temporaryFolder } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import { FleetServer } from "./support/server.ts";
import { AWAY, fleetSuite, meddle, newSession } from "./support/sql-machines.ts";

const STORES = ["jsonl", "v2"];
const [ID, OTHER_ID] = ["01a207fe-a9e0-7627-b723-b2b3affbbe10", "01a207fe-a9e0-7627-b723-b2b3affbbe11"];

const machine = (store = "jsonl", more: object = {}) =>
  new FleetServer(["--store", store], { leasesEnd: true, ...more });

/** A session of a machine, and another machine of its fleet. */
async function elsewhere(store: string, args: readonly string[] = [], more: object = {}) {
  const first = machine(store);
  const { table } = first.fleet;
  const made = await first.make(["one"], ...args);
  return { first, table, ...made, one: machine(store, { table, ...more }) };
}

/** Fails unless a start with a path makes a new session, which is written to it. */
async function requireNew(one: FleetServer, path: string): Promise<void> {
  await one.start("--session", path);
  expect(await one.ids()).toEqual([]);
  await one.append("new");
  expect(existsSync(path)).toBe(true);
  await one.end();
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
      const { first, table, one, sessionId, sessionFile } = await elsewhere(store);
      const { home } = one.lives.place;
      const theirs = first.lives.place.home;
      renameSync(theirs, `${theirs}.gone`);
      await one.start("--session", where === "the copy's" ? sessionFile.replace(theirs, home) : sessionFile);
      expect([(await one.state()).sessionId, await one.ids()]).toEqual([sessionId, ["one"]]);
      await one.append("two");
      expect(one.inFleet(sessionId)).toEqual(["one", "two"]);
      await one.result("new_session");
      await one.result("switch_session", { sessionId });
      expect(await one.ids()).toEqual(["one", "two"]);
      await one.end();
      expect([[...table.rows.keys()], namesOf(home)]).toEqual([[sessionId], [basename(sessionFile)]]);
    },
  );

  test.each([false, true])(
    "while the fleet cannot be asked, a start makes none under the name of one that it may have (goes on alone: %s)",
    async (isJournaled) => {
      const { one, sessionId, sessionFile } = await elsewhere(store, [], { isJournaled });
      const path = join(temporaryFolder(), basename(sessionFile));
      one.loses("before");
      await one.start("--session", path);
      expect((await one.refused("get_entries")).name).toBe("storage_failed");
      expect(one.lives.said).toHaveLength(1);
      one.heals();
      await one.result("switch_session", { sessionPath: path });
      expect((await one.state()).sessionId).toBe(sessionId);
      await one.end();
      // A name that no copy has is that of a new session, whether or not the fleet is there.
      one.loses("before");
      await one.start("--session", join(dirname(path), `work.${store}`));
      expect(await one.ids()).toEqual([]);
    },
  );

  test("a start with a path that no session of the fleet has makes one there", async () => {
    const { one, table, sessionFile } = await elsewhere(store, ["--session-id", ID]);
    for (const name of [`work.${store}`, basename(sessionFile).replace(ID, OTHER_ID)])
      await requireNew(one, join(temporaryFolder(), name));
    expect(table.rows.size).toBe(3);
  });

  test("the path that one had outside the session folders means its copy", async () => {
    const first = await machine(store).start("--session", join(temporaryFolder(), `notes.${store}`));
    await first.append("one");
    await first.result("clone");
    const { sessionId, sessionFile: sessionPath } = await first.state();
    await first.end();
    renameSync(dirname(sessionPath), `${dirname(sessionPath)}.gone`);
    const other = () => machine(store, { table: first.fleet.table });
    for (const [method, more] of [
      ["switch_session", {}],
      ["open_session", {}],
      ["open_session", { readOnly: true }],
      ["archive_session", {}],
      ["delete_session", {}],
    ] as const) {
      const one = await other().start();
      expect((await one.result(method, { sessionPath, ...more })).sessionId).toBe(sessionId);
      await one.end();
    }
    const one = await other().start("--fork", sessionPath);
    expect((await one.ids())[0]).toBe("one");
    // It is open once, whichever of its paths is named.
    await one.result("open_session", { sessionId });
    await one.result("open_session", { sessionPath });
    expect((await one.result("list_open_sessions")).sessions).toHaveLength(2);
    expect((await one.wire.failure("delete_session", { sessionPath })).message).toContain("open in this server");
  });

  test("a path with an id that several files here have is that of a new session", async () => {
    const { sessionId, sessionFile } = await machine().make(["one"]);
    const one = machine(store);
    for (const name of ["--a--", "--b--"]) {
      const folder = join(one.lives.place.home, ".pi", "agent", "sessions", name);
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, basename(sessionFile)), readFileSync(sessionFile, "utf8").replace("one", name));
    }
    await requireNew(one, join(temporaryFolder(), store === "v2" ? `${sessionId}.v2` : basename(sessionFile)));
  });
});

test.each([false, true])(
  "a name that looks like that of another id means no session (it is open: %s)",
  async (isOpen) => {
    const { one, sessionFile, sessionId } = await elsewhere("jsonl", ["--session-id", "a_b"]);
    await one.start();
    if (isOpen) await one.result("open_session", { sessionId });
    const sessionPath = sessionFile.replace(/T\d\d(?=-\d\d-)/, "T23");
    expect((await one.refused("switch_session", { sessionPath })).name).toBe("session_not_found");
    await one.result("switch_session", { sessionPath: sessionFile });
    expect((await one.state()).sessionId).toBe("a_b");
  },
);

acrossTiers(test, [18, 20])(
  "to find out whether a path means one, nothing but its header is read (2^%i)",
  async (size) => {
    let bytes = 0;
    const read: Disk["read"] = (fd, ...where) => {
      const count = realDisk.read(fd, ...where);
      bytes += count;
      return count;
    };
    const one = await machine("jsonl", { disk: { ...realDisk, read } }).start("--session-id", "a_b");
    await one.result("append", { entries: [user("x".repeat(1 << size))] });
    const sessionPath = (await one.state()).sessionFile.replace(/T\d\d(?=-\d\d-)/, "T23");
    await one.result("new_session");
    bytes = 0;
    expect((await one.refused("switch_session", { sessionPath })).name).toBe("session_not_found");
    expect(bytes).toBeLessThan(1 << (size - 1));
  },
);
describe("as a list names one", { ...SYSTEM, ...needs(POSTGRESQL) }, () => {
  const suite = fleetSuite();

  test("its name opens it on another machine, and where a copy is, also while the database is away", async () => {
    const one = await suite.machine();
    await newSession(one.wire, [user("one")]);
    await one.wire.result("set_session_name", { name: "Named so" });
    await one.lives.end();
    const two = await suite.machine({ args: ["--session", "Named so"] });
    expect(await two.wire.result("get_state")).toMatchObject({ entryCount: 2, sessionName: "Named so" });
    meddle(two.fleet, () => AWAY);
    await two.lives.end();
    const again = await two.lives.start(["--session", "Named so"]);
    expect(await again.result("get_state")).toMatchObject({ entryCount: 2, sessionName: "Named so" });
  });

  acrossTiers(test, STORES)("its path opens it there, whatever its id is (%s)", async (store) => {
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

describe.each(["jsonl", "v2"])("with copies as %s", (store) => {
  /** A machine that has made a session, and ended, and the next one of its fleet. */
  const machinesWith = async () => {
    const one = new FleetServer(["--store", store]);
    await one.make(["one"], "--session-id", ID);
    const { table } = one.fleet;
    return { one, table, two: new FleetServer(["--store", store], { table }) };
  };

  test.each([
    ["--session-id goes on with the session that the fleet has, here and elsewhere", ["--session-id", ID]],
    ["--continue brings the copy up to date", ["--continue"]],
  ])("%s", async (_, args) => {
    const { one, two, table } = await machinesWith();
    await two.start("--session-id", ID);
    expect(await two.ids()).toEqual(["one"]);
    await two.append("two");
    await two.end();
    // On a machine that has a copy, which is behind, too.
    await one.start(...args);
    expect(await one.ids()).toEqual(["one", "two"]);
    // The beginning of an id is another one.
    const other = await new FleetServer([], { table }).start("--session-id", ID.slice(0, 8));
    expect(await other.ids()).toEqual([]);
    table.check();
  });

  test.each([{}, { name: "named" }])(
    "new_session with the id of one of the fleet says at the first write how to go on (%j)",
    async (given) => {
      const { two, table } = await machinesWith();
      await two.start();
      await two.result("new_session", { newSessionId: ID, ...given });
      for (let tries = 0; tries < 2; tries++) {
        const data = await two.refused("append", { entries: [user("mine")] });
        expect(data).toMatchObject({ name: "already_exists", retryable: false, sessionId: ID });
        expect([data.keptAt, table.rows.get(ID)?.holder]).toEqual([undefined, null]);
      }
      expect((await two.result("list_kept")).kept).toEqual([]);
      await two.result("new_session");
      await two.result("switch_session", { sessionId: ID });
      expect(await two.ids()).toEqual(["one"]);
      await two.append("two");
      expect(two.inFleet(ID)).toEqual(["one", "two"]);
    },
  );
});

test("--session-id begins no session where the fleet cannot be asked whether it has one", async () => {
  const one = new FleetServer();
  one.loses();
  await one.start("--session-id", ID);
  expect((await one.refused("get_entries")).name).toBe("storage_failed");
  expect(one.lives.said.join()).toContain("fleet");
});
