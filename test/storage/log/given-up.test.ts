/** Entries that were given up before their commit was asked for: the commit that comes for them fails, once. */

import { expect, test } from "vitest";
import { toBytes } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { Session } from "../../../src/core/session/session.ts";
import { becomeWriter } from "../../../src/core/session/writer.ts";
import { segmentFile } from "../../../src/storage/fs/container-paths.ts";
import { type CommittedLog, GroupCommit } from "../../../src/storage/log/group-commit.ts";
import { KnownEntries } from "../../../src/storage/log/known-entries.ts";
import type { ReplicatedLog } from "../../../src/storage/log/replica.ts";
import { appendMessages } from "../../support/change-faults.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import { diskWith, FILE, idsOf, jsonlOn } from "../../support/sessions.ts";
import { SWEEP } from "../../support/tiers.ts";
import { CONTAINER, containerWith, v2On } from "../../support/v2.ts";
import { diskError, refusing, writeBehind } from "../other-writers.ts";

const OURS = id(30);
const THREE_IDS = [id(0), id(1), id(2)];
const line = (n: number, parent: string) => [toBytes(userText(id(n), parent))];
const ours = () => line(30, id(2));
const KINDS = ["jsonl", "v2"] as const;
type Kind = (typeof KINDS)[number];

const pathOf = (kind: Kind) => (kind === "v2" ? CONTAINER : FILE);
const openOn = (disk: FaultDisk, kind: Kind) =>
  (kind === "v2" ? v2On(disk) : jsonlOn(disk)).open(pathOf(kind)) as ReplicatedLog;

/** A session with the entries 0 to 2. */
async function three(kind: Kind): Promise<{ disk: FaultDisk; log: ReplicatedLog }> {
  const disk = kind === "v2" ? await containerWith(chain(3)) : diskWith(fileText(headerText(), ...chain(3)));
  return { disk, log: openOn(disk, kind) };
}

/** Writes behind the entries of a session as another program does. */
const writeToo = (disk: FaultDisk, kind: Kind) =>
  writeBehind(disk, kind === "v2" ? segmentFile(CONTAINER, 1) : FILE, "somebody's\n");

/** Has the next operation of a name fail once, after something else. */
function failOnce(disk: FaultDisk, name: "sync" | "syncNow" | "write", before = () => {}, code = "EIO"): void {
  const act = disk[name];
  const fail = (): never => {
    Object.assign(disk, { [name]: act });
    before();
    throw diskError(code);
  };
  Object.assign(disk, { [name]: name === "sync" ? async () => fail() : fail });
}

async function goesOn(log: Log, ids: readonly string[], next: string, parent: string): Promise<void> {
  log.append([toBytes(userText(next, parent))]);
  await log.commit();
  expect(idsOf(log)).toEqual([...ids, next]);
  log.close();
}

/** Expects that an opening after a loss of power finds these entries, or the last of them. */
function requireLasting(disk: FaultDisk, kind: Kind, check: (ids: string[]) => void): void {
  for (const { disk: left } of disk.lasting()) {
    const log = openOn(left, kind);
    check(idsOf(log));
    log.close();
  }
}

test.each([
  ["leaves them behind what another program wrote", true, "outcome_unknown"],
  ["removes them", false, "storage_failed"],
] as const)("another log of the process that gives them up %s", async (_, isFollowed, name) => {
  const { disk, log } = await three("v2");
  log.close();
  const store = v2On(disk);
  const session = new Session(store.open(CONTAINER), testEnv());
  session.append([{ type: "custom", id: OURS, rest: toBytes("") }]);
  const second = store.open(CONTAINER);
  failOnce(disk, "syncNow", () => isFollowed && writeToo(disk, "v2"));
  expect(() => second.append(line(31, id(2)))).toThrow();
  expect(session.isDurable).toBe(false);
  await expect(session.commit()).rejects.toMatchObject({ name });
  await session.commit();
  becomeWriter(session);
  expect(idsOf(session.log)).toEqual(isFollowed ? [...THREE_IDS, OURS] : THREE_IDS);
  await appendMessages(session, id(50));
  session.close();
  second.close();
  requireLasting(disk, "v2", (ids) => expect(ids.at(-1)).toBe(id(50)));
});

