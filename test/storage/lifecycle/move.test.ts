/** Moving a session with links among what belongs to it: none is lost, wherever the move ends. */

import { mkdirSync, readdirSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, test } from "vitest";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { moveWith, type PathChange } from "../../../src/storage/lifecycle/move.ts";
import { temporaryFolder } from "../../support/server.ts";

/** A session with a folder that has a file and a link in it, and a disk on which some paths cannot be renamed. */
function session(code: string, refused: RegExp) {
  const [from, to] = [temporaryFolder(), temporaryFolder()];
  const file = join(from, "s.jsonl");
  const media = `${file}.blobs`;
  writeFileSync(file, "session");
  mkdirSync(media);
  writeFileSync(join(media, "one"), "one");
  symlinkSync("elsewhere", join(media, "link"));
  const disk: Disk = {
    ...realDisk,
    link(path, name) {
      if (refused.test(path)) throw Object.assign(new Error(code), { code });
      realDisk.link(path, name);
    },
    rename(path, name) {
      if (refused.test(path)) throw Object.assign(new Error(code), { code });
      realDisk.rename(path, name);
    },
    openRead(path, plain) {
      if (refused.test(path)) throw Object.assign(new Error(code), { code });
      return realDisk.openRead(path, plain);
    },
  };
  const changes = [file, media].map((path): PathChange => [path, join(to, basename(path))]);
  const seen = (folder: string): string[] => readdirSync(folder, { recursive: true }).map(String).sort();
  return { from, to, disk, changes, seen };
}

test("a link that cannot be renamed to another file system stays where it is", async () => {
  const { from, to, disk, changes, seen } = session("EXDEV", /link$/);
  await moveWith(disk, changes);
  expect(seen(to)).toEqual(["s.jsonl", "s.jsonl.blobs", "s.jsonl.blobs/one"]);
  expect(seen(from)).toEqual(["s.jsonl.blobs", "s.jsonl.blobs/link"]);
});

test("a link whose new name is taken stays where it is, and nothing is overwritten", async () => {
  const { from, to, changes, seen } = session("", /^$/);
  mkdirSync(join(to, "s.jsonl.blobs"));
  symlinkSync("other", join(to, "s.jsonl.blobs", "link"));
  await moveWith(realDisk, changes);
  expect(readlinkSync(join(to, "s.jsonl.blobs", "link"))).toBe("other");
  expect(seen(from)).toEqual(["s.jsonl.blobs", "s.jsonl.blobs/link"]);
});

test("a link goes back when the session cannot be moved", async () => {
  const { from, to, disk, changes, seen } = session("EIO", /s\.jsonl$/);
  await expect(moveWith(disk, changes)).rejects.toThrow("EIO");
  expect(seen(from)).toEqual(["s.jsonl", "s.jsonl.blobs", "s.jsonl.blobs/link", "s.jsonl.blobs/one"]);
  expect(seen(to)).toEqual([]);
});

test("what cannot go back is at the new place, with what belongs to it, and the failure says so", async () => {
  const { from, to, disk, changes, seen } = session("", /^$/);
  let isMoved = false;
  disk.remove = (path) => {
    realDisk.remove(path);
    isMoved ||= path === changes[0][0];
  };
  disk.syncFolder = async (path) => {
    if (isMoved) throw Object.assign(new Error("refused"), { code: "EIO" });
    return realDisk.syncFolder(path);
  };
  disk.link = (path, name) => {
    if (isMoved) throw Object.assign(new Error("refused"), { code: "EIO" });
    realDisk.link(path, name);
  };
  disk.create = (path) => {
    if (isMoved) throw Object.assign(new Error("refused"), { code: "EIO" });
    return realDisk.create(path);
  };
  await expect(moveWith(disk, changes)).rejects.toMatchObject({
    message: expect.stringContaining(changes[0][1]),
    retryable: false,
  });
  expect([seen(from), seen(to)]).toEqual([[], ["s.jsonl", "s.jsonl.blobs", "s.jsonl.blobs/link", "s.jsonl.blobs/one"]]);
});
