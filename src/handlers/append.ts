import * as z from "zod";
import { draftOfText } from "../core/entry.ts";
import { bytesOf, elements, knownValueEnd } from "../core/json.ts";
import { draft } from "../core/schemas.ts";
import { appendEntries, demandTypes } from "./appending.ts";
import { command } from "./command.ts";

export default command({
  name: "append",
  summary: "Appends entries at the leaf, all or none; each continues the one before.",
  effect: "write",
  params: {
    entries: z
      .array(draft)
      .min(1)
      .max(10_000)
      .describe("entries without id, parentId and timestamp, which may be given; other members are stored as sent"),
  },
  result: z.object({ entryIds: z.array(z.string()), leafId: z.string().nullable() }),
  failures: ["entry_not_found", "invalid_entry"],
  example: {
    params: { entries: [{ type: "message", message: { role: "user", content: "Hello" } }] },
    result: { entryIds: ["a1b2c3d4"], leafId: "a1b2c3d4" },
  },
  run(context, params) {
    const { session } = context;
    const bytes = context.text("entries") ?? bytesOf(JSON.stringify(params.entries));
    const ranges = elements(bytes, 0, bytes.length, knownValueEnd) ?? [];
    const drafts = ranges.map((range, index) => draftOfText(bytes, range, params.entries[index]));
    const { ids, oldLeafId, branchChanged } = appendEntries(context, drafts);
    if (branchChanged) context.tell("session_tree", { newLeafId: session.leafId, oldLeafId });
    return { entryIds: ids, leafId: session.leafId };
  },
  repeat(context, entryIds, { entries }) {
    demandTypes(
      context,
      entryIds,
      entries.map(({ type }) => type),
    );
    return { entryIds, leafId: entryIds.at(-1) ?? null };
  },
});
