/** Every death of a migration and of a rollback, by every path, every command, on the current session and on a closed one. */

import { describe, expect, test } from "vitest";
import { leadOutOfAll, WAYS } from "../support/cut-off.ts";

describe.each(WAYS)("$name that was cut off", (way) => {
  test("leads out by what the refused append names", { timeout: 600_000 }, async () => {
    expect(await leadOutOfAll(way, { all: true })).toBeGreaterThan(0);
  });
});
