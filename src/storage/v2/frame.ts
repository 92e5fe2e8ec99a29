/**
 * Segment frames and index rows of Session Store V2 (session-store-v2 reference, sections 3.1 to 3.3): one JSON object
 * on a line, with its members written in the order given here, and read in any. The payload is the entry's own text.
 */

import { isUtf8 } from "node:buffer";
import { hash } from "node:crypto";
import { isObject } from "../../core/format/loose.ts";
import { decodeText, findMember, findValueEnd, getMembers, parse, toBytes, tryParse } from "../../core/json/json.ts";

export const FRAME_SCHEMA = "pi.session_store_v2.segment_frame.v1";
const ROW_SCHEMA = "pi.session_store_v2.offset_index.v1";

/** Largest size of a segment in bytes; a frame, line feed included, must fit into one. */
export const SEGMENT_BYTES = 64 << 20;
/** Bytes of the longest line that is read or written, whatever the size of a segment. */
export const FRAME_BYTES = 100 << 20;
/** Bytes of a frame that are read for its entry's head; a frame whose payload begins too late is read whole. */
export const FRAME_HEAD_BYTES = 2048;

/** Chain hash before the first frame. */
export const GENESIS = "0".repeat(64);
/** CRC text of a store without frames. */
export const NO_CRC = "00000000";

/** The members of an entry that its frame repeats. */
export interface EntryFacts {
  readonly entryId: string;
  readonly parentEntryId: string | null;
  readonly entryType: string;
}

export interface Coordinates {
  readonly segmentSeq: number;
  readonly frameSeq: number;
  readonly entrySeq: number;
}

export interface Frame extends Coordinates, EntryFacts {
  /** Time when the frame was made; the entry's own time is in its payload. */
  readonly timestamp: string;
  readonly payloadSha256: string;
  readonly payloadBytes: number;
  /** Start of the payload in the buffer that the frame was decoded from. */
  readonly payloadStart: number;
  readonly payloadEnd: number;
}

export interface IndexRow extends Coordinates {
  readonly entryId: string;
  readonly byteOffset: number;
  /** Length of the frame, line feed included. */
  readonly byteLength: number;
  readonly crc32c: string;
}

// --- hashes ------------------------------------------------------------------------------------------------------

/** Returns the SHA-256 in lower-case hex. */
export function sha256(bytes: Uint8Array | string): string {
  return hash("sha256", bytes);
}

/** Returns the chain hash after one more payload: the hash of the digits of both hashes. */
export function extendChain(before: string, payloadSha256: string): string {
  return sha256(before + payloadSha256);
}

// --- writing -----------------------------------------------------------------------------------------------------

/** Returns the text of a frame before its payload. */
export function encodeHead(
  at: Coordinates,
  entry: EntryFacts,
  timestamp: string,
  payloadSha256: string,
  payloadBytes: number,
): string {
  const parent = entry.parentEntryId === null ? "" : `,"parentEntryId":${JSON.stringify(entry.parentEntryId)}`;
  return (
    `{"schema":"${FRAME_SCHEMA}","segmentSeq":${at.segmentSeq},"frameSeq":${at.frameSeq},"entrySeq":${at.entrySeq},` +
    `"entryId":${JSON.stringify(entry.entryId)}${parent},"entryType":${JSON.stringify(entry.entryType)},` +
    `"timestamp":"${timestamp}","payloadSha256":"${payloadSha256}","payloadBytes":${payloadBytes},"payload":`
  );
}

/** Returns the length of a frame in bytes, line feed included. */
export function getFrameLength(head: string, payload: Uint8Array): number {
  return Buffer.byteLength(head) + payload.length + 2;
}

/** Fills `bytes` with a frame and its line feed. Returns where its payload (trimmed JSON, no line feed) begins. */
export function writeFrame(bytes: Buffer, head: string, payload: Uint8Array): number {
  const payloadStart = bytes.length - payload.length - 2;
  if (payloadStart === head.length) bytes.write(head, 0, "latin1");
  else bytes.write(head, 0, "utf8");
  bytes.set(payload, payloadStart);
  bytes[bytes.length - 2] = 0x7d;
  bytes[bytes.length - 1] = 0x0a;
  return payloadStart;
}

