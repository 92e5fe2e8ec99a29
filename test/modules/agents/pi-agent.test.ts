/** An agent behind that speaks Pi's dialect: what goes where, and who may end when. */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  data,
  event,
  lives,
  ownAgent,
  pidOf,
  piLike,
  said,
  spawnWithAgent,
  turn,
  until,
} from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";

/** Starts a server in this process, as its agent is. */
const serveWithAgent = (agent: string, args: string[] = [], place: Place = temporaryPlace()): HereServer =>
  serveHere(["--mode", "rpc", "--agent", agent, ...args], { place, agentLaunch: HERE });

/** Starts a server with an agent that runs `onOther` with its input. */
function serveWithOwn(onOther: string): HereServer {
  const place = temporaryPlace();
  return serveWithAgent(ownAgent(place, onOther), [], place);
}

const entriesOf = (file: string): Json[] =>
  readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

/** The messages of turns with the scripted agent. */
const turnsOf = (...prompts: string[]): string[] =>
  prompts.flatMap((prompt) => [`user: ${prompt}`, `assistant: You said: ${prompt}`]);

describe("a turn", () => {
  test("goes to the agent, comes back as it was said, and is in the session", SYSTEM, async () => {
    const server = spawnWithAgent(piLike());
    const before = await data(server, "get_state");
    expect(before.model).toMatchObject({ id: "scripted-1", contextWindow: 100_000 });
    expect(before.persisted).toBe(false);
    await turn(server, "hello tools 1");
    const types = server.events.map(({ type }) => type).filter((type) => type !== "message_update");
    expect(types).toEqual([
      ...["agent_start", "turn_start", "message_start", "message_end"],
      ...["message_start", "message_end", "tool_execution_start", "tool_execution_update", "tool_execution_end"],
      ...["message_start", "message_end", "message_start", "message_end", "turn_end", "agent_end"],
    ]);
    expect(await said(server)).toEqual([
      "user: hello tools 1",
      "assistant: read",
      "toolResult: file 1",
      "assistant: You said: hello tools 1",
    ]);
    const { sessionFile, leafId, isStreaming } = await data(server, "get_state");
    const [header, ...entries] = entriesOf(sessionFile);
    expect(header).toMatchObject({ type: "session", id: before.sessionId });
    expect(entries).toHaveLength(4);
    expect(entries.at(-1).id).toBe(leafId);
    expect(isStreaming).toBe(false);
    expect((await server.finish()).status).toBe(0);
    expect(server.stderr).toBe("");
  });

  test("has every byte of the agent, and every reply the id of its request", SYSTEM, async () => {
    const place = temporaryPlace();
    const odd = [
      '{"type":"message_update","text":"\u2028 \\u00e9 é \\/ 1","n":1e400,"n":2}',
      '  { "type" : "queue_update" , "steering":[] }\r',
      '{"z":1,"type":"unheard_of","deep":[[[]]]}',
    ];
    const agent = ownAgent(
      place,
      `process.stdout.write(${JSON.stringify(odd.map((line) => `${line}\n`).join(""))});
       process.stdout.write(line.replace('"type"', '"type":"response","success":true,"command"') + "\\n");`,
    );
    const server = spawnWithAgent(agent, [], place);
    let raw = "";
    server.output.on("data", (chunk: Buffer) => {
      raw += chunk;
    });
    const asked = [
      '{"id":7,"type":"prompt","message":"a"}',
      '{"type":"prompt","message":"b"}',
      '{"id":"x","type":"new","k":[1.50]}',
    ];
    for (const line of asked) server.write(`${line}\n`);
    await until(server, ({ command }) => command === "new");
    const replies = asked.map((line) => line.replace('"type"', '"type":"response","success":true,"command"'));
    expect(raw).toBe(replies.map((reply) => [...odd, reply, ""].join("\n")).join(""));
  });

  test("may ask the person at the client, whose answer goes to the agent", async () => {
    const server = serveWithAgent(piLike());
    await data(server, "prompt", { message: "ask me" });
    const { id, method } = await event(server, "extension_ui_request");
    expect(method).toBe("confirm");
    server.send({ type: "extension_ui_response", id, confirmed: true });
    await event(server, "agent_settled");
    expect((await said(server)).at(-1)).toBe("assistant: You said: ask me");
  });
});

