/**
 * Audits a whole container: compares every byte of every segment, every row and every document with the documented
 * rules and with each other (seed 003, INV-001 to INV-007). It shares nothing with the way a session is opened but the
 * decoding of single frames, rows and documents, and the rule that says whether a container without a pointer is a
 * session (`isUnpointed`). It trusts nothing that it can compute, and writes nothing.
 */

import { isUtf8 } from "node:buffer";
import { basename, dirname, join } from "node:path";
import { isMissing, isNoFile } from "../../core/errno.ts";
import { HeadReader } from "../../core/format/head.ts";
import { memberOf, members, parse } from "../../core/json/json.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { StoreAudit, StoreFinding } from "../../core/ports/migrations.ts";
import { KNOWN_TYPES, Nodes, unpackId } from "../../core/tree/nodes.ts";
import { pause } from "../fs/chunked-io.ts";
import {
  checkpointFile,
  checkpointFolder,
  FOLDERS,
  headerFile,
  indexFile,
  ledgerFile,
  manifestFile,
  numberOf,
  pointerFile,
  segmentFile,
  segmentFolder,
} from "../fs/container-paths.ts";
import { type Disk, exists, infoIfPresent, openFile, readWhole } from "../fs/disk.ts";
import { readAt, withFile } from "../fs/files.ts";
import { namesIn } from "../fs/folders.ts";
import { scanLines } from "../log/lines.ts";
import {
  type Checkpoint,
  type Counters,
  isUuid,
  type Manifest,
  type Pointer,
  parseCheckpoint,
  parseManifest,
  readLedger,
  readPointer,
  snapshotRef,
} from "./documents.ts";
import {
  chained,
  crc32c,
  crcText,
  decodeFrame,
  decodeRow,
  type Frame,
  GENESIS,
  type IndexRow,
  Malformed,
  NO_CRC,
} from "./frame.ts";
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
  /** Counters of whole frames. */
  readonly counters: Counters;
  readonly chainHash: string;
  readonly manifest: Manifest | null;
  readonly checkpoints: readonly Checkpoint[];
}

interface AuditOptions {
  /** Whether it is still being built: it has no pointer, and the caller knows its payloads, whose chain it compares. */
  readonly staging?: boolean;
  readonly progress?: Progress;
}

/** Most findings that are reported; the invariants count all. */
const MAX_FINDINGS = 1000;

