/**
 * Audits a whole container: compares every byte of every segment, every row and every document with the documented rules and
 * with each other (seed 003, INV-001 to INV-007). It shares nothing with the opening of sessions except the decoding of
 * single frames, rows and documents, and the rule whether a container without a pointer is a session (`isUnpointed`). It
 * trusts nothing that it can compute, and writes nothing.
 */

import { isUtf8 } from "node:buffer";
import { basename, dirname, join } from "node:path";
import { isMissing, isNoFile } from "../../core/errno.ts";
import { HeadReader } from "../../core/format/node-reader.ts";
import { findMember, getMembers, parse } from "../../core/json/json.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { StoreAudit, StoreFinding } from "../../core/ports/migrations.ts";
import { Column, KNOWN_TYPES, Nodes, packId } from "../../core/tree/nodes.ts";
import { pause } from "../fs/chunked-io.ts";
import {
  checkpointFile,
  checkpointFolder,
  FOLDERS,
  getPointerFile,
  headerFile,
  indexFile,
  ledgerFile,
  manifestFile,
  parseNumberedName,
  segmentFile,
  segmentFolder,
} from "../fs/container-paths.ts";
import { type Disk, exists, getInfoIfPresent, openFile, readWhole } from "../fs/disk.ts";
import { readAt, useFile } from "../fs/files.ts";
import { listNames } from "../fs/folders.ts";
import { scanLines } from "../log/lines.ts";
import { crc32c, formatCrc } from "./crc32c.ts";
import {
  type Checkpoint,
  type Counters,
  getSnapshotRef,
  isUuid,
  type Manifest,
  type Pointer,
  parseCheckpoint,
  parseManifest,
  readLedger,
  readPointer,
} from "./documents.ts";
import { decodeFrame, decodeRow, extendChain, type Frame, GENESIS, type IndexRow, Malformed, NO_CRC } from "./frame.ts";
import { isUnpointed } from "./pointer.ts";

const INVARIANTS = {
  "INV-001": "parent links are closed",
  "INV-002": "entry numbers count up by one, frame numbers within their segment",
  "INV-003": "index rows resolve to their frames, which cover the segments without a gap",
  "INV-004": "checkpoints and the manifest name heads that the store had",
  "INV-005": "the hash chain is continuous from the first frame to the head",
  "INV-006": "every branch head is indexed",
  "INV-007": "pointer and store agree on which store is active",
} as const;
export type InvariantId = keyof typeof INVARIANTS;

export interface Audit extends StoreAudit {
  /** True if every frame is whole, in its place and bound to its entry, and no row or mark names one that is missing. */
  readonly hasAllEntries: boolean;
  /** Counters of whole frames. */
  readonly counters: Counters;
  readonly chainHash: string;
  readonly manifest: Manifest | null;
  readonly checkpoints: readonly Checkpoint[];
}

interface AuditOptions {
  /** True if it is still being built: it has no pointer, and the caller knows its payloads, whose chain it compares. */
  readonly staging?: boolean;
  readonly progress?: Progress;
}

/** Most findings that are reported; the invariants count all. */
const MAX_FINDINGS = 1000;

/** Audits a container. Throws errno errors when the disk refuses; anything wrong in the store is a finding. */
export async function audit(disk: Disk, container: string, options: AuditOptions = {}): Promise<Audit> {
  const auditor = new Auditor(disk, container, options.staging === true);
  const segments = auditor.segments();
  const indexSize = getInfoIfPresent(disk, indexFile(container))?.size ?? 0;
  const total = segments.reduce((sum, { size }) => sum + size, indexSize);
  let done = 0;
  const report = async (bytes: number): Promise<void> => {
    done += bytes;
    options.progress?.(done, total);
    await pause();
  };
  auditor.readFolders();
  auditor.readHeader();
  auditor.readMarks();
  auditor.readRows();
  await report(indexSize);
  for (const { seq, size } of segments) {
    auditor.readSegment(seq);
    await report(size);
  }
  auditor.conclude();
  if (!options.staging) auditor.readPointer();
  return auditor.answer();
}

