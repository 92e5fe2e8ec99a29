#!/usr/bin/env node
/** The program: the one place where clock, ids, disk and streams are put together. */

import { Socket } from "node:net";
import { Writable } from "node:stream";
import { isatty } from "node:tty";
import { parse } from "../core/json/json.ts";
import { isPath } from "../core/search/named.ts";
import { type Service, serve, type World } from "../server/main.ts";
import { type ServerSettings, SettingsError } from "../server/settings.ts";
import { AddressError } from "../storage/fleet-module.ts";
import { type Disk, hasReader, readWhole, realDisk } from "../storage/fs/disk.ts";
import { realEnv } from "../storage/system-env.ts";
import { VERSION } from "../version.ts";
import { parseArguments, parseMcpArguments, UsageError } from "./options.ts";
import { writeStandardOutput } from "./terminal/standard-output.ts";
import type { RealTerminal } from "./terminal/streams.ts";

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
  if (!isatty(1)) return fileOutput(disk);
  const stdout: Writable = nodes.get?.call(process);
  const output = new Writable({ write: (chunk, _encoding, done) => void stdout.write(chunk, done) });
  stdout.on("error", (error) => output.destroy(error));
  return output;
}

/** Returns standard output where it is a file or a device. */
function fileOutput(disk: Disk): Writable {
  return new Writable({
    write(chunk, _encoding, done) {
      const refusal = writeStandardOutput(disk, chunk);
      if (refusal !== undefined) WORLD.printError(refusal);
      done(refusal === undefined ? null : new Error(refusal));
    },
  });
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

/** Milliseconds after a signal that the server has to answer everything it received. */
const AFTER_SIGNAL = 2000;

/** Options of every verb, and of no server, which people also type before the verb. */
const OF_VERBS = /^--(?:plain|no-pager|json)$/;

/** Returns the words with the verb before its options. */
function verbFirst(words: readonly string[]): readonly string[] {
  const first = words.findIndex((word) => !OF_VERBS.test(word));
  return first < 1 ? words : [words[first], ...words.slice(0, first), ...words.slice(first + 1)];
}

/** Runs what prints. Returns its exit status, or that of a failure if the disk has not taken all that it printed. */
async function printing(run: (terminal: RealTerminal) => Promise<number>): Promise<number> {
  const terminal = (await import("./terminal/streams.ts")).getRealTerminal();
  const status = await run(terminal);
  const { refusal } = terminal;
  if (refusal === undefined) return status;
  WORLD.printError(refusal);
  return 1;
}

/** Runs the verb of a name. Throws UsageError. */
async function runNamed(name: string, rest: readonly string[]): Promise<number> {
  const verb = (await import("./table.ts")).requireVerb(name);
  const { runVerb } = await import("./run-verb.ts");
  return printing(({ print, terminal }) => runVerb(verb, rest, { ...WORLD, print, terminal }));
}

/** Prints the help of the whole program, through the pager where it is longer than the terminal. */
async function printHelp({ print, terminal }: RealTerminal): Promise<number> {
  const { formatHelp: helpText, getHelpWidth: helpWidth } = await import("./help.ts");
  const { groups } = await import("./table.ts");
  const { printPaged } = await import("./paging.ts");
  const { columns, rows = 0 } = terminal;
  const text = helpText(groups, helpWidth(columns));
  const start = (): ReturnType<NonNullable<typeof terminal.startPager>> => terminal.startPager?.();
  if (columns === undefined) await print(text);
  else await printPaged(text.trimEnd().split("\n"), { print, rows, columns, start });
  return 0;
}

/** Returns the version that a client in Pi's place is to know: that of the agent behind, else our own. */
async function describeVersion({ agent }: ServerSettings): Promise<string> {
  return (agent && (await (await import("./agent-version.ts")).askAgentVersion(agent, WORLD.variables))) ?? VERSION;
}

/** Ends the program with requests unanswered, or sessions not closed. */
function leaveUnfinished(): void {
  WORLD.printError(
    "The server ends two seconds after a signal, before the host has read every reply, or a disk or database has answered. Acknowledged changes are durable. Repeat requests without a reply, with their idempotencyKey.",
  );
  process.exit(1);
}

async function main(): Promise<number> {
  let settings: ServerSettings;
  try {
    const [verb, ...rest] = verbFirst(process.argv.slice(2));
    const ofRecall = verb === "mcp" ? parseMcpArguments(rest.filter((word) => !OF_VERBS.test(word))) : undefined;
    if (!ofRecall && verb !== undefined && /^[^-]/.test(verb) && !isPath(verb)) return await runNamed(verb, rest);
    settings = ofRecall ?? parseArguments(process.argv.slice(2));
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    WORLD.printError((await import("./terminal/text.ts")).show`${error.message}`);
    return 2;
  }
  if (settings.action === "version") {
    const line = `${await describeVersion(settings)}\n`;
    return printing(async ({ print }) => {
      await print(line);
      return 0;
    });
  }
  if (settings.action === "help") return printing(printHelp);
  if (process.argv.length === 2 && isatty(0)) process.stderr.write((await import("./greeting.ts")).GREETING);
  const output = standardOutput(realDisk);
  let service: Service;
  try {
    service = serve(settings, { ...WORLD, input: process.stdin, output, isHeard: () => hasReader(1) });
  } catch (error) {
    if (!(error instanceof AddressError || error instanceof SettingsError)) throw error;
    WORLD.printError(error.message);
    return 2;
  }
  let signals = 0;
  for (const signal of ["SIGTERM", "SIGHUP", "SIGINT"] as const)
    process.on(signal, () => {
      if (++signals > 1) process.exit(1);
      service.stop();
      setTimeout(leaveUnfinished, AFTER_SIGNAL).unref();
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
