// The requests for servers, Pi and the machine, each sent to a fresh process; each answer is a figure.

import { readdirSync, rmSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Child, ECHO, makeRequest, runFresh, toFigure } from "./measure.js";
import { built, env, home, node, options, quick } from "./options.js";
import { getServingArguments, makePiRequest } from "./pi.js";

const worker = fileURLToPath(new URL("worker.js", import.meta.url));

let build = built;

/** Measures another build in place of ours. */
export async function withBuild(other, measure) {
  build = other;
  try {
    return await measure();
  } finally {
    build = built;
  }
}

export const currentBuild = () => build;

/** The environment of the build: each keeps its state and its machine code in folders of its own. */
const envOf = ({ state }) => ({ ...env, PI_SESSION_SERVER_STATE_DIR: state, XDG_CACHE_HOME: `${state}-cache` });

export const ours = (...args) => new Child(node, [build.program, "--events", "none", ...args], envOf(build));
/** Ours for the person of a home folder, who keeps state in another. */
export const oursIn = (place, state, ...args) =>
  new Child(node, [build.program, "--events", "none", ...args], {
    ...envOf(build),
    HOME: place,
    PI_SESSION_SERVER_STATE_DIR: state,
  });
/** Our build without kept machine code. */
export const oursAnew = (...args) =>
  new Child(node, [build.program, "--events", "none", ...args], { ...envOf(build), XDG_CACHE_HOME: makeFileName() });
/** The program with Node in it, which `node scripts/package.js` makes. */
export const standalone = (...args) => new Child(options.standalone, ["--events", "none", ...args], envOf(built));
export const echo = () => new Child(node, ["-e", ECHO], env);
export const theirs = (pi, ...args) => new Child(pi.node, getServingArguments(pi, ...args), env);
export const state = (id) => makeRequest(id, "get_state");
export const piState = (id) => makePiRequest(id, "get_state");

let names = 0;
export const makeFileName = () => join(home, `made-${++names}.jsonl`);

export async function runWith(child, measure) {
  try {
    return await measure(child);
  } finally {
    await child.end();
  }
}

export const measureFirstReply = (child, line) =>
  runWith(child, async () => {
    await child.ask([line]);
    return performance.now() - child.began;
  });

export const measureRoundTrip = (child, line) =>
  runWith(child, async () => {
    const times = [];
    await child.ask([line("warm")]);
    const count = quick ? 200 : 10_000;
    for (let n = 0; n < count; n++) times.push(await child.ask([line(n)]));
    return toFigure(times.slice(count / 4)).median * 1000;
  });

export const measurePipelined = (child, line) =>
  runWith(child, async () => {
    await child.ask([line("warm")]);
    const total = quick ? 5000 : 200_000;
    return total / (await child.keepAsking(total, 1000, line));
  });

/** One request after the first, in a fresh process. */
export const once = (child, first, line, what = (took) => took) =>
  runWith(child, async () => {
    await child.ask([first]);
    return what(await child.ask([line]), child);
  });

/** Megabytes after the first reply. */
export const measureMemory = (child, line, what) =>
  runWith(child, async () => {
    await child.ask([line]);
    return child.memory(what);
  });

export const onSession = (file, method, params, what) =>
  once(ours("--session", file, "--read-only"), state(0), makeRequest(1, method, params), what);

export const switchTo = (file, what) =>
  once(ours("--no-session"), state(0), makeRequest(1, "switch_session", { sessionPath: file }), what);

/** The same of Pi, whose refusal is no figure. */
const piOnce = (child, line) =>
  runWith(child, async () => {
    await child.ask([piState(0)]);
    const took = await child.ask([line], { keep: true });
    if (/"success":false/.test(child.text.slice(0, 4096))) throw new Error("Pi could not");
    return took;
  });

export const piSwitchTo = (pi, file) =>
  piOnce(theirs(pi, "--no-session"), makePiRequest(1, "switch_session", { sessionPath: file }));

export const piOnSession = (pi, file, type, params) =>
  piOnce(theirs(pi, "--session", file), makePiRequest(1, type, params));

export const run = async (task, file, member, from = build.library, runner = node) =>
  (await runFresh(runner, ["--max-old-space-size=8192", worker, task, file, from], envOf(build)))?.[member];

/** Forgets the sessions of earlier rows. */
export function forget() {
  rmSync(join(build.state, "spines"), { recursive: true, force: true });
}

export const parseAll = (file) => ["full JSON.parse", () => run("parse", file, "ms")];
export async function copy(file) {
  const ms = await run("copy", file, "ms");
  for (const name of readdirSync(home)) if (name.includes(".copy-")) unlinkSync(join(home, name));
  return ms;
}

export const message = { type: "message", message: { role: "user", content: "x".repeat(700) } };
export const appendRequest = (id) => makeRequest(id, "append", { entries: [message] });
