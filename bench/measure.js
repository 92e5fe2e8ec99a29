// Shared parts of all measurements: child processes with requests over their streams, medians, and their display.
import { spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** The built program. */
export const program = fileURLToPath(new URL("../dist/bin/pi-session-server.js", import.meta.url));

/** Kilobytes of a process: `VmRSS` now, `VmHWM` at most; undefined where the system does not report them. */
export function readMemory(pid, what) {
  try {
    return Number(new RegExp(`${what}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  } catch {
    return undefined;
  }
}

/** Parses the command line. Each option has the type of its default; one without a default is a text. */
export function parseDefaults(defaults) {
  const options = Object.fromEntries(
    Object.entries(defaults).map(([name, value]) => [
      name,
      { type: typeof value === "boolean" ? "boolean" : "string" },
    ]),
  );
  const { values } = parseArgs({ options });
  const typed = ([name, value]) => [name, typeof defaults[name] === "number" ? Number(value) : value];
  return { ...defaults, ...Object.fromEntries(Object.entries(values).map(typed)) };
}

/** Median, with the lowest and the highest. */
export function toFigure(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, median, high] = [sorted[0], sorted[sorted.length >> 1], sorted[sorted.length - 1]];
  return { median, low, high, runs: sorted.length, values: sorted };
}

/** Spread of a figure: all of it, or the middle half of many measurements, some of which always had to wait. */
function spreadOf({ low, high, values }) {
  const count = values?.length ?? 0;
  return count < 8 ? [low, high] : [values[count >> 2], values[count - 1 - (count >> 2)]];
}

/** Returns true if one figure exceeds another by more than either varies. */
export function isClearlyMore(one, other) {
  return spreadOf(one)[0] > spreadOf(other)[1];
}

/** Bytes kept of a child's output. A longer reply is recognised by its beginning. */
const KEPT = 4 << 20;

/** A child that gets lines and gives lines. `ask` resolves with the reply lines to as many lines as it sends. */
export class Child {
  constructor(node, args, env) {
    this.began = performance.now();
    this.process = spawn(node, args, { env, stdio: ["pipe", "pipe", "ignore"] });
    this.process.stdin.on("error", () => {});
    this.wanted = 0;
    this.chunks = [];
    this.bytes = 0;
    this.gone = new Promise((resolve) => this.process.on("close", resolve));
    this.process.stdout.on("data", (chunk) => this.take(chunk));
    void this.gone.then(() => this.fail?.(new Error("the process ended before it had answered")));
  }

  take(chunk) {
    this.bytes += chunk.length;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) {
      this.wanted--;
      this.onReply?.();
    }
    if (this.keeps && this.bytes <= KEPT) this.chunks.push(chunk);
    if (this.wanted <= 0) this.done?.();
  }

  /** Milliseconds until all replies are there; where `keep` is set, `text` has how they begin. */
  async ask(lines, { keep = false } = {}) {
    this.wanted = lines.length;
    this.keeps = keep;
    this.chunks = [];
    this.bytes = 0;
    const from = performance.now();
    await new Promise((resolve, reject) => {
      this.done = resolve;
      this.fail = reject;
      this.process.stdin.write(`${lines.join("\n")}\n`);
    });
    const took = performance.now() - from;
    this.done = undefined;
    this.text = keep ? Buffer.concat(this.chunks).toString() : "";
    return took;
  }

  /** Milliseconds for `total` requests, with `outstanding` under way at any time. */
  async keepAsking(total, outstanding, line) {
    let sent = 0;
    let got = 0;
    const from = performance.now();
    await new Promise((resolve, reject) => {
      this.fail = reject;
      const send = (count) => {
        let text = "";
        for (let n = 0; n < count && sent < total; n++) text += `${line(sent++)}\n`;
        if (text !== "") this.process.stdin.write(text);
      };
      this.onReply = () => {
        got++;
      };
      this.wanted = Number.POSITIVE_INFINITY;
      const take = () => {
        if (got >= total) resolve();
        else send(got + outstanding - sent);
      };
      this.process.stdout.on("data", take);
      send(outstanding);
    });
    this.onReply = undefined;
    return performance.now() - from;
  }

  /** The result of one request in JSON-RPC, undefined when it is a very large one. Throws when it is an error. */
  async result(method, params) {
    const took = await this.ask([makeRequest("r", method, params)], { keep: true });
    // Events stand behind the reply.
    const line = this.text.split("\n").find((line) => line.startsWith('{"jsonrpc":"2.0","id":"r",'));
    if (!line?.startsWith('{"jsonrpc":"2.0","id":"r","result":')) throw new Error(`${method}: ${line?.slice(0, 2000)}`);
    return { result: this.bytes > KEPT ? undefined : JSON.parse(line).result, took };
  }

  /** Megabytes: `VmRSS` now, `VmHWM` at most. */
  memory(what) {
    const kilobytes = readMemory(this.process.pid, what);
    return kilobytes && kilobytes / 1000;
  }

  async end() {
    this.fail = undefined;
    this.process.stdin.end();
    const late = setTimeout(() => this.process.kill("SIGKILL"), 5000);
    await this.gone;
    clearTimeout(late);
  }
}

/** Drops the pages of a file from the cache; false where the system cannot. */
export function dropPages(file) {
  const { status } = spawnSync("dd", [`if=${file}`, "iflag=nocache", "count=0", "status=none"]);
  return process.platform === "linux" && status === 0;
}

/** A script that answers each line at once: what a host waits for in any case. */
export const ECHO = `process.stdin.setEncoding("utf8");let rest="";process.stdin.on("data",(chunk)=>{rest+=chunk;let out="";let from=0;for(let end;(end=rest.indexOf("\\n",from))>=0;from=end+1){const m=JSON.parse(rest.slice(from,end));out+=JSON.stringify({jsonrpc:"2.0",id:m.id,result:{}})+"\\n"}rest=rest.slice(from);process.stdout.write(out)})`;

export const makeRequest = (id, method, params = {}) => JSON.stringify({ jsonrpc: "2.0", id, method, params });

/** Runs a script in a fresh process and answers the JSON it prints; undefined when it fails. */
export function runFresh(node, args, env) {
  return new Promise((resolve) => {
    const child = spawn(node, args, { env, stdio: ["ignore", "pipe", "ignore"] });
    let out = "";
    child.stdout.on("data", (chunk) => {
      out += chunk;
    });
    child.on("close", (status) => {
      const last = out.trimEnd().split("\n").at(-1);
      try {
        resolve(status === 0 ? JSON.parse(last) : undefined);
      } catch {
        resolve(undefined);
      }
    });
  });
}

export const formatNumber = (value) =>
  value === undefined || value === null || Number.isNaN(value)
    ? "-"
    : value >= 100
      ? value.toFixed(0)
      : value >= 10
        ? value.toFixed(1)
        : value.toFixed(2);

/** A number with a comma between thousands. */
export const counted = new Intl.NumberFormat("en").format;

/** A table as Markdown has it. */
export function formatTable(head, rows) {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column].length)));
  const line = (cells) => `| ${cells.map((cell, column) => cell.padEnd(widths[column])).join(" | ")} |`;
  return [line(head), `|${widths.map((width) => "-".repeat(width + 2)).join("|")}|`, ...rows.map(line)].join("\n");
}
