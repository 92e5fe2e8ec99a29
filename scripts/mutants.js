// Measures whether the tests see small faults: draws mutants of the sources by a seed, and runs the tests on them.
//
//   node scripts/mutants.js draw --seed <n> [--count 400]   draws mutants into test/mutants/drawn.jsonl
//   node scripts/mutants.js check                           lists those that are not in the sources any more
//   node scripts/mutants.js run [--lanes 2] [--only 7,12]    runs the tests against each, into test/mutants/results.jsonl
//   node scripts/mutants.js table [--than <results.jsonl>]   prints killed and survived by folder; 1 if one that was killed
//                                                           in the other results survives
//
// A mutant is found by its function and its text: it stays where lines move, and is missed where they change. All of
// them are in one copy of the sources, each behind a switch, so that nothing is rebuilt. A run without mutants notes
// which tests reach each, and only those run against it: `npm test` has them all. A mutant in code that runs when a
// module is loaded runs against the whole unit tier. Code for browsers has no mutants.
import { execFileSync, spawn } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { parseSync } from "vite";
import { makeRandom } from "../bench/random.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const DRAWN = join(ROOT, "test/mutants/drawn.jsonl");
const RESULTS = join(ROOT, "test/mutants/results.jsonl");
/** Folders whose code runs in a browser. */
const ELSEWHERE = /^src\/page\/script\//;
/** Seconds after which a run counts as hanging, added to three times the tests' time without a mutant. */
const PATIENCE = 90;
/** A test that waits for what never comes is not waited for as long as on a slow machine. */
const LIMITS = ["--testTimeout", "30000", "--hookTimeout", "60000", "--bail", "1"];

const COMPARISONS = { "<": "<=", "<=": "<", ">": ">=", ">=": ">", "===": "!==", "!==": "===" };
const ARITHMETIC = { "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&" };
const isText = (node) => node.type === "TemplateLiteral" || (node.type === "Literal" && typeof node.value === "string");

/** By operator: the text in place of a node; undefined where it does not fit. `of` returns the text of a node. */
const OPERATORS = {
  comparison: (node, of) =>
    node.type === "BinaryExpression" && COMPARISONS[node.operator]
      ? `${of(node.left)} ${COMPARISONS[node.operator]} ${of(node.right)}`
      : undefined,
  arithmetic: (node, of) =>
    node.type === "BinaryExpression" && ARITHMETIC[node.operator] && !isText(node.left) && !isText(node.right)
      ? `${of(node.left)} ${ARITHMETIC[node.operator]} ${of(node.right)}`
      : undefined,
  logic: (node, of) =>
    node.type !== "LogicalExpression"
      ? undefined
      : node.operator === "??"
        ? of(node.left)
        : `${of(node.left)} ${node.operator === "&&" ? "||" : "&&"} ${of(node.right)}`,
  negation: (node, of) => (node.type === "UnaryExpression" && node.operator === "!" ? of(node.argument) : undefined),
  constant: (node) => (node.type === "Literal" && typeof node.value === "number" ? String(node.value + 1) : undefined),
  truth: (node) => (node.type === "Literal" && typeof node.value === "boolean" ? String(!node.value) : undefined),
  "call left out": (node) => (node.type === "ExpressionStatement" && callIn(node.expression) ? "" : undefined),
  "await dropped": (node, of) => (node.type === "AwaitExpression" ? of(node.argument) : undefined),
  "branch never taken": (node) => (node.type === "IfStatement" ? "" : undefined),
  "arguments exchanged": (node, of) =>
    node.type === "CallExpression" && !node.optional && areTwo(node.arguments, of)
      ? `${of(node.callee)}(${[node.arguments[1], node.arguments[0], ...node.arguments.slice(2)].map(of).join(", ")})`
      : undefined,
};

const callIn = (node) =>
  (node.type === "CallExpression" && node.callee.type !== "Super") ||
  (node.type === "AwaitExpression" && node.argument.type === "CallExpression");
const areTwo = (all, of) =>
  all.length > 1 && all.slice(0, 2).every(({ type }) => type !== "SpreadElement") && of(all[0]) !== of(all[1]);

const PASSED_THROUGH = new Set([
  "TSAsExpression",
  "TSNonNullExpression",
  "TSSatisfiesExpression",
  "TSParameterProperty",
]);
const oneLine = (text) => text.replace(/\s+/g, " ");

