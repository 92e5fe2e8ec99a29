/**
 * Sessions as JSONL files, Pi's format versions 1 to 3 (session-format reference). Opening scans line ends and the
 * heads of lines; bodies are read by offset when they are asked for.
 */

import { isUtf8 } from "node:buffer";
import { dirname } from "node:path";
import type { Damage } from "../damage.ts";
import { type Batch, CURRENT_VERSION, patchMembers, type SessionHeader } from "../entry.ts";
import type { Env } from "../env.ts";
import { Failure } from "../failure.ts";
import { HEAD_BYTES, HeadReader } from "../head.ts";
import { bytesOf, concat, isJson, memberOf, members, parse, sameBytes } from "../json.ts";
import { idOfLine, migrateHeader, migrateV1, migrateV2 } from "../migrate.ts";
import { Column, Nodes } from "../nodes.ts";
import {
  type Disk,
  exists,
  publishNew,
  readAll,
  removeQuietly,
  storageFailure,
  temporaryName,
  writeAll,
} from "./disk.ts";
import { addHead } from "./memory.ts";
import type { Beginning, FileStamp, Log, Store } from "./store.ts";

export type Durability = "sync" | "os";

export interface JsonlOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly durability: Durability;
  /** Where a new session's file goes. */
  readonly fileFor: (header: SessionHeader) => string;
  readonly readOnly?: boolean;
}

const LF = bytesOf("\n");
/** Bytes of one read while scanning or copying. Two of them fit the second-level cache. */
const CHUNK = 1 << 20;
/** A line longer than this is not looked at again when the end of a file is checked. */
const CHECKED_TAIL_LINE = 1 << 20;
/** Lines at the end of a file whose bodies are checked at opening (reliability cases, guarantee 6). */
const CHECKED_TAIL = 64;

class JsonlLog implements Log {
  readonly store = "jsonl";
  readonly file: string;
  header!: SessionHeader;
  headerLine!: Uint8Array;
  version = CURRENT_VERSION;
  readonly nodes = new Nodes();
  readonly damage: Damage[] = [];
  readOnly: Failure | null = null;
  durableCount = 0;

  private readonly disk: Disk;
  private readonly env: Env;
  private readonly durability: Durability;
  private readonly heads = new HeadReader(this.nodes);
  private readonly starts = new Column(new Float64Array(16));
  private readonly lengths = new Column(new Uint32Array(16));
  private readonly checked = new Column(new Uint8Array(16));
  /** Lines that are not in the file as they are here: migrated, given an id, or waiting for the first append. */
  private readonly overrides = new Map<number, Uint8Array>();
  private fd = -1;
  private writable = false;
  /** The file must be published anew before anything is appended (an old version, a header with a leaf). */
  private rewrite = false;
  /** The last line has no line feed. */
  private unterminated = false;
  private size = 0;
  private durableSize = 0;
  /** Folders that hold names which are not yet on the medium. */
  private looseFolders: string[] = [];
  /** Set between the creation of the file and its first commit. */
  private created: Uint8Array[] | null = null;
  private closed = false;

  constructor(options: JsonlOptions, file: string) {
    this.disk = options.disk;
    this.env = options.env;
    this.durability = options.durability;
    this.file = file;
    if (options.readOnly) this.readOnly = new Failure("read_only");
  }

  get persisted(): boolean {
    return this.fd >= 0;
  }

  get stamp(): FileStamp | null {
    if (this.fd < 0) return null;
    const { device, inode, size, modified } = this.disk.infoOf(this.fd);
    return { device, inode, size, modified };
  }

  // --- opening -------------------------------------------------------------------------------------------------

  begin(beginning: Beginning): this {
    this.header = beginning.header;
    this.headerLine = beginning.headerLine;
    return this;
  }

