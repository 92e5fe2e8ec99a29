/** What the program offers a shell that completes, and that the real shells insert it as the plain words that it is. */

import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { folderName } from "../../../src/storage/fs/paths.ts";
import { PROGRAM } from "../../support/build.ts";
import { letRest } from "../../support/cases.ts";
import { entryText, fileText, headerText, TIME, userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { BASH, FISH, ZSH } from "../../support/programs.ts";
import { type Place, programEnvironment, temporaryPlace } from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";

/** A name that would do something if any shell or terminal took it for more than a text. */
const NASTY =
  'it\'s "$(touch pwned)" `touch pwned` ; touch pwned & \u001b]0;pwned\u0007\u202e*?[a] %n \\\ntouch pwned\t|';
const LABEL = "fix $(touch pwned) 'it'";

function stored(place: Place, id: string, name: string, cwd = "/home/me/app"): string {
  const folder = join(place.home, ".pi/agent/sessions", folderName(cwd));
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `${TIME.replace(/[:.]/g, "-")}_${id}.jsonl`);
  const lines = [
    userText("aaaa0001", null, "First question"),
    userText("aaaa0002", "aaaa0001", "Second question"),
    entryText("label", "aaaa0003", "aaaa0002", { targetId: "aaaa0001", label: LABEL }),
    entryText("label", "aaaa0004", "aaaa0003", { targetId: "aaaa0002", label: "plain" }),
    entryText("session_info", "aaaa0005", "aaaa0004", { name }),
  ];
  writeFileSync(file, fileText(headerText({ id, cwd }), ...lines));
  letRest(file);
  return file;
}

function ready(): Place {
  const place = temporaryPlace();
  stored(place, "019aaaaa-1111-7000-8000-000000000001", NASTY);
  stored(place, "019aaaaa-2222-7000-8000-000000000002", "Refactor auth");
  stored(place, "019bbbbb-3333-7000-8000-000000000003", "Another");
  return place;
}

async function offers(place: Place, ...words: string[]): Promise<string[]> {
  const { stdout, stderr, status } = await runHere(place, ["complete", "--", ...words]);
  expect([stderr, status]).toEqual(["", 0]);
  return stdout.split("\n").slice(0, -1);
}

describe("complete", () => {
  test("offers as much of ids as tells them apart, with age and name", async () => {
    const place = ready();
    const all = await offers(place, "show", "");
    expect(all.map((line) => line.split("\t")[0]).sort()).toEqual(["019aaaaa-1", "019aaaaa-2", "019bbbbb"]);
    expect((await offers(place, "show", "019b"))[0]).toMatch(/^019bbbbb\t\S+ Another$/);
    expect(await offers(place, "cat", "019bbbbb-33")).toEqual([expect.stringMatching(/^019bbbbb-33\t/)]);
    expect(await offers(place, "show", "019f")).toEqual([]);
    expect(await offers(place, "rm", "019b", "019aaaaa-2")).toHaveLength(1);
  });

  test("offers archived sessions where they are meant", async () => {
    const place = ready();
    await runHere(place, ["archive", "019b"]);
    expect(await offers(place, "unarchive", "")).toEqual([expect.stringMatching(/^019bbbbb\t/)]);
    expect(await offers(place, "archive", "")).toHaveLength(2);
    expect(await offers(place, "show", "019b")).toHaveLength(1);
  });

  test("offers labels and what the user said, for entries", async () => {
    const place = ready();
    const entries = (await offers(place, "fork", "019b", "")).map((line) => line.split("\t")[0]);
    expect(entries).toEqual(["plain", LABEL, "aaaa0002", "aaaa0001"]);
    expect(await offers(place, "show", "019b", "--entry", "pl")).toEqual([expect.stringMatching(/^plain\taaaa0002 /)]);
    expect(await offers(place, "fork", "019b", '"fix $(tou')).toHaveLength(1);
    expect(await offers(place, "fork", "nowhere", "")).toEqual([]);
  });

  test("leaves paths to the shell, and has nothing to say where there is nothing", async () => {
    const place = ready();
    expect(await offers(place, "show", "./x")).toEqual([":files"]);
    expect(await offers(place, "show", "~/x")).toEqual([":files"]);
    expect(await offers(place, "relocate", "019b", "x")).toEqual([":dirs"]);
    expect(await offers(place, "export", "019b", "x")).toEqual([":files"]);
    expect(await offers(place, "nothing", "x")).toEqual([]);
    expect(await offers(place, "list", "x")).toEqual([]);
    expect(await offers(temporaryPlace(), "show", "")).toEqual([]);
  });

  test("looks into the folder that the command line names", async () => {
    const place = ready();
    const folder = join(place.home, ".pi/agent/sessions", folderName("/home/me/other"));
    stored(place, "019ccccc-1", "In a folder of its own", "/home/me/other");
    for (const words of [["--session-dir", folder], [`--session-dir=${folder}`], ["--session-dir", `'${folder}'`]])
      expect(await offers(place, "show", ...words, "")).toEqual([expect.stringMatching(/^019ccccc\t/)]);
  });

  test("prints lines of a word, a tab and a text, and no character that acts", async () => {
    const place = ready();
    const folder = join(place.home, ".pi/agent/sessions", folderName("/home/me/app"));
    writeFileSync(join(folder, "broken.jsonl"), "}{\n");
    writeFileSync(join(folder, "odd\u001b[2J.jsonl"), fileText(headerText({ id: "odd\u001b" }), userText("a", null)));
    for (const line of await offers(place, "show", "")) {
      expect(line).toMatch(/^[\w.-]+\t[^\p{Cc}\u202e]*$/u);
      expect(line.length).toBeLessThan(110);
    }
  });

  test("is no verb that the help lists", async () => {
    expect((await runHere(temporaryPlace(), ["help"])).stdout).not.toMatch(/^ {2}complete /m);
  });
});

