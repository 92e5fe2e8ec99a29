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
  name: "archive_session",
  summary:
    "Moves a session that is not open out of the session folders, so that agents do not list it; list_sessions does " +
    "with archived.",
  effect: "server",
  movesFile: true,
  ofAny: true,
  params: { ...sessionChoice, ...moveParams },
  result: () => z.object({ operationId, ...movedResult }),
  failures: [...MOVE_FAILURES, "content_modified"],
  example: {
    params: { sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120005" },
    result: {
      operationId: "3f2a9c1077de",
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120005",
      sessionPath: "/home/me/.pi/agent/sessions/--home-me-app--/listed_01991f6e-1f1d-7c3e-b0a4-0242ac120005.jsonl",
      movedTo:
        "/home/me/.local/state/pi-session-server/archive/5f1d7c3eb0a40242/--home-me-app--/listed_01991f6e-1f1d-7c3e-b0a4-0242ac120005.jsonl",
    },
  },
  async run({ workspace }, { sessionPath, sessionId, ...wished }) {
    const file = await findClosedSession(workspace, { sessionPath, sessionId }, "archive");
    return { ...(await workspace.stores.lifeCycle.archive(file, toMoveOptions(wished))) };
  },
});
