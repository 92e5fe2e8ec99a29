/**
 * A store's kept facts of a session, or of lines that it has just written, only save time: however they or the session
 * change, an opening with them gives the same session as the session's own bytes.
 */

import { describe, expect, test } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import { decodeText, toBytes } from "../../src/core/json/json.ts";
import type { CopiedLines, Log, Store } from "../../src/core/ports/store.ts";
import type { Session } from "../../src/core/session/session.ts";
import { Nodes } from "../../src/core/tree/nodes.ts";
import { indexFile, indexSnapshotFile, segmentFile } from "../../src/storage/fs/container-paths.ts";
import type { JsonlOptions } from "../../src/storage/jsonl/log.ts";
import { makeJsonlStore } from "../../src/storage/jsonl/store.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { makeSnapshotCache, readIndexSnapshot, writeIndexSnapshot } from "../../src/storage/log/snapshot-cache.ts";
import { DAMAGES, damaged } from "../support/corruption.ts";
import { FaultDisk } from "../support/disk.ts";
import { testEnv } from "../support/env.ts";
import { assistantText, chain, entryText, fileBytes, fileText, headerText, id, userText } from "../support/lines.ts";
import { type LockTable, locksOf, locksOfOther } from "../support/locks.ts";
import { randomModel } from "../support/model.ts";
import { grown } from "../support/nodes.ts";
import { outcome } from "../support/outcome.ts";
import { forSeeds, forSeedsAsync, isEvery, type Random, range } from "../support/random.ts";
import {
  beginning,
  diskWith,
  FILE,
  FOLDER,
  idsOf,
  jsonlOn,
  openOn,
  QUARANTINE,
  STATE,
  textsOf,
  workspaceOn,
} from "../support/sessions.ts";
import { acrossTiers } from "../support/tiers.ts";
import { CONTAINER, containerWith, contentsOf, cutFile, v2On } from "../support/v2.ts";
import { type Files, keepsTheContract } from "./contract.ts";
import { diskError, writeBehind } from "./other-writers.ts";

const indexedOn = (disk: FaultDisk, more: Partial<JsonlOptions> = {}): Store =>
  makeJsonlStore({
    disk,
    env: testEnv(),
    locks: noLocks,
    quarantine: QUARANTINE,
    durability: "sync",
    fileFor: (header) => `${FOLDER}/${header.id}.jsonl`,
    snapshots: makeSnapshotCache(disk, STATE, 1),
    ...more,
  });

keepsTheContract("jsonl with an index cache", () => {
  const disk = new FaultDisk();
  disk.makeFolder(FOLDER);
  const table: LockTable = new Map();
  const other: Files["other"] = (options = {}) =>
    indexedOn(disk, { locks: locksOfOther(table, options), readOnly: options.readOnly });
  const store = indexedOn(disk, { locks: locksOf("this process", table) });
  return { store, files: { disk, folder: FOLDER, other, faults: disk }, close: () => {} };
});

/** A line that is sound, though containers do not take it or quick reading leaves it alone. */
function odd(random: Random, line: string, ids: readonly string[]): string {
  const { type, id: own, ...rest } = JSON.parse(line);
  return JSON.stringify(
    random.pick<object>([
      { type: "label", id: own, ...rest, targetId: random.pick(ids), label: "sooner or later" },
      { type: "custom", id: own, ...rest, customType: "pi-session-server.leaf" },
      { type, id: `odd id ${own}`, ...rest },
      { type: "message", id: own, ...rest, message: "none" },
      { ...rest, id: own, type },
    ]),
  );
}

/** Something about a line that is not as usual. */
function unusual(random: Random, line: string, ids: readonly string[]): string {
  const changed = (more: object) => JSON.stringify({ ...JSON.parse(line), ...more });
  return random.pick([
    ...[`${line}\r`, `\n${line}`, `${line}${line}`, line.slice(0, random.int(line.length))],
    ...[line.replace('":', '"?'), line.replace("}", "\u0000"), line.replace('"id":', '"_id":')],
    ...["odd", `${random.pick(ids)}~2`, random.pick(ids)].map((id) => changed({ id })),
    ...["odd", "nowhere", random.pick(ids)].map((parentId) => changed({ parentId })),
  ]);
}

