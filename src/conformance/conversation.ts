/** A host's conversation with one server: its messages, the server's, and the time limits. */

import type { Combination } from "./combination.ts";
import { DIALECTS, type Params, type Received, type WireDialect, type WireValue } from "./dialect.ts";
import { FrameCutter, frameMessage } from "./frames.ts";
import type { Ending, Launched } from "./launch.ts";
import { Reply } from "./reply.ts";
import { NotApplicable, RuleBroken, shortenText } from "./verdict.ts";

/** Bytes of a message that is not complete, beyond which a server is ended. */
const LONGEST_MESSAGE = 16 << 20;
/** Bytes and number of unread messages beyond which a server is ended. */
const MOST_UNTAKEN_BYTES = 32 << 20;
const MOST_UNTAKEN = 100_000;
/** Messages of either side that a report shows, and the characters of each. */
const LOGGED = 16;
const LOGGED_CHARACTERS = 400;
/** Faults of each kind that are kept, and messages from the beginning. */
const KEPT = 20;
const KEPT_OPENING = 4;

/** A command and its params, which may be the text of an object. */
export type Request = readonly [command: string, params?: Params | string];

/** Violations by one server that no rule looks for while it runs; rules at the end report them. */
export interface ProtocolViolations {
  /** Output that is part of no frame. */
  readonly garbage: string[];
  /** Replies to requests that had their reply already. */
  readonly repeated: string[];
}

export class Conversation {
  readonly combination: Combination;
  readonly violations: ProtocolViolations = { garbage: [], repeated: [] };
  /** The first messages that came. */
  readonly opening: Received[] = [];
  readonly dialect: WireDialect;
  /** The reply to `initialize`, where the conversation began with it. */
  introduction: Reply | undefined;
  private readonly server: Launched;
  /** Milliseconds that a reply may take. */
  private readonly limit: number;
  private readonly lacks: (command: string) => boolean;
  private readonly cutter: FrameCutter;
  /** Names of the hooks that were agreed to at once. */
  readonly agreed: string[] = [];
  /** Names of the hooks that a rule answers itself, each once. */
  private readonly held = new Set<string>();
  private readonly untaken: Received[] = [];
  private untakenBytes = 0;
  /** Texts of the requests whose replies are unread, by their keys. */
  private readonly asked = new Map<string, string>();
  /** Keys of the requests that were answered. */
  private readonly answered = new Set<string>();
  private readonly log: string[] = [];
  private lastSent = "";
  private ending: Ending | undefined;
  private excess: string | undefined;
  private readonly sleepers = new Set<() => void>();
  private ids = 0;

  /** `lacks`: returns whether the server says that it does not have a command. */
  constructor(
    server: Launched,
    combination: Combination,
    limit: number,
    lacks: (command: string) => boolean = () => false,
  ) {
    this.lacks = lacks;
    this.server = server;
    this.combination = combination;
    this.limit = limit;
    this.dialect = DIALECTS[combination.dialect];
    this.cutter = new FrameCutter(combination.framing);
    server.output.on("data", (chunk: Buffer) => this.receive(chunk));
    void server.ended.then((ending) => {
      this.ending = ending;
      this.wake();
    });
  }

  // --- out -----------------------------------------------------------------------------------------------------

  /** Sends bytes as they are. `meaning` is what a report shows of them. */
  sendBytes(bytes: Uint8Array, meaning: string): void {
    this.note("-->", meaning);
    this.lastSent = meaning;
    this.server.input.write(bytes);
  }

  /** Sends messages in one write. */
  send(...messages: string[]): void {
    const { framing } = this.combination;
    for (const message of messages) this.note("-->", message);
    this.lastSent = messages.at(-1) ?? this.lastSent;
    this.server.input.write(Buffer.concat(messages.map((message) => frameMessage(framing, message))));
  }

  /** Sends bytes that may be many, and waits until the server has taken them. */
  async pour(pieces: Iterable<Uint8Array>, meaning: string): Promise<void> {
    this.note("-->", meaning);
    this.lastSent = meaning;
    const { input } = this.server;
    for (const piece of pieces) {
      let isTaken = false;
      input.write(piece, () => {
        isTaken = true;
        this.wake();
      });
      await this.until(() => isTaken || undefined, "that the server reads its input");
    }
  }

