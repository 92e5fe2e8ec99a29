/** Each verb: its requests, its text for people, and its end. */

import { spawnSync } from "node:child_process";
import { appendFileSync, cpSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { verbs } from "../../src/cli/table.ts";
import { getWidth } from "../../src/cli/terminal/text.ts";
import type { Verb } from "../../src/cli/verb.ts";
import { Wire } from "../../src/cli/wire.ts";
import { VERSION } from "../../src/version.ts";
import { PROGRAM } from "../support/build.ts";
import { fileOf, linesIn, sessionFile } from "../support/cases.ts";
import { assistant, SPOKEN, toolResult, user } from "../support/drafts.ts";
import { putSession, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, entryText, fileText, headerText, id, SESSION, TIME, userText } from "../support/lines.ts";
import { imprint } from "../support/proof.ts";
import { range } from "../support/random.ts";
import type { Json, Place } from "../support/server.ts";
import { programEnvironment, runProgram, serveHere, temporaryFolder, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";
import { expectTame, playVerbs, type RunOptions, runHere, stored, wordsIn } from "../support/verbs.ts";

const NOW = Date.parse(TIME) + 86_400_000;
const OTHER = "01991f6e-2222-7c3e-b0a4-0242ac120003";
const NAMES = { id: SESSION, short: SESSION.slice(0, 13), other: OTHER, empty: "empty" };

const message = (entryId: string, parentId: string, said: object): string =>
  entryText("message", entryId, parentId, { message: { ...said, timestamp: undefined } });
const LOOKING = [
  { type: "thinking", thinking: "hmm" },
  { type: "text", text: "Let me look." },
  { type: "toolCall", id: "t1", name: "read", arguments: { path: "colours.txt" } },
];
const LINES = [
  userText("a", null, "Name a colour of the rainbow."),
  message("b", "a", { ...assistant("Blue.").message, model: "sonnet" }),
  userText("c", "b", "Another?"),
  message("d", "c", { role: "assistant", usage: SPOKEN.usage, content: LOOKING }),
  message(
    "e",
    "d",
    toolResult(
      "t1",
      range(0, 40)
        .map((i) => `colour ${i}`)
        .join("\n"),
    ).message,
  ),
  entryText("label", "f", "e", { targetId: "b", label: "first answer" }),
  userText("g", "b", "Not that one."),
];

/** A place with two sessions, the same each time, and another that can be imported. */
function ready(): Place {
  const place = temporaryPlace();
  stored(place, OTHER, [userText("x", null, "Something else: 日本語 😀")]);
  stored(place, SESSION, LINES);
  writeFileSync(join(place.cwd, "in.jsonl"), fileText(headerText({ id: "brought" }), ...LINES));
  mkdirSync(join(place.cwd, "empty"));
  return place;
}

const say = (place: Place, names: Record<string, string | RegExp> = {}, options: RunOptions = {}) =>
  playVerbs(place, { ...NAMES, ...names }, { now: NOW, ...options });

type Asked = readonly [method: string, params: object];

const ID = { sessionId: SESSION };
const OPENED: Asked = ["switch_session", ID];

/** The requests of each verb in order; it prints the last result. Some come after another request. */
const ASKED: readonly (readonly [typed: string, asks: readonly Asked[], before?: Asked])[] = [
  ["search colour", [["search_sessions", { query: "colour", in: ["user", "assistant", "toolCall"] }]]],
  ["tree {id}", [OPENED, ["get_tree", {}]]],
  ["compare {id} e g", [OPENED, ["compare_branches", { a: "e", b: "g" }]]],
  ["merge {id} e --summary 'It is blue.'", [OPENED, ["merge_branch", { from: "e", summary: "It is blue." }]]],
  ["rename {id} A name", [OPENED, ["set_session_name", { name: "A name" }]]],
  ["label {id} e a good find", [OPENED, ["set_label", { entryId: "e", label: "a good find" }]]],
  ["goto {id} d", [OPENED, ["branch", { entryId: "d", position: "at" }]]],
  ["fork {id} c", [OPENED, ["fork", { entryId: "c" }]]],
  ["delete {id} --yes", [["delete_session", ID]]],
  ["restore {id}", [["restore_session", ID]], ["delete_session", ID]],
  ["archive {id}", [["archive_session", ID]]],
  ["operations", [["list_operations", {}]], ["archive_session", ID]],
  ["undo", [["undo", {}]], ["archive_session", ID]],
  [
    "relocate {id} /home/me/new --allow-missing",
    [["relocate_session", { ...ID, cwd: "/home/me/new", allowMissing: true }]],
  ],
  ["export {id}", [OPENED, ["export_session", { format: "jsonl" }]]],
  ["import in.jsonl", [["import_session", { path: "in.jsonl" }]]],
  ["prune", [["list_leftovers", {}]]],
  ["recover", [["list_kept", {}]]],
];

/** Verbs that ask nothing over the wire, or a person, and those whose JSON other tests read. */
const UNASKED =
  "list show stats unarchive trash verify repair " +
  "browse doctor fleet mcp recall resume follow view index schema completion conformance help version redo migrate rollback status";

describe("--json prints the result of the command as it came", () => {
  /** Times and ids differ from run to run, and folders from place to place. */
  const timeless = (text: string, { home }: Place): string =>
    text
      .replaceAll(home, "<home>")
      .replaceAll(encodeURIComponent(home), "<home>")
      .replace(/\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d[-.]\d{3}Z/g, "<time>")
      .replace(/01991f6e-0000-7000-8000-\d{12}/g, "<session>")
      .replace(/"[0-9a-f]{12}"/g, '"<operation>"')
      .replace(/"e[0-9a-f]{7}"/g, '"<entry>"');

  test.each(ASKED.map((asked) => ({ typed: asked[0], asked })))("$typed", async ({ asked: [typed, asks, before] }) => {
    const [ours, theirs] = [ready(), ready()];
    for (const place of before ? [ours, theirs] : []) {
      const first = serveHere(["--events=none"], { place });
      await first.result(...(before as Asked));
      await first.finish();
    }
    const server = serveHere(["--events=none"], { place: theirs });
    let result: Json;
    for (const asked of asks) result = await server.result(...asked);
    const { stdout, stderr, status } = await runHere(ours, [...wordsIn(typed, NAMES), "--json"], { now: NOW });
    expect([stderr, status]).toEqual(["", 0]);
    expect(timeless(stdout, ours)).toBe(timeless(`${JSON.stringify(result)}\n`, theirs));
  });

  test("every verb is looked at", () => {
    const known = [...ASKED.map(([typed]) => typed.split(" ")[0]), ...UNASKED.split(" ")];
    expect(verbs.map(({ name }) => name).filter((name) => !known.includes(name))).toEqual([]);
  });

  test("entries keep their bytes", async () => {
    const place = temporaryPlace();
    const line = `${userText("n", null).slice(0, -1)},"n":1.0,"b":2,"a":1e2}`;
    stored(place, SESSION, [line]);
    await say(place, { line })('$ show {id} --path --json\n{"entries":[{line}]}');
  });
});

describe("list", () => {
  test("shows as much of ids as tells them apart, filters, limits, and says what it leaves out", async () => {
    const place = ready();
    stored(place, "01991f6e-4444-7c3e-b0a4-0242ac120005", [], { cwd: place.cwd });
    await say(place)(`
      $ list --query rainbow
       AGE  MSGS  NAME OR FIRST MESSAGE          DIRECTORY         ID
        1d     6  Name a colour of the rainbow.  /home/me/project  01991f6e-1
      $ list
      + 01991f6e-1$
      + 01991f6e-2$
      $ stats 01991f6e-2 :: {other}
      $ stats 01991f6e !! sessions have an id that begins with 01991f6e
      $ list --paths
      + ^{home}/\\S+{id}.jsonl$
      + ^{home}/\\S+{other}.jsonl$
      - 4444
      $ list --limit 1 :: ^1 more session\\.$
      $ list --limit=1 --paths
      {path=}
      $ list --cwd .
      No session fits.
      $ list --cwd . --all --paths
      {path=}
      $ list --archived
      There are no archived sessions.
      $ archive {id} ::
      $ list --archived :: Name a colour
      $ search colour :: archived: 
      $ search colour --sessions :: archived: 
      $ list
      - Name a colour
      $ list --sort size :: ^1 session, [\\d.]+ k?B in all\\.$
      $ rename {id} Refactor auth
      The name is now Refactor auth.
      $ list --unnamed --json | sessions[].sessionId
      ["{other}"]
      $ list --named --archived --json | sessions[].sessionId
      ["{id}"]`);
  });

  test("gives a terminal fifty", async () => {
    const place = temporaryPlace();
    for (let i = 0; i < 52; i++) stored(place, `s${i}`, [userText("a", null)]);
    const rows = async (args: string[], columns?: number) =>
      (await runHere(place, ["list", ...args], { now: NOW, terminal: { columns } })).stdout.split("\n");
    expect((await rows([], 80)).join()).toContain("2 more sessions.");
    for (const all of [await rows(["--all"], 80), await rows([])]) expect(all).toHaveLength(54);
  });

  test("marks damaged sessions, and keeps the mark when they grow", async () => {
    const place = temporaryPlace();
    const damaged = putSession(place, 1);
    putSession(place, 2);
    const server = serveLibrary(place);
    for (const line of ["no entry", entryText("custom", "cafe0001", null, { customType: "x" })]) {
      appendFileSync(damaged, `${line}\n`);
      const { sessions } = await server.result("list_sessions");
      expect(sessions.filter((row: Json) => row.isDamaged)).toMatchObject([{ sessionId: sessionId(1) }]);
    }
    const { stdout, status } = await runHere(place, ["list"]);
    expect([stdout.match(/ ! /g), status]).toEqual([[" ! "], 0]);
  });

  test("has a session whose archiving was cut off between its two names once", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    putSession(place, 2);
    const server = serveLibrary(place);
    const listed = async (archived: boolean) => (await server.result("list_sessions", { archived })).sessions;
    await server.result("archive_session", { sessionPath: file });
    const [{ sessionPath: archived }] = await listed(true);
    mkdirSync(dirname(file), { recursive: true });
    linkSync(archived, file);
    expect((await listed(false)).map((row: Json) => row.sessionPath)).toContain(file);
    expect(await listed(true)).toEqual([]);
    expect((await server.result("get_usage")).archivedLeftOut).toBe(0);
    // The rest of it is done by archiving once more.
    await server.result("archive_session", { sessionPath: file });
    expect([await listed(true), await listed(false)].map(({ length }) => length)).toEqual([1, 1]);
  });
});

acrossTiers(test, ["jsonl", "v2"])(
  "list, status and holders name the process that writes to a session (%s)",
  async (store) => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    putSession(place, 2);
    if (store === "v2") expect((await runHere(place, ["migrate", file, "--apply"])).status).toBe(0);
    const server = serveHere(["--no-session", "--events", "none"], { place });
    await server.result("open_session", { sessionId: sessionId(1) });
    await server.result("append", { sessionId: sessionId(1), entries: [user("go on")] });
    const names = { one: sessionId(1), two: sessionId(2), pid: String(process.pid), unmarked: /[^*\n]+/ };
    const askVerb = say(place, names);
    await askVerb(`
      $ list
      {...}NAME OR FIRST{...}
      {...}* say a0000000{...}
      {unmarked}
      * {one} is open in pi-session-server 0.0.0-test{...} (process {pid}).
      $ list --json | sessions[].lockedBy.pid
      [{pid},null]
      $ status {one} :: \\(process {pid}\\)\\.
      $ status {two}
      - Open in`);
    const asking = serveHere(["--no-session", "--events", "none"], { place });
    const quick = { holders: true, quick: store === "jsonl", cwd: "/home/me/project" };
    for (const params of [{ holders: true }, quick, {}]) {
      const { sessions } = await asking.result("list_sessions", params);
      const found = sessions.map((row: Json) => [row.sessionId, "lockedBy" in row]);
      expect(Object.fromEntries(found)).toEqual({ [sessionId(1)]: "holders" in params, [sessionId(2)]: false });
    }
    await server.finish();
    await askVerb(`
      $ list
      - \\*
      $ status {one}
      - Open in`);
  },
);

