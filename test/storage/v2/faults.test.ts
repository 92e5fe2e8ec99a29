/**
 * Every disk operation of every change to a container, failing in every way, and others who write meanwhile (reliability
 * cases, guarantee 2, S2, S3; seed 003, "Failure semantics"). The suite has tests in SWEEP.
 */

import { beforeAll, describe, expect, test } from "vitest";
import type { Failure } from "../../../src/core/failure.ts";
import { makeDraft } from "../../../src/core/format/entry.ts";
import { toBytes } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { Session } from "../../../src/core/session/session.ts";
import { becomeWriter } from "../../../src/core/session/writer.ts";
import { headerFile, indexFile, segmentFile } from "../../../src/storage/fs/container-paths.ts";
import type { Disk } from "../../../src/storage/fs/disk.ts";
import { removeTree } from "../../../src/storage/fs/staging.ts";
import { type Locks, noLocks } from "../../../src/storage/locks/locks.ts";
import { makeLeafMemory } from "../../../src/storage/log/leaf-store.ts";
import type { Durability } from "../../../src/storage/log/write-state.ts";
import { appendMessages, lastsInFolderOfTheDead, type Scenario } from "../../support/change-faults.ts";
import { FaultDisk, faultPoints, POWER_CUTS } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { chain, headerText, id, SESSION, userText } from "../../support/lines.ts";
import { locksOf } from "../../support/locks.ts";
import { range, share } from "../../support/random.ts";
import { beginning, FOLDER, idsOf, STATE } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { CONTAINER, containerWith, cutFile, faultsOf, openV2, rewriting, v2On } from "../../support/v2.ts";
import { known, survivesFaults, THREE_IDS } from "../faults.ts";
import { diskError, refusing, writeBehind } from "../other-writers.ts";

const NEW = id(30);
/** No other frame begins like this. */
const TORN = '{"schema":"pi.session_store_v2.segment_frame.v1","segmentSeq":1,"frameSeq":4,"ent';
/** Containers with the entries 0 to 2, made once and copied. */
let three: FaultDisk;
/** One whose only segment is nearly full. */
let full: FaultDisk;
const SMALL = 3000;
const SEGMENT = segmentFile(CONTAINER, 1);

beforeAll(async () => {
  three = await containerWith(chain(3));
  full = await containerWith(chain(3), { segmentBytes: SMALL });
});

/** The container of three with something more in one of its files. */
function threeWith(path: string, text: string): FaultDisk {
  const disk = three.after();
  writeBehind(disk, path, text);
  return disk.after();
}

/** A new session that has a name already, which waits in memory for the first entry. */
function fresh(disk: FaultDisk): Session {
  const log = v2On(disk).create(beginning(headerText(), CONTAINER));
  const session = new Session(log, testEnv(), makeLeafMemory(disk, STATE, true));
  session.append([{ type: "session_info", id: id(90), rest: toBytes(',"name":"waiting"') }]);
  return session;
}

const onContainer = (name: string, more: Partial<Scenario> = {}): Scenario => ({
  name,
  disk: () => three.after(),
  open: (disk) => openV2(disk),
  ids: [NEW],
  change: (session) => appendMessages(session, NEW),
  before: THREE_IDS,
  atLeast: 6,
  ...more,
});
const appending = (...ids: string[]) => ({ ids, change: (session: Session) => appendMessages(session, ...ids) });

const SCENARIOS: Scenario[] = [
  onContainer("an append"),
  onContainer("an append of three entries", appending(id(30), id(31), id(32))),
  onContainer("an append that begins a segment", {
    disk: () => full.after(),
    open: (disk) => openV2(disk, { segmentBytes: SMALL }),
    // One fits the segment that is there, the others take two more.
    ...appending(...range(30, 44).map(id)),
    atLeast: 10,
  }),
  onContainer("an append that comes to a checkpoint", {
    open: (disk) => openV2(disk, { checkpointEvery: { entries: 1, bytes: 1 << 20 } }),
    atLeast: 18,
  }),
  onContainer("an append behind a torn frame", {
    disk: () => threeWith(SEGMENT, TORN),
    torn: TORN,
    atLeast: 10,
  }),
  onContainer("an append behind frames that no row names", {
    disk: () => {
      const disk = three.after();
      cutFile(disk, indexFile(CONTAINER), 1);
      return disk.after();
    },
    // The rows and their event.
    atLeast: 8,
  }),
  onContainer("an append behind a torn row", {
    disk: () => threeWith(indexFile(CONTAINER), '{"schema":"pi.sess'),
    atLeast: 8,
  }),
  onContainer("the first append", {
    disk: () => {
      const disk = new FaultDisk();
      for (const path of ["/elsewhere/x", `${FOLDER}/x`]) disk.put(path, toBytes(""));
      return disk;
    },
    open: fresh,
    before: [],
    atLeast: 20,
  }),
];

