/**
 * A reader of Session Store V2 containers that follows the numbered steps of docs/session-store-v2.md and nothing else:
 * it shares no code with the program, and a change of one of the two requires a change of the other.
 */

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
// @ts-expect-error plain JavaScript, to check containers without the program
import { crcOf } from "./v2-checker.js";

export const crcText = (bytes: Buffer): string => crcOf(bytes);

// biome-ignore lint/suspicious/noExplicitAny: JSON of files is looked at, member by member
type Json = any;

export interface Fault {
  readonly kind: string;
  readonly entryId?: string;
}

export interface Read {
  readonly header: string;
  /** Lines of all shown entries, in order, as a session file would have them. */
  readonly lines: readonly string[];
  readonly leafId: string | null;
  /** Leaves of heads. */
  readonly heads: Readonly<Record<string, string | null>>;
  readonly name: string | null;
  /** By the ids of their entries. */
  readonly labels: Readonly<Record<string, string>>;
  readonly faults: readonly Fault[];
  readonly chain: string;
}

interface Head {
  readonly type: string;
  readonly id: string;
  readonly parentId: string | null;
  readonly isMarker: boolean;
}

interface Entry extends Head {
  parent: Entry | null;
  readonly text: string;
  readonly value: Json;
  readonly hash: string;
}

/** A frame, or a stretch without one. */
interface Piece {
  readonly segment: number;
  readonly offset: number;
  readonly bytes: Buffer;
  readonly frame: Json | null;
  readonly payload: Buffer;
  /** True for the end of a segment without a line feed. */
  readonly isRest: boolean;
  /** The row of the piece's entry, or of the entry that is damaged there. */
  row?: Json;
  use: "frame" | "stand-in" | "bad" | "stranger";
}

const sha256 = (bytes: Buffer | string): string => createHash("sha256").update(bytes).digest("hex");

function jsonOf(bytes: Buffer | string): Json {
  try {
    if (typeof bytes === "string") return JSON.parse(bytes);
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return undefined;
  }
}

/** Returns whether bytes are JSON after bytes that are not UTF-8 were replaced. */
const isLooseJson = (bytes: Buffer): boolean => jsonOf(bytes.toString("utf8")) !== undefined;

/** Returns a file's bytes; none if it does not exist. */
const fileOr = (path: string): Buffer => (existsSync(path) ? readFileSync(path) : Buffer.alloc(0));

/** Cuts bytes after each line feed; the last piece may have none. */
function linesOf(bytes: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  for (let start = 0; start < bytes.length; start += lines[lines.length - 1].length) {
    const feed = bytes.indexOf(10, start);
    lines.push(bytes.subarray(start, feed < 0 ? bytes.length : feed + 1));
  }
  return lines;
}

const isEnded = (line: Buffer): boolean => line.at(-1) === 10;

const FRAME =
  "schema segmentSeq frameSeq entrySeq entryId parentEntryId entryType timestamp payloadSha256 payloadBytes payload";
const POINTER = "active manifestHash snapshotId correlationId reason phase source";
const ROW = "schema entrySeq entryId segmentSeq frameSeq byteOffset byteLength crc32c state";
const TIME = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i;
const isObject = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);
const isOfMembers = (value: object, names: string): boolean =>
  Object.keys(value).every((name) => names.split(" ").includes(name));
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 1;
const isText = (value: unknown): boolean => typeof value === "string" && value !== "";
const idText = (value: unknown): string | null => (isText(value) || typeof value === "number" ? String(value) : null);
const MARK = Buffer.from(',"payload":');
const MARKER = "pi-session-server.leaf";

function rowOf(line: Buffer): Json {
  const row = jsonOf(line);
  if (!isObject(row) || !isOfMembers(row, ROW) || row.schema !== "pi.session_store_v2.offset_index.v1") return null;
  const counts = [row.entrySeq, row.segmentSeq, row.frameSeq, row.byteLength, row.byteOffset + 1].every(isCount);
  return counts && isText(row.entryId) && /^[0-9A-F]{8}$/.test(row.crc32c) && row.state === "active" ? row : null;
}

