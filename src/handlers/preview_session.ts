import * as z from "zod";
import type { Session } from "../core/session/session.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { lookAt } from "./shared/any-session.ts";
import { defineCommand } from "./shared/command.ts";
import { getPreview, getPreviewText, parsePreviewBody, previewMembers } from "./shared/entry-preview.ts";
import { anySessionPath, holder } from "./shared/shapes.ts";

/** Entries before and after, and characters of each text, unless the host says otherwise. */
const AROUND = 20;
const CHARACTERS = 2000;
/** Characters of the text of the named entry, where the search hit may be far from the beginning. */
const NAMED_CHARACTERS = 1 << 16;

const around = z.number().int().min(0).max(1000).optional();

export default defineCommand({
  name: "preview_session",
  summary:
    "The conversation around an entry in short texts, for lists that show what a session is about, and whether " +
    "another process writes to it. Takes no lock and changes nothing.",
  effect: "read",
  ofAny: true,
  params: {
    sessionPath: anySessionPath,
    entryId: z.string().optional().describe("the leaf by default"),
    before: around.describe(`entries before it, at most; ${AROUND} by default`),
    after: around.describe(
      `entries after it, at most, to the leaf or to the end of its branch that was continued last; ${AROUND} by default`,
    ),
    characters: z
      .number()
      .int()
      .min(1)
      .max(NAMED_CHARACTERS)
      .optional()
      .describe(
        `of each text; ${CHARACTERS} by default. The entry that is named by entryId has up to ${NAMED_CHARACTERS}`,
      ),
  },
  result: () =>
    z.object({
      sessionId: z.string(),
      leafId: z.string().nullable(),
      lastEntryId: z
        .string()
        .nullable()
        .describe("the last entry in file order, of whatever branch; get_entries since it has what comes later"),
      entries: z.array(
        z.object({
          id: z.string(),
          type: z.string(),
          timestamp: z.string().optional(),
          text: z.string(),
          isCut: z.literal(true).optional().describe("there is more of its text"),
          ...previewMembers,
          label: z.string().optional(),
        }),
      ),
      entriesBefore: z.number().int().describe("entries on the path before the first of these"),
      entryCount: z.number().int(),
      branchCount: z.number().int().describe("entries with more than one child"),
      damageCount: z.number().int().describe("places with damage; verify_session reports them"),
      store: z.string(),
      readOnly: z.string().optional().describe("the name of the failure that a write would get"),
      lockedBy: holder().optional(),
      canJoin: z
        .literal(true)
        .optional()
        .describe("the process that holds it shares it, so that names, labels and moves are done there"),
    }),
  failures: ["entry_not_found", "not_a_session", "path_outside_root", "storage_failed"],
  example: {
    params: { entryId: "a1b2c3d4", after: 0 },
    result: {
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
      leafId: "c3d4e5f6",
      lastEntryId: "c3d4e5f6",
      entries: [
        { id: "a1b2c3d4", type: "message", timestamp: "2026-01-24T16:22:31.120Z", role: "user", text: "Hello" },
      ],
      entriesBefore: 0,
      entryCount: 4,
      branchCount: 0,
      damageCount: 0,
      store: "jsonl",
    },
  },
  run: (context, params) =>
    lookAt(context, params.sessionPath, (session) => {
      const { log, tree } = session;
      const { before = AROUND, after = AROUND, characters = CHARACTERS } = params;
      const named = params.entryId === undefined ? ROOT : session.position(params.entryId);
      const positions = positionsAround(session, named === ROOT ? tree.leaf : named, before, after);
      const lines = log.readMany(positions, true)[Symbol.iterator]();
      return {
        sessionId: session.id,
        leafId: session.leafId,
        lastEntryId: lastIdOf(session),
        entries: positions.map((position) =>
          toPreview(session, position, lines.next().value, position === named ? NAMED_CHARACTERS : characters),
        ),
        entriesBefore: positions.length === 0 ? 0 : tree.depth(positions[0]),
        entryCount: tree.entryCount,
        branchCount: tree.branchCount,
        damageCount: session.diagnostics.length,
        store: log.store,
        readOnly: log.readOnly?.name,
        lockedBy: log.lock.holder ?? undefined,
        canJoin:
          log.lock.holder && session.file !== null && context.server.canJoin(session.file)
            ? (true as const)
            : undefined,
      };
    }),
});

/** Returns the positions of the path through an entry, from so many before to so many after it. */
function positionsAround({ log, tree }: Session, at: number, before: number, after: number): number[] {
  const { nodes } = log;
  const found: number[] = [];
  for (let above = at; above >= 0 && found.length <= before; above = nodes.parent(above)) found.push(above);
  found.reverse();
  if (at < 0) return found;
  if (tree.isAncestor(at, tree.leaf)) {
    const first = tree.depth(at) + 1;
    found.push(...tree.path().subarray(first, first + after));
  } else
    for (let left = after, next = lastOf(tree.children(at)); left > 0 && next !== undefined; left--) {
      found.push(next);
      next = lastOf(tree.children(next));
    }
  return found.filter((position) => tree.isVisible(position));
}

function lastIdOf({ log, tree }: Session): string | null {
  let last = log.nodes.count - 1;
  while (last >= 0 && !tree.isVisible(last)) last--;
  return last < 0 ? null : log.nodes.id(last);
}

function lastOf(positions: Iterable<number>): number | undefined {
  let last: number | undefined;
  for (const position of positions) last = position;
  return last;
}

/** Bytes that a character takes in JSON at most, which is as an escape. */
const WIDEST = 6;

function toPreview({ log, tree }: Session, position: number, line: Uint8Array, characters: number) {
  const body = parsePreviewBody(line, characters * WIDEST);
  const text = getPreviewText(body);
  const { timestamp } = body;
  return {
    id: log.nodes.id(position),
    type: log.nodes.type(position),
    timestamp: typeof timestamp === "string" ? timestamp : undefined,
    text: text.slice(0, characters),
    ...(text.length > characters ? { isCut: true as const } : {}),
    ...getPreview(body),
    label: tree.labels.get(position)?.label,
  };
}
