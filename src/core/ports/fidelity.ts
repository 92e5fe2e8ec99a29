/** The report about a file of another agent: its counts add up to the records that were read. */

/** The fidelity of a record: entries have all of it, or some of it, or nothing. */
export type Fidelity = "preserved" | "derived" | "dropped";

/** The records of one kind, counted by fidelity. */
interface FidelityByKind extends Readonly<Record<Fidelity, number>> {
  readonly kind: string;
  readonly first: number;
}

export interface FidelityWarning {
  /** Number of the record; 0 for one about the whole. */
  readonly record: number;
  readonly sentence: string;
}

export interface FidelityReport {
  readonly agent: string;
  /** Records read: the sum of all counts. */
  readonly records: number;
  /** In the order of their first records. */
  readonly kinds: readonly FidelityByKind[];
  /** The first of the warnings. */
  readonly warnings: readonly FidelityWarning[];
  readonly warningCount: number;
}
