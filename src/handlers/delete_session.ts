import * as z from "zod";
import {
  findClosedSession,
  MOVE_FAILURES,
  movedResult,
  moveParams,
  operationId,
  sessionChoice,
  toMoveOptions,
} from "./shared/closed-sessions.ts";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "delete_session",
  summary:
    "Moves a session that is not open, with its backups and attachments, to the trash: by the trash command if there " +
    "is one and paths are not confined, else to the server's own trash; restore_session brings it back from there.",
  effect: "server",
  movesFile: true,
  ofAny: true,
  params: {
    ...sessionChoice,
    ...moveParams,
    permanent: z.boolean().optional().describe("unlink it at once; it cannot be restored"),
  },
  result: () =>
    z.object({
      operationId,
      ...movedResult,
      movedTo: z.string().optional().describe("where it is now; missing when unlinked or not known"),
      trash: z
        .enum(["desktop", "own", "none"])
        .describe("desktop: by the trash command; own: restore_session brings it back; none: it was unlinked"),
    }),
  failures: [...MOVE_FAILURES, "content_modified"],
  example: {
    params: { sessionPath: "/home/me/sessions/old.jsonl" },
    result: {
      operationId: "3f2a9c1077de",
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120003",
      sessionPath: "/home/me/sessions/old.jsonl",
      movedTo:
        "/home/me/.local/state/pi-session-server/trash/2026-01-24T16-22-26-831Z_01991f6e-1f1d-7c3e-b0a4-0242ac120003/old.jsonl",
      trash: "own",
    },
  },
  async run({ workspace }, { permanent = false, sessionPath, sessionId, ...wished }) {
    const file = await findClosedSession(workspace, { sessionPath, sessionId });
    return workspace.stores.lifeCycle.delete(file, permanent, toMoveOptions(wished));
  },
});
