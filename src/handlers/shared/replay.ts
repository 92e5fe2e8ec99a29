/** Resuming of a host whose server is gone: the events since then, or the present state of the session. */

import * as z from "zod";
import { Failure } from "../../core/failure.ts";
import { Raw } from "../../core/json/raw.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { ROOT } from "../../core/tree/nodes.ts";
import { eventDeclarations } from "./events.ts";

/** Entries of a replay at most, and bytes of them; who missed more pages through get_entries. */
const MOST_ENTRIES = 1000;
const MOST_BYTES = 1 << 20;

const place = {
  sessionId: z.string(),
  leafId: z.string().nullable(),
  lastEntryId: z.string().nullable().describe("the last entry; null for none"),
};

const HEAD = z.string().optional().describe("the head of the host, where that moved; missing for the shared leaf");

export const cursorResult = z
  .object(place)
  .describe("where the host is now. Each `session_append` moves `lastEntryId` to the last of its `entryIds`");

const number = z
  .number()
  .int()
  .min(0)
  .optional()
  .describe("accepted, but numbers are those of one server: without `lastEntryId` the answer is a snapshot");

export const resumeParams = z
  .looseObject({
    sessionId: z.string(),
    lastEntryId: z.string().nullish().describe("the last entry that was reported to the host; null for none"),
    leafId: z.string().nullish().describe("the leaf that was reported to it last"),
    epoch: number,
    lastSeq: number,
  })
  .describe("return the events since then, after the former server of the host ended");

export const resumedResult = z
  .union([
    z.object({
      type: z.literal("replay"),
      events: z
        .array(
          z.union([
            z.object({ event: z.literal("session_append"), ...base(), ...eventDeclarations.session_append.payload }),
            z.object({ event: z.literal("session_tree"), ...base(), ...eventDeclarations.session_tree.payload }),
          ]),
        )
        .describe("what the host missed, without numbers; none when it missed nothing"),
    }),
    z.object({ type: z.literal("snapshot"), ...place, entryCount: z.number().int() }),
    z.object({ type: z.literal("missing"), sessionId: z.string() }),
  ])
  .describe(
    "replay: all that was missed. snapshot: the cursor is not one of this session, or more than 1,000 entries or 1 MiB " +
      "were missed; read the session, or get_entries `since`. missing: that session is not open here",
  );

function base() {
  return { sessionId: place.sessionId, leafId: place.leafId, head: HEAD };
}

export function makeResumeCursor(session: Session): z.input<typeof cursorResult> {
  return { sessionId: session.id, leafId: session.leafId, lastEntryId: lastEntryOf(session) };
}

/** Returns the events that a host has missed since a position that any server reported to it. */
export function resumeFrom(
  { sessions }: Workspace,
  { sessionId, lastEntryId, leafId }: z.output<typeof resumeParams>,
): z.input<typeof resumedResult> {
  const session = sessions.find(({ id }) => id === sessionId);
  if (!session) return { type: "missing", sessionId };
  const { nodes } = session.log;
  const at = (id: string | null): number => (id === null ? ROOT : session.find(id));
  const last = lastEntryId === undefined ? undefined : at(lastEntryId);
  const leaf = leafId === undefined ? last : at(leafId);
  const isKnown = (position: number | undefined, id: unknown): position is number =>
    position !== undefined && (position >= 0 || id === null);
  const missed = isKnown(last, lastEntryId) ? visibleFrom(session, last < 0 ? 0 : last + 1) : undefined;
  if (!missed || !isKnown(leaf, leafId === undefined ? lastEntryId : leafId))
    return { type: "snapshot", ...makeResumeCursor(session), entryCount: session.tree.entryCount };
  const { own } = session.heads;
  let newLeaf = leaf;
  // An entry on another leaf than the host's moves that leaf.
  for (const position of missed)
    if (Math.max(nodes.parent(position), ROOT) === newLeaf && session.headOf(position) === own) newLeaf = position;
  const replay: z.input<typeof resumedResult> & { type: "replay" } = { type: "replay", events: [] };
  const newLeafId = session.idOrNull(newLeaf);
  if (missed.length > 0)
    replay.events.push({
      event: "session_append",
      sessionId,
      leafId: newLeafId,
      entryIds: missed.map((position) => nodes.id(position)),
      origin: "foreign",
      entries: Raw.array(() => session.log.readMany(missed, true)),
    });
  if (newLeafId !== session.leafId)
    replay.events.push({
      event: "session_tree",
      sessionId,
      leafId: session.leafId,
      newLeafId: session.leafId,
      oldLeafId: newLeafId,
      ...(own === null ? {} : { head: own }),
    });
  return replay;
}

/** Returns the entries from a position on; undefined when they are too many, or cannot be read now. */
function visibleFrom({ log, tree }: Session, first: number): number[] | undefined {
  const { nodes } = log;
  if (nodes.count - first > MOST_ENTRIES) return undefined;
  const found: number[] = [];
  let bytes = 0;
  for (let position = first; position < nodes.count; position++) {
    if (nodes.isMarker(position) || !tree.isVisible(position)) continue;
    found.push(position);
    try {
      bytes += log.read(position).length;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return undefined;
    }
  }
  return bytes > MOST_BYTES ? undefined : found;
}

function lastEntryOf({ log: { nodes } }: Session): string | null {
  for (let position = nodes.count - 1; position >= 0; position--)
    if (!nodes.isMarker(position)) return nodes.id(position);
  return null;
}
