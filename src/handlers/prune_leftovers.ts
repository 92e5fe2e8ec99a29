import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { exampleLeftover, leftover, leftoverParams, sumBytes, toWanted, toWire } from "./shared/leftovers.ts";

export default defineCommand({
  name: "prune_leftovers",
  summary:
    "Moves what list_leftovers lists to the server's own trash, as one operation that undo takes back; or removes it for " +
    "good. What may be the only copy of something stays, unless that is forced. Announcements go for good always. Each is judged again with the " +
    "lock of its session; those of a session that is in use stay.",
  effect: "server",
  params: {
    ...leftoverParams,
    permanent: z.boolean().optional().describe("remove it for good; nothing brings it back"),
    force: z.boolean().optional().describe("also what may be the only copy of something"),
  },
  result: () =>
    z.object({
      operationId: z.string().nullable().describe("for undo; null when nothing was removed that it could bring back"),
      itemPath: z.string().nullable().describe("the folder in the trash"),
      removed: z.array(leftover),
      removedBytes: z.number().int(),
      kept: z.array(leftover),
    }),
  failures: ["read_only", "session_not_found", "not_a_session", "path_outside_root", "storage_full", "storage_failed"],
  example: {
    params: { kinds: ["backup"] },
    result: {
      operationId: "3f2a9c1077de",
      itemPath: "/home/me/.local/state/pi-session-server/trash/2026-01-24T16-22-26-831Z_leftovers",
      removed: [exampleLeftover],
      removedBytes: 812,
      kept: [],
    },
  },
  async run({ workspace, progress }, { permanent = false, force = false, ...params }) {
    const { leftovers } = workspace.stores.lifeCycle;
    const pruned = await leftovers.prune(toWanted(params), { permanent, force }, progress);
    const { operationId, itemPath, removed, kept } = pruned;
    const removedBytes = sumBytes(removed);
    return { operationId, itemPath, removed: removed.map(toWire), removedBytes, kept: kept.map(toWire) };
  },
});
