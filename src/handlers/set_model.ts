import * as z from "zod";
import { makeDraft } from "../core/format/entry.ts";
import { appendEntries, requireTypes } from "./shared/append.ts";
import { defineCommand } from "./shared/command.ts";
import { toPiModel } from "./shared/pi-model.ts";

export default defineCommand({
  name: "set_model",
  summary: "Records a change of model at the leaf.",
  effect: "write",
  params: { provider: z.string().min(1), modelId: z.string().min(1) },
  result: () => z.looseObject({ provider: z.string(), id: z.string() }).describe("the current model"),
  example: { params: { provider: "openai", modelId: "gpt-4o" }, result: { provider: "openai", id: "gpt-4o" } },
  run(context, { provider, modelId }) {
    appendEntries(context, [makeDraft("model_change", { provider, modelId })]);
    return { provider, id: modelId };
  },
  pi: (_context, model) => toPiModel(model),
  repeat(context, entryIds) {
    requireTypes(context, entryIds, ["model_change"]);
    const [entryId] = entryIds;
    const { provider, modelId } = context.session.entry(context.session.position(entryId));
    return { provider: provider as string, id: modelId as string };
  },
});
