/** Programs that know no lock, and write to a session while it is moved, relocated or continued: nothing of it is lost. */

import { appendFileSync, existsSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { append, nameOf } from "../support/asking.ts";
import { user } from "../support/drafts.ts";
import { CWD, contentsOf, library, one, put, putSession, read, rootOf, serveLibrary } from "../support/lifecycle.ts";
import { chain, id, userText } from "../support/lines.ts";
import { meddleWith } from "../support/meddling.ts";
import { type HereServer, type Place, serveHere, temporaryFolder } from "../support/server.ts";
import { makeIn } from "../support/stored-sessions.ts";

const THEIRS = `${userText("b0000000", id(0), "theirs")}\n`;
const refused = (code: string): Error => Object.assign(new Error(code), { code });

/** The real disk, whose paths are those that were asked for, in containers too. */
const plainDisk: Disk = { ...realDisk, folders: undefined };

/** Puts another file in the place of one, as programs do that write files anew. */
function replaceFile(path: string, content = THEIRS): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}

/** The real disk, with the state folder on another file system than the sessions, or none with hard links. */
function apart({ state }: Place): Disk {
  const check = (path: string, name: string): void => {
    if (path.startsWith(state) !== name.startsWith(state)) throw refused("EXDEV");
  };
  return meddleWith({ link: check, rename: check }, {}, plainDisk);
}

/** A disk that calls `meanwhile` once, before the sync of a folder for which `isIt` is true. */
function beforeSync(disk: Disk, isIt: (folder: string) => boolean, meanwhile: () => void): Disk {
  let isDone = false;
  const syncFolder = (folder: string): void => {
    if (isDone || !isIt(folder)) return;
    isDone = true;
    meanwhile();
  };
  return meddleWith({ syncFolder }, {}, disk);
}

const withDisk = (place: Place, disk: Disk): HereServer =>
  serveHere(["--no-session", "--events", "none"], { place, disk });

/** A session of two entries: the file that has them, and the one that has its header. */
async function makeSession(store: string) {
  const { place, file, id, contents } = await makeIn(store);
  const isFile = store === "jsonl";
  const written = isFile ? file : join(file, "segments", "0000000000000001.seg");
  return { place, file, id, written, header: isFile ? file : join(file, "header.jsonl"), before: contents() };
}

