// How fast other agents' sessions are found and read: makes many of them, then asks the built program at its wire.
//
//   node bench/foreign.js --sessions 1000 [--megabytes 500] [--large 100] [--rounds 200] [--json] [--no-sqlite]
//
// Prints the first list of all, the 95th percentile of a page of 50, the first list of a second process, what the largest
// session of an agent takes to open (`--large` megabytes), and memory. Beside each opening is its floor: what a program
// takes that reads the same file, parses each line, makes JSON of its value again and nothing else; and what reading takes.
import { spawnSync } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { randomFrom } from "./random.js";
import { percentile, programIn, Server } from "./server.js";

if (process.argv[2] === "--floor") {
  console.log(JSON.stringify(floorOf(process.argv[3], process.argv[4] === "parsed")));
  process.exit();
}

/** Returns what it takes to read a file, and to parse and write again each of its lines. */
function floorOf(file, isParsed) {
  const from = performance.now();
  const fd = openSync(file);
  let rest = Buffer.alloc(0);
  let size = 0;
  for (;;) {
    const chunk = Buffer.allocUnsafe(1 << 20);
    const read = readSync(fd, chunk);
    if (read === 0) break;
    size += read;
    if (!isParsed) continue;
    const bytes = Buffer.concat([rest, chunk.subarray(0, read)]);
    let start = 0;
    for (let feed = bytes.indexOf(10); feed >= 0; feed = bytes.indexOf(10, start)) {
      Buffer.from(JSON.stringify(JSON.parse(bytes.toString("utf8", start, feed))));
      start = feed + 1;
    }
    rest = bytes.subarray(start);
  }
  closeSync(fd);
  return Math.round(size / 1000 / (performance.now() - from));
}

/** Returns megabytes per second of a floor, in a process of its own as the program is. */
function floor(file, what) {
  return Number(spawnSync(process.execPath, [process.argv[1], "--floor", file, what], { encoding: "utf8" }).stdout);
}

const options = { sessions: 1000, megabytes: 500, large: 100, rounds: 200, json: false, "no-sqlite": false };
for (let i = 2; i < process.argv.length; i++) {
  const name = process.argv[i].replace(/^--/, "");
  if (!(name in options)) throw new Error(`Unknown option --${name}. There are: ${Object.keys(options).join(", ")}.`);
  options[name] = typeof options[name] === "boolean" || Number(process.argv[++i]);
}

// --- sessions --------------------------------------------------------------------------------------------------------

const random = randomFrom(20261123);
const hex = (digits) => Array.from({ length: digits }, () => Math.floor(random() * 16).toString(16)).join("");
const uuid = () => [8, 4, 4, 4, 12].map(hex).join("-");
const words = Array.from({ length: 5000 }, () => hex(2 + Math.floor(random() * 8)));

function text(length) {
  let made = "";
  while (made.length < length) made += `${words[Math.floor(random() * words.length)]}${random() < 0.1 ? "\n" : " "}`;
  return made;
}

