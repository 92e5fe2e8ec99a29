import * as z from "zod";
import type { Model } from "../core/context/context.ts";
import { isUnknown } from "../core/context/models.ts";
import type { Session } from "../core/session/session.ts";
import { KNOWN_TYPES, ROOT } from "../core/tree/nodes.ts";
import { command } from "./shared/command.ts";
import { piModel } from "./shared/pi-shapes.ts";

export default command({
  name: "get_available_models",
  summary: "The models that the current session names, the current one first: a server without models knows no others.",
  effect: "control",
  result: z.object({ models: z.array(z.looseObject({ provider: z.string(), id: z.string() })) }),
  example: { params: {}, result: { models: [{ provider: "anthropic", id: "claude-sonnet-4-5" }] } },
  run({ workspace: { current } }) {
    return { models: current === null ? [] : modelsOf(current) };
  },
  pi: (_context, { models }) => ({ models: models.map(piModel) }),
});

/** Returns the models that a session names, each once: the one in force first, then the others as they came. */
function modelsOf(session: Session): { provider: string; id: string }[] {
  const models = [session.model(), session.model(ROOT)];
  const { types } = session.log.nodes.columns();
  const change = KNOWN_TYPES.indexOf("model_change");
  for (let at = types.indexOf(change); at >= 0; at = types.indexOf(change, at + 1)) {
    const { provider, modelId } = session.entry(at);
    if (typeof provider === "string" && typeof modelId === "string") models.push({ provider, id: modelId });
  }
  const named = models.filter((model) => model !== null && !isUnknown(model)) as Model[];
  return [...new Map(named.map((model) => [JSON.stringify([model.provider, model.id]), model])).values()];
}
