/** Each verb in this process: what it asks the server, what a person gets to read, and how it ends. */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { verbs } from "../../src/cli/table.ts";
import { widthOf } from "../../src/cli/terminal/text.ts";
import type { Verb } from "../../src/cli/verb.ts";
import { Wire } from "../../src/cli/wire.ts";
import { folderName } from "../../src/storage/fs/paths.ts";
import { letRest } from "../support/cases.ts";
import { assistant, SPOKEN } from "../support/drafts.ts";
import { entryText, fileText, headerText, SESSION, TIME, userText } from "../support/lines.ts";
import { type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { type Run, type RunOptions, runHere } from "../support/verbs.ts";

const DAY_AFTER = Date.parse(TIME) + 86_400_000;
const OTHER = "01991f6e-2222-7c3e-b0a4-0242ac120003";

/** A session among the others. */
function stored(place: Place, id: string, lines: readonly string[], header: object = {}): string {
  const folder = join(place.home, ".pi/agent/sessions", folderName("/home/me/project"));
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `${TIME.replace(/[:.]/g, "-")}_${id}.jsonl`);
  writeFileSync(file, fileText(headerText({ id, ...header }), ...lines));
  letRest(file);
  return file;
}

const LINES = [
  userText("a", null, "Name a colour of the rainbow."),
  entryText("message", "b", "a", {
    message: { ...assistant("Blue.").message, model: "sonnet", timestamp: undefined },
  }),
  userText("c", "b", "Another?"),
  entryText("message", "d", "c", {
    message: {
      role: "assistant",
      usage: SPOKEN.usage,
      content: [
        { type: "thinking", thinking: "hmm" },
        { type: "text", text: "Let me look." },
        { type: "toolCall", id: "t1", name: "read", arguments: { path: "colours.txt" } },
      ],
    },
  }),
  entryText("message", "e", "d", {
    message: {
      role: "toolResult",
      toolCallId: "t1",
      toolName: "read",
      content: [{ type: "text", text: Array.from({ length: 40 }, (_, i) => `colour ${i}`).join("\n") }],
    },
  }),
  entryText("label", "f", "e", { targetId: "b", label: "first answer" }),
  userText("g", "b", "Not that one."),
];

const SPOKEN_BY_USER = { type: "message", message: { role: "user", content: "And this?" } };

/** A place with two sessions, the same each time. */
function ready(): { place: Place; file: string; other: string } {
  const place = temporaryPlace();
  const other = stored(place, OTHER, [userText("x", null, "Something else: 日本語 😀")]);
  return { place, file: stored(place, SESSION, LINES), other };
}

async function run(place: Place, args: readonly string[], options?: RunOptions): Promise<Run> {
  return runHere(place, args, { now: DAY_AFTER, ...options });
}

/** A path as the verbs print it. */
function short(place: Place, path: string): string {
  return path.replace(place.home, "~");
}

async function printed(place: Place, args: readonly string[], options?: RunOptions): Promise<string> {
  const { stdout, stderr, status } = await run(place, args, options);
  expect([stderr, status]).toEqual(["", 0]);
  return stdout;
}

/** Times and ids differ from run to run, and folders from place to place. */
function timeless(text: string, { home }: Place): string {
  return text
    .replaceAll(home, "<home>")
    .replaceAll(encodeURIComponent(home), "<home>")
    .replace(/\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d[-.]\d{3}Z/g, "<time>")
    .replace(/01991f6e-0000-7000-8000-\d{12}/g, "<session>")
    .replace(/"[0-9a-f]{12}"/g, '"<operation>"')
    .replace(/"e[0-9a-f]{7}"/g, '"<entry>"');
}

type Asked = readonly [method: string, params: (at: { file: string; other: string; place: Place }) => object];

const ID = { sessionId: SESSION };
const OPENED: Asked = ["switch_session", () => ID];

