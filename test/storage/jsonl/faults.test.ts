/**
 * Every disk operation of every change to a session file, failing in every way (reliability cases, guarantee 2). The suite
 * has tests in SWEEP.
 */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { decodeText, isJson, toBytes } from "../../../src/core/json/json.ts";
import type { Session } from "../../../src/core/session/session.ts";
import type { Workspace } from "../../../src/core/session/workspace.ts";
import { becomeWriter } from "../../../src/core/session/writer.ts";
import {
  appendMessages,
  lastsInFolderOfTheDead,
  messageDraft,
  type Scenario,
  withFaults,
} from "../../support/change-faults.ts";
import { type FaultDisk, faultPoints, POWER_CUTS } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { chain, fileText, headerText, id, SESSION, TIME, userText } from "../../support/lines.ts";
import { diskWith, FILE, FOLDER, idsOf, jsonlOn, openOn, textsOf, workspaceOn } from "../../support/sessions.ts";
import { DEATH, ERRORS_AND_SHORT, known, survivesFaults, THREE_IDS } from "../faults.ts";
import { refusing, writeBehind } from "../other-writers.ts";

const v1 = (text: string) => `{"type":"message","timestamp":"${TIME}","message":{"role":"user","content":"${text}"}}`;
const V1 = fileText(`{"type":"session","id":"${SESSION}","timestamp":"${TIME}","cwd":"/"}`, v1("one"), v1("two"));
const V1_IDS = idsOf(openOn(diskWith(V1)).log);
const THREE = fileText(headerText(), ...chain(3));
const TORN = userText(id(9), id(2)).slice(0, 70);
const DAMAGED = fileText(headerText(), ...chain(2), "}{", ...chain(1, 2), "[]");
const NEW = id(30);

/** A new session that has a name already, which waits in memory for the first entry. */
const fresh = (disk: FaultDisk) => workspaceOn(disk, "jsonl").create({ file: FILE, id: SESSION, name: "waiting" });

const onFile = (name: string, content: string, more: Partial<Scenario> = {}): Scenario => ({
  name,
  disk: () => diskWith(content),
  open: (disk) => openOn(disk),
  ids: [NEW],
  change: (session) => appendMessages(session, NEW),
  before: THREE_IDS,
  atLeast: 2,
  ...more,
});

/** Changes the session step by step, each durable before the next. */
const steps =
  (...all: ((session: Session) => unknown)[]) =>
  async (session: Session): Promise<void> => {
    for (const step of all) {
      step(session);
      await session.commit();
    }
  };
const toLeaf = (position: number) => (session: Session) => session.moveLeaf(position);
const label = (targetId: string) => (session: Session) =>
  session.append([{ type: "label", id: NEW, rest: toBytes(`,"targetId":"${targetId}","label":"l"`) }]);

const LEAF_IN_HEADER = THREE.replace('"version"', `"leafId":"${id(1)}","version"`);
const SCENARIOS: Scenario[] = [
  onFile("an append", THREE),
  onFile("an append to a file without last line feed", THREE.slice(0, -1)),
  onFile("an append behind a torn tail", `${THREE}${TORN}`, { atLeast: 8, torn: TORN }),
  onFile("an append to a version 1 file", V1, { before: V1_IDS, atLeast: 8 }),
  onFile("an append under a header with a leaf", LEAF_IN_HEADER, { atLeast: 8 }),
  onFile("an append of three entries", THREE, {
    ids: [id(30), id(31), id(32)],
    change: (session) => appendMessages(session, id(30), id(31), id(32)),
  }),
  onFile("a label", THREE, { change: steps(label(id(0))) }),
  // The label needs a marker before it, so that the file gives the same leaf.
  onFile("a label at another leaf", THREE, { atLeast: 8, change: steps(toLeaf(0), label(id(2))) }),
  onFile("the first append", "", { disk: () => diskWith("", "/elsewhere/x"), open: fresh, before: [], atLeast: 8 }),
  onFile("leaving at another leaf", THREE, {
    ids: [],
    change: async (session) => {
      await steps(toLeaf(1))(session);
      await session.leave();
    },
  }),
];

/** Lines that are whole must parse, whatever happened; what hangs at the end may be torn. */
function checkLines(disk: FaultDisk, at: string): void {
  for (const path of disk.paths().filter((path) => path.startsWith(FOLDER) && path.endsWith(".jsonl"))) {
    const lines = decodeText(disk.content(path) as Uint8Array).split("\n");
    // A torn tail that was there before, and sealed because it could not be cut.
    for (const line of lines.slice(0, -1)) if (line !== "" && !isJson(toBytes(line))) expect(line, at).toBe(TORN);
  }
}

