/** Machines whose sessions are also in a PostgreSQL of the tests, faults of their calls, and scenes. */

import { appendFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect } from "vitest";
import { Failure } from "../../../../src/core/failure.ts";
import type { FleetEnd, FleetFacts } from "../../../../src/core/ports/fleet.ts";
import type { SqlAnswer, SqlQuestion } from "../../../../src/modules/fleet/postgres/connections.ts";
import { Outage } from "../../../../src/modules/fleet/replica/outage.ts";
import type { Disk } from "../../../../src/storage/fs/disk.ts";
import { assistant, SPOKEN, user } from "../../../support/drafts.ts";
import { chain, fileText, headerText } from "../../../support/lines.ts";
import { HereLives, type HereLivesOptions } from "../../../support/proof.ts";
import { range } from "../../../support/random.ts";
import type { Json, Place, Wire } from "../../../support/server.ts";
import { type Run, runHere } from "../../../support/verbs.ts";
import { batchOf as batchFor, NO_FACTS } from "./commits.ts";
import { type SuiteDatabase, suiteDatabase, type TestDatabase } from "./database.ts";
import { Pooler } from "./pooler.ts";
import { type SqlFleet, type SqlFleetOptions, sqlFleet } from "./sql-fleet.ts";

export const HEADER = Buffer.from('{"type":"session"}');
export const AWAY: SqlAnswer = { kind: "away", reason: "test: away" };
export const LOST: SqlAnswer = { kind: "unknown", reason: "test: the answer is lost" };

type Change = (text: string, ask: () => Promise<SqlAnswer>, values: string, question: SqlQuestion) => unknown;

/** Intercepts the statements of a process. `change` may replace an answer. Returns a function that ends this. */
export function meddle({ connections }: Pick<SqlFleet, "connections">, change: Change): () => void {
  return instead(connections, "run", (run) => async (question, sent) => {
    const fact = connections.fact ?? { durability: "primary", version: "" };
    const { text, values } = typeof question === "function" ? question(fact) : question;
    const answer = await change(text, () => run(question, sent), String(values), question);
    return (answer as SqlAnswer | undefined) ?? run(question, sent);
  });
}

/** Has a method do something else. Returns what ends that. */
export function instead<Target, Name extends keyof Target>(
  target: Target,
  name: Name,
  make: (own: Target[Name]) => Target[Name],
): () => void {
  const own = target[name];
  target[name] = make((own as (...given: unknown[]) => unknown).bind(target) as Target[Name]);
  return () => {
    target[name] = own;
  };
}

/** Returns a commit of lines that continue an end. */
export function batchOf(
  id: string,
  epoch: number,
  end: FleetEnd,
  texts: readonly string[],
  facts: Partial<FleetFacts> = {},
) {
  return batchFor({ id, epoch, end }, texts, { ...NO_FACTS, ...facts });
}

export async function linesOf({ fleet }: Pick<SqlFleet, "fleet">, id: string, from: number, to: number) {
  const texts: string[] = [];
  for await (const lines of fleet.lines(id, from, to)) texts.push(...lines.map((line) => Buffer.from(line).toString()));
  return texts;
}

const TABLES = "session, entry, pack, behind, described, said, word, spent, attached, blob, blob_part".split(", ");

type ServedFleet = SqlFleet & { outage?: Outage; long?: number; partBytes?: number };

export interface Machine {
  readonly fleet: ServedFleet;
  readonly lives: HereLives;
  readonly wire: Wire;
  readonly place: Place;
}

interface MachineOptions {
  readonly fleet?: ServedFleet;
  readonly place?: Place;
  readonly disk?: Disk;
  readonly args?: string[];
}

interface SuiteOptions {
  /** True if its processes reach the database through a pooler. */
  readonly isPooled?: boolean;
  /** True if what a test leaves is there in the next one. */
  readonly keepsRows?: boolean;
}

