/** Opens files for one operation and closes them, or writes them under a temporary name and renames them. */

import { isErrno, isMissing, isNoFile, toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import {
  closeQuietly,
  type Disk,
  exists,
  type FileInfo,
  isCutOff,
  makeTemporaryName,
  publishNew,
  readAll,
  removeQuietly,
  renameExclusive,
  writeAll,
} from "./disk.ts";

/** Runs `run`, which may return a promise. Turns an errno error of it into the failure for callers. */
export function guardErrno<T>(doing: string, run: () => T): T {
  const refuse = (error: unknown): never => {
    throw toStorageFailure(error, doing);
  };
  try {
    const result = run();
    return result instanceof Promise ? (result.catch(refuse) as T) : result;
  } catch (error) {
    return refuse(error);
  }
}

/** Runs `use`, which may return a promise, and closes `thing` afterwards. */
export function useAndClose<C extends { close(): void }, T>(thing: C, use: (thing: C) => T): T {
  let result: T;
  try {
    result = use(thing);
  } catch (error) {
    thing.close();
    throw error;
  }
  if (result instanceof Promise) return result.finally(() => thing.close()) as T;
  thing.close();
  return result;
}

/** Uses an open file and closes it. `use` only reads it, or syncs it: closing it can lose nothing. */
export function useFile<T>(disk: Disk, fd: number, use: (fd: number) => T): T {
  return useAndClose({ close: () => closeQuietly(disk, fd) }, () => use(fd));
}

/** Returns `length` bytes of an open file. Throws EIO when the file ends too early. */
export function readAt(disk: Disk, fd: number, start: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  readAll(disk, fd, bytes, start);
  return bytes;
}

/** Returns `length` bytes of an open file; null when the file ends too early. */
export function readIfThere(disk: Disk, fd: number, start: number, length: number): Buffer | null {
  try {
    return readAt(disk, fd, start, length);
  } catch (error) {
    if (isCutOff(error)) return null;
    throw error;
  }
}

/** Returns up to `most` bytes from the beginning of a file; null when something else has its path. */
export function readBeginning(disk: Disk, path: string, most: number): Uint8Array | null {
  return useFile(disk, disk.openRead(path), (fd) => {
    const { kind, size } = disk.infoOf(fd);
    if (kind !== "file") return null;
    const bytes = Buffer.allocUnsafe(Math.min(most, size));
    return bytes.subarray(0, disk.read(fd, bytes, 0, bytes.length, 0));
  });
}

/** Returns the facts about a path; null if nothing has it, or the disk refuses. `plain`: about a link itself. */
export function getInfo(disk: Disk, path: string, plain?: boolean): FileInfo | null {
  try {
    return disk.info(path, plain);
  } catch {
    return null;
  }
}

/** Returns whether an open file has lost its name, as far as the disk shows. */
export function hasNoName(disk: Disk, fd: number): boolean {
  try {
    return disk.infoOf(fd).links === 0;
  } catch {
    return false;
  }
}

/** Returns the result of `read`; null if nothing has the path that it reads. */
export function readIfPresent<T>(read: () => T): T | null {
  try {
    return read();
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** Does the same, and returns null also if the path is not a file's. */
export function readIfFile<T>(read: () => T): T | null {
  try {
    return readIfPresent(read);
  } catch (error) {
    if (isNoFile(error)) return null;
    throw error;
  }
}

interface Placing {
  /** True if the file takes the place of another that has the name; otherwise EEXIST is thrown. */
  readonly replace: boolean;
  /** True if the content is on the medium before the file gets its name. */
  readonly sync: boolean;
}

/**
 * Writes a temporary file in the folder of `path`, closes it, and lets `name` give it its name, which may be another
 * one. A failure leaves no file. The caller syncs the folder.
 */
export async function writeTemporary<T>(
  disk: Disk,
  path: string,
  fill: (fd: number, temporary: string) => void | Promise<void>,
  { sync }: Pick<Placing, "sync">,
  name: (temporary: string) => T | Promise<T>,
): Promise<T> {
  const temporary = makeTemporaryName(path);
  const fd = disk.create(temporary);
  try {
    try {
      await fill(fd, temporary);
      if (sync) await disk.sync(fd);
    } catch (error) {
      closeQuietly(disk, fd);
      throw error;
    }
    disk.close(fd);
    return await name(temporary);
  } catch (error) {
    removeQuietly(disk, temporary);
    throw error;
  }
}

/**
 * Writes a file with this content in one step, under a temporary name first. A failure changes nothing. The caller
 * syncs the folder, if needed: some have more to do first.
 */
export function putInPlace(
  disk: Disk,
  path: string,
  content: Uint8Array | ((fd: number) => Promise<void>),
  { replace, sync }: Placing,
): Promise<void> {
  const fill = typeof content === "function" ? content : (fd: number): void => writeAll(disk, fd, content);
  return writeTemporary(disk, path, fill, { sync }, (temporary) =>
    replace ? disk.rename(temporary, path) : renameExclusive(disk, temporary, path),
  );
}

/** Does the same, blocking everything else. */
export function putInPlaceNow(
  disk: Disk,
  path: string,
  content: Uint8Array | ((fd: number) => unknown),
  { replace, sync }: Placing,
): void {
  const fill = (fd: number): void => {
    if (typeof content === "function") content(fd);
    else writeAll(disk, fd, content);
    if (sync) disk.syncNow(fd);
  };
  const name = replace ? (temporary: string): void => disk.rename(temporary, path) : undefined;
  closeQuietly(disk, publishNew(disk, path, fill, name));
}

/** Returns a name, or for `n` from 2 on the name with that number after it. */
export function addNumber(name: string, n: number, separator = "."): string {
  return n === 1 ? name : `${name}${separator}${n}`;
}

/** Returns the first of the names `nameOf(1)`, `nameOf(2)` and so on that nothing has. */
export function findFreeName(disk: Disk, nameOf: (n: number) => string): string {
  let n = 1;
  while (exists(disk, nameOf(n))) n++;
  return nameOf(n);
}

/** Returns the last of these names before the first that nothing has; undefined when nothing has `nameOf(1)`. */
export function findLastName(disk: Disk, nameOf: (n: number) => string): string | undefined {
  let n = 0;
  while (exists(disk, nameOf(n + 1))) n++;
  return n === 0 ? undefined : nameOf(n);
}

/** Returns whether an error says that a name is taken. */
export function isNameTaken(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === "EEXIST";
}

/** Returns the result of `find`; undefined if it would look outside of the folders that this server may use. */
export function findAllowed<T>(find: () => T | undefined): T | undefined {
  try {
    return find();
  } catch (error) {
    if (!isErrno(error) && !(error instanceof Failure)) throw error;
    return undefined;
  }
}
