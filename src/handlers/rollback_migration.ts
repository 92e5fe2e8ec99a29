import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { correlationId, MOVEMENT_FAILURES, movement, moveStore, sessionPath } from "./shared/migration.ts";

export default defineCommand({
  name: "rollback_migration",
  summary:
    "Makes the JSONL file of a migrated session the session again: the snapshot byte for byte, and then the entries " +
    "since; without the snapshot, all of it from the container. Completes an interrupted rollback. The " +
    "container is kept under another name.",
  effect: "write",
  checksReadOnly: true,
  ofAny: true,
  params: {
    sessionPath,
    reason: z.string().min(1).max(1024).optional().describe("recorded in the pointer file"),
    correlationId,
  },
  result: () => movement,
  failures: MOVEMENT_FAILURES,
  example: {
    params: { reason: "back to Pi" },
    result: {
      dryRun: false,
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120007",
      sessionPath: "/home/me/sessions/2026-01-24T16-22-26-831Z_01991f6e-1f1d-7c3e-b0a4-0242ac120007.jsonl",
      hiddenFromPi: false,
      state: "ROLLED_BACK",
      entryCount: 4,
      obstacles: [],
      migrationId: "01991f6e-aaaa-7c3e-b0a4-0242ac120002",
      correlationId: "migration-01991f6e-aaaa-7c3e-b0a4-0242ac120002",
      snapshotId: null,
      verification: { entryCountMatch: true, hashChainMatch: true, indexConsistent: true },
      transitions: [
        { fromState: "CHECKPOINTED", toState: "ROLLED_BACK", reason: "back to Pi", at: "2026-01-24T16:22:26.831Z" },
      ],
      laterEntries: 0,
      rebuilt: false,
      keptAt: "/home/me/sessions/01991f6e-1f1d-7c3e-b0a4-0242ac120007.v2.rolled-back",
    },
  },
  run(context, { sessionPath: path, reason, correlationId }) {
    const options = { reason, correlationId, progress: context.progress };
    return moveStore(context, path, (file) => context.workspace.stores.migrations.rollBack(file, options));
  },
});
