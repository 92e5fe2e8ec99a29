/** The verbs for what happened, as a person uses them: operations, undo, redo, trash, and archiving by age. */

import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
} from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { makeOutputStyle } from "../../../src/cli/terminal/page.ts";
import { formatTrash } from "../../../src/cli/verbs/trash.ts";
import { contentsOf, put, putSession, rootOf, sessionId } from "../../support/lifecycle.ts";
import { entryText } from "../../support/lines.ts";
import { type Place, temporaryPlace } from "../../support/server.ts";
import { playVerbs, type RunOptions, runHere } from "../../support/verbs.ts";

const NOW = Date.parse("2026-01-24T18:40:00.000Z");
const [ONE, TWO, THREE] = [1, 2, 3].map(sessionId);

function say(place: Place, options: RunOptions = {}) {
  const names = { one: ONE, two: TWO, three: THREE, short: ONE.slice(0, 8), id: /[0-9a-f]{8}/ };
  return playVerbs(place, names, { now: NOW, ...options });
}

/** A place with a session that was named and archived, another deleted by a host, and a third session. */
async function used(): Promise<{ place: Place; file: string }> {
  const place = temporaryPlace();
  const [file] = [1, 2].map((n) => putSession(place, n));
  await say(place, { now: NOW - 8_000_000 })(`
    $ rename ${file} Refactor auth ::
    $ archive {one} ::
    $ delete {two} --yes ::`);
  return { place, file };
}

test("operations tells what happened, undo takes it back one by one, and redo brings it again", async () => {
  const { place, file } = await used();
  const { named } = await say(place)(`
    $ operations
    ID         AGE  SESSION               OPERATION
    {id}    2h  {short}              Deleted "say a0000000".
    {id}    2h  Refactor auth         Archived "Refactor auth".
    {named=}    2h  Refactor auth         Named the session "Refactor auth".
    $ undo
    Took back: Deleted "say a0000000".
    {...}
    $ undo
    Took back: Archived "Refactor auth".
    {...}
    $ redo
    Did again: Archived "Refactor auth".
      {short}  ~/state/archive/{...}
    undo takes it back again.`);
  await say(place)(`
    $ undo ${String(named).slice(0, 4)} :: ^redo brings it back\\.$
    $ COLUMNS=120 operations ${file}
    ID {...}
    {id} {...}  Took back: Named the session "Refactor auth".
    {id} {...}  Did again: Archived "Refactor auth".
    {id} {...}  (undone) Took back: Archived "Refactor auth".
    {id} {...}  Archived "Refactor auth".
    {id} {...}  (undone) Named the session "Refactor auth".
    $ redo --json | kind
    "rename"`);
});

test("the sum of the trash counts what only the fleet has, is whole in a pipe, and promises no more than is removed", () => {
  const item = { ...{ sessionPath: "/s", name: "named", firstMessage: null, messageCount: 1, sizeBytes: 2000 } };
  const here = { ...item, sessionId: ONE, itemPath: "/t", deletedAt: "2026-01-24T16:40:00.000Z" };
  const there = { ...here, sessionId: TWO, itemPath: null };
  const page = makeOutputStyle({ COLUMNS: "60" }, undefined, NOW);
  const shown = (...items: Parameters<typeof formatTrash>[0]["items"]): string[] => {
    const own = items.filter(({ itemPath }) => itemPath !== null);
    const sums = { total: items.length, totalBytes: 2000 * own.length, desktopTrash: false };
    return [...formatTrash({ items, ...sums }, page)];
  };
  const sum = (n: string, size: string, removed: string): string =>
    `${n}, ${size} kB. restore <id> brings a session back, ${removed}.`;
  expect(shown(there).at(-1)).toBe(sum("1 item", "2.0", "fleet prune removes those of the fleet's database"));
  expect(shown(here, there).at(-1)).toBe(sum("2 items", "4.0", "trash empty removes the 2.0 kB of this machine"));
  expect(shown(here).at(-1)).toBe(sum("1 item", "2.0", "trash empty removes all"));
  expect(shown({ ...here, restored: true as const })[1]).toContain("restored since: named");
});