/** Returns the line of an index row, with its line feed. */
export function encodeRow(row: IndexRow): string {
  return (
    `{"schema":"${ROW_SCHEMA}","entrySeq":${row.entrySeq},"entryId":${JSON.stringify(row.entryId)},` +
    `"segmentSeq":${row.segmentSeq},"frameSeq":${row.frameSeq},"byteOffset":${row.byteOffset},` +
    `"byteLength":${row.byteLength},"crc32c":"${row.crc32c}","state":"active"}\n`
  );
}

// --- reading -----------------------------------------------------------------------------------------------------

/** Error for a frame, row or document that is malformed or breaks the rules; the message says how. */
export class Malformed extends Error {}

/** Returns what `read` returns; null when it throws {@link Malformed}. */
export function readIfSound<T>(read: () => T): T | null {
  try {
    return read();
  } catch (error) {
    if (error instanceof Malformed) return null;
    throw error;
  }
}

/** The least value of a whole number, or the pattern of a text; null for any text that is not empty. */
type Check = number | RegExp | null;

/** A member of a frame or row that is decoded. */
interface Field {
  readonly name: string;
  readonly check: Check;
  /** The bytes before its value in a line with the members in the usual order. */
  readonly mark: Uint8Array;
}

/** Returns the fields of a frame or row. Its schema comes before them. */
function fieldsOf(schema: string, checks: Readonly<Record<string, Check>>): Field[] {
  return Object.entries(checks).map(([name, check], index) => ({
    name,
    check,
    mark: toBytes(index === 0 ? `{"schema":"${schema}","${name}":` : `,"${name}":`),
  }));
}

export const SHA256 = /^[0-9a-f]{64}$/;
export const CRC = /^[0-9A-F]{8}$/;
/** RFC 3339, with an offset. */
export const TIME = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;

/** The one member that may be missing, or null. */
const OPTIONAL = "parentEntryId";
const FRAME_FIELDS = fieldsOf(FRAME_SCHEMA, {
  segmentSeq: 1,
  frameSeq: 1,
  entrySeq: 1,
  entryId: null,
  parentEntryId: null,
  entryType: null,
  timestamp: TIME,
  payloadSha256: SHA256,
  payloadBytes: 1,
});
export const PAYLOAD = toBytes(',"payload":');
const ROW_FIELDS = fieldsOf(ROW_SCHEMA, {
  entrySeq: 1,
  entryId: null,
  segmentSeq: 1,
  frameSeq: 1,
  byteOffset: 0,
  byteLength: 1,
  crc32c: CRC,
});
const ROW_END = toBytes(',"state":"active"}');

/** The values of fields, in the order of these. */
// biome-ignore lint/suspicious/noExplicitAny: each is a number or a text, as its field says
type Values = any[];

function frameOf(values: Values, payloadStart: number, payloadEnd: number): Frame {
  return {
    segmentSeq: values[0],
    frameSeq: values[1],
    entrySeq: values[2],
    entryId: values[3],
    parentEntryId: values[4],
    entryType: values[5],
    timestamp: values[6],
    payloadSha256: values[7],
    payloadBytes: values[8],
    payloadStart,
    payloadEnd,
  };
}

function rowOf(values: Values): IndexRow {
  return {
    entrySeq: values[0],
    entryId: values[1],
    segmentSeq: values[2],
    frameSeq: values[3],
    byteOffset: values[4],
    byteLength: values[5],
    crc32c: values[6],
  };
}

/**
 * Decodes the frame in `b[start, end)`, line feed excluded. Checks the length of its payload and, with `checkHash`, the
 * hash. A caller that knows the hash to be that of JSON need not check the JSON. Throws {@link Malformed}.
 */
