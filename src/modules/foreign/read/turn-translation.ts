/** The work on a file whose records come one after the other (`turns.ts`), as far as all such formats share it. */

import type { JsonObject } from "../../../core/foreign/messages.ts";
import { NO_TIME } from "../../../core/foreign/messages.ts";
import type {
  AboutSession,
  PendingEntries,
  RecordVerdict,
  SourceRecord,
  Translation,
  TranslationTools,
} from "./translator.ts";
import { Turns } from "./turns.ts";

export abstract class TurnTranslation implements Translation {
  protected readonly tools: TranslationTools;
  protected readonly turns: Turns;
  /** The time of the last record that has one. */
  protected time = NO_TIME;
  private readonly copies = new Map<string, number>();

  constructor(tools: TranslationTools) {
    this.tools = tools;
    this.turns = new Turns(tools);
  }

  abstract take(source: SourceRecord): RecordVerdict;

  abstract about(): AboutSession;

  keep(source: SourceRecord, members?: JsonObject): void {
    this.turns.keep(source, this.time, members);
  }

  pending(): PendingEntries {
    return this.turns.pending();
  }

  /** Keeps a record as it is. */
  protected keepRaw(source: SourceRecord, kind: string): RecordVerdict {
    this.keep(source);
    return { kind, fidelity: "preserved" };
  }

  /** Returns an id for the first record that asks for it, and others for those after it. */
  protected unique(nativeId: string): string {
    const nth = (this.copies.get(nativeId) ?? 0) + 1;
    this.copies.set(nativeId, nth);
    return nth === 1 ? nativeId : `${nativeId}#${nth}`;
  }
}
