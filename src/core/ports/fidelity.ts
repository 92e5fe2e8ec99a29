/** The report about a file of another agent: its counts add up to the records that were read. */

/** The lot of a record: all that it says is in entries, or some of it, or nothing. */
export type Fate = "preserved" | "derived" | "dropped";

/** The records of one kind by what became of them. */
interface KindFate extends Readonly<Record<Fate, number>> {
  readonly kind: string;
  /** Number of the first record of the kind. */
  readonly first: number;
}

export interface FidelityWarning {
  /** Number of the record; 0 for one about the whole. */
  readonly record: number;
  readonly sentence: string;
}

export interface Fidelity {
  readonly agent: string;
  /** Records read: the sum of all counts. */
  readonly records: number;
  /** In the order of their first records. */
  readonly kinds: readonly KindFate[];
  /** The first of the warnings. */
  readonly warnings: readonly FidelityWarning[];
  readonly warningCount: number;
}