test("an append that is durable at once and fails has told of it: the next commit counts", async () => {
  const { disk } = await three("v2");
  const log = v2On(disk, { durability: "os" }).open(CONTAINER);
  const { write } = disk;
  // The frames are written, their rows are not.
  disk.write = (fd, bytes) => {
    failOnce(disk, "write");
    return write.call(disk, fd, bytes);
  };
  expect(() => log.append(ours())).toThrow(expect.objectContaining({ name: "storage_failed" }));
  disk.write = write;
  await goesOn(log, THREE_IDS, OURS, id(2));
});

test.each(KINDS)("who gives up entries that stay tells of them: the next commit counts (%s)", async (kind) => {
  const { disk, log } = await three(kind);
  log.append(ours());
  writeToo(disk, kind);
  log.rollBack();
  expect(log.isCommitDue).toBe(false);
  log.refresh();
  await goesOn(log, [...THREE_IDS, OURS], id(31), OURS);
});

test.each(KINDS)("what came while a commit failed and stays is told of by its own commit, once (%s)", async (kind) => {
  const { disk, log } = await three(kind);
  log.append(ours());
  failOnce(disk, "sync", () => {
    log.append(line(31, OURS));
    writeToo(disk, kind);
  });
  for (let n = 0; n < 2; n++) await expect(log.commit(), `${n}`).rejects.toMatchObject({ name: "outcome_unknown" });
  await log.commit();
  log.refresh();
  await goesOn(log, [...THREE_IDS, OURS, id(31)], id(32), id(31));
});

test.each(KINDS)("what stayed is not what a later append is told of, which finds no room (%s)", async (kind) => {
  const { disk, log } = await three(kind);
  log.append(ours());
  failOnce(disk, "sync", () => writeToo(disk, kind));
  await expect(log.commit()).rejects.toMatchObject({ name: "outcome_unknown" });
  log.refresh();
  const ids = [...THREE_IDS, OURS];
  expect(idsOf(log)).toEqual(ids);
  failOnce(disk, "write", () => {}, "ENOSPC");
  expect(() => log.append(line(31, OURS))).toThrow(expect.objectContaining({ name: "storage_full" }));
  expect(idsOf(log)).toEqual(ids);
  await goesOn(log, ids, id(31), OURS);
});

test("a commit that waits for the operation that runs fails where its entries are given up meanwhile", async () => {
  let end = (): void => {};
  const ended = new Promise<void>((resolve) => (end = resolve));
  let commits = 0;
  const log: CommittedLog = {
    commit: async () => void commits++,
    // It looks for the last time whether they are there, and goes on for a while, as with a checkpoint.
    makeDurable: async (requireCurrent) => {
      requireCurrent();
      await ended;
    },
    committed: () => {},
    rollBack: (error) => group.invalidate(2, error, false),
  };
  const group = new GroupCommit(log);
  const first = group.join(1);
  const second = group.join(2);
  group.abandon(diskError());
  end();
  await first;
  await expect(second).rejects.toMatchObject({ code: "EIO" });
  expect(commits).toBe(0);
});

test.each(KINDS)("what other machines wrote replaces a session, though its folder is not synced (%s)", async (kind) => {
  const { disk, log } = await three(kind);
  log.lock.acquire();
  const path = pathOf(kind);
  const rename = disk.rename.bind(disk);
  disk.rename = (from, to) => {
    rename(from, to);
    if (to !== path) return;
    disk.syncFolderNow = refusing();
  };
  const replace = async (): Promise<string> => log.replaceFrom(1, line(50, id(0)));
  const { name, message, details } = await replace().catch((error) => error);
  expect([name, details.backupPath]).toEqual(["storage_failed", `${path}.damaged.bak`]);
  expect(message).not.toContain("Nothing was changed");
  expect(message).toContain(details.backupPath);
  Reflect.deleteProperty(disk, "syncFolderNow");
  expect(log.refresh()).toEqual({ kind: "replaced" });
  log.close();
  const next = openOn(disk, kind);
  expect(idsOf(next)).toEqual([id(0), id(50)]);
  next.close();
});

test("any number of damages is forgotten but for those of other kinds", SWEEP, () => {
  const entries = new KnownEntries();
  for (let n = 1; n <= 200_000; n++) entries.report("missing_parent", 0, 0, "the path ends here", true, n);
  entries.report("torn_tail", 0, 0, "the last frame was cut off");
  const left = entries.damage.slice(1);
  const { damage } = entries;
  entries.replaceDamage(left);
  expect(damage).toEqual(left);
  entries.forgetDamage(new Set(["torn_tail"]));
  expect(damage).toHaveLength(199_999);
  entries.forgetDamage(new Set(["missing_parent"]));
  expect(damage).toEqual([]);
});
