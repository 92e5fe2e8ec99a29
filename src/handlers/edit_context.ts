import * as z from "zod";
import { makeDraft } from "../core/format/entry.ts";
import { appendEntries, makeRepeat } from "./shared/append.ts";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "edit_context",
  summary: "Changes what the model sees of an entry, or leaves it out; the entry itself stays as it is.",
  effect: "write",
  params: {
    targetId: z.string(),
    replacement: z
      .looseObject({ content: z.union([z.string(), z.array(z.looseObject({ type: z.string() }))]) })
      .nullable()
      .describe("its new content, or null to leave it out; the latest edit on the path counts"),
  },
  result: () => z.object({ entryId: z.string().describe("of the context_edit entry") }),
  failures: ["entry_not_found"],
  example: {
    params: { targetId: "a1b2c3d4", replacement: { content: "(a long listing, left out)" } },
    result: { entryId: "b2c3d4e5" },
  },
  run(context, { targetId, replacement }) {
    context.session.position(targetId);
    const draft = makeDraft("context_edit", { targetId, replacement: context.text("replacement") ?? replacement });
    return { entryId: appendEntries(context, [draft]).ids[0] };
  },
  repeat: makeRepeat("context_edit"),
});
