/**
 * Every disk operation of every change, failing in every way: an acknowledged change is there afterwards, a refused
 * one is nowhere, and the next change works (reliability cases, guarantee 2).
 */

import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import type { Draft } from "../../../src/core/format/entry.ts";
import { bytesOf, isJson, textOf } from "../../../src/core/json/json.ts";
import type { Session } from "../../../src/core/session/session.ts";
import type { Workspace } from "../../../src/core/session/workspace.ts";
import {
  appendMessages,
  type Left,
  lastsInFolderOfTheDead,
  messageDraft,
  requireKept,
  requireLasting,
  requireOutcome,
  type Scenario,
  withFaults,
} from "../../support/change-faults.ts";
import { type Fault, type FaultDisk, faultPoints, POWER_CUTS } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { chain, fileText, headerText, id, SESSION, TIME, userText } from "../../support/lines.ts";
import { isEvery } from "../../support/random.ts";
import { repairAgainAfterFaults } from "../../support/repair-faults.ts";
import {
  diskWith,
  FILE,
  FOLDER,
  idsOf,
  jsonlOn,
  openOn,
  QUARANTINE,
  textsOf,
  workspaceOn,
} from "../../support/sessions.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";

const label = (entryId: string, targetId: string): Draft => ({
  type: "label",
  id: entryId,
  rest: bytesOf(`,"targetId":"${targetId}","label":"l"`),
});

const v1 = (text: string) => `{"type":"message","timestamp":"${TIME}","message":{"role":"user","content":"${text}"}}`;
const V1 = fileText(`{"type":"session","id":"${SESSION}","timestamp":"${TIME}","cwd":"/"}`, v1("one"), v1("two"));
const V1_IDS = idsOf(openOn(diskWith(V1)).log);
const THREE = fileText(headerText(), ...chain(3));
const THREE_IDS = [id(0), id(1), id(2)];
const TORN = userText(id(9), id(2)).slice(0, 70);
const NEW = id(30);

/** A new session that has a name already, which waits in memory for the first entry. */
function fresh(disk: FaultDisk): Session {
  return workspaceOn(disk, "jsonl").create({ file: FILE, id: SESSION, name: "waiting" });
}

const onFile = (name: string, content: string, before: readonly string[], atLeast = 2): Scenario => ({
  name,
  disk: () => diskWith(content),
  open: (disk) => openOn(disk),
  ids: [NEW],
  change: (session) => appendMessages(session, NEW),
  before,
  atLeast,
});

const SCENARIOS: Scenario[] = [
  onFile("an append", THREE, THREE_IDS),
  onFile("an append to a file without last line feed", THREE.slice(0, -1), THREE_IDS),
  { ...onFile("an append behind a torn tail", `${THREE}${TORN}`, THREE_IDS, 8), torn: TORN },
  onFile("an append to a version 1 file", V1, V1_IDS, 8),
  onFile(
    "an append under a header with a leaf",
    THREE.replace('"version"', `"leafId":"${id(1)}","version"`),
    THREE_IDS,
    8,
  ),
  {
    ...onFile("an append of three entries", THREE, THREE_IDS),
    ids: [id(30), id(31), id(32)],
    change: (session) => appendMessages(session, id(30), id(31), id(32)),
  },
  {
    ...onFile("a label", THREE, THREE_IDS),
    change: async (session) => {
      session.append([label(NEW, id(0))]);
      await session.commit();
    },
  },
  {
    // The label needs a marker before it, so that the file gives the same leaf.
    ...onFile("a label at another leaf", THREE, THREE_IDS, 8),
    change: async (session) => {
      session.moveLeaf(0);
      await session.commit();
      session.append([label(NEW, id(2))]);
      await session.commit();
    },
  },
  {
    name: "the first append",
    disk: () => diskWith("", "/elsewhere/x"),
    open: fresh,
    ids: [NEW],
    change: (session) => appendMessages(session, NEW),
    before: [],
    atLeast: 8,
  },
  {
    ...onFile("leaving at another leaf", THREE, THREE_IDS),
    ids: [],
    change: async (session) => {
      session.moveLeaf(1);
      await session.commit();
      await session.leave();
    },
  },
];

