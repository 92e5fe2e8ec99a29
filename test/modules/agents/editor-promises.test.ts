/** What an editor may rely on: replies and errors of requests, and what it hears of an agent that is missing, late or wrong. */

import { rmSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { editorHere } from "../../support/acp.ts";
import { acpLike, ownAcpAgent, piLike } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { type Json, temporaryPlace } from "../../support/server.ts";

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
});

describe("an agent", () => {
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