/** A session file; `oddest`, of how many lines of a hundred something is unusual at most. */
function randomSession(random: Random, oddest = 0): string {
  // The last 64 are looked at when a file is opened.
  const model = randomModel(random, { entries: random.int(oddest > 0 ? random.pick([20, 50, 200]) : 40) });
  const ids = model.entries.map(({ id }) => id);
  const [oddity, unusuality] = [random.pick([0, 0, 0.1]), random.pick([0, 0, oddest / 500, oddest / 100])];
  const lines = model.lines().map((line) => {
    const long = random.chance(0.05) ? line.replace('"text ', `"text ${"x".repeat(random.int(5000))}`) : line;
    if (random.chance(unusuality)) return unusual(random, long, ids);
    return random.chance(oddity) ? odd(random, long, ids) : long;
  });
  const text = fileText(headerText(oddest > 0 ? { version: random.pick([3, 3, 3, 3, 2, 1]) } : {}), ...lines);
  return oddest > 0 && random.chance(0.1) ? text.slice(0, text.length - 1 - random.int(9)) : text;
}

function flip(random: Random, disk: FaultDisk, path: string): void {
  const bytes = Buffer.from(disk.content(path) as Uint8Array);
  writeBehind(disk, path, damaged(bytes, "flip", random.int(bytes.length), random), 0);
}

/** Something that happens to a file: bytes changed where they stand, cut off, put behind it, or all of it replaced. */
function meddle(random: Random, disk: FaultDisk, path: string): string {
  const content = Buffer.from(disk.content(path) as Uint8Array);
  const at = random.int(Math.max(1, content.length));
  // A member that occurs twice may open a session once more, with facts kept at another time than without.
  const kinds = DAMAGES.filter((kind) => kind !== "duplicate");
  const what = random.pick([...kinds, "more", "another file in its place"] as const);
  const more = [fileText(...chain(3, 800)), '{"type":"message","id":"torn', "\0".repeat(random.int(300))];
  if (what === "another file in its place") disk.put(path, toBytes(randomSession(random)));
  else if (what === "more") writeBehind(disk, path, random.pick(more));
  else writeBehind(disk, path, damaged(content, what, at, random), 0);
  if (random.chance(0.2)) writeBehind(disk, path, `${userText(id(900), null)}\n`);
  return `${path}: ${what} (${at})`;
}

/** Counts the bytes that are read of each file. */
function countReads(disk: FaultDisk): (path: string) => number {
  const paths = new Map<number, string>();
  const counts = new Map<string, number>();
  const { openRead, read } = disk;
  disk.openRead = (path) => {
    const fd = openRead.call(disk, path);
    paths.set(fd, path);
    return fd;
  };
  disk.read = (fd, ...rest) => {
    const count = read.call(disk, fd, ...rest);
    const path = paths.get(fd) as string;
    counts.set(path, (counts.get(path) ?? 0) + count);
    return count;
  };
  return (path) => counts.get(path) ?? 0;
}

const spines = (disk: FaultDisk): string[] => disk.paths().filter((path) => path.startsWith(`${STATE}/spines/`));
const contentOf = (disk: FaultDisk, { file }: Session) => disk.content(file as string) as Uint8Array;
const scanned = (disk: FaultDisk, file = FILE) => outcome(() => jsonlOn(disk).open(file));