/** Step 5: the frame that is a line, or null. Only lines whose payload comes last are taken, as all writers have it. */
function frameOf(line: Buffer): { frame: Json; payload: Buffer } | null {
  const frame = jsonOf(line.subarray(0, -1));
  if (!isObject(frame) || !isOfMembers(frame, FRAME)) return null;
  if (frame.schema !== "pi.session_store_v2.segment_frame.v1") return null;
  if (![frame.segmentSeq, frame.frameSeq, frame.entrySeq, frame.payloadBytes].every(isCount)) return null;
  if (![frame.entryId, frame.entryType].every(isText) || !TIME.test(frame.timestamp)) return null;
  const end = line.length - 2;
  const start = end - frame.payloadBytes;
  if (line[end] !== 0x7d || start < MARK.length || !line.subarray(start - MARK.length, start).equals(MARK)) return null;
  const names = line.toString("latin1", 0, start).match(/"\w+":/g) ?? [];
  if (new Set(names).size < names.length) return null;
  const payload = line.subarray(start, end);
  if (sha256(payload) !== frame.payloadSha256) return null;
  const entry = jsonOf(payload);
  if (!isObject(entry) || entry.type !== frame.entryType) return null;
  if ((idText(entry.id) ?? frame.entryId) !== frame.entryId) return null;
  if (idText(entry.parentId) !== (frame.parentEntryId ?? null)) return null;
  return { frame, payload };
}

const BEGINNING = '{"schema":"pi.session_store_v2.segment_frame.v1","segmentSeq":';
const ID = '"([0-9a-f]{8})"';
const PAYLOAD_HEAD = new RegExp(
  `^{"type":"(\\w+)","id":${ID},"parentId":(?:null|${ID}),"timestamp":"[^"\\\\]*"` +
    `(?:,"_batch":{[^}]*})?(,"customType":"${MARKER.replace(/[-.]/g, "\\$&")}")?`,
);
const FRAME_HEAD = new RegExp(
  `^${BEGINNING}\\d+,"frameSeq":\\d+,"entrySeq":\\d+,"entryId":"([^"\\\\]+)"(?:,"parentEntryId":"([^"\\\\]+)")?` +
    `,"entryType":"([^"\\\\]+)","timestamp":"[^"\\\\]*","payloadSha256":"[0-9a-f]{64}","payloadBytes":\\d+,"payload":`,
);
const TYPES =
  "message custom custom_message model_change thinking_level_change compaction branch_summary label session_info usage context_edit";

/** Returns the head in a whole payload, or in the frame around it; null if there is none. */
function headOf(payload: Buffer, frame?: Json): Head | null {
  const value = jsonOf(payload);
  if (!isObject(value) || !isText(value.type)) return null;
  const isMarker = value.type === "custom" && value.customType === MARKER;
  if (frame) return { type: frame.entryType, id: frame.entryId, parentId: frame.parentEntryId ?? null, isMarker };
  return { type: value.type, id: idText(value.id) ?? "", parentId: idText(value.parentId), isMarker };
}

/** Step 7: what damaged bytes still say of an entry, by its payload and by its frame. */
function headsIn(bytes: Buffer): Head[] {
  const line = bytes.toString("latin1");
  const mark = line.indexOf(',"payload":');
  const starts = [mark < 0 ? -1 : mark + MARK.length, line.indexOf("{", 1)].filter((at) => at >= 0);
  const whole = starts.map((at) => headOf(bytes.subarray(at, isEnded(bytes) ? -2 : -1))).find((head) => head !== null);
  const heads = whole ? [whole] : [];
  const own = mark < 0 ? null : PAYLOAD_HEAD.exec(line.slice(mark + MARK.length));
  if (own && TYPES.split(" ").includes(own[1]))
    heads.push({ type: own[1], id: own[2], parentId: own[3] ?? null, isMarker: own[4] !== undefined });
  const frame = FRAME_HEAD.exec(line);
  if (frame) heads.push({ type: frame[3], id: frame[1], parentId: frame[2] ?? null, isMarker: false });
  return heads;
}

/** Returns whether a piece lies where a row says. */
function isAt({ segment, offset, bytes }: Piece, row: Json): boolean {
  return row.segmentSeq === segment && row.byteOffset === offset && row.byteLength === bytes.length;
}

