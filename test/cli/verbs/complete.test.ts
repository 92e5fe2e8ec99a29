/** The program's offers for a shell that completes; real shells insert them as plain words. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { OPTIONS } from "../../../src/cli/options.ts";
import { verbs } from "../../../src/cli/table.ts";
import { COMMON_FLAGS, type Verb } from "../../../src/cli/verb.ts";
import { PROGRAM } from "../../support/build.ts";
import { rootOf } from "../../support/lifecycle.ts";
import { entryText, fileText, headerText, userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { BASH, FISH, ZSH } from "../../support/programs.ts";
import { type Place, programEnvironment, temporaryFolder, temporaryPlace } from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";
import { runHere, stored } from "../../support/verbs.ts";

/** A name that would do something if any shell or terminal took it for more than a text. */
const NASTY =
  'it\'s "$(touch pwned)" `touch pwned` ; touch pwned & \u001b]0;pwned\u0007\u202e*?[a] %n \\\ntouch pwned\t|';
const LABEL = "fix $(touch pwned) 'it'";
const FOLDER = "a dir $(touch pwned)";

function named(place: Place, id: string, name: string, cwd = "/home/me/app"): string {
  const lines = [
    userText("aaaa0001", null, "First question"),
    userText("aaaa0002", "aaaa0001", "Second question"),
    entryText("label", "aaaa0003", "aaaa0002", { targetId: "aaaa0001", label: LABEL }),
    entryText("label", "aaaa0004", "aaaa0003", { targetId: "aaaa0002", label: "plain" }),
    entryText("session_info", "aaaa0005", "aaaa0004", { name }),
  ];
  return stored(place, id, lines, { cwd });
}

function ready(): Place {
  const place = temporaryPlace();
  named(place, "019aaaaa-1111-7000-8000-000000000001", NASTY);
  named(place, "019aaaaa-2222-7000-8000-000000000002", "Refactor auth");
  named(place, "019bbbbb-3333-7000-8000-000000000003", "Another");
  return place;
}

async function offers(place: Place, ...words: string[]): Promise<string[]> {
  const { stdout, stderr, status } = await runHere(place, ["complete", "--", ...words]);
  expect([stderr, status]).toEqual(["", 0]);
  return stdout.split("\n").slice(0, -1);
}

describe("complete", () => {
  const LAST = expect.stringMatching(/^019bbbbb\t\S+ Another$/);
  const three = ["019aaaaa-1", "019aaaaa-2", "019bbbbb"].map((id) => expect.stringContaining(`${id}\t`));

  test.each<[words: string[], offered: unknown[]]>([
    [["show", ""], three],
    [["show", "019b"], [LAST]],
    [["cat", "019bbbbb-33"], [expect.stringMatching(/^019bbbbb-33\t/)]],
    [["show", "019f"], []],
    [["show", "Refac"], [expect.stringMatching(/^Refactor auth\t019aaaaa/)]],
    [["rm", "019b", "019aaaaa-2"], [expect.stringContaining("019aaaaa-2")]],
    [["show", "019b", "--entry", "pl"], [expect.stringMatching(/^plain\taaaa0002 /)]],
    [["fork", "019b", '"fix $(tou'], [expect.stringContaining(LABEL)]],
    [["fork", "019b", ""], ["plain", LABEL, "aaaa0002", "aaaa0001"].map((one) => expect.stringContaining(`${one}\t`))],
    [["fork", "nowhere", ""], []],
    // Paths are left to the shell.
    [["show", "./x"], [":files"]],
    [["relocate", "019b", "x"], [":dirs"]],
    [["export", "019b", "x"], [":files"]],
    [["nothing", "x"], []],
    [["list", "x"], []],
  ])("offers behind %j as much as tells sessions and entries apart, with what they are", async (words, offered) => {
    const found = await offers(ready(), ...words);
    expect(words[0] === "show" ? found.sort() : found).toEqual(offered);
  });

  test("offers archived sessions where they are meant, and those of the folder that the command line names", async () => {
    const place = ready();
    await runHere(place, ["archive", "019b"]);
    expect(await offers(place, "unarchive", "")).toEqual([LAST]);
    expect(await offers(place, "archive", "")).toHaveLength(2);
    expect(await offers(place, "show", "019b")).toHaveLength(1);
    const folder = join(named(place, "019ccccc-1", "In a folder of its own", "/home/me/other"), "..");
    for (const words of [["--session-dir", folder], [`--session-dir=${folder}`], ["--session-dir", `'${folder}'`]])
      expect(await offers(place, "show", ...words, "")).toEqual([expect.stringMatching(/^019ccccc-1\t/)]);
    expect(await offers(temporaryPlace(), "show", "")).toEqual([]);
  });

  test("offers every verb and option, and the options and words of each verb", async () => {
    const place = temporaryPlace();
    const wordsOf = async (...words: string[]) => (await offers(place, ...words)).map((line) => line.split("\t")[0]);
    const names = [...verbs, ...OPTIONS].flatMap((one) => ("names" in one ? one.names : [one.name]));
    expect(await wordsOf("")).toEqual(expect.arrayContaining(names));
    for (const { name, flags = {} } of verbs)
      expect(await wordsOf(name, "--"), name).toEqual(expect.arrayContaining([...Object.keys(flags), "--help"]));
    expect(await wordsOf("fleet", "prune", "--ap")).toEqual(["--apply"]);
    expect(await wordsOf("search", "--role=us")).toEqual(["--role=user"]);
  });

  test("prints lines of a word, a tab and a text, and no character that acts; the help does not list it", async () => {
    expect((await runHere(temporaryPlace(), ["help"])).stdout).not.toMatch(/^ {2}complete /m);
    const place = ready();
    const folder = join(rootOf(place), "--home-me-app--");
    writeFileSync(join(folder, "broken.jsonl"), "}{\n");
    writeFileSync(join(folder, "odd\u001b[2J.jsonl"), fileText(headerText({ id: "odd\u001b" }), userText("a", null)));
    for (const line of await offers(place, "show", "")) {
      expect(line).toMatch(/^[\w.-]+\t[^\p{Cc}\u202e]*$/u);
      expect(line.length).toBeLessThan(110);
    }
  });
});

