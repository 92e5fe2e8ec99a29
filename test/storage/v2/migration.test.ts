/**
 * A session on its way from a JSONL file to a container and back: what stands where afterwards, what refuses, and what
 * every disk operation leaves when the machine dies there (seed 003, "Failure semantics", "Migration and rollback").
 */

import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import {
  checkpointFile,
  indexFile,
  ledgerFile,
  manifestFile,
  pointerFile,
  segmentFile,
} from "../../../src/storage/fs/container-paths.ts";
import { jsonlStore } from "../../../src/storage/jsonl/store.ts";
import type { Locks } from "../../../src/storage/locks/locks.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { attachmentFolder, attachmentsIn } from "../../../src/storage/log/attachments.ts";
import { leafMemory } from "../../../src/storage/log/leaf-store.ts";
import { audit } from "../../../src/storage/v2/audit.ts";
import { readLedger, readPointer } from "../../../src/storage/v2/documents.ts";
import { migrate, plan } from "../../../src/storage/v2/migration.ts";
import type { MigrationOptions } from "../../../src/storage/v2/migration-steps.ts";
import { isContainer, status } from "../../../src/storage/v2/pointer.ts";
import { rollBack } from "../../../src/storage/v2/rollback.ts";
import { segmentedStore } from "../../../src/storage/v2/store.ts";
import { CHANGES, type Fault, FaultDisk, faultPoints } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import {
  assistantText,
  chain,
  entryText,
  fileText,
  headerText,
  id,
  SESSION,
  TIME,
  userText,
} from "../../support/lines.ts";
import { type LockTable, locksOf } from "../../support/locks.ts";
import { need, needs } from "../../support/needs.ts";
import { forSeedsAsync, type Random, range, share } from "../../support/random.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";

const FOLDER = "/home/me/sessions";
const FILE = `${FOLDER}/2026-01-24T16-22-26-831Z_${SESSION}.jsonl`;
const CONTAINER = `${FOLDER}/${SESSION}.v2`;
const SNAPSHOT = `${FILE}.migrated`;
const CORRELATION = "corr-0001";

/** As in a server, no lock is given twice. */
function optionsOn(disk: FaultDisk, locks: Locks = locksOf("us", new Map()), segmentBytes = 4096): MigrationOptions {
  const env = testEnv();
  const common = { disk, env, locks, durability: "sync", quarantine: "/state/quarantine" } as const;
  const files = jsonlStore({ ...common, fileFor: () => FILE });
  const containers = segmentedStore({ ...common, containerFor: () => CONTAINER, segmentBytes });
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
  disk.put(file, typeof content === "string" ? bytesOf(content) : content);
  return disk;
}

/** What is active, by the pointer, and by the name of the file while that is not settled. */
function activeOn(disk: FaultDisk): "jsonl_v3" | "sqlite_v1" | "native_v2" {
  const pointer = readPointer(disk, pointerFile(CONTAINER));
  if (pointer?.active !== "native_v2") return pointer?.active ?? "jsonl_v3";
  return isContainer(disk, CONTAINER, pointer) ? "native_v2" : "jsonl_v3";
}

/** The lines of the session as whoever opens it now reads them; throws when it cannot be opened. */
function linesOn(disk: FaultDisk): string[] {
  const options = optionsOn(disk);
  const log = activeOn(disk) === "native_v2" ? options.openContainer(CONTAINER, true) : options.openFile(FILE, true);
  try {
    return linesOf(log);
  } finally {
    log.close();
  }
}

function attachmentsOn(disk: FaultDisk): string[] {
  return attachmentsIn(disk, attachmentFolder(activeOn(disk) === "native_v2" ? CONTAINER : FILE));
}

function linesOf(log: Log): string[] {
  return Array.from({ length: log.nodes.count }, (_, position) => textOf(log.read(position)));
}

function stateOn(disk: FaultDisk): string {
  return status(disk, activeOn(disk) === "native_v2" ? CONTAINER : FILE).state;
}

async function appendTo(disk: FaultDisk, ...lines: string[]): Promise<void> {
  const log = optionsOn(disk).openContainer(CONTAINER);
  log.append(lines.map(bytesOf));
  await log.commit();
  log.close();
}

const FIVE = fileText(headerText(), ...chain(5));
const FIVE_LINES = chain(5);

/** Entries as other programs write them: unknown types and members, numbers and escapes that parsing would lose. */
function oddLines(random: Random, count: number): string[] {
  const numbers = ["1.0", "1e3", "12345678901234567890", "-0", "0.10", "1E-7"];
  return Array.from({ length: count }, (_, i) => {
    const parent = i === 0 || random.chance(0.05) ? "null" : `"${id(random.chance(0.7) ? i - 1 : random.int(i))}"`;
    const type = random.pick(["message", "custom", "usage", "plugin.thing", "label", "compaction_v9"]);
    const rest = random.pick([
      `,"message":{"role":"user","content":"caf\\u00e9 ${random.hex(6)} \u2028 \u2603"}`,
      `,"n":${random.pick(numbers)},"deep":{"z":[${random.pick(numbers)}],"a":null}`,
      `,"data":"${"x".repeat(random.int(900))}"`,
      `, "spaced" : [ 1,2 ] ,"dup":1,"dup":2`,
    ]);
    return `{"type":"${type}","id":"${id(i)}","parentId":${parent},"timestamp":"${TIME}"${rest}}`;
  });
}

