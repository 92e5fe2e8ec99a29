/** The verbs for what happened, as a person uses them: operations, undo, redo, trash. */

import { chmodSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { widthOf } from "../../../src/cli/terminal/text.ts";
import { contentsOf, put, putSession, rootOf, sessionId } from "../../support/lifecycle.ts";
import { type Place, serveHere, temporaryPlace } from "../../support/server.ts";
import { type RunOptions, runHere } from "../../support/verbs.ts";

const NOW = Date.parse("2026-01-24T18:40:00.000Z");

async function printed(place: Place, args: readonly string[], options: RunOptions = {}): Promise<string[]> {
  const { stdout, stderr, status } = await runHere(place, args, { now: NOW, ...options });
  expect([stderr, status]).toEqual(["", 0]);
  return stdout.trimEnd().split("\n");
}

/** A place in which a session was named, archived and deleted by a host. */
async function used(name = "Refactor auth"): Promise<{ place: Place; file: string }> {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  putSession(place, 2);
  const server = serveHere(["--no-session", "--events", "none"], { place });
  await server.result("set_session_name", { sessionPath: file, name });
  await server.result("archive_session", { sessionId: sessionId(1) });
  await server.result("delete_session", { sessionId: sessionId(2) });
  await server.finish();
  return { place, file };
}

test("operations tells what happened, undo takes it back one by one, and redo brings it again", async () => {
  const { place, file } = await used();
  const list = await printed(place, ["operations"]);
  expect(list.map((line) => line.replace(/^[0-9a-f]{8}/, "<id>    "))).toEqual([
    "ID         AGE  SESSION               OPERATION",
    '<id>        2h  01991f6e              Deleted "say a0000000".',
    '<id>        2h  Refactor auth         Archived "Refactor auth".',
    '<id>        2h  Refactor auth         Named the session "Refactor auth".',
  ]);
  const [first] = await printed(place, ["undo"]);
  expect(first).toBe('Took back: Deleted "say a0000000".');
  expect((await printed(place, ["undo"]))[0]).toBe('Took back: Archived "Refactor auth".');
  expect(await printed(place, ["redo"])).toEqual([
    'Did again: Archived "Refactor auth".',
    expect.stringContaining(`  ${sessionId(1).slice(0, 8)}  ~/state/archive/`),
    "undo takes it back again.",
  ]);
  const id = list[3].slice(0, 4);
  expect(await printed(place, ["undo", id])).toContainEqual("redo brings it back.");
  const wide = { variables: { COLUMNS: "120" } };
  expect((await printed(place, ["operations", file], wide)).slice(1).map((line) => line.slice(38))).toEqual([
    'Took back: Named the session "Refactor auth".',
    'Did again: Archived "Refactor auth".',
    '(undone) Took back: Archived "Refactor auth".',
    'Archived "Refactor auth".',
    '(undone) Named the session "Refactor auth".',
  ]);
  expect(JSON.parse((await printed(place, ["redo", "--json"])).join("")).kind).toBe("rename");
});

test("with nothing left, and with an id that means nothing, it is said in the words of the command line", async () => {
  const place = temporaryPlace();
  expect(await printed(place, ["operations"])).toEqual(["Nothing is recorded."]);
  for (const [args, words] of [
    [["undo"], "There is nothing to undo. operations shows what happened."],
    [["redo"], "There is nothing to redo"],
    [["undo", "abcd"], "operations shows those that are recorded"],
  ] as const) {
    const { stderr, status } = await runHere(place, args, { now: NOW });
    expect([stderr, status]).toEqual([expect.stringContaining(words), 1]);
  }
  expect((await runHere(place, ["undo", "ab"], { now: NOW })).status).toBe(2);
});

test("lines fit every terminal, and nothing in a name acts on it", async () => {
  const { place } = await used(`\u001b[2J\u202e\u0000evil ${"很长的名字".repeat(30)}`);
  for (const width of [40, 72, 200])
    for (const verb of ["operations", "trash", "undo"])
      for (const line of await printed(place, [verb], { terminal: { columns: width } })) {
        // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are what is taken out
        const plain = line.replace(/\u001b\[\d+m/g, "");
        expect(plain).not.toMatch(/[\p{Cc}\u202e]/u);
        if (verb !== "undo") expect(widthOf(plain)).toBeLessThanOrEqual(width);
      }
});

describe("the trash", () => {
  test("is listed with sizes and ages, by either verb, and a short id gets a session back", async () => {
    const { place } = await used();
    const before = contentsOf(rootOf(place));
    const lines = await printed(place, ["trash"]);
    expect(lines[0]).toBe(" AGE    MSGS      SIZE  ID        NAME OR PATH");
    expect(lines[1]).toMatch(/^ {2}2h {7}3 {5}\d+ B {2}01991f6e {2}~\/\.pi\/agent\/sessions\//);
    expect(lines[2]).toMatch(/^1 item, \d+ B\. restore <id> brings a session back\.$/);
    expect(await printed(place, ["list", "--trash"])).toEqual(lines);
    expect(JSON.parse((await printed(place, ["list", "--trash", "--json"])).join("")).total).toBe(1);
    expect(await printed(place, ["trash", "ffff"])).toEqual(["There is nothing in the trash."]);
    await printed(place, ["restore", sessionId(2).slice(0, 4)]);
    expect(await printed(place, ["trash"])).toEqual(["There is nothing in the trash."]);
    expect(Object.keys(contentsOf(rootOf(place))).length).toBe(Object.keys(before).length + 1);
    await printed(place, ["undo"]);
    expect(readdirSync(join(place.state, "trash"))).toHaveLength(1);
  });

  test("shows as much of ids as tells them apart", async () => {
    const { place } = await used();
    const file = putSession(place, 3);
    await printed(place, ["delete", file, "--yes"]);
    const ids = (await printed(place, ["trash"])).slice(1, 3).map((line) => line.split(/\s+/)[5]);
    expect(ids.sort()).toEqual([sessionId(2), sessionId(3)]);
  });
});

test("delete asks with the way back that there will be", async () => {
  const { place } = await used();
  const asked: string[] = [];
  const terminal = {
    answer: async (question: string) => {
      asked.push(question);
      return "n";
    },
  };
  const bin = join(place.home, "bin");
  put(join(bin, "trash"), "#!/bin/sh\nexit 1\n");
  chmodSync(join(bin, "trash"), 0o755);
  const file = putSession(place, 3);
  for (const variables of [{ PATH: "" }, { PATH: bin }])
    expect((await runHere(place, ["delete", file], { now: NOW, terminal, variables })).status).toBe(1);
  expect(asked.map((question) => question.includes("undo cannot bring it back"))).toEqual([false, true]);
});

test("undo asks before it takes back an older operation than the last, which cannot be undone", async () => {
  const { place } = await used();
  await printed(place, ["delete", sessionId(1), "--permanent", "--yes"]);
  const asked: string[] = [];
  const terminal = (said: string) => ({
    answer: async (question: string) => {
      asked.push(question);
      return said;
    },
  });
  expect((await runHere(place, ["undo"], { now: NOW })).stderr).toContain("Undo that by its id.");
  expect(await runHere(place, ["undo"], { now: NOW, terminal: terminal("n") })).toMatchObject({ status: 1 });
  expect(await runHere(place, ["undo"], { now: NOW, terminal: terminal("y") })).toMatchObject({ status: 0 });
  expect(asked).toHaveLength(2);
  expect(asked[1]).toMatch(/^The last operation cannot be undone: .* Deleted "say a0000000"\. .*\nUndo it now\?/);
});