  /** Returns a new id, as JSON text. */
  newId(): string {
    return `"q${++this.ids}"`;
  }

  /** Makes a request with a new id, which is the key to its reply; `send` sends it. */
  request(command: string, params?: Params | string): { id: string; text: string } {
    const id = this.newId();
    const text = this.textOf(id, command, params);
    this.expectReply(id, text);
    return { id, text };
  }

  /** Notes that a reply to an id will come. */
  expectReply(idText: string, text: string): void {
    this.asked.set(keyOf(idText), text);
    this.answered.delete(keyOf(idText));
  }

  /** Sends requests in one write and returns their ids. */
  begin(...requests: readonly Request[]): string[] {
    const made = requests.map(([command, params]) => this.request(command, params));
    this.send(...made.map(({ text }) => text));
    return made.map(({ id }) => id);
  }

  /** Sends a command and waits for its reply. */
  async ask(command: string, params?: Params | string): Promise<Reply> {
    const [id] = this.begin([command, params]);
    return this.replyTo(id);
  }

  /** Sends requests without ids in one write. */
  notify(...requests: readonly Request[]): void {
    this.send(...requests.map(([command, params]) => this.textOf(undefined, command, params)));
  }

  /** Returns the text of a request. Throws NotApplicable if the server says that it does not have the command. */
  private textOf(id: string | undefined, command: string, params?: Params | string): string {
    if (this.lacks(command)) throw new NotApplicable(`the server says that it does not have the command ${command}`);
    return this.dialect.request(id, command, params);
  }

  /** Sends a command that must succeed, and returns its result. */
  async run(command: string, params?: Params | string): Promise<WireValue> {
    return (await this.ask(command, params)).result;
  }

  /** Leaves the next hook of that name to the rule, which takes it by {@link hook}. All others are agreed to. */
  hold(name: string): void {
    this.held.add(name);
  }

  /** Answers a hook. */
  answer({ idText = "null" }: Received, answer: WireValue): void {
    this.send(this.dialect.answer(idText, answer));
  }

  /** Closes the server's input and waits for the end. */
  async finish(): Promise<Ending> {
    this.server.input.end();
    return this.ended("that the server ends when its input ends");
  }

  signal(name: "SIGTERM"): void {
    this.note("-->", `(${name})`);
    this.lastSent = name;
    this.server.signal(name);
  }

  /** Ends the server at once, and resolves when it is gone. */
  async kill(): Promise<void> {
    this.note("-->", "(SIGKILL)");
    this.server.kill();
    // Nothing can be expected of a server here, not even that it dies: it may wait for a disk.
    await this.until(() => this.ending, "that the killed server is gone").catch(() => {});
  }

  /** Ends the server in order where it does so soon, or else by force. */
  async leave(): Promise<void> {
    if (this.ending === undefined && this.excess === undefined) {
      this.server.input.end();
      await this.until(() => this.ending, "the end", Math.min(this.limit, LEAVING)).catch(() => {});
    }
    if (this.ending === undefined) await this.kill();
  }

  // --- in ------------------------------------------------------------------------------------------------------

  /** Returns the reply to a request, by the JSON text of its id. */
  async replyTo(idText: string): Promise<Reply> {
    const key = keyOf(idText);
    const sent = this.asked.get(key) ?? this.lastSent;
    const taken = await this.take(
      (message) => message.kind === "reply" && message.idText !== undefined && keyOf(message.idText) === key,
      `the reply to the request with the id ${idText}`,
      sent,
    );
    this.asked.delete(key);
    return new Reply(taken, sent, this.combination.dialect);
  }

  /** Returns the reply to a request if it has come, without waiting. */
  replyIfThere(idText: string): Promise<Reply> | undefined {
    return this.answered.has(keyOf(idText)) ? this.replyTo(idText) : undefined;
  }

  /** Returns the next reply without an id, or with null. */
  async replyWithoutId(): Promise<Reply> {
    const isNameless = ({ idText }: Received): boolean => idText === undefined || idText === "null";
    const taken = await this.take(
      (message) => message.kind === "reply" && isNameless(message),
      "a reply without an id",
    );
    return new Reply(taken, this.lastSent, this.combination.dialect);
  }

