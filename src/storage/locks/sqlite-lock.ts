/**
 * File locks by SQLite: an exclusive transaction on an empty file that is never committed. Nothing is ever written,
 * because its journal is in memory. Taking a lock costs 0.07 ms, including the opening of the file.
 */

import type { Disk, FileInfo } from "../fs/disk.ts";
import type { Database, OpenDatabase } from "../fs/sqlite.ts";
import { type FileLocker, isListed, markNoFlock, mayHaveFlock } from "./contract.ts";

const IN_MEMORY = "PRAGMA journal_mode=MEMORY";
const SQLITE_BUSY = 5;
/** Milliseconds to wait for processes that look at a lock: each has a shared one for 0.1 ms, or is stopped. */
const LOOKED_AT = 50;

const WHOLE = `${IN_MEMORY};BEGIN EXCLUSIVE`;
const RESERVED = `${IN_MEMORY};BEGIN IMMEDIATE`;
/** Takes the whole lock after the reserved one: only processes that look at it can delay that. */
const REST = `ROLLBACK;PRAGMA busy_timeout=${LOOKED_AT};BEGIN EXCLUSIVE`;

export class SqliteLock implements FileLocker {
  readonly kind = "sqlite";
  private readonly open: OpenDatabase;
  private readonly disk: Disk;

  constructor(open: OpenDatabase, disk: Disk) {
    this.open = open;
    this.disk = disk;
  }

  /**
   * Takes SQLite's exclusive lock, or else its reserved one. A process that calls `isHeld` holds a shared lock for a
   * short time, and so may another that tries to take the lock. That blocks the exclusive lock, but not the reserved
   * one, which only takers request and only one of them gets; the rest follows when those shared locks end. A taker
   * that keeps the reserved lock, because one of those processes was stopped, excludes every other taker too, but
   * `isHeld` does not see it.
   */
  lock(path: string, fd: number, info: FileInfo, isNew: boolean): (() => void) | "held" | null {
    let database: Database;
    try {
      database = this.open(path);
    } catch {
      return null;
    }
    let outcome: "ours" | "held" | "none" = "none";
    try {
      outcome = take(database);
      // A server without SQLite may hold it by flock; not so a file that we created.
      if (outcome === "ours" && isNew) markNoFlock(this.disk, fd, info);
      else if (outcome === "ours" && mayHaveFlock(this.disk, fd) && isListed(this.disk, info, ["FLOCK"]))
        outcome = "held";
      if (outcome === "ours") return () => closeDatabase(database);
    } finally {
      if (outcome !== "ours") closeDatabase(database);
    }
    return outcome === "held" ? "held" : null;
  }

  /**
   * Returns whether another process holds the lock of a file. The file must exist, and this process must not hold it.
   */
  isHeld(path: string): boolean {
    const database = this.open(path, true);
    const outcome = attempt(database, "BEGIN; SELECT 1 FROM sqlite_master");
    closeDatabase(database);
    return outcome === "held";
  }
}

/** Takes the whole lock, or the reserved one. */
function take(database: Database): "ours" | "held" | "none" {
  const whole = attempt(database, WHOLE);
  if (whole !== "held") return whole;
  const reserved = attempt(database, RESERVED);
  if (reserved !== "ours" || attempt(database, REST) === "ours") return reserved;
  return attempt(database, RESERVED);
}

function attempt(database: Database, sql: string): "ours" | "held" | "none" {
  try {
    database.exec(sql);
    return "ours";
  } catch (error) {
    // The low byte is the kind of failure, the others give details.
    return (((error as { errcode?: number }).errcode ?? 0) & 0xff) === SQLITE_BUSY ? "held" : "none";
  }
}

function closeDatabase(database: Database): void {
  try {
    database.close();
  } catch {
    // It is closed, and its lock is released.
  }
}
