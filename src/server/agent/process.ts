/** The process of an agent: its lines come, lines for it wait until it reads them, and it is ended in order. */

import type { ChildProcessByStdio, SpawnOptionsWithStdioTuple, StdioPipe } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { LineCutter, type LineSink } from "./line-cutter.ts";
import { makeAgentVariables } from "./variables.ts";

/** Bytes that wait for an agent to read them, beyond which nothing more is taken for it. */
const FULL_AT = 4 << 20;
const DEFAULT_PATIENCE: AgentPatience = { terminatedAfter: 400, killedAfter: 1100, outputEndsWithin: 300 };
/** Characters of stderr that are shown of all agents of a server. A pipe that nobody reads holds twice as many. */
const SHOWN = 32_000;
/** Characters of its last words that are kept. */
const LAST_WORDS = 400;
const IS_WINDOWS = process.platform === "win32";

/** Milliseconds that an agent has to end. */
export interface AgentPatience {
  /** After the end of its input an agent that lives on gets SIGTERM, and SIGKILL. */
  readonly terminatedAfter: number;
  readonly killedAfter: number;
  /** The output of an agent that has ended has to end too; something that it started may hold it. */
  readonly outputEndsWithin: number;
}

/** Starts the process of an agent. */
export type SpawnAgent = (
  program: string,
  args: readonly string[],
  options: SpawnOptionsWithStdioTuple<StdioPipe, StdioPipe, StdioPipe>,
) => ChildProcessByStdio<Writable, Readable, Readable>;

/** How agents are started. */
export interface AgentLaunch {
  /** The program and its arguments. */
  readonly words: readonly string[];
  readonly variables: Readonly<Record<string, string | undefined>>;
  readonly maxLineBytes: number;
  /** Shows a person what the agent says on stderr. */
  readonly complain: (sentence: string) => void;
  /** By default the system starts it. */
  readonly spawn?: SpawnAgent;
  readonly patience?: AgentPatience;
}

/** The receiver of what an agent says and does. */
export interface AgentSink extends LineSink {
  /** Called when all lines that have come together were given out. */
  through(): void;
  /** Called when the agent has read enough of what waited for it. */
  drained(): void;
  /** Called last, with how it ended, as the end of a sentence. */
  ended(how: string): void;
}

/** The output of agents on stderr that a person has been shown. */
export class ShownComplaints {
  private left = SHOWN;
  private readonly show: (sentence: string) => void;

  constructor(show: (sentence: string) => void) {
    this.show = show;
  }

  take(line: string): void {
    if (this.left <= 0) return;
    this.left -= line.length;
    this.show(`the agent says: ${line.slice(0, SHOWN)}`);
    if (this.left <= 0) this.show("The agent said more on stderr than is shown. Start it by itself to read all of it.");
  }
}

export class AgentProcess {
  private readonly child: ChildProcessByStdio<Writable, Readable, Readable>;
  private readonly sink: AgentSink;
  private readonly cutter: LineCutter;
  private readonly patience: AgentPatience;
  private isOver = false;
  private isPaused = false;
  /** Whether the process itself has ended, of which output may be on its way. */
  private hasExited = false;
  private lastWords = "";
  private refused: string | undefined;
  /** The beginning of how it ended, if it was ended for something that it did. */
  private fault = "";
  private whenOver: (() => void)[] = [];
  /** Ends the agent at the latest with this process, whatever that dies of. */
  private readonly atExit = (): void => this.kill("SIGKILL");

  constructor(launch: AgentLaunch, cwd: string, sink: AgentSink) {
    const { words, variables, maxLineBytes, complain } = launch;
    this.sink = sink;
    this.cutter = new LineCutter(sink, maxLineBytes);
    this.patience = launch.patience ?? DEFAULT_PATIENCE;
    const [program, ...args] = words;
    // Loading it takes time, and most servers start no agent.
    const spawn = launch.spawn ?? process.getBuiltinModule("node:child_process").spawn;
    this.child = spawn(program, args, {
      cwd,
      env: makeAgentVariables(variables),
      stdio: ["pipe", "pipe", "pipe"],
      // A group of its own, so that it can be ended with what it has started.
      detached: !IS_WINDOWS,
      windowsHide: true,
    });
    process.once("exit", this.atExit);
    this.listen(complain);
  }

