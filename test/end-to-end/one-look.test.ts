/** Writes that arrive together share one look at the file, and miss no entry that others write meanwhile. */

import { expect, test } from "vitest";
import { writeAll } from "../../src/storage/fs/disk.ts";
import { FaultDisk } from "../support/disk.ts";
import { user } from "../support/drafts.ts";
import { entryText, userText } from "../support/lines.ts";
import { HereLives } from "../support/proof.ts";
import { call, type Json } from "../support/server.ts";

const append = (name: string): Json => call(name, "append", { entries: [user(name, { id: name })] });

/** A server with one entry. */
async function begun() {
  const disk = new FaultDisk();
  const wire = await new HereLives({ disk }).start(["--session-dir", "/sessions"]);
  await wire.result("append", { entries: [user("zero", { id: "zero" })] });
  const { sessionFile } = await wire.result("get_state");
  disk.set(undefined);
  return { disk, wire, file: sessionFile as string };
}

/** Appends as another program does. */
function writeAsOther(disk: FaultDisk, file: string, line: string): void {
  const fd = disk.openAppend(file);
  writeAll(disk, fd, Buffer.from(`${line}\n`));
  disk.close(fd);
}

test("a hundred appends in one chunk look at the path once for all and once for the commit", async () => {
  const { disk, wire } = await begun();
  const names = Array.from({ length: 100 }, (_, n) => `e${n}`);
  wire.send(...names.map(append));
  for (const name of names) expect(await wire.reply(name)).toMatchObject({ result: { leafId: name } });
  const { operations } = disk;
  const count = (operation: string) => operations.filter((done) => done === operation).length;
  expect([count("write"), count("info"), count("sync")]).toEqual([100, 2, 1]);
});

test("what another program writes between two of them is found by the second", async () => {
  const { disk, wire, file } = await begun();
  const { write } = disk;
  let writes = 0;
  disk.write = (fd, bytes) => {
    if (++writes === 2) writeAsOther(disk, file, userText("other", "zero", "foreign"));
    return write.call(disk, fd, bytes);
  };
  wire.send(append("one"), append("two"), append("three"), call("entries", "get_entries"));
  for (const name of ["one", "two", "three"]) await wire.reply(name);
  const { result } = await wire.reply("entries");
  expect(result.entries.map(({ id }: Json) => id)).toEqual(["zero", "one", "other", "two", "three"]);
  expect(result.leafId).toBe("three");
  const foreign = wire.events.filter(({ params }) => params?.origin === "foreign");
  expect(foreign.map(({ params }) => params.entryIds)).toEqual([["other"]]);
});

test("the state counts what another program wrote, whichever operation failed when it was looked at first", async () => {
  for (let at = 1, struck = true; struck; at++) {
    const { disk, wire, file } = await begun();
    await wire.result("append", { entries: [user("one", { id: "one" })] });
    writeAsOther(disk, file, entryText("session_info", "other", "zero", { name: "elsewhere" }));
    const look = () => wire.request("append", { entries: [user("no")], expectedLeafId: "another" });
    disk.set({ kind: "fail", at, errno: "EIO" });
    await look();
    struck = disk.struck;
    disk.set(undefined);
    await wire.result("get_state");
    await look();
    const { entryCount, sessionName } = await wire.result("get_state");
    expect([entryCount, sessionName], `operation ${at}`).toEqual([3, "elsewhere"]);
  }
});

test("what was written before the next chunk is told before its replies", async () => {
  const { disk, wire, file } = await begun();
  wire.send(append("one"));
  await wire.reply("one");
  writeAsOther(disk, file, userText("other", "one", "foreign"));
  wire.send(append("two"));
  const received = [await wire.next()];
  while (received.at(-1).id !== "two") received.push(await wire.next());
  // The first is what follows the reply to the first append.
  expect(received.map(({ params, id }) => id ?? params.origin)).toEqual(["self", "foreign", "two"]);
  expect((await wire.result("get_path")).entries.map(({ id }: Json) => id)).toEqual(["zero", "one", "other", "two"]);
});
