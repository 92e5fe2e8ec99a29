/**
 * Sessions in databases of pi_agent_rust (`sqlite_v1` of seed 003), as migrations need them: read as the lines of a
 * session file, and written as a copy with more rows or as a new database. An existing database is never written in
 * place.
 *
 * `pi_session_header(id, json)` has one row, `pi_session_entries(seq, json)` counts from 1, `pi_session_meta(key,
 * value)` has the number of messages and the name, and `pi_session_blobs(digest, byte_length, data)`, if there is one,
 * has the media that entries refer to.
 */

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isErrno } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { concat, parse } from "../../core/json/json.ts";
import type { Log } from "../../core/ports/store.ts";
import { type Disk, type FileInfo, getInfoIfPresent, writeAll } from "../fs/disk.ts";
import { readBeginning, readIfPresent, useFile } from "../fs/files.ts";
import { beginsDatabase } from "../fs/header.ts";
import { type Database, findSqlite } from "../fs/sqlite.ts";
import { LF } from "../log/lines.ts";
import { sha256 } from "./frame.ts";

/** Returns whether a file begins as an SQLite database does; false when it is missing. Throws errno errors. */
export function isDatabase(disk: Disk, file: string): boolean {
  const bytes = readIfPresent(() => readBeginning(disk, file, 16));
  return bytes !== null && beginsDatabase(bytes);
}

/** Returns the session id in a database. Throws the failures of {@link readDatabaseLines}. */
export function readDatabaseId(disk: Disk, file: string): string {
  return reading(disk, file, (database) => String(headerIn(database, file).id));
}

function headerIn(database: Database, file: string): EntryRow {
  const rows = database.prepare("SELECT id, CAST(json AS BLOB) AS json FROM pi_session_header").all() as EntryRow[];
  if (rows.length !== 1) throw noSession(file, `it has ${rows.length} headers`);
  return rows[0];
}

/**
 * Returns the header and the entries of a database as the bytes of a session file, each row's text as it is. Throws
 * migration_failed when `sqlite` finds none, when changes lie next to the database, or when the rows are not a session.
 */
export function readDatabaseLines(disk: Disk, file: string, sqlite = findSqlite): Uint8Array {
  const read = (database: Database): Uint8Array => {
    const { id, json } = headerIn(database, file);
    const header = parse(json) as { id?: unknown; version?: unknown } | null;
    if (header === null || header.id !== id) throw noSession(file, "its header is of another id than its row");
    if (header.version !== 3)
      throw noSession(file, `its header is of version ${JSON.stringify(header.version)}, not 3`);
    const lines: Uint8Array[] = [json, LF];
    const rows = database.prepare("SELECT seq, CAST(json AS BLOB) AS json FROM pi_session_entries ORDER BY seq").all();
    for (const [index, row] of (rows as EntryRow[]).entries()) {
      if (Number(row.seq) !== index + 1) throw noSession(file, `its row ${index + 1} has the number ${row.seq}`);
      if (row.json.includes(0x0a)) throw noSession(file, `its row ${row.seq} has a line feed in it`);
      lines.push(row.json, LF);
    }
    return concat(lines);
  };
  return reading(disk, file, read, sqlite);
}

interface EntryRow {
  readonly id: unknown;
  readonly seq: unknown;
  readonly json: Uint8Array;
}

/** Writes the media of a database into a folder, as files named by their SHA-256. Fsyncs these, but not the folder. */
export function extractBlobs(disk: Disk, file: string, folder: string): void {
  reading(disk, file, (database) => {
    if (!hasTable(database, "pi_session_blobs")) return;
    const blobs = database.prepare("SELECT digest, data FROM pi_session_blobs").all();
    if (blobs.length > 0) disk.makeFolder(folder);
    for (const { digest, data } of blobs as { digest: string; data: Uint8Array }[]) {
      const hash = sha256(data);
      if (digest !== `sha256:${hash}`) throw noSession(file, `its medium ${digest} is not what its digest says`);
      useFile(disk, disk.create(join(folder, hash)), (fd) => {
        writeAll(disk, fd, data);
        disk.syncNow(fd);
      });
    }
  });
}

/**
 * Completes a database that has the first `has` of these entries, or fills an empty file. `blobs`: media by their
 * SHA-256. When it returns, all of it is in the one file, and durable. Throws migration_failed.
 */
