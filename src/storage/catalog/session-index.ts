/**
 * Writes the table of sessions that pi_agent_rust keeps as `session-index.sqlite` (seed 002) for scripts. SQLite never
 * opens a file here that another program may have open: an index is replaced as a whole, and inspected in a copy.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import { copyFile } from "../fs/chunked-io.ts";
import { type Disk, isAbsent, makeTemporaryName, renameExclusive } from "../fs/disk.ts";
import { isNameTaken, useAndClose, useFile } from "../fs/files.ts";
import type { OpenDatabase } from "../fs/sqlite.ts";
import { removeDatabase } from "./database-files.ts";
import { type SessionRow, toStorable } from "./session-row.ts";

const COLUMNS = ["path", "id", "cwd", "timestamp", "message_count", "last_modified_ms", "size_bytes", "name"];

const SCHEMA = `
CREATE TABLE sessions(path TEXT PRIMARY KEY, id TEXT NOT NULL, cwd TEXT NOT NULL, timestamp TEXT NOT NULL,
  message_count INTEGER NOT NULL, last_modified_ms INTEGER NOT NULL, size_bytes INTEGER NOT NULL, name TEXT);
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);`;

/** Suffixes of the files that SQL engines create next to an index that they have open. */
const SQLITE_SUFFIX = /^-(?:journal|wal|shm|fsqlite)/;

/**
 * Writes the rows to a new file, or replaces an existing index in one step. The table `meta` stays empty, so that
 * pi_agent_rust reads the session files itself. Throws already_exists when another file has the name, session_locked
 * when another program has the index open, and errno errors.
 */
export async function writeIndex(
  open: OpenDatabase,
  disk: Disk,
  path: string,
  rows: Iterable<SessionRow>,
  isDurable: boolean,
): Promise<void> {
  const replaces = !isAbsent(disk, path);
  // A link to an index remains a link.
  const file = replaces ? disk.realPath(path) : path;
  if (replaces) {
    requireUnused(disk, file);
    const sentence = `Something exists at ${file} already that is not an index of sessions. Choose another path.`;
    if (!(await isIndex(open, disk, file))) throw new Failure("already_exists", sentence, { path: file });
  }
  const temporary = makeTemporaryName(file);
  try {
    disk.close(disk.create(temporary));
    fill(open, temporary, rows);
    await useFile(disk, disk.openAppend(temporary), async (fd) => {
      if (replaces) disk.copyMode(file, fd);
      if (isDurable) await disk.sync(fd);
    });
    if (replaces) {
      requireUnused(disk, file);
      disk.rename(temporary, file);
    } else renameExclusive(disk, temporary, file);
    if (isDurable) await disk.syncFolder(dirname(file));
  } catch (error) {
    removeDatabase(disk, temporary);
    if (!isNameTaken(error)) throw error;
    const sentence = `There is something at ${file} now. Try again, or choose another path.`;
    throw new Failure("already_exists", sentence, { path: file });
  }
}

function fill(open: OpenDatabase, file: string, rows: Iterable<SessionRow>): void {
  useAndClose(open(file), (db) => {
    db.exec(`${SCHEMA} BEGIN`);
    const insert = db.prepare("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    for (const { path, id, cwd, timestamp, messageCount, time, sizeBytes, name } of rows) {
      const texts = [id, cwd ?? "", timestamp ?? ""].map(toStorable);
      insert.run(path, ...texts, messageCount, time, sizeBytes, toStorable(name));
    }
    db.exec("COMMIT");
  });
}

/** Throws session_locked while another program uses an index: its pending writes would be applied to the new one. */
function requireUnused(disk: Disk, file: string): void {
  const own = basename(file);
  const leftover = disk
    .names(dirname(file))
    .find((name) => name.startsWith(own) && SQLITE_SUFFIX.test(name.slice(own.length)));
  if (leftover === undefined) return;
  throw new Failure(
    "session_locked",
    `Another program has the index open, or left ${join(dirname(file), leftover)} when it was killed. End it and try again, ` +
      "choose another path, or delete the index with the files that begin with its name: it is made of the sessions alone.",
    { path: file },
  );
}

/** Returns whether a file is an index written by pi_agent_rust or by us. It may have additional columns. */
async function isIndex(open: OpenDatabase, disk: Disk, file: string): Promise<boolean> {
  if (disk.info(file).kind !== "file") return false;
  const copy = makeTemporaryName(file);
  try {
    await copyFile(disk, file, copy, false);
    return useAndClose(open(copy), (db) => {
      const names = (sql: string): string[] => (db.prepare(sql).all() as { name: string }[]).map(({ name }) => name);
      const tables = names("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name");
      const columns = names("SELECT name FROM pragma_table_info('sessions')");
      return tables.join() === "meta,sessions" && COLUMNS.every((column) => columns.includes(column));
    });
  } catch (error) {
    // SQLite throws this for a file that is not a database.
    if ((error as { errcode?: number }).errcode === undefined) throw error;
    return false;
  } finally {
    removeDatabase(disk, copy);
  }
}
