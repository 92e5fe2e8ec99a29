import * as z from "zod";
import { Raw } from "../core/json/raw.ts";
import { defineCommand } from "./shared/command.ts";
import { findPage, findSpan } from "./shared/page.ts";
import { cursor, fromEnd, images, limit, messageResult, nextCursor, typeStored } from "./shared/shapes.ts";

export default defineCommand({
  name: "get_messages",
  summary: "What the model sees at the leaf, oldest first: compactions, summaries and edits applied.",
  effect: "read",
  params: { fromEnd, cursor, limit, images },
  result: () => z.object({ messages: typeStored(z.array(messageResult)), nextCursor }),
  failures: ["cursor_expired"],
  example: {
    params: { limit: 1 },
    result: { messages: [{ role: "user", content: "Hello" }], nextCursor: "c3d4e5f6.1" },
  },
  run(context, params) {
    const { session } = context;
    const page = findPage(session, params.cursor);
    const { items } = session.context(page.leaf);
    const { from, past, next } = findSpan(context, params, items.length, page.index, (i) => {
      const [text] = session.messageTexts([items[i]], params.images);
      return text;
    });
    const shown = items.slice(from, past);
    return {
      messages: Raw.array(() => session.messageTexts(shown, params.images)),
      nextCursor: next === undefined ? undefined : page.next(next),
    };
  },
});
