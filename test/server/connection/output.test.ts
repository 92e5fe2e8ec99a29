/** Messages arrive unchanged, in order and in frames, however they are cut, gathered, held up or late. */

import { readdirSync } from "node:fs";
import { Writable } from "node:stream";
import { describe, expect, test } from "vitest";
import { toBytes } from "../../../src/core/json/json.ts";
import { type FramingName, frames } from "../../../src/server/connection/framing.ts";
import { type OutgoingMessage, Output } from "../../../src/server/connection/output.ts";
import { FileSpool } from "../../../src/storage/fs/spool.ts";
import { type FailingDisk, failingDisk, type Stroke } from "../../support/failing.ts";
import { inFrame } from "../../support/frames.ts";
import { forSeedsAsync, type Random } from "../../support/random.ts";
import { temporaryFolder } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

type Pieces = (string | Uint8Array)[];

/** The spool of replies, on a disk that fails as `fault` says when it is set. */
function spoolHere(): { spool: FileSpool; disk: FailingDisk; folder: string; fault: { next?: [string, Stroke] } } {
  const fault: { next?: [string, Stroke] } = {};
  const folder = temporaryFolder();
  const strike = (_: number, operation: string) => (operation === fault.next?.[0] ? fault.next[1] : undefined);
  const disk = failingDisk(strike, { readsReplies: true });
  return { spool: new FileSpool(disk.disk, [folder], () => 0), disk, folder, fault };
}

/** A reader that takes its input at the test's word. */
class SlowReader extends Writable {
  readonly got: Buffer[] = [];
  /** The callback of the chunk that waits. */
  private taken: (() => void) | undefined;

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.got.push(Buffer.from(chunk));
    this.taken = done;
  }

  /** Takes the input; returns whether there was any. */
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
    return random.chance(0.5) ? text : toBytes(text);
  });
}

const textOf = (framing: FramingName, pieces: Pieces): string =>
  Buffer.concat(inFrame(framing, pieces).map((piece) => Buffer.from(piece as string))).toString();

describe.each(["lines", "headers"] as const)("%s", (framing) => {
  acrossTiers(test, [1, 4])("hold what was sent, large or small (%i)", async (count) => {
    const { spool, disk, folder } = spoolHere();
    await forSeedsAsync(count, async (random) => {
      const reader = new SlowReader();
      const output = new Output(reader, () => {});
      output.frameWith(frames[framing]);
      let expected = "";
      for (let n = random.int(12); n > 0; n--) {
        const pieces = randomPieces(random);
        const text = textOf(framing, pieces);
        expected += text;
        // Any part of it may wait in a file.
        const cut = random.int(pieces.length + 1);
        const message: OutgoingMessage = random.chance(0.4)
          ? [...pieces.slice(0, cut), spool.store(output.inFrame(pieces.slice(cut)))]
          : pieces;
        expect(output.sizeOf(message)).toBe(Buffer.byteLength(text));
        output.send(message);
        if (random.chance(0.3)) output.flush();
        if (random.chance(0.3)) reader.take();
      }
      output.flush();
      const drained = output.drained();
      await reader.takeAll();
      await drained;
      expect(reader.text === expected).toBe(true);
      expect({ open: disk.open(), files: readdirSync(folder) }).toEqual({ open: 0, files: [] });
    });
  });
});

describe("a message that waits in a file", () => {
  const PIECE = toBytes("x".repeat(1 << 16));
  const COUNT = 400;
  const readsOf = (count: number): number => (PIECE.length * count) / (1 << 18);

  function flowing(count = COUNT) {
    let notices = 0;
    const { spool, disk, fault } = spoolHere();
    const reader = new SlowReader();
    const output = new Output(reader, () => notices++);
    output.frameWith(frames.lines);
    output.send(["[", spool.store(Array.from({ length: count }, () => PIECE)), "]"]);
    return { spool, disk, fault, reader, output, reads: () => disk.countOf("read"), countNotices: () => notices };
  }

  acrossTiers(test, [200, 400])("is read as it is taken, and what follows it waits (%i pieces)", async (count) => {
    const { disk, reader, output, reads, countNotices } = flowing(count);
    expect(reads()).toBeLessThan(readsOf(count) / 3);
    expect(output.hasCapacity).toBe(false);
    output.send(["after"]);
    await reader.takeAll();
    expect(reads()).toBe(readsOf(count));
    expect(output.hasCapacity).toBe(true);
    expect(countNotices()).toBe(1);
    output.flush();
    await reader.takeAll();
    expect(reader.text === `[${"x".repeat(PIECE.length * count)}]\nafter\n`).toBe(true);
    expect(disk.open()).toBe(0);
  });

  test("ends the stream when its file fails, for half of it is out", async () => {
    const { disk, fault, reader, output } = flowing();
    const errors: unknown[] = [];
    reader.on("error", (error) => errors.push(error));
    output.send(["after"]);
    fault.next = ["read", "EIO"];
    await reader.takeAll();
    expect(reader.destroyed).toBe(true);
    expect(errors.map(String)).toEqual([expect.stringContaining("EIO")]);
    // Later messages go nowhere, and no sender waits for them.
    expect(output.hasCapacity).toBe(true);
    output.send(["more"]);
    await output.drained();
    expect(disk.open()).toBe(0);
  });

  test("whose reader goes away is given up, with what follows it", async () => {
    const { spool, disk, reader, output, reads, countNotices } = flowing();
    output.send(["after", spool.store([PIECE])]);
    const drained = output.drained();
    reader.destroy();
    await drained;
    expect(reads()).toBeLessThan(readsOf(COUNT) / 3);
    expect(countNotices()).toBe(1);
    expect(disk.open()).toBe(0);
  });

  test("shares its file with others, each of which fails alone when there is no room", () => {
    const { spool, disk, folder, fault } = spoolHere();
    const first = spool.store(["one", PIECE]);
    fault.next = ["write", "ENOSPC"];
    expect(() => spool.store([PIECE, PIECE, PIECE, PIECE, PIECE])).toThrow(
      expect.objectContaining({ name: "storage_full", message: expect.stringContaining("limit and cursor") }),
    );
    fault.next = ["write", "EIO"];
    expect(() => spool.store([PIECE])).toThrow(expect.objectContaining({ name: "storage_failed" }));
    fault.next = undefined;
    const failing = (function* () {
      yield PIECE;
      throw new Error("what it is made of");
    })();
    expect(() => spool.store(failing)).toThrow("what it is made of");
    const second = spool.store(["two"]);
    expect(readdirSync(folder)).toEqual([]);
    expect([...second.blocks()].map(String)).toEqual(["two"]);
    expect(Buffer.concat([...first.blocks()]).toString()).toBe(`one${"x".repeat(PIECE.length)}`);
    expect(disk.open()).toBe(0);
  });
});
