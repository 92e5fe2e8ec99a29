// Makes the program one file with Node in it, for machines without Node:
//
//   node scripts/package.js [--node <program>] [--out <file>]
//
// `--node` is the Node that is put into it, 25.5 or newer; by default this one, or, where this one is older, the newest
// that npm has for this machine. The file runs on machines of this kind, needs nothing else, and is at
// dist/standalone/pi-session-server unless `--out` names another place. The licences of its parts lie next to it.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { buildProgram, collectLicences, FILES, OPTIONS } from "./program.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const { values } = parseArgs({ options: { node: { type: "string" }, out: { type: "string" } } });
const out = resolve(values.out ?? join(root, "dist/standalone/pi-session-server"));
process.chdir(root);

/** First requests of most hosts; the code is kept after their replies. */
const FIRST = [
  ["initialize", {}],
  ["get_state", {}],
  ["append", { entries: [{ type: "message", message: { role: "user", content: "Hello" } }] }],
  ["get_messages", {}],
  ["get_fork_messages", {}],
  ["get_tree", {}],
  ["list_sessions", {}],
  ["new_session", {}],
];

/** Runs in the Node that is put in: a part of the program, whose code is kept when it ends. */
const KEEPING = `
  const { readFileSync, writeFileSync } = require("node:fs");
  const { Script } = require("node:vm");
  const [part, isRun] = process.argv.splice(2, 2);
  const text = readFileSync(part, "latin1");
  const script = new Script("(function (require, module, exports, PROGRAM_URL) {" + text + "\\n})", { filename: part });
  process.on("exit", () => writeFileSync(part + ".code", script.createCachedData()));
  const run = script.runInThisContext();
  if (isRun === "run") run(require, module, exports, require("node:url").pathToFileURL(part).href);
`;

/** Returns true if the Node of a version can put a program into a copy of itself. */
function hasBuilder(version) {
  const [major, minor] = version.replace("v", "").split(".").map(Number);
  return major > 25 || (major === 25 && minor >= 5);
}

/** Returns the Node that is named. Ends with a sentence when it is too old. */
function named(node) {
  const version = execFileSync(node, ["--version"], { encoding: "utf8" }).trim();
  if (hasBuilder(version)) return node;
  console.error(`${node} is Node ${version}, which cannot put a program into itself. Name one of 25.5 or newer,`);
  console.error("or leave --node out: then the newest that npm has is taken.");
  process.exit(1);
}

/** Returns a Node that can put a program into a copy of itself: this one, or the newest that npm has for this machine. */
function nodeWithBuilder(place) {
  if (hasBuilder(process.versions.node)) return process.execPath;
  const name = `node-${process.platform}-${process.arch}`;
  execFileSync("npm", ["install", "--prefix", place, "--no-save", "--no-audit", "--no-fund", `${name}@latest`], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  return join(place, "node_modules", name, "bin/node");
}

/** Returns the licence that lies with a Node, if there is one. */
function nodesLicence(node) {
  const file = join(dirname(node), "../LICENSE");
  return existsSync(file) ? `Node.js\n\n${readFileSync(file, "utf8").trim()}\n\n${"-".repeat(80)}\n\n` : "";
}

/** Throws unless each request has its result: after a failure, the kept code would lack the requests that follow. */
function checkReplies(output) {
  const replies = output
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  for (const [id, [method]] of FIRST.entries()) {
    const reply = replies.find((one) => one.id === id);
    if (!reply?.result) throw new Error(`${method}: ${JSON.stringify(reply?.error ?? "no reply")}`);
  }
}

const given = values.node && named(values.node);
const folder = mkdtempSync(join(root, "dist.package.tmp"));
try {
  const node = given ?? nodeWithBuilder(folder);
  const { metafiles } = await buildProgram(folder, { isWhole: true });
  await build({ ...OPTIONS, entryPoints: { standalone: "src/cli/standalone.ts" }, outdir: folder });
  writeFileSync(join(folder, "keeping.cjs"), KEEPING);
  const home = mkdtempSync(join(tmpdir(), "pi-session-server-package-"));
  const requests = FIRST.map(([method, params], id) => JSON.stringify({ jsonrpc: "2.0", id, method, params }));
  const keep = (part, isRun) =>
    execFileSync(node, [join(folder, "keeping.cjs"), join(folder, `${part}.js`), isRun ? "run" : "compile"], {
      cwd: home,
      env: { HOME: home },
      input: isRun ? `${requests.join("\n")}\n` : "",
      stdio: ["pipe", "pipe", "inherit"],
      encoding: "utf8",
    });
  checkReplies(keep("program", true));
  for (const part of FILES.slice(1)) keep(part, false);
  rmSync(home, { recursive: true, force: true });

  const assets = {};
  for (const part of FILES) for (const name of [`${part}.js`, `${part}.js.code`]) assets[name] = join(folder, name);
  for (const name of readdirSync("dist/schema")) assets[`dist/schema/${name}`] = resolve("dist/schema", name);
  const config = join(folder, "sea.json");
  const made = join(folder, basename(out));
  writeFileSync(
    config,
    JSON.stringify({
      main: join(folder, "standalone.js"),
      output: made,
      disableExperimentalSEAWarning: true,
      useCodeCache: true,
      assets,
    }),
  );
  execFileSync(node, ["--build-sea", config], { stdio: ["ignore", "ignore", "inherit"] });
  mkdirSync(dirname(out), { recursive: true });
  cpSync(made, out);
  writeFileSync(`${out}.LICENSES.txt`, `${nodesLicence(node)}${collectLicences(...metafiles)}`);
  console.log(`${out}: Node ${execFileSync(node, ["--version"], { encoding: "utf8" }).trim()}`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
