/** Copies in which nothing can be read any more, or that are gone: they come again from the fleet, at the same path. */

import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { moveToBackup, restoreBackup } from "../../../src/modules/fleet/replica/unreadable-copies.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import type { Locks } from "../../../src/storage/locks/locks.ts";
import { user } from "../../support/drafts.ts";
import { range } from "../../support/random.ts";
import { type Json, temporaryFolder } from "../../support/server.ts";
import { stopClocks, turns } from "../../support/shared-session.ts";
import { entriesOf, FleetServer } from "./support/server.ts";

/** The file of a session that damage happens to: of a container, that with its first entries. */
function contentOf(file: string): string {
  if (!file.endsWith(".v2")) return file;
  const names = readdirSync(file, { recursive: true, encoding: "utf8" });
  return join(file, names.find((name) => /segments?\/.*/.test(name)) as string);
}

const DAMAGE: Readonly<Record<string, (file: string) => void>> = {
  emptied: (file) => truncateSync(contentOf(file), 0),
  zeroed: (file) => writeFileSync(contentOf(file), Buffer.alloc(statSync(contentOf(file)).size)),
  "cut within the first line": (file) => truncateSync(contentOf(file), 20),
  "without its beginning": (file) => writeFileSync(contentOf(file), readFileSync(contentOf(file)).subarray(30)),
  removed: (file) => rmSync(file, { recursive: true }),
  // By a process that was killed then.
  "put aside": (file) => renameSync(file, `${file}.spoilt.bak`),
  "replaced by a folder": (file) => {
    rmSync(file, { recursive: true });
    mkdirSync(file);
  },
};

/** The keys of a write after the damage: none, a new one, and that of the last write before it. */
const KEYS = [undefined, "new", "two"];

const machine = (store: string, more: object = {}) => new FleetServer(["--store", store], { leasesEnd: true, ...more });
const sessionsIn = (folder: string): string[] => readdirSync(folder).filter((name) => /\.(jsonl|v2)$/.test(name));
const backupsIn = (folder: string): string[] => readdirSync(folder).filter((name) => /\.spoilt\.bak/.test(name));

const IN_PLACE = ["emptied", "zeroed", "cut within the first line", "without its beginning"];

test.each(["jsonl", "v2"].flatMap((store) => IN_PLACE.map((how) => [store, how])))(
  "a copy (%s) that is %s while the database is away can be read again when that is back, without a write",
  async (store, how) => {
    stopClocks("setInterval");
    const one = machine(store);
    const { sessionFile } = await one.make(["one", "two"]);
    await one.start("--session", sessionFile);
    await one.state();
    one.loses();
    DAMAGE[how](sessionFile);
    const look = async (): Promise<void> => {
      vi.advanceTimersByTime(500);
      await one.state();
      // A container is several files.
      await turns(50);
    };
    const isWhole = async (): Promise<boolean> => {
      const { result } = await one.wire.request("get_entries");
      return result?.entries.length === 2 && result.entries.every(({ message }: Json) => message !== undefined);
    };
    await one.until(async () => !(await isWhole()), look);
    one.heals();
    await one.until(async () => (await isWhole()) && backupsIn(dirname(sessionFile)).length > 0, look);
    expect(await one.ids()).toEqual(["one", "two"]);
  },
);

