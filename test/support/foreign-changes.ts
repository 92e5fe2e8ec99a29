/**
 * Files that other programs change while a server has them open. Every request is answered once and in order, every
 * frame is whole, every entry that leaves is what its file said at some moment or says that it is damaged, and what
 * was acknowledged after a change can be read.
 */

import { lstatSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as pass } from "node:timers/promises";
import { expect, onTestFinished } from "vitest";
import { findValueEnd, getElements } from "../../src/core/json/json.ts";
import { user } from "./drafts.ts";
import { changeFile, isFile, KINDS, type Later, putBack } from "./foreign-kinds.ts";
import type { StoreName } from "./many-servers.ts";
import { type Answer, type Dialect, type Heard, kindsIn, Witness } from "./observer.ts";
import type { Random } from "./random.ts";
import { type Framing, type Json, temporaryPlace } from "./server.ts";

interface ForeignOptions {
  readonly store: StoreName;
  readonly framing: Framing;
  readonly dialect: Dialect;
  /** Number of changes. */
  readonly changes: number;
}

/** Counts of the work; `unseen` are changes that altered neither size nor times. */
type Sums = Record<"changes" | "unseen" | "requests" | "acknowledged" | "damageReported", number>;

/** Problems that the run found. */
interface Wrong {
  internalErrors: number;
  unanswered: number;
  readonly dead: string[];
  /** Broken frames, and replies without a request. */
  readonly faults: string[];
  /** Entries in replies that no file held at any moment. */
  readonly unsound: string[];
  /** Entries that vanished without a word. */
  readonly hidden: string[];
  /** Acknowledged entries that cannot be read, or were removed by the server. */
  readonly lost: string[];
}

function nothingWrong(): Wrong {
  return { internalErrors: 0, unanswered: 0, dead: [], faults: [], unsound: [], hidden: [], lost: [] };
}

type Request = readonly [method: string, params?: object];

const READS: readonly Request[] = [
  ...["get_entries", "get_path", "get_messages", "get_fork_messages", "get_last_assistant_text"].map(plain),
  ...["get_session_stats", "get_state", "verify_session", "migration_status", "get_session_family"].map(plain),
  ...["jsonl", "markdown", "training", "claude"].map((format): Request => ["export_session", { format }]),
  ...["flat", "nested"].map((format): Request => ["get_tree", { format }]),
  ["get_entries", { limit: 3 }],
  ["get_context", { strict: true, explain: true }],
  ["prepare_compaction", { keepRecentTokens: 1 }],
  ["preview_session", { before: 1000 }],
];

function plain(method: string): Request {
  return [method];
}

/** Requests that wait for no session. */
const OTHERS: readonly Request[] = [["list_sessions"], ["search_sessions", { query: "foreign" }]];

/** Everything that the files of a session held since the server opened it. */
class Moments {
  private readonly files: () => string[];
  private readonly isContainer: boolean;
  private readonly lines = new Set<string>();
  private readonly texts = new Set<string>();
  /** The ids of the entries of each moment, from the last moment that was shown completely. */
  private readonly ids: Set<string>[] = [];

  constructor(files: () => string[], isContainer: boolean) {
    this.files = files;
    this.isContainer = isContainer;
  }

  /** Takes in what the files say now; returns the entries as text by their line. */
  look(): string[] {
    const texts = this.files().map(textOf);
    const all = texts.flatMap((text) => text.split("\n"));
    const lines = (this.isContainer ? all.map(payloadOf) : all).filter((line) => line !== "");
    for (const text of texts) this.texts.add(text);
    for (const line of lines) this.lines.add(line);
    this.ids.push(new Set(lines.flatMap((line) => idOf(line) ?? [])));
    return lines;
  }

  /** Returns whether some moment, not before the last shown one, has no other ids than these. */
  cover(ids: ReadonlySet<string>): boolean {
    const last = this.ids.findLastIndex((moment) => [...moment].every((id) => ids.has(withoutAlias(id))));
    if (last > 0) this.ids.splice(0, last);
    return last >= 0;
  }

  /** Returns whether a text was a line, or a whole value within one, at some moment. */
  held(text: string): boolean {
    return this.lines.has(text) || [...this.texts].some((known) => known.includes(text));
  }
}

