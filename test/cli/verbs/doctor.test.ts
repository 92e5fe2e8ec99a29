/** doctor, prune and verify --all as a person meets them: questions, what goes and what stays, exit statuses. */

import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, test, vi } from "vitest";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { contentsOf, putSession, rootOf, sessionId } from "../../support/lifecycle.ts";
import { chain, entryText } from "../../support/lines.ts";
import { type Place, temporaryPlace } from "../../support/server.ts";
import { expectTame, playVerbs, runHere } from "../../support/verbs.ts";

const NAME = "A name\u001b[2J with a bell\u0007, and so long that no line of a narrow terminal has room for all of it";
const SHORT = sessionId(1).slice(0, 8);

/** A home with something of everything that doctor and prune talk about. */
async function troubled(): Promise<{ place: Place; damaged: string; backup: string }> {
  const place = temporaryPlace();
  const { cwd } = place;
  const named = entryText("session_info", "f0000000", null, { name: NAME });
  const damaged = putSession(place, 1, { cwd, lines: [named, ...chain(2), '{"type":"message'] });
  const sound = putSession(place, 2, { cwd });
  putSession(place, 3, { cwd: `${place.home}/gone\u001b[31m` });
  expect((await runHere(place, ["migrate", putSession(place, 4, { cwd }), "--apply"])).status).toBe(0);
  for (const file of [damaged, sound]) writeFileSync(`${file}.v1.bak`, "an old version");
  chmodSync(place.state, 0o755);
  return { place, damaged, backup: `${sound}.v1.bak` };
}

test("a healthy home", async () => {
  const place = temporaryPlace();
  putSession(place, 1, { cwd: place.cwd });
  await playVerbs(place)(`
    $ doctor :: No damage was found\\.
    $ verify --all
    1 session, all sound.
    $ prune
    Nothing is left over.
    $ prune --trash
    The trash is empty.`);
});

test("a full disk is said to be full", async () => {
  vi.spyOn(realDisk, "space").mockReturnValue({ free: 0, total: 6_300_000 });
  const place = temporaryPlace();
  putSession(place, 1, { cwd: place.cwd });
  const { stdout } = await runHere(place, ["doctor"]);
  expect(stdout).toMatch(/Disk +0 B of 6.3 MB free\n +it is full/);
});

test.each([40, 80, 200])("the screens fit %i columns, and nothing in them acts on a terminal", async (columns) => {
  const { place } = await troubled();
  const before = contentsOf(rootOf(place));
  // Paths are printed whole, to be copied.
  for (const [typed, code, ...words] of [
    [
      "doctor",
      3,
      `repair ${SHORT}`,
      "1 damaged session",
      "Session Store V2",
      "does not exist any more",
      "doctor --fix",
    ],
    ["verify --all", 3, "4 sessions, 1 damaged.", /bad_line|torn_tail/, `Repair it: repair ${SHORT}`],
    ["prune", 0, "1 leftover stays"],
  ] as const) {
    const { stdout, status } = await runHere(place, typed.split(" "), { terminal: { columns } });
    const text = expectTame(stdout.replaceAll(/^ {4}\/.*$/gm, ""), columns).replace(/\s+/g, " ");
    expect(status).toBe(code);
    for (const word of words) expect(text).toMatch(word);
  }
  expect(contentsOf(rootOf(place))).toEqual(before);
});

test("sessions of directories that are gone are counted by directory", async () => {
  const place = temporaryPlace();
  for (const [n, of] of ["b", "a", "a"].entries()) putSession(place, n + 1, { cwd: `${place.home}/gone/${of}` });
  const { stdout } = await runHere(place, ["doctor"]);
  expect(stdout).toMatch(/list --cwd <dir>[\s\S]*\n {6}2 {2}~\/gone\/a\n {6}1 {2}~\/gone\/b\n/);
});

test("--fix asks and mends; without a terminal it takes --yes", async () => {
  const place = temporaryPlace();
  putSession(place, 1, { cwd: place.cwd, lines: [...chain(1), '{"type":"message'] });
  mkdirSync(place.state, { recursive: true });
  chmodSync(place.state, 0o755);
  const mode = () => (statSync(place.state).mode & 0o777).toString(8);
  const say = playVerbs(place, {});
  await say(`
    $ doctor --fix !2 use --yes
    $ doctor --fix --dry-run
    {...}
    doctor --fix would do this:
    {...}
    = 3
    $ doctor --fix
    ? {....}Close the state folder{....} => n
    {....}
    ! {....}`);
  expect(mode()).toBe("755");
  await say("$ doctor --fix\n? {....} => y\n{....}Done:{....}\n= 3");
  expect(mode()).toBe("700");
});