export function writeDatabase(
  disk: Disk,
  file: string,
  { header, headerLine }: Pick<Log, "header" | "headerLine">,
  lines: Iterable<Uint8Array>,
  has: number,
  blobs: Iterable<readonly [hash: string, data: Uint8Array]>,
): void {
  const database = (findSqlite() ?? missing())(file);
  try {
    database.exec("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; BEGIN IMMEDIATE");
    database.exec(`
      CREATE TABLE IF NOT EXISTS pi_session_header(id TEXT PRIMARY KEY, json TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS pi_session_entries(seq INTEGER PRIMARY KEY, json TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS pi_session_meta(key TEXT PRIMARY KEY, value TEXT NOT NULL)`);
    // Bytes are stored as they are, so that malformed text is unchanged.
    database
      .prepare("INSERT OR IGNORE INTO pi_session_header(id, json) VALUES (?, CAST(? AS TEXT))")
      .run(header.id, headerLine);
    const insert = database.prepare("INSERT INTO pi_session_entries(seq, json) VALUES (?, CAST(? AS TEXT))");
    let seq = 0;
    let messages = 0;
    let name = "";
    for (const line of lines) {
      if (++seq > has) insert.run(seq, line);
      const entry = parse(line) as { type?: unknown; name?: unknown };
      if (entry.type === "message") messages++;
      if (entry.type === "session_info" && typeof entry.name === "string") name = entry.name;
    }
    const meta = database.prepare("INSERT OR REPLACE INTO pi_session_meta(key, value) VALUES (?, ?)");
    meta.run("message_count", String(messages));
    meta.run("name", name);
    for (const [hash, data] of blobs) {
      database.exec(
        "CREATE TABLE IF NOT EXISTS pi_session_blobs(digest TEXT PRIMARY KEY NOT NULL, byte_length INTEGER NOT NULL, data BLOB NOT NULL)",
      );
      database
        .prepare("INSERT OR IGNORE INTO pi_session_blobs(digest, byte_length, data) VALUES (?, ?, ?)")
        .run(`sha256:${hash}`, data.length, data);
    }
    database.exec("COMMIT");
  } catch (error) {
    throw failureOf(
      error,
      `SQLite cannot write the database ${file}`,
      "Make room or check the disk, then roll back again.",
    );
  } finally {
    database.close();
  }
  useFile(disk, disk.openAppend(file), (fd) => disk.syncNow(fd));
}

/** Returns a disk on which a file has the bytes of {@link readDatabaseLines}, which readers of session files know. */
export function makeDiskWithBytes(disk: Disk, file: string, bytes: Uint8Array): Disk {
  // No descriptor of the system is below 0.
  const own = -0x5051;
  const infoOf = (): FileInfo => ({ ...disk.info(file), size: bytes.length });
  const overridden: Partial<Disk> = {
    openRead: (path) => (path === file ? own : disk.openRead(path)),
    info: (path) => (path === file ? infoOf() : disk.info(path)),
    infoOf: (fd) => (fd === own ? infoOf() : disk.infoOf(fd)),
    close(fd) {
      if (fd !== own) disk.close(fd);
    },
    read(fd, into, offset, length, position) {
      if (fd !== own) return disk.read(fd, into, offset, length, position);
      const piece = bytes.subarray(position, position + length);
      into.set(piece, offset);
      return piece.length;
    },
  };
  return new Proxy(disk, {
    get(target, name) {
      const value = overridden[name as keyof Disk] ?? target[name as keyof Disk];
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** Throws migration_failed when files next to a database hold changes that are not in it yet. */
export function requireMerged(disk: Disk, file: string): void {
  for (const ending of ["-wal", "-journal"])
    if ((getInfoIfPresent(disk, `${file}${ending}`)?.size ?? 0) > 0)
      throw new Failure(
        "migration_failed",
        `${file}${ending} holds changes that are not in the database yet: a program has the session open, or died. Close it there, or open it once with pi_agent_rust and close it again; then migrate.`,
        { sessionPath: file },
      );
}

function reading<T>(disk: Disk, file: string, read: (database: Database) => T, sqlite = findSqlite): T {
  const open = sqlite() ?? missing();
  requireMerged(disk, file);
  const url = pathToFileURL(file);
  // SQLite then creates no file next to the database and locks no other program out.
  url.searchParams.set("immutable", "1");
  let database: Database | undefined;
  try {
    database = open(url.href, true);
    if (!hasTable(database, "pi_session_header") || !hasTable(database, "pi_session_entries"))
      throw noSession(file, "it has no tables of pi_agent_rust's");
    const { encoding } = database.prepare("PRAGMA encoding").get() as { encoding: string };
    if (encoding !== "UTF-8") throw noSession(file, `its text encoding is ${encoding}`);
    return read(database);
  } catch (error) {
    throw failureOf(
      error,
      `SQLite cannot read the database ${file}`,
      "Check it with pi_agent_rust, then migrate again.",
    );
  } finally {
    database?.close();
  }
}

function hasTable(database: Database, name: string): boolean {
  return database.prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?").get(name) !== undefined;
}

function missing(): never {
  throw new Failure(
    "migration_failed",
    "This session is in an SQLite database, and there is no SQLite to read it with. Run the server with Node 22.13 or later, or install the package @photostructure/sqlite with it.",
  );
}

function noSession(file: string, reason: string): Failure {
  return new Failure("migration_failed", `The database ${file} is not a session of pi_agent_rust: ${reason}.`, {
    sessionPath: file,
  });
}

/** Turns an error of SQLite or of JSON in a row into migration_failed; returns any other as it is. */
function failureOf(error: unknown, what: string, advice: string): unknown {
  if (error instanceof Failure || isErrno(error)) return error;
  const { message } = error as Error;
  const text = { what: `${what}: ${message}.`, state: "The original is unchanged.", advice };
  return new Failure("migration_failed", text, {}, { cause: error });
}
