import * as z from "zod";
import { command } from "./command.ts";
import { damage } from "./events.ts";

export default command({
  name: "repair_session",
  summary:
    "Publishes a damaged session anew without what is damaged; the original is kept. A sound one stays as it is.",
  effect: "write",
  params: { dryRun: z.boolean().optional().describe("only say what would be done") },
  result: z.object({
    repaired: z.array(damage).describe("the damage that was, or would be, taken out"),
    backupPath: z.string().nullable().describe("where the original is; null when nothing was written"),
    entryCount: z.number().int(),
  }),
  failures: ["session_locked"],
  example: { params: { dryRun: true }, result: { repaired: [], backupPath: null, entryCount: 4 } },
  run(context, { dryRun }) {
    const { session } = context;
    const { repaired, backupPath } = session.repair(dryRun ?? false);
    return { repaired: repaired.map((found) => ({ ...found })), backupPath, entryCount: session.tree.entryCount };
  },
});
