// `node bench/face.js`: what it takes to have an agent behind the server, beside that agent alone and a bare process
// that passes its bytes on, in one run. The agent is the scripted one of examples/agents.
//
//   --runs <n>      turns of each kind (20)
//   --chunks <n>    chunks of the long turn (10,000)
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { figure } from "./measure.js";

const { values } = parseArgs({ options: { runs: { type: "string" }, chunks: { type: "string" } } });
const runs = Number(values.runs ?? 20);
const chunks = Number(values.chunks ?? 10_000);
const program = fileURLToPath(new URL("../dist/bin/pi-session-server.js", import.meta.url));
const agent = fileURLToPath(new URL("../examples/agents/pi-like.js", import.meta.url));
const home = mkdtempSync(join(tmpdir(), "bench-face-"));
mkdirSync(join(home, "project"));
const env = { PATH: process.env.PATH, HOME: home, PI_SESSION_SERVER_STATE_DIR: join(home, "state") };

/** The least that passing on can take. */
const FORWARD = `const agent = require("node:child_process").spawn(process.execPath, [process.argv[1]], { stdio: ["pipe", "pipe", "inherit"] });
  process.stdin.pipe(agent.stdin);
  agent.stdout.pipe(process.stdout);`;

/** The rows, each with what is started. */
const FACES = {
  "the agent alone": [agent],
  "behind a bare pass-through": ["-e", FORWARD, agent],
  "behind the server": [program, "--mode", "rpc", "--agent", `'${process.execPath}' '${agent}'`],
};

/** Microseconds of processor time that a process has taken. The kernel counts in hundredths of a second. */
function processorTime(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

class Host {
  constructor(args) {
    this.process = spawn(process.execPath, args, {
      env,
      cwd: join(home, "project"),
      stdio: ["pipe", "pipe", "ignore"],
    });
    this.gone = new Promise((resolve) => this.process.on("close", resolve));
    this.process.stdout.on("data", (chunk) => this.onData?.(chunk));
  }

  /** Milliseconds until a text comes, and until the turn has ended. */
  turn(message) {
    this.process.stdin.write(`${JSON.stringify({ id: "t", type: "prompt", message })}\n`);
    const began = performance.now();
    let first;
    let tail = "";
    return new Promise((resolve) => {
      this.onData = (chunk) => {
        tail = tail.slice(-200) + chunk.toString("latin1");
        if (first === undefined && tail.includes('"message_update"')) first = performance.now() - began;
        if (tail.includes('"agent_settled"')) resolve({ first, whole: performance.now() - began });
      };
    });
  }
}

/** Microseconds of the host's child for each of so many chunks. */
async function perChunk({ process: { pid } }, count, run) {
  const before = processorTime(pid);
  await run();
  return (processorTime(pid) - before) / count;
}

async function measure(args) {
  const host = new Host(args);
  // The session is there, and everything is warm.
  for (let i = 0; i < 5; i++) await host.turn("warm chunks 1000");
  const firsts = [];
  for (let i = 0; i < runs; i++) firsts.push((await host.turn("hello")).first);
  const wholes = [];
  const flood = await perChunk(host, chunks * runs, async () => {
    for (let i = 0; i < runs; i++) wholes.push((await host.turn(`chunks ${chunks}`)).whole);
  });
  const paced = await perChunk(host, chunks, () => host.turn(`chunks ${chunks} every 1`));
  host.process.stdin.end();
  await host.gone;
  return { first: figure(firsts), whole: figure(wholes), flood, paced };
}

try {
  console.log(`${runs} turns of each kind, ${chunks} chunks, load ${loadavg()[0].toFixed(1)}\n`);
  const heads = ["first token", "the long turn", "us a chunk of it", "us a chunk, one each ms"];
  console.log("".padEnd(30) + heads.map((head) => head.padEnd(18)).join(""));
  for (const [name, args] of Object.entries(FACES)) {
    const { first, whole, flood, paced } = await measure(args);
    const columns = [
      `${first.median.toFixed(2)} ms`,
      `${whole.median.toFixed(0)} ms`,
      flood.toFixed(1),
      paced.toFixed(1),
    ];
    console.log(name.padEnd(30) + columns.map((column) => column.padEnd(18)).join(""));
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
