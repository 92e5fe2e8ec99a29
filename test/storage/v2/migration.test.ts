/**
 * A session on its way from a JSONL file to a container and back: what stands where afterwards, what refuses, and what
 * every disk operation leaves when the machine dies there (seed 003, "Failure semantics", "Migration and rollback").
 */

import { describe, expect, test } from "vitest";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import {
  checkpointFile,
  getPointerFile,
  indexFile,
  ledgerFile,
  manifestFile,
  segmentFile,
} from "../../../src/storage/fs/container-paths.ts";
import { makeJsonlStore } from "../../../src/storage/jsonl/store.ts";
import { type Locks, noLocks } from "../../../src/storage/locks/locks.ts";
import { getAttachmentFolder, listAttachments } from "../../../src/storage/log/attachments.ts";
import { makeLeafMemory } from "../../../src/storage/log/leaf-store.ts";
import { audit } from "../../../src/storage/v2/audit.ts";
import { readLedger, readPointer } from "../../../src/storage/v2/documents.ts";
import { migrate, planMigration } from "../../../src/storage/v2/migration.ts";
import type { MigrationOptions } from "../../../src/storage/v2/migration-steps.ts";
import { isContainer, readMigrationStatus } from "../../../src/storage/v2/pointer.ts";
import { rollBack } from "../../../src/storage/v2/rollback.ts";
import { makeSegmentedStore } from "../../../src/storage/v2/store.ts";
import { CONTAINER, FILE, FOLDER, migratedDisk, SNAPSHOT, WAYS, type Way } from "../../support/cut-off.ts";
import { CHANGES, type Fault, FaultDisk, faultPoints } from "../../support/disk.ts";
import { disturbed } from "../../support/disturbed.ts";
import { testEnv } from "../../support/env.ts";
import { chain, entryText, fileText, headerText, id, SESSION, TIME, userText } from "../../support/lines.ts";
import { type LockTable, locksOf } from "../../support/locks.ts";
import { range, share } from "../../support/random.ts";
import { textsOf as linesOf } from "../../support/sessions.ts";
import { SWEEP } from "../../support/tiers.ts";
import { rewriting } from "../../support/v2.ts";
import { diskError, writeBehind } from "../other-writers.ts";

const OLD = `${CONTAINER}.rolled-back`;
const POINTER = getPointerFile(CONTAINER);
const CORRELATION = "corr-0001";

/** As in a server, no lock is given twice. */
function optionsOn(disk: FaultDisk, locks: Locks = locksOf("us", new Map()), segmentBytes = 4096): MigrationOptions {
  const env = testEnv();
  const common = { disk, env, locks, durability: "sync", quarantine: "/state/quarantine" } as const;
  const files = makeJsonlStore({ ...common, fileFor: () => FILE });
  const containers = makeSegmentedStore({ ...common, containerFor: () => CONTAINER, segmentBytes });
  return {
    disk,
    env,
    locks,
    segmentBytes,
    openFile: (file, readOnly) => files.open(file, readOnly),
    openContainer: (container, readOnly) => containers.open(container, readOnly),
    fileFor: () => FILE,
  };
}

function diskWith(content: string | Uint8Array, file = FILE): FaultDisk {
  const disk = new FaultDisk();
  disk.put(file, typeof content === "string" ? toBytes(content) : content);
  return disk;
}

const toContainer = (disk: FaultDisk, options = optionsOn(disk)) =>
  migrate(options, FILE, { correlationId: CORRELATION });
const back = (disk: FaultDisk, options = optionsOn(disk)) => rollBack(options, CONTAINER);

/** Returns the active format, by the pointer, and by the name of the file while that is not settled. */
function activeOn(disk: FaultDisk): "jsonl_v3" | "sqlite_v1" | "native_v2" {
  const pointer = readPointer(disk, POINTER);
  if (pointer?.active !== "native_v2") return pointer?.active ?? "jsonl_v3";
  return isContainer(disk, CONTAINER, pointer) ? "native_v2" : "jsonl_v3";
}
const placeOn = (disk: FaultDisk) => (activeOn(disk) === "native_v2" ? CONTAINER : FILE);
const stateOn = (disk: FaultDisk) => readMigrationStatus(disk, placeOn(disk)).state;
const textAt = (disk: FaultDisk, path = FILE) => decodeText(disk.content(path) as Uint8Array);
const ledgerOn = (disk: FaultDisk, container = CONTAINER) => readLedger(disk, ledgerFile(container)).events;

const inContainer = (disk: FaultDisk) => disk.paths().filter((path) => path.startsWith(`${CONTAINER}/`));

/** Returns the lines of the session by a new opening; throws when it cannot be opened. */
function linesOn(disk: FaultDisk): string[] {
  const options = optionsOn(disk);
  const log = placeOn(disk) === CONTAINER ? options.openContainer(CONTAINER, true) : options.openFile(FILE, true);
  try {
    return linesOf(log);
  } finally {
    log.close();
  }
}