/** Lines that are whole must parse, whatever happened; what hangs at the end may be torn. */
function checkLines(disk: FaultDisk, at: string): void {
  for (const path of disk.paths().filter((path) => path.startsWith(FOLDER) && path.endsWith(".jsonl"))) {
    const bytes = Buffer.from(disk.content(path) as Uint8Array);
    let start = 0;
    for (let end = bytes.indexOf(0x0a); end >= 0; end = bytes.indexOf(0x0a, start)) {
      const line = bytes.subarray(start, end);
      // A torn tail that was there before, and sealed because it could not be cut.
      if (line.length > 0 && !isJson(line)) expect(line.toString(), at).toBe(userText(id(9), id(2)).slice(0, 70));
      start = end + 1;
    }
  }
}

/** The entries of the session as the next process finds them. */
function found(disk: FaultDisk): string[] {
  const session = openOn(disk.after());
  const ids = idsOf(session.log).filter((_, position) => session.tree.isVisible(position));
  session.close();
  return ids;
}

function isThere(disk: FaultDisk): boolean {
  return disk.content(FILE) !== undefined;
}

/** Entries of a session in memory; what waits for the first append is in no file. */
function known(session: Session): string[] {
  return idsOf(session.log).filter((_, position) => session.tree.isVisible(position));
}

/** Places at which a change failed: the next one fails at those of its own only, and at all in the long runs. */
const PLACES = new Set<string>();

const failing =
  (...errnos: string[]) =>
  (at: number): Fault => ({ kind: "fail", at, errno: errnos[at % errnos.length] });

/** Both errors at every operation in the long runs; else they take turns, for only the name of the failure tells them apart. */
const ERRORS: [string, (at: number) => Fault][] = isEvery()
  ? [
      ["ENOSPC", failing("ENOSPC")],
      ["EIO", failing("EIO")],
    ]
  : [["ENOSPC or EIO", failing("ENOSPC", "EIO")]];

describe.each(SCENARIOS.map((scenario) => [scenario.name, scenario] as const))("%s", (_, scenario) => {
  describe.each([...ERRORS, ["a short write", (at: number): Fault => ({ kind: "short", at, errno: "ENOSPC" })]])(
    "with %s",
    (_name, faultAt) => {
      test("is done or not done, memory is what the file is, and the next change works and leaves no litter", async () => {
        const check = async (left: Left): Promise<void> => {
          const { disk, session, operation, at } = left;
          const ids = known(session);
          requireOutcome(left, scenario, ids);
          if (session.log.persisted) expect(found(disk), at).toEqual(ids);
          else expect(isThere(disk), at).toBe(false);
          expect(session.tree.entryCount).toBe(ids.length);
          checkLines(disk, at);

          await appendMessages(session, id(40));
          await appendMessages(session, id(41), id(42));
          const after = [...ids, id(40), id(41), id(42)];
          expect(known(session), at).toEqual(after);
          for (const { disk: next } of disk.lasting()) expect(found(next), at).toEqual(after);
          checkLines(disk, at);

          session.close();
          expect(disk.openCount, at).toBe(0);
          // A removal that fails may leave what it was to remove.
          if (operation === "remove") return;
          const expected = [FOLDER, QUARANTINE, "/state/leaves", "/elsewhere"];
          for (const path of disk.paths()) {
            expect(path, at).not.toMatch(/\.tmp$/);
            expect(expected, at).toContain(dirname(path));
          }
          expect(disk.paths().filter((path) => path.includes(".bak")).length, at).toBeLessThanOrEqual(1);
        };
        await withFaults(scenario, faultAt, check, PLACES);
      });
    },
  );

  const isRepresentative = ["an append", "an append behind a torn tail", "the first append"].includes(scenario.name);
  const tier = isRepresentative ? {} : SWEEP;

  test("by dying keeps what was acknowledged, and the next process goes on", tier, async () => {
    const seen = new Set<string>();
    await withFaults(
      scenario,
      (at) => ({ kind: "die", at }),
      async ({ disk, acknowledged, at }) => {
        for (const { disk: after, cut } of disk.remains(seen, acknowledged.join())) {
          const where = `${at}, ${JSON.stringify(cut)}`;
          if (!isThere(after)) {
            expect([scenario.before, acknowledged], where).toEqual([[], []]);
            continue;
          }
          checkLines(after, where);
          const session = openOn(after, FILE, 5);
          const ids = known(session);
          for (const entryId of [...scenario.before, ...acknowledged]) expect(ids, where).toContain(entryId);
          requireKept(after, scenario, where);
          const extra = ids.filter(
            (entryId) =>
              !scenario.before.includes(entryId) && session.log.nodes.type(session.position(entryId)) === "message",
          );
          // All of an append or nothing of it.
          expect([0, scenario.ids.length], where).toContain(extra.length);
          await requireLasting(after, (disk) => openOn(disk, FILE, 6), known, where);
          await appendMessages(session, id(40));
          // What the dead one left is as durable now as what came after it.
          for (const { disk: last } of after.lasting()) {
            expect(found(last), where).toEqual([...ids, id(40)]);
            requireKept(last, scenario, where);
          }
          session.close();
        }
      },
    );
  });
});

