/** The contract of the catalog: facts about sessions that are known without opening them. */

/** The name of our own sessions in lists of agents. */
export const OUR_AGENT = "pi";

/** A session file in a list. */
export interface Listed {
  readonly path: string;
  readonly id: string;
  readonly cwd: string | null;
  /** The last name in file order, as in Pi. */
  readonly name: string | null;
  /** As in the header. */
  readonly parentSession: string | null;
  /** Milliseconds since the epoch. */
  readonly created: number | null;
  /**
   * Time of the last message of a person or the model, or when the session was created if that is later, as a fork's
   * is; never the time when the file was written.
   */
  readonly modified: number | null;
  readonly messageCount: number;
  /** The beginning of the first message of a person. */
  readonly firstMessage: string | null;
  /** The labels of its entries, for searches by words; missing without any. */
  readonly labels?: readonly string[];
  readonly sizeBytes: number;
  /** True if the file has nothing but a header. */
  readonly headerOnly: boolean;
  readonly archived: boolean;
  readonly store: "jsonl" | "v2" | "foreign";
  /** The agent that wrote the file, if that is another one. */
  readonly agent?: string;
  /** The cost of its own entries, if its usage was counted since it changed, and has a price. */
  readonly cost?: number;
  /** True if a list saw damage. Lists look only at the beginnings of lines. */
  readonly isDamaged?: true;
  /** True if only the fleet has it: `path` is the future path of its copy. */
  readonly isRemote?: true;
}

/** A request that may be about the sessions of all machines. */
interface AboutFleet {
  /** True to list only sessions that are on this machine. */
  readonly here?: boolean;
}

/** A list that may lack sessions of other machines. */
interface PerhapsLimited {
  /** The reason; undefined if none are missing. */
  readonly limited?: string;
  /** Sessions that are not read in their present state, for want of time; missing for none. */
  readonly behind?: number;
}

export type Order = "modified" | "created" | "name" | "size" | "cost";

/** A session's place in a list: by a key, and among equal keys by another text. */
export interface Keyed {
  readonly key: number | string;
  readonly tie: string;
}

/** An order of lists. Larger keys come first, but names from A on, and of equal ones the later tie. */
export interface Ordering {
  /** The beginning of its cursors. */
  readonly mark: readonly string[];
  getKey(listed: Listed, order: Order): Keyed["key"];
  getTie(listed: Listed): string;
  compareTexts(a: string, b: string): number;
}

export interface ListRequest extends AboutFleet {
  readonly cwd?: string;
  /** Names of the agents whose sessions fit, `pi` for our own; by default only ours. */
  readonly agents?: readonly string[];
  readonly query?: string;
  readonly name?: string;
  readonly named?: boolean;
  readonly unnamed?: boolean;
  /** Only sessions that are no forks. */
  readonly top?: boolean;
  readonly parent?: string;
  /** Milliseconds. */
  readonly since?: number;
  /** Milliseconds; the session was not changed at this time or later. */
  readonly until?: number;
  readonly archived?: boolean;
  readonly headerOnly?: boolean;
  readonly sort?: Order;
  readonly cursor?: string;
  /** Number of sessions after the cursor that are needed; by default all. */
  readonly most?: number;
  /** Milliseconds of reading, after which the result is what is known; by default all is read. */
  readonly within?: number;
}

/** A list of sessions, with the facts that depend on all other sessions. */
/** A file at a place for sessions that has no readable session. */
export interface UnreadFile {
  readonly path: string;
  /** The agent whose place it is in; missing for Pi's. */
  readonly agent?: string;
  /** A sentence about its state, and the next step. */
  readonly text: string;
  /** True if its content is not of the kind that its name says. A newer or unknown format is no damage. */
  readonly isDamaged: boolean;
}

export interface Listing extends PerhapsLimited {
  /** The files at places for sessions without a listed session. */
  readonly notRead?: readonly UnreadFile[];
  /** The sessions after the cursor that fit; one or more beyond `most` if there are any. */
  readonly found: readonly Listed[];
  /** The number of all that fit. */
  readonly total: number;
  /** The sum of their sizes; missing if a source does not know it. */
  readonly totalBytes?: number;
  /** Returns the original of a fork, if that is known. */
  parentOf(listed: Listed): Pick<Listed, "id" | "name"> | undefined;
  /** Returns the beginning of an id, of eight characters or more, that the ids of all other sessions do not have. */
  shortId(id: string): string;
  /** Returns the cursor of the page that begins after a session. */
  cursorAfter(listed: Listed): string;
}

