/** Reads the heads of the entries in frames, compares frames with entries, and adds the entries to the known ones. */

import { isUtf8 } from "node:buffer";
import { patchMembers } from "../../core/format/entry.ts";
import type { HeadReader } from "../../core/format/node-reader.ts";
import { toBytes } from "../../core/json/json.ts";
import { unpackId } from "../../core/tree/nodes.ts";
import type { KnownEntries } from "../log/known-entries.ts";
import type { Container } from "./container.ts";
import { formatCrc } from "./crc32c.ts";
import { advanceTail } from "./extents.ts";
import {
  decodeFrame,
  decodeHead,
  encodeRow,
  extendChain,
  FRAME_HEAD_BYTES,
  type Frame,
  GENESIS,
  type IndexRow,
  Malformed,
  PAYLOAD,
  readIfSound,
  sha256,
} from "./frame.ts";

/** Reads the head of the entry in a whole frame, without the fast path if `isOdd`. Throws {@link Malformed}. */
export function readEntry(heads: HeadReader, b: Uint8Array, frame: Frame, isOdd = false): void {
  const { payloadStart, payloadEnd } = frame;
  if (!isOdd && heads.readFast(b, payloadStart, payloadEnd)) return;
  if (!isUtf8(b.subarray(payloadStart, payloadEnd))) throw new Malformed("its payload is not UTF-8");
  const fault = heads.readAny(b, payloadStart, payloadEnd, () => frame.entryId);
  if (fault !== null) throw new Malformed(`its payload is ${fault}`);
}

/** Returns the ids of the head that was read last. */
function idsOf(heads: HeadReader): { id: string; parentId: string | null } {
  return {
    id: heads.packedId >= 0 ? unpackId(heads.packedId) : heads.id,
    parentId: heads.packedParent >= 0 ? unpackId(heads.packedParent) : heads.parentId,
  };
}

/** Returns whether the members of a frame match the entry in it, whose head was read last. */
export function isBound({ nodes, heads }: KnownEntries, frame: Frame): boolean {
  const { id, parentId } = idsOf(heads);
  return id === frame.entryId && parentId === frame.parentEntryId && nodes.typeCode(frame.entryType) === heads.type;
}

/** Reads the head of the entry in a whole frame. Throws {@link Malformed} unless the two match. */
export function requireBound(entries: KnownEntries, b: Uint8Array, frame: Frame): void {
  readEntry(entries.heads, b, frame);
  // A member of the head may stand twice.
  if (!isBound(entries, frame)) readEntry(entries.heads, b, frame, true);
  if (!isBound(entries, frame)) throw new Malformed("its frame names another entry than its payload");
}

/**
 * Reads the head of the payload in a line that is not a frame, `b[first, end)`, from all of the payload if that is whole,
 * else from its beginning. Returns where the payload begins in the line, or -1.
 */
function readDamaged(heads: HeadReader, b: Uint8Array, first: number, end: number): number {
  const line = Buffer.from(b.buffer, b.byteOffset + first, end - first);
  const mark = line.indexOf(PAYLOAD);
  const named = mark < 0 ? -1 : mark + PAYLOAD.length;
  // The name before the payload may be damaged.
  for (const at of [named, line.indexOf("{", 1)])
    if (at >= 0 && isUtf8(line.subarray(at, -1)) && heads.readAny(b, first + at, end - 1, () => "") === null) return at;
  return named >= 0 && heads.readFast(b, first + named, end, false) ? named : -1;
}

/** Returns the id of the entry that a line which is not a frame seems to hold; null for none. */
export function findEntryId(heads: HeadReader, b: Uint8Array, first: number, end: number): string | null {
  return readDamaged(heads, b, first, end) >= 0 ? idsOf(heads).id : null;
}

/**
 * Adds the entry whose head was read last, and moves the tail past its frame. `at`: where the frame begins in the
 * buffer that it was decoded from. Returns its position.
 */
