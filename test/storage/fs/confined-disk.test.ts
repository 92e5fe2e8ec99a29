/** The disk that reaches nothing outside of its folders: usable operations, refused ones, and their failures. */

import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import { type ConfinedDisk, confineDisk } from "../../../src/storage/fs/confined-disk.ts";
import { containDisk } from "../../../src/storage/fs/contained-disk.ts";
import { type Disk, readWhole, realDisk, writeAll } from "../../../src/storage/fs/disk.ts";
import { readDiskClock } from "../../../src/storage/fs/stamps.ts";
import { MKFIFO, needs } from "../../support/needs.ts";
import { acrossTiers } from "../../support/tiers.ts";

let base: string;
let root: string;
let out: string;
let own: string;
const made: ConfinedDisk[] = [];

beforeEach(() => {
  base = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), "pi-session-")));
  [root, out, own] = ["root", "out", "own"].map((name) => join(base, name));
  for (const folder of [join(root, "deep"), out, own]) fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(join(root, "deep", "file"), "inside");
  fs.writeFileSync(join(out, "file"), "outside");
  fs.writeFileSync(join(own, "file"), "ours");
});
afterEach(() => {
  for (const disk of made.splice(0)) disk.release();
  fs.rmSync(base, { recursive: true });
});

function confine(given: string[] = [root], disk: Disk = realDisk): ConfinedDisk {
  const confined = confineDisk(disk, { given, own: [own] });
  made.push(confined);
  return confined;
}

const text = (disk: Disk, path: string): string => decodeText(readWhole(disk, path));
const outside = expect.objectContaining({ name: "path_outside_root" });

function openFolders(): string[] {
  return fs.readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const path = fs.readlinkSync(`/proc/self/fd/${fd}`);
      return path.startsWith(base) ? [path] : [];
    } catch {
      return [];
    }
  });
}

// Elsewhere the path is looked at and then used, and that is what these test.
const { folders: _, ...withoutFolders } = realDisk;

