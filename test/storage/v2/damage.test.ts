/**
 * What is wrong in a container and what becomes of it (reliability cases S9, S10, L5; seed 003, INV-001 to INV-005):
 * what is whole is served, what is not is told, nothing is written before the first change, and that puts it in order.
 */

import { beforeAll, describe, expect, test } from "vitest";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import {
  checkpointFile,
  headerFile,
  indexFile,
  indexSnapshotFile,
  ledgerFile,
  manifestFile,
  pointerFile,
  segmentFile,
} from "../../../src/storage/fs/container-paths.ts";
import { type Disk, writeAll } from "../../../src/storage/fs/disk.ts";
import { removeTree } from "../../../src/storage/fs/staging.ts";
import { noLocks, sharedLocks } from "../../../src/storage/locks/locks.ts";
import type { FileLog } from "../../../src/storage/log/file-log.ts";
import { snapshotCache } from "../../../src/storage/log/snapshot-cache.ts";
import { audit } from "../../../src/storage/v2/audit.ts";
import { sha256 } from "../../../src/storage/v2/frame.ts";
import type { V2Backend } from "../../../src/storage/v2/log.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { assistantText, chain, entryText, headerText, id, SESSION, userText } from "../../support/lines.ts";
import { type LockTable, locksOf } from "../../support/locks.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { beginning, FOLDER, idsOf, kindsOf, STATE, textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import {
  CONTAINER,
  containerWith,
  cutFile,
  encodeFrame,
  faultsOf,
  type Options,
  storedText,
  v2On,
} from "../../support/v2.ts";

const COUNT = 12;
/** Segments of four entries each. */
const SMALL = 2000;
let made: FaultDisk;
let small: FaultDisk;

beforeAll(async () => {
  made = await containerWith(chain(COUNT));
  small = await containerWith(chain(COUNT), { segmentBytes: SMALL });
});

const bytes = (...lines: string[]) => lines.map((line) => bytesOf(line));
const named = (failure: string) => expect.objectContaining({ name: failure });

function open(disk: Disk, more: Options = {}): FileLog {
  return v2On(disk, more).open(CONTAINER) as FileLog;
}

function rewrite(disk: FaultDisk, path: string, change: (text: string) => string): void {
  disk.put(path, Buffer.from(change(Buffer.from(disk.content(path) as Uint8Array).toString("latin1")), "latin1"));
}

function lines(disk: FaultDisk, path: string, change: (lines: string[]) => string[]): void {
  rewrite(disk, path, (text) =>
    change(text.split("\n").slice(0, -1))
      .map((line) => `${line}\n`)
      .join(""),
  );
}

function addTo(disk: Disk, path: string, text: string): void {
  const fd = disk.openAppend(path);
  writeAll(disk, fd, bytesOf(text));
  disk.close(fd);
}

/** All bytes there are, but for times. */
const contents = (disk: FaultDisk) =>
  disk.paths().map((path) => `${path} ${Buffer.from(disk.content(path) as Uint8Array).toString("latin1")}`);

/** Opens a container that is to be in order again after the next append, which works. */
async function mends(disk: FaultDisk, kept: number, more: Options = {}): Promise<FileLog> {
  const before = contents(disk);
  const log = open(disk, more);
  expect(textsOf(log)).toEqual(chain(kept));
  expect(contents(disk), "opening writes nothing").toEqual(before);
  log.append(bytes(userText(id(50), id(kept - 1))));
  await log.commit();
  log.close();
  expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  const again = open(disk, more);
  expect([idsOf(again).length, again.damage, again.state]).toEqual([kept + 1, [], "CLEAN"]);
  again.close();
  return log;
}

/** Opens a container that lost entries: it is FAILED and stays as it is until it is repaired, which keeps what was there. */
async function failsUntilRepaired(disk: FaultDisk, kept: number): Promise<FileLog> {
  const before = contents(disk);
  const log = open(disk);
  expect(textsOf(log)).toEqual(chain(kept));
  expect([log.state, log.readOnly?.name]).toEqual(["FAILED", "corrupt"]);
  expect(() => log.append(bytes(userText(id(50), id(kept - 1))))).toThrow(named("corrupt"));
  log.close();
  expect(contents(disk), "nothing is written").toEqual(before);
  const again = open(disk);
  const backup = again.repair() as string;
  again.close();
  const segments = (folder: string) => contents(disk).filter((file) => file.startsWith(`${folder}/segments`));
  expect(segments(backup).map((file) => file.slice(backup.length))).toEqual(
    before.filter((file) => file.startsWith(`${CONTAINER}/segments`)).map((file) => file.slice(CONTAINER.length)),
  );
  const repaired = open(disk);
  expect([textsOf(repaired), repaired.damage, repaired.state]).toEqual([chain(kept), [], "CLEAN"]);
  repaired.append(bytes(userText(id(50), id(kept - 1))));
  await repaired.commit();
  repaired.close();
  expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  return log;
}

const eventsIn = (disk: FaultDisk) =>
  Buffer.from(disk.content(ledgerFile(CONTAINER)) ?? "")
    .toString()
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));

