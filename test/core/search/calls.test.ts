/** The text that searches see: of tool calls the texts and the files that they name, of a text its words. */

import { describe, expect, test } from "vitest";
import { findToolUses } from "../../../src/core/search/calls.ts";
import { getPathEnds, hasFile, NamedFiles, normalizeFileName } from "../../../src/core/search/named-files.ts";
import { splitWords } from "../../../src/core/search/query.ts";
import { processorTimeOf } from "../../support/processor.ts";
import { acrossTiers } from "../../support/tiers.ts";

const CWD = "/home/me/app";

function callOf(args: unknown, name = "tool") {
  const content = [{ type: "toolCall", id: "c", name, arguments: args }];
  return findToolUses({ role: "assistant", content }, CWD)[0];
}

function deep(levels: number): string {
  return `${"[".repeat(levels)}"needle"${"]".repeat(levels)}`;
}

test.each([
  ["members in their order, without names", { command: "npm run migrate", timeout: 30 }, "npm run migrate\n30"],
  ["lists on one line", { command: ["npm", "run", "migrate"], and: "x" }, "npm run migrate\nx"],
  ["members of members", { edits: [{ oldText: "a", newText: "b" }], ok: true, none: null }, "a\nb"],
  ["the text of their JSON", '{"command":"echo \\"hi\\""}', 'echo "hi"'],
  ["a text that is no JSON", "{ npm test", "{ npm test"],
  ["a text", "npm test", "npm test"],
  ["a list", ["a", "b"], "a b"],
  ["a number", 7, "7"],
  ["nothing", undefined, ""],
  ["null", null, ""],
  ["lone surrogates and NUL", { a: "\ud800\0\udc00" }, "\ud800\0\udc00"],
  ["what is deeper than a stack", JSON.parse(deep(100_000)), "needle"],
  ["JSON that is deeper than a stack", deep(100_000), "needle"],
  ["a member that is named as one of all objects", JSON.parse('{"__proto__":{"x":"a"},"constructor":"b"}'), "a\nb"],
])("arguments: %s", (_, args, text) => expect(callOf(args).text).toBe(text));

test("what is long is cut, and its path is known nevertheless, wherever it stands", () => {
  const content = `begin ${"x".repeat(1 << 18)} end`;
  const path = "src/a.ts";
  for (const args of [{ path, content }, JSON.parse(JSON.stringify({ content, path }))]) {
    const { text, files } = callOf(args, "write");
    expect([text.includes("begin"), text.includes("end"), text.length < 10_000]).toEqual([true, false, true]);
    expect(files).toEqual(["/home/me/app/src/a.ts"]);
  }
  const many = callOf(Array.from({ length: 5000 }, (_, n) => `argument ${n} ${"y".repeat(1000)}`));
  expect(many.text.length).toBeLessThan(40_000);
  const pair = callOf({ content: `${"x".repeat(8191)}🦓` }).text;
  expect(pair).toBe("x".repeat(8191));
});

const use = (tool: string, text: string, ...files: string[]) => ({ tool, text, files });

test("messages that are not as they should be have the calls that they have", () => {
  expect(findToolUses({ role: "assistant", content: "text" }, CWD)).toEqual([]);
  const content = [null, 1, "x", { type: "toolCall" }, { type: "toolCall", name: 5, arguments: { a: "b" } }];
  expect(findToolUses({ role: "assistant", content }, CWD)).toEqual([use("", ""), use("", "b")]);
  expect(findToolUses({ role: "user", content }, CWD)).toEqual([]);
  const command = { role: "bashExecution", command: "cat a.txt", output: "no" };
  expect(findToolUses(command, CWD)).toEqual([use("bash", "cat a.txt", "/home/me/app/a.txt")]);
});

describe("results", () => {
  const usesOf = (more: object) => findToolUses({ role: "toolResult", toolName: "edit", content: [], ...more }, CWD);

  test("tell the files in their details, but for a patch of an edit, whose call names it", () => {
    const patch = "--- a/src/x.ts\n+++ b/src/x.ts\n@@ -1 +1 @@\n-a\n+b";
    const file = "/home/me/app/src/x.ts";
    expect(usesOf({ details: { path: "src/x.ts", diff: "-a\n+b" } })).toEqual([use("edit", file, file)]);
    expect(usesOf({ details: { diff: "x", patch } })).toEqual([]);
    expect(usesOf({ toolName: "refactor", details: { patch } })[0].files).toEqual(["/home/me/app/src/x.ts"]);
    for (const details of [null, 1, "text", [], { path: 5 }]) expect(usesOf({ details })).toEqual([]);
  });

  test("tell the calls of a script", () => {
    const calls = [{ name: "read", arguments: { path: "/etc/hosts" } }, null, { name: "bash" }];
    const uses = [use("read", "/etc/hosts", "/etc/hosts"), use("", ""), use("bash", "")];
    expect(usesOf({ nestedCalls: { calls } })).toEqual(uses);
  });
});

