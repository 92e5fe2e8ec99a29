// Where replies cannot be faster: each beside a program that only sends as many bytes, made beforehand, for a request. It
// reads no session and knows no JSON but the id; what is left is the pipe, the host that reads it, and Node.
//
//   node bench/floor.js [--runs 9] [--large] [--program <file>]
//
//   --large     also 100,000 entries
//   --program   another build: its dist/bin/pi-session-server.js
import { mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { writeSession } from "./generate.js";
import { Child, figure, request, shown, table } from "./measure.js";
import { piRequest } from "./pi.js";

const { values: options } = parseArgs({
  options: {
    runs: { type: "string", default: "9" },
    large: { type: "boolean", default: false },
    program: {
      type: "string",
      default: fileURLToPath(new URL("../dist/bin/pi-session-server.js", import.meta.url)),
    },
  },
});
const home = mkdtempSync(join(tmpdir(), "pi-session-server-floor-"));
const env = { ...process.env, HOME: home, PI_SESSION_SERVER_STATE_DIR: join(home, "state"), NODE_OPTIONS: "" };

/** Answers the first line shortly, and each later one with `before`, its id and as many bytes as are wanted. */
const SENDER = `
  const [before, length] = process.argv.slice(1);
  const block = Buffer.alloc(Math.min(Number(length), 1 << 18), "x");
  const after = Number(length) <= block.length ? block.toString() + "\\n" : "";
  let asked = 0, rest = "";
  process.stdin.setEncoding("utf8").on("data", (chunk) => {
    rest += chunk;
    let out = "", from = 0;
    for (let end; (end = rest.indexOf("\\n", from)) >= 0; from = end + 1) {
      const { id } = JSON.parse(rest.slice(from, end));
      if (asked++ === 0) out += JSON.stringify(id) + "\\n";
      else if (after !== "") out += before + JSON.stringify(id) + after;
      else {
        for (let left = Number(length); left > 0; left -= block.length) process.stdout.write(block.subarray(0, left));
        out += "\\n";
      }
    }
    rest = rest.slice(from);
    process.stdout.write(out);
  });`;

const ours = (...args) => new Child(process.execPath, [options.program, "--events", "none", ...args], env);
const sender = (bytes) => new Child(process.execPath, ["-e", SENDER, '{"id":', String(bytes)], env);

async function using(child, measure) {
  try {
    return await measure(child);
  } finally {
    await child.end();
  }
}

/** Milliseconds of a request after the first, and the bytes of its reply. */
const once = (child, method, params) =>
  using(child, async (asked) => {
    await asked.ask([request(0, "get_state")]);
    const took = await asked.ask([request(1, method, params)]);
    return { value: took, bytes: asked.bytes };
  });

/** Thousands of requests a second. */
const pipelined = (child, line) =>
  using(child, async (asked) => {
    await asked.ask([line(0)]);
    await asked.ask([line(1)]);
    const { bytes } = asked;
    const total = 200_000;
    return { value: total / (await asked.keepAsking(total, 1000, line)), bytes };
  });

const file = (shape, count) => {
  const path = join(home, `${shape}-${count}.jsonl`);
  writeSession(path, count, shape);
  return path;
};

function* rows() {
  for (const [name, line] of [
    ["JSON-RPC", (id) => request(id, "get_state")],
    ["Pi's dialect", (id) => piRequest(id, "get_state")],
  ])
    yield {
      what: `get_state, 1,000 outstanding, ${name}`,
      unit: "k/s",
      ours: () => pipelined(ours("--no-session"), line),
      floor: (bytes) => pipelined(sender(bytes - 12), line),
    };
  const small = file("realistic", 1000);
  const whole = file("whole", 10_000);
  const asked = [
    ["first context, 1,000 entries", small, "get_messages", {}],
    ["get_fork_messages, 1,000 entries", small, "get_fork_messages", {}],
    ["get_messages, 25 MB", whole, "get_messages", {}],
    ["get_tree nested, 25 MB", whole, "get_tree", { format: "nested" }],
  ];
  if (options.large) {
    const lean = file("lean", 100_000);
    asked.push(
      ["get_fork_messages, 100,000 entries", lean, "get_fork_messages", {}],
      ["get_tree flat, 100,000 entries", lean, "get_tree", {}],
    );
  }
  for (const [what, session, method, params] of asked)
    yield {
      what,
      unit: "ms",
      ours: () => once(ours("--session", session, "--read-only"), method, params),
      floor: (bytes) => once(sender(bytes), method, params),
    };
}

try {
  const lines = [];
  const round = (values) => {
    const { median, low, high } = figure(values);
    return `${shown(median)} (${shown(low)}-${shown(high)})`;
  };
  for (const row of rows()) {
    const [own, floor] = [[], []];
    let bytes = 0;
    for (let n = 0; n < Number(options.runs); n++) {
      const measured = await row.ours();
      bytes = measured.bytes;
      own.push(measured.value);
      floor.push((await row.floor(bytes)).value);
    }
    lines.push([row.what, row.unit, String(bytes), round(own), round(floor)]);
  }
  console.log(`Node ${process.version}, load ${loadavg()[0].toFixed(1)}\n`);
  console.log(table(["what", "unit", "bytes of a reply", "ours", "the same bytes alone"], lines));
} finally {
  rmSync(home, { recursive: true, force: true });
}
