import * as z from "zod";
import { command } from "./command.ts";

export default command({
  name: "set_steering_mode",
  summary: "How Pi hands over steering messages; kept while the process lives and shown in get_state.",
  effect: "control",
  params: { mode: z.enum(["all", "one-at-a-time"]) },
  result: z.null(),
  failures: [],
  example: { params: { mode: "all" }, result: null },
  run(context, { mode }) {
    context.settings.steeringMode = mode;
    return null;
  },
});
