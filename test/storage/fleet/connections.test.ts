/** Addresses of databases, and what answers of a database are taken for. */

import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import { AddressError, addressOf } from "../../../src/storage/fleet/address.ts";
import { connectFleet } from "../../../src/storage/fleet/connect.ts";
import { Connections } from "../../../src/storage/fleet/connections.ts";
import type { DatabaseClient, DatabaseServer, Notice, Rows, SqlStatement } from "../../../src/storage/fleet/driver.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { PostgresFleet } from "../../../src/storage/fleet/postgres.ts";
import { FleetPruning } from "../../../src/storage/fleet/pruning.ts";
import { copying } from "../../../src/storage/fleet/store.ts";
import type { FileLogOptions } from "../../../src/storage/log/write-state.ts";
import { FaultDisk } from "../../support/disk.ts";
import { fleetOptions, journalOn } from "../../support/fleet.ts";
import { id, userText } from "../../support/lines.ts";
import { notesOn } from "../../support/owing.ts";
import { beginning } from "../../support/sessions.ts";
import { harnessOn } from "../jsonl/harness.ts";

const certificates = (path: string): string => {
  if (path !== "/ca.pem") throw new Error("there is no such file");
  return "a certificate";
};
const at = (text: string) => addressOf(text, certificates);

describe("an address", () => {
  test("is that of other programs of PostgreSQL, and is shown without its password", () => {
    expect(at("postgres://me:s%40cret@db.example:5433/agents?sslmode=disable")).toMatchObject({
      servers: [{ host: "db.example", port: 5433, user: "me", password: "s@cret", database: "agents", ssl: false }],
      shown: "postgres://me@db.example:5433/agents?sslmode=disable",
      hasPassword: true,
    });
    expect(at("postgres:///agents?host=/run/pg").servers).toMatchObject([
      { host: "/run/pg", database: "agents", ssl: false },
    ]);
  });

  test("may have a host that is an address of IPv6, which is between brackets", () => {
    const hostsOf = (text: string): unknown[] => at(text).servers.map(({ host, port, ssl }) => [host, port, ssl]);
    expect(hostsOf("postgres://me@[::1]:5433/a")).toEqual([["::1", 5433, false]]);
    expect(hostsOf("postgres:///a?host=[::1],one&sslmode=disable")).toEqual([
      ["::1", undefined, false],
      ["one", undefined, false],
    ]);
    expect(at("postgres://me@[2001:db8::1]/a").servers).toMatchObject([{ host: "2001:db8::1", ssl: {} }]);
  });

  test.each([
    "postgres://me:100%secret@db.example/a",
    "postgres://100%secret@db.example/a",
    "postgres://me@db.example/100%secret",
    "postgres://me@100%secret/a",
    "postgres://me:secret%e4@db.example/a",
  ])("says how a percent sign is written, and nothing of what has one: %s", (text) => {
    let error: unknown;
    try {
      at(text);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(AddressError);
    expect((error as AddressError).message).toContain("%25");
    expect((error as AddressError).message).not.toContain("secret");
  });

  test.each([
    "postgres://me:12#secret@db.example/a",
    "postgres://me:12/secret@db.example/a",
    "postgres://me:12?secret@db.example/a",
    "postgres://me:12?secret=1@db.example/a",
  ])("says how a character is written that would end it in the middle of a password: %s", (text) => {
    expect(() => at(text)).toThrow(expect.objectContaining({ message: expect.stringMatching(/^(?!.*secret).*%[23]/) }));
  });

  test("may name a tenant", () => {
    expect(at("postgres:///a").tenant).toBe("");
    const named = at("postgres:///a?tenant=a%20b");
    expect([named.tenant, named.shown]).toEqual(["a b", "postgres:///a?tenant=a%20b"]);
  });

  test("may list servers", () => {
    const { servers } = at("postgresql:///a?host=one,two&port=1,2&sslmode=require");
    expect(servers.map(({ host, port }) => [host, port])).toEqual([
      ["one", 1],
      ["two", 2],
    ]);
  });

  test.each([
    ["postgres://db.example/a", { rejectUnauthorized: true, ca: undefined }],
    ["postgres://localhost/a", false],
    [
      "postgres://127.0.0.1/a?sslmode=verify-full&sslrootcert=/ca.pem",
      { rejectUnauthorized: true, ca: "a certificate" },
    ],
    [
      "postgres://db.example/a?sslmode=require",
      { rejectUnauthorized: false, checkServerIdentity: expect.any(Function) },
    ],
    [
      "postgres://db.example/a?sslmode=require&sslrootcert=/ca.pem",
      { rejectUnauthorized: true, checkServerIdentity: expect.any(Function) },
    ],
    [
      "postgres://db.example/a?sslmode=verify-ca",
      { rejectUnauthorized: true, checkServerIdentity: expect.any(Function) },
    ],
  ])("says how a server proves itself: %s", (text, ssl) => {
    const [server] = at(text).servers;
    if (typeof ssl === "boolean") expect(server.ssl).toBe(ssl);
    else expect(server.ssl).toMatchObject(ssl);
  });

  test.each([
    "db.example",
    "mysql://db.example/a",
    "postgres://db.example/a?sslmode=prefer",
    "postgres://db.example/a?sslrootcert=/missing.pem",
    "postgres://db.example/a?options=-c%20fsync=off",
    "postgres:///a?host=one,two&port=1,2,3",
    "postgres:///a?host=one&port=70000",
    "postgres:///a?tenant=",
  ])("that means nothing is refused: %s", (text) => {
    expect(() => at(text)).toThrow(AddressError);
  });

  test("has no password where others can see it, and may be in a file", () => {
    const place = { client: "test", processId: "1", since: "", readFile: () => " postgres://me:secret@db.example/a\n" };
    expect(() => connectFleet("postgres://me:secret@db.example/a", place, true)).toThrow(/PI_FLEET_URL/);
    expect(connectFleet("postgres://me:secret@db.example/a", place, false).shown).toBe("postgres://me@db.example/a");
    expect(connectFleet("file:/run/secrets/fleet", place, true).shown).toBe("postgres://me@db.example/a");
  });

  test.each([
    ["refuse", 10_000],
    ["journal", 1000],
  ] as const)("is waited for by the clock, however long it takes not to answer (%s)", async (whenAway, most) => {
    const place = { client: "one", processId: "one", since: "", readFile: certificates };
    const { patience, elapsed } = connectFleet("postgres://db.example/a", place, false, whenAway);
    expect(await patience(1, elapsed() - most)).toBe(false);
    // What became of a commit is asked once, whenever the server was lost.
    expect(await patience(0, elapsed() - most)).toBe(true);
  });
});

/** A driver of a database that answers as the test says. `place` is the server that it says it is, `store` its fleet. */
function databaseThat(
  answer: (text: string, say: (notice: Notice) => void) => Rows | Error | Promise<Rows>,
  facts: object = {},
  place: () => object | Error = () => ({ server: "7/1" }),
  hears = true,
  store: () => object | Error = () => ({ value: "a store" }),
  most = 2,
) {
  let said: (notice: Notice) => void = () => {};
  let dropped = 0;
  const questions: { readonly text: string; readonly name?: string }[] = [];
  const client: DatabaseClient = {
    processID: 70,
    connect: async () => {},
    async query({ text, name }: SqlStatement) {
      questions.push({ text, name });
      if (text.includes("pg_is_in_recovery"))
        return { rows: [{ standby: false, commit: "on", fsync: "on", standbys: "", version: "15.1", ...facts }] };
      if (text.includes("row_security_active")) return { rows: [] };
      if (text === "commit") {
        if (hears) said({ severity: "WARNING", message: "there is no transaction in progress" });
        return { rows: [] };
      }
      const asked = text.includes("pg_control_system") ? place() : text.includes("'store'") ? store() : undefined;
      const answered = asked ? rowOf(asked) : await answer(text, said);
      if (answered instanceof Error) throw answered;
      return answered;
    },
    end: async () => {},
    ref() {},
    unref() {},
    on(event: string, heard: unknown) {
      if (event === "notice") said = heard as typeof said;
    },
    connection: { stream: { destroy: () => void dropped++, writableLength: 0, once: () => {} } },
  };
  const connections = new Connections({
    address: at("postgres:///a?host=/run/pg"),
    driver: async () => () => client,
    ...{ most, connectWithin: 60_000, answerWithin: 60_000 },
  });
  return { client, connections, dropped: () => dropped, questions };
}

const rowOf = (row: object | Error): Rows | Error => (row instanceof Error ? row : { rows: [row as Rows["rows"][0]] });
const errorOf = (code: string): Error => Object.assign(new Error(`state ${code}`), { code, severity: "ERROR" });

describe("an answer", () => {
  test("with a warning is none: the commit may have been given up by the standby that it waited for", async () => {
    const { connections, dropped } = databaseThat((_, say) => {
      say({ severity: "WARNING", message: "canceling wait for synchronous replication due to user request" });
      return { rows: [{ done: 1 }] };
    });
    expect(await connections.run({ text: "append" })).toMatchObject({ kind: "unknown" });
    expect(dropped()).toBe(1);
    const told = databaseThat((_, say) => {
      say({ severity: "NOTICE", message: "schema exists" });
      return { rows: [{ done: 1 }] };
    });
    expect(await told.connections.run({ text: "append" })).toMatchObject({ kind: "done" });
  });

  test.each([
    ["42501", "failed"],
    ["22021", "failed"],
    ["57P01", "unknown"],
    ["08006", "unknown"],
    ["53300", "unknown"],
    ["40003", "unknown"],
    ["XX000", "unknown"],
  ])("that is an error of state %s is %s", async (code, kind) => {
    expect((await databaseThat(() => errorOf(code)).connections.run({ text: "append" })).kind).toBe(kind);
  });

  test.each([
    ["28P01", "PI_FLEET_URL"],
    ["28000", "pg_hba.conf"],
    ["3D000", "name another one"],
    ["42501", "have the owner of the tables grant it"],
    ["42P01", "fleet migrate"],
    ["42703", "fleet migrate"],
  ])("that is a refusal which never passes is no outage, and says what to do (%s)", async (code, remedy) => {
    const refused = { name: "storage_failed", retryable: false, message: expect.stringContaining(remedy) };
    const whileConnecting = databaseThat(() => ({ rows: [] }));
    whileConnecting.client.connect = async () => {
      throw Object.assign(errorOf(code), code === "28000" ? { message: 'role "nobody" does not exist' } : {});
    };
    for (const { connections } of [
      databaseThat(
        () => errorOf(code),
        {},
        () => errorOf("42883"),
      ),
      ...(code.startsWith("42") ? [] : [whileConnecting]),
    ]) {
      const fleet = new PostgresFleet(connections, { id: "one", shown: { client: "one", pid: 0, since: "" } });
      expect(await fleet.take("session", 0)).toEqual({ kind: "unfit", reason: expect.stringContaining(remedy) });
      await expect(fleet.look("session")).rejects.toMatchObject(refused);
      await expect(new FleetPruning(connections, "").find({ rows: 0 })).rejects.toMatchObject(refused);
    }
  });

  test.each([
    ['role "nobody" does not exist', "failed"],
    ['role "nobody" is not permitted to log in', "failed"],
    ['no pg_hba.conf entry for host "10.0.0.1", user "me", database "agents", no encryption', "failed"],
    ['pg_hba.conf rejects connection for host "10.0.0.1", user "me", database "agents", no encryption', "failed"],
    ['Peer authentication failed for user "me"', "failed"],
    ['certificate authentication failed for user "me"', "failed"],
    ["connection requires a valid client certificate", "failed"],
    ['LDAP authentication failed for user "me"', "away"],
    ['PAM authentication failed for user "me"', "away"],
    ['RADIUS authentication failed for user "me"', "away"],
  ])(
    "to a role that is not let in is a refusal where that lasts, and none where a directory may be away: %s",
    async (message, kind) => {
      const { client, connections } = databaseThat(() => ({ rows: [] }));
      client.connect = async () => {
        throw Object.assign(errorOf("28000"), { message });
      };
      expect(await connections.run({ text: "append" })).toMatchObject({ kind, reason: message });
    },
  );

  test.each([
    [
      "the driver is missing",
      "failed",
      "npm install pg",
      new Failure("storage_failed", "npm install pg", {}, { retryable: false }),
    ],
    ["what loads the driver fails for a moment", "away", "", new Failure("storage_failed", "try again", {})],
    ...[
      "CERT_HAS_EXPIRED",
      "DEPTH_ZERO_SELF_SIGNED_CERT",
      "SELF_SIGNED_CERT_IN_CHAIN",
      "ERR_TLS_CERT_ALTNAME_INVALID",
    ].map((code) => [code, "failed", "sslrootcert", Object.assign(new Error("its certificate"), { code })] as const),
    ["it speaks no TLS", "failed", "sslmode=disable", new Error("The server does not support SSL connections")],
    ["nobody listens", "away", "", Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" })],
    ["the connection breaks", "away", "", new Error("Connection terminated unexpectedly")],
  ] as const)(
    "of nobody is a refusal where that lasts, so that nobody goes on alone for ever: %s",
    async (what, kind, remedy, error) => {
      const { client, connections } = databaseThat(() => ({ rows: [] }));
      client.connect = async () => {
        throw error;
      };
      const address = at("postgres:///a?host=/run/pg");
      const driver = async (): Promise<never> => {
        throw error;
      };
      const limits = { address, driver, most: 1, connectWithin: 60_000, answerWithin: 60_000 };
      const asked = what.includes("driver") ? new Connections(limits) : connections;
      expect((await asked.run({ text: "append" })).kind).toBe(kind);
      const fleet = new PostgresFleet(asked, { id: "one", shown: { client: "one", pid: 0, since: "" } });
      const taking = await fleet.take("session", 0);
      expect(taking).toMatchObject({
        kind: kind === "away" ? "away" : "unfit",
        reason: expect.stringContaining(remedy),
      });
      await expect(fleet.look("session")).rejects.toMatchObject({ retryable: kind === "away" });
      // Whoever would go on alone is told instead.
      const disk = new FaultDisk();
      const outage = new Outage(fleet, 0, () => 0);
      const options = fleetOptions(fleet, { journal: journalOn(disk), outage });
      const ours = <T extends FileLogOptions>(given: T): T => copying(given, options);
      const log = harnessOn(disk, "/root", {}, () => {}, ours).store.create(
        beginning(undefined, "/root/sessions/a.jsonl"),
      );
      log.append([bytesOf(userText(id(0), null))]);
      const commit = log.commit();
      if (kind === "away") await commit;
      else await expect(commit).rejects.toMatchObject({ name: "storage_failed", retryable: false });
      expect([log.durability, notesOn(disk).length]).toEqual(kind === "away" ? ["local", 1] : [undefined, 0]);
    },
  );

  test("of several servers is a refusal where each of them refuses, and none is away", async () => {
    const refusing = databaseThat(() => ({ rows: [] }));
    refusing.client.connect = async () => {
      throw errorOf("28P01");
    };
    const away = databaseThat(() => ({ rows: [] }));
    away.client.connect = async () => {
      throw Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
    };
    for (const [one, two, kind] of [
      [refusing, refusing, "failed"],
      [refusing, away, "away"],
      [away, refusing, "away"],
    ] as const) {
      const connections = new Connections({
        address: at("postgres:///a?host=one,two"),
        driver:
          async () =>
          ({ host }) =>
            host === "one" ? one.client : two.client,
        ...{ most: 2, connectWithin: 60_000, answerWithin: 60_000 },
      });
      expect(await connections.run({ text: "take" })).toMatchObject({ kind });
    }
  });

  test("that came too late for a serial order is asked for again, a few times", async () => {
    // It waits for a random time before it asks again.
    const random = vi.spyOn(Math, "random").mockReturnValue(0);
    onTestFinished(() => random.mockRestore());
    let asked = 0;
    const { connections } = databaseThat(() => (++asked < 3 ? errorOf("40001") : { rows: [] }));
    expect(await connections.run({ text: "append" })).toMatchObject({ kind: "done" });
    const never = databaseThat(() => errorOf("40P01"));
    expect(await never.connections.run({ text: "append" })).toMatchObject({ kind: "failed", code: "40P01" });
  });

  test.each([
    [{ standby: true }, "standby"],
    [{ commit: "off" }, "synchronous_commit = off"],
    [{ fsync: "off" }, "fsync = off"],
  ])("of a server with %j is not asked for", async (facts, reason) => {
    const { connections } = databaseThat(() => ({ rows: [] }), facts);
    expect(await connections.run({ text: "append" })).toMatchObject({
      kind: "away",
      reason: expect.stringContaining(reason),
    });
  });

  test.each([
    [{}, "primary"],
    [{ standbys: "*" }, "replicated"],
    [{ standbys: "*", commit: "remote_apply" }, "replicated"],
    [{ standbys: "*", commit: "local" }, "primary"],
    // A commit that is given up by its standby would be told as any other.
    [{ standbys: "*", told: "error" }, "primary"],
    [{ standbys: "*", told: "warning" }, "replicated"],
  ])("of a server with %j is durable as %s", async (facts, durability) => {
    const { connections } = databaseThat(() => ({ rows: [] }), facts);
    await connections.run({ text: "append" });
    expect(connections.fact?.durability).toBe(durability);
  });

  test("that a pooler keeps the warnings of proves no second machine", async () => {
    const { connections } = databaseThat(() => ({ rows: [{ one: 1 }] }), { standbys: "*" }, undefined, false);
    expect(await connections.run({ text: "append" })).toMatchObject({ kind: "done", by: { durability: "primary" } });
  });

  test("of an engine that does not say which server it is proves no second machine, and is used", async () => {
    const { connections } = databaseThat(
      () => ({ rows: [{ one: 1 }] }),
      { standbys: "*" },
      () => errorOf("42883"),
    );
    expect(await connections.run({ text: "append", server: "7/1" })).toMatchObject({ kind: "done" });
    expect(connections.fact).toEqual({ durability: "primary", version: "15.1" });
  });

  test.each([
    ["the process with which the connection was made", { server: "7/1", process: 70 }, true],
    ["another process, as behind a pooler", { server: "7/1", process: 71 }, false],
    ["an engine that does not say which server it is", errorOf("42883"), false],
  ])("of %s", async (_, place, isKept) => {
    let failing: string | undefined;
    const { connections, questions } = databaseThat(
      () => (failing !== undefined && questions.at(-1)?.name !== undefined ? errorOf(failing) : { rows: [] }),
      {},
      () => place,
    );
    const texts = ["append one", "append two", "append one"];
    for (const text of texts) expect(await connections.run({ text, isRepeated: true })).toMatchObject({ kind: "done" });
    await connections.run({ text: "take" });
    const names = questions.slice(-4).map(({ name }) => name);
    expect(names.map((name) => name !== undefined)).toEqual([isKept, isKept, isKept, false]);
    expect(new Set(names).size).toBe(isKept ? 3 : 1);
    // Nothing was done, and it is asked for again, from then on without a name.
    failing = "26000";
    const before = questions.length;
    const told: (boolean | undefined)[] = [];
    for (let n = 0; n < 2; n++)
      await connections.run(({ isDirect }) => {
        told.push(isDirect);
        return { text: "append one", isRepeated: true };
      });
    expect(questions.length - before).toBe(isKept ? 3 : 2);
    expect(told.map(Boolean)).toEqual(isKept ? [true, false, false] : [false, false]);
  });

  test("is not asked for of a server that was promoted since the question was put", async () => {
    let timeline = 1;
    let asked = 0;
    const place = (): object => ({ server: `7/${timeline}` });
    const { connections } = databaseThat(() => (++asked === 2 ? errorOf("57P01") : { rows: [] }), {}, place);
    await connections.run({ text: "take", server: undefined });
    expect(await connections.run({ text: "append", server: "7/1" })).toMatchObject({ kind: "unknown" });
    timeline = 2;
    expect(await connections.run({ text: "append", server: "7/1" })).toMatchObject({ kind: "failed", code: "moved" });
    expect(asked).toBe(2);
    expect(await connections.run({ text: "append", server: "7/2" })).toMatchObject({ kind: "done" });
  });

  test("of another store than before is not asked for, nor of one that has no tables any more", async () => {
    let store: object | Error = errorOf("42P01");
    const { connections } = databaseThat(
      ({ length }) => (length > 5 ? errorOf("57P01") : { rows: [] }),
      {},
      undefined,
      true,
      () => store,
    );
    const inTurn = async (next: object | Error): Promise<object> => {
      store = next;
      const answer = await connections.run({ text: "take" });
      await connections.run({ text: "its connection ends" });
      return answer;
    };
    const done = { kind: "done" };
    const away = { kind: "away", reason: expect.stringContaining("fleet adopt") };
    expect(await inTurn(store)).toMatchObject(done);
    expect(await inTurn({ value: "one" })).toMatchObject(done);
    expect(await inTurn({ value: "two" })).toMatchObject(away);
    expect(await inTurn(errorOf("42P01"))).toMatchObject({
      kind: "away",
      reason: expect.stringContaining("no tables"),
    });
    // Who may not ask for it uses what is there.
    expect(await inTurn(errorOf("42501"))).toMatchObject(done);
    expect(await inTurn({ value: "one" })).toMatchObject(done);
  });

  test("of the primary before the latest is not asked for", async () => {
    let timeline = 2;
    const place = (): object => ({ server: `7/${timeline}` });
    const { connections } = databaseThat(({ length }) => (length > 5 ? errorOf("57P01") : { rows: [] }), {}, place);
    expect(await connections.run({ text: "take" })).toMatchObject({ kind: "done" });
    await connections.run({ text: "its connection ends" });
    timeline = 1;
    const reason = expect.stringContaining("before another server was promoted");
    expect(await connections.run({ text: "take" })).toMatchObject({ kind: "away", reason });
  });
});

describe("connections", () => {
  /** A driver that notes what connections are made with, and how many are not ended. */
  const counted = (address: string) => {
    const made: DatabaseServer[] = [];
    const waiting: (() => void)[] = [];
    let open = 0;
    const connections = new Connections({
      ...{ address: at(address), most: 8, connectWithin: 60_000, answerWithin: 60_000 },
      driver: async () => (config) => {
        made.push(config);
        open++;
        const { client } = databaseThat((text) =>
          text === "wait" ? new Promise((resolve) => waiting.push(() => resolve({ rows: [] }))) : errorOf("57P01"),
        );
        client.end = async () => void open--;
        return client;
      },
    });
    return { connections, made, waiting, open: () => open };
  };

  test("that nobody uses for a minute are closed but for one, and ask early whether the other end is there", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
    try {
      const { connections, made, waiting, open } = counted("postgres:///a?host=/run/pg");
      const asked = Array.from({ length: 5 }, () => connections.run({ text: "wait" }));
      await vi.waitFor(() => expect(waiting).toHaveLength(5));
      for (const answer of waiting.splice(0)) answer();
      await Promise.all(asked);
      expect(made).toHaveLength(5);
      for (const config of made) expect(config).toMatchObject({ keepAlive: true, keepAliveInitialDelayMillis: 30_000 });
      vi.advanceTimersByTime(50_000);
      expect(open()).toBe(5);
      vi.advanceTimersByTime(50_000);
      expect(open()).toBe(1);
      // The one that is left is used.
      const next = connections.run({ text: "wait" });
      await vi.waitFor(() => expect(waiting).toHaveLength(1));
      waiting[0]();
      expect(await next).toMatchObject({ kind: "done" });
      expect([made.length, vi.getTimerCount()]).toEqual([5, 1]);
      await connections.close();
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  test("answer all who wait, also those who ask while they are closed, and are closed then", async () => {
    const answers: (() => void)[] = [];
    const { connections } = databaseThat(
      () => new Promise((resolve) => answers.push(() => resolve({ rows: [] }))),
      ...([{}, undefined, true, undefined, 1] as const),
    );
    const order: string[] = [];
    const ask = async (text: string): Promise<void> => {
      const { kind } = await connections.run({ text });
      order.push(`${text} ${kind}`);
    };
    const asked = [ask("first"), ask("second")];
    const closed = connections.close().then(() => order.push("closed"));
    asked.push(ask("third"));
    for (let n = 0; n < 3; n++) await vi.waitFor(() => (answers.shift() as () => void)());
    await Promise.all([...asked, closed]);
    expect(order).toEqual(["first done", "second done", "third done", "closed"]);
    expect(await connections.run({ text: "late" })).toEqual({ kind: "away", reason: "the fleet was closed" });
  });

  test("wait as long for a statement as it may take, and no longer", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const { connections } = databaseThat(() => new Promise(() => {}));
      const outcomes: string[] = [];
      for (const [text, within] of [
        ["short", undefined],
        ["long", 600_000],
      ] as const)
        void connections.run({ text, within }).then(({ kind }) => outcomes.push(`${text} ${kind}`));
      await vi.advanceTimersByTimeAsync(60_000);
      expect(outcomes).toEqual(["short unknown"]);
      await vi.advanceTimersByTimeAsync(539_999);
      expect(outcomes).toEqual(["short unknown"]);
      await vi.advanceTimersByTimeAsync(1);
      expect(outcomes).toEqual(["short unknown", "long unknown"]);
    } finally {
      vi.useRealTimers();
    }
  });

  test("that are made when all are closed already are ended, and ask for nothing", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const { client, connections, dropped, questions } = databaseThat(() => ({ rows: [] }));
      let made: () => void = () => {};
      client.connect = () => new Promise((resolve) => (made = resolve));
      const asked = connections.run({ text: "append" });
      await vi.advanceTimersByTimeAsync(0);
      const closed = connections.close();
      await vi.advanceTimersByTimeAsync(1000);
      await closed;
      made();
      expect(await asked).toEqual({ kind: "away", reason: "the fleet was closed" });
      expect(dropped()).toBe(1);
      expect(questions.map(({ text }) => text)).not.toContain("append");
    } finally {
      vi.useRealTimers();
    }
  });

  test("are away where only a former primary answers in time", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const [former, latest] = [1, 2].map((timeline) =>
        databaseThat(
          () => ({ rows: [] }),
          {},
          () => ({ server: `7/${timeline}` }),
        ),
      );
      let attempts = 0;
      // The first attempt at the other one comes to nothing for as long as is waited for it.
      latest.client.connect = () => (attempts++ === 0 ? new Promise(() => {}) : Promise.resolve());
      const connections = new Connections({
        address: at("postgres:///a?host=one,two"),
        driver:
          async () =>
          ({ host }) =>
            host === "one" ? former.client : latest.client,
        ...{ most: 2, connectWithin: 60_000, answerWithin: 60_000 },
      });
      const asked = [connections.run({ text: "append" })];
      await vi.advanceTimersByTimeAsync(100);
      asked.push(connections.run({ text: "append" }));
      await vi.advanceTimersByTimeAsync(1000);
      const reason = expect.stringContaining("before another server was promoted");
      expect(await Promise.all(asked)).toMatchObject([{ kind: "away", reason }, { kind: "done" }]);
    } finally {
      vi.useRealTimers();
    }
  });

  test("outlive a statement that cannot be made, of which nothing is done", async () => {
    const { connections, dropped, questions } = databaseThat(() => ({ rows: [] }));
    const tooLong = (): never => {
      throw new RangeError("Invalid string length");
    };
    for (let n = 0; n < 3; n++)
      expect(await connections.run(tooLong)).toMatchObject({ kind: "failed", reason: "Invalid string length" });
    expect(await connections.run({ text: "append" })).toMatchObject({ kind: "done" });
    expect(dropped()).toBe(0);
    expect(questions.filter(({ text }) => text.includes("pg_is_in_recovery"))).toHaveLength(1);
    await expect(connections.read(tooLong)).rejects.toMatchObject({ name: "storage_failed" });
  });
});
