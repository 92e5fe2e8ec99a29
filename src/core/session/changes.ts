/** Changes of the leaf, the name and the labels of a session: as operations, and taken back. */

import { type Draft, makeDraft } from "../format/entry.ts";
import type { IdChange, OperationKind, SessionChange } from "../ports/operations.ts";
import { KNOWN_TYPES, ROOT } from "../tree/nodes.ts";
import { quoteText, toConflictFailure } from "./history.ts";
import type { Session } from "./session.ts";

const NAME = KNOWN_TYPES.indexOf("session_info");

/** A change in progress: the state before it. */
interface Before {
  readonly leafId: string | null;
  /** The entry that set the name, or the label of `target`. */
  readonly setBy: string | null;
  readonly text: string | null;
  readonly target?: string;
}

export function captureName(session: Session): Before {
  const { leafId, name: text } = session;
  const { nodes } = session.log;
  const last = nodes.count === 0 ? -1 : nodes.columns().types.lastIndexOf(NAME, nodes.count - 1);
  return { leafId, setBy: session.idOrNull(last), text };
}

/** Returns the state before a change of an entry's label. */
export function captureLabel(session: Session, target: string): Before {
  const known = session.tree.labels.get(session.log.nodes.position(target));
  const setBy = known ? session.log.nodes.id(known.setBy) : null;
  return { leafId: session.leafId, setBy, text: known?.label ?? null, target };
}

/** Records that an entry set the name, or cleared or set a label. */
export function noteSetting(session: Session, before: Before, entryId: string): void {
  const { target, leafId, setBy, text: was } = before;
  // Taking this back leaves the leaf of a head where it is, for every caller.
  const leaf: IdChange = [session.head === null ? leafId : session.leafId, session.leafId];
  const set: IdChange = [setBy, entryId];
  const change = { do: "change" as const, path: session.file ?? "", leaf, follows: true };
  if (target === undefined) {
    const text = sentence("Named the session", was, session.name);
    session.note({ kind: "rename", text, step: { ...change, name: set } });
  } else {
    const is = session.tree.labels.get(session.log.nodes.position(target))?.label ?? null;
    const cleared =
      was === null ? `Cleared the label of ${target}.` : `Cleared the label ${quoteText(was)} of ${target}.`;
    const text = is === null ? cleared : sentence(`Labelled ${target}`, was, is);
    session.note({ kind: "label", text, step: { ...change, labels: [{ target, set }] } });
  }
}

/**
 * Records that the shared leaf was moved, and `before` if the entry there was labelled then. A move of a head is not
 * recorded, because only its own client may take it back; its label is recorded.
 */
export function noteMove(
  session: Session,
  kind: OperationKind & ("branch" | "merge" | "repair"),
  leafId: string | null,
  label?: { readonly before: Before; readonly entryId: string },
): void {
  const after = session.leafId;
  if (leafId === after) return;
  if (session.head !== null) {
    if (label) noteSetting(session, label.before, label.entryId);
    return;
  }
  const labels = label?.before.target === undefined ? undefined : [labelOf(label.before.target, label)];
  const step: SessionChange = { do: "change", path: session.file ?? "", leaf: [leafId, after], labels };
  const texts = {
    branch: `Moved the leaf from ${placeOf(leafId)} to ${placeOf(after)}.`,
    merge: `Merged a branch at ${placeOf(leafId)}.`,
    repair: "Added error results for the tool calls that had none.",
  };
  session.note({ kind, text: texts[kind], step });
}

function labelOf(target: string, { before, entryId }: { readonly before: Before; readonly entryId: string }) {
  return { target, set: [before.setBy, entryId] as IdChange };
}

function placeOf(id: string | null): string {
  return id ?? "before the first entry";
}

function sentence(did: string, was: string | null, is: string | null): string {
  return `${did} ${quoteText(is ?? "")}${was === null ? "" : `, which was ${quoteText(was)}`}.`;
}

