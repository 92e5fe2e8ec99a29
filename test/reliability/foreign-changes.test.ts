/**
 * Files that are changed under an open server, in every way (short form; 10,000 changes in soak).
 *
 * @module-tag system
 */

import { test } from "vitest";
import { changeUnderneath } from "../support/foreign-changes.ts";
import { KINDS } from "../support/foreign-kinds.ts";
import { forSeedsAsync } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

const changes = Object.keys(KINDS).length;

acrossTiers(test, [
  { store: "jsonl", framing: "lines", dialect: "jsonrpc", changes },
  { store: "v2", framing: "lines", dialect: "jsonrpc", changes },
  { store: "jsonl", framing: "headers", dialect: "jsonrpc", changes: 8 },
  { store: "v2", framing: "lines", dialect: "pi", changes: 8 },
] as const)(
  "every request is answered, with what the file said or as damage, and what is acknowledged can be read: $store, $framing, $dialect",
  (options) => forSeedsAsync(1, async (random) => void (await changeUnderneath(random, options))),
);
