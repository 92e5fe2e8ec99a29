/** The disk: private files whatever the umask, whole files under their names, and errors that say what to do. */

import { spawnSync } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { toStorageFailure } from "../../../src/core/errno.ts";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import {
  type Disk,
  exists,
  hasReader,
  makeTemporaryName,
  publishNew,
  readAll,
  readWhole,
  realDisk,
  renameExclusive,
  writeAll,
} from "../../../src/storage/fs/disk.ts";
import { putInPlace } from "../../../src/storage/fs/files.ts";
import { makeStagingName } from "../../../src/storage/fs/staging.ts";
import { FaultDisk } from "../../support/disk.ts";
import { LINUX, needs } from "../../support/needs.ts";
import { SYSTEM } from "../../support/tiers.ts";

let folder: string;
let umask: number;

beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "pi-session-"));
  umask = process.umask();
});
afterEach(() => {
  process.umask(umask);
  fs.rmSync(folder, { recursive: true });
});

const refused = (code: string) => () => {
  throw Object.assign(new Error(code), { code });
};

/** A disk without hard links, and with other operations of its own. */
const linkless = (disk: FaultDisk, code: string, more: object = {}): Disk =>
  Object.assign(Object.create(disk) as FaultDisk, { link: refused(code), ...more });

function write(disk: Disk, path: string, text: string): void {
  const fd = disk.create(path);
  writeAll(disk, fd, toBytes(text));
  disk.close(fd);
}

test("a file whose mode is refused is closed, and not left", () => {
  const builtin = process.getBuiltinModule("node:fs");
  const refusal = vi.spyOn(builtin, "fchmodSync").mockImplementation(refused("EPERM"));
  const close = vi.spyOn(builtin, "closeSync");
  syncBuiltinESMExports();
  try {
    expect(() => realDisk.create(join(folder, "file"))).toThrow("EPERM");
    expect([refusal, close].map(({ mock }) => mock.calls.length)).toEqual([1, 1]);
  } finally {
    vi.restoreAllMocks();
    syncBuiltinESMExports();
  }
  expect(fs.readdirSync(folder)).toEqual([]);
});

test("a temporary file that cannot be made is not removed", async () => {
  const disk = new FaultDisk();
  disk.set({ kind: "fail", at: 1, errno: "ENOSPC" });
  await expect(putInPlace(disk, "/file", toBytes("new"), { replace: true, sync: true })).rejects.toThrow("ENOSPC");
  expect(disk.operations).toEqual(["create"]);
});

test("a folder in use stays the same, whatever gets its name", needs(LINUX), () => {
  const [at, moved] = [join(folder, "at"), join(folder, "aside")];
  fs.mkdirSync(at);
  realDisk.inFolder?.(at, (path, disk) => {
    fs.renameSync(at, moved);
    fs.symlinkSync(folder, at);
    write(disk, `${path}/file`, "here");
    expect(Buffer.byteLength(path)).toBeLessThan(40);
  });
  expect(fs.readdirSync(moved)).toEqual(["file"]);
  const enter = (path: string) => () => realDisk.inFolder?.(path, (held) => realDisk.names(held).length);
  expect(enter(at)).toThrow("ENOTDIR");
  expect(enter(join(moved, "file"))).toThrow("ENOTDIR");
  expect(enter(`${at}/.`)()).toBe(2);
});

test("two processes of one pid, which pid namespaces have, never make the same name", async () => {
  const namesOf = (temporary: typeof makeTemporaryName, staging: typeof makeStagingName) =>
    Array.from({ length: 20 }, () => [temporary("/a/b"), staging("/a/c.v2")]).flat();
  const ours = namesOf(makeTemporaryName, makeStagingName);
  vi.resetModules();
  const disk = await import("../../../src/storage/fs/disk.ts");
  const tree = await import("../../../src/storage/fs/staging.ts");
  const all = [...ours, ...namesOf(disk.makeTemporaryName, tree.makeStagingName)];
  expect(new Set(all).size).toBe(80);
  for (const name of all) expect(basename(name)).toContain(`.${process.pid}-`);
});

