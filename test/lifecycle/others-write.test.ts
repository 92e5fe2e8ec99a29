/** Programs that know no lock, and write to a session while it is moved, relocated or continued: nothing of it is lost. */

import { appendFileSync, existsSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { user } from "../support/drafts.ts";
import { CWD, contentsOf, put, putSession, read, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, id, userText } from "../support/lines.ts";
import { type HereServer, type Place, serveHere, temporaryFolder, temporaryPlace } from "../support/server.ts";

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
  const require = (a: string, b: string): void => {
    if (a.startsWith(state) !== b.startsWith(state)) throw refused("EXDEV");
  };
  return {
    ...plainDisk,
    link(path, name) {
      require(path, name);
      realDisk.link(path, name);
    },
    rename(path, name) {
      require(path, name);
      realDisk.rename(path, name);
    },
  };
}

/** That disk, which calls `meanwhile` once, before a folder below another one is synced. */
function beforeSync(disk: Disk, below: string, name: string, meanwhile: () => void): Disk {
  let isDone = false;
  return {
    ...disk,
    async syncFolder(path) {
      if (!isDone && path.startsWith(below) && basename(path) === name) {
        isDone = true;
        meanwhile();
      }
      return disk.syncFolder(path);
    },
  };
}

const withDisk = (place: Place, disk: Disk): HereServer =>
  serveHere(["--no-session", "--events", "none"], { place, disk });

/** A session of two entries, and the file that has them. */
async function makeSession(store: string, place: Place): Promise<{ file: string; id: string; written: string }> {
  const server = serveHere(["--store", store, "--events", "none"], { place });
  await server.result("append", { entries: [user("one"), user("two")] });
  const { sessionFile: file, sessionId: id } = await server.result("get_state");
  await server.finish();
  return { file, id, written: store === "v2" ? join(file, "segments", "0000000000000001.seg") : file };
}

describe.each(["jsonl", "v2"])("a session on %s", (store) => {
  const APPEND = (path: string): void => appendFileSync(path, THEIRS);

  test.each([
    ["appends to it", APPEND],
    ["puts another file in its place", replaceFile],
  ] as const)("stays where another program %s while it goes to another file system", async (_what, write) => {
    const place = temporaryPlace();
    const { file, id, written } = await makeSession(store, place);
    const before = contentsOf(rootOf(place));
    const archive = join(place.state, "archive");
    const disk = beforeSync(apart(place), archive, basename(dirname(written)), () => write(written));
    const server = withDisk(place, disk);
    const { data, message } = await server.failure("archive_session", { sessionId: id });
    expect([data.name, data.path]).toEqual(["content_modified", written]);
    expect(message).toContain(written);
    expect(message).not.toContain("Nothing was changed");
    const theirs = write === APPEND ? before[written] + THEIRS : THEIRS;
    expect(contentsOf(rootOf(place))).toEqual({ ...before, [written]: theirs });
    expect(Object.keys(contentsOf(archive))).toEqual([]);
    if (write !== APPEND) return;
    const { movedTo } = await server.result("archive_session", { sessionId: id });
    expect([existsSync(file), read(movedTo + written.slice(file.length))]).toEqual([false, theirs]);
  });

  test("and its attachments go to another file system, and what another program wrote to one since stays", async () => {
    const place = temporaryPlace();
    const { file, id } = await makeSession(store, place);
    const media = put(join(`${file}.blobs`, "0".repeat(64)), "media");
    const archive = join(place.state, "archive");
    const goal = store === "v2" ? basename(file) : basename(dirname(file));
    const disk = beforeSync(apart(place), archive, goal, () => replaceFile(media, "theirs"));
    const { movedTo } = await withDisk(place, disk).result("archive_session", { sessionId: id });
    expect([existsSync(file), read(media)]).toEqual([false, "theirs"]);
    expect(read(join(`${movedTo}.blobs`, basename(media)))).toBe("media");
  });
});

describe("on one file system", () => {
  test.each([
    ["archive_session", "archive"],
    ["delete_session", "trash"],
  ] as const)("%s removes no file that was put in the place of the session", async (command, folder) => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const { state } = place;
    let isDone = false;
    const disk: Disk = {
      ...plainDisk,
      async syncFolder(path) {
        if (!isDone && path.startsWith(join(state, folder)) && readdirSync(path).includes(basename(file))) {
          isDone = true;
          replaceFile(file);
        }
        return realDisk.syncFolder(path);
      },
    };
    const { data } = await withDisk(place, disk).failure(command, { sessionPath: file });
    expect([data.name, read(file)]).toEqual(["content_modified", THEIRS]);
    expect(Object.keys(contentsOf(join(state, folder)))).toEqual([]);
  });
});

