/**
 * Containers on one volume, imitated by namespaces of Linux: processes with network, pids, host name and mounts of
 * their own, which have the folder of the sessions in common and nothing else.
 */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { KEPT_CODE, PROGRAM } from "./build.ts";
import { need } from "./needs.ts";
import type { Random } from "./random.ts";
import { type Framing, type SpawnedServer, spawnCommand, temporaryFolder, temporaryPlace } from "./server.ts";
import type { Where } from "./sharing.ts";

const NAMESPACES = ["-n", "-u", "-m", "-p", "-f", "--mount-proc", "--kill-child"];
/** The volume as each container sees it. */
const VOLUME = "/tmp/volume";
/**
 * Gives the container a `/tmp` of its own with the volume and the program in it, its name and its run of a kernel, and
 * starts the rest.
 */
const ENTER = `set -e
mount -t tmpfs tmpfs "$0"
mkdir "$0/volume" "$0/home" "$0/run"
chmod 700 "$0/run"
mount --bind "$1" "$0/volume"
if [ -n "$3" ]; then mount --bind "$3" /proc/sys/kernel/random/boot_id; fi
hostname "$2" || echo "$2" > /proc/sys/kernel/hostname
shift 3
while [ "$1" != -- ]; do
  mkdir -p "$0\${1#/tmp}"
  mount --rbind "$1" "$0\${1#/tmp}"
  shift
done
shift
mount --rbind "$0" /tmp
cd /tmp/home
exec "$@"`;

/** Returns the folders of the program that lie below `/tmp`: where that is another one, they are not there by themselves. */
export function programBelowTmp(): string[] {
  const folders = [fileURLToPath(new URL("../..", import.meta.url)), dirname(process.execPath)];
  return folders.filter((folder) => folder.startsWith("/tmp/"));
}

interface Container {
  /** The folder that it shares. */
  readonly volume: string;
  readonly hostname?: string;
  /** The run of the kernel that it seems to have, if not ours. */
  readonly bootId?: string;
  /** Its XDG_RUNTIME_DIR: its own, none, or one that is not there. */
  readonly runtime?: "own" | "none" | "missing";
}

/** Returns how a command is started in a container, which uses a folder of its own. */
function commandFor({ volume, hostname = "container", bootId }: Container, folder: string): string[] {
  const inside = join(folder, "tmp");
  mkdirSync(inside);
  const faked = bootId === undefined ? "" : join(folder, "boot_id");
  if (bootId !== undefined) writeFileSync(faked, `${bootId}\n`);
  // Only root has namespaces without becoming root in one of users.
  const users = process.getuid?.() === 0 ? [] : ["-r"];
  const enter = ["sh", "-c", ENTER, inside, volume, hostname, faked, ...programBelowTmp(), "--"];
  return ["unshare", ...users, ...NAMESPACES, ...enter];
}

export const CONTAINERS = need(
  "namespaces with mounts of their own",
  "run as root on Linux, or where users may have namespaces",
  tryOne,
);

function tryOne(): boolean {
  if (process.platform !== "linux") return false;
  const folder = mkdtempSync(join(tmpdir(), "pi-session-server-"));
  const [command, ...args] = commandFor({ volume: folder, bootId: "another" }, folder);
  try {
    execFileSync(command, [...args, process.execPath, "-e", `require("fs").readFileSync(${JSON.stringify(PROGRAM)})`], {
      stdio: "ignore",
    });
    return true;
  } catch {
    return false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns the path of a file of the volume, as containers see it. */
export function inVolume(name: string): string {
  return join(VOLUME, name);
}

/** Starts the built program in a container of its own. Its death is that of the container. */
export function spawnContained(
  args: readonly string[],
  container: Container,
  framing: Framing = "lines",
): SpawnedServer {
  const { runtime = "own" } = container;
  const words = [...commandFor(container, temporaryFolder()), process.execPath, PROGRAM, ...args];
  const own = runtime === "own" ? "/tmp/run" : "/tmp/nothing/there";
  return spawnCommand(words, framing, temporaryPlace(), {
    ...{ PATH: process.env.PATH, XDG_CACHE_HOME: KEPT_CODE, HOME: "/tmp/home" },
    ...{ PI_SESSION_SERVER_STATE_DIR: "/tmp/state", ...(runtime === "none" ? {} : { XDG_RUNTIME_DIR: own }) },
  });
}

/** Servers that each run in a container of their own; some have a folder of the user and some have not. */
export function containers(random: Random): Where {
  return {
    start(args, framing, { home: volume }) {
      const runtime = random.pick(["own", "none", "missing"] as const);
      return spawnContained(args, { volume, hostname: `container-${random.hex(4)}`, runtime }, framing);
    },
    pathOf: (_place, name) => inVolume(name),
    // The process in the container, as this one sees it.
    pidOf: ({ process: { pid } }) => Number(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim()),
  };
}
