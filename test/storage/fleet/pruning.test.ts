/**
 * The removal of what a fleet keeps of deleted sessions, by its verb, and what old copies and trashes do afterwards.
 *
 * @module-tag system
 */

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { isolate } from "../../../src/storage/fleet/isolation.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { FleetPruning } from "../../../src/storage/fleet/pruning.ts";
import { Database } from "../../support/database.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Place, Wire } from "../../support/server.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { type Run, runHere } from "../../support/verbs.ts";

const TABLES = ["session", "entry", "described", "said", "word", "spent"];
const [LONG_AGO, DAY] = [40, 1];

describe("the pruning of a fleet", needs(POSTGRESQL), () => {
  let server: Database;
  const fleets: SqlFleet[] = [];
  const connect = (url = server.url): SqlFleet => {
    const fleet = sqlFleet(url, `machine ${fleets.length}`);
    fleets.push(fleet);
    return fleet;
  };
  const fleetVerb = (place: Place, ...args: string[]): Promise<Run> =>
    runHere(place, ["fleet", ...args], { variables: { PI_FLEET_URL: server.url } });
  const asked = async (place: Place, ...args: string[]): Promise<Json> => {
    const { stdout, stderr } = await fleetVerb(place, ...args, "--json");
    expect(stderr).toBe("");
    return JSON.parse(stdout);
  };
  const rowsOf = (sessionId: string): string[] =>
    ["entry", "described", "said", "spent"].map((table) =>
      server.sql(`select count(*) from pi_fleet.${table} where session_id = '${sessionId}'`),
    );
  const everything = (): string =>
    TABLES.map((table) => server.sql(`select t from pi_fleet.${table} t order by t::text`)).join("\n");
  const age = (sessionId: string, days: number): string =>
    server.sql(`update pi_fleet.session set deleted_at = now() - interval '${days} days' where id = '${sessionId}'`);
  interface Machine {
    readonly lives: HereLives;
    readonly wire: Wire;
    readonly place: Place;
    /** Makes a session with two entries, and closes it. */
    make(text: string): Promise<string>;
  }
  const machine = async (kind: string, fleet = connect() as SqlFleet & { outage?: Outage }): Promise<Machine> => {
    const lives = new HereLives({ fleet, seed: 1 + fleets.length });
    const wire = await lives.start(["--store", kind]);
    const make = async (text: string): Promise<string> => {
      await wire.result("new_session");
      await wire.result("append", { entries: [user(text), assistant(`answer to ${text}`)] });
      const { sessionId } = await wire.result("get_state");
      await wire.result("new_session");
      // The server gives the lease back after its reply.
      const held = `select count(*) from pi_fleet.session where id = '${sessionId}' and holder is not null`;
      await vi.waitFor(() => expect(server.sql(held)).toBe("0"), { timeout: 20_000 });
      return sessionId;
    };
    return { lives, wire, place: lives.place, make };
  };
  const textsOf = async (wire: Wire, sessionId: string): Promise<string> => {
    await wire.result("switch_session", { sessionId });
    const { entries } = await wire.result("get_entries");
    await wire.result("new_session");
    return JSON.stringify(entries);
  };
  const pruneNow = (place: Place): Promise<Json> => asked(place, "prune", "--older-than", "now", "--apply", "--yes");
  /** Returns a session with three entries, and a second machine whose copy lacks the last. */
  const lessOn = async (kind: string) => {
    const fleet = connect();
    const [one, two] = [await machine(kind, fleet), await machine(kind)];
    const sessionId = await one.make("one");
    await textsOf(two.wire, sessionId);
    await one.wire.result("switch_session", { sessionId });
    await one.wire.result("append", { entries: [user("later")] });
    await one.wire.result("new_session");
    return { fleet, one, two, sessionId };
  };
  const seenBy = async (wire: Wire): Promise<string[]> =>
    (await wire.result("list_sessions")).sessions.map(({ sessionId }: Json) => sessionId);

  beforeAll(async () => {
    server = new Database();
    await server.start();
  });
  beforeEach(() => {
    server.sql(`truncate ${TABLES.map((table) => `pi_fleet.${table}`).join(", ")}`);
  });
  afterAll(async () => {
    await Promise.all(fleets.map(({ fleet }) => fleet.close()));
    await server.close();
  });

  acrossTiers(describe, ["jsonl", "v2"])("with copies as %s", (kind) => {
    test("shows first, and removes rows of what was deleted long ago; its id stays taken, and a trash brings it back", async () => {
      const [one, two] = [await machine(kind), await machine(kind)];
      const [old, recent, present] = [await one.make("old"), await one.make("recent"), await one.make("present")];
      await textsOf(two.wire, old);
      for (const sessionId of [old, recent]) await one.wire.result("delete_session", { sessionId });
      age(old, LONG_AGO);
      age(recent, DAY);
      const before = everything();
      const preview = await asked(one.place, "prune");
      expect(preview).toMatchObject({
        applied: false,
        sessions: 1,
        entries: 2,
        named: [{ sessionId: old, name: "old" }],
      });
      expect((await fleetVerb(one.place, "prune", "--apply")).stderr).toContain("use --yes");
      expect(everything()).toBe(before);
      const { stdout } = await fleetVerb(one.place, "prune", "--apply", "--yes");
      expect(stdout).toContain("Removed for good: 1 session with 2 entries");
      expect(rowsOf(old)).toEqual(["0", "0", "0", "0"]);
      expect(server.sql(`select state, length(header) from pi_fleet.session where id = '${old}'`)).toBe("2|0");
      expect([rowsOf(recent)[0], rowsOf(present)[0]]).toEqual(["2", "2"]);
      expect(await asked(one.place, "prune")).toMatchObject({ sessions: 0, halfway: 0, unfinished: 0 });
      // A copy that was not asked for since.
      await two.wire.result("switch_session", { sessionId: old });
      const { data, message } = await two.wire.failure("append", { entries: [user("late")] });
      expect([data.name, message]).toEqual([
        "session_not_found",
        expect.stringContaining("was deleted from the fleet"),
      ]);
      expect(rowsOf(old)[0]).toBe("0");
      await two.wire.result("new_session");
      for (const sessionId of [old, recent]) {
        await one.wire.result("restore_session", { sessionId });
        expect(await seenBy(two.wire)).toContain(sessionId);
      }
      expect(await textsOf((await machine(kind)).wire, old)).toContain("answer to old");
      // The old copy goes on where it was.
      await two.wire.result("switch_session", { sessionId: old });
      await two.wire.result("append", { entries: [user("later")] });
      expect((await asked(one.place, "verify")).faults).toEqual([]);
    });

    test("deletes what nobody has written to for long, and any machine restores it, also one without a trash", async () => {
      const [one, two] = [await machine(kind), await machine(kind)];
      const ids = { idle: "", named: "", archived: "", held: "", fresh: "" };
      for (const name of Object.keys(ids) as (keyof typeof ids)[]) ids[name] = await one.make(name);
      const { idle, named, archived, held, fresh } = ids;
      await one.wire.result("switch_session", { sessionId: named });
      await one.wire.result("set_session_name", { name: "keep me" });
      await one.wire.result("new_session");
      await one.wire.result("archive_session", { sessionId: archived });
      await textsOf(two.wire, named);
      await one.wire.result("switch_session", { sessionId: held });
      await one.wire.result("append", { entries: [user("somebody is at work")] });
      server.sql(`update pi_fleet.session set changed_at = now() - interval '100 days' where id <> '${fresh}'`);
      const before = everything();
      const preview = await asked(one.place, "prune", "--until", "90d");
      expect(preview).toMatchObject({ applied: false, sessions: 0, idle: 2, idleNamed: 1, idleArchived: 0 });
      expect(preview.idleSessions.map(({ sessionId }: Json) => sessionId).sort()).toEqual([idle, named].sort());
      expect(await asked(one.place, "prune", "--until", "90d", "--unnamed")).toMatchObject({ idle: 1 });
      expect(await asked(one.place, "prune", "--until", "90d", "--archived")).toMatchObject({
        idle: 3,
        idleArchived: 1,
      });
      expect(await asked(one.place, "prune", "--until", "101d")).toMatchObject({ idle: 0 });
      expect((await fleetVerb(one.place, "prune", "--until", "90d", "--apply")).stderr).toContain("use --yes");
      expect((await fleetVerb(one.place, "prune", "--unnamed")).stderr).toContain("goes with --until");
      const pruning = new FleetPruning(connect().connections, "");
      const choice = { age: 90 * 86_400_000, archived: false, named: true };
      expect((await pruning.find({ rows: 1e12, idle: { ...choice, owed: [idle] } })).idle).toBe(1);
      expect(everything()).toBe(before);
      // Not even then do rows go at once of what was deleted just now.
      const { stdout } = await fleetVerb(
        one.place,
        "prune",
        "--until",
        "90d",
        "--older-than",
        "now",
        "--apply",
        "--yes",
      );
      expect(stdout).toContain("Deleted: 2 sessions");
      expect(stdout).toContain(idle);
      expect([rowsOf(idle)[0], rowsOf(named)[0]]).toEqual(["2", "3"]);
      const states = server.sql("select id from pi_fleet.session where state = 1 order by id");
      expect(states.split("\n").filter((id) => Object.values(ids).includes(id))).toEqual(
        [archived, held, fresh].sort(),
      );
      expect(await seenBy(two.wire)).not.toContain(idle);
      // Whoever has it open goes on, and so does whoever restores.
      await one.wire.result("append", { entries: [user("and goes on")] });
      await two.wire.result("switch_session", { sessionId: named });
      expect((await two.wire.failure("append", { entries: [user("late")] })).message).toContain(
        "deleted from the fleet",
      );
      await two.wire.result("new_session");
      await two.wire.result("restore_session", { sessionId: named });
      const three = await machine(kind);
      const restored = await three.wire.result("restore_session", { sessionId: idle });
      expect(restored).toMatchObject({ sessionId: idle, movedTo: restored.sessionPath });
      expect((await three.wire.failure("restore_session", { sessionId: idle })).data.name).toBe("session_not_found");
      expect(await textsOf(three.wire, idle)).toContain("answer to idle");
      for (const sessionId of [named, idle]) {
        await two.wire.result("switch_session", { sessionId });
        await two.wire.result("append", { entries: [user("later")] });
      }
      expect(await asked(one.place, "prune", "--until", "90d")).toMatchObject({ sessions: 0, idle: 0 });
      expect((await asked(one.place, "verify")).faults).toEqual([]);
    });

    test("the trash has all that the fleet has, or nothing is deleted", async () => {
      const [one, fleet] = [await machine(kind), connect()];
      const two = await machine(kind, fleet);
      const sessionId = await one.make("one");
      await textsOf(two.wire, sessionId);
      await one.wire.result("switch_session", { sessionId });
      await one.wire.result("append", { entries: [user("two"), assistant("acknowledged")] });
      await one.wire.result("new_session");
      // The copy cannot be brought up to date when it is looked for.
      const look = fleet.fleet.look.bind(fleet.fleet);
      for (let failing = 1; failing < 4; failing++) {
        let calls = 0;
        fleet.fleet.look = async (id) => {
          if (id === sessionId && ++calls <= failing)
            throw new Failure("storage_failed", "test: away", { fleet: true });
          return look(id);
        };
        await two.wire.result("delete_session", { sessionId }).catch(() => {});
        fleet.fleet.look = look;
        await pruneNow(two.place);
        await two.wire.result("restore_session", { sessionId }).catch(() => {});
        expect(rowsOf(sessionId)[0], `${failing} calls`).toBe("4");
        expect(await seenBy(one.wire)).toContain(sessionId);
      }
    });

    test("a restore that was interrupted is finished by the same again, before a prune and after it", async () => {
      const fleet = connect();
      const one = await machine(kind, fleet);
      const { keeper } = fleet;
      const restore = keeper.restore.bind(keeper);
      for (const isPruned of [false, true]) {
        const sessionId = await one.make(`pruned: ${isPruned}`);
        await one.wire.result("delete_session", { sessionId });
        keeper.restore = async () => {
          throw new Failure("storage_failed", "test: away", { fleet: true });
        };
        expect((await one.wire.failure("restore_session", { sessionId })).data.name).toBe("storage_failed");
        keeper.restore = restore;
        if (isPruned) await pruneNow(one.place);
        await one.wire.result("restore_session", { sessionId });
        expect(rowsOf(sessionId)[0]).toBe("2");
        expect(await seenBy((await machine(kind)).wire)).toContain(sessionId);
        expect((await one.wire.failure("restore_session", { sessionId })).data.name).toBe("session_not_found");
      }
    });

    test("a restore on a machine that has nothing of the session, and was interrupted, is finished by the same again", async () => {
      const [one, fleet] = [await machine(kind), connect()];
      const three = await machine(kind, fleet);
      const sessionId = await one.make("one");
      await one.wire.result("delete_session", { sessionId });
      const look = fleet.fleet.look.bind(fleet.fleet);
      fleet.fleet.look = async (id) => {
        if (id !== sessionId) return look(id);
        fleet.fleet.look = look;
        throw new Failure("storage_failed", "test: away", { fleet: true });
      };
      expect((await three.wire.failure("restore_session", { sessionId })).data.name).toBe("storage_failed");
      const restored = await three.wire.result("restore_session", { sessionId });
      expect(restored).toMatchObject({ sessionId, movedTo: restored.sessionPath });
      expect(await textsOf(three.wire, sessionId)).toContain("answer to one");
      const unknown = sessionId.replace(/.$/, (last: string) => (last === "0" ? "1" : "0"));
      expect((await three.wire.failure("restore_session", { sessionId: unknown })).data.name).toBe("session_not_found");
    });

    test("a trash that lacks a part of what the fleet had does not take its place", async () => {
      const fleet = connect();
      const [one, two] = [await machine(kind, fleet), await machine(kind)];
      const sessionId = await one.make("one");
      // The deletion is done on this machine, and the fleet is not told.
      const { keeper } = fleet;
      const keep = keeper.keep.bind(keeper);
      keeper.keep = async () => false;
      await one.wire.failure("delete_session", { sessionId });
      keeper.keep = keep;
      await two.wire.result("switch_session", { sessionId });
      await two.wire.result("append", { entries: [user("later")] });
      await two.wire.result("new_session");
      await two.wire.result("delete_session", { sessionId });
      await pruneNow(two.place);
      for (let times = 0; times < 2; times++) {
        const { message, data } = await one.wire.failure("restore_session", { sessionId });
        expect([data.name, message]).toEqual(["storage_failed", expect.stringMatching(/this file lacks/)]);
        expect(data.retryable).toBe(false);
        if (kind === "jsonl") expect(readFileSync(data.sessionPath, "utf8")).toContain("one");
      }
      expect(rowsOf(sessionId)[0]).toBe("0");
      await two.wire.result("restore_session", { sessionId });
      expect(rowsOf(sessionId)[0]).toBe("3");
      expect(await textsOf(one.wire, sessionId)).toContain("later");
    });

    test("while a machine gives back what was pruned, no copy with less begins it, and no prune forgets it", async () => {
      const { fleet, one, two, sessionId } = await lessOn(kind);
      await one.wire.result("delete_session", { sessionId });
      await pruneNow(one.place);
      const { keeper } = fleet;
      const beginAgain = keeper.beginAgain.bind(keeper);
      let refusal: Json | undefined;
      keeper.beginAgain = async (...given) => {
        const isBegun = await beginAgain(...given);
        await pruneNow(two.place);
        await two.wire.result("switch_session", { sessionId });
        refusal = (await two.wire.request("append", { entries: [user("less")] })).error;
        await two.wire.result("new_session");
        return isBegun;
      };
      await one.wire.result("restore_session", { sessionId });
      expect(refusal?.data.name).toBe("session_locked");
      expect(rowsOf(sessionId)[0]).toBe("3");
      expect(await textsOf(two.wire, sessionId)).toContain("later");
    });

    test("a sweep that goes on while a machine gives back what was pruned takes none of its parts", async () => {
      const fleet = { ...connect(), partBytes: 4096 };
      const one = await machine(kind, fleet);
      const sessionId = await one.make("word ".repeat(3000));
      await one.wire.result("delete_session", { sessionId });
      const { connections } = connect();
      const run = connections.run.bind(connections);
      let goOn = (): void => {};
      const isLetGo = new Promise<void>((resolve) => {
        goOn = resolve;
      });
      let isStopped = false;
      connections.run = async (question, sent) => {
        const { text } = typeof question === "function" ? question({ durability: "primary", version: "" }) : question;
        if (text.includes("delete from pi_fleet.entry")) {
          isStopped = true;
          await isLetGo;
        }
        return run(question, sent);
      };
      const pruning = new FleetPruning(connections, "").prune({ rows: 0 });
      await vi.waitFor(() => expect(isStopped).toBe(true));
      const parts = (): number => Number(server.sql("select count(*) from pi_fleet.pack where generation < 0"));
      const seen: number[] = [];
      const append = fleet.fleet.append.bind(fleet.fleet);
      fleet.fleet.append = async (batch) => {
        if (batch.place !== undefined && seen.length === 0) {
          seen.push(parts());
          goOn();
          await pruning;
          seen.push(parts());
        }
        return append(batch);
      };
      await one.wire.result("restore_session", { sessionId });
      expect(seen[0]).toBeGreaterThan(1);
      expect(seen[1]).toBe(seen[0]);
      expect(parts()).toBe(0);
      expect(await textsOf((await machine(kind)).wire, sessionId)).toContain("answer to word");
    });

    test("a restore whose lines do not come to the fleet says so, and the same again finishes it", async () => {
      const { fleet, one, two, sessionId } = await lessOn(kind);
      const remote = fleet.fleet;
      const append = remote.append.bind(remote);
      for (const isDeletedAgain of [false, true]) {
        await one.wire.result("delete_session", { sessionId });
        await pruneNow(one.place);
        remote.append = async () => ({ kind: "away", reason: "test: away" });
        const { data, message } = await one.wire.failure("restore_session", { sessionId });
        expect([data.name, message]).toEqual(["storage_failed", expect.stringContaining("restore it again")]);
        remote.append = append;
        await pruneNow(one.place);
        // A copy that has less does not begin it, and what is deleted meanwhile has no lines to come back with.
        if (isDeletedAgain) await two.wire.result("delete_session", { sessionId });
        else {
          await two.wire.result("switch_session", { sessionId });
          const { data: refused } = await two.wire.failure("append", { entries: [user("less")] });
          expect(refused.name).toBe("session_not_found");
          await two.wire.result("new_session");
          await two.wire.request("restore_session", { sessionId });
          expect(rowsOf(sessionId)[0]).toBe("0");
        }
        await one.wire.result("restore_session", { sessionId });
        expect(rowsOf(sessionId)[0]).toBe("3");
        expect(await textsOf((await machine(kind)).wire, sessionId)).toContain("later");
      }
    });

    test("a restore on a machine that goes on alone is not done before the fleet has the lines", async () => {
      const fleet = connect();
      const { wire, place, make } = await machine(kind, { ...fleet, outage: new Outage(fleet.fleet, 0, () => 0) });
      const sessionId = await make("one");
      await wire.result("delete_session", { sessionId });
      await pruneNow(place);
      const append = fleet.fleet.append.bind(fleet.fleet);
      fleet.fleet.append = async () => ({ kind: "away", reason: "test: away" });
      expect((await wire.failure("restore_session", { sessionId })).data.name).toBe("storage_failed");
      fleet.fleet.append = append;
      await wire.request("restore_session", { sessionId });
      await vi.waitFor(() => expect(rowsOf(sessionId)[0]).toBe("2"), { timeout: 20_000 });
    });

    test("an append that only the disk got before a server died is in the fleet when its repeat is acknowledged", async () => {
      const before = new HereLives({ seed: 1 });
      const params = { entries: [user("one"), assistant("answer")], idempotencyKey: "a key" };
      const dying = await before.start(["--store", kind]);
      await dying.result("append", params);
      const { sessionId } = await dying.result("get_state");
      await before.end();
      const wire = await new HereLives({ fleet: connect(), place: before.place, seed: 2 }).start(["--store", kind]);
      await wire.result("switch_session", { sessionId });
      await wire.result("append", params);
      expect(rowsOf(sessionId)[0]).toBe("2");
    });

    test("what only a machine has that was away is told to it, and is there after a restore", async () => {
      const fleet = connect();
      const away = await machine(kind, { ...fleet, outage: new Outage(fleet.fleet, 0, () => 0) });
      const other = await machine(kind);
      const sessionId = await away.make("one");
      const { connections } = fleet;
      const run = connections.run.bind(connections);
      connections.run = async () => ({ kind: "away", reason: "test: away" });
      await away.wire.result("switch_session", { sessionId });
      expect(await away.wire.result("append", { entries: [user("alone")] })).toMatchObject({ durability: "local" });
      await away.lives.end();
      server.sql("update pi_fleet.session set lease_until = now()");
      await other.wire.result("delete_session", { sessionId });
      age(sessionId, LONG_AGO);
      await asked(other.place, "prune", "--apply", "--yes");
      connections.run = run;
      const refused = await asked(away.place, "push");
      expect(refused).toMatchObject({
        refused: 1,
        sessions: [{ outcome: "refused", message: expect.stringContaining("was deleted from the fleet") }],
      });
      await other.wire.result("restore_session", { sessionId });
      // Who restored it lets go of it beside everything else.
      await vi.waitFor(
        async () => expect((await asked(away.place, "push")).sessions).toMatchObject([{ outcome: "given" }]),
        { timeout: 20_000 },
      );
      expect(await textsOf(other.wire, sessionId)).toContain("alone");
    });
  });

  acrossTiers(test, [16, 3])(
    "nothing is lost when it ends at any step, and the next one finishes it (each of %i)",
    async (stride) => {
      const { wire, place, make } = await machine("jsonl");
      const all: { kept: string; gone: string }[] = [];
      let isWhole = false;
      for (let most = 1; !isWhole; most += stride) {
        const [kept, gone] = [await make(`kept ${most}`), await make(`gone ${most}`)];
        all.push({ kept, gone });
        for (const sessionId of [kept, gone]) {
          await wire.result("delete_session", { sessionId });
          age(sessionId, LONG_AGO);
        }
        const { connections } = connect();
        const run = connections.run.bind(connections);
        let calls = 0;
        connections.run = async (question) =>
          ++calls > most ? { kind: "away", reason: "test: it ends here" } : run(question);
        isWhole = await new FleetPruning(connections, "").prune({ rows: 30 * 86_400_000 }).then(
          () => true,
          () => false,
        );
        await wire.result("restore_session", { sessionId: kept });
        expect(rowsOf(kept)[1], `after ${most} calls`).toBe("1");
      }
      await asked(place, "prune", "--apply", "--yes");
      for (const { kept, gone } of all) {
        expect(rowsOf(gone)).toEqual(["0", "0", "0", "0"]);
        expect([rowsOf(kept)[0], rowsOf(kept)[2]]).toEqual(["2", "2"]);
      }
      expect((await seenBy(wire)).sort()).toEqual(all.map(({ kept }) => kept).sort());
      expect((await asked(place, "verify")).faults).toEqual([]);
    },
  );

  describe.each(["it ends", "it is taken"])("of what nobody writes to, where %s", (befalls) => {
    acrossTiers(test, [5, 1])(
      "ends at any step, and races with whoever takes it: it is there, or can be restored (each of %i)",
      async (stride) => {
        const { wire, make, place } = await machine("jsonl");
        const taker = connect();
        const idle = { age: 90 * 86_400_000, archived: false, named: true, owed: [] };
        let made = 0;
        let isWhole = false;
        const fates = new Set<string>();
        for (let most = 1; !isWhole; most += stride, made++) {
          const [old, unwritten] = [await make(`old ${most}`), await make(`unwritten ${most}`)];
          await wire.result("delete_session", { sessionId: old });
          age(old, LONG_AGO);
          server.sql(`update pi_fleet.session set changed_at = now() - interval '100 days' where id = '${unwritten}'`);
          const { connections } = connect();
          const run = connections.run.bind(connections);
          let [calls, fate] = [0, ""];
          connections.run = async (question) => {
            if (++calls === most && befalls === "it is taken") {
              const taking = await taker.fleet.take(unwritten, 0);
              fate = taking.kind;
            }
            return calls > most && befalls === "it ends"
              ? { kind: "away", reason: "test: it ends here" }
              : run(question);
          };
          const pruned = await new FleetPruning(connections, "")
            .prune({ rows: 30 * 86_400_000, idle })
            .catch(() => null);
          isWhole = befalls === "it ends" ? pruned !== null : calls < most;
          const state = server.sql(`select state from pi_fleet.session where id = '${unwritten}'`);
          if (befalls === "it ends") fate = state === "2" ? "deleted" : "there";
          else if (!isWhole) expect(state, `${most} ${fate}`).toBe(fate === "taken" ? "1" : "2");
          if (pruned) {
            const of = pruned.idleSessions.map(({ sessionId }) => sessionId);
            const isGone = state === "2";
            expect([pruned.idle, pruned.idleBytes > 0, of]).toEqual([
              isGone ? 1 : 0,
              isGone,
              isGone ? [unwritten] : [],
            ]);
          }
          fates.add(fate);
          expect(rowsOf(unwritten)[0], `${befalls} at ${most}`).toBe("2");
          if (state === "2") await wire.result("restore_session", { sessionId: unwritten });
          server.sql("update pi_fleet.session set holder = null, lease_until = null, changed_at = now()");
        }
        expect([...fates].filter(Boolean).sort()).toEqual(
          befalls === "it ends" ? ["deleted", "there"] : ["deleted", "taken"],
        );
        expect(server.sql("select count(*) from pi_fleet.session s where state = 1 and entries = 2")).toBe(`${made}`);
        expect((await asked(place, "verify")).faults).toEqual([]);
      },
    );
  });

  test("passes by a session whose row somebody changes just now, and tells of what went alone", async () => {
    const { make, place } = await machine("jsonl");
    const [idle, busy] = [await make("idle"), await make("busy")];
    server.sql("update pi_fleet.session set changed_at = now() - interval '100 days'");
    server.sql("begin");
    server.sql(`update pi_fleet.session set messages = messages where id = '${busy}'`);
    const { stdout } = await fleetVerb(place, "prune", "--until", "90d", "--apply", "--yes");
    const size = server.sql(`select bytes from pi_fleet.session where id = '${idle}'`);
    server.sql("commit");
    expect(stdout).toContain(`Deleted: 1 session (${size} B)`);
    expect(stdout).toContain(idle);
    expect(stdout).not.toContain(busy);
    expect(server.sql("select id from pi_fleet.session where state = 1")).toBe(busy);
  });

  test("two at once remove nothing of a session that began anew between them", async () => {
    const { wire, make } = await machine("jsonl");
    const two = await machine("v2");
    const sessionId = await make("one");
    await textsOf(two.wire, sessionId);
    await wire.result("delete_session", { sessionId });
    const slow = connect();
    const { connections } = slow;
    const run = connections.run.bind(connections);
    let isBegun = false;
    connections.run = async (question, sent) => {
      const { text } = typeof question === "function" ? question({ durability: "primary", version: "" }) : question;
      if (!isBegun && text.includes("delete from pi_fleet.entry")) {
        isBegun = true;
        await new FleetPruning(connect().connections, "").prune({ rows: 0, ids: 0 });
        await two.wire.result("switch_session", { sessionId });
        await two.wire.result("append", { entries: [user("anew")] });
        await two.wire.result("new_session");
      }
      return run(question, sent);
    };
    await new FleetPruning(connections, "").prune({ rows: 0 });
    expect(isBegun).toBe(true);
    expect(server.sql(`select generation, entries from pi_fleet.session where id = '${sessionId}'`)).toBe("0|3");
    expect(rowsOf(sessionId)[0]).toBe("3");
  });

  test("a session that is deleted for good leaves its id, and its words for a day", async () => {
    const { wire, place, make } = await machine("jsonl");
    const [sessionId, other] = [await make("xylophone common"), await make("common")];
    await wire.result("delete_session", { sessionId, permanent: true });
    expect(rowsOf(sessionId)).toEqual(["0", "0", "0", "0"]);
    expect(server.sql(`select length(header) from pi_fleet.session where id = '${sessionId}'`)).toBe("0");
    const noted = (): string => server.sql("select word from pi_fleet.word where unused_since is not null order by 1");
    expect(noted()).toBe("answer\ncommon\nto\nxylophone");
    expect(await asked(place, "prune", "--apply", "--yes")).toMatchObject({ words: 0 });
    server.sql("update pi_fleet.word set unused_since = unused_since - interval '2 days'");
    // A process that writes a word again wants it.
    const late = await machine("jsonl");
    await late.make("to");
    expect(noted()).toBe("common\nxylophone");
    expect(await asked(place, "prune", "--apply", "--yes")).toMatchObject({ words: 1 });
    expect(server.sql("select string_agg(word, ' ' order by word) from pi_fleet.word")).toBe("answer common to");
    expect(noted()).toBe("");
    expect(await seenBy(wire)).toContain(other);
  });

  test("ids are given up when that is asked for, and a copy begins such a session again", async () => {
    const { wire, place, make } = await machine("jsonl");
    const two = await machine("jsonl");
    const sessionId = await make("one");
    await textsOf(two.wire, sessionId);
    await wire.result("delete_session", { sessionId });
    age(sessionId, LONG_AGO);
    expect((await fleetVerb(place, "prune", "--forget-ids", "1d")).status).toBe(2);
    await asked(place, "prune", "--apply", "--yes");
    expect(await asked(place, "prune", "--forget-ids", "60d")).toMatchObject({ ids: 0 });
    expect(await asked(place, "prune", "--forget-ids", "35d", "--apply", "--yes")).toMatchObject({ ids: 1 });
    expect(server.sql(`select count(*) from pi_fleet.session where id = '${sessionId}'`)).toBe("0");
    await two.wire.result("switch_session", { sessionId });
    await two.wire.result("append", { entries: [user("again")] });
    expect(await textsOf(wire, sessionId)).toContain("again");
  });

  test("a session that was begun and never finished goes when nobody has it, and whoever goes on begins it again", async () => {
    const { wire, place, make } = await machine("jsonl");
    const ids = [await make("held"), await make("left")];
    server.sql("update pi_fleet.session set state = 0, holder = null, changed_at = now() - interval '40 days'");
    server.sql(
      `update pi_fleet.session set holder = 'somebody', lease_until = now() + interval '1 minute' where id = '${ids[0]}'`,
    );
    expect(await asked(place, "prune", "--apply", "--yes")).toMatchObject({ unfinished: 1 });
    expect(server.sql("select id from pi_fleet.session where state = 0")).toBe(ids[0]);
    expect([rowsOf(ids[0])[0], rowsOf(ids[1])[0]]).toEqual(["2", "0"]);
    await wire.result("switch_session", { sessionId: ids[1] });
    await wire.result("append", { entries: [user("goes on")] });
    expect(rowsOf(ids[1])[0]).toBe("3");
    expect((await asked(place, "verify")).faults).toEqual([]);
  });

  test("is told by status, and takes its options alone", async () => {
    const { wire, place, make } = await machine("jsonl");
    await wire.result("delete_session", { sessionId: await make("one") });
    expect(await asked(place, "status")).toMatchObject({ sessions: 0, deleted: { sessions: 1, entries: 2 } });
    expect((await fleetVerb(place, "status")).stdout).toContain("1 session is deleted and can be restored");
    expect((await fleetVerb(place, "status", "--apply")).stderr).toContain("--apply goes with fleet prune");
    expect((await fleetVerb(place, "prune", "--older-than", "soon")).status).toBe(2);
  });

  test("a tenant prunes what is its own", async () => {
    const { wire, make } = await machine("jsonl");
    await wire.result("delete_session", { sessionId: await make("of nobody") });
    await isolate(connect().connections);
    for (const role of ["alice", "mallory"]) {
      const url = `${server.url.replace("user=fleet", `user=${role}`)}&tenant=${role}`;
      const theirs = await machine("jsonl", connect(url));
      await theirs.wire.result("delete_session", { sessionId: await theirs.make(role) });
      await theirs.make("stays");
    }
    server.sql("update pi_fleet.session set deleted_at = now() - interval '40 days' where state = 2");
    const variables = { PI_FLEET_URL: `${server.url.replace("user=fleet", "user=mallory")}&tenant=mallory` };
    const pruned = async (): Promise<Json> =>
      JSON.parse((await runHere(place, ["fleet", "prune", "--apply", "--yes", "--json"], { variables })).stdout);
    const { place } = new HereLives({});
    expect(await pruned()).toMatchObject({ sessions: 1, entries: 2 });
    const left = "select string_agg(tenant || count, ' ' order by tenant) from (select tenant, count(*) from pi_fleet";
    expect(server.sql(`${left}.entry group by tenant) x`)).toBe("2 alice4 mallory2");
    server.sql("update pi_fleet.word set unused_since = now() - interval '2 days'");
    expect(await pruned()).toMatchObject({ words: 1 });
    expect(server.sql("select string_agg(word, ' ' order by word) from pi_fleet.word where tenant = 'mallory'")).toBe(
      "answer stays to",
    );
    // Those of the others stay as they are.
    expect(server.sql("select count(*) from pi_fleet.word where unused_since is not null")).toBe("8");
  });
});
