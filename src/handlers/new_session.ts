import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { replacement, toReplacement, toVetoed } from "./shared/current-session.ts";
import { removeNulls } from "./shared/pi-model.ts";
import { directory, refuseNul } from "./shared/shapes.ts";

export default defineCommand({
  name: "new_session",
  summary:
    "Creates a new, empty session and makes it the current one. Its file appears with its first entry, where a fork's would be, or " +
    "in the folder of the cwd that is named.",
  effect: "replace",
  params: {
    parentSession: refuseNul(z.string()).optional().describe("path of the session it continues from, for the record"),
    cwd: directory.optional().describe("absolute; the server's working directory by default"),
    newSessionId: z.string().optional().describe("an id that no session has; a new one by default"),
    name: z.string().optional().describe("display name"),
  },
  result: () => z.object(replacement),
  failures: ["invalid_id", "already_exists"],
  example: {
    params: { name: "Refactor auth" },
    result: {
      cancelled: false,
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
      sessionFile:
        "/home/me/.pi/agent/sessions/--home-me-app--/2026-01-24T16-22-26-831Z_01991f6e-1f1d-7c3e-b0a4-0242ac120002.jsonl",
    },
  },
  async run(context, params) {
    const { parentSession, cwd, name } = params;
    // A host that names a directory expects the session in the folder of that directory.
    const comesOf = cwd === undefined ? (context.workspace.current ?? undefined) : undefined;
    const next = context.workspace.create({ parentSession, cwd, id: context.keyedId, name, key: context.key, comesOf });
    // Nothing could be written to it.
    if (next.log.readOnly) throw next.log.readOnly;
    if (context.asks("session_before_switch")) {
      const asked = await context.ask("session_before_switch", { reason: "new" });
      if (asked.cancelled) return toVetoed(context, asked);
    }
    await context.replace(next, { reason: "new" });
    return toReplacement(next);
  },
  recall: (_context, made) => toReplacement(made),
  pi(context, result) {
    context.workspace.prepareFolder(context.session);
    return removeNulls(result);
  },
});