describe("an index", () => {
  test.each<[string, (disk: FaultDisk) => void]>([
    ["that is missing", (disk) => disk.remove(indexFile(CONTAINER))],
    ["that is empty", (disk) => cutFile(disk, indexFile(CONTAINER), 0)],
    ["that lacks rows", (disk) => cutFile(disk, indexFile(CONTAINER), 7)],
    ["whose last row is torn", (disk) => rewrite(disk, indexFile(CONTAINER), (text) => text.slice(0, -30))],
    [
      "with a row twice",
      (disk) => lines(disk, indexFile(CONTAINER), (rows) => [...rows.slice(0, 5), ...rows.slice(4)]),
    ],
    ["with a gap", (disk) => lines(disk, indexFile(CONTAINER), (rows) => [...rows.slice(0, 5), ...rows.slice(6)])],
    [
      "that points out of bounds",
      (disk) =>
        rewrite(disk, indexFile(CONTAINER), (text) => text.replace(/"byteOffset":\d{4}/, '"byteOffset":999999')),
    ],
    [
      "with rows of garbage",
      (disk) => lines(disk, indexFile(CONTAINER), (rows) => [...rows.slice(0, 3), "}{", ...rows.slice(4)]),
    ],
    [
      "with zeros",
      (disk) => rewrite(disk, indexFile(CONTAINER), (text) => text.slice(0, 900) + "\0".repeat(text.length - 900)),
    ],
  ])("%s is made anew from the segments, and the ledger tells of it", async (_, harm) => {
    for (const withSpine of [true, false]) {
      const disk = made.after();
      harm(disk);
      if (!withSpine) disk.remove(indexSnapshotFile(CONTAINER));
      const log = await mends(disk, COUNT);
      expect(kindsOf(log).every((kind) => kind === "bad_index")).toBe(true);
      expect(log.damage.every(({ salvaged }) => salvaged)).toBe(true);
      expect(eventsIn(disk)).toMatchObject([{ outcome: "recoverable_error", errorClass: "index_corruption" }]);
    }
  });

  test("with rows for what no segment holds is of a store that lost entries", async () => {
    const disk = made.after();
    cutFile(disk, segmentFile(CONTAINER, 1), 9);
    const log = await failsUntilRepaired(disk, 9);
    expect(kindsOf(log)).toEqual(["bad_index", "lost_entries"]);
    expect(log.damage[1].reason).toContain("3 entries");
  });

  test("that lacks rows across the beginning of a segment is made anew", async () => {
    for (let kept = 0; kept < COUNT; kept++) {
      const disk = small.after();
      cutFile(disk, indexFile(CONTAINER), kept);
      await mends(disk, COUNT, { segmentBytes: SMALL });
    }
  });
});

describe("a segment", () => {
  test("torn at any byte of its last frame keeps the frames before, and what is cut off is kept aside", async () => {
    const whole = made.content(segmentFile(CONTAINER, 1)) as Uint8Array;
    const last = whole.lastIndexOf(0x0a, whole.length - 2) + 1;
    for (let size = last + 1; size < whole.length; size += 23) {
      const disk = made.after();
      disk.put(segmentFile(CONTAINER, 1), whole.subarray(0, size));
      cutFile(disk, indexFile(CONTAINER), COUNT - 1);
      disk.remove(manifestFile(CONTAINER));
      disk.remove(checkpointFile(CONTAINER, 1));
      const log = await mends(disk, COUNT - 1);
      expect(kindsOf(log)).toEqual(["torn_tail"]);
      const [{ keptAt }] = log.damage;
      expect(disk.content(keptAt as string)).toEqual(whole.slice(last, size));
    }
  });

  test("that ends in zeros keeps the frames before", async () => {
    const disk = made.after();
    addTo(disk, segmentFile(CONTAINER, 1), "\0".repeat(5000));
    await mends(disk, COUNT);
  });

  test("that was begun and holds nothing yet is begun again", async () => {
    const disk = small.after();
    const last = disk.paths().filter((path) => path.endsWith(".seg")).length;
    disk.put(segmentFile(CONTAINER, last + 1), new Uint8Array(0));
    const log = await mends(disk, COUNT, { segmentBytes: SMALL });
    expect(log.damage).toEqual([]);
  });

  test("with a flipped bit costs no more than the entry it lies in, wherever that is", async () => {
    await forSeedsAsync(10, async (random) => {
      const disk = made.after();
      if (random.chance(0.5)) disk.remove(indexSnapshotFile(CONTAINER));
      const path = segmentFile(CONTAINER, 1);
      const content = Buffer.from(disk.content(path) as Uint8Array);
      const at = random.int(content.length);
      content[at] ^= 1 << random.int(8);
      disk.put(path, content);
      const log = open(disk);
      const before = contents(disk);
      const texts = textsOf(log);
      const whole = chain(COUNT).filter((line) => texts.includes(line));
      const hit = content.subarray(0, at).filter((byte) => byte === 0x0a).length;
      // A line feed that is none any more, or one more, makes two frames of one or one of two.
      expect(whole.length, `byte ${at}`).toBeGreaterThanOrEqual(COUNT - 2);
      for (const [n, line] of chain(COUNT).entries())
        if (Math.abs(n - hit) > 1) expect(texts, `byte ${at}`).toContain(line);
      expect(log.damage.length, `byte ${at}`).toBeGreaterThan(0);
      expect(contents(disk)).toEqual(before);
      // Repaired, it takes entries again.
      const kept = log.repair() as string;
      log.close();
      expect(disk.paths().some((name) => name.startsWith(`${kept}/`))).toBe(true);
      const again = open(disk);
      expect([again.damage, again.readOnly]).toEqual([[], null]);
      for (const line of whole) expect(idsOf(again)).toContain(JSON.parse(line).id);
      again.append(bytes(userText(id(50), null)));
      await again.commit();
      again.close();
      expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
    });
  });

  test("damaged in the middle is served up to there and behind it, read-only, until it is repaired", async () => {
    const disk = small.after();
    disk.remove(indexSnapshotFile(CONTAINER));
    rewrite(disk, segmentFile(CONTAINER, 2), (text) => "#".repeat(text.indexOf("\n")) + text.slice(text.indexOf("\n")));
    const log = open(disk, { segmentBytes: SMALL });
    const lost = idsOf(small_(small)).filter((entryId) => !idsOf(log).includes(entryId));
    expect(lost).toHaveLength(1);
    expect(kindsOf(log)).toEqual(expect.arrayContaining(["bad_line", "missing_parent"]));
    expect([log.readOnly?.name, log.state]).toEqual(["corrupt", "FAILED"]);
    expect(() => log.append(bytes(userText(id(50), null)))).toThrow(named("corrupt"));
    expect(log.repair()).toMatch(/\.damaged\.bak$/);
    expect(log.state).toBe("CHECKPOINTED");
    log.close();
    const again = open(disk);
    expect([again.nodes.count, again.damage, again.state]).toEqual([COUNT - 1, [], "CLEAN"]);
    expect(eventsIn(disk).at(-1)).toMatchObject({ outcome: "recoverable_error", errorClass: "integrity_mismatch" });
    again.close();
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  });

  test("that is missing in the middle loses its own entries alone", () => {
    const disk = small.after();
    disk.remove(segmentFile(CONTAINER, 2));
    const log = open(disk);
    expect(log.nodes.count).toBeGreaterThan(COUNT / 2);
    expect(log.readOnly?.name).toBe("corrupt");
    expect(log.damage.length).toBeGreaterThan(0);
    log.close();
  });

  function small_(disk: FaultDisk): FileLog {
    return open(disk.after());
  }
});