type Spot = Partial<Pick<StoreFinding, "byteOffset" | "length" | "entryId" | "recoverable">>;

type FrameReport = (invariant: InvariantId, reason: string, more?: Spot) => void;

const BEGINNING = {
  chain: GENESIS,
  entryId: "",
  counters: { entriesTotal: 0, messagesTotal: 0, branchesTotal: 0, compactionsTotal: 0, bytesTotal: 0 },
  segmentSeq: 0,
  crc: NO_CRC,
  segments: 0,
};
/** The store up to one of its frames, as a manifest or checkpoint describes it. */
type AuditedEnd = Readonly<typeof BEGINNING>;

class Auditor {
  private readonly disk: Disk;
  private readonly container: string;
  private readonly staging: boolean;
  private readonly found: StoreFinding[] = [];
  private readonly broken = new Set<string>();
  private hasAllEntries = true;
  private findings = 0;

  private manifest: Manifest | null = null;
  private readonly checkpoints: Checkpoint[] = [];
  private sessionId: unknown;

  private readonly heads = new HeadReader(new Nodes());
  private readonly rows = new AuditedRows();
  private readonly tree = new AuditedTree();

  /** The store up to the last whole frame. */
  private readonly end = { chain: GENESIS, counters: { ...BEGINNING.counters }, segmentSeq: 0, crc: 0 };
  /** Number of frames, damaged ones included. */
  private frameCount = 0;
  private lastSegment = 0;
  private segmentCount = 0;
  /** The store after each entry that a manifest or checkpoint names as its head. */
  private readonly marks = new Map<number, AuditedEnd>();

  constructor(disk: Disk, container: string, staging: boolean) {
    this.disk = disk;
    this.container = container;
    this.staging = staging;
  }

  /** Reports a fault that loses entries. */
  private findLoss(invariant: InvariantId, file: string, reason: string, spot?: Spot): void {
    this.hasAllEntries = false;
    this.find(invariant, file, reason, spot);
  }

  private find(invariant: InvariantId | null, file: string, reason: string, spot: Spot = {}): void {
    if (invariant) this.broken.add(invariant);
    if (++this.findings > MAX_FINDINGS) return;
    const { byteOffset = 0, length = 0, entryId, recoverable = false } = spot;
    const named = entryId === undefined ? {} : { entryId };
    this.found.push({ invariant, file, byteOffset, length, ...named, reason, recoverable });
  }

  /** Reports a document that `read` cannot use. */
  private reading(invariant: InvariantId | null, file: string, read: () => void): void {
    try {
      read();
    } catch (error) {
      this.find(invariant, file, reasonOf(error));
    }
  }

  /** Returns the segments by number. Reports other files whose names end with `.seg`. */
  segments(): { seq: number; size: number }[] {
    const folder = segmentFolder(this.container);
    const found: { seq: number; size: number }[] = [];
    for (const name of listNames(this.disk, folder)) {
      const seq = parseNumberedName(name, "seg");
      if (seq > 0) found.push({ seq, size: getInfoIfPresent(this.disk, join(folder, name))?.size ?? 0 });
      else if (name.endsWith(".seg")) this.find("INV-003", `segments/${name}`, "the name is not a segment's number");
    }
    return found.sort((a, b) => a.seq - b.seq);
  }

  /** Reports folders that a copy of the container left out. */
  readFolders(): void {
    const names = new Set(listNames(this.disk, this.container));
    for (const name of FOLDERS)
      if (!names.has(name))
        this.find(null, `${name}/`, "it is missing; the next write makes it", { recoverable: true });
  }

  readHeader(): void {
    this.reading(null, "header.jsonl", () => {
      const bytes = readWhole(this.disk, headerFile(this.container));
      const end = bytes.indexOf(0x0a);
      const header = parse(bytes, 0, end < 0 ? bytes.length : end) as { type?: unknown; id?: unknown } | null;
      if (header?.type !== "session") throw new Malformed("it is not a session header");
      this.sessionId = header.id;
      if (typeof header.id !== "string" || !isUuid(header.id)) throw new Malformed("the session id is not a UUID");
    });
  }