/** Step 1: whether a container whose pointer is missing or damaged is the session. */
function isSession(container: string, id: string, manifest: Json): boolean {
  if (manifest && manifest.sessionId !== id) return false;
  if (manifest?.sourceFormat === "native_v2") return true;
  const folder = dirname(container);
  const files = readdirSync(folder);
  const textAt = (name: string): string => readFileSync(join(folder, name), "latin1");
  const events = linesOf(fileOr(join(container, "migrations", "ledger.jsonl")))
    .filter(isEnded)
    .map(jsonOf);
  const isLedger = events.every((event) => event?.schema === "pi.session_store_v2.migration_event.v1");
  const last = isLedger ? events.findLast((event) => event.sourceFormat !== event.targetFormat) : undefined;
  if (last !== undefined)
    return last.phase === "completed" && last.outcome === "ok" && !files.includes(basename(last.sourcePath));
  // A database of the session was frozen next to it, and none is in its place.
  if (manifest?.sourceFormat === "sqlite_v1")
    return files.some((name) => {
      const original = name.replace(/\.migrated$/, "");
      return original !== name && !files.includes(original) && textAt(name).includes(id);
    });
  // No session file of its id lies next to it.
  return !files.some((name) => name.endsWith(".jsonl") && (name.includes(id) || textAt(name).includes(`"${id}"`)));
}

