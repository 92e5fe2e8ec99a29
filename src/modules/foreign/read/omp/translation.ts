/** The work on one file of oh-my-pi's. */

import { parseModelChange } from "../../../../core/context/context.ts";
import {
  isObject,
  type JsonObject,
  makeOtherBlock,
  NO_TIME,
  toText,
  toTimestamp,
} from "../../../../core/foreign/messages.ts";
import { getFolderName } from "../file-name.ts";
import {
  type AboutSession,
  makeRawVerdict,
  type PendingEntries,
  type RecordVerdict,
  type SourceRecord,
  type Translation,
  type TranslationTools,
} from "../translator.ts";
import { aboutPi, getWrittenMembers } from "../written.ts";

const CLEARED = "The person cleared the conversation here. Nothing of what came before is in the context.";

/** Returns another type for an entry, and other members; undefined if it stays as it is. */
type EntryChange = (value: JsonObject) => { readonly type: string; readonly members: JsonObject } | undefined;

const CHANGES: Readonly<Record<string, EntryChange>> = {
  model_change: changedModel,
  title_change: ({ title }) =>
    typeof title === "string" ? { type: "session_info", members: { name: title } } : undefined,
  model_usage: ({ purpose }) => ({ type: "usage", members: { kind: toText(purpose) ?? "other" } }),
};

/** A model of another role, or a temporary substitute, is not the session's. */
function changedModel(change: JsonObject): ReturnType<EntryChange> {
  const named = parseModelChange(change);
  if (typeof named.provider !== "string" || change.modelId !== undefined) return undefined;
  return { type: "model_change", members: { provider: named.provider, modelId: named.model } };
}

export class OmpTranslation implements Translation {
  private readonly tools: TranslationTools;
  private header: JsonObject | undefined;
  private time = NO_TIME;
  /** The entry with the title before the header: the first entries continue it. */
  private root: string | null = null;
  private end: string | null = null;
  private kept = 0;
  private isOfSubagent = false;
  /** The parents of the entries after a cleared conversation, by the entry that clears it. */
  private readonly continued = new Map<string, string>();

  constructor(tools: TranslationTools) {
    this.tools = tools;
  }

  take(source: SourceRecord): RecordVerdict {
    const { value } = source;
    if (!isObject(value)) return makeRawVerdict("(no object)");
    const { id, timestamp } = value;
    // The log takes no entry with an empty type; others may continue this one.
    const type = value.type === "" ? "unknown" : value.type;
    if (type === "title" && source.number === 1) return this.takeTitle(value);
    if (type === "session" && !this.header) return this.takeHeader(value);
    if (typeof type !== "string" || typeof id !== "string" || id === "") return makeRawVerdict("(unknown)");
    this.time = toTimestamp(timestamp, this.time);
    if (type === "session_init") this.isOfSubagent = true;
    const at = toText(timestamp) ?? this.time;
    const place = { id, parentId: this.placeOf(value.parentId), timestamp: at };
    this.end = id;
    if (type === "reset_boundary") return this.clear(place);
    const change = Object.hasOwn(CHANGES, type) ? CHANGES[type](value) : undefined;
    const members: Record<string, unknown> = { ...getWrittenMembers(this.tools, source, value), ...change?.members };
    let missesPictures = false;
    if (mayMissPictures(source.bytes))
      for (const name of ["message", "content"])
        if (name in value) {
          const shown = replaceMissingPictures(value[name]);
          if (shown === value[name]) continue;
          members[name] = shown;
          missesPictures = true;
        }
    this.tools.emit({ ...place, type: change?.type ?? type, members });
    if (!missesPictures) return { kind: type, fidelity: change || type !== value.type ? "derived" : "preserved" };
    return {
      kind: type,
      fidelity: "derived",
      warning: "Pictures of it are not here: oh-my-pi keeps them in files of its own, or they are empty.",
    };
  }

  keep({ number, bytes }: SourceRecord, given?: JsonObject): void {
    const members = given ?? { customType: `import:${this.tools.agent}`, data: Uint8Array.from(bytes) };
    const id = this.tools.ids.entry(`line:${number}:${++this.kept}`);
    this.tools.emit({ type: "custom", id, parentId: this.end, timestamp: this.time, members });
    this.end = id;
  }

