import { defineNeutralCommand } from "./shared/agent-commands.ts";

export default defineNeutralCommand(
  "cycle_model",
  "Switches to the next of Pi's models; without models it returns null.",
  true,
);
