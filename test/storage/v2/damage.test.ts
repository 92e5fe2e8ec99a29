/**
 * Faults of a container and their treatment (reliability cases S9, S10, L5; seed 003, INV-001 to INV-005): whole entries
 * are served, wherever the index places them; others are reported, and never taken for an entry; nothing is written
 * before the first change, and that, or a repair, puts it in order.
 */

import { beforeAll, describe, expect, test } from "vitest";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import {
  checkpointFile,
  getPointerFile,
  headerFile,
  indexFile,
  indexSnapshotFile,
  ledgerFile,
  manifestFile,
  segmentFile,
} from "../../../src/storage/fs/container-paths.ts";
import type { Disk } from "../../../src/storage/fs/disk.ts";
import { removeTree } from "../../../src/storage/fs/staging.ts";
import { shareLocks } from "../../../src/storage/locks/locks.ts";
import type { FileLog } from "../../../src/storage/log/file-log.ts";
import { makeSnapshotCache } from "../../../src/storage/log/snapshot-cache.ts";
import { audit } from "../../../src/storage/v2/audit.ts";
import { sha256 } from "../../../src/storage/v2/frame.ts";
import type { V2Backend } from "../../../src/storage/v2/log.ts";
import { FaultDisk } from "../../support/disk.ts";
import { disturbed, wrapped } from "../../support/disturbed.ts";
import { testEnv } from "../../support/env.ts";
import { chain, entryText, headerText, id, SESSION, userText } from "../../support/lines.ts";
import { type LockTable, locksOf } from "../../support/locks.ts";
import { range } from "../../support/random.ts";
import { beginning, FOLDER, idsOf, kindsOf, STATE, textsOf } from "../../support/sessions.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";
import * as v2 from "../../support/v2.ts";
import { CONTAINER, contentsOf, faultsOf, lineOf, type Options, relining, rewriting, v2On } from "../../support/v2.ts";
import { diskError, writeBehind } from "../other-writers.ts";

type Harm = (disk: FaultDisk) => unknown;

const COUNT = 12;
/** Segments of four entries each. */
const SMALL = { segmentBytes: 2000 };
const [SEGMENT, INDEX, SNAPSHOT] = [segmentFile(CONTAINER, 1), indexFile(CONTAINER), indexSnapshotFile(CONTAINER)];
const [MANIFEST, CHECKPOINT, POINTER] = [
  manifestFile(CONTAINER),
  checkpointFile(CONTAINER, 1),
  getPointerFile(CONTAINER),
];
const [HEADER, LEDGER] = [headerFile(CONTAINER), ledgerFile(CONTAINER)];
let made: FaultDisk;
let small: FaultDisk;

beforeAll(async () => {
  made = await v2.containerWith(chain(COUNT));
  small = await v2.containerWith(chain(COUNT), SMALL);
});

const bytes = (...lines: string[]) => lines.map((line) => toBytes(line));
const named = (failure: string) => expect.objectContaining({ name: failure });
const open = (disk: Disk, more: Options = {}) => v2On(disk, more).open(CONTAINER) as FileLog;
const afterLast = (n: number) => bytes(userText(id(n), id(COUNT - 1)));
const without = (...lost: number[]) => chain(COUNT).filter((_, n) => !lost.includes(n));
const otherDigit = (digit: string) => (digit === "1" ? "2" : "1");
const cached = (disk: FaultDisk) => ({ snapshots: makeSnapshotCache(disk, STATE, 1) });

// Harms.
const nothing = () => {};
const putting = (path: string, text: string) => (disk: FaultDisk) => disk.put(path, toBytes(text));
const removing =
  (...paths: string[]) =>
  (disk: FaultDisk) => {
    for (const path of paths) disk.remove(path);
  };
const adding = (path: string, text: string) => (disk: Disk) => writeBehind(disk, path, text);
/** Puts text between lines of the segment. */
const inserting = (at: number, text: string) => relining(SEGMENT, (lines) => lines.toSpliced(at, 0, text));
const asFolder = (path: string) => (disk: FaultDisk) => {
  disk.remove(path);
  disk.makeFolder(path);
};
const replacing = (path: string, from: string | RegExp, to: string | ((found: string) => string)) =>
  rewriting(path, (text) => text.replace(from, to as string));
/** Leaves the first lines. */
const cut =
  (count: number, ...paths: string[]) =>
  (disk: FaultDisk) => {
    for (const path of paths) v2.cutFile(disk, path, count);
  };

function harmed(...harms: Harm[]): FaultDisk {
  const disk = made.after();
  for (const harm of harms) harm(disk);
  return disk;
}

/** Returns a frame as a line; `more`: what its head says otherwise than that of the entry at this place. */
function frame(
  n: number,
  payload: string,
  more: { entrySeq?: number; entryId?: string; parent?: string } = {},
): string {
  const at = { segmentSeq: 1, frameSeq: n + 1, entrySeq: more.entrySeq ?? n + 1 };
  const { parent = n === 0 ? null : id(n - 1) } = more;
  const facts = { entryId: more.entryId ?? id(n), parentEntryId: parent, entryType: "message" };
  return v2.encodeFrame(at, facts, "2026-02-03T22:52:06.500Z", toBytes(payload)).bytes.toString("latin1");
}

