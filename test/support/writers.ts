/**
 * Several writers on one session file, killed at random: two servers of ours, or one and a program that knows no
 * lock. What was acknowledged is there, what came from others was announced, and no leaf was left silently.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, onTestFinished } from "vitest";
import { isMarker } from "./proof.ts";
import type { Random } from "./random.ts";
import { type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

/** What the writers did, for whoever reads the run. */
type Written = {
  appends: number;
  acknowledged: number;
  /** Refused because the other held the lock. */
  locked: number;
  kills: number;
  foreign: number;
  /** Lines of the other program that one of ours came in the middle of, or that it never finished. */
  torn: number;
};

/** One life of a server: what it told its host. */
class Life {
  readonly server: SpawnedServer;
  private readonly known = new Set<string>();
  /** Every leaf that was told, in order. */
  private readonly leaves: (string | null)[] = [];
  private told = 0;

  constructor(server: SpawnedServer) {
    this.server = server;
  }

  static async start(place: Place, file: string): Promise<Life> {
    // Two of ours exclude each other here; those that share a session are in sharing.ts.
    const life = new Life(spawnServer(["--session", file, "--attach", "off"], "lines", place));
    const { entries, leafId } = await life.server.result("get_entries");
    for (const { id } of entries) life.known.add(id);
    life.leaves.push(leafId);
    life.heed();
    return life;
  }

  get pid(): number {
    return this.server.process.pid as number;
  }

  /** Takes in what was told since the last call. */
  heed(): void {
    const { events } = this.server;
    for (; this.told < events.length; this.told++) {
      const { method, params } = events[this.told];
      if (method !== "session_append") continue;
      for (const id of params.entryIds) this.known.add(id);
      if (params.origin === "foreign") expect(params.entries.map(({ id }: Json) => id)).toEqual(params.entryIds);
      this.leaves.push(params.leafId);
    }
  }

  /** All entries were there at the start or announced, and every leaf that was told is on the path of the last. */
  async check(): Promise<void> {
    const { entries, leafId } = await this.server.result("get_entries");
    this.heed();
    expect(new Set(entries.map(({ id }: Json) => id))).toEqual(this.known);
    expect(this.leaves.at(-1)).toBe(leafId);
    // More may be announced before this is answered.
    const path = new Set((await this.server.result("get_path")).entries.map(({ id }: Json) => id));
    this.heed();
    expect(this.leaves.filter((id) => id !== null && !path.has(id))).toEqual([]);
  }
}

let ids = 0;

function draft(random: Random, id: string): Json {
  const text = random.hex(random.chance(0.05) ? 20_000 : 20);
  return { type: "message", id, message: { role: "user", content: text } };
}

/** Sends appends without waiting, then waits for all answers or kills at one of them; answers what was acknowledged. */
async function burst(life: Life, random: Random, fate: "stay" | "kill" | "end", sums: Written): Promise<string[]> {
  const { server } = life;
  const requests: { id: string; entryIds: string[] }[] = [];
  const first = random.int(4);
  for (let n = 0; n <= first; n++) {
    const entryIds = Array.from({ length: random.chance(0.8) ? 1 : 3 }, () => `ours-${++ids}`);
    const entries = entryIds.map((id) => draft(random, id));
    requests.push({ id: `r${ids}`, entryIds });
    server.send({ jsonrpc: "2.0", id: `r${ids}`, method: "append", params: { entries } });
  }
  sums.appends += requests.length;
  const killAt = fate === "kill" ? random.int(requests.length + 1) : -1;
  const acknowledged: string[] = [];
  for (const [index, { id, entryIds }] of requests.entries()) {
    if (index === killAt) server.process.kill("SIGKILL");
    // A server that is dead may have answered before it died.
    const reply = await server.reply(id).catch(() => undefined);
    if (reply === undefined) break;
    if (reply.result) acknowledged.push(...entryIds);
    else {
      expect(reply.error.data).toMatchObject({ name: "session_locked", retryable: true });
      expect(reply.error.data.holder.pid).not.toBe(life.pid);
      sums.locked++;
    }
  }
  life.heed();
  if (fate === "stay") await life.check();
  else if (fate === "end") expect((await server.finish()).status).toBe(0);
  else {
    server.process.kill("SIGKILL");
    await server.exit;
    sums.kills++;
  }
  sums.acknowledged += acknowledged.length;
  return acknowledged;
}

function fateOf(random: Random): "stay" | "kill" | "end" {
  return random.chance(0.3) ? "kill" : random.chance(0.15) ? "end" : "stay";
}

async function newSession(place: Place, store: "jsonl" | "v2"): Promise<string> {
  const server = spawnServer(["--store", store], "lines", place);
  const { sessionFile } = await server.result("get_state");
  await server.result("append", { entries: [{ type: "custom", customType: "first", id: "first" }] });
  await server.finish();
  return sessionFile;
}

/** Two servers of ours append side by side until so many entries were acknowledged. */
export async function twoServers(random: Random, wanted: number, store: "jsonl" | "v2" = "jsonl"): Promise<Written> {
  const place = temporaryPlace();
  const file = await newSession(place, store);
  const sums: Written = { appends: 0, acknowledged: 0, locked: 0, kills: 0, foreign: 0, torn: 0 };
  const acknowledged: string[] = ["first"];
  const lives: (Life | null)[] = [null, null];
  while (acknowledged.length < wanted) {
    for (const i of [0, 1]) lives[i] ??= await Life.start(place, file);
    const done = await Promise.all(
      lives.map(async (life, i) => {
        const fate = fateOf(random);
        const ours = await burst(life as Life, random, fate, sums);
        if (fate !== "stay") lives[i] = null;
        return ours;
      }),
    );
    acknowledged.push(...done.flat());
  }
  for (const life of lives) life?.server.process.kill("SIGKILL");
  for (const life of lives) await life?.server.exit;
  const { entries, leafId } = await readBy(place, file);
  // Whoever wrote saw what the other had written: it is one chain.
  for (const [index, entry] of entries.entries()) expect(entry.parentId).toBe(entries[index - 1]?.id ?? null);
  expect(leafId).toBe(entries.at(-1).id);
  expectAll(entries, acknowledged);
  return sums;
}

