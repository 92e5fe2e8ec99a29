#!/usr/bin/env node
/** The program: the one place where clock, ids, disk and streams are put together. */

import { Socket } from "node:net";
import { Writable } from "node:stream";
import { isatty } from "node:tty";
import { parse } from "../core/json/json.ts";
import { serve, type World } from "../server/main.ts";
import type { ServerSettings } from "../server/settings.ts";
import { type Disk, readWhole, realDisk } from "../storage/fs/disk.ts";
import { realEnv } from "../storage/system-env.ts";
import { VERSION } from "../version.ts";
import { helpText, parseArguments, UsageError } from "./options.ts";

/**
 * Returns our standard output. Node writes to pipes synchronously, so a host that stops reading would keep us from
 * receiving its signals; a socket over the same descriptor waits without blocking. Other code that writes to stdout
 * speaks to a person, so it is redirected to stderr. Node's own stream for stdout takes a millisecond to make, and is
 * made only where it is needed.
 */
function standardOutput(disk: Disk): Writable {
  const nodes = Object.getOwnPropertyDescriptor(process, "stdout") as PropertyDescriptor;
  Object.defineProperty(process, "stdout", { configurable: true, get: () => process.stderr });
  try {
    if (disk.infoOf(1).kind === "other" && !isatty(1)) return new Socket({ fd: 1, readable: false, writable: true });
  } catch {
    // Not a pipe or socket after all.
  }
  const stdout: Writable = nodes.get?.call(process);
  const output = new Writable({ write: (chunk, _encoding, done) => void stdout.write(chunk, done) });
  stdout.on("error", (error) => output.destroy(error));
  return output;
}

function readSettings(path: string, disk: Disk = realDisk): unknown {
  try {
    return parse(readWhole(disk, path));
  } catch {
    // There are no settings, or none that can be read: the defaults apply.
    return undefined;
  }
}

/** Everything except the streams. */
const WORLD: Omit<World, "input" | "output"> = {
  env: realEnv,
  disk: realDisk,
  variables: process.env,
  cwd: process.cwd(),
  version: VERSION,
  printError: (sentence) => process.stderr.write(`pi-session-server: ${sentence}\n`),
  settingsFile: readSettings,
};

async function main(): Promise<number> {
  const [verb, ...rest] = process.argv.slice(2);
  if (verb !== undefined && !verb.startsWith("-")) {
    const { findVerb, runVerb } = await import("./run-verb.ts");
    const found = findVerb(verb);
    if (found) return runVerb(found, rest, { ...WORLD, ...(await import("./terminal/streams.ts")).realTerminal() });
  }
  let settings: ServerSettings;
  try {
    settings = parseArguments(process.argv.slice(2));
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`pi-session-server: ${error.message}\n`);
    return 2;
  }
  if (settings.action !== "serve") {
    const verbs = settings.action === "help" ? (await import("./run-verb.ts")).verbLines() : [];
    process.stdout.write(settings.action === "help" ? helpText(verbs) : `${VERSION}\n`);
    return 0;
  }
  if (process.argv.length === 2 && isatty(0)) process.stderr.write((await import("./greeting.ts")).GREETING);
  const output = standardOutput(realDisk);
  const service = serve(settings, { ...WORLD, input: process.stdin, output });
  let signals = 0;
  for (const signal of ["SIGTERM", "SIGHUP", "SIGINT"] as const)
    process.on(signal, () => {
      if (++signals > 1) process.exit(1);
      service.stop();
      setTimeout(() => process.exit(0), 1800).unref();
    });
  return service.done;
}

main().then(
  (status) => process.exit(status),
  (error) => {
    process.stderr.write(`pi-session-server: ${(error as Error)?.stack ?? error}\n`);
    process.exit(1);
  },
);