function textOf(file: string): string {
  try {
    const real = realpathSync(file);
    if (!isFile(real)) return "";
    // The wire format escapes these.
    return readFileSync(real, "utf8").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
  } catch {
    return "";
  }
}

/** The bytes of the entry in a frame; everything else is in the members before it. */
function payloadOf(line: string): string {
  const at = line.indexOf(',"payload":');
  return at < 0 ? "" : line.slice(at + ',"payload":'.length, -1);
}

function idOf(line: string): string | undefined {
  try {
    const { type, id } = JSON.parse(line);
    return typeof type === "string" && type !== "session" && typeof id === "string" ? id : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the texts of the values of the first list of this name in a JSON text. */
function elementsOf(text: string, member: string): string[] {
  const bytes = Buffer.from(text);
  const mark = `"${member}":`;
  const start = bytes.indexOf(`${mark}[`) + mark.length;
  if (start < mark.length) return [];
  const found = getElements(bytes, start, findValueEnd(bytes, start, bytes.length)) ?? [];
  return found.map((one) => bytes.toString("utf8", one.start, one.end));
}

/** Returns an object's text without its last members, one after the other: what strict readers need is put in there. */
function dropRepaired(element: string): string[] {
  const texts: string[] = [];
  for (const name of Object.keys(JSON.parse(element)).reverse().slice(0, 8)) {
    const at = (texts.at(-1) ?? element).lastIndexOf(`,${JSON.stringify(name)}:`);
    if (at < 0) break;
    texts.push(`${element.slice(0, at)}}`);
  }
  return texts;
}

/** A session and all that was seen and said of it. */
export class Episode {
  private readonly run: Run;
  private readonly random: Random;
  private readonly server: Witness;
  readonly file: string;
  private readonly moments: Moments;
  /** Contents of messages that were sent to be stored. */
  private readonly sent = new Set<string>();
  /** Contents of messages that were acknowledged after the last change. */
  private acknowledged: string[] = [];
  /** Contents of messages whose append was refused: the server may remove their rest. */
  private readonly refused = new Set<string>();
  /** Ids of the session; a change of its header gives it another one. */
  readonly ids = new Set<string>();
  /** Ids that the server has shown. */
  private shown = new Set<string>();
  /** Reported damage that does not belong to entries shown before. */
  private found: Heard[] = [];
  /** Names of the failures since it was quiet last. */
  private failed: string[] = [];
  /** Names of the last changes, for failure messages. */
  private readonly history: string[] = [];

  constructor(run: Run, server: Witness, file: string) {
    this.run = run;
    this.random = run.random;
    this.server = server;
    this.file = file;
    const isContainer = file.endsWith(".v2");
    this.moments = new Moments(() => (isContainer ? segmentsOf(file) : [file]), isContainer);
  }

  private get what(): string {
    return `after ${this.history.slice(-3).join("; ")}`;
  }

  /** Describes the last change and its result. */
  private get whatCame(): string {
    return `${this.what}; failed since: ${this.failed.join(" ")}; came last: ${this.server.frames.join(", ")}`;
  }

  /** Begins with a session that is whole. */
  async begin(): Promise<void> {
    const count = 4 + this.random.int(10);
    const answers = this.ask(Array.from({ length: count }, () => this.append()));
    for (const answer of await Promise.all(answers)) this.handle(answer);
    await this.quiet();
  }

  /** One change, with requests before, at the same time and after it. */
  async change(name: string): Promise<void> {
    const { random, run } = this;
    const path = this.somePart();
    if (path === undefined) return;
    const before = readFileSync(realpathSync(path));
    const keepTimes = random.chance(0.5);
    const atOnce = random.chance(0.4);
    const first = atOnce ? this.send(1 + random.int(4)) : [];
    this.moments.look();
    let later: Later;
    try {
      later = changeFile(name, path, random, keepTimes);
    } catch (error) {
      // The server may have replaced or removed it in the meantime.
      if (!atOnce) throw error;
      this.history.push(`${name} came too late`);
    }
    this.moments.look();
    run.sums.changes++;
    if (keepTimes && KINDS[name].keepsSize) run.sums.unseen++;
    this.history.push(
      `${name} of ${path.slice(dirname(this.file).length + 1).slice(-40)}${keepTimes ? ", times kept" : ""}${atOnce ? ", at once" : ""}`,
    );
    // The change may have removed acknowledged entries.
    this.acknowledged = [];
    for (const answer of await Promise.all(first)) this.handle(answer);
    if (random.chance(run.patience)) await pass(600);
    await this.quiet();
    if (later) {
      const between = this.send(random.int(3));
      this.moments.look();
      later();
      this.moments.look();
      this.acknowledged = [];
      for (const answer of await Promise.all(between)) this.handle(answer);
      await this.quiet();
    }
    // Often the damage is taken back, so that the next one does not come on top of it.
    if (random.chance(0.6) && lstatSync(dirname(path), { throwIfNoEntry: false })?.isDirectory()) {
      putBack(path, before, random);
      this.moments.look();
      this.history.push("put back");
      this.acknowledged = [];
      await this.quiet();
    }
  }

  private somePart(): string | undefined {
    const { file, random } = this;
    if (!file.endsWith(".v2")) return isFile(file) ? file : undefined;
    const parts = readdirSync(file, { recursive: true, encoding: "utf8" }).map((name) => join(file, name));
    const all = [...parts, file.replace(/\.v2$/, ".store.json")].filter(isFile);
    const segments = all.filter((path) => path.endsWith(".seg"));
    // Half of the time, a file with entries.
    return all.length === 0 ? undefined : random.pick(segments.length > 0 && random.chance(0.5) ? segments : all);
  }

  private append(): Request {
    const { random, sent } = this;
    const entries = Array.from({ length: random.chance(0.8) ? 1 : 2 }, () => {
      const content = `mine-${++this.run.made} ${random.hex(random.chance(0.05) ? 4000 : 12)}`;
      sent.add(content);
      const assistant = { role: "assistant", content: [{ type: "text", text: content }] };
      return random.chance(0.5) ? user(content) : { type: "message", message: assistant };
    });
    return ["append", { entries }];
  }

  /** Sends requests in one write, and notes which appends are refused. */
  private ask(requests: readonly Request[]): Promise<Answer | null>[] {
    return this.server.askAll(requests).map(async (answering, n) => {
      const answer = await answering;
      const { entries = [] } = (requests[n][1] ?? {}) as Json;
      if (answer?.failure) for (const { message } of entries) this.refused.add(contentOf(message));
      return answer;
    });
  }

  /** Sends requests of any kind in one write. */
  private send(count: number): Promise<Answer | null>[] {
    const { random, server } = this;
    const answers: Promise<Answer | null>[] = [];
    const lane: Request[] = [];
    for (let n = 0; n < count; n++) {
      if (random.chance(0.03)) answers.push(...server.askAll([random.pick(OTHERS)], true));
      else lane.push(random.chance(0.4) ? this.append() : random.pick(READS));
    }
    answers.push(...this.ask(lane));
    this.run.sums.requests += count;
    return answers;
  }

  /** Asks while no change is under way: answers must be complete, and acknowledged entries must stay. */
  async quiet(): Promise<void> {
    const { random, moments, run } = this;
    const { sums, wrong } = run;
    const before = moments.look();
    for (const answer of await Promise.all(this.send(random.int(4)))) this.handle(answer);
    const appends = Array.from({ length: random.int(3) }, () => this.append());
    sums.requests += 2 + appends.length;
    const answers = await Promise.all(this.ask([...appends, ["get_entries"], ["get_state"]]));
    const now = moments.look();
    for (const [n, answer] of answers.entries()) {
      this.handle(answer);
      if (n >= appends.length || !answer?.result) continue;
      sums.acknowledged++;
      const { entries } = appends[n][1] as Json;
      this.acknowledged.push(...entries.map(({ message }: Json) => contentOf(message)));
    }
    this.handleEvents();
    const [entries, state] = answers.slice(-2);
    if (state?.result) this.ids.add(state.result.sessionId);
    const isReported = this.found.length > 0 || (state?.result?.diagnostics?.length ?? 0) > 0;
    if (entries?.result) {
      const all: Json[] = entries.result.entries;
      const ids = new Set<string>(all.map(({ id }) => withoutAlias(id)));
      const gone = [...this.shown].filter((id) => !ids.has(id));
      if (gone.length > 0 && !isReported) wrong.hidden.push(`${gone.join(" ")} ${this.whatCame}`);
      if (!moments.cover(ids) && !isReported) wrong.hidden.push(`a part of what the file says ${this.whatCame}`);
      this.shown = ids;
      const contents = new Set(all.map(({ message }) => contentOf(message)));
      const unread = this.acknowledged.filter((content) => !contents.has(content));
      if (unread.length > 0) wrong.lost.push(`not in get_entries: ${unread.join(", ")} ${this.what}`);
    }
    // Damage reported while nothing could be shown belongs to the entries that are missing next. So does a loss that
    // was found after a reply: a read shows the known entries, and only a look at the file, which comes by itself,
    // finds the loss.
    if (entries?.result)
      this.found = this.found.filter(
        (event) => event.number > entries.heard && kindsIn(event).includes("lost_entries"),
      );
    this.failed = [];
    if (isReported) sums.damageReported++;
    // The server's treatment of damage takes no whole entry of another program out of the file.
    const there = new Set(now);
    const removed = before.filter((line) => this.isTheirs(line) && !there.has(line));
    if (removed.length > 0) wrong.lost.push(`taken out of the file: ${removed.join(" ").slice(0, 300)} ${this.what}`);
    const text = now.join("\n");
    const unwritten = this.acknowledged.filter((content) => !text.includes(content));
    if (unwritten.length > 0) wrong.lost.push(`not in the file: ${unwritten.join(", ")} ${this.what}`);
  }

  /** Returns whether a line is an entry that the server may not take out. Of a batch a change may have left a part. */
  private isTheirs(line: string): boolean {
    if (idOf(line) === undefined) return false;
    if (JSON.parse(line)._batch !== undefined) return false;
    return ![...this.refused].some((content) => line.includes(content));
  }

  /** Holds a reply against what the files said. */
  private handle(answer: Answer | null): void {
    const { wrong } = this.run;
    if (answer === null) return;
    if (answer.failure) {
      const { name, text } = answer.failure;
      this.failed.push(name);
      if (name !== "internal_error") return;
      wrong.internalErrors++;
      wrong.faults.push(`${text} ${this.what}`);
      return;
    }
    const begin = answer.text.indexOf(this.run.options.dialect === "pi" ? '"data":{' : '"result":{');
    const text = answer.text.slice(begin + 8);
    for (const member of ["entries", "messages"] as const)
      if (new RegExp(`^:?\\{"${member}":\\[`).test(text)) this.checkSound(text, member);
  }

  private handleEvents(): void {
    for (const event of this.server.events.splice(0)) {
      const { name, params, text } = event;
      // The session before was damaged when it was left.
      if (this.run.left.has(params.sessionId)) continue;
      if (name === "session_damage") this.found.push(event);
      if (name === "session_append" && params.entries !== undefined) this.checkSound(text, "entries");
    }
  }

  private checkSound(text: string, member: "entries" | "messages"): void {
    for (const element of elementsOf(text, member)) {
      const plain = element.replace(/"id":"([^"]*?)(~\d+)+"/, '"id":"$1"');
      if ([plain, element, ...dropRepaired(element)].some((text) => this.moments.held(text))) continue;
      const value = JSON.parse(element);
      if (value.damaged === true) continue;
      // Between two looks of ours the server may have written what a change took away again.
      if (this.sent.has(contentOf(value.message ?? value))) continue;
      // Lists of what a fork can begin before are no entries.
      if (typeof value.entryId === "string" && typeof value.text === "string") continue;
      this.run.wrong.unsound.push(`${element.slice(0, 1500)} ${this.what}`);
    }
  }

  /** Expects that another server, which opens the session now, has the entries acknowledged after the last change. */
  async readAgain(reader: Witness): Promise<void> {
    const { wrong } = this.run;
    const opened = await reader.ask("open_session", { sessionPath: this.file });
    if (opened?.failure?.name === "internal_error") wrong.internalErrors++;
    const count = this.acknowledged.length;
    if (!opened?.result) {
      if (count > 0) wrong.lost.push(`cannot be opened: ${opened?.failure?.text}, ${count} entries ${this.what}`);
      return;
    }
    const { sessionId } = opened.result;
    const [entries] = await Promise.all(
      reader.askAll([
        ["get_entries", { sessionId }],
        ["close_session", { sessionId }],
      ]),
    );
    this.handle(entries);
    const contents = new Set((entries?.result?.entries ?? []).map(({ message }: Json) => contentOf(message)));
    const unread = this.acknowledged.filter((content) => !contents.has(content));
    if (unread.length > 0) wrong.lost.push(`not read by another server: ${unread.join(", ")} ${this.what}`);
  }
}

function segmentsOf(container: string): string[] {
  try {
    const folder = join(container, "segments");
    return readdirSync(folder)
      .filter((name) => /^\d{16}\.seg$/.test(name))
      .sort()
      .map((name) => join(folder, name));
  } catch {
    return [];
  }
}

function contentOf(message: Json): string {
  const content = message?.content;
  return Array.isArray(content) ? String(content[0]?.text) : String(content);
}

function withoutAlias(id: string): string {
  return id.replace(/(~\d+)+$/, "");
}

interface Run {
  readonly options: ForeignOptions;
  readonly random: Random;
  readonly sums: Sums;
  readonly wrong: Wrong;
  /** Number of times the server gets time to look by itself. */
  readonly patience: number;
  made: number;
  /** Ids of sessions that were left. */
  readonly left: Set<string>;
}

/** Returns a run before its first change. */
export function newRun(random: Random, options: ForeignOptions, patience = 0): Run {
  const sums: Sums = { changes: 0, unseen: 0, requests: 0, acknowledged: 0, damageReported: 0 };
  return { options, random, sums, wrong: nothingWrong(), patience, made: 0, left: new Set() };
}

/**
 * Makes so many changes under servers that have the files open, every kind in turn. Expects no problem. Returns the
 * counts.
 */
export async function changeUnderneath(random: Random, options: ForeignOptions, patience = 0): Promise<Sums> {
  const run = newRun(random, options, patience);
  const { sums, wrong } = run;
  const ended = new AbortController();
  onTestFinished(() => ended.abort());
  const place = temporaryPlace();
  const { store, framing, dialect, changes } = options;
  const start = () => new Witness({ args: ["--store", store], place, framing, dialect, signal: ended.signal });
  const reader = new Witness({ args: ["--no-session", "--events", "none"], place, signal: ended.signal });
  let server = start();
  let kinds: string[] = [];
  const close = async (witness: Witness): Promise<void> => {
    await witness.end();
    if (witness.died) wrong.dead.push(witness.reason);
    wrong.unanswered += witness.unanswered;
    wrong.faults.push(...witness.faults);
  };
  // With so many problems the rest would show nothing else.
  while (sums.changes < changes && wrong.faults.length < 100) {
    const isUsable = !server.isGone && server.faults.length === 0;
    const [made, state] = isUsable ? await Promise.all(server.askAll([["new_session"], ["get_state"]])) : [];
    if (!made?.result || typeof state?.result?.sessionFile !== "string") {
      if (isUsable) wrong.faults.push(`no new session: ${made?.failure?.text}`);
      await close(server);
      server = start();
      continue;
    }
    const episode = new Episode(run, server, state.result.sessionFile);
    await episode.begin();
    for (let n = 1 + random.int(5); n > 0 && sums.changes < changes && !server.isGone; n--) {
      if (kinds.length === 0) kinds = shuffled(Object.keys(KINDS), random);
      await episode.change(kinds.pop() as string);
    }
    if (random.chance(0.5)) await episode.readAgain(reader);
    for (const sessionId of episode.ids) run.left.add(sessionId);
  }
  await close(server);
  await close(reader);
  // A soak keeps the message alone, and what depends on time is not found again by its seed.
  expect(wrong, JSON.stringify(wrong)).toEqual(nothingWrong());
  // A busy machine acknowledges few of a handful.
  expect(sums.acknowledged).toBeGreaterThan(sums.changes < 40 ? 0 : sums.changes / 4);
  return sums;
}

function shuffled(names: readonly string[], random: Random): string[] {
  return names
    .map((name) => ({ name, at: random.next() }))
    .sort((a, b) => a.at - b.at)
    .map(({ name }) => name);
}
