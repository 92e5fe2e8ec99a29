#!/usr/bin/env node
/**
 * What is run: starts the program, which stands beside this file, with the machine code that V8 made of it when it ran
 * here before. Compiling it takes 20 of the 100 ms to the first reply on Node 20, and 17 of 67 on Node 24. The code is
 * kept in the user's cache folder, by build and version of V8; it is derived, and without it the program only starts
 * slower. `NODE_DISABLE_COMPILE_CACHE=1` does without.
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

/** How long after the start the code is kept: what the first requests need has run by then. */
const KEEP_AFTER = 2000;
/**
 * How much more code than is kept makes it worth keeping anew: what the first one to run did not need. The first
 * switch_session takes a sixth less when its code is kept, too. To look takes 6 ms, so a process that ends before does not.
 */
const GROWTH = 1.05;
/** Builds and versions of V8 whose code is kept. */
const MOST_KEPT = 4;
/** Bytes of the checksum before the code: V8 itself believes what it is given. */
const CHECKSUM = 4;

const program = join(dirname(fileURLToPath(import.meta.url)), "program.js");

function codeFile(): string | undefined {
  const { XDG_CACHE_HOME, HOME, NODE_DISABLE_COMPILE_CACHE } = process.env;
  if (NODE_DISABLE_COMPILE_CACHE === "1") return undefined;
  const caches = XDG_CACHE_HOME || join(HOME || homedir(), ".cache");
  return join(caches, "pi-session-server", `${BUILD}-${process.versions.v8}-${process.arch}.code`);
}

function keptCode(file: string): Buffer | undefined {
  try {
    const bytes = readWhole(realDisk, file);
    // Code is run as it is, so it must be our own.
    if (process.getuid && realDisk.info(file).owner !== process.getuid()) return undefined;
    const code = Buffer.from(bytes.buffer, CHECKSUM);
    return crc32(code) === new DataView(bytes.buffer).getUint32(0) ? code : undefined;
  } catch {
    // It never ran here, or may not keep anything.
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
    for (const { path } of byAge.slice(MOST_KEPT)) removeQuietly(disk, path);
  } catch {
    removeQuietly(disk, temporary);
  }
}

const file = codeFile();
const cachedData = file === undefined ? undefined : keptCode(file);
// The build writes ASCII only, which is a text as it stands.
const text = Buffer.from(readWhole(realDisk, program)).toString("latin1");
const script = new Script(`(function (require, PROGRAM_URL) {${text}\n})`, {
  filename: program,
  cachedData,
});
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
script.runInThisContext()(createRequire(program), pathToFileURL(program).href);
