import * as z from "zod";
import { command } from "./command.ts";

export default command({
  name: "set_auto_compaction",
  summary: "Whether Pi compacts by itself; kept while the process lives, without effect here.",
  effect: "control",
  params: { enabled: z.boolean() },
  result: z.null(),
  failures: [],
  example: { params: { enabled: true }, result: null },
  run(context, { enabled }) {
    context.settings.autoCompactionEnabled = enabled;
    return null;
  },
});
