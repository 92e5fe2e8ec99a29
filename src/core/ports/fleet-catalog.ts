/** The contract of a fleet's catalog: its sessions, as they are listed, found and summed without being fetched. */

import type { ListRequest, SearchRequest } from "./catalog.ts";
import type { FleetDescription, FleetSpending, FleetText } from "./fleet.ts";

/** A session of the fleet in a list. */
export interface FleetListed extends FleetDescription {
  readonly id: string;
  readonly messages: number;
  readonly modified: number | null;
  readonly isPlain: boolean;
  readonly entries: number;
  /** The length of a session file with these lines. */
  readonly sizeBytes: number;
  readonly archived: boolean;
  /** The cost of its own entries, if the list is sorted by it. */
  readonly cost?: number;
  /** The beginning of the id, of eight characters or more, that no other session of the fleet has. */
  readonly shortId: string;
  /** The session that it was forked from, if that is in the fleet. */
  readonly parent: { readonly id: string; readonly name: string | null } | null;
  /** The sort key. */
  readonly key: number | string;
}

/** A place in a list: that after the session with this key and id. */
export interface FleetCursor {
  readonly key: number | string;
  readonly id: string;
}

/** The place of a text among those that are found: the latest come first. */
export interface TextCursor {
  readonly time: number | null;
  readonly sessionId: string;
  readonly position: number;
  readonly kind: string;
  readonly nth: number;
}

/** The texts that are asked for. */
export interface TextQuestion extends Pick<SearchRequest, "cwd" | "since" | "until"> {
  /** Kinds of text, each with the role if only one is asked for. */
  readonly kinds: ReadonlyMap<string, string | undefined>;
  /** One word of each list must be there. */
  readonly words: readonly (readonly string[])[];
  /** Not all lists may have a word there. */
  readonly without?: readonly (readonly string[])[];
  /** Sessions that are left out. */
  readonly except: readonly string[];
  readonly after?: TextCursor;
  readonly limit: number;
}

/** A text that may be a hit: its words are there, and its line decides. */
export interface FoundCandidate extends TextCursor {
  readonly kind: FleetText["kind"];
  readonly role: string;
  readonly entryId: string;
  /** Empty if the line is too long to be fetched. */
  readonly line: Uint8Array;
  readonly session: FleetListed;
}

/** An entry that a session may have taken over. */
export interface TakenOver {
  readonly sessionId: string;
  readonly entryId: string;
  readonly kind: string;
  readonly nth: number;
  readonly time: number;
}

/** The usage of one session. */
export interface FleetSpent {
  readonly session: FleetListed;
  readonly spendings: readonly FleetSpending[];
}

/** A session that the fleet has, or has deleted. */
export interface FleetPresence {
  readonly messages: number;
  readonly isDeleted: boolean;
}

/** Every method throws storage_failed if the database cannot be asked. */
export interface FleetCatalog {
  /** Returns the sessions that fit, in their order, at most `most`, and the number of all that fit. */
  list(
    request: Omit<ListRequest, "cursor" | "agents">,
    after: FleetCursor | undefined,
    most: number | undefined,
  ): Promise<{ readonly sessions: readonly FleetListed[]; readonly total: number }>;
  /** Returns the presence of the sessions with these ids that exist or are deleted. */
  known(ids: readonly string[]): Promise<ReadonlyMap<string, FleetPresence>>;
  /** Returns the ids of at most `most` sessions that begin so. */
  idsBeginning(beginning: string, most: number): Promise<readonly string[]>;
  /** Returns the ids of at most `most` sessions that were begun at a time, in milliseconds. */
  idsBegunAt(moment: number, most: number): Promise<readonly string[]>;
  texts(question: TextQuestion): Promise<readonly FoundCandidate[]>;
  /** Returns the words that contain each part, unless these are too many. */
  wordsWith(parts: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>>;
  /** Returns the ids of a session's entries and of their parents, in their order. */
  heads(sessionId: string): Promise<readonly (readonly [id: string, parent: string | null])[]>;
  /** Returns the session that each entry was taken over from, over any number of forks; null: it was not. */
  origins(entries: readonly TakenOver[]): Promise<readonly (FleetListed | null)[]>;
  /** Returns the number of sessions with missing texts and spendings. */
  behind(): Promise<number>;
  /** Returns whether words were left out of some session besides these. */
  isMissingWords(except: readonly string[]): Promise<boolean>;
  spent(request: { readonly cwd?: string; readonly archived?: boolean }): Promise<readonly FleetSpent[]>;
  /** Returns forks, and the sessions that they were forked from. */
  relatives(): Promise<readonly FleetListed[]>;
}