describe.each<[string, Disk]>([
  ["walked", realDisk],
  ["looked at", withoutFolders],
])("paths that are %s", (_, real) => {
  acrossTiers(test, [21, 2100])("inside are as they are without (a path of %i names is too long)", (names) => {
    const disk = confine([root], real);
    const path = join(root, "deep", "file");
    expect([text(disk, path), text(disk, join(root, "deep", "..", "deep", "file"))]).toEqual(["inside", "inside"]);
    expect(disk.names(root)).toEqual(["deep"]);
    expect(disk.list?.(root)).toEqual([{ name: "deep", kind: "folder" }]);
    expect(disk.info(path)).toEqual(real.info(path));
    expect(disk.makeFolder(join(root, "a/b"))).toEqual([join(root, "a"), join(root, "a/b")]);
    expect(disk.makeFolder(join(root, "a/b"))).toEqual([]);
    const fd = disk.create(join(root, "a/b/new"));
    writeAll(disk, fd, toBytes("new"));
    disk.copyMode(path, fd);
    disk.close(fd);
    disk.link(join(root, "a/b/new"), join(root, "second"));
    disk.rename(join(root, "a/b/new"), join(root, "deep/new"));
    disk.remove(join(root, "second"));
    disk.removeFolder(join(root, "a/b"));
    expect(text(disk, join(root, "deep/new"))).toBe("new");
    expect(fs.statSync(join(root, "deep/new")).mode).toBe(fs.statSync(path).mode);
    expect(() => disk.create(path)).toThrow("EEXIST");
    expect(() => disk.openRead(`${path}/`)).toThrow("ENOTDIR");
    expect(() => disk.openRead(join(root, "missing", "file"))).toThrow("ENOENT");
    expect(() => disk.openRead(join(root, "x".repeat(300)))).toThrow("ENAMETOOLONG");
    expect(() => disk.openRead(join(root, `${"x".repeat(4200 / names - 1)}/`.repeat(names)))).toThrow("ENAMETOOLONG");
    expect(() => disk.openRead(join(root, "a\0b"))).toThrow(expect.objectContaining({ code: "ERR_INVALID_ARG_VALUE" }));
    expect(fs.readdirSync(root).sort()).toEqual(["a", "deep"]);
  });

  test("are made by whoever made them first", () => {
    const given = join(root, "new/given");
    const late = (make: (path: string) => unknown) => (path: string) => {
      make(path);
      throw Object.assign(new Error("another was faster"), { code: "EEXIST" });
    };
    const { folders } = real;
    const disk: Disk = folders ? { ...real, folders: { ...folders, make: late(folders.make) } } : real;
    const made = confine([given], disk).makeFolder(join(given, "below"));
    expect(made).toEqual(folders ? [] : [join(root, "new"), given, join(given, "below")]);
    expect(fs.existsSync(join(given, "below"))).toBe(true);
  });

  test("have the clock that stamps them", () => {
    const stamps = { ...real, clock: () => 7 };
    expect([confine([root], stamps), containDisk(stamps)].map(readDiskClock)).toEqual([7, 7]);
  });

  test("outside are refused by every operation, however they are spelt", async () => {
    const disk = confine([root], real);
    fs.symlinkSync(out, join(root, "folder"));
    fs.symlinkSync("../out/file", join(root, "link"));
    fs.symlinkSync(join(out, "missing"), join(root, "dangling"));
    fs.symlinkSync("../../out", join(root, "deep", "up"));
    const inside = join(root, "deep", "file");
    for (const path of [join(out, "file"), join(root, "folder/file"), `${root}/../out/file`, `${root}/deep/up/file`]) {
      for (const refused of [
        () => disk.openRead(path),
        () => disk.openAppend(path),
        () => disk.create(`${path}2`),
        () => disk.info(path),
        () => disk.link(inside, `${path}2`),
        () => disk.link(path, join(root, "stolen")),
        () => disk.rename(inside, path),
        () => disk.rename(path, join(root, "stolen")),
        () => disk.remove(path),
        () => disk.makeFolder(`${path}2`),
        () => disk.realPath(path),
        () => disk.copyMode(path, 0),
        () => disk.requireInside(path),
      ])
        expect(refused, `${path} ${refused}`).toThrow(outside);
    }
    for (const path of [out, join(root, "folder"), `${root}/..`, join(root, "deep/up")]) {
      for (const refused of [
        () => disk.names(path),
        () => disk.list?.(path),
        () => disk.watch?.(path, () => {}),
        () => disk.syncFolderNow(path),
      ])
        expect(refused, `${path} ${refused}`).toThrow(outside);
      await expect(disk.syncFolder(path)).rejects.toEqual(outside);
    }
    for (const path of [join(root, "link"), join(root, "dangling")])
      if (real === realDisk || fs.existsSync(path)) expect(() => disk.openAppend(path), path).toThrow(outside);
    // The program's own folder is reachable, but must not be named by host and files.
    expect(text(disk, join(own, "file"))).toBe("ours");
    expect(() => disk.requireInside(join(own, "file"))).toThrow(outside);
    fs.symlinkSync(own, join(root, "own"));
    expect(() => disk.openRead(join(root, "own/file"))).toThrow(outside);
    expect([fs.readFileSync(join(out, "file"), "utf8"), fs.readdirSync(out)]).toEqual(["outside", ["file"]]);
  });

  test("that are links to the inside are followed, in circles too", () => {
    fs.symlinkSync("deep", join(root, "relative"));
    fs.symlinkSync(join(root, "relative"), join(root, "absolute"));
    fs.symlinkSync("absolute/file", join(root, "file"));
    fs.symlinkSync("round", join(root, "about"));
    fs.symlinkSync("about", join(root, "round"));
    const disk = confine([root], real);
    for (const path of ["relative/file", "absolute/file", "file", "absolute/../deep/file"])
      expect([path, text(disk, join(root, path))]).toEqual([path, "inside"]);
    expect(disk.realPath(join(root, "file"))).toBe(join(root, "deep/file"));
    expect(() => disk.requireInside(join(root, "file"))).not.toThrow();
    expect(() => disk.info(join(root, "about"))).toThrow("ELOOP");
    disk.remove(join(root, "file"));
    expect(fs.readdirSync(root)).not.toContain("file");
    expect(fs.existsSync(join(root, "deep/file"))).toBe(true);
  });

  test("begin in a folder that is a link, lies below one, or is not there yet", () => {
    fs.symlinkSync(root, join(base, "alias"));
    const missing = join(base, "alias", "not", "yet");
    const disk = confine([join(base, "alias", "deep"), missing], real);
    expect(text(disk, join(base, "alias/deep/file"))).toBe("inside");
    expect(text(disk, join(root, "deep/file"))).toBe("inside");
    expect(() => disk.names(missing)).toThrow("ENOENT");
    expect(() => disk.requireInside(join(missing, "new"))).not.toThrow();
    expect(disk.makeFolder(join(missing, "below"))).toEqual(
      ["", "..", "below"].map((name) => join(missing, name)).sort((a, b) => a.length - b.length),
    );
    expect(disk.names(missing)).toEqual(["below"]);
    expect(() => disk.names(root)).toThrow(outside);
    for (const path of [missing, join(base, "alias/deep")]) expect(() => disk.requireInside(path)).toThrow(outside);
  });

  test("that are FIFOs or devices open as they do elsewhere, and never wait", needs(MKFIFO), () => {
    execFileSync("mkfifo", [join(root, "fifo")]);
    const disk = confine([root], real);
    const fd = disk.openRead(join(root, "fifo"));
    expect(disk.infoOf(fd).kind).toBe("other");
    disk.close(fd);
  });
});

