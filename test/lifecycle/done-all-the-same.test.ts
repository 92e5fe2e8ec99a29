/** The disk refuses after the step that cannot be taken back: then the failure says that this step is done. */

import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { contentsOf, one, put, putDamaged, putSession, read, rootOf } from "../support/lifecycle.ts";
import { entryText, userText } from "../support/lines.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";

const WATCHED = ["syncFolder", "syncFolderNow", "remove", "create"] as const;

interface Refusing {
  readonly place: Place;
  readonly server: HereServer;
  readonly disk: Disk;
  /** From now on, this operation is refused of these paths. */
  readonly refuse: (what: keyof Disk, of: RegExp) => void;
}

/** A disk that refuses operations from a moment on, and the server on it. */
function refusing(place = temporaryPlace()): Refusing {
  let refused: { readonly what: keyof Disk; readonly of: RegExp } | undefined;
  const disk: Disk = { ...realDisk };
  for (const what of WATCHED) {
    const act = realDisk[what] as (path: string) => never;
    disk[what] = (path: string): never => {
      if (refused?.what === what && refused.of.test(path))
        throw Object.assign(new Error(`${what} is refused`), { code: "EIO" });
      return act(path);
    };
  }
  const server = serveHere(["--no-session", "--events", "none"], { place, disk });
  return { place, server, disk, refuse: (what, of) => (refused = { what, of }) };
}

/** A damaged session; `damaged` and `now`: its bytes. */
async function damagedIn({ server, place }: Refusing, store: string, more: readonly string[] = []) {
  const { file, sessionPath } = await putDamaged(server, place, store, more);
  const part = store === "v2" ? join(sessionPath, "segments", "0000000000000001.seg") : file;
  await server.result("open_session", { sessionPath });
  return { file, sessionPath, damaged: read(part), now: () => read(part) };
}

function expectDone({ data, message }: Json): void {
  expect(data).toMatchObject({ name: "storage_failed", retryable: false });
  expect(message).not.toContain("Nothing was changed");
}

const kindOf = async (server: HereServer, method: string): Promise<string> => (await server.result(method)).kind;

test.each(["jsonl", "v2"])(
  "a repair that is taken back, and its folder not synced, is taken back (%s)",
  async (store) => {
    const all = refusing();
    const { server, disk, refuse } = all;
    await server.result("archive_session", { sessionPath: putSession(all.place, 2) });
    const { file, sessionPath, damaged, now } = await damagedIn(all, store);
    await server.result("repair_session", one);
    await server.result("close_session", one);
    const repaired = now();
    disk.rename = (path, name) => {
      realDisk.rename(path, name);
      if (name === sessionPath) refuse("syncFolder", new RegExp(`${dirname(file)}$`));
    };
    expectDone(await server.failure("undo"));
    disk.rename = realDisk.rename;
    refuse("syncFolder", /^$/);
    expect(now()).toBe(damaged);
    expect(await kindOf(server, "redo")).toBe("repair");
    expect([now(), damaged === repaired]).toEqual([repaired, false]);
    expect(await kindOf(server, "undo")).toBe("repair");
    expect(await kindOf(server, "undo")).toBe(store === "v2" ? "migrate" : "archive");
  },
);

const CALL = { type: "toolCall", id: "call-1", name: "bash", arguments: {} };
const CALLING = { role: "assistant", content: [CALL], stopReason: "toolUse" };
const CALLED = [
  entryText("message", "d0000000", "c0000000", { message: CALLING }),
  userText("e0000000", "d0000000", "go on?"),
];

test.each(
  ["jsonl", "v2"].flatMap((store) => [
    [store, "its folder was not synced", "folder"],
    [store, "what it appends was refused", "append"],
    [store, "what it appends was not synced", "sync"],
  ]),
)(
  "a repair (%s) is done, though %s: the failure names the original, and undo brings it back",
  async (store, _, refused) => {
    const all = refusing();
    const { server, disk, refuse } = all;
    const { file, sessionPath, damaged, now } = await damagedIn(all, store, CALLED);
    const refusal = (): never => {
      throw Object.assign(new Error("the disk is broken"), { code: "EIO" });
    };
    disk.rename = (path, name) => {
      realDisk.rename(path, name);
      if (name !== sessionPath) return;
      if (refused === "folder") refuse("syncFolderNow", new RegExp(`${dirname(file)}$`));
      else if (refused === "append")
        disk.write = (fd, bytes) =>
          Buffer.from(bytes).includes('"toolResult"') ? refusal() : realDisk.write(fd, bytes);
      else Object.assign(disk, { sync: async () => refusal(), syncNow: refusal });
    };
    const { data, message } = await server.failure("repair_session", one);
    const { rename, sync, syncNow, write } = realDisk;
    Object.assign(disk, { rename, sync, syncNow, write });
    refuse("syncFolder", /^$/);
    expect([data.name, message]).toEqual(["storage_failed", expect.stringContaining(data.backupPath)]);
    expect(message).not.toContain("Nothing was changed");
    expect(now()).not.toBe(damaged);
    expect((await server.result("repair_session", { ...one, dryRun: true })).repaired).toEqual([]);
    await server.result("close_session", one);
    expect([await kindOf(server, "undo"), now()]).toEqual(["repair", damaged]);
  },
);

test.each([
  ["jsonl", "its folder was not synced", "syncFolder"],
  ["v2", "its folder was not synced", "syncFolder"],
  ["v2", "its pointer was not removed", "remove"],
] as const)("a session of %s that is deleted for good is deleted, though %s", async (store, _why, what) => {
  const { place, server, refuse } = refusing();
  let sessionPath = putSession(place, 1);
  if (store === "v2") ({ sessionPath } = await server.result("migrate_session", { sessionPath }));
  const pointer = sessionPath.replace(/\.v2$/, ".store.json");
  const left = what === "remove" ? [pointer] : [];
  refuse(what, what === "remove" ? /\.store\.json$/ : new RegExp(`${dirname(sessionPath)}$`));
  const failure = await server.failure("delete_session", { sessionPath, permanent: true });
  expectDone(failure);
  expect(failure.message).toContain("The session is deleted");
  expect(Object.keys(contentsOf(rootOf(place)))).toEqual(left);
  if (what === "remove") expect(failure.data.left).toEqual([basename(pointer)]);
});

test("a session that the trash command took, and not what belongs to it, is deleted", async () => {
  const plain = temporaryPlace();
  const [bin, trash] = ["bin", "bin of the desktop"].map((name) => join(plain.home, name));
  for (const folder of [bin, trash]) mkdirSync(folder);
  writeFileSync(join(bin, "trash"), `#!/bin/sh\nmv "$1" '${trash}'/\n`);
  chmodSync(join(bin, "trash"), 0o755);
  const variables = { ...plain.variables, PATH: `${bin}:/usr/bin:/bin` };
  const { place, server, refuse } = refusing({ ...plain, variables });
  const file = putSession(place, 1);
  const backup = put(`${file}.v1.bak`, "backup");
  refuse("create", new RegExp(`^${join(place.state, "trash")}`));
  const failure = await server.failure("delete_session", { sessionPath: file });
  expectDone(failure);
  expect(failure.message).toContain("The session is deleted");
  expect(Object.keys(contentsOf(rootOf(place)))).toEqual([backup]);
  expect(Object.keys(contentsOf(trash))).toEqual([join(trash, basename(file))]);
});
