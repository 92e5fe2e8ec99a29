/**
 * The keeping of a fleet over months, in seconds: machines write, delete, restore, archive and bring back the same sessions
 * and die, while one prunes sessions deleted just now, and the database is killed. At the end every machine restores the
 * trash, and every acknowledged entry has to be in the database once, or quarantined.
 */

import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { FleetPruning } from "../../src/modules/fleet/admin/pruning.ts";
import { KilledDatabase, linesInDatabase, OUT_OF_ORDER, wait } from "../modules/fleet/support/databases.ts";
import { type SqlFleet, sqlFleet } from "../modules/fleet/support/sql-fleet.ts";
import { user } from "../support/drafts.ts";
import { POSTGRES } from "../support/postgres.ts";
import { HereLives } from "../support/proof.ts";
import { Random, range } from "../support/random.ts";
import type { Json, Place, Wire } from "../support/server.ts";
import { soak } from "../support/soak.ts";

const LEASE = 300;
const STEPS = 80;

/** A machine, whose servers come and go. */
class KeptMachine {
  place: Place | undefined;
  private readonly url: string;
  private readonly number: number;
  private readonly store: string;
  private wire: Wire | undefined;
  private lives: HereLives | undefined;
  private fleet: SqlFleet | undefined;
  private life = 0;
  /** The last refusal of each session, and its reason. */
  readonly refusals = new Map<string, string>();

  constructor(url: string, number: number, store: string) {
    this.url = url;
    this.number = number;
    this.store = store;
  }

  async start(): Promise<void> {
    const seed = ++this.life * 100 + this.number;
    this.fleet = sqlFleet(this.url, `${this.number}, life ${this.life}`, { lease: LEASE, most: 2 });
    const partBytes = this.number % 2 === 0 ? 400 : undefined;
    const fleet = { ...this.fleet, partBytes };
    this.lives = new HereLives({ fleet, place: this.place, seed });
    this.place = this.lives.place;
    this.wire = await this.lives.start(["--store", this.store]);
  }

  async leave(how: "kill" | "end"): Promise<void> {
    await this.lives?.[how]();
    await this.fleet?.fleet.close();
  }

  /** Asks, and returns undefined where that fails. */
  async ask(method: string, params: Json): Promise<Json | undefined> {
    const reply = await this.wire?.request(method, params);
    const sessionId = params.sessionId as string | undefined;
    if (reply?.error && sessionId !== undefined) this.refusals.set(sessionId, `${method}: ${reply.error.message}`);
    return reply?.result;
  }

  /** Files below its home whose paths fit, with their texts. */
  files(fits = /./): { path: string; text: string }[] {
    const { home } = this.place as Place;
    const names = readdirSync(home, { recursive: true, withFileTypes: true });
    const paths = names.filter((one) => one.isFile()).map((one) => join(one.parentPath, one.name));
    const read = paths.filter((path) => fits.test(path)).map((path) => [path, readFileSync(path, "latin1")] as const);
    return read.map(([path, text]) => ({ path: relative(home, path), text }));
  }
}

