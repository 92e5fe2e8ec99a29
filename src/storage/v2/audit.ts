/**
 * Audits a whole container: compares every byte of every segment, every row and every document with the documented
 * rules and with each other (seed 003, INV-001 to INV-007). It shares nothing with the way a session is opened but the
 * decoding of single frames, rows and documents, trusts nothing that it can compute, and writes nothing.
 */

import { isUtf8 } from "node:buffer";
import { basename, dirname, join } from "node:path";
import { isMissing, isNoFile } from "../../core/errno.ts";
import { RUST_TYPES } from "../../core/format/entry.ts";
import { HeadReader } from "../../core/format/head.ts";
import { memberOf, members, parse } from "../../core/json/json.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { StoreFinding } from "../../core/ports/migrations.ts";
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
import { closeQuietly, type Disk, exists, openFile, readAll, readWhole } from "../fs/disk.ts";
import { scanLines } from "../log/lines.ts";
import {
  type Checkpoint,
  type Counters,
  isUuid,
  isWireId,
  type Manifest,
  type Pointer,
  parseCheckpoint,
  parseManifest,
  readPointer,
} from "./documents.ts";
import { chained, crc32c, crcText, decodeFrame, decodeRow, type Frame, GENESIS, Malformed, NO_CRC } from "./frame.ts";
import { readLedger } from "./ledger.ts";
import { isUnpointed } from "./pointer.ts";

export const INVARIANTS = {
  "INV-001": "parent links are closed",
  "INV-002": "entry numbers count up by one, frame numbers within their segment",
  "INV-003": "index rows resolve to their frames, which cover the segments without a gap",
  "INV-004": "checkpoints and the manifest name heads that the store had",
  "INV-005": "the hash chain is continuous from the first frame to the head",
  "INV-006": "every branch head is indexed",
  "INV-007": "pointer and store agree on which store is active",
} as const;
export type InvariantId = keyof typeof INVARIANTS;

interface Finding extends StoreFinding {
  readonly invariant: InvariantId | null;
}

export interface Audit {
  /** Whether there are no findings. */
  readonly ok: boolean;
  readonly invariants: Readonly<Record<InvariantId, boolean>>;
  readonly findings: readonly Finding[];
  /** Counters of whole frames. */
  readonly counters: Counters;
  readonly segmentCount: number;
  readonly headEntryId: string;
  readonly chainHash: string;
  readonly lastCrc32c: string;
  readonly manifest: Manifest | null;
  readonly checkpoints: readonly Checkpoint[];
  readonly pointer: Pointer | null;
  /** Entries that pi_agent_rust does not accept, each with the reason. */
  readonly notExchangeable: readonly { readonly entryId: string; readonly reason: string }[];
}

export interface AuditOptions {
  /**
   * Whether the container is still being built. Then it has no pointer, and its payloads are known to be JSON: the
   * caller compares the chain, which has the hash of each, with what it wrote.
   */
  readonly staging?: boolean;
  /** Receives the bytes read so far and their total. */
  readonly progress?: Progress;
}

/** Most findings that are reported; the invariants count all. */
const MOST_FINDINGS = 1000;

/** Audits a container. Throws errno errors when the disk refuses; anything wrong in the store is a finding. */
export async function audit(disk: Disk, container: string, options: AuditOptions = {}): Promise<Audit> {
  const auditor = new Auditor(disk, container, options.staging === true);
  const segments = auditor.segments();
  const indexSize = sizeOf(disk, indexFile(container));
  const total = segments.reduce((sum, { size }) => sum + size, indexSize);
  let done = 0;
  const tell = async (bytes: number): Promise<void> => {
    done += bytes;
    options.progress?.(done, total);
    await pause();
  };
  auditor.readFolders();
  auditor.readHeader();
  auditor.readMarks();
  auditor.readRows();
  await tell(indexSize);
  for (const { seq, size } of segments) {
    auditor.readSegment(seq);
    await tell(size);
  }
  auditor.conclude();
  if (!options.staging) auditor.readPointer();
  return auditor.answer();
}

function sizeOf(disk: Disk, file: string): number {
  try {
    return disk.info(file).size;
  } catch (error) {
    if (isMissing(error)) return 0;
    throw error;
  }
}

interface RowFacts {
  readonly entryId: string;
  readonly segmentSeq: number;
  readonly frameSeq: number;
  readonly byteOffset: number;
  readonly byteLength: number;
  readonly crc32c: string;
}

class Auditor {
  private readonly disk: Disk;
  private readonly container: string;
  private readonly staging: boolean;
  private readonly found: Finding[] = [];
  private readonly broken = new Set<InvariantId>();
  private findings = 0;