describe("what is made", () => {
  test.each([0o000, 0o277, 0o777])("is private, under umask %o", (mask) => {
    process.umask(mask);
    expect(realDisk.makeFolder(join(folder, "a/b"))).toEqual([join(folder, "a"), join(folder, "a/b")]);
    realDisk.close(realDisk.create(join(folder, "a/b/file")));
    const modes = ["a", "a/b", "a/b/file"].map((name) => fs.statSync(join(folder, name)).mode & 0o777);
    expect(modes).toEqual([0o700, 0o700, 0o600]);
  });

  test("does not change what is there", () => {
    fs.chmodSync(folder, 0o755);
    expect(realDisk.makeFolder(folder)).toEqual([]);
    expect(fs.statSync(folder).mode & 0o777).toBe(0o755);
  });
});

describe("reading and writing", () => {
  test("goes on after short reads and writes", () => {
    const disk = new FaultDisk();
    const fd = disk.create("/file");
    const short: Disk = Object.assign(Object.create(disk) as FaultDisk, {
      write: (at: number, bytes: Uint8Array) => disk.write(at, bytes.subarray(0, 3)),
      read: (at: number, into: Uint8Array, offset: number, length: number, position: number) =>
        disk.read(at, into, offset, Math.min(length, 2), position),
    });
    writeAll(short, fd, toBytes("0123456789"));
    const into = new Uint8Array(10);
    readAll(short, fd, into, 0);
    expect(decodeText(into)).toBe("0123456789");
    expect(() => readAll(short, fd, new Uint8Array(11), 0)).toThrow();
    expect(() => writeAll({ ...short, write: () => 0 } as Disk, fd, toBytes("x"))).toThrow();
  });

  test("writes at the end, whoever wrote before", () => {
    write(realDisk, join(folder, "file"), "one");
    const [a, b] = [realDisk.openAppend(join(folder, "file")), realDisk.openAppend(join(folder, "file"))];
    writeAll(realDisk, a, toBytes(" two"));
    writeAll(realDisk, b, toBytes(" three"));
    writeAll(realDisk, a, toBytes(" four"));
    realDisk.close(a);
    realDisk.close(b);
    expect(decodeText(readWhole(realDisk, join(folder, "file")))).toBe("one two three four");
  });
});

describe("giving a file its name", () => {
  for (const [kind, disk, root] of [
    ["the disk", () => realDisk, () => folder],
    ["the disk in memory", () => new FaultDisk(), () => ""],
  ] as const)
    test(`is done whole, or not when the name is taken, on ${kind}`, () => {
      const on = disk();
      const path = `${root()}/file`;
      on.close(publishNew(on, path, (fd) => writeAll(on, fd, toBytes("whole"))));
      expect(decodeText(readWhole(on, path))).toBe("whole");
      expect(() => publishNew(on, path, (fd) => writeAll(on, fd, toBytes("other")))).toThrow("EEXIST");
      const fails = () => {
        throw new Error("half way");
      };
      expect(() => publishNew(on, `${path}2`, fails)).toThrow("half way");
      expect(on.names(root() === "" ? "/" : root())).toEqual(["file"]);
      expect(decodeText(readWhole(on, path))).toBe("whole");
    });

  test("works where there are no hard links, and takes no name there either", () => {
    const disk = new FaultDisk();
    const other = linkless(disk, "EPERM");
    write(disk, "/temporary", "one");
    renameExclusive(other, "/temporary", "/file");
    expect(disk.paths()).toEqual(["/file"]);
    write(disk, "/temporary", "two");
    expect(() => renameExclusive(other, "/temporary", "/file")).toThrow("EEXIST");
    expect(decodeText(disk.content("/file") as Uint8Array)).toBe("one");
    expect([exists(disk, "/file"), exists(disk, "/nothing")]).toEqual([true, false]);
  });

  test.each(["EPERM", "ENOTSUP", "ENOSYS", "EMLINK", "EACCES", "EXDEV"])("takes no name of others, with %s", (code) => {
    for (const moment of ["info", "create", "rename", "close"] as const) {
      const disk = new FaultDisk();
      let others = false;
      const act = (...args: unknown[]) => {
        // Another one publishes right before this step, if it can.
        if (!others && !exists(disk, "/file")) {
          write(disk, "/file", "theirs");
          others = true;
        }
        return (disk[moment] as (...args: unknown[]) => unknown)(...args);
      };
      write(disk, "/temporary", "ours");
      let failure: unknown;
      try {
        renameExclusive(linkless(disk, code, { [moment]: act }), "/temporary", "/file");
      } catch (error) {
        failure = error;
      }
      expect([moment, decodeText(disk.content("/file") as Uint8Array)]).toEqual([moment, others ? "theirs" : "ours"]);
      expect(failure).toEqual(others ? expect.objectContaining({ code: "EEXIST" }) : undefined);
    }
  });

  test("leaves the name free when the last step fails where there are no hard links", () => {
    const disk = new FaultDisk();
    write(disk, "/temporary", "ours");
    const failing = linkless(disk, "EPERM", { rename: refused("EIO") });
    expect(() => renameExclusive(failing, "/temporary", "/file")).toThrow("EIO");
    expect(disk.paths()).toEqual(["/temporary"]);
  });
});

