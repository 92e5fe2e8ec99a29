import * as z from "zod";
import { command } from "./shared/command.ts";

export default command({
  name: "clear_queue",
  summary: "Clears Pi's queues of waiting messages; without an agent they are always empty.",
  effect: "control",
  result: () => z.object({ steering: z.array(z.string()), followUp: z.array(z.string()) }),
  example: { params: {}, result: { steering: [], followUp: [] } },
  run: () => ({ steering: [], followUp: [] }),
});
