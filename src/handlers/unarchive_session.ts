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
  name: "unarchive_session",
  summary: "Moves an archived session back to where it was. Overwrites nothing.",
  effect: "server",
  movesFile: true,
  ofAny: true,
  params: { ...sessionChoice, ...moveParams },
  result: () => z.object({ operationId, ...movedResult }),
  failures: [...MOVE_FAILURES, "content_modified"],
  example: {
    params: { sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120006" },
    result: {
      operationId: "3f2a9c1077de",
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120006",
      sessionPath:
        "/home/me/.local/state/pi-session-server/archive/5f1d7c3eb0a40242/--home-me-app--/archived_01991f6e-1f1d-7c3e-b0a4-0242ac120006.jsonl",
      movedTo: "/home/me/.pi/agent/sessions/--home-me-app--/archived_01991f6e-1f1d-7c3e-b0a4-0242ac120006.jsonl",
    },
  },
  async run({ workspace }, { sessionPath, sessionId, ...wished }) {
    const file = await findClosedSession(workspace, { sessionPath, sessionId }, "unarchive");
    return { ...(await workspace.stores.lifeCycle.unarchive(file, toMoveOptions(wished))) };
  },
});
