// `node bench/client-latency.js`: cost of an agent behind the server, next to that agent alone and to a bare process
// that passes its bytes on, in one run. The agents are the scripted ones of examples/agents.
//
//   --runs <n>      turns of each kind (20)
//   --chunks <n>    chunks of the long turn (10,000)
//   --write         writes the table into docs/figures.md
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { replaceFigures } from "./figures.js";
import { formatTable, parseDefaults, program, toFigure } from "./measure.js";

const { runs, chunks, write } = parseDefaults({ runs: 20, chunks: 10_000, write: false });
const pathOf = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const home = mkdtempSync(join(tmpdir(), "bench-face-"));
const project = join(home, "project");
mkdirSync(project);
const env = { PATH: process.env.PATH, HOME: home, PI_SESSION_SERVER_STATE_DIR: join(home, "state") };

/** The least that passing on can take. */
const FORWARD = `const agent = require("node:child_process").spawn(process.execPath, [process.argv[1]], { stdio: ["pipe", "pipe", "inherit"] });
  process.stdin.pipe(agent.stdin);
  agent.stdout.pipe(process.stdout);`;

const commandOf = (agent) => `'${process.execPath}' '${agent}'`;
const pi = pathOf("examples/agents/pi-like.js");
const acp = pathOf("examples/agents/acp-like.js");
const OF_ACP = ["--agent", commandOf(acp), "--agent-protocol", "acp"];

/** Rows of each agent: the command to start, and whether the host speaks the Agent Client Protocol to it. */
const FACES = {
  "Pi's dialect": {
    "the agent alone": { args: [pi] },
    "behind a process that only passes bytes on": { args: ["-e", FORWARD, pi] },
    "`--mode rpc`": { args: [program, "--mode", "rpc", "--agent", commandOf(pi)], isOurs: true },
    "`--dialect acp`": { args: [program, "--dialect", "acp", "--agent", commandOf(pi)], isOurs: true, isAcp: true },
  },
  "the Agent Client Protocol": {
    "the agent alone": { args: [acp], isAcp: true },
    "behind a process that only passes bytes on": { args: ["-e", FORWARD, acp], isAcp: true },
    "`--dialect acp`": { args: [program, "--dialect", "acp", ...OF_ACP], isOurs: true, isAcp: true },
  },
};

/** Microseconds of processor time that a process has taken. The kernel counts in hundredths of a second. */
function processorTime(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

class Host {
  constructor({ args, isAcp = false }) {
    this.isAcp = isAcp;
    this.requests = 0;
    this.process = spawn(process.execPath, args, { env, cwd: project, stdio: ["pipe", "pipe", "ignore"] });
    this.gone = new Promise((resolve) => this.process.on("close", resolve));
    this.process.stdout.on("data", (chunk) => this.onData?.(chunk));
  }

  /** Sends a request of JSON-RPC. Returns what came up to its reply. */
  request(method, params, onText = () => {}) {
    const id = ++this.requests;
    const end = `"id":${id},"result"`;
    let heard = "";
    this.process.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    return new Promise((resolve) => {
      this.onData = (chunk) => {
        heard = heard.slice(-2000) + chunk.toString("latin1");
        onText(heard);
        if (heard.includes(end)) resolve(heard);
      };
    });
  }

  async begin() {
    if (!this.isAcp) return;
    await this.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
    const heard = await this.request("session/new", { cwd: project, mcpServers: [] });
    this.sessionId = /"result":\{[^}]*?"sessionId":"([^"]+)"/.exec(heard)[1];
  }

  /** Milliseconds until a text comes, and until the turn has ended. */
  async turn(message) {
    const began = performance.now();
    let first;
    const see = (mark) => (heard) => {
      if (first === undefined && heard.includes(mark)) first = performance.now() - began;
    };
    if (this.isAcp) {
      const prompt = [{ type: "text", text: message }];
      await this.request("session/prompt", { sessionId: this.sessionId, prompt }, see('"agent_message_chunk"'));
      return { first, whole: performance.now() - began };
    }
    this.process.stdin.write(`${JSON.stringify({ id: "t", type: "prompt", message })}\n`);
    let tail = "";
    const look = see('"message_update"');
    return new Promise((resolve) => {
      this.onData = (chunk) => {
        tail = tail.slice(-200) + chunk.toString("latin1");
        look(tail);
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

/** Measures the faces of an agent. The first tokens are measured in turn, so that each face meets the same load. */
async function measure(faces) {
  const measured = [];
  for (const [name, face] of Object.entries(faces)) {
    const host = new Host(face);
    await host.begin();
    // The session is there, and everything is warm.
    for (let i = 0; i < 5; i++) await host.turn("warm chunks 1000");
    for (let i = 0; i < 20; i++) await host.turn("hello");
    measured.push({ name, face, host, firsts: [], wholes: [] });
  }
  // The first round finds a processor that rested.
  for (let i = 0; i <= runs * 5; i++)
    for (const { host, firsts } of measured) {
      const { first } = await host.turn("hello");
      if (i > 0) firsts.push(first);
    }
  for (const one of measured) {
    one.flood = await perChunk(one.host, chunks * runs, async () => {
      for (let i = 0; i < runs; i++) one.wholes.push((await one.host.turn(`chunks ${chunks}`)).whole);
    });
    const paced = Math.ceil(chunks / 4);
    one.paced = await perChunk(one.host, paced, () => one.host.turn(`chunks ${paced} every 1`));
    one.host.process.stdin.end();
    await one.host.gone;
  }
  return measured;
}

/** Returns the cells of a row. Of an agent alone the time a chunk is its own, which no goal is about. */
function cellsOf({ name, face, firsts, wholes, flood, paced }, [alone], agent) {
  const [first, added] = [toFigure(firsts).median, toFigure(firsts).median - toFigure(alone.firsts).median];
  const isAlone = name === alone.name;
  const perChunkCells = isAlone ? ["", ""] : [`${flood.toFixed(1)} us`, `${paced.toFixed(0)} us`];
  return [
    `${agent}: ${name}`,
    `${first.toFixed(2)} ms${isAlone ? "" : ` (+${added.toFixed(2)})`}`,
    `${toFigure(wholes).median.toFixed(0)} ms`,
    ...perChunkCells,
    face.isOurs ? "+1 ms, 8 us" : "",
  ];
}

try {
  const load = loadavg()[0];
  const rows = [];
  for (const [agent, faces] of Object.entries(FACES)) {
    const measured = await measure(faces);
    rows.push(...measured.map((one) => cellsOf(one, measured, agent)));
  }
  const how = `Node ${process.version}, ${availableParallelism()} processors, load ${load.toFixed(1)} at the beginning; medians of ${runs * 5} first tokens and of ${runs} turns of ${chunks.toLocaleString("en")} chunks. The first token of an agent alone is its own time; in brackets, what a face adds to it.`;
  const head = [
    "what",
    "first token",
    "the long turn",
    "processor time a chunk",
    "the same, one chunk each ms",
    "goal",
  ];
  console.log(`${how}\n\n${formatTable(head, rows)}`);
  if (write) replaceFigures(pathOf("docs/figures.md"), "face", { how, head, rows });
} finally {
  rmSync(home, { recursive: true, force: true });
}