describe.each([
  ["a fork", 1],
  ["a clone", 2],
])("%s", (_name, end) => {
  const scenario: Scenario = { ...onFile("a fork", THREE, THREE_IDS, 8), ids: [], change: async () => {} };

  const others = (disk: FaultDisk) =>
    disk.paths().filter((path) => path !== FILE && path.endsWith(".jsonl") && !path.startsWith("/state/"));

  function checkWhole(disk: FaultDisk, path: string, at: string): void {
    const session = openOn(disk, path);
    expect([textsOf(session.log), session.diagnostics], at).toEqual([chain(end + 1), []]);
    session.close();
  }

  interface Forked extends Left {
    /** The fork, if it was acknowledged. */
    readonly file: string | undefined;
    readonly again: () => Promise<string>;
  }

  async function eachFault(
    faultAt: (at: number) => Fault,
    check: (left: Forked) => Promise<void>,
    ofMany = 1,
  ): Promise<void> {
    let file: string | undefined;
    let workspace: Workspace;
    const disk = (): FaultDisk => {
      const made = scenario.disk();
      workspace = workspaceOn(made, "jsonl");
      return made;
    };
    const fork = async (session: Session): Promise<string> => {
      const forked = await workspace.fork(session, end);
      forked.close();
      return forked.file as string;
    };
    const change = async (session: Session): Promise<void> => {
      file = undefined;
      file = await fork(session);
    };
    const checkForked = (left: Left) => check({ ...left, file, again: () => fork(left.session) });
    await withFaults({ ...scenario, disk, change }, faultAt, checkForked, undefined, ofMany);
  }

  const FORK_FAULTS = [
    ...ERRORS,
    ["a short write", (at: number): Fault => ({ kind: "short", at, errno: "EIO" })],
  ] as const;

  for (const [name, faultAt] of FORK_FAULTS)
    acrossTiers(test, name === "a short write" ? [1] : [4, 1])(
      `with ${name} is there, whole, or leaves nothing, and can be tried again (one of %i)`,
      async (ofMany) => {
        await eachFault(
          faultAt,
          async ({ disk, session, file, operation, again, at }) => {
            expect(others(disk), at).toEqual(file === undefined ? [] : [file]);
            if (file !== undefined) checkWhole(disk, file, at);
            expect(textOf(disk.content(FILE) as Uint8Array), at).toBe(THREE);
            checkWhole(disk, await again(), at);
            session.close();
            expect(disk.openCount, at).toBe(0);
            if (operation !== "remove")
              expect(
                disk.paths().filter((path) => path.endsWith(".tmp")),
                at,
              ).toEqual([]);
          },
          ofMany,
        );
      },
    );

  test("by dying is there, whole, or not at all, and what was acknowledged is there", async () => {
    await eachFault(
      (at) => ({ kind: "die", at }),
      async ({ disk, file, at }) => {
        for (const { disk: after, cut } of disk.remains()) {
          const where = `${at}, ${JSON.stringify(cut)}`;
          expect(textOf(after.content(FILE) as Uint8Array), where).toBe(THREE);
          for (const path of others(after)) checkWhole(after, path, where);
          if (file !== undefined) expect(others(after), where).toEqual([file]);
        }
      },
    );
  });
});