  open(): this {
    try {
      this.fd = this.disk.openRead(this.file);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT" || code === "ENOTDIR")
        throw new Failure("session_not_found", `There is no file at ${this.file}. list_sessions shows the sessions.`, {
          sessionPath: this.file,
        });
      if (code === "ENXIO") throw notASession(this.file, "it is not a regular file");
      throw storageFailure(error, "opening the session");
    }
    try {
      const { kind, size } = this.disk.infoOf(this.fd);
      if (kind !== "file") throw notASession(this.file, "it is not a regular file");
      this.size = size;
      this.scan();
      for (const position of this.nodes.cutCycles())
        this.report("cycle", position, "parents form a cycle; it is cut here", true);
      for (const [position, parentId] of this.nodes.missingParent)
        this.report("missing_parent", position, `the parent ${parentId} is not in the file`, true);
      this.dropIncompleteBatch();
      this.checkTail();
    } catch (error) {
      this.close();
      throw storageFailure(error, "reading the session");
    }
    this.durableCount = this.nodes.count;
    this.durableSize = this.size;
    return this;
  }

  /** One pass over the file in chunks: line ends and heads. A line that does not fit a chunk is looked at by its ends. */
  private scan(): void {
    const chunk = Buffer.allocUnsafe(CHUNK);
    let lineNumber = 0;
    let lineStart = 0;
    let held = 0;
    let offset = 0;
    let long: { head: Buffer; last: number; before: number } | undefined;
    for (;;) {
      const count = this.disk.read(this.fd, chunk, held, CHUNK - held, offset);
      if (count <= 0) break;
      const filled = held + count;
      let at = 0;
      let searched = held;
      for (;;) {
        const end = chunk.subarray(0, filled).indexOf(0x0a, searched);
        if (end < 0) break;
        lineNumber++;
        const length = offset - held + end - lineStart;
        if (long) {
          if (end > 0) long.before = end > 1 ? chunk[end - 2] : long.last;
          this.takeLong(lineNumber, lineStart, length, long.head, end > 0 ? chunk[end - 1] : long.last, long.before);
        } else this.takeLine(lineNumber, lineStart, chunk, at, end);
        long = undefined;
        lineStart += length + 1;
        at = end + 1;
        searched = at;
      }
      offset += count;
      if (long) {
        long.before = filled > 1 ? chunk[filled - 2] : long.last;
        long.last = chunk[filled - 1];
        held = 0;
      } else if (at === 0 && filled === CHUNK) {
        long = { head: Buffer.from(chunk.subarray(0, HEAD_BYTES)), last: chunk[filled - 1], before: chunk[filled - 2] };
        held = 0;
      } else {
        chunk.copy(chunk, 0, at, filled);
        held = filled - at;
      }
    }
    this.size = offset;
    if (lineStart < offset) this.takeTail(lineNumber + 1, lineStart, offset - lineStart);
    if (!this.header) throw notASession(this.file, offset === 0 ? "it is empty" : "it has no header line");
  }

  private takeLong(
    lineNumber: number,
    start: number,
    length: number,
    head: Buffer,
    last: number,
    before: number,
  ): void {
    const end = last === 0x0d ? before : last;
    const trimmed = last === 0x0d ? length - 1 : length;
    if (this.header && this.version === CURRENT_VERSION && end === 0x7d && this.heads.read(head, 0, head.length))
      this.place(start, trimmed, 0);
    else {
      const line = Buffer.allocUnsafe(length);
      readAll(this.disk, this.fd, line, start);
      this.takeLine(lineNumber, start, line, 0, length);
    }
  }

  /** The line `b[at, end)`, which stands at `start` in the file. */
  private takeLine(lineNumber: number, start: number, b: Uint8Array, at: number, end: number): void {
    let past = end;
    if (past > at && b[past - 1] === 0x0d) past--;
    if (!this.header) {
      this.takeHeader(lineNumber, start, b.subarray(at, past));
      return;
    }
    if (
      this.version === CURRENT_VERSION &&
      past > at &&
      b[past - 1] === 0x7d &&
      this.heads.read(b, at, Math.min(past, at + HEAD_BYTES))
    ) {
      this.place(start, past - at, 0);
      return;
    }
    this.takeUnusual(lineNumber, start, b.subarray(at, past));
  }

