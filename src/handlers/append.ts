import * as z from "zod";
import { type Draft, draftOfText } from "../core/format/entry.ts";
import { draft } from "../core/format/schemas.ts";
import { bytesOf, elements, knownValueEnd } from "../core/json/json.ts";
import { completedDraft, Speakers } from "../core/session/message-defaults.ts";
import { requireReferences } from "../core/session/references.ts";
import { doubtsOf } from "../core/session/warnings.ts";
import { appendEntries, requireTypes } from "./shared/append.ts";
import { type CommandContext, command } from "./shared/command.ts";
import { assistantExample } from "./shared/shapes.ts";

export default command({
  name: "append",
  summary: "Appends entries at the leaf, all or none; each continues the one before.",
  effect: "write",
  params: {
    entries: z
      .array(draft)
      .min(1)
      .max(10_000)
      .describe(
        "entries; id, parentId and timestamp are optional; other members are stored as sent, and what " +
          "Pi needs in a message is added where it is missing: content, and in assistant messages usage with its cost, " +
          "stopReason, timestamp, provider, model and api, of the model that the path names",
      ),
  },
  result: z.object({
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
      .describe(
        "what was stored but may be a mistake, of the blocks of an entry the first ten; absent when there is nothing to report",
      ),
  }),
  failures: ["entry_not_found", "invalid_entry", "invalid_boundary"],
  example: {
    params: {
      entries: [
        { type: "message", message: { role: "user", content: "Hello" } },
        { type: "message", message: assistantExample },
      ],
    },
    result: { entryIds: ["a1b2c3d4", "b2c3d4e5"], leafId: "b2c3d4e5" },
  },
  run(context, params) {
    const { session } = context;
    const bytes = context.text("entries") ?? bytesOf(JSON.stringify(params.entries));
    const ranges = elements(bytes, 0, bytes.length, knownValueEnd) ?? [];
    requireReferences(session, params.entries);
    const speakers = new Speakers(session);
    const drafts = ranges.map((range, index): Draft => {
      const value = params.entries[index];
      const sent = bytes.subarray(range.start, range.end);
      const around = { time: () => timeOf(context, value.timestamp), speaker: speakers.next(value) };
      const text = completedDraft(sent, value, around);
      return text === sent
        ? draftOfText(bytes, range, value)
        : draftOfText(text, { start: 0, end: text.length }, value);
    });
    const { ids, oldLeafId, branchChanged } = appendEntries(context, drafts);
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
    doubtsOf(entry).map(({ path, message }) => ({ path: `entries.${index}.${path}`, message })),
  );
  return warnings.length === 0 ? {} : { warnings };
}