/** The container of three with one entry damaged and bytes behind the last. */
function damaged(): FaultDisk {
  const disk = threeWith(SEGMENT, "torn");
  rewriting(SEGMENT, (text) => text.replace(`say ${id(1)}`, "say !!!!!!!!"))(disk);
  return disk;
}

/** One that is done whole or not at all, and the first write to an empty container. */
const REPRESENTATIVE = ["an append of three entries", "the first append"];

survivesFaults({
  name: "v2",
  file: CONTAINER,
  three: () => three.after(),
  open: (disk, seed = 2, file = CONTAINER) =>
    new Session(v2On(disk, { seed }).open(file), testEnv(seed), makeLeafMemory(disk, STATE, true)),
  scenarios: SCENARIOS,
  shares(scenario, fault) {
    const isRepresentative = REPRESENTATIVE.includes(scenario);
    if (fault !== "death" && fault !== "a short write") return [12, 1];
    if (!isRepresentative) return [0, 1];
    return fault === "death" ? [10, 1] : [3, 1];
  },
  forks: [["a fork", 2]],
  forkShares: () => [4, 1],
  damaged,
  repairShares: [20, 5],
  repairedAgain: [4, 12],
  backups: (disk) => [
    ...new Set(disk.paths().flatMap((path) => /^.*\.damaged\.bak(\.\d+)?(?=\/)/.exec(path)?.[0] ?? [])),
  ],
  openings: [
    ["a whole container", () => three.after()],
    ["one with a torn frame", () => threeWith(SEGMENT, userText(id(9), null).slice(0, 40))],
  ],
  checkFiles(disk, file, at, isRepaired = true) {
    if (isRepaired) expect(faultsOf(disk, file, true), at).toEqual([]);
  },
  places:
    /^(?!.*(\.staging|\.bak|\/\.[^/]*\.tmp$))(\/sessions\/project\/(x|[^/]*\.store\.json|[^/]*\.v2\/.*)|\/elsewhere\/x|\/state\/quarantine\/.*)$/,
});

const ours = () => [toBytes(userText(NEW, id(2)))];
const DURABILITIES: readonly Durability[] = ["sync", "os"];

/** Appends entries and commits them; returns the failure, if any. */
async function attempt(log: Log, ...lines: string[]): Promise<Failure | undefined> {
  try {
    log.append(lines.map((line) => toBytes(line)));
    await log.commit();
    return undefined;
  } catch (error) {
    return error as Failure;
  }
}

/** Has a function of the test do the next write, with the disk's own to call. */
function atNextWrite(disk: FaultDisk, act: (bytes: Uint8Array, write: (bytes: Uint8Array) => number) => number): void {
  const { write } = disk;
  disk.write = (fd, bytes) => {
    disk.write = write;
    return act(bytes, (part) => write.call(disk, fd, part));
  };
}

/** Expects that an opening of the container finds these entries and no damage. */
function requireSound(disk: FaultDisk, ids: readonly string[]): void {
  const again = v2On(disk).open(CONTAINER);
  expect([idsOf(again), again.damage, again.readOnly]).toEqual([ids, [], null]);
  again.close();
}

const isInSegment = (disk: FaultDisk) =>
  Buffer.from(disk.content(SEGMENT) as Uint8Array).includes(`"entryId":"${NEW}"`);