/** Reads the container at a path; `stateFolder`: where the program that wrote it keeps the positions of leaves. */
export function readContainer(container: string, stateFolder?: string): Read {
  const faults: Fault[] = [];
  const add = (kind: string, entryId?: string): void =>
    void faults.push(entryId === undefined ? { kind } : { kind, entryId });

  // 1. Is the container the session?
  const id = basename(container, ".v2");
  const manifest = manifestIn(container);
  const pointer = jsonOf(fileOr(join(dirname(container), `${id}.store.json`)));
  const isPointer = isObject(pointer) && POINTER.split(" ").every((name) => name in pointer);
  if (isPointer ? pointer.active !== "native_v2" : !isSession(container, id, manifest))
    throw new Error("not the session");

  // 2. The header.
  const [headerLine] = readFileSync(join(container, "header.jsonl"), "utf8").split("\n");
  let header = jsonOf(headerLine);
  if (header?.type !== "session" || !isText(header.id)) {
    add("bad_header");
    header = { id };
  }

  // 3. The index, before the segments.
  const rows = new Map<number, Json[]>();
  const index = join(container, "index", "offsets.jsonl");
  const indexLines = linesOf(fileOr(index));
  let isIndexWhole = existsSync(index) && indexLines.every(isEnded);
  for (const [n, line] of indexLines.filter(isEnded).entries()) {
    const row = rowOf(line);
    if (row?.entrySeq !== n + 1) isIndexWhole = false;
    if (row) rows.set(row.entrySeq, [...(rows.get(row.entrySeq) ?? []), row]);
  }
  const allRows = [...rows.values()].flat();
  const exactRow = (frame: Json, bytes: Buffer): Json | undefined =>
    rows.get(frame.entrySeq)?.find((row) => row.byteLength === bytes.length && row.crc32c === crcText(bytes));

  // 4. The segments.
  const segments = readdirSync(join(container, "segments"))
    .filter((name) => /^\d{16}\.seg$/.test(name))
    .sort();

  // 5. Lines, and which of them are frames.
  const pieces: Piece[] = [];
  for (const name of segments) {
    let offset = 0;
    const add = (bytes: Buffer, found: ReturnType<typeof frameOf>, isRest = false): void => {
      const { frame, payload } = found ?? { frame: null, payload: Buffer.alloc(0) };
      pieces.push({ segment: Number(name.slice(0, 16)), offset, bytes, frame, payload, isRest, use: "bad" });
      offset += bytes.length;
    };
    for (const bytes of linesOf(readFileSync(join(container, "segments", name)))) {
      let found = isEnded(bytes) ? frameOf(bytes) : null;
      let at = found || !isEnded(bytes) ? 0 : bytes.lastIndexOf(BEGINNING);
      for (; at > 0; at = bytes.lastIndexOf(BEGINNING, at - 1)) {
        found = frameOf(bytes.subarray(at));
        if (found && (!rows.has(found.frame.entrySeq) || exactRow(found.frame, bytes.subarray(at)))) break;
        found = null;
      }
      if (found && at > 0) add(bytes.subarray(0, at), null);
      add(found ? bytes.subarray(at) : bytes, found, !isEnded(bytes));
    }
  }

  // 6. Which frames are entries.
  const settled = new Set<Json>();
  const ids = new Set<string>();
  const take = (piece: Piece, use: Piece["use"], row: Json | undefined, entryId: string): void => {
    Object.assign(piece, { use, row });
    if (row) settled.add(row);
    ids.add(entryId);
  };
  for (const piece of pieces) {
    const row = piece.frame && exactRow(piece.frame, piece.bytes);
    if (row && !settled.has(row)) take(piece, "frame", row, row.entryId);
  }
  let due: number | null = 1;
  for (const piece of pieces) {
    const { frame } = piece;
    if (frame && piece.use === "bad") {
      const named = rows.get(frame.entrySeq) ?? [];
      const same = named.find((row) => row.entryId === frame.entryId && row.frameSeq === frame.frameSeq);
      const isFree = !ids.has(frame.entryId);
      if (same && isFree && !settled.has(same)) {
        take(piece, "frame", same, frame.entryId);
        add("bad_index", frame.entryId);
      } else if (named.length === 0 && (isFree || frame.entrySeq === due))
        take(piece, "frame", undefined, frame.entryId);
      else if (isFree && !isIndexWhole && named.every((row) => !settled.has(row)))
        take(piece, "frame", undefined, frame.entryId);
      else piece.use = "stranger";
    }
    due = due !== null && frame?.entrySeq === due && piece.use !== "stranger" ? due + 1 : null;
  }

  // 7. Stand-ins.
  for (const piece of pieces) {
    if (piece.frame !== null) continue;
    const named = headsIn(piece.bytes).map(({ id }) => allRows.find(({ entryId }) => entryId === id));
    const row = named.find((found) => found !== undefined);
    if (!row || settled.has(row) || ids.has(row.entryId)) continue;
    if (!piece.isRest || isAt(piece, row)) take(piece, "stand-in", row, row.entryId);
  }

  // 8. The order, and ids that are taken.
  let key = 0;
  const keyed: { key: number; piece: Piece }[] = [];
  for (const piece of pieces.filter(({ use }) => use === "frame" || use === "stand-in")) {
    key = piece.row?.entrySeq ?? key;
    keyed.push({ key, piece });
  }
  keyed.sort((a, b) => a.key - b.key);
  const entries: Entry[] = [];
  const byId = new Map<string, Entry>();
  let stubs = 0;
  for (const { piece } of keyed) {
    const { frame, payload } = piece;
    const heads = frame ? [headOf(payload, frame) as Head] : headsIn(piece.bytes);
    const isKnown = ({ id, parentId }: Head): boolean =>
      frame !== null || (id === piece.row?.entryId && (parentId === null || byId.has(parentId)));
    const head = heads.find(isKnown);
    if (!head) {
      // Not legible enough.
      settled.delete(piece.row as Json);
      ids.delete(piece.row?.entryId as string);
      piece.use = "bad";
      continue;
    }
    let { id } = head;
    for (let n = 2; byId.has(id); n++) id = `${head.id}~${n}`;
    const isStub = piece.use === "stand-in";
    if (isStub) stubs++;
    const text = payload.toString("utf8");
    const value = isStub ? {} : JSON.parse(text);
    const shown = id === head.id ? text : text.replace(JSON.stringify(head.id), JSON.stringify(id));
    const entry = { ...head, id, parent: null, text: isStub ? "" : shown, value, hash: frame?.payloadSha256 ?? "" };
    entries.push(entry);
    byId.set(id, entry);
    if (isStub) add("bad_body", id);
    if (id !== head.id) add("duplicate_id", id);
  }

  // 9. Missing entries, and entries that were never acknowledged.
  const isInPlace = (piece: Piece): boolean => piece.use === "stand-in" && isAt(piece, piece.row as Json);
  const bad = pieces.filter((piece) => piece.use !== "frame" && !isInPlace(piece));
  const isGood = (piece: Piece): boolean => piece.use === "frame" || piece.use === "stand-in";
  const after = bad.length === 0 ? [] : pieces.slice(pieces.indexOf(bad[0]));
  const isWholeLine = ({ bytes }: Piece): boolean => isEnded(bytes) && isLooseJson(bytes.subarray(0, -1));
  const isTorn =
    bad.length > 0 && !after.some((piece) => isGood(piece) || piece.use === "stranger") && !bad.some(isWholeLine);
  if (isTorn) add("torn_tail");
  else
    for (const [n, piece] of bad.entries()) {
      const { [n - 1]: before } = bad;
      if (before?.segment !== piece.segment || before.offset + before.bytes.length !== piece.offset) add("bad_line");
    }
  const lost = [...rows.values()].filter((same) => !same.some((row) => settled.has(row) || byId.has(row.entryId)));
  const isMoved = keyed.some(({ piece }, n) => n > 0 && pieces.indexOf(piece) < pieces.indexOf(keyed[n - 1].piece));
  if (bad.length === 0 && lost.length === 0 && isMoved) add("bad_line");
  if (!isIndexWhole) add("bad_index");
  if (lost.length > 0) add("lost_entries");
  let isWhole = lost.length === 0 && !isMoved && (bad.length === 0 || isTorn);

  // 10. The marks.
  const marks = [...(manifest ? [{ ...manifest.head, chainHash: manifest.integrity.chainHash }] : [])];
  const checkpoint = lastCheckpointIn(container);
  if (checkpoint) {
    const { headEntrySeq: entrySeq, headEntryId: entryId, chainHash } = checkpoint;
    marks.push({ entrySeq, entryId, chainHash });
  }

  // 11. A batch that is not whole.
  const batchOf = (entry: Entry | undefined): Json => {
    const batch = entry?.value._batch;
    const counts = Number.isInteger(batch?.index) && Number.isInteger(batch?.count) && batch.index >= 0;
    return counts && batch.session === header.id ? batch : undefined;
  };
  const last = batchOf(entries.at(-1));
  if (isWhole && last && last.index < last.count - 1) {
    let first = entries.length - 1;
    for (let due = last.index - 1; due >= 0 && first > 0; due--, first--) {
      const before = batchOf(entries[first - 1]);
      if (before?.index !== due || before.count !== last.count || before.key !== last.key) break;
    }
    if (!marks.some(({ entrySeq }) => entrySeq > first)) {
      add("incomplete_batch", entries[first].id);
      for (const { id } of entries.splice(first)) byId.delete(id);
    }
  }

  // 12. Parents.
  const position = new Map(entries.map((entry, n) => [entry, n]));
  for (const entry of entries) {
    entry.parent = (entry.parentId !== null && byId.get(entry.parentId)) || null;
    const { role, toolCallId } = entry.value.message ?? {};
    const isCall = role === "toolResult" && toolCallId === entry.parentId;
    if (entry.parentId !== null && entry.parent === null) add(isCall ? "parent_is_call" : "missing_parent", entry.id);
  }
  for (const entry of entries) {
    const above: Entry[] = [];
    for (let at: Entry | null = entry; at && !above.includes(at) && above.length <= entries.length; at = at.parent)
      above.push(at);
    if (above.at(-1)?.parent !== entry) continue;
    const isLater = (one: Entry): boolean => (position.get(one.parent as Entry) ?? 0) > (position.get(one) ?? 0);
    const later = above.filter(isLater);
    const cut = (later.length > 0 ? later : above).reduce((a, b) =>
      (position.get(b) ?? 0) > (position.get(a) ?? 0) ? b : a,
    );
    cut.parent = null;
    add("cycle", cut.id);
  }

  // 13. The marks again.
  const chains = ["0".repeat(64)];
  for (const { hash } of entries) chains.push(sha256(chains[chains.length - 1] + hash));
  for (const { entrySeq, entryId, chainHash } of marks) {
    if (!isWhole) break;
    if (entrySeq > entries.length) add("lost_entries");
    else if (entrySeq > 0 && !byId.has(entryId)) add("bad_line");
    else if (stubs === 0 && chains[entrySeq] !== chainHash) add("bad_line");
    else continue;
    isWhole = false;
  }

  // 14. Shown entries.
  const shown = new Set<Entry>();
  for (const entry of entries)
    if (!entry.isMarker) for (let at: Entry | null = entry; at && !shown.has(at); at = at.parent) shown.add(at);
  const makeStub = ({ type, id, parent }: Entry): string =>
    JSON.stringify({ type, id, parentId: parent?.id ?? null, timestamp: "1970-01-01T00:00:00.000Z", damaged: true });
  const labels: Record<string, string> = {};
  let name: string | null = null;
  for (const { type, value } of entries)
    if (type === "session_info") name = (typeof value.name === "string" && value.name.trim()) || null;
    else if (type === "label" && byId.has(value.targetId))
      if (isText(value.label)) labels[value.targetId] = value.label;
      else delete labels[value.targetId];
  return {
    header: headerLine,
    lines: entries.filter((entry) => shown.has(entry)).map((entry) => entry.text || makeStub(entry)),
    heads: headsOf(entries, header),
    leafId: leafOf(entries, byId, shown, header, recordedLeaf(container, stateFolder, entries)),
    name,
    labels,
    faults,
    chain: chains[chains.length - 1],
  };
}

