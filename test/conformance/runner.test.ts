/**
 * The runner ends, reports the failures and leaves nothing behind, with any server.
 *
 * @module-tag system
 */

import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { findProcesses } from "../../src/conformance/files.ts";
import type { Rule, RuleContext } from "../../src/conformance/rule.ts";
import { CannotStart, type ConformanceResult } from "../../src/conformance/run.ts";
import { PROGRAM } from "../support/build.ts";
import { combinationOf, OWN, only, rulesThat, runHere, runKit } from "../support/conformance.ts";
import { temporaryFolder } from "../support/server.ts";
import { stopClocks } from "../support/shared-session.ts";
import { SWEEP, UNIT } from "../support/tiers.ts";

/** Milliseconds for processes to come and go. */
const WAIT = { timeout: 20_000 };

const COMBINATION = combinationOf("lines", "jsonrpc");

/** Milliseconds for what comes by itself, however busy the machine is; nothing waits as long as that. */
const LONG = 20_000;

/** Runs two rules against a command of a shell. What waits for the end of its time has enough of it on a busy machine. */
function against(script: string, timeout: number): Promise<ConformanceResult> {
  const themes = only("first-reply", "get-entry");
  return runKit({ command: ["sh", "-c", script], combinations: [COMBINATION], themes, timeout });
}

/** Returns the evidence of the first rule, after which the other is skipped. */
function firstEvidence(result: ConformanceResult): string {
  const [first, second] = result.combinations[0].results;
  expect([first.verdict, second.verdict]).toEqual(["failed", "skipped"]);
  expect(second.reason).toMatch(/does not answer/);
  expect(result.ok).toBe(false);
  return `${first.came}`;
}

/** Returns the command lines of the processes that begin with a text. */
function commandsWith(text: string): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " ");
      } catch {
        return [];
      }
    })
    .filter((line) => line.startsWith(text));
}

describe.concurrent("a server that", () => {
  const FLOOD = `yes '{"jsonrpc":"2.0","method":"session_append","params":{}}'`;

  test.each<[what: string, script: string, timeout: number, came: RegExp]>([
    ["never answers", "cat > /dev/null", 1000, /^nothing$/],
    ["floods the host", FLOOD, LONG, /^a flood: \d+ messages .*; the server was ended$/],
    ["prints without end and without a line feed", "cat /dev/zero", LONG, /^\d+ bytes without the end of a frame/],
    [
      "ends at once, and says why",
      "echo 'no licence' >&2; exit 3",
      LONG,
      /ended with the status 3; stderr: no licence$/,
    ],
    ["closes its output", "exec >&-; cat > /dev/null", 1000, /^nothing; the server has closed its output$/],
    ["ends by a signal", "kill -9 $$", LONG, /^the server ended by SIGKILL$/],
    ["answers with null", "read line; echo null; cat > /dev/null", 1000, /^only other messages/],
  ])("%s", async (_what, script, timeout, came) => {
    expect(firstEvidence(await against(script, timeout))).toMatch(came);
  });

  test("prints garbage", SWEEP, async () => {
    const came = firstEvidence(await against("cat /dev/urandom", 100));
    expect(came).toMatch(/^only other messages|bytes without|^nothing/);
  });

  test("does not exist", async () => {
    const command = ["./there-is-no-such-server"];
    await expect(runKit({ command, combinations: [COMBINATION] })).rejects.toThrow(CannotStart);
  });

  test("ends neither with its input nor by SIGTERM, and leaves children", SWEEP, async () => {
    const nap = "sleep 8765.4321";
    const script = `trap "" TERM; setsid ${nap} > /dev/null 2>&1 & ${nap} & "$@"; ${nap}`;
    const result = await runKit({
      command: ["sh", "-c", script, "sh", ...OWN],
      combinations: [COMBINATION],
      themes: only("first-reply", "end-of-input", "sigterm", "get-entry"),
      timeout: 1500,
    });
    expect(rulesThat("failed", result)).toEqual(["end-of-input", "sigterm"]);
    expect(rulesThat("passed", result)).toEqual(["first-reply", "get-entry"]);
    if (process.platform === "linux") {
      expect(result.notes).toEqual([
        expect.stringMatching(/^Processes that the server had started were left, and were ended: \d\.$/),
      ]);
      // A process that was killed may still be listed for a moment.
      await vi.waitFor(() => expect(commandsWith(nap)).toEqual([]), WAIT);
    }
  });

  test("does not list a command is not asked for it", async () => {
    const command = ["sh", "-c", `"$@" | sed -u 's/"fork",//'`, "sh", ...OWN];
    const themes = only("first-reply", "fork-before", "get-entry");
    const result = await runKit({ command, combinations: [COMBINATION], themes });
    expect(rulesThat("passed", result)).toEqual(["first-reply", "get-entry"]);
    const { reason } = result.combinations[0].results.find(({ verdict }) => verdict === "skipped") ?? {};
    expect(reason).toBe("the server says that it does not have the command fork");
  });

  test.sequential("keeps its sessions elsewhere", async () => {
    const folder = temporaryFolder();
    const command = [...OWN, "--session-dir", folder];
    const result = await runKit({ command, combinations: [COMBINATION], themes: only("first-reply") });
    expect(result.notes).toEqual([expect.stringContaining(`outside of the folder of this run, as ${folder}/`)]);
    expect(result.ok).toBe(true);
  });
});

