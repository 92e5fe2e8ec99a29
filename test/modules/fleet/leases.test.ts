/**
 * Leases over a real PostgreSQL: which are renewed while nothing is written, for which holders others wait, and sessions that
 * the verb takes from a live process that has them.
 *
 * @module-tag system
 */

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import type { FleetBatch } from "../../../src/core/ports/fleet.ts";
import { NOTHING } from "../../../src/modules/fleet/postgres/ends.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { getProcessStart } from "../../../src/storage/fs/processes.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { type Json, type SpawnedServer, spawnServer, temporaryFolder, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import type { Run } from "../../support/verbs.ts";
import { batchOf as batchFor, taken } from "./support/commits.ts";
import { batchOf, fleetSuite, LOST, type Machine, meddle, play } from "./support/sql-machines.ts";

/** Returns what a note says of a process that is stopped. */
function stopped(): object {
  const { pid = 0 } = spawn("sleep", ["600"], { stdio: "ignore" });
  process.kill(pid, "SIGSTOP");
  onTestFinished(() => void process.kill(pid, "SIGKILL"));
  return { pid, started: getProcessStart(realDisk, pid) };
}

/** Milliseconds between renewals of leases. */
const EVERY = 10_000;
const HOUR = 3_600_000;

describe("leases", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const sql = (text: string): string => suite.sql(text);
  const connect = (name: string, lease = HOUR) => suite.open(name, { lease });
  /** Has a process write what begins a turn to sessions. Returns it with what renews its leases: in one statement, or none. */
  const holding = async (...ids: string[]) => {
    const one = connect("one");
    for (const id of ids) {
      const { epoch } = await taken(one, id);
      expect(await one.fleet.append(batchOf(id, epoch, NOTHING, ['{"n":1}']))).toMatchObject({ kind: "committed" });
    }
    const run = vi.spyOn(one.connections, "run");
    const renew = async (statements = 1): Promise<void> => {
      run.mockClear();
      vi.advanceTimersByTime(EVERY);
      const kinds = (await Promise.all(run.mock.results.map(({ value }) => value))).map(({ kind }) => kind);
      expect(kinds).toEqual(Array(statements).fill("done"));
    };
    const renewed = (): string => ids.filter((id) => one.fleet.renewedAgo(id) < HOUR).join(" ");
    return { ...one, renew, renewed };
  };
  const touch = (id: string, change = "messages = 1"): string =>
    sql(`update pi_fleet.session set ${change} where id = '${id}'`);
  const leased = (): string =>
    sql("select string_agg(id, ' ' order by id) from pi_fleet.session where lease_until > clock_timestamp()");

  // A statement that waits for a row fails, and does not wait for ever.
  beforeAll(() => suite.database.server.configure("set lock_timeout = 300"));
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    return () => vi.useRealTimers();
  });

  test("are renewed together, but for those of rows that are written to, whose turn is the next time", async () => {
    const { renew } = await holding("a", "b", "c");
    suite.endLeases();
    // A transaction writes to one row and goes on to another, which would wait for the waiter on the first.
    sql("begin");
    touch("b");
    await renew();
    touch("a");
    await renew();
    sql("commit");
    expect(leased()).toBe("a c");
    await renew();
    expect(leased()).toBe("a b c");
  });

  test("that are renewed are known to be, so that nobody takes again what was silent, and others are not", async () => {
    const { renew, renewed, fleet } = await holding("a", "b", "c");
    expect(renewed()).toBe("");
    sql("begin");
    touch("b");
    touch("c", "holder = 'two'");
    await renew();
    sql("commit");
    expect(renewed()).toBe("a");
    // It is another taking, which was not heard of.
    await fleet.take("a", 0);
    expect(renewed()).toBe("");
  });

  test("are worth nothing where the database lacks what it has said of the session, as one that was restored", async () => {
    const { renew, renewed } = await holding("a", "b");
    touch("a", `entries = 0, bytes = 0, chain = decode('${NOTHING.chain}', 'hex')`);
    await renew();
    expect(renewed()).toBe("b");
  });

  test("of sessions that another process has taken are that one's, also when it lets go of them", async () => {
    const { renew } = await holding("a", "b");
    suite.endLeases();
    const other = connect("two", 3 * HOUR);
    const { epoch } = await taken(other, "a");
    const row = (): string => suite.row("a", "holder, epoch, lease_until > clock_timestamp() + interval '2 hours'");
    expect(row()).toBe("two|2|t");
    await renew();
    expect([row(), leased()]).toEqual(["two|2|t", "a b"]);
    await other.fleet.release("a", epoch);
    await renew();
    expect(row()).toBe("|2|");
    // An operator took it, and it has no holder.
    await other.adminQueries.takeAway("b");
    await renew();
    expect(leased()).toBe("");
  });

  test("of sessions that were let go of are not renewed, and nothing is asked where there are none", async () => {
    const { fleet, renew } = await holding("a");
    await fleet.release("a", 1);
    await renew(0);
    expect(leased()).toBe("");
  });

  test("of sessions that were taken for something that is under way are renewed until something else is written", async () => {
    const { fleet, renew } = await holding();
    await taken({ fleet }, "a");
    await renew();
    const heads = [JSON.stringify(["1", null, "label", ""])];
    const batch = { ...batchOf("a", 1, NOTHING, ['{"n":1}']), heads };
    expect(await fleet.append(batch)).toMatchObject({ kind: "committed" });
    await renew(0);
  });

  test("run out where the last answer ends a turn, and are renewed where it calls a tool, for ten minutes", async () => {
    const { fleet, renew } = await holding("a");
    const answer = async (reason: string, { after }: FleetBatch, role = "assistant"): Promise<FleetBatch> => {
      const text = JSON.stringify({ message: { content: '"stopReason":"toolUse"', stopReason: reason } });
      const batch = { ...batchOf("a", 1, after, [text]), heads: [JSON.stringify([reason, null, "message", role])] };
      expect(await fleet.append(batch)).toMatchObject({ kind: "committed" });
      return batch;
    };
    const ended = await answer("stop", batchOf("a", 1, NOTHING, ['{"n":1}']));
    // The lease is that of the write.
    await renew(0);
    const calls = await answer("toolUse", ended);
    await renew();
    // An entry that is no message of a turn neither begins nor ends one.
    const noted = await answer("stop", calls, "custom");
    await renew();
    const now = performance.now();
    const clock = vi.spyOn(performance, "now").mockImplementation(() => now + 600_000);
    await renew(0);
    clock.mockRestore();
    await answer("stop", noted, "toolResult");
    await renew();
  });

  /** Returns a batch that ends with an answer, which ends a turn, or with an entry that needs one. */
  const ending = (held: Parameters<typeof batchFor>[0], role: "user" | "assistant"): FleetBatch => ({
    ...batchFor(held, [JSON.stringify({ message: { role, stopReason: "stop" } })]),
    heads: [JSON.stringify([`${held.end.entries}`, null, "message", role])],
  });
  /** Returns the seconds for which no other process may take a session. */
  const leftOf = (id: string): number => Number(suite.row(id, "extract(epoch from lease_until - clock_timestamp())"));

  test("are five seconds after a write outside a turn, and the whole in the middle of one, also of those written together", async () => {
    const one = suite.open("ten", { lease: 30_000 });
    const helds = [];
    for (let n = 0; n < 8; n++) helds.push(await taken(one, `s${n}`));
    for (const { id } of helds) expect(leftOf(id)).toBeGreaterThan(25);
    const run = vi.spyOn(one.connections, "run");
    const batches = helds.map((held, n) => ending(held, n % 2 === 0 ? "assistant" : "user"));
    for (const outcome of await Promise.all(batches.map((batch) => one.fleet.append(batch))))
      expect(outcome).toMatchObject({ kind: "committed" });
    // The first two go alone, and the others together.
    expect(run).toHaveBeenCalledTimes(3);
    const isLong = helds.map(({ id }) => leftOf(id) > 20);
    expect(isLong).toEqual(helds.map((_, n) => n % 2 === 1));
    for (const n of [0, 2, 4, 6]) expect(leftOf(`s${n}`)).toBeLessThanOrEqual(5);
    // An entry that is no message of a turn does not change it.
    for (const n of [0, 1]) {
      const held = { ...helds[n], end: batches[n].after };
      const heads = [JSON.stringify(["label", null, "label", ""])];
      expect(await one.fleet.append({ ...batchFor(held, ["{}"]), heads })).toMatchObject({ kind: "committed" });
      expect(leftOf(`s${n}`) > 20).toBe(n === 1);
    }
  });

  test("are not made longer by a renewal that comes after the write that ends the turn", async () => {
    const one = suite.open("thirteen", { lease: 30_000 });
    const held = await taken(one, "a");
    const first = ending(held, "user");
    await one.fleet.append(first);
    let renewed: Promise<unknown> | undefined;
    meddle(one, (text, ask) => {
      if (!text.includes("skip locked")) return undefined;
      renewed = one.fleet.append(ending({ ...held, end: first.after }, "assistant")).then(ask);
      return renewed;
    });
    vi.advanceTimersByTime(EVERY);
    expect(await renewed).toMatchObject({ kind: "done", rows: [] });
    expect(leftOf("a")).toBeLessThanOrEqual(5);
  });

  test("that ran out are no reason to take the session again, unless somebody else did", async () => {
    const [one, two] = [suite.open("eleven", { lease: 30_000 }), suite.open("twelve", { lease: 30_000 })];
    const held = await taken(one, "a");
    const first = ending(held, "assistant");
    expect(await one.fleet.append(first)).toMatchObject({ kind: "committed" });
    expect(await two.fleet.take("a", 0)).toMatchObject({ kind: "held", holder: { client: "eleven" } });
    suite.endLeases();
    const second = ending({ ...held, end: first.after }, "assistant");
    expect(await one.fleet.append(second)).toMatchObject({ kind: "committed" });
    suite.endLeases();
    expect(await two.fleet.take("a", 0)).toMatchObject({ kind: "taken", epoch: 2, end: second.after });
    expect(await one.fleet.append(ending({ ...held, end: second.after }, "user"))).toEqual({ kind: "refused" });
  });

  /** Returns how a process takes a session from another one whose note in the state folder differs so. */
  const takenFrom = async (otherwise: object, own?: string) => {
    const stateFolder = temporaryFolder();
    const one = suite.open("seven", { lease: HOUR, stateFolder });
    await taken(one, "a");
    const path = join(stateFolder, "fleet-processes", "seven.json");
    writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), ...otherwise }));
    const two = suite.open("eight", { lease: HOUR, stateFolder: own ?? stateFolder });
    return { one, two, taking: await two.fleet.take("a", 0) };
  };
  const gone = { pid: spawnSync("true").pid };
  const started = getProcessStart(realDisk, process.pid) as string;
  const HELD = { kind: "held", holder: { client: "seven" } };

  test.each<[string, object]>([
    ["has ended", gone],
    ["has ended, and whose pid another one has", { started: `${started}0` }],
  ])("of a process of the same machine that %s are worth nothing", async (_, otherwise) => {
    const { one, two, taking } = await takenFrom(otherwise);
    expect(taking).toMatchObject({ kind: "taken", epoch: 2 });
    // If it lives all the same, it is refused, and waits for the other as for any.
    const batch = batchOf("a", 1, NOTHING, ['{"n":1}']);
    expect(await one.fleet.append(batch)).toEqual({ kind: "refused" });
    expect(await one.fleet.take("a", 1)).toMatchObject({ kind: "held", holder: { client: "eight" } });
    expect(await two.fleet.append({ ...batch, epoch: 2 })).toMatchObject({ kind: "committed" });
  });

  test.each<[string, () => object]>([
    ["lives", () => ({})],
    ["is stopped", stopped],
    ["ended in another run of the system, as on a clone", () => ({ ...gone, started: "another-boot 1" })],
    ["ended in another container, with the same host name", () => ({ ...gone, space: 1 })],
    ["ended on another machine that has the same state folder", () => ({ ...gone, host: "another" })],
    ["has a note without a pid", () => ({ ...gone, pid: null })],
  ])("of a process that %s are waited for", async (_, otherwise) => {
    expect((await takenFrom(otherwise())).taking).toMatchObject(HELD);
  });

  test("of a process that has no note on this machine are waited for", async () => {
    expect((await takenFrom(gone, temporaryFolder())).taking).toMatchObject(HELD);
  });

  test("of a hundred processes at most are noted on a machine, the latest", async () => {
    const stateFolder = temporaryFolder();
    const folder = join(stateFolder, "fleet-processes");
    mkdirSync(folder);
    for (let n = 100; n < 250; n++) writeFileSync(join(folder, `${n}.json`), "{}");
    const one = suite.open("nine", { stateFolder });
    await taken(one, "a");
    const noted = readdirSync(folder);
    expect([noted.length, noted.includes("149.json"), noted.includes("150.json")]).toEqual([101, false, true]);
    await one.fleet.close();
    expect(readdirSync(folder)).not.toContain("nine.json");
  });

  test("of a server that was killed hold up nobody on its machine", async () => {
    const place = temporaryPlace();
    const served = (): SpawnedServer =>
      spawnServer([], "lines", { ...place, variables: { ...place.variables, PI_FLEET_URL: suite.url } });
    const one = served();
    await one.result("append", { entries: [user("first")] });
    const { sessionId } = await one.result("get_state");
    one.process.kill("SIGKILL");
    await one.exit;
    const two = served();
    await two.result("switch_session", { sessionId });
    await two.result("append", { entries: [user("second")] });
    expect(suite.row(sessionId, "entries")).toBe("2");
  });

  test("that end while another process takes the session are no reason to refuse it", async () => {
    const [one, two] = [connect("four"), connect("five")];
    const { epoch } = await taken(one, "a");
    let asked = 0;
    // It was found held, and the holder is asked about.
    meddle(two, async () => void (++asked === 2 && (await one.fleet.release("a", epoch))));
    expect(await two.fleet.take("a", 0)).toMatchObject({ kind: "taken", epoch: 2 });
  });

  test("of a session that was begun on a server which was then lost begin it again, and do not say that it was deleted", async () => {
    const six = connect("six");
    let asked = 0;
    // It was found missing and begun, and is to be taken.
    meddle(six, () => void (++asked === 4 && sql("delete from pi_fleet.session where id = 'begun'")));
    expect((await taken(six, "begun")).epoch).toBe(1);
    expect(asked).toBeGreaterThan(4);
  });
});