  private takeUnusual(lineNumber: number, start: number, line: Uint8Array): void {
    if (isBlank(line)) return;
    if (!isUtf8(line)) return this.badLine("bad_line", lineNumber, start, line.length, "the line is not UTF-8");
    if (this.version < CURRENT_VERSION) return this.takeOld(lineNumber, start, line);
    let madeId: string | undefined;
    const fault = this.heads.parse(line, 0, line.length, () => {
      madeId = idOfLine(lineNumber, line, this.env.sha256, (id) => this.nodes.position(id) >= 0);
      return madeId;
    });
    if (fault !== null) return this.badLine("bad_line", lineNumber, start, line.length, `the line is ${fault}`);
    if (this.nodes.typeCode("session") === this.heads.type)
      return this.badLine("extra_header", lineNumber, start, line.length, "a second header");
    const position = this.place(start, line.length, 1);
    if (madeId !== undefined) {
      this.report("missing_id", position, "the entry has no id; it got one from its line", true);
      this.overrides.set(position, withId(line, madeId));
    }
  }

  /** Records where the entry lies whose head has just been read. */
  private place(start: number, length: number, checked: number): number {
    const { aliases } = this.nodes;
    const position = this.nodes.add(this.heads);
    this.starts.set(position, start);
    this.lengths.set(position, length);
    this.checked.set(position, checked);
    if (this.nodes.aliases > aliases) this.takeAlias(position);
    return position;
  }

  /** An id that is taken: the same bytes again are no second entry, other bytes keep an id of their own. */
  private takeAlias(position: number): void {
    const id = this.nodes.id(position);
    const original = id.slice(0, id.lastIndexOf("~"));
    const first = this.nodes.position(original);
    if (first < 0 || first === position) return;
    const line = this.bytesAt(position);
    const same = sameBytes(line, this.bytesAt(first));
    this.report(
      "duplicate_id",
      position,
      same ? `the entry ${original} stands here again` : `the id ${original} is taken; this entry is called ${id}`,
      true,
    );
    if (same) this.nodes.truncate(position);
    else this.overrides.set(position, patchMembers(line, { id: bytesOf(JSON.stringify(id)) }));
  }

  private takeHeader(lineNumber: number, start: number, bytes: Uint8Array): void {
    const bom = start === 0 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    const line = bytes.slice(bom);
    if (isBlank(line)) return;
    let header: unknown;
    try {
      header = parse(line);
    } catch {
      throw notASession(this.file, `line ${lineNumber} is not JSON`);
    }
    if (!isHeader(header))
      throw notASession(this.file, `line ${lineNumber} is not a header with type session and an id`);
    this.header = header;
    this.headerLine = line;
    this.version = versionOf(header.version);
    if (this.version > CURRENT_VERSION || this.version < 1) {
      const reason = `format version ${JSON.stringify(header.version)}; this server writes version ${CURRENT_VERSION}`;
      this.readOnly = new Failure("unsupported_version", `The session has ${reason}. It can be read, not written.`);
      this.badLine("newer_version", lineNumber, start, line.length, reason, true);
      this.version = CURRENT_VERSION;
    } else if (this.version < CURRENT_VERSION) {
      this.rewrite = true;
      this.headerLine = migrateHeader(line);
      this.header = { ...header, version: CURRENT_VERSION };
    } else if (header.leafId !== undefined) {
      this.rewrite = true;
      this.headerLine = withoutMember(line, "leafId");
    }
  }

  // --- older versions ------------------------------------------------------------------------------------------

  /** Position of the line with an index among the whole lines, the header being 0 (version 1 names entries so). */
  private readonly oldLines: (string | undefined)[] = [undefined];

