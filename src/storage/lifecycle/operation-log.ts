/**
 * The record of operations: numbered files of lines in the state folder. Every process appends a line in one write.
 * Each line begins with a line feed of its own, so that a torn one damages none after it.
 */

import { basename, dirname, join } from "node:path";
import { isErrno, isMissing } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { splitLines, toBytes, tryParse } from "../../core/json/json.ts";
import { type Env, makeTimestamp } from "../../core/ports/env.ts";
import type { NewOperation, Operation, OperationLog } from "../../core/ports/operations.ts";
import { getKnownPath } from "../fs/confined-disk.ts";
import { closeQuietly, type Disk, removeQuietly } from "../fs/disk.ts";
import { guardErrno, isNameTaken, readAt, useFile } from "../fs/files.ts";
import { listNames } from "../fs/folders.ts";
import { readHeader } from "../fs/header.ts";
import { drawBytes } from "../fs/random.ts";
import { isLock, type Locks } from "../locks/locks.ts";
import { UnrecordedMarks } from "./unrecorded-marks.ts";

/** Bytes of a file before the next one begins: about 2,000 operations, which are read in some 10 ms. */
const MAX_BYTES = 1 << 20;
/** Number of kept files. People undo recent operations, and session files and the trash are the lasting record. */
const KEPT = 2;
/** Lines that the disk refused and that are kept to be written later; the oldest go first. */
const MOST_UNWRITTEN = 1000;
const READ_ONLY = "This server was started with --read-only. Start one without it to take operations back.";
const NAME = /^(\d{1,9})\.jsonl$/;

interface OperationLogOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly locks: Locks;
  readonly stateFolder: string;
  /** True if durable lines wait for the medium. */
  readonly isDurable: boolean;
  /** True if nothing may be written: then no operation happens that needs a record. */
  readonly readOnly?: boolean;
  readonly maxBytes?: number;
  /** Called with the sentence of a change that is done, and whose record the disk refuses. */
  readonly onUnrecorded?: (text: string) => void;
}

/** Returns whether a file is one of a record of operations, of any state folder. */
export function isOperationFile(disk: Disk, path: string): boolean {
  return NAME.test(basename(path)) && basename(dirname(path)) === "operations" && readHeader(disk, path) === undefined;
}

export function makeOperationLog(options: OperationLogOptions): OperationLog {
  const { disk, env, locks, isDurable } = options;
  const folder = join(options.stateFolder, "operations");
  const file = new NumberedFiles(disk, folder, options.maxBytes ?? MAX_BYTES);
  const marks = new UnrecordedMarks(disk, folder);
  /** Unwritten lines, those of operations by id. As texts they are a fifth of the work of the garbage collector. */
  let unwritten = new Map<string, string>();
  let count = 0;
  let queue: Promise<unknown> = Promise.resolve();

  let known: string | undefined;
  /** Returns the folder to which the records belong. */
  const home = (): string => {
    known ??= getKnownPath(disk, options.stateFolder);
    return known;
  };
  const made = (operation: NewOperation, stage: Operation["stage"]): Operation => {
    const at = makeTimestamp(env);
    return { id: newId(), at, ...operation, stage, state: home() };
  };
  /** Appends all unwritten lines, in order, and returns the open file. Throws errno errors; the lines stay then. */
  const appendAll = (): number => {
    const fd = file.append(unwritten.values());
    marks.drop(unwritten.keys());
    unwritten = new Map();
    return fd;
  };
  const flush = (): void => {
    if (unwritten.size === 0) return;
    quietly(() => closeQuietly(disk, appendAll()));
    for (const id of unwritten.keys()) {
      if (unwritten.size <= MOST_UNWRITTEN) break;
      unwritten.delete(id);
    }
  };
  const write = (line: object): void => {
    if (options.readOnly) return;
    unwritten.set(`line ${count++}`, JSON.stringify(line));
    flush();
  };
  const begun = (operation: NewOperation): Operation => {
    flush();
    const whole = made(operation, "begun");
    unwritten.set(whole.id, JSON.stringify(whole));
    return whole;
  };
  const settle = (ids: readonly string[]): void => {
    for (const id of ids) {
      const line = unwritten.get(id);
      if (line === undefined) continue;
      const operation = JSON.parse(line) as Operation;
      quietly(() => marks.put(operation));
      options.onUnrecorded?.(operation.text);
    }
  };
  return {
    note(operation) {
      const whole = made(operation, "done");
      unwritten.set(whole.id, JSON.stringify(whole));
      return whole.id;
    },
    flush,
    settle,
    async begin(operation) {
      const whole = begun(operation);
      await quietlyLater(async () => {
        await useFile(disk, appendAll(), async (fd) => isDurable && disk.sync(fd));
        if (isDurable && file.takeNew()) await disk.syncFolder(folder);
      });
      return whole;
    },
    beginNow(operation) {
      const whole = begun(operation);
      quietly(() => {
        useFile(disk, appendAll(), (fd) => isDurable && disk.syncNow(fd));
        if (isDurable && file.takeNew()) disk.syncFolderNow(folder);
      });
      return whole;
    },
    done(id, outcome = {}) {
      write({ done: id, ...outcome });
      settle([id]);
    },
    failed(ids) {
      for (const id of ids) unwritten.delete(id);
      marks.drop(ids);
      if (ids.length > 0) write({ failed: ids });
    },
    conclude: (concluded, step) => write({ concluded, step }),
    lines() {
      flush();
      return guardErrno("reading the record of operations", () => [
        ...marks.addTo(Array.from(file.lines(), (line) => withOwner(line, home()))),
        ...Array.from(unwritten.values(), (line) => JSON.parse(line) as object),
      ]);
    },
    alone<T>(run: () => Promise<T>): Promise<T> {
      const result = queue.then(() => locked(run));
      queue = result.catch(() => {});
      return result;
    },
  };

  async function locked<T>(run: () => Promise<T>): Promise<T> {
    if (options.readOnly) throw new Failure("read_only", READ_ONLY);
    const lock = guardErrno("taking the lock of the operations", () => {
      disk.makeFolder(folder);
      return locks.acquire(disk.info(folder));
    });
    if (!isLock(lock))
      throw new Failure(
        "session_locked",
        `${lock.client} (process ${lock.pid}) is taking an operation back at this moment. Try again.`,
        { holder: lock },
      );
    try {
      return await run();
    } finally {
      lock.release();
    }
  }
}