test("says of no folder that it was made here when another process was faster", () => {
  // The disk cannot say whether the folder is there; making it then shows that it is.
  const info: Disk["info"] = (path, plain) => {
    if (path.endsWith("/deep")) throw Object.assign(new Error("EIO"), { code: "EIO" });
    return realDisk.info(path, plain);
  };
  const disk = confine([root], { ...realDisk, info });
  expect(disk.makeFolder(join(root, "deep", "new"))).toEqual([join(root, "deep", "new")]);
  expect(text(disk, join(root, "deep", "file"))).toBe("inside");
});

describe("folders that are held open", () => {
  test("are few, and none after the end", () => {
    const disk = confine();
    for (let n = 0; n < 90; n++) {
      disk.makeFolder(join(root, `f${n}/g`));
      disk.close(disk.create(join(root, `f${n}/g/file`)));
    }
    const held = openFolders().length;
    expect(held).toBeGreaterThan(10);
    expect(held).toBeLessThanOrEqual(64);
    disk.release();
    expect(openFolders()).toEqual([]);
  });

  test("count only while they have their path", () => {
    const disk = confine();
    expect(text(disk, join(root, "deep/file"))).toBe("inside");
    fs.renameSync(join(root, "deep"), join(out, "moved"));
    expect(() => disk.openRead(join(root, "deep/file"))).toThrow("ENOENT");
    fs.mkdirSync(join(root, "deep"));
    disk.close(disk.create(join(root, "deep/other")));
    expect([fs.readdirSync(join(root, "deep")), fs.readdirSync(join(out, "moved"))]).toEqual([["other"], ["file"]]);
    fs.rmSync(root, { recursive: true });
    fs.mkdirSync(join(root, "deep"), { recursive: true });
    expect(disk.names(join(root, "deep"))).toEqual([]);
    fs.rmSync(root, { recursive: true });
    fs.symlinkSync(out, root);
    expect(() => disk.names(root)).toThrow();
  });

  test("are watched for what it says", async () => {
    const disk = confine();
    const paths = new Set<string | null>();
    const stop = disk.watch?.(join(root, "deep"), (name) => paths.add(name));
    if (!stop) return expect(realDisk.watch?.(join(root, "deep"), () => {})).toBeUndefined();
    fs.writeFileSync(join(root, "deep", "new"), "");
    while (!paths.has("new")) await new Promise((resolve) => setImmediate(resolve));
    stop();
  });

  test("are made private whatever the umask", () => {
    const before = process.umask(0o277);
    try {
      confine().makeFolder(join(root, "a/b"));
    } finally {
      process.umask(before);
    }
    expect(["a", "a/b"].map((name) => fs.statSync(join(root, name)).mode & 0o777)).toEqual([0o700, 0o700]);
  });
});
