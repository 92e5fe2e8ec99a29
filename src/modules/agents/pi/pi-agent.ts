/**
 * An agent behind this server that speaks Pi's dialect. It is started on demand, gets the host's commands, stays at the
 * current session, and its turn is recovered when it exits. The agent writes the session file; this server follows the
 * file, and writes to it only while the agent is idle.
 */

import { Failure } from "../../../core/failure.ts";
import { makeDraft } from "../../../core/format/entry.ts";
import type { Session } from "../../../core/session/session.ts";
import { becomeWriter } from "../../../core/session/writer.ts";
import type { Call } from "../../../server/connection/call.ts";
import type { Gate } from "../../../server/dispatch/gate.ts";
import { AGENT_COMMAND, type AgentServer } from "../behind/agent-server.ts";
import { completeMessage, type MessageValue, makeFinalMessage } from "../behind/messages.ts";
import { findShown, insertMissing, listMissing, type TurnBeginning } from "../behind/missing-messages.ts";
import { getLineType, isJsonObject, type PiReply, parseMembers } from "../behind/pi-lines.ts";
import { type AgentLaunch, AgentProcess, type AgentSink } from "../behind/process.ts";
import { type AgentRoute, LONG_COMMANDS, TURN_COMMANDS } from "../behind/routes.ts";
import { SeenTurn, type TurnRest } from "../behind/seen-turn.ts";
import { AgentPosition } from "./pi-position.ts";
import { type ForwardedRequest, ForwardedRequests, PiQuestions } from "./pi-questions.ts";

/** Milliseconds to wait for the state of an agent that has answered before. */
const STATE_WITHIN = 5000;
/** Bytes shown of a line that is not a message. */
const SHOWN = 4096;

/** The host of an agent. */
export interface AgentHost {
  readonly server: AgentServer;
  readonly current: Session | null;
  /** True if the host reads its input. */
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

/** The unrecovered turn of an agent that has exited. */
interface ExitedTurn {
  readonly session: Session | undefined;
  readonly from: TurnBeginning | undefined;
  readonly rest: TurnRest;
  readonly how: string;
  readonly isAborted: boolean;
  /** The message that ended the turn, once it is written. */
  last?: MessageValue;
}

export class PiAgent implements AgentSink, Gate {
  private readonly launch: AgentLaunch;
  private readonly host: AgentHost;
  private readonly within: number;
  private readonly position = new AgentPosition();
  private readonly questions: PiQuestions;
  private readonly requests = new ForwardedRequests();
  private readonly seen = new SeenTurn();
  private process: AgentProcess | undefined;
  /** Turns of exited agents that are not recovered yet. */
  private readonly exited: ExitedTurn[] = [];
  private recovery: Promise<void> = Promise.resolve();
  private shutdown: Promise<void> = Promise.resolve();
  private isEnding = false;
  /** True if the running agent has sent a line. */
  private hasSpoken = false;
  /** True if its state was asked after its last line, and it did not answer. */
  private isSilent = false;
  /** True if it sent a line since the last look at the session. */
  private hasNews = false;
  /** True if it may be working, or about to begin. */
  private mayWork = false;
  private hasAborted = false;
  private from: TurnBeginning | undefined;
  private wasStarted = false;
  private stall: NodeJS.Timeout | undefined;
  /** The reason why it is ended, unless the host has ended. */
  private reason: string | undefined;

  /** `within`: milliseconds that the agent has to answer a question, and to read its pending input. */
  constructor(launch: AgentLaunch, host: AgentHost, within: number) {
    this.launch = launch;
    this.host = host;
    this.within = within;
    this.questions = new PiQuestions(host.server.nonce(), (line) => this.process?.send(line));
  }

  /** True if reading from the host should pause, because the agent does not read its input. */
  get isFull(): boolean {
    return this.process?.isFull === true;
  }

  get isRunning(): boolean {
    return this.process !== undefined;
  }

  // --- to the agent --------------------------------------------------------------------------------------------

  /** Sends a command of the host, once the agent runs and is at the right session. Rejects if that fails. */
  async forward(request: Forwarded): Promise<void> {
    const { route, line, idText, command } = request;
    await this.recoverTurns();
    const process = this.started();
    if (route.onSession) await this.moveToCurrent();
    // The agent may have ended.
    if (this.process !== process) throw this.makeGoneFailure();
    if (route.works) {
      const { current } = this.host;
      if (!this.isInTurn && current) this.from = { log: current.log, count: current.log.nodes.count };
      this.mayWork = true;
      this.hasAborted = false;
    }
    if (command === "abort" || command === "abort_bash") this.hasAborted = true;
    this.requests.add({ command, idText });
    this.send(line);
  }