/** The manifest that holds. */
function manifestIn(container: string): Json {
  const manifest = jsonOf(fileOr(join(container, "manifest.json")));
  if (!isObject(manifest) || !isObject(manifest.integrity)) return undefined;
  const { chainHash, manifestHash, lastCrc32c } = manifest.integrity;
  const sealed = { ...manifest, integrity: { chainHash, manifestHash: "", lastCrc32c } };
  return sha256(JSON.stringify(sealed)) === manifestHash ? manifest : undefined;
}

/** The last checkpoint that is one. */
function lastCheckpointIn(container: string): Json {
  const folder = join(container, "checkpoints");
  const names = existsSync(folder) ? readdirSync(folder).filter((name) => /^\d{16}\.json$/.test(name)) : [];
  const documents = names.sort().map((name) => ({ name, checkpoint: jsonOf(readFileSync(join(folder, name))) }));
  return documents.findLast(({ name, checkpoint }) => checkpoint?.snapshotRef === `checkpoints/${name}`)?.checkpoint;
}

/** Step 15, the first rule. */
function recordedLeaf(container: string, folder: string | undefined, entries: readonly Entry[]): Json {
  if (folder === undefined) return undefined;
  const { dev, ino } = statSync(join(container, "header.jsonl"));
  const record = jsonOf(fileOr(join(folder, "leaves", `${dev}-${ino}.json`)));
  const place = [record, record?.before].find(
    (at) => at && at.count === entries.length && at.lastId === (entries.at(-1)?.id ?? null),
  );
  return place?.leafId;
}