test.each<[variables: Record<string, string>, columns: number | undefined, isColoured: boolean]>([
  [{}, 80, true],
  [{}, undefined, false],
  [{ NO_COLOR: "1" }, 80, false],
  [{ NO_COLOR: "" }, 80, true],
  [{ TERM: "dumb" }, 80, false],
  [{ FORCE_COLOR: "1" }, undefined, true],
  [{ FORCE_COLOR: "0" }, 80, false],
  [{ FORCE_COLOR: "1", NO_COLOR: "1" }, undefined, true],
])("colours are for terminals that want them: %j at %j columns", async (variables, columns, isColoured) => {
  const { stdout } = await runHere(ready(), ["tree", SESSION], { variables, terminal: { columns } });
  expect(stdout.includes("\u001b[3")).toBe(isColoured);
});

describe("show and tree", () => {
  test("have the time of the last message, not of a name that came later", async () => {
    const place = ready();
    await say(place)(`
      $ rename {id} Renamed
      {...}
      $ show {id}
      session {id}, Renamed
      /home/me/project, last message 2026-01-24 16:22
      {...}`);
  });

  test("tell a conversation, a path with ids, calls and results, and go on where a page ended", async () => {
    const place = ready();
    await say(place)(`
      $ show {id}
      session {id}
      /home/me/project, last message 2026-01-24 16:22
      7 entries, anthropic/sonnet

      user
      Name a colour of the rainbow.

      assistant anthropic/sonnet
      Blue.

      user
      Not that one.
      $ @20 NO_COLOR=1 show {id} --limit 1
      {...}
      user
      Name a colour of the
      rainbow.
      {...}
      $ show {id} --entry f
      {...}
      assistant                                                    d  2026-01-24 16:22
        hmm
      Let me look.
      > read {"path":"colours.txt"}

      result read                                                  e  2026-01-24 16:22
      colour 0
      {...}
      colour 11
      (28 lines more; --full shows them)

      label first answer: b                                        f  2026-01-24 16:22
      $ show {id} --entry f --full :: colour 39
      $ show {id} --limit 2
      {...}
      Blue.

      There is more: --cursor {cursor=}
      $ show {id} --limit 2 --cursor {cursor}
      user
      Not that one.
      $ show {id} --tail 1
      {...}
      There is more before this: --cursor {before=}

      user
      Not that one.
      $ show {id} --tail 1 --cursor {before}
      {...}
      Blue.
      $ show {id} --tail :: Name a colour`);
    sessionFile(place, [userText("a", null, `${"word ".repeat(40)}end`)], "s.jsonl");
    await say(place)(`
      $ @40 FORCE_COLOR=1 show s.jsonl --path --plain
      {...}

      user, entry a, 2026-01-24 16:22
      ${"word ".repeat(40)}end`);
  });

  test("draw branches, and tell them in words", async () => {
    await say(ready())(`
      $ tree {id}
        a  user: Name a colour of the rainbow.
        b  assistant: Blue. [first answer]
        c  ├─ user: Another?
        d  │  assistant: Let me look. [read: colours.txt]
        e  │  result read: colour 0 colour 1 colour 2 colour 3 colour 4 colour 5 {...}…
      * g  user: Not that one.
      $ @80 NO_COLOR=1 tree {id} :: ^  a  01-24 16:22  user: Name a colour of the rainbow\\.$
      $ @79 NO_COLOR=1 tree {id} :: ^  a  user: Name a colour of the rainbow\\.$
      $ tree {id} --all :: label: first answer$
      $ tree {id} --labels
        b  assistant: Blue. [first answer]
      The leaf g, user, is not drawn.
      $ tree {id} --filter user
      + user: Another\\?
      + ^\\* g
      - is not drawn
      - Let me look
      $ tree {id} --filter people !2
      $ tree {id} --plain
      {...}
      b assistant: Blue., label first answer
      c branch of b: user: Another?
      {...}
      {...}
      g (leaf) user: Not that one.`);
  });

  test("name heads where they stand, or where the row is that stands for what is not shown", async () => {
    const place = ready();
    const server = serveHere([], { place });
    await server.result("switch_session", { ...ID, head: "reviewer" });
    await server.result("append", { entries: [user("And this?", { id: "h" })] });
    for (const head of ["before", "also"]) {
      await server.result("open_session", { ...ID, head });
      await server.result("branch", { entryId: head === "before" ? null : "e" });
    }
    await server.finish();
    await say(place)(`
      $ tree {id}
      + ^ {2}\\(before the first entry\\) \\(head before\\)$
      + ^ {2}e {2}│ {2}result read: .*… \\(head also\\)$
      + ^ {2}h {2}user: And this\\? \\(head reviewer\\)$
      $ tree {id} --plain :: ^h user: And this\\? \\(head reviewer\\)$
      $ tree {id} --labels :: \\[first answer\\] \\(heads also, reviewer\\)$`);
  });

  test("say that there is more after going back before the first message", async () => {
    const place = temporaryPlace();
    const server = serveLibrary(place);
    await server.result("switch_session", { sessionPath: putSession(place, 1) });
    await server.result("branch", { entryId: null });
    await server.finish();
    for (const flag of ["", " --path"])
      await say(place)(`$ show ${sessionId(1)}${flag}\n{...}\nThere is no entry before this place. tree shows{...}`);
  });
});

