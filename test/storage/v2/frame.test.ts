/**
 * Bytes of frames and rows: round trips, and refused bytes. test/session-store-v2.test.ts checks the exact bytes against the
 * document.
 */

import { describe, expect, test } from "vitest";
import { decodeText, toBytes, trimLine } from "../../../src/core/json/json.ts";
import { crc32c, formatCrc } from "../../../src/storage/v2/crc32c.ts";
import { decodeFrame, decodeHead, decodeRow, encodeRow, type Frame, Malformed } from "../../../src/storage/v2/frame.ts";
import { forSeeds } from "../../support/random.ts";
import { encodeFrame, slowCrc } from "../../support/v2.ts";

const FIRST = `{"id":"a1b2c3d4","message":{"content":"Hello","role":"user","timestamp":1706918401000},"timestamp":"2026-02-03T22:52:06.410Z","type":"message"}`;
const SECOND = `{"id":"b2c3d4e5","name":"café ☃","parentId":"a1b2c3d4","timestamp":"2026-02-03T22:52:07.000Z","type":"session_info"}`;

const first = encodeFrame(
  { segmentSeq: 1, frameSeq: 1, entrySeq: 1 },
  { entryId: "a1b2c3d4", parentEntryId: null, entryType: "message" },
  "2026-02-03T22:52:06.500Z",
  toBytes(FIRST),
);
const second = encodeFrame(
  { segmentSeq: 1, frameSeq: 2, entrySeq: 2 },
  { entryId: "b2c3d4e5", parentEntryId: "a1b2c3d4", entryType: "session_info" },
  "2026-02-03T22:52:07.100Z",
  toBytes(SECOND),
);
/** A line that other programs would write differently, under an odd id and of an odd type. */
const ODD = '{"n":1.0,"n":-0,"big":9007199254740993,"e":1e400,"u":"\\u0041\u2028"}';
const ODD_FACTS = { entryId: 'odd "id" \u{1f600}', parentEntryId: "é", entryType: "unheard\\of" };
const odd = encodeFrame(
  { segmentSeq: 7, frameSeq: 8, entrySeq: 99 },
  ODD_FACTS,
  "2026-02-03T22:52:07.100Z",
  toBytes(ODD),
);
const lineOf = (bytes: Uint8Array) => decodeText(bytes.subarray(0, bytes.length - 1));
const decoded = (text: string): Frame => decodeFrame(toBytes(text));

describe("the vectors", () => {
  test("of CRC-32C hold, at any length and offset", () => {
    expect(formatCrc(crc32c(toBytes("123456789")))).toBe("E3069283");
    expect(formatCrc(crc32c(new Uint8Array(0)))).toBe("00000000");
    forSeeds(8, (random) => {
      const text = random.hex(random.int(200));
      const from = random.int(9);
      expect(formatCrc(crc32c(toBytes("x".repeat(from) + text), from))).toBe(slowCrc(text));
    });
  });
});