describe("a session that is taken from its holder", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const take = (id: string): Promise<Run> => suite.verb(`take ${id}`);
  const FROM_MACHINE = expect.stringMatching(/Taken from .* on host of machine/);
  const append = ({ wire }: Machine, text: string): Promise<Json> => wire.result("append", { entries: [user(text)] });
  const said = async ({ wire }: Machine): Promise<string[]> =>
    (await wire.result("get_entries")).entries.map(({ message }: Json) => message?.content).filter(Boolean);
  /** A machine that holds a session, according to the database. */
  const holding = async (kind = "jsonl") => {
    const one = await suite.machine({ args: ["--store", kind] });
    await append(one, "first");
    const { sessionId } = await one.wire.result("get_state");
    const row = (columns: string): string => suite.row(sessionId, columns);
    const letGo = (more = ""): string =>
      suite.sql(`update pi_fleet.session set ${more} holder = null, lease_until = null`);
    return { one, sessionId, row, letGo };
  };

  acrossTiers(test, ["jsonl", "v2"])(
    "is written to at once by another, and what its holder writes then is kept (%s)",
    async (kind) => {
      const { one, sessionId, row } = await holding(kind);
      const two = await suite.machine({ args: ["--store", kind] });
      await two.wire.result("switch_session", { sessionId });
      const early = await two.wire.failure("append", { entries: [user("too early")] });
      expect([early.data.name, early.message]).toEqual([
        "session_locked",
        expect.stringContaining(`fleet take ${sessionId} ends it`),
      ]);
      expect(await take(sessionId.slice(0, 13))).toMatchObject({ stderr: "", stdout: FROM_MACHINE });
      await append(two, "second");
      // Its holder gets a failure, and keeps its entries as a branch.
      const { data } = await one.wire.failure("append", { entries: [user("third")] });
      expect(data).toMatchObject({ name: "session_locked", keptAt: expect.any(String) });
      expect(row("entries")).toBe("2");
      await suite.leave(two.wire, sessionId);
      const { keptAt } = data;
      expect((await one.wire.result("list_kept")).kept).toMatchObject([{ keptAt, sessionId }]);
      await one.wire.result("recover_kept", { keptAt });
      expect(await said(one)).toEqual(expect.arrayContaining(["first", "second", "third"]));
      expect(row("entries")).toMatch(/^[34]$/);
    },
  );

  test("goes on where it was, if nobody else wrote; and nothing is taken twice, or from nobody", () =>
    play(
      suite,
      `one switch_session; one append first; row epoch = 2; one fleet take {s} ~ Taken from .* on host of machine
      row epoch = 3; one fleet take {s} ~ No server has; row epoch = 3; one append second; row entries = 4; one leave
      one reads second; one fleet take no-such-session = status:1 stdout: ~ No session has the id no-such-session
      one fleet take ~ fleet take <session>; one delete_session; one fleet take {s} ~ No session has the id; row state = 2`,
    ));

  test.each([true, false])(
    "during a commit of its holder: what the database has is acknowledged, once (the commit is first: %s)",
    async (isCommitFirst) => {
      const { one, sessionId, row } = await holding();
      const two = await suite.machine();
      const epoch = Number(row("epoch"));
      // The transaction of this session sees one state of pg_stat_activity.
      const waiting = `select count(*) from pg_locks where not granted and pid in (select pid from pg_locks
        where database = (select oid from pg_database where datname = current_database()))`;
      // Both wait for the row, and get it in their order.
      suite.sql("begin");
      suite.sql(`select from pi_fleet.session where id = '${sessionId}' for update`);
      const steps = [() => append(one, "second"), () => take(sessionId)];
      if (!isCommitFirst) steps.reverse();
      const results: Promise<Json>[] = [];
      for (const step of steps) await suite.until(waiting, `${results.push(step())}`);
      suite.sql("commit");
      const all = await Promise.all(results);
      expect(all[isCommitFirst ? 1 : 0]).toMatchObject({ stderr: "", stdout: FROM_MACHINE });
      // There was no other writer: a commit that came second takes the session again.
      expect(row("entries, epoch, holder is null")).toBe(isCommitFirst ? `2|${epoch + 1}|t` : `2|${epoch + 2}|f`);
      expect(await said(one)).toEqual(["first", "second"]);
      if (!isCommitFirst) await suite.leave(one.wire, sessionId);
      await two.wire.result("switch_session", { sessionId });
      await append(two, "third");
      expect(await said(two)).toEqual(["first", "second", "third"]);
    },
  );

  test("somebody who takes it between what is asked and what is done loses it, and nobody is named who did not", async () => {
    const { one, sessionId, row, letGo } = await holding();
    const [operator, next] = [suite.open("an operator"), suite.open("a next")];
    const between: (() => unknown)[] = [];
    meddle(operator, async (text) => {
      if (text.includes("update pi_fleet.session")) await between.shift()?.();
    });
    const holder = (): string => row("case when holder is not null then holder_host end");
    const host = holder();
    // Its holder takes it anew, as its lease would end: it loses that, too.
    between.push(() => suite.sql("update pi_fleet.session set epoch = epoch + 1"));
    expect([await operator.adminQueries.takeAway(sessionId), holder()]).toEqual([
      expect.objectContaining({ host }),
      "",
    ]);
    // It lets go of it, and another one takes it.
    await taken(next, sessionId);
    between.push(async () => {
      letGo();
      await append(one, "second");
    });
    expect([await operator.adminQueries.takeAway(sessionId), holder()]).toEqual([
      expect.objectContaining({ host }),
      "",
    ]);
    // The process itself releases the session, not the operator.
    await taken(next, sessionId);
    between.push(() => letGo("epoch = epoch + 1,"));
    expect(await operator.adminQueries.takeAway(sessionId)).toBeNull();
  });

  test("an answer that is lost neither hides who had it nor takes it from who has it since then", async () => {
    const { sessionId, row } = await holding();
    const [operator, next] = [suite.open("operator"), suite.open("next")];
    let lost = 0;
    meddle(operator, async (text, ask) => {
      if (!text.includes("update pi_fleet.session") || lost++ > 0) return;
      await ask();
      await taken(next, sessionId);
      return LOST;
    });
    const host = expect.stringContaining("machine");
    expect(await operator.adminQueries.takeAway(sessionId)).toMatchObject({ host });
    expect([lost, row("holder_host"), row("holder is null")]).toEqual([1, "host of next", "f"]);
  });
});