  private takeOld(lineNumber: number, start: number, line: Uint8Array): void {
    const found = members(line);
    const type = found && memberOf(found, "type");
    if (!found || !type) return this.badLine("bad_line", lineNumber, start, line.length, "the line is not an entry");
    let migrated: Uint8Array;
    if (this.version === 1) {
      const id = idOfLine(lineNumber, line, this.env.sha256, (taken) => this.nodes.position(taken) >= 0);
      const last = this.nodes.count - 1;
      this.oldLines.push(id);
      migrated = migrateV1(line, id, last < 0 ? null : this.nodes.id(last), (index) => this.oldLines[index]);
    } else migrated = migrateV2(line);
    const fault = this.heads.parse(migrated, 0, migrated.length, () =>
      idOfLine(lineNumber, line, this.env.sha256, (taken) => this.nodes.position(taken) >= 0),
    );
    if (fault !== null) return this.badLine("bad_line", lineNumber, start, line.length, `the line is ${fault}`);
    const position = this.place(start, line.length, 1);
    if (position < this.nodes.count && migrated !== line) this.overrides.set(position, Uint8Array.from(migrated));
  }

  // --- the end of the file -------------------------------------------------------------------------------------

  /** A last line without line feed: an entry when it is whole, else what a torn write left. */
  private takeTail(lineNumber: number, start: number, length: number): void {
    const line = Buffer.allocUnsafe(length);
    readAll(this.disk, this.fd, line, start);
    this.unterminated = true;
    if (!this.header || isBlank(line)) return this.takeLine(lineNumber, start, line, 0, length);
    if (isUtf8(line) && isJson(line)) this.takeLine(lineNumber, start, line, 0, length);
    else this.badLine("torn_tail", lineNumber, start, length, "the last line was cut off while it was written");
  }

  /** Several entries that were appended as one are one: a rest of them at the end was never acknowledged. */
  private dropIncompleteBatch(): void {
    const last = this.nodes.count - 1;
    if (last < 0 || !this.nodes.isBatch(last)) return;
    const batch = (parse(this.read(last)) as { _batch?: Partial<Batch> })._batch;
    if (batch?.session !== this.header.id || typeof batch.index !== "number" || typeof batch.count !== "number") return;
    if (batch.index >= batch.count - 1) return;
    const first = Math.max(0, last - batch.index);
    this.report("incomplete_batch", first, `${batch.index + 1} of ${batch.count} entries that belong together`, false);
    this.nodes.truncate(first);
  }

  private checkTail(): void {
    for (let p = Math.max(0, this.nodes.count - CHECKED_TAIL); p < this.nodes.count; p++)
      if (this.lengths.values[p] <= CHECKED_TAIL_LINE) this.read(p);
  }

  private badLine(
    kind: Damage["kind"],
    line: number,
    byteOffset: number,
    length: number,
    reason: string,
    salvaged = false,
  ): void {
    this.damage.push({ kind, line, byteOffset, length, reason, salvaged });
  }

  private report(kind: Damage["kind"], position: number, reason: string, salvaged: boolean): void {
    this.damage.push({
      kind,
      line: 0,
      byteOffset: this.starts.values[position],
      length: this.lengths.values[position],
      entryId: this.nodes.id(position),
      reason,
      salvaged,
    });
  }

  // --- reading -------------------------------------------------------------------------------------------------

  length(position: number): number {
    return this.overrides.get(position)?.length ?? this.lengths.values[position];
  }

  read(position: number): Uint8Array {
    const override = this.overrides.get(position);
    if (override) return override;
    return this.sound(position, this.bytesAt(position));
  }

  *readMany(positions: ArrayLike<number>): Iterable<Uint8Array> {
    for (const run of this.runs(positions)) {
      if (run.override) yield run.override;
      else {
        const bytes = this.bytes(run.start, run.length);
        for (let i = run.first; i < run.past; i++) {
          const at = this.starts.values[positions[i]] - run.start;
          yield this.sound(positions[i], bytes.subarray(at, at + this.lengths.values[positions[i]]));
        }
      }
    }
  }

