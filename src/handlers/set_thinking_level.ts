import * as z from "zod";
import { makeDraft } from "../core/format/entry.ts";
import { appendEntries, requireTypes } from "./shared/append.ts";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "set_thinking_level",
  summary: "Records a change of thinking level at the leaf.",
  effect: "write",
  params: { level: z.string().min(1).describe("off, minimal, low, medium, high or whatever the host knows") },
  result: () => z.null(),
  example: { params: { level: "high" }, result: null },
  run(context, { level }) {
    appendEntries(context, [makeDraft("thinking_level_change", { thinkingLevel: level })]);
    return null;
  },
  repeat(context, entryIds) {
    requireTypes(context, entryIds, ["thinking_level_change"]);
    return null;
  },
});
