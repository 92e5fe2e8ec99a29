/** Facts about the server at the other end of a connection: which one it is, and what an answer of it proves. */

import type { Rows, SqlStatement } from "./driver.ts";

/** Asks a server something. */
export type AskServer = (statement: SqlStatement) => Promise<ServerAnswer>;
export type ServerAnswer =
  | ({ readonly kind: "done" } & Rows)
  | { readonly kind: "failed"; readonly code: string; readonly reason: string }
  | { readonly kind: "away" | "unknown"; readonly reason: string };

/** Facts about the server that answered last at the other end of a connection. */
export interface ServerFact {
  /** The most that commits there may prove, as it was when the connection was made. */
  readonly durability: "replicated" | "primary";
  readonly version: string;
  /** Undefined where the engine does not say. */
  readonly place?: ServerPlace;
  /**
   * Whether each statement is run by the process of the server to which the connection was made, which keeps statements
   * with names and is of the same server as long as it lives. Behind a pooler it is another one each time.
   */
  readonly isDirect?: boolean;
}

/** A server among those that began as one. */
export interface ServerPlace {
  /** The number of its cluster, which its standbys have, too. */
  readonly system: string;
  /** Number of promotions until now, and one. */
  readonly timeline: number;
}

/**
 * Expression for the name of the server that runs a statement. Behind a pooler that may be another one than was asked
 * before. Fails on engines that are only like PostgreSQL, and where a role may not ask.
 */
const SERVER = `(select system_identifier::text from pg_control_system()) || '/' ||
  pg_catalog.ltrim(pg_catalog.substr(pg_catalog.pg_walfile_name(pg_current_wal_lsn()), 1, 8), '0')`;

/** Columns with which a statement tells what its own commit waits for, and whether it is told what became of that. */
export const WAITS_FOR = `pg_catalog.current_setting('synchronous_commit', true) as commit,
  pg_catalog.current_setting('synchronous_standby_names', true) as standbys,
  pg_catalog.current_setting('client_min_messages', true) as told, pg_catalog.current_setting('fsync', true) as fsync`;

const SETTINGS = `select pg_is_in_recovery() as standby, pg_catalog.current_setting('server_version') as version, ${WAITS_FOR}`;

const REPLICATING = new Set(["on", "remote_write", "remote_apply"]);
/** Settings with which a server keeps the warning to itself that a commit was given up by its standby. */
const SILENT = new Set(["error", "fatal", "panic"]);

/** Returns the column with which a statement tells which server runs it, or one without a value where that cannot be asked. */
export function makeServerColumn({ place }: ServerFact): string {
  return `${place ? `(${SERVER})` : "null"} as server`;
}

/** Returns the condition that a statement is run by the server whose name is a parameter. */
export function makeIsServerCondition(parameter: string): string {
  return `(select ${SERVER}) = ${parameter}`;
}

/**
 * Finds out what a commit means to a server. `hears` tells whether its warnings come here: a pooler may keep them.
 * `process`: the number of its process that came when the connection was made; a pooler makes one up. Throws where it may
 * not be written to, or where it forgets.
 */
export async function readServerFact(
  ask: AskServer,
  hears: () => Promise<boolean>,
  process?: number | null,
): Promise<ServerFact> {
  const answer = await ask({ text: SETTINGS });
  if (answer.kind !== "done") throw new Error(answer.reason);
  const [row] = answer.rows;
  if (row.standby === true) throw new Error("it is a standby, which cannot be written to");
  const forgets = explainForgetting(row);
  if (forgets !== undefined) throw new Error(forgets);
  const { place, isDirect } = await placeOf(ask, process);
  // Without a timeline nobody sees a promotion, and without warnings nobody a commit that its standby did not get.
  const isProven = place !== undefined && isReplicated(row) && (await hears());
  return {
    durability: isProven ? "replicated" : "primary",
    version: String(row.version),
    ...(place ? { place } : {}),
    ...(isDirect ? { isDirect } : {}),
  };
}

async function placeOf(
  ask: AskServer,
  process: number | null | undefined,
): Promise<{ readonly place?: ServerPlace; readonly isDirect?: boolean }> {
  const answer = await ask({ text: `select ${SERVER} as server, pg_backend_pid() as process` });
  if (answer.kind === "failed") return {};
  if (answer.kind !== "done") throw new Error(answer.reason);
  const [row] = answer.rows;
  const place = parseServerPlace(row?.server);
  return { place, isDirect: place !== undefined && typeof process === "number" && row.process === process };
}

/** Returns why a commit whose answer has WAITS_FOR may be forgotten, if it may. */
export function explainForgetting({ commit, fsync }: Readonly<Record<string, unknown>>): string | undefined {
  if (fsync !== "off" && commit !== "off") return undefined;
  const setting = fsync === "off" ? "fsync" : "synchronous_commit";
  return `the database has ${setting} = off, so that it forgets in a crash what it acknowledged; set it to on`;
}

function isReplicated({ commit, standbys, told }: Readonly<Record<string, unknown>>): boolean {
  return REPLICATING.has(String(commit)) && Boolean(standbys) && !SILENT.has(String(told));
}

/**
 * Returns where a commit is whose answer has WAITS_FOR. What was so when the connection was made must be so for the
 * commit: a pooler may have another connection to the server for each, in which others left their settings.
 */
export function getProvenDurability(
  fact: ServerFact,
  row: Readonly<Record<string, unknown>>,
): ServerFact["durability"] {
  return fact.durability === "replicated" && isReplicated(row) ? "replicated" : "primary";
}

/** Returns the name of a server, which a promoted standby of it does not have. */
export function getServerName({ place }: Pick<ServerFact, "place">): string | undefined {
  return place && `${place.system}/${place.timeline.toString(16).toUpperCase()}`;
}

/** Returns the place of the server with a name; undefined for what is none. */
export function parseServerPlace(name: unknown): ServerPlace | undefined {
  const [system, digits] = typeof name === "string" ? name.split("/") : [];
  const timeline = Number.parseInt(digits ?? "", 16);
  return system && timeline > 0 ? { system, timeline } : undefined;
}

/** Returns whether a server was the primary before another one that is known. */
export function isFormer(place: ServerPlace | undefined, known: ServerPlace | undefined): boolean {
  return place !== undefined && place.system === known?.system && place.timeline < known.timeline;
}
