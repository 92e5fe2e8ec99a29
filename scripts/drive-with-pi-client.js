// Drives the built server with Pi's own client class, unmodified, on a copy of an example session. Not part of the
// tests: Pi is large. Run `npm run build` before.
//
//   node scripts/drive-with-pi-client.js                  installs Pi 0.73.1 into a temporary folder
//   node scripts/drive-with-pi-client.js --pi <folder>    uses the package that is unpacked or installed there
//   node scripts/drive-with-pi-client.js --node <program> --pi15 <folder>
//                                                         also the client of Pi 1.5.2, under that Node (22.19 or newer)
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const SELF = fileURLToPath(import.meta.url);
const PROGRAM = fileURLToPath(new URL("../dist/bin/pi-session-server.js", import.meta.url));
const EXAMPLE = fileURLToPath(new URL("../examples/branches.jsonl", import.meta.url));

const { values: options } = parseArgs({
  options: {
    pi: { type: "string" },
    pi15: { type: "string" },
    node: { type: "string" },
    // Which Pi this process runs: set when the script calls itself.
    generation: { type: "string" },
  },
});

const GENERATIONS = {
  0.73: { name: "@mariozechner/pi-coding-agent@0.73.1", entry: "dist/index.js", given: options.pi },
  1.5: { name: "@earendil-works/pi-coding-agent@1.5.2", entry: "dist/bundle/index.js", given: options.pi15 },
};

function installed({ name, entry, given }, folder) {
  const bare = name.slice(0, name.lastIndexOf("@"));
  if (given === undefined) {
    console.log(`installing ${name} (about 200 MB)`);
    writeFileSync(join(folder, "package.json"), "{}");
    execFileSync("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", name], {
      cwd: folder,
      stdio: "inherit",
    });
  }
  const found = [given ?? folder, join(given ?? folder, "package"), join(given ?? folder, "node_modules", bare)].find(
    (at) => existsSync(join(at, entry)),
  );
  if (!found) throw new Error(`There is no ${bare} at ${given ?? folder}.`);
  return resolve(found, entry);
}

// --- what is driven ----------------------------------------------------------------------------------------------

let calls = 0;
let wrong = 0;

/** Calls the client, prints a line, and lets `check` look at what came back. */
async function call(client, method, given, check) {
  calls++;
  const line = `${method}(${given.map((value) => JSON.stringify(value)).join(", ")})`.slice(0, 72);
  const start = performance.now();
  try {
    const result = await client[method](...given);
    const took = `${(performance.now() - start).toFixed(1)} ms`;
    await check(result);
    console.log(`  ok    ${line.padEnd(73)} ${took.padStart(9)}`);
    return result;
  } catch (error) {
    wrong++;
    console.log(`  WRONG ${line}: ${error instanceof Error ? error.message : error}`);
    return undefined;
  }
}

const linesOf = (file) =>
  readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

const textOf = ({ content }) =>
  typeof content === "string"
    ? content
    : content
        .filter(({ type }) => type === "text")
        .map(({ text }) => text)
        .join("");

/** What Pi's types promise of a state, whatever the session is. */
function checkState(state, { model, ...expected }) {
  for (const member of ["isStreaming", "isCompacting", "autoCompactionEnabled"])
    assert.equal(typeof state[member], "boolean", member);
  for (const member of ["messageCount", "pendingMessageCount"]) assert.equal(typeof state[member], "number", member);
  for (const member of ["sessionId", "thinkingLevel", "sessionFile"])
    assert.equal(typeof state[member], "string", member);
  for (const member of ["steeringMode", "followUpMode"])
    assert.ok(["all", "one-at-a-time"].includes(state[member]), member);
  assert.ok(existsSync(dirname(state.sessionFile)), "the folder of sessionFile exists");
  for (const [member, value] of Object.entries(expected)) assert.deepEqual(state[member], value, member);
  assert.equal(state.model?.id, model);
  if (state.model) assert.ok(state.model.contextWindow > 0, "model.contextWindow");
}