const backups = (disk: FaultDisk) => disk.paths().filter((path) => path.endsWith(".bak"));
const REPRESENTATIVE = ["an append of three entries", "an append behind a torn tail", "the first append"];

survivesFaults({
  name: "jsonl",
  file: FILE,
  three: () => diskWith(THREE),
  open: (disk, seed = 2, file = FILE) => openOn(disk, file, seed),
  scenarios: SCENARIOS,
  shares: (scenario, fault) => (fault !== "death" || REPRESENTATIVE.includes(scenario) ? [1] : [0, 1]),
  forks: [
    ["a fork", 1],
    ["a clone", 2],
  ],
  forkShares: (fault) => (["a short write", "death"].includes(fault) ? [1] : [4, 1]),
  damaged: () => diskWith(DAMAGED),
  repairShares: [1],
  repairedAgain: [12],
  backups,
  openings: [
    ["version 3", () => diskWith(THREE)],
    ["version 1", () => diskWith(V1)],
    ["a torn file", () => diskWith(`${THREE}{"type":"mess`)],
  ],
  checkFiles: (disk, _, at, isRepaired = true) => {
    if (isRepaired) return checkLines(disk, at);
    expect([DAMAGED, THREE], at).toContain(decodeText(disk.content(FILE) as Uint8Array));
    for (const path of backups(disk)) expect(decodeText(disk.content(path) as Uint8Array), at).toBe(DAMAGED);
  },
  places: /^(\/sessions\/project|\/state\/quarantine|\/state\/leaves|\/elsewhere)\/[^/]+(?<!\.tmp)$/,
});

describe("switching from one session to another", () => {
  const OTHER = `${FOLDER}/other.jsonl`;
  const OTHER_TEXT = fileText(headerText({ id: "other" }), ...chain(2));

  /** Both sessions, the first of them current and left at an entry that its file does not give. */
  async function ready(): Promise<{ disk: FaultDisk; workspace: Workspace }> {
    const disk = diskWith(THREE);
    disk.put(OTHER, toBytes(OTHER_TEXT));
    const workspace = workspaceOn(disk, "jsonl");
    await workspace.replace(workspace.open({ sessionPath: FILE }));
    const session = workspace.session();
    session.moveLeaf(0);
    await session.commit();
    return { disk, workspace };
  }

  function check(disk: FaultDisk, at: string): void {
    const session = openOn(disk);
    expect(known(session), at).toEqual(THREE_IDS);
    expect(session.leafId, at).toBe(id(0));
    session.close();
    expect(decodeText(disk.content(OTHER) as Uint8Array), at).toBe(OTHER_TEXT);
    checkLines(disk, at);
  }

  test.each([...ERRORS_AND_SHORT, DEATH])(
    "with %s is done, or the first stays current as it was",
    async (what, faultAt) => {
      const whole = await ready();
      whole.disk.record();
      await whole.workspace.replace(whole.workspace.open({ sessionPath: OTHER }));
      expect(whole.disk.operations.length).toBeGreaterThanOrEqual(what === "a short write" ? 1 : 8);
      for (const at of faultPoints(faultAt(1).kind, whole.disk)) {
        const { disk, workspace } = await ready();
        disk.set(faultAt(at));
        let failure: unknown;
        try {
          await workspace.replace(workspace.open({ sessionPath: OTHER }));
        } catch (error) {
          failure = error;
        }
        const where = `operation ${at} of ${disk.operations.join(" ")}`;
        expect(disk.struck, where).toBe(true);
        if (failure !== undefined) expect(failure, where).toBeInstanceOf(Failure);
        expect(workspace.current?.file, where).toBe(failure === undefined ? OTHER : FILE);
        for (const { disk: after, cut } of what === "death" ? disk.crashes() : [{ disk: disk.after(), cut: undefined }])
          check(after, `${where}, ${JSON.stringify(cut)}`);
        if (what === "death") continue;
        disk.set(undefined);
        if (failure !== undefined) {
          expect(workspace.session().leafId, where).toBe(id(0));
          await workspace.replace(workspace.open({ sessionPath: OTHER }));
        }
        for (const { disk: after, cut } of disk.crashes()) check(after, `${where}, ${JSON.stringify(cut)}`);
      }
    },
  );
});

test("attachments outlast a loss of power with a fork where links are refused", async () => {
  const blob = `blobs/${"a".repeat(64)}`;
  const disk = diskWith(THREE);
  disk.put(`${FILE}.${blob}`, toBytes("attached"));
  disk.link = refusing("EPERM");
  const fork = await workspaceOn(disk, "jsonl").fork(openOn(disk), 2);
  for (const cut of [undefined, ...POWER_CUTS]) {
    const content = disk.after(cut).content(`${fork.file}.${blob}`) as Uint8Array;
    expect(decodeText(content), JSON.stringify(cut)).toBe("attached");
  }
});