describe.each(["jsonl", "v2"])("a session on %s", (store) => {
  test.each(["appends to it", "puts another file in its place"])(
    "stays where another program %s while it goes to another file system",
    async (what) => {
      const { place, file, id, written, before } = await makeSession(store);
      const archive = join(place.state, "archive");
      const folder = basename(dirname(written));
      const isAppended = what === "appends to it";
      const disk = beforeSync(
        apart(place),
        (path) => path.startsWith(archive) && basename(path) === folder,
        () => (isAppended ? appendFileSync(written, THEIRS) : replaceFile(written)),
      );
      const server = withDisk(place, disk);
      const { data, message } = await server.failure("archive_session", { sessionId: id });
      expect([data.name, data.path, message]).toEqual(["content_modified", written, expect.stringContaining(written)]);
      expect(message).not.toContain("Nothing was changed");
      const theirs = isAppended ? before[written] + THEIRS : THEIRS;
      expect([contentsOf(rootOf(place)), contentsOf(archive)]).toEqual([{ ...before, [written]: theirs }, {}]);
      if (!isAppended) return;
      const { movedTo } = await server.result("archive_session", { sessionId: id });
      expect([existsSync(file), read(movedTo + written.slice(file.length))]).toEqual([false, theirs]);
    },
  );

  test("and its attachments go to another file system, and what another program wrote to one since stays", async () => {
    const { place, file, id } = await makeSession(store);
    const media = put(join(`${file}.blobs`, "0".repeat(64)), "media");
    const goal = store === "v2" ? basename(file) : basename(dirname(file));
    const isGoal = (path: string): boolean => path.startsWith(join(place.state, "archive")) && basename(path) === goal;
    const disk = beforeSync(apart(place), isGoal, () => replaceFile(media, "theirs"));
    const { movedTo } = await withDisk(place, disk).result("archive_session", { sessionId: id });
    expect([existsSync(file), read(media)]).toEqual([false, "theirs"]);
    expect(read(join(`${movedTo}.blobs`, basename(media)))).toBe("media");
  });

  test.each(["before", "after"] as const)(
    "that is relocated is what another program put in its place %s it was kept",
    async (when) => {
      const { place, file, id, header, before } = await makeSession(store);
      const theirs = read(header).replace('"version":3', '"version":3,"theirs":true');
      const link = (path: string): void => {
        if (path === header) replaceFile(path, theirs);
      };
      const disk = when === "before" ? meddleWith({ link }, {}, plainDisk) : meddleWith({}, { link }, plainDisk);
      const params = { sessionPath: file, cwd: temporaryFolder() };
      const name = await nameOf(withDisk(place, disk), "relocate_session", params);
      expect([name, theirs === before[header]]).toEqual(["content_modified", false]);
      expect(contentsOf(rootOf(place))).toEqual({ ...before, [header]: theirs });
      expect((await serveLibrary(place).result("list_sessions")).sessions).toMatchObject([{ sessionId: id }]);
    },
  );

  test("that is relocated has one header, wherever it is, where no folder can be synced twice", async () => {
    const { place, file, id } = await makeSession(store);
    const cwd = temporaryFolder();
    let isMoved = false;
    const syncFolder = (path: string): void => {
      if (isMoved && path.startsWith(rootOf(place))) throw refused("EIO");
    };
    // The old name goes, or the container gets its new one.
    const note = (path: string): boolean => (isMoved ||= path === file);
    const disk = meddleWith({ syncFolder }, { remove: note, rename: note }, plainDisk);
    const { message } = await withDisk(place, disk).failure("relocate_session", { sessionPath: file, cwd });
    const there = Object.entries(contentsOf(rootOf(place)));
    const headers = there.filter(([path]) => path.endsWith(store === "v2" ? "/header.jsonl" : ".jsonl"));
    expect(new Set(headers.map(([, content]) => content.split("\n")[0])).size).toBe(1);
    const isNew = headers[0][1].includes(JSON.stringify(cwd));
    expect(message.includes("Nothing was changed")).toBe(!isNew);
    const server = serveLibrary(place);
    if (isNew && existsSync(file)) await server.result("relocate_session", { sessionPath: file, cwd });
    expect((await server.result("list_sessions")).sessions).toMatchObject([{ sessionId: id }]);
  });

  test("archived and relocated again, gets by undo the header that it had in the archive", async () => {
    const { place, id } = await makeSession(store);
    const cwd = temporaryFolder();
    const server = withDisk(place, realDisk);
    await server.result("relocate_session", { sessionId: id, cwd });
    const { movedTo } = await server.result("archive_session", { sessionId: id });
    const archived = store === "v2" ? join(movedTo, "header.jsonl") : movedTo;
    const before = read(archived);
    await server.result("relocate_session", { sessionPath: movedTo, cwd });
    await server.result("undo");
    expect(read(archived)).toBe(before);
  });
});

test.each([
  ["archive_session", "archive"],
  ["delete_session", "trash"],
])("on one file system, %s removes no file that was put in the place of the session", async (command, name) => {
  const { place, file } = library();
  const folder = join(place.state, name);
  const isIt = (path: string): boolean => path.startsWith(folder) && readdirSync(path).includes(basename(file));
  const server = withDisk(
    place,
    beforeSync(plainDisk, isIt, () => replaceFile(file)),
  );
  expect(await nameOf(server, command, { sessionPath: file })).toBe("content_modified");
  expect([read(file), contentsOf(folder)]).toEqual([THEIRS, {}]);
});

test("no other process writes to a session that has its new header, until it is where it goes", async () => {
  const { place, file } = library();
  const other = withDisk(place, realDisk);
  let found: unknown;
  let isReplaced = false;
  const syncFolder = async (): Promise<void> => {
    if (!isReplaced || found !== undefined) return;
    found = "asked";
    await other.result("switch_session", { sessionPath: file });
    found = await nameOf(other, "append", { entries: [user("theirs")] });
  };
  const disk = meddleWith({ syncFolder }, { rename: (_path, name) => (isReplaced ||= name === file) }, plainDisk);
  const params = { sessionPath: file, cwd: temporaryFolder() };
  const { movedTo } = await withDisk(place, disk).result("relocate_session", params);
  expect(found).toBe("session_locked");
  await other.result("switch_session", { sessionPath: movedTo });
  await append(other, user("theirs"));
  expect(read(movedTo)).toContain("theirs");
});