  private manifest: Manifest | null = null;
  private pointer: Pointer | null = null;
  private readonly checkpoints: Checkpoint[] = [];
  private sessionId: unknown;

  private readonly heads = new HeadReader(new Nodes());
  private readonly rows: RowFacts[] = [];
  private readonly ids = new Map<string, number>();
  private readonly entryIds: string[] = [];
  /** Id of the parent, by position. */
  private readonly parents: (string | null)[] = [];
  /** Number of entries that name a parent, by its id. */
  private readonly children = new Map<string, number>();
  private readonly branchHeads = new Set<string>();
  private readonly odd: { entryId: string; reason: string }[] = [];

  private chain = GENESIS;
  private lastCrc = NO_CRC;
  private frameCount = 0;
  private lastSegment = 0;
  private segmentCount = 0;
  private bytesTotal = 0;
  private messages = 0;
  private branches = 0;
  private compactions = 0;
  /** State of the store after each entry that a manifest or checkpoint names as its head. */
  private readonly marks = new Map<
    number,
    { chain: string; entryId: string; counters: Counters; segmentSeq: number; crc: string; segments: number }
  >();

  constructor(disk: Disk, container: string, staging: boolean) {
    this.disk = disk;
    this.container = container;
    this.staging = staging;
  }

  private find(
    invariant: InvariantId | null,
    file: string,
    reason: string,
    more: { byteOffset?: number; length?: number; entryId?: string; recoverable?: boolean } = {},
  ): void {
    if (invariant) this.broken.add(invariant);
    if (++this.findings > MOST_FINDINGS) return;
    const { byteOffset = 0, length = 0, entryId, recoverable = false } = more;
    this.found.push({
      invariant,
      file,
      byteOffset,
      length,
      ...(entryId === undefined ? {} : { entryId }),
      reason,
      recoverable,
    });
  }

  /** Returns the segments by number. Reports other files whose names end with `.seg`. */
  segments(): { seq: number; size: number }[] {
    const folder = segmentFolder(this.container);
    const found: { seq: number; size: number }[] = [];
    for (const name of namesOf(this.disk, folder)) {
      const seq = numberOf(name, "seg");
      if (seq > 0) found.push({ seq, size: sizeOf(this.disk, segmentFile(this.container, seq)) });
      else if (name.endsWith(".seg")) this.find("INV-003", `segments/${name}`, "the name is not a segment's number");
    }
    return found.sort((a, b) => a.seq - b.seq);
  }

  /** Reports folders that a copy of the container left out. */
  readFolders(): void {
    const names = new Set(namesOf(this.disk, this.container));
    for (const name of FOLDERS)
      if (!names.has(name))
        this.find(null, `${name}/`, "it is missing; the next write makes it", { recoverable: true });
  }

  readHeader(): void {
    try {
      const bytes = readWhole(this.disk, headerFile(this.container));
      const end = bytes.indexOf(0x0a);
      const header = parse(bytes, 0, end < 0 ? bytes.length : end) as { type?: unknown; id?: unknown } | null;
      if (header?.type !== "session") throw new Malformed("it is not a session header");
      this.sessionId = header.id;
      if (typeof header.id !== "string" || !isUuid(header.id)) throw new Malformed("the session id is not a UUID");
    } catch (error) {
      this.find(null, "header.jsonl", reasonOf(error));
    }
  }

  /** Reads manifest, checkpoints and ledger, each on its own. */
  readMarks(): void {
    try {
      this.manifest = parseManifest(readWhole(this.disk, manifestFile(this.container)));
      const { sessionId, head, invariants } = this.manifest;
      if (this.sessionId !== undefined && sessionId !== this.sessionId)
        this.find("INV-004", "manifest.json", `it is of the session ${sessionId}`);
      for (const [name, holds] of Object.entries(invariants))
        if (!holds) this.find("INV-004", "manifest.json", `it says that ${name} is not kept`);
      this.mark(head.entrySeq);
    } catch (error) {
      this.find("INV-004", "manifest.json", reasonOf(error));
    }
    const seqs = namesOf(this.disk, checkpointFolder(this.container)).map((name) => numberOf(name, "json"));
    for (const seq of seqs.filter((found) => found > 0).sort((a, b) => a - b))
      try {
        const checkpoint = parseCheckpoint(readWhole(this.disk, checkpointFile(this.container, seq)), seq);
        this.checkpoints.push(checkpoint);
        this.mark(checkpoint.headEntrySeq);
      } catch (error) {
        this.find("INV-004", `checkpoints/${basename(checkpointFile(this.container, seq))}`, reasonOf(error));
      }
    try {
      const { torn } = readLedger(this.disk, ledgerFile(this.container));
      if (torn > 0)
        this.find(null, "migrations/ledger.jsonl", "its last event was cut off", { length: torn, recoverable: true });
    } catch (error) {
      this.find(null, "migrations/ledger.jsonl", reasonOf(error));
    }
  }