/** Returns a rule that never ends. So much time passes as soon as it has begun. */
function endless(name: string, passing: number, begin: (context: RuleContext) => void = () => {}): Rule {
  const run = (context: RuleContext): Promise<void> => {
    begin(context);
    setImmediate(() => vi.advanceTimersByTime(passing));
    return new Promise(() => {});
  };
  return { name, title: "It never ends.", source: "Order", run };
}

test("a run ends when its time is over, and is no success", UNIT, async () => {
  stopClocks("setTimeout", "performance");
  const long = endless("long", 5000);
  const themes = [...only("first-reply"), { name: "own", rules: [long] }, ...only("reading")];
  const result = await runHere({ combinations: [COMBINATION], themes, limit: 5000, timeout: 10_000 });
  expect(result.ok).toBe(false);
  expect(rulesThat("failed", result)).toEqual([]);
  expect(result.combinations[0].results.at(-1)?.reason).toMatch(/time for the whole run/);
});

test("a rule whose time is over gets no server any more", UNIT, async () => {
  stopClocks("setTimeout", "performance");
  let later: (() => Promise<unknown>) | undefined;
  const late = endless("late", 2400, (context) => {
    later = async () => context.plain();
  });
  const themes = [...only("first-reply"), { name: "own", rules: [late] }];
  const result = await runHere({ combinations: [COMBINATION], themes, timeout: 300 });
  expect(rulesThat("failed", result)).toEqual(["late"]);
  expect(result.combinations[0].results[1].came).toMatch(/^no end within 2400 ms$/);
  await expect(later?.()).rejects.toThrow("the time of this rule is over");
});

test("a command with {session} and {dir} gets paths", async () => {
  const folder = temporaryFolder();
  const command = [...OWN, "--session", "{session}", "--confine", "--allow-path", "{dir}"];
  const themes = only("first-reply", "unopenable-session", "damage-read-past");
  const combinations = [COMBINATION];
  const result = await runKit({ command, combinations, themes, cwd: folder });
  expect(rulesThat("failed", result)).toEqual([]);
  expect(rulesThat("passed", result)).toContain("unopenable-session");
  expect(readdirSync(folder)).toEqual([]);
});

test("a signal ends the run, its servers, and removes its files", async () => {
  const folder = temporaryFolder();
  const temporary = join(folder, "tmp");
  mkdirSync(temporary);
  // The process of no other run has the same arguments.
  const nap = `sleep 7654.${process.pid}`;
  const args = [PROGRAM, "conformance", "--", "sh", "-c", `${nap} & echo started >&2; cat > /dev/null`];
  const child = spawn(process.execPath, args, {
    cwd: folder,
    env: { PATH: process.env.PATH, HOME: folder, TMPDIR: temporary },
    stdio: "ignore",
  });
  const ended = new Promise((resolve) => child.on("exit", (status) => resolve(status)));
  await vi.waitFor(() => expect(commandsWith(nap)).not.toEqual([]), WAIT);
  child.kill("SIGINT");
  expect(await ended).toBe(130);
  expect(readdirSync(temporary)).toEqual([]);
  await vi.waitFor(() => expect(findProcesses(temporary)).toEqual([]), WAIT);
});
