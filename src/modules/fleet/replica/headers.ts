/** The header of a copy, and that of its session in the fleet. */

import { parseSessionHeader, replaceMember } from "../../../core/format/entry.ts";
import { areSameBytes, getMembers, trimLine } from "../../../core/json/json.ts";
import type { Log } from "../../../core/ports/store.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";

/** Returns whether a copy has the header of its session. */
function hasHeader({ headerLine }: Pick<Log, "headerLine">, there: Uint8Array): boolean {
  return areSameBytes(trimLine(headerLine), trimLine(there));
}

/**
 * Returns whether the header of a copy was damaged: it differs from that of its session in more than the directory, to which
 * the copy is moved.
 */
export function isDamagedHeader(copy: Pick<Log, "header" | "headerLine">, there: Uint8Array): boolean {
  if (hasHeader(copy, there) || parseSessionHeader(there)?.id !== copy.header.id) return false;
  const cwd = cwdIn(there);
  return (
    !cwd || !cwdIn(copy.headerLine) || !hasHeader({ headerLine: replaceMember(copy.headerLine, "cwd", cwd) }, there)
  );
}

/** Returns the header of a copy, or the one that was noted for it if the copy's was damaged since. */
export function getSoundHeader(copy: Pick<Log, "header" | "headerLine">, noted: Uint8Array | undefined): Uint8Array {
  return noted && isDamagedHeader(copy, noted) ? noted : copy.headerLine;
}

/** Publishes a copy anew if its header was damaged, and returns whether it did: another log takes the place of this one. */
export function mendHeader(log: ReplicatedLog, there: Uint8Array): boolean {
  if (!log.persisted || !isDamagedHeader(log, there)) return false;
  log.replaceFrom(log.nodes.count, [], { headerLine: there });
  return true;
}

/** Returns the bytes of the directory in a header. */
function cwdIn(line: Uint8Array): Uint8Array | undefined {
  const found = getMembers(line)?.find(({ name }) => name === "cwd");
  return found && line.subarray(found.start, found.end);
}
