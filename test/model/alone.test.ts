/** The simulated disk of several processes. */

import { expect, test } from "vitest";
import { decodeText, toBytes } from "../../src/core/json/json.ts";
import { readWhole } from "../../src/storage/fs/disk.ts";
import { FaultDisk } from "../support/disk.ts";
import { Death, ProcessDisk, Untimely } from "./shared-disk.ts";

test("others see each prefix of a write, and what came before a death in it stays", () => {
  const disk = new FaultDisk();
  disk.put("/a", toBytes("0"));
  const [writer, reader] = [new ProcessDisk(disk), new ProcessDisk(disk)];
  const fd = writer.openAppend("/a");
  const seen: string[] = [];
  writer.prefixesOf = () => [0, 2, 5];
  writer.atPrefix = () => seen.push(decodeText(readWhole(reader, "/a")));
  expect(writer.write(fd, toBytes("abcde"))).toBe(5);
  expect(seen).toEqual(["0", "0ab", "0abcde"]);
  writer.atPrefix = (_path, prefix) => {
    if (prefix === 2) writer.die();
  };
  expect(() => writer.write(fd, toBytes("fghij"))).toThrow(Death);
  expect(() => writer.info("/a")).toThrow(Death);
  expect(decodeText(readWhole(reader, "/a"))).toBe("0abcdefg");
});

test("a process that is held still goes on reading what was there", () => {
  const disk = new FaultDisk();
  disk.put("/a", toBytes("0"));
  const [writer, reader] = [new ProcessDisk(disk), new ProcessDisk(disk)];
  const before = reader.openRead("/a");
  reader.holdStill();
  writer.write(writer.openAppend("/a"), toBytes("12"));
  const meanwhile = reader.openRead("/a");
  const sizes = () => [before, meanwhile].map((fd) => reader.infoOf(fd).size);
  expect([...sizes(), reader.info("/a").size]).toEqual([1, 1, 1]);
  expect(() => reader.create("/b")).toThrow(Untimely);
  reader.goOn();
  expect([...sizes(), reader.info("/a").size]).toEqual([3, 3, 3]);
});