describe("migrating", () => {
  test("the container holds every line, the file is frozen beside it, the pointer and the ledger tell of it", async () => {
    const disk = diskWith(FIVE);
    const shown: number[] = [];
    const done = await migrate(optionsOn(disk), FILE, {
      correlationId: CORRELATION,
      progress: (at, of) => shown.push(at / of),
    });
    expect(done).toMatchObject({
      state: "MIGRATED",
      entryCount: 5,
      sessionPath: CONTAINER,
      correlationId: CORRELATION,
    });
    expect(done.transitions.map(({ fromState, toState }) => `${fromState} ${toState}`)).toEqual([
      "CLEAN MIGRATION_STAGING",
      "MIGRATION_STAGING MIGRATED",
    ]);
    expect(linesOn(disk)).toEqual(FIVE_LINES);
    expect(textOf(disk.content(SNAPSHOT) as Uint8Array)).toBe(FIVE);
    expect(disk.content(FILE)).toBeUndefined();
    expect(readPointer(disk, pointerFile(CONTAINER))).toMatchObject({
      active: "native_v2",
      phase: "completed",
      correlationId: CORRELATION,
      snapshotId: done.snapshotId,
      source: FILE.slice(FOLDER.length + 1),
    });
    expect(readLedger(disk, ledgerFile(CONTAINER)).events.map(({ phase, outcome }) => `${phase} ${outcome}`)).toEqual([
      "planned ok",
      "staging_copy ok",
      "integrity_check ok",
      "cutover_commit ok",
      "completed ok",
    ]);
    expect(await audit(disk, CONTAINER)).toMatchObject({ ok: true, findings: [] });
    expect(stateOn(disk)).toBe("MIGRATED");
    expect(shown.at(-1)).toBe(1);
    expect(shown).toEqual([...shown].sort((a, b) => a - b));
    expect(disk.openCount).toBe(0);
  });

  test("it goes on where it was, and is not migrated twice", async () => {
    const disk = diskWith(FIVE);
    await migrate(optionsOn(disk), FILE);
    await appendTo(disk, userText(id(5), id(4)));
    expect(linesOn(disk)).toEqual([...FIVE_LINES, userText(id(5), id(4))]);
    expect(await migrate(optionsOn(disk), CONTAINER)).toMatchObject({ state: "CLEAN", entryCount: 6 });
    expect(stateOn(disk)).toBe("CLEAN");
  });

  test("a plan reads everything and writes nothing", async () => {
    const disk = diskWith(FIVE);
    const before = disk.paths();
    disk.set(undefined);
    const planned = await plan(optionsOn(disk), FILE);
    expect(planned).toMatchObject({ entryCount: 5, bytes: bytesOf(FIVE).length, version: 3, obstacles: [] });
    expect(planned.location.container).toBe(CONTAINER);
    expect(disk.paths()).toEqual(before);
    const writing = ["write", "create", "rename", "link", "truncate", "remove", "makeFolder"];
    expect(disk.operations.filter((operation) => writing.includes(operation))).toEqual([]);
  });

  test("a position of the leaf that only we keep goes along, there and back", async () => {
    const disk = diskWith(FIVE);
    const leaves = leafMemory(disk, "/state", true);
    const options = { ...optionsOn(disk), leaves };
    const recalled = (log: Log): unknown => {
      const leafId = leaves.recall(log);
      log.close();
      return leafId;
    };
    const before = options.openFile(FILE, true);
    await leaves.record(before, id(1));
    before.close();
    await migrate(options, FILE);
    expect(recalled(options.openContainer(CONTAINER, true))).toBe(id(1));
    await rollBack(options, CONTAINER);
    expect(recalled(options.openFile(FILE, true))).toBe(id(1));
  });

  test("a session without entries", async () => {
    const disk = diskWith(fileText(headerText()));
    expect(await migrate(optionsOn(disk), FILE)).toMatchObject({ state: "MIGRATED", entryCount: 0 });
    expect(await audit(disk, CONTAINER)).toMatchObject({ ok: true });
    expect(await rollBack(optionsOn(disk), CONTAINER)).toMatchObject({ state: "ROLLED_BACK", entryCount: 0 });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(fileText(headerText()));
  });

  const refused: [string, string, RegExp][] = [
    ["an id that is no UUID", fileText(headerText({ id: "my-session" }), ...chain(2)), /not a UUID/],
    [
      "a duplicate id",
      fileText(headerText(), ...chain(2), userText(id(0), id(1), "other")),
      /the id a0000000 is taken/,
    ],
    ["a cycle", fileText(headerText(), userText(id(0), id(1)), userText(id(1), id(0))), /cycle/],
    ["a missing parent", fileText(headerText(), userText(id(0), id(7))), /not in the file/],
    ["a line that is no entry", fileText(headerText(), ...chain(2), "garbage"), /no|not/],
    [
      "a body that is no JSON",
      fileText(headerText(), ...chain(1), userText(id(1), id(0)).replace('"content"', '"content')),
      /a0000001|not/,
    ],
    [
      "a line that fits no segment",
      fileText(headerText(), userText(id(0), null, "x".repeat(4096))),
      /a segment holds 4096/,
    ],
  ];
  test.each(refused)("%s refuses, named, and the file stays as it is", async (_name, content, named) => {
    const disk = diskWith(content);
    await expect(migrate(optionsOn(disk), FILE)).rejects.toMatchObject({
      name: "migration_failed",
      message: expect.stringMatching(named),
    });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(content);
    expect(activeOn(disk)).toBe("jsonl_v3");
    expect((await plan(optionsOn(disk), FILE)).obstacles.length).toBeGreaterThan(0);
    expect(disk.openCount).toBe(0);
  });

  test("a session that another process writes to is locked", async () => {
    const disk = diskWith(FIVE);
    const table: LockTable = new Map();
    const other = optionsOn(disk, locksOf("the other process", table)).openFile(FILE);
    other.acquireLock();
    const mine = optionsOn(disk, locksOf("mine", table));
    await expect(migrate(mine, FILE)).rejects.toMatchObject({ name: "session_locked" });
    other.close();
    // Here every log of a process has a lock of its own.
    await expect(migrate(optionsOn(disk), FILE)).resolves.toMatchObject({ state: "MIGRATED" });
  });

  test("what another program appends while the container is built gives the migration up", async () => {
    const disk = diskWith(FIVE);
    const line = `${userText(id(9), id(4))}\n`;
    let isDone = false;
    await expect(
      migrate(optionsOn(disk), FILE, {
        progress(at, of) {
          if (isDone || at < of / 3) return;
          isDone = true;
          const fd = disk.openAppend(FILE);
          disk.write(fd, bytesOf(line));
          disk.close(fd);
        },
      }),
    ).rejects.toMatchObject({ name: "migration_failed", retryable: true });
    expect(activeOn(disk)).toBe("jsonl_v3");
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE + line);
    expect(status(disk, FILE)).toMatchObject({ state: "CLEAN", interrupted: false });
    expect(status(disk, FILE).events.at(-1)).toMatchObject({ phase: "failed", errorClass: "atomicity_violation" });
    // The next one takes the new entry along, and the ledger of the first attempt.
    await expect(migrate(optionsOn(disk), FILE)).resolves.toMatchObject({ entryCount: 6 });
    expect(readLedger(disk, ledgerFile(CONTAINER)).events.filter(({ phase }) => phase === "planned")).toHaveLength(2);
  });

  test("a container that is not ours is left alone", async () => {
    const disk = diskWith(FIVE);
    disk.put(`${CONTAINER}/manifest.json`, bytesOf("{}"));
    await expect(migrate(optionsOn(disk), FILE)).rejects.toThrow("not a container of a session");
    expect(textOf(disk.content(`${CONTAINER}/manifest.json`) as Uint8Array)).toBe("{}");
  });
});

