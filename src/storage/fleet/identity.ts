/**
 * The identity of a fleet's database: the one that a machine gave its sessions to. Another one at the same address, made anew
 * or not, is not taken for it: it would get sessions that are not its own, and lacks those that were acknowledged.
 */

import { join } from "node:path";
import { bytesOf, parse } from "../../core/json/json.ts";
import type { NotedFleet } from "../../core/ports/fleet.ts";
import { type Disk, readWhole } from "../fs/disk.ts";
import { ifPresent, putInPlace } from "../fs/files.ts";
import { sha256 } from "../v2/frame.ts";
import type { AskServer } from "./server-fact.ts";

/** The store that is known at an address. */
export interface KnownStore {
  /** Returns its id; undefined where none was met. */
  known(): string | undefined;
  note(id: string): Promise<void>;
}

/** SQLSTATEs for a schema and a table that are not there. */
const NO_TABLES = new Set(["3F000", "42P01"]);
const STORE = "select value from pi_fleet.meta where key = 'store'";

/** Throws unless the database at the other end is the known one. The first one that is met becomes that. */
export async function requireSameStore(ask: AskServer, store: KnownStore): Promise<void> {
  const answer = await ask({ text: STORE });
  const known = store.known();
  if (answer.kind === "failed") {
    // Whoever makes its tables now makes another fleet of it. Where one may not ask, what is there is used.
    if (known !== undefined && NO_TABLES.has(answer.code))
      throw new Error("the database has no tables of the fleet any more; pi-session-server fleet migrate makes them");
    return;
  }
  if (answer.kind !== "done") throw new Error(answer.reason);
  const id = answer.rows[0]?.value;
  if (typeof id !== "string") return;
  if (known === undefined) await store.note(id);
  else if (known !== id)
    throw new Error(
      `another database is at this address than before: its store is ${id}, and this machine's sessions are in ${known}. If it was made anew, or is to have them from now on: pi-session-server fleet adopt`,
    );
}

/** Returns the store that this process met at an address, for when nobody else remembers. */
export function metStore(): KnownStore {
  let met: string | undefined;
  return {
    known: () => met,
    async note(id) {
      met = id;
    },
  };
}

/** Returns the store that this machine has met at an address (without its password). */
export function notedStore(disk: Disk, stateFolder: string, shown: string): KnownStore {
  const folder = join(stateFolder, "fleet-stores");
  const file = join(folder, `${sha256(shown).slice(0, 32)}.json`);
  const met = metStore();
  return {
    known() {
      try {
        const bytes = ifPresent(() => readWhole(disk, file));
        const { store } = (bytes ? parse(bytes) : {}) as { store?: unknown };
        if (typeof store === "string") return store;
      } catch {
        // This process remembers it.
      }
      return met.known();
    },
    async note(id) {
      await met.note(id);
      try {
        disk.makeFolder(folder);
        await putInPlace(disk, file, bytesOf(JSON.stringify({ address: shown, store: id })), {
          replace: true,
          sync: true,
        });
      } catch {
        // The next process notes it.
      }
    },
  };
}

/** Returns the fleet at an address (without its password), as far as this machine has met it until it is asked. */
export function fleetAt(disk: Disk, stateFolder: string, shown: string): NotedFleet {
  const met = notedStore(disk, stateFolder, shown);
  return {
    address: shown,
    tenant: new URL(shown).searchParams.get("tenant") ?? "",
    get store() {
      return met.known();
    },
  };
}

/**
 * Whether two notes mean one fleet. At one address is one, because another store there has to be adopted, and then gets what
 * was owed to the one before; and one store may have several addresses, as with and without a standby.
 */
export function isSameFleet(a: NotedFleet, b: NotedFleet): boolean {
  return a.address === b.address || (a.tenant === b.tenant && a.store !== undefined && a.store === b.store);
}
