// Compares `prepare_compaction` with Pi's own preparation, on random sessions and on session files that are given:
//   node scripts/compare-compaction-with-pi.js [--pi <folder with node_modules>] [--sessions 400] [--seed 1] [file ...]
// Without --pi, Pi 0.73.1 is installed into a temporary folder. Intended differences: docs/pi-differences.md.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { Client, isolatedEnvironment } from "../examples/client.js";

const PACKAGE = "@mariozechner/pi-coding-agent";
const VERSION = "0.73.1";
/** Budgets for every session: nothing, little, much, Pi's default. */
const BUDGETS = [0, 30, 150, 600, 20_000];

/** So many places of each session are compared. */
const LEAVES = 8;

const { values: options, positionals: files } = parseArgs({
  allowPositionals: true,
  options: {
    pi: { type: "string" },
    sessions: { type: "string", default: "400" },
    seed: { type: "string", default: "1" },
  },
});

const folder = mkdtempSync(join(tmpdir(), "pi-session-server-compare-"));
try {
  process.exitCode = await main();
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function main() {
  const pi = await loadPi(options.pi ?? install());
  const project = join(folder, "project");
  mkdirSync(project);
  const client = new Client(["--no-session"], { env: isolatedEnvironment(folder), cwd: project });
  const tally = { compared: 0, equal: 0, intended: new Map(), different: 0 };
  for (const file of files) {
    const copy = join(folder, "given.jsonl");
    copyFileSync(file, copy);
    await compareSession(pi, client, file, copy, tally);
  }
  for (let n = 0; n < Number(options.sessions); n++) {
    const seed = Number(options.seed) + n;
    const path = join(folder, `${seed}.jsonl`);
    writeFileSync(path, randomSession(seed, pi));
    await compareSession(pi, client, `seed ${seed}`, path, tally);
  }
  await client.close();
  console.log(`${tally.compared} preparations compared, ${tally.equal} equal, ${tally.different} different`);
  for (const [why, count] of tally.intended) console.log(`  ${count} differ as intended: ${why}`);
  return tally.different === 0 ? 0 : 1;
}

/** Installs Pi as a user would, without running its scripts. */
function install() {
  execFileSync("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", `${PACKAGE}@${VERSION}`], {
    cwd: folder,
    stdio: ["ignore", "ignore", "inherit"],
  });
  return folder;
}

async function loadPi(where) {
  const load = (path) => import(pathToFileURL(resolve(where, "node_modules", PACKAGE, path)).href);
  const { prepareCompaction } = await load("dist/core/compaction/compaction.js");
  const { computeFileLists } = await load("dist/core/compaction/utils.js");
  const { SessionManager } = await load("dist/core/session-manager.js");
  return { prepareCompaction, computeFileLists, SessionManager };
}

/** Compares at the leaf and at some entries before it, with every budget. */
async function compareSession(pi, client, name, path, tally) {
  // Pi writes a file of an older version anew when it opens it; each side has its own copy.
  const theirs = `${path}.pi.jsonl`;
  copyFileSync(path, theirs);
  const branch = pi.SessionManager.open(theirs).getBranch();
  rmSync(theirs);
  await client.request("switch_session", { sessionPath: path });
  const { entries } = await client.request("get_path");
  const step = Math.ceil(entries.length / LEAVES);
  for (let length = entries.length; length > 0; length -= step) {
    await client.request("branch", { entryId: entries[length - 1].id });
    for (const keepRecentTokens of BUDGETS) {
      const prefix = { branch: branch.slice(0, length), entries: entries.slice(0, length) };
      const which = `${name}, entry ${length} of ${entries.length}, keep ${keepRecentTokens}`;
      await compareOne(pi, client, { which, ...prefix, keepRecentTokens }, tally);
    }
  }
}

async function compareOne(pi, client, { which, branch, entries, keepRecentTokens }, tally) {
  const prepared = pi.prepareCompaction(branch, { enabled: true, reserveTokens: 16_384, keepRecentTokens });
  const ours = await client.request("prepare_compaction", { keepRecentTokens });
  const expected = prepared && {
    // Ids of entries of the first version are made when it is read, by each in its own way; places are the same.
    firstKept: branch.findIndex(({ id }) => id === prepared.firstKeptEntryId),
    isSplitTurn: prepared.isSplitTurn,
    details: pi.computeFileLists(prepared.fileOps),
    previousSummary: prepared.previousSummary,
    messagesToSummarize: prepared.messagesToSummarize,
    turnPrefixMessages: prepared.turnPrefixMessages,
  };
  const answered = {
    firstKept: entries.findIndex(({ id }) => id === ours.firstKeptEntryId),
    isSplitTurn: ours.isSplitTurn,
    details: ours.details,
    previousSummary: ours.previousSummary,
    messagesToSummarize: ours.messagesToSummarize,
    turnPrefixMessages: ours.turnPrefixMessages,
  };
  tally.compared++;
  const differing = Object.keys(answered).filter((key) => !expected || !same(expected[key], answered[key]));
  if (differing.length === 0) {
    tally.equal++;
    return;
  }
  const why = intended(branch, prepared, keepRecentTokens, ours);
  if (why) {
    tally.intended.set(why, (tally.intended.get(why) ?? 0) + 1);
    return;
  }
  tally.different++;
  console.log(`${which}: ${differing.join(", ")}`);
  for (const key of differing) console.log(`  Pi ${shown(expected?.[key])}\n  we ${shown(answered[key])}`);
}

