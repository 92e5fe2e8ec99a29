/** Several hosts on one session, each with a server of its own that share it, some of which are killed. */

import { join } from "node:path";
import { expect } from "vitest";
import type { Random } from "./random.ts";
import { type Framing, type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

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
  /** Where the hosts' servers are; by default beside each other. */
  readonly where?: Where;
}

/** How servers are started, and how they see the session's folder. */
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

/** A host with its server: each request gets one reply, and events come with numbers that have no gap. */
class SharingHost {
  readonly server: SpawnedServer;
  readonly name: string;
  readonly events: Json[] = [];
  /** Everything that it heard. */
  readonly heard: Json[] = [];
  readonly replies = new Map<number, Json>();
  private readonly waiting = new Map<number, (message: Json | undefined) => void>();
  private ids = 0;
  isDead = false;
  /** The name of its own leaf, which nobody else has. */
  readonly head: string | undefined;
  /** Where that leaf is by what was acknowledged; undefined where that cannot be known. */
  leaf: string | null | undefined;

  constructor(name: string, server: SpawnedServer, head?: string) {
    this.name = name;
    this.server = server;
    this.head = head;
    void this.read();
  }

  private async read(): Promise<void> {
    try {
      for (;;) {
        const message = await this.server.next();
        this.heard.push(message);
        if ("method" in message) this.events.push(message);
        else {
          expect(this.replies.has(message.id), `${this.name} got two replies to ${message.id}`).toBe(false);
          this.replies.set(message.id, message);
          this.waiting.get(message.id)?.(message);
        }
      }
    } catch {
      for (const settle of this.waiting.values()) settle(undefined);
    }
  }

  /** Sends requests in one write. Each resolves to its reply, or to undefined when the server died before it. */
  ask(...requests: { method: string; params: Json }[]): Promise<Json | undefined>[] {
    const numbered = requests.map((request) => ({ jsonrpc: "2.0", id: ++this.ids, ...request }));
    const answers = numbered.map(
      ({ id }) =>
        new Promise<Json | undefined>((resolve) => {
          this.waiting.set(id, resolve);
          if (this.isDead) resolve(undefined);
        }),
    );
    this.server.send(...numbered);
    return answers;
  }

  kill(): void {
    this.isDead = true;
    this.server.process.kill("SIGKILL");
  }

  /** Ends in order, in the midst of what was asked: all of that is answered. */
  leave(): void {
    this.server.end();
  }

  /** Ids of the entries that it was told of, in that order. */
  told(): string[] {
    return this.events.filter(({ method }) => method === "session_append").flatMap(({ params }) => params.entryIds);
  }
}

const userSays = (content: string): Json => ({ type: "message", message: { role: "user", content } });

/** Runs random bursts, and returns how much was done. Expects every promise of sharing to hold. */
export async function shareAtRandom(random: Random, options: SharingOptions) {
  const place = temporaryPlace();
  const course = new Course(random, options, place, options.store === "v2" ? "shared.v2" : "shared.jsonl");
  await course.begin();
  for (let burst = 0; burst < options.bursts; burst++) await course.burst();
  await course.end();
  const { acknowledged, kills, stops, holders, heads } = course;
  return { acknowledged: acknowledged.size, kills, stops, holders, heads };
}

class Course {
  private readonly random: Random;
  private readonly options: SharingOptions;
  private readonly place: Place;
  private readonly name: string;
  private readonly where: Where;
  private hosts: SharingHost[] = [];
  private texts = 0;
  private names = 0;
  /** Names of the hosts that took a dead holder's place, by epoch. */
  private readonly owners = new Map<number, string>();
  readonly acknowledged = new Map<string, string>();
  /** Parents that entries must have, by the id of the entry. */
  private readonly parents = new Map<string, string | null>();
  /** Texts that were sent, with those of the same append. */
  private readonly said = new Map<string, readonly string[]>();
  kills = 0;
  stops = 0;
  holders = 0;
  /** Entries whose parents were held against what was acknowledged. */
  get heads(): number {
    return this.parents.size;
  }

  constructor(random: Random, options: SharingOptions, place: Place, name: string) {
    this.random = random;
    this.options = options;
    this.place = place;
    this.name = name;
    this.where = options.where ?? HERE;
  }

  async begin(): Promise<void> {
    const first = this.start();
    await first.ask(this.next())[0];
    this.hosts = [first];
    while (this.hosts.length < this.options.servers) this.hosts.push(this.start());
  }

  private start(): SharingHost {
    const { random, options, place, name, where } = this;
    const framing: Framing = random.chance(0.5) ? "lines" : "headers";
    const file = where.pathOf(place, name);
    const args = ["--session", file, "--store", options.store, "--durability", options.durability ?? "os"];
    const title = `host ${++this.names}`;
    const head = this.names > 1 && random.chance(options.heads ?? 0) ? `head-${this.names}` : undefined;
    const host = new SharingHost(title, where.start(args, framing, place), head);
    if (head !== undefined) void host.ask({ method: "initialize", params: { leaf: "own", head } });
    return host;
  }

