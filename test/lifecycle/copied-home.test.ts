/**
 * A home that was copied with cp -a, as a backup is tried: nothing that is done in the copy reaches the original.
 *
 * @module-tag system
 */

import { cpSync, existsSync, renameSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { nameOf } from "../support/asking.ts";
import { contentsOf, library, listed, one, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { type Json, type Place, temporaryFolder } from "../support/server.ts";
import { runHere } from "../support/verbs.ts";

const [two, three] = [2, 3].map((n) => ({ sessionId: sessionId(n) }));

function copyOf(place: Place): Place {
  const home = temporaryFolder();
  cpSync(place.home, home, { recursive: true, preserveTimestamps: true, verbatimSymlinks: true });
  const state = join(home, "state");
  return { home, state, cwd: join(home, "project"), variables: { HOME: home, PI_SESSION_SERVER_STATE_DIR: state } };
}

test("undo and redo in a copy move nothing of the original, and name the folder that can", async () => {
  const { place, server, file } = library(3);
  await server.result("set_session_name", { sessionPath: file, name: "named" });
  await server.result("delete_session", three);
  await server.result("undo");
  await server.result("archive_session", one);
  await server.result("delete_session", two);
  const { operations } = await server.result("list_operations");
  await server.finish();
  const copy = copyOf(place);
  const [before, there] = [place, copy].map(({ home }) => contentsOf(home));
  const other = serveLibrary(copy);
  const rows = (await other.result("list_operations")).operations;
  expect(rows.map(({ text }: Json) => text)).toEqual(operations.map(({ text }: Json) => text));
  for (const { operationId } of operations)
    for (const method of ["undo", "redo"])
      expect(["cannot_undo", "operation_not_found"]).toContain(await nameOf(other, method, { operationId }));
  const { data, message } = await other.failure("undo");
  expect([data.name, data.next]).toEqual(["cannot_undo", undefined]);
  expect(message).toContain(place.state);
  expect(rows.every(({ canUndo }: Json) => !canUndo)).toBe(true);
  expect(rows[0].reason).toContain(place.state);
  expect([contentsOf(place.home), contentsOf(copy.home)]).toEqual([before, there]);
  // Changes of the copy's own go back as anywhere, and the original has its own record still.
  await other.result("archive_session", three);
  expect((await other.result("undo")).kind).toBe("archive");
  expect(await nameOf(other, "undo")).toBe("cannot_undo");
  expect(contentsOf(place.home)).toEqual(before);
  expect((await serveLibrary(place).result("undo")).kind).toBe("delete");
});

test("restore in a copy puts nothing into the original, and names the file that import brings in", async () => {
  const { place, server } = library(2);
  await server.result("delete_session", two);
  await server.finish();
  const copy = copyOf(place);
  const before = contentsOf(place.home);
  const other = serveLibrary(copy);
  const { data, message } = await other.failure("restore_session", two);
  expect(data.name).toBe("path_outside_root");
  expect(message).toContain(place.state);
  expect(data.itemPath.startsWith(copy.state)).toBe(true);
  expect(contentsOf(place.home)).toEqual(before);
  const { sessionPath } = await other.result("import_session", { path: data.path });
  expect(sessionPath.startsWith(rootOf(copy))).toBe(true);
  expect(await listed(other)).toEqual([sessionId(1), sessionId(2)]);
  expect(contentsOf(place.home)).toEqual(before);
});

test("an archive that came with the state folder of another home is told, with the command that brings it here", async () => {
  const { place, server } = library(2);
  await server.result("archive_session", one);
  await server.finish();
  expect((await runHere(place, ["list", "--archived"])).stdout).not.toContain("mv");
  const copy = copyOf(place);
  const before = contentsOf(place.home);
  for (const verb of [["list", "--archived"], ["doctor"], ["verify", "--all", "--archived"]]) {
    const { stdout } = await runHere(copy, verb);
    expect(stdout.replaceAll(/\s+/g, " "), verb.join(" ")).toContain("An archived session is of the session folder");
  }
  const { notRead } = await serveLibrary(copy).result("list_sessions", { archived: true });
  const [, command, from, to] = /(\w+) '(.*)' '(.*)'$/.exec(notRead[0].text) ?? [];
  expect(command).toBe("mv");
  renameSync(from, to);
  const other = serveLibrary(copy);
  expect(await listed(other, { archived: true })).toEqual([sessionId(1)]);
  const { movedTo } = await other.result("unarchive_session", one);
  expect(movedTo.startsWith(rootOf(copy))).toBe(true);
  expect(contentsOf(place.home)).toEqual(before);
});

test("the same folders by another name are no copy", async () => {
  const { place, server, file } = library();
  await server.result("archive_session", one);
  await server.finish();
  const link = join(temporaryFolder(), "link");
  symlinkSync(place.state, link);
  const named = { ...place, variables: { ...place.variables, PI_SESSION_SERVER_STATE_DIR: link } };
  const { status, stdout } = await runHere(named, ["undo"]);
  expect([status, stdout, existsSync(file)]).toEqual([0, expect.stringContaining("Took back"), true]);
});
