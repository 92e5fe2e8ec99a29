/** Editors that are broken, slow, or up to something. */

import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { PassThrough } from "node:stream";
import { describe, expect, test } from "vitest";
import { editorHere, editorWith, ours } from "../../support/acp.ts";
import { toolCall, toolResult, user } from "../../support/drafts.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { type Json, type Place, serveHere } from "../../support/server.ts";
import { turns } from "../../support/shared-session.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

describe("messages", () => {
  /** A request with this in its middle. */
  const asked = (rest: string): string => `{"jsonrpc":"2.0","id":90,${rest}}`;

  const long = asked(`"method":"session/list","params":{"cursor":"${"x".repeat(5000)}"}`);

  test.each<[string, string | Buffer, number, Json?]>([
    ["a line over the limit", long, -32803, { id: 90, error: { data: { name: "message_too_large" } } }],
    ["no JSON", "{", -32700],
    ["a part of a message", '{"jsonrpc":"2.0",', -32700],
    ["no UTF-8", Buffer.from([0x7b, 0xff, 0x7d]), -32700],
    ["a batch", `[${asked('"method":"session/list"')}]`, -32600],
    ["a number", "7", -32600],
    ["no version of JSON-RPC", '{"id":90,"method":"session/list"}', -32600],
    ["an id that is an object", '{"jsonrpc":"2.0","id":{},"method":"session/list"}', -32600],
    ["a method that is a number", asked('"method":7'), -32600],
    ["params that are a list", asked('"method":"session/list","params":[1]'), -32600],
    ["params that are a text", asked('"method":"session/list","params":"x"'), -32600],
    ["a second initialize", asked('"method":"initialize","params":{"protocolVersion":1}'), -32600],
    ["a method of every object", asked('"method":"constructor"'), -32601],
    ["a method of ours", asked('"method":"shutdown"'), -32601],
  ])("%s is refused, and the next one answered", async (_, message, code, more = {}) => {
    const editor = await editorHere(["--max-message-bytes", "2000"]);
    editor.server.write(message);
    editor.server.write("\n");
    const refusal = await editor.next();
    expect(refusal.error).toMatchObject({ code, message: expect.stringMatching(/\.$/) });
    expect(refusal).toMatchObject(more);
    expect((await editor.result("session/list")).sessions).toEqual([]);
  });

  test("nothing is answered before initialize, and a wrong one can be mended", async () => {
    const server = serveHere(["--dialect", "acp"]);
    expect((await server.failure("session/list")).message).toMatch(/initialize/);
    expect((await server.failure("initialize", { protocolVersion: "1" })).code).toBe(-32602);
    expect((await server.result("initialize", { protocolVersion: 1 })).protocolVersion).toBe(1);
    expect((await server.result("session/list")).sessions).toEqual([]);
  });

  test("notifications and answers that nobody asked for are passed over", async () => {
    const editor = await editorHere();
    editor.notify("session/cancel", { sessionId: "none" });
    editor.notify("session/cancel", {});
    editor.notify("$/cancel_request", { requestId: 99 });
    editor.notify("_somebody/tells", {});
    for (const answer of [{ result: {} }, { error: { code: 1, message: "x" } }])
      editor.server.send({ jsonrpc: "2.0", id: 5, ...answer });
    expect((await editor.result("session/list")).sessions).toEqual([]);
  });

  test("ids come back as they were sent, and none is in use twice", async () => {
    const editor = await editorHere();
    for (const id of ['"a"', "1e3", "-0.5", "12345678901234567890", "null", '"\\u0041"']) {
      editor.server.write(`{"jsonrpc":"2.0","id":${id},"method":"session/list"}\n`);
      const reply = await editor.server.next();
      expect(JSON.stringify(reply.id)).toBe(JSON.stringify(JSON.parse(id)));
    }
    editor.server.send(...[1, 2].map(() => ({ jsonrpc: "2.0", id: "same", method: "session/list" })));
    const replies = [await editor.next(), await editor.next()];
    expect(replies.filter(({ error }) => error)).toHaveLength(1);
  });

  test("params of the wrong kind are named", async () => {
    const { place, id, editor } = await editorWith();
    const [{ cwd }, sessionId] = [place, id];
    const meta = (_meta: object): object => ({ sessionId, cwd, mcpServers: [], _meta });
    const WRONG: [string, object, RegExp][] = [
      ["session/new", {}, /cwd is missing/],
      ["session/new", { cwd: "relative", mcpServers: [] }, /cwd must be an absolute path/],
      ["session/new", { cwd: "/a\0b", mcpServers: [] }, /cwd must have no NUL/],
      ["session/new", { cwd, mcpServers: "x" }, /mcpServers must be a list/],
      ["session/load", { cwd, mcpServers: [] }, /sessionId is missing/],
      ["session/load", { sessionId: 7, cwd }, /sessionId must be a string/],
      ["session/load", { sessionId, cwd: "..", mcpServers: [] }, /cwd must be/],
      ["session/load", meta({ "pi-session-server": { since: 7 } }), /since must be/],
      ["session/fork", meta({ jetbrains: { air: { fork: {} } } }), /messageId/],
      ["session/fork", meta({ "pi-session-server": { position: "up" } }), /position/],
      ["session/prompt", { sessionId, prompt: "x" }, /prompt must be a list/],
      ["session/set_title", { sessionId }, /title is missing/],
      ["session/list", { _meta: 7 }, /_meta must be/],
      ["_pi-session-server/branch", { sessionId }, /entryId is missing/],
      ["_pi-session-server/branch", { sessionId, entryId: null, more: 1 }, /more: no such member/],
    ];
    for (const [method, params, sentence] of WRONG) {
      const error = await editor.failure(method, params);
      expect([method, error.code, error.message]).toEqual([method, -32602, expect.stringMatching(sentence)]);
    }
  });
});

