/** doctor, prune and verify --all as a person meets them: questions, screens, exit statuses. */

import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { expect, test } from "vitest";
import { widthOf } from "../../../src/cli/terminal/text.ts";
import { contentsOf, putSession, rootOf, sessionId } from "../../support/lifecycle.ts";
import { chain, entryText } from "../../support/lines.ts";
import { type Place, temporaryPlace } from "../../support/server.ts";
import { type Run, runHere } from "../../support/verbs.ts";

/** Characters that would act on a terminal. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const ACTING = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/;
const NAME = "A name\u001b[2J with a bell\u0007, and so long that no line of a narrow terminal has room for all of it";

const short = (n: number): string => sessionId(n).slice(0, 8);

/** A home with something of everything that doctor and prune talk about. */
async function troubled(): Promise<{ place: Place; damaged: string; backup: string }> {
  const place = temporaryPlace();
  const named = entryText("session_info", "f0000000", null, { name: NAME });
  const damaged = putSession(place, 1, { cwd: place.cwd, lines: [named, ...chain(2), '{"type":"message'] });
  const sound = putSession(place, 2, { cwd: place.cwd });
  putSession(place, 3, { cwd: `${place.home}/gone\u001b[31m` });
  const moved = putSession(place, 4, { cwd: place.cwd });
  expect((await runHere(place, ["migrate", moved, "--apply"])).status).toBe(0);
  for (const file of [damaged, sound]) writeFileSync(`${file}.v1.bak`, "an old version");
  chmodSync(place.state, 0o755);
  return { place, damaged, backup: `${sound}.v1.bak` };
}

function fits({ stdout }: Run, width: number): void {
  expect(stdout).not.toMatch(ACTING);
  for (const line of stdout.split("\n")) expect(widthOf(line), line).toBeLessThanOrEqual(width);
}

test("a healthy home", async () => {
  const place = temporaryPlace();
  putSession(place, 1, { cwd: place.cwd });
  const { stdout, status } = await runHere(place, ["doctor"]);
  expect([status, stdout]).toEqual([0, expect.stringContaining("No damage was found.")]);
  expect((await runHere(place, ["verify", "--all"])).stdout).toBe("1 session, all sound.\n");
  expect((await runHere(place, ["prune"])).stdout).toBe("Nothing is left over.\n");
  expect((await runHere(place, ["prune", "--trash"])).stdout).toBe("The trash is empty.\n");
});

test.each([40, 80, 200])("the screens fit %i columns, and nothing in them acts on a terminal", async (columns) => {
  const { place } = await troubled();
  const terminal = { columns };
  const before = contentsOf(rootOf(place));
  const variables = { NO_COLOR: "1" };
  const doctor = await runHere(place, ["doctor"], { terminal, variables });
  fits(doctor, columns);
  expect(doctor.status).toBe(3);
  expect(doctor.stdout.replace(/\s+/g, " ")).toContain(`repair ${short(1)}`);
  for (const words of ["1 damaged session", "Session Store V2", "does not exist any more", "doctor --fix"])
    expect(doctor.stdout.replace(/\s+/g, " "), words).toContain(words);
  const verify = await runHere(place, ["verify", "--all"], { terminal, variables });
  fits(verify, columns);
  expect([verify.status, verify.stdout]).toEqual([3, expect.stringContaining("4 sessions, 1 damaged.")]);
  const prune = await runHere(place, ["prune"], { terminal, variables });
  // Paths are printed whole, to be copied.
  fits({ ...prune, stdout: prune.stdout.replaceAll(/^ {4}\/.*$/gm, "") }, columns);
  expect([prune.status, prune.stdout]).toEqual([0, expect.stringContaining("1 leftover stays")]);
  expect(contentsOf(rootOf(place))).toEqual(before);
});

/** A home with a damaged session, and a state folder that others may read. */
function open(): { place: Place; mode: () => string } {
  const place = temporaryPlace();
  putSession(place, 1, { cwd: place.cwd, lines: [...chain(1), '{"type":"message'] });
  mkdirSync(place.state, { recursive: true });
  chmodSync(place.state, 0o755);
  return { place, mode: () => (statSync(place.state).mode & 0o777).toString(8) };
}

test("--fix asks and mends", async () => {
  const { place, mode } = open();
  let asked = "";
  const answering = (answer: string) => ({
    terminal: {
      answer: async (question: string) => {
        asked = question;
        return answer;
      },
    },
  });
  const refused = await runHere(place, ["doctor", "--fix"], answering("n"));
  expect([refused.status, asked, mode()]).toEqual([1, expect.stringContaining("Close the state folder"), "755"]);
  const done = await runHere(place, ["doctor", "--fix"], answering("y"));
  expect([done.status, done.stdout, mode()]).toEqual([3, expect.stringContaining("Done:"), "700"]);
});

test("--fix lists; without a terminal it takes --yes", async () => {
  const { place } = open();
  const alone = await runHere(place, ["doctor", "--fix"]);
  expect([alone.status, alone.stderr]).toEqual([2, expect.stringContaining("use --yes")]);
  const dry = await runHere(place, ["doctor", "--fix", "--dry-run"]);
  expect([dry.status, dry.stdout]).toEqual([3, expect.stringContaining("doctor --fix would do this:")]);
  expect((await runHere(place, ["doctor", "--yes"])).status).toBe(2);
});

