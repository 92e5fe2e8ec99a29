/** The command line: what it sets, what it accepts for the sake of Pi's clients, what it refuses. */

import { describe, expect, test } from "vitest";
import { helpText, helpWidth, verbsHelp } from "../../src/cli/help.ts";
import { nearestOf } from "../../src/cli/nearest.ts";
import { CWD_FLAG, parseArguments, parseCommandLine, UsageError } from "../../src/cli/options.ts";
import { groups, verbs } from "../../src/cli/table.ts";

test("nothing given means a new session on disk, durable, everything detected, all events", () => {
  expect(parseArguments([])).toMatchObject({
    action: "serve",
    continueLatest: false,
    inMemory: false,
    store: "jsonl",
    durability: "sync",
    framing: "auto",
    dialect: "auto",
    events: "all",
    readOnly: false,
    maxMessageBytes: 64 << 20,
    asPi: false,
  });
  expect(parseArguments([]).session).toBeUndefined();
});

test.each<[string[], object]>([
  [["--session", "a.jsonl"], { session: "a.jsonl" }],
  [["--session=a=b.jsonl"], { session: "a=b.jsonl" }],
  [["--session", "--odd"], { session: "--odd" }],
  [["-c"], { continueLatest: true }],
  [["--continue"], { continueLatest: true }],
  [["--fork", "x"], { fork: "x" }],
  [["-n", "name", "--session-id", "id"], { name: "name", sessionId: "id" }],
  [["--no-session"], { inMemory: true }],
  [["--durability=os"], { durability: "os" }],
  [["--framing", "headers", "--dialect", "jsonrpc"], { framing: "headers", dialect: "jsonrpc" }],
  [["--events", "none"], { events: [] }],
  [["--events="], { events: [] }],
  [["--events", "session_start, session_tree"], { events: ["session_start", "session_tree"] }],
  [["--max-message-bytes", "1000"], { maxMessageBytes: 1000 }],
  [["--provider", "p", "--model", "m", "--thinking", "high"], { provider: "p", model: "m", thinking: "high" }],
  [["--stdio"], { action: "serve" }],
  [["--version"], { action: "version" }],
  [["--help", "--version"], { action: "help" }],
  [["--agent", "pi", "--version"], { action: "version" }],
])("%j", (args, settings) => {
  expect(parseArguments(args)).toMatchObject(settings);
});

describe("--mode rpc", () => {
  test.each([[["--mode", "rpc"]], [["--mode=rpc"]]])("is Pi's dialect in lines without events: %j", (args) => {
    expect(parseArguments(args)).toMatchObject({ asPi: true, framing: "lines", dialect: "pi", events: [] });
    expect(parseArguments([...args, "--events", "all"]).events).toBe("all");
  });

  test("is no value of another option", () => {
    expect(parseArguments(["--name", "--mode=rpc"])).toMatchObject({ asPi: false, name: "--mode=rpc" });
  });

  test("ignores what it does not know", () => {
    expect(parseArguments(["--no-such", "--mode", "rpc", "-x", "--session", "a"])).toMatchObject({ session: "a" });
  });
});

test("--mode rpc takes what Pi takes: options that say two things, or half of one", () => {
  const args = ["--session", "a", "--continue", "--provider", "p"];
  expect(parseArguments(["--mode", "rpc", ...args])).toMatchObject({ session: "a", provider: "p" });
});

test("the command of an agent is cut into words as a shell would cut it", () => {
  const { agent } = parseArguments(["--mode", "rpc", "--agent", "pi '--mode' rpc \"a b\" c\\ d"]);
  expect(agent).toEqual({ words: ["pi", "--mode", "rpc", "a b", "c d"], protocol: "pi", within: 30_000 });
  expect(parseArguments(["--agent", "a", "--agent-protocol", "acp", "--store", "v2"]).agent?.protocol).toBe("acp");
  expect(parseArguments(["--agent", "a", "--dialect", "acp"]).agent?.protocol).toBe("pi");
  expect(parseArguments(["--agent", "a", "--agent-protocol", "acp", "--dialect", "acp"]).dialect).toBe("acp");
});

test("Pi's options that mean nothing are accepted, with their values", () => {
  const args = ["--offline", "--no-themes", "-ne", "-ns", "-np", "-nc", "--approve", "--no-approve"];
  expect(parseArguments([...args, "--system-prompt", "--session", "--api-key", "k", "--name", "n"])).toMatchObject({
    name: "n",
  });
  expect(parseArguments(["--system-prompt", "--session"]).session).toBeUndefined();
});

