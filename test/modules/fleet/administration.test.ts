/**
 * The administration of a fleet by its verb: verify, import, export, migrate. Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import type { FleetAdminService } from "../../../src/modules/fleet/admin/admin.ts";
import { FleetPruning } from "../../../src/modules/fleet/admin/pruning.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { assistant, user } from "../../support/drafts.ts";
import { collectGarbage } from "../../support/garbage.ts";
import { fileText, headerText, userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives, type HereLivesOptions } from "../../support/proof.ts";
import { type Json, temporaryPlace } from "../../support/server.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";
import { Database, suiteServer } from "./support/database.ts";
import { fleetSuite, newSession } from "./support/sql-machines.ts";

/** The paths of the files below a folder. */
function filesIn(folder: string): string[] {
  const all = existsSync(folder) ? readdirSync(folder, { recursive: true, withFileTypes: true }) : [];
  return all.filter((one) => one.isFile()).map(({ parentPath, name }) => join(parentPath, name));
}

/** The session files below a folder, by their names. */
function filesBelow(folder: string): Map<string, Buffer> {
  const paths = filesIn(folder).filter((path) => path.endsWith(".jsonl"));
  return new Map(paths.map((path) => [basename(path), readFileSync(path)]));
}

describe("the care of a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite(suiteServer());
  const sql = (text: string): string => suite.sql(text);
  /** Brings a folder in, or writes one. Returns what became of each session. */
  const outcomes = async (machine: HereLives, words: string): Promise<string[]> =>
    (await suite.runVerb(words, machine.place)).files.map(({ outcome }: Json) => outcome);
  const three = (outcome: string): string[] => [outcome, outcome, outcome];
  /** A machine with three sessions, one of them a fork, and the folder where they are. */
  const filled = async (options: HereLivesOptions = {}) => {
    const machine = suite.lives(options);
    const wire = await machine.start();
    const talk = [user("one \u0000 \ud800"), assistant("two"), user("three", { id: "three" }), assistant("four")];
    for (const cwd of ["/home/me/app", "/home/me/other"]) await newSession(wire, talk, { cwd });
    await wire.result("fork", { entryId: "three" });
    await wire.result("append", { entries: [user("in the fork")] });
    await machine.end();
    return { machine, sessions: join(machine.place.home, ".pi/agent/sessions") };
  };

  /** Returns a fleet whose lines come one by one, each after something else. */
  const lineByLine = (before: (line: Uint8Array) => unknown) => {
    const one = suite.connect();
    async function* lines(id: string, from: number, to: number) {
      for await (const some of one.fleet.lines(id, from, to))
        for (const line of some) {
          const own = Uint8Array.from(line);
          await before(own);
          yield [own];
        }
    }
    return { ...one, fleet: Object.assign(Object.create(one.fleet), { lines }) };
  };

  test("brings the sessions of a folder in, and writes the same bytes out elsewhere", async () => {
    const { machine, sessions } = await filled({ fleet: undefined });
    const source = filesBelow(sessions);
    // A link to a folder is not followed, least of all to one that it is in.
    symlinkSync(sessions, join(sessions, "again"));
    for (const outcome of ["new", "known"])
      expect(await outcomes(machine, `import ${sessions}`)).toEqual(three(outcome));
    expect(filesBelow(sessions)).toEqual(source);
    const other = suite.lives({ fleet: undefined });
    const out = join(other.place.home, "out");
    for (const outcome of ["new", "known"]) {
      expect(await outcomes(other, `export ${out}`)).toEqual(three(outcome));
      expect(filesBelow(out)).toEqual(source);
    }
    const { files } = await suite.runVerb(`import ${sessions}`, machine.place);
    const [{ sessionPath }] = files;
    appendFileSync(sessionPath, `${userText("more", null)}\n`);
    expect((await outcomes(machine, `import ${sessions}`)).sort()).toEqual(["continued", "known", "known"]);
    const { status, stdout } = await suite.verb(`export ${out}`, other.place);
    expect([status, stdout]).toEqual([1, expect.stringContaining("Export to an empty folder")]);
  });

  test("push fetches a container again whose header has another id, and names none that this machine alone has", async () => {
    const { lives, wire, place } = await suite.machine({ args: ["--store", "v2"] });
    const sessionId = await newSession(wire, [user("one")]);
    const { sessionFile } = await wire.result("get_state");
    await lives.end();
    const header = join(sessionFile, "header.jsonl");
    const whole = readFileSync(header, "utf8");
    writeFileSync(header, whole.replace(sessionId, `(${sessionId.slice(1)}`));
    const { status, stdout } = await suite.verb("push", place);
    expect([status, stdout, readFileSync(header, "utf8")]).toEqual([
      0,
      expect.stringContaining("has all entries"),
      whole,
    ]);
  });

  acrossTiers(test, ["jsonl", "v2"])("pushes what was acknowledged while the server was down (%s)", async (store) => {
    const one = suite.alone();
    const machine = suite.lives({ fleet: one });
    const { place } = machine;
    const wire = await machine.start(["--store", store]);
    const ids: string[] = [];
    for (const text of ["plain", "forked", "lost"]) ids.push(await newSession(wire, [user(text)]));
    const lost = (await wire.result("get_state")).sessionFile;
    await suite.database.server.kill();
    for (const sessionId of [...ids].reverse()) {
      await wire.result("switch_session", { sessionId });
      expect(await wire.result("append", { entries: [user("alone")] })).toMatchObject({ durability: "local" });
    }
    await machine.kill();
    await one.fleet.close();
    const variables = { PI_FLEET_URL: suite.url };
    const runVerb = async (...words: string[]): Promise<Json> =>
      JSON.parse((await runHere(place, [...words, "--json"], { variables })).stdout);
    const readFleet = async (): Promise<Json> => (await runVerb("doctor")).fleet;
    expect(await readFleet()).toMatchObject({ away: expect.stringContaining("cannot be used"), owed: 3, kept: 0 });
    await suite.database.server.start();
    expect(await readFleet()).toMatchObject({ away: null, owed: 3, kept: 0 });
    // The lease of the process that is gone runs out.
    sql("update pi_fleet.session set lease_until = now()");
    const other = suite.lives();
    const theirs = await other.start();
    await theirs.result("switch_session", { sessionId: ids[1] });
    await theirs.result("append", { entries: [user("theirs")] });
    await other.end();
    rmSync(lost, { recursive: true });
    // Lines of this machine alone are found here, until they are uploaded.
    const { hits } = await runVerb("search", "alone");
    expect(hits.map(({ sessionId }: Json) => sessionId).sort()).toEqual(ids.slice(0, 2).sort());
    const { journal } = await suite.runVerb("verify", place);
    expect(journal.filter(({ from }: Json) => from !== null)).toHaveLength(3);
    const pushed = async (): Promise<Map<string, Json>> =>
      new Map((await suite.runVerb("push", place)).sessions.map((session: Json) => [session.sessionId, session]));
    const sessions = await pushed();
    // The entries of the last are kept apart from its file, which comes again.
    expect(ids.map((id) => sessions.get(id).outcome)).toEqual(["given", "branched", "given"]);
    expect([...(await pushed()).keys()]).toEqual([]);
    const { faults, copies, lacking } = await suite.runVerb("verify", place);
    expect([faults, lacking, copies.map(({ state }: Json) => state)]).toEqual([[], [], ["same", "same", "same"]]);
    expect((await suite.verb("verify", place)).stdout).toContain("are a branch since");
    expect(sql(`select entries from pi_fleet.session where id = '${ids[0]}'`)).toBe("2");
    // The end of a container: nothing may be left that this machine alone has.
    const ended = async (): Promise<unknown[]> => {
      const { status, stdout } = await suite.verb("push", place);
      return [status, /recover lists and appends them/.test(stdout)];
    };
    for (const note of readdirSync(join(place.state, "fleet-journal")))
      rmSync(join(place.state, "fleet-journal", note));
    expect(await ended()).toEqual([0, false]);
    mkdirSync(join(place.state, "quarantine"), { recursive: true });
    writeFileSync(
      join(place.state, "quarantine", `${ids[0]}.refused.bin`),
      fileText(headerText(), userText("x", null)),
    );
    expect(await ended()).toEqual([1, true]);
    expect(await readFleet()).toMatchObject({ away: null, owed: 0, kept: 1 });
  });

  test("push compares the sessions here with the database: it gives what that lacks, and names sessions that it never had", async () => {
    const { machine, sessions } = await filled({ fleet: undefined });
    const { place } = machine;
    const states = async (): Promise<unknown[]> => {
      const { status, stdout } = await suite.verb("push", place);
      return [status, stdout.match(/does not have this session/g)?.length ?? 0];
    };
    expect(await states()).toEqual([1, 3]);
    expect(sql("select count(*) from pi_fleet.session")).toBe("0");
    await suite.runVerb(`import ${sessions}`, place);
    expect(await states()).toEqual([0, 0]);
    // Another program writes to one, and nothing is noted of it.
    const [file] = filesIn(sessions).filter((path) => path.endsWith(".jsonl"));
    const last = JSON.parse(readFileSync(file, "utf8").trimEnd().split("\n").at(-1) ?? "").id;
    appendFileSync(file, `${userText("other", last)}\n`);
    const { copies } = await suite.runVerb("verify", place);
    expect(copies.map(({ state }: Json) => state).sort()).toEqual(["ahead", "same", "same"]);
    const { sessions: given } = await suite.runVerb("push", place);
    expect(given).toMatchObject([{ sessionPath: file, outcome: "given" }]);
    expect(sql("select count(*) from pi_fleet.entry where convert_from(line, 'utf8') like '%\"other\"%'")).toBe("1");
    expect(await states()).toEqual([0, 0]);
  });

  test("sessions of another tenant are no concern of this one", async () => {
    const fleet = (tenant: string) => {
      const url = `${suite.url}&tenant=${tenant}`;
      return { ...suite.open(tenant, { url }), shown: url };
    };
    const place = temporaryPlace();
    for (const tenant of ["acme", "other"]) {
      const lives = suite.lives({ place, fleet: fleet(tenant) });
      await newSession(await lives.start(), [user(tenant)]);
      await lives.end();
    }
    for (const tenant of ["acme", "other"]) {
      const variables = { PI_FLEET_URL: `${suite.url}&tenant=${tenant}` };
      const { copies, sessions } = JSON.parse(
        (await runHere(place, ["fleet", "verify", "--json"], { variables })).stdout,
      );
      expect([sessions, copies.map(({ state }: Json) => state)]).toEqual([1, ["same"]]);
      expect((await runHere(place, ["fleet", "push"], { variables })).status).toBe(0);
    }
    // Nor does the other tenant bring them in by the way, but on purpose: as copies in another folder.
    const variables = { PI_FLEET_URL: `${suite.url}&tenant=other` };
    const brought = async (from: string): Promise<Json[]> =>
      JSON.parse((await runHere(place, ["fleet", "import", from, "--json"], { variables })).stdout).files;
    const folder = join(place.home, ".pi");
    const [file] = filesIn(folder).filter((path) => readFileSync(path, "utf8").includes('"acme"'));
    const outcomesOf = (files: Json[]): string[] => files.map(({ outcome }) => outcome).sort();
    const files = await brought(folder);
    expect(outcomesOf(files)).toEqual(["known", "refused"]);
    expect(files.find(({ sessionPath }) => sessionPath === file).message).toContain("of the tenant acme");
    expect(sql("select count(*) from pi_fleet.session where tenant = 'other'")).toBe("1");
    const copies = join(place.home, "copies");
    mkdirSync(copies);
    copyFileSync(file, join(copies, basename(file)));
    expect(outcomesOf(await brought(copies))).toEqual(["new"]);
    expect(outcomesOf(await brought(folder))).toEqual(["known", "refused"]);
  });

  test("import says once that the database has no tables", async () => {
    const { machine, sessions } = await filled({ fleet: undefined });
    const bare = new Database({ isEmpty: true });
    await bare.start();
    const { status, stdout, stderr } = await suite.verb(`import ${sessions}`, machine.place, bare.url);
    await bare.close();
    expect([status, `${stdout}${stderr}`.match(/tables are missing/g)?.length]).toEqual([1, 1]);
  });

  test("import brings in a session of version 1 as a write to it stores it, and changes no file", async () => {
    const machine = suite.lives({ fleet: suite.connect() });
    const { place } = machine;
    const folder = join(place.home, ".pi/agent/sessions/--old--");
    const file = join(folder, "old.jsonl");
    mkdirSync(folder, { recursive: true });
    const time = "2025-01-24T16:22:26.831Z";
    const said = ["one", "two"].map((content) => ({
      ...{ type: "message", timestamp: time, message: { role: "user", content, timestamp: 1 } },
    }));
    const text = fileText(
      ...[{ type: "session", id: "old", timestamp: time, cwd: "/old" }, ...said].map((one) => JSON.stringify(one)),
    );
    writeFileSync(file, text);
    for (const outcome of ["new", "known"]) {
      const { files } = await suite.runVerb(`import ${folder}`, place);
      expect([files, readFileSync(file, "utf8")]).toEqual([
        [{ sessionPath: file, sessionId: "old", outcome, entries: 2 }],
        text,
      ]);
    }
    const wire = await machine.start();
    await wire.result("switch_session", { sessionPath: file });
    await wire.result("append", { entries: [user("three")] });
    await machine.end();
    expect(readFileSync(file, "utf8")).toContain('"version":3');
    const { copies, faults } = await suite.runVerb("verify", place);
    expect([copies, faults]).toMatchObject([[{ state: "same", entries: 3 }], []]);
  });

  test("a record that the disk refuses is reported on stderr and in get_health, until it is there", async () => {
    let isFull = true;
    const refuse = (path: string): void => {
      if (isFull && path.includes("fleet-ends")) throw Object.assign(new Error("ENOSPC: test"), { code: "ENOSPC" });
    };
    const makeFolder = (path: string) => {
      refuse(path);
      return realDisk.makeFolder(path);
    };
    const { lives, wire } = await suite.machine({ disk: { ...realDisk, makeFolder } });
    const sessionId = await newSession(wire, [user("one")]);
    await wire.result("append", { entries: [user("two")] });
    const told = (): string[] => lives.said.filter((sentence) => sentence.includes("refuses the record"));
    expect(told()).toEqual([expect.stringContaining(`session ${sessionId} (ENOSPC: test)`)]);
    expect((await wire.result("get_health")).fleet).toMatchObject({ unrecorded: 1, lacking: 0 });
    isFull = false;
    expect((await wire.result("get_health")).fleet).toMatchObject({ unrecorded: 0, lacking: 0 });
    expect(told()).toHaveLength(1);
    await lives.end();
  });

  test("status names the sessions that processes have, and the standbys", async () => {
    const machine = suite.lives();
    const wire = await machine.start();
    const sessionId = await newSession(wire, [user("first\u001b words")]);
    const status = async (): Promise<Json> => suite.runVerb("status");
    const [writer] = (await status()).writers;
    expect(writer).toMatchObject({ sessionId, name: "first\u001b words", leased: true });
    expect((await suite.verb("status")).stdout).toMatch(
      new RegExp(`1 of them has a writer now\n  ${sessionId} \\(first.*words\\): .* on ${writer.host}, which began at`),
    );
    suite.endLeases();
    expect(await status()).toMatchObject({ held: 0, writers: [{ sessionId, leased: false }], standbys: { all: 0 } });
    expect((await suite.verb("status")).stdout).toMatch(/No standby is connected[\s\S]*another server may/);
    await machine.end();
    expect((await status()).writers).toEqual([]);
  });

  test("push waits for a lease that may be that of a server that has ended", SWEEP, async () => {
    const one = suite.alone();
    const machine = suite.lives({ fleet: one });
    const wire = await machine.start();
    const id = await newSession(wire, [user("there")]);
    await suite.database.server.kill();
    await wire.result("append", { entries: [user("alone")] });
    await machine.end();
    await one.fleet.close();
    await suite.database.server.start();
    sql("update pi_fleet.session set holder = 'ended', lease_until = now() + interval '3 s'");
    const { sessions } = await suite.runVerb("push", machine.place);
    expect(sessions).toMatchObject([{ sessionId: id, outcome: "given" }]);
  });

  test("names what it does not bring in, or not as it is, and brings the others in", async () => {
    const { machine, sessions } = await filled({ fleet: undefined });
    await suite.runVerb(`import ${sessions}`, machine.place);
    const folder = join(machine.place.home, "more");
    mkdirSync(join(folder, "locked"), { recursive: true });
    const [[name, bytes]] = filesBelow(sessions);
    const text = bytes.toString("utf8");
    const odd = text.replace(/"id":"01991f6e[^"]*"/, '"id":"odd"').replaceAll("\n", "\n\n");
    const bad = {
      [name]: [text.replace('"one ', '"ONE '), "refused", "goes on differently"],
      "odd.jsonl": [odd, "new", "empty lines"],
      "none.jsonl": ["no session\n", "refused", ""],
      "empty.jsonl": [`${headerText({ id: "empty" })}\n`, "refused", "no entries"],
      locked: [null, "refused", "EACCES"],
    };
    for (const [file, [content]] of Object.entries(bad)) if (content) writeFileSync(join(folder, file), content);
    const names = (path: string): string[] => {
      if (basename(path) === "locked") throw Object.assign(new Error("refused"), { code: "EACCES" });
      return realDisk.names(path);
    };
    const bringing = suite.lives({ disk: { ...realDisk, names } });
    await bringing.start();
    for (const known of [undefined, "known"]) {
      const files = await bringing.getAdmin().importFolder(folder);
      const by = new Map(files.map((file) => [basename(file.sessionPath), file]));
      for (const [file, [, outcome, message]] of Object.entries(bad)) {
        const expected = { outcome: outcome === "new" ? (known ?? outcome) : outcome };
        expect(by.get(file), file).toMatchObject({ ...expected, message: expect.stringContaining(message ?? "") });
      }
    }
    expect(sql("select count(*) from pi_fleet.session")).toBe("4");
    const missing = join(machine.place.home, "missing");
    const { status, stdout, stderr } = await suite.verb(`import ${missing}`, machine.place);
    expect([status, stderr]).toEqual([1, ""]);
    expect(stdout).toContain(`${missing}: The disk refused (ENOENT)`);
  });

  test("reads every line and every copy, and finds each copy that is not as it was", async () => {
    const { machine, sessions } = await filled();
    const verified = () => suite.runVerb("verify", machine.place);
    const statesOf = (copies: Json[]): string[] => copies.map(({ state }) => state).sort();
    const { faults, copies, ...sums } = await verified();
    expect([faults, statesOf(copies), sums]).toMatchObject([[], three("same"), { sessions: 3, entries: 11 }]);
    // A copy that another program wrote to, one that it changed, and one that the fleet never had.
    const [one, two] = copies.map(({ sessionPath }: Json) => sessionPath);
    appendFileSync(one, `${userText("x", null)}\n`);
    writeFileSync(two, readFileSync(two, "utf8").replace('"one ', '"ONE '));
    const local = join(sessions, "--home-me-app--/2026-01-24T16-22-26-831Z_local.jsonl");
    writeFileSync(local, `${headerText({ id: "local", cwd: "/home/me/app" })}\n`);
    expect(statesOf((await verified()).copies)).toEqual(["ahead", "different", "only_here", "same"]);
    const { sessionPath } = copies[2];
    writeFileSync(sessionPath, readFileSync(sessionPath, "utf8").replace('"version":3', '"vershon":3'));
    expect(statesOf((await verified()).copies)).toEqual(["ahead", "different", "different", "only_here"]);
  });

  test("a migration names sessions that cannot be read, and goes on with the others", async () => {
    const fleet = { ...suite.connect(), long: 0 };
    const { machine } = await filled({ fleet });
    const [id, header] = suite.column("select id from pi_fleet.session order by id");
    sql(`update pi_fleet.pack set codec = 1, lines = '\\xff' where session_id = '${id}'`);
    sql(`update pi_fleet.session set header = 'none' where id = '${header}'`);
    sql("update pi_fleet.session set indexed = 0");
    const { status, stdout } = await suite.verb("migrate", machine.place);
    expect(status).toBe(1);
    for (const one of [id, header]) expect(stdout).toContain(`${one}: its header or lines cannot be read`);
    const again = { indexed: 0, inUse: [], unreadable: [id, header] };
    expect(await suite.runVerb("migrate", machine.place)).toMatchObject(again);
    expect(sql("select count(*) from pi_fleet.session where indexed = entries")).toBe("1");
  });

  test("a long session is never held as a whole when its facts are gathered anew", async () => {
    const given: WeakRef<Uint8Array>[] = [];
    let most = 0;
    const fleet = lineByLine(async (line) => {
      given.push(new WeakRef(line));
      if (given.length % 5 > 0) return;
      await new Promise((resolve) => setTimeout(resolve));
      collectGarbage();
      most = Math.max(most, given.filter((ref) => ref.deref()).length);
    });
    const { wire } = await suite.machine();
    const entries = Array.from({ length: 20 }, (_, n) =>
      (n === 7 ? assistant : user)(`${n} word${n} ${"x".repeat(1 << 16)}`),
    );
    for (let n = 0; n < 20; n += 10) await wire.result("append", { entries: entries.slice(n, n + 10) });
    const facts = (): string =>
      sql(`select messages, modified, is_plain, indexed, (select facts from pi_fleet.described),
        (select string_agg(seq || ' ' || words, ' ' order by seq) from pi_fleet.said),
        (select string_agg(word, ' ' order by word) from pi_fleet.word),
        (select row(quarter, messages, cost) from pi_fleet.spent) from pi_fleet.session`);
    await vi.waitFor(() => expect(sql("select entries - indexed from pi_fleet.session")).toBe("0"), 30_000);
    const before = facts();
    sql("truncate pi_fleet.described, pi_fleet.said, pi_fleet.spent, pi_fleet.word");
    sql("update pi_fleet.session set indexed = 0, messages = 0, modified = null, is_plain = false");
    // Another process, as that of the verb: the writer takes words for known.
    suite.endLeases();
    const machine = suite.lives({ fleet });
    await machine.start();
    const indexed = await (machine.getAdmin() as FleetAdminService).index(undefined, 8 << 16);
    expect(indexed).toEqual({ indexed: 1, inUse: [], unreadable: [] });
    expect(facts()).toBe(before);
    // Eight lines, lines on their way, and garbage that is not yet collected.
    expect(most).toBeLessThan(15);
  });

  test("no session is held as a whole when it is exported, and none has its name before it is whole", async () => {
    /** Called when all pieces before one are used. */
    let used = (_before: number): void => {};
    let [read, bytes] = [0, 0];
    const fleet = lineByLine((line) => {
      used(bytes);
      read++;
      bytes += line.length + 1;
    });
    const machine = suite.lives({ fleet });
    const wire = await machine.start();
    const entries = Array.from({ length: 20 }, (_, n) =>
      n % 2 ? assistant(`${n}`) : user(`${n} ${"x".repeat(9000)}`),
    );
    await wire.result("append", { entries });
    const { sessionFile, sessionId } = await wire.result("get_state");
    const out = join(machine.place.home, "out");
    const exported = async () => {
      [read, bytes] = [0, 0];
      const [file] = await machine.getAdmin().exportTo(out);
      return file;
    };
    used = (before) => {
      expect(filesIn(out).filter((path) => path.endsWith(".jsonl"))).toEqual([]);
      // The next piece is asked for while the one before it is written.
      const size = filesIn(out).reduce((sum, path) => sum + statSync(path).size, 0);
      expect(size).toBeGreaterThanOrEqual(before - 20_000);
    };
    // Replaces the last line, where a fault shows first, by this SQL.
    const last = (line: string): string => sql(`update pi_fleet.entry set line = ${line} where seq = 19`);
    last("overlay(line || ' '::bytea placing 'Y'::bytea from 60 for 1)");
    expect(await exported()).toMatchObject({ sessionId, outcome: "refused" });
    expect(filesIn(out)).toEqual([]);
    last(`convert_to('${readFileSync(sessionFile, "utf8").split("\n")[20].replaceAll("'", "''")}', 'utf8')`);
    const file = await exported();
    expect(file).toMatchObject({ sessionId, outcome: "new" });
    used = () => {};
    const whole = readFileSync(sessionFile);
    expect(readFileSync(file.sessionPath).equals(whole)).toBe(true);
    expect(await exported()).toMatchObject({ outcome: "known" });
    const changes = [Buffer.concat([whole, Buffer.from("\n")]), whole.subarray(0, -1)];
    for (const changed of [...changes, Buffer.from(whole.toString().replace("xxx", "yyy"))]) {
      writeFileSync(file.sessionPath, changed);
      expect(await exported()).toMatchObject({ outcome: "refused", message: expect.stringMatching(/other bytes/) });
      expect(readFileSync(file.sessionPath).equals(changed)).toBe(true);
    }
    expect(read, "lines that are read after the first that differs").toBeLessThan(4);
    expect(filesIn(out)).toHaveLength(1);
  });

  test("a session that is deleted and pruned after its row was read is not exported", async () => {
    const one = suite.connect();
    const machine = suite.lives({ fleet: one });
    const wire = await machine.start();
    const [kept, goes] = [await newSession(wire, [user("stays")]), await newSession(wire, [user("goes")])];
    await wire.result("new_session");
    const rows = one.adminQueries.rows.bind(one.adminQueries);
    one.adminQueries.rows = async function* () {
      const page = [];
      for await (const row of rows()) page.push(row);
      await wire.result("delete_session", { sessionId: goes });
      await new FleetPruning(one.connections, "").prune({ rows: 0 });
      yield* page;
    };
    const files = await machine.getAdmin().exportTo(join(machine.place.home, "out"));
    expect(files).toMatchObject([{ sessionId: kept, outcome: "new" }]);
  });
});