describe("an index cache of session files", () => {
  acrossTiers(test, [16, 52])("answers as a scan does, whatever happens to it or to the file (%i)", (count) => {
    let used = 0;
    forSeeds(count, (random) => {
      const disk = diskWith(randomSession(random));
      // With a session on it, what its tree has worked out is kept, too.
      if (random.chance(0.7)) outcome(() => indexedOn(disk).open(FILE));
      else indexedOn(disk).open(FILE).close();
      const kept = spines(disk);
      const happened: string[] = [];
      for (let n = random.int(3); n > 0; n--)
        happened.push(meddle(random, disk, kept.length > 0 && random.chance(0.4) ? kept[0] : FILE));
      if (happened.length === 0) used += kept.length;
      const plain = scanned(disk);
      // Facts kept by the first opening serve the next one.
      for (let n = 0; n < 2; n++)
        expect(
          outcome(() => indexedOn(disk).open(FILE)),
          happened.join(", "),
        ).toEqual(plain);
    });
    expect(used).toBeGreaterThan(count / 13);
  });

  test("is read instead of the file", () => {
    const disk = diskWith(fileText(headerText(), ...chain(4000)));
    indexedOn(disk).open(FILE).close();
    expect(spines(disk)).toHaveLength(1);
    const read = countReads(disk);
    const log = indexedOn(disk).open(FILE);
    expect(log.nodes.count).toBe(4000);
    expect(read(FILE)).toBeLessThan((disk.content(FILE)?.length as number) / 4);
    log.close();
  });

  test("is not kept of a session with damage, nor in the session's folder", () => {
    const damaged = diskWith(fileText(headerText(), ...chain(3), "no entry"));
    indexedOn(damaged).open(FILE).close();
    expect(damaged.paths()).toEqual([FILE]);
    const sound = diskWith(fileText(headerText(), ...chain(3)));
    indexedOn(sound).open(FILE).close();
    expect(sound.paths()).toEqual([FILE, ...spines(sound)]);
    expect(spines(sound)).toHaveLength(1);
  });

  test("of a closed session is written when nobody waits, or when it is needed", () => {
    const put: (() => void)[] = [];
    const other = `${FOLDER}/other.jsonl`;
    const disk = diskWith(fileText(headerText(), ...chain(5)));
    disk.put(other, fileBytes(headerText(), ...chain(6)));
    const snapshots = makeSnapshotCache(disk, STATE, 1, (work) => put.push(work));
    const open = (file: string) => indexedOn(disk, { snapshots }).open(file);
    open(FILE).close();
    expect(spines(disk)).toEqual([]);
    // One is put off at a time, and the next opening finds it.
    open(other).close();
    expect(spines(disk)).toHaveLength(1);
    const log = open(other);
    expect([spines(disk).length, log.nodes.count]).toEqual([2, 6]);
    disk.put(FILE, fileBytes(headerText(), ...chain(7)));
    open(FILE).close();
    for (const work of put) work();
    expect(put).toHaveLength(3);
    expect(outcome(() => open(FILE))).toEqual(scanned(disk));
  });

  test("that cannot be written is done without", () => {
    for (let at = 1, struck = true; struck; at++) {
      const disk = diskWith(fileText(headerText(), ...chain(3)));
      const log = indexedOn(disk).open(FILE);
      disk.set({ kind: "fail", at, errno: "ENOSPC" });
      log.close();
      struck = disk.struck;
      disk.set(undefined);
      expect(outcome(() => indexedOn(disk).open(FILE))).toEqual(scanned(disk));
      expect(at).toBeLessThan(100);
    }
  });

  test("holds only for the file it was made of", () => {
    const disk = diskWith(fileText(headerText(), ...chain(5)));
    const files = [FILE, `${FOLDER}/other.jsonl`];
    disk.put(files[1], fileBytes(headerText(), ...chain(6)));
    for (const file of files) indexedOn(disk).open(file).close();
    const [one, other] = spines(disk);
    const bytes = disk.content(one) as Uint8Array;
    writeBehind(disk, one, disk.content(other) as Uint8Array, 0);
    writeBehind(disk, other, bytes, 0);
    for (const file of files) expect(outcome(() => indexedOn(disk).open(file))).toEqual(scanned(disk, file));
  });
});

