/** Servers that share a session where the folders for their sockets are on real disks without room: small tmpfs. */

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { PROGRAM } from "../support/build.ts";
import { type Place, programEnvironment, SpawnedServer, temporaryPlace } from "../support/server.ts";
import { said, texts } from "../support/shared-session.ts";

/** Mounts a tmpfs of one page at each folder and fills it. */
const FILL = `for folder in "$@"; do
  mount -t tmpfs -o size=4k,mode=700 none "$folder" || exit 1
  head -c 4096 /dev/zero > "$folder/full" || exit 1
done
echo ready
exec cat`;

/** Whether a process may mount something that no other sees. */
function mayMount(): boolean {
  try {
    execFileSync("unshare", ["-m", "sh", "-c", "mount -t tmpfs none /tmp && nsenter --version"], { stdio: "ignore" });
    return true;
  } catch {
    console.info("nothing can be mounted in a namespace of its own here");
    return false;
  }
}

describe.skipIf(!mayMount())("a session whose folder for sockets is full", () => {
  /** Servers in a namespace in which some folders are full. */
  async function apart(...full: string[]) {
    const usual = temporaryPlace();
    const place: Place = { ...usual, variables: { ...usual.variables, XDG_RUNTIME_DIR: join(usual.home, "runtime") } };
    const at: Record<string, string> = {
      beside: join(place.home, ".pi-session-server"),
      runtime: join(place.home, "runtime/pi-session-server"),
      temporary: "/tmp",
    };
    for (const folder of [at.beside, at.runtime]) mkdirSync(folder, { recursive: true, mode: 0o700 });
    const room = spawn("unshare", ["-m", "sh", "-c", FILL, "sh", ...full.map((name) => at[name])], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    onTestFinished(() => void room.kill("SIGKILL"));
    await new Promise((resolve) => room.stdout.once("data", resolve));
    const inRoom = ["-t", String(room.pid), "-m", `--wd=${place.cwd}`, "--"];
    const start = (): SpawnedServer => {
      const session = ["--session", join(place.home, "shared.jsonl"), "--events", "none"];
      const child = spawn("nsenter", [...inRoom, process.execPath, PROGRAM, ...session], {
        env: programEnvironment(place),
        stdio: ["pipe", "pipe", "pipe"],
      });
      onTestFinished(() => void child.kill("SIGKILL"));
      return new SpawnedServer(child, "lines", place);
    };
    const there = (folder: string): string[] => readdirSync(`/proc/${room.pid}/root${at[folder]}`).sort();
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

  // The places of tests may be in the folder that is filled.
  test.skipIf(tmpdir().startsWith("/tmp"))(
    "is held by one and read by the others where no room is anywhere",
    async () => {
      const { start, there } = await apart("beside", "runtime", "temporary");
      const holder = start();
      await holder.result("append", said("one"));
      const other = start();
      expect((await other.failure("append", said("no"))).data).toMatchObject({
        name: "session_locked",
        holder: { pid: holder.process.pid },
      });
      await holder.result("append", said("two"));
      // What is refused looks at the session, too.
      await other.failure("append", said("no"));
      expect(await texts(other)).toEqual(["one", "two"]);
      for (const folder of ["beside", "runtime"]) expect(there(folder)).toEqual(["full"]);
      expect(there("temporary").filter((name) => name.endsWith(".sock") || name.endsWith(".json"))).toEqual([]);
      await holder.finish();
      expect((await other.result("append", said("three"))).entryIds).toHaveLength(1);
    },
  );
});
