/** Takes the pictures of docs/pictures (scripts/pages.js). */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { renderAnsi } from "../src/page/ansi.ts";
import { BrowserPage, chromiumHere } from "../test/support/chromium.ts";
import { putRemembered } from "../test/support/remembered.ts";

interface Places {
  /** An environment without anything of a person's own. */
  readonly env: NodeJS.ProcessEnv;
  readonly root: string;
  /** An empty folder, for sessions and pages. */
  readonly home: string;
  readonly into: string;
  /** Part of the names of those that are taken. */
  readonly only: string;
}

const WIDTHS = [1280, 400] as const;
const SCHEMES = ["light", "dark"] as const;

/** Bytes that no picture may have. */
const MOST = 150_000;

/** A question of the session, followed by a list, a branch that was left, and files that are read and written. */
const QUESTION_ID = "38cf5830";

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
  } finally {
    await camera.page.close();
  }
  const { happened } = camera.page;
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

  /** Takes a page at every width, light and dark. */
  async take(name: string, url: string): Promise<void> {
    for (const width of WIDTHS)
      for (const scheme of SCHEMES) {
        const called = `${name}-${width}-${scheme}`;
        if (!called.includes(this.places.only)) continue;
        await this.show(url, width, scheme);
        await this.shoot(called);
      }
  }

  async show(url: string, width: number, scheme: string): Promise<void> {
    const features = [{ name: "prefers-color-scheme", value: scheme }];
    await this.page.send("Emulation.setEmulatedMedia", { features });
    // A page that differs in its hash alone is not loaded anew.
    await this.page.load("about:blank", width, true);
    await this.page.load(url, width, true);
    await this.wait();
  }

  /** Waits until the page has its fonts and nothing moves there; throws after ten seconds. */
  private async wait(): Promise<void> {
    const expression = `new Promise((resolve) => {
      const end = performance.now() + 10000;
      const look = () => {
        const is = document.fonts.status === "loaded" && document.getAnimations().every(({ playState }) => playState !== "running");
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
    if (result?.value !== true) throw new Error("The page did not come to rest.");
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

/** The exported page, at a question. */
async function takeExport(camera: Camera, { root, home, env }: Places, program: string): Promise<void> {
  const file = join(home, "session.html");
  execFileSync(process.execPath, [program, "export", join(root, "examples/branches.jsonl"), file], {
    env,
    stdio: "ignore",
  });
  await camera.take("conversation", `${pathToFileURL(file).href}#${QUESTION_ID}`);
}

/** Cells of the terminal. */
const [COLUMNS, ROWS] = [112, 28];

/** The session that is selected, and words of its preview. */
const SELECTED = { title: "Image resizing", said: "sharp keeps a cache" };

/** The verb `browse` over the sessions of five agents, as a light and a dark terminal show it. */
async function takeTerminal(camera: Camera, { home, env, only }: Places, program: string): Promise<void> {
  if (!["terminal-light", "terminal-dark"].some((name) => name.includes(only))) return;
  putRemembered({ home, state: join(home, "state") });
  const file = join(home, "terminal.html");
  const shown = renderAnsi(await browse(home, { ...env, LANG: "C.UTF-8" }, program));
  writeFileSync(file, `<!doctype html><meta charset="utf-8"><style>${TERMINAL}</style><pre>${shown}</pre>`);
  for (const scheme of SCHEMES) {
    await camera.show(pathToFileURL(file).href, 1200, scheme);
    const clip = await camera.page.evaluate(
      "(({ width, height }) => ({ x: 0, y: 0, width, height, scale: 1 }))(document.querySelector('pre').getBoundingClientRect())",
    );
    await camera.shoot(`terminal-${scheme}`, clip);
  }
}

/** Returns the screen of `browse`, with its colours, once a session of the list is selected. */
async function browse(home: string, env: NodeJS.ProcessEnv, program: string): Promise<string> {
  const tmux = (...args: string[]): string =>
    execFileSync("tmux", ["-S", join(home, "tmux"), "-f", "/dev/null", ...args], { env, encoding: "utf8" });
  const size = ["-x", `${COLUMNS}`, "-y", `${ROWS}`];
  tmux("new-session", "-d", ...size, "-c", home, process.execPath, program, "browse");
  try {
    await untilShown(tmux, "Weekly notes");
    tmux("send-keys", "O");
    await untilShown(tmux, "claude:");
    for (let presses = 0; !isSelected(tmux("capture-pane", "-p")); presses++) {
      if (presses === ROWS) throw new Error(`The list of browse never came to ${SELECTED.title}.`);
      tmux("send-keys", "Down");
      await setTimeout(LOOK);
    }
    await untilShown(tmux, SELECTED.said);
    return tmux("capture-pane", "-e", "-p").trimEnd();
  } finally {
    tmux("kill-server");
  }
}

function isSelected(screen: string): boolean {
  return screen.split("\n").some((line) => line.startsWith(">") && line.includes(SELECTED.title));
}

/** Milliseconds between two looks at the screen, and how often it is looked at. */
const LOOK = 200;
const LOOKS = 100;

async function untilShown(tmux: (...args: string[]) => string, words: string): Promise<void> {
  for (let looks = 0; looks < LOOKS; looks++) {
    if (tmux("capture-pane", "-p").includes(words)) return;
    await setTimeout(LOOK);
  }
  throw new Error(`The screen of browse never had: ${words}`);
}

const TERMINAL = `
body{margin:0}
pre{margin:0;padding:18px 22px;width:fit-content;background:#f6f8fa;color:#1f2328;font:14px/20px "DejaVu Sans Mono",monospace}
.f1{color:#b3261e}.f2{color:#1a6b30}.f3{color:#7a5600}.f4{color:#0b57d0}.f5{color:#7a3fc0}.f6{color:#0a6470}
.di{color:#5b636c}.bo{font-weight:600}.bo:not(.f1){color:#000}
.in,.in.bo{background:#1f2328;color:#f6f8fa}
@media (prefers-color-scheme: dark) {
pre{background:#14161a;color:#d5d9de}
.f1{color:#ff9a91}.f2{color:#8ad6a0}.f3{color:#e8c468}.f4{color:#85b6ff}.f5{color:#d6a1f2}.f6{color:#75d0dc}
.di{color:#8a93a0}.bo:not(.f1){color:#fff}
.in,.in.bo{background:#d5d9de;color:#14161a}}`;
