/** The state and the sizes of a fleet for a person, and its figures as Prometheus reads them. */

import type { FleetIndexed } from "../../core/ports/fleet-admin.ts";
import type { DatabaseStatus, FleetStatus, MeasuredFleet } from "../../core/ports/fleet-database.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, formatSize, group, show, toRawPath } from "../terminal/text.ts";

/** Tenants that are printed at most. */
const MOST_TENANTS = 10;
/** Characters of a name that are printed at most. */
const NAME = 60;

/** The state of a fleet, with its removable data, and after a migration its result. */
export interface ShownStatus extends DatabaseStatus, Partial<FleetIndexed> {
  readonly address: string;
  readonly migratedFrom?: number;
}

/** Yields figures in the text format of Prometheus. */
export function* formatMetrics({ metrics }: MeasuredFleet, page: OutputStyle): Generator<string> {
  for (const { name, help, samples } of metrics) {
    yield `# HELP ${name} ${help}`;
    yield `# TYPE ${name} gauge`;
    for (const { labels, value } of samples) {
      const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
      yield toRawPath(`${name}${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${value}`, page.isTerminal);
    }
  }
}

/** Returns the value of a label as that format has it. */
function escaped(text: string): string {
  return text.replace(/[\\"\n]/g, (one) => (one === "\n" ? "\\n" : `\\${one}`));
}

/** Returns the end of a sentence about the sessions that are in no tenant. */
export function describeOthers(tenant: unknown): string {
  return tenant ? "" : "; those of tenants are not among them";
}

export function* formatFleetStatus(status: ShownStatus): Generator<string> {
  const { address, server, durability, schemaVersion, migratedFrom, indexed = 0, inUse = [], ...sums } = status;
  yield show`${address}: ${server}`;
  if (schemaVersion === 0) {
    yield "It has no tables yet: pi-session-server fleet migrate makes them.";
    return;
  }
  yield `Tables of version ${schemaVersion}${migratedFrom === 0 ? ", made just now" : ""}`;
  if (indexed > 0) yield `${count(indexed, "session", "sessions")} can be listed and searched again`;
  if (inUse.length > 0)
    yield `${count(inUse.length, "session is", "sessions are")} in use and cannot yet; run it again when they are closed`;
  for (const id of sums.unreadable ?? []) yield show`${id}: its header or lines cannot be read; fleet verify says more`;
  yield durability === "replicated"
    ? "Commits are on a second machine before they are acknowledged"
    : "Commits are on the database's own disk before they are acknowledged, and on no second machine";
  yield describeStandbys(sums.standbys);
  yield `${count(sums.sessions, "session", "sessions")} with ${count(sums.entries, "entry", "entries")}, ${formatSize(sums.bytes)}${describeOthers(sums.tenant)}`;
  yield `${group(sums.held)} of them ${sums.held === 1 ? "has" : "have"} a writer now`;
  yield* writerLines(sums.writers);
  yield `The tables have ${formatSize(sums.storedBytes)}, for all tenants together`;
  if (migratedFrom === undefined) yield* sizeLines(sums);
  const { sessions = 0, bytes = 0, unfinished = 0, halfway = 0, interrupted = 0 } = sums.deleted ?? {};
  if (sessions + unfinished + halfway > 0) {
    const more = unfinished > 0 ? `, and ${group(unfinished)} begun and not finished` : "";
    yield `${count(sessions, "session is", "sessions are")} deleted and can be restored, ${formatSize(bytes)}${more}: fleet prune`;
  }
  if (interrupted > 0)
    yield `${count(interrupted, "session has", "sessions have")} parts of commits that never became entries: fleet prune`;
  if (sums.endsAbandoned === false)
    yield "PostgreSQL does not cancel abandoned statements here, and they keep their connections. To fix: alter role NAME set client_connection_check_interval = '10s'";
}

function describeStandbys(standbys: FleetStatus["standbys"]): string {
  if (standbys === null) return "This role may not see whether standbys are connected: grant pg_monitor to it";
  const { all, synchronous } = standbys;
  if (all === 0) return "No standby is connected";
  const kind =
    synchronous === 0
      ? ", asynchronous"
      : synchronous < all
        ? `, ${group(synchronous)} of them synchronous`
        : ", synchronous";
  return `${count(all, "standby is", "standbys are")} connected${kind}`;
}

/** Yields the sessions that processes have. */
function* writerLines(writers: FleetStatus["writers"]): Generator<string> {
  for (const { sessionId, name, leased, client, host, since } of writers) {
    const title = name === null ? "" : show` (${name.slice(0, NAME)})`;
    const state = leased ? "" : "; it does not write now, and another server may";
    yield show`  ${sessionId}${title}: ${client} on ${host}, which began at ${since}${state}`;
  }
}

/** Yields the sizes of the tenants and the largest sessions. */
function* sizeLines({
  tenants,
  largest,
  tenant: own,
}: Pick<FleetStatus, "tenants" | "largest" | "tenant">): Generator<string> {
  const sizes = ({ entries, bytes }: { entries: number; bytes: number }): string =>
    `${count(entries, "entry", "entries")}, ${formatSize(bytes)}`;
  const named = tenants.filter(({ tenant }) => tenant !== own);
  for (const one of named.slice(0, MOST_TENANTS))
    yield show`Tenant ${one.tenant}: ${count(one.sessions, "session", "sessions")} with ${sizes(one)}`;
  if (named.length > MOST_TENANTS) yield `and ${count(named.length - MOST_TENANTS, "more tenant", "more tenants")}`;
  if (largest.length > 0) yield "The largest sessions:";
  for (const one of largest) {
    const whose = one.tenant === own ? "" : show`, of the tenant ${one.tenant}`;
    yield show`  ${one.sessionId}: ${sizes(one)}${whose}`;
  }
}
