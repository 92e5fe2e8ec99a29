/** The program as a process: its output, its reading at once, its end. */

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { VERSION } from "../../src/version.ts";
import { acpLike, piLike } from "../support/agents.ts";
import { PROGRAM } from "../support/build.ts";
import { assistant, user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { LINUX, needs } from "../support/needs.ts";
import { range } from "../support/random.ts";
import {
  type Json,
  runProgram,
  serveHere,
  serveInput,
  spawnServer,
  stopTimers,
  temporaryPlace,
  type Wire,
} from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

const QUIET = ["--no-session", "--events", "none"];
let ids = 0;

function call(method: string, params?: object): Json {
  return { jsonrpc: "2.0", id: ++ids, method, ...(params ? { params } : {}) };
}

const append = (...drafts: Json[]): Json => call("append", { entries: drafts });

describe("one request and the end of input", () => {
  const STATE = '"jsonrpc":"2.0","id":1,"method":"get_state"}';

  const ANSWERED = '{"jsonrpc":"2.0","id":1,"result":.*}';

  test.each([
    ["a line", `{${STATE}\n`, `{"jsonrpc":"2.0","method":"session_start",.*}\n${ANSWERED}\n`],
    ["a line without its end", `{${STATE}`, `.*\n${ANSWERED}\n`],
    [
      "a frame",
      `Content-Length: ${STATE.length + 1}\r\n\r\n{${STATE}`,
      `Content-Length: \\d+\r\n\r\n{.*"session_start".*}Content-Length: \\d+\r\n\r\n${ANSWERED}`,
    ],
    [
      "a command of Pi's",
      '{"id":"1","type":"get_state"}\n',
      '{"type":"session_start",.*}\n{"id":"1","type":"response","command":"get_state","success":true.*}\n',
    ],
    ["blank lines", "\n\n", ""],
    ["half of a payload", 'Content-Length: 100\r\n\r\n{"jsonrpc"', '[^]*{.*"id":null,.*-32700[^]*'],
    ["half of a line", '{"jsonrpc":"2.0","id":1,"meth', '[^]*{.*"id":null,.*-32700[^]*'],
  ])("print what answers %s", async (_what, input, printed) => {
    const run = await serveInput(input, ["--no-session"]);
    expect(run).toEqual({ stdout: expect.stringMatching(new RegExp(`^${printed}$`)), stderr: "", status: 0 });
  });

  test("print the same from the program, and nothing for nothing; everything to a file too", SYSTEM, async () => {
    const run = await runProgram(`{${STATE}\n`, QUIET);
    expect(run).toEqual({ stdout: expect.stringMatching(/^\{.*"sessionFile":null.*\}\n$/), stderr: "", status: 0 });
    expect(await runProgram("", ["--no-session"])).toEqual({ stdout: "", stderr: "", status: 0 });
    const { cwd } = temporaryPlace();
    const input = call("get_last_assistant_text");
    writeFileSync(join(cwd, "in"), `${JSON.stringify(input)}\n`.repeat(1000));
    execFileSync("sh", ["-c", `"${process.execPath}" "${PROGRAM}" --no-session --events none <in >out`], { cwd });
    const expected = `{"jsonrpc":"2.0","id":${input.id},"result":{"text":null}}\n`.repeat(1000);
    expect(readFileSync(join(cwd, "out"), "utf8")).toBe(expected);
  });
});

describe("the command line", () => {
  // Clients of Pi ask so, by the command alone that stands in Pi's place, and warn of versions that are too old for them.
  const VERSIONS: readonly [whose: string, version: string, args: string[]][] = [
    ["its own", VERSION, []],
    ["that of the agent behind", "1.5.2", ["--agent", piLike()]],
    ["its own, by a letter", VERSION, ["-v"]],
    ["its own, where the agent cannot be asked", VERSION, ["--agent", "'/no such/agent' --mode rpc"]],
    ["its own, where the agent has none", VERSION, ["--agent", acpLike()]],
    ["its own, where the agent is none of Pi's", VERSION, ["--agent", piLike(), "--agent-protocol", "acp"]],
  ];
  for (const [n, [whose, version, args]] of VERSIONS.entries())
    test(`answers --version with ${whose}`, n < 2 ? SYSTEM : SWEEP, async () => {
      const run = await runProgram("", args[0] === "-v" ? args : [...args, "--version"]);
      expect(run).toEqual({ stdout: `${version}\n`, stderr: "", status: 0 });
    });

  test("that is wrong ends the program with a sentence and status 2; --help has the options", SYSTEM, async () => {
    const wrong = await runProgram(JSON.stringify(call("get_state")), ["--no-such"]);
    const stderr = expect.stringMatching(/^pi-session-server: \S.*\.\n$/);
    expect(wrong).toEqual({ stdout: "", stderr, status: 2 });
    const help = await runProgram("", ["--help"]);
    expect(help).toEqual({ stdout: expect.stringContaining("  --session "), stderr: "", status: 0 });
  });
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
  const parentOf = (i: number) => (i === 0 ? null : `n${i - 1}`);
  const entries = range(0, 400).map((i) => user("x".repeat(10_000), { id: `n${i}`, parentId: parentOf(i) }));
  writeFileSync(file, sessionText({ id: "s", cwd: place.cwd }, entries));
  const server = spawnServer(["--session", file, "--events", "none"], "lines", place);
  await server.result("get_state");
  const pid = server.process.pid as number;
  server.stall();
  const requests = Array.from({ length: 40 }, () => call("get_entries"));
  // 160 MB of replies, and more requests than a pipe holds.
  server.send(...requests, call("get_state", { _meta: { filler: "y".repeat(1 << 20) } }));
  let before = -1;
  const idle = (): void => {
    const now = cpuTime(pid);
    const last = before;
    before = now;
    expect(now).toBe(last);
  };
  await vi.waitFor(idle, { interval: 100, timeout: 10_000 });
  const resident = [residentMiB(pid)];
  server.resume();
  for (const { id } of requests) {
    const reply = await server.next();
    expect([reply.id, reply.result.entries.length]).toEqual([id, 400]);
    resident.push(residentMiB(pid));
  }
  expect((await server.next()).result.entryCount).toBe(400);
  expect(Math.max(...resident)).toBeLessThan(200);
  expect(await server.finish()).toEqual({ messages: [], status: 0 });
});

describe("the end", () => {
  /** A server with one entry in a file; what the entries of that file are, by their ids or texts. */
  async function persisted<T extends Wire>(server: T): Promise<{ server: T; kept: () => string[] }> {
    await server.result("append", { entries: [user("first", { id: "first" })] });
    const { sessionFile } = await server.result("get_state");
    const kept = (): string[] => {
      const [, ...lines] = readFileSync(sessionFile, "utf8").trimEnd().split("\n");
      return lines.map((line) => JSON.parse(line).id);
    };
    return { server, kept };
  }
  const spawned = () => persisted(spawnServer(["--events", "none"]));

  /** A server with more output waiting for its reader than it has sent. */
  async function stalled() {
    const { server } = await persisted(spawnServer(["--events", "none"]));
    await server.result("append", { entries: [user("x".repeat(1 << 20))] });
    server.stall();
    server.send(...Array.from({ length: 4 }, () => call("get_entries")));
    await vi.waitFor(() => expect(server.output.readableLength).toBeGreaterThan(0));
    return { server, exit: new Promise((resolve) => server.process.once("exit", resolve)) };
  }

  test("of input lets everything received be answered and kept", SYSTEM, async () => {
    const { server, kept } = await spawned();
    const wanted = Array.from({ length: 500 }, (_, i) => `n${i}`);
    server.send(...wanted.map((id) => append(user("text", { id }))));
    const { messages, status } = await server.finish();
    expect(messages.map(({ result }) => result?.leafId)).toEqual(wanted);
    expect(kept()).toEqual(["first", ...wanted]);
    expect({ status, stderr: server.stderr }).toEqual({ status: 0, stderr: "" });
  });

  for (const signal of ["SIGTERM", "SIGHUP", "SIGINT"] as const)
    test(`by ${signal} does so too`, signal === "SIGTERM" ? SYSTEM : SWEEP, async () => {
      const { server, kept } = await spawned();
      // One write arrives as one: with the first reply, the server has them all.
      server.send(append(user("a", { id: "a" })), append(user("b", { id: "b" })), call("branch", { entryId: "first" }));
      const first = await server.next();
      server.process.kill(signal);
      const messages = [first, ...(await server.rest())];
      expect(messages.map(({ result }) => result.leafId)).toEqual(["a", "b", "first"]);
      expect(kept().slice(0, 3)).toEqual(["first", "a", "b"]);
      expect({ status: await server.exit, stderr: server.stderr }).toEqual({ status: 0, stderr: "" });
      // The input was still open.
      expect(server.input.writableEnded).toBe(false);
    });

  test("by a signal, with replies that the host reads after it", SYSTEM, async () => {
    const { server, exit } = await stalled();
    server.process.kill("SIGTERM");
    server.resume();
    expect([(await server.rest()).length, await exit]).toEqual([4, 0]);
  });

  test.each([
    [
      "a signal, with replies that the host does not read in time",
      ["SIGTERM"],
      /^\S+ .* Acknowledged changes are durable.*\n$/,
    ],
    ["a second signal, at once", ["SIGTERM", "SIGHUP"], /^$/],
  ] as const)("by %s: the status is 1", SYSTEM, async (_what, signals, said) => {
    const { server, exit } = await stalled();
    for (const signal of signals) server.process.kill(signal);
    expect(await exit).toBe(1);
    await vi.waitFor(() => expect(server.stderr).toMatch(said));
  });

  test.each([
    ["of the reader", false],
    ["of the reader, and then of the input,", true],
  ])("%s keeps what was received, and the status tells", SYSTEM, async (_what, isInputToo) => {
    const { server, kept } = await spawned();
    server.process.stdout.destroy();
    server.send(append(user("a", { id: "a" })), append(assistant("b", { id: "b" })));
    if (isInputToo) server.end();
    expect(await server.exit).toBe(1);
    expect([kept(), server.stderr]).toEqual([["first", "a", "b"], ""]);
  });

  test("by shutdown: its reply, then what is left, and exit", async () => {
    const { server, kept } = await persisted(serveHere([]));
    const more = [call("shutdown"), append(user("late")), call("get_state"), call("shutdown")];
    server.send(append(user("a", { id: "a" })), ...more);
    const [appended, event, shutdown, quit, ...refused] = await server.take(7);
    expect([appended.result.leafId, event.method, shutdown.result]).toEqual(["a", "session_append", null]);
    expect(quit).toMatchObject({ method: "session_shutdown", params: { reason: "quit", leafId: "a" } });
    for (const reply of refused)
      expect(reply.error).toMatchObject({ code: -32802, data: { name: "shutting_down", retryable: true } });
    server.send({ jsonrpc: "2.0", method: "exit" });
    expect([await server.rest(), await server.done, server.said, kept()]).toEqual([[], 0, [], ["first", "a"]]);
  });

  test("comes with exit, after shutdown or alone, or a second after shutdown when the host says nothing more", async () => {
    stopTimers();
    for (const before of [["shutdown"], []]) {
      const server = serveHere(QUIET);
      for (const method of before) await server.result(method);
      server.send(call("get_state"), { jsonrpc: "2.0", method: "exit" });
      expect([(await server.rest()).length, await server.done]).toEqual([1, 0]);
    }
    const server = serveHere(QUIET);
    const ended = vi.fn();
    void server.done.then(ended);
    await server.result("shutdown");
    await vi.advanceTimersByTimeAsync(999);
    expect(ended).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    expect(await server.done).toBe(0);
  });
});
