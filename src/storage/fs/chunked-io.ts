/** Chunked file I/O that pauses between pieces, so that other requests are not held up. */

import { createHash } from "node:crypto";
import { areSameBytes, toBytes } from "../../core/json/json.ts";
import { type Disk, type FileInfo, readAll, refusesLinks, renameExclusive, writeAll } from "./disk.ts";
import { isNameTaken, putInPlaceNow, readAt, useFile, writeTemporary } from "./files.ts";
import { isSameFile } from "./stamps.ts";

/** Bytes copied without a pause. */
const PIECE = 1 << 20;

/** Yields to the event loop. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Copies a file durably to a free name, with its mode or that of a new file. Returns the copy. Throws EEXIST. */
export async function copyFile(
  disk: Disk,
  from: string,
  to: string,
  withMode: boolean,
  done?: (at: number) => void,
): Promise<FileInfo> {
  return useFile(disk, disk.openRead(from), (source) => {
    const fill = async (copy: number): Promise<void> => {
      if (withMode) disk.copyMode(from, copy);
      await copyBytes(disk, source, copy, 0, disk.infoOf(source).size, done);
    };
    return writeTemporary(disk, to, fill, { sync: true }, (temporary) => claimName(disk, temporary, to));
  });
}

/** Gives a temporary file a name that must be free. Returns the file with the name. Throws EEXIST. */
export function claimName(disk: Disk, temporary: string, path: string): FileInfo {
  const made = disk.info(temporary);
  renameExclusive(disk, temporary, path);
  return made;
}

/** Gives a file a free name by a link, else by a durable copy. Returns the file with the name. Throws EEXIST. */
export async function linkOrCopy(disk: Disk, file: string, name: string): Promise<FileInfo> {
  const linked = disk.info(file);
  try {
    disk.link(file, name);
    return linked;
  } catch (error) {
    if (isNameTaken(error)) throw error;
    return copyFile(disk, file, name, true);
  }
}

/** Gives a file that will not change a free name: a link or, on a disk without links, a durable copy with its mode. */
export function keepAs(disk: Disk, path: string, name: string): void {
  try {
    disk.link(path, name);
  } catch (error) {
    if (!refusesLinks(error)) throw error;
    useFile(disk, disk.openRead(path), (from) => {
      const fill = (fd: number): void => {
        disk.copyMode(path, fd);
        for (const piece of readPieces(disk, from, 0, disk.infoOf(from).size)) writeAll(disk, fd, piece);
      };
      putInPlaceNow(disk, name, fill, { replace: false, sync: true });
    });
  }
}

/** Appends the bytes of an open file from `start` up to `end` to another. */
export async function copyBytes(
  disk: Disk,
  source: number,
  target: number,
  start: number,
  end: number,
  done: (at: number) => void = () => {},
): Promise<void> {
  let at = start;
  for (const piece of readPieces(disk, source, start, end)) {
    writeAll(disk, target, piece);
    at += piece.length;
    done(at);
    await pause();
  }
}

/** Appends the bytes of a file to an open one, and a line feed when its last line has none. */
export async function copyLines(disk: Disk, from: string, to: number): Promise<void> {
  await useFile(disk, disk.openRead(from), async (fd) => {
    const { size } = disk.infoOf(fd);
    const last = Uint8Array.of(0x0a);
    await copyBytes(disk, fd, to, 0, size);
    if (size > 0) readAll(disk, fd, last, size - 1);
    if (last[0] !== 0x0a) writeAll(disk, to, Uint8Array.of(0x0a));
  });
}

/** Yields the bytes of an open file. Each piece is valid until the next. Throws EIO when the file ends before `end`. */
export function* readPieces(disk: Disk, fd: number, start: number, end: number): Generator<Uint8Array> {
  const buffer = Buffer.allocUnsafe(Math.min(PIECE, Math.max(0, end - start)));
  for (let at = start; at < end; at += PIECE) {
    const piece = buffer.subarray(0, end - at);
    readAll(disk, fd, piece, at);
    yield piece;
  }
}