/** Returns the text that an entry set; null when it is missing or cleared it. */
function textIn(session: Session, id: string | null, member: "name" | "label"): string | null {
  const position = id === null ? -1 : session.log.nodes.position(id);
  const text = position < 0 ? undefined : session.entry(position)[member];
  return typeof text === "string" && text !== "" ? text : null;
}

// --- taking back -----------------------------------------------------------------------------------------------------

/** Returns whether a recorded change did not happen, because its commit failed or was cut off. */
export function isUnknownTo(session: Session, { leaf, follows, name, labels = [] }: SessionChange): boolean {
  const { nodes } = session.log;
  const set = [...(name ? [name] : []), ...labels.map((label) => label.set)].map(([, after]) => after);
  if (set.length > 0) return set.every((id) => id !== null && nodes.position(id) < 0);
  const [before, after] = leaf;
  // At a head nothing shows whether the shared leaf was moved.
  if (session.head !== null) return false;
  return !follows && session.leafId === before && before !== after;
}

/**
 * Takes a change back by entries that restore the name and labels, and by moving the leaf. Returns the change that this
 * is. `append` adds entries at the leaf and returns their ids. Throws ground_moved, having changed nothing.
 */
export function takeBackChange(
  session: Session,
  change: SessionChange,
  append: (drafts: readonly Draft[]) => readonly string[],
): SessionChange {
  const { leaf, follows, name, labels } = change;
  const current = session.leafId;
  const [before, after] = leaf;
  const { head } = session;
  if (!follows && head !== null)
    throw toConflictFailure(
      `It moved the shared leaf, and you are at the head ${head}. Undo it from the shared leaf.`,
      {
        head,
      },
    );
  if (!follows && current !== after)
    throw toConflictFailure(`The leaf is ${placeOf(current)} now.`, { leafId: current });
  const drafts: Draft[] = [];
  if (name) drafts.push(nameDraft(session, name));
  for (const { target, set } of labels ?? []) drafts.push(labelDraft(session, target, set));
  // A leaf that only followed its own entry goes back with it; a leaf that was moved on from there stays.
  const wanted = current === after && head === null ? before : current;
  const place = wanted === null ? ROOT : session.find(wanted);
  if (wanted !== null && place < 0) throw toConflictFailure(`The entry ${wanted} is missing.`, { entryId: wanted });
  const ids = drafts.length === 0 ? [] : append(drafts);
  if (session.leafId !== wanted) session.moveLeaf(place);
  return {
    do: "change",
    path: session.file ?? change.path,
    leaf: [current, wanted],
    follows,
    name: name && [name[1], ids[0]],
    labels: labels?.map(({ target, set }, n) => ({ target, set: [set[1], ids[n + (name ? 1 : 0)]] })),
  };
}

function nameDraft(session: Session, [before, after]: IdChange): Draft {
  const now = session.name;
  const set = textIn(session, after, "name")?.trim() || null;
  if (now !== set)
    throw toConflictFailure(`The name is ${now === null ? "not set" : quoteText(now)} now.`, { name: now });
  return makeDraft("session_info", { name: textOr(session, before, "name") ?? "" });
}

function labelDraft(session: Session, target: string, [before, after]: IdChange): Draft {
  const { nodes } = session.log;
  const position = nodes.position(target);
  if (position < 0) throw toConflictFailure(`The entry ${target} is missing.`, { entryId: target });
  const now = session.tree.labels.get(position)?.label ?? null;
  if (now !== textIn(session, after, "label"))
    throw toConflictFailure(`The label of ${target} is ${now === null ? "not set" : quoteText(now)} now.`, {
      label: now,
    });
  return makeDraft("label", { targetId: target, label: textOr(session, before, "label") ?? undefined });
}

/** Returns the text that an entry set. Throws ground_moved when the entry is missing, so that the text is not known. */
function textOr(session: Session, id: string | null, member: "name" | "label"): string | null {
  if (id !== null && session.log.nodes.position(id) < 0)
    throw toConflictFailure(`The entry ${id}, which has the ${member} from before, is missing.`, { entryId: id });
  return textIn(session, id, member);
}
