/** browse from keys to files, on a screen that is none; and how a real one is taken and given back. */

import { EventEmitter } from "node:events";
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ReadStream, WriteStream } from "node:tty";
import { describe, expect, test } from "vitest";
import { type Key, keysIn } from "../../../src/cli/terminal/keys.ts";
import type { Launch } from "../../../src/cli/terminal/programs.ts";
import { openScreen, type Screen } from "../../../src/cli/terminal/screen.ts";
import { folderName } from "../../../src/storage/fs/paths.ts";
import { letRest } from "../../support/cases.ts";
import { assistantText, fileText, headerText, TIME, userText } from "../../support/lines.ts";
import { type Place, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";
import { type Run, runHere } from "../../support/verbs.ts";

/** A screen whose keys a test presses when it shows what the test waits for. */
class Glass implements Screen {
  rows = 12;
  columns = 80;
  isOpen = true;
  private lines: readonly string[] = [];
  private ears: Parameters<Screen["listen"]>[0] | undefined;
  private waiting: { holds(): boolean; go(): void } | undefined;

  listen(ears: Parameters<Screen["listen"]>[0]): void {
    this.ears = ears;
  }

  draw(lines: readonly string[]): void {
    this.lines = lines;
    if (this.waiting?.holds()) this.waiting.go();
  }

  readonly copied: string[] = [];

  copy(text: string): void {
    this.copied.push(text);
  }

  close(): void {
    this.isOpen = false;
  }

  get text(): string {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are what is taken out
    return this.lines.map((line) => line.replace(/\u001b\[\d+m/g, "").trimEnd()).join("\n");
  }

  /** Waits until the screen shows something. */
  async shows(what: RegExp | string): Promise<string> {
    const holds = (): boolean => (typeof what === "string" ? this.text.includes(what) : what.test(this.text));
    if (!holds())
      await new Promise<void>((resolve) => {
        this.waiting = { holds, go: resolve };
      });
    this.waiting = undefined;
    return this.text;
  }

  /** What a terminal sends. */
  send(text: string): void {
    for (const key of keysIn(text).keys) this.press(key);
  }

  press(key: Key): void {
    this.ears?.key(key);
  }

  resize(rows: number, columns: number): void {
    Object.assign(this, { rows, columns });
    this.ears?.resized();
  }

  goAway(): void {
    this.ears?.gone();
  }
}

const ESCAPE: Key = { name: "escape" };

function stored(place: Place, id: string, text: string, more: string[] = [], cwd = "/home/me/project"): string {
  const folder = join(place.home, ".pi/agent/sessions", folderName(cwd));
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `${TIME.replace(/[:.]/g, "-")}_${id}.jsonl`);
  writeFileSync(file, fileText(headerText({ id, cwd }), userText("a", null, text), ...more));
  letRest(file);
  return file;
}

function browsing(place: Place, ...args: string[]): { glass: Glass; done: Promise<Run> } {
  const glass = new Glass();
  const done = runHere(place, ["browse", ...args], { terminal: { openScreen: () => glass, errorColumns: 80 } });
  return { glass, done };
}

/** Browses while a server that was started with some options writes to the session. */
async function browsingBeside(place: Place, file: string, ...options: string[]) {
  const server = spawnServer(["--session", file, "--events", "none", ...options], "lines", place);
  await server.result("append", { entries: [{ type: "custom", customType: "x" }] });
  const { glass, done } = browsing(place);
  await glass.shows(/^> \* /m);
  return { server, glass, done };
}

const BRANCHES = [assistantText("b", "a", "an answer"), assistantText("c", "a", "a better answer")];

describe("browse", () => {
  test("prints the path of the session that Enter picks", async () => {
    const place = temporaryPlace();
    stored(place, "one", "about apples");
    const file = stored(place, "two", "about pears");
    const { glass, done } = browsing(place);
    await glass.shows("1 of 2");
    glass.send("/pears");
    await glass.shows("1 of 1");
    expect(glass.isOpen).toBe(true);
    glass.send("\r");
    const { stdout, status } = await done;
    expect([stdout, status, glass.isOpen]).toEqual([`${file}\n`, 0, false]);
  });

  test.each(["q", "\u0003"])("%j prints nothing and ends with 1", async (key) => {
    const place = temporaryPlace();
    stored(place, "one", "x");
    const { glass, done } = browsing(place);
    await glass.shows("1 of 1");
    glass.send(key);
    const { stdout, status } = await done;
    expect([stdout, status, glass.isOpen]).toEqual(["", 1, false]);
  });

  test("keys behind the one that ends it do nothing", async () => {
    const place = temporaryPlace();
    const file = stored(place, "one", "a question");
    const { glass, done } = browsing(place);
    await glass.shows("1 of 1");
    glass.send("q\u0004ytad\r");
    expect((await done).stdout).toBe("");
    expect(existsSync(file)).toBe(true);
  });

  test("a terminal that goes away ends it", async () => {
    const { glass, done } = browsing(temporaryPlace());
    await glass.shows("There are no sessions.");
    glass.goAway();
    expect([(await done).status, glass.isOpen]).toEqual([1, false]);
  });

  test("deletes after y, and what is deleted can be restored", async () => {
    const place = temporaryPlace();
    const file = stored(place, "one", "unwanted");
    const kept = stored(place, "two", "wanted");
    const { glass, done } = browsing(place);
    await glass.shows("1 of 2");
    glass.send("/unwanted");
    await glass.shows("1 of 1");
    glass.send("\u0004");
    await glass.shows(/Delete "unwanted", 1 message, \d+ B\? y\/n/);
    glass.send("n");
    expect(existsSync(file)).toBe(true);
    glass.send("\u0004y");
    await glass.shows('"unwanted" is in the trash');
    expect([existsSync(file), existsSync(kept)]).toEqual([false, true]);
    glass.press(ESCAPE);
    await glass.shows("1 of 1\n");
    glass.send("q");
    await done;
    expect((await runHere(place, ["restore", "one"])).status).toBe(0);
    expect(existsSync(file)).toBe(true);
  });

  test("begins with the sessions of the directory, finds what was said, and shows it", async () => {
    const place = temporaryPlace();
    stored(place, "one", "about apples", [assistantText("b", "a", "They are green, as figs are.")]);
    const here = join(place.home, ".pi/agent/sessions", folderName(place.cwd));
    mkdirSync(here, { recursive: true });
    const file = join(here, `${TIME.replace(/[:.]/g, "-")}_here.jsonl`);
    writeFileSync(file, fileText(headerText({ id: "here", cwd: place.cwd }), userText("a", null, "about pears")));
    letRest(file);
    const { glass, done } = browsing(place);
    glass.resize(24, 80);
    expect(await glass.shows("1 of 1")).toContain("about pears");
    glass.send("\t");
    await glass.shows("1 of 2");
    glass.send("/figs");
    const found = await glass.shows(/> .*about apples {2}They are green, as figs are\./);
    expect(found).toContain("Filter: figs_");
    await glass.shows(/^> assistant$/m);
    glass.send("\u0003");
    await done;
  });

  test("asks before it moves the leaf, and it stays moved; what was looked at is not written to", async () => {
    const place = temporaryPlace();
    const file = stored(place, "one", "a question", BRANCHES);
    const bytes = readFileSync(file);
    const { glass, done } = browsing(place);
    await glass.shows("1 of 1");
    glass.send("t");
    expect(await glass.shows("3 of 3")).toContain("> * assistant: a better answer");
    glass.send("\u001b[A\r");
    await glass.shows('Continue after "an answer"? y/n');
    glass.send("n");
    expect(readFileSync(file)).toEqual(bytes);
    glass.send("\ry");
    expect(await glass.shows("The conversation goes on from here.")).toContain("> * assistant: an answer");
    glass.press(ESCAPE);
    await glass.shows("MSGS");
    glass.resize(6, 40);
    expect(glass.text.split("\n")).toHaveLength(6);
    glass.send("\r");
    expect((await done).stdout).toBe(`${file}\n`);
    const server = serveHere(["--session", file, "--events", "none"], { place });
    expect((await server.result("get_state")).leafId).toBe("b");
  });

  test("goes back to before a question, and hands its text back", async () => {
    const place = temporaryPlace();
    const file = stored(place, "one", "a question", [...BRANCHES, userText("d", "c", "and\nthen?")]);
    const { glass, done } = browsing(place);
    await glass.shows("1 of 1");
    glass.send("t");
    await glass.shows("4 of 4");
    glass.send("\r");
    await glass.shows('Go back to before "and then?", and take its text along? y/n');
    glass.send("y");
    await glass.shows("The conversation goes on from here. u takes it back. Text copied; q prints it.");
    glass.send("q");
    expect(glass.copied).toEqual(["and\nthen?"]);
    expect((await done).stdout).toBe("");
    const server = serveHere(["--session", file, "--events", "none"], { place });
    expect((await server.result("get_state")).leafId).toBe("c");
  });

  test("says which process has a session before it asks for its name", async () => {
    const place = temporaryPlace();
    const file = stored(place, "one", "a question", BRANCHES);
    const server = serveHere(["--no-session", "--events", "none", "--attach", "off"], { place });
    await server.result("open_session", { sessionPath: file });
    await server.result("append", {
      sessionId: "one",
      entries: [{ type: "message", message: { role: "user", content: "x" } }],
    });
    const { glass, done } = browsing(place);
    await glass.shows(/^> \* /m);
    for (const key of ["r", "d"]) {
      glass.send(key);
      await glass.shows(`(process ${process.pid}): close it there first.`);
      glass.send("k");
    }
    await server.finish();
    glass.send("r");
    await glass.shows("Name: ");
    glass.send("Fruit\r");
    await glass.shows('"a question" is named Fruit.');
    glass.send("q");
    await done;
  });

  test(
    "renames, labels, archives and brings back, forks and exports, and holds no session afterwards",
    SYSTEM,
    async () => {
      const place = temporaryPlace();
      const file = stored(place, "one", "a question", BRANCHES);
      const { glass, done } = browsing(place);
      glass.resize(24, 80);
      await glass.shows("a better answer");
      glass.send("rFruit\r");
      await glass.shows('"a question" is named Fruit. u takes it back.');
      await glass.shows(/> .*Fruit/);
      glass.send("t");
      await glass.shows("default");
      glass.send("lgood\r");
      await glass.shows('A place in "Fruit" is labelled good.');
      glass.send("l\u0015\r");
      await glass.shows('A label in "Fruit" is cleared.');
      glass.press(ESCAPE);
      glass.send("a");
      await glass.shows('"Fruit" is in the archive');
      expect(existsSync(file)).toBe(false);
      glass.send("A");
      await glass.shows(/Archive(.|\n)*> .*Fruit/);
      glass.send("a");
      await glass.shows('"Fruit" is back from the archive.');
      glass.send("A");
      await glass.shows(/Sessions(.|\n)*> .*Fruit/);
      glass.send("f");
      await glass.shows('"Fruit" is copied into a new session.');
      await glass.shows("2 of 2");
      glass.send("ke\u0015out.md\r");
      await glass.shows('"Fruit" is written to');
      // Nothing is held: what was touched can be deleted.
      glass.send("dy");
      await glass.shows('"Fruit" is in the trash');
      glass.send("q");
      await done;
      expect([existsSync(file), existsSync(join(place.cwd, "out.md"))]).toEqual([false, true]);
    },
  );

  test("asks nothing about a session that another program has, in the list and in its tree", SYSTEM, async () => {
    const place = temporaryPlace();
    const file = stored(place, "one", "a question", BRANCHES);
    const { glass, done } = await browsingBeside(place, file, "--attach", "off");
    glass.send("\u0004y");
    await glass.shows(/\(process \d+\): close it there first\./);
    glass.send("t");
    await glass.shows("3 of 3");
    for (const keys of ["gj\r", "l"]) {
      glass.send(keys);
      await glass.shows("close it there first.");
    }
    glass.send("q");
    await done;
    expect(existsSync(file)).toBe(true);
  });

  test("a move in a session that another server shares is a move there", SYSTEM, async () => {
    const place = temporaryPlace();
    const file = stored(place, "one", "a question", BRANCHES);
    const { server, glass, done } = await browsingBeside(place, file);
    glass.send("t");
    await glass.shows("3 of 3");
    glass.send("gj\r");
    await glass.shows("y/n");
    glass.send("y");
    await glass.shows("goes on from here");
    expect((await server.result("get_state")).leafId).toBe("b");
    glass.send("q");
    await done;
  });

  test("a move into a tree that has changed meanwhile is refused", async () => {
    const place = temporaryPlace();
    const file = stored(place, "one", "a question", BRANCHES);
    const { glass, done } = browsing(place);
    await glass.shows("1 of 1");
    glass.send("t");
    await glass.shows("3 of 3");
    appendFileSync(file, `${userText("d", "c", "from elsewhere")}\n`);
    glass.send("\u001b[A\ry");
    await glass.shows("has changed");
    glass.send("q");
    await done;
    expect(
      readFileSync(file, "utf8")
        .trimEnd()
        .endsWith(userText("d", "c", "from elsewhere")),
    ).toBe(true);
  });

  test.each([
    ["there is one", 7],
    ["there is none", undefined],
  ])("on a terminal Enter starts the agent, if %s; q starts nothing", SYSTEM, async (_which, status) => {
    const place = temporaryPlace();
    const file = stored(place, "one", "x", [], place.cwd);
    const bin = join(place.home, "bin");
    mkdirSync(bin);
    if (status !== undefined) writeFileSync(join(bin, "pi"), "#!/bin/sh\n", { mode: 0o755 });
    for (const key of ["\r", "q"]) {
      const glass = new Glass();
      const started: Launch[] = [];
      const start = async (launch: Launch): Promise<number> => {
        expect(glass.isOpen).toBe(false);
        started.push(launch);
        return status as number;
      };
      const terminal = { openScreen: () => glass, columns: 300, errorColumns: 300, start };
      const done = runHere(place, ["browse"], { terminal, variables: { PATH: bin } });
      await glass.shows("1 of 1");
      glass.send(key);
      const run = await done;
      const isStarted = key === "\r" && status !== undefined;
      expect(started).toMatchObject(isStarted ? [{ args: ["--session", file], cwd: place.cwd }] : []);
      expect(run.status).toBe(isStarted ? 7 : key === "q" ? 1 : 0);
      expect(run.stdout).toBe(key === "\r" && status === undefined ? `${file}\n` : "");
      expect(run.stderr.includes("PI_SESSION_SERVER_RESUME")).toBe(key === "\r" && status === undefined);
    }
  });

  test("--json tells the path as JSON", async () => {
    const place = temporaryPlace();
    const file = stored(place, "one", "x");
    const { glass, done } = browsing(place, "--json");
    await glass.shows("1 of 1");
    glass.send("\r");
    expect(JSON.parse((await done).stdout)).toEqual({ sessionPath: file });
  });
});

class Teletype extends EventEmitter {
  raw = false;
  written = "";
  destroyed = false;
  rows = 10;
  columns = 30;
  setRawMode(raw: boolean): void {
    this.raw = raw;
  }
  write(text: string): void {
    this.written += text;
  }
  resume(): void {}
  pause(): void {}
}

describe("a terminal", () => {
  function taken(): { tty: Teletype; screen: Screen; keys: Key[]; gone: number[] } {
    const tty = new Teletype();
    const screen = openScreen(tty as unknown as ReadStream, tty as unknown as WriteStream);
    const keys: Key[] = [];
    const gone: number[] = [];
    screen.listen({ key: (key) => keys.push(key), resized: () => {}, gone: () => gone.push(1) });
    return { tty, screen, keys, gone };
  }

  test("is given back as it was, once, and nothing is left listening", () => {
    const before = ["exit", "SIGTERM", "SIGINT", "SIGHUP", "SIGCONT", "SIGWINCH"].map((name) =>
      process.listenerCount(name),
    );
    const { tty, screen } = taken();
    expect(tty.raw).toBe(true);
    screen.draw(["one", "two"]);
    screen.close();
    screen.close();
    screen.draw(["late"]);
    expect(tty.raw).toBe(false);
    const count = (text: string): number => tty.written.split(text).length - 1;
    // The alternate screen, the cursor and the wrapping of lines.
    for (const mode of ["?1049", "?25", "?7"])
      expect([count(`\u001b[${mode}h`), count(`\u001b[${mode}l`)]).toEqual([1, 1]);
    expect(tty.written).not.toContain("late");
    const after = ["exit", "SIGTERM", "SIGINT", "SIGHUP", "SIGCONT", "SIGWINCH"].map((name) =>
      process.listenerCount(name),
    );
    expect(after).toEqual(before);
    expect(tty.listenerCount("data")).toBe(0);
  });

  test("that hangs up, or a signal, is told", () => {
    for (const go of [
      ({ tty }: { tty: Teletype }) => tty.emit("end"),
      ({ tty }: { tty: Teletype }) => tty.emit("error", new Error("EIO")),
      () => process.emit("SIGTERM"),
    ]) {
      const all = taken();
      go(all);
      expect(all.gone.length).toBeGreaterThan(0);
      all.screen.close();
    }
  });

  test("stops on Ctrl+Z where a shell can bring it back, as it was before, and goes on with the whole screen", () => {
    for (const canStop of [true, false]) {
      const tty = new Teletype();
      let stops = 0;
      const stop = canStop ? (): void => void stops++ : undefined;
      const screen = openScreen(tty as unknown as ReadStream, tty as unknown as WriteStream, { stop });
      const keys: Key[] = [];
      screen.listen({ key: (key) => keys.push(key), resized: () => screen.draw(["one"]), gone: () => {} });
      screen.draw(["one"]);
      tty.emit("data", Buffer.from("\u001a"));
      expect([keys, stops, tty.raw]).toEqual([[], canStop ? 1 : 0, !canStop]);
      tty.written = "";
      process.emit("SIGCONT");
      expect([tty.raw, tty.written]).toEqual([true, expect.stringContaining("one")]);
      screen.close();
    }
  });

  test("is written only where it changed, and anew on Ctrl+L; copying goes by OSC 52", () => {
    const { tty, screen } = taken();
    screen.draw(["one", "two", "three"]);
    tty.written = "";
    screen.draw(["one", "2", "three"]);
    expect(tty.written).toBe("\u001b[2;1H\u001b[K2");
    tty.written = "";
    screen.draw(["one"]);
    expect(tty.written).toContain("\u001b[J");
    screen.copy("é");
    expect(tty.written).toContain("\u001b]52;c;w6k=\u0007");
    tty.written = "";
    tty.emit("data", Buffer.from("\u000c"));
    screen.draw(["one"]);
    expect(tty.written).toContain("one");
    screen.close();
  });

  test("after a stop it is taken again", () => {
    const { tty, screen } = taken();
    tty.raw = false;
    process.emit("SIGCONT");
    expect(tty.raw).toBe(true);
    screen.close();
  });

  test("that became another size is asked anew where it does not tell by itself", () => {
    const tty = new Teletype();
    let rows = 10;
    const screen = openScreen(tty as unknown as ReadStream, tty as unknown as WriteStream, {
      size: () => ({ rows, columns: 0 }),
    });
    const seen: number[] = [];
    screen.listen({ key: () => {}, resized: () => seen.push(screen.rows, screen.columns), gone: () => {} });
    rows = 7;
    expect(screen.rows).toBe(10);
    process.emit("SIGWINCH");
    expect(seen).toEqual([7, 80]);
    screen.close();
  });

  test("sends keys whole however they are cut", () => {
    const { tty, screen, keys } = taken();
    for (const byte of Buffer.from("\u001b[A日q")) tty.emit("data", Buffer.from([byte]));
    expect(keys).toEqual([{ name: "up" }, { text: "日" }, { text: "q" }]);
    screen.close();
  });
});