describe("a commit that fails", () => {
  /** Adds to a container with three entries; the n-th sync of the commit fails, and `then` happens before it does. */
  async function failedAt(
    n: number,
    then: (disk: FaultDisk) => void,
  ): Promise<{ disk: FaultDisk; log: Log; failure: unknown }> {
    const disk = three.after();
    const log = v2On(disk).open(CONTAINER);
    log.append(ours());
    const { sync } = disk;
    let syncs = 0;
    disk.sync = async (fd) => {
      if (++syncs !== n) return sync(fd);
      then(disk);
      throw diskError();
    };
    const failure = await log.commit().catch((error) => error);
    disk.sync = sync;
    return { disk, log, failure };
  }

  async function goesOn(disk: FaultDisk, log: Log, ids: readonly string[]): Promise<void> {
    const session = new Session(log, testEnv(), makeLeafMemory(disk, STATE, true));
    becomeWriter(session);
    expect(idsOf(session.log)).toEqual(ids);
    await appendMessages(session, id(50));
    for (const { disk: last } of disk.lasting()) requireSound(last, [...ids, id(50)]);
    session.close();
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  }

  test.each([
    ["the frames", 1, segmentFile(CONTAINER, 1)],
    ["the rows", 2, indexFile(CONTAINER)],
  ])("and after which another program wrote behind %s, leaves what it had, and says so", async (_, n, path) => {
    const { disk, log, failure } = await failedAt(n, (disk) => writeBehind(disk, path, "somebody's"));
    expect(failure).toMatchObject({ name: "outcome_unknown", retryable: true });
    await goesOn(disk, log, [...THREE_IDS, NEW]);
  });

  test("and whose rows cannot be cut off, leaves their frames until they can", async () => {
    const { disk, log, failure } = await failedAt(2, (disk) => {
      const { truncate } = disk;
      disk.truncate = () => {
        disk.truncate = truncate;
        throw diskError();
      };
    });
    // A process that dies here leaves them to the next writer.
    expect(failure).toMatchObject({ name: "outcome_unknown", retryable: true });
    const next = v2On(disk.after()).open(CONTAINER);
    expect([next.damage, next.readOnly]).toEqual([[], null]);
    next.close();
    await goesOn(disk, log, THREE_IDS);
  });

  describe.each(DURABILITIES)("is refused as nowhere only where it is, with %s,", (durability) => {
    const elsewhere = `${FOLDER}/elsewhere.v2`;
    const rename = (disk: FaultDisk) => disk.rename(CONTAINER, elsewhere);
    const harms: [string, (disk: FaultDisk) => unknown][] = [
      ["another program renames the folder", rename],
      [
        "another program deletes the folder",
        (disk) => {
          removeTree(disk, CONTAINER);
          const { infoOf } = disk;
          disk.infoOf = (fd) => ({ ...infoOf.call(disk, fd), links: 0 });
        },
      ],
      ["the disk takes nothing back", (disk) => Object.assign(disk, { truncate: refusing() })],
    ];
    for (const [what, harm] of harms)
      test.each([1, 2, 3, 4])(`when ${what} before step %i`, async (n) => {
        const disk = three.after();
        const log = v2On(disk, { durability }).open(CONTAINER);
        const { sync, write } = disk;
        let step = 0;
        const isDue = (): boolean => {
          if (++step !== n) return false;
          harm(disk);
          return what.startsWith("the disk");
        };
        disk.write = (fd, bytes) => {
          if (isDue()) throw diskError();
          return write.call(disk, fd, bytes);
        };
        disk.sync = async (fd) => {
          if (isDue()) throw diskError();
          return sync.call(disk, fd);
        };
        const failure = await attempt(log, userText(NEW, id(2)));
        const left = disk.after();
        const folder = [CONTAINER, elsewhere].find((path) => left.content(segmentFile(path, 1)) !== undefined);
        if (folder === elsewhere) left.rename(elsewhere, CONTAINER);
        const isThere = folder !== undefined && idsOf(v2On(left).open(CONTAINER)).includes(NEW);
        if (failure === undefined) expect(isThere || folder !== CONTAINER).toBe(true);
        else if (isThere) expect(failure.name).toBe("outcome_unknown");
        if (folder === undefined && failure) expect(failure.name).toBe("storage_failed");
      });
  });
});

