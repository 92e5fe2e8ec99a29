// `node bench/sharing.js`: cost of sharing a session, next to a server that has it alone, in one run.
//
//   --runs <n>      kills of a holder for each size (30)
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { writeSession } from "./generate.js";
import { Child, makeRequest, parseDefaults, program, toFigure } from "./measure.js";
import { computePercentile } from "./server.js";

const { runs } = parseDefaults({ runs: 30 });
const home = mkdtempSync(join(tmpdir(), "bench-sharing-"));
const env = { ...process.env, HOME: home, PI_SESSION_SERVER_STATE_DIR: join(home, "state") };
mkdirSync(join(home, "state"));

let ids = 0;
const line = (method, params) => makeRequest(++ids, method, params);
const append = () => line("append", { entries: [{ type: "message", message: { role: "user", content: `n ${ids}` } }] });
const start = (file) => new Child(process.execPath, [program, "--session", file, "--events", "none"], env);
const print = (what, value) => console.log(what.padEnd(52), value);
const milliseconds = (values) =>
  `p50 ${computePercentile(values, 0.5).toFixed(1)} ms, p99 ${computePercentile(values, 0.99).toFixed(1)} ms`;

/** A process that others connect to, and one that says when it has connected and when the other end is gone. */
const LISTEN = `require("node:net").createServer((peer) => peer.resume()).listen(process.argv[1]);
  process.stdin.pipe(process.stdout);`;
const FOLLOW = `process.stdin.once("data", () => {
    const peer = require("node:net").connect(process.argv[1], () => process.stdout.write("in\\n"));
    peer.on("error", () => {}).on("close", () => process.stdout.write("gone\\n")).resume();
  });`;

/** Milliseconds from a SIGKILL until a process that was connected knows of it: no takeover can be faster. */
async function bareDeath() {
  const socket = join(home, `death-${++ids}.sock`);
  const killed = new Child(process.execPath, ["-e", LISTEN, socket], env);
  await killed.ask([""]);
  const follower = new Child(process.execPath, ["-e", FOLLOW, socket], env);
  await follower.ask([""]);
  const from = performance.now();
  const gone = new Promise((resolve) => {
    follower.wanted = 1;
    follower.done = resolve;
  });
  killed.process.kill("SIGKILL");
  await gone;
  const took = performance.now() - from;
  follower.process.kill("SIGKILL");
  await Promise.all([killed.gone, follower.gone]);
  return took;
}

/** Starts a server that holds a session, and one that has joined it. */
async function pair(file) {
  const holder = start(file);
  await holder.ask([append()]);
  const guest = start(file);
  await guest.ask([append()]);
  return { holder, guest };
}

async function stop(...children) {
  for (const child of children) child.process.stdin.end();
  await Promise.all(children.map((child) => child.gone));
}

/** The median of the microseconds of requests that wait for one another. */
async function roundTrip(child, make) {
  const took = [];
  for (let n = 0; n < 800; n++) took.push(await child.ask([make()]));
  return `${(toFigure(took.slice(200)).median * 1000).toFixed(0)} us`;
}

try {
  print("node, load", `${process.version}, ${loadavg()[0].toFixed(1)}`);
  const small = join(home, "small.jsonl");
  writeSession(small, 1000);
  {
    const { holder, guest } = await pair(small);
    const getState = () => line("get_state");
    print("append, round trip at the holder, p50", await roundTrip(holder, append));
    print("append, round trip at a guest, p50", await roundTrip(guest, append));
    print("get_state, round trip at the holder, p50", await roundTrip(holder, getState));
    print("get_state, round trip at a guest, p50", await roundTrip(guest, getState));
    await stop(guest, holder);
  }
  for (const entries of [1000, 100_000]) {
    const file = join(home, `takeover-${entries}.jsonl`);
    writeSession(file, entries);
    const took = [];
    const bare = [];
    let { holder, guest } = await pair(file);
    for (let n = 0; n < runs; n++) {
      const from = performance.now();
      holder.process.kill("SIGKILL");
      await guest.ask([append()]);
      took.push(performance.now() - from);
      holder = guest;
      guest = start(file);
      await guest.ask([append()]);
      bare.push(await bareDeath());
    }
    print(`SIGKILL to the next write, ${entries} entries`, `${milliseconds(took)}, ${runs} kills`);
    print("bare SIGKILL to the end of a connection, meanwhile", milliseconds(bare));
    await stop(guest, holder);
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
