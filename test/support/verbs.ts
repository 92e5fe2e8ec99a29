/** Verbs run in this process, with a terminal that is not one, and transcripts of them. */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { runVerb, type Terminal } from "../../src/cli/run-verb.ts";
import { findVerb } from "../../src/cli/table.ts";
import { getWidth } from "../../src/cli/terminal/text.ts";
import type { Verb } from "../../src/cli/verb.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { toFolderName } from "../../src/storage/fs/paths.ts";
import { testEnv } from "./env.ts";
import { CWD, put, rootOf } from "./lifecycle.ts";
import { fileText, headerText, TIME } from "./lines.ts";
import { countingEnv, type Json, type Place } from "./server.ts";

export interface Run {
  readonly stdout: string;
  readonly stderr: string;
  readonly status: number;
}

export interface RunOptions {
  readonly terminal?: Partial<Terminal>;
  /** Called with the output; returns whether a reader is there. */
  readonly printed?: (text: string) => boolean;
  readonly variables?: Readonly<Record<string, string>>;
  /** Milliseconds since 1970, or a clock; by default one that ticks once per look. */
  readonly now?: number | (() => number);
  /** True if hashes are real ones: they distinguish other agents' sessions. */
  readonly hashes?: boolean;
}

export function runHere(place: Place, [verb, ...args]: readonly string[], options?: RunOptions): Promise<Run> {
  return runVerbHere(place, findVerb(verb) as Verb, args, options);
}

/** Runs a verb, which need not be in the table. */
export async function runVerbHere(
  place: Place,
  verb: Verb,
  args: readonly string[],
  { terminal, printed, variables, now, hashes }: RunOptions = {},
): Promise<Run> {
  let stdout = "";
  let stderr = "";
  const env = hashes ? { ...countingEnv(), sha256: testEnv().sha256 } : countingEnv();
  const status = await runVerb(verb, args, {
    env: now === undefined ? env : { ...env, now: typeof now === "number" ? () => now : now },
    disk: realDisk,
    variables: { ...place.variables, ...variables },
    cwd: place.cwd,
    version: "0.0.0-test",
    printError: (sentence) => {
      stderr += `pi-session-server: ${sentence}\n`;
    },
    settingsFile: () => undefined,
    print: async (text) => {
      stdout += text;
      return printed?.(text) ?? true;
    },
    terminal: {
      columns: undefined,
      errorColumns: undefined,
      write: (text) => {
        stderr += text;
      },
      openScreen: () => undefined,
      answer: async () => undefined,
      readInput: async () => "",
      onInterrupt: () => () => {},
      start: async () => 0,
      ...terminal,
    },
  });
  return { stdout, stderr, status };
}

/** Runs a verb that goes on until it is interrupted. Returns its output, its messages to the person, and its end. */
export function runOn(place: Place, words: readonly string[], reads = (_text: string) => true) {
  const running = { out: "", said: "", interrupt: (): void => {} };
  const terminal: RunOptions["terminal"] = {
    write: (text) => {
      running.said += text;
    },
    onInterrupt(act) {
      running.interrupt = act;
      return () => {};
    },
  };
  const printed = (text: string): boolean => {
    running.out += text;
    return reads(text);
  };
  const end = runHere(place, words, { printed, terminal });
  return Object.assign(running, { end });
}

/** Puts a session among the others, into the folder of a directory, untouched for a while. Returns its file. */
export function stored(
  place: Place,
  id: string,
  lines: readonly string[],
  header: { cwd?: string } & object = {},
  directory = header.cwd ?? CWD,
): string {
  const name = `${TIME.replace(/[:.]/g, "-")}_${id}.jsonl`;
  return put(join(rootOf(place), toFolderName(directory), name), fileText(headerText({ id, ...header }), ...lines));
}

/** Values and patterns by the names that stand for them in a transcript. */
type Names = Record<string, string | RegExp>;

/** The words of a command line as a shell cuts them, with the values of names in braces. */
export function wordsIn(typed: string, names: Names = {}): string[] {
  const words = typed.match(/(?:'[^']*'|[^\s'])+/g) ?? [];
  return words.map((word) => word.replaceAll("'", "").replace(/\{(\w+)\}/g, (all, name) => String(names[name] ?? all)));
}

/** Returns the pattern of a text: `{...}` is any text, alone on its line any lines; `{id=}` a word known as id. */
function patternOf(text: string, names: Names): string {
  const parts = text.replace(/^\{\.\.\.\}$/gm, "{....}").split(/\{(\.{3,4}|\w+=?)\}/);
  const patterns = parts.map((part, n) => {
    if (n % 2 === 0) return part.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
    if (part.startsWith("...")) return part.length > 3 ? "[^]*" : ".*?";
    if (part.endsWith("=")) return `(?<${part.slice(0, -1)}>\\S+)`;
    const value = names[part];
    if (value === undefined) throw new Error(`{${part}} stands for nothing.`);
    return value instanceof RegExp ? `(?:${value.source})` : value.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  });
  return patterns.join("");
}

/** Returns a member of a value: `a.b`, or with `a[].b` those of all elements. */
function memberOf(value: Json, path: string): Json {
  const [first, ...rest] = path.split("[].");
  const found = first.split(".").reduce((one, name) => one?.[name], value);
  return rest.length === 0 ? found : found.map((one: Json) => memberOf(one, rest.join("[].")));
}

