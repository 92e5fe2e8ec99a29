/**
 * What an index cache saves is time and nothing else: whatever happens to it or to the session file, a session that is
 * opened with one is the session that a scan of its file gives.
 */

import { describe, expect, test } from "vitest";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import type { Store } from "../../../src/core/ports/store.ts";
import { Session } from "../../../src/core/session/session.ts";
import { Nodes } from "../../../src/core/tree/nodes.ts";
import { jsonlStore } from "../../../src/storage/jsonl/store.ts";
import { type Locks, noLocks } from "../../../src/storage/locks/locks.ts";
import {
  readIndexSnapshot,
  type SnapshotCache,
  snapshotCache,
  writeIndexSnapshot,
} from "../../../src/storage/log/snapshot-cache.ts";
import { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { assistantText, chain, entryText, fileText, headerText, id, userText } from "../../support/lines.ts";
import { type LockTable, locksOf, locksOfOther } from "../../support/locks.ts";
import { grown } from "../../support/nodes.ts";
import { outcome } from "../../support/outcome.ts";
import { forSeeds, forSeedsAsync, type Random } from "../../support/random.ts";
import { diskWith, FILE, FOLDER, jsonlOn, QUARANTINE, STATE } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { type Files, keepsTheContract } from "../contract.ts";

function indexedOn(
  disk: FaultDisk,
  locks: Locks = noLocks,
  readOnly = false,
  snapshots: SnapshotCache = snapshotCache(disk, STATE, 1),
): Store {
  const env = testEnv();
  return jsonlStore({
    disk,
    env,
    locks,
    readOnly,
    quarantine: QUARANTINE,
    durability: "sync",
    fileFor: (header) => `${FOLDER}/${header.id}.jsonl`,
    snapshots,
  });
}

keepsTheContract("jsonl with an index cache", () => {
  const disk = new FaultDisk();
  disk.makeFolder(FOLDER);
  const table: LockTable = new Map();
  const other: Files["other"] = (options = {}) => indexedOn(disk, locksOfOther(table, options), options.readOnly);
  const store = indexedOn(disk, locksOf("this process", table));
  return { store, files: { disk, folder: FOLDER, other, faults: disk }, close: () => {} };
});

function randomLine(random: Random, n: number, count: number): string {
  const parent = n === 0 ? null : id(random.chance(0.8) ? n - 1 : random.int(n));
  return random.pick([
    () => userText(id(n), parent),
    () => assistantText(id(n), parent),
    () => assistantText(id(n), parent, "x".repeat(random.int(400))),
    () => entryText("label", id(n), parent, { targetId: id(random.int(count)), label: random.pick(["keep", ""]) }),
    () => entryText("session_info", id(n), parent, { name: `name ${n}` }),
    () => entryText("compaction", id(n), parent, { summary: "so far", firstKeptEntryId: parent, tokensBefore: 9 }),
    () => entryText(`kind ${random.int(3)}`, id(n), parent, { data: n }),
    () => entryText("message", `odd id ${n}`, parent, { message: { role: "user", content: "odd" } }),
    () => entryText("custom", id(n), parent, { customType: "pi-session-server.leaf" }),
  ])();
}

function randomSession(random: Random): string {
  const count = random.int(40);
  return fileText(headerText(), ...Array.from({ length: count }, (_, n) => randomLine(random, n, count)));
}

/** Rewrites a file's content where it stands, as an editor that keeps the inode does. */
function overwrite(disk: FaultDisk, path: string, content: Uint8Array): void {
  const fd = disk.openAppend(path);
  disk.truncate(fd, 0);
  if (content.length > 0) disk.write(fd, content);
  disk.close(fd);
}

function appendTo(disk: FaultDisk, path: string, text: string): void {
  const fd = disk.openAppend(path);
  disk.write(fd, bytesOf(text));
  disk.close(fd);
}

/** Something that happens to a file: bytes changed where they stand, cut off, put behind it, or all of it replaced. */
function meddle(random: Random, disk: FaultDisk, path: string): string {
  const content = disk.content(path) as Uint8Array;
  const spoiled = Uint8Array.from(content);
  const at = random.int(Math.max(1, content.length));
  return random.pick([
    () => {
      spoiled[at] ^= 1 << random.int(8);
      overwrite(disk, path, spoiled);
      return `one bit at ${at}`;
    },
    () => {
      spoiled[at] = random.pick([0x0a, 0x22, 0x7d, 0x00]);
      overwrite(disk, path, spoiled);
      appendTo(disk, path, `${userText(id(900), null)}\n`);
      return `one byte at ${at}, and grown`;
    },
    () => {
      overwrite(disk, path, content.subarray(0, at));
      return `cut at ${at}`;
    },
    () => {
      appendTo(disk, path, `${chain(3, 800).join("\n")}\n`);
      return "three lines more";
    },
    () => {
      appendTo(disk, path, '{"type":"message","id":"torn');
      return "a torn line more";
    },
    () => {
      appendTo(disk, path, "\0".repeat(random.int(300)));
      return "zeros more";
    },
    () => {
      disk.put(path, bytesOf(randomSession(random)));
      return "another file in its place";
    },
  ])();
}

const spines = (disk: FaultDisk): string[] => disk.paths().filter((path) => path.startsWith(`${STATE}/spines/`));

describe("an index cache", () => {
  acrossTiers(test, [16, 52])("answers as a scan does, whatever happens to it or to the file (%i)", (count) => {
    let used = 0;
    forSeeds(count, (random) => {
      const disk = diskWith(randomSession(random));
      // With a session on it, what its tree has worked out is kept, too.
      if (random.chance(0.7)) outcome(() => indexedOn(disk).open(FILE));
      else indexedOn(disk).open(FILE).close();
      const kept = spines(disk);
      const happened: string[] = [];
      for (let n = random.int(3); n > 0; n--) {
        const path = kept.length > 0 && random.chance(0.4) ? kept[0] : FILE;
        happened.push(`${path}: ${meddle(random, disk, path)}`);
      }
      if (happened.length === 0) used += kept.length;
      const scanned = outcome(() => jsonlOn(disk).open(FILE));
      expect(
        outcome(() => indexedOn(disk).open(FILE)),
        happened.join(", "),
      ).toEqual(scanned);
      // What that opening kept serves the next one.
      expect(
        outcome(() => indexedOn(disk).open(FILE)),
        happened.join(", "),
      ).toEqual(scanned);
    });
    expect(used).toBeGreaterThan(count / 13);
  });

  test("lets appends go on where a scan would", async () => {
    await forSeedsAsync(3, async (random) => {
      const content = randomSession(random);
      const texts: string[] = [];
      for (const withIndex of [false, true]) {
        const disk = diskWith(content);
        const store = withIndex ? indexedOn(disk) : jsonlOn(disk);
        store.open(FILE).close();
        const session = new Session(store.open(FILE), testEnv(7));
        for (let n = 0; n < 3; n++) {
          session.append([{ type: "message", rest: bytesOf(`,"message":{"role":"user","content":"later ${n}"}`) }]);
          await session.commit();
        }
        session.close();
        texts.push(textOf(disk.content(FILE) as Uint8Array));
        expect(outcome(() => store.open(FILE))).toEqual(outcome(() => jsonlOn(disk).open(FILE)));
      }
      expect(texts[1]).toBe(texts[0]);
    });
  });

  test("is read instead of the file", () => {
    const disk = diskWith(fileText(headerText(), ...chain(4000)));
    const size = disk.content(FILE)?.length as number;
    indexedOn(disk).open(FILE).close();
    expect(spines(disk)).toHaveLength(1);
    const bytes = new Map<number, number>();
    const { read } = disk;
    disk.read = (fd, into, offset, length, position) => {
      const count = read.call(disk, fd, into, offset, length, position);
      bytes.set(fd, (bytes.get(fd) ?? 0) + count);
      return count;
    };
    const log = indexedOn(disk).open(FILE);
    expect(log.nodes.count).toBe(4000);
    // The session file is opened first.
    expect([...bytes.values()][0]).toBeLessThan(size / 4);
    log.close();
  });

  test("is not kept of a session with damage, nor in the session's folder", () => {
    const damaged = diskWith(fileText(headerText(), ...chain(3), "no entry"));
    indexedOn(damaged).open(FILE).close();
    expect(damaged.paths()).toEqual([FILE]);
    const sound = diskWith(fileText(headerText(), ...chain(3)));
    indexedOn(sound).open(FILE).close();
    expect(sound.paths().filter((path) => path.startsWith(FOLDER))).toEqual([FILE]);
    expect(spines(sound)).toHaveLength(1);
  });

  test("of a closed session is written when nobody waits, or when it is needed", () => {
    const put: (() => void)[] = [];
    const other = `${FOLDER}/other.jsonl`;
    const disk = diskWith(fileText(headerText(), ...chain(5)));
    disk.put(other, bytesOf(fileText(headerText(), ...chain(6))));
    const cache = snapshotCache(disk, STATE, 1, (work) => put.push(work));
    const open = (file: string) => indexedOn(disk, noLocks, false, cache).open(file);
    open(FILE).close();
    expect(spines(disk)).toEqual([]);
    // One is put off at a time, and the next opening finds it.
    open(other).close();
    expect(spines(disk)).toHaveLength(1);
    const log = open(other);
    expect([spines(disk).length, log.nodes.count]).toEqual([2, 6]);
    disk.put(FILE, bytesOf(fileText(headerText(), ...chain(7))));
    open(FILE).close();
    for (const work of put) work();
    expect(put).toHaveLength(3);
    expect(outcome(() => open(FILE))).toEqual(outcome(() => jsonlOn(disk).open(FILE)));
  });

  test("that cannot be written is done without", () => {
    const content = fileText(headerText(), ...chain(3));
    for (let at = 1; ; at++) {
      const disk = diskWith(content);
      const log = indexedOn(disk).open(FILE);
      disk.set({ kind: "fail", at, errno: "ENOSPC" });
      log.close();
      const { struck } = disk;
      disk.set(undefined);
      expect(outcome(() => indexedOn(disk).open(FILE))).toEqual(outcome(() => jsonlOn(disk).open(FILE)));
      if (!struck) break;
      expect(at).toBeLessThan(100);
    }
  });

  test("holds only for the file it was made of", () => {
    const disk = diskWith(fileText(headerText(), ...chain(5)));
    disk.put(`${FOLDER}/other.jsonl`, bytesOf(fileText(headerText(), ...chain(6))));
    indexedOn(disk).open(FILE).close();
    indexedOn(disk).open(`${FOLDER}/other.jsonl`).close();
    const [one, other] = spines(disk);
    const bytes = disk.content(one) as Uint8Array;
    overwrite(disk, one, disk.content(other) as Uint8Array);
    overwrite(disk, other, bytes);
    for (const file of [FILE, `${FOLDER}/other.jsonl`])
      expect(outcome(() => indexedOn(disk).open(file))).toEqual(outcome(() => jsonlOn(disk).open(file)));
  });
});

describe("a spine", () => {
  const EXTRAS = { columns: { starts: Float64Array.of(1, 2 ** 40, 3) }, facts: { where: "here" } };

  function spineOf(nodes: Nodes): FaultDisk {
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
      const { nodes: again, extras } = read(spineOf(nodes));
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
    const whole = spineOf(nodes).content("/spines/one") as Uint8Array;
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
