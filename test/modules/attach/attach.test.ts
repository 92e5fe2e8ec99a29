/** Holders of sessions are announced, found and reached, and a foreign socket is never taken for the holder's. */

import { spawnSync } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { describe, expect, onTestFinished, test } from "vitest";
import { type Entrance, isToken } from "../../../src/modules/attach/announcing.ts";
import { confineDisk } from "../../../src/storage/fs/confined-disk.ts";
import { containDisk } from "../../../src/storage/fs/contained-disk.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { failingDisk, type Stroke } from "../../support/failing.ts";
import { needs, ROOT } from "../../support/needs.ts";
import { temporaryFolder } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import { attachmentsWith, listFolder, opened, other, saidTo, sessionIn } from "./support/attaching.ts";

const HEARD = "heard this";
const modeOf = (path: string): string => (fs.lstatSync(path).mode & 0o777).toString(8);

/** A folder with a short path, wherever the tests keep their files: Node cuts a path that is too long for a socket. */
function shortFolder(): string {
  const folder = fs.mkdtempSync("/tmp/pi-");
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A session with a holder that is announced next to it, under a umask of the process if one is given. */
function held(store: "jsonl" | "v2" = "jsonl", mask = process.umask(), folder = temporaryFolder()) {
  const session = sessionIn(folder, store);
  const attachments = attachmentsWith();
  const before = process.umask(mask);
  onTestFinished(() => void process.umask(before));
  const entrance = opened(attachments, session) as Entrance;
  process.umask(before);
  const within = join(folder, ".pi-session-server");
  const [json, socket] = [".json", ".sock"].map((ending) =>
    join(within, fs.readdirSync(within).find((name) => name.endsWith(ending)) as string),
  );
  return { folder, session, entrance, within, json, socket, find: () => attachmentsWith().find(session) };
}

/** A session without a holder, and a folder for temporary files. */
function unheld() {
  const [folder, temporary] = [temporaryFolder(), temporaryFolder()];
  return { folder, temporary, session: sessionIn(folder) };
}

/** Expects that a search finds a session's holder, which answers. */
async function requireHeard(session: string, options: Parameters<typeof attachmentsWith>[0] = {}): Promise<void> {
  expect(await saidTo(attachmentsWith(options).find(session))).toBe(HEARD);
}

test.each([
  ["jsonl", process.umask()],
  ["v2", process.umask()],
  ["jsonl", 0o000],
  ["jsonl", 0o777],
] as const)("the holder on %s under umask %o is found, reached, private, and leaves nothing", async (store, mask) => {
  const { folder, session, entrance, within, json, socket, find } = held(store, mask);
  expect([within, json, socket].map(modeOf)).toEqual(["700", "600", "600"]);
  const found = find();
  expect(found?.announcement).toEqual(entrance.announcement);
  expect(found?.announcement).toMatchObject({ protocol: 1, version: "1.2.3", client: "a holder", pid: process.pid });
  expect(await saidTo(found)).toBe(HEARD);
  const link = join(temporaryFolder(), "link");
  fs.symlinkSync(session, link);
  await requireHeard(link);
  entrance.close();
  entrance.close();
  expect(find()).toBeNull();
  expect(await saidTo(found)).toBe("ENOENT");
  expect(listFolder(folder)).toBeNull();
});

describe("the holder of a session", () => {
  test("that was killed refuses at once, and only the next one clears up after it", SYSTEM, async () => {
    const { folder, session } = unheld();
    const { child, place: lock } = await other("hold", session);
    const found = attachmentsWith().find(session);
    // One that is stopped lets in, and answers when it goes on.
    child.kill("SIGSTOP");
    const said = saidTo(found);
    const stream = (await found?.connect()) as Duplex;
    stream.destroy();
    child.kill("SIGCONT");
    expect(await said).toBe(HEARD);
    child.kill("SIGKILL");
    await once(child, "exit");
    const left = listFolder(folder);
    for (const one of [found, attachmentsWith().find(session)]) expect(await saidTo(one)).toBe("ECONNREFUSED");
    expect([left?.length, listFolder(folder)]).toEqual([2, left]);
    const entrance = opened(attachmentsWith(), session) as Entrance;
    expect(entrance.announcement.epoch).toBeGreaterThan((lock as Entrance["announcement"]).epoch);
    expect(listFolder(folder)?.filter((name) => left?.includes(name) && name.endsWith(".sock"))).toEqual([]);
    expect(listFolder(folder)?.length).toBe(2);
    await requireHeard(session);
    entrance.close();
    expect(listFolder(folder)).toBeNull();
  });

  test("may repair or move the session, and is found where it is then", async () => {
    const { folder, session, entrance, find } = held();
    const stream = (await find()?.connect()) as Duplex;
    const there = temporaryFolder();
    const moved = sessionIn(there, "jsonl", "moved");
    entrance.moved(moved);
    expect([find(), listFolder(folder)]).toEqual([null, null]);
    const found = attachmentsWith().find(moved);
    expect(found?.announcement).toEqual(entrance.announcement);
    expect(await saidTo(found)).toBe(HEARD);
    stream.write("still");
    expect(String((await once(stream, "data"))[0])).toBe("heard still");
    stream.destroy();
    entrance.moved(join(there, "missing"));
    expect([attachmentsWith().find(moved), listFolder(there)]).toEqual([null, null]);
    entrance.moved(session);
    expect(await saidTo(find())).toBe(HEARD);
    entrance.close();
    entrance.moved(session);
    expect(listFolder(folder)).toBeNull();
  });
});

test("a token is taken only whole", () => {
  const { announcement } = held().entrance;
  const { token } = announcement;
  expect(token).toMatch(/^[\w-]{43}$/);
  const cut = [token.slice(1), `A${token}`.slice(0, -1), `${token.slice(0, -1)}*`];
  const wrong = [`${token}x`, ...cut, "", 1, null, undefined, [token]];
  expect([token, ...wrong].map((given) => isToken(given, announcement))).toEqual([true, ...wrong.map(() => false)]);
  expect(held().entrance.announcement.token).not.toBe(token);
});

test("epochs grow from holder to holder, whatever the clock says", () => {
  const { session, temporary } = unheld();
  let now = 5000;
  const process = (): ReturnType<typeof attachmentsWith> => attachmentsWith({ temporary, now: () => now });
  const follower = process();
  const epochs: number[] = [];
  const next = (holder: ReturnType<typeof attachmentsWith>): Entrance => {
    const entrance = opened(holder, session) as Entrance;
    epochs.push(entrance.announcement.epoch);
    return entrance;
  };
  const first = next(process());
  now = 4000;
  // The one before did not leave in order, as far as this one can see.
  const second = next(process());
  first.close();
  expect(follower.find(session)?.announcement).toEqual(second.announcement);
  second.close();
  expect(follower.find(session)).toBeNull();
  next(follower).close();
  next(follower).close();
  now = 9000;
  next(process());
  expect(epochs).toEqual([5000, 5001, 5002, 5003, 9000]);
});

test("looking makes nothing, and a path without a session finds nobody", () => {
  const { folder, session, temporary } = unheld();
  const attachments = attachmentsWith({ temporary, variables: { XDG_RUNTIME_DIR: temporary } });
  expect([attachments.find(session), attachments.find(join(folder, "missing"))]).toEqual([null, null]);
  expect(attachments.open(join(folder, "missing"), () => {})).toBeNull();
  expect([fs.readdirSync(folder), fs.readdirSync(temporary)]).toEqual([["session.jsonl"], []]);
});

test("a holder with nothing else to do ends, and more than 64 at a time are not let in", SYSTEM, async () => {
  const { child } = await other("pass", sessionIn(temporaryFolder()));
  if (child.exitCode === null) await once(child, "exit");
  expect(child.exitCode).toBe(0);
  const { session } = unheld();
  const inside: Duplex[] = [];
  const entrance = attachmentsWith().open(session, (stream) => inside.push(stream.resume()));
  onTestFinished(() => entrance?.close());
  const found = attachmentsWith().find(session);
  const streams = (await Promise.all(Array.from({ length: 65 }, () => found?.connect()))) as Duplex[];
  await Promise.race(streams.map((stream) => once(stream.resume(), "close")));
  expect(streams.filter((stream) => stream.closed).length).toBe(1);
  expect(inside.length).toBe(64);
  const open = streams.filter((stream) => !stream.closed);
  open[0].destroy();
  await once(inside.find((stream) => !stream.readableEnded) as Duplex, "end").catch(() => {});
  for (const stream of [...streams, ...inside]) stream.destroy();
});

test("an answer still reaches who has nothing more to say, and a reset ends no process", async () => {
  const { session } = unheld();
  const entrance = attachmentsWith().open(session, (stream) => {
    stream.on("end", () => setImmediate(() => stream.end("all of it"))).resume();
  });
  onTestFinished(() => entrance?.close());
  const found = attachmentsWith().find(session);
  const stream = (await found?.connect()) as Duplex;
  stream.end("question");
  expect(String((await once(stream, "data"))[0])).toBe("all of it");
  const gone = (await found?.connect()) as Duplex;
  gone.write("x");
  gone.destroy();
});

describe("where a socket can be", () => {
  /** Finds the place of a holder's announcement when nothing can be next to the session. */
  function placed(variables: (runtime: string, base: string) => Record<string, string>, disk?: Partial<Disk>) {
    const base = temporaryFolder();
    const [runtime, temporary, folder] = ["run", "tmp", "sessions"].map((name) => join(base, name));
    for (const path of [runtime, temporary, folder]) fs.mkdirSync(path);
    const session = sessionIn(folder);
    fs.writeFileSync(join(folder, ".pi-session-server"), "in the way");
    const options = { temporary, variables: variables(runtime, base), ownDisk: { ...realDisk, ...disk } as Disk };
    const entrance = opened(attachmentsWith(options), session);
    const files = (path: string): string[] =>
      fs.existsSync(path) ? fs.readdirSync(path).flatMap((name) => fs.readdirSync(join(path, name))) : [];
    return { entrance, options, session, runtime, temporary, inRuntime: files(runtime), inTemporary: files(temporary) };
  }
  const names = [expect.stringMatching(/^[0-9a-f]{24}-\d+\.sock$/), expect.stringMatching(/^[0-9a-f]{24}\.json$/)];

  test.each([
    ["is that of the user's session", "RUNTIME"],
    ["is another where that is not set", undefined],
    ["is another where that is empty", ""],
    ["is another where that is relative", "run"],
    ["is another where that is missing", "BASE/missing"],
    ["is another where that is a file", "BASE/sessions/session.jsonl"],
    ["is another where that cannot be written", "/proc"],
  ])("the next folder for it %s", async (_, path) => {
    const given = placed(
      (runtime, base): Record<string, string> =>
        path === undefined ? {} : { XDG_RUNTIME_DIR: path.replace("RUNTIME", runtime).replace("BASE", base) },
    );
    const { entrance, options, session, runtime, temporary, inRuntime, inTemporary } = given;
    const isNext = path === "RUNTIME";
    expect([inRuntime, inTemporary]).toEqual(isNext ? [names, []] : [[], names]);
    const [folder, name] = isNext ? [runtime, ""] : [temporary, `-${process.getuid?.()}`];
    expect(modeOf(join(folder, `pi-session-server${name}`))).toBe("700");
    await requireHeard(session, options);
    if (isNext) expect(attachmentsWith({ ...options, variables: {} }).find(session)).toBeNull();
    entrance?.close();
    expect(fs.readdirSync(folder)).toEqual([]);
  });

  test("nobody is let in where there is none, and the session can still be used", () => {
    const { entrance, runtime, temporary } = placed((XDG_RUNTIME_DIR) => ({ XDG_RUNTIME_DIR }), {
      inFolder: undefined,
    });
    expect(entrance).toBeNull();
    expect([fs.readdirSync(runtime), fs.readdirSync(temporary)]).toEqual([[], []]);
  });

  test.each(["beside the session", "elsewhere"])("the newest announcement counts, also %s", async (where) => {
    const { folder, session, temporary } = unheld();
    const refuse = (): never => {
      throw Object.assign(new Error("read-only"), { code: "EROFS" });
    };
    const readOnly = { ...realDisk, inFolder: refuse } as Disk;
    const [newer, older] = where === "elsewhere" ? ["disk", "ownDisk"] : ["ownDisk", "disk"];
    // The next holder cannot write where the one before is announced, nor remove anything there.
    const before = opened(attachmentsWith({ temporary, [older]: readOnly, now: () => 1000 }), session);
    const next = opened(attachmentsWith({ temporary, [newer]: readOnly, now: () => 2000 }), session);
    expect([before?.announcement.epoch, next?.announcement.epoch]).toEqual([1000, 2000]);
    expect([listFolder(folder)?.length, fs.readdirSync(temporary).length]).toEqual([2, 1]);
    const found = attachmentsWith({ temporary }).find(session);
    expect(found?.announcement).toEqual(next?.announcement);
    expect(await saidTo(found)).toBe(HEARD);
  });

  test("a folder that others remove while it is empty is made again", async () => {
    const { folder, session } = unheld();
    for (const most of [1, 3]) {
      let removed = 0;
      const inFolder: Disk["inFolder"] = (path, use) =>
        (realDisk.inFolder as NonNullable<Disk["inFolder"]>)(path, (at, held) => {
          if (path.endsWith(".pi-session-server") && removed++ < most) fs.rmSync(path, { recursive: true });
          return use(at, held);
        });
      const temporary = temporaryFolder();
      const entrance = opened(attachmentsWith({ disk: { ...realDisk, inFolder } as Disk, temporary }), session);
      expect([listFolder(folder)?.length, fs.readdirSync(temporary)]).toEqual([2, []]);
      await requireHeard(session);
      entrance?.close();
    }
  });

  const shortensNothing = { ...realDisk, folders: undefined, inFolder: (path, use) => use(path, realDisk) } as Disk;

  test.each([80, 107, 108, 250])("paths of about %i bytes make no difference", async (length) => {
    const base = temporaryFolder();
    // The announcement's name adds 50 bytes to the session's folder.
    const folder = join(base, "é".repeat(Math.max(1, (length - base.length - 50) >> 1)).slice(0, 120));
    fs.mkdirSync(folder);
    const sessions = ["session", "another"].map((name) => sessionIn(folder, "jsonl", name));
    const announced = sessions.map((session) => opened(attachmentsWith(), session)?.announcement);
    expect(sessions.map((session) => attachmentsWith().find(session)?.announcement)).toEqual(announced);
    expect(listFolder(folder)?.length).toBe(4);
    await requireHeard(sessions[1]);
  });

  test.skipIf(process.platform !== "linux")("a path of 107 bytes is listened on, and one of 108 is not", () => {
    const disk = shortensNothing;
    const base = shortFolder();
    opened(attachmentsWith(), sessionIn(base, "jsonl", "probe"));
    const [name = ""] = listFolder(base)?.filter((one) => one.endsWith(".sock")) ?? [];
    const isListenedOn = [107, 108].map((length) => {
      // The names of the next sockets are as long as this one's.
      const folder = join(base, "d".repeat(length - join(base, "/", ".pi-session-server", name).length - 1));
      fs.mkdirSync(folder);
      opened(attachmentsWith({ disk, ownDisk: disk, temporary: join(base, "none") }), sessionIn(folder));
      return listFolder(folder)?.some((one) => one.endsWith(".sock")) ?? false;
    });
    expect(isListenedOn).toEqual([true, false]);
  });

  test("a path that is too long is not listened on where the system cannot shorten it", async () => {
    const disk = shortensNothing;
    const base = shortFolder();
    const folder = join(base, "d".repeat(90));
    fs.mkdirSync(folder);
    const temporary = temporaryFolder();
    const session = sessionIn(folder);
    const entrance = opened(attachmentsWith({ disk, ownDisk: disk, temporary }), session);
    expect(entrance === null).toBe(temporary.length > 40);
    // Nor is a part of it.
    expect([fs.readdirSync(base), fs.readdirSync(folder)]).toEqual([["d".repeat(90)], ["session.jsonl"]]);
    const short = sessionIn(base);
    opened(attachmentsWith({ disk, ownDisk: disk }), short);
    await requireHeard(short);
  });
});

describe("nobody is led astray", () => {
  const PARTS = ["within", "json", "socket"] as const;

  test.each(PARTS)("by a link in the place of the folder, the announcement or the socket (%s)", (part) => {
    const it = held();
    const moved = join(temporaryFolder(), "aside");
    fs.renameSync(it[part], moved);
    fs.symlinkSync(moved, it[part]);
    expect(it.find()).toBeNull();
    // The next holder writes nothing through it either.
    const through = () =>
      part === "within" ? fs.readdirSync(moved) : part === "json" && fs.readFileSync(moved, "utf8");
    const before = through();
    expect(opened(attachmentsWith(), it.session)).not.toBeNull();
    expect(through()).toEqual(before);
  });

  test.each(PARTS)("by what others can write or read (%s)", async (part) => {
    const it = held();
    const mode = fs.lstatSync(it[part]).mode;
    for (const bits of [0o001, 0o010, 0o004, 0o020, 0o022, 0o077]) {
      fs.chmodSync(it[part], mode | bits);
      expect([bits, it.find()]).toEqual([bits, null]);
    }
    fs.chmodSync(it[part], mode);
    expect(await saidTo(it.find())).toBe(HEARD);
  });

  test.each(PARTS)("by what belongs to another user (%s)", needs(ROOT), async (part) => {
    const it = held();
    const found = it.find();
    fs.chownSync(it[part], 12345, 0);
    expect(it.find()).toBeNull();
    if (part !== "json") expect(await saidTo(found)).toBe("EPERM");
    if (part !== "within") return;
    const temporary = temporaryFolder();
    opened(attachmentsWith({ temporary }), it.session);
    await requireHeard(it.session, { temporary });
  });

  test("nor is the holder found or reached by another user", { ...SYSTEM, ...needs(ROOT) }, async () => {
    const { folder, session, socket } = held("jsonl", process.umask(), shortFolder());
    fs.chmodSync(folder, 0o755);
    expect((await other("join", session, 12345)).place).toBe("nobody");
    // Even with everything but the folder open to all.
    fs.chmodSync(socket, 0o777);
    const connect = `process.setgroups([]); process.setuid(12345);
      require("node:net").connect(${JSON.stringify(socket)}).on("error", (e) => console.log(e.code))`;
    const { stdout } = spawnSync(process.execPath, ["-e", connect], { encoding: "utf8" });
    expect(stdout).toBe("EACCES\n");
  });

  test("by a folder for temporary files that somebody made before", needs(ROOT), () => {
    const { folder, session, temporary } = unheld();
    fs.writeFileSync(join(folder, ".pi-session-server"), "");
    const taken = join(temporary, "pi-session-server-0");
    fs.mkdirSync(taken, { mode: 0o700 });
    fs.chownSync(taken, 12345, 12345);
    expect(attachmentsWith({ temporary }).open(session, () => {})).toBeNull();
    expect([fs.readdirSync(taken), fs.lstatSync(taken).uid]).toEqual([[], 12345]);
  });

  test("by an announcement that is no announcement", async () => {
    const { json, find } = held();
    const good = JSON.parse(fs.readFileSync(json, "utf8"));
    const texts = ["", "{", "[]", "null", '"x"', `${JSON.stringify(good)}x`];
    const members = Object.keys(good).flatMap((member) => [undefined, {}].map((value) => ({ [member]: value })));
    const epochs = [-1, 1.5, 2 ** 53, good.epoch + 1, "../../x"].map((epoch) => ({ epoch }));
    const others = [{ more: "x".repeat(5000) }, { token: "short" }, { host: "another kernel" }];
    const wrong = [...members, ...epochs, ...others].map((more) => JSON.stringify({ ...good, ...more }));
    for (const text of [...texts, ...wrong]) {
      fs.writeFileSync(json, text);
      expect([text, find()]).toEqual([text, null]);
    }
    fs.writeFileSync(json, JSON.stringify({ ...good, protocol: 2, more: true }));
    expect(find()?.announcement.protocol).toBe(2);
    fs.rmSync(json);
    fs.mkdirSync(json);
    expect(find()).toBeNull();
  });

  test("by what took the socket's place after the announcement was read", async () => {
    const { socket, find, entrance } = held("jsonl", process.umask(), shortFolder());
    const found = find();
    entrance.close();
    fs.mkdirSync(join(socket, ".."), { mode: 0o700 });
    const trap = createServer((stream) => stream.end("trapped")).listen(`${socket}.other`);
    onTestFinished(() => void trap.close());
    await once(trap, "listening");
    fs.chmodSync(`${socket}.other`, 0o600);
    fs.symlinkSync(`${socket}.other`, socket);
    expect(await saidTo(found)).toBe("EPERM");
  });

  test("by a name that is taken where the socket would be", async () => {
    const { folder, session, temporary } = unheld();
    const within = join(folder, ".pi-session-server");
    fs.mkdirSync(join(within, `${fs.lstatSync(session).ino}-7000.sock`, "deep"), { recursive: true, mode: 0o700 });
    opened(attachmentsWith({ temporary, now: () => 7000 }), session);
    await requireHeard(session, { temporary });
    expect(fs.readdirSync(within).length).toBe(1);
  });
});

describe("where paths are confined", () => {
  function confined(folder: string): Disk {
    const disk = confineDisk(realDisk, { given: [folder], own: [] });
    onTestFinished(() => disk.release());
    return disk;
  }

  test("the holder of a session is found as ever", async () => {
    const { folder, session, temporary } = unheld();
    const entrance = opened(attachmentsWith({ disk: confined(folder) }), session);
    for (const disk of [realDisk, containDisk(realDisk), confined(folder)]) await requireHeard(session, { disk });
    entrance?.close();
    expect(listFolder(folder)).toBeNull();
    const elsewhere = sessionIn(temporaryFolder());
    expect(attachmentsWith({ disk: confined(folder), temporary }).open(elsewhere, () => {})).toBeNull();
    expect(fs.readdirSync(temporary)).toEqual([]);
  });

  test("no link leads out", async () => {
    const { folder, session, temporary } = unheld();
    const outside = temporaryFolder();
    fs.chmodSync(outside, 0o700);
    fs.symlinkSync(outside, join(folder, ".pi-session-server"));
    const options = { disk: confined(folder), temporary };
    opened(attachmentsWith(options), session);
    expect(fs.readdirSync(outside)).toEqual([]);
    await requireHeard(session, options);
  });
});

describe("a disk that fails", () => {
  /** The real disk with one failing operation. */
  const striking = (at: number, code: Stroke) => failingDisk((count) => (count === at ? code : undefined));

  /** Leaves what a holder leaves that dies. */
  function dieHolding(session: string): void {
    const within = join(session, "../.pi-session-server");
    const { ino } = fs.lstatSync(session);
    fs.mkdirSync(within, { mode: 0o700 });
    const fd = fs.openSync(within, "r");
    const server = createServer().listen(`/proc/self/fd/${fd}/${ino}-7.sock`);
    fs.closeSync(fd);
    // Its path leads nowhere any more, so that the socket stays.
    server.close();
    fs.chmodSync(join(within, `${ino}-7.sock`), 0o600);
    const host = fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const dead = { token: "t".repeat(43), epoch: 7, protocol: 1, version: "1", client: "dead", pid: 1, host };
    fs.writeFileSync(join(within, `${ino}.json`), JSON.stringify(dead), { mode: 0o600 });
    fs.writeFileSync(join(within, `${ino}.new`), "half of");
  }

  /** Returns what a descriptor leads to; nothing for the one that the list was read by. */
  function leadsTo(fd: string): string[] {
    try {
      return [fs.readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      return [];
    }
  }

  acrossTiers(test, ["ENOSPC 4", "ENOSPC 1", "ENOENT 1"])(
    "with %s operations leaves nothing that lies",
    async (given) => {
      const [code, step] = given.split(" ");
      // By their targets: descriptors of earlier tests in this process may be closed in between.
      const descriptors = (): string[] => fs.readdirSync("/proc/self/fd").flatMap(leadsTo);
      const met = new Set<string>();
      for (let at = 1; ; at += Number(step)) {
        const { folder, session, temporary } = unheld();
        dieHolding(session);
        const { disk, count, met: where } = striking(at, code as Stroke);
        const before = new Set(descriptors());
        const entrance = opened(attachmentsWith({ disk, ownDisk: disk, temporary }), session);
        const during = count();
        const found = attachmentsWith({ temporary }).find(session);
        if (entrance) {
          expect([at, found?.announcement]).toEqual([at, entrance.announcement]);
          expect([at, await saidTo(found)]).toEqual([at, HEARD]);
        } else expect(["nobody", "ECONNREFUSED"]).toContain(await saidTo(found));
        entrance?.close();
        const after = attachmentsWith({ temporary }).find(session);
        expect(["nobody", "ECONNREFUSED"]).toContain(await saidTo(after));
        met.add(where().split(" ")[3]);
        // Whatever was left, the next holder works and takes it away.
        const next = opened(attachmentsWith({ temporary }), session);
        await requireHeard(session, { temporary });
        next?.close();
        expect([at, fs.readdirSync(folder), fs.readdirSync(temporary)]).toEqual([at, ["session.jsonl"], []]);
        const added = (): string[] => descriptors().filter((one) => !before.has(one));
        // Both ends of a connection close in turns of their own.
        for (let turns = 0; turns < 100 && added().length > 0; turns++) await new Promise(setImmediate);
        expect([at, added()]).toEqual([at, []]);
        if (at > during && at > count()) break;
      }
      if (step === "1")
        expect([...met]).toEqual(
          expect.arrayContaining(["inFolder", "create", "write", "rename", "setMode", "names", "remove"]),
        );
    },
  );

  test("while looking finds the holder or nobody", () => {
    const { session } = held();
    for (let at = 1; ; at++) {
      const { disk, count } = striking(at, "EIO");
      const attachments = attachmentsWith({ disk, ownDisk: disk });
      attachments.find(session);
      if (at > count()) break;
      expect(attachments.find(session)).not.toBeNull();
    }
  });

  test("that is full makes the holder wait elsewhere", async () => {
    const { folder, session, temporary } = unheld();
    const { disk: full } = failingDisk((_, operation) => (operation === "write" ? "ENOSPC" : undefined));
    opened(attachmentsWith({ disk: full, temporary }), session);
    expect(listFolder(folder)).toBeNull();
    await requireHeard(session, { temporary });
    const nowhere = attachmentsWith({ disk: full, ownDisk: full, temporary: temporaryFolder() });
    expect(nowhere.open(session, () => {})).toBeNull();
    expect(listFolder(folder)).toBeNull();
  });
});

test("an announcement with the largest number keeps nobody from being found after it", async () => {
  const { session, json, socket, within, entrance } = held();
  const announcement = JSON.parse(fs.readFileSync(json, "utf8"));
  entrance.abandon();
  const epoch = 2 ** 52 - 1;
  fs.mkdirSync(within, { mode: 0o700, recursive: true });
  fs.writeFileSync(json, JSON.stringify({ ...announcement, epoch }), { mode: 0o600 });
  expect(fs.existsSync(socket)).toBe(false);
  const next = attachmentsWith();
  expect(next.find(session)).toBeNull();
  opened(next, session);
  await requireHeard(session);
});
