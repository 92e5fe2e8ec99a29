/**
 * The state of `browse`, the happenings that change it, and the effects that it asks for, whose outcome is a later
 * happening. All of it is plain values, so that keys go in and screens come out without a terminal and a server.
 */

import type { FlatNode } from "../entries.ts";
import type { Key } from "../terminal/keys.ts";
import type { ResultOf } from "../verb.ts";
import type { ListedSession } from "../verbs/list.ts";
import type { Branches, Filter } from "./branches.ts";

/** The kinds of sessions that the list shows. */
export type Shelf = "sessions" | "archive" | "trash";

export const SORTS = ["modified", "created", "size", "cost"] as const;
export type Sort = (typeof SORTS)[number];

/** A request for the list, without the place in it. */
export interface ListQuery {
  readonly shelf: Shelf;
  /** Only sessions of this directory. */
  readonly cwd: string | undefined;
  readonly words: string;
  readonly sort: Sort;
  readonly isNamed: boolean;
  /** "all" to include sessions of other agents. */
  readonly agents?: "all";
}

/** A session of the list: listed, or known by a hit alone, or deleted; then `itemPath` is its path in the trash, or null. */
export type BrowsedSession = Pick<ListedSession, "sessionPath" | "sessionId" | "name" | "firstMessage" | "modified"> &
  Partial<ListedSession> & { readonly itemPath?: string | null };

export function isDeleted({ itemPath }: BrowsedSession): boolean {
  return itemPath !== undefined;
}

/** A place in a session where something was said. */
export type BrowsedHit = ResultOf<"search_sessions">["hits"][number];

/** A line of the list. */
export interface ListRow {
  readonly session: BrowsedSession;
  /** Sessions that it was forked from and that stand above it. */
  readonly depth: number;
  /** Places in it where something was said that fits the filter, the best first. */
  readonly hits: readonly BrowsedHit[];
}

export interface ListState {
  readonly query: ListQuery;
  readonly isTyping: boolean;
  /** Sessions in the order of the list, as far as they have been loaded. */
  readonly sessions: readonly BrowsedSession[];
  readonly total: number;
  /** The cursor of the rest of the list; undefined when all of it has been loaded. */
  readonly cursor: string | undefined;
  /** The list request that is under way. */
  readonly asked:
    | {
        readonly query: ListQuery;
        readonly cursor: string | undefined;
        readonly isQuick: boolean;
        /** True if the first part of it is on the screen already. */
        readonly isBegun: boolean;
      }
    | undefined;
  /** True if the end of the list is wanted, and has not been loaded yet. */
  readonly toEnd: boolean;
  /** The last list without words, which knows sessions that only their content makes fit. */
  readonly whole: readonly BrowsedSession[];
  /** Hits for some words; they count only while those are the filter. */
  readonly found: { readonly words: string; readonly hits: readonly BrowsedHit[] } | undefined;
  readonly rows: readonly ListRow[];
  readonly selected: number;
  /** Index of the first row on the screen. */
  readonly top: number;
  /** Path of the session to select when the list comes. */
  readonly wanted: string | undefined;
  /** The sessions that the person marked to be changed together, by their paths. */
  readonly marked: ReadonlyMap<string, BrowsedSession>;
}

/** Facts that are learned of a session by looking at it. */
export interface Facts {
  readonly lockedBy?: { readonly client: string; readonly pid: number };
  /** True if that process shares the session. */
  readonly canJoin?: boolean;
  readonly readOnly?: string;
  readonly damageCount: number;
  readonly store?: string;
}

export interface PreviewState {
  /** True if the person wants it; undefined: shown if it fits. */
  readonly isWanted: boolean | undefined;
  /** The place that it shows, or is going to. */
  readonly place: PreviewPlace | undefined;
  /** The number of the latest request; replies to earlier ones are outdated. */
  readonly ticket: number;
  readonly shown: ResultOf<"preview_session"> | undefined;
  /** A sentence in its place. */
  readonly failed: string | undefined;
  /** Lines that the reader has moved it by. */
  readonly scroll: number;
  /** Index of the shown hit among those of the session. */
  readonly hit: number;
}

export interface PreviewPlace {
  readonly sessionPath: string;
  readonly entryId: string | undefined;
}

export interface TreeState {
  readonly session: BrowsedSession;
  readonly branches: Branches;
  readonly leafId: string | null;
  readonly filter: Filter;
  readonly selected: number;
  readonly top: number;
  /** Words that are looked for in it. */
  readonly words: string;
  readonly isTyping: boolean;
}

