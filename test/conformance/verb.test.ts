/** The verb of the command line: its options, its output and its status. */

import { existsSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { COMBINATIONS } from "../../src/conformance/combination.ts";
import { THEMES } from "../../src/conformance/rules.ts";
import { temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";
import { type Run, runHere } from "../support/verbs.ts";

function run(...args: string[]): Promise<Run> {
  return runHere(temporaryPlace(), ["conformance", ...args]);
}

/** Runs it against a program of a shell that answers every line with the same text: all but the first request wrongly. */
function runParrot(text: string, args: string[], more?: Parameters<typeof runHere>[2]): Promise<Run> {
  const place = temporaryPlace();
  const path = join(place.cwd, "parrot.sh");
  writeFileSync(path, `#!/bin/sh\nwhile read -r line; do printf '%s\\n' '${text}'; done\n`, { mode: 0o755 });
  const all = ["--framing", "lines", "--dialect", "jsonrpc", "--timeout", "1000", ...args, "--", path];
  return runHere(place, ["conformance", ...all], more);
}

/** The reply to the first request in JSON-RPC. */
const REPLY = '{"jsonrpc":"2.0","id":"q1","result":{"sessionId":"s","sessionFile":null}}';

describe("a wrong command line", () => {
  test.each([
    [[], /takes the command of a server after --/],
    [["node", "server.js"], /^pi-session-server: Put -- before the command that begins with node\.\n$/],
    [["--no-such-option", "--", "cat"], /Unknown option --no-such-option/],
    [["--session-dir", "x", "--", "cat"], /Unknown option --session-dir/],
    [["--only", "no-such-rule", "--", "cat"], /There is no rule and no theme no-such-rule\. conformance --list/],
    [["--only", "", "--", "cat"], /There is no rule and no theme ""/],
    [["--framing", "smoke", "--", "cat"], /--framing takes lines, headers; it got smoke/],
    [["--timeout", "soon", "--", "cat"], /--timeout takes a whole number above 0/],
    [["--only", "pi", "--dialect", "jsonrpc", "--", "cat"], /No rule is left to check in these combinations/],
    [["--", "./there-is-none"], /The command cannot be started: .*ENOENT\. Check what follows --\./],
  ])("%j", async (args, message) => {
    const { stdout, stderr, status } = await run(...args);
    expect([stdout, status]).toEqual(["", 2]);
    expect(stderr).toMatch(message);
  });
});

test("--list names every rule, for people and for programs, and leaves nothing behind", async () => {
  const place = temporaryPlace();
  const rules = THEMES.flatMap((theme) => theme.rules);
  const { stdout, status } = await runHere(place, ["conformance", "--list"]);
  expect(readdirSync(place.home)).toEqual(["project"]);
  expect(status).toBe(0);
  for (const { name } of rules) expect(stdout).toContain(`\n  ${name}\n`);
  expect(stdout).toContain(`${rules.length} rules\n`);
  const { themes } = JSON.parse(
    (await run("--list", "--json", "--only", "ids,first-reply", "--skip", "id-null")).stdout,
  );
  const names = themes.flatMap((theme: { rules: { name: string }[] }) => theme.rules.map(({ name }) => name));
  expect(names).toEqual(expect.arrayContaining(["first-reply", "id-number"]));
  expect(names).not.toContain("id-null");
  const title = expect.stringMatching(/^The first message decides/);
  expect(themes[0].rules[0]).toEqual({ name: "first-reply", title, source: "Dialects" });
});

test("a server that does not answer fails in every combination", SYSTEM, async () => {
  const { stdout, status } = await run("--only", "get-entry", "--timeout", "100", "--", "sh", "-c", "cat > /dev/null");
  expect(status).toBe(1);
  for (const { framing, dialect } of COMBINATIONS)
    expect(stdout).toContain(`FAILED first-reply (${framing}, ${dialect})`);
  expect(stdout).toContain('expected  the reply to the request with the id "q1" within 100 ms');
  expect(stdout).toContain("skipped because the server does not answer in this combination:\n  get-entry\n");
  expect(stdout).toMatch(/lines, jsonrpc {5}0 passed, 1 failed, 1 skipped\n/);
  expect(stdout).toMatch(/The server breaks rules\.\n$/);
});

test("--json prints one document with the evidence", SYSTEM, async () => {
  const { stdout, status } = await runParrot(REPLY, ["--json", "--only", "id-string"]);
  expect(status).toBe(1);
  const document = JSON.parse(stdout);
  expect(document).toMatchObject({ ok: false, passed: 1, failed: 1, skipped: 0, notes: [] });
  expect(document.combinations).toHaveLength(1);
  const [first, second] = document.combinations[0].results;
  expect(first).toMatchObject({ rule: "first-reply", verdict: "passed" });
  expect(second).toEqual({
    rule: "id-string",
    title: "An id that is a string is returned as it was sent.",
    source: "Dialects",
    verdict: "failed",
    sent: '{"jsonrpc":"2.0","id":"5","method":"get_state"}',
    expected: 'the id "5"',
    came: REPLY,
    messages: expect.any(Array),
    milliseconds: expect.any(Number),
  });
});

test("a report shows nothing that a terminal obeys", SYSTEM, async () => {
  const terminal = { columns: 100 };
  const { stdout, status } = await runParrot("\u001b]0;owned\u0007\u202e", ["--only", "first-reply"], { terminal });
  expect(status).toBe(1);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern is to find these
  expect(stdout.replaceAll("\n", "").replace(/\u001b\[\d+m/g, "")).not.toMatch(/[\u0000-\u001f\u202e]/);
  expect(stdout).toContain("\\u001b]0;owned");
});

test("--keep leaves the files and says where they are", SYSTEM, async () => {
  const { stdout, status } = await runParrot(REPLY, ["--keep", "--only", "first-reply"]);
  expect(status).toBe(0);
  const [, folder] = /The files of the run are in (\S+)\./.exec(stdout.replaceAll("\n", " ")) ?? [];
  expect(existsSync(join(folder, "lines-jsonrpc"))).toBe(true);
  rmSync(folder, { recursive: true });
  expect(stdout).toMatch(/The server keeps the rules that were checked\.\n$/);
});

test("the completion knows it", async () => {
  const { stdout } = await runHere(temporaryPlace(), ["complete", "--", "conformance", "--framing", ""]);
  expect(stdout).toBe("lines\t\nheaders\t\n");
});