describe("a spine", () => {
  const EXTRAS = { columns: { starts: Float64Array.of(1, 2 ** 40, 3) }, facts: { where: "here" } };

  function getSnapshot(nodes: Nodes): FaultDisk {
    const disk = new FaultDisk();
    disk.makeFolder("/spines");
    const fd = disk.create("/spines/one");
    writeIndexSnapshot(disk, fd, nodes, EXTRAS);
    disk.close(fd);
    return disk;
  }

  function read(disk: FaultDisk): { nodes: Nodes; extras: ReturnType<typeof readIndexSnapshot> } {
    const nodes = new Nodes();
    const fd = disk.openRead("/spines/one");
    const extras = readIndexSnapshot(disk, fd, nodes);
    disk.close(fd);
    return { nodes, extras };
  }

  test("gives back nodes that go on as they were", () => {
    forSeeds(4, (random) => {
      const { nodes, add } = grown();
      const ids = (limit: number): string => random.pick([`${random.int(limit)}`, id(random.int(limit))]);
      for (let n = random.int(200); n > 0; n--)
        add({ id: ids(90), parentId: random.chance(0.1) ? null : ids(90), type: `type ${random.int(9)}` });
      nodes.cutCycles();
      const { nodes: again, extras } = read(getSnapshot(nodes));
      expect(again.image()).toEqual(nodes.image());
      expect([...(extras?.columns.starts ?? [])].slice(0, 3)).toEqual([...EXTRAS.columns.starts]);
      expect(extras?.facts).toEqual(EXTRAS.facts);
      for (let p = 0; p < nodes.count; p++) expect(again.position(nodes.id(p))).toBe(p);
      for (const name of ["1", "2", id(3), "nowhere"]) expect(again.isAwaited(name)).toBe(nodes.isAwaited(name));
    });
  });

  test("with any bit changed, or cut, is none", () => {
    const { nodes, add } = grown();
    for (let n = 0; n < 6; n++) add({ id: n % 5 === 0 ? `odd ${n}` : id(n), parentId: n === 0 ? null : id(n - 1) });
    const whole = getSnapshot(nodes).content("/spines/one") as Uint8Array;
    const isNone = (bytes: Uint8Array): boolean => {
      const disk = new FaultDisk();
      disk.put("/spines/one", bytes);
      const { nodes: left, extras } = read(disk);
      expect(extras === null ? left.count : nodes.count).toBe(left.count);
      return extras === null;
    };
    expect(isNone(whole)).toBe(false);
    for (let at = 0; at < whole.length; at++) {
      const spoiled = Uint8Array.from(whole);
      spoiled[at] ^= 1 << (at % 8);
      if (!isNone(spoiled)) expect(at, "a bit that changes nothing").toBe(-1);
    }
    for (let length = 0; length < whole.length; length += 7) expect(isNone(whole.subarray(0, length))).toBe(true);
  });
});

