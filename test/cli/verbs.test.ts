/** Verbs of the command line: what they print, for people and for programs, and how they end. */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { verbs } from "../../src/cli/table.ts";
import { VERSION } from "../../src/version.ts";
import { PROGRAM } from "../support/build.ts";
import { fileOf, linesIn, sessionFile } from "../support/cases.ts";
import { chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { imprint } from "../support/proof.ts";
import {
  type Json,
  type Place,
  programEnvironment,
  runProgram,
  spawnServer,
  temporaryPlace,
} from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";
import { type Run, runHere } from "../support/verbs.ts";

function run(place: Place, ...args: string[]): Promise<Run> {
  return runHere(place, args);
}

/** A session with a lost line in its middle, whose gap is bridged, and a torn tail. */
function damagedIn(place: Place): string {
  const lines = [...chain(2), "}{", userText(id(3), id(2)), userText(id(4), id(3))];
  return fileOf(place, `${fileText(headerText(), ...lines)}{"type":"mess`, "damaged.jsonl");
}

describe("verify", () => {
  test("says that a session is sound, by path and by id", SYSTEM, async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(3), "s.jsonl", headerText({ id: "sound" }));
    const before = imprint(file);
    const sound = { stdout: "The session is sound.\n", stderr: "", status: 0 };
    expect(await runProgram("", ["verify", file], place)).toEqual(sound);
    expect(await run(place, "verify", "./s.jsonl")).toEqual(sound);
    expect(await run(place, "verify", "sound", "--session-dir", place.cwd)).toEqual(sound);
    expect(await run(place, "verify", "--session-dir", place.cwd, "sou")).toEqual(sound);
    expect(imprint(file)).toEqual(before);
  });

  test("lists damage, changes nothing, and ends with 3", async () => {
    const place = temporaryPlace();
    const file = damagedIn(place);
    const before = imprint(file);
    const { stdout, stderr, status } = await run(place, "verify", file);
    expect([stderr, status]).toEqual(["", 3]);
    expect(stdout).toMatch(/^3 damaged places:\n/);
    expect(stdout).toMatch(/^ {2}bad_line \(line 4, 2 bytes at \d+\): .+; lost$/m);
    expect(stdout).toMatch(/^ {2}torn_tail \(/m);
    expect(stdout).toMatch(/^ {2}missing_parent \(.*entry a0000003\): /m);
    expect(imprint(file)).toEqual(before);
  });

  test("--json prints the result of verify_session", async () => {
    const place = temporaryPlace();
    const { stdout, status } = await run(place, "verify", damagedIn(place), "--json");
    const result = JSON.parse(stdout);
    expect([status, result.ok, result.damage.map(({ kind }: Json) => kind).sort()]).toEqual([
      3,
      false,
      ["bad_line", "missing_parent", "torn_tail"],
    ]);
    expect(stdout.split("\n")).toHaveLength(2);
  });

  test("prints nothing that a terminal obeys", async () => {
    const place = temporaryPlace();
    const nasty = "\u001b[31m\u202ex\u0007";
    const file = sessionFile(place, [
      entryText("message", nasty, "nowhere", { message: { role: "user", content: "x" } }),
    ]);
    const { stdout, status } = await run(place, "verify", file);
    expect(status).toBe(3);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
    expect(stdout.replaceAll("\n", "")).not.toMatch(/[\u0000-\u001f\u202e]/);
    expect(stdout).toContain("\\u001b[31m\\u202ex\\u0007");
  });
});