  readMarks(): void {
    this.readManifest();
    this.readCheckpoints();
    const ledger = "migrations/ledger.jsonl";
    this.reading(null, ledger, () => {
      const { torn, fault } = readLedger(this.disk, ledgerFile(this.container));
      if (fault) this.find(null, ledger, `line ${fault.line} is no event: ${fault.reason}`, { recoverable: true });
      if (torn > 0) this.find(null, ledger, "its last event was cut off", { length: torn, recoverable: true });
    });
  }

  private readManifest(): void {
    const file = manifestFile(this.container);
    // It may be missing: the next append writes it.
    if (!this.staging && getInfoIfPresent(this.disk, file) === null) return;
    this.reading("INV-004", "manifest.json", () => {
      this.manifest = parseManifest(readWhole(this.disk, file));
      const { sessionId, head, invariants } = this.manifest;
      if (this.sessionId !== undefined && sessionId !== this.sessionId)
        this.find("INV-004", "manifest.json", `it is of the session ${sessionId}`);
      for (const [name, holds] of Object.entries(invariants))
        if (!holds) this.find("INV-004", "manifest.json", `it says that ${name} is not kept`);
      this.mark(head.entrySeq);
    });
  }

  private readCheckpoints(): void {
    const seqs = listNames(this.disk, checkpointFolder(this.container)).map((name) => parseNumberedName(name, "json"));
    for (const seq of seqs.filter((found) => found > 0).sort((a, b) => a - b))
      this.reading("INV-004", getSnapshotRef(seq), () => {
        const checkpoint = parseCheckpoint(readWhole(this.disk, checkpointFile(this.container, seq)), seq);
        this.checkpoints.push(checkpoint);
        this.mark(checkpoint.headEntrySeq);
      });
  }

  private mark(entrySeq: number): void {
    // Until that entry was read, nothing fits it.
    this.marks.set(entrySeq, entrySeq === 0 ? BEGINNING : { ...BEGINNING, chain: "" });
  }

  /**
   * Passes each line of a file to `checkLine`, and one that is longer than a chunk to `long`. Reports a file that
   * cannot be read, and a last line without line feed for the reason `cutOff`.
   */
  private readLines(
    file: string,
    path: string,
    cutOff: string,
    checkLine: (start: number, b: Uint8Array, at: number, end: number) => void,
    long: (fd: number, start: number, length: number) => void,
  ): void {
    this.reading("INV-003", file, () =>
      useFile(this.disk, openFile(this.disk, path), (fd) => {
        const { tail, size } = scanLines(this.disk, fd, 0, 0, {
          line: (_number, start, b, at, end) => checkLine(start, b, at, end),
          long: (_number, start, length) => long(fd, start, length),
        });
        const spot = { byteOffset: tail, length: size - tail, recoverable: true };
        if (tail < size) this.find("INV-003", file, cutOff, spot);
      }),
    );
  }

  readRows(): void {
    const file = "index/offsets.jsonl";
    const checkLine = (start: number, b: Uint8Array, at: number, end: number): void => {
      if (end === at) return;
      const spot = { byteOffset: start, length: end - at };
      try {
        const row = decodeRow(b, at, end);
        const { entrySeq, entryId } = row;
        const number = this.rows.add(row);
        if (entrySeq === number) return;
        const reason = `entry sequence is not contiguous: ${entrySeq} at row ${number}`;
        this.find("INV-002", file, reason, { ...spot, entryId });
      } catch (error) {
        this.find("INV-003", file, reasonOf(error), spot);
      }
    };
    const cutOff = "unterminated JSONL line: the last row was cut off";
    this.readLines(file, indexFile(this.container), cutOff, checkLine, (_fd, byteOffset, length) =>
      this.find("INV-003", file, "a row is too long", { byteOffset, length }),
    );
  }

