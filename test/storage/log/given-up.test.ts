/** Entries that were given up before anybody asked for their commit: the commit that comes for them fails. */

import { expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { Session } from "../../../src/core/session/session.ts";
import { segmentFile } from "../../../src/storage/fs/container-paths.ts";
import { writeAll } from "../../../src/storage/fs/disk.ts";
import { type CommittedLog, GroupCommit } from "../../../src/storage/log/group-commit.ts";
import type { CopiedLog } from "../../../src/storage/log/outside.ts";
import { appendMessages } from "../../support/change-faults.ts";
import type { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import { diskWith, FILE, idsOf, jsonlOn } from "../../support/sessions.ts";
import { CONTAINER, containerWith, v2On } from "../../support/v2.ts";

const OURS = id(30);
const THREE_IDS = [id(0), id(1), id(2)];
const ours = () => [bytesOf(userText(OURS, id(2)))];
const broken = () => Object.assign(new Error("the disk is broken"), { code: "EIO" });

/** The entries that whoever opens the session after a loss of power finds at least. */
function lasting(disk: FaultDisk, open: (disk: FaultDisk) => Log): string[][] {
  return [...disk.lasting()].map(({ disk: left }) => {
    const log = open(left);
    const ids = idsOf(log);
    log.close();
    return ids;
  });
}

test.each([
  ["leaves them behind what another program wrote", true, "outcome_unknown"],
  ["removes them", false, "storage_failed"],
] as const)("another log of the process that gives them up %s", async (_, isFollowed, name) => {
  const disk = await containerWith(chain(3));
  const store = v2On(disk);
  const session = new Session(store.open(CONTAINER), testEnv());
  session.append([{ type: "custom", id: OURS, rest: bytesOf("") }]);
  const second = store.open(CONTAINER);
  const { syncNow } = disk;
  disk.syncNow = () => {
    disk.syncNow = syncNow;
    const fd = disk.openAppend(segmentFile(CONTAINER, 1));
    if (isFollowed) writeAll(disk, fd, bytesOf("somebody's"));
    disk.close(fd);
    throw broken();
  };
  expect(() => second.append([bytesOf(userText(id(31), id(2)))])).toThrow();
  expect(session.isDurable).toBe(false);
  await expect(session.commit()).rejects.toMatchObject({ name });
  await session.commit();
  session.refreshToWrite();
  expect(idsOf(session.log)).toEqual(isFollowed ? [...THREE_IDS, OURS] : THREE_IDS);
  await appendMessages(session, id(50));
  session.close();
  second.close();
  for (const ids of lasting(disk, (left) => v2On(left).open(CONTAINER))) expect(ids.at(-1)).toBe(id(50));
});

test.each(["jsonl", "v2"])("taking in what other machines wrote, which fails (%s)", async (kind) => {
  const disk = kind === "v2" ? await containerWith(chain(3)) : diskWith(fileText(headerText(), ...chain(3)));
  const open = (disk: FaultDisk): Log => (kind === "v2" ? v2On(disk).open(CONTAINER) : jsonlOn(disk).open(FILE));
  const log = open(disk) as CopiedLog;
  log.acquireLock();
  const { sync } = disk;
  disk.sync = async () => {
    disk.sync = sync;
    throw broken();
  };
  const taken = log.takeIn([bytesOf(userText(id(31), id(2)))]);
  log.append(ours());
  await expect(taken).rejects.toMatchObject({ name: "storage_failed" });
  expect(log.isCommitDue).toBe(true);
  await expect(log.takeIn([bytesOf(userText(id(31), id(2)))])).rejects.toMatchObject({ name: "storage_failed" });
  await expect(log.commit()).rejects.toMatchObject({ name: "storage_failed" });
  expect([idsOf(log), log.isCommitDue]).toEqual([THREE_IDS, false]);
  log.append(ours());
  await log.commit();
  log.close();
  for (const ids of lasting(disk, open)) expect(ids).toEqual([...THREE_IDS, OURS]);
});

test("an append that is durable at once and fails has told of it: the next commit counts", async () => {
  const disk = await containerWith(chain(3));
  const log = v2On(disk, { durability: "os" }).open(CONTAINER);
  const { write } = disk;
  let writes = 0;
  disk.write = (fd, bytes) => {
    // The frames are written, their rows are not.
    if (++writes === 2) throw broken();
    return write.call(disk, fd, bytes);
  };
  expect(() => log.append(ours())).toThrow(expect.objectContaining({ name: "storage_failed" }));
  disk.write = write;
  log.append(ours());
  await log.commit();
  expect(idsOf(log)).toEqual([...THREE_IDS, OURS]);
  log.close();
});

test.each(["jsonl", "v2"])(
  "who gives up entries that stay tells of them: the next commit counts (%s)",
  async (kind) => {
    const disk = kind === "v2" ? await containerWith(chain(3)) : diskWith(fileText(headerText(), ...chain(3)));
    const log = kind === "v2" ? v2On(disk).open(CONTAINER) : jsonlOn(disk).open(FILE);
    log.append(ours());
    const fd = disk.openAppend(kind === "v2" ? segmentFile(CONTAINER, 1) : FILE);
    writeAll(disk, fd, bytesOf("somebody's\n"));
    disk.close(fd);
    log.rollBack();
    expect(log.isCommitDue).toBe(false);
    log.refresh();
    log.append([bytesOf(userText(id(31), OURS))]);
    await log.commit();
    expect(idsOf(log)).toEqual([...THREE_IDS, OURS, id(31)]);
    log.close();
  },
);

test.each(["jsonl", "v2"])(
  "what came while a commit failed and stays is told of by its own commit, once (%s)",
  async (kind) => {
    const disk = kind === "v2" ? await containerWith(chain(3)) : diskWith(fileText(headerText(), ...chain(3)));
    const log = kind === "v2" ? v2On(disk).open(CONTAINER) : jsonlOn(disk).open(FILE);
    log.append(ours());
    const { sync } = disk;
    disk.sync = async () => {
      disk.sync = sync;
      log.append([bytesOf(userText(id(31), OURS))]);
      const fd = disk.openAppend(kind === "v2" ? segmentFile(CONTAINER, 1) : FILE);
      writeAll(disk, fd, bytesOf("somebody's\n"));
      disk.close(fd);
      throw broken();
    };
    for (let n = 0; n < 2; n++) await expect(log.commit(), `${n}`).rejects.toMatchObject({ name: "outcome_unknown" });
    await log.commit();
    log.refresh();
    expect(idsOf(log)).toEqual([...THREE_IDS, OURS, id(31)]);
    log.close();
  },
);

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
  group.giveUp(broken());
  end();
  await first;
  await expect(second).rejects.toMatchObject({ code: "EIO" });
  expect(commits).toBe(0);
});
