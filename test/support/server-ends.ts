/** Ways in which the life of a server ends, and a check that nothing of it is left. */

import { existsSync, readFileSync } from "node:fs";
import { setTimeout as pass } from "node:timers/promises";
import { expect } from "vitest";
import { user } from "./drafts.ts";
import type { Random } from "./random.ts";
import { type Place, type SpawnedServer, spawnServer } from "./server.ts";

/** A process that has ended and was not collected by its parent yet counts as gone. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  const stat = `/proc/${pid}/stat`;
  return !existsSync(stat) || !/\) Z /.test(readFileSync(stat, "latin1"));
}

/** Waits until a process is gone; fails when it takes longer than three seconds. */
export async function expectGone(pid: number, how: string): Promise<void> {
  const since = performance.now();
  while (isAlive(pid)) {
    expect(performance.now() - since, `milliseconds after ${how}`).toBeLessThan(3000);
    // A busy loop takes the processor from the server that ends.
    await pass(5);
  }
}

const signal =
  (...signals: NodeJS.Signals[]) =>
  ({ process }: SpawnedServer): void => {
    for (const name of signals) process.kill(name);
  };

const ENDS: Readonly<Record<string, (server: SpawnedServer) => unknown>> = {
  "the end of input": (server) => server.end(),
  "the end of input inside a frame": (server) => server.input.end('{"jsonrpc":"2.0","id":1,"me'),
  "the end of input inside a header": (server) => server.input.end("Content-Length: 100\r\n\r\n{"),
  "the host's death": ({ process: { stdin, stdout, stderr } }) => {
    for (const stream of [stdin, stdout, stderr]) stream.destroy();
  },
  "a reader that goes": (server) => {
    server.process.stdout.destroy();
    server.send({ jsonrpc: "2.0", id: 1, method: "get_state" });
  },
  SIGTERM: signal("SIGTERM"),
  SIGHUP: signal("SIGHUP"),
  SIGINT: signal("SIGINT"),
  "two signals": signal("SIGTERM", "SIGTERM"),
  SIGKILL: signal("SIGKILL"),
  shutdown: (server) =>
    isPi(server)
      ? server.send({ id: 1, type: "shutdown" }, { type: "exit" })
      : server.send({ jsonrpc: "2.0", id: 1, method: "shutdown" }, { jsonrpc: "2.0", method: "exit" }),
};

export const WAYS = Object.keys(ENDS);

/** Starts a server, lets it do something or nothing, and ends it; nothing of it is there three seconds later. */
export async function startAndEnd(random: Random, way: string, place: Place): Promise<void> {
  const framing = way.includes("header") ? "headers" : "lines";
  const server = spawnServer(framing === "headers" || random.chance(0.5) ? [] : ["--mode", "rpc"], framing, place);
  const pid = server.process.pid as number;
  if (random.chance(0.7)) {
    const entries = [user(random.hex(random.chance(0.2) ? 200_000 : 10))];
    for (let n = random.int(20); n >= 0; n--)
      if (isPi(server)) server.send({ id: "first", type: "append", entries });
      else server.send({ jsonrpc: "2.0", id: `first${n}`, method: "append", params: { entries } });
    // With or without hearing from it first.
    if (random.chance(0.5)) await server.next().catch(() => undefined);
  }
  ENDS[way](server);
  await expectGone(pid, way);
}

function isPi(server: SpawnedServer): boolean {
  return server.process.spawnargs.includes("rpc");
}
