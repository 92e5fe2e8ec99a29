/** 10,000 sessions of 1 GB at the wire, as `bench/catalog.js` makes and measures them. */

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const BENCH = fileURLToPath(new URL("../../bench/catalog.js", import.meta.url));

test("10,000 sessions are listed within 10 ms and searched within 20 ms, in bounded memory", () => {
  const text = execFileSync(process.execPath, [BENCH, "--sessions", "10000", "--json"], { encoding: "utf8" });
  console.log(text);
  const figures = JSON.parse(text);
  expect(figures.sessions).toBe(10_000);
  expect(figures.progressNotifications).toBeGreaterThanOrEqual(50);
  expect(figures.listP95).toBeLessThanOrEqual(10);
  expect(figures.searchP95).toBeLessThanOrEqual(20);
  expect(figures.peakMegabytes).toBeLessThan(500);
});
