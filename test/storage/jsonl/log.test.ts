/** Sessions as JSONL files keep the contract, on the disk and on the disk that the fault tests use. The contract has a test in SWEEP. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { SessionHeader } from "../../../src/core/format/entry.ts";
import { decodeText, parse, toBytes } from "../../../src/core/json/json.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { JsonlBackend } from "../../../src/storage/jsonl/log.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { FaultDisk } from "../../support/disk.ts";
import { BEGINNING, testEnv } from "../../support/env.ts";
import { chain, fileText, headerText, id, SESSION, TIME, userText } from "../../support/lines.ts";
import { type LockTable, locksOf } from "../../support/locks.ts";
import { range, share } from "../../support/random.ts";
import { temporaryFolder } from "../../support/server.ts";
import { diskWith, FILE, FOLDER, idsOf, jsonlOn, logOf, QUARANTINE, textsOf } from "../../support/sessions.ts";
import { keepsTheContract } from "../contract.ts";
import { writeBehind } from "../other-writers.ts";
import { harnessOn } from "./harness.ts";

keepsTheContract("jsonl", () => {
  const root = mkdtempSync(join(tmpdir(), "pi-session-"));
  mkdirSync(join(root, "sessions"));
  return harnessOn(realDisk, root, {}, () => rmSync(root, { recursive: true }));
});

keepsTheContract("jsonl on a disk in memory", () => {
  const disk = new FaultDisk();
  disk.makeFolder("/root/sessions");
  return harnessOn(disk, "/root", { faults: disk }, () => {});
});

/** The beginning of an entry. */
const TORN = '{"type":"message","id":"a00000';
const TWO = fileText(headerText(), ...chain(2));

test.each([
  ["a writer that died with the lock is cut at once", true, `${TWO}${fileText(...chain(1, 2))}`],
  ["anybody else is closed while it is young", false, `${TWO}${fileText(TORN, ...chain(1, 2))}`],
])("a torn write of %s", (_whose, previousHolderDied, wanted) => {
  const disk = new FaultDisk();
  disk.clock = () => BEGINNING + 1000;
  disk.put(FILE, toBytes(TWO + TORN));
  const locks = { acquire: () => ({ release() {}, previousHolderDied }), holder: () => null };
  const log = jsonlOn(disk, { locks }).open(FILE);
  log.append(chain(1, 2).map((line) => toBytes(line)));
  expect(decodeText(disk.content(FILE) as Uint8Array)).toBe(wanted);
  const kept = disk.paths().filter((path) => path.startsWith(QUARANTINE));
  expect(kept.map((path) => decodeText(disk.content(path) as Uint8Array))).toEqual(previousHolderDied ? [TORN] : []);
});

test.each([
  ["half a line", '{"half', ["bad_line"]],
  ["the head of an entry", userText("torn", id(2), "never ends").slice(0, -9), ["bad_body"]],
  ["a last line of its own without a line feed", userText("whole", id(2)), []],
])(
  "%s of another program, which an append closes, is what an opening finds there, and lines are counted on",
  (_, rest, kinds) => {
    const disk = diskWith(TWO);
    disk.clock = () => BEGINNING;
    const log = jsonlOn(disk).open(FILE);
    log.append([toBytes(chain(1, 2)[0])]);
    writeBehind(disk, FILE, rest);
    log.append([toBytes(chain(1, 3)[0])]);
    writeBehind(disk, FILE, "no entry\n");
    log.refresh();
    const fresh = jsonlOn(disk).open(FILE);
    for (const one of [log, fresh]) textsOf(one);
    const [found, wanted] = [log, fresh].map(({ damage }) => damage.toSorted((a, b) => a.byteOffset - b.byteOffset));
    expect(wanted.map(({ kind }) => kind)).toEqual([...kinds, "bad_line"]);
    expect(found).toEqual(wanted);
    expect(idsOf(log)).toEqual(idsOf(fresh));
    for (const one of [log, fresh]) one.close();
  },
);

test("of two processes that begin a session with one id at the same moment one does, and the other is refused", () => {
  const disk = new FaultDisk();
  disk.makeFolder(FOLDER);
  const table: LockTable = new Map();
  const [header, entry] = [headerText(), chain(1)[0]].map((line) => toBytes(line));
  const [first, second] = ["first", "second"].map((client) => {
    const file = `${FOLDER}/${client}_${SESSION}.jsonl`;
    const beginning = { header: parse(header) as SessionHeader, headerLine: header, file, isGivenId: true };
    return jsonlOn(disk, { locks: locksOf(client, table) }).create(beginning);
  });
  const { create } = disk;
  disk.create = (...args) => {
    disk.create = create;
    // The first has seen that the id is free.
    const refused = { name: "already_exists", details: expect.objectContaining({ sessionId: SESSION }) };
    expect(() => second.append([entry])).toThrow(expect.objectContaining(refused));
    return create.apply(disk, args);
  };
  first.append([entry]);
  expect(() => second.append([entry])).toThrow(expect.objectContaining({ name: "already_exists" }));
  expect(disk.paths().filter((path) => path.includes(SESSION))).toEqual([first.file]);
  for (const log of [first, second]) log.close();
  expect([...table]).toEqual([]);
});

