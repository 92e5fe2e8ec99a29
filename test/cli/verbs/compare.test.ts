/** Branches compared and merged on the command line. */

import { describe, expect, test } from "vitest";
import { widthOf } from "../../../src/cli/terminal/text.ts";
import { linesIn, sessionFile } from "../../support/cases.ts";
import { putSession } from "../../support/lifecycle.ts";
import { chain, entryText, headerText, id, SESSION, userText } from "../../support/lines.ts";
import { type Place, serveHere, temporaryPlace } from "../../support/server.ts";
import { type Run, type RunOptions, runHere } from "../../support/verbs.ts";

const OTHER = "01991f6e-2222-7c3e-b0a4-0242ac120003";

const call = (entryId: string, parentId: string, name: string, args: object): string =>
  entryText("message", entryId, parentId, {
    timestamp: "2026-01-24T16:25:26.831Z",
    message: {
      role: "assistant",
      provider: "anthropic",
      model: "sonnet",
      content: [{ type: "toolCall", id: entryId, name, arguments: args }],
      usage: { input: 1200, output: 34, cost: { total: 0.25 } },
    },
  });

const LINES = [
  ...chain(2),
  userText("aaaa1111", id(1), "Try a map. \u001b[31m\u202eX\u0000 日本語 ".repeat(20)),
  call("aaaa2222", "aaaa1111", "bash", { command: "npm test -- --grep a-very-long-name-of-a-test" }),
  entryText("message", "aaaa3333", "aaaa2222", {
    message: { role: "toolResult", toolCallId: "aaaa2222", toolName: "bash", isError: true, content: "3 failed" },
  }),
  call("aaaa4444", "aaaa3333", "edit", { path: "src/a/path/that/is/rather/long/for/a/narrow/page/and/more/store.ts" }),
  userText("bbbb1111", id(1), "Try a list."),
  call("bbbb2222", "bbbb1111", "edit", { path: "src/a/path/that/is/rather/long/for/a/narrow/page/and/more/store.ts" }),
];

/** A session with two branches, and a fork of it that went another way. */
function ready(): {
  place: Place;
  file: string;
  fork: string;
  run(args: string[], options?: RunOptions): Promise<Run>;
} {
  const place = temporaryPlace();
  const file = sessionFile(place, LINES, "one.jsonl");
  const header = headerText({ id: OTHER, parentSession: file });
  const fork = sessionFile(place, [...chain(2), userText("cccc1111", id(1), "In the fork.")], "fork.jsonl", header);
  return {
    place,
    file,
    fork,
    run: (args, options) => runHere(place, [...args, "--session-dir", place.cwd], options),
  };
}

const terminal = (columns: number): RunOptions => ({ terminal: { columns }, variables: { NO_COLOR: "1" } });