/** Lines of entries that are whole, as a repair shows them, which writes down which parents reading found. */
const shown = (texts: readonly string[]) =>
  texts
    .filter((text) => JSON.parse(text).damaged !== true)
    .map((text) => text.replace(/"parentId":("[^"]*"|null)/, '"parentId":'));

/** Appends one entry more to a container, which works and leaves everything in order. */
async function goesOn(disk: FaultDisk, log: FileLog, more: Options = {}): Promise<void> {
  const ids = idsOf(log);
  log.append(bytes(userText(id(50), ids.at(-1) ?? null)));
  await log.commit();
  log.close();
  expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  const again = open(disk, more);
  expect([idsOf(again), again.damage, again.container?.state]).toEqual([[...ids, id(50)], [], "CLEAN"]);
  again.close();
}

/** Expects that no byte of a frame that is whole is reported as damage. */
function requireFramesSound(disk: FaultDisk): void {
  const log = open(disk);
  textsOf(log);
  log.close();
  const text = Buffer.from(disk.content(SEGMENT) as Uint8Array).toString("latin1");
  const reported = log.damage.filter(({ kind }) => kind === "bad_line" || kind === "bad_body" || kind === "torn_tail");
  for (const { line } of v2.framesOf(made, CONTAINER)[0]) {
    const start = text.indexOf(line);
    const isIn = reported.some((one) => one.byteOffset < start + line.length && one.byteOffset + one.length > start);
    expect(start >= 0 && isIn, line).toBe(false);
  }
}

async function addLast(log: FileLog, n: number): Promise<void> {
  log.append(afterLast(n));
  await log.commit();
  log.close();
}

/** Opens a container, which has these entries and writes nothing. */
function read(disk: FaultDisk, kept: readonly string[] = chain(COUNT), more: Options = {}): FileLog {
  const before = contentsOf(disk);
  const log = open(disk, more);
  expect(textsOf(log)).toEqual(kept);
  expect(contentsOf(disk), "opening writes nothing").toEqual(before);
  return log;
}

/** Opens a container, which has these entries; it is in order again after the next append. */
async function mends(disk: FaultDisk, kept = chain(COUNT), more: Options = {}): Promise<FileLog> {
  const log = read(disk, kept, more);
  await goesOn(disk, log, more);
  return log;
}

/**
 * Opens a damaged container: it has these entries, and next to them at most stand-ins; it says so, is FAILED and stays
 * unchanged until its repair, which keeps the original files and the same entries.
 */
async function failsUntilRepaired(disk: FaultDisk, kept: readonly string[], more: Options = {}): Promise<FileLog> {
  const before = contentsOf(disk);
  const log = open(disk, more);
  const whole = textsOf(log).filter((text) => JSON.parse(text).damaged !== true);
  expect(whole).toEqual(kept);
  expect([log.container?.state, log.readOnly?.name, log.damage.length > 0]).toEqual(["FAILED", "corrupt", true]);
  expect(() => log.append(bytes(userText(id(50), null)))).toThrow(named("corrupt"));
  log.close();
  expect(contentsOf(disk), "nothing is written").toEqual(before);
  const again = open(disk, more);
  const backup = again.repair() as string;
  again.close();
  const segmentsIn = (contents: string[], folder: string) =>
    contents.filter((file) => file.startsWith(`${folder}/segments`)).map((file) => file.slice(folder.length));
  expect(segmentsIn(contentsOf(disk), backup)).toEqual(segmentsIn(before, CONTAINER));
  const repaired = open(disk, more);
  expect([repaired.damage, repaired.container?.state, shown(textsOf(repaired))]).toEqual([[], "CLEAN", shown(kept)]);
  await goesOn(disk, repaired, more);
  return log;
}

const eventsIn = (disk: FaultDisk) =>
  Buffer.from(disk.content(LEDGER) ?? "")
    .toString()
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));

const SPINES: [string, Harm][] = [
  ["with its snapshot", nothing],
  ["without its snapshot", removing(SNAPSHOT)],
];

describe.each(SPINES)("an index, %s,", (_, source) => {
  test.each<[string, Harm]>([
    ["that is missing", removing(INDEX)],
    ["that is empty", cut(0, INDEX)],
    ["that lacks rows", cut(7, INDEX)],
    ["whose last row is torn", rewriting(INDEX, (text) => text.slice(0, -30))],
    ["with a row twice", relining(INDEX, (rows) => rows.toSpliced(5, 0, rows[4]))],
    ["with a gap", relining(INDEX, (rows) => rows.toSpliced(5, 1))],
    ["that points out of bounds", replacing(INDEX, /"byteOffset":\d{4}/, '"byteOffset":999999')],
    ["with rows of garbage", lineOf(INDEX, 3, () => "}{\n")],
    ["with zeros", rewriting(INDEX, (text) => text.slice(0, 900) + "\0".repeat(text.length - 900))],
  ])("%s is made anew from the segments, and the ledger tells of it", async (_what, harm) => {
    const disk = harmed(harm, source);
    const log = await mends(disk);
    expect(kindsOf(log).every((kind) => kind === "bad_index")).toBe(true);
    expect(log.damage.every(({ salvaged }) => salvaged)).toBe(true);
    expect(eventsIn(disk)).toMatchObject([{ outcome: "recoverable_error", errorClass: "index_corruption" }]);
  });

  test.each("entrySeq entryId segmentSeq frameSeq byteOffset byteLength crc32c".split(" "))(
    "with a wrong %s",
    (name) => {
      for (const at of [4, COUNT - 1])
        for (const digit of ["0", "1", "7"]) {
          const change = (row: string) => row.replace(new RegExp(`("${name}":"?\\w*)\\w`), `$1${digit}`);
          const disk = harmed(source, lineOf(INDEX, at, change));
          const log = open(disk);
          expect(textsOf(log), `row ${at}`).toEqual(chain(COUNT));
          if (log.readOnly) log.repair();
          else log.append(afterLast(50));
          log.close();
          expect(textsOf(open(disk.after())).slice(0, COUNT)).toEqual(chain(COUNT));
        }
    },
  );
});

test("an index that lacks rows across the beginning of a segment is made anew", async () => {
  for (let kept = 0; kept < COUNT; kept++) {
    const disk = small.after();
    cut(kept, INDEX)(disk);
    await mends(disk, chain(COUNT), SMALL);
  }
});