describe.each(DURABILITIES)("while another program writes at once, with %s, an append", (durability) => {
  test("behind which it writes is never said to be nowhere while it is there", async () => {
    const disk = three.after();
    const log = v2On(disk, { durability, locks: locksOf("us", new Map()) }).open(CONTAINER);
    const theirs = v2On(disk, { durability: "os" }).open(CONTAINER);
    atNextWrite(disk, (bytes, write) => {
      const written = write(bytes);
      theirs.append([toBytes(userText(id(31), id(2)))]);
      return written;
    });
    expect(await attempt(log, userText(NEW, id(2)))).toMatchObject({ name: "outcome_unknown" });
    log.refresh();
    expect(idsOf(log)).toEqual([...THREE_IDS, NEW, id(31)]);
    expect(await attempt(log, userText(id(32), NEW))).toBeUndefined();
    log.close();
    requireSound(disk.after(), [...THREE_IDS, NEW, id(31), id(32)]);
  });

  const cases = ["garbage", "a line\n", `${TORN}\n`].flatMap((text) =>
    (["before", "behind", "both", "within"] as const).map((where) => [where, text] as const),
  );
  test.each(cases)("is refused as nowhere only where it is: %s, %j", async (where, text) => {
    const disk = three.after();
    const log = v2On(disk, { durability }).open(CONTAINER);
    atNextWrite(disk, (bytes, write) => {
      if (where === "before" || where === "both") writeBehind(disk, SEGMENT, text);
      // The first of two frames is written before the disk is full for now.
      const written = write(where === "within" ? bytes.subarray(0, bytes.indexOf(10) + 1) : bytes);
      if (where !== "before") writeBehind(disk, SEGMENT, text);
      return written;
    });
    const failure = await attempt(log, userText(NEW, id(2)), userText(id(31), NEW));
    if (failure || !isInSegment(disk)) expect(failure?.name === "outcome_unknown").toBe(isInSegment(disk));
    log.close();
  });

  test.each(["garbage", `${TORN}\n`])("of two segments, of which it has the second first, too: %j", async (text) => {
    const disk = await containerWith(chain(3), { segmentBytes: 4000 });
    const log = v2On(disk, { durability, segmentBytes: 4000 }).open(CONTAINER);
    atNextWrite(disk, (bytes, write) => {
      const written = write(bytes);
      disk.put(segmentFile(CONTAINER, 2), toBytes(text));
      return written;
    });
    const failure = await attempt(log, userText(NEW, id(2)), userText(id(31), NEW, "x".repeat(2800)));
    expect(failure?.name).toBe(isInSegment(disk) ? "outcome_unknown" : "storage_failed");
    log.close();
  });
});

test("an append before which another program writes at once is nowhere, and can be tried again", async () => {
  const disk = three.after();
  const log = v2On(disk, { locks: locksOf("us", new Map()) }).open(CONTAINER);
  const theirs = v2On(disk, { durability: "os" }).open(CONTAINER);
  atNextWrite(disk, (bytes, write) => {
    theirs.append([toBytes(userText(id(31), id(2)))]);
    return write(bytes);
  });
  expect(() => log.append(ours())).toThrow(expect.objectContaining({ name: "storage_failed", byOthers: true }));
  log.refresh();
  expect([idsOf(log), log.readOnly]).toEqual([[...THREE_IDS, id(31)], null]);
  log.append(ours());
  await log.commit();
  log.close();
  requireSound(disk.after(), [...THREE_IDS, id(31), NEW]);
});

test("an append that is to survive the death of the process alone stays where others wrote behind it, and its rows fail", async () => {
  const disk = three.after();
  const session = openV2(disk, { durability: "os" });
  const message = (text: string) => [makeDraft("message", { message: { role: "user", content: text, timestamp: 1 } })];
  atNextWrite(disk, (bytes, write) => {
    atNextWrite(disk, () => {
      writeBehind(disk, SEGMENT, "somebody's");
      throw diskError();
    });
    return write(bytes);
  });
  const unknown = expect.objectContaining({ name: "outcome_unknown", retryable: true });
  expect(() => session.append(message("one"), "its key")).toThrow(unknown);
  const kept = idsOf(session.log).slice(3);
  expect(kept).toHaveLength(1);
  expect(becomeWriter(session)).toBe("writer");
  const changes = session.externalChanges.fresh();
  expect(changes?.positions.map((position) => session.log.nodes.id(position))).toEqual(kept);
  expect(session.repeated("its key")?.ids).toEqual(kept);
  expect(session.log.outcome(3)).not.toBe("certain");
  // As after a commit whose entries stay, the leaf is where it was.
  expect(session.leafId).toBe(id(2));
  const { ids } = session.append(message("two"));
  await session.commit();
  session.close();
  expect(idsOf(openV2(disk.after()).log)).toEqual([...THREE_IDS, ...kept, ...ids]);
  expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
});

