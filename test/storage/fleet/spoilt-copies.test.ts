/** Copies in which nothing can be read any more, or that are gone: they come again from the fleet, at the path where they were. */

import {
  appendFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test, vi } from "vitest";
import { putAside, putBack } from "../../../src/storage/fleet/spoilt.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import type { Locks } from "../../../src/storage/locks/locks.ts";
import { FleetTable } from "../../support/fleet.ts";
import { entriesOf, FleetServer } from "../../support/fleet-server.ts";
import type { Place } from "../../support/server.ts";
import { temporaryFolder } from "../../support/server.ts";

const STORES = ["jsonl", "v2"] as const;
type Kind = (typeof STORES)[number];

/** The file of a session that damage befalls: of a container, that with its first entries. */
const contentOf = (file: string, kind: Kind): string =>
  kind === "jsonl"
    ? file
    : join(
        file,
        readdirSync(file, { recursive: true, encoding: "utf8" }).find((name) => /segments?\/.*/.test(name)) as string,
      );

const DAMAGE: Readonly<Record<string, (file: string, kind: Kind) => void>> = {
  emptied: (file, kind) => truncateSync(contentOf(file, kind), 0),
  zeroed: (file, kind) => {
    const { length } = readFileSync(contentOf(file, kind));
    writeFileSync(contentOf(file, kind), Buffer.alloc(length));
  },
  "cut within the first line": (file, kind) => truncateSync(contentOf(file, kind), 20),
  "without its beginning": (file, kind) => {
    const bytes = readFileSync(contentOf(file, kind));
    writeFileSync(contentOf(file, kind), bytes.subarray(30));
  },
  removed: (file) => rmSync(file, { recursive: true }),
};

/** A server of a machine, whose leases have run out. */
function serverOf(table: FleetTable, kind: Kind, place?: Place, more: object = {}): FleetServer {
  const one = new FleetServer(["--store", kind], { table, ...(place ? { place } : {}), ...more });
  one.fleet.leasesEnd = true;
  return one;
}

async function ended({ lives, fleet }: FleetServer): Promise<void> {
  await lives.end();
  fleet.table.leave();
}

const sessionsIn = (folder: string): string[] => readdirSync(folder).filter((name) => /\.(jsonl|v2)$/.test(name));
const backupsIn = (folder: string): string[] => readdirSync(folder).filter((name) => /\.spoilt\.bak/.test(name));

test.each(STORES.flatMap((kind) => Object.keys(DAMAGE).map((how) => [kind, how] as const)))(
  "a copy (%s) that was %s comes again by its id and by its path, once, where it was",
  async (kind, how) => {
    const table = new FleetTable();
    const first = await serverOf(table, kind).start();
    await first.append("one");
    await first.append("two");
    const { sessionId, sessionFile } = await first.state();
    await ended(first);
    const folder = dirname(sessionFile);
    let entries = ["one", "two"];
    for (const where of [{ sessionId }, { sessionPath: sessionFile }]) {
      DAMAGE[how](sessionFile, kind);
      const one = await serverOf(table, kind, first.lives.place).start();
      await one.result("switch_session", where);
      expect(await one.ids()).toEqual(entries);
      await one.append(`next${entries.length}`);
      entries = [...entries, `next${entries.length}`];
      expect([await one.ids(), one.inFleet(sessionId)]).toEqual([entries, entries]);
      await ended(one);
      expect(sessionsIn(folder)).toHaveLength(1);
    }
    expect(backupsIn(folder).length).toBe(how === "removed" ? 0 : 2);
  },
);