/**
 * Returns what runs command lines one after the other, and holds each against what stands below it:
 *
 *   $ list --limit 1           the words; before them VARIABLE=value, `@80` for a terminal of so many columns; behind
 *                              them `| a[].b` for a member of the JSON that is printed
 *   {...}More                  what is printed, with names in braces ({@link patternOf})
 *   $ list :: mo.e             or behind them, a pattern that is in what is printed (`:: ` alone: it does not matter);
 *                              `!! more` or `!2 more`: that is in what is said on stderr, with status 1 or 2
 *   + mo.e                     a pattern that is somewhere in what is printed; `-`: that is nowhere
 *   ? Delete? => n             what is asked, and the answer
 *   ! No such session.         what is said on stderr, with status 1, or `!2` with another
 *   & {file} !{other}          files that are there then, and such that are not
 *   = 3                        the status where nothing is said, else 0
 *
 * That returns the names, with those that it has come to know.
 */
export function playVerbs(place: Place, given: Names = {}, options: RunOptions = {}): (text: string) => Promise<Names> {
  return (text) => playText(place, text, { home: place.home, cwd: place.cwd, ...given }, options);
}

async function playText(place: Place, text: string, names: Names, options: RunOptions): Promise<Names> {
  const lines = text.split("\n").filter((line, n, { length }) => line.trim() !== "" || (n > 0 && n < length - 1));
  const indent = lines[0].search(/\S/);
  const commands = `\n${lines.map((line) => line.slice(indent)).join("\n")}`.split("\n$ ").slice(1);
  for (const command of commands) {
    const [whole, ...below] = command.trimEnd().split("\n");
    const [, typed, sign, part] = /^(.*?)(?: (::|!!|!2)(?: (.*))?)?$/.exec(whole) as RegExpExecArray;
    if (sign === "::") below.push(`+ ${part ?? ""}`);
    else if (sign !== undefined) below.push(`!${sign === "!2" ? 2 : 1} {....}${part ?? ""}{....}`);
    const [line, member] = typed.split(/ \| (?=[\w.[\]]+$)/);
    const words = wordsIn(line, names);
    const said: Record<string, string[]> = { "": [], "+": [], "-": [], "?": [], "!": [], "&": [] };
    let status = 0;
    for (const one of below) {
      const [, sign, code, rest] = /^([-+?!=&])(\d?)(?: (.*))?$/.exec(one) ?? [undefined, "", "", one];
      if (sign === "=") status = Number(rest);
      else said[sign].push(rest ?? "");
      if (sign === "!" && said["!"].length === 1) status = Number(code || 1);
    }
    const variables: Record<string, string> = { ...options.variables };
    const terminal: { -readonly [K in keyof Terminal]?: Terminal[K] } = { ...options.terminal };
    while (/^(?:@\d+$|[A-Z_]+=)/.test(words[0])) {
      const word = words.shift() as string;
      if (word.startsWith("@")) terminal.columns = Number(word.slice(1));
      else variables[word.split("=")[0]] = word.slice(word.indexOf("=") + 1);
    }
    const questions: string[] = [];
    const answers = said["?"].map((one) => one.split(" => "));
    if (answers.length > 0)
      terminal.answer = async (question) => {
        questions.push(question);
        return answers[questions.length - 1]?.[1];
      };
    const run = await runHere(place, words, { ...options, variables, terminal });
    const stdout = member ? JSON.stringify(memberOf(JSON.parse(run.stdout), member)) : run.stdout.replace(/\n$/, "");
    const stderr = run.stderr.replace(/^pi-session-server: /, "").replace(/\n$/, "");
    const isLoose = said[""].length === 0 && said["+"].length + said["-"].length > 0;
    const expected = new RegExp(`^${isLoose ? "[^]*" : patternOf(said[""].join("\n"), names)}$`);
    expect({ typed, stdout, stderr, status: run.status, asked: questions }).toEqual({
      ...{ typed, status, stdout: expect.stringMatching(expected) },
      stderr: expect.stringMatching(new RegExp(`^${patternOf(said["!"].join("\n"), names)}$`)),
      asked: answers.map(([question]) => expect.stringMatching(new RegExp(`^${patternOf(question, names)} ?$`))),
    });
    const filled = (part: string): RegExp =>
      new RegExp(
        part.replace(/\{([a-z]\w*)\}/g, (name) => patternOf(name, names)),
        "m",
      );
    for (const part of said["+"]) expect(stdout, typed).toMatch(filled(part));
    for (const part of said["-"]) expect(stdout, typed).not.toMatch(filled(part));
    Object.assign(names, expected.exec(stdout)?.groups);
    for (const one of said["&"].flatMap((line) => wordsIn(line, names)))
      expect([typed, one, existsSync(one.replace(/^!/, ""))]).toEqual([typed, one, !one.startsWith("!")]);
  }
  return names;
}

/** Throws unless nothing in a text acts on a terminal but colours, and no line is wider than these columns. Returns it without colours. */
export function expectTame(text: string, columns = Number.POSITIVE_INFINITY, why = ""): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern removes colours
  const plain = text.replace(/\u001b\[\d+m/g, "");
  const lines = plain.replaceAll("\r\n", "\n").split("\n");
  const acts = /[\p{Cc}\u202a-\u202e\u2066-\u2069]/u;
  expect(
    lines.filter((line) => (getWidth(line) > columns && !isCopied(line)) || acts.test(line)),
    why,
  ).toEqual([]);
  return plain;
}

/** Returns true for a line that stays whole on a narrow terminal, for a person to copy: a path, or a single word. */
function isCopied(line: string): boolean {
  return /^\s*(?:~?\/|\S+$)/.test(line);
}
