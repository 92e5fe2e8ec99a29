/**
 * Finds changes of other programs to a session file, and adds the entries that they appended. Without the lock, entries
 * after the known part are provisional, because their writer may still be at work; the first check with the lock reads them
 * again.
 */

import { isMissing, toStorageFailure } from "../../core/errno.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Change } from "../../core/ports/store.ts";
import { unpackId } from "../../core/tree/nodes.ts";
import type { FileInfo } from "../fs/disk.ts";
import { isSameFile, isSameStamp } from "../fs/stamps.ts";
import { makeOtherProgramFailure } from "../log/failures.ts";
import type { WriteState } from "../log/write-state.ts";
import type { LineScanner, ScannedParts } from "./scan.ts";

/** Milliseconds without a change after which the writer of a torn tail counts as dead (guarantee 7). */
const STILL = 2000;
const NO_CHANGE: Change = { kind: "none" };
/** Most repetitions of a check: of a file's size, a millisecond apart, and of lines that changed meanwhile. */
const MAX_CHECKS = 20;
/** Never notified: `Atomics.wait` on it is a synchronous sleep. */
const NEVER_NOTIFIED = new Int32Array(new SharedArrayBuffer(4));

export class OtherWriters {
  private readonly env: Env;
  private readonly parts: ScannedParts;
  private readonly scanner: LineScanner;
  private readonly state: WriteState;
  /** True if the file had changed without growing when we appended: then the next check returns "replaced". */
  private isSuspected = false;

  constructor(env: Env, parts: ScannedParts, scanner: LineScanner, state: WriteState) {
    this.env = env;
    this.parts = parts;
    this.scanner = scanner;
    this.state = state;
  }

  /** Checks the file for changes by others. `appending`: the caller will only write after it. Throws storage_failed. */
  checkFile(appending: boolean): Change {
    const { file, records } = this.parts;
    if (!file.isOpen || records.reader.isClosed) return NO_CHANGE;
    try {
      return this.compare(file.disk.info(file.path), appending);
    } catch (error) {
      // All but the first operation are on the open file, which has no path that could be missing.
      if (isMissing(error)) return { kind: "gone" };
      throw toStorageFailure(error, "looking at the session file");
    }
  }

  private compare(found: FileInfo, appending: boolean): Change {
    const { state } = this;
    const { file, end, records } = this.parts;
    const { seen } = file;
    const judging = state.lock.isHeld && !state.isConfirmed;
    const isMoved = !seen || !isSameStamp(found, seen);
    if (this.isSuspected && !appending) return { kind: "replaced" };
    if (!isMoved && !judging) return NO_CHANGE;
    const wasWhole = seen?.size === end.size && end.torn < 0;
    const now = isMoved && wasWhole && found.size === end.size ? this.awaitNewSize(found) : found;
    if (!isSameFile(now, seen ?? file.info())) return { kind: "replaced" };
    if (now.size < end.known || !file.isThere()) return { kind: "replaced" };
    // Changed, but of the same size: something was overwritten, or an append is under way.
    if (isMoved && wasWhole && now.size === end.size) {
      if (!appending) return { kind: "replaced" };
      this.isSuspected = true;
    }
    const change = now.size > end.size || end.torn >= 0 ? this.addGrowth(judging) : NO_CHANGE;
    if (isMoved) {
      file.seen = now;
      records.reader.doubt();
    }
    state.isConfirmed ||= judging;
    return change;
  }

  /** Checks a file again until its size has changed: during an append it gets its new time before its new size. */
  private awaitNewSize(now: FileInfo): FileInfo {
    const { file, end } = this.parts;
    try {
      for (let checks = 0; checks < MAX_CHECKS && now.size === end.size; checks++) {
        Atomics.wait(NEVER_NOTIFIED, 0, 0, 1);
        now = file.disk.info(file.path);
      }
    } catch {
      // It was removed; the next check reports that.
    }
    return now;
  }

