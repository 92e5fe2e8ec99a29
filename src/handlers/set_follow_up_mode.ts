import * as z from "zod";
import { command } from "./command.ts";

export default command({
  name: "set_follow_up_mode",
  summary: "How Pi hands over follow-up messages; kept while the process lives and shown in get_state.",
  effect: "control",
  params: { mode: z.enum(["all", "one-at-a-time"]) },
  result: z.null(),
  failures: [],
  example: { params: { mode: "all" }, result: null },
  run(context, { mode }) {
    context.settings.followUpMode = mode;
    return null;
  },
});
