/** Turns of an agent behind a server, while the server, the agent and the client are killed at random. */

import { join } from "node:path";
import { expect } from "vitest";
import { lives, pidOf, piLike, spawnWithAgent } from "./agents.ts";
import type { Random } from "./random.ts";
import { type Json, type SpawnedServer, temporaryPlace } from "./server.ts";

/** Milliseconds after which something that was waited for counts as hanging. */
const HANGING = 60_000;

export interface Recorded {
  readonly turns: number;
  /** Messages whose end the client was shown. */
  readonly shown: number;
  readonly servers: number;
  readonly agents: number;
  readonly clients: number;
}

/** A message as it is told apart from all others. */
const keyOf = ({ role, timestamp, content }: Json): string => JSON.stringify([role, timestamp, content]);

/** Rejects where a promise takes so long that it counts as hanging. */
export async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} hangs`)), HANGING);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Has so many turns on one session. What was shown as finished must be in it once, and nothing twice. */
export async function recordAtRandom(random: Random, turns: number): Promise<Recorded> {
  const place = temporaryPlace();
  const file = join(place.home, "recorded.jsonl");
  const shown = new Set<string>();
  const killed = { servers: 0, agents: 0, clients: 0 };
  let done = 0;
  let server: SpawnedServer | undefined;
  let agent = 0;
  while (done < turns) {
    if (!server) {
      server = spawnWithAgent(piLike(), ["--session", file], place);
      agent = await inTime("the start of an agent", pidOf(server));
    }
    const victim = random.chance(0.4) ? random.pick(["servers", "agents", "clients"] as const) : undefined;
    const wish = `turn ${done} tools ${random.int(3)} chunks ${1 + random.int(40)}${random.chance(0.3) ? " every 1" : ""}`;
    const text = random.chance(0.1) ? `${wish} die after ${1 + random.int(5)}` : wish;
    done++;
    const strikesAfter = victim === undefined ? Number.POSITIVE_INFINITY : random.int(60);
    const survived = await inTime(
      `turn ${done} (${text}, ${victim})`,
      oneTurn(server, text, shown, strikesAfter, () => strike(victim, server as SpawnedServer, agent)),
    );
    if (victim !== undefined && survived.struck) killed[victim]++;
    // The end of the turn may have been on its way when the server was killed.
    const isDoomed = survived.struck && victim !== "agents";
    if (survived.lives && !isDoomed) {
      if (!lives(agent)) agent = await inTime("the next agent", pidOf(server));
      continue;
    }
    await inTime("the end of a server", server.exit);
    server = undefined;
    const pid = agent;
    await inTime("the end of an agent", gone(pid));
  }
  await server?.finish();
  await check(file, place, shown);
  return { turns: done, shown: shown.size, ...killed };
}

async function gone(pid: number): Promise<void> {
  while (lives(pid)) await new Promise((resolve) => setTimeout(resolve, 1));
}

function strike(victim: "servers" | "agents" | "clients" | undefined, server: SpawnedServer, agent: number): void {
  if (victim === "servers") server.process.kill("SIGKILL");
  if (victim === "agents" && lives(agent)) process.kill(agent, "SIGKILL");
  // The pipes of a client that is killed are closed at once.
  if (victim === "clients") for (const stream of [server.process.stdin, server.process.stdout]) stream.destroy();
}

/** Prompts, and notes what is shown until the turn has ended or the server has. */
async function oneTurn(
  server: SpawnedServer,
  message: string,
  shown: Set<string>,
  strikesAfter: number,
  kill: () => void,
): Promise<{ lives: boolean; struck: boolean }> {
  let left = strikesAfter;
  let struck = false;
  const count = (): void => {
    if (left-- > 0 || struck) return;
    struck = true;
    kill();
  };
  server.send({ id: message, type: "prompt", message });
  count();
  try {
    for (let isAnswered = false, isOver = false; !isAnswered || !isOver; ) {
      const said = await server.next();
      count();
      if (said.type === "message_end") shown.add(keyOf(said.message));
      if (said.id === message) {
        expect(isAnswered).toBe(false);
        isAnswered = true;
        // A prompt that the agent never had begins no turn.
        if (!said.success) isOver = true;
      }
      if (said.type === "agent_settled") isOver = true;
    }
    return { lives: true, struck };
  } catch (error) {
    if (!/ended its output/.test((error as Error).message)) throw error;
    return { lives: false, struck };
  }
}

async function check(
  file: string,
  place: ReturnType<typeof temporaryPlace>,
  shown: ReadonlySet<string>,
): Promise<void> {
  const reader = spawnWithAgent(piLike(), ["--session", file], place);
  const { data } = await reader.command("get_entries");
  const { data: verified } = await reader.command("verify_session");
  await reader.finish();
  const counts = new Map<string, number>();
  for (const { type, message } of data.entries)
    if (type === "message") counts.set(keyOf(message), (counts.get(keyOf(message)) ?? 0) + 1);
  expect([...shown].filter((key) => !counts.has(key))).toEqual([]);
  expect([...counts].filter(([, count]) => count > 1)).toEqual([]);
  const harmless = new Set(["torn_tail", "extra_header"]);
  expect(verified.damage.filter(({ kind }: Json) => !harmless.has(kind))).toEqual([]);
}
