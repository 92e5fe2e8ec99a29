import * as z from "zod";
import { ROOT } from "../core/nodes.ts";
import { Raw } from "../core/raw.ts";
import { command, message, stored } from "./command.ts";

export default command({
  name: "get_context",
  summary: "What the model sees at any leaf, with model, thinking level and the entries it comes from.",
  effect: "read",
  params: {
    leafId: z.string().nullable().optional().describe("the current leaf by default; null: before the first entry"),
  },
  result: z.object({
    messages: stored(z.array(message)),
    model: z.object({ provider: z.string(), id: z.string() }).nullable(),
    thinkingLevel: z.string(),
    entryIds: z.array(z.string()).describe("one for each message"),
  }),
  failures: ["entry_not_found"],
  example: {
    params: {},
    result: {
      messages: [{ role: "user", content: "Hello" }],
      model: { provider: "anthropic", id: "claude-sonnet-4-5" },
      thinkingLevel: "off",
      entryIds: ["a1b2c3d4"],
    },
  },
  run(context, { leafId }) {
    const { session } = context;
    const leaf = leafId === undefined ? session.tree.leaf : leafId === null ? ROOT : session.position(leafId);
    let { items } = session.context(leaf);
    let texts = [...session.messageTexts(items)];
    if (session.heedLosses()) {
      // A message was found to be damaged just now, and each id must stand for the message in its place.
      items = session.context(leaf).items;
      texts = [...session.messageTexts(items)];
    }
    return {
      messages: Raw.array(() => texts),
      model: session.model(leaf),
      thinkingLevel: session.thinkingLevel(leaf),
      entryIds: items.map((item) => session.log.nodes.id(item.position)),
    };
  },
});
