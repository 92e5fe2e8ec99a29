/** The contract of operations: changes that a person may regret, each recorded with its way back. */

export const OPERATION_KINDS = [
  "branch",
  "rename",
  "label",
  "merge",
  "fork",
  "archive",
  "unarchive",
  "delete",
  "restore",
  "relocate",
  "migrate",
  "rollback",
  "repair",
  "import",
  "prune",
  "undo",
  "redo",
] as const;

export type OperationKind = (typeof OPERATION_KINDS)[number];

/** The ids before and after a change; null for no id. */
export type IdChange = readonly [before: string | null, after: string | null];

/**
 * A change of the leaf, the name and labels of one session. Names and labels are named by the entries that set them, so
 * that a record is small and the texts are exact, however long they are. The beginnings of the texts that they set are
 * recorded, too: another program may have changed an entry in the file.
 */
export interface SessionChange {
  readonly do: "change";
  readonly path: string;
  readonly leaf: IdChange;
  /** True if the leaf only followed the appended entries: then it need not be where the change put it. */
  readonly follows?: boolean;
  readonly name?: IdChange;
  /** The beginning of the name that was set; null if it was cleared. `textSet` has it of a label. */
  readonly nameSet?: string | null;
  readonly labels?: readonly { readonly target: string; readonly set: IdChange; readonly textSet?: string | null }[];
}

/** A change of the world, as far as it must be known to take it back. */
export type OperationStep =
  | SessionChange
  | { readonly do: "move"; readonly from: string; readonly to: string }
  /** `item`: the folder in the trash, as soon as it is known. */
  | { readonly do: "trash"; readonly from: string; readonly item?: string }
  /** A session was imported, forked, or restored from an item of the trash; `count`: how many entries it had then. */
  | { readonly do: "appear"; readonly to: string; readonly item?: string; readonly count?: number }
  /** `header`: its line before, a character for each byte. */
  | {
      readonly do: "relocate";
      readonly from: string;
      readonly to: string;
      readonly cwd: string;
      readonly header: string;
      readonly keptAt?: string;
    }
  /** A relocation was taken back; `cwd` is the directory that it had given. */
  | { readonly do: "return"; readonly from: string; readonly to: string; readonly cwd: string }
  | { readonly do: "convert"; readonly from: string; readonly to: string; readonly into: "v2" | "jsonl" }
  /** The session at `path` got other bytes; `inode`: that of the earlier file, which is kept at `other`. */
  | {
      readonly do: "swap";
      readonly path: string;
      readonly inode: number;
      readonly other?: string;
      readonly count?: number;
    }
  | { readonly do: "prune"; readonly files: readonly string[]; readonly item?: string }
  | { readonly do: "unprune"; readonly files: readonly string[]; readonly item?: string };

/** A step of one kind. */
export type StepOf<K extends OperationStep["do"]> = Extract<OperationStep, { readonly do: K }>;

export interface Operation {
  /** Twelve hex digits. */
  readonly id: string;
  /** ISO 8601. */
  readonly at: string;
  readonly kind: OperationKind;
  /** Only in an undo or redo: the operation that it took back or repeated, which is itself no undo or redo. */
  readonly of?: string;
  /** The first of the operations that one undo takes back together; missing for that one itself. */
  readonly group?: string;
  readonly sessionId: string;
  /** Path of the session before. */
  readonly sessionPath: string;
  readonly name: string | null;
  /** The event as one sentence. */
  readonly text: string;
  readonly step?: OperationStep;
  /** The reason why it cannot be taken back. */
  readonly final?: string;
  /** The real path of the state folder with its record: in a copy of that folder, paths are those of the original. */
  readonly state?: string;
  /** `begun`: its outcome is unknown, because the process that began it did not record one. */
  readonly stage: "begun" | "done";
}

/** An operation that is about to get its id and time. */
export type NewOperation = Omit<Operation, "id" | "at" | "stage" | "state">;

/** The id and time of an operation. */
export type BegunOperation = Pick<Operation, "id" | "at">;

/** The part of an operation that is known only when it is done. */
export type OperationEnd = Partial<Pick<Operation, "step" | "final" | "text" | "name" | "sessionPath" | "sessionId">>;

/**
 * The record of operations, which several processes share. It never blocks a change: if the disk refuses to record one,
 * the change happens all the same, because each can be undone without it (restore, unarchive, rollback, a kept
 * original), and because a full disk is a reason to delete sessions. Refused lines are known to this process, and are
 * written with the next ones; other processes know of such a change as one without a way back.
 */
export interface OperationLog {
  /** Records a finished change with the next `flush`; returns its id. */
  note(operation: NewOperation): string;
  /** Writes the noted lines, in one write; a commit calls it just before. */
  flush(): void;
  /** Ends noted changes that are done, and reports those that the disk refuses to record to the person. */
  settle(ids: readonly string[]): void;
  /** Records, durably, that a change is about to happen; it must be followed by `done` or `failed`. */
  begin(operation: NewOperation): Promise<BegunOperation>;
  /** Does the same, and blocks everything else until it is done. */
  beginNow(operation: NewOperation): BegunOperation;
  done(id: string, outcome?: OperationEnd): void;
  /** Records that changes did not happen, or were undone with the commit that failed. */
  failed(ids: readonly string[]): void;
  /**
   * Records another process's finding about a change that was begun: its step, or false if it did not happen. It may
   * have looked during the change, so any record of the changing process counts more.
   */
  conclude(id: string, step: OperationStep | false): void;
  /**
   * Returns the lines that are there, parsed, the oldest first. Damaged ones are left out; operations of another state
   * folder, whose copy this one is, are final. Throws storage_failed.
   */
  lines(): unknown[];
  /** Runs `run` while no other undo or redo runs, in any process. Throws session_locked. */
  alone<T>(run: () => Promise<T>): Promise<T>;
}
