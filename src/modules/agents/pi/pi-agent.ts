/**
 * An agent behind this server that speaks Pi's dialect. It is started on demand, gets the host's commands, stays at the
 * current session, and its turn is recovered when it exits. The agent writes the session file; this server follows the
 * file, and writes to it only while the agent is idle.
 */

import { Failure } from "../../../core/failure.ts";
import type { Session } from "../../../core/session/session.ts";
import type { Call } from "../../../server/connection/call.ts";
import type { Gate } from "../../../server/dispatch/gate.ts";
import type { FaceWire } from "../../../server/face.ts";
import { type AgentSetup, isAgentWork } from "../behind/agent-server.ts";
import { getLineType, isJsonObject, type PiReply, parseMembers } from "../behind/lines.ts";
import type { MessageValue } from "../behind/messages.ts";
import { AgentProcess, type AgentSink } from "../behind/process.ts";
import { type AgentRoute, LONG_COMMANDS, TURN_COMMANDS } from "../behind/routes.ts";
import { AgentPosition } from "./pi-position.ts";
import { type ForwardedRequest, ForwardedRequests, PiQuestions } from "./pi-questions.ts";
import { PiRecorder } from "./pi-recorder.ts";

/** Milliseconds to wait for the state of an agent that has answered before. */
const STATE_WITHIN = 5000;
/** The hint about an agent that has said nothing in Pi's dialect. */
const OTHER_PROTOCOL = "; --agent-protocol acp is for agents that do not speak Pi's dialect";
/** Bytes shown of a line that is not a message. */
const SHOWN = 4096;

/** The client of an agent: a host that speaks Pi's dialect, or one session of an editor. */
export interface AgentClient {
  readonly current: Session | null;
  /** True if it reads its input. */
  readonly hasCapacity: boolean;
  /** Passes a line of the agent on, unchanged. */
  passOn(line: Buffer): void;
  flush(): void;
  /** Runs work in the order of the calls, after the earlier ones. */
  inTurn(work: () => Promise<void>): Promise<void>;
  /** Answers a request that the agent will not answer. */
  fail(request: ForwardedRequest, failure: Failure): void;
  /** Reports a turn that ended with its agent, with its last message if there is one. */
  reportTurnEnd(last: MessageValue | undefined, isAborted: boolean): void;
  /** Shows a sentence to the person at the client. */
  show(notice: string): void;
  /** Called when the agent has ended, after the reports about it. */
  agentEnded(failure: Failure): void;
}

/** A command of the host, for the agent. */
interface Forwarded extends ForwardedRequest {
  readonly route: AgentRoute;
  /** The host's line, with a line feed. */
  readonly line: Uint8Array;
}

/** The running process of an agent. */
interface RunningAgent {
  readonly process: AgentProcess;
  /** `silent`: its state was asked after its last line, and it did not answer. */
  voice: "unheard" | "heard" | "silent";
  /** `working`: it may be working, or about to begin. */
  task: "idle" | "working";
}

export class PiAgent implements AgentSink, Gate {
  private readonly options: AgentSetup;
  private readonly wire: FaceWire;
  private readonly client: AgentClient;
  private readonly position = new AgentPosition();
  private readonly questions: PiQuestions;
  private readonly requests = new ForwardedRequests();
  private readonly recorder: PiRecorder;
  private running: RunningAgent | undefined;
  /** `ended`: no agent is started any more. */
  private life: "unstarted" | "started" | "ended" = "unstarted";
  /** Resolves when the end of the last process is reported. */
  private reported: Promise<void> = Promise.resolve();
  /** True if the agent sent a line since the last look at the session. */
  private hasNews = false;
  private hasAborted = false;

  constructor(options: AgentSetup, wire: FaceWire, client: AgentClient) {
    this.options = options;
    this.wire = wire;
    this.client = client;
    this.questions = new PiQuestions(wire.workspace.env.entryId(), (line) => this.process?.send(line));
    this.recorder = new PiRecorder(wire, (sentence) => options.printError(sentence));
  }

