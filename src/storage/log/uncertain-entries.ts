/** Entries that remained although their commit failed, because another program had written after them. */
export class UncertainEntries {
  private ranges: { readonly from: number; readonly to: number }[] = [];
  /** The first unreported one. */
  private firstUnreported: number | undefined;

  /** Notes those from a position up to another. */
  add(from: number, to: number): void {
    this.ranges.push({ from, to });
    this.firstUnreported ??= from;
  }

  has(position: number): boolean {
    return this.ranges.some(({ from, to }) => position >= from && position < to);
  }

  /** Returns the position of the first unreported entry, once. */
  takeFirst(): number | undefined {
    const { firstUnreported } = this;
    this.firstUnreported = undefined;
    return firstUnreported;
  }

  /** Number of times that entries stayed. */
  get size(): number {
    return this.ranges.length;
  }

  /** Forgets them, as in a file that was published anew. */
  forget(): void {
    this.ranges = [];
  }
}
