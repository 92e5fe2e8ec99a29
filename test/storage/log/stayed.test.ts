/** What stayed though its commit failed is not what a later append is told of, whose entries are nowhere. */

import { expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import { segmentFile } from "../../../src/storage/fs/container-paths.ts";
import { writeAll } from "../../../src/storage/fs/disk.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import { diskWith, FILE, idsOf, jsonlOn } from "../../support/sessions.ts";
import { CONTAINER, containerWith, v2On } from "../../support/v2.ts";

const broken = (code: string) => Object.assign(new Error("the disk is broken"), { code });

test.each(["jsonl", "v2"])("an append that finds no room after entries stayed (%s)", async (kind) => {
  const disk = kind === "v2" ? await containerWith(chain(3)) : diskWith(fileText(headerText(), ...chain(3)));
  const log = kind === "v2" ? v2On(disk).open(CONTAINER) : jsonlOn(disk).open(FILE);
  log.append([bytesOf(userText(id(30), id(2)))]);
  const { sync, write } = disk;
  disk.sync = async () => {
    disk.sync = sync;
    const fd = disk.openAppend(kind === "v2" ? segmentFile(CONTAINER, 1) : FILE);
    writeAll(disk, fd, bytesOf("somebody's\n"));
    disk.close(fd);
    throw broken("EIO");
  };
  await expect(log.commit()).rejects.toMatchObject({ name: "outcome_unknown" });
  log.refresh();
  const ids = [id(0), id(1), id(2), id(30)];
  expect(idsOf(log)).toEqual(ids);
  disk.write = () => {
    disk.write = write;
    throw broken("ENOSPC");
  };
  const next = [bytesOf(userText(id(31), id(30)))];
  expect(() => log.append(next)).toThrow(expect.objectContaining({ name: "storage_full" }));
  expect(idsOf(log)).toEqual(ids);
  log.append(next);
  await log.commit();
  expect(idsOf(log)).toEqual([...ids, id(31)]);
  log.close();
});