  private mark(entrySeq: number): void {
    const nothing = { entriesTotal: 0, messagesTotal: 0, branchesTotal: 0, compactionsTotal: 0, bytesTotal: 0 };
    this.marks.set(entrySeq, { chain: "", entryId: "", counters: nothing, segmentSeq: 0, crc: NO_CRC, segments: 0 });
    if (entrySeq === 0)
      this.marks.set(0, { chain: GENESIS, entryId: "", counters: nothing, segmentSeq: 0, crc: NO_CRC, segments: 0 });
  }

  readRows(): void {
    const file = "index/offsets.jsonl";
    let fd: number;
    try {
      fd = openFile(this.disk, indexFile(this.container));
    } catch (error) {
      this.find("INV-003", file, reasonOf(error));
      return;
    }
    try {
      const take = (start: number, b: Uint8Array, at: number, end: number): void => {
        if (end === at) return;
        try {
          const row = decodeRow(b, at, end);
          if (row.entrySeq !== this.rows.length + 1)
            this.find(
              "INV-002",
              file,
              `entry sequence is not contiguous: ${row.entrySeq} at row ${this.rows.length + 1}`,
              {
                byteOffset: start,
                length: end - at,
                entryId: row.entryId,
              },
            );
          this.rows.push(row);
        } catch (error) {
          this.find("INV-003", file, reasonOf(error), { byteOffset: start, length: end - at });
        }
      };
      const scanned = scanLines(this.disk, fd, 0, 0, {
        line: (_number, start, b, at, end) => take(start, b, at, end),
        long: (_number, start, length) =>
          this.find("INV-003", file, "a row is too long", { byteOffset: start, length }),
      });
      if (scanned.tail < scanned.size)
        this.find("INV-003", file, "unterminated JSONL line: the last row was cut off", {
          byteOffset: scanned.tail,
          length: scanned.size - scanned.tail,
          recoverable: true,
        });
    } finally {
      closeQuietly(this.disk, fd);
    }
  }

  readSegment(seq: number): void {
    const file = `segments/${basename(segmentFile(this.container, seq))}`;
    let frameSeq = 0;
    if (seq !== this.lastSegment + 1) this.find("INV-003", file, `missing segment ${this.lastSegment + 1}`);
    this.lastSegment = seq;
    let fd: number;
    try {
      fd = openFile(this.disk, segmentFile(this.container, seq));
    } catch (error) {
      this.find("INV-003", file, reasonOf(error));
      return;
    }
    try {
      const take = (start: number, b: Uint8Array, at: number, end: number): void => {
        this.takeFrame(file, seq, ++frameSeq, start, b, at, end);
      };
      const scanned = scanLines(this.disk, fd, 0, 0, {
        line: (_number, start, b, at, end) => take(start, b, at, end),
        long: (_number, start, length) => {
          const line = Buffer.allocUnsafe(length + 1);
          readAll(this.disk, fd, line, start);
          take(start, line, 0, length);
        },
      });
      if (scanned.tail < scanned.size)
        this.find("INV-003", file, "the last frame is not LF-terminated: it was cut off", {
          byteOffset: scanned.tail,
          length: scanned.size - scanned.tail,
          recoverable: true,
        });
      if (frameSeq > 0) this.segmentCount++;
    } finally {
      closeQuietly(this.disk, fd);
    }
  }

