/**
 * Records turns of Pi, which writes its messages itself: compares what it has shown with what it has written, and adds
 * the rest.
 */

import { NO_USAGE, toMessageUsage } from "../../../core/foreign/messages.ts";
import { type Draft, makeDraft, patchMembers } from "../../../core/format/entry.ts";
import { findMember, getMembers, parse, toBytes } from "../../../core/json/json.ts";
import type { Session } from "../../../core/session/session.ts";
import { becomeWriter } from "../../../core/session/writer.ts";
import type { FaceWire } from "../../../server/face.ts";
import { notifyWrittenEntries } from "../behind/agent-server.ts";
import { parseMembers } from "../behind/lines.ts";
import { completeMessage, type MessageValue, makeFinalMessage, matchStored } from "../behind/messages.ts";
import type { Recorder } from "../behind/recorder.ts";

/** The end of a Pi that has exited. */
interface PiExit {
  readonly session: Session | undefined;
  /** The way it ended, as the end of a sentence. */
  readonly how: string;
  readonly isAborted: boolean;
}

/** The turn of a Pi that has exited. */
export interface ExitedTurn extends PiExit {
  readonly from: TurnBeginning | undefined;
  readonly rest: TurnRest;
  /** The message that ended the turn, once it is written. */
  last?: MessageValue;
}

export class PiRecorder implements Recorder<Session, Buffer, PiExit> {
  private readonly wire: FaceWire;
  private readonly printError: (sentence: string) => void;
  readonly seen = new SeenTurn();
  private from: TurnBeginning | undefined;
  /** Turns of exited processes that are not recovered yet. */
  private readonly exited: ExitedTurn[] = [];
  private recovery: Promise<void> = Promise.resolve();

  constructor(wire: FaceWire, printError: (sentence: string) => void) {
    this.wire = wire;
    this.printError = printError;
  }

  /** Begins a turn: its entries come after those that the session has now. */
  begin({ log }: Session): void {
    this.from = { log, count: log.nodes.count };
  }

  /** Takes a line of Pi; `type` is its type. */
  update(line: Buffer, type = ""): void {
    this.seen.note(type, line);
  }

  /** Ends the turn of a Pi that has exited; {@link recover} writes the rest of it. */
  end(exit: PiExit): ExitedTurn {
    const turn = { ...exit, from: this.from, rest: this.seen.take() };
    this.exited.push(turn);
    return turn;
  }

  /** Returns whether the session lacks messages that were shown. */
  lacksShown(session: Session): boolean {
    return listMissing(findShown(session, this.from, this.seen.messages)).length > 0;
  }

  /** Writes the shown messages that the session of a living Pi lacks. Returns their number. */
  async writeShown(session: Session): Promise<number> {
    const shown = this.seen.messages;
    await becomeWriter(session);
    return (await this.appendShown(session, this.from, shown)).length;
  }

  /** Returns whether a turn waits to be recovered, in any session by default. */
  hasExited(session?: Session): boolean {
    return session ? this.exited.some((turn) => turn.session === session) : this.exited.length > 0;
  }

  /** Writes the shown parts of the turns of exited processes. Never rejects. */
  recover(): Promise<void> {
    if (this.exited.length > 0)
      this.recovery = this.recovery.then(async () => {
        for (let turn = this.exited.shift(); turn; turn = this.exited.shift())
          try {
            turn.last = await this.writeRest(turn);
          } catch (error) {
            const { message } = error as Error;
            this.printError(`A part of the agent's last turn could not be written. ${message}`);
          }
      });
    return this.recovery;
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
    const ids = insertMissing(session, shown, () => this.wire.workspace.env.now());
    await session.commit();
    notifyWrittenEntries(this.wire.dispatcher, session, ids);
    return missing;
  }

  private async writeRest({ session, from, rest, how, isAborted }: ExitedTurn): Promise<MessageValue | undefined> {
    if (!session) return undefined;
    await becomeWriter(session);
    session.externalChanges.followsFile = false;
    await this.appendShown(session, from, rest.messages);
    const broken = this.makeLastMessage(rest, how, isAborted, findLastMessage(session));
    if (!broken) return undefined;
    const message = completeMessage(broken, session, () => this.wire.workspace.env.now());
    const { ids } = session.append([makeDraft("message", { message })]);
    await session.commit();
    notifyWrittenEntries(this.wire.dispatcher, session, ids);
    return message;
  }

  /** Returns the message that ends a turn: the unfinished answer, or an empty one. */
  private makeLastMessage(
    { unfinished, isRunning }: TurnRest,
    how: string,
    isAborted: boolean,
    last: MessageValue | undefined,
  ): MessageValue | undefined {
    if (!unfinished && (!isRunning || last?.role !== "user")) return undefined;
    const reason = isAborted
      ? ({ stopReason: "aborted", errorMessage: "The turn was ended." } as const)
      : ({ stopReason: "error", errorMessage: `The agent ${how}.` } as const);
    return makeFinalMessage(unfinished, reason, this.wire.workspace.env.now());
  }
}

function findLastMessage(session: Session): MessageValue | undefined {
  const { tree, log } = session;
  let at = tree.leaf;
  while (at >= 0 && log.nodes.type(at) !== "message") at = log.nodes.parent(at);
  return at < 0 ? undefined : (session.entry(at).message as MessageValue);
}

// --- what was shown --------------------------------------------------------------------------------------------

/** Bytes of kept lines, above which they are folded into a message, or the oldest dropped. */
const KEPT = 16 << 20;

/** Roles of messages that agents write as messages; the rest become entries of other types. */
const WRITTEN: readonly unknown[] = ["user", "assistant", "toolResult"];

