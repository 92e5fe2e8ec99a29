/**
 * A reader of Session Store V2 containers that follows the numbered steps of docs/session-store-v2.md and nothing else:
 * it shares no code with the program, and whoever changes one of the two changes the other.
 */

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";

// biome-ignore lint/suspicious/noExplicitAny: JSON of files is looked at, member by member
type Json = any;

export interface Told {
  readonly kind: string;
  readonly where: string;
}

export interface Read {
  readonly header: string;
  /** Of all entries in order, as the lines of a session file would have them. */
  readonly lines: readonly string[];
  readonly ids: readonly string[];
  readonly leafId: string | null;
  readonly told: readonly Told[];
  readonly chain: string;
}

interface Entry {
  readonly id: string;
  readonly parentId: string | null;
  readonly type: string;
  readonly text: string;
  readonly value: Json;
  readonly hash: string;
}

interface Stretch {
  readonly segment: number;
  readonly offset: number;
  readonly frame: Json | null;
  readonly payload: Buffer;
}

const sha256 = (bytes: Buffer | string): string => createHash("sha256").update(bytes).digest("hex");

/** CRC-32C, bit by bit. */
export function crcText(bytes: Buffer): string {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ((crc ^ 0xffffffff) >>> 0).toString(16).toUpperCase().padStart(8, "0");
}

function jsonOf(bytes: Buffer | string): Json {
  try {
    if (typeof bytes === "string") return JSON.parse(bytes);
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return undefined;
  }
}

function fileOr(path: string): Buffer | null {
  return existsSync(path) ? readFileSync(path) : null;
}

/** Cuts bytes behind each line feed; the last piece is what has none. */
function piecesOf(bytes: Buffer): { pieces: { offset: number; bytes: Buffer }[]; rest: Buffer } {
  const pieces: { offset: number; bytes: Buffer }[] = [];
  let start = 0;
  for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, start)) {
    pieces.push({ offset: start, bytes: bytes.subarray(start, end + 1) });
    start = end + 1;
  }
  return { pieces, rest: bytes.subarray(start) };
}

const FRAME =
  "schema segmentSeq frameSeq entrySeq entryId parentEntryId entryType timestamp payloadSha256 payloadBytes payload";
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 1;
const isText = (value: unknown): boolean => typeof value === "string" && value !== "";
const idText = (value: unknown): string | null => (isText(value) || typeof value === "number" ? String(value) : null);
const MARK = Buffer.from(',"payload":');

/** Step 5: the frame that is a line, or null. Only lines whose payload comes last are taken, as all writers have it. */
function frameOf(line: Buffer): { frame: Json; payload: Buffer } | null {
  const frame = jsonOf(line.subarray(0, -1));
  if (typeof frame !== "object" || frame === null || Array.isArray(frame)) return null;
  if (Object.keys(frame).some((name) => !FRAME.split(" ").includes(name))) return null;
  if (frame.schema !== "pi.session_store_v2.segment_frame.v1") return null;
  if (![frame.segmentSeq, frame.frameSeq, frame.entrySeq, frame.payloadBytes].every(isCount)) return null;
  if (![frame.entryId, frame.entryType, frame.timestamp].every(isText)) return null;
  const end = line.length - 2;
  const start = end - frame.payloadBytes;
  if (line[end] !== 0x7d || start < MARK.length || !line.subarray(start - MARK.length, start).equals(MARK)) return null;
  const payload = line.subarray(start, end);
  if (sha256(payload) !== frame.payloadSha256) return null;
  const entry = jsonOf(payload);
  if (typeof entry !== "object" || entry === null || entry.type !== frame.entryType) return null;
  if ((idText(entry.id) ?? frame.entryId) !== frame.entryId) return null;
  if (idText(entry.parentId) !== (frame.parentEntryId ?? null)) return null;
  return { frame, payload };
}

