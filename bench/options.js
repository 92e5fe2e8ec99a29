// Parses the command line of run.js, whose head lists the options, and makes the folder for all files of a run.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

export const root = fileURLToPath(new URL("..", import.meta.url));
export const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: "boolean", default: false },
    runs: { type: "string" },
    rows: { type: "string", default: "" },
    million: { type: "boolean", default: false },
    shapes: { type: "boolean", default: false },
    figures: { type: "boolean", default: false },
    readme: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
    from: { type: "string" },
    into: { type: "string", default: root },
    pi: { type: "boolean", default: false },
    node: { type: "string" },
    pi073: { type: "string" },
    pi15: { type: "string" },
    before: { type: "string" },
    standalone: { type: "string" },
    growth: { type: "boolean", default: false },
    compare: { type: "boolean", default: false },
    program: { type: "string", default: join(root, "dist/bin/pi-session-server.js") },
    library: { type: "string", default: join(root, "dist/lib/index.js") },
  },
});
export const { quick, million } = options;
export const runs = Number(options.runs ?? (quick ? 1 : 5));
/** Pi takes seconds where we take milliseconds. */
export const piRuns = Math.min(runs, 3);
export const node = process.execPath;
const program = resolve(options.program);
const library = resolve(options.library);

export const home = mkdtempSync(join(tmpdir(), "pi-session-server-bench-"));
export const env = {
  ...process.env,
  HOME: home,
  XDG_CACHE_HOME: join(home, "cache"),
  NODE_OPTIONS: "",
};
/** The build that is measured, and where it keeps its state. */
export const built = { name: "ours", program, library, state: join(home, "state") };
for (const name of ["PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "PI_SESSIONS_DIR"]) delete env[name];
