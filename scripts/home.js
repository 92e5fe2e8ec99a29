/**
 * Makes a home of generated sessions, to try the command line as a person with many of them would:
 *
 *   node scripts/home.js <folder> [--sessions 500] [--now 2026-01-24T16:00:00Z] [--seed 1]
 *
 * The folder, which must be empty or new, becomes HOME: projects in `projects`, sessions where Pi keeps them, with forks,
 * archives, damage, Session Store V2 and files that were left over. Archiving and migrating is done by the built program.
 */
import { spawnSync } from "node:child_process";
import { appendFileSync, copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { randomFrom } from "../bench/random.js";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    sessions: { type: "string", default: "500" },
    now: { type: "string", default: new Date().toISOString() },
    seed: { type: "string", default: "1" },
  },
});
const PROGRAM = fileURLToPath(new URL("../dist/bin/pi-session-server.js", import.meta.url));
const DAY = 24 * 60 * 60 * 1000;
const NAMES = ["api", "web", "store", "docs", "infra", "mobile", "billing", "scratch"];

const home = resolve(positionals[0] ?? fail("Name the folder to make."));
const now = Date.parse(options.now);
const wanted = Number(options.sessions);
if (!(wanted >= 50)) fail("--sessions takes a number of 50 or more.");
if (Number.isNaN(now)) fail("--now takes a time, such as 2026-01-24T16:00:00Z.");
mkdirSync(home, { recursive: true });
if (readdirSync(home).length > 0) fail(`${home} is not empty.`);

const projects = NAMES.map((name) => join(home, "projects", name));
for (const folder of projects) mkdirSync(join(folder, "src"), { recursive: true });

function fail(sentence) {
  console.error(sentence);
  process.exit(2);
}

// --- chance ----------------------------------------------------------------------------------------------------------

const random = randomFrom(Number(options.seed));
const below = (limit) => Math.floor(random() * limit);
const one = (list) => list[below(list.length)];
const hex = (digits) => Array.from({ length: digits }, () => below(16).toString(16)).join("");

// --- what is said ----------------------------------------------------------------------------------------------------

const VERBS = ["Fix", "Explain", "Rewrite", "Test", "Speed up", "Review", "Document", "Simplify"];
const THINGS = [
  "the parser",
  "the login page",
  "pagination",
  "the retry loop",
  "the cache",
  "error texts",
  "the index",
];
const WHYS = ["it fails on Windows", "it is slow", "users complain", "the build is red", "nobody understands it"];
const FILES = ["src/parser.ts", "src/login.tsx", "src/page.ts", "src/retry.ts", "src/cache.ts", "README.md"];
const COMMANDS = ["npm test", "npm run build", "git status", "rg TODO src", "node --version", "git diff --stat"];
const MODELS = [
  { provider: "anthropic", model: "claude-sonnet-4-5", input: 3, output: 15 },
  { provider: "openai", model: "gpt-5.2-codex", input: 1.25, output: 10 },
  { provider: "google", model: "gemini-3-pro", input: 2, output: 12 },
  // Nobody knows what it costs.
  { provider: "local", model: "qwen3-coder" },
];

