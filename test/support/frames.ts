/** Payloads in their frames, as the server sends them. */

import { countBytes, type FramingName, frames } from "../../src/server/connection/framing.ts";

/** Returns the pieces of a payload with the text around them. */
export function inFrame(framing: FramingName, pieces: readonly (string | Uint8Array)[]): (string | Uint8Array)[] {
  const { before, piece, after: behind } = frames[framing];
  return [before(countBytes(pieces)), ...pieces.map(piece), behind];
}
