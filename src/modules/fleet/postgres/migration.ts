/** The tables of a database: created if missing, upgraded, or refused if they have another version. */

import { describeUnchanged, Failure } from "../../../core/failure.ts";
import { BULK_TIMEOUT, type Connections, NO_TABLES, toSqlFailure } from "./connections.ts";
import { MAKE_TABLES, SCHEMA_VERSION, UPGRADES, VERSION_QUERY } from "./schema.ts";

/** Versions of the tables before and after `migrate`; 0 if they were missing. */
export interface MigratedTables {
  readonly before: number;
  readonly after: number;
}

/** Returns the version of the tables, 0 if they are missing. Throws storage_failed. */
export async function readSchemaVersion(connections: Connections): Promise<number> {
  const answer = await connections.run({ text: VERSION_QUERY });
  if (answer.kind === "failed" && NO_TABLES.has(answer.code)) return 0;
  if (answer.kind === "done") return Number(answer.rows[0]?.value ?? 0);
  throw toSqlFailure(answer);
}

/** Creates the tables if they are missing, or upgrades them. Throws storage_failed, unsupported_version. */
export async function migrate(connections: Connections): Promise<MigratedTables> {
  let before = await readSchemaVersion(connections);
  const text = before === 0 ? MAKE_TABLES : UPGRADES[before];
  if (text === undefined) requireKnown(before);
  await requireUtf8(connections);
  if (text !== undefined) {
    const answer = await connections.run({ text, within: BULK_TIMEOUT });
    if (answer.kind !== "done") {
      const found = await readSchemaVersion(connections);
      if (found === before) throw toSqlFailure(answer);
      // Another process has done it, so that this one fails.
      before = found;
    }
  }
  const after = await readSchemaVersion(connections);
  requireKnown(after);
  return { before, after };
}

/** Throws storage_failed if tables are missing, and unsupported_version if they have another version. */
export async function requireTables(connections: Connections): Promise<void> {
  const version = await readSchemaVersion(connections);
  requireKnown(version);
  if (version === SCHEMA_VERSION) return;
  throw new Failure(
    "storage_failed",
    "The fleet's database has no tables yet. Run: pi-session-server fleet migrate",
    { fleet: true },
    { retryable: false },
  );
}

/** Throws storage_failed if the database cannot store every character of sessions. */
async function requireUtf8(connections: Connections): Promise<void> {
  const [row] = await connections.read({ text: "select pg_catalog.current_setting('server_encoding') as encoding" });
  if (row.encoding === "UTF8") return;
  throw new Failure(
    "storage_failed",
    describeUnchanged(
      `The encoding of the fleet's database is ${row.encoding}; UTF8 is required.`,
      "Create another database, and use that: create database agents encoding 'UTF8' template template0",
    ),
    { fleet: true },
    { retryable: false },
  );
}

function requireKnown(version: number): void {
  if (version === 0 || version === SCHEMA_VERSION) return;
  const remedy =
    version > SCHEMA_VERSION
      ? "Use a newer pi-session-server."
      : version in UPGRADES
        ? "Stop the servers of the earlier program, and run: pi-session-server fleet migrate"
        : "Export the sessions with the pi-session-server that wrote them, and import them into another database.";
  throw new Failure(
    "unsupported_version",
    describeUnchanged(
      `The fleet's tables have version ${version}, and this program reads version ${SCHEMA_VERSION} alone.`,
      remedy,
    ),
    { fleet: true },
  );
}
