/**
 * The contract of a fleet: sessions in a database that servers on many machines share. A session there is a sequence of
 * lines; each machine that works on it has a copy in its session folder.
 *
 * A writer has an epoch. It grows with every new lease and never falls, so that lines of a former owner are refused, however
 * late they come. No method throws for a failure of a network or a database; only those that read do, with storage_failed.
 */

import type { Holder } from "./lock.ts";

/** The end of a session's lines. Two places with the same end have the same lines. */
export interface FleetEnd {
  readonly entries: number;
  /** Length of all lines, without line feeds. */
  readonly bytes: number;
  /** Hash chain over the lines, 64 hex digits, as in Session Store V2. */
  readonly chain: string;
}

/** The answer to a process that wants to write to a session. */
export type LeaseResult =
  /** It may, in this epoch. Nothing that was sent in an earlier epoch has any effect from now on. */
  | {
      readonly kind: "taken";
      readonly epoch: number;
      /** The line of its header. */
      readonly headerLine: Uint8Array;
      readonly end: FleetEnd;
      /** Number of entries whose texts and spendings it has. */
      readonly indexed: number;
      /** Durability of the existing lines. */
      readonly durability: "replicated" | "primary";
      /** The server that answered; see `server`. */
      readonly server: string | undefined;
    }
  /** Another process has the session, and its lease has not run out. */
  | { readonly kind: "held"; readonly holder: Holder; readonly end: FleetEnd }
  /** The fleet has no such session. */
  | { readonly kind: "missing" }
  /** The session was deleted. */
  | { readonly kind: "deleted" }
  /** The database could not be asked, or did not answer. Asking again does no harm. */
  | { readonly kind: "away"; readonly reason: string }
  /**
   * The database refuses permanently: this process may not use it, so that nothing is known of the session; or (`isOfValue`)
   * it cannot store such a session, and does not have it.
   */
  | { readonly kind: "unfit"; readonly reason: string; readonly isOfValue?: boolean };

/**
 * Lines of a commit that is too long for one statement: they are invisible, and no other lines can have their positions,
 * until a batch shows all parts of its place. Until then `before` is the session's end.
 */
export interface FleetPart extends Pick<FleetBatch, "sessionId" | "epoch" | "before" | "lines" | "heads"> {
  /** The place of all parts of one commit: the epoch of the first. */
  readonly place: number;
  /** The end before its lines: the session's, or that of the previous part. */
  readonly from: FleetEnd;
  /** Ends of the stretches into which lines are packed. */
  readonly stretches: readonly FleetEnd[];
}

/** Lines that continue a session, all or none; the first ones make it visible. */
export interface FleetBatch {
  readonly sessionId: string;
  readonly epoch: number;
  readonly before: FleetEnd;
  readonly after: FleetEnd;
  readonly lines: readonly Uint8Array[];
  /** The id, parent, type, role and flags of each line, as JSON, for the tree. Without flags, the line has more. */
  readonly heads: readonly string[];
  readonly facts: FleetFacts;
  /** Ends of the stretches into which lines are packed, the last one `after`: of a batch of a long commit. */
  readonly stretches?: readonly FleetEnd[];
  /** The place of the parts that are the stretches: `lines` and `heads` are empty. */
  readonly place?: number;
  /** The attachments that the lines name and this machine has; the fleet has them before the lines. */
  readonly attachments?: readonly FleetAttachment[];
}

/** A file of a session that its entries name by its content. */
export interface FleetAttachment {
  /** 64 hex digits. */
  readonly sha256: string;
  /** Returns its bytes; null if they are missing or damaged. Throws storage_failed, with which the commit fails. */
  read(): Uint8Array | null;
}

/** Texts and spendings of entries that are there without them. */
export interface LateFacts {
  readonly sessionId: string;
  /** The epoch that those entries were read in. */
  readonly epoch: number;
  /** The first of these entries: those before have their facts. */
  readonly from: number;
  readonly to: number;
  readonly texts: readonly FleetText[];
  readonly spendings: readonly FleetSpending[];
}

/** Facts about a session and its new lines, to list, find and sum it without opening it. */
export interface FleetFacts {
  readonly counts: FleetCounts;
  /** Missing if it has not changed since the last commit. */
  readonly description?: FleetDescription;
  readonly texts: readonly FleetText[];
  readonly spendings: readonly FleetSpending[];
  /** True if texts and spendings of these entries, or of some before them, come later. */
  readonly areBehind?: boolean;
}