  /** Checks the frame `b[at, end)`, which its line feed follows. */
  private takeFrame(
    file: string,
    seq: number,
    frameSeq: number,
    start: number,
    b: Uint8Array,
    at: number,
    end: number,
  ): void {
    const length = end + 1 - at;
    const row: RowFacts | undefined = this.rows[this.frameCount];
    const where = { byteOffset: start, length, entryId: row?.entryId };
    let frame: Frame;
    try {
      frame = decodeFrame(b, at, end, true, !this.staging);
    } catch (error) {
      // The frame keeps its place in the count, so that the next ones are compared with their own rows.
      this.find("INV-005", file, reasonOf(error), where);
      this.frameCount++;
      return;
    }
    where.entryId = frame.entryId;
    const crc = crcText(crc32c(b, at, end + 1));
    const entrySeq = this.frameCount + 1;
    if (frame.segmentSeq !== seq) this.find("INV-002", file, `the frame says segment ${frame.segmentSeq}`, where);
    if (frame.frameSeq !== frameSeq)
      this.find("INV-002", file, `frame sequence is not contiguous: ${frame.frameSeq} instead of ${frameSeq}`, where);
    if (frame.entrySeq !== entrySeq)
      this.find("INV-002", file, `entry sequence is not contiguous: ${frame.entrySeq} instead of ${entrySeq}`, where);
    if (!row) this.find("INV-006", file, "the frame has no index row", { ...where, recoverable: true });
    else this.holdAgainstRow(file, row, frame, start, length, crc, where);
    if (this.ids.has(frame.entryId)) this.find("INV-002", file, `duplicate entry_id detected: ${frame.entryId}`, where);
    this.bind(file, b, frame, where);
    this.count(frame, length, crc);
  }

  private holdAgainstRow(
    file: string,
    row: RowFacts,
    frame: Frame,
    start: number,
    length: number,
    crc: string,
    where: { byteOffset: number; length: number; entryId?: string },
  ): void {
    const differs =
      row.segmentSeq !== frame.segmentSeq ||
      row.frameSeq !== frame.frameSeq ||
      row.byteOffset !== start ||
      row.byteLength !== length ||
      row.entryId !== frame.entryId;
    if (differs) this.find("INV-003", file, "index/frame mismatch: the row names another place or entry", where);
    else if (row.crc32c !== crc)
      this.find("INV-003", file, `checksum mismatch: the row says ${row.crc32c}, the frame has ${crc}`, where);
  }

  /** Compares the frame's own members with those of its entry. */
  private bind(
    file: string,
    b: Uint8Array,
    frame: Frame,
    where: { byteOffset: number; length: number; entryId?: string },
  ): void {
    const { payloadStart, payloadEnd } = frame;
    const { heads } = this;
    if (!isUtf8(b.subarray(payloadStart, payloadEnd))) this.find("INV-005", file, "the payload is not UTF-8", where);
    else if (heads.read(b, payloadStart, payloadEnd)) {
      // The usual head; the payload was found to be JSON when the frame was decoded.
      const parent = heads.packedParent < 0 ? null : unpackId(heads.packedParent);
      this.holdAgainstEntry(file, frame, unpackId(heads.packedId), parent, KNOWN_TYPES[heads.type], where);
    } else this.bindSlowly(file, b, frame, where);
    if (!isWireId(frame.entryId)) this.odd.push({ entryId: frame.entryId, reason: "its id has other characters" });
    if (!RUST_TYPES.has(frame.entryType))
      this.odd.push({ entryId: frame.entryId, reason: `its type is ${frame.entryType}` });
  }

  private holdAgainstEntry(
    file: string,
    frame: Frame,
    id: unknown,
    parent: unknown,
    type: unknown,
    where: { byteOffset: number; length: number; entryId?: string },
  ): void {
    if (id !== frame.entryId) this.find("INV-003", file, "the payload has another id", where);
    if (parent !== frame.parentEntryId) this.find("INV-001", file, "the payload has another parent", where);
    if (type !== frame.entryType) this.find("INV-003", file, "the payload has another type", where);
  }

  private bindSlowly(
    file: string,
    b: Uint8Array,
    frame: Frame,
    where: { byteOffset: number; length: number; entryId?: string },
  ): void {
    const found = members(b, frame.payloadStart, frame.payloadEnd);
    if (!found) {
      this.find("INV-005", file, "the payload is not a JSON object", where);
      return;
    }
    const value = (name: string): unknown => {
      const member = memberOf(found, name);
      const given = member ? parse(b, member.start, member.end) : undefined;
      return typeof given === "number" && name !== "type" ? String(given) : given;
    };
    const parent = value("parentId");
    this.holdAgainstEntry(
      file,
      frame,
      value("id"),
      parent === undefined || parent === "" ? null : parent,
      value("type"),
      where,
    );
  }

  private count(frame: Frame, length: number, crc: string): void {
    const { entryId, parentEntryId, entryType } = frame;
    this.frameCount++;
    this.ids.set(entryId, this.entryIds.length);
    this.entryIds.push(entryId);
    this.parents.push(parentEntryId);
    this.branchHeads.add(entryId);
    if (parentEntryId !== null) {
      this.branchHeads.delete(parentEntryId);
      const siblings = (this.children.get(parentEntryId) ?? 0) + 1;
      this.children.set(parentEntryId, siblings);
      if (siblings === 2) this.branches++;
    }
    if (entryType === "message") this.messages++;
    if (entryType === "compaction") this.compactions++;
    this.bytesTotal += length;
    this.chain = chained(this.chain, frame.payloadSha256);
    this.lastCrc = crc;
    if (!this.marks.has(this.frameCount)) return;
    this.marks.set(this.frameCount, {
      chain: this.chain,
      entryId,
      counters: this.counters(),
      segmentSeq: frame.segmentSeq,
      crc,
      segments: this.segmentCount + 1,
    });
  }

