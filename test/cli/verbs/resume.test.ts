/** Sessions opened in the user's agent. */

import { spawn } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { splitSessionCommand } from "../../../src/cli/agent.ts";
import type { Launch } from "../../../src/cli/terminal/programs.ts";
import { PROGRAM } from "../../support/build.ts";
import { user } from "../../support/drafts.ts";
import { chain, id, SESSION } from "../../support/lines.ts";
import { type Place, programEnvironment, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";
import { runHere, stored } from "../../support/verbs.ts";

/** A session of a folder that exists, and a program that stands for Pi. */
let place: Place;
let file: string;
let pi: string;
let variables: Record<string, string>;
beforeEach(() => {
  place = temporaryPlace();
  variables = { PATH: join(place.home, "bin") };
  mkdirSync(variables.PATH);
  pi = join(variables.PATH, "pi");
  agent("exit 0");
  file = put();
});

/** Puts the session, in the folder of the working directory whatever its header says. */
const put = (header: object = {}, sessionId = SESSION): string =>
  stored(place, sessionId, chain(2), { cwd: place.cwd, ...header }, place.cwd);

/** Makes Pi a script that the system may start. */
function agent(script: string): void {
  writeFileSync(pi, `#!/bin/sh\n${script}\n`);
  chmodSync(pi, 0o755);
}

/** Runs the verb with programs that only say how they were started. */
async function resume(args: string[], start: (launch: Launch) => unknown = () => 0, more: Record<string, string> = {}) {
  const starting = vi.fn(async (launch: Launch) => (await start(launch)) as number);
  const options = { variables: { ...variables, ...more }, terminal: { start: starting } };
  const run = await runHere(place, ["resume", ...args], options);
  return { ...run, started: starting.mock.calls.flat() };
}

test("the agent gets the session, its directory and its environment, and its status is ours", async () => {
  for (const operand of [SESSION.slice(0, 8), file]) {
    const { started, ...run } = await resume([operand], () => 7);
    expect(run).toEqual({ stdout: "", stderr: "", status: 7 });
    const environment = { HOME: place.home, PATH: variables.PATH };
    expect(started).toMatchObject([{ program: pi, args: ["--session", file], cwd: place.cwd, variables: environment }]);
  }
});

test("without a session, the one of this directory in which something was said last", async () => {
  put({ cwd: "/elsewhere" }, "01991f6e-3333-7c3e-b0a4-0242ac120003");
  expect((await resume([])).started[0].args).toEqual(["--session", file]);
  rmSync(file);
  const { status, stderr, started } = await resume([]);
  expect([status, started]).toEqual([1, []]);
  expect(stderr).toContain(`No session belongs to ${place.cwd}. list shows`);
});

test("show takes the same one without a session, and says which", async () => {
  put({ cwd: "/elsewhere" }, "01991f6e-3333-7c3e-b0a4-0242ac120003");
  const [shown, named] = [
    await runHere(place, ["show", "--tail", "1"]),
    await runHere(place, ["show", file, "--tail", "1"]),
  ];
  expect([shown.status, shown.stdout]).toEqual([0, named.stdout]);
  expect([shown.stdout.split("\n")[0], shown.stderr]).toEqual([`session ${SESSION}`, ""]);
  const asJson = await runHere(place, ["show", "--json"]);
  expect(asJson.stderr).toBe(`This is ${SESSION.slice(0, 13)}.\n`);
});

test("the lock is free when the agent starts, and a leaf that only we knew is in the file", SYSTEM, async () => {
  const server = serveHere(["--session", file, "--events", "none"], { place });
  await server.result("append", { entries: [user("later")] });
  await server.finish();
  const mover = spawnServer(["--session", file, "--events", "none"], "lines", place);
  await mover.result("branch", { entryId: id(0) });
  mover.process.kill("SIGKILL");
  await mover.exit;
  const run = await resume([file], async () => {
    expect(JSON.parse(readFileSync(file, "utf8").trimEnd().split("\n").at(-1) as string).parentId).toBe(id(0));
    const other = serveHere(["--session", file, "--events", "none"], { place });
    await other.result("append", { entries: [user("from the agent")] });
    await other.finish();
    return 0;
  });
  expect([run.status, run.stderr]).toEqual([0, ""]);
});

test("any command: each place is one word, whatever is in it", async () => {
  const cwd = join(temporaryPlace().home, "a b'c\"d $(x) {id}");
  mkdirSync(cwd);
  file = put({ cwd });
  const command = `'${pi}' --x="{cwd} and {id}" plain\\ word '{path}' ''`;
  const expected = [`--x=${cwd} and ${SESSION}`, "plain word", file, ""];
  const byFlag = await resume([SESSION, "--agent-command", command]);
  expect([byFlag.stderr, byFlag.started[0].args]).toEqual(["", expected]);
  const byVariable = await resume([SESSION], undefined, { PI_SESSION_SERVER_RESUME: command });
  expect(byVariable.started[0]).toMatchObject({ args: expected, cwd });
});

test("--dry-run prints what would be done, also without the program, and starts nothing", async () => {
  rmSync(pi);
  const { stdout, started, status } = await resume([SESSION, "--dry-run"]);
  expect([stdout, started, status]).toEqual([`cd ${place.cwd}\npi --session ${file}\n`, [], 0]);
  const narrow = await runHere(place, ["resume", SESSION, "--dry-run"], { terminal: { columns: 40 } });
  expect(narrow.stdout).toBe(stdout);
  const json = await resume([SESSION, "--dry-run", "--json"]);
  expect(JSON.parse(json.stdout)).toMatchObject({ sessionId: SESSION, sessionPath: file, status: null });
});

describe("nothing is started, and a sentence says what to do,", () => {
  async function refused(sentence: string | RegExp, args: string[], more = {}, code = 1): Promise<void> {
    const { started, status, stderr, stdout } = await resume(args, undefined, more);
    expect([started, status, stdout]).toEqual([[], code, ""]);
    expect(stderr).toMatch(sentence);
  }

  const FOLDERS = ["{home}/gone", "{home}/bin/pi", "relative", "/\u0000", ""];
  test.each(FOLDERS)("when the directory is gone, is a file, or is none: %j", async (cwd) => {
    put({ cwd: cwd.replace("{home}", place.home) });
    const what = cwd === "" ? "names no directory" : "is not there any more";
    await refused(new RegExp(`${what}.*relocate ${SESSION} <dir>`), [SESSION]);
  });

  test("when another process has the session", SYSTEM, async () => {
    const server = spawnServer(["--session", file, "--events", "none"], "lines", place);
    await server.result("append", { entries: [user("x")] });
    await refused(new RegExp(`process ${server.process.pid} \\(.*fork it`), [SESSION]);
  });

  test("when the program is missing or cannot be run", async () => {
    await refused("no program pi in the folders of PATH", [SESSION], { PATH: "" });
    await refused("./none that can be", [SESSION, "--agent-command", "./none {id}"]);
    chmodSync(pi, 0o644);
    await refused("no program pi", [SESSION]);
    const failing = await resume([SESSION, "--agent-command", "/bin/sh {id}"], () => {
      throw Object.assign(new Error("no"), { code: "EACCES" });
    });
    expect([failing.status, failing.stderr]).toEqual([1, expect.stringContaining("cannot be started: EACCES")]);
  });

  test("when Pi could not read the session, which another agent may", async () => {
    const server = serveHere(["--store", "v2", "--events", "none"], { place });
    await server.result("append", { entries: [user("x")] });
    const { sessionId } = await server.result("get_state");
    await server.finish();
    await refused(`rollback ${sessionId} makes`, [sessionId]);
    const other = await resume([sessionId, "--agent-command", `${pi} {id}`]);
    expect(other.started[0].args).toEqual([sessionId]);
  });

  test("when it is another agent's, whose own command is printed", async () => {
    const id = "0199aaaa-1111-4222-8333-444455556666";
    const folder = join(place.home, ".claude/projects/-a");
    mkdirSync(folder, { recursive: true });
    const record = { type: "user", uuid: "u1", parentUuid: null, sessionId: id, cwd: place.cwd };
    const message = { role: "user", content: "Fix it." };
    const line = JSON.stringify({ ...record, timestamp: "2026-01-24T16:22:26.831Z", message });
    writeFileSync(join(folder, `${id}.jsonl`), `${line}\n`);
    const { started, status, stdout, stderr } = await resume([id]);
    expect([started, status, stdout]).toEqual([[], 0, `cd ${place.cwd}\nclaude --resume ${id}\n`]);
    expect(stderr).toMatch(/another agent's own file.*fork \w{8} copies it/);
  });

  test("when its id could be an option of the agent", () =>
    refused("Use {path}", [put({}, "--evil"), "--agent-command", "pi {id}"]));

  test.each([
    ["pi 'x {path}", "without another one"],
    ["pi --continue", "does not say which session"],
    ["", "does not say which session"],
    ["pi {path} {sesion}", "{sesion} stands for nothing"],
  ])("for the command %j", (command, sentence) => refused(sentence, [SESSION, "--agent-command", command], {}, 2));
});

test.each([
  [`a  b\tc`, ["a", "b", "c"]],
  [`a'b c'"d \\" e"f`, [`ab cd " ef`]],
  [`C:\\bin\\a.exe \\' '\\'`, ["C:\\bin\\a.exe", "'", "\\"]],
  [`"" ''`, ["", ""]],
])("%s is cut as a shell does", (text, words) =>
  expect(splitSessionCommand(`${text} {id}`).slice(0, -1)).toEqual(words),
);

describe("the program", SYSTEM, () => {
  function started() {
    const child = spawn(process.execPath, [PROGRAM, "resume", SESSION], {
      cwd: place.home,
      env: { ...programEnvironment(place), PATH: `${variables.PATH}:/usr/bin:/bin` },
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    return { child, end: new Promise((resolve) => child.on("close", (code, signal) => resolve(code ?? signal))) };
  }

  test("gives its streams and its directory away, and passes signals and the status on", async () => {
    agent(`pwd; echo "$PWD"; trap 'echo got it; exit 9' TERM; echo ready; while read -r line; do echo "$line"; done`);
    const { child, end } = started();
    let output = "";
    child.stdout.on("data", (piece) => {
      output += piece;
      if (output.endsWith("ready\n")) child.stdin.write("typed\n");
      // A shell hears of a signal between two commands.
      if (output.endsWith("typed\n") && child.kill("SIGTERM")) child.stdin.write("more\n");
    });
    expect(await end).toBe(9);
    expect(output).toContain(`${place.cwd}\n${place.cwd}\nready\ntyped\n`);
  });

  test("ends as shells do when the agent dies of a signal", async () => {
    agent("kill -KILL $$");
    expect(await started().end).toBe(128 + 9);
  });
});
