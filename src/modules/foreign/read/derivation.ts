/**
 * Takes the records of one file through a translation: lines of entries come out, and every record is counted. Records
 * that are damaged, or that a translator fails on, are kept raw and cost nothing else.
 */

import { Ids } from "../../../core/foreign/ids.ts";
import { decodeText, parse, parseAbridged, toJsonText } from "../../../core/json/json.ts";
import type { Env } from "../../../core/ports/env.ts";
import type { FidelityReport } from "../../../core/ports/fidelity.ts";
import { Tally } from "./fidelity.ts";
import { EntryLines } from "./lines.ts";
import { hashQuickly, LONGEST_SURVEYED } from "./survey.ts";
import type { AboutSession, EntryIds, RecordVerdict, TranslatedEntry, Translation, Translator } from "./translator.ts";

/** Bytes of a damaged record that are kept raw; the rest stays in the agent's file alone. */
export const MOST_KEPT = 1 << 20;

/** Lines that are not settled yet, and whether the agent is in the middle of one. */
export interface WaitingLines {
  readonly lines: readonly Uint8Array[];
  readonly isPartial: boolean;
}

/** Receives settled entries: as lines without line feed, or as they are, for a first look (`survey.ts`). */
export type EntrySink =
  | { readonly line: (bytes: Uint8Array) => void }
  | { readonly entry: (entry: TranslatedEntry) => void };

export class Derivation {
  readonly agent: string;
  private readonly ids: EntryIds;
  private readonly translation: Translation;
  private readonly tally: Tally;
  private readonly lines = new EntryLines();
  /** The ids of the entries that were emitted. */
  private readonly emitted = new Set<string>();
  /** The number that was added last to an id that several entries have, by that id. */
  private readonly repeated = new Map<string, number>();
  private lastId: string | null = null;
  /** The beginning of the names of kinds. */
  private kinds = "";

  /** Returns the value of a record. */
  private readonly parse: (bytes: Uint8Array) => unknown;

  /** `comesLater`: see TranslationTools. By default, every record comes after those that it names. */
  constructor(
    translator: Translator,
    env: Pick<Env, "sha256">,
    name: string,
    sink: EntrySink,
    comesLater: (id: string) => boolean = () => false,
  ) {
    const { agent } = translator;
    const isSurvey = "entry" in sink;
    const sha256 = isSurvey ? hashQuickly : env.sha256;
    this.agent = agent;
    // Within one file, the agent's own ids are as unique.
    this.ids = isSurvey ? { entry: (nativeId) => nativeId } : new Ids(agent, sha256);
    this.tally = new Tally(agent);
    this.parse = isSurvey ? (bytes) => parseAbridged(bytes, LONGEST_SURVEYED) : parse;
    const emit = isSurvey
      ? sink.entry
      : (entry: TranslatedEntry): void => sink.line(this.lines.of(this.sound(entry, this.emitted)));
    this.translation = translator.begin({ agent, ids: this.ids, sha256, emit, isSurvey, name, comesLater });
  }

  /** Takes the records of a file that this one continues, up to that point. */
  inherit(run: () => void): void {
    this.kinds = "inherited/";
    run();
    this.kinds = "";
  }

  mark(): void {
    this.translation.mark?.();
  }

  back(): void {
    this.translation.back?.();
  }

  /** True if the file has to be read anew, because its records are in another order than was known. */
  get isOvertaken(): boolean {
    return this.translation.isOvertaken?.() === true;
  }

  /** Reports something that is about no record. */
  warn(sentence: string): void {
    this.tally.warn(0, sentence);
  }

  private note(record: number, verdict: RecordVerdict): void {
    this.tally.note(record, this.kinds === "" ? verdict : { ...verdict, kind: `${this.kinds}${verdict.kind}` });
  }

