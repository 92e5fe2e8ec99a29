/**
 * The contract of translators: what makes the entries of a session of the records of another agent's file.
 *
 * A translator is pure: records in, entries out. It may read nothing but the bytes that it is given, and what it yields
 * follows from these alone, so that the same file gives the same entries, ids included, in every process and at every
 * time. A longer file gives the entries of the shorter one and more after them, but for those that were waiting.
 */

import type { Env } from "../ports/env.ts";
import type { Fate } from "../ports/fidelity.ts";
import type { AgentName } from "./agents.ts";
import type { Ids } from "./ids.ts";
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

/** A record that was read, by what it is and what became of it. Each record has exactly one. */
export interface RecordVerdict {
  /** The agent's name for records of this kind, such as `assistant` or `event_msg/token_count`. */
  readonly kind: string;
  readonly fate: Fate;
  /** A sentence about something in it that a person should know. */
  readonly warning?: string;
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

/** Facts of a session as a whole, as far as the records of its file say them. */
export interface AboutSession {
  /** The agent's own id of the session; missing where its records have none. */
  readonly nativeId?: string;
  /** The agent's own id of the session that this one was made from, or by. */
  readonly nativeParentId?: string;
  /** The session's id, where the agent is a Pi and its ids are ours. */
  readonly ownId?: string;
  /** The file of the session that this one was made from, where the agent writes that as we do. */
  readonly parentSession?: string;
  readonly cwd?: string;
  /** When it began, ISO 8601. */
  readonly started?: string;
  /** The entry that the agent continues, where that is not the last one; null for the place before the first. */
  readonly leafId?: string | null;
  /** The names of the sessions within its file, as {@link Translator.inner} tells them. */
  readonly inner?: readonly string[];
}

/** Entries that a later record may still change, or put others before. */
export interface Unsettled {
  readonly entries: readonly TranslatedEntry[];
  /** Whether the agent is in the middle of one of them, so that it is sure to change if the agent goes on. */
  readonly isPartial: boolean;
}

/** The beginning of another file of the agent's, which a file continues without having a copy of it. */
export interface SourceBase {
  /** The agent's own id of the session that is continued. */
  readonly nativeId: string;
  /** Bytes of that file that are continued: whole lines. */
  readonly end: number;
  /** Whether it is the same session, in which something was taken back: the rest of that file stays as a branch. */
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
   * Takes the next record, hands the entries that are settled by it to `emit`, and says what became of the record.
   * An error that it throws costs that record only, which is then kept raw.
   */
  take(record: SourceRecord): RecordVerdict;
  /**
   * Keeps a record that is no JSON, or that `take` failed on, as an entry with `members`, in the order of the file.
   */
  keep(record: SourceRecord, members: Readonly<Record<string, unknown>>): void;
  /** Returns what waits, as it would be if the file ended here. Changes nothing. */
  waiting(): Unsettled;
  /** Notes the place after the last record, to which {@link back} leads. Only formats with bases need it. */
  mark?(): void;
  /** Goes back to the place that was noted. */
  back?(): void;
  /** Whether a record came that others before it had named, when it was not in the file yet: it has to be read anew. */
  isOvertaken?(): boolean;
  /** Returns what is known of the session so far. */
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
  /** Whether nothing becomes a line (`survey.ts`), so that members are values and never texts. */
  readonly isSurvey: boolean;
  /** Whether a record with this id comes later in the file than the one that is taken ({@link Translator.idMember}). */
  readonly comesLater: (id: string) => boolean;
  /**
   * The name of the file without its ending, after the names of the last folders that it is in, with `/` between them: a
   * hint where records leave something open (`file-name.ts`).
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
  /** Whether these bytes are the whole file. */
  readonly isWhole: boolean;
}

/** Lines of a file that recognition goes by, and bytes that are read for it. */
export const LINES_SEEN = 50;
export const BYTES_SEEN = 1 << 16;

/** A translator of one agent's format. */
export interface Translator {
  readonly agent: AgentName;
  /** The agent's name for people. */
  readonly title: string;
  readonly form: SourceForm;
  /** Whether a file that begins so is one of this agent's: by what is in it, never by its name or a version. */
  recognises(beginning: Beginnings): boolean;
  /** The member that is a record's id, where others may name it that come before it in the file. */
  readonly idMember?: string;
  /** Whether an object is a record, and not a part of one: by this, records are found in damaged lines. */
  isRecord?(value: Readonly<Record<string, unknown>>): boolean;
  /** Returns what a file continues whose first record has this value; undefined for a file that has all itself. */
  base?(first: unknown): SourceBase | undefined;
  /**
   * Begins to tell the lines of sessions within another's file from those of that, for agents whose files have such; a
   * translation of the whole file leaves them out. `name`: see TranslationTools.
   */
  inner?(name: string): InnerSessionOf;
  /** Begins to count the messages of lines by how these begin, for lists. */
  skim?(): Skim;
  begin(tools: TranslationTools): Translation;
}
