import * as z from "zod";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "get_available_thinking_levels",
  summary:
    "Thinking levels to choose from, as Pi lists them: without a model only off and that of the current session.",
  effect: "control",
  result: () => z.object({ levels: z.array(z.string()) }),
  example: { params: {}, result: { levels: ["off"] } },
  // pi-acp begins no session whose level is not in the list.
  run: ({ workspace: { current } }) => ({ levels: [...new Set(["off", current?.thinkingLevel() ?? "off"])] }),
});
