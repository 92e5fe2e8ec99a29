/** Weeks of work in a moment: many changes in many sessions, with a clock that runs ahead. */

import { readdirSync } from "node:fs";
import { expect } from "vitest";
import { user } from "./drafts.ts";
import { collectGarbage } from "./garbage.ts";
import type { Random } from "./random.ts";
import { countingEnv, serveHere } from "./server.ts";

const WEEKS = 14 * 24 * 3600 * 1000;

/** Returns the heap in MiB and the number of handles. */
function taken(): { heap: number; handles: number } {
  collectGarbage();
  const heap = process.memoryUsage().heapUsed / (1 << 20);
  return { heap, handles: process.platform === "linux" ? readdirSync("/proc/self/fd").length : 0 };
}

/** Handles and heap after the first part of the work are those after all of it. */
export async function simulatedWeeks(random: Random, operations: number): Promise<void> {
  const env = countingEnv();
  let clock = 0;
  const wire = serveHere(["--events", "none"], { env: { now: () => env.now() + clock } });
  const files: string[] = [];
  let first = { heap: 0, handles: 0 };
  for (let n = 0; n < operations; n++) {
    clock += WEEKS / operations;
    const kind = random.int(100);
    if (n % 40 === 0) await wire.result("new_session", { name: `session ${n}` });
    if (kind < 60) await wire.result("append", { entries: [user(random.hex(50))], idempotencyKey: `k${n}` });
    else if (kind < 75) await wire.request("branch", { entryId: null });
    else if (kind < 80) await wire.result("get_messages");
    else if (kind < 85) await wire.result("get_tree");
    else if (kind < 90) await wire.failure("get_entry", { entryId: "nowhere" });
    else if (kind < 93) await wire.result("clone");
    else if (kind < 96 && files.length > 0) await wire.result("switch_session", { sessionPath: random.pick(files) });
    else if (files.length > 0) {
      const { sessionId } = await wire.result("open_session", { sessionPath: random.pick(files) });
      await wire.result("close_session", { sessionId });
    }
    const { result } = await wire.request("get_state");
    if (result === undefined) await wire.result("new_session");
    else if (result.persisted && files.length < 50 && !files.includes(result.sessionFile))
      files.push(result.sessionFile);
    if (n === Math.floor(operations / 2)) first = taken();
  }
  const last = taken();
  // A session that is written has its file, a socket, and up to three descriptors of its lock.
  expect(last.handles - first.handles).toBeLessThanOrEqual(5);
  // Keys of the last 10,000 requests are kept, a few hundred bytes each.
  expect(last.heap - first.heap).toBeLessThan(8);
  await wire.finish();
}
