import * as z from "zod";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "clear_queue",
  summary: "Clears Pi's queues of waiting messages; without an agent they are always empty.",
  effect: "control",
  result: () => z.object({ steering: z.array(z.string()), followUp: z.array(z.string()) }),
  example: { params: {}, result: { steering: [], followUp: [] } },
  run: () => ({ steering: [], followUp: [] }),
});