/** Returns the places of a source file where a mutant may be: function, operator, text, its replacement, and position. */
function placesIn(file, text) {
  const places = [];
  const of = (node) => text.slice(node.start, node.end);
  const visit = (node, where, parent) => {
    if (node.type.startsWith("TS") && !PASSED_THROUGH.has(node.type)) return;
    if (node.type === "ImportDeclaration" || node.type === "ExportAllDeclaration") return;
    const inside = nameOf(node, parent, where);
    const isKey = parent?.key === node && !parent.computed;
    for (const [operator, replace] of Object.entries(isKey || parent?.type === "ChainExpression" ? {} : OPERATORS)) {
      const to = replace(node, of);
      if (to !== undefined) places.push({ where: inside, operator, from: oneLine(of(node)), to, node });
    }
    for (const [member, value] of Object.entries(node)) {
      if (member === "parent" || member === "typeAnnotation" || member === "returnType") continue;
      for (const child of Array.isArray(value) ? value : [value])
        if (child !== null && typeof child === "object" && typeof child.type === "string") visit(child, inside, node);
    }
  };
  visit(parseSync(file, text, { lang: "ts" }).program, "", undefined);
  const counts = new Map();
  return places.map((place) => {
    const key = keyOf(place);
    const nth = counts.get(key) ?? 0;
    counts.set(key, nth + 1);
    return { ...place, nth };
  });
}

const keyOf = ({ where, operator, from }) => JSON.stringify([where, operator, from]);

/** Returns the name of the function that a node is, behind those around it; that around it for any other node. */
function nameOf(node, parent, where) {
  const named = (name) => (where === "" ? name : `${where}.${name}`);
  if (/^Class|^FunctionDeclaration$/.test(node.type) && node.id) return named(node.id.name);
  if (!/^(ArrowFunction|Function)Expression$/.test(node.type)) return where;
  const name = parent?.key?.name ?? parent?.id?.name;
  return name === undefined ? where : named(name);
}

function sourceFiles() {
  return readdirSync(join(ROOT, "src"), { recursive: true })
    .map((path) => `src/${path}`)
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".d.ts") && !ELSEWHERE.test(path))
    .sort();
}

const read = (path) => readFileSync(join(ROOT, path), "utf8");
const isCode = (line) => !/^\s*(\/\/|\/?\*|$)/.test(line);

function linesOf(path) {
  if (!existsSync(path)) return [];
  return readFileSync(path, "utf8")
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));
}

function writeLines(path, values) {
  writeFileSync(path, values.map((value) => `${JSON.stringify(value)}\n`).join(""));
}

const resultsIn = (path) => Object.fromEntries(linesOf(path).map(({ id, ...result }) => [id, result]));

/** Draws mutants: a line of code of all sources first, then an operator that its file has a place for, then the place. */
function draw(seed, count) {
  const files = sourceFiles().map((file) => {
    const text = read(file);
    return { file, lines: text.split("\n").filter(isCode).length, places: placesIn(file, text) };
  });
  const total = files.reduce((sum, { lines }) => sum + lines, 0);
  const atLine = (line) => {
    let past = 0;
    return files.findIndex(({ lines }) => {
      past += lines;
      return line < past;
    });
  };
  const next = makeRandom(seed);
  const pick = (list) => list[Math.floor(next() * list.length)];
  const drawn = new Map();
  while (drawn.size < count) {
    const { file, places } = files[atLine(Math.floor(next() * total))];
    if (places.length === 0) continue;
    const operator = pick([...new Set(places.map((place) => place.operator))]);
    const { node, ...place } = pick(places.filter((one) => one.operator === operator));
    drawn.set(`${file} ${node.start} ${operator}`, { file, ...place, to: oneLine(place.to) });
  }
  const mutants = [...drawn.values()].map((mutant, n) => ({ id: n + 1, ...mutant }));
  mkdirSync(dirname(DRAWN), { recursive: true });
  writeLines(DRAWN, [{ seed }, ...mutants]);
  console.log(
    `${count} mutants drawn with the seed ${seed}, of ${files.reduce((sum, { places }) => sum + places.length, 0)} places.`,
  );
}

