/** The texts of the help, in the columns that there are. */

import { type Flag, OPTIONS } from "./options.ts";
import { wrap } from "./terminal/text.ts";
import { COMMON_FLAGS, type Verb, type VerbGroup } from "./verb.ts";

/** Columns of the help at most; longer lines are hard to read. */
const WIDEST = 80;
/** Columns of a meaning at least; where there are fewer, it stands below its word. */
const LEAST_MEANING = 30;

/** Returns the columns of the help on a page of so many. */
export function getHelpWidth(columns: number | undefined): number {
  return Math.max(20, Math.min(WIDEST, columns || WIDEST));
}

/** Returns the text of `--help`: the verbs, for people, and the options of the server. */
export function formatHelp(groups: readonly VerbGroup[] = [], width = WIDEST): string {
  const options = OPTIONS.map(({ names, value, meaning }): Row => [withValue(names.join(", "), value), meaning]);
  return `${usage(width, "pi-session-server [options]", "pi-session-server <verb> [options]    (see <verb> --help)")}
${paragraph("Serves the history of coding agents on stdin and stdout: JSON-RPC 2.0 or Pi's line dialect, over session files in Pi's JSONL format. protocol.md lists the commands.", width)}
${groups.length === 0 ? "" : `\n${verbsText(groups, width)}\nOptions of the server\n`}
${rows(options, width)}

${paragraph("Other options of Pi are accepted and ignored.", width)}
`;
}

/** Returns the text of the verb `help`: the verbs alone. */
export function formatVerbsHelp(groups: readonly VerbGroup[], width = WIDEST): string {
  return `${usage(width, "pi-session-server <verb> [options]", "pi-session-server <verb> --help")}
${verbsText(groups, width)}
${paragraph("A session is named by its path, its id, the first 4 or more characters of the id, its name, or a part of that.", width)}
${paragraph("pi-session-server --help also lists the options of the server.", width)}
`;
}

export function formatVerbHelp(verb: Verb, width = WIDEST): string {
  const { meaning, flags, more = "", takesCommand, aliases = [], subverbs = [] } = verb;
  const own = Object.entries({ ...flags, ...without(COMMON_FLAGS, flags) });
  const also = aliases.length === 0 ? [] : [`Also typed as ${aliases.join(", ")}.`];
  const below = subverbs.map((one): Row => [wordsOf(one), one.meaning]);
  const text = [`${meaning[0].toUpperCase()}${meaning.slice(1)}.`, ...more.split("\n").filter(Boolean), ...also];
  return `${usage(width, formatUsageLine(verb))}
${text.map((line) => paragraph(line, width)).join("\n")}
${below.length === 0 ? "" : `\n${rows(below, width)}\n`}
${rows(
  own.map(([name, { value, meaning: does, otherwise }]): Row => [withValue(name, value, otherwise), does]),
  width,
)}
${takesCommand ? "" : `\n${paragraph(FOLDERS_TOO, width)}\n`}`;
}

export function formatUsageLine({ name, operands, takesCommand }: Verb): string {
  const words = takesCommand ? ["[options]", ...operands] : [...operands, "[options]"];
  return ["pi-session-server", name, ...words].join(" ");
}

const FOLDERS_TOO =
  "The server's options for folders and paths (--session-dir) work here too; pi-session-server --help lists them.";

type Row = readonly [word: string, meaning: string];

function usage(width: number, ...lines: string[]): string {
  return lines.map((line) => `${paragraph(line, width)}\n`).join("");
}

function verbsText(groups: readonly VerbGroup[], width: number): string {
  const left = Math.max(...groups.flatMap(({ verbs }) => verbs.map((verb) => wordsOf(verb).length)));
  const blocks = groups.map(({ title, verbs }) => {
    const lines = verbs.map((verb): Row => [wordsOf(verb), meaningOf(verb)]);
    return `${title}\n${rows(lines, width, left)}\n`;
  });
  const intro =
    "A verb does one thing and ends; follow, view and mcp run until they are stopped. Exit status: 0, 1 (failure), 2 (usage), 3 (damage).";
  return `${paragraph(intro, width)}\n\n${blocks.join("\n")}`;
}

function wordsOf({ name, operands }: Verb): string {
  return [name, ...operands].join(" ");
}

function meaningOf({ meaning, aliases = [] }: Verb): string {
  return aliases.length === 0 ? meaning : `${meaning} (also ${aliases.join(", ")})`;
}

/** Returns words with their meanings to the right, or below if they do not fit there. */
function rows(lines: readonly Row[], width: number, left = Math.max(...lines.map(([word]) => word.length))): string {
  const available = width - left - 4;
  return lines
    .flatMap(([word, meaning]) => {
      if (available < LEAST_MEANING) return [`  ${word}`, ...wrap(meaning, width - 6).map((line) => `      ${line}`)];
      return wrap(meaning, available).map((line, i) => `  ${(i === 0 ? word : "").padEnd(left)}  ${line}`);
    })
    .join("\n");
}

function withValue(name: string, value: string | undefined, otherwise?: string): string {
  if (value === undefined) return name;
  return otherwise === undefined ? `${name} <${value}>` : `${name} [${value}]`;
}

/** Returns text in lines; those after the first begin where it does, and two columns in if it is indented. */
function paragraph(text: string, width: number): string {
  const indent = /^ */.exec(text)?.[0] ?? "";
  const available = indent === "" ? width : width - indent.length - 2;
  return wrap(text.trimStart(), available, true)
    .map((line, i) => `${indent}${i > 0 && indent !== "" ? "  " : ""}${line}`)
    .join("\n");
}

/** Returns the common flags that a verb does not declare itself. */
function without(common: Readonly<Record<string, Flag>>, own: Verb["flags"] = {}): Record<string, Flag> {
  return Object.fromEntries(Object.entries(common).filter(([name]) => !(name in own)));
}
