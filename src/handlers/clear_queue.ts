import * as z from "zod";
import { command } from "./shared/command.ts";

export default command({
  name: "clear_queue",
  summary: "Empties Pi's queues of messages to come; a server without an agent has none waiting.",
  effect: "control",
  params: {},
  result: z.object({ steering: z.array(z.string()), followUp: z.array(z.string()) }),
  failures: [],
  example: { params: {}, result: { steering: [], followUp: [] } },
  run: () => ({ steering: [], followUp: [] }),
});
