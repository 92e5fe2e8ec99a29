/** Checks that the entries which appended ones name exist (protocol, `append`). */

import type { Coming } from "../context/compaction.ts";
import { Failure } from "../failure.ts";
import type { Draft, Entry } from "../format/entry.ts";
import { toRole } from "../format/node-reader.ts";
import { ROOT } from "../tree/nodes.ts";
import { requireKept } from "./compaction-draft.ts";
import type { Session } from "./session.ts";

type NamedDraft = Pick<Draft, "type" | "id" | "parentId"> & Readonly<Record<string, unknown>>;

/** Throws entry_not_found or invalid_boundary if a draft names an entry that is not in the session or before it. */
export function requireReferences(session: Session, drafts: readonly NamedDraft[]): void {
  const sent: Sent = { session, drafts, before: new Map() };
  for (const [index, draft] of drafts.entries()) {
    if (draft.type === "label" || draft.type === "context_edit") requireTarget(sent, index);
    else if (draft.type === "compaction") requireBoundary(sent, index);
    if (draft.id !== undefined) sent.before.set(draft.id, index);
  }
}

interface Sent {
  readonly session: Session;
  readonly drafts: readonly NamedDraft[];
  readonly before: Map<string, number>;
}

function requireTarget({ session, drafts, before }: Sent, index: number): void {
  const targetId = String(drafts[index].targetId);
  if (session.find(targetId) >= 0 || before.has(targetId)) return;
  const sentence = `The target ${targetId} is not an entry of this session. get_entries and get_tree show the ids that exist.`;
  throw new Failure("entry_not_found", sentence, { entryId: targetId, path: `entries.${index}.targetId` });
}

function requireBoundary(sent: Sent, index: number): void {
  const { session, drafts, before } = sent;
  const { id, firstKeptEntryId } = drafts[index];
  // A compaction that names itself keeps nothing.
  if (firstKeptEntryId === id) return;
  const keptId = String(firstKeptEntryId);
  const { leaf, above } = leafFor(sent, index);
  const coming = above.map((at): Coming => {
    const { id, type, message } = drafts[at];
    const role = type === "message" ? toRole((message as { role?: unknown }).role) : "";
    return { id, role, entry: drafts[at] as Entry };
  });
  const among = above.indexOf(before.get(keptId) ?? -1);
  const first = among >= 0 ? session.log.nodes.count + among : session.find(keptId);
  requireKept(session, keptId, first, { leaf, coming, path: `entries.${index}.firstKeptEntryId` });
}

/** Returns the leaf that a draft continues, and the drafts between them, oldest first. */
function leafFor({ session, drafts, before }: Sent, index: number): { leaf: number; above: number[] } {
  const above: number[] = [];
  for (let at = index; ; ) {
    const { parentId } = drafts[at];
    const parent = parentId === undefined ? at - 1 : (before.get(parentId ?? "") ?? -1);
    // An id that occurs again further down is refused as a duplicate.
    if (parent < 0 || parent >= at) {
      const leaf = parentId === undefined ? session.tree.leaf : parentId === null ? ROOT : session.find(parentId);
      return { leaf, above: above.reverse() };
    }
    above.push(parent);
    at = parent;
  }
}