test("a session is found by the id of its header, whatever its file is called", async () => {
  const place = ready();
  const odd = stored(place, "an_odd_id", [userText("a", null)]);
  const copy = join(odd, "..", "my_copy.jsonl");
  writeFileSync(copy, fileText(headerText({ id: "copied" }), userText("a", null)));
  for (const [id, path] of Object.entries({ copied: copy, copi: copy, an_odd_id: odd, an_odd: odd }))
    await say(place)(`$ stats ${id} --json | sessionFile\n"${path}"`);
  const other = putSession(place, 7, { header: { id: "carried" } });
  await say(place, { file: other })(`
    $ archive carried ::
    & !{file}
    $ undo ::
    $ delete carri --yes ::
    & !{file}`);
});

describe("changes", () => {
  test("rename, fork, archive, unarchive and relocate say where things went", async () => {
    const place = ready();
    mkdirSync(join(place.cwd, "elsewhere"));
    await say(place)(`
      $ rename {id} Colours 'and more'
      The name is now Colours and more.
      $ list :: Colours and more
      $ fork {id} c
      {fork=}
      $ show {fork}
      - Another
      $ fork {id}
      {whole=}
      $ show {whole} :: Not that one
      $ fork {id} b --at --name 'Only blue'
      {at=}
      $ show 'Only blue' :: Blue
      $ undo :: Forked
      $ show 'Only blue' !!
      $ rename ${SESSION.slice(0, 13).toUpperCase()} Colours 'and more' ::
      $ archive {id}
      {short} is in the archive now; undo brings it back, and so does unarchive.
      $ unarchive {id}
      {short} is back at ~{file=}.
      & {home}{file}
      $ relocate nowhere elsewhere !! relocate --from nowhere elsewhere relocates all sessions of a directory.
      $ relocate {id} nowhere !2 no folder {...}nowhere{...}--allow-missing
      $ relocate {id} elsewhere
      {...} is now at ~{to=}.
      The original is kept next to it ({kept=}).
      & !{home}{file} {home}{to} {home}{to}{kept}
      $ list --cwd elsewhere :: Colours`);
  });

  test("delete takes nothing but yes for an answer, and restore brings back the same bytes", async () => {
    const place = ready();
    const file = stored(place, SESSION, LINES);
    const before = readFileSync(file);
    const question = '? Delete "Name a colour of the rainbow.", 6 messages, /home/me/project, 1d? [y/N]';
    for (const no of ["n", "", "no", "yes please"])
      await say(place)(`$ delete {id}\n${question} => ${no}\n! Nothing was deleted.`);
    await say(place)("$ delete {id}\n!2 {...}--yes{...}");
    expect(readFileSync(file)).toEqual(before);
    await say(place, { file })(`
      $ delete {file}
      ? {...} => y
      {short} is in the trash; undo brings it back, trash empty removes it for good.
      $ list --paths --query rainbow

      $ restore {id}
      {short} is back at ~{...}_{id}.jsonl.`);
    expect(readFileSync(file)).toEqual(before);
    await say(place, { file })("$ delete {id} --permanent --yes\n{short} is deleted for good.\n& !{file}");
  });

  test("export and import keep every byte, and nothing is overwritten", async () => {
    const place = ready();
    const file = stored(place, SESSION, LINES);
    const out = join(place.cwd, "out.jsonl");
    expect((await runHere(place, ["export", SESSION])).stdout).toBe(readFileSync(file, "utf8"));
    await say(place)(`
      $ export {id} out.jsonl
      {cwd}/out.jsonl
      $ export {id} out.jsonl !!
      $ export {id} out.jsonl --overwrite
      {cwd}/out.jsonl
      $ export {id} out.html
      {cwd}/out.html
      $ export {id} --format pdf !2
      $ export {id} out.pdf !2
      $ export {id} - !2
      $ export {id} new/ !2 new/ is a folder. Name a file in it, such as new/session.md.
      $ export {id} empty --overwrite !2 empty is a folder.
      $ export {id} new/x.md !! There is no folder {...}/new. Nothing was written.
      & !{cwd}/out.pdf !{cwd}/- {cwd}/out.html
      $ import out.jsonl
      All of it is in ~{...}_{id}.jsonl already.
      7 entries.
      resume {...} goes on with it.`);
    writeFileSync(join(place.cwd, "empty", "more.jsonl"), fileText(headerText({ id: "another" }), ...LINES));
    await say(place)(`
      $ import . nothing.jsonl
      There is no file at {cwd}/nothing.jsonl{...}
      2 sessions are imported; undo takes them back.
      1 session was here already.
      ! This machine has no /home/me/project. relocate --from '/home/me/project' <dir> moves to another directory.
      = 1
      $ undo ::
      $ list --json | total
      2`);
    expect(readFileSync(out)).toEqual(readFileSync(file));
    expect(readFileSync(join(place.cwd, "out.html"), "utf8")).toMatch(/^<!doctype html>/);
    writeFileSync(out, fileText(headerText({ id: "brought" }), ...LINES.slice(0, 2)));
    await say(place)(`
      $ import out.jsonl
      It is now at {...}_brought.jsonl.
      2 entries.
      resume brought goes on with it; undo takes it back.
      ! This machine has no /home/me/project. relocate brought <dir> moves to another directory.
      = 0`);
    mkdirSync(join(place.home, "shop"));
    writeFileSync(out, fileText(headerText({ id: "redacted", cwd: "~/shop" }), ...LINES.slice(0, 2), "{broken"));
    await say(place)(`
      $ import out.jsonl out.html
      {cwd}/out.html {...}
      1 session is imported; undo takes it back.
      1 file has damage, which is copied unchanged:
        ~{...}_redacted.jsonl
      ! The directory ~/shop has another home. relocate redacted ~/shop moves to yours.
      = 1
      $ import out.jsonl out.jsonl
      2 sessions were here already.
      $ import out.jsonl
      All of it is in ~{...}_redacted.jsonl already.
      2 entries.
      resume redacted goes on with it.`);
  });

  test("import of a copied home leaves out what is no session: empty files, the trash and the records", async () => {
    const place = temporaryPlace();
    const header = { cwd: place.cwd };
    const files = ["aaaa1111", "bbbb2222", "cccc3333", "dddd4444"].map((id) => stored(place, id, LINES, header));
    await say(place)("$ delete aaaa1111 bbbb2222 --yes ::");
    writeFileSync(stored(place, "eeee5555", []), "");
    const [source, copy] = [place.home, join(temporaryFolder(), "bk")];
    cpSync(source, copy, { recursive: true });
    // One is gone here, and one has lost its end.
    rmSync(files[2]);
    writeFileSync(files[3], fileText(headerText({ id: "dddd4444", ...header }), ...LINES.slice(0, 3)));
    await say(place, { copy })(`
      $ import {copy}
      2 sessions are imported; undo takes 1 of them back.
      1 session had the beginning here: the rest came, which cannot be undone.
      !0 1 empty file is left out.
      ! {...}2 deleted sessions are left out. import {copy}/state/trash brings in what this trash has.
      $ operations
      + Imported 2 sessions\\.
      $ list --json | total
      2
      $ import {copy}/state/trash
      2 sessions are imported; undo takes them back.
      $ undo
      Took back: Imported 2 sessions.
      They are in the trash now; redo brings them back.
      $ import {copy}/state/operations !2 has a session`);
  });

  test("migrate takes a session to a container, dry by default, and rollback back", async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(3), "s.jsonl");
    const before = readFileSync(file);
    const container = join(place.cwd, `${SESSION}.v2`);
    const run = say(place, { file, container }, { hashes: true });
    await run(`
      $ migrate s.jsonl
      3 entries would go to ~/project/{id}.v2. --apply does it.
      Pi would not see the session there, until rollback makes its file the session again.
      & !{container}
      $ migrate {file} --apply
      The session is now ~/project/{id}.v2 (MIGRATED, 3 entries).
      Pi does not see it there. rollback {short} makes its file the session again.
      $ verify {container} :: sound
      $ status {container}
      Session Store V2, MIGRATED (completed).
      {...}
      {...}  cutover_commit   ok
      {...}
      $ rollback {container} --reason 'a test'
      The session is now ~/project/s.jsonl (ROLLED_BACK, 3 entries).
      The container is kept as ~/project/{id}.v2.rolled-back.
      $ status {file}
      A JSONL file, ROLLED_BACK (rollback).
      Reason: a test.
      {...}`);
    expect(readFileSync(file)).toEqual(before);
    sessionFile(place, [...chain(2), userText(id(0), id(1), "other")], "odd.jsonl", headerText({ id: "odd" }));
    await run(`
      $ migrate odd.jsonl --dry-run
      The session cannot be migrated as it is:
        invalid_id: {...}
        duplicate_id{...}
      = 3`);
  });
});

