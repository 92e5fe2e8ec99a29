/** Addresses of databases, the interpretation of a database's answers, and the longest wait for one that is away. */

import { type AddressInfo, createServer } from "node:net";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { toBytes } from "../../../src/core/json/json.ts";
import { FleetPruning } from "../../../src/modules/fleet/admin/pruning.ts";
import { connectFleet } from "../../../src/modules/fleet/connect.ts";
import { parseAddress } from "../../../src/modules/fleet/postgres/address.ts";
import { Connections } from "../../../src/modules/fleet/postgres/connections.ts";
import type {
  DatabaseClient,
  DatabaseServer,
  Notice,
  Rows,
  SqlStatement,
} from "../../../src/modules/fleet/postgres/driver.ts";
import { NOTHING as NO_LINES } from "../../../src/modules/fleet/postgres/ends.ts";
import { type KnownStore, openKnownStore } from "../../../src/modules/fleet/postgres/identity.ts";
import { type PasswordPlace, readPassword } from "../../../src/modules/fleet/postgres/password-file.ts";
import { PostgresFleet } from "../../../src/modules/fleet/postgres/postgres.ts";
import { Outage } from "../../../src/modules/fleet/replica/outage.ts";
import { withReplica } from "../../../src/modules/fleet/store.ts";
import { AddressError } from "../../../src/storage/fleet-module.ts";
import type { FileLogOptions } from "../../../src/storage/log/write-state.ts";
import { harnessOn } from "../../storage/jsonl/harness.ts";
import { FaultDisk } from "../../support/disk.ts";
import { id, userText } from "../../support/lines.ts";
import { range } from "../../support/random.ts";
import { beginning } from "../../support/sessions.ts";
import { batchOf } from "./support/commits.ts";
import { fleetOptions, journalOn } from "./support/table-fleet.ts";
import { notesOn } from "./support/unsent-lines.ts";

const certificates = (path: string): string => {
  if (path !== "/ca.pem") throw new Error("there is no such file");
  return "a certificate";
};
const at = (text: string) => parseAddress(text, certificates);
/** Returns what an address says of the server, and how the server proves itself. */
function serverAt(text: string): string {
  const { host, port, user, password, database, ssl } = at(text).server;
  const trust = ssl && [
    ssl.rejectUnauthorized ? "proven" : "not proven",
    ssl.ca,
    ssl.checkServerIdentity && "any name",
  ];
  const proof = trust ? trust.filter(Boolean).join(", ") : "plain";
  return `${[user, password, host, port, database].filter(Boolean).join(" ")}: ${proof}`;
}