/** A callback for progress: `done` of `total`. */
export type Progress = (done: number, total: number) => void;

/** A callback for progress, with the sessions that fit among those read since the last call. */
export type ListProgress = (done: number, total: number, found: readonly Listed[]) => void;

/** Parts of a session that are searched: messages, the arguments of tools, and their results. */
export const SEARCH_PARTS = ["user", "assistant", "toolCall", "toolResult", "bashExecution"] as const;
export type SearchPart = (typeof SEARCH_PARTS)[number];

export interface SearchRequest extends AboutFleet {
  /** Its words; without any, all that fits the rest is found if `tools`, `file` or `failed` is there. */
  readonly query: string;
  readonly cwd?: string;
  /** See ListRequest.agents. */
  readonly agents?: readonly string[];
  readonly role?: string;
  readonly parts?: readonly SearchPart[];
  /** Names of tools: only their calls and results. */
  readonly tools?: readonly string[];
  /** A file's path or its end: only calls that name it. */
  readonly file?: string;
  /** Milliseconds, both included. */
  readonly since?: number;
  readonly until?: number;
  readonly toolResults?: boolean;
  /** True to find only output of tools and commands that failed; it needs no words. */
  readonly failed?: boolean;
  readonly limit: number;
  readonly cursor?: string;
  /** True if the best texts come first, and need not have all of the words. */
  readonly ranked?: boolean;
  /** See ListRequest.within. */
  readonly within?: number;
  /** Removes secrets from a text. Texts are found by what is left, and shown so. */
  readonly redact?: (text: string) => string;
  /** True if an entry is on the active path of a session that is open here; undefined for any other session. */
  readonly isActive: (path: string, entryId: string) => boolean | undefined;
}

export interface Hit {
  readonly path: string;
  readonly sessionId: string;
  readonly entryId: string;
  readonly role: string;
  readonly snippet: string;
  readonly onActivePath: boolean;
  readonly part: SearchPart;
  /** The tool that was called, or whose result it is. */
  readonly tool: string | undefined;
  /** The line around the place; `snippet` goes beyond its ends. */
  readonly line: string;
  /** Milliseconds. */
  readonly at: number | null;
  readonly session: Listed;
  /** The beginning of the session's id, of eight characters or more, that no other session has. */
  readonly shortId: string;
  /** The session that had the entry first, if this one copied it as a fork, or as a fork of one. */
  readonly inheritedFrom: Listed | undefined;
  /** Cursor of the page that begins after this hit. */
  readonly cursor: string;
  /** How well it fits, if the search is ranked. */
  readonly score?: number;
}

/** A page of hits. */
export interface FoundHits extends PerhapsLimited {
  /** With other agents' sessions, on the first page: the files without a readable session. */
  readonly notRead?: readonly UnreadFile[];
  readonly hits: Hit[];
  readonly more: boolean;
  /** Of a ranked search: the cursor of its first page, without texts that are added later. */
  readonly begins?: string;
}

/** A property that groups usage. */
export type UsageGroup = "day" | "week" | "month" | "model" | "cwd" | "session";

export interface UsageRequest extends AboutFleet {
  readonly groupBy: readonly UsageGroup[];
  readonly cwd?: string;
  /** Milliseconds, in whole quarters of an hour: the one that `since` is in counts, one that begins at `until` not. */
  readonly since?: number;
  readonly until?: number;
  /** True to count archived sessions, too. */
  readonly archived?: boolean;
  /** Returns the day of a quarter of an hour in the caller's time zone. Both are counted from 1970. */
  dayOf(quarter: number): number;
}

/** A model as messages name it. */
export interface ModelUsed {
  readonly provider: string | null;
  readonly model: string | null;
}

interface Spent {
  /** Messages of the assistant. */
  messages: number;
  readonly tokens: { input: number; output: number; cacheRead: number; cacheWrite: number; total: number };
  cost: number;
}

/** The usage of the sessions themselves, and apart from it the inherited one, which counts where it was spent. */
interface UsageSums extends Readonly<Spent> {
  /** Number of times that tokens were spent at an unknown cost. */
  readonly unpricedMessages: number;
  readonly inherited: Spent;
}

