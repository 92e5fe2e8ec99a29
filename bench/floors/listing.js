// The least that a first list of many sessions needs: opens, stats, reads and closes each file in the folders of a
// folder, on one thread, and puts a row for each into a new database where Node has SQLite. It ignores the content of
// the files, and a row is a path, a stamp and 400 bytes. Prints the milliseconds.
//
//   node bench/floors/listing.js <folder> <database>
import { closeSync, fstatSync, openSync, readdirSync, readSync } from "node:fs";
import { join } from "node:path";

const [root, database] = process.argv.slice(2);
const sqlite = await import("node:sqlite").catch(() => undefined);
const began = performance.now();
const bytes = Buffer.allocUnsafe(1 << 18);
const facts = "x".repeat(400);
const rows = [];
for (const folder of readdirSync(root))
  for (const name of readdirSync(join(root, folder))) {
    const path = join(root, folder, name);
    const fd = openSync(path, "r");
    const { size, mtimeMs } = fstatSync(fd);
    for (let left = size; left > 0; ) {
      const count = readSync(fd, bytes);
      left = count === 0 ? 0 : left - count;
    }
    closeSync(fd);
    rows.push([path, size, mtimeMs, facts]);
  }
if (sqlite) {
  const opened = new sqlite.DatabaseSync(database);
  opened.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
  opened.exec("CREATE TABLE sessions (path TEXT PRIMARY KEY, size, time, facts TEXT); BEGIN");
  const insert = opened.prepare("INSERT INTO sessions VALUES (?, ?, ?, ?)");
  for (const row of rows) insert.run(...row);
  opened.exec("COMMIT");
  opened.close();
}
console.log(JSON.stringify({ ms: performance.now() - began }));
