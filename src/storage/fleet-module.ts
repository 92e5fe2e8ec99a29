/** The contract of the module `fleet`: sessions in PostgreSQL that many machines share. */

import type { SessionSource } from "../core/ports/catalog.ts";
import type { Env } from "../core/ports/env.ts";
import type { FleetAdmin } from "../core/ports/fleet-admin.ts";
import type { FleetDatabase } from "../core/ports/fleet-database.ts";
import type { LifeCycle } from "../core/ports/lifecycle.ts";
import type { Log, Store } from "../core/ports/store.ts";
import type { Stores } from "../core/ports/stores.ts";
import type { LocalCatalog } from "./catalog/catalog.ts";
import type { Disk } from "./fs/disk.ts";
import type { LifecycleDeps } from "./lifecycle/exclusive.ts";
import type { ReplicatedLog } from "./log/replica.ts";
import type { FileLogOptions } from "./log/write-state.ts";
import type { makeMemoryStore } from "./memory.ts";

/** An unusable address of a fleet; the message has advice. */
export class AddressError extends Error {}

/** The sentence about an address where the program was built without the module. */
export const NO_FLEET = "This build has no fleet: leave out --fleet, and unset PI_FLEET_URL.";

export interface FleetModule {
  /** Puts a fleet together. Nothing is connected before it is first asked. Throws AddressError. */
  connectFleetTo(address: FleetAddress, place: FleetPlace): ConnectedFleet;
  /** Does the same for questions about the database, which need no sessions of this machine. */
  openFleetDatabase(address: FleetAddress, place: FleetPlace): FleetDatabase;
}

/** The address of a fleet, and how it is used. */
export interface FleetAddress {
  /** A URL, or `file:` with the path of a file that contains one. */
  readonly text: string;
  /** True if others can see the text, so that it must have no password. */
  readonly isSeen: boolean;
  /** The behaviour of writes while the database is unreachable; by default they are refused. */
  readonly whenAway?: "refuse" | "journal";
  /** True if another database may be at the address than before, as when a person makes its tables again. */
  readonly mayBeAnother?: boolean;
  /** "off": other machines do not find this machine's entries by their words. */
  readonly search?: string;
}

/** This machine and process. */
export interface FleetPlace {
  readonly disk: Disk;
  readonly env: Env;
  readonly stateFolder: string;
  /** The name of this process for others that find a session taken. */
  readonly client: string;
}

export interface ConnectedFleet {
  /** There if work goes on without the database: entries may then wait on this machine. */
  readonly outage?: object;
  /** `complain` reports to a person, without a request, what the disk refuses. */
  makeStores(place: {
    readonly disk: Disk;
    readonly env: Env;
    readonly stateFolder: string;
    readonly complain?: (sentence: string) => void;
  }): FleetStores;
  /** Closes the connections. Later calls are answered as by an unreachable database. */
  close(): Promise<void>;
}

/** The fleet in the stores of one server. */
export interface FleetStores {
  /** Returns the options of a backend whose logs are working copies of sessions of the fleet. */
  withReplica<T extends FileLogOptions>(options: T): T;
  /** Returns a store that publishes a session in the fleet before it is announced. */
  publishThere(store: Store): Store;
  /** Throws session_locked if another machine writes to a session. */
  requireFree(id: string): Promise<void>;
  /** Returns a function that is true for the copies here of other tenants' sessions; of one session, if named. */
  findOthers(sessionId?: string): (copy: { readonly id: string; readonly path: string }) => boolean;
  /** Throws storage_failed for a copy of another tenant's session: its text would come into this tenant's. */
  requireOwn(id: string, file: string): void;
  /** Joins the fleet with the sessions of this machine. */
  join(local: LocalSessions): FleetSessions;
}

/** The sessions of this machine, as a fleet needs them. */
export interface LocalSessions {
  readonly lifecycle: LifecycleDeps;
  readonly catalog: LocalCatalog;
  readonly memory: ReturnType<typeof makeMemoryStore>;
  /** True if files are synced. */
  readonly isDurable: boolean;
  /** Stores for new copies, the preferred one first; they do not publish in the fleet. */
  readonly copies: readonly Store[];
  /** Returns the one for a path. */
  storeAt(file: string): Store;
  /** Opens a session as a working copy. */
  openCopy(file: string): Log;
  openForReading(file: string): Log;
  /** Returns whether a log is of one of our files, so that it could have a replica. */
  isOurs(log: Log): log is ReplicatedLog;
  /** Returns the path of a session by its id or, unless `isWhole`, by the beginning of one; listed ones come first. */
  find(id: string, isWhole?: boolean): string;
  /** Returns the path and the store of a new session. */
  placeFor(session: PlacedSession): { readonly path: string; readonly store: "v2" | "jsonl" };
  /** Returns whether a file is outside the session folders and the archive. */
  isOutside(file: string): boolean;
  /** Returns the session id in the header of a file. */
  idIn(file: string): string | undefined;
  /** Returns the ids of the session in a file, and of those within another agent's. */
  idsIn(file: string): readonly string[];
}

/** The members of a header that decide where a copy is. */
export interface PlacedSession {
  readonly id: string;
  readonly cwd?: string | null;
  readonly timestamp?: string | null;
}

/** The sessions of this machine and of the fleet together. */
export interface FleetSessions {
  readonly arrive: NonNullable<Stores["arrive"]>;
  readonly uploadPending: NonNullable<Stores["uploadPending"]>;
  /** Undefined if the fleet answers no questions about whole sessions. */
  readonly admin: FleetAdmin | undefined;
  /** Returns the local file of the session that other machines name by a path without a file here. */
  copyFor(path: string): string | undefined;
  /** Its sessions as a source of lists; undefined if it cannot be asked for them. */
  readonly source: SessionSource | undefined;
  /** Returns operations on whole sessions that are applied to the fleet, too. */
  wrapLifeCycle(own: LifeCycle): LifeCycle;
}
