/**
 * The code that is kept of the program makes it start sooner, and never makes it another program.
 *
 * @module-tag system
 */

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, watch, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { commandNames } from "../../src/handlers/shared/find.ts";
import { PROGRAM } from "../support/build.ts";
import { user } from "../support/drafts.ts";
import { forSeeds } from "../support/random.ts";
import { spawnServer, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const QUIET = ["--no-session", "--events", "none"];
const REQUEST = `${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "list_open_sessions", params: {} })}\n`;

/** Runs the program with one input and its kept code. Returns the output. */
function run(cache: string, input: string, more: Record<string, string> = {}): string {
  const { variables, cwd } = temporaryPlace();
  const env = { ...variables, XDG_CACHE_HOME: cache, ...more };
  const options = { input, env, cwd, encoding: "utf8" } as const;
  const { stdout, stderr, status } = spawnSync(process.execPath, [PROGRAM, ...QUIET], options);
  expect([stderr, status]).toEqual(["", 0]);
  return stdout;
}

function start(cache: string, more: Record<string, string> = {}): string {
  const { result } = JSON.parse(run(cache, REQUEST, more));
  expect(result.sessions).toHaveLength(1);
  return Object.keys(result.sessions[0]).join();
}

function kept(cache: string): string[] {
  const folder = join(cache, "pi-session-server");
  return existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : [];
}

acrossTiers(test, [1, 3])("code that one run keeps is used by the next, and not when it is spoiled (%i)", (times) => {
  const cache = join(temporaryPlace().home, "cache");
  const started = start(cache);
  expect(kept(cache)).toHaveLength(1);
  const [file] = kept(cache);
  const whole = readFileSync(file);
  expect(start(cache)).toBe(started);
  expect(readFileSync(file).equals(whole)).toBe(true);
  forSeeds(times, (random) => {
    const spoiled = Buffer.from(random.chance(0.3) ? whole.subarray(0, random.int(whole.length)) : whole);
    if (spoiled.length === whole.length) spoiled[random.int(whole.length)] ^= 1 << random.int(8);
    writeFileSync(file, spoiled);
    expect(start(cache)).toBe(started);
  });
  // The spoiled file was made anew.
  expect(readFileSync(file).length).toBeGreaterThan(whole.length / 2);
  expect(kept(cache)).toHaveLength(1);
});

test("what is loaded when it is needed is loaded with kept code, too", async () => {
  const place = temporaryPlace();
  const variables = { ...place.variables, XDG_CACHE_HOME: join(place.home, "cache") };
  for (const run of ["first", "second"]) {
    const server = spawnServer(QUIET, "lines", { ...place, variables });
    await server.result("initialize", { capabilities: { hooks: [{ name: "session_before_fork" }] } });
    const { leafId } = await server.result("append", { entries: [user("one")] });
    server.send({ jsonrpc: "2.0", id: "f", method: "fork", params: { entryId: leafId } });
    expect(await server.next(), run).toMatchObject({ method: "session_before_fork" });
    await server.finish();
    expect(server.stderr, run).toBe("");
  }
});

test("nothing is kept where it is not wanted or cannot be", () => {
  const cache = join(temporaryPlace().home, "cache");
  const started = start(cache, { NODE_DISABLE_COMPILE_CACHE: "1" });
  expect(kept(cache)).toEqual([]);
  writeFileSync(cache, "no folder");
  expect(start(cache)).toBe(started);
});

test("code that only later requests needed is added by a server that goes on", async () => {
  const { variables, cwd, home } = temporaryPlace();
  const cache = join(home, "cache");
  run(cache, "");
  const [file] = kept(cache);
  const { length } = readFileSync(file);
  const folder = watch(dirname(file));
  const changed = new Promise<void>((resolve) =>
    folder.on("change", (_, name) => name === basename(file) && resolve()),
  );
  const env = { ...variables, XDG_CACHE_HOME: cache };
  const server = spawn(process.execPath, [PROGRAM, ...QUIET], { env, cwd, stdio: ["pipe", "ignore", "inherit"] });
  server.stdin.write(REQUEST);
  await changed;
  folder.close();
  server.stdin.end();
  await once(server, "close");
  expect(readFileSync(file).length).toBeGreaterThan(length);
  expect(kept(cache)).toEqual([file]);
});

acrossTiers(test, ["first", "last"])("each command is there, whichever is asked for first (the %s)", (asked) => {
  const cache = join(temporaryPlace().home, "cache");
  const requests = commandNames.map((method, id) => ({ jsonrpc: "2.0", id, method, params: { "no such member": 1 } }));
  const ordered = asked === "first" ? requests : requests.toReversed();
  const replies = run(cache, ordered.map((request) => `${JSON.stringify(request)}\n`).join(""));
  const refused = replies.split("\n", ordered.length).map((line) => JSON.parse(line).error?.data?.name);
  expect(refused).toEqual(ordered.map(() => "invalid_params"));
});