/** Returns a line of the record; an operation that was not made by this state folder says why it is final here. */
function withOwner(line: object, home: string): object {
  const { id, state } = line as { readonly id?: unknown; readonly state?: unknown };
  if (id === undefined || state === home) return line;
  const final =
    typeof state === "string"
      ? `It was made by the state folder at ${state}, and this one is at ${home}: files of the other are left alone. Undo it there.`
      : "Its record does not name the state folder that made it, so files are left alone.";
  return { ...line, final };
}

/** Returns twelve random digits. Ids of entries are another sequence, which tests foresee. */
function newId(): string {
  return drawBytes(6).toString("hex");
}

/** Runs a write of the record. The change happens in any case ({@link OperationLog}), so refusals are ignored. */
function quietly(run: () => void): void {
  try {
    run();
  } catch (error) {
    requireRefusal(error);
  }
}

async function quietlyLater(run: () => Promise<unknown>): Promise<void> {
  try {
    await run();
  } catch (error) {
    requireRefusal(error);
  }
}

/** Throws an error unless it is the disk's. */
function requireRefusal(error: unknown): void {
  if (!isErrno(error) && !(error instanceof Failure)) throw error;
}

/** Files of lines with numbers for names. The last is appended to, and the oldest are removed. */
class NumberedFiles {
  private readonly disk: Disk;
  private readonly folder: string;
  private readonly maxBytes: number;
  /** The number of the file used last. */
  private number = 0;
  private isNew = false;

  constructor(disk: Disk, folder: string, maxBytes: number) {
    this.disk = disk;
    this.folder = folder;
    this.maxBytes = maxBytes;
  }

  /** Returns whether a file was made since the last call, so that its name may not be on the medium. */
  takeNew(): boolean {
    const { isNew } = this;
    this.isNew = false;
    return isNew;
  }

  /** Appends lines in one write, and returns the open file. Throws errno errors. */
  append(lines: Iterable<string>): number {
    const bytes = toBytes(Array.from(lines, (line) => `\n${line}\n`).join(""));
    const fd = this.open();
    try {
      // No second write: it could come after another process's line.
      if (this.disk.write(fd, bytes) < bytes.length) throw Object.assign(new Error("torn"), { code: "ENOSPC" });
      return fd;
    } catch (error) {
      closeQuietly(this.disk, fd);
      throw error;
    }
  }

  /** Yields the parsed lines of all files. */
  *lines(): Generator<object> {
    for (const number of this.numbers()) {
      let bytes: Uint8Array;
      try {
        bytes = useFile(this.disk, this.disk.openRead(this.pathOf(number), true), (fd) => {
          const { kind, size } = this.disk.infoOf(fd);
          const length = kind === "file" ? Math.min(size, 2 * this.maxBytes) : 0;
          return readAt(this.disk, fd, size - length, length);
        });
      } catch (error) {
        // Another process removed it.
        if (isMissing(error)) continue;
        throw error;
      }
      yield* parsedLines(bytes);
    }
  }

  private pathOf(number: number): string {
    return join(this.folder, `${number}.jsonl`);
  }

  private numbers(): number[] {
    const found = listNames(this.disk, this.folder).flatMap((name) => NAME.exec(name)?.[1] ?? []);
    return found.map(Number).sort((a, b) => a - b);
  }

  private open(): number {
    const { disk } = this;
    if (this.number === 0) this.number = this.numbers().at(-1) ?? 1;
    for (;;) {
      const fd = this.openNumber();
      let isFull = true;
      try {
        isFull = disk.infoOf(fd).size >= this.maxBytes;
        if (!isFull) return fd;
      } finally {
        if (isFull) closeQuietly(disk, fd);
      }
      this.number++;
    }
  }

  /** Opens the file with the number, or the last one if another process removed that. Makes a missing one. */
  private openNumber(): number {
    const { disk } = this;
    try {
      return disk.openAppend(this.pathOf(this.number), true);
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
    disk.makeFolder(this.folder);
    const numbers = this.numbers();
    this.number = Math.max(this.number, ...numbers);
    try {
      if (numbers.includes(this.number)) return disk.openAppend(this.pathOf(this.number), true);
      const fd = disk.create(this.pathOf(this.number));
      this.isNew = true;
      for (const old of numbers) if (old <= this.number - KEPT) removeQuietly(disk, this.pathOf(old));
      return fd;
    } catch (error) {
      if (!isNameTaken(error)) throw error;
      return disk.openAppend(this.pathOf(this.number), true);
    }
  }
}

/** Yields the lines that are objects; skips damaged and torn lines. */
function* parsedLines(bytes: Uint8Array): Generator<object> {
  for (const text of splitLines(bytes)) {
    const line = tryParse(text);
    if (typeof line === "object" && line !== null) yield line;
  }
}
