/** The header lines of sessions, as bytes and as stored text. */

import { Failure } from "../../core/failure.ts";
import { concat } from "../../core/json/json.ts";
import { piecesOf } from "../fs/chunked-io.ts";
import { headerFile, isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { withFile } from "../fs/files.ts";
import { type HeaderPlace, headerOfLine, headerPlaceIn, SEARCHED_BYTES } from "../fs/header.ts";
import type { LifecycleDeps } from "./exclusive.ts";

/** Bytes beyond which a header is not rewritten. */
const MAX_HEADER = 64 << 20;

/** Returns the header's line in an open session file. Throws corrupt. */
export function headerIn(disk: Disk, fd: number, size: number, file: string): HeaderPlace {
  const pieces: Uint8Array[] = [];
  let read = 0;
  for (const piece of piecesOf(disk, fd, 0, Math.min(size, MAX_HEADER))) {
    pieces.push(Uint8Array.from(piece));
    read += piece.length;
    const bytes = concat(pieces);
    const found = headerPlaceIn(bytes, read === size);
    if (found) return found;
    if (read >= SEARCHED_BYTES && bytes.includes(0x0a)) break;
  }
  throw new Failure("corrupt", "The session's header is damaged. repair_session repairs it.", { sessionPath: file });
}

/** Returns the header line of a session, a character for a byte; an empty one if it cannot be read. */
export function headerText({ disk }: LifecycleDeps, session: string): string {
  try {
    return textOfHeader(disk, session);
  } catch {
    return "";
  }
}

export function textOfHeader(disk: Disk, session: string): string {
  return Buffer.from(headerAt(disk, session)).toString("latin1");
}

/** Returns the stored line of a session's header. Throws corrupt. */
function headerAt(disk: Disk, session: string): Uint8Array {
  const file = isContainerName(session) ? headerFile(session) : session;
  return withFile(disk, disk.openRead(file), (fd) => headerIn(disk, fd, disk.infoOf(fd).size, file).line);
}

/** Returns the working directory in the header before a relocation; undefined if there was none. */
export function cwdBefore({ header }: { readonly header: string }): string | undefined {
  const cwd = headerOfLine(Buffer.from(header, "latin1"))?.cwd;
  return typeof cwd === "string" ? cwd : undefined;
}