async function appendTo(disk: FaultDisk, ...lines: string[]): Promise<void> {
  const log = optionsOn(disk).openContainer(CONTAINER);
  log.append(lines.map(toBytes));
  await log.commit();
  log.close();
}

/** Marks the durable end of a container. */
async function checkpoint(disk: FaultDisk): Promise<void> {
  const log = optionsOn(disk).openContainer(CONTAINER);
  await log.container?.checkpoint();
  log.close();
}

/** Entries, also as other programs write them: unknown types and members, numbers and escapes that parsing would lose. */
const FIVE_LINES = [
  ...chain(3),
  `{"type":"plugin.thing","id":"${id(3)}","parentId":"${id(2)}","timestamp":"${TIME}","n":12345678901234567890,"deep":{"z":[-0,1E-7],"a":null}}`,
  `{"type":"custom","id":"${id(4)}","parentId":"${id(3)}","timestamp":"${TIME}","s":"caf\\u00e9 \u2028", "spaced" : [ 1.0,2 ] ,"dup":1,"dup":2}`,
];
const FIVE = fileText(headerText({ extra: { n: 1 } }), ...FIVE_LINES);
const SIXTH = userText(id(5), id(4));
/** Another program's line at the end of the file. */
const THEIRS = fileText(userText(id(9), id(4)));

async function migrated(content = FIVE, ...later: string[]): Promise<FaultDisk> {
  const disk = diskWith(content);
  await toContainer(disk);
  if (later.length > 0) await appendTo(disk, ...later);
  return disk;
}

/** Has the pointer say something else. */
function pointTo(disk: FaultDisk, said: Record<string, unknown>): void {
  disk.put(POINTER, toBytes(JSON.stringify({ ...JSON.parse(textAt(disk, POINTER)), ...said })));
}

/** A migration that a crash cut off between the commit marker and the end of the cutover. */
async function halfway(): Promise<FaultDisk> {
  const disk = await migrated();
  pointTo(disk, { phase: "cutover_commit" });
  return disk;
}

/** A rollback that was cut off when the file had its name again. */
async function halfwayBack(): Promise<FaultDisk> {
  const disk = await migrated();
  pointTo(disk, { active: "jsonl_v3", phase: "rollback" });
  disk.link(SNAPSHOT, FILE);
  return disk;
}

/** Does something before, or after, the file of the pointer is opened for the n-th time; returns how often it was. */
function atLook(disk: FaultDisk, n: number, when: "before" | "after", act: () => void): () => number {
  const openRead = disk.openRead.bind(disk);
  let looks = 0;
  disk.openRead = (path) => {
    const isDue = path === POINTER && ++looks === n;
    if (isDue && when === "before") act();
    const fd = openRead(path);
    if (isDue && when === "after") act();
    return fd;
  };
  return () => looks;
}

