/** The scripts for shells: that they are scripts, and what bash and fish offer with theirs. */

import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { OPTIONS } from "../../../src/cli/options.ts";
import { verbs } from "../../../src/cli/table.ts";
import { COMMON_FLAGS } from "../../../src/cli/verb.ts";
import { needs } from "../../support/needs.ts";
import { BASH, FISH, ZSH } from "../../support/programs.ts";
import { temporaryFolder, temporaryPlace } from "../../support/server.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";

async function script(shell: string): Promise<string> {
  const { stdout, stderr, status } = await runHere(temporaryPlace(), ["completion", shell]);
  expect([stderr, status]).toEqual(["", 0]);
  return stdout;
}

/** The script in a file: what spawnSync gives as stdin is a socket, which fish does not read a script from. */
async function scriptFile(shell: string): Promise<string> {
  const file = join(temporaryFolder(), `completion.${shell}`);
  writeFileSync(file, await script(shell));
  return file;
}

test.each(["bash", "zsh", "fish"])("%s is told of every verb and option", async (shell) => {
  const text = await script(shell);
  for (const { name, flags } of verbs) {
    expect(text).toContain(name);
    for (const flag of Object.keys(flags ?? {}))
      expect(text).toContain(shell === "fish" ? `-l ${flag.slice(2)}` : flag);
  }
  for (const { names } of OPTIONS)
    for (const name of names) expect(text).toContain(shell === "fish" ? name.replace(/^--?/, "") : name);
});

describe.each([
  ["bash", "-n", BASH],
  ["zsh", "-n", ZSH],
  ["fish", "--no-execute", FISH],
] as const)("%s", (shell, check, needed) => {
  const options = { ...SYSTEM, ...needs(needed) };

  test("can read its script", options, async () => {
    const { status, stderr } = spawnSync(shell, [check, await scriptFile(shell)], { encoding: "utf8" });
    expect([status, stderr]).toEqual([0, ""]);
  });

  test("would say so if it could not", options, () => {
    const file = join(temporaryFolder(), "broken");
    writeFileSync(file, shell === "fish" ? "if true" : "case x in");
    expect(spawnSync(shell, [check, file]).status).not.toBe(0);
  });
});

describe("fish", { ...SWEEP, ...needs(FISH) }, () => {
  test("offers verbs and options, then those of the verb, then values", async () => {
    const file = await scriptFile("fish");
    const { home } = temporaryPlace();
    const offered = (line: string): string[] => {
      const { stdout, stderr } = spawnSync(
        "fish",
        ["--no-config", "-c", "source $argv[1]; complete --do-complete $argv[2]", file, `pi-session-server ${line}`],
        { encoding: "utf8", env: { ...process.env, HOME: home } },
      );
      expect(stderr).toBe("");
      return stdout
        .split("\n")
        .filter(Boolean)
        .map((choice) => choice.split("\t")[0]);
    };
    expect(offered("")).toEqual(expect.arrayContaining(["list", "browse", "completion"]));
    expect(offered("una")).toEqual(["unarchive"]);
    expect(offered("--sess")).toEqual(expect.arrayContaining(["--session", "--session-dir", "--session-id"]));
    expect(offered("delete --per")).toEqual(["--permanent"]);
    expect(offered("search word --role us")).toEqual(["user"]);
    expect(offered("completion f")).toEqual(["fish"]);
    expect(offered("--durability s")).toEqual(["sync"]);
    expect(offered("list --limit ")).toEqual([]);
  });
});

describe("bash", { ...SYSTEM, ...needs(BASH) }, () => {
  /** What the script offers for the last of the words. */
  function offers(text: string, ...words: string[]): string[] {
    const quoted = ["pi-session-server", ...words].map((word) => `'${word}'`).join(" ");
    const { stdout, stderr } = spawnSync("bash", ["--norc", "-s"], {
      input: `${text}
COMP_WORDS=(${quoted}); COMP_CWORD=${words.length}; _pi_session_server
[ \${#COMPREPLY[@]} -gt 0 ] && printf '%s\\n' "\${COMPREPLY[@]}"; complete -p pi-session-server >/dev/null || echo none`,
      encoding: "utf8",
    });
    expect(stderr).toBe("");
    return stdout.split("\n").filter(Boolean);
  }

  test("offers verbs and options, then those of the verb, then values", async () => {
    const text = await script("bash");
    const offered = (...words: string[]): string[] => offers(text, ...words);
    expect(offered("")).toEqual(expect.arrayContaining(["list", "browse", "completion", "--session-dir"]));
    expect(offered("una")).toEqual(["unarchive"]);
    expect(offered("list", "--")).toEqual([
      ...Object.keys(verbs.find(({ name }) => name === "list")?.flags ?? {}),
      ...Object.keys(COMMON_FLAGS),
      "--help",
      "--session-dir",
    ]);
    expect(offered("delete", "--per")).toEqual(["--permanent"]);
    expect(offered("search", "word", "--role", "us")).toEqual(["user"]);
    expect(offered("search", "--role", "=", "ass")).toEqual(["assistant"]);
    expect(offered("export", "x", "--format", "")).toEqual([
      "jsonl",
      "html",
      "markdown",
      "training",
      "claude",
      "codex",
    ]);
    expect(offered("completion", "f")).toEqual(["fish"]);
    expect(offered("--durability", "s")).toEqual(["sync"]);
    expect(offered("list", "--cwd", "/et")).toEqual(["/etc"]);
    expect(offered("list", "--limit", "")).toEqual([]);
  });
});