test.each([
  ["a repair", DAMAGED, (session: Session) => session.repair(false)],
  ["the first append to an old file", V1, (session: Session) => session.append([messageDraft(NEW)])],
])("%s leaves nothing behind that another program wrote meanwhile, and needs no links", async (_, content, change) => {
  const disk = diskWith(content);
  const session = openOn(disk);
  const theirs = `${userText(id(50), session.leafId, "written meanwhile")}\n`;
  const { syncNow } = disk;
  disk.syncNow = (fd) => {
    writeBehind(disk, FILE, theirs);
    disk.syncNow = syncNow;
    disk.syncNow(fd);
  };
  expect(() => change(session)).toThrow(expect.objectContaining({ name: "storage_failed", retryable: true }));
  expect(disk.paths().filter((path) => /bak|tmp/.test(path))).toEqual([]);
  becomeWriter(session);
  change(session);
  await session.commit();
  expect(textsOf(session.log).filter((text) => text.includes("written meanwhile"))).toHaveLength(1);
  expect(idsOf(openOn(disk.after()).log)).toHaveLength(session.log.nodes.count);

  for (const code of ["EPERM", "ENOTSUP", "EXDEV"]) {
    const linkless = diskWith(content);
    linkless.link = refusing(code);
    const other = openOn(linkless);
    change(other);
    await other.commit();
    const [kept, ...more] = backups(linkless);
    expect(more).toEqual([]);
    for (const cut of [undefined, ...POWER_CUTS])
      expect(decodeText(linkless.after(cut).content(kept) as Uint8Array)).toBe(content);
    expect(other.log.nodes.count).toBeGreaterThan(2);
  }
});

describe("a look in the middle of another program's write, when its time is there and its size is not", () => {
  test.each([1, 5])("waits for the rest of it (%i looks)", async (looks) => {
    const disk = diskWith(THREE);
    const session = openOn(disk);
    session.append([messageDraft(NEW)]);
    const { info } = disk;
    let left = looks;
    disk.info = (path) => {
      const now = info.call(disk, path);
      if (path !== FILE || left < 0) return now;
      if (left-- > 0) return { ...now, modified: now.modified + 1 };
      writeBehind(disk, FILE, `${userText(id(50), NEW)}\n`);
      return info.call(disk, path);
    };
    // Before the entry of ours is durable nothing can be opened anew.
    expect(becomeWriter(session)).toBe("writer");
    expect(session.externalChanges.fresh()).toEqual({ lost: 0, positions: [4] });
    await session.commit();
    expect(idsOf(openOn(disk.after()).log)).toEqual([...THREE_IDS, NEW, id(50)]);
  });

  test("takes a file whose time stays another for one that was written anew", () => {
    const disk = diskWith(THREE);
    const session = openOn(disk);
    const { info } = disk;
    disk.info = (path) => ({ ...info.call(disk, path), modified: 1e6 });
    expect(session.log.refresh()).toEqual({ kind: "replaced" });
  });
});

