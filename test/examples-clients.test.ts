/** The clients to copy: each prints the lines of their README, and says so when the server is absent or dies. */

import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { KEPT_CODE, PROGRAM } from "./support/build.ts";
import { findProgram, need, needProgram, needs } from "./support/needs.ts";
import { type Json, type Place, programEnvironment, temporaryPlace } from "./support/server.ts";
import { SWEEP, SYSTEM } from "./support/tiers.ts";

const CLIENTS = fileURLToPath(new URL("../examples/clients", import.meta.url));

const readme = readFileSync(join(CLIENTS, "README.md"), "utf8");

const LINES = /<!-- lines of every client -->\n\n```text\n([\s\S]*?)```/.exec(readme)?.[1] ?? "";

/** The output before the fork, in which the server dies. */
const LINES_BEFORE = LINES.slice(0, LINES.indexOf("hook: "));

/** The command that the README gives for each client, by the client's folder. */
const COMMANDS = new Map(
  [...readme.matchAll(/^\| \[([\w-]+)\]\(.*?\).*? \| `(.*?)` \|/gm)].map(([, name, command]) => [name, command]),
);

/** Debian's folder of the sources of crates. */
const CRATES = "/usr/share/cargo/registry";

function holds(folder: string, beginning: string): boolean {
  try {
    return readdirSync(folder).some((name) => name.startsWith(beginning));
  } catch {
    return false;
  }
}

function isPythonOf(least: string): boolean {
  return spawnSync("python3", ["-c", `import sys; sys.exit(sys.version_info < ${least})`]).status === 0;
}

/** The runtime that each client needs. */
const RUNTIMES = {
  shell: needProgram("jq"),
  python: need("Python 3.9", "apt-get install python3", () => isPythonOf("(3, 9)")),
  go: needProgram("go", "golang-go"),
  rust: need(
    "cargo with serde_json",
    "apt-get install cargo librust-serde-json-dev",
    () => findProgram("cargo") !== undefined && findProgram("cc") !== undefined && holds(CRATES, "serde_json-"),
  ),
  "vscode-jsonrpc": need("vscode-jsonrpc", "npm install", () => true),
  emacs: needProgram("emacs", "emacs-nox"),
  neovim: needProgram("nvim", "neovim"),
};

type ClientName = keyof typeof RUNTIMES;

/** Compiles once, into the folder that is kept for all tests, in place of the README's command that also runs it. */
const COMPILERS: Partial<Record<ClientName, () => string>> = {
  go() {
    const program = join(KEPT_CODE, "clients/go/client");
    const env = { ...process.env, GOCACHE: join(KEPT_CODE, "clients/go/cache") };
    execFileSync("go", ["build", "-o", program, "main.go"], { cwd: join(CLIENTS, "go"), env });
    return program;
  },
  rust() {
    // Copied, because cargo writes next to the sources.
    const sources = join(KEPT_CODE, "clients/rust/sources");
    mkdirSync(sources, { recursive: true });
    for (const name of ["Cargo.toml", "main.rs"])
      cpSync(join(CLIENTS, "rust", name), join(sources, name), { preserveTimestamps: true });
    const config = ['source.crates-io.replace-with="debian"', `source.debian.directory="${CRATES}"`];
    // Without what debuggers and later builds would use: a fifth of the time.
    const lean = { CARGO_PROFILE_DEV_DEBUG: "0", CARGO_INCREMENTAL: "0" };
    const env = { ...process.env, ...lean, CARGO_TARGET_DIR: join(KEPT_CODE, "clients/rust/target") };
    const args = ["build", "--quiet", "--offline", ...config.flatMap((value) => ["--config", value])];
    execFileSync("cargo", args, { cwd: sources, env });
    return join(KEPT_CODE, "clients/rust/target/debug/pi-session-client");
  },
};

const compiled = new Map<ClientName, string>();

function commandOf(name: ClientName): string {
  const compile = COMPILERS[name];
  if (!compile) return COMMANDS.get(name) as string;
  if (!compiled.has(name)) compiled.set(name, `'${compile()}'`);
  return compiled.get(name) as string;
}

