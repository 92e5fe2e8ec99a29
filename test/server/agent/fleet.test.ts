/** Agents behind a server whose sessions are in a fleet, too: what they write is there, and nobody else writes meanwhile. */

import { appendFileSync, existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { textOf } from "../../../src/core/json/json.ts";
import { JOURNAL_FOLDER } from "../../../src/storage/fleet/journal.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { acpLike, data, event, ownAgent, piLike, said, turn, until } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { HereLives } from "../../support/proof.ts";
import { type Json, stopTimers, type Wire } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

let seeds = 0;

/** A machine with its own disk. */
function machine(
  table: FleetTable,
  name: string,
  elapsed = (): number => 0,
  isJournaled = false,
): HereLives & { readonly fleet: MemoryFleet } {
  const fleet = new MemoryFleet(table, name);
  const outage = isJournaled ? new Outage(fleet, 0, elapsed) : undefined;
  const connection = fleetOptions(fleet, { elapsed, outage });
  const lives = new HereLives({ seed: ++seeds, fleet: connection, agentLaunch: HERE });
  return Object.assign(lives, { fleet });
}

const theirs = { type: "message", message: { role: "user", content: [{ type: "text", text: "theirs" }] } };

/** An entry as an agent writes it to its session. */
const CUSTOM = {
  type: "custom",
  customType: "of the agent",
  id: "0badcafe",
  parentId: null,
  timestamp: "2026-01-24T16:22:26.831Z",
};

/** Returns the types of the commands that an agent has heard, which are in a file. */
const typesIn = (file: string): string[] =>
  readFileSync(file, "utf8")
    .trimEnd()
    .split("\n")
    .map((text) => JSON.parse(text).type);

const linesIn = (file: string): string[] => readFileSync(file, "utf8").trimEnd().split("\n").slice(1);

/** Has another machine write to a session and end, whoever has the session. */
async function writeElsewhere(table: FleetTable, sessionId: string): Promise<void> {
  const two = machine(table, "two");
  two.fleet.leasesEnd = true;
  const other = await two.start();
  await other.result("switch_session", { sessionId });
  await other.result("append", { entries: [theirs] });
  await two.end();
}

async function isSo(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) {
    if (vi.isFakeTimers()) vi.advanceTimersByTime(100);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe("an agent like Pi", () => {
  const PI = ["--mode", "rpc", "--agent", piLike()];

  /** Starts a server with an agent, and has it take a turn. */
  async function working(
    lives: HereLives,
    message = "one",
  ): Promise<{ wire: Wire; sessionId: string; sessionFile: string }> {
    const wire = await lives.start(PI);
    await turn(wire, message);
    const { sessionId, sessionFile } = await data(wire, "get_state");
    return { wire, sessionId, sessionFile };
  }

  test("has its turns in the fleet, while it rests there and when it has ended", async () => {
    stopTimers();
    const table = new FleetTable();
    const one = machine(table, "one");
    const { wire, sessionFile, sessionId } = await working(one, "one tools 1");
    await isSo(() => table.linesOf(sessionId).length === 4);
    await turn(wire, "two");
    await one.end();
    expect(table.linesOf(sessionId)).toEqual(linesIn(sessionFile));
    expect(table.linesOf(sessionId)).toHaveLength(6);
    expect(table.rows.get(sessionId)?.holder).toBe(null);
    table.check();
  });

  test("has the turn in the fleet that it had just before its session was left", async () => {
    const table = new FleetTable();
    const { wire, sessionFile, sessionId } = await working(machine(table, "one"));
    await data(wire, "new_session");
    expect(table.linesOf(sessionId)).toEqual(linesIn(sessionFile));
  });

  test("is not asked while another machine has the session", async () => {
    const table = new FleetTable();
    const one = machine(table, "one");
    const { sessionId, sessionFile } = await working(one);
    await one.end();
    const two = machine(table, "two");
    const other = await two.start();
    await other.result("switch_session", { sessionId });
    await other.result("append", { entries: [theirs] });
    const again = await one.start([...PI, "--session", sessionId]);
    const refused = await again.command("prompt", { message: "mine" });
    expect(refused).toMatchObject({ success: false, error: expect.stringContaining("host of two") });
    await two.end();
    await turn(again, "mine");
    expect((await said(again)).slice(-3)).toEqual(["user: theirs", "user: mine", "assistant: You said: mine"]);
    await one.end();
    expect(table.linesOf(sessionId)).toEqual(linesIn(sessionFile));
    table.check();
  });

  test("hears what another machine wrote between two of its prompts, and is refused where that one has the session", async () => {
    stopTimers();
    const table = new FleetTable();
    let now = 0;
    const one = machine(table, "one", () => now);
    const { wire, sessionId, sessionFile } = await working(one);
    await isSo(() => table.linesOf(sessionId).length === 2);
    const two = machine(table, "two");
    two.fleet.leasesEnd = true;
    const other = await two.start();
    await other.result("switch_session", { sessionId });
    await other.result("append", { entries: [theirs] });
    // The lease has run out, as of a machine that was asleep.
    now = 10_000;
    expect((await wire.command("prompt", { message: "mine" })).success).toBe(false);
    await two.end();
    await turn(wire, "mine");
    expect((await said(wire)).slice(-3)).toEqual(["user: theirs", "user: mine", "assistant: You said: mine"]);
    await one.end();
    expect(table.linesOf(sessionId)).toEqual(linesIn(sessionFile));
  });

  test("hears what another machine wrote between two of its prompts, also where this one took that in before", async () => {
    stopTimers();
    const table = new FleetTable();
    let now = 0;
    const one = machine(table, "one", () => now);
    const { wire, sessionId, sessionFile } = await working(one);
    await isSo(() => table.linesOf(sessionId).length === 2);
    await writeElsewhere(table, sessionId);
    now = 10_000;
    // Nobody asks for anything.
    await isSo(() => linesIn(sessionFile).length === 3);
    await turn(wire, "mine");
    expect((await said(wire)).slice(-3)).toEqual(["user: theirs", "user: mine", "assistant: You said: mine"]);
    await one.end();
    expect(table.linesOf(sessionId)).toEqual(linesIn(sessionFile));
  });

  test("goes on with what is in the session where lines of its own gave way to another machine's between two prompts", async () => {
    stopTimers();
    const table = new FleetTable();
    let now = 0;
    const one = machine(table, "one", () => now);
    const { wire, sessionId, sessionFile } = await working(one);
    await isSo(() => table.linesOf(sessionId).length === 2);
    await writeElsewhere(table, sessionId);
    const parentId = JSON.parse(linesIn(sessionFile)[1]).id;
    appendFileSync(sessionFile, `${JSON.stringify({ ...CUSTOM, parentId })}\n`);
    now = 10_000;
    await isSo(() => linesIn(sessionFile).at(-1)?.includes("theirs") === true);
    // The server knows the file in its place.
    expect(await said(wire)).toContain("user: theirs");
    await turn(wire, "mine");
    expect((await said(wire)).slice(-3)).toEqual(["user: theirs", "user: mine", "assistant: You said: mine"]);
    await one.end();
    expect(table.linesOf(sessionId)).toEqual(linesIn(sessionFile));
  });

  test("has its turn as a branch that it took where the database was away from the start, and another machine wrote", async () => {
    stopTimers();
    const table = new FleetTable();
    const one = machine(table, "one", () => 0, true);
    const { sessionId } = await working(one);
    await isSo(() => table.linesOf(sessionId).length === 2);
    await one.end();
    one.fleet.faultAt = () => "before";
    const wire = await one.start([...PI, "--session", sessionId]);
    await turn(wire, "mine");
    await one.end();
    const two = machine(table, "two");
    const other = await two.start();
    await other.result("switch_session", { sessionId });
    await other.result("append", { entries: [theirs] });
    await two.end();
    one.fleet.faultAt = () => undefined;
    const again = await one.start([...PI, "--session", sessionId]);
    await turn(again, "after");
    await one.end();
    const all = table.linesOf(sessionId).flatMap((text) => JSON.parse(text).message?.content?.[0]?.text ?? []);
    for (const text of ["theirs", "mine", "You said: mine", "You said: after"])
      expect(all.filter((one) => one === text)).toHaveLength(1);
  });

  test("hears what another machine wrote also while a command of the host runs for long", async () => {
    stopTimers();
    const table = new FleetTable();
    let now = 0;
    const one = machine(table, "one", () => now);
    const heard = join(one.place.home, "heard");
    const agent = ownAgent(
      one.place,
      `if (type !== "bash") say({ id, type: "response", command: type, success: true, data: { isStreaming: false } });`,
      heard,
    );
    const wire = await one.start(["--mode", "rpc", "--agent", agent]);
    const types = (): string[] =>
      existsSync(heard) ? typesIn(heard).filter((type) => type !== "get_state" && type !== "get_commands") : [];
    wire.send({ id: "runs", type: "bash", command: "a server" });
    await isSo(() => types().includes("bash"));
    const { sessionId, sessionFile } = await data(wire, "get_state");
    appendFileSync(sessionFile, `${JSON.stringify(CUSTOM)}\n`);
    await isSo(() => table.linesOf(sessionId).length === 1);
    await writeElsewhere(table, sessionId);
    now = 10_000;
    await wire.command("prompt", { message: "mine" });
    expect(types()).toEqual(["switch_session", "bash", "switch_session", "prompt"]);
    await one.end();
  });

  test.each(["steer", "follow_up", "bash", "set_model"])(
    "keeps its turn where it writes while %s waits for the database",
    async (type) => {
      const table = new FleetTable();
      let now = 0;
      const one = machine(table, "one", () => now);
      const heard = join(one.place.home, "heard");
      const agent = ownAgent(
        one.place,
        `say({ id, type: "response", command: type, success: true, data: { isStreaming: true } });
       if (type === "prompt") say({ type: "agent_start" });`,
        heard,
      );
      const wire = await one.start(["--mode", "rpc", "--agent", agent]);
      await wire.command("prompt", { message: "one" });
      await event(wire, "agent_start");
      const { sessionFile } = await data(wire, "get_state");
      one.fleet.turns = async () => {
        one.fleet.turns = () => Promise.resolve();
        await new Promise(setImmediate);
        appendFileSync(sessionFile, `${JSON.stringify(CUSTOM)}\n`);
      };
      // It is not sure any more that the session is still this machine's.
      now = 10_000;
      await data(wire, type, { message: "more" });
      expect(typesIn(heard).filter((one) => one !== "get_state")).toEqual(["switch_session", "prompt", type]);
    },
  );
});

acrossTiers(describe, ["jsonl", "v2"])("an agent of the Agent Client Protocol, recorded in %s", (store) => {
  const args = ["--agent", acpLike(), "--agent-protocol", "acp", "--store", store];
  const text = (message: string): Json[] => [{ type: "text", text: message }];

  async function ask(wire: Wire, id: number, method: string, params: object): Promise<Json> {
    wire.send({ jsonrpc: "2.0", id, method, params });
    return until(wire, (message) => message.id === id && !("method" in message));
  }

  const texts = (table: FleetTable, sessionId: string): string[] =>
    table.linesOf(sessionId).flatMap((one) => JSON.parse(one).message?.content?.[0]?.text ?? []);

  async function recorded(table: FleetTable, lives: HereLives, prompt: string, cwd = lives.place.cwd): Promise<string> {
    const wire = await lives.start(args);
    await ask(wire, 1, "initialize", { protocolVersion: 1 });
    const { result } = await ask(wire, 2, "session/new", { cwd, mcpServers: [] });
    const { error } = await ask(wire, 3, "session/prompt", { sessionId: result.sessionId, prompt: text(prompt) });
    expect(error).toBeUndefined();
    await lives.end();
    expect(table.rows.get(result.sessionId)?.holder ?? null).toBe(null);
    return result.sessionId;
  }

  test("has the working directory that it was begun in, though the fleet was away then", async () => {
    const table = new FleetTable();
    const one = machine(table, "one");
    const wire = await one.start(args);
    await ask(wire, 1, "initialize", { protocolVersion: 1 });
    one.fleet.faultAt = () => "before";
    const { result } = await ask(wire, 2, "session/new", { cwd: one.place.home, mcpServers: [] });
    one.fleet.faultAt = () => undefined;
    const { sessionId } = result;
    await ask(wire, 3, "session/prompt", { sessionId, prompt: text("one") });
    await one.end();
    expect(JSON.parse(textOf(table.rows.get(sessionId)?.headerLine as Uint8Array)).cwd).toBe(one.place.home);
    expect(texts(table, sessionId)[0]).toBe("one");
  });

  test("goes on with what another machine wrote meanwhile, here and where nothing of it is", async () => {
    const table = new FleetTable();
    const one = machine(table, "one");
    const sessionId = await recorded(table, one, "one");
    const two = machine(table, "two");
    const other = await two.start();
    await other.result("switch_session", { sessionId });
    await other.result("append", { entries: [theirs] });
    await two.end();
    for (const [lives, prompt] of [
      [one, "two"],
      [machine(table, "three"), "three"],
    ] as const) {
      const wire = await lives.start(args);
      await ask(wire, 1, "initialize", { protocolVersion: 1 });
      const { error } = await ask(wire, 2, "session/prompt", { sessionId, prompt: text(prompt) });
      // The scripted agent knows only sessions of its own process; what it was asked is recorded before.
      expect(error?.message ?? "").not.toContain("recorded");
      await lives.end();
      expect(lives.said).toEqual([]);
    }
    expect(texts(table, sessionId).filter((one) => !one.startsWith("You said"))).toEqual([
      "one",
      "theirs",
      "two",
      "three",
    ]);
    expect([...table.rows.keys()]).toEqual([sessionId]);
    table.check();
  });

  test("is not asked while another machine has the session, and says so", async () => {
    const table = new FleetTable();
    const one = machine(table, "one");
    const sessionId = await recorded(table, one, "one");
    const other = await machine(table, "two").start();
    await other.result("switch_session", { sessionId });
    await other.result("append", { entries: [theirs] });
    const wire = await one.start(args);
    await ask(wire, 1, "initialize", { protocolVersion: 1 });
    const { error } = await ask(wire, 2, "session/prompt", { sessionId, prompt: text("mine") });
    expect(error.message).toContain("host of two");
    expect(texts(table, sessionId)).not.toContain("mine");
  });

  /** Returns the cwd of a session as all machines have it, once it was opened where it was recorded. */
  async function cwdOf(table: FleetTable, lives: HereLives, sessionId: string): Promise<string> {
    const wire = await lives.start();
    await wire.result("switch_session", { sessionId });
    await wire.result("append", { entries: [theirs] });
    await lives.end();
    return JSON.parse(Buffer.from(table.rows.get(sessionId)?.headerLine ?? []).toString("utf8")).cwd;
  }

  test("works where the database is away and work goes on alone, in the folder that the editor named", async () => {
    const table = new FleetTable();
    const one = machine(table, "one", () => 0, true);
    one.fleet.faultAt = () => "before";
    const sessionId = await recorded(table, one, "mine", one.place.home);
    expect(one.said).toEqual([]);
    const notes = readdirSync(join(one.place.state, JOURNAL_FOLDER));
    expect(notes.map((name) => readFileSync(join(one.place.state, JOURNAL_FOLDER, name), "utf8"))).toEqual([
      expect.stringContaining(sessionId),
    ]);
    one.fleet.faultAt = () => undefined;
    expect(await cwdOf(table, one, sessionId)).toBe(one.place.home);
    expect(texts(table, sessionId)).toEqual(["mine", "You said: mine", "theirs"]);
    table.check();
  });

  test("has the folder that the editor named where only the first question to the database had no answer", async () => {
    const table = new FleetTable();
    const one = machine(table, "one");
    let looks = 0;
    one.fleet.faultAt = (_, name) => (name === "look" && looks++ === 0 ? "before" : undefined);
    const sessionId = await recorded(table, one, "mine", one.place.home);
    expect(one.said).toEqual([]);
    expect(await cwdOf(table, one, sessionId)).toBe(one.place.home);
  });

  test.each([false, true])(
    "is recorded elsewhere where only an absent database may have its past (known: %s)",
    async (isKnown) => {
      const table = new FleetTable();
      const sessionId = await recorded(table, machine(table, "one"), "one");
      const before = table.linesOf(sessionId);
      const two = machine(table, "two", () => 0, true);
      two.fleet.faultAt = () => "before";
      const wire = await two.start([...args.with(1, acpLike("--loads"))]);
      await ask(wire, 1, "initialize", { protocolVersion: 1 });
      // By then it is known that the database is away, or it is not.
      if (isKnown) {
        const { result } = await ask(wire, 2, "session/new", { cwd: two.place.cwd, mcpServers: [] });
        await ask(wire, 3, "session/prompt", { sessionId: result.sessionId, prompt: text("another") });
      }
      const loaded = await ask(wire, 4, "session/load", { sessionId, cwd: two.place.home, mcpServers: [] });
      expect(loaded.error).toBeUndefined();
      await ask(wire, 5, "session/prompt", { sessionId, prompt: text("mine") });
      await two.end();
      two.fleet.faultAt = () => undefined;
      const again = await two.start();
      const { sessions } = await again.result("list_sessions", { cwd: two.place.home });
      expect(sessions).toHaveLength(1);
      const [{ sessionId: elsewhere }] = sessions;
      await again.result("switch_session", { sessionId: elsewhere });
      await again.result("append", { entries: [theirs] });
      await two.end();
      expect(texts(table, elsewhere)).toContain("mine");
      expect(table.linesOf(sessionId)).toEqual(before);
    },
  );
});
