import * as z from "zod";
import { modelsOf } from "../core/session/named-models.ts";
import { command } from "./shared/command.ts";
import { piModel } from "./shared/pi-shapes.ts";

export default command({
  name: "get_available_models",
  summary: "The models that the current session names, the current one first: a server without models knows no others.",
  effect: "control",
  result: z.object({ models: z.array(z.looseObject({ provider: z.string(), id: z.string() })) }),
  example: { params: {}, result: { models: [{ provider: "anthropic", id: "claude-sonnet-4-5" }] } },
  run({ workspace: { current } }) {
    return { models: current === null ? [] : modelsOf(current).map(({ provider, id }) => ({ provider, id })) };
  },
  pi: (_context, { models }) => ({ models: models.map(piModel) }),
});
