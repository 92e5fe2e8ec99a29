/** The contract of the quarantine: entries that a fleet refused, or that were in conflict with those of other machines. */

/** Entries of one session that were kept together. */
export interface QuarantinedEntries {
  /** The path of the file that has them. */
  readonly keptAt: string;
  readonly sessionId: string;
  readonly entryCount: number;
  /** Lines that are no longer entries. */
  readonly damagedLines: number;
  readonly sizeBytes: number;
  /** Milliseconds since 1970. */
  readonly since: number;
  /** The beginning of the first message; null without one. */
  readonly text: string | null;
}

export interface Quarantine {
  /** Returns the files in quarantine, the latest first. Throws storage_failed. */
  list(): readonly QuarantinedEntries[];
  /** Returns kept entries as they were. Throws not_a_session for a path that is not one of `list`. */
  read(keptAt: string): {
    readonly sessionId: string;
    /** Those of the entries that can be read. */
    readonly lines: readonly Uint8Array[];
    readonly damagedLines: number;
  };
  /**
   * Renames a file, so that `list` leaves it out. The caller has the lock of its session, which has all of its entries
   * durably. If the disk refuses, the file stays.
   */
  putAside(keptAt: string): void;
}
