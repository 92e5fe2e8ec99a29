/** Cutting bytes into payloads and putting payloads into frames, at every place a stream can be split. */

import { describe, expect, test } from "vitest";
import { AutoDecoder, type Cut, type Decoder, type FramingName } from "../../../src/server/connection/framing.ts";
import { inFrame } from "../../support/frames.ts";
import { collectGarbage } from "../../support/garbage.ts";
import { SYSTEM } from "../../support/tiers.ts";

const MIB = 1 << 20;

interface Options {
  readonly framing?: FramingName;
  readonly limit?: number;
}

/** A stream as the server reads it: feed it chunks, then its end; `cuts` has the frames. */
class Reading {
  readonly cuts: Cut[] = [];
  private readonly beginning: AutoDecoder;
  private decoder: Decoder | undefined;
  private readonly given: FramingName | undefined;

  constructor({ framing, limit = 1000 }: Options = {}) {
    this.given = framing;
    this.beginning = new AutoDecoder(limit, framing);
  }

  get framing(): FramingName | undefined {
    return this.decoder?.name;
  }

  push(chunk: Buffer): this {
    if (this.decoder) this.decoder.push(chunk);
    else this.decoder = this.beginning.push(chunk);
    this.drain();
    return this;
  }

  end(): this {
    this.decoder ??= this.beginning.decide(this.given ?? "lines");
    this.drain();
    const last = this.decoder.end();
    if (last) this.cuts.push(last);
    return this;
  }

  private drain(): void {
    for (let cut = this.decoder?.next(); cut; cut = this.decoder?.next()) this.cuts.push(cut);
  }
}

/** Returns the frames in words. */
function describeCuts(cuts: readonly Cut[]): string[] {
  return cuts.map((cut) => {
    if (cut.kind === "payload") return cut.bytes.toString("utf8");
    return cut.kind === "too_large" ? `<too large: ${cut.size}>` : "<bad header>";
  });
}

/** Checks that a stream is cut so, whole, at every place in two, and byte by byte. */
function expectAtEverySplit(input: string | Buffer, expected: string[], options: Options = {}): void {
  const bytes = Buffer.from(input);
  for (let at = 0; at <= bytes.length; at++) {
    const reading = new Reading(options).push(bytes.subarray(0, at)).push(bytes.subarray(at)).end();
    expect(describeCuts(reading.cuts), `split at ${at}`).toEqual(expected);
  }
  const reading = new Reading(options);
  for (let at = 0; at < bytes.length; at++) reading.push(bytes.subarray(at, at + 1));
  expect(describeCuts(reading.end().cuts), "byte by byte").toEqual(expected);
}

function framed(text: string, more = ""): string {
  return `Content-Length: ${Buffer.byteLength(text)}\r\n${more}\r\n${text}`;
}

const MOST = "x".repeat(20);
const OVER = "y".repeat(21);
const A = '{"a":1}';
const B = '{"b":2}';

type Row = [what: string, input: string, expected: string[], options?: Options];

/** A header that cannot be read is reported once, and the next frame is read. */
const BAD_HEADERS = [
  "Content-Type: application/json\r\n\r\n{}",
  ...["-7", "NaN", "7.5", "+7", "0x7", "", "99999999999999999999"].map((no) => `Content-Length: ${no}\r\n\r\n${A}`),
].map((bad): Row => {
  const input = `${bad}\r\n${framed(B)}${framed("{}")}`;
  return [`${bad} is a bad header, told once`, input, ["<bad header>", B, "{}"], { framing: "headers" }];
});

const WIDE = ['{"a":"é"}', '{"b":"😀 漢字"}'];
const NO_END = '{"\u2028\u2029\u0085\v\r"}';
const OF_HEADER = "Content-Length: 3\r\n\r\n{}\n\n";