/** Declares a database for the calling suite, which is empty before each test, and machines. */
export function fleetSuite(database?: undefined, options?: SuiteOptions): FleetSuite;
export function fleetSuite<Server extends TestDatabase>(
  database: SuiteDatabase<Server>,
  options?: SuiteOptions,
): FleetSuite<Server>;
export function fleetSuite(database: SuiteDatabase<TestDatabase> = suiteDatabase(), options: SuiteOptions = {}) {
  return new FleetSuite(database, options);
}

export class FleetSuite<Server extends TestDatabase = SuiteDatabase["server"]> {
  readonly database: SuiteDatabase<Server>;
  pooler: Pooler | undefined;
  private readonly opened: SqlFleet[] = [];

  constructor(database: SuiteDatabase<Server>, { isPooled = false, keepsRows = false }: SuiteOptions) {
    this.database = database;
    beforeAll(async () => {
      if (!isPooled) return;
      const { name, folder } = database.server;
      this.pooler = new Pooler({ database: name });
      await this.pooler.start(folder);
    });
    afterAll(async () => {
      await Promise.all(this.opened.map(({ fleet }) => fleet.close()));
      await this.pooler?.close();
    });
    beforeEach(() => void (keepsRows || this.empty()));
  }

  empty(): void {
    this.sql(`truncate ${TABLES.map((table) => `pi_fleet.${table}`).join(", ")}`);
  }

  /** The address that its processes have. */
  get url(): string {
    return (this.pooler ?? this.database.server).url;
  }

  connect(): SqlFleet {
    return this.open(`machine ${this.opened.length}`);
  }

  /** Connects for a process with a name of its own. */
  open(name: string, { url = this.url, ...how }: SqlFleetOptions & { readonly url?: string } = {}): SqlFleet {
    const fleet = sqlFleet(url, name, how);
    this.opened.push(fleet);
    return fleet;
  }

  sql(text: string): string {
    return this.database.server.sql(text);
  }

  /** Returns what a column has, one value a row. */
  column(text: string): string[] {
    return this.sql(text).split("\n").filter(Boolean);
  }

  /** Returns columns of the row of a session. */
  row(id: string, columns = "state"): string {
    return this.sql(`select ${columns} from pi_fleet.session where id = '${id}'`);
  }

  /** Has all leases run out. */
  endLeases(): void {
    this.sql("update pi_fleet.session set lease_until = now()");
  }

  /** Waits until SQL says something. */
  async until(text: string, said: string): Promise<void> {
    await expect.poll(() => this.sql(text), { timeout: 30_000, interval: 20 }).toBe(said);
  }

  /** Returns a connection of a machine that goes on while the database is away. */
  alone(): ServedFleet & { outage: Outage } {
    const one = this.connect();
    return { ...one, outage: new Outage(one.fleet, 0, () => 0) };
  }

  /** Returns servers of a machine, each with a seed of its own. */
  lives(options: HereLivesOptions = {}): HereLives {
    const fleet = "fleet" in options ? options.fleet : this.connect();
    return new HereLives({ seed: 1 + this.opened.length, ...options, fleet });
  }

  /** Starts a server on a machine of its own. */
  async machine({ fleet = this.connect(), place, disk, args }: MachineOptions = {}): Promise<Machine> {
    const lives = this.lives({ fleet, place, disk });
    return { fleet, lives, wire: await lives.start(args), place: lives.place };
  }

  /** Leaves a session. Its server lets go of it in the background. */
  async leave(wire: Wire, id: string): Promise<void> {
    await wire.result("new_session");
    await this.until(`select count(holder) from pi_fleet.session where id = '${id}'`, "0");
  }

  /** Makes a session with what a user says and is answered, and leaves it. */
  async make({ wire, place }: Machine, text: string): Promise<Made> {
    await wire.result("new_session", { cwd: place.cwd });
    await wire.result("append", { entries: [user(text), assistant(`answer to ${text}`)] });
    const { sessionId, sessionFile } = await wire.result("get_state");
    await this.leave(wire, sessionId);
    return { sessionId, sessionFile };
  }

