/** The storms whose units are one call each: what happens to servers, clients and files, in every combination in turn. */

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { killOther } from "../support/beside-pi.ts";
import { containers } from "../support/containers.ts";
import { DAMAGES, damageFiles } from "../support/corruption.ts";
import { damageContainers } from "../support/corruption-v2.ts";
import { changeUnderneath } from "../support/foreign-changes.ts";
import { fuzz } from "../support/fuzz.ts";
import { checkErrors, checkInterrupted, SCENARIOS } from "../support/lifecycle-faults.ts";
import { indexTogether, listTogether } from "../support/listing.ts";
import { simulatedWeeks } from "../support/long-use.ts";
import { meet, NODES, OWN_NAMESPACES } from "../support/many-servers.ts";
import { HereLives, SpawnedLives } from "../support/proof.ts";
import { pipelineWithFault, runWithFault } from "../support/proof-faults.ts";
import { type Killed, killRuns } from "../support/proof-kill.ts";
import { runModel } from "../support/proof-model.ts";
import { SHAPES, walk } from "../support/proof-scale.ts";
import { Random } from "../support/random.ts";
import { type Door, recordAtRandom, recordEditorAtRandom } from "../support/recording.ts";
import { stopTimers, temporaryPlace } from "../support/server.ts";
import { startAndEnd, WAYS } from "../support/server-ends.ts";
import { shareAtRandom } from "../support/sharing.ts";
import { type Figures, soak } from "../support/soak.ts";
import { survivingClient, writesUnderKills } from "../support/survival.ts";
import { UndoModel, undoTogether } from "../support/undoing.ts";
import { watchedThroughKills } from "../support/viewing.ts";
import { twoServers, withForeignWriter } from "../support/writers.ts";

const storeOf = (number: number): "jsonl" | "v2" => (number % 2 === 0 ? "jsonl" : "v2");

/** Every combination of an error, the way in which an operation fails, the test, and the store. */
const FAULTS = (["EIO", "ENOSPC", "EDQUOT", "EROFS"] as const).flatMap((errno) =>
  (["fail", "short"] as const).flatMap((kind) =>
    [runWithFault, pipelineWithFault].flatMap((run) =>
      (["jsonl", "v2"] as const).map((store) => ({ errno, kind, run, store })),
    ),
  ),
);

/** The doors of editors, one unit each in turn; every fourth unit is in Pi's place. */
const doorOf = (agent: Door["agent"], store: Door["store"]): Door => ({ agent, store });
const DOORS = [undefined, doorOf("pi", "jsonl"), doorOf("acp", "jsonl"), doorOf("acp", "v2")];

/** Sessions as `bench/catalog.js` makes them, 1 GB of them. */
const SESSIONS = 10_000;

