/**
 * Deleting, restoring, archiving, relocating, importing and repairing sessions of a fleet, and taking that back: another
 * machine sees it. Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import type { ServerFact } from "../../../src/storage/fleet/server-fact.ts";
import { suiteDatabase } from "../../support/database.ts";
import { assistant, user } from "../../support/drafts.ts";
import { withSideChains } from "../../support/foreign/claude.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Wire } from "../../support/server.ts";
import type { SqlFleet } from "../../support/sql-fleet.ts";
import { acrossTiers } from "../../support/tiers.ts";

describe("whole sessions of a fleet", needs(POSTGRESQL), () => {
  const database = suiteDatabase();
  const { connect, fleets } = database;
  interface Pair {
    readonly one: Wire;
    readonly two: Wire;
    readonly fleet: SqlFleet;
    /** A session that the first machine made and has closed. */
    readonly sessionId: string;
    readonly sessionPath: string;
    readonly home: string;
  }
  const pair = async (): Promise<Pair> => {
    database.server.sql(
      "truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack, pi_fleet.behind, pi_fleet.described, pi_fleet.said, pi_fleet.word, pi_fleet.spent",
    );
    const fleet = connect();
    const lives = new HereLives({ fleet, seed: fleets.length });
    const one = await lives.start();
    await one.result("new_session", { cwd: lives.place.cwd });
    await one.result("append", { entries: [user("one"), assistant("two"), user("three"), assistant("four")] });
    const { sessionId, sessionFile } = await one.result("get_state");
    await one.result("new_session");
    await one.result("close_session", { sessionId }).catch(() => {});
    const two = await new HereLives({ fleet: connect(), seed: fleets.length }).start();
    return { one, two, fleet, sessionId, sessionPath: sessionFile, home: lives.place.home };
  };
  const seenBy = async (wire: Wire, params: Json = {}): Promise<string[]> =>
    (await wire.result("list_sessions", params)).sessions.map(({ sessionId }: Json) => sessionId);
  /** Leaves a session, which is let go of beside everything else. */
  const letGo = async (wire: Wire, sessionId: string): Promise<void> => {
    await wire.result("new_session");
    const held = `select count(holder) from pi_fleet.session where id = '${sessionId}'`;
    await expect.poll(() => database.server.sql(held), { timeout: 30_000, interval: 20 }).toBe("0");
  };
  const stateOf = (sessionId: string): string =>
    database.server.sql(`select state from pi_fleet.session where id = '${sessionId}'`);

  test("one that is deleted is gone for all, and restoring or undoing brings it back for all", async () => {
    const { one, two, sessionId } = await pair();
    for (const back of ["restore", "undo"]) {
      const { operationId } = await one.result("delete_session", { sessionId });
      expect(await seenBy(two)).toEqual([]);
      expect((await two.failure("open_session", { sessionId })).data.name).toBe("session_not_found");
      if (back === "restore") await one.result("restore_session", { sessionId });
      else await one.result("undo", { operationId });
      expect(await seenBy(two)).toEqual([sessionId]);
    }
    const { operationId } = await one.result("redo", {});
    expect(operationId).toBeDefined();
    expect(stateOf(sessionId)).toBe("2");
  });

  test("one that another machine has made is deleted here, and its lines are kept in the trash", async () => {
    const { two, sessionId } = await pair();
    const { movedTo } = await two.result("delete_session", { sessionId });
    expect(readFileSync(movedTo, "utf8").trimEnd().split("\n")).toHaveLength(5);
    expect(await seenBy(two)).toEqual([]);
    await two.result("restore_session", { sessionId });
    expect(await seenBy(two)).toEqual([sessionId]);
  });

  test("one whose copy is here comes back, though the trash has an older state of it", async () => {
    const { one, two, sessionId, sessionPath } = await pair();
    for (const where of [{ sessionId }, { sessionPath }]) {
      await one.result("delete_session", { sessionId });
      await two.result("restore_session", { sessionId });
      await two.result("switch_session", { sessionId });
      await two.result("append", { entries: [user("by the other")] });
      await two.result("new_session");
      await one.result("open_session", { sessionId });
      await one.result("close_session", { sessionId });
      await two.result("delete_session", { sessionId });
      const restored = await one.result("restore_session", where);
      expect(restored).toMatchObject({ sessionId, movedTo: sessionPath });
      for (const wire of [one, two]) expect(await seenBy(wire)).toEqual([sessionId]);
      expect(readFileSync(sessionPath, "utf8")).toContain("by the other");
      // It is not deleted any more, and the older state is not put over it.
      expect((await one.failure("restore_session", where)).data.name).toBe("already_exists");
      expect(await seenBy(two)).toEqual([sessionId]);
    }
  });

  test("one at the place of another is not brought back in its stead", async () => {
    const { one, two, sessionId, sessionPath } = await pair();
    await one.result("append", { entries: [user("of the other")] });
    const { sessionId: other, sessionFile } = await one.result("get_state");
    await one.result("new_session");
    await one.result("delete_session", { sessionId });
    await two.result("delete_session", { sessionId: other });
    renameSync(sessionFile, sessionPath);
    expect((await one.failure("restore_session", { sessionPath })).data.name).toBe("already_exists");
    expect([stateOf(sessionId), stateOf(other)]).toEqual(["2", "2"]);
  });

  test("one that is deleted for good has no lines left, and no writer gets its id again", async () => {
    const { one, two, sessionId } = await pair();
    await two.result("open_session", { sessionId });
    await one.result("delete_session", { sessionId, permanent: true });
    for (const table of ["entry", "described", "said", "spent"])
      expect(
        database.server.sql(`select count(*) from pi_fleet.${table} where session_id = '${sessionId}'`),
        table,
      ).toBe("0");
    expect((await two.failure("append", { sessionId, entries: [user("late")] })).data.name).toBe("session_not_found");
    expect(await seenBy(one)).toEqual([]);
  });

  test("one that another machine writes to is neither deleted nor archived, and stays as it is", async () => {
    const { one, two, sessionId, sessionPath } = await pair();
    await two.result("switch_session", { sessionId });
    await two.result("append", { entries: [user("mine")] });
    for (const method of ["delete_session", "archive_session"]) {
      const { data } = await one.failure(method, { sessionId });
      expect(data).toMatchObject({ name: "session_locked", holder: { client: expect.stringContaining("machine") } });
    }
    expect(readFileSync(sessionPath, "utf8")).toContain("mine");
    await two.result("append", { entries: [user("mine, too")] });
  });

  test.each(["delete_session", "archive_session"])("an answer to %s that is lost is found out", async (method) => {
    const { one, two, fleet, sessionId } = await pair();
    const { connections } = fleet;
    const run = connections.run.bind(connections);
    let lost = 0;
    connections.run = async (question) => {
      const answer = await run(question);
      const { text } = typeof question === "function" ? question(connections.fact as ServerFact) : question;
      if (!text.includes("deleted_at = clock_timestamp()") && !text.includes("archived = $5")) return answer;
      return lost++ === 0 ? { kind: "unknown", reason: "test: the answer is lost" } : answer;
    };
    await one.result(method, { sessionId });
    expect(lost).toBe(2);
    expect(await seenBy(two)).toEqual([]);
  });

  test("one with entries that only this machine has gives them to the fleet before it is deleted", async () => {
    const fleet = connect();
    const outage = new Outage(fleet.fleet, 0, () => 0);
    const wire = await new HereLives({ fleet: { ...fleet, outage }, seed: fleets.length }).start();
    await wire.result("append", { entries: [user("one")] });
    const { sessionId } = await wire.result("get_state");
    const { connections } = fleet;
    const run = connections.run.bind(connections);
    connections.run = async () => ({ kind: "away", reason: "test: away" });
    expect(await wire.result("append", { entries: [user("alone")] })).toMatchObject({ durability: "local" });
    await wire.result("new_session");
    expect((await wire.failure("delete_session", { sessionId })).data.name).toBe("storage_failed");
    connections.run = run;
    await wire.result("delete_session", { sessionId });
    expect(database.server.sql(`select state, entries from pi_fleet.session where id = '${sessionId}'`)).toBe("2|2");
  });

  test("one that is archived is so for all, until it is brought back", async () => {
    const { one, two, sessionId } = await pair();
    const { operationId } = await one.result("archive_session", { sessionId });
    expect(await seenBy(two)).toEqual([]);
    expect(await seenBy(two, { archived: true })).toEqual([sessionId]);
    await one.result("unarchive_session", { sessionId });
    expect(await seenBy(two)).toEqual([sessionId]);
    expect(await seenBy(two, { archived: true })).toEqual([]);
    await one.result("archive_session", { sessionId });
    await one.result("undo", {});
    expect(await seenBy(two)).toEqual([sessionId]);
    expect(operationId).toBeDefined();
  });

  acrossTiers(test, ["jsonl", "v2"])(
    "one that is archived comes back on a machine that did not archive it (%s)",
    async (kind) => {
      const { one, sessionId } = await pair();
      const two = await new HereLives({ fleet: connect(), seed: fleets.length }).start(["--store", kind]);
      await two.result("switch_session", { sessionId });
      await two.result("new_session");
      const states = async (): Promise<string[][]> =>
        Promise.all(
          [one, two].map(async (wire) => [...(await seenBy(wire)), "|", ...(await seenBy(wire, { archived: true }))]),
        );
      for (const [by, other] of [
        [two, one],
        [one, two],
      ]) {
        await other.result("archive_session", { sessionId });
        expect(await states()).toEqual(Array(2).fill(["|", sessionId]));
        await by.result("unarchive_session", { sessionId });
        expect(await states()).toEqual(Array(2).fill([sessionId, "|"]));
        await by.result("undo", {});
        expect(await states()).toEqual(Array(2).fill(["|", sessionId]));
        await by.result("redo", {});
        expect(await states()).toEqual(Array(2).fill([sessionId, "|"]));
        expect((await by.failure("unarchive_session", { sessionId })).data.name).toBe("path_outside_root");
      }
    },
  );

  acrossTiers(test, ["jsonl", "v2"])(
    "one in the archive of this machine opens where it is, and is there once (%s)",
    async (kind) => {
      const { one: first, sessionId } = await pair();
      const lives = new HereLives({ fleet: connect(), seed: fleets.length });
      const one = await lives.start(["--store", kind]);
      await one.result("switch_session", { sessionId });
      await letGo(one, sessionId);
      const { movedTo } = await one.result("archive_session", { sessionId });
      for (const by of ["archived for all", "brought back by another machine"]) {
        if (by !== "archived for all") await first.result("unarchive_session", { sessionId });
        await first.result("switch_session", { sessionId });
        await first.result("append", { entries: [user(`by the first, ${by}`)] });
        await letGo(first, sessionId);
        for (const where of [{ sessionId }, { sessionId: sessionId.slice(0, -1) }, { sessionPath: movedTo }]) {
          expect(await one.result("switch_session", where)).toMatchObject({ sessionFile: movedTo });
          expect(JSON.stringify(await one.result("get_messages"))).toContain(`by the first, ${by}`);
          await one.result("append", { entries: [user(`here, ${by}`)] });
          await letGo(one, sessionId);
        }
        await first.result("switch_session", { sessionId });
        expect(JSON.stringify(await first.result("get_messages"))).toContain(`here, ${by}`);
        await letGo(first, sessionId);
      }
      await one.result("unarchive_session", { sessionId });
      const { movedTo: again } = await one.result("archive_session", { sessionId });
      expect(again).toBe(movedTo);
      expect((await one.result("delete_session", { sessionId })).sessionPath).toBe(movedTo);
      expect((await one.failure("open_session", { sessionId })).data.name).toBe("session_not_found");
    },
  );

  test("one that another machine has archived is a family of its own", async () => {
    const { one, two, sessionId } = await pair();
    const family = { root: sessionId, nodes: [{ sessionId, parentSession: null }] };
    expect(await two.result("get_session_family", { sessionId })).toMatchObject(family);
    await one.result("archive_session", { sessionId });
    expect(await two.result("get_session_family", { sessionId })).toMatchObject(family);
  });

  test("a whole id means that session, wherever it is, and not one whose id goes on", async () => {
    const { one, two } = await pair();
    const begin = async (wire: Wire, newSessionId: string): Promise<void> => {
      await wire.result("new_session", { newSessionId });
      await wire.result("append", { entries: [user(`in ${newSessionId}`)] });
      await wire.result("new_session");
    };
    const textIn = async (where: Json): Promise<string> => {
      await two.result("switch_session", where);
      const text = JSON.stringify(await two.result("get_messages"));
      await two.result("new_session");
      return text;
    };
    for (const id of ["task-1", "job-1", "way-1"]) await begin(one, id);
    for (const id of ["task-10", "task-11", "job-10", "way-10"]) await begin(two, id);
    const listed = (await two.result("list_sessions")).sessions as Json[];
    const { sessionPath } = listed.find(({ sessionId }) => sessionId === "way-1") as Json;
    expect(await textIn({ sessionPath })).toContain('in way-1"');
    for (const sessionId of ["task-1", "job-1"]) {
      expect(await textIn({ sessionId })).toContain(`in ${sessionId}"`);
      await two.result("archive_session", { sessionId });
      expect(await textIn({ sessionId })).toContain(`in ${sessionId}"`);
    }
    expect(await textIn({ sessionId: "job-10" })).toContain('in job-10"');
    expect(await textIn({ sessionId: "jo" })).toContain('in job-10"');
    expect((await two.failure("open_session", { sessionId: "task" })).data.name).toBe("ambiguous_id");
    await two.result("delete_session", { sessionId: "task-1" });
    expect(stateOf("task-1")).toBe("2");
  });

  test("one that gets another directory has it for all", async () => {
    const { one, two, sessionId, home } = await pair();
    await one.result("relocate_session", { sessionId, cwd: home });
    expect((await two.result("list_sessions")).sessions[0]).toMatchObject({ sessionId, cwd: home });
    await two.result("open_session", { sessionId });
    expect((await two.result("list_sessions", { here: true })).sessions[0].cwd).toBe(home);
    await one.result("undo", {});
    expect((await two.result("list_sessions")).sessions[0].cwd).not.toBe(home);
  });

  test("with the database away nothing is moved, and the sentence says so", async () => {
    const { one, fleet, sessionId, sessionPath } = await pair();
    await fleet.fleet.close();
    for (const method of ["delete_session", "archive_session"]) {
      const { message, data } = await one.failure(method, { sessionPath });
      expect(data.name).toBe("storage_failed");
      expect(message).toMatch(/Nothing was changed; try again/);
    }
    expect(readFileSync(sessionPath, "utf8")).toContain("four");
    expect(stateOf(sessionId)).toBe("1");
  });

  test("a file of one is known again where the session is not, and continues it", async () => {
    const { two, sessionId, sessionPath, home } = await pair();
    const file = join(home, "carried.jsonl");
    const line = readFileSync(sessionPath, "utf8");
    writeFileSync(file, line);
    expect(await two.result("import_session", { path: file })).toMatchObject({ sessionId, outcome: "known" });
    const last = JSON.parse(line.trimEnd().split("\n").at(-1) as string);
    const more = {
      type: "message",
      id: "more",
      parentId: last.id,
      timestamp: last.timestamp,
      message: { role: "user", content: "more" },
    };
    writeFileSync(file, `${line}${JSON.stringify(more)}\n`);
    expect(await two.result("import_session", { path: file })).toMatchObject({ sessionId, outcome: "continued" });
    expect(database.server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toBe("5");
  });

  test("an import that would continue one to which another machine writes is refused, and changes nothing", async () => {
    const { one, two, sessionId, sessionPath, home } = await pair();
    const before = readFileSync(sessionPath, "utf8");
    await two.result("switch_session", { sessionId });
    await two.result("append", { entries: [user("by the other")] });
    const file = join(home, "carried.jsonl");
    writeFileSync(file, before);
    expect(await one.result("import_session", { path: file })).toMatchObject({ outcome: "known" });
    const now = readFileSync(sessionPath, "utf8");
    writeFileSync(
      file,
      `${now}${now
        .trimEnd()
        .split("\n")
        .at(-1)
        ?.replace(/"id":"[^"]+"/, '"id":"further"')}\n`,
    );
    const { message, data } = await one.failure("import_session", { path: file });
    expect([data.name, message]).toEqual(["session_locked", expect.stringMatching(/is writing to this session/)]);
    expect(readFileSync(sessionPath, "utf8")).toBe(now);
    await two.result("new_session");
    expect(await one.result("import_session", { path: file })).toMatchObject({ outcome: "continued" });
    expect(database.server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toBe("6");
  });

  test("an import that the fleet has not got says so, and the same again gives it", async () => {
    const { one, two, fleet, home, sessionPath } = await pair();
    const file = join(home, "carried.jsonl");
    writeFileSync(file, readFileSync(sessionPath, "utf8").replace(/"id":"[^"]+"/, '"id":"carried"'));
    const { connections } = fleet;
    const run = connections.run.bind(connections);
    const away = async (): Promise<{ kind: "away"; reason: string }> => ({ kind: "away", reason: "test: away" });
    connections.run = async (question) => {
      const { text } = typeof question === "function" ? question(connections.fact as ServerFact) : question;
      return text.includes("pi_fleet.entry") && !text.startsWith("select") ? away() : run(question);
    };
    const { message, data } = await one.failure("import_session", { path: file });
    expect([data.name, message]).toEqual(["storage_failed", expect.stringMatching(/on this machine.*Import it again/)]);
    expect(readFileSync(data.sessionPath, "utf8")).toBe(readFileSync(file, "utf8"));
    connections.run = run;
    expect(await one.result("import_session", { path: file })).toMatchObject({ outcome: "known" });
    expect(await seenBy(two)).toContain("carried");
    await fleet.fleet.close();
    writeFileSync(file, readFileSync(file, "utf8").replace("carried", "second"));
    expect((await one.failure("import_session", { path: file })).message).toMatch(/Nothing was changed; try again/);
    expect((await one.result("list_sessions", { here: true, query: "second" })).sessions).toEqual([]);
  });

  test.each(["job", "a name of two words", "jobs-1"])(
    "a file with the id '%s' is imported, whatever ids are here",
    async (id) => {
      const { one, two, home, sessionPath } = await pair();
      for (const newSessionId of ["jobs-10", "jobs-11"]) {
        await two.result("new_session", { newSessionId });
        await two.result("append", { entries: [user("other")] });
      }
      const file = join(home, "carried.jsonl");
      writeFileSync(file, readFileSync(sessionPath, "utf8").replace(/"id":"[^"]+"/, `"id":"${id}"`));
      expect(await two.result("import_session", { path: file })).toMatchObject({ outcome: "new", sessionId: id });
      expect(await seenBy(one)).toContain(id);
      expect(await two.result("import_session", { path: file })).toMatchObject({ outcome: "known" });
    },
  );

  test("sessions within another agent's file come to the fleet with it, and are known on another machine", async () => {
    const { one, two, home } = await pair();
    const file = join(home, "7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11.jsonl");
    const { writer } = withSideChains();
    writeFileSync(file, writer.text);
    const { sessionId, subagents } = await one.result("import_session", { path: file });
    const ids = [sessionId, ...subagents.map((within: Json) => within.sessionId)];
    expect(ids).toHaveLength(3);
    expect(await seenBy(two)).toEqual(expect.arrayContaining(ids));
    const again = await two.result("import_session", { path: file });
    expect([again, ...again.subagents].map(({ outcome }: Json) => outcome)).toEqual(["known", "known", "known"]);
  });

  test("a copy whose lines are damaged is whole again when it is opened, and after a repair", async () => {
    const { one, sessionId, sessionPath } = await pair();
    for (const repairs of [false, true]) {
      const text = readFileSync(sessionPath, "utf8");
      writeFileSync(sessionPath, text.replace('"two"', '"tw'));
      if (repairs) {
        await one.result("repair_session", { sessionPath }).catch(() => {});
        await one.result("switch_session", { sessionPath });
        await one.result("repair_session").catch(() => {});
      } else await one.result("switch_session", { sessionId });
      await one.result("append", { entries: [user("after the damage")] });
      const { entries } = await one.result("get_entries");
      const texts = JSON.stringify(entries);
      for (const said of ["one", "two", "three", "four"]) expect(texts, `repairs: ${repairs}`).toContain(`"${said}"`);
      await one.result("new_session");
      await one.result("close_session", { sessionId }).catch(() => {});
    }
  });
});
