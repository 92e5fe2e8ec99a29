#!/usr/bin/env node
/**
 * Starts the program, which lies next to this file in four parts, with the machine code that V8 made of it in an earlier
 * run. Compiling it takes a fifth of the time to the first reply. The code is kept in the user's cache folder, by build,
 * V8 version and architecture. `NODE_DISABLE_COMPILE_CACHE=1` turns this off.
 */

import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Script } from "node:vm";
import { readWhole, realDisk } from "../storage/fs/disk.ts";
import { readCode, saveCodeAsItGrows } from "./code-cache.ts";

/** Set by the build: a hash of the program's text. */
declare const BUILD: string;

const place = dirname(fileURLToPath(import.meta.url));

function codeFile(part: string): string | undefined {
  const { XDG_CACHE_HOME, HOME, NODE_DISABLE_COMPILE_CACHE } = process.env;
  if (NODE_DISABLE_COMPILE_CACHE === "1") return undefined;
  const caches = XDG_CACHE_HOME || join(HOME || homedir(), ".cache");
  return join(caches, "pi-session-server", `${BUILD}-${process.versions.v8}-${process.arch}-${part}.code`);
}

/** Runs a part of the program, which is a function of its file. */
function run(part: string, ...given: unknown[]): void {
  const file = codeFile(part);
  const cachedData = file === undefined ? undefined : readCode(realDisk, file);
  const filename = join(place, `${part}.js`);
  // The build writes only ASCII, so the bytes are the text. It is not put together of several, which would be copied.
  const text = Buffer.from(readWhole(realDisk, filename).buffer).toString("latin1");
  const script = new Script(text, { filename, cachedData });
  const isTrusted = cachedData !== undefined && !script.cachedDataRejected;
  if (file !== undefined) saveCodeAsItGrows(realDisk, file, isTrusted, () => script.createCachedData());
  script.runInThisContext()(...given);
}

const program = join(place, "program.js");
const nodes = createRequire(program);

/** Returns what a module of Node's, a package or another part of the program exports. The program asks once for each part. */
function load(name: string): unknown {
  const [, part] = /^\.\/(storage|later|recall)\.js$/.exec(name) ?? [];
  if (part === undefined) return nodes(name);
  const module = { exports: {} };
  run(part, nodes, module);
  return module.exports;
}

run("program", load, { exports: {} }, pathToFileURL(program).href);