interface Shell {
  readonly place: Place;
  readonly env: NodeJS.ProcessEnv;
  readonly script: string;
}

/** The built program under its name, and its script for a shell. */
async function inShell(shell: string): Promise<Shell> {
  const place = ready();
  const bin = join(place.home, "bin");
  mkdirSync(bin);
  const program = join(bin, "pi-session-server");
  // Any other verb is not run: its words are written down.
  writeFileSync(
    program,
    `#!/bin/sh
[ "$1" = complete ] && exec '${process.execPath}' '${PROGRAM}' "$@"
printf '%s|' "$@" >>"$HOME/ran"
echo ran''it
`,
  );
  chmodSync(program, 0o755);
  mkdirSync(join(place.cwd, "a dir $(touch pwned)"));
  writeFileSync(join(place.cwd, "a file"), "");
  const script = join(place.home, `completion.${shell}`);
  writeFileSync(script, (await runHere(place, ["completion", shell])).stdout);
  const environment = programEnvironment(place);
  return { place, script, env: { ...environment, PATH: `${bin}:${environment.PATH}`, LC_ALL: "C.UTF-8" } };
}

function run({ place, env }: Shell, program: string, args: string[], input?: string): string {
  const { stdout, stderr } = spawnSync(program, args, {
    cwd: place.cwd,
    env,
    input,
    encoding: "utf8",
    timeout: 60_000,
  });
  expect(stderr).toBe("");
  expect(existsSync(join(place.cwd, "pwned"))).toBe(false);
  return stdout;
}

describe("bash", { ...SYSTEM, ...needs(BASH) }, () => {
  /** The words that are put in place of the last one, each as the shell reads it then. */
  function offered(shell: Shell, type: number, ...words: string[]): string[] {
    const quoted = ["pi-session-server", ...words].map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
    const out = run(
      shell,
      "bash",
      ["--norc", "-s"],
      `source '${shell.script}'
COMP_TYPE=${type}; COMP_WORDS=(${quoted}); COMP_CWORD=${words.length}; _pi_session_server
printf '%s\\0' "\${COMPREPLY[@]}"`,
    );
    return out.split("\0").filter(Boolean);
  }

  test("offers ids with names, and a single one alone", async () => {
    const shell = await inShell("bash");
    const several = offered(shell, 9, "show", "019");
    expect(several.some((line) => /^019aaaaa-2 {2}\S+ Refactor auth$/.test(line))).toBe(true);
    expect(several).toHaveLength(3);
    for (const line of several) expect(line).not.toMatch(/[\p{Cc}\u202e]/u);
    expect(offered(shell, 9, "show", "019b")).toEqual(["019bbbbb"]);
    // Where the shell goes through the offers, they are words only.
    expect(offered(shell, 37, "rm", "019aaaaa-1", "019a").sort()).toEqual(["019aaaaa-1", "019aaaaa-2"]);
    expect(offered(shell, 9, "show", "--pl")).toEqual(["--plain"]);
  });

  test("quotes a label so that it is one word, and offers directories for --cwd", async () => {
    const shell = await inShell("bash");
    const [label] = offered(shell, 9, "fork", "019b", "fix");
    expect(run(shell, "bash", ["--norc", "-c", `printf '%s|' ${label}`])).toBe(`${LABEL}|`);
    expect(offered(shell, 9, "list", "--cwd", "a")).toEqual(["a dir $(touch pwned)"]);
    expect(offered(shell, 9, "show", "--session-dir", "a")).toEqual(["a dir $(touch pwned)"]);
    expect(offered(shell, 9, "relocate", "019b", "a")).toEqual(["a dir $(touch pwned)"]);
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
      `show|019bbbbb|fork|019b|${LABEL}|list|--cwd|a dir $(touch pwned)|`,
    );
  });
});

describe("fish", { ...SWEEP, ...needs(FISH) }, () => {
  function offered(shell: Shell, line: string): string[] {
    const out = run(shell, "fish", [
      "--no-config",
      "-c",
      "source $argv[1]; complete --do-complete $argv[2]",
      shell.script,
      `pi-session-server ${line}`,
    ]);
    return out.split("\n").filter(Boolean);
  }

  test("offers ids with names, labels and directories, each as one word", async () => {
    const shell = await inShell("fish");
    const several = offered(shell, "show 019");
    expect(several).toHaveLength(3);
    expect(several.some((line) => /^019aaaaa-2\t\S+ Refactor auth$/.test(line))).toBe(true);
    for (const line of several) expect(line.replace("\t", "")).not.toMatch(/[\p{Cc}\u202e]/u);
    expect(offered(shell, "show 019b")).toHaveLength(1);
    const [label] = offered(shell, "fork 019b fix");
    expect(label.split("\t")[0]).toBe(LABEL);
    expect(offered(shell, "list --cwd a").map((line) => line.split("\t")[0])).toEqual(["a dir $(touch pwned)/"]);
    expect(offered(shell, "relocate 019b a").map((line) => line.split("\t")[0])).toEqual(["a dir $(touch pwned)/"]);
  });
});