describe("compare", () => {
  test("prints two sides beside each other where there is room", async () => {
    const { run } = ready();
    const { stdout, stderr, status } = await run(["compare", SESSION, "aaaa4444", "bbbb2222"], terminal(120));
    expect([stderr, status]).toEqual(["", 0]);
    const lines = stdout.split("\n");
    expect(lines[0]).toBe(`They have 2 entries in common, up to ${id(1)}.`);
    expect(stdout).toContain("both changed:\n");
    const sides = lines.filter((line) => line.includes(" │")).map((line) => line.split("│").map((part) => part.trim()));
    expect(sides.slice(0, 10)).toEqual([
      ["A  aaaa4444", "B  bbbb2222"],
      ["4 entries in 3 min", "2 entries in 3 min"],
      ["1 from the user, 2 from the assistant", "1 from the user, 1 from the assistant"],
      ["2 tool calls (1 failed)", "1 tool call"],
      ["2,468 tokens, $0.5000", "1,234 tokens, $0.2500"],
      ["models: anthropic/sonnet 2", "models: anthropic/sonnet 1"],
      ["tools: bash 1 (1 failed), edit 1", "tools: edit 1"],
      ["changed:", "changed:"],
      Array(2).fill("…that/is/rather/long/for/a/narrow/page/and/more/store.ts"),
      ["", ""],
    ]);
    expect(sides[10][1]).toBe("user: Try a list.");
    expect(sides.slice(14).map(([own]) => own)).toEqual([
      "bash: npm test -- --grep a-very-long-name-of-a-test",
      "failed bash: 3 failed",
      "edit: …s/rather/long/for/a/narrow/page/and/more/store.ts",
    ]);
  });

  test.each([20, 40, 99, 100, 200, 500])("fits into %i columns, without a character that acts", async (columns) => {
    const { run } = ready();
    for (const args of [
      ["compare", SESSION, "aaaa4444", "bbbb2222"],
      ["compare", SESSION, OTHER],
    ]) {
      const { stdout } = await run(args, terminal(columns));
      const lines = stdout.split("\n");
      expect(lines.filter((line) => widthOf(line) > columns)).toEqual([]);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
      expect(lines.join("")).not.toMatch(/[\u0000-\u001f\u202e]/);
      expect(stdout.includes(" │")).toBe(columns >= 100);
    }
  });

  test("--plain puts one side under the other", async () => {
    const { stdout } = await ready().run(["compare", SESSION, "aaaa4444", "bbbb2222", "--plain"], {
      terminal: { columns: 200 },
    });
    expect(stdout).toMatch(/\nA {2}aaaa4444\n(.*\n)+\nB {2}bbbb2222\n/);
    expect(stdout).not.toContain("│");
  });

  test("takes a fork, an entry, beginnings of both, and an entry of a fork", async () => {
    const { run, fork, file } = ready();
    const found = async (...args: string[]): Promise<unknown> => {
      const { stdout } = await run(["compare", ...args, "--json"]);
      const { commonAncestorId, a, b } = JSON.parse(stdout);
      return [commonAncestorId, a.entryId, b.entryId];
    };
    const ofFork = [id(1), "bbbb2222", "cccc1111"];
    for (const other of [fork, OTHER, OTHER.slice(0, 13)]) expect(await found(SESSION, other), other).toEqual(ofFork);
    expect(await found(file, "aaaa2")).toEqual([id(1), "bbbb2222", "aaaa2222"]);
    expect(await found(SESSION, "aaaa4", "leaf", "--with", OTHER)).toEqual([id(1), "aaaa4444", "cccc1111"]);
  });

  test("says what is wrong in words of the command line, and changes nothing", async () => {
    const { run, place, file } = ready();
    const before = linesIn(file);
    const alien = sessionFile(place, [userText("dddd1111", null)], "alien.jsonl", headerText({ id: "alien" }));
    for (const [args, sentence] of [
      [[SESSION, "nowhere"], "There is no entry nowhere. tree shows ids"],
      [[SESSION, "aaaa"], "Several entries have an id that begins with aaaa: aaaa1111, aaaa2222"],
      [[SESSION, alien], "The two sessions have nothing in common"],
      [[SESSION, "aaaa1111", "leaf", "--with", "nobody"], "No session"],
    ] as const) {
      const { stdout, stderr, status } = await run(["compare", ...args]);
      expect([stdout, status], sentence).toEqual(["", 1]);
      expect(stderr).toContain(sentence);
    }
    expect((await run(["compare", SESSION])).status).toBe(2);
    expect((await run(["compare", SESSION, "aaaa1111", "--limit", "0"])).status).toBe(2);
    expect(linesIn(file)).toEqual(before);
  });

  test("names the sessions where there are two", async () => {
    const { run, place, fork } = ready();
    const server = serveHere(["--session", fork, "--events", "none"], { place });
    await server.result("set_session_name", { name: "The \u001bother\u0000 approach" });
    await server.finish();
    const { stdout } = await run(["compare", SESSION, OTHER]);
    expect(stdout).toContain(`\nsession ${SESSION}\n`);
    expect(stdout).toContain(`\nsession ${OTHER}, The \\u001bother\\u0000 approach\n`);
  });

  test("says that a cost is not known, instead of $0", async () => {
    const place = temporaryPlace();
    sessionFile(
      place,
      [...LINES.slice(0, -1), LINES[LINES.length - 1].replace(',"cost":{"total":0.25}', "")],
      "one.jsonl",
    );
    const { stdout } = await runHere(place, ["compare", SESSION, "aaaa4444", "bbbb2222", "--session-dir", place.cwd]);
    expect(stdout).toContain("2,468 tokens, $0.5000\n");
    expect(stdout).toContain("1,234 tokens, cost unknown\n");
  });

  test("an empty side and a long one", async () => {
    const { run } = ready();
    const { stdout } = await run(["compare", SESSION, id(1), "leaf", "--limit", "1"]);
    expect(stdout).toContain("Nothing was added on this side.");
    expect(stdout).toContain("(there is more; --limit shows more of it)");
  });
});