test("the trash is listed with sizes and ages, by either verb, and a short id gets a session back", async () => {
  const { place } = await used();
  const before = Object.keys(contentsOf(rootOf(place))).length;
  const trash = ` AGE    MSGS      SIZE  ID        NAME OR FIRST MESSAGE
      2h       3     {...} B  {short}  say a0000000
    1 item, {...} B. restore <id> brings a session back, trash empty removes all.`;
  await say(place)(`
    $ trash
    ${trash}
    $ list --trash
    ${trash}
    $ list --trash --json | total
    1
    $ trash ffff :: ^Nothing in the trash has the id ffff\\.
    $ restore SAY !! has no such session
    $ restore ${TWO} ::
    $ undo :: ^Took back: Restored "say a0000000"\\.$
    $ restore ${TWO.slice(0, 4)} ::
    $ trash
    There is nothing in the trash.`);
  expect(Object.keys(contentsOf(rootOf(place))).length).toBe(before + 1);
  await say(place)("$ undo ::");
  expect(readdirSync(join(place.state, "trash"))).toHaveLength(1);
  // Ids are shown as long as needed to be unique.
  await say(place)(`
    $ delete ${putSession(place, 3)} --yes ::
    $ trash
    + {two}
    + {three}`);
});

test("restore says which copy it took if the trash has several, and undo of an import says where the session is", async () => {
  const { place, file } = await used();
  const again = putSession(place, 2);
  const later = { now: NOW + 3_600_000 };
  await say(place)("$ delete {two} --yes ::");
  await say(
    place,
    later,
  )(`
    $ restore {two}
    {....}
    !0 The trash had 2 copies of 01991f6e{...}; this is the one deleted last, 1h ago. {...}`);
  const out = put(join(place.cwd, "out.jsonl"), readFileSync(again, "utf8").replaceAll(TWO, THREE));
  await say(place)(`
    $ import ${out}
    {....}
    !0 {...}
    $ undo
    Took back: Imported "say a0000000".
      {short}  ~{...}.jsonl
    It is in the trash now; redo brings it back.
    $ restore {three}
    {....}`);
  expect(existsSync(file)).toBe(false);
});

test("a deleted session in which nothing was said is listed so, with its folder", async () => {
  const { place } = await used();
  await say(place)(`
    $ delete ${putSession(place, 3, { lines: [] })} --yes ::
    $ @120 trash
    + \\(nothing said\\) {2}…?[^ ]*--home-me-project--`);
});

test("restore of a session that was deleted for good says that only a backup has it", async () => {
  const { place } = await used();
  await say(place)(`
    $ delete ${putSession(place, 3)} --yes --permanent ::
    $ restore {three} !! A session that was deleted for good is only in a backup; import takes a file from there.`);
});

test("delete asks with the way back that there will be", async () => {
  const { place } = await used();
  const bin = join(place.home, "bin");
  put(join(bin, "trash"), "#!/bin/sh\nexit 1\n");
  chmodSync(join(bin, "trash"), 0o755);
  const file = putSession(place, 3);
  await say(place)(`
    $ PATH= delete ${file}
    ? Delete "say a0000000", 3 messages, /home/me/project? [y/N] => n
    ! {...}
    $ PATH=${bin} delete ${file}
    ? {...}undo cannot bring it back{...} => n
    ! {...}`);
});

test("undo asks before it takes back what was done long ago, and says when that was", async () => {
  const { place } = await used();
  await say(place)(`
    $ undo
    ? The last change was made 2h ago: Deleted "say a0000000".{....}Undo it now? [y/N] => n
    ! Nothing was taken back.
    $ undo
    ? The last change was made 2h ago: Deleted {....} => y
    Took back: Deleted "say a0000000".
    {...}
    redo brings it back.
    The change was made 2h ago.
    $ rename {two} Recent ::
    $ undo --in {one}
    ? The last change was made 2h ago: Archived {....} => n
    ! Nothing was taken back.`);
  // A change of the last minutes is taken back at once.
  const answer = () => Promise.reject(new Error("It asks."));
  await say(place, { terminal: { answer } })("$ undo :: ^Took back: Named the session");
});

