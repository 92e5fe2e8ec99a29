/** X: several processes, several openings. */

import {
  existsSync,
  linkSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { expect, vi } from "vitest";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { type FileKey, fileLocks, isLock } from "../../../src/storage/locks/locks.ts";
import { cases, idsIn, linesIn, serveLines, sessionFile } from "../../support/cases.ts";
import { user } from "../../support/drafts.ts";
import { putSession, serveLibrary, sessionId } from "../../support/lifecycle.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import { listTogether } from "../../support/listing.ts";
import { imprint } from "../../support/proof.ts";
import {
  type Json,
  type Place,
  serveHere,
  spawnServer,
  stopTimers,
  temporaryFolder,
  temporaryPlace,
} from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";

/** Servers that let nobody join and join nobody: what is looked at is the lock. */
const ALONE = ["--attach", "off"];
const QUIET = [...ALONE, "--events", "none"];

function descriptors(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

/** A lock file of somebody, and what we make of it. */
function lockFile(change: Json): { held: boolean; holder: Json } {
  const stateFolder = temporaryFolder();
  const locks = fileLocks({ disk: realDisk, stateFolder, client: "us", now: () => "2026-01-24T16:22:26.831Z" });
  const key: FileKey = { device: 7, inode: 70 };
  const lock = locks.acquire(key);
  if (!isLock(lock)) throw new Error("nobody has it yet");
  const path = join(stateFolder, "locks", "7-70.lock");
  const content = JSON.parse(readFileSync(path, "utf8"));
  lock.release();
  expect(readdirSync(join(stateFolder, "locks"))).toEqual([]);
  writeFileSync(path, typeof change === "string" ? change : JSON.stringify({ ...content, ...change }));
  const holder = locks.holder(key);
  const taken = locks.acquire(key);
  if (isLock(taken)) taken.release();
  return { held: !isLock(taken), holder };
}

async function entries(place: Place, file: string): Promise<string[]> {
  const server = serveHere(["--session", file, ...QUIET], { place });
  const ids = await idsIn(server);
  await server.finish();
  return ids;
}

cases("X", [
  {
    id: "X1",
    fault: "a second process that wants to write",
    options: SYSTEM,
    async run() {
      const { server, file, place } = serveLines(chain(2), { args: QUIET });
      await server.result("append", { entries: [user("mine")] });
      const second = spawnServer(["--session", file, ...ALONE], "lines", place);
      const state = await second.result("get_state");
      expect(state).toMatchObject({
        readOnly: true,
        lockedBy: { pid: process.pid, client: expect.stringContaining("pi-session-server") },
      });
      const { code, data } = await second.failure("append", { entries: [user("theirs")] });
      expect(code).toBe(-32803);
      expect(data).toMatchObject({ name: "session_locked", retryable: true, holder: { pid: process.pid } });
      // It follows what the other writes.
      const { leafId } = await server.result("append", { entries: [user("more")] });
      let event: Json;
      do event = await second.next();
      while (event.method !== "session_append");
      expect(event.params).toMatchObject({ origin: "foreign", leafId, entryIds: [leafId], entries: [{ id: leafId }] });
      await server.finish();
      expect((await second.result("append", { entries: [user("now")] })).leafId).toBeTruthy();
      expect((await second.result("get_state")).readOnly).toBe(false);
    },
  },
  {
    id: "X2",
    fault: "one file under several names: link, hard link, relative path, in one process and in two",
    options: SYSTEM,
    async run() {
      const { server, file, place } = serveLines(chain(2), { args: QUIET });
      symlinkSync(file, join(place.cwd, "link.jsonl"));
      linkSync(file, join(place.cwd, "hard.jsonl"));
      await server.result("append", { entries: [user("mine", { id: "mine" })] });
      const second = spawnServer(QUIET, "lines", place);
      for (const name of ["link.jsonl", "hard.jsonl", "session.jsonl", "./../project/session.jsonl"]) {
        const { sessionId } = await second.result("open_session", { sessionPath: name });
        const { data } = await second.failure("append", { sessionId, entries: [user("x")] });
        expect(data.name, name).toBe("session_locked");
        // So the next name is one that it has not opened yet.
        await second.result("close_session", { sessionId });
        // In this process it is the same session.
        await server.result("open_session", { sessionPath: name });
        await server.result("switch_session", { sessionPath: name });
        expect((await server.result("append", { entries: [user("x")] })).leafId, name).toBeTruthy();
      }
      expect((await entries(place, file)).length).toBe(7);
    },
  },
  {
    id: "X3",
    fault: "a holder that is killed",
    options: SYSTEM,
    async run() {
      const { server, file, place } = serveLines(chain(2), { args: QUIET });
      const holder = spawnServer(["--session", file, ...QUIET], "lines", place);
      await holder.result("append", { entries: [user("held", { id: "held" })] });
      expect((await server.failure("append", { entries: [user("x")] })).data.holder.pid).toBe(holder.process.pid);
      holder.process.kill("SIGKILL");
      await holder.exit;
      // At the first try: it waits for nothing.
      stopTimers();
      const { leafId } = await server.result("append", { entries: [user("x")] });
      expect((await server.result("get_entry", { entryId: leafId })).entry.parentId).toBe("held");
    },
  },
  {
    id: "X4",
    fault: "locks in files: a reused pid, another host, another boot, a clock that moved",
    run() {
      expect(lockFile({}).held).toBe(true);
      expect(lockFile({ since: "1970-01-01T00:00:00.000Z" }).held).toBe(true);
      expect(lockFile({ since: "2999-01-01T00:00:00.000Z" }).held).toBe(true);
      expect(lockFile({ host: "another", pid: 1 })).toMatchObject({ held: true, holder: { pid: 1 } });
      expect(lockFile({ pid: 2 ** 22 + 1 }).held).toBe(false);
      if (process.platform === "linux") {
        const stat = readFileSync("/proc/self/stat", "latin1");
        const started = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
        const boot = readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
        expect(lockFile({ started: `${boot} ${started + 1}` }).held).toBe(false);
        expect(lockFile({ started: `00000000-0000-0000-0000-000000000000 ${started}` }).held).toBe(false);
        expect(lockFile({ started: `${boot} ${started}` }).held).toBe(true);
      }
    },
  },
  {
    id: "X5",
    fault: "notes of locks that are gone or broken; a state folder that cannot be written",
    options: SYSTEM,
    async run() {
      const { server, file, place } = serveLines(chain(2), { args: QUIET });
      await server.result("append", { entries: [user("mine")] });
      const [note] = readdirSync(place.cwd).filter((name) => name.endsWith(".holder"));
      const whole = readFileSync(join(place.cwd, note), "utf8");
      const cases: [string | undefined, string][] = [
        [whole, `process ${process.pid}`],
        ...["", "{", "null", "[]", undefined].map((content): [string | undefined, string] => [
          content,
          "another process",
        ]),
      ];
      const second = spawnServer(QUIET, "lines", place);
      for (const [content, told] of cases) {
        if (content === undefined) rmSync(join(place.cwd, note));
        else writeFileSync(join(place.cwd, note), content);
        const { sessionId } = await second.result("open_session", { sessionPath: file });
        const { data, message } = await second.failure("append", { sessionId, entries: [user("x")] });
        expect([data.name, message], String(content)).toEqual(["session_locked", expect.stringContaining(told)]);
        await second.result("close_session", { sessionId });
      }
      // With a file where the state folder should be, nothing of ours can be kept there.
      const other = temporaryPlace();
      writeFileSync(other.state, "");
      const third = sessionFile(other, chain(2));
      const writer = spawnServer(["--session", third, ...QUIET], "lines", other);
      expect((await writer.result("append", { entries: [user("x")] })).leafId).toBeTruthy();
      const rival = spawnServer(["--session", third, ...QUIET], "lines", other);
      expect((await rival.failure("append", { entries: [user("y")] })).data.name).toBe("session_locked");
      expect((await writer.finish()).status).toBe(0);
      // Locks in files have nowhere to be then: whoever cannot lock does not write.
      const stateFolder = join(other.home, "project", "session.jsonl");
      const locks = fileLocks({ disk: { ...realDisk, makeFolder: refuse }, stateFolder, client: "us", now: () => "" });
      expect(() => locks.acquire({ device: 7, inode: 71 })).toThrow(/PI_SESSION_SERVER_STATE_DIR/);
    },
  },
  {
    id: "X7",
    fault: "another program that rewrites, replaces, cuts or deletes the file",
    async run() {
      const changes: [string, (file: string) => void][] = [
        ["rewritten", (file) => writeFileSync(file, fileText(headerText(), ...chain(2), userText(id(7), id(1))))],
        [
          "renamed over",
          (file) => {
            writeFileSync(`${file}.new`, fileText(headerText(), ...chain(2), userText(id(7), id(1))));
            renameSync(`${file}.new`, file);
          },
        ],
        ["cut", (file) => truncateSync(file, fileText(headerText(), ...chain(2)).length)],
      ];
      for (const [what, change] of changes) {
        const { server, file } = serveLines(chain(4));
        await server.result("append", { entries: [user("mine", { id: "mine" })] });
        change(file);
        const { leafId } = await server.result("append", { entries: [user("next")] });
        const written = linesIn(file)
          .slice(1)
          .map((line) => JSON.parse(line));
        expect(written.at(-1), what).toMatchObject({ id: leafId, parentId: what === "cut" ? id(1) : id(7) });
        const told = server.events.filter(({ method }) => method === "session_damage");
        expect(
          told.flatMap(({ params }) => params.damage.map(({ kind }: Json) => kind)),
          what,
        ).toEqual(["lost_entries"]);
      }
      const { server, file } = serveLines(chain(4), { args: QUIET });
      await server.result("append", { entries: [user("mine", { id: "mine" })] });
      rmSync(file);
      const { data } = await server.failure("append", { entries: [user("next")] });
      expect(data).toMatchObject({ name: "storage_failed", retryable: false, errno: "ENOENT" });
      const cloned = await server.result("clone");
      expect(linesIn(cloned.sessionFile)).toHaveLength(6);
    },
  },
  {
    id: "X8",
    fault: "processes that list at the same time (32 in soak)",
    options: SYSTEM,
    run: () => listTogether(3, 20),
  },
  {
    id: "X9",
    fault: "deleting, archiving or moving a session that is open",
    async run() {
      const place = temporaryPlace();
      const file = putSession(place, 1);
      const server = serveLibrary(place);
      const other = serveLibrary(place);
      await server.result("open_session", { sessionPath: file });
      await server.result("append", { sessionId: sessionId(1), entries: [user("mine", { id: "mine" })] });
      const before = imprint(file);
      const moves: [string, Json][] = [
        ["delete_session", { permanent: true }],
        ["archive_session", {}],
        ["relocate_session", { cwd: "/home/me/other" }],
      ];
      for (const [method, params] of moves)
        for (const asked of [server, other]) {
          const { data } = await asked.failure(method, { sessionPath: file, ...params });
          expect(data.name, method).toBe("session_locked");
          expect(imprint(file), method).toEqual(before);
        }
      expect((await server.result("append", { sessionId: sessionId(1), entries: [user("next")] })).leafId).toBeTruthy();
      await server.result("close_session", { sessionId: sessionId(1) });
      await other.result("archive_session", { sessionPath: file });
      expect(existsSync(file)).toBe(false);
    },
  },
  {
    id: "X11",
    fault: "a hundred sessions in one server",
    options: SWEEP,
    async run() {
      const place = temporaryPlace();
      const args = ["--session-dir", join(place.home, "sessions"), "--events", "none"];
      // Half of its descriptors are enough for 71 sessions.
      const server = spawnServer(args, "lines", place, 1000);
      const sessions: string[] = [];
      for (let n = 0; n < 100; n++) {
        const name = `s${n}`;
        const sessionPath = sessionFile(place, chain(2), `${name}.jsonl`, headerText({ id: name }));
        sessions.push((await server.result("open_session", { sessionPath })).sessionId);
        await server.result("append", { sessionId: name, entries: [user(name, { id: `of-${name}` })] });
      }
      for (const sessionId of sessions) {
        const { leafId } = await server.result("append", { sessionId, entries: [user("again")] });
        expect((await server.result("get_entry", { sessionId, entryId: leafId })).entry.parentId).toBe(
          `of-${sessionId}`,
        );
      }
      // What is over the limit is closed when the server looks after itself next, twice a second.
      // Each of those that stay open has its file, two descriptors for its lock, and two sockets for those who join.
      if (process.platform === "linux") {
        const pid = server.process.pid as number;
        await vi.waitFor(() => expect(descriptors(pid)).toBeLessThanOrEqual(400), { timeout: 30_000 });
      }
      for (const sessionId of sessions) await server.result("close_session", { sessionId });
      expect((await server.result("list_open_sessions")).sessions.length).toBeLessThanOrEqual(1);
      // The sockets are gone, with the folder that they are in.
      await vi.waitFor(() => expect(existsSync(join(place.cwd, ".pi-session-server"))).toBe(false));
      for (const name of sessions) expect(linesIn(join(place.cwd, `${name}.jsonl`))).toHaveLength(5);
    },
  },
  {
    id: "X12",
    fault: "a process that ends late, when another is the writer already",
    options: SYSTEM,
    async run() {
      const { server, file, place } = serveLines(chain(4), { args: QUIET });
      const late = spawnServer(["--session", file, ...QUIET], "lines", place);
      await late.result("get_state");
      await server.result("append", { entries: [user("mine", { id: "mine" })] });
      // It stands elsewhere, and would leave a mark of that behind if it were the writer.
      expect(await late.result("branch", { entryId: id(1) })).toMatchObject({ durable: false });
      const before = imprint(file);
      expect((await late.finish()).status).toBe(0);
      expect(late.stderr).toBe("");
      expect(imprint(file)).toEqual(before);
      expect((await server.result("append", { entries: [user("next", { id: "next" })] })).leafId).toBe("next");
      await server.finish();
      expect((await entries(place, file)).slice(-2)).toEqual(["mine", "next"]);
    },
  },
]);

function refuse(): never {
  throw Object.assign(new Error("read-only file system"), { code: "EROFS" });
}