/** The usage of one group, with the members that name it. */
export interface UsageRow extends UsageSums, Partial<ModelUsed> {
  /** Null if no time is known. */
  readonly day?: string | null;
  /** The Monday that it begins with. */
  readonly week?: string | null;
  /** Its year and number. */
  readonly month?: string | null;
  readonly cwd?: string | null;
  readonly session?: Listed;
}

/** A session whose figures may lack something. */
export interface LackingSession {
  readonly path: string;
  readonly listed: Listed | undefined;
  /** Lines that cannot be read; undefined when nothing can. */
  readonly damagedLines: number | undefined;
}

export interface UsageReport extends PerhapsLimited {
  /** The latest day first, then the highest cost. A row is made when it is requested. */
  readonly rows: { readonly count: number; row(index: number): UsageRow };
  /** Over all rows; `sessions` counts those with usage of their own or copied usage. */
  readonly totals: UsageSums & { readonly sessions: number };
  /** Models of messages whose cost is not known, with their number. */
  readonly unpricedModels: readonly (ModelUsed & { readonly messages: number })[];
  readonly incomplete: readonly LackingSession[];
  /** Number of archived sessions that were left out. */
  readonly archivedLeftOut: number;
  /** As that of a list. */
  shortId: Listing["shortId"];
}

export interface Relative {
  readonly path: string;
  readonly id: string;
  readonly parentSession: string | null;
  readonly forkedAtEntryId?: string;
}

export interface SessionFamily extends PerhapsLimited {
  /** The id of the family's first session; null if that is missing. */
  readonly root: string | null;
  readonly nodes: readonly Relative[];
}

/** The sessions of this machine, and those of them that another source has, too. */
export interface Overlap {
  /** All sessions of this machine, by their ids. */
  readonly copies: ReadonlyMap<string, Listed>;
  /** The ids of those that the other source answers for, so that this machine leaves them out. */
  readonly covered: ReadonlySet<string>;
}

/** How the part of one source is joined with the others. */
export interface Joining {
  readonly ordering: Ordering;
  /** Finds the overlap once for all sources; missing if no two of them have the same sessions. */
  readonly overlap?: () => Promise<Overlap>;
}

/** A place that has sessions: this machine, the files of other agents, a fleet. `storage/catalog/merge.ts` joins them. */
export interface SessionSource {
  /** Returns whether a request is about its sessions. */
  isAsked(request: Pick<ListRequest, "agents" | "here">): boolean;
  /** Throws cursor_expired. */
  list(request: ListRequest, progress?: ListProgress, joining?: Joining): Promise<Listing>;
  /** Throws cursor_expired. */
  search(request: SearchRequest, progress?: Progress, joining?: Joining): Promise<FoundHits>;
  /** Declares that it has sessions of this machine, too; one source at most does. */
  readonly overlapping?: OverlappingSource;
  close(): void;
}

export interface OverlappingSource {
  /** The order of its lists, which those of the other sources follow. */
  readonly ordering: Ordering;
  /** Finds the overlap with this machine's sessions. In searches, equal copies of this machine count. */
  findOverlap(of: "list" | "search"): Promise<Overlap>;
  /** Returns why it cannot be asked now, after an error of it; undefined for any other error. */
  explainOutage(error: unknown): string | undefined;
  /** Sums the usage of this machine and of the source. */
  usage: Catalog["usage"];
  /** Returns the family among the sessions of this machine and of the source. */
  family: Catalog["family"];
}

/** All that is found without opening a session. All of it is derived from files, and can be rebuilt from them. */
export interface Catalog {
  /** Throws cursor_expired. */
  list(request: ListRequest, progress?: ListProgress): Promise<Listing>;
  /** Sums the usage of sessions. Changed files are read from the end of the last reading. */
  usage(request: UsageRequest, progress?: Progress): Promise<UsageReport>;
  /** Returns the sessions of a directory at once, as far as its own folder has them: the latest changed ones. */
  glance(cwd: string, limit: number): Promise<readonly Listed[]>;
  /** Throws cursor_expired. */
  search(request: SearchRequest, progress?: Progress): Promise<FoundHits>;
  /** Returns the family of the session with this id, or of a session elsewhere. Throws session_not_found. */
  family(of: { id: string; open?: Relative; here?: boolean }, progress?: Progress): Promise<SessionFamily>;
  /**
   * Writes the index that scripts of pi_agent_rust read (seed 002) to a SQLite file, new or in place of such an index;
   * returns how many sessions it has. Throws already_exists, session_locked, storage_full, storage_failed.
   */
  exportIndex(file: string): Promise<number>;
  close(): void;
}
