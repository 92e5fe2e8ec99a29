/** Records that are Pi's header and entries already. */

import { isObject, type JsonObject, NO_TIME, toText, toTimestamp } from "../../../core/foreign/messages.ts";
import { getMembers } from "../../../core/json/json.ts";
import type {
  AboutSession,
  PendingEntries,
  RecordVerdict,
  SourceRecord,
  Translation,
  TranslationTools,
} from "./translator.ts";

/** The place and the type of a written entry. */
export interface WrittenEntry {
  readonly type: string;
  readonly id: string;
  readonly timestamp: string;
}

/** The work on records that are Pi's header and entries, which keep their ids and their form. */
export abstract class WrittenTranslation implements Translation {
  protected readonly tools: TranslationTools;
  protected header: JsonObject | undefined;
  protected time = NO_TIME;
  /** The last entry that was emitted. */
  protected end: string | null = null;
  private kept = 0;

  constructor(tools: TranslationTools) {
    this.tools = tools;
  }

  /** Takes the first header. */
  protected abstract takeHeader(header: JsonObject): RecordVerdict;

  /** Takes a record that is neither the header nor an entry; returns undefined if it is kept as it is. */
  protected abstract takeOther(value: JsonObject, number: number): RecordVerdict | undefined;

  protected abstract takeEntry(entry: WrittenEntry, value: JsonObject, source: SourceRecord): RecordVerdict;

  take(source: SourceRecord): RecordVerdict {
    const { value } = source;
    if (!isObject(value)) return this.keepRaw(source, "(no object)");
    const { id, timestamp } = value;
    // The log takes no entry with an empty type; others may continue this one.
    const type = value.type === "" ? "unknown" : value.type;
    const other = this.takeOther(value, source.number);
    if (other) return other;
    if (type === "session" && !this.header) {
      this.header = value;
      return this.takeHeader(value);
    }
    if (typeof type !== "string" || typeof id !== "string" || id === "") return this.keepRaw(source, "(unknown)");
    this.time = toTimestamp(timestamp, this.time);
    return this.takeEntry({ type, id, timestamp: toText(timestamp) ?? this.time }, value, source);
  }

  keep({ number }: SourceRecord, members: JsonObject): void {
    const id = this.tools.ids.entry(`line:${number}:${++this.kept}`);
    this.tools.emit({ type: "custom", id, parentId: this.end, timestamp: this.time, members });
    this.end = id;
  }

  pending(): PendingEntries {
    return { entries: [], isPartial: false };
  }

  about(): AboutSession {
    return aboutPi(this.header);
  }

  private keepRaw(source: SourceRecord, kind: string): RecordVerdict {
    this.keep(source, { customType: `import:${this.tools.agent}`, data: Uint8Array.from(source.bytes) });
    return { kind, fidelity: "preserved" };
  }
}

/** Returns the facts of a session in a header like ours. */
function aboutPi(header: JsonObject | undefined): AboutSession {
  const { id, cwd, timestamp, parentSession } = header ?? {};
  const own = toText(id);
  return {
    nativeId: own,
    ownId: own,
    parentSession: toText(parentSession),
    cwd: toText(cwd),
    started: toText(timestamp),
  };
}

/** Returns the members of an entry except those that every entry has, as they are written. */
export function getWrittenMembers(
  { isSurvey }: TranslationTools,
  { bytes }: SourceRecord,
  value: JsonObject,
): JsonObject {
  const { type: _, id: _id, parentId: _p, timestamp: _t, ...values } = value;
  const found = isSurvey ? null : getMembers(bytes);
  if (!found) return values;
  const texts = found.filter(({ name }) => name in values);
  return Object.fromEntries(texts.map(({ name, start, end }) => [name, Uint8Array.from(bytes.subarray(start, end))]));
}