  /** Returns the next reply, whatever its id is. */
  async anyReply(): Promise<Reply> {
    const taken = await this.take(({ kind }) => kind === "reply", "a reply");
    if (taken.idText !== undefined) this.asked.delete(keyOf(taken.idText));
    return new Reply(taken, this.lastSent, this.combination.dialect);
  }

  /** Returns the members of the next array of replies. */
  async batch(): Promise<Reply[]> {
    const { value } = await this.take(({ kind }) => kind === "batch", "an array of replies");
    return (value as WireValue[]).map((item) => {
      const text = JSON.stringify(item);
      return new Reply(this.dialect.read(item, text), this.lastSent, this.combination.dialect);
    });
  }

  /** Returns the next event of that name. */
  event(name: string): Promise<Received> {
    return this.take((message) => message.kind === "event" && message.name === name, `the event ${name}`);
  }

  /** Returns the next hook of that name that the server asks. */
  hook(name: string): Promise<Received> {
    return this.take((message) => message.kind === "hook" && message.name === name, `the hook ${name}`);
  }

  /** Returns the next unread message. */
  next(expected: string): Promise<Received> {
    return this.take(() => true, expected);
  }

  /** Sends a request, reads its reply, and returns the unread messages that came before it. */
  async settle(): Promise<Received[]> {
    // A report shows the message that the rule sent before this one.
    const sent = this.lastSent;
    const [id] = this.begin(["get_entries", { limit: 1 }]);
    this.lastSent = sent;
    const key = keyOf(id);
    const isEnd = ({ kind, idText }: Received): boolean => kind === "reply" && keyOf(idText ?? "null") === key;
    const end = await this.until(() => {
      const at = this.untaken.findIndex(isEnd);
      return at < 0 ? undefined : { at };
    }, "the reply to a read that follows");
    this.asked.delete(key);
    const before = this.untaken.splice(0, end.at + 1);
    for (const { text } of before) this.untakenBytes -= text.length;
    return before.slice(0, -1);
  }

  /** Waits for the end of the server. */
  ended(expected: string): Promise<Ending> {
    return this.until(() => this.ending, expected);
  }

  /** Returns whether the server can be talked to. */
  get isAlive(): boolean {
    return this.ending === undefined && this.excess === undefined;
  }

  get complaints(): string {
    return this.server.complaints();
  }

  /** Returns the latest messages of both sides. */
  get latest(): readonly string[] {
    return this.log;
  }

  /** Returns a broken rule that is not about one reply. */
  broken(expected: string, came: string): RuleBroken {
    return new RuleBroken({ sent: this.lastSent, expected, came });
  }

  /** Throws RuleBroken unless a condition holds that is not about one reply. */
  must(holds: boolean, expected: string, came: string): void {
    if (!holds) throw this.broken(expected, came);
  }

  /** Removes a message from those that came and returns it, or waits until it comes. */
  async take(isMeant: (message: Received) => boolean, expected: string, sent?: string): Promise<Received> {
    const look = (): Received | undefined => {
      const at = this.untaken.findIndex(isMeant);
      return at < 0 ? undefined : this.untaken.splice(at, 1)[0];
    };
    const found = await this.until(look, expected, this.limit, sent);
    this.untakenBytes -= found.text.length;
    return found;
  }

  private async until<T>(
    look: () => T | undefined,
    expected: string,
    limit = this.limit,
    sent = this.lastSent,
  ): Promise<T> {
    const deadline = performance.now() + limit;
    for (;;) {
      const found = look();
      if (found !== undefined) return found;
      if (this.excess !== undefined) throw new RuleBroken({ sent, expected, came: this.excess });
      if (this.ending) throw new RuleBroken({ sent, expected, came: describeEnding(this.ending, this.complaints) });
      const left = deadline - performance.now();
      if (left <= 0 || !(await this.isWoken(left))) {
        // This process may have had no time meanwhile: it reads the arrived messages before it reports a missing one.
        await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
        const late = look();
        if (late !== undefined) return late;
        throw new RuleBroken({ sent, expected: `${expected} within ${limit} ms`, came: this.silence() });
      }
    }
  }

