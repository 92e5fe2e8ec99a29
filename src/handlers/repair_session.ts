import * as z from "zod";
import { makeLostResult } from "../core/context/pairing.ts";
import { type Draft, makeDraft } from "../core/format/entry.ts";
import { noteMove } from "../core/session/changes.ts";
import { findIncompleteMessages } from "../core/session/check.ts";
import { noteRepaired, toRepairedFailure } from "../core/session/repair.ts";
import { appendEntries, notifyForeign } from "./shared/append.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import { damageResult } from "./shared/shapes.ts";

export default defineCommand({
  name: "repair_session",
  summary:
    "Rewrites a damaged session without its damaged lines and with the members that Pi needs in messages, keeps the original, " +
    "and appends an error result for each tool call that diagnostics name. A session that needs none of this stays " +
    "as it is.",
  effect: "write",
  checksReadOnly: true,
  params: {
    dryRun: z.boolean().optional().describe("only report what would be done"),
    danglingToolCalls: z.boolean().optional().describe("false: append no results"),
  },
  result: () =>
    z.object({
      repaired: z.array(damageResult()).describe("the damage that was, or would be, removed or repaired"),
      backupPath: z.string().nullable().describe("where the original is; null when nothing was rewritten"),
      answered: z
        .array(
          z.object({
            entryId: z.string().describe("of the message that called"),
            toolCallId: z.string(),
            toolName: z.string(),
            resultId: z.string().nullable().describe("of the entry that was appended; null with dryRun"),
          }),
        )
        .describe("the calls that got, or would get, an error result"),
      entryCount: z.number().int(),
    }),
  failures: ["session_locked"],
  example: { params: { dryRun: true }, result: { repaired: [], backupPath: null, answered: [], entryCount: 4 } },
  run(context, { dryRun = false, danglingToolCalls = true }) {
    const { session } = context;
    const { repaired, backupPath, operationId, step } = session.repair(dryRun, findIncompleteMessages);
    const begun = operationId !== undefined && step ? { operationId, step } : undefined;
    notifyForeign(session, session.externalChanges.fresh(), (name, payload) => context.notify(name, payload));
    const calls = danglingToolCalls && session.log.readOnly === null ? session.danglingCalls() : [];
    const answered = calls.map(({ id, name, position }) => ({
      entryId: session.log.nodes.id(position),
      toolCallId: id,
      toolName: name,
    }));
    const results = dryRun
      ? []
      : calls.map((call) => makeDraft("message", { message: makeLostResult(call, context.workspace.env.now()) }));
    const done = (ids: readonly string[]) => ({
      repaired,
      backupPath,
      answered: answered.map((call, index) => ({ ...call, resultId: ids[index] ?? null })),
      entryCount: session.tree.entryCount,
    });
    if (backupPath !== null) return answerAfter(context, results, { backupPath, begun }).then(done);
    const { leafId } = session;
    const ids = appendAll(context, results);
    noteMove(session, "repair", leafId);
    return done(ids);
  },
});

function appendAll(context: CommandContext, results: readonly Draft[]): readonly string[] {
  return results.length === 0 ? [] : appendEntries(context, results).ids;
}

/** Appends the results after the session was repaired, durably: where that is refused, the repair stays, and is recorded. */
async function answerAfter(
  context: CommandContext,
  results: readonly Draft[],
  { backupPath, begun }: { readonly backupPath: string; readonly begun?: Parameters<typeof noteRepaired>[1] },
): Promise<readonly string[]> {
  const { session } = context;
  try {
    const ids = appendAll(context, results);
    await session.commit();
    return ids;
  } catch (error) {
    const more = " repair_session once more adds the results that tool calls lack.";
    throw toRepairedFailure(error, "adding the results of tool calls", backupPath, more);
  } finally {
    if (begun) noteRepaired(session, begun, backupPath);
  }
}
