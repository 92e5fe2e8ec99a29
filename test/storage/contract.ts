/**
 * The promises of every backend (src/core/ports/store.ts), as one suite. A backend's own test is a few lines: it gives
 * a name and a way to make an empty store. The harness omits abilities that a backend does not have.
 */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import { decodeText, toBytes } from "../../src/core/json/json.ts";
import type { Beginning, Log, Store } from "../../src/core/ports/store.ts";
import { type Disk, type FileInfo, readWhole } from "../../src/storage/fs/disk.ts";
import type { FaultDisk } from "../support/disk.ts";
import { assistantText, chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { forSeedsAsync, type Random, range } from "../support/random.ts";
import { beginning, idsOf, kindsOf, textsOf } from "../support/sessions.ts";
import { acrossTiers } from "../support/tiers.ts";
import { writeBehind } from "./other-writers.ts";

export interface Harness {
  readonly store: Store;
  /** Members of a backend of files. */
  readonly files?: Files;
  /** True if another place gets the appended entries while the disk refuses them. */
  readonly isCopied?: boolean;
  close(): void;
}

export interface Files {
  readonly disk: Disk;
  /** A folder that exists and is empty. */
  readonly folder: string;
  /** The same store as another process has it; `ignoresLocks`, it takes none. */
  other(options?: { readOnly?: boolean; ignoresLocks?: boolean }): Store;
  /** The disk itself, if it can fail. */
  readonly faults?: FaultDisk;
  /** The layout of its sessions; by default each is one text file. */
  readonly layout?: Layout;
}

/** The layout of a backend with more than one text file for a session, and other programs' changes of these. */
export interface Layout {
  /** The end of a session's path. */
  readonly ending: string;
  /** Names in the folder of a session called `session`. */
  readonly names: readonly string[];
  readonly kind: FileInfo["kind"];
  readonly mode: number;
  /** Number of disk operations in which a commit waits for the medium. */
  readonly syncs: number;
  /** The session as one text, read without the backend. */
  textAt(path: string): string;
  /** Puts a session there, as another program does. */
  put(path: string, header: string, lines: readonly string[]): void;
  /** Adds entries to one. */
  addMore(path: string, lines: readonly string[]): void;
  /** Takes entries away from its end, so that so many are left. */
  cut(path: string, count: number): void;
  remove(path: string): void;
}

/** The ways of making a log with lines at once: waiting for the disk, and blocking everything else meanwhile. */
type Way = "publish" | "publishNow";

const LINES = [
  userText(id(0), null),
  assistantText(id(1), id(0)),
  `{"type":"unheard_of","id":"${id(2)}","parentId":"${id(1)}","timestamp":"t","n":1.0,"n":-0,"big":9007199254740993,"e":1e400,"u":"\\u0041\u2028"}`,
  `{ "parentId" : "${id(2)}" , "id":"${id(3)}" , "odd":[ ], "type":"custom"}`,
  entryText("label", id(4), id(3), { targetId: id(0), label: "\u{1f600}" }),
];

const LINE_IDS = [0, 1, 2, 3, 4].map(id);
/** An entry behind those. */
const next = (n: number, parent = 4) => userText(id(n), id(parent));
const bytes = (...lines: readonly string[]) => lines.map((line) => toBytes(line));
const named = (failure: string) => expect.objectContaining({ name: failure });

/** Appends lines and waits until they are durable. */
async function add(log: Log, ...lines: readonly string[]): Promise<void> {
  log.append(bytes(...lines));
  await log.commit();
}

/** Makes a log with lines at once. */
async function publishOn(store: Store, way: Way, lines: readonly string[] = LINES, wanted = beginning()): Promise<Log> {
  return (store[way] as Store["publish"])(wanted, lines.length === 0 ? [] : [toBytes(fileText(...lines))]);
}

export function keepsTheContract(name: string, make: () => Harness): void {
  let harness: Harness;
  let store: Store;
  const capable = make();
  capable.close();
  const ways: readonly Way[] = capable.store.publishNow ? ["publish", "publishNow"] : ["publish"];

  beforeEach(() => {
    harness = make();
    store = harness.store;
  });
  afterEach(() => harness.close());

  const published = (lines?: readonly string[], wanted?: Beginning) => publishOn(store, "publish", lines, wanted);
  const nothing = () => store.create(beginning());

  describe(`${name}: a new log`, () => {
    test("has its header and no entries, and nothing to commit, to roll back, to refresh or to repair", async () => {
      const log = nothing();
      expect(log.store).toBe(store.name);
      expect(decodeText(log.headerLine)).toBe(headerText());
      expect(log.header).toEqual(JSON.parse(headerText()));
      expect([log.nodes.count, log.durableCount, log.damage]).toEqual([0, 0, []]);
      expect([log.readOnly, log.lock.holder, log.version, log.persisted, log.stamp]).toEqual([
        null,
        null,
        3,
        false,
        null,
      ]);
      await log.commit();
      log.rollBack();
      expect(log.refresh()).toEqual({ kind: "none" });
      expect([log.repair(), log.lock.acquire()]).toEqual([null, false]);
      log.lock.release();
      expect(log.nodes.count).toBe(0);
    });

    test("takes entries, which are visible at once under positions from 0 on", async () => {
      const log = nothing();
      log.append(bytes(...LINES.slice(0, 2)));
      expect(textsOf(log)).toEqual(LINES.slice(0, 2));
      log.append(bytes(...LINES.slice(2)));
      expect([textsOf(log), idsOf(log)]).toEqual([LINES, LINE_IDS]);
      await log.commit();
      expect([textsOf(log), log.durableCount]).toEqual([LINES, 5]);
    });

    test("keeps held entries until one comes that is not", async () => {
      const log = nothing();
      for (const line of LINES.slice(0, 2)) log.append(bytes(line), { defer: true });
      expect([textsOf(log), log.persisted]).toEqual([LINES.slice(0, 2), false]);
      await log.commit();
      expect(log.persisted).toBe(false);
      log.append(bytes(...LINES.slice(2)));
      expect(textsOf(log)).toEqual(LINES);
      await log.commit();
      expect([textsOf(log), log.durableCount]).toEqual([LINES, 5]);
    });
  });

  describe.each(ways)(`${name}: a log of %s`, (way) => {
    test.each([3, 0])("holds its %i lines from the start, all of them durable, and takes more", async (count) => {
      const log = await publishOn(store, way, LINES.slice(0, count));
      expect([textsOf(log), idsOf(log)]).toEqual([LINES.slice(0, count), LINE_IDS.slice(0, count)]);
      expect([log.durableCount, log.damage, decodeText(log.headerLine)]).toEqual([count, [], headerText()]);
      await add(log, ...LINES.slice(count));
      expect(textsOf(log)).toEqual(LINES);
    });

    test("may come in pieces that are cut anywhere", async () => {
      const whole = toBytes(fileText(...LINES));
      const pieces = range(0, Math.ceil(whole.length / 7)).map((n) => whole.subarray(7 * n, 7 * n + 7));
      expect(textsOf(await (store[way] as Store["publish"])(beginning(), pieces))).toEqual(LINES);
    });
  });

  describe(`${name}: reading`, () => {
    const copied = (log: Log, positions: readonly number[]) => decodeText(Buffer.concat([...log.copy(positions)]));
    const many = (log: Log, positions: readonly number[]) =>
      [...log.readMany(positions)].map((line) => decodeText(line));

    acrossTiers(test, [1, 3])("many, one by one and as bytes is the same, in any order (%i)", async (count) => {
      await forSeedsAsync(count, async (random) => {
        const lines = randomLines(random);
        const sessionId = `01991f6e-1f1d-7c3e-b0a4-${random.seed.toString(16).padStart(12, "0")}`;
        const count = random.int(lines.length + 1);
        const log = await published(lines.slice(0, count), beginning(headerText({ id: sessionId })));
        if (count < lines.length) log.append(bytes(...lines.slice(count)));
        // The reader of a line of many pieces differs by the line, not by the number of readings.
        const isLarge = lines.some((line) => line.length > 1_000_000);
        for (let n = 0; n < (isLarge ? 1 : 5); n++) {
          const positions = randomPositions(random, lines.length);
          const wanted = positions.map((position) => lines[position]);
          expect(positions.map((position) => decodeText(log.read(position)))).toEqual(wanted);
          expect(many(log, positions)).toEqual(wanted);
          expect(copied(log, positions)).toBe(fileText(...wanted));
          const lengths = wanted.map((line) => toBytes(line).length);
          expect(positions.map((position) => log.length(position))).toEqual(lengths);
        }
        log.close();
      });
    });

    test("happens when it is asked for, not before", async () => {
      const log = await published();
      const ways = [log.readMany([0, 4, 2]), log.copy([0, 1, 2, 3, 4])].map((way) => way[Symbol.iterator]());
      const [one, copy] = [log.readMany([0, 4]), log.copy([0, 1, 2])].map((way) => way[Symbol.iterator]());
      log.append(bytes(next(9)));
      expect(decodeText(one.next().value as Uint8Array)).toBe(LINES[0]);
      expect((copy.next().value as Uint8Array).length).toBeGreaterThan(0);
      // Giving up in the middle is allowed.
      one.return?.();
      copy.return?.();
      log.close();
      for (const way of ways) expect(() => way.next()).toThrow(named("storage_failed"));
    });

    test("a large line comes whole", async () => {
      const large = userText(id(1), id(0), "x".repeat((2 << 20) + 9));
      const lines = [LINES[0], large, userText(id(2), id(1))];
      const log = await published(lines);
      expect(decodeText(log.read(1))).toBe(large);
      expect(copied(log, [0, 1, 2])).toBe(fileText(...lines));
      expect(many(log, [2, 1]).map((line) => line.length)).toEqual([log.length(2), toBytes(large).length]);
    });
  });

  describe(`${name}: closing`, () => {
    test("ends it: later calls throw, what was committed stays, and twice is as once", async () => {
      const log = await published();
      await add(log, next(9));
      log.close();
      const reading = [() => log.read(0), () => [...log.readMany([0])], () => [...log.copy([0])]];
      for (const late of [() => log.append(bytes(next(10, 9))), ...reading])
        expect(late).toThrow(named("storage_failed"));
      log.close();
      nothing().close();
      if (log.file === null) return;
      const again = store.open(log.file);
      expect(textsOf(again)).toEqual([...LINES, next(9)]);
      again.close();
    });

    test("does not pass for a commit", async () => {
      const log = await published();
      log.append(bytes(next(9)));
      if (log.durableCount === log.nodes.count) return;
      log.close();
      await expect(log.commit()).rejects.toThrow();
    });
  });

  test(`${name}: what is not there cannot be opened`, () => {
    const { folder } = harness.files ?? { folder: "" };
    for (const path of [`${folder}/nothing.jsonl`, `${folder}/no/such/folder/nothing.jsonl`])
      expect(() => store.open(path)).toThrow(named("session_not_found"));
  });

  if (capable.files)
    describeFiles(name, ways, !capable.files.layout, capable.files.faults !== undefined, () => ({
      ...harness,
      files: harness.files as Files,
    }));
}

function randomLines(random: Random): string[] {
  const count = 1 + random.int(40);
  return Array.from({ length: count }, (_, n) => {
    const text = "x".repeat(random.pick([0, 10, 300, 5000, random.chance(0.1) ? 1_200_000 : 20]));
    return n > 0 && random.chance(0.2)
      ? `{"odd":"${text}","id":"odd ${n}","type":"custom","parentId":"${id(0)}"}`
      : userText(n === 0 ? id(0) : id(n), n === 0 ? null : id(0), text);
  });
}

/** Stretches and single positions, forwards and backwards, with repetitions. */
function randomPositions(random: Random, count: number): number[] {
  const positions: number[] = [];
  for (let n = random.int(5); n >= 0; n--) {
    const from = random.int(count);
    const stretch = Array.from({ length: Math.min(count - from, random.int(count) + 1) }, (_, i) => from + i);
    positions.push(...(random.chance(0.2) ? stretch.reverse() : stretch));
  }
  return positions;
}

// --- files -----------------------------------------------------------------------------------------------------

function describeFiles(
  name: string,
  ways: readonly Way[],
  plain: boolean,
  canFail: boolean,
  harness: () => Harness & { readonly files: Files },
): void {
  const disk = () => harness().files.disk;
  const folder = () => harness().files.folder;
  const pathOf = (file: string) => `${folder()}/${file}`;

  function write(path: string, content: string): void {
    disk().close(disk().create(path));
    writeBehind(disk(), path, content);
  }

  const contentOf = (path: string) => decodeText(readWhole(disk(), path));
  const fileOf = (log: Log) => log.file as string;

  const layout = () => harness().files.layout;
  const sessionPath = (stem = "session") => pathOf(`${stem}${layout()?.ending ?? ".jsonl"}`);
  const namesOf = (stem: string) => (layout()?.names ?? ["session.jsonl"]).map((at) => at.replace("session", stem));
  /** The session at a path as one text. */
  const storedAt = (path: string) => layout()?.textAt(path) ?? contentOf(path);

  // As programs do that know nothing of us.
  function put(path: string, header: string, lines: readonly string[]): void {
    const kind = layout();
    if (kind) kind.put(path, header, lines);
    else write(path, fileText(header, ...lines));
  }
  function addMore(path: string, lines: readonly string[]): void {
    const kind = layout();
    if (kind) kind.addMore(path, lines);
    else writeBehind(disk(), path, fileText(...lines));
  }
  function remove(path: string): void {
    const kind = layout();
    if (kind) kind.remove(path);
    else disk().remove(path);
  }

  function open(content?: string): Log {
    const path = sessionPath();
    if (content === undefined) put(path, headerText(), LINES);
    else write(path, content);
    return harness().store.open(path);
  }
  /** Opens the session of a log in another process. */
  const openOther = (log: Log, options?: Parameters<Files["other"]>[0]) =>
    harness().files.other(options).open(fileOf(log));
  const expectStored = (log: Log, ...lines: readonly string[]) =>
    expect(storedAt(fileOf(log))).toBe(fileText(headerText(), ...lines));

  describe(`${name}: the file`, () => {
    const wanted = (stem: string) => beginning(headerText(), sessionPath(stem));

    /** Expects that the file of a log is there, private and whole, and nothing next to it. */
    function requireWhole(log: Log): void {
      expect([log.file, log.persisted]).toEqual([sessionPath("new/deep/session"), true]);
      expectStored(log, ...LINES);
      const { mode, kind } = disk().info(fileOf(log));
      expect([mode, kind]).toEqual([layout()?.mode ?? 0o600, layout()?.kind ?? "file"]);
      expect(disk().info(pathOf("new/deep")).mode).toBe(0o700);
      expect(disk().names(pathOf("new/deep")).sort()).toEqual(namesOf("session"));
    }

    test("of a new log is named from the start and appears, whole, with the first entry that is not held", async () => {
      const log = harness().store.create(wanted("new/deep/session"));
      expect(log.file).toBe(sessionPath("new/deep/session"));
      log.append(bytes(LINES[0]), { defer: true });
      await log.commit();
      expect(() => disk().info(fileOf(log))).toThrow();
      log.append(bytes(...LINES.slice(1)));
      // The file of a copy is written when its entries are durable in the other place.
      expect(log.persisted).toBe(!harness().isCopied);
      await log.commit();
      requireWhole(log);
    });

    test.each(ways)("of a log of %s is there, whole, and nothing beside it", async (way) => {
      requireWhole(await publishOn(harness().store, way, LINES, wanted("new/deep/session")));
    });

    test.each(ways)("of a log of %s that is discarded is gone, unless another process has it by then", async (way) => {
      const publish = () => publishOn(harness().store, way, LINES, wanted("session"));
      const first = await publish();
      first.discard();
      const { isCopied } = harness();
      expect(disk().names(folder())).toHaveLength(isCopied ? namesOf("session").length : 0);
      // Lines that other machines have are not removed here alone.
      const log = isCopied ? first : await publish();
      const other = openOther(log);
      other.lock.acquire();
      log.discard();
      await add(other, next(9));
      expectStored(log, ...LINES, next(9));
    });

    test("of a log of publish that is discarded stays when another process wrote to it", async () => {
      const log = await publishOn(harness().store, "publish", LINES, wanted("session"));
      addMore(fileOf(log), [next(9)]);
      log.discard();
      expectStored(log, ...LINES, next(9));
    });

    test("is never overwritten", async () => {
      const path = sessionPath("taken");
      write(path, "mine");
      const publishing = publishOn(harness().store, "publish", LINES, wanted("taken"));
      await expect(publishing).rejects.toThrow(named("already_exists"));
      const log = harness().store.create(wanted("taken"));
      expect(() => log.append(bytes(...LINES))).toThrow();
      expect([log.nodes.count, contentOf(path)]).toEqual([0, "mine"]);
      expect(disk().names(folder())).toEqual([namesOf("taken").at(-1)]);
    });

    test("grows by whole lines, keeps its mode, and the bytes before stay", async () => {
      const log = open();
      const { mode } = disk().info(fileOf(log));
      const more = [next(9), entryText("custom", "odd id", id(9))];
      await add(log, ...more);
      expectStored(log, ...LINES, ...more);
      expect(disk().info(fileOf(log)).mode).toBe(mode);
      const again = openOther(log);
      expect([textsOf(again), again.damage]).toEqual([[...LINES, ...more], []]);
    });

    test.runIf(plain)("is closed with a line feed where it lacks one", async () => {
      const log = open(fileText(headerText(), ...LINES).slice(0, -1));
      await add(log, next(9));
      expectStored(log, ...LINES, next(9));
      expect(textsOf(log)).toEqual([...LINES, next(9)]);
    });
  });

  describe(`${name}: opening a file`, () => {
    test.each([false, true])("gives its entries and touches nothing (for reading only: %s)", async (readOnly) => {
      const path = sessionPath();
      put(path, headerText({ more: 1.5 }), LINES);
      const before = disk().info(path);
      const text = storedAt(path);
      const log = (readOnly ? harness().files.other({ readOnly }) : harness().store).open(path);
      expect(textsOf(log)).toEqual(LINES);
      expect([...log.copy([0, 1])].length).toBeGreaterThan(0);
      expect(decodeText(log.headerLine)).toBe(headerText({ more: 1.5 }));
      expect([log.file, log.persisted, log.durableCount, log.version]).toEqual([path, true, 5, 3]);
      if (plain) expect(log.stamp).toMatchObject({ size: before.size, modified: before.modified, inode: before.inode });
      if (readOnly) {
        expect(log.readOnly).toMatchObject({ name: "read_only" });
        expect(() => log.append(bytes(next(9)))).toThrow(named("read_only"));
        expect(log.nodes.count).toBe(5);
        await log.commit();
      }
      log.close();
      expect(disk().info(path)).toEqual(before);
      expect(storedAt(path)).toBe(text);
      expect(disk().names(folder()).sort()).toEqual(namesOf("session"));
    });

    test("stamps are equal while the file is, and differ when it changed", async () => {
      const log = open();
      const { stamp } = log;
      expect([log.stamp, openOther(log).stamp]).toEqual([stamp, stamp]);
      await add(log, next(9));
      expect(log.stamp).not.toEqual(stamp);
    });

    test.runIf(plain).each([
      ["nothing", ""],
      ["a number", "1\n"],
      ["a header without id", '{"type":"session","version":3}\n'],
      ["a header with an id that is no text", '{"type":"session","version":3,"id":7}\n'],
      ["UTF-16", `\ufffe{\u0000"\u0000`],
      ["a compressed file", "\u001f\u008b\u0008\u0000\u0000\u0000\u0000\u0000\u0000\u0003"],
      ["many zeros", "\0".repeat(10_000)],
    ])("that holds %s is refused, and it stays as it is", (_, content) => {
      const path = pathOf("session.jsonl");
      write(path, content);
      const before = disk().info(path);
      expect(() => harness().store.open(path)).toThrow(named("not_a_session"));
      expect([disk().info(path), contentOf(path)]).toEqual([before, content]);
    });

    test("that is a folder is refused, and one that lies under a file is not found", () => {
      disk().makeFolder(sessionPath("folder"));
      write(pathOf("file"), "x");
      expect(() => harness().store.open(sessionPath("folder"))).toThrow(named("not_a_session"));
      expect(() => harness().store.open(sessionPath("file/session"))).toThrow(named("session_not_found"));
    });
  });

  describe.runIf(plain)(`${name}: damaged bodies`, () => {
    // Behind a head that is legible, so that opening has no reason to look further.
    const damaged = (n: number) => userText(id(n), n === 0 ? null : id(n - 1)).replace('"say', '"\u0001say');
    const openLines = (...lines: string[]) => open(fileText(headerText(), ...lines));

    test("are found when they are read, answered by a stand-in, and reported", () => {
      const lines = [userText(id(0), null), damaged(1), damaged(2), ...chain(100, 3)];
      const log = openLines(...lines);
      expect(log.damage).toEqual([]);
      const placeholder = JSON.parse(decodeText(log.read(1)));
      expect(placeholder).toMatchObject({ type: "message", id: id(1), parentId: id(0), damaged: true });
      expect(log.damage).toMatchObject([{ kind: "bad_body", entryId: id(1) }]);
      expect(log.damage[0].byteOffset).toBe(fileText(headerText(), lines[0]).length);
      expect(JSON.parse(decodeText(log.read(1)))).toEqual(placeholder);
      expect(kindsOf(log)).toEqual(["bad_body"]);
      const read = [...log.readMany([0, 1, 2, 3])].map((line) => decodeText(line));
      expect([read[0], read[3]]).toEqual([lines[0], lines[3]]);
      expect(read.slice(1, 3).map((text) => JSON.parse(text).damaged)).toEqual([true, true]);
      expect(kindsOf(log)).toEqual(["bad_body", "bad_body"]);
    });

    test("are copied as they are, whether they were found out or not", () => {
      const lines = [userText(id(0), null), damaged(1), ...chain(100, 2)];
      const log = openLines(...lines);
      const copied = () => decodeText(Buffer.concat([...log.copy([0, 1, 2])]));
      expect(copied()).toBe(fileText(...lines.slice(0, 3)));
      log.read(1);
      expect(copied()).toBe(fileText(...lines.slice(0, 3)));
    });

    test("may hide an entry that was glued to them, which reopening finds", () => {
      const glued = userText(id(1), id(0)).slice(0, -10) + userText(id(2), id(0));
      const log = openLines(userText(id(0), null), glued, userText(id(200), id(0)), ...chain(100, 201));
      expect([log.mayHideEntries, log.nodes.position(id(2))]).toEqual([false, -1]);
      log.lock.acquire();
      log.read(1);
      expect(log.mayHideEntries).toBe(true);
      const again = log.reopen();
      log.close();
      expect([again.mayHideEntries, again.nodes.count]).toEqual([false, 103]);
      expect(decodeText(again.read(again.nodes.position(id(2))))).toBe(userText(id(2), id(0)));
      // The lock went over to it.
      expect(() => openOther(log).lock.acquire()).toThrow(named("session_locked"));
    });

    test("stand among the last lines are found at opening", () => {
      const log = openLines(...chain(70), damaged(70), ...chain(1, 71));
      expect(log.damage.map(({ kind, entryId }) => [kind, entryId])).toEqual([["bad_body", id(70)]]);
    });
  });

  describe(`${name}: other programs`, () => {
    test("that append are noticed, and their entries taken in", () => {
      const log = open();
      expect(log.refresh()).toEqual({ kind: "none" });
      const more = [next(9), next(10, 9)];
      addMore(fileOf(log), more);
      expect(log.refresh()).toEqual({ kind: "grown", first: 5 });
      expect([textsOf(log), log.durableCount]).toEqual([[...LINES, ...more], 7]);
      expect(log.refresh()).toEqual({ kind: "none" });
    });

    test.runIf(plain)("that append half a line are waited for", () => {
      const log = open();
      writeBehind(disk(), fileOf(log), next(9).slice(0, 30));
      expect([log.refresh(), log.damage]).toEqual([{ kind: "none" }, []]);
      writeBehind(disk(), fileOf(log), `${next(9).slice(30)}\n`);
      expect(log.refresh()).toEqual({ kind: "grown", first: 5 });
      expect([textsOf(log), log.damage]).toEqual([[...LINES, next(9)], []]);
    });

    test("that appended since the last look come before what is appended now", async () => {
      const log = open();
      addMore(fileOf(log), [userText("foreign1", id(4))]);
      await add(log, next(9));
      expect(textsOf(log)).toEqual([...LINES, userText("foreign1", id(4)), next(9)]);
      expect(textsOf(openOther(log))).toEqual(textsOf(log));
    });

    test("that put another file in its place are noticed, and reopen gives that", () => {
      const log = open();
      const path = fileOf(log);
      if (!plain) remove(path);
      put(plain ? pathOf("other.tmp") : path, headerText(), LINES.slice(0, 2));
      if (plain) disk().rename(pathOf("other.tmp"), path);
      expect(log.refresh()).toEqual({ kind: "replaced" });
      const again = log.reopen();
      expect(textsOf(again)).toEqual(LINES.slice(0, 2));
      log.close();
      expect(textsOf(again)).toEqual(LINES.slice(0, 2));
    });

    test("that cut the file are noticed", () => {
      const log = open();
      if (plain) writeBehind(disk(), fileOf(log), "", fileText(headerText(), ...LINES.slice(0, 2)).length);
      else layout()?.cut(fileOf(log), 2);
      expect(log.refresh()).toEqual({ kind: "replaced" });
      expect(log.reopen().nodes.count).toBe(2);
    });

    test("that remove the file are noticed", () => {
      const log = open();
      remove(fileOf(log));
      expect(log.refresh()).toEqual({ kind: "gone" });
      expect(() => log.reopen()).toThrow(named("session_not_found"));
    });
  });

  // Facts learned without the lock are guesses: test/model runs that.
  test.runIf(canFail)(`${name}: what others wrote behind entries that are given up is not taken back`, async () => {
    const log = open();
    log.append(bytes(next(40)));
    // A program that knows no lock.
    const theirs = openOther(log, { ignoresLocks: true });
    await add(theirs, next(50)).catch(() => {});
    expect(storedAt(fileOf(log))).toContain(next(50));
    log.rollBack();
    expect(storedAt(fileOf(log))).toContain(next(50));
    theirs.close();
    log.close();
    expect(textsOf(openOther(log)).slice(0, 5)).toEqual(LINES);
  });

  describe(`${name}: a name that another program takes`, () => {
    const create = () => harness().store.create(beginning(headerText(), sessionPath("new")));
    const requireTheirs = (log: Log) => {
      expect([log.nodes.count, log.persisted]).toEqual([0, false]);
      expect(contentOf(sessionPath("new"))).toBe("theirs");
    };

    test("before the first entry is left to it, and said", () => {
      const log = create();
      write(sessionPath("new"), "theirs");
      for (const options of [{ defer: true }, {}])
        expect(() => log.append(bytes(LINES[0]), options)).toThrow(named("already_exists"));
      requireTheirs(log);
    });

    test("under entries that are given up is left to it", () => {
      const log = create();
      log.append(bytes(LINES[0]));
      if (log.durableCount === 1 || !log.persisted) return;
      remove(sessionPath("new"));
      write(sessionPath("new"), "theirs");
      log.rollBack();
      requireTheirs(log);
    });
  });

  test.runIf(plain).each([
    ["with a longer first entry", (text: string) => text.replace("say", "say a little more, and")],
    ["with an entry more in its middle", (text: string) => text.replace("\n", `\n${userText(id(60), null)}\n`)],
    ["with a longer header", (text: string) => text.replace('"cwd"', '"more":1,"cwd"')],
  ])(`${name}: a file that is written anew in place %s is not one that has grown`, async (_what, change) => {
    const log = open();
    const text = change(storedAt(fileOf(log)));
    writeBehind(disk(), fileOf(log), text, 0);
    const refused = expect.objectContaining({ name: "storage_failed", retryable: true });
    expect(() => log.append(bytes(next(40)))).toThrow(refused);
    expect(storedAt(fileOf(log))).toBe(text);
    expect(log.refresh()).toEqual({ kind: "replaced" });
    const again = log.reopen();
    log.close();
    await add(again, next(40));
    expect(storedAt(fileOf(log))).toBe(text + fileText(next(40)));
  });

  describe(`${name}: one writer`, () => {
    test("at a time: the second is refused, told who it is, and gets its turn", async () => {
      const log = open();
      // None while everybody reads.
      expect([textsOf(log), textsOf(openOther(log))]).toEqual([LINES, LINES]);
      expect([log.lock.acquire(), log.lock.acquire(), log.lock.holder]).toEqual([true, false, null]);
      const other = openOther(log);
      expect(other.lock.holder).toMatchObject({ client: expect.any(String), pid: expect.any(Number) });
      expect(() => other.lock.acquire()).toThrow(named("session_locked"));
      expect(() => other.append(bytes(next(9)))).toThrow(named("session_locked"));
      expect(other.nodes.count).toBe(5);
      await add(log, next(8));
      log.lock.release();
      expect([other.lock.holder, other.lock.acquire()]).toEqual([null, true]);
      expect(other.refresh()).toEqual({ kind: "grown", first: 5 });
      await add(other, next(9, 8));
      expect(() => log.append(bytes(next(10, 8)))).toThrow(named("session_locked"));
      other.close();
      expect(log.lock.acquire()).toBe(true);
    });

    test("is who appends, without asking for it, and who made the file", async () => {
      const log = open();
      const other = openOther(log);
      log.append(bytes(next(9)));
      expect(() => other.lock.acquire()).toThrow(named("session_locked"));
      log.close();
      expect(other.lock.acquire()).toBe(true);
      const made = harness().store.create(beginning(headerText(), sessionPath("new")));
      made.append(bytes(...LINES));
      if (harness().isCopied) await made.commit();
      expect(() => openOther(made).lock.acquire()).toThrow(named("session_locked"));
    });
  });

  describe(`${name}: committing`, () => {
    test("makes everything durable that was appended before, and nothing else", async () => {
      const log = open();
      log.append(bytes(next(9)));
      expect(log.durableCount).toBe(5);
      const first = log.commit();
      log.append(bytes(next(10, 9)));
      await first;
      expect(log.durableCount).toBeGreaterThanOrEqual(6);
      await log.commit();
      expect(log.durableCount).toBe(7);
    });

    test("rolling back gives up what is not durable, and that for ever", async () => {
      const log = open();
      await add(log, next(9));
      log.append(bytes(next(10, 9), next(11, 10)));
      log.rollBack();
      expect(idsOf(log)).toEqual([...LINE_IDS, id(9)]);
      await add(log, next(12, 9));
      expect(textsOf(log)).toEqual([...LINES, next(9), next(12, 9)]);
      expectStored(log, ...LINES, next(9), next(12, 9));
    });

    test("rolling back the first entry leaves no file", async () => {
      const log = harness().store.create(beginning(headerText(), sessionPath("new")));
      log.append(bytes(LINES[0]), { defer: true });
      log.append(bytes(LINES[1]));
      log.rollBack();
      expect([log.persisted, textsOf(log)]).toEqual([false, LINES.slice(0, 1)]);
      expect(disk().names(folder())).toEqual([]);
      await add(log, ...LINES.slice(1));
      expectStored(log, ...LINES);
    });

    test.runIf(canFail)("shares one disk operation among all who wait", async () => {
      const faults = harness().files.faults as FaultDisk;
      const log = open();
      faults.set(undefined);
      const commits: Promise<void>[] = [];
      for (let n = 0; n < 20; n++) commits.push(add(log, next(20 + n)));
      await Promise.all(commits);
      expect(log.durableCount).toBe(25);
      const syncs = faults.operations.filter((operation) => operation === "sync").length;
      expect(syncs).toBeLessThanOrEqual(2 * (layout()?.syncs ?? 1));
    });

    test.runIf(canFail).each([true, false])(
      "that fails takes everything back that was not durable, and each commit of that says so, once (asked before: %s)",
      async (isAsked) => {
        // The disk refuses no commit of a copy (test/modules/fleet/faults.test.ts).
        if (harness().isCopied) return;
        const faults = harness().files.faults as FaultDisk;
        const log = open();
        log.append(bytes(next(9)));
        faults.set({ kind: "fail", at: 1, errno: "EIO" });
        const first = log.commit();
        log.append(bytes(next(10, 9)));
        const outcomes = await Promise.allSettled(isAsked ? [first, log.commit(), log.commit()] : [first]);
        faults.set(undefined);
        for (const { status } of outcomes) expect(status).toBe("rejected");
        expect((outcomes[0] as PromiseRejectedResult).reason).toMatchObject({ name: "storage_failed" });
        expect([log.nodes.count, log.durableCount, log.isCommitDue]).toEqual([5, 5, !isAsked]);
        expectStored(log, ...LINES);
        if (!isAsked) {
          expect(() => log.append(bytes(next(11)))).toThrow(Failure);
          await expect(log.commit()).rejects.toThrow(Failure);
          expect(log.nodes.count).toBe(5);
        }
        await add(log, next(11));
        expectStored(log, ...LINES, next(11));
      },
    );

    test.runIf(plain && canFail).each([true, false])(
      "that fails, and after which another program wrote, leaves what it had, and says so (seen before: %s)",
      async (isSeen) => {
        if (harness().isCopied) return;
        const faults = harness().files.faults as FaultDisk;
        const log = open();
        log.append(bytes(next(9)));
        addMore(fileOf(log), [next(10, 9)]);
        if (isSeen) log.refresh();
        faults.set({ kind: "fail", at: 1, errno: "EIO" });
        await expect(log.commit()).rejects.toMatchObject({ name: "outcome_unknown", retryable: true });
        faults.set(undefined);
        log.refresh();
        const wanted = [...LINES, next(9), next(10, 9)];
        expect(textsOf(log)).toEqual(wanted);
        await add(log, next(11, 10));
        for (const { disk: left } of faults.lasting()) {
          const content = decodeText(left.content(fileOf(log)) as Uint8Array);
          expect(content).toBe(fileText(headerText(), ...wanted, next(11, 10)));
        }
      },
    );
  });

  describe(`${name}: repairing`, () => {
    test("a sound session changes nothing", () => {
      const log = open();
      const before = disk().info(fileOf(log));
      expect(log.repair()).toBeNull();
      expect(disk().info(fileOf(log))).toEqual(before);
    });

    test.runIf(plain)("writes it without what is damaged and keeps the original", () => {
      const content = fileText(headerText(), ...LINES.slice(0, 2), "}broken{", "[]", ...LINES.slice(2));
      const log = open(content);
      const before = textsOf(log);
      const kept = log.repair() as string;
      log.close();
      expect(contentOf(kept)).toBe(content);
      const again = harness().store.open(fileOf(log));
      expect([textsOf(again), again.damage]).toEqual([before, []]);
    });
  });
}
