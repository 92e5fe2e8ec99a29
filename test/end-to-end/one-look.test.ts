/** Writes that arrive together share one look at the file, and miss nothing of what others write meanwhile. */

import { expect, test } from "vitest";
import { writeAll } from "../../src/storage/fs/disk.ts";
import { FaultDisk } from "../support/disk.ts";
import { user } from "../support/drafts.ts";
import { entryText, fileText, userText } from "../support/lines.ts";
import { HereLives } from "../support/proof.ts";
import type { Json } from "../support/server.ts";

const append = (name: string) => ({
  jsonrpc: "2.0",
  id: name,
  method: "append",
  params: { entries: [user(name, { id: name })] },
});

/** A server with one entry. */
async function begun() {
  const disk = new FaultDisk();
  const wire = await new HereLives({ disk }).start(["--session-dir", "/sessions"]);
  await wire.result("append", { entries: [user("zero", { id: "zero" })] });
  const { sessionFile } = await wire.result("get_state");
  disk.set(undefined);
  return { disk, wire, file: sessionFile as string };
}

/** Lets another program append before a write of the server. */
function writeBeforeWrite(disk: FaultDisk, number: number, file: string, text: string): void {
  const { write } = disk;
  let writes = 0;
  disk.write = (fd, bytes) => {
    if (++writes === number) {
      const other = disk.openAppend(file);
      writeAll(disk, other, Buffer.from(text));
      disk.close(other);
    }
    return write.call(disk, fd, bytes);
  };
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
  writeBeforeWrite(disk, 2, file, fileText(userText("other", "zero", "foreign")));
  wire.send(append("one"), append("two"), append("three"), {
    jsonrpc: "2.0",
    id: "entries",
    method: "get_entries",
  });
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
    const other = disk.openAppend(file);
    writeAll(disk, other, Buffer.from(fileText(entryText("session_info", "other", "zero", { name: "elsewhere" }))));
    disk.close(other);
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
  const other = disk.openAppend(file);
  writeAll(disk, other, Buffer.from(fileText(userText("other", "one", "foreign"))));
  disk.close(other);
  wire.send(append("two"));
  const told: Json[] = [];
  for (;;) {
    const message = await wire.next();
    told.push(message);
    if (message.id === "two") break;
  }
  // The first is what follows the reply to the first append.
  expect(told.map(({ params, id }) => id ?? params.origin)).toEqual(["self", "foreign", "two"]);
  expect((await wire.result("get_path")).entries.map(({ id }: Json) => id)).toEqual(["zero", "one", "other", "two"]);
});
