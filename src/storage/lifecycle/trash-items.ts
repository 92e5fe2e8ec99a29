/**
 * The items of our trash: folders with deleted files, and a record of their former paths. A folder
 * without the files that its record names was left by an interrupted deletion and is ignored.
 */

import { basename, join } from "node:path";
import { parse, toBytes } from "../../core/json/json.ts";
import { getKnownPath } from "../fs/confined-disk.ts";
import { type Disk, exists, readWhole, removeQuietly } from "../fs/disk.ts";
import { addNumber, getInfo, putInPlaceNow } from "../fs/files.ts";
import { listFolder, listNames } from "../fs/folders.ts";
import { getTrashFolder, type StoragePaths } from "../fs/paths.ts";

const RECORD = "record.json";

export interface TrashRecord {
  readonly sessionId: string;
  /** The former path of the session file. */
  readonly path: string;
  /** ISO 8601. */
  readonly deletedAt: string;
  /** The leaf, if it was recorded only in our state folder. */
  readonly leafId?: string | null;
  readonly operationId?: string;
  readonly name?: string | null;
  readonly firstMessage?: string | null;
  readonly messageCount?: number;
  /** The real path of the state folder that it is written for; missing in records of older versions. */
  readonly state?: string;
  /** For leftovers, which belong to no deleted session: their former paths. */
  readonly files?: readonly string[];
}

/** A folder in the trash, with the session in it and its record. */
export interface TrashItem {
  readonly item: string;
  readonly file: string;
  readonly record: TrashRecord;
}

/** The disk and folders of a trash. */
interface Trash {
  readonly disk: Disk;
  readonly paths: StoragePaths;
}

/** Yields the items with a record, even without the files in it. */
export function* listItems({ disk, paths }: Trash): Generator<TrashItem> {
  const trash = getTrashFolder(paths);
  for (const name of listNames(disk, trash)) {
    // A file being removed for good is no item any more.
    const found = name.startsWith(".") ? undefined : readItem(disk, join(trash, name));
    if (found) yield found;
  }
}

export function readItem(disk: Disk, item: string): TrashItem | undefined {
  const record = readRecord(disk, item);
  return record && { item, file: join(item, basename(record.path)), record };
}

/** Returns the folder that an operation made in the trash. */
export function findOwnItem(trash: Trash, operationId: string): string | undefined {
  for (const { item, record } of listItems(trash)) if (record.operationId === operationId) return item;
  return undefined;
}

/** Returns the last item with a session deleted at a path: an interrupted deletion continues in the item it made. */
export function findItemFrom(trash: Trash, path: string, sessionId: string): string | undefined {
  const fits = ({ record, item }: TrashItem): boolean =>
    record.path === path && record.sessionId === sessionId && isInTrash(trash.disk, item);
  return [...listItems(trash)].filter(fits).at(-1)?.item;
}

/** Returns whether an item has the files of its record: the session, or some of the leftovers. */
export function isInTrash(disk: Disk, item: string): boolean {
  const found = readItem(disk, item);
  if (!found) return false;
  const { files } = found.record;
  return files === undefined ? exists(disk, found.file) : files.some((_, n) => exists(disk, getLeftoverPath(found, n)));
}

/** Returns the path of the n-th leftover in its item. Two of different folders may have one name. */
export function getLeftoverPath({ item, record }: Pick<TrashItem, "item" | "record">, n: number): string {
  return join(item, `${n + 1}-${basename(record.files?.[n] ?? "")}`);
}

/** Makes an item with its record, durably, and returns the item. */
export async function makeItem(disk: Disk, paths: StoragePaths, id: string, record: TrashRecord): Promise<string> {
  const item = newFolder(disk, paths, record.deletedAt, id);
  await writeRecord(disk, paths, item, record);
  return item;
}

/** Writes the record of an item, durably, unless it has one. */
export async function writeRecord(disk: Disk, paths: StoragePaths, item: string, record: TrashRecord): Promise<void> {
  const whole = { ...record, state: getKnownPath(disk, paths.state) };
  try {
    if (!exists(disk, join(item, RECORD)))
      putInPlaceNow(disk, join(item, RECORD), toBytes(JSON.stringify(whole)), { replace: false, sync: true });
    await disk.syncFolder(item);
  } catch (error) {
    discardEmpty(disk, item);
    throw error;
  }
}

function newFolder(disk: Disk, paths: StoragePaths, at: string, id: string): string {
  const name = `${at.replace(/[:.]/g, "-")}_${id}`;
  for (let n = 1; ; n++) {
    const item = join(getTrashFolder(paths), addNumber(name, n, "-"));
    if (disk.makeFolder(item).includes(item)) return item;
  }
}

/** Removes an item that contains only its record. */
export function discardEmpty(disk: Disk, item: string): void {
  try {
    if (listContent(disk, item).length > 0) return;
    removeQuietly(disk, join(item, RECORD));
    disk.removeFolder(item);
  } catch {
    // A folder that lacks the files that its record names is ignored.
  }
}

/** Returns the sorted names in an item, without its record. */
export function listContent(disk: Disk, item: string): string[] {
  return listNames(disk, item).filter((name) => name !== RECORD);
}

/** Returns the bytes of all files in a folder. Unreadable folders count nothing. */
export function measureFolder(disk: Disk, folder: string): number {
  let size = 0;
  const folders = [folder];
  for (let at = folders.pop(); at !== undefined; at = folders.pop())
    for (const { name, kind } of listFolder(disk, at))
      if (kind === "folder") folders.push(join(at, name));
      else if (kind === "file") size += getInfo(disk, join(at, name), true)?.size ?? 0;
  return size;
}

function readRecord(disk: Disk, item: string): TrashRecord | undefined {
  try {
    const record = parse(readWhole(disk, join(item, RECORD))) as Partial<TrashRecord> | null;
    const { sessionId, path, deletedAt, files = [], name, firstMessage, state } = record ?? {};
    const texts = [
      sessionId,
      path,
      deletedAt,
      name ?? "",
      firstMessage ?? "",
      state ?? "",
      ...(Array.isArray(files) ? files : [null]),
    ];
    const isWhole = texts.every((value) => typeof value === "string");
    return isWhole ? (record as TrashRecord) : undefined;
  } catch {
    // The folder is not ours, or a crash left it without its record.
    return undefined;
  }
}
