/**
 * Several servers that meet on one session: each opens it, appends, moves, labels or forks, ends or is killed, and
 * starts again, all at the same time. Whatever was acknowledged to any of them is there in the end, once.
 */

import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pass } from "node:timers/promises";
import { expect, onTestFinished } from "vitest";
import { apart } from "./namespaces.ts";
import { type Answer, Witness } from "./observer.ts";
import { isMarker, partsOf } from "./proof.ts";
import { Random } from "./random.ts";
import { type Json, type Place, temporaryPlace } from "./server.ts";
// @ts-expect-error plain JavaScript, to check containers without the program
import { faultsOf } from "./v2-checker.js";

export type StoreName = "jsonl" | "v2";

export interface Meeting {
  readonly store: StoreName;
  readonly durability: "sync" | "os";
  readonly states: "same" | "different";
  /** True if some servers are killed by SIGKILL. */
  readonly kills: boolean;
  /** True if a server that holds the session lets the others join; else their writes are refused until it ends. */
  readonly attach: "auto" | "off";
  /** True if some servers have a network, or a network and process ids, of their own. */
  readonly namespaces: boolean;
  /** Servers at a time. */
  readonly servers: number;
  /** Entries that are to be acknowledged. */
  readonly wanted: number;
  /** No moves, labels or forks: all entries are one chain, and each server reports all of it. */
  readonly isChain?: boolean;
  /** A program that also writes to the file until the servers have ended. */
  readonly other?: (file: string, ids: readonly string[]) => Other;
}

interface Other {
  readonly begun: Promise<void>;
  end(): Promise<void>;
  /** Expects its lines among the entries. */
  check(entries: readonly Json[]): void;
}

/** Counts: `locked` are refusals because another server was writing, each of which was repeated. */
type Sums = Record<"lives" | "kills" | "appends" | "acknowledged" | "locked" | "forks", number>;

/** Problems that the run found. */
function nothingWrong() {
  return {
    /** Acknowledged entries that a fresh server or a plain reading does not find. */
    lost: [] as string[],
    /** Entries, or ids, that are there more than once. */
    doubled: [] as string[],
    /** Entries that a server did not report, and leaves that it left without an event. */
    unreported: [] as string[],
    internalErrors: 0,
    /** Servers that ended although they were not killed, or not in order. */
    dead: [] as string[],
    unanswered: 0,
    /** Frames that are not whole, and whatever else a reply should not be. */
    faults: [] as string[],
    /** Refusals other than the lock's, by name. */
    refused: {} as Record<string, number>,
  };
}

/** The versions of Node that servers are run by: paths in `PI_TEST_NODES`, separated by colons. */
export const NODES: readonly string[] = (process.env.PI_TEST_NODES ?? process.execPath).split(":").filter(Boolean);

/** Commands that start a server in namespaces of its own, as far as this system allows it; empty otherwise. */
export const OWN_NAMESPACES: readonly (readonly string[])[] = (["network", "network and pids"] as const).flatMap(
  (kind) => [apart(kind) ?? []].filter((way) => way.length > 0),
);

interface Write {
  readonly method: string;
  readonly params: Json;
  /** Tokens of the entries that this makes, in any session. */
  readonly tokens: readonly string[];
}

/** State shared by all participants. */
class Course {
  readonly sums: Sums = { lives: 0, kills: 0, appends: 0, acknowledged: 0, locked: 0, forks: 0 };
  readonly wrong = nothingWrong();
  /** Tokens of the acknowledged entries. */
  readonly acknowledged: string[] = [];
  /** Ids of acknowledged messages, to move to, to label and to fork at. */
  readonly ids: string[] = ["first"];
  /** Forks, with the tokens that must be in each. */
  readonly forks: { readonly file: string; readonly tokens: readonly string[] }[] = [];
  readonly options: Meeting;
  private readonly ended = new AbortController();
  resolveMet!: () => void;
  /** Settles when one server was refused because another is the writer. */
  readonly haveMet = new Promise<void>((resolve) => {
    this.resolveMet = resolve;
  });
  file = "";

