/** Chunked file I/O that pauses between pieces, so that other requests are not held up. */

import { createHash } from "node:crypto";
import { sameBytes } from "../../core/json/json.ts";
import { closeQuietly, type Disk, removeQuietly, takeName, temporaryName, writeAll } from "./disk.ts";

/** Bytes copied without a pause. */
const PIECE = 1 << 20;

/** Yields to the event loop. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/**
 * Copies a file durably to a name that must be free. The copy has the mode of the file or of a new one. Throws EEXIST
 * when the name is taken.
 */
export async function copyFile(
  disk: Disk,
  from: string,
  to: string,
  withMode: boolean,
  done?: (at: number) => void,
): Promise<void> {
  const source = disk.openRead(from);
  try {
    await publish(disk, to, async (copy) => {
      if (withMode) disk.copyMode(from, copy);
      await copyBytes(disk, source, copy, 0, disk.infoOf(source).size, done);
    });
  } finally {
    closeQuietly(disk, source);
  }
}

/**
 * Writes a temporary file in the same folder and gives it the name `path` when it is complete and durable. Throws
 * EEXIST when the name is taken.
 */
export async function publish(disk: Disk, path: string, fill: (fd: number) => Promise<void>): Promise<void> {
  const temporary = temporaryName(path);
  const fd = disk.create(temporary);
  try {
    await fill(fd);
    await disk.sync(fd);
    takeName(disk, temporary, path);
  } catch (error) {
    removeQuietly(disk, temporary);
    throw error;
  } finally {
    closeQuietly(disk, fd);
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
  for (const piece of piecesOf(disk, source, start, end)) {
    writeAll(disk, target, piece);
    at += piece.length;
    done(at);
    await pause();
  }
}

/** Yields the bytes of an open file. Each piece is valid until the next. Throws EIO when the file ends before `end`. */
export function* piecesOf(disk: Disk, fd: number, start: number, end: number): Generator<Uint8Array> {
  const buffer = Buffer.allocUnsafe(Math.min(PIECE, Math.max(0, end - start)));
  for (let at = start; at < end; ) {
    const count = disk.read(fd, buffer, 0, Math.min(buffer.length, end - at), at);
    if (count <= 0) throw Object.assign(new Error("the file ended before its known end"), { code: "EIO" });
    yield buffer.subarray(0, count);
    at += count;
  }
}

/** Whether two files have the same bytes. */
export async function sameContent(disk: Disk, a: string, b: string): Promise<boolean> {
  const fds: number[] = [];
  try {
    for (const path of [a, b]) fds.push(disk.openRead(path));
    const [first, second] = fds.map((fd) => disk.infoOf(fd));
    if (first.kind !== "file" || second.kind !== "file" || first.size !== second.size) return false;
    if (first.inode === second.inode && first.device === second.device) return true;
    return await sameStretch(disk, [fds[0], 0], [fds[1], 0], first.size);
  } finally {
    for (const fd of fds) closeQuietly(disk, fd);
  }
}

/** Whether `length` bytes are the same in two open files, each from its own offset. */
export async function sameStretch(
  disk: Disk,
  [a, startOfA]: readonly [number, number],
  [b, startOfB]: readonly [number, number],
  length: number,
  done: (at: number) => void = () => {},
): Promise<boolean> {
  const other = Buffer.allocUnsafe(Math.min(PIECE, length));
  let at = 0;
  for (const piece of piecesOf(disk, a, startOfA, startOfA + length)) {
    for (let read = 0; read < piece.length; ) {
      const count = disk.read(b, other, read, piece.length - read, startOfB + at + read);
      if (count <= 0) return false;
      read += count;
    }
    if (!sameBytes(piece, other.subarray(0, piece.length))) return false;
    at += piece.length;
    done(at);
    await pause();
  }
  return true;
}

/** Whether a file begins with all the bytes of another. */
export async function beginsWith(disk: Disk, file: string, other: string): Promise<boolean> {
  const fds = [disk.openRead(file), disk.openRead(other)];
  try {
    const { size } = disk.infoOf(fds[1]);
    return size <= disk.infoOf(fds[0]).size && (await sameStretch(disk, [fds[0], 0], [fds[1], 0], size));
  } finally {
    for (const fd of fds) closeQuietly(disk, fd);
  }
}

/** Returns the SHA-256 of a file's bytes as lower-case hex. */
export async function hashOf(disk: Disk, file: string, progress?: (bytes: number) => void): Promise<string> {
  const fd = disk.openRead(file);
  try {
    const hash = createHash("sha256");
    let done = 0;
    for (const piece of piecesOf(disk, fd, 0, disk.infoOf(fd).size)) {
      hash.update(piece);
      done += piece.length;
      progress?.(done);
      await pause();
    }
    return hash.digest("hex");
  } finally {
    closeQuietly(disk, fd);
  }
}