describe("migrating", () => {
  test("the container holds every line, the file is frozen beside it, the pointer and the ledger tell of it", async () => {
    const disk = diskWith(FIVE);
    const shown: number[] = [];
    const progress = (at: number, of: number) => void shown.push(at / of);
    const done = await migrate(optionsOn(disk), FILE, { correlationId: CORRELATION, progress });
    const facts = { state: "MIGRATED", entryCount: 5, sessionPath: CONTAINER, correlationId: CORRELATION };
    expect(done).toMatchObject(facts);
    expect(done.transitions.map(({ fromState, toState }) => `${fromState} ${toState}`)).toEqual([
      "CLEAN MIGRATION_STAGING",
      "MIGRATION_STAGING MIGRATED",
    ]);
    expect(linesOn(disk)).toEqual(FIVE_LINES);
    expect([textAt(disk, SNAPSHOT), disk.content(FILE)]).toEqual([FIVE, undefined]);
    expect(readPointer(disk, POINTER)).toMatchObject({
      active: "native_v2",
      phase: "completed",
      correlationId: CORRELATION,
      snapshotId: done.snapshotId,
      source: FILE.slice(FOLDER.length + 1),
    });
    const phases = ["planned", "staging_copy", "integrity_check", "cutover_commit", "completed"];
    expect(ledgerOn(disk)).toMatchObject(phases.map((phase) => ({ phase, outcome: "ok" })));
    expect(ledgerOn(disk)).toHaveLength(5);
    expect(await audit(disk, CONTAINER)).toMatchObject({ ok: true, findings: [] });
    expect(stateOn(disk)).toBe("MIGRATED");
    expect([shown.at(-1), shown]).toEqual([1, [...shown].sort((a, b) => a - b)]);
    expect(disk.openCount).toBe(0);
    // It goes on where it was, and is not migrated twice.
    await appendTo(disk, SIXTH);
    expect(linesOn(disk)).toEqual([...FIVE_LINES, SIXTH]);
    const again = { state: "CLEAN", entryCount: 6, migrationId: null, correlationId: CORRELATION };
    expect(await migrate(optionsOn(disk), CONTAINER)).toMatchObject(again);
    expect(stateOn(disk)).toBe("CLEAN");
  });

  test("a position of the leaf that only we keep goes along, there and back", async () => {
    const disk = diskWith(FIVE);
    const leaves = makeLeafMemory(disk, "/state", true);
    const options = { ...optionsOn(disk), leaves };
    const recorded = async (log: Log, leafId: string): Promise<void> => {
      await leaves.record(log, leafId);
      log.close();
    };
    const recalled = (log: Log): unknown => {
      const leafId = leaves.recall(log);
      log.close();
      return leafId;
    };
    await recorded(options.openFile(FILE, true), id(1));
    await toContainer(disk, options);
    expect(recalled(options.openContainer(CONTAINER, true))).toBe(id(1));
    await recorded(options.openContainer(CONTAINER, true), id(2));
    await back(disk, options);
    expect(recalled(options.openFile(FILE, true))).toBe(id(2));
  });

  test("a plan reads everything and writes nothing", async () => {
    const disk = diskWith(FIVE);
    const before = disk.paths();
    disk.set(undefined);
    const planned = await planMigration(optionsOn(disk), FILE);
    expect(planned).toMatchObject({ entryCount: 5, bytes: toBytes(FIVE).length, version: 3, obstacles: [] });
    expect(planned.location.container).toBe(CONTAINER);
    expect(disk.paths()).toEqual(before);
    expect(disk.operations.filter((operation) => CHANGES.has(operation))).toEqual([]);
  });

  const BAD_BODY = userText(id(1), id(0)).replace('"content"', '"content');
  test.each<[string, string[], RegExp]>([
    ["an id that is no UUID", [headerText({ id: "my-session" }), ...chain(2)], /not a UUID/],
    ["a duplicate id", [headerText(), ...chain(2), userText(id(0), id(1), "other")], /the id a0000000 is taken/],
    ["a cycle", [headerText(), userText(id(0), id(1)), userText(id(1), id(0))], /cycle/],
    ["a missing parent", [headerText(), userText(id(0), id(7))], /not in the file/],
    ["a line that is no entry", [headerText(), ...chain(2), "garbage"], /no|not/],
    ["a body that is no JSON", [headerText(), ...chain(1), BAD_BODY], /a0000001|not/],
    ["a line that fits no segment", [headerText(), userText(id(0), null, "x".repeat(4096))], /a segment holds 4096/],
  ])("%s refuses, named, and the file stays as it is", async (_name, lines, named) => {
    const disk = diskWith(fileText(...lines));
    const refused = { name: "migration_failed", message: expect.stringMatching(named) };
    await expect(toContainer(disk)).rejects.toMatchObject(refused);
    expect([textAt(disk), activeOn(disk)]).toEqual([fileText(...lines), "jsonl_v3"]);
    expect((await planMigration(optionsOn(disk), FILE)).obstacles.length).toBeGreaterThan(0);
    expect(disk.openCount).toBe(0);
  });

  test("a session that another process writes to is locked", async () => {
    const disk = diskWith(FIVE);
    const table: LockTable = new Map();
    const other = optionsOn(disk, locksOf("the other process", table)).openFile(FILE);
    other.lock.acquire();
    const mine = optionsOn(disk, locksOf("mine", table));
    await expect(toContainer(disk, mine)).rejects.toMatchObject({ name: "session_locked" });
    other.close();
    // Here every log of a process has a lock of its own.
    await expect(toContainer(disk)).resolves.toMatchObject({ state: "MIGRATED" });
  });

  test("what another program appends while the container is built gives the migration up", async () => {
    const disk = diskWith(FIVE);
    let isDone = false;
    const progress = (at: number, of: number): void => {
      if (isDone || at < of / 3) return;
      isDone = true;
      writeBehind(disk, FILE, THEIRS);
    };
    const going = migrate(optionsOn(disk), FILE, { progress });
    await expect(going).rejects.toMatchObject({ name: "migration_failed", retryable: true });
    expect([activeOn(disk), textAt(disk)]).toEqual(["jsonl_v3", FIVE + THEIRS]);
    expect(readMigrationStatus(disk, FILE)).toMatchObject({ state: "CLEAN", interrupted: false });
    expect(readMigrationStatus(disk, FILE).events.at(-1)).toMatchObject({
      phase: "failed",
      errorClass: "atomicity_violation",
    });
    // The next one takes the new entry along, and the ledger of the first attempt.
    await expect(toContainer(disk)).resolves.toMatchObject({ entryCount: 6 });
    expect(ledgerOn(disk).filter(({ phase }) => phase === "planned")).toHaveLength(2);
  });

  test("a container that is not ours is left alone", async () => {
    const disk = diskWith(FIVE);
    disk.put(manifestFile(CONTAINER), toBytes("{}"));
    await expect(toContainer(disk)).rejects.toThrow("not a container of a session");
    expect(textAt(disk, manifestFile(CONTAINER))).toBe("{}");
  });

  test("beside a container that lost its pointer, and after the file was put back, names where that one is kept", async () => {
    const disk = await migrated();
    disk.remove(POINTER);
    disk.rename(SNAPSHOT, FILE);
    expect(await toContainer(disk)).toMatchObject({ keptAt: OLD });
    expect(disk.content(ledgerFile(OLD))).toBeDefined();
  });
});

