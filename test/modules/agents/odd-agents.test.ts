/** Agents of the Agent Client Protocol that are broken, slow, or up to something, behind our conversation with an editor. */

import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import type { AgentBackend, AgentSession } from "../../../src/modules/agents/acp/agent.ts";
import { AcpConversation } from "../../../src/modules/agents/acp/conversation.ts";
import * as agents from "../../../src/modules/agents/index.ts";
import { editorHere, ours } from "../../support/acp.ts";
import { ownAcpAgent } from "../../support/agents.ts";
import { HERE, PROCESS } from "../../support/agents-here.ts";
import { failingDisk } from "../../support/failing.ts";
import { type HereOptions, type Json, temporaryPlace } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;

/** Characters that are too many to wait for an agent. */
const LONG = 4_300_000;

/** An editor with a session, and an agent behind that runs `onOther` for all but its beginning and a new session. */
async function behind(
  onOther: string,
  {
    onNew,
    more = [],
    within = "300",
    ...given
  }: HereOptions & { onNew?: string; more?: string[]; within?: string } = {},
) {
  const options = { place: temporaryPlace(), agentLaunch: HERE, ...given };
  const agent = ownAcpAgent(options.place, onOther, {}, onNew);
  const editor = await editorHere(
    ["--agent", agent, "--agent-protocol", "acp", "--agent-timeout", within, ...more],
    options,
  );
  const { sessionId }: { sessionId: string } = await editor.make();
  return {
    ...{ editor, sessionId },
    /** Has a turn. Returns how it ended. */
    end: (text: string, of = sessionId) => editor.end(editor.begins(of, text)),
    /** Returns what the session has, as a load shows it: who said what. */
    async shown() {
      const { updates } = await editor.load(sessionId);
      return updates.flatMap(({ sessionUpdate, content }) =>
        sessionUpdate.endsWith("_chunk") ? [`${sessionUpdate.split("_")[0]}: ${content.text}`] : [],
      );
    },
  };
}

const ENDS = 'say({ id, result: { stopReason: "end_turn" } });';

/** Asks for a permission. */
const ASKS = (id: string, more = 'sessionId, toolCall: { toolCallId: "c" }, options: []'): string =>
  `say({ id: ${id}, method: "session/request_permission", params: { ${more} } });`;

/** Makes the agent ask at a prompt, and handle the answer to its question. */
const asksThen = (onAnswer: string, asks = ASKS('"own"')): string =>
  `if (method === "session/prompt") { globalThis.prompted = { id, sessionId }; ${asks} } else if (id === "own") { ${onAnswer} }`;

