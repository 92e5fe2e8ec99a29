/**
 * Passes lines between an editor and an agent of the Agent Client Protocol unchanged and in order, and records the
 * turns before it passes them on. The agent ends with the editor, and its end ends the proxy.
 */

import { INTERNAL } from "../../../core/failure.ts";
import type { AgentRecording, RecordedStreams } from "../../../server/agents-module.ts";
import { LineDecoder } from "../../../server/connection/framing.ts";
import type { AgentSetup } from "../behind/agent-server.ts";
import { isJsonObject, parseDroppedMessage, parseMembers } from "../behind/lines.ts";
import { AgentProcess, type AgentSink, type LineSink, passLines } from "../behind/process.ts";
import { AcpRecorder } from "./acp-recorder.ts";

/** Bytes of lines that wait behind one that is being written, above which no more is read. */
const FULL_AT = 4 << 20;
/** Milliseconds between checks for entries of other machines. */
const REFRESH_INTERVAL = 500;

/** Passes lines on one after the other. */
class LineQueue {
  private readonly pass: (line: Buffer) => Promise<void> | undefined;
  private readonly lines: Buffer[] = [];
  private bytes = 0;
  private isBusy = false;
  private whenIdle: (() => void)[] = [];
  private readonly changed: () => void;

  /** `changed` is called when waiting lines have been passed on. */
  constructor(pass: (line: Buffer) => Promise<void> | undefined, changed: () => void) {
    this.pass = pass;
    this.changed = changed;
  }

  get isFull(): boolean {
    return this.bytes >= FULL_AT;
  }

  push(line: Buffer): void {
    this.lines.push(line);
    this.bytes += line.length;
    if (!this.isBusy) this.run();
  }

  private run(): void {
    for (let line = this.lines.shift(); line; line = this.lines.shift()) {
      this.bytes -= line.length;
      const waits = this.pass(line);
      if (!waits) continue;
      this.isBusy = true;
      void waits.finally(() => {
        this.isBusy = false;
        this.run();
        this.changed();
      });
      return;
    }
    for (const wake of this.whenIdle.splice(0)) wake();
  }

  /** Resolves when all pushed lines have been passed on. */
  idle(): Promise<void> {
    return this.isBusy ? new Promise((resolve) => this.whenIdle.push(resolve)) : Promise.resolve();
  }
}

export class AcpProxy implements AgentRecording {
  private readonly streams: RecordedStreams;
  private readonly options: AgentSetup;
  private readonly recorder: AcpRecorder;
  private readonly fromClient: LineQueue;
  private readonly fromAgent: LineQueue;
  private readonly decoder: LineDecoder;
  private agent: AgentProcess | undefined;
  /** The way the agent ended, if it has. */
  private ended: string | undefined;
  private isHostGone = false;
  private over: (() => void) | undefined;

  constructor(streams: RecordedStreams, options: AgentSetup) {
    this.streams = streams;
    this.options = options;
    this.recorder = new AcpRecorder(streams.workspace, (sentence) => options.printError(sentence), streams.outage);
    this.fromClient = new LineQueue(
      (line) => this.toAgent(line),
      () => this.balance(),
    );
    this.fromAgent = new LineQueue(
      (line) => this.toClient(line),
      () => this.balance(),
    );
    this.decoder = new LineDecoder(options.maxLineBytes, true);
  }

  async serve(): Promise<number> {
    const { input, output } = this.streams;
    const fromClient: LineSink = {
      line: (line) => this.fromClient.push(line),
      tooLong: (beginning, size) => this.refuseLong(beginning, size),
    };
    output.on("error", () => {
      this.isHostGone = true;
      this.stop();
    });
    output.on("drain", () => this.balance());
    const keepingUp = setInterval(() => this.recorder.synchronize(), REFRESH_INTERVAL).unref();
    await new Promise<void>((resolve) => {
      this.over = resolve;
      this.agent = new AgentProcess(this.options, this.options.cwdFor(null), this.sink());
      input.on("data", (chunk: Buffer) => {
        this.decoder.push(chunk);
        passLines(this.decoder, fromClient);
        this.balance();
      });
      for (const end of ["end", "error", "close"]) input.on(end, () => this.stop());
    });
    const diedItself = this.ended !== undefined;
    passLines(this.decoder, fromClient, true);
    // A received prompt is always recorded and passed on.
    await this.fromClient.idle();
    await this.agent?.end();
    await this.fromAgent.idle();
    clearInterval(keepingUp);
    const how = diedItself ? `The agent ${this.ended}.` : "The turn was ended.";
    const unanswered = this.recorder.unanswered;
    await this.recorder.end(how, diedItself ? "error" : "aborted");
    for (const id of unanswered) this.sendToClient(makeErrorLine(id, how));
    if (diedItself) this.options.printError(`The agent ${this.ended}.`);
    await new Promise<void>((resolve) => {
      if (this.isHostGone || output.destroyed) return resolve();
      output.once("close", () => resolve());
      output.write("", () => resolve());
    });
    return diedItself || this.isHostGone ? 1 : 0;
  }

