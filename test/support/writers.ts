/**
 * Several writers on one session file, killed at random: two servers of ours, or one and a program that knows no lock.
 * Acknowledged entries are there, entries of others were announced, and no leaf was left silently.
 */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { expect, onTestFinished } from "vitest";
import { type Meeting, meet } from "./many-servers.ts";
import type { Random } from "./random.ts";
import type { Json } from "./server.ts";

/** Two of ours exclude each other here; those that share a session are in sharing.ts. */
const EXCLUSIVE = {
  durability: "sync",
  states: "same",
  kills: true,
  attach: "off",
  namespaces: false,
  isChain: true,
} as const;

/** Two servers of ours append side by side until so many entries were acknowledged. */
export function twoServers(random: Random, wanted: number, store: Meeting["store"] = "jsonl") {
  return meet(random, { ...EXCLUSIVE, store, servers: 2, wanted });
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
  private readonly waiting: { count: number; resolve: () => void }[] = [];

  constructor(file: string, prefix: string, random: Random, base: string) {
    const args = ["-e", FOREIGN, file, prefix, String(random.int(1 << 30)), base];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    createInterface({ input: child.stdout }).on("line", (line) => {
      const [what, id] = line.split(" ");
      (what === "done" ? this.done : this.begun).push(id);
      for (const { count, resolve } of this.waiting) if (this.done.length >= count) resolve();
    });
    const exit = new Promise<void>((resolve) => child.on("close", () => resolve()));
    this.kill = () => {
      child.kill("SIGKILL");
      return exit;
    };
    onTestFinished(() => void child.kill("SIGKILL"));
  }

  /** Resolves when so many lines are written. */
  wrote(count: number): Promise<void> {
    return new Promise((resolve) => this.waiting.push({ count, resolve }));
  }
}

/**
 * One server of ours at a time and a program without locks, both killed at random, until so many entries were
 * acknowledged. `torn` are lines of the program that one of ours came in the middle of, or that it never finished.
 */
export async function withForeignWriter(random: Random, wanted: number) {
  const writers: ForeignWriter[] = [];
  const torn = new Set<string>();
  const other: Meeting["other"] = (file, ids) => {
    let isOver = false;
    let finish = (): void => {};
    const over = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const running = (async () => {
      while (!isOver) {
        const writer = new ForeignWriter(file, `theirs-${writers.length}`, random, random.pick(ids));
        writers.push(writer);
        await Promise.race([over, writer.wrote(5 + random.int(60))]);
        await writer.kill();
      }
    })();
    return {
      begun: writers[0].wrote(1),
      end() {
        isOver = true;
        finish();
        return running;
      },
      check(entries) {
        // The rest of a killed write, or of one that came in two parts, is no line. Of our own, only a write that was
        // killed in its middle can be torn, and nothing of it was acknowledged.
        const whole = wholeIn(file);
        for (const id of writers.flatMap(({ begun }) => begun)) if (!whole.has(id)) torn.add(id);
        const there = new Set(entries.map(({ id }: Json) => id));
        const done = writers.flatMap((writer) => writer.done);
        expect(done.filter((id) => !torn.has(id) && !there.has(id))).toEqual([]);
      },
    };
  };
  const sums = await meet(random, { ...EXCLUSIVE, store: "jsonl", servers: 1, wanted, other });
  const foreign = writers.reduce((sum, { done }) => sum + done.length, 0);
  return { ...sums, kills: sums.kills + writers.length - 1, foreign, torn: torn.size };
}

/** Returns the ids of the lines that are whole. */
function wholeIn(file: string): Set<string> {
  const whole = new Set<string>();
  for (const line of readFileSync(file, "utf8").split("\n"))
    try {
      whole.add(JSON.parse(line).id);
    } catch {
      // Its absence says it.
    }
  return whole;
}