describe("switching from one session to another", () => {
  const OTHER = `${FOLDER}/other.jsonl`;
  const OTHER_TEXT = fileText(headerText({ id: "other" }), ...chain(2));

  /** Both sessions, the first of them current and left at an entry that its file does not give. */
  async function ready(): Promise<{ disk: FaultDisk; workspace: Workspace }> {
    const disk = diskWith(THREE);
    disk.put(OTHER, bytesOf(OTHER_TEXT));
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
    expect(textOf(disk.content(OTHER) as Uint8Array), at).toBe(OTHER_TEXT);
    checkLines(disk, at);
  }

  test.each([
    ...ERRORS,
    ["a short write", (at: number): Fault => ({ kind: "short", at, errno: "EIO" })],
    ["death", (at: number): Fault => ({ kind: "die", at })],
  ])("with %s at any operation is done, or the first stays current as it was", async (what, faultAt) => {
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
      for (const { disk: after, cut } of what === "death" ? disk.remains() : [{ disk: disk.after(), cut: undefined }])
        check(after, `${where}, ${JSON.stringify(cut)}`);
      if (what === "death") continue;
      disk.set(undefined);
      if (failure !== undefined) {
        expect(workspace.session().leafId, where).toBe(id(0));
        await workspace.replace(workspace.open({ sessionPath: OTHER }));
      }
      for (const { disk: after, cut } of disk.remains()) check(after, `${where}, ${JSON.stringify(cut)}`);
    }
  });
});

describe("the attachments of a fork", () => {
  const NAME = "a".repeat(64);
  const blobs = `${FILE}.blobs/${NAME}`;
  const withBlob = (): FaultDisk => {
    const disk = diskWith(THREE);
    disk.put(blobs, bytesOf("attached"));
    return disk;
  };
  const shared = (disk: FaultDisk) => disk.paths().filter((path) => path.endsWith(NAME) && path !== blobs);

  test("outlast a loss of power with it", async () => {
    const disk = withBlob();
    const fork = await workspaceOn(disk, "jsonl").fork(openOn(disk), 2);
    for (const cut of POWER_CUTS) {
      const after = disk.after(cut);
      expect(textOf(after.content(`${fork.file}.blobs/${NAME}`) as Uint8Array), JSON.stringify(cut)).toBe("attached");
    }
  });

  test("are there where links are refused", async () => {
    const disk = withBlob();
    disk.link = () => {
      throw Object.assign(new Error("EPERM"), { code: "EPERM" });
    };
    const fork = await workspaceOn(disk, "jsonl").fork(openOn(disk), 2);
    expect(textOf(disk.content(`${fork.file}.blobs/${NAME}`) as Uint8Array)).toBe("attached");
  });

  test("go away with one that fails, and only then", async () => {
    for (let at = 1, struck = true; struck; at++) {
      const disk = withBlob();
      const workspace = workspaceOn(disk, "jsonl");
      const source = openOn(disk);
      disk.set({ kind: "fail", at, errno: "EIO" });
      const fork = await workspace.fork(source, 2).catch(() => undefined);
      const operations = disk.operations.join(" ");
      struck = disk.struck;
      if (/(remove|removeFolder)$/.test(disk.operations[at - 1] ?? "")) continue;
      disk.set(undefined);
      expect(disk.names(FOLDER).filter((name) => !name.startsWith("session.jsonl")).length, operations).toBe(
        fork ? 2 : 0,
      );
      expect(shared(disk), operations).toHaveLength(fork ? 1 : 0);
    }
  });
});

