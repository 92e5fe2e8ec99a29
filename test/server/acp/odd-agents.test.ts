/** Agents of the Agent Client Protocol that are broken, slow, or up to something, behind our conversation with an editor. */

import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Editor, editorHere, ours } from "../../support/acp.ts";
import { ownAcpAgent } from "../../support/agents.ts";
import { HERE, PROCESS } from "../../support/agents-here.ts";
import { failingDisk } from "../../support/failing.ts";
import { type HereOptions, type Json, type Place, temporaryPlace } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

const TIMEOUT = "300";
/** Characters that are too many to wait for an agent. */
const LONG = 4_300_000;

interface OddAgent {
  readonly onOther: string;
  readonly capabilities?: object;
  readonly onNew?: string;
  readonly more?: string[];
  readonly place?: Place;
  readonly agentLaunch?: HereOptions["agentLaunch"];
}

async function behind({
  onOther,
  capabilities,
  onNew,
  more = [],
  place = temporaryPlace(),
  agentLaunch = HERE,
}: OddAgent): Promise<Editor> {
  const agent = ownAcpAgent(place, onOther, capabilities, onNew);
  const args = ["--agent", agent, "--agent-protocol", "acp", "--agent-timeout", TIMEOUT, ...more];
  return editorHere(args, { place, agentLaunch });
}

/** What the session has, as a load shows it: who said what. */
async function shownBy(editor: Editor, sessionId: string): Promise<string[]> {
  const { updates } = await editor.load(sessionId);
  return updates.flatMap(({ sessionUpdate, content }) =>
    sessionUpdate.endsWith("_chunk") ? [`${sessionUpdate.split("_")[0]}: ${content.text}`] : [],
  );
}

const ENDS = 'say({ id, result: { stopReason: "end_turn" } });';

/** A prompt makes the agent ask; what is done with the answer to its question. */
const asksThen = (onAnswer: string, onPrompt = ""): string =>
  `if (method === "session/prompt") {
    ${onPrompt}
    globalThis.prompted = { id, sessionId };
    say({ id: "own", method: "session/request_permission", params: { sessionId, toolCall: { toolCallId: "c" }, options: [] } });
  } else if (id === "own") { ${onAnswer} }`;