describe("sessions", () => {
  test("are ours, and the agent goes on where the host stands", async () => {
    const server = serveWithAgent(piLike());
    await turn(server, "one");
    const { leafId: one, sessionFile: first } = await data(server, "get_state");
    await turn(server, "two");
    await data(server, "branch", { entryId: one });
    await turn(server, "three");
    expect(await said(server)).toEqual(turnsOf("one", "three"));
    await data(server, "set_label", { entryId: one, label: "here" });
    await data(server, "set_session_name", { name: "a name" });
    await turn(server, "four");
    expect((await said(server)).slice(4)).toEqual(turnsOf("four"));

    const { messages } = await data(server, "get_fork_messages");
    expect(messages.map(({ text }: Json) => text)).toEqual(["one", "two", "three", "four"]);
    await data(server, "fork", { entryId: messages[1].entryId });
    await turn(server, "in the fork");
    expect((await said(server)).slice(2)).toEqual(turnsOf("in the fork"));

    const made = await data(server, "new_session");
    await turn(server, "fresh");
    expect(await said(server)).toEqual(turnsOf("fresh"));
    expect(entriesOf(made.sessionFile).map(({ type }) => type)).toEqual(["session", "message", "message"]);

    await data(server, "switch_session", { sessionPath: first });
    await turn(server, "five");
    expect((await said(server)).slice(4)).toEqual(turnsOf("four", "five"));
    const { damage, invariants } = await data(server, "verify_session");
    expect([damage, Object.values(invariants).every(Boolean)]).toEqual([[], true]);
  });

  test("are not written by the host while the agent is at work; leaving them ends its turn", async () => {
    const server = serveWithAgent(piLike());
    await turn(server, "one");
    const { leafId, sessionFile } = await data(server, "get_state");
    await data(server, "prompt", { message: "chunks 100000 every 20" });
    await event(server, "message_update");
    expect(await data(server, "get_state")).toMatchObject({ isStreaming: true });
    const refused = await server.command("set_label", { entryId: leafId, label: "x" });
    expect([refused.success, refused.code]).toEqual([false, "session_locked"]);
    expect(await data(server, "set_session_name", { name: "the agent writes it" })).toBeUndefined();
    await data(server, "new_session");
    const last = entriesOf(sessionFile).findLast(({ message }) => message?.role === "assistant");
    expect(last.message.stopReason).toBe("aborted");
    expect(await said(server)).toEqual([]);
  });

  test("of which a command reads are not made only because somebody looks at them", async () => {
    const server = serveWithAgent(piLike());
    for (const type of ["get_state", "get_available_models", "get_commands", "get_messages", "abort"])
      await data(server, type);
    const { sessionFile } = await data(server, "get_state");
    await server.finish();
    expect(() => readFileSync(sessionFile)).toThrow();
  });

  test("that another server holds are refused with a sentence", async () => {
    const place = temporaryPlace();
    const holder = serveWithAgent(piLike(), [], place);
    await turn(holder, "one");
    const { sessionFile } = await data(holder, "get_state");
    const other = serveWithAgent(piLike(), ["--session", sessionFile], place);
    const refused = await other.command("prompt", { message: "two" });
    expect([refused.success, refused.code]).toEqual([false, "session_locked"]);
    expect(refused.error).toContain("clone");
    // After its holder's end it is the other's, whose agent goes on.
    await holder.finish();
    await turn(other, "three");
    expect(await said(other)).toEqual(turnsOf("one", "three"));
  });
});

