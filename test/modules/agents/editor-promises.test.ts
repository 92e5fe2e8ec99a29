/** What an editor may rely on: replies and errors of requests, and what it hears of an agent that is missing, late or wrong. */

import { mkdirSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { editorHere, ours, textOf } from "../../support/acp.ts";
import { acpLike, ownAcpAgent, piLike } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { type Json, temporaryPlace } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";

const ENDS = 'say({ id, result: { stopReason: "end_turn" } });';
/** Begins a turn, and ends it when it is cancelled. */
const LASTS = `if (method === "session/cancel") say({ id: prompted, result: { stopReason: "cancelled" } });
  if (method === "session/prompt") { globalThis.prompted = id; chunk(sessionId, "begun"); }`;

/** An editor with a session, and an agent of the protocol behind that runs `onOther` for all but its beginning. */
async function behind(onOther: string, more: string[] = [], onNew = "", params: object = {}) {
  const place = temporaryPlace();
  const agent = ownAcpAgent(place, onOther, {}, onNew);
  const editor = await editorHere(["--agent", agent, "--agent-protocol", "acp", ...more], { place, agentLaunch: HERE });
  const { sessionId }: Json = await editor.result("session/new", { cwd: place.cwd, mcpServers: [], ...params });
  return { place, editor, sessionId, end: (text: string) => editor.end(editor.begins(sessionId, text)) };
}

const pi = (...more: string[]) => editorHere(["--agent", piLike(), ...more], { agentLaunch: HERE });

describe("requests", () => {
  test("that the protocol has as notifications have their effect, and a reply", async () => {
    const { editor, sessionId } = await behind(LASTS);
    const turn = editor.begins(sessionId, "one");
    await editor.heard("begun");
    for (const server of [editor.server, editor.server, (await pi()).server]) {
      server.send({ jsonrpc: "2.0", id: "now", method: "session/cancel", params: { sessionId } });
      expect((await server.reply("now")).result).toEqual({});
    }
    expect(await editor.end(turn)).toBe("cancelled");
  });

  test("that this server refuses get the name of the failure", async () => {
    const { editor, sessionId } = await behind(LASTS);
    editor.begins(sessionId, "one");
    await editor.heard("begun");
    const lone = await editorHere();
    const unknown = { sessionId: "none", prompt: [], modeId: "x" };
    const open = { sessionId, prompt: [], title: "x" };
    const cases: [typeof lone, string, object, number, string][] = [
      [editor, "session/prompt", unknown, -32002, "session_not_found"],
      [editor, "session/set_mode", unknown, -32002, "session_not_found"],
      [editor, "session/prompt", open, -32600, "invalid_request"],
      [editor, "session/set_title", open, -32803, "session_locked"],
      [editor, "initialize", { protocolVersion: 1 }, -32600, "invalid_request"],
      [lone, "session/nothing", {}, -32601, "method_not_found"],
      [lone, "session/set_mode", unknown, -32601, "method_not_found"],
      [lone, "authenticate", {}, -32602, "invalid_params"],
    ];
    for (const [client, method, params, code, name] of cases) {
      const { code: got, data } = await client.failure(method, params);
      expect([method, got, data]).toEqual([method, code, { name, retryable: name === "session_locked" }]);
    }
    lone.server.write("[]\n");
    expect((await lone.next()).error.data.name).toBe("invalid_request");
  });

  test("pass their _meta on to the agent, and its updates theirs to the client", async () => {
    const tells =
      'const heard = (text) => say({ method: "session/update", params: { sessionId, _meta: { of: 1 }, update:';
    const update = '{ sessionUpdate: "agent_message_chunk", content: { type: "text", text } } } });';
    const { editor, sessionId } = await behind(
      `${tells} ${update} heard(JSON.stringify(params._meta)); heard(JSON.stringify(opened._meta)); ${ENDS}`,
      [],
      "globalThis.opened = params;",
      { _meta: { claudeCode: { options: 1 } } },
    );
    const prompt = [{ type: "text", text: "one" }];
    await editor.result("session/prompt", { sessionId, prompt, _meta: { traceparent: "t" } });
    await editor.result("session/set_mode", { sessionId, modeId: "x", _meta: { mode: 2 } });
    await editor.result("session/set_config_option", { sessionId, configId: "x", value: "y", _meta: { option: 3 } });
    const said: Json[] = [];
    while (said.length < 6) {
      said.push(...editor.updates.splice(0).filter(({ update: { content } }) => content));
      if (said.length < 6) await editor.next();
    }
    expect(said.map(({ _meta }) => _meta)).toEqual(said.map(() => ({ of: 1 })));
    const opened = '{"claudeCode":{"options":1}}';
    expect(textOf(said.map(({ update }) => update))).toBe(
      `{"traceparent":"t"}${opened}{"mode":2}${opened}{"option":3}${opened}`,
    );
  });

  test("that open an open session again say which of their params have no effect", async () => {
    const { editor, sessionId, place } = await behind(
      `chunk(sessionId, JSON.stringify(opened)); ${ENDS}`,
      [],
      `
      globalThis.opened = { servers: params.mcpServers.map(({ name }) => name), folders: params.additionalDirectories };`,
    );
    const turn = async (): Promise<string> => {
      editor.take(sessionId);
      await editor.turn(sessionId, "one");
      return textOf(editor.take(sessionId));
    };
    expect(await turn()).toBe('{"servers":[]}');
    const mcpServers = [{ name: "m", command: "/bin/m", args: [], env: [] }];
    const params = { mcpServers, additionalDirectories: ["/w"] };
    const load = async (): Promise<Json> => ours((await editor.load(sessionId, place.cwd, params)).result).ignored;
    expect(await load()).toEqual(["mcpServers", "additionalDirectories"]);
    expect(await turn()).toBe('{"servers":[]}');
    await editor.result("session/close", { sessionId });
    for (let times = 0; times < 2; times++) {
      expect(await load()).toBeUndefined();
      expect(await turn()).toBe('{"servers":["m"],"folders":["/w"]}');
    }
  });
});

describe("an agent", () => {
  test("gets long answers to its requests, as fast as it reads them", async () => {
    const { editor, sessionId } = await behind(
      `if (method === "session/prompt") {
        globalThis.prompted = id;
        globalThis.lengths = [];
        const ask = (n) => say({ id: "own " + n, method: "_own/reads", params: { sessionId } });
        lines.pause();
        ask(1);
        await pause(50);
        ask(2);
        ask(3);
        await pause(50);
        lines.resume();
      } else if (method === undefined && lengths.push(result?.length) === 3)
        say({ id: prompted, result: { stopReason: "end_turn", _meta: { lengths } } });`,
    );
    const asked = editor.begins(sessionId, "read");
    const long = 5_000_000;
    for (let n = 0; n < 3; n++) editor.server.answer((await editor.question()).id, "x".repeat(long));
    expect(await editor.reply(asked)).toMatchObject({ result: { _meta: { lengths: [long, long, long] } } });
  });

  test("that ends without reading the answers ends its turn", SYSTEM, async () => {
    const { editor, sessionId } = await behind(
      `if (method !== "session/prompt") return;
        lines.pause();
        for (let n = 0; n < 3; n++) say({ id: "own " + n, method: "_own/reads", params: { sessionId } });
        setTimeout(() => process.exit(3), 200);`,
    );
    const asked = editor.begins(sessionId, "read");
    for (let n = 0; n < 3; n++) editor.server.answer((await editor.question()).id, "x".repeat(5_000_000));
    expect(await editor.end(asked)).toContain("ended with status 3");
    expect((await editor.result("session/list")).sessions).toHaveLength(1);
  });

  test("that says a line over the limit leaves a mark of it in its answer", async () => {
    const { editor, sessionId, end } = await behind(
      `if (method !== "session/prompt") return;
        for (const text of ["before ", "x".repeat(200000), " after"]) chunk(sessionId, text);
        ${ENDS}`,
      ["--max-message-bytes", "100000"],
    );
    expect(await end("one")).toBe("end_turn");
    const live = textOf(editor.take(sessionId));
    expect(live).toMatch(/^before \[The agent said a line of 200\d+ bytes, over the limit of 100000\..*\] after$/);
    expect(textOf((await editor.load(sessionId)).updates)).toBe(live);
  });

  test("that does not end a cancelled turn is ended, and turns of other sessions say so", async () => {
    const { editor, sessionId, place } = await behind(
      'if (method === "session/prompt") chunk(sessionId, params.prompt[0].text);',
      ["--agent-timeout", "200"],
    );
    const other = (await editor.result("session/new", { cwd: place.cwd, mcpServers: [] })).sessionId;
    const [stuck, well] = [editor.begins(sessionId, "stuck"), editor.begins(other, "well")];
    await editor.heard("well");
    editor.cancel(sessionId);
    expect(await editor.end(stuck)).toBe("cancelled");
    expect(await editor.end(well)).toContain("did not end a cancelled turn of one of its sessions");
  });

  test.each([
    ["of Pi", []],
    ["of the protocol", ["--agent-protocol", "acp"]],
  ])("%s that cannot be started is reported at once, and a prompt says that it was not stored", async (_, more) => {
    const editor = await editorHere(["--agent", "/no/such/agent", ...more]);
    const { sessionId } = await editor.make();
    const { said } = editor.server as { said?: readonly string[] };
    expect(said?.join("\n")).toContain("could not be started (ENOENT)");
    expect(await editor.failedTurn(sessionId, "one")).toMatch(
      /could not be started \(ENOENT\)\. The message was neither sent nor stored\. /,
    );
  });

  test("of the protocol where Pi is expected: the failure names the option", async () => {
    const place = temporaryPlace();
    const replies = 'say({ id: null, error: { code: -32600, message: "no method" } });';
    const agent = ownAcpAgent(place, replies);
    const editor = await editorHere(["--agent", agent, "--agent-timeout", "200"], { place, agentLaunch: HERE });
    const { sessionId } = await editor.make();
    expect(await editor.failedTurn(sessionId, "one")).toContain("--agent-protocol acp");
    expect((editor.server as { said?: readonly string[] }).said?.join("\n")).toContain("--agent-protocol acp");
  });
});

describe("Pi", () => {
  test("runs in no other directory than the session's", async () => {
    const editor = await pi();
    const { place } = editor.server;
    const cwd = join(place.home, "gone");
    const { sessionId } = await editor.result("session/new", { cwd, mcpServers: [] });
    const isMissing = (failure: string): void => {
      expect(failure).toContain(cwd);
      expect(failure).toContain("neither sent nor stored");
    };
    isMissing(await editor.failedTurn(sessionId, "one"));
    mkdirSync(cwd);
    expect((await editor.turn(sessionId, "two")).result.stopReason).toBe("end_turn");
    await editor.server.finish();
    rmdirSync(cwd);
    const next = await editorHere(["--agent", piLike()], { place, agentLaunch: HERE });
    await next.load(sessionId);
    isMissing(await next.failedTurn(sessionId, "three"));
    expect(await next.spoken(sessionId)).toBe("two");
  });

  test("gets pictures and files that come as data; a refusal says what it takes", async () => {
    const editor = await pi();
    const { sessionId } = await editor.make();
    const resource = (uri: string, mimeType?: string) => ({
      type: "resource",
      resource: { uri, blob: "aGk=", mimeType },
    });
    const prompt = [{ type: "text", text: "see " }, resource("file:///a%20b.bin"), resource("x:1", "image/png")];
    await editor.result("session/prompt", { sessionId, prompt });
    const { updates } = await editor.load(sessionId);
    const said = updates.filter(({ sessionUpdate }) => sessionUpdate === "user_message_chunk");
    expect(said.map(({ content }) => content)).toEqual([
      { type: "text", text: "see /a b.bin" },
      { type: "image", data: "aGk=", mimeType: "image/png" },
    ]);
    const { message } = await editor.failure("session/prompt", { sessionId, prompt: [resource("x:2", "a/b")] });
    expect(message).toMatch(/a resource with data of the type a\/b/);
  });
});

test("a session whose file is gone can be forked, as the failure of its prompt says", async () => {
  const place = temporaryPlace();
  const args = ["--agent", acpLike(), "--agent-protocol", "acp"];
  const editor = await editorHere(args, { place, agentLaunch: HERE });
  const { sessionId } = await editor.make();
  await editor.turn(sessionId, "one");
  rmSync(join(place.home, ".pi/agent/sessions"), { recursive: true });
  const failure = await editor.failedTurn(sessionId, "two");
  expect(failure).toMatch(/missing. fork /);
  const { sessionId: forked } = await editor.fork(sessionId);
  // A fork is open: it can be prompted without a load.
  expect((await editor.turn(forked, "three")).result.stopReason).toBe("end_turn");
  expect(await editor.spoken(forked)).toBe("onethree");
});