const ASSISTANT = Buffer.from('"role":"assistant"');
const WILL_RETRY = Buffer.from('"willRetry":true');

type PiBlock = Record<string, unknown>;

/** The unwritten part of a turn. */
interface TurnRest {
  /** Finished messages that may not be stored, in order. */
  readonly messages: readonly MessageValue[];
  /** The unfinished message, if there is one. */
  readonly unfinished: MessageValue | undefined;
  /** True if the turn was running. */
  readonly isRunning: boolean;
}

/**
 * The messages of a turn that Pi has shown and may not have written: it writes a message after it has shown it, and the
 * beginning of a session only with the first answer. Lines are kept raw, and parsed only when the turn is over or Pi is
 * gone.
 */
class SeenTurn {
  /** True if a turn is running, by its events. */
  isRunning = false;
  /** True if the agent reports when it has settled; clients then wait for that. */
  private settles = false;
  private ended: Buffer[] = [];
  private endedBytes = 0;
  /** Lines of the running answer, and the message folded from earlier ones. */
  private open: Buffer[] = [];
  private openBytes = 0;
  private partial: MessageValue | undefined;
  private isOpen = false;

  /** Takes a line of the agent. */
  note(type: string, line: Buffer): void {
    if (type === "message_update") {
      if (this.isOpen) this.keep(line);
      return;
    }
    if (type === "agent_start") this.isRunning = true;
    else if (type === "message_start") this.begin(line);
    else if (type === "message_end") this.finish(line);
    else if (type === "agent_end") this.isRunning = this.settles || line.includes(WILL_RETRY);
    else if (type === "agent_settled") {
      this.settles = true;
      this.isRunning = false;
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

  /** True if finished messages were shown that are not known to be written. */
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
      isRunning: this.isRunning,
    };
    this.close();
    this.forgetEnded();
    this.isRunning = false;
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

// --- what was written ------------------------------------------------------------------------------------------

/** Entries at the end of a session that are searched for messages of the turn, if its beginning is unknown. */
const LOOKED_AT = 500;

/** The size of a session when a turn began: the turn's entries come after that. */
interface TurnBeginning {
  readonly log: Session["log"];
  readonly count: number;
}

/** The messages that an agent showed in a turn, and the position of each one's entry; undefined if it has none. */
interface ShownTurn {
  readonly messages: readonly MessageValue[];
  readonly positions: readonly (number | undefined)[];
}

/** Finds the entries of shown messages among those that a session has got since the turn began. */
function findShown(session: Session, from: TurnBeginning | undefined, messages: readonly MessageValue[]): ShownTurn {
  const { log } = session;
  const { nodes } = log;
  const isKnown = from?.log === log && from.count <= nodes.count;
  const first = isKnown ? from.count : Math.max(0, nodes.count - LOOKED_AT - 2 * messages.length);
  const found: number[] = [];
  for (let at = first; at < nodes.count; at++) if (nodes.type(at) === "message") found.push(at);
  const stored = [...log.readMany(found)].map((line) => (parse(line) as { message?: unknown }).message);
  const positions = matchStored(messages, stored).map((index) => (index === undefined ? undefined : found[index]));
  return { messages, positions };
}

function listMissing({ messages, positions }: ShownTurn): MessageValue[] {
  return messages.filter((_, n) => positions[n] === undefined);
}

/**
 * Appends the messages without an entry. Returns the ids of the new entries. If the agent wrote later messages of the
 * turn, the new entries are a branch that begins before these, continued by copies of these. If that branch would leave
 * out other entries, the leaf stays, and the messages are on a branch off the path.
 */
function insertMissing(session: Session, shown: ShownTurn, now: () => number): readonly string[] {
  const { tree, log } = session;
  const { messages, positions } = shown;
  const draftOfShown = (message: MessageValue): Draft =>
    makeDraft("message", { message: completeMessage(message, session, now) });
  const first = positions.indexOf(undefined);
  const next = positions.find((position, n) => n > first && position !== undefined);
  if (next === undefined) return session.append(listMissing(shown).map(draftOfShown)).ids;

  const { leaf } = tree;
  const path = [...tree.path(leaf)];
  const later = path.includes(next) ? path.slice(path.indexOf(next)) : [];
  const isRepeatable = later.length > 0 && later.every((position) => log.nodes.type(position) === "message");
  const drafts: Draft[] = [];
  for (let n = first; n < messages.length; n++) {
    const position = positions[n];
    if (position === undefined) drafts.push(draftOfShown(messages[n]));
    else if (isRepeatable && later.includes(position))
      drafts.push(...later.splice(0, later.indexOf(position) + 1).map((at) => makeCopy(log.read(at))));
  }
  if (isRepeatable) drafts.push(...later.map((at) => makeCopy(log.read(at))));
  const parent = log.nodes.parent(next);
  const parentId = parent < 0 ? null : log.nodes.id(parent);
  const { ids } = session.append([{ ...drafts[0], parentId }, ...drafts.slice(1)]);
  if (!isRepeatable) session.moveLeaf(leaf);
  return ids;
}

const NOTHING_USED = toBytes(JSON.stringify(toMessageUsage(NO_USAGE)));

/** Returns a draft of the message on a line, byte for byte except its usage, which the entry on the line counts. */
function makeCopy(line: Uint8Array): Draft {
  const member = findMember(getMembers(line) ?? [], "message");
  const message = line.subarray(member?.start, member?.end);
  return makeDraft("message", { message: patchMembers(message, { usage: NOTHING_USED }) });
}