  /** True if reading from the host should pause, because the agent does not read its input. */
  get isFull(): boolean {
    return this.process?.isFull === true;
  }

  get isRunning(): boolean {
    return this.running !== undefined;
  }

  private get process(): AgentProcess | undefined {
    return this.running?.process;
  }

  // --- to the agent --------------------------------------------------------------------------------------------

  /** Sends a command of the host, once the agent runs and is at the right session. Rejects if that fails. */
  async forward(request: Forwarded): Promise<void> {
    const { route, line, idText, command } = request;
    const running = await this.ready(route);
    if (route.works) {
      const { current } = this.client;
      if (!this.isInTurn && current) this.recorder.begin(current);
      running.task = "working";
      this.hasAborted = false;
    }
    if (command === "abort" || command === "abort_bash") this.hasAborted = true;
    this.requests.add({ command, idText });
    this.send(line);
  }

  /** Sends a line of the host. */
  send(line: Uint8Array): void {
    this.process?.send(line);
  }

  /** Returns the agent once it runs and is at the session that a command needs. Rejects if that fails. */
  private async ready({ onSession }: AgentRoute): Promise<RunningAgent> {
    await this.recorder.recover();
    const running = this.started();
    if (onSession) await this.moveToCurrent();
    // The agent may have ended.
    if (this.running !== running) throw this.makeGoneFailure();
    return running;
  }

  private started(): RunningAgent {
    if (this.running) return this.running;
    if (this.life === "ended") throw new Failure("shutting_down");
    this.life = "started";
    const process = new AgentProcess(this.options, this.options.cwdFor(this.client.current), this);
    this.running = { process, voice: "unheard", task: "idle" };
    if (!this.client.hasCapacity) process.pause();
    return this.running;
  }

  private async moveToCurrent(): Promise<void> {
    const { current } = this.client;
    if (current === null) throw new Failure("no_session");
    // In a turn the new lines in the file are the agent's own; opening the session again would lose the turn.
    if (!this.isInTurn && this.position.isInStepWith(current)) await this.position.confirm(current);
    if (this.position.isInStepWith(current)) return;
    await this.position.moveTo(current, async (sessionPath) => {
      const reply = await this.ask("switch_session", { sessionPath });
      if (reply.success !== true)
        throw new Failure(
          "agent_failed",
          `The agent could not open ${sessionPath}: ${reply.error ?? "it does not say why"}`,
        );
      if (reply.data?.cancelled === true)
        throw new Failure("agent_failed", "An extension of the agent refused to open the session.");
    });
    this.hasNews = true;
  }

  /**
   * True if a turn is running, without asking the agent; false between its reply to a prompt and the start of the turn.
   * A `bash` of the host does not count: it may run for hours, while other programs write to the session.
   */
  private get isInTurn(): boolean {
    return this.recorder.seen.isRunning || this.requests.has(TURN_COMMANDS);
  }

  /** Asks the agent a question, or changes a setting, and starts it if needed. Rejects if it does not answer. */
  async question(command: string, params: Readonly<Record<string, unknown>>, route: AgentRoute): Promise<PiReply> {
    await this.ready(route);
    return this.ask(command, params);
  }

  /** Ends the running turn, or the agent if the turn continues; `isOver`: whether it has ended. Never rejects. */
  async abort(isOver: () => boolean): Promise<void> {
    this.hasAborted = true;
    const until = performance.now() + this.options.within;
    // The agent may have the prompt and not have begun, so that there is nothing to abort yet.
    for (let wait = 20; this.process && !isOver(); wait = Math.min(wait * 2, 500)) {
      const answered = await this.ask("abort").catch(() => undefined);
      if (!answered) return;
      await new Promise((resolve) => setTimeout(resolve, wait).unref());
      if (performance.now() > until) return void this.process?.end();
    }
  }

  /** Asks a question of ours. An agent that does not answer is ended. */
  private ask(command: string, params: Readonly<Record<string, unknown>> = {}): Promise<PiReply> {
    return this.questions.ask(command, params, this.options.within, () => {
      const hint = this.running?.voice === "unheard" ? OTHER_PROTOCOL : "";
      this.process?.stopLate(`did not answer ${command}`, hint);
    });
  }

