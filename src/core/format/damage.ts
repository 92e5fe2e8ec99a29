/** Something wrong in a file that was read past and is reported (reliability cases, guarantees 1 and 6). */
export interface Damage {
  readonly kind:
    | "bad_line"
    | "bad_body"
    | "bad_header"
    | "torn_tail"
    | "extra_header"
    | "duplicate_id"
    | "missing_id"
    | "missing_parent"
    | "cycle"
    | "incomplete_batch"
    | "invalid_boundary"
    | "ambiguous_leaf"
    | "newer_branch"
    | "no_parent"
    | "parent_is_call"
    | "dangling_tool_call"
    | "no_message"
    | "incomplete_message"
    | "newer_version"
    | "lost_entries"
    | "missing_blob"
    | "bad_index"
    | "diverged"
    | "restored_entries"
    | "file_beside";
  /** 1-based; 0 when it is not about one line. */
  readonly line: number;
  readonly byteOffset: number;
  /** Bytes. */
  readonly length: number;
  readonly entryId?: string;
  readonly reason: string;
  /** Entries that have another id now, as far as they are listed. */
  readonly renamed?: { readonly from: string; readonly to: string }[];
  /** Path of the bytes that were moved out of the file. */
  readonly keptAt?: string;
  /** True if the content of the bytes is still reachable. */
  readonly salvaged: boolean;
}

/** Kinds that describe a whole file: the program that wrote it reads it. */
export const NO_DAMAGE: ReadonlySet<Damage["kind"]> = new Set(["newer_version", "parent_is_call"]);

/** Returns damage without a place in a file. */
export function makeDamage(kind: Damage["kind"], reason: string, salvaged: boolean): Damage {
  return { kind, line: 0, byteOffset: 0, length: 0, reason, salvaged };
}

/** Returns damage that is about an entry and not about a place in a file. */
export function makeEntryDamage(entryId: string, kind: Damage["kind"], reason: string): Damage {
  return { ...makeDamage(kind, reason, true), entryId };
}
