/** The state machine of `browse`: a state and a happening make a state and effects, whose outcome is a later happening. */

import type { Key } from "../terminal/keys.ts";
import { plain } from "../terminal/page.ts";
import { formatHelpLines } from "./help.ts";
import {
  amendSession,
  askForFirst,
  askForList,
  clearHits,
  isAwaited,
  makeEmptyList,
  previewSelected,
  reload,
  removeSessions,
  requery,
  showHits,
  showListed,
  showListSelection,
} from "./list.ts";
import { completeChange, handleListKey } from "./list-keys.ts";
import { requestLookup, scrollPreview, showPreview, showPreviewFailure, storeFacts } from "./lookups.ts";
import {
  addEffect,
  type BrowseEvent,
  type BrowseState,
  type ChangeOutcome,
  change,
  editLine,
  end,
  joinSteps,
  type Prompt,
  type Step,
  showNotice,
  toStep,
} from "./state.ts";
import {
  askForLabel,
  askToMove,
  forkFrom,
  handleTreeKey,
  leaveTree,
  showOpenedTree,
  showTreeSelection,
  updateTreeAfter,
} from "./tree.ts";

/** Begins with the sessions of a directory; with words, with those of all directories that fit them. */
export function begin(rows: number, columns: number, cwd: string, words = ""): Step {
  const of = words === "" ? cwd : undefined;
  const list = makeEmptyList({ shelf: "sessions", cwd: of, words: "", sort: "modified", isNamed: false });
  const state: BrowseState = {
    rows,
    columns,
    cwd,
    list,
    preview: {
      isWanted: undefined,
      place: undefined,
      ticket: 0,
      shown: undefined,
      failed: undefined,
      scroll: 0,
      hit: 0,
    },
    tree: undefined,
    facts: new Map(),
    prompt: undefined,
    held: undefined,
    waiting: [],
    isBusy: false,
    help: undefined,
    notice: "",
    text: undefined,
  };
  return words === "" ? askForFirst(state) : requery(state, { words });
}

export function step(state: BrowseState, event: BrowseEvent): Step {
  const next = stepOf(state, event);
  return event.what === "key" ? next : withWaiting(next);
}

/** Adds what the waiting keys do, once the list that they are meant for is there. */
function withWaiting(step: Step): Step {
  const { waiting } = step.state;
  if (waiting.length === 0 || isAwaited(step.state)) return step;
  let next: Step = { ...step, state: { ...step.state, waiting: [] } };
  for (const key of waiting) {
    if (next.effects.some((effect) => effect.do === "end")) break;
    next = joinSteps(next, press(next.state, key));
  }
  return next;
}

function stepOf(state: BrowseState, event: BrowseEvent): Step {
  switch (event.what) {
    case "key":
      return press(state, event.key);
    case "resized":
      return requestLookup(refreshed({ ...state, rows: event.rows, columns: event.columns }));
    case "listed":
      return showListed(state, event);
    case "found":
      return showHits(state, event);
    case "unfound":
      return showNotice(clearHits({ ...state, waiting: [] }), event.message);
    case "previewed":
      return showPreview(state, event);
    case "unpreviewed":
      return showPreviewFailure(state, event);
    case "looked":
      return storeFacts(state, event);
    case "opened":
      return showOpenedTree(state, event);
    case "done":
      return done({ ...state, isBusy: false }, event.outcome);
    case "failed":
      return failed(state, event);
  }
}

/** Fits list, tree and preview to a screen that became another. */
function refreshed(state: BrowseState): Step {
  const fitting = showTreeSelection(showListSelection(state));
  return fitting.tree ? toStep(fitting) : previewSelected(fitting);
}

function failed(state: BrowseState, { isList, message }: BrowseEvent & { what: "failed" }): Step {
  if (!isList) return showNotice({ ...state, isBusy: false }, message);
  const { list } = state;
  const next: BrowseState = {
    ...state,
    notice: message,
    waiting: [],
    list: { ...list, asked: undefined, toEnd: false },
  };
  // The request changed while the one that failed was under way.
  if (list.asked && list.asked.query !== list.query) return askForList(next);
  return list.query.shelf !== "sessions" && list.rows.length === 0
    ? requery(next, { shelf: "sessions" })
    : toStep(next);
}

/** Applies the outcome of a change. */
function done(before: BrowseState, outcome: ChangeOutcome): Step {
  if (outcome.question) return toStep({ ...before, prompt: outcome.question });
  const state: BrowseState = { ...before, notice: outcome.notice, text: outcome.text ?? before.text };
  const copying = outcome.text === undefined ? toStep(state) : addEffect(state, { do: "copy", text: outcome.text });
  return joinSteps(copying, treeStep(listStep(copying.state, outcome), outcome));
}