acrossTiers(test, [36, 9])("two rows of the index that became one at each %i bytes cost no entry", (step) => {
  const rows = Buffer.from(made.content(INDEX) as Uint8Array);
  for (const row of [4, COUNT - 2]) {
    let start = 0;
    for (let n = 0; n < row; n++) start = rows.indexOf(0x0a, start) + 1;
    const length = rows.indexOf(0x0a, start) + 1 - start;
    for (let at = start; at < start + length; at += step)
      for (const by of [-99, 0, 99]) {
        const disk = harmed(removing(SNAPSHOT));
        disk.put(INDEX, Buffer.concat([rows.subarray(0, at), rows.subarray(at + length + by)]));
        const log = open(disk);
        expect(textsOf(log), `${length + by} bytes at ${at}`).toEqual(chain(COUNT));
        log.close();
      }
  }
});

test.each<[string, Harm[], string[]]>([
  ["rows for what no segment holds", [cut(9, SEGMENT)], ["bad_index", "lost_entries"]],
  ["a manifest of a later state", [cut(9, SEGMENT, INDEX), removing(CHECKPOINT)], ["lost_entries"]],
  ["a checkpoint of a later state", [cut(9, SEGMENT, INDEX), removing(MANIFEST)], ["lost_entries"]],
  ["a manifest and a checkpoint of a later state", [cut(9, SEGMENT, INDEX)], ["lost_entries"]],
])("a container with %s lost entries", async (_, harms, kinds) => {
  const log = await failsUntilRepaired(harmed(...harms), chain(9));
  expect(kindsOf(log)).toEqual(kinds);
  expect(log.damage.at(-1)?.reason).toContain("3 entries");
});

describe("a segment", () => {
  test("torn at any byte of its last frame keeps the frames before, and what is cut off is kept aside", async () => {
    const whole = made.content(SEGMENT) as Uint8Array;
    const last = whole.lastIndexOf(0x0a, whole.length - 2) + 1;
    for (let size = last + 1; size < whole.length; size += 23) {
      const disk = harmed(removing(MANIFEST, CHECKPOINT), cut(COUNT - 1, INDEX));
      disk.put(SEGMENT, whole.subarray(0, size));
      const log = await mends(disk, chain(COUNT - 1));
      expect(kindsOf(log)).toEqual(["torn_tail"]);
      expect(disk.content(log.damage[0].keptAt as string)).toEqual(whole.slice(last, size));
    }
  });

  test("that ends in zeros keeps the frames before", () => mends(harmed(adding(SEGMENT, "\0".repeat(5000)))));

  test("that was begun and holds nothing yet is begun again", async () => {
    const disk = small.after();
    const last = disk.paths().filter((path) => path.endsWith(".seg")).length;
    disk.put(segmentFile(CONTAINER, last + 1), new Uint8Array(0));
    expect((await mends(disk, chain(COUNT), SMALL)).damage).toEqual([]);
  });

  test.each<[string, Harm, number]>([
    ["damaged in the middle", lineOf(segmentFile(CONTAINER, 2), 0, (line) => `${"#".repeat(line.length - 1)}\n`), 1],
    ["that is missing", removing(segmentFile(CONTAINER, 2)), 4],
  ])("%s loses its own entries alone", async (_, harm, count) => {
    const disk = small.after();
    disk.remove(SNAPSHOT);
    harm(disk);
    const frames = v2.framesOf(small, CONTAINER)[0].length;
    const log = await failsUntilRepaired(disk, without(...range(frames, frames + count)), SMALL);
    expect(kindsOf(log)).toContain(count === 1 ? "bad_line" : "lost_entries");
    expect(eventsIn(disk)).toMatchObject([{ outcome: "recoverable_error", errorClass: "integrity_mismatch" }]);
  });

  test.each(range(0, 4))("before the last that ends after its frame %i costs its others alone", async (kept) => {
    for (const rest of ["", "{torn"])
      for (const [, snapshot] of SPINES) {
        const disk = small.after();
        snapshot(disk);
        const frames = v2.framesOf(disk, CONTAINER)[0].length;
        if (kept >= frames) continue;
        relining(SEGMENT, (lines) => [...lines.slice(0, kept), rest])(disk);
        const log = await failsUntilRepaired(disk, without(...range(kept, frames)), SMALL);
        const { reason } = log.damage.find(({ kind }) => kind === "lost_entries") ?? {};
        expect(reason).toContain(`${frames - kept} entr`);
      }
  });

  test.each<[string, (line: string) => string]>([
    ["with another payload", (line) => line.replace("say ", "xay ")],
    ["with another name", (line) => line.replace('"message":{', '"massage":{')],
    ["of another program", () => '{"type":"message","id":"theirs","parentId":null}\n'],
  ])("with a whole line %s at its end is nobody's torn write, and is not cut, whatever else is lost", (_, change) => {
    const disk = harmed(removing(MANIFEST, CHECKPOINT), lineOf(SEGMENT, COUNT - 1, change));
    cut(COUNT - 1, INDEX)(disk);
    const before = disk.content(SEGMENT);
    const log = open(disk);
    expect(kindsOf(log)).toContain("bad_line");
    expect(() => log.append(bytes(userText(id(50), id(10))))).toThrow(named("corrupt"));
    log.close();
    expect(disk.content(SEGMENT)).toEqual(before);
  });
});

