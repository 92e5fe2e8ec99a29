import * as z from "zod";
import type { Obstacle } from "../core/ports/migrations.ts";
import { type CommandContext, command } from "./shared/command.ts";
import {
  correlationId,
  MOVEMENT_FAILURES,
  move,
  movement,
  NOTHING_DONE,
  openSession,
  planned,
  requireStored,
  sessionPath,
} from "./shared/migration.ts";

export default command({
  name: "migrate_session",
  summary:
    "Moves a session from its JSONL file, or a database of pi_agent_rust, into a Session Store V2 container, or back. The file is kept as a snapshot; " +
    "a failure leaves the session where it was. Pi does not see a session in a container: it is for hosts that go " +
    "through this server, and rollback_migration is the way back.",
  effect: "write",
  ofAny: true,
  params: {
    sessionPath,
    to: z.enum(["v2", "jsonl"]).optional().describe("v2 by default; jsonl does what rollback_migration does"),
    dryRun: z.boolean().optional().describe("read everything and report what prevents it; write nothing"),
    correlationId,
  },
  result: movement,
  failures: MOVEMENT_FAILURES,
  example: {
    params: { dryRun: true },
    result: {
      dryRun: true,
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
      sessionPath: "/home/me/sessions/01991f6e-1f1d-7c3e-b0a4-0242ac120002.v2",
      hiddenFromPi: true,
      state: "CLEAN",
      entryCount: 4,
      obstacles: [],
      ...NOTHING_DONE,
    },
  },
  async run(context, { sessionPath: path, to = "v2", dryRun = false, correlationId: id }) {
    const { migrations } = context.workspace.stores;
    if (dryRun) return to === "v2" ? plan(context, path) : planBack(context, path);
    const { progress } = context;
    return move(context, path, (file) =>
      to === "v2"
        ? migrations.migrate(file, { correlationId: id, progress })
        : migrations.rollBack(file, { correlationId: id, progress }),
    );
  },
});

/** Returns the path of the session that is meant, after committing it if it is open. */
async function fileOf(context: CommandContext, path: string | undefined): Promise<string> {
  const session = openSession(context, path);
  if (!session) return path as string;
  await session.commit();
  return requireStored(session);
}

async function plan(context: CommandContext, path: string | undefined) {
  const { migrations } = context.workspace.stores;
  const file = await fileOf(context, path);
  const { active, state, location } = migrations.status(file);
  if (active === "native_v2")
    return planned(location, location.container, state, countOf(context, file), [
      { kind: "already_migrated", reason: "the session is in a container already" },
    ]);
  const found = await migrations.plan(location.source ?? file, context.progress);
  return planned(location, location.container, state, found.entryCount, found.obstacles);
}

async function planBack(context: CommandContext, path: string | undefined) {
  const file = await fileOf(context, path);
  const { active, state, location } = context.workspace.stores.migrations.status(file);
  const obstacles: Obstacle[] = [];
  if (active !== "native_v2") obstacles.push({ kind: "not_migrated", reason: "the session is in a file already" });
  return planned(location, location.source ?? file, state, countOf(context, file), obstacles);
}

function countOf({ workspace }: CommandContext, file: string): number {
  const session = workspace.open({ sessionPath: file });
  try {
    return session.log.nodes.count;
  } finally {
    workspace.release(session);
  }
}
