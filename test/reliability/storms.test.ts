/**
 * Small storms in which servers, clients and files meet random events; the large ones are in test/soak.
 *
 * @module-tag system
 */

import { expect, type TestOptions, test } from "vitest";
import { killOther } from "../support/beside-pi.ts";
import { changeUnderneath } from "../support/foreign-changes.ts";
import { KINDS } from "../support/foreign-kinds.ts";
import { fuzz } from "../support/fuzz.ts";
import { type Meeting, meet, OWN_NAMESPACES } from "../support/many-servers.ts";
import { NETWORK_NAMESPACES } from "../support/namespaces.ts";
import { needs } from "../support/needs.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { shareAtRandom } from "../support/sharing.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";
import { twoServers, withForeignWriter } from "../support/writers.ts";

function storm(title: string, options: TestOptions, run: (random: Random) => Promise<void>): void {
  test(title, { timeout: 300_000, ...options }, () => forSeedsAsync(1, run));
}

for (const [n, [framing, dialect]] of (["lines", "headers"] as const)
  .flatMap((framing) => (["jsonrpc", "pi"] as const).map((dialect) => [framing, dialect] as const))
  .entries())
  storm(
    `each of 1,000 frames that can be answered is: ${framing}, ${dialect}`,
    n === 0 ? SYSTEM : SWEEP,
    async (random) => expect(await fuzz(random, framing, dialect, 1000)).toBeGreaterThan(500),
  );

const changes = Object.keys(KINDS).length;

for (const [n, options] of (
  [
    { store: "jsonl", framing: "lines", dialect: "jsonrpc", changes },
    { store: "v2", framing: "lines", dialect: "jsonrpc", changes },
    { store: "jsonl", framing: "headers", dialect: "jsonrpc", changes: 8 },
    { store: "v2", framing: "lines", dialect: "pi", changes: 8 },
  ] as const
).entries())
  storm(
    `of files that change every request is answered, and what is acknowledged can be read: ${Object.values(options)}`,
    n === 0 ? SYSTEM : SWEEP,
    async (random) => void (await changeUnderneath(random, options)),
  );

storm("a program that knows no lock loses nothing and hides nothing", SYSTEM, async (random) => {
  const { kills, foreign } = await withForeignWriter(random, 30);
  expect(kills).toBeGreaterThan(0);
  expect(foreign).toBeGreaterThan(10);
});

storm(
  "there is one session after kill -9 of a migration, with every line of another program",
  SWEEP,
  async (random) => {
    const { kills } = await killOther(random, 30);
    expect(kills).toBe(30);
  },
);

const SHORT = { servers: 3, wanted: 10, states: "same", namespaces: false, attach: "off" } as const;

function meeting(title: string, options: Meeting, more: TestOptions = {}): void {
  storm(title, { ...SWEEP, ...more }, async (random) => {
    const { locked } = await meet(random, options);
    // They did meet.
    if (options.attach === "off") expect(locked).toBeGreaterThan(0);
  });
}

for (const store of ["jsonl", "v2"] as const) {
  const tier = store === "jsonl" ? SYSTEM : SWEEP;

  storm(`hosts that share a session of ${store} are one tree, also where servers are killed`, tier, async (random) => {
    const { acknowledged, kills } = await shareAtRandom(random, { store, servers: 3, bursts: 6, kills: 0.3 });
    expect(acknowledged).toBeGreaterThan(12);
    expect(kills).toBeGreaterThan(0);
  });

  storm(`hosts with leaves of their own on a session of ${store} are where they were led`, SWEEP, async (random) => {
    const { heads } = await shareAtRandom(random, { store, servers: 3, bursts: 7, kills: 0.3, heads: 1 });
    expect(heads).toBeGreaterThan(0);
  });

  storm(`two servers on a session of ${store} make one chain, and nothing is lost`, SWEEP, async (random) => {
    const { kills, locked } = await twoServers(random, 40, store);
    // They did meet.
    expect(kills).toBeGreaterThan(0);
    expect(locked).toBeGreaterThan(3);
  });

  meeting(`what several servers acknowledged is there, once, also where some are killed, on ${store}`, {
    ...{ ...SHORT, store, durability: "sync", kills: true },
  });

  // A socket is seen in one network only; the lock has to be one that the file carries.
  const apart = { ...SHORT, store, durability: "os", kills: false, states: "different", namespaces: true } as const;
  meeting(`and where they share neither network nor state folder, on ${store}`, apart, needs(NETWORK_NAMESPACES));
}

meeting("and where whoever holds the session lets the others join", {
  ...{ ...SHORT, store: "v2", attach: "auto", durability: "os", kills: true, states: "different" },
  namespaces: OWN_NAMESPACES.length > 0,
});