const INDEXES: [string, Harm][] = [
  ["with everything beside them", nothing],
  ["that are known from before", (disk) => open(disk, cached(disk)).close()],
  ["without the snapshot of the index", removing(SNAPSHOT)],
  ["without the index", removing(INDEX)],
  ["with an index whose middle is garbage", relining(INDEX, (rows) => rows.toSpliced(4, 2, "}{\n", "\0\0\n"))],
  ["with an index that was cut", cut(3, INDEX)],
];
/** Changes the fifth line. */
const fifth = (change: (line: string) => string) => lineOf(SEGMENT, 4, change);
const joined = (line: string, n: number) => (n > 0 && n < 10 ? line.replace("\n", " ") : line);

describe.each(INDEXES)("frames %s", (_, index) => {
  test.each<[string, readonly number[], Harm]>([
    ["before a line of garbage", [], inserting(5, "garbage\n")],
    ["before garbage without a line feed", [], inserting(5, "garbage")],
    ["after one that got longer", [4], fifth((line) => line.replace("say", "says"))],
    ["after one that got shorter", [4], fifth((line) => line.replace("say", ""))],
    ["after one that is gone", [4], fifth(() => "")],
    ["after the first, which is gone", [0], lineOf(SEGMENT, 0, () => "")],
    ["after one whose line feed is gone", [4], fifth((line) => line.slice(0, -1))],
    ["after several in one line", range(1, 10), relining(SEGMENT, (lines) => lines.map(joined))],
    ["there twice", [], relining(SEGMENT, (lines) => [...lines.slice(0, 7), ...lines.slice(3)])],
  ])("%s are there", async (_what, lost, harm) => {
    const disk = harmed(index, harm);
    if (index === nothing) requireFramesSound(disk);
    await failsUntilRepaired(disk, without(...lost), cached(disk));
  });
});

test("a frame longer than what is read at a time is found after bytes that are not its own", SWEEP, async () => {
  const long = userText(id(1), id(0), "x".repeat(9 << 17));
  const all = [...chain(1), long, ...chain(4).slice(2)];
  const whole = await v2.containerWith(all);
  for (const garbage of ["garbage\n", "y".repeat(9 << 17)]) {
    const disk = whole.after();
    inserting(1, garbage)(disk);
    await failsUntilRepaired(disk, all);
  }
});

test("frames that changed places under a snapshot of the index that still fits are there, however they are read", async () => {
  // As many bytes went here as came there.
  const disk = harmed(
    lineOf(SEGMENT, 2, (line) => line.replace("say", "")),
    lineOf(SEGMENT, 8, (line) => line.replace("say", "saysay")),
  );
  const many = [...open(disk.after()).readMany(range(0, COUNT))].map((line) => decodeText(line));
  const copied = decodeText(Buffer.concat([...open(disk.after()).copy(range(0, COUNT))])).split("\n");
  for (const n of [3, 4, 5, 6, 7, 9, 10, 11]) expect([many[n], copied[n]]).toEqual([chain(COUNT)[n], chain(COUNT)[n]]);
  await failsUntilRepaired(disk, without(2, 8));
});

test.each([5, 6])("of two frames with one number the one of the index counts (at %i)", async (at) => {
  const other = frame(5, userText(id(5), id(4), "what nobody said"));
  for (const [, snapshot] of SPINES) await failsUntilRepaired(harmed(snapshot, inserting(at, other)), chain(COUNT));
});

describe("a frame of another session", () => {
  test.each([3, 6, 12, 4000])("with the number %i is no entry of this one", (entrySeq) => {
    const head = { entryId: "feedbeef", parent: id(1) };
    const stranger = frame(entrySeq - 1, userText("feedbeef", id(1), "elsewhere"), head);
    for (const at of [0, 5, 11])
      for (const [, snapshot] of SPINES) {
        const log = open(harmed(snapshot, inserting(at, stranger)));
        const texts = textsOf(log);
        expect(texts).toEqual(expect.arrayContaining(chain(COUNT)));
        if (entrySeq <= COUNT) expect(texts).toHaveLength(COUNT);
        expect([log.readOnly?.name, log.damage.length > 0]).toEqual(["corrupt", true]);
        log.close();
      }
  });

  test("that is the text of an entry is none, also when what is around it was cut off", async () => {
    const inner = frame(1, userText(id(1), id(0), "what nobody said")).trimEnd();
    const lines = [...chain(1), entryText("custom", id(1), id(0), { data: JSON.parse(inner) }), ...chain(3).slice(2)];
    const disk = await v2.containerWith(lines);
    lineOf(SEGMENT, 1, (line) => line.replace(/\}{3}\n$/, "}\n"))(disk);
    await failsUntilRepaired(disk, [lines[0], lines[2]]);
  });

  test.each([
    ["nobody's entry", () => frame(12, userText("feedbeef", id(11)), { entryId: id(12) })],
    ["another's", () => frame(20, userText(id(20), id(11)))],
  ])("after the last one that is %s keeps the session from being cut there", (_, stranger) => {
    const disk = harmed(adding(SEGMENT, stranger()));
    const before = contentsOf(disk);
    const log = open(disk);
    expect([log.readOnly?.name, log.damage.length]).toEqual(["corrupt", 1]);
    expect(() => log.append(afterLast(50))).toThrow();
    log.close();
    expect(contentsOf(disk)).toEqual(before);
  });
});

describe("a lot of garbage", () => {
  const SIZE = 1 << 18;
  const head = frame(3, userText(id(3), id(2))).split('"payload":')[0];
  test.each<[string, string]>([
    ["in one line", "x".repeat(SIZE)],
    ["in lines of nothing", "\n".repeat(SIZE)],
    ["in short lines", "garbage {}\n".repeat(SIZE / 11)],
    ["of heads of frames", `${head}"payload":{},`.repeat(SIZE / (head.length + 14))],
    ["of heads of frames, a line each", `${head}"payload":{}}\n`.repeat(SIZE / (head.length + 15))],
  ])("%s cost no frame, and are read a few times at most", (_, garbage) => {
    for (const [, snapshot] of SPINES) {
      const disk = harmed(snapshot, inserting(5, garbage));
      const { read } = disk;
      let bytes = 0;
      disk.read = (...args) => {
        const count = read.apply(disk, args);
        bytes += count;
        return count;
      };
      const log = open(disk);
      expect(textsOf(log)).toEqual(chain(COUNT));
      expect(log.damage.length).toBeLessThan(10);
      expect(bytes).toBeLessThan(6 * garbage.length);
      log.close();
    }
  });
});