describe("rolling back", () => {
  test("with nothing appended the file is the same again, byte for byte", async () => {
    const disk = diskWith(FIVE.slice(0, -1));
    const { snapshotId } = await migrate(optionsOn(disk), FILE, { correlationId: CORRELATION });
    const done = await rollBack(optionsOn(disk), CONTAINER, { reason: "a test", correlationId: "corr-0002" });
    expect(done).toMatchObject({ state: "ROLLED_BACK", sessionPath: FILE, laterEntries: 0, snapshotId });
    expect(done.transitions.map(({ toState }) => toState)).toEqual([
      "DIRTY",
      "SEGMENT_SEALED",
      "INDEXED",
      "CHECKPOINTED",
      "ROLLED_BACK",
    ]);
    // The checkpoint of these moves was made.
    const checkpoint = disk.content(checkpointFile(`${CONTAINER}.rolled-back`, 2)) as Uint8Array;
    expect(JSON.parse(textOf(checkpoint))).toMatchObject({ headEntrySeq: 5, reason: "pre_migration" });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE.slice(0, -1));
    expect(disk.content(SNAPSHOT)).toBeUndefined();
    expect(readPointer(disk, pointerFile(CONTAINER))).toMatchObject({
      active: "jsonl_v3",
      phase: "rollback",
      reason: "a test",
      snapshotId,
      correlationId: "corr-0002",
    });
    // The container is kept, with the whole story in its ledger.
    expect(done.keptAt).toBe(`${CONTAINER}.rolled-back`);
    expect(readLedger(disk, ledgerFile(`${CONTAINER}.rolled-back`)).events.at(-1)).toMatchObject({
      phase: "rollback",
      outcome: "ok",
      sourceFormat: "native_v2",
      targetFormat: "jsonl_v3",
      correlationId: "corr-0002",
    });
    expect(status(disk, FILE)).toMatchObject({ state: "ROLLED_BACK", interrupted: false, reason: "a test" });
    expect(status(disk, FILE).events).toHaveLength(6);
    expect(disk.openCount).toBe(0);
  });

  test("what was appended since stands behind the snapshot, line for line", async () => {
    const disk = diskWith(FIVE.slice(0, -1));
    await migrate(optionsOn(disk), FILE);
    const later = [userText(id(5), id(4)), entryText("custom", id(6), id(5), { n: 1 }).replace(":1}", ":1.0}")];
    await appendTo(disk, ...later);
    const done = await rollBack(optionsOn(disk), CONTAINER);
    expect(done).toMatchObject({ laterEntries: 2, entryCount: 7 });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE + fileText(...later));
    expect(textOf(disk.content(`${FILE}.v3.bak`) as Uint8Array)).toBe(FIVE.slice(0, -1));
    // There and back again.
    await migrate(optionsOn(disk), FILE);
    expect(linesOn(disk)).toEqual([...FIVE_LINES, ...later]);
    await rollBack(optionsOn(disk), CONTAINER);
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE + fileText(...later));
    expect(disk.paths().some((path) => path.startsWith(`${CONTAINER}.rolled-back.2/`))).toBe(true);
  });

  const OLD = fileText(
    `{"type":"session","id":"${SESSION}","timestamp":"${TIME}","cwd":"/"}`,
    `{"type":"message","timestamp":"${TIME}","message":{"role":"user","content":"one"}}`,
    `{"type":"message","timestamp":"${TIME}","message":{"role":"hookMessage","content":"two"}}`,
  );

  test("a file of version 1 comes back as it was", async () => {
    const disk = diskWith(OLD);
    const before = linesOn(disk);
    await migrate(optionsOn(disk), FILE);
    expect(linesOn(disk)).toEqual(before);
    await rollBack(optionsOn(disk), CONTAINER);
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(OLD);
  });

  test("a file of version 1 that was continued comes back as version 3, the original beside it", async () => {
    const disk = diskWith(OLD);
    const before = linesOn(disk);
    await migrate(optionsOn(disk), FILE);
    const last = JSON.parse(before[1]).id;
    const line = userText(id(5), last);
    await appendTo(disk, line);
    await rollBack(optionsOn(disk), CONTAINER);
    const [header, ...lines] = textOf(disk.content(FILE) as Uint8Array)
      .trimEnd()
      .split("\n");
    expect(JSON.parse(header)).toMatchObject({ id: SESSION, version: 3 });
    expect(lines).toEqual([...before, line]);
    expect(textOf(disk.content(`${FILE}.v1.bak`) as Uint8Array)).toBe(OLD);
  });

  test("a session that began in V2 gets a file", async () => {
    const disk = new FaultDisk();
    const env = testEnv();
    const store = segmentedStore({
      disk,
      env,
      locks: noLocks,
      durability: "sync",
      quarantine: "/state/quarantine",
      containerFor: () => CONTAINER,
    });
    const log = store.create({ headerLine: bytesOf(headerText()), header: JSON.parse(headerText()) });
    log.append(FIVE_LINES.map(bytesOf));
    await log.commit();
    log.close();
    expect(await rollBack(optionsOn(disk), CONTAINER)).toMatchObject({ state: "ROLLED_BACK", sessionPath: FILE });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE);
  });

  test("a session that was not migrated has nothing to go back to", async () => {
    await expect(rollBack(optionsOn(diskWith(FIVE)), FILE)).rejects.toMatchObject({ name: "migration_failed" });
  });

  test("another file in the place of the session file is not overwritten", async () => {
    const disk = diskWith(FIVE);
    await migrate(optionsOn(disk), FILE);
    disk.put(FILE, bytesOf("somebody's\n"));
    await expect(rollBack(optionsOn(disk), CONTAINER)).rejects.toMatchObject({ name: "already_exists" });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe("somebody's\n");
    expect(readPointer(disk, pointerFile(CONTAINER))).toMatchObject({ active: "native_v2", phase: "completed" });
  });

  describe.each([
    ["with its snapshot alone", []],
    ["with later entries", [userText(id(6), id(4), "later")]],
  ] as const)("%s", (_name, later) => {
    const OTHER = bytesOf("somebody's\n");

    async function migrated(): Promise<FaultDisk> {
      const disk = diskWith(FIVE);
      await migrate(optionsOn(disk), FILE);
      if (later.length > 0) await appendTo(disk, ...later);
      return disk.after();
    }

    test("it is not removed either, whichever operation fails", async () => {
      const beginning = await migrated();
      beginning.put(FILE, OTHER);
      const whole = beginning.after();
      whole.set(undefined);
      await expect(rollBack(optionsOn(whole), CONTAINER)).rejects.toMatchObject({ name: "already_exists" });
      expect(whole.operations.length).toBeGreaterThan(20);
      for (const at of share(range(1, whole.operations.length + 1), 24)) {
        const disk = beginning.after();
        disk.set({ kind: "fail", at, errno: "EIO" });
        await rollBack(optionsOn(disk), CONTAINER).catch(() => {});
        expect(disk.content(FILE), `${disk.operations[at - 1]}, operation ${at}`).toEqual(OTHER);
      }
    });

    test("nor if it comes while the session is rolled back", async () => {
      const beginning = await migrated();
      const whole = beginning.after();
      whole.set(undefined);
      await rollBack(optionsOn(whole), CONTAINER);
      let came = 0;
      for (const at of share(range(1, whole.operations.length + 1), 24)) {
        const disk = beginning.after();
        let calls = 0;
        let isThere = false;
        const watched = new Proxy(disk, {
          get(target, name) {
            const member = Reflect.get(target, name, target);
            if (typeof member !== "function") return member;
            return (...given: unknown[]) => {
              if (++calls === at && target.content(FILE) === undefined) {
                target.put(FILE, OTHER);
                isThere = true;
              }
              return member.apply(target, given);
            };
          },
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
  const migrated = async () => {
    const disk = diskWith(FIVE);
    await migrate(optionsOn(disk), FILE, { correlationId: CORRELATION });
    return disk;
  };

  /** The pointer as a crash between the commit marker and the end of the cutover leaves it. */
  const halfway = async () => {
    const disk = await migrated();
    const pointer = JSON.parse(textOf(disk.content(pointerFile(CONTAINER)) as Uint8Array));
    disk.put(pointerFile(CONTAINER), bytesOf(JSON.stringify({ ...pointer, phase: "cutover_commit" })));
    return disk;
  };

  test("cutover fails before the commit marker: the source remains active", async () => {
    const disk = diskWith(FIVE);
    // The rename of the pointer is the second: the first gives the container its name.
    const renames = (operations: readonly string[]) => operations.filter((operation) => operation === "rename").length;
    disk.set(undefined);
    await migrate(optionsOn(disk), FILE);
    let at = 0;
    while (renames(disk.operations.slice(0, at)) < 2) at++;
    const dying = diskWith(FIVE);
    dying.set({ kind: "die", at });
    await expect(migrate(optionsOn(dying), FILE)).rejects.toBeDefined();
    const next = dying.after();
    expect(activeOn(next)).toBe("jsonl_v3");
    expect(linesOn(next)).toEqual(FIVE_LINES);
    expect(status(next, FILE)).toMatchObject({ state: "MIGRATION_STAGING", interrupted: true });
    await expect(migrate(optionsOn(next), FILE)).resolves.toMatchObject({ state: "MIGRATED" });
  });

  test("cutover fails after the commit marker: FAILED, read-only, and rolled back before writes", async () => {
    const disk = await halfway();
    expect(stateOn(disk)).toBe("FAILED");
    expect(linesOn(disk)).toEqual(FIVE_LINES);
    await expect(appendTo(disk, userText(id(5), id(4)))).rejects.toMatchObject({ name: "migration_failed" });
    const done = await rollBack(optionsOn(disk), CONTAINER);
    expect(done).toMatchObject({ state: "ROLLED_BACK", sessionPath: FILE });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE);
    expect(disk.content(SNAPSHOT)).toBeUndefined();
    expect(stateOn(disk)).toBe("ROLLED_BACK");
  });

  test("cutover fails between the pointer and the name of the file: the source remains active", async () => {
    const disk = await halfway();
    disk.rename(SNAPSHOT, FILE);
    expect(status(disk, FILE)).toMatchObject({ active: "jsonl_v3", state: "MIGRATION_STAGING", interrupted: true });
    expect(linesOn(disk)).toEqual(FIVE_LINES);
    await expect(appendTo(disk, userText(id(5), id(4)))).rejects.toMatchObject({ name: "not_a_session" });
    await expect(rollBack(optionsOn(disk), CONTAINER)).resolves.toMatchObject({ state: "ROLLED_BACK" });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE);
  });

  test("a rollback that was cut off while it took the name without hard links goes on over the empty file", async () => {
    const disk = await migrated();
    const pointer = JSON.parse(textOf(disk.content(pointerFile(CONTAINER)) as Uint8Array));
    disk.put(pointerFile(CONTAINER), bytesOf(JSON.stringify({ ...pointer, phase: "rollback" })));
    disk.put(FILE, new Uint8Array(0));
    expect(activeOn(disk)).toBe("native_v2");
    await expect(rollBack(optionsOn(disk), CONTAINER)).resolves.toMatchObject({ state: "ROLLED_BACK" });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE);
  });

  test("a commit marker whose migration is asked for again is rolled back, then migrated", async () => {
    const disk = await halfway();
    await expect(migrate(optionsOn(disk), CONTAINER)).resolves.toMatchObject({ state: "MIGRATED", entryCount: 5 });
    expect(linesOn(disk)).toEqual(FIVE_LINES);
    expect(readLedger(disk, ledgerFile(`${CONTAINER}.rolled-back`)).events.at(-1)).toMatchObject({
      phase: "rollback",
      outcome: "ok",
    });
  });

  test("a cutover that another process takes back meanwhile is left to that process", async () => {
    const disk = await halfway();
    const pointer = JSON.parse(textOf(disk.content(pointerFile(CONTAINER)) as Uint8Array));
    const theirs = { ...pointer, active: "jsonl_v3", phase: "rollback" };
    const inContainer = () => disk.paths().filter((path) => path.startsWith(`${CONTAINER}/`));
    const before = inContainer();
    const openRead = disk.openRead.bind(disk);
    let looks = 0;
    disk.openRead = (path) => {
      // It was a cutover that was cut off when it was looked at first: for its source, and for its phase.
      if (path === pointerFile(CONTAINER) && ++looks === 3) {
        disk.link(SNAPSHOT, FILE);
        disk.put(path, bytesOf(JSON.stringify(theirs)));
      }
      return openRead(path);
    };
    await expect(rollBack(optionsOn(disk), CONTAINER)).rejects.toMatchObject({ retryable: true });
    expect(looks).toBeGreaterThan(2);
    expect(inContainer()).toEqual(before);
  });

  test("a rollback that another process finishes, and a migration of its own follows, leaves that container alone", async () => {
    const disk = await migrated();
    const pointer = textOf(disk.content(pointerFile(CONTAINER)) as Uint8Array);
    const marker = { ...JSON.parse(pointer), active: "jsonl_v3", phase: "rollback", correlationId: "corr-0002" };
    disk.put(pointerFile(CONTAINER), bytesOf(JSON.stringify(marker)));
    disk.link(SNAPSHOT, FILE);
    const openRead = disk.openRead.bind(disk);
    let looks = 0;
    disk.openRead = (path) => {
      const fd = openRead(path);
      // It was a rollback that was cut off when it was looked at first: for its source, and for its phase.
      if (path === pointerFile(CONTAINER) && ++looks === 2) {
        disk.put(path, bytesOf(pointer));
        disk.remove(FILE);
      }
      return fd;
    };
    const ledger = disk.content(ledgerFile(CONTAINER));
    const refused = { name: "migration_failed", retryable: true };
    await expect(rollBack(optionsOn(disk), CONTAINER)).rejects.toMatchObject(refused);
    expect(disk.content(ledgerFile(CONTAINER))).toEqual(ledger);
    expect([activeOn(disk), stateOn(disk)]).toEqual(["native_v2", "MIGRATED"]);
    expect(linesOn(disk)).toEqual(FIVE_LINES);
  });

  test("the end of a rollback is refused while another process writes to the session file, and nothing is changed", async () => {
    const disk = await migrated();
    const pointer = JSON.parse(textOf(disk.content(pointerFile(CONTAINER)) as Uint8Array));
    disk.put(pointerFile(CONTAINER), bytesOf(JSON.stringify({ ...pointer, active: "jsonl_v3", phase: "rollback" })));
    disk.link(SNAPSHOT, FILE);
    const table: LockTable = new Map();
    const other = optionsOn(disk, locksOf("the other process", table)).openFile(FILE);
    other.acquireLock();
    const before = disk.paths();
    const mine = optionsOn(disk, locksOf("mine", table));
    await expect(rollBack(mine, CONTAINER)).rejects.toMatchObject({ name: "session_locked" });
    expect(disk.paths()).toEqual(before);
    other.close();
    expect(await rollBack(mine, CONTAINER)).toMatchObject({ state: "ROLLED_BACK" });
    expect(linesOn(disk)).toEqual(FIVE_LINES);
  });

  test("a cutover that is brought to its end before its locks are free is not taken back", async () => {
    const disk = await halfway();
    const pointer = JSON.parse(textOf(disk.content(pointerFile(CONTAINER)) as Uint8Array));
    const locks = locksOf("us", new Map());
    const acquire: Locks["acquire"] = (file, place) => {
      disk.put(pointerFile(CONTAINER), bytesOf(JSON.stringify({ ...pointer, phase: "completed" })));
      return locks.acquire(file, place);
    };
    const going = rollBack(optionsOn(disk, { ...locks, acquire }), CONTAINER);
    await expect(going).rejects.toMatchObject({ name: "migration_failed", retryable: true });
    expect([activeOn(disk), stateOn(disk)]).toEqual(["native_v2", "MIGRATED"]);
    expect(linesOn(disk)).toEqual(FIVE_LINES);
  });

  test("a commit marker with failed verification forces the rollback, with what another program wrote", async () => {
    const disk = diskWith(FIVE);
    const line = `${userText(id(9), id(4))}\n`;
    const rename = disk.rename.bind(disk);
    disk.rename = (from, to) => {
      // Between the last look at the file and its freezing.
      if (from === FILE) {
        const fd = disk.openAppend(FILE);
        disk.write(fd, bytesOf(line));
        disk.close(fd);
      }
      rename(from, to);
    };
    await expect(migrate(optionsOn(disk), FILE)).rejects.toMatchObject({ name: "migration_failed" });
    expect(activeOn(disk)).toBe("jsonl_v3");
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE + line);
    expect(stateOn(disk)).toBe("ROLLED_BACK");
    expect(readPointer(disk, pointerFile(CONTAINER))?.reason).toContain("Another program wrote");
  });

  test("a store at its checkpoint is rolled back by that one move", async () => {
    const disk = await migrated();
    await appendTo(disk, userText(id(5), id(4)));
    const log = optionsOn(disk).openContainer(CONTAINER);
    await log.checkpointNow?.();
    log.close();
    const { transitions } = await rollBack(optionsOn(disk), CONTAINER);
    expect(transitions.map(({ fromState, toState }) => `${fromState} ${toState}`)).toEqual([
      "CHECKPOINTED ROLLED_BACK",
    ]);
  });

  test("where nothing is to be migrated there is no migration", async () => {
    const disk = await migrated();
    expect(await migrate(optionsOn(disk), CONTAINER)).toMatchObject({ migrationId: null, correlationId: CORRELATION });
  });

  test("a cutover that was cut off, the file gone: FAILED, and an operator must act", async () => {
    const disk = await halfway();
    disk.remove(SNAPSHOT);
    expect(linesOn(disk)).toEqual(FIVE_LINES);
    await expect(rollBack(optionsOn(disk), CONTAINER)).rejects.toMatchObject({
      name: "migration_failed",
      details: { state: "FAILED" },
    });
    expect(status(disk, CONTAINER)).toMatchObject({ state: "FAILED", active: "native_v2", interrupted: true });
    expect(readLedger(disk, ledgerFile(CONTAINER)).events.at(-1)).toMatchObject({
      phase: "failed",
      outcome: "fatal_error",
      errorClass: "atomicity_violation",
    });
    await expect(migrate(optionsOn(disk), CONTAINER)).rejects.toMatchObject({ name: "migration_failed" });
    // The operator puts it back.
    disk.put(SNAPSHOT, bytesOf(FIVE));
    await expect(rollBack(optionsOn(disk), CONTAINER)).resolves.toMatchObject({ rebuilt: false });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE);
  });

  test("a snapshot that was removed: the container is the session, and the file is written from it", async () => {
    const disk = await migrated();
    disk.remove(SNAPSHOT);
    expect(await audit(disk, CONTAINER)).toMatchObject({ ok: true });
    expect(stateOn(disk)).toBe("MIGRATED");
    await appendTo(disk, userText(id(5), id(4)));
    expect(await rollBack(optionsOn(disk), CONTAINER)).toMatchObject({
      state: "ROLLED_BACK",
      rebuilt: true,
      entryCount: 6,
    });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE + fileText(userText(id(5), id(4))));
  });

  test("a snapshot that is not what it was is not gone back to, and nothing changes", async () => {
    const disk = await migrated();
    const changed = bytesOf(FIVE.replace("say", "SAY"));
    disk.put(SNAPSHOT, changed);
    const pointer = disk.content(pointerFile(CONTAINER));
    await expect(rollBack(optionsOn(disk), CONTAINER)).rejects.toMatchObject({
      name: "migration_failed",
      message: expect.stringMatching(/move this file away/),
    });
    expect(disk.content(pointerFile(CONTAINER))).toEqual(pointer);
    await appendTo(disk, userText(id(5), id(4)));
    // The way that was named.
    disk.rename(SNAPSHOT, `${FOLDER}/elsewhere`);
    expect(await rollBack(optionsOn(disk), CONTAINER)).toMatchObject({ rebuilt: true, entryCount: 6 });
    expect(disk.content(`${FOLDER}/elsewhere`)).toEqual(changed);
  });

  test("a checkpoint that fails leaves the last one authoritative", async () => {
    const disk = await migrated();
    disk.put(`${CONTAINER}/tmp/0000000000000002.json.tmp`, bytesOf('{"schema":"pi.session_st'));
    expect(await audit(disk, CONTAINER)).toMatchObject({ ok: true, checkpoints: [{ checkpointSeq: 1 }] });
    expect(linesOn(disk)).toEqual(FIVE_LINES);
  });

  test("damage in the container does not stand in the way of the snapshot when nothing was appended", async () => {
    const disk = await migrated();
    const path = segmentFile(CONTAINER, 1);
    const bytes = Uint8Array.from(disk.content(path) as Uint8Array);
    bytes[300] ^= 1;
    disk.put(path, bytes);
    expect((await audit(disk, CONTAINER)).ok).toBe(false);
    await expect(rollBack(optionsOn(disk), CONTAINER)).resolves.toMatchObject({ laterEntries: 0 });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(FIVE);
  });
});

