/** A fleet as the settings name it, put together. Nothing is connected before it is first asked. */

import { hostname } from "node:os";
import { AddressError } from "../../storage/fleet-module.ts";
import { FleetPruning } from "./admin/pruning.ts";
import { type Address, parseAddress } from "./postgres/address.ts";
import { Connections } from "./postgres/connections.ts";
import { loadDriver } from "./postgres/driver.ts";
import type { KnownStore } from "./postgres/identity.ts";
import { LEASE, PostgresFleet } from "./postgres/postgres.ts";
import type { FleetProcesses } from "./postgres/processes.ts";
import { SqlAdminQueries } from "./postgres/sql-admin-queries.ts";
import { SqlCatalog } from "./postgres/sql-catalog.ts";
import { Outage } from "./replica/outage.ts";
import { type FleetConnection, makeFleetStores } from "./store.ts";

/** Connections of one server at a time, at most. */
const CONNECTIONS = 8;
/** Limits in milliseconds: for a connection, for the answer to a statement, and for the attempts of one request. */
const REFUSING = { connectWithin: 5000, answerWithin: 15_000, patience: 10_000 };
/** Minimum milliseconds between two looks at an open session that another machine may write to. */
const FOLLOWED_EVERY = 2000;
const FIRST_WAIT = 50;
const LONGEST_WAIT = 1000;
/** The same limits if work goes on without the database: a caller gains nothing from waiting. */
const ALONE = { connectWithin: 2000, answerWithin: 5000, patience: 1000 };
/** Milliseconds after which an unreachable database is asked again. */
const ASKED_EVERY = 1000;

interface ConnectionPlace {
  /** The name of this process for others that find a session taken. */
  readonly client: string;
  /** An id that no other process has. */
  readonly processId: string;
  /** ISO 8601. */
  readonly since: string;
  readonly readFile: (path: string) => string;
  /** "off": other machines do not find this machine's entries by their words. */
  readonly search?: string;
  /** The processes of this machine; without them, no other process notices that this one exited. */
  readonly processes?: FleetProcesses;
  /** Returns the store that this machine knows at an address; without it, the one that is met first is used. */
  readonly storeAt?: (shown: string) => KnownStore;
}

/** A fleet in PostgreSQL, as stores and verbs use it. */
export interface PostgresConnection extends FleetConnection {
  readonly connections: Connections;
  readonly catalog: SqlCatalog;
  readonly adminQueries: SqlAdminQueries;
  readonly pruning: FleetPruning;
  /** The address without its password, and the tenant that it names; empty: none. */
  readonly shown: string;
  readonly tenant: string;
}

/**
 * Returns the fleet at an address: a URL, or `file:` with the path of a file that contains one. Throws AddressError.
 * `isSeen`: others can see the text, so that it must have no password. `whenAway`: the behaviour of writes during an outage.
 */
export function connectFleet(
  text: string,
  place: ConnectionPlace,
  isSeen: boolean,
  whenAway: "refuse" | "journal" = "refuse",
): PostgresConnection {
  const address = addressIn(text, place);
  if (isSeen && address.hasPassword && !text.startsWith("file:"))
    throw new AddressError(
      "A password in the arguments can be read by everybody on this machine. Put the URL into PI_FLEET_URL or a file (--fleet file:/path), or the password into PGPASSWORD or ~/.pgpass.",
    );
  const { search = "" } = place;
  if (!["", "on", "off"].includes(search))
    throw new AddressError(
      `PI_FLEET_SEARCH is on or off, and not ${search}: it says whether words are sent to the fleet.`,
    );
  const keepsWords = search !== "off";
  const isAlone = whenAway === "journal";
  const { connectWithin, answerWithin, patience } = isAlone ? ALONE : REFUSING;
  const connections = new Connections({
    ...{ address, driver: loadDriver, most: CONNECTIONS, connectWithin, answerWithin, patience },
    ...(text.startsWith("file:") ? { readAddress: rereading(text, place, address) } : {}),
    store: place.storeAt?.(address.shown),
  });
  const shown = { client: place.client, pid: process.pid, since: place.since, host: hostname() };
  const { tenant } = address;
  const fleet = new PostgresFleet(
    connections,
    { id: place.processId, shown, processes: place.processes },
    { tenant, keepsWords },
  );
  const elapsed = (): number => performance.now();
  const waiting = patienceOf(patience, elapsed);
  return {
    ...{ fleet, connections },
    catalog: new SqlCatalog(connections, tenant),
    adminQueries: new SqlAdminQueries(connections, place.processId, tenant, LEASE, search === "on"),
    pruning: new FleetPruning(connections, tenant),
    ...{ shown: address.shown, tenant },
    trustedFor: (LEASE * 2) / 3,
    followedEvery: FOLLOWED_EVERY,
    elapsed,
    async patience(...tried) {
      const [tries, since, isInDoubt] = tried;
      // One wait counts for all writes that no server answers.
      const hasWaited = await waiting(tries, Math.min(since, connections.lostSince), isInDoubt);
      if (hasWaited) fleet.tally.waits++;
      return hasWaited;
    },
    ...(isAlone ? { outage: new Outage(fleet, ASKED_EVERY, elapsed) } : {}),
    makeStores(own) {
      return makeFleetStores(this, own);
    },
    close: () => fleet.close(),
  };
}

/**
 * Returns a function that rereads the address file, so that a changed password needs no restart. If the file is
 * unreadable, as during a write, or names another tenant, the previous address stays.
 */
function rereading(text: string, place: ConnectionPlace, first: Address): () => Address {
  let last = first;
  return () => {
    try {
      const now = addressIn(text, place);
      if (now.tenant === first.tenant) last = now;
    } catch (error) {
      if (!(error instanceof AddressError)) throw error;
    }
    return last;
  };
}

/** Returns the address in a text or its file. Throws AddressError. */
function addressIn(text: string, place: ConnectionPlace): Address {
  const url = urlIn(text, place);
  try {
    return parseAddress(url, place.readFile);
  } catch (error) {
    if (!(error instanceof AddressError) || !text.startsWith("file:")) throw error;
    throw new AddressError(`${error.message} (It is in the file of --fleet ${text}.)`);
  }
}

function urlIn(text: string, { readFile }: ConnectionPlace): string {
  if (!text.startsWith("file:")) return text;
  const path = text.replace(/^file:(?:\/\/)?/, "");
  try {
    return readFile(path).trim();
  } catch (error) {
    throw new AddressError(`The file with the address of the fleet cannot be read (${(error as Error).message}).`);
  }
}

/**
 * Returns a wait that doubles, and ends after about so many milliseconds. A server that does not answer takes most of them;
 * the outcome of a commit is asked for once all the same.
 */
function patienceOf(most: number, elapsed: () => number): FleetConnection["patience"] {
  return async (tries, since, isInDoubt) => {
    if (!(isInDoubt && tries === 0) && elapsed() - since >= most) return false;
    // Random, so that not all clients of a lost database return at the same moment.
    await new Promise((resolve) => setTimeout(resolve, waitOf(tries) * (0.5 + Math.random() / 2)));
    return true;
  };
}

function waitOf(tries: number): number {
  return Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** tries);
}
