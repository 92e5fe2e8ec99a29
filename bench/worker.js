// One measurement in a process of its own, printed as JSON: what a library with Pi's SessionManager does, or what the
// machine does at best.
//
//   node bench/worker.js parse|copy|sync|append-raw|append-checked <file>
//   node bench/worker.js import|open|context|append|append-first|summaries|branched|list|list-again|recent|recent-none
//     <file> <library>
import {
  closeSync,
  fdatasyncSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [task, file, library] = process.argv.slice(2);
const now = () => performance.now();
const PIECE = 4 << 20;

const ANCHORS = {
  /** Every line parsed, in pieces where the file is longer than a string can be. */
  parse() {
    const began = now();
    const fd = openSync(file, "r");
    const bytes = Buffer.allocUnsafe(PIECE);
    let rest = "";
    const decoder = new TextDecoder();
    for (let count = readSync(fd, bytes); count > 0; count = readSync(fd, bytes)) {
      const lines = (rest + decoder.decode(bytes.subarray(0, count), { stream: true })).split("\n");
      rest = lines.pop();
      for (const line of lines) JSON.parse(line);
    }
    return { ms: now() - began };
  },
  /** Read and written again, 4 MiB at a time, and made durable. */
  copy() {
    const began = now();
    const from = openSync(file, "r");
    const to = openSync(`${file}.copy-${process.pid}`, "w");
    const bytes = Buffer.allocUnsafe(PIECE);
    for (let count = readSync(from, bytes); count > 0; count = readSync(from, bytes)) writeSync(to, bytes, 0, count);
    fdatasyncSync(to);
    closeSync(to);
    return { ms: now() - began };
  },
  /** One line and fdatasync, over and over; the median. */
  sync() {
    const fd = openSync(file, "a");
    const line = Buffer.alloc(800, 120);
    const times = [];
    for (let n = 0; n < 300; n++) {
      const began = now();
      writeSync(fd, line);
      fdatasyncSync(fd);
      times.push(now() - began);
    }
    times.sort((a, b) => a - b);
    return { us: times[150] * 1000 };
  },
  /** Lines written one by one, and not made durable. */
  "append-raw"() {
    const fd = openSync(file, "a");
    const line = Buffer.alloc(330, 120);
    const began = now();
    for (let n = 0; n < 20_000; n++) writeSync(fd, line);
    return { ks: 20_000 / (now() - began) };
  },
  /** Like `append`, with a look at the file before and after each: only that shows what other programs wrote. */
  "append-checked"() {
    const fd = openSync(file, "a");
    const line = Buffer.alloc(330, 120);
    const began = now();
    for (let n = 0; n < 20_000; n++) {
      fstatSync(fd);
      writeSync(fd, line);
      fstatSync(fd);
    }
    return { ks: 20_000 / (now() - began) };
  },
};

const message = () => ({ role: "user", content: [{ type: "text", text: "x".repeat(120) }], timestamp: 1 });
/** The first of a session: Pi writes nothing before it has one of these. */
const answer = () => ({ ...message(), role: "assistant", model: "m", provider: "p", stopReason: "stop" });
const median = (times) => times.sort((a, b) => a - b)[times.length >> 1];

const TASKS = {
  import: (_, imported) => ({ ms: imported }),
  open: ({ SessionManager }) => {
    const began = now();
    const session = SessionManager.open(file);
    const ms = now() - began;
    return { ms, leaf: session.getLeafId(), mb: peak() };
  },
  context: ({ SessionManager }) => {
    const session = SessionManager.open(file);
    const began = now();
    const { messages } = session.buildSessionContext();
    return { ms: now() - began, messages: messages.length };
  },
  list: async ({ SessionManager }) => {
    const began = now();
    const sessions = await SessionManager.listAll();
    return { ms: now() - began, sessions: sessions.length, mb: peak() };
  },
  /** `file` is a folder of sessions. */
  "list-folder": async ({ SessionManager }) => {
    const cwd = cwdOf(file);
    const began = now();
    const { length } = await SessionManager.list(cwd, file);
    return { ms: now() - began, sessions: length };
  },
  append: ({ SessionManager }) => {
    const session = SessionManager.open(file);
    for (let n = 0; n < 2000; n++) session.appendMessage(message());
    const count = 20_000;
    const began = now();
    for (let n = 0; n < count; n++) session.appendMessage(message());
    return { ks: count / (now() - began), mb: statSync(file).size / 1e6 };
  },
  /** The first of a process, whose code is not compiled yet. */
  "append-first": ({ SessionManager }) => {
    const session = SessionManager.open(file);
    session.appendMessage(answer());
    const began = now();
    for (let n = 0; n < 1000; n++) session.appendMessage(message());
    return { ks: 1000 / (now() - began) };
  },
  summaries: ({ SessionManager }) => {
    const session = SessionManager.open(file);
    session.appendMessage(answer());
    const ids = Array.from({ length: 1000 }, () => session.appendMessage(message()));
    const times = ids.map((id) => {
      const began = now();
      session.branchWithSummary(id, "so far");
      return (now() - began) * 1000;
    });
    return { us: median(times) };
  },
  branched: ({ SessionManager }) => {
    const session = SessionManager.open(file);
    const leaf = session.getLeafId();
    const began = now();
    session.createBranchedSession(leaf);
    return { ms: now() - began };
  },
  /** `file` is a folder of sessions here and below. */
  "list-again": async ({ SessionManager }) => {
    const first = await SessionManager.listAll(file);
    const began = now();
    const { length } = await SessionManager.listAll(file);
    return { ms: now() - began, sessions: Math.min(length, first.length) };
  },
  recent: (library) => recent(library, cwdOf(file)),
  /** No session of the folder is of the working directory. */
  "recent-none": (library) => recent(library, process.cwd()),
};

function recent({ SessionManager }, cwd) {
  const began = now();
  const session = SessionManager.continueRecent(cwd, file);
  return { ms: now() - began, entries: session.getEntries().length };
}

/** The working directory of a session in a folder. */
function cwdOf(folder) {
  const [name] = readdirSync(folder);
  return JSON.parse(readFileSync(join(folder, name), "utf8").split("\n", 1)[0]).cwd;
}

/** Megabytes at most so far. */
function peak() {
  return process.resourceUsage().maxRSS / 1000;
}

/** Answers of a library, which is given the time that its import took. */
async function withLibrary() {
  const began = now();
  const loaded = await import(pathToFileURL(library).href);
  return TASKS[task](loaded, now() - began);
}

const result = ANCHORS[task] ? ANCHORS[task]() : await withLibrary();
console.log(JSON.stringify(result));
// Pi keeps things open.
process.exit(0);