/** Reads the container at a path; `stateFolder`: where the program that wrote it keeps the positions of leaves. */
export function readContainer(container: string, stateFolder?: string): Read {
  const told: Told[] = [];
  const tell = (kind: string, where = ""): void => void told.push({ kind, where });

  // 1. Is the container the session?
  const id = basename(container, ".v2");
  const manifest = jsonOf(fileOr(join(container, "manifest.json")) ?? "");
  const pointerBytes = fileOr(join(dirname(container), `${id}.store.json`));
  if (pointerBytes === null) {
    if (manifest?.sourceFormat !== "native_v2" || manifest.sessionId !== id) throw new Error("not the session");
  } else if (jsonOf(pointerBytes)?.active !== "native_v2") throw new Error("not the session");

  // 2. The header.
  const [headerLine] = readFileSync(join(container, "header.jsonl"), "utf8").split("\n");
  const header = JSON.parse(headerLine);
  if (header.type !== "session" || !isText(header.id)) throw new Error("no header");

  // 3. The index, before the segments.
  const rows = new Map<number, Json>();
  const index = fileOr(join(container, "index", "offsets.jsonl"));
  const { pieces, rest } = piecesOf(index ?? Buffer.alloc(0));
  if (index === null || rest.length > 0) tell("bad_index", "missing, or its last row was cut off");
  for (const { offset, bytes } of pieces) {
    const row = jsonOf(bytes);
    const isRow = row?.schema === "pi.session_store_v2.offset_index.v1" && isCount(row.entrySeq);
    if (!isRow || rows.has(row.entrySeq)) tell("bad_index", `row at ${offset}`);
    else rows.set(row.entrySeq, row);
  }
  const promised = Math.max(0, ...rows.keys());

  // 4. The segments.
  const segments = readdirSync(join(container, "segments"))
    .filter((name) => /^\d{16}\.seg$/.test(name))
    .sort();

  // 5. Lines, and which of them are frames.
  const stretches: Stretch[] = [];
  const noFrame = { frame: null, payload: Buffer.alloc(0) };
  for (const name of segments) {
    const segment = Number(name.slice(0, 16));
    const cut = piecesOf(readFileSync(join(container, "segments", name)));
    let offset = 0;
    for (const { bytes } of cut.pieces) {
      const found = frameOf(bytes);
      const row = found && rows.get(found.frame.entrySeq);
      const isGood = found?.frame.segmentSeq === segment && (!row || row.crc32c === crcText(bytes));
      stretches.push({ segment, offset, ...(isGood && found ? found : noFrame) });
      offset += bytes.length;
    }
    if (cut.rest.length > 0) stretches.push({ segment, offset, ...noFrame });
  }

  // 6. Entries in order.
  const entries: Entry[] = [];
  const ids = new Set<string>();
  const spoilt: Stretch[] = [];
  let salvaged = false;
  let strangers = false;
  let highest = 0;
  for (const stretch of stretches) {
    const { frame, payload } = stretch;
    const isStranger = frame !== null && (frame.entrySeq <= highest || (spoilt.length > 0 && ids.has(frame.entryId)));
    if (frame === null || isStranger) {
      strangers ||= isStranger;
      spoilt.push(stretch);
      continue;
    }
    salvaged ||= spoilt.length > 0;
    if (ids.has(frame.entryId)) tell("duplicate_id", frame.entryId);
    ids.add(frame.entryId);
    highest = frame.entrySeq;
    const text = payload.toString("utf8");
    const { payloadSha256: hash, entryId, entryType: type, parentEntryId: parentId = null } = frame;
    entries.push({ id: entryId, parentId, type, text, value: JSON.parse(text), hash });
  }

  // 7. What is missing, and what was never acknowledged.
  const missing = Math.max(promised, highest) - entries.length;
  if (missing > 0) tell("lost_entries", `${missing}`);
  const isTorn = spoilt.length > 0 && !salvaged && !strangers && missing === 0;
  for (const { segment, offset } of isTorn ? spoilt.slice(0, 1) : spoilt)
    tell(isTorn ? "torn_tail" : "bad_line", `segment ${segment} at ${offset}`);

  // 8. A batch that is not whole.
  const batchOf = (entry: Entry | undefined): Json => {
    const batch = entry?.value._batch;
    const counts = Number.isInteger(batch?.index) && Number.isInteger(batch?.count) && batch.index >= 0;
    return counts && batch.session === header.id ? batch : undefined;
  };
  const last = batchOf(entries.at(-1));
  if (missing === 0 && (spoilt.length === 0 || isTorn) && last && last.index < last.count - 1) {
    tell("incomplete_batch", entries.at(-1)?.id);
    let due = last.index;
    for (let at = batchOf(entries.at(-1)); at?.index === due; at = batchOf(entries.at(-1))) {
      if (at.count !== last.count || at.key !== last.key) break;
      entries.pop();
      due--;
    }
  }

  // 9. Parents, and the marks.
  for (const { id, parentId } of entries) if (parentId !== null && !ids.has(parentId)) tell("missing_parent", id);
  const chains = ["0".repeat(64)];
  for (const { hash } of entries) chains.push(sha256(chains[chains.length - 1] + hash));
  const marks: { entrySeq: number; entryId: string; chainHash: string }[] = [];
  const { manifestHash, ...integrity } = manifest?.integrity ?? {};
  if (manifest && sha256(JSON.stringify({ ...manifest, integrity: sealed(integrity) })) === manifestHash)
    marks.push({ ...manifest.head, chainHash: integrity.chainHash });
  const checkpoints = join(container, "checkpoints");
  const named = existsSync(checkpoints) ? readdirSync(checkpoints).filter((name) => /^\d{16}\.json$/.test(name)) : [];
  for (const name of named.sort().reverse()) {
    const checkpoint = jsonOf(readFileSync(join(checkpoints, name)));
    if (checkpoint?.snapshotRef !== `checkpoints/${name}`) continue;
    const { headEntrySeq, headEntryId, chainHash } = checkpoint;
    marks.push({ entrySeq: headEntrySeq, entryId: headEntryId, chainHash });
    break;
  }
  if (missing === 0 && (spoilt.length === 0 || isTorn))
    for (const { entrySeq, entryId, chainHash } of marks) {
      if (entrySeq > entries.length) tell("lost_entries", `${entrySeq - entries.length}`);
      else if (chains[entrySeq] !== chainHash || (entries[entrySeq - 1]?.id ?? "") !== entryId)
        tell("bad_line", entryId);
    }

  return {
    header: headerLine,
    lines: entries.map(({ text }) => text),
    ids: entries.map(({ id }) => id),
    leafId: leafOf(entries, header, recordedLeaf(container, stateFolder, entries)),
    told,
    chain: chains[chains.length - 1],
  };
}