describe("replies of an agent", () => {
  test("to a prompt that are over the limit fail the turn; own requests that are get an error", SYSTEM, async () => {
    const { end, shown } = await behind(
      `if (method === "session/prompt" && params.prompt[0].text === "long")
          say({ id, result: { stopReason: "end_turn", _meta: { long: "x".repeat(200000) } } });
        else ${asksThen(
          `chunk(prompted.sessionId, error ? "refused" : "answered");
          say({ id: prompted.id, result: { stopReason: "end_turn" } });`,
          ASKS('"own"', 'sessionId, long: "x".repeat(200000)'),
        )}`,
      { more: ["--max-message-bytes", "100000"] },
    );
    expect(await end("long")).toContain("over the limit");
    expect(await end("asks")).toBe("end_turn");
    expect(await shown()).toContain("agent: refused");
  });

  test("that come twice, to nobody, or are no messages change nothing", async () => {
    const { editor, sessionId, end, shown } = await behind(
      `if (method !== "session/prompt") return;
        process.stdout.write('{"jsonrpc":"2.0","id":\\n{}\\n[]\\nnull\\n\\n{"id":{}}\\n');
        say({ id: 4711, result: {} });
        say({ id: String(id), result: { stopReason: "refusal" } });
        say({ method: "session/update" });
        say({ method: "session/update", params: { sessionId, update: 7 } });
        say({ method: "session/update", params: { sessionId, update: { sessionUpdate: 7 } } });
        say({ method: "session/update", params: { sessionId: "nobody", update: { sessionUpdate: "plan", entries: [] } } });
        chunk(sessionId, "once");
        ${ENDS} ${ENDS} say({ id, error: { code: 1, message: "no" } });`,
    );
    for (let i = 0; i < 2; i++) {
      expect(await end("one")).toBe("end_turn");
      expect(editor.take(sessionId).filter(({ content }) => content?.text === "once")).toHaveLength(1);
    }
    expect(await shown()).toEqual(["user: one", "agent: once", "user: one", "agent: once"]);
  });

  test("without what they must have end the turn", async () => {
    expect(await (await behind("say({ id, result: 7 });")).end("one")).toBe("end_turn");
  });

  test("that give one session to two are refused", async () => {
    const onNew = 'return say({ id, result: { sessionId: "the same" } });';
    const { editor, end, shown } = await behind(`chunk(sessionId, params.prompt[0].text); ${ENDS}`, { onNew });
    const { sessionId } = await editor.make();
    expect(await end("one")).toBe("end_turn");
    expect(await end("two", sessionId)).toContain("session that it has given to another");
    expect(await shown()).toEqual(["user: one", "agent: one"]);
  });

  test("that are errors keep their code and what is with it, in both directions", async () => {
    const { editor, sessionId } = await behind(
      asksThen('say({ id: prompted.id, error: { code: -32123, message: "no", data: { heard: error } } });'),
    );
    const asked = editor.begins(sessionId, "one");
    const { id } = await editor.question();
    const heard = { code: -32002, message: "gone", data: { uri: "file:///x" } };
    editor.server.send({ jsonrpc: "2.0", id, error: heard });
    expect((await editor.reply(asked)).error).toEqual({ code: -32123, message: "no", data: { heard } });
  });
});

