/** What is sent arrives as it is, in order and in frames, however it is cut, gathered, held up or made late. */

import { Writable } from "node:stream";
import { describe, expect, test } from "vitest";
import { bytesOf } from "../../src/core/json.ts";
import { encoders, type FramingName, frames } from "../../src/server/framing.ts";
import { Large, Output } from "../../src/server/output.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";

type Pieces = (string | Uint8Array)[];

/** A reader that takes what it gets when it is let. */
class SlowReader extends Writable {
  readonly got: Buffer[] = [];
  /** What waits to be taken. */
  private taken: (() => void) | undefined;

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.got.push(Buffer.from(chunk));
    this.taken = done;
  }

  /** Takes what is there; answers whether there was anything. */
  take(): boolean {
    const { taken } = this;
    this.taken = undefined;
    taken?.();
    return taken !== undefined;
  }

  async takeAll(): Promise<void> {
    for (let idle = 0; idle < 5; idle = this.take() ? 0 : idle + 1) await new Promise(setImmediate);
  }

  get text(): string {
    return Buffer.concat(this.got).toString();
  }
}

function randomPieces(random: Random): Pieces {
  return Array.from({ length: random.int(8) }, () => {
    const text = random.pick(["a", "é", "漢\u2028", "😀"]).repeat(random.pick([1, 3, 100, 2000, 30_000]));
    return random.chance(0.5) ? text : bytesOf(text);
  });
}

const textOf = (framing: FramingName, pieces: Pieces): string =>
  Buffer.concat(encoders[framing](pieces).map((piece) => Buffer.from(piece as string))).toString();

describe.each(["lines", "headers"] as const)("%s", (framing) => {
  test("hold what was sent, large or small", async () => {
    await forSeedsAsync(25, async (random) => {
      const reader = new SlowReader();
      const output = new Output(reader, () => {});
      output.frameWith(frames[framing]);
      let expected = "";
      for (let n = random.int(12); n > 0; n--) {
        const pieces = randomPieces(random);
        const bytes = pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0);
        expected += textOf(framing, pieces);
        expect(output.sizeOf(pieces)).toBe(Buffer.byteLength(textOf(framing, pieces)));
        output.send(random.chance(0.4) ? new Large(bytes, () => pieces) : pieces);
        if (random.chance(0.3)) output.flush();
        if (random.chance(0.3)) reader.take();
        if (random.chance(0.1)) output.hold();
      }
      output.flush();
      const drained = output.drained();
      await reader.takeAll();
      await drained;
      expect(reader.text === expected).toBe(true);
    });
  });
});

describe("a large payload", () => {
  const PIECE = bytesOf("x".repeat(1 << 16));
  const COUNT = 1000;

  function flowing(): { reader: SlowReader; output: Output; made: () => number; roomTold: () => number } {
    let made = 0;
    let told = 0;
    const reader = new SlowReader();
    const output = new Output(reader, () => told++);
    output.frameWith(frames.lines);
    output.send(
      new Large(PIECE.length * COUNT, function* () {
        for (; made < COUNT; made++) yield PIECE;
      }),
    );
    return { reader, output, made: () => made, roomTold: () => told };
  }

  test("is made as it is read, and what follows it waits", async () => {
    const { reader, output, made, roomTold } = flowing();
    expect(made()).toBeLessThan(COUNT / 5);
    expect(output.hasRoom).toBe(false);
    output.send(["after"]);
    await reader.takeAll();
    expect(made()).toBe(COUNT);
    expect(output.hasRoom).toBe(true);
    expect(roomTold()).toBe(1);
    output.flush();
    await reader.takeAll();
    expect(reader.text === `${"x".repeat(PIECE.length * COUNT)}\nafter\n`).toBe(true);
  });

  test("is made at once when what it comes from is about to go", async () => {
    const { reader, output, made } = flowing();
    output.hold();
    expect(made()).toBe(COUNT);
    const drained = output.drained();
    await reader.takeAll();
    await drained;
    expect(reader.text.length).toBe(PIECE.length * COUNT + 1);
  });

  test("that cannot be made to its end ends the stream", async () => {
    const reader = new SlowReader();
    const errors: unknown[] = [];
    reader.on("error", (error) => errors.push(error));
    const output = new Output(reader, () => {});
    output.frameWith(frames.lines);
    output.send(
      new Large(10, function* () {
        yield PIECE;
        throw new Error("the disk failed");
      }),
    );
    await new Promise(setImmediate);
    expect(reader.destroyed).toBe(true);
    expect(errors.map(String)).toEqual(["Error: the disk failed"]);
    await output.drained();
  });

  test("whose reader goes away is given up", async () => {
    const { reader, output, made } = flowing();
    output.send(["after"]);
    const drained = output.drained();
    reader.destroy();
    await drained;
    expect(made()).toBeLessThan(COUNT / 5);
  });
});