/** A question on the last line, which only its answer ends. */
export type Prompt =
  | { readonly ask: "yes"; readonly question: string; readonly wanted: BrowseChange }
  | {
      readonly ask: "line";
      readonly label: string;
      readonly text: string;
      /** Makes the change of the line that was typed. */
      readonly wanted: LineChange;
    };

export type LineChange =
  | { readonly change: "rename"; readonly session: BrowsedSession }
  | { readonly change: "label"; readonly session: BrowsedSession; readonly entryId: string }
  | { readonly change: "export"; readonly session: BrowsedSession };

/** Something that is done to a session, or to the last thing that was done. */
export type BrowseChange =
  | { readonly change: "rename"; readonly session: BrowsedSession; readonly name: string }
  | { readonly change: "label"; readonly session: BrowsedSession; readonly entryId: string; readonly label: string }
  | { readonly change: "export"; readonly session: BrowsedSession; readonly file: string }
  | {
      readonly change: "archive" | "unarchive" | "delete";
      readonly session: BrowsedSession;
      /** Further sessions, which are changed by the same operation. */
      readonly others?: readonly BrowsedSession[];
    }
  | { readonly change: "restore"; readonly session: BrowsedSession }
  | {
      readonly change: "fork";
      readonly session: BrowsedSession;
      /** The entry that the copy ends with, or before; the leaf by default. */
      readonly entryId?: string;
      readonly position?: "at" | "before";
    }
  | {
      readonly change: "move";
      readonly session: BrowsedSession;
      readonly entryId: string;
      readonly position: "at" | "before";
      readonly leafId: string | null;
    }
  | { readonly change: "undo"; readonly operationId?: string }
  | { readonly change: "redo" };

export interface BrowseState {
  readonly rows: number;
  readonly columns: number;
  /** The working directory, which the list begins with. */
  readonly cwd: string;
  readonly list: ListState;
  readonly preview: PreviewState;
  readonly tree: TreeState | undefined;
  readonly facts: ReadonlyMap<string, Facts>;
  readonly prompt: Prompt | undefined;
  /** A question about a session that another process had when it was last looked at, until that is known again. */
  readonly held: Prompt | undefined;
  /** Keys that were pressed while the list on the screen was not yet the one that was asked for. */
  readonly waiting: readonly Key[];
  /** True while something other than the list is under way; until it is over, the only possible action is to leave. */
  readonly isBusy: boolean;
  /** The first line of the help on the screen; undefined while it is not shown. */
  readonly help: number | undefined;
  /** A sentence for the last line. */
  readonly notice: string;
  /** The text of a message that the conversation was taken back to before, for the one who asks it anew. */
  readonly text: string | undefined;
}

export type BrowseEvent =
  | { readonly what: "key"; readonly key: Key }
  | { readonly what: "resized"; readonly rows: number; readonly columns: number }
  | {
      readonly what: "listed";
      readonly sessions: readonly BrowsedSession[];
      readonly total: number;
      readonly cursor: string | undefined;
    }
  | {
      readonly what: "found";
      readonly words: string;
      readonly hits: readonly BrowsedHit[];
      /** Cursor of these hits; undefined for the first. */
      readonly from?: string;
      /** Cursor of the next hits. */
      readonly cursor?: string;
    }
  | { readonly what: "unfound"; readonly message: string }
  | { readonly what: "previewed"; readonly ticket: number; readonly shown: ResultOf<"preview_session"> }
  | { readonly what: "unpreviewed"; readonly ticket: number; readonly message: string; readonly isDamaged: boolean }
  | { readonly what: "looked"; readonly sessionPath: string; readonly facts: Facts }
  | {
      readonly what: "opened";
      readonly session: BrowsedSession;
      readonly nodes: FlatNode[];
      readonly leafId: string | null;
    }
  | { readonly what: "done"; readonly outcome: ChangeOutcome }
  | { readonly what: "failed"; readonly isList: boolean; readonly message: string };

/** The outcome of a change. */
export interface ChangeOutcome {
  readonly change: BrowseChange;
  readonly notice: string;
  /** The leaf, where it is known. */
  readonly leafId?: string | null;
  /** Text to hand back. */
  readonly text?: string;
  /** Path of a session that was made. */
  readonly made?: string;
  /** Paths of the sessions that are somewhere else now; by default, that of the change. */
  readonly moved?: readonly string[];
  /** Asked before anything is done, because the change would be one that was not made here. */
  readonly question?: Prompt;
  /** The operation that was taken back or done again. */
  readonly undone?: { readonly kind: string; readonly sessionPath: string };
}

