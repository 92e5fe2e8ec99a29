/** Files for a while: opened and closed again, or written beside their place and put there in one step. */

import { isMissing, isNoFile, storageFailure } from "../../core/errno.ts";
import {
  closeQuietly,
  type Disk,
  exists,
  type FileInfo,
  isCutOff,
  publishNew,
  readAll,
  removeQuietly,
  temporaryName,
  writeAll,
} from "./disk.ts";

/** Runs `run`, also where it returns a promise, and throws the failure that a caller gets for an errno error of it. */
export function guarded<T>(doing: string, run: () => T): T {
  const refuse = (error: unknown): never => {
    throw storageFailure(error, doing);
  };
  try {
    const result = run();
    return result instanceof Promise ? (result.catch(refuse) as T) : result;
  } catch (error) {
    return refuse(error);
  }
}

/** Runs `use` and closes `thing` then, also where `use` returns a promise. */
export function closing<C extends { close(): void }, T>(thing: C, use: (thing: C) => T): T {
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

/** Does so with an open file. That was only read, or `use` syncs what it writes: closing it can lose nothing. */
export function withFile<T>(disk: Disk, fd: number, use: (fd: number) => T): T {
  return closing({ close: () => closeQuietly(disk, fd) }, () => use(fd));
}

/** Returns `length` bytes of an open file. Throws EIO when the file ends too early. */
export function readAt(disk: Disk, fd: number, start: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  readAll(disk, fd, bytes, start);
  return bytes;
}

/** Does so too, but returns null when the file ends too early. */
export function readIfThere(disk: Disk, fd: number, start: number, length: number): Buffer | null {
  try {
    return readAt(disk, fd, start, length);
  } catch (error) {
    if (isCutOff(error)) return null;
    throw error;
  }
}

/** Returns up to `most` bytes from the beginning of a file; null when something else has its path. */
export function beginningOf(disk: Disk, path: string, most: number): Uint8Array | null {
  return withFile(disk, disk.openRead(path), (fd) => {
    const { kind, size } = disk.infoOf(fd);
    if (kind !== "file") return null;
    const bytes = Buffer.allocUnsafe(Math.min(most, size));
    return bytes.subarray(0, disk.read(fd, bytes, 0, bytes.length, 0));
  });
}

/** Returns what is known of a path; null when nothing has it, or when the disk does not say. `plain`: of a link itself. */
export function infoOrNull(disk: Disk, path: string, plain?: boolean): FileInfo | null {
  try {
    return disk.info(path, plain);
  } catch {
    return null;
  }
}

/** Whether an open file has no name any more, as far as the disk tells. */
export function hasNoName(disk: Disk, fd: number): boolean {
  try {
    return disk.infoOf(fd).links === 0;
  } catch {
    return false;
  }
}

/** Returns what `read` returns; null when nothing has the path that it reads. */
export function ifPresent<T>(read: () => T): T | null {
  try {
    return read();
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** Does so, and returns null also where something else than a file has the path. */
export function ifFile<T>(read: () => T): T | null {
  try {
    return ifPresent(read);
  } catch (error) {
    if (isNoFile(error)) return null;
    throw error;
  }
}

/** `sync`: whether the content is on the medium before the file gets its name. */
type WritingOptions = { readonly sync: boolean };

/**
 * Writes a temporary file in the folder of `path`, closes it, and lets `name` give it its name, which may be another
 * one. A failure leaves no file. The caller syncs the folder.
 */
export async function writeTemporary<T>(
  disk: Disk,
  path: string,
  fill: (fd: number) => void | Promise<void>,
  { sync }: WritingOptions,
  name: (temporary: string) => T | Promise<T>,
): Promise<T> {
  const temporary = temporaryName(path);
  const fd = disk.create(temporary);
  try {
    try {
      await fill(fd);
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

/** Replaces a file, or makes it, in one step. A failure leaves it as it was. The caller syncs the folder. */
export function replaceFile(disk: Disk, path: string, bytes: Uint8Array, options: WritingOptions): Promise<void> {
  const fill = (fd: number): void => writeAll(disk, fd, bytes);
  return writeTemporary(disk, path, fill, options, (temporary) => disk.rename(temporary, path));
}

/** Makes a file with this content, in one step and blocking everything else. Throws EEXIST when the name is taken. */
export function publishBytes(disk: Disk, path: string, bytes: Uint8Array, { sync }: WritingOptions): void {
  const fd = publishNew(disk, path, (fd) => {
    writeAll(disk, fd, bytes);
    if (sync) disk.syncNow(fd);
  });
  closeQuietly(disk, fd);
}

/** Returns a name, or for `n` from 2 on the name with that number after it. */
export function nth(name: string, n: number, separator = "."): string {
  return n === 1 ? name : `${name}${separator}${n}`;
}

/** Returns the first of the names `nameOf(1)`, `nameOf(2)` and so on that nothing has. */
export function freeName(disk: Disk, nameOf: (n: number) => string): string {
  let n = 1;
  while (exists(disk, nameOf(n))) n++;
  return nameOf(n);
}

/** Returns the last of these names before the first that nothing has; undefined when nothing has `nameOf(1)`. */
export function lastName(disk: Disk, nameOf: (n: number) => string): string | undefined {
  let n = 0;
  while (exists(disk, nameOf(n + 1))) n++;
  return n === 0 ? undefined : nameOf(n);
}

/** Whether an error says that a name is taken. */
export function isNameTaken(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === "EEXIST";
}