  readSegment(seq: number): void {
    const path = segmentFile(this.container, seq);
    const file = `segments/${basename(path)}`;
    let frameSeq = 0;
    if (seq !== this.lastSegment + 1) this.find("INV-003", file, `missing segment ${this.lastSegment + 1}`);
    this.lastSegment = seq;
    const checkLine = (start: number, b: Uint8Array, at: number, end: number): void =>
      this.checkFrame(file, seq, ++frameSeq, start, b, at, end);
    const cutOff = "the last frame is not LF-terminated: it was cut off";
    this.readLines(file, path, cutOff, checkLine, (fd, start, length) =>
      checkLine(start, readAt(this.disk, fd, start, length + 1), 0, length),
    );
    if (frameSeq > 0) this.segmentCount++;
  }

  /** Checks the frame `b[at, end)`, which its line feed follows. */
  private checkFrame(
    file: string,
    seq: number,
    frameSeq: number,
    start: number,
    b: Uint8Array,
    at: number,
    end: number,
  ): void {
    const length = end + 1 - at;
    const { rows, tree } = this;
    const place = this.frameCount;
    const hasRow = place < rows.count;
    let entryId: string | undefined = rows.ids[place];
    const spot = (): Spot => ({ byteOffset: start, length, entryId });
    const report: FrameReport = (invariant, reason) => this.findLoss(invariant, file, reason, spot());
    const reportRow: FrameReport = (invariant, reason, more) =>
      this.find(invariant, file, reason, { ...spot(), ...more });
    const entrySeq = ++this.frameCount;
    let frame: Frame;
    try {
      frame = decodeFrame(b, at, end, true, !this.staging);
    } catch (error) {
      // The frame keeps its place in the count, so that the next ones are compared with their own rows.
      report("INV-005", reasonOf(error));
      return;
    }
    entryId = frame.entryId;
    const crc = crc32c(b, at, end + 1);
    if (frame.segmentSeq !== seq) report("INV-002", `the frame says segment ${frame.segmentSeq}`);
    if (frame.frameSeq !== frameSeq)
      report("INV-002", `frame sequence is not contiguous: ${frame.frameSeq} instead of ${frameSeq}`);
    if (frame.entrySeq !== entrySeq)
      report("INV-002", `entry sequence is not contiguous: ${frame.entrySeq} instead of ${entrySeq}`);
    if (!hasRow && this.staging) reportRow("INV-006", "the frame has no index row", { recoverable: true });
    // The rows of the last frames may be missing: the next append writes them.
    else if (!hasRow) this.broken.add("INV-006");
    else if (!rows.isOf(place, frame, start, length))
      reportRow("INV-003", "index/frame mismatch: the row names another place or entry");
    else if (rows.crcs.values[place] !== crc)
      reportRow(
        "INV-003",
        `checksum mismatch: the row says ${formatCrc(rows.crcs.values[place])}, the frame has ${formatCrc(crc)}`,
      );
    const before = tree.positionOf(entryId);
    if (before >= 0) report("INV-002", `duplicate entry_id detected: ${entryId}`);
    this.bind(b, frame, report);
    this.count(frame, length, crc, before);
  }

  /** Compares the frame's own members with those of its entry. */
  private bind(b: Uint8Array, frame: Frame, report: FrameReport): void {
    const { payloadStart, payloadEnd } = frame;
    const { heads } = this;
    if (!isUtf8(b.subarray(payloadStart, payloadEnd))) return report("INV-005", "the payload is not UTF-8");
    // The usual head; the payload was found to be JSON when the frame was decoded. A member of it may stand twice.
    if (heads.readFast(b, payloadStart, payloadEnd) && this.hasUsualHead(frame)) return;
    const found = getMembers(b, payloadStart, payloadEnd);
    if (!found) return report("INV-005", "the payload is not a JSON object");
    const value = (name: string): unknown => {
      const member = findMember(found, name);
      const given = member && parse(b, member.start, member.end);
      return typeof given === "number" && name !== "type" ? String(given) : given;
    };
    const parent = value("parentId") ?? null;
    if (value("id") !== frame.entryId) report("INV-003", "the payload has another id");
    if ((parent === "" ? null : parent) !== frame.parentEntryId) report("INV-001", "the payload has another parent");
    if (value("type") !== frame.entryType) report("INV-003", "the payload has another type");
  }

