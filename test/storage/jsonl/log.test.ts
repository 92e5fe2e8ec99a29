/** Sessions as JSONL files keep the contract, on the disk and on the disk that the fault tests use. The contract has a test in SWEEP. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { JsonlBackend } from "../../../src/storage/jsonl/log.ts";
import { jsonlStore } from "../../../src/storage/jsonl/store.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { chain, fileText, headerText, id, SESSION, TIME, userText } from "../../support/lines.ts";
import { range, share } from "../../support/random.ts";
import { idsOf, logOf, textsOf } from "../../support/sessions.ts";
import { keepsTheContract } from "../contract.ts";
import { harnessOn } from "./harness.ts";

/** The beginning of an entry. */
const TORN = '{"type":"message","id":"a00000';

keepsTheContract("jsonl", () => {
  const root = mkdtempSync(join(tmpdir(), "pi-session-"));
  mkdirSync(join(root, "sessions"));
  const makeFifo = (path: string) => void execFileSync("mkfifo", [path]);
  return harnessOn(realDisk, root, { makeFifo }, () => rmSync(root, { recursive: true }));
});

keepsTheContract("jsonl on a disk in memory", () => {
  const disk = new FaultDisk();
  disk.makeFolder("/root/sessions");
  return harnessOn(disk, "/root", { faults: disk }, () => {});
});

test.each([
  ["a writer that died with the lock is cut at once", true, `${fileText(headerText(), ...chain(2), ...chain(1, 2))}`],
  ["anybody else is closed while it is young", false, `${fileText(headerText(), ...chain(2), TORN, ...chain(1, 2))}`],
])("a torn write of %s", (_whose, previousHolderDied, wanted) => {
  const disk = new FaultDisk();
  const env = { ...testEnv(), now: () => 1_800_000_000_000 };
  disk.clock = env.now;
  disk.put("/root/sessions/session.jsonl", bytesOf(fileText(headerText(), ...chain(2)) + TORN));
  const store = jsonlStore({
    disk,
    env,
    locks: { acquire: () => ({ release() {}, previousHolderDied: previousHolderDied }), holder: () => null },
    quarantine: "/root/quarantine",
    durability: "sync",
    fileFor: (header) => `/root/sessions/${header.id}.jsonl`,
  });
  const log = store.open("/root/sessions/session.jsonl");
  log.append(chain(1, 2).map((line) => bytesOf(line)));
  expect(textOf(disk.content("/root/sessions/session.jsonl") as Uint8Array)).toBe(wanted);
  const kept = disk.paths().filter((path) => path.startsWith("/root/quarantine"));
  expect(kept.map((path) => textOf(disk.content(path) as Uint8Array))).toEqual(previousHolderDied ? [TORN] : []);
});

test("a head that another program changes while the file is read is seen, wherever in the file it is", () => {
  const root = mkdtempSync(join(tmpdir(), "pi-session-"));
  const path = join(root, "session.jsonl");
  const env = testEnv();
  const lines = Array.from({ length: 1000 }, (_, n) => userText(id(n), n === 0 ? null : id(n - 1), "x".repeat(700)));
  writeFileSync(path, fileText(headerText(), ...lines));
  const fileFor = (): string => path;
  const options = {
    disk: realDisk,
    env,
    locks: noLocks,
    quarantine: root,
    cwd: "/",
    durability: "os",
    fileFor,
  } as const;
  const backend = new JsonlBackend(options, path);
  backend.open();
  expect(backend.records.holdsNodes(0, 0)).toBe(true);
  for (const n of [0, 1, 399, 400, 998, 999]) {
    const changed = lines.with(n, lines[n].replace(id(n), id(n + 5000)));
    writeFileSync(path, fileText(headerText(), ...changed));
    expect([n, backend.records.holdsNodes(0, 0)]).toEqual([n, false]);
  }
  writeFileSync(path, fileText(headerText(), ...lines.slice(0, 500)));
  expect(backend.records.holdsNodes(0, 0)).toBe(false);
  backend.close();
  rmSync(root, { recursive: true });
});