describe("a repair", () => {
  const damaged = fileText(headerText(), ...chain(2), "}{", ...chain(1, 2), "[]");
  const scenario: Scenario = {
    ...onFile("a repair", damaged, THREE_IDS, 8),
    ids: [],
    change: async (session) => {
      session.log.repair();
      // What was renamed is durable with its folder.
      await session.commit();
    },
  };

  async function check({ disk, at }: { disk: FaultDisk; at: string }): Promise<void> {
    const content = textOf(disk.content(FILE) as Uint8Array);
    expect([damaged, THREE], at).toContain(content);
    expect(found(disk), at).toEqual(THREE_IDS);
    const kept = disk.paths().filter((path) => path.endsWith(".bak"));
    for (const path of kept) expect(textOf(disk.content(path) as Uint8Array), at).toBe(damaged);
    if (content === THREE) expect(kept, at).toHaveLength(1);
  }

  test.each([...ERRORS, ["a short write", (at: number): Fault => ({ kind: "short", at, errno: "ENOSPC" })]])(
    "with %s is done, or the file is as it was",
    async (_, faultAt) => {
      await withFaults(scenario, faultAt, async ({ disk, session, failure, at }) => {
        if (failure !== undefined) expect(failure, at).toBeInstanceOf(Failure);
        await check({ disk, at });
        session.close();
        const again = openOn(disk);
        again.log.repair();
        again.close();
        expect(textOf(disk.content(FILE) as Uint8Array), at).toBe(THREE);
        await check({ disk, at });
        expect(disk.openCount, at).toBe(0);
      });
    },
  );

  test("by dying leaves one of the two", async () => {
    await withFaults(
      scenario,
      (at) => ({ kind: "die", at }),
      async ({ disk, at }) => {
        for (const { disk: after, cut } of disk.remains())
          await check({ disk: after, at: `${at}, ${JSON.stringify(cut)}` });
      },
    );
  });

  test("that was answered outlasts a loss of power, and so does one that is asked for again", async () => {
    const disk = diskWith(damaged);
    const session = openOn(disk);
    expect(session.repair(false).backupPath).not.toBeNull();
    await session.commit();
    for (const cut of POWER_CUTS) expect(textOf(disk.after(cut).content(FILE) as Uint8Array)).toBe(THREE);
    await repairAgainAfterFaults(
      () => diskWith(damaged),
      openOn,
      (failing, operations) => {
        for (const { disk: after } of failing.remains())
          expect(textOf(after.content(FILE) as Uint8Array), operations).toBe(THREE);
        expect(failing.paths().filter((path) => path.includes(".bak")).length, operations).toBe(1);
      },
    );
  });

  test.each([
    ["a repair", damaged, (session: Session) => session.repair(false)],
    ["the first append to an old file", V1, (session: Session) => session.append([messageDraft(NEW)])],
  ])("%s does not leave behind what another program wrote meanwhile", async (_, content, change) => {
    const disk = diskWith(content);
    const session = openOn(disk);
    const theirs = bytesOf(`${userText(id(50), session.leafId, "written meanwhile")}\n`);
    const { syncNow } = disk;
    disk.syncNow = (fd) => {
      const writer = disk.openAppend(FILE);
      disk.write(writer, theirs);
      disk.close(writer);
      disk.syncNow = syncNow;
      disk.syncNow(fd);
    };
    expect(() => change(session)).toThrow(expect.objectContaining({ name: "storage_failed", retryable: true }));
    expect(disk.paths().filter((path) => /bak|tmp/.test(path))).toEqual([]);
    session.refreshToWrite();
    change(session);
    await session.commit();
    expect(textsOf(session.log).filter((text) => text.includes("written meanwhile"))).toHaveLength(1);
    expect(found(disk)).toHaveLength(session.log.nodes.count);
  });

  test.each(["EPERM", "ENOTSUP", "EXDEV"])("works where links are refused with %s", async (code) => {
    for (const [content, change] of [
      [damaged, (session: Session) => void session.repair(false)],
      [V1, (session: Session) => void session.append([messageDraft(NEW)])],
    ] as const) {
      const disk = diskWith(content);
      disk.link = () => {
        throw Object.assign(new Error(code), { code });
      };
      const session = openOn(disk);
      change(session);
      await session.commit();
      const [kept, ...more] = disk.paths().filter((path) => path.endsWith(".bak"));
      expect(more).toEqual([]);
      for (const cut of [undefined, ...POWER_CUTS])
        expect(textOf(disk.after(cut).content(kept) as Uint8Array)).toBe(content);
      expect(session.log.nodes.count).toBeGreaterThan(2);
    }
  });
});

