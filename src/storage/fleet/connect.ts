/** A fleet as the settings name it, put together. Nothing is connected before it is first asked. */

import { hostname } from "node:os";
import { AddressError, addressOf } from "./address.ts";
import { Connections } from "./connections.ts";
import { loadDriver } from "./driver.ts";
import { LEASE, PostgresFleet } from "./postgres.ts";
import { SqlCatalog } from "./sql-catalog.ts";
import { SqlKeeper } from "./sql-keeper.ts";
import type { FleetConnection } from "./store.ts";

/** Connections of one server at a time, at most. */
const CONNECTIONS = 8;
const CONNECT_WITHIN = 5000;
const ANSWER_WITHIN = 15_000;
/** Milliseconds for which a request waits for a database that does not answer. */
const PATIENCE = 10_000;
/** Milliseconds after which an open session is asked for again that another machine may write to. */
const FOLLOWED_EVERY = 2000;
const FIRST_WAIT = 50;
const LONGEST_WAIT = 1000;

export interface FleetPlace {
  /** Our name for those who find a session taken. */
  readonly client: string;
  /** An id that no other process has. */
  readonly processId: string;
  /** ISO 8601. */
  readonly since: string;
  readonly readFile: (path: string) => string;
}

/** A fleet in PostgreSQL, as stores and verbs use it. */
export interface PostgresConnection extends FleetConnection {
  readonly fleet: PostgresFleet;
  readonly catalog: SqlCatalog;
  readonly keeper: SqlKeeper;
  /** The address without its password. */
  readonly shown: string;
}

/**
 * Returns the fleet at an address: a URL, or `file:` with the path of a file that has one. Throws AddressError.
 * `isSeen`: others can see the text, so that it must have no password.
 */
export function connectFleet(text: string, place: FleetPlace, isSeen: boolean): PostgresConnection {
  const address = addressOf(urlIn(text, place), place.readFile);
  if (isSeen && address.hasPassword && !text.startsWith("file:"))
    throw new AddressError(
      "A password in the arguments can be read by everybody on this machine. Put the URL into PI_FLEET_URL or a file (--fleet file:/path), or the password into PGPASSWORD or ~/.pgpass.",
    );
  const connections = new Connections({
    ...{ address, driver: loadDriver, most: CONNECTIONS, connectWithin: CONNECT_WITHIN, answerWithin: ANSWER_WITHIN },
  });
  const shown = { client: place.client, pid: process.pid, since: place.since, host: hostname() };
  return {
    fleet: new PostgresFleet(connections, { id: place.processId, shown }),
    catalog: new SqlCatalog(connections, ""),
    keeper: new SqlKeeper(connections, ""),
    shown: address.shown,
    trustedFor: (LEASE * 2) / 3,
    followedEvery: FOLLOWED_EVERY,
    elapsed: () => performance.now(),
    patience: patience(),
  };
}

function urlIn(text: string, { readFile }: FleetPlace): string {
  if (!text.startsWith("file:")) return text;
  const path = text.replace(/^file:(?:\/\/)?/, "");
  try {
    return readFile(path).trim();
  } catch (error) {
    throw new AddressError(`The file with the address of the fleet cannot be read (${(error as Error).message}).`);
  }
}

/** Returns a wait that doubles, and gives up after a while. */
function patience(): FleetConnection["patience"] {
  return async (tries) => {
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** tries);
    const waited = Array.from({ length: tries }, (_, n) => Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** n));
    if (waited.reduce((sum, ms) => sum + ms, 0) >= PATIENCE) return false;
    // Not at the same moment as all others who lost the same database.
    await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random() / 2)));
    return true;
  };
}
