/** Sessions opened in the user's agent. */

import { spawn } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { commandWords } from "../../../src/cli/agent.ts";
import type { Launch } from "../../../src/cli/terminal/programs.ts";
import { folderName } from "../../../src/storage/fs/paths.ts";
import { PROGRAM } from "../../support/build.ts";
import { letRest } from "../../support/cases.ts";
import { user } from "../../support/drafts.ts";
import { chain, fileText, headerText, id, SESSION } from "../../support/lines.ts";
import {
  type Json,
  type Place,
  programEnvironment,
  serveHere,
  spawnServer,
  temporaryPlace,
} from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";
import { type Run, runHere } from "../../support/verbs.ts";

/** A session of a folder that exists, and a program that stands for Pi. */
function ready(header: object = {}): { place: Place; file: string; pi: string; variables: Record<string, string> } {
  const place = temporaryPlace();
  const bin = join(place.home, "bin");
  mkdirSync(bin);
  const pi = agent(bin, "pi", "exit 0");
  return { place, file: stored(place, header), pi, variables: { PATH: bin } };
}

function stored(place: Place, header: object = {}, sessionId = SESSION): string {
  const folder = join(place.home, ".pi/agent/sessions", folderName(place.cwd));
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `2026-01-24T16-22-26-831Z_${sessionId}.jsonl`);
  writeFileSync(file, fileText(headerText({ id: sessionId, cwd: place.cwd, ...header }), ...chain(2)));
  letRest(file);
  return file;
}

/** A script that a system may start. */
function agent(folder: string, name: string, script: string): string {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  return path;
}

/** Runs the verb with programs that only say how they were started. */
async function resume(
  place: Place,
  args: string[],
  variables: Record<string, string>,
  start: (launch: Launch) => Promise<number> | number = () => 0,
): Promise<Run & { started: Launch[] }> {
  const started: Launch[] = [];
  const run = await runHere(place, ["resume", ...args], {
    variables,
    terminal: {
      async start(launch) {
        started.push(launch);
        return start(launch);
      },
    },
  });
  return { ...run, started };
}

test("the agent gets the session, its directory and its environment, and its status is ours", async () => {
  const { place, file, pi, variables } = ready();
  for (const operand of [SESSION.slice(0, 8), file]) {
    const { started, stdout, stderr, status } = await resume(place, [operand], variables, () => 7);
    expect([stdout, stderr, status]).toEqual(["", "", 7]);
    expect(started).toMatchObject([{ program: pi, args: ["--session", file], cwd: place.cwd }]);
    expect(started[0].variables).toMatchObject({ HOME: place.home, PATH: variables.PATH });
  }
});

test("without a session, the one of this directory in which something was said last", async () => {
  const { place, file, variables } = ready();
  stored(place, { cwd: "/elsewhere" }, "01991f6e-3333-7c3e-b0a4-0242ac120003");
  expect((await resume(place, [], variables)).started[0].args).toEqual(["--session", file]);
  rmSync(file);
  const { status, stderr, started } = await resume(place, [], variables);
  expect([status, started]).toEqual([1, []]);
  expect(stderr).toContain(`No session belongs to ${place.cwd}. list shows`);
});

