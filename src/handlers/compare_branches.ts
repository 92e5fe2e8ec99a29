import * as z from "zod";
import { toBytes } from "../core/json/json.ts";
import { type BranchEnd, getShownId, makeOutline, type Outline } from "../core/session/compare.ts";
import { findEntryNamed } from "../core/session/entry-names.ts";
import type { Session } from "../core/session/session.ts";
import { findParting, lookAt, lookIntoOther, toOtherSession } from "./shared/any-session.ts";
import { type CommandContext, defineCommand } from "./shared/command.ts";
import { fileLists } from "./shared/compaction.ts";
import { counts, exampleCounts } from "./shared/counts.ts";
import { previewCalls } from "./shared/entry-preview.ts";
import { anySessionPath, exampleId, optionalName } from "./shared/shapes.ts";

/** Entries of each side that are shown by default, and at most. */
const USUAL = 50;
const MOST = 1000;

const end = optionalName.describe(
  "an entry: its id, an unambiguous beginning of it of at least 4 characters, its label, or `leaf`, the default",
);

const said = z.object({
  entryId: z.string(),
  type: z.string(),
  role: z.string().optional(),
  at: z.string().optional(),
  text: z.string().describe("the beginning of it, on one line"),
  calls: previewCalls.optional(),
  toolName: z.string().optional().describe("of a tool's result"),
  isError: z.literal(true).optional().describe("the tool failed; other results are left out"),
});

const branchResult = z.object({
  sessionId: z.string(),
  sessionPath: z.string().nullable(),
  sessionName: z.string().nullable(),
  entryId: z.string().nullable().describe("the end of the branch; null: before the first entry"),
  shownId: z.string().nullable().describe("the last entry up to there that a tree without settings shows"),
  entryCount: z.number().int().describe("entries after the common ancestor; all further members are about these"),
  ...counts,
  failedCalls: z.number().int(),
  tools: z
    .array(z.object({ name: z.string(), count: z.number().int(), failures: z.number().int() }))
    .describe("the one that was called most first; 200 at most"),
  models: z
    .array(z.object({ provider: z.string(), id: z.string(), messages: z.number().int() }))
    .describe("of assistant messages, the one with most of them first; 200 at most"),
  files: fileLists.describe("of tool calls, and of branches and compactions that are summarised; 1,000 of each kind"),
  moreFiles: z.boolean().describe("whether there were more"),
  startedAt: z.string().optional().describe("when the first was written that is no label, name or setting"),
  endedAt: z.string().optional(),
  durationMs: z.number().describe("from the first entry to the last"),
  entries: z
    .array(said)
    .describe("those that say something, the oldest first: messages, failed tool calls, summaries, changes of model"),
  nextCursor: z.string().optional().describe("there are more: get_path of that session takes it as cursor"),
  lastAnswer: said.optional().describe("the last text of the assistant"),
});

const exampleBranch = {
  sessionId: exampleId,
  sessionPath: "/home/me/sessions/current.jsonl",
  sessionName: "Refactor auth",
  ...exampleCounts,
  failedCalls: 0,
  tools: [],
  models: [{ provider: "anthropic", id: "claude-sonnet-4-5", messages: 1 }],
  files: { readFiles: [], modifiedFiles: [] },
  moreFiles: false,
  startedAt: "2026-01-24T16:22:31.120Z",
  endedAt: "2026-01-24T16:22:35.620Z",
  durationMs: 4500,
};

