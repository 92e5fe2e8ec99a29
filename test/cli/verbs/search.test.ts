/** The verb search: its requests, and its text for people. */

import { rmSync } from "node:fs";
import { beforeEach, expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { chain, put } from "../../support/searching.ts";
import { type Json, type Place, temporaryPlace } from "../../support/server.ts";
import { expectTame, playVerbs, type RunOptions, runHere, wordsIn } from "../../support/verbs.ts";

const OPTIONS: RunOptions = { now: Date.parse("2026-03-18T14:30:00Z"), variables: { TZ: "UTC" } };
const MARCH = "2026-03-10T12:00:00Z";
const FEBRUARY = "2026-02-10T12:00:00Z";

/** A draft with the time of its message. */
function at(time: string, draft: Json): Json {
  return { ...draft, message: { ...draft.message, timestamp: Date.parse(time) } };
}

const message = (role: string, block: object, more: object = {}): Json => {
  return { type: "message", message: { role, content: [block], ...more } };
};
const call = (name: string, args: object): Json =>
  message("assistant", { type: "toolCall", id: "c", name, arguments: args });
const output = (text: string): Json =>
  message("toolResult", { type: "text", text }, { toolCallId: "c", toolName: "bash", isError: /^Error/.test(text) });

let place: Place;
beforeEach(() => {
  place = temporaryPlace();
  const said = (id: string, time: string, drafts: Json[], header = {}, name: Json[] = []) =>
    put(place, id, chain(...name, ...drafts.map((draft) => at(time, draft))), header);
  const path = "src/store.ts";
  const [read, edit] = [call("read", { path }), call("edit", { path, newText: "timeout = 5" })];
  const migrating = [call("bash", { command: "cd db && npm run migrate" }), output("ok")];
  const name = [{ type: "session_info", name: "Move the tables" }];
  said("01aaaaaa-1111", MARCH, [user("Bring the tables to the new form."), ...migrating], {}, name);
  const faster = user("Make the store faster.\nMind the timeout.");
  said("01bbbbbb-2222", MARCH, [faster, read, edit, output("Error: timeout of 5000 ms")], { cwd: place.cwd });
  said("01cccccc-3333", MARCH, [user("Read the store."), read, assistant("A timeout?")]);
  const writing = call("edit", { path });
  said("01dddddd-4444", FEBRUARY, [user("Old one"), writing, output("timeout, long ago")]);
});

const say = (text: string) => playVerbs(place, { entry: /\w{8}/ }, OPTIONS)(text);

test("what a person asks is found, and told with what is around it", async () => {
  await say(`
    $ search 'npm run migrate'
    01aaaaaa  2026-03-10  /home/me/01aaaaaa-1111  Move the tables
      {entry}  assistant: bash  2026-03-1{...}
        cd db && **npm** **run** **migrate**
    $ search timeout --in user
    01bbbbbb {...}
      {entry}  user  {...}
        Mind the **timeout**.
    $ search timeout --in results --until march
    01dddddd {...}Old one
      {entry}  toolResult: bash{...}
        **timeout**, long ago`);
});

test.each([
  ["npm run migrate --tool bash", "a"],
  ["--file src/store.ts --tool edit,write --since 'this month' --sessions", "b"],
  ["--file store.ts --tool edit --sessions", "bd"],
  ["--file ./src/store.ts --sessions", "b"],
  ["timeout --in results --since march", "b"],
  ["--failed", "b"],
  ["timeout --failed --in results", "b"],
  // Words and calls are searched unless something else is asked for.
  ["timeout --sessions", "bc"],
  ["timeout --tools --sessions", "bcd"],
  ["timeout --in user,calls --sessions", "b"],
  ["timeout --role assistant", "c"],
  ["timeout --cwd {cwd} --in all", "b"],
  ["timeout --cwd --in all", "b"],
])("search %s finds %s", async (words, found) => {
  const { stdout, stderr } = await runHere(place, ["search", ...wordsIn(words, { cwd: place.cwd })], OPTIONS);
  const short = stdout.match(/^01\w{6}(?= )/gm)?.map((id) => id[2]);
  expect([stderr, short?.sort().join("")]).toEqual(["", found]);
});

test("sessions, their paths and numbers; it ends with 1 when nothing is found, as grep does", async () => {
  await say(`
    $ search timeout --in all --count
    5
    $ search timeout --in all --count --sessions
    3
    $ search timeout --in all --paths
    + 01bbbbbb-2222.jsonl$
    + 01cccccc-3333.jsonl$
    + 01dddddd-4444.jsonl$
    - ^[^/]|01aaaaaa
    $ search timeout --in all --paths --limit 2
    {one=}
    {two=}
    $ search timeout --in all --count --json | sessions.length
    3
    $ search timeout --in all --count --json | count
    5
    $ search no such
    Nothing was found. --tools searches the output of tools, too; list --query searches names and labels.
    = 1
    $ search --file ./nosuch.ts --tool edit
    Nothing was found. --file nosuch.ts finds it below any directory.
    = 1
    $ search nosuch --count
    0
    = 1
    $ search nosuch --paths
    = 1
    $ search nosuch --sessions
    Nothing was found. --tools searches the output of tools, too; list --query searches names and labels.
    = 1
    $ search nosuch --sessions --tools
    Nothing was found.
    = 1
    $ search nosuch --json | hits
    []
    = 1
    $ search -- --tools
    Nothing was found. --tools searches the output of tools, too; list --query searches names and labels.
    = 1
    $ list --since march --paths
    + 01aaaaaa
    + 01bbbbbb
    + 01cccccc
    - 01dddddd`);
});

test("hits are coloured on a terminal that wants colours", async () => {
  for (const columns of [40, 200]) {
    const words = ["search", "timeout", "--in", "all"];
    const { stdout } = await runHere(place, words, { ...OPTIONS, terminal: { columns } });
    expect(stdout).toContain("\u001b[33mtimeout\u001b[39m");
    expect(expectTame(stdout, columns).match(/^01\w{6} {2}2026/gm)).toHaveLength(3);
  }
  await say("$ @40 NO_COLOR=1 search timeout --in user :: \\*\\*timeout\\*\\*");
});

test("what forks took over is shown once, with the forks, and marked where the original is not found", async () => {
  const [first] = chain(at(MARCH, user("Where is the walrus?")));
  const entry = { ...first, timestamp: "2026-03-10T12:00:00.000Z" };
  const other = { ...at("2026-03-12T12:00:00Z", user("The walrus again.")), id: "beef0001", parentId: entry.id };
  const header = { timestamp: "2026-03-11T00:00:00.000Z" };
  const name = { type: "session_info", id: "beef0002", parentId: entry.id, name: "Another way" };
  const original = put(place, "01eeeeee-5555", [entry], { timestamp: "2026-03-01T00:00:00.000Z" });
  const fork = put(place, "01ffffff-6666", [entry, name], { ...header, parentSession: original });
  put(place, "01abcdef-7777", [entry, other], { ...header, parentSession: fork });
  const run = async (...args: string[]) => (await runHere(place, ["search", "walrus", ...args], OPTIONS)).stdout;
  const found = await run();
  expect(found.match(/Where is the \*\*walrus\*\*/g)).toHaveLength(1);
  for (const title of ["01ffffff Another way", "01abcdef Where is the walrus?"])
    expect(found).toContain(`    ↳ also in ${title}\n`);
  expect(found).toContain("The **walrus** again.");
  const { hits } = JSON.parse(await run("--json"));
  const origins = hits.map((hit: Json) => [hit.sessionId, hit.inheritedFrom?.sessionId]);
  expect(origins.sort()).toEqual([
    ["01abcdef-7777", undefined],
    ["01abcdef-7777", "01eeeeee-5555"],
    ["01eeeeee-5555", undefined],
    ["01ffffff-6666", "01eeeeee-5555"],
  ]);
  expect((await run("--sessions")).match(/↳.*/g)).toEqual([expect.stringContaining("↳ Another way")]);
  expect((await run("--cwd", "/home/me/01abcdef-7777")).match(/↳.*/g)).toEqual(["↳ from 01eeeeee-5555"]);
  // Without the session in between, its origin is unknown.
  rmSync(fork);
  expect(await run("--cwd", "/home/me/01abcdef-7777")).not.toContain("↳ from");
});

test("without words, a failure shows the line that says what failed, and empty words are a mistake", async () => {
  const text = "Process exited with code 1\nrunning 12 tests\nAssertionError: 4 is not 5\nCommand exited with code 1";
  const block = { type: "text", text };
  const failed = message("toolResult", block, { toolCallId: "c", toolName: "bash", isError: true });
  put(place, "01eeeeee-5555", chain(at(MARCH, failed)));
  await say(`
    $ search --failed --cwd /home/me/01eeeeee-5555
    01eeeeee {...}
      {entry}  toolResult: bash{...}
        AssertionError: 4 is not 5
    $ search '' !2 The words are empty. Give words, or --tool, --file or --failed.`);
});