/** Why the two may differ here, or undefined. */
function intended(branch, prepared, keepRecentTokens, ours) {
  if (!prepared)
    return ours.messagesToSummarize.length === 0 ? "right after a compaction Pi prepares nothing" : undefined;
  if (!ours.shouldCompact) return undefined;
  const last = branch.findLastIndex(({ type, message }) => type === "message" && message.role !== "toolResult");
  const tail = branch.slice(last + 1).filter(({ type }) => type === "message");
  const tokens = tail.reduce((sum, { message }) => sum + Math.ceil(textLength(message.content) / 4), 0);
  if (tail.length > 0 && tokens >= keepRecentTokens)
    return "over the limit, and results at the end fill the budget: Pi keeps everything, we keep from their call on";
  return undefined;
}

function textLength(content) {
  return content.reduce((length, { text }) => length + (text?.length ?? 0), 0);
}

function same(a, b) {
  return JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
}

function shown(value) {
  return JSON.stringify(value)?.slice(0, 300);
}

/** The same value with its members in the order of their names. */
function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.keys(value)
      .filter((key) => value[key] !== undefined)
      .sort()
      .map((key) => [key, sorted(value[key])]),
  );
}

// --- random sessions -----------------------------------------------------------------------------------------------

/** The text of a session as agents write it: turns, parallel tools, notes, branches, and compactions that Pi prepared. */
function randomSession(seed, pi) {
  const random = randomOf(seed);
  const entries = [];
  let leaf = null;
  let time = Date.UTC(2026, 0, 24, 16);
  const pathTo = (id) => {
    const path = [];
    for (let at = id; at !== null; ) {
      const entry = entries.find((one) => one.id === at);
      path.unshift(entry);
      at = entry.parentId;
    }
    return path;
  };
  const add = (type, rest) => {
    const id = (0xa0000000 + entries.length).toString(16);
    time += 1000;
    entries.push({ type, id, parentId: leaf, timestamp: new Date(time).toISOString(), ...rest });
    leaf = id;
  };
  const message = (value) => add("message", { message: { ...value, timestamp: time } });
  const words = (most) => "lorem ipsum ".repeat(1 + random.int(most));
  const note = () =>
    random.pick([
      () => add("model_change", { provider: "anthropic", modelId: `model-${random.int(3)}` }),
      () => add("thinking_level_change", { thinkingLevel: random.pick(["off", "low", "high"]) }),
      () => add("custom", { customType: "state", data: random.int(9) }),
      () => add("label", { targetId: random.pick(entries)?.id ?? "none", label: "here" }),
      () => add("session_info", { name: "a name" }),
      () => add("custom_message", { customType: "note", content: words(20), display: true }),
      () =>
        add("branch_summary", {
          fromId: "none",
          summary: words(20),
          details: random.chance(0.5) ? fileLists() : undefined,
        }),
      () =>
        message({
          role: "bashExecution",
          command: "ls",
          output: words(30),
          exitCode: 0,
          cancelled: false,
          truncated: false,
        }),
    ])();
  const fileLists = () => ({
    readFiles: [`src/${random.int(9)}.ts`],
    modifiedFiles: [`src/${random.int(9)}.ts`],
  });
  const call = () => ({
    type: "toolCall",
    id: `call_${random.int(1e9)}`,
    name: random.pick(["read", "write", "edit", "bash"]),
    arguments: random.chance(0.9) ? { path: `src/${random.int(12)}.ts`, text: words(5) } : { command: "ls" },
  });
  const answer = () => {
    const calls = random.chance(0.7) ? Array.from({ length: 1 + random.int(3) }, call) : [];
    const content = [
      ...(random.chance(0.3) ? [{ type: "thinking", thinking: words(10) }] : []),
      ...(random.chance(0.8) || calls.length === 0 ? [{ type: "text", text: words(20) }] : []),
      ...calls,
    ];
    const usage = random.chance(0.5) ? { input: random.int(9000), output: 20, cacheRead: 0, cacheWrite: 0 } : undefined;
    message({
      role: "assistant",
      content,
      provider: "anthropic",
      model: "sonnet",
      usage,
      stopReason: random.chance(0.1) ? "aborted" : calls.length > 0 ? "toolUse" : "stop",
    });
    for (const { id, name } of calls)
      message({
        role: "toolResult",
        toolCallId: id,
        toolName: name,
        content: [{ type: "text", text: words(60) }],
        isError: random.chance(0.1),
      });
    return calls.length > 0;
  };
  const turns = 1 + random.int(12);
  for (let turn = 0; turn < turns; turn++) {
    if (random.chance(0.4)) note();
    if (random.chance(0.9))
      message({ role: "user", content: random.chance(0.5) ? words(30) : [{ type: "text", text: words(30) }] });
    while (answer() && random.chance(0.8)) if (random.chance(0.15)) note();
    if (entries.length > 3 && random.chance(0.2)) {
      const prepared = pi.prepareCompaction(pathTo(leaf), {
        enabled: true,
        reserveTokens: 0,
        keepRecentTokens: random.int(300),
      });
      if (prepared)
        add("compaction", {
          summary: words(10),
          firstKeptEntryId: prepared.firstKeptEntryId,
          tokensBefore: prepared.tokensBefore,
          details: random.chance(0.7) ? pi.computeFileLists(prepared.fileOps) : undefined,
          fromHook: random.chance(0.2) ? true : undefined,
        });
    }
    if (random.chance(0.15)) leaf = random.pick(entries).id;
  }
  const header = { type: "session", version: 3, id: `seed-${seed}`, timestamp: new Date(0).toISOString(), cwd: "/tmp" };
  return [header, ...entries].map((line) => `${JSON.stringify(line)}\n`).join("");
}

function randomOf(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const mixed = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d);
    return ((mixed ^ (mixed >>> 12)) >>> 0) / 4_294_967_296;
  };
  const int = (limit) => Math.floor(next() * limit);
  return { int, chance: (probability) => next() < probability, pick: (list) => list[int(list.length)] };
}