describe.each(["jsonl", "v2"])("a copy (%s)", (store) => {
  test.each(Object.keys(DAMAGE))(
    "that was %s comes again by its id and by its path, once, where it was",
    async (how) => {
      const one = machine(store);
      const { sessionId, sessionFile } = await one.make(["one", "two"]);
      const folder = dirname(sessionFile);
      const entries = ["one", "two"];
      for (const where of [{ sessionId }, { sessionPath: sessionFile }]) {
        for (const name of how === "put aside" ? backupsIn(folder) : [])
          rmSync(join(folder, name), { recursive: true });
        DAMAGE[how](sessionFile);
        await one.start();
        await one.result("switch_session", where);
        expect([(await one.state()).sessionId, await one.ids()]).toEqual([sessionId, entries]);
        await one.append(`next${entries.length}`);
        entries.push(`next${entries.length}`);
        expect([await one.ids(), one.inFleet(sessionId)]).toEqual([entries, entries]);
        await one.end();
        expect(sessionsIn(folder)).toHaveLength(1);
      }
      if (how !== "put aside") expect(backupsIn(folder).length).toBe(how === "removed" ? 0 : 2);
    },
  );

  test.each(
    Object.keys(DAMAGE).flatMap((how) =>
      KEYS.flatMap((key) => [false, true].map((isNew) => [how, key, isNew] as const)),
    ),
  )(
    "that is %s while a server has it open comes again with the next write (key: %s, opened anew: %s)",
    async (how, idempotencyKey, isOpenedAnew) => {
      const one = await machine(store).start();
      const write = (id: string, key?: string): Promise<Json> =>
        one.result("append", { entries: entriesOf(id), idempotencyKey: key });
      await write("one");
      const first = await write("two", "two");
      const { sessionFile, sessionId } = await one.state();
      if (isOpenedAnew) {
        await one.end();
        await one.start("--session", sessionFile);
        await one.state();
      }
      DAMAGE[how](sessionFile);
      const { entryIds } = await write("three", idempotencyKey);
      const isRepeat = idempotencyKey === "two";
      expect(entryIds).toEqual(isRepeat ? first.entryIds : ["three"]);
      const entries = ["one", "two", ...(isRepeat ? [] : ["three"])];
      expect(one.inFleet(sessionId)).toEqual(entries);
      if (!isRepeat) expect(await one.ids()).toEqual(entries);
      await one.end();
      await one.start("--session", sessionFile);
      expect(await one.ids()).toEqual(entries);
      expect(sessionsIn(dirname(sessionFile))).toHaveLength(1);
    },
  );

  test.each([undefined, "key"])(
    "in whose place another session is takes no write for either (key: %s)",
    async (idempotencyKey) => {
      const one = machine(store);
      const other = await one.make(["theirs"]);
      await one.start();
      await one.append("one");
      const { sessionFile, sessionId } = await one.state();
      rmSync(sessionFile, { recursive: true });
      cpSync(other.sessionFile, sessionFile, { recursive: true });
      const write = { sessionId, idempotencyKey, entries: entriesOf("two") };
      expect((await one.wire.failure("append", write)).data.name).toBe("session_not_found");
      expect([one.inFleet(sessionId), one.inFleet(other.sessionId)]).toEqual([["one"], ["theirs"]]);
    },
  );

  test("in whose place another session is comes again when that file is moved away, as the failure says", async () => {
    const one = machine(store);
    const other = await one.make(["theirs"]);
    const { sessionFile, sessionId } = await one.make(["one"]);
    rmSync(sessionFile, { recursive: true });
    cpSync(other.sessionFile, sessionFile, { recursive: true });
    await one.start();
    const { message, data } = await one.wire.failure("switch_session", { sessionId });
    expect(data).toMatchObject({ name: "storage_failed", retryable: false, sessionPath: sessionFile });
    expect(message).toContain("Move it away");
    renameSync(sessionFile, `${sessionFile}.moved`);
    await one.result("switch_session", { sessionId });
    expect(await one.ids()).toEqual(["one"]);
  });

  test("gives what it owes, which is kept apart from it", async () => {
    const one = await machine(store, { isJournaled: true }).start();
    await one.append("one");
    const { sessionFile, sessionId } = await one.state();
    one.loses();
    expect(await one.append("owed")).toMatchObject({ durability: "local" });
    await one.append("owed2");
    await one.end();
    DAMAGE.zeroed(sessionFile);
    const again = await machine(store, { table: one.fleet.table, place: one.lives.place }).start();
    await again.result("switch_session", { sessionId });
    await again.append("next");
    expect([await again.ids(), again.inFleet(sessionId)]).toEqual(Array(2).fill(["one", "owed", "owed2", "next"]));
  });
  /** Another process of a machine, while the database is away. */
  const beside = async ({ fleet, lives }: FleetServer): Promise<FleetServer> => {
    const again = machine(store, { isJournaled: true, table: fleet.table, place: lives.place });
    again.loses();
    return again.start();
  };

  /** What happens to the copy of a machine that has two pending entries. `old` is an earlier state of it. */
  const LOSSES: Readonly<Record<string, (file: string, old: string) => void>> = {
    "an earlier state": (file, old) => {
      rmSync(file, { recursive: true });
      cpSync(old, file, { recursive: true });
    },
    "a truncated last line": (file) => truncateSync(file, statSync(file).size - 30),
    "a line less": (file) => {
      const lines = readFileSync(file, "utf8").split("\n");
      writeFileSync(file, lines.filter((line) => !line.includes('"owed"')).join("\n"));
    },
    "another text in a line": (file) =>
      writeFileSync(file, readFileSync(file, "utf8").replace('"content":"owed"', '"content":"wrong"')),
    "a line that is none": (file) =>
      writeFileSync(
        file,
        readFileSync(file, "utf8").replace('{"type":"message","id":"owed"', '"type" "message","id":"owed"'),
      ),
  };

  test.each(
    Object.keys(LOSSES)
      .filter((how) => store === "jsonl" || how === "an earlier state")
      .flatMap((how) => [false, true].map((isOpen) => [how, isOpen] as const))
      .filter(([how, isOpen]) => !isOpen || how === "an earlier state"),
  )(
    "that has %s while the database is away has what was acknowledged, as the journal has it, before it is read or a key is repeated (open meanwhile: %s)",
    async (how, isOpen) => {
      const one = await machine(store, { isJournaled: true }).start();
      await one.append("one");
      const { sessionFile, sessionId } = await one.state();
      const old = join(temporaryFolder(), "old");
      cpSync(sessionFile, old, { recursive: true });
      one.loses();
      const request = (id: string): Json => ({ entries: entriesOf(id), idempotencyKey: id });
      for (const id of ["owed", "owed2"])
        expect(await one.result("append", request(id))).toMatchObject({ durability: "local" });
      const texts = async (of: FleetServer): Promise<string[]> =>
        (await of.result("get_entries")).entries.map(({ message }: Json) => message?.content);
      const acknowledged = await texts(one);
      if (!isOpen) await one.end();
      LOSSES[how](sessionFile, old);
      const again = isOpen ? one : await beside(one);
      if (!isOpen) await again.result("switch_session", { sessionId });
      if (!isOpen) expect(await texts(again)).toEqual(acknowledged);
      const repeat = async (): Promise<void> => {
        for (const id of ["owed2", "owed"])
          expect((await again.result("append", { ...request("other"), idempotencyKey: id })).entryIds).toEqual([id]);
      };
      if (!isOpen) await repeat();
      expect(await again.append("next")).toMatchObject({ durability: "local" });
      await repeat();
      again.heals();
      await again.until(again.isGiven, () =>
        again.refused("append", { entries: entriesOf("no"), expectedLeafId: "other" }),
      );
      const all = ["one", "owed", "owed2", "next"];
      expect([await again.ids(), again.inFleet(sessionId)]).toEqual([all, all]);
      expect(await texts(again)).toEqual([...acknowledged, "next"]);
      expect(await again.path("next")).toEqual(all);
    },
  );

  test("that lacks what the database alone has, and what is pending, is refused until the database is back", async () => {
    const one = await machine(store, { isJournaled: true }).start();
    await one.append("one");
    const { sessionFile, sessionId } = await one.state();
    const old = join(temporaryFolder(), "old");
    cpSync(sessionFile, old, { recursive: true });
    await one.append("two");
    one.loses();
    await one.append("owed");
    await one.end();
    LOSSES["an earlier state"](sessionFile, old);
    const again = await beside(one);
    for (const where of [{ sessionId }, { sessionPath: sessionFile }])
      expect((await again.refused("switch_session", where)).name).toBe("storage_failed");
    again.heals();
    await again.until(
      async () => (await again.wire.request("switch_session", { sessionId })).result !== undefined,
      async () => {},
    );
    await again.append("next");
    const all = ["one", "two", "owed", "next"];
    expect([await again.ids(), again.inFleet(sessionId)]).toEqual([all, all]);
  });
});