describe("moving the leaf", () => {
  const leafIn = (disk: FaultDisk) => openOn(disk.after()).leafId;

  /** A session whose leaf was moved, durably. */
  async function movedTo(position: number): Promise<{ disk: FaultDisk; session: Session }> {
    const disk = diskWith(THREE);
    const session = openOn(disk);
    await steps(toLeaf(position))(session);
    return { disk, session };
  }

  test.each(ERRORS_AND_SHORT)("with %s is done, or the leaf is where it was", async (_, faultAt) => {
    const scenario = onFile("moving the leaf", THREE, { ids: [], atLeast: 6, change: steps(toLeaf(0)) });
    await withFaults(scenario, faultAt, async ({ disk, session, failure, at }) => {
      expect(session.leafId, at).toBe(failure === undefined ? id(0) : id(2));
      expect(decodeText(disk.content(FILE) as Uint8Array), at).toBe(THREE);
      await session.commit();
      expect(leafIn(disk), at).toBe(session.leafId);
      await steps(toLeaf(1))(session);
      expect(leafIn(disk), at).toBe(id(1));
      for (const { disk: after, cut } of disk.crashes())
        expect(leafIn(after), `${at}, ${JSON.stringify(cut)}`).toBe(id(1));
    });
  });

  test.each([0, 1, 3])("by dying keeps the place that was acknowledged last, with %i entries", async (count) => {
    for (let at = 1, struck = true; struck; at++) {
      const { disk, session } = await movedTo(0);
      disk.set({ kind: "die", at });
      const ids = [id(30), id(31), id(32)].slice(0, count);
      const change = async (): Promise<void> => {
        if (count > 0) session.append(ids.map(messageDraft));
        await steps(toLeaf(1))(session);
      };
      const done = await change().then(
        () => true,
        () => false,
      );
      struck = disk.struck;
      for (const { disk: left, cut } of disk.crashes()) {
        const after = openOn(left);
        const where = `operation ${at} of ${disk.operations.join(" ")}, ${JSON.stringify(cut)}`;
        const isThere = ids.every((entryId) => after.log.nodes.position(entryId) >= 0);
        const before = count === 0 || !isThere ? [id(0)] : ids.slice(-1);
        expect(done ? [id(1)] : isThere ? [...before, id(1)] : before, where).toContain(after.leafId);
        after.close();
      }
    }
  });

  test("is as before when the record's own folder cannot be made durable, for the next process, too", async () => {
    const { disk, session } = await movedTo(1);
    disk.syncFolder = async () => refusing()();
    session.moveLeaf(0);
    await expect(session.commit()).rejects.toMatchObject({ name: "storage_failed" });
    expect([session.leafId, leafIn(disk)]).toEqual([id(1), id(1)]);
  });

  test.each(["fail", "short"] as const)("is remembered when an append after it fails (%s)", async (kind) => {
    for (let at = 1; ; at++) {
      const { disk, session } = await movedTo(0);
      disk.set({ kind, at, errno: "EIO" });
      const failure = await appendMessages(session, NEW).catch((error: unknown) => error);
      const operations = disk.operations.join(" ");
      if (disk.operations.length < at) break;
      disk.set(undefined);
      if (failure === undefined) continue;
      await session.keepPosition();
      expect([session.leafId, leafIn(disk)], operations).toEqual([id(0), id(0)]);
    }
  });
});

test("a file whose beginning could not be read after it was made is never taken for the one that is known", async () => {
  const disk = diskWith("", "/elsewhere/x");
  const session = fresh(disk);
  const { read } = disk;
  disk.read = refusing();
  await appendMessages(session, id(30));
  disk.read = read;
  await appendMessages(session, id(31));
  const known = decodeText(disk.content(FILE) as Uint8Array);
  // Another program changes an entry in its place, and adds one.
  writeBehind(disk, FILE, `${known.replace("waiting", "changed")}${userText(id(9), id(31))}\n`, 0);
  expect(session.log.refresh()).toEqual({ kind: "replaced" });
});

test("what dead processes left of files is taken away after a day, when a session is made beside it", async () => {
  const DAY = 24 * 3600_000;
  const makers = [
    (disk: FaultDisk) => appendMessages(workspaceOn(disk, "jsonl").create(), NEW),
    (disk: FaultDisk) => workspaceOn(disk, "jsonl").fork(openOn(disk), 2),
  ];
  for (const make of makers) {
    const disk = diskWith(THREE);
    const now = testEnv().now();
    const put = (name: string, age: number): string => {
      disk.clock = () => now - age;
      disk.put(`${FOLDER}/${name}`, toBytes("half"));
      return `${FOLDER}/${name}`;
    };
    put(".a.jsonl.77-1.tmp", DAY);
    const kept = [put(".b.jsonl.77-2.tmp", DAY / 2), put(".c.tmp", 2 * DAY), put("d.jsonl.77-1.tmp", 2 * DAY)];
    await make(disk);
    expect(disk.paths().filter((path) => path.endsWith(".tmp"))).toEqual(kept);
    expect(decodeText(disk.content(FILE) as Uint8Array)).toBe(THREE);
  }
});

lastsInFolderOfTheDead(`${FOLDER}/new/session.jsonl`, (disk) => jsonlOn(disk));

test("entries that cannot be cut off after a commit that failed are not said to be nowhere", async () => {
  const disk = diskWith(THREE);
  const { log } = openOn(disk);
  const { sync, truncate } = disk;
  Object.assign(disk, { sync: async () => refusing()(), truncate: refusing() });
  log.append([toBytes(userText(NEW, id(2)))]);
  const failure = await log.commit().catch((error) => error);
  expect(failure).toMatchObject({ name: "outcome_unknown", retryable: true });
  expect(failure.message).not.toContain("Nothing was changed");
  Object.assign(disk, { sync, truncate });
  log.append([toBytes(userText(id(31), id(2)))]);
  await log.commit();
  expect(idsOf(log).at(-1)).toBe(id(31));
  expect(idsOf(openOn(disk.after()).log)).toEqual(idsOf(log));
});
