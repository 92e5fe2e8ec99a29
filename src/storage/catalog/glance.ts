/**
 * A first look at the sessions of one directory, for a screen that must not wait: only its own folder is read, and of
 * that the latest changes. Of 10,000 sessions that takes 20 ms, and the whole list takes 300 the first time.
 */

import { basename, join, normalize } from "node:path";
import type { Listed } from "../../core/ports/catalog.ts";
import { makeComparison } from "../../core/search/listing.ts";
import { pause } from "../fs/chunked-io.ts";
import { getKnownPath } from "../fs/confined-disk.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { getInfo } from "../fs/files.ts";
import { matchFolder } from "../fs/folders.ts";
import { getSessionFolder, isSessionName } from "../fs/paths.ts";
import { type FoundStamp, toFoundStamp } from "../fs/stamps.ts";
import { getChangeTime } from "../v2/container-files.ts";
import type { CachedRows, CatalogOptions } from "./cached-rows.ts";
import { scanContainer, stampContainer } from "./containers.ts";
import { scanFile } from "./summary.ts";

/** Sessions that are read without a pause. */
const AT_ONCE = 10;

interface Seen {
  readonly path: string;
  readonly stamp: FoundStamp;
  readonly changed: number;
}

/** Returns the sessions of a directory whose files changed last, `limit` at most, in the order of lists. */
export async function glance(options: CatalogOptions, kept: CachedRows, cwd: string, limit: number): Promise<Listed[]> {
  const { disk, paths } = options;
  const isDirectory = matchFolder(disk, cwd);
  const folders = new Set(
    [cwd, normalize(`${cwd}/.`), getKnownPath(disk, cwd)].map((path) => getSessionFolder(paths, path)),
  );
  const seen = [...folders].flatMap((folder) => sessionsIn(disk, folder));
  seen.sort((a, b) => b.changed - a.changed || (a.path < b.path ? 1 : -1));
  const isOthers = options.findOthers?.();
  const found: Listed[] = [];
  let read = 0;
  for (const one of seen) {
    if (found.length === limit) break;
    const listed =
      (await kept.with(async (file) => kept.stored(file, one.path, one.stamp))) ?? listedOf(options, kept, one);
    if (listed && isDirectory(listed.cwd) && !listed.headerOnly && !isOthers?.(listed)) found.push(listed);
    if (++read % AT_ONCE === 0) await pause();
  }
  return found.sort(makeComparison("modified"));
}

function sessionsIn(disk: Disk, folder: string): Seen[] {
  let names: string[] = [];
  try {
    names = disk.names(folder);
  } catch {
    // No session was begun in that directory.
  }
  const taken = new Set<string>();
  const seen = names.flatMap((name) => seenAt(disk, join(folder, name), name, taken) ?? []);
  return taken.size === 0 ? seen : seen.filter(({ path }) => !taken.has(basename(path)));
}

/** Adds the name of the file whose place a container has to `taken`. */
function seenAt(disk: Disk, path: string, name: string, taken: Set<string>): Seen | undefined {
  if (isContainerName(name)) {
    const { stamp, source } = stampContainer(disk, path) ?? {};
    if (source) taken.add(source);
    return stamp && { path, stamp, changed: getChangeTime(disk, path) ?? 0 };
  }
  const info = isSessionName(name) ? getInfo(disk, path) : null;
  return info?.kind === "file" ? { path, stamp: toFoundStamp(info), changed: info.modified } : undefined;
}

/** Reads a session that the catalog does not know in its present state; undefined for a file that is no session. */
function listedOf({ disk, openLog }: CatalogOptions, kept: CachedRows, { path, stamp }: Seen): Listed | undefined {
  try {
    const scan = isContainerName(path) ? scanContainer(disk, path, openLog) : scanFile(disk, path);
    return scan ? kept.rowOf(path, { ...scan, stamp, time: 0, life: "", sure: false }).listed : undefined;
  } catch {
    // It was removed, or may not be read.
    return undefined;
  }
}
