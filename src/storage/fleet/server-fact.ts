/** Facts about the server at the other end of a connection: which one it is, and what an answer of it proves. */

import type { Rows, SqlStatement } from "./driver.ts";

/** Asks a server something. */
export type AskServer = (statement: SqlStatement) => Promise<ServerAnswer>;
export type ServerAnswer =
  | ({ readonly kind: "done" } & Rows)
  | { readonly kind: "failed"; readonly code: string; readonly reason: string }
  | { readonly kind: "away" | "unknown"; readonly reason: string };

/** Facts about a server, asked once for each connection. */
export interface ServerFact {
  readonly durability: "replicated" | "primary";
  readonly version: string;
  /** Undefined where the engine does not say. */
  readonly place?: ServerPlace;
}

/** A server among those that began as one. */
export interface ServerPlace {
  /** The number of its cluster, which its standbys have, too. */
  readonly system: string;
  /** Number of promotions until now, and one. */
  readonly timeline: number;
}

const SETTINGS = `select pg_is_in_recovery() as standby, current_setting('synchronous_commit', true) as commit,
  current_setting('fsync', true) as fsync, current_setting('synchronous_standby_names', true) as standbys,
  current_setting('client_min_messages', true) as told, current_setting('server_version') as version`;

/** Fails on engines that are only like PostgreSQL, and where a role may not ask. */
const PLACE = `select (select system_identifier::text from pg_control_system()) as system,
  substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) as timeline`;

/** Columns with which a statement tells what its own commit waits for. */
export const WAITS_FOR = `current_setting('synchronous_commit', true) as commit,
  current_setting('synchronous_standby_names', true) as standbys`;

const REPLICATING = new Set(["on", "remote_write", "remote_apply"]);
/** Settings with which a server keeps the warning to itself that a commit was given up by its standby. */
const SILENT = new Set(["error", "fatal", "panic"]);

/** Finds out what a commit means to a server. Throws where it may not be written to, or where it forgets. */
export async function serverFact(ask: AskServer): Promise<ServerFact> {
  const answer = await ask({ text: SETTINGS });
  if (answer.kind !== "done") throw new Error(answer.reason);
  const [row] = answer.rows;
  const { standby, commit, fsync, told, version } = row;
  if (standby === true) throw new Error("it is a standby, which cannot be written to");
  if (fsync === "off" || commit === "off")
    throw new Error(
      `the database has ${fsync === "off" ? "fsync" : "synchronous_commit"} = off, so that it forgets in a crash what it acknowledged; set it to on`,
    );
  const place = await placeOf(ask);
  // Without a timeline nobody sees a promotion, and without warnings nobody a commit that its standby did not get.
  const isProven = place !== undefined && !SILENT.has(String(told)) && isReplicated(row);
  return {
    durability: isProven ? "replicated" : "primary",
    version: String(version),
    ...(place ? { place } : {}),
  };
}

async function placeOf(ask: AskServer): Promise<ServerPlace | undefined> {
  const answer = await ask({ text: PLACE });
  if (answer.kind === "failed") return undefined;
  if (answer.kind !== "done") throw new Error(answer.reason);
  const { system, timeline } = answer.rows[0] ?? {};
  const number = Number.parseInt(String(timeline), 16);
  return typeof system === "string" && number > 0 ? { system, timeline: number } : undefined;
}

function isReplicated({ commit, standbys }: Readonly<Record<string, unknown>>): boolean {
  return REPLICATING.has(String(commit)) && Boolean(standbys);
}

/** Returns where a commit is whose answer has WAITS_FOR: what was so at the beginning must still be so. */
export function provenBy(fact: ServerFact, row: Readonly<Record<string, unknown>>): ServerFact["durability"] {
  return fact.durability === "replicated" && isReplicated(row) ? "replicated" : "primary";
}

/** Returns the name of a server, which a promoted standby of it does not have. */
export function nameOf({ place }: ServerFact): string | undefined {
  return place && `${place.system}/${place.timeline}`;
}

/** Returns whether a server was the primary before another one that is known. */
export function isFormer({ place }: ServerFact, known: ServerPlace | undefined): boolean {
  return place !== undefined && place.system === known?.system && place.timeline < known.timeline;
}
