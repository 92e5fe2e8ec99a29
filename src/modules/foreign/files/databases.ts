/**
 * Databases of other agents, which have many sessions in one file, with paths such as `opencode.db/ses_...`
 * (`gathered.ts`). A database of one session is meant by its own path, too.
 */

import { dirname } from "node:path";
import { Failure } from "../../../core/failure.ts";
import type { UnreadFile } from "../../../core/ports/catalog.ts";
import type { Disk, FileInfo } from "../../../storage/fs/disk.ts";
import { getInfo, useAndClose } from "../../../storage/fs/files.ts";
import { makeNotASessionFailure } from "../../../storage/log/failures.ts";
import { gooseTables } from "../read/goose/rows.ts";
import { opencodeTables } from "../read/opencode/rows.ts";
import { pirustTables } from "../read/pirust/pirust.ts";
import type { StoredSession, TableFormat } from "../read/rows.ts";
import { hasDatabaseHeader } from "../sqlite/pages.ts";
import { DatabaseTables } from "../sqlite/tables.ts";
import {
  type GatheredRecords,
  type GatheredSession,
  getNativeId,
  makePathWithin,
  numberRecords,
  stampTogether,
} from "./gathered.ts";

/** The agents whose databases are known. A new one is a line here. */
const FORMATS: readonly TableFormat[] = [opencodeTables, gooseTables, pirustTables];

/** Attempts to read a database while its agent writes into it. */
const TRIES = 4;
/** Sessions that a failure names. */
const MOST_NAMED = 3;

/** Returns the session of a database that a path names, or undefined. Throws errno errors, not_a_session. */
export function gatherDatabaseSession(disk: Disk, path: string): GatheredSession | undefined {
  const above = dirname(path);
  if (getInfo(disk, above)?.kind === "file")
    return hasDatabaseHeader(disk, above) ? named(disk, above, getNativeId(path)) : undefined;
  if (!hasDatabaseHeader(disk, path)) return undefined;
  const found = withTables(disk, path, (tables, format) => ({ format, sessions: format.sessions(tables) }));
  const damage = found && found.sessions.length > 0 ? undefined : damageIn(disk, path);
  if (damage !== undefined) throw makeNotASessionFailure(path, damagedText("it", damage));
  if (!found) return undefined;
  const { format, sessions } = found;
  if (sessions.length === 1) return gatheredOf(disk, path, format, sessions[0].id);
  throw manyIn(path, format, sessions);
}

/** Returns the path of another session in the database of one; undefined if it does not exist. Throws errno errors. */
export function findInSameDatabase(disk: Disk, path: string, id: string): string | undefined {
  const file = dirname(path);
  if (getInfo(disk, file)?.kind !== "file" || !named(disk, file, id)) return undefined;
  return makePathWithin(file, id);
}

function named(disk: Disk, file: string, id: string): GatheredSession | undefined {
  const format = withTables(disk, file, (tables, found) => (found.has(tables, id) ? found : undefined));
  return format && gatheredOf(disk, file, format, id);
}

function manyIn(file: string, { translator }: TableFormat, sessions: readonly StoredSession[]): Failure {
  const { agent, title } = translator;
  const some = sessions.slice(0, MOST_NAMED).map(({ id }) => makePathWithin(file, id));
  const sentence =
    sessions.length === 0
      ? `${file} is a database of ${title} without sessions.`
      : `${file} is a database of ${title} with ${sessions.length} sessions. Name one by its path, such as ${some.join(", ")}; list_sessions with agents ["${agent}"] (list --agents ${agent}) lists them.`;
  return new Failure("not_a_session", sentence, { sessionPath: file });
}

function gatheredOf(disk: Disk, file: string, format: TableFormat, id: string): GatheredSession {
  return {
    translator: format.translator,
    info: () => getDatabaseInfo(disk, file),
    read: () => recordsOf(disk, file, format, id),
  };
}

/** Returns the records of a session, of one moment if the agent lets it be. */
function recordsOf(disk: Disk, file: string, format: TableFormat, id: string): GatheredRecords {
  for (let tries = 1; ; tries++) {
    const read = useAndClose(new DatabaseTables(disk, file), (tables) => {
      const records = numberRecords(format.records(tables, id));
      const warnings = format.warnings?.(tables, id) ?? [];
      return { records, warnings, lost: tables.faults, isStill: tables.isStill() };
    });
    if (read.isStill || tries === TRIES) return read;
  }
}

/** Returns the stamp of a database with its log and journal; null if it does not exist. */
export function getDatabaseInfo(disk: Disk, file: string): FileInfo | null {
  return stampTogether(disk, file, [`${file}-wal`, `${file}-journal`]);
}

/** Returns the sessions of a database by their paths; an empty map for an unknown program's. Throws errno errors. */
export function listDatabaseSessions(disk: Disk, file: string): Map<string, StoredSession> {
  const found = withTables(disk, file, (tables, { sessions, isOne }) =>
    sessions(tables).map((session): [string, StoredSession] => [
      isOne ? file : makePathWithin(file, session.id),
      session,
    ]),
  );
  return new Map(found);
}

/** Describes a file that has a database's path and no known tables; undefined for the others, and for an empty file. */
export function findUnreadDatabase(disk: Disk, path: string, agent: string): UnreadFile | undefined {
  const info = getInfo(disk, path);
  if (info === null || info.size === 0 || FORMATS.every(({ translator }) => translator.agent !== agent))
    return undefined;
  const at = { path, agent };
  if (!hasDatabaseHeader(disk, path)) {
    const text = `${path} has the name of ${agent}'s database and is no SQLite database. Nothing was read of it. Restore it from a backup.`;
    return { ...at, text, isDamaged: true };
  }
  const damage = damageIn(disk, path);
  if (damage !== undefined) {
    const text = `${damagedText(path, damage)}. Sessions in it may be missing or lack messages. Restore it from a backup.`;
    return { ...at, text, isDamaged: true };
  }
  if (withTables(disk, path, () => true)) return undefined;
  const text = `${path} is an SQLite database in the place of ${agent}'s, with tables that this program does not know. Nothing is wrong with it. A newer version of this program may read it.`;
  return { ...at, text, isDamaged: false };
}

/** Returns a clause about the damage to a whole database; undefined without damage, and while its agent writes. */
function damageIn(disk: Disk, file: string): string | undefined {
  for (let tries = 1; ; tries++) {
    const { damage, isStill } = useAndClose(new DatabaseTables(disk, file), (tables) => ({
      damage: tables.damage,
      isStill: tables.isStill(),
    }));
    if (damage === undefined || isStill || tries === TRIES) return damage;
  }
}

function damagedText(what: string, damage: string): string {
  return `${what} is an SQLite database that is damaged: ${damage}`;
}

function withTables<T>(
  disk: Disk,
  file: string,
  use: (tables: DatabaseTables, format: TableFormat) => T,
): T | undefined {
  return useAndClose(new DatabaseTables(disk, file), (tables) => {
    const format = FORMATS.find((one) => one.recognises(tables));
    return format && use(tables, format);
  });
}
