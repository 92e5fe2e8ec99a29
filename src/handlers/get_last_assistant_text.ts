import * as z from "zod";
import { getContentText } from "../core/format/message.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "get_last_assistant_text",
  summary: "The text of the last assistant message on the path, or null.",
  effect: "read",
  result: () => z.object({ text: z.string().nullable() }),
  example: { params: {}, result: { text: "Done." } },
  run(context) {
    const { session } = context;
    const { nodes } = session.log;
    for (let at = session.tree.leaf; at !== ROOT && at >= 0; at = nodes.parent(at)) {
      if (nodes.role(at) !== "assistant") continue;
      const message = session.shownEntry(at).message as { content?: unknown; stopReason?: unknown } | undefined;
      const content = message?.content;
      // An answer that was aborted before it had any content does not count, as in Pi.
      if (message?.stopReason === "aborted" && (!Array.isArray(content) || content.length === 0)) continue;
      const text = getContentText(content).trim();
      return { text: text === "" ? null : text };
    }
    return { text: null };
  },
});
