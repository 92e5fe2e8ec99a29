// `npm run demo`: drives the built server over stdin and stdout on copies of the example sessions, and shows it.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client, isolatedEnvironment } from "./client.js";

const EXAMPLES = ["branches.jsonl", "old-v1.jsonl"];
const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const hashOf = (path) => createHash("sha256").update(readFileSync(path)).digest("hex");

// --- what a person sees ------------------------------------------------------------------------------------------

const coloured = process.stdout.isTTY && !process.env.NO_COLOR;
const paint = (code) => (text) => (coloured ? `\u001b[${code}m${text}\u001b[0m` : text);
const bold = paint("1");
const dim = paint("2");
const green = paint("32");
const yellow = paint("33");
const cyan = paint("36");
const red = paint("31");

const print = (text = "") => process.stdout.write(`${text}\n`);
let headings = 0;
const heading = (text) => print(`\n${bold(`${++headings}. ${text}`)}`);
const field = (name, value) => print(`   ${name.padEnd(18)} ${value}`);
const short = (text, length = 64) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** One line for an event: what is particular to it, without the members that every event carries. */
function showEvent(name, { sessionId: _id, leafId: _leaf, seq, ...payload }) {
  const members = Object.entries(payload).map(([member, value]) => {
    if (/File$/.test(member)) return `${member} ${value === null ? "null" : fileName(value)}`;
    if (Array.isArray(value)) return `${member} ${value.join(", ")}`;
    return `${member} ${typeof value === "object" && value !== null ? `${value.type} ${value.id}` : value}`;
  });
  print(`   ${cyan("event")} ${seq} ${name}: ${members.join(", ")}`);
}

/** A file's name, without the middle of a long one. */
function fileName(path) {
  const name = basename(path);
  return name.length > 30 ? `${name.slice(0, 10)}…${name.slice(-12)}` : name;
}

/** The flat tree as indented text: what follows in a straight line stays at one depth, branches go one deeper. */
function drawTree({ nodes, leafId }) {
  const children = new Map();
  for (const node of nodes) children.set(node.parentId, [...(children.get(node.parentId) ?? []), node]);
  const draw = (node, depth) => {
    let left = 0;
    for (let at = node; at; ) {
      const below = children.get(at.id) ?? [];
      // Answers and tool results in the middle of a line of work are counted; everything else is shown.
      const shown = at === node || at.role === "user" || at.label || at.id === leafId || below.length > 1 || isTurn(at);
      if (shown) {
        if (left > 0) print(`   ${"  ".repeat(depth)}${dim(`: ${left} more`)}`);
        left = 0;
        print(`   ${"  ".repeat(depth)}${lineOf(at, leafId)}`);
      } else left++;
      if (below.length > 1) {
        for (const child of below) draw(child, depth + 1);
        return;
      }
      at = below[0];
      if (!at && left > 0) print(`   ${"  ".repeat(depth)}${dim(`: ${left} more`)}`);
    }
  };
  for (const root of children.get(null) ?? []) draw(root, 0);
}

const isTurn = ({ type }) => type === "compaction" || type === "branch_summary" || type === "custom_message";

function lineOf({ id, type, role, preview, label }, leafId) {
  const what = role ?? type;
  const text = preview === undefined ? "" : ` ${short(preview, 56)}`;
  const marks = `${label === undefined ? "" : yellow(` [${label}]`)}${id === leafId ? green(" <- leaf") : ""}`;
  return `${dim(id)} ${what}${text}${marks}`;
}

// --- the demonstration -------------------------------------------------------------------------------------------

const checks = [];
const check = (sentence, holds) => checks.push({ sentence, holds });

/** A server that does not answer within this many milliseconds has failed. */
const PATIENCE = 30_000;

async function demonstrate(folder) {
  const sessions = join(folder, "sessions");
  mkdirSync(sessions);
  for (const name of EXAMPLES) copyFileSync(here(name), join(sessions, name));
  const branches = join(sessions, "branches.jsonl");
  const server = new Client(["--framing", "lines", "--dialect", "jsonrpc", "--session", branches], {
    env: isolatedEnvironment(folder),
    cwd: folder,
    onEvent: showEvent,
  });
  /** Sends a request and shows it. The events it causes follow its reply, so they are here before the next reply. */
  const ask = async (method, params = {}) => {
    print(`   ${green("->")} ${method} ${dim(short(JSON.stringify(params), 90))}`);
    const result = await server.request(method, params);
    if (!method.startsWith("get_")) await server.request("get_state");
    return result;
  };
  const patience = setTimeout(() => server.kill(), PATIENCE);
  try {
    await showForks(ask, branches);
    await showChanges(ask);
    await showOldVersion(ask, sessions);
    heading("End of input");
    const status = await server.close();
    field("exit status", status);
    check("the server ends with status 0", status === 0);
    check("the server says nothing on stderr", server.complaints === "");
  } finally {
    clearTimeout(patience);
    server.kill();
  }
}