/** A session while it is made: lines of entries, each a while after the one before. */
class Made {
  constructor({ cwd, at, parent, model = one(MODELS), name }) {
    this.id = `01991f6e-${hex(4)}-7${hex(3)}-8${hex(3)}-${hex(12)}`;
    // The beginning differs, so that eight characters name a session.
    this.id = hex(8) + this.id.slice(8);
    this.cwd = cwd;
    this.at = at;
    this.model = model;
    this.leaf = null;
    this.lines = [];
    this.calls = 0;
    const header = { type: "session", version: 3, id: this.id, timestamp: new Date(at).toISOString(), cwd };
    this.header = JSON.stringify(parent === undefined ? header : { ...header, parentSession: parent.file });
    const folder = join(home, ".pi/agent/sessions", `--${cwd.replace(/^[/\\]/, "").replace(/[/\\:]/g, "-")}--`);
    mkdirSync(folder, { recursive: true });
    this.file = join(folder, `${new Date(at).toISOString().replace(/[:.]/g, "-")}_${this.id}.jsonl`);
    if (parent) for (const line of parent.lines) this.lines.push(line);
    this.leaf = parent?.leaf ?? null;
    if (name !== undefined) this.add({ type: "session_info", name });
  }
  add(entry) {
    this.at += 1000 + below(60_000);
    const id = hex(8);
    const timestamp = new Date(this.at).toISOString();
    this.lines.push(JSON.stringify({ ...entry, id, parentId: this.leaf, timestamp }));
    this.leaf = id;
    return id;
  }
  message(message) {
    return this.add({ type: "message", message: { ...message, timestamp: this.at } });
  }
  user(text) {
    return this.message({ role: "user", content: text });
  }
  assistant(text, calls = [], scale = 1) {
    const { provider, model, input: inputPrice, output: outputPrice } = this.model;
    const [input, output] = [Math.round((500 + below(20_000)) * scale), Math.round((50 + below(2000)) * scale)];
    const total = inputPrice === undefined ? 0 : (input * inputPrice + output * outputPrice) / 1e6;
    const usage = {
      input,
      output,
      cacheRead: 0,
      cacheWrite: 0,
      totalTokens: input + output,
      cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total },
    };
    const content = [...(text === "" ? [] : [{ type: "text", text }]), ...calls];
    const stopReason = calls.length > 0 ? "toolUse" : "stop";
    return this.message({ role: "assistant", content, provider, model, api: "messages", usage, stopReason });
  }
  /** A call of a tool, and its result. */
  call(name, args, output, isError = false) {
    const id = `call_${++this.calls}_${hex(4)}`;
    this.assistant("", [{ type: "toolCall", id, name, arguments: args }]);
    return this.message({
      role: "toolResult",
      toolCallId: id,
      toolName: name,
      content: [{ type: "text", text: output }],
      isError,
    });
  }
  /** Some turns of usual work. */
  work(turns) {
    for (let turn = 0; turn < turns; turn++) {
      this.user(`${one(VERBS)} ${one(THINGS)}: ${one(WHYS)}.`);
      const file = one(FILES);
      if (random() < 0.7) this.call("read", { path: file }, `export const ${hex(4)} = ${below(100)};\n`.repeat(5));
      if (random() < 0.5) this.call("bash", { command: one(COMMANDS) }, `${below(200)} passed\n`, random() < 0.1);
      if (random() < 0.4) this.call("edit", { path: file, oldText: "a", newText: "b" }, `Edited ${file}.`);
      this.assistant(`I looked at ${file} and changed what was wrong: ${one(WHYS)}.`);
    }
    return this;
  }
  write() {
    writeFileSync(this.file, `${[this.header, ...this.lines].join("\n")}\n`);
    return this;
  }
}

const made = [];
const make = (given, build) => {
  const session = new Made(given);
  build(session);
  made.push(session.write());
  return session;
};

// --- the scenes ------------------------------------------------------------------------------------------------------

const [api, web, store, docs, infra, mobile, billing, scratch] = projects;
const hours = (n) => now - n * 60 * 60 * 1000;
const days = (n) => now - n * DAY;

make({ cwd: api, at: days(12), name: "Move the users table" }, (s) => {
  s.user("The users table needs a new column. Write the migration and run it.");
  s.call("write", { path: "migrations/014.sql", content: "ALTER TABLE users ADD COLUMN locale text;" }, "Written.");
  s.call("bash", { command: "npm run migrate -- --env staging" }, "1 migration applied in 412 ms\n");
  s.assistant("The migration is applied on staging.");
});
for (const [cwd, age, tool] of [
  [store, 3, "edit"],
  [store, 9, "write"],
  [api, 5, "read"],
  [web, 100, "edit"],
])
  make({ cwd, at: days(age) }, (s) => {
    s.user("The store loses the last write when two tabs are open.");
    s.call("read", { path: "src/store.ts" }, "export class Store {}\n");
    if (tool === "edit") s.call("edit", { path: "src/store.ts", oldText: "sync", newText: "async" }, "Edited.");
    if (tool === "write") s.call("write", { path: join(cwd, "src/store.ts"), content: "export {};\n" }, "Written.");
    s.assistant("The write is awaited now.");
  });
make({ cwd: web, at: days(1), name: "Dark mode" }, (s) => {
  s.user("Add a dark mode.");
  s.call("edit", { path: "src/theme.css", oldText: "white", newText: "var(--back)" }, "Edited.");
  s.assistant("Dark mode follows the system now. The chart still has light colours; shall I go on with it?");
});
const original = make({ cwd: store, at: days(6), name: "Faster sync" }, (s) => {
  s.user("Synchronising takes 40 seconds. Make it fast.");
  s.call("bash", { command: "node bench/sync.js" }, "40.2 s\n");
});
const common = { lines: [...original.lines], leaf: original.leaf, file: original.file };
appendTo(original, (s) => {
  s.call("edit", { path: "src/sync.ts", oldText: "await all", newText: "batch(100)" }, "Edited.");
  s.assistant("With batches of 100 it takes 9 seconds.");
});
make({ cwd: store, at: days(5), parent: common, name: "Faster sync, the other approach" }, (s) => {
  s.user("Try the other approach: stream the changes instead of batching them.");
  s.call("edit", { path: "src/stream.ts", oldText: "push", newText: "pipe" }, "Edited.");
  s.call("bash", { command: "node bench/sync.js" }, "2.1 s\n");
  s.assistant("Streaming takes 2.1 seconds.");
});
for (const [nth, text] of ["Why is the login page blank?", "Draft the release notes.", "Rename the flag."].entries())
  make({ cwd: [web, docs, infra][nth], at: hours(nth + 1) }, (s) => {
    s.user(text);
    s.assistant("Done.");
  });
