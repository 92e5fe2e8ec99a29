/** A store whose sessions are also in the fleet. */

import type { Store } from "../../core/ports/store.ts";
import { FileLog, type FileLogOptions } from "../log/file-log.ts";
import { FleetCopy, type FleetOptions } from "./copy.ts";

/** Returns the options of a backend whose logs are working copies of sessions of a fleet. */
export function copying<T extends FileLogOptions>(options: T, fleet: FleetOptions): T {
  return { ...options, outside: (log) => new FleetCopy(log, fleet) };
}

/** Returns a store that publishes a session in the fleet, too, before anybody hears of it. */
export function fleetStore(store: Store): Store {
  return {
    ...store,
    async publish(beginning, content) {
      const log = await store.publish(beginning, content);
      try {
        if (log instanceof FileLog) await log.outside?.push(log.nodes.count);
        return log;
      } catch (error) {
        if (log.discard) log.discard();
        else log.close();
        throw error;
      }
    },
  };
}
