/**
 * Remembers the messages of a turn that a Pi agent has shown and may not have written: it writes a message after it has
 * shown it, and the beginning of a session only with the first answer. Lines are kept raw, and parsed only when the
 * turn is over or the agent is gone.
 */

import type { MessageValue } from "./messages.ts";
import { parseMembers } from "./pi-lines.ts";

/** Bytes of kept lines, above which they are folded into a message, or the oldest dropped. */
const KEPT = 16 << 20;

/** Roles of messages that agents write as messages; the rest become entries of other types. */
const WRITTEN: readonly unknown[] = ["user", "assistant", "toolResult"];

const ASSISTANT = Buffer.from('"role":"assistant"');
const WILL_RETRY = Buffer.from('"willRetry":true');

type PiBlock = Record<string, unknown>;

/** The unwritten part of a turn. */
export interface TurnRest {
  /** Finished messages that may not be stored, in order. */
  readonly messages: readonly MessageValue[];
  /** The unfinished message, if there is one. */
  readonly unfinished: MessageValue | undefined;
  /** True if the turn was running. */
  readonly isRunning: boolean;
}

export class SeenTurn {
  private running = false;
  /** True if the agent reports when it has settled; clients then wait for that. */
  private settles = false;
  private ended: Buffer[] = [];
  private endedBytes = 0;
  /** Lines of the running answer, and the message folded from earlier ones. */
  private open: Buffer[] = [];
  private openBytes = 0;
  private partial: MessageValue | undefined;
  private isOpen = false;

  /** True if a turn is running, by its events. */
  get isRunning(): boolean {
    return this.running;
  }

  /** Takes a line of the agent. */
  note(type: string, line: Buffer): void {
    if (type === "message_update") {
      if (this.isOpen) this.keep(line);
      return;
    }
    if (type === "agent_start") this.running = true;
    else if (type === "message_start") this.begin(line);
    else if (type === "message_end") this.finish(line);
    else if (type === "agent_end") this.running = this.settles || line.includes(WILL_RETRY);
    else if (type === "agent_settled") {
      this.settles = true;
      this.running = false;
    }
  }

  private begin(line: Buffer): void {
    this.close();
    this.isOpen = line.includes(ASSISTANT);
    if (this.isOpen) this.keep(line);
  }

  private keep(line: Buffer): void {
    this.open.push(line);
    this.openBytes += line.length;
    if (this.openBytes > KEPT) this.fold();
  }

  private finish(line: Buffer): void {
    this.close();
    this.ended.push(line);
    this.endedBytes += line.length;
    while (this.endedBytes > KEPT && this.ended.length > 1) this.endedBytes -= (this.ended.shift() as Buffer).length;
  }

  private close(): void {
    this.isOpen = false;
    this.partial = undefined;
    this.open = [];
    this.openBytes = 0;
  }

  /** Returns the finished messages that are not known to be stored. */
  get messages(): readonly MessageValue[] {
    const messages = this.ended.map((line) => getMessage(parseMembers(line)));
    return messages.filter((message) => message !== undefined && WRITTEN.includes(message.role)) as MessageValue[];
  }

  get hasMessages(): boolean {
    return this.ended.length > 0;
  }

  /** Drops the finished messages, because they are stored. */
  forgetEnded(): void {
    this.ended = [];
    this.endedBytes = 0;
  }

  /** Folds the kept lines into the partial answer. */
  private fold(): void {
    for (const line of this.open) this.partial = applyLine(this.partial, parseMembers(line));
    this.open = [];
    this.openBytes = 0;
  }

  /** Returns the unwritten part of the turn, and clears it. */
  take(): TurnRest {
    this.fold();
    const rest = {
      messages: this.messages,
      unfinished: this.isOpen ? this.partial : undefined,
      isRunning: this.running,
    };
    this.close();
    this.forgetEnded();
    this.running = false;
    return rest;
  }
}

function getMessage({ message }: Readonly<Record<string, unknown>>): MessageValue | undefined {
  return typeof message === "object" && message !== null ? (message as MessageValue) : undefined;
}

/** Returns an answer with a line applied: the whole message (Pi before 0.84), or a piece. */
function applyLine(
  before: MessageValue | undefined,
  line: Readonly<Record<string, unknown>>,
): MessageValue | undefined {
  const whole = getMessage(line);
  if (whole && (line.type === "message_update" || before === undefined)) return whole;
  const event = line.assistantMessageEvent;
  if (typeof event !== "object" || event === null) return before ?? whole;
  const content: PiBlock[] = Array.isArray(before?.content) ? (before.content as PiBlock[]) : [];
  applyEvent(content, event as PiBlock);
  return { ...before, role: "assistant", content };
}

/** Applies a piece of a block. Partial tool calls are left out. */
function applyEvent(content: PiBlock[], { type, contentIndex, delta, content: whole, toolCall }: PiBlock): void {
  if (typeof contentIndex !== "number" || typeof type !== "string") return;
  const [kind] = type.split("_");
  if (kind === "toolcall") {
    if (toolCall) content[contentIndex] = toolCall as PiBlock;
    return;
  }
  const member = kind === "thinking" ? "thinking" : "text";
  if (kind !== member) return;
  const block = content[contentIndex] ?? { type: member, [member]: "" };
  content[contentIndex] = block;
  if (typeof whole === "string") block[member] = whole;
  else if (typeof delta === "string") block[member] = `${block[member]}${delta}`;
}
