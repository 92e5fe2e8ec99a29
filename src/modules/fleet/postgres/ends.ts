/** The ends of sequences of lines: two places with equal ends have the same lines. */

import { concat, trimLine } from "../../../core/json/json.ts";
import type { Fleet, FleetEnd } from "../../../core/ports/fleet.ts";
import type { Log } from "../../../core/ports/store.ts";
import { extendChain, GENESIS, sha256 } from "../../../storage/v2/frame.ts";

/** Default of FleetOptions.heldBytes. */
export const HELD_BYTES = 64 << 20;

/** The end of a session without entries. */
export const NOTHING: FleetEnd = { entries: 0, bytes: 0, chain: GENESIS };

/** Returns the end after more lines. Spaces around a line do not count, because containers do not keep them. */
export function extendEnd(before: FleetEnd, lines: Iterable<Uint8Array>): FleetEnd {
  let { entries, bytes, chain } = before;
  for (const line of lines) {
    const payload = trimLine(line);
    chain = extendChain(chain, sha256(payload));
    bytes += payload.length;
    entries++;
  }
  return { entries, bytes, chain };
}

export function isSameEnd(a: FleetEnd, b: FleetEnd): boolean {
  return a.entries === b.entries && a.chain === b.chain;
}

/** Returns the end of the first `count` entries of a log; `known` is an end of its first entries. */
export function computeEnd(log: Log, count: number, known: FleetEnd): FleetEnd {
  const before = known.entries <= count ? known : NOTHING;
  return extendEnd(before, storedLines(log, before.entries, count));
}

/** Returns the position after the lines from one on, at least one, that have so many bytes together. */
export function findPositionAfter(log: Log, from: number, count: number, bytes: number): number {
  let past = from;
  for (let sum = 0; past < count && (past === from || sum + log.length(past) <= bytes); past++) sum += log.length(past);
  return past;
}

/** Bytes of lines that are hashed in one turn: 15 ms. */
const IN_A_TURN = 5 << 20;

/**
 * Does the same as `computeEnd`, and lets other work run in between: a long session takes a second. Returns null if the
 * log has fewer entries then.
 */
export async function computeEndInTurns(log: Log, count: number, known: FleetEnd): Promise<FleetEnd | null> {
  let end = known.entries <= count ? known : NOTHING;
  for (;;) {
    if (log.nodes.count < count) return null;
    end = computeEnd(log, findPositionAfter(log, end.entries, count, IN_A_TURN), end);
    if (end.entries === count) return end;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Returns whether a log begins with the lines before an end. */
export async function beginsWith(log: Log, end: FleetEnd): Promise<boolean> {
  const here = await computeEndInTurns(log, end.entries, NOTHING);
  return here !== null && isSameEnd(here, end);
}

/** Returns the end of the first `count` lines of a session in the fleet. */
export async function fetchEnd(fleet: Pick<Fleet, "lines">, sessionId: string, count: number): Promise<FleetEnd> {
  let end = NOTHING;
  for await (const lines of fleet.lines(sessionId, 0, count)) end = extendEnd(end, lines);
  return end;
}

/** Returns an end, if a log begins with those lines; the first ones are known to end at `known`. */
export function findPrefix(log: Log, there: FleetEnd, known: FleetEnd): FleetEnd | null {
  return isSameEnd(computeEnd(log, there.entries, known), there) ? there : null;
}

/** Yields the lines of a log as they are stored, each valid until the next is asked for. */
function* storedLines(log: Log, from: number, to: number): Generator<Uint8Array> {
  const positions = Int32Array.from({ length: to - from }, (_, i) => from + i);
  let position = from;
  let held: Uint8Array = new Uint8Array(0);
  for (const piece of log.copy(positions)) {
    held = held.length === 0 ? piece : concat([held, piece]);
    let at = 0;
    for (; position < to && at + log.length(position) < held.length; position++) {
      const past = at + log.length(position);
      yield held.subarray(at, past);
      at = past + 1;
    }
    held = held.subarray(at);
  }
}

/** Returns the end that a row of the database has. */
export function parseEnd(row: Readonly<Record<string, unknown>>): FleetEnd {
  const chain = Buffer.from(row.chain as Uint8Array).toString("hex");
  return { entries: Number(row.entries), bytes: Number(row.bytes), chain };
}

/** Returns the lines between two ends, "long" if they have more bytes than are held, null if one does not lead to the other. */
export async function fetchLinesBetween(
  fleet: Fleet,
  sessionId: string,
  here: FleetEnd,
  there: FleetEnd,
  most = HELD_BYTES,
): Promise<readonly Uint8Array[] | "long" | null> {
  const isLong = there.bytes - here.bytes > most;
  const held: Uint8Array[] = [];
  let end = here;
  for await (const lines of fleet.lines(sessionId, here.entries, there.entries)) {
    end = extendEnd(end, lines);
    if (!isLong) for (const line of lines) held.push(line);
  }
  if (!isSameEnd(end, there)) return null;
  return isLong ? "long" : held;
}
