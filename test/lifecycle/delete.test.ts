/** Deleting and restoring: what goes along, what is refused, and where things lie then. */

import { chmodSync, existsSync, mkdirSync, readdirSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { encodePointer } from "../../src/storage/v2/documents.ts";
import { newPointer } from "../../src/storage/v2/pointer.ts";
import { contentsOf, listed, put, putSession, read, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, id } from "../support/lines.ts";
import { type Place, serveHere, temporaryFolder, temporaryPlace } from "../support/server.ts";

/** A session with all that can belong to one, and a neighbour with the same. */
function wholeSession(place: Place, n = 1): { file: string; others: string[] } {
  const file = putSession(place, n);
  const folder = dirname(file);
  const others = [
    `${file}.v1.bak`,
    `${file}.damaged.bak`,
    `${file}.damaged.bak.2`,
    join(`${file}.blobs`, "0".repeat(64)),
    `${file}.migrated`,
    join(folder, `${sessionId(n)}.store.json`),
    join(folder, `${sessionId(n)}.v2`, "manifest.json"),
    join(folder, `${sessionId(n)}.v2`, "segments", "0000000000000001.seg"),
    join(folder, `${sessionId(n)}.v2.staging`, "migrations", "ledger.jsonl"),
    join(folder, `${sessionId(n)}.v2.rolled-back`, "manifest.json"),
    join(folder, `${sessionId(n)}.v2.rolled-back.2`, "manifest.json"),
  ];
  for (const path of others) put(path, `content of ${basename(path)} ${n}`);
  const back = { ...newPointer("0".repeat(64), sessionId(n)), active: "jsonl_v3", phase: "rollback" } as const;
  put(others[5], encodePointer({ ...back, source: basename(file) }));
  return { file, others };
}

describe("delete_session", () => {
  test("moves a session with all that belongs to it to our trash, and restore_session brings it back", async () => {
    const place = temporaryPlace();
    const { file } = wholeSession(place);
    wholeSession(place, 2);
    const before = contentsOf(rootOf(place));
    const server = serveLibrary(place);
    const deleted = await server.result("delete_session", { sessionPath: file });
    expect(deleted).toEqual({
      operationId: expect.any(String),
      sessionId: sessionId(1),
      sessionPath: file,
      movedTo: join(place.state, "trash", readdirSync(join(place.state, "trash"))[0], basename(file)),
      trash: "own",
    });
    expect(read(deleted.movedTo)).toBe(before[file]);
    const left = contentsOf(rootOf(place));
    expect(Object.keys(left).filter((path) => path.includes(sessionId(1)))).toEqual([]);
    for (const [path, content] of Object.entries(left)) expect(content).toBe(before[path]);
    expect(await listed(server)).toEqual([sessionId(2)]);
    const restored = await server.result("restore_session", { sessionId: sessionId(1) });
    expect(restored).toEqual({ sessionId: sessionId(1), sessionPath: deleted.movedTo, movedTo: file });
    expect(contentsOf(rootOf(place))).toEqual(before);
    expect(readdirSync(join(place.state, "trash"))).toEqual([]);
    expect(await listed(server)).toEqual([sessionId(1), sessionId(2)]);
  });

  test("permanently unlinks all of it and nothing else", async () => {
    const place = temporaryPlace();
    const { file } = wholeSession(place);
    const { others } = wholeSession(place, 2);
    const neighbour = put(join(dirname(file), `${basename(file)}x`), "not ours");
    const server = serveLibrary(place);
    const result = await server.result("delete_session", { sessionId: sessionId(1), permanent: true });
    expect(result).toEqual({
      operationId: expect.any(String),
      sessionId: sessionId(1),
      sessionPath: file,
      trash: "none",
    });
    const left = Object.keys(contentsOf(rootOf(place))).sort();
    expect(left).toEqual([neighbour, join(dirname(file), basename(file).replace("0001", "0002")), ...others].sort());
    expect(existsSync(join(place.state, "trash"))).toBe(false);
    const { data } = await server.failure("restore_session", { sessionId: sessionId(1) });
    expect(data.name).toBe("session_not_found");
  });

  test("takes an id only whole", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const server = serveLibrary(place);
    const before = contentsOf(rootOf(place));
    for (const wrong of [sessionId(1).slice(0, -1), sessionId(1).slice(0, 8), "0"])
      expect((await server.failure("delete_session", { sessionId: wrong })).data.name).toBe("ambiguous_id");
    for (const wrong of ["*", "../x", "%2e", "con ", `${sessionId(1)}*`, "a".repeat(300)])
      expect((await server.failure("delete_session", { sessionId: wrong })).data.name).toBe("invalid_id");
    expect((await server.failure("delete_session", { sessionId: "unknown" })).data.name).toBe("session_not_found");
    expect((await server.failure("delete_session", { sessionId: sessionId(1), sessionPath: file })).code).toBe(-32602);
    expect((await server.failure("delete_session", {})).code).toBe(-32602);
    expect(contentsOf(rootOf(place))).toEqual(before);
  });

  test("refuses an id that two files have, and takes either by its path", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const copy = put(file.replace(".jsonl", ".sync-conflict-20260124.jsonl"), read(file));
    put(join(dirname(file), `${sessionId(1)}.v2`, "manifest.json"), "of the first");
    const server = serveLibrary(place);
    expect((await server.failure("delete_session", { sessionId: sessionId(1) })).data).toMatchObject({
      name: "ambiguous_id",
      matches: 2,
    });
    await server.result("delete_session", { sessionPath: copy });
    expect(existsSync(file)).toBe(true);
    // The container may be that of the other.
    expect(existsSync(join(dirname(file), `${sessionId(1)}.v2`))).toBe(true);
  });

  test("refuses what is open here, beside or as the current one, and takes it once it is closed", async () => {
    const place = temporaryPlace();
    const files = [putSession(place, 1), putSession(place, 2)];
    const server = serveHere(["--session", files[0], "--events", "none"], { place });
    await server.result("open_session", { sessionPath: files[1] });
    const before = contentsOf(rootOf(place));
    for (const [index, sessionPath] of files.entries())
      for (const command of ["delete_session", "archive_session"])
        expect((await server.failure(command, { sessionPath })).data).toMatchObject({
          name: "session_locked",
          sessionId: sessionId(index + 1),
        });
    expect(contentsOf(rootOf(place))).toEqual(before);
    // In one write: the order is kept.
    server.send(
      { jsonrpc: "2.0", id: "c", method: "close_session", params: { sessionId: sessionId(2) } },
      { jsonrpc: "2.0", id: "d", method: "delete_session", params: { sessionPath: files[1] } },
    );
    expect((await server.reply("d")).result.trash).toBe("own");
  });

  test("refuses what another process writes to, and names it", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const holder = serveHere(["--session", file, "--events", "none"], { place });
    await holder.result("set_session_name", { name: "held" });
    const server = serveLibrary(place);
    const before = contentsOf(rootOf(place));
    for (const [command, more] of [
      ["delete_session", {}],
      ["delete_session", { permanent: true }],
      ["archive_session", {}],
      ["relocate_session", { cwd: "/elsewhere" }],
    ] as const) {
      const { data } = await server.failure(command, { sessionPath: file, ...more });
      expect([command, data]).toMatchObject([
        command,
        { name: "session_locked", holder: { client: "pi-session-server 0.0.0-test", pid: process.pid } },
      ]);
    }
    expect(contentsOf(rootOf(place))).toEqual(before);
    await holder.finish();
    expect((await server.result("delete_session", { sessionPath: file })).trash).toBe("own");
  });

  test("touches nothing that is no session", async () => {
    const place = temporaryPlace();
    const text = put(join(place.cwd, "notes.jsonl"), '{"type":"message"}\nnotes\n');
    const empty = put(join(place.cwd, "empty.jsonl"), "");
    mkdirSync(join(place.cwd, "folder.jsonl"));
    const server = serveLibrary(place);
    for (const sessionPath of [text, empty, join(place.cwd, "folder.jsonl"), place.cwd])
      expect((await server.failure("delete_session", { sessionPath })).data.name).toBe("not_a_session");
    const { data } = await server.failure("delete_session", { sessionPath: join(place.cwd, "none.jsonl") });
    expect(data.name).toBe("session_not_found");
    expect([read(text), read(empty)]).toEqual(['{"type":"message"}\nnotes\n', ""]);
  });

  test("deletes a damaged session and one of a newer version", async () => {
    const place = temporaryPlace();
    const damaged = putSession(place, 1, { lines: [...chain(2), "}{"] });
    const newer = putSession(place, 2, { header: { version: 99 } });
    const headless = put(join(dirname(damaged), "headless.jsonl"), `{"type":"sess\n${chain(2).join("\n")}\n`);
    const server = serveLibrary(place);
    for (const sessionPath of [damaged, newer, headless]) {
      const content = read(sessionPath);
      const { movedTo } = await server.result("delete_session", { sessionPath });
      expect(read(movedTo)).toBe(content);
      await server.result("restore_session", { sessionPath });
      expect(read(sessionPath)).toBe(content);
    }
  });

  test("with --read-only nothing is deleted", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const server = serveLibrary(place, ["--read-only"]);
    for (const [command, params] of [
      ["delete_session", { sessionPath: file }],
      ["archive_session", { sessionPath: file }],
      ["relocate_session", { sessionPath: file, cwd: "/x" }],
      ["restore_session", { sessionPath: file }],
      ["import_session", { path: file }],
      ["set_session_name", { sessionPath: file, name: "x" }],
    ] as const)
      expect([command, (await server.failure(command, params)).data.name]).toEqual([command, "read_only"]);
  });

  test("stays in its folders under --confine, links followed", async () => {
    const place = temporaryPlace();
    const outside = putSession(place, 1, { folder: temporaryFolder(), name: "outside.jsonl" });
    const inside = putSession(place, 2);
    const link = join(dirname(inside), "link.jsonl");
    symlinkSync(outside, link);
    const server = serveLibrary(place, ["--confine"]);
    for (const sessionPath of [outside, link, `${dirname(inside)}/../../../../../outside.jsonl`])
      expect((await server.failure("delete_session", { sessionPath })).data.name).toBe("path_outside_root");
    expect(existsSync(outside)).toBe(true);
    expect((await server.result("delete_session", { sessionPath: inside })).trash).toBe("own");
  });

  test("follows a link to the session, which is what is deleted and comes back", async () => {
    const place = temporaryPlace();
    const real = putSession(place, 1, { folder: temporaryFolder(), name: "real.jsonl" });
    const link = join(rootOf(place), "--home-me-project--", "link.jsonl");
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(real, link);
    const server = serveLibrary(place);
    expect(await listed(server)).toEqual([sessionId(1)]);
    expect((await server.result("delete_session", { sessionPath: link })).sessionPath).toBe(real);
    expect([existsSync(real), await listed(server)]).toEqual([false, []]);
    await server.result("restore_session", { sessionPath: real });
    expect(await listed(server)).toEqual([sessionId(1)]);
  });

  test("a session whose file was deleted by hand is gone", async () => {
    const place = temporaryPlace();
    const { file } = wholeSession(place);
    const server = serveLibrary(place);
    expect(await listed(server)).toEqual([sessionId(1)]);
    expect((await server.result("search_sessions", { query: "say" })).hits.length).toBe(3);
    unlinkSync(file);
    expect(await listed(server)).toEqual([]);
    expect((await server.result("search_sessions", { query: "say" })).hits).toEqual([]);
    for (const command of ["delete_session", "restore_session", "switch_session", "open_session"])
      expect((await server.failure(command, { sessionId: sessionId(1) })).data.name).toBe("session_not_found");
    await server.finish();
    const next = serveLibrary(place);
    expect(await listed(next)).toEqual([]);
  });

  test("forgets a position of the leaf, and a restored session has it again", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const first = serveHere(["--session", file, "--events", "none"], { place });
    await first.result("branch", { entryId: id(0) });
    // It dies before it can leave a marker.
    const server = serveLibrary(place);
    const leaves = (): string[] => readdirSync(join(place.state, "leaves"));
    expect(leaves().length).toBe(1);
    const copy = put(join(temporaryFolder(), basename(file)), read(file));
    expect(read(copy)).toBe(read(file));
    const { data } = await server.failure("delete_session", { sessionPath: file });
    // The first still writes to it; once its place is kept, it is only a file.
    expect(data.name).toBe("session_locked");
    await first.finish();
    const lines = read(file);
    await server.result("delete_session", { sessionPath: file });
    expect(leaves()).toEqual([]);
    await server.result("restore_session", { sessionPath: file });
    expect(read(file)).toBe(lines);
    const { leafId } = await server.result("open_session", { sessionPath: file });
    expect(leafId).toBe(id(0));
  });
});