test("what another program glues to a torn write is found by a log that knew the torn write, wherever it was torn", () => {
  const batched = (n: number, index: number): string =>
    chain(1, n)[0].replace(',"message"', `,"_batch":{"session":"${SESSION}","index":${index},"count":2},"message"`);
  const before = fileText(headerText(), ...chain(2));
  const torn = fileText(batched(2, 0), batched(3, 1));
  const path = "/root/sessions/session.jsonl";
  for (const length of share(range(1, torn.length), 80)) {
    const disk = new FaultDisk();
    const store = jsonlStore({
      disk,
      env: testEnv(),
      locks: noLocks,
      quarantine: "/root/quarantine",
      durability: "sync",
      fileFor: (header) => `/root/sessions/${header.id}.jsonl`,
    });
    disk.put(path, bytesOf(before + torn.slice(0, length)));
    const log = store.open(path);
    const fd = disk.openAppend(path);
    disk.write(fd, bytesOf(fileText(userText("foreign", id(1)))));
    disk.close(fd);
    log.refresh();
    const fresh = store.open(path);
    expect(idsOf(fresh), `${length}`).toContain("foreign");
    expect(idsOf(log), `${length}`).toEqual(idsOf(fresh));
    log.close();
    fresh.close();
  }
});

test.each(["opened", "looked at"])(
  "what is read while the rest of a dead writer gives way to as many bytes of another is of one moment (%s)",
  (when) => {
    const batched = (n: number, index: number): string =>
      chain(1, n)[0].replace(',"message"', `,"_batch":{"session":"${SESSION}","index":${index},"count":2},"message"`);
    const path = "/root/sessions/session.jsonl";
    const before = fileText(headerText(), ...chain(2));
    const dead = fileText(batched(2, 0), batched(3, 1));
    const theirs = fileText(...[batched(2, 0), batched(3, 1)].map((line) => line.replaceAll("a000000", "b000000")));
    expect(theirs).toHaveLength(dead.length);
    for (let length = 1; length < dead.length; length += 7) {
      const disk = new FaultDisk();
      const store = jsonlStore({
        disk,
        env: testEnv(),
        locks: noLocks,
        quarantine: "/root/quarantine",
        durability: "sync",
        fileFor: (header) => `/root/sessions/${header.id}.jsonl`,
      });
      disk.put(path, bytesOf(when === "opened" ? before + dead.slice(0, length) : before));
      const known = when === "opened" ? undefined : store.open(path);
      const rest = when === "opened" ? "" : dead.slice(0, length);
      const { read } = disk;
      let isDone = false;
      const overwrite = (text: string): void => {
        const fd = disk.openAppend(path);
        disk.truncate(fd, Buffer.byteLength(before));
        disk.write(fd, bytesOf(text));
        disk.close(fd);
      };
      if (rest !== "") overwrite(rest);
      disk.read = (fd, into, offset, wanted, position) => {
        const count = read.call(disk, fd, into, offset, wanted, position);
        // Once some of the rest was read.
        if (!isDone && position + count > Buffer.byteLength(before) + length - 1) {
          isDone = true;
          overwrite(theirs);
        }
        return count;
      };
      const log = known ?? store.open(path);
      log.refresh();
      log.refresh();
      const fresh = store.open(path);
      expect(isDone, `${length}`).toBe(true);
      expect(idsOf(log), `${length}`).toEqual(idsOf(fresh));
      log.close();
      fresh.close();
    }
  },
);

describe("lines that other programs spell their own way", () => {
  const LONG = "say it again, ".repeat(100);
  const spelled: [string, (value: object) => string][] = [
    ["with spaces", (value) => JSON.stringify(value, null, 1).replaceAll(/\n */g, " ")],
    ["sorted", (value) => JSON.stringify(Object.fromEntries(Object.entries(value).sort()))],
  ];

  test.each(spelled)("keep their places where their bodies are damaged (%s)", (_, spell) => {
    const ids = ["8d3f0f5e-6f2e-4d47-9a2e-1f1f6c1b2a3b", id(1), "third"];
    const lines = ids.map((own, n) => {
      const message = { content: [{ type: "text", text: LONG }], role: "user" };
      return spell({ type: "message", id: own, parentId: ids[n - 1] ?? null, timestamp: TIME, message });
    });
    lines[1] = lines[1].replace("again", "ag\\in");
    const log = logOf(fileText(headerText(), ...lines));
    expect(idsOf(log)).toEqual(ids);
    expect(textsOf(log).map((text) => JSON.parse(text).damaged ?? false)).toEqual([false, true, false]);
    expect(log.damage).toMatchObject([{ kind: "bad_body", entryId: id(1) }]);
    log.close();
  });

  test("keep their places where a parser finds the damage", () => {
    const [first, second, third] = chain(3).map((line) => line.replaceAll('":', '": ').replaceAll(',"', ', "'));
    const log = logOf(fileText(headerText(), first, `${second.slice(0, -3)}x`, third));
    expect(idsOf(log)).toEqual([id(0), id(1), id(2)]);
    log.close();
  });
});