describe("merge", () => {
  test("brings a branch to the leaf, with the summary given or typed", async () => {
    const { run, place, file } = ready();
    const done = await run(["merge", SESSION, "aaaa4", "--summary", "The map is faster."]);
    expect([done.stderr, done.status]).toEqual(["", 0]);
    expect(done.stdout).toMatch(/^The summary of 4 entries up to aaaa4444 is \w+, the new leaf\.\n$/);
    const again = await run(["merge", SESSION, "aaaa4", "--summary", "The map is faster."]);
    expect([again.status, again.stderr]).toEqual([1, expect.stringContaining("has merged all of that branch already")]);
    const typed = { terminal: { readInput: async () => "  From the fork.\n\n" } };
    expect((await run(["merge", SESSION, "leaf", "--from", OTHER, "--summary", "-"], typed)).status).toBe(0);
    const server = serveHere(["--session", file, "--events", "none"], { place });
    const { messages } = await server.result("get_messages");
    expect(messages.slice(-2).map(({ summary }: { summary: string }) => summary)).toEqual([
      "The map is faster.",
      "From the fork.",
    ]);
  });

  test("--prepare prints what is to be summarised, of a fork too", async () => {
    const { run, file } = ready();
    const before = linesIn(file);
    const own = await run(["merge", SESSION, "aaaa4444", "--prepare"]);
    expect(own.stdout).toContain("Tool error (bash): 3 failed");
    expect(own.stdout).not.toContain(`say ${id(1)}`);
    const other = await run(["merge", SESSION, "leaf", "--from", OTHER, "--prepare"]);
    expect(other.stdout).toBe("User: In the fork.\n");
    expect(linesIn(file)).toEqual(before);
  });

  test("is refused where there is nothing to say or to bring", async () => {
    const { run, file } = ready();
    const before = linesIn(file);
    for (const [args, status] of [
      [["aaaa4444"], 2],
      [["aaaa4444", "--summary", " "], 2],
      [["aaaa4444", "--summary", "s", "--prepare"], 2],
      [[id(0), "--summary", "s"], 1],
      [["leaf", "--summary", "s"], 1],
      [["none", "--summary", "s"], 1],
      [["aaaa4444", "--summary", "s", "--read-only"], 1],
    ] as const)
      expect((await run(["merge", SESSION, ...args])).status, args.join(" ")).toBe(status);
    expect(linesIn(file)).toEqual(before);
  });
});

test("every id that compare prints is one that tree shows", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1, {
    cwd: place.cwd,
    lines: [
      ...chain(2),
      entryText("session_info", "f0000001", id(1), { name: "A name" }),
      userText(id(3), "f0000001"),
      entryText("label", "f0000002", id(3), { targetId: id(0), label: "begin" }),
      userText(id(4), "f0000001"),
    ],
  });
  const { stdout } = await runHere(place, ["compare", file, "f0000002", id(4)]);
  const { stdout: tree } = await runHere(place, ["tree", file]);
  const printed = stdout.match(/\b[0-9a-f]{8}\b/g) ?? [];
  expect(new Set(printed)).toEqual(new Set([id(1), id(3), id(4)]));
  for (const one of printed) expect(tree).toContain(one);
});
