import * as z from "zod";
import { FIX_KINDS } from "../core/ports/health.ts";
import { fix } from "./get_health.ts";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "fix_health",
  summary:
    "Repairs everything that is no risk to a session: the permissions of the state folder, temporary files and locks of dead " +
    "processes, a damaged catalog. get_health lists all of it before. Touches no session.",
  effect: "server",
  params: { kinds: z.array(z.enum(FIX_KINDS)).optional().describe("only these; all by default") },
  result: () =>
    z.object({
      fixed: z.array(fix),
      failed: z.array(z.object({ fix, reason: z.string() })),
    }),
  failures: ["read_only", "storage_failed"],
  example: { params: { kinds: ["state_permissions"] }, result: { fixed: [], failed: [] } },
  run: ({ workspace }, { kinds }) => workspace.stores.health.fix(kinds),
});
