/** The header lines of sessions, as bytes and as stored text. */

import { Failure } from "../../core/failure.ts";
import { concat } from "../../core/json/json.ts";
import { readPieces } from "../fs/chunked-io.ts";
import { headerFile, isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { useFile } from "../fs/files.ts";
import { findHeaderIn, type HeaderPlace, parseHeaderLine, SEARCHED_BYTES } from "../fs/header.ts";
import type { LifecycleDeps } from "./exclusive.ts";

/** Bytes beyond which a header is not rewritten. */
const MAX_HEADER = 64 << 20;

/** Returns the header's line in an open session file. Throws corrupt. */
export function readHeaderLine(disk: Disk, fd: number, size: number, file: string): HeaderPlace {
  const pieces: Uint8Array[] = [];
  let read = 0;
  for (const piece of readPieces(disk, fd, 0, Math.min(size, MAX_HEADER))) {
    pieces.push(Uint8Array.from(piece));
    read += piece.length;
    const bytes = concat(pieces);
    const found = findHeaderIn(bytes, read === size);
    if (found) return found;
    if (read >= SEARCHED_BYTES && bytes.includes(0x0a)) break;
  }
  throw new Failure("corrupt", "The session's header is damaged. repair_session repairs it.", { sessionPath: file });
}

/** Returns the header line of a session, a character for a byte; an empty one if it cannot be read. */
export function readHeaderText({ disk }: LifecycleDeps, session: string): string {
  try {
    return requireHeaderText(disk, session);
  } catch {
    return "";
  }
}

export function requireHeaderText(disk: Disk, session: string): string {
  return Buffer.from(headerAt(disk, session)).toString("latin1");
}

/** Returns the stored line of a session's header. Throws corrupt. */
function headerAt(disk: Disk, session: string): Uint8Array {
  const file = isContainerName(session) ? headerFile(session) : session;
  return useFile(disk, disk.openRead(file), (fd) => readHeaderLine(disk, fd, disk.infoOf(fd).size, file).line);
}

/** Returns the working directory in the header before a relocation; undefined if there was none. */
export function getPreviousCwd({ header }: { readonly header: string }): string | undefined {
  const cwd = parseHeaderLine(Buffer.from(header, "latin1"))?.cwd;
  return typeof cwd === "string" ? cwd : undefined;
}
