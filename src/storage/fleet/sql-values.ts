/** A row of an answer. */
export type SqlRow = Readonly<Record<string, unknown>>;

/** The values of a statement, each with its number. */
export class SqlValues {
  readonly all: unknown[];

  /** `first`: values whose numbers are known. */
  constructor(...first: unknown[]) {
    this.all = first;
  }

  /** Adds a value. Returns what stands for it in the text. */
  add(value: unknown): string {
    return `$${this.all.push(value)}`;
  }
}
