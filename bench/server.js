// A server of the built program whose calls are timed one by one, for benches that make many sessions and ask for them.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { program, readMemory } from "./measure.js";

export class Server {
  /** `given`: options of the server, and `variables` of its environment. */
  constructor(home, { given = ["--no-session"], dialect = "jsonrpc", variables = {} } = {}) {
    const env = { PATH: process.env.PATH, HOME: home, PI_SESSION_SERVER_STATE_DIR: join(home, "state"), ...variables };
    const args = [program, ...given, "--dialect", dialect, "--framing", "lines"];
    this.process = spawn(process.execPath, args, { env, stdio: ["pipe", "pipe", "inherit"] });
    this.waiting = new Map();
    this.progress = 0;
    this.ids = 0;
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      if (message.method === "$/progress") this.progress++;
      this.waiting.get(message.id)?.(message);
    });
  }

  async ask(method, params) {
    const id = ++this.ids;
    const reply = new Promise((resolve) => this.waiting.set(id, resolve));
    const from = performance.now();
    this.process.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    const { result, error } = await reply;
    this.waiting.delete(id);
    if (error) throw Object.assign(new Error(), error, { method });
    return { result, took: performance.now() - from };
  }

  /** Megabytes at most. */
  memory() {
    return Math.round(readMemory(this.process.pid, "VmHWM") / 1024);
  }

  async end() {
    this.process.stdin.end();
    await new Promise((resolve) => this.process.on("close", resolve));
  }
}

export function computePercentile(times, part) {
  const sorted = [...times].sort((a, b) => a - b);
  return Number(sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * part) - 1)].toFixed(2));
}