describe("a frame", () => {
  test("is read as it was written, its payload byte for byte", () => {
    for (const [encoded, payload, parent] of [
      [first, FIRST, null],
      [second, SECOND, "a1b2c3d4"],
      [odd, ODD, "é"],
    ] as const) {
      const line = encoded.bytes.subarray(0, encoded.bytes.length - 1);
      const frame = decodeFrame(line);
      expect(decodeText(line, frame.payloadStart, frame.payloadEnd)).toBe(payload);
      expect([frame.parentEntryId, frame.payloadStart]).toEqual([parent, encoded.payloadStart]);
      // The head alone shows the same, if it is as usual.
      expect(decodeHead(line, 0, frame.payloadStart)).toEqual(encoded === odd ? null : frame);
      expect(decodeHead(line, 0, frame.payloadStart - 1)).toBeNull();
      if (encoded === odd) expect(frame).toMatchObject(ODD_FACTS);
    }
  });

  test("is read in any order of members, with white space, and with a parent of null", () => {
    const { payloadSha256, payloadBytes, ...rest } = JSON.parse(lineOf(first.bytes));
    delete rest.payload;
    const text = `{ "payload" : ${FIRST} , "parentEntryId":null,"payloadBytes":${payloadBytes},"payloadSha256":"${payloadSha256}",${JSON.stringify(rest).slice(1)}`;
    const frame = decoded(text);
    expect(decodeText(toBytes(text), frame.payloadStart, frame.payloadEnd)).toBe(FIRST);
    expect(frame).toMatchObject({ entryId: "a1b2c3d4", parentEntryId: null, entryType: "message", entrySeq: 1 });
  });

  test.each([
    ["cut off", (line: string) => line.slice(0, -1)],
    ["with another payload", (line: string) => line.replace("Hello", "Hallo")],
    ["with a longer payload", (line: string) => line.replace("Hello", "Hello!")],
    ["with two payloads", (line: string) => line.replace(/\}$/, ',"payload":{}}')],
    ["with a member we do not know", (line: string) => line.replace('"entryId"', '"extra":1,"entryId"')],
    ["without a type", (line: string) => line.replace('"entryType":"message",', "")],
    ["of another schema", (line: string) => line.replace("segment_frame.v1", "segment_frame.v2")],
    ["with a number of 0", (line: string) => line.replace('"frameSeq":1', '"frameSeq":0')],
    ["with a number that is text", (line: string) => line.replace('"frameSeq":1', '"frameSeq":"1"')],
    ["with a hash in capitals", (line: string) => line.replace("ef235a88", "EF235A88")],
    ["with a time that is none", (line: string) => line.replace("2026-02-03T22:52:06.500Z", "yesterday")],
    ["with bytes behind the payload", (line: string) => line.replace(/\}$/, " 7}")],
    ["that is a list", () => "[]"],
    ["that is nothing", () => ""],
  ])("%s is refused", (_, change) => {
    expect(() => decoded(change(lineOf(first.bytes)))).toThrow(Malformed);
  });

  test("with a parent that is not UTF-8, or empty, is refused", () => {
    const line = second.bytes.subarray(0, second.bytes.length - 1);
    const changed = Uint8Array.from(line);
    changed[Buffer.from(line).indexOf('"a1b2c3d4"') + 3] = 0xff;
    expect(() => decodeFrame(changed)).toThrow(Malformed);
    expect(() => decoded(lineOf(second.bytes).replace('"a1b2c3d4"', '""'))).toThrow(Malformed);
  });

  test("has its payload without the white space around the line", () => {
    expect(decodeText(trimLine(toBytes(' \t{"a":1}\r')))).toBe('{"a":1}');
  });
});

describe("a row", () => {
  const row = {
    entrySeq: 2,
    entryId: "b2c3d4e5",
    segmentSeq: 1,
    frameSeq: 2,
    byteOffset: 429,
    byteLength: 437,
    crc32c: "5E3EC91E",
  };
  const line = encodeRow(row).slice(0, -1);

  test("is read as it was written, and in any order", () => {
    expect(decodeRow(toBytes(line))).toEqual(row);
    const reversed = Object.fromEntries(Object.entries(JSON.parse(line)).reverse());
    expect(decodeRow(toBytes(JSON.stringify(reversed)))).toEqual(row);
  });

  test.each([
    ["cut off", line.slice(0, -1)],
    ["with a member we do not know", line.replace('"state"', '"more":1,"state"')],
    ["that is not active", line.replace("active", "gone")],
    ["with a checksum in small letters", line.replace("5E3EC91E", "5e3ec91e")],
    ["with an offset below 0", line.replace("429", "-1")],
    ["without its id", line.replace('"entryId":"b2c3d4e5",', "")],
    ["of another schema", line.replace("offset_index.v1", "offset_index.v9")],
    ["that is a number", "1"],
  ])("%s is refused", (_, text) => {
    expect(() => decodeRow(toBytes(text))).toThrow(Malformed);
  });
});