test("the container of a session that could not be made is gone before its lock is free", async () => {
  const whole = new FaultDisk();
  whole.record();
  const make = (disk: FaultDisk, locks: Locks): Promise<void> => {
    const log = v2On(disk, { locks }).create(beginning(headerText(), CONTAINER));
    log.append([toBytes(userText(NEW, null))]);
    return log.commit();
  };
  await make(whole, noLocks);
  const releases: string[] = [];
  for (const at of faultPoints("fail", whole)) {
    const disk = new FaultDisk();
    const release = (): void => {
      const isRemoval = disk.operations[at - 1]?.startsWith("remove");
      const isLeft = disk.content(headerFile(CONTAINER)) !== undefined && !isRemoval;
      releases.push(isLeft ? `free too early, operation ${at}` : "free in time");
    };
    disk.set({ kind: "fail", at, errno: "EIO" });
    const made = (async () => make(disk, { ...noLocks, acquire: () => ({ release }) }))();
    await made.catch(() => {});
  }
  expect(new Set(releases)).toEqual(new Set(["free in time"]));
});

test("a repair whose swap of folders is refused, and cannot be taken back, says where the session is", async () => {
  const disk = damaged();
  const session = openV2(disk);
  const rename = disk.rename.bind(disk);
  disk.rename = (from, to) => {
    if (to === CONTAINER) throw diskError();
    rename(from, to);
  };
  const repair = async (): Promise<void> => void session.repair(false);
  const { name, message } = (await repair().catch((error: Failure) => error)) as Failure;
  expect([name, message]).toEqual(["storage_failed", expect.stringContaining(`${CONTAINER}.damaged.bak`)]);
  expect(message).not.toContain("Nothing was changed");
  session.close();
  disk.rename = rename;
  const next = openV2(disk);
  expect(known(next)).toEqual(THREE_IDS);
  next.repair(false);
  await appendMessages(next, NEW);
  next.close();
  expect(idsOf(openV2(disk).log)).toEqual([...THREE_IDS, NEW]);
  expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
});

describe("a checkpoint that is refused", () => {
  const seqs = (disk: FaultDisk): number[] =>
    disk.paths().flatMap((path) => Number(/\/checkpoints\/0*(\d+)\.json$/.exec(path)?.[1] ?? 0) || []);

  describe.each(["asked for", "due"] as const)("%s", (way) =>
    acrossTiers(test, [3, 1])(
      "takes its number from no later one, and says what is true (one of %i)",
      async (ofMany) => {
        const isDue = way === "due";
        const begun = async (disk: FaultDisk): Promise<Log> => {
          const checkpointEvery = { entries: isDue ? 1 : 100, bytes: 1 << 20 };
          const log = v2On(disk, { checkpointEvery }).open(CONTAINER);
          log.append([toBytes(userText(NEW, id(2)))]);
          if (!isDue) await log.commit();
          return log;
        };
        const go = async (log: Log): Promise<unknown> => (isDue ? log.commit() : log.container?.checkpoint());
        const whole = three.after();
        const unharmed = await begun(whole);
        whole.record();
        await go(unharmed);
        unharmed.close();
        let left = 0;
        const points = faultPoints("fail", whole);
        for (const at of share(points, Math.ceil(points.length / ofMany))) {
          const disk = three.after();
          const log = await begun(disk);
          const before = seqs(disk).length;
          disk.set({ kind: "fail", at, errno: "ENOSPC" });
          const failure = await go(log).then(
            () => undefined,
            (error: Error) => error,
          );
          const where = `operation ${at} of ${disk.operations.join(" ")}`;
          disk.set(undefined);
          if (failure && seqs(disk).length > before) {
            left++;
            expect(failure.message, where).not.toContain("Nothing was changed");
          }
          if (log.nodes.count === 3) log.append([toBytes(userText(NEW, id(2)))]);
          log.append([toBytes(userText(id(31), NEW))]);
          await log.commit();
          const next = Math.max(...seqs(disk)) + 1;
          expect(await log.container?.checkpoint(), where).toBe(next);
          log.close();
          expect(faultsOf(disk, CONTAINER, true), where).toEqual([]);
        }
        if (!isDue) expect(left).toBeGreaterThan(2 / ofMany);
      },
    ),
  );
});

