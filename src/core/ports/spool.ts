/** The contract of the spool, which stores replies that are too large for memory. */

/** The bytes of one reply, kept outside of memory. */
export interface Spooled {
  readonly bytes: number;
  /** Reads them, block by block, and frees their space after the last. Throws errno errors. */
  blocks(): Iterable<Uint8Array>;
  /** Frees their space; they will not be read any more. */
  release(): void;
}

export interface Spool {
  /** Stores these pieces. Throws storage_full, storage_failed, and whatever making the pieces throws. */
  store(pieces: Iterable<string | Uint8Array>): Spooled;
}

/** Returns whether a piece of a message waits outside of memory. */
export function isSpooled(piece: string | Uint8Array | Spooled): piece is Spooled {
  return typeof piece === "object" && "blocks" in piece;
}
