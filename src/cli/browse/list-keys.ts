/** The keys of the list. */

import type { Key } from "../terminal/keys.ts";
import { count, formatSize, quoteTitle } from "../terminal/text.ts";
import {
  beginTyping,
  getSelectedRow,
  isAwaited,
  markSession,
  moveInList,
  moveToNextHit,
  requery,
  typeFilter,
  unmarkAll,
} from "./list.ts";
import {
  addEffect,
  askBefore,
  type BrowseChange,
  type BrowsedSession,
  type BrowseState,
  change,
  editLine,
  isDeleted,
  type LineChange,
  type Shelf,
  SORTS,
  type Step,
  showNotice,
  toStep,
} from "./state.ts";

/** The effect of a key on the selected session. */
type OnSession = (state: BrowseState, session: BrowsedSession) => Step;

export function handleListKey(state: BrowseState, key: Key): Step | undefined {
  const { list } = state;
  if (isAwaited(state) && isOnRows(state, key)) return toStep({ ...state, waiting: [key] });
  if (list.isTyping) {
    const typed = key.name === "escape" || key.name !== "tab" ? typeFilter(state, key) : undefined;
    if (typed) return typed;
  }
  const session = getSelectedRow(state)?.session;
  const own = list.isTyping ? undefined : ON_LIST[key.text ?? ""];
  if (own) return own(state);
  const onSession = ON_SESSION[list.isTyping ? (key.name ?? "") : (key.name ?? key.text ?? "")];
  if (onSession) return session ? onSession(state, session) : toStep(state);
  if (key.name === "tab") return flipScope(state);
  if (key.name === "escape") return goBack(state);
  return moveInList(state, key);
}

/** Takes back what the list was narrowed by, then the marks, then leaves the archive or the trash. */
function goBack(state: BrowseState): Step {
  const { query, marked } = state.list;
  if (query.words !== "") return requery(state, { words: "" });
  return marked.size > 0 ? unmarkAll(state) : leaveShelf(state);
}

/** Returns true if a key acts on the rows, and not on the request for them. */
function isOnRows({ list: { isTyping, query } }: BrowseState, key: Key): boolean {
  if (key.name === "escape" || key.name === "tab") return false;
  return isTyping ? editLine(query.words, key) === undefined : ON_LIST[key.text ?? ""] === undefined;
}

const ON_LIST: Readonly<Record<string, (state: BrowseState) => Step>> = {
  "/": beginTyping,
  n: (state) => moveToNextHit(state, 1),
  N: (state) => moveToNextHit(state, -1),
  s: (state) => nextSort(state),
  m: (state) => requery(state, { isNamed: !state.list.query.isNamed }),
  O: (state) => requery(state, { agents: state.list.query.agents ? undefined : "all" }),
  A: (state) => toShelf(state, "archive"),
  D: (state) => toShelf(state, "trash"),
};

const ON_SESSION: Readonly<Record<string, OnSession>> = {
  enter: (state, session) => {
    if (isDeleted(session)) return showNotice(state, RESTORE_FIRST);
    return session.agent ? showNotice(state, FORK_FIRST) : addEffect(state, { do: "end", session });
  },
  t: (state, session) => addEffect({ ...state, isBusy: true }, { do: "open", session }),
  right: (state, session) => addEffect({ ...state, isBusy: true }, { do: "open", session }),
  r: (state, session) =>
    isDeleted(session)
      ? change(state, { change: "restore", session })
      : askLine(state, "Name: ", session.name ?? "", { change: "rename", session }),
  l: askForLeafLabel,
  " ": unlessTrashed((state, session) => (session.agent ? showNotice(state, FORK_FIRST) : markSession(state, session))),
  a: archive,
  d: askToDelete,
  "ctrl+d": askToDelete,
  delete: askToDelete,
  f: unlessTrashed((state, session) => change(state, { change: "fork", session })),
  e: unlessTrashed((state, session) =>
    askLine(state, "Export to file: ", `${fileStem(session)}.md`, { change: "export", session }),
  ),
  y: (state, { sessionId }) => copied(state, sessionId),
  Y: (state, { itemPath, sessionPath }) => copied(state, itemPath ?? sessionPath),
};

const FORK_FIRST = "It is another agent's session: f forks a copy, resume <id> names its command.";
const RESTORE_FIRST = "This session is in the trash. Press r to restore it.";

function unlessTrashed(then: OnSession): OnSession {
  return (state, session) => (isDeleted(session) ? showNotice(state, RESTORE_FIRST) : then(state, session));
}

function askLine(state: BrowseState, label: string, text: string, wanted: LineChange): Step {
  return askBefore(state, { ask: "line", label, text, wanted });
}

