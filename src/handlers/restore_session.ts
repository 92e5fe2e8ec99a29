import * as z from "zod";
import { MOVE_FAILURES, movedResult } from "./shared/closed-sessions.ts";
import { defineCommand } from "./shared/command.ts";
import { requireOneSession } from "./shared/params.ts";

export default defineCommand({
  name: "restore_session",
  summary: "Brings a session back from the server's own trash to where it was. Overwrites nothing.",
  effect: "server",
  params: {
    sessionPath: z.string().min(1).optional().describe("where it was, or where it is in the trash"),
    sessionId: z.string().min(1).optional().describe("or its full id; the one that was deleted last comes back"),
  },
  result: () => z.object(movedResult),
  failures: [...MOVE_FAILURES, "content_modified"],
  example: {
    params: { sessionPath: "/home/me/sessions/deleted.jsonl" },
    result: {
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120004",
      sessionPath:
        "/home/me/.local/state/pi-session-server/trash/2026-01-24T16-22-26-831Z_01991f6e-1f1d-7c3e-b0a4-0242ac120004/deleted.jsonl",
      movedTo: "/home/me/sessions/deleted.jsonl",
    },
  },
  run: async ({ workspace }, where) => workspace.stores.lifeCycle.restore(requireOneSession(where)),
});
