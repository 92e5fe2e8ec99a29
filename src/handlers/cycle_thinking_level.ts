import { defineNeutralCommand } from "./shared/agent-commands.ts";

export default defineNeutralCommand(
  "cycle_thinking_level",
  "Switches to the next thinking level of the model; without a model it returns null.",
  true,
);
