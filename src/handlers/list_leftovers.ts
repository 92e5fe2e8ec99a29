import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { exampleLeftover, leftover, leftoverParams, sumBytes, toWanted, toWire } from "./shared/leftovers.ts";

export default defineCommand({
  name: "list_leftovers",
  summary:
    "Lists files next to sessions that no session needs: backups, files of migrated sessions, old containers, " +
    "temporary files, announcements of killed servers; the largest first, each with the consequence of its loss. Reads their sessions. Changes nothing.",
  effect: "server",
  repeatable: true,
  params: leftoverParams,
  result: () => z.object({ leftovers: z.array(leftover), totalBytes: z.number().int() }),
  failures: ["session_not_found", "not_a_session", "path_outside_root", "storage_failed"],
  example: { params: {}, result: { leftovers: [exampleLeftover], totalBytes: 812 } },
  async run({ workspace, progress }, params) {
    const found = await workspace.stores.lifeCycle.leftovers.list(toWanted(params), progress);
    return { leftovers: found.map(toWire), totalBytes: sumBytes(found) };
  },
});
