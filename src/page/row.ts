/** The rows that the page has of its entries, as the generator writes them and the script reads them. */

/** User, assistant, result, command, other message, compaction, summary, label, name, model, thinking, other entry. */
export type RowKind = "u" | "a" | "r" | "b" | "x" | "c" | "s" | "l" | "n" | "m" | "t" | "o";

/** Members that few rows have; their names are short because there are tens of thousands of them. */
export interface RowMore {
  /** The label. */
  readonly l?: string;
  /** 1 if it failed. */
  readonly f?: 1;
  /** The calls of an answer: names and arguments. */
  readonly c?: readonly (readonly [name: string, argument: string])[];
  /** All tokens, and the cost. */
  readonly u?: readonly number[];
  /** The tool of a result. */
  readonly n?: string;
}

/**
 * A row: the anchor, the position, how far before it its parent is (0: none), kind, first words, time in seconds. Of an
 * entry that came after the page was made, the position is -1, and the parent goes by its id.
 */
export type RowTuple = readonly [
  id: string,
  position: number,
  back: number | string,
  kind: RowKind,
  text: string,
  time: number,
  more?: RowMore,
];