test.each<Row>([
  ["lines with characters of several bytes", `${WIDE[0]}\n${WIDE[1]}\r\n\n \t\r\n{}\n`, [...WIDE, "{}"]],
  ["a line ends at a line feed and nowhere else", `${NO_END}\n{}\n`, [NO_END, "{}"]],
  ["one carriage return before a line feed is dropped", `${A}\r\n${B}\r\r\n`, [A, `${B}\r`]],
  ["blank lines are no payloads", `\n\r\n \t \n${A}\n\n\n${B}\n \n\n`, [A, B]],
  ["a last line may lack its line feed", `${A}\n${B}`, [A, B]],
  ["a last line may lack its line feed behind a carriage return", `${A}\r`, [A]],
  ["a line over the limit", `${MOST}\n${OVER}\n{}\n`, [MOST, "<too large: 21>", "{}"], { limit: 20 }],
  ["a line at the limit and its carriage return", `${MOST}\r\n{}\n`, [MOST, "{}"], { limit: 20 }],
  ["a last line over the limit", `${OVER}yyy`, ["<too large: 24>"], { limit: 20 }],
  ["a mark of the byte order is dropped at the beginning only", `\ufeff${A}\n\ufeff${B}\n`, [A, `\ufeff${B}`]],
  ["a mark before headers", `\ufeff${framed(A)}`, [A]],
  ["a mark before lines that were given", `\ufeff${A}\n`, [A], { framing: "lines" }],
  ["a mark before headers that were given", `\ufeff${framed(A)}`, [A], { framing: "headers" }],
  ["frames, one with two header fields", framed(WIDE[0]) + framed(WIDE[1], "Content-Type: x\r\n"), WIDE],
  ["a header with line feeds alone", `Content-Length: 7\n\n${A}${framed(B)}`, [A, B]],
  ["a header in any case", `content-length:7\r\n\r\n${A}${framed(B)}`, [A, B]],
  ["a header in any order", `Content-Type: x\r\nCONTENT-LENGTH:  7 \r\n\r\n${A}${framed(B)}`, [A, B]],
  ["blank lines before headers", `${framed(A)}\r\n\n${framed(B)}\r\n`, [A, B]],
  ["a payload that looks like a header", framed(OF_HEADER) + framed("{}"), [OF_HEADER, "{}"]],
  ["an empty payload", `Content-Length: 0\r\n\r\n${framed("{}")}`, ["", "{}"]],
  ...BAD_HEADERS,
  [
    "lines of no frame are told once",
    `${framed(A)}[warn] some\nstarted: 3\n\n at m.js:5\n${framed(B)}`,
    [A, "<bad header>", B],
  ],
  [
    "a payload that is longer than announced",
    `Content-Length: 5\r\n\r\n${A}${framed(B)}`,
    ['{"a":', "<bad header>", B],
  ],
  [
    "a frame over the limit",
    [MOST, OVER, "{}"].map((text) => framed(text)).join(""),
    [MOST, "<too large: 21>", "{}"],
    { limit: 20 },
  ],
  ["an end inside a header", `${framed("{}")}Content-Len`, ["{}", "<bad header>"]],
  ["an end inside a payload", `${framed("{}")}Content-Length: 5\r\n\r\n{"a`, ["{}", "<bad header>"]],
  ["an end inside a frame over the limit", 'Content-Length: 30\r\n\r\n{"a', ["<too large: 30>"], { limit: 20 }],
])("%s, at every split", (_what, input, expected, options) => expectAtEverySplit(input, expected, options));

test.each([
  ["lines", 0],
  ["headers", 25],
] as const)("a message over the limit keeps its beginning, wherever it was split, in %s", (framing, head) => {
  const payload = `{"id":"${"i".repeat(300)}","x":"${"x".repeat(5000)}"}`;
  const bytes = Buffer.from(framing === "lines" ? `${payload}\n` : framed(payload));
  for (const at of [0, 10, head, 40, 400, 1001, 1002, 1003, 4096, 4200, bytes.length - 1]) {
    const [cut] = new Reading({ framing }).push(bytes.subarray(0, at)).push(bytes.subarray(at)).cuts;
    expect(cut.kind).toBe("too_large");
    if (cut.kind === "too_large")
      expect(cut.bytes.toString().slice(0, 310), `split at ${at}`).toBe(payload.slice(0, 310));
  }
});

test("a line without a colon among headers is told before the stream goes on", () => {
  const reading = new Reading().push(Buffer.from(`${framed("{}")}not a header\n`));
  expect(describeCuts(reading.cuts)).toEqual(["{}", "<bad header>"]);
});

