/** Sessions as an editor has them, over the Agent Client Protocol, on every store. */

import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { modules } from "../../../src/compose.ts";
import { Editor, editorHere, editorWith, ours, TALK, unstable } from "../../support/acp.ts";
import { assistant, user } from "../../support/drafts.ts";
import { type Json, serveHere, stopTimers, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;

/** An editor where the talk is stored. */
const talkOn = (store = "jsonl", name = "") => editorWith({ entries: TALK, store, name, args: ["--store", store] });

/** The texts of the messages in some updates. */
function texts(updates: Json[]): string[] {
  return updates.flatMap(({ sessionUpdate, content }) =>
    /_message_chunk$/.test(sessionUpdate) ? [`${sessionUpdate[0]}: ${content.text}`] : [],
  );
}

test("the first message tells that the host is an editor", async () => {
  const editor = await new Editor(serveHere()).begin();
  expect(editor.agent).toMatchObject({ protocolVersion: 1, agentInfo: { name: "pi-session-server" } });
  expect((await editor.result("session/list")).sessions).toEqual([]);
});

test("an initialize of our own is none of an editor, and one of another version is told ours", async () => {
  const own = await serveHere().result("initialize", { protocolVersion: 1, clientInfo: { name: "x" } });
  expect(own.capabilities.dialects).toEqual(["jsonrpc", "pi", "acp", ...(modules.recall ? ["mcp"] : [])]);
  const other = await serveHere().result("initialize", { protocolVersion: 2, clientCapabilities: {} });
  expect(other.protocolVersion).toBe(1);
});

test("what is advertised is there, and nothing else is", async () => {
  const editor = await editorHere();
  const { loadSession, sessionCapabilities } = editor.agent.agentCapabilities;
  expect(loadSession).toBe(true);
  const always = ["new", "load", "prompt", "cancel"].map((name) => `session/${name}`);
  const offered = new Set(["initialize", "authenticate", ...always]);
  for (const name of ["list", "delete", "resume", "close", "fork", "archive", "status"])
    if (name in sessionCapabilities) offered.add(`session/${name}`);
  if ("archive" in sessionCapabilities) offered.add("session/unarchive");
  if ("title" in sessionCapabilities) offered.add("session/set_title");
  const methods = Object.values(unstable.schema.$defs).flatMap((def) =>
    def["x-side"] === "agent" && def["x-method"] !== undefined ? [def["x-method"]] : [],
  );
  for (const method of new Set(methods)) {
    const { error } = await editor.server.request(method, {});
    expect([method, error?.code === -32601], JSON.stringify(error)).toEqual([method, !offered.has(method)]);
  }
  for (const method of ["_nobody/has", "session/nothing"]) expect((await editor.failure(method)).code).toBe(-32601);
});

acrossTiers(describe, STORES)("on %s", (store) => {
  test("what is listed is loaded, to the end, before the reply; a prefix that the client holds is not shown again", async () => {
    const { place, id, editor } = await talkOn(store, "Colours");
    const { sessions } = await editor.result("session/list", { cwd: place.cwd });
    expect(sessions).toMatchObject([{ sessionId: id, cwd: place.cwd, title: "Colours" }]);
    const { updates, result } = await editor.load(id);
    expect(texts(updates)).toEqual(["u: Name a colour.", "a: Blue.", "u: Another.", "a: Green."]);
    expect(updates.findLast(({ title }) => title !== undefined)?.title).toBe("Colours");
    expect(ours(result)).toMatchObject({ after: null, readOnly: false });
    const messageIds = updates.flatMap(({ messageId }) => messageId ?? []);
    expect(messageIds.at(-1)).toBe(ours(result).leafId);
    const held = updates.find(({ content }) => content?.text === "Blue.")?.messageId;
    const since = (entryId: string): object => ({ _meta: { "pi-session-server": { since: entryId } } });
    const rest = await editor.load(id, place.cwd, since(held));
    expect(texts(rest.updates)).toEqual(["u: Another.", "a: Green."]);
    expect(ours(rest.updates[0])).toMatchObject({ after: held });
    expect(ours(rest.result)).toMatchObject({ after: held, entries: 2 });
    const unknown = await editor.load(id, place.cwd, since("00000000"));
    expect(texts(unknown.updates)).toHaveLength(4);
    expect(ours(unknown.updates[0])).toMatchObject({ after: null });
  });

  test("resume shows nothing, and then what comes", async () => {
    stopTimers();
    const { place, id, editor } = await talkOn(store);
    await editor.result("session/resume", { sessionId: id, cwd: place.cwd });
    expect(editor.take(id)).toEqual([]);
    const other = serveHere(["--store", store], { place });
    const { sessionPath } = (await other.result("list_sessions")).sessions[0];
    await other.result("switch_session", { sessionPath });
    await other.result("append", { entries: [user("From elsewhere.")] });
    await editor.heard("From elsewhere.");
    await other.result("append", { entries: [assistant("Heard.")] });
    await editor.heard("Heard.");
    expect(texts(editor.take(id))).toEqual(["u: From elsewhere.", "a: Heard."]);
    await other.finish();
  });

  test("forks end where the client says, in our words and in those of others", async () => {
    const { place, id, editor } = await talkOn(store);
    const { updates } = await editor.load(id);
    const blue = updates.find(({ content }) => content?.text === "Blue.")?.messageId;
    const another = updates.find(({ content }) => content?.text === "Another.")?.messageId;
    const ends: [object | undefined, number][] = [
      [undefined, 4],
      [{ "pi-session-server": { entryId: blue } }, 2],
      [{ "pi-session-server": { entryId: another, position: "before" } }, 2],
      [{ jetbrains: { air: { fork: { version: 1, messageId: another } } } }, 3],
    ];
    for (const [_meta, count] of ends) {
      const { sessionId } = await editor.result("session/fork", { sessionId: id, cwd: place.cwd, _meta });
      expect(sessionId).not.toBe(id);
      expect(texts((await editor.load(sessionId)).updates)).toHaveLength(count);
    }
    // The session that was forked is as it was, and all of them are open side by side.
    expect(texts((await editor.load(id)).updates)).toHaveLength(4);
    expect((await editor.result("session/list")).sessions).toHaveLength(5);
    const _meta = { "pi-session-server": { entryId: "00000000" } };
    expect((await editor.failure("session/fork", { sessionId: id, cwd: place.cwd, _meta })).code).toBe(-32002);
  });

  test("a branch is shown from where it parts", async () => {
    const { id, editor } = await talkOn(store);
    const { updates } = await editor.load(id);
    const [first, blue] = updates.flatMap(({ messageId }) => messageId ?? []);
    const moved = await editor.result("_pi-session-server/branch", { sessionId: id, entryId: first });
    expect(moved).toMatchObject({ leafId: first, after: first });
    expect(texts(editor.take(id))).toEqual([]);
    const back = await editor.result("_pi-session-server/branch", { sessionId: id, entryId: blue });
    expect(back).toMatchObject({ leafId: blue, after: first });
    expect(texts(editor.take(id))).toEqual(["a: Blue."]);
    const { nodes } = await editor.result("_pi-session-server/tree", { sessionId: id });
    expect(nodes.filter(({ type }: Json) => type === "message")).toHaveLength(4);
    const { entries } = await editor.result("_pi-session-server/entries", { sessionId: id, types: ["message"] });
    expect(entries.map(({ message }: Json) => message.role)).toEqual(["user", "assistant", "user", "assistant"]);
  });

  test("titles, archives and deletions", async () => {
    const { place, id, editor } = await talkOn(store);
    const listed = async (more: object = {}): Promise<Json[]> => (await editor.result("session/list", more)).sessions;
    expect(await editor.result("session/status", { sessionId: id })).toEqual({ status: "saved" });
    expect(await editor.result("session/set_title", { sessionId: id, title: " Named\nonce " })).toEqual({
      title: "Named once",
    });
    expect((await editor.failure("session/set_title", { sessionId: id, title: " \n" })).code).toBe(-32602);
    await editor.load(id);
    expect(await editor.result("session/status", { sessionId: id })).toEqual({ status: "open" });
    await editor.result("session/set_title", { sessionId: id, title: "Named twice" });
    expect(await listed()).toMatchObject([{ sessionId: id, title: "Named twice" }]);

    await editor.result("session/archive", { sessionId: id });
    expect(await listed()).toEqual([]);
    expect(await listed({ archived: "only" })).toMatchObject([{ sessionId: id, archived: true }]);
    expect(await listed({ archived: "include" })).toMatchObject([{ sessionId: id, archived: true }]);
    await editor.result("session/unarchive", { sessionId: id });
    expect(await listed()).toMatchObject([{ sessionId: id }]);

    await editor.load(id);
    await editor.result("session/delete", { sessionId: id });
    expect(await listed()).toEqual([]);
    await editor.result("session/delete", { sessionId: id });
    expect((await editor.failure("session/load", { sessionId: id, cwd: place.cwd, mcpServers: [] })).code).toBe(-32002);
  });
});

test("a list comes page by page, and each session once", async () => {
  const place = temporaryPlace();
  const server = serveHere([], { place });
  for (const cwd of [place.cwd, place.home]) {
    await server.result("new_session", { cwd });
    await server.result("append", { entries: [user("session 0")] });
    const { sessionId, sessionFile } = await server.result("get_state");
    const text = readFileSync(sessionFile, "utf8");
    for (let n = 1; n < (cwd === place.home ? 23 : 207); n++) {
      // Ids are counted, and these stay clear of them.
      const id = `${sessionId.slice(0, -5)}${cwd === place.home ? "fb" : "fa"}${String(n).padStart(3, "0")}`;
      writeFileSync(sessionFile.replace(sessionId, id), text.replace(sessionId, id));
    }
  }
  await server.finish();
  const editor = await editorHere([], { place });
  const first = await editor.result("session/list");
  const archived = first.sessions.slice(0, 3).map(({ sessionId }: Json) => sessionId);
  for (const sessionId of archived) await editor.result("session/archive", { sessionId });
  const all: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await editor.result("session/list", { archived: "include", cursor });
    all.push(...page.sessions.map(({ sessionId }: Json) => sessionId));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  expect(all).toHaveLength(230);
  expect(new Set(all).size).toBe(230);
  const inHome = await editor.result("session/list", { cwd: place.home });
  expect(inHome.sessions.every(({ cwd }: Json) => cwd === place.home)).toBe(true);
  for (const wrong of [{ cursor: "nonsense" }, { cwd: "relative" }, { archived: "maybe" }])
    expect((await editor.failure("session/list", wrong)).code).toBe(-32602);
});

test("new sessions stand side by side, and are on disk only when something is said", async () => {
  const place = temporaryPlace();
  const editor = await editorHere([], { place });
  const ids: string[] = [];
  for (let n = 0; n < 3; n++) {
    const mcpServers = n === 0 ? [{ name: "x", command: "/bin/x", args: [], env: [] }] : [];
    const made = await editor.result("session/new", { cwd: place.cwd, mcpServers });
    expect(ours(made)?.ignored).toEqual(n === 0 ? ["mcpServers"] : undefined);
    ids.push(made.sessionId);
  }
  for (const sessionId of ids) {
    expect(await editor.result("session/status", { sessionId })).toEqual({ status: "open" });
    await editor.result("session/set_title", { sessionId, title: `title of ${sessionId}` });
    const { updates } = await editor.load(sessionId);
    expect(updates.map(({ title }) => title)).toContain(`title of ${sessionId}`);
  }
  expect((await editor.result("session/list")).sessions).toEqual([]);
  await editor.result("session/delete", { sessionId: ids[0] });
  expect((await editor.failure("session/status", { sessionId: ids[0] })).code).toBe(-32002);
  await editor.result("session/close", { sessionId: ids[1] });
  expect((await editor.failure("session/close", { sessionId: ids[1] })).code).toBe(-32002);
  await editor.server.finish();
  const root = join(place.home, ".pi/agent/sessions");
  const left = existsSync(root) ? readdirSync(root, { recursive: true, encoding: "utf8" }) : [];
  expect(left.filter((name) => name.endsWith("jsonl"))).toEqual([]);
});

test("a prompt is refused with a sentence for the person, and nothing is stored", async () => {
  const { place, id, editor } = await talkOn();
  const prompt = [{ type: "text", text: "Name a third." }];
  expect((await editor.failure("session/prompt", { sessionId: id, prompt })).code).toBe(-32002);
  const loaded = editor.ask("session/load", { sessionId: id, cwd: place.cwd, mcpServers: [] });
  // Sent before the reply to what opens it.
  const refused = await editor.failure("session/prompt", { sessionId: id, prompt });
  expect(refused.message).toMatch(/runs no model: your message was neither sent nor stored.*resume/);
  // Clients show data behind the sentence.
  expect(refused).not.toHaveProperty("data");
  await editor.reply(loaded);
  expect(texts((await editor.load(id)).updates)).toHaveLength(4);
  const fresh = await editor.result("session/new", { cwd: place.cwd, mcpServers: [] });
  expect((await editor.failure("session/prompt", { sessionId: fresh.sessionId, prompt })).message).not.toMatch(
    /resume/,
  );
});