describe("an address", () => {
  test.each([
    ["postgres://me:s%40cret@db.example:5433/agents?sslmode=disable", "me s@cret db.example 5433 agents: plain"],
    ["postgres:///agents?host=/run/pg", "/run/pg agents: plain"],
    ["postgres://me@[::1]:5433/a", "me ::1 5433 a: plain"],
    ["postgres://me@[2001:db8::1]/a", "me 2001:db8::1 a: proven"],
    ["postgresql:///a?host=[::1]&port=1&sslmode=require", "::1 1 a: not proven, any name"],
    ["postgres://one/a?sslmode=disable&target_session_attrs=read-write&connect_timeout=3", "one a: plain"],
    ["postgres:///a", "a: plain"],
    ["postgres://", ": plain"],
    ["postgresql://%2Fvar%2Frun%2Fpostgresql/a", "/var/run/postgresql a: plain"],
    ["postgres://%2Frun%2Fpg:5433/a?user=me", "me /run/pg 5433 a: plain"],
    ["postgres://me@/a?host=/run/pg", "me /run/pg a: plain"],
    ["postgres://me:s%26c%2Bret@/a", "me s&c+ret a: plain"],
    ["postgres://me@:5433/a?user=you", "you 5433 a: plain"],
    ["postgres://:5433?dbname=a", "5433 a: plain"],
    ["postgres://@/a", "a: plain"],
    ["postgres:///?host=one&user=me&password=s+c%26ret&dbname=a&sslmode=disable", "me s+c&ret one a: plain"],
    ["postgres://one/a?sslrootcert=system", "one a: proven"],
    ["postgres://one/a?sslmode=require&sslrootcert=system", "one a: proven"],
    ["postgres://db.example/a", "db.example a: proven"],
    ["postgres://localhost/a", "localhost a: plain"],
    ["postgres://127.0.0.1/a?sslmode=verify-full&sslrootcert=/ca.pem", "127.0.0.1 a: proven, a certificate"],
    ["postgres://one/a?sslmode=require", "one a: not proven, any name"],
    ["postgres://one/a?sslmode=require&sslrootcert=/ca.pem", "one a: proven, a certificate, any name"],
    ["postgres://one/a?sslmode=verify-ca", "one a: proven, any name"],
  ])("is read as other programs of PostgreSQL read it: %s", (text, meant) => {
    expect(serverAt(text)).toBe(meant);
  });

  test.each([
    ["postgres://me:s%40cret@db.example:5433/a?sslmode=disable", "postgres://me@db.example:5433/a?sslmode=disable", ""],
    ["postgres:///a?host=/run&password=s%40cret&tenant=a%20b", "postgres:///a?host=%2Frun&tenant=a+b", "a b"],
    ["postgres://me:s%40cret@/a?host=/run", "postgres:///a?host=%2Frun&user=me", ""],
    ["postgres://me@/a", "postgres:///a?user=me", ""],
    ["postgres:///a?tenant=a%20b", "postgres:///a?tenant=a%20b", "a b"],
  ])("is shown without its password, and may name a tenant: %s", (text, shown, tenant) => {
    expect(at(text)).toMatchObject({ shown, hasPassword: text.includes("cret"), tenant });
  });

  const SENSELESS: Readonly<Record<string, string>> = {
    "%25": `postgres://me:100%secret@db.example/a postgres://100%secret@db.example/a postgres://me@100%secret/a
      postgres://me@db.example/100%secret postgres://me:secret%e4@db.example/a`,
    "write %2F": "postgres://me:a/secret@db.example/a",
    // A character that would end it in the middle of a password.
    "%[23]": `postgres://me:12#secret@db.example/a postgres://me:12/secret@db.example/a
      postgres://me:12?secret@db.example/a postgres://me:12?secret=1@db.example/a`,
    "%26": "postgres:///a?password=12&secret postgres:///a?password=12&secret=1",
    "one endpoint": `postgres://me:secret@one,two/a postgres://me:secret@one:1,two:2/a
      postgres:///a?host=one,two&port=1,2 postgres:///a?host=one&port=1,2`,
    "alter role": "postgres://db.example/a?options=-c%20fsync=off",
    PGPASSFILE: "postgres://db.example/a?passfile=/root/.pgpass",
    password: "postgres://db.example/a?sslcert=/a&sslkey=/b",
    "PGSERVICE|service": "postgres://db.example/a?service=x",
    "postgres://": "postgres:secret postgres:/secret",
    ".": `db.example mysql://db.example/a postgres://db.example/a?sslmode=prefer
      postgres://db.example/a?sslrootcert=/missing.pem postgres://db.example/a?target_session_attrs=standby
      postgres:///a?host=one&port=70000 postgres:///a?tenant=`,
  };
  test.each([
    ...Object.entries(SENSELESS).flatMap(([said, texts]) => texts.split(/\s+/).map((text) => [text, said])),
    ["host=/run/pg dbname=a user=me password=secret", "postgres:///database\\?host="],
  ])("that means nothing is refused, and nothing is shown of a secret in it: %s", (text, said) => {
    const message = expect.stringMatching(new RegExp(`^(?!.*secret).*(?:${said})`));
    expect(() => at(text)).toThrow(AddressError);
    expect(() => at(text)).toThrow(expect.objectContaining({ message }));
  });

  test("has no password where others can see it, and may be in a file", () => {
    const place = { client: "test", processId: "1", since: "", readFile: () => " postgres://me:secret@db.example/a\n" };
    expect(() => connectFleet("postgres://me:secret@db.example/a", place, true)).toThrow(/PI_FLEET_URL/);
    expect(connectFleet("postgres://me:secret@db.example/a", place, false).shown).toBe("postgres://me@db.example/a");
    expect(connectFleet("file:/run/secrets/fleet", place, true).shown).toBe("postgres://me@db.example/a");
  });

  test("that means nothing is said to be in the file where it is", () => {
    const place = { client: "test", processId: "1", since: "", readFile: () => "postgres://me:a/secret@db.example/a" };
    const message = expect.stringMatching(/^(?!.*secret).*%2F.*file:\/run\/fleet/);
    expect(() => connectFleet("file:/run/fleet", place, true)).toThrow(expect.objectContaining({ message }));
  });

  test.each([
    ["refuse", 10_000],
    ["journal", 1000],
  ] as const)("is waited for by the clock, however long it takes not to answer (%s)", async (whenAway, most) => {
    const place = { client: "one", processId: "one", since: "", readFile: certificates };
    const { patience, elapsed } = connectFleet("postgres://db.example/a", place, false, whenAway);
    const since = elapsed() - most;
    expect([await patience(1, since, true), await patience(0, since, false)]).toEqual([false, false]);
    // The outcome of a commit is asked for once, whenever the server was lost.
    expect(await patience(0, since, true)).toBe(true);
  });

  test("that no server answers is waited for once, however many ask one after the other", async () => {
    const place = { client: "one", processId: "one", since: "", readFile: certificates };
    const { patience, elapsed, connections } = connectFleet("postgres:///a?host=/nowhere", place, false);
    fakeTimers("performance", "setTimeout", "clearTimeout");
    await connections.run({ text: "append" });
    vi.advanceTimersByTime(10_000);
    expect(await patience(0, elapsed(), false)).toBe(false);
  });
});