  /** Returns whether the head that was read last is the one that a frame names. */
  private hasUsualHead({ entryId, parentEntryId, entryType }: Frame): boolean {
    const { packedId, packedParent, type } = this.heads;
    const isParent =
      parentEntryId === null ? packedParent < 0 : packedParent >= 0 && packId(parentEntryId) === packedParent;
    return isParent && packId(entryId) === packedId && KNOWN_TYPES[type] === entryType;
  }

  private count(
    { entryId, parentEntryId, entryType, segmentSeq, payloadSha256 }: Frame,
    length: number,
    crc: number,
    before: number,
  ): void {
    const { end } = this;
    const { counters } = end;
    counters.entriesTotal++;
    if (this.tree.add(entryId, parentEntryId, before) === 2) counters.branchesTotal++;
    if (entryType === "message") counters.messagesTotal++;
    else if (entryType === "compaction") counters.compactionsTotal++;
    counters.bytesTotal += length;
    end.chain = extendChain(end.chain, payloadSha256);
    end.segmentSeq = segmentSeq;
    end.crc = crc;
    if (this.marks.has(this.frameCount)) this.marks.set(this.frameCount, this.audited());
  }

  /** Returns the store up to the last whole frame. */
  private audited(): AuditedEnd {
    const { chain, counters, segmentSeq, crc } = this.end;
    const entryId = this.tree.ids.at(-1);
    if (entryId === undefined) return BEGINNING;
    const segments = this.segmentCount + 1;
    return { chain, entryId, counters: { ...counters }, segmentSeq, crc: formatCrc(crc), segments };
  }

  conclude(): void {
    const { rows, tree } = this;
    for (let place = this.frameCount; place < rows.count; place++)
      this.find("INV-003", "index/offsets.jsonl", `index out of bounds: no frame for entry ${place + 1}`, {
        entryId: rows.ids[place],
      });
    // A row that is damaged moves the places of those after it.
    if (rows.ids.some((id) => tree.positionOf(id) < 0)) this.hasAllEntries = false;
    tree.checkParents(
      (position, parentId) =>
        this.findLoss("INV-001", "segments/", `missing parent entry detected: ${parentId}`, {
          entryId: tree.ids[position],
        }),
      (position) =>
        this.findLoss("INV-001", "segments/", "cyclic parent chain detected", { entryId: tree.ids[position] }),
    );
    // Frames without a row were reported already; these are heads whose row names another entry.
    for (const position of tree.branchHeads()) {
      const entryId = tree.ids[position];
      if (position < rows.count && rows.ids[position] !== entryId)
        this.find("INV-006", "index/offsets.jsonl", "a branch head is not indexed", { entryId });
    }
    this.checkMarks();
  }

  private checkMarks(): void {
    const { manifest } = this;
    if (manifest) {
      const { head, counters, integrity, files } = manifest;
      const then = this.marks.get(head.entrySeq);
      const report = (name: string, invariant: InvariantId = "INV-004"): void =>
        this.find(invariant, "manifest.json", `${name} is not that of entry ${head.entrySeq}`);
      if (head.entrySeq > this.frameCount)
        this.findLoss(
          "INV-004",
          "manifest.json",
          `its head is entry ${head.entrySeq}, and there are ${this.frameCount}`,
        );
      else if (then) {
        if (then.entryId !== head.entryId || then.segmentSeq !== head.segmentSeq) report("head");
        if (then.chain !== integrity.chainHash) report("chainHash", "INV-005");
        if (then.crc !== integrity.lastCrc32c) report("lastCrc32c");
        if (then.segments !== files.segmentCount) report("files.segmentCount");
        for (const name of Object.keys(counters) as (keyof Counters)[])
          if (then.counters[name] !== counters[name]) report(`counters.${name}`);
      }
    }
    let before: Checkpoint | undefined;
    for (const checkpoint of this.checkpoints) {
      const { headEntrySeq, headEntryId, chainHash } = checkpoint;
      const then = this.marks.get(headEntrySeq);
      const spot = { entryId: headEntryId };
      const addFinding = (invariant: InvariantId, reason: string): void =>
        this.find(invariant, checkpoint.snapshotRef, reason, spot);
      if (headEntrySeq > this.frameCount)
        this.findLoss("INV-004", checkpoint.snapshotRef, `its head is entry ${headEntrySeq}, which is not there`, spot);
      else if (then && then.entryId !== headEntryId) addFinding("INV-004", `entry ${headEntrySeq} is ${then.entryId}`);
      else if (then && then.chain !== chainHash) addFinding("INV-005", "its chain is not the one up to its head");
      if (
        before &&
        (before.headEntrySeq > headEntrySeq || before.compactedBeforeEntrySeq > checkpoint.compactedBeforeEntrySeq)
      )
        addFinding("INV-004", "it goes back to before the previous checkpoint");
      before = checkpoint;
    }
  }

