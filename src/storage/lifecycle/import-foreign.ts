/** Imports other agents' sessions: what is derived from their files is imported like a session file of ours. */

import { join } from "node:path";
import { draftOf, entryLine } from "../../core/format/entry.ts";
import { LEAF_MARKER } from "../../core/format/head.ts";
import { bytesOf, concat } from "../../core/json/json.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { Imported } from "../../core/ports/lifecycle.ts";
import type { ForeignSource, Log } from "../../core/ports/store.ts";
import { pause } from "../fs/chunked-io.ts";
import { removeQuietly, temporaryName, writeAll } from "../fs/disk.ts";
import { closing, guarded, withFile } from "../fs/files.ts";
import { LF } from "../log/lines.ts";
import { type LifecycleDeps, requireWritable } from "./exclusive.ts";
import { importSession } from "./import.ts";

/** Imports a session file of ours, or another agent's. */
export function importAny(deps: LifecycleDeps, path: string, progress?: Progress): Promise<Imported> {
  requireWritable(deps);
  const log = deps.openForeign(path);
  if (!log) return importSession(deps, path, progress);
  return closing(log, () => importForeign(deps, log, log.foreign as ForeignSource, progress));
}

async function importForeign(
  deps: LifecycleDeps,
  log: Log,
  source: ForeignSource,
  progress: Progress | undefined,
): Promise<Imported> {
  const { disk, paths } = deps;
  const staged = temporaryName(join(paths.state, "foreign", "import"));
  try {
    await guarded("preparing the import", () => {
      disk.makeFolder(join(paths.state, "foreign"));
      return withFile(disk, disk.create(staged), (fd) => fill(deps, log, fd));
    });
    const imported = await importSession(deps, staged, progress, (file) => deps.openStaged(file));
    return { ...imported, damage: log.damage, fidelity: source.fidelity() };
  } finally {
    removeQuietly(disk, staged);
  }
}

/** Writes a log as a session file of ours. A leaf that is not its last entry becomes a marker, as we write them. */
async function fill({ disk, env }: LifecycleDeps, log: Log, fd: number): Promise<void> {
  const { leafId, ...header } = log.header;
  writeAll(disk, fd, concat([bytesOf(JSON.stringify(header)), LF]));
  const positions = Int32Array.from({ length: log.nodes.count }, (_, position) => position);
  for (const piece of log.copy(positions)) {
    writeAll(disk, fd, piece);
    await pause();
  }
  if (leafId === undefined) return;
  const parentId = leafId === "" ? null : leafId;
  const id = env.sha256(bytesOf(`leaf ${parentId} ${log.nodes.count}`)).slice(0, 16);
  const timestamp = header.timestamp ?? new Date(env.now()).toISOString();
  const data = parentId === null ? { leafId: null } : undefined;
  const { rest } = draftOf("custom", { customType: LEAF_MARKER, data });
  writeAll(disk, fd, concat([entryLine({ type: "custom", id, parentId, timestamp, rest }), LF]));
}
