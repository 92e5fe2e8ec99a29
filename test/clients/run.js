/**
 * The clients that people have, with each kind of agent behind the server: `node test/clients/run.js`. Writes the table of
 * docs/agents.md, and ends with status 1 where a client can do less than with Pi itself.
 *
 *   node test/clients/run.js                 everything; takes some minutes, and needs the registry of npm
 *   node test/clients/run.js pi-acp       only the rows of clients whose name has this
 *
 * PI_CLIENTS_CACHE=<folder> keeps what is installed; PI_CLIENTS_EDITORS=<folder> has the clients that are in no registry
 * (pi-coding-agent for Emacs, pi.nvim for Neovim), and PI_CLIENTS_EMACS and PI_CLIENTS_NVIM start their editors.
 */

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as acp from "./acp.js";
import { driveEditor, EDITORS } from "./editors.js";
import { install } from "./packages.js";
import * as piRpc from "./pi-rpc.js";
import { configure, startProvider } from "./provider.js";
import { writeTable } from "./table.js";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const SERVER = join(ROOT, "dist/bin/pi-session-server.js");
const example = (name) => `'${process.execPath}' '${join(ROOT, "examples/agents", name)}'`;
const only = process.argv[2] ?? "";

const { root, pis, others, node, notes } = install();
const provider = await startProvider();
const piCommand = ({ folder }) => `'${node}' '${join(folder, "dist/cli.js")}' --mode rpc`;

const REAL = { tool: "read a file", slow: "slowly" };
const SCRIPTED = { tool: "tools 1", slow: "chunks 100000 every 20", ask: "ask tools 1" };
/**
 * The agents, as columns of the table. `command` and `protocol` put one behind the server; `pi` is one without it, which
 * says by `than` of other columns how much there is to be had.
 */
const COLUMNS = [
  ...Object.values(pis).map((pi) => ({ name: `Pi ${pi.version} itself`, pi, isReal: true, words: REAL })),
  { name: "no agent" },
  { name: "scripted agent like Pi", command: example("pi-like.js"), words: SCRIPTED },
  ...Object.values(pis).map((pi) => {
    const than = `Pi ${pi.version} itself`;
    return { name: `Pi ${pi.version} behind`, command: piCommand(pi), than, isReal: true, words: REAL };
  }),
  { name: "agent of ACP", command: example("acp-like.js"), protocol: "acp", words: SCRIPTED },
];

/** Returns a folder of one cell's own, with all that Pi and the server read. */
function placeOf() {
  const home = mkdtempSync(join(tmpdir(), "pi-clients-cell-"));
  const cwd = join(home, "project");
  mkdirSync(cwd);
  writeFileSync(join(cwd, "hello.txt"), "hello\n");
  configure(join(home, "agent"), provider.baseUrl);
  const env = {
    HOME: home,
    PATH: [dirname(node), process.env.PATH].join(delimiter),
    PI_CODING_AGENT_DIR: join(home, "agent"),
    PI_SESSION_SERVER_STATE_DIR: join(home, "state"),
    PI_OFFLINE: "1",
    PI_SKIP_VERSION_CHECK: "1",
  };
  return { home, cwd, env };
}

const behind = ({ command, protocol }) => [
  ...(command ? ["--agent", command] : []),
  ...(protocol ? ["--agent-protocol", protocol] : []),
];

/** Returns a program that stands in Pi's place, for clients that take one word. */
function writeStub(home, column) {
  const words = column.pi ? [node, join(column.pi.folder, "dist/cli.js")] : [node, SERVER, ...behind(column)];
  const file = join(home, "stand-in.sh");
  writeFileSync(file, `#!/bin/sh\nexec ${words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ")} "$@"\n`);
  chmodSync(file, 0o755);
  return file;
}

const hasAgent = ({ pi, command }) => pi !== undefined || command !== undefined;

const NOT_ITS_DIALECT = "the client speaks Pi's dialect";

/** Drives a program as a client of the Agent Client Protocol does. */
const throughAcp = (column, { cwd, env }, args, more = {}) =>
  acp.drive({
    ...{ modules: others, program: node, args, env, cwd },
    ...{ hasAgent: hasAgent(column), words: column.words ?? {}, ...more },
  });

/** The clients: what drives them with an agent; undefined where the two do not go together, and why. */
const CLIENTS = [
  ...Object.values(pis).map((pi) => ({
    name: `RpcClient of Pi ${pi.version}`,
    drive(column, { cwd, env }) {
      if (column.protocol === "acp") return NOT_ITS_DIALECT;
      const program = column.pi ? join(column.pi.folder, "dist/cli.js") : SERVER;
      const common = { folder: pi.folder, program, args: behind(column), env, cwd };
      return piRpc.drive({ ...common, hasAgent: hasAgent(column), isReal: column.isReal });
    },
  })),
  {
    name: "pi-acp 0.0.34",
    drive(column, { home, cwd, env }) {
      if (column.protocol === "acp") return NOT_ITS_DIALECT;
      const place = { cwd, env: { ...env, PI_ACP_PI_COMMAND: writeStub(home, column) } };
      const words = { ...column.words, ask: undefined };
      return throughAcp(column, place, [join(others, "pi-acp/dist/index.js")], { words });
    },
  },
  {
    name: "client of the ACP SDK 2.4.0, --dialect acp",
    drive(column, place) {
      if (column.pi) return "Pi does not speak it";
      return throughAcp(column, place, [SERVER, "--dialect", "acp", ...behind(column)]);
    },
  },
  ...EDITORS.map((editor) => ({
    name: editor.name,
    drive(column, { home, cwd, env }) {
      if (column.protocol === "acp") return NOT_ITS_DIALECT;
      const { isReal, words } = column;
      const common = { command: writeStub(home, column), home, cwd, env };
      return driveEditor(editor, { ...common, hasAgent: hasAgent(column), isReal, words });
    },
  })),
];

const rows = [];
for (const client of CLIENTS.filter(({ name }) => name.includes(only))) {
  const cells = [];
  for (const column of COLUMNS) {
    const place = placeOf();
    try {
      const outcome = await client.drive(column, place);
      cells.push(typeof outcome === "string" ? { skipped: outcome } : { done: outcome.done });
    } finally {
      rmSync(place.home, { recursive: true, force: true });
    }
    const { skipped, done } = cells.at(-1);
    const failures = (done ?? []).filter(({ why }) => why);
    process.stdout.write(
      `${client.name} / ${column.name}: ${skipped ? `skipped (${skipped})` : `${done.length - failures.length} of ${done.length}`}\n`,
    );
    for (const { name, why } of failures) process.stdout.write(`  ${name}: ${why}\n`);
  }
  rows.push({ name: client.name, cells });
}
for (const note of notes) process.stdout.write(`${note}\n`);
provider.close();
if (root) rmSync(root, { recursive: true, force: true });

/** Returns whether a client can do less with an agent behind the server than with that agent itself, or than it should. */
const isWorse = ({ cells }) =>
  COLUMNS.some(({ pi, than }, index) => {
    const failed = (cells[index].done ?? []).filter(({ why }) => why);
    const itself = cells[COLUMNS.findIndex(({ name }) => name === than)]?.done;
    const works = (step) => !itself || itself.some(({ name, why }) => name === step && !why);
    return !pi && failed.some(({ name }) => works(name));
  });
if (only === "")
  writeTable(
    join(ROOT, "docs/agents.md"),
    COLUMNS.map(({ name }) => name),
    rows,
    notes,
  );
process.exitCode = rows.some(isWorse) ? 1 : 0;