describe("an agent that ends", () => {
  test("in the middle of an answer leaves what was seen of it, marked, and is started by the next prompt", async () => {
    const server = serveWithAgent(piLike());
    await turn(server, "one");
    await data(server, "prompt", { message: "chunks 5 die after 3" });
    const notice = await event(server, "extension_ui_request");
    expect(notice.message).toContain("SIGKILL");
    const events = server.events.splice(0).slice(-4);
    expect(events.map(({ type }) => type)).toEqual(["message_end", "turn_end", "agent_end", "agent_settled"]);
    const { messages } = await data(server, "get_messages");
    expect(messages.at(-1)).toMatchObject({
      ...{ role: "assistant", content: [{ type: "text", text: "0 1 2 " }], stopReason: "error" },
      errorMessage: "The agent was ended by SIGKILL.",
    });
    expect(await data(server, "get_state")).toMatchObject({ isStreaming: false });
    await turn(server, "again");
    const seen = ["user: chunks 5 die after 3", "assistant: 0 1 2 "];
    expect((await said(server)).slice(2)).toEqual([...seen, ...turnsOf("again")]);
  });

  test.each([
    ["before it has written what it told is made up for, exactly once", [{ type: "text", text: "whole" }], "stop"],
    ["before it has begun an answer leaves one that says so, with all that Pi reads in it", undefined, "error"],
  ])("%s", async (_what, content, stopReason) => {
    const server = serveWithOwn(
      `const user = { role: "user", content: [{ type: "text", text: "seen" }], timestamp: 1 };
       const answer = { role: "assistant", content: ${JSON.stringify(content)}, stopReason: "stop", timestamp: 2 };
       say({ id, type: "response", command: type, success: true });
       say({ type: "agent_start" });
       for (const message of answer.content ? [user, answer] : [user])
         for (const event of ["message_start", "message_end"]) say({ type: event, message });
       process.exit(3);`,
    );
    await data(server, "prompt", { message: "seen" });
    await event(server, "agent_settled");
    const { messages } = await data(server, "get_messages");
    expect(messages).toMatchObject([{ role: "user" }, { role: "assistant", content: content ?? [], stopReason }]);
    if (!content) expect(server.events.find(({ type }) => type === "turn_end").message).toEqual(messages[1]);
    expect((await data(server, "verify_session")).damage).toEqual([]);
  });

  test("owes no reply: each request gets one error, and what comes after it is answered", async () => {
    const server = serveWithOwn('if (type === "bash") process.exit(4);');
    const model = { provider: "a", modelId: "b" };
    server.send({ id: 1, type: "compact" }, { id: 2, type: "set_model", ...model }, { id: 3, type: "bash" });
    const error = expect.stringContaining("ended with status 4");
    for (const id of [1, 2, 3]) expect(await server.reply(id)).toMatchObject({ code: "agent_failed", error });
    expect((await data(server, "get_state")).entryCount).toBe(0);
    expect(server.events.filter(({ id }) => [1, 2, 3].includes(id))).toEqual([]);
  });

  test("or is not there at all, or says nothing, is told of in a sentence", SYSTEM, async () => {
    const absent = serveWithAgent("/nowhere/agent --mode rpc");
    const refused = await absent.command("prompt", { message: "hello" });
    expect(refused).toMatchObject({ success: false, code: "agent_failed" });
    expect(refused.error).toContain("could not be started (ENOENT)");
    expect(absent.events.filter(({ type }) => type === "extension_ui_request")).toHaveLength(1);
    expect((await data(absent, "get_state")).isStreaming).toBe(false);

    const mute = serveWithAgent(piLike("--mute", "--stubborn"), ["--agent-timeout", "50"]);
    const late = await mute.command("prompt", { message: "hello" });
    expect(late).toMatchObject({ success: false, code: "agent_failed" });
    expect(await said(mute)).toEqual([]);
    expect((await mute.finish()).status).toBe(0);
  });
});