describe("a container that was moved aside is named", () => {
  test("where it had lost its pointer, and the file was put back", async () => {
    const disk = diskWith(FIVE);
    await migrate(optionsOn(disk), FILE);
    disk.remove(pointerFile(CONTAINER));
    disk.rename(SNAPSHOT, FILE);
    const { keptAt } = await migrate(optionsOn(disk), FILE);
    expect(keptAt).toBe(`${CONTAINER}.rolled-back`);
    expect(disk.content(ledgerFile(keptAt as string))).toBeDefined();
  });

  test.each(["migrate", "rollBack"] as const)("where a cutover was cut off (%s)", async (way) => {
    const disk = diskWith(FIVE);
    await migrate(optionsOn(disk), FILE);
    const pointer = JSON.parse(textOf(disk.content(pointerFile(CONTAINER)) as Uint8Array));
    disk.put(pointerFile(CONTAINER), bytesOf(JSON.stringify({ ...pointer, phase: "cutover_commit" })));
    const go = way === "migrate" ? migrate : rollBack;
    expect(await go(optionsOn(disk), CONTAINER)).toMatchObject({ keptAt: `${CONTAINER}.rolled-back` });
  });
});

describe("a refusal after the marker", () => {
  /** Refuses the first changes that `isMeant` is true of. */
  const refuse = (disk: FaultDisk, name: "rename" | "remove", isMeant: (...paths: string[]) => boolean): void => {
    const act = (disk[name] as (...paths: string[]) => void).bind(disk);
    disk[name] = (...paths: string[]) => {
      if (isMeant(...paths)) throw Object.assign(new Error(`${name} is refused`), { code: "EIO" });
      act(...paths);
    };
  };

  test.each([
    ["the container keeps its name", "rename", (from: string) => from === CONTAINER],
    ["the snapshot keeps its second name", "remove", (path: string) => path === SNAPSHOT],
  ] as const)(
    "of a rollback, so that %s: the file is the session, and asked again it comes to its end",
    async (...of) => {
      const [, name, isMeant] = of;
      const disk = diskWith(FIVE);
      await migrate(optionsOn(disk), FILE);
      refuse(disk, name, isMeant);
      const failure = await rollBack(optionsOn(disk), CONTAINER).catch((error) => error);
      expect(failure).toMatchObject({ name: "storage_failed", retryable: true });
      expect(failure.message).toContain(`The session is ${FILE} again; rollback_migration once more`);
      expect([activeOn(disk), linesOn(disk)]).toEqual(["jsonl_v3", FIVE_LINES]);
      Reflect.deleteProperty(disk, name);
      expect(await rollBack(optionsOn(disk), FILE)).toMatchObject({ keptAt: `${CONTAINER}.rolled-back` });
    },
  );

  test("of a rollback whose last sync alone is left is final: asked again, there is nothing to do", async () => {
    const disk = diskWith(FIVE);
    await migrate(optionsOn(disk), FILE);
    const { syncFolder } = disk;
    disk.syncFolder = async (path) => {
      if (disk.paths().some((other) => other.includes(".rolled-back/")))
        throw Object.assign(new Error("no"), { code: "EIO" });
      await syncFolder.call(disk, path);
    };
    const failure = await rollBack(optionsOn(disk), CONTAINER).catch((error) => error);
    expect(failure).toMatchObject({ name: "storage_failed", retryable: false });
    expect(failure.message).toContain(`The session is ${FILE}. `);
    expect(failure.message).toContain(`${CONTAINER}.rolled-back`);
  });
});