describe("rolling back", () => {
  test("with nothing appended the file is the same again, byte for byte", async () => {
    const disk = diskWith(FIVE.slice(0, -1));
    const { snapshotId } = await toContainer(disk);
    const done = await rollBack(optionsOn(disk), CONTAINER, { reason: "a test", correlationId: "corr-0002" });
    expect(done).toMatchObject({ state: "ROLLED_BACK", sessionPath: FILE, laterEntries: 0, snapshotId });
    const states = "DIRTY SEGMENT_SEALED INDEXED CHECKPOINTED ROLLED_BACK";
    expect(done.transitions.map(({ toState }) => toState).join(" ")).toBe(states);
    // The checkpoint of these moves was made.
    const made = JSON.parse(textAt(disk, checkpointFile(OLD, 2)));
    expect(made).toMatchObject({ headEntrySeq: 5, reason: "pre_migration" });
    expect([textAt(disk), disk.content(SNAPSHOT)]).toEqual([FIVE.slice(0, -1), undefined]);
    const expected = { phase: "rollback", correlationId: "corr-0002" };
    const pointer = { ...expected, active: "jsonl_v3", reason: "a test", snapshotId };
    expect(readPointer(disk, POINTER)).toMatchObject(pointer);
    // The container is kept, with the whole story in its ledger.
    expect(done.keptAt).toBe(OLD);
    const event = { ...expected, outcome: "ok", sourceFormat: "native_v2", targetFormat: "jsonl_v3" };
    expect(ledgerOn(disk, OLD).at(-1)).toMatchObject(event);
    expect(readMigrationStatus(disk, FILE)).toMatchObject({
      state: "ROLLED_BACK",
      interrupted: false,
      reason: "a test",
    });
    expect(readMigrationStatus(disk, FILE).events).toHaveLength(6);
    expect(disk.openCount).toBe(0);
  });

  test("what was appended since stands behind the snapshot, line for line", async () => {
    const later = [SIXTH, entryText("custom", id(6), id(5), { n: 1 }).replace(":1}", ":1.0}")];
    const disk = await migrated(FIVE.slice(0, -1), ...later);
    expect(await back(disk)).toMatchObject({ laterEntries: 2, entryCount: 7 });
    expect(textAt(disk)).toBe(FIVE + fileText(...later));
    expect(textAt(disk, `${FILE}.v3.bak`)).toBe(FIVE.slice(0, -1));
    // There and back again.
    await toContainer(disk);
    expect(linesOn(disk)).toEqual([...FIVE_LINES, ...later]);
    await back(disk);
    expect(textAt(disk)).toBe(FIVE + fileText(...later));
    expect(disk.paths().some((path) => path.startsWith(`${OLD}.2/`))).toBe(true);
  });

  test("a file of version 1 comes back as it was, and as version 3 beside the original if it was continued", async () => {
    const old = fileText(
      `{"type":"session","id":"${SESSION}","timestamp":"${TIME}","cwd":"/"}`,
      `{"type":"message","timestamp":"${TIME}","message":{"role":"user","content":"one"}}`,
      `{"type":"message","timestamp":"${TIME}","message":{"role":"hookMessage","content":"two"}}`,
    );
    const before = linesOn(diskWith(old));
    const disk = await migrated(old);
    expect(linesOn(disk)).toEqual(before);
    await back(disk);
    expect(textAt(disk)).toBe(old);
    await toContainer(disk);
    const line = userText(id(5), JSON.parse(before[1]).id);
    await appendTo(disk, line);
    await back(disk);
    const [header, ...lines] = textAt(disk).trimEnd().split("\n");
    expect(JSON.parse(header)).toMatchObject({ id: SESSION, version: 3 });
    expect([lines, textAt(disk, `${FILE}.v1.bak`)]).toEqual([[...before, line], old]);
  });

  describe.each([
    ["with its snapshot alone", []],
    ["with later entries", [userText(id(6), id(4), "later")]],
  ] as const)("another file in the place of the session file, %s,", (_name, later) => {
    const OTHER = toBytes("somebody's\n");

    test("is not overwritten or removed, whichever operation fails", async () => {
      const beginning = await migrated(FIVE, ...later);
      beginning.put(FILE, OTHER);
      const whole = beginning.after();
      whole.set(undefined);
      await expect(back(whole)).rejects.toMatchObject({ name: "already_exists" });
      expect(readPointer(whole, POINTER)).toMatchObject({ active: "native_v2", phase: "completed" });
      expect(whole.operations.length).toBeGreaterThan(20);
      for (const at of share(range(0, whole.operations.length + 1), 24)) {
        const disk = beginning.after();
        if (at > 0) disk.set({ kind: "fail", at, errno: "EIO" });
        await back(disk).catch(() => {});
        expect(disk.content(FILE), `${disk.operations[at - 1]}, operation ${at}`).toEqual(OTHER);
      }
    });

    test("is not either if it comes while the session is rolled back", async () => {
      const beginning = await migrated(FIVE, ...later);
      const whole = beginning.after();
      whole.set(undefined);
      await back(whole);
      let came = 0;
      for (const at of share(range(1, whole.operations.length + 1), 24)) {
        const disk = beginning.after();
        let isThere = false;
        const watched = disturbed(disk, (call) => {
          if (call !== at || disk.content(FILE) !== undefined) return;
          disk.put(FILE, OTHER);
          isThere = true;
        });
        await rollBack(optionsOn(watched), CONTAINER).catch(() => {});
        if (!isThere) continue;
        came++;
        expect(disk.content(FILE), `before call ${at}`).toEqual(OTHER);
      }
      expect(came).toBeGreaterThan(5);
    });
  });
});

