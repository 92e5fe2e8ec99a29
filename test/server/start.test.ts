/** The code that is kept of the program makes it start sooner, and never makes it another program. */

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { PROGRAM } from "../support/build.ts";
import { forSeeds } from "../support/random.ts";
import { temporaryPlace } from "../support/server.ts";

const REQUEST = `${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "list_open_sessions", params: {} })}\n`;

function start(cache: string, more: Record<string, string> = {}): string {
  const { variables, cwd } = temporaryPlace();
  const { stdout, stderr, status } = spawnSync(process.execPath, [PROGRAM, "--no-session", "--events", "none"], {
    input: REQUEST,
    env: { ...variables, XDG_CACHE_HOME: cache, ...more },
    cwd,
    encoding: "utf8",
  });
  expect([stderr, status]).toEqual(["", 0]);
  const { result } = JSON.parse(stdout);
  expect(result.sessions).toHaveLength(1);
  return Object.keys(result.sessions[0]).join();
}

const kept = (cache: string): string[] => {
  const folder = join(cache, "pi-session-server");
  return existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : [];
};

test("code is kept by the first run, used by the next, and not trusted when it is spoiled", () => {
  const cache = join(temporaryPlace().home, "cache");
  const told = start(cache);
  expect(kept(cache)).toHaveLength(1);
  const [file] = kept(cache);
  const whole = readFileSync(file);
  expect(start(cache)).toBe(told);
  expect(readFileSync(file).equals(whole)).toBe(true);
  forSeeds(3, (random) => {
    const spoiled = Buffer.from(whole);
    if (random.chance(0.3)) writeFileSync(file, spoiled.subarray(0, random.int(whole.length)));
    else {
      spoiled[random.int(whole.length)] ^= 1 << random.int(8);
      writeFileSync(file, spoiled);
    }
    expect(start(cache)).toBe(told);
  });
  // What was spoiled was made anew.
  expect(readFileSync(file).length).toBeGreaterThan(whole.length / 2);
  expect(kept(cache)).toHaveLength(1);
});

test("nothing is kept where it is not wanted or cannot be", () => {
  const cache = join(temporaryPlace().home, "cache");
  const told = start(cache, { NODE_DISABLE_COMPILE_CACHE: "1" });
  expect(kept(cache)).toEqual([]);
  writeFileSync(cache, "no folder");
  expect(start(cache)).toBe(told);
});
