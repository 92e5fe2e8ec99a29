/** Connects an agent that speaks Pi's dialect to its host: forwards lines in both directions. */

import type { Failure } from "../../../core/failure.ts";
import { isObject } from "../../../core/format/loose.ts";
import type { Session } from "../../../core/session/session.ts";
import type { Command, CommandContext, RunnableCommand } from "../../../handlers/shared/command.ts";
import { findCommand } from "../../../handlers/shared/find.ts";
import type { PiBehind, PiWire } from "../../../server/agents-module.ts";
import { type Call, getIdText, type Outcome } from "../../../server/connection/call.ts";
import { checkParams } from "../../../server/connection/dialect.ts";
import { isNotice, makeNotice, piDialect } from "../../../server/connection/pi.ts";
import { type AgentSetup, runInOrder } from "../behind/agent-server.ts";
import type { MessageValue } from "../behind/messages.ts";
import { type AgentRoute, findRoute, PROMPT_COMMANDS } from "../behind/routes.ts";
import { type AgentClient, PiAgent } from "./pi-agent.ts";
import type { ForwardedRequest } from "./pi-questions.ts";

/** The outcome of a forwarded command: the reply is the agent's own. */
const FORWARDED = Symbol("forwarded");
const LF = 0x0a;
const SPACE = 0x20;
const LINE_END = Buffer.from("\n");

/** Members of the agent's state that hold for every session, and those of its current session. */
const AGENT_MEMBERS = ["steeringMode", "followUpMode", "autoCompactionEnabled"];
const SESSION_MEMBERS = ["model", "thinkingLevel", "isStreaming", "isCompacting", "pendingMessageCount"];

type HostParams = Readonly<Record<string, unknown>>;

export class PiForwarder implements AgentClient, PiBehind {
  private readonly wire: PiWire;
  private readonly agent: PiAgent;
  /** The last sentence shown to the person. */
  private shown: string | undefined;

  constructor(wire: PiWire, options: AgentSetup) {
    this.wire = wire;
    this.agent = new PiAgent(options, wire, this);
    wire.dispatcher.addGate(this.agent);
  }

  get isFull(): boolean {
    return this.agent.isFull;
  }

  resume(): void {
    this.agent.resume();
  }

  end(): Promise<void> {
    return this.agent.end();
  }

  // --- from the host -------------------------------------------------------------------------------------------

  /** Handles a message of the host that the agent answers, at least in part. Returns whether it is one. */
  accept(value: unknown, bytes: Buffer): boolean {
    if (!isObject(value)) return false;
    const { id, type } = value as HostParams;
    if (typeof type !== "string" || type === "hook_response") return false;
    if (type === "extension_ui_response") {
      if (!isNotice(id)) this.agent.send(toLine(bytes));
      return true;
    }
    const ours = findCommand(type);
    if (type === "get_state" && ours) {
      const { command: stated, ...rest } = this.makeCall(value as HostParams, bytes, this.makeStateCommand(ours));
      this.wire.dispatcher.submit({
        ...rest,
        command: stated,
        ...checkParams(ours, pickParams(value as HostParams), true),
      });
      return true;
    }
    const route = this.isNameOfAgentSession(value as HostParams)
      ? { onSession: true }
      : findRoute(type, ours !== undefined);
    if (route) this.forward(value as HostParams, bytes, route, ours);
    return route !== undefined;
  }

  /** Returns whether a message names the agent's current session with members that Pi knows. */
  private isNameOfAgentSession({ type, sessionId, idempotencyKey, expectedLeafId }: HostParams): boolean {
    if (type !== "set_session_name" || (idempotencyKey ?? expectedLeafId) !== undefined) return false;
    return this.agent.isAt(this.current) && (sessionId === undefined || sessionId === this.current?.id);
  }

  private makeCall(value: HostParams, bytes: Buffer, asked: RunnableCommand): Call {
    const { id, type } = value;
    const range = { start: 0, end: bytes.length };
    const idText = id === undefined ? undefined : getIdText(id, bytes, range);
    const messageText: Call["messageText"] = () => ({ bytes, range, toParams: [] });
    return { command: asked, name: type as string, params: pickParams(value), idText, messageText };
  }