describe("a look in the middle of another program's write, when its time is there and its size is not", () => {
  test.each([1, 5])("waits for the rest of it (%i looks)", async (looks) => {
    const disk = diskWith(THREE);
    const session = openOn(disk);
    session.append([messageDraft(NEW)]);
    const line = bytesOf(`${userText(id(50), NEW)}\n`);
    const { info } = disk;
    let left = looks;
    disk.info = (path) => {
      const now = info.call(disk, path);
      if (path !== FILE || left < 0) return now;
      if (left-- > 0) return { ...now, modified: now.modified + 1 };
      const writer = disk.openAppend(FILE);
      disk.write(writer, line);
      disk.close(writer);
      return info.call(disk, path);
    };
    // Before the entry of ours is durable nothing can be opened anew.
    expect(session.refreshToWrite()).toMatchObject({ lost: 0, positions: [4] });
    await session.commit();
    expect(found(disk)).toEqual([...THREE_IDS, NEW, id(50)]);
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
  const scenario: Scenario = {
    ...onFile("moving the leaf", THREE, THREE_IDS, 6),
    open: (disk) => openOn(disk),
    ids: [],
    change: async (session) => {
      session.moveLeaf(0);
      await session.commit();
    },
  };
  const leafIn = (disk: FaultDisk) => openOn(disk.after()).leafId;

  test.each([...ERRORS, ["a short write", (at: number): Fault => ({ kind: "short", at, errno: "EIO" })]])(
    "with %s is done, or the leaf is where it was",
    async (_, faultAt) => {
      await withFaults(scenario, faultAt, async ({ disk, session, failure, at }) => {
        expect(session.leafId, at).toBe(failure === undefined ? id(0) : id(2));
        expect(textOf(disk.content(FILE) as Uint8Array), at).toBe(THREE);
        await session.commit();
        expect(leafIn(disk), at).toBe(session.leafId);
        session.moveLeaf(1);
        await session.commit();
        expect(leafIn(disk), at).toBe(id(1));
        for (const { disk: after, cut } of disk.remains())
          expect(leafIn(after), `${at}, ${JSON.stringify(cut)}`).toBe(id(1));
      });
    },
  );

  test("by dying keeps the place that was acknowledged last", async () => {
    const moved = async (disk: FaultDisk): Promise<Session> => {
      const session = openOn(disk);
      session.moveLeaf(1);
      await session.commit();
      return session;
    };
    for (let at = 1; ; at++) {
      const disk = diskWith(THREE);
      const session = await moved(disk);
      disk.set({ kind: "die", at });
      session.moveLeaf(0);
      const done = await session.commit().then(
        () => true,
        () => false,
      );
      if (!disk.struck) break;
      for (const { disk: after, cut } of disk.remains()) {
        const leaf = leafIn(after);
        const where = `operation ${at} of ${disk.operations.join(" ")}, ${JSON.stringify(cut)}`;
        if (done) expect(leaf, where).toBe(id(0));
        else expect([id(0), id(1)], where).toContain(leaf);
      }
      expect(at).toBeLessThan(30);
    }
  });

  test("keeps the place that was acknowledged last, whatever a change after it left when the process or the power went", async () => {
    for (let at = 1, struck = true; struck; at++)
      for (const count of [1, 3]) {
        const disk = diskWith(THREE);
        const session = openOn(disk);
        session.moveLeaf(0);
        await session.commit();
        disk.set({ kind: "die", at });
        const ids = [id(30), id(31), id(32)].slice(0, count);
        try {
          session.append(ids.map(messageDraft));
          session.moveLeaf(1);
          await session.commit();
        } catch {
          // It is dead.
        }
        struck = disk.struck;
        for (const { disk: remains, cut } of disk.remains()) {
          const after = openOn(remains);
          const where = `operation ${at} of ${disk.operations.join(" ")}, ${JSON.stringify(cut)}`;
          const allowed = after.log.nodes.position(ids[0]) < 0 ? [id(0)] : [ids.at(-1), id(1)];
          if (!struck) expect(after.leafId, where).toBe(id(1));
          expect(allowed, where).toContain(after.leafId);
          after.close();
        }
      }
  });

  test("is forgotten once others have continued the file, and where other entries stand", async () => {
    const disk = diskWith(THREE);
    const session = openOn(disk);
    session.moveLeaf(0);
    await session.commit();
    expect(leafIn(disk)).toBe(id(0));
    const writer = disk.openAppend(FILE);
    disk.write(writer, bytesOf(`${userText(id(9), id(2))}\n`));
    disk.close(writer);
    expect(leafIn(disk)).toBe(id(9));
  });

  test("is as before when the record's own folder cannot be made durable, for the next process, too", async () => {
    const disk = diskWith(THREE);
    const session = openOn(disk);
    session.moveLeaf(1);
    await session.commit();
    const { syncFolder } = disk;
    disk.syncFolder = async () => {
      throw Object.assign(new Error("EIO"), { code: "EIO" });
    };
    session.moveLeaf(0);
    await expect(session.commit()).rejects.toMatchObject({ name: "storage_failed" });
    expect(session.leafId).toBe(id(1));
    expect(leafIn(disk)).toBe(id(1));
    disk.syncFolder = syncFolder;
  });

  test("is remembered when an append after it fails", async () => {
    for (const errno of ["ENOSPC", "EIO"])
      for (const kind of ["fail", "short"] as const)
        for (let at = 1; ; at++) {
          const disk = diskWith(THREE);
          const session = openOn(disk);
          session.moveLeaf(0);
          await session.commit();
          disk.set({ kind, at, errno });
          const failure = await appendMessages(session, NEW).then(
            () => undefined,
            (error: unknown) => error,
          );
          const operations = disk.operations.join(" ");
          if (disk.operations.length < at) break;
          disk.set(undefined);
          if (failure === undefined) continue;
          await session.keepPosition();
          expect(session.leafId, operations).toBe(id(0));
          expect(leafIn(disk), operations).toBe(id(0));
        }
  });
});

test("a file whose beginning could not be read after it was made is never taken for the one that is known", async () => {
  const disk = diskWith("", "/elsewhere/x");
  const session = fresh(disk);
  const { read } = disk;
  disk.read = () => {
    throw Object.assign(new Error("EIO"), { code: "EIO" });
  };
  await appendMessages(session, id(30));
  disk.read = read;
  await appendMessages(session, id(31));
  const known = textOf(disk.content(FILE) as Uint8Array);
  // Another program changes an entry in its place, and adds one.
  const writer = disk.openAppend(FILE);
  disk.truncate(writer, 0);
  disk.write(writer, bytesOf(`${known.replace("waiting", "changed")}${userText(id(9), id(31))}\n`));
  disk.close(writer);
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
      disk.put(`${FOLDER}/${name}`, bytesOf("half"));
      return `${FOLDER}/${name}`;
    };
    put(".a.jsonl.77-1.tmp", DAY);
    const kept = [put(".b.jsonl.77-2.tmp", DAY / 2), put(".c.tmp", 2 * DAY), put("d.jsonl.77-1.tmp", 2 * DAY)];
    await make(disk);
    expect(disk.paths().filter((path) => path.endsWith(".tmp"))).toEqual(kept);
    expect(textOf(disk.content(FILE) as Uint8Array)).toBe(THREE);
  }
});