describe("what this server does not know", () => {
  test("goes to the agent and comes back, with the agent's id of a session in place of ours, also during a turn", async () => {
    const { editor, sessionId } = await behind(
      `if (method === "session/prompt") { globalThis.prompted = { id, sessionId }; chunk(sessionId, "begun"); }
        else if (method === "_own/fails") say({ id, error: { code: -32123, message: "no", data: { params: message.params } } });
        else if (method === "_own/none") say({ id });
        else if (method === "_own/ends") say({ id: prompted.id, result: { stopReason: "end_turn" } });
        else if (id !== undefined) say({ id, result: method === "_own/bare" ? null : { method, params: message.params } });`,
    );
    const asked = editor.begins(sessionId, "long");
    await editor.heard("begun");
    await editor.result("session/set_mode", { sessionId, modeId: "x" });
    const agentSession = expect.stringMatching(/^own-1-/);
    expect(await editor.result("_own/does", { n: 1.5, sessionId, list: [sessionId] })).toEqual({
      method: "_own/does",
      params: { n: 1.5, sessionId: agentSession, list: [sessionId] },
    });
    for (const method of ["_own/bare", "_own/none"]) expect((await editor.request(method, [1])).result).toBeNull();
    expect((await editor.request("_own/does", { sessionId: "none" })).result.params).toEqual({ sessionId: "none" });
    expect(await editor.failure("_own/fails")).toEqual({ code: -32123, message: "no", data: { params: {} } });
    editor.notify("_own/ends", { sessionId });
    expect(await editor.end(asked)).toBe("end_turn");
    // The agent's messages have moved the leaf since.
    expect((await editor.result("_own/does", { sessionId })).params.sessionId).toEqual(agentSession);
  });

  test("goes to the client and comes back, with our id of the session; either side can cancel it", async () => {
    const { editor, sessionId } = await behind(
      `if (method === "session/prompt") {
        globalThis.prompted = { id, sessionId };
        say({ method: "_own/tells", params: { sessionId, n: 1 } });
        say({ method: "_own/tells", params: [2] });
        say({ id: "own", method: "_own/asks", params: { sessionId } });
        say({ id: "bare", method: "_own/asks" });
        say({ id: "lost", method: "_own/asks", params: { sessionId: "nobody" } });
      } else if (method === "_own/waits") {
        globalThis.waits = id;
        say({ method: "$/cancel_request", params: { requestId: "bare" } });
      } else if (method === "$/cancel_request" && params.requestId === waits)
        say({ id: waits, error: { code: -32800, message: "stopped" } });
      else if (id !== undefined && method === undefined) {
        globalThis.heard = { ...globalThis.heard, [id]: result ?? error.code };
        if (Object.keys(heard).length === 3)
          say({ id: prompted.id, result: { stopReason: "end_turn", _meta: { heard } } });
      }`,
    );
    const asked = editor.begins(sessionId, "one");
    const came: Json[] = [];
    while (came.length < 4) {
      const message = await editor.next();
      if (message.method?.startsWith("_own/")) came.push(message);
    }
    const [tells, asks] = ["_own/tells", "_own/asks"].map((one) => came.filter(({ method }) => method === one));
    expect(tells.map(({ params }) => params)).toEqual(expect.arrayContaining([{ sessionId, n: 1 }, [2]]));
    const own = asks.find(({ params }) => params?.sessionId === sessionId);
    const bare = asks.find((one) => one !== own);
    editor.server.answer(own?.id, 7);
    const waits = editor.ask("_own/waits");
    const cancelled = await editor.next();
    expect(cancelled).toMatchObject({ method: "$/cancel_request", params: { requestId: bare?.id } });
    editor.notify("$/cancel_request", { requestId: waits });
    expect((await editor.reply(waits)).error).toEqual({ code: -32800, message: "stopped" });
    editor.server.send({ jsonrpc: "2.0", id: bare?.id, error: { code: -32800, message: "stopped" } });
    expect((await editor.reply(asked)).result._meta.heard).toEqual({ own: 7, bare: -32800, lost: -32002 });
  });
});

