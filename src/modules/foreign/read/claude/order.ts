/** Records before the one that they continue. The order in the file does not matter to Claude Code. */

import { isObject, type JsonObject, toText } from "../../../../core/foreign/messages.ts";
import { addTo } from "../../../../core/lists.ts";
import type { SourceRecord, TranslationTools } from "../translator.ts";
import { getRecordUuid } from "./side-chains.ts";

/** A record of the conversation with its uuid. */
export interface WaitingRecord {
  readonly source: SourceRecord;
  readonly record: JsonObject;
  readonly uuid: string;
  readonly type: string;
}

export class EarlyRecords {
  private readonly comesLater: TranslationTools["comesLater"];
  /** Records by the uuid of the one that they wait for. */
  private readonly waiting = new Map<string, SourceRecord[]>();
  /** The uuids of the waiting records, each with the one that it waits for. */
  private readonly parents = new Map<string, string>();
  /** The uuids of records that others continue and that were not in the file. */
  private readonly missing = new Set<string>();
  /** True if one of these came later nevertheless. */
  isOvertaken = false;

  constructor({ comesLater }: Pick<TranslationTools, "comesLater">) {
    this.comesLater = comesLater;
  }

  /** Keeps a record if the one that it continues is yet to come; returns whether it was kept. */
  hold(source: SourceRecord, record: JsonObject, uuid: string, isKnown: (parent: string) => boolean): boolean {
    const { waiting, parents } = this;
    const parent = toText(record.parentUuid) ?? toText(record.logicalParentUuid);
    if (parent === undefined || parent === uuid || isKnown(parent)) return false;
    if (!parents.has(parent) && !this.comesLater(parent)) {
      this.missing.add(parent);
      return false;
    }
    parents.set(uuid, parent);
    addTo(waiting, parent, { ...source, bytes: Uint8Array.from(source.bytes) });
    return true;
  }

  /** Yields the records that waited for a taken one, and those that waited for these. */
  *after(uuid: string): Generator<WaitingRecord> {
    if (this.missing.has(uuid)) this.isOvertaken = true;
    const next = [uuid];
    for (let one = next.pop(); one !== undefined; one = next.pop()) {
      const sources = this.waiting.get(one) ?? [];
      this.waiting.delete(one);
      for (const source of sources) {
        const waiting = this.released(source);
        yield waiting;
        next.push(waiting.uuid);
      }
    }
  }

  /** Takes out the first of the records that wait for each other, if the one that was held last makes a circle of them. */
  openCircle(uuid: string): WaitingRecord | undefined {
    const { parents, waiting } = this;
    if (!waiting.has(uuid)) return undefined;
    const circle = new Set([uuid]);
    let at = parents.get(uuid);
    for (; at !== undefined && !circle.has(at); at = parents.get(at)) circle.add(at);
    if (at !== uuid) return undefined;
    const held = [...circle].flatMap((one) => waiting.get(one) ?? []).filter((source) => circle.has(uuidOf(source)));
    const first = held.reduce((a, b) => (b.number < a.number ? b : a));
    const parent = parents.get(uuidOf(first)) as string;
    waiting.set(parent, waiting.get(parent)?.filter((source) => source !== first) ?? []);
    return this.released(first);
  }

  private released(source: SourceRecord): WaitingRecord {
    const record = isObject(source.value) ? source.value : {};
    const uuid = uuidOf(source);
    this.parents.delete(uuid);
    return { source, record, uuid, type: typeOf(record) };
  }
}

function uuidOf(source: SourceRecord): string {
  const record = isObject(source.value) ? source.value : {};
  return getRecordUuid(source, record, typeOf(record)) as string;
}

function typeOf(record: JsonObject): string {
  return toText(record.type) ?? "(no type)";
}
