/** An agent that speaks the Agent Client Protocol, as this server is its client: requests, their replies, and what it says itself. */

import { Failure } from "../../core/failure.ts";
import { type LooseMembers, membersOf } from "../../core/format/loose.ts";
import { stringOf } from "../../core/format/message.ts";
import { AcpError } from "../acp/errors.ts";
import { isObject, membersOfLine } from "./pi-lines.ts";
import { type AgentLaunch, AgentProcess, type AgentSink } from "./process.ts";

/** Bytes of lines that wait for the editor, beyond which nothing more is taken from the agent. */
const FULL_AT = 4 << 20;
const INTERNAL = -32603;
const NO_SUCH_METHOD = -32601;

/** Whoever hears what the agent says on its own. */
export interface AcpHearer {
  /** Takes an update of one of its sessions, which came in so many bytes. */
  updated(agentSessionId: string, update: LooseMembers, bytes: number): void;
  /** Answers a request of the agent. Rejects with what the agent is told. */
  asked(method: string, params: LooseMembers): Promise<unknown>;
  /** Called when the agent has ended. */
  ended(failure: Failure): void;
}

interface SentRequest {
  readonly method: string;
  resolve(result: LooseMembers): void;
  reject(error: Error): void;
}

export class AcpLink implements AgentSink {
  private readonly process: AgentProcess;
  private readonly hearer: AcpHearer;
  private readonly launch: AgentLaunch;
  private readonly within: number;
  private readonly waiting = new Map<number, SentRequest>();
  private count = 0;
  private waitingBytes = 0;
  private reason: string | undefined;
  hasEnded = false;

  /** `within`: milliseconds that it has for a request that needs no model. */
  constructor(launch: AgentLaunch, cwd: string, within: number, hearer: AcpHearer) {
    this.launch = launch;
    this.within = within;
    this.hearer = hearer;
    this.process = new AgentProcess(launch, cwd, this);
  }

  /** Whether so much waits for it to be read that nothing more should be sent. */
  get isFull(): boolean {
    return this.process.isFull;
  }

  /** Asks it. Rejects with its error, or with agent_failed; one that does not answer in time is ended, unless it may take its time. */
  request(method: string, params: object, mayTakeLong = false): Promise<LooseMembers> {
    const id = ++this.count;
    return new Promise((resolve, reject) => {
      if (this.hasEnded) return reject(gone("has ended"));
      let late: NodeJS.Timeout | undefined;
      if (!mayTakeLong) {
        late = setTimeout(
          () => this.giveUp(`did not answer ${method} for ${this.within} ms and was ended`),
          this.within,
        );
        late.unref();
      }
      this.waiting.set(id, {
        method,
        resolve: (result) => {
          clearTimeout(late);
          resolve(result);
        },
        reject: (error) => {
          clearTimeout(late);
          reject(error);
        },
      });
      this.say({ id, method, params });
    });
  }

  notify(method: string, params: object): void {
    this.say({ method, params });
  }

  private say(message: object): void {
    this.process.send(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  /** Ends it, and says why. */
  giveUp(reason: string): void {
    this.reason ??= reason;
    void this.process.end();
  }

  end(): Promise<void> {
    return this.process.end();
  }

  /** Counts bytes that wait to be told, or that were. */
  held(bytes: number): void {
    this.waitingBytes += bytes;
    if (this.waitingBytes < FULL_AT) this.process.resume();
  }

  // --- what it says --------------------------------------------------------------------------------------------

  line(bytes: Buffer): void {
    if (!isObject(bytes)) {
      const text = bytes.toString("utf8").trim();
      if (text !== "") this.launch.complain(text);
      return;
    }
    const { id, method, params, result, error } = membersOfLine(bytes);
    if (method === undefined) return this.answered(id, result, error);
    if (id !== undefined) return void this.answer(id, stringOf(method), membersOf(params));
    if (method !== "session/update") return;
    const { sessionId, update } = membersOf(params);
    this.hearer.updated(stringOf(sessionId), membersOf(update), bytes.length);
  }

  private answered(id: unknown, result: unknown, error: unknown): void {
    const request = typeof id === "number" ? this.waiting.get(id) : undefined;
    if (!request) return;
    this.waiting.delete(id as number);
    if (error === undefined) return request.resolve(membersOf(result));
    const { code, message } = membersOf(error);
    const sentence = stringOf(message) || "The agent refused and does not say why.";
    request.reject(new AcpError(typeof code === "number" && Number.isInteger(code) ? code : INTERNAL, sentence));
  }

  private async answer(id: unknown, method: string, params: LooseMembers): Promise<void> {
    try {
      this.say({ id, result: await this.hearer.asked(method, params) });
    } catch (error) {
      const code = error instanceof AcpError ? error.code : INTERNAL;
      this.say({ id, error: { code, message: (error as Error).message } });
    }
  }

  tooLong(_beginning: Buffer, size: number): void {
    this.launch.complain(
      `said a line of ${size} bytes, over the limit of ${this.launch.maxLineBytes}; --max-message-bytes raises it`,
    );
  }

  through(): void {
    if (this.waitingBytes >= FULL_AT) this.process.pause();
  }

  drained(): void {}

  ended(how: string): void {
    this.hasEnded = true;
    const failure = gone(this.reason ?? how);
    for (const request of this.waiting.values()) request.reject(failure);
    this.waiting.clear();
    this.hearer.ended(failure);
  }
}

function gone(how: string): Failure {
  return new Failure("agent_failed", `The agent ${how}. The next prompt starts it again.`);
}

/** Returns the refusal of a request that nobody here answers. */
export function unknownMethod(method: string): AcpError {
  return new AcpError(NO_SUCH_METHOD, `This client has no method ${method.slice(0, 200)}.`);
}