test("sessions that do not exist are not found, by no trick", async () => {
  const { place, id, editor } = await editorWith();
  writeFileSync(join(place.home, "secret.jsonl"), readFileSync(fileOf(place)));
  const paths = ["", ".", "..", "../../secret", "/etc/passwd", "%2e", `${id}/`, `${id}\u0000`];
  const tricks = [...paths, id.slice(0, 8), "x".repeat(10_000)];
  for (const sessionId of tricks) {
    const params = { sessionId, cwd: place.cwd, mcpServers: [], prompt: [], title: "x", entryId: null };
    for (const method of ["load", "resume", "fork", "close", "status", "set_title", "prompt", "archive", "unarchive"])
      expect([method, (await editor.failure(`session/${method}`, params)).code]).toEqual([method, -32002]);
    // Deleting a missing session succeeds; clients take -32002 for the same.
    expect((await editor.request("session/delete", params)).error?.code ?? -32002).toBe(-32002);
  }
  expect((await editor.result("session/list")).sessions).toHaveLength(1);
  expect(existsSync(join(place.home, "secret.jsonl"))).toBe(true);
  // A path names the session only together with its id.
  const _meta = { "pi-session-server": { sessionPath: fileOf(place) } };
  const other = { sessionId: "another", cwd: place.cwd, mcpServers: [], _meta };
  expect((await editor.failure("session/load", other)).code).toBe(-32002);
});

function fileOf(place: Place): string {
  const root = join(place.home, ".pi/agent/sessions");
  const name = readdirSync(root, { recursive: true, encoding: "utf8" }).find((found) => found.endsWith(".jsonl"));
  return join(root, name as string);
}

test("under --confine, no path leads outside", async () => {
  const { place, id, editor } = await editorWith({ args: ["--confine"] });
  const outside = join(place.home, "outside");
  mkdirSync(outside);
  writeFileSync(join(outside, "other.jsonl"), readFileSync(fileOf(place)));
  symlinkSync(outside, join(place.home, ".pi/agent/sessions/--link--"));
  for (const folder of [outside, join(place.home, ".pi/agent/sessions/--link--")]) {
    const sessionPath = join(folder, "other.jsonl");
    const _meta = { "pi-session-server": { sessionPath } };
    const error = await editor.failure("session/load", { sessionId: id, cwd: place.cwd, mcpServers: [], _meta });
    expect(error.data.name).toBe("path_outside_root");
  }
  const { updates } = await editor.load(id);
  expect(updates.filter(({ messageId }) => messageId)).toHaveLength(2);
});

test("under --read-only nothing is offered that writes, and nothing is written", async () => {
  const { place, id, editor } = await editorWith({ args: ["--read-only"] });
  const before = readFileSync(fileOf(place));
  const { sessionCapabilities } = editor.agent.agentCapabilities;
  for (const name of ["fork", "delete", "archive", "title"]) expect(sessionCapabilities).not.toHaveProperty(name);
  const { result } = await editor.load(id);
  expect(ours(result).readOnly).toBe(true);
  for (const method of ["fork", "delete", "archive", "unarchive", "set_title"])
    expect((await editor.failure(`session/${method}`, { sessionId: id, title: "x" })).code).toBe(-32601);
  await editor.server.finish();
  expect(readFileSync(fileOf(place))).toEqual(before);
});

