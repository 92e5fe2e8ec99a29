import * as z from "zod";
import { Failure } from "../core/failure.ts";
import type { Session } from "../core/session/session.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import { damageResult, typeStored, type Unchanged, unreadFile } from "./shared/shapes.ts";
import { verifyAll } from "./shared/verified.ts";

/** Damaged places that are reported of one session. */
const MOST_DAMAGE = 20;

const row = z.object({
  sessionPath: z.string(),
  sessionId: z.string().nullable().describe("null when it cannot be opened"),
  archived: z.boolean(),
  name: typeStored(z.string().nullable()),
  damage: z.array(damageResult()).describe(`the first ${MOST_DAMAGE} places`),
  damageCount: z.number().int(),
  lockedBy: z
    .object({ client: z.string(), pid: z.number(), since: z.string() })
    .nullable()
    .describe("the process that writes to it now; a fault may be a write on its way"),
  failure: z.string().nullable().describe("why it cannot be read at all; then nothing repairs it"),
});

type DamagedRow = Unchanged<z.input<typeof row>>;

export default defineCommand({
  name: "verify_sessions",
  summary:
    "Reads every byte of every session, one after the other and each for reading only, and reports those that are " +
    "damaged. Goes on past those that cannot be read. Changes nothing.",
  effect: "server",
  repeatable: true,
  params: { archived: z.boolean().optional().describe("archived sessions too") },
  result: () =>
    z.object({
      total: z.number().int().describe("sessions that were looked at"),
      damaged: z.array(row),
      incomplete: z
        .array(row)
        .describe(
          "sessions without loss whose messages lack members that Pi's interface needs; repair_session adds them",
        ),
      notRead: z
        .array(unreadFile())
        .describe("files where sessions are kept that none can be read from, as get_health has them"),
      ok: z.boolean().describe("nothing is damaged"),
    }),
  failures: ["storage_failed"],
  example: { params: {}, result: { total: 1, damaged: [], incomplete: [], notRead: [], ok: true } },
  async run(context, { archived = false }) {
    const damaged: DamagedRow[] = [];
    const incomplete: DamagedRow[] = [];
    const { health } = context.workspace.stores;
    const notRead = [...health.notRead(archived)];
    let total = 0;
    const visit = async (file: string, isArchived: boolean): Promise<void> => {
      const found = await verdictOn(context, file, isArchived);
      if (found && "text" in found) return void notRead.push(found);
      total++;
      if (found) (found.ok ? incomplete : damaged).push(found.row);
    };
    await health.visitAll(archived, visit, context.progress);
    const ok = damaged.length === 0 && !notRead.some(({ isDamaged }) => isDamaged);
    return { total, damaged, incomplete, notRead, ok };
  },
});

/**
 * Returns the damage of the session at a path, or the state of a file that is no session; null when nothing is wrong,
 * or when it was removed meanwhile.
 */
async function verdictOn(
  context: CommandContext,
  sessionPath: string,
  archived: boolean,
): Promise<{ ok: boolean; row: DamagedRow } | z.infer<ReturnType<typeof unreadFile>> | null> {
  const { workspace } = context;
  let session: Session | undefined;
  try {
    session = workspace.look(sessionPath);
    const { damage, ok } = await verifyAll(context, session, false);
    if (ok && !damage.some(({ kind }) => kind === "incomplete_message")) return null;
    const row = {
      sessionPath,
      archived,
      sessionId: session.id,
      name: session.name,
      damage: damage.slice(0, MOST_DAMAGE),
      damageCount: damage.length,
      lockedBy: session.log.lock.holder,
      failure: null,
    };
    return { ok, row };
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    if (error.name === "session_not_found") return null;
    // Nothing is wrong with a file of another format.
    if (error.name === "not_a_session" && "format" in error.details)
      return { path: sessionPath, text: error.message, isDamaged: false };
    const nothing = { damage: [], damageCount: 1, lockedBy: null };
    const row = { sessionPath, archived, sessionId: null, name: null, ...nothing, failure: error.message };
    return { ok: false, row };
  } finally {
    session?.close();
  }
}
