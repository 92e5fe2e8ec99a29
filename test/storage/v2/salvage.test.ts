/**
 * Frames that are whole somewhere in their segment, wherever its index says that they are: each is found, given back byte
 * for byte, and survives a repair; what else is there is told as damage, and never taken for an entry.
 */

import { beforeAll, describe, expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import { indexFile, indexSnapshotFile, segmentFile } from "../../../src/storage/fs/container-paths.ts";
import type { Disk } from "../../../src/storage/fs/disk.ts";
import type { FileLog } from "../../../src/storage/log/file-log.ts";
import { snapshotCache } from "../../../src/storage/log/snapshot-cache.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { chain, entryText, id, userText } from "../../support/lines.ts";
import { range } from "../../support/random.ts";
import { STATE, textsOf } from "../../support/sessions.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";
import {
  CONTAINER,
  containerWith,
  contentsOf,
  encodeFrame,
  faultsOf,
  framesOf,
  type Options,
  relining,
  v2On,
} from "../../support/v2.ts";

const COUNT = 12;
const SEGMENT = segmentFile(CONTAINER, 1);
/** Segments of four entries each. */
const SMALL = { segmentBytes: 2000 };
let made: FaultDisk;
let small: FaultDisk;

beforeAll(async () => {
  made = await containerWith(chain(COUNT));
  small = await containerWith(chain(COUNT), SMALL);
});

const open = (disk: Disk, more: Options = {}) => v2On(disk, more).open(CONTAINER) as FileLog;
const relined = (disk: FaultDisk, path: string, change: (lines: string[]) => readonly string[]) =>
  relining(path, change)(disk);
const withoutSpine = (disk: FaultDisk, isWithout = true): FaultDisk => {
  if (isWithout) disk.remove(indexSnapshotFile(CONTAINER));
  return disk;
};

/** Returns a frame as a line; `more`: what its head says otherwise than that of the entry at this place. */
function frame(
  n: number,
  payload: string,
  more: { entrySeq?: number; entryId?: string; parent?: string } = {},
): string {
  const at = { segmentSeq: 1, frameSeq: n + 1, entrySeq: more.entrySeq ?? n + 1 };
  const { parent = n === 0 ? null : id(n - 1) } = more;
  const facts = { entryId: more.entryId ?? id(n), parentEntryId: parent, entryType: "message" };
  return encodeFrame(at, facts, "2026-02-03T22:52:06.500Z", bytesOf(payload)).bytes.toString("latin1");
}

/**
 * Opens a damaged container: it has these entries, and for each `lost` one at most a stand-in; it says so, writes nothing,
 * and has the same entries after a repair and another opening.
 */
function expectFound(disk: FaultDisk, kept: readonly string[], more: Options = {}): FileLog {
  const before = contentsOf(disk);
  const log = open(disk, more);
  const wholeOf = (texts: readonly string[]) => texts.filter((text) => JSON.parse(text).damaged !== true);
  expect(wholeOf(textsOf(log))).toEqual(kept);
  expect(log.damage.length).toBeGreaterThan(0);
  expect(log.readOnly?.name).toBe("corrupt");
  expect(contentsOf(disk), "opening wrote").toEqual(before);
  log.close();
  const again = open(disk, more);
  again.repair();
  again.close();
  const repaired = open(disk, more);
  expect([repaired.damage, repaired.readOnly]).toEqual([[], null]);
  // A repair writes down which parents reading found.
  const shown = (text: string) => text.replace(/"parentId":("[^"]*"|null)/, '"parentId":');
  expect(wholeOf(textsOf(repaired)).map(shown)).toEqual(kept.map(shown));
  repaired.close();
  expect(faultsOf(disk, CONTAINER)).toEqual([]);
  return log;
}

const without = (...lost: number[]) => chain(COUNT).filter((_, n) => !lost.includes(n));

const INDEXES: [string, (disk: FaultDisk) => unknown][] = [
  ["with everything beside them", () => {}],
  ["that are known from before", (disk) => open(disk, { snapshots: snapshotCache(disk, STATE, 1) }).close()],
  ["without the snapshot of the index", (disk) => disk.remove(indexSnapshotFile(CONTAINER))],
  ["without the index", (disk) => disk.remove(indexFile(CONTAINER))],
  [
    "with an index whose middle is garbage",
    (disk) => relined(disk, indexFile(CONTAINER), (rows) => [...rows.slice(0, 4), "}{\n", "\0\0\n", ...rows.slice(6)]),
  ],
  ["with an index that was cut", (disk) => relined(disk, indexFile(CONTAINER), (rows) => rows.slice(0, 3))],
];

/** Changes the fifth line. */
const fifth = (change: (line: string) => string) => (lines: string[]) => lines.with(4, change(lines[4]));

describe.each(INDEXES)("frames %s", (_, harm) => {
  test.each<[string, readonly number[], (lines: string[]) => readonly string[]]>([
    ["before a line of garbage", [], (lines) => lines.toSpliced(5, 0, "garbage\n")],
    ["before garbage without a line feed", [], (lines) => lines.toSpliced(5, 0, "garbage")],
    ["after one that got longer", [4], fifth((line) => line.replace("say", "says"))],
    ["after one that got shorter", [4], fifth((line) => line.replace("say", ""))],
    ["after one that is gone", [4], fifth(() => "")],
    ["after the first, which is gone", [0], (lines) => lines.slice(1)],
    ["after one whose line feed is gone", [4], fifth((line) => line.slice(0, -1))],
    [
      "after several in one line",
      range(1, 10),
      (lines) => lines.map((line, n) => (n > 0 && n < 10 ? line.replace("\n", " ") : line)),
    ],
    ["there twice", [], (lines) => [...lines.slice(0, 7), ...lines.slice(3)]],
  ])("%s are there", (_what, lost, change) => {
    const disk = made.after();
    harm(disk);
    relined(disk, SEGMENT, change);
    expectFound(disk, without(...lost), { snapshots: snapshotCache(disk, STATE, 1) });
  });
});

test(
  "a frame longer than what is read at a time is found after bytes that are not its own, with or without a line feed",
  SWEEP,
  async () => {
    const long = userText(id(1), id(0), "x".repeat(9 << 17));
    const all = [...chain(1), long, ...chain(4).slice(2)];
    const whole = await containerWith(all);
    for (const garbage of ["garbage\n", "y".repeat(9 << 17)]) {
      const disk = whole.after();
      relined(disk, SEGMENT, (lines) => [lines[0], garbage, ...lines.slice(1)]);
      expectFound(disk, all);
    }
  },
);

describe("a segment that is not the last one", () => {
  test.each([0, 1, 2, 3])("that ends after its frame %i costs its others, and none of the next segment", (kept) => {
    for (const rest of ["", "{torn"])
      for (const withSpine of [true, false]) {
        const disk = withoutSpine(small.after(), !withSpine);
        const frames = framesOf(disk, CONTAINER)[0].length;
        relined(disk, SEGMENT, (lines) => [...lines.slice(0, kept), rest]);
        const gone = Array.from({ length: frames - kept }, (_, n) => kept + n);
        if (gone.length === 0) continue;
        const log = expectFound(disk, without(...gone), SMALL);
        expect(log.damage.find(({ kind }) => kind === "lost_entries")?.reason).toContain(`${gone.length} entries`);
      }
  });
});

describe("frames that changed places under a snapshot of the index that still fits", () => {
  test("are there, however the entries are read", () => {
    const disk = made.after();
    // As many bytes went here as came there.
    relined(disk, SEGMENT, (lines) =>
      lines.map((line, n) => (n === 2 ? line.replace("say", "") : n === 8 ? line.replace("say", "saysay") : line)),
    );
    const positions = Array.from({ length: COUNT }, (_, n) => n);
    const log = open(disk.after());
    const many = [...log.readMany(positions)].map((line) => Buffer.from(line).toString());
    log.close();
    const copying = open(disk.after());
    const copied = Buffer.concat([...copying.copy(positions)])
      .toString()
      .split("\n");
    copying.close();
    for (const n of [3, 4, 5, 6, 7, 9, 10, 11])
      expect([many[n], copied[n]]).toEqual([chain(COUNT)[n], chain(COUNT)[n]]);
    expectFound(disk, without(2, 8));
  });
});

test.each([
  [0, (line: string) => `${line}garbage\n`],
  [1, (line: string) => line.replace("say", "says")],
  [1, (line: string) => line.replace("say", "")],
  [1, () => ""],
])("no byte of a frame that is whole is told as damage, where %i frames are not: %o", (n, change) => {
  const disk = made.after();
  relined(disk, SEGMENT, fifth(change));
  const text = Buffer.from(disk.content(SEGMENT) as Uint8Array).toString("latin1");
  const log = open(disk);
  textsOf(log);
  const told = log.damage.filter(({ kind }) => kind === "bad_line" || kind === "bad_body" || kind === "torn_tail");
  const frames = framesOf(made, CONTAINER)[0];
  for (const { line } of frames) {
    const start = text.indexOf(line);
    const isIn = told.some((one) => one.byteOffset < start + line.length && one.byteOffset + one.length > start);
    expect(start >= 0 && isIn, line).toBe(false);
  }
  expect(frames.filter(({ line }) => !text.includes(line))).toHaveLength(n);
  log.close();
});

test.each(["first", "last"])(
  "of two frames with one number that counts which has the checksum of the index (%s)",
  (where) => {
    for (const withSpine of [true, false]) {
      const disk = withoutSpine(made.after(), !withSpine);
      const other = frame(5, userText(id(5), id(4), "what nobody said"));
      relined(disk, SEGMENT, (lines) => lines.toSpliced(where === "first" ? 6 : 5, 0, other));
      expectFound(disk, chain(COUNT));
    }
  },
);

describe("a frame of another session", () => {
  test.each([3, 6, 12, 4000])("with the number %i is no entry of this one", (entrySeq) => {
    for (const at of [0, 5, 11])
      for (const withSpine of [true, false]) {
        const disk = withoutSpine(made.after(), !withSpine);
        const stranger = frame(entrySeq - 1, userText("feedbeef", id(1), "elsewhere"), {
          entryId: "feedbeef",
          parent: id(1),
        });
        relined(disk, SEGMENT, (lines) => [...lines.slice(0, at), stranger, ...lines.slice(at)]);
        const log = open(disk);
        const texts = textsOf(log);
        for (const line of chain(COUNT)) expect(texts).toContain(line);
        if (entrySeq <= COUNT) expect(texts).toHaveLength(COUNT);
        expect([log.readOnly?.name, log.damage.length > 0]).toEqual(["corrupt", true]);
        log.close();
      }
  });

  test("that is the text of an entry is none, also when what is around it was cut off", async () => {
    const inner = frame(1, userText(id(1), id(0), "what nobody said")).trimEnd();
    const lines = [...chain(1), entryText("custom", id(1), id(0), { data: JSON.parse(inner) }), ...chain(3).slice(2)];
    const disk = await containerWith(lines);
    relined(disk, SEGMENT, (all) => all.map((line, n) => (n === 1 ? line.replace(/\}{3}\n$/, "}\n") : line)));
    expectFound(disk, [lines[0], lines[2]]);
  });
});

test.each([
  ["nobody's entry", () => frame(12, userText("feedbeef", id(11)), { entryId: id(12) })],
  ["another's", () => frame(20, userText(id(20), id(11)))],
])("a whole frame after the last one that is %s keeps the session from being cut there", (_, stranger) => {
  const disk = made.after();
  relined(disk, SEGMENT, (lines) => [...lines, stranger()]);
  const before = contentsOf(disk);
  const log = open(disk);
  expect([log.readOnly?.name, log.damage.length]).toEqual(["corrupt", 1]);
  expect(() => log.append([bytesOf(userText(id(50), id(11)))])).toThrow();
  log.close();
  expect(contentsOf(disk)).toEqual(before);
});

describe("a row of the index with a wrong digit", () => {
  test.each(["entrySeq", "entryId", "segmentSeq", "frameSeq", "byteOffset", "byteLength", "crc32c"])(
    "in %s costs no entry",
    (name) => {
      for (const at of [4, COUNT - 1])
        for (const digit of ["0", "1", "7"]) {
          const disk = withoutSpine(made.after());
          relined(disk, indexFile(CONTAINER), (rows) =>
            rows.map((row, n) => (n === at ? row.replace(new RegExp(`("${name}":"?\\w*)\\w`), `$1${digit}`) : row)),
          );
          const log = open(disk);
          expect(textsOf(log), `${name} of row ${at}`).toEqual(chain(COUNT));
          if (log.readOnly) log.repair();
          else log.append([bytesOf(userText(id(50), id(11)))]);
          log.close();
          const again = open(disk.after());
          expect(textsOf(again).slice(0, COUNT)).toEqual(chain(COUNT));
          again.close();
        }
    },
  );
});

acrossTiers(test, [36, 9])("two rows of the index that became one at each %i bytes cost no entry", (step) => {
  const rows = Buffer.from(made.content(indexFile(CONTAINER)) as Uint8Array);
  for (const row of [4, COUNT - 2]) {
    let start = 0;
    for (let n = 0; n < row; n++) start = rows.indexOf(0x0a, start) + 1;
    const length = rows.indexOf(0x0a, start) + 1 - start;
    for (let at = start; at < start + length; at += step)
      for (const by of [-99, 0, 99]) {
        const disk = withoutSpine(made.after());
        disk.put(indexFile(CONTAINER), Buffer.concat([rows.subarray(0, at), rows.subarray(at + length + by)]));
        const log = open(disk);
        expect(textsOf(log), `${length + by} bytes at ${at}`).toEqual(chain(COUNT));
        log.close();
      }
  }
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
    for (const withSpine of [true, false]) {
      const disk = withoutSpine(made.after(), !withSpine);
      relined(disk, SEGMENT, (lines) => [...lines.slice(0, 5), garbage, ...lines.slice(5)]);
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
    const whole = await containerWith([userText(id(0), null), text, third]);
    for (const [where, from, to] of DAMAGES)
      for (const index of ["with its index snapshot", "without it", "and the lines moved"]) {
        const disk = withoutSpine(whole.after(), index !== "with its index snapshot");
        relined(disk, SEGMENT, ([a, b, c]) => [a, index === "and the lines moved" ? "\n" : "", b.replace(from, to), c]);
        const log = open(disk);
        const texts = textsOf(log).map((line) => JSON.parse(line));
        const { type } = JSON.parse(text);
        expect(
          texts.map(({ id, parentId }) => [id, parentId]),
          `${where}, ${index}`,
        ).toEqual([
          [id(0), null],
          [second, id(0)],
          [id(2), second],
        ]);
        if (index !== "with its index snapshot") expect(texts[1], where).toMatchObject({ type, damaged: true });
        expect(log.damage.map(({ kind }) => kind)).toContain("bad_body");
        log.close();
      }
  });
});
