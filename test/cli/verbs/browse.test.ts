/** browse from keys to files, on a fake screen; and taking and restoring a real one. */

import { EventEmitter } from "node:events";
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ReadStream, WriteStream } from "node:tty";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { type Key, parseKeys } from "../../../src/cli/terminal/keys.ts";
import type { Launch } from "../../../src/cli/terminal/programs.ts";
import { openScreen, type Screen } from "../../../src/cli/terminal/screen.ts";
import { assistantText, userText } from "../../support/lines.ts";
import { type Place, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";
import { type Run, runHere, stored } from "../../support/verbs.ts";

const ESCAPE = "\u001b";

/** A screen whose keys a test presses when it shows what the test waits for. */
class Glass implements Screen {
  rows = 12;
  columns = 80;
  isOpen = true;
  private lines: readonly string[] = [];
  private ears: Parameters<Screen["listen"]>[0] | undefined;

  listen(ears: Parameters<Screen["listen"]>[0]): void {
    this.ears = ears;
  }

  draw(lines: readonly string[]): void {
    this.lines = lines;
  }

  readonly copied: string[] = [];

  copy(text: string): void {
    this.copied.push(text);
  }

  close(): void {
    this.isOpen = false;
  }

  get text(): string {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern removes colours
    return this.lines.map((line) => line.replace(/\u001b\[\d+m/g, "").trimEnd()).join("\n");
  }

  /** Waits until the screen shows something. */
  async shows(what: RegExp | string): Promise<string> {
    const pattern = typeof what === "string" ? expect.stringContaining(what) : expect.stringMatching(what);
    await vi.waitFor(() => expect(this.text).toEqual(pattern), { timeout: 30_000, interval: 2 });
    return this.text;
  }

  /** Sends a terminal's input. */
  send(text: string): void {
    for (const key of text === ESCAPE ? [{ name: "escape" } as Key] : parseKeys(text).keys) this.ears?.key(key);
  }

  /** Presses keys, and waits for what the screen is to show then. */
  async walk(...steps: readonly (readonly [keys: string, what?: RegExp | string])[]): Promise<void> {
    for (const [keys, what] of steps) {
      this.send(keys);
      if (what !== undefined) await this.shows(what);
    }
  }

  resize(rows: number, columns: number): void {
    Object.assign(this, { rows, columns });
    this.ears?.resized();
  }

  goAway(): void {
    this.ears?.gone();
  }
}

function browsing(place: Place, ...args: string[]): { glass: Glass; done: Promise<Run> } {
  const glass = new Glass();
  const done = runHere(place, ["browse", ...args], { terminal: { openScreen: () => glass, errorColumns: 80 } });
  return { glass, done };
}

const BRANCHES = [assistantText("b", "a", "an answer"), assistantText("c", "a", "a better answer")];
const question = (place: Place, more: string[] = []): string =>
  stored(place, "one", [userText("a", null, "a question"), ...BRANCHES, ...more]);
const said = (place: Place, id: string, text: string, cwd?: string): string =>
  stored(place, id, [userText("a", null, text)], cwd === undefined ? {} : { cwd });

const leafOf = async (place: Place, file: string): Promise<string> =>
  (await serveHere(["--session", file, "--events", "none"], { place }).result("get_state")).leafId;

describe("browse", () => {
  test.each([[], ["--json"]])("prints the path of the session that Enter picks %j", async (...args) => {
    const place = temporaryPlace();
    said(place, "one", "about apples");
    const file = said(place, "two", "about pears");
    const { glass, done } = browsing(place, ...args);
    await glass.walk(["", "1 of 2"], ["/pears", "1 of 1"]);
    expect(glass.isOpen).toBe(true);
    glass.send("\r");
    const stdout = args.length === 0 ? `${file}\n` : `{"sessionPath":"${file}"}\n`;
    expect([await done, glass.isOpen]).toEqual([{ stdout, stderr: "", status: 0 }, false]);
  });

  // Keys behind the one that ends it do nothing.
  test.each(["q", "\u0003", "q\u0004ytad\r", "a terminal that goes away"])(
    "%j prints nothing and ends with 1",
    async (keys) => {
      const place = temporaryPlace();
      const file = said(place, "one", "x");
      const { glass, done } = browsing(place);
      await glass.shows("1 of 1");
      if (keys.length > 10) glass.goAway();
      else glass.send(keys);
      expect([await done, glass.isOpen, existsSync(file)]).toEqual([
        { stdout: "", stderr: "", status: 1 },
        false,
        true,
      ]);
    },
  );

  test("begins with the sessions of the directory, finds what was said, and shows it", async () => {
    const place = temporaryPlace();
    const figs = assistantText("b", "a", "They are green, as figs are.");
    stored(place, "one", [userText("a", null, "about apples"), figs]);
    said(place, "here", "about pears", place.cwd);
    const { glass, done } = browsing(place);
    glass.resize(24, 80);
    expect(await glass.shows("1 of 1")).toContain("about pears");
    await glass.walk(
      ["\t", "1 of 2"],
      ["/figs", /Filter: figs_(?:.|\n)*> .*about apples {2}They are green, as figs are\./],
      ["", /^> assistant$/m],
      ["\u0003"],
    );
    await done;
  });

  test("asks before it moves the leaf, and it stays moved; what was looked at is not written to", async () => {
    const place = temporaryPlace();
    const file = question(place, [userText("d", "c", "and\nthen?")]);
    const bytes = readFileSync(file);
    const { glass, done } = browsing(place);
    await glass.walk(
      ["", "1 of 1"],
      ["t", "4 of 4"],
      ["\r", 'Go back to before "and then?", and take its text along? y/n'],
      ["n"],
    );
    expect(readFileSync(file)).toEqual(bytes);
    await glass.walk(["\ry", "The conversation goes on from here. u takes it back. Text copied; q prints it."]);
    expect([glass.copied, await leafOf(place, file)]).toEqual([["and\nthen?"], "c"]);
    await glass.walk(
      ["gj\r", 'Continue after "an answer"? y/n'],
      ["y", "The conversation goes on from here."],
      ["", "> * assistant: an answer"],
      [ESCAPE, "MSGS"],
    );
    glass.resize(6, 40);
    expect(glass.text.split("\n")).toHaveLength(6);
    glass.send("\r");
    expect((await done).stdout).toBe(`${file}\n`);
    expect(await leafOf(place, file)).toBe("b");
  });

  test("renames, labels, archives, brings back, forks and exports, and holds nothing then", SYSTEM, async () => {
    const place = temporaryPlace();
    const file = question(place);
    const { glass, done } = browsing(place);
    glass.resize(24, 80);
    await glass.walk(
      ["", "a better answer"],
      ["rFruit\r", '"a question" is named Fruit. u takes it back.'],
      ["", /> .*Fruit/],
      ["t", "default"],
      ["lgood\r", 'An entry of "Fruit" is labelled good.'],
      ["l\u0015\r", 'A label in "Fruit" is cleared.'],
      [ESCAPE],
      ["a", '"Fruit" is in the archive'],
    );
    expect(existsSync(file)).toBe(false);
    await glass.walk(
      ["A", /Archive(.|\n)*> .*Fruit/],
      ["a", '"Fruit" is back from the archive.'],
      ["A", /Sessions(.|\n)*> .*Fruit/],
      ["f", '"Fruit" is copied into a new session.'],
      ["", "2 of 2"],
      ["ke\u0015out.md\r", '"Fruit" is written to'],
      // No session is held: a touched one can be deleted.
      ["dy", '"Fruit" is in the trash'],
      ["q"],
    );
    await done;
    expect([existsSync(file), existsSync(join(place.cwd, "out.md"))]).toEqual([false, true]);
  });

  test("exports into the home folder, and u takes back a copy that f made without a question", async () => {
    const place = temporaryPlace();
    const file = said(place, "one", "about one");
    const { glass, done } = browsing(place);
    await glass.walk(
      ["", "1 of 1"],
      ["e\u0015~/out.md\r", '"about one" is written to'],
      ["f", '"about one" is copied into a new session.'],
      ["", "2 of 2"],
      ["u", "Took back: Forked"],
      ["", "1 of 1"],
      ["q"],
    );
    await done;
    expect([existsSync(file), existsSync(join(place.home, "out.md"))]).toEqual([true, true]);
  });

  test("archives and deletes marked sessions as one change, which u takes back; one in use stays", async () => {
    const place = temporaryPlace();
    const files = ["one", "two", "three"].map((id) => said(place, id, `about ${id}`));
    const there = (): boolean[] => files.map((file) => existsSync(file));
    const server = serveHere(["--session", files[0], "--events", "none"], { place });
    const { glass, done } = browsing(place);
    await glass.walk(
      ["", "1 of 3"],
      ["  ", "2 marked"],
      ["a", /Archive 2 sessions: "about \w+", "about \w+"\? y\/n/],
      ["y", "2 sessions are in the archive, which A shows. u takes them back."],
    );
    expect(there().filter(Boolean)).toHaveLength(1);
    await glass.walk(["u", "Took back: Archived 2 sessions."], ["", " of 3"]);
    expect(there()).toEqual([true, true, true]);
    await server.result("append", { entries: [{ type: "custom", customType: "x" }] });
    await glass.walk(
      ["g   ", "3 marked"],
      ["dy", "2 sessions are in the trash"],
      ["", 'Not "about one":'],
      ["", "1 marked"],
    );
    expect(there()).toEqual([true, false, false]);
    await server.finish();
    await glass.walk(["u", "Took back: Deleted 2 sessions."], ["q"]);
    expect(there()).toEqual([true, true, true]);
    await done;
  });

  test("F in the tree copies the path to the entry, from before what a user said", async () => {
    const place = temporaryPlace();
    question(place, [userText("d", "c", "and\nthen?")]);
    const { glass, done } = browsing(place);
    await glass.walk(
      ["", "1 of 1"],
      ["t", "4 of 4"],
      ["F", "is copied up to here into a new session"],
      [ESCAPE, "2 of 2"],
      ["t", "default  2 of 2"],
      ["", "a better answer"],
      ["q"],
    );
    expect(glass.copied).toEqual(["and\nthen?"]);
    await done;
  });

  test("begins with the words of the command line, in all folders", async () => {
    const place = temporaryPlace();
    said(place, "one", "about apples", place.cwd);
    said(place, "two", "about pears");
    const { glass, done } = browsing(place, "PEARS");
    await glass.walk(["", /Filter: PEARS +Sessions of all folders(?:.|\n)*about pears/], ["", "1 of 1"], ["q"]);
    await done;
  });

  test.each([
    ["asks nothing about a session that another program has, in the list and in its tree", ["--attach", "off"]],
    ["moves the leaf in a session that another server shares there, too", []],
  ])("%s", SYSTEM, async (_what, options) => {
    const place = temporaryPlace();
    const file = question(place);
    const server = spawnServer(["--session", file, "--events", "none", ...options], "lines", place);
    await server.result("append", { entries: [{ type: "custom", customType: "x" }] });
    const { glass, done } = browsing(place);
    await glass.shows(/^> \* /m);
    const isHeld = options.length > 0;
    const refused = `(process ${server.process.pid}): close it there first.`;
    if (isHeld) for (const key of ["\u0004y", "r", "d"]) await glass.walk([key, refused], ["k"]);
    await glass.walk(["t", "3 of 3"]);
    if (isHeld) for (const keys of ["gj\r", "l"]) await glass.walk([keys, "close it there first."]);
    else await glass.walk(["gj\r", "y/n"], ["y", "goes on from here"]);
    expect((await server.result("get_state")).leafId === "b").toBe(!isHeld);
    await server.finish();
    // Once it is free, it asks.
    if (isHeld) await glass.walk([ESCAPE, "MSGS"], ["r", "Name: "], ["Fruit\r", '"a question" is named Fruit.']);
    glass.send("q");
    await done;
    expect(existsSync(file)).toBe(true);
  });

  test("a move into a tree that has changed meanwhile is refused", async () => {
    const place = temporaryPlace();
    const file = question(place);
    const { glass, done } = browsing(place);
    await glass.walk(["", "1 of 1"], ["t", "3 of 3"]);
    const line = `${userText("d", "c", "from elsewhere")}\n`;
    appendFileSync(file, line);
    await glass.walk(["\u001b[A\ry", "has changed"], ["q"]);
    await done;
    expect(readFileSync(file, "utf8").endsWith(line)).toBe(true);
  });

  test.each([
    ["\r", true],
    ["\r", false],
    ["q", true],
  ])("on a terminal Enter starts the agent if there is one, and q nothing: %j, %j", SYSTEM, async (key, hasAgent) => {
    const place = temporaryPlace();
    const file = said(place, "one", "x", place.cwd);
    const bin = join(place.home, "bin");
    mkdirSync(bin);
    if (hasAgent) writeFileSync(join(bin, "pi"), "#!/bin/sh\n", { mode: 0o755 });
    const glass = new Glass();
    const started: Launch[] = [];
    const start = async (launch: Launch): Promise<number> => {
      expect(glass.isOpen).toBe(false);
      started.push(launch);
      return 7;
    };
    const terminal = { openScreen: () => glass, columns: 300, errorColumns: 300, start };
    const done = runHere(place, ["browse"], { terminal, variables: { PATH: bin } });
    await glass.walk(["", "1 of 1"], [key]);
    const { status, stdout, stderr } = await done;
    const isPrinted = key === "\r" && !hasAgent;
    const isStarted = key === "\r" && hasAgent;
    expect(started).toMatchObject(isStarted ? [{ args: ["--session", file], cwd: place.cwd }] : []);
    expect([status, stdout]).toEqual(isStarted ? [7, ""] : isPrinted ? [0, `${file}\n`] : [1, ""]);
    expect(stderr.includes("PI_SESSION_SERVER_RESUME")).toBe(isPrinted);
  });
});

class Teletype extends EventEmitter {
  raw = false;
  private written = "";
  setRawMode(raw: boolean): void {
    this.raw = raw;
  }
  write(text: string): void {
    this.written += text;
  }
  resume(): void {}
  pause(): void {}
  /** Returns the output since the last look. */
  take(): string {
    const { written } = this;
    this.written = "";
    return written;
  }
}

describe("a terminal", () => {
  function taken(options: Parameters<typeof openScreen>[2] = {}, rows = 10) {
    const tty = Object.assign(new Teletype(), { rows, columns: 30 });
    const screen = openScreen(tty as unknown as ReadStream, tty as unknown as WriteStream, options);
    onTestFinished(() => screen.close());
    const keys: Key[] = [];
    const heard: string[] = [];
    screen.listen({
      key: (key) => keys.push(key),
      resized: () => {
        heard.push(`${screen.rows} ${screen.columns}`);
        screen.draw(["one"]);
      },
      gone: () => heard.push("gone"),
    });
    return { tty, screen, keys, heard };
  }

  test("is given back as it was, once, and nothing is left listening", () => {
    const names = ["exit", "SIGTERM", "SIGINT", "SIGHUP", "SIGCONT", "SIGWINCH"];
    const listeners = () => names.map((name) => process.listenerCount(name));
    const before = listeners();
    const { tty, screen } = taken();
    expect(tty.raw).toBe(true);
    screen.draw(["one", "two"]);
    screen.close();
    screen.close();
    screen.draw(["late"]);
    const written = tty.take();
    // The alternate screen, the cursor and the wrapping of lines.
    for (const mode of ["?1049h", "?1049l", "?25h", "?25l", "?7h", "?7l"])
      expect([mode, written.split(`\u001b[${mode}`).length]).toEqual([mode, 2]);
    expect([tty.raw, tty.listenerCount("data"), listeners()]).toEqual([false, 0, before]);
    expect(written).not.toContain("late");
  });

  test.each<[string, (tty: Teletype) => void]>([
    ["hangs up", (tty) => tty.emit("end")],
    ["fails", (tty) => tty.emit("error", new Error("EIO"))],
    ["is left by a signal", () => process.emit("SIGTERM")],
  ])("that %s is told", (_what, go) => {
    const { tty, heard } = taken();
    go(tty);
    expect(heard).toContain("gone");
  });

  test.each([true, false])(
    "stops on Ctrl+Z where a shell can bring it back (%j), and is taken again whole",
    (canStop) => {
      let stops = 0;
      const { tty, screen, keys } = taken({ stop: canStop ? () => void stops++ : undefined });
      screen.draw(["one"]);
      tty.emit("data", Buffer.from("\u001a"));
      expect([keys, stops, tty.raw]).toEqual([[], canStop ? 1 : 0, !canStop]);
      tty.take();
      tty.raw = false;
      process.emit("SIGCONT");
      expect([tty.raw, tty.take()]).toEqual([true, expect.stringContaining("one")]);
    },
  );

  test("is written only where it changed, and anew on Ctrl+L; copying goes by OSC 52", () => {
    const { tty, screen } = taken();
    screen.draw(["one", "two", "three"]);
    tty.take();
    screen.draw(["one", "2", "three"]);
    expect(tty.take()).toBe("\u001b[2;1H\u001b[K2");
    screen.draw(["one"]);
    expect(tty.take()).toContain("\u001b[J");
    screen.copy("é");
    expect(tty.take()).toContain("\u001b]52;c;w6k=\u0007");
    tty.emit("data", Buffer.from("\u000c"));
    screen.draw(["one"]);
    expect(tty.take()).toContain("one");
  });

  test("that became another size is asked anew where it does not tell by itself", () => {
    let rows = 10;
    const { screen, heard } = taken({ size: () => ({ rows, columns: 0 }) });
    rows = 7;
    expect(screen.rows).toBe(10);
    process.emit("SIGWINCH");
    expect(heard).toEqual(["7 80"]);
  });

  test("sends keys whole however they are cut", () => {
    const { tty, keys } = taken();
    for (const byte of Buffer.from("\u001b[A日q")) tty.emit("data", Buffer.from([byte]));
    expect(keys).toEqual([{ name: "up" }, { text: "日" }, { text: "q" }]);
  });
});
