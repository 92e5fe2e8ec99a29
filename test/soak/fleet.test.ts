/**
 * Random histories over a real PostgreSQL that is killed, through connections that are lost: `SOAK_MACHINES` machines,
 * by default 4 to 16, each of which dies, stops and goes on, in half of the runs also while the database is away.
 */

import { join } from "node:path";
import { addressOf } from "../../src/storage/fleet/address.ts";
import { Connections } from "../../src/storage/fleet/connections.ts";
import { loadDriver } from "../../src/storage/fleet/driver.ts";
import { Outage } from "../../src/storage/fleet/outage.ts";
import { PostgresFleet } from "../../src/storage/fleet/postgres.ts";
import { DatabaseProxy } from "../support/database-proxy.ts";
import { runHistory } from "../support/fleet-history.ts";
import { POSTGRES, Postgres } from "../support/postgres.ts";
import { Random } from "../support/random.ts";
import { soak } from "../support/soak.ts";

const LEASE = 200;
const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

soak("fleet", async (random, number) => {
  if (!POSTGRES) throw new Error("this suite needs a PostgreSQL: apt-get install postgresql");
  const machines = Number(process.env.SOAK_MACHINES ?? 4 + random.int(13));
  // In every other run, machines go on alone while the database is away.
  const isJournaled = random.chance(0.5);
  const server = new Postgres();
  await server.start();
  const proxy = new DatabaseProxy(server.folder, join(server.folder, "proxy"), new Random(number));
  await proxy.listen();
  const open: { close(): Promise<void> }[] = [proxy];
  const fleetAt = (folder: string, name: string): PostgresFleet => {
    const address = addressOf(`postgres:///postgres?host=${encodeURIComponent(folder)}&user=fleet`, () => "");
    const connections = new Connections({
      ...{ address, driver: loadDriver, most: 2, connectWithin: 60_000, answerWithin: 60_000 },
    });
    const shown = { client: name, pid: 0, since: "2026-01-24T16:22:26.831Z", host: name };
    const fleet = new PostgresFleet(connections, { id: name, shown }, { lease: LEASE });
    open.unshift(fleet);
    return fleet;
  };
  let kills = 0;
  let isOver = false;
  try {
    await fleetAt(server.folder, "first").migrate();
    proxy.share = 0.04;
    const chaos = (async () => {
      for (;;) {
        await wait(500 + random.int(2500));
        if (isOver) return;
        await server.kill();
        kills++;
        await server.start();
      }
    })();
    const figures = await runHistory(
      {
        random,
        machines,
        sessions: 2 + random.int(3 * machines),
        steps: 150,
        tries: isJournaled ? 2 : 8,
        wait: (tries) => wait(20 * (tries + 1)),
        outageOf: (fleet) => (isJournaled ? new Outage(fleet, 20, () => performance.now()) : undefined),
        fleetOf: (machine, life) => fleetAt(proxy.folder, `machine ${machine}, life ${life}`),
        pause: () => wait(random.int(2 * LEASE)),
      },
      async () => {
        isOver = true;
        await chaos;
        proxy.share = 0;
        await wait(2 * LEASE);
      },
      (id) =>
        server
          .sql(`select encode(line, 'hex') from pi_fleet.entry where session_id = '${id}' order by seq`)
          .split("\n")
          .filter(Boolean)
          .map((hex) => Buffer.from(hex, "hex").toString("utf8")),
    );
    const bad = server.sql(`select count(*) from (
        select seq - lag(seq, 1, -1) over sorted as step, epoch - lag(epoch, 1, 0) over sorted as rise
        from pi_fleet.entry window sorted as (partition by session_id order by seq)) as steps
      where step <> 1 or rise < 0`);
    if (bad !== "0") throw new Error(`${bad} entries are out of order`);
    return { ...figures, kills: kills + figures.kills, cuts: proxy.cuts };
  } finally {
    isOver = true;
    await Promise.all(open.map((one) => one.close()));
    await server.close();
  }
});