async function drive(RpcClient, folder) {
  const home = join(folder, "home");
  const cwd = join(folder, "project");
  for (const made of [home, cwd]) mkdirSync(made);
  const file = join(home, "branches.jsonl");
  copyFileSync(EXAMPLE, file);
  const [header, ...entries] = linesOf(file);
  const messages = entries.filter(({ type }) => type === "message").map(({ message }) => message);
  const saidByUser = entries.filter(({ message }) => message?.role === "user");
  const last = saidByUser.at(-1);
  const lastAnswer = messages.filter(({ role }) => role === "assistant").at(-1);

  // The environment is this process's, which has been cleared of what would lead elsewhere.
  const client = new RpcClient({ cliPath: PROGRAM, cwd, env: { HOME: home, XDG_STATE_HOME: join(home, "state") } });
  const events = [];
  client.onEvent((event) => events.push(event));
  const does = (method, given, check = () => {}) => call(client, method, given, check);
  const state = (expected) => does("getState", [], (found) => checkState(found, expected));
  const nothing = (result) => assert.equal(result ?? undefined, undefined);

  await does("start", [], nothing);
  const begun = await state({ messageCount: 0, thinkingLevel: "off", sessionName: undefined });
  await does("getMessages", [], (found) => assert.deepEqual(found, []));
  await does("getLastAssistantText", [], (found) => assert.equal(found ?? null, null));

  await does("switchSession", [file], ({ cancelled }) => assert.equal(cancelled, false));
  const opened = {
    sessionId: header.id,
    sessionFile: file,
    sessionName: "Notes app: search and tags",
    thinkingLevel: "high",
    model: "claude-haiku-4-5",
  };
  const before = await state(opened);
  await does("getMessages", [], (found) => {
    assert.equal(found.length, before?.messageCount);
    assert.equal(found[0].role, "compactionSummary");
    assert.deepEqual(found.at(-1), messages.at(-1));
  });
  await does("getForkMessages", [], (found) =>
    assert.deepEqual(
      found,
      saidByUser.map(({ id, message }) => ({ entryId: id, text: textOf(message) })),
    ),
  );
  await does("getSessionStats", [], (found) => {
    const count = (role) => messages.filter((message) => message.role === role).length;
    assert.equal(found.sessionFile, file);
    assert.equal(found.sessionId, header.id);
    assert.equal(found.userMessages, count("user"));
    assert.equal(found.assistantMessages, count("assistant"));
    assert.equal(found.toolResults, count("toolResult"));
    const { input, output, cacheRead, cacheWrite, total } = found.tokens;
    assert.equal(total, input + output + cacheRead + cacheWrite);
    assert.ok(found.cost > 0);
  });
  await does("getLastAssistantText", [], (found) => assert.equal(found, textOf(lastAnswer)));
  const page = join(home, "page.html");
  await does("exportHtml", [page], ({ path }) => {
    assert.equal(path, page);
    assert.match(readFileSync(page, "utf8"), /^<!doctype html>/i);
  });
  await does("getCommands", [], (found) => assert.deepEqual(found, []));
  await call({ unchanged: linesOf }, "unchanged", [file], (found) => assert.deepEqual(found, [header, ...entries]));

  await does("setModel", ["openai", "gpt-4o"], (found) => {
    assert.equal(found.id, "gpt-4o");
    assert.equal(found.provider, "openai");
  });
  await does("setThinkingLevel", ["low"], nothing);
  await does("setSessionName", ["Driven by Pi's client"], (result) => {
    nothing(result);
    const { type, name } = linesOf(file).at(-1);
    assert.deepEqual({ type, name }, { type: "session_info", name: "Driven by Pi's client" });
  });
  await state({ ...opened, sessionName: "Driven by Pi's client", thinkingLevel: "low", model: "gpt-4o" });

  await does("fork", [last.id], ({ text, cancelled }) =>
    assert.deepEqual({ text, cancelled }, { text: textOf(last.message), cancelled: false }),
  );
  const forked = await does("getState", [], (found) => {
    checkState(found, { thinkingLevel: "high", model: "claude-haiku-4-5" });
    assert.notEqual(found.sessionId, header.id);
    assert.equal(linesOf(found.sessionFile)[0].parentSession, file);
  });
  await does("getMessages", [], (found) => {
    assert.equal(found.length, forked?.messageCount);
    assert.ok(found.every((message) => message.role !== "user" || textOf(message) !== textOf(last.message)));
  });
  // A call that is to fail: the client shows the sentence.
  await call(
    { refused: (id) => assert.rejects(client.fork(id), /Entry not found: nowhere/) },
    "refused",
    ["nowhere"],
    nothing,
  );

  await does("newSession", [file], ({ cancelled }) => assert.equal(cancelled, false));
  await does("getState", [], (found) => {
    checkState(found, { messageCount: 0, sessionName: undefined, parentSession: file });
    assert.ok(![begun?.sessionId, forked?.sessionId].includes(found.sessionId), "an id of its own");
  });
  await does("getForkMessages", [], (found) => assert.deepEqual(found, []));
  // Both at once, as a client does that does not wait.
  await Promise.all([
    does("switchSession", [file], ({ cancelled }) => assert.equal(cancelled, false)),
    state({ sessionId: header.id, sessionName: "Driven by Pi's client", model: "gpt-4o" }),
    does("getMessages", [], (found) => assert.equal(found.length, before?.messageCount)),
  ]);
  if (typeof client.getEntries === "function") {
    await does("getEntries", [entries.at(-1).id], (found) => assert.equal(found.entries.length, 3));
    await does("getTree", [], (found) => assert.equal(found.leafId, linesOf(file).at(-1).id));
    await does("clearQueue", [], (found) => assert.deepEqual(found, { steering: [], followUp: [] }));
  }

  const stopping = performance.now();
  await does("stop", [], () => assert.ok(performance.now() - stopping < 900, "it had to be killed"));
  await call({ quiet: () => client.getStderr() }, "quiet", [], (said) => {
    assert.equal(said, "");
    assert.deepEqual(events, []);
  });
}