test.each([
  [["--no-such"], "--no-such"],
  [["file.jsonl"], "file.jsonl"],
  [["-hv"], "-hv"],
  [["-nfoo"], "-nfoo"],
  [["--", "-c"], "--"],
  [["--session"], "--session"],
  [["--framing", "words"], "words"],
  [["--dialect", "xml"], "xml"],
  [["--durability", "maybe"], "maybe"],
  [["--store", "paper"], "paper"],
  [["--events", "session_append,foo"], "foo"],
  [["--events", "foo"], "session_tree"],
  [["--events", "all,session_tree"], "session_tree"],
  [["--mode", "rpc", "--events", "foo"], "foo"],
  [["--session", "x", "--continue"], "--continue"],
  [["--session", "x", "--fork", "y"], "--fork"],
  [["-c", "--fork", "y"], "--fork"],
  [["--provider", "p"], "--model"],
  [["--model", "m"], "--provider"],
  [["/tmp/x.jsonl"], "--session /tmp/x.jsonl; to read it: show /tmp/x.jsonl"],
  [["x.v2"], "--session x.v2"],
  [["--mode", "json"], "json"],
  [["--max-message-bytes", "0"], "--max-message-bytes"],
  [["--max-message-bytes", "1e3"], "--max-message-bytes"],
  [["--max-message-bytes", "-5"], "--max-message-bytes"],
  [["--agent", "pi"], "--mode rpc"],
  [["--mode", "rpc", "--agent", "  "], "pi --mode rpc"],
  [["--mode", "rpc", "--agent", "pi 'x"], "without another"],
  [["--mode", "rpc", "--agent", "pi", "--no-session"], "--no-session"],
  [["--mode", "rpc", "--agent", "pi", "--store", "v2"], "--store v2"],
  [["--mode", "rpc", "--agent", "pi", "--read-only"], "--read-only"],
  [["--mode", "rpc", "--agent-timeout", "5"], "without --agent"],
  [["--agent", "a", "--agent-protocol", "mcp"], "mcp"],
  [["--agent", "a", "--dialect", "jsonrpc"], "--dialect acp for editors"],
  [["--agent", "a", "--dialect", "acp", "--store", "v2"], "--store v2"],
  [["--agent", "a", "--agent-protocol", "acp", "--mode", "rpc"], "--mode"],
  [["--agent", "a", "--agent-protocol", "acp", "--name", "x"], "--name"],
])("a wrong command line is told with what is wrong: %j", (args, named) => {
  expect(() => parseArguments(args)).toThrow(UsageError);
  expect(() => parseArguments(args)).toThrow(named);
});

describe("an option that may stand alone", () => {
  const own = { verb: "list", flags: { "--cwd": CWD_FLAG, "--query": { value: "words", meaning: "x" } } };
  const parsed = (...args: string[]) => parseCommandLine(args, own);

  test.each<[string[], string, string[]]>([
    [["--cwd"], ".", []],
    [["--cwd", "--read-only"], ".", []],
    [["word", "--cwd"], ".", ["word"]],
    [["--cwd", "dir", "word"], "dir", ["word"]],
    [["--cwd=dir", "word"], "dir", ["word"]],
    [["--cwd=", "word"], "", ["word"]],
    [["--cwd", "--", "word"], ".", ["word"]],
    [["--cwd=-odd"], "-odd", []],
  ])("%j", (args, value, operands) => {
    expect([parsed(...args).flags.get("--cwd"), parsed(...args).operands]).toEqual([value, operands]);
  });

  test("is no option where it is the value of another, or behind the end of options", () => {
    expect(parsed("--query", "--cwd").flags.get("--query")).toBe("--cwd");
    expect(parsed("--", "--cwd").operands).toEqual(["--cwd"]);
  });
});

describe("what is mistyped", () => {
  test.each([
    ["lst", "list"],
    ["serch", "search"],
    ["seacrh", "search"],
    ["brows", "browse"],
    ["arch", "archive"],
    ["--sesion-dir", "--session-dir"],
    ["--continu", "--continue"],
    ["qqqqq", undefined],
    ["x", undefined],
    ["", undefined],
  ])("%s: %s", (typed, meant) => {
    const known = ["list", "search", "show", "browse", "archive", "--session", "--session-dir", "--continue", "-c"];
    expect(nearestOf(typed, known)).toBe(meant);
  });

  test("is answered with the nearest, of the verb first, and where to read more", () => {
    const own = { verb: "delete", flags: { "--permanent": { meaning: "x" } } };
    expect(() => parseCommandLine(["--permanant"], own)).toThrow(
      "Unknown option --permanant. Did you mean --permanent? delete --help lists its options.",
    );
    expect(() => parseArguments(["--sesion"])).toThrow("Did you mean --session?");
    expect(() =>
      parseCommandLine(["--role"], { verb: "v", flags: { "--role": { value: "a|b", meaning: "" } } }),
    ).toThrow("--role takes a, b. v --help");
  });
});

test.each([20, 40, 60, 80, 3840])("the help fits %i columns", (width) => {
  // A word is not broken.
  const most = Math.max(34, Math.min(width, 80));
  for (const text of [helpText(groups, helpWidth(width)), verbsHelp(groups, helpWidth(width))])
    for (const line of text.split("\n")) expect(line.length, line).toBeLessThanOrEqual(most);
});

test("the help has every verb under one heading, with the other words for it", () => {
  const text = verbsHelp(groups);
  for (const { name } of verbs)
    expect(text.split("\n").filter((line) => line.startsWith(`  ${name} `))).toHaveLength(1);
  expect(text).toContain("(also ls)");
  expect(new Set(groups.map(({ title }) => title)).size).toBe(groups.length);
});

test("the help names every option that is acted on", () => {
  const text = helpText();
  for (const option of ["--session", "--continue, -c", "--events", "--mode", "--read-only", "--version, -v"])
    expect(text).toContain(option);
  for (const line of text.split("\n")) expect(line.length).toBeLessThanOrEqual(120);
});

test("--continue takes top, and no other value", () => {
  expect(parseArguments(["--continue=top"]).continueLatest).toBe("top");
  expect(() => parseArguments(["--continue=bottom"])).toThrow("top");
});
