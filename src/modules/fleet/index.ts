/** The door of the module: the functions of `src/storage/fleet-module.ts`. */

import { makeTimestamp } from "../../core/ports/env.ts";
import type { FleetDatabase } from "../../core/ports/fleet-database.ts";
import type { ConnectedFleet, FleetAddress, FleetPlace } from "../../storage/fleet-module.ts";
import { readWhole } from "../../storage/fs/disk.ts";
import { connectFleet, type PostgresConnection } from "./connect.ts";
import { makeFleetDatabase } from "./database.ts";
import { openKnownStore } from "./postgres/identity.ts";
import { FleetProcesses } from "./postgres/processes.ts";

export function connectFleetTo(address: FleetAddress, place: FleetPlace): ConnectedFleet {
  const { disk, stateFolder, client, env } = place;
  const now = (): string => makeTimestamp(env);
  return connect(address, place, new FleetProcesses({ disk, stateFolder, client, now }));
}

export function openFleetDatabase(address: FleetAddress, place: FleetPlace): FleetDatabase {
  return makeFleetDatabase(connect(address, place), place);
}

function connect(
  { text, isSeen, whenAway, mayBeAnother, search }: FleetAddress,
  { disk, env, stateFolder, client }: FleetPlace,
  processes?: FleetProcesses,
): PostgresConnection {
  const place = {
    ...{ client, processes, search },
    processId: env.sessionId(),
    since: makeTimestamp(env),
    readFile: (path: string) => Buffer.from(readWhole(disk, path)).toString("utf8"),
    storeAt: mayBeAnother ? undefined : (shown: string) => openKnownStore(disk, stateFolder, shown),
  };
  return connectFleet(text, place, isSeen, whenAway);
}
