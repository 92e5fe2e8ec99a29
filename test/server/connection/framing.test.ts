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

/** A stream as the server reads it: feed it chunks, then its end; what it cut stands in `cuts`. */
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

/** What was cut, in words. */
function told(cuts: readonly Cut[]): string[] {
  return cuts.map((cut) => {
    if (cut.kind === "payload") return cut.bytes.toString("utf8");
    return cut.kind === "too_large" ? `<too large: ${cut.size}>` : "<bad header>";
  });
}

function read(input: string | Buffer, options: Options = {}): string[] {
  return told(new Reading(options).push(Buffer.from(input)).end().cuts);
}

/** Checks that a stream is cut so, whole, at every place in two, and byte by byte. */
function expectAtEverySplit(input: string | Buffer, expected: string[], options: Options = {}): void {
  const bytes = Buffer.from(input);
  for (let at = 0; at <= bytes.length; at++) {
    const reading = new Reading(options).push(bytes.subarray(0, at)).push(bytes.subarray(at)).end();
    expect(told(reading.cuts), `split at ${at}`).toEqual(expected);
  }
  const reading = new Reading(options);
  for (let at = 0; at < bytes.length; at++) reading.push(bytes.subarray(at, at + 1));
  expect(told(reading.end().cuts), "byte by byte").toEqual(expected);
}

function framed(text: string, more = ""): string {
  return `Content-Length: ${Buffer.byteLength(text)}\r\n${more}\r\n${text}`;
}

describe("lines", () => {
  test("are the same at every split, inside characters of several bytes too", () => {
    expectAtEverySplit('{"a":"é"}\n{"b":"😀 漢字"}\r\n\n \t\r\n{"c":3}\n', ['{"a":"é"}', '{"b":"😀 漢字"}', '{"c":3}']);
  });

  test("end at a line feed and nowhere else", () => {
    const text = '{"a":"\u2028\u2029\u0085\v\r"}';
    expect(read(`${text}\n${text}\n`)).toEqual([text, text]);
  });

  test("lose the carriage return before the line feed, one of them", () => {
    expect(read('{"a":1}\r\n{"b":2}\r\r\n')).toEqual(['{"a":1}', '{"b":2}\r']);
  });

  test("that are blank are no payloads", () => {
    expect(read('\n\r\n \t \n{"a":1}\n\n\n{"b":2}\n \n\n')).toEqual(['{"a":1}', '{"b":2}']);
  });

  test("may lack the last line feed", () => {
    expectAtEverySplit('{"a":1}\n{"b":2}', ['{"a":1}', '{"b":2}']);
    expectAtEverySplit('{"a":1}\r', ['{"a":1}']);
  });

  test("over the limit are told with their size, and the next line is read", () => {
    const limit = 20;
    const most = "x".repeat(limit);
    const over = "y".repeat(limit + 1);
    expectAtEverySplit(`${most}\n${over}\n{}\n`, [most, "<too large: 21>", "{}"], { limit });
    expectAtEverySplit(`${most}\r\n{}\n`, [most, "{}"], { limit });
  });

  test("over the limit at the end of input are told too", () => {
    expect(read("z".repeat(30), { limit: 20 })).toEqual(["<too large: 30>"]);
  });

  test("over the limit keep their beginning, wherever they were split", () => {
    const line = Buffer.from(`{"id":"${"i".repeat(300)}","x":"${"x".repeat(5000)}"}\n`);
    for (const at of [0, 1, 400, 1001, 1002, 1003, 4096, 4097, line.length - 1]) {
      const { cuts } = new Reading({ framing: "lines" }).push(line.subarray(0, at)).push(line.subarray(at));
      const [cut] = cuts;
      expect(cut.kind).toBe("too_large");
      if (cut.kind === "too_large") expect(cut.bytes.subarray(0, 310)).toEqual(line.subarray(0, 310));
    }
  });
});

