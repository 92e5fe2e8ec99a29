/** Changes of the leaf, the name and the labels of a session: as operations, and taken back. */

import { type Draft, makeDraft } from "../format/entry.ts";
import type { IdChange, OperationKind, SessionChange } from "../ports/operations.ts";
import { KNOWN_TYPES, ROOT } from "../tree/nodes.ts";
import { quoteText, toConflictFailure } from "./history.ts";
import type { Session } from "./session.ts";

/** Characters of a name or label that a record has of it. */
const RECORDED = 200;
const NAME = KNOWN_TYPES.indexOf("session_info");

type LabelChange = NonNullable<SessionChange["labels"]>[number];

/** The state before entries that set the name or labels. */
interface Before {
  readonly leafId: string | null;
  /** True if the entries do nothing else. */
  readonly isAll: boolean;
  /** Without `target` it is the name: the entry that set it, its text, and the index of the new entry. */
  readonly settings: readonly {
    readonly setBy: string | null;
    readonly text: string | null;
    readonly target?: string;
    readonly index: number;
  }[];
}

/** Returns the state before entries that set the name or labels; undefined if none does. */
export function captureSettings(
  session: Session,
  entries: readonly { readonly type: string; readonly targetId?: unknown }[],
): Before | undefined {
  let isAll = true;
  const last = new Map<string | undefined, number>();
  for (const [index, { type, targetId }] of entries.entries())
    if (type === "session_info") last.set(undefined, index);
    else if (type === "label") last.set(String(targetId), index);
    else isAll = false;
  if (last.size === 0) return undefined;
  const settings = Array.from(last, ([target, index]) =>
    target === undefined ? { ...captureName(session), index } : { ...captureLabel(session, target), target, index },
  );
  return { leafId: session.leafId, isAll, settings };
}

function captureName(session: Session) {
  const { nodes } = session.log;
  const last = nodes.count === 0 ? -1 : nodes.columns().types.lastIndexOf(NAME, nodes.count - 1);
  return { setBy: session.idOrNull(last), text: session.name };
}

function labelAt(session: Session, target: string): string | null {
  return session.tree.labels.get(session.log.nodes.position(target))?.label ?? null;
}

/** Returns the part of a name or label by which its record knows it; null if it was cleared. */
function toRecordedText(text: string | null): string | null {
  return text?.slice(0, RECORDED) ?? null;
}

function captureLabel(session: Session, target: string) {
  const known = session.tree.labels.get(session.log.nodes.position(target));
  return { setBy: known ? session.log.nodes.id(known.setBy) : null, text: known?.label ?? null };
}

/** Records, as one operation, that new entries set the name, or cleared or set labels. */
export function noteSettings(session: Session, before: Before | undefined, entryIds: readonly string[]): void {
  if (!before) return;
  const { leafId, isAll, settings } = before;
  // Taking this back leaves the leaf where it is at a head, for every caller, and after entries of other kinds.
  const leaf: IdChange = [session.head === null && isAll ? leafId : session.leafId, session.leafId];
  const name = settings.find(({ target }) => target === undefined);
  const labels = settings.flatMap((one) => (one.target === undefined ? [] : [{ ...one, target: one.target }]));
  const setOf = ({ setBy, index }: Before["settings"][number]): IdChange => [setBy, entryIds[index]];
  const texts = [
    ...(name ? [sentence("Named the session", "name of the session", name.text, session.name)] : []),
    ...labels.map(({ target, text }) =>
      sentence(`Labelled ${target}`, `label of ${target}`, text, labelAt(session, target)),
    ),
  ];
  session.note({
    kind: labels.length === 0 ? "rename" : "label",
    text: texts.length === 1 ? texts[0] : `${texts[0]} And ${texts.length - 1} more.`,
    step: {
      do: "change",
      path: session.file ?? "",
      leaf,
      follows: true,
      ...(name ? { name: setOf(name), nameSet: toRecordedText(session.name) } : {}),
      ...(labels.length === 0
        ? {}
        : {
            labels: labels.map(({ target, ...label }) => {
              return { target, set: setOf({ ...label, target }), textSet: toRecordedText(labelAt(session, target)) };
            }),
          }),
    },
  });
}

/**
 * Records that the shared leaf was moved, and `before` if the entry there was labelled then. A move of a head is not
 * recorded, because only its own client may take it back; its label is recorded.
 */
export function noteMove(
  session: Session,
  kind: OperationKind & ("branch" | "merge" | "repair"),
  leafId: string | null,
  label?: { readonly before: Before; readonly entryIds: readonly string[] },
): void {
  const after = session.leafId;
  if (leafId === after) return;
  if (session.head !== null) {
    if (label) noteSettings(session, label.before, label.entryIds);
    return;
  }
  const labels = label?.before.settings.flatMap(({ target, setBy, index }) =>
    target === undefined
      ? []
      : [
          {
            target,
            set: [setBy, label.entryIds[index]] as IdChange,
            textSet: toRecordedText(labelAt(session, target)),
          },
        ],
  );
  const step: SessionChange = { do: "change", path: session.file ?? "", leaf: [leafId, after], labels };
  const texts = {
    branch: `Moved the leaf from ${placeOf(leafId)} to ${placeOf(after)}.`,
    merge: `Merged a branch at ${placeOf(leafId)}.`,
    repair: "Added error results for the tool calls that had none.",
  };
  session.note({ kind, text: texts[kind], step });
}

function placeOf(id: string | null): string {
  return id ?? "before the first entry";
}

function sentence(did: string, what: string, was: string | null, is: string | null): string {
  const before = was === null ? "" : `, which was ${quoteText(was)}`;
  return is === null ? `Cleared the ${what}${before}.` : `${did} ${quoteText(is)}${before}.`;
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
  const { leaf, follows, name, nameSet, labels } = change;
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
  if (name) drafts.push(nameDraft(session, name, nameSet));
  for (const label of labels ?? []) drafts.push(labelDraft(session, label));
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
    ...(name ? { name: [name[1], ids[0]] as const, nameSet: toRecordedText(session.name) } : {}),
    labels: labels?.map(({ target, set }, n) => {
      return { target, set: [set[1], ids[n + (name ? 1 : 0)]], textSet: toRecordedText(labelAt(session, target)) };
    }),
  };
}

/** Returns whether a text is not the one that an operation set, by its entry and, in newer records, by its beginning. */
function isOther(now: string | null, inEntry: string | null, recorded: string | null | undefined): boolean {
  return now !== inEntry || (recorded !== undefined && toRecordedText(now) !== recorded);
}

function nameDraft(session: Session, [before, after]: IdChange, nameSet: string | null | undefined): Draft {
  const now = session.name;
  if (isOther(now, textIn(session, after, "name")?.trim() || null, nameSet))
    throw toConflictFailure(`The name is ${now === null ? "not set" : quoteText(now)} now.`, { sessionName: now });
  return makeDraft("session_info", { name: textOr(session, before, "name") ?? "" });
}

function labelDraft(session: Session, { target, set: [before, after], textSet }: LabelChange): Draft {
  const { nodes } = session.log;
  const position = nodes.position(target);
  if (position < 0) throw toConflictFailure(`The entry ${target} is missing.`, { entryId: target });
  const now = session.tree.labels.get(position)?.label ?? null;
  if (isOther(now, textIn(session, after, "label"), textSet))
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
