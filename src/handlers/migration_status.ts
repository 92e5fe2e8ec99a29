import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { findOpenSession, requireStored, sessionPath, verification } from "./shared/migration.ts";
import { holder } from "./shared/shapes.ts";

export default defineCommand({
  name: "migration_status",
  summary: "Returns which store holds a session, its state, and what its migration ledger says. Changes nothing.",
  effect: "read",
  ofAny: true,
  params: { sessionPath },
  result: () =>
    z.object({
      sessionId: z.string(),
      active: z.enum(["jsonl_v3", "sqlite_v1", "native_v2"]),
      state: z.string().describe("one of the nine states of Session Store V2; CLEAN when nothing is under way"),
      phase: z.string().nullable().describe("of the pointer file; null without one"),
      interrupted: z
        .boolean()
        .describe("a migration or rollback was interrupted; migrating or rolling back again completes it"),
      containerPath: z.string(),
      sourcePath: z.string().nullable().describe("the session file that is or was the session"),
      snapshotPath: z.string().nullable().describe("the session file as it was frozen"),
      snapshotId: z.string().nullable(),
      correlationId: z.string().nullable(),
      lockedBy: holder().optional().describe("another process that writes to the session"),
      reason: z.string().nullable().describe("why it was rolled back or failed"),
      events: z.array(
        z.object({
          migrationId: z.string(),
          phase: z.string(),
          at: z.string(),
          sourcePath: z.string(),
          targetPath: z.string(),
          sourceFormat: z.string(),
          targetFormat: z.string(),
          verification,
          outcome: z.string(),
          errorClass: z.string().optional(),
          correlationId: z.string(),
        }),
      ),
    }),
  failures: [
    "session_not_found",
    "not_a_session",
    "read_only",
    "migration_failed",
    "unsupported_version",
    "path_outside_root",
    "storage_failed",
    "corrupt",
  ],
  example: {
    params: {},
    result: {
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
      active: "jsonl_v3",
      state: "CLEAN",
      phase: null,
      interrupted: false,
      containerPath: "/home/me/sessions/01991f6e-1f1d-7c3e-b0a4-0242ac120002.v2",
      sourcePath: "/home/me/sessions/current.jsonl",
      snapshotPath: null,
      snapshotId: null,
      correlationId: null,
      reason: null,
      events: [],
    },
  },
  run(context, { sessionPath: path }) {
    const session = findOpenSession(context, path);
    const file = session ? requireStored(session) : (path as string);
    const { location, events, ...status } = context.workspace.stores.migrations.status(file);
    // An open store knows more than its files, once its state has changed since it was opened.
    const { state: now = "CLEAN" } = session?.log.container ?? {};
    const state = now === "CLEAN" ? status.state : now;
    const paths = { containerPath: location.container, sourcePath: location.source };
    const where = status.active === "native_v2" ? location.container : file;
    const lockedBy = context.workspace.stores.health.holders([where]).get(where);
    const shown = { sessionId: location.sessionId, ...paths, ...status, state, events };
    return lockedBy ? { ...shown, lockedBy } : shown;
  },
});
