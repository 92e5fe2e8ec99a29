import * as z from "zod";
import { Failure } from "../core/failure.ts";
import { getContentText } from "../core/format/message.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { defineCommand } from "./shared/command.ts";
import { forkedExample, replacement, toReplacement, toVetoed } from "./shared/current-session.ts";
import { displayName } from "./shared/shapes.ts";

export default defineCommand({
  name: "fork",
  summary:
    "Copies the path to an entry, and the session's name, into a new session and makes that the current one. Its file is " +
    "next to the session's when that is outside the session folders.",
  effect: "replace",
  params: {
    entryId: z.string(),
    position: z
      .enum(["before", "at"])
      .optional()
      .describe("before (default): the copy ends before the entry, a user message; at: it ends with the entry"),
    name: displayName.optional().describe("the display name of the copy; by default that of the session"),
  },
  result: () =>
    z.object({
      text: z.string().describe("the text of the user message, for the editor; empty with at"),
      ...replacement,
    }),
  failures: ["entry_not_found", "not_a_user_message", "already_exists"],
  example: { params: { entryId: "a1b2c3d4" }, result: { text: "Hello", ...forkedExample } },
  async run(context, { entryId, position = "before", name }) {
    const { session, workspace } = context;
    const { nodes } = session.log;
    const entry = session.position(entryId);
    let end = entry;
    let text = "";
    if (position === "before") {
      if (nodes.role(entry) !== "user") throw new Failure("not_a_user_message", undefined, { entryId });
      text = getContentText((session.entry(entry).message as { content?: unknown } | undefined)?.content);
      end = Math.max(nodes.parent(entry), ROOT);
    }
    if (context.asks("session_before_fork")) {
      const asked = await context.ask("session_before_fork", { entryId, position });
      if (asked.cancelled) return { text: "", ...toVetoed(context, asked) };
    }
    const next = await workspace.fork(session, end, { key: context.key, id: context.keyedId, comesOf: session, name });
    await context.replace(next, { reason: "fork", fork: { entryId, position } });
    return { text, ...toReplacement(next) };
  },
  recall({ workspace }, made, { entryId, position = "before" }) {
    // The message is in the session that was forked, because the fork ends before it.
    const entry = position === "before" ? workspace.entryIn(made.parentSession, entryId) : undefined;
    const text = getContentText((entry?.message as { content?: unknown } | undefined)?.content);
    return { text, ...toReplacement(made) };
  },
});
