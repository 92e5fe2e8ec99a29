#!/usr/bin/env node
/**
 * Starts the program, which lies next to this file in two parts, with the machine code that V8 made of it in an earlier run.
 * Compiling it takes a fifth of the time to the first reply. The code is kept in the
 * user's cache folder, by build, V8 version and architecture. It is derived: without it, the program only starts
 * slower. `NODE_DISABLE_COMPILE_CACHE=1` turns this off.
 */

import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Script } from "node:vm";
import { crc32 } from "node:zlib";
import { type Disk, readWhole, realDisk, removeQuietly, temporaryName, writeAll } from "../storage/fs/disk.ts";

/** Set by the build: a hash of the program's text. */
declare const BUILD: string;

/** Milliseconds after the start at which the code is stored; what the first requests need has run by then. */
const KEEP_AFTER = 2000;
/**
 * Growth of the code that makes it worth storing again, now with what the first process did not need. The first
 * switch_session takes a sixth less when its code is kept, too. Checking takes 6 ms, so a process that ends earlier
 * does not check.
 */
const GROWTH = 1.05;
/** Number of code files that are kept, two for each build, V8 version and architecture. */
const MAX_KEPT = 8;
/** Bytes of the checksum before the code; V8 itself trusts the code that it gets. */
const CHECKSUM = 4;

const place = dirname(fileURLToPath(import.meta.url));

function codeFile(part: string): string | undefined {
  const { XDG_CACHE_HOME, HOME, NODE_DISABLE_COMPILE_CACHE } = process.env;
  if (NODE_DISABLE_COMPILE_CACHE === "1") return undefined;
  const caches = XDG_CACHE_HOME || join(HOME || homedir(), ".cache");
  return join(caches, "pi-session-server", `${BUILD}-${process.versions.v8}-${process.arch}-${part}.code`);
}

function keptCode(file: string): Buffer | undefined {
  try {
    const bytes = readWhole(realDisk, file);
    // The code is run as it is, so its file must belong to this user.
    if (process.getuid && realDisk.info(file).owner !== process.getuid()) return undefined;
    const code = Buffer.from(bytes.buffer, CHECKSUM);
    return crc32(code) === new DataView(bytes.buffer).getUint32(0) ? code : undefined;
  } catch {
    // The program has never run here, or nothing can be kept.
    return undefined;
  }
}

function keep(disk: Disk, file: string, code: Uint8Array): void {
  const folder = dirname(file);
  const temporary = temporaryName(file);
  try {
    disk.makeFolder(folder);
    const checksum = new Uint8Array(CHECKSUM);
    new DataView(checksum.buffer).setUint32(0, crc32(code));
    const fd = disk.create(temporary);
    try {
      writeAll(disk, fd, checksum);
      writeAll(disk, fd, code);
    } finally {
      disk.close(fd);
    }
    disk.rename(temporary, file);
    const others = disk.names(folder).map((name) => join(folder, name));
    const byAge = others.map((path) => ({ path, modified: disk.info(path).modified }));
    byAge.sort((a, b) => b.modified - a.modified);
    for (const { path } of byAge.slice(MAX_KEPT)) removeQuietly(disk, path);
  } catch {
    removeQuietly(disk, temporary);
  }
}

/** Runs a part of the program, which is a function of its file. */
function run(part: string, ...given: unknown[]): void {
  const file = codeFile(part);
  const cachedData = file === undefined ? undefined : keptCode(file);
  const filename = join(place, `${part}.js`);
  // The build writes only ASCII, so the bytes are the text. It is not put together of several, which would be copied.
  const text = Buffer.from(readWhole(realDisk, filename).buffer).toString("latin1");
  const script = new Script(text, { filename, cachedData });
  if (file !== undefined) {
    const known = cachedData && !script.cachedDataRejected ? cachedData.length : 0;
    let kept = false;
    const keepOnce = (): void => {
      if (kept) return;
      kept = true;
      const code = script.createCachedData();
      if (code.length > known * GROWTH) keep(realDisk, file, code);
    };
    setTimeout(keepOnce, KEEP_AFTER).unref();
    if (known === 0) process.on("exit", keepOnce);
  }
  script.runInThisContext()(...given);
}

const program = join(place, "program.js");
const nodes = createRequire(program);
let later: { exports: unknown } | undefined;

/** Returns what a module of Node's, a package or another part of the program exports. */
function load(name: string): unknown {
  if (name !== "./later.js") return nodes(name);
  if (!later) {
    later = { exports: {} };
    run("later", nodes, later);
  }
  return later.exports;
}

run("program", load, { exports: {} }, pathToFileURL(program).href);
