/**
 * The care of a fleet by its verb: verify, import, export, migrate. Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { appendFileSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { FleetKeeping } from "../../../src/storage/fleet/care.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Place, Wire } from "../../support/server.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { type Run, runHere } from "../../support/verbs.ts";

/** The files below a folder, by their names. */
function filesBelow(folder: string): Map<string, Buffer> {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".jsonl"));
  return new Map(names.map((name) => [basename(name), readFileSync(join(folder, name))]));
}

describe("the care of a fleet", needs(POSTGRESQL), () => {
  let server: Postgres;
  const fleets: SqlFleet[] = [];
  const connect = (name: string): SqlFleet => {
    const fleet = sqlFleet(server.url, `${name} ${fleets.length}`);
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
  /** A machine with three sessions, one of them a fork. */
  const machine = async (
    fleet?: SqlFleet & { long?: number },
  ): Promise<{ lives: HereLives; wire: Wire; sessions: string }> => {
    const lives = new HereLives({ fleet, seed: 1 + fleets.length });
    const wire = await lives.start();
    for (const cwd of ["/home/me/app", "/home/me/other"]) {
      await wire.result("new_session", { cwd });
      await wire.result("append", {
        entries: [user("one \u0000 \ud800"), assistant("two"), user("three", { id: "three" }), assistant("four")],
      });
    }
    await wire.result("fork", { entryId: "three" });
    await wire.result("append", { entries: [user("in the fork")] });
    await lives.end();
    return { lives, wire, sessions: join(lives.place.home, ".pi/agent/sessions") };
  };

  beforeAll(async () => {
    server = new Postgres();
    await server.start();
    await connect("first").fleet.migrate();
  });
  beforeEach(() => {
    server.sql(
      "truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack, pi_fleet.behind, pi_fleet.described, pi_fleet.said, pi_fleet.word, pi_fleet.spent",
    );
  });
  afterAll(async () => {
    await Promise.all(fleets.map(({ fleet }) => fleet.close()));
    await server.close();
  });

  test("brings the sessions of a folder in, and writes the same bytes out elsewhere", async () => {
    const { lives, sessions } = await machine();
    const source = filesBelow(sessions);
    // A link to a folder is not followed, least of all to one that it is in.
    symlinkSync(sessions, join(sessions, "again"));
    const { files } = await asked(lives.place, "import", sessions);
    expect(files.map(({ outcome }: Json) => outcome)).toEqual(["new", "new", "new"]);
    expect((await asked(lives.place, "import", sessions)).files.map(({ outcome }: Json) => outcome)).toEqual([
      "known",
      "known",
      "known",
    ]);
    expect(filesBelow(sessions)).toEqual(source);
    const other = new HereLives({ seed: 9 }).place;
    const out = join(other.home, "out");
    expect((await asked(other, "export", out)).files.map(({ outcome }: Json) => outcome)).toEqual([
      "new",
      "new",
      "new",
    ]);
    expect(filesBelow(out)).toEqual(source);
    expect((await asked(other, "export", out)).files.map(({ outcome }: Json) => outcome)).toEqual([
      "known",
      "known",
      "known",
    ]);
    const [[name, bytes]] = source;
    const path = files.find(({ sessionPath }: Json) => basename(sessionPath) === name).sessionPath;
    const line =
      '{"type":"message","id":"more","parentId":null,"timestamp":"2026-01-24T16:22:26.831Z","message":{"role":"user","content":"more"}}';
    writeFileSync(path, Buffer.concat([bytes, Buffer.from(`${line}\n`)]));
    const again = await asked(lives.place, "import", sessions);
    expect(again.files.find(({ sessionPath }: Json) => sessionPath === path)).toMatchObject({ outcome: "continued" });
    const { status, stdout } = await fleetVerb(other, "export", out);
    expect(status).toBe(1);
    expect(stdout).toContain("Export to an empty folder");
  });

  test("what was acknowledged while the server was down is there afterwards, by fleet push, as a branch where others wrote", async () => {
    const one = connect("alone");
    const outage = new Outage(one.fleet, 0, () => 0);
    const lives = new HereLives({ fleet: { ...one, outage }, seed: 1 + fleets.length });
    const wire = await lives.start();
    const ids: string[] = [];
    for (const name of ["plain", "forked"]) {
      await wire.result("new_session");
      ids.push((await wire.result("get_state")).sessionId);
      await wire.result("append", { entries: [user(name)] });
    }
    await server.kill();
    const alone = await wire.result("append", { entries: [user("alone"), assistant("answer")] });
    expect(alone).toMatchObject({ durability: "local" });
    await wire.result("switch_session", { sessionId: ids[0] });
    expect(await wire.result("append", { entries: [user("alone")] })).toMatchObject({ durability: "local" });
    await lives.kill();
    await one.fleet.close();
    await server.start();
    // The lease of the process that is gone runs out.
    server.sql("update pi_fleet.session set lease_until = now()");
    const other = new HereLives({ fleet: connect("other"), seed: 1 + fleets.length });
    const theirs = await other.start();
    await theirs.result("switch_session", { sessionId: ids[1] });
    await theirs.result("append", { entries: [user("theirs")] });
    await other.end();
    // What only this machine has is found here, until it is given.
    const searched = await runHere(lives.place, ["search", "alone", "--json"], {
      variables: { PI_FLEET_URL: server.url },
    });
    expect(
      JSON.parse(searched.stdout)
        .hits.map(({ sessionId }: Json) => sessionId)
        .sort(),
    ).toEqual([...ids].sort());
    const { journal } = await asked(lives.place, "verify");
    expect(journal.filter(({ from }: Json) => from !== null)).toHaveLength(2);
    const { sessions } = await asked(lives.place, "push");
    const outcomes = new Map(sessions.map(({ sessionId, outcome }: Json) => [sessionId, outcome]));
    expect([outcomes.get(ids[0]), outcomes.get(ids[1])]).toEqual(["given", "branched"]);
    expect((await asked(lives.place, "push")).sessions).toEqual([]);
    const { faults, copies } = await asked(lives.place, "verify");
    expect([faults, copies.map(({ state }: Json) => state)]).toEqual([[], ["same", "same"]]);
    const { stdout } = await fleetVerb(lives.place, "verify");
    expect(stdout).toContain("are a branch since");
  });

  acrossTiers(test, ["jsonl", "v2"])(
    "a session of another folder is pushed from there, and one that is gone is said to be (%s)",
    async (store) => {
      const one = connect("elsewhere");
      const lives = new HereLives({
        fleet: { ...one, outage: new Outage(one.fleet, 0, () => 0) },
        seed: 1 + fleets.length,
      });
      const wire = await lives.start(["--store", store, "--session-dir", join(lives.place.home, "elsewhere")]);
      await server.kill();
      await wire.result("append", { entries: [user("alone")] });
      const { sessionId } = await wire.result("get_state");
      await wire.result("new_session");
      await wire.result("append", { entries: [user("lost")] });
      const lost = (await wire.result("get_state")).sessionFile;
      await lives.end();
      await one.fleet.close();
      await server.start();
      rmSync(lost, { recursive: true });
      const { sessions } = await asked(lives.place, "push");
      expect(sessions).toHaveLength(2);
      for (const { sessionId: id, outcome, sessionPath, message } of sessions)
        if (id === sessionId) expect(outcome).toBe("given");
        else {
          expect([outcome, sessionPath]).toEqual(["refused", lost]);
          expect(message).toMatch(/^Its file is gone/);
        }
      expect(server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toBe("1");
    },
  );

  test("says what it does not bring in as it is, and leaves out what goes on differently", async () => {
    const { lives, sessions } = await machine();
    await asked(lives.place, "import", sessions);
    const folder = join(lives.place.home, "more/deep");
    mkdirSync(folder, { recursive: true });
    const [[name, bytes]] = filesBelow(sessions);
    writeFileSync(join(folder, name), bytes.toString("utf8").replace('"one ', '"ONE '));
    writeFileSync(
      join(folder, "odd.jsonl"),
      bytes
        .toString("utf8")
        .replace(/"id":"01991f6e[^"]*"/, '"id":"odd"')
        .replaceAll("\n", "\n\n"),
    );
    writeFileSync(join(folder, "none.jsonl"), "no session\n");
    const { files, refused } = await asked(lives.place, "import", join(lives.place.home, "more"));
    const by = new Map(files.map((file: Json) => [basename(file.sessionPath), file]));
    expect(refused, JSON.stringify(files)).toBe(2);
    expect(by.get(name)).toMatchObject({ outcome: "refused", message: expect.stringMatching(/goes on differently/) });
    expect(by.get("odd.jsonl")).toMatchObject({ outcome: "new", message: expect.stringMatching(/empty lines/) });
    expect(by.get("none.jsonl")).toMatchObject({ outcome: "refused" });
  });

  test("a folder that cannot be read, and a file without entries, are left out and named, and the others are brought in", async () => {
    const { lives, sessions } = await machine();
    const disk: Disk = {
      ...realDisk,
      names(folder) {
        if (basename(folder) === "locked") throw Object.assign(new Error("refused"), { code: "EACCES" });
        return realDisk.names(folder);
      },
    };
    const [locked, empty] = [join(sessions, "locked"), join(sessions, "empty.jsonl")];
    mkdirSync(locked);
    const header = { type: "session", version: 3, id: "empty", timestamp: "2026-01-24T16:22:26.831Z", cwd: "/home/me" };
    writeFileSync(empty, `${JSON.stringify(header)}\n`);
    const bringing = new HereLives({ disk, fleet: connect("bringing"), seed: 1 + fleets.length });
    await bringing.start();
    for (const outcome of ["new", "known"]) {
      const files = await bringing.care().importFolder(sessions);
      const by = new Map(files.map((file) => [file.sessionPath, file]));
      expect(by.get(locked)).toMatchObject({ outcome: "refused", message: expect.stringContaining("EACCES") });
      expect(by.get(empty)).toMatchObject({ outcome: "refused", message: expect.stringContaining("no entries") });
      expect(files.filter((file) => file.outcome === outcome)).toHaveLength(3);
    }
    expect(server.sql("select count(*) from pi_fleet.session")).toBe("3");
    const missing = join(lives.place.home, "missing");
    const { status, stdout, stderr } = await fleetVerb(lives.place, "import", missing);
    expect([status, stderr]).toEqual([1, ""]);
    expect(stdout).toContain(`${missing}: The disk refused (ENOENT)`);
  });

  test("reads every line and every copy, and finds each of them that is not as it was", async () => {
    const { lives, sessions } = await machine(connect("one"));
    const { faults, copies, ...sums } = await asked(lives.place, "verify");
    expect(faults).toEqual([]);
    expect(copies.map(({ state }: Json) => state)).toEqual(["same", "same", "same"]);
    expect(sums).toMatchObject({ sessions: 3, entries: 11 });
    const [a, b, c] = copies.map(({ sessionId }: Json) => sessionId);
    server.sql(
      `update pi_fleet.entry set line = replace(encode(line, 'escape'), 'two', 'TWO')::bytea where session_id = '${a}'`,
    );
    server.sql(`delete from pi_fleet.entry where session_id = '${b}' and seq = 1`);
    server.sql(`update pi_fleet.entry set epoch = epoch + 9 where session_id = '${c}' and seq = 0`);
    server.sql(`update pi_fleet.session set indexed = 0 where id = '${c}'`);
    const found = await asked(lives.place, "verify");
    const kinds = found.faults.map(({ sessionId, fault }: Json) => [sessionId, fault]);
    expect(kinds.sort()).toEqual(
      [
        [a, "chain"],
        [b, "missing_rows"],
        [c, "epochs"],
        [c, "unindexed"],
      ].sort(),
    );
    const { status, stdout } = await fleetVerb(lives.place, "verify");
    expect(status).toBe(3);
    expect(stdout).toContain("4 faults in the database");
    // A copy that another program wrote to, one that it changed, and one that the fleet never had.
    server.sql("update pi_fleet.session set indexed = entries");
    const [one, two] = found.copies.map(({ sessionPath }: Json) => sessionPath);
    appendFileSync(one, '{"type":"message","id":"x","parentId":null,"message":{"role":"user","content":"x"}}\n');
    writeFileSync(two, readFileSync(two, "utf8").replace("three", "THREE"));
    writeFileSync(
      join(sessions, "--home-me-app--/2026-01-24T16-22-26-831Z_local.jsonl"),
      '{"type":"session","version":3,"id":"local","timestamp":"2026-01-24T16:22:26.831Z","cwd":"/home/me/app"}\n',
    );
    const states = (await asked(lives.place, "verify")).copies.map(({ state }: Json) => state);
    expect(states.sort()).toEqual(["ahead", "different", "only_here", "same"]);
  });

  test("makes sessions without facts listed, found and summed when it migrates", async () => {
    const { lives } = await machine(connect("one"));
    const wire = await new HereLives({ fleet: connect("two"), seed: 7 }).start();
    const before = await wire.result("list_sessions");
    const usage = await wire.result("get_usage", { groupBy: ["session"] });
    expect(before.total).toBe(3);
    server.sql("truncate pi_fleet.described, pi_fleet.said, pi_fleet.spent, pi_fleet.word");
    server.sql("update pi_fleet.session set indexed = 0, messages = 0, modified = null, is_plain = false");
    expect((await wire.result("list_sessions")).total).toBe(0);
    expect(await asked(lives.place, "migrate")).toMatchObject({ indexed: 3, inUse: [] });
    expect(await wire.result("list_sessions")).toEqual(before);
    expect(await wire.result("get_usage", { groupBy: ["session"] })).toEqual(usage);
    expect((await wire.result("search_sessions", { query: "hre" })).hits).toHaveLength(2);
    expect(await asked(lives.place, "migrate")).toMatchObject({ indexed: 0 });
    expect((await asked(lives.place, "verify")).faults).toEqual([]);
  });

  test("a migration names sessions that cannot be read, and goes on with the others", async () => {
    const { lives } = await machine({ ...connect("one"), long: 0 });
    const [id, header] = server.sql("select id from pi_fleet.session order by id").split("\n");
    server.sql(`update pi_fleet.pack set codec = 1, lines = '\\xff' where session_id = '${id}'`);
    server.sql(`update pi_fleet.session set header = 'none' where id = '${header}'`);
    server.sql("update pi_fleet.session set indexed = 0");
    const { status, stdout } = await fleetVerb(lives.place, "migrate");
    expect(status).toBe(1);
    for (const one of [id, header]) expect(stdout).toContain(`${one}: its header or lines cannot be read`);
    expect(await asked(lives.place, "migrate")).toMatchObject({ indexed: 0, inUse: [], unreadable: [id, header] });
    expect(server.sql("select count(*) from pi_fleet.session where indexed = entries")).toBe("1");
  });

  test("a long session is never held as a whole when its facts are gathered anew", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const one = connect("long");
    const given: WeakRef<Uint8Array>[] = [];
    let most = 0;
    const fleet = Object.assign(Object.create(one.fleet), {
      async *lines(id: string, from: number, to: number) {
        for await (const lines of one.fleet.lines(id, from, to))
          for (const line of lines) {
            const own = Uint8Array.from(line);
            given.push(new WeakRef(own));
            yield [own];
            if (given.length % 5 > 0) continue;
            await new Promise((resolve) => setTimeout(resolve));
            collect();
            most = Math.max(most, given.filter((ref) => ref.deref()).length);
          }
      },
    });
    const lives = new HereLives({ fleet: { ...one, fleet }, seed: 1 + fleets.length });
    const wire = await lives.start();
    const entries = Array.from({ length: 20 }, (_, n) => user(`${n} word${n} ${"x".repeat(1 << 16)}`));
    for (let n = 0; n < 20; n += 10) await wire.result("append", { entries: entries.slice(n, n + 10) });
    const facts = (): string =>
      server.sql(`select messages, modified, is_plain, indexed, (select facts from pi_fleet.described),
        (select string_agg(seq || ' ' || words, ' ' order by seq) from pi_fleet.said) from pi_fleet.session`);
    await vi.waitFor(() => expect(server.sql("select entries - indexed from pi_fleet.session")).toBe("0"), 30_000);
    const before = facts();
    server.sql("truncate pi_fleet.described, pi_fleet.said, pi_fleet.spent, pi_fleet.word");
    server.sql("update pi_fleet.session set indexed = 0, messages = 0, modified = null, is_plain = false");
    expect(await (lives.care() as FleetKeeping).index(undefined, 8 << 16)).toEqual({
      indexed: 1,
      inUse: [],
      unreadable: [],
    });
    expect(facts()).toBe(before);
    // Eight lines, what is on its way, and what the collector leaves.
    expect(most).toBeLessThan(15);
  });
});