describe("the file of passwords", () => {
  const FILE = "/home/me/.pgpass";
  const LINES = [
    "# *:*:*:*:no",
    "db:5432:a:you:no",
    "other:*:*:me:n\\:o",
    "",
    "db:*:a:m\\:e:p\\:ss:word",
    "*:*:*:*:last",
  ];
  const read = (place: PasswordPlace, variables: NodeJS.ProcessEnv = { HOME: "/home/me" }, mode = 0o600): string => {
    const disk = new FaultDisk();
    disk.put(FILE, toBytes(LINES.slice(0, -1).join("\n")), mode);
    disk.put("/all", toBytes(LINES.join("\r\n")), mode);
    return readPassword(place, disk, variables);
  };
  const ours = { host: "db", port: 5432, database: "a", user: "m:e" };

  test("has the password of the first line for a server", () => {
    expect(read(ours)).toBe("p:ss:word");
    expect(read({ ...ours, host: "other", user: "me" })).toBe("n:o");
    expect(read({ host: "third" }, { PGPASSFILE: "/all" })).toBe("last");
  });

  test.each([
    ["it has no line for the server", { ...ours, user: "else" }, {}, 0o600, `${FILE} has no line for db:5432:a:else`],
    ["others may read it", ours, {}, 0o644, `${FILE} is not used, .*mode 644.*chmod 600`],
    ["it is missing", ours, { PGPASSFILE: "/none" }, 0o600, "/none does not exist"],
  ])("is named, with what to do, where %s", (_, place, variables, mode, said) => {
    const message = expect.stringMatching(new RegExp(`PGPASSWORD.*${said}`));
    const failure = expect.objectContaining({ name: "storage_failed", retryable: false, message });
    expect(() => read(place, { HOME: "/home/me", ...variables }, mode)).toThrow(failure);
  });

  test("is asked by the driver only for a server that asks for a password", async () => {
    vi.stubEnv("PGPASSFILE", "/none");
    vi.stubEnv("PGPASSWORD", undefined);
    const server = createServer((socket) => {
      // Asks for a password in clear text.
      socket.once("data", () => socket.write(Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 3])));
      socket.on("error", () => {});
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const place = { client: "one", processId: "one", since: "", readFile: certificates };
    const { fleet } = connectFleet(`postgres://me@127.0.0.1:${port}/a`, place, false);
    await expect(fleet.look("any")).rejects.toMatchObject({
      retryable: false,
      message: expect.stringMatching(/asks for a password.*\/none does not exist/),
    });
    await fleet.close();
  });
});

const NOTHING: Rows = { rows: [] };
const LIMITS = { most: 2, connectWithin: 60_000, answerWithin: 60_000 };
const rowOf = (row: object | Error): Rows | Error => (row instanceof Error ? row : { rows: [row as Rows["rows"][0]] });
const errorOf = (code: string, more: object = {}): Error =>
  Object.assign(new Error(`state ${code}`), { code, severity: "ERROR" }, more);
const refusing = (error: Error) => async (): Promise<never> => {
  throw error;
};

interface Behaviour {
  /** True if the server's process goes on after an error. */
  readonly lives?: boolean;
  readonly answer?: (text: string, say: (notice: Notice) => void) => Rows | Error | Promise<Rows>;
  readonly facts?: object;
  readonly place?: () => object | Error;
  readonly store?: () => object | Error;
  readonly hears?: boolean;
  readonly most?: number;
  readonly connect?: () => Promise<void>;
  readonly known?: KnownStore;
  readonly patience?: number;
}

