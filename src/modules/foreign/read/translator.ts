/**
 * The contract of translators: they make the entries of a session from the records of another agent's file.
 *
 * A translator is pure: records in, entries out. It may read nothing but the bytes that it is given, and its output
 * follows from these alone, so that the same file gives the same entries, ids included, in every process and at every
 * time. A longer file gives the entries of the shorter one and more after them, except those that were pending.
 */

import type { AgentName } from "../../../core/foreign/agents.ts";
import type { Ids } from "../../../core/foreign/ids.ts";
import type { Env } from "../../../core/ports/env.ts";
import type { Fidelity } from "../../../core/ports/fidelity.ts";
import type { Skim } from "./skim.ts";

/** One record of another agent's file. */
export interface SourceRecord {
  /** Its bytes, without a line feed. They may be overwritten when the next record is taken. */
  readonly bytes: Uint8Array;
  /** Its value; undefined for a record that is no JSON, which only `keep` gets. */
  readonly value: unknown;
  /** Its number, from 1: that of its line, or its place in a document. */
  readonly number: number;
}

/** A record that was read: its kind and its fidelity. Each record has exactly one. */
export interface RecordVerdict {
  /** The agent's name for records of this kind, such as `assistant` or `event_msg/token_count`. */
  readonly kind: string;
  readonly fidelity: Fidelity;
  /** A sentence about something in it that a person should know. */
  readonly warning?: string;
  /** True if it is still to be kept as it is, by {@link Translation.keep}. */
  readonly isRaw?: true;
}

/** Returns the verdict on a record that is kept as it is. */
export function makeRawVerdict(kind: string): RecordVerdict {
  return { kind, fidelity: "preserved", isRaw: true };
}

/** An entry that a translator makes, before it is a line. */
export interface TranslatedEntry {
  readonly type: string;
  readonly id: string;
  readonly parentId: string | null;
  /** ISO 8601. */
  readonly timestamp: string;
  /** The other members. A value that is a Uint8Array is JSON text already. */
  readonly members: Readonly<Record<string, unknown>>;
}

/** Facts of a session as a whole, as far as the records of its file have them. */
export interface AboutSession {
  /** The agent's own id of the session; missing if its records have none. */
  readonly nativeId?: string;
  /** The agent's own id of the session that this one was made from, or by. */
  readonly nativeParentId?: string;
  /** The session's id, if the agent is a Pi and its ids are ours. */
  readonly ownId?: string;
  /** The file of the session that this one was made from, if the agent names it as we do. */
  readonly parentSession?: string;
  readonly cwd?: string;
  /** When it began, ISO 8601. */
  readonly started?: string;
  /** The entry that the agent continues, if that is not the last one; null for the place before the first. */
  readonly leafId?: string | null;
  /** The names of the sessions within its file, as {@link Translator.inner} returns them. */
  readonly inner?: readonly string[];
}

/** Entries that a later record may still change, or put others before. */
export interface PendingEntries {
  readonly entries: readonly TranslatedEntry[];
  /** True if the agent is in the middle of one of them, so that it is sure to change if the agent goes on. */
  readonly isPartial: boolean;
}

/** The beginning of another file of the agent's, which a file continues without having a copy of it. */
export interface SourceBase {
  /** The agent's own id of the session that is continued. */
  readonly nativeId: string;
  /** Bytes of that file that are continued: whole lines. */
  readonly end: number;
  /** True if it is the same session, in which something was taken back: the rest of that file stays as a branch. */
  readonly isOwn: boolean;
}

/**
 * Returns the name of the session within a file that its next line belongs to; undefined for the file's own session.
 * Throws for a damaged line.
 */
export type InnerSessionOf = (line: Uint8Array, number: number) => string | undefined;

/** The work on one file. */
export interface Translation {
  /**
   * Takes the next record, passes the entries that it settles to `emit`, and returns its fidelity. An error that it
   * throws costs that record only, which is then kept raw.
   */
  take(record: SourceRecord): RecordVerdict;
  /**
   * Keeps a record as an entry, in the order of the file: one that is no JSON, or that `take` failed on, with `members`;
   * one whose verdict says so as it is.
   */
  keep(record: SourceRecord, members?: Readonly<Record<string, unknown>>): void;
  /** Returns the pending entries, as they would be if the file ended here. Changes nothing. */
  pending(): PendingEntries;
  /** Notes the place after the last record; {@link back} returns to it. Only formats with bases need it. */
  mark?(): void;
  /** Goes back to the noted place. */
  back?(): void;
  /** Returns whether a record came that earlier ones had named: then the file has to be read anew. */
  isOvertaken?(): boolean;
  /** Returns the facts of the session so far. */
  about(): AboutSession;
}

/** Ids of entries by the agent's own ids, the same each time. */
export type EntryIds = Pick<Ids, "entry">;

/** The things that a translation works with. */
export interface TranslationTools {
  readonly agent: string;
  readonly ids: EntryIds;
  readonly sha256: Env["sha256"];
  readonly emit: (entry: TranslatedEntry) => void;
  /** True if nothing becomes a line (`survey.ts`), so that members are values and never texts. */
  readonly isSurvey: boolean;
  /** Returns whether a record with this id comes later in the file than this one ({@link Translator.idMember}). */
  readonly comesLater: (id: string) => boolean;
  /**
   * The name of the file without its ending, after the names of its last folders, with `/` between them: a hint if
   * records leave something open (`file-name.ts`).
   */
  readonly name: string;
}

/** The form of a file: records that are lines, or one JSON document that has the records in it. */
type SourceForm =
  | { readonly kind: "lines" }
  | {
      readonly kind: "document";
      /** Yields the records of a document in order, as far as it is whole. */
      records(document: Uint8Array): Iterable<Uint8Array>;
    };

/** The beginning of a file, as far as it is read to recognise it. */
export interface Beginnings {
  readonly bytes: Uint8Array;
  /** The whole lines among these bytes that are JSON objects, parsed; at most the first {@link LINES_SEEN}. */
  readonly lines: readonly Readonly<Record<string, unknown>>[];
  /** True if these bytes are the whole file. */
  readonly isWhole: boolean;
}

/** Number of first lines, and of first bytes, that recognition reads of a file. */
export const LINES_SEEN = 50;
export const BYTES_SEEN = 1 << 16;

export interface Translator {
  readonly agent: AgentName;
  /** The agent's name for people. */
  readonly title: string;
  readonly form: SourceForm;
  /** Returns whether a file that begins so is of this agent: by its content, never by its name or a version. */
  recognises(beginning: Beginnings): boolean;
  /** The member with a record's id, if records before it in the file may name that. */
  readonly idMember?: string;
  /** Returns whether an object is a record, and not a part of one: this finds records in damaged lines. */
  isRecord?(value: Readonly<Record<string, unknown>>): boolean;
  /** Returns the beginning that a file with this first value continues; undefined for a complete file. */
  base?(first: unknown): SourceBase | undefined;
  /**
   * Makes a function that assigns each line to a session within another's file, for agents whose files have such; a
   * translation of the whole file leaves these lines out. `name`: see TranslationTools.
   */
  inner?(name: string): InnerSessionOf;
  /** Begins to count the messages of lines by how these begin, for lists. */
  skim?(): Skim;
  begin(tools: TranslationTools): Translation;
}
