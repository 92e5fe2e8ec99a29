/** Input for a host's summariser, returned by prepare_compaction and sent with the hook session_before_compact. */

import * as z from "zod";
import { type CompactionPlan, prepareCompaction } from "../../core/context/compaction.ts";
import { getContextWindow } from "../../core/context/models.ts";
import { type CompactionSettings, mergeCompactionSettings } from "../../core/context/settings.ts";
import type { ImageForm } from "../../core/format/images.ts";
import { Raw } from "../../core/json/raw.ts";
import type { Session } from "../../core/session/session.ts";
import type { CommandContext } from "./command.ts";
import { messageResult, typeStored } from "./shapes.ts";

export const fileLists = z.object({
  readFiles: z.array(z.string()).describe("read and not changed"),
  modifiedFiles: z.array(z.string()),
});

export const conversationText = z
  .string()
  .describe("for a summariser, without thoughts; the output of tools is cut at 2,000 characters, and the text says so");

const tokens = z.number().min(0);

export const compactionParams = {
  keepRecentTokens: tokens
    .optional()
    .describe("of the newest messages, which are kept; Pi's settings by default, half of the rest at most"),
  reserveTokens: tokens
    .optional()
    .describe("of the window, for the answer; Pi's settings by default, half of the window at most"),
  contextWindow: tokens.optional().describe("in tokens; by default the model's, or 128000 where it is not known"),
  customInstructions: z.string().optional().describe("for the summariser; returned unchanged"),
};

export const compactionPreparation = z.object({
  shouldCompact: z
    .boolean()
    .describe(
      "the context is over the window less the reserve, there is something to summarise, and settings allow it",
    ),
  contextTokens: z.number().describe("as the last answer reports them, with estimates of what came after it"),
  tokensBefore: z.number().describe("the same, for compact_append"),
  firstKeptEntryId: z.string().nullable().describe("for compact_append; null when the path is empty"),
  messagesToSummarize: typeStored(z.array(messageResult)).describe("empty when there is nothing to gain"),
  turnPrefixMessages: typeStored(z.array(messageResult)).describe("beginning of the turn whose end alone is kept"),
  isSplitTurn: z.boolean(),
  previousSummary: z.string().optional().describe("of the compaction before, whose content the new summary takes over"),
  details: fileLists.describe("files of the tool calls that are summarised, with those of the compaction before"),
  conversationText: conversationText,
  customInstructions: z.string().optional(),
  settings: z
    .object({ enabled: z.boolean(), contextWindow: tokens, reserveTokens: tokens, keepRecentTokens: tokens })
    .describe("the settings that were used"),
});

export function getCompactionPreparation(
  { session, server }: Pick<CommandContext, "session" | "server">,
  wanted: z.output<z.ZodObject<typeof compactionParams>> & { images?: ImageForm; messages?: boolean },
): z.input<typeof compactionPreparation> {
  const { enabled, ...defaults } = mergeCompactionSettings(server.piSettings(session.cwd));
  const { contextWindow = getContextWindow(session.model()) } = wanted;
  // Pi's defaults are over the whole of a small window.
  const { reserveTokens = Math.min(defaults.reserveTokens, Math.floor(contextWindow / 2)) } = wanted;
  const rest = Math.max(0, contextWindow - reserveTokens);
  const { keepRecentTokens = Math.min(defaults.keepRecentTokens, Math.floor(rest / 2)) } = wanted;
  const settings = { enabled, contextWindow, reserveTokens, keepRecentTokens };
  const plan = planOf(session, settings);
  const { contextTokens, isSplitTurn, previousSummary, files } = plan;
  const messagesOf = (items: CompactionPlan["history"]) =>
    wanted.messages === false ? undefined : Raw.array(() => session.messageTexts(items, wanted.images));
  return {
    shouldCompact: plan.shouldCompact,
    contextTokens,
    tokensBefore: contextTokens,
    firstKeptEntryId: session.idOrNull(plan.firstKept),
    messagesToSummarize: messagesOf(plan.history),
    turnPrefixMessages: messagesOf(plan.turnPrefix),
    isSplitTurn,
    previousSummary,
    details: files,
    conversationText: plan.conversationText,
    customInstructions: wanted.customInstructions,
    settings,
  };
}

function planOf(session: Session, settings: CompactionSettings & { contextWindow: number }): CompactionPlan {
  session.rebuildAfterLosses();
  const plan = prepareCompaction(session.tree, session, session.tree.leaf, settings);
  // Reading may have found damaged messages, and the cut must not be at one of these.
  return session.rebuildAfterLosses() ? prepareCompaction(session.tree, session, session.tree.leaf, settings) : plan;
}