function askForLeafLabel(state: BrowseState, session: BrowsedSession): Step {
  if (isDeleted(session)) return showNotice(state, RESTORE_FIRST);
  const { place, shown } = state.preview;
  const leafId = place?.sessionPath === session.sessionPath ? shown?.leafId : undefined;
  if (typeof leafId !== "string")
    return showNotice(state, "Press p to show the last entry, then l to label it. In the tree, l labels any entry.");
  return askLine(state, "Label of the last entry: ", "", { change: "label", session, entryId: leafId });
}

/** Titles in a question about several sessions, and the columns of each. */
const MOST_NAMED = 5;
const TITLE = 24;

interface Targets {
  readonly session: BrowsedSession;
  readonly others?: readonly BrowsedSession[];
}

/** Returns the sessions that a change is about: the marked ones, else the selected one. */
function toTargets({ list: { marked } }: BrowseState, selected: BrowsedSession): Targets {
  const [session = selected, ...others] = marked.values();
  return others.length > 0 ? { session, others } : { session };
}

function archive(state: BrowseState, selected: BrowsedSession): Step {
  if (isDeleted(selected)) return showNotice(state, RESTORE_FIRST);
  const isArchive = state.list.query.shelf === "archive";
  const targets = toTargets(state, selected);
  const wanted = { change: isArchive ? "unarchive" : "archive", ...targets } as const;
  if (state.list.marked.size === 0) return change(state, wanted);
  return askBefore(state, {
    ask: "yes",
    question: questionAbout(isArchive ? "Bring back" : "Archive", targets),
    wanted,
  });
}

function askToDelete(state: BrowseState, selected: BrowsedSession): Step {
  if (isDeleted(selected)) return showNotice(state, "This session is deleted already. Press r to restore it.");
  const targets = toTargets(state, selected);
  const wanted = { change: "delete", ...targets } as const;
  return askBefore(state, { ask: "yes", question: questionAbout("Delete", targets), wanted });
}

/** Returns a question with the names or first messages of the sessions. */
function questionAbout(verb: string, { session, others }: Targets): string {
  if (others !== undefined) {
    const titles = [session, ...others].map((one) => quoteTitle(one, TITLE, one.sessionId));
    const more = titles.length > MOST_NAMED ? ` and ${titles.length - MOST_NAMED} more` : "";
    return `${verb} ${titles.length} sessions: ${titles.slice(0, MOST_NAMED).join(", ")}${more}?`;
  }
  const { messageCount, sizeBytes = 0, sessionId } = session;
  const facts =
    messageCount === undefined ? "" : `, ${count(messageCount, "message", "messages")}, ${formatSize(sizeBytes)}`;
  return `${verb} ${quoteTitle(session, 40, sessionId)}${facts}?`;
}

function copied(state: BrowseState, text: string): Step {
  return addEffect({ ...state, notice: `Copied: ${text}` }, { do: "copy", text });
}

/** Returns the beginning of a file's name for a session. */
function fileStem({ name, firstMessage, sessionId }: BrowsedSession): string {
  const words =
    String(name ?? firstMessage ?? "")
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? [];
  return words.slice(0, 6).join("-").slice(0, 40) || String(sessionId).slice(0, 8);
}

function flipScope(state: BrowseState): Step {
  const cwd = state.list.query.cwd === undefined ? state.cwd : undefined;
  return requery(state, { cwd });
}

function toShelf(state: BrowseState, shelf: Shelf): Step {
  return requery(state, { shelf: state.list.query.shelf === shelf ? "sessions" : shelf, words: "" });
}

function leaveShelf(state: BrowseState): Step {
  return requery(state, { shelf: "sessions" });
}

const SORT_NAMES: Readonly<Record<(typeof SORTS)[number], string>> = {
  modified: "last used first",
  created: "newest first",
  size: "largest first",
  cost: "dearest first",
};

export function getSortName(sort: (typeof SORTS)[number]): string {
  return SORT_NAMES[sort];
}

function nextSort(state: BrowseState): Step {
  const sort = SORTS[(SORTS.indexOf(state.list.query.sort) + 1) % SORTS.length];
  return requery({ ...state, notice: `Sorted: ${SORT_NAMES[sort]}.` }, { sort });
}

/** Returns the change that a typed line asks for; undefined when it asks for none. */
export function completeChange(wanted: LineChange, line: string): BrowseChange | undefined {
  const text = line.trim();
  if (wanted.change === "label") return { ...wanted, label: text };
  if (text === "") return undefined;
  return wanted.change === "rename" ? { ...wanted, name: text } : { ...wanted, file: text };
}
