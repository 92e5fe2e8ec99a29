import * as z from "zod";
import { BadParams } from "../core/failure.ts";
import { type Draft, makeDraft } from "../core/format/entry.ts";
import { getContentText } from "../core/format/message.ts";
import { Raw } from "../core/json/raw.ts";
import { captureSettings, noteMove } from "../core/session/changes.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { appendEntries, getEntryTypes, requireTypes } from "./shared/append.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import { describeLeaf, toHookAnswer, veto } from "./shared/hooks.ts";
import { prepareMove } from "./shared/leaving.ts";
import { requireOneName } from "./shared/two-names.ts";

const result = () =>
  z.object({
    cancelled: z.boolean(),
    ...veto,
    leafId: z.string().nullable(),
    text: z.string().optional(),
    summaryEntryId: z.string().optional(),
    unchanged: z
      .literal(true)
      .optional()
      .describe("the conversation went on from there already, and nothing was stored"),
    durable: z
      .boolean()
      .describe("false on a session that is read-only or not on disk: the move lasts as long as this process"),
  });

export default defineCommand({
  name: "branch",
  summary: "Moves the leaf inside the session; the next entry continues there.",
  effect: "write",
  checksReadOnly: true,
  runsAlone: true,
  params: {
    entryId: z.string().nullish().describe("null: before the first entry"),
    targetId: z.string().nullish().describe("the same, as prepare_branch_summary names it"),
    position: z
      .enum(["at", "before"])
      .optional()
      .describe("at (default): the entry becomes the leaf; before: its parent does, and a message's text is returned"),
    summary: z
      .looseObject({
        summary: z.string().min(1),
        details: z.unknown().optional(),
        fromHook: z.boolean().optional(),
        usage: z.unknown().optional(),
      })
      .optional()
      .describe("a summary of the branch that is left; becomes a branch_summary entry at the new place"),
    label: z.string().min(1).optional().describe("for the summary entry if there is one, else for the new leaf"),
  },
  result,
  failures: ["entry_not_found"],
  example: { params: { entryId: "a1b2c3d4" }, result: { cancelled: false, leafId: "a1b2c3d4", durable: true } },
  run(context, params) {
    const { session } = context;
    const { nodes } = session.log;
    const entryId = requireOneName("entryId", params.entryId, "targetId", params.targetId);
    let target = entryId === null ? ROOT : session.position(entryId);
    let text: string | undefined;
    if (params.position === "before" && target !== ROOT) {
      text = messageText(session.entry(target));
      target = Math.max(nodes.parent(target), ROOT);
    }
    if (params.label !== undefined && target === ROOT && params.summary === undefined)
      throw new BadParams([{ path: "label", message: "there is no entry to label before the first; add a summary" }]);
    const summary = params.summary && {
      summary: params.summary.summary,
      details: context.text("summary", "details"),
      usage: context.text("summary", "usage"),
      fromHook: params.summary.fromHook,
    };
    const wanted: Move = { target, text, summary, label: params.label };
    const isAsked = target !== session.tree.leaf && context.asks("session_before_tree");
    return isAsked ? consult(context, wanted) : move(context, wanted);
  },
  repeat(context, entryIds, { entryId: given, targetId, position, summary, label }) {
    const { session } = context;
    const entryId = requireOneName("entryId", given, "targetId", targetId);
    // A summary or a label may have come from the host's answer to a hook.
    const [first] = getEntryTypes(context, entryIds);
    const summarised = summary !== undefined || first === "branch_summary";
    const labelled = label !== undefined || entryIds.length > (summarised ? 1 : 0);
    requireTypes(context, entryIds, [...(summarised ? ["branch_summary"] : []), ...(labelled ? ["label"] : [])]);
    return {
      cancelled: false,
      leafId: entryIds.at(-1) ?? null,
      text:
        position === "before" && entryId !== null ? messageText(session.entry(session.position(entryId))) : undefined,
      summaryEntryId: summarised ? entryIds[0] : undefined,
      durable: true,
    };
  },
});

interface Move {
  readonly target: number;
  readonly text: string | undefined;
  readonly summary: { summary: string; details?: unknown; usage?: unknown; fromHook?: boolean } | undefined;
  readonly label: string | undefined;
}

/** Asks the host first. Its answer may add the summary and the label that the request left out. */
async function consult(context: CommandContext, wanted: Move): Promise<z.input<ReturnType<typeof result>>> {
  const { session } = context;
  const { target, label } = wanted;
  const preparation = prepareMove(session, target, { userWantsSummary: wanted.summary !== undefined, label });
  const { cancelled, reason, message, answer } = await context.ask("session_before_tree", {
    preparation,
    ...describeLeaf(session),
  });
  if (cancelled) return { cancelled, reason, message, leafId: session.leafId, durable: session.isKept };
  const checked = toHookAnswer("session_before_tree", answer);
  const summary = wanted.summary ?? (checked.summary && { ...checked.summary, fromHook: true });
  return move(context, { ...wanted, summary, label: label ?? checked.label });
}

function move(context: CommandContext, { target, text, summary, label }: Move): z.input<ReturnType<typeof result>> {
  const { session } = context;
  const oldLeafId = session.leafId;
  const parentId = session.idOrNull(target);
  const drafts: Draft[] = [];
  let summaryEntryId: string | undefined;
  if (summary !== undefined) {
    summaryEntryId = session.newEntryId();
    // The entry names the position that is left, because that is what the summary is about (reliability case T13).
    const rest = { fromId: oldLeafId ?? "root", ...summary };
    drafts.push({ ...makeDraft("branch_summary", rest), id: summaryEntryId, parentId });
  }
  if (label !== undefined && (summaryEntryId !== undefined || parentId !== null)) {
    const rest = { targetId: summaryEntryId ?? parentId, label };
    drafts.push({ ...makeDraft("label", rest), ...(summaryEntryId === undefined ? { parentId } : {}) });
  }
  const labelled = drafts.at(-1)?.type === "label" ? (summaryEntryId ?? parentId) : null;
  const before = labelled === null ? undefined : captureSettings(session, [{ type: "label", targetId: labelled }]);
  let lines: readonly Uint8Array[] = [];
  let ids: readonly string[] = [];
  if (drafts.length > 0) ({ lines, ids } = appendEntries(context, drafts));
  else session.moveLeaf(target);
  noteMove(session, "branch", oldLeafId, before && { before, entryIds: ids.slice(-1) });
  const { leafId } = session;
  const summarised = summary && { summaryEntry: Raw.of(lines[0]), fromExtension: summary.fromHook ?? false };
  if (leafId !== oldLeafId) context.notify("session_tree", { newLeafId: leafId, oldLeafId, ...summarised });
  const unchanged = (leafId === oldLeafId && drafts.length === 0) || undefined;
  return { cancelled: false, leafId, text, summaryEntryId, unchanged, durable: session.isKept };
}

/** Returns the text of a user or custom message, which the host puts back into its editor. */
function messageText(entry: { type: string; message?: unknown; content?: unknown }): string | undefined {
  if (entry.type === "custom_message") return getContentText(entry.content);
  const message = entry.message as { role?: unknown; content?: unknown } | undefined;
  return message?.role === "user" || message?.role === "custom" ? getContentText(message.content) : undefined;
}
