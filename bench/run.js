// `npm run bench`: our figures as ratios against what the machine does at best, in one run, medians of several.
import { spawn } from "node:child_process";
import { closeSync, fdatasyncSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { writeSession } from "./generate.js";

const server = fileURLToPath(new URL("../dist/bin/pi-session-server.js", import.meta.url));
const quick = process.argv.includes("--quick");
const asJson = process.argv.includes("--json");
const runs = quick ? 1 : 5;
const home = mkdtempSync(join(tmpdir(), "pi-session-server-bench-"));
const env = { ...process.env, HOME: home, PI_SESSION_SERVER_STATE_DIR: join(home, "state") };
delete env.PI_CODING_AGENT_SESSION_DIR;

const ECHO = `process.stdin.setEncoding("utf8");let rest="";process.stdin.on("data",(chunk)=>{rest+=chunk;let out="";for(let end;(end=rest.indexOf("\\n"))>=0;rest=rest.slice(end+1)){const m=JSON.parse(rest.slice(0,end));out+=JSON.stringify({jsonrpc:"2.0",id:m.id,result:{}})+"\\n"}process.stdout.write(out)})`;

/** A child that is sent lines and answers lines; `ask` resolves with the text of as many lines as it sent. */
function start(args) {
  const began = performance.now();
  const child = spawn(process.execPath, args, { env, stdio: ["pipe", "pipe", "inherit"] });
  let wanted = 0;
  let resolveNow = () => {};
  let bytes = 0;
  child.stdout.on("data", (chunk) => {
    bytes += chunk.length;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) wanted--;
    if (wanted <= 0) resolveNow(bytes);
  });
  return {
    began,
    ask(lines) {
      wanted = lines.length;
      bytes = 0;
      return new Promise((resolve) => {
        resolveNow = resolve;
        child.stdin.write(`${lines.join("\n")}\n`);
      });
    },
    end: () =>
      new Promise((resolve) => {
        child.on("exit", resolve);
        child.stdin.end();
      }),
  };
}

const request = (id, method, params) => JSON.stringify({ jsonrpc: "2.0", id, method, params });
const ours = (...args) => start([server, "--events", "none", ...args]);
const echo = () => start(["-e", ECHO]);

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

/** Takes two measurements in turn, so that a drift of the machine meets both. */
async function pair(a, b) {
  const first = [];
  const second = [];
  for (let run = 0; run < runs; run++) {
    first.push(await a());
    second.push(await b());
  }
  return [median(first), median(second)];
}

const rows = [];
function row(what, own, against, anchor, unit) {
  rows.push({ what, ours: own, against, anchor, unit, ratio: own / anchor });
}

async function timed(work) {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

async function firstReply(child) {
  await child.ask([request(0, "get_state")]);
  const took = performance.now() - child.began;
  await child.end();
  return took;
}

async function roundTrip(child) {
  const times = [];
  for (let n = 0; n < 2000; n++) times.push(await timed(() => child.ask([request(n, "get_state")])));
  await child.end();
  return median(times) * 1000;
}

async function pipelined(child) {
  const lines = Array.from({ length: 50_000 }, (_, n) => request(n, "get_state"));
  const took = await timed(() => child.ask(lines));
  await child.end();
  return lines.length / took;
}

async function onSession(file, method, params) {
  const child = ours("--session", file, "--read-only");
  await child.ask([request(0, "get_state")]);
  const took = await timed(() => child.ask([request(1, method, params)]));
  await child.end();
  return took;
}

async function open(file) {
  const child = ours("--no-session");
  await child.ask([request(0, "get_state")]);
  const took = await timed(() => child.ask([request(1, "switch_session", { sessionPath: file })]));
  await child.end();
  return took;
}

/** What it costs to parse every line, in a fresh process as the server is one. */
function parseAll(file) {
  const code = `const{readFileSync}=require("fs");const t=performance.now();for(const l of readFileSync(${JSON.stringify(file)},"utf8").split("\\n"))if(l)JSON.parse(l);console.log(performance.now()-t)`;
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ["--max-old-space-size=8192", "-e", code]);
    let out = "";
    child.stdout.on("data", (chunk) => (out += chunk));
    child.on("exit", () => resolve(Number(out)));
  });
}