  /** Goes on with a session, and leaves it. */
  async write({ wire }: Machine, sessionId: string, text: string): Promise<void> {
    await wire.result("switch_session", { sessionId });
    await wire.result("append", { entries: [user(text)] });
    await this.leave(wire, sessionId);
  }

  /** Returns the text of a session as a machine shows it. */
  async read({ wire }: Pick<Machine, "wire">, where: Json): Promise<string> {
    await wire.result("switch_session", where);
    const { entries } = await wire.result("get_entries");
    await wire.result("new_session");
    return JSON.stringify(entries);
  }

  verb(words: string, place: Place = new HereLives({}).place, url = this.url): Promise<Run> {
    return runHere(place, ["fleet", ...words.split(" ")], { variables: { PI_FLEET_URL: url }, hashes: true });
  }

  /** Returns what a verb says as JSON. */
  async runVerb(words: string, place?: Place, url?: string): Promise<Json> {
    const { stdout, stderr } = await this.verb(`${words} --json`, place, url);
    expect([words, stderr]).toEqual([words, ""]);
    return JSON.parse(stdout);
  }
}

/** Begins a session with these entries. Returns its id. */
export async function newSession(wire: Wire, entries: readonly Json[], params: object = {}): Promise<string> {
  await wire.result("new_session", params);
  await wire.result("append", { entries });
  return (await wire.result("get_state")).sessionId;
}

/** A session of a scene. */
interface Made {
  readonly sessionId: string;
  readonly sessionFile: string;
}

/** Everything of a scene. */
interface Cast {
  readonly suite: FleetSuite;
  readonly machines: Map<string, Machine>;
  readonly sessions: Map<string, Made>;
  readonly ends: (() => void)[];
  /** Everything that the database had once. */
  rows: string[];
}

const failing = async (): Promise<never> => {
  throw new Failure("storage_failed", "test: away", { fleet: true });
};

/** Faults of a machine until it heals. */
const FAULTS: Readonly<Record<string, (fleet: SqlFleet, made: Made, times: number) => () => void>> = {
  away: (fleet) => meddle(fleet, () => AWAY),
  unbegun: ({ adminQueries }) => instead(adminQueries, "beginAgain", () => async () => false),
  unconfirmed: ({ adminQueries }) => instead(adminQueries, "keep", () => async () => false),
  ungiven: ({ fleet }) => instead(fleet, "append", () => async () => ({ kind: "away", reason: "test: away" })),
  unrestored: ({ adminQueries }) => instead(adminQueries, "restore", () => failing),
  unseen: ({ fleet }, { sessionId }, times) => {
    let left = times;
    return instead(fleet, "look", (look) => async (id) => (id === sessionId && --left >= 0 ? failing() : look(id)));
  },
  /** Another program takes the file away when the session is taken. */
  robbed: ({ fleet }, { sessionFile }) =>
    instead(fleet, "take", (take) => async (...given) => {
      if (existsSync(sessionFile)) renameSync(sessionFile, `${sessionFile}.away`);
      return take(...given);
    }),
};

/** Has something happen to a machine, about a session. Returns what ends that. */
export const befall = (fault: string, fleet: SqlFleet, made: Made = { sessionId: "", sessionFile: "" }, times = 1) =>
  FAULTS[fault](fleet, made, times);

type Step = (cast: Cast, one: Machine, made: Made, words: string[]) => unknown;