type Shell = Awaited<ReturnType<typeof inShell>>;

/** The built program under its name, and its script for a shell in a file: fish reads none from a socket. */
async function inShell(shell: string) {
  const place = ready();
  const bin = join(place.home, "bin");
  mkdirSync(bin);
  // Any other verb is not run: its words are written down.
  const run = `[ "$1" = complete ] && exec '${process.execPath}' '${PROGRAM}' "$@"
printf '%s|' "$@" >>"$HOME/ran"
echo ran''it`;
  writeFileSync(join(bin, "pi-session-server"), `#!/bin/sh\n${run}\n`, { mode: 0o755 });
  mkdirSync(join(place.cwd, FOLDER));
  writeFileSync(join(place.cwd, "a file"), "");
  const script = join(place.home, `completion.${shell}`);
  const { stdout, stderr, status } = await runHere(place, ["completion", shell]);
  expect([stderr, status]).toEqual(["", 0]);
  writeFileSync(script, stdout);
  const environment = programEnvironment(place);
  return { place, script, env: { ...environment, PATH: `${bin}:${environment.PATH}`, LC_ALL: "C.UTF-8" } };
}

function run({ place, env }: Shell, program: string, args: string[], input?: string): string {
  const options = { cwd: place.cwd, env, input, encoding: "utf8", timeout: 60_000 } as const;
  const { stdout, stderr } = spawnSync(program, args, options);
  expect(stderr).toBe("");
  expect(existsSync(join(place.cwd, "pwned"))).toBe(false);
  return stdout;
}

/** The words that bash puts in place of the last one, each as it reads it then. */
function inBash(shell: Shell, type: number, ...words: string[]): string[] {
  const quoted = ["pi-session-server", ...words].map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
  const script = `source '${shell.script}'
COMP_TYPE=${type}; COMP_WORDS=(${quoted}); COMP_CWORD=${words.length}; _pi_session_server
printf '%s\\0' "\${COMPREPLY[@]}"; complete -p pi-session-server >/dev/null || echo none`;
  return run(shell, "bash", ["--norc", "-s"], script).split("\0").filter(Boolean);
}

function inFish(shell: Shell, line: string): string[] {
  const script = "source $argv[1]; complete --do-complete $argv[2]";
  const args = ["--no-config", "-c", script, shell.script, `pi-session-server ${line}`];
  return run(shell, "fish", args).split("\n").filter(Boolean);
}

describe.each([
  ["bash", "-n", BASH],
  ["zsh", "-n", ZSH],
  ["fish", "--no-execute", FISH],
] as const)("%s", (name, check, needed) => {
  test("can read its script, and would say so if it could not", { ...SYSTEM, ...needs(needed) }, async () => {
    const { script } = await inShell(name);
    const { status, stderr } = spawnSync(name, [check, script], { encoding: "utf8" });
    expect([status, stderr]).toEqual([0, ""]);
    const broken = join(temporaryFolder(), "broken");
    writeFileSync(broken, name === "fish" ? "if true" : "case x in");
    expect(spawnSync(name, [check, broken]).status).not.toBe(0);
  });
});

/** The offers of both shells behind some words. */
const OFFERED: readonly (readonly [words: string, offered: unknown])[] = [
  ["", expect.arrayContaining(["list", "browse", "completion"])],
  ["una", ["unarchive"]],
  ["--sess", expect.arrayContaining(["--session", "--session-dir", "--session-id"])],
  ["delete --per", ["--permanent"]],
  ["search word --role us", ["user"]],
  ["completion f", ["fish"]],
  ["--durability s", ["sync"]],
  ["list --limit ", []],
];

