import * as z from "zod";
import { makeDraft } from "../core/format/entry.ts";
import { appendRecorded, makeRepeat } from "./shared/append.ts";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "set_label",
  summary: "Sets or clears the label of an entry, by an entry at the leaf, which becomes the leaf.",
  effect: "write",
  params: { entryId: z.string(), label: z.string().nullish().describe("missing, null or empty clears it") },
  result: () => z.object({ entryId: z.string().describe("of the label entry") }),
  failures: ["entry_not_found"],
  example: { params: { entryId: "a1b2c3d4", label: "checkpoint-1" }, result: { entryId: "b2c3d4e5" } },
  run(context, { entryId: targetId, label }) {
    context.session.position(targetId);
    const draft = makeDraft("label", { targetId, label: label || undefined });
    return { entryId: appendRecorded(context, [draft], [{ type: "label", targetId }]).ids[0] };
  },
  repeat: makeRepeat("label"),
});