/** Yields the bytes of an open file in pieces of whole lines, but for the last piece. Throws what `readPieces` throws. */
export function* readWholeLines(disk: Disk, fd: number, start: number, end: number): Generator<Uint8Array> {
  for (let at = start, most = PIECE; at < end; ) {
    const bytes = readAt(disk, fd, at, Math.min(most, end - at));
    const length = at + bytes.length < end ? bytes.lastIndexOf(0x0a) + 1 : bytes.length;
    if (length > 0) yield bytes.subarray(0, length);
    at += length;
    most = length > 0 ? PIECE : 2 * most;
  }
}

/**
 * Yields pieces as bytes, short ones together in blocks of at most `size`, because a write costs more than copying
 * them. Each block is valid until the next; an empty piece ends one, so that a pause may come there.
 */
export function* joinBlocks(pieces: Iterable<string | Uint8Array>, size: number): Generator<Uint8Array> {
  let gathered: Buffer | undefined;
  let filled = 0;
  for (const piece of pieces) {
    const bytes = typeof piece === "string" ? toBytes(piece) : piece;
    if (bytes.length === 0) {
      yield gathered?.subarray(0, filled) ?? bytes;
      filled = 0;
      continue;
    }
    if (gathered && filled + bytes.length > size) {
      if (filled > 0) yield gathered.subarray(0, filled);
      filled = 0;
    }
    if (bytes.length >= size) yield bytes;
    else {
      gathered ??= Buffer.allocUnsafe(size);
      gathered.set(bytes, filled);
      filled += bytes.length;
    }
  }
  if (gathered && filled > 0) yield gathered.subarray(0, filled);
}

/** Returns whether two files have the same bytes. */
export async function hasSameContent(disk: Disk, a: string, b: string): Promise<boolean> {
  return useFile(disk, disk.openRead(a), (ofA) =>
    useFile(disk, disk.openRead(b), async (ofB) => {
      const [first, second] = [disk.infoOf(ofA), disk.infoOf(ofB)];
      if (first.kind !== "file" || second.kind !== "file" || first.size !== second.size) return false;
      return isSameFile(first, second) || (await hasSameBytes(disk, [ofA, 0], [ofB, 0], first.size));
    }),
  );
}

/** Returns whether `length` bytes are the same in two open files, each from its own offset. */
export async function hasSameBytes(
  disk: Disk,
  [a, startOfA]: readonly [number, number],
  [b, startOfB]: readonly [number, number],
  length: number,
  done: (at: number) => void = () => {},
): Promise<boolean> {
  const other = Buffer.allocUnsafe(Math.min(PIECE, length));
  let at = 0;
  for (const piece of readPieces(disk, a, startOfA, startOfA + length)) {
    for (let read = 0; read < piece.length; ) {
      const count = disk.read(b, other, read, piece.length - read, startOfB + at + read);
      if (count <= 0) return false;
      read += count;
    }
    if (!areSameBytes(piece, other.subarray(0, piece.length))) return false;
    at += piece.length;
    done(at);
    await pause();
  }
  return true;
}

/** Cuts an open file back to a size, if the bytes after it begin a stretch of another. Returns whether it did. */
export async function cutBack(
  disk: Disk,
  stretch: readonly [number, number],
  fd: number,
  size: number,
): Promise<boolean> {
  try {
    const length = disk.infoOf(fd).size - size;
    // To cut a shorter one would make it longer.
    if (length < 0 || !(await hasSameBytes(disk, stretch, [fd, size], length))) return false;
    if (disk.infoOf(fd).size !== size + length) return false;
    disk.truncate(fd, size);
    return true;
  } catch {
    // Unreadable bytes may not be ours.
    return false;
  }
}

/** Returns the SHA-256 of a file's bytes as lower-case hex. */
export async function hashFile(disk: Disk, file: string, progress?: (bytes: number) => void): Promise<string> {
  return useFile(disk, disk.openRead(file), async (fd) => {
    const hash = createHash("sha256");
    let done = 0;
    for (const piece of readPieces(disk, fd, 0, disk.infoOf(fd).size)) {
      hash.update(piece);
      done += piece.length;
      progress?.(done);
      await pause();
    }
    return hash.digest("hex");
  });
}
