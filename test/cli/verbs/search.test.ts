/** The verb search: what people ask it, and what they read. */

import { rmSync } from "node:fs";
import { beforeEach, describe, expect, test } from "vitest";
import { widthOf } from "../../../src/cli/terminal/text.ts";
import { assistant, user } from "../../support/drafts.ts";
import { chain, put } from "../../support/searching.ts";
import { type Json, type Place, temporaryPlace } from "../../support/server.ts";
import { type RunOptions, runHere } from "../../support/verbs.ts";

const NOW = Date.parse("2026-03-18T14:30:00Z");
const IDS = { migrated: "01aaaaaa-1111", edited: "01bbbbbb-2222", asked: "01cccccc-3333", old: "01dddddd-4444" };

/** A draft with the time of its message. */
function at(time: string, draft: Json): Json {
  return { ...draft, message: { ...draft.message, timestamp: Date.parse(time) } };
}

const call = (name: string, args: object): Json => ({
  type: "message",
  message: { role: "assistant", content: [{ type: "toolCall", id: "c", name, arguments: args }] },
});
const output = (toolName: string, text: string): Json => ({
  type: "message",
  message: { role: "toolResult", toolCallId: "c", toolName, content: [{ type: "text", text }] },
});

let place: Place;
beforeEach(() => {
  place = temporaryPlace();
  const [march, february] = ["2026-03-10T12:00:00Z", "2026-02-10T12:00:00Z"];
  put(
    place,
    IDS.migrated,
    chain(
      { type: "session_info", name: "Move the tables" },
      at(march, user("Bring the tables to the new form.")),
      at(march, call("bash", { command: "cd db && npm run migrate" })),
      at(march, output("bash", "ok")),
    ),
  );
  put(
    place,
    IDS.edited,
    chain(
      at(march, user("Make the store faster.\nMind the timeout.")),
      at(march, call("read", { path: "src/store.ts" })),
      at(march, call("edit", { path: "src/store.ts", oldText: "a", newText: "timeout = 5" })),
      at(march, output("bash", "Error: timeout of 5000 ms")),
    ),
    { cwd: place.cwd },
  );
  put(
    place,
    IDS.asked,
    chain(
      at(march, user("Read the store.")),
      at(march, call("read", { path: "src/store.ts" })),
      at(march, assistant("A timeout?")),
    ),
  );
  put(
    place,
    IDS.old,
    chain(
      at(february, user("Old one")),
      at(february, call("edit", { path: "src/store.ts" })),
      at(february, output("bash", "timeout, long ago")),
    ),
  );
});

async function search(args: readonly string[], options: RunOptions = {}): Promise<{ text: string; status: number }> {
  const run = await runHere(place, ["search", ...args], { now: NOW, variables: { TZ: "UTC" }, ...options });
  expect(run.stderr).toBe("");
  return { text: run.stdout, status: run.status };
}

/** Short ids of the sessions that are printed, in order. */
async function sessionsOf(...args: string[]): Promise<string[]> {
  const { text } = await search(args);
  return [...text.matchAll(/^(01\w{6}) /gm)].map(([, id]) => id).sort();
}