  *copy(positions: ArrayLike<number>): Iterable<Uint8Array> {
    for (const run of this.runs(positions)) {
      if (run.override) yield concat([run.override, LF]);
      else {
        const { start, length } = run;
        for (let at = 0; at < length; at += CHUNK * 4) yield this.bytes(start + at, Math.min(CHUNK * 4, length - at));
        yield LF;
      }
    }
  }

  /**
   * Splits positions into stretches that lie in the file one after the other with nothing but their line feeds
   * between them, none longer than a chunk unless a single line is; an override is a stretch of its own.
   */
  private *runs(positions: ArrayLike<number>): Generator<{
    first: number;
    past: number;
    start: number;
    length: number;
    override?: Uint8Array;
  }> {
    let first = 0;
    while (first < positions.length) {
      const override = this.overrides.get(positions[first]);
      if (override) {
        yield { first, past: first + 1, start: -1, length: override.length, override };
        first++;
        continue;
      }
      const start = this.starts.values[positions[first]];
      let end = start + this.lengths.values[positions[first]];
      let past = first + 1;
      while (past < positions.length && this.starts.values[positions[past]] === end + 1 && end - start < CHUNK) {
        if (this.overrides.size > 0 && this.overrides.has(positions[past])) break;
        end += 1 + this.lengths.values[positions[past]];
        past++;
      }
      yield { first, past, start, length: end - start };
      first = past;
    }
  }

  private bytesAt(position: number): Uint8Array {
    return this.bytes(this.starts.values[position], this.lengths.values[position]);
  }

  private bytes(start: number, length: number): Uint8Array {
    if (this.closed) throw new Failure("storage_failed", "The session was closed while it was read. Open it again.");
    const bytes = Buffer.allocUnsafe(length);
    try {
      readAll(this.disk, this.fd, bytes, start);
    } catch (error) {
      throw storageFailure(error, "reading an entry");
    }
    return bytes;
  }

  /** The line itself when it is UTF-8 and JSON, which is looked at once; else a stand-in with its head. */
  private sound(position: number, line: Uint8Array): Uint8Array {
    if (this.checked.values[position]) return line;
    if (isUtf8(line) && isJson(line)) {
      this.checked.set(position, 1);
      return line;
    }
    const { nodes } = this;
    const parent = nodes.parent(position);
    const standIn = bytesOf(
      JSON.stringify({
        type: nodes.type(position),
        id: nodes.id(position),
        parentId: parent < 0 ? null : nodes.id(parent),
        damaged: true,
      }),
    );
    this.report("bad_body", position, "the entry's bytes are not JSON", false);
    this.overrides.set(position, standIn);
    return standIn;
  }

  // --- writing -------------------------------------------------------------------------------------------------

  append(lines: readonly Uint8Array[], options: { hold?: boolean } = {}): void {
    if (this.closed) throw new Failure("storage_failed", "The session is closed. Open it again.");
    if (this.readOnly) throw this.readOnly;
    if (!this.persisted && options.hold) {
      for (const line of lines) this.overrides.set(this.added(line, -1), line);
      this.durableCount = this.nodes.count;
      return;
    }
    try {
      if (!this.persisted) this.createFile(lines);
      else this.appendLines(lines);
    } catch (error) {
      throw storageFailure(error, "appending to the session");
    }
    if (this.durability === "os") this.markDurable(this.nodes.count, this.size);
  }

  private added(line: Uint8Array, start: number): number {
    const position = addHead(this.heads, this.nodes, line);
    this.starts.set(position, start);
    this.lengths.set(position, line.length);
    this.checked.set(position, 1);
    return position;
  }