  constructor(options: Meeting) {
    this.options = options;
    // Each server that is alive listens to this.
    onTestFinished(() => this.ended.abort());
  }

  /** True if enough was acknowledged, or so little is that the rest would show nothing else. */
  get isOver(): boolean {
    const { sums, options, wrong } = this;
    const refused = Object.values(wrong.refused).reduce((sum, times) => sum + times, 0);
    return sums.acknowledged >= options.wanted || refused > 50 || sums.lives > 50 + options.wanted;
  }

  start(place: Place, args: readonly string[], more: { node?: string; within?: readonly string[] } = {}): Witness {
    this.sums.lives++;
    const { durability, attach } = this.options;
    const all = [...args, "--durability", durability, "--attach", attach];
    return new Witness({ args: all, place, signal: this.ended.signal, ...more });
  }

  /** Takes over what a server's life has shown. */
  async close(server: Witness, what: string): Promise<void> {
    const status = await server.exit;
    if (server.died) this.wrong.dead.push(`${what}: ${status} ${server.reason}`);
    this.wrong.unanswered += server.unanswered;
    this.wrong.faults.push(...server.faults.map((fault) => `${what}: ${fault}`));
  }

  /** Counts a refusal, and returns whether the same request may be sent again. */
  refuse({ failure }: Answer, what: string): boolean {
    const name = failure?.name as string;
    if (name === "session_locked") {
      this.sums.locked++;
      this.resolveMet();
      return true;
    }
    const { wrong } = this;
    if (name === "internal_error") wrong.internalErrors++;
    wrong.refused[name] = (wrong.refused[name] ?? 0) + 1;
    if (wrong.refused[name] <= 3) wrong.faults.push(`${what} was refused: ${name}: ${failure?.text}`);
    return false;
  }
}

