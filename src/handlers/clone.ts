import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { forkedExample, replacement, toReplacement, toVetoed } from "./shared/current-session.ts";
import { displayName } from "./shared/shapes.ts";

export default defineCommand({
  name: "clone",
  summary:
    "Copies the whole current path, and the session's name, into a new session and makes that the current one. Its file is " +
    "where a fork's would be.",
  effect: "replace",
  params: { name: displayName.optional().describe("the display name of the copy; by default that of the session") },
  result: () => z.object(replacement),
  failures: ["already_exists"],
  example: { params: {}, result: forkedExample },
  async run(context, { name }) {
    const { session, workspace } = context;
    const entryId = session.leafId;
    if (context.asks("session_before_fork")) {
      const asked = await context.ask("session_before_fork", { entryId, position: "at" });
      if (asked.cancelled) return toVetoed(context, asked);
    }
    const next = await workspace.fork(session, session.tree.leaf, {
      key: context.key,
      id: context.keyedId,
      comesOf: session,
      name,
    });
    await context.replace(next, { reason: "fork", fork: { entryId, position: "at" } });
    return toReplacement(next);
  },
  recall: (_context, made) => toReplacement(made),
});