test("undo asks before it takes back an older operation than the last, which cannot be undone", async () => {
  const { place } = await used();
  await say(place)(`
    $ delete {one} --permanent --yes ::
    $ undo !! Undo that by its id.
    $ undo
    ? The last operation cannot be undone: {...} Deleted "say a0000000". {....}Undo it now? [y/N] => n
    ! {...}
    $ undo
    ? The last operation cannot be undone: {...} Deleted "say a0000000". {....}Undo it now? [y/N] => y
    {....}`);
});

test("undo asks so, too, where sessions went on or are gone, and until one can be taken back", async () => {
  const { place, file } = await used();
  await say(place)(`
    $ restore {two} ::
    $ goto ${putSession(place, 3)} a0000000 ::`);
  for (const gone of [putSession(place, 2), putSession(place, 3)]) rmSync(gone);
  await say(place)(`
    $ undo !! There is no session at {...} any more. {....}The next older operation is {id}{...}: Restored {...} Undo that by its id.
    $ undo
    ? {....}The next older operation is {....}Undo it now? [y/N] => y
    ? {....}The next older operation is {....}Undo it now? [y/N] => y
    Took back: Archived "Refactor auth".
    {....}
    & ${file}`);
});

test("goto to where a conversation goes on already says so, and a change that is not recorded does not hide it", async () => {
  const { place, file } = await used();
  await say(place)(`
    $ unarchive {one} ::
    $ goto {one} leaf --at :: undo takes that back.
    $ goto {one} leaf --at
    The conversation goes on from {id} already; nothing was changed.
    $ goto {one} leaf --at --json | unchanged
    true
    $ goto {one} a0000000 --at
    The conversation goes on from a0000000; undo takes that back.`);
  // The disk refuses the record of operations, and nothing else.
  const record = join(place.state, "operations", "1.jsonl");
  rmSync(record);
  mkdirSync(record);
  const { stdout, stderr, status } = await runHere(place, ["rename", file, "Unrecorded"], { now: NOW });
  expect([stdout, status]).toEqual(["The name is now Unrecorded.\n", 0]);
  expect(stderr).toContain('Named the session "Unrecorded"');
  expect(stderr).toContain("the disk refused its record");
  rmdirSync(record);
  await say(place)(`
    $ undo !! The last operation cannot be undone: Unrecorded change: rename. The disk had no room for its record{...}
    $ operations :: Unrecorded change: rename`);
});

const DAY = 86_400_000;
const LATER = { now: NOW + 100 * DAY };

test("archive --until shows what it chose, asks, and moves nothing before", async () => {
  const place = temporaryPlace();
  for (const n of [1, 2]) putSession(place, n);
  await say(
    place,
    LATER,
  )(`
    $ list --until 101d
    No session fits.
    $ archive --until 101d --yes
    There are no such sessions.
    $ archive --until 90d --dry-run --plain
    + ${ONE.slice(0, 8)}
    + ${TWO.slice(0, 8)}
    + ^2 sessions would be archived\\.$
    $ archive --until 90d !2 --yes
    $ list --archived --json | total
    0
    $ archive --until 90d
    ? {....}{short}{....}Archive these 2 sessions? [y/N] => n
    ! Nothing was archived.
    $ archive --until 90d
    ? {....} => y
    2 sessions are in the archive now; undo brings them back.
    $ list --archived --json | total
    2
    $ operations :: ^{id} .* 2 sessions +Archived 2 sessions\\.$
    $ undo
    Took back: Archived 2 sessions.
    redo brings them back.
    $ list --archived --json | total
    0`);
});

test.each([
  ["archive", "--until", "90d"],
  ["delete", ONE, TWO],
])("%s leaves alone what was continued before the answer", async (...args) => {
  const place = temporaryPlace();
  const [, file] = [1, 2].map((n) => putSession(place, n));
  const answer = async (): Promise<string> => {
    const message = { role: "user", content: "one more thing" };
    appendFileSync(file, `${entryText("message", "cafe0001", "a0000002", { message })}\n`);
    return "y";
  };
  const { stdout, stderr, status } = await runHere(place, args, { ...LATER, terminal: { answer } });
  expect([stderr, status, stdout]).toEqual(["", 1, expect.stringContaining("was continued since it was listed")]);
  await say(place, LATER)('$ list --json | sessions[].sessionId\n["{two}"]');
});