const STORMS = {
  /** kill -9 in the middle of migrations, rollbacks and undos, next to a program that knows no pointer. */
  async "beside-pi"(random) {
    return killOther(random, 30);
  },

  /** Two to six containers on one volume share a session, and are killed at random. */
  containers(random, number) {
    const [store, durability] = [storeOf(number + 1), number % 3 === 0 ? "sync" : "os"] as const;
    const sizes = { servers: 2 + (number % 5), bursts: 40, kills: 0.4, stops: 0.1 };
    return shareAtRandom(random, { store, durability, where: containers(random), ...sizes });
  },

  /** Every kind of damage at every byte of the last records, and at many random places. */
  async corruption(random, number) {
    const kind = DAMAGES[(number >> 1) % DAMAGES.length];
    if (number % 2 === 0) return { damaged: await damageFiles(random, kind, 1, 300), damagedContainers: 0 };
    // The last records consist of much the same; the segments have every byte, the rest some.
    const step = (isSegment: boolean): number => (isSegment ? 1 : 13);
    const damagedContainers = await damageContainers(random, kind, { records: 2, step, more: 20, pairs: 60 });
    return { damaged: damagedContainers, damagedContainers };
  },

  /** Every operation of the disk fails in every way, one at a time. */
  async faults(_random, number) {
    const { errno, kind, run, store } = FAULTS[(number - 1) % FAULTS.length];
    const operations = await run(undefined, store);
    for (let at = 1; at <= operations; at++) await run({ kind, at, errno }, store);
    return { runs: 1, faults: operations };
  },

  /** Files changed under an open server in every way. In a few, the server is left alone until it looks by itself. */
  async "foreign-changes"(random, number) {
    const [framing, dialect] = [number % 4 < 3 ? "lines" : "headers", number % 6 < 5 ? "jsonrpc" : "pi"] as const;
    const options = { store: storeOf(number), framing, dialect, changes: 100 };
    return { ...(await changeUnderneath(random, options, 0.03)), internalErrors: 0, lost: 0, unsound: 0, hidden: 0 };
  },

  /** Random and spoiled frames. Mostly in memory: what a frame is taken for does not depend on where sessions are. */
  async fuzz(random, number) {
    const [framing, dialect] = [number % 2 === 0 ? "lines" : "headers", number % 4 < 2 ? "jsonrpc" : "pi"] as const;
    const store = (["memory", "memory", "jsonl", "memory", "memory", "v2"] as const)[number % 6];
    return { frames: 10_000, answered: await fuzz(random, framing, dialect, 10_000, store) };
  },

  /** Whatever moves sessions, interrupted at every operation. */
  async lifecycle(_random, number) {
    process.env.PI_TEST_EVERY = "1";
    const scenario = SCENARIOS[((number - 1) >> 1) % SCENARIOS.length];
    if (number % 2 === 1) await checkInterrupted(scenario);
    else await checkErrors(scenario, new Set());
    return { runs: 1 };
  },

  /** 1,000 servers that end in every way leave no process, and a simulated year leaves nothing behind. */
  async lifetime(random, number) {
    if (number % 21 === 0) {
      await simulatedWeeks(random, 100_000);
      return { runs: 1, operations: 100_000 };
    }
    const place = temporaryPlace();
    for (let run = 0; run < 50; run++) await startAndEnd(random, WAYS[(number * 50 + run) % WAYS.length], place);
    return { runs: 1, ended: 50 };
  },

  /** Many processes that list and search at the same time, and many sessions. */
  async listing(random, number) {
    if (number % 21 === 0) {
      const bench = fileURLToPath(new URL("../../bench/catalog.js", import.meta.url));
      const args = [bench, "--sessions", String(SESSIONS), "--json"];
      const figures = JSON.parse(execFileSync(process.execPath, args, { encoding: "utf8" }));
      expect(figures.sessions).toBe(SESSIONS);
      expect(figures.progressNotifications).toBeGreaterThanOrEqual(50);
      console.info(`a list takes ${figures.listP95} ms, a search ${figures.searchP95} ms (95 of 100)`);
      // 2 and 9 ms on an idle machine; a busy one takes three times as long, and another order of work a hundred times.
      expect(figures.listP95).toBeLessThanOrEqual(100);
      expect(figures.searchP95).toBeLessThanOrEqual(200);
      expect(figures.peakMegabytes).toBeLessThan(500);
      return { runs: 1, sessions: SESSIONS };
    }
    const sessions = number % 2 === 0 ? 1000 : 150;
    if (number % 2 === 0) await listTogether(32, sessions);
    else await indexTogether(random, 8, sessions, 3);
    return { runs: 1, sessions };
  },

  /** Eight servers on one session, in every combination of what servers may have in common, within 64 units. */
  async meeting(random, number) {
    const bit = (n: number): boolean => ((number >> n) & 1) === 1;
    const namespaces = bit(2) && OWN_NAMESPACES.length > 0;
    const figures = await meet(random, {
      ...{ store: bit(0) ? "v2" : "jsonl", kills: bit(1), namespaces, durability: bit(3) ? "os" : "sync" },
      ...{ states: bit(4) ? "different" : "same", attach: bit(5) ? "auto" : "off", servers: 8, wanted: 130 },
    });
    const { acknowledged } = figures;
    return {
      ...{ ...figures, lost: 0, doubled: 0, internalErrors: 0, dead: 0 },
      withNamespaces: namespaces ? acknowledged : 0,
      withSeveralNodes: NODES.length > 1 ? acknowledged : 0,
    };
  },

  /** The whole contract against a simple model, at times with the built program killed by SIGKILL. */
  async model(random, number) {
    const slow = number % 51 === 0;
    const lives = slow ? new SpawnedLives() : new HereLives({ seed: number });
    await runModel(random, lives, 1250, { store: storeOf(number), slow });
    return { operations: 1250 };
  },

  /** Turns of an agent behind a server, whose server, agent and client are killed at random. */
  recording(random, number) {
    const door = DOORS[number % DOORS.length];
    return door ? recordEditorAtRandom(random, 25, door) : recordAtRandom(random, 25);
  },

  /** A million entries in several shapes, walked by the built program within Node's default heap. */
  async scale(_random, number) {
    const shapes = Object.keys(SHAPES);
    const shape = shapes[(number - 1) % shapes.length];
    const lives = new SpawnedLives();
    const { megabytes, peakMegabytes, took } = await walk(lives, 1_000_000, shape, 20_000, () => lives.pid);
    console.info(`${shape}, ${megabytes} MB, peak ${peakMegabytes} MB, ms: ${JSON.stringify(took)}`);
    // Replies are built in memory, the session's bodies are not kept there.
    expect(peakMegabytes).toBeLessThan(2000);
    return { runs: 1, entries: 1_000_000 };
  },

  /** Two to eight hosts on one session, whose servers are killed at random. */
  sharing(random, number) {
    const [store, durability] = [storeOf(number + 1), number % 3 === 0 ? "sync" : "os"] as const;
    const heads = number % 4 < 2 ? 0 : 0.6;
    return shareAtRandom(random, { store, durability, servers: 2 + (number % 7), bursts: 40, kills: 0.4, heads });
  },

  /** SIGKILL at any time on the real file system: answered requests are there. */
  async sigkill(_random, number) {
    const args = ["--store", storeOf(number), "--durability", number % 4 < 2 ? "sync" : "os"];
    // Two servers at a time, each on a session of its own, which grows with the kills.
    const lane = (n: number) => killRuns(new Random(number * 2 + n), 25, args);
    const runs = (await Promise.all([lane(0), lane(1)])).flat();
    const sum = (name: keyof Killed): number => runs.reduce((all, run) => all + run[name], 0);
    expect(runs.filter(({ answered, recovered }) => recovered < answered)).toEqual([]);
    // A run with all answers before the kill shows nothing; on a machine with other work to do they are many.
    expect(runs.filter(({ sent, answered }) => answered < sent).length).toBeGreaterThan(runs.length / 4);
    const figures = { sent: sum("sent"), answered: sum("answered"), recovered: sum("recovered") };
    return { kills: runs.length, ...figures, lost: 0 };
  },

  /** The typed client and a server that is killed every few hundred writes. */
  async survival(random, number) {
    const client = await survivingClient(storeOf(number));
    try {
      const { misplaced, ...figures } = await writesUnderKills(client, 10_000, random);
      if (figures.lost + figures.doubled + misplaced > 0) throw new Error(JSON.stringify({ ...figures, misplaced }));
      return figures;
    } finally {
      await client.close();
    }
  },

  /** Random operations, undos and redos against the model, and several processes that undo at once. */
  async undo(random, number) {
    if (number % 10 === 0) return { operations: await undoTogether(4, 8, number % 20 === 0 ? "jsonl" : "v2"), runs: 1 };
    const model = await UndoModel.begin(random, storeOf(number));
    const steps = 10 + random.int(60);
    while (model.count < steps) await model.step();
    await model.end();
    return { operations: steps, runs: 1 };
  },

  /** A session that is watched while its writer and the connection are killed: everything is shown, in its order. */
  async view(random, number) {
    stopTimers();
    const { shown, expected, acknowledged } = await watchedThroughKills(random, storeOf(number), 10, 100);
    expect(shown).toEqual(expected);
    return { acknowledged, kills: 10, entries: expected.length };
  },

  /** Several writers on one session, with kills in between. No program but ours writes to containers. */
  async writers(random, number) {
    const run = [
      () => twoServers(random, 200),
      () => twoServers(random, 200, "v2"),
      () => withForeignWriter(random, 200),
    ];
    return { ...(await run[number % 3]()), lost: 0 };
  },
} satisfies Record<string, (random: Random, number: number) => Promise<Figures>>;

/** Runs the units of a storm that are still to be run. */
export function storm(name: keyof typeof STORMS): void {
  soak(name, STORMS[name]);
}
