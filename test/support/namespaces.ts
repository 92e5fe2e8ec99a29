/** Servers of ours that share nothing with this process but the file system: in other namespaces of Linux. */

import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { PROGRAM } from "./build.ts";
import { need } from "./needs.ts";
import { type Place, type SpawnedServer, spawnCommand, temporaryFolder, temporaryPlace } from "./server.ts";

/** The namespaces that a process gets of its own. */
export type Apart = "network" | "network and pids";

const WAYS: Record<Apart, readonly string[][]> = {
  network: [["-n"], ["-r", "-n"]],
  "network and pids": [
    ["-n", "-p", "-f", "--mount-proc", "--kill-child"],
    ["-r", "-n", "-p", "-f", "--mount-proc", "--kill-child"],
  ],
};

const known = new Map<Apart, readonly string[] | null>();

/** Returns the command that starts a process apart; null where the machine refuses. */
export function apart(kind: Apart): readonly string[] | null {
  let way = known.get(kind);
  if (way === undefined) {
    way = WAYS[kind].map((options) => ["unshare", ...options]).find(works) ?? null;
    known.set(kind, way);
  }
  return way;
}

const ADVICE = "run as root on Linux, or where users may have namespaces";

export const NETWORK_NAMESPACES = need("network namespaces", ADVICE, () => apart("network") !== null);

export const PID_NAMESPACES = need("network and pid namespaces", ADVICE, () => apart("network and pids") !== null);

function works([command, ...args]: readonly string[]): boolean {
  if (process.platform !== "linux") return false;
  try {
    execFileSync(command, [...args, "true"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

export interface Elsewhere {
  readonly apart?: Apart;
  readonly place?: Place;
  /** Another program of Node. */
  readonly node?: string;
  /** Programs and packages that the server does not find. */
  readonly without?: readonly ("sqlite" | "flock")[];
}

const NO_SQLITE = `
const builtin = process.getBuiltinModule;
if (builtin) process.getBuiltinModule = (name) => (name === "node:sqlite" ? undefined : builtin(name));
const Module = require("node:module");
const resolve = Module._resolveFilename;
Module._resolveFilename = function (name, ...rest) {
  if (name === "@photostructure/sqlite") throw new Error("not installed");
  return resolve.call(this, name, ...rest);
};
`;

/** Starts the built program there. */
export function spawnElsewhere(args: readonly string[], options: Elsewhere = {}): SpawnedServer {
  const { place = temporaryPlace(), node = process.execPath, without = [] } = options;
  const variables: string[] = [];
  if (without.includes("flock")) variables.push("PATH=/nowhere");
  if (without.includes("sqlite")) {
    const script = join(temporaryFolder(), "no-sqlite.cjs");
    writeFileSync(script, NO_SQLITE);
    variables.push(`NODE_OPTIONS=--require=${script}`);
  }
  const way = options.apart === undefined ? [] : (apart(options.apart) ?? []);
  const words = [...way, "env", ...variables, node, PROGRAM, ...args, "--events", "none"];
  return spawnCommand(words, "lines", place);
}

/** The lock files of a session, and the notes about them. */
export function lockFiles(session: string): string[] {
  const folder = statSync(session).isDirectory() ? session : dirname(session);
  return readdirSync(folder)
    .filter((name) => /^(?:\.pi-session-\d+|writer)\.(?:lock|holder)$/.test(name))
    .map((name) => join(folder, name));
}

/** Returns whether the kernel has a lock of SQLite's kind on a file. */
export function isLockedInKernel(file: string): boolean {
  const { ino } = statSync(file);
  return readFileSync("/proc/locks", "latin1")
    .split("\n")
    .some((line) => line.includes("POSIX") && line.includes(`:${ino} `));
}