/** A program that starts servers on the session, one after the other; each writes and ends or is killed. */
async function participate(course: Course, number: number, random: Random, place: Place): Promise<void> {
  /** Writes with a key that were not answered, to be sent again. */
  let unsent: Write[] = [];
  let made = 0;
  let lives = 0;
  const token = (): string => `tok-${random.seed}-${number}-${++made}`;

  async function live(isLast: boolean): Promise<void> {
    const { kills, namespaces, store, isChain = false } = course.options;
    const what = `server ${number}.${++lives}`;
    const within = namespaces && random.chance(0.7) ? random.pick(OWN_NAMESPACES) : undefined;
    const events = !isChain && random.chance(0.5) ? ["--events", "none"] : [];
    const args = ["--session", course.file, "--store", store, ...events];
    const server = course.start(place, args, { node: random.pick(NODES), within });
    const checkEvents = isChain ? await listen(server, what) : async () => {};
    const writes = [...unsent.splice(0), ...(isLast ? [] : someWrites(isChain))];
    const ending = kills && !isLast && (lives + number) % 3 === 1 ? "kill" : random.chance(0.3) ? "end at once" : "end";
    if (ending === "kill") {
      killAt(server, random.int(writes.length + 1), send(server, writes));
      course.sums.kills++;
    } else if (ending === "end at once") {
      const sent = send(server, writes);
      void server.end();
      await Promise.all(sent);
    } else {
      await insist(server, writes, what);
      await checkEvents();
      // Servers with one chain live longer, so that they are in each other's way.
      for (let rounds = isChain && !isLast ? random.int(4) : 0; rounds > 0 && !server.isGone; rounds--) {
        await insist(server, someWrites(isChain), what);
        await checkEvents();
      }
      if (!isLast && !isChain && random.chance(0.1)) await fork(server, what);
      void server.end();
    }
    await course.close(server, what);
  }

  /** Returns a function that checks that a server reports every entry and every leaf from now on. */
  async function listen(server: Witness, what: string): Promise<() => Promise<void>> {
    const first = await server.ask("get_entries");
    return async () => {
      const [entries, path] = await Promise.all(server.askAll([["get_entries"], ["get_path"]]));
      if (!first?.result || !entries?.result || !path?.result) return;
      const appends = (heard: number): Json[] =>
        server.events.flatMap(({ name, params, number: n }) => (name === "session_append" && n <= heard ? params : []));
      const idsIn = (list: Json[]): string[] => list.map(({ id }) => id);
      const there = idsIn(entries.result.entries);
      const earlier = idsIn(first.result.entries);
      const idsOf = (replies: Json[]): string[] => [...earlier, ...replies.flatMap(({ entryIds }) => entryIds)];
      // The server reports the entries of other servers that a read finds after its reply.
      const [before, after] = [appends(entries.heard), appends(path.heard)];
      const known = new Set(idsOf(after));
      const unreported = [
        ...there.filter((id) => !known.has(id)).map((id) => `${id} is there`),
        ...idsOf(before).flatMap((id) => (there.includes(id) ? [] : `${id} is not there`)),
        ...after.filter((one) => one.origin === "foreign" && `${idsIn(one.entries)}` !== `${one.entryIds}`),
      ];
      const leaves = [first.result, ...after].map(({ leafId }) => leafId);
      const onPath = new Set(idsIn(path.result.entries));
      if (!leaves.includes(entries.result.leafId)) unreported.push(`${entries.result.leafId} is the leaf`);
      unreported.push(...leaves.filter((id) => !onPath.has(id)).map((id) => `${id} was the leaf`));
      course.wrong.unreported.push(...unreported.map((sentence) => `${what}: ${JSON.stringify(sentence)}`));
    };
  }

  /** One to eight entries, some of them in batches or with a key, and at times a move or a label between them. */
  function someWrites(isChain: boolean): Write[] {
    const writes: Write[] = [];
    const entryId = (): string => random.pick(course.ids);
    if (!isChain && random.chance(0.15)) writes.push({ method: "branch", params: { entryId: entryId() }, tokens: [] });
    for (let left = 1 + random.int(8); left > 0; ) {
      const count = random.chance(0.7) ? 1 : Math.min(left, 2 + random.int(3));
      left -= count;
      const tokens = Array.from({ length: count }, token);
      const entries = tokens.map((mark) => {
        // Some have ids of ours, which show a duplicate at once; others get theirs from the server.
        const id = random.chance(0.5) ? { id: mark } : {};
        const text = random.chance(0.05) ? random.hex(20_000) : random.hex(20);
        return { type: "message", ...id, message: { role: "user", content: `${mark} ${text}` } };
      });
      const key = random.chance(0.4) ? { idempotencyKey: tokens[0] } : {};
      writes.push({ method: "append", params: { entries, ...key }, tokens });
    }
    if (!isChain && random.chance(0.1)) {
      const label = token();
      writes.push({ method: "set_label", params: { entryId: entryId(), label }, tokens: [label] });
    }
    return writes;
  }

  /** Sends writes without waiting for answers, resolves each to whether it is to be sent again, and collects ids. */
  function send(server: Witness, writes: readonly Write[], ids: string[] = []): Promise<boolean>[] {
    const answers = server.askAll(writes.map(({ method, params }) => [method, params]));
    course.sums.appends += writes.filter(({ method }) => method === "append").length;
    return writes.map(async (write, index) => {
      const answer = await answers[index];
      if (answer?.failure?.data?.holder?.pid === server.process.pid) course.wrong.faults.push("is refused by itself");
      const again = answer === null || (answer.failure !== undefined && course.refuse(answer, write.method));
      if (answer?.result) acknowledge(write, answer.result, ids);
      // Another server does not repeat a write without a key: the entry may be there.
      if (again && write.params.idempotencyKey !== undefined) unsent.push(write);
      return again;
    });
  }

  function acknowledge({ method, tokens }: Write, result: Json, ids: string[]): void {
    course.acknowledged.push(...tokens);
    course.sums.acknowledged += tokens.length;
    if (method !== "append") return;
    if (result.entryIds.length !== tokens.length) course.wrong.faults.push(`acknowledged as ${JSON.stringify(result)}`);
    course.ids.push(...result.entryIds);
    ids.push(...result.entryIds);
  }

  /** Sends writes, all at once or one after the other, and what the lock of another refuses again. */
  async function insist(server: Witness, writes: readonly Write[], what: string): Promise<void> {
    const ids: string[] = [];
    const step = random.chance(0.4) ? writes.length : 1 + random.int(2);
    for (let from = 0; from < writes.length; from += step) {
      let waiting = writes.slice(from, from + step);
      for (let tries = 0; waiting.length > 0 && tries < 200; tries++) {
        const sent = await Promise.all(send(server, waiting, ids));
        waiting = waiting.filter((_, index) => sent[index]);
        if (server.isGone) return;
        if (waiting.length === 0) break;
        // They are sent again here, and not by a later server.
        unsent = unsent.filter((write) => !waiting.includes(write));
        // No event says that the lock is free.
        await pass(random.int(20));
      }
    }
    // Acknowledged entries can be read at once.
    for (const id of ids.slice(-3)) {
      const answer = await server.ask("get_entry", { entryId: id });
      if (answer?.failure) course.wrong.lost.push(`${id} by its own server ${what}: ${answer.failure.name}`);
    }
  }

  function killAt(server: Witness, answers: number, sent: readonly Promise<boolean>[]): void {
    let left = answers;
    const kill = (): void => {
      if (left-- === 0) void server.kill();
    };
    kill();
    for (const answered of sent) void answered.then(kill);
  }

  /** Copies a path into a new session and goes on there: the acknowledged entries of that path are in the copy. */
  async function fork(server: Witness, what: string): Promise<void> {
    const mark = token();
    const entryId = random.pick(course.ids);
    const entries = [{ type: "message", message: { role: "user", content: `${mark} in the fork` } }];
    const at = { entryId, position: "at" };
    const requests = [["get_path", { entryId }] as const, ["fork", at] as const, ["append", { entries }] as const];
    const [path, made, append] = await Promise.all(server.askAll(requests));
    for (const answer of [path, made, append])
      if (answer?.failure && answer.failure.name !== "entry_not_found") course.refuse(answer, `${what}: fork`);
    // A server that has not yet seen an entry of another one may answer that it does not know it.
    if (!path?.result || !made?.result || !append?.result) return;
    course.sums.forks++;
    const tokens = path.result.entries.map(tokenOf).filter((found: string | undefined) => found !== undefined);
    course.forks.push({ file: made.result.sessionFile, tokens: [...tokens, mark] });
  }

  while (!course.isOver) await live(false);
  // An entry with a key and without an answer may be there or not; after this it is there, once.
  for (let rounds = 0; unsent.length > 0 && rounds < 20; rounds++) await live(true);
  if (unsent.length > 0) course.wrong.faults.push(`${unsent.length} writes were never accepted`);
}

