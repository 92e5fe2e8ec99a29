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
import { directory } from "./shared/shapes.ts";

export default defineCommand({
  name: "relocate_session",
  summary:
    "Gives a session that is not open another working directory: it goes to that one's folder, with only the cwd in " +
    "its header changed, and the original file is kept. Can be done any number of times.",
  effect: "server",
  movesFile: true,
  ofAny: true,
  params: {
    ...sessionChoice,
    ...moveParams,
    cwd: directory.describe("the new working directory; it must exist"),
    allowMissing: z.boolean().optional().describe("accept one that is missing, as on another machine"),
  },
  result: () =>
    z.object({
      operationId: operationId.optional(),
      ...movedResult,
      keptAt: z
        .string()
        .nullable()
        .describe("where the original file is; null where nothing of it was changed, which is no operation"),
    }),
  failures: [...MOVE_FAILURES, "corrupt", "content_modified"],
  example: {
    params: { sessionPath: "/home/me/sessions/old.jsonl", cwd: "/home/me/other" },
    result: {
      operationId: "3f2a9c1077de",
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120003",
      sessionPath: "/home/me/sessions/old.jsonl",
      movedTo: "/home/me/.pi/agent/sessions/--home-me-other--/old.jsonl",
      keptAt: "/home/me/.pi/agent/sessions/--home-me-other--/old.jsonl.relocated.bak",
    },
  },
  async run({ workspace }, { cwd, allowMissing, sessionPath, sessionId, ...wished }) {
    const file = await findClosedSession(workspace, { sessionPath, sessionId }, { cwd });
    return workspace.stores.lifeCycle.relocate(file, cwd, allowMissing, toMoveOptions(wished));
  },
});