describe("verify and repair", () => {
  test("repair takes several sessions, finds all before it changes one, and names each", async () => {
    const place = temporaryPlace();
    const [bad, sound] = [1, 2].map(sessionId);
    putSession(place, 1, { lines: [...chain(3), "no entry"] });
    putSession(place, 2);
    await say(place)(`
      $ repair ${bad} nothing-of-this !! No session has the id nothing-of-this
      $ repair ${bad} ${sound} --dry-run
      ${bad}
        This would be repaired:
      {....}
      ${sound}
        There is nothing to repair.
        3 entries.
      = 3
      $ repair ${bad} ${sound}
      ${bad}
        This was repaired:
      {....}
      ${sound}
        There is nothing to repair.
        3 entries.
      $ verify ${bad}
      The session is sound.
      $ undo ::
      $ verify ${bad} :: bad_line
      = 3`);
  });

  test("say that a session is sound, by path and by id, and change nothing", SYSTEM, async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(3), "s.jsonl", headerText({ id: "sound" }));
    const before = imprint(file);
    const sound = { stdout: "The session is sound.\n", stderr: "", status: 0 };
    expect(await runProgram("", ["verify", file], place)).toEqual(sound);
    for (const words of ["./s.jsonl", "sound --session-dir {cwd}", "--session-dir {cwd} soun"])
      await say(place)(`$ verify ${words}\nThe session is sound.`);
    expect(imprint(file)).toEqual(before);
  });

  test("list damage, mend it when they are told to, and have nothing to do then", async () => {
    const place = temporaryPlace();
    // A lost line in the middle, whose gap is bridged, and a torn tail.
    const lines = [...chain(2), "}{", userText(id(3), id(2)), userText(id(4), id(3))];
    const file = fileOf(place, `${fileText(headerText(), ...lines)}{"type":"mess`, "damaged.jsonl");
    const before = imprint(file);
    await say(place)(`
      $ verify damaged.jsonl
      3 damaged places:
      {...}
      = 3
      $ verify damaged.jsonl
      + ^ {2}bad_line \\(line 4, 2 bytes at \\d+\\): .+; lost$
      + ^ {2}torn_tail \\(
      + ^ {2}missing_parent \\(.*entry a0000003\\):\\s
      = 3
      $ verify damaged.jsonl --json | damage[].kind
      ["bad_line","torn_tail","missing_parent"]
      = 3
      $ repair damaged.jsonl --dry-run
      This would be repaired:
        {...} ({...}
      {...}
      = 3`);
    expect(imprint(file)).toEqual(before);
    await say(place)(`
      $ repair damaged.jsonl
      {...}
      The original is kept next to it (.damaged.bak); undo puts it back.
      4 entries.`);
    expect(readFileSync(`${file}.damaged.bak`, "latin1")).toBe(before.bytes);
    expect(linesIn(file)).toHaveLength(5);
    const repaired = imprint(file);
    await say(place)(`
      $ show '' !! The name of the session is empty.
      $ import - !2 import reads files, not stdin.
      $ repair damaged.jsonl --json
      {"repaired":[],"backupPath":null,"answered":[],"entryCount":4}
      $ verify damaged.jsonl
      The session is sound.`);
    expect(imprint(file)).toEqual(repaired);
  });

  test("do not touch what another process writes to, and say of what is no session no more than that", async () => {
    const place = temporaryPlace();
    const file = fileOf(place, `${fileText(headerText(), ...chain(2))}}{\n`, "damaged.jsonl");
    fileOf(place, "secret text\n", "not.jsonl");
    const server = serveHere(["--session", file, "--events", "none"], { place });
    await server.result("append", { entries: [user("x")] });
    const before = imprint(file);
    await say(place)(`$ repair damaged.jsonl\n! {...}process ${process.pid}{...}`);
    expect(imprint(file)).toEqual(before);
    for (const verb of ["verify", "repair"]) {
      for (const operand of ["not.jsonl", "missing.jsonl", "no-such-id"]) {
        const { stdout, stderr, status } = await runHere(place, [verb, operand]);
        expect([stdout, status], operand).toEqual(["", 1]);
        expect(stderr).toMatch(/^pi-session-server: (?!.*secret).*\.\n$/);
      }
      await say(place)(`$ ${verb} not.jsonl --json | error.data.name\n"not_a_session"\n= 1`);
    }
  });

  test("verify --all counts what is only incomplete for Pi apart from what is damaged", async () => {
    const place = temporaryPlace();
    const message = { role: "assistant", content: [{ type: "text", text: "x" }], provider: "p", model: "m" };
    appendFileSync(putSession(place, 1), `${entryText("message", "cafe0001", null, { message })}\n`);
    appendFileSync(putSession(place, 2), "no JSON\n");
    const { stdout, status } = await runHere(place, ["verify", "--all"]);
    expect([stdout.trimEnd().split("\n\n").at(-1)?.replace(/\s+/g, " "), status]).toEqual([
      "2 sessions, 1 damaged; of 1 nothing is lost, but Pi's interface fails on messages that lack something, which repair adds.",
      3,
    ]);
  });
});

