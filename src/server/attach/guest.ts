/** One process that joined a session that we hold: its calls run among ours, and it hears what happens. */

import { Failure } from "../../core/failure.ts";
import { bytesOf, concat } from "../../core/json/json.ts";
import { textPieces } from "../../core/json/raw.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { ClientSettings, ServerFacts } from "../../handlers/shared/command.ts";
import { findCommand } from "../../handlers/shared/find.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import type { Call, Outcome, Peer } from "../connection/call.ts";
import type { CallingPeer } from "../connection/caller.ts";
import { checkedParams, describeError } from "../connection/dialect.ts";
import type { Question } from "../connection/hooks.ts";
import type { PendingEvent } from "../connection/host.ts";
import type { Pipe, PipeMessage } from "./pipe.ts";
import { isDoneByHolder } from "./words.ts";

/** Calls of one guest that wait at most; then no more of its messages are read. */
const MAX_WAITING = 1000;

/** The server as the calls of a guest share it. */
export interface GuestHost {
  readonly workspace: Workspace;
  readonly server: ServerFacts;
  readonly settings: ClientSettings;
  submit(call: Call): void;
  commitPending(): void;
  /** Cancels a call of one who joined, if it has not been run yet or waits for consent. */
  cancel(idText: string, peer: Peer): void;
  /** Returns the last entry of a session that everybody was told of, or null; events tell of those after it. */
  lastTold(session: Session): string | null;
}

export class Guest implements CallingPeer {
  readonly session: Session;
  readonly workspace: Workspace;
  readonly server: ServerFacts;
  readonly settings: ClientSettings;
  readonly dialectName = "jsonrpc";
  readonly maxReplyBytes = undefined;
  readonly hasRoom = true;
  private readonly host: GuestHost;
  private readonly pipe: Pipe;
  private hooksAsked: ReadonlySet<string>;
  private waiting = 0;
  /** Whether no more is read until the guest has read what it was told. */
  private isFull = false;
  /** Events that it was not told of, and where the session was after them. */
  private missed: { count: number; lastId: string | undefined; leafId: string | null } | undefined;
  private questions = 0;
  private readonly asked = new Map<number, (answer: HookAnswer | Failure) => void>();
  isGone = false;

  constructor(host: GuestHost, pipe: Pipe, session: Session, hooks: readonly string[]) {
    this.host = host;
    this.workspace = host.workspace;
    this.server = host.server;
    this.settings = host.settings;
    this.pipe = pipe;
    this.session = session;
    this.hooksAsked = new Set(hooks);
  }

  get hooks(): Pick<Guest, "has" | "ask"> {
    return this;
  }

  get sink(): this {
    return this;
  }

  // --- what comes in -------------------------------------------------------------------------------------------

  receive(message: PipeMessage): void {
    const { call, answer, hooks, cancel, ping } = message.value;
    if (ping === true) this.pipe.send('{"pong":true}');
    else if (typeof call === "number") this.receiveCall(call, message);
    else if (typeof answer === "number") this.receiveAnswer(answer, message.value);
    else if (Array.isArray(hooks)) this.hooksAsked = new Set(hooks.map(String));
    else if (typeof cancel === "number") this.host.cancel(String(cancel), this);
    this.noteFull();
  }

  /** Stops reading what a guest asks that does not read its answers. */
  private noteFull(): void {
    if (this.isFull || !this.pipe.isFull) return;
    this.isFull = true;
    this.pipe.pause();
    this.pipe.whenRead(() => {
      this.isFull = false;
      if (this.waiting < MAX_WAITING) this.pipe.resume();
    });
  }

  private receiveCall(number: number, message: PipeMessage): void {
    const { name, loose } = message.value;
    const command = typeof name === "string" ? findCommand(name) : undefined;
    if (!command || !isDoneByHolder(command, message.value.params)) {
      const error = new Failure("session_locked", `The holder of this session does not do ${name} for others.`);
      return this.sendReply(number, { error });
    }
    const bytes = message.text("params") ?? bytesOf("{}");
    const { params, fault } = checkedParams(command, message.value.params, loose === true);
    const call: Call = {
      command,
      name: command.name,
      params,
      idText: String(number),
      messageText: () => ({ bytes, range: { start: 0, end: bytes.length }, toParams: [] }),
      fault,
      target: this.session,
      peer: this,
    };
    if (++this.waiting === MAX_WAITING) this.pipe.pause();
    this.host.submit(call);
  }

  private receiveAnswer(number: number, { result, error }: PipeMessage["value"]): void {
    const settle = this.asked.get(number);
    if (error !== undefined) settle?.(new Failure("cancelled"));
    else settle?.((result ?? { cancelled: true }) as HookAnswer);
  }

