import * as z from "zod";
import { command } from "./shared/command.ts";

export default command({
  name: "exit",
  summary: "The same as shutdown, as the notification that editors send last; in JSON-RPC it has no id and no reply.",
  effect: "control",
  result: () => z.null(),
  example: { params: {}, result: null },
  run(context) {
    context.shutDown({ atOnce: true });
    return null;
  },
});
