/** Several hosts on one session, each with a server of its own that share it, some of which are killed. */

import { join } from "node:path";
import { expect } from "vitest";
import type { Random } from "./random.ts";
import { type Framing, type Json, type Place, type SpawnedServer, spawnServer, temporaryPlace } from "./server.ts";

export interface SharingOptions {
  readonly store: "jsonl" | "v2";
  readonly servers: number;
  /** Bursts of commands of all hosts together. */
  readonly bursts: number;
  /** Chance that a server is killed in the midst of a burst. */
  readonly kills: number;
  readonly durability?: "sync" | "os";
  /** Chance that a host has a leaf of its own. */
  readonly heads?: number;
}

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

const say = (text: string): { method: string; params: Json } => ({
  method: "append",
  params: { entries: [{ type: "message", message: { role: "user", content: text } }] },
});

/** Runs random bursts, and returns how much was done. Expects every promise of sharing to hold. */
export async function shareAtRandom(random: Random, options: SharingOptions) {
  const place = temporaryPlace();
  const file = join(place.home, options.store === "v2" ? "shared.v2" : "shared.jsonl");
  const course = new Course(random, options, place, file);
  await course.begin();
  for (let burst = 0; burst < options.bursts; burst++) await course.burst();
  await course.end();
  return { acknowledged: course.acknowledged.size, kills: course.kills, holders: course.holders, heads: course.heads };
}

class Course {
  private readonly random: Random;
  private readonly options: SharingOptions;
  private readonly place: Place;
  private readonly file: string;
  private hosts: SharingHost[] = [];
  private texts = 0;
  private names = 0;
  readonly acknowledged = new Map<string, string>();
  /** Parents that entries must have, by the id of the entry. */
  private readonly parents = new Map<string, string | null>();
  private readonly said = new Set<string>();
  kills = 0;
  holders = 0;
  /** Entries whose parents were held against what was acknowledged. */
  get heads(): number {
    return this.parents.size;
  }

  constructor(random: Random, options: SharingOptions, place: Place, file: string) {
    this.random = random;
    this.options = options;
    this.place = place;
    this.file = file;
  }

  async begin(): Promise<void> {
    const first = this.start();
    await first.ask(this.next())[0];
    this.hosts = [first];
    while (this.hosts.length < this.options.servers) this.hosts.push(this.start());
  }

  private start(): SharingHost {
    const { random, options, place, file } = this;
    const framing: Framing = random.chance(0.5) ? "lines" : "headers";
    const args = ["--session", file, "--store", options.store, "--durability", options.durability ?? "os"];
    const name = `host ${++this.names}`;
    const head = this.names > 1 && random.chance(options.heads ?? 0) ? `head-${this.names}` : undefined;
    const host = new SharingHost(name, spawnServer(args, framing, place), head);
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

  private next(): { method: string; params: Json } {
    const text = `text ${++this.texts}`;
    this.said.add(text);
    return say(text);
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
      return host
        .ask(...requests)
        .map(async (answer, index) => ({ host, request: requests[index], reply: await answer }));
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
    for (const { host, request, reply } of await Promise.all(asked)) {
      if (!reply) {
        expect(host.isDead, `${host.name} did not answer ${JSON.stringify(request)}`).toBe(true);
        continue;
      }
      const story = `${host.name}: ${JSON.stringify(request)} ${JSON.stringify(reply)}`;
      if (reply.error) expect(["outcome_unknown", "session_locked"], story).toContain(reply.error.data?.name);
      this.replay(host, request, reply);
      if (!reply.error && request.method === "append")
        this.acknowledged.set(request.params.entries[0].message.content, reply.result.entryIds[0]);
    }
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
    const told = host.told();
    expect(told.length, `${host.name} was told twice of ${told.filter((id, n) => told.indexOf(id) !== n)}`).toBe(
      new Set(told).size,
    );
  }

  async end(): Promise<void> {
    const { hosts } = this;
    const last = await Promise.all(hosts.map((host) => host.ask(this.next())[0]));
    for (const [n, reply] of last.entries()) {
      expect(reply, JSON.stringify(reply)).toHaveProperty("result");
      this.replay(hosts[n], say(""), reply);
    }
    const reader = new SharingHost(
      "the reader",
      spawnServer(["--session", this.file, "--read-only"], "lines", this.place),
    );
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
    for (const text of texts) expect(this.said.has(text)).toBe(true);
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

  /** Waits until a host was told of an entry. */
  private async until(host: SharingHost, id: string): Promise<void> {
    const late = performance.now() + 10_000;
    while (!host.told().includes(id) && performance.now() < late)
      await host.ask({ method: "get_state", params: {} })[0];
  }
}
