import * as z from "zod";
import { defineCommand } from "./shared/command.ts";
import { compactionParams, compactionPreparation, getCompactionPreparation } from "./shared/compaction.ts";
import { assistantExample, images } from "./shared/shapes.ts";

export default defineCommand({
  name: "prepare_compaction",
  summary:
    "Returns what a compaction would summarise and keep by Pi's rules: all that a model, and then compact_append, need. " +
    "Changes nothing.",
  effect: "read",
  params: {
    ...compactionParams,
    images,
    messages: z.boolean().optional().describe("false: without them; conversationText has what a summariser needs"),
  },
  result: () => compactionPreparation.partial({ messagesToSummarize: true, turnPrefixMessages: true }),
  example: {
    params: { keepRecentTokens: 0 },
    result: {
      shouldCompact: false,
      contextTokens: 17,
      tokensBefore: 17,
      firstKeptEntryId: "d4e5f6a7",
      messagesToSummarize: [{ role: "user", content: "Hello" }, assistantExample],
      turnPrefixMessages: [{ role: "user", content: "Refactor auth." }],
      isSplitTurn: true,
      details: { readFiles: [], modifiedFiles: [] },
      conversationText:
        "User: Hello\n\nAssistant: Hi there.\n\n(The turn that begins here goes on in what is kept.)\n\nUser: Refactor auth.",
      settings: { enabled: true, contextWindow: 200_000, reserveTokens: 16_384, keepRecentTokens: 0 },
    },
  },
  run: (context, params) => getCompactionPreparation(context, params),
});
