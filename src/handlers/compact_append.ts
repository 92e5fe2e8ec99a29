import * as z from "zod";
import { Raw } from "../core/json/raw.ts";
import { makeCompactionDraft } from "../core/session/compaction-draft.ts";
import { appendEntries, requireTypes } from "./shared/append.ts";
import { defineCommand } from "./shared/command.ts";

export default defineCommand({
  name: "compact_append",
  alias: "compact-append",
  summary: "Appends a compaction: a summary in place of everything before the first kept entry.",
  effect: "write",
  params: {
    summary: z
      .string()
      .refine((text) => text.trim() !== "", "must not be blank")
      .describe("not blank"),
    firstKeptEntryId: z.string().nullable().describe("an entry of the path; null keeps nothing"),
    tokensBefore: z.number().min(0).describe("tokens of the context before the compaction"),
    details: z.unknown().optional(),
    usage: z.unknown().optional(),
    fromHook: z.boolean().optional().describe("whether an extension wrote the summary"),
  },
  result: () => z.object({ entryId: z.string(), leafId: z.string(), firstKeptEntryId: z.string() }),
  failures: ["invalid_boundary"],
  example: {
    params: { summary: "The user asked for X; Y is done.", firstKeptEntryId: "c3d4e5f6", tokensBefore: 50000 },
    result: { entryId: "f6a7b8c9", leafId: "f6a7b8c9", firstKeptEntryId: "c3d4e5f6" },
  },
  run(context, params) {
    const { session } = context;
    const draft = makeCompactionDraft(session, {
      summary: params.summary,
      firstKeptEntryId: params.firstKeptEntryId,
      tokensBefore: params.tokensBefore,
      details: context.text("details"),
      usage: context.text("usage"),
      fromHook: params.fromHook,
    });
    const { ids, lines } = appendEntries(context, [draft]);
    const [entryId] = ids;
    context.notify("session_compact", { compactionEntry: Raw.of(lines[0]), fromExtension: params.fromHook ?? false });
    return { entryId, leafId: entryId, firstKeptEntryId: params.firstKeptEntryId ?? entryId };
  },
  repeat(context, entryIds) {
    requireTypes(context, entryIds, ["compaction"]);
    const [entryId] = entryIds;
    const { session } = context;
    const firstKeptEntryId = session.firstKeptId(session.position(entryId)) ?? entryId;
    return { entryId, leafId: entryId, firstKeptEntryId };
  },
});
