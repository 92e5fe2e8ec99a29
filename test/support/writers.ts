/**
 * Several writers on one session file, killed at random: two servers of ours, or one and a program that knows no
 * lock. What was acknowledged is there, what came from others was announced, and no leaf was left silently.
 */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { expect, onTestFinished } from "vitest";
import { user } from "./drafts.ts";
import { isMarker } from "./proof.ts";
import type { Random } from "./random.ts";
import { type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

/**
 * What the writers did: `locked` were refused because the other held the lock, `torn` are lines of the other program that
 * one of ours came in the middle of, or that it never finished.
 */
type Written = Record<"appends" | "acknowledged" | "locked" | "kills" | "foreign" | "torn", number>;

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

/**
 * Sends appends without waiting, then waits for all answers or kills at one of them. Returns what was acknowledged, and the
 * server if it lives.
 */
async function burst(life: Life, random: Random, sums: Written): Promise<[string[], Life | null]> {
  const { server } = life;
  const fate = random.chance(0.3) ? "kill" : random.chance(0.15) ? "end" : "stay";
  const requests: { id: string; entryIds: string[] }[] = [];
  const first = random.int(4);
  for (let n = 0; n <= first; n++) {
    const entryIds = Array.from({ length: random.chance(0.8) ? 1 : 3 }, () => `ours-${++ids}`);
    const entries = entryIds.map((id) => user(random.hex(random.chance(0.05) ? 20_000 : 20), { id }));
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
      expect(reply.error.data.holder.pid).not.toBe(server.process.pid);
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
  return [acknowledged, fate === "stay" ? life : null];
}

/** A new session with one entry, of which nothing else is known. */
async function begin(store: "jsonl" | "v2") {
  const place = temporaryPlace();
  const server = spawnServer(["--store", store], "lines", place);
  const { sessionFile: file } = await server.result("get_state");
  await server.result("append", { entries: [{ type: "custom", customType: "first", id: "first" }] });
  await server.finish();
  const sums: Written = { appends: 0, acknowledged: 0, locked: 0, kills: 0, foreign: 0, torn: 0 };
  return { place, file: file as string, sums, acknowledged: ["first"] };
}

async function killed(lives: readonly (Life | null)[]): Promise<void> {
  for (const life of lives) life?.server.process.kill("SIGKILL");
  for (const life of lives) await life?.server.exit;
}

/** Two servers of ours append side by side until so many entries were acknowledged. */
export async function twoServers(random: Random, wanted: number, store: "jsonl" | "v2" = "jsonl"): Promise<Written> {
  const { place, file, sums, acknowledged } = await begin(store);
  let lives: (Life | null)[] = [null, null];
  while (acknowledged.length < wanted) {
    const both: Life[] = [];
    for (const life of lives) both.push(life ?? (await Life.start(place, file)));
    const done = await Promise.all(both.map((life) => burst(life, random, sums)));
    acknowledged.push(...done.flatMap(([ours]) => ours));
    lives = done.map(([, life]) => life);
  }
  await killed(lives);
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
  readonly done: string[] = [];
  readonly begun: string[] = [];
  readonly kill: () => Promise<void>;

  constructor(file: string, prefix: string, random: Random, base: string) {
    const args = ["-e", FOREIGN, file, prefix, String(random.int(1 << 30)), base];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    createInterface({ input: child.stdout }).on("line", (line) => {
      const [what, id] = line.split(" ");
      (what === "done" ? this.done : this.begun).push(id);
    });
    const exit = new Promise<void>((resolve) => child.on("close", () => resolve()));
    this.kill = () => {
      child.kill("SIGKILL");
      return exit;
    };
    onTestFinished(() => void child.kill("SIGKILL"));
  }
}

/** One server of ours and a program without locks, both killed at random, until so many entries were acknowledged. */
export async function withForeignWriter(random: Random, wanted: number): Promise<Written> {
  const { place, file, sums, acknowledged } = await begin("jsonl");
  const writers = [new ForeignWriter(file, "theirs-0", random, "first")];
  let life: Life | null = null;
  while (acknowledged.length < wanted) {
    const [ours, next] = await burst(life ?? (await Life.start(place, file)), random, sums);
    acknowledged.push(...ours);
    life = next;
    if (!random.chance(0.1)) continue;
    await writers.at(-1)?.kill();
    sums.kills++;
    writers.push(new ForeignWriter(file, `theirs-${writers.length}`, random, random.pick(acknowledged)));
  }
  await writers.at(-1)?.kill();
  await killed([life]);
  const { entries } = await readBy(place, file);
  expectAll(entries, acknowledged);
  const done = writers.flatMap((writer) => writer.done);
  // What was left of writes that were killed or came in two parts is no line. Of our own, only a write that was killed in
  // its middle can be torn, and nothing was acknowledged of it.
  const whole = wholeIn(file);
  const torn = new Set(writers.flatMap((writer) => writer.begun).filter((id) => !whole.has(id)));
  expectAll(
    entries,
    done.filter((id) => !torn.has(id)),
  );
  return { ...sums, torn: torn.size, foreign: done.length };
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

/** Returns the ids of the lines that are whole. */
function wholeIn(file: string): Set<string> {
  const whole = new Set<string>();
  for (const line of readFileSync(file, "utf8").split("\n"))
    try {
      whole.add(JSON.parse(line).id);
    } catch {
      // Told by its absence.
    }
  return whole;
}
