/** What a migration would do, and what stands against it. */

import { basename, dirname } from "node:path";
import { storageFailure } from "../../core/errno.ts";
import type { SessionHeader } from "../../core/format/entry.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Obstacle, Plan } from "../../core/ports/migrations.ts";
import type { Log } from "../../core/ports/store.ts";
import type { LeafMemory } from "../../core/ports/stores.ts";
import { pause } from "../fs/chunked-io.ts";
import { headerFile } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { exists } from "../fs/disk.ts";
import type { Locks } from "../locks/contract.ts";
import { isUuid } from "./documents.ts";
import { SEGMENT_BYTES } from "./frame.ts";
import { pointerAt, siteIn } from "./migration-site.ts";
import { snapshotOf } from "./pointer.ts";

export interface MigrationOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly locks: Locks;
  /** Bytes beyond which a segment is not written. */
  readonly segmentBytes?: number;
  /** Opens a session file, or a database as if it were one, for reading only. */
  readonly openFile: (file: string, readOnly?: boolean) => Log;
  /** Opens a container that its pointer calls active. */
  readonly openContainer: (container: string, readOnly?: boolean) => Log;
  /** Where the session file of a session goes that began in V2, in the folder of its container. */
  readonly fileFor: (header: SessionHeader, folder: string) => string;
  /** Positions that the stored bytes do not tell go along. */
  readonly leaves?: LeafMemory;
}

/** What a frame has beside its payload, at most, when ids are of the usual length. */
const FRAME_ROOM = 1024;
/** Entries handled without a pause, and bytes. */
const PAUSE_ENTRIES = 4096;
const PAUSE_BYTES = 4 << 20;
/** Obstacles that are told. */
const MOST_OBSTACLES = 100;

/** What a migration of this session file would do, and what stands against it. Reads all of it, writes nothing. */
export async function plan(options: MigrationOptions, file: string, progress?: Progress): Promise<Plan> {
  const log = options.openFile(file, true);
  try {
    return await planOf(options, log, file, true, progress);
  } catch (error) {
    throw storageFailure(error, "reading the session");
  } finally {
    log.close();
  }
}

/** With `reading`, every body is read, which finds what only reading finds. */
export async function planOf(
  options: MigrationOptions,
  log: Log,
  file: string,
  reading: boolean,
  progress?: Progress,
): Promise<Plan> {
  const { disk, segmentBytes = SEGMENT_BYTES } = options;
  const { nodes, header } = log;
  const site = siteIn(dirname(file), header.id, basename(file));
  const obstacles: Obstacle[] = [];
  const tell = (kind: string, reason: string, entryId?: string): void => {
    if (obstacles.length < MOST_OBSTACLES)
      obstacles.push({ kind, reason, ...(entryId === undefined ? {} : { entryId }) });
  };
  if (log.readOnly && log.readOnly.name !== "read_only") tell(log.readOnly.name, log.readOnly.message);
  if (!isUuid(header.id)) tell("invalid_id", `the session id ${header.id} is not a UUID`);
  // What a rollback left that was cut off is put in order first.
  if (exists(disk, snapshotOf(file)) && pointerAt(disk, site.pointer) === null)
    tell("already_exists", `${basename(file)}.migrated exists; move it away`);
  if (exists(disk, site.container) && !exists(disk, headerFile(site.container)))
    tell("already_exists", `${basename(site.container)} exists and is no container of ours; move it away`);
  for (let first = 0; first < nodes.count; ) {
    const past = stretch(log, first);
    for (let p = first; p < past; p++) {
      if (log.length(p) + FRAME_ROOM > segmentBytes)
        tell("too_large", `the line has ${log.length(p)} bytes, and a segment holds ${segmentBytes}`, nodes.id(p));
      else if (reading) log.read(p);
    }
    first = past;
    progress?.(past, nodes.count);
    await pause();
  }
  for (const { kind, reason, entryId } of log.mendable) tell(kind, reason, entryId);
  return { site, entryCount: nodes.count, bytes: disk.info(file).size, version: log.version, obstacles };
}

/** Positions from `first` on whose lines are handled without a pause. */
export function stretch(log: Log, first: number): number {
  let past = first;
  for (let bytes = 0; past < log.nodes.count && bytes < PAUSE_BYTES && past - first < PAUSE_ENTRIES; past++)
    bytes += log.length(past);
  return past;
}