test("--json is what the commands return", async () => {
  const { place, damaged } = await troubled();
  const doctor = JSON.parse((await runHere(place, ["doctor", "--json"])).stdout);
  expect([doctor.ok, doctor.damaged[0].name, doctor.damaged[0].sessionPath]).toEqual([false, NAME, damaged]);
  const prune = JSON.parse((await runHere(place, ["prune", "--json"])).stdout);
  expect(prune.leftovers.length).toBe(3);
  const { stdout, status } = await runHere(place, ["verify", "--all", "--json"]);
  expect([JSON.parse(stdout).damaged.length, status]).toEqual([1, 3]);
});

test("prune moves to the trash what may go, names what stays, and takes a path for it", async () => {
  const { place, damaged, backup } = await troubled();
  const { stdout, status } = await runHere(place, ["prune", "--apply"]);
  expect([status, existsSync(backup), existsSync(`${damaged}.v1.bak`)]).toEqual([0, false, true]);
  expect(stdout).toMatch(/^2 leftovers \(.*\) moved to the trash\. undo brings it back\./);
  expect(stdout).toMatch(/^ {2}\S*\.jsonl\S*\n {2}The session is in its container\. Without this file,/m);
  expect(stdout).toContain(`    ${damaged}.v1.bak\n`);
  await runHere(place, ["prune", "--apply", `${damaged}.v1.bak`]);
  expect(existsSync(`${damaged}.v1.bak`)).toBe(false);
  expect((await runHere(place, ["undo"])).status).toBe(0);
  expect(readFileSync(`${damaged}.v1.bak`, "utf8")).toBe("an old version");
  expect((await runHere(place, ["prune", `${place.home}/nothing.jsonl.v1.bak`])).status).toBe(1);
});

test("removing for good asks with what and how much, and takes only that", async () => {
  const { place, backup } = await troubled();
  expect((await runHere(place, ["prune", "--permanent"])).status).toBe(2);
  const alone = await runHere(place, ["prune", "--apply", "--permanent"]);
  expect([alone.status, alone.stderr, existsSync(backup)]).toEqual([2, expect.stringContaining("use --yes"), true]);
  const late = `${dirname(backup)}/${sessionId(2)}.jsonl.v1.bak`;
  const answer = async (question: string): Promise<string> => {
    expect(question).toMatch(/^Remove 2 leftovers \(.*\) for good\? Nothing brings it back/);
    writeFileSync(late, "came after the question");
    return "y";
  };
  const { status, stdout } = await runHere(place, ["prune", "--apply", "--permanent"], { terminal: { answer } });
  expect([status, existsSync(backup), existsSync(late)]).toEqual([0, false, true]);
  expect(stdout).toMatch(/^2 leftovers \(.*\) removed for good\./);
});

test("ages count from when something was left", async () => {
  const { place, backup } = await troubled();
  const days = (n: number) => ({ now: Date.now() + n * 86_400_000 });
  expect((await runHere(place, ["prune", "--older-than", "30d"], days(29))).stdout).toBe("Nothing is left over.\n");
  expect((await runHere(place, ["prune", "--older-than", "30d"], days(31))).stdout).toContain("2 leftovers,");
  expect((await runHere(place, ["prune", "--older-than", "soon"])).status).toBe(2);
  await runHere(place, ["prune", "--older-than", "30d", "--apply"], days(29));
  expect(existsSync(backup)).toBe(true);
});

test("the trash is shown, and emptied of what is old when that is confirmed", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1, { cwd: place.cwd });
  mkdirSync(place.state, { recursive: true });
  const now = Date.parse("2026-03-01T00:00:00Z");
  await runHere(place, ["delete", file, "--yes"], { now });
  const trash = `${place.state}/trash`;
  const at = (days: number) => ({ now: now + days * 86_400_000 });
  const shown = await runHere(place, ["prune", "--trash", "--older-than", "90d"], at(91));
  expect(shown.stdout).toMatch(/91d ago|2mo ago|13w ago/);
  expect(shown.stdout).toMatch(/nothing\s+brings\s+it\s+back/);
  const young = await runHere(place, ["prune", "--trash", "--older-than", "90d", "--apply"], at(89));
  expect(young.stdout).toBe("The trash has nothing so old.\n");
  const alone = await runHere(place, ["prune", "--trash", "--apply"], at(91));
  expect([alone.status, Object.keys(contentsOf(trash)).length]).toEqual([2, 2]);
  const done = await runHere(place, ["prune", "--trash", "--older-than", "90d", "--apply", "--yes"], at(91));
  expect([done.status, contentsOf(trash)]).toEqual([0, {}]);
  expect(done.stdout).toMatch(/removed for good\.\n$/);
  expect((await runHere(place, ["prune", "--trash", "x"])).status).toBe(2);
});

test("verify takes a session or --all, and says what to do", async () => {
  const { place } = await troubled();
  for (const args of [["verify"], ["verify", "--all", short(1)], ["verify", "--archived", short(1)]])
    expect((await runHere(place, args)).status, args.join(" ")).toBe(2);
  const { stdout } = await runHere(place, ["verify", "--all"]);
  expect(stdout).toMatch(/bad_line|torn_tail/);
  expect(stdout).toContain(`Mend it: repair ${short(1)}`);
});
