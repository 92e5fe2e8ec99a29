/** Takes the pictures of docs/pictures (scripts/pages.js). */

import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { renderAnsi } from "../src/page/ansi.ts";
import { BrowserPage, chromiumHere } from "../test/support/chromium.ts";

/** A host, as examples/client.js has it. */
interface Host {
  request(method: string, params?: object): Promise<unknown>;
  close(): Promise<number>;
}

interface Places {
  /** Starts a server. */
  readonly serve: (args: string[], options: { env: NodeJS.ProcessEnv; cwd: string }) => Host;
  /** An environment without anything of a person's own. */
  readonly env: NodeJS.ProcessEnv;
  readonly root: string;
  /** An empty folder, for sessions and pages. */
  readonly home: string;
  readonly into: string;
  /** Part of the names of those that are taken. */
  readonly only: string;
}

/** A kind of picture: the page to load, and the steps before it is taken; no steps where the program lacks the feature. */
interface Subject {
  readonly name: string;
  readonly url: string;
  /** JavaScript that ends with what must be true before the picture is taken. */
  readonly until?: string;
}

const WIDTHS = [1280, 400] as const;
const SCHEMES = ["light", "dark"] as const;

/** Bytes that no picture may have. */
const MOST = 150_000;

/** Two ends of examples/branches.jsonl: the leaf, and the branch that was left. */
const ENDS = ["a08232a9", "f80a2b34"] as const;

/** A question of the session, followed by a list, a branch that was left, and files that are read and written. */
const QUESTION_ID = "38cf5830";

/** Selectors of the tree and the comparison on the page, once its script has made them. */
const PANE = 'document.querySelector("aside.pane")';
const OPENED_PANE = `(() => { const pane = ${PANE}; if (pane?.inert) document.querySelector(".opener").click(); return pane && !pane.inert; })()`;
const COMPARISON = 'document.querySelector("dialog.compare[open]")';

/** Takes the pictures, and returns their names and sizes. Throws when something is not as it should be. */
export async function takePictures(places: Places): Promise<{ name: string; bytes: number }[]> {
  const program = join(places.root, "dist/bin/pi-session-server.js");
  if (!existsSync(program)) throw new Error("There is no server to take pictures of. Run `npm run build`.");
  const chromium = chromiumHere();
  if (chromium === undefined)
    throw new Error("There is no Chromium. Install one, for instance `apt-get install chromium`.");
  mkdirSync(places.into, { recursive: true });
  const camera = new Camera(await BrowserPage.open(chromium), places);
  try {
    await takeExport(camera, places, program);
    await takeTerminal(camera, places, program);
    await takeViewer(camera, places, program);
  } finally {
    await camera.page.close();
  }
  // The viewer's own pages come from this machine.
  const happened = camera.page.happened.filter((one) => !one.startsWith("request http://127.0.0.1:"));
  if (happened.length > 0) throw new Error(`The pages did more than show: ${happened.join("; ")}`);
  return camera.taken;
}

class Camera {
  readonly page: BrowserPage;
  readonly taken: { name: string; bytes: number }[] = [];
  private readonly places: Places;

  constructor(page: BrowserPage, places: Places) {
    this.page = page;
    this.places = places;
  }

  /** Takes a subject at every width, light and dark. */
  async take({ name, url, until = "true" }: Subject): Promise<void> {
    for (const width of WIDTHS)
      for (const scheme of SCHEMES) {
        const called = `${name}-${width}-${scheme}`;
        if (!called.includes(this.places.only)) continue;
        await this.show(url, width, scheme, until);
        await this.shoot(called);
      }
  }

  async show(url: string, width: number, scheme: string, until: string): Promise<void> {
    const features = [{ name: "prefers-color-scheme", value: scheme }];
    await this.page.send("Emulation.setEmulatedMedia", { features });
    // A page that differs in its hash alone is not loaded anew.
    await this.page.load("about:blank", width, true);
    await this.page.load(url, width, true);
    await this.wait(until);
  }

