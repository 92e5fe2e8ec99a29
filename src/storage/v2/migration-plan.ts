/** Plans a migration: what it would do, and the obstacles to it. */

import { basename, dirname } from "node:path";
import type { SessionHeader } from "../../core/format/entry.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Obstacle, Plan } from "../../core/ports/migrations.ts";
import type { Log } from "../../core/ports/store.ts";
import type { LeafMemory } from "../../core/ports/stores.ts";
import { pause } from "../fs/chunked-io.ts";
import { headerFile } from "../fs/container-paths.ts";
import { type Disk, exists } from "../fs/disk.ts";
import { closing, guarded } from "../fs/files.ts";
import type { Locks } from "../locks/contract.ts";
import { isUuid } from "./documents.ts";
import { SEGMENT_BYTES } from "./frame.ts";
import { snapshotOf } from "./pointer.ts";
import { locationIn, pointerAt } from "./session-location.ts";

export interface MigrationOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly locks: Locks;
  /** Largest size of a segment in bytes. */
  readonly segmentBytes?: number;
  /** Opens a session file, or a database as if it were a read-only session file. */
  readonly openFile: (file: string, readOnly?: boolean) => Log;
  /** Opens a container that its pointer calls active. */
  readonly openContainer: (container: string, readOnly?: boolean) => Log;
  /** Returns the path of the session file for a session that began in V2, in the folder of its container. */
  readonly fileFor: (header: SessionHeader, folder: string) => string;
  /** Leaf positions that the stored bytes do not contain; they move with the session. */
  readonly leaves?: LeafMemory;
}

/** Most bytes that a frame has besides its payload, with ids of the usual length. */
const FRAME_ROOM = 1024;
/** Most entries and bytes that are handled without a pause. */
const PAUSE_ENTRIES = 4096;
const PAUSE_BYTES = 4 << 20;
/** Most obstacles that are reported. */
const MAX_OBSTACLES = 100;

/** Returns what a migration of this session file would do, and the obstacles to it. Reads all of it, writes nothing. */
export async function plan(options: MigrationOptions, file: string, progress?: Progress): Promise<Plan> {
  return closing(options.openFile(file, true), (log) =>
    guarded("reading the session", () => planOf(options, log, file, true, progress)),
  );
}

/** Does the same for an open log. With `reading`, every body is read, which finds what only reading finds. */
export async function planOf(
  options: MigrationOptions,
  log: Log,
  file: string,
  reading: boolean,
  progress?: Progress,
): Promise<Plan> {
  const { disk, segmentBytes = SEGMENT_BYTES } = options;
  const { nodes, header } = log;
  const location = locationIn(dirname(file), header.id, basename(file));
  const obstacles: Obstacle[] = [];
  const add = (kind: string, reason: string, entryId?: string): void => {
    if (obstacles.length < MAX_OBSTACLES)
      obstacles.push({ kind, reason, ...(entryId === undefined ? {} : { entryId }) });
  };
  if (log.readOnly && log.readOnly.name !== "read_only") add(log.readOnly.name, log.readOnly.message);
  if (!isUuid(header.id)) add("invalid_id", `the session id ${header.id} is not a UUID`);
  // With a pointer, a rollback that was cut off left this, and it is finished first.
  if (exists(disk, snapshotOf(file)) && pointerAt(disk, location.pointer) === null)
    add("already_exists", `${basename(file)}.migrated exists; move it away`);
  if (exists(disk, location.container) && !exists(disk, headerFile(location.container)))
    add("already_exists", `${basename(location.container)} exists and is not a container of a session; move it away`);
  for await (const positions of stretchesOf(log)) {
    for (const p of positions)
      if (log.length(p) + FRAME_ROOM > segmentBytes)
        add("too_large", `the line has ${log.length(p)} bytes, and a segment holds ${segmentBytes}`, nodes.id(p));
      else if (reading) log.read(p);
    progress?.(positions[positions.length - 1] + 1, nodes.count);
  }
  for (const { kind, reason, entryId } of log.repairable) add(kind, reason, entryId);
  return { location, entryCount: nodes.count, bytes: disk.info(file).size, version: log.version, obstacles };
}

/** Yields the positions of a log's entries, as many at a time as are handled without a pause. */
export async function* stretchesOf(log: Log): AsyncGenerator<Int32Array> {
  for (let first = 0; first < log.nodes.count; ) {
    let past = first;
    for (let bytes = 0; past < log.nodes.count && bytes < PAUSE_BYTES && past - first < PAUSE_ENTRIES; past++)
      bytes += log.length(past);
    yield range(first, past);
    first = past;
    await pause();
  }
}

/** Returns the positions from `first` to before `past`. */
export function range(first: number, past: number): Int32Array {
  return Int32Array.from({ length: past - first }, (_, i) => first + i);
}