describe("ends", () => {
  test.each<[status: number, typed: string, says?: string]>([
    [2, "archive", "archive needs <session...>"],
    [2, "archive --until 90d {id}", "not both"],
    [2, "archive --dry-run", "archive needs <session...>"],
    [1, "archive ./none.jsonl --dry-run", "No session is listed at ./none.jsonl"],
    [2, "delete --cwd /x {id}", "not both"],
    [2, "label {id} e", "e has no label"],
    [1, "goto {id} nope"],
    [2, "relocate --from /x", "--from takes the old directory"],
    [2, "relocate {id} /x --dry-run", "--dry-run goes with --from"],
    [2, "show {id} --tail 2 --limit 2", "Give one of them"],
    [2, "show --tail {id}", "--tail took the word after it"],
    [1, "browse"],
    [2, "compare {id}"],
    [1, "compare {id} nowhere", "There is no entry nowhere. tree shows ids"],
    [1, "compare {id} a leaf --with nobody", "No session"],
    [1, "compare {id} {other}", "The two sessions have nothing in common"],
    [2, "completion tcsh"],
    [2, "doctor --yes"],
    [2, "follow {id} --last x"],
    [1, "fork {id} nope"],
    [2, "import {empty}", "No file in"],
    [2, "index"],
    [2, "list --json=1"],
    [2, "list --limit 0"],
    [2, "list -n 5", "Unknown option -n. Did you mean --limit? list --help lists its options."],
    [2, "list --nope"],
    [2, "list --\u001b[2J"],
    [2, "list extra words", '--query "extra words" chooses by words. Usage: '],
    [2, "merge {id} e"],
    [2, "merge {id} e --summary ' '"],
    [2, "merge {id} e --summary s --prepare"],
    [1, "merge {id} a --summary s"],
    [1, "merge {id} e --summary s --read-only"],
    [2, "prune --older-than soon"],
    [2, "prune --older-than 3m --apply", "give --older-than 3mo"],
    [2, "prune --trash --older-than 3m", "give --older-than 3mo"],
    [2, "trash empty --older-than 3m --yes", "give --older-than 3mo"],
    [2, "prune --permanent"],
    [2, "prune --trash x"],
    [1, "prune /nothing.jsonl.v1.bak"],
    [1, "redo", "There is nothing to redo"],
    [2, "rename {id} ' '"],
    [2, "repair a --no-such"],
    [2, "schema"],
    [2, "schema xml"],
    [1, "schema --out /dev/null/x"],
    [2, "search", "search needs <words...>"],
    [2, "search --cwd word", "--cwd took the word after it"],
    [2, "search x --in names", "--in takes user, assistant, calls, results, all"],
    [2, "search x --in user,", "--in takes names"],
    [2, "search x --role nobody"],
    [2, "search x --since whenever", "--since takes a time"],
    [2, "search --tool ''", "--tool takes names"],
    [2, "tree", "tree needs <session>. Usage: "],
    [2, "stats --by year", "--by takes day, week, month, model, project, session"],
    [2, "stats {id} --by day", "--by is about all sessions"],
    [2, "stats {id} --csv", "--csv is about all sessions"],
    [2, "stats one two", "Usage"],
    [1, "tree no-such"],
    [1, "tree \u001b[2J"],
    [1, "undo", "There is nothing to undo. operations shows what happened."],
    [2, "undo ab"],
    [1, "undo abcd", "operations shows those that are recorded"],
    [2, "verify a b"],
    [2, "verify a --dry-run"],
    [2, "verify --all {id}"],
    [2, "verify --archived {id}"],
    [2, "view --idle 0m"],
    [2, "view --idle 900d"],
    [2, "view --port 70000"],
    [1, "view unknown-session"],
  ])("with %i and one sentence, nothing changed: %s", async (status, typed, says = "") => {
    const place = ready();
    const file = stored(place, SESSION, LINES);
    const before = imprint(file);
    const ended = await runHere(place, wordsIn(typed, NAMES), { now: NOW });
    expect([ended.stdout, ended.status]).toEqual(["", status]);
    expect(ended.stderr).toMatch(/^pi-session-server: [^\p{Cc}]+\n$/u);
    expect(ended.stderr).toContain(says);
    expect(imprint(file)).toEqual(before);
  });

  test("merge --prepare says so where the path to the leaf has the branch already", () =>
    say(ready())("$ merge {id} b --prepare\n! The path to the leaf has all of that branch already.\n= 0"));

  test("with --json a failure is printed as it came", () =>
    say(ready())('$ fork {id} nope --json | error.data.name\n"entry_not_found"\n= 1'));

  test.each(verbs.map(({ name }) => [name]))("%s tells how it is used, in 80 columns", async (name) => {
    const { stdout } = await runHere(temporaryPlace(), [name, "--help"]);
    const { operands = [], takesCommand, flags } = verbs.find((one) => one.name === name) as Verb;
    const words = takesCommand ? ["[options]", ...operands] : [...operands, "[options]"];
    expect(stdout.split("\n")[0]).toBe(["pi-session-server", name, ...words].join(" "));
    for (const flag of [...Object.keys(flags ?? {}), "--json"]) expect(stdout).toContain(`  ${flag}`);
    for (const line of stdout.split("\n")) expect(getWidth(line)).toBeLessThanOrEqual(80);
  });
});