  private appendLines(lines: readonly Uint8Array[]): void {
    if (this.rewrite) this.publishAnew();
    if (!this.writable) {
      const fd = this.disk.openAppend(this.file);
      this.disk.close(this.fd);
      this.fd = fd;
      this.writable = true;
    }
    const parts: Uint8Array[] = this.unterminated ? [LF] : [];
    for (const line of lines) parts.push(line, LF);
    const bytes = concat(parts);
    try {
      writeAll(this.disk, this.fd, bytes);
    } catch (error) {
      this.cutBack(this.size);
      throw error;
    }
    let at = this.size + (this.unterminated ? 1 : 0);
    for (const line of lines) {
      this.added(line, at);
      at += line.length + 1;
    }
    this.size = at;
    this.unterminated = false;
  }

  /** The first append makes the file: header, what waited, and the new lines appear in one step. */
  private createFile(lines: readonly Uint8Array[]): void {
    const held = [...this.overrides.values()];
    const bytes = concat([this.headerLine, ...held, ...lines].flatMap((line) => [line, LF]));
    const made = this.disk.makeFolder(dirname(this.file));
    this.fd = publishNew(this.disk, this.file, (fd) => writeAll(this.disk, fd, bytes));
    this.writable = true;
    this.looseFolders = [dirname(this.file), ...made.map((folder) => dirname(folder))];
    this.created = held;
    this.overrides.clear();
    let at = this.headerLine.length + 1;
    for (const [position, line] of held.entries()) {
      this.starts.set(position, at);
      at += line.length + 1;
    }
    for (const line of lines) {
      this.added(line, at);
      at += line.length + 1;
    }
    this.size = at;
  }

  /**
   * Publishes the file as version 3 beside the original and swaps the names; the original stays, with its bytes and
   * mode, under a backup name that no scanner takes for a session.
   */
  private publishAnew(): void {
    const { disk, file } = this;
    const temporary = temporaryName(file);
    const fd = disk.create(temporary);
    const starts: number[] = [];
    let at = 0;
    try {
      disk.copyMode(file, fd);
      writeAll(disk, fd, concat([this.headerLine, LF]));
      at = this.headerLine.length + 1;
      const all = Int32Array.from({ length: this.nodes.count }, (_, position) => position);
      for (const position of all) {
        starts.push(at);
        at += (this.overrides.get(position)?.length ?? this.lengths.values[position]) + 1;
      }
      for (const piece of this.copy(all)) writeAll(disk, fd, piece);
      disk.link(file, this.backupName());
      disk.rename(temporary, file);
    } catch (error) {
      disk.close(fd);
      removeQuietly(disk, temporary);
      throw error;
    }
    disk.close(this.fd);
    this.fd = fd;
    this.writable = true;
    for (const [position, start] of starts.entries()) {
      this.starts.set(position, start);
      this.lengths.set(position, this.overrides.get(position)?.length ?? this.lengths.values[position]);
    }
    this.overrides.clear();
    this.size = at;
    this.durableSize = at;
    this.unterminated = false;
    this.rewrite = false;
    this.version = CURRENT_VERSION;
    this.looseFolders.push(dirname(file));
  }

  private backupName(): string {
    const name = `${this.file}.v${this.version}.bak`;
    for (let n = 1; ; n++) {
      const candidate = n === 1 ? name : `${name}.${n}`;
      if (!exists(this.disk, candidate)) return candidate;
    }
  }

  /** After a failed write the file ends where it ended before, if that can be told: its size is ours to judge. */
  private cutBack(size: number): void {
    try {
      this.disk.truncate(this.fd, size);
    } catch {
      // The next append begins with a line feed, which closes whatever stayed.
      this.unterminated = true;
      this.size = this.disk.infoOf(this.fd).size;
    }
  }

  async commit(): Promise<void> {
    if (!this.persisted || this.durableCount >= this.nodes.count) return;
    const { count } = this.nodes;
    const { size } = this;
    try {
      await this.disk.sync(this.fd);
      for (const folder of this.looseFolders) await this.disk.syncFolder(folder);
    } catch (error) {
      this.rollBack();
      throw storageFailure(error, "making the changes durable");
    }
    this.markDurable(count, size);
  }

