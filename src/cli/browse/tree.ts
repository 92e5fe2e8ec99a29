/** The tree of a session: its selection, folds, filter and search, and the position for continuing the conversation. */

import type { FlatNode } from "../entries.ts";
import type { Key } from "../terminal/keys.ts";
import { cutTo, escapeLine } from "../terminal/text.ts";
import { Branches, FILTERS, FOLDED, type Folds } from "./branches.ts";
import { computeLayout } from "./layout.ts";
import { previewSelected } from "./list.ts";
import { requestPreview } from "./lookups.ts";
import {
  askBefore,
  type BrowsedSession,
  type BrowseEvent,
  type BrowseState,
  type ChangeOutcome,
  change,
  editLine,
  isDeleted,
  joinSteps,
  moveSelection,
  type Step,
  scrollToSelection,
  showNotice,
  type TreeState,
  toStep,
} from "./state.ts";
import { getEntryWords, hasWords } from "./tree-rows.ts";

/** Least rows of a tree whose lines of entries are folded when it is opened. */
const FOLD_FROM = 60;

export function showOpenedTree(state: BrowseState, { session, nodes, leafId }: BrowseEvent & { what: "opened" }): Step {
  const whole = new Branches(nodes, leafId);
  const branches = whole.rows > FOLD_FROM ? whole.with({ folds: FOLDED }) : whole;
  const selected = Math.max(0, branches.leafRow);
  const top = selected - Math.floor(computeLayout(state).treeHeight / 2);
  const tree: TreeState = {
    session,
    branches,
    leafId,
    filter: "default",
    selected,
    top,
    words: "",
    isTyping: false,
  };
  return followedTree(withTree({ ...state, isBusy: false }, tree));
}

/** Returns the state with a tree, its selection within it and on the screen. */
function withTree(state: BrowseState, tree: TreeState): BrowseState {
  const { rows } = tree.branches;
  const selected = Math.max(0, Math.min(tree.selected, rows - 1));
  const top = scrollToSelection(tree.top, selected, rows, computeLayout(state).treeHeight);
  return { ...state, tree: { ...tree, selected, top } };
}

export function showTreeSelection(state: BrowseState): BrowseState {
  return state.tree ? withTree(state, state.tree) : state;
}

function nodeAt({ branches, selected }: TreeState): FlatNode | undefined {
  return branches.rows === 0 ? undefined : branches.node(selected);
}

/** Adds the request for the preview of the selected entry. */
function followedTree(state: BrowseState): Step {
  const { tree } = state;
  const node = tree && nodeAt(tree);
  return tree && node ? requestPreview(state, { sessionPath: pathOf(tree.session), entryId: node.id }) : toStep(state);
}

function pathOf({ itemPath, sessionPath }: BrowsedSession): string {
  return itemPath ?? sessionPath;
}

export function leaveTree(state: BrowseState): Step {
  return previewSelected({ ...state, tree: undefined });
}

/** Returns the state with other rows of the same tree, and the same entry selected in the same line of the screen. */
function regrown(state: BrowseState, tree: TreeState, branches: Branches): Step {
  const id = nodeAt(tree)?.id;
  const selected = id === undefined ? 0 : Math.max(0, branches.row(id));
  const top = tree.top + selected - tree.selected;
  return followedTree(withTree(state, { ...tree, branches, filter: branches.filter, selected, top }));
}

function selectRow(state: BrowseState, tree: TreeState, selected: number): Step {
  return followedTree(withTree(state, { ...tree, selected }));
}

/** Keys that act on the selected row, which a tree without rows has not. */
const FOLDING = new Set(["left", "right", "h", " ", "[", "]"]);

export function handleTreeKey(state: BrowseState, tree: TreeState, key: Key): Step | undefined {
  const { branches, selected } = tree;
  const { name, text } = key;
  if (tree.isTyping) return typeWords(state, tree, key);
  if (branches.rows === 0 && (FOLDING.has(name ?? "") || FOLDING.has(text ?? ""))) return toStep(state);
  if (text === "/") return toStep(withTree(state, { ...tree, isTyping: true, words: "" }));
  if (text === "n" || text === "N") return lookFor(state, tree, text === "n" ? 1 : -1);
  if (name === "left" || text === "h") return fold(state, tree);
  if (name === "right") return unfold(state, tree);
  if (text === " ")
    return branches.lineLength(selected) + branches.hiddenBehind(selected) > 0
      ? unfold(state, tree)
      : fold(state, tree);
  if (text === "z") return regrown(state, tree, branches.with({ folds: flipped(branches.folds) }));
  if (text === "[" || text === "]") return jump(state, tree, text === "]" ? 1 : -1);
  if (text === "=") return branches.leafRow < 0 ? toStep(state) : selectRow(state, tree, branches.leafRow);
  const filter =
    text === "f" ? FILTERS[(FILTERS.indexOf(tree.filter) + 1) % FILTERS.length] : FILTERS[Number(text) - 1];
  if (filter !== undefined) return regrown(state, tree, branches.with({ filter }));
  const to = moveSelection(selected, branches.rows, computeLayout(state).treeHeight, key);
  return to === undefined ? undefined : selectRow(state, tree, to);
}

function flipped({ isFolding }: Folds): Folds {
  return { isFolding: !isFolding, opened: new Set(), closed: new Set() };
}

/** Folds the line or branch of the selected row; where there is nothing to fold, goes to where its branch begins. */
function fold(state: BrowseState, tree: TreeState): Step {
  const { branches, selected } = tree;
  const { folds } = branches;
  const line = lineAround(branches, selected);
  if (line !== undefined) {
    const opened = new Set(folds.opened);
    opened.delete(line);
    return regrown(state, tree, branches.with({ folds: { ...folds, opened } }));
  }
  const head = branches.headOf(selected);
  if (head !== selected || !branches.isHead(head)) return selectRow(state, tree, head);
  if (branches.hiddenBehind(head) > 0) return toStep(state);
  const closed = new Set(folds.closed).add(branches.node(head).id);
  return regrown(state, tree, branches.with({ folds: { ...folds, closed } }));
}