test("the lock is free when the agent starts, and a leaf that only we knew is in the file", SYSTEM, async () => {
  const { place, file, variables } = ready();
  const server = serveHere(["--session", file, "--events", "none"], { place });
  await server.result("append", { entries: [user("later")] });
  await server.finish();
  const mover = spawnServer(["--session", file, "--events", "none"], "lines", place);
  await mover.result("branch", { entryId: id(0) });
  mover.process.kill("SIGKILL");
  await mover.exit;
  const run = await resume(place, [file], variables, async () => {
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
  const { place, file, pi, variables } = ready({ cwd });
  const command = `'${pi}' --x="{cwd} and {id}" plain\\ word '{path}' ''`;
  const expected = [`--x=${cwd} and ${SESSION}`, "plain word", file, ""];
  const byFlag = await resume(place, [SESSION, "--agent-command", command], variables);
  expect([byFlag.stderr, byFlag.started[0].args]).toEqual(["", expected]);
  const byVariable = await resume(place, [SESSION], { ...variables, PI_SESSION_SERVER_RESUME: command });
  expect(byVariable.started[0]).toMatchObject({ args: expected, cwd });
});

test("--dry-run prints what would be done, and starts nothing", async () => {
  const { place, file, pi, variables } = ready();
  const { stdout, started, status } = await resume(place, [SESSION, "--dry-run"], variables);
  expect([stdout, started, status]).toEqual([`cd ${place.cwd}\npi --session ${file}\n`, [], 0]);
  const json = await resume(place, [SESSION, "--dry-run", "--json"], variables);
  expect(JSON.parse(json.stdout)).toMatchObject({ sessionId: SESSION, sessionPath: file, status: null });
  expect(pi).toContain("/bin/pi");
});

describe("nothing is started, and a sentence says what to do,", () => {
  const refused = async (place: Place, args: string[], variables: Record<string, string>): Promise<string> => {
    const { started, status, stderr, stdout } = await resume(place, args, variables);
    expect([started, status, stdout]).toEqual([[], 1, ""]);
    return stderr;
  };

  test("when the directory is gone, is a file, or is none", async () => {
    const { place, variables } = ready();
    const file = join(place.home, "file");
    writeFileSync(file, "");
    for (const [cwd, what] of [
      [join(place.home, "gone"), "is not there any more"],
      [file, "is not there any more"],
      ["relative", "is not there any more"],
      ["/\u0000", "is not there any more"],
      ["", "names no directory"],
    ]) {
      stored(place, { cwd });
      const sentence = await refused(place, [SESSION], variables);
      expect(sentence).toContain(what);
      expect(sentence).toContain(`relocate ${SESSION} <dir>`);
    }
  });

  test("when another process has the session", SYSTEM, async () => {
    const { place, file, variables } = ready();
    const server = spawnServer(["--session", file, "--events", "none"], "lines", place);
    await server.result("append", { entries: [user("x")] });
    expect(await refused(place, [SESSION], variables)).toMatch(
      new RegExp(`process ${server.process.pid} \\(.*fork it`),
    );
  });

  test("when the program is missing or cannot be run", async () => {
    const { place, pi, variables } = ready();
    expect(await refused(place, [SESSION], { PATH: "" })).toContain("no program pi in the folders of PATH");
    expect(await refused(place, [SESSION, "--agent-command", "./none {id}"], variables)).toContain(
      "./none that can be",
    );
    chmodSync(pi, 0o644);
    expect(await refused(place, [SESSION], variables)).toContain("no program pi");
    const failing = await resume(place, [SESSION, "--agent-command", "/bin/sh {id}"], variables, () => {
      throw Object.assign(new Error("no"), { code: "EACCES" });
    });
    expect([failing.status, failing.stderr]).toEqual([1, expect.stringContaining("cannot be started: EACCES")]);
  });

  test("when Pi could not read the session, which another agent may", async () => {
    const { place, variables, pi } = ready();
    const server = serveHere(["--store", "v2", "--events", "none"], { place });
    await server.result("append", { entries: [user("x")] });
    const { sessionId } = await server.result("get_state");
    await server.finish();
    expect(await refused(place, [sessionId], variables)).toContain(`rollback ${sessionId} makes`);
    const other = await resume(place, [sessionId, "--agent-command", `${pi} {id}`], variables);
    expect(other.started[0].args).toEqual([sessionId]);
  });

  test("when its id could be an option of the agent", async () => {
    const { place, file, variables } = ready({ id: "--evil" });
    expect(await refused(place, [file, "--agent-command", "pi {id}"], variables)).toContain("Use {path}");
  });
});

test.each([
  ["pi 'x {path}", "without another one"],
  ["pi --continue", "does not say which session"],
  ["", "does not say which session"],
  ["pi {path} {sesion}", "{sesion} stands for nothing"],
])("the command %j is refused", async (command, sentence) => {
  const { place, variables } = ready();
  const { status, stderr, started } = await resume(place, [SESSION, "--agent-command", command], variables);
  expect([status, started]).toEqual([2, []]);
  expect(stderr).toContain(sentence);
});

test("words are cut as a shell does", () => {
  const cut = (text: string): string[] => commandWords(`${text} {id}`).slice(0, -1);
  expect(cut(`a  b\tc`)).toEqual(["a", "b", "c"]);
  expect(cut(`a'b c'"d \\" e"f`)).toEqual([`ab cd " ef`]);
  expect(cut(`C:\\bin\\a.exe \\' '\\'`)).toEqual(["C:\\bin\\a.exe", "'", "\\"]);
  expect(cut(`"" ''`)).toEqual(["", ""]);
});

describe("the program", SYSTEM, () => {
  const started = (place: Place, variables: Json, ...args: string[]) => {
    const child = spawn(process.execPath, [PROGRAM, "resume", SESSION, ...args], {
      cwd: place.home,
      env: { ...programEnvironment(place), ...variables, PATH: `${variables.PATH}:/usr/bin:/bin` },
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    const end = new Promise((resolve) => child.on("close", (code, signal) => resolve(code ?? signal)));
    return { child, end };
  };

  test("gives its streams and its directory away, and passes signals and the status on", async () => {
    const { place, variables } = ready();
    agent(
      variables.PATH,
      "pi",
      `pwd; echo "$PWD"; trap 'echo got it; exit 9' TERM; echo ready; while read -r line; do echo "$line"; done`,
    );
    const { child, end } = started(place, variables);
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
    const { place, variables } = ready();
    agent(variables.PATH, "pi", "kill -KILL $$");
    expect(await started(place, variables).end).toBe(128 + 9);
  });
});
