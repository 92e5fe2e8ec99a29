/** The record of operations: what several processes and crashes do to it. */

import {
  appendFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import type { NewOperation, OperationLog } from "../../../src/core/ports/operations.ts";
import { History } from "../../../src/core/session/history.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { makeOperationLog } from "../../../src/storage/lifecycle/operation-log.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { FaultDisk } from "../../support/disk.ts";
import { testEnv } from "../../support/env.ts";
import { failingDisk } from "../../support/failing.ts";
import { temporaryFolder } from "../../support/server.ts";

function operation(n: number): NewOperation {
  const path = `/sessions/${n}.jsonl`;
  const step = { do: "move", from: path, to: `/archive/${n}.jsonl` } as const;
  return { kind: "archive", sessionId: `s${n}`, sessionPath: path, name: null, text: `${n}`, step };
}

function logIn(stateFolder: string, more: object = {}): OperationLog {
  return makeOperationLog({ disk: realDisk, env: testEnv(), locks: noLocks, stateFolder, isDurable: false, ...more });
}

/** Notes operations, and writes them. */
function write(log: OperationLog, ...numbers: number[]): void {
  for (const n of numbers) log.note(operation(n));
  log.flush();
}

/** The numbers of the operations that happened. */
const numbersIn = (log: OperationLog): string =>
  History.of(log)
    .operations.map(({ text }) => text)
    .join(" ");

test("what was noted is written together when it is due, and in one write", () => {
  const state = temporaryFolder();
  const { disk, countOf } = failingDisk(() => undefined);
  const log = logIn(state, { disk });
  for (let n = 0; n < 5; n++) log.note(operation(n));
  expect(readdirSync(state)).toEqual([]);
  log.flush();
  log.flush();
  expect(countOf("write")).toBe(1);
  log.note(operation(5));
  log.failed([log.note(operation(6)), log.note(operation(7))]);
  expect(numbersIn(log)).toBe("0 1 2 3 4 5");
});

test("what is about to happen is on the medium before it does, whatever a loss of power leaves", async () => {
  const disk = new FaultDisk();
  const log = logIn("/state", { disk, isDurable: true, maxBytes: 1 });
  // Each is in a file of its own.
  for (let n = 0; n < 4; n++) {
    const { id } = n % 2 ? log.beginNow(operation(n)) : await log.begin(operation(n));
    for (const { disk: left } of disk.lasting())
      expect(logIn("/state", { disk: left }).lines(), `${n}`).toContainEqual(expect.objectContaining({ id }));
  }
  expect(disk.paths()).toContain("/state/operations/4.jsonl");
});

test("torn and damaged lines are passed over, and damage no other", async () => {
  const state = temporaryFolder();
  const log = logIn(state);
  write(log, 1);
  const file = join(state, "operations", "1.jsonl");
  const whole = readFileSync(file);
  for (let cut = 0; cut < whole.length - 2; cut++) {
    writeFileSync(file, whole.subarray(0, cut));
    write(log, 2);
    expect([cut, numbersIn(log)]).toEqual([cut, "2"]);
  }
  writeFileSync(file, whole);
  appendFileSync(file, '\u0000\u00ff\n"text"\nnull\n[]\n{"done":"x"}\n{"failed":"x"}\n{"failed":[{}]}\n');
  appendFileSync(file, `${"[".repeat(100_000)}\n{"id":1}\n`);
  for (const wrong of [
    { kind: "nonsense" },
    { step: { do: "move", from: 1, to: "x" } },
    { step: { do: "constructor" } },
    { step: { do: "change", path: "p", leaf: [1, 2] } },
    { of: "x" },
    { kind: "undo" },
  ])
    appendFileSync(file, `${JSON.stringify({ ...JSON.parse(whole.toString()), id: "other", ...wrong })}\n`);
  const begun = await log.begin(operation(3));
  log.done(begun.id, { text: "three" });
  expect(numbersIn(log)).toBe("1 three");
});

test("the last word counts on whether an operation happened", async () => {
  const log = logIn(temporaryFolder());
  const { id } = await log.begin(operation(1));
  const stages = (): string[] => History.of(log).operations.map(({ stage }) => stage);
  expect(stages()).toEqual(["begun"]);
  log.failed([id]);
  expect(stages()).toEqual([]);
  log.done(id);
  expect(stages()).toEqual(["done"]);
});

test("the record is bounded, whoever writes, and survives that its folder goes", async () => {
  const state = temporaryFolder();
  const logs = [1, 2, 3].map(() => logIn(state, { maxBytes: 2000 }));
  for (let n = 0; n < 90; n++) write(logs[n % 3], n);
  const folder = join(state, "operations");
  const sizes = readdirSync(folder).map((name) => readFileSync(join(folder, name)).length);
  expect(sizes).toHaveLength(2);
  expect(Math.max(...sizes)).toBeLessThan(2500);
  const found = numbersIn(logs[0]).split(" ").map(Number);
  // No gap: the last records are left, in order.
  expect(found).toEqual(found.map((_, i) => 90 - found.length + i));
  expect(found.length).toBeGreaterThan(6);
  rmSync(folder, { recursive: true });
  await logs[1].begin(operation(90));
  write(logs[2], 91);
  expect(numbersIn(logs[0])).toBe("90 91");
});

test("a disk that refuses keeps nothing from happening, and shows what was recorded before", async () => {
  const state = temporaryFolder();
  const first = logIn(state);
  write(first, 1);
  for (let at = 1; at < 12; at++) {
    let count = 0;
    const { disk, open } = failingDisk((_n, name) => (name !== "read" && ++count === at ? "ENOSPC" : undefined));
    const log = logIn(state, { disk, isDurable: true });
    const { id } = await log.begin(operation(2));
    log.beginNow(operation(3));
    log.done(id);
    expect([open(), numbersIn(first).split(" ")[0]]).toEqual([0, "1"]);
  }
});

test("what the disk refused is known here, told once it is done, and recorded as soon as there is room", async () => {
  const state = temporaryFolder();
  write(logIn(state), 1);
  let isFull = true;
  const { disk } = failingDisk((_n, name) => (isFull && name === "write" ? "ENOSPC" : undefined));
  const told: string[] = [];
  const log = logIn(state, { disk, onUnrecorded: (text: string) => told.push(text) });
  const noted = log.note(operation(2));
  log.flush();
  const failed = log.note(operation(3));
  log.flush();
  log.failed([failed]);
  const { id } = await log.begin(operation(4));
  expect(told).toEqual([]);
  log.settle([noted]);
  log.done(id, { text: "four" });
  expect(told).toEqual(["2", "4"]);
  expect(numbersIn(log)).toBe("1 2 four");
  // Another process knows that they happened, but not what they did.
  const elsewhere = History.of(logIn(state)).operations;
  expect(elsewhere.map(({ sessionId, kind, final }) => [sessionId, kind, final !== undefined])).toEqual([
    ["s1", "archive", false],
    ["s2", "archive", true],
    ["s4", "archive", true],
  ]);
  expect(History.of(logIn(state)).newest(() => true)?.text).toBe("Unrecorded change: archive.");
  isFull = false;
  write(log, 5);
  expect([numbersIn(log), numbersIn(logIn(state))]).toEqual(["1 2 four 5", "1 2 four 5"]);
  expect(told).toHaveLength(2);
  expect(readdirSync(join(state, "operations"))).toEqual(["1.jsonl"]);
});

test("an operation of another state folder, whose copy this one is, is final", () => {
  const [state, other] = [temporaryFolder(), temporaryFolder()];
  write(logIn(state), 1);
  cpSync(state, other, { recursive: true });
  write(logIn(other), 2);
  const finals = History.of(logIn(other)).operations.map(({ final }) => final);
  expect(finals).toEqual([expect.stringContaining(state), undefined]);
});

test("a link in the place of the record is not followed", () => {
  const state = temporaryFolder();
  const target = join(temporaryFolder(), "precious");
  writeFileSync(target, "precious");
  mkdirSync(join(state, "operations"));
  symlinkSync(target, join(state, "operations", "1.jsonl"));
  write(logIn(state), 1);
  expect(readFileSync(target, "utf8")).toBe("precious");
});

test("one undo at a time: others wait here, and are refused elsewhere", async () => {
  const state = temporaryFolder();
  const log = logIn(state);
  const order: string[] = [];
  const act = async (name: string): Promise<void> => {
    order.push(name);
    await new Promise((resolve) => setImmediate(resolve));
    order.push(name);
  };
  await Promise.all(["a", "b"].map((name) => log.alone(() => act(name))));
  expect(order).toEqual(["a", "a", "b", "b"]);
  const holder = { client: "another", pid: 7, since: "" };
  const locked = logIn(state, { locks: { acquire: () => holder, holder: () => holder } });
  await expect(locked.alone(async () => {})).rejects.toMatchObject({ name: "session_locked", details: { holder } });
  await expect(logIn(state, { readOnly: true }).alone(async () => {})).rejects.toThrow(Failure);
});