export function decodeFrame(b: Uint8Array, start = 0, end = b.length, checkHash = true, checkJson = true): Frame {
  const usual = decodeHead(b, start, end);
  const isWhole = usual && b[end - 1] === 0x7d && usual.payloadEnd === end - 1;
  // Other programs would read a payload of more than one value differently.
  const isUsual = isWhole && (!checkJson || findValueEnd(b, usual.payloadStart, end - 1) === end - 1);
  const frame = isUsual ? usual : decodeAny(b, start, end);
  if (frame.payloadEnd - frame.payloadStart !== frame.payloadBytes)
    throw new Malformed(`the payload has ${frame.payloadEnd - frame.payloadStart} bytes, not ${frame.payloadBytes}`);
  if (checkHash && sha256(b.subarray(frame.payloadStart, frame.payloadEnd)) !== frame.payloadSha256)
    throw new Malformed("the payload does not have its hash");
  return frame;
}

/**
 * Decodes the head of the frame that begins at `start`, if its members are in the usual order and the head ends before
 * `end`; else returns null. The payload's end follows from its length and may lie after `end`.
 */
export function decodeHead(b: Uint8Array, start: number, end: number): Frame | null {
  const cursor = new Cursor(b, start, end);
  const fields = FRAME_FIELDS;
  const segmentSeq = cursor.number(fields[0]);
  const frameSeq = cursor.number(fields[1]);
  const entrySeq = cursor.number(fields[2]);
  const entryId = cursor.text(fields[3]);
  const parentEntryId = cursor.optional(fields[4]);
  const entryType = cursor.text(fields[5]);
  const timestamp = cursor.text(fields[6]);
  const payloadSha256 = cursor.text(fields[7]);
  const payloadBytes = cursor.number(fields[8]);
  if (cursor.failed || !cursor.skip(PAYLOAD)) return null;
  const payloadStart = cursor.at;
  return {
    segmentSeq,
    frameSeq,
    entrySeq,
    entryId,
    parentEntryId,
    entryType,
    timestamp,
    payloadSha256,
    payloadBytes,
    payloadStart,
    payloadEnd: payloadStart + payloadBytes,
  };
}

function decodeAny(b: Uint8Array, start: number, end: number): Frame {
  if (!isUtf8(b.subarray(start, end))) throw new Malformed("the line is not UTF-8");
  const found = getMembers(b, start, end);
  if (!found) throw new Malformed("the line is not a JSON object");
  const names = found.map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new Malformed(`the member ${twice} appears twice`);
  const payload = findMember(found, "payload");
  if (!payload) throw new Malformed("the member payload is missing");
  const get = (name: string): unknown => {
    const member = findMember(found, name);
    return member && parse(b, member.start, member.end);
  };
  return frameOf(valuesBy(get, names, FRAME_FIELDS, FRAME_SCHEMA, "payload"), payload.start, payload.end);
}

/** Decodes the index row in `b[start, end)`, line feed excluded. Throws {@link Malformed}. */
export function decodeRow(b: Uint8Array, start = 0, end = b.length): IndexRow {
  const cursor = new Cursor(b, start, end);
  const fields = ROW_FIELDS;
  const entrySeq = cursor.number(fields[0]);
  const entryId = cursor.text(fields[1]);
  const segmentSeq = cursor.number(fields[2]);
  const frameSeq = cursor.number(fields[3]);
  const byteOffset = cursor.number(fields[4]);
  const byteLength = cursor.number(fields[5]);
  const crc32c = cursor.text(fields[6]);
  const isUsual = !cursor.failed && cursor.skip(ROW_END) && cursor.at === end;
  return isUsual
    ? { entrySeq, entryId, segmentSeq, frameSeq, byteOffset, byteLength, crc32c }
    : decodeAnyRow(b, start, end);
}