/** As programs do that know no lock: its own leaf in mind, it appends lines, at times in two writes. */
const FOREIGN = `
const { appendFileSync, readFileSync } = require("node:fs");
const [file, prefix, seed, base] = process.argv.slice(1);
let state = Number(seed), leaf = base, n = 0;
const random = () => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0), state / 2 ** 32);
function next() {
  const id = prefix + "-" + ++n;
  // At times it looks what others wrote, as a program does that is started again.
  if (random() < 0.2)
    for (const line of readFileSync(file, "utf8").split("\\n"))
      try { const e = JSON.parse(line); if (e.type !== "session") leaf = e.id; } catch {}
  const line = JSON.stringify({ type: "message", id, parentId: leaf, timestamp: "2026-01-24T16:22:26.831Z",
    message: { role: "user", content: "f".repeat(random() < 0.05 ? 20000 : 20) } }) + "\\n";
  leaf = id;
  process.stdout.write("begin " + id + "\\n");
  if (random() < 0.7) {
    appendFileSync(file, line);
    process.stdout.write("done " + id + "\\n");
    return setTimeout(next, random() * 12);
  }
  const cut = 1 + Math.floor(random() * (line.length - 1));
  appendFileSync(file, line.slice(0, cut));
  setTimeout(() => {
    appendFileSync(file, line.slice(cut));
    process.stdout.write("done " + id + "\\n");
    setTimeout(next, random() * 12);
  }, random() * 8);
}
next();
`;

class ForeignWriter {
  readonly process: ChildProcess;
  readonly done: string[] = [];
  readonly begun: string[] = [];
  private readonly exit: Promise<void>;

  constructor(file: string, prefix: string, random: Random, base: string) {
    const args = ["-e", FOREIGN, file, prefix, String(random.int(1 << 30)), base];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
      const lines = text.split("\n");
      text = lines.pop() as string;
      for (const line of lines) {
        const [what, id] = line.split(" ");
        (what === "done" ? this.done : this.begun).push(id);
      }
    });
    this.process = child;
    this.exit = new Promise((resolve) => child.on("close", () => resolve()));
    onTestFinished(() => {
      child.kill("SIGKILL");
    });
  }

  async kill(): Promise<void> {
    this.process.kill("SIGKILL");
    await this.exit;
  }
}

/** One server of ours and a program without locks, both killed at random, until so many entries were acknowledged. */
export async function withForeignWriter(random: Random, wanted: number): Promise<Written> {
  const place = temporaryPlace();
  const file = await newSession(place, "jsonl");
  const sums: Written = { appends: 0, acknowledged: 0, locked: 0, kills: 0, foreign: 0, torn: 0 };
  const acknowledged: string[] = ["first"];
  const finished: ForeignWriter[] = [];
  let life: Life | null = null;
  let foreign = new ForeignWriter(file, "theirs-0", random, "first");
  while (acknowledged.length < wanted) {
    life ??= await Life.start(place, file);
    const fate = fateOf(random);
    acknowledged.push(...(await burst(life, random, fate, sums)));
    if (fate !== "stay") life = null;
    if (random.chance(0.1)) {
      await foreign.kill();
      sums.kills++;
      finished.push(foreign);
      foreign = new ForeignWriter(file, `theirs-${finished.length}`, random, random.pick(acknowledged));
    }
  }
  await foreign.kill();
  finished.push(foreign);
  life?.server.process.kill("SIGKILL");
  await life?.server.exit;
  const { entries } = await readBy(place, file);
  expectAll(entries, acknowledged);
  const begun = finished.flatMap((writer) => writer.begun);
  const torn = expectWholeLines(file, begun);
  sums.torn = torn.size;
  sums.foreign = finished.reduce((sum, { done }) => sum + done.length, 0);
  expectAll(
    entries,
    finished.flatMap(({ done }) => done).filter((id) => !torn.has(id)),
  );
  return sums;
}

/** What a fresh server finds. */
async function readBy(place: Place, file: string): Promise<{ entries: Json[]; leafId: string }> {
  const server = spawnServer(["--session", file, "--events", "none"], "lines", place);
  const { entries, leafId } = await server.result("get_entries");
  await server.finish();
  return { entries: entries.filter((entry: Json) => !isMarker(entry)), leafId };
}

function expectAll(entries: readonly Json[], ids: readonly string[]): void {
  const there = new Set(entries.map(({ id }) => id));
  expect(ids.filter((id) => !there.has(id))).toEqual([]);
}

/**
 * Every line is whole but for what was left of writes that were killed or came in two parts; answers the ids of
 * those. Of our own, only a write that was killed in its middle can be torn, and nothing was acknowledged of it.
 */
function expectWholeLines(file: string, foreign: readonly string[]): Set<string> {
  const whole = new Set<string>();
  for (const line of readFileSync(file, "utf8").split("\n"))
    try {
      whole.add(JSON.parse(line).id);
    } catch {
      // Told by its absence.
    }
  return new Set(foreign.filter((id) => !whole.has(id)));
}
