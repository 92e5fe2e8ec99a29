/** Sessions that are containers of Session Store V2 go through the same life: born in V2, or migrated from a file. */

import { existsSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { folderName } from "../../src/core/store/paths.ts";
import { user } from "../support/drafts.ts";
import { contentsOf, listed, put, putSession, read, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";

interface Made {
  readonly place: Place;
  readonly server: HereServer;
  readonly file: string;
  readonly id: string;
}

/** A container that was made as one, closed. */
async function born(): Promise<Made> {
  const place = temporaryPlace();
  const maker = serveHere(["--store", "v2", "--events", "none"], { place });
  await maker.result("append", { entries: [user("one"), user("two")] });
  const { sessionFile: file, sessionId: id } = await maker.result("get_state");
  await maker.finish();
  return { place, server: serveLibrary(place), file, id };
}

/** A container that was a session file, with what belonged to that, and one that was rolled back before. */
async function migrated(): Promise<Made> {
  const place = temporaryPlace();
  const source = putSession(place, 1);
  put(`${source}.v1.bak`, "backup");
  const server = serveLibrary(place);
  await server.result("migrate_session", { sessionPath: source, to: "v2" });
  const { keptAt } = await server.result("rollback_migration", { sessionPath: source });
  expect(basename(keptAt)).toBe(`${sessionId(1)}.v2.rolled-back`);
  await server.result("migrate_session", { sessionPath: source, to: "v2" });
  const { sessions } = await server.result("list_sessions");
  return { place, server, file: sessions[0].sessionPath, id: sessionId(1) };
}

async function said(server: HereServer, sessionPath: string): Promise<string[]> {
  const { content } = await server.result("export_session", { sessionPath, format: "training" });
  return JSON.parse(content).turns.map((turn: Json) => turn.content);
}

for (const [name, make] of [
  ["born as one", born],
  ["migrated", migrated],
] as const) {
  test(`a container ${name} is deleted, restored and deleted for good`, async () => {
    const { place, server, file, id } = await make();
    const before = contentsOf(rootOf(place));
    const texts = await said(server, file);
    const deleted = await server.result("delete_session", { sessionId: id });
    expect(deleted).toMatchObject({ sessionId: id, sessionPath: file, trash: "own" });
    expect(contentsOf(rootOf(place))).toEqual({});
    expect(await listed(server)).toEqual([]);
    expect((await server.failure("switch_session", { sessionId: id })).data.name).toBe("session_not_found");
    expect(await server.result("restore_session", { sessionId: id })).toMatchObject({ movedTo: file });
    expect(contentsOf(rootOf(place))).toEqual(before);
    expect([await listed(server), await said(server, file)]).toEqual([[id], texts]);
    expect(await server.result("delete_session", { sessionId: id, permanent: true })).toMatchObject({ trash: "none" });
    expect(contentsOf(rootOf(place))).toEqual({});
    expect(existsSync(file)).toBe(false);
  });

  test(`a container ${name} is archived and comes back`, async () => {
    const { place, server, file, id } = await make();
    const before = contentsOf(rootOf(place));
    const texts = await said(server, file);
    const { movedTo } = await server.result("archive_session", { sessionId: id });
    expect(contentsOf(rootOf(place))).toEqual({});
    expect([await listed(server), await listed(server, { archived: true })]).toEqual([[], [id]]);
    expect(await said(server, movedTo)).toEqual(texts);
    await server.result("unarchive_session", { sessionId: id });
    expect([contentsOf(rootOf(place)), await listed(server)]).toEqual([before, [id]]);
    expect(existsSync(file)).toBe(true);
  });

  test(`a container ${name} is relocated`, async () => {
    const { place, server, file, id } = await make();
    const texts = await said(server, file);
    const header = read(join(file, "header.jsonl"));
    const { movedTo, keptAt } = await server.result("relocate_session", {
      sessionId: id,
      cwd: "/new/place",
      allowMissing: true,
    });
    expect(movedTo).toBe(join(rootOf(place), folderName("/new/place"), basename(file)));
    expect(read(keptAt)).toBe(header);
    const { cwd } = JSON.parse(header);
    expect(read(join(movedTo, "header.jsonl"))).toBe(header.replace(JSON.stringify(cwd), '"/new/place"'));
    expect(Object.keys(contentsOf(dirname(file)))).toEqual([]);
    expect([await listed(server, { cwd: "/new/place" }), await said(server, movedTo)]).toEqual([[id], texts]);
    expect((await server.result("verify_session", { sessionPath: movedTo })).ok).toBe(true);
    await server.result("set_session_name", { sessionPath: movedTo, name: "goes on" });
    expect((await server.result("list_sessions")).sessions[0].name).toBe("goes on");
  });

  test(`a container ${name} is exported as the lines of its entries, which come in again`, async () => {
    const { server, file, id } = await make();
    const { path } = await server.result("export_session", {
      sessionPath: file,
      format: "jsonl",
      outputPath: "x.jsonl",
    });
    expect(await server.result("import_session", { path })).toMatchObject({
      sessionId: id,
      sessionPath: file,
      outcome: "known",
    });
    const lines = read(path).trim().split("\n");
    const more = put(
      `${path}.more.jsonl`,
      `${lines.join("\n")}\n${JSON.stringify({ type: "message", id: "b0000000", parentId: JSON.parse(lines.at(-1) as string).id, timestamp: "2026-01-24T16:22:26.831Z", message: { role: "user", content: "more" } })}\n`,
    );
    expect(await server.result("import_session", { path: more })).toMatchObject({
      outcome: "continued",
      sessionPath: file,
    });
    expect((await said(server, file)).at(-1)).toBe("more");
  });

  test(`a container ${name} that was deleted by hand is gone`, async () => {
    const { server, file, id } = await make();
    rmSync(file, { recursive: true });
    expect(await listed(server)).toEqual([]);
    expect((await server.failure("switch_session", { sessionId: id })).data.name).toBe("session_not_found");
  });
}

test("a migrated session is meant by the name of the file that it was", async () => {
  const { place, server, file } = await migrated();
  const source = join(dirname(file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
  expect(existsSync(source)).toBe(false);
  expect(await server.result("delete_session", { sessionPath: source })).toMatchObject({ sessionPath: file });
  expect(contentsOf(rootOf(place))).toEqual({});
});

test("a container whose snapshot was deleted by hand is gone", async () => {
  const { server, file, id } = await migrated();
  rmSync(join(dirname(file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl.migrated`));
  expect(await listed(server)).toEqual([]);
  expect((await server.failure("switch_session", { sessionId: id })).data.name).toBe("session_not_found");
});
