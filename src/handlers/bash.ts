import * as z from "zod";
import { defineUnsupportedCommand } from "./shared/agent-commands.ts";

export default defineUnsupportedCommand(
  "bash",
  { command: z.string().optional(), excludeFromContext: z.boolean().optional() },
  { command: "npm test" },
  "run it yourself and store it with append as a message of the role bashExecution.",
);