soak("keeping", async (random, number) => {
  if (!POSTGRES) throw new Error("this suite needs a PostgreSQL: apt-get install postgresql");
  const database = new KilledDatabase(new Random(number));
  const machines: KeptMachine[] = [];
  const acknowledged = new Map<string, string[]>();
  const figures = {
    ...{ acknowledged: 0, deleted: 0, restored: 0, moved: 0, pruned: 0, killed: 0, kept: 0, trashed: 0, runs: 1 },
  };
  let isOver = false;
  const background: Promise<void>[] = [];
  try {
    await database.start();
    const first = sqlFleet(database.server.url, "first");
    await first.migrate();
    await first.fleet.close();
    for (let n = 1; n <= 3 + random.int(3); n++) {
      const machine = new KeptMachine(database.url, n, random.pick(["jsonl", "v2"]));
      await machine.start();
      machines.push(machine);
    }
    database.proxy.share = 0.01;
    const chaos = new Random(number + 1);
    background.push(
      (async () => {
        for (; !isOver; await wait(1000 + chaos.int(3000))) await database.befall();
      })(),
      (async () => {
        for (; !isOver; await wait(chaos.int(100))) {
          const fleet = sqlFleet(database.url, "pruner", { most: 1 });
          const run = fleet.connections.run.bind(fleet.connections);
          let left = chaos.int(30);
          fleet.connections.run = async (question) =>
            left-- === 0 ? { kind: "away", reason: "test: it is killed" } : run(question);
          await new FleetPruning(fleet.connections, "").prune({ rows: 0 }).catch(() => {});
          await fleet.fleet.close();
        }
      })(),
    );
    await Promise.all(machines.map((machine, n) => live(machine, new Random(number * 100 + n))));
    isOver = true;
    await Promise.all(background);
    database.calm();
    for (const machine of machines) {
      await machine.leave("end");
      await machine.start();
    }
    await wait(2 * LEASE);
    // Another machine can write to a restored session then.
    for (const machine of [...machines, ...machines]) await restoreAll(machine);
    check();
    return { ...figures, kills: database.figures.kills + figures.killed };
  } finally {
    isOver = true;
    await Promise.all(background).catch(() => {});
    await Promise.all(machines.map((machine) => machine.leave("end").catch(() => {})));
    await database.close();
  }

  async function live(machine: KeptMachine, chance: Random): Promise<void> {
    const did = async (method: string, sessionId: string): Promise<number> =>
      (await machine.ask(method, { sessionId })) ? 1 : 0;
    for (let step = 0; step < STEPS; step++) {
      const known = [...acknowledged.keys()];
      const kind = known.length === 0 ? 0 : chance.int(12);
      const sessionId = known.length === 0 ? "" : chance.pick(known);
      if (kind === 0) {
        if (await machine.ask("new_session", {})) await write(machine, undefined, chance);
      } else if (kind < 6) await write(machine, sessionId, chance);
      else if (kind < 8) figures.deleted += await did("delete_session", sessionId);
      else if (kind < 10) figures.restored += await did("restore_session", sessionId);
      else if (kind === 10)
        figures.moved += await did(chance.chance(0.5) ? "archive_session" : "unarchive_session", sessionId);
      else if (chance.chance(0.5)) {
        await machine.leave("kill");
        figures.killed++;
        await machine.start();
      }
    }
  }

  /** Appends to a session, or to the new one that is open, and leaves it. */
  async function write(machine: KeptMachine, sessionId: string | undefined, chance: Random): Promise<void> {
    if (sessionId !== undefined && !(await machine.ask("switch_session", { sessionId }))) return;
    const id = (await machine.ask("get_state", {}))?.sessionId;
    // Five of them are sent in parts, by every other machine.
    const texts = range(0, chance.pick([1, 1, 5])).map(
      (n) => `entry ${number} ${chance.int(2 ** 30)} ${n} ${figures.acknowledged}`,
    );
    const params = { sessionId: id, entries: texts.map((text) => user(text)), idempotencyKey: `key of ${texts[0]}` };
    const isReported =
      (await machine.ask("append", params)) ?? (chance.chance(0.5) && (await machine.ask("append", params)));
    if (isReported && typeof id === "string") {
      acknowledged.set(id, [...(acknowledged.get(id) ?? []), ...texts]);
      figures.acknowledged += texts.length;
    }
    await machine.ask("new_session", {});
  }

  /** Brings back what a machine has in its trash. */
  async function restoreAll(machine: KeptMachine): Promise<void> {
    for (let tries = 0; tries < 5; tries++) {
      const items = (await machine.ask("list_trash", {}))?.items ?? [];
      for (const { sessionId } of items) if (sessionId !== null) await machine.ask("restore_session", { sessionId });
    }
    // Some restores were interrupted. Archived sessions are neither written nor checked.
    for (const sessionId of acknowledged.keys()) {
      await machine.ask("restore_session", { sessionId });
      await machine.ask("unarchive_session", { sessionId });
    }
    machine.refusals.clear();
    // Extra entries of a copy go to the fleet with the next write.
    for (const sessionId of acknowledged.keys()) await write(machine, sessionId, random);
  }

  function check(): void {
    figures.pruned = Number(database.server.sql("select sum(generation) from pi_fleet.session"));
    const textIn = (fits: RegExp): string =>
      machines.flatMap((machine) => machine.files(fits).map(({ text }) => text)).join("\n");
    const [kept, trashed] = [textIn(/\.(?:bin|bak)$/), textIn(/trash/)];
    for (const [sessionId, texts] of acknowledged) {
      const lines = linesInDatabase(database.server, sessionId).join("\n");
      for (const text of texts) {
        const count = lines.split(`"${text}"`).length - 1;
        if (count > 1) throw new Error(`${text} of ${sessionId} is there ${count} times`);
        if (count === 1) continue;
        if (kept.includes(text)) figures.kept++;
        else if (trashed.includes(text)) figures.trashed++;
        else throw new Error(`${text} of ${sessionId} is lost; ${whereIs(sessionId, text)}`);
      }
    }
    const bad = database.server.sql(OUT_OF_ORDER);
    if (bad !== "0") throw new Error(`${bad} entries are out of order`);
  }

  function whereIs(sessionId: string, text: string): string {
    const row = database.server.sql(
      `select state, entries, generation, removed_at from pi_fleet.session where id = '${sessionId}'`,
    );
    const copies = machines.map((machine, n) => {
      const paths = machine.files().flatMap((file) => (file.text.includes(text) ? file.path : []));
      return `machine ${n + 1} has it in ${paths.join(", ") || "no file"} and was refused ${machine.refusals.get(sessionId) ?? "nothing"}`;
    });
    return [`row ${row}`, ...copies].join("; ");
  }
});
