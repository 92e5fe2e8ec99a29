/** The command line: its settings, the options accepted for the sake of Pi's clients, the refused ones, and the help. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { formatHelp, formatVerbHelp, formatVerbsHelp, getHelpWidth } from "../../src/cli/help.ts";
import { findNearest } from "../../src/cli/nearest.ts";
import { CWD_FLAG, parseArguments, parseCommandLine, UsageError } from "../../src/cli/options.ts";
import { groups, requireVerb, verbs } from "../../src/cli/table.ts";
import { COMMON_FLAGS, type Verb } from "../../src/cli/verb.ts";

const DEFAULTS = {
  ...{ action: "serve", session: undefined, continueLatest: false, inMemory: false, store: "jsonl", asPi: false },
  ...{ durability: "sync", framing: "auto", dialect: "auto", events: "all", readOnly: false },
  maxMessageBytes: 64 << 20,
};
const AS_PI = { asPi: true, framing: "lines", dialect: "pi", events: [] };

test.each<[typed: string, settings: object]>([
  ["", DEFAULTS],
  ["--session a.jsonl", { session: "a.jsonl" }],
  ["--session=a=b.jsonl", { session: "a=b.jsonl" }],
  ["--session --odd", { session: "--odd" }],
  ["-c", { continueLatest: true }],
  ["--continue", { continueLatest: true }],
  ["--continue=top", { continueLatest: "top" }],
  ["--fork x", { fork: "x" }],
  ["-n name --session-id id", { name: "name", sessionId: "id" }],
  ["--no-session", { inMemory: true }],
  ["--durability=os", { durability: "os" }],
  ["--framing headers --dialect jsonrpc", { framing: "headers", dialect: "jsonrpc" }],
  ["--events none", { events: [] }],
  ["--events=", { events: [] }],
  ["--events=session_start,\tsession_tree", { events: ["session_start", "session_tree"] }],
  ["--max-message-bytes 1000", { maxMessageBytes: 1000 }],
  ["--provider p --model m --thinking high", { provider: "p", model: "m", thinking: "high" }],
  ["--stdio", { action: "serve" }],
  ["--version", { action: "version" }],
  ["--help --version", { action: "help" }],
  ["--agent pi --version", { action: "version" }],
  ["--mode rpc", AS_PI],
  ["--mode rpc --events all", { events: "all" }],
  ["--name --mode=rpc", { asPi: false, name: "--mode=rpc" }],
  // Pi accepts unknown options, and options that say two things, or half of one.
  ["--no-such --mode rpc -x --session a", { session: "a" }],
  ["--mode rpc --session a --continue --provider p", { session: "a", provider: "p" }],
  // Pi's options that mean nothing are accepted, with their values.
  ["--offline --no-themes -ne -ns -np -nc --approve --no-approve --api-key k --name n", { name: "n" }],
  ["--system-prompt --session --api-key k --name n", { session: undefined, name: "n" }],
  ["--agent a --agent-protocol acp", { dialect: "acp", agent: { words: ["a"], protocol: "acp", within: 30_000 } }],
  ["--agent a --dialect acp", { agent: { words: ["a"], protocol: "pi", within: 30_000 } }],
  ["--agent a --agent-protocol acp --dialect acp --store v2 --name x", { dialect: "acp", name: "x" }],
])("%s", (typed, settings) => expect(parseArguments(typed.split(" ").filter(Boolean))).toMatchObject(settings));

test("the command of an agent is cut into words as a shell would cut it", () => {
  const { agent } = parseArguments(["--mode", "rpc", "--agent", "pi '--mode' rpc \"a b\" c\\ d"]);
  expect(agent).toEqual({ words: ["pi", "--mode", "rpc", "a b", "c d"], protocol: "pi", within: 30_000 });
});

test.each([
  ["--no-such", "--no-such"],
  ["file.jsonl", "file.jsonl"],
  ["-hv", "-hv"],
  ["-- -c", "--"],
  ["--session", "--session"],
  ["--framing words", "words"],
  ["--dialect xml", "xml"],
  ["--durability maybe", "maybe"],
  ["--store paper", "paper"],
  ["--continue=bottom", "top"],
  ["--events session_append,foo", "foo"],
  ["--events all,session_tree", "session_tree"],
  ["--mode rpc --events foo", "foo"],
  ["--session x --continue", "--continue"],
  ["--session x --fork y", "--fork"],
  ["--provider p", "--model"],
  ["--model m", "--provider"],
  ["/tmp/x.jsonl", "--session /tmp/x.jsonl; to read it: show /tmp/x.jsonl"],
  ["x.v2", "--session x.v2"],
  ["--mode json", "json"],
  ["--max-message-bytes 0", "--max-message-bytes"],
  ["--max-message-bytes 1e3", "--max-message-bytes"],
  ["--agent pi", "--mode rpc"],
  ["--mode rpc --agent=\t", "pi --mode rpc"],
  ["--mode rpc --agent=pi\t'x", "without another"],
  ["--mode rpc --agent pi --no-session", "--no-session"],
  ["--mode rpc --agent pi --store v2", "--store v2"],
  ["--mode rpc --agent pi --read-only", "--read-only"],
  ["--mode rpc --agent-timeout 5", "without --agent"],
  ["--agent a --agent-protocol mcp", "mcp"],
  ["--agent a --dialect jsonrpc", "--dialect acp for editors"],
  ["--agent a --dialect acp --store v2", "--store v2"],
  ["--agent a --agent-protocol acp --mode rpc", "--mode"],
  ["--agent a --agent-protocol acp --dialect jsonrpc", "any --dialect but acp"],
  ["--sesion", "Did you mean --session?"],
])("a wrong command line is told with what is wrong: %s", (typed, named) => {
  const parse = () => parseArguments(typed.split(" "));
  expect(parse).toThrow(UsageError);
  expect(parse).toThrow(named);
  expect(parse).toThrow(/^\S.*\.$/);
});

const OWN = { verb: "list", flags: { "--cwd": CWD_FLAG, "--query": { value: "words", meaning: "x" } } };

test.each<[typed: string, value: string | undefined, operands: string[]]>([
  ["--cwd", ".", []],
  ["--cwd --read-only", ".", []],
  ["word --cwd", ".", ["word"]],
  ["--cwd dir word", "dir", ["word"]],
  ["--cwd=dir word", "dir", ["word"]],
  ["--cwd= word", "", ["word"]],
  ["--cwd -- word", ".", ["word"]],
  ["--cwd=-odd", "-odd", []],
  ["-- --cwd", undefined, ["--cwd"]],
  ["--query --cwd", undefined, []],
  ["word -32768 -1.5e3 word", undefined, ["word", "-32768", "-1.5e3", "word"]],
])("an option that may stand alone, and numbers below zero: %s", (typed, value, operands) => {
  const parsed = parseCommandLine(typed.split(" "), OWN);
  expect([parsed.flags.get("--cwd"), parsed.operands]).toEqual([value, operands]);
});

test("a verb's own --session names a session to the verb alone", () => {
  const own = { verb: "recall find", flags: { "--session": { value: "value", meaning: "x" } } };
  const { flags, settings } = parseCommandLine(["--session", "x"], own);
  expect([flags.get("--session"), settings.session]).toEqual(["x", undefined]);
});

describe("what is mistyped", () => {
  test.each([
    ["lst", "list"],
    ["seacrh", "search"],
    ["arch", "archive"],
    ["--sesion-dir", "--session-dir"],
    ["--continu", "--continue"],
    ["qqqqq", undefined],
    ["x", undefined],
    ["", undefined],
  ])("%s: %s", (typed, meant) => {
    const known = ["list", "search", "show", "browse", "archive", "--session", "--session-dir", "--continue", "-c"];
    expect(findNearest(typed, known)).toBe(meant);
  });

  test.each([
    ["delete --permanant", "Unknown option --permanant. Did you mean --permanent? delete --help lists its options."],
    ["v --role", "--role takes a, b. v --help"],
  ])("%s is answered with the nearest of the verb first, and where to read more", (typed, sentence) => {
    const [verb, ...args] = typed.split(" ");
    const flags = { "--permanent": { meaning: "x" }, "--role": { value: "a|b", meaning: "" } };
    expect(() => parseCommandLine(args, { verb, flags })).toThrow(sentence);
  });
});

describe("the help", () => {
  test.each([20, 40, 60, 80, 3840])("fits %i columns", (width) => {
    // A word is not broken.
    const most = Math.max(36, Math.min(width, 80));
    for (const help of [formatHelp, formatVerbsHelp])
      for (const line of help(groups, getHelpWidth(width)).split("\n"))
        expect(line.length, line).toBeLessThanOrEqual(most);
    for (const line of formatHelp().split("\n")) expect(line.length).toBeLessThanOrEqual(120);
  });

  test("has every verb under one heading, with the other words for it, and every option that is acted on", () => {
    const lines = formatVerbsHelp(groups).split("\n");
    for (const { name } of verbs) expect(lines.filter((line) => line.startsWith(`  ${name} `))).toHaveLength(1);
    expect(lines.join("\n")).toContain("(also ls)");
    expect(new Set(groups.map(({ title }) => title)).size).toBe(groups.length);
    for (const option of ["--session", "--continue, -c", "--events", "--mode", "--read-only", "--version, -v"])
      expect(formatHelp()).toContain(option);
  });

  test.each([80, 40])("has examples that stay indented where they are wrapped, at %i columns", (columns) => {
    const lines = formatVerbHelp(requireVerb("compare") as Verb, columns).split("\n");
    const from = lines.findIndex((line) => line.startsWith("  compare <session>"));
    for (const line of lines.slice(from, lines.indexOf("", from))) expect(line).toMatch(/^ {2}/);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns);
  });

  test("breaks no example at 80 columns, so that it can be copied", () => {
    const examples = verbs.flatMap(({ more = "" }: Verb) => more.split("\n").filter((line) => line.startsWith("  ")));
    expect(examples.length).toBeGreaterThan(3);
    expect(examples.filter((line) => line.length > 80)).toEqual([]);
  });

  test("and each sentence of ours give a verb no flag that it does not have", () => {
    const src = fileURLToPath(new URL("../../src", import.meta.url));
    const known = new Map(verbs.map(({ name, flags = {} }: Verb) => [name, { ...flags, ...COMMON_FLAGS }]));
    const names = [...known.keys()].join("|");
    const named = new RegExp(`\\b(${names})((?: (?:<\\w+>|\\$\\{\\w+\\}))* (--[a-z][a-z-]+))`, "g");
    const files = readdirSync(src, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
    const found = files.flatMap((name) => {
      // No flag stands in another line than its verb.
      const lines = readFileSync(join(src, name), "utf8").split("\n");
      const text = lines.filter((line) => line.includes(" --")).join("\n");
      return [...text.matchAll(named)].map(([said, verb, , flag]) => ({ name, said, verb, flag }));
    });
    expect(found.length).toBeGreaterThan(5);
    // The verb fleet has a command of the name of a verb.
    const checked = found.filter(({ name }) => name !== "cli/verbs/fleet.ts");
    expect(checked.filter(({ verb, flag }) => !(flag in (known.get(verb) as object)))).toEqual([]);
  });
});
