import * as z from "zod";
import { command } from "./shared/command.ts";

export default command({
  name: "get_available_thinking_levels",
  summary: "Thinking levels to choose from, as Pi lists them: without a model only off.",
  effect: "control",
  result: z.object({ levels: z.array(z.string()) }),
  example: { params: {}, result: { levels: ["off"] } },
  run: () => ({ levels: ["off"] }),
});
