/** The module that validates lines is the one of its source; that it validates rightly is shown in validate.test.ts. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
// @ts-expect-error plain JavaScript, for the command line
import { assembleModule, MODULE_FILE } from "../../../scripts/assemble.js";
import { getFastPath } from "../../../src/core/json/fast-path.ts";
import { SYSTEM } from "../../support/tiers.ts";

// The assembler of WebAssembly takes long to load.
test("the module is what node scripts/assemble.js makes of its source", SYSTEM, async () => {
  expect(readFileSync(MODULE_FILE, "utf8")).toBe(await assembleModule());
});

test("the module is used where there is WebAssembly", () => {
  const look = getFastPath();
  expect(look).not.toBeNull();
  const line = new TextEncoder().encode('{"type":"message","id":"a1b2c3d4","message":{"role":"user"}}');
  look?.bytes.set(line);
  expect(look?.read(0, line.length)).toBe(line.indexOf(0x7b, 1));
});