describe("failure semantics of the seed", () => {
  test("cutover fails after the commit marker: FAILED, read-only, and rolled back before writes", async () => {
    const disk = await halfway();
    expect([stateOn(disk), linesOn(disk)]).toEqual(["FAILED", FIVE_LINES]);
    await expect(appendTo(disk, SIXTH)).rejects.toMatchObject({ name: "migration_failed" });
    expect(await back(disk)).toMatchObject({ state: "ROLLED_BACK", sessionPath: FILE, keptAt: OLD });
    expect([textAt(disk), disk.content(SNAPSHOT), stateOn(disk)]).toEqual([FIVE, undefined, "ROLLED_BACK"]);
  });

  test("cutover fails between the pointer and the name of the file: the source remains active", async () => {
    const disk = await halfway();
    disk.rename(SNAPSHOT, FILE);
    expect(readMigrationStatus(disk, FILE)).toMatchObject({
      active: "jsonl_v3",
      state: "MIGRATION_STAGING",
      interrupted: true,
    });
    expect(linesOn(disk)).toEqual(FIVE_LINES);
    await expect(appendTo(disk, SIXTH)).rejects.toMatchObject({ name: "not_a_session" });
    await expect(back(disk)).resolves.toMatchObject({ state: "ROLLED_BACK" });
    expect(textAt(disk)).toBe(FIVE);
  });

  test("a rollback that was cut off while it took the name without hard links goes on over the empty file", async () => {
    const disk = await migrated();
    pointTo(disk, { phase: "rollback" });
    disk.put(FILE, new Uint8Array(0));
    expect(activeOn(disk)).toBe("native_v2");
    await expect(back(disk)).resolves.toMatchObject({ state: "ROLLED_BACK" });
    expect(textAt(disk)).toBe(FIVE);
  });

  test("a cutover that another process takes back meanwhile is left to that process", async () => {
    const disk = await halfway();
    const before = inContainer(disk);
    // It was a cutover that was cut off when it was looked at first: for its source, and for its phase.
    const looks = atLook(disk, 3, "before", () => {
      disk.link(SNAPSHOT, FILE);
      pointTo(disk, { active: "jsonl_v3", phase: "rollback" });
    });
    await expect(back(disk)).rejects.toMatchObject({ retryable: true });
    expect(looks()).toBeGreaterThan(2);
    expect(inContainer(disk)).toEqual(before);
  });

  test("a rollback that another process finishes, and a migration of its own follows, leaves that container alone", async () => {
    const pointer = textAt(await migrated(), POINTER);
    const disk = await halfwayBack();
    // It was a rollback that was cut off when it was looked at first: for its source, and for its phase.
    atLook(disk, 2, "after", () => {
      disk.put(POINTER, toBytes(pointer));
      disk.remove(FILE);
    });
    const ledger = disk.content(ledgerFile(CONTAINER));
    await expect(back(disk)).rejects.toMatchObject({ name: "migration_failed", retryable: true });
    expect(disk.content(ledgerFile(CONTAINER))).toEqual(ledger);
    expect([activeOn(disk), stateOn(disk), linesOn(disk)]).toEqual(["native_v2", "MIGRATED", FIVE_LINES]);
  });

  test("the end of a rollback is refused while another process writes to the session file, and nothing is changed", async () => {
    const disk = await halfwayBack();
    const table: LockTable = new Map();
    const other = optionsOn(disk, locksOf("the other process", table)).openFile(FILE);
    other.lock.acquire();
    const before = disk.paths();
    const mine = optionsOn(disk, locksOf("mine", table));
    await expect(back(disk, mine)).rejects.toMatchObject({ name: "session_locked" });
    expect(disk.paths()).toEqual(before);
    other.close();
    expect(await back(disk, mine)).toMatchObject({ state: "ROLLED_BACK" });
    expect(linesOn(disk)).toEqual(FIVE_LINES);
  });

  test("a cutover that is brought to its end before its locks are free is not taken back", async () => {
    const disk = await halfway();
    const locks = locksOf("us", new Map());
    const acquire: Locks["acquire"] = (file, place) => {
      pointTo(disk, { phase: "completed" });
      return locks.acquire(file, place);
    };
    const going = back(disk, optionsOn(disk, { ...locks, acquire }));
    await expect(going).rejects.toMatchObject({ name: "migration_failed", retryable: true });
    expect([activeOn(disk), stateOn(disk), linesOn(disk)]).toEqual(["native_v2", "MIGRATED", FIVE_LINES]);
  });

  test("a commit marker with failed verification forces the rollback, with what another program wrote", async () => {
    const disk = diskWith(FIVE);
    const rename = disk.rename.bind(disk);
    disk.rename = (from, to) => {
      // Between the last look at the file and its freezing.
      if (from === FILE) writeBehind(disk, FILE, THEIRS);
      rename(from, to);
    };
    await expect(toContainer(disk)).rejects.toMatchObject({ name: "migration_failed" });
    expect([activeOn(disk), stateOn(disk)]).toEqual(["jsonl_v3", "ROLLED_BACK"]);
    expect(textAt(disk)).toBe(FIVE + THEIRS);
    expect(readPointer(disk, POINTER)?.reason).toContain("Another program wrote");
  });

  test("a store at its checkpoint is rolled back by that one move", async () => {
    const disk = await migrated(FIVE, SIXTH);
    await checkpoint(disk);
    const { transitions } = await back(disk);
    expect(transitions).toMatchObject([{ fromState: "CHECKPOINTED", toState: "ROLLED_BACK" }]);
  });

  test("a snapshot that was removed: the container is the session, and the file is written from it", async () => {
    const disk = await migrated();
    disk.remove(SNAPSHOT);
    expect(await audit(disk, CONTAINER)).toMatchObject({ ok: true });
    expect(stateOn(disk)).toBe("MIGRATED");
    await appendTo(disk, SIXTH);
    expect(await back(disk)).toMatchObject({ state: "ROLLED_BACK", rebuilt: true, entryCount: 6 });
    expect(textAt(disk)).toBe(FIVE + fileText(SIXTH));
  });

  test("a snapshot that is not what it was is not gone back to, and nothing changes", async () => {
    const disk = await migrated();
    const changed = FIVE.replace("say", "SAY");
    disk.put(SNAPSHOT, toBytes(changed));
    const pointer = disk.content(POINTER);
    const refused = { name: "migration_failed", message: expect.stringMatching(/move this file away/) };
    await expect(back(disk)).rejects.toMatchObject(refused);
    expect(disk.content(POINTER)).toEqual(pointer);
    await appendTo(disk, SIXTH);
    // The way that was named.
    disk.rename(SNAPSHOT, `${FOLDER}/elsewhere`);
    expect(await back(disk)).toMatchObject({ rebuilt: true, entryCount: 6 });
    expect(textAt(disk, `${FOLDER}/elsewhere`)).toBe(changed);
  });

  test("damage in the container does not stand in the way of the snapshot when nothing was appended", async () => {
    const disk = await migrated();
    rewriting(segmentFile(CONTAINER, 1), (text) => text.replace("say", "sax"))(disk);
    expect((await audit(disk, CONTAINER)).ok).toBe(false);
    await expect(back(disk)).resolves.toMatchObject({ laterEntries: 0 });
    expect(textAt(disk)).toBe(FIVE);
  });
});