describe.each(["jsonl", "v2"])("relocated on %s", (store) => {
  /** A session, the file that is rewritten, and a directory to go to. */
  async function make(place: Place): Promise<{ file: string; id: string; rewritten: string; cwd: string }> {
    const { file, id } = await makeSession(store, place);
    return { file, id, rewritten: store === "v2" ? join(file, "header.jsonl") : file, cwd: temporaryFolder() };
  }

  test.each(["before", "after"] as const)(
    "what another program put in its place %s it was kept stays, and is the session",
    async (when) => {
      const place = temporaryPlace();
      const { file, id, rewritten, cwd } = await make(place);
      const before = contentsOf(rootOf(place));
      const theirs = read(rewritten).replace('"version":3', '"version":3,"theirs":true');
      const disk: Disk = {
        ...plainDisk,
        link(path, name) {
          if (path === rewritten && when === "before") replaceFile(path, theirs);
          realDisk.link(path, name);
          if (path === rewritten && when === "after") replaceFile(path, theirs);
        },
      };
      const server = withDisk(place, disk);
      const { data } = await server.failure("relocate_session", { sessionPath: file, cwd });
      expect([data.name, theirs === before[rewritten]]).toEqual(["content_modified", false]);
      expect(contentsOf(rootOf(place))).toEqual({ ...before, [rewritten]: theirs });
      expect((await serveLibrary(place).result("list_sessions")).sessions).toMatchObject([{ sessionId: id }]);
    },
  );

  test("has one header, wherever it is, where no folder can be synced twice", async () => {
    const place = temporaryPlace();
    const { file, id, cwd } = await make(place);
    let isMoved = false;
    const disk: Disk = {
      ...plainDisk,
      async syncFolder(path) {
        if (isMoved && path.startsWith(rootOf(place))) throw refused("EIO");
        return realDisk.syncFolder(path);
      },
      // The old name goes, or the container gets its new one.
      remove(path) {
        realDisk.remove(path);
        isMoved ||= path === file;
      },
      rename(path, name) {
        realDisk.rename(path, name);
        isMoved ||= path === file;
      },
    };
    const { message } = await withDisk(place, disk).failure("relocate_session", { sessionPath: file, cwd });
    const there = Object.entries(contentsOf(rootOf(place))).filter(([path]) =>
      path.endsWith(store === "v2" ? "/header.jsonl" : ".jsonl"),
    );
    expect(new Set(there.map(([, content]) => content.split("\n")[0])).size).toBe(1);
    const isNew = there[0][1].includes(JSON.stringify(cwd));
    expect([isNew, message.includes("Nothing was changed")]).toEqual([isNew, !isNew]);
    const server = serveLibrary(place);
    if (isNew && existsSync(file)) await server.result("relocate_session", { sessionPath: file, cwd });
    expect((await server.result("list_sessions")).sessions).toMatchObject([{ sessionId: id }]);
  });

  test("archived and relocated again, undo gives the header that it had in the archive", async () => {
    const place = temporaryPlace();
    const { id, cwd } = await make(place);
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

test("no other process writes to a session that has its new header, until it is where it goes", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const other = withDisk(place, realDisk);
  let found: unknown;
  let isReplaced = false;
  const disk: Disk = {
    ...plainDisk,
    rename(path, name) {
      realDisk.rename(path, name);
      isReplaced ||= name === file;
    },
    async syncFolder(path) {
      if (isReplaced && found === undefined) {
        found = "asked";
        await other.result("switch_session", { sessionPath: file });
        found = (await other.failure("append", { entries: [user("theirs")] })).data.name;
      }
      return realDisk.syncFolder(path);
    },
  };
  const cwd = temporaryFolder();
  const { movedTo } = await withDisk(place, disk).result("relocate_session", { sessionPath: file, cwd });
  expect(found).toBe("session_locked");
  await other.result("switch_session", { sessionPath: movedTo });
  await other.result("append", { entries: [user("theirs")] });
  expect(read(movedTo)).toContain("theirs");
});

test("what another program wrote since is not deleted for good", async () => {
  const place = temporaryPlace();
  const files = [putSession(place, 1), putSession(place, 2)];
  let meanwhile: (() => void) | undefined;
  const disk: Disk = {
    ...plainDisk,
    write(fd, bytes) {
      // The record of it, which is written first.
      if (Buffer.from(bytes).includes('"kind":"delete"')) meanwhile?.();
      return realDisk.write(fd, bytes);
    },
  };
  const server = withDisk(place, disk);
  for (const [n, file] of files.entries()) {
    meanwhile = () => (n === 0 ? appendFileSync(file, THEIRS) : replaceFile(file));
    const { data } = await server.failure("delete_session", { sessionPath: file, permanent: true });
    expect([data.name, read(file).endsWith(THEIRS)]).toEqual(["content_modified", true]);
  }
});

describe("what came late while a session was relocated", () => {
  const LATE = `${userText("c0000000", id(2), "late")}\n`;

  /** A session of which a process died when it had replaced the file, and had copied these bytes of what came late. */
  function cutOff(
    place: Place,
    cwd: string,
    copied: number,
    args: { flat?: string } = {},
  ): { file: string; kept: string } {
    const file = putSession(place, 1, args.flat === undefined ? {} : { folder: args.flat });
    const kept = put(`${file}.relocated.bak`, read(file) + LATE);
    put(file, read(file).replace(JSON.stringify(CWD), JSON.stringify(cwd)) + LATE.slice(0, copied));
    return { file, kept };
  }

  test.each([0, 20, LATE.length])("comes with the same request, where %d bytes of it were copied", async (copied) => {
    const [place, cwd] = [temporaryPlace(), temporaryFolder()];
    const { kept } = cutOff(place, cwd, copied);
    const server = serveLibrary(place);
    const { movedTo, keptAt } = await server.result("relocate_session", { sessionId: sessionId(1), cwd });
    expect([basename(keptAt), existsSync(kept)]).toEqual([basename(kept), false]);
    expect(read(movedTo).split("\n").slice(1)).toEqual(read(keptAt).split("\n").slice(1));
    expect((await server.result("list_leftovers")).leftovers).toMatchObject([{ path: keptAt, keptBecause: null }]);
  });

  test("comes with the same request where the session keeps its path, too", async () => {
    const [place, cwd, flat] = [temporaryPlace(), temporaryFolder(), temporaryFolder()];
    const { file } = cutOff(place, cwd, 20, { flat });
    const server = serveLibrary(place, ["--session-dir", flat]);
    const params = { sessionId: sessionId(1), cwd };
    expect(await server.result("relocate_session", params)).toMatchObject({ movedTo: file });
    expect(read(file).endsWith(LATE)).toBe(true);
    expect((await server.failure("relocate_session", params)).data.name).toBe("already_exists");
  });

  test.each(["jsonl", "v2"])("and is only in the original stays with it, unless that is forced (%s)", async (store) => {
    const [place, cwd] = [temporaryPlace(), temporaryFolder()];
    const { file, kept } = cutOff(place, cwd, 0);
    appendFileSync(file, userText("d0000000", id(2), "went on"));
    const server = serveLibrary(place);
    if (store === "v2") await server.result("migrate_session", { sessionPath: file });
    const params = { kinds: ["backup"] };
    expect((await server.result("prune_leftovers", params)).kept).toMatchObject([
      { path: kept, keptBecause: expect.stringContaining("entries"), isNeeded: false },
    ]);
    const { removed } = await server.result("prune_leftovers", { ...params, force: true });
    expect(removed).toMatchObject([{ path: kept, consequence: expect.stringContaining("lost") }]);
  });

  test.each(["jsonl", "v2"])("and is in the session keeps no original (%s)", async (store) => {
    const [place, cwd] = [temporaryPlace(), temporaryFolder()];
    const { file, kept } = cutOff(place, cwd, LATE.length);
    const server = serveLibrary(place);
    if (store === "v2") await server.result("migrate_session", { sessionPath: file });
    const { removed } = await server.result("prune_leftovers", { kinds: ["backup"] });
    expect(removed).toMatchObject([{ path: kept, keptBecause: null, consequence: null }]);
  });
});

test.each(["before", "after"] as const)(
  "no import is done in a file that another one replaced %s its sync",
  async (when) => {
    const place = temporaryPlace();
    const file = putSession(place, 1, { lines: chain(2) });
    const theirs = read(file).replace("say", "they say");
    const copy = putSession(place, 1, { folder: join(place.home, "incoming") });
    let written = -1;
    const disk: Disk = {
      ...plainDisk,
      write(fd, bytes) {
        if (realDisk.infoOf(fd).inode === realDisk.info(file).inode) written = fd;
        return realDisk.write(fd, bytes);
      },
      async sync(fd, much) {
        const isIt = fd === written;
        if (isIt && when === "before") replaceFile(file, theirs);
        await realDisk.sync(fd, much);
        if (isIt && when === "after") replaceFile(file, theirs);
      },
    };
    const { data } = await withDisk(place, disk).failure("import_session", { path: copy });
    expect([data.name, read(file), written > 0]).toEqual(["content_modified", theirs, true]);
  },
);
