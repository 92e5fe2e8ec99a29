import * as z from "zod";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "get_commands",
  summary: "Slash commands of the agent, as Pi lists them; a server without an agent has none.",
  effect: "control",
  result: () => z.object({ commands: z.array(z.looseObject({ name: z.string() })) }),
  example: { params: {}, result: { commands: [] } },
  run: () => ({ commands: [] }),
});