test("a rollback whose last sync alone is refused is final: asked again, there is nothing to do", async () => {
  const disk = await migrated();
  const { syncFolder } = disk;
  disk.syncFolder = async (path) => {
    if (disk.paths().some((other) => other.startsWith(`${OLD}/`))) throw diskError();
    await syncFolder.call(disk, path);
  };
  const failure = await back(disk).catch((error) => error);
  expect(failure).toMatchObject({ name: "storage_failed", retryable: false });
  expect(failure.message).toContain(`The session is ${FILE}. `);
  expect(failure.message).toContain(OLD);
});

describe("every disk operation", () => {
  const DIGEST = "ab".repeat(32);

  interface EndedWay extends Way {
    /** The format after success. */
    readonly to: "jsonl_v3" | "native_v2";
    /** An id that is not in the session, and is still somewhere. */
    readonly kept?: string;
  }

  /** After the snapshot was put back under the name of the file. */
  const putBack = async (disk: FaultDisk, hasPointer = true): Promise<FaultDisk> => {
    if (!hasPointer) disk.remove(POINTER);
    disk.rename(SNAPSHOT, FILE);
    return disk;
  };
  const lost = async () => putBack(await migratedDisk(userText(id(2), id(1))), false);
  const ids = [id(0), id(1)];
  const all: EndedWay[] = [
    ...WAYS.map((way) => ({ ...way, to: way.name === "a migration" ? ("native_v2" as const) : ("jsonl_v3" as const) })),
    { name: "a migration beside a lost pointer", begin: lost, go: toContainer, ids, to: "native_v2", kept: id(2) },
    { name: "a rollback to the file", begin: async () => putBack(await migratedDisk()), go: back, ids, to: "jsonl_v3" },
  ];
  const ways: EndedWay[] = all.map((way) => ({
    ...way,
    begin: async () => {
      const disk = await way.begin();
      disk.put(`${getAttachmentFolder(placeOn(disk))}/${DIGEST}`, toBytes("attached"));
      return disk;
    },
  }));

  /** Describes a test for each way: a sixth of the operations of two of them, and in the sweep all of each. */
  const testWays = (title: string, run: (way: EndedWay, ofMany: number) => Promise<void>): void => {
    for (const n of [0, 2]) test.each([ways[n]])(`$name: ${title} (a sixth)`, (way) => run(way, 6));
    for (const way of ways) test.each([way])(`$name: ${title}`, { timeout: 60_000, ...SWEEP }, () => run(way, 1));
  };

  /** Whatever happened: the session is there whole, one store is active, and going again gets there. */
  const expectWhole = async (way: EndedWay, disk: FaultDisk, context: string): Promise<void> => {
    const idsOn = () => linesOn(disk).map((line) => JSON.parse(line).id);
    expect(idsOn(), context).toEqual(way.ids);
    expect(["CLEAN", "MIGRATED", "MIGRATION_STAGING", "ROLLED_BACK", "FAILED"], context).toContain(stateOn(disk));
    if (activeOn(disk) !== way.to || stateOn(disk) === "FAILED" || stateOn(disk) === "MIGRATION_STAGING") {
      await way.go(disk);
      expect(activeOn(disk), context).toBe(way.to);
    } else if (readMigrationStatus(disk, placeOn(disk)).interrupted) await way.go(disk);
    expect(idsOn(), context).toEqual(way.ids);
    expect(listAttachments(disk, getAttachmentFolder(placeOn(disk))), context).toEqual([DIGEST]);
    const isKept = disk.paths().some((path) => Buffer.from(disk.content(path) ?? []).includes(way.kept ?? ""));
    expect(isKept, context).toBe(true);
    if (way.to === "native_v2") expect((await audit(disk, CONTAINER)).findings, context).toEqual([]);
    else expect(inContainer(disk), context).toEqual([]);
  };

  const recorded = async (way: EndedWay): Promise<FaultDisk> => {
    const disk = await way.begin();
    disk.record();
    await way.go(disk);
    return disk;
  };

  testWays("the machine dies, and loses what was not synced", async (way, ofMany) => {
    const whole = await recorded(way);
    const count = whole.operations.length;
    const beginning = await way.begin();
    expect(count).toBeGreaterThan(40);
    const seen = new Set<string>();
    for (const at of share(faultPoints("die", whole), 12 / ofMany)) {
      const disk = beginning.after();
      disk.set({ kind: "die", at });
      await way.go(disk).catch(() => {});
      expect(disk.struck).toBe(true);
      const context = `dies at ${disk.operations.at(-1)} (${at} of ${count})`;
      for (const { disk: after, cut } of disk.crashes(seen))
        await expectWhole(way, after, `${context}, ${JSON.stringify(cut)}`);
    }
  });

  /** Places of the sources at which one of the ways met an error. */
  const places: Record<number, Set<string>> = { 1: new Set(), 6: new Set() };

  test("a segment that is full and cannot be synced while others are written makes nothing the session", async () => {
    // As long as a piece without a pause: each has a segment of its own.
    const lines = range(0, 4).map((n) => userText(id(n), n === 0 ? null : id(n - 1), "x".repeat(4 << 10)));
    const content = toBytes(fileText(headerText(), ...lines));
    const options = (disk: FaultDisk): MigrationOptions => ({
      ...optionsOn(disk, noLocks, 6 << 10),
      pauseBytes: 4 << 10,
    });
    const clean = diskWith(content);
    await migrate(options(clean), FILE);
    expect(linesOn(clean)).toEqual(lines);
    const syncs = clean.operations.flatMap((operation, n) => (operation === "sync" ? [n + 1] : []));
    for (const at of share(syncs, 6)) {
      const disk = diskWith(content);
      disk.set({ kind: "fail", at, errno: "EIO" });
      const failed = { name: expect.stringMatching(/^(storage|migration)/) };
      await expect(migrate(options(disk), FILE), `sync ${at}`).rejects.toMatchObject(failed);
      disk.set(undefined);
      expect(disk.openCount, `sync ${at}`).toBe(0);
      expect(activeOn(disk)).toBe("jsonl_v3");
      expect(disk.content(FILE)).toEqual(content);
    }
  });

  /** Returns the reader's state: the pointer, the session file, its snapshot, and the file that was moved away. */
  const readLog = (disk: FaultDisk): unknown => [
    ...[POINTER, FILE, SNAPSHOT].map((path) => decodeText(disk.content(path) ?? toBytes("none"))),
    disk.paths().filter((path) => path.includes(".rolled-back")).length,
  ];

  /** A failure says that nothing was changed only where nothing was, and what to do where the session is not settled. */
  const expectLogged = (disk: FaultDisk, before: unknown, failure: unknown, context: string): void => {
    const { message } = failure as Error;
    if (/nothing was changed/i.test(message)) expect(readLog(disk), `${context}: ${message}`).toEqual(before);
    const { state, interrupted } = readMigrationStatus(disk, placeOn(disk));
    const isUnsettled = state === "FAILED" || (state === "ROLLED_BACK" && interrupted);
    if (isUnsettled) expect(message, context).toContain("rollback_migration");
  };

  testWays("the disk takes no change any more", async (way, ofMany) => {
    /** Refuses every change from the n-th on; returns how many there were. */
    const refuseFrom = (disk: FaultDisk, first: number): (() => number) => {
      let changes = 0;
      const names = [...CHANGES, "syncNow", "syncFolderNow"] as "rename"[];
      for (const name of names) {
        const act = disk[name].bind(disk);
        disk[name] = (...given) => {
          if (++changes >= first) throw diskError("EROFS");
          return act(...given);
        };
      }
      return () => {
        for (const name of names) Reflect.deleteProperty(disk, name);
        return changes;
      };
    };
    const beginning = await way.begin();
    const whole = beginning.after();
    const end = refuseFrom(whole, Number.POSITIVE_INFINITY);
    await way.go(whole);
    for (const first of share(range(1, end() + 1), 24 / ofMany)) {
      const disk = beginning.after();
      const before = readLog(disk);
      const allow = refuseFrom(disk, first);
      const context = `from change ${first} on`;
      await way.go(disk).catch((error: unknown) => {
        allow();
        expectLogged(disk, before, error, context);
      });
      allow();
      await expectWhole(way, disk, context);
    }
  });

  testWays("one operation fails", async (way, ofMany) => {
    const whole = await recorded(way);
    const beginning = await way.begin();
    const count = whole.operations.length;
    for (const kind of ["fail", "short"] as const)
      for (const at of share(faultPoints(kind, whole, places[ofMany]), (kind === "fail" ? 18 : 6) / ofMany)) {
        const disk = beginning.after();
        const fault: Fault = { kind, at, errno: "ENOSPC" };
        const before = readLog(disk);
        disk.set(fault);
        const context = `${kind} at ${whole.operations.at(at - 1)} (${at} of ${count})`;
        await way.go(disk).catch((error) => {
          disk.set(undefined);
          const name = expect.stringMatching(/^(storage|migration|not_a|session_n)/);
          expect(error, context).toMatchObject({ name });
          expectLogged(disk, before, error, context);
        });
        disk.set(undefined);
        await expectWhole(way, disk, context);
      }
  });
});

