/** Records that come before the one that they continue. The order in the file does not matter to Claude Code. */

import { isObject, type JsonObject, textIn } from "../messages.ts";
import type { SourceRecord, TranslationTools } from "../translator.ts";
import { uuidIn } from "./side-chains.ts";

/** A record of the conversation with its uuid. */
interface WaitingRecord {
  readonly source: SourceRecord;
  readonly record: JsonObject;
  readonly uuid: string;
  readonly type: string;
}

export class EarlyRecords {
  private readonly comesLater: TranslationTools["comesLater"];
  /** Records by the uuid of the one that they wait for. */
  private readonly waiting = new Map<string, SourceRecord[]>();
  private readonly uuids = new Set<string>();
  /** The uuids of records that others continue and that were not in the file. */
  private readonly missing = new Set<string>();
  /** Whether one of these came later nevertheless. */
  isOvertaken = false;

  constructor({ comesLater }: Pick<TranslationTools, "comesLater">) {
    this.comesLater = comesLater;
  }

  /** Keeps a record if the one that it continues is yet to come; returns whether it does. */
  hold(source: SourceRecord, record: JsonObject, uuid: string, isKnown: (parent: string) => boolean): boolean {
    const { waiting, uuids } = this;
    const parent = textIn(record.parentUuid) ?? textIn(record.logicalParentUuid);
    if (parent === undefined || parent === uuid || isKnown(parent)) return false;
    if (!uuids.has(parent) && !this.comesLater(parent)) {
      this.missing.add(parent);
      return false;
    }
    uuids.add(uuid);
    const copy = { ...source, bytes: Uint8Array.from(source.bytes) };
    const others = waiting.get(parent);
    if (others) others.push(copy);
    else waiting.set(parent, [copy]);
    return true;
  }

  /** Yields the records that waited for one that was taken, and those that waited for these. */
  *after(uuid: string): Generator<WaitingRecord> {
    if (this.missing.has(uuid)) this.isOvertaken = true;
    const next = [uuid];
    for (let one = next.pop(); one !== undefined; one = next.pop()) {
      const sources = this.waiting.get(one) ?? [];
      this.waiting.delete(one);
      for (const source of sources) {
        const record = isObject(source.value) ? source.value : {};
        const type = textIn(record.type) ?? "(no type)";
        const own = uuidIn(source, record, type) as string;
        this.uuids.delete(own);
        yield { source, record, uuid: own, type };
        next.push(own);
      }
    }
  }
}