export type BrowseEffect =
  | {
      readonly do: "list";
      readonly query: ListQuery;
      readonly cursor: string | undefined;
      readonly limit: number;
      /** True if a part of it is enough, because it is wanted at once. */
      readonly isQuick: boolean;
    }
  | ({ readonly do: "search"; readonly cursor?: string } & Pick<ListQuery, "words" | "cwd" | "agents">)
  | { readonly do: "preview"; readonly place: PreviewPlace; readonly ticket: number }
  | { readonly do: "look"; readonly sessionPath: string }
  | { readonly do: "open"; readonly session: BrowsedSession }
  | { readonly do: "change"; readonly change: BrowseChange }
  | { readonly do: "copy"; readonly text: string }
  | { readonly do: "end"; readonly session: BrowsedSession | null };

export interface Step {
  readonly state: BrowseState;
  readonly effects: readonly BrowseEffect[];
}

export function toStep(state: BrowseState): Step {
  return { state, effects: [] };
}

export function addEffect(state: BrowseState, ...effects: BrowseEffect[]): Step {
  return { state, effects };
}

/** Returns a step with the effects of an earlier one before its own. */
export function joinSteps({ effects }: Step, { state, effects: more }: Step): Step {
  return { state, effects: [...effects, ...more] };
}

export function end(state: BrowseState): Step {
  return addEffect(state, { do: "end", session: null });
}

export function showNotice(state: BrowseState, notice: string): Step {
  return toStep({ ...state, notice });
}

/** Returns the path of the session that a question would change; undefined when it changes none, or several. */
export function getChangedSession({ wanted }: Prompt): string | undefined {
  if ("others" in wanted && wanted.others?.length) return undefined;
  return "session" in wanted && wanted.change !== "export" ? wanted.session.sessionPath : undefined;
}

/** Changes that the process that holds and shares a session makes for others. */
const SHARED: ReadonlySet<BrowseChange["change"]> = new Set(["rename", "label", "move"]);

/** Returns true if a change would be refused, because another process holds its session. */
export function isRefused({ wanted }: Prompt, { lockedBy, canJoin }: Facts): boolean {
  return lockedBy !== undefined && !(canJoin && SHARED.has(wanted.change));
}

/**
 * Asks, and looks whether another process writes to the session, which would refuse the change. Where one did, that is
 * known before anything is asked.
 */
export function askBefore(state: BrowseState, prompt: Prompt): Step {
  const sessionPath = getChangedSession(prompt);
  if (sessionPath === undefined) return toStep({ ...state, prompt });
  const facts = state.facts.get(sessionPath);
  const isHeld = facts !== undefined && isRefused(prompt, facts);
  const next = isHeld ? { ...state, held: prompt, isBusy: true } : { ...state, prompt };
  return addEffect(next, { do: "look", sessionPath });
}

/** Begins a change; until it is done, other keys do nothing. */
export function change(state: BrowseState, what: BrowseChange): Step {
  return addEffect({ ...state, isBusy: true, prompt: undefined }, { do: "change", change: what });
}

/** Returns the new position of a selection; undefined for keys that do not move it. */
export function moveSelection(from: number, length: number, height: number, { name, text }: Key): number | undefined {
  const within = (to: number): number => Math.max(0, Math.min(length - 1, to));
  if (name === "up" || text === "k") return within(from - 1);
  if (name === "down" || text === "j") return within(from + 1);
  if (name === "pageUp") return within(from - height);
  if (name === "pageDown") return within(from + height);
  if (name === "home" || text === "g") return 0;
  if (name === "end" || text === "G") return within(length - 1);
  return undefined;
}

/** Returns the first line of a screen of `height` lines that shows `selected`, with as few empty lines as possible. */
export function scrollToSelection(top: number, selected: number, length: number, height: number): number {
  const least = Math.max(0, Math.min(top, length - height));
  return Math.max(selected - height + 1, Math.min(least, selected));
}

/** Returns a line that a key was typed into, without its end; undefined for keys that do not edit it. */
export function editLine(line: string, { name, text }: Key): string | undefined {
  if (text !== undefined) return line + text;
  if (name === "backspace") return Array.from(line).slice(0, -1).join("");
  if (name === "ctrl+u") return "";
  if (name === "ctrl+w") return line.replace(/\S+\s*$/u, "");
  return undefined;
}