describe("tasks", () => {
  test("where did I run `npm run migrate`", async () => {
    expect(await search(["npm run migrate"])).toEqual({
      status: 0,
      text: expect.stringMatching(
        /^01aaaaaa {2}2026-03-10 {2}\/home\/me\/01aaaaaa-1111 {2}Move the tables\n {2}\w{8} {2}assistant: bash {2}2026-03-1\d \d\d:\d\d\n {4}cd db && \*\*npm\*\* \*\*run\*\* \*\*migrate\*\*\n$/,
      ),
    });
    expect(await sessionsOf("npm", "run", "migrate", "--tool", "bash")).toEqual(["01aaaaaa"]);
  });

  test("which sessions edited src/store.ts this month", async () => {
    expect(
      await sessionsOf("--file", "src/store.ts", "--tool", "edit,write", "--since", "this month", "--sessions"),
    ).toEqual(["01bbbbbb"]);
    expect(await sessionsOf("--file", "store.ts", "--sessions")).toEqual(["01bbbbbb", "01cccccc", "01dddddd"]);
    expect(await sessionsOf("--file", "./src/store.ts", "--sessions")).toEqual(["01bbbbbb"]);
    const { text } = await search(["--file", "store.ts", "--tool", "edit", "--sessions"]);
    expect(text.split("\n").filter((line) => line !== "")).toHaveLength(2);
  });

  test("timeout only where I said it", async () => {
    const { text } = await search(["timeout", "--in", "user"]);
    expect(text).toMatch(/^01bbbbbb .*\n {2}\w{8} {2}user {2}.*\n {4}Mind the \*\*timeout\*\*\.\n$/);
  });

  test("only in tool output, before March", async () => {
    const { text } = await search(["timeout", "--in", "results", "--until", "march"]);
    expect(text).toMatch(/^01dddddd .*Old one\n.*toolResult: bash.*\n {4}\*\*timeout\*\*, long ago\n$/);
    expect(await sessionsOf("timeout", "--in", "results", "--since", "march")).toEqual(["01bbbbbb"]);
  });
});

test("words and calls are searched unless something else is asked for", async () => {
  expect(await sessionsOf("timeout", "--sessions")).toEqual(["01bbbbbb", "01cccccc"]);
  expect(await sessionsOf("timeout", "--tools", "--sessions")).toEqual(["01bbbbbb", "01cccccc", "01dddddd"]);
  expect(await sessionsOf("timeout", "--in", "user,calls", "--sessions")).toEqual(["01bbbbbb"]);
  expect(await sessionsOf("timeout", "--role", "assistant")).toEqual(["01cccccc"]);
  for (const here of [["--cwd", place.cwd], ["--cwd"]])
    expect(await sessionsOf("timeout", ...here, "--in", "all")).toEqual(["01bbbbbb"]);
});

test("sessions, their paths and numbers", async () => {
  expect((await search(["timeout", "--in", "all", "--count"])).text).toBe("5\n");
  expect((await search(["timeout", "--in", "all", "--count", "--sessions"])).text).toBe("3\n");
  const { text } = await search(["timeout", "--in", "all", "--paths"]);
  expect(
    text
      .trimEnd()
      .split("\n")
      .map((path) => path.slice(-19))
      .sort(),
  ).toEqual([`${IDS.edited}.jsonl`, `${IDS.asked}.jsonl`, `${IDS.old}.jsonl`]);
  expect((await search(["timeout", "--in", "all", "--paths", "--limit", "2"])).text.trimEnd().split("\n")).toHaveLength(
    2,
  );
  const { sessions, count } = JSON.parse((await search(["timeout", "--in", "all", "--count", "--json"])).text);
  expect([sessions.length, count]).toEqual([3, 5]);
});

test("ends with 1 when nothing is found, as grep does, and prints no words where a program reads", async () => {
  expect(await search(["no", "such"])).toEqual({ text: "Nothing was found.\n", status: 1 });
  expect(await search(["nosuch", "--count"])).toEqual({ text: "0\n", status: 1 });
  for (const option of ["--paths", "--sessions"])
    expect(await search(["nosuch", option])).toEqual({ text: "", status: 1 });
  expect((await search(["nosuch", "--json"])).status).toBe(1);
  expect(await search(["--", "--tools"])).toEqual({ text: "Nothing was found.\n", status: 1 });
});

test.each([
  [[], /search needs <words\.\.\.>/],
  [["x", "--in", "names"], /--in takes user, assistant, calls, results, all/],
  [["x", "--in", "user,"], /--in takes names/],
  [["x", "--since", "whenever"], /--since takes a time/],
  [["--tool", ""], /--tool takes names/],
])("%j is refused", async (args, sentence) => {
  const { stdout, stderr, status } = await runHere(place, ["search", ...(args as string[])], { now: NOW });
  expect([stdout, status]).toEqual(["", 2]);
  expect(stderr).toMatch(sentence);
});