describe("an agent hangs nobody", () => {
  test.each([
    ["input", "lines.close(); process.stdin.destroy(); closeSync(0); chunk(sessionId, 'closed');"],
    ["output", "chunk(sessionId, 'closed'); process.stdout.end(() => closeSync(1));"],
  ])("that closes its %s and lives on", SYSTEM, async (_, closes) => {
    const { editor, sessionId, shown } = await behind(
      `if (params.prompt?.[0].text === "one") { ${closes} setInterval(() => {}, 1000); }
        else if (id !== undefined) say({ id, error: { code: -32000, message: "The agent was started again." } });`,
      // A process takes a while to start.
      { agentLaunch: PROCESS, within: "20000" },
    );
    const other = (await editor.make()).sessionId;
    const first = editor.begins(sessionId, "one");
    await editor.heard("closed");
    // The messages that it gets show that it does not hear.
    for (const asked of [first, editor.begins(other, "two")])
      expect((await editor.reply(asked)).error.message).toMatch(/^The agent .*\.$/);
    expect(await shown()).toContain("user: one");
  });

  test("that reads nothing more, and other sessions can be read meanwhile", SYSTEM, async () => {
    const { editor, sessionId, end } = await behind(
      `if (params.prompt?.[0].text === "stop") { lines.pause(); setInterval(() => {}, 1000); chunk(sessionId, "stopped"); }`,
    );
    const other = (await editor.make()).sessionId;
    const asked = editor.begins(sessionId, "stop");
    await editor.heard("stopped");
    expect(await end("x".repeat(LONG), other)).toContain("read nothing");
    await editor.reply(asked);
    expect((await editor.result("session/list", {})).sessions).toHaveLength(2);
  });

  test("that reads late: the editor is read again", SYSTEM, async () => {
    const { editor, sessionId } = await behind(
      `if (method !== "session/prompt") return;
        if (params.prompt[0].text === "stop") { lines.pause(); await pause(100); lines.resume(); }
        ${ENDS}`,
    );
    const other = (await editor.make()).sessionId;
    for (const asked of [editor.begins(sessionId, "stop"), editor.begins(other, "x".repeat(LONG))])
      expect(await editor.end(asked)).toBe("end_turn");
    expect((await editor.result("session/list", {})).sessions).toHaveLength(2);
  });

  test("that refuses to begin: the next prompt starts it again", SYSTEM, async () => {
    const place = temporaryPlace();
    const mark = JSON.stringify(join(place.home, "begun"));
    const agent = ownAcpAgent(place, ENDS).split(" ").at(-1) as string;
    const script = `const fs = require("node:fs"); if (fs.existsSync(${mark})) import(process.argv[1]);
      else { fs.writeFileSync(${mark}, ""); process.stdin.on("data", (text) => {
        const { id } = JSON.parse(text);
        process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32603, message: "not today" } }) + "\\n"); }); }`;
    const args = ["--agent", `'${process.execPath}' -e '${script}' ${agent}`, "--agent-protocol", "acp"];
    const again = await editorHere(args, { place });
    const { sessionId } = await again.make();
    expect(await again.end(again.begins(sessionId, "one"))).toBe("end_turn");
  });

  test("a turn that is cancelled while the agent still opens the session begins nowhere", async () => {
    const onNew = 'if (made > 0) { chunk("own-1-" + process.pid, "opening"); await pause(50); }';
    const { editor, sessionId, end } = await behind(ENDS, { onNew });
    await end("one");
    // Then the agent has to begin another session.
    await editor.branch(sessionId, null);
    const asked = editor.begins(sessionId, "two");
    await editor.heard("opening");
    editor.cancel(sessionId);
    expect(await editor.end(asked)).toBe("cancelled");
    const { entries } = await editor.result("_pi-session-server/entries", { sessionId });
    expect(entries.filter(({ message }: Json) => message?.content?.[0]?.text === "two")).toEqual([]);
  });

  test("that asks without end is refused, and fills no memory", async () => {
    const { end } = await behind(
      `if (method === "session/prompt") {
          globalThis.prompted = id;
          globalThis.refused = 0;
          for (let i = 0; i < 2000; i++) ${ASKS('"own " + i')}
        } else if (error && ++refused === 1700) say({ id: prompted, result: { stopReason: "end_turn" } });`,
    );
    expect(await end("one")).toBe("end_turn");
  });
});

acrossTiers(test, STORES)("a turn that cannot be written whole in %s fails", async (store) => {
  let isFull = false;
  const { disk } = failingDisk((_, operation) => (isFull && operation === "write" ? "ENOSPC" : undefined));
  const asksAgain = ASKS('"again"', 'sessionId: prompted.sessionId, toolCall: { toolCallId: "c" }, options: []');
  const report = `tell(prompted.sessionId, { sessionUpdate: "tool_call", toolCallId: "c", title: "c", status: "completed" });`;
  const ends = 'else if (id === "again") say({ id: prompted.id, result: { stopReason: "end_turn" } });';
  const { editor, sessionId } = await behind(`${asksThen(`${report} ${asksAgain}`)} ${ends}`, {
    ...{ disk, more: ["--store", store] },
  });
  const asked = editor.begins(sessionId, "one");
  for (const wasFull of [true, false]) {
    const { id } = await editor.question();
    isFull = wasFull;
    editor.server.answer(id, { outcome: { outcome: "cancelled" } });
  }
  expect((await editor.reply(asked)).error).toMatchObject({ data: { name: expect.any(String) } });
});