describe("what is kept of a container", () => {
  const openIt = (disk: FaultDisk, isKept: boolean): unknown =>
    outcome(() => v2On(disk, isKept ? { snapshots: makeSnapshotCache(disk, STATE, 1) } : {}).open(CONTAINER));
  const addTo = (disk: FaultDisk, more: readonly string[]): void => {
    const log = v2On(disk).open(CONTAINER);
    log.append(more.map((line) => toBytes(line)));
    log.close();
  };

  acrossTiers(test, [2, 12])("changes nothing, whatever happened to it or to the container (%i)", async (count) => {
    const SNAPSHOT = indexSnapshotFile(CONTAINER);
    let kept = 0;
    await forSeedsAsync(count, async (random) => {
      const entries = 2 + random.int(30);
      const checkpointEvery = { entries: 7, bytes: 1 << 20 };
      const lines = randomModel(random, { entries: entries + 1 + random.int(9) }).lines();
      const made = await containerWith(lines.slice(0, entries), { segmentBytes: 4096, checkpointEvery });
      const before = openIt(made, false);
      const stored = contentsOf(made);
      expect(openIt(made, true)).toEqual(before);
      expect(contentsOf(made).filter((text) => !text.startsWith(STATE))).toEqual(stored);
      kept += spines(made).length;
      const cutSnapshot = (disk: FaultDisk) => writeBehind(disk, SNAPSHOT, "", random.int(900));
      const happenings: [string, (disk: FaultDisk) => void][] = [
        ["nothing", () => {}],
        ["more entries by a program that keeps nothing", (disk) => addTo(disk, lines.slice(entries))],
        ["a bit of what is kept", (disk) => flip(random, disk, spines(disk)[0])],
        ["a bit of the first segment", (disk) => flip(random, disk, segmentFile(CONTAINER, 1))],
        ["an index that was cut", (disk) => cutFile(disk, indexFile(CONTAINER), random.int(entries))],
        ["no spine of its own", (disk) => disk.remove(SNAPSHOT)],
        ...Array(5).fill(["a bit of its own spine", (disk: FaultDisk) => flip(random, disk, SNAPSHOT)]),
        ...Array(5).fill(["a spine that was cut", cutSnapshot]),
      ];
      for (const [happened, act] of happenings) {
        const disk = made.after();
        act(disk);
        const isSound = happened.includes("spine");
        for (const isMore of isSound ? [false, true] : [false]) {
          if (isMore) addTo(disk, [userText(id(800), null)]);
          const plain = openIt(disk, false);
          for (let n = 0; n < 2; n++) expect(openIt(disk, true), happened).toEqual(plain);
          if (isSound && !isMore) expect(plain, happened).toEqual(before);
        }
      }
    });
    expect(kept).toBe(count);
  });

  test("holds any number of ids that are not eight hex digits", async () => {
    const odd = (n: number): string => `message ${n}`;
    // Above some 120,000, a list of them can no longer be given to a function as its arguments.
    const count = isEvery() ? 150_000 : 1500;
    const disk = await containerWith(range(0, count).map((n) => userText(odd(n), n === 0 ? null : odd(n - 1))));
    expect(disk.content(indexSnapshotFile(CONTAINER))).toBeDefined();
    const log = v2On(disk).open(CONTAINER);
    expect([log.nodes.count, log.nodes.id(count - 1), log.damage]).toEqual([count, odd(count - 1), []]);
    log.close();
  });

  test("is written when nobody waits for it, and is what it was when it was closed", async () => {
    await forSeedsAsync(4, async (random) => {
      const lines = randomModel(random, { entries: 8 }).lines();
      const disk = await containerWith(lines.slice(0, 5));
      const plain = openIt(disk, false);
      const held: (() => void)[] = [];
      const snapshots = makeSnapshotCache(disk, STATE, 1, (work) => held.push(work));
      v2On(disk, { snapshots }).open(CONTAINER).close();
      expect([spines(disk), held.length]).toEqual([[], 1]);
      // Another process adds entries meanwhile.
      const isGrown = random.chance(0.5);
      if (isGrown) addTo(disk, lines.slice(5));
      for (const work of held.splice(0)) work();
      expect(spines(disk)).toHaveLength(1);
      expect(openIt(disk, true)).toEqual(isGrown ? openIt(disk, false) : plain);
    });
  });
});

describe("a session file that was just forked", () => {
  acrossTiers(test, [5, 12])("is the one that a scan of its file gives, and goes on as that (%i)", async (count) => {
    await forSeedsAsync(count, async (random) => {
      const disk = diskWith(randomSession(random, 10));
      let source = openOn(disk);
      const workspace = workspaceOn(disk, "jsonl");
      for (let generation = 0; generation < 3 && source.log.nodes.count > 0; generation++) {
        const isMeddled = generation === 0 && random.chance(0.1);
        if (isMeddled) {
          // Another program's change of the source, not yet seen here.
          const content = decodeText(disk.content(FILE) as Uint8Array);
          const entryId = source.log.nodes.id(random.int(source.log.nodes.count));
          if (random.chance(0.7)) writeBehind(disk, FILE, content.replaceAll(entryId, id(801)), 0);
          else writeBehind(disk, FILE, fileText(userText(id(800), null)));
        }
        const end = random.chance(0.5) ? source.tree.leaf : random.int(source.log.nodes.count);
        let fork: Session;
        try {
          fork = await workspace.fork(source, end);
        } catch (error) {
          // Other bytes at the known place of lines are not copied as if they were these.
          if (isMeddled && error instanceof Failure && error.retryable) return;
          throw error;
        }
        const copied = diskWith(contentOf(disk, fork));
        const again = jsonlOn(copied).open(FILE);
        for (const log of generation === 0 && random.chance(0.5) ? [fork.log, again] : []) {
          log.append(chain(3, 900).map((line) => toBytes(line)));
          await log.commit();
        }
        expect(contentOf(disk, fork)).toEqual(copied.content(FILE));
        // Damage names the same bytes, and reading them finds no more here than there.
        expect(outcome(() => fork.log)).toEqual(outcome(() => again));
        source = openOn(disk, fork.file as string);
      }
    });
  });

  test("was not scanned: only labels and its end are read", async () => {
    const turns = range(0, 1500).flatMap((n) => [
      userText(id(3 * n), n === 0 ? null : id(3 * n - 1)),
      entryText("label", id(3 * n + 1), id(3 * n), { targetId: id(3 * n), label: `turn ${n}` }),
      assistantText(id(3 * n + 2), id(3 * n + 1)),
    ]);
    const disk = diskWith(fileText(headerText(), ...turns));
    const source = openOn(disk);
    const read = countReads(disk);
    const fork = await workspaceOn(disk, "jsonl").fork(source, source.tree.leaf);
    expect([fork.log.nodes.count, fork.tree.labels.size]).toEqual([4500, 1500]);
    expect(read(fork.file as string)).toBeLessThan(contentOf(disk, fork).length / 3);
  });
});