/** A session of Claude Code's: a third each of turns, answers with a call, and results, and what is noted between. */
function claude(begun, bytes) {
  const sessionId = uuid();
  const common = { sessionId, isSidechain: false, cwd: "/home/me/project", version: "2.1.270", gitBranch: "main" };
  const lines = [];
  let size = 0;
  let parentUuid = null;
  const add = (line) => {
    lines.push(JSON.stringify(line));
    size += lines.at(-1).length + 1;
  };
  for (let n = 0; size < bytes; n++) {
    const at = { uuid: uuid(), parentUuid, timestamp: new Date(begun + n * 1000).toISOString() };
    const call = `toolu_${n - (n % 3)}`;
    if (n % 3 === 0) {
      add({
        type: "file-history-snapshot",
        messageId: at.uuid,
        snapshot: { trackedFileBackups: {} },
        isSnapshotUpdate: false,
      });
      add({ ...common, ...at, type: "user", message: { role: "user", content: text(200) } });
    } else if (n % 3 === 1) {
      const usage = {
        input_tokens: 4,
        output_tokens: 200,
        cache_read_input_tokens: 20000,
        cache_creation_input_tokens: 10,
      };
      const content = [
        { type: "text", text: text(600) },
        { type: "tool_use", id: call, name: "Read", input: { file_path: `/home/me/${hex(6)}.ts` } },
      ];
      const message = {
        id: `msg_${n}`,
        role: "assistant",
        model: "claude-sonnet-4-5",
        content,
        usage,
        stop_reason: "tool_use",
      };
      add({ ...common, ...at, type: "assistant", requestId: `req_${n}`, message });
    } else {
      const output = text(1000 + random() * 6000);
      const content = [{ type: "tool_result", tool_use_id: call, content: output }];
      const toolUseResult = { type: "text", file: { filePath: "a.ts", content: output } };
      add({ ...common, ...at, type: "user", message: { role: "user", content }, toolUseResult });
    }
    parentUuid = at.uuid;
  }
  add({ type: "ai-title", aiTitle: text(30).trim(), sessionId });
  return { path: `.claude/projects/-home-me-project/${sessionId}.jsonl`, text: `${lines.join("\n")}\n` };
}

/** A session of Codex's, with the events that say the same again. */
function codex(begun, bytes) {
  const id = uuid();
  const lines = [];
  let size = 0;
  let n = 0;
  const add = (type, payload) => {
    lines.push(JSON.stringify({ timestamp: new Date(begun + n++ * 1000).toISOString(), type, payload }));
    size += lines.at(-1).length + 1;
  };
  add("session_meta", {
    id,
    timestamp: new Date(begun).toISOString(),
    cwd: "/home/me/project",
    originator: "codex_cli_rs",
    cli_version: "0.169.0",
  });
  while (size < bytes) {
    const said = text(200);
    add("turn_context", { cwd: "/home/me/project", model: "gpt-5-codex", effort: "medium" });
    add("response_item", { type: "message", role: "user", content: [{ type: "input_text", text: said }] });
    add("event_msg", { type: "user_message", message: said });
    add("response_item", {
      type: "function_call",
      name: "shell",
      arguments: '{"command":["ls"]}',
      call_id: `call_${n}`,
    });
    add("response_item", {
      type: "function_call_output",
      call_id: `call_${n - 1}`,
      output: text(1000 + random() * 8000),
    });
    const answer = text(600);
    add("event_msg", { type: "agent_message", message: answer });
    add("response_item", { type: "message", role: "assistant", content: [{ type: "output_text", text: answer }] });
    const last = { input_tokens: 100, cached_input_tokens: 60, output_tokens: 20, total_tokens: 120 };
    add("event_msg", { type: "token_count", info: { total_token_usage: last, last_token_usage: last } });
  }
  const day = new Date(begun).toISOString().slice(0, 10).split("-");
  const name = `rollout-${new Date(begun).toISOString().slice(0, 19).replace(/:/g, "-")}-${id}.jsonl`;
  return { path: `.codex/sessions/${day.join("/")}/${name}`, text: `${lines.join("\n")}\n` };
}

