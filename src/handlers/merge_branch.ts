import * as z from "zod";
import { BadParams, Failure } from "../core/failure.ts";
import { makeDraft, setMembers } from "../core/format/entry.ts";
import { toBytes } from "../core/json/json.ts";
import { noteMove } from "../core/session/changes.ts";
import { findMerge, type Merged, makeOutline, readMerged } from "../core/session/compare.ts";
import { findEntryNamed } from "../core/session/entry-names.ts";
import type { Session } from "../core/session/session.ts";
import { findParting, lookIntoOther, toOtherSession } from "./shared/any-session.ts";
import { appendEntries, requireTypes } from "./shared/append.ts";
import { defineCommand } from "./shared/command.ts";
import { optionalName } from "./shared/shapes.ts";

const merged = {
  fromId: z.string().describe("the end of the branch"),
  commonAncestorId: z.string().nullable().describe("where it left the path; null when they have nothing in common"),
  entryCount: z.number().int().describe("entries of the branch since then"),
  startedAt: z.string().optional(),
  endedAt: z.string().optional(),
  sessionId: z.string().optional().describe("of the branch, if that is another one"),
  sessionPath: z.string().optional(),
};

export default defineCommand({
  name: "merge_branch",
  summary:
    "Appends at the leaf what another branch found: a summary that the model sees, with its provenance. The host writes " +
    "it; prepare_branch_summary with fromId returns all that a model needs for it.",
  effect: "write",
  readsOther: ({ otherPath, otherId }) => otherPath !== undefined || otherId !== undefined,
  params: {
    from: z
      .string()
      .min(1)
      .describe(
        "where the branch ends: the id of an entry, an unambiguous beginning of it of at least 4 characters, or its label",
      ),
    otherPath: optionalName.describe(
      "the session of the branch, if that is another one; then `from` may be `leaf` too",
    ),
    otherId: optionalName.describe(
      "or its id, an unambiguous beginning of it, or the id that another agent has for it",
    ),
    summary: z
      .string()
      .refine((text) => text.trim() !== "", "must not be blank")
      .describe("not blank"),
    details: z
      .looseObject({})
      .optional()
      .describe("kept with it; by default the files that the branch read and modified, as Pi has them"),
    usage: z.unknown().optional().describe("of the model that wrote the summary"),
    fromHook: z.boolean().optional().describe("whether an extension wrote it"),
  },
  result: () =>
    z.object({
      entryId: z.string().describe("of the branch_summary, whose `details.merged` has what follows"),
      leafId: z.string(),
      ...merged,
    }),
  failures: [
    "entry_not_found",
    "ambiguous_id",
    "invalid_id",
    "nothing_to_merge",
    "unrelated_sessions",
    "not_a_session",
    "path_outside_root",
  ],
  example: {
    params: { from: "a7c8e9f0", summary: "A map is faster, but needs twice the memory." },
    result: {
      entryId: "f6a7b8c9",
      leafId: "f6a7b8c9",
      fromId: "a7c8e9f0",
      commonAncestorId: "a1b2c3d4",
      entryCount: 1,
      startedAt: "2026-01-24T16:22:31.120Z",
      endedAt: "2026-01-24T16:22:35.620Z",
    },
  },
  async run(context, params) {
    const { session } = context;
    const other = toOtherSession(params.otherPath, params.otherId);
    const { provenance, files } = other
      ? await lookIntoOther(context.workspace, other, (of) => branchOf(session, of, params.from))
      : branchOf(session, session, params.from);
    const details = context.text("details") ?? toBytes(JSON.stringify(files));
    const draft = makeDraft("branch_summary", {
      fromId: provenance.fromId,
      summary: params.summary,
      details: setMembers(details, { merged: toBytes(JSON.stringify(provenance)) }),
      usage: context.text("usage"),
      fromHook: params.fromHook,
    });
    const before = session.leafId;
    const [entryId] = appendEntries(context, [draft]).ids;
    noteMove(session, "merge", before);
    return { entryId, leafId: entryId, ...provenance };
  },
  repeat(context, entryIds) {
    requireTypes(context, entryIds, ["branch_summary"]);
    const [entryId] = entryIds;
    const known = readMerged(context.session.entry(context.session.position(entryId)));
    if (!known) throw new BadParams([{ path: "idempotencyKey", message: "was used by branch; choose a new one" }]);
    return { entryId, leafId: entryId, ...known };
  },
});

/** Returns the provenance of a branch, and the files that it names. Throws nothing_to_merge. */
function branchOf(session: Session, of: Session, name: string): { provenance: Merged; files: object } {
  const { tree } = session;
  const here = { session, position: tree.leaf };
  const end = { session: of, position: findEntryNamed(of, name) };
  const { common, a: since, b: branch } = findParting(here, end);
  if (branch.length === 0) throw new Failure("nothing_to_merge", undefined, { leafId: session.leafId });
  const fromId = of.log.nodes.id(end.position);
  const before = findMerge(session, since, of.id, (id) => {
    const to = of.find(id);
    return to >= 0 && of.tree.isAncestor(end.position, to);
  });
  if (before >= 0) {
    const entryId = session.log.nodes.id(before);
    const sentence = `The entry ${entryId} has merged all of that branch already. To merge it anew, move the leaf before that.`;
    throw new Failure("nothing_to_merge", sentence, { entryId });
  }
  const { startedAt, endedAt, files } = makeOutline(of, branch, 0);
  const commonAncestorId = common.length === 0 ? null : session.log.nodes.id(common[common.length - 1]);
  const elsewhere = of === session ? {} : { sessionId: of.id, ...(of.file === null ? {} : { sessionPath: of.file }) };
  return {
    provenance: { fromId, commonAncestorId, entryCount: branch.length, startedAt, endedAt, ...elsewhere },
    files,
  };
}