test.each(STORES.flatMap((kind) => Object.keys(DAMAGE).map((how) => [kind, how] as const)))(
  "a copy (%s) that is %s while a server has it open comes again with the next write",
  async (kind, how) => {
    const one = await serverOf(new FleetTable(), kind).start();
    await one.append("one");
    await one.append("two");
    const { sessionFile, sessionId } = await one.state();
    DAMAGE[how](sessionFile, kind);
    // A container whose files are shorter by now than they were is found out by the write itself.
    const { error } = await one.wire.request("append", { entries: entriesOf("three") });
    if (error) {
      expect([kind, error.data]).toMatchObject(["v2", { name: "storage_failed", retryable: true }]);
      await one.append("three");
    }
    expect([await one.ids(), one.inFleet(sessionId)]).toEqual(Array(2).fill(["one", "two", "three"]));
    await ended(one);
    const again = await serverOf(one.fleet.table, kind, one.lives.place).start("--session", sessionFile);
    expect(await again.ids()).toEqual(["one", "two", "three"]);
    expect(sessionsIn(dirname(sessionFile))).toHaveLength(1);
  },
);

test.each(STORES)("a spoilt copy (%s) gives what it owes, which is kept apart from it", async (kind) => {
  const table = new FleetTable();
  const one = await serverOf(table, kind, undefined, { isJournaled: true }).start();
  await one.append("one");
  const { sessionFile, sessionId } = await one.state();
  one.loses();
  expect(await one.append("owed")).toMatchObject({ durability: "local" });
  await one.append("owed2");
  await ended(one);
  DAMAGE.zeroed(sessionFile, kind);
  const again = await serverOf(table, kind, one.lives.place).start();
  await again.result("switch_session", { sessionId });
  await again.append("next");
  expect([await again.ids(), again.inFleet(sessionId)]).toEqual(Array(2).fill(["one", "owed", "owed2", "next"]));
  await ended(again);
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
  const backup = putAside({ disk: realDisk, locks }, file, () => isSpoilt(file));
  expect([backup !== null, existsSync(file), release.mock.calls.length]).toEqual([isMoved, !isMoved, releases]);
  if (backup === null) return;
  putBack(realDisk, backup, file);
  expect([existsSync(file), existsSync(backup)]).toEqual([true, false]);
});

/** A session of an ended server, its first entry, and one that another program may write after that. */
async function writtenByPi(table: FleetTable) {
  const one = await serverOf(table, "jsonl").start();
  await one.append("one");
  const { sessionFile, sessionId } = await one.state();
  await ended(one);
  const [, first] = readFileSync(sessionFile, "utf8").split("\n");
  const ofPi = JSON.stringify({ ...JSON.parse(first), id: "pi", parentId: "one" });
  return { one, sessionFile, sessionId, first, ofPi };
}

test("entries that another program wrote to a file that lost its header are kept, and offered", async () => {
  const table = new FleetTable();
  const { one, sessionFile, sessionId, first, ofPi } = await writtenByPi(table);
  writeFileSync(sessionFile, `sion"}\n${first}\n${ofPi}\n`);
  const again = await serverOf(table, "jsonl", one.lives.place).start();
  await again.result("switch_session", { sessionId });
  expect(await again.ids()).toEqual(["one"]);
  const { kept } = await again.result("list_kept");
  expect(kept).toMatchObject([{ sessionId, entryCount: 1 }]);
  await again.result("recover_kept", { keptAt: kept[0].keptAt });
  expect(await again.ids()).toContain("pi");
});

test("what a process left that was killed before it kept them is kept by the next", async () => {
  const table = new FleetTable();
  const { one, sessionFile, sessionId, first, ofPi } = await writtenByPi(table);
  writeFileSync(`${sessionFile}.spoilt.bak`, `sion"}\n${first}\n${ofPi}\n`);
  rmSync(sessionFile);
  const again = await serverOf(table, "jsonl", one.lives.place).start();
  await again.result("switch_session", { sessionId });
  expect((await again.result("list_kept")).kept).toMatchObject([{ sessionId, entryCount: 1 }]);
});