/** Audits a container. Throws errno errors when the disk refuses; anything wrong in the store is a finding. */
export async function audit(disk: Disk, container: string, options: AuditOptions = {}): Promise<Audit> {
  const auditor = new Auditor(disk, container, options.staging === true);
  const segments = auditor.segments();
  const indexSize = infoIfPresent(disk, indexFile(container))?.size ?? 0;
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
  private findings = 0;

  private manifest: Manifest | null = null;
  private readonly checkpoints: Checkpoint[] = [];
  private sessionId: unknown;

  private readonly heads = new HeadReader(new Nodes());
  private readonly rows: IndexRow[] = [];
  private readonly ids = new Map<string, number>();
  private readonly entryIds: string[] = [];
  /** Id of the parent, by position. */
  private readonly parents: (string | null)[] = [];
  /** Number of entries that name a parent, by its id. */
  private readonly children = new Map<string, number>();
  private readonly branchHeads = new Set<string>();

  /** The store up to the last whole frame. */
  private end: AuditedEnd = BEGINNING;
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
    for (const name of namesIn(this.disk, folder)) {
      const seq = numberOf(name, "seg");
      if (seq > 0) found.push({ seq, size: infoIfPresent(this.disk, join(folder, name))?.size ?? 0 });
      else if (name.endsWith(".seg")) this.find("INV-003", `segments/${name}`, "the name is not a segment's number");
    }
    return found.sort((a, b) => a.seq - b.seq);
  }

  /** Reports folders that a copy of the container left out. */
  readFolders(): void {
    const names = new Set(namesIn(this.disk, this.container));
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
    this.reading("INV-004", "manifest.json", () => {
      this.manifest = parseManifest(readWhole(this.disk, manifestFile(this.container)));
      const { sessionId, head, invariants } = this.manifest;
      if (this.sessionId !== undefined && sessionId !== this.sessionId)
        this.find("INV-004", "manifest.json", `it is of the session ${sessionId}`);
      for (const [name, holds] of Object.entries(invariants))
        if (!holds) this.find("INV-004", "manifest.json", `it says that ${name} is not kept`);
      this.mark(head.entrySeq);
    });
    const seqs = namesIn(this.disk, checkpointFolder(this.container)).map((name) => numberOf(name, "json"));
    for (const seq of seqs.filter((found) => found > 0).sort((a, b) => a - b))
      this.reading("INV-004", snapshotRef(seq), () => {
        const checkpoint = parseCheckpoint(readWhole(this.disk, checkpointFile(this.container, seq)), seq);
        this.checkpoints.push(checkpoint);
        this.mark(checkpoint.headEntrySeq);
      });
    const ledger = "migrations/ledger.jsonl";
    this.reading(null, ledger, () => {
      const { torn } = readLedger(this.disk, ledgerFile(this.container));
      if (torn > 0) this.find(null, ledger, "its last event was cut off", { length: torn, recoverable: true });
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
      withFile(this.disk, openFile(this.disk, path), (fd) => {
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
        const number = this.rows.push(row);
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
    const row: IndexRow | undefined = this.rows[this.frameCount];
    let { entryId } = row ?? {};
    const report: FrameReport = (invariant, reason, more) =>
      this.find(invariant, file, reason, { byteOffset: start, length, entryId, ...more });
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
    const crc = crcText(crc32c(b, at, end + 1));
    if (frame.segmentSeq !== seq) report("INV-002", `the frame says segment ${frame.segmentSeq}`);
    if (frame.frameSeq !== frameSeq)
      report("INV-002", `frame sequence is not contiguous: ${frame.frameSeq} instead of ${frameSeq}`);
    if (frame.entrySeq !== entrySeq)
      report("INV-002", `entry sequence is not contiguous: ${frame.entrySeq} instead of ${entrySeq}`);
    if (!row) report("INV-006", "the frame has no index row", { recoverable: true });
    else if (
      row.segmentSeq !== frame.segmentSeq ||
      row.frameSeq !== frame.frameSeq ||
      row.byteOffset !== start ||
      row.byteLength !== length ||
      row.entryId !== entryId
    )
      report("INV-003", "index/frame mismatch: the row names another place or entry");
    else if (row.crc32c !== crc)
      report("INV-003", `checksum mismatch: the row says ${row.crc32c}, the frame has ${crc}`);
    if (this.ids.has(entryId)) report("INV-002", `duplicate entry_id detected: ${entryId}`);
    this.bind(b, frame, report);
    this.count(frame, length, crc);
  }

  /** Compares the frame's own members with those of its entry. */
  private bind(b: Uint8Array, frame: Frame, report: FrameReport): void {
    const { payloadStart, payloadEnd } = frame;
    const { heads } = this;
    let id: unknown;
    let parent: unknown = null;
    let type: unknown;
    if (!isUtf8(b.subarray(payloadStart, payloadEnd))) return report("INV-005", "the payload is not UTF-8");
    // The usual head; the payload was found to be JSON when the frame was decoded.
    if (heads.readFast(b, payloadStart, payloadEnd)) {
      id = unpackId(heads.packedId);
      if (heads.packedParent >= 0) parent = unpackId(heads.packedParent);
      type = KNOWN_TYPES[heads.type];
    } else {
      const found = members(b, payloadStart, payloadEnd);
      if (!found) return report("INV-005", "the payload is not a JSON object");
      const value = (name: string): unknown => {
        const member = memberOf(found, name);
        const given = member && parse(b, member.start, member.end);
        return typeof given === "number" && name !== "type" ? String(given) : given;
      };
      id = value("id");
      parent = value("parentId") ?? null;
      if (parent === "") parent = null;
      type = value("type");
    }
    if (id !== frame.entryId) report("INV-003", "the payload has another id");
    if (parent !== frame.parentEntryId) report("INV-001", "the payload has another parent");
    if (type !== frame.entryType) report("INV-003", "the payload has another type");
  }

  private count(frame: Frame, length: number, crc: string): void {
    const { entryId, parentEntryId, entryType, segmentSeq } = frame;
    this.ids.set(entryId, this.entryIds.length);
    this.entryIds.push(entryId);
    this.parents.push(parentEntryId);
    this.branchHeads.add(entryId);
    let siblings = 0;
    if (parentEntryId !== null) {
      this.branchHeads.delete(parentEntryId);
      siblings = (this.children.get(parentEntryId) ?? 0) + 1;
      this.children.set(parentEntryId, siblings);
    }
    const { counters } = this.end;
    this.end = {
      chain: chained(this.end.chain, frame.payloadSha256),
      entryId,
      counters: {
        entriesTotal: this.entryIds.length,
        messagesTotal: counters.messagesTotal + (entryType === "message" ? 1 : 0),
        branchesTotal: counters.branchesTotal + (siblings === 2 ? 1 : 0),
        compactionsTotal: counters.compactionsTotal + (entryType === "compaction" ? 1 : 0),
        bytesTotal: counters.bytesTotal + length,
      },
      segmentSeq,
      crc,
      segments: this.segmentCount + 1,
    };
    if (this.marks.has(this.frameCount)) this.marks.set(this.frameCount, this.end);
  }

  conclude(): void {
    for (let i = this.frameCount; i < this.rows.length; i++)
      this.find("INV-003", "index/offsets.jsonl", `index out of bounds: no frame for entry ${i + 1}`, {
        entryId: this.rows[i].entryId,
      });
    this.checkParents();
    this.checkMarks();
  }

  private checkParents(): void {
    const { parents, ids, entryIds } = this;
    const above = new Int32Array(parents.length).fill(-1);
    for (const [position, parent] of parents.entries()) {
      if (parent === null) continue;
      const at = ids.get(parent);
      if (at === undefined)
        this.find("INV-001", "segments/", `missing parent entry detected: ${parent}`, { entryId: entryIds[position] });
      else above[position] = at;
    }
    // 0: not visited, 1: on the present walk, 2: done.
    const seen = new Uint8Array(parents.length);
    for (let from = 0; from < parents.length; from++) {
      const way: number[] = [];
      let at = from;
      for (; at >= 0 && seen[at] === 0; at = above[at]) {
        seen[at] = 1;
        way.push(at);
      }
      if (at >= 0 && seen[at] === 1)
        this.find("INV-001", "segments/", "cyclic parent chain detected", { entryId: entryIds[at] });
      for (const step of way) seen[step] = 2;
    }
    // Frames without a row were reported already; these are heads whose row names another entry.
    for (const head of this.branchHeads) {
      const position = ids.get(head) as number;
      if (position < this.rows.length && this.rows[position].entryId !== head)
        this.find("INV-006", "index/offsets.jsonl", "a branch head is not indexed", { entryId: head });
    }
  }

  private checkMarks(): void {
    const { manifest } = this;
    if (manifest) {
      const { head, counters, integrity, files } = manifest;
      const then = this.marks.get(head.entrySeq);
      const report = (name: string, invariant: InvariantId = "INV-004"): void =>
        this.find(invariant, "manifest.json", `${name} is not that of entry ${head.entrySeq}`);
      if (head.entrySeq > this.frameCount)
        this.find("INV-004", "manifest.json", `its head is entry ${head.entrySeq}, and there are ${this.frameCount}`);
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
      const addFinding = (invariant: InvariantId, reason: string): void =>
        this.find(invariant, checkpoint.snapshotRef, reason, { entryId: headEntryId });
      if (headEntrySeq > this.frameCount)
        addFinding("INV-004", `its head is entry ${headEntrySeq}, which is not there`);
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
    const file = pointerFile(this.container);
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
    return {
      ok: this.findings === 0,
      invariants: Object.fromEntries(Object.keys(INVARIANTS).map((id) => [id, !this.broken.has(id)])),
      findings: this.found,
      counters: this.end.counters,
      chainHash: this.end.chain,
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
