/** Sessions that are containers of Session Store V2 go through the same life: born in V2, or migrated from a file. */

import { cpSync, existsSync, readdirSync, readFileSync, renameSync, rmdirSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { append, nameOf } from "../support/asking.ts";
import { linesIn } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { library, listed, put, read, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { userText } from "../support/lines.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { makeContainer, migrateOnce, migrateTwice, readTexts, type Stored } from "../support/stored-sessions.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

const pointerOf = (file: string): string => file.replace(/\.v2$/, ".store.json");
const remove = (...paths: string[]): void => {
  for (const path of paths) rmSync(path, { recursive: true, force: true });
};

/** Opens it by its id and each of its paths, and expects the container. */
async function requireFound({ server, file, id, source }: Stored, isMigrated = true): Promise<void> {
  expect(await listed(server)).toEqual([id]);
  for (const where of [{ sessionId: id }, { sessionPath: file }, ...(isMigrated ? [{ sessionPath: source }] : [])])
    expect(await server.result("switch_session", where)).toMatchObject({ sessionFile: file });
}

const isSound = async (server: HereServer): Promise<void> =>
  expect(await server.result("verify_session")).toMatchObject({ ok: true });

for (const [name, make, tier] of [
  ["born as one", makeContainer, {}],
  ["migrated", migrateTwice, SWEEP],
] as const) {
  test(`a container ${name} is exported as lines, which come in again; deleted by hand it is gone`, tier, async () => {
    const { server, file, id } = await make();
    const params = { sessionPath: file, format: "jsonl", outputPath: "x.jsonl" };
    const { path } = await server.result("export_session", params);
    const about = { sessionId: id, sessionPath: file };
    expect(await server.result("import_session", { path })).toMatchObject({ ...about, outcome: "known" });
    const last = JSON.parse(linesIn(path).at(-1) as string).id;
    const more = put(`${path}.more.jsonl`, `${read(path)}${userText("b0000000", last, "more")}\n`);
    const continued = await server.result("import_session", { path: more });
    expect(continued).toMatchObject({ ...about, outcome: "continued" });
    expect((await readTexts(server, file)).at(-1)).toBe("more");
    remove(file);
    expect(await listed(server)).toEqual([]);
    expect(await nameOf(server, "switch_session", { sessionId: id })).toBe("session_not_found");
  });
}

/** Leaves out what copies leave out that know of files only. */
function dropEmptyFolders(container: string): string[] {
  const paths = readdirSync(container).map((name) => join(container, name));
  const empty = paths.filter((path) => statSync(path).isDirectory() && readdirSync(path).length === 0);
  for (const path of empty) rmdirSync(path);
  return empty.map((path) => basename(path)).sort();
}

for (const [name, make, lost] of [
  ["born as one", makeContainer, ["checkpoints", "migrations", "tmp"]],
  ["migrated", migrateTwice, ["tmp"]],
] as const) {
  test(`a container ${name} whose empty folders a copy left out is written as any other`, async () => {
    const { server, file: sessionPath } = await make();
    expect(dropEmptyFolders(sessionPath)).toEqual(lost);
    await server.result("switch_session", { sessionPath });
    await append(server, user("more"));
    await server.result("create_checkpoint");
    expect(await server.result("verify_session")).toMatchObject({ ok: true, damage: [] });
    expect(await server.result("rollback_migration")).toMatchObject({ state: "ROLLED_BACK" });
  });

  test(`a container ${name} whose empty folders a copy left out is told of by verify, made whole by repair`, async () => {
    const { server, file: sessionPath } = await make();
    dropEmptyFolders(sessionPath);
    const { ok, damage } = await server.result("verify_session", { sessionPath });
    expect(ok).toBe(false);
    for (const folder of lost)
      expect(damage).toContainEqual(expect.objectContaining({ reason: expect.stringContaining(`${folder}/`) }));
    await server.result("switch_session", { sessionPath });
    // A possible writer has the lock.
    const parts = (): string[] => readdirSync(sessionPath).filter((name) => !name.startsWith("writer."));
    const before = parts();
    expect((await server.result("repair_session", { dryRun: true })).repaired).toHaveLength(lost.length);
    expect(parts()).toEqual(before);
    expect((await server.result("repair_session")).repaired).toHaveLength(lost.length);
    expect(parts()).toEqual(expect.arrayContaining([...lost]));
    await isSound(server);
    expect(await server.result("repair_session")).toMatchObject({ repaired: [], backupPath: null });
  });
}

test("a session without entries is written after a copy left its folders out", async () => {
  const { server, file } = library(1, [], undefined, { lines: [] });
  const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
  expect(dropEmptyFolders(sessionPath)).toContain("segments");
  expect(await listed(server, { headerOnly: true })).toEqual([sessionId(1)]);
  await server.result("switch_session", { sessionPath });
  await append(server, user("more"));
  await isSound(server);
});

test.each<[string, (pointer: string) => string]>([
  ["whole", (pointer) => pointer],
  ["empty", () => ""],
  ["torn", (pointer) => pointer.slice(0, 96)],
  ["zeroed", (pointer) => "\0".repeat(pointer.length)],
])("a pointer whose container was deleted by hand keeps nobody from the id (%s)", async (how, damage) => {
  const { server, file, id, place } = await makeContainer();
  const left = damage(read(pointerOf(file)));
  remove(file);
  put(pointerOf(file), left);
  // It is no session.
  for (const where of [{ sessionId: id }, { sessionPath: file }])
    expect(await nameOf(server, "switch_session", where)).toBe("session_not_found");
  expect([read(pointerOf(file)), await listed(server)]).toEqual([left, []]);
  const { cwd } = await server.result("get_state");
  const v2 = serveHere(["--store", "v2", "--session-dir", dirname(file), "--events", "none"], { place });
  await v2.result("new_session", { newSessionId: id, cwd });
  await append(v2, user("again"));
  expect(await v2.result("get_state")).toMatchObject({ sessionFile: file, entryCount: 1 });
  await isSound(v2);
  const backups = (await v2.result("list_leftovers")).leftovers.map(({ path }: Json) => path);
  expect(backups).toEqual(how === "whole" ? [] : [`${pointerOf(file)}.damaged.bak`]);
  for (const path of backups) expect(read(path)).toBe(left);
});

test("a pointer of a newer version whose container is gone keeps its id", async () => {
  const { file, id, place } = await makeContainer();
  remove(file);
  const newer = read(pointerOf(file)).replace("native_v2", "native_v3");
  put(pointerOf(file), newer);
  const v2 = serveHere(["--store", "v2", "--session-dir", dirname(file), "--events", "none"], { place });
  await v2.result("new_session", { newSessionId: id });
  expect(await nameOf(v2, "append", { entries: [user("again")] })).toBe("already_exists");
  expect(read(pointerOf(file))).toBe(newer);
});

test("a container that was copied without its pointer is the session that began in it", async () => {
  const made = await makeContainer();
  const { server, file } = made;
  remove(pointerOf(file));
  expect((await server.result("verify_session", { sessionPath: file })).damage).toHaveLength(1);
  await requireFound(made, false);
  await append(server, user("more"));
  await isSound(server);
  expect(await server.result("rollback_migration")).toMatchObject({ state: "ROLLED_BACK" });
});

describe("a migrated session whose pointer is gone", () => {
  test.each([
    ["nothing else", []],
    ["its ledger", ["migrations"]],
    ["its ledger and its frozen file", ["migrations", "../frozen"]],
  ])(
    "is the session by its id and both paths, and has a pointer after the next write, where %s is gone too",
    async (_, gone) => {
      const made = await migrateTwice();
      const { server, file, source } = made;
      const texts = await readTexts(server, file);
      renameSync(`${source}.migrated`, join(dirname(file), "frozen"));
      if (gone.length < 2) renameSync(join(dirname(file), "frozen"), `${source}.migrated`);
      remove(pointerOf(file), ...gone.map((name) => join(file, name)));
      expect(await server.result("migration_status", { sessionPath: file })).toMatchObject({ active: "native_v2" });
      expect(await server.result("verify_sessions")).toMatchObject({ total: 1, damaged: [{ sessionPath: file }] });
      await requireFound(made);
      expect(await readTexts(server, file)).toEqual(texts);
      expect((await server.result("verify_session")).damage).toContainEqual(
        expect.objectContaining({ kind: "bad_index" }),
      );
      expect(existsSync(pointerOf(file))).toBe(false);
      await append(server, user("more"));
      await isSound(server);
      const pointer = JSON.parse(readFileSync(pointerOf(file), "utf8"));
      expect(pointer).toMatchObject({ active: "native_v2", source: basename(source) });
      expect(await server.result("rollback_migration")).toMatchObject({ state: "ROLLED_BACK", sessionPath: source });
      expect(await readTexts(server, source)).toEqual([...texts, "more"]);
    },
  );

  test("is the session where its manifest is gone too, by its ledger alone", async () => {
    const { server, file } = await migrateOnce();
    remove(pointerOf(file), join(file, "manifest.json"));
    expect(await server.result("switch_session", { sessionPath: file })).toMatchObject({ sessionFile: file });
  });

  test("keeps what is appended after it went, while the session is open", async () => {
    const { place, server, file } = await migrateOnce();
    await server.result("switch_session", { sessionPath: file });
    await append(server, user("before"));
    remove(pointerOf(file));
    await append(server, user("after"));
    await server.finish();
    expect((await readTexts(serveLibrary(place), file)).at(-1)).toContain("after");
  });

  test("is none where its ledger is gone too and a session file of its id is there; the failure says what to do", async () => {
    const { server, file } = await migrateOnce();
    cpSync(join(file, "header.jsonl"), join(dirname(file), "other.jsonl"));
    remove(pointerOf(file), join(file, "manifest.json"), join(file, "migrations"));
    const { message } = await server.failure("switch_session", { sessionPath: file });
    expect(message).toContain(basename(pointerOf(file)));
  });

  test.each(["with its ledger", "without its ledger"])(
    "is not the session where the file that was migrated is there again: it is named, and what to do (%s)",
    async (how) => {
      const { server, file, source } = await migrateTwice();
      remove(pointerOf(file));
      if (how === "without its ledger") remove(join(file, "migrations"));
      const toDo = how === "with its ledger" ? basename(source) : "Open that file";
      renameSync(`${source}.migrated`, source);
      const { data, message } = await server.failure("switch_session", { sessionPath: file });
      expect([data.name, message]).toEqual(["not_a_session", expect.stringContaining(toDo)]);
      const named = [{ path: file, isDamaged: true, text: expect.stringMatching(/pointer file .* is missing/) }];
      const { sessions, notRead } = await server.result("list_sessions");
      expect([sessions.map(({ sessionPath }: Json) => sessionPath), notRead]).toEqual([[source], named]);
      expect(await server.result("get_health")).toMatchObject({ notRead: named, ok: false });
      expect(await server.result("switch_session", { sessionPath: source })).toMatchObject({ sessionFile: source });
    },
  );
});

describe("a rollback that was cut off with its file made, and the pointer still naming the container", () => {
  for (const [method, back] of [
    ["delete_session", "restore_session"],
    ["archive_session", "unarchive_session"],
  ] as const)
    acrossTiers(test, ["file", "source"] as const)(
      `is listed once; ${method} takes all of it along, by either path, and ${back} brings it back (%s)`,
      async (which) => {
        const made = await migrateTwice();
        const { server, id, source, file, contents } = made;
        put(source, read(`${source}.migrated`));
        const pointer = JSON.parse(read(pointerOf(file)));
        put(pointerOf(file), JSON.stringify({ ...pointer, phase: "rollback", reason: "asked for" }, null, 2));
        const { sessions } = await server.result("list_sessions");
        expect(sessions.map(({ sessionPath }: Json) => sessionPath)).toEqual([source]);
        const before = contents();
        await server.result(method, { sessionPath: made[which] });
        expect(contents()).toEqual({});
        await server.result(back, { sessionId: id });
        expect(contents()).toEqual(before);
        await server.result("rollback_migration", { sessionPath: file });
        expect((await readTexts(server, source)).length).toBeGreaterThan(0);
      },
    );
});

describe("the frozen file of a migrated session", () => {
  test("opens for reading only, and whoever wants to write hears where the session is", async () => {
    const { server, file, source } = await migrateOnce();
    const snapshot = `${source}.migrated`;
    const before = read(snapshot);
    expect(await server.result("open_session", { sessionPath: snapshot })).toMatchObject({ readOnly: true });
    await server.result("switch_session", { sessionPath: snapshot });
    for (const [method, params] of [
      ["append", { entries: [user("x")] }],
      ["set_session_name", { name: "x" }],
      ["rollback_migration", {}],
    ] as const) {
      const { message, data } = await server.failure(method, params);
      expect([method, data.name, message]).toEqual([method, "read_only", expect.stringContaining(file)]);
    }
    await server.result("switch_session", { sessionPath: file });
    expect(read(snapshot)).toBe(before);
    expect(await server.result("rollback_migration")).toMatchObject({ rebuilt: false });
  });

  test("is not moved without its session, which it means where a migration or a rollback names it", async () => {
    const { server, file, source, contents } = await migrateOnce();
    const sessionPath = `${source}.migrated`;
    const before = contents();
    for (const [method, params] of [
      ["delete_session", {}],
      ["delete_session", { permanent: true }],
      ["archive_session", {}],
      ["relocate_session", { cwd: "/new/place" }],
    ] as const)
      expect((await server.failure(method, { sessionPath, ...params })).message).toContain(file);
    expect(contents()).toEqual(before);
    const known = { sessionPath: file, migrationId: null };
    expect(await server.result("migrate_session", { sessionPath })).toMatchObject(known);
    expect(await server.result("rollback_migration", { sessionPath })).toMatchObject({ state: "ROLLED_BACK" });
  });
});

describe("a container that is not whole enough for a list is named by lists, doctor and verify", () => {
  async function requireNamed({ server, file }: Stored, text: RegExp, sessions: readonly string[] = []): Promise<void> {
    const notRead = [{ path: file, isDamaged: true, text: expect.stringMatching(text) }];
    expect(await listed(server)).toEqual(sessions);
    expect((await server.result("list_sessions")).notRead).toEqual(notRead);
    const report = { damaged: [], notRead, ok: false };
    expect(await server.result("get_health")).toMatchObject(report);
    expect(await server.result("verify_sessions")).toMatchObject({ total: sessions.length, ...report });
    expect((await server.failure("switch_session", { sessionPath: file })).message).toMatch(text);
  }

  for (const [name, make] of [
    ["born as one", makeContainer],
    ["migrated", migrateOnce],
  ] as const)
    test(`one ${name} that has lost its header, and gets it back`, async () => {
      const made = await make();
      const { server, file: sessionPath, id } = made;
      remove(join(sessionPath, "header.jsonl"));
      await requireNamed(made, /header\.jsonl is missing/);
      expect((await server.failure("switch_session", { sessionId: id })).message).toMatch(/header\.jsonl is missing/);
      put(join(sessionPath, "header.jsonl"), "");
      expect(await listed(server)).toEqual([id]);
      await server.result("switch_session", { sessionPath });
      await server.result("repair_session");
      await isSound(server);
    });

  test("one that has lost its header and its pointer", async () => {
    const made = await makeContainer();
    remove(join(made.file, "header.jsonl"), pointerOf(made.file));
    await requireNamed(made, /header\.jsonl is missing|neither header nor pointer/);
  });

  test("one that is gone while the file that was migrated is there; rollback makes that the session again", async () => {
    const made = await migrateOnce();
    const { server, file, source, id, place } = made;
    remove(file);
    await requireNamed(made, /is missing, though/);
    const started = serveHere(["--session", file, "--events", "none"], { place });
    expect((await started.failure("get_state")).message).toMatch(/is missing, though/);
    await started.finish();
    expect((await server.failure("migrate_session", { sessionPath: source })).message).toMatch(/is missing, though/);
    expect(await server.result("rollback_migration", { sessionPath: source })).toMatchObject({ sessionPath: source });
    expect([await listed(server), existsSync(`${source}.migrated`)]).toEqual([[id], false]);
    expect(await server.result("get_health")).toMatchObject({ damaged: [], notRead: [], ok: true });
  });

  test("one beside its file, without pointer and ledger: no migration is advised, which would put it aside", async () => {
    const made = await migrateOnce();
    remove(pointerOf(made.file), join(made.file, "migrations"));
    renameSync(`${made.source}.migrated`, made.source);
    await requireNamed(made, /pointer file .* is missing/, [made.id]);
  });
});

test("a rollback keeps the correlation id of its migration", async () => {
  const { server, file } = await migrateTwice();
  const { correlationId } = await server.result("migration_status", { sessionPath: file });
  const { sessionPath, ...back } = await server.result("rollback_migration", { sessionPath: file });
  expect(back.correlationId).toBe(correlationId);
  const { events } = await server.result("migration_status", { sessionPath });
  expect(new Set(events.map((event: Json) => event.correlationId))).toEqual(new Set([correlationId]));
});