test("a head that another program changes while the file is read is seen, wherever in the file it is", () => {
  const root = temporaryFolder();
  const path = join(root, "session.jsonl");
  const lines = range(0, 1000).map((n) => userText(id(n), n === 0 ? null : id(n - 1), "x".repeat(700)));
  writeFileSync(path, fileText(headerText(), ...lines));
  const fileFor = (): string => path;
  const common = { disk: realDisk, env: testEnv(), locks: noLocks, quarantine: root, durability: "os" } as const;
  const backend = new JsonlBackend({ ...common, fileFor }, path);
  backend.open();
  expect(backend.records.holdsNodes(0, 0)).toBe(true);
  for (const n of [0, 1, 399, 400, 998, 999]) {
    writeFileSync(path, fileText(headerText(), ...lines.with(n, lines[n].replace(id(n), id(n + 5000)))));
    expect([n, backend.records.holdsNodes(0, 0)]).toEqual([n, false]);
  }
  writeFileSync(path, fileText(headerText(), ...lines.slice(0, 500)));
  expect(backend.records.holdsNodes(0, 0)).toBe(false);
  backend.close();
});

const batched = (n: number, index: number): string =>
  chain(1, n)[0].replace(',"message"', `,"_batch":{"session":"${SESSION}","index":${index},"count":2},"message"`);
/** Lines of a dead writer; any part of them may be there. */
const REST = fileText(batched(2, 0), batched(3, 1));

test("what another program glues to a torn write is found by a log that knew the torn write, wherever it was torn", () => {
  for (const length of share(range(1, REST.length), 80)) {
    const disk = diskWith(TWO + REST.slice(0, length));
    const log = jsonlOn(disk).open(FILE);
    writeBehind(disk, FILE, fileText(userText("foreign", id(1))));
    log.refresh();
    const fresh = jsonlOn(disk).open(FILE);
    expect(idsOf(fresh), `${length}`).toContain("foreign");
    expect(idsOf(log), `${length}`).toEqual(idsOf(fresh));
    for (const one of [log, fresh]) one.close();
  }
});

test.each(["opened", "looked at"])(
  "what is read while a dead writer's rest gives way to another's is of one moment (%s)",
  (when) => {
    const theirs = REST.replaceAll("a000000", "b000000");
    expect(theirs).toHaveLength(REST.length);
    for (let length = 1; length < REST.length; length += 7) {
      const rest = REST.slice(0, length);
      const disk = diskWith(when === "opened" ? TWO + rest : TWO);
      const known = when === "opened" ? undefined : jsonlOn(disk).open(FILE);
      if (when !== "opened") writeBehind(disk, FILE, rest);
      const { read } = disk;
      let isDone = false;
      disk.read = (fd, into, offset, wanted, position) => {
        const count = read.call(disk, fd, into, offset, wanted, position);
        // Once some of the rest was read.
        if (!isDone && position + count > TWO.length + length - 1) {
          isDone = true;
          writeBehind(disk, FILE, theirs, TWO.length);
        }
        return count;
      };
      const log = known ?? jsonlOn(disk).open(FILE);
      log.refresh();
      log.refresh();
      const fresh = jsonlOn(disk).open(FILE);
      expect(isDone, `${length}`).toBe(true);
      expect(idsOf(log), `${length}`).toEqual(idsOf(fresh));
      for (const one of [log, fresh]) one.close();
    }
  },
);

test.each<[string, (value: object) => string]>([
  ["with spaces", (value) => JSON.stringify(value, null, 1).replaceAll(/\n */g, " ")],
  ["sorted", (value) => JSON.stringify(Object.fromEntries(Object.entries(value).sort()))],
])("lines that other programs spell %s keep their places where their bodies are damaged", (_, spell) => {
  const ids = ["8d3f0f5e-6f2e-4d47-9a2e-1f1f6c1b2a3b", id(1), "third"];
  const lines = ids.map((own, n) => {
    const message = { content: [{ type: "text", text: "say it again, ".repeat(100) }], role: "user" };
    return spell({ type: "message", id: own, parentId: ids[n - 1] ?? null, timestamp: TIME, message });
  });
  lines[1] = lines[1].replace("again", "ag\\in");
  const log = logOf(fileText(headerText(), ...lines));
  expect(idsOf(log)).toEqual(ids);
  expect(textsOf(log).map((text) => JSON.parse(text).damaged ?? false)).toEqual([false, true, false]);
  expect(log.damage).toMatchObject([{ kind: "bad_body", entryId: id(1) }]);
  log.close();
});

test("lines that other programs spell their own way keep their places where a parser finds the damage", () => {
  const [first, second, third] = chain(3).map((line) => line.replaceAll('":', '": ').replaceAll(',"', ', "'));
  const log = logOf(fileText(headerText(), first, `${second.slice(0, -3)}x`, third));
  expect(idsOf(log)).toEqual([id(0), id(1), id(2)]);
  log.close();
});