describe("opening", () => {
  test.each([
    ["version 3", THREE],
    ["version 1", V1],
    ["a torn file", `${THREE}{"type":"mess`],
  ])("%s with any operation failing is a failure or a session, and leaves nothing open", async (_, content) => {
    for (let at = 1; ; at++) {
      const disk = diskWith(content);
      const before = disk.info(FILE);
      disk.set({ kind: "fail", at, errno: "EIO" });
      try {
        workspaceOn(disk, "jsonl").open({ sessionPath: FILE }).close();
      } catch (error) {
        expect(error).toMatchObject({ name: "storage_failed" });
      }
      const { struck, operations } = disk;
      disk.set(undefined);
      expect(disk.openCount, operations.join(" ")).toBe(0);
      expect(disk.info(FILE)).toEqual(before);
      if (!struck) break;
    }
  });
});

lastsInFolderOfTheDead(`${FOLDER}/new/session.jsonl`, (disk) => jsonlOn(disk));

test("entries that cannot be cut off after a commit that failed are not said to be nowhere", async () => {
  const disk = diskWith(THREE);
  const { log } = openOn(disk);
  const broken = () => Object.assign(new Error("the disk is broken"), { code: "EIO" });
  const { sync, truncate } = disk;
  disk.sync = async () => {
    throw broken();
  };
  disk.truncate = () => {
    throw broken();
  };
  log.append([bytesOf(userText(NEW, id(2)))]);
  const failure = await log.commit().catch((error) => error);
  expect(failure).toMatchObject({ name: "outcome_unknown", retryable: true });
  expect(failure.message).not.toContain("Nothing was changed");
  Object.assign(disk, { sync, truncate });
  log.append([bytesOf(userText(id(31), id(2)))]);
  await log.commit();
  expect(idsOf(log).at(-1)).toBe(id(31));
  expect(idsOf(openOn(disk.after()).log)).toEqual(idsOf(log));
});
