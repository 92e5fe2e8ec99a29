/** The contract of the place where replies wait that are too large for memory. */

/** Bytes of one reply that wait outside of memory. */
export interface Spooled {
  readonly bytes: number;
  /** Reads them, block by block, and gives up their place after the last. Throws errno errors. */
  blocks(): Iterable<Uint8Array>;
  /** Gives up their place; nobody reads them any more. */
  release(): void;
}

export interface Spool {
  /** Takes in these pieces. Throws storage_full, storage_failed, and whatever making the pieces throws. */
  take(pieces: Iterable<string | Uint8Array>): Spooled;
}

/** Returns whether a piece of a message waits outside of memory. */
export function isSpooled(piece: string | Uint8Array | Spooled): piece is Spooled {
  return typeof piece === "object" && "blocks" in piece;
}
