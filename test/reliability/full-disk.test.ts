/**
 * A disk that is really full: a small file system in memory, where the machine lets us mount one.
 *
 * @module-tag system
 */

import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { PROGRAM } from "../support/build.ts";
import { idsIn, sessionFile } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { chain } from "../support/lines.ts";
import { LINUX, need, needs } from "../support/needs.ts";
import { partsOf } from "../support/proof.ts";
import { type Place, type SpawnedServer, spawnServer, temporaryPlace } from "../support/server.ts";
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

  test("takes a part of what is printed: that is said, and the status tells", () => {
    const place = temporaryPlace();
    sessionFile(place, chain(100));
    const small = mountSmall(place, "64k");
    // The page is longer than one write, of which a part fits; the replies are shorter than one.
    for (const words of ["export session.jsonl --format html >", "--session session.jsonl --events none <in >"]) {
      writeFileSync(join(place.cwd, "in"), '{"jsonrpc":"2.0","id":1,"method":"get_tree"}\n'.repeat(20));
      expect(shell(place, `${words}${small}/out`), words).toEqual({ stderr: CUT_OFF, status: 1 });
      rmSync(join(small, "out"));
    }
  });
});

/** What is said where the output does not fit. */
const CUT_OFF = expect.stringMatching(/^pi-session-server: The output is cut off: [^\n]*ENOSPC[^\n]*\n$/);

/** Runs the program with the words of a shell. Returns its messages to the person, and its status. */
function shell({ cwd, variables }: Place, words: string) {
  const { PATH } = process.env;
  const run = spawnSync("sh", ["-c", `"${process.execPath}" "${PROGRAM}" ${words}`], {
    ...{ cwd, encoding: "utf8", env: { ...variables, PATH, NODE_DISABLE_COMPILE_CACHE: "1" } },
  });
  return { stderr: run.stderr, status: run.status };
}

describe("a device that is full", needs(LINUX), () => {
  test.each(["tree session.jsonl", "tree session.jsonl --json", "help", "--help", "--version", "show nowhere --json"])(
    "is said by %s",
    (words) => {
      const place = temporaryPlace();
      sessionFile(place, chain(3));
      expect(shell(place, `${words} >/dev/full`)).toEqual({ stderr: CUT_OFF, status: 1 });
    },
  );

  test("is no reader that has gone, of which nothing is said", () => {
    const place = temporaryPlace();
    sessionFile(place, chain(2000));
    expect(shell(place, "tree session.jsonl | head -n 1 >/dev/null")).toEqual({ stderr: "", status: 0 });
  });
});

/** Mounts a small file system for a test. */
function mountSmall({ home }: Place, size: string): string {
  const folder = join(home, "small");
  mkdirSync(folder);
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "none", folder]);
  onTestFinished(() => {
    execFileSync("umount", ["-l", folder]);
  });
  return folder;
}

async function fillUp(store: "jsonl" | "v2"): Promise<void> {
  const place = temporaryPlace();
  const folder = mountSmall(place, SIZES[store]);
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