describe("an editor that is in a hurry", () => {
  const begun = async () => {
    const agent = await behind(
      `if (method === "session/cancel") say({ id: prompted, result: { stopReason: "cancelled" } });
        if (method !== "session/prompt") return;
        globalThis.prompted = id;
        chunk(sessionId, "begun");
        if (params.prompt[0].text !== "long") ${ENDS}`,
    );
    const asked = agent.editor.begins(agent.sessionId, "long");
    await agent.editor.heard("begun");
    return { ...agent, asked };
  };

  test("gets a reply to each of its prompts, of which one is run at a time", async () => {
    const { editor, sessionId, asked, end, shown } = await begun();
    expect(await end("second")).toContain("runs already");
    editor.cancel(sessionId);
    editor.cancel(sessionId);
    expect(await editor.end(asked)).toBe("cancelled");
    editor.cancel(sessionId);
    expect(await end("third")).toBe("end_turn");
    expect(await shown()).toEqual(["user: long", "agent: begun", "user: third", "agent: begun"]);
  });

  test("may delete a session under a turn and prompt behind that: the turn ends, and nothing comes back", async () => {
    const { editor, sessionId, asked } = await begun();
    const deleted = editor.ask("session/delete", { sessionId });
    const behindIt = editor.begins(sessionId, "late");
    expect(await editor.end(asked)).toBe("cancelled");
    expect((await editor.reply(deleted)).result).toEqual({});
    expect((await editor.reply(behindIt)).error).toBeDefined();
    expect((await editor.result("session/list", {})).sessions).toEqual([]);
  });
});

acrossTiers(test, STORES)("what an agent says between turns is in %s, once, and told once", async (store) => {
  const { editor, sessionId, end, shown } = await behind(
    `chunk(sessionId, method === "session/prompt" ? "now" : "later"); ${ENDS}`,
    { more: ["--store", store] },
  );
  for (const text of ["one", "two"]) {
    await end(text);
    await editor.result("session/set_mode", { sessionId, modeId: "x" });
  }
  const texts = editor.take(sessionId).flatMap(({ content }) => content?.text ?? []);
  expect(texts).toEqual(["now", "later", "now", "later"]);
  const inOrder = ["user: one", "agent: now", "agent: later", "user: two", "agent: now", "agent: later"];
  expect(await shown()).toEqual(inOrder);
  // The agent knows loaded sessions: it goes on with its own session.
  expect(ours((await editor.turn(sessionId, "three")).result)).toBeUndefined();
});

test.each([
  ["and set again", true],
  ["and the client is told where that fails", false],
])("settings are told by a load, lost by an agent that is started again, %s", async (_, isTaken) => {
  const modes = { currentModeId: "ask", availableModes: ["ask", "code"].map((id) => ({ id, name: id })) };
  const model = {
    id: "model",
    name: "Model",
    type: "select",
    options: ["m1", "m2"].map((id) => ({ value: id, name: id })),
  };
  const { editor, sessionId, end } = await behind(
    `const told = (currentValue) => ({ configOptions: [{ ...${JSON.stringify(model)}, currentValue }] });
     if (method === "session/prompt" && params.prompt[0].text === "die") process.exit(1);
     if (method === "session/prompt") globalThis.hasPrompt = true;
     if (method === "session/prompt") chunk(sessionId, globalThis.set ?? "nothing");
     if (method.startsWith("session/set_") && !globalThis.hasPrompt && !${isTaken})
       return say({ id, error: { code: -32000, message: "not now" } });
     globalThis.set = (globalThis.set ?? "") + (params.modeId ?? params.value ?? "");
     say({ id, result: method === "session/set_config_option" ? told(params.value) : { stopReason: "end_turn" } });`,
    {
      onNew: `const configOptions = [{ ...${JSON.stringify(model)}, currentValue: "m1" }];
        const opened = { modes: ${JSON.stringify(modes)}, configOptions };
        return say({ id, result: { sessionId: "own-" + ++made + "-" + process.pid, ...opened } });`,
    },
  );
  await end("one");
  await editor.result("session/set_mode", { sessionId, modeId: "code" });
  await editor.result("session/set_config_option", { sessionId, configId: "model", value: "m2" });
  const { result } = await editor.load(sessionId);
  expect([result.modes.currentModeId, result.configOptions[0].currentValue]).toEqual(["code", "m2"]);
  await end("die");
  editor.take(sessionId);
  expect(ours((await editor.turn(sessionId, "on")).result).fidelity).toBe("seeded");
  const updates = editor.take(sessionId);
  expect(updates.find(({ content }) => content)?.content.text).toBe(isTaken ? "codem2" : "nothing");
  const told = updates.flatMap(
    ({ currentModeId, configOptions }) => currentModeId ?? configOptions?.[0].currentValue ?? [],
  );
  expect(told).toEqual(isTaken ? [] : ["ask", "m1"]);
});