/** Facts that change with every message. */
interface FleetCounts {
  readonly messages: number;
  /** See Listed. */
  readonly modified: number | null;
  /** True if each entry continues the one before, so that all are on one path. */
  readonly isPlain: boolean;
}

/** Facts that seldom change. Any string is kept as it is. */
export interface FleetDescription {
  /** The labels of its entries; missing without any. */
  readonly labels?: readonly string[];
  readonly cwd: string | null;
  readonly name: string | null;
  readonly firstMessage: string | null;
  readonly parentSession: string | null;
  /** The header's, ISO 8601. */
  readonly timestamp: string | null;
}

/** A searchable text of an entry: of users and the model, and the arguments of tools. */
export interface FleetText {
  readonly position: number;
  readonly kind: "talk" | "calls";
  /** Its number among the texts of its kind in the entry. */
  readonly nth: number;
  readonly role: string;
  /** Milliseconds. */
  readonly time: number | null;
  /** Its words, folded, each once: of ASCII letters, digits and underscores, or without any ASCII. */
  readonly words: readonly string[];
  /** Additional search words, for its tool and for the files that it names. */
  readonly marks: readonly string[];
}

/** Usage of some entries in a quarter of an hour with one model; its numbers are the columns of a usage row. */
export interface FleetSpending {
  readonly quarter: number;
  readonly provider: string | null;
  readonly model: string | null;
  readonly isInherited: boolean;
  readonly numbers: readonly number[];
}

/** The outcome of an append. */
export type FleetOutcome =
  /** The lines are durable; `replicated`: on a second machine, too. */
  | { readonly kind: "committed"; readonly durability: "replicated" | "primary" }
  /** Epoch or end have changed. Nothing was written, nor will be. */
  | { readonly kind: "refused" }
  /** Nothing was sent. */
  | { readonly kind: "away"; readonly reason: string }
  /** The database refuses it, however often it is sent: a value (`isOfValue`), or this process. Nothing was written. */
  | { readonly kind: "unfit"; readonly reason: string; readonly isOfValue?: boolean }
  /** The outcome is unknown, and the append may still happen, until the session is taken again. */
  | { readonly kind: "unknown"; readonly reason: string };

/** A session as the fleet has it. */
export interface FleetSession {
  readonly id: string;
  readonly headerLine: Uint8Array;
  readonly end: FleetEnd;
  readonly epoch: number;
  /** Another process that has it, if its lease has not run out. */
  readonly holder: Holder | null;
  /** True if it is archived, for all machines. */
  readonly archived?: boolean;
}

/** The fleet that pending entries belong to: no other one gets them. */
export interface NotedFleet {
  /** Without its password. */
  readonly address: string;
  readonly tenant: string;
  /** The id of its store; missing if the machine never met it. */
  readonly store?: string;
}

/** A session with entries that were acknowledged during an outage, or whose entries became a branch. */
export interface JournaledSession {
  readonly sessionId: string;
  /** The path that it had then. */
  readonly sessionPath: string;
  /** ISO 8601. */
  readonly since: string;
  /** An end that the fleet surely had; null if it has all entries by now. */
  readonly from: FleetEnd | null;
  /** The header line in base64, if the fleet had nothing of the session. */
  readonly headerLine?: string;
  /** Conflicts with other machines, the latest last. */
  readonly conflicts: readonly FleetConflict[];
  /** True if the latest one was not reported yet. */
  readonly isUntold?: boolean;
  /**
   * Entries that the database had and has lost, until that is reported: their number, the last of them, and when it was
   * acknowledged (ISO 8601).
   */
  readonly lost?: { readonly entries: number; readonly lastEntryId: string; readonly at: string };
  /** Missing in notes of older programs, which count for any fleet. */
  readonly fleet?: NotedFleet;
  /** Why the note cannot be read; `sessionPath` is then the note's path, and the id is empty. */
  readonly unreadable?: string;
}

