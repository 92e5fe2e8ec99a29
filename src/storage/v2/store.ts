/** Sessions as Session Store V2 containers (seed 003; session-store-v2 reference, section 0). */

import { dirname, join } from "node:path";
import { toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { makeDamage } from "../../core/format/damage.ts";
import { concat, getMembers } from "../../core/json/json.ts";
import { type Beginning, readContent, type Store } from "../../core/ports/store.ts";
import { BLOBS, CONTAINER, indexFile, isContainerName } from "../fs/container-paths.ts";
import { exists, type FileInfo } from "../fs/disk.ts";
import { guardErrno } from "../fs/files.ts";
import { makeFolderIn, UnsyncedFolders } from "../fs/folders.ts";
import { makeStagingName, removeTree, sweepTemporaryFiles } from "../fs/staging.ts";
import { shareAttachments } from "../log/attachments.ts";
import { makeNoSessionFailure, makeNotASessionFailure, makeNotPublishedFailure } from "../log/failures.ts";
import { FileLog } from "../log/file-log.ts";
import { Builder } from "./builder.ts";
import type { Writers } from "./commits.ts";
import type { SegmentedOptions } from "./container.ts";
import { nameContainer, requireFree, unpublish } from "./create.ts";
import { isUuid, type Pointer } from "./documents.ts";
import { SEGMENT_BYTES } from "./frame.ts";
import { openLog, V2Backend } from "./log.ts";
import {
  findStrayWrites,
  isContainer,
  makeNoContainerFailure,
  makePointer,
  publishPointer,
  readContainerPointer,
  readOrigin,
  resolveContainerFolder,
} from "./pointer.ts";

export type SegmentedStoreOptions = Omit<SegmentedOptions, "segmentBytes" | "checkpointEvery"> &
  Partial<Pick<SegmentedOptions, "segmentBytes" | "checkpointEvery">>;

const CHECKPOINT_EVERY = { entries: 2048, bytes: 16 << 20 };

export function makeSegmentedStore(given: SegmentedStoreOptions): Store {
  const options: SegmentedOptions = {
    ...given,
    segmentBytes: given.segmentBytes ?? SEGMENT_BYTES,
    checkpointEvery: given.checkpointEvery ?? CHECKPOINT_EVERY,
  };
  const { disk, env } = options;
  const writers: Writers = new Map();
  const prepare = ({ header, file = options.containerFor(header) }: Beginning): string => {
    if (!isUuid(header.id))
      throw new Failure(
        "invalid_id",
        "The id of a V2 session is a UUID. Leave newSessionId out to get one, or use jsonl.",
        { sessionId: header.id },
      );
    if (!isContainerName(file))
      throw new Failure("invalid_id", `A V2 session is a folder whose name ends with ${CONTAINER}, not at ${file}.`, {
        sessionPath: file,
      });
    sweepTemporaryFiles(disk, dirname(file), env.now());
    return file;
  };
  return {
    name: "v2",
    create(beginning) {
      const backend = new V2Backend(options, writers, prepare(beginning));
      backend.begin(beginning);
      return new FileLog(backend);
    },
    async publish(beginning, content) {
      const { header, headerLine, attachmentsOf } = beginning;
      const file = prepare(beginning);
      const builder = new Builder(options, makeStagingName(file));
      const unsynced = new UnsyncedFolders(disk);
      let seen: FileInfo | undefined;
      try {
        requireFree(disk, file);
        unsynced.addFound(makeFolderIn(disk, dirname(file)));
        builder.begin(headerLine);
        if (attachmentsOf !== undefined) shareAttachments(disk, attachmentsOf, join(builder.folder, BLOBS));
        const add = async (lines: Iterable<Uint8Array>): Promise<void> => {
          for (const line of lines) {
            builder.add(line);
            if (builder.isBehind) await builder.keepUp();
          }
        };
        if (Symbol.asyncIterator in content) for await (const piece of content) await add(linesOf([piece]));
        else await add(linesOf(readContent(content)));
        const { integrity } = builder.finish(header, "native_v2", "periodic");
        await builder.commit();
        builder.close();
        await builder.syncFolders();
        requireFree(disk, file);
        beginning.requireNew?.();
        const info = disk.info(indexFile(builder.folder));
        nameContainer(disk, builder.folder, file);
        seen = info;
        publishPointer(disk, file, makePointer(integrity.manifestHash, header.id), options.durability);
        unsynced.add(dirname(file));
        if (options.durability === "sync") await unsynced.sync();
        return openContainer(options, writers, file);
      } catch (error) {
        builder.close();
        if (seen) {
          unpublish(options, file, seen);
          throw makeNotPublishedFailure(error, disk, file, header.id);
        }
        removeTree(disk, builder.folder);
        throw toStorageFailure(error, "making the file of the session");
      }
    },
    open: (file, readOnly) => openContainer(readOnly ? { ...options, readOnly } : options, writers, file),
  };
}

/** Yields lines of pieces cut anywhere. Skips empty ones, and a last one without line feed that is no JSON object. */
function* linesOf(content: Iterable<Uint8Array>): Generator<Uint8Array> {
  let held: Uint8Array[] = [];
  for (const piece of content) {
    let start = 0;
    for (let end = piece.indexOf(0x0a); end >= 0; end = piece.indexOf(0x0a, start)) {
      const line = concat([...held, piece.subarray(start, end)]);
      held = [];
      if (line.length > 0) yield line;
      start = end + 1;
    }
    // Copied, because the caller may use the piece's memory again.
    if (start < piece.length) held.push(Uint8Array.from(piece.subarray(start)));
  }
  const last = concat([...held, new Uint8Array(0)]);
  if (last.length > 0 && getMembers(last)) yield last;
}

function openContainer(options: SegmentedOptions, writers: Writers, file: string): FileLog {
  const { disk } = options;
  const pointer = guardErrno("opening the session", () => {
    const found = readContainerPointer(disk, file);
    const origin = found ?? readOrigin(disk, file);
    if (typeof origin === "string")
      throw exists(disk, file) ? makeNotASessionFailure(file, origin) : makeNoSessionFailure(file);
    return found;
  });
  if (pointer !== null && !isContainer(disk, file, pointer))
    throw makeNotASessionFailure(file, `it was rolled back; the session is ${pointer.source ?? "the file next to it"}`);
  const unfinished = pointer !== null && pointer.phase !== "completed" ? unsettled(pointer) : undefined;
  let log: FileLog;
  try {
    log = openLog(options, writers, file, resolveContainerFolder(disk, file), false, unfinished);
  } catch (error) {
    const isMissing = pointer !== null && error instanceof Failure && error.name === "session_not_found";
    throw isMissing ? makeNoContainerFailure(disk, file) : error;
  }
  const strayWrites =
    pointer === null ? undefined : guardErrno("opening the session", () => findStrayWrites(disk, file, pointer));
  if (strayWrites !== undefined) log.addDamage(makeDamage("file_beside", strayWrites, true));
  return log;
}

/** Returns why a session whose migration or rollback was cut off cannot be written, and how to finish that. */
function unsettled({ phase, source }: Pointer): Failure {
  const [what, out] =
    phase === "rollback"
      ? ["A rollback of this session was interrupted", "completes it"]
      : phase === "failed"
        ? [
            "The file that this session is to be rolled back to is missing",
            `uses ${source}.migrated if that was put back, and else writes the session file from the container`,
          ]
        : [
            "A migration of this session was interrupted before it was verified",
            "makes the session file the session again",
          ];
  return new Failure(
    "migration_failed",
    `${what}, so it can be read but not written. rollback_migration (pi-session-server rollback) ${out}${phase === "failed" ? "" : "; migrate_session (pi-session-server migrate --apply) does that and migrates anew"}.`,
    { state: "FAILED", phase },
  );
}