async function showForks(ask, branches) {
  heading("Open a session: examples/branches.jsonl, copied to a temporary folder");
  showState(await ask("get_state"));
  const original = hashOf(branches);

  heading("Where a fork can begin");
  const { messages } = await ask("get_fork_messages");
  for (const { entryId, text } of messages) print(`   ${dim(entryId)} ${short(text)}`);

  heading("Fork: a new session with everything before one of these messages");
  const question = messages.at(-1);
  const fork = await ask("fork", { entryId: question.entryId });
  field("text to edit", fork.text);
  field("new file", fileName(fork.sessionFile));
  check("the fork answers with the text of the message", fork.text === question.text);
  check("the fork leaves its source alone", hashOf(branches) === original);

  heading("Back to the first session, and branch inside it");
  await ask("switch_session", { sessionPath: branches });
  const other = messages.find(({ text }) => text.startsWith("Start with the export"));
  const branch = await ask("branch", {
    entryId: other.entryId,
    position: "before",
    summary: { summary: "The config file is done and committed; the export was taken up again from here." },
    label: "second thoughts",
  });
  field("leaf", branch.leafId);
  field("text to edit", branch.text);
  check("the branch answers with the text of the message", branch.text === other.text);
}

async function showChanges(ask) {
  heading("Append a turn: a question, an answer with a tool call, its result, an answer");
  const appended = await ask("append", { entries: turn() });
  field("entries", appended.entryIds.join(", "));
  check("the last of the appended entries is the leaf", appended.leafId === appended.entryIds.at(-1));

  heading("Compact: a summary stands for everything before the turn");
  const before = await ask("get_messages");
  const compacted = await ask("compact_append", {
    summary: "notes-app has search, tags and a config file. Next: dates in the Markdown export.",
    firstKeptEntryId: appended.entryIds[0],
    tokensBefore: 9200,
  });
  const { messages } = await ask("get_messages");
  field("messages before", before.messages.length);
  field("messages now", `${messages.length}: ${messages.map(({ role }) => role).join(", ")}`);
  check("the context begins with the summary", messages[0].role === "compactionSummary");

  heading("The tree");
  const tree = await ask("get_tree");
  drawTree(tree);
  check("the compaction is the leaf of the tree", tree.leafId === compacted.entryId);
}

async function showOldVersion(ask, sessions) {
  heading("A session of format version 1: examples/old-v1.jsonl");
  const old = join(sessions, "old-v1.jsonl");
  const original = hashOf(old);
  await ask("switch_session", { sessionPath: old });
  showState(await ask("get_state"));
  check("reading an old file does not change it", hashOf(old) === original);
  print("   The first append writes it in version 3 and keeps the original beside it.");
  await ask("append", {
    entries: [{ type: "message", message: { role: "user", content: "Is this still readable?" } }],
  });
  const { version } = await ask("get_state");
  field("version now", version);
  for (const name of readdirSync(sessions).filter((name) => name.startsWith("old-v1")))
    field("file", `${name}  ${firstLine(join(sessions, name))}`);
  check("the file is of version 3 now", version === 3);
  check("the original is kept byte for byte", hashOf(`${old}.v1.bak`) === original);
}

function showState(state) {
  field("session", state.sessionName ?? "(no name)");
  field("file", basename(state.sessionFile));
  field("format version", state.version);
  field("entries", `${state.entryCount}, ${state.branchCount} with more than one child`);
  field("context", `${state.messageCount} messages`);
  field("leaf", state.leafId);
  field("model, level", `${state.model.provider}/${state.model.id}, ${state.thinkingLevel}`);
}

function turn() {
  const call = { type: "toolCall", id: "call_demo", name: "bash", arguments: { command: "notes export | head -1" } };
  const usage = {
    input: 900,
    output: 40,
    cacheRead: 0,
    cacheWrite: 0,
    totalTokens: 940,
    cost: { input: 0.0009, output: 0.0002, cacheRead: 0, cacheWrite: 0, total: 0.0011 },
  };
  const speaker = { api: "anthropic-messages", provider: "anthropic", model: "claude-haiku-4-5", usage };
  return [
    { role: "user", content: "Put the date of each note into the export." },
    { role: "assistant", content: [call], ...speaker, stopReason: "toolUse", timestamp: Date.now() },
    {
      role: "toolResult",
      toolCallId: "call_demo",
      toolName: "bash",
      content: [{ type: "text", text: "- 2026-03-02 water the tomatoes #garden" }],
      isError: false,
    },
    {
      role: "assistant",
      content: [{ type: "text", text: "Each line has its date." }],
      ...speaker,
      stopReason: "stop",
      timestamp: Date.now(),
    },
  ].map((message) => ({ type: "message", message }));
}

function firstLine(path) {
  const [line] = readFileSync(path, "utf8").split("\n", 1);
  return dim(short(line, 60));
}

// --- running it --------------------------------------------------------------------------------------------------

const hashesBefore = EXAMPLES.map((name) => hashOf(here(name)));
const folder = mkdtempSync(join(tmpdir(), "pi-session-demo-"));
try {
  await demonstrate(folder);
} catch (error) {
  check(`it runs to its end: ${error.message}`, false);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
const unchanged = EXAMPLES.every((name, i) => hashOf(here(name)) === hashesBefore[i]);

const failed = checks.filter(({ holds }) => !holds);
for (const { sentence } of failed) print(red(`\nFailed: ${sentence}`));
if (!unchanged) print(red("\nFailed: the example files were changed."));
else print(`\n${green("The example files are unchanged")} (same SHA-256 before and after).`);
process.exitCode = failed.length === 0 && unchanged ? 0 : 1;