/** The name of the head that wrote an entry. */
function headNameOf({ value: { _batch: batch } }: Entry, { id }: Json): string | undefined {
  if (batch?.session !== id || typeof batch.head !== "string") return undefined;
  return /^[a-z\d]([a-z\d._-]{0,62}[a-z\d])?$/i.test(batch.head) ? batch.head : undefined;
}

/** The leaves of heads, by name, as the page has them under "The leaf". */
function headsOf(entries: readonly Entry[], header: Json): Record<string, string | null> {
  const heads: Record<string, string | null> = {};
  for (const entry of entries) {
    const name = headNameOf(entry, header);
    if (name === undefined) continue;
    const { type, customType, _batch } = entry.value;
    heads[name] = (type === "custom" && customType === MARKER ? entry.parent?.id : entry.id) ?? null;
    if (_batch.retired === true) delete heads[name];
  }
  return heads;
}

/** Step 15. */
function leafOf(
  entries: readonly Entry[],
  byId: ReadonlyMap<string, Entry>,
  shown: ReadonlySet<Entry>,
  header: Json,
  recorded: string | null | undefined,
): string | null {
  const placeOf = (entry: Entry): Entry | null => (shown.has(entry) ? entry : entry.parent);
  if (recorded === null) return null;
  for (const named of [recorded, header.leafId]) {
    if (named === "") return null;
    const entry = byId.get(named);
    if (entry) return placeOf(entry)?.id ?? null;
  }
  const isMeta = ({ type }: Entry): boolean => type === "label" || type === "session_info";
  const shared = entries.filter((entry) => headNameOf(entry, header) === undefined);
  const last = shared.at(-1);
  if (!last) return null;
  const decisive = shared.findLast((entry) => !isMeta(entry));
  if (!decisive || (decisive === last && shown.has(last))) return last.id;
  const target = placeOf(decisive);
  if (decisive === last) return target?.id ?? null;
  let at: Entry | null = last;
  while (at && at !== target && isMeta(at)) at = at.parent;
  if (at === target) return last.id;
  for (let above = at; above; above = above.parent) if (above === target) return last.id;
  return target?.id ?? null;
}

/** Step 16: the base64 text of a blob, or null where it is missing or damaged. */
export function blobOf(container: string, { $piBlob, sizeBytes, encoding }: Json): string | null {
  const [, digest] = /^sha256:([0-9a-f]{64})$/.exec($piBlob) ?? [];
  const bytes = digest ? fileOr(join(container, "blobs", digest)) : Buffer.alloc(0);
  if (bytes.length !== sizeBytes || sha256(bytes) !== digest) return null;
  const text = bytes.toString("base64");
  return encoding === "base64NoPad" ? text.replace(/=+$/, "") : text;
}