describe("restore_session", () => {
  test("overwrites nothing, and gives back what was deleted last", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1, { lines: chain(1) });
    const server = serveLibrary(place);
    const older = await server.result("delete_session", { sessionPath: file });
    putSession(place, 1, { lines: chain(2) });
    const newer = await server.result("delete_session", { sessionPath: file });
    expect(newer.movedTo).not.toBe(older.movedTo);
    putSession(place, 1, { lines: chain(3) });
    const third = read(file);
    for (const params of [{ sessionId: sessionId(1) }, { sessionPath: file }, { sessionPath: older.movedTo }])
      expect((await server.failure("restore_session", params)).data).toMatchObject({
        name: "already_exists",
        path: file,
      });
    expect(read(file)).toBe(third);
    unlinkSync(file);
    expect((await server.result("restore_session", { sessionId: sessionId(1) })).sessionPath).toBe(newer.movedTo);
    unlinkSync(file);
    expect((await server.result("restore_session", { sessionPath: older.movedTo })).movedTo).toBe(file);
    expect(read(file).trim().split("\n").length).toBe(2);
  });

  test("makes the folder again that is gone, and is refused a name that something of another has taken", async () => {
    const place = temporaryPlace();
    const { file } = wholeSession(place);
    const server = serveLibrary(place);
    const { movedTo } = await server.result("delete_session", { sessionPath: file });
    const item = contentsOf(dirname(movedTo));
    const taken = put(`${file}.v1.bak`, "of somebody else");
    expect((await server.failure("restore_session", { sessionPath: file })).data).toMatchObject({
      name: "already_exists",
      path: taken,
    });
    expect([contentsOf(dirname(movedTo)), read(taken)]).toEqual([item, "of somebody else"]);
    unlinkSync(taken);
    await server.result("restore_session", { sessionPath: file });
    expect(Object.keys(contentsOf(rootOf(place))).length).toBe(12);
  });

  test("knows nothing in the trash that is not a deleted session", async () => {
    const place = temporaryPlace();
    put(join(place.state, "trash", "note.txt"), "x");
    put(join(place.state, "trash", "a", "record.json"), "not JSON");
    put(
      join(place.state, "trash", "b", "record.json"),
      '{"sessionId":"lost","path":"/x/lost.jsonl","deletedAt":"now"}',
    );
    const server = serveLibrary(place);
    expect((await server.failure("restore_session", { sessionId: "lost" })).data.name).toBe("session_not_found");
    expect((await server.failure("restore_session", { sessionId: "../../etc" })).data.name).toBe("session_not_found");
  });
});