/** Returns the drawn mutants with their nodes, by file. Throws and names those that are not in the sources any more. */
function found() {
  const [, ...mutants] = linesOf(DRAWN);
  const missing = [];
  const byFile = new Map();
  for (const mutant of mutants) {
    const text = existsSync(join(ROOT, mutant.file)) ? read(mutant.file) : undefined;
    const places = text === undefined ? [] : placesIn(mutant.file, text);
    const place = places.find((one) => keyOf(one) === keyOf(mutant) && one.nth === mutant.nth);
    if (!place) missing.push(`${mutant.id} ${mutant.file} ${mutant.where}: ${mutant.operator}: ${mutant.from}`);
    else byFile.set(mutant.file, [...(byFile.get(mutant.file) ?? []), { ...mutant, to: place.to, node: place.node }]);
  }
  if (missing.length > 0)
    throw new Error(
      `Not in the sources any more; name their new places in ${relative(ROOT, DRAWN)}:\n${missing.join("\n")}`,
    );
  return byFile;
}

/** Returns a source text with each mutant behind its switch. */
function withSwitches(text, mutants) {
  const render = (start, end, inside) => {
    let made = "";
    let at = start;
    const outer = inside.filter(({ node }) => !inside.some((other) => isAround(other, node)));
    const seen = new Set();
    for (const { node } of outer.sort((a, b) => a.node.start - b.node.start)) {
      const key = `${node.start}-${node.end}`;
      if (seen.has(key)) continue;
      seen.add(key);
      made += text.slice(at, node.start) + switched(node, inside);
      at = node.end;
    }
    return made + text.slice(at, end);
  };
  const isAround = ({ node: outer }, node) =>
    (outer.start <= node.start && outer.end > node.end) || (outer.start < node.start && outer.end >= node.end);
  const switched = (node, inside) => {
    const own = inside.filter((one) => one.node.start === node.start && one.node.end === node.end);
    const within = inside.filter((one) => isAround({ node }, one.node));
    let made = render(node.start, node.end, within);
    for (const { id, operator, to } of own) {
      const isOn = `mutant_(${id})`;
      if (operator === "branch never taken") {
        const test = render(
          node.test.start,
          node.test.end,
          within.filter(
            (one) => isAround({ node }, one.node) && one.node.start >= node.test.start && one.node.end <= node.test.end,
          ),
        );
        const rest = render(
          node.test.end,
          node.end,
          within.filter((one) => one.node.start >= node.test.end),
        );
        made = `if (!${isOn} && (${test})${rest}`;
      } else if (operator === "call left out") made = `{ if (!${isOn}) ${made} }`;
      else made = `(${isOn} ? (${to}) : (${made}))`;
    }
    return made;
  };
  return render(0, text.length, mutants);
}

/** The switch: turns on the mutant that the control file names, or notes which mutants a test reaches. */
const SWITCH = (control) => `import { appendFileSync, mkdirSync, readFileSync } from "node:fs";
const [how = "", what = ""] = (() => { try { return readFileSync(${JSON.stringify(control)}, "utf8").split(" "); } catch { return []; } })();
const active = how === "active" ? Number(what) : -1;
const noted = new Set<string>();
/** Returns the test that started this process, or one of the processes above it. */
function testAbove(): string {
  for (let pid = String(process.ppid); Number(pid) > 1; ) {
    try { return readFileSync(what + "/of-" + pid, "utf8"); } catch {}
    try { pid = readFileSync("/proc/" + pid + "/stat", "utf8").replace(/.*\\) /s, "").split(" ")[1]; } catch { break; }
  }
  return "";
}
export function mutant_(id: number): boolean {
  if (how === "record") {
    const test = (globalThis as any).mutantTest ?? testAbove();
    const key = test + " " + id;
    if (!noted.has(key)) { noted.add(key); mkdirSync(what, { recursive: true }); appendFileSync(what + "/" + process.pid, id + " " + test + "\\n"); }
  }
  return id === active;
}
`;

/** Names the test file that runs, for what this process reaches, and for what the processes reach that it starts. */
const SETUP = (control) => `{
  const { mkdirSync, readFileSync, writeFileSync } = await import("node:fs");
  const { testPath } = (await import("vitest")).expect.getState();
  (globalThis as any).mutantTest = testPath;
  const [how, what] = readFileSync(${JSON.stringify(control)}, "utf8").split(" ");
  if (how === "record") { mkdirSync(what, { recursive: true }); writeFileSync(what + "/of-" + process.pid, testPath); }
}
`;

