/** The ids of this machine. */

import { expect, test } from "vitest";
import { realEnv } from "../../src/storage/system-env.ts";

test("session ids are UUIDs of version 7 in the order in which they were made, also within a millisecond", () => {
  const before = Date.now();
  const ids = Array.from({ length: 5000 }, () => realEnv.sessionId());
  expect(ids.every((id) => /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(id))).toBe(
    true,
  );
  expect([...ids].sort()).toEqual(ids);
  expect(new Set(ids).size).toBe(ids.length);
  const time = Number.parseInt(ids[0].replace("-", "").slice(0, 12), 16);
  expect(time >= before && time <= Date.now()).toBe(true);
});

test("entry ids are eight hex digits, drawn anew", () => {
  const ids = Array.from({ length: 5000 }, () => realEnv.entryId());
  expect(ids.every((id) => /^[0-9a-f]{8}$/.test(id))).toBe(true);
  // Among 5,000 of four billion, two are equal in three runs of a thousand; three never.
  expect(new Set(ids).size).toBeGreaterThan(4990);
});
