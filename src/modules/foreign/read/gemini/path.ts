/** The messages of a Gemini conversation as it is now, each with its place among our entries. */

/** A message of the conversation. */
export interface GeminiTurn {
  id: string;
  /** Its mark; empty while it is open. */
  mark: string;
  /** The entry that it continues. */
  readonly before: string | null;
  /** The first entry that was made of it. */
  first: string | null;
}

/** Turns after the kept ones among which a compaction looks for these. */
const REACH = 200;

export class GeminiPath {
  readonly turns: GeminiTurn[] = [];
  private readonly places = new Map<string, number>();

  push(turn: GeminiTurn): void {
    this.places.set(turn.id, this.turns.length);
    this.turns.push(turn);
  }

  /** Returns the place of the message with an id; -1 if it is not in the conversation now. */
  indexOf(id: string): number {
    const index = this.places.get(id) ?? -1;
    return this.turns[index]?.id === id ? index : -1;
  }

  /** Gives a turn another id, which later records use. */
  rename(index: number, id: string): void {
    this.turns[index].id = id;
    this.places.set(id, index);
  }

  /** Returns how many turns at the beginning have these marks. */
  beginsWith(marks: readonly string[]): number {
    const most = Math.min(marks.length, this.turns.length);
    let same = 0;
    while (same < most && this.turns[same].mark === marks[same]) same++;
    return same;
  }

  /** Returns the index of consecutive turns with these marks; -1 if there are none. */
  placeOf(marks: readonly string[], from: number): number {
    const { turns } = this;
    if (marks.length === 0) return -1;
    const last = turns.length - marks.length;
    for (let at = last; at >= from && at > last - REACH; at--)
      if (marks.every((mark, n) => turns[at + n].mark === mark)) return at;
    return -1;
  }
}