/** Makes a copy of the project with all mutants in it. Returns its folder, and a function that throws their switches. */
function makeCopy(byFile) {
  const folder = mkdtempSync(join(tmpdir(), "mutants-"));
  const control = join(folder, "mutant");
  const archive = execFileSync("git", ["archive", "HEAD"], { cwd: ROOT, maxBuffer: 1 << 30 });
  execFileSync("tar", ["-x", "-C", folder], { input: archive });
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, "src/mutant.ts"), SWITCH(control));
  for (const [file, mutants] of byFile) {
    const text = read(file);
    const [first] = /^#!.*\n/.exec(text) ?? [""];
    const path = relative(dirname(file), "src/mutant.ts");
    const head = `${first}// @ts-nocheck\nimport { mutant_ } from "${path.startsWith(".") ? path : `./${path}`}";\n`;
    writeFileSync(join(folder, file), head + withSwitches(text, mutants).slice(first.length));
  }
  const setup = join(folder, "test/support/equality.ts");
  writeFileSync(setup, `${readFileSync(setup, "utf8")}\n;${SETUP(control)}`);
  return { folder, turn: (text) => writeFileSync(control, text) };
}

/** Runs tests in a copy. Resolves with the exit status, null where the time was over, and the output. */
function vitest(folder, args, timeout) {
  const child = spawn(process.execPath, [join(folder, "node_modules/vitest/vitest.mjs"), "run", ...args], {
    cwd: folder,
    env: { ...process.env, NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "ignore"],
    detached: true,
  });
  return new Promise((resolve) => {
    let stdout = "";
    // With its workers: one that loops hears of nothing.
    const timer = timeout && setTimeout(() => process.kill(-child.pid, "SIGKILL"), timeout);
    child.stdout.setEncoding("utf8").on("data", (text) => {
      stdout += text;
    });
    child.on("exit", (status) => {
      clearTimeout(timer);
      resolve({ status, stdout });
    });
  });
}

/** Runs the tests without a mutant. Returns by mutant the test files that reach it, and how long each took; those that fail do not count. */
async function record({ folder, turn }) {
  const reached = new Map();
  const failing = new Set();
  const took = new Map();
  const place = join(folder, "reached");
  for (const project of ["unit", "system"]) {
    console.log(`What the ${project} tests reach ...`);
    rmSync(place, { recursive: true, force: true });
    turn(`record ${place}`);
    const out = join(folder, "report.json");
    await vitest(folder, ["--project", project, "--reporter", "json", "--outputFile", out]);
    for (const { name, status, startTime, endTime } of JSON.parse(readFileSync(out, "utf8")).testResults) {
      const path = relative(folder, name);
      took.set(path, (took.get(path) ?? 0) + endTime - startTime);
      if (status === "failed") failing.add(path);
    }
    for (const name of existsSync(place) ? readdirSync(place) : []) {
      if (name.startsWith("of-")) continue;
      for (const line of readFileSync(join(place, name), "utf8").split("\n").slice(0, -1)) {
        const [id, test = ""] = line.split(" ");
        if (test !== "") reached.set(Number(id), new Set([...(reached.get(Number(id)) ?? []), relative(folder, test)]));
      }
    }
  }
  const sound = ([id, files]) => [
    id,
    [...files].filter((file) => !failing.has(file)).sort((a, b) => took.get(a) - took.get(b)),
  ];
  console.log(`Left out, because they fail without a mutant: ${[...failing].join(", ") || "none"}.`);
  return { reached: new Map([...reached].map(sound)), failing: [...failing], took };
}

/** Returns the files, the quickest first, in runs that take a few seconds, then twice as long, and so on. */
function runsOf(files, took) {
  const runs = [];
  let rest = files;
  for (let most = 3000; rest.length > 0; most *= 2) {
    let count = 0;
    for (let sum = 0; count < rest.length && (count === 0 || sum < most); count++) sum += took.get(rest[count]) ?? 0;
    runs.push(rest.slice(0, count));
    rest = rest.slice(count);
  }
  return runs;
}