  /** Takes the next record; returns false, and does nothing, for one that is no JSON. `bytes` may be overwritten afterwards. */
  take(bytes: Uint8Array, number: number): boolean {
    if (isBlank(bytes)) {
      this.note(number, { kind: "(blank line)", fidelity: "dropped" });
      return true;
    }
    let value: unknown;
    try {
      value = this.parse(bytes);
    } catch {
      return false;
    }
    const record = { bytes, value, number };
    try {
      const verdict = this.translation.take(record);
      if (verdict.isRaw) this.translation.keep(record);
      this.note(number, verdict);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      const warning = `The record was not understood and is kept as it is: ${reason}.`;
      this.translation.keep(record, { customType: `import:${this.agent}`, data: new Uint8Array(bytes) });
      this.note(number, { kind: "(not understood)", fidelity: "preserved", warning });
    }
    return true;
  }

  /** Counts bytes after the last whole record, which the agent may still be writing. */
  unfinished(number: number): FidelityReport {
    const { records, kinds, ...rest } = this.tally.report();
    const kind = { kind: "(unfinished line)", first: number, preserved: 0, derived: 0, dropped: 1 };
    return { records: records + 1, kinds: [...kinds, kind], ...rest };
  }

  report(): FidelityReport {
    return this.tally.report();
  }

  waitingEntries(): readonly TranslatedEntry[] {
    return this.translation.pending().entries;
  }

  waiting(): WaitingLines {
    const { entries, isPartial } = this.translation.pending();
    const { lastId } = this;
    const more = new Set<string>();
    const made = isPartial ? entries.map((entry) => this.partial(entry)) : entries;
    const lines = made.map((entry) => this.lines.of(this.sound(entry, more)));
    this.lastId = lastId;
    return { lines, isPartial };
  }

  /**
   * Returns an incomplete entry, which becomes another one when it is complete. An imported copy of it then stays as an
   * entry of its own.
   */
  private partial({ members, ...entry }: TranslatedEntry): TranslatedEntry {
    const id = this.ids.entry(`partial:${entry.id}:${toJsonText(members).length}`);
    return { ...entry, id, members: { ...members, partial: true } };
  }

  /** Returns an entry whose id no other has and whose parent is there, whatever a translator made of a strange file. */
  private sound(entry: TranslatedEntry, into: Set<string>): TranslatedEntry {
    const { emitted } = this;
    const isThere = (id: string): boolean => emitted.has(id) || (into !== emitted && into.has(id));
    let { id, parentId } = entry;
    if (isThere(id)) {
      // Numbers go on: to try each of them again would take a file of one id as long as its square.
      let n = this.repeated.get(entry.id) ?? 1;
      while (isThere(id)) id = `${entry.id}-${++n}`;
      if (into === emitted) this.repeated.set(entry.id, n);
    }
    if (parentId !== null && parentId !== this.lastId && !isThere(parentId)) parentId = this.lastId;
    into.add(id);
    this.lastId = id;
    return id === entry.id && parentId === entry.parentId ? entry : { ...entry, id, parentId };
  }

  about(): AboutSession {
    return this.translation.about();
  }

  /** Counts further lines of a record that was written in several, beginning with `number`. */
  noteContinued(number: number, lines: number): void {
    for (let n = 1; n < lines; n++) this.note(number + n, { kind: "(continued line)", fidelity: "preserved" });
  }

  /** Keeps bytes that are no record. */
  keepDamaged(bytes: Uint8Array, number: number): void {
    const kind = "(damaged line)";
    if (bytes.length > MOST_KEPT) {
      const warning = `The record is damaged. Its ${bytes.length} bytes are only in the agent's own file.`;
      return this.note(number, { kind, fidelity: "dropped", warning });
    }
    const data = { record: number, ...textOrBase64(bytes) };
    this.translation.keep({ bytes, value: undefined, number }, { customType: `import:${this.agent}:damaged`, data });
    this.note(number, {
      kind,
      fidelity: "preserved",
      warning: "The record is damaged. Its bytes are kept as they are.",
    });
  }
}

function isBlank(bytes: Uint8Array): boolean {
  if (bytes[0] > 0x20 || bytes.length > 1000) return false;
  return bytes.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d);
}

function textOrBase64(bytes: Uint8Array): { text: string } | { base64: string } {
  try {
    return { text: decodeText(bytes) };
  } catch {
    return { base64: Buffer.from(bytes).toString("base64") };
  }
}