/** Runs a command in a client's folder to its end, with `program` as the server. Returns temporary files, too. */
function runClient(name: ClientName, command: string, program: string, input = "", place: Place = temporaryPlace()) {
  const temporary = join(place.home, "temporary");
  mkdirSync(temporary);
  const own = { TMPDIR: temporary, PI_SESSION_SERVER: program, PYTHONDONTWRITEBYTECODE: "1" };
  const at = { cwd: join(CLIENTS, name), env: { ...programEnvironment(place), ...own } };
  const options = { ...at, input, encoding: "utf8", timeout: 60_000, killSignal: "SIGKILL" } as const;
  const { stdout, stderr, status, signal } = spawnSync("sh", ["-c", `exec ${command}`], options);
  return { stdout, stderr, status: status ?? signal, left: readdirSync(temporary) };
}

/** Writes a program into a place. */
function program(place: Place, text: string): string {
  const path = join(place.home, "program.mjs");
  writeFileSync(path, text, { mode: 0o755 });
  return path;
}

/** A server that is killed when it asks its first question; the host gets a part of it. */
const DYING = `#!/usr/bin/env node
import { spawn } from "node:child_process";
const server = spawn(${JSON.stringify(PROGRAM)}, process.argv.slice(2), { stdio: ["inherit", "pipe", "inherit"] });
server.on("exit", () => process.kill(process.pid, "SIGKILL"));
server.stdout.on("data", (chunk) => {
  const at = chunk.indexOf('"method":"session_before_fork"');
  process.stdout.write(at < 0 ? chunk : chunk.subarray(0, at), () => at < 0 || server.kill("SIGKILL"));
});
`;