describe("damage to documents that hold no entries", () => {
  const CHECKPOINT = checkpointFile(CONTAINER, 2);
  const [MANIFEST, INDEX, LEDGER] = [manifestFile(CONTAINER), indexFile(CONTAINER), ledgerFile(CONTAINER)];
  const put = (path: string, text: string) => (disk: FaultDisk) => disk.put(`${CONTAINER}/${path}`, toBytes(text));
  const otherDigit = (digit: string) => (digit === "1" ? "2" : "1");
  const SEVENTH = userText(id(6), id(5));

  const replacing = (path: string, from: string | RegExp, to: string | ((found: string) => string)) =>
    rewriting(path, (text) => text.replace(from, to as string));

  test.each<[string, (disk: FaultDisk) => void]>([
    ["half a checkpoint", put("checkpoints/0000000000000003.json", '{"half')],
    ["a chain with another digit", replacing(CHECKPOINT, /(?<="chainHash": ")./, otherDigit)],
    ["a head with another id", replacing(CHECKPOINT, id(5), id(3))],
    ["another number", replacing(CHECKPOINT, '"headEntrySeq": 6', '"headEntrySeq": 4')],
    ["half a manifest", rewriting(MANIFEST, (text) => text.slice(0, 200))],
    ["no manifest", (disk) => disk.remove(MANIFEST)],
    ["a row with another checksum", replacing(INDEX, /(?<="crc32c":")./, otherDigit)],
    ["a row with another place", replacing(INDEX, /(?<="byteOffset":)[1-9]\d/, "99")],
    ["a row that is none", replacing(INDEX, "{", "[")],
    ["no index", (disk) => disk.remove(INDEX)],
    ["half a row", rewriting(INDEX, (text) => text.slice(0, -9))],
    ["half a frame", rewriting(segmentFile(CONTAINER, 1), (text) => `${text}{"schema":"pi.session`)],
    ["another file among the segments", put("segments/notes.seg", "x")],
    ["another folder", put("segments/old/0000000000000001.seg", "x")],
    ["a bad line in the ledger", rewriting(LEDGER, (text) => `nonsense\n${text}`)],
    ["half a line in the ledger", rewriting(LEDGER, (text) => `${text}{"schema"`)],
    ["no ledger", (disk) => disk.remove(LEDGER)],
    ["a damaged cache", put("index-snapshot.bin", "x")],
  ])("leaves the way back open: %s", async (_what, harm) => {
    // Two entries are not in the snapshot, the last of them comes after the last checkpoint.
    const continued = await migrated(FIVE, SIXTH);
    await checkpoint(continued);
    await appendTo(continued, SEVENTH);
    const disk = continued.after();
    harm(disk);
    expect(await back(disk)).toMatchObject({ active: "jsonl_v3", laterEntries: 2 });
    expect([textAt(disk), stateOn(disk)]).toEqual([FIVE + fileText(SIXTH, SEVENTH), "ROLLED_BACK"]);
  });
});
