/** A Chromium that tests look at pages with, driven over its debugging pipe. A process has one for all of its pages. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findProgram, need } from "./needs.ts";
import type { Json } from "./server.ts";

const SWITCHES =
  "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking " +
  "--disable-component-update --disable-sync --disable-extensions --disable-dev-shm-usage --hide-scrollbars " +
  "--remote-debugging-pipe";

/** Runs a browser, which ends with the pipe to it, and removes its profile behind it. */
const RUN = 'trap : INT TERM HUP; "$@"; rm -rf "$0"';

/** Returns where a Chromium is on this machine, if there is one. */
export function chromiumHere(): string | undefined {
  return findProgram("chromium", "chromium-browser", "google-chrome");
}

export const CHROMIUM = need("Chromium", "apt-get install chromium", () => chromiumHere() !== undefined);

class Browser {
  private readonly child: ChildProcess;
  private readonly waiting = new Map<number, (message: Json) => void>();
  private readonly pages = new Map<string, (method: string, params: Json) => void>();
  private next = 1;
  private left = "";

  constructor(program: string) {
    const profile = mkdtempSync(join(tmpdir(), "chromium-"));
    const words = [program, ...SWITCHES.split(" "), `--user-data-dir=${profile}`, "about:blank"];
    this.child = spawn("sh", ["-c", RUN, profile, ...words], {
      // Files that it writes outside its profile would stay there.
      env: { ...process.env, HOME: profile, TMPDIR: profile },
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    });
    const output = this.child.stdio[4] as Socket;
    output.setEncoding("utf8");
    output.on("data", (chunk: string) => {
      const texts = (this.left + chunk).split("\0");
      this.left = texts.pop() as string;
      for (const text of texts) this.take(JSON.parse(text));
    });
  }

  private take({ id, sessionId, method, params, result, error }: Json): void {
    if (id !== undefined) this.waiting.get(id)?.(error ? { failed: error.message } : result);
    this.waiting.delete(id);
    this.keepAlive();
    if (method !== undefined) this.pages.get(sessionId)?.(method, params);
  }

  send(method: string, params: object = {}, sessionId?: string): Promise<Json> {
    const id = this.next++;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.keepAlive();
      (this.child.stdio[3] as Socket).write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  /** Hears a page, or does no longer. */
  hear(sessionId: string, hear?: (method: string, params: Json) => void): void {
    if (hear === undefined) this.pages.delete(sessionId);
    else this.pages.set(sessionId, hear);
    this.keepAlive();
  }

  /** Keeps this process alive while there is a page, or an answer to wait for. */
  private keepAlive(): void {
    const isBusy = this.pages.size + this.waiting.size > 0;
    const handles = [this.child, ...(this.child.stdio.slice(3) as Socket[])];
    for (const handle of handles) isBusy ? handle.ref() : handle.unref();
  }
}

/** The browser of this process. */
let browser: Browser | undefined;

/** A page with storage of its own, and everything that it did which a page of ours does not do. */
export class BrowserPage {
  private readonly browser: Browser;
  private readonly context: string;
  private readonly sessionId: string;
  private readonly listeners = new Map<string, () => void>();
  /** Requests elsewhere, dialogs, words on the console, and errors. */
  readonly happened: string[] = [];

  private constructor(browser: Browser, context: string, sessionId: string) {
    this.browser = browser;
    this.context = context;
    this.sessionId = sessionId;
    browser.hear(sessionId, (method, params) => this.take(method, params));
  }

  static async open(program = chromiumHere() as string): Promise<BrowserPage> {
    browser ??= new Browser(program);
    const { browserContextId } = await browser.send("Target.createBrowserContext");
    const { targetId } = await browser.send("Target.createTarget", { url: "about:blank", browserContextId });
    const { sessionId } = await browser.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new BrowserPage(browser, browserContextId, sessionId);
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await page.send(`${domain}.enable`);
    return page;
  }

  private take(method: string, params: Json): void {
    if (method === "Network.requestWillBeSent" && !/^(?:file|data|about):/.test(params.request.url))
      this.happened.push(`request ${params.request.url}`);
    if (method === "Page.javascriptDialogOpening") {
      this.happened.push(`dialog ${params.message}`);
      void this.send("Page.handleJavaScriptDialog", { accept: false });
    }
    if (method === "Runtime.consoleAPICalled") this.happened.push(`console ${params.type}`);
    if (method === "Runtime.exceptionThrown") this.happened.push(`exception ${params.exceptionDetails.text}`);
    if (method === "Log.entryAdded") this.happened.push(`log ${params.entry.text}`);
    this.listeners.get(method)?.();
  }

  send(method: string, params: object = {}): Promise<Json> {
    return this.browser.send(method, params, this.sessionId);
  }

  /** Loads a page, at a width in pixels, with script or without. */
  async load(url: string, width: number, script: boolean): Promise<void> {
    // The page before may be at work: where scripts are taken from it meanwhile, its own calls fail.
    await this.goTo("about:blank");
    await this.send("Emulation.setScriptExecutionDisabled", { value: !script });
    await this.send("Emulation.setDeviceMetricsOverride", { width, height: 800, deviceScaleFactor: 1, mobile: false });
    await this.goTo(url);
  }

  private async goTo(url: string): Promise<void> {
    const loaded = new Promise<void>((resolve) => this.listeners.set("Page.loadEventFired", resolve));
    await this.send("Page.navigate", { url });
    await loaded;
  }

  async evaluate(expression: string): Promise<Json> {
    const asked = { expression, returnByValue: true, awaitPromise: true };
    // A page that is loaded again in between forgets the question.
    return (await this.send("Runtime.evaluate", asked)).result?.value;
  }

  /** Presses a key, and waits until its effect is drawn. */
  async press(key: string): Promise<void> {
    const text = key.length === 1 ? key : key === "Enter" ? "\r" : undefined;
    // The focus moves by the code alone.
    const windowsVirtualKeyCode = key === "Tab" ? 9 : undefined;
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", key, text, windowsVirtualKeyCode });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", key, windowsVirtualKeyCode });
    await this.drawn();
  }

  /** Waits until the page is drawn once more. */
  async drawn(): Promise<void> {
    await this.evaluate("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))");
  }

  /** Waits until an expression is true. */
  async until(expression: string): Promise<void> {
    const started = Date.now();
    while (!(await this.evaluate(expression))) {
      if (Date.now() - started > 20_000) throw new Error(`It did not become true: ${expression}`);
      await this.drawn();
    }
  }

  /** Returns the rules of WCAG 2.2 AA that the page breaks, each with places. */
  async findBarriers(): Promise<string[]> {
    await this.evaluate(readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
    return this.evaluate(`axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] })
      .then(({ violations }) => violations.map(({ id, nodes }) => id + " " + nodes.map(({ html }) => html).slice(0, 3)))`);
  }

  /** Shows pages as on a dark screen, or on paper. */
  async media(scheme: "light" | "dark", media = ""): Promise<void> {
    const features = [{ name: "prefers-color-scheme", value: scheme }];
    await this.send("Emulation.setEmulatedMedia", { media, features });
  }

  async close(): Promise<void> {
    await this.browser.send("Target.disposeBrowserContext", { browserContextId: this.context });
    this.browser.hear(this.sessionId);
  }
}
