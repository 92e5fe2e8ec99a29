// Time until a long session of a fleet is usable on a machine that has nothing of it: until it is open, and until its
// first context. Its server is started before, as a container's is; `with start` counts from that.
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { writeSession } from "./generate.js";
import { computePercentile, Server } from "./server.js";

const ID = (entries) => `bench-realistic-${entries}`;

/** Returns the figures. `bringIn` has the fleet import a folder; `rounds` machines open the session one after the other. */
export async function measureColdOpen({ program, home, url, entries, rounds, bringIn }) {
  const folder = join(home, "long");
  mkdirSync(folder);
  const file = join(folder, "long.jsonl");
  writeSession(file, entries);
  const bytes = statSync(file).size;
  bringIn(folder);
  const figures = await measureColdMachines({ program, home, url, sessionId: ID(entries), rounds });
  const coldMegabytesPerSecond = Math.round(bytes / 1e3 / figures.coldOpenMilliseconds);
  return { coldMegabytes: Math.round(bytes / 1e6), coldMegabytesPerSecond, ...figures };
}

/** Returns the figures of machines that open a session which is there, medians of `rounds`. */
export async function measureColdMachines({ program, home, url, sessionId, rounds }) {
  const took = { open: [], context: [], peak: [], started: [] };
  for (let round = 0; round < rounds; round++) {
    const machine = join(home, `cold-${round}`);
    mkdirSync(machine);
    const variables = { PI_FLEET_URL: url };
    const server = new Server(program, machine, { given: [], variables });
    await server.ask("get_state", {});
    const from = performance.now();
    await server.ask("switch_session", { sessionId });
    took.open.push(performance.now() - from);
    const { result } = await server.ask("get_context", {});
    took.context.push(performance.now() - from);
    if (!(result.messages?.length > 0)) throw new Error("there is no context");
    took.peak.push(server.memory());
    await server.end();
    const second = join(home, `started-${round}`);
    mkdirSync(second);
    const start = performance.now();
    const started = new Server(program, second, { given: ["--session", sessionId], variables });
    await started.ask("get_context", {});
    took.started.push(performance.now() - start);
    await started.end();
  }
  const figure = (times) => Math.round(computePercentile(times, 0.5));
  return {
    coldOpenMilliseconds: figure(took.open),
    coldContextMilliseconds: figure(took.context),
    coldContextWithStartMilliseconds: figure(took.started),
    coldPeakMegabytes: figure(took.peak),
  };
}