test.each([
  ["empty", () => Buffer.alloc(0)],
  ["torn", (bytes: Buffer) => bytes.subarray(0, 96)],
  ["zeroed", (bytes: Buffer) => Buffer.alloc(bytes.length)],
])("a container that is gone, with a pointer that is %s, comes again by its id and by its path", async (_, damage) => {
  const one = machine("v2");
  const { sessionId, sessionFile } = await one.make(["one", "two"]);
  const pointer = sessionFile.replace(/\.v2$/, ".store.json");
  const whole = readFileSync(pointer);
  for (const where of [{ sessionId }, { sessionPath: sessionFile }]) {
    rmSync(sessionFile, { recursive: true });
    writeFileSync(pointer, damage(whole));
    await one.start();
    await one.result("switch_session", where);
    expect([(await one.state()).sessionFile, await one.ids()]).toEqual([sessionFile, ["one", "two"]]);
    await one.end();
    expect(readFileSync(pointer, "utf8")).toContain('"native_v2"');
    expect(sessionsIn(dirname(sessionFile))).toEqual([basename(sessionFile)]);
  }
});

test.each([
  ["another process has its lock", true, () => true, false, 0],
  ["it can be read", false, () => false, false, 0],
  ["it is written to", false, (file: string) => appendFileSync(file, "x") === undefined, false, 1],
  ["neither is so", false, () => true, true, 1],
] as const)("a file is put aside under its lock alone (%s)", (_, isLocked, isSpoilt, isMoved, releases) => {
  const file = join(temporaryFolder(), "a.jsonl");
  writeFileSync(file, "");
  const release = vi.fn();
  const holder = { client: "another", pid: 1, since: "" };
  const locks = { acquire: () => (isLocked ? holder : { release }) } as unknown as Locks;
  const backup = moveToBackup({ disk: realDisk, locks }, file, () => isSpoilt(file));
  expect([backup !== null, existsSync(file), release.mock.calls.length]).toEqual([isMoved, !isMoved, releases]);
  if (backup === null) return;
  restoreBackup(realDisk, backup, file);
  expect([existsSync(file), existsSync(backup)]).toEqual([true, false]);
});

