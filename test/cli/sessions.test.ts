/** Names of sessions for people: the beginning of the id, the name, archived or not; and names of entries. */

import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { readCandidates } from "../../src/storage/catalog/candidates.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { contentsOf, put, putSession, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, entryText, TIME, userText } from "../support/lines.ts";
import { type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { expectTame, playVerbs, runHere, stored } from "../support/verbs.ts";

const AUTH = "019aaaaa-1111-7000-8000-000000000001";
const TWIN = "019aaaaa-2222-7000-8000-000000000002";
const OLD = "019bbbbb-3333-7000-8000-000000000003";

function said(place: Place, id: string, text: string, name?: string): string {
  const named = name === undefined ? [] : [entryText("session_info", "n", "u", { name })];
  return stored(place, id, [userText("u", null, text), ...named], { cwd: "/home/me/app" });
}

function ready() {
  const place = temporaryPlace();
  const auth = said(place, AUTH, "Refactor the auth module.", "Refactor auth");
  const twin = said(place, TWIN, "Something else.");
  const old = said(place, OLD, "Long ago.", "Old one");
  const files = { auth, twin, old };
  return { place, ...files, say: playVerbs(place, files, { now: Date.parse(TIME) + 86_400_000 }) };
}

describe("the beginning of an id", () => {
  test("names a session for every verb that takes one, and moves it from one verb to the next", async () => {
    const { place, old, say } = ready();
    const bytes = readFileSync(old);
    for (const verb of ["show", "tree", "stats", "verify", "status", "export", "migrate"])
      expect((await runHere(place, [verb, "019b"])).stderr, verb).toBe("");
    await say(`
      $ archive 019b ::
      & {auth} {twin} !{old}
      $ show 019b :: Long ago
      $ unarchive 019b ::`);
    expect(readFileSync(old)).toEqual(bytes);
    await say(`
      $ migrate 019b --apply :: MIGRATED
      $ show 019b :: Long ago
      $ archive 019b ::
      $ unarchive 019b ::
      $ rollback 019b :: ROLLED_BACK
      $ repair 019b :: nothing to repair
      $ rename 019b New name ::
      $ fork 019b
      {fork=}
      & {fork} {auth} {twin} {old}
      $ relocate ${OLD} /home/me/new --allow-missing
      {...}
      {...}
      $ delete 019aaaaa-1 --yes ::
      & !{auth} {twin} !{old}`);
  });

  test("moves nothing with less than four characters, be it the only one that fits, or when several fit", async () => {
    const { place, say } = ready();
    const before = contentsOf(rootOf(place));
    for (const verb of ["archive", "delete --yes", "delete --yes --permanent", "unarchive"]) {
      const [word, ...flags] = verb.split(" ");
      await say(`
        $ ${word} 019 ${flags.join(" ")}
        ! No session has the id 019, or that in its name. Give at least 4 characters of an id. {...}
        $ ${word} 019aaaaa ${flags.join(" ")}
        ! {...}2 sessions have an id that begins with 019aaaaa. Give more of it.{...}
        ! {...}`);
    }
    expect(contentsOf(rootOf(place))).toEqual(before);
    const other = temporaryPlace();
    const file = said(other, OLD, "Long ago.");
    for (const verb of ["show", "delete --yes", "rename x", "resume"]) {
      const [word, ...rest] = verb.split(" ");
      await playVerbs(other)(`
        $ ${[word, "019", ...rest].join(" ")} !! No session has the id 019, or that in its name. Give at least 4 characters of an id.
        & ${file}`);
    }
  });

  test("that several have lists them with their names, a line each, in any width", async () => {
    const { place, say } = ready();
    for (const verb of ["show", "archive"])
      for (const errorColumns of [40, 80, 400]) {
        const { stdout, stderr, status } = await runHere(place, [verb, "019aaaaa"], { terminal: { errorColumns } });
        expect([stdout, status]).toEqual(["", 1]);
        const lines = stderr.trimEnd().split("\n").slice(1);
        expect(lines).toHaveLength(2);
        expect(lines.find((line) => line.includes("019aaaaa-1"))).toContain("Refactor");
        expect(lines.find((line) => line.includes("019aaaaa-2"))).toContain("Something");
        expectTame(lines.join("\n"), errorColumns);
      }
    await say(`
      $ show 019aaaaa --json | error.data.candidates
      [{"sessionId":"${TWIN}",{...}"name":null,"firstMessage":"Something else.","cwd":"/home/me/app","modified":"${TIME}"{...}},{"sessionId":"${AUTH}",{...}"name":"Refactor auth",{...}"cwd":"/home/me/app","modified":"${TIME}"{...}}]
      = 1
      $ show 019aaaaa --json | error.data.name
      "ambiguous_id"
      = 1`);
  });

  test("that two files share shows the one with the latest message; a change asks for a path, of which it gives theirs", async () => {
    const { place, say } = ready();
    const name = entryText("session_info", "b", "a", { name: "Copied" });
    const files = ["/home/me/app", "/home/me/copied"].map((directory, n) =>
      stored(place, "019dddd1-4444", [userText("a", null, `Copied ${n}.`), name], { cwd: "/home/me/app" }, directory),
    );
    const later = userText("c", "b", "Later.").replaceAll(TIME, "2026-02-24T16:22:26.831Z");
    appendFileSync(files[1], `${later}\n`);
    for (const word of ["019dddd1", "019dddd1-4444", "Copied"]) {
      await say(`
        $ show ${word}
        + Later
        ! 2 files have the id 019dddd1-4444; this is the one with the latest message, ${files[1]}.
        = 0`);
      const { stderr, status } = await runHere(place, ["label", word, "a", "here"]);
      const [said, ...rows] = stderr.trimEnd().split("\n");
      expect([said, status]).toEqual([
        expect.stringContaining("2 sessions have the id 019dddd1-4444. Name the one"),
        1,
      ]);
      expect(rows.map((row) => row.trim().split(" ")[0]).sort()).toEqual(
        files.map((file) => file.replace(place.home, "~")).sort(),
      );
    }
    await say("$ label 019dddd1 a here --json | error.message\n{...}Name the one you mean by its path.{...}\n= 1");
  });

  test("a folder of sessions that does not exist is said, where none is found in it", async () => {
    await ready().say(`
      $ list --session-dir ./nowhere
      There are no sessions. list --agents shows{...}
      !0 The folder ./nowhere of --session-dir does not exist.
      $ show 019dddd1 --session-dir ./nowhere !! The folder ./nowhere of --session-dir does not exist.`);
  });

  test("a folder whose folders have the sessions is said, with the variable that takes it", async () => {
    const { place, say } = ready();
    const root = rootOf(place);
    await say(`
      $ list --session-dir ${root}
      There are no sessions. list --agents shows{...}
      ! --session-dir takes one folder {...} PI_SESSIONS_DIR=${root} in its place takes these.
      = 0`);
    const { stdout } = await runHere(place, ["list", "--json"], { variables: { PI_SESSIONS_DIR: root } });
    expect(JSON.parse(stdout).total).toBeGreaterThan(0);
  });

  test("lists at most ten, and a name does nothing to the terminal", async () => {
    const place = temporaryPlace();
    for (let i = 0; i < 30; i++) said(place, `019c-${i}`, "x", "\u001b[2J\u202eevil\0\nname");
    const { stderr } = await runHere(place, ["show", "019c"]);
    expect(stderr).toMatch(/^pi-session-server: 30 sessions have an id that begins with 019c\. Give more of it\.\n/);
    expect(stderr).toMatch(/\n {2}and 20 more\n$/);
    expect(stderr.trimEnd().split("\n")).toHaveLength(12);
    expect(expectTame(stderr)).toContain("019c-29");
  });

  test("says what was said first in a session that is longer than what is read at first, and its last name", () => {
    const data = "A".repeat(9 << 20);
    const content = [
      { type: "text", text: "Look at it" },
      { type: "image", data, mimeType: "image/png" },
    ];
    const lines = [
      entryText("message", "a1", null, { message: { role: "user", content, timestamp: 1 } }),
      entryText("session_info", "a2", "a1", { name: "The parser" }),
      userText("a3", "a2"),
    ];
    const place = temporaryPlace();
    const files = [1, 2].map((n) =>
      putSession(place, n, { lines: n === 1 ? lines : [...lines.slice(0, 1), ...chain(1)] }),
    );
    const found = readCandidates(realDisk, files, () => expect.fail("no container"));
    const expected = { [files[0]]: ["Look at it", "The parser"], [files[1]]: ["Look at it", null] };
    expect(Object.fromEntries(found.map((one) => [one.sessionPath, [one.firstMessage, one.name]]))).toEqual(expected);
  });
});

test("what doctor calls damaged sessions is what show and verify find them by, whatever their ids are", async () => {
  const place = temporaryPlace();
  const { cwd } = place;
  const lines = [...chain(2), "{ torn"];
  // Ids that begin alike, one of them archived, and a header that is lost under two kinds of names.
  for (const n of [1, 2, 3]) putSession(place, n, { lines, cwd });
  for (const name of ["notes.jsonl", "my_notes.jsonl"])
    put(join(rootOf(place), "--x--", name), [`{"type":"session"`, ...chain(2), ""].join("\n"));
  const server = serveLibrary(place);
  await server.result("archive_session", { sessionId: sessionId(3) });
  const { damaged } = await server.result("get_health");
  expect(damaged).toHaveLength(5);
  const { stdout } = await runHere(place, ["doctor"]);
  for (const { shortId, sessionPath } of damaged as Json[]) {
    expect(stdout).toContain(shortId ?? "notes.jsonl");
    for (const verb of ["show", "verify"]) {
      const { stderr } = await runHere(place, [verb, shortId ?? sessionPath]);
      expect([verb, stderr]).toEqual([verb, expect.not.stringMatching(/No session|sessions have an id/)]);
    }
  }
});

test("two files with one id are told apart by their paths", async () => {
  const { auth, say } = ready();
  const copy = join(dirname(auth), "copy.jsonl");
  writeFileSync(copy, readFileSync(auth));
  await say(`
    $ show ${AUTH}
    + Refactor the auth module
    ! 2 files have the id ${AUTH}; this is the one with the latest message, ${auth}.
    = 0
    $ rename ${AUTH} Another
    ! {....}by its path{....}copy.jsonl{....}${basename(auth)}{....}
    $ archive ${AUTH.slice(0, 12)}
    ! {...}by its path{...}
    ! {...}
    $ archive ${copy} ::
    & !${copy} {auth}`);
});

test("a name names a session when it is the only one with it, and never stands before an id", async () => {
  const { place, say } = ready();
  await say(`
    $ show 'Refactor auth' :: Refactor the auth module
    $ archive 'Refactor auth' ::
    & !{auth} {twin} {old}
    $ show 'Refactor auth' :: Refactor the auth module
    $ show 'no such name' !! No session has the id no such name, or that in its name. list shows those that exist. search finds words in them.
    $ unarchive 019aaaaa-1 ::`);
  said(place, "019dddd1", "x", "Refactor auth");
  // A session whose name is the beginning of another's id.
  said(place, "019dddd2", "y", "019b");
  await say(`
    $ show 019b :: Long ago
    $ tree 'Refactor auth'
    ! {...}2 sessions have the name Refactor auth. Use the beginning of the id.
    !   {...}
    !   {...}`);
});

test("a part of a name or, without one, of the first message, names a session in any case, and it is said which", async () => {
  const { place, say } = ready();
  const shown = `{....}Refactor the auth module.`;
  await say(`
    $ show 'refactor AUTH'
    !0 refactor AUTH is "Refactor auth" (019aaaaa-1111).
    ${shown}
    $ show THING
    !0 THING is "Something else." (019aaaaa-2222).
    {....}Something else.
    $ archive tor
    !0 tor is "Refactor auth" (019aaaaa-1111).
    {...} is in the archive now;{...}
    & !{auth} {twin} {old}
    $ operations tor --json | operations[].kind
    !0 {...}
    ["archive"]
    $ undo --in tor
    !0 {...}
    {....}
    & {auth}
    $ show module !! No session has the id module
    $ show au !! No session has the id au, or that in its name.
    $ delete auth --yes
    !2 {....}auth is a part of one, and the id is ${AUTH}.
    & {auth}`);
  said(place, "019cccc1", "Something about auth.");
  await say(`
    $ show auth
    ! 2 sessions have auth in their name or, without one, the beginning of their first message. Give more of it, or the beginning of the id.
    !   {...}Something about auth.{...}
    !   {...}Refactor auth{...}
    $ show something
    ! 2 sessions have something in the beginning of their first message, and no name. Give more of it, or the beginning of the id.
    !   {...}
    !   {...}`);
  // Only verbs that read take a word that the first message has.
  for (const change of [
    "archive",
    "delete",
    "rename X",
    "label leaf",
    "goto leaf",
    "fork",
    "migrate --apply",
    "repair",
  ]) {
    const [verb, ...rest] = change.split(" ");
    await say(`
      $ ${[verb, "THING", ...rest].join(" ")}
      ! No session has the id THING, or that in its name. A change takes a session without a name by its id:
      !   019cccc1  {...}Something about auth.{...}
      !   019aaaaa  {...}Something else.{...}`);
  }
  said(place, "019dddd1", "x", "Auth of the client");
  await say(`
    $ rename auth Client
    ! 2 sessions have auth in their name. Give more of it, or the beginning of the id.
    !   {...}
    !   {...}`);
});

test("a name is taken as lists show it, with one space between its words", async () => {
  const { place, say } = ready();
  said(place, "019eeee1", "Spaced out.", "Two   spaces");
  await say(`
    $ show 'two spaces'
    !0 two spaces is "Two spaces" (019eeee1).
    {....}Spaced out.
    $ rename 019eeee1 '  Three   spaces '
    The name is now Three spaces.
    $ archive 'Three spaces' ::`);
});

test("delete by a name asks, and takes --yes for the whole name that one session has", async () => {
  const { place, say } = ready();
  await say(`
    $ delete 'refactor auth' --yes
    !2 refactor auth is "Refactor auth" (019aaaaa-1111).
    ! {...}With --yes, delete takes an id, a path or a whole name; refactor auth is a part of one, and the id is ${AUTH}.
    & {auth} {twin} {old}
    $ delete 'Refactor auth'
    ? {...} => y
    {...}
    & !{auth} {twin} {old}
    $ undo ::
    $ delete 'Refactor auth' --yes
    {...} is in the trash;{...}
    & !{auth} {twin} {old}
    $ undo ::`);
  said(place, "019eeee1", "x", "Refactor auth");
  await say(`
    $ delete 'Refactor auth' --yes
    ! 2 sessions have the name Refactor auth. Use the beginning of the id.
    !   {...}
    !   {...}
    & {auth} {twin} {old}`);
});

test("delete asks with the name, the messages, the directory and the age, once for several, and of known ones", async () => {
  const { place, say } = ready();
  said(place, "019eeee1", "x", "\u001b[2J\u202eevil");
  await say(`
    $ delete 019aaaaa-1
    ? Delete "Refactor auth", 1 message, /home/me/app, 1d? [y/N] => n
    ! {...}
    $ delete 019aaaaa-1 --permanent
    ? Delete "Refactor auth", 1 message, /home/me/app, 1d for good? It cannot be restored. [y/N] => n
    ! {...}
    $ rm {auth}
    ? Delete "Refactor auth", 1 message, /home/me/app? [y/N] => n
    ! {...}
    $ rm {twin}
    ? Delete "Something else.", 1 message, /home/me/app? [y/N] => n
    ! {...}
    $ delete 019eeee1
    ? Delete "\\u001b[2J\\u202eevil"{...} => n
    ! {...}
    $ delete nowhere.jsonl
    ? Delete nowhere.jsonl? [y/N] => n
    ! {...}
    $ rm 019b 019aaaaa-1 019f
    ! {...}
    & {auth} {twin} {old}
    $ rm 019b 019bbbbb 019aaaaa-1
    ? {....}"Old one", 1 message{....}"Refactor auth", 1 message{....}Delete these 2 sessions? [y/N] => y
    2 sessions are in the trash; undo brings them back{...}
    & !{auth} {twin} !{old}`);
});

test("several are archived and brought back; one that cannot be does not keep the others from it", async () => {
  const { place, old, say } = ready();
  const server = serveHere(["--session", old, "--events", "none"], { place });
  await server.result("append", { entries: [{ type: "custom", customType: "x" }] });
  await say(`
    $ archive 019b 019aaaaa-1 019aaaaa-2 --yes
    019b: {...} is writing to this session.{...}
    1 session is as before.
    2 sessions are in the archive now; undo brings them back.
    = 1
    & !{auth} !{twin} {old}
    $ unarchive 019aaaaa-1 019aaaaa-2 --yes --json | results[].sessionId
    ["${AUTH}","${TWIN}"]
    & {auth} {twin} {old}`);
});

test("an entry is named by its id, its label, or the beginning of its id", async () => {
  const { place, say } = ready();
  stored(place, "019f-1", [
    userText("aaaa0001", null, "First"),
    userText("aaaa0002", "aaaa0001", "Second"),
    userText("bbbb0003", "aaaa0002", "Third"),
    entryText("label", "cccc0004", "bbbb0003", { targetId: "aaaa0002", label: "the turn" }),
    // An id stands before a label.
    entryText("label", "cccc0005", "cccc0004", { targetId: "aaaa0001", label: "bbbb0003" }),
  ]);
  await say(`
    $ show 019f-1 --entry 'the turn'
    + First[^]*Second
    - Third
    $ show 019f-1 --entry bbbb0003 :: Third
    $ show 019f-1 --entry bbbb :: Third
    $ show 019f-1 --entry aaaa !! aaaa may be any of these: aaaa0001 (First), aaaa0002 (Second). Use the id of one.
    $ show 019f-1 --entry bbb !! bbb
    $ show 019f-1 --entry nope !!
    $ fork 019f-1 'the turn'
    {fork=}
    & {fork}`);
});