/** Turns of 120 kB. */
function long(turns: number): Json[] {
  const text = "word ".repeat(12_000);
  return Array.from({ length: turns }, (_, n) => [
    user(`${n} ${text}`),
    toolCall(`c${n}`),
    toolResult(`c${n}`, text),
  ]).flat();
}

test("a session is loaded while it is loaded, and both get all of it", async () => {
  const { place, id, editor } = await editorWith({ entries: long(8) });
  const params = { sessionId: id, cwd: place.cwd, mcpServers: [] };
  for (const request of [editor.ask("session/load", params), editor.ask("session/load", params)]) {
    expect(await editor.reply(request)).toHaveProperty("result");
    expect(editor.take(id).filter(({ messageId }) => messageId)).toHaveLength(8);
  }
});

test.each([
  ["closed", "session/close"],
  ["cancelled", "$/cancel_request"],
])("a client that does not read is not fed; a load that is %s ends, and can begin again", SYSTEM, async (_, method) => {
  const { place, id, editor } = await editorWith({ entries: long(60) });
  const loading = editor.ask("session/load", { sessionId: id, cwd: place.cwd, mcpServers: [] });
  await editor.until(({ messageId }) => messageId);
  editor.server.stall();
  await turns(500);
  // 7 MB are to come; what waits in memory for the reader is a part of it.
  const { readableLength, writableLength } = editor.server.output as PassThrough;
  expect(readableLength + writableLength).toBeLessThan(6 << 20);
  const closing = method === "session/close" ? editor.ask(method, { sessionId: id }) : undefined;
  if (closing === undefined) editor.notify(method, { requestId: loading });
  await turns(50);
  editor.server.resume();
  expect((await editor.reply(loading)).error.code).toBe(-32800);
  if (closing !== undefined) expect(await editor.reply(closing)).toMatchObject({ result: {} });
  expect(editor.take(id).length).toBeLessThan(120);
  const { updates } = await editor.load(id);
  expect(updates.filter(({ messageId }) => messageId)).toHaveLength(60);
});

test("everything is answered that was asked before the end of the input", async () => {
  const { place, id, editor } = await editorWith({ entries: long(4) });
  const params = { sessionId: id, cwd: place.cwd, mcpServers: [] };
  const asked = Array.from({ length: 10 }, (_, n) =>
    n % 2 === 0 ? editor.ask("session/load", params) : editor.ask("session/list"),
  );
  const { messages, status } = await editor.server.finish();
  expect(status).toBe(0);
  for (const message of messages) editor.check(message);
  const answered = messages.filter(({ method }) => method === undefined);
  expect(answered.map(({ id }) => id).sort((a, b) => a - b)).toEqual(asked);
  expect(answered.filter(({ error }) => error)).toEqual([]);
});

acrossTiers(test, [1, 3])("random bytes between requests do not keep these from being answered (%i)", async (count) => {
  await forSeedsAsync(count, async (random) => {
    const { place, id, editor } = await editorWith();
    const members = ["mcpServers", "_meta", "title", "prompt", "entryId", "cursor", "archived"];
    for (let n = 0; n < 60; n++) {
      const sessionId = random.pick<Json>([id, id, "no", null, {}]);
      const params: Json = { sessionId, cwd: random.pick<Json>([place.cwd, "x", 5]) };
      for (const name of members.filter(() => random.chance(0.4)))
        params[name] = random.pick<Json>([null, [], {}, "x", 0, [null], { "pi-session-server": 5 }]);
      const method = random.pick("new load resume fork list close status set_title prompt set_mode".split(" "));
      const noise = Array.from({ length: random.int(40) }, () => random.int(256)).filter((byte) => byte !== 10);
      if (random.chance(0.3)) editor.server.write(Buffer.from(noise));
      editor.server.write("\n");
      const { error } = await editor.request(`session/${method}`, params);
      if (error) expect([method, error.code, error.message]).not.toEqual([method, -32603, expect.anything()]);
    }
    const { updates } = await editor.load(id);
    expect(updates.filter(({ messageId }) => messageId)).toHaveLength(2);
  });
});
