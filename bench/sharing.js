// `node bench/sharing.js`: cost of sharing a session, next to a server that has it alone, in one run.
//
//   --runs <n>      kills of a holder for each size (30)
//   --hosts <n>     hosts on one session at a time (32)
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { writeSession } from "./generate.js";
import { Child, makeRequest, parseDefaults, toFigure } from "./measure.js";
import { computePercentile } from "./server.js";

const { runs, hosts } = parseDefaults({ runs: 30, hosts: 32 });
const program = fileURLToPath(new URL("../dist/bin/pi-session-server.js", import.meta.url));
const home = mkdtempSync(join(tmpdir(), "bench-sharing-"));
const env = { ...process.env, HOME: home, PI_SESSION_SERVER_STATE_DIR: join(home, "state") };
mkdirSync(join(home, "state"));

let ids = 0;
const line = (method, params) => makeRequest(++ids, method, params);
const append = () => line("append", { entries: [{ type: "message", message: { role: "user", content: `n ${ids}` } }] });
const start = (file) => new Child(process.execPath, [program, "--session", file, "--events", "none"], env);
const print = (what, value) => console.log(what.padEnd(52), value);
const microseconds = (values) => `${(toFigure(values).median * 1000).toFixed(0)} us`;
const milliseconds = (values) =>
  `p50 ${computePercentile(values, 0.5).toFixed(1)} ms, p99 ${computePercentile(values, 0.99).toFixed(1)} ms`;

/** The least that passing on can take: a process that sends back each line, and one that passes lines on to such a one. */
const ECHO = `const { createServer } = require("node:net");
  createServer((peer) => peer.pipe(peer)).listen(process.argv[1]);
  process.stdin.pipe(process.stdout);`;
const FORWARD = `const peer = require("node:net").connect(process.argv[1]);
  process.stdin.pipe(peer).pipe(process.stdout);`;

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

/** Prints what a line takes there and back without any of our code, which is to be compared with a passed append. */
async function bare() {
  const socket = join(home, "echo.sock");
  const echo = new Child(process.execPath, ["-e", ECHO, socket], env);
  await echo.ask([append()]);
  print("bare echo, round trip, p50", microseconds(await roundTrips(echo, append, 800)));
  const forwarder = new Child(process.execPath, ["-e", FORWARD, socket], env);
  await forwarder.ask([append()]);
  print("bare forwarder to it, round trip, p50", microseconds(await roundTrips(forwarder, append, 800)));
  await stop(forwarder);
  echo.process.kill();
}

/** Prints what an append takes there and back once both programs have run thousands, in turns of 200. */
async function warm(children) {
  const took = { holder: [], guest: [] };
  for (let turn = 0; turn < 10; turn++)
    for (const [name, child] of Object.entries(children)) {
      const trips = await roundTrips(child, append, 200);
      if (turn > 4) took[name].push(...trips);
    }
  print("append after thousands, round trip at the holder, p50", microseconds(took.holder));
  print("append after thousands, round trip at a guest, p50", microseconds(took.guest));
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

async function roundTrips(child, make, count) {
  const took = [];
  for (let n = 0; n < count; n++) took.push(await child.ask([make()]));
  return took.slice(count >> 2);
}

try {
  print("node, load", `${process.version}, ${loadavg()[0].toFixed(1)}`);
  await bare();
  const small = join(home, "small.jsonl");
  writeSession(small, 1000);
  {
    const { holder, guest } = await pair(small);
    print("append, round trip at the holder, p50", microseconds(await roundTrips(holder, append, 400)));
    print("append, round trip at a guest, p50", microseconds(await roundTrips(guest, append, 400)));
    print(
      "get_state, round trip at the holder, p50",
      microseconds(await roundTrips(holder, () => line("get_state"), 800)),
    );
    print("get_state, round trip at a guest, p50", microseconds(await roundTrips(guest, () => line("get_state"), 800)));
    for (const [name, child] of [
      ["holder", holder],
      ["guest", guest],
    ]) {
      const states = Array.from({ length: 20_000 }, () => line("get_state"));
      await child.ask(states);
      print(`get_state, pipelined at the ${name}`, `${(states.length / (await child.ask(states))).toFixed(0)} k/s`);
      const appends = Array.from({ length: 2000 }, append);
      print(`append, pipelined at the ${name}`, `${(appends.length / (await child.ask(appends))).toFixed(1)} k/s`);
    }
    await warm({ holder, guest });
    await stop(guest, holder);
  }
  const large = join(home, "large.jsonl");
  writeSession(large, 11_000);
  {
    const { holder, guest } = await pair(large);
    for (const [name, child] of [
      ["holder", holder],
      ["guest", guest],
    ]) {
      await child.ask([line("get_entries")]);
      const took = [];
      for (let n = 0; n < 7; n++) took.push(await child.ask([line("get_entries")]));
      print(
        `get_entries of ${(child.bytes / 1e6).toFixed(0)} MB at the ${name}`,
        `${toFigure(took).median.toFixed(1)} ms`,
      );
    }
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
  {
    const children = [start(small)];
    await children[0].ask([append()]);
    while (children.length < hosts) {
      const child = start(small);
      await child.ask([append()]);
      children.push(child);
    }
    const from = performance.now();
    await Promise.all(children.map((child) => child.ask(Array.from({ length: 50 }, append))));
    const rate = (50 * hosts) / (performance.now() - from);
    print(`append, 50 from each of ${hosts} hosts at once`, `${rate.toFixed(1)} k/s`);
    const memory = children.slice(1).map((child) => child.memory("VmRSS"));
    print("memory of a guest, median", `${toFigure(memory).median.toFixed(0)} MB`);
    await stop(...children.reverse());
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
