import * as z from "zod";
import { Failure } from "../core/failure.ts";
import type { Session } from "../core/session/session.ts";
import { defineCommand } from "./shared/command.ts";
import { findOpenSession, sessionPath } from "./shared/migration.ts";

export default defineCommand({
  name: "create_checkpoint",
  summary:
    "Marks the current end of a Session Store V2 session, with a manifest of it: opening it then reads only what " +
    "follows. Checkpoints are also made automatically as a session grows.",
  effect: "write",
  ofAny: true,
  params: { sessionPath },
  result: () =>
    z.object({
      checkpointSeq: z.number().int().describe("counts from 1"),
      headEntryId: z.string(),
      entryCount: z.number().int(),
    }),
  failures: ["unsupported_command", "not_a_session", "path_outside_root", "session_locked"],
  example: { params: {}, result: { checkpointSeq: 1, headEntryId: "d4e5f6a7", entryCount: 4 } },
  async run(context, { sessionPath: path }) {
    const { workspace } = context;
    const session = findOpenSession(context, path) ?? workspace.open({ sessionPath: path as string });
    try {
      session.guard(undefined);
      await session.commit();
      return await checkpoint(session);
    } finally {
      workspace.release(session);
    }
  },
});

async function checkpoint({ log }: Session) {
  if (!log.container)
    throw new Failure(
      "unsupported_command",
      "Only sessions in Session Store V2 have checkpoints. migrate_session moves this one there.",
    );
  const checkpointSeq = await log.container.checkpoint();
  if (checkpointSeq === null)
    throw new Failure("unsupported_command", "The session has no entries yet, so there is nothing to mark.");
  return { checkpointSeq, headEntryId: log.nodes.id(log.nodes.count - 1), entryCount: log.nodes.count };
}
