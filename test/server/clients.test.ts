/** Transcripts as the real clients of Pi's RPC mode send them (Pi reference, 9). */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { assistant, SPOKEN, user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { put } from "../support/lifecycle.ts";
import { type Json, type Place, serveHere, spawnServer, temporaryPlace, type Wire } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

const ID = "01991f6e-1f1d-7c3e-b0a4-0242ac120002";

/** A session of four messages under the place's home. */
function storedSession(place: Place): string {
  const ids = ["a1b2c3d4", "b2c3d4e5", "c3d4e5f6", "d4e5f6a7"];
  const entries = ["Hello", "Hi there.", "Refactor auth.", "Done."].map((text, n) =>
    (n % 2 === 0 ? user : assistant)(text, { id: ids[n], parentId: ids[n - 1] ?? null }),
  );
  return put(join(place.home, "old.jsonl"), sessionText({ id: ID, cwd: place.cwd }, entries));
}

/** Sends commands in one write and takes as many replies: each answers its own, in order, and succeeds. */
async function succeed(server: Wire, ...commands: Json[]): Promise<Json[]> {
  server.send(...commands);
  const replies = await server.take(commands.length);
  const answers = replies.map(({ id, type, command, success }) => ({ id, type, command, success }));
  expect(answers).toEqual(commands.map(({ id, type }) => ({ id, type: "response", command: type, success: true })));
  return replies.map(({ data }) => data);
}

/** Ends the input: nothing more is said, neither to the client nor to a person. */
async function endInSilence(server: ReturnType<typeof serveHere | typeof spawnServer>): Promise<void> {
  const { messages, status } = await server.finish();
  const stderr = "said" in server ? server.said.join("\n") : server.stderr;
  expect([messages, server.events, status, stderr]).toEqual([[], [], 0, ""]);
}

/** Every member that Pi's types demand of a state, with its type. */
const STATE = {
  thinkingLevel: expect.any(String),
  isStreaming: false,
  isCompacting: false,
  steeringMode: expect.stringMatching(/^(all|one-at-a-time)$/),
  followUpMode: expect.stringMatching(/^(all|one-at-a-time)$/),
  sessionId: expect.stringMatching(/./),
  autoCompactionEnabled: expect.any(Boolean),
  messageCount: expect.any(Number),
  pendingMessageCount: 0,
};

/** Commands without params, with ids that begin so. */
const asked = (prefix: string, ...types: string[]): Json[] => types.map((type, n) => ({ id: `${prefix}${n}`, type }));

describe("the client", () => {
  test("of Emacs switches, then asks for state and messages at once, and forks", SYSTEM, async () => {
    const place = temporaryPlace();
    const sessionPath = storedSession(place);
    const server = spawnServer(["--mode", "rpc", "--approve"], "lines", place);
    const [, { commands }] = await succeed(server, ...asked("req_", "get_state", "get_commands"));
    expect(commands).toEqual([]);
    const [switched] = await succeed(server, { id: "req_3", type: "switch_session", sessionPath });
    expect(switched.cancelled).toBe(false);
    const reads = await succeed(server, ...asked("reads_", "get_state", "get_messages", "get_fork_messages"));
    const [state, { messages }, { messages: forkable }] = reads;
    expect(state).toMatchObject({ ...STATE, sessionId: ID, sessionFile: sessionPath, messageCount: 4 });
    expect(messages.map(({ role }: Json) => role)).toEqual(["user", "assistant", "user", "assistant"]);
    expect(forkable).toEqual([
      { entryId: "a1b2c3d4", text: "Hello" },
      { entryId: "c3d4e5f6", text: "Refactor auth." },
    ]);
    const fork = { id: "req_7", type: "fork", entryId: "c3d4e5f6" };
    const [forked, after, { messages: kept }] = await succeed(
      server,
      fork,
      ...asked("in_", "get_state", "get_messages"),
    );
    expect(forked).toMatchObject({ text: "Refactor auth.", cancelled: false });
    expect(after.sessionId).not.toBe(ID);
    expect(kept).toEqual(messages.slice(0, 2));
    server.send({ type: "extension_ui_response", id: "ui_1", cancelled: true });
    await endInSilence(server);
  });

  test("in Rust holds every reply to a closed schema", async () => {
    const server = serveHere(["--mode", "rpc"]);
    const [state, ...none] = await succeed(
      server,
      ...asked("state", "get_state"),
      { id: "2", type: "set_session_name", name: "n" },
      { id: "3", type: "set_thinking_level", level: "high" },
      { id: "4", type: "set_steering_mode", mode: "all" },
      { id: "5", type: "set_follow_up_mode", mode: "all" },
      { id: "6", type: "set_auto_compaction", enabled: true },
      { id: "7", type: "set_auto_retry", enabled: true },
      ...asked("none", "abort", "abort_bash", "abort_retry"),
    );
    expect(state).toMatchObject(STATE);
    expect(none).toEqual(none.map(() => undefined));
    const set = { thinkingLevel: "high", steeringMode: "all", followUpMode: "all", autoCompactionEnabled: true };
    expect(await succeed(server, ...asked("after", "get_state"))).toMatchObject([{ ...set, sessionName: "n" }]);
    await endInSilence(server);
  });

  test("of VS Code keeps nothing, and is told at once that there is no agent", async () => {
    const place = temporaryPlace();
    const server = serveHere(["--mode", "rpc", "--no-session"], { place });
    server.send({ id: "prompt-1", type: "prompt", message: "Hello" });
    const [notice, reply] = await server.take(2);
    expect([notice, reply]).toEqual(refused("prompt-1", "prompt"));
    expect(notice.message).toBe(reply.error);
    await endInSilence(server);
    expect(existsSync(join(place.home, ".pi"))).toBe(false);
  });
});

/** The two messages of a refused prompt: Pi's request to show the person a notice, and the reply, which ends the turn. */
function refused(id: string | undefined, command: string): Json[] {
  const sentence = expect.stringMatching(
    /keeps the history and runs no model: .* neither sent nor stored\. To go on, .*\.$/,
  );
  const notice = { id: expect.stringMatching(/./), method: "notify", message: sentence, notifyType: "warning" };
  const failure = { success: false, error: sentence, code: "unsupported_command", data: { command } };
  return [
    { type: "extension_ui_request", ...notice },
    { ...(id === undefined ? {} : { id }), type: "response", command, ...failure },
  ];
}

describe("a person at a client without an agent", () => {
  test("is told before each reply, in its order, that and how the session goes on elsewhere", async () => {
    const place = temporaryPlace();
    const sessionPath = storedSession(place);
    const bytes = readFileSync(sessionPath);
    const server = serveHere(["--mode", "rpc", "--session", sessionPath], { place });
    server.send(
      { id: "1", type: "get_state" },
      { id: "2", type: "prompt", message: "Hello", images: [] },
      { id: "3", type: "steer", message: "Not so" },
      { type: "follow_up", message: "And then" },
      { id: "5", type: "abort" },
      { id: "6", type: "get_state" },
    );
    const messages = await server.take(9);
    const refusals = [...refused("2", "prompt"), ...refused("3", "steer"), ...refused(undefined, "follow_up")];
    expect(messages.slice(1, 7)).toEqual(refusals);
    expect(messages.slice(7)).toMatchObject([
      { id: "5", success: true },
      { id: "6", data: messages[0].data },
    ]);
    const notices = messages.filter(({ method }) => method === "notify");
    expect(new Set(notices.map(({ id }) => id)).size).toBe(3);
    for (const { message } of notices) expect(message).toContain(`pi-session-server resume ${ID}.`);
    // pi-acp takes an error with 401 or 403 for a missing key.
    for (const { error } of messages) expect(error ?? "").not.toMatch(/\d/);
    // pi-acp answers what needs no answer.
    for (const { id } of notices) server.send({ type: "extension_ui_response", id, cancelled: true });
    await succeed(server, { id: "7", type: "get_messages" });
    await endInSilence(server);
    expect(readFileSync(sessionPath)).toEqual(bytes);
  });

  test("is told where there is no session to resume, or none that can be opened, too", async () => {
    for (const args of [[], ["--session", "nobody"]]) {
      const server = serveHere(["--mode", "rpc", ...args]);
      server.send({ id: "1", type: "prompt", message: "Hello" });
      const messages = await server.take(2);
      expect(messages).toEqual(refused("1", "prompt"));
      expect(messages[0].message).not.toContain("resume");
    }
  });

  test.each([
    ["pi", ["--dialect", "pi"]],
    ["pi", []],
    ["jsonrpc", []],
    ["jsonrpc", ["--mode", "rpc", "--dialect", "jsonrpc"]],
  ])("is nobody to a host that does not come as Pi's clients do: %s %j", async (dialect, options) => {
    const server = serveHere([...options, "--no-session", "--events", "none"]);
    const sentence = expect.stringContaining("append");
    const reply =
      dialect === "pi" ? await server.command("prompt", { message: "Hello" }) : await server.request("prompt");
    if (dialect === "pi") expect(reply).toMatchObject({ success: false, code: "unsupported_command", error: sentence });
    else expect(reply.error).toMatchObject({ message: sentence, data: { name: "unsupported_command" } });
    await endInSilence(server);
  });
});

describe("the client for ACP begins a session", () => {
  /** Sends its first requests: without a model, or with a level that is not in the list, it gives up. */
  async function begin(options: string[], place = temporaryPlace()): Promise<string[]> {
    const server = serveHere(["--mode", "rpc", "--no-themes", ...options], { place });
    const types = ["get_state", "get_available_models", "get_available_thinking_levels"];
    const [state, { models }, { levels }] = await succeed(server, ...asked("", ...types));
    expect(models[0]).toEqual(state.model);
    // Clients end at a window of 0.
    expect(state.model.contextWindow).toBeGreaterThan(0);
    expect(levels).toContain(state.thinkingLevel);
    await endInSilence(server);
    return models.map(({ provider, id }: Json) => `${provider}/${id}`);
  }

  const NAMED = ["--provider", "openai", "--model", "gpt-5"];
  const first = user("Hello", { id: "a1b2c3d4", parentId: null });
  const at = { id: "b2c3d4e5", parentId: "a1b2c3d4", timestamp: "2026-01-24T16:22:26.831Z" };
  const stamped = { type: "thinking_level_change", ...at, thinkingLevel: "high" };
  const answer = assistant("Hi there.", { id: "c3d4e5f6", parentId: "b2c3d4e5" });

  test.each<[what: string, options: string[], entries: Json[], models: string[]]>([
    ["where nobody names a model", [], [], ["unknown/unknown"]],
    ["with those of the command line", [...NAMED, "--thinking", "high"], [], ["openai/gpt-5"]],
    ["with those in a session that names none", [...NAMED, "--thinking", "high"], [first], ["openai/gpt-5"]],
    ["with those of the session first", NAMED, [first, stamped, answer], [`anthropic/${SPOKEN.model}`, "openai/gpt-5"]],
    ["with a model that nobody knows", ["--provider", "own", "--model", "nobody-knows"], [], ["own/nobody-knows"]],
  ])("%s", async (_what, options, entries, expected) => {
    const place = temporaryPlace();
    const old = join(place.home, "old.jsonl");
    if (entries.length === 0) return expect(await begin(options, place)).toEqual(expected);
    writeFileSync(old, sessionText({ id: ID, cwd: place.cwd }, entries));
    const bytes = readFileSync(old);
    expect(await begin([...options, "--session", old], place)).toEqual(expected);
    expect(readFileSync(old)).toEqual(bytes);
  });
});