test("no line is wider than the terminal, and hits are coloured there", async () => {
  for (const columns of [40, 80, 200]) {
    const { text } = await search(["timeout", "--in", "all"], { terminal: { columns } });
    expect(text).toContain("\u001b[33mtimeout\u001b[39m");
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours
    const lines = text.replace(/\u001b\[\d+m/g, "").split("\n");
    expect(Math.max(...lines.map(widthOf))).toBeLessThanOrEqual(columns);
    expect(lines.filter((line) => /^01\w{6} {2}2026/.test(line))).toHaveLength(3);
  }
  const plain = await search(["timeout", "--in", "user"], {
    terminal: { columns: 40 },
    variables: { NO_COLOR: "1", TZ: "UTC" },
  });
  expect(plain.text).toContain("**timeout**");
  expect(Math.max(...plain.text.split("\n").map(widthOf))).toBeLessThanOrEqual(40);
});

test("nothing that was stored acts on the terminal", async () => {
  const bad = "\u001b[31m\u202e\u0007\0 evil";
  const there = temporaryPlace();
  put(
    there,
    "evil",
    chain({ type: "session_info", name: bad }, user("x"), call(bad, { command: bad, path: `${bad}/x.ts` })),
    { cwd: bad },
  );
  const { stdout } = await runHere(there, ["search", "evil"], {
    now: NOW,
    terminal: { columns: 80 },
    variables: { NO_COLOR: "1" },
  });
  expect(stdout).toContain("\\u001b[31m");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
  expect(stdout.replaceAll("\n", "")).not.toMatch(/[\u0000-\u001f\u202e]/);
});

test("list takes the same times", async () => {
  const { stdout } = await runHere(place, ["list", "--since", "march", "--paths"], { now: NOW });
  expect(stdout.trimEnd().split("\n")).toHaveLength(3);
  expect((await runHere(place, ["list", "--since", "soon"], { now: NOW })).status).toBe(2);
});

test("what forks took over is shown once, with the forks, and marked where the original is not found", async () => {
  const [first] = chain(at("2026-03-10T12:00:00Z", user("Where is the walrus?")));
  const entry = { ...first, timestamp: "2026-03-10T12:00:00.000Z" };
  const other = { ...at("2026-03-12T12:00:00Z", user("The walrus again.")), id: "beef0001", parentId: entry.id };
  const header = { timestamp: "2026-03-11T00:00:00.000Z" };
  const name = { type: "session_info", id: "beef0002", parentId: entry.id, name: "Another way" };
  const original = put(place, "01eeeeee-5555", [entry], { timestamp: "2026-03-01T00:00:00.000Z" });
  const fork = put(place, "01ffffff-6666", [entry, name], { ...header, parentSession: original });
  put(place, "01abcdef-7777", [entry, other], { ...header, parentSession: fork });
  const run = async (...args: string[]) => (await runHere(place, ["search", "walrus", ...args], { now: NOW })).stdout;
  const found = await run();
  expect(found.match(/Where is the \*\*walrus\*\*/g)).toHaveLength(1);
  expect(found).toContain("    ↳ also in 01ffffff Another way\n");
  expect(found).toContain("    ↳ also in 01abcdef Where is the walrus?\n");
  expect(found).toContain("The **walrus** again.");
  const { hits } = JSON.parse(await run("--json"));
  const origins = hits.map(({ sessionId, inheritedFrom }: Json) => [sessionId, inheritedFrom?.sessionId]);
  expect(origins.sort()).toEqual([
    ["01abcdef-7777", undefined],
    ["01abcdef-7777", "01eeeeee-5555"],
    ["01eeeeee-5555", undefined],
    ["01ffffff-6666", "01eeeeee-5555"],
  ]);
  const lines = (await run("--sessions")).trimEnd().split("\n");
  expect(lines.filter((line) => line.includes("↳"))).toEqual([expect.stringContaining("↳ Another way")]);
  const there = await run("--cwd", "/home/me/01abcdef-7777");
  expect(there.match(/↳.*/g)).toEqual(["↳ from 01eeeeee-5555"]);
  // Without the session in between, nothing tells where it came from.
  rmSync(fork);
  expect(await run("--cwd", "/home/me/01abcdef-7777")).not.toContain("↳ from");
});