/** The steps of scenes that are no command. Of those that return something, members can be asked for. */
const STEPS: Readonly<Record<string, Step>> = {
  make: async ({ suite, sessions }, one, _, [name]) => sessions.set(name, await suite.make(one, name)),
  write: ({ suite }, one, { sessionId }, words) => suite.write(one, sessionId, words.join(" ")),
  /** Goes on with it in one commit of many lines, whose words come behind it from who has the session open. */
  async fill({ suite }, { wire }, { sessionId }, words) {
    const entries = range(0, 40).map((n) => user(`${words.join(" ")} ${n} ${"x".repeat(300)}`));
    await wire.result("switch_session", { sessionId });
    await wire.result("append", { entries });
    await suite.until("select count(*) from pi_fleet.behind", "0");
    await suite.leave(wire, sessionId);
  },
  /** Has an answer that was paid for. */
  async pay({ suite }, { wire }, { sessionId }, [input, total]) {
    const { message } = assistant("paid");
    const cost = { ...SPOKEN.usage.cost, total: Number(total) };
    const usage = { ...SPOKEN.usage, input: Number(input), cost };
    await wire.result("switch_session", { sessionId });
    await wire.result("append", { entries: [{ type: "message", message: { ...message, ...SPOKEN, usage } }] });
    await suite.leave(wire, sessionId);
  },
  leave: ({ suite }, { wire }, { sessionId }) => suite.leave(wire, sessionId),
  async name({ suite }, { wire }, { sessionId }, [name]) {
    await wire.result("switch_session", { sessionId });
    await wire.result("set_session_name", { name });
    await suite.leave(wire, sessionId);
  },
  async reads({ suite }, one, { sessionId }, words) {
    expect(await suite.read(one, { sessionId })).toContain(JSON.stringify(words.join(" ")).slice(1, -1));
  },
  /** Its file has a text, or is a container that is there. */
  holds(_, __, { sessionFile }, words) {
    if (sessionFile.endsWith(".v2")) expect(existsSync(sessionFile)).toBe(true);
    else expect(readFileSync(sessionFile, "utf8")).toContain(words.join(" "));
  },
  end: (_, { lives }) => lives.end(),
  /** Another process of the machine begins, when its server has ended. */
  async start({ suite, machines }, { fleet, place }, _, [name]) {
    machines.set(name, await suite.machine({ fleet: { ...fleet, ...suite.connect() }, place }));
  },
  async doctor({ suite }, { place }) {
    const options = { variables: { PI_FLEET_URL: suite.url }, hashes: true };
    return JSON.parse((await runHere(place, ["doctor", "--json"], options)).stdout).fleet;
  },
  /** Expects an event of the open session, soon. */
  hears: (_, { wire }, __, words) =>
    expect
      .poll(async () => JSON.stringify((await wire.result("get_state")).diagnostics), { timeout: 20_000 })
      .toContain(words.join(" ")),
  /** A person does what the restore says. */
  async obeys({ suite }, { place }) {
    const said = JSON.stringify(await suite.runVerb("restore", place));
    rmSync(/remove (\S+) to/.exec(said)?.[1] as string);
  },
  /** Brings in a session in the session folder and one outside of it, and a part of that. */
  async imports({ suite }, { place }) {
    for (const [n, folder] of [".pi/agent/sessions/--work--", "outside", "part"].entries()) {
      const [header, ...lines] = fileText(headerText({ id: `imported-${Math.min(n, 1)}` }), ...chain(3)).split("\n");
      const path = join(place.home, folder);
      mkdirSync(path, { recursive: true });
      const name = `2026-01-24T16-22-26-831Z_imported-${Math.min(n, 1)}.jsonl`;
      writeFileSync(join(path, name), [header, ...(n < 2 ? lines : lines.slice(0, 1)), ""].join("\n"));
      expect((await suite.verb(`import ${path}`, place)).status).toBe(0);
    }
  },
  /** The records of what was acknowledged are gone. */
  forgets: (_, { place }) => rmSync(join(place.state, "fleet-ends"), { recursive: true }),
  /** Imports its session folder. */
  brings: ({ suite }, { place }) => suite.verb(`import ${join(place.home, ".pi")}`, place),
  gone: (_, __, { sessionFile }) => rmSync(sessionFile),
  /** The disk has a state of the file before its first entry. */
  reverts: (_, __, { sessionFile }) =>
    writeFileSync(sessionFile, `${readFileSync(sessionFile, "utf8").split("\n")[0]}\n`),
  damages: (_, __, { sessionFile }) => appendFileSync(sessionFile, "{damaged\n"),
  /** The sessions that are there, and those in the archive. */
  async lists({ sessions }, { wire }, _, [names, archived = "-"]) {
    const nameOf = ({ sessionId }: Json) => [...sessions].find(([, made]) => made.sessionId === sessionId)?.[0];
    const found = async (params: Json) =>
      (await wire.result("list_sessions", params)).sessions.map(nameOf).sort().join() || "-";
    expect([await found({}), await found({ archived: true })]).toEqual([names, archived]);
  },
  /** The sessions in pages of one, in any order. */
  async pages({ sessions }, { wire }, _, names) {
    const all = names.map((name) => sessions.get(name)?.sessionId);
    for (const sort of ["modified", "name", "cost"]) {
      const found: string[] = [];
      for (let cursor: string | undefined; found.length === 0 || cursor !== undefined; ) {
        const page = await wire.result("list_sessions", { sort, limit: 1, cursor });
        found.push(...page.sessions.map(({ sessionId }: Json) => sessionId));
        cursor = page.nextCursor;
      }
      expect([sort, found.sort()]).toEqual([sort, all.sort()]);
    }
  },
  /** A session in a list. */
  async shows(_, { wire }, { sessionId }, words) {
    const params = Object.fromEntries(words.map((word) => [word, true]));
    const { sessions } = await wire.result("list_sessions", params);
    return sessions.find((one: Json) => one.sessionId === sessionId);
  },
  befalls: ({ ends }, { fleet }, made, [fault, times = "1"]) => ends.push(befall(fault, fleet, made, Number(times))),
  heals({ ends }) {
    for (const end of ends.splice(0)) end();
  },
  fleet: ({ suite }, { place }, _, words) => suite.verb(words.join(" "), place),
  tells: ({ suite }, { place }, _, words) => suite.runVerb(words.join(" "), place),
  prune: ({ suite }, { place }) => suite.runVerb("prune --older-than now --apply --yes", place),
  verify: async (_, { lives }) => expect((await lives.getAdmin().verify()).faults).toEqual([]),
};

