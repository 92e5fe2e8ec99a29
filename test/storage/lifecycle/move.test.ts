/** Moving a session with links among what belongs to it: none is lost, wherever the move ends. */

import { existsSync, mkdirSync, readdirSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, test } from "vitest";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { movePath, moveTogether, type PathChange, requireFreePaths } from "../../../src/storage/lifecycle/move.ts";
import { temporaryFolder } from "../../support/server.ts";

/** A session with a folder that has a file and a link in it, and a disk that refuses what `isRefused` says. */
function session(code: string, isRefused: (path: string) => boolean) {
  const [from, to] = [temporaryFolder(), temporaryFolder()];
  const file = join(from, "s.jsonl");
  const media = `${file}.blobs`;
  writeFileSync(file, "session");
  mkdirSync(media);
  writeFileSync(join(media, "one"), "one");
  symlinkSync("elsewhere", join(media, "link"));
  const disk: Disk = { ...realDisk };
  for (const what of ["link", "rename", "openRead", "create", "syncFolder"] as const) {
    const act = realDisk[what] as (...given: unknown[]) => never;
    Object.assign(disk, {
      [what]: (path: string, ...more: unknown[]): never => {
        if (isRefused(path)) throw Object.assign(new Error(code), { code });
        return act(path, ...more);
      },
    });
  }
  const changes = [file, media].map((path): PathChange => [path, join(to, basename(path))]);
  const seen = (folder: string): string[] => readdirSync(folder, { recursive: true }).map(String).sort();
  return { from, to, disk, changes, seen };
}

const ALL = ["s.jsonl", "s.jsonl.blobs", "s.jsonl.blobs/link", "s.jsonl.blobs/one"];
const KEPT = ["s.jsonl.blobs", "s.jsonl.blobs/link"];

test("a link that cannot be renamed to another file system stays where it is", async () => {
  const { from, to, disk, changes, seen } = session("EXDEV", (path) => path.endsWith("link"));
  await moveTogether(disk, changes);
  expect([seen(to), seen(from)]).toEqual([ALL.filter((name) => !name.endsWith("link")), KEPT]);
});

test("a link whose new name is taken stays where it is, and nothing is overwritten", async () => {
  const { from, to, changes, seen } = session("", () => false);
  mkdirSync(join(to, "s.jsonl.blobs"));
  symlinkSync("other", join(to, "s.jsonl.blobs", "link"));
  await moveTogether(realDisk, changes);
  expect(readlinkSync(join(to, "s.jsonl.blobs", "link"))).toBe("other");
  expect(seen(from)).toEqual(KEPT);
});

test("a link goes back when the session cannot be moved", async () => {
  const { from, to, disk, changes, seen } = session("EIO", (path) => path.endsWith("s.jsonl"));
  await expect(moveTogether(disk, changes)).rejects.toThrow("EIO");
  expect([seen(from), seen(to)]).toEqual([ALL, []]);
});

test("what cannot go back is at the new place, with what belongs to it, and the failure says so", async () => {
  let isMoved = false;
  const { from, to, disk, changes, seen } = session("EIO", () => isMoved);
  disk.remove = (path) => {
    realDisk.remove(path);
    isMoved ||= path === changes[0][0];
  };
  const failure = { message: expect.stringContaining(changes[0][1]), retryable: false };
  await expect(moveTogether(disk, changes)).rejects.toMatchObject(failure);
  expect([seen(from), seen(to)]).toEqual([[], ALL]);
});

test("a link that leads nowhere keeps its path, whatever is moved there", async () => {
  const folder = temporaryFolder();
  const [taken, nowhere, elsewhere, free] = ["taken", "nowhere", "elsewhere", "free"].map((name) => join(folder, name));
  symlinkSync(nowhere, taken);
  symlinkSync(elsewhere, join(folder, "link"));
  writeFileSync(join(folder, "file"), "content");
  mkdirSync(join(folder, "folder"));
  for (const name of ["link", "file", "folder"]) {
    const from = join(folder, name);
    await expect(movePath(realDisk, from, taken), name).rejects.toMatchObject({ code: expect.stringMatching(/^E/) });
    await expect(requireFreePaths(realDisk, [[from, taken]]), name).rejects.toMatchObject({ name: "already_exists" });
    expect([existsSync(from) || name === "link", readlinkSync(taken)]).toEqual([true, nowhere]);
  }
  expect(readlinkSync(join(folder, "link"))).toBe(elsewhere);
  await movePath(realDisk, join(folder, "link"), free);
  expect(readlinkSync(free)).toBe(elsewhere);
});