describe("replies of an agent", () => {
  test(
    "to a prompt that is over the limit fails the turn, and an own request that is gets an error",
    SYSTEM,
    async () => {
      const editor = await behind({
        onOther: `if (method === "session/prompt" && params.prompt[0].text === "long")
          say({ id, result: { stopReason: "end_turn", _meta: { long: "x".repeat(200000) } } });
        else if (method === "session/prompt") {
          globalThis.prompted = { id, sessionId };
          say({ id: "own", method: "session/request_permission", params: { sessionId, long: "x".repeat(200000) } });
        } else if (id === "own") {
          chunk(prompted.sessionId, error ? "refused" : "answered");
          say({ id: prompted.id, result: { stopReason: "end_turn" } });
        }`,
        more: ["--max-message-bytes", "100000"],
      });
      const { sessionId } = await editor.make();
      expect((await editor.turn(sessionId, "long")).error.message).toContain("over the limit");
      expect((await editor.turn(sessionId, "asks")).result.stopReason).toBe("end_turn");
      expect(await shownBy(editor, sessionId)).toContain("agent: refused");
    },
  );

  test("that come twice, to nobody, or are no messages change nothing", async () => {
    const editor = await behind({
      onOther: `if (method !== "session/prompt") return;
        process.stdout.write('{"jsonrpc":"2.0","id":\\n{}\\n[]\\nnull\\n\\n{"id":{}}\\n');
        say({ id: 4711, result: {} });
        say({ id: String(id), result: { stopReason: "refusal" } });
        say({ method: "session/update" });
        say({ method: "session/update", params: { sessionId, update: 7 } });
        say({ method: "session/update", params: { sessionId, update: { sessionUpdate: 7 } } });
        say({ method: "session/update", params: { sessionId: "nobody", update: { sessionUpdate: "plan", entries: [] } } });
        chunk(sessionId, "once");
        ${ENDS} ${ENDS} say({ id, error: { code: 1, message: "no" } });`,
    });
    const { sessionId } = await editor.make();
    for (let i = 0; i < 2; i++) {
      const { result } = await editor.turn(sessionId, "one");
      expect(result.stopReason).toBe("end_turn");
      expect(editor.take(sessionId).filter(({ content }) => content?.text === "once")).toHaveLength(1);
    }
    expect(await shownBy(editor, sessionId)).toEqual(["user: one", "agent: once", "user: one", "agent: once"]);
  });

  test("without what they must have are told as what they are", async () => {
    const editor = await behind({ onOther: "say({ id, result: 7 });" });
    const { sessionId } = await editor.make();
    expect((await editor.turn(sessionId, "one")).result.stopReason).toBe("end_turn");
  });

  test("that give one session to two are refused", async () => {
    const place = temporaryPlace();
    const editor = await behind({
      onOther: `chunk(sessionId, params.prompt[0].text); ${ENDS}`,
      onNew: 'return say({ id, result: { sessionId: "the same" } });',
      place,
    });
    const [one, two] = [(await editor.make()).sessionId, (await editor.make()).sessionId];
    expect((await editor.turn(one, "one")).result.stopReason).toBe("end_turn");
    expect((await editor.turn(two, "two")).error.message).toContain("session that it has given to another");
    expect(await shownBy(editor, one)).toEqual(["user: one", "agent: one"]);
  });

  test("that are errors keep their code and what is with it, in both directions", async () => {
    const editor = await behind({
      onOther: asksThen('say({ id: prompted.id, error: { code: -32123, message: "no", data: { heard: error } } });'),
    });
    const { sessionId } = await editor.make();
    const asked = editor.begins(sessionId, "one");
    const question = await editor.question();
    const heard = { code: -32002, message: "gone", data: { uri: "file:///x" } };
    editor.server.send({ jsonrpc: "2.0", id: question.id, error: heard });
    expect((await editor.reply(asked)).error).toEqual({ code: -32123, message: "no", data: { heard } });
  });
});