/** What each verb asks, one after the other; the last result is what it prints. */
const ASKED: Readonly<Record<string, { args: readonly string[]; asks: readonly Asked[]; before?: Asked }>> = {
  list: { args: [], asks: [["list_sessions", () => ({})]] },
  search: {
    args: ["colour"],
    asks: [["search_sessions", () => ({ query: "colour", in: ["user", "assistant", "toolCall"] })]],
  },
  show: { args: [SESSION], asks: [OPENED, ["get_messages", () => ({})]] },
  tree: { args: [SESSION], asks: [OPENED, ["get_tree", () => ({})]] },
  stats: { args: [SESSION], asks: [OPENED, ["get_session_stats", () => ({})]] },
  compare: {
    args: [SESSION, "e", "g"],
    asks: [OPENED, ["compare_branches", () => ({ a: "e", b: "g" })]],
  },
  merge: {
    args: [SESSION, "e", "--summary", "It is blue."],
    asks: [OPENED, ["merge_branch", () => ({ from: "e", summary: "It is blue." })]],
  },
  rename: { args: [SESSION, "A", "name"], asks: [OPENED, ["set_session_name", () => ({ name: "A name" })]] },
  fork: { args: [SESSION, "c"], asks: [OPENED, ["fork", () => ({ entryId: "c" })]] },
  delete: { args: [SESSION, "--yes"], asks: [["delete_session", () => ID]] },
  restore: { args: [SESSION], asks: [["restore_session", () => ID]], before: ["delete_session", () => ID] },
  archive: { args: [SESSION], asks: [["archive_session", () => ID]] },
  unarchive: { args: [SESSION], asks: [["unarchive_session", () => ID]], before: ["archive_session", () => ID] },
  operations: { args: [], asks: [["list_operations", () => ({})]], before: ["archive_session", () => ID] },
  undo: { args: [], asks: [["undo", () => ({})]], before: ["archive_session", () => ID] },
  trash: { args: [], asks: [["list_trash", () => ({})]], before: ["delete_session", () => ID] },
  relocate: {
    args: [SESSION, "/home/me/new", "--allow-missing"],
    asks: [["relocate_session", () => ({ ...ID, cwd: "/home/me/new", allowMissing: true })]],
  },
  export: { args: [SESSION], asks: [OPENED, ["export_session", () => ({ format: "jsonl" })]] },
  import: { args: ["in.jsonl"], asks: [["import_session", () => ({ path: "in.jsonl" })]] },
  verify: { args: [SESSION], asks: [OPENED, ["verify_session", () => ({})]] },
  prune: { args: [], asks: [["list_leftovers", () => ({})]] },
  recover: { args: [], asks: [["list_kept", () => ({})]] },
  repair: { args: [SESSION], asks: [OPENED, ["repair_session", () => ({})]] },
};

/** Verbs that ask nothing over the wire, or a person. */
const UNASKED = [
  "browse",
  "doctor",
  "fleet",
  "resume",
  "follow",
  "view",
  "index",
  "schema",
  "completion",
  "conformance",
  "help",
  "version",
];

describe("--json prints the result of the command as it came", () => {
  // Of verbs that were added since, their own tests tell.
  test.each(Object.entries(ASKED))("%s", async (verb, { args, asks, before }) => {
    const [ours, theirs] = [ready(), ready()];
    const content = fileText(headerText({ id: "brought" }), ...LINES);
    for (const { place } of [ours, theirs]) writeFileSync(join(place.cwd, "in.jsonl"), content);
    const server = serveHere(["--events=none"], { place: theirs.place });
    if (before) {
      const [method, params] = before;
      await server.result(method, params(theirs));
      const first = serveHere(["--events=none"], { place: ours.place });
      await first.result(method, params(ours));
      await first.finish();
    }
    let result: Json;
    for (const [method, params] of asks) result = await server.result(method, params(theirs));
    const { stdout, stderr, status } = await run(ours.place, [verb, ...args, "--json"]);
    expect([stderr, status]).toEqual(["", 0]);
    expect(timeless(stdout, ours.place)).toBe(timeless(`${JSON.stringify(result)}\n`, theirs.place));
  });

  test("every verb is looked at", () => {
    const known = new Set([...Object.keys(ASKED), ...UNASKED, "redo", "migrate", "rollback", "status"]);
    expect(verbs.map(({ name }) => name).filter((name) => !known.has(name))).toEqual([]);
  });

  test("entries keep their bytes", async () => {
    const place = temporaryPlace();
    const line =
      '{"type":"message","id":"n","parentId":null,"timestamp":"t","message":{"role":"user","content":"x"},"n":1.0,"b":2,"a":1e2}';
    stored(place, SESSION, [line]);
    expect(await printed(place, ["show", SESSION, "--path", "--json"])).toBe(`{"entries":[${line}]}\n`);
  });
});

