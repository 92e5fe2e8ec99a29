/** Agents behind a server whose sessions are in a fleet, too: their entries are there, and no other process writes meanwhile. */

import { appendFileSync, existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { decodeText } from "../../../src/core/json/json.ts";
import { JOURNAL_FOLDER } from "../../../src/modules/fleet/replica/journal.ts";
import { acpLike, data, event, ownAgent, piLike, said, turn, until } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { type Json, stopTimers, type Wire } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { FleetServer } from "../fleet/support/server.ts";
import { FleetTable } from "../fleet/support/table-fleet.ts";

const machine = (table: FleetTable, name: string, isJournaled = false): FleetServer =>
  new FleetServer([], { table, name, isJournaled, agentLaunch: HERE });

const theirs = { type: "message", message: { role: "user", content: [{ type: "text", text: "theirs" }] } };

/** The line of an entry as an agent writes it to its session. */
const custom = (parentId: string | null = null): string => {
  const timestamp = "2026-01-24T16:22:26.831Z";
  return `${JSON.stringify({ type: "custom", customType: "of the agent", id: "0badcafe", parentId, timestamp })}\n`;
};

/** Returns the types of the commands that an agent has heard, which are in a file, but for questions. */
const typesIn = (file: string): string[] =>
  existsSync(file)
    ? readFileSync(file, "utf8")
        .trimEnd()
        .split("\n")
        .map((text) => JSON.parse(text).type)
        .filter((type) => type !== "get_state" && type !== "get_commands")
    : [];

const linesIn = (file: string): string[] => readFileSync(file, "utf8").trimEnd().split("\n").slice(1);

const textsIn = (table: FleetTable, sessionId: string): string[] =>
  table.linesOf(sessionId).flatMap((text) => JSON.parse(text).message?.content?.[0]?.text ?? []);

/** Has a machine write to a session. Returns what ends it. */
async function writeOn({ lives }: FleetServer, sessionId: string): Promise<() => Promise<void>> {
  const wire = await lives.start();
  await wire.result("switch_session", { sessionId });
  await wire.result("append", { entries: [theirs] });
  return () => lives.end();
}

/** Has another machine write to a session, even one with a holder. Returns a function that ends it. */
function writeElsewhere(table: FleetTable, sessionId: string): Promise<() => Promise<void>> {
  const two = machine(table, "two");
  two.fleet.leasesEnd = true;
  return writeOn(two, sessionId);
}

async function isSo(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) {
    if (vi.isFakeTimers()) vi.advanceTimersByTime(100);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe("an agent like Pi", () => {
  const PI = ["--mode", "rpc", "--agent", piLike()];

  /** A server with an agent that has taken a turn; the turn is in the fleet, except for the entries under test. */
  async function working({ isJournaled = false, message = "one", isWaitedFor = true } = {}) {
    if (isWaitedFor) stopTimers();
    const table = new FleetTable();
    const one = machine(table, "one", isJournaled);
    const wire = await one.lives.start(PI);
    await turn(wire, message);
    const { sessionId, sessionFile } = await data(wire, "get_state");
    const inFleet = (): string[] => table.linesOf(sessionId);
    if (isWaitedFor) await isSo(() => inFleet().length === (message === "one" ? 2 : 4));
    const again = (): Promise<Wire> => one.lives.start([...PI, "--session", sessionId]);
    return { table, one, wire, sessionId, sessionFile, inFleet, again };
  }

  /** The agent answers with what another machine wrote before it, and the fleet has what the file has. */
  async function goesOn({ one, sessionFile, inFleet }: Awaited<ReturnType<typeof working>>, wire: Wire): Promise<void> {
    await turn(wire, "mine");
    expect((await said(wire)).slice(-3)).toEqual(["user: theirs", "user: mine", "assistant: You said: mine"]);
    await one.lives.end();
    expect(inFleet()).toEqual(linesIn(sessionFile));
  }

  test("has its turns in the fleet, while it rests there and when it has ended", async () => {
    const { table, one, wire, sessionFile, sessionId, inFleet } = await working({ message: "one tools 1" });
    await turn(wire, "two");
    await one.lives.end();
    expect([inFleet(), inFleet().length]).toEqual([linesIn(sessionFile), 6]);
    expect(table.rows.get(sessionId)?.holder).toBe(null);
    table.check();
  });

  test("has the turn in the fleet that it had just before its session was left", async () => {
    const { wire, sessionFile, inFleet } = await working({ isWaitedFor: false });
    await data(wire, "new_session");
    expect(inFleet()).toEqual(linesIn(sessionFile));
  });

  test("is not asked while another machine has the session", async () => {
    const own = await working({ isWaitedFor: false });
    await own.one.lives.end();
    const end = await writeOn(machine(own.table, "two"), own.sessionId);
    const wire = await own.again();
    const refused = await wire.command("prompt", { message: "mine" });
    expect(refused).toMatchObject({ success: false, error: expect.stringContaining("host of two") });
    await end();
    await goesOn(own, wire);
    own.table.check();
  });

  test.each(["refused meanwhile", "which was taken in", "before what its file alone had"])(
    "hears what others wrote, %s",
    async (how) => {
      const own = await working();
      const { one, wire, sessionId, sessionFile } = own;
      const end = await writeElsewhere(own.table, sessionId);
      // The lease has run out, as of a machine that was asleep.
      if (how === "refused meanwhile") {
        one.now = 10_000;
        expect((await wire.command("prompt", { message: "mine" })).success).toBe(false);
      }
      await end();
      if (how === "before what its file alone had")
        appendFileSync(sessionFile, custom(JSON.parse(linesIn(sessionFile)[1]).id));
      one.now = 10_000;
      // No host makes a request.
      if (how !== "refused meanwhile") await isSo(() => linesIn(sessionFile).some((one) => one.includes("theirs")));
      // The server knows the file in the place of the other.
      if (how === "before what its file alone had") expect(await said(wire)).toContain("user: theirs");
      await goesOn(own, wire);
    },
  );

  test("has its turn as a branch that it took where the database was away from the start, and another machine wrote", async () => {
    const { table, one, sessionId, again } = await working({ isJournaled: true });
    await one.lives.end();
    one.loses();
    await turn(await again(), "mine");
    await one.lives.end();
    await (await writeOn(machine(table, "two"), sessionId))();
    one.heals();
    await turn(await again(), "after");
    await one.lives.end();
    for (const text of ["theirs", "mine", "You said: mine", "You said: after"])
      expect(textsIn(table, sessionId).filter((one) => one === text)).toHaveLength(1);
  });

  /** A server with an agent of these lines. */
  async function withOwn(onOther: string) {
    const table = new FleetTable();
    const one = machine(table, "one");
    const heard = join(one.lives.place.home, "heard");
    const wire = await one.lives.start(["--mode", "rpc", "--agent", ownAgent(one.lives.place, onOther, heard)]);
    return { table, one, wire, types: () => typesIn(heard) };
  }

  test("hears what another machine wrote also while a command of the host runs for long", async () => {
    stopTimers();
    const answer = `say({ id, type: "response", command: type, success: true, data: { isStreaming: false } });`;
    const { table, one, wire, types } = await withOwn(`if (type !== "bash") ${answer}`);
    wire.send({ id: "runs", type: "bash", command: "a server" });
    await isSo(() => types().includes("bash"));
    const { sessionId, sessionFile } = await data(wire, "get_state");
    appendFileSync(sessionFile, custom());
    await isSo(() => table.linesOf(sessionId).length === 1);
    await (await writeElsewhere(table, sessionId))();
    one.now = 10_000;
    await wire.command("prompt", { message: "mine" });
    expect(types()).toEqual(["switch_session", "bash", "switch_session", "prompt"]);
    await one.lives.end();
  });

  test.each(["steer", "follow_up", "bash", "set_model"])("keeps its turn while %s waits", async (type) => {
    const { one, wire, types } = await withOwn(
      `say({ id, type: "response", command: type, success: true, data: { isStreaming: true } });
         if (type === "prompt") say({ type: "agent_start" });`,
    );
    await wire.command("prompt", { message: "one" });
    await event(wire, "agent_start");
    const { sessionFile } = await data(wire, "get_state");
    one.fleet.turns = async () => {
      one.fleet.turns = () => Promise.resolve();
      await new Promise(setImmediate);
      appendFileSync(sessionFile, custom());
    };
    // It is not sure any more that the session is still this machine's.
    one.now = 10_000;
    await data(wire, type, { message: "more" });
    expect(types()).toEqual(["switch_session", "prompt", type]);
  });
});

acrossTiers(describe, ["jsonl", "v2"])("an agent of the Agent Client Protocol, whose sessions are in %s", (store) => {
  const args = ["--agent", acpLike(), "--agent-protocol", "acp", "--store", store];

  async function ask(wire: Wire, id: number, method: string, params: object): Promise<Json> {
    wire.send({ jsonrpc: "2.0", id, method, params });
    return until(wire, (message) => message.id === id && !("method" in message));
  }

  const prompt = (wire: Wire, id: number, sessionId: string, text: string): Promise<Json> =>
    ask(wire, id, "session/prompt", { sessionId, prompt: [{ type: "text", text }] });

  /** Starts a server whose agent is there. */
  async function started({ lives }: FleetServer): Promise<Wire> {
    const wire = await lives.start(args);
    await ask(wire, 1, "initialize", { protocolVersion: 1 });
    return wire;
  }

  /** Makes a session with one turn. `isMade` is called before its first prompt. Returns its id. */
  async function makeSession(
    own: FleetServer,
    text: string,
    cwd = own.lives.place.cwd,
    isMade = () => {},
  ): Promise<string> {
    const wire = await started(own);
    const { sessionId } = (await ask(wire, 2, "session/new", { cwd, mcpServers: [] })).result;
    isMade();
    expect((await prompt(wire, 3, sessionId, text)).error).toBeUndefined();
    await own.lives.end();
    expect(own.lives.said).toEqual([]);
    expect(own.fleet.table.rows.get(sessionId)?.holder ?? null).toBe(null);
    return sessionId;
  }

  const load = (wire: Wire, sessionId: string, cwd: string): Promise<Json> =>
    ask(wire, 4, "session/load", { sessionId, cwd, mcpServers: [] });

  const cwdOf = (table: FleetTable, sessionId: string): string =>
    JSON.parse(decodeText(table.rows.get(sessionId)?.headerLine as Uint8Array)).cwd;

  test("goes on with what another machine wrote meanwhile, here and where nothing of it is", async () => {
    const table = new FleetTable();
    const one = machine(table, "one");
    const sessionId = await makeSession(one, "one");
    await (await writeOn(machine(table, "two"), sessionId))();
    for (const [own, text] of [
      [one, "two"],
      [machine(table, "three"), "three"],
    ] as const) {
      const wire = await started(own);
      expect((await load(wire, sessionId, own.lives.place.cwd)).error).toBeUndefined();
      expect((await prompt(wire, 2, sessionId, text)).error).toBeUndefined();
      await own.lives.end();
      expect(own.lives.said).toEqual([]);
    }
    const asked = textsIn(table, sessionId).filter((one) => !one.startsWith("You said"));
    expect(asked).toEqual(["one", "theirs", "two", "three"]);
    expect([...table.rows.keys()]).toEqual([sessionId]);
    table.check();
  });

  test("is not asked while another machine has the session, and says so", async () => {
    const table = new FleetTable();
    const one = machine(table, "one");
    const sessionId = await makeSession(one, "one");
    await writeOn(machine(table, "two"), sessionId);
    const wire = await started(one);
    await load(wire, sessionId, one.lives.place.cwd);
    const { error } = await prompt(wire, 2, sessionId, "mine");
    expect(error.data.name).toBe("session_locked");
    expect(textsIn(table, sessionId)).not.toContain("mine");
  });

  test.each(["is away, and work goes on alone", "is away when the session is made"])(
    "works in the folder that the editor named where the database %s",
    async (what) => {
      const table = new FleetTable();
      const isAlone = what.includes("alone");
      const one = machine(table, "one", isAlone);
      one.fleet.faultAt = () => "before";
      const { home, state } = one.lives.place;
      const sessionId = await makeSession(one, "mine", home, () => void (isAlone || one.heals()));
      const journal = join(state, JOURNAL_FOLDER);
      const notes = existsSync(journal) ? readdirSync(journal).filter((name) => name.endsWith(".json")) : [];
      expect(notes.map((name) => readFileSync(join(journal, name), "utf8"))).toEqual(
        isAlone ? [expect.stringContaining(sessionId)] : [],
      );
      one.heals();
      // It is opened where it was made: then all machines have it.
      await (await writeOn(one, sessionId))();
      expect(cwdOf(table, sessionId)).toBe(home);
      expect(textsIn(table, sessionId)).toEqual(["mine", "You said: mine", "theirs"]);
      table.check();
    },
  );
});
