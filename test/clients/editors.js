/**
 * Editors, whose clients are in no registry. PI_CLIENTS_EDITORS names a folder with their sources; PI_CLIENTS_EMACS and
 * PI_CLIENTS_NVIM are the commands that start the editors, where those of this machine are not the ones to take.
 */

import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Steps } from "./steps.js";

const SCRIPTS = fileURLToPath(new URL("editors", import.meta.url));
/** Milliseconds that an editor may take for all of its steps. */
const LONGEST = 300_000;
const ROOT = process.env.PI_CLIENTS_EDITORS && resolve(process.env.PI_CLIENTS_EDITORS);
const PAST = "A session of another day";

/** The clients: where they are in that folder, what says their version, which editor they need, and its arguments. */
const KNOWN = [
  {
    name: "Emacs",
    folder: "pi-coding-agent",
    marked: ["pi-coding-agent.el", /^;; Version: (\S+)/m],
    command: process.env.PI_CLIENTS_EMACS ?? "emacs",
    atLeast: [29, 1],
    runs: ({ hasAgent, isReal }) => {
      // The client's needs, if they are next to it: Emacs Lisp of others, and the grammars of Markdown.
      const places = ["md-ts-mode", "markdown-table-wrap", "transient/lisp", "pi-coding-agent", "pi-coding-agent/test"];
      const grammars = `(setq treesit-extra-load-path (list ${JSON.stringify(join(ROOT, "tree-sitter"))}))`;
      const begin = [
        ...["--batch", ...places.flatMap((place) => ["-L", join(ROOT, place)]), "--eval", grammars],
        ...["-l", join(SCRIPTS, "emacs.el")],
      ];
      const truth = (condition) => (condition ? "t" : "nil");
      // Tests of the client itself: those of turns need a model, and those of tools and steering need all that Pi does.
      const own = isReal ? "" : hasAgent ? "\\\\(?:rpc\\\\|prompt\\\\|session\\\\)" : "rpc";
      return [
        [...begin, "--eval", `(clients-go ${truth(hasAgent)} ${truth(isReal)})`],
        [...begin, "-l", "pi-coding-agent-integration-test", "--eval", `(clients-own-tests "${own}")`],
      ];
    },
  },
  {
    name: "Neovim",
    folder: "pi.nvim",
    // It has no versions, but a log of its days.
    marked: ["CHANGELOG.md", /^## (\S+)/m],
    command: process.env.PI_CLIENTS_NVIM ?? "nvim",
    atLeast: [0, 10],
    runs: () => [
      ["--headless", "--clean", "--cmd", `set rtp+=${join(ROOT, "pi.nvim")}`, "-l", join(SCRIPTS, "nvim.lua")],
    ],
  },
];

/** Starts an editor by a command in the words of a shell. */
const started = (command, args, options) => [command.includes(" ") ? "sh" : command, inShell(command, args), options];
const inShell = (command, args) => (command.includes(" ") ? ["-c", `exec ${command} "$@"`, "sh", ...args] : args);

/** Returns the editor with its client, or the reason for leaving it out. */
function found({ folder, command, atLeast, marked }) {
  if (!ROOT) return { why: "PI_CLIENTS_EDITORS names no folder with the clients of editors" };
  const marks = join(ROOT, folder, marked[0]);
  if (!existsSync(marks)) return { why: `there is no ${folder} in the folder of PI_CLIENTS_EDITORS` };
  const { error, stdout } = spawnSync(...started(command, ["--version"], { encoding: "utf8", timeout: 25_000 }));
  const version = /(\d+)\.(\d+)(?:\.\d+)?/.exec(error ? "" : stdout);
  if (!version) return { why: `the editor of ${folder} cannot be started` };
  const [major, minor] = version.slice(1).map(Number);
  if (major < atLeast[0] || (major === atLeast[0] && minor < atLeast[1]))
    return { why: `the editor is ${version[0]}, and ${folder} needs ${atLeast.join(".")}` };
  return { version: version[0], client: marked[1].exec(readFileSync(marks, "utf8"))?.[1] };
}

/** Writes a session as it was left on another day, to go back to. */
function writePast(agentFolder, cwd) {
  const folder = join(agentFolder, "sessions", `--${cwd.slice(1).replaceAll("/", "-")}--`);
  mkdirSync(folder, { recursive: true });
  const timestamp = "2026-01-02T03:04:05.000Z";
  const at = Date.parse(timestamp);
  const zero = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  const about = { api: "openai-completions", provider: "stub", model: "stub-1", stopReason: "stop" };
  const usage = { ...zero, totalTokens: 0, cost: { ...zero, total: 0 } };
  const text = (said) => [{ type: "text", text: said }];
  const id = "0195a000-0000-7000-8000-000000000001";
  const lines = [
    { type: "session", version: 3, id, timestamp, cwd },
    {
      ...{ type: "message", id: "00000001", parentId: null, timestamp },
      message: { role: "user", content: text("long ago"), timestamp: at },
    },
    {
      ...{ type: "message", id: "00000002", parentId: "00000001", timestamp },
      message: { role: "assistant", content: text("an old answer"), ...about, usage, timestamp: at },
    },
    { type: "session_info", id: "00000003", parentId: "00000002", timestamp, name: PAST },
  ];
  const file = join(folder, `${timestamp.replaceAll(/[:.]/g, "-")}_${id}.jsonl`);
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
}

/** The editors, by the versions that there are, or with why they are left out. */
export const EDITORS = KNOWN.map((editor) => {
  const { why, version = "", client = "" } = found(editor);
  return { ...editor, why, name: `${editor.name} ${version}, ${editor.folder} ${client}`.replace(" ,", ",").trim() };
});

/** Runs an editor to its end. Returns the last that it said, and how it ended. */
function run(command, args, options) {
  const child = spawn(...started(command, args, { ...options, stdio: ["ignore", "pipe", "pipe"] }));
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text) => {
      said = (said + text).slice(-10_000);
    });
  const late = setTimeout(() => child.kill("SIGKILL"), LONGEST);
  return new Promise((resolve) => {
    child.on("error", (error) => resolve({ said: error.message }));
    child.on("close", (status) => {
      clearTimeout(late);
      resolve({ said, status });
    });
  });
}

