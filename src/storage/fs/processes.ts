/** Detects a reused pid by the start time of its process. A process may be listed for a while after its end. */

import { readClock } from "./clock.ts";
import { type Disk, readUnsized } from "./disk.ts";

/** Milliseconds of validity of the output of `ps` about a process. */
const BELIEVED = 1000;
/** Greatest difference in seconds between two outputs of `ps` about one process. */
const ROUNDING = 2;
/** Processes above this one that are looked at. */
const MOST_ANCESTORS = 16;
/** Start times that `ps` returned. */
const answers = new Map<number, { at: number; start: string | null }>();

/**
 * Returns when the process with a pid started, in the unit of the system, with the id of the boot where the system has
 * one. Returns an empty string when the system does not know, null when the process has ended.
 */
export function getProcessStart(disk: Disk, pid: number, platform: string = process.platform): string | null {
  if (platform === "linux") return startInProc(disk, pid);
  if (platform === "win32") return "";
  const known = answers.get(pid);
  if (known && readClock() - known.at < BELIEVED) return known.start;
  const start = startByPs(pid);
  if (answers.size > 100) answers.clear();
  answers.set(pid, { at: readClock(), start });
  return start;
}

/** Returns the id of this run of the kernel, the same in all of its containers. Throws if Linux does not report it. */
export function readBootId(disk: Disk): string {
  return Buffer.from(readUnsized(disk, "/proc/sys/kernel/random/boot_id")).toString("latin1").trim();
}

/** Returns whether the process that had `pid` and the start time `started` is still alive. */
export function isSameProcess(disk: Disk, pid: unknown, started: unknown, platform?: string): boolean {
  if (typeof pid !== "number" || !Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
  }
  const start = getProcessStart(disk, pid, platform);
  if (start === null) return false;
  return start === "" || typeof started !== "string" || started === "" || isSameStart(start, started);
}

function isSameStart(a: string, b: string): boolean {
  const [first, second] = [a, b].map((start) => Number(/^ps (\d+)$/.exec(start)?.[1] ?? Number.NaN));
  return a === b || Math.abs(first - second) <= ROUNDING;
}

/** Returns the processes that started this one, its parent first; none without /proc. */
export function findAncestors(disk: Disk): readonly number[] {
  const found: number[] = [];
  for (let pid = process.ppid; pid > 1 && found.length < MOST_ANCESTORS; ) {
    found.push(pid);
    try {
      pid = Number(readFields(disk, pid)[1]);
    } catch {
      break;
    }
  }
  return found;
}

/** Returns the facts about a process in /proc: its state, its parent and so on. Throws errno errors. */
function readFields(disk: Disk, pid: number): string[] {
  const stat = Buffer.from(readUnsized(disk, `/proc/${pid}/stat`)).toString("latin1");
  // They come after the name, which may contain anything.
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

function startInProc(disk: Disk, pid: number): string | null {
  try {
    const fields = readFields(disk, pid);
    if (fields[0] === "Z" || fields[0] === "X") return null;
    return `${readBootId(disk)} ${fields[19]}`;
  } catch {
    return "";
  }
}

/** Returns the start time in seconds since 1970, independent of the user's time zone and language. */
function startByPs(pid: number): string | null {
  // Loaded only when it is needed.
  const { spawnSync } = process.getBuiltinModule("node:child_process");
  const { error, stdout } = spawnSync("/bin/ps", ["-o", "stat=", "-o", "lstart=", "-p", String(pid)], {
    encoding: "utf8",
    env: { TZ: "UTC", LC_ALL: "C" },
    timeout: 5000,
  });
  if (error) return "";
  const [, state, since] = /^\s*(\S+)\s+(\S.*\S)\s*$/.exec(stdout) ?? [];
  if (state === undefined || state.startsWith("Z")) return null;
  const seconds = Date.parse(`${since} UTC`) / 1000;
  return Number.isNaN(seconds) ? "" : `ps ${seconds}`;
}
