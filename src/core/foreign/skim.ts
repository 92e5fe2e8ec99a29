/**
 * How lists count the messages in the middle of a long file: by how its lines begin. What such a line says is not read.
 * The count may be off by a few where an agent writes one message in several lines; opening the session counts them all.
 */

/** Returns the messages that a line adds; undefined for one that has to be read. */
export type Skim = (line: Uint8Array) => number | undefined;

/** Characters of a line that are looked at. */
const LOOKED_AT = 1024;

/** Returns the beginning of a line. Names and kinds have no other characters than those of Latin 1. */
export function beginningIn(line: Uint8Array): string {
  return Buffer.from(line.buffer, line.byteOffset, Math.min(line.length, LOOKED_AT)).toString("latin1");
}
