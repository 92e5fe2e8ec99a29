/** D: disks and file systems. */

import { mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { cases, idsIn, linesIn, serveLines } from "../../support/cases.ts";
import { user } from "../../support/drafts.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import { imprint } from "../../support/proof.ts";
import { type Json, serveHere, temporaryPlace } from "../../support/server.ts";
import { diskWith, FILE, idsOf, openOn } from "../../support/sessions.ts";

const QUIET = ["--events", "none"];

function errno(code: string): Error {
  return Object.assign(new Error(`${code}: secret detail`), { code });
}

/** The real disk, until `fault` is set; then writes take so many bytes and fail. */
class FailingDisk {
  fault: { code: string; after: number; at?: keyof Disk } | undefined;
  readonly disk: Disk;

  constructor() {
    this.disk = {
      ...realDisk,
      write: (fd, bytes) => {
        const { fault } = this;
        if (!fault || (fault.at ?? "write") !== "write") return realDisk.write(fd, bytes);
        if (fault.after <= 0) throw errno(fault.code);
        const written = realDisk.write(fd, bytes.subarray(0, Math.min(fault.after, bytes.length - 1)));
        fault.after = 0;
        return written;
      },
      sync: (fd) => (this.fault?.at === "sync" ? Promise.reject(errno(this.fault.code)) : realDisk.sync(fd)),
      openAppend: (path) => {
        if (this.fault?.at === "openAppend") throw errno(this.fault.code);
        return realDisk.openAppend(path);
      },
      openRead: (path) => {
        if (this.fault?.at === "openRead") throw errno(this.fault.code);
        return realDisk.openRead(path);
      },
    };
  }
}

cases("D", [
  {
    id: "D1",
    fault: "no room after none, one, half, all but one of the bytes of a line",
    async run() {
      const failing = new FailingDisk();
      const { server, file } = serveLines(chain(3), { disk: failing.disk, args: QUIET });
      await server.result("append", { entries: [user("first", { id: "first" })] });
      const before = readFileSync(file, "latin1");
      for (const after of [0, 1, 60, 1 << 20]) {
        failing.fault = { code: "ENOSPC", after };
        const { code, data } = await server.failure("append", { entries: [user("refused", { id: "refused" })] });
        expect([code, data.name, data.retryable]).toEqual([-32803, "storage_full", true]);
        expect(readFileSync(file, "latin1")).toBe(before);
        expect((await server.result("get_state")).leafId).toBe("first");
      }
      failing.fault = undefined;
      expect((await server.result("append", { entries: [user("refused", { id: "refused" })] })).leafId).toBe("refused");
      expect((await server.result("verify_session")).ok).toBe(true);
    },
  },
  {
    id: "D3",
    fault: "room again after a failure, at the first append and at later ones",
    async run() {
      const failing = new FailingDisk();
      const server = serveHere(QUIET, { disk: failing.disk });
      const { sessionFile } = await server.result("get_state");
      for (let round = 0; round < 3; round++) {
        failing.fault = { code: "ENOSPC", after: 10 };
        expect((await server.failure("append", { entries: [user("x")] })).data.name).toBe("storage_full");
        expect((await server.result("get_state")).entryCount).toBe(round);
        failing.fault = undefined;
        await server.result("append", { entries: [user("x")] });
      }
      const written = linesIn(sessionFile)
        .slice(1)
        .map((line) => JSON.parse(line));
      expect(written.map(({ parentId }) => parentId)).toEqual([null, written[0].id, written[1].id]);
    },
  },
  {
    id: "D4",
    fault: "EDQUOT, EIO, EROFS, EMFILE, EACCES, ENAMETOOLONG, short writes",
    async run() {
      for (const [code, at, name, retryable] of [
        ["EDQUOT", "write", "storage_full", true],
        ["EIO", "write", "storage_failed", true],
        ["EROFS", "openAppend", "storage_failed", false],
        ["EACCES", "openAppend", "storage_failed", false],
        ["EMFILE", "openAppend", "storage_failed", true],
      ] as const) {
        const failing = new FailingDisk();
        const { server, file } = serveLines(chain(3), { disk: failing.disk, args: QUIET });
        await server.result("get_state");
        const before = imprint(file);
        failing.fault = { code, after: 0, at };
        const { data, message } = await server.failure("append", { entries: [user("x")] });
        expect(data, code).toMatchObject({ name, retryable, errno: code });
        expect(message).not.toContain("secret");
        expect(readFileSync(file, "latin1")).toBe(before.bytes);
        failing.fault = undefined;
        await server.result("append", { entries: [user("x")] });
      }
      const { server } = serveLines(chain(1), { args: QUIET });
      const long = `/${"n".repeat(300)}.jsonl`;
      expect((await server.failure("switch_session", { sessionPath: long })).data).toMatchObject({
        name: "storage_failed",
        retryable: false,
      });
      // A write that takes a part of the bytes at a time is a write.
      const slow: Disk = { ...realDisk, write: (fd, bytes) => realDisk.write(fd, bytes.subarray(0, 7)) };
      const piecewise = serveLines(chain(2), { disk: slow, args: QUIET });
      await piecewise.server.result("append", { entries: [user("in pieces")] });
      expect(JSON.parse(linesIn(piecewise.file).at(-1) as string).message.content).toBe("in pieces");
    },
  },
  {
    id: "D5",
    fault: "a failing fsync",
    async run() {
      const failing = new FailingDisk();
      const { server, file } = serveLines(chain(3), { disk: failing.disk, args: QUIET });
      const before = readFileSync(file, "latin1");
      failing.fault = { code: "EIO", after: 0, at: "sync" };
      for (let n = 0; n < 3; n++) {
        expect((await server.failure("append", { entries: [user("x")] })).data).toMatchObject({
          name: "storage_failed",
          errno: "EIO",
        });
        expect(await idsIn(server)).toEqual([id(0), id(1), id(2)]);
        expect(readFileSync(file, "latin1")).toBe(before);
      }
      failing.fault = undefined;
      await server.result("append", { entries: [user("x", { id: "x" })] });
      expect(await idsIn(server)).toEqual([id(0), id(1), id(2), "x"]);
    },
  },
  {
    id: "D6",
    fault: "a failing fsync of what another program wrote after",
    async run() {
      const disk = diskWith(fileText(headerText(), ...chain(1)));
      const session = openOn(disk);
      session.append([{ type: "custom", id: "ours", rest: bytesOf("") }]);
      const fd = disk.openAppend(FILE);
      disk.write(fd, bytesOf(`${userText("theirs", "ours")}\n`));
      disk.close(fd);
      disk.set({ kind: "fail", at: 1, errno: "EIO" });
      await expect(session.commit()).rejects.toMatchObject({ name: "outcome_unknown", retryable: true });
      disk.set(undefined);
      expect(session.leafId).toBe(id(0));
      expect(idsOf(openOn(disk.after()).log)).toEqual([id(0), "ours", "theirs"]);
    },
  },
  {
    id: "D7",
    fault: "file systems without hard links or without folder syncs; network file systems are not at hand here",
    async run() {
      for (const code of ["EPERM", "ENOTSUP", "ENOSYS"]) {
        const plain: Disk = {
          ...realDisk,
          link: () => {
            throw errno(code);
          },
        };
        const server = serveHere(QUIET, { disk: plain });
        await server.result("append", { entries: [user("a", { id: "a" })] });
        const { sessionFile } = await server.result("clone");
        expect(linesIn(sessionFile)).toHaveLength(2);
        await server.result("append", { entries: [user("b")] });
      }
    },
  },
  {
    id: "D8",
    fault: "temporary files and backups beside sessions, and files that are none",
    async run() {
      const place = temporaryPlace();
      const folder = join(place.home, "sessions");
      mkdirSync(folder);
      const text = fileText(headerText({ id: "real" }), ...chain(2));
      for (const name of [
        "a.jsonl",
        ".a.jsonl.12-1.tmp",
        "a.jsonl.v2.bak",
        "a.jsonl.damaged.bak",
        ".hidden.jsonl",
        "a.jsonl.icloud",
        "a.json",
      ])
        writeFileSync(join(folder, name), text);
      writeFileSync(join(folder, "placeholder.jsonl"), "");
      const server = serveHere(["--session-dir", folder, ...QUIET], { place });
      const { sessions, total } = await server.result("list_sessions");
      expect([sessions.map(({ sessionPath }: Json) => sessionPath), total]).toEqual([[join(folder, "a.jsonl")], 1]);
    },
  },
  { id: "D9", fault: "Windows: EPERM and EBUSY on rename", why: "Windows is best effort and not tested here" },
  {
    id: "D10",
    fault: "file systems that ignore case or normalise names",
    why: "needs such a file system; files are told apart by device and inode, which X2 shows with links",
  },
  {
    id: "D11",
    fault: "file times that were touched",
    async run() {
      const place = temporaryPlace();
      const folder = join(place.home, "sessions");
      mkdirSync(folder);
      for (let n = 0; n < 5; n++) {
        const line = userText(id(n), null).replace("2026-01-24", `2026-01-1${n}`);
        writeFileSync(join(folder, `s${n}.jsonl`), fileText(headerText({ id: `s${n}` }), line));
      }
      const list = async (): Promise<string[]> => {
        const server = serveHere(["--session-dir", folder, ...QUIET], { place });
        const { sessions } = await server.result("list_sessions");
        await server.finish();
        return sessions.map(({ sessionId }: Json) => sessionId);
      };
      expect(await list()).toEqual(["s4", "s3", "s2", "s1", "s0"]);
      for (let n = 0; n < 5; n++) utimesSync(join(folder, `s${n}.jsonl`), 1e9 - n * 1000, 1e9 - n * 1000);
      expect(await list()).toEqual(["s4", "s3", "s2", "s1", "s0"]);
    },
  },
]);
