import * as z from "zod";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "exit",
  summary: "The same as shutdown, as the notification that editors send last; in JSON-RPC it has no id and no reply.",
  effect: "control",
  runsAtEnd: true,
  result: () => z.null(),
  example: { params: {}, result: null },
  run(context) {
    context.shutDown({ atOnce: true });
    return null;
  },
});