  /** Sends a line of the host. An agent that does not read for too long is ended. */
  send(line: Uint8Array): void {
    this.process?.send(line);
    if (!this.isFull || this.stall) return;
    this.stall = setTimeout(() => this.terminate("read nothing"), this.within);
    this.stall.unref();
  }

  private started(): AgentProcess {
    if (this.process) return this.process;
    if (this.isEnding) throw new Failure("shutting_down");
    this.wasStarted = true;
    this.hasSpoken = false;
    this.isSilent = false;
    this.mayWork = false;
    this.process = new AgentProcess(this.launch, this.host.server.cwdFor(this.host.current), this);
    if (!this.host.hasCapacity) this.process.pause();
    return this.process;
  }

  private async moveToCurrent(): Promise<void> {
    const { current } = this.host;
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
    return this.seen.isRunning || this.requests.has(TURN_COMMANDS);
  }

  /** Asks the agent a question, or changes a setting, and starts it if needed. Rejects if it does not answer. */
  async question(command: string, params: Readonly<Record<string, unknown>>, route: AgentRoute): Promise<PiReply> {
    await this.recoverTurns();
    const process = this.started();
    if (route.onSession) await this.moveToCurrent();
    if (this.process !== process) throw this.makeGoneFailure();
    return this.ask(command, params);
  }

  /** Ends the running turn, or the agent if the turn continues; `isOver`: whether it has ended. Never rejects. */
  async abort(isOver: () => boolean): Promise<void> {
    this.hasAborted = true;
    const until = performance.now() + this.within;
    // The agent may have the prompt and not have begun, so that there is nothing to abort yet.
    for (let wait = 20; this.process && !isOver(); wait = Math.min(wait * 2, 500)) {
      const answered = await this.ask("abort").catch(() => undefined);
      if (!answered) return;
      await new Promise((resolve) => setTimeout(resolve, wait).unref());
      if (performance.now() > until) return void this.process?.end();
    }
  }

  /** Asks a question of ours. An agent that does not answer is ended. */
  private async ask(command: string, params: Readonly<Record<string, unknown>> = {}): Promise<PiReply> {
    try {
      return await this.questions.ask(command, params, this.within);
    } catch (error) {
      if (this.process) this.terminate(`did not answer ${command}`);
      throw error;
    }
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
      await this.recoverTurns();
      if (!this.process && (this.wasStarted || this.isEnding)) return undefined;
      this.started();
      if (this.isSilent) return undefined;
      const reply = this.hasSpoken
        ? await this.questions.ask("get_state", {}, Math.min(STATE_WITHIN, this.within))
        : await this.ask("get_state");
      return reply.data ?? undefined;
    } catch {
      this.isSilent = true;
      return undefined;
    }
  }

  // --- the gate of our calls -----------------------------------------------------------------------------------

  /** Before a session is left, ends the agent's work; before a write, requires that the agent is idle. */
  before({ command: { effect, movesFile, name } }: Call, session: Session | null): Promise<void> | undefined {
    if (session === null) return undefined;
    // The agent's own commands skip it: reading the turn before took 0.12 ms of a prompt's way.
    if (name !== AGENT_COMMAND.name) this.readNews(session);
    if (session !== this.position.session && !this.exited.some((exitedTurn) => exitedTurn.session === session))
      return undefined;
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
    this.host.server.readForeign(session);
  }

  private get isAtRest(): boolean {
    return (this.process === undefined || !this.mayWork) && this.exited.length === 0;
  }

  private async requireRest(session: Session): Promise<void> {
    await this.recoverTurns();
    if (await this.isAtWork())
      throw new Failure(
        "session_locked",
        "The agent is at work in this session. Abort it, or wait until it has settled.",
      );
    this.position.outdate(session);
  }

