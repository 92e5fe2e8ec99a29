/**
 * Sessions of a fleet whose file lacks entries: the disk refuses them, another program has changed or removed the file, or it
 * was lost while the database was away. Acknowledged entries are read all the same, and the file gets them later.
 */

import { existsSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { toBytes } from "../../../src/core/json/json.ts";
import { Session } from "../../../src/core/session/session.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { id, SESSION } from "../../support/lines.ts";
import { isEvery } from "../../support/random.ts";
import { textsOf } from "../../support/sessions.ts";
import { line, lines, written } from "./support/machine.ts";
import { lineOf, Scene } from "./support/scene.ts";
import { entriesOf, FleetServer } from "./support/server.ts";
import { journaled } from "./support/unsent-lines.ts";

type Change = "write" | "create" | "makeFolder" | "sync" | "syncFolder";

/** Has a disk refuse changes, of some paths or of all. Returns what ends that. */
function fill(disk: FaultDisk, names: readonly Change[] = ["write", "create", "makeFolder", "sync", "syncFolder"]) {
  let isOver = false;
  for (const name of names) {
    const change = disk[name].bind(disk) as (...given: unknown[]) => unknown;
    Object.assign(disk, {
      [name]: (...given: unknown[]) => {
        if (!isOver) throw Object.assign(new Error("test: full"), { code: "ENOSPC" });
        return change(...given);
      },
    });
  }
  return () => {
    isOver = true;
  };
}

/** Returns the entries in the file of the first machine, as a program reads them that knows nothing of the fleet. */
const inFile = (scene: Scene): string[] => textsOf(scene.one.plain.open(scene.one.file));

/** Writes bytes at the end of the file of the first machine. */
function addBytes({ one: { disk, file } }: Scene, text: string): void {
  const fd = disk.openAppend(file);
  disk.write(fd, toBytes(text));
  disk.close(fd);
}

describe.each(["jsonl", "v2"] as const)("a copy (%s)", (kind) => {
  /** Containers ask the disk for so much that all of it takes seconds. */
  const step = isEvery() || kind === "jsonl" ? 1 : 11;

  test("has a commit that the fleet has, at whichever operation the disk fails", async () => {
    for (const [before, now, has] of [
      ["", "0", "0"],
      ["writes 0", "1", "0 1"],
    ])
      for (const errno of ["EIO", "ENOSPC"])
        for (let at = 1, isStruck = true; isStruck; at += step) {
          const scene = await new Scene(kind).play(before, `appends ${now}`);
          const { disk } = scene.one;
          disk.set({ kind: "fail", at, errno });
          await scene.log.commit();
          isStruck = disk.struck;
          disk.set(undefined);
          const next = `${Number(now) + 1}`;
          const all = `${has} ${next}`;
          await scene.play(
            `looks; copy ${has}; fleet ${has}; asks; writes ${next}; looks; copy ${all}; fleet ${all}; closes`,
          );
          await scene.play(`leaves; again follows; again copy ${all}; again closes`);
          expect(inFile(scene), `operation ${at} ${errno}`).toEqual(all.split(" ").map(lineOf));
        }
  });

  test("goes on without a file that the disk refuses, and has one when it is closed", async () => {
    const scene = new Scene(kind);
    const { disk, file } = scene.one;
    const end = fill(disk);
    await scene.play("writes 0; writes 1; copy 0 1; fleet 0 1");
    expect(disk.paths().filter((path) => path.startsWith(file))).toEqual([]);
    end();
    scene.log.append([]);
    await scene.play("writes 2; copy 0 1 2; fleet 0 1 2; closes; copy 0 1 2");
  });

  test("has what other machines wrote though the disk refuses it", async () => {
    const scene = await new Scene(kind).play("writes 0; unlocks; elsewhere 0 : 1; leaves");
    const end = fill(scene.one.disk);
    await scene.play("later 5000; follows; copy 0 1; asks; writes 2; copy 0 1 2; fleet 0 1 2");
    end();
    await scene.play("writes 3; closes; copy 0 1 2 3; fleet 0 1 2 3");
  });

  test("keeps what comes behind a first commit apart from it", async () => {
    for (const isRefused of [true, false])
      for (const next of [[], lines(1)]) {
        const scene = new Scene(kind);
        scene.log.append(lines(0));
        if (isRefused) await scene.play("cut");
        const first = scene.log.commit().then(
          () => "done",
          ({ name }) => name,
        );
        scene.log.append(next, { defer: next.length > 0 });
        const second = scene.log.commit().catch(() => {});
        expect(await first).toBe(isRefused ? "storage_failed" : "done");
        await second;
        const all = isRefused ? [] : [line(0), ...(next.length > 0 ? [line(1)] : [])];
        expect([textsOf(scene.log), scene.table.linesOf(SESSION)]).toEqual([all, all]);
        if (!isRefused) expect(inFile(scene)).toEqual(all);
      }
  });

  test("that is begun while the fleet is away is there after a loss of power, at whichever operation the disk failed", async () => {
    for (let at = 1, isStruck = true; isStruck; at += step) {
      const scene = await new Scene(kind, journaled).play("cut; asks");
      const { disk } = scene.one;
      scene.log.append(lines(0));
      disk.set({ kind: "fail", at, errno: "EIO" });
      const error = await scene.log.commit().catch((error: Error) => error);
      isStruck = disk.struck;
      disk.set(undefined);
      if (error) await scene.play("asks", ({ log }) => (log.nodes.count === 0 ? written(log, 0) : log.commit()));
      await scene.play("is local; copy 0; writes 1; leaves; next begins alone after a loss");
      const { machine } = scene.actor("next");
      const [note] = machine.journal.all();
      expect([note.headerLine === undefined, machine.journal.lines(SESSION, machine.file)], `operation ${at}`).toEqual([
        false,
        lines(0, 1),
      ]);
    }
  });

  test("has what was acknowledged alone after a loss of power, while the fleet is still away", async () => {
    const scene = await new Scene(kind, journaled).play("writes 0; cut; writes 1; is local; writes 2");
    await scene.play("next begins alone after a loss; next outage; next cut");
    await scene.actor("next").log.replica?.applyPending();
    await scene.play("next looks; next copy 0 1 2");
  });
});

test("a session that is left goes to what other machines wrote meanwhile, and writes no marker behind it", async () => {
  const scene = await new Scene("jsonl").play("writes 0");
  const session = new Session(scene.log, testEnv(1));
  await scene.play("unlocks; elsewhere 0 : 1; leaves; later 5000; follows");
  await session.suspend();
  expect([session.leafId, scene.table.linesOf(SESSION)]).toEqual([id(1), [0, 1].map(line)]);
});

describe("another program", () => {
  test("that writes before a commit is in the file has its entries as a branch", async () => {
    const scene = await new Scene("jsonl").play("writes 0; appends 1; adds 9<0; commits; looks; copy 0 1; fleet 0 1");
    await scene.play("asks; reopens; asks; copy 0 1 9<0 @1; writes 2<1; fleet 0 1 9<0 @1 2<1; told diverged:9");
  });

  test("that writes while the fleet is away takes nothing from what was acknowledged", async () => {
    const scene = await new Scene("jsonl", journaled).play(
      "writes 0; cut; appends 1; adds 9<0; commits; is local; copy 0 1; asks; writes 2; writes 3; closes",
    );
    await scene.log.replica?.applyPending();
    scene.log.refresh();
    expect(textsOf(scene.log)).toEqual(expect.arrayContaining([0, 1, 2, 3].map(line)));
  });

  test.each(["the database goes away", "the disk is full"])(
    "has its file made anew only as a whole: %s",
    async (what) => {
      const isAway = what !== "the disk is full";
      const scene = await new Scene("jsonl", { isJournaled: isAway }).play("writes 0; appends 1");
      if (isAway) await scene.play("adds 9<0");
      else addBytes(scene, '{"type":"mess');
      await scene.play("commits; copy 0 1; fleet 0 1");
      let takes = 0;
      if (isAway) scene.one.fails((name) => (name === "take" && takes++ === 0 ? undefined : "before"));
      else fill(scene.one.disk);
      await scene.play("finds");
      expect(textsOf(scene.log)).toContain(line(1));
    },
  );

  test("that writes to a file which the disk refuses us loses nothing where others wrote, too", async () => {
    const scene = await new Scene("jsonl", journaled).play("writes 0; cut");
    const { disk, file } = scene.one;
    const write = disk.write.bind(disk);
    let isFull = true;
    disk.write = (fd, ...more) => {
      const isOfSession = disk.infoOf(fd).inode === disk.info(file).inode;
      if (isFull && isOfSession) throw Object.assign(new Error("test"), { code: "EDQUOT" });
      return write(fd, ...more);
    };
    await scene.play("writes 7<0; is local; copy 0 7<0");
    isFull = false;
    await scene.play("adds 9<0; elsewhere 0 : 1; heals; finds; finds");
    expect([...textsOf(scene.log), ...scene.one.quarantined]).toEqual(
      expect.arrayContaining(
        ["0", "1", "7<0", "9<0"].map((word) => expect.stringContaining(id(Number.parseInt(word, 10)))),
      ),
    );
  });
});

test("a commit costs no more the longer the disk refuses", async () => {
  const scene = await new Scene("jsonl").play("writes 0");
  const { disk } = scene.one;
  fill(disk, ["write"]);
  let bytes = 0;
  const { write } = disk;
  disk.write = (fd, given) => {
    bytes += given.length;
    return write.call(disk, fd, given);
  };
  for (let n = 1; n <= 300; n++) await written(scene.log, n);
  const held = [...Array(300).keys()].reduce((sum, n) => sum + line(n + 1).length + 1, 0);
  expect(bytes).toBeLessThan(6 * held);
});

test("a damaged line that is found meanwhile takes nothing from what is read", async () => {
  const scene = await new Scene("jsonl").play("writes 0; writes 1; closes; asks");
  const { disk, file } = scene.one;
  const end = fill(disk);
  await scene.play("writes 2");
  end();
  scene.one.fails(() => "before");
  const bytes = Buffer.from(disk.content(file) as Uint8Array);
  const at = bytes.lastIndexOf("say") - 1;
  const fd = disk.openAppend(file);
  disk.truncate(fd, at);
  disk.write(fd, Buffer.concat([Buffer.from([1]), bytes.subarray(at + 1)]));
  disk.close(fd);
  const session = new Session(scene.log, testEnv(1));
  for (let n = 0; n < 3; n++) {
    session.log.read(1);
    session.refresh();
  }
  expect(session.log.nodes.position(id(2))).toBe(2);
});

test("a repair waits for entries that the file lacks", async () => {
  const scene = await new Scene("jsonl").play("writes 0; unlocks");
  addBytes(scene, "this is damage\n");
  await scene.play("looks; asks");
  const end = fill(scene.one.disk);
  await scene.play("writes 1; copy 0 1");
  expect(() => scene.log.repair()).toThrow(expect.objectContaining({ name: "storage_failed" }));
  end();
  scene.log.repair();
  await scene.play("writes 2; copy 0 1 2; fleet 0 1 2; closes");
  expect(inFile(scene)).toEqual([0, 1, 2].map(line));
});

describe.each(["jsonl", "v2"])("a server (%s)", (store) => {
  const header = (file: string): string => (store === "jsonl" ? file : `${file}/header.jsonl`);
  const removed = (file: string): void => rmSync(file, { recursive: true });
  const emptied = (file: string): void => truncateSync(header(file), 0);
  const zeroed = (file: string): void => writeFileSync(header(file), Buffer.alloc(50));

  test.each([removed, emptied])("fetches a file again that is $name while a commit runs", async (damage) => {
    const one = await new FleetServer(["--store", store], { leasesEnd: true }).start();
    await one.append("one");
    const { sessionFile, sessionId } = await one.state();
    let isDone = false;
    one.fleet.turns = async () => {
      if (!isDone) damage(sessionFile);
      isDone = true;
    };
    for (const entry of ["two", "three", "four", "five"])
      await one.wire.request("append", { entries: entriesOf(entry) });
    const ids = await one.ids();
    expect([ids.slice(0, 2), ids.at(-1)]).toEqual([["one", "two"], "five"]);
    expect([one.inFleet(sessionId), existsSync(sessionFile)]).toEqual([ids, true]);
  });

  test.each([removed, emptied, zeroed])(
    "has a session that is begun alone, and whose file is $name then",
    async (damage) => {
      for (const opens of ["by id", "by path", "by path while the fleet is away"]) {
        const one = await new FleetServer(["--store", store], { isJournaled: true, leasesEnd: true }).start();
        one.loses();
        await one.append("one");
        await one.append("two");
        const { sessionFile, sessionId } = await one.state();
        await one.end();
        damage(sessionFile);
        const isAway = opens.endsWith("away");
        if (!isAway) one.heals();
        await one.start();
        const where = opens === "by id" ? { sessionId } : { sessionPath: sessionFile };
        await one.result("switch_session", where);
        expect(await one.ids(), opens).toEqual(["one", "two"]);
        await one.append("three");
        expect(isAway ? await one.ids() : one.inFleet(sessionId), opens).toEqual(["one", "two", "three"]);
        await one.end();
      }
    },
  );

  test("answers for an entry that is pipelined behind the first one what is true", async () => {
    for (const isAway of [true, false]) {
      const one = await new FleetServer(["--store", store]).start();
      const { sessionId } = await one.state();
      if (isAway) one.loses();
      one.fleet.turns = () => new Promise((done) => setImmediate(done));
      const entries = [{ type: "session_info", name: "a", id: "info" }];
      one.wire.ask(901, "append", { entries: entriesOf("one") });
      one.wire.ask(902, "append", { entries });
      const replies = [await one.wire.reply(901), await one.wire.reply(902)];
      expect(replies.map(({ error }) => error?.data.name)).toEqual(
        Array(2).fill(isAway ? "storage_failed" : undefined),
      );
      one.heals();
      expect(one.inFleet(sessionId)).toEqual(isAway ? [] : ["one", "info"]);
      expect((await one.state()).persisted).toBe(!isAway);
      await one.end();
    }
  });
});