describe("bash", { ...SYSTEM, ...needs(BASH) }, () => {
  test("offers verbs and options, then those of the verb, then values, of itself too", async () => {
    const shell = await inShell("bash");
    for (const [words, offered] of OFFERED) expect(inBash(shell, 37, ...words.split(" ")), words).toEqual(offered);
    const { flags = {} } = verbs.find(({ name }) => name === "list") as Verb;
    const all = [...Object.keys({ ...flags, ...COMMON_FLAGS }), "--help", "--session-dir"];
    expect(inBash(shell, 37, "list", "--")).toEqual(all);
    expect(inBash(shell, 37, "search", "--role", "=", "ass")).toEqual(["assistant"]);
    const formats = ["jsonl", "html", "markdown", "training", "claude", "codex"];
    expect(inBash(shell, 37, "export", "x", "--format", "")).toEqual(formats);
    expect(inBash(shell, 37, "list", "--cwd", "/et")).toEqual(["/etc"]);
  });

  test("offers ids with names, a single one alone, a label as one word, and directories for --cwd", async () => {
    const shell = await inShell("bash");
    const several = inBash(shell, 9, "show", "019");
    expect(several).toHaveLength(3);
    expect(several).toContainEqual(expect.stringMatching(/^019aaaaa-2 {2}\S+ Refactor auth$/));
    for (const line of several) expect(line).not.toMatch(/[\p{Cc}\u202e]/u);
    expect(inBash(shell, 9, "show", "019b")).toEqual(["019bbbbb"]);
    // If the shell cycles through the offers, they are words only.
    expect(inBash(shell, 37, "rm", "019aaaaa-1", "019a").sort()).toEqual(["019aaaaa-1", "019aaaaa-2"]);
    expect(inBash(shell, 9, "show", "--pl")).toEqual(["--plain"]);
    const [label] = inBash(shell, 9, "fork", "019b", "fix");
    expect(run(shell, "bash", ["--norc", "-c", `printf '%s|' ${label}`])).toBe(`${LABEL}|`);
    for (const words of ["list --cwd a", "show --session-dir a", "relocate 019b a"])
      expect(inBash(shell, 9, ...words.split(" ")), words).toEqual([FOLDER]);
  });
});

describe("zsh", { ...SYSTEM, ...needs(ZSH) }, () => {
  /** Types keys into a real shell in a terminal of its own, each when the last ones had their effect on the screen. */
  function typed(shell: Shell, ...keys: readonly (readonly [keys: string, effect: string])[]): string {
    const script = `zmodload zsh/zpty; zpty z zsh -f -i
zpty -w z "PS1='> '; stty cols 200 rows 50; autoload -U compinit; compinit -D -C; source $1; print REA''DY"
all=
seen() { local out; zpty -r z out "*$1*"; all+=$out }
seen READY; shift
while (( $# )); do zpty -n -w z "$1"; seen "$2"; shift 2; done
print -r -- "$all"; zpty -d z`;
    return run(shell, "zsh", ["-f", "-c", script, "zsh", shell.script, ...keys.flat()]);
  }

  test("lists ids with names that do nothing, and inserts an id, a label and a directory as one word each", async () => {
    const shell = await inShell("zsh");
    const screen = typed(
      shell,
      ["pi-session-server show 019a\t\t", "019aaaaa-1  "],
      ["\u0015pi-session-server show 019b\t\n", "ranit"],
      ["pi-session-server fork 019b fix\t\n", "ranit"],
      ["pi-session-server list --cwd a\t\n", "ranit"],
    );
    expect(screen).toContain("Refactor auth");
    expect(screen).not.toContain("\u001b]0;pwned");
    expect(readFileSync(join(shell.place.home, "ran"), "utf8")).toBe(
      `show|019bbbbb|fork|019b|${LABEL}|list|--cwd|${FOLDER}|`,
    );
  });
});

describe("fish", { ...SWEEP, ...needs(FISH) }, () => {
  test("offers verbs, options and values, ids with names, labels and directories, each as one word", async () => {
    const shell = await inShell("fish");
    const words = (line: string): string[] => inFish(shell, line).map((choice) => choice.split("\t")[0]);
    for (const [line, offered] of OFFERED) expect(words(line), line).toEqual(offered);
    const several = inFish(shell, "show 019");
    expect(several).toHaveLength(3);
    expect(several).toContainEqual(expect.stringMatching(/^019aaaaa-2\t\S+ Refactor auth$/));
    for (const line of several) expect(line.replace("\t", "")).not.toMatch(/[\p{Cc}\u202e]/u);
    expect(inFish(shell, "show 019b")).toHaveLength(1);
    expect(words("fork 019b fix")[0]).toBe(LABEL);
    for (const line of ["list --cwd a", "relocate 019b a"]) expect(words(line)).toEqual([`${FOLDER}/`]);
  });
});
