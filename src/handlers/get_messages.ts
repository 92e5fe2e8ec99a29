import { z } from "zod";
import { Raw } from "../core/raw.ts";
import { command, cursor, limit, message, nextCursor, stored } from "./command.ts";
import { pageOf } from "./page.ts";

export default command({
  name: "get_messages",
  summary: "What the model sees at the leaf, oldest first: compactions, summaries and edits applied.",
  effect: "read",
  params: { cursor, limit },
  result: z.object({ messages: stored(z.array(message)), nextCursor }),
  failures: ["cursor_expired"],
  example: {
    params: { limit: 1 },
    result: { messages: [{ role: "user", content: "Hello" }], nextCursor: "c3d4e5f6.1" },
  },
  run(context, params) {
    const { session } = context;
    // A path never changes, so a page is found again by its leaf and index whatever was appended since.
    const page = pageOf(session, params.cursor);
    const { items } = session.context(page.leaf);
    const past = params.limit === undefined ? items.length : Math.min(items.length, page.index + params.limit);
    const shown = items.slice(page.index, past);
    return {
      messages: Raw.array(() => session.messageTexts(shown)),
      nextCursor: past < items.length ? page.next(past) : undefined,
    };
  },
});
