/** The process of an agent: reads its lines, queues lines for it, and ends it in order. */

import type { ChildProcessByStdio } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import type { AgentOptions, AgentPatience } from "../../../server/agents-module.ts";
import { type Cut, LineDecoder } from "../../../server/connection/framing.ts";
import { makeAgentVariables } from "../../../storage/fs/paths.ts";

/** Bytes of an agent's pending input, above which nothing more is read for it. */
const FULL_AT = 4 << 20;
const DEFAULT_PATIENCE: AgentPatience = { terminatedAfter: 400, killedAfter: 1100, outputEndsWithin: 300 };
/** Characters of stderr that are shown of all agents of a server. A pipe without a reader holds twice as many. */
const SHOWN = 32_000;
/** Characters kept of its last line on stderr. */
const LAST_WORDS = 400;
const IS_WINDOWS = process.platform === "win32";

/** Options to start an agent. */
export interface AgentLaunch
  extends Pick<AgentOptions, "words" | "variables" | "within" | "maxLineBytes" | "spawn" | "patience"> {
  /** Shows a person a line of the agent's stderr. */
  readonly complain: (sentence: string) => void;
}

/** The receiver of an agent's lines and events. */
export interface AgentSink {
  /** Takes a line with its line feed. Its bytes are not reused. */
  line(bytes: Buffer): void;
  /** Takes the beginning of a line that was over the limit and is dropped, and a sentence about that. */
  tooLong(beginning: Buffer, sentence: string): void;
  /** Called after the lines of one chunk. */
  through(): void;
  /** Called when the agent has read its pending input, or cannot read any more. */
  drained(): void;
  /** Called last; `how`: the way it ended, as the end of a sentence. */
  ended(how: string): void;
}

/** Shows a person the agents' stderr, up to a limit. */
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
  private readonly decoder: LineDecoder;
  private readonly maxLineBytes: number;
  private readonly within: number;
  private readonly patience: AgentPatience;
  private isOver = false;
  private isPaused = false;
  /** True if the process has exited; its output may still come. */
  private hasExited = false;
  private lastWords = "";
  private refused: string | undefined;
  /** The reason why it was ended, for its own fault, as the beginning of `how`. */
  private fault = "";
  /** The same, if that is all to say. */
  private reason: string | undefined;
  /** Ends it if it does not read its input. */
  private stall: NodeJS.Timeout | undefined;
  private whenOver: (() => void)[] = [];
  /** Ends the agent with this process, for any exit of it. */
  private readonly atExit = (): void => this.kill("SIGKILL");

  constructor(launch: AgentLaunch, cwd: string, sink: AgentSink) {
    const { words, variables, within, maxLineBytes, complain } = launch;
    this.sink = sink;
    this.decoder = new LineDecoder(maxLineBytes, true);
    this.maxLineBytes = maxLineBytes;
    this.within = within;
    this.patience = launch.patience ?? DEFAULT_PATIENCE;
    const [program, ...args] = words;
    // Loading the module takes time, and most servers start no agent.
    const spawn = launch.spawn ?? process.getBuiltinModule("node:child_process").spawn;
    this.child = spawn(program, args, {
      cwd,
      env: makeAgentVariables(variables),
      stdio: ["pipe", "pipe", "pipe"],
      // Its own process group, so that its children end with it.
      detached: !IS_WINDOWS,
      windowsHide: true,
    });
    process.once("exit", this.atExit);
    this.listen(complain);
  }

  private listen(complain: (sentence: string) => void): void {
    const { child } = this;
    child.stdout.on("data", (chunk: Buffer) => {
      this.decoder.push(chunk);
      this.passLines();
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
    // An agent that has ended reads nothing more.
    for (const event of ["drain", "close"])
      child.stdin.on(event, () => {
        this.forgetStall();
        this.sink.drained();
      });
    // Writing to an agent that has ended fails; its end is reported by itself.
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.on("error", () => {});
    // An agent without input or output would be waited for without end.
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

  /** Passes on the lines that are there, with their bytes unchanged; at the end also the bytes after the last one. */
  private passLines(isEnd = false): void {
    const { decoder, sink, maxLineBytes } = this;
    const cuts: Cut[] = [];
    for (let cut = decoder.next(); cut; cut = decoder.next()) cuts.push(cut);
    const rest = isEnd ? decoder.end() : undefined;
    for (const cut of rest ? [...cuts, rest] : cuts)
      if (cut.kind === "payload") sink.line(cut.bytes);
      else if (cut.kind === "too_large") {
        const sentence = `The agent said a line of ${cut.size ?? 0} bytes, over the limit of ${maxLineBytes}. It was dropped; --max-message-bytes raises the limit.`;
        sink.tooLong(cut.bytes, sentence);
      }
  }

  /** Ends an agent that runs without one of its streams. */
  private endWithoutStream(how: string): void {
    if (this.hasExited || this.isOver || this.child.pid === undefined || this.child.stdin.writableEnded) return;
    void this.end(() => {
      this.fault = `${how} and `;
    });
  }

  /** Closes the output of an agent that has exited, unless it waits for our host to read. */
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
    this.forgetStall();
    process.removeListener("exit", this.atExit);
    // The rest of its process group ends with it.
    this.kill("SIGKILL");
    this.passLines(true);
    this.sink.through();
    this.sink.ended(this.reason ?? how);
    for (const wake of this.whenOver.splice(0)) wake();
  }

  /** True if the agent's pending input is so large that nothing more should be sent. */
  get isFull(): boolean {
    const { destroyed, writableLength } = this.child.stdin;
    return !destroyed && writableLength >= FULL_AT;
  }

  /** Sends a line, which ends with a line feed. An agent that does not read for too long is ended. */
  send(line: string | Uint8Array): void {
    if (this.isOver || this.child.stdin.writableEnded) return;
    this.child.stdin.write(line);
    if (this.isFull) this.stall ??= setTimeout(() => this.stopLate("read nothing"), this.within).unref();
  }

  private forgetStall(): void {
    clearTimeout(this.stall);
    this.stall = undefined;
  }

  /** Ends an agent that has not done something in time; `what`: as the beginning of the reason, `more`: its end. */
  stopLate(what: string, more = ""): void {
    this.reason ??= `${what} for ${this.within} ms and was ended${more}`;
    void this.end();
  }

  /** Pauses reading of its output, until {@link resume}. */
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
   * Ends the agent: closes its input, then sends SIGTERM, at last SIGKILL. Resolves when it is gone. `forced` is called
   * if it does not exit by itself.
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
        // Its last output may have no reader.
        this.closeStreams();
      }, this.patience.killedAfter),
    ];
    return gone.finally(() => timers.forEach(clearTimeout));
  }

  /** Sends a signal to the process and its group, if a process is left. */
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

/** Replaces control characters, which would move the cursor of a terminal. */
function toPrintable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
  return text.replace(/\r\n/g, "\n").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "?");
}