// --- the run ---------------------------------------------------------------------------------------------------

async function run(generation) {
  const { name } = GENERATIONS[generation];
  const folder = mkdtempSync(join(tmpdir(), "drive-with-pi-client-"));
  try {
    const entry = installed(GENERATIONS[generation], folder);
    // Nothing of whoever runs this is to be found or left behind. The client starts what `node` names.
    process.env.HOME = join(folder, "home");
    process.env.PATH = `${dirname(process.execPath)}${delimiter}${process.env.PATH}`;
    for (const variable of ["PI_CODING_AGENT_DIR", "PI_SESSIONS_DIR", "PI_SESSION_SERVER_STATE_DIR"])
      delete process.env[variable];
    const { RpcClient } = await import(pathToFileURL(entry).href);
    console.log(`RpcClient of ${name} on Node ${process.versions.node}`);
    await drive(RpcClient, folder);
    console.log(`${name}: ${wrong === 0 ? "equal" : "DIFFERENT"}, ${calls} calls, ${wrong} wrong`);
    if (wrong > 0) process.exitCode = 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function main() {
  if (!existsSync(PROGRAM)) throw new Error("The server is not built. Run `npm run build` first.");
  if (options.generation !== undefined) return run(options.generation);
  await run("0.73");
  if (options.node === undefined) return;
  const passed = process.argv.slice(2);
  const { status } = spawnSync(options.node, [SELF, ...passed, "--generation", "1.5"], { stdio: "inherit" });
  if (status !== 0) process.exitCode = 1;
}

main().then(
  // Pi keeps timers running.
  () => process.exit(process.exitCode ?? 0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
