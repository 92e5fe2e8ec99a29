/** Several hosts on one session, each with a server of its own that share it; some of these are killed. */

import { join } from "node:path";
import { expect } from "vitest";
import { user } from "./drafts.ts";
import type { Random } from "./random.ts";
import { type Framing, type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";
import { turns } from "./shared-session.ts";

interface SharingOptions {
  readonly store: "jsonl" | "v2";
  readonly servers: number;
  /** Bursts of commands of all hosts together. */
  readonly bursts: number;
  /** Chance that a server is killed in the midst of a burst. */
  readonly kills: number;
  /** Chance that a server is stopped in the midst of a burst, and goes on later. */
  readonly stops?: number;
  readonly durability?: "sync" | "os";
  /** Chance that a host has a leaf of its own. */
  readonly heads?: number;
  /** The containers of the hosts' servers; by default they run next to each other. */
  readonly where?: Where;
}

/** The ways to start servers, and their views of the session's folder. */
export interface Where {
  start(args: readonly string[], framing: Framing, place: Place): SpawnedServer;
  /** Returns the path of a file of the place, as the server that is started next sees it. */
  pathOf(place: Place, name: string): string;
  /** Returns the process of a server. */
  pidOf(server: SpawnedServer): number;
}

const HERE: Where = {
  start: (args, framing, place) => spawnServer([...args], framing, place),
  pathOf: ({ home }, name) => join(home, name),
  pidOf: ({ process: { pid } }) => pid as number,
};

interface Asked {
  readonly method: string;
  readonly params: Json;
}

/** A host with its server: each request gets one reply, and events come with numbers that have no gap. */
class SharingHost {
  readonly server: SpawnedServer;
  readonly name: string;
  /** Everything that it heard. */
  readonly heard: Json[] = [];
  private readonly waiting = new Map<number, (reply?: Json) => void>();
  private ids = 0;
  isDead = false;
  /** The name of its own leaf, which no other process has. */
  readonly head: string | undefined;
  /** The place of that leaf by the acknowledged requests; undefined where it cannot be known. */
  leaf: string | null | undefined;

  constructor(name: string, server: SpawnedServer, head?: string) {
    this.name = name;
    this.server = server;
    this.head = head;
    void this.read();
  }

  get events(): Json[] {
    return this.heard.filter((message) => "method" in message);
  }

  get replies(): Json[] {
    return this.heard.filter((message) => !("method" in message));
  }

  private async read(): Promise<void> {
    try {
      for (;;) {
        const message = await this.server.next();
        this.heard.push(message);
        if (!("method" in message)) this.waiting.get(message.id)?.(message);
      }
    } catch {
      for (const settle of this.waiting.values()) settle();
    }
  }

  /** Sends requests in one write. Each resolves to its reply, or to undefined when the server died before it. */
  ask(...requests: Asked[]): Promise<Json | undefined>[] {
    const numbered = requests.map((request) => ({ jsonrpc: "2.0", id: ++this.ids, ...request }));
    const wait = (id: number) =>
      new Promise<Json | undefined>((resolve) => {
        if (this.isDead) resolve(undefined);
        else this.waiting.set(id, resolve);
      });
    const answers = numbered.map(({ id }) => wait(id));
    this.server.send(...numbered);
    return answers;
  }

  /** The result of one request. */
  async result(method: string): Promise<Json> {
    return (await this.ask({ method, params: {} })[0])?.result;
  }

  kill(): void {
    this.isDead = true;
    this.server.process.kill("SIGKILL");
  }

  /** Returns the ids of the entries that it got events of, in that order. */
  listReported(): string[] {
    return this.events.filter(({ method }) => method === "session_append").flatMap(({ params }) => params.entryIds);
  }

  get isRefused(): boolean {
    return this.replies.some(({ error }) => error);
  }
}

/** Runs random bursts, and returns how much was done. Expects every promise of sharing to hold. */
export async function shareAtRandom(random: Random, options: SharingOptions) {
  const place = temporaryPlace();
  const name = options.store === "v2" ? "shared.v2" : "shared.jsonl";
  const { where = HERE } = options;
  const sums = { acknowledged: 0, kills: 0, stops: 0, holders: 0, heads: 0 };
  /** Names of the hosts that took a dead holder's place, by epoch. */
  const owners = new Map<number, string>();
  /** Ids of acknowledged entries, by their texts. */
  const acknowledged = new Map<string, string>();
  /** Parents that entries must have, by the id of the entry. */
  const parents = new Map<string, string | null>();
  /** Texts that were sent, with those of the same append. */
  const said = new Map<string, readonly string[]>();
  let [texts, names] = [0, 0];

  function start(): SharingHost {
    const framing: Framing = random.chance(0.5) ? "lines" : "headers";
    const args = ["--session", where.pathOf(place, name), "--store", options.store];
    args.push("--durability", options.durability ?? "os");
    const head = ++names > 1 && random.chance(options.heads ?? 0) ? `head-${names}` : undefined;
    const host = new SharingHost(`host ${names}`, where.start(args, framing, place), head);
    if (head !== undefined) void host.ask({ method: "initialize", params: { leaf: "own", head } });
    return host;
  }

  /** Follows the leaf of a host that has one of its own through an answered write. */
  function replay(host: SharingHost, { method, params }: Asked, reply: Json): void {
    if (host.head === undefined || method.startsWith("get_")) return;
    if (reply.error?.data?.name === "outcome_unknown") host.leaf = undefined;
    if (reply.error) return;
    const { entryIds, entryId, leafId } = reply.result;
    const id: string | undefined = entryIds?.[0] ?? entryId;
    if (id !== undefined && host.leaf !== undefined) parents.set(id, host.leaf);
    host.leaf = method === "branch" ? params.entryId : (leafId ?? id);
  }

  /** An append: of one entry or several, and rarely of one that is written in many pieces. */
  function next(): Asked {
    const own = Array.from({ length: random.chance(0.15) ? 2 + random.int(3) : 1 }, () => {
      const text = `text ${++texts}`;
      return random.chance(0.04) ? text.padEnd(400_000, ".") : text;
    });
    for (const text of own) said.set(text, own);
    return { method: "append", params: { entries: own.map((text) => user(text)) } };
  }

  function someRequest(): Asked {
    const roll = random.int(12);
    if (roll < 7 || acknowledged.size === 0) return next();
    const entryId = random.pick([...acknowledged.values()]);
    if (roll === 7) return { method: "branch", params: { entryId } };
    if (roll === 8) return { method: "set_label", params: { entryId, label: random.hex(4) } };
    if (roll === 9) return { method: "set_session_name", params: { name: random.hex(6) } };
    return { method: roll === 10 ? "get_state" : "get_messages", params: {} };
  }

  /** Has some hosts ask several things at once, and kills a server meanwhile. */
  async function burst(): Promise<void> {
    const asked = hosts.flatMap((host) => {
      const requests = Array.from({ length: random.int(5) }, someRequest);
      return host.ask(...requests).map((reply, index) => ({ host, request: requests[index], reply }));
    });
    if (random.chance(options.kills)) {
      // Somewhere in the midst of it.
      await turns(random.int(20));
      const victim = random.int(hosts.length);
      // Some end in order: all that was asked is answered.
      if (random.chance(0.3)) hosts[victim].server.end();
      else {
        hosts[victim].kill();
        check(hosts[victim]);
        sums.kills++;
      }
      hosts[victim] = start();
    }
    if (random.chance(options.stops ?? 0)) await stopOne(asked.map(({ reply }) => reply));
    for (const { host, request, reply: answer } of asked) {
      const reply = await answer;
      if (!reply) {
        expect(host.isDead, `${host.name} did not answer ${JSON.stringify(request)}`).toBe(true);
        continue;
      }
      const story = `${host.name}: ${JSON.stringify(request).slice(0, 1000)} ${JSON.stringify(reply).slice(0, 1000)}`;
      if (reply.error) expect(["outcome_unknown", "session_locked"], story).toContain(reply.error.data?.name);
      replay(host, request, reply);
      if (!reply.error && request.method === "append")
        for (const [index, { message }] of request.params.entries.entries())
          acknowledged.set(message.content, reply.result.entryIds[index]);
    }
  }

  /** Stops a server, whose lock no other may take, and lets it go on when some requests are answered, or later. */
  async function stopOne(answers: Promise<unknown>[]): Promise<void> {
    const { server, isDead } = random.pick(hosts);
    const pid = isDead ? 0 : where.pidOf(server);
    if (!(pid > 0)) return;
    process.kill(pid, "SIGSTOP");
    sums.stops++;
    if (random.chance(0.5)) await Promise.race([...answers, new Promise((resolve) => setTimeout(resolve, 300))]);
    await turns(random.int(200));
    process.kill(pid, "SIGCONT");
  }

  /** Expects that a host got no reply twice, events without a gap, and no entry twice. */
  function check(host: SharingHost): void {
    const answered = host.replies.map(({ id }) => id);
    expect(new Set(answered).size, `${host.name} got two replies to a request`).toBe(answered.length);
    for (const [index, { params, method }] of host.events.entries())
      expect(params.seq, `${host.name} ${method} ${JSON.stringify(params)}`).toBe(index + 1);
    // An event of a host's own request comes directly after the reply, except where the holder died before that.
    for (const [at, { result }] of host.heard.entries()) {
      const id = result?.entryIds?.[0];
      if (id === undefined) continue;
      const isOwn = ({ method, params }: Json): boolean => method === "session_append" && params.entryIds.includes(id);
      const event = host.heard.findIndex(isOwn);
      const isLate = host.heard.slice(event, at).some(({ method }) => method === "session_owner_changed");
      if (event >= 0 && !(event < at && isLate)) expect(event, `${host.name} heard late of ${id}`).toBe(at + 1);
    }
    checkHolders(host);
    const heard = host.listReported();
    const twice = heard.filter((id, n) => heard.indexOf(id) !== n);
    expect(twice, `${host.name} was told twice`).toEqual([]);
  }

  /** Expects one holder after the other, and no writer next to it. */
  function checkHolders({ name: host, events, heard, isRefused }: SharingHost): void {
    let last = 0;
    for (const { method, params } of events) {
      if (method !== "session_owner_changed") continue;
      if (params.isSelf) expect(owners.get(params.epoch) ?? host, `two hold epoch ${params.epoch}`).toBe(host);
      if (params.isSelf) owners.set(params.epoch, host);
      expect(params.epoch, `${host} went back from ${last}`).toBeGreaterThan(last);
      last = params.epoch;
    }
    // A host that has written, without a refusal, is in or holds: entries of others then come from peers.
    if (isRefused) return;
    const written = heard.findIndex(({ result }) => result?.entryIds !== undefined);
    const foreign = heard.slice(written + 1).filter(({ params }) => params?.origin === "foreign");
    if (written >= 0) expect(foreign, `${host} was told of a writer that nobody let in`).toEqual([]);
  }

  async function end(): Promise<void> {
    for (const [n, reply] of (await Promise.all(hosts.map(insist))).entries()) {
      expect(reply, JSON.stringify(reply)).toHaveProperty("result");
      replay(hosts[n], { method: "append", params: {} }, reply);
    }
    const args = ["--session", HERE.pathOf(place, name), "--read-only"];
    const reader = new SharingHost("the reader", HERE.start(args, "lines", place));
    const entries: Json[] = (await reader.result("get_entries")).entries;
    const listed: Json[] = (await reader.result("list_heads")).heads;
    const ids = entries.map(({ id }) => id);
    for (const { id, parentId } of entries)
      if (parents.has(id)) expect(parentId, `the parent of ${id}`).toBe(parents.get(id));
    const found: string[] = entries.filter(({ type }) => type === "message").map(({ message }) => message.content);
    for (const [text, id] of acknowledged) {
      expect(found, text).toContain(text);
      expect(entries[ids.indexOf(id)].message.content).toBe(text);
    }
    const there = new Set(found);
    expect(found.length, "what was acknowledged is there once, and all else once or not at all").toBe(there.size);
    for (const text of found)
      expect(
        said.get(text)?.filter((other) => !there.has(other)),
        `missing beside ${text.slice(0, 20)}`,
      ).toEqual([]);
    // Each host got events of everything since it came, in the order of the file.
    for (const host of hosts) {
      await until(host, ids.at(-1));
      check(host);
      const heard = host.listReported();
      expect(heard, host.name).toEqual(ids.slice(ids.indexOf(heard[0])));
    }
    const states = await Promise.all(hosts.map((host) => host.result("get_state")));
    const shared = states.map(({ leafId, sharedLeafId = leafId }) => sharedLeafId);
    expect(new Set(shared).size, shared.join(" ")).toBe(1);
    for (const [n, host] of hosts.entries()) {
      const { head, leafId } = states[n];
      sums.holders += host.events.filter(({ method }) => method === "session_owner_changed").length;
      expect(host.events.filter(({ params }) => "leafId" in params).at(-1).params.leafId, host.name).toBe(leafId);
      expect(head).toBe(host.head);
      if (head === undefined) continue;
      expect(leafId, `${host.name} is elsewhere than what was acknowledged`).toBe(host.leaf);
      expect(listed.find((each) => each.name === head)?.leafId).toBe(leafId);
    }
    for (const host of hosts) expect((await host.server.finish()).status).toBe(0);
  }

  /** Has a host write, also where it has to wait for a machine that is busy. */
  async function insist(host: SharingHost): Promise<Json> {
    const late = performance.now() + 30_000;
    for (;;) {
      const reply = await host.ask(next())[0];
      if (reply?.error?.data?.name !== "session_locked" || performance.now() > late) return reply;
    }
  }

  /** Waits until a host got the event of an entry. */
  async function until(host: SharingHost, id: string): Promise<void> {
    const late = performance.now() + 10_000;
    while (!host.listReported().includes(id) && performance.now() < late) await host.result("get_state");
  }

  const hosts = [start()];
  await hosts[0].ask(next())[0];
  while (hosts.length < options.servers) hosts.push(start());
  for (let n = 0; n < options.bursts; n++) await burst();
  await end();
  return { ...sums, acknowledged: acknowledged.size, heads: parents.size };
}