/** Returns a file without its header after another program has written an entry behind the first one. */
function continuedByPi(file: string): string {
  const [, first] = readFileSync(file, "utf8").split("\n");
  return `sion"}\n${first}\n${JSON.stringify({ ...JSON.parse(first), id: "pi", parentId: "one" })}\n`;
}

test.each([false, true])(
  "entries that another program wrote to a file that lost its header are kept, and offered (put aside by a process that was killed: %s)",
  async (isMoved) => {
    const one = machine("jsonl");
    const { sessionFile, sessionId } = await one.make(["one"]);
    writeFileSync(sessionFile, continuedByPi(sessionFile));
    if (isMoved) DAMAGE["put aside"](sessionFile);
    await one.start();
    await one.result("switch_session", { sessionId });
    expect(await one.ids()).toEqual(["one"]);
    const { kept } = await one.result("list_kept");
    expect(kept).toMatchObject([{ sessionId, entryCount: 1 }]);
    await one.result("recover_kept", { keptAt: kept[0].keptAt });
    expect(await one.ids()).toContain("pi");
  },
);

test("entries of another session whose file was put in the place of one are kept, and the failure to recover them says so", async () => {
  const one = machine("v2");
  const other = await one.make(["theirs", "theirs2", "theirs3"]);
  const { sessionFile, sessionId } = await one.make(["one"]);
  writeFileSync(contentOf(sessionFile), readFileSync(contentOf(other.sessionFile)));
  await one.start();
  await one.result("switch_session", { sessionId });
  expect(await one.ids()).toEqual(["one"]);
  const { kept } = await one.result("list_kept");
  expect(kept).toMatchObject([{ sessionId, entryCount: 2 }]);
  const { message, data } = await one.wire.failure("recover_kept", { keptAt: kept[0].keptAt });
  expect(data.name).toBe("entry_not_found");
  expect(message).toMatch(/ another session, .* remove the kept file\.$/);
  expect(await one.ids()).toEqual(["one"]);
});