describe("every disk operation", () => {
  const TWO = fileText(headerText(), userText(id(0), null), assistantText(id(1), id(0)));
  const TWO_LINES = [userText(id(0), null), assistantText(id(1), id(0))];
  const LATER = userText(id(2), id(1));

  interface Way {
    readonly name: string;
    readonly begin: () => Promise<FaultDisk>;
    readonly go: (disk: FaultDisk) => Promise<unknown>;
    readonly lines: readonly string[];
    /** What it leads to when it succeeds. */
    readonly to: "jsonl_v3" | "native_v2";
    /** A line that is not in the session, and is still somewhere. */
    readonly kept?: string;
    /** Digests of its attachments. */
    readonly attachments?: readonly string[];
  }

  const DIGEST = "ab".repeat(32);

  const ways: Way[] = [
    {
      name: "migrating",
      begin: async () => {
        const disk = diskWith(TWO);
        disk.put(`${FILE}.blobs/${DIGEST}`, bytesOf("attached"));
        return disk;
      },
      go: (disk) => migrate(optionsOn(disk), FILE),
      lines: TWO_LINES,
      to: "native_v2",
      attachments: [DIGEST],
    },
    {
      name: "migrating beside a container that lost its pointer, after the snapshot was put back",
      begin: async () => {
        const disk = diskWith(TWO);
        await migrate(optionsOn(disk), FILE);
        await appendTo(disk, LATER);
        disk.remove(pointerFile(CONTAINER));
        disk.rename(SNAPSHOT, FILE);
        return disk;
      },
      go: (disk) => migrate(optionsOn(disk), FILE),
      lines: TWO_LINES,
      to: "native_v2",
      kept: LATER,
    },
    {
      name: "rolling back to the snapshot",
      begin: async () => {
        const disk = diskWith(TWO);
        await migrate(optionsOn(disk), FILE);
        return disk;
      },
      go: (disk) => rollBack(optionsOn(disk), CONTAINER),
      lines: TWO_LINES,
      to: "jsonl_v3",
    },
    {
      name: "rolling back to the snapshot, which was put back under the name of the file",
      begin: async () => {
        const disk = diskWith(TWO);
        await migrate(optionsOn(disk), FILE);
        disk.rename(SNAPSHOT, FILE);
        return disk;
      },
      go: (disk) => rollBack(optionsOn(disk), CONTAINER),
      lines: TWO_LINES,
      to: "jsonl_v3",
    },
    {
      name: "rolling back with later entries",
      begin: async () => {
        const disk = diskWith(TWO);
        await migrate(optionsOn(disk), FILE);
        await appendTo(disk, LATER);
        disk.put(`${CONTAINER}/blobs/${DIGEST}`, bytesOf("attached"));
        return disk;
      },
      go: (disk) => rollBack(optionsOn(disk), CONTAINER),
      lines: [...TWO_LINES, LATER],
      to: "jsonl_v3",
      attachments: [DIGEST],
    },
  ];

  /** Runs a test for each way: the first of each direction always, and the others in the sweep. */
  /** Describes a test for each way: a sixth of the operations of two of them, and in the sweep all of each. */
  const testWays = (title: string, run: (way: Way, ofMany: number) => Promise<void>): void => {
    for (const n of [0, 2]) test.each([ways[n]])(`$name: ${title} (a sixth)`, (way) => run(way, 6));
    for (const way of ways) test.each([way])(`$name: ${title}`, { timeout: 60_000, ...SWEEP }, () => run(way, 1));
  };

  /** Whatever happened: the session is there whole, one store is active, and going again gets there. */
  const expectWhole = async (way: Way, disk: FaultDisk, context: string): Promise<void> => {
    expect(linesOn(disk), context).toEqual(way.lines);
    expect(["CLEAN", "MIGRATED", "MIGRATION_STAGING", "ROLLED_BACK", "FAILED"], context).toContain(stateOn(disk));
    if (activeOn(disk) !== way.to || stateOn(disk) === "FAILED" || stateOn(disk) === "MIGRATION_STAGING") {
      await way.go(disk);
      expect(activeOn(disk), context).toBe(way.to);
    } else if (status(disk, activeOn(disk) === "native_v2" ? CONTAINER : FILE).interrupted) await way.go(disk);
    expect(linesOn(disk), context).toEqual(way.lines);
    expect(attachmentsOn(disk), context).toEqual(way.attachments ?? []);
    const isKept = disk.paths().some((path) => Buffer.from(disk.content(path) ?? []).includes(way.kept ?? ""));
    expect(isKept, context).toBe(true);
    if (way.to === "native_v2") {
      const found = await audit(disk, CONTAINER);
      expect(found.findings, context).toEqual([]);
    } else
      expect(
        disk.paths().filter((path) => path.startsWith(`${CONTAINER}/`)),
        context,
      ).toEqual([]);
  };

  const recorded = async (way: Way): Promise<FaultDisk> => {
    const disk = await way.begin();
    disk.record();
    await way.go(disk);
    return disk;
  };

  testWays("the machine dies, and loses what was not synced", async (way, ofMany) => {
    const whole = await recorded(way);
    const count = whole.operations.length;
    const beginning = await way.begin();
    expect(count).toBeGreaterThan(60);
    const seen = new Set<string>();
    for (const at of share(faultPoints("die", whole), 12 / ofMany)) {
      const disk = beginning.after();
      disk.set({ kind: "die", at });
      await way.go(disk).catch(() => {});
      expect(disk.struck).toBe(true);
      const context = `dies at ${disk.operations.at(-1)} (${at} of ${count})`;
      for (const { disk: after, cut } of disk.remains(seen))
        await expectWhole(way, after, `${context}, ${JSON.stringify(cut)}`);
    }
  });

  /** Places of the sources at which one of the ways met an error. */
  const places: Record<number, Set<string>> = { 1: new Set(), 6: new Set() };

  test("a segment that is full and cannot be synced while others are written makes nothing the session", async () => {
    // As long as what is handled without a pause: each has a segment of its own.
    const lines = range(0, 4).map((n) => userText(id(n), n === 0 ? null : id(n - 1), "x".repeat(4 << 10)));
    const content = bytesOf(fileText(headerText(), ...lines));
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
      const failure = await migrate(options(disk), FILE).then(
        () => null,
        (error: unknown) => error,
      );
      disk.set(undefined);
      expect(failure, `sync ${at}`).toMatchObject({ name: expect.stringMatching(/^(storage|migration)/) });
      expect(disk.openCount, `sync ${at}`).toBe(0);
      expect(activeOn(disk)).toBe("jsonl_v3");
      expect(disk.content(FILE)).toEqual(content);
    }
  });

  /** What a reader is told of: the pointer, the session file and its snapshot, and what was put aside. */
  const toldOf = (disk: FaultDisk): unknown => [
    ...[pointerFile(CONTAINER), FILE, SNAPSHOT].map((path) => textOf(disk.content(path) ?? bytesOf("none"))),
    disk.paths().filter((path) => path.includes(".rolled-back")).length,
  ];

  /** A failure says that nothing was changed only where nothing was, and what to do where the session is not settled. */
  const expectTold = (disk: FaultDisk, before: unknown, failure: unknown, context: string): void => {
    const { message } = failure as Error;
    if (/nothing was changed/i.test(message)) expect(toldOf(disk), `${context}: ${message}`).toEqual(before);
    const { state, interrupted } = status(disk, activeOn(disk) === "native_v2" ? CONTAINER : FILE);
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
          if (++changes >= first) throw Object.assign(new Error(`${name} is refused`), { code: "EROFS" });
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
      const before = toldOf(disk);
      const allow = refuseFrom(disk, first);
      const failure = await way.go(disk).then(
        () => undefined,
        (error: unknown) => error,
      );
      allow();
      const context = `from change ${first} on`;
      if (failure !== undefined) expectTold(disk, before, failure, context);
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
        const before = toldOf(disk);
        disk.set(fault);
        let failure: unknown;
        await way.go(disk).catch((error) => {
          failure = error;
        });
        const context = `${kind} at ${disk.operations.at(at - 1)} (${at} of ${count})`;
        disk.set(undefined);
        if (failure !== undefined) {
          const name = expect.stringMatching(/^(storage|migration|not_a|session_n)/);
          expect(failure, context).toMatchObject({ name });
          expectTold(disk, before, failure, context);
        }
        await expectWhole(way, disk, context);
      }
  });
});