function decodeAnyRow(b: Uint8Array, start: number, end: number): IndexRow {
  const value = tryParse(b, start, end);
  if (value === undefined) throw new Malformed("the line is not JSON");
  if (!isObject(value)) throw new Malformed("the line is not a JSON object");
  if (value.state !== "active") throw new Malformed("the state is not active");
  return rowOf(valuesBy((name) => value[name], Object.keys(value), ROW_FIELDS, ROW_SCHEMA, "state"));
}

/**
 * Returns the values of the fields of an object that has these names, in any order. `other`: the name of the member
 * that the caller has checked. Throws {@link Malformed}.
 */
function valuesBy(
  get: (name: string) => unknown,
  names: readonly string[],
  fields: readonly Field[],
  schema: string,
  other: string,
): Values {
  for (const name of names)
    if (name !== "schema" && name !== other && !fields.some((field) => field.name === name))
      throw new Malformed(`there should be no member ${name}`);
  if (get("schema") !== schema) throw new Malformed(`the schema is not ${schema}`);
  return fields.map(({ name, check }) => {
    const value = get(name) ?? null;
    if (value === null && name !== OPTIONAL) throw new Malformed(`the member ${name} is missing`);
    if (value !== null && !fits(value, check)) throw new Malformed(`${name} is not as it must be`);
    return value;
  });
}

function fits(value: unknown, check: Check): boolean {
  if (typeof check === "number") return Number.isSafeInteger(value) && (value as number) >= check;
  return typeof value === "string" && isText(value, check);
}

function isText(value: string, check: RegExp | null): boolean {
  return check === null ? value !== "" : check.test(value);
}

/** A reading position in one frame or row with its members in the usual order; `failed` once one of them is not. */
class Cursor {
  at: number;
  failed = false;
  private readonly b: Buffer;
  private readonly end: number;

  constructor(b: Uint8Array, at: number, end: number) {
    this.b = Buffer.isBuffer(b) ? b : Buffer.from(b.buffer, b.byteOffset, b.length);
    this.at = at;
    this.end = end;
  }

  /** Passes bytes, or stays before them and returns false. */
  skip(mark: Uint8Array): boolean {
    const { b, at } = this;
    const past = at + mark.length;
    if (past > this.end) return false;
    for (let i = at, k = 0; i < past; i++, k++) if (b[i] !== mark[k]) return false;
    this.at = past;
    return true;
  }

  /** Reads a whole number that is no less than the field's check. */
  number({ mark, check }: Field): number {
    if (this.failed || !this.skip(mark)) return this.fail(0);
    const { b, end, at: from } = this;
    let value = 0;
    let at = from;
    for (; at < end; at++) {
      const digit = b[at] - 0x30;
      if (digit < 0 || digit > 9) break;
      value = value * 10 + digit;
    }
    const digits = at - from;
    if (digits === 0 || digits > 15 || (digits > 1 && b[from] === 0x30) || value < (check as number))
      return this.fail(0);
    this.at = at;
    return value;
  }

  /** Reads a string without escapes that is as the field's check says. */
  text({ mark, check }: Field): string {
    if (this.failed || !this.skip(mark)) return this.fail("");
    const value = this.plain();
    return value !== null && isText(value, check as RegExp | null) ? value : this.fail("");
  }

  /** Reads a string without escapes, if the field is there. */
  optional({ mark }: Field): string | null {
    if (this.failed || !this.skip(mark)) return null;
    const value = this.plain();
    return value !== null && value !== "" ? value : this.fail(null);
  }

  private fail<T>(nothing: T): T {
    this.failed = true;
    return nothing;
  }

  private plain(): string | null {
    const { b, end } = this;
    const from = this.at + 1;
    if (b[this.at] !== 0x22) return null;
    let i = from;
    let high = 0;
    for (; i < end; i++) {
      const c = b[i];
      if (c === 0x22) break;
      if (c === 0x5c || c < 0x20) return null;
      high |= c;
    }
    if (i >= end) return null;
    this.at = i + 1;
    if (high < 0x80) return b.toString("latin1", from, i);
    try {
      return decodeText(b, from, i);
    } catch {
      return null;
    }
  }
}
