/** Imports other agents' sessions: the session derived from their files is imported like one of our files. */

import { join } from "node:path";
import { makeDraft, makeEntryLine } from "../../core/format/entry.ts";
import { LEAF_MARKER } from "../../core/format/node-reader.ts";
import { concat, toBytes } from "../../core/json/json.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { Imported } from "../../core/ports/lifecycle.ts";
import type { ForeignSource, Log } from "../../core/ports/store.ts";
import type { TakenFromOriginal } from "../../core/session/stats.ts";
import { findTakenOver } from "../catalog/originals.ts";
import { pause } from "../fs/chunked-io.ts";
import { makeTemporaryName, removeQuietly, writeAll } from "../fs/disk.ts";
import { guardErrno, useAndClose, useFile } from "../fs/files.ts";
import { LF } from "../log/lines.ts";
import { type LifecycleDeps, requireWritable } from "./exclusive.ts";
import { importSession } from "./import.ts";

/** Imports a session file of ours, or another agent's with the sessions within it. */
export function importAny(deps: LifecycleDeps, path: string, progress?: Progress): Promise<Imported> {
  requireWritable(deps);
  const log = deps.openForeign(path);
  if (!log) return importSession(deps, path, progress);
  return useAndClose(log, async () => {
    const source = log.foreign as ForeignSource;
    const imported = await importForeign(deps, log, source, progress);
    const subagents: Imported[] = [];
    for (const within of source.inner()) {
      const inner = deps.openForeign(within);
      // Its agent has replaced the file in between.
      if (!inner) continue;
      const parent = imported.sessionPath;
      subagents.push(
        await useAndClose(inner, () => importForeign(deps, inner, inner.foreign as ForeignSource, undefined, parent)),
      );
    }
    return subagents.length === 0 ? imported : { ...imported, subagents };
  });
}

/** `parent`: the file of the imported session that made this one. */
async function importForeign(
  deps: LifecycleDeps,
  log: Log,
  source: ForeignSource,
  progress: Progress | undefined,
  parent?: string,
): Promise<Imported> {
  const { disk, paths } = deps;
  const parentSession = parent ?? log.header.parentSession;
  const staged = makeTemporaryName(join(paths.state, "foreign", "import"));
  try {
    await guardErrno("preparing the import", () => {
      const takenOver = parent === undefined ? takenOverBy(deps, log) : undefined;
      disk.makeFolder(join(paths.state, "foreign"));
      return useFile(disk, disk.create(staged), (fd) => fill(deps, { log, parentSession, takenOver }, fd));
    });
    const imported = await importSession(deps, staged, progress, (file) => deps.openStaged(file));
    return { ...imported, damage: log.damage, fidelity: source.fidelity() };
  } finally {
    removeQuietly(disk, staged);
  }
}

/** Writes a log as a session file of ours. A leaf that is not its last entry becomes a marker, as we write them. */
async function fill(
  { disk, env }: LifecycleDeps,
  {
    log,
    parentSession,
    takenOver,
  }: { log: Log; parentSession: string | undefined; takenOver: TakenFromOriginal | undefined },
  fd: number,
): Promise<void> {
  const { leafId, ...rest } = log.header;
  const importedFrom = takenOver ? { ...(rest.importedFrom as object), takenOver } : rest.importedFrom;
  const header = { ...rest, ...(parentSession === undefined ? {} : { parentSession }), importedFrom };
  writeAll(disk, fd, concat([toBytes(JSON.stringify(header)), LF]));
  const positions = Int32Array.from({ length: log.nodes.count }, (_, position) => position);
  for (const piece of log.copy(positions)) {
    writeAll(disk, fd, piece);
    await pause();
  }
  if (leafId === undefined) return;
  const parentId = leafId === "" ? null : leafId;
  const id = env.sha256(toBytes(`leaf ${parentId} ${log.nodes.count}`)).slice(0, 16);
  const timestamp = header.timestamp ?? new Date(env.now()).toISOString();
  const data = parentId === null ? { leafId: null } : undefined;
  const { rest: members } = makeDraft("custom", { customType: LEAF_MARKER, data });
  writeAll(disk, fd, concat([makeEntryLine({ type: "custom", id, parentId, timestamp, rest: members }), LF]));
}

/** Returns the entries that a fork copied, if its original's file still exists. */
function takenOverBy(deps: LifecycleDeps, log: Log): TakenFromOriginal | undefined {
  const { parentSession } = log.header;
  const original = parentSession === undefined ? undefined : opened(deps, parentSession);
  return original && useAndClose(original, () => findTakenOver(log, original));
}

/** Returns the session in another agent's file; undefined if it is gone, damaged or not permitted. */
function opened(deps: LifecycleDeps, file: string): Log | undefined {
  try {
    return deps.openForeign(file);
  } catch {
    return undefined;
  }
}