make({ cwd: infra, at: days(40) }, (s) => {
  s.user("Raise the timeout of the health check, please.");
  s.assistant("It waits 30 seconds now.");
});
make({ cwd: infra, at: Date.parse(`${new Date(now).getUTCFullYear()}-02-10T09:00:00Z`) }, (s) => {
  s.user("Why does the deployment fail?");
  s.call("bash", { command: "kubectl logs api-0" }, "Error: timeout after 5000 ms\n    at connect\n", true);
  s.assistant("The database answers too late.");
});
make({ cwd: billing, at: days(70), model: MODELS[0], name: "The big refactoring" }, (s) => {
  s.user("Rewrite the invoices from scratch.");
  for (let n = 0; n < 40; n++) s.assistant(`Step ${n + 1} is done.`, [], 20);
});
make({ cwd: api, at: days(2), name: "Three questions" }, (s) => {
  s.user("How are sessions stored?");
  s.assistant("In the table sessions.");
  s.user("How long are they kept?");
  s.assistant("For 30 days.");
  s.user("Change it to 60 days and tell me what else depends on it.");
  s.assistant("Changed. The clean-up job depends on it.");
});
make({ cwd: mobile, at: days(4), name: "Two ways" }, (s) => {
  const asked = s.user("Which navigation library?");
  s.assistant("Let us try the stack of the platform.");
  s.call("edit", { path: "src/nav.tsx", oldText: "x", newText: "Stack" }, "Edited.");
  s.assistant("It works, but it is slow on old phones.");
  s.leaf = asked;
  s.assistant("Let us try the router.");
  s.call("edit", { path: "src/router.tsx", oldText: "x", newText: "Router" }, "Edited.");
  s.assistant("It works and is fast.");
});
make({ cwd: scratch, at: hours(0.3), name: "The last one" }, (s) => {
  s.user("My key is sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789 and does not work. Why?");
  s.call("bash", { command: "echo $ANTHROPIC_API_KEY | wc -c" }, "52\n");
  s.assistant("It was revoked. Make a new one and put it into the keychain.");
});
const bushy = make({ cwd: scratch, at: days(8), name: "A thousand branches" }, (s) => {
  const begun = s.user("Try as many names as you can.");
  for (let n = 0; n < 1000; n++) {
    if (n % 3 !== 0) s.leaf = one([begun, s.leaf]);
    s.assistant(`What about ${hex(5)}?`);
  }
});

/** Goes on with a session that was written. */
function appendTo(session, build) {
  build(session);
  session.write();
}

// --- the many --------------------------------------------------------------------------------------------------------

while (made.length < wanted) {
  const age = random() ** 2 * 300 + 0.5;
  const name = random() < 0.4 ? `${one(VERBS)} ${one(THINGS)}` : undefined;
  const isFork = random() < 0.1;
  const parent = isFork ? made[below(made.length)] : undefined;
  if (parent === bushy) continue;
  const at = parent ? Math.min(now - 1000, parent.at + below(DAY)) : days(age);
  make({ cwd: parent?.cwd ?? one(projects), at, parent, name }, (s) => s.work(1 + below(8)));
}

// --- damage, archives, V2, and what is left over ---------------------------------------------------------------------

const usual = made.slice(-Math.floor(wanted / 2));
const take = (count) => usual.splice(0, count);

for (const session of take(3)) {
  const lines = readFileSync(session.file, "utf8").split("\n");
  lines[2] = `${lines[2].slice(0, 40)}\0\0\0${lines[2].slice(60)}`;
  writeFileSync(session.file, lines.join("\n"));
}
for (const session of take(1)) appendFileSync(session.file, '{"type":"message","id":"torn');

const environment = {
  PATH: process.env.PATH,
  HOME: home,
  PI_SESSION_SERVER_STATE_DIR: join(home, ".local/state/pi-session-server"),
  ...(process.env.XDG_RUNTIME_DIR ? { XDG_RUNTIME_DIR: process.env.XDG_RUNTIME_DIR } : {}),
};
function run(...args) {
  const { status, stderr } = spawnSync(process.execPath, [PROGRAM, ...args], { env: environment, cwd: home });
  if (status !== 0) throw new Error(`pi-session-server ${args.join(" ")} failed: ${stderr}`);
}
for (const session of take(5)) run("archive", session.file);
for (const session of take(4)) run("migrate", session.file, "--apply");
for (const session of take(3)) copyFileSync(session.file, `${session.file}.v2.bak`);

console.log(`${made.length} sessions in ${projects.length} projects. Use it with:

  export HOME=${home} PI_SESSION_SERVER_STATE_DIR=${environment.PI_SESSION_SERVER_STATE_DIR}`);