test("a file that is no copy of the session is left as it is, whatever a record or its name says", async () => {
  const table = new FleetTable();
  const file = join(temporaryFolder(), "notes.jsonl");
  const one = await serverOf(table, "jsonl").start("--session", file);
  await one.append("one");
  const { sessionId } = await one.state();
  await one.result("new_session");
  await one.append("two");
  const { sessionFile } = await one.state();
  await ended(one);
  // Another program has its own session there by now, whose header is damaged.
  const [, entry] = readFileSync(file, "utf8").split("\n");
  const ofPi = `sion"}\n${JSON.stringify({ ...JSON.parse(entry), id: "pi", parentId: null })}\n`;
  writeFileSync(file, ofPi);
  const backup = join(temporaryFolder(), basename(sessionFile));
  writeFileSync(backup, "");
  const again = await serverOf(table, "jsonl", one.lives.place).start();
  await again.wire.request("switch_session", { sessionId });
  await again.wire.request("switch_session", { sessionPath: file });
  await again.wire.request("switch_session", { sessionPath: backup });
  expect([readFileSync(file, "utf8"), readFileSync(backup, "utf8")]).toEqual([ofPi, ""]);
  expect([...backupsIn(dirname(file)), ...backupsIn(dirname(backup))]).toEqual([]);
});

test("a container that lacks its header comes again", async () => {
  const table = new FleetTable();
  const one = await serverOf(table, "v2").start();
  await one.append("one");
  const { sessionFile, sessionId } = await one.state();
  await ended(one);
  rmSync(join(sessionFile, "header.jsonl"));
  const again = await serverOf(table, "v2", one.lives.place).start();
  await again.result("switch_session", { sessionId });
  await again.append("two");
  expect(await again.ids()).toEqual(["one", "two"]);
});

test("a copy outside the session folders comes again where it is, and a whole container is never moved", async () => {
  const table = new FleetTable();
  const file = join(temporaryFolder(), "notes.jsonl");
  const one = await serverOf(table, "jsonl").start("--session", file);
  await one.append("one");
  const { sessionId } = await one.state();
  await ended(one);
  writeFileSync(file, "");
  const again = await serverOf(table, "jsonl", one.lives.place).start("--session", file);
  expect([await again.ids(), (await again.state()).sessionFile, (await again.state()).sessionId]).toEqual([
    ["one"],
    file,
    sessionId,
  ]);
  await ended(again);
  const whole = await serverOf(table, "v2").start();
  await whole.append("two");
  const { sessionFile } = await whole.state();
  await ended(whole);
  for (let n = 0; n < 2; n++) {
    const next = await serverOf(table, "v2", whole.lives.place).start("--session", sessionFile);
    expect(await next.ids()).toEqual(["two"]);
    await ended(next);
  }
  expect(backupsIn(dirname(sessionFile))).toEqual([]);
});

test("where the database is away, a spoilt copy stays, and the failure says so", async () => {
  const table = new FleetTable();
  const one = await serverOf(table, "jsonl").start();
  await one.append("one");
  const { sessionFile } = await one.state();
  await ended(one);
  writeFileSync(sessionFile, "");
  const again = await serverOf(table, "jsonl", one.lives.place).start();
  again.loses();
  expect((await again.refused("switch_session", { sessionPath: sessionFile })).name).toBe("storage_failed");
  expect([existsSync(sessionFile), backupsIn(dirname(sessionFile))]).toEqual([true, []]);
  again.heals();
  await again.result("switch_session", { sessionPath: sessionFile });
  expect(await again.ids()).toEqual(["one"]);
});

test("a process that is killed after it put a spoilt copy aside loses nothing", async () => {
  const table = new FleetTable();
  const one = await serverOf(table, "jsonl").start();
  await one.append("one");
  const { sessionFile, sessionId } = await one.state();
  await ended(one);
  renameSync(sessionFile, `${sessionFile}.spoilt.bak`);
  const again = await serverOf(table, "jsonl", one.lives.place).start();
  await again.result("switch_session", { sessionPath: sessionFile });
  expect([(await again.state()).sessionId, await again.ids()]).toEqual([sessionId, ["one"]]);
});