describe("the beginning of a stream", () => {
  test.each<[FramingName | undefined, string, string[]]>([
    ["lines", `${A}\n`, [A]],
    ["lines", `\n\r\n  [${A}]\n`, [`[${A}]`]],
    ["lines", "Cannot start\n{}\n", ["Cannot start", "{}"]],
    ["lines", "content\n{}\n", ["content", "{}"]],
    ["lines", "Contents", ["Contents"]],
    ["headers", framed("{}"), ["{}"]],
    ["headers", `content-type: x\r\n${framed("{}")}`, ["{}"]],
    ["headers", `\r\n\n${framed("{}")}`, ["{}"]],
    // There is not enough of these.
    [undefined, "\n \r\n", []],
    ["headers", "Content-", ["<bad header>"]],
    [undefined, "Content", ["Content"]],
    [undefined, "Cont", ["Cont"]],
    [undefined, "\ufeff", []],
    [undefined, "", []],
  ])("tells %s: %j", (framing, input, expected) => {
    expectAtEverySplit(input, expected);
    expect(new Reading().push(Buffer.from(input)).framing).toBe(framing);
  });

  test("may be half a mark of the byte order, or two of which one is dropped", () => {
    expect(describeCuts(new Reading().push(Buffer.from(`\ufeff\ufeff${A}\n`)).cuts)).toEqual([`\ufeff${A}`]);
    expect(describeCuts(new Reading().push(Buffer.from([0xef, 0xbb])).end().cuts)).toHaveLength(1);
  });
});

describe("memory stays bounded", SYSTEM, () => {
  /** Pieces of a MiB that come. */
  const COUNT = 10;

  /** Returns the growth of the buffer after as many of the same byte. */
  function heldAfter(reading: Reading, byte: string): number {
    collectGarbage();
    const before = process.memoryUsage().arrayBuffers;
    for (let i = 0; i < COUNT; i++) reading.push(Buffer.alloc(MIB, byte));
    collectGarbage();
    return process.memoryUsage().arrayBuffers - before;
  }

  test.each<[string, string, string[], FramingName?, string?]>([
    ["endless white space, before the framing is known", " ", ['{"a":1}']],
    ["an endless line", "x", [`<too large: ${COUNT * MIB}>`, '{"a":1}'], "lines"],
    ["a header block without end", "x", ["<bad header>", '{"a":1}'], "headers"],
    ["a frame that is far over the limit", "x", [`<too large: ${COUNT * MIB}>`, '{"a":1}'], "headers", "announced"],
  ])("under %s", (_what, byte, expected, framing, announced) => {
    const reading = new Reading({ framing, limit: MIB });
    if (announced) reading.push(Buffer.from(`Content-Length: ${COUNT * MIB}\r\n\r\n`));
    expect(heldAfter(reading, byte)).toBeLessThan(8 * MIB);
    const next = framing === "headers" ? framed(A) : `${framing ? "\n" : ""}${A}\n`;
    expect(describeCuts(reading.push(Buffer.from(next)).end().cuts)).toEqual(expected);
  });
});

describe("frames", () => {
  const bytes = (pieces: (string | Uint8Array)[]): string =>
    Buffer.concat(pieces.map((piece) => Buffer.from(piece as string))).toString("utf8");

  test.each(["text", "bytes"])("of lines escape what some readers take for a line end, in %s", (kind) => {
    const piece = (text: string): string | Uint8Array => (kind === "text" ? text : Buffer.from(text));
    const write = (...texts: string[]): string => bytes(inFrame("lines", texts.map(piece)));
    expect(write('{"a":"x\u2028y\u2029z\u2028\u2029"}')).toBe('{"a":"x\\u2028y\\u2029z\\u2028\\u2029"}\n');
    expect(write('{"a":"\u2027\u202a\u2020é😀"}')).toBe('{"a":"\u2027\u202a\u2020é😀"}\n');
    expect(write('{"a":"\\\\\u2028"}')).toBe('{"a":"\\\\\\u2028"}\n');
    expect(write('{"a":"\u2028"', ',"b":"\u2029"}')).toBe('{"a":"\\u2028","b":"\\u2029"}\n');
    expect(write('{"a":"“–”…\u2029…"}')).toBe('{"a":"“–”…\\u2029…"}\n');
  });

  test("of lines have the very bytes where there is nothing to escape, whatever begins in the same way", () => {
    const piece = Buffer.from('{"a":"“–” …"}');
    expect(inFrame("lines", [piece]).some((sent) => sent === piece)).toBe(true);
  });

  test.each<FramingName>(["lines", "headers"])("of %s are read back, of all their pieces", (framing) => {
    const payloads = ['{"a":"é"}', '{"b":[1,2,3]}', '"😀"'];
    const stream = payloads.map((payload) =>
      bytes(inFrame(framing, [payload.slice(0, 3), Buffer.from(payload.slice(3))])),
    );
    expectAtEverySplit(stream.join(""), payloads, { framing });
  });
});