describe("repair", () => {
  test("says what it would do, does it, and has nothing to do then", async () => {
    const place = temporaryPlace();
    const file = damagedIn(place);
    const before = imprint(file);
    const dry = await run(place, "repair", file, "--dry-run");
    expect([dry.status, dry.stderr]).toEqual([3, ""]);
    expect(dry.stdout).toMatch(/^This would be repaired:\n {2}\w+ \(/);
    expect(imprint(file)).toEqual(before);

    const done = await run(place, "repair", file);
    expect([done.status, done.stderr]).toEqual([0, ""]);
    const backup = `${file}.damaged.bak`;
    expect(done.stdout).toContain("The original is kept beside it (.damaged.bak); undo puts it back.\n4 entries.\n");
    expect(readFileSync(backup, "latin1")).toBe(before.bytes);
    expect(linesIn(file)).toHaveLength(5);

    const repaired = imprint(file);
    const again = await run(place, "repair", file, "--json");
    expect([again.status, JSON.parse(again.stdout)]).toEqual([
      0,
      { repaired: [], backupPath: null, answered: [], entryCount: 4 },
    ]);
    expect(imprint(file)).toEqual(repaired);
    expect((await run(place, "verify", file)).status).toBe(0);
  });

  test("does not touch a session that another process writes to", SYSTEM, async () => {
    const place = temporaryPlace();
    const file = damagedIn(place);
    const server = spawnServer(["--session", file, "--events", "none"], "lines", place);
    await server.result("append", { entries: [{ type: "custom", customType: "x" }] });
    const before = imprint(file);
    const { stdout, stderr, status } = await run(place, "repair", file);
    expect([stdout, status]).toEqual(["", 1]);
    expect(stderr).toContain(`process ${server.process.pid}`);
    expect(imprint(file)).toEqual(before);
  });
});

describe("what cannot be done", () => {
  test.each(["verify", "repair"])("%s of what is no session ends with 1 and a sentence", async (verb) => {
    const place = temporaryPlace();
    const not = fileOf(place, "secret text\n", "not.jsonl");
    for (const operand of [not, join(place.cwd, "missing.jsonl"), "no-such-id"]) {
      const { stdout, stderr, status } = await run(place, verb, operand);
      expect([stdout, status], operand).toEqual(["", 1]);
      expect(stderr).toMatch(/^pi-session-server: .*\.\n$/);
      expect(stderr).not.toContain("secret");
    }
    const { stdout, stderr, status } = await run(place, verb, not, "--json");
    expect([JSON.parse(stdout).error.data.name, stderr, status]).toEqual(["not_a_session", "", 1]);
  });

  test.each([
    [["verify"]],
    [["verify", "a", "b"]],
    [["repair", "a", "--no-such"]],
    [["verify", "a", "--dry-run"]],
    [["verify", "a", "--session-dir"]],
  ])("%j ends with 2", async (args) => {
    const { stdout, stderr, status } = await run(temporaryPlace(), ...args);
    expect([stdout, status]).toEqual(["", 2]);
    expect(stderr).toMatch(/^pi-session-server: \S.*\n$/);
  });
});

test("the help tells of them", SYSTEM, async () => {
  const place = temporaryPlace();
  const { stdout } = await runProgram("", ["--help"], place);
  for (const { name, operands } of verbs)
    expect(stdout).toMatch(new RegExp(`^  ${[name, ...operands].join(" ").replace(/[[\].|]/g, "\\$&")} +\\S`, "m"));
  const own = await run(place, "repair", "--help");
  expect(own).toEqual({ stdout: expect.stringContaining("repair <session> [options]"), stderr: "", status: 0 });
  expect(own.stdout).toContain("--dry-run");
  const unknown = await runProgram("", ["lst"], place);
  expect(unknown).toEqual({
    stdout: "",
    stderr: "pi-session-server: Unknown verb lst. Did you mean list? --help lists the verbs.\n",
    status: 2,
  });
});

test("verbs as people type them", SYSTEM, async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(3), "s.jsonl");
  const out = async (...args: string[]): Promise<string> => {
    const { stdout, stderr, status } = await run(place, ...args);
    expect([stderr, status]).toEqual(["", 0]);
    return stdout;
  };
  expect(await out("version")).toBe(`${VERSION}\n`);
  expect(await out("help", "rm")).toBe(await out("delete", "--help"));
  expect(await out("cat", file)).toBe(await out("show", file));
  const plain = await out("ls", "--plain");
  expect(await runProgram("", ["--plain", "ls"], place)).toEqual({ stdout: plain, stderr: "", status: 0 });
  const wrong = await runProgram("", ["mv", "a", "b"], place);
  expect([wrong.stderr, wrong.status]).toEqual([
    "pi-session-server: Unknown verb mv. Did you mean rename, or relocate? --help lists the verbs.\n",
    2,
  ]);
  const late = await runProgram("", ["--session-dir", "x", "list"], place);
  expect(late.stderr).toContain("A verb comes first");
  expect((await run(place, "show")).stderr).toMatch(/^pi-session-server: show needs <session>\. Usage: /);
  expect((await run(place, "search", "--cwd", "word")).stderr).toContain("--cwd took the word after it");
});

test("plain lines have no columns, no colours and no arrows", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, [userText("a", null, `${"word ".repeat(40)}end`)], "s.jsonl");
  const options = { terminal: { columns: 40 }, variables: { FORCE_COLOR: "1" } };
  const { stdout } = await runHere(place, ["show", file, "--path", "--plain"], options);
  expect(stdout).toMatch(/^user, entry a, \d{4}-\d\d-\d\d \d\d:\d\d\n(word )+end\n$/);
});

test("a reader that stops early, as head does, is no failure and no noise", SYSTEM, async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(5000), "long.jsonl");
  const child = spawn(process.execPath, [PROGRAM, "tree", file], {
    cwd: place.cwd,
    env: programEnvironment(place),
    stdio: ["ignore", "pipe", "pipe"],
  });
  child.stdout.once("data", () => child.stdout.destroy());
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const status = await new Promise((resolve) => child.on("close", resolve));
  expect([status, stderr]).toEqual([0, ""]);
});
