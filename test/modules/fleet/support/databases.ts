/** Databases of long histories, and their failures: a server that is killed, or one in whose place another is promoted. */

import { join } from "node:path";
import { brotliDecompressSync } from "node:zlib";
import { Postgres, urlOf } from "../../../support/postgres.ts";
import type { Random } from "../../../support/random.ts";
import { DatabaseProxy } from "./database-proxy.ts";

/** Settings that the databases of short tests do without: what a server does by itself takes locks, too. */
const AS_USERS_HAVE_IT = ["autovacuum = on"];

/** Milliseconds of waiting for a standby. */
const LONGEST_WAIT = 60_000;

export const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A database that things happen to. */
export interface BefallenDatabase {
  /** Address through which connections are lost. */
  readonly url: string;
  /** Milliseconds within which a server answers that is not stopped. */
  readonly answerWithin: number;
  /** The endpoint through which the machines reach it. */
  readonly proxy: DatabaseProxy;
  /** The server with all acknowledged commits. */
  readonly server: Postgres;
  readonly figures: Readonly<Record<string, number>>;
  /** Makes it, without tables. */
  start(): Promise<void>;
  /** Has something happen, and resolves when the database is there again. */
  befall(): Promise<void>;
  /** Ends what may still go wrong. */
  calm(): void;
  close(): Promise<void>;
}

export class KilledDatabase implements BefallenDatabase {
  readonly answerWithin = 60_000;
  readonly server = new Postgres(AS_USERS_HAVE_IT);
  readonly figures = { kills: 0 };
  readonly proxy: DatabaseProxy;

  constructor(random: Random) {
    this.proxy = new DatabaseProxy(this.server.folder, join(this.server.folder, "proxy"), random);
  }

  get url(): string {
    return urlOf(this.proxy.folder, "postgres");
  }

  async start(): Promise<void> {
    await this.server.start();
    await this.proxy.listen();
  }

  async befall(): Promise<void> {
    await this.server.kill();
    this.figures.kills++;
    await this.server.start();
  }

  calm(): void {
    this.proxy.share = 0;
  }

  async close(): Promise<void> {
    await this.proxy.close();
    await this.server.close();
  }
}

/**
 * A primary and its standby. The primary is killed, or stopped and goes on as if nothing had happened, and the standby is
 * promoted; then a new standby is made where the primary was. New connections lead to the server that was promoted last, and
 * those to the former one stay. `isSynchronous`: commits wait for the standby.
 */
export class PromotedDatabase implements BefallenDatabase {
  readonly answerWithin = 2500;
  readonly figures = { kills: 0, promotions: 0, zombies: 0 };
  readonly proxy: DatabaseProxy;
  private readonly random: Random;
  private readonly isSynchronous: boolean;
  /** The primary first. */
  private readonly servers = [new Postgres(AS_USERS_HAVE_IT), new Postgres(AS_USERS_HAVE_IT)];
  /** Links by which standbys follow the server in a folder. */
  private readonly links: ReadonlyMap<Postgres, DatabaseProxy>;

  constructor(random: Random, isSynchronous: boolean) {
    this.random = random;
    this.isSynchronous = isSynchronous;
    const proxyTo = (server: Postgres, name: string): DatabaseProxy =>
      new DatabaseProxy(server.folder, join(server.folder, name), random);
    this.proxy = Object.assign(proxyTo(this.server, "proxy"), { stalls: true });
    this.links = new Map(this.servers.map((server) => [server, proxyTo(server, "link")]));
  }

  get url(): string {
    return urlOf(this.proxy.folder, "postgres");
  }

  get server(): Postgres {
    return this.servers[0];
  }

  async start(): Promise<void> {
    for (const proxy of [this.proxy, ...this.links.values()]) await proxy.listen();
    await this.server.start();
    await this.addStandby();
  }

  /** Makes a standby of the other server. From the beginning on commits wait for it, if they are to. */
  private async addStandby(): Promise<void> {
    const [primary, standby] = this.servers;
    if (this.isSynchronous) primary.configure("set synchronous_standby_names = '*'");
    await standby.follow(primary, this.linkTo(primary).folder);
    await standby.start();
    const isThere = `select count(*) from pg_stat_replication where state = 'streaming'
      and (sync_state = 'sync' or not ${this.isSynchronous})`;
    const since = performance.now();
    while (primary.sql(isThere) === "0") {
      if (performance.now() - since > LONGEST_WAIT) throw new Error("the standby does not follow");
      await wait(50);
    }
  }

  private linkTo(server: Postgres): DatabaseProxy {
    return this.links.get(server) as DatabaseProxy;
  }

  async befall(): Promise<void> {
    const [primary, standby] = this.servers;
    const { random, figures } = this;
    // Changes that the standby does not get are lost with the primary, or are never acknowledged.
    if (random.chance(0.5)) {
      this.linkTo(primary).isDeaf = true;
      await wait(random.int(600));
    }
    const isZombie = random.chance(0.4);
    if (isZombie) primary.signal("SIGSTOP");
    else {
      await primary.kill();
      figures.kills++;
    }
    this.linkTo(primary).cut();
    await standby.promote();
    figures.promotions++;
    this.servers.reverse();
    this.proxy.database = standby.folder;
    if (isZombie) {
      await wait(random.int(800));
      // It goes on, and knows nothing of the other.
      primary.signal("SIGCONT");
      await wait(random.int(1500));
      await primary.kill();
      figures.zombies++;
    }
    this.linkTo(primary).isDeaf = false;
    await wait(random.int(500));
    await this.addStandby();
  }

  calm(): void {
    this.proxy.share = 0;
  }

  async close(): Promise<void> {
    for (const server of this.servers) server.signal("SIGCONT");
    await Promise.all([this.proxy, ...this.links.values()].map((proxy) => proxy.close()));
    for (const server of this.servers) await server.close();
  }
}

/** Counts lines that do not follow those before them, or are of an earlier epoch, without packs of failed commits. */
export const OUT_OF_ORDER = `select count(*) from (
    select seq - lag(past, 1, 0::bigint) over sorted as step, lines.epoch - lag(lines.epoch, 1, 0) over sorted as rise
    from (select session_id, generation, seq, seq + 1 as past, epoch from pi_fleet.entry
      union all select session_id, generation, seq, seq + count, epoch from pi_fleet.pack) as lines
      join pi_fleet.session s on s.id = session_id and s.generation = lines.generation
    window sorted as (partition by session_id order by seq)) as steps
  where step <> 0 or rise < 0`;

/** Returns the lines of a session in a database, in rows and in packs, by other code than the tested code. */
export function linesInDatabase(server: Pick<Postgres, "sql">, id: string): string[] {
  const rows = server.sql(`with s as (select id, generation from pi_fleet.session where id = '${id}')
    select seq, 'row', encode(line, 'hex') from s join pi_fleet.entry e on e.session_id = id and e.generation = s.generation
    union all select seq, codec::text, encode(lines, 'hex')
      from s join pi_fleet.pack p on p.session_id = id and p.generation = s.generation
    order by seq`);
  return rows.split("\n").flatMap((text) => {
    const [, kind, hex] = text.split("|");
    if (hex === undefined) return [];
    const bytes = Buffer.from(hex, "hex");
    return (kind === "1" ? brotliDecompressSync(bytes) : bytes).toString("utf8").split("\n");
  });
}