describe("list", () => {
  test("is a table that fits", async () => {
    const { place } = ready();
    stored(place, "01991f6e-3333-7c3e-b0a4-0242ac120004", [
      userText("y", null, `\u001b[2J\u202eevil ${"很长的第一句话".repeat(20)}`),
      entryText("session_info", "z", "y", { name: "한국어 이름 ".repeat(12) }),
    ]);
    for (const width of [20, 34, 50, 80, 140]) {
      const lines = (await printed(place, ["list"], { terminal: { columns: width } })).trimEnd().split("\n");
      expect(lines).toHaveLength(4);
      for (const line of lines.map(uncoloured)) {
        expect(widthOf(line)).toBeLessThanOrEqual(width);
        expect(line).not.toMatch(/[\p{Cc}\u202e]/u);
      }
    }
    expect((await printed(place, ["list", "--query", "rainbow"])).split("\n")).toEqual([
      " AGE  MSGS  NAME OR FIRST MESSAGE                   DIRECTORY         ID",
      "  1d     6  Name a colour of the rainbow.           /home/me/project  01991f6e-1",
      "",
    ]);
  });

  test("shows as much of ids as tells them apart", async () => {
    const { place } = ready();
    const out = await printed(place, ["list"]);
    expect(out).toContain("01991f6e-1\n");
    expect(out).toContain("01991f6e-2\n");
    expect(await printed(place, ["stats", "01991f6e-2"])).toContain(OTHER);
    const { stderr, status } = await run(place, ["stats", "01991f6e"]);
    expect([stderr, status]).toEqual([expect.stringContaining("Several session ids begin with this"), 1]);
  });

  test("is filtered, limited, and says what it leaves out", async () => {
    const { place, file, other } = ready();
    stored(place, "01991f6e-4444-7c3e-b0a4-0242ac120005", [], { cwd: place.cwd });
    expect((await printed(place, ["list", "--paths"])).split("\n").sort()).toEqual(["", file, other].sort());
    expect(await printed(place, ["list", "--limit", "1"])).toMatch(/\n1 more session\.\n$/);
    expect(await printed(place, ["list", "--limit=1", "--paths"])).toMatch(/^\S+\n$/);
    expect(await printed(place, ["list", "--cwd", "."])).toBe("There are no sessions.\n");
    expect((await printed(place, ["list", "--cwd", ".", "--all", "--paths"])).split("\n")).toHaveLength(2);
    expect(await printed(place, ["list", "--archived"])).toBe("There are no archived sessions.\n");
    await printed(place, ["archive", SESSION]);
    expect(await printed(place, ["list", "--archived"])).toContain("Name a colour");
    expect(await printed(place, ["list"])).not.toContain("Name a colour");
  });

  test("gives a terminal fifty", async () => {
    const place = temporaryPlace();
    for (let i = 0; i < 52; i++) stored(place, `s${i}`, [userText("a", null)]);
    const columns = { terminal: { columns: 80 } };
    expect(await printed(place, ["list"], columns)).toContain("2 more sessions.");
    expect((await printed(place, ["list", "--all"], columns)).split("\n")).toHaveLength(54);
    expect((await printed(place, ["list"])).split("\n")).toHaveLength(54);
  });
});

