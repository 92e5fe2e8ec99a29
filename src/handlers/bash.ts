import * as z from "zod";
import { unsupported } from "./shared/agent-commands.ts";

export default unsupported(
  "bash",
  { command: z.string().optional(), excludeFromContext: z.boolean().optional() },
  { command: "npm test" },
  "run it yourself and store it with append as a message of the role bashExecution.",
);