/** Runs the tests that reach a mutant, up to the first that fails. Returns the outcome and the test that decided it. */
async function attack({ folder, turn }, mutant, { reached, failing, took }) {
  const files = reached.get(mutant.id) ?? [];
  if (files.length === 0) return { outcome: "not reached" };
  turn(`active ${mutant.id}`);
  const isLoaded = mutant.where === "";
  const without = failing.flatMap((file) => ["--exclude", file]);
  for (const some of isLoaded ? [without] : runsOf(files, took)) {
    const usual = isLoaded ? 60_000 : some.reduce((sum, file) => sum + (took.get(file) ?? 0), 0);
    const projects = isLoaded ? ["--project", "unit"] : ["--project", "unit", "--project", "system"];
    const { status, stdout } = await vitest(folder, [...projects, ...LIMITS, ...some], PATIENCE * 1000 + 3 * usual);
    if (status === 0) continue;
    const [, by] = /FAIL\s+(?:\|?\w+\|?\s+)?(test\S+)/.exec(stdout) ?? [];
    return { outcome: status === null ? "killed by a test that hangs" : "killed", by };
  }
  return { outcome: "survived", files: files.length };
}

/** Attacks all mutants, in lanes side by side, and writes each result down at once. Those that have one are left out. */
async function run({ lanes, only }) {
  const byFile = found();
  const all = [...byFile.values()].flat().sort((a, b) => a.id - b.id);
  const wanted = new Set(only?.split(",").map(Number));
  const results = resultsIn(RESULTS);
  const copies = Array.from({ length: Number(lanes) }, () => makeCopy(byFile));
  try {
    const known = await record(copies[0]);
    const left = all.filter(({ id }) => (only ? wanted.has(id) : results[id] === undefined));
    const work = async (copy) => {
      for (let mutant = left.shift(); mutant; mutant = left.shift()) {
        results[mutant.id] = await attack(copy, mutant, known);
        writeLines(
          RESULTS,
          Object.entries(results).map(([id, result]) => ({ id: Number(id), ...result })),
        );
        console.log(`${mutant.id} ${mutant.file} ${mutant.where}: ${mutant.operator}: ${results[mutant.id].outcome}`);
      }
    };
    await Promise.all(copies.map(work));
  } finally {
    for (const { folder } of copies) rmSync(folder, { recursive: true, force: true });
  }
}

/** Prints killed and survived by folder. Returns whether one that was killed in the other results survives. */
function print(than) {
  const [{ seed }, ...mutants] = linesOf(DRAWN);
  const results = resultsIn(RESULTS);
  const folders = new Map();
  for (const { id, file } of mutants) {
    const folder = file
      .split("/")
      .slice(0, 3)
      .join("/")
      .replace(/\/[^/]+\.ts$/, "");
    const counts = folders.get(folder) ?? { killed: 0, survived: 0, "not reached": 0, open: 0 };
    counts[results[id]?.outcome.replace(/ by .*/, "") ?? "open"]++;
    folders.set(folder, counts);
  }
  console.log(`Seed ${seed}\n\n| folder | killed | survived | not reached | open |\n| --- | --- | --- | --- | --- |`);
  const row = (name, { killed, survived, "not reached": missed, open }) =>
    console.log(`| ${name} | ${killed} | ${survived} | ${missed} | ${open} |`);
  for (const [name, counts] of [...folders].sort()) row(name, counts);
  const sum = (member) => [...folders.values()].reduce((total, counts) => total + counts[member], 0);
  row("all", Object.fromEntries(["killed", "survived", "not reached", "open"].map((member) => [member, sum(member)])));
  if (than === undefined) return false;
  const before = resultsIn(than);
  const isKilled = (result) => result?.outcome.startsWith("killed");
  const lost = mutants.filter(({ id }) => isKilled(before[id]) && results[id] !== undefined && !isKilled(results[id]));
  for (const { id, file, where, operator, from } of lost)
    console.log(`Was killed and survives: ${id} ${file} ${where}: ${operator}: ${from}`);
  return lost.length > 0;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: "string" },
    count: { type: "string", default: "400" },
    lanes: { type: "string", default: "2" },
    only: { type: "string" },
    than: { type: "string" },
  },
});
const [command] = positionals;
if (command === "draw") draw(Number(values.seed ?? Math.floor(Math.random() * 2 ** 31)), Number(values.count));
else if (command === "check") found();
else if (command === "run") await run(values);
else if (command === "table") process.exitCode = print(values.than) ? 1 : 0;
else throw new Error("draw, check, run or table?");
