import * as z from "zod";
import { Failure } from "../core/failure.ts";
import { Raw } from "../core/json/raw.ts";
import { makeCompactionDraft } from "../core/session/compaction-draft.ts";
import { appendEntries, requireTypes } from "./shared/append.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import { getCompactionPreparation } from "./shared/compaction.ts";
import { describeLeaf, toHookAnswer, veto } from "./shared/hooks.ts";

const result = () =>
  z.object({
    cancelled: z.boolean(),
    ...veto,
    entryId: z.string().optional(),
    summary: z.string().optional(),
    firstKeptEntryId: z.string().optional(),
    tokensBefore: z.number().optional(),
    details: z.unknown().optional(),
  });

export default defineCommand({
  name: "compact",
  summary:
    "Pi's compaction of the context, with a summary by the host's model: calls the hook session_before_compact. " +
    "Without that hook, use prepare_compaction and compact_append. After a compaction, it fails until there is something new " +
    "to summarise, and asks no hook.",
  effect: "write",
  params: { customInstructions: z.string().optional().describe("for the summariser") },
  result,
  failures: ["unsupported_command", "invalid_boundary", "nothing_to_compact"],
  example: {
    params: {},
    result: {
      cancelled: false,
      entryId: "f6a7b8c9",
      summary: "The user asked for X; Y is done.",
      firstKeptEntryId: "c3d4e5f6",
      tokensBefore: 50000,
    },
  },
  run(context, { customInstructions }) {
    if (!context.asks("session_before_compact")) throw withoutSummary();
    return compacted(context, customInstructions);
  },
  repeat(context, entryIds) {
    requireTypes(context, entryIds, ["compaction"]);
    const [entryId] = entryIds;
    const { session } = context;
    const { summary, firstKeptEntryId, tokensBefore, details } = session.entry(session.position(entryId));
    return { cancelled: false, entryId, summary, firstKeptEntryId, tokensBefore, details } as z.input<
      ReturnType<typeof result>
    >;
  },
});

async function compacted(
  context: CommandContext,
  customInstructions: string | undefined,
): Promise<z.input<ReturnType<typeof result>>> {
  const { session } = context;
  const preparation = getCompactionPreparation(context, { customInstructions });
  // A summary of nothing would take the place of the one before.
  if (preparation.conversationText === "" && preparation.previousSummary !== undefined)
    throw new Failure("nothing_to_compact");
  const branchEntries = Raw.array(() => session.log.readMany(session.tree.path(), true));
  const about = describeLeaf(session);
  const asked = await context.ask("session_before_compact", {
    preparation,
    branchEntries,
    customInstructions,
    ...about,
  });
  if (asked.cancelled) return { cancelled: true, reason: asked.reason, message: asked.message };
  const answer = toHookAnswer("session_before_compact", asked.answer);
  if (!answer.compaction) throw withoutSummary();
  const { summary, firstKeptEntryId, tokensBefore, details } = answer.compaction;
  const draft = makeCompactionDraft(session, { summary, firstKeptEntryId, tokensBefore, details, fromHook: true });
  const { ids, lines } = appendEntries(context, [draft]);
  context.notify("session_compact", { compactionEntry: Raw.of(lines[0]), fromExtension: true });
  return { cancelled: false, entryId: ids[0], summary, firstKeptEntryId, tokensBefore, details };
}

function withoutSummary(): Failure {
  return new Failure(
    "unsupported_command",
    "This server runs no model: have yours write the summary, and store it with compact_append or answer the hook " +
      "session_before_compact with it.",
    { command: "compact" },
  );
}