  private counters(): Counters {
    return {
      entriesTotal: this.entryIds.length,
      messagesTotal: this.messages,
      branchesTotal: this.branches,
      compactionsTotal: this.compactions,
      bytesTotal: this.bytesTotal,
    };
  }

  /** Checks what can be checked only after everything was read. */
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
      const tell = (name: string): void =>
        this.find(
          name === "chainHash" ? "INV-005" : "INV-004",
          "manifest.json",
          `${name} is not that of entry ${head.entrySeq}`,
        );
      if (head.entrySeq > this.frameCount)
        this.find("INV-004", "manifest.json", `its head is entry ${head.entrySeq}, and there are ${this.frameCount}`);
      else if (then) {
        if (then.entryId !== head.entryId || then.segmentSeq !== head.segmentSeq) tell("head");
        if (then.chain !== integrity.chainHash) tell("chainHash");
        if (then.crc !== integrity.lastCrc32c) tell("lastCrc32c");
        if (then.segments !== files.segmentCount) tell("files.segmentCount");
        for (const name of Object.keys(counters) as (keyof Counters)[])
          if (then.counters[name] !== counters[name]) tell(`counters.${name}`);
      }
    }
    let before: Checkpoint | undefined;
    for (const checkpoint of this.checkpoints) {
      const { headEntrySeq, headEntryId, chainHash } = checkpoint;
      const then = this.marks.get(headEntrySeq);
      const told = (invariant: InvariantId, reason: string): void =>
        this.find(invariant, checkpoint.snapshotRef, reason, { entryId: headEntryId });
      if (headEntrySeq > this.frameCount) told("INV-004", `its head is entry ${headEntrySeq}, which is not there`);
      else if (then && then.entryId !== headEntryId) told("INV-004", `entry ${headEntrySeq} is ${then.entryId}`);
      else if (then && then.chain !== chainHash) told("INV-005", "its chain is not the one up to its head");
      if (
        before &&
        (before.headEntrySeq > headEntrySeq || before.compactedBeforeEntrySeq > checkpoint.compactedBeforeEntrySeq)
      )
        told("INV-004", "it goes back to before the previous checkpoint");
      before = checkpoint;
    }
  }

  readPointer(): void {
    const file = pointerFile(this.container);
    const name = basename(file);
    try {
      this.pointer = readPointer(this.disk, file);
    } catch (error) {
      const recoverable = error instanceof Malformed && isUnpointed(this.disk, this.container);
      this.find(recoverable ? null : "INV-007", name, reasonOf(error), { recoverable });
      return;
    }
    const { pointer } = this;
    if (!pointer && isUnpointed(this.disk, this.container))
      this.find(null, name, "it is missing; the next write makes it", { recoverable: true });
    else if (!pointer) this.find("INV-007", name, "there is no pointer, so the store is not the session");
    else if (pointer.active !== "native_v2") this.find("INV-007", name, `the active store is ${pointer.active}`);
    else if (pointer.phase === "cutover_commit" || pointer.phase === "failed")
      this.find("INV-007", name, `the migration is at ${pointer.phase}: ${pointer.reason ?? "it was not verified"}`);
    else if (pointer.source !== null) {
      const source = join(dirname(this.container), pointer.source);
      if (exists(this.disk, source))
        this.find("INV-007", name, `${pointer.source} exists next to the store that replaced it`);
    }
  }

  answer(): Audit {
    const holds = Object.fromEntries(
      Object.keys(INVARIANTS).map((id) => [id, !this.broken.has(id as InvariantId)]),
    ) as Record<InvariantId, boolean>;
    return {
      ok: this.findings === 0,
      invariants: holds,
      findings: this.found,
      counters: this.counters(),
      segmentCount: this.segmentCount,
      headEntryId: this.entryIds.at(-1) ?? "",
      chainHash: this.chain,
      lastCrc32c: this.lastCrc,
      manifest: this.manifest,
      checkpoints: this.checkpoints,
      pointer: this.pointer,
      notExchangeable: this.odd,
    };
  }
}

function namesOf(disk: Disk, folder: string): string[] {
  try {
    return disk.names(folder);
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
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
