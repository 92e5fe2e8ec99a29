import * as z from "zod";
import type { Workspace } from "../core/session/workspace.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import {
  correlationId,
  findOpenSession,
  MOVEMENT_FAILURES,
  movement,
  moveStore,
  requireStored,
  sessionPath,
} from "./shared/migration.ts";

/** The members of a result that describe the migration, when there was none. */
const NOTHING_DONE = {
  migrationId: null,
  correlationId: null,
  snapshotId: null,
  verification: null,
  transitions: [],
  laterEntries: 0,
  rebuilt: false,
  keptAt: null,
};

const THERE_ALREADY = {
  v2: { kind: "already_migrated", reason: "the session is in a container already" },
  jsonl: { kind: "not_migrated", reason: "the session is in a file already" },
};

export default defineCommand({
  name: "migrate_session",
  summary:
    "Moves a session from its JSONL file, or a database of pi_agent_rust, into a Session Store V2 container, or back. The file is kept as a snapshot; " +
    "a failure leaves the session where it was. Pi does not see a session in a container: it is for hosts that go " +
    "through this server, and rollback_migration is the way back.",
  effect: "write",
  checksReadOnly: true,
  ofAny: true,
  params: {
    sessionPath,
    to: z.enum(["v2", "jsonl"]).optional().describe("v2 by default; jsonl does what rollback_migration does"),
    dryRun: z.boolean().optional().describe("read everything and report what prevents it; write nothing"),
    correlationId,
  },
  result: () => movement,
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
  async run(context, { sessionPath: path, to = "v2", dryRun = false, correlationId }) {
    if (dryRun) return plan(context, path, to);
    const { migrations } = context.workspace.stores;
    const options = { correlationId, progress: context.progress };
    return moveStore(context, path, (file) =>
      to === "v2" ? migrations.migrate(file, options) : migrations.rollBack(file, options),
    );
  },
});

/** Returns the plan of a migration or rollback. */
async function plan(context: CommandContext, path: string | undefined, to: "v2" | "jsonl") {
  const { workspace, progress } = context;
  const { migrations } = workspace.stores;
  const session = findOpenSession(context, path);
  await session?.commit();
  const file = session ? requireStored(session) : (path as string);
  const { active, state, location } = migrations.status(file);
  const isThere = (active === "native_v2") === (to === "v2");
  const sessionPath = to === "v2" ? location.container : (location.source ?? file);
  const { entryCount, obstacles } =
    to === "v2" && !isThere
      ? await migrations.plan(location.source ?? file, progress)
      : { entryCount: countOf(workspace, file), obstacles: isThere ? [THERE_ALREADY[to]] : [] };
  return {
    dryRun: true,
    sessionId: location.sessionId,
    sessionPath,
    hiddenFromPi: sessionPath === location.container,
    state,
    entryCount,
    obstacles,
    ...NOTHING_DONE,
  };
}

function countOf(workspace: Workspace, sessionPath: string): number {
  const session = workspace.open({ sessionPath });
  const { count } = session.log.nodes;
  workspace.release(session);
  return count;
}