describe("limits", () => {
  test("an agent that reads nothing gets no more than a few megabytes, and is ended", SYSTEM, async () => {
    const server = serveWithAgent(piLike("--mute"), ["--agent-timeout", "100"]);
    const text = "x".repeat(1 << 20);
    for (let i = 0; i < 12; i++) server.send({ id: `big ${i}`, type: "set_auto_retry", enabled: true, text });
    for (let i = 0; i < 12; i++) {
      const reply = await server.reply(`big ${i}`);
      expect([reply.code, reply.error]).toEqual(["agent_failed", expect.stringContaining("read nothing for 100 ms")]);
    }
  });

  test("a host that does not read stops the agent, and misses nothing", SYSTEM, async () => {
    const server = spawnWithAgent(piLike());
    const pid = await pidOf(server);
    const { sessionFile } = await data(server, "get_state");
    server.stall();
    server.send({ id: "p", type: "prompt", message: "chunks 80000" });
    // The answer is written when it is complete: without a reader, the agent stops at a few megabytes of eight.
    const said = (): number => Number(/wchar: (\d+)/.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1]);
    for (let before = -1, now = said(); now < 1 << 20 || now !== before; now = said()) {
      before = now;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(entriesOf(sessionFile).map(({ message }) => message?.role)).toEqual([undefined, "user"]);
    server.resume();
    await event(server, "agent_settled");
    const updates = server.events.filter(({ type }) => type === "message_update");
    const deltas = updates.map(({ assistantMessageEvent }) => assistantMessageEvent.delta);
    expect(deltas).toEqual(Array.from({ length: 80_000 }, (_, i) => `${i} `));
  });

  test("giant lines pass, and those over the limit are dropped with a notice", async () => {
    const server = serveWithAgent(piLike(), ["--max-message-bytes", "200000"]);
    await turn(server, "giant 150000");
    const { message } = server.events.findLast(({ type }) => type === "message_end");
    expect(message.content[0].text).toHaveLength(150_022);
    await data(server, "prompt", { message: "giant 300000" });
    expect((await event(server, "extension_ui_request")).message).toContain("over the limit of 200000");
    await event(server, "agent_settled");
    expect(await data(server, "get_last_assistant_text")).toMatchObject({ text: expect.stringContaining("xxx") });
  });
});

describe("the end of", () => {
  for (const [what, tier, flags, signal] of [
    ["the host ends the agent, and what was seen of its turn is kept", SYSTEM, [], undefined],
    ["the server ends an agent that heeds neither the end of its input nor SIGTERM", SYSTEM, ["--stubborn"], "SIGTERM"],
    ["the server by SIGKILL leaves no agent, and a file that the next one opens", SWEEP, [], "SIGKILL"],
  ] as const)
    test(what, tier, async () => {
      const server = spawnWithAgent(piLike(...flags));
      const pid = await pidOf(server);
      await data(server, "prompt", { message: "chunks 100000 every 20" });
      await event(server, "message_update");
      const { sessionFile } = await data(server, "get_state");
      if (signal === undefined) server.end();
      else server.process.kill(signal);
      expect(await server.exit).toBe(signal === "SIGKILL" ? signal : 0);
      if (signal !== "SIGKILL") {
        expect(lives(pid)).toBe(false);
        const { role, stopReason } = entriesOf(sessionFile).at(-1).message;
        expect(role).toBe("assistant");
        if (signal === undefined) expect(stopReason).toBe("aborted");
        return;
      }
      while (lives(pid)) await new Promise((resolve) => setTimeout(resolve, 2));
      const next = serveWithAgent(piLike(), ["--session", sessionFile], server.place);
      await turn(next, "after");
      expect((await said(next)).at(-1)).toBe("assistant: You said: after");
    });
});

test("lines of an agent that are no objects, or reply to nothing that it was asked, do not reach the host", async () => {
  const lines = ["{not JSON", '{"type":"message_update","text":"cut', '{"type":"agent_end"} {}', "{'type':'x'}"];
  const server = serveWithOwn(
    `process.stderr.write("a line on stderr\\n");
     process.stdout.write(${JSON.stringify(lines.map((line) => `${line}\n`).join(""))});
     for (const other of [99, "1", null]) say({ id: other, type: "response", command: type, success: true });
     for (const times of [1, 2]) say({ id, type: "response", command: type, success: true, times });
     say({ id, type: "response", command: "bash", success: true });`,
  );
  server.send({ id: 99, type: "get_tree" }, { id: 1, type: "new_in_pi_2" });
  await until(server, ({ times }) => times === 1);
  const { messages } = await server.finish();
  const all = [...server.events, ...messages].filter(({ command }) => command !== "get_tree");
  // It may reply a second time.
  expect(all.map(({ id, command, times }) => [id, command, times])).toEqual([[1, "new_in_pi_2", 2]]);
  const said = server.said.join("\n");
  for (const line of lines) expect(said).toContain(line.slice(0, 9));
  expect(said).toContain("the agent says: a line on stderr");
  expect(said.match(/a reply to nothing that it was asked/g)?.length).toBeGreaterThan(0);
});

