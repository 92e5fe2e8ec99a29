/**
 * Reads the lines of entries from the records of a backend: lines of a file, or frames of segments. Reads adjacent records
 * together, checks each once, and replaces damaged entries by a placeholder.
 */

import { isUtf8 } from "node:buffer";
import { toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { holdsAttachment } from "../../core/format/attachments.ts";
import type { Damage } from "../../core/format/damage.ts";
import type { Batch } from "../../core/format/entry.ts";
import { getFastPath, MAX_BYTES, readLine } from "../../core/json/fast-path.ts";
import { mayHoldSurrogate } from "../../core/json/halves.ts";
import { concat, parse } from "../../core/json/json.ts";
import { LineValidator } from "../../core/json/validate.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Column } from "../../core/tree/nodes.ts";
import { type Disk, readAll } from "../fs/disk.ts";
import { readDiskClock } from "../fs/stamps.ts";
import { AttachmentFolder } from "./attachments.ts";
import type { KnownEntries } from "./known-entries.ts";
import { CHUNK, LF } from "./lines.ts";

/** Half the bytes of the first window. Each window is twice as long as the one before, up to a chunk. */
const MIN_WINDOW = 1 << 13;
/** Most bytes between two records that are read one after the other with a window. */
const NEAR = 1 << 13;

/** Requested entries, from the `first` to before the one at `past`, and the stretch of a file that they lie in. */
export interface Run {
  readonly first: number;
  readonly past: number;
  readonly file: number;
  readonly start: number;
  readonly length: number;
  /** The line of the only entry of the run, if it is not the stored one. */
  readonly override?: Uint8Array;
}

/** Bytes of a file, and whether nothing can have changed them since they became known. */
interface KnownBytes {
  readonly bytes: Buffer;
  readonly isKnown: boolean;
}

/** The records of a backend: their places, and whether they are those of their entries. */
export interface EntrySource {
  /** Start and length of each entry's record, by position. */
  readonly starts: Column<Float64Array>;
  readonly lengths: Column<Uint32Array>;
  /** Number of the file that a record lies in; missing if there is one file only. */
  readonly files?: Column<Uint32Array>;
  /** Bytes between adjacent records: 1 for lines; 0 for frames, which include their line feed. */
  readonly separator: number;
  /** Most bytes between two records that are read together. */
  readonly near: number;
  /** Folder of the attachments. */
  readonly attachments: string;
  /** Returns the descriptor of a file, which is opened if need be. Throws errno errors. */
  descriptor(file: number): number;
  /** Compares bytes that were read after `since` with those that became known, as Watched does. */
  since(file: number, since: number): "same" | "renewed" | "unsure";
  /** Returns the end of the part of a file that may be read ahead; missing without such a part. */
  end?(file: number): number;
  /** Returns the length of an entry's line, without its line feed. */
  lineLength(position: number): number;
  /** Returns the start of an entry's line in its record. */
  lineStart(position: number): number;
  /** Returns whether a record whose line is JSON is the one of its entry. */
  isOf(position: number, record: Uint8Array): boolean;
  /**
   * True if the record is the entry's without a check, provided nothing can have changed its bytes. Making a slice for a
   * check takes 0.2 us.
   */
  readonly trustsKnown?: boolean;
  /** Looks elsewhere for the line of an entry whose record is another's. Returns null if it is not found. */
  elsewhere?(position: number, record: Uint8Array): Uint8Array | null;
  /** Called before an entry whose bytes are damaged gets its placeholder. */
  noteLost(position: number): void;
  /** Returns an addition to the reason of damage in a record. */
  locationOf?(position: number): string;
  /** Yields the lines of a run as they are, each with its line feed. `again` has memory that may be used again. */
  copyRun(positions: ArrayLike<number>, run: Run, again?: { bytes?: Buffer }): Iterable<Uint8Array>;
}

export class EntryReader {
  /** True if the head of some entry may differ from the one that a parser finds in the whole line. */
  isAmbiguous = false;
  isClosed = false;
  private readonly disk: Disk;
  private readonly env: Env;
  private readonly entries: KnownEntries;
  private readonly source: EntrySource;
  private readonly bodies = new LineValidator();
  /** True if bytes may have changed since the heads were read: heads are compared when a line is checked. */
  private isDoubted = false;
  /** A part of a file that was read ahead: so 10,000 entries of 2.5 KB, asked for in order, take 10 ms and not 40. */
  private window: (KnownBytes & { readonly file: number; readonly start: number; readonly end: number }) | undefined;
  /** Bytes of the last window; the next one may hold twice as many. */
  private lastWindow = MIN_WINDOW;
  /** Extent of the record that was read last. */
  private lastRead = { start: -NEAR, end: -NEAR };

  constructor(disk: Disk, env: Env, entries: KnownEntries, source: EntrySource) {
    this.disk = disk;
    this.env = env;
    this.entries = entries;
    this.source = source;
  }

  /** Records that known bytes may have changed: each record is checked again when it is read. */
  doubt(): void {
    this.entries.checked.values.fill(0);
    this.isDoubted = true;
    this.closeWindow();
  }

  /** Discards the window, so that its bytes are read again. */
  closeWindow(): void {
    this.window = undefined;
    this.lastWindow = MIN_WINDOW;
  }

  length(position: number): number {
    return this.entries.overrides.get(position)?.length ?? this.source.lineLength(position);
  }

  read(position: number): Uint8Array {
    this.requireOpen();
    const override = this.entries.overrides.get(position);
    if (override) return override;
    const { bytes, isKnown } = this.recordAt(position);
    return this.sound(position, bytes, isKnown);
  }

  *readMany(positions: ArrayLike<number>, passing = false): Iterable<Uint8Array> {
    const { starts, lengths, near } = this.source;
    let again: Buffer | undefined;
    // A caller that reads one entry after the other uses the bytes that were read ahead, too.
    if (positions.length === 1) yield this.read(positions[0]);
    else
      for (const run of this.runs(positions, near)) {
        if (run.override) {
          yield run.override;
          continue;
        }
        const { bytes, isKnown } = this.knownBytes(run.file, run.start, run.length, again);
        if (passing && bytes.length > (again?.length ?? 0) && bytes.length <= MAX_BYTES) again = bytes;
        // Slices of a Buffer take five times as long to make.
        const plain = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
        const whole = isUtf8(bytes) ? this.checkTogether(positions, run, plain, isKnown) : null;
        for (let i = run.first; i < run.past; i++) {
          const position = positions[i];
          const at = starts.values[position] - run.start;
          const record = plain.subarray(at, at + lengths.values[position]);
          yield whole?.[i - run.first] ? this.lineIn(record, position) : this.sound(position, record, isKnown);
        }
      }
  }

  *copy(positions: ArrayLike<number>, passing = false): Iterable<Uint8Array> {
    // Reading into memory that was never used before takes twice the time.
    const again: { bytes?: Buffer } = {};
    for (const run of this.runs(positions, this.source.separator))
      if (run.override) yield concat([run.override, LF]);
      else yield* this.source.copyRun(positions, run, passing ? again : undefined);
  }

  /**
   * Splits positions into stretches that lie in a file one after the other, with at most `gap` bytes between records. A
   * stretch ends with the record that makes it as long as a chunk. An override is a stretch of its own.
   */
  private *runs(positions: ArrayLike<number>, gap: number): Generator<Run> {
    const { starts, lengths, files, separator } = this.source;
    const { overrides } = this.entries;
    let first = 0;
    while (first < positions.length) {
      this.requireOpen();
      const override = overrides.get(positions[first]);
      if (override) {
        yield { first, past: first + 1, file: 0, start: -1, length: override.length, override };
        first++;
        continue;
      }
      const file = files?.values[positions[first]] ?? 0;
      const start = starts.values[positions[first]];
      let end = start + lengths.values[positions[first]];
      let past = first + 1;
      while (past < positions.length && end - start < CHUNK) {
        const next = starts.values[positions[past]];
        if (next < end + separator || next - end > gap) break;
        if (files && files.values[positions[past]] !== file) break;
        if (overrides.size > 0 && overrides.has(positions[past])) break;
        end = next + lengths.values[positions[past]];
        past++;
      }
      yield { first, past, file, start, length: end - start };
      first = past;
    }
  }

  /** Returns the bytes at an entry's place as they are. */
  record(position: number): Buffer {
    return this.recordAt(position).bytes;
  }

  private recordAt(position: number): KnownBytes {
    const { source, window } = this;
    const file = source.files?.values[position] ?? 0;
    const start = source.starts.values[position];
    const length = source.lengths.values[position];
    if (window && file === window.file && start >= window.start && start + length <= window.end) {
      const bytes = window.bytes.subarray(start - window.start, start - window.start + length);
      return { bytes, isKnown: window.isKnown };
    }
    if (!source.end) return this.knownBytes(file, start, length);
    // A single read does not start a window, and a record as long as a window needs none.
    const reach = Math.min(CHUNK, this.lastWindow * 2);
    const ahead = start >= this.lastRead.end && start - this.lastRead.end < NEAR;
    const back = start + length <= this.lastRead.start && this.lastRead.start - start - length < NEAR;
    this.lastRead = { start, end: start + length };
    if (length >= reach || !(ahead || back)) {
      this.lastWindow = MIN_WINDOW;
      return this.knownBytes(file, start, length);
    }
    this.lastWindow = reach;
    const from = ahead ? start : Math.max(0, start + length - reach);
    const past = Math.min(ahead ? start + reach : start + length, source.end(file));
    if (past < start + length) return this.knownBytes(file, start, length);
    const { bytes, isKnown } = this.knownBytes(file, from, past - from);
    // Another program may change the file while nothing runs here, so the window is kept only while one command works.
    if (!this.window) queueMicrotask(() => this.closeWindow());
    this.window = { file, start: from, end: past, bytes, isKnown };
    return { bytes: bytes.subarray(start - from, start - from + length), isKnown };
  }

  /**
   * Reads bytes of a file, into `again` if they fit there, else into new memory. A check of the stamp takes 1 us and is
   * as sound as to check all bytes again (25 MB take 40 ms). Throws storage_failed.
   */
  knownBytes(file: number, start: number, length: number, again?: Buffer): KnownBytes {
    const since = readDiskClock(this.disk);
    const bytes = this.bytes(file, start, length, again);
    try {
      const found = this.source.since(file, since);
      if (found === "renewed") this.doubt();
      return { bytes, isKnown: found !== "unsure" };
    } catch (error) {
      throw toStorageFailure(error, "reading an entry");
    }
  }

  private requireOpen(): void {
    if (this.isClosed) throw new Failure("storage_failed", "The session was closed while it was read. Open it again.");
  }

  bytes(file: number, start: number, length: number, again?: Buffer): Buffer {
    this.requireOpen();
    const bytes = again && length <= again.length ? again.subarray(0, length) : Buffer.allocUnsafe(length);
    try {
      readAll(this.disk, this.source.descriptor(file), bytes, start);
    } catch (error) {
      throw toStorageFailure(error, "reading an entry");
    }
    return bytes;
  }

  /** Returns the line in the record of an entry. */
  lineIn(record: Uint8Array, position: number): Uint8Array {
    const { source } = this;
    const start = source.lineStart(position);
    const length = source.lineLength(position);
    return length === record.length ? record : record.subarray(start, start + length);
  }

  /** Returns 1 for each whole record of a stretch of UTF-8; the others need the full check of {@link sound}. */
  private checkTogether(positions: ArrayLike<number>, run: Run, bytes: Uint8Array, isKnown: boolean): Uint8Array {
    const { source } = this;
    const { checked } = this.entries;
    const { first, past, start } = run;
    const whole = new Uint8Array(past - first);
    let unchecked = 0;
    let size = 0;
    for (let i = first; i < past; i++) {
      const position = positions[i];
      if (!isKnown || !checked.values[position]) {
        unchecked++;
        size += source.lineLength(position);
      } else {
        const at = source.starts.values[position] - start + source.lineStart(position);
        const feed = bytes.indexOf(0x0a, at);
        if (feed < 0 || feed >= at + source.lineLength(position)) whole[i - first] = 1;
      }
    }
    const fast = unchecked > 0 && bytes.length <= MAX_BYTES ? getFastPath() : null;
    if (!fast) return whole;
    // If most bytes are of other entries, only the lines are copied.
    const isDense = size > bytes.length / 2;
    const isTrusted = this.trusts(isKnown);
    if (isDense) fast.bytes.set(bytes);
    for (let i = first; i < past; i++) {
      const position = positions[i];
      if (whole[i - first] === 1) continue;
      const at = source.starts.values[position] - start;
      const from = at + source.lineStart(position);
      const length = source.lineLength(position);
      if (!isDense) fast.bytes.set(bytes.subarray(from, from + length));
      const messageStart = isDense ? fast.read(from, from + length) : fast.read(0, length);
      if (messageStart < 0) continue;
      if (!isTrusted && !source.isOf(position, bytes.subarray(at, at + source.lengths.values[position]))) continue;
      whole[i - first] = 1;
      if (isKnown) checked.set(position, 1);
      this.entries.nodes.noteMessage(position, messageStart);
    }
    return whole;
  }

  /**
   * Returns the line of a record if it is UTF-8 and the JSON of its entry, else a placeholder with the head of that
   * entry. A record that was checked before is checked again if it may have changed since.
   */
  sound(position: number, record: Uint8Array, isKnown: boolean): Uint8Array {
    const { entries, source } = this;
    const placeholder = entries.placeholders.get(position);
    if (placeholder) return placeholder;
    const line = this.lineIn(record, position);
    if (isUtf8(line) && !line.includes(0x0a)) {
      if (isKnown && entries.checked.values[position]) return line;
      if (this.isEntry(position, record, line, isKnown)) {
        if (isKnown) entries.checked.set(position, 1);
        return line;
      }
    }
    const elsewhere = source.elsewhere?.(position, record);
    if (elsewhere) return elsewhere;
    source.noteLost(position);
    return entries.replace(position);
  }

  /** Returns whether bytes that are JSON are those of their entry without a look. */
  private trusts(isKnown: boolean): boolean {
    return isKnown && !this.isDoubted && this.source.trustsKnown === true;
  }

  /** Returns whether a record holds the line of its entry, and that is UTF-8 and JSON. */
  isWhole(position: number, record: Uint8Array, isKnown: boolean): boolean {
    const line = this.lineIn(record, position);
    return isUtf8(line) && this.isEntry(position, record, line, isKnown);
  }

  /** Returns whether a line that is UTF-8 is the JSON of its entry. */
  private isEntry(position: number, record: Uint8Array, line: Uint8Array, isKnown: boolean): boolean {
    const { bodies } = this;
    let start = readLine(line);
    const isUsual = start >= 0;
    if (!isUsual && !bodies.read(line, 0, line.length)) return false;
    if (!this.trusts(isKnown) && !this.source.isOf(position, record)) return false;
    if (!isUsual) {
      this.isAmbiguous ||= bodies.isAmbiguous;
      start = mayHoldSurrogate(line) || holdsAttachment(line) ? 0 : bodies.messageStart;
    }
    this.entries.nodes.noteMessage(position, start);
    return true;
  }

  get attachments(): AttachmentFolder {
    return new AttachmentFolder(this.disk, this.env, this.source.attachments);
  }

  attachment(position: number, sha256: string, sizeBytes: number): string | null {
    const bytes = this.attachments.find(sha256);
    if (bytes?.length === sizeBytes)
      return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
    const { damage, nodes } = this.entries;
    const entryId = nodes.id(position);
    if (!damage.some((found) => found.kind === "missing_blob" && found.entryId === entryId))
      this.report("missing_blob", position, `the attachment ${sha256} is missing or damaged`, false);
    return null;
  }

  /**
   * Returns the batch at the end that is not complete, with the position of its first entry; null if the last batch is
   * complete. Entries that were appended together count only together, so they were never acknowledged.
   */
  incompleteBatch(session: string): { readonly first: number; readonly batch: Batch } | null {
    const last = this.entries.nodes.count - 1;
    const batch = last < 0 ? null : this.batchOf(last, session);
    if (!batch || batch.index >= batch.count - 1) return null;
    let first = last;
    for (let index = batch.index - 1; index >= 0 && first > 0; index--, first--) {
      const before = this.batchOf(first - 1, session);
      if (before?.index !== index || before.count !== batch.count || before.key !== batch.key) break;
    }
    return { first, batch };
  }

  /** Returns the batch of this session that an entry belongs to, or null. */
  private batchOf(position: number, session: string): Batch | null {
    if (!this.entries.nodes.isBatch(position)) return null;
    const batch = (parse(this.read(position)) as { _batch?: Batch })._batch;
    const counts = Number.isInteger(batch?.index) && Number.isInteger(batch?.count);
    return counts && batch?.session === session && batch.index >= 0 ? batch : null;
  }

  /**
   * Reports that the parent of an entry is not in the session, so that its path begins with it. Programs on Pi's core
   * write results of tools whose parent is the call, and read them so.
   */
  reportOrphan(position: number, parentId: string, lost: string): void {
    const isResult = this.entries.nodes.role(position) === "toolResult";
    const { message } = (isResult ? parse(this.read(position)) : {}) as { message?: { toolCallId?: unknown } };
    if (message?.toolCallId !== parentId) this.report("missing_parent", position, lost, true);
    else {
      const reason = `the parent ${parentId} is a tool call and not an entry, so the path begins here`;
      this.report("parent_is_call", position, reason, true);
    }
  }

  /** Reports damage in the record of an entry. */
  report(kind: Damage["kind"], position: number, reason: string, salvaged: boolean): void {
    const { entries, source } = this;
    entries.addDamage({
      kind,
      line: 0,
      byteOffset: source.starts.values[position],
      length: source.lengths.values[position],
      entryId: entries.nodes.id(position),
      reason: `${reason}${source.locationOf?.(position) ?? ""}`,
      salvaged,
    });
  }
}