test("verbs and their help as people type them", SYSTEM, async () => {
  const place = temporaryPlace();
  sessionFile(place, chain(3), "s.jsonl");
  const out = async (...args: string[]) => (await runHere(place, args)).stdout;
  expect(await out("version")).toBe(`${VERSION}\n`);
  expect(await out("help", "rm")).toBe(await out("delete", "--help"));
  expect(await out("cat", "s.jsonl")).toBe(await out("show", "s.jsonl"));
  expect(await runProgram("", ["--plain", "ls"], place)).toEqual({
    stdout: await out("ls", "--plain"),
    stderr: "",
    status: 0,
  });
  for (const [typed, stderr] of Object.entries({
    lst: "Unknown verb lst. Did you mean list? --help lists the verbs.\n",
    "mv a b": "Unknown verb mv. Did you mean rename, or relocate? --help lists the verbs.\n",
    "--session-dir x list": "A verb comes first",
  })) {
    const run = await runProgram("", typed.split(" "), place);
    expect(run).toEqual({ stdout: "", stderr: expect.stringContaining(stderr), status: 2 });
  }
});

test("a reader that stops early, as head does, is no failure and no noise", SYSTEM, async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(5000), "long.jsonl");
  const words = ["-c", '{ "$0" "$@"; echo $? >&2; } | head -n 1', process.execPath, PROGRAM, "tree", file];
  const { stdout, stderr } = spawnSync("sh", words, { env: programEnvironment(place), encoding: "utf8" });
  expect([stdout.split("\n").length, stderr]).toEqual([2, "0\n"]);
});

