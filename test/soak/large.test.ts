/** Sessions that are larger than the heap: opened, paged through and sent whole within 128 MB of it. */

import { spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished } from "vitest";
import { PROGRAM } from "../support/build.ts";
import { user } from "../support/drafts.ts";
import { type Json, temporaryPlace } from "../support/server.ts";
import { soak } from "../support/soak.ts";

const HEAP = 128;

/** The length of a reply, and its beginning, up to a megabyte. */
interface Reply {
  readonly bytes: number;
  readonly text: string;
}

/** A server on a session that the generator of the benches writes for it, and how to ask it. */
async function serverOn(write: (generator: Json, file: string) => void) {
  const place = temporaryPlace();
  const file = join(place.home, "session.jsonl");
  write(await import("../../bench/generate.js" as string), file);
  const args = [`--max-old-space-size=${HEAP}`, PROGRAM, "--events", "none", "--session", file];
  const child = spawn(process.execPath, args, { env: place.variables, stdio: ["pipe", "pipe", "inherit"] });
  onTestFinished(async () => {
    const gone = new Promise((resolve) => child.on("exit", resolve));
    child.kill("SIGKILL");
    await gone;
  });
  let take: (chunk: Buffer) => void = () => {};
  child.stdout.on("data", (chunk: Buffer) => take(chunk));
  const ask = (method: string, params: object = {}) =>
    new Promise<Reply>((resolve, reject) => {
      let bytes = 0;
      let beginning = Buffer.alloc(0);
      child.once("exit", reject);
      take = (chunk) => {
        bytes += chunk.length;
        if (beginning.length < 1 << 20) beginning = Buffer.concat([beginning, chunk]);
        if (chunk[chunk.length - 1] !== 0x0a) return;
        child.off("exit", reject);
        resolve({ bytes, text: beginning.toString() });
      };
      child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method, params })}\n`);
    });
  const peak = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1]) / 1000;
  const result = async (method: string, params: object = {}) => JSON.parse((await ask(method, params)).text).result;
  const show = () => spawnSync(process.execPath, [PROGRAM, "show", file], { env: place.variables, encoding: "utf8" });
  return { ask, result, peak, show };
}

async function giant(): Promise<void> {
  const { ask, result, peak } = await serverOn(({ writeSession }, file) => writeSession(file, 256, "giant"));
  expect((await result("get_state")).entryCount).toBe(3);
  const { nodes } = await result("get_tree");
  expect(nodes[1].preview).toMatch(/^x{99}…$/);
  expect((await ask("get_entries", { limit: 1 })).bytes).toBeLessThan(1000);
  for (const method of ["get_entries", "get_messages"])
    expect((await ask(method)).bytes).toBeGreaterThan(256 * 1024 * 1024);
  if (process.platform === "linux") expect(peak()).toBeLessThan(500);
}

async function million(): Promise<void> {
  const { ask, result, peak } = await serverOn(({ writeSession }, file) => writeSession(file, 1_000_000, "lean"));
  expect((await result("get_state")).entryCount).toBe(1_000_000);
  let cursor: string | undefined;
  let seen = 0;
  do {
    const { entries, nextCursor } = await result("get_entries", { limit: 400, cursor });
    seen += entries.length;
    // Every hundredth page.
    cursor = nextCursor === undefined ? undefined : String(Math.min(999_999, Number(nextCursor) + 39_600));
  } while (cursor !== undefined && seen < 20_000);
  expect(seen).toBeGreaterThan(9000);
  expect((await ask("get_entries")).bytes).toBeGreaterThan(600e6);
  if (process.platform === "linux") expect(peak()).toBeLessThan(600);
}

/** A line that no string can hold: all else is answered, and it is sent as it is. */
async function longest(): Promise<void> {
  const { ask, result, show } = await serverOn(({ writeLongLine }, file) => writeLongLine(file, 600 << 20));
  const tree = await result("get_tree");
  expect(tree.nodes[1].preview).toMatch(/^so many words .*…$/);
  expect(await result("verify_session")).toMatchObject({ damage: [], ok: true });
  expect((await ask("get_entry", { entryId: tree.nodes[1].id })).bytes).toBeGreaterThan(600 << 20);
  const { error } = JSON.parse((await ask("prepare_compaction")).text);
  expect(error).toMatchObject({ data: { name: "message_too_large", size: expect.any(Number) } });
  expect(error.data.size).toBeGreaterThan(600 << 20);
  const shown = show();
  expect([shown.status, shown.stdout]).toEqual([1, ""]);
  expect(shown.stderr).toContain("exceeds Node's maximum string length");
  expect((await result("append", { entries: [user("more")] })).entryIds).toHaveLength(1);
}

soak("large", async (_random, number) => {
  await [longest, giant, million][number % 3]();
  return { runs: 1 };
});