/** Drives an editor. Returns why it is left out, or the steps. */
export async function driveEditor(editor, { command, home, cwd, env, hasAgent, isReal, words = {} }) {
  if (editor.why) return editor.why;
  writePast(env.PI_CODING_AGENT_DIR, cwd);
  const file = join(home, "steps");
  const vars = {
    ...env,
    LANG: "C.UTF-8",
    TERM: "dumb",
    PI_RUN_INTEGRATION: "1",
    PI_INTEGRATION_BACKENDS: "real",
    CLIENTS_STEPS: file,
    CLIENTS_COMMAND: command,
    CLIENTS_AGENT: hasAgent ? "1" : "",
    CLIENTS_REAL: isReal ? "1" : "",
    CLIENTS_TOOL: words.tool ?? "",
    CLIENTS_SLOW: words.slow ?? "",
    CLIENTS_MODEL: isReal ? "Stub 2" : "thinking",
    CLIENTS_PAST: PAST,
  };
  const steps = new Steps();
  for (const args of editor.runs({ hasAgent, isReal })) {
    writeFileSync(file, "");
    const { said, status } = await run(editor.command, args, { cwd, env: vars });
    for (const line of readFileSync(file, "utf8").split("\n"))
      if (line !== "") {
        const { name, why: reason } = JSON.parse(line);
        steps.note(name, reason);
      }
    // An editor that cannot load its client has no steps to report.
    if (status !== 0) steps.note("the editor ends in order", `status ${status}: ${said.trim().split("\n").at(-1)}`);
    // If the start fails, all else fails for the same reason.
    if (steps.failures.some(({ name }) => name === "start")) break;
  }
  return steps;
}