test("no verb that prints a conversation gets the data of its pictures", async () => {
  const place = temporaryPlace();
  const data = "iVBORw0KGgo".padEnd(2000, "A");
  const message = { role: "user", content: [{ type: "image", mimeType: "image/png", data }] };
  const entry = (id: string, parent: string | null) => entryText("message", id, parent, { message });
  stored(place, SESSION, [entry("aaaa", null), entry("bbbb", "aaaa"), entry("cccc", "aaaa")]);
  const got: string[] = [];
  const { ask } = Wire.prototype;
  vi.spyOn(Wire.prototype, "ask").mockImplementation(async function (this: Wire, method, params) {
    const result = await ask.call(this, method, params);
    if (JSON.stringify(result).includes(data)) got.push(method);
    return result;
  });
  for (const typed of ["show", "show --path", "show --entry=cccc", "tree", "stats", "compare bbbb cccc", "follow"]) {
    const [verb, ...more] = typed.split(" ");
    const { stdout, stderr } = await runHere(place, [verb, SESSION, ...more], { printed: () => verb !== "follow" });
    expect(stdout, stderr).not.toBe("");
    if (verb === "show" || verb === "follow") expectTame(stdout) && expect(stdout).toContain("(image, image/png)");
  }
  expect(got).toEqual([]);
});

