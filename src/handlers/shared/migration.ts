/** Shared parts of the commands that move sessions between a JSONL file and Session Store V2. */

import * as z from "zod";
import { Failure } from "../../core/failure.ts";
import type { Migrated } from "../../core/ports/migrations.ts";
import type { Session } from "../../core/session/session.ts";
import type { CommandContext } from "./command.ts";
import { optionalName, type Unchanged } from "./shapes.ts";

export const sessionPath = optionalName.describe(
  "of any session, by its file, its container or its database; the current one by default",
);

export const correlationId = z
  .string()
  .regex(/^[A-Za-z0-9._:-]{8,128}$/)
  .optional()
  .describe("recorded in the ledger and the pointer file; made up by default");

export const verification = z.object({
  entryCountMatch: z.boolean(),
  hashChainMatch: z.boolean(),
  indexConsistent: z.boolean(),
});

export const movement = z.object({
  dryRun: z.boolean(),
  sessionId: z.string(),
  sessionPath: z.string().describe("where the session is now, or would be"),
  hiddenFromPi: z
    .boolean()
    .describe(
      "Pi and pi_agent_rust look for session files only: a session in a container they neither list nor open, until " +
        "rollback_migration makes its file the session again",
    ),
  state: z.string().describe("of the store: one of the nine of Session Store V2"),
  entryCount: z.number().int(),
  obstacles: z
    .array(z.object({ kind: z.string(), entryId: z.string().optional(), reason: z.string() }))
    .describe("with dryRun: what would make it fail"),
  migrationId: z.string().nullable().describe("null when nothing was done"),
  correlationId: z.string().nullable(),
  snapshotId: z.string().nullable().describe("SHA-256 of the session file that was migrated"),
  verification: verification.nullable(),
  transitions: z
    .array(z.object({ fromState: z.string(), toState: z.string(), reason: z.string(), at: z.string() }))
    .describe("the moves between states that it took"),
  laterEntries: z.number().int().describe("of a rollback: entries appended since the migration, which are kept"),
  rebuilt: z
    .boolean()
    .describe("of a rollback: there was no snapshot, so that the file was written from the container alone"),
  keptAt: z
    .string()
    .nullable()
    .describe(
      "where a container is kept that is not the session any more: after a rollback, or because it was in the way",
    ),
});

type Movement = Unchanged<z.input<typeof movement>>;

export const MOVEMENT_FAILURES = [
  "migration_failed",
  "session_not_found",
  "not_a_session",
  "session_locked",
  "already_exists",
  "path_outside_root",
  "corrupt",
] as const;

/** Returns the open session that is meant, also by its path in the other store; undefined when it is not open. */
export function findOpenSession(context: CommandContext, path: string | undefined): Session | undefined {
  const { target, workspace } = context;
  return target ?? workspace.openAt(workspace.stores.migrations.currentPathOf(path as string));
}

/** Returns the file of a session. Throws migration_failed when the session is not stored yet. */
export function requireStored(session: Session): string {
  const { file, log } = session;
  if (file === null || !log.persisted)
    throw new Failure("migration_failed", "The session is not stored yet. Its first entry creates its file.");
  return file;
}

/** Moves a session. If it is open here, it continues in its new place. */
export async function moveStore(
  context: CommandContext,
  path: string | undefined,
  go: (path: string) => Promise<Migrated>,
): Promise<Movement> {
  const session = findOpenSession(context, path);
  if (!session) return toMovement(await go(path as string));
  const file = requireStored(session);
  // A session that was opened for reading only must not be moved. One that is read-only because a migration was cut off
  // is recovered by the move.
  if (session.log.readOnly?.name === "read_only") throw session.log.readOnly;
  return context.alone(session, () => moveOpen(context, { session, file }, go));
}

async function moveOpen(
  context: CommandContext,
  { session, file }: { session: Session; file: string },
  go: (path: string) => Promise<Migrated>,
): Promise<Movement> {
  await session.commit();
  // Nothing may be written at the old place once the session is at the new one.
  await session.suspend();
  let moved: Migrated;
  try {
    moved = await go(file);
  } catch (error) {
    try {
      continueWith(context, session, context.workspace.stores.migrations.currentPathOf(file));
    } catch {
      // The first error is reported; the next command meets the state that is there.
    }
    throw error;
  }
  if (moved.active === "sqlite_v1") await closeMigrated(context, session, moved.sessionPath);
  else continueWith(context, session, moved.sessionPath);
  return toMovement(moved);
}

/** Closes a session that is in a database now, because no server keeps such a session open. */
async function closeMigrated({ workspace }: CommandContext, session: Session, sessionPath: string): Promise<void> {
  const isCurrent = session === workspace.current;
  await workspace.closeSession(session);
  if (!isCurrent) return;
  const sentence = `The session is in the database ${sessionPath} now, for pi_agent_rust. switch_session or new_session makes another one current; migrate_session with that path brings it back.`;
  workspace.none(new Failure("no_session", sentence));
}

/** Reopens an open session if it is in another place now, or could not be written before. */
function continueWith({ workspace }: CommandContext, session: Session, sessionPath: string): void {
  if (sessionPath !== session.file || session.log.readOnly !== null)
    session.externalChanges.rebase(workspace.stores.open(sessionPath));
}

function toMovement({ location, active: _active, sessionPath, ...moved }: Migrated): Movement {
  return {
    dryRun: false,
    sessionId: location.sessionId,
    sessionPath,
    hiddenFromPi: sessionPath === location.container,
    obstacles: [],
    ...moved,
  };
}