async function durableAppend() {
  const child = ours("--session", join(home, `append-${Math.random()}.jsonl`));
  const entry = { type: "message", message: { role: "user", content: "x".repeat(700) } };
  const times = [];
  for (let n = 0; n < 300; n++) times.push(await timed(() => child.ask([request(n, "append", { entries: [entry] })])));
  await child.end();
  return median(times) * 1000;
}

async function groupCommit() {
  const child = ours("--session", join(home, `group-${Math.random()}.jsonl`));
  const entry = { type: "message", message: { role: "user", content: "x".repeat(700) } };
  const lines = Array.from({ length: 10_000 }, (_, n) => request(n, "append", { entries: [entry] }));
  const took = await timed(() => child.ask(lines));
  await child.end();
  return lines.length / took;
}

function rawSync() {
  const fd = openSync(join(home, `raw-${Math.random()}`), "a");
  const line = Buffer.alloc(800, 120);
  const times = [];
  for (let n = 0; n < 300; n++) {
    const began = performance.now();
    writeSync(fd, line);
    fdatasyncSync(fd);
    times.push(performance.now() - began);
  }
  closeSync(fd);
  return median(times) * 1000;
}

function copyFile(file) {
  const began = performance.now();
  const fd = openSync(join(home, `copy-${Math.random()}`), "w");
  writeSync(fd, readFileSync(file));
  fdatasyncSync(fd);
  closeSync(fd);
  return performance.now() - began;
}

async function main() {
  const size = quick ? 2_000 : 100_000;
  const file = join(home, "realistic.jsonl");
  writeSession(file, size, "realistic");
  const small = join(home, "small.jsonl");
  writeSession(small, quick ? 500 : 10_000, "realistic");

  let [own, anchor] = await pair(
    () => firstReply(ours("--no-session")),
    () => firstReply(echo()),
  );
  row("spawn to first reply", own, "bare echo server", anchor, "ms");
  [own, anchor] = await pair(
    () => roundTrip(ours("--no-session")),
    () => roundTrip(echo()),
  );
  row("round trip get_state, p50", own, "bare echo server", anchor, "us");
  [own, anchor] = await pair(
    () => pipelined(ours("--no-session")),
    () => pipelined(echo()),
  );
  row("pipelined get_state (more is better)", own, "bare echo server", anchor, "k/s");
  [own, anchor] = await pair(
    () => open(file),
    () => parseAll(file),
  );
  row(
    `switch_session, ${size} entries, ${Math.round(statSync(file).size / 1e6)} MB`,
    own,
    "full JSON.parse",
    anchor,
    "ms",
  );
  [own, anchor] = await pair(
    () => onSession(file, "get_messages"),
    () => parseAll(file),
  );
  row(`get_messages of it (after the compaction)`, own, "full JSON.parse", anchor, "ms");
  [own, anchor] = await pair(
    () => onSession(small, "get_entries"),
    () => parseAll(small),
  );
  row(`get_entries, ${Math.round(statSync(small).size / 1e6)} MB`, own, "full JSON.parse", anchor, "ms");
  [own, anchor] = await pair(
    () => onSession(file, "clone"),
    () => copyFile(file),
  );
  row("clone of it over the wire, durable", own, "file copy and fdatasync", anchor, "ms");
  [own, anchor] = await pair(durableAppend, async () => rawSync());
  row("durable append over the wire, p50", own, "write and fdatasync", anchor, "us");
  [own, anchor] = await pair(groupCommit, async () => 1000 / rawSync());
  row("pipelined durable appends (more is better)", own, "one fdatasync each", anchor, "k/s");

  if (asJson) process.stdout.write(`${JSON.stringify({ node: process.version, runs, rows }, null, 2)}\n`);
  else {
    const round = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
    process.stdout.write(
      `Node ${process.version}, median of ${runs}\n\n| what | ours | against | that | ours / that |\n| --- | --- | --- | --- | --- |\n`,
    );
    for (const { what, ours: value, against, anchor: that, unit, ratio } of rows)
      process.stdout.write(
        `| ${what} | ${round(value)} ${unit} | ${against} | ${round(that)} ${unit} | ${ratio.toFixed(2)} |\n`,
      );
  }
}

try {
  await main();
} finally {
  rmSync(home, { recursive: true, force: true });
}