test("a file that is no copy of the session is left as it is, whatever a record or its name says", async () => {
  const file = join(temporaryFolder(), "notes.jsonl");
  const one = machine("jsonl");
  const { sessionId } = await one.make(["one"], "--session", file);
  const { sessionFile } = await one.make(["two"]);
  // Another program has its own session there by now, whose header is damaged.
  const [, entry] = readFileSync(file, "utf8").split("\n");
  const ofPi = `sion"}\n${JSON.stringify({ ...JSON.parse(entry), id: "pi", parentId: null })}\n`;
  writeFileSync(file, ofPi);
  const backup = join(temporaryFolder(), basename(sessionFile));
  writeFileSync(backup, "");
  await one.start();
  for (const where of [{ sessionId }, { sessionPath: file }, { sessionPath: backup }])
    await one.wire.request("switch_session", where);
  expect([readFileSync(file, "utf8"), readFileSync(backup, "utf8")]).toEqual([ofPi, ""]);
  expect([...backupsIn(dirname(file)), ...backupsIn(dirname(backup))]).toEqual([]);
});

test("a copy outside the session folders comes again where it is", async () => {
  const file = join(temporaryFolder(), "notes.jsonl");
  const one = machine("jsonl");
  const { sessionId } = await one.make(["one"], "--session", file);
  writeFileSync(file, "");
  await one.start("--session", file);
  expect([await one.ids(), await one.state()]).toMatchObject([["one"], { sessionFile: file, sessionId }]);
});

test("a container that lacks its header comes again, and a whole one is never moved", async () => {
  const one = machine("v2");
  const { sessionFile } = await one.make(["two"]);
  for (let n = 0; n < 2; n++) {
    await one.start("--session", sessionFile);
    expect(await one.ids()).toEqual(["two"]);
    await one.end();
  }
  expect(backupsIn(dirname(sessionFile))).toEqual([]);
  const { sessionId, sessionFile: damaged } = await one.make(["one"]);
  rmSync(join(damaged, "header.jsonl"));
  await one.start();
  await one.result("switch_session", { sessionId });
  await one.append("next");
  expect(await one.ids()).toEqual(["one", "next"]);
});

test("a container with a flipped bit in the id of its header comes again by its id and by its path", async () => {
  const one = machine("v2");
  const { sessionId, sessionFile } = await one.make(["one", "two"]);
  const header = join(sessionFile, "header.jsonl");
  for (const [where, ...args] of [
    [{ sessionId }],
    [{ sessionPath: sessionFile }],
    [{ sessionId }, "--store", "jsonl"],
  ] as const) {
    writeFileSync(header, readFileSync(header, "utf8").replace(sessionId, `(${sessionId.slice(1)}`));
    await one.start(...args);
    await one.result("switch_session", where);
    expect([(await one.state()).sessionId, await one.ids()]).toEqual([sessionId, ["one", "two"]]);
    await one.end();
  }
  expect([sessionsIn(dirname(sessionFile)), backupsIn(dirname(sessionFile)).length]).toEqual([
    [basename(sessionFile)],
    3,
  ]);
});