describe("an agent hangs nobody", () => {
  test.each([
    [
      "closes its input",
      "lines.close(); process.stdin.destroy(); closeSync(0); chunk(sessionId, 'closed'); setInterval(() => {}, 1000);",
    ],
    [
      "closes its output",
      "chunk(sessionId, 'closed'); process.stdout.end(() => closeSync(1)); setInterval(() => {}, 1000);",
    ],
  ])("that %s and lives on", SYSTEM, async (_, onOther) => {
    const editor = await behind({
      agentLaunch: PROCESS,
      onOther: `if (params.prompt?.[0].text === "one") { ${onOther} }`,
    });
    const { sessionId } = await editor.make();
    const other = (await editor.make()).sessionId;
    const first = editor.begins(sessionId, "one");
    await editor.heard("closed");
    // What it is sent tells that it does not hear.
    const second = editor.begins(other, "two");
    for (const asked of [first, second]) expect((await editor.reply(asked)).error.message).toMatch(/^The agent .*\.$/);
    expect(await shownBy(editor, sessionId)).toContain("user: one");
  });

  test("that reads nothing more, and other sessions can be read meanwhile", SYSTEM, async () => {
    const editor = await behind({
      onOther: `if (params.prompt?.[0].text === "stop") { lines.pause(); setInterval(() => {}, 1000); chunk(sessionId, "stopped"); }`,
    });
    const { sessionId } = await editor.make();
    const other = (await editor.make()).sessionId;
    const asked = editor.begins(sessionId, "stop");
    await editor.heard("stopped");
    const large = editor.begins(other, "x".repeat(LONG));
    expect((await editor.reply(large)).error.message).toContain("read nothing");
    await editor.reply(asked);
    expect((await editor.result("session/list", {})).sessions).toHaveLength(2);
  });

  test("that reads late: the editor is read again", SYSTEM, async () => {
    const editor = await behind({
      onOther: `if (method !== "session/prompt") return;
        if (params.prompt[0].text === "stop") { lines.pause(); await pause(100); lines.resume(); }
        ${ENDS}`,
    });
    const [one, two] = [(await editor.make()).sessionId, (await editor.make()).sessionId];
    const first = editor.begins(one, "stop");
    const second = editor.begins(two, "x".repeat(LONG));
    for (const asked of [first, second]) expect((await editor.reply(asked)).result.stopReason).toBe("end_turn");
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
    const sessionId = (await again.make()).sessionId;
    expect((await again.turn(sessionId, "one")).result?.stopReason).toBe("end_turn");
  });

  test("a turn that is cancelled while the agent still opens the session begins nowhere", async () => {
    const onNew = 'if (made > 0) { chunk("own-1-" + process.pid, "opening"); await pause(50); }';
    const editor = await behind({ onOther: ENDS, onNew });
    const { sessionId } = await editor.make();
    await editor.turn(sessionId, "one");
    // Then the agent has to begin another session.
    await editor.result("_pi-session-server/branch", { sessionId, entryId: null });
    const asked = editor.begins(sessionId, "two");
    await editor.heard("opening");
    editor.notify("session/cancel", { sessionId });
    expect((await editor.reply(asked)).result.stopReason).toBe("cancelled");
    const { entries } = await editor.result("_pi-session-server/entries", { sessionId });
    expect(entries.filter(({ message }: Json) => message?.content?.[0]?.text === "two")).toEqual([]);
  });

  test("that asks without end is refused, and fills no memory", async () => {
    const editor = await behind({
      onOther: `if (method === "session/prompt") {
          globalThis.prompted = id;
          globalThis.refused = 0;
          for (let i = 0; i < 2000; i++)
            say({ id: "own " + i, method: "session/request_permission", params: { sessionId, toolCall: { toolCallId: "c" }, options: [] } });
        } else if (error && ++refused === 1700) say({ id: prompted, result: { stopReason: "end_turn" } });`,
    });
    const { sessionId } = await editor.make();
    expect((await editor.turn(sessionId, "one")).result.stopReason).toBe("end_turn");
  });
});

acrossTiers(test, ["jsonl", "v2"])(
  "a turn of which a part cannot be written in %s does not end well",
  async (store) => {
    let isFull = false;
    const { disk } = failingDisk((_, operation) => (isFull && operation === "write" ? "ENOSPC" : undefined));
    const place = temporaryPlace();
    const again = `{ id: "again", method: "session/request_permission", params: { sessionId: prompted.sessionId, toolCall: { toolCallId: "c" }, options: [] } }`;
    const tells = `tell(prompted.sessionId, { sessionUpdate: "tool_call", toolCallId: "c", title: "c", status: "completed" });`;
    const ends = 'else if (id === "again") say({ id: prompted.id, result: { stopReason: "end_turn" } });';
    const agent = ownAcpAgent(place, `${asksThen(`${tells} say(${again});`)} ${ends}`);
    const args = ["--agent", agent, "--agent-protocol", "acp", "--store", store];
    const editor = await editorHere(args, { place, disk, agentLaunch: HERE });
    const { sessionId } = await editor.make();
    const asked = editor.begins(sessionId, "one");
    for (const wasFull of [true, false]) {
      const question = await editor.question();
      isFull = wasFull;
      editor.server.send({ jsonrpc: "2.0", id: question.id, result: { outcome: { outcome: "cancelled" } } });
    }
    expect((await editor.reply(asked)).error).toMatchObject({ data: { name: expect.any(String) } });
  },
);