  // --- what goes out -------------------------------------------------------------------------------------------

  reply({ idText }: Call, outcome: Outcome, leafId: string | null | undefined): void {
    if (this.waiting-- === MAX_WAITING && !this.isFull) this.pipe.resume();
    // A server that ends runs nothing more: whoever holds the session next is asked again.
    if ("error" in outcome && outcome.error instanceof Failure && outcome.error.name === "shutting_down") return;
    this.sendReply(Number(idText), outcome, leafId);
  }

  private sendReply(number: number, outcome: Outcome, leafId?: string | null): void {
    const head = `{"reply":${number}${leafId === undefined ? "" : `,"leafId":${JSON.stringify(leafId)}`}`;
    if (!("error" in outcome)) return this.pipe.send(`${head},"result":`, textOf(outcome.result), "}");
    this.pipe.send(`${head},"error":${JSON.stringify(describeError(outcome.error))}}`);
  }

  /**
   * Tells of an event, which a call `by` the guest may have caused. A guest that does not read hears only how many it
   * missed, and where the session is.
   */
  event({ name, leafId, payload }: PendingEvent, by?: Call): void {
    const of = by?.idText === undefined ? "" : `,"of":${by.idText}`;
    const leaf = `"leafId":${JSON.stringify(leafId)}`;
    if (this.missed || this.pipe.isFull) {
      if (!this.missed) this.pipe.whenRead(() => this.tellMissed());
      const last = lastOf(name, payload) ?? this.missed?.lastId;
      this.missed = { count: (this.missed?.count ?? 0) + 1, lastId: last, leafId };
      return;
    }
    let text: Uint8Array;
    try {
      text = textOf(payload);
    } catch {
      // Stored entries in it cannot be read now; the ids are told.
      text = bytesOf(JSON.stringify({ ...payload, entries: undefined }));
    }
    this.pipe.send(`{"event":${JSON.stringify(name)}${of},${leaf},"payload":`, text, "}");
  }

  private tellMissed(): void {
    const { count, ...place } = this.missed as NonNullable<Guest["missed"]>;
    this.missed = undefined;
    this.pipe.send(JSON.stringify({ lost: count, ...place }));
  }

  /** Lets the guest in; `lastId` is the last entry that it will not be told of. */
  welcome(holder: object, lastId: string | null): void {
    this.pipe.send(JSON.stringify({ attached: holder, leafId: this.session.leaf.durableId, lastId }));
  }

  // --- hooks ---------------------------------------------------------------------------------------------------

  has(name: HookName): boolean {
    return this.hooksAsked.has(name) && !this.isGone;
  }

  ask(name: HookName, payload: Readonly<Record<string, unknown>>): Question {
    const number = ++this.questions;
    const { asked, pipe } = this;
    const answer = new Promise<HookAnswer>((resolve, reject) => {
      asked.set(number, (settled) => {
        asked.delete(number);
        if (settled instanceof Failure) reject(settled);
        else resolve(settled);
      });
    });
    answer.catch(() => {});
    pipe.send(JSON.stringify({ ask: number, hook: name, payload }));
    if (this.isGone) asked.get(number)?.({ cancelled: true, reason: "host_gone" });
    return {
      answer,
      cancel() {
        pipe.send(JSON.stringify({ withdraw: number }));
        asked.get(number)?.(new Failure("cancelled"));
      },
    };
  }

  // --- the end -------------------------------------------------------------------------------------------------

  /** Notes that nobody hears the guest's replies any more; what it asked for is done all the same. */
  gone(): void {
    this.isGone = true;
    for (const settle of [...this.asked.values()]) settle({ cancelled: true, reason: "host_gone" });
  }

  close(): void {
    this.gone();
    this.pipe.close();
  }

  // --- what a guest does not have -----------------------------------------------------------------------------

  sizeOf(text: Uint8Array): number {
    return text.length;
  }

  start(): void {}

  introduce(): void {}

  progress(): void {}

  flush(): void {}

  shutDown(): boolean {
    return false;
  }

  async replace(): Promise<void> {
    throw new Failure("session_locked", "A guest's session is not replaced by its holder.");
  }
}

/** Returns the last entry that an event tells of. */
export function lastOf(name: string, payload: PendingEvent["payload"]): string | undefined {
  return name === "session_append" ? (payload.entryIds as string[]).at(-1) : undefined;
}

function textOf(value: unknown): Uint8Array {
  return concat([...textPieces(value)].map((piece) => (typeof piece === "string" ? bytesOf(piece) : piece)));
}