// biome-ignore lint/suspicious/noControlCharactersInRegex: colours are what is taken out
const COLOUR = /\u001b\[\d+m/g;

function uncoloured(text: string): string {
  return text.replace(COLOUR, "");
}

test("colours are for terminals that want them", async () => {
  const { place } = ready();
  const terminal = { columns: 80 };
  const out = async (variables: Record<string, string>, isTerminal: boolean): Promise<boolean> =>
    (await printed(place, ["tree", SESSION], { variables, terminal: isTerminal ? terminal : {} })).search(COLOUR) >= 0;
  expect(await out({}, true)).toBe(true);
  expect(await out({}, false)).toBe(false);
  expect(await out({ NO_COLOR: "1" }, true)).toBe(false);
  expect(await out({ NO_COLOR: "" }, true)).toBe(true);
  expect(await out({ TERM: "dumb" }, true)).toBe(false);
  expect(await out({ FORCE_COLOR: "1" }, false)).toBe(true);
  expect(await out({ FORCE_COLOR: "0" }, true)).toBe(false);
  expect(await out({ FORCE_COLOR: "1", NO_COLOR: "1" }, false)).toBe(true);
});

describe("show and tree", () => {
  test("a conversation is readable", async () => {
    const { place } = ready();
    expect(await printed(place, ["show", SESSION])).toBe(
      "user\nName a colour of the rainbow.\n\nassistant anthropic/sonnet\nBlue.\n\nuser\nNot that one.\n",
    );
  });

  test("a terminal gets lines that end between words", async () => {
    const { place } = ready();
    const out = await printed(place, ["show", SESSION, "--limit", "1"], { terminal: { columns: 20 } });
    expect(uncoloured(out)).toContain("Name a colour of the\nrainbow.\n");
  });

  test("a path is told with ids, tool calls and results", async () => {
    const { place } = ready();
    const out = await printed(place, ["show", SESSION, "--entry", "f"]);
    expect(out).toContain(
      'assistant                                                    d  2026-01-24 16:22\n  hmm\nLet me look.\n> read {"path":"colours.txt"}\n',
    );
    expect(out).toContain(
      "result read                                                  e  2026-01-24 16:22\ncolour 0\n",
    );
    expect(out).toContain("colour 11\n(28 lines more; --full shows them)\n");
    expect(out).toContain("label first answer: b                                        f  2026-01-24 16:22\n");
    expect(await printed(place, ["show", SESSION, "--entry", "f", "--full"])).toContain("colour 39\n");
  });

  test("pages go on where they ended", async () => {
    const { place } = ready();
    const first = await printed(place, ["show", SESSION, "--limit", "2"]);
    const cursor = /^There is more: --cursor (.+)$/m.exec(first)?.[1] as string;
    expect(first).not.toContain("Not that one.");
    expect(await printed(place, ["show", SESSION, "--limit", "2", "--cursor", cursor])).toContain("Not that one.");
  });

  test("branches are drawn", async () => {
    const { place } = ready();
    const row = "  e  │  result read: colour 0 colour 1 colour 2 colour 3 colour 4 colour 5 colo…";
    expect(await printed(place, ["tree", SESSION])).toBe(`  a  user: Name a colour of the rainbow.
  b  assistant: Blue. [first answer]
  c  ├─ user: Another?
  d  │  assistant: Let me look. [read: colours.txt]
${row}
* g  user: Not that one.
`);
    expect(await printed(place, ["tree", SESSION, "--all"])).toContain(
      `${row}\n  f  │  label: first answer\n* g  user`,
    );
    expect(await printed(place, ["tree", SESSION, "--labels"])).toBe("* b  assistant: Blue. [first answer]\n");
    expect(await printed(place, ["tree", SESSION, "--filter", "user"])).toBe(
      "  a  user: Name a colour of the rainbow.\n  b  assistant: Blue. [first answer]\n  c  ├─ user: Another?\n* g  user: Not that one.\n",
    );
    expect((await run(place, ["tree", SESSION, "--filter", "people"])).status).toBe(2);
  });

  test("heads are named where they stand", async () => {
    const { place } = ready();
    const server = serveHere([], { place });
    await server.result("switch_session", { sessionId: SESSION, head: "reviewer" });
    await server.result("append", { entries: [{ ...SPOKEN_BY_USER, id: "h" }] });
    for (const head of ["before", "also"]) {
      await server.result("open_session", { sessionId: SESSION, head });
      await server.result("branch", { entryId: head === "before" ? null : "e" });
    }
    await server.finish();
    const drawn = await printed(place, ["tree", SESSION]);
    expect(drawn).toContain("  (before the first entry) (head before)\n");
    expect(drawn).toMatch(/^ {2}e {2}│ {2}result read: .*… \(head also\)$/m);
    expect(drawn).toContain("  h  user: And this? (head reviewer)\n");
    const told = await printed(place, ["tree", SESSION, "--plain"]);
    expect(told).toContain("h user: And this? (head reviewer)\n");
    // What is not shown stands where the row is that stands for it.
    expect(await printed(place, ["tree", SESSION, "--labels"])).toContain("[first answer] (heads also, reviewer)\n");
  });

  test("branches are told in words", async () => {
    const { place } = ready();
    const lines = (await printed(place, ["tree", SESSION, "--plain"])).split("\n");
    expect(lines[1]).toBe("b assistant: Blue., label first answer");
    expect(lines[2]).toBe("c branch of b: user: Another?");
    expect(lines[5]).toBe("g (leaf) user: Not that one.");
  });

  test("nothing that a terminal obeys comes through, whatever says it", async () => {
    const place = temporaryPlace();
    const nasty = "\u001b[31m\u009b2J\u202ex\u0007\u2066";
    const id = `i\u001b`;
    stored(place, SESSION, [
      entryText("message", id, null, { message: { role: nasty, content: nasty } }),
      entryText("message", "t", id, {
        message: { role: "toolResult", toolName: nasty, content: [{ type: "text", text: `${nasty}\r${nasty}` }] },
      }),
      entryText("message", "u", "t", {
        message: {
          role: "assistant",
          model: nasty,
          provider: nasty,
          errorMessage: nasty,
          content: [
            { type: "thinking", thinking: nasty },
            { type: "toolCall", id: "c", name: nasty, arguments: { [nasty]: nasty } },
            { type: "image", mimeType: nasty, data: "" },
          ],
        },
      }),
      entryText("message", "v", "u", { message: { role: "bashExecution", command: nasty, output: nasty } }),
      entryText("custom", "w", "v", { customType: nasty }),
      entryText(nasty, "x", "w"),
      entryText("label", "y", "x", { targetId: "v", label: nasty }),
      entryText("session_info", "z", "y", { name: nasty }),
      userText("zz", "z", nasty),
    ]);
    for (const args of [
      ["show", SESSION],
      ["show", SESSION, "--path", "--full"],
      ["tree", SESSION],
      ["tree", SESSION, "--all"],
      ["tree", SESSION, "--plain"],
      ["list"],
      ["stats", SESSION],
      ["search", "x"],
      ["verify", SESSION],
    ]) {
      const { stdout } = await run(place, args);
      expect(stdout.replaceAll("\n", ""), args.join(" ")).not.toMatch(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/u);
      expect(stdout.length).toBeGreaterThan(20);
    }
    const args = ["show", SESSION, "--path", "--json"];
    const onTerminal = await printed(place, args, { terminal: { columns: 80 } });
    expect(onTerminal.trimEnd()).not.toMatch(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/u);
    expect(JSON.parse(onTerminal)).toEqual(JSON.parse(await printed(place, args)));
  });
});

test("a session is found by the id of its header, whatever its file is called", async () => {
  const { place, file } = ready();
  const copy = join(file, "..", "my_copy.jsonl");
  writeFileSync(copy, fileText(headerText({ id: "copied" }), userText("a", null)));
  const odd = stored(place, "an_odd_id", [userText("a", null)]);
  for (const [id, path] of [
    ["copied", copy],
    ["cop", copy],
    ["an_odd_id", odd],
    ["an_odd", odd],
  ])
    expect(JSON.parse(await printed(place, ["stats", id, "--json"])).sessionFile).toBe(path);
});

describe("changes", () => {
  test("rename and fork", async () => {
    const { place } = ready();
    expect(await printed(place, ["rename", SESSION, "Colours", "and more"])).toBe(
      "The name is now Colours and more.\n",
    );
    expect(await printed(place, ["list"])).toContain("Colours and more");
    const forked = (await printed(place, ["fork", SESSION, "c"])).trimEnd();
    expect(existsSync(forked)).toBe(true);
    expect(await printed(place, ["show", forked])).not.toContain("Another?");
    const whole = (await printed(place, ["fork", SESSION])).trimEnd();
    expect(await printed(place, ["show", whole])).toContain("Not that one.");
    const at = (await printed(place, ["fork", SESSION, "b", "--at"])).trimEnd();
    expect(await printed(place, ["show", at])).toContain("Blue.");
  });

  test("delete asks, and takes no for an answer", async () => {
    const { place, file } = ready();
    const asked: string[] = [];
    const saying = (answer: string | undefined): RunOptions => ({
      terminal: {
        answer: async (question) => {
          asked.push(question);
          return answer;
        },
      },
    });
    for (const no of ["n", "", "no", "yes please"]) {
      const { stdout, stderr, status } = await run(place, ["delete", SESSION], saying(no));
      expect([stdout, stderr, status]).toEqual(["", "pi-session-server: Nothing was deleted.\n", 1]);
    }
    expect(asked[0]).toBe('Delete "Name a colour of the rainbow.", 6 messages, /home/me/project, 1d? [y/N] ');
    const piped = await run(place, ["delete", SESSION]);
    expect([piped.stdout, piped.stderr, piped.status]).toEqual(["", expect.stringContaining("--yes"), 2]);
    expect(existsSync(file)).toBe(true);

    const before = readFileSync(file);
    const id = SESSION.slice(0, 13);
    expect(await printed(place, ["delete", file], saying("y"))).toBe(
      `${id} is in the trash; undo brings it back, and so does restore.\n`,
    );
    expect(existsSync(file)).toBe(false);
    expect(await printed(place, ["restore", SESSION])).toBe(`${id} is back at ${short(place, file)}.\n`);
    expect(readFileSync(file)).toEqual(before);
    expect(await printed(place, ["delete", SESSION, "--permanent", "--yes"])).toBe(`${id} is deleted for good.\n`);
    expect(existsSync(file)).toBe(false);
  });

  test("archive, unarchive and relocate say where things went", async () => {
    const { place, file } = ready();
    const id = SESSION.slice(0, 13);
    expect(await printed(place, ["archive", SESSION])).toBe(
      `${id} is in the archive now; undo brings it back, and so does unarchive.\n`,
    );
    expect(existsSync(file)).toBe(false);
    expect(await printed(place, ["unarchive", SESSION])).toBe(`${id} is back at ${short(place, file)}.\n`);
    const missing = await run(place, ["relocate", file, "elsewhere"]);
    expect([missing.status, missing.stderr]).toEqual([
      2,
      expect.stringMatching(/no folder .*elsewhere.*--allow-missing/),
    ]);
    mkdirSync(join(place.cwd, "elsewhere"));
    const out = await printed(place, ["relocate", file, "elsewhere"]);
    const [, to, kept] = / is now at ~(.+)\.\nThe original is kept beside it \((.+)\)\.\n$/.exec(out) ?? [];
    expect([existsSync(`${place.home}${to}`), existsSync(`${place.home}${to}${kept}`)]).toEqual([true, true]);
    expect(await printed(place, ["list", "--cwd", "elsewhere"])).toContain("Name a colour");
  });

  test("export and import keep every byte, and nothing is overwritten", async () => {
    const { place, file } = ready();
    const out = join(place.cwd, "out.jsonl");
    expect(await printed(place, ["export", SESSION])).toBe(readFileSync(file, "utf8"));
    expect(await printed(place, ["export", SESSION, "out.jsonl"])).toBe(`${out}\n`);
    expect(readFileSync(out)).toEqual(readFileSync(file));
    expect((await run(place, ["export", SESSION, "out.jsonl"])).status).toBe(1);
    expect(await printed(place, ["export", SESSION, "out.jsonl", "--overwrite"])).toBe(`${out}\n`);
    expect(await printed(place, ["export", SESSION, "out.html"])).toBe(`${join(place.cwd, "out.html")}\n`);
    expect(readFileSync(join(place.cwd, "out.html"), "utf8")).toMatch(/^<!doctype html>/);
    expect((await run(place, ["export", SESSION, "--format", "pdf"])).status).toBe(2);

    expect(await printed(place, ["import", "out.jsonl"])).toBe(
      `All of it is in ${short(place, file)} already.\n7 entries.\n`,
    );
    writeFileSync(out, fileText(headerText({ id: "brought" }), ...LINES.slice(0, 2)));
    expect(await printed(place, ["import", "out.jsonl"])).toMatch(/^It is now at .+_brought\.jsonl\.\n2 entries\.\n$/);
  });
});

describe("ends", () => {
  test.each([
    [["list", "--limit", "0"], 2],
    [["list", "--nope"], 2],
    [["list", "--\u001b[2J"], 2],
    [["tree", "\u001b[2J"], 1],
    [["list", "--json=1"], 2],
    [["list", "extra"], 2],
    [["search"], 2],
    [["search", "x", "--role", "nobody"], 2],
    [["search", "x", "--since", "whenever"], 2],
    [["rename", SESSION], 2],
    [["rename", SESSION, " "], 2],
    [["completion", "tcsh"], 2],
    [["schema"], 2],
    [["schema", "xml"], 2],
    [["schema", "--out", "/dev/null/x"], 1],
    [["index"], 2],
    [["tree", "no-such"], 1],
    [["fork", SESSION, "nope"], 1],
    [["fork", SESSION, "b"], 1],
    [["browse"], 1],
  ])("%j with %i and one sentence", async (args, status) => {
    const { place } = ready();
    const ended = await run(place, args);
    expect([ended.stdout, ended.status]).toEqual(["", status]);
    expect(ended.stderr).toMatch(/^pi-session-server: [^\p{Cc}]+\n$/u);
  });

  test("a refusal under --json is the error of the wire", async () => {
    const { place } = ready();
    const { stdout, stderr, status } = await run(place, ["fork", SESSION, "nope", "--json"]);
    expect([JSON.parse(stdout).error.data.name, stderr, status]).toEqual(["entry_not_found", "", 1]);
  });

  test.each(verbs.map(({ name }) => [name]))("%s tells how it is used, in 80 columns", async (name) => {
    const out = await printed(temporaryPlace(), [name, "--help"]);
    const verb = verbs.find((one) => one.name === name);
    const { operands = [], takesCommand } = verb as Verb;
    const words = takesCommand ? ["[options]", ...operands] : [...operands, "[options]"];
    expect(out.split("\n")[0]).toBe(["pi-session-server", name, ...words].join(" "));
    for (const flag of [...Object.keys(verb?.flags ?? {}), "--json"]) expect(out).toContain(`  ${flag}`);
    for (const line of out.split("\n")) expect(widthOf(line)).toBeLessThanOrEqual(80);
  });
});

test("no verb that prints a conversation gets the data of its pictures", async () => {
  const place = temporaryPlace();
  const data = "iVBORw0KGgo".padEnd(2000, "A");
  const content = [
    { type: "text", text: "look" },
    { type: "image", mimeType: "image/png", data },
  ];
  const message = { role: "user", content };
  stored(place, SESSION, [
    entryText("message", "aaaa", null, { message }),
    entryText("message", "bbbb", "aaaa", { message }),
    entryText("message", "cccc", "aaaa", { message }),
  ]);
  const got: string[] = [];
  const { ask } = Wire.prototype;
  vi.spyOn(Wire.prototype, "ask").mockImplementation(async function (this: Wire, method, params) {
    const result = await ask.call(this, method, params);
    if (JSON.stringify(result).includes(data)) got.push(method);
    return result;
  });
  const verbs = [["show"], ["show", "--path"], ["show", "--entry=cccc"], ["tree"], ["stats"], ["compare"], ["follow"]];
  for (const [verb, ...flags] of verbs) {
    const operands = verb === "compare" ? [SESSION, "bbbb", "cccc"] : [SESSION];
    const options: RunOptions = { printed: () => verb !== "follow" };
    const { stdout, stderr } = await runHere(place, [verb, ...operands, ...flags], options);
    expect(stdout, stderr).not.toBe("");
    if (verb === "show" || verb === "follow") expect(stdout).toContain("(image, image/png)");
  }
  expect(got).toEqual([]);
});
