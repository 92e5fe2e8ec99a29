import { expect, test } from "vitest";
import { FrameCutter, frameMessage } from "../../src/conformance/frames.ts";

/** Returns the pieces of an output that arrives in chunks of so many bytes. */
function pieces(framing: "lines" | "headers", output: string | Buffer, size: number): string[] {
  const cutter = new FrameCutter(framing);
  const bytes = Buffer.from(output as string);
  const found: string[] = [];
  for (let at = 0; at < bytes.length; at += size)
    for (const piece of cutter.push(bytes.subarray(at, at + size))) found.push(`${piece.kind} ${piece.bytes}`);
  return [...found, `rest ${cutter.rest()}`];
}

test.each([1, 2, 3, 7, 1000])(
  "frames in chunks of %i bytes are whole, and what is around those with headers is garbage",
  (size) => {
    const messages = ['{"a":"Grüße"}', "{}", `"${"x".repeat(300)}"`];
    for (const framing of ["lines", "headers"] as const) {
      const output = Buffer.concat(messages.map((message) => frameMessage(framing, message)));
      const expected = [...messages.map((message) => `frame ${message}`), "rest "];
      expect(pieces(framing, output, size)).toEqual(expected);
    }
    const frame = frameMessage("headers", "{}").toString();
    const found = pieces("headers", `debug: ready\nhello\n${frame}}oops${frame}Content-Le`, size);
    expect(found.filter((piece) => piece.startsWith("frame"))).toEqual(["frame {}", "frame {}"]);
    const garbage = found.filter((piece) => piece.startsWith("garbage")).map((piece) => piece.slice("garbage ".length));
    expect(garbage.join("")).toBe("debug: ready\nhello\n}oops");
    expect(found.at(-1)).toBe("rest Content-Le");
  },
);

test("other fields are read past, in any case", () => {
  const output = "content-type: x\r\nCONTENT-LENGTH: 2\r\n\r\n{}";
  expect(pieces("headers", output, 1000)).toEqual(["frame {}", "rest "]);
});
