/**
 * What every backend promises (src/core/ports/store.ts), as one suite. A backend's own test is a few lines: it gives
 * a name and a way to make an empty store. What a backend cannot do it leaves out of its harness.
 */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import { bytesOf, textOf } from "../../src/core/json/json.ts";
import type { Beginning, Content, Log, Store } from "../../src/core/ports/store.ts";
import { type Disk, type FileInfo, readWhole, writeAll } from "../../src/storage/fs/disk.ts";
import { FaultDisk } from "../support/disk.ts";
import { assistantText, chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { MKFIFO, needs } from "../support/needs.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { beginning, idsOf, kindsOf, textsOf } from "../support/sessions.ts";
import { acrossTiers } from "../support/tiers.ts";

export interface Harness {
  readonly store: Store;
  /** What a backend of files has beside that. */
  readonly files?: Files;
  /** Whether another place is given what is appended while the disk is, so that it may have what the disk refuses. */
  readonly isCopied?: boolean;
  close(): void;
}

export interface Files {
  readonly disk: Disk;
  /** A folder that exists and is empty. */
  readonly folder: string;
  /**
   * The same store as another process has it; `looksEarly`, it sees no lock that others hold while it only looks;
   * `ignoresLocks`, it takes none.
   */
  other(options?: { readOnly?: boolean; looksEarly?: boolean; ignoresLocks?: boolean }): Store;
  /** Makes a FIFO, where the system has them. */
  makeFifo?(path: string): void;
  /** The disk itself, if it can fail. */
  readonly faults?: FaultDisk;
  /** How sessions lie there; by default each is one text file. */
  readonly layout?: Layout;
}

/** How a backend that keeps more than one text file for a session lays it out, and what other programs do to that. */
export interface Layout {
  /** What the path of a session ends with. */
  readonly ending: string;
  /** Names in the folder of a session called `session`. */
  readonly names: readonly string[];
  readonly kind: FileInfo["kind"];
  readonly mode: number;
  /** Disk operations by which a commit waits for the medium. */
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

const LINES = [
  userText(id(0), null),
  assistantText(id(1), id(0)),
  `{"type":"unheard_of","id":"${id(2)}","parentId":"${id(1)}","timestamp":"t","n":1.0,"n":-0,"big":9007199254740993,"e":1e400,"u":"\\u0041\u2028"}`,
  `{ "parentId" : "${id(2)}" , "id":"${id(3)}" , "odd":[ ], "type":"custom"}`,
  entryText("label", id(4), id(3), { targetId: id(0), label: "\u{1f600}" }),
];

/** The ways of making a log with lines at once: waiting for the disk, and blocking everything else meanwhile. */
type Way = "publish" | "publishNow";

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

  const bytes = (lines: readonly string[]) => lines.map((line) => bytesOf(line));
  const published = (lines: readonly string[] = LINES, wanted: Beginning = beginning()) =>
    store.publish(wanted, lines.length === 0 ? [] : [bytesOf(fileText(...lines))]);
  const nothing = () => store.create(beginning());
  const named = (failure: string) => expect.objectContaining({ name: failure });

  describe(`${name}: a new log`, () => {
    test("has its header and no entries", () => {
      const log = nothing();
      expect(log.store).toBe(store.name);
      expect(textOf(log.headerLine)).toBe(headerText());
      expect(log.header).toEqual(JSON.parse(headerText()));
      expect([log.nodes.count, log.durableCount, log.damage, log.readOnly, log.lockedBy]).toEqual([
        0,
        0,
        [],
        null,
        null,
      ]);
      expect([log.version, log.persisted, log.stamp]).toEqual([3, false, null]);
    });

    test("takes entries, which are visible at once under positions from 0 on", async () => {
      const log = nothing();
      log.append(bytes(LINES.slice(0, 2)));
      expect(textsOf(log)).toEqual(LINES.slice(0, 2));
      log.append(bytes(LINES.slice(2)));
      expect(textsOf(log)).toEqual(LINES);
      expect(idsOf(log)).toEqual([0, 1, 2, 3, 4].map(id));
      await log.commit();
      expect(log.durableCount).toBe(5);
      expect(textsOf(log)).toEqual(LINES);
    });

    test("keeps held entries until one comes that is not", async () => {
      const log = nothing();
      log.append(bytes(LINES.slice(0, 1)), { defer: true });
      log.append(bytes(LINES.slice(1, 2)), { defer: true });
      expect(log.persisted).toBe(false);
      expect(textsOf(log)).toEqual(LINES.slice(0, 2));
      await log.commit();
      expect(log.persisted).toBe(false);
      log.append(bytes(LINES.slice(2)));
      expect(textsOf(log)).toEqual(LINES);
      await log.commit();
      expect(textsOf(log)).toEqual(LINES);
      expect(log.durableCount).toBe(5);
    });

    test("has nothing to commit, to roll back, to refresh or to repair", async () => {
      const log = nothing();
      await log.commit();
      log.rollBack();
      expect(log.refresh()).toEqual({ kind: "none" });
      expect(log.repair()).toBeNull();
      expect(log.acquireLock()).toBe(false);
      log.unlock();
      expect(log.nodes.count).toBe(0);
    });
  });

  describe.each(ways)(`${name}: a log of %s`, (way) => {
    const publish = async (content: Content): Promise<Log> => (store[way] as Store["publish"])(beginning(), content);
    const published = (lines: readonly string[] = LINES) =>
      publish(lines.length === 0 ? [] : [bytesOf(fileText(...lines))]);

    test("holds its lines from the start, all of them durable", async () => {
      const log = await published();
      expect(textsOf(log)).toEqual(LINES);
      expect(idsOf(log)).toEqual([0, 1, 2, 3, 4].map(id));
      expect([log.durableCount, log.damage]).toEqual([5, []]);
      expect(textOf(log.headerLine)).toBe(headerText());
    });

    test("may be empty", async () => {
      const log = await published([]);
      expect(log.nodes.count).toBe(0);
      log.append(bytes(LINES));
      await log.commit();
      expect(textsOf(log)).toEqual(LINES);
    });

    test("may come in pieces that are cut anywhere", async () => {
      const whole = bytesOf(fileText(...LINES));
      const pieces: Uint8Array[] = [];
      for (let at = 0; at < whole.length; at += 7) pieces.push(whole.subarray(at, at + 7));
      const log = await publish(pieces);
      expect(textsOf(log)).toEqual(LINES);
    });

    test("takes more entries behind the ones it has", async () => {
      const log = await published(LINES.slice(0, 3));
      log.append(bytes(LINES.slice(3)));
      await log.commit();
      expect(textsOf(log)).toEqual(LINES);
    });
  });

  describe(`${name}: reading`, () => {
    acrossTiers(test, [1, 3])(
      "many, one by one and as bytes is the same, in any order and as often as asked (%i)",
      async (count) => {
        await forSeedsAsync(count, async (random) => {
          const lines = randomLines(random);
          const log = await published(
            lines,
            beginning(headerText({ id: `01991f6e-1f1d-7c3e-b0a4-${random.seed.toString(16).padStart(12, "0")}` })),
          );
          // What reads a line of many pieces differs by the line, not by how often it is asked for.
          const isLarge = lines.some((line) => line.length > 1_000_000);
          for (let n = 0; n < (isLarge ? 1 : 5); n++) {
            const positions = randomPositions(random, lines.length);
            const wanted = [...positions].map((position) => lines[position]);
            expect([...positions].map((position) => textOf(log.read(position)))).toEqual(wanted);
            expect([...log.readMany(positions)].map((line) => textOf(line))).toEqual(wanted);
            expect(textOf(Buffer.concat([...log.copy(positions)]))).toBe(fileText(...wanted));
            expect(positions.map((position) => log.length(position))).toEqual(
              wanted.map((line) => bytesOf(line).length),
            );
          }
          log.close();
        });
      },
    );

    test("of nothing is nothing", async () => {
      const log = await published();
      expect([...log.readMany([])]).toEqual([]);
      expect([...log.copy([])]).toEqual([]);
    });

    test("happens when it is asked for, not before", async () => {
      const log = await published();
      const many = log.readMany([0, 4, 2])[Symbol.iterator]();
      const copy = log.copy([0, 1, 2, 3, 4])[Symbol.iterator]();
      log.append(bytes([userText(id(9), id(4))]));
      expect(textOf(many.next().value as Uint8Array)).toBe(LINES[0]);
      expect((copy.next().value as Uint8Array).length).toBeGreaterThan(0);
      // Giving up in the middle is allowed.
      many.return?.();
      copy.return?.();
    });

    test("what was appended is as what was read", async () => {
      const log = await published(LINES.slice(0, 2));
      log.append(bytes(LINES.slice(2)));
      const all = [4, 0, 3, 1, 2];
      expect([...log.readMany(all)].map((line) => textOf(line))).toEqual(all.map((n) => LINES[n]));
      expect(textOf(Buffer.concat([...log.copy([0, 1, 2, 3, 4])]))).toBe(fileText(...LINES));
    });

    test("a large line comes whole", async () => {
      const large = userText(id(1), id(0), "x".repeat((2 << 20) + 9));
      const log = await published([LINES[0], large, userText(id(2), id(1))]);
      expect(textOf(log.read(1))).toBe(large);
      expect(textOf(Buffer.concat([...log.copy([0, 1, 2])]))).toBe(fileText(LINES[0], large, userText(id(2), id(1))));
      expect([...log.readMany([2, 1])].map((line) => line.length)).toEqual([log.length(2), bytesOf(large).length]);
    });
  });

  describe(`${name}: closing`, () => {
    test("ends it: later calls throw, and what was committed stays", async () => {
      const log = await published();
      log.append(bytes([userText(id(9), id(4))]));
      await log.commit();
      log.close();
      expect(() => log.append(bytes([userText(id(10), id(9))]))).toThrow(named("storage_failed"));
      expect(() => log.read(0)).toThrow(named("storage_failed"));
      expect(() => [...log.readMany([0])]).toThrow(named("storage_failed"));
      expect(() => [...log.copy([0])]).toThrow(named("storage_failed"));
    });

    test("does not pass for a commit", async () => {
      const log = await published();
      log.append(bytes([userText(id(9), id(4))]));
      if (log.durableCount === log.nodes.count) return;
      log.close();
      await expect(log.commit()).rejects.toThrow();
    });

    test("twice is as once", async () => {
      const log = await published();
      log.close();
      log.close();
      nothing().close();
    });
  });

  describe(`${name}: what is not there`, () => {
    test("cannot be opened", () => {
      const { folder } = harness.files ?? { folder: "" };
      expect(() => store.open(`${folder}/nothing.jsonl`)).toThrow(named("session_not_found"));
      expect(() => store.open(`${folder}/no/such/folder/nothing.jsonl`)).toThrow(named("session_not_found"));
    });
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
  const bytes = (lines: readonly string[]) => lines.map((line) => bytesOf(line));
  const named = (failure: string) => expect.objectContaining({ name: failure });
  const disk = () => harness().files.disk;
  const pathOf = (file: string) => `${harness().files.folder}/${file}`;

  function write(path: string, content: string | Uint8Array): void {
    const fd = disk().create(path);
    writeAll(disk(), fd, typeof content === "string" ? bytesOf(content) : content);
    disk().close(fd);
  }

  /** As a program does that knows nothing of us. */
  function writeMore(path: string, content: string): void {
    const fd = disk().openAppend(path);
    writeAll(disk(), fd, bytesOf(content));
    disk().close(fd);
  }

  const contentOf = (path: string) => textOf(readWhole(disk(), path));
  const fileOf = (log: Log) => log.file as string;

  const layout = () => harness().files.layout;
  const sessionPath = (stem = "session") => pathOf(`${stem}${layout()?.ending ?? ".jsonl"}`);
  const namesOf = (stem: string) => (layout()?.names ?? ["session.jsonl"]).map((at) => at.replace("session", stem));
  /** The session at a path as one text. */
  const storedAt = (path: string) => layout()?.textAt(path) ?? contentOf(path);

  function put(path: string, header: string, lines: readonly string[]): void {
    const kind = layout();
    if (kind) kind.put(path, header, lines);
    else write(path, fileText(header, ...lines));
  }

  function addMore(path: string, lines: readonly string[]): void {
    const kind = layout();
    if (kind) kind.addMore(path, lines);
    else writeMore(path, fileText(...lines));
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

  describe(`${name}: the file`, () => {
    test("of a new log is named from the start and appears, whole, with the first entry that is not held", async () => {
      const log = harness().store.create(beginning(headerText(), sessionPath("new/deep/session")));
      expect(log.file).toBe(sessionPath("new/deep/session"));
      log.append(bytes(LINES.slice(0, 1)), { defer: true });
      await log.commit();
      expect(() => disk().info(fileOf(log))).toThrow();
      log.append(bytes(LINES.slice(1)));
      expect(log.persisted).toBe(true);
      await log.commit();
      expect(storedAt(fileOf(log))).toBe(fileText(headerText(), ...LINES));
      const { mode, kind } = disk().info(fileOf(log));
      expect([mode, kind]).toEqual([layout()?.mode ?? 0o600, layout()?.kind ?? "file"]);
      expect(disk().info(pathOf("new/deep")).mode).toBe(0o700);
      expect(disk().names(pathOf("new/deep")).sort()).toEqual(namesOf("session"));
    });

    test.each(ways)("of a log of %s is there, whole, and nothing beside it", async (way) => {
      const wanted = beginning(headerText(), sessionPath("new/deep/session"));
      const log = await (harness().store[way] as Store["publish"])(wanted, [bytesOf(fileText(...LINES))]);
      expect(log.file).toBe(sessionPath("new/deep/session"));
      expect(log.persisted).toBe(true);
      expect(storedAt(fileOf(log))).toBe(fileText(headerText(), ...LINES));
      expect(disk().info(fileOf(log)).mode).toBe(layout()?.mode ?? 0o600);
      expect(disk().names(pathOf("new/deep")).sort()).toEqual(namesOf("session"));
    });

    test.each(ways)("of a log of %s that is discarded is gone, unless another process has it by then", async (way) => {
      const wanted = beginning(headerText(), sessionPath());
      const publish = () => (harness().store[way] as Store["publish"])(wanted, [bytesOf(fileText(...LINES))]);
      const first = await publish();
      first.discard?.();
      const { isCopied } = harness();
      expect(disk().names(harness().files.folder)).toHaveLength(isCopied ? namesOf("session").length : 0);
      // What other machines have is not removed here alone.
      const log = isCopied ? first : await publish();
      const other = harness().files.other().open(fileOf(log));
      other.acquireLock();
      log.discard?.();
      const more = userText(id(9), id(4));
      other.append(bytes([more]));
      await other.commit();
      expect(storedAt(fileOf(log))).toBe(fileText(headerText(), ...LINES, more));
    });

    test("of a log of publish that is discarded stays when another process wrote to it", async () => {
      const wanted = beginning(headerText(), sessionPath());
      const log = await harness().store.publish(wanted, [bytesOf(fileText(...LINES))]);
      const more = userText(id(9), id(4));
      addMore(fileOf(log), [more]);
      log.discard?.();
      expect(storedAt(fileOf(log))).toBe(fileText(headerText(), ...LINES, more));
    });

    test("is never overwritten", async () => {
      const path = sessionPath("taken");
      write(path, "mine");
      const wanted = beginning(headerText(), path);
      await expect(harness().store.publish(wanted, [bytesOf(fileText(...LINES))])).rejects.toThrow(
        named("already_exists"),
      );
      const log = harness().store.create(wanted);
      expect(() => log.append(bytes(LINES))).toThrow();
      expect(log.nodes.count).toBe(0);
      expect(contentOf(path)).toBe("mine");
      expect(disk().names(harness().files.folder)).toEqual([namesOf("taken").at(-1)]);
    });

    test("grows by whole lines, and the bytes before stay", async () => {
      const log = open();
      const before = storedAt(fileOf(log));
      const more = [userText(id(9), id(4)), entryText("custom", "odd id", id(9))];
      log.append(bytes(more));
      await log.commit();
      expect(storedAt(fileOf(log))).toBe(before + fileText(...more));
      const again = harness().files.other().open(fileOf(log));
      expect(textsOf(again)).toEqual([...LINES, ...more]);
      expect(again.damage).toEqual([]);
    });

    test.runIf(plain)("is closed with a line feed where it lacks one", async () => {
      const log = open(fileText(headerText(), ...LINES).slice(0, -1));
      log.append(bytes([userText(id(9), id(4))]));
      await log.commit();
      expect(contentOf(fileOf(log))).toBe(fileText(headerText(), ...LINES, userText(id(9), id(4))));
      expect(textsOf(log)).toEqual([...LINES, userText(id(9), id(4))]);
    });

    test("keeps its mode", async () => {
      const log = await harness().store.publish(beginning(headerText(), sessionPath("a")), []);
      const before = disk().info(fileOf(log)).mode;
      log.append(bytes(LINES));
      await log.commit();
      expect(disk().info(fileOf(log)).mode).toBe(before);
    });
  });

  describe(`${name}: opening a file`, () => {
    test("gives its entries and touches nothing", () => {
      const path = sessionPath();
      put(path, headerText({ more: 1.5 }), LINES);
      const before: FileInfo = disk().info(path);
      const text = storedAt(path);
      const log = harness().store.open(path);
      expect(textsOf(log)).toEqual(LINES);
      expect([...log.copy([0, 1])].length).toBeGreaterThan(0);
      expect(textOf(log.headerLine)).toBe(headerText({ more: 1.5 }));
      expect([log.file, log.persisted, log.durableCount, log.version]).toEqual([path, true, 5, 3]);
      if (plain) expect(log.stamp).toMatchObject({ size: before.size, modified: before.modified, inode: before.inode });
      log.close();
      expect(disk().info(path)).toEqual(before);
      expect(storedAt(path)).toBe(text);
      expect(disk().names(harness().files.folder).sort()).toEqual(namesOf("session"));
    });

    test("stamps are equal while the file is, and differ when it changed", async () => {
      const log = open();
      const { stamp } = log;
      expect(log.stamp).toEqual(stamp);
      expect(harness().files.other().open(fileOf(log)).stamp).toEqual(stamp);
      log.append(bytes([userText(id(9), id(4))]));
      await log.commit();
      expect(log.stamp).not.toEqual(stamp);
    });

    test.runIf(plain).each([
      ["nothing", ""],
      ["white space", "\n \n\t\r\n"],
      ["text", "hello\nworld\n"],
      ["JSON of another kind", '{"name":"package","version":"1.0.0"}\n'],
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
      expect(disk().info(path)).toEqual(before);
      expect(contentOf(path)).toBe(content);
    });

    test("that is a folder is refused", () => {
      disk().makeFolder(sessionPath("folder"));
      expect(() => harness().store.open(sessionPath("folder"))).toThrow(named("not_a_session"));
    });

    test("that lies under a file is not found", () => {
      write(pathOf("file"), "x");
      expect(() => harness().store.open(sessionPath("file/session"))).toThrow(named("session_not_found"));
    });

    test("that is a FIFO is refused and does not wait for a writer", needs(MKFIFO), ({ skip }) => {
      const { makeFifo } = harness().files;
      if (!makeFifo) return skip();
      makeFifo(pathOf("fifo.jsonl"));
      expect(() => harness().store.open(pathOf("fifo.jsonl"))).toThrow(named("not_a_session"));
    });

    test("for reading only refuses appends and nothing else", async () => {
      const path = sessionPath();
      put(path, headerText(), LINES);
      const before = disk().info(path);
      const text = storedAt(path);
      const log = harness().files.other({ readOnly: true }).open(path);
      expect(log.readOnly).toMatchObject({ name: "read_only" });
      expect(() => log.append(bytes([userText(id(9), id(4))]))).toThrow(named("read_only"));
      expect(log.nodes.count).toBe(5);
      expect(textsOf(log)).toEqual(LINES);
      await log.commit();
      expect(disk().info(path)).toEqual(before);
      expect(storedAt(path)).toBe(text);
    });
  });

  describe.runIf(plain)(`${name}: damaged bodies`, () => {
    // Behind a head that is legible, so that opening has no reason to look further.
    const damaged = (n: number) => userText(id(n), n === 0 ? null : id(n - 1)).replace('"say', '"\u0001say');
    const many = (from: number) => chain(100, from);

    test("are found when they are read, answered by a stand-in, and reported", () => {
      const lines = [userText(id(0), null), damaged(1), ...many(2)];
      const log = open(fileText(headerText(), ...lines));
      expect(log.damage).toEqual([]);
      const placeholder = JSON.parse(textOf(log.read(1)));
      expect(placeholder).toMatchObject({ type: "message", id: id(1), parentId: id(0), damaged: true });
      expect(kindsOf(log)).toEqual(["bad_body"]);
      expect(log.damage[0]).toMatchObject({ entryId: id(1), byteOffset: fileText(headerText(), lines[0]).length });
      expect(JSON.parse(textOf(log.read(1)))).toEqual(placeholder);
      expect(kindsOf(log)).toEqual(["bad_body"]);
      expect(textOf(log.read(2))).toBe(lines[2]);
    });

    test("are found by readMany as well, and their neighbours are whole", () => {
      const lines = [userText(id(0), null), damaged(1), damaged(2), ...many(3)];
      const log = open(fileText(headerText(), ...lines));
      const read = [...log.readMany([0, 1, 2, 3])].map((line) => textOf(line));
      expect([read[0], read[3]]).toEqual([lines[0], lines[3]]);
      expect(read.slice(1, 3).map((text) => JSON.parse(text).damaged)).toEqual([true, true]);
      expect(kindsOf(log)).toEqual(["bad_body", "bad_body"]);
    });

    test("are copied as they are, whether they were found out or not", () => {
      const lines = [userText(id(0), null), damaged(1), ...many(2)];
      const log = open(fileText(headerText(), ...lines));
      const before = textOf(Buffer.concat([...log.copy([0, 1, 2])]));
      expect(before).toBe(fileText(...lines.slice(0, 3)));
      log.read(1);
      expect(textOf(Buffer.concat([...log.copy([0, 1, 2])]))).toBe(before);
    });

    test("may hide an entry that was glued to them, which reopening finds", () => {
      const glued = userText(id(1), id(0)).slice(0, -10) + userText(id(2), id(0));
      const log = open(fileText(headerText(), userText(id(0), null), glued, userText(id(200), id(0)), ...many(201)));
      expect([log.mayHideEntries, log.nodes.position(id(2))]).toEqual([false, -1]);
      log.acquireLock();
      log.read(1);
      expect(log.mayHideEntries).toBe(true);
      const again = log.reopen();
      log.close();
      expect(again.mayHideEntries).toBe(false);
      expect(textOf(again.read(again.nodes.position(id(2))))).toBe(userText(id(2), id(0)));
      expect(again.nodes.count).toBe(103);
      // The lock went over to it.
      expect(() => harness().files.other().open(fileOf(log)).acquireLock()).toThrow(named("session_locked"));
    });

    test("stand among the last lines are found at opening", () => {
      const log = open(fileText(headerText(), ...chain(70), damaged(70), ...chain(1, 71)));
      expect(log.damage.map(({ kind, entryId }) => [kind, entryId])).toEqual([["bad_body", id(70)]]);
    });
  });

  describe(`${name}: other programs`, () => {
    test("that append are noticed, and their entries taken in", () => {
      const log = open();
      expect(log.refresh()).toEqual({ kind: "none" });
      const more = [userText(id(9), id(4)), userText(id(10), id(9))];
      addMore(fileOf(log), more);
      expect(log.refresh()).toEqual({ kind: "grown", first: 5 });
      expect(textsOf(log)).toEqual([...LINES, ...more]);
      expect(log.durableCount).toBe(7);
      expect(log.refresh()).toEqual({ kind: "none" });
    });

    test.runIf(plain)("that append half a line are waited for", () => {
      const log = open();
      const line = userText(id(9), id(4));
      writeMore(fileOf(log), line.slice(0, 30));
      expect(log.refresh()).toEqual({ kind: "none" });
      expect(log.damage).toEqual([]);
      writeMore(fileOf(log), `${line.slice(30)}\n`);
      expect(log.refresh()).toEqual({ kind: "grown", first: 5 });
      expect(textsOf(log)).toEqual([...LINES, line]);
      expect(log.damage).toEqual([]);
    });

    test("that appended since the last look come before what is appended now", async () => {
      const log = open();
      addMore(fileOf(log), [userText("foreign1", id(4))]);
      log.append(bytes([userText(id(9), id(4))]));
      await log.commit();
      expect(textsOf(log)).toEqual([...LINES, userText("foreign1", id(4)), userText(id(9), id(4))]);
      expect(textsOf(harness().files.other().open(fileOf(log)))).toEqual(textsOf(log));
    });

    test("that put another file in its place are noticed, and reopen gives that", () => {
      const log = open();
      const path = fileOf(log);
      if (plain) {
        put(pathOf("other.tmp"), headerText(), LINES.slice(0, 2));
        disk().rename(pathOf("other.tmp"), path);
      } else {
        remove(path);
        put(path, headerText(), LINES.slice(0, 2));
      }
      expect(log.refresh()).toEqual({ kind: "replaced" });
      const again = log.reopen();
      expect(textsOf(again)).toEqual(LINES.slice(0, 2));
      log.close();
      expect(textsOf(again)).toEqual(LINES.slice(0, 2));
    });

    test("that cut the file are noticed", () => {
      const log = open();
      if (plain) {
        const fd = disk().openAppend(fileOf(log));
        disk().truncate(fd, fileText(headerText(), ...LINES.slice(0, 2)).length);
        disk().close(fd);
      } else layout()?.cut(fileOf(log), 2);
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

  describe.runIf(canFail)(`${name}: what was learned without the lock`, () => {
    const batch = [0, 1, 2].map((index) =>
      JSON.stringify({
        type: "message",
        id: id(20 + index),
        parentId: index === 0 ? id(4) : id(19 + index),
        timestamp: "2026-01-24T16:22:27.000Z",
        _batch: { session: JSON.parse(headerText()).id, key: "k", index, count: 3 },
        message: { role: "user", content: `part ${index}` },
      }),
    );
    const mine = [userText(id(40), id(4)), userText(id(41), id(40))];

    /** Runs something while only a part of the next write can be seen, the writer being still at it. */
    function whileVisible(faults: FaultDisk, part: (bytes: Uint8Array) => number, during: () => void): void {
      const { write } = FaultDisk.prototype;
      faults.write = (fd, bytes) => {
        faults.write = write;
        const count = part(bytes);
        if (count > 0) faults.write(fd, bytes.subarray(0, count));
        during();
        if (count < bytes.length) faults.write(fd, bytes.subarray(count));
        return bytes.length;
      };
    }

    const parts: [string, (bytes: Uint8Array) => number][] = [
      ["nothing", () => 0],
      ["a part of the first line", (bytes) => bytes.indexOf(0x0a) >> 1],
      ["the first line without its line feed", (bytes) => bytes.indexOf(0x0a)],
      ["the first line", (bytes) => bytes.indexOf(0x0a) + 1],
      ["all but a part of the last line", (bytes) => bytes.lastIndexOf(0x0a, bytes.length - 2) + 30],
      ["all but the last line feed", (bytes) => bytes.length - 1],
      ["all", (bytes) => bytes.length],
    ];

    test.each(parts)("while %s of an append could be seen is judged anew with the lock", async (_what, part) => {
      const { faults, other } = harness().files as Files & { readonly faults: FaultDisk };
      const theirs = open();
      let ours: Log | undefined;
      whileVisible(faults, part, () => {
        ours = other({ looksEarly: true }).open(fileOf(theirs));
      });
      theirs.append(bytes(batch));
      await theirs.commit();
      theirs.append(bytes([userText(id(30), id(22))]));
      await theirs.commit();
      theirs.close();
      const log = ours as unknown as Log;
      log.append(bytes(mine.slice(0, 1)));
      await log.commit();
      const wanted = [...LINES, ...batch, userText(id(30), id(22)), mine[0]];
      expect(textsOf(log)).toEqual(wanted);
      log.close();
      const again = other().open(fileOf(log));
      expect([textsOf(again), again.damage]).toEqual([wanted, []]);
    });

    test.each(parts)("by a look while %s of an append could be seen, too", async (_what, part) => {
      const { faults, other } = harness().files as Files & { readonly faults: FaultDisk };
      const theirs = open();
      const log = other({ looksEarly: true }).open(fileOf(theirs));
      whileVisible(faults, part, () => log.refresh());
      theirs.append(bytes(batch));
      await theirs.commit();
      theirs.close();
      log.append(bytes(mine.slice(0, 1)));
      await log.commit();
      expect(textsOf(log)).toEqual([...LINES, ...batch, mine[0]]);
      log.close();
      expect(textsOf(other().open(fileOf(log)))).toEqual([...LINES, ...batch, mine[0]]);
    });

    test("is no reason to take back what others wrote behind entries that are given up", async () => {
      const log = open();
      log.append(bytes(mine.slice(0, 1)));
      // A program that knows no lock.
      const theirs = other();
      theirs.append(bytes([userText(id(50), id(4))]));
      await theirs.commit().catch(() => {});
      const before = storedAt(fileOf(log));
      log.rollBack();
      const after = storedAt(fileOf(log));
      expect(before).toContain(userText(id(50), id(4)));
      expect(after).toContain(userText(id(50), id(4)));
      theirs.close();
      log.close();
      const again = harness().files.other().open(fileOf(log));
      expect(textsOf(again).slice(0, 5)).toEqual(LINES);

      function other(): Log {
        return harness().files.other({ ignoresLocks: true }).open(fileOf(log));
      }
    });
  });

  describe(`${name}: a name that another program takes`, () => {
    const wanted = () => beginning(headerText(), sessionPath("new"));

    test("before the first entry is left to it, and said", () => {
      const log = harness().store.create(wanted());
      write(sessionPath("new"), "theirs");
      expect(() => log.append(bytes(LINES.slice(0, 1)), { defer: true })).toThrow(named("already_exists"));
      expect(() => log.append(bytes(LINES.slice(0, 1)))).toThrow(named("already_exists"));
      expect([log.nodes.count, log.persisted]).toEqual([0, false]);
      expect(contentOf(sessionPath("new"))).toBe("theirs");
    });

    test("under entries that are given up is left to it", async () => {
      const log = harness().store.create(wanted());
      log.append(bytes(LINES.slice(0, 1)));
      if (log.durableCount === 1) return;
      remove(sessionPath("new"));
      write(sessionPath("new"), "theirs");
      log.rollBack();
      expect([log.nodes.count, log.persisted]).toEqual([0, false]);
      expect(contentOf(sessionPath("new"))).toBe("theirs");
    });
  });

  describe.runIf(plain)(`${name}: a file that is written anew in place`, () => {
    const rewrite = (path: string, text: string): void => {
      const fd = disk().openAppend(path);
      disk().truncate(fd, 0);
      writeAll(disk(), fd, bytesOf(text));
      disk().close(fd);
    };

    test.each([
      ["with a longer first entry", (text: string) => text.replace("say", "say a little more, and")],
      ["with an entry more in its middle", (text: string) => text.replace("\n", `\n${userText(id(60), null)}\n`)],
      ["with a longer header", (text: string) => text.replace('"cwd"', '"more":1,"cwd"')],
    ])("%s is not one that has grown", (_what, change) => {
      const log = open();
      const text = change(storedAt(fileOf(log)));
      rewrite(fileOf(log), text);
      expect(() => log.append(bytes(mineOnly))).toThrow(
        expect.objectContaining({ name: "storage_failed", retryable: true }),
      );
      expect(storedAt(fileOf(log))).toBe(text);
      expect(log.refresh()).toEqual({ kind: "replaced" });
      const again = log.reopen();
      log.close();
      again.append(bytes(mineOnly));
      expect(storedAt(fileOf(log))).toBe(text + fileText(...mineOnly));
    });

    const mineOnly = [userText(id(40), id(4))];
  });

  describe(`${name}: one writer`, () => {
    test("at a time: the second is refused, told who it is, and gets its turn", async () => {
      const log = open();
      expect(log.acquireLock()).toBe(true);
      expect(log.acquireLock()).toBe(false);
      expect(log.lockedBy).toBeNull();
      const other = harness().files.other().open(fileOf(log));
      expect(other.lockedBy).toMatchObject({ client: expect.any(String), pid: expect.any(Number) });
      expect(() => other.acquireLock()).toThrow(named("session_locked"));
      expect(() => other.append(bytes([userText(id(9), id(4))]))).toThrow(named("session_locked"));
      expect(other.nodes.count).toBe(5);
      log.append(bytes([userText(id(8), id(4))]));
      await log.commit();
      log.unlock();
      expect(other.lockedBy).toBeNull();
      expect(other.acquireLock()).toBe(true);
      expect(other.refresh()).toEqual({ kind: "grown", first: 5 });
      other.append(bytes([userText(id(9), id(8))]));
      await other.commit();
      expect(() => log.append(bytes([userText(id(10), id(8))]))).toThrow(named("session_locked"));
      other.close();
      expect(log.acquireLock()).toBe(true);
    });

    test("is who appends, without asking for it", async () => {
      const log = open();
      const other = harness().files.other().open(fileOf(log));
      log.append(bytes([userText(id(9), id(4))]));
      expect(() => other.acquireLock()).toThrow(named("session_locked"));
      log.close();
      expect(other.acquireLock()).toBe(true);
    });

    test("is the one who made the file", () => {
      const log = harness().store.create(beginning(headerText(), sessionPath("new")));
      log.append(bytes(LINES));
      expect(() => harness().files.other().open(fileOf(log)).acquireLock()).toThrow(named("session_locked"));
    });

    test("is none while everybody reads", () => {
      const log = open();
      const other = harness().files.other().open(fileOf(log));
      expect([textsOf(log), textsOf(other)]).toEqual([LINES, LINES]);
      expect(log.acquireLock()).toBe(true);
    });
  });

  describe(`${name}: committing`, () => {
    test("makes everything durable that was appended before, and nothing else", async () => {
      const log = open();
      log.append(bytes([userText(id(9), id(4))]));
      expect(log.durableCount).toBe(5);
      const first = log.commit();
      log.append(bytes([userText(id(10), id(9))]));
      await first;
      expect(log.durableCount).toBeGreaterThanOrEqual(6);
      await log.commit();
      expect(log.durableCount).toBe(7);
    });

    test("rolling back gives up what is not durable, and that for ever", async () => {
      const log = open();
      log.append(bytes([userText(id(9), id(4))]));
      await log.commit();
      log.append(bytes([userText(id(10), id(9)), userText(id(11), id(10))]));
      log.rollBack();
      expect(idsOf(log)).toEqual([0, 1, 2, 3, 4, 9].map(id));
      log.append(bytes([userText(id(12), id(9))]));
      await log.commit();
      const wanted = [...LINES, userText(id(9), id(4)), userText(id(12), id(9))];
      expect(textsOf(log)).toEqual(wanted);
      expect(storedAt(fileOf(log))).toBe(fileText(headerText(), ...wanted));
    });

    test("rolling back the first entry leaves no file", async () => {
      const log = harness().store.create(beginning(headerText(), sessionPath("new")));
      log.append(bytes(LINES.slice(0, 1)), { defer: true });
      log.append(bytes(LINES.slice(1, 2)));
      log.rollBack();
      expect(log.persisted).toBe(false);
      expect(textsOf(log)).toEqual(LINES.slice(0, 1));
      expect(disk().names(harness().files.folder)).toEqual([]);
      log.append(bytes(LINES.slice(1)));
      await log.commit();
      expect(storedAt(fileOf(log))).toBe(fileText(headerText(), ...LINES));
    });

    test("shares one disk operation among all who wait", async ({ skip }) => {
      const { faults } = harness().files;
      if (!faults) return skip();
      const log = open();
      faults.set(undefined);
      const commits: Promise<void>[] = [];
      for (let n = 0; n < 20; n++) {
        log.append(bytes([userText(id(20 + n), id(4))]));
        commits.push(log.commit());
      }
      await Promise.all(commits);
      expect(log.durableCount).toBe(25);
      expect(faults.operations.filter((operation) => operation === "sync").length).toBeLessThanOrEqual(
        2 * (layout()?.syncs ?? 1),
      );
    });

    test("that fails takes everything back that was not durable, for all who wait", async ({ skip }) => {
      const { files, isCopied } = harness();
      const { faults } = files;
      if (!faults) return skip();
      const log = open();
      log.append(bytes([userText(id(9), id(4))]));
      faults.set({ kind: "fail", at: 1, errno: "EIO" });
      const first = log.commit();
      log.append(bytes([userText(id(10), id(9))]));
      const outcomes = await Promise.allSettled([first, log.commit(), log.commit()]);
      faults.set(undefined);
      expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
      const name = isCopied ? "outcome_unknown" : "storage_failed";
      expect((outcomes[0] as PromiseRejectedResult).reason).toMatchObject({ name });
      expect([log.nodes.count, log.durableCount]).toEqual([5, 5]);
      expect(storedAt(fileOf(log))).toBe(fileText(headerText(), ...LINES));
      // What is elsewhere comes back before the next write.
      await log.ready?.();
      log.append(bytes([userText(id(11), id(4))]));
      await log.commit();
      const kept = isCopied ? [userText(id(9), id(4))] : [];
      expect(storedAt(fileOf(log))).toBe(fileText(headerText(), ...LINES, ...kept, userText(id(11), id(4))));
    });

    test("that fails takes back what came meanwhile, and the commit of that says so, once", async ({ skip }) => {
      const { faults } = harness().files;
      if (!faults) return skip();
      const log = open();
      log.append(bytes([userText(id(9), id(4))]));
      faults.set({ kind: "fail", at: 1, errno: "EIO" });
      const first = log.commit();
      log.append(bytes([userText(id(10), id(4))]));
      await expect(first).rejects.toThrow();
      faults.set(undefined);
      expect([log.nodes.count, log.isCommitDue]).toEqual([5, true]);
      const next = bytes([userText(id(11), id(4))]);
      expect(() => log.append(next)).toThrow(Failure);
      await expect(log.commit()).rejects.toThrow(Failure);
      expect(log.nodes.count).toBe(5);
      await log.ready?.();
      log.append(next);
      await log.commit();
      expect([idsOf(log).includes(id(10)), idsOf(log).at(-1)]).toEqual([false, id(11)]);
    });
  });

  test.runIf(plain && canFail).each([true, false])(
    `${name}: a commit that fails, and after which another program wrote, leaves what it had, and says so (seen before: %s)`,
    async (isSeen) => {
      const faults = harness().files.faults as FaultDisk;
      const log = open();
      const [ours, theirs, next] = [userText(id(9), id(4)), userText(id(10), id(9)), userText(id(11), id(10))];
      log.append(bytes([ours]));
      addMore(fileOf(log), [theirs]);
      if (isSeen) log.refresh();
      faults.set({ kind: "fail", at: 1, errno: "EIO" });
      await expect(log.commit()).rejects.toMatchObject({ name: "outcome_unknown", retryable: true });
      faults.set(undefined);
      log.refresh();
      expect(textsOf(log)).toEqual([...LINES, ours, theirs]);
      await log.ready?.();
      log.append(bytes([next]));
      await log.commit();
      for (const { disk: left } of faults.lasting())
        expect(textOf(left.content(fileOf(log)) as Uint8Array)).toBe(
          fileText(headerText(), ...LINES, ours, theirs, next),
        );
    },
  );

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
      expect(textsOf(again)).toEqual(before);
      expect(again.damage).toEqual([]);
    });
  });
}