describe("a repair that was cut off between its two names", () => {
  test("leaves the session readable and to be repaired again", () => {
    const disk = made.after();
    rewrite(disk, segmentFile(CONTAINER, 1), (text) => text.replace("say a0000003", "say !!!!!!!!"));
    disk.rename(CONTAINER, `${CONTAINER}.damaged.bak`);
    const log = open(disk);
    expect([log.file, log.nodes.count]).toEqual([CONTAINER, COUNT]);
    textsOf(log);
    expect(log.repair()).toBe(`${CONTAINER}.damaged.bak`);
    log.close();
    const again = open(disk);
    expect([again.nodes.count, again.damage]).toEqual([COUNT, []]);
    expect(JSON.parse(textOf(again.read(3)))).toMatchObject({ id: id(3), damaged: true });
    again.close();
  });
});

describe("an undo of a repair that was cut off between its two names", () => {
  test("leaves the session to be gone on with, durably", async () => {
    const disk = made.after();
    disk.rename(CONTAINER, `${CONTAINER}.damaged.bak`);
    const log = open(disk);
    log.append([bytesOf(userText(id(COUNT), id(COUNT - 1)))]);
    await log.commit();
    log.close();
    for (const { disk: left } of disk.lasting()) expect(open(left).nodes.count).toBe(COUNT + 1);
  });
});

describe("a manifest or checkpoint", () => {
  test.each([
    ["manifest", [checkpointFile(CONTAINER, 1)]],
    ["checkpoint", [manifestFile(CONTAINER)]],
    ["manifest and checkpoint", []],
  ])("of a later state than the segments is of a store that lost entries: %s", async (_what, removed) => {
    const disk = made.after();
    for (const path of [segmentFile(CONTAINER, 1), indexFile(CONTAINER)]) cutFile(disk, path, 9);
    for (const path of removed) disk.remove(path);
    const log = await failsUntilRepaired(disk, 9);
    expect(kindsOf(log)).toEqual(["lost_entries"]);
  });

  test("that is damaged counts as none, and the one before holds", async () => {
    const disk = made.after();
    disk.put(checkpointFile(CONTAINER, 2), bytesOf("{"));
    const log = await mends(disk, COUNT, { checkpointEvery: { entries: 1, bytes: 1 } });
    expect(log.damage).toEqual([]);
  });

  test("of an earlier state, torn or missing is no matter", async () => {
    for (const harm of [
      (disk: FaultDisk) => disk.remove(manifestFile(CONTAINER)),
      (disk: FaultDisk) => rewrite(disk, manifestFile(CONTAINER), (text) => text.slice(0, 300)),
      (disk: FaultDisk) => disk.put(checkpointFile(CONTAINER, 1), bytesOf("{")),
      (disk: FaultDisk) => disk.put(`${CONTAINER}/tmp/manifest.json.tmp`, bytesOf("{")),
    ]) {
      const disk = made.after();
      harm(disk);
      const log = await mends(disk, COUNT, { checkpointEvery: { entries: 1, bytes: 1 } });
      expect(log.damage).toEqual([]);
    }
  });

  test("that has another chain for the same end makes the session read-only", () => {
    const disk = made.after();
    const payload = userText(id(11), id(10), "another");
    const coordinates = { segmentSeq: 1, frameSeq: COUNT, entrySeq: COUNT };
    const facts = { entryId: id(11), parentEntryId: id(10), entryType: "message" };
    const frame = encodeFrame(coordinates, facts, "2026-02-03T22:52:06.500Z", bytesOf(payload));
    for (const path of [segmentFile(CONTAINER, 1), indexFile(CONTAINER)]) cutFile(disk, path, COUNT - 1);
    addTo(disk, segmentFile(CONTAINER, 1), textOf(frame.bytes));
    const log = open(disk);
    expect([log.nodes.count, log.readOnly?.name]).toEqual([COUNT, "corrupt"]);
    expect(log.damage.at(-1)?.reason).toContain("chain");
    log.close();
  });
});

