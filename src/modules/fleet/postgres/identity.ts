/**
 * The identity of a fleet's database: the one that a machine gave its sessions to, and its latest promoted primary.
 * Another database at the same address, made anew or not, would get sessions that are not its own, and lacks those that
 * were acknowledged. A former primary that comes back takes writes that no other process sees. Neither is used.
 */

import { join } from "node:path";
import { Failure } from "../../../core/failure.ts";
import { parse, toBytes } from "../../../core/json/json.ts";
import type { NotedFleet } from "../../../core/ports/fleet.ts";
import { type Disk, readWhole, writeAll } from "../../../storage/fs/disk.ts";
import { readIfPresent, writeTemporary } from "../../../storage/fs/files.ts";
import { sha256 } from "../../../storage/v2/frame.ts";
import { SCHEMA_VERSION } from "./schema.ts";
import { type AskServer, getServerName, isFormer, parseServerPlace, type ServerPlace } from "./server-fact.ts";

/** The facts that are known of the database at an address. */
interface StoreNote {
  /** The id of its store; undefined if it was never met. */
  readonly store?: string;
  /** The primary that was promoted last, of those that were met. */
  readonly latest?: ServerPlace;
}

/** The store that is known at an address. */
export interface KnownStore {
  /** Advice for a person who wants to forget the store. */
  readonly remedy: string;
  known(): StoreNote;
  /** Records a store. A server that was promoted earlier never replaces a later one. Never rejects. */
  note(met: StoreNote): Promise<void>;
}

/** SQLSTATEs for a schema and a table that are not there. */
const NO_TABLES = new Set(["3F000", "42P01"]);
const STORE = `select value, (select v.value from pi_fleet.meta v where v.key = 'version') as version
  from pi_fleet.meta where key = 'store'`;

/**
 * Throws unless the database at the other end is the known one, at its latest primary. The first one that is met becomes the
 * known one. `isForSessions`: its tables are to be written, so that their version counts.
 */
export async function requireSameStore(
  ask: AskServer,
  place: ServerPlace | undefined,
  store: KnownStore,
  isForSessions: boolean,
): Promise<void> {
  const answer = await ask({ text: STORE });
  const known = store.known().store;
  if (answer.kind === "failed") {
    // A person who creates its tables now makes it another fleet. If a role may not ask, the database is used.
    if (known !== undefined && NO_TABLES.has(answer.code))
      throw new Error(
        "the database has no tables of the fleet any more; restore a backup of it, or have pi-session-server fleet migrate make new ones",
      );
  } else if (answer.kind !== "done") throw new Error(answer.reason);
  const { value: id, version } = (answer.kind === "done" && answer.rows[0]) || {};
  if (isForSessions && version !== undefined && Number(version) !== SCHEMA_VERSION) throw otherVersion(Number(version));
  const met = typeof id === "string" ? id : undefined;
  if (known !== undefined && met !== undefined && known !== met)
    throw new Error(
      `another database is at this address than before: its store is ${met}, and this machine's sessions are in ${known}. Nothing is sent to it. Have the address lead to the former database; if this one is to have the sessions from now on, ${store.remedy}`,
    );
  await store.note({ store: met, latest: place });
  const reason = explainMismatch(place, store);
  if (reason !== undefined) throw new Error(reason);
}

/** Returns the failure of tables that another version of the program made, which this one would write wrongly. */
function otherVersion(version: number): Failure {
  const remedy =
    version > SCHEMA_VERSION ? "use a newer pi-session-server" : "pi-session-server fleet migrate says what to do";
  return new Failure(
    "unsupported_version",
    `its tables have version ${version}, and this program writes version ${SCHEMA_VERSION} alone; ${remedy}`,
  );
}

/** Returns why a server is not used, if it is a former primary. */
export function explainMismatch(place: ServerPlace | undefined, { known, remedy }: KnownStore): string | undefined {
  const { latest } = known();
  if (!place || !isFormer(place, latest)) return undefined;
  return `this server is a former primary: it has timeline ${place.timeline}, and this machine has met timeline ${latest?.timeline}. Nothing is acknowledged there, and nothing more is sent to it. Have the address lead to the present primary; if this server is to be used from now on, ${remedy}`;
}

function joined(noted: StoreNote, { store, latest }: StoreNote): StoreNote {
  const isEarlier = latest === undefined || isFormer(latest, noted.latest);
  return { store: noted.store ?? store, latest: isEarlier ? noted.latest : latest };
}

/** Returns the store at an address as this process met it; nothing is stored. */
export function makeKnownStore(): KnownStore {
  let met: StoreNote = {};
  return {
    remedy: "start this program again",
    known: () => met,
    async note(more) {
      met = joined(met, more);
    },
  };
}

/** Returns the store that this machine has met at an address (without its password). */
export function openKnownStore(disk: Disk, stateFolder: string, shown: string): KnownStore {
  const folder = join(stateFolder, "fleet-stores");
  const file = join(folder, `${sha256(shown).slice(0, 32)}.json`);
  /** The facts that the disk does not have, not yet or because it fails. */
  let own: StoreNote = {};
  let last: StoreNote = {};
  /** Reads the note on disk; a damaged one counts as missing. */
  const noted = (): StoreNote => {
    const bytes = readIfPresent(() => readWhole(disk, file));
    try {
      const { store, server } = (bytes ? parse(bytes) : {}) as { store?: unknown; server?: unknown };
      return { store: typeof store === "string" ? store : undefined, latest: parseServerPlace(server) };
    } catch {
      return {};
    }
  };
  const known = (): StoreNote => {
    try {
      last = joined(noted(), own);
    } catch {
      // This process remembers it.
      last = joined(last, own);
    }
    return last;
  };
  const textOf = ({ store, latest }: StoreNote): string =>
    JSON.stringify({ address: shown, store, server: getServerName({ place: latest }) });
  return {
    remedy: `remove ${file}`,
    known,
    async note(met) {
      const mine = joined(own, met);
      own = mine;
      const now = known();
      const text = textOf(now);
      try {
        if (text !== textOf(noted())) {
          disk.makeFolder(folder);
          const fill = (fd: number): void => writeAll(disk, fd, toBytes(text));
          // Another process may have met a later one meanwhile.
          await writeTemporary(disk, file, fill, { sync: true }, (temporary) =>
            isFormer(now.latest, noted().latest) ? disk.remove(temporary) : disk.rename(temporary, file),
          );
        }
        if (own === mine) own = {};
      } catch {
        // The next connection, or the next process, records it.
      }
    },
  };
}

/** Returns the fleet at an address (without its password), as far as this machine has met it until it is asked. */
export function readNotedFleet(disk: Disk, stateFolder: string, shown: string): NotedFleet {
  const met = openKnownStore(disk, stateFolder, shown);
  return {
    address: shown,
    tenant: new URL(shown).searchParams.get("tenant") ?? "",
    get store() {
      return met.known().store;
    },
  };
}

/**
 * Returns whether two notes mean one fleet. An address means one fleet: another store is used there after a person
 * removed the note of the previous one, and then gets its pending entries. One store may have several addresses, as
 * with and without a pooler.
 */
export function isSameFleet(a: NotedFleet, b: NotedFleet): boolean {
  return a.address === b.address || (a.tenant === b.tenant && a.store !== undefined && a.store === b.store);
}
