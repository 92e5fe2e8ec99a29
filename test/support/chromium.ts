/** A Chromium that tests look at pages with, driven over its debugging pipe. */

import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import type { Json } from "./server.ts";

const SWITCHES =
  "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking " +
  "--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe";

/** Returns where a Chromium is on this machine, if there is one. */
export function chromiumHere(): string | undefined {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const places = ["chromium", "chromium-browser", "google-chrome"].flatMap((name) =>
    folders.map((folder) => join(folder, name)),
  );
  return places.find((place) => {
    try {
      accessSync(place, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** One page of a browser, and everything that it did which a page of ours does not do. */
export class BrowserPage {
  private readonly child: ChildProcess;
  private readonly profile: string;
  private readonly waiting = new Map<number, (message: Json) => void>();
  private readonly listeners = new Map<string, () => void>();
  private next = 1;
  private left = "";
  private sessionId: string | undefined;
  /** Requests elsewhere, dialogs, words on the console, and errors. */
  readonly happened: string[] = [];

  private constructor(program: string) {
    this.profile = mkdtempSync(join(tmpdir(), "chromium-"));
    this.child = spawn(program, [...SWITCHES.split(" "), `--user-data-dir=${this.profile}`, "about:blank"], {
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    });
    const output = this.child.stdio[4] as Readable;
    output.setEncoding("utf8");
    output.on("data", (chunk: string) => {
      const texts = (this.left + chunk).split("\0");
      this.left = texts.pop() as string;
      for (const text of texts) this.take(JSON.parse(text));
    });
  }

  static async open(program: string): Promise<BrowserPage> {
    const page = new BrowserPage(program);
    const { targetInfos } = await page.send("Target.getTargets");
    const { targetId } = targetInfos.find(({ type }: Json) => type === "page");
    const { sessionId } = await page.send("Target.attachToTarget", { targetId, flatten: true });
    page.sessionId = sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await page.send(`${domain}.enable`);
    return page;
  }

  private take({ id, method, params, result, error }: Json): void {
    if (id !== undefined) this.waiting.get(id)?.(error ? { failed: error.message } : result);
    this.waiting.delete(id);
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
    const id = this.next++;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      const message = JSON.stringify({ id, method, params, sessionId: this.sessionId });
      (this.child.stdio[3] as Writable).write(`${message}\0`);
    });
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
    return (await this.send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true })).result.value;
  }

  /** Presses a key, and waits until what it did is drawn. */
  async press(key: string): Promise<void> {
    const text = key.length === 1 ? key : key === "Enter" ? "\r" : undefined;
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", key, text });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", key });
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

  /** Shows pages as on a dark screen, or on paper. */
  async media(scheme: "light" | "dark", media = ""): Promise<void> {
    const features = [{ name: "prefers-color-scheme", value: scheme }];
    await this.send("Emulation.setEmulatedMedia", { media, features });
  }

  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    void this.send("Browser.close");
    const late = setTimeout(() => this.child.kill("SIGKILL"), 5000);
    await ended;
    clearTimeout(late);
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}