test("another database at the same address gets nothing before the note of the former one is removed, and then all that this machine has acknowledged", {
  timeout: 60_000,
  ...needs(POSTGRESQL),
}, async ({ onTestFinished }) => {
  const server = new Database({ isEmpty: true });
  onTestFinished(() => server.close());
  await server.start();
  const machine = temporaryPlace();
  const variables = { PI_FLEET_URL: server.url };
  const place = { ...machine, variables: { ...machine.variables, ...variables } };
  const verb = (...words: string[]) => runHere(place, ["fleet", ...words], { variables });
  // By who runs the servers, somewhere else.
  const admin = temporaryPlace();
  const migrate = () => runHere(admin, ["fleet", "migrate"], { variables });
  const empty = await runHere(admin, ["fleet", "status"], { variables });
  expect([empty.status, empty.stdout]).toEqual([1, expect.stringContaining("no tables yet")]);
  await migrate();
  const lives = new HereLives({ place });
  const first = await lives.start();
  await first.result("append", { entries: [user("one")] });
  const { sessionId, durability } = await first.result("get_state");
  expect(durability).toBe("primary");
  const closed = await newSession(first, [user("closed")]);
  await lives.end();
  // It is made anew, or an operator's mistake leads here.
  const store = server.sql("select value from pi_fleet.meta where key = 'store'");
  server.sql("drop schema pi_fleet cascade");
  const anew = await verb("migrate");
  expect([anew.status, anew.stderr]).toEqual([2, expect.stringContaining(store)]);
  expect(server.sql("select count(*) from pg_namespace where nspname = 'pi_fleet'")).toBe("0");
  expect((await verb("migrate", "--yes")).status).toBe(0);
  // Ten times as fast, because a database that was away is asked again after a second.
  const now = performance.now.bind(performance);
  const begun = now();
  vi.spyOn(performance, "now").mockImplementation(() => begun + 10 * (now() - begun));
  const next = await lives.start(["--session", sessionId, "--fleet-away", "journal"]);
  expect(await next.result("append", { entries: [user("two")] })).toMatchObject({ durability: "local" });
  expect(server.sql("select count(*) from pi_fleet.session")).toBe("0");
  const refused = await verb("verify");
  const note = /remove (\S+\.json)/.exec(refused.stdout + refused.stderr)?.[1] ?? "";
  expect((await verb("status")).stderr).toContain(note);
  rmSync(note);
  const reached = async (): Promise<string> => (await next.result("get_state")).durability;
  await expect.poll(reached, { timeout: 20_000, interval: 20 }).not.toBe("local");
  expect(server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toBe("2");
  // A session that no host opens is missing, and comes with restore.
  const lacked = await verb("verify");
  expect([lacked.status, lacked.stdout]).toEqual([3, expect.stringContaining(closed)]);
  await lives.end();
  expect((await verb("restore")).status).toBe(0);
  expect((await verb("verify")).status).toBe(0);
  expect(server.sql(`select entries from pi_fleet.session where id = '${closed}'`)).toBe("1");
});