describe("files", () => {
  const named = (...args: [string, string][]): readonly string[] => {
    const files = new NamedFiles("/w");
    for (const [name, text] of args) files.addArgument(name, text);
    return files.all;
  };

  test.each([
    ["path", "src/x.ts", ["/w/src/x.ts"]],
    ["file_path", "/a/b.ts", ["/a/b.ts"]],
    ["filePath", "./src/../x.ts", ["/w/x.ts"]],
    ["cwd", "packages/api", ["/w/packages/api"]],
    ["path", "@src/x.ts", ["/w/src/x.ts"]],
    ["path", "C:\\work\\x.ts", ["/C:/work/x.ts"]],
    ["content", "src/x.ts", []],
    ["path", "two\nlines", []],
    ["path", "x".repeat(5000), []],
  ])("of the argument %s: %s", (name, text, files) => expect(named([name, text])).toEqual(files));

  test.each([
    ["npm test && cat src/x.ts | head -5", ["/w/src/x.ts"]],
    ["FOO=a/b node --config=etc/c.json run.js:12:5", ["/w/a/b", "/w/etc/c.json", "/w/run.js"]],
    ["cat 'my dir/a b.txt' my\\ file.md > \"out/$(date).log\"", ["/w/my dir/a b.txt", "/w/my file.md"]],
    ['bash -c "sed -i s,a,b, src/y.ts"', ["/w/src/y.ts"]],
    ["cat > a.ts <<'END'\nimport b from './b.ts';\nEND\nwc -l c.ts", ["/w/a.ts", "/w/c.ts"]],
    ["curl https://example.com/x.html -o page.html", ["/w/page.html"]],
    ["make -f Makefile all 1.5 -x", ["/w/Makefile"]],
    ["npm run migrate", []],
  ])("of the command %s", (command, files) =>
    expect(named(["command", command])).toEqual(expect.arrayContaining(files)),
  );

  test("of a command without any there are none", () => expect(named(["command", "npm run build 2 > 1"])).toEqual([]));

  test("of a patch", () => {
    const patch = "*** Begin Patch\n*** Update File: src/a.ts\n*** Move to: src/b.ts\n*** End Patch";
    expect(named(["input", patch])).toEqual(["/w/src/a.ts", "/w/src/b.ts"]);
    expect(named(["diff", "--- /dev/null\n+++ b/new.ts\t2026\n+--- no\n"])).toEqual(["/w/new.ts"]);
  });

  test("no more than a call can be about", () => {
    const command = Array.from({ length: 10_000 }, (_, n) => `f${n}.ts`).join(" ");
    expect(named(["command", command])).toHaveLength(64);
  });

  test.each(['"', "'", "\\", "$(", "`", "<<", "<<''", "a".repeat(1 << 20), `${'"\\"'.repeat(1 << 16)}`])(
    "a command that is no command does no harm",
    (command) => void named(["command", command]),
  );

  test.each([
    [":1".repeat(1 << 15), "command"],
    [`${"'\"".repeat(1 << 15)}`, "command"],
    [`--- ${"a".repeat(1 << 16)}\n--- b\n+++ x`, "diff"],
    [`${"*** ".repeat(1 << 14)}`, "diff"],
    [`${"<<a\n".repeat(1 << 14)}`, "command"],
  ])("takes no time with what a pattern could get lost in", async (text, name) => {
    expect(await processorTimeOf(() => named([name, text]))).toBeLessThan(1000);
  });

  test("are found by their ends, by whole names", () => {
    const files = ["/home/me/app/src/store.ts", "rel/a.ts"];
    for (const wanted of ["store.ts", "src/store.ts", "./src//store.ts", "/home/me/app/src/store.ts", "a.ts"])
      expect(hasFile(files, normalizeFileName(wanted, null) as string), wanted).toBe(true);
    for (const wanted of ["ore.ts", "/src/store.ts", "store", "other/store.ts", "rel", "../src/store.ts"])
      expect(hasFile(files, normalizeFileName(wanted, null) as string), wanted).toBe(false);
    expect(getPathEnds("/a/b/c.ts")).toEqual(["c.ts", "b/c.ts", "a/b/c.ts"]);
    expect(getPathEnds(`/${"d/".repeat(50)}c.ts`)).toHaveLength(16);
    for (const nothing of ["", "/", ".", "./"]) expect(normalizeFileName(nothing, null), nothing).toBeUndefined();
    expect(normalizeFileName("cafe\u0301.txt", null)).toBe("café.txt");
  });
});

acrossTiers(test, [100, 7_000_000])("a run of %d characters is cut into pieces that overlap by half", (length) => {
  const run = Array.from({ length: 10 }, (_, n) => `${n}`.repeat(Math.floor(length / 10))).join("");
  const words = [...splitWords(`before ${run} after`)];
  expect([words[0], words.at(-1)]).toEqual(["before", "after"]);
  const pieces = words.slice(1, -1);
  expect(pieces.filter((piece) => piece.length > 64)).toEqual([]);
  expect(pieces.slice(1).filter((piece, n) => !piece.startsWith(pieces[n].slice(32)))).toEqual([]);
  expect(pieces.map((piece, n) => (n === 0 ? piece : piece.slice(32))).join("")).toBe(run);
});