test("a session that is published of any lines of others and of its own is what a scan of its file gives", async () => {
  function randomContent(random: Random, log: Log): (Uint8Array | CopiedLines)[] {
    return range(0, random.int(6)).flatMap(() => {
      const ofLog = () => decodeText(log.read(random.int(log.nodes.count)));
      const ids = idsOf(log);
      const own = fileBytes(...range(0, random.int(3)).map(() => odd(random, ofLog(), ids)));
      const positions = range(0, random.int(9)).map(() => random.int(log.nodes.count));
      const rising = [...new Set(positions)].sort((a, b) => a - b);
      const at = random.int(own.length);
      return random.pick<(Uint8Array | CopiedLines)[]>([
        [{ log, positions: rising }],
        [{ log, positions }],
        [own],
        [own.subarray(0, at), own.subarray(at)],
      ]);
    });
  }
  await forSeedsAsync(10, async (random) => {
    const disk = diskWith(randomSession(random, 10));
    const source = jsonlOn(disk).open(FILE);
    if (source.nodes.count === 0) return;
    const publish = jsonlOn(disk)[random.pick(["publish", "publishNow"] as const)] as Store["publish"];
    const log = await publish(beginning(), randomContent(random, source));
    expect(outcome(() => log)).toEqual(outcome(() => jsonlOn(disk.after()).open(log.file as string)));
  });
});

describe("a large session that is published", () => {
  const file = `${FOLDER}/new.jsonl`;
  const large = [...chain(3), userText(id(3), id(2), "x".repeat(35 << 10)), userText(id(4), id(3))];
  const beginningDisk = diskWith(fileText(headerText(), ...large));
  const publishOn = (disk: FaultDisk, content: Iterable<Uint8Array | CopiedLines>) =>
    jsonlOn(disk, { syncedEarly: 32 << 10 }).publish(beginning(headerText(), file), content);

  test("is whole and durable, brought to the medium beside the writing, and holds nothing up", async () => {
    const disk = beginningDisk.after();
    const source = openOn(disk);
    const { sync } = disk;
    const syncs: [other: unknown, isWriting: boolean][] = [];
    let isWriting = true;
    function* content(): Generator<Uint8Array> {
      for (const text of textsOf(source.log)) yield toBytes(`${text}\n`);
      isWriting = false;
    }
    disk.sync = async (fd, neighbour) => {
      syncs.push([neighbour, isWriting]);
      await sync(fd);
    };
    (await publishOn(disk, content())).close();
    // The medium was set to work before the end.
    expect(syncs).toEqual([
      [true, true],
      [true, false],
    ]);
    const lasting = disk.after({ names: "synced", content: "synced" });
    expect(textsOf(jsonlOn(lasting).open(file))).toEqual(large);
  });

  test.each([1, 2])("leaves nothing behind when the medium fails under it (sync %i)", async (failing) => {
    const disk = beginningDisk.after();
    const source = jsonlOn(disk).open(FILE);
    const { sync } = disk;
    let syncs = 0;
    disk.sync = async (fd) => {
      if (++syncs === failing) throw diskError();
      return sync(fd);
    };
    const publishing = publishOn(disk, [{ log: source, positions: [0, 1, 2, 3, 4] }]);
    await expect(publishing).rejects.toMatchObject({ name: "storage_failed" });
    source.close();
    expect([disk.paths(), disk.openCount]).toEqual([[FILE], 0]);
  });
});
