/** The models that a session names. */

import type { Model } from "../context/context.ts";
import { isUnknown } from "../context/models.ts";
import { KNOWN_TYPES, ROOT } from "../tree/nodes.ts";
import type { Session } from "./session.ts";

/** Returns the models that a session names, each once: the one in force first, then the others as they came. */
export function modelsOf(session: Session): Model[] {
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
