/** Scripted agents in this process: streams take the place of their process, and each has a world of its own. */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { EventEmitter } from "node:events";
import { readFileSync } from "node:fs";
import { PassThrough, type Readable, type Writable } from "node:stream";
import { createContext, Script } from "node:vm";
import type { AgentPatience, SpawnAgent } from "../../src/server/agents-module.ts";

type Handle = NodeJS.Timeout | NodeJS.Immediate;

/** The compiled script of each text that was started. */
const scripts = new Map<string, Script>();
/** Bytes that come through a pipe at once. */
const PIPE = 1 << 16;
/** No process has an id beyond it. */
let ids = 2 ** 30;

function scriptOf(file: string): Script {
  const text = readFileSync(file, "utf8").replace(
    /^\s*import (\{[^}]*\}) from ("node:[^"]+");/gm,
    "const $1 = process.getBuiltinModule($2);",
  );
  const script = scripts.get(text) ?? new Script(`(async () => {${text}\n})()`, { filename: file });
  scripts.set(text, script);
  return script;
}

class AgentHere extends EventEmitter {
  readonly pid = ++ids;
  readonly stdin = new PassThrough();
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  private readonly signals = new EventEmitter();
  private readonly pending = new Set<Handle>();
  private isDead = false;

  constructor(argv: string[], env: NodeJS.ProcessEnv | undefined) {
    super();
    const { stdout } = this;
    const write = stdout.write.bind(stdout) as (chunk: Buffer) => boolean;
    stdout.write = ((text: string) => {
      const bytes = Buffer.from(text);
      for (let at = 0; at < bytes.length && !this.isDead; at += PIPE) write(bytes.subarray(at, at + PIPE));
      return !this.isDead && !stdout.writableNeedDrain;
    }) as typeof stdout.write;
    this.stdin.once("end", () => this.endWhenIdle());
    setImmediate(() => this.run(argv, env));
  }

  private run(argv: string[], env: NodeJS.ProcessEnv | undefined): void {
    const { pid, stdin, stdout, stderr, signals } = this;
    const world: Record<string, unknown> = {
      process: {
        ...{ argv, env, pid, stdin, stdout, stderr, execPath: process.execPath },
        getBuiltinModule: (name: string) => process.getBuiltinModule(name),
        on: (signal: string, act: () => void) => void signals.on(signal, act),
        exit: (status = 0) => this.die(status, null),
        kill: (to: number, signal: NodeJS.Signals) => (to === pid ? this.kill(signal) : process.kill(to, signal)),
      },
      console: {
        log: (text: string) => stdout.write(`${text}\n`),
        error: (text: string) => stderr.write(`${text}\n`),
      },
      setTimeout: (work: () => void, milliseconds?: number) => this.later((run) => setTimeout(run, milliseconds), work),
      setInterval: () =>
        this.later(
          (run) => setTimeout(run, 2 ** 30),
          () => {},
        ),
      setImmediate: (work: () => void) => this.later(setImmediate, work),
    };
    if (!this.isDead) void scriptOf(argv[1]).runInContext(createContext(world));
  }

  /** Has something done later, unless the agent is dead before that. */
  private later(begin: (run: () => void) => Handle, work: () => void): void {
    if (this.isDead) return;
    const handle = begin(() => {
      this.pending.delete(handle);
      work();
    });
    this.pending.add(handle);
  }

  /** Ends as a process does that has nothing more to do. */
  private endWhenIdle(): void {
    if (this.isDead) return;
    if (this.pending.size === 0 && !this.stdout.writableNeedDrain) this.die(0, null);
    else setImmediate(() => this.endWhenIdle());
  }

  kill(signal: NodeJS.Signals): boolean {
    if (this.isDead || (signal !== "SIGKILL" && this.signals.emit(signal))) return true;
    this.die(null, signal);
    return true;
  }

  private die(status: number | null, signal: NodeJS.Signals | null): void {
    if (this.isDead) return;
    this.isDead = true;
    for (const handle of this.pending) {
      clearTimeout(handle as NodeJS.Timeout);
      clearImmediate(handle as NodeJS.Immediate);
    }
    const { stdin, stdout, stderr } = this;
    const closed = [stdout, stderr].map((stream) => new Promise((resolve) => stream.once("close", resolve)));
    setImmediate(() => {
      this.emit("exit", status, signal);
      stdin.destroy();
      stdout.end();
      stderr.end();
    });
    void Promise.all(closed).then(() => this.emit("close", status, signal));
  }
}

/** Starts a script of Node in this process, and everything else as a process. */
const spawnHere: SpawnAgent = (program, args, options) => {
  const isScript = program === process.execPath && /\.m?js$/.test(args[0] ?? "");
  if (!isScript) return spawn(program, args, options);
  const child: unknown = new AgentHere([program, ...args], options.env);
  return child as ChildProcessByStdio<Writable, Readable, Readable>;
};

const patience: AgentPatience = { terminatedAfter: 50, killedAfter: 120, outputEndsWithin: 50 };

/** Options of a server whose agents are in this process; it does not wait for agents that do not end. */
export const HERE = { spawn: spawnHere, patience };

/** For a server whose agents are processes. */
export const PROCESS = { patience };
