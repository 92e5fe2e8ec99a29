/**
 * The end of a session file as one value. `[0, known)` holds whole lines; with `isUnterminated`, the last of them has
 * no line feed. What a torn write left, if anything, lies in `[torn, size)`. `[0, durable.size)` is on the medium.
 */
export class FileEnd {
  /** Bytes of the file that were read or written. */
  size = 0;
  lines = 0;
  isUnterminated = false;
  /** Offset of what a torn write left, or -1. */
  torn = -1;
  /** Whether only a server of ours can have left it. */
  isTornOurs = false;
  durable = { size: 0, isUnterminated: false };
  /** Whether another program appended after entries of ours that are not durable yet. */
  isMixed = false;

  /** End of the part that need not be judged again. */
  get known(): number {
    return this.torn >= 0 ? this.torn : this.size;
  }

  /** Records where the whole lines end. */
  setWhole(size: number, lines: number): void {
    this.size = size;
    this.lines = lines;
    this.isUnterminated = false;
  }

  /** Records that what lies from this offset on was torn off, or has to be judged again. */
  setTorn(offset: number, isOurs = false): void {
    this.torn = offset;
    this.isTornOurs = isOurs;
  }

  /** Records that everything is durable. */
  noteDurable(): void {
    const { size, isUnterminated } = this;
    this.durable = { size, isUnterminated };
  }
}
