/** Branches compared and merged on the command line. */

import { beforeEach, describe, expect, test } from "vitest";
import { linesIn, sessionFile } from "../../support/cases.ts";
import { chain, entryText, headerText, id, SESSION, userText } from "../../support/lines.ts";
import { type Json, type Place, serveHere, temporaryPlace } from "../../support/server.ts";
import { expectTame, playVerbs, type RunOptions, runHere, wordsIn } from "../../support/verbs.ts";

const OTHER = "01991f6e-2222-7c3e-b0a4-0242ac120003";
const STORE = "src/a/path/that/is/rather/long/for/a/narrow/page/and/more/store.ts";

const PRICED: object = { cost: { total: 0.25 } };
const call = (entryId: string, parentId: string, name: string, args: object, cost = PRICED) =>
  entryText("message", entryId, parentId, {
    timestamp: "2026-01-24T16:25:26.831Z",
    message: {
      ...{ role: "assistant", provider: "anthropic", model: "sonnet" },
      content: [{ type: "toolCall", id: entryId, name, arguments: args }],
      usage: { input: 1200, output: 34, ...cost },
    },
  });

const LINES = [
  ...chain(2),
  userText("aaaa1111", id(1), "Try a map. \u001b[31m\u202eX\u0000 日本語 ".repeat(20)),
  call("aaaa2222", "aaaa1111", "bash", { command: "npm test -- --grep a-very-long-name-of-a-test" }),
  entryText("message", "aaaa3333", "aaaa2222", {
    message: { role: "toolResult", toolCallId: "aaaa2222", toolName: "bash", isError: true, content: "3 failed" },
  }),
  call("aaaa4444", "aaaa3333", "edit", { path: STORE }),
  userText("bbbb1111", id(1), "Try a list."),
  call("bbbb2222", "bbbb1111", "edit", { path: STORE }),
];
const NAMES = { id: SESSION, other: OTHER, sides: "aaaa4444 bbbb2222" };

/** A place with a session with two branches, and a fork of it that went another way. */
let place: Place;
let file: string;
let fork: string;
beforeEach(() => {
  place = temporaryPlace();
  file = sessionFile(place, LINES, "one.jsonl");
  const header = headerText({ id: OTHER, parentSession: file });
  fork = sessionFile(place, [...chain(2), userText("cccc1111", id(1), "In the fork.")], "fork.jsonl", header);
});

const run = (typed: string, options?: RunOptions) =>
  runHere(place, [...wordsIn(typed, { ...NAMES, fork, file }), "--session-dir", place.cwd], options);
const say = (text: string) => {
  const inFolder = text.replace(/^( *\$ .*?)(?= (?:::|!!|!2|\|)|$)/gm, "$1 --session-dir {cwd}");
  const readInput = async () => "  From the fork.\n\n";
  return playVerbs(place, { ...NAMES, fork, file }, { terminal: { readInput } })(inFolder);
};

const compared = (columns: number) =>
  run("compare {id} aaaa4444 bbbb2222", { terminal: { columns }, variables: { NO_COLOR: "1" } });