  /** Asks whether the agent is working. An agent that does not answer counts as working. */
  private async isAtWork(): Promise<boolean> {
    if (!this.process || !this.mayWork) return false;
    if (this.requests.has(LONG_COMMANDS)) return true;
    const state = await this.state();
    if (!this.process) return false;
    if (!state || state.isStreaming === true || state.isCompacting === true) return true;
    this.mayWork = this.requests.has(LONG_COMMANDS);
    return this.mayWork;
  }

  /** Ends the agent's work, as Pi does when its session is replaced; if that fails, ends the agent. */
  private async settle(): Promise<void> {
    try {
      if (await this.isAtWork()) {
        this.hasAborted = true;
        if (this.requests.has(new Set(["bash"])))
          void this.questions.ask("abort_bash", {}, this.within).catch(() => {});
        await this.ask("abort");
        await this.requests.waitForAnswers(LONG_COMMANDS, this.within);
        if (await this.isAtWork()) await this.process?.end();
      }
    } catch {
      await this.process?.end();
    }
    await this.recoverShown();
    await this.recoverTurns();
  }

  // --- from the agent ------------------------------------------------------------------------------------------

  line(bytes: Buffer): void {
    if (!isJsonObject(bytes)) {
      const text = bytes.toString("utf8", 0, SHOWN).trim();
      if (text !== "") this.launch.complain(text);
      return;
    }
    this.hasSpoken = true;
    this.isSilent = false;
    const type = getLineType(bytes);
    if (type === "response") {
      const reply = parseMembers(bytes) as unknown as PiReply;
      this.hasNews = true;
      if (this.questions.take(reply, !this.requests.has(new Set([reply.command ?? ""])))) return;
      if (!this.requests.answered(reply)) {
        this.launch.complain(`a reply to nothing that it was asked: ${bytes.toString("utf8", 0, SHOWN).trim()}`);
        return;
      }
    } else if (type !== undefined) {
      this.hasNews = true;
      if (type === "agent_start") this.mayWork = true;
      this.seen.note(type, bytes);
    }
    // Before the host gets the end of the turn, and may read the session.
    const mayBeOver = type === "response" || type === "agent_end" || type === "agent_settled";
    if (mayBeOver && this.seen.hasMessages && !this.isInTurn) void this.host.inTurn(() => this.recoverShown());
    this.host.passOn(bytes);
  }

