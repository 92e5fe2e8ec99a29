/** Facts about the server at the other end of a connection: its identity, and the guarantees of its answers. */

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
  /** Undefined if the engine does not report it. */
  readonly place?: ServerPlace;
  /**
   * True if each statement is run by the server process of the connection, which keeps prepared statements and stays with
   * its server while it lives. Behind a pooler the process changes.
   */
  readonly isDirect?: boolean;
}

/** A server, with its place among those of one origin. */
export interface ServerPlace {
  /** The number of its cluster, which its standbys have, too. */
  readonly system: string;
  /** Number of promotions until now, and one. */
  readonly timeline: number;
}

/**
 * Expression for the name of the server that runs a statement. Behind a pooler that may change. Fails on engines that are
 * only like PostgreSQL, and for roles that may not ask.
 */
const SERVER = `(select system_identifier::text from pg_control_system()) || '/' ||
  pg_catalog.ltrim(pg_catalog.substr(pg_catalog.pg_walfile_name(pg_current_wal_lsn()), 1, 8), '0')`;

/**
 * Columns with the settings that decide whether the statement's own commit waits for a standby, and whether warnings arrive.
 */
export const WAITS_FOR = `pg_catalog.current_setting('synchronous_commit', true) as commit,
  pg_catalog.current_setting('synchronous_standby_names', true) as standbys,
  pg_catalog.current_setting('client_min_messages', true) as told, pg_catalog.current_setting('fsync', true) as fsync`;

const SETTINGS = `select pg_is_in_recovery() as standby, pg_catalog.current_setting('server_version') as version, ${WAITS_FOR}`;

const REPLICATING = new Set(["on", "remote_write", "remote_apply"]);
/** Settings with which a server does not send the warning that its standby did not get a commit. */
const SILENT = new Set(["error", "fatal", "panic"]);

/** Returns the column with the server that runs a statement, empty if that cannot be asked. */
export function makeServerColumn({ place }: ServerFact): string {
  return `${place ? `(${SERVER})` : "null"} as server`;
}

/** Returns the condition that a statement is run by the server whose name is a parameter. */
export function makeIsServerCondition(parameter: string): string {
  return `(select ${SERVER}) = ${parameter}`;
}

/**
 * Finds out what a commit means to a server. `hears` returns whether its warnings arrive: a pooler may drop them. `process`:
 * process number that came with the connection; a pooler invents one. Throws if the server is read-only, or may forget
 * commits.
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
  // Without a timeline a promotion is invisible; without warnings, so is a commit that the standby did not get.
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
 * Returns the durability of a commit whose answer has WAITS_FOR. The facts of the connection must hold for the commit too: a
 * pooler may use another connection to the server for each, with settings of other programs.
 */
export function getProvenDurability(
  fact: ServerFact,
  row: Readonly<Record<string, unknown>>,
): ServerFact["durability"] {
  return fact.durability === "replicated" && isReplicated(row) ? "replicated" : "primary";
}

/** Returns the name of a server; a promoted standby gets another one. */
export function getServerName({ place }: Pick<ServerFact, "place">): string | undefined {
  return place && `${place.system}/${place.timeline.toString(16).toUpperCase()}`;
}

/** Parses the name of a server; undefined if it is malformed. */
export function parseServerPlace(name: unknown): ServerPlace | undefined {
  const [system, digits] = typeof name === "string" ? name.split("/") : [];
  const timeline = Number.parseInt(digits ?? "", 16);
  return system && timeline > 0 ? { system, timeline } : undefined;
}

/** Returns whether a server was the primary before another one that is known. */
export function isFormer(place: ServerPlace | undefined, known: ServerPlace | undefined): boolean {
  return place !== undefined && place.system === known?.system && place.timeline < known.timeline;
}
