/** The health report of a machine, and the repairs: never of a session. */

import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { hostname } from "node:os";
import { basename, dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { nameOf } from "../support/asking.ts";
import { user } from "../support/drafts.ts";
import { CWD, library, one, put, putSession, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, fileText } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { SQLITE } from "../support/programs.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

/** Gives each test a temporary folder of its own: the common lock folder in it has the notes of every server of a user. */
beforeEach(() => {
  vi.stubEnv("TMPDIR", temporaryPlace().home);
});
afterEach(() => {
  vi.unstubAllEnvs();
});

const health = (server: HereServer): Promise<Json> => server.result("get_health");
const texts = (fixes: readonly Json[]): string[] => fixes.map(({ kind }) => kind);
/** A pid that no process has. */
const DEAD = 2 ** 22 + 1;

/** A server, and so many sessions in the folder of a directory that exists. */
function world(count = 1, args: string[] = []) {
  const all = library(0, args);
  const seen = (n: number, wanted: Parameters<typeof putSession>[2] = {}): string =>
    putSession(all.place, n, { cwd: all.place.cwd, ...wanted });
  const files = Array.from({ length: count }, (_, n) => seen(n + 1));
  return { ...all, seen, files, file: files[0] };
}

async function migrated(server: HereServer, sessionPath: string): Promise<string> {
  return (await server.result("migrate_session", { sessionPath })).sessionPath;
}

const modeOf = (path: string): number => statSync(path).mode & 0o777;

test("of an empty home", async () => {
  const found = await health(world(0).server);
  expect(found).toMatchObject({ ok: true, hidden: [], damaged: [], locks: [], leftovers: [], fixes: [] });
  expect(Object.values(found.counts)).toEqual([0, 0, 0, 0, 0, 0]);
  expect(found.roots).toMatchObject([{ agents: ["pi", "pi_agent_rust"], exists: false, inUse: true }]);
  const { engines } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  expect(found.node).toEqual({ version: process.versions.node, required: engines.node.slice(2), supported: true });
});

test("sessions are counted, and Pi's and pi_agent_rust's folders are found", async () => {
  const { place, seen, file } = world();
  const elsewhere = join(place.home, "rust");
  put(join(elsewhere, "session-index.sqlite"), "");
  seen(2, { header: { parentSession: file } });
  seen(3);
  seen(4);
  const server = serveLibrary({ ...place, variables: { ...place.variables, PI_SESSIONS_DIR: rootOf(place) } });
  const container = await migrated(server, file);
  await server.result("archive_session", { sessionId: sessionId(3) });
  await server.result("delete_session", { sessionId: sessionId(4) });
  const { counts, hidden, leftovers, ok } = await health(server);
  expect(counts).toEqual({ sessions: 2, archived: 1, trashed: 1, containers: 1, forks: 1, databases: 0 });
  expect(hidden).toMatchObject([{ reason: "container", sessionPath: container, ...one }]);
  expect([leftovers[0].kind, leftovers[0].count, ok]).toEqual(["migrated", 1, true]);
  const flat = serveLibrary(place, ["--session-dir", elsewhere]);
  expect((await health(flat)).roots).toMatchObject([
    { path: elsewhere, inUse: true, hasRustIndex: true },
    { path: rootOf(place), inUse: false, exists: true, agents: ["pi", "pi_agent_rust"] },
  ]);
});

test("sessions that agents do not show, each with the reason", async () => {
  const { place, server, seen, file, contents } = world();
  const named = (n: number): string => join(dirname(file), `2026-01-24T16-22-26-831Z_${sessionId(n)}.jsonl`);
  putSession(place, 2, { cwd: join(place.home, "gone") });
  seen(3, { folder: join(rootOf(place), "--elsewhere--") });
  seen(4, { header: { version: 9 } });
  seen(5, { header: { version: undefined } });
  seen(6, { header: { cwd: "" } });
  put(named(7), "");
  put(named(8), fileText(...chain(2)));
  const before = contents();
  const { hidden, ok, damaged } = await health(server);
  expect(hidden.map(({ reason, sessionId }: Json) => `${sessionId.slice(-1)} ${reason}`).sort()).toEqual([
    "2 cwd_missing",
    "3 other_folder",
    "4 newer_version",
    "5 older_version",
    "6 no_cwd",
    "7 empty_file",
    "8 no_header",
  ]);
  // Only the one without its header is damaged.
  expect([ok, damaged.map(({ sessionId }: Json) => sessionId.slice(-1)), contents()]).toEqual([false, ["8"], before]);
});

test("files with one session id are named, and so is an entry whose id another one has", async () => {
  const { place, server, seen, file } = world();
  const copy = file.replace(/\.jsonl$/, "-copy.jsonl");
  copyFileSync(file, copy);
  seen(2, { lines: [...chain(2), chain(2)[1]] });
  const { ok, sameIds, damaged } = await health(server);
  expect(sameIds).toMatchObject([{ ...one, sessionPaths: expect.arrayContaining([file, copy]) }]);
  const [{ reasons }] = damaged;
  expect([ok, damaged.length, reasons]).toEqual([false, 1, [expect.stringContaining("is repeated here")]]);
  const { stdout } = await runHere(place, ["doctor"]);
  expect(stdout).toContain("1 id that several files have");
  for (const path of [file, copy]) expect(stdout.replace(/\s/g, "")).toContain(basename(path));
});

acrossTiers(describe, ["jsonl", "v2"] as const)("a session of %s", (store) => {
  async function stored() {
    const all = world();
    return { ...all, session: store === "v2" ? await migrated(all.server, all.file) : all.file };
  }

  test("that is damaged is told with its name and the remedy, and nothing is changed", async () => {
    const { server, session, contents } = await stored();
    if (store === "v2") rmSync(join(session, "segments", "0000000000000001.seg"));
    else appendFileSync(session, '{"type":"message","id":"torn');
    const before = contents();
    const { damaged, ok } = await health(server);
    expect(damaged).toMatchObject([{ sessionPath: session, ...one, remedy: "repair" }]);
    expect([ok, damaged[0].reasons.length > 0, damaged[0].damageCount > 0]).toEqual([false, true, true]);
    const all = await server.result("verify_sessions");
    expect(all).toMatchObject({ total: 1, ok: false, damaged: [{ sessionPath: session, failure: null }] });
    expect(contents()).toEqual(before);
  });

  test("that is in use is told with its holder, and one whose holder died can be cleared", async () => {
    const { place, server, session } = await stored();
    const other = serveLibrary(place);
    await other.result("open_session", { sessionPath: session });
    await other.result("append", { ...one, entries: [user("more")] });
    const { locks, fixes } = await health(server);
    expect(locks).toMatchObject([{ sessionPath: session, ...one, isStale: false, isOwn: true }]);
    expect([locks[0].holder.pid, fixes]).toEqual([process.pid, []]);
    expect((await server.result("verify_sessions")).ok).toBe(true);
    if (store === "jsonl") {
      // A line that is on its way is no damage yet.
      const whole = readFileSync(session);
      appendFileSync(session, '{"type":');
      expect((await health(server)).damaged).toEqual([]);
      writeFileSync(session, whole);
    }
    await other.result("close_session", one);
    expect((await health(server)).locks).toEqual([]);
    const inode = statSync(session).ino;
    const note =
      store === "v2" ? join(session, "writer.holder") : join(dirname(session), `.pi-session-${inode}.holder`);
    writeFileSync(note, JSON.stringify({ client: "dead", pid: DEAD, since: "2026-01-01T00:00:00Z", host: hostname() }));
    // The next writer learns from it that no writer continues a line that was torn just now.
    expect((await health(server)).fixes).toEqual([]);
    utimesSync(session, 0, 0);
    const left = await health(server);
    expect(left.locks).toMatchObject([{ sessionPath: session, isStale: true, holder: { pid: DEAD, client: "dead" } }]);
    expect([texts(left.fixes), existsSync(note)]).toEqual([["stale_locks"], true]);
    expect(texts((await server.result("fix_health")).fixed)).toEqual(["stale_locks"]);
    expect([existsSync(note), (await health(server)).fixes]).toEqual([false, []]);
  });
});

test("what cannot be opened is told, and the others are looked at", async () => {
  const { server, file } = world();
  const sessionPath = put(file.replace(sessionId(1), sessionId(2)), Buffer.alloc(5000));
  const { damaged, counts } = await health(server);
  expect(damaged).toMatchObject([{ sessionPath, sessionId: sessionId(2), remedy: "none" }]);
  expect(counts.sessions).toBe(1);
  const all = await server.result("verify_sessions");
  expect(all).toMatchObject({ total: 2, damaged: [{ sessionPath, failure: expect.stringMatching(/not a session/) }] });
});

test("archived sessions are verified when that is asked for", async () => {
  const { server, file } = world(2);
  appendFileSync(file, '{"torn');
  await server.result("archive_session", { sessionPath: file });
  const nothing = { damaged: [], incomplete: [], notRead: [], ok: true };
  expect(await server.result("verify_sessions")).toEqual({ total: 1, ...nothing });
  const all = await server.result("verify_sessions", { archived: true });
  expect(all).toMatchObject({ total: 2, ok: false, damaged: [{ archived: true, ...one }] });
  expect((await health(server)).damaged).toMatchObject([{ archived: true }]);
});

/** Returns whether everybody may enter all folders above a path. */
function isReachable(path: string): boolean {
  for (let at = dirname(path); at !== dirname(at); at = dirname(at))
    if ((statSync(at).mode & 0o001) === 0) return false;
  return true;
}

test("a lock of a session that is nowhere here is named by its own file", async () => {
  const { place, server } = world();
  await server.result("list_sessions");
  const path = join(place.state, "locks", "1-123456.lock");
  put(path, JSON.stringify({ client: "dead", pid: DEAD, since: "2026-01-01T00:00:00Z", host: hostname() }));
  const { locks, fixes } = await health(server);
  expect(locks).toMatchObject([{ sessionPath: null, sessionId: null, isStale: true, holder: { pid: DEAD } }]);
  expect(fixes).toMatchObject([{ kind: "stale_locks", path }]);
});

test.skipIf(process.platform === "win32")("what others can read is told, and our state folder closed", async () => {
  const { place, server, file } = world();
  await server.result("list_sessions");
  for (const folder of [place.home, dirname(file), place.state]) chmodSync(folder, 0o755);
  chmodSync(file, 0o644);
  const { exposed, fixes } = await health(server);
  expect(exposed.find(({ isOwn }: Json) => isOwn)).toMatchObject({ path: place.state, mode: "755" });
  expect(exposed.some(({ path }: Json) => path === dirname(file))).toBe(isReachable(dirname(file)));
  expect(texts(fixes)).toEqual(["state_permissions"]);
  await server.result("fix_health", { kinds: ["stale_locks"] });
  expect(modeOf(place.state)).toBe(0o755);
  await server.result("fix_health");
  // Folders that others made are theirs.
  expect([place.state, dirname(file), file].map(modeOf)).toEqual([0o700, 0o755, 0o644]);
});

test("temporary files of dead processes go, those of live ones stay", async () => {
  const { place, file } = world();
  const paths = [
    [DEAD, 3600],
    [process.pid, 3600],
    [DEAD, 0],
  ].map(([pid, seconds], n) => {
    const path = join(dirname(file), `.x${n}.jsonl.${pid}-1.tmp`);
    writeFileSync(path, "half");
    const at = Date.now() / 1000 - seconds;
    utimesSync(path, at, at);
    return path;
  });
  const server = serveHere(["--events", "none"], { place, env: { now: () => Date.now() } });
  const { fixes, leftovers } = await health(server);
  expect([fixes.map(({ path }: Json) => path), leftovers[0].count]).toEqual([[paths[0]], 3]);
  await server.result("fix_health");
  expect(paths.map((path) => existsSync(path))).toEqual([false, true, true]);
});

test("a damaged catalog is thrown away, and the next list makes another", needs(SQLITE), async () => {
  const { place, server: first } = world();
  const stateOf = async (place: Place): Promise<Json> => (await health(serveLibrary(place))).catalog;
  await first.result("list_sessions");
  await first.finish();
  const { path, ...sound } = await stateOf(place);
  expect(sound).toMatchObject({ state: "sound", reason: null });
  const bytes = readFileSync(path);
  bytes.fill(0x5a, 100, 4096);
  writeFileSync(path, bytes);
  const server = serveLibrary(place);
  const { catalog, fixes, ok } = await health(server);
  expect([catalog.state, texts(fixes), ok]).toEqual(["damaged", ["catalog"], false]);
  await server.result("fix_health");
  expect([(await health(server)).catalog.state, existsSync(path)]).toEqual(["missing", false]);
  expect((await server.result("list_sessions")).sessions.length).toBe(1);
  await server.finish();
  expect((await stateOf(place)).state).toBe("sound");
});

test("read-only, nothing is mended; confined, only what is allowed is looked at", async () => {
  const { place, file } = library();
  chmodSync(dirname(file), 0o755);
  mkdirSync(place.state, { mode: 0o755 });
  chmodSync(place.state, 0o755);
  expect(await nameOf(serveLibrary(place, ["--read-only"]), "fix_health")).toBe("read_only");
  expect([modeOf(place.state), CWD.startsWith(place.home)]).toEqual([0o755, false]);
  const confined = serveLibrary(place, ["--confine"]);
  const { hidden, fixes, counts } = await health(confined);
  // The state of the directory is unknown.
  expect([hidden, counts.sessions, texts(fixes)]).toEqual([[], 1, ["state_permissions"]]);
  await confined.result("fix_health");
  expect([modeOf(place.state), readdirSync(dirname(file))]).toEqual([0o700, [basename(file)]]);
});

test("a session whose rollback was interrupted is one, though it has a file and a container", async () => {
  const { place, server, file } = world(2);
  const container = await migrated(server, file);
  // As a rollback leaves it that dies after the file has its name again, and before the pointer says so.
  copyFileSync(`${file}.migrated`, file);
  const pointer = container.replace(/\.v2$/, ".store.json");
  writeFileSync(pointer, readFileSync(pointer, "utf8").replace('"completed"', '"rollback"'));
  const { counts, damaged } = await health(server);
  expect([counts.sessions, counts.containers]).toEqual([2, 0]);
  expect(damaged).toMatchObject([{ sessionPath: file, remedy: "finish" }]);
  const offered = (await runHere(place, ["complete", "--", "show", ""])).stdout.trimEnd().split("\n");
  expect(offered.map((line) => line.split("\t")[0]).sort()).toEqual([sessionId(1), sessionId(2)]);
});

test("damage to a document of a container that costs no entry is told with its remedy, which mends it", async () => {
  const { server, file } = world();
  const container = await migrated(server, file);
  const name = "checkpoints/0000000000000009.json";
  writeFileSync(join(container, name), '{"half');
  const [{ reasons, remedy }] = (await health(server)).damaged;
  expect([reasons, remedy]).toEqual([[`${name} is damaged; no entry depends on it`], "repair"]);
  await server.result("open_session", { sessionPath: container });
  await server.result("repair_session", one);
  expect(await health(server)).toMatchObject({ ok: true, damaged: [] });
});

test("sessions are counted as the lists show them", async () => {
  const { server, files } = world(2);
  const [file, other] = files;
  const { movedTo } = await server.result("archive_session", { sessionPath: other });
  // Archiving that was cut off leaves both names.
  linkSync(movedTo, other);
  put(join(dirname(file), "other.jsonl"), '{"kind":"x"}\n{"kind":"y"}\n');
  symlinkSync("/dev/null", join(dirname(file), "device.jsonl"));
  const { counts, damaged } = await health(server);
  expect([counts.sessions, counts.archived, damaged]).toEqual([2, 0, []]);
  for (const [archived, count] of [
    [false, 2],
    [true, 0],
  ])
    expect((await server.result("list_sessions", { archived })).sessions.length).toBe(count);
});
