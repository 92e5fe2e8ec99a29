/** The door of the module for other agents' sessions. `storage/foreign-module.ts` is its contract. */

import { join } from "node:path";
import type { MakeResumable, ResumableSession } from "../../core/export/resumable.ts";
import type { AgentSessions, ForeignModule } from "../../storage/foreign-module.ts";
import type { Variables } from "../../storage/fs/paths.ts";
import { once } from "../../storage/when-used.ts";
import { AgentFiles } from "./files/agent-files.ts";
import { findLiveHolders } from "./files/live.ts";
import { getAgentPlaces, listUnread } from "./files/places.ts";
import { makeForeignStore } from "./files/store.ts";
import { makeResumableFile } from "./write/resumable.ts";

export function openAgentSessions(
  ...[{ disk, env, stateFolder, variables }]: Parameters<ForeignModule["openAgentSessions"]>
): AgentSessions {
  const store = makeForeignStore(disk, env, stateFolder);
  const places = once(() => getAgentPlaces(variables));
  return {
    ...store,
    listFiles: (watchFrom) => new AgentFiles({ disk, env, store, places: places(), watchFrom }),
    listUnread: () => listUnread(disk, places()),
    findHolders: (paths) => findLiveHolders(disk, places(), paths),
  };
}

export function makeResumable(variables: Variables, ...of: Parameters<MakeResumable>): ResumableSession {
  const { parts, ...file } = makeResumableFile(...of);
  const place = getAgentPlaces(variables).find(({ agent }) => agent === of[0]);
  return { ...file, path: parts && place && join(place.folder, ...parts) };
}