  /** Waits until something is true in the page, and nothing moves there; throws after ten seconds. */
  async wait(until: string): Promise<void> {
    const expression = `new Promise((resolve) => {
      const end = performance.now() + 10000;
      const look = () => {
        let is = false;
        try { is = Boolean(${until}) && document.getAnimations().every(({ playState }) => playState !== "running"); } catch {}
        if (is || performance.now() > end) requestAnimationFrame(() => requestAnimationFrame(() => resolve(is)));
        else requestAnimationFrame(look);
      };
      look();
    })`;
    const { result } = await this.page.send("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (result?.value !== true) throw new Error(`The page never had what the picture is of: ${until}`);
  }

  async shoot(name: string, clip?: object): Promise<void> {
    for (const quality of [85, 70, 50, 30]) {
      const { data } = await this.page.send("Page.captureScreenshot", {
        format: "webp",
        quality,
        ...(clip && { clip }),
      });
      const bytes = Buffer.from(data, "base64");
      if (bytes.length > MOST) continue;
      const file = join(this.places.into, `${name}.webp`);
      writeFileSync(file, bytes);
      this.taken.push({ name, bytes: statSync(file).size });
      return;
    }
    throw new Error(`${name} has more than ${MOST} bytes.`);
  }
}

/** The exported page: as it opens, its tree, and two ends next to each other. */
async function takeExport(camera: Camera, { root, home, env }: Places, program: string): Promise<void> {
  const file = join(home, "session.html");
  execFileSync(process.execPath, [program, "export", join(root, "examples/branches.jsonl"), file], {
    env,
    stdio: "ignore",
  });
  const url = pathToFileURL(file).href;
  await camera.take({ name: "conversation", url: `${url}#${QUESTION_ID}` });
  if (!/<script\b/.test(readFileSync(file, "utf8"))) return;
  await camera.take({ name: "tree", url, until: OPENED_PANE });
  await camera.take({ name: "compare", url: `${url}#${ENDS.join("~")}`, until: COMPARISON });
}

/** The verb `tree`, as a light and a dark terminal show it. */
async function takeTerminal(camera: Camera, { root, home, env: own, only }: Places, program: string): Promise<void> {
  if (!"terminal".includes(only)) return;
  const quoted = [process.execPath, program, "tree", join(root, "examples/branches.jsonl"), "--no-pager"].map(
    (word) => `'${word}'`,
  );
  const env = { ...own, TERM: "xterm-256color", LANG: "C.UTF-8" };
  const command = `stty cols 100 rows 60; exec ${quoted.join(" ")}`;
  const { status, stdout } = spawnSync("script", ["-qefc", command, "/dev/null"], { env, encoding: "utf8" });
  if (status !== 0) throw new Error("The terminal's picture needs the program `script`, of util-linux.");
  const file = join(home, "terminal.html");
  const shown = renderAnsi(`\u001b[2m$\u001b[22m pi-session-server tree branches.jsonl\n${stdout.trimEnd()}\n`);
  writeFileSync(file, `<!doctype html><meta charset="utf-8"><style>${TERMINAL}</style><pre>${shown}</pre>`);
  for (const scheme of SCHEMES) {
    await camera.show(pathToFileURL(file).href, 1000, scheme, "document.fonts.status === 'loaded'");
    const clip = await camera.page.evaluate(
      "(({ width, height }) => ({ x: 0, y: 0, width, height, scale: 1 }))(document.querySelector('pre').getBoundingClientRect())",
    );
    await camera.shoot(`terminal-${scheme}`, clip);
  }
}

const TERMINAL = `
body{margin:0}
pre{margin:0;padding:18px 22px;width:fit-content;background:#f6f8fa;color:#1f2328;font:14px/20px "DejaVu Sans Mono",monospace}
.f1{color:#b3261e}.f2{color:#1a6b30}.f3{color:#7a5600}.f4{color:#0b57d0}.f5{color:#7a3fc0}.f6{color:#0a6470}
.di{color:#5b636c}.bo{font-weight:600}.bo:not(.f1){color:#000}
@media (prefers-color-scheme: dark) {
pre{background:#14161a;color:#d5d9de}
.f1{color:#ff9a91}.f2{color:#8ad6a0}.f3{color:#e8c468}.f4{color:#85b6ff}.f5{color:#d6a1f2}.f6{color:#75d0dc}
.di{color:#8a93a0}.bo:not(.f1){color:#fff}}`;

/** The viewer: the costs of sessions, and a session that another process writes. */
async function takeViewer(camera: Camera, places: Places, program: string): Promise<void> {
  const { root, home, env } = places;
  const help = execFileSync(process.execPath, [program, "--help"], { env, encoding: "utf8" });
  if (!/^\s+view\b/m.test(help)) return;
  const sessions = join(home, "sessions");
  mkdirSync(sessions);
  for (const name of ["branches.jsonl", "old-v1.jsonl"])
    copyFileSync(join(root, "examples", name), join(sessions, name));
  const session = join(sessions, "branches.jsonl");
  const viewer = spawn(process.execPath, [program, "view", session, "--session-dir", sessions, "--json"], { env });
  try {
    const url = await addressOf(viewer);
    // Its first page lets the browser see the others.
    await camera.show(url, 1280, "light", "document.readyState === 'complete'");
    await camera.take({ name: "stats", url: new URL("costs", url).href, until: 'document.querySelector("main")' });
    await takeLive(camera, places, { url, session, sessions });
  } finally {
    viewer.kill("SIGINT");
  }
}

/** Resolves with the address that the viewer prints. */
function addressOf(viewer: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    const lines = createInterface({ input: viewer.stdout as NodeJS.ReadableStream });
    lines.on("line", (line) => {
      const address = /https?:\/\/[^\s"]+/.exec(line)?.[0];
      if (address !== undefined) resolve(address);
    });
    lines.on("close", () => reject(new Error("The viewer ended without an address.")));
  });
}

const QUESTION = "Is the config file read again when it changes?";
const ANSWER = "No. It is read **once**, when the command starts:\n\n```ts\nconst config = readConfig();\n```\n";

/** Takes a session's page after another process has added to it. */
async function takeLive(
  camera: Camera,
  { serve, env, home: cwd }: Places,
  { url, session, sessions }: { url: string; session: string; sessions: string },
): Promise<void> {
  const isThere = `document.body.textContent.includes(${JSON.stringify(QUESTION)})`;
  const atEnd = `[...document.querySelectorAll("article")].some((article) => {
    if (!article.textContent.includes(${JSON.stringify(QUESTION)})) return false;
    article.scrollIntoView({ block: "center", behavior: "instant" });
    return true;
  })`;
  await camera.show(url, 1280, "light", "document.readyState === 'complete'");
  const server = serve(["--session-dir", sessions, "--session", session], { env, cwd });
  const say = (message: object): Promise<unknown> =>
    server.request("append", { entries: [{ type: "message", message }] });
  await say({ role: "user", content: QUESTION });
  await say({
    role: "assistant",
    provider: "anthropic",
    model: "claude-haiku-4-5",
    content: [{ type: "text", text: ANSWER }],
  });
  // It came while the page was open; each picture of it is of a page that is loaded anew.
  await camera.wait(isThere);
  await server.close();
  await camera.take({ name: "live", url, until: `${isThere} && ${atEnd}` });
}
