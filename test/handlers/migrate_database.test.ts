/** Sessions in databases of pi_agent_rust: into a container and back, over the wire and on the command line. */

import { createHash } from "node:crypto";
import { copyFileSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { findSqlite } from "../../src/storage/fs/sqlite.ts";
import { readDatabaseLines } from "../../src/storage/v2/sqlite-v1.ts";
import { user } from "../support/drafts.ts";
import { rustDatabase } from "../support/foreign/databases.ts";
import { contentsOf, serveLibrary } from "../support/lifecycle.ts";
import { chain, headerText, id, SESSION, TIME, userText } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { SQLITE } from "../support/programs.ts";
import { type HereServer, type Json, type Place, temporaryPlace } from "../support/server.ts";
import { storedText } from "../support/v2.ts";

const openDatabase = findSqlite() as NonNullable<ReturnType<typeof findSqlite>>;

interface Rows {
  readonly headers?: readonly (readonly [id: string, json: string])[];
  readonly entries?: readonly (readonly [seq: number, json: string])[];
  readonly blobs?: readonly Uint8Array[];
}

const numbered = (lines: readonly string[]): [number, string][] => lines.map((line, i) => [i + 1, line]);

/** Makes a database as pi_agent_rust does, `isOpen`: as it is while that has it open; returns its path. */
function makeDatabase(place: Place, rows: Rows = {}, isOpen = false): string {
  const made = join(place.home, "made.sqlite");
  const { headers = [[SESSION, headerText()]], entries = numbered(chain(3)), blobs = [] } = rows;
  const database = rustDatabase(made, headerText(), []);
  database.exec("DELETE FROM pi_session_header");
  for (const row of headers) database.prepare("INSERT INTO pi_session_header VALUES (?, ?)").run(...row);
  for (const row of entries) database.prepare("INSERT INTO pi_session_entries VALUES (?, ?)").run(...row);
  const meta = database.prepare("INSERT INTO pi_session_meta VALUES (?, ?)");
  meta.run("message_count", String(entries.length));
  meta.run("name", "");
  if (blobs.length > 0)
    database.exec(
      "CREATE TABLE pi_session_blobs(digest TEXT PRIMARY KEY NOT NULL, byte_length INTEGER NOT NULL, data BLOB NOT NULL)",
    );
  for (const blob of blobs)
    database.prepare("INSERT INTO pi_session_blobs VALUES (?, ?, ?)").run(digestOf(blob), blob.length, blob);
  const file = join(place.cwd, "talk.sqlite");
  if (isOpen) copyFileSync(`${made}-wal`, `${file}-wal`);
  else database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  copyFileSync(made, file);
  database.close();
  return file;
}

const digestOf = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

function rowsOf(file: string, first = "PRAGMA user_version"): Json {
  const database = openDatabase(file);
  try {
    database.exec(first);
    const all = (sql: string) => [...database.prepare(sql).all()].map((row) => Object.values(row as object));
    return {
      header: all("SELECT id, json FROM pi_session_header"),
      entries: all("SELECT seq, json FROM pi_session_entries ORDER BY seq"),
      meta: Object.fromEntries(all("SELECT key, value FROM pi_session_meta")),
    };
  } finally {
    database.close();
  }
}

// Numbers and escapes that parsing would lose, an unknown type, members in another order.
const ODD = [
  `{"type":"message","id":"${id(0)}","parentId":null,"timestamp":"${TIME}","message":{"role":"user","content":"caf\\u00e9 \u2028"},"n":1.0}`,
  `{"type":"plugin.thing","id":"${id(1)}","parentId":"${id(0)}","timestamp":"${TIME}","deep":{"z":[1e3,-0],"a":null}}`,
  `{"id":"${id(2)}", "type":"session_info","parentId":"${id(1)}","timestamp":"${TIME}","name":"a talk"}`,
];

/** A server at a place with a database. */
function made(rows: Rows = {}, isOpen = false): { place: Place; file: string; server: HereServer; bytes: Buffer } {
  const place = temporaryPlace();
  const file = makeDatabase(place, rows, isOpen);
  return { place, file, server: serveLibrary(place), bytes: readFileSync(file) };
}

describe("a session in a database of pi_agent_rust", needs(SQLITE), () => {
  test("goes into a container with every byte of its rows, and is found under its old path", async () => {
    const { place, file, server, bytes } = made({ entries: numbered(ODD) });
    const dry = await server.result("migrate_session", { sessionPath: file, dryRun: true });
    expect(dry).toMatchObject({ obstacles: [], entryCount: 3 });
    expect([readdirSync(place.cwd), readFileSync(file)]).toEqual([["talk.sqlite"], bytes]);
    expect(await server.result("migration_status", { sessionPath: file })).toMatchObject({ active: "sqlite_v1" });
    const moved = await server.result("migrate_session", { sessionPath: file });
    expect(moved).toMatchObject({ state: "MIGRATED", sessionId: SESSION, entryCount: 3, hiddenFromPi: true });
    const container = moved.sessionPath;
    expect(storedText(realDisk, container)).toBe(`${headerText()}\n${ODD.join("\n")}\n`);
    expect(existsSync(file)).toBe(false);
    expect(readFileSync(`${file}.migrated`)).toEqual(bytes);
    expect(moved.snapshotId).toBe(createHash("sha256").update(bytes).digest("hex"));
    const documents = [join(container, "manifest.json"), container.replace(/\.v2$/, ".store.json")];
    for (const path of documents)
      expect(JSON.parse(readFileSync(path, "utf8"))).toMatchObject({ sourceFormat: "sqlite_v1" });
    const { events, active } = await server.result("migration_status", { sessionPath: file });
    expect(active).toBe("native_v2");
    for (const { sourceFormat, targetFormat } of events)
      expect([sourceFormat, targetFormat]).toEqual(["sqlite_v1", "native_v2"]);
    expect(await server.result("switch_session", { sessionPath: file })).toMatchObject({ sessionFile: container });
    expect(await server.result("verify_session")).toMatchObject({ ok: true });
  });

  test("comes back byte for byte when nothing was appended", async () => {
    const { file, server, bytes } = made();
    const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
    const back = await server.result("rollback_migration", { sessionPath, reason: "a test" });
    expect(back).toMatchObject({ state: "ROLLED_BACK", sessionPath: file, laterEntries: 0, hiddenFromPi: false });
    expect(readFileSync(file)).toEqual(bytes);
    expect(existsSync(`${file}.migrated`)).toBe(false);
    const status = await server.result("migration_status", { sessionPath });
    expect(status).toMatchObject({ active: "sqlite_v1", state: "ROLLED_BACK", interrupted: false, reason: "a test" });
    expect(status.events.at(-1)).toMatchObject({ sourceFormat: "native_v2", targetFormat: "sqlite_v1", outcome: "ok" });
  });

  test("comes back with what was appended as further rows, and goes again", async () => {
    const { place, file, server, bytes } = made({ entries: numbered(ODD) });
    await server.result("migrate_session", { sessionPath: file });
    await server.result("switch_session", { sessionPath: file });
    await server.result("append", { entries: [user("more")] });
    await server.result("set_session_name", { name: "renamed" });
    const { sessionFile } = await server.result("get_state");
    const lines = storedText(realDisk, sessionFile).trimEnd().split("\n").slice(1);
    expect(lines).toHaveLength(5);
    const back = await server.result("rollback_migration");
    expect(back).toMatchObject({ sessionPath: file, laterEntries: 2, entryCount: 5 });
    // No server has a database open.
    expect((await server.failure("get_state")).message).toContain(file);
    const rows = rowsOf(file);
    expect(rows.entries).toEqual(numbered(lines));
    expect(rows.meta).toEqual({ message_count: "2", name: "renamed" });
    expect(readFileSync(`${file}.v3.bak`)).toEqual(bytes);
    expect(readdirSync(place.cwd).filter((name) => /-(wal|shm|journal)$|tmp/.test(name))).toEqual([]);
    expect(await server.result("migrate_session", { sessionPath: file })).toMatchObject({ entryCount: 5 });
  });

  test("is written anew where the frozen database is gone", async () => {
    const { file, server } = made({ entries: numbered(ODD) });
    const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
    rmSync(`${file}.migrated`);
    expect(await server.result("rollback_migration", { sessionPath })).toMatchObject({ rebuilt: true });
    expect(rowsOf(file)).toEqual({
      header: [[SESSION, headerText()]],
      entries: numbered(ODD),
      meta: { message_count: "1", name: "a talk" },
    });
  });

  test("goes back from a cutover that was cut off", async () => {
    const { file, server, bytes } = made();
    const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
    const pointer = sessionPath.replace(/\.v2$/, ".store.json");
    writeFileSync(pointer, readFileSync(pointer, "utf8").replace('"completed"', '"cutover_commit"'));
    await server.result("switch_session", { sessionPath });
    expect((await server.failure("append", { entries: [user("x")] })).message).toContain("migrate_session");
    expect(await server.result("migrate_session")).toMatchObject({ state: "MIGRATED" });
    await server.result("append", { entries: [user("x")] });
    expect(readFileSync(`${file}.migrated`)).toEqual(bytes);
  });

  test("brings its media along, there and back", async () => {
    const place = temporaryPlace();
    const blob = Buffer.alloc(70_000, 7);
    const data = { $piBlob: digestOf(blob), sizeBytes: blob.length, encoding: "base64" };
    const content = [{ type: "image", mimeType: "image/png", data }];
    const line = JSON.stringify({
      ...JSON.parse(userText(id(0), null)),
      message: { role: "user", content },
    });
    const file = makeDatabase(place, { entries: [[1, line]], blobs: [blob] });
    const server = serveLibrary(place);
    const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
    await server.result("switch_session", { sessionPath });
    const { messages } = await server.result("get_messages");
    const isWhole = (data: unknown): boolean => data === blob.toString("base64");
    expect(messages[0].content[0].data).toSatisfy(isWhole);
    await server.result("append", { entries: [user("more")] });
    rmSync(`${file}.migrated`);
    await server.result("rollback_migration");
    const again = await server.result("migrate_session", { sessionPath: file });
    await server.result("switch_session", { sessionPath: again.sessionPath });
    expect((await server.result("get_messages")).messages[0].content[0].data).toSatisfy(isWhole);
  });

  const twoHeaders = [SESSION, "other"].map((one): [string, string] => [one, headerText({ id: one })]);
  const refused: [string, Rows, RegExp][] = [
    ["a gap in its rows", { entries: numbered(chain(3)).filter(([n]) => n !== 2) }, /row 2 has the number 3/],
    ["two headers", { headers: twoHeaders }, /2 headers/],
    ["a header of another id", { headers: [["other", headerText()]] }, /another id/],
    ["a header of another version", { headers: [[SESSION, headerText({ version: 4 })]] }, /version 4/],
    ["an id that is no UUID", { headers: [["mine", headerText({ id: "mine" })]] }, /not a UUID/],
    ["a row that is no entry", { entries: [[1, "garbage"]] }, /no|not/],
    ["a row with a line feed", { entries: [[1, `{\n${chain(1)[0].slice(1)}`]] }, /line feed/],
    ["a duplicate id", { entries: numbered([chain(1)[0], userText(id(0), null, "other")]) }, /taken/],
  ];
  test.each(refused)("with %s is refused, and stays as it is", async (_name, rows, named) => {
    const { place, file, server } = made(rows);
    const before = contentsOf(place.cwd);
    const { message, data } = await server.failure("migrate_session", { sessionPath: file });
    expect([data.name, message]).toEqual(["migration_failed", expect.stringMatching(named)]);
    expect(contentsOf(place.cwd)).toEqual(before);
  });

  test("is refused while a program has it open that wrote beside it, and nothing is missed", async () => {
    const { file, server } = made({}, true);
    const { message } = await server.failure("migrate_session", { sessionPath: file });
    expect(message).toMatch(/talk\.sqlite-wal holds changes/);
    // The way that is named: a program that opens it takes them in.
    rowsOf(file, "PRAGMA wal_checkpoint(TRUNCATE)");
    expect(await server.result("migrate_session", { sessionPath: file })).toMatchObject({ entryCount: 3 });
  });

  test("any other database is no session", async () => {
    const place = temporaryPlace();
    const file = join(place.cwd, "other.sqlite");
    const database = openDatabase(file);
    database.exec("CREATE TABLE t(x)");
    database.close();
    const server = serveLibrary(place);
    expect((await server.failure("migrate_session", { sessionPath: file })).message).toMatch(/no tables/);
    expect((await server.failure("switch_session", { sessionPath: file })).data.name).toBe("not_a_session");
  });

  test("without SQLite it is said what to install", () => {
    const file = makeDatabase(temporaryPlace());
    const read = () => readDatabaseLines(realDisk, file, () => undefined);
    expect(read).toThrow(Failure);
    expect(read).toThrow(/Node 22\.13.*@photostructure\/sqlite/);
  });
});