  pending(): PendingEntries {
    return { entries: [], isPartial: false };
  }

  about(): AboutSession {
    const about = aboutPi(this.header);
    // A subagent's file is in a folder with the name of the file of the session that began it.
    const isNamed = about.parentSession !== undefined || !this.isOfSubagent;
    return isNamed ? about : { ...about, nativeParentId: getFolderName(this.tools.name) };
  }

  private takeTitle({ title, updatedAt }: JsonObject): RecordVerdict {
    this.time = toTimestamp(updatedAt, NO_TIME);
    return this.nameSession(title, "title");
  }

  private takeHeader(header: JsonObject): RecordVerdict {
    this.header = header;
    this.time = toTimestamp(header.timestamp, this.time);
    return this.root === null ? this.nameSession(header.title, "session") : { kind: "session", fidelity: "derived" };
  }

  /** Names the session before its first entry. */
  private nameSession(name: unknown, kind: string): RecordVerdict {
    if (typeof name !== "string" || name.trim() === "") return { kind, fidelity: "dropped" };
    this.root = this.tools.ids.entry("title");
    this.end = this.root;
    this.tools.emit({
      type: "session_info",
      id: this.root,
      parentId: null,
      timestamp: this.time,
      members: { name },
    });
    return { kind, fidelity: "derived" };
  }

  /** Returns the entry that one continues which names `parentId`. */
  private placeOf(parentId: unknown): string | null {
    if (parentId === null) return this.root;
    const above = toText(parentId) ?? this.end;
    return above === null ? null : (this.continued.get(above) ?? above);
  }

  /** Makes a compaction that keeps nothing, and an edit that takes its summary out of the context, too. */
  private clear(place: { readonly id: string; readonly parentId: string | null; readonly timestamp: string }) {
    const { tools } = this;
    const { id, timestamp } = place;
    const members = { summary: CLEARED, firstKeptEntryId: id, tokensBefore: 0 };
    tools.emit({ ...place, type: "compaction", members });
    const edit = tools.ids.entry(`edit:${id}`);
    tools.emit({
      type: "context_edit",
      id: edit,
      parentId: id,
      timestamp,
      members: { targetId: id, replacement: null },
    });
    this.continued.set(id, edit);
    this.end = edit;
    return { kind: "reset_boundary", fidelity: "derived" } as const;
  }
}

// --- pictures without their bytes -----------------------------------------------------------------------------------

/** A text in place of base64 text, of a data URL or of a string. */
const REFERENCE = /^blob:(sha256:[0-9a-f]+)/;

/** Returns whether the bytes of a record may have a reference, or a picture without bytes. */
function mayMissPictures(bytes: Uint8Array): boolean {
  const holds = (text: string): boolean => Buffer.prototype.includes.call(bytes, text);
  return holds("blob:sha256:") || (holds('"image"') && holds('""'));
}

/**
 * Returns a value in which a text replaces each block with a reference, and each picture without bytes: providers
 * refuse both. Returns the value itself if it has neither.
 */
function replaceMissingPictures(value: unknown): unknown {
  if (Array.isArray(value)) {
    const made = value.map(replaceMissingPictures);
    return made.some((one, at) => one !== value[at]) ? made : value;
  }
  if (!isObject(value)) return value;
  const digest = digestIn(value);
  if (digest !== undefined)
    return makeOtherBlock(value, { ...value, title: `in a file of oh-my-pi's, not here: ${digest}` });
  if (value.type === "image" && (value.data === "" || value.mimeType === "")) return makeOtherBlock(value);
  const made = Object.entries(value).map(([name, one]) => [name, replaceMissingPictures(one)] as const);
  return made.some(([name, one]) => one !== value[name]) ? Object.fromEntries(made) : value;
}

/** Returns the digest that a block of a picture names. */
function digestIn({ data, image_url: url, source }: Readonly<Record<string, unknown>>): string | undefined {
  const places = [data, url, isObject(url) ? url.url : undefined, isObject(source) ? source.data : undefined];
  for (const text of places) if (typeof text === "string" && REFERENCE.test(text)) return REFERENCE.exec(text)?.[1];
  return undefined;
}