  tooLong(beginning: Buffer, size: number): void {
    const id = /^\{\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,/.exec(beginning.toString("utf8"))?.[1];
    const sentence = `The agent said a line of ${size} bytes, over the limit of ${this.launch.maxLineBytes}. It was dropped; --max-message-bytes raises the limit.`;
    const request = this.requests.takeById(id);
    if (request) this.host.fail(request, new Failure("message_too_large", sentence));
    else this.host.show(sentence);
  }

  through(): void {
    this.host.flush();
    if (!this.host.hasCapacity) this.process?.pause();
  }

  drained(): void {
    clearTimeout(this.stall);
    this.stall = undefined;
    this.host.server.resumeInput();
  }

  /** Resumes reading from the agent, when the host reads again. */
  resume(): void {
    this.process?.resume();
  }

  // --- the end -------------------------------------------------------------------------------------------------

  ended(by: string): void {
    const how = this.reason ?? by;
    this.reason = undefined;
    clearTimeout(this.stall);
    this.stall = undefined;
    this.process = undefined;
    const session = this.position.leave();
    const isAborted = this.hasAborted || this.isEnding;
    const exitedTurn: ExitedTurn = { session, from: this.from, rest: this.seen.take(), how, isAborted };
    this.exited.push(exitedTurn);
    this.mayWork = false;
    const failure = this.makeGoneFailure(how);
    this.questions.abandon(failure);
    const requests = this.requests.takeAll();
    // The shown messages are written before any client gets the end.
    this.shutdown = this.host.inTurn(async () => {
      await this.recoverTurns();
      for (const request of requests) this.host.fail(request, failure);
      if (exitedTurn.rest.isRunning) this.host.reportTurnEnd(exitedTurn.last, exitedTurn.isAborted);
      if (!this.isEnding) this.host.show(failure.message);
      this.host.agentEnded(failure);
      this.host.flush();
    });
    this.host.server.resumeInput();
  }

  private makeGoneFailure(how = "has ended"): Failure {
    return new Failure("agent_failed", `The agent ${how}. The next prompt starts it again.`);
  }

  /** Writes the shown parts of the turns of exited agents. Never rejects. */
  private recoverTurns(): Promise<void> {
    if (this.exited.length > 0)
      this.recovery = this.recovery.then(async () => {
        for (let exitedTurn = this.exited.shift(); exitedTurn; exitedTurn = this.exited.shift())
          try {
            exitedTurn.last = await this.write(exitedTurn);
          } catch (error) {
            const { message } = error as Error;
            this.host.server.printError(`What was seen of the agent's last turn could not be written. ${message}`);
          }
      });
    return this.recovery;
  }

  /**
   * Writes the finished messages of an ended turn that the agent has shown and not written. Asks first whether the
   * agent is idle: an idle agent has written its own messages. Never rejects.
   */
  private async recoverShown(): Promise<void> {
    const { session } = this.position;
    if (!session || this.isInTurn) return;
    const shown = this.seen.messages;
    try {
      session.externalChanges.checkForChanges();
      if (listMissing(findShown(session, this.from, shown)).length > 0) {
        const state = await this.state();
        if (!state || state.isStreaming === true || state.isCompacting === true || this.isInTurn) return;
        if (typeof state.sessionId === "string" && state.sessionId !== session.id)
          this.host.show(`The agent wrote its last turn to another session, ${state.sessionFile ?? state.sessionId}.`);
        else await this.writeShown(session, shown);
      }
      this.seen.forgetEnded();
    } catch (error) {
      this.host.show(`What the agent showed could not be compared with its session. ${(error as Error).message}`);
    }
  }

  private async writeShown(session: Session, shown: readonly MessageValue[]): Promise<void> {
    await becomeWriter(session);
    const missing = await this.appendShown(session, this.from, shown);
    if (missing.length === 0) return;
    // The agent has these entries only after it opens the session again.
    this.position.outdate(session);
    const are =
      missing.length === 1 ? "1 message that it showed. It is" : `${missing.length} messages that it showed. They are`;
    this.host.show(`The agent had not written ${are} in the session now.`);
  }

  /** Appends the shown messages that a session lacks. Returns them when they are durable. */
  private async appendShown(
    session: Session,
    from: TurnBeginning | undefined,
    messages: readonly MessageValue[],
  ): Promise<MessageValue[]> {
    const shown = findShown(session, from, messages);
    const missing = listMissing(shown);
    if (missing.length === 0) return missing;
    const ids = insertMissing(session, shown, () => this.host.server.now());
    await session.commit();
    this.host.server.notifyWritten(session, ids);
    return missing;
  }

  private async write({ session, from, rest, how, isAborted }: ExitedTurn): Promise<MessageValue | undefined> {
    if (!session) return undefined;
    await becomeWriter(session);
    session.externalChanges.followsFile = false;
    await this.appendShown(session, from, rest.messages);
    const broken = this.brokenTurn(rest, how, isAborted, findLastMessage(session));
    if (!broken) return undefined;
    const message = completeMessage(broken, session, () => this.host.server.now());
    const { ids } = session.append([makeDraft("message", { message })]);
    await session.commit();
    this.host.server.notifyWritten(session, ids);
    return message;
  }

  /** Returns the message that ends a turn: the unfinished answer, or an empty one. */
  private brokenTurn(
    { unfinished, isRunning }: TurnRest,
    how: string,
    isAborted: boolean,
    last: MessageValue | undefined,
  ): MessageValue | undefined {
    if (!unfinished && (!isRunning || last?.role !== "user")) return undefined;
    const reason = isAborted
      ? ({ stopReason: "aborted", errorMessage: "The turn was ended." } as const)
      : ({ stopReason: "error", errorMessage: `The agent ${how}.` } as const);
    return makeFinalMessage(unfinished, reason, this.host.server.now());
  }

  private terminate(what: string): void {
    const { process } = this;
    if (!process) return;
    this.reason = `${what} for ${this.within} ms and was ended`;
    void process.end();
  }

  /** Ends the agent, and recovers its turn. It is not started again. */
  async end(): Promise<void> {
    this.isEnding = true;
    await this.process?.end();
    await this.shutdown;
  }
}

function findLastMessage(session: Session): MessageValue | undefined {
  const { tree, log } = session;
  let at = tree.leaf;
  while (at >= 0 && log.nodes.type(at) !== "message") at = log.nodes.parent(at);
  return at < 0 ? undefined : (session.entry(at).message as MessageValue);
}