  stop(): void {
    this.over?.();
  }

  private sink(): AgentSink {
    return {
      line: (line) => {
        if (isJsonObject(line)) return this.fromAgent.push(line);
        const text = line.toString("utf8").trim();
        if (text !== "") this.options.complain(text);
      },
      tooLong: (beginning, size) => this.reportLongLine(beginning, size),
      through: () => this.balance(),
      drained: () => this.balance(),
      ended: (how) => {
        this.ended = how;
        this.stop();
      },
    };
  }

  /** Reads from each side only as much as the other one reads. */
  private balance(): void {
    const { input, output } = this.streams;
    if (this.agent?.isFull || this.fromClient.isFull) input.pause();
    else input.resume();
    if ((output.writableNeedDrain && !output.destroyed) || this.fromAgent.isFull) this.agent?.pause();
    else this.agent?.resume();
  }

  private toAgent(line: Buffer): Promise<void> | undefined {
    const message = parseMembers(line);
    let waits: Promise<void> | undefined;
    try {
      waits = this.recorder.fromClient(message);
    } catch (error) {
      waits = Promise.reject(error);
    }
    if (!waits) {
      this.agent?.send(line);
      return undefined;
    }
    return waits.then(
      () => this.agent?.send(line),
      (error) => {
        this.recorder.forget(message);
        this.sendToClient(
          makeErrorLine(
            JSON.stringify(message.id ?? null),
            `The request could not be recorded and was not sent. ${(error as Error).message}`,
          ),
        );
      },
    );
  }

  private toClient(line: Buffer): Promise<void> | undefined {
    let waits: Promise<void> | undefined;
    try {
      waits = this.recorder.fromAgent(parseMembers(line));
    } catch (error) {
      waits = Promise.reject(error);
    }
    if (!waits) {
      this.sendToClient(line);
      return undefined;
    }
    return waits.catch((error) => this.recorder.fail(error)).then(() => this.sendToClient(line));
  }

  private refuseLong(beginning: Buffer, size: number): void {
    const { idText, isReply } = parseDroppedMessage(beginning) ?? {};
    const sentence = `The message of ${size} bytes is over the limit of ${this.options.maxLineBytes} and was not passed on. Raise the limit with --max-message-bytes.`;
    if (idText === undefined) return;
    // A refused reply is answered to the agent, a refused request to the client.
    if (isReply) this.agent?.send(makeErrorLine(idText, sentence));
    else this.sendToClient(makeErrorLine(idText, sentence));
  }

  private reportLongLine(beginning: Buffer, size: number): void {
    const { idText, isReply } = parseDroppedMessage(beginning) ?? {};
    const sentence = `The agent said a line of ${size} bytes, over the limit of ${this.options.maxLineBytes}. It was dropped; --max-message-bytes raises the limit.`;
    this.options.printError(sentence);
    if (idText === undefined) return;
    if (!isReply) this.agent?.send(makeErrorLine(idText, sentence));
    else if (this.recorder.unanswered.includes(idText))
      this.fromAgent.push(Buffer.from(makeErrorLine(idText, sentence)));
  }

  private sendToClient(line: string | Buffer): void {
    if (!this.isHostGone) this.streams.output.write(line);
  }
}

function makeErrorLine(id: string, message: string): string {
  return `{"jsonrpc":"2.0","id":${id},"error":{"code":${INTERNAL},"message":${JSON.stringify(message)}}}\n`;
}
