import * as z from "zod";
import { command } from "./command.ts";

export default command({
  name: "get_available_models",
  summary: "Models to choose from, as Pi lists them; a server without models has none.",
  effect: "control",
  params: {},
  result: z.object({ models: z.array(z.looseObject({ provider: z.string(), id: z.string() })) }),
  failures: [],
  example: { params: {}, result: { models: [] } },
  run: () => ({ models: [] }),
});