  private silence(): string {
    const others = this.untaken.slice(-3).map(({ text }) => shortenText(text, LOGGED_CHARACTERS));
    const { pending } = this.cutter;
    if (others.length > 0) return `only other messages, the last of them: ${others.join("  ")}`;
    if (pending === 0)
      return this.server.output.readableEnded ? "nothing; the server has closed its output" : "nothing";
    const beginning = this.cutter.rest().toString("utf8", 0, LOGGED_CHARACTERS);
    return `${pending} bytes without the end of a frame: ${beginning}`;
  }

  /** Resolves to whether something has happened in so many milliseconds. */
  private isWoken(limit: number): Promise<boolean> {
    return new Promise((resolve) => {
      const wake = (): void => {
        clearTimeout(timer);
        this.sleepers.delete(wake);
        resolve(true);
      };
      const timer = setTimeout(() => {
        this.sleepers.delete(wake);
        resolve(false);
      }, limit);
      this.sleepers.add(wake);
    });
  }

  private wake(): void {
    for (const sleeper of [...this.sleepers]) sleeper();
  }

  private receive(chunk: Buffer): void {
    if (this.excess !== undefined) return;
    for (const { kind, bytes } of this.cutter.push(chunk)) {
      const text = bytes.toString("utf8");
      if (kind === "garbage") this.keepGarbage(text);
      else this.receiveFrame(text);
    }
    const { pending } = this.cutter;
    if (pending > LONGEST_MESSAGE) this.exceed(`${pending} bytes without the end of a frame`);
    else if (this.untaken.length > MOST_UNTAKEN || this.untakenBytes > MOST_UNTAKEN_BYTES)
      this.exceed(`a flood: ${this.untaken.length} messages that nobody asked for`);
    this.wake();
  }

  private receiveFrame(text: string): void {
    this.note("<--", text);
    let value: WireValue;
    try {
      value = JSON.parse(text);
    } catch {
      this.keepGarbage(text);
      return;
    }
    const message = this.dialect.read(value, text);
    if (this.opening.length < KEPT_OPENING) this.opening.push(message);
    if (message.kind === "reply") this.noteRepeatedReply(message);
    if (message.kind === "hook" && !this.held.delete(message.name ?? "")) {
      if (this.agreed.length < MOST_UNTAKEN) this.agreed.push(message.name ?? "");
      this.answer(message, {});
      return;
    }
    this.untaken.push(message);
    this.untakenBytes += text.length;
  }

  /** Notes a reply that comes a second time. */
  private noteRepeatedReply({ idText = "null", text }: Received): void {
    // Errors of messages that could not be read have all the same id.
    if (idText === "null") return;
    const key = keyOf(idText);
    if (!this.answered.has(key)) this.answered.add(key);
    else if (this.violations.repeated.length < KEPT) this.violations.repeated.push(shortenText(text));
  }

  private keepGarbage(text: string): void {
    if (this.violations.garbage.length < KEPT) this.violations.garbage.push(shortenText(text, LOGGED_CHARACTERS));
  }

  /** Ends a server whose output exceeds the limits. */
  private exceed(excess: string): void {
    this.excess = `${excess}; the server was ended`;
    this.server.output.pause();
    this.server.kill();
  }

  private note(direction: string, text: string): void {
    this.log.push(`${direction} ${shortenText(text, LOGGED_CHARACTERS)}`);
    if (this.log.length > LOGGED) this.log.shift();
  }
}

/** Milliseconds that a server has for an orderly end when its rules are done. */
const LEAVING = 2000;

/** Returns the same text for ids that are equal by type and value, however they are written. */
function keyOf(idText: string): string {
  const value: unknown = JSON.parse(idText);
  return typeof value === "number" && !Number.isSafeInteger(value) ? idText : JSON.stringify(value);
}

function describeEnding({ status, signal, refused }: Ending, complaints: string): string {
  if (refused !== undefined) return `the command cannot be started: ${refused}`;
  const how = signal === null ? `with the status ${status}` : `by ${signal}`;
  const said = complaints.trim();
  return `the server ended ${how}${said === "" ? "" : `; stderr: ${said.slice(-600)}`}`;
}