describe("with a trash command", () => {
  /** A `trash` on the PATH that does as its script says; `$TRASH` is the desktop's trash. */
  function withTrash(script: string): {
    place: Place;
    trash: string;
    file: string;
    server: ReturnType<typeof serveHere>;
  } {
    const plain = temporaryPlace();
    const bin = join(plain.home, "bin");
    const trash = join(plain.home, ".local", "share", "Trash", "files");
    mkdirSync(bin);
    mkdirSync(trash, { recursive: true });
    writeFileSync(join(bin, "trash"), `#!/bin/sh\nTRASH='${trash}'\n${script}\n`);
    chmodSync(join(bin, "trash"), 0o755);
    const variables = { ...plain.variables, PATH: `${bin}:/usr/bin:/bin` };
    const place = { ...plain, variables };
    const { file } = wholeSession(place);
    return { place, trash, file, server: serveHere(["--events", "none"], { place }) };
  }

  test("that takes it, and where it lies is told", async () => {
    const { place, trash, file, server } = withTrash('mv "$@" "$TRASH"/');
    const before = Object.values(contentsOf(rootOf(place))).sort();
    expect(await server.result("delete_session", { sessionPath: file })).toEqual({
      operationId: expect.any(String),
      sessionId: sessionId(1),
      sessionPath: file,
      movedTo: join(trash, basename(file)),
      trash: "desktop",
    });
    expect(Object.values(contentsOf(trash)).sort()).toEqual(before);
    expect(contentsOf(rootOf(place))).toEqual({});
    expect((await server.failure("restore_session", { sessionPath: file })).message).toMatch(/desktop/);
  });

  test("elsewhere, where it lies is not told", async () => {
    const { server, file } = withTrash('mkdir "$TRASH/deep"; mv "$@" "$TRASH/deep"/');
    const result = await server.result("delete_session", { sessionPath: file });
    expect(result).toEqual({
      operationId: expect.any(String),
      sessionId: sessionId(1),
      sessionPath: file,
      trash: "desktop",
    });
  });

  test("that fails, our own trash takes it", async () => {
    const { place, file, server } = withTrash("exit 1");
    const before = Object.values(contentsOf(rootOf(place))).sort();
    const { trash, movedTo } = await server.result("delete_session", { sessionPath: file });
    expect([trash, contentsOf(rootOf(place))]).toEqual(["own", {}]);
    const { [join(dirname(movedTo), "record.json")]: record, ...files } = contentsOf(dirname(movedTo));
    expect([JSON.parse(record).path, Object.values(files).sort()]).toEqual([file, before]);
  });

  test("that takes only the session, nothing of it stays behind", async () => {
    const { place, trash, file, server } = withTrash('mv "$1" "$TRASH"/; exit 1');
    const before = contentsOf(rootOf(place));
    const result = await server.result("delete_session", { sessionPath: file });
    expect(result).toMatchObject({ trash: "desktop", movedTo: join(trash, basename(file)) });
    expect(contentsOf(rootOf(place))).toEqual({});
    const kept = [...Object.values(contentsOf(trash)), ...Object.values(contentsOf(join(place.state, "trash")))];
    for (const content of Object.values(before)) expect(kept).toContain(content);
  });
});