/** A branch of acknowledged entries after a conflict. */
export interface FleetConflict {
  /** ISO 8601. */
  readonly at: string;
  /** Entries of the branch. */
  readonly entries: number;
  /** The end of the branch. */
  readonly lastEntryId: string;
  /** The entry after it, which leaves the leaf on the other branch: without it, a session does not have the branch yet. */
  readonly markerId?: string;
  /** Number of entries with another id in the branch, because others used theirs. */
  readonly renamed: number;
  /** The first of these, and of entries that the host repeated elsewhere, with the ids that they had. */
  readonly names?: { readonly from: string; readonly to: string }[];
  /**
   * `lost`: the database had the entries, and an older state of it was restored or promoted. `unsent`: another program, or a
   * process that exited, wrote them to the file. Missing: they were acknowledged during an outage.
   */
  readonly reason?: "lost" | "unsent";
}

/** Counters of a process. */
export interface FleetTally {
  readonly commits: number;
  /** Commits without an answer. */
  readonly unknown: number;
  /** Commits that the database refused: another process had the session, or a value is not storable. */
  readonly refusals: number;
  /** Times that this process became the writer of a session, also again. */
  readonly takings: number;
  /** Times that a request waited for an unreachable database. */
  readonly waits: number;
}

export interface Fleet {
  readonly tally: FleetTally;
  /**
   * The server that answered last, if it is known. After another one was promoted, which may lack entries that the first had
   * acknowledged, an append is refused until the session is taken there.
   */
  readonly server?: string;
  /**
   * Makes this process the writer of a session, in an epoch above `above`, which it had before. With a header, a session
   * that the fleet lacks is begun. A process that has the session already takes it again.
   */
  take(sessionId: string, above: number, headerLine?: Uint8Array): Promise<LeaseResult>;
  /**
   * Returns the milliseconds since the last renewal of this process's lease of a session; Infinity if it was not renewed
   * since it was taken. Leases are renewed during an operation that writes nothing.
   */
  renewedAgo(sessionId: string): number;
  /**
   * Returns whether another process may have taken an idle session of this process: its lease has expired. If not, it can be
   * written to as before.
   */
  mayBeTaken(sessionId: string): boolean;
  /**
   * Appends lines. Facts that the database refuses are left out, so that searches do not find these lines. Throws
   * storage_failed if the disk or, permanently, the database refuses an attachment.
   */
  append(batch: FleetBatch): Promise<FleetOutcome>;
  /**
   * Stores a part of a commit, which may be sent again. Outcomes are those of an append, but the part is invisible, whatever
   * the outcome. `sent` is called when it was given to the connection, before the answer.
   */
  keepPart(part: FleetPart, sent?: () => void): Promise<FleetOutcome>;
  /** Begins to prepare a part, while another one is on its way. */
  prepare?(part: FleetPart): void;
  /**
   * Adds facts of entries that lack them; any process that knows the entries may. Refused once the session was taken anew,
   * or another process has added them. Facts that the database refuses are left out, as by `append`.
   */
  addFacts(facts: LateFacts): Promise<FleetOutcome>;
  /** Ends the lease of this process, if it has this epoch, so that others can take the session at once. */
  release(sessionId: string, epoch: number): Promise<void>;
  /** Returns a session, without taking it; null if the fleet does not have it. Throws storage_failed. */
  look(sessionId: string): Promise<FleetSession | null>;
  /** Returns whether the fleet has no record of a session, not even of its deletion. Throws storage_failed. */
  isMissing(sessionId: string): Promise<boolean>;
  /** Yields the lines of a session from one position up to another, in pieces. Throws storage_failed. */
  lines(sessionId: string, from: number, to: number): AsyncIterable<readonly Uint8Array[]>;
  /** Yields the heads of a session (see FleetBatch) from one position up to another, in pieces. Throws storage_failed. */
  heads(sessionId: string, from: number, to: number): AsyncIterable<readonly string[]>;
  /** Returns the digests of the attachments that a session has in the fleet. Throws storage_failed. */
  attachments(sessionId: string): Promise<readonly string[]>;
  /** Returns the bytes of a digest; null if the fleet has none under it, or wrong ones. Throws storage_failed. */
  attachment(sha256: string): Promise<Uint8Array | null>;
  /** Adds attachments to a session that a machine without them uploaded. Throws storage_failed. */
  attach(sessionId: string, attachments: readonly FleetAttachment[]): Promise<void>;
  /** Closes the connections. Later calls are answered as by an unreachable database. */
  close(): Promise<void>;
}