const cut = (text: string, at: string): [string, string | undefined] => {
  const from = text.indexOf(at);
  return from < 0 ? [text, undefined] : [text.slice(0, from), text.slice(from + at.length)];
};

/**
 * Plays a scene, step by step: `<machine, or both> <command or step> [session] <words> = <members> ! <failure> ~ <sentence>`, `db <SQL> => <its result>`, or repeats until it holds with `until`, `row <columns> = <those of the
 * session>`, or `same`: all rows are the remembered ones. Steps are about the session s, which the machine one has made and left, or about another one; `{name}` is the id of a session, the member `@name` a member of its item, and
 * `!final`: the failure is not retryable.
 */
export async function play(suite: FleetSuite, script: string, given: MachineOptions = {}): Promise<void> {
  const cast: Cast = { suite, machines: new Map(), sessions: new Map(), ends: [], rows: [] };
  cast.machines.set("one", await suite.machine(given));
  cast.sessions.set("s", await suite.make(cast.machines.get("one") as Machine, "text"));
  const steps = script.split(/[;\n]/).map((text) => text.trim());
  for (const step of steps.flatMap((one) =>
    /^both /.test(one) ? [one.replace("both", "one"), one.replace("both", "two")] : one,
  ))
    try {
      if (step !== "") await playStep(cast, step, given.args);
    } catch (error) {
      // No other process waits for a transaction of a scene that is over.
      suite.sql("rollback");
      (error as Error).message = `${step}: ${(error as Error).message}`;
      throw error;
    }
}

