/** The fidelity report: the fidelity of each record of another agent's file. Its counts add up to the records read. */

import type { Fidelity, FidelityReport, FidelityWarning } from "../../../core/ports/fidelity.ts";
import type { RecordVerdict } from "./translator.ts";

/** Limits on distinct kinds and kept warnings: a hostile file may have as many as it has records. */
const MOST_KINDS = 500;
const MOST_WARNINGS = 100;
const OTHER_KINDS = "(other kinds)";
/** Characters of the name of a kind, which a file may choose. */
const LONGEST_KIND = 80;

export class Tally {
  private readonly agent: string;
  private readonly kinds = new Map<string, { first: number } & Record<Fidelity, number>>();
  private readonly warnings: FidelityWarning[] = [];
  private warningCount = 0;
  private records = 0;

  constructor(agent: string) {
    this.agent = agent;
  }

  note(record: number, { kind, fidelity, warning }: RecordVerdict): void {
    // Nearly all are of kinds that were seen before, under this name.
    const counts = this.kinds.get(kind) ?? this.countsOf(printable(kind), record);
    counts[fidelity]++;
    // Trees are not written in the order of their numbers.
    if (record < counts.first) counts.first = record;
    this.records++;
    if (warning !== undefined) this.warn(record, warning);
  }

  private countsOf(name: string, record: number): { first: number } & Record<Fidelity, number> {
    const key = this.kinds.has(name) || this.kinds.size < MOST_KINDS ? name : OTHER_KINDS;
    let counts = this.kinds.get(key);
    if (!counts) {
      counts = { first: record, preserved: 0, derived: 0, dropped: 0 };
      this.kinds.set(key, counts);
    }
    return counts;
  }

  warn(record: number, sentence: string): void {
    this.warningCount++;
    if (this.warnings.length < MOST_WARNINGS) this.warnings.push({ record, sentence });
  }

  report(): FidelityReport {
    const { agent, records, warningCount } = this;
    const kinds = Array.from(this.kinds, ([kind, counts]) => ({ kind, ...counts }));
    return { agent, records, kinds, warnings: [...this.warnings], warningCount };
  }
}

/** Returns the name of a kind without characters that could do harm on a screen. */
function printable(kind: string): string {
  const short = kind.length > LONGEST_KIND ? `${kind.slice(0, LONGEST_KIND - 1)}…` : kind;
  return short.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, "?");
}