describe("round trips", () => {
  test("random sessions with unknown types and odd numbers: every line as it was", async () => {
    await forSeedsAsync(2, async (random) => {
      const lines = oddLines(random, 1 + random.int(40));
      const content = fileText(headerText({ extra: { n: 1 } }), ...lines);
      const disk = diskWith(content);
      await migrate(optionsOn(disk), FILE);
      expect(linesOn(disk)).toEqual(lines);
      expect((await audit(disk, CONTAINER)).findings).toEqual([]);
      await rollBack(optionsOn(disk), CONTAINER);
      expect(textOf(disk.content(FILE) as Uint8Array)).toBe(content);
    });
  });

  const real = fileURLToPath(new URL("../../../../shared/data/real-session-v1.jsonl", import.meta.url));
  const REAL_SESSION = need("a real session", "put it at ../shared/data/real-session-v1.jsonl", () => existsSync(real));
  test("a real session of version 1: 1, 3, V2, and back", { ...SYSTEM, ...needs(REAL_SESSION) }, async () => {
    const content = readFileSync(real);
    const id = JSON.parse(content.subarray(0, content.indexOf(0x0a)).toString()).id;
    const file = `${FOLDER}/real.jsonl`;
    const container = `${FOLDER}/${id}.v2`;
    const disk = diskWith(content, file);
    const options = optionsOn(disk, noLocks, 64 << 20);
    const source = options.openFile(file, true);
    const lines = linesOf(source);
    source.close();
    await migrate(options, file);
    const log = options.openContainer(container, true);
    expect(linesOf(log)).toEqual(lines);
    log.close();
    expect((await audit(disk, container)).findings).toEqual([]);
    await rollBack(options, container);
    expect(Buffer.compare(disk.content(file) as Uint8Array, content)).toBe(0);
  });
});