describe("a frame whose head has a damaged byte", () => {
  const spaced = (text: string) => text.replaceAll('":', '": ').replaceAll(',"', ', "');
  const entry = (second: string, more: Record<string, unknown>) => entryText("message", second, id(0), more);
  const user = { message: { role: "user", content: "the second" } };
  const PAYLOADS: [string, string, string][] = [
    ["with spaces", id(1), spaced(entry(id(1), user))],
    ["of a custom entry that is short", id(1), entryText("custom", id(1), id(0), { customType: "a" })],
    ["of a role that nobody knows", id(1), entry(id(1), { message: { role: "judge", content: "guilty" } })],
    ["of a type that nobody knows", id(1), entryText("verdict", id(1), id(0), { text: "guilty" })],
    ["with an id that is not of hex digits", "a-second.id", entry("a-second.id", user)],
    ["whose type comes last", id(1), entry(id(1), user).replace(/^\{("type":"message"),(.*)\}$/, "{$2,$1}")],
    ["with escapes in its names", id(1), entry(id(1), user).replace('"parentId"', '"\\u0070arentId"')],
  ];
  const DAMAGES: [string, RegExp, string][] = [
    ["in a name", /entryType/, "entryTxpe"],
    ["in a value", /"entryType":"./, '"entryType":"X'],
    ["before its payload", /,"payload":/, ',"paXload":'],
  ];

  test.each(PAYLOADS)("keeps the place of an entry %s", async (_, second, text) => {
    const third = userText(id(2), second);
    const whole = await v2.containerWith([userText(id(0), null), text, third]);
    for (const [where, from, to] of DAMAGES)
      for (const index of ["with its index snapshot", "without it", "and the lines moved"]) {
        const disk = whole.after();
        if (index !== "with its index snapshot") disk.remove(SNAPSHOT);
        const between = index === "and the lines moved" ? "\n" : "";
        lineOf(SEGMENT, 1, (line) => between + line.replace(from, to))(disk);
        const log = open(disk);
        const texts = textsOf(log).map((line) => JSON.parse(line));
        const { type } = JSON.parse(text);
        const links = texts.map(({ id, parentId }) => `${parentId} ${id}`);
        expect(links, `${where}, ${index}`).toEqual([`null ${id(0)}`, `${id(0)} ${second}`, `${second} ${id(2)}`]);
        if (index !== "with its index snapshot") expect(texts[1], where).toMatchObject({ type, damaged: true });
        expect(log.damage.map(({ kind }) => kind)).toContain("bad_body");
        log.close();
      }
  });
});

test("an undo of a repair that was cut off between its two names leaves the session to be gone on with", async () => {
  const disk = harmed((disk) => disk.rename(CONTAINER, `${CONTAINER}.damaged.bak`));
  await addLast(open(disk), COUNT);
  for (const { disk: left } of disk.lasting()) expect(open(left).nodes.count).toBe(COUNT + 1);
});

test.each<[string, Harm]>([
  ["a checkpoint that is damaged, before which another one holds", putting(checkpointFile(CONTAINER, 2), "{")],
  ["no manifest", removing(MANIFEST)],
  ["a torn manifest", rewriting(MANIFEST, (text) => text.slice(0, 300))],
  ["a checkpoint that is damaged", putting(CHECKPOINT, "{")],
  ["a manifest that was being written", putting(`${CONTAINER}/tmp/manifest.json.tmp`, "{")],
])("%s says nothing, and counts as none", async (_, harm) => {
  expect((await mends(harmed(harm), chain(COUNT), { checkpointEvery: { entries: 1, bytes: 1 } })).damage).toEqual([]);
});

test("a manifest that has another chain for the same end makes the session read-only", () => {
  const another = frame(11, userText(id(11), id(10), "another"));
  const log = open(harmed(cut(COUNT - 1, SEGMENT, INDEX), adding(SEGMENT, another)));
  expect([log.nodes.count, log.readOnly?.name]).toEqual([COUNT, "corrupt"]);
  expect(log.damage.at(-1)?.reason).toContain("chain");
  log.close();
});

describe("a mark before the end", () => {
  const harms: Record<string, Harm> = {
    "a checkpoint with another chain": replacing(CHECKPOINT, /(?<="chainHash": ")./, otherDigit),
    "a checkpoint with another number": replacing(CHECKPOINT, `"headEntrySeq": ${COUNT}`, '"headEntrySeq": 9'),
    "a manifest with another chain": rewriting(MANIFEST, (text) => {
      const manifest = JSON.parse(text);
      Object.assign(manifest.integrity, { chainHash: "1".repeat(64), manifestHash: "" });
      manifest.integrity.manifestHash = sha256(toBytes(JSON.stringify(manifest)));
      return JSON.stringify(manifest);
    }),
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
      const more = isKept ? cached(disk) : {};
      const manifest = disk.content(MANIFEST) as Uint8Array;
      await addLast(open(disk, more), 12);
      // As if the writer had been killed.
      disk.put(MANIFEST, manifest);
      if (!own) disk.remove(SNAPSHOT);
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
    const change = (line: string) => line.replace(/(?<="payloadSha256":")./, otherDigit);
    expect(kindsOf(open(harmed(lineOf(SEGMENT, 2, change), removing(SNAPSHOT))))).toEqual(["bad_body"]);
  });
});

test("the spine spares reading the payloads before it", async () => {
  const disk = await v2.containerWith(chain(100));
  const read = (): number => {
    let sum = 0;
    const counted = wrapped(disk, (call, name) => {
      const result = call();
      if (name === "read") sum += result as number;
      return result;
    });
    open(counted).close();
    return sum;
  };
  const withSnapshot = read();
  disk.remove(SNAPSHOT);
  expect(read()).toBeGreaterThan(2 * withSnapshot);
});

describe("what a container never takes", () => {
  test.each([
    ["whose id is taken", userText(id(3), id(2))],
    ["whose parent is not there", userText(id(50), "nobody")],
  ])("an entry %s leaves everything as it was", async (_, line) => {
    const disk = made.after();
    const log = open(disk, { segmentBytes: 5000 });
    const before = contentsOf(disk);
    expect(() => log.append([...afterLast(49), toBytes(line)])).toThrow(named("invalid_entry"));
    expect([log.nodes.count, log.container?.state]).toEqual([COUNT, "CLEAN"]);
    expect(contentsOf(disk)).toEqual(before);
    await goesOn(disk, log);
  });

  test("a session id that is no UUID, a path that names no container, a name that pi_agent_rust would take for its own", async () => {
    const disk = harmed(putting(`${FOLDER}/talk.jsonl`, "x"));
    const store = v2On(disk);
    expect(() => store.create(beginning(headerText({ id: "mine" }), `${FOLDER}/mine.v2`))).toThrow(named("invalid_id"));
    expect(() => store.create(beginning(headerText(), `${FOLDER}/mine.jsonl`))).toThrow(named("invalid_id"));
    const publishing = store.publish(beginning(headerText(), `${FOLDER}/talk.v2`), []);
    await expect(publishing).rejects.toThrow(named("already_exists"));
  });

  test("a frame of one byte more than a segment holds (session-store-v2 reference, section 2.2)", async () => {
    const disk = made.after();
    const log = open(disk, { segmentBytes: 5000 });
    const { length: overhead } = v2.encodeFrame(
      { segmentSeq: 2, frameSeq: 1, entrySeq: 13 },
      { entryId: id(50), parentEntryId: id(11), entryType: "message" },
      "2026-02-03T22:52:06.500Z",
      toBytes(userText(id(50), id(11), "")),
    ).bytes;
    // The length of the payload takes four digits, not three.
    const space = 5000 - overhead - 1;
    expect(() => log.append(bytes(userText(id(50), id(11), "x".repeat(space + 1))))).toThrow(named("invalid_entry"));
    log.append(bytes(userText(id(50), id(11), "x".repeat(space))));
    await log.commit();
    log.close();
    expect(disk.info(segmentFile(CONTAINER, 2)).size).toBe(5000);
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  });
});

describe("what is no container of ours", () => {
  const addFile = (disk: FaultDisk) => disk.put(`${FOLDER}/any.jsonl`, disk.content(HEADER) as Uint8Array);
  const ofFile = replacing(MANIFEST, '"native_v2"', '"jsonl_v3"');
  const rolledBack = replacing(POINTER, "native_v2", "jsonl_v3");

  test.each<[string, string, Harm[]]>([
    ["beside a file of its id without pointer", "not_a_session", [removing(POINTER, MANIFEST), addFile]],
    ["beside a file of its id by a damaged one", "not_a_session", [putting(POINTER, "{}"), ofFile, addFile]],
    ["that was rolled back", "not_a_session", [rolledBack]],
    ["without its header", "session_not_found", [removing(HEADER)]],
  ])("one %s is not opened, and stays as it is", (_, failure, harms) => {
    const disk = harmed(...harms);
    const before = contentsOf(disk);
    expect(() => open(disk)).toThrow(named(failure));
    expect(contentsOf(disk)).toEqual(before);
    expect(disk.openCount).toBe(0);
  });

  test("one that another process made something else since it was opened is not written", () => {
    const disk = made.after();
    const log = open(disk);
    rolledBack(disk);
    expect(() => log.append(afterLast(50))).toThrow(named("session_not_found"));
    expect(log.nodes.count).toBe(COUNT);
    log.close();
  });

  test.each<[string, Harm]>([
    ["missing", removing(POINTER)],
    ["damaged", putting(POINTER, "{}")],
    ["a folder", asFolder(POINTER)],
  ])("one whose pointer is %s is the session where nothing else can be, and gets one", async (_, harm) => {
    for (const hasManifest of [true, false]) {
      const disk = harmed(harm, hasManifest ? nothing : removing(MANIFEST));
      const before = contentsOf(disk);
      await addLast(read(disk), 50);
      expect(idsOf(open(disk))).toHaveLength(COUNT + 1);
      if (!hasManifest) continue;
      const damaged = before.find((text) => text.startsWith(`${POINTER} `))?.split(" ")[1];
      const kept = disk.content(`${POINTER}.damaged.bak`);
      if (damaged !== undefined) expect(decodeText(kept as Uint8Array), "what was there is kept").toBe(damaged);
      expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
    }
  });

  acrossTiers(test, [3, 1])("a pointer that comes back meanwhile is not moved away, at each of %i calls", (step) => {
    const pointer = made.content(POINTER) as Uint8Array;
    let calls = 0;
    for (let at = 1; at === 1 || calls >= at - step; at += step) {
      const disk = harmed(removing(POINTER));
      const watched = disturbed(disk, (call) => {
        calls = call;
        if (call === at && disk.content(POINTER) === undefined) disk.put(POINTER, pointer);
      });
      const log = open(watched);
      try {
        log.append(afterLast(50));
      } catch (error) {
        // It came between two looks.
        expect((error as Error).name).toBe("storage_failed");
      }
      log.close();
      expect(disk.content(`${POINTER}.damaged.bak`), `before call ${at}`).toBeUndefined();
    }
  });

  acrossTiers(test, [3, 1])(
    "that of a container that another process makes meanwhile stays, at each of %i calls",
    (step) => {
      const make = (on: Disk) => {
        const log = v2On(on).create(beginning());
        try {
          log.append(bytes(...chain(1)));
        } catch (error) {
          expect((error as Error).name).toMatch(/^(already_exists|storage_failed)$/);
        }
        log.close();
      };
      for (const left of [made.content(POINTER) as Uint8Array, toBytes("{}")]) {
        let calls = 0;
        for (let at = 1; at === 1 || calls >= at - step; at += step) {
          const disk = made.after();
          // Its first write sweeps temporary files, whose ages are of no clock here.
          make(disk);
          removeTree(disk, CONTAINER);
          disk.put(POINTER, left);
          const watched = disturbed(disk, (call) => {
            calls = call;
            if (call === at) make(disk);
          });
          make(watched);
          expect(decodeText(disk.content(POINTER) ?? toBytes("nothing")), `before call ${at}`).toContain("native_v2");
        }
      }
    },
  );

  const headers = ["{}\n", "", '{"type":"session","id":', "\0"].map((text) => [text, putting(HEADER, text)] as const);
  test.each<readonly [string, Harm]>([...headers, ["a folder", asFolder(HEADER)]])(
    "one whose header is %j is read, and repaired to be written",
    async (_, harm) => {
      const disk = harmed(harm);
      const text = disk.content(HEADER);
      const log = read(disk);
      expect([kindsOf(log), log.header.id]).toEqual([["bad_header"], SESSION]);
      expect(() => log.append(afterLast(50))).toThrow(named("corrupt"));
      const backup = log.repair() as string;
      expect(disk.content(headerFile(backup))).toEqual(text);
      log.close();
      await mends(disk);
    },
  );

  test("one whose header is damaged tells of entries that are lost all the same, whoever judges it", () => {
    const log = open(harmed(putting(HEADER, "{}"), cut(COUNT - 1, SEGMENT, INDEX)));
    expect(kindsOf(log)).toEqual(["bad_header", "lost_entries"]);
    log.lock.acquire();
    log.refresh();
    expect(kindsOf(log)).toEqual(["bad_header", "lost_entries"]);
    expect(() => log.append(bytes(userText(id(50), id(10))))).toThrow(named("corrupt"));
    log.close();
  });

  test("one whose header has another id than a UUID is written all the same, with checkpoints", async () => {
    const disk = harmed(replacing(HEADER, SESSION, SESSION.replace(/.$/, "g")));
    await addLast(open(disk, { checkpointEvery: { entries: 1, bytes: 1 } }), 50);
    expect(textsOf(open(disk)).at(-1)).toBe(userText(id(50), id(11)));
  });
});

describe("the state", () => {
  const historyOf = (log: FileLog) => (log.backend as V2Backend).states.history.map(({ toState }) => toState).join(" ");
  const INDEXED = "DIRTY SEGMENT_SEALED INDEXED";

  test("goes from clean through dirty, sealed and indexed to a checkpoint, and on", async () => {
    const log = open(made.after(), { checkpointEvery: { entries: 2, bytes: 1 << 20 } });
    expect(log.container?.state).toBe("CLEAN");
    for (let n = 0; n < 3; n++) {
      log.append(afterLast(50 + n));
      expect(log.container?.state).toBe("DIRTY");
      await log.commit();
      expect(log.container?.state).toBe(n === 1 ? "CHECKPOINTED" : "INDEXED");
    }
    expect(historyOf(log)).toBe(`${INDEXED} ${INDEXED} CHECKPOINTED ${INDEXED}`);
    log.close();
  });

  test.each([
    ["frames", 1, "DIRTY"],
    ["rows", 2, "DIRTY SEGMENT_SEALED FAILED DIRTY"],
  ] as const)("of an append whose %s cannot be made durable is dirty again", async (_, at, states) => {
    const disk = made.after();
    const log = open(disk);
    let syncs = 0;
    const { sync } = disk;
    disk.sync = async (fd) => {
      if (++syncs === at) throw diskError();
      await sync(fd);
    };
    log.append(afterLast(50));
    await expect(log.commit()).rejects.toThrow(named("storage_failed"));
    expect(historyOf(log)).toBe(states);
    disk.sync = sync;
    log.append(afterLast(51));
    await log.commit();
    expect([log.container?.state, log.nodes.count]).toEqual(["INDEXED", COUNT + 1]);
    log.close();
    expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
  });
});

test("several logs of one process write in turns, and what one appended is made durable before the other goes on", async () => {
  const disk = made.after();
  const table: LockTable = new Map();
  const store = v2On(disk, { locks: shareLocks(locksOf("us", table)) });
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

const batched = (line: string, index: number) =>
  line.replace(',"message"', `,"_batch":{"session":"${SESSION}","index":${index},"count":2},"message"`);

test("entries that belong together leave nothing but themselves once they were read", async () => {
  const together = chain(COUNT).map((line, i) => batched(line, i % 2));
  const disk = await v2.containerWith(together.slice(0, 6));
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
  /** Opens a container in several processes. */
  function processesOn(disk: FaultDisk) {
    const table: LockTable = new Map();
    const as = (name: string) => v2On(disk, { locks: locksOf(name, table), ...SMALL }).open(CONTAINER);
    return { table, as };
  }

  test("that overwrites an entry which was read is found, though we write after it", async () => {
    const disk = small.after();
    const log = v2On(disk).open(CONTAINER);
    log.append(afterLast(50));
    await log.commit();
    expect(textsOf(log)).toHaveLength(COUNT + 1);
    const segment = `${CONTAINER}/segments/${disk.names(`${CONTAINER}/segments`).sort().at(-1)}`;
    const content = disk.content(segment) as Uint8Array;
    const at = Buffer.from(content).lastIndexOf(userText(id(50), id(11)));
    const fd = disk.openAppend(segment);
    disk.truncate(fd, at);
    disk.write(
      fd,
      Buffer.concat([
        Buffer.alloc(userText(id(50), id(11)).length),
        content.subarray(at + userText(id(50), id(11)).length),
      ]),
    );
    disk.close(fd);
    log.append(bytes(userText(id(51), id(50))));
    await log.commit();
    expect(JSON.parse(decodeText(log.read(COUNT)))).toMatchObject({ id: id(50), damaged: true });
    log.close();
  });

  test("that overwrites an entry of ours which nothing read is found, though we write after it", async () => {
    const disk = new FaultDisk();
    disk.makeFolder(FOLDER);
    const log = v2On(disk).create(beginning(headerText(), CONTAINER));
    for (const line of chain(3)) {
      log.append(bytes(line));
      await log.commit();
    }
    const content = Buffer.from(disk.content(SEGMENT) as Uint8Array);
    const at = content.indexOf(`say ${id(1)}`);
    const fd = disk.openAppend(SEGMENT);
    disk.truncate(fd, at);
    disk.write(fd, Buffer.concat([Buffer.alloc(8), content.subarray(at + 8)]));
    disk.close(fd);
    log.append(bytes(userText(id(50), id(2))));
    await log.commit();
    // By now all stamps are old.
    disk.clock = () => 1_000_000;
    expect(JSON.parse(decodeText(log.read(1)))).toMatchObject({ id: id(1), damaged: true });
    log.close();
  });

  test.each([true, false])(
    "that took a dead writer's segment away, and made its own (%s), is followed",
    async (isMade) => {
      const disk = small.after();
      const { table, as } = processesOn(disk);
      const before = disk.names(`${CONTAINER}/segments`);
      as("the dead").append(bytes(batched(userText(id(40), id(11)), 0)));
      table.clear();
      const ours = as("we");
      expect(kindsOf(ours)).toEqual(["incomplete_batch"]);
      const wanted = [...chain(COUNT)];
      if (isMade) {
        const theirs = as("they");
        theirs.append(afterLast(50));
        await theirs.commit();
        theirs.close();
        expect(ours.refresh()).toEqual({ kind: "grown", first: COUNT });
        wanted.push(userText(id(50), id(11)));
        expect(textsOf(ours)).toEqual(wanted);
      } else {
        const added = disk.names(`${CONTAINER}/segments`).filter((name) => !before.includes(name));
        expect(added).toHaveLength(1);
        disk.remove(`${CONTAINER}/segments/${added[0]}`);
      }
      ours.append(afterLast(51));
      await ours.commit();
      expect(textsOf(ours)).toEqual([...wanted, userText(id(51), id(11))]);
      ours.close();
      expect(faultsOf(disk, CONTAINER, true)).toEqual([]);
    },
  );

  test.each(["sync", "os"] as const)(
    "that puts another header there is found, nothing acknowledged (%s)",
    async (durability) => {
      for (const isInPlace of [false, true]) {
        const disk = made.after();
        const ours = open(disk, { durability });
        ours.append(afterLast(50));
        await ours.commit();
        const other = decodeText(disk.content(HEADER) as Uint8Array).replace(SESSION, SESSION.replace(/.$/, "0"));
        // A file that is removed leaves its number to the next, too.
        if (isInPlace) writeBehind(disk, HEADER, other, 0);
        else disk.put(HEADER, toBytes(other));
        const write = async (): Promise<void> => {
          ours.append(afterLast(51));
          await ours.commit();
        };
        await expect(write(), `in place: ${isInPlace}`).rejects.toThrow(named("storage_failed"));
        expect(ours.refresh()).toEqual({ kind: "replaced" });
        ours.close();
      }
    },
  );

  test("that deleted the session finds nothing of it when this one closes", async () => {
    const disk = made.after();
    const log = open(disk);
    log.append(afterLast(50));
    await log.commit();
    removeTree(disk, CONTAINER);
    disk.remove(POINTER);
    expect(log.refresh()).toEqual({ kind: "gone" });
    expect(() => log.append(bytes(userText(id(51), id(50))))).toThrow(named("storage_failed"));
    log.close();
    expect(disk.names(FOLDER)).toEqual([]);
  });
});

test("with the durability of the system an append is in the index at once, and nothing waits for the medium", async () => {
  const disk = made.after();
  const log = open(disk, { durability: "os", checkpointEvery: { entries: 3, bytes: 1 << 20 } });
  disk.set(undefined);
  for (let n = 0; n < 7; n++) {
    log.append(afterLast(50 + n));
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

test.each<[string, Harm]>([
  ["half a checkpoint", putting(checkpointFile(CONTAINER, 2), '{"half')],
  ["half a manifest", rewriting(MANIFEST, (text) => text.slice(0, 200))],
  ["a row behind the cache", replacing(INDEX, /(?<="crc32c":")./, otherDigit)],
  ["a line of the ledger", putting(LEDGER, "nonsense\n")],
  ["half an event of the ledger", putting(LEDGER, '{"half')],
  ["another file among the segments", putting(`${CONTAINER}/segments/notes.seg`, "x")],
  ["a folder with the name of a segment", (disk) => disk.makeFolder(segmentFile(CONTAINER, 9))],
])("a repair names and mends what verifying finds in documents, and keeps it: %s", async (_what, harm) => {
  const disk = harmed(harm);
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