  readPointer(): void {
    const file = getPointerFile(this.container);
    const name = basename(file);
    let pointer: Pointer | null;
    try {
      pointer = readPointer(this.disk, file);
    } catch (error) {
      const recoverable = error instanceof Malformed && isUnpointed(this.disk, this.container);
      this.find(recoverable ? null : "INV-007", name, reasonOf(error), { recoverable });
      return;
    }
    const find = (reason: string): void => this.find("INV-007", name, reason);
    if (!pointer && isUnpointed(this.disk, this.container))
      this.find(null, name, "it is missing; the next write makes it", { recoverable: true });
    else if (!pointer) find("there is no pointer, so the store is not the session");
    else if (pointer.active !== "native_v2") find(`the active store is ${pointer.active}`);
    else if (pointer.phase === "cutover_commit" || pointer.phase === "failed")
      find(`the migration is at ${pointer.phase}: ${pointer.reason ?? "it was not verified"}`);
    else if (pointer.source !== null && exists(this.disk, join(dirname(this.container), pointer.source)))
      find(`${pointer.source} exists next to the store that replaced it`);
  }

  answer(): Audit {
    const { counters, chain } = this.audited();
    return {
      ok: this.findings === 0,
      invariants: Object.fromEntries(Object.keys(INVARIANTS).map((id) => [id, !this.broken.has(id)])),
      findings: this.found,
      hasAllEntries: this.hasAllEntries,
      counters,
      chainHash: chain,
      manifest: this.manifest,
      checkpoints: this.checkpoints,
    };
  }
}

/** Returns why a document cannot be used. Throws errors of the disk itself. */
function reasonOf(error: unknown): string {
  if (error instanceof Malformed || error instanceof SyntaxError || error instanceof TypeError) return error.message;
  if (isMissing(error)) return "it is missing";
  if (isNoFile(error)) return "it is not a file";
  const { message, name } = error as Error;
  if (name === "corrupt") return message;
  throw error;
}

// --- the rows and the tree, as the audit counts them ----------------------------------------------------------------

/** Rows in columns, by place: as objects, a million of them would be most of the audit's memory. */
class AuditedRows {
  count = 0;
  readonly ids: string[] = [];
  readonly crcs = new Column(new Uint32Array(16));
  private readonly segments = new Column(new Float64Array(16));
  private readonly frames = new Column(new Float64Array(16));
  private readonly starts = new Column(new Float64Array(16));
  private readonly lengths = new Column(new Float64Array(16));

  /** Returns how many there are then. */
  add(row: IndexRow): number {
    const place = this.count++;
    this.ids.push(row.entryId);
    this.crcs.set(place, Number.parseInt(row.crc32c, 16));
    this.segments.set(place, row.segmentSeq);
    this.frames.set(place, row.frameSeq);
    this.starts.set(place, row.byteOffset);
    this.lengths.set(place, row.byteLength);
    return this.count;
  }

