/**
 * A disk that is really full: a small file system in memory, where the machine lets us mount one.
 *
 * @module-tag system
 */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { idsIn } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { need, needs } from "../support/needs.ts";
import { partsOf } from "../support/proof.ts";
import { type SpawnedServer, spawnServer, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

/** Returns whether a file system can be mounted here. */
function mayMount(): boolean {
  const place = mkdtempSync(join(tmpdir(), "pi-session-server-"));
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=64k", "none", place], { stdio: "pipe" });
    execFileSync("umount", [place], { stdio: "pipe" });
    return true;
  } catch {
    return false;
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

const MOUNTS = need("file systems that it mounts", "run as root on Linux", mayMount);

/** The file that grows. */
const grows = { jsonl: (session: string) => session, v2: (session: string) => partsOf(session).at(-1) as string };

/** Room for what a container has next to its entries, each file of it in pages. */
const SIZES = { jsonl: "96k", v2: "256k" };

describe("a small disk", needs(MOUNTS), () => {
  acrossTiers(describe, ["jsonl", "v2"] as const)("--store %s", (store) => {
    test("what does not fit is refused whole, and fits when there is room again", () => fillUp(store));
  });
});

async function fillUp(store: "jsonl" | "v2"): Promise<void> {
  const place = temporaryPlace();
  const folder = join(place.home, "small");
  mkdirSync(folder);
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${SIZES[store]}`, "none", folder]);
  onTestFinished(() => {
    execFileSync("umount", ["-l", folder]);
  });
  const ballast = join(folder, "ballast");
  writeFileSync(ballast, Buffer.alloc(16_384));
  const server = spawnServer(["--session-dir", folder, "--store", store, "--events", "none"], "lines", place);
  const { sessionFile } = await server.result("get_state");
  const acknowledged: string[] = [];
  await fill(server, acknowledged);
  expect(acknowledged.length).toBeGreaterThan(5);
  const full = readFileSync(grows[store](sessionFile), "latin1");
  expect(full.endsWith("\n")).toBe(true);
  expect(await idsIn(server)).toEqual(acknowledged);
  // A fork has no room either, and leaves nothing behind.
  expect((await server.failure("clone")).data.name).toBe("storage_full");
  expect((await server.result("get_state")).sessionFile).toBe(sessionFile);
  rmSync(ballast);
  await fill(server, acknowledged);
  server.process.kill("SIGKILL");
  await server.exit;
  const next = spawnServer(["--session", sessionFile, "--events", "none"], "lines", place);
  expect(await idsIn(next)).toEqual(acknowledged);
  expect((await next.result("verify_session")).ok).toBe(true);
}

/** Appends until the disk is full; each refusal is a failure that says so. */
async function fill(server: SpawnedServer, acknowledged: string[]): Promise<void> {
  let size = 5000;
  while (size > 100) {
    const { result, error } = await server.request("append", { entries: [user("x".repeat(size))] });
    if (result) acknowledged.push(...result.entryIds);
    else {
      expect(error).toMatchObject({ code: -32803, data: { name: "storage_full", retryable: true } });
      size = Math.floor(size / 2);
    }
  }
}
