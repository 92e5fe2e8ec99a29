// How fast browse is under a person's hands: the built program on a pseudo-terminal, which `script` (util-linux) makes.
//
//   node bench/browse.js [--sessions 10000] [--rounds 5] [--rows 50] [--columns 160] [--home <dir>] [--json]
//
// `--home` is a home that scripts/home.js made; else one is made and removed again. Times are from the byte that is sent
// to the bytes that show it: the first screen from the start of the program, a key from its press. Of keys, the first ten
// come while the whole list is still being read.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    sessions: { type: "string", default: "10000" },
    rounds: { type: "string", default: "5" },
    rows: { type: "string", default: "50" },
    columns: { type: "string", default: "160" },
    home: { type: "string" },
    json: { type: "boolean", default: false },
  },
});
const program = fileURLToPath(new URL("../dist/bin/pi-session-server.js", import.meta.url));
let { home } = options;
if (home === undefined) {
  home = mkdtempSync(join(tmpdir(), "pi-session-server-bench-"));
  process.on("exit", () => rmSync(home, { recursive: true, force: true }));
  const script = fileURLToPath(new URL("../scripts/home.js", import.meta.url));
  const made = spawnSync(process.execPath, [script, home, "--sessions", options.sessions], { stdio: "inherit" });
  if (made.status !== 0) process.exit(1);
}

/** Milliseconds after which something is wrong. */
const LATE = 20_000;

/** browse on a terminal. */
class Terminal {
  constructor() {
    this.seen = "";
    this.begun = performance.now();
    const size = `stty rows ${options.rows} cols ${options.columns}`;
    this.process = spawn("script", ["-qfc", `${size}; exec "${process.execPath}" "${program}" browse`, "/dev/null"], {
      cwd: join(home, "projects", "api"),
      env: {
        PATH: process.env.PATH,
        HOME: home,
        TERM: "xterm-256color",
        PI_SESSION_SERVER_STATE_DIR: join(home, ".local/state/pi-session-server"),
      },
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.process.stdout.on("data", (bytes) => {
      this.seen += bytes;
      if (!this.waiting?.sought.test(this.seen)) return;
      this.waiting.resolve(performance.now());
      this.waiting = undefined;
    });
  }

  /** Resolves to the time at which something is shown. */
  shows(sought) {
    if (sought.test(this.seen)) return Promise.resolve(performance.now());
    return new Promise((resolve, reject) => {
      this.waiting = { sought, resolve };
      const late = () => reject(new Error(`${sought} is not shown, but ${JSON.stringify(this.seen.slice(-2000))}`));
      setTimeout(() => this.waiting?.sought === sought && late(), LATE).unref();
    });
  }

  /** Sends a key; resolves to how long what it does took to be shown. */
  async press(key, sought) {
    this.seen = "";
    const from = performance.now();
    this.process.stdin.write(key);
    return (await this.shows(sought)) - from;
  }

  async end() {
    this.process.stdin.write("\u0003");
    await new Promise((resolve) => this.process.on("close", resolve));
  }
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const times = { firstScreen: [], earlyKey: [], key: [], typed: [], allFolders: [], tree: [] };
const WORD = "timeout";

for (let round = -1; round < Number(options.rounds); round++) {
  const found = { firstScreen: [], earlyKey: [], key: [], typed: [], allFolders: [], tree: [] };
  const terminal = new Terminal();
  found.firstScreen.push((await terminal.shows(/1 of [\d,]+/)) - terminal.begun);
  // The whole list may put originals of forks above, so the number of the row is not known.
  const place = /\d of [\d,]+/;
  for (let n = 2; n < 12; n++) found.earlyKey.push(await terminal.press("j", place));
  await pause(1500);
  for (let n = 12; n < 40; n++) {
    found.key.push(await terminal.press("j", place));
    // Sometimes as fast as a held key, sometimes so slowly that the preview comes in between.
    await pause(n % 2 === 0 ? 5 : 90);
  }
  await terminal.press("/", /Filter: _/);
  for (let n = 1; n <= WORD.length; n++) {
    found.typed.push(await terminal.press(WORD[n - 1], new RegExp(`Filter: ${WORD.slice(0, n)}_`)));
    await pause(n % 2 === 0 ? 30 : 180);
  }
  await pause(500);
  await terminal.press("\u001b", /Sessions of ~/);
  await pause(300);
  found.allFolders.push(await terminal.press("\t", /1 of [\d,]{5,}/));
  await pause(300);
  found.tree.push(await terminal.press("t", /default/));
  await terminal.end();
  // The first round fills what is kept.
  if (round >= 0) for (const [name, of] of Object.entries(found)) times[name].push(...of);
}

const at = (sorted, part) =>
  Number(sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * part) - 1)].toFixed(1));
const figures = Object.fromEntries(
  Object.entries(times).map(([name, of]) => {
    const sorted = of.sort((a, b) => a - b);
    return [name, { p50: at(sorted, 0.5), p95: at(sorted, 0.95), most: at(sorted, 1) }];
  }),
);
if (options.json)
  console.log(JSON.stringify({ node: process.version, sessions: Number(options.sessions), ...figures }));
else
  for (const [name, { p50, p95, most }] of Object.entries(figures))
    console.log(`${name.padEnd(12)} p50 ${String(p50).padStart(6)}  p95 ${String(p95).padStart(6)}  most ${most} ms`);
