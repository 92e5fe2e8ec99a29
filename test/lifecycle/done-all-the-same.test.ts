/** The disk refuses after the step that cannot be taken back: then the failure says what is done, not that nothing is. */

import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { contentsOf, put, putDamaged, putSession, read, rootOf, sessionId } from "../support/lifecycle.ts";
import { entryText, userText } from "../support/lines.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";

const one = { sessionId: sessionId(1) };

/** A disk that refuses operations from a moment on, and the server on it. */
function refusing(place: Place): { server: HereServer; disk: Disk; refuse: (what: keyof Disk, of: RegExp) => void } {
  let refused: { readonly what: keyof Disk; readonly of: RegExp } | undefined;
  const disk: Disk = { ...realDisk };
  for (const what of ["syncFolder", "syncFolderNow", "remove", "create"] as const) {
    const act = realDisk[what] as (path: string) => never;
    disk[what] = (path: string): never => {
      if (refused?.what === what && refused.of.test(path))
        throw Object.assign(new Error(`${what} is refused`), { code: "EIO" });
      return act(path);
    };
  }
  const server = serveHere(["--no-session", "--events", "none"], { place, disk });
  const refuse = (what: keyof Disk, of: RegExp): void => {
    refused = { what, of };
  };
  return { server, disk, refuse };
}

function expectDone({ data, message }: Json): void {
  expect(data).toMatchObject({ name: "storage_failed", retryable: false });
  expect(message).not.toContain("Nothing was changed");
}

test.each(["jsonl", "v2"])(
  "a repair that is taken back, and its folder not synced, is taken back (%s)",
  async (store) => {
    const place = temporaryPlace();
    const other = putSession(place, 2);
    const { server, disk, refuse } = refusing(place);
    await server.result("archive_session", { sessionPath: other });
    const { file, sessionPath } = await putDamaged(server, place, store);
    const part = store === "v2" ? join(sessionPath, "segments", "0000000000000001.seg") : file;
    const damaged = read(part);
    await server.result("open_session", { sessionPath });
    await server.result("repair_session", one);
    await server.result("close_session", one);
    const repaired = read(part);
    disk.rename = (path, name) => {
      realDisk.rename(path, name);
      if (name === sessionPath) refuse("syncFolder", new RegExp(`${dirname(file)}$`));
    };
    expectDone(await server.failure("undo"));
    disk.rename = realDisk.rename;
    refuse("syncFolder", /^$/);
    expect(read(part)).toBe(damaged);
    expect((await server.result("redo")).kind).toBe("repair");
    expect([read(part), damaged === repaired]).toEqual([repaired, false]);
    expect((await server.result("undo")).kind).toBe("repair");
    expect((await server.result("undo")).kind).toBe(store === "v2" ? "migrate" : "archive");
  },
);

describe.each(["jsonl", "v2"])("a repair (%s)", (store) => {
  const refusal = (): never => {
    throw Object.assign(new Error("the disk is broken"), { code: "EIO" });
  };
  const called = (): string[] => {
    const call = { type: "toolCall", id: "call-1", name: "bash", arguments: {} };
    const message = { role: "assistant", content: [call], stopReason: "toolUse" };
    return [entryText("message", "d0000000", "c0000000", { message }), userText("e0000000", "d0000000", "go on?")];
  };

  test.each([
    ["its folder was not synced", "folder"],
    ["what it appends was refused", "append"],
    ["what it appends was not synced", "sync"],
  ])("is done, though %s: the failure names the original, and undo brings it back", async (_, refused) => {
    const place = temporaryPlace();
    const { server, disk, refuse } = refusing(place);
    const { file, sessionPath } = await putDamaged(server, place, store, called());
    const part = store === "v2" ? join(sessionPath, "segments", "0000000000000001.seg") : file;
    const damaged = read(part);
    await server.result("open_session", { sessionPath });
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
    expect(data.name).toBe("storage_failed");
    expect(message).not.toContain("Nothing was changed");
    expect(message).toContain(data.backupPath);
    expect(read(part)).not.toBe(damaged);
    expect((await server.result("repair_session", { ...one, dryRun: true })).repaired).toEqual([]);
    await server.result("close_session", one);
    expect((await server.result("undo")).kind).toBe("repair");
    expect(read(part)).toBe(damaged);
  });
});

test.each(["jsonl", "v2"])(
  "a session that was deleted for good, and its folder not synced, is deleted (%s)",
  async (store) => {
    const place = temporaryPlace();
    const { server, refuse } = refusing(place);
    let sessionPath = putSession(place, 1);
    if (store === "v2") ({ sessionPath } = await server.result("migrate_session", { sessionPath }));
    refuse("syncFolder", new RegExp(`${dirname(sessionPath)}$`));
    const failure = await server.failure("delete_session", { sessionPath, permanent: true });
    expectDone(failure);
    expect(failure.message).toContain("The session is deleted");
    expect(contentsOf(rootOf(place))).toEqual({});
  },
);

test("a container that was deleted for good, and its pointer not, is deleted", async () => {
  const place = temporaryPlace();
  const { server, refuse } = refusing(place);
  const { sessionPath } = await server.result("migrate_session", { sessionPath: putSession(place, 1) });
  const pointer = sessionPath.replace(/\.v2$/, ".store.json");
  expect(existsSync(pointer)).toBe(true);
  refuse("remove", /\.store\.json$/);
  const failure = await server.failure("delete_session", { sessionPath, permanent: true });
  expectDone(failure);
  expect([failure.message, failure.data.left]).toEqual([
    expect.stringContaining("The session is deleted"),
    [basename(pointer)],
  ]);
  expect(Object.keys(contentsOf(rootOf(place)))).toEqual([pointer]);
});

test("a session that the trash command took, and not what belongs to it, is deleted", async () => {
  const plain = temporaryPlace();
  const [bin, trash] = ["bin", "bin of the desktop"].map((name) => join(plain.home, name));
  for (const folder of [bin, trash]) mkdirSync(folder);
  writeFileSync(join(bin, "trash"), `#!/bin/sh\nmv "$1" '${trash}'/\n`);
  chmodSync(join(bin, "trash"), 0o755);
  const place = { ...plain, variables: { ...plain.variables, PATH: `${bin}:/usr/bin:/bin` } };
  const file = putSession(place, 1);
  const backup = put(`${file}.v1.bak`, "backup");
  const { server, refuse } = refusing(place);
  refuse("create", new RegExp(`^${join(place.state, "trash")}`));
  const failure = await server.failure("delete_session", { sessionPath: file });
  expectDone(failure);
  expect(failure.message).toContain("The session is deleted");
  expect(Object.keys(contentsOf(rootOf(place)))).toEqual([backup]);
  expect(Object.keys(contentsOf(trash))).toEqual([join(trash, basename(file))]);
});
