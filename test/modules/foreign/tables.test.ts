/**
 * SQLite databases read without SQLite: what SQLite says of them, while they are written and when they are damaged.
 *
 * @module-tag system
 */

import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { SourceRow } from "../../../src/modules/foreign/read/rows.ts";
import { DatabaseTables } from "../../../src/modules/foreign/sqlite/tables.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { useAndClose } from "../../../src/storage/fs/files.ts";
import type { Database } from "../../../src/storage/fs/sqlite.ts";
import { FaultDisk } from "../../support/disk.ts";
import { SQLITE } from "../../support/foreign/databases.ts";
import { contentsOf } from "../../support/lifecycle.ts";
import { forSeeds, type Random } from "../../support/random.ts";
import { temporaryFolder } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const COLUMNS = ["k", "n", "x", "big", "b"] as const;

function valuesIn(row: SourceRow): unknown[] {
  return [row.number, ...COLUMNS.map((name) => row.value(name)).map(plain)];
}

function plain(value: unknown): unknown {
  return value instanceof Uint8Array ? Buffer.from(value).toString("hex") : value;
}

function readBy(disk: Disk, file: string, wanted?: { column: string; is: string }): unknown[][] {
  return useAndClose(new DatabaseTables(disk, file), (tables) => {
    const rows = Array.from(tables.rows("t", wanted), valuesIn);
    expect([...tables.faults]).toEqual([]);
    return rows.sort((a, b) => Number(a[0]) - Number(b[0]));
  });
}

function saidBy(database: Database, where = ""): unknown[][] {
  const rows = database.prepare(`SELECT rowid AS id, k, n, x, big, b FROM t ${where} ORDER BY rowid`).all();
  return (rows as Record<string, unknown>[]).map((row) => [row.id, ...COLUMNS.map((name) => plain(row[name]))]);
}

function fill(database: Database, random: Random, rows: number): void {
  database.exec(
    "CREATE TABLE t(k TEXT, n INTEGER, [x] REAL /* a, comment */, big TEXT, \"b\" BLOB, CHECK (n <> ',') ); CREATE INDEX i ON t(k, n)",
  );
  const insert = database.prepare("INSERT INTO t(rowid, k, n, x, big, b) VALUES (?, ?, ?, ?, ?, ?)");
  for (let n = 0; n < rows; n++) {
    const text = random.pick(["a", "b", "c", "ü", null]);
    const big = "é".repeat(random.int(random.chance(0.1) ? 20_000 : 50));
    const number = random.pick([null, 0, 1, -1, 200, -40_000, 2 ** 23, -(2 ** 40), 2 ** 52]);
    const blob = random.chance(0.5) ? null : Buffer.alloc(random.int(300), n);
    insert.run((n + 1) * 3, text, number, random.pick([null, 0.5, -2.25]), big, blob);
  }
}

acrossTiers(test, [5, 12])("every row is what SQLite says, by an index and without it (%i)", (count) => {
  forSeeds(count, (random) => {
    const file = join(temporaryFolder(), "x.db");
    const database = SQLITE(file);
    database.exec(`PRAGMA page_size = ${random.pick([512, 1024, 4096, 65536])}`);
    database.exec(`PRAGMA encoding = '${random.pick(["UTF-8", "UTF-16le", "UTF-16be"])}'`);
    database.exec(`PRAGMA journal_mode = ${random.pick(["WAL", "DELETE"])}`);
    fill(database, random, random.pick([0, 1, 40, 700]));
    database.exec("DELETE FROM t WHERE rowid % 7 = 0; ALTER TABLE t ADD COLUMN more TEXT DEFAULT 'x'");
    const said = saidBy(database);
    const some = ["a", "ü", "no"].map((is) => ({ is, rows: saidBy(database, `WHERE k = '${is}'`) }));
    // SQLite writes next to a database even when it only reads one.
    const before = contentsOf(join(file, ".."));
    expect(readBy(realDisk, file)).toEqual(said);
    for (const { is, rows } of some) expect(readBy(realDisk, file, { column: "k", is })).toEqual(rows);
    expect(contentsOf(join(file, ".."))).toEqual(before);
    database.close();
  });
});

