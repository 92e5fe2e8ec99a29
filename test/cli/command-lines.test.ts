/** Every command line in a text of the program exists: its verb, its options and their values, and as many operands. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { OPTIONS, parseCommandLine, parseVerbArguments } from "../../src/cli/options.ts";
import { findVerb, verbs } from "../../src/cli/table.ts";
import { COMMON_FLAGS, type Verb } from "../../src/cli/verb.ts";
import { rewordAsVerbs } from "../../src/cli/wording.ts";
import { modules } from "../../src/compose.ts";
import { commandNames } from "../../src/handlers/shared/find.ts";
import { readTexts, VALUE } from "../support/sentences.ts";
import { SYSTEM } from "../support/tiers.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PROGRAM = "pi-session-server";
/** Words after the name of the program that make no command line: it is the subject there, or what follows is no verb. */
const PROSE = /^(?:VALUE|\d|that|waits|says|\(|and|or|is|it)\b/;
const ALL: readonly Verb[] = verbs.flatMap((verb) => [verb, ...(verb.subverbs ?? [])]);

const NAMES = ALL.map(({ name }) => name).sort((a, b) => b.length - a.length);
/** Programs with words of their own that are verbs here, too. */
const OTHERS = "claude|codex|gemini|pi";
const WITH_OPTION = new RegExp(
  `(?<![\\w-]|\\b(?:${OTHERS}) )(?:${NAMES.join("|")})(?: (?:${VALUE}|<[^>]+>|[a-z]+))? --[a-z][^\\n]*`,
  "g",
);
/** Parts of each text that names a command line, or a command. */
const MAY_NAME = new RegExp(`${PROGRAM} |[A-Za-z>] --[a-z]|\\b(?:[Rr]un|[Uu]se) |[a-z]_[a-z]`);

/** Returns the faults of the command lines that a text names. */
function findFaults(source: string, withBare = true): string[] {
  const faults: string[] = [];
  const text = source.replace(/'[^'\n]*'/g, VALUE).replaceAll("-->", "");
  // With the program's name, the next word is a verb or an option.
  for (const [, rest] of text.matchAll(new RegExp(`(?<![\\w/.-]|-c )${PROGRAM} ([^\\n]+)`, "g"))) {
    if (PROSE.test(rest)) continue;
    faults.push(...faultsOf(rest));
  }
  if (!withBare) return faults;
  // After such words, too; and a verb with an option is a command line wherever it stands.
  for (const [, rest] of text.matchAll(/\b(?:[Rr]un|[Uu]se) ((?:[a-z]+ )*[a-z]+(?: [<[A-Z-][^\n]*)?)/g))
    if (findVerb(rest.split(" ")[0])) faults.push(...faultsOf(rest));
  for (const [line] of text.matchAll(WITH_OPTION)) faults.push(...faultsOf(line));
  return [...new Set(faults)];
}

/** Returns the words of a command line at the beginning of a text; what follows them is prose. */
function wordsOf(text: string): string[] {
  const words: string[] = [];
  for (const raw of text.split(/\s+/)) {
    const word = raw.replace(/^[`"'(]+|[`"'.,;:)]+$/g, "");
    // The next word of a verb that has others is one of them, unless its place is left open.
    const isName = words.length === 0 || (words.length === 1 && findVerb(words[0])?.subverbs !== undefined);
    const isValue = /^-[\w-]*(?:=\S+)?$|^[<[]|^VALUE$|^[\w-]*\d[\w-]*$|^\.\//.test(word);
    const isOfOption = words.length > 0 && takesValue(words.at(-1) as string);
    if (!(isName || isValue || isOfOption) || word === "") break;
    words.push(word);
    if (word !== raw.replace(/^[`"'(]+/, "")) break;
  }
  return words;
}

function takesValue(option: string): boolean {
  const flags = [...ALL.flatMap(({ flags = {} }) => Object.entries(flags)), ...Object.entries(COMMON_FLAGS)];
  const known = flags.find(([name]) => name === option)?.[1] ?? OPTIONS.find(({ names }) => names.includes(option));
  return known?.value !== undefined && known.otherwise === undefined;
}

function faultsOf(text: string): string[] {
  const words = wordsOf(text);
  const [name] = words;
  const said = `${words.join(" ")} (in: ${text.slice(0, 60)})`;
  if (/^[[<]/.test(name)) return [];
  const isServer = name.startsWith("-");
  const top = isServer ? undefined : findVerb(name);
  if (top === undefined && !isServer) return [`no such verb: ${said}`];
  const below = top?.subverbs?.find((one) => one.name === `${name} ${words[1]}`);
  const isOpen = words.length === 1 || /^[<[-]/.test(words[1]);
  if (top?.subverbs !== undefined && below === undefined && !isOpen) return [`no such word of ${name}: ${said}`];
  const verb = below ?? top;
  const rest = words.slice(below ? 2 : verb ? 1 : 0).map((word) => (/^[[<{]|^VALUE$/.test(word) ? "1" : word));
  // An option may be named without its value.
  if (takesValue(rest.at(-1) ?? "")) rest.push("1");
  try {
    if (verb === undefined) parseCommandLine(rest);
    if (verb === undefined || verb.takesCommand) return [];
    const { operands } = parseVerbArguments([], rest, { verb: verb.name, flags: { ...COMMON_FLAGS, ...verb.flags } });
    const isMany = operands.length > verb.operands.length && !verb.operands.some((one) => one.includes("..."));
    return isMany ? [`too many operands: ${said}`] : [];
  } catch (error) {
    return [`${(error as Error).message} ${said}`];
  }
}

test("no text names a command line that does not exist", SYSTEM, () => {
  const texts = readTexts("", "").filter(({ text }) => /\s/.test(text) && MAY_NAME.test(text));
  expect(texts.length).toBeGreaterThan(300);
  const found = texts.flatMap(({ file, text }) =>
    // A sentence about commands is read with verbs in place of them.
    [...findFaults(text), ...findFaults(rewordAsVerbs(text))].map((fault) => `${file}: ${fault}`),
  );
  expect([...new Set(found)]).toEqual([]);
});

test("each verb in place of a command exists, with its options", () => {
  expect(commandNames.map((name) => rewordAsVerbs(`Run ${name}.`)).flatMap((text) => findFaults(text))).toEqual([]);
});

test.each([
  ["Run pi-session-server rollback <session> --apply.", "Unknown option --apply"],
  ["Try pi-session-server fleet restores gives", "no such word of fleet"],
  ["pi-session-server rolback <session> makes it a file", "no such verb"],
  ["pi-session-server show a1 b2 c3 d4", "too many operands"],
  ["run fleet prune --aply", "Unknown option --aply"],
  ["doctor --mend mends it", "Unknown option --mend"],
  ["delete <session> --permanent --yess", "Unknown option --yess"],
  ["Start it with pi-session-server --dialectic acp.", "Unknown option --dialectic"],
])("finds the fault of %s", (text, fault) => {
  expect(findFaults(text)).toEqual([expect.stringContaining(fault)]);
});

test.each([
  "pi-session-server verify reports where.",
  "Put it back, or run pi-session-server resume VALUE in a terminal.",
  "pi-session-server merge 01991f6e d4e5 --prepare | summarise | pi-session-server merge 01991f6e d4e5 --summary -",
  "pi-session-server fleet <word> --help tells more",
  "use a newer pi-session-server",
])("lets %s pass", (text) => {
  expect(findFaults(text)).toEqual([]);
});

test.skipIf(modules.recall === undefined)("no page names a command line that does not exist", () => {
  const pages = ["README.md", ...readdirSync(join(ROOT, "docs")).map((name) => join("docs", name))];
  const found = pages
    .filter((page) => /\.md$/.test(page) && !/figures|compar/.test(page))
    .flatMap((page) =>
      readFileSync(join(ROOT, page), "utf8")
        .split("\n")
        .flatMap((line) => findFaults(line.replaceAll("\\", ""), false).map((fault) => `${page}: ${fault}`)),
    );
  expect(found).toEqual([]);
});