test("what another program wrote since is not deleted for good", async () => {
  const { place, files } = library(2);
  let meanwhile: (() => void) | undefined;
  // The record of it is written first.
  const write = (_fd: number, bytes: Uint8Array): void => {
    if (Buffer.from(bytes).includes('"kind":"delete"')) meanwhile?.();
  };
  const server = withDisk(place, meddleWith({ write }, {}, plainDisk));
  for (const [n, file] of files.entries()) {
    meanwhile = () => (n === 0 ? appendFileSync(file, THEIRS) : replaceFile(file));
    expect(await nameOf(server, "delete_session", { sessionPath: file, permanent: true })).toBe("content_modified");
    expect(read(file).endsWith(THEIRS)).toBe(true);
  }
});

describe("what came late while a session was relocated", () => {
  const LATE = `${userText("c0000000", id(2), "late")}\n`;

  /** A session whose process died when it had replaced the file, and had copied these bytes of the late lines. */
  function cutOff(copied: number, flat?: string) {
    const args = flat === undefined ? [] : ["--session-dir", flat];
    const { server, file } = library(1, args, undefined, { folder: flat });
    const cwd = temporaryFolder();
    const kept = put(`${file}.relocated.bak`, read(file) + LATE);
    put(file, read(file).replace(JSON.stringify(CWD), JSON.stringify(cwd)) + LATE.slice(0, copied));
    return { server, file, kept, params: { ...one, cwd } };
  }

  test.each([0, 20, LATE.length])("comes with the same request, where %d bytes of it were copied", async (copied) => {
    const { server, kept, params } = cutOff(copied);
    const { movedTo, keptAt } = await server.result("relocate_session", params);
    expect([basename(keptAt), existsSync(kept)]).toEqual([basename(kept), false]);
    expect(read(movedTo).split("\n").slice(1)).toEqual(read(keptAt).split("\n").slice(1));
    expect((await server.result("list_leftovers")).leftovers).toMatchObject([{ path: keptAt, keptBecause: null }]);
  });

  test("comes with the same request where the session keeps its path, too", async () => {
    const { server, file, params } = cutOff(20, temporaryFolder());
    expect(await server.result("relocate_session", params)).toMatchObject({ movedTo: file });
    expect(read(file).endsWith(LATE)).toBe(true);
    expect(await nameOf(server, "relocate_session", params)).toBe("already_exists");
  });

  test.each(["jsonl", "v2"])("and is only in the original stays with it, unless that is forced (%s)", async (store) => {
    const { server, file, kept } = cutOff(0);
    appendFileSync(file, userText("d0000000", id(2), "went on"));
    if (store === "v2") await server.result("migrate_session", { sessionPath: file });
    const params = { kinds: ["backup"] };
    const because = { keptBecause: expect.stringContaining("entries"), isNeeded: false };
    expect((await server.result("prune_leftovers", params)).kept).toMatchObject([{ path: kept, ...because }]);
    const { removed } = await server.result("prune_leftovers", { ...params, force: true });
    expect(removed).toMatchObject([{ path: kept, consequence: expect.stringContaining("lost") }]);
  });

  test.each(["jsonl", "v2"])("and is in the session keeps no original (%s)", async (store) => {
    const { server, file, kept } = cutOff(LATE.length);
    if (store === "v2") await server.result("migrate_session", { sessionPath: file });
    const { removed } = await server.result("prune_leftovers", { kinds: ["backup"] });
    expect(removed).toMatchObject([{ path: kept, keptBecause: null, consequence: null }]);
  });
});

test.each(["before", "after"] as const)(
  "no import is done in a file that another one replaced %s its sync",
  async (when) => {
    const { place, file } = library(1, [], undefined, { lines: chain(2) });
    const theirs = read(file).replace("say", "they say");
    const copy = putSession(place, 1, { folder: join(place.home, "incoming") });
    let written = -1;
    const write = (fd: number): void => {
      if (realDisk.infoOf(fd).inode === realDisk.info(file).inode) written = fd;
    };
    const sync = (fd: number): void => {
      if (fd === written) replaceFile(file, theirs);
    };
    const disk =
      when === "before" ? meddleWith({ write, sync }, {}, plainDisk) : meddleWith({ write }, { sync }, plainDisk);
    expect(await nameOf(withDisk(place, disk), "import_session", { path: copy })).toBe("content_modified");
    expect([read(file), written > 0]).toEqual([theirs, true]);
  },
);