  /** Returns whether the agent is at a session and has read all of it. */
  isAt(session: Session | null): boolean {
    return this.process !== undefined && this.position.isInStepWith(session);
  }

  /**
   * Returns the agent's state; undefined if it cannot be started or does not answer. Starts it only the first time, and
   * opens no session: looking at a session writes nothing.
   */
  async state(): Promise<Readonly<Record<string, unknown>> | undefined> {
    try {
      await this.recorder.recover();
      if (!this.running && this.life !== "unstarted") return undefined;
      const { voice } = this.started();
      if (voice === "silent") return undefined;
      const reply =
        voice === "heard"
          ? await this.questions.ask("get_state", {}, Math.min(STATE_WITHIN, this.options.within))
          : await this.ask("get_state");
      return reply.data ?? undefined;
    } catch {
      if (this.running) this.running.voice = "silent";
      return undefined;
    }
  }

  // --- the gate of our calls -----------------------------------------------------------------------------------

  /** Before a session is left, ends the agent's work; before a write, requires that the agent is idle. */
  before({ command }: Call, session: Session | null): Promise<void> | undefined {
    if (session === null) return undefined;
    const { effect, movesFile } = command;
    // The agent's own work skips it: reading the turn before took 0.12 ms of a prompt's way.
    if (!isAgentWork(command)) this.readNews(session);
    if (session !== this.position.session && !this.recorder.hasExited(session)) return undefined;
    if (movesFile) this.position.outdate(session);
    if (effect === "replace" || effect === "close" || movesFile) return this.isAtRest ? undefined : this.settle();
    if (effect !== "write") return undefined;
    if (this.isAtRest) {
      this.position.outdate(session);
      return undefined;
    }
    return this.requireRest(session);
  }

  /** Reads entries that the agent has written to a session since the last call. */
  readNews(session: Session): undefined {
    if (!this.hasNews || session !== this.position.session) return;
    this.hasNews = false;
    this.wire.dispatcher.readForeign(session);
  }

  private get isAtRest(): boolean {
    return this.running?.task !== "working" && !this.recorder.hasExited();
  }

  private async requireRest(session: Session): Promise<void> {
    await this.recorder.recover();
    if (await this.isAtWork())
      throw new Failure(
        "session_locked",
        "The agent is at work in this session. Abort it, or wait until it has settled.",
      );
    this.position.outdate(session);
  }

  /** Asks whether the agent is working. An agent that does not answer counts as working. */
  private async isAtWork(): Promise<boolean> {
    if (this.running?.task !== "working") return false;
    if (this.requests.has(LONG_COMMANDS)) return true;
    const state = await this.state();
    if (!this.running) return false;
    if (!state || state.isStreaming === true || state.isCompacting === true) return true;
    this.running.task = this.requests.has(LONG_COMMANDS) ? "working" : "idle";
    return this.running.task === "working";
  }

  /** Ends the agent's work, as Pi does when its session is replaced; if that fails, ends the agent. */
  private async settle(): Promise<void> {
    try {
      if (await this.isAtWork()) {
        this.hasAborted = true;
        if (this.requests.has(new Set(["bash"])))
          void this.questions.ask("abort_bash", {}, this.options.within).catch(() => {});
        await this.ask("abort");
        await this.requests.waitForAnswers(LONG_COMMANDS, this.options.within);
        if (await this.isAtWork()) await this.process?.end();
      }
    } catch {
      await this.process?.end();
    }
    await this.recoverShown();
    await this.recorder.recover();
  }

  // --- from the agent ------------------------------------------------------------------------------------------

