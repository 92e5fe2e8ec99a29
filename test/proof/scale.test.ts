/** Every shape at 50,000 entries (a million in soak). */

import { describe, expect, test } from "vitest";
import { HereLives } from "../support/proof.ts";
import { grow, SHAPES, walk } from "../support/proof-scale.ts";

describe("50,000 entries", () => {
  test.each(["a chain", "children of one node"])("as %s", async (shape) => {
    await walk(new HereLives(), 50_000, shape, 5000);
  });

  test("as a chain, nested 50,000 deep", async () => {
    const lives = new HereLives();
    const { file } = grow(lives.place.home, 50_000, "a chain");
    const wire = await lives.start(["--session", file]);
    let { tree } = await wire.result("get_tree", { format: "nested" });
    let depth = 0;
    for (; tree.length > 0; depth++) {
      expect(tree.length).toBe(1);
      tree = tree[0].children;
    }
    expect(depth).toBe(50_000);
  });
});

test.each(Object.keys(SHAPES))("2,000 entries as %s", async (shape) => {
  await walk(new HereLives(), 2000, shape, 150);
});
