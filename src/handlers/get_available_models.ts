import * as z from "zod";
import { isUnknown, UNKNOWN_MODEL } from "../core/context/models.ts";
import type { Session } from "../core/session/session.ts";
import { KNOWN_TYPES, ROOT } from "../core/tree/nodes.ts";
import { defineCommand } from "./shared/command.ts";
import { toPiModel } from "./shared/pi-model.ts";

export default defineCommand({
  name: "get_available_models",
  summary:
    "The models that the current session names, the current one first, and that of the command line: a server without " +
    "models knows no others.",
  effect: "control",
  result: () => z.object({ models: z.array(z.looseObject({ provider: z.string(), id: z.string() })) }),
  example: { params: {}, result: { models: [{ provider: "anthropic", id: "claude-sonnet-4-5" }] } },
  run({ workspace: { current }, server: { model } }) {
    const named = current === null ? [] : modelsOf(current);
    if (!model) return { models: onlyOnce(named) };
    return { models: onlyOnce(current?.model() ? [...named, model] : [model, ...named]) };
  },
  pi({ server }, { models }) {
    // pi-acp begins no session without a model: it takes an empty list for a missing key.
    const listed = server.asPi && models.length === 0 ? [UNKNOWN_MODEL] : models;
    return { models: listed.map(toPiModel) };
  },
});

type NamedModel = { provider: string; id: string };

/** Returns the models that a session names: the one in force first, then the others as they came. */
function modelsOf(session: Session): NamedModel[] {
  const models = [session.model(), session.model(ROOT)];
  const { types } = session.log.nodes.columns();
  const change = KNOWN_TYPES.indexOf("model_change");
  for (let at = types.indexOf(change); at >= 0; at = types.indexOf(change, at + 1)) {
    const { provider, modelId } = session.entry(at);
    if (typeof provider === "string" && typeof modelId === "string") models.push({ provider, id: modelId });
  }
  return models.filter((model) => model !== null && !isUnknown(model)) as NamedModel[];
}

function onlyOnce(models: readonly NamedModel[]): NamedModel[] {
  return [...new Map(models.map((model) => [JSON.stringify([model.provider, model.id]), model])).values()];
}
