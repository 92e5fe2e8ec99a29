/** The pictures of an exported page: as many as browsers open, and a description of the others. */

/** Characters of the data of all pictures of a page: browsers draw pages of some hundred MB, and none of gigabytes. */
const MOST = 100 << 20;

/** The mark in place of the data of a picture that is left out. */
export class LeftOut {
  /** Characters of its data. */
  readonly length: number;
  constructor(length: number) {
    this.length = length;
  }
}

/** The room that a page has for pictures, which the first ones get. */
export class PictureLimit {
  pictures = 0;
  /** Bytes of the pictures that are left out. */
  bytes = 0;
  private left: number;

  constructor(most = MOST) {
    this.left = most;
  }

  /** Returns content with the pictures that fit the limit. */
  fitted(content: unknown): unknown {
    return Array.isArray(content) ? content.map((block) => this.fittedBlock(block)) : content;
  }

  private fittedBlock(block: unknown): unknown {
    const { type, data } = (block ?? {}) as { type?: unknown; data?: unknown };
    if (type !== "image" || typeof data !== "string") return block;
    if (data.length <= this.left) {
      this.left -= data.length;
      return block;
    }
    this.pictures++;
    this.bytes += Math.floor((data.length * 3) / 4);
    return { ...(block as object), data: new LeftOut(data.length) };
  }
}
