import { neutral } from "./shared/agent-commands.ts";

export default neutral(
  "cycle_thinking_level",
  "Switches to the next thinking level of the model; without a model there is none.",
  true,
);