/** Reads a database and its log from memory. */
function readMemory(main: Uint8Array, log: Uint8Array): unknown[][] {
  const disk = new FaultDisk();
  disk.put("/x.db", main);
  disk.put("/x.db-wal", log);
  return readBy(disk, "/x.db");
}

test("a log counts up to its last transaction that ended, and a torn end of it does not", () => {
  const file = join(temporaryFolder(), "x.db");
  const database = SQLITE(file);
  database.exec("PRAGMA journal_mode = WAL; CREATE TABLE t(k, n, x, big, b); INSERT INTO t(k) VALUES ('one')");
  const first = saidBy(database);
  const log = readFileSync(`${file}-wal`).length;
  database.exec("PRAGMA cache_size = 2; INSERT INTO t(k, big) VALUES ('two', hex(zeroblob(100000)))");
  const second = saidBy(database);
  const [main, wal] = [readFileSync(file), readFileSync(`${file}-wal`)];
  database.close();
  for (let size = log; size <= wal.length; size += 997) expect(readMemory(main, wal.subarray(0, size))).toEqual(first);
  expect(readMemory(main, wal)).toEqual(second);
  const damaged = Buffer.from(wal);
  damaged[damaged.length - 10] ^= 1;
  expect(readMemory(main, damaged)).toEqual(first);
});

test("of a transaction that did not end, the journal beside the database has what was there before", () => {
  const folder = temporaryFolder();
  const file = join(folder, "x.db");
  const database = SQLITE(file);
  database.exec("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 5; CREATE TABLE t(k TEXT, n, x, big, b)");
  database.exec(
    "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 300) INSERT INTO t(k, big) SELECT i, hex(zeroblob(200)) FROM c",
  );
  const before = saidBy(database);
  database.exec("BEGIN; UPDATE t SET big = 'other', n = 1; DELETE FROM t WHERE rowid > 100");
  copyFileSync(file, join(folder, "y.db"));
  copyFileSync(`${file}-journal`, join(folder, "y.db-journal"));
  database.exec("ROLLBACK");
  database.close();
  expect(readFileSync(file).equals(readFileSync(join(folder, "y.db")))).toBe(false);
  expect(readBy(realDisk, join(folder, "y.db"))).toEqual(before);
});

acrossTiers(test, [20, 60])("damage costs the rows that are in it, and is told (%i)", (count) => {
  const file = join(temporaryFolder(), "x.db");
  const database = SQLITE(file);
  database.exec("PRAGMA page_size = 512");
  forSeeds(1, (random) => fill(database, random, 300));
  database.close();
  const whole = readFileSync(file);
  forSeeds(count, (random) => {
    const bytes = Buffer.from(whole);
    for (let times = 1 + random.int(3); times > 0; times--) {
      const at = random.int(bytes.length);
      const ways: (() => void)[] = [
        () => void bytes.writeUInt8(random.int(256), at),
        () => void bytes.fill(random.int(256), at - (at % 512), at - (at % 512) + 512),
        () => void bytes.copy(bytes, at - (at % 512), 0, 512),
        () => void bytes.writeUInt32BE(random.int(2 ** 32), Math.min(at, bytes.length - 4)),
      ];
      random.pick(ways)();
    }
    const disk = new FaultDisk();
    disk.put("/x.db", random.chance(0.3) ? bytes.subarray(0, random.int(bytes.length)) : bytes);
    useAndClose(new DatabaseTables(disk, "/x.db"), (tables) => {
      let rows = 0;
      for (const row of tables.rows("t")) {
        valuesIn(row);
        rows++;
      }
      for (const row of tables.rows("t", { column: "k", is: "a" })) valuesIn(row);
      if (tables.columns("t").length > 0 && rows < 200) expect(tables.faults.size).toBeGreaterThan(0);
    });
  });
});