function treeStep(step: Step, outcome: ChangeOutcome): Step {
  const { state } = step;
  const { tree } = state;
  // An undo may change anything in the tree.
  if (tree && outcome.undone)
    return joinSteps(step, addEffect({ ...state, isBusy: true }, { do: "open", session: tree.session }));
  return joinSteps(step, updateTreeAfter(state, outcome));
}

function listStep(state: BrowseState, { change, made, moved }: ChangeOutcome): Step {
  switch (change.change) {
    case "rename":
      return toStep(amendSession(state, change.session.sessionPath, { name: change.name }));
    case "archive":
    case "unarchive":
    case "delete":
    case "restore":
      return removeSessions(state, moved ?? [change.session.sessionPath]);
    case "fork":
      return reload(state, made);
    case "undo":
    case "redo":
      return reload(state);
    default:
      return toStep(state);
  }
}

// --- keys --------------------------------------------------------------------------------------------------------

function press(before: BrowseState, key: Key): Step {
  const state = before.notice === "" ? before : { ...before, notice: "" };
  const { name, text } = key;
  if (name === "ctrl+c") return end(state);
  if (state.isBusy) return text === "q" ? end(state) : toStep(state);
  if (state.prompt) return answer(state, state.prompt, key);
  if (state.help !== undefined) return inHelp(state, state.help, key);
  if (state.waiting.length > 0) return toStep({ ...state, waiting: name === "escape" ? [] : [...state.waiting, key] });
  const isTyping = state.tree ? state.tree.isTyping : state.list.isTyping;
  return (isTyping ? undefined : common(state, key)) ?? own(state, key) ?? toStep(state);
}

/** Keys that mean the same in the list and in the tree. */
function common(state: BrowseState, { name, text }: Key): Step | undefined {
  if (text === "q") return end(state);
  if (text === "?") return toStep({ ...state, help: 0 });
  if (text === "p") return flipPreview(state);
  if (text === "J" || text === "K") return scrollPreview(state, text === "J" ? 3 : -3);
  if (text === "u") return change(state, { change: "undo" });
  if (text === "U" || name === "ctrl+r") return change(state, { change: "redo" });
  return undefined;
}

function own(state: BrowseState, key: Key): Step | undefined {
  const { tree } = state;
  if (!tree) return handleListKey(state, key);
  if (!tree.isTyping) {
    if (key.name === "escape" || key.name === "tab") return leaveTree(state);
    if (key.name === "enter") return askToMove(state, tree);
    if (key.text === "l") return askForLabel(state, tree);
    if (key.text === "F") return forkFrom(state, tree);
  }
  return handleTreeKey(state, tree, key);
}

function flipPreview(state: BrowseState): Step {
  const { preview } = state;
  const isShown = refreshed(state).state.preview.isWanted ?? preview.place !== undefined;
  const next = { ...state, preview: { ...preview, isWanted: !isShown, place: undefined, shown: undefined } };
  return refreshed(next);
}

function answer(state: BrowseState, prompt: Prompt, key: Key): Step {
  const { name, text } = key;
  if (name === "escape") return showNotice({ ...state, prompt: undefined }, "Nothing was changed.");
  if (prompt.ask === "yes") {
    if (text === "y" || text === "Y") return change(state, prompt.wanted);
    return text === "n" || text === "N"
      ? showNotice({ ...state, prompt: undefined }, "Nothing was changed.")
      : toStep(state);
  }
  if (name === "enter") {
    const wanted = completeChange(prompt.wanted, prompt.text);
    return wanted ? change(state, wanted) : showNotice({ ...state, prompt: undefined }, "Nothing was changed.");
  }
  const line = editLine(prompt.text, key);
  return toStep(line === undefined ? state : { ...state, prompt: { ...prompt, text: line } });
}

function inHelp(state: BrowseState, top: number, { name, text }: Key): Step {
  if (text === "q" || text === "?" || name === "escape" || name === "enter")
    return toStep({ ...state, help: undefined });
  const { rows, columns } = state;
  const page = { width: columns, paint: plain, now: 0, home: "", isTerminal: true };
  const last = Math.max(0, formatHelpLines(page, state.tree !== undefined).length - (rows - 2));
  const by =
    name === "pageDown" || text === " "
      ? rows - 3
      : name === "pageUp"
        ? 3 - rows
        : name === "down" || text === "j"
          ? 1
          : name === "up" || text === "k"
            ? -1
            : 0;
  return toStep({ ...state, help: Math.max(0, Math.min(last, top + by)) });
}
