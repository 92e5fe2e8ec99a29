import * as z from "zod";
import { Failure } from "../core/failure.ts";
import { makeOpenHereFailure, moveParams, operationId } from "./shared/closed-sessions.ts";
import { defineCommand } from "./shared/command.ts";
import { damageResult, fidelity } from "./shared/shapes.ts";

const outcome = z.enum(["new", "known", "continued", "conflict"]);

export default defineCommand({
  name: "import_session",
  summary:
    "Copies a session file of any version from anywhere into the session folders, byte for byte; or makes a session of " +
    "another agent's file, and reports what became of each of its records. What exists already is recognised and not " +
    "written again; nothing is overwritten.",
  effect: "server",
  params: {
    path: z.string().min(1).describe("of a JSONL session file, or another agent's"),
    group: moveParams.group,
  },
  result: () =>
    z.object({
      operationId: operationId.optional(),
      sessionId: z.string(),
      sessionPath: z.string().describe("where it is among the sessions"),
      outcome: outcome.describe(
        "new; known: a session has all of it already; continued: a session had its beginning and now has the rest; " +
          "conflict: another session with this id continues differently, and this one has a new id",
      ),
      conflictsWith: z.string().optional().describe("file of the session with the same id; parent of the new one"),
      cwd: z.string().nullable().describe("its working directory, which may be one of another machine"),
      entryCount: z.number().int(),
      version: z.number().int().describe("of the format of its bytes; the first write makes it 3"),
      damage: z.array(damageResult()).describe("damage in the file, which is copied unchanged"),
      fidelity: fidelity().optional().describe("of another agent's session: the fate of its records"),
      subagents: z
        .array(
          z.object({
            sessionId: z.string(),
            sessionPath: z.string(),
            outcome,
            conflictsWith: z.string().optional(),
            entryCount: z.number().int(),
          }),
        )
        .optional()
        .describe("sessions of subagents within another agent's file, which came along"),
    }),
  failures: [
    "session_not_found",
    "not_a_session",
    "path_outside_root",
    "session_locked",
    "corrupt",
    "read_only",
    "content_modified",
    "storage_full",
    "storage_failed",
  ],
  example: {
    params: { path: "/home/me/sessions/old.jsonl" },
    result: {
      operationId: "3f2a9c1077de",
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120003",
      sessionPath:
        "/home/me/.pi/agent/sessions/--home-me-app--/2026-01-24T16-22-26-831Z_01991f6e-1f1d-7c3e-b0a4-0242ac120003.jsonl",
      outcome: "new",
      cwd: "/home/me/app",
      entryCount: 4,
      version: 3,
      damage: [],
    },
  },
  async run({ workspace, progress }, { path, group }) {
    const { lifeCycle } = workspace.stores;
    const imported = await lifeCycle.import(workspace.stores.absolute(path), progress, group).catch((error) => {
      if (!(error instanceof Failure) || error.name !== "session_locked") throw error;
      const holding = workspace.sessions.find(({ file, hasLock }) => hasLock && file === error.details.sessionPath);
      throw holding ? makeOpenHereFailure(holding.id, holding.file ?? undefined) : error;
    });
    return {
      ...imported,
      subagents: imported.subagents?.map(({ sessionId, sessionPath, outcome: result, conflictsWith, entryCount }) => ({
        sessionId,
        sessionPath,
        outcome: result,
        conflictsWith,
        entryCount,
      })),
    };
  },
});