  line(bytes: Buffer): void {
    if (!isJsonObject(bytes)) {
      const text = bytes.toString("utf8", 0, SHOWN).trim();
      if (text !== "") this.options.complain(text);
      return;
    }
    const { running } = this;
    const type = getLineType(bytes);
    if (running && type !== undefined) running.voice = "heard";
    if (type === "response") {
      const reply = parseMembers(bytes) as PiReply;
      this.hasNews = true;
      if (this.questions.take(reply, !this.requests.has(new Set([reply.command ?? ""])))) return;
      if (!this.requests.answered(reply)) {
        this.options.complain(`a reply to nothing that it was asked: ${bytes.toString("utf8", 0, SHOWN).trim()}`);
        return;
      }
    } else if (type !== undefined) {
      this.hasNews = true;
      if (type === "agent_start" && running) running.task = "working";
      this.recorder.update(bytes, type);
    }
    // Before the host gets the end of the turn, and may read the session.
    const mayBeOver = type === "response" || type === "agent_end" || type === "agent_settled";
    if (mayBeOver && this.recorder.seen.hasMessages && !this.isInTurn)
      void this.client.inTurn(() => this.recoverShown());
    this.client.passOn(bytes);
  }

  tooLong(beginning: Buffer, sentence: string): void {
    const id = /^\{\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,/.exec(beginning.toString("utf8"))?.[1];
    const request = this.requests.takeById(id);
    if (request) this.client.fail(request, new Failure("message_too_large", sentence));
    else this.client.show(sentence);
  }

  through(): void {
    this.client.flush();
    if (!this.client.hasCapacity) this.process?.pause();
  }

  drained(): void {
    this.wire.resumeInput();
  }

  /** Resumes reading from the agent, when the host reads again. */
  resume(): void {
    this.process?.resume();
  }

  // --- the end -------------------------------------------------------------------------------------------------

  ended(how: string): void {
    this.running = undefined;
    const isAborted = this.hasAborted || this.life === "ended";
    const turn = this.recorder.end({ session: this.position.leave(), how, isAborted });
    const failure = this.makeGoneFailure(how);
    this.questions.abandon(failure);
    const requests = this.requests.takeAll();
    // The shown messages are written before any client gets the end.
    this.reported = this.client.inTurn(async () => {
      await this.recorder.recover();
      for (const request of requests) this.client.fail(request, failure);
      if (turn.rest.isRunning) this.client.reportTurnEnd(turn.last, turn.isAborted);
      if (this.life !== "ended") this.client.show(failure.message);
      this.client.agentEnded(failure);
      this.client.flush();
    });
    this.wire.resumeInput();
  }

  private makeGoneFailure(how = "has ended"): Failure {
    return new Failure("agent_failed", { what: `The agent ${how}.`, advice: "The next prompt starts it again." });
  }

  /**
   * Writes the finished messages of an ended turn that the agent has shown and not written. Asks first whether the
   * agent is idle: an idle agent has written its own messages. Never rejects.
   */
  private async recoverShown(): Promise<void> {
    const { session } = this.position;
    if (!session || this.isInTurn) return;
    try {
      session.externalChanges.checkForChanges();
      if (this.recorder.lacksShown(session)) {
        const state = await this.state();
        if (!state || state.isStreaming === true || state.isCompacting === true || this.isInTurn) return;
        if (typeof state.sessionId === "string" && state.sessionId !== session.id)
          this.client.show(
            `The agent wrote its last turn to another session, ${state.sessionFile ?? state.sessionId}.`,
          );
        else await this.writeShown(session);
      }
      this.recorder.seen.forgetEnded();
    } catch (error) {
      this.client.show(`What the agent showed could not be compared with its session. ${(error as Error).message}`);
    }
  }

  private async writeShown(session: Session): Promise<void> {
    const count = await this.recorder.writeShown(session);
    if (count === 0) return;
    // The agent has these entries only after it opens the session again.
    this.position.outdate(session);
    const are = count === 1 ? "1 message that it showed. It is" : `${count} messages that it showed. They are`;
    this.client.show(`The agent had not written ${are} in the session now.`);
  }

  /** Ends the agent, and recovers its turn. It is not started again. */
  async end(): Promise<void> {
    this.life = "ended";
    await this.process?.end();
    await this.reported;
  }
}