export default defineCommand({
  name: "compare_branches",
  summary:
    "Compares two branches of a session, or of a session and its fork: where they part, and what each said, did and cost.",
  effect: "read",
  ofAny: true,
  params: {
    sessionPath: anySessionPath,
    a: end,
    b: end,
    otherPath: optionalName.describe("the session of b, if that is another one: a fork of this one, or its original"),
    otherId: optionalName.describe(
      "or its id, an unambiguous beginning of it, or the id that another agent has for it",
    ),
    limit: z
      .number()
      .int()
      .min(0)
      .max(MOST)
      .optional()
      .describe(`entries of each side that are returned at most; ${USUAL} by default`),
  },
  result: () =>
    z.object({
      commonAncestorId: z.string().nullable().describe("the last entry that both have; null for none"),
      commonShownId: z.string().nullable().describe("the last entry up to there that a tree without settings shows"),
      commonEntryCount: z.number().int(),
      a: branchResult,
      b: branchResult,
    }),
  failures: [
    "entry_not_found",
    "ambiguous_id",
    "invalid_id",
    "unrelated_sessions",
    "not_a_session",
    "path_outside_root",
    "message_too_large",
    "storage_failed",
  ],
  example: {
    params: { a: "c3d4e5f6", b: "leaf", limit: 1 },
    result: {
      commonAncestorId: "a1b2c3d4",
      commonShownId: "a1b2c3d4",
      commonEntryCount: 1,
      a: {
        ...exampleBranch,
        entryId: "c3d4e5f6",
        shownId: "c3d4e5f6",
        entryCount: 2,
        entries: [{ entryId: "b2c3d4e5", type: "message", role: "user", text: "Try it with a map." }],
        nextCursor: "c3d4e5f6.2",
        lastAnswer: { entryId: "c3d4e5f6", type: "message", role: "assistant", text: "A map is faster." },
      },
      b: {
        ...exampleBranch,
        entryId: "e5f6a7b8",
        shownId: "e5f6a7b8",
        entryCount: 2,
        entries: [{ entryId: "d4e5f6a7", type: "message", role: "user", text: "Try it with a list." }],
        nextCursor: "e5f6a7b8.2",
        lastAnswer: { entryId: "e5f6a7b8", type: "message", role: "assistant", text: "A list is enough." },
      },
    },
  },
  run(context, { sessionPath, otherPath, otherId, a, b, limit = USUAL }) {
    const other = toOtherSession(otherPath, otherId);
    return lookAt(context, sessionPath, (session) => {
      const compare = (second: Session) => compared(context, endOf(session, a), endOf(second, b), limit);
      return other ? lookIntoOther(context.workspace, other, compare) : compare(session);
    });
  },
});

function endOf(session: Session, name = "leaf"): BranchEnd {
  return { session, position: findEntryNamed(session, name) };
}

function compared(context: CommandContext, a: BranchEnd, b: BranchEnd, limit: number) {
  const parting = findParting(a, b);
  const { common } = parting;
  const one = openBranch(a, parting.a, limit);
  const other = openBranch(b, parting.b, limit);
  const result = {
    commonAncestorId: common.length === 0 ? null : a.session.log.nodes.id(common[common.length - 1]),
    commonShownId: common.length === 0 ? null : getShownId(a.session, common[common.length - 1]),
    commonEntryCount: common.length,
    a: one.facts,
    b: other.facts,
  };
  fill(context, [one, other], context.host.sizeOf(toBytes(JSON.stringify(result))));
  return result;
}

type BranchFacts = z.input<typeof branchResult>;

interface OpenBranch {
  readonly facts: BranchFacts;
  readonly outline: Outline;
  /** Entries of the branch up to the common ancestor. */
  readonly before: number;
}

function openBranch({ session, position }: BranchEnd, positions: Int32Array, limit: number): OpenBranch {
  const outline = makeOutline(session, positions, limit);
  const { counts, failedCalls, tools, models, files, areMoreFiles, startedAt, endedAt, durationMs, last } = outline;
  const facts = {
    sessionId: session.id,
    sessionPath: session.file,
    sessionName: session.name,
    entryId: session.idOrNull(position),
    shownId: getShownId(session, position),
    entryCount: positions.length,
    ...counts,
    failedCalls,
    tools,
    models,
    files,
    moreFiles: areMoreFiles,
    startedAt,
    endedAt,
    durationMs,
    entries: [],
    lastAnswer: last && shown(last),
  };
  return { facts, outline, before: position < 0 ? 0 : session.tree.depth(position) + 1 - positions.length };
}

function shown({ calls, ...rest }: Outline["said"][number]): z.input<typeof said> {
  return { ...rest, ...(calls ? { calls: [...calls] } : {}) };
}

/** Bytes of a reply around its result, and of two cursors. */
const AROUND = 1024;

/** Adds the entries to both sides in turns, as many as a reply may have. */
function fill({ host }: CommandContext, branches: readonly OpenBranch[], size: number): void {
  const { maxReplyBytes = Number.POSITIVE_INFINITY } = host;
  let available = maxReplyBytes - AROUND - size;
  const most = Math.max(...branches.map(({ outline }) => outline.said.length));
  for (let i = 0; i < most && available > 0; i++)
    for (const { outline, facts } of branches) {
      if (i >= outline.said.length) continue;
      const entry = shown(outline.said[i]);
      available -= host.sizeOf(toBytes(JSON.stringify(entry))) + 1;
      if (available > 0) facts.entries.push(entry);
    }
  for (const { outline, facts, before } of branches) {
    const { length } = facts.entries;
    if (outline.isWhole && length === outline.said.length) continue;
    facts.nextCursor = `${facts.entryId}.${before + (length === 0 ? 0 : outline.pasts[length - 1])}`;
  }
}