export function addFrame(
  { entries, extents, end, reader }: Container,
  frame: Frame,
  start: number,
  length: number,
  at: number,
  crc: number,
): number {
  const { nodes } = entries;
  const { aliases } = nodes;
  const { tail } = end;
  const { segmentSeq, payloadBytes: payloadLength } = frame;
  const position = nodes.add(entries.heads);
  const payloadStart = frame.payloadStart - at;
  extents.set(position, { segmentSeq, start, length, payloadStart, payloadLength, crc });
  entries.checked.set(position, 0);
  end.tail = advanceTail(tail, frame, frame.payloadSha256, start, length, crc);
  if (end.awaited.has(end.tail.entrySeq)) end.chains.set(end.tail.entrySeq, end.tail.chainHash);
  if (nodes.isBatch(position)) end.batch.push({ position, tail, indexEnd: end.indexEnd, rows: end.rows.length });
  else end.batch.length = 0;
  if (nodes.aliases > aliases) {
    const id = nodes.id(position);
    const payload = reader.bytes(segmentSeq, start + payloadStart, payloadLength);
    entries.overrides.set(position, patchMembers(payload, { id: toBytes(JSON.stringify(id)) }));
    reader.report("duplicate_id", position, `the id ${frame.entryId} is taken; this entry is called ${id}`, true);
  }
  return position;
}

/** Does the same for a whole frame that the index does not name. */
export function addUnindexed(
  container: Container,
  frame: Frame,
  byteOffset: number,
  byteLength: number,
  at: number,
  crc: number,
): void {
  const { segmentSeq, frameSeq, entrySeq, entryId } = frame;
  const position = addFrame(container, frame, byteOffset, byteLength, at, crc);
  container.entries.checked.set(position, 1);
  const row = { entrySeq, entryId, segmentSeq, frameSeq, byteOffset, byteLength, crc32c: formatCrc(crc) };
  container.end.rows.push(encodeRow(row));
}

/** Returns the hash chain at a known entry; null if the head of a frame before it cannot be read. */
export function readChainAt({ end, extents, reader }: Container, entrySeq: number): string | null {
  let at = 0;
  for (const seq of end.chains.keys()) if (seq > at && seq <= entrySeq) at = seq;
  let chain = end.chains.get(at) ?? GENESIS;
  for (; at < entrySeq; at++) {
    const { segmentSeq, start, length } = extents.at(at);
    const head = reader.bytes(segmentSeq, start, Math.min(length, FRAME_HEAD_BYTES));
    const frame =
      decodeHead(head, 0, head.length) ??
      readIfSound(() => decodeFrame(reader.bytes(segmentSeq, start, length), 0, length - 1, false));
    if (frame === null) return null;
    chain = extendChain(chain, frame.payloadSha256);
  }
  return chain;
}

/**
 * Adds the entry of a damaged frame, which keeps its place in the tree if its own head or the frame's (`usual`) is
 * legible and fits the row; else throws {@link Malformed}. Reading the entry reports the damage.
 */
export function addDamaged(container: Container, row: IndexRow, bytes: Buffer, usual: Frame | null): void {
  const { nodes, heads } = container.entries;
  const found = readDamaged(heads, bytes, 0, bytes.length - 1);
  const fits = (): boolean => {
    const { id, parentId } = idsOf(heads);
    return id === row.entryId && (parentId === null || nodes.position(parentId) >= 0);
  };
  if (found < 0 || !fits()) {
    if (!usual) throw new Malformed("its frame is damaged");
    heads.readValue({ type: usual.entryType, id: usual.entryId, parentId: usual.parentEntryId }, () => "");
    if (!fits()) throw new Malformed("its frame is damaged");
  }
  const { id, parentId } = idsOf(heads);
  const payloadStart = usual?.payloadStart ?? found;
  const payloadEnd = row.byteLength - 2;
  if (payloadStart >= payloadEnd) throw new Malformed("its frame is damaged");
  const frame: Frame = {
    ...row,
    entryId: id,
    parentEntryId: parentId,
    entryType: usual?.entryType ?? "",
    timestamp: usual?.timestamp ?? "",
    payloadSha256: usual?.payloadSha256 ?? sha256(bytes.subarray(payloadStart, payloadEnd)),
    payloadStart,
    payloadEnd,
    payloadBytes: payloadEnd - payloadStart,
  };
  addFrame(container, frame, row.byteOffset, row.byteLength, 0, Number.parseInt(row.crc32c, 16));
}
