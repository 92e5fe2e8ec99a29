/** Changes to many sessions at once: chosen by age and directory, or those of a renamed directory. */

import { existsSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { INTERRUPTED } from "../../../src/cli/interrupts.ts";
import { Wire } from "../../../src/cli/wire.ts";
import { userText } from "../../support/lines.ts";
import { serveHere, temporaryPlace } from "../../support/server.ts";
import { playVerbs, runHere, stored } from "../../support/verbs.ts";

const NOW = Date.parse("2026-05-04T00:00:00.000Z");

/** Sessions of a directory that was renamed, of one in it, of one next to it, and an archived one. */
async function renamed() {
  const place = temporaryPlace();
  const [old, now] = ["old app", "new app"].map((name) => join(place.cwd, name));
  mkdirSync(join(now, "web"), { recursive: true });
  symlinkSync(now, join(place.cwd, "link"));
  const put = (id: string, cwd: string): string => stored(place, id, [userText("a", null, `about ${id}`)], { cwd });
  const files = {
    one: put("one", old),
    two: put("two", join(old, "web")),
    near: put("near", `${old}-2`),
    kept: put("kept", old),
  };
  const say = playVerbs(place, { ...files, now }, { now: NOW });
  await say("$ archive kept ::");
  return { place, now, old, ...files, say };
}

test.each([
  "--name docker",
  "-n docker",
  "--session zzz",
  "--fork one",
  "--model opus",
  "--tools read",
  "-c",
  "--no-session",
  "--cwd 'new app'",
  "--until 3m",
  "--until 1M",
])("no option that could be meant to choose fewer sessions is ignored: %s", async (option) => {
  const { say } = await renamed();
  await say(`
    $ delete --cwd 'old app' ${option} --yes !2
    & {one}
    & {two}`);
});

test("relocate --from moves the sessions of a renamed directory, and of those in it, by one operation", async () => {
  const { one, two, say } = await renamed();
  const before = [one, two].map((file) => readFileSync(file, "utf8"));
  const archived = "1 archived session stays as before. unarchive them, and do this again.";
  await say(`
    $ relocate --from 'old app/' link --dry-run
    {....}about two{....}about one{....}
    2 sessions would be relocated to {...}new app.
    ${archived}
    $ relocate --from 'old app/' link
    ? {....}about two{....}about one{....}Relocate these 2 sessions to {...}new app? [y/N] => n
    ! Nothing was relocated.
    $ relocate --from 'old app/' link !2 Use --yes
    & {one} {two} {near}
    $ relocate --from 'old app/' link
    ? {....} => y
    2 sessions are in {...}new app now; undo takes them back.
    ${archived}
    $ list --cwd 'new app' --json | sessions[].sessionId
    ["one"]
    $ list --cwd 'link/web/' --json | sessions[].sessionId
    ["two"]
    & !{one} !{two} {near}
    $ relocate --from 'old app' 'new app' --yes
    No session has the directory {...}old app, or one in it.
    ${archived}
    $ operations --limit 1 :: 2 sessions +Relocated 2 sessions\\.$
    $ undo
    Took back: Relocated 2 sessions.
    redo brings them back.
    & {one} {two} {near}`);
  expect([one, two].map((file) => readFileSync(file, "utf8"))).toEqual(before);
});

test("relocate --from completes the relocation of a session that a killed process left between both places", async () => {
  const { place, old, now, say } = await renamed();
  const left = stored(place, "left", [userText("a", null, "about left")], { cwd: join(now, "web") }, join(old, "web"));
  const there = stored(place, "there", [userText("a", null, "about there")], { cwd: now });
  await say(`
    $ relocate --from 'old app' 'new app' --yes
    3 sessions are in {...}new app now; undo takes them back.
    {...}`);
  expect([left, there].map((file) => existsSync(file))).toEqual([false, true]);
  await say('$ list --cwd \'new app/web\' --json | sessions[].sessionId\n["two","left"]');
});

test("relocate --from leaves out sessions in the new directory, and wants another one that exists", async () => {
  const { say } = await renamed();
  await say(`
    $ relocate --from 'old app' 'old app/web' !2 There is no folder
    $ relocate --from 'new app' link !2 Both directories are {now}.
    $ relocate --from 'old app' 'old app/web' --yes --allow-missing
    {...}
    {...}
    $ list --cwd 'old app/web' --json | sessions[].sessionId
    ["two","one"]`);
});

test.each(["", "src", "~/src"])("a session whose stored directory is %j is in no directory", async (cwd) => {
  const place = temporaryPlace();
  const lost = stored(place, "lost", [userText("a", null, "about lost")], { cwd });
  const here = process.cwd();
  const say = playVerbs(place, { lost });
  for (const dir of ["/", here, `${here}/src`, `${here}/~/src`]) {
    await say(`
      $ list --cwd ${dir} --json | sessions
      []
      $ search about --cwd ${dir} --count
      0
      = 1
      $ stats --cwd ${dir} --json | totals.sessions
      0
      $ delete --cwd ${dir} --yes :: no such sessions
      $ archive --cwd ${dir} --yes :: no such sessions`);
    if (dir !== "/") await say(`$ relocate --from ${dir} / --yes :: No session has the directory`);
  }
  await say("& {lost}");
});

test("a session that another process has open stays, the rest moves, and undo takes that back", async () => {
  const { place, one, two, say } = await renamed();
  const server = serveHere(["--session", two, "--events", "none"], { place });
  await server.result("append", { entries: [{ type: "custom", customType: "x" }] });
  await say(`
    $ relocate --from 'old app' 'new app' --yes
    two: {...} is writing to this session.{...}
    1 session is as before.
    1 session is in {...}new app now; undo takes it back.
    {...}
    = 1
    & !{one} {two}
    $ undo ::
    & {one} {two}`);
  await server.finish();
  expect(one).not.toBe(two);
});

test("of a session that another program archives before the answer, it does not say that it is as before", async () => {
  const { place, one, two } = await renamed();
  const answer = async (): Promise<string> => {
    await runHere(place, ["archive", "one"], { now: NOW });
    return "y";
  };
  const run = await runHere(place, ["archive", "--query", "old app"], { now: NOW, terminal: { answer } });
  expect(run).toEqual({
    stdout:
      "one: It is not in its place any more: another program moved or deleted it meanwhile. operations may say which.\n" +
      "2 sessions are in the archive now; undo brings them back.\n",
    stderr: "",
    status: 1,
  });
  expect([one, two].map((file) => existsSync(file))).toEqual([false, false]);
});

test("delete --until and --cwd show their sessions, ask, and are one operation", async () => {
  const { say } = await renamed();
  await say(`
    $ delete --until 90d !2 Use --yes
    $ delete --until 90d --cwd 'old app-2' --dry-run
    {....}about near{....}
    1 session would be deleted.
    $ delete --cwd 'old app-2/'
    ? {....}about near{....}Delete this session? [y/N] => y
    1 session is in the trash; undo brings it back, trash empty removes it for good.
    & !{near} {one} {two}
    $ delete --until 90d
    ? {....}about two{....}about one{....}Delete these 2 sessions? [y/N] => y
    2 sessions are in the trash; undo brings them back, trash empty removes them for good.
    & !{one} !{two}
    $ undo
    Took back: Deleted 2 sessions.
    redo brings them back.
    & {one} {two} !{near}
    $ restore NEAR ::
    & {near}
    $ delete --cwd 'old app' --permanent
    ? {....}for good? It cannot be restored. [y/N] => y
    1 session is deleted for good.
    & !{one}`);
});

test("several named sessions are shown before they are archived, and are one operation", async () => {
  const { say } = await renamed();
  await say(`
    $ archive one two near !2 Use --yes
    & {one} {two} {near}
    $ archive one two near
    ? {....}about one{....}about two{....}about near{....}Archive these 3 sessions? [y/N] => n
    ! Nothing was archived.
    & {one} {two} {near}
    $ archive one two near
    ? {....} => y
    3 sessions are in the archive now; undo brings them back.
    & !{one} !{two} !{near}
    $ unarchive one two
    ? {....}about one{....}about two{....}Bring back these 2 sessions? [y/N] => y
    2 sessions are back; undo puts them into the archive again.
    & {one} {two} !{near}
    $ delete one two --yes
    2 sessions are in the trash; undo brings them back, trash empty removes them for good.
    & !{one} !{two}`);
});

test("archive, unarchive and delete choose the sessions that list finds by words and times", async () => {
  const { say } = await renamed();
  await say(`
    $ archive --query ' ' --yes !2 --query needs words.
    $ archive --query 'about app-2' --dry-run
    {....}about near{....}
    1 session would be archived.
    $ archive --query about --since 90d --yes
    There are no such sessions.
    $ archive --query about --cwd 'old app' --yes
    1 session is in the archive now; undo brings it back.
    & !{one} {two} {near}
    $ unarchive --query about --cwd 'old app'
    ? {....}about one{....}about kept{....}Bring back these 2 sessions? [y/N] => y
    2 sessions are back; undo puts them into the archive again.
    & {one} {kept}
    $ undo
    Took back: {...}
    redo brings them back.
    & !{one} !{kept}
    $ delete --query 'ABOUT app/web' --yes
    1 session is in the trash; undo brings it back, trash empty removes it for good.
    & !{two} {near}`);
});

test("a directory without sessions is answered with those below it, or with a similar one", async () => {
  const { place, say } = await renamed();
  await say(`
    $ list --cwd .
    ! No session is in {...}, 3 are in directories below it. list --query '${place.cwd}' lists them.
    = 0
    $ archive --cwd 'old ap'
    There are no such sessions.
    ! No session is in {...}. Did you mean {...}/old app, with 1 session?
    = 0
    $ search about --cwd 'old ap'
    Nothing was found. --tools searches the output of tools, too; list --query searches names and labels.
    ! No session is in {...}. Did you mean {...}/old app, with 1 session?
    $ stats --cwd 'old ap'
    {...}
    ! No session is in {...}. Did you mean {...}/old app, with 1 session?
    = 0
    $ relocate --from elsewhere/web 'new app'
    No session has the directory {...}/elsewhere/web, or one in it.
    ! No session is in {...}. Did you mean {...}/old app/web, with 1 session?
    = 0
    $ list --cwd 'old app' --until 1990
    No session fits.
    $ archive --cwd 'old app' --yes ::
    $ list --cwd 'old app'
    ! 2 sessions of {...}/old app are archived. list --archived --cwd '{...}/old app' lists them.
    = 0
    $ list --archived --cwd 'old app' --until 1990
    No archived session fits.
    $ list --cwd nowhere
    No session fits: there is no folder {...}/nowhere.`);
});

test("of two files with one id, a change names the paths", async () => {
  const { place, one, say } = await renamed();
  const again = stored(place, "one", [userText("a", null, "about one")], { cwd: "/elsewhere" });
  for (const verb of ["delete", "archive"]) {
    const { stderr, status } = await runHere(place, [verb, "one", "--yes"]);
    expect([verb, status]).toEqual([verb, 1]);
    for (const path of [one, again]) expect(stderr).toContain(`  ${path.replace(place.home, "~")}  `);
  }
  await say("& {one}");
});

test("--dry-run shows named sessions, too, and changes nothing", async () => {
  const { one, near, say } = await renamed();
  await say(`
    $ delete {one} near kept --dry-run
    {....}about one{....}about near{....}about kept{....}
    3 sessions would be deleted.
    & {one} {near}`);
  expect([existsSync(one), existsSync(near)]).toEqual([true, true]);
});

test("Ctrl+C ends a change of many sessions after the current one, says how many stay, and undo takes it back", async () => {
  const { place, one, two, near, say } = await renamed();
  let press = (): void => {};
  const onInterrupt = (act: () => void) => {
    press = act;
    return () => {};
  };
  const { ask } = Wire.prototype;
  const spied = vi.spyOn(Wire.prototype, "ask").mockImplementation(function (this: Wire, method, params) {
    const asked = ask.call(this, method, params);
    if (method === "delete_session") press();
    return asked;
  });
  const { stdout, status } = await runHere(place, ["delete", one, two, near, "--yes"], { terminal: { onInterrupt } });
  spied.mockRestore();
  expect([stdout, status]).toEqual([
    "Ctrl+C ended it early: 2 sessions are as before.\n" +
      "1 session is in the trash; undo brings it back, trash empty removes it for good.\n",
    INTERRUPTED,
  ]);
  await say("$ undo ::\n& {one} {two} {near}");
});
