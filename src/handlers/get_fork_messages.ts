import * as z from "zod";
import { contentText } from "../core/format/message.ts";
import { command } from "./shared/command.ts";

export default command({
  name: "get_fork_messages",
  summary: "The user messages that a fork can begin before, in file order.",
  effect: "read",
  params: {
    scope: z.enum(["all", "path"]).optional().describe("of all branches (default, as Pi), or of the current path"),
  },
  result: z.object({ messages: z.array(z.object({ entryId: z.string(), text: z.string() })) }),
  example: { params: {}, result: { messages: [{ entryId: "a1b2c3d4", text: "Hello" }] } },
  run(context, params) {
    const { session } = context;
    const { nodes } = session.log;
    const among = params.scope === "path" ? session.tree.path() : session.visible();
    const messages: { entryId: string; text: string }[] = [];
    for (const position of among) {
      if (nodes.role(position) !== "user") continue;
      const text = contentText((session.entry(position).message as { content?: unknown } | undefined)?.content);
      if (text !== "") messages.push({ entryId: nodes.id(position), text });
    }
    return { messages };
  },
});