/** Returns the first entry of the opened line around a row. */
function lineAround(branches: Branches, row: number): string | undefined {
  for (let at = row; at >= 0; at--) {
    const { id, role, label } = branches.node(at);
    if (branches.folds.opened.has(id)) return id;
    if (role === "user" || label !== undefined || branches.isHead(at) || branches.isPoint(at)) return undefined;
  }
  return undefined;
}

function unfold(state: BrowseState, tree: TreeState): Step {
  const { branches, selected } = tree;
  const { folds } = branches;
  const id = nodeAt(tree)?.id;
  if (id === undefined) return toStep(state);
  if (branches.hiddenBehind(selected) > 0) {
    const closed = new Set(folds.closed);
    closed.delete(id);
    return regrown(state, tree, branches.with({ folds: { ...folds, closed } }));
  }
  if (branches.lineLength(selected) === 0) return toStep(state);
  return regrown(state, tree, branches.with({ folds: { ...folds, opened: new Set(folds.opened).add(id) } }));
}

/** Goes to the next row that begins a branch or a fork of the conversation. */
function jump(state: BrowseState, tree: TreeState, step: 1 | -1): Step {
  const { branches, selected } = tree;
  for (let row = selected + step; row >= 0 && row < branches.rows; row += step)
    if (branches.isHead(row) || branches.isPoint(row)) return selectRow(state, tree, row);
  return showNotice(state, step > 0 ? "There is no branch further down." : "There is no branch further up.");
}

function typeWords(state: BrowseState, tree: TreeState, key: Key): Step {
  if (key.name === "escape") return toStep(withTree(state, { ...tree, isTyping: false, words: "" }));
  if (key.name === "enter") return lookFor(state, { ...tree, isTyping: false }, 1, true);
  const words = editLine(tree.words, key);
  return toStep(words === undefined ? state : withTree(state, { ...tree, words }));
}

/** Selects the next entry that has all the words, and opens the fold that hides it. */
function lookFor(state: BrowseState, tree: TreeState, step: 1 | -1, isFirst = false): Step {
  const words = tree.words.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0)
    return showNotice(withTree(state, tree), isFirst ? "" : "There is no search yet. Press / and type words.");
  const { branches, selected } = tree;
  const id = branches.find(selected, step, (node) => hasWords(node, words));
  if (id === undefined)
    return showNotice(
      withTree(state, tree),
      `No entry in this filter has ${escapeLine(tree.words)}. f changes the filter.`,
    );
  const shown = branches.revealing(id);
  return selectRow(state, { ...tree, branches: shown }, Math.max(0, shown.row(id)));
}

const RESTORE_FIRST = "It is in the trash: Esc, then r brings it back.";

/** Asks whether the conversation shall go on from the selected entry. */
export function askToMove(state: BrowseState, tree: TreeState): Step {
  const { branches, selected, session, leafId } = tree;
  const node = nodeAt(tree);
  if (!node) return toStep(state);
  if (isDeleted(session)) return showNotice(state, "This session is in the trash. Press Esc, then r to restore it.");
  if (branches.lineLength(selected) > 0) return unfold(state, tree);
  const position = getPosition(node);
  const isAnew = position === "before";
  if (!isAnew && node.id === leafId) return showNotice(state, "The conversation goes on from here already.");
  const words = cutTo(getEntryWords(node), 40);
  const question = isAnew
    ? `Go back to before "${words}", and take its text along?`
    : `Continue after "${words === "" ? escapeLine(node.type) : words}"?`;
  const wanted = { change: "move", session, entryId: node.id, position, leafId } as const;
  return askBefore(state, { ask: "yes", question, wanted });
}

/** Forks the session from the selected entry: from before what a user said, from after anything else. */
export function forkFrom(state: BrowseState, tree: TreeState): Step {
  const { branches, selected, session } = tree;
  const node = nodeAt(tree);
  if (!node) return toStep(state);
  if (isDeleted(session)) return showNotice(state, RESTORE_FIRST);
  if (branches.lineLength(selected) > 0) return unfold(state, tree);
  return change(state, { change: "fork", session, entryId: node.id, position: getPosition(node) });
}

/** Returns where a conversation goes on from an entry: before what a user said, so that it can be asked anew. */
function getPosition({ type, role }: FlatNode): "at" | "before" {
  return type === "message" && role === "user" ? "before" : "at";
}

export function askForLabel(state: BrowseState, tree: TreeState): Step {
  const node = nodeAt(tree);
  if (!node) return toStep(state);
  const { session } = tree;
  return askBefore(state, {
    ask: "line",
    label: "Label (empty clears it): ",
    text: node.label ?? "",
    wanted: { change: "label", session, entryId: node.id },
  });
}

/** Changes the tree as a change of its session did. */
export function updateTreeAfter(state: BrowseState, { change: done, leafId }: ChangeOutcome): Step {
  const { tree } = state;
  if (!tree) return toStep(state);
  let { branches } = tree;
  if (done.change === "label") branches = branches.labelled(done.entryId, done.label || undefined);
  if (leafId === undefined) return regrown(state, tree, branches);
  branches = branches.with({ leafId });
  const step = regrown(state, { ...tree, leafId }, branches);
  const { leafRow } = branches;
  return leafRow < 0 || !step.state.tree ? step : joinSteps(step, selectRow(step.state, step.state.tree, leafRow));
}
