/** The tables of a database, brought to the version of this program. */

import { Failure } from "../../core/failure.ts";
import { type Connections, NO_TABLES, refusalIn, type SqlAnswer } from "./connections.ts";
import { unfit } from "./failures.ts";
import { isolate, tenantGaps } from "./isolation.ts";
import { keepLong, PATIENCE, whyUnchanged } from "./keeping.ts";
import { SCHEMA_VERSION, upgrade, VERSION_QUERY } from "./schema.ts";

/** The versions of tables before a migration and after it. */
export interface MigratedTables {
  readonly before: number;
  readonly after: number;
  /** Why the server does not keep what is long as it should; undefined: it does. */
  readonly unkept: string | undefined;
}

/** Returns the version of the tables: 0 where there are none. Throws storage_failed. */
export async function schemaVersion(connections: Connections): Promise<number> {
  const answer = await connections.run({ text: VERSION_QUERY });
  if (answer.kind === "failed" && NO_TABLES.has(answer.code)) return 0;
  if (answer.kind === "done") return Number(answer.rows[0]?.value ?? 0);
  throw unusable(answer);
}

/** Makes the tables, or brings them to the version of this program. Throws storage_failed. */
export async function migrate(connections: Connections): Promise<MigratedTables> {
  const before = await schemaVersion(connections);
  requireKnown(before);
  await requireUtf8(connections);
  for (let version = before; version < SCHEMA_VERSION; ) {
    const answer = await connections.run({ text: upgrade(version), within: PATIENCE });
    const now = await schemaVersion(connections);
    // Another process may have done it, which makes ours fail.
    if (answer.kind !== "done" && now <= version) throw unusable(answer);
    version = Math.max(now, version + 1);
  }
  // Tables that were added have rows of tenants, too, also where the migration that added them ended here.
  const { canBeMended } = await tenantGaps(connections);
  const unkept = await (canBeMended ? isolate(connections) : keepLong(connections));
  return { before, after: await schemaVersion(connections), unkept };
}

/** Throws storage_failed unless the tables are there, in the version of this program. */
export async function requireTables(connections: Connections): Promise<void> {
  const version = await schemaVersion(connections);
  requireKnown(version);
  if (version === SCHEMA_VERSION) return;
  const state =
    version === 0 ? "has no tables yet" : `has tables of version ${version}, and this program needs ${SCHEMA_VERSION}`;
  throw new Failure(
    "storage_failed",
    `The fleet's database ${state}. Run: pi-session-server fleet migrate`,
    { fleet: true },
    { retryable: false },
  );
}

/** Throws storage_failed where the database cannot have every character that sessions may have. */
async function requireUtf8(connections: Connections): Promise<void> {
  const [row] = await connections.read({ text: "select pg_catalog.current_setting('server_encoding') as encoding" });
  if (row.encoding === "UTF8") return;
  throw new Failure(
    "storage_failed",
    `The fleet's database has the encoding ${row.encoding}, which cannot have all that sessions have. Nothing was changed. Make another one, and use that: create database agents encoding 'UTF8' template template0`,
    { fleet: true },
    { retryable: false },
  );
}

function requireKnown(version: number): void {
  if (version <= SCHEMA_VERSION) return;
  throw new Failure(
    "unsupported_version",
    `The fleet's tables are of version ${version}, and this program knows ${SCHEMA_VERSION}. Use a newer pi-session-server.`,
    { fleet: true },
  );
}

function unusable(answer: Exclude<SqlAnswer, { kind: "done" }>): Failure {
  const refusal = refusalIn(answer);
  if (refusal !== undefined) return unfit(refusal);
  return new Failure("storage_failed", `The fleet's database cannot be used (${whyUnchanged(answer)}).`, {
    fleet: true,
  });
}