  private markDurable(count: number, size: number): void {
    this.durableCount = count;
    this.durableSize = size;
    this.looseFolders = [];
    this.created = null;
  }

  rollBack(): void {
    if (this.durableCount >= this.nodes.count) return;
    this.nodes.truncate(this.durableCount);
    if (!this.created) {
      this.size = this.durableSize;
      this.cutBack(this.durableSize);
      return;
    }
    this.disk.close(this.fd);
    this.fd = -1;
    this.writable = false;
    removeQuietly(this.disk, this.file);
    for (const [position, line] of this.created.entries()) this.overrides.set(position, line);
    this.created = null;
    this.looseFolders = [];
  }

  close(): void {
    if (this.fd >= 0) this.disk.close(this.fd);
    this.fd = -1;
    this.closed = true;
  }
}

function notASession(file: string, reason: string): Failure {
  return new Failure("not_a_session", `${file} is not a session file: ${reason}. It was left as it is.`, {
    sessionPath: file,
  });
}

function isHeader(value: unknown): value is SessionHeader {
  if (typeof value !== "object" || value === null) return false;
  const { type, id } = value as { type?: unknown; id?: unknown };
  return type === "session" && typeof id === "string" && id !== "";
}

/** A header without a version is of version 1; 0 stands for what is no version at all. */
function versionOf(version: unknown): number {
  if (version === undefined || version === null) return 1;
  const number = typeof version === "string" && /^\d+$/.test(version) ? Number(version) : version;
  return typeof number === "number" && Number.isInteger(number) && number > 0 ? number : 0;
}

function isBlank(line: Uint8Array): boolean {
  return line.every((c) => c === 0x20 || c === 0x09 || c === 0x0d || c === 0x0a);
}

function withId(line: Uint8Array, id: string): Uint8Array {
  const found = members(line) ?? [];
  if (memberOf(found, "id")) return patchMembers(line, { id: bytesOf(JSON.stringify(id)) });
  const type = memberOf(found, "type");
  const at = type ? type.end : 1;
  return concat([line.subarray(0, at), bytesOf(`,"id":${JSON.stringify(id)}`), line.subarray(at)]);
}

function withoutMember(line: Uint8Array, name: string): Uint8Array {
  const found = members(line) ?? [];
  const index = found.findIndex((member) => member.name === name);
  if (index < 0) return line;
  const from = index > 0 ? found[index - 1].end : found[index].nameStart;
  const to = index > 0 ? found[index].end : (found[index + 1]?.nameStart ?? found[index].end);
  return concat([line.subarray(0, from), line.subarray(to)]);
}

export function jsonlStore(options: JsonlOptions): Store {
  return {
    name: "jsonl",
    create: (beginning) => new JsonlLog(options, beginning.file ?? options.fileFor(beginning.header)).begin(beginning),
    async publish(beginning, content) {
      const { disk } = options;
      const file = beginning.file ?? options.fileFor(beginning.header);
      try {
        const made = disk.makeFolder(dirname(file));
        const fd = publishNew(disk, file, (temporary) => {
          writeAll(disk, temporary, concat([beginning.headerLine, LF]));
          for (const piece of content) writeAll(disk, temporary, piece);
        });
        try {
          if (options.durability === "sync") {
            await disk.sync(fd);
            for (const folder of [dirname(file), ...made.map((folder) => dirname(folder))])
              await disk.syncFolder(folder);
          }
        } finally {
          disk.close(fd);
        }
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === "EEXIST")
          throw new Failure("already_exists", `There is a file at ${file} already. Choose another path.`, {
            sessionPath: file,
          });
        throw storageFailure(error, "writing the new session");
      }
      return new JsonlLog(options, file).open();
    },
    open: (file) => new JsonlLog(options, file).open(),
  };
}
