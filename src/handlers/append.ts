import * as z from "zod";
import { type Draft, makeTextDraft } from "../core/format/entry.ts";
import { draft } from "../core/format/schemas.ts";
import { findKnownValueEnd, getElements, toBytes } from "../core/json/json.ts";
import { completeDraft, Speakers } from "../core/session/message-defaults.ts";
import { requireReferences } from "../core/session/references.ts";
import { findDoubts } from "../core/session/warnings.ts";
import { appendRecorded, requireTypes } from "./shared/append.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import { assistantExample } from "./shared/shapes.ts";

export default defineCommand({
  name: "append",
  summary: "Appends entries at the leaf, all or none; each continues the one before.",
  effect: "write",
  params: {
    entries: z
      .array(draft)
      .min(1)
      .max(10_000)
      .describe(
        "entries; id, parentId and timestamp are optional. Without parentId an entry continues the one before it, the first one " +
          "the leaf; null begins a branch without what came before. Other members are stored as sent, and what " +
          "Pi needs in a message is added where it is missing: content, and in assistant messages usage with its cost, " +
          "stopReason, timestamp, provider, model and api, of the model that the path names",
      ),
  },
  result: () =>
    z.object({
      entryIds: z.array(z.string()),
      leafId: z.string().nullable(),
      warnings: z
        .array(
          z.object({
            path: z.string().describe("the member that it is about, such as `entries.0.message.role`"),
            message: z.string(),
          }),
        )
        .optional()
        .describe("stored members that may be a mistake; of the blocks of an entry, the first ten; absent without any"),
    }),
  failures: ["entry_not_found", "invalid_entry", "invalid_boundary"],
  example: {
    params: {
      entries: [
        { type: "message", message: { role: "user", content: "Run the tests.", timestamp: 1769271740000 } },
        {
          type: "message",
          message: {
            ...assistantExample,
            content: [{ type: "toolCall", id: "call_1", name: "bash", arguments: { command: "npm test" } }],
            stopReason: "toolUse",
            timestamp: 1769271742000,
          },
        },
        {
          type: "message",
          message: {
            role: "toolResult",
            toolCallId: "call_1",
            toolName: "bash",
            content: [{ type: "text", text: "12 passed" }],
            isError: false,
            timestamp: 1769271745000,
          },
        },
        {
          type: "message",
          message: { ...assistantExample, content: [{ type: "text", text: "All 12 tests pass." }] },
        },
      ],
    },
    result: { entryIds: ["e5f6a7b8", "f6a7b8c9", "a7b8c9d0", "b8c9d0e1"], leafId: "b8c9d0e1" },
  },
  run(context, params) {
    const { session } = context;
    const bytes = context.text("entries") ?? toBytes(JSON.stringify(params.entries));
    const ranges = getElements(bytes, 0, bytes.length, findKnownValueEnd) ?? [];
    requireReferences(session, params.entries);
    const speakers = new Speakers(session);
    const drafts = ranges.map((range, index): Draft => {
      const value = params.entries[index];
      const sent = bytes.subarray(range.start, range.end);
      const around = { time: () => timeOf(context, value.timestamp), speaker: speakers.next(value) };
      const text = completeDraft(sent, value, around);
      return text === sent
        ? makeTextDraft(bytes, range, value)
        : makeTextDraft(text, { start: 0, end: text.length }, value);
    });
    const { ids, oldLeafId, branchChanged } = appendRecorded(context, drafts, params.entries, false);
    if (branchChanged) context.notify("session_tree", { newLeafId: session.leafId, oldLeafId });
    return { entryIds: ids, leafId: session.leafId, ...warningsOf(params.entries) };
  },
  repeat(context, entryIds, { entries }) {
    const types = entries.map(({ type }) => type);
    requireTypes(context, entryIds, types);
    return { entryIds, leafId: entryIds.at(-1) ?? null, ...warningsOf(entries) };
  },
});

/** Returns the time of an entry in milliseconds: its timestamp, or now if it has none that is valid. */
function timeOf({ workspace }: CommandContext, timestamp: string | undefined): number {
  const time = Date.parse(timestamp ?? "");
  return Number.isNaN(time) ? workspace.env.now() : time;
}

function warningsOf(entries: readonly z.output<typeof draft>[]): { warnings?: { path: string; message: string }[] } {
  const warnings = entries.flatMap((entry, index) =>
    findDoubts(entry).map(({ path, message }) => ({ path: `entries.${index}.${path}`, message })),
  );
  return warnings.length === 0 ? {} : { warnings };
}