/** A driver of a database that answers as the test says: of itself, its place, its fleet; `hears`: warnings come through. */
function databaseThat({
  answer = () => NOTHING,
  facts = {},
  place = () => ({ server: "7/1" }),
  store = () => ({ value: "a store" }),
  hears = true,
  most = 2,
  connect = async () => {},
  known,
  patience,
  lives = true,
}: Behaviour = {}) {
  let said: (notice: Notice) => void = () => {};
  let dropped = 0;
  const questions: { readonly text: string; readonly name?: string }[] = [];
  const client: DatabaseClient = {
    processID: 70,
    connect,
    async query({ text, name }: SqlStatement) {
      questions.push({ text, name });
      if (text.includes("pg_is_in_recovery"))
        return { rows: [{ standby: false, commit: "on", fsync: "on", standbys: "", version: "15.1", ...facts }] };
      if (text === "commit") {
        if (hears) said({ severity: "WARNING", message: "there is no transaction in progress" });
        return NOTHING;
      }
      if (text === "select 1" && lives) return NOTHING;
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
  const address = at("postgres:///a?host=/run/pg");
  const connections = new Connections({
    ...LIMITS,
    address,
    driver: async () => () => client,
    most,
    patience,
    store: known,
  });
  const run = (text: string, more: object = {}) => connections.run({ text, ...more });
  return { client, connections, dropped: () => dropped, questions, run };
}

const fleetOver = (connections: Connections): PostgresFleet =>
  new PostgresFleet(connections, { id: "one", shown: { client: "one", pid: 0, since: "" } });
const DONE = { kind: "done" };
/** Has a new session of a machine get its first entry. */
function writeOver(fleet: PostgresFleet, outage?: Outage) {
  const disk = new FaultDisk();
  const options = fleetOptions(fleet, { journal: journalOn(disk), outage });
  const ours = <T extends FileLogOptions>(given: T): T => withReplica(given, options);
  const { store } = harnessOn(disk, "/root", {}, () => {}, ours);
  const log = store.create(beginning(undefined, "/root/sessions/a.jsonl"));
  log.append([toBytes(userText(id(0), null))]);
  return { log, disk, commit: log.commit() };
}

/** Has the rest of a test run with timers that go on when it says. */
function fakeTimers(
  ...toFake: ("setTimeout" | "clearTimeout" | "setInterval" | "clearInterval" | "performance")[]
): void {
  vi.useFakeTimers({ toFake });
  onTestFinished(() => void vi.useRealTimers());
}

describe("an answer", () => {
  test.each([
    // The commit may have been given up by the standby that it waited for.
    ["WARNING", "canceling wait for synchronous replication due to user request", "unknown", 1],
    ["NOTICE", "schema exists", "done", 0],
  ] as const)("with a warning is none (%s)", async (severity, message, kind, drops) => {
    const { run, dropped } = databaseThat({
      answer(_, say) {
        say({ severity, message });
        return { rows: [{ done: 1 }] };
      },
    });
    expect(await run("append")).toMatchObject({ kind });
    expect(dropped()).toBe(drops);
  });

  test.each([
    ["42501", "ERROR", "failed"],
    ["22021", "ERROR", "failed"],
    ["53100", "ERROR", "failed"],
    ["58030", "ERROR", "failed"],
    ["XX000", "ERROR", "failed"],
    // Its log did not take the commit, or took it and did not say so.
    ["53100", "PANIC", "unknown"],
    ["53300", "FATAL", "unknown"],
    ["57P01", "FATAL", "unknown"],
    ["57P01", "ERROR", "unknown"],
    ["08006", "ERROR", "unknown"],
    ["40003", "ERROR", "unknown"],
    // A server that speaks another language says neither.
    ["42501", "FEHLER", "failed"],
    ["53100", "FEHLER", "unknown"],
  ])("that is an error of state %s (%s) is %s", async (code, severity, kind) => {
    const { run, dropped } = databaseThat({ answer: () => errorOf(code, { severity }) });
    expect(await run("append")).toMatchObject({ kind });
    expect(dropped()).toBe(kind === "unknown" ? 1 : 0);
  });

  test("that is an error of a process that ends right after it is unknown: it may have committed before", async () => {
    const { run, dropped } = databaseThat({ answer: () => errorOf("XX000"), lives: false });
    expect(await run("append")).toMatchObject({ kind: "unknown" });
    expect(dropped()).toBe(1);
  });

  test("of a database whose disk is full is a failure that says so and what to do, and nothing is there", async () => {
    const { connections } = databaseThat({ answer: () => errorOf("53100"), place: () => errorOf("42883") });
    const fleet = fleetOver(connections);
    const batch = batchOf({ id: "one", epoch: 1, end: NO_LINES }, ["{}"]);
    const reason = expect.stringContaining("its disk is full; make room");
    expect(await fleet.append(batch)).toMatchObject({ kind: "away", reason });
    const said = { name: "storage_failed", retryable: true, message: reason };
    await expect(connections.read({ text: "a read" })).rejects.toMatchObject(said);
    // A host hears the same, and not that the database cannot be reached.
    const message = expect.stringMatching(/has not done it \(its disk is full; make room.*Nothing was changed/);
    await expect(writeOver(fleet).commit).rejects.toMatchObject({ ...said, message });
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
    const error = errorOf(code, code === "28000" ? { routine: "InitializeSessionUserId" } : {});
    for (const { connections } of [
      databaseThat({ answer: () => errorOf(code), place: () => errorOf("42883") }),
      ...(code.startsWith("42") ? [] : [databaseThat({ connect: refusing(error) })]),
    ]) {
      const fleet = fleetOver(connections);
      expect(await fleet.take("session", 0)).toEqual({ kind: "unfit", reason: expect.stringContaining(remedy) });
      await expect(fleet.look("session")).rejects.toMatchObject(refused);
      await expect(new FleetPruning(connections, "").find({ rows: 0 })).rejects.toMatchObject(refused);
    }
  });

  // The answer of a directory, which may be away, lasts no longer than that.
  test.each([
    ["InitializeSessionUserId", 'role "nobody" does not exist', "failed"],
    ["InitializeSessionUserId", "Die Rolle »nobody« existiert nicht", "failed"],
    ["ClientAuthentication", 'pg_hba.conf rejects connection for host "10.0.0.1", user "me"', "failed"],
    ["ClientAuthentication", "Verbindung erfordert ein gültiges Client-Zertifikat", "failed"],
    ...["Peer", "certificate"].map((way) => ["auth_failed", `${way} authentication failed for user "me"`, "failed"]),
    ...["LDAP", "PAM", "RADIUS"].map((way) => ["auth_failed", `${way} authentication failed for user "me"`, "away"]),
  ])("to a role that is not let in is a refusal where that lasts: %s: %s", async (routine, message, kind) => {
    const { run } = databaseThat({ connect: refusing(errorOf("28000", { message, routine })) });
    expect(await run("append")).toMatchObject({ kind, reason: message });
  });

  const coded = (code: string, message = "its certificate"): Error => Object.assign(new Error(message), { code });
  test.each([
    ["failed", "npm install pg", "driver", new Failure("storage_failed", "npm install pg", {}, { retryable: false })],
    ["away", "", "driver", new Failure("storage_failed", "try again", {})],
    ["failed", "sslrootcert", "server", coded("CERT_HAS_EXPIRED")],
    ["failed", "sslrootcert", "server", coded("DEPTH_ZERO_SELF_SIGNED_CERT")],
    ["failed", "sslrootcert", "server", coded("SELF_SIGNED_CERT_IN_CHAIN")],
    ["failed", "sslrootcert", "server", coded("ERR_TLS_CERT_ALTNAME_INVALID")],
    ["failed", "sslmode=disable", "server", new Error("The server does not support SSL connections")],
    ["away", "", "server", coded("ECONNREFUSED", "connect ECONNREFUSED")],
    ["away", "", "server", new Error("Connection terminated unexpectedly")],
  ] as const)("of nobody has nobody go on alone for ever: %s, %s, %s: %s", async (kind, remedy, what, error) => {
    const address = at("postgres:///a?host=/run/pg");
    const connections =
      what === "driver"
        ? new Connections({ ...LIMITS, address, driver: refusing(error) })
        : databaseThat({ connect: refusing(error) }).connections;
    const isAway = kind === "away";
    expect(await connections.run({ text: "append" })).toMatchObject({ kind });
    const fleet = fleetOver(connections);
    const taking = { kind: isAway ? "away" : "unfit", reason: expect.stringContaining(remedy) };
    expect(await fleet.take("session", 0)).toMatchObject(taking);
    await expect(fleet.look("session")).rejects.toMatchObject({ retryable: isAway });
    // A host that would go on alone gets a failure.
    const { log, disk, commit } = writeOver(fleet, new Outage(fleet, 0, () => 0));
    if (isAway) await commit;
    else await expect(commit).rejects.toMatchObject({ name: "storage_failed", retryable: false });
    expect([log.replica?.status.durability, notesOn(disk).length]).toEqual(isAway ? ["local", 1] : [undefined, 0]);
  });

  test("that came too late for a serial order is asked for again, a few times", async () => {
    // It waits for a random time before it asks again.
    const random = vi.spyOn(Math, "random").mockReturnValue(0);
    onTestFinished(() => random.mockRestore());
    let asked = 0;
    expect(
      await databaseThat({ answer: () => (++asked < 3 ? errorOf("40001") : NOTHING) }).run("append"),
    ).toMatchObject(DONE);
    const failed = { kind: "failed", code: "40P01" };
    expect(await databaseThat({ answer: () => errorOf("40P01") }).run("append")).toMatchObject(failed);
  });

  test.each([
    [{ standby: true }, "standby"],
    [{ commit: "off" }, "synchronous_commit = off"],
    [{ fsync: "off" }, "fsync = off"],
  ])("of a server with %j is not asked for", async (facts, reason) => {
    const away = { kind: "away", reason: expect.stringContaining(reason) };
    expect(await databaseThat({ facts }).run("append")).toMatchObject(away);
  });

  test.each<[object, string, Behaviour?]>([
    [{}, "primary"],
    [{ standbys: "*" }, "replicated"],
    [{ standbys: "*", commit: "remote_apply" }, "replicated"],
    [{ standbys: "*", commit: "local" }, "primary"],
    // A commit that its standby gives up would look like any other.
    [{ standbys: "*", told: "error" }, "primary"],
    [{ standbys: "*", told: "warning" }, "replicated"],
    // A pooler keeps the warnings.
    [{ standbys: "*" }, "primary", { hears: false }],
    // An engine does not say which server it is.
    [{ standbys: "*" }, "primary", { place: () => errorOf("42883") }],
  ])("of a server with %j is durable as %s (%o)", async (facts, durability, more = {}) => {
    const { connections, run } = databaseThat({ facts, ...more });
    const by = { durability, version: "15.1" };
    expect(await run("append", more.place ? { server: "7/1" } : {})).toMatchObject({ ...DONE, by });
    expect(connections.fact).toMatchObject(by);
    if (more.place) expect(connections.fact).toEqual(by);
  });

  test.each([
    ["the process with which the connection was made", { server: "7/1", process: 70 }, true],
    ["another process, as behind a pooler", { server: "7/1", process: 71 }, false],
    ["an engine that does not say which server it is", errorOf("42883"), false],
  ])("of %s", async (_, place, isKept) => {
    let failing: string | undefined;
    const { connections, questions, run } = databaseThat({
      answer: () => (failing !== undefined && questions.at(-1)?.name !== undefined ? errorOf(failing) : NOTHING),
      place: () => place,
    });
    for (const text of ["append one", "append two", "append one"])
      expect(await run(text, { isRepeated: true })).toMatchObject(DONE);
    await run("take");
    const names = questions.slice(-4).map(({ name }) => name);
    expect(names.map((name) => name !== undefined)).toEqual([isKept, isKept, isKept, false]);
    expect(new Set(names).size).toBe(isKept ? 3 : 1);
    // Nothing was done, and it is asked for again, from then on without a name.
    failing = "26000";
    const before = questions.length;
    const seen: (boolean | undefined)[] = [];
    for (let n = 0; n < 2; n++)
      await connections.run(({ isDirect }) => {
        seen.push(isDirect);
        return { text: "append one", isRepeated: true };
      });
    expect(questions.length - before).toBe(isKept ? 3 : 2);
    expect(seen.map(Boolean)).toEqual(isKept ? [true, false, false] : [false, false]);
  });

  const ending = (text: string): Rows | Error => {
    if (text === "a refusal") return errorOf("42501");
    return text === "its connection ends" ? errorOf("57P01") : NOTHING;
  };

  test("of another store than before is not asked for, nor of one that has no tables any more", async () => {
    let store: object | Error;
    const { run } = databaseThat({ answer: ending, store: () => store });
    const saying = (reason: string): object => ({ kind: "away", reason: expect.stringContaining(reason) });
    for (const [next, answer] of [
      [errorOf("42P01"), DONE],
      [{ value: "one" }, DONE],
      [{ value: "two" }, saying("its store is two, and this machine's sessions are in one")],
      [errorOf("42P01"), saying("no tables")],
      // A role without the right uses the existing setting.
      [errorOf("42501"), DONE],
      [{ value: "one" }, DONE],
    ]) {
      store = next;
      expect(await run("take")).toMatchObject(answer);
      await run("its connection ends");
    }
  });

  test.each([
    [99, "use a newer pi-session-server"],
    [1, "fleet migrate says what to do"],
  ])("whose tables have version %i is sent nothing, and the reason says what to do", async (version, remedy) => {
    const known = openKnownStore(new FaultDisk(), "/root/state", "postgres://me@db/agents");
    const { run, questions } = databaseThat({ answer: ending, store: () => ({ value: "one", version }), known });
    const reason = expect.stringMatching(new RegExp(`have version ${version}, .*${remedy}`));
    expect(await run("append")).toMatchObject({ kind: "failed", reason });
    expect(questions.join()).not.toContain("append");
  });

  describe("of a former primary", () => {
    const ADDRESS = "postgres://me@db/agents";
    /** Processes of one machine, and the server at its endpoint. */
    function machine() {
      const disk = new FaultDisk();
      const at = { server: "7/2" };
      const process = () => {
        const known = openKnownStore(disk, "/root/state", ADDRESS);
        return databaseThat({ answer: ending, place: () => ({ ...at }), store: () => ({ value: "a store" }), known });
      };
      const note = () => disk.paths().find((path) => path.includes("fleet-stores")) ?? "";
      return { disk, at, process, note };
    }
    const refused = (path: string) => {
      const reason = expect.stringMatching(new RegExp(`Nothing is acknowledged.*nothing more is sent.*${path}`));
      return { kind: "away", reason };
    };

    test("is not asked for, by a process that begins later neither, until its note is removed", async () => {
      const { disk, at, process, note } = machine();
      const first = process();
      expect(await first.run("append")).toMatchObject(DONE);
      at.server = "7/1";
      await first.run("its connection ends");
      for (const { run } of [first, process()]) expect(await run("append")).toMatchObject(refused(note()));
      // The one that was promoted last, and another cluster with the same store, as after a dump.
      for (const server of ["7/3", "8/1"]) {
        at.server = server;
        expect(await process().run("append")).toMatchObject(DONE);
      }
      at.server = "8/2";
      const again = process();
      expect(await again.run("append")).toMatchObject(DONE);
      at.server = "8/1";
      await again.run("its connection ends");
      expect(await again.run("append")).toMatchObject(refused(note()));
      disk.remove(note());
      for (const { run } of [again, process()]) expect(await run("append")).toMatchObject(DONE);
    });

    test("is not taken any more over a connection that lives, once another process has met the next one", async () => {
      const { at, process, note } = machine();
      at.server = "7/1";
      const [first, idle] = [process(), process()];
      for (const { run } of [first, idle]) expect(await run("append")).toMatchObject(DONE);
      at.server = "7/2";
      expect(await process().run("append")).toMatchObject(DONE);
      at.server = "7/1";
      // It looks when something fails.
      expect(await first.run("append")).toMatchObject(DONE);
      expect(await first.run("a refusal")).toMatchObject({ kind: "failed" });
      expect(await first.run("append")).toMatchObject(refused(note()));
    });

    test.each([
      [1, 2],
      [2, 1],
    ])("stays one when two processes note what they met at the same time (%s, %s)", async (...timelines) => {
      const { disk } = machine();
      const known = () => openKnownStore(disk, "/root/state", ADDRESS);
      await Promise.all(timelines.map((timeline) => known().note({ latest: { system: "7", timeline } })));
      expect(known().known()).toEqual({ latest: { system: "7", timeline: 2 } });
      expect(disk.paths()).toHaveLength(1);
    });

    test("is noted once, and never in the way of a commit", async () => {
      const { disk, at, process, note } = machine();
      const [one, two] = [process(), process()];
      for (const { run } of [one, two, process()]) expect(await run("append")).toMatchObject(DONE);
      const written = disk.operations.filter((name) => name.startsWith("rename"));
      expect(written).toHaveLength(1);
      const noted = JSON.parse(Buffer.from(disk.content(note()) ?? []).toString());
      expect(noted).toEqual({ address: ADDRESS, store: "a store", server: "7/2" });
      at.server = "7/3";
      vi.spyOn(disk, "create").mockImplementation(() => {
        throw Object.assign(new Error("no room"), { code: "ENOSPC" });
      });
      await two.run("its connection ends");
      expect(await two.run("append")).toMatchObject(DONE);
      at.server = "7/2";
      await two.run("its connection ends");
      expect(await two.run("append")).toMatchObject(refused(note()));
    });
  });
});

describe("connections", () => {
  test("that nobody uses for a moment are closed, and ask early whether the other end is there", async () => {
    fakeTimers("setInterval", "clearInterval", "performance");
    const made: DatabaseServer[] = [];
    const waiting: (() => void)[] = [];
    let open = 0;
    const answer = (): Promise<Rows> => new Promise((resolve) => waiting.push(() => resolve(NOTHING)));
    const connections = new Connections({
      ...{ ...LIMITS, address: at("postgres:///a?host=/run/pg"), most: 8 },
      driver: async () => (config) => {
        made.push(config);
        open++;
        return Object.assign(databaseThat({ answer }).client, { end: async () => void open-- });
      },
    });
    const asked = Array.from({ length: 5 }, () => connections.run({ text: "wait" }));
    const answerAll = async (count: number): Promise<void> => {
      while (waiting.length < count) await new Promise(setImmediate);
      for (const go of waiting.splice(0)) go();
    };
    await answerAll(5);
    await Promise.all(asked);
    expect(made).toHaveLength(5);
    for (const config of made) expect(config).toMatchObject({ keepAlive: true, keepAliveInitialDelayMillis: 30_000 });
    // One is used as leases are renewed: it is always the same.
    for (let n = 0; n < 3; n++) {
      vi.advanceTimersByTime(10_000);
      const next = connections.run({ text: "wait" });
      await answerAll(1);
      expect(await next).toMatchObject(DONE);
    }
    expect([open, made.length]).toEqual([1, 5]);
    vi.advanceTimersByTime(25_000);
    expect([open, vi.getTimerCount()]).toEqual([0, 0]);
  });

  test("answer all who wait, also those who ask while they are closed, and are closed then", async () => {
    const answers: (() => void)[] = [];
    const answer = (): Promise<Rows> => new Promise((resolve) => answers.push(() => resolve(NOTHING)));
    const { connections, run } = databaseThat({ answer, most: 1 });
    const order: string[] = [];
    const ask = async (text: string): Promise<void> => void order.push(`${text} ${(await run(text)).kind}`);
    const asked = [ask("first"), ask("second")];
    const closed = connections.close().then(() => order.push("closed"));
    asked.push(ask("third"));
    for (let n = 0; n < 3; n++) await vi.waitFor(() => (answers.shift() as () => void)());
    await Promise.all([...asked, closed]);
    expect(order).toEqual(["first done", "second done", "third done", "closed"]);
    expect(await run("late")).toEqual({ kind: "away", reason: "the fleet was closed" });
  });

  test("answer all who wait as soon as one finds out that the server cannot be reached", async () => {
    const failing: ((error: Error) => void)[] = [];
    const { run } = databaseThat({ connect: () => new Promise((_, reject) => void failing.push(reject)) });
    const asked = range(0, 20).map(() => run("take"));
    await vi.waitFor(() => expect(failing).toHaveLength(2));
    failing[0](new Error("nobody there"));
    const away = { kind: "away", reason: "nobody there" };
    expect(await Promise.all(asked.toSpliced(1, 1))).toEqual(asked.toSpliced(1, 1).map(() => away));
    failing[1](new Error("nobody there"));
    expect([await asked[1], failing.length]).toEqual([away, 2]);
  });

  test("of a server that was lost for longer than a request waits are tried by one statement for many", async () => {
    fakeTimers("performance");
    let tries = 0;
    const connect = async (): Promise<never> => {
      tries++;
      throw new Error("nobody there");
    };
    const { run } = databaseThat({ connect, patience: 10_000 });
    const away = { kind: "away", reason: "nobody there" };
    for (const [milliseconds, all] of [
      [0, 1],
      [0, 2],
      [10_000, 3],
      [100, 3],
      [100, 3],
      [1000, 4],
    ]) {
      vi.advanceTimersByTime(milliseconds);
      expect([await run("append"), tries]).toEqual([away, all]);
    }
  });

  test("that nobody uses are given up with one whose server does not answer", async () => {
    fakeTimers("setTimeout", "clearTimeout");
    const { questions, run } = databaseThat({
      answer: (text) => (text === "unanswered" ? new Promise(() => {}) : NOTHING),
    });
    await Promise.all([run("one"), run("two")]);
    const late = run("unanswered");
    await vi.advanceTimersByTimeAsync(LIMITS.answerWithin);
    expect(await late).toMatchObject({ kind: "unknown" });
    expect(await run("next")).toMatchObject(DONE);
    expect(questions.filter(({ text }) => text.includes("pg_is_in_recovery"))).toHaveLength(3);
  });

  test("wait as long for a statement as it may take, and no longer", async () => {
    fakeTimers("setTimeout", "clearTimeout");
    const { run } = databaseThat({ answer: () => new Promise(() => {}) });
    const outcomes: string[] = [];
    const ask = (text: string, within?: number) =>
      void run(text, { within }).then(({ kind }) => outcomes.push(`${text} ${kind}`));
    ask("short");
    ask("long", 600_000);
    for (const [milliseconds, ended] of [
      [60_000, ["short unknown"]],
      [539_999, ["short unknown"]],
      [1, ["short unknown", "long unknown"]],
    ] as const) {
      await vi.advanceTimersByTimeAsync(milliseconds);
      expect(outcomes).toEqual(ended);
    }
  });

  test("that are made when all are closed already are ended, and ask for nothing", async () => {
    fakeTimers("setTimeout", "clearTimeout");
    let made: () => void = () => {};
    const { connections, dropped, questions, run } = databaseThat({
      connect: () => new Promise((resolve) => (made = resolve)),
    });
    const asked = run("append");
    await vi.advanceTimersByTimeAsync(0);
    const closed = connections.close();
    await vi.advanceTimersByTimeAsync(1000);
    await closed;
    made();
    expect(await asked).toEqual({ kind: "away", reason: "the fleet was closed" });
    expect(dropped()).toBe(1);
    expect(questions.map(({ text }) => text)).not.toContain("append");
  });

  test("outlive a statement that cannot be made, of which nothing is done", async () => {
    const { connections, dropped, questions, run } = databaseThat();
    const tooLong = (): never => {
      throw new RangeError("Invalid string length");
    };
    for (let n = 0; n < 3; n++)
      expect(await connections.run(tooLong)).toMatchObject({ kind: "failed", reason: "Invalid string length" });
    expect(await run("append")).toMatchObject(DONE);
    expect(dropped()).toBe(0);
    expect(questions.filter(({ text }) => text.includes("pg_is_in_recovery"))).toHaveLength(1);
    await expect(connections.read(tooLong)).rejects.toMatchObject({ name: "storage_failed" });
  });
});

const failing = (retryable: boolean) => new Failure("storage_failed", "test", { fleet: true }, { retryable });

test.each([
  ["answers", null, false],
  ["does not answer", failing(true), true],
  ["refuses", failing(false), false],
])("an outage lasts as it should where the database %s", async (_what, failure, lasts) => {
  let now = 0;
  const look = vi.fn(() => (failure ? Promise.reject(failure) : Promise.resolve(null)));
  const outage = new Outage({ look }, 1, () => (now += 10));
  outage.begin();
  for (let n = 1; n < 4; n++) {
    expect(outage.lasts).toBe(n === 1 || lasts);
    await new Promise(setImmediate);
  }
  expect(look.mock.calls.length).toBe(lasts ? 3 : 1);
});
