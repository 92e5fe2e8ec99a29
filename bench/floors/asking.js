// The requests for the floors of the rows: each like its row, in the same way and of the same files. floors/server.js,
// floors/library.js and floors/listing.js say what each floor leaves out.
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { makeFileName, measurePipelined, once, onSession, ours, run, runWith, state } from "../asking.js";
import { Child, runFresh } from "../measure.js";
import { env, home, library, node } from "../options.js";

const pathOf = (name) => fileURLToPath(new URL(name, import.meta.url));
const server = (...args) => new Child(node, [pathOf("server.js"), ...args.map(String)], env);
const working = (...args) => once(server(...args), state(0), state(1));

/** Lengths of our replies by request. */
const lengths = new Map();
async function lengthOf(asked, ask) {
  const key = JSON.stringify(asked);
  if (!lengths.has(key)) lengths.set(key, await ask((_, child) => child.bytes));
  return lengths.get(key);
}

const lengthOn = (...asked) => lengthOf(asked, (what) => onSession(...asked, what));

/** A reply that only has our length, for each of a thousand outstanding requests. */
export const sendingMany = (line) => [
  "as many bytes",
  async () => {
    const length = await lengthOf(line(1), (what) => once(ours("--no-session"), line(0), line(1), what));
    return measurePipelined(server("send", length), line);
  },
];

/** A reply that only has our length, after as many bytes were read from the end of a file, or all of it. */
export const sending = (file, method, { params, isWhole = false } = {}) => [
  "as many bytes read and sent",
  async () => {
    const length = await lengthOn(file, method, params);
    return working("send", length, file, isWhole ? statSync(file).size : length);
  },
];

/** The same of a server that was asked before and needs no file any more. */
export const sendingAgain = (file, method, params) => [
  "as many bytes",
  async () => {
    const length = await lengthOn(file, method, params);
    return runWith(server("send", length), async (child) => {
      for (let n = 0; n < 4; n++) await child.ask([state(n)]);
      return child.ask([state(9)]);
    });
  },
];

export const opening = (file) => ["its bytes read, line ends found", () => working("open", file)];

/** The state folder's cache of an opened session file. */
export const openingAgain = (file) => [
  "what is kept, and its sum",
  () => {
    const { dev, ino } = statSync(file);
    return working("kept", join(home, "state", "spines", `${dev}-${ino}.spine`));
  },
];

/** Milliseconds for what a container keeps of itself. */
export const openingContainer = (container) => working("kept", join(container, "index-snapshot.bin"));

/** One fdatasync for each 64 KB that the pipe gives. */
export const appendingMany = (line, total) => [
  "one fdatasync together",
  async () => {
    const length = await lengthOf("append", (what) => once(ours("--session", makeFileName()), line(0), line(1), what));
    return runWith(server("append", makeFileName(), length), async (child) => {
      await child.ask([line("warm")]);
      return total / (await child.keepAsking(total, 1000, line));
    });
  },
];

/** Milliseconds of a migration of a session file to a container of so many bytes. */
export const migrating = (file, count, bytes) =>
  working("migrate", file, Math.round((bytes - statSync(file).size) / count)).finally(() => rmSync(`${file}.floor`));

/** A library for bench/worker.js that does no more than it must. */
export const plain = pathOf("library.js");

/** The library's own text and the modules of Node that it imports, inside a function that is never called. */
export const importing = (file) => [
  "its text, not run",
  () => {
    const text = readFileSync(library, "utf8");
    const imports = /^import [^;]*;$/gm;
    const body = text.replace(imports, "").replace(/^export \{[^}]*\};$/m, "");
    const unused = join(home, "unused.mjs");
    writeFileSync(unused, `${text.match(imports).join("\n")}\nexport function unused() {\n${body}\n}\n`);
    return run("import", file, "ms", unused);
  },
];

/** A list of the sessions in a home. */
export async function measureListingFloor(home) {
  const database = join(home, "listing.db");
  const found = await runFresh(node, [pathOf("listing.js"), join(home, ".pi", "agent", "sessions"), database], env);
  for (const end of ["", "-wal", "-shm"]) rmSync(`${database}${end}`, { force: true });
  return found.ms;
}
