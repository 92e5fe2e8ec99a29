/** Sessions that are containers of Session Store V2 go through the same life: born in V2, or migrated from a file. */

import { cpSync, existsSync, readdirSync, readFileSync, renameSync, rmdirSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { folderName } from "../../src/storage/fs/paths.ts";
import { user } from "../support/drafts.ts";
import { contentsOf, listed, put, putSession, read, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

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

/** A container that was a session file, with what belonged to that; `again`: and one that was rolled back before. */
async function migrated(again = true): Promise<Made> {
  const place = temporaryPlace();
  const source = putSession(place, 1);
  put(`${source}.v1.bak`, "backup");
  const server = serveLibrary(place);
  if (again) {
    await server.result("migrate_session", { sessionPath: source, to: "v2" });
    const { keptAt } = await server.result("rollback_migration", { sessionPath: source });
    expect(basename(keptAt)).toBe(`${sessionId(1)}.v2.rolled-back`);
  }
  await server.result("migrate_session", { sessionPath: source, to: "v2" });
  const { sessions } = await server.result("list_sessions");
  return { place, server, file: sessions[0].sessionPath, id: sessionId(1) };
}

const pointerOf = (file: string): string => file.replace(/\.v2$/, ".store.json");

async function said(server: HereServer, sessionPath: string): Promise<string[]> {
  const { content } = await server.result("export_session", { sessionPath, format: "training" });
  return JSON.parse(content).turns.map((turn: Json) => turn.content);
}

for (const [name, make, tier] of [
  ["born as one", born, {}],
  ["migrated", migrated, SWEEP],
] as const) {
  test(`a container ${name} is deleted, restored and deleted for good`, tier, async () => {
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

  test(`a container ${name} is archived and comes back`, tier, async () => {
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

  test(`a container ${name} is relocated`, tier, async () => {
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

  test(`a container ${name} is exported as the lines of its entries, which come in again`, tier, async () => {
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

  test(`a container ${name} that was deleted by hand is gone`, tier, async () => {
    const { server, file, id } = await make();
    rmSync(file, { recursive: true });
    expect(await listed(server)).toEqual([]);
    expect((await server.failure("switch_session", { sessionId: id })).data.name).toBe("session_not_found");
  });
}

/** Leaves out what copies leave out that know of files only. */
function dropEmptyFolders(container: string): string[] {
  const empty = readdirSync(container).filter((name) => {
    const path = join(container, name);
    return statSync(path).isDirectory() && readdirSync(path).length === 0;
  });
  for (const name of empty) rmdirSync(join(container, name));
  return empty;
}

for (const [name, make, lost] of [
  ["born as one", born, ["checkpoints", "migrations", "tmp"]],
  ["migrated", migrated, ["tmp"]],
] as const)
  describe(`a container ${name} whose empty folders a copy left out`, () => {
    const begin = async (): Promise<Made> => {
      const made = await make();
      expect(dropEmptyFolders(made.file).sort()).toEqual(lost);
      return made;
    };

    test("is written as any other", async () => {
      const { server, file } = await begin();
      await server.result("switch_session", { sessionPath: file });
      await server.result("append", { entries: [user("more")] });
      await server.result("create_checkpoint");
      expect(await server.result("verify_session")).toMatchObject({ ok: true, damage: [] });
      expect(await server.result("rollback_migration")).toMatchObject({ state: "ROLLED_BACK" });
    });

    test("is told of by verify and made whole by repair", async () => {
      const { server, file } = await begin();
      const { ok, damage } = await server.result("verify_session", { sessionPath: file });
      expect(ok).toBe(false);
      for (const folder of lost)
        expect(damage).toContainEqual(expect.objectContaining({ reason: expect.stringContaining(`${folder}/`) }));
      await server.result("switch_session", { sessionPath: file });
      // Whoever may come to write has the lock.
      const parts = (): string[] => readdirSync(file).filter((name) => !name.startsWith("writer."));
      const before = parts();
      expect((await server.result("repair_session", { dryRun: true })).repaired).toHaveLength(lost.length);
      expect(parts()).toEqual(before);
      expect((await server.result("repair_session")).repaired).toHaveLength(lost.length);
      expect(readdirSync(file)).toEqual(expect.arrayContaining([...lost]));
      expect(await server.result("verify_session")).toMatchObject({ ok: true });
      expect(await server.result("repair_session")).toMatchObject({ repaired: [], backupPath: null });
    });
  });

test("a session without entries is written after a copy left its folders out", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const { sessionPath } = await server.result("migrate_session", { sessionPath: putSession(place, 1, { lines: [] }) });
  expect(dropEmptyFolders(sessionPath)).toContain("segments");
  expect(await listed(server, { headerOnly: true })).toEqual([sessionId(1)]);
  await server.result("switch_session", { sessionPath });
  await server.result("append", { entries: [user("more")] });
  expect(await server.result("verify_session")).toMatchObject({ ok: true });
});

test("a pointer whose container was deleted by hand keeps nobody from the id", async () => {
  const { server, file, id } = await born();
  rmSync(file, { recursive: true });
  const { cwd } = await server.result("get_state");
  const v2 = serveHere(["--store", "v2", "--session-dir", dirname(file), "--events", "none"], { place: server.place });
  await v2.result("new_session", { newSessionId: id, cwd });
  await v2.result("append", { entries: [user("again")] });
  expect(await v2.result("get_state")).toMatchObject({ sessionFile: file, entryCount: 1 });
  expect(await v2.result("verify_session")).toMatchObject({ ok: true });
  await v2.finish();
});

test("a container that was copied without its pointer is the session that began in it", async () => {
  const { server, file, id } = await born();
  rmSync(file.replace(/\.v2$/, ".store.json"));
  expect(await listed(server)).toEqual([id]);
  expect((await server.result("verify_session", { sessionPath: file })).damage).toHaveLength(1);
  await server.result("switch_session", { sessionId: id });
  await server.result("append", { entries: [user("more")] });
  expect(await server.result("verify_session")).toMatchObject({ ok: true });
  expect(await server.result("rollback_migration")).toMatchObject({ state: "ROLLED_BACK" });
});

describe("a migrated session whose pointer is gone", () => {
  test("is the session that was migrated, by its id and both of its paths, and gets its pointer with the next write", async () => {
    const { server, file, id } = await migrated(false);
    const source = join(dirname(file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
    const texts = await said(server, file);
    rmSync(pointerOf(file));
    expect(await listed(server)).toEqual([id]);
    expect(await server.result("migration_status", { sessionPath: file })).toMatchObject({ active: "native_v2" });
    for (const where of [{ sessionId: id }, { sessionPath: file }, { sessionPath: source }])
      expect(await server.result("switch_session", where)).toMatchObject({ sessionFile: file });
    expect(await said(server, file)).toEqual(texts);
    const verified = await server.result("verify_session");
    expect(verified).toMatchObject({ invariants: { "INV-007": true }, damage: [{ kind: "bad_index" }] });
    expect(existsSync(pointerOf(file))).toBe(false);
    await server.result("append", { entries: [user("more")] });
    expect(await server.result("verify_session")).toMatchObject({ ok: true });
    expect(JSON.parse(readFileSync(pointerOf(file), "utf8"))).toMatchObject({
      active: "native_v2",
      source: basename(source),
    });
    expect(await server.result("rollback_migration")).toMatchObject({ state: "ROLLED_BACK", sessionPath: source });
    expect(await said(server, source)).toHaveLength(texts.length + 1);
  });

  test("keeps what is appended after it went, while the session is open", async () => {
    const { place, server, file } = await migrated(false);
    await server.result("switch_session", { sessionPath: file });
    await server.result("append", { entries: [user("before")] });
    rmSync(pointerOf(file));
    await server.result("append", { entries: [user("after")] });
    await server.finish();
    const other = serveHere(["--events", "none"], { place });
    await other.result("switch_session", { sessionPath: file });
    expect((await said(other, file)).at(-1)).toContain("after");
    await other.finish();
  });

  test("is not the session where the file that was migrated is there again, and the failure says what to do", async () => {
    const { server, file } = await migrated(false);
    const source = join(dirname(file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
    rmSync(pointerOf(file));
    renameSync(`${source}.migrated`, source);
    expect(await server.failure("switch_session", { sessionPath: file })).toMatchObject({
      data: { name: "not_a_session" },
      message: expect.stringContaining(basename(source)),
    });
    expect(await server.result("switch_session", { sessionPath: source })).toMatchObject({ sessionFile: source });
  });

  test("is the session where its manifest is gone too, by its ledger alone", async () => {
    const { server, file } = await migrated(false);
    for (const path of [pointerOf(file), join(file, "manifest.json")]) rmSync(path);
    expect(await server.result("switch_session", { sessionPath: file })).toMatchObject({ sessionFile: file });
  });

  test("is none where its ledger is gone too and a session file of its id is there; the failure says what to do", async () => {
    const { server, file } = await migrated(false);
    cpSync(join(file, "header.jsonl"), join(dirname(file), "other.jsonl"));
    rmSync(pointerOf(file));
    for (const name of ["manifest.json", "migrations"]) rmSync(join(file, name), { recursive: true });
    const { message } = await server.failure("switch_session", { sessionPath: file });
    expect(message).toContain(basename(pointerOf(file)));
  });
});

test("a migrated session is meant by the name of the file that it was", async () => {
  const { place, server, file } = await migrated();
  const source = join(dirname(file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
  expect(existsSync(source)).toBe(false);
  expect(await server.result("delete_session", { sessionPath: source })).toMatchObject({ sessionPath: file });
  expect(contentsOf(rootOf(place))).toEqual({});
});

describe("a container whose snapshot was deleted by hand is the session", () => {
  const begin = async (): Promise<Made & { readonly source: string }> => {
    const made = await migrated(false);
    const source = join(dirname(made.file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
    rmSync(`${source}.migrated`);
    return { ...made, source };
  };

  test("it is listed, opened by its id and both of its paths, sound, exported and written", async () => {
    const { server, file, id, source } = await begin();
    expect(await listed(server)).toEqual([id]);
    for (const where of [{ sessionId: id }, { sessionPath: file }, { sessionPath: source }])
      expect(await server.result("switch_session", where)).toMatchObject({ sessionFile: file });
    expect(await server.result("verify_session")).toMatchObject({ ok: true, invariants: { "INV-007": true } });
    expect((await said(server, file)).length).toBeGreaterThan(0);
    await server.result("append", { entries: [user("more")] });
    expect(await server.result("repair_session")).toMatchObject({ repaired: [], backupPath: null });
  });

  test("it is rolled back, the file written from it", async () => {
    const { server, file, source } = await begin();
    const texts = await said(server, file);
    expect(await server.result("rollback_migration", { sessionPath: source })).toMatchObject({
      sessionPath: source,
      rebuilt: true,
    });
    expect(await said(server, source)).toEqual(texts);
  });

  test("it is deleted and comes back", async () => {
    const { place, server, id, source } = await begin();
    await server.result("delete_session", { sessionPath: source });
    expect(contentsOf(rootOf(place))).toEqual({});
    await server.result("restore_session", { sessionId: id });
    expect(await listed(server)).toEqual([id]);
  });
});

describe("a rollback that was cut off with its file made, and the pointer still naming the container", () => {
  const begin = async (): Promise<Made & { readonly source: string }> => {
    const made = await migrated();
    const source = join(dirname(made.file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
    put(source, read(`${source}.migrated`));
    const pointer = pointerOf(made.file);
    put(pointer, JSON.stringify({ ...JSON.parse(read(pointer)), phase: "rollback", reason: "asked for" }, null, 2));
    return { ...made, source };
  };

  test("is listed once", async () => {
    const { server, source } = await begin();
    const { sessions } = await server.result("list_sessions");
    expect(sessions.map(({ sessionPath }: Json) => sessionPath)).toEqual([source]);
  });

  for (const [method, back] of [
    ["delete_session", "restore_session"],
    ["archive_session", "unarchive_session"],
  ] as const)
    acrossTiers(test, ["file", "source"] as const)(
      `${method} takes all of it along, by either path, and ${back} brings it back (%s)`,
      async (which) => {
        const made = await begin();
        const { place, server, id } = made;
        const before = contentsOf(rootOf(place));
        await server.result(method, { sessionPath: made[which] });
        expect(contentsOf(rootOf(place))).toEqual({});
        await server.result(back, { sessionId: id });
        expect(contentsOf(rootOf(place))).toEqual(before);
        await server.result("rollback_migration", { sessionPath: made.file });
        expect((await said(server, made.source)).length).toBeGreaterThan(0);
      },
    );
});

describe("the frozen file of a migrated session", () => {
  const begin = async () => {
    const made = await migrated(false);
    return { ...made, snapshot: join(dirname(made.file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl.migrated`) };
  };

  test("opens for reading only, and whoever wants to write hears where the session is", async () => {
    const { server, file, snapshot } = await begin();
    const before = read(snapshot);
    expect(await server.result("open_session", { sessionPath: snapshot })).toMatchObject({ readOnly: true });
    await server.result("switch_session", { sessionPath: snapshot });
    for (const [method, params] of [
      ["append", { entries: [user("x")] }],
      ["set_session_name", { name: "x" }],
      ["rollback_migration", {}],
    ] as const) {
      const { message, data } = await server.failure(method, params);
      expect([method, data.name]).toEqual([method, "read_only"]);
      expect(message).toContain(file);
    }
    await server.result("switch_session", { sessionPath: file });
    expect(read(snapshot)).toBe(before);
    expect(await server.result("rollback_migration")).toMatchObject({ rebuilt: false });
  });

  test("is not deleted, archived or relocated without its session", async () => {
    const { place, server, file, snapshot } = await begin();
    const before = contentsOf(rootOf(place));
    for (const [method, params] of [
      ["delete_session", {}],
      ["delete_session", { permanent: true }],
      ["archive_session", {}],
      ["relocate_session", { cwd: "/new/place" }],
    ] as const)
      expect((await server.failure(method, { sessionPath: snapshot, ...params })).message).toContain(file);
    expect(contentsOf(rootOf(place))).toEqual(before);
  });

  test("moves the session when a migration or a rollback names it", async () => {
    const { server, file, snapshot } = await begin();
    expect(await server.result("migrate_session", { sessionPath: snapshot })).toMatchObject({
      sessionPath: file,
      migrationId: null,
    });
    expect(await server.result("rollback_migration", { sessionPath: snapshot })).toMatchObject({
      state: "ROLLED_BACK",
    });
  });
});

describe("a migrated session whose pointer and ledger both are lost", () => {
  async function bare(): Promise<Made & { readonly source: string }> {
    const made = await migrated();
    const source = join(dirname(made.file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
    rmSync(pointerOf(made.file));
    rmSync(join(made.file, "migrations"), { recursive: true });
    return { ...made, source };
  }

  test.each(["with", "without"])("is found by its folder, %s its frozen file", async (how) => {
    const { server, file, id, source } = await bare();
    if (how === "without") rmSync(`${source}.migrated`);
    expect(await listed(server)).toEqual([id]);
    expect(await server.result("verify_sessions")).toMatchObject({ total: 1, damaged: [{ sessionPath: file }] });
    for (const where of [{ sessionId: id }, { sessionPath: file }, { sessionPath: source }])
      expect(await server.result("switch_session", where)).toMatchObject({ sessionFile: file });
    await server.result("append", { entries: [user("more")] });
    expect(JSON.parse(readFileSync(pointerOf(file), "utf8"))).toMatchObject({ source: basename(source) });
    expect(await server.result("verify_session")).toMatchObject({ ok: true });
    expect(await server.result("rollback_migration")).toMatchObject({ state: "ROLLED_BACK", sessionPath: source });
    expect((await said(server, source)).at(-1)).toContain("more");
  });

  test("is none where the file that was migrated is there again", async () => {
    const { server, file, source } = await bare();
    renameSync(`${source}.migrated`, source);
    expect((await server.failure("switch_session", { sessionPath: file })).data.name).toBe("not_a_session");
    expect(await server.result("switch_session", { sessionPath: source })).toMatchObject({ sessionFile: source });
  });

  test.each(["and so is the ledger", "and the ledger is there"])(
    "is named where the file is there again, %s",
    async (how) => {
      const { server, file } = how.includes("so is") ? await bare() : await migrated();
      const source = join(dirname(file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
      rmSync(pointerOf(file), { force: true });
      renameSync(`${source}.migrated`, source);
      const named = [{ path: file, isDamaged: true, text: expect.stringMatching(/pointer file .* is missing/) }];
      const { sessions, notRead } = await server.result("list_sessions");
      expect([sessions.map(({ sessionPath }: Json) => sessionPath), notRead]).toEqual([[source], named]);
      expect(await server.result("get_health")).toMatchObject({ notRead: named, ok: false });
    },
  );
});

describe("a container that is not whole enough for a list is named by lists, doctor and verify", () => {
  async function requireNamed({ server, file }: Made, text: RegExp, sessions: readonly string[] = []): Promise<void> {
    const notRead = [{ path: file, isDamaged: true, text: expect.stringMatching(text) }];
    expect(await listed(server)).toEqual(sessions);
    expect((await server.result("list_sessions")).notRead).toEqual(notRead);
    expect(await server.result("get_health")).toMatchObject({ damaged: [], notRead, ok: false });
    expect(await server.result("verify_sessions")).toMatchObject({
      total: sessions.length,
      damaged: [],
      notRead,
      ok: false,
    });
    expect((await server.failure("switch_session", { sessionPath: file })).message).toMatch(text);
  }

  for (const [name, make] of [
    ["born as one", born],
    ["migrated", () => migrated(false)],
  ] as const)
    test(`one ${name} that has lost its header, and gets it back`, async () => {
      const made = await make();
      rmSync(join(made.file, "header.jsonl"));
      await requireNamed(made, /header\.jsonl is missing/);
      const byId = await made.server.failure("switch_session", { sessionId: made.id });
      expect(byId.message).toMatch(/header\.jsonl is missing/);
      put(join(made.file, "header.jsonl"), "");
      expect(await listed(made.server)).toEqual([made.id]);
      await made.server.result("switch_session", { sessionPath: made.file });
      await made.server.result("repair_session");
      expect(await made.server.result("verify_session", { sessionPath: made.file })).toMatchObject({ ok: true });
    });

  test("one that has lost its header and its pointer", async () => {
    const made = await born();
    for (const path of [join(made.file, "header.jsonl"), pointerOf(made.file)]) rmSync(path);
    await requireNamed(made, /header\.jsonl is missing|neither header nor pointer/);
  });

  test("one that is gone while the file that was migrated is there; rollback makes that the session again", async () => {
    const made = await migrated(false);
    const { server, file } = made;
    const source = join(dirname(file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
    rmSync(file, { recursive: true });
    await requireNamed(made, /is missing, though/);
    const started = serveHere(["--session", file, "--events", "none"], { place: made.place });
    expect((await started.failure("get_state")).message).toMatch(/is missing, though/);
    await started.finish();
    expect((await server.failure("migrate_session", { sessionPath: source })).message).toMatch(/is missing, though/);
    expect(await server.result("rollback_migration", { sessionPath: source })).toMatchObject({ sessionPath: source });
    expect([await listed(server), existsSync(`${source}.migrated`)]).toEqual([[made.id], false]);
    expect(await server.result("get_health")).toMatchObject({ damaged: [], notRead: [], ok: true });
  });

  test("one beside its file, without pointer and ledger: no migration is advised, which would put it aside", async () => {
    const made = await migrated(false);
    const source = join(dirname(made.file), `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`);
    for (const path of [pointerOf(made.file), join(made.file, "migrations")]) rmSync(path, { recursive: true });
    renameSync(`${source}.migrated`, source);
    await requireNamed(made, /pointer file .* is missing/, [made.id]);
  });
});

test("a rollback keeps the correlation id of its migration", async () => {
  const { server, file } = await migrated();
  const { correlationId } = await server.result("migration_status", { sessionPath: file });
  const back = await server.result("rollback_migration", { sessionPath: file });
  expect(back.correlationId).toBe(correlationId);
  const { events } = await server.result("migration_status", { sessionPath: back.sessionPath });
  expect(new Set(events.map((event: Json) => event.correlationId))).toEqual(new Set([correlationId]));
});
