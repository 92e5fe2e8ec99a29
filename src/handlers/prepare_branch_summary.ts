import * as z from "zod";
import { prepareBranchSummary } from "../core/context/compaction.ts";
import { BadParams } from "../core/failure.ts";
import { Raw } from "../core/json/raw.ts";
import { findEntryNamed } from "../core/session/entry-names.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { defineCommand } from "./shared/command.ts";
import { conversationText, fileLists } from "./shared/compaction.ts";
import { entry, images, makeEntryExample, typeStored } from "./shared/shapes.ts";
import { chooseName } from "./shared/two-names.ts";

export default defineCommand({
  name: "prepare_branch_summary",
  summary:
    "Returns what a move of the leaf would leave, or with fromId what another branch has: all that a model needs to " +
    "summarise it, and then branch or merge_branch. Changes nothing.",
  effect: "read",
  params: {
    targetId: z
      .string()
      .nullish()
      .describe(
        "where the leaf is to go; null: before the first entry. With fromId: where the summary goes, the leaf by default",
      ),
    entryId: z.string().nullish().describe("the same as targetId, as branch names it"),
    fromId: z
      .string()
      .optional()
      .describe("the end of the branch to summarise, named as in compare_branches; the leaf by default"),
    images,
    messages: z
      .boolean()
      .optional()
      .describe("false: without the entries; conversationText has what a summariser needs"),
  },
  result: () =>
    z.object({
      oldLeafId: z.string().nullable(),
      commonAncestorId: z.string().nullable().describe("the last entry that both paths have; null for none"),
      entriesToSummarize: typeStored(z.array(entry)).optional().describe("those after it up to the leaf, or to fromId"),
      details: fileLists.describe("files of the tool calls among them, with those of branches summarised before"),
      conversationText,
    }),
  failures: ["entry_not_found", "ambiguous_id"],
  example: {
    params: { targetId: "b2c3d4e5" },
    result: {
      oldLeafId: "d4e5f6a7",
      commonAncestorId: "b2c3d4e5",
      entriesToSummarize: [makeEntryExample("c3d4e5f6", "b2c3d4e5", "Refactor auth.")],
      details: { readFiles: [], modifiedFiles: [] },
      conversationText: "User: Refactor auth.",
    },
  },
  run({ session }, { targetId: given, entryId, fromId, images, messages }) {
    const targetId = chooseName("targetId", given, "entryId", entryId);
    if (targetId === undefined && fromId === undefined)
      throw new BadParams([{ path: "targetId", message: "is required unless fromId names a branch" }]);
    session.rebuildAfterLosses();
    const { tree } = session;
    const from = fromId === undefined ? tree.leaf : findEntryNamed(session, fromId);
    const target = targetId === undefined ? tree.leaf : targetId === null ? ROOT : session.position(targetId);
    const plan = prepareBranchSummary(tree, session, from, target);
    return {
      oldLeafId: session.leafId,
      commonAncestorId: session.idOrNull(plan.commonAncestor),
      entriesToSummarize: messages === false ? undefined : Raw.array(() => session.lines(plan.left, images)),
      details: plan.files,
      conversationText: plan.conversationText,
    };
  },
});