test.each([
  ["ENOSPC", "storage_full", true],
  ["EDQUOT", "storage_full", true],
  ["EIO", "storage_failed", true],
  ["EMFILE", "storage_failed", true],
  ["EROFS", "storage_failed", false],
  ["EACCES", "storage_failed", false],
  ["ENAMETOOLONG", "storage_failed", false],
  // A link is in the place of a file.
  ["ELOOP", "storage_failed", false],
])("where the disk says %s, the failure is %s, to be tried again: %s", (errno, name, retryable) => {
  const cause = Object.assign(new Error(errno), { code: errno });
  const failure = toStorageFailure(cause, "testing");
  expect(failure).toMatchObject({ name, retryable, details: { errno }, cause });
  expect(toStorageFailure(failure, "again")).toBe(failure);
});

test("failures that are no doing of the disk stay what they are", () => {
  const coded = (error: Error, code: unknown) => Object.assign(error, { code });
  for (const bug of [
    new TypeError("x is not a function"),
    coded(new TypeError("no string"), "ERR_INVALID_ARG_TYPE"),
    coded(new RangeError("too much"), "ERR_OUT_OF_RANGE"),
    coded(new Error("odd"), 5),
    "text",
    undefined,
  ]) {
    let thrown: unknown = "nothing";
    try {
      toStorageFailure(bug, "testing");
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBe(bug);
  }
});

test("a pipe has a reader until that is closed", { ...SYSTEM, ...needs(LINUX) }, () => {
  const fifo = join(folder, "fifo");
  spawnSync("mkfifo", [fifo]);
  const reader = fs.openSync(fifo, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  const writer = fs.openSync(fifo, fs.constants.O_WRONLY);
  const before = hasReader(writer);
  fs.closeSync(reader);
  expect([before, hasReader(writer)]).toEqual([true, false]);
  fs.closeSync(writer);
});

test("a socket has a reader until that is closed, and not only half", async () => {
  const path = join(folder, "socket");
  const server = createServer({ allowHalfOpen: true }).listen(path);
  await once(server, "listening");
  const ours = connect({ path, allowHalfOpen: true }).resume();
  const [theirs] = (await once(server, "connection")) as [Socket];
  const { fd } = (ours as unknown as { readonly _handle: { readonly fd: number } })._handle;
  theirs.end();
  await once(ours, "end");
  const half = hasReader(fd);
  theirs.destroy();
  await once(theirs, "close");
  expect([half, hasReader(fd)]).toEqual([true, false]);
  ours.destroy();
  server.close();
});