/** Has servers meet until so many entries are acknowledged. Expects nothing wrong, and returns how much was done. */
export async function meet(random: Random, options: Meeting): Promise<Sums> {
  const course = new Course(options);
  const place = temporaryPlace();
  const first = course.start(place, ["--store", options.store]);
  const state = await first.ask("get_state");
  course.file = state?.result.sessionFile;
  await first.ask("append", { entries: [{ type: "custom", customType: "first", id: "first" }] });
  const other = options.other?.(course.file, course.ids);
  await other?.begun;
  const all = Promise.all(
    Array.from({ length: options.servers }, (_, n) => {
      const own = options.states === "same" ? place : withState(place, join(place.home, `state-${n}`));
      return participate(course, n, new Random(random.seed * 1000 + n), own);
    }),
  );
  // However fast the others come and go, one of them meets the first, which is the writer until it ends.
  await Promise.race([course.haveMet, all]);
  void first.end();
  await course.close(first, "the first server");
  await all;
  await other?.end();
  const { entries, leafId } = await settle(course, place);
  other?.check(entries);
  if (options.isChain && !other) {
    const ids = entries.map(({ id }) => id);
    // The writer saw the other's entry.
    expect(entries.map(({ parentId }) => parentId)).toEqual([null, ...ids.slice(0, -1)]);
    expect(leafId).toBe(ids.at(-1));
  }
  expect(course.wrong).toEqual(nothingWrong());
  expect(course.sums.acknowledged).toBeGreaterThanOrEqual(options.wanted);
  return course.sums;
}

