import * as z from "zod";
import { type Draft, draftOf } from "../core/entry.ts";
import { BadParams } from "../core/failure.ts";
import { contentText } from "../core/message.ts";
import { ROOT } from "../core/nodes.ts";
import { Raw } from "../core/raw.ts";
import { appendEntries } from "./appending.ts";
import { command } from "./command.ts";

export default command({
  name: "branch",
  summary: "Moves the leaf inside the session; what is appended next continues there.",
  effect: "write",
  params: {
    entryId: z.string().nullable().describe("null: before the first entry"),
    position: z
      .enum(["at", "before"])
      .optional()
      .describe("at (default): the entry becomes the leaf; before: its parent does, and a message's text is answered"),
    summary: z
      .looseObject({
        summary: z.string().min(1),
        details: z.unknown().optional(),
        fromHook: z.boolean().optional(),
        usage: z.unknown().optional(),
      })
      .optional()
      .describe("what the branch that is left was about; becomes a branch_summary entry at the new place"),
    label: z.string().min(1).optional().describe("for the summary entry if there is one, else for the new leaf"),
  },
  result: z.object({
    cancelled: z.boolean(),
    leafId: z.string().nullable(),
    text: z.string().optional(),
    summaryEntryId: z.string().optional(),
    durable: z.boolean().describe("false on a read-only session: the move lasts as long as this process"),
  }),
  failures: ["entry_not_found"],
  example: { params: { entryId: "a1b2c3d4" }, result: { cancelled: false, leafId: "a1b2c3d4", durable: true } },
  run(context, params) {
    const { session } = context;
    const { nodes } = session.log;
    const oldLeafId = session.leafId;
    let target = params.entryId === null ? ROOT : session.position(params.entryId);
    let text: string | undefined;
    if (params.position === "before" && target !== ROOT) {
      text = messageText(session.entry(target));
      target = Math.max(nodes.parent(target), ROOT);
    }
    if (params.label !== undefined && target === ROOT && params.summary === undefined)
      throw new BadParams([{ path: "label", message: "there is no entry to label before the first; add a summary" }]);
    const drafts: Draft[] = [];
    const parentId = session.idOrNull(target);
    let summaryEntryId: string | undefined;
    if (params.summary !== undefined) {
      summaryEntryId = session.newEntryId();
      const { summary, fromHook } = params.summary;
      const details = context.text("summary", "details");
      const usage = context.text("summary", "usage");
      // The entry names the place that is left, for that is what the summary is about (reliability case T13).
      const rest = { fromId: oldLeafId ?? "root", summary, details, usage, fromHook };
      drafts.push({ ...draftOf("branch_summary", rest), id: summaryEntryId, parentId });
    }
    if (params.label !== undefined) {
      const rest = { targetId: summaryEntryId ?? parentId, label: params.label };
      drafts.push({ ...draftOf("label", rest), ...(summaryEntryId === undefined ? { parentId } : {}) });
    }
    if (drafts.length > 0) appendEntries(context, drafts);
    else session.moveLeaf(target);
    const { leafId } = session;
    if (leafId !== oldLeafId)
      context.tell("session_tree", {
        newLeafId: leafId,
        oldLeafId,
        ...(summaryEntryId === undefined
          ? {}
          : {
              summaryEntry: Raw.of(session.line(nodes.position(summaryEntryId))),
              fromExtension: params.summary?.fromHook ?? false,
            }),
      });
    return { cancelled: false, leafId, text, summaryEntryId, durable: session.log.readOnly === null };
  },
});

/** The text of a user or custom message, which the host puts back into its editor. */
function messageText(entry: { type: string; message?: unknown; content?: unknown }): string | undefined {
  if (entry.type === "custom_message") return contentText(entry.content);
  const message = entry.message as { role?: unknown; content?: unknown } | undefined;
  return message?.role === "user" || message?.role === "custom" ? contentText(message.content) : undefined;
}