describe("what an agent shows as finished is in its session", () => {
  /** An agent that shows a turn, and of its messages writes those with these positions. */
  function forgetful(written: readonly number[], late = false, afterAll = ""): HereServer {
    return serveWithOwn(
      `if (type === "get_state") return say({ id, type: "response", command: type, success: true, data: { isStreaming: false } });
       const at = Date.now();
       const usage = { input: 0, output: 7, cacheRead: 0, cacheWrite: 0, totalTokens: 7, cost: { total: 0 } };
       const messages = [
         { role: "user", content: [{ type: "text", text: JSON.parse(line).message }], timestamp: at },
         { role: "assistant", content: [{ type: "toolCall", id: "c", name: "read", arguments: {} }], usage, stopReason: "toolUse", timestamp: at + 1 },
         { role: "toolResult", toolCallId: "c", toolName: "read", content: [{ type: "text", text: "found" }], timestamp: at + 2 },
         { role: "assistant", content: [{ type: "text", text: "answer" }], usage, stopReason: "stop", timestamp: at + 3 },
       ];
       const reply = () => say({ id, type: "response", command: type, success: true });
       if (!${late}) reply();
       say({ type: "agent_start" });
       let parentId = null;
       for (const [n, message] of messages.entries()) {
         say({ type: "message_start", message });
         say({ type: "message_end", message });
         if (!${JSON.stringify(written)}.includes(n)) continue;
         const entry = { type: "message", id: "0000000" + n, parentId, timestamp: new Date().toISOString(), message };
         appendFileSync(opened, JSON.stringify(entry) + "\\n");
         parentId = entry.id;
       }
       const last = ${afterAll || "undefined"};
       if (last) appendFileSync(opened, JSON.stringify({ parentId, timestamp: new Date().toISOString(), ...last }) + "\\n");
       say({ type: "agent_end", messages });
       if (${late}) reply();`,
    );
  }

  test.each([
    ["nothing", [], 4],
    ["nothing, and replies late", [], 4],
    ["only the beginning", [0, 1], 2],
    ["all of it", [0, 1, 2, 3], 0],
    ["user and answer, not the call between", [0, 3], 2],
    ["call and answer, not the user and the result", [1, 3], 2],
    ["one answer, not the one before it", [0, 1, 3], 1],
  ] as const)("also of one that writes %s, each message once, in the order in which it was shown", async (...given) => {
    const [what, written, lacking] = given;
    const server = forgetful(written, what.includes("late"));
    const prompts = lacking === 4 ? ["one", "two"] : ["one"];
    for (const message of prompts) {
      server.send({ id: 1, type: "prompt", message });
      await event(server, "agent_end");
    }
    const shown = ["assistant: read", "toolResult: found", "assistant: answer"];
    expect(await said(server)).toEqual(prompts.flatMap((message) => [`user: ${message}`, ...shown]));
    // Entries of the agent are unchanged, and each call of the model counts once.
    const { sessionFile } = await data(server, "get_state");
    expect(entriesOf(sessionFile).filter(({ id }) => /^0000000/.test(id))).toHaveLength(written.length);
    const { damage } = await data(server, "verify_session");
    expect([damage, (await data(server, "get_session_stats")).tokens.output]).toEqual([[], 14 * prompts.length]);
    const notices = server.events.flatMap(({ type, message }) => (type === "extension_ui_request" ? message : []));
    const messages = lacking === 1 ? "1 message that it showed. It is" : `${lacking} messages that it showed. They are`;
    expect(notices[0]).toBe(lacking === 0 ? undefined : `The agent had not written ${messages} in the session now.`);
  });

  test("beside the path where the agent wrote a compaction after it", async () => {
    const kept = { firstKeptEntryId: "00000000", tokensBefore: 9 };
    const server = forgetful(
      [0, 3],
      false,
      JSON.stringify({ type: "compaction", id: "000000ff", summary: "s", ...kept }),
    );
    server.send({ id: 1, type: "prompt", message: "one" });
    await event(server, "agent_end");
    expect((await said(server)).slice(1)).toEqual(["user: one", "assistant: answer"]);
    const roles = (await data(server, "get_entries")).entries.map(({ message }: Json) => message?.role);
    expect(roles).toContain("toolResult");
  });
});