/** The members of a manifest's integrity in their order, with an empty hash. */
function sealed({ chainHash, lastCrc32c }: Json): Json {
  return { chainHash, manifestHash: "", lastCrc32c };
}

/** Step 10, first rule. */
function recordedLeaf(container: string, folder: string | undefined, entries: readonly Entry[]): Json {
  if (folder === undefined) return undefined;
  const { dev, ino } = statSync(join(container, "header.jsonl"));
  const record = jsonOf(fileOr(join(folder, "leaves", `${dev}-${ino}.json`)) ?? "");
  const place = [record, record?.before].find(
    (at) => at && at.count === entries.length && at.lastId === (entries.at(-1)?.id ?? null),
  );
  return place?.leafId;
}

/** Step 10. */
function leafOf(entries: readonly Entry[], header: Json, recorded: string | null | undefined): string | null {
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  const continued = new Set(entries.map(({ parentId }) => parentId));
  const placeOf = (entry: Entry): string | null => {
    const isMarker = entry.type === "custom" && entry.value.customType === "pi-session-server.leaf";
    if (!isMarker || continued.has(entry.id)) return entry.id;
    return entry.parentId !== null && byId.has(entry.parentId) ? entry.parentId : null;
  };
  if (recorded === null) return null;
  for (const named of [recorded, header.leafId]) {
    if (named === "") return null;
    const entry = byId.get(named);
    if (entry) return placeOf(entry);
  }
  const isAside = ({ type }: Entry): boolean => type === "label" || type === "session_info";
  const last = entries.at(-1);
  if (!last) return null;
  const decisive = entries.findLast((entry) => !isAside(entry));
  if (!decisive) return last.id;
  const target = placeOf(decisive);
  if (decisive === last) return target;
  let at: Entry | undefined = last;
  while (at && at.id !== target && isAside(at)) at = at.parentId === null ? undefined : byId.get(at.parentId);
  if (!at) return target === null ? last.id : target;
  for (let above: Entry | undefined = at; above; above = byId.get(above.parentId ?? ""))
    if (above.id === target) return last.id;
  return target;
}