test("show says of a session of a newer version that a newer program reads all of it", async () => {
  const place = temporaryPlace();
  const { stdout } = await runHere(place, ["show", stored(place, SESSION, LINES, { version: 4 } as object)]);
  expect(stdout).toMatch(/has format version 4, .*A newer version\s+of this program\s+reads all of it\./);
  expect(stdout).toContain("Not that one.");
});

test("the words of fleet are verbs with options and help of their own", async () => {
  const place = temporaryPlace();
  const fleet = verbs.find(({ name }) => name === "fleet");
  const all = (await runHere(place, ["fleet", "--help"])).stdout;
  for (const { name } of fleet?.subverbs ?? []) {
    expect(all).toContain(`  ${name}`);
    const word = name.slice("fleet ".length);
    const { stdout } = await runHere(place, ["fleet", word, "--help"]);
    expect(stdout).toMatch(new RegExp(`^pi-session-server ${name} `));
    expect((await runHere(place, ["help", "fleet", word])).stdout).toBe(stdout);
    expect(stdout.includes("--older-than")).toBe(word === "prune");
  }
  // Only the first operand is the word.
  const mistyped = await runHere(place, ["fleet", "imprt", "export"]);
  expect([mistyped.status, mistyped.stderr]).toEqual([2, expect.stringContaining("it got imprt")]);
  const valued = await runHere(place, ["fleet", "--session-dir", "push", "verify", "--help"]);
  expect(valued.stdout).toMatch(/^pi-session-server fleet verify /);
  const stray = await runHere(place, ["fleet", "status", "--older-than", "30d"]);
  expect([stray.status, stray.stderr]).toEqual([2, expect.stringContaining("fleet status --help lists its options")]);
});