test("a manifest that could not be published counts no frames that a process left which died before they were durable", async () => {
  const disk = three.after();
  const log = v2On(disk).open(CONTAINER);
  log.append([toBytes(userText(NEW, id(2)))]);
  await log.commit();
  const { create } = disk;
  disk.create = refusing("ENOSPC");
  log.lock.release();
  disk.create = create;
  const dead = v2On(disk).open(CONTAINER);
  dead.append([toBytes(userText(id(31), NEW))]);
  // Its lock ended with it; the next holder of the lock finds its entries.
  log.lock.acquire();
  log.refresh();
  expect(idsOf(log)).toEqual([...THREE_IDS, NEW, id(31)]);
  log.lock.release();
  for (const cut of POWER_CUTS) {
    const again = v2On(disk.after(cut)).open(CONTAINER);
    expect(again.readOnly, JSON.stringify(cut)).toBeNull();
    expect(idsOf(again).slice(0, 4)).toEqual([...THREE_IDS, NEW]);
    again.close();
  }
});

test("what an append adds while a commit waits for the medium takes nothing of that commit from it", async () => {
  const disk = three.after();
  const log = v2On(disk, { segmentBytes: 1024 }).open(CONTAINER);
  const long = (n: number): Uint8Array => toBytes(userText(id(n), id(n - 1), "x".repeat(500)));
  const { sync } = disk;
  let next = 20;
  // Each wait sees another segment begin.
  disk.sync = async (fd) => {
    if (next < 26) log.append([long(next++)]);
    await sync(fd);
  };
  log.append([toBytes(userText(id(17), id(2))), long(18), long(19)]);
  for (let count = log.nodes.count; count < 12; count = log.nodes.count) {
    await log.commit();
    for (const cut of POWER_CUTS) {
      const after = disk.after(cut);
      const again = v2On(after).open(CONTAINER);
      expect(again.nodes.count, JSON.stringify(cut)).toBeGreaterThanOrEqual(count);
      expect(again.damage.filter(({ kind }) => kind !== "torn_tail" && kind !== "bad_index")).toEqual([]);
      again.close();
    }
  }
  log.close();
});

test("a session that cannot be published closes no file that is on its way to the medium", async () => {
  const disk = new FaultDisk();
  disk.makeFolder(FOLDER);
  let pass = (): void => {};
  const underWay = new Set<number>();
  const closedEarly: number[] = [];
  const held: Disk = Object.assign(Object.create(disk) as Disk, {
    async sync(fd: number) {
      underWay.add(fd);
      await new Promise<void>((resolve) => {
        pass = resolve;
      });
      underWay.delete(fd);
      disk.syncNow(fd);
    },
    close(fd: number) {
      if (underWay.has(fd)) closedEarly.push(fd);
      disk.close(fd);
    },
    create(path: string) {
      if (path.includes("0004.seg")) throw diskError("ENOSPC");
      return disk.create(path);
    },
  });
  const lines = chain(9).map((line) => toBytes(`${line}\n`));
  const publishing = v2On(held, { segmentBytes: 800 }).publish(beginning(headerText(), `${FOLDER}/new.v2`), lines);
  await expect(publishing).rejects.toMatchObject({ name: "storage_full" });
  expect([underWay.size, closedEarly]).toEqual([1, []]);
  pass();
  await new Promise((resolve) => setImmediate(resolve));
  expect([underWay.size, disk.openCount, closedEarly]).toEqual([0, 0, []]);
});

lastsInFolderOfTheDead(`${FOLDER}/new/${SESSION}.v2`, (disk) => v2On(disk));