async function playStep(cast: Cast, step: string, args: string[] | undefined): Promise<void> {
  const { suite, machines, sessions } = cast;
  const text = step.replaceAll(/\{(\w+)\}/g, (_, name) =>
    name === "theirs" ? (cwdOf(machines, name) as string) : (sessions.get(name)?.sessionId as string),
  );
  const [, how, query] = /^(db|until) (.*)/.exec(text) ?? [];
  if (query) {
    const [sql, said] = cut(query, " => ");
    if (how === "until") return suite.until(sql, `${said}`);
    return expect(suite.sql(sql)).toEqual(said ?? expect.anything());
  }
  const rows = (): string[] => TABLES.map((table) => suite.sql(`select t from pi_fleet.${table} t order by t::text`));
  if (text === "remember") {
    cast.rows = rows();
    return;
  }
  if (text === "same") return expect(rows()).toEqual(cast.rows);
  const [, of = "s", columns, value] = /^row (?:\[(\w+)\] )?(\S+) = (.*)$/.exec(text) ?? [];
  if (columns) return expect(suite.row(sessions.get(of)?.sessionId as string, columns)).toBe(value);
  const [before, sentence] = cut(text, " ~ ");
  const [done, failure] = cut(before, " ! ");
  const [asked, members] = cut(done, " = ");
  const [who, verb, ...rest] = asked.split(" ");
  const about = rest[0]?.startsWith("[") ? (rest.shift() as string).slice(1, -1) : "s";
  const made = sessions.get(about) ?? { sessionId: about, sessionFile: about };
  const machine = machines.get(who) ?? (await suite.machine({ args }));
  machines.set(who, machine);
  const [name, isFinal] = failure?.split(" ") ?? [];
  let result: Json;
  if (verb in STEPS) {
    result = await STEPS[verb](cast, machine, made, rest);
    if (sentence)
      expect(result.stdout ? result.stdout + result.stderr : JSON.stringify(result)).toMatch(new RegExp(sentence));
  } else {
    const reply = await machine.wire.request(verb, paramsOf(machines, verb, made, rest));
    result = reply.result;
    if (name !== "any") expect(reply.error?.data.name, JSON.stringify(reply)).toBe(name);
    if (isFinal) expect(reply.error.data.retryable).toBe(isFinal === "retryable");
    if (sentence) expect(reply.error.message).toMatch(new RegExp(sentence));
  }
  for (const [path, value] of members?.split(" ").map((member) => cut(member, ":")) ?? []) {
    const idOf = (key: string) => sessions.get(key.slice(1))?.sessionId;
    const seen = path
      .split(".")
      .reduce(
        (part, key) => (key.startsWith("@") ? part?.find((one: Json) => one.sessionId === idOf(key)) : part?.[key]),
        result,
      );
    expect([path, `${seen}`]).toEqual([path, path === "cwd" ? cwdOf(machines, value) : value]);
  }
}

/** Returns the directory of the first machine's new sessions, or the home of it or of the second one. */
function cwdOf(machines: Cast["machines"], word: string | undefined): string | undefined {
  const { place } = machines.get(word === "theirs" ? "two" : "one") as Machine;
  return word === "cwd" ? place.cwd : place.home;
}

function paramsOf(machines: Cast["machines"], verb: string, made: Made, words: readonly string[]): Json {
  const at = words.includes("path") ? { sessionPath: made.sessionFile } : { sessionId: made.sessionId };
  if (verb === "search_sessions") return { query: words.join(" "), limit: 1000 };
  if (verb === "append") return { entries: [user(words.join(" "))] };
  if (/^(?:new_session|list_\w+|get_usage|undo|redo)$/.test(verb)) return words.includes("path") ? at : {};
  return {
    ...at,
    ...(words.includes("permanent") ? { permanent: true } : {}),
    ...(words.includes("to") ? { cwd: cwdOf(machines, words[words.indexOf("to") + 1]) } : {}),
  };
}