  /** Follows the leaf of a host that has one of its own through an answered write. */
  private replay(host: SharingHost, { method, params }: { method: string; params: Json }, reply: Json): void {
    if (host.head === undefined || method.startsWith("get_")) return;
    if (reply.error?.data?.name === "outcome_unknown") host.leaf = undefined;
    if (reply.error) return;
    const { entryIds, entryId, leafId } = reply.result;
    const id: string | undefined = entryIds?.[0] ?? entryId;
    if (id !== undefined && host.leaf !== undefined) this.parents.set(id, host.leaf);
    host.leaf = method === "branch" ? params.entryId : (leafId ?? id);
  }

  /** An append: of one entry or several, and rarely of one that is written in many pieces. */
  private next(): { method: string; params: Json } {
    const { random } = this;
    const texts = Array.from({ length: random.chance(0.15) ? 2 + random.int(3) : 1 }, () => {
      const text = `text ${++this.texts}`;
      return random.chance(0.04) ? text.padEnd(400_000, ".") : text;
    });
    for (const text of texts) this.said.set(text, texts);
    return { method: "append", params: { entries: texts.map(userSays) } };
  }

  private someRequest(): { method: string; params: Json } {
    const { random } = this;
    const roll = random.int(12);
    if (roll < 7 || this.acknowledged.size === 0) return this.next();
    const entryId = random.pick([...this.acknowledged.values()]);
    if (roll === 7) return { method: "branch", params: { entryId } };
    if (roll === 8) return { method: "set_label", params: { entryId, label: random.hex(4) } };
    if (roll === 9) return { method: "set_session_name", params: { name: random.hex(6) } };
    return { method: roll === 10 ? "get_state" : "get_messages", params: {} };
  }

  /** Has some hosts ask several things at once, and kills a server meanwhile. */
  async burst(): Promise<void> {
    const { random, hosts } = this;
    const asked = hosts.flatMap((host) => {
      const requests = Array.from({ length: random.int(5) }, () => this.someRequest());
      return host.ask(...requests).map((reply, index) => ({ host, request: requests[index], reply }));
    });
    if (random.chance(this.options.kills)) {
      // Somewhere in the midst of it.
      for (let turns = random.int(20); turns > 0; turns--) await new Promise((resolve) => setImmediate(resolve));
      const victim = random.int(hosts.length);
      if (random.chance(0.3)) hosts[victim].leave();
      else {
        hosts[victim].kill();
        this.check(hosts[victim]);
        this.kills++;
      }
      hosts[victim] = this.start();
    }
    if (random.chance(this.options.stops ?? 0)) await this.stopOne(asked.map(({ reply }) => reply));
    for (const { host, request, reply: answer } of asked) {
      const reply = await answer;
      if (!reply) {
        expect(host.isDead, `${host.name} did not answer ${JSON.stringify(request)}`).toBe(true);
        continue;
      }
      const story = `${host.name}: ${JSON.stringify(request).slice(0, 1000)} ${JSON.stringify(reply).slice(0, 1000)}`;
      if (reply.error) expect(["outcome_unknown", "session_locked"], story).toContain(reply.error.data?.name);
      this.replay(host, request, reply);
      if (!reply.error && request.method === "append")
        for (const [index, { message }] of request.params.entries.entries())
          this.acknowledged.set(message.content, reply.result.entryIds[index]);
    }
  }

  /** Stops a server, which nobody may rob, and lets it go on when some of what was asked is answered, or later. */
  private async stopOne(answers: Promise<unknown>[]): Promise<void> {
    const { random, hosts, where } = this;
    const { server, isDead } = random.pick(hosts);
    if (isDead) return;
    const pid = where.pidOf(server);
    if (!(pid > 0)) return;
    process.kill(pid, "SIGSTOP");
    this.stops++;
    if (random.chance(0.5)) await Promise.race([...answers, new Promise((resolve) => setTimeout(resolve, 300))]);
    for (let turns = random.int(200); turns > 0; turns--) await new Promise((resolve) => setImmediate(resolve));
    process.kill(pid, "SIGCONT");
  }

  /** Expects that the events of a host have no gap, and that it was told of no entry twice. */
  private check(host: SharingHost): void {
    host.events.forEach(({ params, method }, index) => {
      expect(params.seq, `${host.name} ${method} ${JSON.stringify(params)}`).toBe(index + 1);
    });
    // What a host did itself comes directly after the reply, but where the holder died before that.
    for (const [at, { result }] of host.heard.entries()) {
      const id = result?.entryIds?.[0];
      if (id === undefined) continue;
      const isOwn = ({ method, params }: Json): boolean => method === "session_append" && params.entryIds.includes(id);
      const event = host.heard.findIndex(isOwn);
      const isLate = host.heard.slice(event, at).some(({ method }) => method === "session_owner_changed");
      if (event >= 0 && !(event < at && isLate)) expect(event, `${host.name} heard late of ${id}`).toBe(at + 1);
    }
    this.checkHolders(host);
    const told = host.told();
    expect(told.length, `${host.name} was told twice of ${told.filter((id, n) => told.indexOf(id) !== n)}`).toBe(
      new Set(told).size,
    );
  }