describe("headers", () => {
  test("are the same at every split, inside the header and inside characters too", () => {
    expectAtEverySplit(
      `${framed('{"a":"é"}')}${framed('{"b":"😀"}', "Content-Type: application/json\r\n")}${framed("{}")}`,
      ['{"a":"é"}', '{"b":"😀"}', "{}"],
    );
  });

  test("may end their lines with a line feed alone", () => {
    expectAtEverySplit(`Content-Length: 7\n\n{"a":1}${framed('{"b":2}')}`, ['{"a":1}', '{"b":2}']);
  });

  test("may be written in any case, in any order, with or without space", () => {
    expect(
      read(
        'content-length:7\r\n\r\n{"a":1}CONTENT-LENGTH:  7 \r\n\r\n{"b":2}Content-Type: x\r\nContent-Length: 7\r\n\r\n{"c":3}',
      ),
    ).toEqual(['{"a":1}', '{"b":2}', '{"c":3}']);
  });

  test("may follow blank lines", () => {
    expectAtEverySplit(`${framed('{"a":1}')}\r\n\n${framed('{"b":2}')}\r\n`, ['{"a":1}', '{"b":2}']);
  });

  test("tell bytes, so that a payload may hold anything", () => {
    const payload = '{"a":\n"Content-Length: 3\\r\\n"}\n\n';
    expectAtEverySplit(framed(payload) + framed("{}"), [payload, "{}"]);
  });

  test("may announce an empty payload", () => {
    expect(read(`Content-Length: 0\r\n\r\n${framed("{}")}`)).toEqual(["", "{}"]);
  });

  test.each([
    ["none", "Content-Type: application/json\r\n\r\n{}"],
    ["a negative length", 'Content-Length: -7\r\n\r\n{"a":1}'],
    ["a length that is no number", 'Content-Length: NaN\r\n\r\n{"a":1}'],
    ["a fraction", 'Content-Length: 7.5\r\n\r\n{"a":1}'],
    ["a sign", 'Content-Length: +7\r\n\r\n{"a":1}'],
    ["hexadecimal", 'Content-Length: 0x7\r\n\r\n{"a":1}'],
    ["an empty length", 'Content-Length:\r\n\r\n{"a":1}'],
    ["a length no message can have", 'Content-Length: 99999999999999999999\r\n\r\n{"a":1}'],
    ["a length in words of mathematics", 'Content-Length: 1e3\r\n\r\n{"a":1}'],
  ])("with %s are told once, and the next frame is read", (_what, bad) => {
    const stream = `${bad}\r\n${framed('{"b":2}')}${framed('{"c":3}')}`;
    expectAtEverySplit(stream, ["<bad header>", '{"b":2}', '{"c":3}'], { framing: "headers" });
  });

  test("after lines that belong to no frame are found again, and the lines are told once", () => {
    expectAtEverySplit(
      `${framed('{"a":1}')}[warn] something\nstarted with 3 things\n\n at module.js:5\n${framed('{"b":2}')}${framed("{}")}`,
      ['{"a":1}', "<bad header>", '{"b":2}', "{}"],
    );
  });

  test("after a payload that is longer than announced are found again", () => {
    expect(read(`Content-Length: 5\r\n\r\n{"a":1}${framed('{"b":2}')}`)).toEqual(['{"a":', "<bad header>", '{"b":2}']);
  });

  test("that a line without a colon begins are told before the stream goes on", () => {
    const reading = new Reading().push(Buffer.from(`${framed("{}")}not a header\n`));
    expect(told(reading.cuts)).toEqual(["{}", "<bad header>"]);
  });

  test("announcing more than the limit are told with their size, and the next frame is read", () => {
    const limit = 20;
    const most = "x".repeat(limit);
    const over = "y".repeat(limit + 1);
    expectAtEverySplit(framed(most) + framed(over) + framed("{}"), [most, "<too large: 21>", "{}"], { limit });
  });

  test("over the limit keep the payload's beginning, wherever it was split", () => {
    const payload = `{"id":"${"i".repeat(300)}","x":"${"x".repeat(5000)}"}`;
    const frame = Buffer.from(framed(payload));
    for (const at of [0, 10, 24, 25, 40, 200, 1000, 4000, 4200, frame.length]) {
      const { cuts } = new Reading().push(frame.subarray(0, at)).push(frame.subarray(at));
      const [cut] = cuts;
      expect(cut.kind).toBe("too_large");
      if (cut.kind === "too_large")
        expect(cut.bytes.toString().slice(0, 310), `split at ${at}`).toBe(payload.slice(0, 310));
    }
  });

  test("that end inside a frame are told", () => {
    expectAtEverySplit(`${framed("{}")}Content-Len`, ["{}", "<bad header>"]);
    expectAtEverySplit(`${framed("{}")}Content-Length: 5\r\n\r\n{"a`, ["{}", "<bad header>"]);
    expectAtEverySplit('Content-Length: 30\r\n\r\n{"a', ["<too large: 30>"], { limit: 20 });
  });
});