describe("an editor that is in a hurry", () => {
  const begun = async (): Promise<{ editor: Editor; sessionId: string; asked: number }> => {
    const editor = await behind({
      onOther: `if (method === "session/cancel") say({ id: prompted, result: { stopReason: "cancelled" } });
        if (method !== "session/prompt") return;
        globalThis.prompted = id;
        chunk(sessionId, "begun");
        if (params.prompt[0].text !== "long") say({ id, result: { stopReason: "end_turn" } });`,
    });
    const { sessionId } = await editor.make();
    const asked = editor.begins(sessionId, "long");
    await editor.heard("begun");
    return { editor, sessionId, asked };
  };

  test("gets a reply to each of its prompts, of which one is run at a time", async () => {
    const { editor, sessionId, asked } = await begun();
    const second = editor.begins(sessionId, "second");
    expect((await editor.reply(second)).error.message).toContain("runs already");
    editor.notify("session/cancel", { sessionId });
    editor.notify("session/cancel", { sessionId });
    expect((await editor.reply(asked)).result.stopReason).toBe("cancelled");
    editor.notify("session/cancel", { sessionId });
    expect((await editor.turn(sessionId, "third")).result.stopReason).toBe("end_turn");
    expect(await shownBy(editor, sessionId)).toEqual(["user: long", "agent: begun", "user: third", "agent: begun"]);
  });

  test("may delete a session under a turn and prompt behind that: the turn ends, and nothing comes back", async () => {
    const { editor, sessionId, asked } = await begun();
    const deleted = editor.ask("session/delete", { sessionId });
    const behindIt = editor.begins(sessionId, "late");
    expect((await editor.reply(asked)).result.stopReason).toBe("cancelled");
    expect((await editor.reply(deleted)).result).toEqual({});
    expect((await editor.reply(behindIt)).error).toBeDefined();
    expect((await editor.result("session/list", {})).sessions).toEqual([]);
  });
});

acrossTiers(test, ["jsonl", "v2"])("what an agent says between turns is in %s, once, and told once", async (store) => {
  const editor = await behind({
    more: ["--store", store],
    onOther: `chunk(sessionId, method === "session/prompt" ? "now" : "later"); ${ENDS}`,
  });
  const { sessionId } = await editor.make();
  for (const text of ["one", "two"]) {
    await editor.turn(sessionId, text);
    await editor.result("session/set_mode", { sessionId, modeId: "x" });
  }
  const told = editor.take(sessionId).flatMap(({ content }) => content?.text ?? []);
  expect(told).toEqual(["now", "later", "now", "later"]);
  const inOrder = ["user: one", "agent: now", "agent: later", "user: two", "agent: now", "agent: later"];
  expect(await shownBy(editor, sessionId)).toEqual(inOrder);
  // What was loaded is known to the agent: it goes on with its own session.
  const { result } = await editor.turn(sessionId, "three");
  expect(ours(result)).toBeUndefined();
});

test("the mode that is in force is told by a load, and where an agent that was started again has another", async () => {
  const modes = { currentModeId: "ask", availableModes: ["ask", "code"].map((id) => ({ id, name: id })) };
  const editor = await behind({
    onOther: `if (method === "session/prompt" && params.prompt[0].text === "die") process.exit(1); ${ENDS}`,
    onNew: `return say({ id, result: { sessionId: "own-" + ++made + "-" + process.pid, modes: ${JSON.stringify(modes)} } });`,
  });
  const { sessionId } = await editor.make();
  await editor.result("session/set_mode", { sessionId, modeId: "code" });
  const { result } = await editor.load(sessionId);
  expect(result.modes.currentModeId).toBe("code");
  await editor.turn(sessionId, "die");
  editor.take(sessionId);
  expect(ours((await editor.turn(sessionId, "on")).result).fidelity).toBe("seeded");
  expect(editor.take(sessionId)).toContainEqual(
    expect.objectContaining({ sessionUpdate: "current_mode_update", currentModeId: "ask" }),
  );
});
