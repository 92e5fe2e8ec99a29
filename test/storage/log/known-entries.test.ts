/**
 * What is known of the entries of a log.
 *
 * @module-tag sweep
 */

import { expect, test } from "vitest";
import { KnownEntries } from "../../../src/storage/log/known-entries.ts";

test("any number of damages is forgotten but for those of other kinds", () => {
  const entries = new KnownEntries();
  for (let line = 1; line <= 200_000; line++) entries.report("missing_parent", 0, 0, "the path ends here", true, line);
  entries.report("torn_tail", 0, 0, "the last frame was cut off");
  const left = entries.damage.slice(1);
  const { damage } = entries;
  entries.replaceDamage(left);
  expect(damage).toEqual(left);
  entries.forgetDamage(new Set(["torn_tail"]));
  expect(damage).toHaveLength(199_999);
  entries.forgetDamage(new Set(["missing_parent"]));
  expect(damage).toEqual([]);
});