test("the README has a row for each client, and the lines", () => {
  expect([...COMMANDS.keys()]).toEqual(Object.keys(RUNTIMES));
  const folders = readdirSync(CLIENTS, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  expect(folders.map(({ name }) => name).sort()).toEqual(Object.keys(RUNTIMES).sort());
  for (const [, target] of readme.matchAll(/\]\(([^)#]+)\)/g))
    expect(() => readFileSync(join(CLIENTS, target)), target).not.toThrow();
  expect(LINES_BEFORE.split("\n").length).toBeGreaterThan(4);
});

describe.each(Object.keys(RUNTIMES) as ClientName[])("%s", (name) => {
  const options = { ...(name === "python" ? SYSTEM : SWEEP), ...needs(RUNTIMES[name]) };

  const absent = "/no/such/server";
  test.each<[string, (place: Place) => string, object]>([
    ["prints the lines of the README", () => PROGRAM, { stdout: LINES, stderr: /^$/, status: 0 }],
    [
      "says that the server died, and ends",
      (place) => program(place, DYING),
      { stdout: LINES_BEFORE, stderr: /the server (ended|is gone)/i, status: 1 },
    ],
    ["says that there is no server, and ends", () => absent, { stdout: "", stderr: /cannot be started/, status: 1 }],
  ])(`the client in ${name} %s`, options, (_what, server, expected) => {
    const place = temporaryPlace();
    const run = runClient(name, commandOf(name), server(place), "", place);
    // Emacs reports every end of a process.
    const stderr = run.stderr.replace(/^\s*\[jsonrpc\] Server exited with status 0\s*$/, "");
    expect({ ...run, stderr }).toEqual({
      ...expected,
      left: [],
      stderr: expect.stringMatching((expected as Json).stderr),
    });
    if (server(place) === absent) expect(stderr).toContain(absent);
  });
});

describe("the module for python", () => {
  const options = { ...SWEEP, ...needs(RUNTIMES.python) };

  /** Runs a script that uses the module. Returns its output as JSON. */
  function python(script: string, server = PROGRAM, place = temporaryPlace()): unknown {
    const { stdout, stderr, status } = runClient("python", "python3 -X dev -", server, script, place);
    expect([stderr, status]).toEqual(["", 0]);
    return JSON.parse(stdout);
  }

  test(
    "can be called from many threads, and has the text of every message, also after a compaction (python)",
    options,
    () => {
      const outcome = python(`
import json, threading
from pi_sessions import SessionServer, text_of, user
events = []
tail = "é\\u2028" * 20_000
with SessionServer(["--no-session"], on_event=lambda event: events.append(event.name)) as server:
    def talk(name):
        for turn in range(5):
            server.call("append", entries=[user(f"{name} {turn} {tail}")])
            server.call("get_state")
    threads = [threading.Thread(target=talk, args=(name,)) for name in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    said = lambda: [text_of(message) for message in server.call("get_messages")["messages"]]
    texts = said()
    outcome = [len(texts), len(set(texts)), all(text.endswith(tail) for text in texts), len(events)]
    (last,) = server.call("append", entries=[user("b")])["entryIds"]
    server.call("compact_append", summary="what was said", firstKeptEntryId=last, tokensBefore=1)
    outcome += said()
print(json.dumps([*outcome, events[-1]]))
`);
      expect(outcome).toEqual([20, 20, true, 21, "what was said", "b", "session_shutdown"]);
    },
  );

  test("introduces itself as its program wants, and sends params that are words of Python (python)", options, () => {
    const outcome = python(`
import json
from pi_sessions import SessionServer, user
events = []
wanted = {"leaf": "own", "head": "mine", "capabilities": {"events": ["session_tree"]}}
with SessionServer(["--no-session"], initialize=wanted, on_event=lambda event: events.append(event.name)) as server:
    first, left = server.call("append", entries=[user("a"), user("b")])["entryIds"]
    server.call("branch", entryId=first)
    server.call("append", {"entries": [user("c")]})
    merged = server.call("merge_branch", {"from": left}, summary="s")["entryCount"]
    outcome = [server.info["state"]["head"], merged]
print(json.dumps([*outcome, sorted(set(events))]))
`);
    // A server that need not guess the dialect says that it has started before it is asked for events.
    expect(outcome).toEqual(["mine", 1, ["session_start", "session_tree"]]);
  });

  test("has hooks that refuse, read meanwhile, and fail (python)", options, () => {
    const outcomes = python(`
import io, json, sys
from pi_sessions import SessionServer, user
def decide(hook):
    seen = server.call("get_messages", _meta={"hook": hook.id})["messages"]
    if len(seen) == 1: return {"cancel": True}
    if len(seen) == 2: raise RuntimeError("no idea")
server = SessionServer(["--no-session"], hooks={"session_before_fork": decide})
outcomes = []
with server:
    for text in "abc":
        (entry,) = server.call("append", entries=[user(text)])["entryIds"]
        said, sys.stderr = sys.stderr, io.StringIO()
        forked = server.call("fork", entryId=entry)
        outcomes.append([forked["cancelled"], forked.get("reason"), "no idea" in sys.stderr.getvalue()])
        sys.stderr = said
print(json.dumps(outcomes))
`);
    expect(outcomes).toEqual([
      [true, "hook", false],
      [true, "hook_failed", true],
      [false, null, false],
    ]);
  });

  test("tells failures, lost servers and servers that are silent apart (python)", options, () => {
    const place = temporaryPlace();
    const silent = program(place, "#!/usr/bin/env node\nprocess.stdin.resume();\n");
    const outcomes = python(
      `
import json
from pi_sessions import Failure, ServerEnded, SessionServer, user
outcomes = []
with SessionServer(["--no-session"]) as server:
    try: server.call("append", entries=[user("a")], expectedLeafId="ffffffff")
    except Failure as failure: outcomes.append([failure.name, failure.code, failure.retryable])
    try: server.call("append", entries=[user(float("nan"))])
    except ValueError as error: outcomes.append(type(error).__name__)
    outcomes.append(len(server.call("append", entries=[user("\\ud800")])["entryIds"]))
    outcomes.append(server.close())
    try: server.call("get_state")
    except ServerEnded as error: outcomes.append(error.status)
try: SessionServer(["--no-such-option"], program=${JSON.stringify(silent)}, timeout=0.1)
except TimeoutError as error: outcomes.append(str(error))
try:
    with SessionServer(["--no-session"]) as server: server.kill()
except ServerEnded as error: outcomes.append(error.status)
print(json.dumps(outcomes))
`,
      PROGRAM,
      place,
    );
    expect(outcomes).toEqual([
      ["content_modified", -32801, false],
      "ValueError",
      1,
      0,
      0,
      "The server has not answered initialize within 0.1 s.",
      -9,
    ]);
  });
});
