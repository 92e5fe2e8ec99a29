// A library that does the work of Pi's SessionManager in bench/worker.js as plainly as possible: the cost of the system
// and of JSON. It has no tree, no context and no lock, checks no input, looks for no damage, and keeps only the id of
// the last entry in memory.
import {
  closeSync,
  fdatasyncSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  statSync,
  writeSync,
} from "node:fs";

/** Bytes of one read: more of them are memory that is touched for the first time. */
const PIECE = 1 << 17;

export class SessionManager {
  /** Opens a file and parses its lines. */
  static open(file) {
    const fd = openSync(file, "a+");
    let last = null;
    for (const line of readFileSync(fd, "utf8").split("\n")) if (line !== "") last = JSON.parse(line).id;
    return new SessionManager(file, fd, last);
  }

  /** Looks at each file of a folder, and keeps nothing of it. */
  static async listAll(folder) {
    const names = readdirSync(folder);
    for (const name of names) statSync(`${folder}/${name}`);
    return names;
  }

  /** Looks at each file of a folder, and reads the first line of the newest. */
  static continueRecent(_, folder) {
    let newest;
    let time = 0;
    for (const name of readdirSync(folder)) {
      const file = `${folder}/${name}`;
      const { mtimeMs } = statSync(file);
      if (mtimeMs > time) [newest, time] = [file, mtimeMs];
    }
    const fd = openSync(newest, "r");
    const head = Buffer.allocUnsafe(4096);
    const text = head.latin1Slice(0, readSync(fd, head));
    return new SessionManager(newest, fd, JSON.parse(text.slice(0, text.indexOf("\n"))).id);
  }

  constructor(file, fd, last) {
    this.file = file;
    this.fd = fd;
    this.last = last;
  }

  getLeafId() {
    return this.last;
  }

  getEntries() {
    return [];
  }

  appendMessage(message) {
    return this.append({ type: "message", parentId: this.last, message });
  }

  branchWithSummary(id, summary) {
    return this.append({ type: "branch_summary", parentId: id, fromId: id, summary });
  }

  /** Writes a line, with a look at the file before and after it: only that shows what other programs wrote. */
  append(entry) {
    entry.id = Math.floor(Math.random() * 2 ** 32)
      .toString(16)
      .padStart(8, "0");
    entry.timestamp = new Date().toISOString();
    const line = `${JSON.stringify(entry)}\n`;
    fstatSync(this.fd);
    writeSync(this.fd, line);
    fstatSync(this.fd);
    this.last = entry.id;
    return entry.id;
  }

  /** Copies the file, with the entries off the path, makes the copy durable, reads it again and renames it into place. */
  createBranchedSession() {
    const name = `${this.file}.branched-${process.pid}`;
    const to = openSync(`${name}.tmp`, "w+");
    const [bytes, copied] = [Buffer.allocUnsafe(PIECE), Buffer.allocUnsafe(PIECE)];
    let size = 0;
    for (
      let count = readSync(this.fd, bytes, 0, PIECE, 0);
      count > 0;
      count = readSync(this.fd, bytes, 0, PIECE, size)
    ) {
      writeSync(to, bytes, 0, count);
      size += count;
    }
    fdatasyncSync(to);
    for (let at = 0; at < size; at += PIECE) {
      const count = readSync(this.fd, bytes, 0, PIECE, at);
      readSync(to, copied, 0, PIECE, at);
      if (bytes.compare(copied, 0, count, 0, count) !== 0) throw new Error("the copy is not what was written");
    }
    closeSync(to);
    renameSync(`${name}.tmp`, name);
    return name;
  }
}
