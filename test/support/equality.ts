/**
 * Compares bytes as a whole in `toEqual` and its like, in each process of the tests: vitest makes an entry of each byte
 * and compares those, which takes a second for a MiB. Equality is unchanged: the class and each byte.
 */

import { expect } from "vitest";

const KEY = Symbol.for("pi-session-server: bytes are compared as a whole");
const shared = globalThis as { [KEY]?: true };

// Once: this is loaded again for each file, and the testers are kept.
if (shared[KEY] === undefined) {
  shared[KEY] = true;
  expect.addEqualityTesters([equalBytes]);
}

/** Returns nothing where one of the two is no bytes, which others compare then. */
function equalBytes(one: unknown, other: unknown): boolean | undefined {
  if (!(one instanceof Uint8Array && other instanceof Uint8Array)) return undefined;
  return one.constructor === other.constructor && Buffer.compare(one, other) === 0;
}