  private listen(complain: (sentence: string) => void): void {
    const { child } = this;
    child.stdout.on("data", (chunk: Buffer) => {
      this.cutter.push(chunk);
      this.sink.through();
    });
    let begun = "";
    const heard = (line: string): void => {
      if (line.trim() === "") return;
      this.lastWords = line.slice(0, LAST_WORDS);
      complain(line);
    };
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      const lines = (begun + toPrintable(text)).split("\n");
      begun = (lines.pop() as string).slice(0, SHOWN);
      for (const line of lines) heard(line);
    });
    child.stdin.on("drain", () => this.sink.drained());
    // Writing to an agent that has ended fails; its end is reported by itself.
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.on("error", () => {});
    // One that cannot hear, or be heard, would be waited for without end.
    child.stdin.on("error", () => this.endWithoutStream("closed its input"));
    child.stdout.on("end", () => this.endWithoutStream("closed its output"));
    child.on("error", (error: NodeJS.ErrnoException) => {
      if (child.pid !== undefined) return;
      this.refused = error.code ?? "unknown";
      this.over(`could not be started (${this.refused})`);
    });
    child.on("exit", () => {
      this.hasExited = true;
      this.awaitOutput();
    });
    child.on("close", (status, signal) => {
      heard(begun);
      const said = this.lastWords === "" ? "" : `; its last words: ${this.lastWords}`;
      const how = signal === null ? `ended with status ${status}` : `was ended by ${signal}`;
      if (this.refused === undefined) this.over(`${this.fault}${how}${said}`);
    });
  }

  /** Ends an agent that lives on without one of its streams. */
  private endWithoutStream(how: string): void {
    if (this.hasExited || this.isOver || this.child.pid === undefined || this.child.stdin.writableEnded) return;
    void this.end(() => {
      this.fault = `${how} and `;
    });
  }

  /** Closes the output of an agent that has ended, unless that waits for our host to read. */
  private awaitOutput(): void {
    const { outputEndsWithin } = this.patience;
    setTimeout(() => {
      if (this.isOver) return;
      if (this.isPaused) return this.awaitOutput();
      this.kill("SIGKILL");
      setTimeout(() => this.closeStreams(), outputEndsWithin).unref();
    }, outputEndsWithin).unref();
  }

  private closeStreams(): void {
    for (const stream of [this.child.stdin, this.child.stdout, this.child.stderr]) stream.destroy();
  }

  private over(how: string): void {
    if (this.isOver) return;
    this.isOver = true;
    process.removeListener("exit", this.atExit);
    // What it has left in its group ends with it.
    this.kill("SIGKILL");
    this.cutter.end();
    this.sink.through();
    this.sink.ended(how);
    for (const wake of this.whenOver.splice(0)) wake();
  }

  /** Whether so much waits for it to be read that it gets nothing more for now. */
  get isFull(): boolean {
    return this.child.stdin.writableLength >= FULL_AT;
  }

  /** Sends a line, which ends with a line feed. */
  send(line: string | Uint8Array): void {
    if (!this.isOver && !this.child.stdin.writableEnded) this.child.stdin.write(line);
  }

  /** Takes nothing more that it says, until {@link resume}. */
  pause(): void {
    this.isPaused = true;
    this.child.stdout.pause();
  }

  resume(): void {
    if (!this.isPaused) return;
    this.isPaused = false;
    this.child.stdout.resume();
  }

  /**
   * Ends it: by the end of its input, then by SIGTERM, at last by SIGKILL. Resolves when it is gone. `forced` is called
   * when it was not about to end by itself.
   */
  end(forced = (): void => {}): Promise<void> {
    if (this.isOver) return Promise.resolve();
    const gone = new Promise<void>((resolve) => this.whenOver.push(resolve));
    this.child.stdin.end();
    const timers = [
      setTimeout(() => {
        if (!this.hasExited) forced();
        this.kill("SIGTERM");
      }, this.patience.terminatedAfter),
      setTimeout(() => {
        this.kill("SIGKILL");
        // Nobody may read what it said last.
        this.closeStreams();
      }, this.patience.killedAfter),
    ];
    return gone.finally(() => timers.forEach(clearTimeout));
  }

  /** Sends a signal to the process and to those of its group. Does nothing when none is left. */
  private kill(signal: "SIGTERM" | "SIGKILL"): void {
    const { pid } = this.child;
    if (pid === undefined) return;
    if (!this.hasExited) this.child.kill(signal);
    if (IS_WINDOWS) return;
    try {
      process.kill(-pid, signal);
    } catch {
      // All of them have ended.
    }
  }
}

/** Returns text without what would move the cursor of a terminal. */
function toPrintable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
  return text.replace(/\r\n/g, "\n").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "?");
}