  /** Expects one holder after the other, and that nobody writes beside it. */
  private checkHolders({ name, events, heard, replies }: SharingHost): void {
    const epochs: number[] = [];
    for (const { method, params } of events) {
      if (method !== "session_owner_changed") continue;
      if (params.isSelf) expect(this.owners.get(params.epoch) ?? name, `two hold epoch ${params.epoch}`).toBe(name);
      if (params.isSelf) this.owners.set(params.epoch, name);
      expect(params.epoch, `${name} went back from ${epochs}`).toBeGreaterThan(epochs.at(-1) ?? 0);
      epochs.push(params.epoch);
    }
    // Who has written, and was refused nothing, is in or holds: what others write is then that of peers.
    if ([...replies.values()].some(({ error }) => error)) return;
    const written = heard.findIndex(({ result }) => result?.entryIds !== undefined);
    const beside = heard.slice(written + 1).filter(({ params }) => params?.origin === "foreign");
    if (written >= 0) expect(beside, `${name} was told of a writer that nobody let in`).toEqual([]);
  }

  async end(): Promise<void> {
    const { hosts } = this;
    const last = await Promise.all(hosts.map((host) => this.insist(host)));
    for (const [n, reply] of last.entries()) {
      expect(reply, JSON.stringify(reply)).toHaveProperty("result");
      this.replay(hosts[n], { method: "append", params: {} }, reply);
    }
    const file = HERE.pathOf(this.place, this.name);
    const reader = new SharingHost("the reader", HERE.start(["--session", file, "--read-only"], "lines", this.place));
    const entries = (await reader.ask({ method: "get_entries", params: {} })[0])?.result.entries as Json[];
    const ids = entries.map(({ id }) => id);
    for (const { id, parentId } of entries)
      if (this.parents.has(id)) expect(parentId, `the parent of ${id}`).toBe(this.parents.get(id));
    const listed = (await reader.ask({ method: "list_heads", params: {} })[0])?.result.heads as Json[];
    const texts = entries.filter(({ type }) => type === "message").map(({ message }) => message.content);
    for (const [text, id] of this.acknowledged) {
      expect(
        texts.filter((other) => other === text),
        text,
      ).toEqual([text]);
      expect(entries[ids.indexOf(id)].message.content).toBe(text);
    }
    expect(texts.length, "what was not acknowledged is there once or not at all").toBe(new Set(texts).size);
    const there = new Set(texts);
    for (const text of texts)
      expect(
        this.said.get(text)?.every((other) => there.has(other)),
        `all of an append with ${text.slice(0, 20)}`,
      ).toBe(true);
    // Everybody was told of everything since he came, in the order of the file.
    for (const host of hosts) {
      await this.until(host, ids.at(-1) as string);
      this.check(host);
      const told = host.told();
      expect(told, host.name).toEqual(ids.slice(ids.indexOf(told[0])));
    }
    const states = await Promise.all(
      hosts.map(async (host) => (await host.ask({ method: "get_state", params: {} })[0])?.result),
    );
    const shared = states.map(({ leafId, sharedLeafId = leafId }) => sharedLeafId);
    expect(new Set(shared).size, shared.join(" ")).toBe(1);
    for (const [n, host] of hosts.entries()) {
      const { head, leafId } = states[n];
      this.holders += host.events.filter(({ method }) => method === "session_owner_changed").length;
      expect(host.events.filter(({ params }) => "leafId" in params).at(-1).params.leafId, host.name).toBe(leafId);
      expect(head).toBe(host.head);
      if (head === undefined) continue;
      expect(leafId, `${host.name} is elsewhere than what was acknowledged`).toBe(host.leaf);
      expect(listed.find(({ name }) => name === head)?.leafId).toBe(leafId);
    }
    for (const host of hosts) expect((await host.server.finish()).status).toBe(0);
  }

  /** Has a host write, also where it has to wait for a machine that is busy. */
  private async insist(host: SharingHost): Promise<Json> {
    const late = performance.now() + 30_000;
    for (;;) {
      const reply = await host.ask(this.next())[0];
      if (reply?.error?.data?.name !== "session_locked" || performance.now() > late) return reply;
    }
  }

  /** Waits until a host was told of an entry. */
  private async until(host: SharingHost, id: string): Promise<void> {
    const late = performance.now() + 10_000;
    while (!host.told().includes(id) && performance.now() < late)
      await host.ask({ method: "get_state", params: {} })[0];
  }
}