describe("compare", () => {
  test("a fork alone is compared with its original, also where that was moved; another session needs more", async () => {
    const moved = "01991f6e-3333-7c3e-b0a4-0242ac120003";
    const header = headerText({ id: moved, parentSession: `/gone/2026-01-24T16-22-26-831Z_${SESSION}.jsonl` });
    sessionFile(place, [...chain(2), userText("dddd1111", id(1), "Moved on.")], "moved.jsonl", header);
    await say(`
      $ compare ${moved}
      + ^They have 2 entries in common
      + Moved on
      + Try a list
      $ compare {other}
      + ^They have 2 entries in common
      + In the fork
      + Try a list
      $ compare {id} !2 compare needs <a>: this session is no fork and has no original.
      $ list :: fork of 01991f6e`);
  });

  test("prints two sides beside each other where there is room, and --plain one under the other", async () => {
    const { stdout, stderr, status } = await compared(120);
    expect([stderr, status]).toEqual(["", 0]);
    const lines = stdout.split("\n");
    expect(lines[0]).toBe(`They have 2 entries in common, up to ${id(1)}.`);
    expect(stdout).toContain("both changed:\n");
    const cells = lines.filter((line) => line.includes(" │")).map((line) => line.split("│").map((part) => part.trim()));
    expect(cells.slice(0, 10)).toEqual([
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
    expect(cells[10][1]).toBe("user: Try a list.");
    expect(cells.slice(14).map(([own]) => own)).toEqual([
      "bash: npm test -- --grep a-very-long-name-of-a-test",
      "failed bash: 3 failed",
      "edit: …s/rather/long/for/a/narrow/page/and/more/store.ts",
    ]);
    const plain = await run("compare {id} aaaa4444 bbbb2222 --plain", { terminal: { columns: 200 } });
    expect(plain.stdout).toMatch(/\nA {2}aaaa4444\n([^│]*\n)+B {2}bbbb2222\n[^│]*$/);
  });

  test.each([20, 40, 99, 100, 200, 500])("fits into %i columns, without a character that acts", async (columns) => {
    for (const { stdout } of [await compared(columns), await run("compare {id} {other}", { terminal: { columns } })])
      expect(expectTame(stdout, columns).includes(" │")).toBe(columns >= 100);
  });

  test.each([
    ["{id} {fork}", `${id(1)} bbbb2222 cccc1111`],
    ["{id} {other}", `${id(1)} bbbb2222 cccc1111`],
    [`{id} ${OTHER.slice(0, 13)}`, `${id(1)} bbbb2222 cccc1111`],
    ["{file} aaaa2", `${id(1)} bbbb2222 aaaa2222`],
    ["{id} aaaa4 leaf --with {other}", `${id(1)} aaaa4444 cccc1111`],
  ])("takes a fork, an entry, beginnings of both, and an entry of a fork: %s", async (typed, found) => {
    const { commonAncestorId, a, b } = JSON.parse((await run(`compare ${typed} --json`)).stdout);
    expect(`${commonAncestorId} ${a.entryId} ${b.entryId}`).toBe(found);
  });

  test("names sessions, an empty side, a long one and several entries, and no cost where none is known", async () => {
    await runHere(place, ["rename", fork, "The \u001bother\u0000 approach"]);
    await say(`
      $ compare {id} {other}
      + ^session {id}$
      + ^session {other}, The \\\\u001bother\\\\u0000 approach$
      $ compare {id} ${id(1)} leaf --limit 1
      + Nothing was added on this side\\.
      + \\(there is more; --limit shows more of it\\)
      $ compare {id} aaaa !! Several entries have an id that begins with aaaa: aaaa1111, aaaa2222`);
    sessionFile(place, [...LINES.slice(0, -1), call("bbbb2222", "bbbb1111", "edit", { path: STORE }, {})], "one.jsonl");
    const { stdout } = await run("compare {id} aaaa4444 bbbb2222");
    expect(stdout).toContain("2,468 tokens, $0.5000\n");
    expect(stdout).toContain("1,234 tokens, cost unknown\n");
  });

  test("prints no id that tree does not show", async () => {
    const lines = [
      ...chain(2),
      entryText("session_info", "f0000001", id(1), { name: "A name" }),
      userText(id(3), "f0000001"),
      entryText("label", "f0000002", id(3), { targetId: id(0), label: "begin" }),
      userText(id(4), "f0000001"),
    ];
    const other = sessionFile(place, lines, "other.jsonl", headerText({ id: "other" }));
    const printed = (await run(`compare ${other} f0000002 ${id(4)}`)).stdout.match(/\b[0-9a-f]{8}\b/g) ?? [];
    const { stdout: tree } = await run(`tree ${other}`);
    expect(new Set(printed)).toEqual(new Set([id(1), id(3), id(4)]));
    for (const one of printed) expect(tree).toContain(one);
  });
});

test("merge brings a branch to the leaf, with the summary given or typed, once, and --prepare prints what is to be said", async () => {
  const before = linesIn(file);
  await say(`
    $ merge {id} aaaa4444 --prepare
    + Tool error \\(bash\\): 3 failed
    - say ${id(1)}
    $ merge {id} leaf --from {other} --prepare
    User: In the fork.`);
  expect(linesIn(file)).toEqual(before);
  await say(`
    $ merge {id} aaaa4 --summary 'The map is faster.'
    The summary of 4 entries up to aaaa4444 is {entry=}, the new leaf.
    $ merge {id} aaaa4 --summary 'The map is faster.' !! has merged all of that branch already
    $ merge {id} leaf --from {other} --summary - ::`);
  const server = serveHere(["--session", file, "--events", "none"], { place });
  const { messages } = await server.result("get_messages");
  expect(messages.slice(-2).map(({ summary }: Json) => summary)).toEqual(["The map is faster.", "From the fork."]);
});