/** A session of Gemini CLI's, which writes what it shows of a result beside it. */
function gemini(begun, bytes) {
  const sessionId = uuid();
  const at = (n) => new Date(begun + n * 1000).toISOString();
  const lines = [
    JSON.stringify({ sessionId, projectHash: hex(64), startTime: at(0), lastUpdated: at(0), kind: "main" }),
  ];
  let size = lines[0].length;
  for (let n = 1; size < bytes; n++) {
    const output = text(1000 + random() * 4000);
    const result = [{ functionResponse: { id: `c${n}`, name: "read_file", response: { output } } }];
    const call = {
      id: `c${n}`,
      name: "read_file",
      args: { path: "a.ts" },
      result,
      status: "success",
      timestamp: at(n),
    };
    const tokens = { input: 10, output: 20, cached: 0, total: 30 };
    const message =
      n % 2 === 1
        ? { id: uuid(), timestamp: at(n), type: "user", content: [{ text: text(200) }] }
        : {
            id: uuid(),
            timestamp: at(n),
            type: "gemini",
            content: text(600),
            toolCalls: [call],
            tokens,
            model: "gemini-2.5-pro",
          };
    lines.push(JSON.stringify(message));
    size += lines.at(-1).length + 1;
  }
  const name = `session-${at(0).slice(0, 16).replace(":", "-")}-${sessionId.slice(0, 8)}.jsonl`;
  return { path: `.gemini/tmp/project/chats/${name}`, text: `${lines.join("\n")}\n` };
}

const AGENTS = { claude, codex, gemini };
const home = mkdtempSync(join(tmpdir(), "pi-session-server-bench-"));
process.on("exit", () => rmSync(home, { recursive: true, force: true }));

function put({ path, text: content }) {
  const file = join(home, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, content);
  return { file, bytes: Buffer.byteLength(content) };
}

let bytes = 0;
for (let i = 0; i < options.sessions; i++) {
  const make = i % 10 < 5 ? claude : i % 10 < 9 ? codex : gemini;
  const wanted = ((options.megabytes * 1e6) / options.sessions) * (0.5 + random());
  bytes += put(make(Date.UTC(2026, 0, 1) + Math.floor(random() * 2e10), wanted)).bytes;
}

// --- the program -----------------------------------------------------------------------------------------------------

const program = programIn(home, options["no-sqlite"]);

/** A server that has answered once: how long a process takes to start is measured elsewhere. */
async function started() {
  const server = new Server(program, home);
  await server.ask("get_state", {});
  return server;
}

const figures = { node: process.version, sessions: options.sessions, megabytes: Math.round(bytes / 1e6) };
const page = { agents: "all", limit: 50 };

let server = await started();
const before = server.processor();
const first = await server.ask("list_sessions", page);
if (first.result.total !== options.sessions) throw new Error(`${first.result.total} sessions are listed`);
figures.firstListSeconds = Number((first.took / 1000).toFixed(2));
figures.firstListProcessorSeconds = Number((server.processor() - before).toFixed(2));
const took = [];
for (let i = 0; i < options.rounds; i++) took.push((await server.ask("list_sessions", page)).took);
figures.pageP50 = percentile(took, 0.5);
figures.pageP95 = percentile(took, 0.95);
figures.listPeakMegabytes = server.memory("VmHWM");
await server.end();

server = await started();
figures.nextProcessListMilliseconds = Number((await server.ask("list_sessions", page)).took.toFixed(0));
const again = [];
for (let i = 0; i < 20; i++) again.push((await server.ask("list_sessions", page)).took);
figures.nextProcessPageP95 = percentile(again, 0.95);
await server.end();

for (const [agent, make] of Object.entries(AGENTS)) {
  if (options.large === 0) continue;
  const { file, bytes: size } = put(make(Date.UTC(2026, 5, 1), options.large * 1e6));
  const reader = await started();
  const { took: opened } = await reader.ask("switch_session", { sessionPath: file });
  figures[`${agent}Seconds`] = Number((opened / 1000).toFixed(2));
  figures[`${agent}MegabytesPerSecond`] = Math.round(size / 1000 / opened);
  figures[`${agent}PeakMegabytes`] = reader.memory("VmHWM");
  figures[`${agent}FloorMegabytesPerSecond`] = floor(file, "parsed");
  figures[`${agent}ReadMegabytesPerSecond`] = floor(file, "read");
  await reader.end();
}

if (options.json) console.log(JSON.stringify(figures));
else for (const [name, value] of Object.entries(figures)) console.log(`${name.padEnd(32)} ${value}`);