test("prune moves to the trash what may go, names what stays, and takes a path for it", async () => {
  const { place, damaged, backup } = await troubled();
  await playVerbs(place, { damaged, backup, left: `${damaged}.v1.bak` })(`
    $ prune --json | leftovers.length
    3
    $ verify --all --json | damaged.length
    1
    = 3
    $ doctor --json | damaged[].sessionPath
    ["{damaged}"]
    = 3
    $ doctor --json | damaged[].name
    + A name
    = 3
    $ doctor --json | ok
    false
    = 3
    $ prune --apply
    2 leftovers ({...}) moved to the trash. undo brings it back.{...}
      ~/{...}.jsonl.migrated
      The session is in its container. Without this file,{...}
    {...}
        {left}
    {...}
    & !{backup} {left}
    $ prune --apply {left} ::
    & !{left}
    $ undo ::`);
  expect(readFileSync(`${damaged}.v1.bak`, "utf8")).toBe("an old version");
});

test("removing for good asks with what and how much, and takes only that", async () => {
  const { place, backup } = await troubled();
  await playVerbs(place)("$ prune --apply --permanent !2 Use --yes");
  const late = backup.replace(".v1.bak", ".v2.bak");
  const answer = async (question: string): Promise<string> => {
    expect(question).toMatch(/^Remove 2 leftovers \(.*\) for good\? Nothing brings it back/);
    writeFileSync(late, "came after the question");
    return "y";
  };
  const run = playVerbs(place, { backup, late }, { terminal: { answer } });
  await run(`
    $ prune --apply --permanent
    2 leftovers ({...}) removed for good.{....}
    & !{backup} {late}`);
});

test("ages count from when something was left", async () => {
  const { place, backup } = await troubled();
  const after = (days: number) => playVerbs(place, {}, { now: Date.now() + days * 86_400_000 });
  await after(29)("$ prune --older-than 30d\nNothing is left over.");
  await after(31)("$ prune --older-than 30d :: 2 leftovers,");
  await after(29)(`$ prune --older-than 30d --apply ::\n& ${backup}`);
});

test("the trash is shown, and emptied of what is old when that is confirmed", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1, { cwd: place.cwd });
  const after = (days: number) => playVerbs(place, {}, { now: Date.parse("2026-03-01T00:00:00Z") + days * 86_400_000 });
  await after(0)(`$ delete ${file} --yes ::`);
  await after(91)(`
    $ prune --trash --older-than 90d
    + 91d ago|2mo ago|13w ago
    + Nothing\\s+brings\\s+them\\s+back
    $ prune --trash --apply !2
    $ trash empty !2`);
  await after(89)("$ prune --trash --older-than 90d --apply\nThe trash has nothing so old.");
  const trash = join(place.state, "trash");
  expect(Object.keys(contentsOf(trash)).length).toBe(2);
  await after(89)("$ trash empty --older-than 90d\nThe trash has nothing so old.");
  await after(91)(`
    $ trash empty --older-than 90d
    ? Remove 1 item of the trash ({...}) for good? Nothing brings it back. [y/N] => n
    ! Nothing was removed.
    $ prune --trash --older-than 90d --apply --yes :: removed for good\\.$`);
  expect(contentsOf(trash)).toEqual({});
});

test("of empty files, doctor has the whole command that deletes them", async () => {
  const place = temporaryPlace();
  const files = [1, 2].map((n) => putSession(place, n, { cwd: join(place.home, "it's here") }));
  for (const file of files) writeFileSync(file, "");
  const { stdout } = await runHere(place, ["doctor"], { terminal: { columns: 40 } });
  const [, command = ""] = /moves\s+them\s+to\s+the\s+trash:.*\n +(delete (?:.*\\\n)+.*)\n/.exec(stdout) ?? [];
  const words = execFileSync("sh", ["-c", `printf '%s\\n' ${command}`], { env: { HOME: place.home } });
  expect(words.toString().trimEnd().split("\n")).toEqual(["delete", ...files]);
  await playVerbs(place)(`
    $ verify --all
    {...} is not a session file: {...}
    {...} is not a session file: {...}

    0 sessions, all sound.`);
});

test("a session file that is beside the folders of the directories is named, and relocate takes it", async () => {
  const place = temporaryPlace();
  mkdirSync(place.cwd, { recursive: true });
  const [file, other] = [1, 2].map((n) => putSession(place, n, { cwd: place.cwd }));
  const high = join(rootOf(place), basename(file));
  renameSync(file, high);
  await playVerbs(place, { file, other, high: high.replace(place.home, "~"), whole: high })(`
    $ doctor
    {....}
    1 session that Pi and pi_agent_rust cannot show: they are not in the folder of their directory (relocate <id or path> <dir> moves one there).
      {high}  {...}
    {....}
    $ relocate {whole} {cwd} ::
    & {file} {other}
    $ doctor
    - not in the folder`);
});

test("of a file that is no session, doctor says that it may go elsewhere", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1, { cwd: place.cwd });
  writeFileSync(file, "hello world\n");
  await playVerbs(place)(`
    $ doctor
    + Nothing repairs it: restore it from a backup, or move it elsewhere if it is no session\\.
    = 3`);
});