describe("the beginning of a stream", () => {
  test.each<[FramingName, string, string[]]>([
    ["lines", '{"a":1}\n', ['{"a":1}']],
    ["lines", '[{"a":1}]\n', ['[{"a":1}]']],
    ["lines", '\n\r\n  {"a":1}\n', ['{"a":1}']],
    ["lines", "Cannot start\n{}\n", ["Cannot start", "{}"]],
    ["lines", "C\n{}\n", ["C", "{}"]],
    ["lines", "content\n{}\n", ["content", "{}"]],
    ["lines", "null\n", ["null"]],
    ["headers", framed("{}"), ["{}"]],
    ["headers", `content-type: x\r\n${framed("{}")}`, ["{}"]],
    ["headers", `\r\n\n${framed("{}")}`, ["{}"]],
  ])("tells %s: %j", (framing, input, expected) => {
    expectAtEverySplit(input, expected);
    expect(new Reading().push(Buffer.from(input)).framing).toBe(framing);
  });

  test("decides nothing before there is enough of it", () => {
    expect(new Reading().push(Buffer.from("\n \r\n")).framing).toBeUndefined();
    expect(new Reading().push(Buffer.from("Content")).framing).toBeUndefined();
    expect(new Reading().push(Buffer.from("Contents")).framing).toBe("lines");
  });

  test.each<[string, FramingName | undefined, string]>([
    ["lines, detected", undefined, '{"a":1}\n'],
    ["headers, detected", undefined, framed('{"a":1}')],
    ["lines, given", "lines", '{"a":1}\n'],
    ["headers, given", "headers", framed('{"a":1}')],
  ])("may be a byte order mark: %s", (_what, framing, input) => {
    expectAtEverySplit(`\ufeff${input}`, ['{"a":1}'], { framing });
  });

  test("is the only place where a byte order mark is dropped", () => {
    expect(read('{"a":1}\n\ufeff{"b":2}\n')).toEqual(['{"a":1}', '\ufeff{"b":2}']);
    expect(read('\ufeff\ufeff{"a":1}\n')).toEqual(['\ufeff{"a":1}']);
  });

  test("may be all there is", () => {
    for (const input of ["", "\ufeff", "\n", "  \r\n"]) expect(read(input)).toEqual([]);
    expect(told(new Reading().push(Buffer.from([0xef, 0xbb])).end().cuts)).toHaveLength(1);
    expect(read("Content-")).toEqual(["<bad header>"]);
    expect(read("Cont")).toEqual(["Cont"]);
  });
});

describe("memory stays bounded", SYSTEM, () => {
  /** Pieces of a MiB that come. */
  const COUNT = 10;

  /** How much more is held after as many of the same byte. */
  function heldAfter(reading: Reading, byte: string): number {
    collectGarbage();
    const before = process.memoryUsage().arrayBuffers;
    for (let i = 0; i < COUNT; i++) reading.push(Buffer.alloc(MIB, byte));
    collectGarbage();
    return process.memoryUsage().arrayBuffers - before;
  }

  test("before the framing is known, under endless white space", () => {
    const reading = new Reading({ limit: MIB });
    expect(heldAfter(reading, " ")).toBeLessThan(8 * MIB);
    expect(told(reading.push(Buffer.from('{"a":1}\n')).end().cuts)).toEqual(['{"a":1}']);
  });

  test("under an endless line", () => {
    const reading = new Reading({ framing: "lines", limit: MIB });
    expect(heldAfter(reading, "x")).toBeLessThan(8 * MIB);
    expect(told(reading.push(Buffer.from('\n{"a":1}\n')).cuts)).toEqual([`<too large: ${COUNT * MIB}>`, '{"a":1}']);
  });

  test("under a header block without end", () => {
    const reading = new Reading({ framing: "headers", limit: MIB });
    expect(heldAfter(reading, "x")).toBeLessThan(8 * MIB);
    expect(told(reading.push(Buffer.from(framed('{"a":1}'))).cuts)).toEqual(["<bad header>", '{"a":1}']);
  });

  test("under a frame that is far over the limit", () => {
    const reading = new Reading({ framing: "headers", limit: MIB });
    reading.push(Buffer.from(`Content-Length: ${COUNT * MIB}\r\n\r\n`));
    expect(heldAfter(reading, "x")).toBeLessThan(8 * MIB);
    expect(told(reading.push(Buffer.from(framed('{"a":1}'))).cuts)).toEqual([`<too large: ${COUNT * MIB}>`, '{"a":1}']);
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

  test("of lines mean what they meant", () => {
    const value = { a: "\u2028\u2029\u0085\v\f\r\n\\u2028", "\u2028": 1 };
    expect(JSON.parse(bytes(inFrame("lines", [JSON.stringify(value)])))).toEqual(value);
    expect(JSON.parse(bytes(inFrame("lines", [Buffer.from(JSON.stringify(value))])))).toEqual(value);
  });

  test("of headers tell the bytes of all pieces", () => {
    expect(bytes(inFrame("headers", ['{"a":"é', Buffer.from('😀"'), "}"]))).toBe(
      'Content-Length: 14\r\n\r\n{"a":"é😀"}',
    );
  });

  test.each<FramingName>(["lines", "headers"])("of %s are read back", (framing) => {
    const payloads = ['{"a":"é"}', '{"b":[1,2,3]}', '"😀"'];
    const stream = payloads.map((payload) => bytes(inFrame(framing, [payload]))).join("");
    expectAtEverySplit(stream, payloads, { framing });
  });
});