describe("a mark before the end", () => {
  const other = (digit: string) => (digit === "1" ? "2" : "1");
  const harms: Record<string, (disk: FaultDisk) => void> = {
    "a checkpoint with another chain": (disk) =>
      rewrite(disk, checkpointFile(CONTAINER, 1), (text) => text.replace(/(?<="chainHash": ")./, other)),
    "a checkpoint with another number": (disk) =>
      rewrite(disk, checkpointFile(CONTAINER, 1), (text) =>
        text.replace(`"headEntrySeq": ${COUNT}`, '"headEntrySeq": 9'),
      ),
    "a manifest with another chain": (disk) => {
      const manifest = JSON.parse(textOf(disk.content(manifestFile(CONTAINER)) as Uint8Array));
      Object.assign(manifest.integrity, { chainHash: "1".repeat(64), manifestHash: "" });
      manifest.integrity.manifestHash = sha256(bytesOf(JSON.stringify(manifest)));
      disk.put(manifestFile(CONTAINER), bytesOf(JSON.stringify(manifest)));
    },
  };
  const opened = (disk: FaultDisk, more: Options = {}) => {
    const log = open(disk, more);
    log.close();
    return [log.readOnly?.name, kindsOf(log)];
  };

  for (const [what, harm] of Object.entries(harms))
    test.each([
      ["no cache", false, false],
      ["the container's cache", true, false],
      ["the cache of the state folder", true, true],
    ])(`that contradicts the frames makes the session read-only, read with %s: ${what}`, async (_, own, isKept) => {
      const disk = made.after();
      const more = isKept ? { snapshots: snapshotCache(disk, STATE, 1) } : {};
      const manifest = disk.content(manifestFile(CONTAINER)) as Uint8Array;
      const log = open(disk, more);
      log.append(bytes(userText(id(12), id(11))));
      await log.commit();
      log.close();
      // As if the writer had been killed.
      disk.put(manifestFile(CONTAINER), manifest);
      if (!own) disk.remove(indexSnapshotFile(CONTAINER));
      expect(opened(disk, more)).toEqual([undefined, []]);
      harm(disk);
      expect(opened(disk, more)).toEqual(["corrupt", ["bad_line"]]);
      const later = { ...testEnv(), now: () => Date.parse("2027-01-01T00:00:00Z") };
      const repairing = open(disk, { ...more, env: later });
      repairing.repair();
      repairing.close();
      expect(opened(disk, more)).toEqual([undefined, []]);
    });

  test("says nothing where a frame that it covers is damaged: that is told of its entry alone", () => {
    const disk = made.after();
    lines(disk, segmentFile(CONTAINER, 1), (found) =>
      found.map((line, n) => (n === 2 ? line.replace(/(?<="payloadSha256":")./, other) : line)),
    );
    disk.remove(indexSnapshotFile(CONTAINER));
    expect(kindsOf(open(disk))).toEqual(["bad_body"]);
  });
});

describe("the spine", () => {
  test("that is torn, damaged, stale or missing changes nothing", async () => {
    const odd = [
      ...chain(3),
      entryText("unheard_of", "odd id", id(2), { n: 1 }),
      assistantText(id(4), "odd id"),
      entryText("label", id(5), id(4), { targetId: id(0), label: "x" }),
    ];
    const disk = await containerWith(odd);
    const log = open(disk, { checkpointEvery: { entries: 2, bytes: 1 << 20 } });
    for (let n = 6; n < 12; n++) {
      log.append(bytes(userText(id(n), id(n - 1))));
      await log.commit();
    }
    const wanted = [textsOf(log), idsOf(log), storedText(disk, CONTAINER)] as const;
    log.close();
    const spine = disk.content(indexSnapshotFile(CONTAINER)) as Uint8Array;
    const cuts = [0, 5, 30, spine.length >> 1, spine.length - 9, spine.length - 1, spine.length];
    for (const size of cuts)
      for (const flip of [false, true]) {
        const content = Uint8Array.from(spine.subarray(0, size));
        if (flip && size > 0) content[size >> 1] ^= 4;
        const next = disk.after();
        next.put(indexSnapshotFile(CONTAINER), content);
        const again = open(next, { checkpointEvery: { entries: 1, bytes: 1 } });
        expect([textsOf(again), idsOf(again), storedText(next, CONTAINER), again.damage]).toEqual([...wanted, []]);
        expect(idsOf(again).map((entryId) => again.nodes.position(entryId))).toEqual(wanted[0].map((_, n) => n));
        again.append(bytes(userText(id(20), id(11))));
        await again.commit();
        again.close();
        const last = open(next);
        expect([idsOf(last), last.damage]).toEqual([[...idsOf(again)], []]);
        last.close();
      }
  });

  test("spares opening the payloads before it", async () => {
    const disk = made.after();
    disk.set(undefined);
    open(disk).close();
    const withSpine = disk.operations.filter((operation) => operation === "read").length;
    disk.remove(indexSnapshotFile(CONTAINER));
    disk.set(undefined);
    open(disk).close();
    expect(disk.operations.filter((operation) => operation === "read").length).toBeGreaterThan(withSpine);
  });
});

describe("what a container never takes", () => {
  test("an entry whose id is taken, whose parent is not there, or that is too large leaves everything as it was", async () => {
    const disk = made.after();
    const log = open(disk, { segmentBytes: 5000 });
    const before = contents(disk);
    for (const line of [
      userText(id(3), id(2)),
      userText(id(50), "nobody"),
      userText(id(50), id(11), "x".repeat(6000)),
    ]) {
      expect(() => log.append(bytes(userText(id(49), id(11)), line))).toThrow(named("invalid_entry"));
      expect([log.nodes.count, log.state]).toEqual([COUNT, "CLEAN"]);
      expect(contents(disk)).toEqual(before);
    }
    log.append(bytes(userText(id(50), id(11))));
    await log.commit();
    log.close();
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  });

  test("a session id that is no UUID, a path that names no container, a name that pi_agent_rust would take for its own", async () => {
    const disk = made.after();
    const store = v2On(disk);
    expect(() => store.create(beginning(headerText({ id: "mine" }), `${FOLDER}/mine.v2`))).toThrow(named("invalid_id"));
    expect(() => store.create(beginning(headerText(), `${FOLDER}/mine.jsonl`))).toThrow(named("invalid_id"));
    disk.put(`${FOLDER}/talk.jsonl`, bytesOf("x"));
    await expect(store.publish(beginning(headerText(), `${FOLDER}/talk.v2`), [])).rejects.toThrow(
      named("already_exists"),
    );
  });

  test("a frame at the end of the entry, index and segment limits is in bounds", async () => {
    // The largest frame that fits is taken, one byte more is not (session-store-v2 reference, section 2.2).
    const disk = made.after();
    const log = open(disk, { segmentBytes: 5000 });
    const overhead = encodeFrame(
      { segmentSeq: 2, frameSeq: 1, entrySeq: 13 },
      { entryId: id(50), parentEntryId: id(11), entryType: "message" },
      "2026-02-03T22:52:06.500Z",
      bytesOf(userText(id(50), id(11), "")),
    ).bytes.length;
    // The length of the payload takes four digits, not three.
    const room = 5000 - overhead - 1;
    expect(() => log.append(bytes(userText(id(50), id(11), "x".repeat(room + 1))))).toThrow(named("invalid_entry"));
    log.append(bytes(userText(id(50), id(11), "x".repeat(room))));
    await log.commit();
    log.close();
    expect(disk.info(segmentFile(CONTAINER, 2)).size).toBe(5000);
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  });
});

test("a whole line at the end that is no frame is nobody's torn write, and is not cut, whatever else is lost", () => {
  for (const change of [
    (line: string) => line.replace("say ", "xay "),
    (line: string) => line.replace('"message":{', '"massage":{'),
    () => '{"type":"message","id":"theirs","parentId":null}',
  ]) {
    const disk = made.after();
    disk.remove(manifestFile(CONTAINER));
    disk.remove(checkpointFile(CONTAINER, 1));
    lines(disk, indexFile(CONTAINER), (all) => all.slice(0, -1));
    lines(disk, segmentFile(CONTAINER, 1), (all) => [...all.slice(0, -1), change(all.at(-1) as string)]);
    const before = disk.content(segmentFile(CONTAINER, 1));
    const log = open(disk);
    expect(kindsOf(log)).toContain("bad_line");
    expect(() => log.append(bytes(userText(id(50), id(10))))).toThrow(named("corrupt"));
    log.close();
    expect(disk.content(segmentFile(CONTAINER, 1))).toEqual(before);
  }
});

describe("what is no container of ours", () => {
  test.each<[string, string, (disk: FaultDisk) => void]>([
    [
      "one without its pointer beside a session file of its id",
      "not_a_session",
      (disk) => {
        disk.remove(pointerFile(CONTAINER));
        disk.remove(manifestFile(CONTAINER));
        disk.put(`${FOLDER}/any.jsonl`, disk.content(headerFile(CONTAINER)) as Uint8Array);
      },
    ],
    [
      "one whose pointer is damaged beside a session file of its id",
      "not_a_session",
      (disk) => {
        disk.put(pointerFile(CONTAINER), bytesOf("{}"));
        rewrite(disk, manifestFile(CONTAINER), (text) => text.replace('"native_v2"', '"jsonl_v3"'));
        disk.put(`${FOLDER}/any.jsonl`, disk.content(headerFile(CONTAINER)) as Uint8Array);
      },
    ],
    [
      "one that was rolled back",
      "not_a_session",
      (disk) => rewrite(disk, pointerFile(CONTAINER), (text) => text.replace("native_v2", "jsonl_v3")),
    ],
    ["one without its header", "session_not_found", (disk) => disk.remove(headerFile(CONTAINER))],
  ])("%s is not opened, and stays as it is", (_, failure, harm) => {
    const disk = made.after();
    harm(disk);
    const before = contents(disk);
    expect(() => open(disk)).toThrow(named(failure));
    expect(contents(disk)).toEqual(before);
    expect(disk.openCount).toBe(0);
  });

  test.each<[string, (disk: FaultDisk) => void]>([
    ["that is missing", (disk) => disk.remove(pointerFile(CONTAINER))],
    ["that is damaged", (disk) => disk.put(pointerFile(CONTAINER), bytesOf("{}"))],
    [
      "that is a folder",
      (disk) => {
        disk.remove(pointerFile(CONTAINER));
        disk.makeFolder(pointerFile(CONTAINER));
      },
    ],
  ])(
    "one with a pointer %s is the session where nothing else can be, and its next writer makes one",
    async (_, harm) => {
      for (const hasManifest of [true, false]) {
        const disk = made.after();
        harm(disk);
        if (!hasManifest) disk.remove(manifestFile(CONTAINER));
        const before = contents(disk);
        const log = open(disk);
        expect(textsOf(log)).toEqual(chain(COUNT));
        expect(contents(disk), "opening writes nothing").toEqual(before);
        log.append(bytes(userText(id(50), id(11))));
        await log.commit();
        log.close();
        expect(idsOf(open(disk))).toHaveLength(COUNT + 1);
        const damaged = before.find((text) => text.startsWith(`${pointerFile(CONTAINER)} `))?.split(" ")[1];
        const kept = disk.content(`${pointerFile(CONTAINER)}.damaged.bak`);
        if (hasManifest && damaged !== undefined)
          expect(textOf(kept as Uint8Array), "what was there is kept").toBe(damaged);
        if (hasManifest) expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
      }
    },
  );

  acrossTiers(test, [3, 1])(
    "a pointer that comes back while its container is written is not moved away, at each of %i calls",
    async (step) => {
      const beginning = made.after();
      const pointer = beginning.content(pointerFile(CONTAINER)) as Uint8Array;
      beginning.remove(pointerFile(CONTAINER));
      let calls = 0;
      for (let at = 1; at === 1 || calls >= at - step; at += step) {
        calls = 0;
        const disk = beginning.after();
        const watched = new Proxy(disk, {
          get(target, name) {
            const member = Reflect.get(target, name, target);
            if (typeof member !== "function") return member;
            return (...given: unknown[]) => {
              if (++calls === at && target.content(pointerFile(CONTAINER)) === undefined)
                target.put(pointerFile(CONTAINER), pointer);
              return member.apply(target, given);
            };
          },
        });
        const log = open(watched);
        try {
          log.append(bytes(userText(id(50), id(11))));
        } catch (error) {
          // It came between two looks.
          expect((error as Error).name).toBe("storage_failed");
        }
        log.close();
        expect(disk.content(`${pointerFile(CONTAINER)}.damaged.bak`), `before call ${at}`).toBeUndefined();
      }
    },
  );

  test.each(["{}\n", "", '{"type":"session","id":', "\u0000"])(
    "one whose header is %j is read, and repaired to be written",
    async (text) => {
      const disk = made.after();
      disk.put(headerFile(CONTAINER), bytesOf(text));
      const before = contents(disk);
      const log = open(disk);
      expect([textsOf(log), kindsOf(log), log.header.id]).toEqual([chain(COUNT), ["bad_header"], SESSION]);
      expect(contents(disk), "opening writes nothing").toEqual(before);
      expect(() => log.append(bytes(userText(id(50), id(11))))).toThrow(named("corrupt"));
      const backup = log.repair();
      expect(textOf(disk.content(headerFile(backup as string)) as Uint8Array)).toBe(text);
      log.close();
      const again = open(disk);
      expect([textsOf(again), again.damage]).toEqual([chain(COUNT), []]);
      again.append(bytes(userText(id(50), id(11))));
      await again.commit();
      again.close();
      expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
    },
  );

  test("one whose header is damaged tells of entries that are lost all the same, whoever judges it", () => {
    const disk = made.after();
    disk.put(headerFile(CONTAINER), bytesOf("{}"));
    for (const path of [segmentFile(CONTAINER, 1), indexFile(CONTAINER)]) lines(disk, path, (all) => all.slice(0, -1));
    const log = open(disk);
    expect(kindsOf(log)).toEqual(["bad_header", "lost_entries"]);
    log.acquireLock();
    log.refresh();
    expect(kindsOf(log)).toEqual(["bad_header", "lost_entries"]);
    expect(() => log.append(bytes(userText(id(50), id(10))))).toThrow(named("corrupt"));
    log.close();
  });

  test("one whose header has another id than a UUID is written all the same, with checkpoints", async () => {
    const disk = made.after();
    const header = textOf(disk.content(headerFile(CONTAINER)) as Uint8Array);
    disk.put(headerFile(CONTAINER), bytesOf(header.replace(SESSION, SESSION.replace(/.$/, "g"))));
    const log = v2On(disk, { checkpointEvery: { entries: 1, bytes: 1 } }).open(CONTAINER);
    log.append(bytes(userText(id(50), id(11))));
    await log.commit();
    log.close();
    expect(textsOf(open(disk)).at(-1)).toBe(userText(id(50), id(11)));
  });

  test("one whose header is a folder is read, and repaired to be written", async () => {
    const disk = made.after();
    disk.remove(headerFile(CONTAINER));
    disk.makeFolder(headerFile(CONTAINER));
    const log = open(disk);
    expect([textsOf(log), kindsOf(log)]).toEqual([chain(COUNT), ["bad_header"]]);
    log.repair();
    log.close();
    expect([textsOf(open(disk)), faultsOf(disk, CONTAINER, true)]).toEqual([chain(COUNT), []]);
  });

  test("one whose migration is not confirmed is read and not written", () => {
    const disk = made.after();
    rewrite(disk, pointerFile(CONTAINER), (text) => text.replace('"completed"', '"cutover_commit"'));
    const log = open(disk);
    expect([log.nodes.count, log.state]).toEqual([COUNT, "FAILED"]);
    expect(() => log.append(bytes(userText(id(50), id(11))))).toThrow(named("migration_failed"));
    log.close();
  });
});

describe("the state", () => {
  test("goes from clean through dirty, sealed and indexed to a checkpoint, and on", async () => {
    const disk = made.after();
    const log = open(disk, { checkpointEvery: { entries: 2, bytes: 1 << 20 } });
    expect(log.state).toBe("CLEAN");
    for (let n = 0; n < 3; n++) {
      log.append(bytes(userText(id(50 + n), id(11))));
      expect(log.state).toBe("DIRTY");
      await log.commit();
      expect(log.state).toBe(n === 1 ? "CHECKPOINTED" : "INDEXED");
    }
    expect((log.backend as V2Backend).states.history.map(({ toState }) => toState)).toEqual([
      "DIRTY",
      "SEGMENT_SEALED",
      "INDEXED",
      "DIRTY",
      "SEGMENT_SEALED",
      "INDEXED",
      "CHECKPOINTED",
      "DIRTY",
      "SEGMENT_SEALED",
      "INDEXED",
    ]);
    log.close();
  });

  test("stays dirty when the frames cannot be made durable, and comes back from failure when the rows cannot", async () => {
    for (const [at, states] of [
      [1, ["DIRTY"]],
      [2, ["DIRTY", "SEGMENT_SEALED", "FAILED", "DIRTY"]],
    ] as const) {
      const disk = made.after();
      const log = open(disk);
      let syncs = 0;
      const { sync } = disk;
      disk.sync = async (fd) => {
        if (++syncs === at) throw Object.assign(new Error("EIO"), { code: "EIO" });
        await sync(fd);
      };
      log.append(bytes(userText(id(50), id(11))));
      await expect(log.commit()).rejects.toThrow(named("storage_failed"));
      expect((log.backend as V2Backend).states.history.map(({ toState }) => toState)).toEqual(states);
      disk.sync = sync;
      log.append(bytes(userText(id(51), id(11))));
      await log.commit();
      expect([log.state, log.nodes.count]).toEqual(["INDEXED", COUNT + 1]);
      log.close();
      expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
    }
  });
});

describe("several logs of one process", () => {
  test("write in turns, and what one appended is made durable before the other goes on", async () => {
    const disk = made.after();
    const table: LockTable = new Map();
    const store = v2On(disk, { locks: sharedLocks(locksOf("us", table)) });
    const [one, two] = [store.open(CONTAINER), store.open(CONTAINER)];
    one.append(bytes(userText(id(50), id(11))));
    const first = one.commit();
    one.append(bytes(userText(id(51), id(50))));
    two.append(bytes(userText(id(52), id(51))));
    expect([one.durableCount, idsOf(two).slice(-3)]).toEqual([COUNT + 2, [id(50), id(51), id(52)]]);
    await Promise.all([first, one.commit(), two.commit()]);
    expect(one.refresh()).toEqual({ kind: "grown", first: COUNT + 2 });
    one.append(bytes(userText(id(53), id(52))));
    await one.commit();
    expect(two.refresh()).toEqual({ kind: "grown", first: COUNT + 3 });
    for (const log of [one, two]) {
      expect(textsOf(log).length).toBe(COUNT + 4);
      log.close();
    }
    expect(table.size).toBe(0);
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  });
});

test("entries that belong together leave nothing but themselves once they were read", async () => {
  const together = chain(COUNT).map((line, i) =>
    line.replace(',"message"', `,"_batch":{"session":"${SESSION}","index":${i % 2},"count":2},"message"`),
  );
  const disk = await containerWith(together.slice(0, 6));
  const log = open(disk);
  const waysBack = () => (log.backend as V2Backend).stored.end.batch;
  expect([textsOf(log), waysBack()]).toEqual([together.slice(0, 6), []]);
  const theirs = open(disk);
  theirs.append(bytes(...together.slice(6)));
  await theirs.commit();
  expect(log.refresh().kind).toBe("grown");
  expect([textsOf(log), waysBack()]).toEqual([together, []]);
  for (const one of [log, theirs]) one.close();
});

describe("another process", () => {
  test("that died while it wrote left frames, which whoever has the lock next takes in before it writes", async () => {
    const disk = made.after();
    const table: LockTable = new Map();
    const theirs = v2On(disk, { locks: locksOf("they", table) }).open(CONTAINER);
    theirs.append(bytes(userText(id(50), id(11))));
    // Not indexed yet, so it is nobody's but theirs.
    const ours = v2On(disk, { locks: locksOf("we", table) }).open(CONTAINER);
    expect([ours.nodes.count, ours.lockedBy?.client, ours.damage]).toEqual([COUNT, "they", []]);
    table.clear();
    expect(ours.acquireLock()).toBe(true);
    expect(ours.refresh()).toEqual({ kind: "grown", first: COUNT });
    expect(idsOf(ours).at(-1)).toBe(id(50));
    ours.append(bytes(userText(id(51), id(50))));
    await ours.commit();
    ours.close();
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  });

  test("that took a dead writer's segment away and made its own under that name is read where it wrote", async () => {
    const disk = small.after();
    const table: LockTable = new Map();
    const openAs = (name: string) => v2On(disk, { locks: locksOf(name, table), segmentBytes: SMALL }).open(CONTAINER);
    const half = userText(id(40), id(11)).replace(
      ',"message"',
      `,"_batch":{"session":"${SESSION}","index":0,"count":2},"message"`,
    );
    openAs("the dead").append(bytes(half));
    table.clear();
    const ours = openAs("we");
    expect(kindsOf(ours)).toEqual(["incomplete_batch"]);
    const theirs = openAs("they");
    theirs.append(bytes(userText(id(50), id(11))));
    await theirs.commit();
    theirs.close();
    expect(ours.refresh()).toEqual({ kind: "grown", first: COUNT });
    expect(textsOf(ours).at(-1)).toBe(userText(id(50), id(11)));
    ours.append(bytes(userText(id(51), id(50))));
    await ours.commit();
    ours.close();
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  });

  test("that puts another header in the place of the session's leaves nothing to be acknowledged, and is found", async () => {
    for (const [durability, inPlace] of [
      ["sync", false],
      ["os", false],
      ["sync", true],
      ["os", true],
    ] as const) {
      const disk = made.after();
      const ours = v2On(disk, { durability }).open(CONTAINER);
      ours.append(bytes(userText(id(50), id(11))));
      await ours.commit();
      const path = headerFile(CONTAINER);
      const other = bytesOf(textOf(disk.content(path) as Uint8Array).replace(SESSION, SESSION.replace(/.$/, "0")));
      // A file that is removed leaves its number to the next, too.
      if (inPlace) {
        const fd = disk.openAppend(path);
        disk.truncate(fd, 0);
        disk.write(fd, other);
        disk.close(fd);
      } else disk.put(path, other);
      const write = async (): Promise<void> => {
        ours.append(bytes(userText(id(51), id(50))));
        await ours.commit();
      };
      await expect(write()).rejects.toThrow(named("storage_failed"));
      expect(ours.refresh()).toEqual({ kind: "replaced" });
      ours.close();
    }
  });

  test("that took a dead writer's segment away leaves that name to the next, which reads what it wrote itself", async () => {
    const disk = small.after();
    const table: LockTable = new Map();
    const openAs = (name: string) => v2On(disk, { locks: locksOf(name, table), segmentBytes: SMALL }).open(CONTAINER);
    const half = userText(id(40), id(11)).replace(
      ',"message"',
      `,"_batch":{"session":"${SESSION}","index":0,"count":2},"message"`,
    );
    const before = disk.names(`${CONTAINER}/segments`);
    openAs("the dead").append(bytes(half));
    table.clear();
    const ours = openAs("we");
    const added = disk.names(`${CONTAINER}/segments`).filter((name) => !before.includes(name));
    expect(added).toHaveLength(1);
    for (const name of added) disk.remove(`${CONTAINER}/segments/${name}`);
    ours.append(bytes(userText(id(50), id(11))));
    await ours.commit();
    expect(textsOf(ours)).toEqual([...chain(COUNT), userText(id(50), id(11))]);
    ours.close();
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  });

  test("that appends while this one looks is followed, and never taken for one that wrote the session anew", async () => {
    for (const segmentBytes of [SMALL, 1 << 20]) {
      const disk = (segmentBytes === SMALL ? small : made).after();
      let meanwhile: (() => void) | undefined;
      const { info } = disk;
      disk.info = (path) => {
        const found = info.call(disk, path);
        if (!path.endsWith(".seg")) return found;
        const act = meanwhile;
        meanwhile = undefined;
        act?.();
        return found;
      };
      const theirs = v2On(disk, { segmentBytes, durability: "os" }).open(CONTAINER);
      const ours = v2On(disk, { segmentBytes, locks: noLocks }).open(CONTAINER);
      const append = (n: number): void => theirs.append(bytes(userText(id(50 + n), id(n === 0 ? 11 : 49 + n))));
      for (let n = 0; n < 12; n += 2) {
        append(n);
        meanwhile = () => append(n + 1);
        expect(ours.refresh().kind).toBe("grown");
        expect(meanwhile).toBeUndefined();
      }
      ours.refresh();
      expect(idsOf(ours)).toEqual(idsOf(theirs));
    }
  });

  test("that deleted the session finds nothing of it when this one closes", async () => {
    const disk = made.after();
    const log = open(disk);
    log.append(bytes(userText(id(50), id(11))));
    await log.commit();
    removeTree(disk, CONTAINER);
    disk.remove(pointerFile(CONTAINER));
    expect(log.refresh()).toEqual({ kind: "gone" });
    expect(() => log.append(bytes(userText(id(51), id(50))))).toThrow(named("storage_failed"));
    log.close();
    expect(disk.names(FOLDER)).toEqual([]);
  });

  test("that made something else the session keeps this one from writing", () => {
    const disk = made.after();
    const log = open(disk);
    rewrite(disk, pointerFile(CONTAINER), (text) => text.replace("native_v2", "jsonl_v3"));
    expect(() => log.append(bytes(userText(id(50), id(11))))).toThrow(named("session_not_found"));
    expect(log.nodes.count).toBe(COUNT);
    log.close();
  });
});

describe("with the durability of the system", () => {
  test("an append is in the index at once, checkpoints are made, and nothing waits for the medium", async () => {
    const disk = made.after();
    const log = open(disk, { durability: "os", checkpointEvery: { entries: 3, bytes: 1 << 20 } });
    disk.set(undefined);
    for (let n = 0; n < 7; n++) {
      log.append(bytes(userText(id(50 + n), id(11))));
      expect(log.durableCount).toBe(log.nodes.count);
      await log.commit();
    }
    expect(disk.operations.filter((operation) => operation.startsWith("sync"))).toEqual([]);
    log.close();
    expect(disk.content(checkpointFile(CONTAINER, 3))).toBeDefined();
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
    const again = open(disk.after());
    expect([again.nodes.count, again.damage]).toEqual([COUNT + 7, []]);
    again.close();
  });
});

describe("what is left of containers that were being built", () => {
  test("is removed when it is old", async () => {
    const disk = made.after();
    disk.put(`${FOLDER}/.x.v2.staging.1-1/segments/0000000000000001.seg`, bytesOf("x"));
    disk.put(`${FOLDER}/.mine`, bytesOf("x"));
    const wanted = beginning(headerText(), `${FOLDER}/other.v2`);
    (await v2On(disk).publish(wanted, [])).close();
    expect(disk.names(FOLDER).filter((name) => name.startsWith("."))).toEqual([".mine"]);
  });
});

describe("what verifying a container finds in its documents", () => {
  const put = (path: string, text: string) => (disk: FaultDisk) => disk.put(`${CONTAINER}/${path}`, bytesOf(text));
  const other = (digit: string) => (digit === "1" ? "2" : "1");

  test.each<[string, (disk: FaultDisk) => void]>([
    ["half a checkpoint", put("checkpoints/0000000000000002.json", '{"half')],
    ["half a manifest", (disk) => rewrite(disk, manifestFile(CONTAINER), (text) => text.slice(0, 200))],
    [
      "a row behind the cache",
      (disk) => rewrite(disk, indexFile(CONTAINER), (text) => text.replace(/(?<="crc32c":")./, other)),
    ],
    ["a line of the ledger", put("migrations/ledger.jsonl", "nonsense\n")],
    ["another file among the segments", put("segments/notes.seg", "x")],
    ["half an event of the ledger", put("migrations/ledger.jsonl", '{"half')],
    ["a folder with the name of a segment", (disk) => disk.makeFolder(`${CONTAINER}/segments/0000000000000009.seg`)],
  ])("a repair names and mends, and keeps what was there: %s", async (_what, harm) => {
    const disk = made.after();
    harm(disk);
    expect((await audit(disk, CONTAINER, { staging: true })).ok).toBe(false);
    const log = open(disk);
    expect(textsOf(log)).toEqual(chain(COUNT));
    expect(log.repairable).toHaveLength(1);
    const backup = log.repair();
    log.close();
    expect(disk.paths().some((path) => path.startsWith(`${backup}/`))).toBe(true);
    expect(await audit(disk, CONTAINER, { staging: true })).toMatchObject({ findings: [] });
    expect(textsOf(open(disk))).toEqual(chain(COUNT));
  });
});