describe("an agent in this process", () => {
  const inPlace = (agent: Echo): HereOptions => ({
    modules: {
      agents: { ...agents, startEditorFace: (wire, facts) => new AcpConversation(wire, { ...facts, agent }) },
    },
  });

  /** An agent that fails, waits for its end, or asks, as its prompt says. */
  class Echo implements AgentBackend {
    readonly promptCapabilities = { image: true, audio: false, embeddedContext: false };
    readonly isFull = false;
    readonly done: Json[] = [];
    private readonly ends = new Map<string, (reply: Json) => void>();

    getSettings = async (): Promise<Json> => ({});

    async prompt({ sessionId, channel }: AgentSession, [{ text }]: readonly Json[]): Promise<Json> {
      if (text === "fail") throw new Error("internal to the agent");
      if (text === "wait") return new Promise((resolve) => this.ends.set(sessionId, resolve));
      const toolCall = { toolCallId: "1", title: "think" };
      return channel.ask("session/request_permission", { toolCall, options: [] });
    }

    resume(): void {}
    async end(): Promise<void> {}

    cancel(sessionId: string): void {
      this.ends.get(sessionId)?.({ stopReason: "cancelled" });
    }

    async setMode(_: AgentSession, modeId: string): Promise<Json> {
      this.done.push(modeId);
      return {};
    }

    async setConfigOption(_: AgentSession, configId: string, value: unknown): Promise<Json> {
      this.done.push(`${configId} ${value}`);
      return { configOptions: [] };
    }

    close = async (sessionId: string): Promise<void> => this.cancel(sessionId);
  }

  test("that fails is reported like a bug of ours; a refusal of the client goes to it, and so do settings", async () => {
    const agent = new Echo();
    const editor = await editorHere([], inPlace(agent));
    const { sessionId } = await editor.make();
    vi.spyOn(process.stderr, "write").mockReturnValue(true);
    const { error } = await editor.turn(sessionId, "fail");
    expect(error).toMatchObject({ code: -32603, message: expect.not.stringContaining("internal to the agent") });
    const refused = editor.begins(sessionId, "ask");
    const { id } = await editor.question();
    editor.server.send({ jsonrpc: "2.0", id, error: { code: -32000, message: "Not now." } });
    expect(await editor.end(refused)).toBe("Not now.");
    await editor.result("session/set_mode", { sessionId, modeId: "ask" });
    await editor.result("session/set_config_option", { sessionId, configId: "model", value: "x" });
    expect(agent.done).toEqual(["ask", "model x"]);
  });

  test("has no turn left when its client goes, whether that has begun or not; others are answered meanwhile", async () => {
    const editor = await editorHere([], inPlace(new Echo()));
    const [one, two] = [await editor.make(), await editor.make()];
    editor.begins(one.sessionId, "ask");
    await editor.question();
    expect((await editor.result("session/status", { sessionId: one.sessionId })).status).toBe("open");
    editor.begins(two.sessionId, "wait");
    const { messages, status } = await editor.server.finish();
    expect(status).toBe(0);
    // The last one may have begun or not.
    const ends = messages.map(({ result, error }) => error?.code ?? result.stopReason);
    expect(ends).toEqual([-32800, expect.toBeOneOf([-32800, "cancelled"])]);
  });
});