test("a container that a person has renamed is no damaged one", async () => {
  const one = machine("v2");
  const { sessionId, sessionFile } = await one.make(["one"]);
  const { sessionId: other, sessionFile: left } = await one.make(["two"]);
  rmSync(left, { recursive: true });
  rmSync(left.replace(/\.v2$/, ".store.json"));
  renameSync(sessionFile, left);
  renameSync(sessionFile.replace(/\.v2$/, ".store.json"), left.replace(/\.v2$/, ".store.json"));
  await one.start();
  for (const where of [{ sessionId: other }, { sessionPath: left }, { sessionId }])
    await one.wire.request("switch_session", where);
  expect([existsSync(left), backupsIn(dirname(left))]).toEqual([true, []]);
});

test("where the database is away, a spoilt copy stays, and the failure says so", async () => {
  const one = machine("jsonl");
  const { sessionFile } = await one.make(["one"]);
  writeFileSync(sessionFile, "");
  await one.start();
  one.loses();
  expect((await one.refused("switch_session", { sessionPath: sessionFile })).name).toBe("storage_failed");
  expect([existsSync(sessionFile), backupsIn(dirname(sessionFile))]).toEqual([true, []]);
  one.heals();
  await one.result("switch_session", { sessionPath: sessionFile });
  expect(await one.ids()).toEqual(["one"]);
});

test("where the fleet's header of its session cannot be read, a spoilt copy stays", async () => {
  const one = machine("jsonl");
  const { sessionFile } = await one.make(["one"]);
  for (const row of one.fleet.table.rows.values()) row.headerLine = Buffer.from("{");
  writeFileSync(sessionFile, "");
  await one.start();
  await one.refused("switch_session", { sessionPath: sessionFile });
  expect([existsSync(sessionFile), backupsIn(dirname(sessionFile))]).toEqual([true, []]);
});

describe.each(["jsonl", "v2"])("a copy of more than a megabyte with damage in an early entry (%s)", (store) => {
  const TEXT = "x".repeat(600);
  /** `isOff`: the entry is a branch, and not on the path to the leaf. */
  const damagedIn = async (isOff = false): Promise<[FleetServer, string, string[]]> => {
    const one = await machine(store).start();
    const ids = range(0, 2100).map((n) => `entry${n}`);
    const parents = isOff ? new Map([3, 4].map((n) => [ids[n], ids[n - 2]])) : new Map();
    const entries = ids.map((id) => user(`${id} ${TEXT}`, { id, parentId: parents.get(id) }));
    for (let n = 0; n < ids.length; n += 100) await one.result("append", { entries: entries.slice(n, n + 100) });
    const { sessionFile, sessionId } = await one.state();
    await one.end();
    const file = contentOf(sessionFile);
    const bytes = readFileSync(file);
    const at = bytes.indexOf(`entry3 ${TEXT}`);
    writeFileSync(file, bytes.fill(0, at - 10, at + 40));
    await one.start();
    await one.result("switch_session", { sessionId });
    return [one, sessionFile, ids];
  };
  const texts = async (one: FleetServer): Promise<string[]> =>
    (await one.result("get_entries")).entries.map(({ message }: Json) => message?.content.split(" ")[0]);

  test("that is only read is whole again, and nothing is kept aside", async () => {
    const [one, sessionFile, ids] = await damagedIn();
    const read = async (): Promise<string> => {
      one.now += 200_000;
      return (await texts(one)).join();
    };
    await expect.poll(read, { timeout: 20_000 }).toBe(ids.join());
    expect((await one.result("list_kept")).kept).toEqual([]);
    await one.end();
    await one.start("--session", sessionFile);
    expect([await texts(one), (await one.state()).diagnostics]).toEqual([ids, []]);
  });

  test.each([false, true])("is whole again with the next write (off the path: %s)", async (isOff) => {
    const [one, , ids] = await damagedIn(isOff);
    await texts(one);
    expect((await one.path("entry2099")).includes("entry3")).toBe(!isOff);
    await one.append("next");
    expect(await texts(one)).toEqual([...ids, "next"]);
  });
});
