/** The program as a process: what it prints, how much it takes at once, how it ends. */

import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { parseArguments } from "../../src/cli/options.ts";
import { VERSION } from "../../src/version.ts";
import { acpLike, piLike } from "../support/agents.ts";
import { PROGRAM } from "../support/build.ts";
import { assistant, user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { LINUX, needs } from "../support/needs.ts";
import {
  frame,
  type Json,
  kinds,
  runProgram,
  serveHere,
  serveInput,
  spawnServer,
  stopTimers,
  temporaryPlace,
  type Wire,
} from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

let ids = 0;

function call(method: string, params?: object): Json {
  return { jsonrpc: "2.0", id: ++ids, method, ...(params ? { params } : {}) };
}

function append(...drafts: Json[]): Json {
  return call("append", { entries: drafts });
}

describe("one request and the end of input", () => {
  test("print session_start and one reply, as a line", SYSTEM, async () => {
    const run = await runProgram('{"jsonrpc":"2.0","id":1,"method":"get_state"}\n', ["--no-session"]);
    const lines = run.stdout.split("\n");
    expect(lines.pop()).toBe("");
    expect(kinds(lines.map((line) => JSON.parse(line)))).toEqual(["session_start", "#1"]);
    expect(JSON.parse(lines[1])).toMatchObject({ jsonrpc: "2.0", id: 1, result: { sessionFile: null, entryCount: 0 } });
    expect(run).toMatchObject({ stderr: "", status: 0 });
  });

  test("print frames for a frame", async () => {
    const request = '{"jsonrpc":"2.0","id":1,"method":"get_state"}';
    const run = await serveInput(`Content-Length: ${request.length}\r\n\r\n${request}`, ["--no-session"]);
    const [, first, second] = /^Content-Length: \d+\r\n\r\n(.*)Content-Length: \d+\r\n\r\n(.*)$/.exec(run.stdout) ?? [];
    expect(kinds([JSON.parse(first), JSON.parse(second)])).toEqual(["session_start", "#1"]);
    for (const payload of [first, second])
      expect(run.stdout).toContain(`Content-Length: ${payload.length}\r\n\r\n${payload}`);
    expect(run).toMatchObject({ stderr: "", status: 0 });
  });

  test("print Pi's messages for a command of Pi's", async () => {
    const run = await serveInput('{"id":"1","type":"get_state"}\n', ["--no-session"]);
    const [start, reply, end] = run.stdout.split("\n");
    expect(JSON.parse(start)).toMatchObject({ type: "session_start", reason: "startup", seq: 1 });
    expect(JSON.parse(reply)).toMatchObject({ id: "1", type: "response", command: "get_state", success: true });
    expect({ ...run, end }).toMatchObject({ stderr: "", status: 0, end: "" });
  });

  test("print the reply although the last line has no end", async () => {
    const run = await serveInput('{"jsonrpc":"2.0","id":1,"method":"get_last_assistant_text"}', [
      "--no-session",
      "--events",
      "none",
    ]);
    expect(run).toEqual({ stdout: '{"jsonrpc":"2.0","id":1,"result":{"text":null}}\n', stderr: "", status: 0 });
  });

  test("print nothing for nothing", SYSTEM, async () => {
    expect(await runProgram("", ["--no-session"])).toEqual({ stdout: "", stderr: "", status: 0 });
    for (const input of ["\n\n", "\ufeff"]) {
      const server = serveHere(["--no-session"]);
      server.write(input);
      expect(await server.finish()).toEqual({ messages: [], status: 0 });
    }
  });

  test.each([
    ["a header", "Content-Length: 1"],
    ["a payload", 'Content-Length: 100\r\n\r\n{"jsonrpc"'],
    ["a line", '{"jsonrpc":"2.0","id":1,"meth'],
  ])("print an error when the input ends inside %s", async (_what, input) => {
    const { stdout, stderr, status } = await serveInput(input, ["--no-session"]);
    const payload = stdout.slice(stdout.indexOf("{"));
    expect(JSON.parse(payload)).toMatchObject({ id: null, error: { code: -32700 } });
    expect({ stderr, status }).toEqual({ stderr: "", status: 0 });
  });

  test("print everything to a file too", SYSTEM, async () => {
    const place = temporaryPlace();
    const input = call("get_last_assistant_text");
    writeFileSync(join(place.cwd, "in"), `${JSON.stringify(input)}\n`.repeat(1000));
    execFileSync("sh", ["-c", `"${process.execPath}" "${PROGRAM}" --no-session --events none <in >out`], {
      cwd: place.cwd,
    });
    const expected = `{"jsonrpc":"2.0","id":${input.id},"result":{"text":null}}\n`.repeat(1000);
    expect(readFileSync(join(place.cwd, "out"), "utf8")).toBe(expected);
  });
});

describe("the command line", () => {
  for (const option of ["--version", "-v"])
    test(`answers ${option}`, option === "--version" ? SYSTEM : SWEEP, async () => {
      expect(await runProgram("", [option])).toEqual({ stdout: `${VERSION}\n`, stderr: "", status: 0 });
    });

  // Clients of Pi ask so, by the command alone that stands in Pi's place, and warn of versions that are too old for them.
  const expectVersion = async (_whose: string, args: string[], version: string): Promise<void> => {
    expect(await runProgram("", [...args, "--version"])).toEqual({ stdout: `${version}\n`, stderr: "", status: 0 });
  };

  test.each<[string, string[], string]>([["that of the agent behind", ["--agent", piLike()], "1.5.2"]])(
    "answers --version with %s",
    SYSTEM,
    expectVersion,
  );

  test.each<[string, string[], string]>([
    ["its own, where the agent cannot be asked", ["--agent", "'/no such/agent' --mode rpc"], VERSION],
    ["its own, where the agent has none", ["--agent", acpLike()], VERSION],
    ["its own, where the agent is none of Pi's", ["--agent", piLike(), "--agent-protocol", "acp"], VERSION],
  ])("answers --version with %s", SWEEP, expectVersion);

  test("answers --help with every option", SYSTEM, async () => {
    const { stdout, stderr, status } = await runProgram("", ["--help"]);
    for (const option of ["--session ", "--no-session", "--framing", "--dialect", "--mode", "--events", "--durability"])
      expect(stdout).toContain(`  ${option}`);
    expect({ stderr, status }).toEqual({ stderr: "", status: 0 });
  });

  test("that is wrong ends the program with a sentence and status 2", SYSTEM, async () => {
    const { stdout, stderr, status } = await runProgram('{"jsonrpc":"2.0","id":1,"method":"get_state"}\n', [
      "--no-such",
    ]);
    expect(stderr).toMatch(/^pi-session-server: \S.*\.\n$/);
    expect({ stdout, status }).toEqual({ stdout: "", status: 2 });
    for (const args of [["--no-such"], ["--max-message-bytes", "-1"]])
      expect(() => parseArguments(args)).toThrow(/^\S.*\.$/);
  });
});

test("the program does not wait for what its first reply does not need", () => {
  const text = readFileSync(PROGRAM, "utf8");
  expect(text).not.toMatch(/^(import|export)[^;]*from\s*"vscode-jsonrpc/m);
  expect(text).not.toMatch(/;import[^;]*from\s*"vscode-jsonrpc/);
});

/** Numbers that look random and are the same in every run. */
function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** A session as the requests so far must have left it. */
class Model {
  leaf: string | null = null;
  /** In file order. */
  readonly order: string[] = [];
  /** Messages on the path to each entry, and the text of the first. */
  private readonly messages = new Map<string | null, { count: number; first: string | undefined }>([
    [null, { count: 0, first: undefined }],
  ]);

  get atLeaf(): { count: number; first: string | undefined } {
    return this.messages.get(this.leaf) ?? { count: 0, first: undefined };
  }

  add(id: string, text?: string): void {
    const { count, first } = this.atLeaf;
    this.messages.set(id, text === undefined ? { count, first } : { count: count + 1, first: first ?? text });
    this.order.push(id);
    this.leaf = id;
  }
}

test("500 pipelined requests get one reply each, in order, and each read tells of every write before it", async () => {
  const count = 500;
  const below = generator(20260124);
  const known: string[] = [];
  const anyKnown = (): string => known[below(known.length)];
  const requests: Json[] = [];
  for (let id = 0; id < count; id++) {
    const kind = known.length === 0 ? 0 : below(20);
    let request: [method: string, params: object];
    if (kind < 8) {
      const entries = Array.from({ length: 1 + below(3) }, (_, i) => {
        const entryId = `n${id}-${i}`;
        known.push(entryId);
        return below(4) === 0
          ? { type: "custom", id: entryId, customType: "x" }
          : user(`text of ${entryId}`, { id: entryId });
      });
      request = ["append", { entries }];
    } else if (kind < 10) request = ["branch", { entryId: below(50) === 0 ? null : anyKnown() }];
    else if (kind < 12) request = ["set_label", { entryId: anyKnown(), label: below(3) === 0 ? null : `label ${id}` }];
    else if (kind < 15) request = ["get_state", {}];
    else if (kind < 17) request = ["get_messages", { limit: 1 }];
    else request = ["get_entries", { since: anyKnown(), limit: 1 + below(3) }];
    requests.push({ jsonrpc: "2.0", id, method: request[0], params: request[1] });
  }
  const server = serveHere(["--events", "none"]);
  server.send(...requests);
  const { messages: replies, status } = await server.finish();
  expect({ status, said: server.said, count: replies.length }).toEqual({ status: 0, said: [], count });

  const model = new Model();
  for (const [id, { method, params }] of requests.entries()) {
    const { id: replyId, result, error } = replies[id];
    expect({ replyId, error }).toEqual({ replyId: id, error: undefined });
    const { leaf, atLeaf, order } = model;
    let expected: unknown;
    let told: unknown = result;
    if (method === "append") {
      for (const entry of params.entries) model.add(entry.id, entry.message?.content);
      expected = { entryIds: params.entries.map((entry: Json) => entry.id), leafId: model.leaf };
    } else if (method === "branch") {
      model.leaf = params.entryId;
      expected = { cancelled: false, leafId: params.entryId, durable: true };
    } else if (method === "set_label") {
      model.add(result.entryId);
      expected = { entryId: expect.stringMatching(/^[0-9a-f]{8}/) };
    } else if (method === "get_state") {
      expected = { leafId: leaf, entryCount: order.length, messageCount: atLeaf.count };
      told = { leafId: result.leafId, entryCount: result.entryCount, messageCount: result.messageCount };
    } else if (method === "get_messages") {
      expected = { texts: atLeaf.count > 0 ? [atLeaf.first] : [], more: atLeaf.count > 1 };
      told = { texts: result.messages.map((message: Json) => message.content), more: "nextCursor" in result };
    } else {
      const from = order.indexOf(params.since) + 1;
      expected = {
        ids: order.slice(from, from + params.limit),
        leafId: leaf,
        more: order.length > from + params.limit,
      };
      told = {
        ids: result.entries.map((entry: Json) => entry.id),
        leafId: result.leafId,
        more: "nextCursor" in result,
      };
    }
    expect(told, `reply ${id} to ${method}`).toEqual(expected);
  }
});

function cpuTime(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

function residentMiB(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}

test("a reader that stalls costs no memory, and gets everything in order after it", {
  ...SYSTEM,
  ...needs(LINUX),
}, async () => {
  const place = temporaryPlace();
  const file = join(place.cwd, "session.jsonl");
  const text = "x".repeat(10_000);
  const entries = Array.from({ length: 400 }, (_, i) =>
    user(text, { id: `n${i}`, parentId: i === 0 ? null : `n${i - 1}` }),
  );
  writeFileSync(file, sessionText({ id: "s", cwd: place.cwd }, entries));
  const server = spawnServer(["--session", file, "--events", "none"], "lines", place);
  await server.result("get_state");
  const pid = server.process.pid as number;
  server.stall();
  const count = 40;
  const requests = Array.from({ length: count }, () => call("get_entries"));
  // 160 MB of replies, and more requests than a pipe holds.
  server.send(...requests, call("get_state", { _meta: { filler: "y".repeat(1 << 20) } }));
  let before = -1;
  await vi.waitFor(
    () => {
      const now = cpuTime(pid);
      const idle = now === before;
      before = now;
      expect(idle).toBe(true);
    },
    { interval: 100, timeout: 10_000 },
  );
  const resident = [residentMiB(pid)];
  server.resume();
  for (const { id } of requests) {
    const reply = await server.next();
    expect(reply.id).toBe(id);
    expect(reply.result.entries).toHaveLength(400);
    resident.push(residentMiB(pid));
  }
  expect((await server.next()).result.entryCount).toBe(400);
  expect(Math.max(...resident)).toBeLessThan(200);
  expect(await server.finish()).toEqual({ messages: [], status: 0 });
});

/** The entries of a session file. */
function entriesIn(file: string): Json[] {
  return readFileSync(file, "utf8")
    .trimEnd()
    .split("\n")
    .slice(1)
    .map((line) => JSON.parse(line));
}

describe("the end", () => {
  async function persisted(server: Wire): Promise<string> {
    await server.result("append", { entries: [user("first", { id: "first" })] });
    return (await server.result("get_state")).sessionFile;
  }

  test("of input lets everything received be answered and kept", SYSTEM, async () => {
    const server = spawnServer(["--events", "none"]);
    const file = await persisted(server);
    const texts = Array.from({ length: 500 }, (_, i) => `text ${i}`);
    server.send(...texts.map((text) => append(user(text))));
    const { messages, status } = await server.finish();
    expect(messages).toHaveLength(500);
    expect(messages.filter(({ result }) => !result)).toEqual([]);
    expect(
      entriesIn(file)
        .slice(1)
        .map(({ message }) => message.content),
    ).toEqual(texts);
    expect({ status, stderr: server.stderr }).toEqual({ status: 0, stderr: "" });
  });

  async function expectAllKept(signal: NodeJS.Signals): Promise<void> {
    const server = spawnServer(["--events", "none"]);
    const file = await persisted(server);
    // One write arrives as one: with the first reply, the server has them all.
    server.send(append(user("a", { id: "a" })), append(user("b", { id: "b" })), call("branch", { entryId: "first" }));
    const first = await server.next();
    server.process.kill(signal);
    const messages = [first, ...(await server.rest())];
    expect(messages.map(({ result }) => result.leafId)).toEqual(["a", "b", "first"]);
    expect(
      entriesIn(file)
        .slice(0, 3)
        .map(({ id }) => id),
    ).toEqual(["first", "a", "b"]);
    expect({ status: await server.exit, stderr: server.stderr }).toEqual({ status: 0, stderr: "" });
    // The input was still open.
    expect(server.input.writableEnded).toBe(false);
  }

  test.each(["SIGTERM"] as const)("by %s does so too", SYSTEM, expectAllKept);
  test.each(["SIGHUP", "SIGINT"] as const)("by %s does so too", SWEEP, expectAllKept);

  test("by a signal comes although nobody reads", SYSTEM, async () => {
    const server = spawnServer(["--no-session", "--events", "none"]);
    await server.result("append", { entries: [user("x".repeat(1 << 20))] });
    server.stall();
    server.send(...Array.from({ length: 20 }, () => call("get_entries")));
    await vi.waitFor(() => expect(server.output.readableLength).toBeGreaterThan(0));
    server.process.kill("SIGTERM");
    expect(await new Promise((resolve) => server.process.once("exit", resolve))).toBe(0);
  });

  test("by a second signal comes at once", SYSTEM, async () => {
    const server = spawnServer(["--no-session", "--events", "none"]);
    await server.result("append", { entries: [user("x".repeat(1 << 20))] });
    server.stall();
    server.send(...Array.from({ length: 20 }, () => call("get_entries")));
    await vi.waitFor(() => expect(server.output.readableLength).toBeGreaterThan(0));
    server.process.kill("SIGTERM");
    server.process.kill("SIGHUP");
    expect(await new Promise((resolve) => server.process.once("exit", resolve))).toBe(1);
  });

  test("of the reader keeps what was received, and the status tells", SYSTEM, async () => {
    const server = spawnServer(["--events", "none"]);
    const file = await persisted(server);
    server.process.stdout.destroy();
    server.send(append(user("a", { id: "a" })), append(assistant("b", { id: "b" })));
    expect(await server.exit).toBe(1);
    expect(entriesIn(file).map(({ id }) => id)).toEqual(["first", "a", "b"]);
    expect(server.stderr).toBe("");
  });

  test("of a reader who is far behind comes too", SWEEP, async () => {
    const server = spawnServer(["--events", "none"]);
    const file = await persisted(server);
    await server.result("append", { entries: [user("x".repeat(1 << 20), { id: "big" })] });
    server.stall();
    server.send(...Array.from({ length: 20 }, () => call("get_entries")), append(user("last", { id: "last" })));
    await vi.waitFor(() => expect(server.output.readableLength).toBeGreaterThan(0));
    server.process.stdout.destroy();
    expect(await server.exit).toBe(1);
    expect(entriesIn(file).map(({ id }) => id)).toEqual(["first", "big", "last"]);
  });

  test("by shutdown: its reply, then what is left, and exit", async () => {
    const server = serveHere([]);
    const file = await persisted(server);
    server.send(
      append(user("a", { id: "a" })),
      call("shutdown"),
      append(user("late")),
      call("get_state"),
      call("shutdown"),
    );
    const [appended, event, shutdown, quit, ...refused] = await server.take(7);
    expect(appended.result.leafId).toBe("a");
    expect(event.method).toBe("session_append");
    expect(shutdown.result).toBeNull();
    expect(quit).toMatchObject({ method: "session_shutdown", params: { reason: "quit", leafId: "a" } });
    for (const reply of refused)
      expect(reply.error).toMatchObject({ code: -32802, data: { name: "shutting_down", retryable: true } });
    server.send({ jsonrpc: "2.0", method: "exit" });
    expect(await server.rest()).toEqual([]);
    expect({ status: await server.done, said: server.said }).toEqual({ status: 0, said: [] });
    expect(entriesIn(file).map(({ id }) => id)).toEqual(["first", "a"]);
  });

  test("by exit alone", async () => {
    const server = serveHere(["--events", "none"]);
    const file = await persisted(server);
    server.send(append(user("a", { id: "a" })), { jsonrpc: "2.0", method: "exit" });
    expect((await server.rest()).map(({ result }) => result.leafId)).toEqual(["a"]);
    expect(await server.done).toBe(0);
    expect(entriesIn(file).map(({ id }) => id)).toEqual(["first", "a"]);
  });

  test("by exit comes at once, for the host has said all it has to say", async () => {
    stopTimers();
    const server = serveHere(["--no-session", "--events", "none"]);
    await server.result("shutdown");
    server.send({ jsonrpc: "2.0", method: "exit" });
    expect(await server.done).toBe(0);
  });

  test("by shutdown comes a second later when the host says nothing more", async () => {
    stopTimers();
    const server = serveHere(["--no-session", "--events", "none"]);
    let ended = false;
    void server.done.then(() => {
      ended = true;
    });
    await server.result("shutdown");
    await vi.advanceTimersByTimeAsync(999);
    expect(ended).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(await server.done).toBe(0);
  });
});

describe("a session that cannot be opened at the start", () => {
  test.each<[string, string[], (cwd: string) => void, string]>([
    ["an id that no session has", ["--session", "no-such-id"], () => {}, "session_not_found"],
    ["an id that is none", ["--session", "no such id"], () => {}, "invalid_id"],
    ["a folder", ["--session", "folder"], (cwd) => mkdirSync(join(cwd, "folder")), "not_a_session"],
    ["a FIFO", ["--session", "./fifo"], (cwd) => execFileSync("mkfifo", [join(cwd, "fifo")]), "not_a_session"],
    ["a device", ["--session", "/dev/zero"], () => {}, "not_a_session"],
    [
      "a file of another kind",
      ["--session", "a.txt"],
      (cwd) => writeFileSync(join(cwd, "a.txt"), "hello\n"),
      "not_a_session",
    ],
    ["an empty file", ["--session", "a.jsonl"], (cwd) => writeFileSync(join(cwd, "a.jsonl"), ""), "not_a_session"],
    ["a fork of nothing", ["--fork", "no-such-id"], () => {}, "session_not_found"],
    ["a fork of a folder", ["--fork", "folder"], (cwd) => mkdirSync(join(cwd, "folder")), "not_a_session"],
  ])("leaves the server without one: %s", async (_what, args, prepare, failure) => {
    const place = temporaryPlace();
    prepare(place.cwd);
    const other = join(place.cwd, "other.jsonl");
    writeFileSync(other, sessionText({ id: "other", cwd: place.cwd }, [user("x", { id: "x", parentId: null })]));
    const server = serveHere(args, { place });
    for (const method of ["get_state", "get_messages", "clone"])
      expect((await server.failure(method)).data.name, method).toBe(failure);
    expect((await server.failure("append", { entries: [user("x")] })).data.name).toBe(failure);
    expect((await server.failure("switch_session", { sessionPath: "nowhere.jsonl" })).data.name).toBe(
      "session_not_found",
    );
    expect((await server.result("initialize")).state).toBeNull();
    expect((await server.result("new_session")).cancelled).toBe(false);
    expect((await server.result("switch_session", { sessionPath: other })).leafId).toBe("x");
    const started = server.events.filter(({ method }) => method === "session_start");
    expect(started.map(({ params }) => params.reason)).toEqual(["new"]);
    const { messages, status } = await server.finish();
    expect(kinds(messages)).toEqual(["session_shutdown", "session_start"]);
    expect(status).toBe(0);
    expect(server.said).toEqual([expect.stringMatching(/^[^\n]+\.$/)]);
  });
});

test("two of them share a folder of sessions", SYSTEM, async () => {
  const place = temporaryPlace();
  const first = spawnServer(["--events", "none"], "lines", place);
  await first.result("append", { entries: [user("mine", { id: "mine" })] });
  const { sessionFile, sessionId } = await first.result("get_state");
  const second = serveHere(["--events", "none"], { framing: "headers", place });
  expect((await second.result("switch_session", { sessionId })).sessionFile).toBe(sessionFile);
  expect((await second.result("get_entries")).entries).toMatchObject([{ id: "mine" }]);
  const third = serveHere(["--continue", "--events", "none"], { place });
  expect((await third.result("get_state")).sessionId).toBe(sessionId);
  for (const server of [first, second, third]) expect((await server.finish()).status).toBe(0);
});

test("requests cut anywhere are the same requests", async () => {
  const server = serveHere(["--no-session", "--events", "none"], { framing: "headers" });
  const bytes = Buffer.from(frame("headers", append(user("é 😀")), call("get_messages"), call("get_state")));
  for (let at = 0; at < bytes.length; at += 7) {
    server.write(bytes.subarray(at, at + 7));
    await new Promise((resolve) => setImmediate(resolve));
  }
  const [, messages, state] = await server.take(3);
  expect(messages.result.messages).toEqual([{ role: "user", content: "é 😀" }]);
  expect(state.result.entryCount).toBe(1);
});
