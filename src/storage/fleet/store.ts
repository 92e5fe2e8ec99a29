/** A store whose sessions are also in the fleet. */

import { join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { Catalog } from "../../core/ports/catalog.ts";
import type { FleetCatalog } from "../../core/ports/fleet-catalog.ts";
import type { FleetKeeper } from "../../core/ports/fleet-keeper.ts";
import type { LifeCycle } from "../../core/ports/lifecycle.ts";
import type { Store } from "../../core/ports/store.ts";
import type { Stores } from "../../core/ports/stores.ts";
import type { Disk } from "../fs/disk.ts";
import { useAndClose } from "../fs/files.ts";
import { findLastBackup } from "../fs/quarantine.ts";
import { FileLog } from "../log/file-log.ts";
import type { FileLogOptions } from "../log/write-state.ts";
import { type ArrivalPlace, arrive, copyFor } from "./arrival.ts";
import { type CarePlace, FleetKeeping } from "./care.ts";
import { FleetCopy } from "./copy.ts";
import { locked } from "./failures.ts";
import { BackgroundGiving, type GivingPlace } from "./giving.ts";
import { fleetAt } from "./identity.ts";
import { type FleetCatalogOptions, JointFleetCatalog } from "./joint-catalog.ts";
import { JOURNAL_FOLDER, Journal } from "./journal.ts";
import { entriesIn, keepAside, salvage } from "./kept.ts";
import { fleetLifeCycle, type LifeCyclePlace } from "./life-cycle.ts";
import type { FleetOptions } from "./options.ts";

/** A fleet, and how it is asked. */
export interface FleetConnection extends Omit<FleetOptions, "keepAside" | "journal"> {
  readonly catalog?: FleetCatalog;
  readonly keeper?: FleetKeeper;
  /** Its address without a password, by which a machine that uses several knows what it owes to which. */
  readonly shown?: string;
}

/** The part of a fleet in the stores of one server. */
export interface InFleet {
  copying<T extends FileLogOptions>(options: T): T;
  store(store: Store): Store;
  /** Throws session_locked where another machine writes to a session. */
  readonly requireFree?: (id: string) => Promise<void>;
  /** Returns operations on whole sessions, of which the fleet is told. */
  lifeCycle(own: LifeCycle, place: Omit<LifeCyclePlace, "fleet" | "keeper" | "journal">): LifeCycle;
  /** Returns the care of the fleet, where there is one. */
  care(place: Omit<CarePlace, "fleet" | "keeper" | "options">): Pick<Stores, "fleet">;
  /** Returns what gives the fleet, beside everything else, what only this machine has. */
  giving(place: Omit<GivingPlace, "journal">): Pick<Stores, "uploadPending">;
  /** Returns the catalog of all machines. */
  catalog(of: Omit<FleetCatalogOptions, "there">): Catalog;
  /** Returns what brings sessions here from other machines, where there are any. */
  arrivals(
    place: Omit<
      ArrivalPlace,
      "fleet" | "keeper" | "journal" | "catalog" | "outage" | "isOpen" | "acknowledged" | "salvage" | "entriesIn"
    >,
  ): {
    arrive?: Stores["arrive"];
    /** See {@link copyFor}. */
    copyFor?(path: string): string | undefined;
  };
}

/** The place in which stores keep what a fleet refused, and what it lacks. */
interface FleetPlaces {
  readonly disk: Disk;
  readonly stateFolder: string;
  readonly quarantine: string;
  /** Returns the time in ISO 8601. */
  readonly now: () => string;
}

/** Returns the part of a fleet in stores. */
export function fleetOf(connection: FleetConnection, places: FleetPlaces): InFleet {
  const { disk, stateFolder, now } = places;
  const aside: FleetOptions["keepAside"] = (log, lines) => keepAside(disk, places.quarantine, log, lines);
  const { fleet, catalog, keeper, outage, shown } = connection;
  const own = shown === undefined ? undefined : fleetAt(disk, stateFolder, shown);
  const journal = new Journal(disk, join(stateFolder, JOURNAL_FOLDER), now, own);
  return {
    copying: (options) => copying(options, { ...connection, keepAside: aside, journal }),
    store: fleetStore,
    async requireFree(id) {
      const there = await fleet.look(id);
      if (there?.holder) throw locked(there.holder);
    },
    arrivals(own) {
      const place: ArrivalPlace = {
        ...{ ...own, fleet, keeper, journal, catalog, outage },
        acknowledged: (of) =>
          "sessionId" in of
            ? journal.ends.of(of.sessionId)
            : journal.ends
                .all()
                .filter(({ sessionPath }) => sessionPath === of.sessionPath)
                .sort((a, b) => (a.at < b.at ? 1 : -1))[0],
        entriesIn: (file, most) => entriesIn(disk, file).slice(0, most),
        salvage(file, lines) {
          const backup = findLastBackup(disk, file, "spoilt");
          const found = [...(backup === undefined ? [] : entriesIn(disk, backup)), ...lines];
          if (found.length > 0) useAndClose(own.open(file), (log) => salvage(log, found, aside));
        },
      };
      return {
        copyFor: (path) => copyFor(place, path),
        arrive: (where, isOpen, progress) => arrive({ ...place, isOpen }, where, progress),
      };
    },
    lifeCycle: (own, place) => (keeper ? fleetLifeCycle(own, { ...place, fleet, keeper, journal }) : own),
    care: (place) =>
      keeper
        ? {
            fleet: new FleetKeeping({
              ...place,
              fleet,
              keeper,
              options: { ...connection, journal, outage: undefined },
            }),
          }
        : {},
    giving(place) {
      const giving = new BackgroundGiving({ ...place, journal }, connection);
      return { uploadPending: (open) => giving.renew(open) };
    },
    catalog: (of) => (catalog ? new JointFleetCatalog({ ...of, there: catalog }) : of.here),
  };
}

/** Returns the options of a backend whose logs are working copies of sessions of a fleet. */
export function copying<T extends FileLogOptions>(options: T, fleet: FleetOptions): T {
  // New files are synced, so that a loss of power leaves no empty ones.
  return { ...options, durability: "sync", outside: (log) => new FleetCopy(log, fleet) };
}

/** Returns a store that publishes a session in the fleet, too, before anybody hears of it. */
export function fleetStore(store: Store): Store {
  return {
    ...store,
    // A fleet is waited for.
    publishNow: undefined,
    async publish(beginning, content) {
      const log = await store.publish(beginning, content);
      try {
        if (log instanceof FileLog) {
          await log.outside?.push(log.nodes.count);
          // The fleet has it, or is owed it: whatever fails from here on, it is not removed here alone.
          log.backend.discard = undefined;
        }
        return log;
      } catch (error) {
        // The fleet may have it: what is here has the key by which a repeated request finds it.
        const isUnknown = error instanceof Failure && error.name === "outcome_unknown";
        if (log.discard && !isUnknown) log.discard();
        else log.close();
        throw error;
      }
    },
  };
}
