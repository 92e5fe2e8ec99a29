import * as z from "zod";
import { command } from "./command.ts";

export default command({
  name: "set_auto_retry",
  summary: "Whether Pi repeats a failed model request; kept while the process lives, without effect here.",
  effect: "control",
  params: { enabled: z.boolean() },
  result: z.null(),
  failures: [],
  example: { params: { enabled: true }, result: null },
  run(context, { enabled }) {
    context.settings.autoRetryEnabled = enabled;
    return null;
  },
});
