/**
 * Random histories over a real PostgreSQL, through connections that are lost: `SOAK_MACHINES` machines, by default 4 to 8
 * with 1 to 8 hosts each, on few sessions for which they compete or on up to 1,000. Each machine dies, stops and goes on, in
 * half of the runs also while the database is away. The server is killed, or (`SOAK_DATABASE`: killed, synchronous or
 * asynchronous) its standby is promoted, with all acknowledged changes or without some.
 */

import { parseAddress } from "../../src/modules/fleet/postgres/address.ts";
import { Connections } from "../../src/modules/fleet/postgres/connections.ts";
import { loadDriver } from "../../src/modules/fleet/postgres/driver.ts";
import { PostgresFleet } from "../../src/modules/fleet/postgres/postgres.ts";
import { Outage } from "../../src/modules/fleet/replica/outage.ts";
import {
  type BefallenDatabase,
  KilledDatabase,
  linesInDatabase,
  OUT_OF_ORDER,
  PromotedDatabase,
  wait,
} from "../modules/fleet/support/databases.ts";
import { runHistory } from "../modules/fleet/support/history.ts";
import { sqlFleet } from "../modules/fleet/support/sql-fleet.ts";
import { POSTGRES } from "../support/postgres.ts";
import { Random } from "../support/random.ts";
import { soak } from "../support/soak.ts";

const LEASE = 200;
const KINDS = ["killed", "synchronous", "asynchronous"];

function databaseOf(kind: string, random: Random): BefallenDatabase {
  return kind === "killed" ? new KilledDatabase(random) : new PromotedDatabase(random, kind === "synchronous");
}

soak("fleet", async (random, number) => {
  if (!POSTGRES) throw new Error("this suite needs a PostgreSQL: apt-get install postgresql");
  const machines = Number(process.env.SOAK_MACHINES ?? 4 + random.int(5));
  // In every other run, machines go on alone while the database is away.
  const isJournaled = random.chance(0.5);
  const kind = process.env.SOAK_DATABASE ?? random.pick(KINDS);
  const database = databaseOf(kind, new Random(number));
  const hosts = 1 + random.int(8);
  // Machines with few sessions wait for one another; with many, their appends go together.
  const sessions = 2 + random.int(random.chance(0.5) ? 3 * machines : 999);
  const isKilled = kind === "killed";
  const open: { close(): Promise<void> }[] = [];
  const fleetAt = (url: string, name: string): PostgresFleet => {
    const { answerWithin } = database;
    const address = parseAddress(url, () => "");
    const connections = new Connections({
      ...{ address, driver: loadDriver, most: 2, connectWithin: answerWithin, answerWithin },
    });
    const shown = { client: name, pid: 0, since: "2026-01-24T16:22:26.831Z", host: name };
    const fleet = new PostgresFleet(connections, { id: name, shown }, { lease: LEASE });
    open.unshift(fleet);
    return fleet;
  };
  // Requests whose connection is lost. The next one costs the database as much as many appends.
  const lost = random.pick([0.003, 0.01, 0.03]);
  // Milliseconds between what happens to the database: in the longer ones, appends wait for one another and not for it.
  const longestPeace = random.pick([2500, 10_000, 40_000]);
  // Beginning and end cost as much as some thousand appends.
  const steps = random.pick([60, 240]);
  let isOver = false;
  let chaos: Promise<void> | undefined;
  try {
    await database.start();
    const first = sqlFleet(database.server.url, "first");
    await first.migrate();
    await first.fleet.close();
    database.proxy.share = lost;
    chaos = (async () => {
      for (;;) {
        await wait(500 + random.int(longestPeace));
        if (isOver) return;
        await database.befall();
      }
    })();
    const figures = await Promise.race([
      // Only its failure ends the history.
      chaos.then(() => new Promise<never>(() => {})),
      runHistory(
        {
          random,
          machines,
          hosts,
          sessions,
          steps,
          tries: isJournaled ? 2 : isKilled ? 8 : 20,
          mayLose: kind === "asynchronous",
          // A server that starts makes a process for each connection that it refuses, for 30 ms of a processor.
          wait: (tries) => wait((50 + random.int(100)) * (tries + 1)),
          outageOf: (fleet) => (isJournaled ? new Outage(fleet, 100, () => performance.now()) : undefined),
          fleetOf: (machine, life) => fleetAt(database.url, `machine ${machine}, life ${life}`),
          pause: () => wait(random.int(2 * LEASE)),
        },
        async () => {
          isOver = true;
          await chaos;
          database.calm();
          await wait(2 * LEASE);
        },
        (id) => linesInDatabase(database.server, id),
      ),
    ]);
    const bad = database.server.sql(OUT_OF_ORDER);
    const twice = database.server.sql(`select count(*) from pi_fleet.session where indexed > entries`);
    if (twice !== "0") throw new Error("a session has facts of entries that it has not");
    if (bad !== "0") throw new Error(`${bad} entries are out of order`);
    const { kills, ...others } = database.figures;
    return { ...figures, ...others, kills: kills + figures.kills, cuts: database.proxy.cuts };
  } finally {
    isOver = true;
    await chaos?.catch(() => {});
    await Promise.all(open.map((one) => one.close()));
    await database.close();
  }
});