describe("damage to documents that hold no entries", () => {
  const CHECKPOINT = checkpointFile(CONTAINER, 2);
  const rewrite = (path: string, change: (text: string) => string) => (disk: FaultDisk) => {
    disk.put(path, bytesOf(change(textOf(disk.content(path) as Uint8Array))));
  };
  const put = (path: string, text: string) => (disk: FaultDisk) => disk.put(`${CONTAINER}/${path}`, bytesOf(text));
  const otherDigit = (digit: string) => (digit === "1" ? "2" : "1");
  const SIX = userText(id(5), id(4));
  const SEVEN = userText(id(6), id(5));

  /** A container with two entries that the snapshot lacks, the last of them after its last checkpoint. */
  async function continued(): Promise<FaultDisk> {
    const disk = diskWith(FIVE);
    await migrate(optionsOn(disk), FILE);
    await appendTo(disk, SIX);
    const log = optionsOn(disk).openContainer(CONTAINER);
    await log.checkpointNow?.();
    log.close();
    await appendTo(disk, SEVEN);
    return disk.after();
  }

  test.each<[string, (disk: FaultDisk) => void]>([
    ["half a checkpoint", put("checkpoints/0000000000000003.json", '{"half')],
    ["a chain with another digit", rewrite(CHECKPOINT, (text) => text.replace(/(?<="chainHash": ")./, otherDigit))],
    ["a head with another id", rewrite(CHECKPOINT, (text) => text.replace(id(5), id(3)))],
    [
      "a head with another number",
      rewrite(CHECKPOINT, (text) => text.replace('"headEntrySeq": 6', '"headEntrySeq": 4')),
    ],
    ["half a manifest", rewrite(manifestFile(CONTAINER), (text) => text.slice(0, 200))],
    ["no manifest", (disk) => disk.remove(manifestFile(CONTAINER))],
    [
      "a row with another checksum",
      rewrite(indexFile(CONTAINER), (text) => text.replace(/(?<="crc32c":")./, otherDigit)),
    ],
    [
      "a row with another place",
      rewrite(indexFile(CONTAINER), (text) => text.replace(/(?<="byteOffset":)[1-9]\d/, "99")),
    ],
    ["a row that is none", rewrite(indexFile(CONTAINER), (text) => text.replace("{", "["))],
    ["no index", (disk) => disk.remove(indexFile(CONTAINER))],
    ["half a row", rewrite(indexFile(CONTAINER), (text) => text.slice(0, -9))],
    ["half a frame", rewrite(segmentFile(CONTAINER, 1), (text) => `${text}{"schema":"pi.session`)],
    ["another file among the segments", put("segments/notes.seg", "x")],
    ["another folder", put("segments/old/0000000000000001.seg", "x")],
    ["a bad line in the ledger", rewrite(ledgerFile(CONTAINER), (text) => `nonsense\n${text}`)],
    ["half a line in the ledger", rewrite(ledgerFile(CONTAINER), (text) => `${text}{"schema"`)],
    ["no ledger", (disk) => disk.remove(ledgerFile(CONTAINER))],
    ["a damaged cache", put("index-snapshot.bin", "x")],
  ])("leaves the way back open: %s", async (_what, harm) => {
    const disk = await continued();
    harm(disk);
    expect(await rollBack(optionsOn(disk), CONTAINER)).toMatchObject({ active: "jsonl_v3", laterEntries: 2 });
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(`${FIVE}${SIX}\n${SEVEN}\n`);
    expect(stateOn(disk)).toBe("ROLLED_BACK");
  });
});
