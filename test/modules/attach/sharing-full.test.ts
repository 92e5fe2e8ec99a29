/**
 * Servers that share a session where the folders for their sockets are on real disks without room: small tmpfs.
 *
 * @module-tag system
 */

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { PROGRAM } from "../../support/build.ts";
import { programBelowTmp } from "../../support/containers.ts";
import { need, needs } from "../../support/needs.ts";
import { type Place, type SpawnedServer, spawnCommand, temporaryPlace } from "../../support/server.ts";
import { said, texts } from "../../support/shared-session.ts";

/**
 * Mounts a tmpfs of one page at each folder and fills it. What comes before "--" has its place there, too, where the
 * folder is \`/tmp\`: it lies below. So each tmpfs is filled elsewhere, and moved to its place.
 */
const FILL = `set -e
new=$0
below() {
  while [ "$1" != -- ]; do
    mkdir -p "$new\${1#/tmp}"
    mount --rbind "$1" "$new\${1#/tmp}"
    shift
  done
}
fill() {
  mount -t tmpfs -o size=4k,mode=700 none "$new"
  head -c 4096 /dev/zero > "$new/full"
}
for folder; do
  if [ "$passed" ] && [ "$folder" != /tmp ]; then fill; mount --move "$new" "$folder"; fi
  if [ "$folder" = -- ]; then passed=yes; fi
done
for last; do :; done
if [ "$last" = /tmp ]; then fill; below "$@"; mount --move "$new" /tmp; fi
echo ready
exec cat`;

/** Returns whether a process may mount something that no other sees. */
function mayMount(): boolean {
  try {
    execFileSync("unshare", ["-m", "sh", "-c", "mount -t tmpfs none /tmp && nsenter --version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

const OWN_MOUNTS = need("mounts of its own", "run as root on Linux", mayMount);

describe("a session whose folder for sockets is full", needs(OWN_MOUNTS), () => {
  /** Servers in a namespace with some full folders. */
  async function apart(...full: string[]) {
    const usual = temporaryPlace();
    const place: Place = { ...usual, variables: { ...usual.variables, XDG_RUNTIME_DIR: join(usual.home, "runtime") } };
    const at: Record<string, string> = {
      beside: join(place.home, ".pi-session-server"),
      runtime: join(place.home, "runtime/pi-session-server"),
      temporary: "/tmp",
    };
    for (const folder of [at.beside, at.runtime]) mkdirSync(folder, { recursive: true, mode: 0o700 });
    const made = join(place.home, "made");
    mkdirSync(made);
    const below = [...programBelowTmp(), place.home].filter((path) => path.startsWith("/tmp/"));
    const folders = full.map((name) => at[name]);
    const space = spawn("unshare", ["-m", "sh", "-c", FILL, made, ...below, "--", ...folders], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    onTestFinished(() => void space.kill("SIGKILL"));
    await new Promise((resolve) => space.stdout.once("data", resolve));
    const inSpace = ["-t", String(space.pid), "-m", `--wd=${place.cwd}`, "--"];
    const start = (): SpawnedServer => {
      const session = ["--session", join(place.home, "shared.jsonl"), "--events", "none"];
      return spawnCommand(["nsenter", ...inSpace, process.execPath, PROGRAM, ...session], "lines", place);
    };
    const there = (folder: string): string[] => readdirSync(`/proc/${space.pid}/root${at[folder]}`).sort();
    return { start, there };
  }

  test("is announced in the user's folder, joined, and taken over there", async () => {
    const { start, there } = await apart("beside");
    const holder = start();
    await holder.result("append", said("one"));
    const other = start();
    expect((await other.result("append", said("two"))).entryIds).toHaveLength(1);
    expect((await other.result("get_state")).holder.pid).toBe(holder.process.pid);
    expect([there("beside"), there("runtime").length]).toEqual([["full"], 2]);
    holder.process.kill("SIGKILL");
    await other.result("append", said("three"));
    expect(await texts(other)).toEqual(["one", "two", "three"]);
    await other.finish();
    expect(there("beside")).toEqual(["full"]);
  });

  test("is held by one and read by the others where no room is anywhere", async () => {
    const { start, there } = await apart("beside", "runtime", "temporary");
    const holder = start();
    await holder.result("append", said("one"));
    const other = start();
    expect((await other.failure("append", said("no"))).data).toMatchObject({
      name: "session_locked",
      holder: { pid: holder.process.pid },
    });
    await holder.result("append", said("two"));
    // A refused request looks at the session, too.
    await other.failure("append", said("no"));
    expect(await texts(other)).toEqual(["one", "two"]);
    for (const folder of ["beside", "runtime"]) expect(there(folder)).toEqual(["full"]);
    expect(there("temporary").filter((name) => name.endsWith(".sock") || name.endsWith(".json"))).toEqual([]);
    await holder.finish();
    expect((await other.result("append", said("three"))).entryIds).toHaveLength(1);
  });
});