function withState(place: Place, state: string): Place {
  mkdirSync(state, { recursive: true });
  return { ...place, state, variables: { ...place.variables, PI_SESSION_SERVER_STATE_DIR: state } };
}

/** Reads the session by a fresh server and without one, and counts. Returns what the server found. */
async function settle(course: Course, place: Place): Promise<{ entries: Json[]; leafId: string }> {
  const { wrong, file, options, acknowledged } = course;
  const looker = course.start(place, ["--session", file, "--events", "none"]);
  const [first, verdict] = await Promise.all(looker.askAll([["get_entries"], ["verify_session"]]));
  // A torn line of another program before one of ours is found when it is read.
  const entries = options.other ? await looker.ask("get_entries") : first;
  for (const answer of [first, verdict, entries]) if (answer?.failure) course.refuse(answer, "the last look");
  const found = { entries: [], ...entries?.result };
  count(wrong, "a fresh server", acknowledged, found.entries);
  // The next write repairs the rest of a killed server.
  const last = await looker.ask("append", { entries: [{ type: "custom", customType: "last" }] });
  if (last?.failure) course.refuse(last, "the last append");
  void looker.end();
  await course.close(looker, "the last server");
  for (const session of [{ file, tokens: acknowledged }, ...course.forks]) {
    // A plain reader does not see it there either.
    const tokens = options.other ? [] : session.tokens;
    count(wrong, `a plain reading of ${session.file}`, tokens, entriesOf(session.file));
    if (options.store === "v2")
      wrong.faults.push(...faultsOf(session.file).map((fault: string) => `the container: ${fault}`));
  }
  return { ...found, entries: found.entries.filter((entry: Json) => !isMarker(entry)) };
}

/** Returns the entries of a session as any program would read them. */
function entriesOf(file: string): Json[] {
  const parts = file.endsWith(".v2") ? partsOf(file) : [file];
  const lines = parts.flatMap((part) => readFileSync(part, "utf8").split("\n"));
  const values = lines.flatMap((line): Json[] => {
    try {
      return [JSON.parse(line)];
    } catch {
      // The rest of a killed server; none of it was acknowledged.
      return [];
    }
  });
  return values.filter(({ type }) => type !== "session").map((value) => value.payload ?? value);
}

/** Returns what marks a message, wherever it was copied to. */
function tokenOf({ message }: Json): string | undefined {
  return /^tok-[\d-]+/.exec(message?.content ?? "")?.[0];
}

function count(
  wrong: ReturnType<typeof nothingWrong>,
  reader: string,
  expected: readonly string[],
  entries: readonly Json[],
): void {
  const tokens = new Map<string, number>();
  const ids = new Map<string, number>();
  const add = (to: Map<string, number>, key: string) => to.set(key, (to.get(key) ?? 0) + 1);
  for (const entry of entries) {
    add(ids, entry.id);
    const token = entry.type === "label" ? entry.label : tokenOf(entry);
    if (typeof token === "string") add(tokens, token);
  }
  wrong.lost.push(...expected.filter((token) => !tokens.has(token)).map((token) => `${token} by ${reader}`));
  for (const [what, found] of Object.entries({ entry: tokens, id: ids }))
    for (const [key, times] of found) if (times > 1) wrong.doubled.push(`${what} ${key}, ${times} times by ${reader}`);
}