  /** Returns whether the row at a place is that of a frame that lies there. */
  isOf(place: number, { segmentSeq, frameSeq, entryId }: Frame, start: number, length: number): boolean {
    return (
      this.segments.values[place] === segmentSeq &&
      this.frames.values[place] === frameSeq &&
      this.starts.values[place] === start &&
      this.lengths.values[place] === length &&
      this.ids[place] === entryId
    );
  }
}

const NO_PARENT = -1;
/** The parent of a frame whose parent has not come yet; its id is in `awaited`. */
const AWAITED = -2;
/** Children are counted up to here: more than two are the same. */
const MANY = 3;

class AuditedTree {
  readonly ids: string[] = [];
  /** Position of the last frame with an id. */
  private readonly positions = new Map<string, number>();
  private readonly parents = new Column(new Int32Array(16));
  private readonly childCounts = new Column(new Uint8Array(16));
  /** 1 for each frame that no later one continues. */
  private readonly heads = new Column(new Uint8Array(16));
  /** Ids of parents that had not come, by the position of the child, and the number of such children. */
  private readonly awaited = new Map<number, string>();
  private readonly earlyChildren = new Map<string, number>();
  /** The next frame with the same id, for each frame whose id came again. */
  private readonly repeated = new Map<number, number>();

  /** Returns the position of the last frame with an id, or -1. */
  positionOf(id: string): number {
    return this.positions.get(id) ?? -1;
  }

  /** Adds a frame; `before` is the last one with its id, or -1. Returns how many name its parent now, up to three. */
  add(id: string, parentId: string | null, before: number): number {
    const position = this.ids.length;
    const follows = before < 0 && parentId === this.ids[position - 1];
    this.ids.push(id);
    this.positions.set(id, position);
    this.heads.set(position, 1);
    this.childCounts.set(position, before < 0 ? (this.earlyChildren.get(id) ?? 0) : this.childCounts.values[before]);
    if (before >= 0) {
      this.heads.values[before] = 0;
      this.repeated.set(before, position);
    }
    if (parentId === null) {
      this.parents.set(position, NO_PARENT);
      return 0;
    }
    // Most frames continue the one before them.
    const parent = follows ? position - 1 : (this.positions.get(parentId) ?? AWAITED);
    this.parents.set(position, parent);
    if (parent === AWAITED) {
      this.awaited.set(position, parentId);
      const early = Math.min(MANY, (this.earlyChildren.get(parentId) ?? 0) + 1);
      this.earlyChildren.set(parentId, early);
      return early;
    }
    this.heads.values[parent] = 0;
    const children = Math.min(MANY, this.childCounts.values[parent] + 1);
    this.childCounts.values[parent] = children;
    return children;
  }

  /** Passes each frame whose parent is nowhere to `missing`, and one of each cycle to `cyclic`. */
  checkParents(missing: (position: number, parentId: string) => void, cyclic: (position: number) => void): void {
    const { length } = this.ids;
    const above = this.parents.values.slice(0, length);
    for (let position = 0; position < length; position++) {
      if (above[position] === AWAITED) {
        const parentId = this.awaited.get(position) as string;
        above[position] = this.positionOf(parentId);
        if (above[position] < 0) missing(position, parentId);
      } else if (this.repeated.size > 0)
        // The last frame with an id is the one that its children continue.
        for (let next = this.repeated.get(above[position]); next !== undefined; next = this.repeated.get(next))
          above[position] = next;
    }
    // 0: not visited, 1: on the present walk, 2: done.
    const seen = new Uint8Array(length);
    const way: number[] = [];
    for (let from = 0; from < length; from++) {
      let at = from;
      for (; at >= 0 && seen[at] === 0; at = above[at]) {
        seen[at] = 1;
        way.push(at);
      }
      if (at >= 0 && seen[at] === 1) cyclic(at);
      for (const step of way) seen[step] = 2;
      way.length = 0;
    }
  }

  /** Yields the frames that no other continues. */
  *branchHeads(): Generator<number> {
    for (let position = 0; position < this.ids.length; position++)
      if (this.heads.values[position] === 1) yield position;
  }
}
