/** Packs: what is packed comes out as it was, whatever the lines are, and the spine without them. */

import { expect, test } from "vitest";
import { endAfter, NOTHING } from "../../../src/storage/fleet/ends.ts";
import { headsIn, linesIn, packed, stretchesOf } from "../../../src/storage/fleet/pack.ts";
import { forSeedsAsync, type Random } from "../../support/random.ts";
import { acrossTiers } from "../../support/tiers.ts";

function randomLine(random: Random): Buffer {
  const kind = random.int(8);
  if (kind === 0) return Buffer.alloc(0);
  if (kind === 1) return Buffer.from(Array.from({ length: random.int(40_000) }, () => random.int(256)));
  if (kind === 2) return Buffer.from(`{"a":"\\u0000\\ud800 ${"ä".repeat(random.int(50))}"}`);
  return Buffer.from(`{"text":"${"word ".repeat(random.int(kind === 4 ? 60_000 : 200))}"}`);
}

acrossTiers(test, [3, 10])("lines and heads come out of packs as they went in (%i)", async (count) => {
  await forSeedsAsync(count, async (random) => {
    const lines = Array.from({ length: 1 + random.int(40) }, () => randomLine(random));
    const heads = lines.map((_, n) => JSON.stringify([`id ${n}\n\u0000\ud800`, null, "message", "user"]));
    const before = endAfter(NOTHING, [Buffer.from("{}")]);
    const stretches = stretchesOf(before, lines);
    expect(stretches.at(-1)).toEqual(endAfter(before, lines));
    const packs = await packed(before, lines, heads, stretches);
    expect(packs.map(({ seq, count }) => seq + count)).toEqual(stretches.map(({ entries }) => entries));
    expect(packs.map(({ end }) => end)).toEqual(stretches);
    const read = (await Promise.all(packs.map((pack) => linesIn(pack)))).flat();
    expect(read.map((line) => Buffer.from(line).toString("latin1"))).toEqual(lines.map((l) => l.toString("latin1")));
    expect(packs.flatMap(headsIn)).toEqual(heads);
  });
});

test("a pack has some thousand lines at most, and a long line is alone", () => {
  const short = Array.from({ length: 10_000 }, () => Buffer.from("{}"));
  expect(stretchesOf(NOTHING, short).map(({ entries }) => entries)).toEqual([4096, 8192, 10_000]);
  const long = [Buffer.from("{}"), Buffer.alloc(3 << 20, "x"), Buffer.from("{}")];
  expect(stretchesOf(NOTHING, long).map(({ entries }) => entries)).toEqual([1, 2, 3]);
});

test("a pack that was changed is refused, and one that says too little is not unpacked beyond that", async () => {
  const lines = [Buffer.from(`{"a":"${"x".repeat(5000)}"}`), Buffer.from("{}")];
  const [pack] = await packed(NOTHING, lines, ["[]", "[]"], stretchesOf(NOTHING, lines));
  const message = expect.stringContaining("a form (7) that this program does not know");
  for (const [change, told] of [
    [{ ends: [10, 20] }, {}],
    [{ ends: [...pack.ends, 9000] }, {}],
    [{ lines: pack.lines.subarray(1) }, {}],
    [{ codec: 7 }, { message }],
  ]) {
    const failed = { name: "storage_failed", retryable: false, ...told };
    await expect(linesIn({ ...pack, ...change })).rejects.toMatchObject(failed);
  }
});