  /**
   * Adds the entries after the known part. A line or batch at the end that is not complete is read again by the next
   * check, and is reported as damage only once its writer is known to be dead.
   */
  private addGrowth(judging: boolean): Change {
    const { scanner, state } = this;
    const { file, entries, records, end } = this.parts;
    const { nodes, damage } = entries;
    const first = nodes.count;
    const { isUnterminated, lines } = end;
    let known = 0;
    for (let checks = 0; ; checks++) {
      const from = end.known;
      if (end.torn >= 0) this.forgetTailDamage();
      end.setTorn(-1);
      known = damage.length;
      let isTrue = false;
      end.isUnterminated = false;
      scanner.isGrowing = true;
      try {
        scanner.scan(from);
        if (end.size === from) end.isUnterminated = isUnterminated;
        this.dropIncompleteBatch();
        file.readEdges(end.known);
        isTrue = state.lock.isHeld || checks === MAX_CHECKS || records.holdsNodes(first, from);
      } finally {
        scanner.isGrowing = false;
        if (!isTrue) {
          // Restores the state from before the check.
          this.forgetFrom(first);
          damage.length = known;
          Object.assign(end, { isUnterminated, lines, size: from, torn: from });
          file.seen = undefined;
        }
      }
      if (isTrue) break;
    }
    if (end.torn >= 0 && !(judging && this.isWriterGone)) this.forgetTailDamage(known);
    this.cutCycles();
    if (state.durableCount < first) end.isMixed = true;
    else {
      // Other programs make their own entries durable; here these count as durable once they are known.
      state.durableCount = nodes.count;
      end.noteDurable();
    }
    if (nodes.count === first && damage.length === known) return NO_CHANGE;
    return { kind: "grown", first };
  }

  /** Adds the line that a torn write at the end is once a line feed follows it. */
  readTail(): void {
    this.addGrowth(false);
  }

  /** Finds our lines after another program wrote at the same time: only the file shows where. Throws storage_failed. */
  findOwn(lines: readonly Uint8Array[]): void {
    const { state } = this;
    const { file, entries, end } = this.parts;
    const { heads, nodes } = entries;
    const { durableCount } = state;
    const { durable } = end;
    file.seen = undefined;
    this.addGrowth(false);
    // Our lines are not on the medium yet.
    state.durableCount = durableCount;
    Object.assign(end, { durable, isMixed: true });
    for (const line of lines) {
      const fault = heads.readAny(line, 0, line.length, () => "");
      const id = heads.packedId >= 0 ? unpackId(heads.packedId) : heads.id;
      if (fault === null && nodes.position(id) >= 0) continue;
      throw makeOtherProgramFailure(
        "wrote to the session's file at the same time, and an entry was damaged",
        undefined,
        "get_entries shows the entries that are there.",
      );
    }
  }

  cutCycles(): void {
    const { entries, records } = this.parts;
    for (const position of entries.nodes.cutCycles())
      records.reader.report("cycle", position, "parents form a cycle; it is cut here", true);
  }

  forgetFrom(count: number): void {
    this.parts.records.reader.closeWindow();
    this.parts.entries.forgetFrom(count);
  }

  /** Removes the damage that was reported at the end of the file, unless its bytes were moved to quarantine since. */
  private forgetTailDamage(from = 0): void {
    const { entries, end } = this.parts;
    const { damage } = entries;
    for (let i = damage.length - 1; i >= from; i--) {
      const { kind, byteOffset, keptAt } = damage[i];
      const isOfTail = kind === "torn_tail" || kind === "incomplete_batch";
      if (isOfTail && keptAt === undefined && byteOffset >= end.torn) damage.splice(i, 1);
    }
  }

  /** Drops an incomplete batch at the end of the file. */
  dropIncompleteBatch(): void {
    const { end, entries, records } = this.parts;
    const found = records.reader.incompleteBatch(this.scanner.stored?.header.id ?? "");
    if (!found) return;
    const { first, batch } = found;
    const dropped = entries.nodes.count - first;
    const reason = `${batch.index + 1} of ${batch.count} entries that belong together`;
    records.reader.report("incomplete_batch", first, reason, false);
    // Only a server of ours marks batches. The lock holder knows that this one's writer is dead.
    end.setTorn(records.starts.values[first], true);
    end.lines -= dropped - (end.isUnterminated ? 1 : 0);
    end.isUnterminated = false;
    this.forgetFrom(first);
  }

  /** True if no program will continue the torn write at the end. Only the lock holder knows. */
  get isWriterGone(): boolean {
    const { file, end } = this.parts;
    if (end.isTornOurs || this.state.lock.previousHolderDied) return true;
    const now = this.env.now();
    return now - (file.seen?.modified ?? now) >= STILL;
  }
}