  /** Forwards a command to the agent, in its turn. The agent replies, unless it cannot be asked. */
  private forward(value: HostParams, bytes: Buffer, route: AgentRoute, ours: Command | undefined): void {
    const run = async (context: CommandContext, params: HostParams): Promise<unknown> => {
      if (route.ofRunning && ours && !this.agent.isRunning) {
        const result = await ours.run(context, params as never);
        return ours.pi ? ours.pi(context, result as never) : result;
      }
      await this.agent.forward({ command: call.name, idText: call.idText, route, line: toLine(bytes) });
      this.shown = undefined;
      return FORWARDED;
    };
    const call = this.makeCall(value, bytes, { name: "", effect: "control", run });
    const answer = (outcome: Outcome): void => {
      if ("result" in outcome && outcome.result === FORWARDED) return;
      if ("error" in outcome && PROMPT_COMMANDS.has(call.name)) this.show((outcome.error as Error).message);
      this.wire.reply(call, outcome);
    };
    this.wire.dispatcher.submit({ ...call, answer });
  }

  /** Makes the command that returns our state with the members that only the agent has. */
  private makeStateCommand(ours: Command): Command {
    const run = async (context: CommandContext, params: HostParams): Promise<unknown> => {
      const known = await this.agent.state();
      const result = await ours.run(context, params as never);
      return { result, known };
    };
    const shape = (
      context: CommandContext,
      { result, known = {} }: { result: HostParams; known?: HostParams },
    ): unknown => {
      const { current } = this;
      const isThere = this.agent.isAt(current) || current?.log.persisted === false;
      const names = [...AGENT_MEMBERS, ...(isThere ? SESSION_MEMBERS : result.model === null ? ["model"] : [])];
      const reported = names.filter((name) => known[name] !== undefined && known[name] !== null);
      const shaped = ours.pi?.(context, result as never) as object;
      return { ...shaped, ...Object.fromEntries(reported.map((name) => [name, known[name]])) };
    };
    return { ...ours, run: run as Command["run"], pi: shape as Command["pi"] };
  }

  // --- to the host ---------------------------------------------------------------------------------------------

  get current(): Session | null {
    return this.wire.workspace.current;
  }

  get hasCapacity(): boolean {
    return this.wire.output.hasCapacity;
  }

  passOn(line: Buffer): void {
    this.wire.output.sendLine(line);
  }

  flush(): void {
    this.wire.output.flush();
  }

  inTurn(work: () => Promise<void>): Promise<void> {
    return runInOrder(this.wire.dispatcher, work);
  }

  fail({ command: name, idText }: ForwardedRequest, failure: Failure): void {
    this.wire.output.send([...piDialect.reply({ name, idText } as Call, { error: failure })]);
  }

  reportTurnEnd(message: MessageValue | undefined, isAborted: boolean): void {
    const events: object[] = message
      ? [
          { type: "message_end", message },
          { type: "turn_end", message, toolResults: [] },
        ]
      : [];
    events.push({ type: "agent_end", messages: message ? [message] : [], willRetry: false });
    events.push({ type: "agent_settled", aborted: isAborted });
    for (const event of events) this.wire.output.send([JSON.stringify(event)]);
  }

  show(notice: string): void {
    if (notice === this.shown) return;
    this.shown = notice;
    this.wire.output.send(makeNotice(notice));
  }

  agentEnded(): void {}
}

/** Returns the params of a message. */
function pickParams({ id: _id, type: _type, ...params }: HostParams): HostParams {
  return params;
}

/** Returns a message as one line. Line feeds in JSON are between its values. */
function toLine(bytes: Buffer): Buffer {
  const line = Buffer.concat([bytes, LINE_END]);
  if (bytes.includes(LF)) for (let i = 0; i < bytes.length; i++) if (line[i] === LF) line[i] = SPACE;
  return line;
}
