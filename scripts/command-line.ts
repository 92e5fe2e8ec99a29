/** The options and verbs in docs/command-line.md, which are made from their declarations. */

import { type Flag, OPTIONS } from "../src/cli/options.ts";
import { groups } from "../src/cli/table.ts";
import type { Verb } from "../src/cli/verb.ts";
import { formatTable, replacePart } from "./markdown.ts";

/** Returns the text of docs/command-line.md with the options and verbs as they are declared. */
export function writeCommandLine(text: string): string {
  const verbs = groups.map(
    ({ title, verbs }) => `## ${title}\n\n${verbs.map((verb) => describeVerb(verb)).join("\n\n")}`,
  );
  const options = OPTIONS.map(({ names, ...flag }): [string, Flag] => [names.join(", "), flag]);
  const server = `## Options of the server\n\n${tableOf(options)}\n\nOther options of Pi are accepted and ignored. An unknown option is an error, except under \`--mode rpc\`.`;
  return replacePart(text, "reference", [...verbs, server].join("\n\n"));
}

function describeVerb(verb: Verb, level = "###"): string {
  const { name, operands, meaning, aliases = [], flags = {}, more = "", subverbs = [] } = verb;
  const also = aliases.length === 0 ? "" : ` Also typed as ${aliases.map((one) => `\`${one}\``).join(", ")}.`;
  const own = Object.entries(flags);
  const paragraphs = more
    .split(/\n(?! {2})|(?<!^ {2}.*)\n(?= {2})/m)
    .filter(Boolean)
    .map(paragraphOf);
  return [
    `${level} \`${[name, ...operands].join(" ")}\``,
    `${escaped(meaning[0].toUpperCase())}${escaped(meaning.slice(1))}.${also}`,
    ...paragraphs,
    ...(own.length === 0 ? [] : [tableOf(own)]),
    ...subverbs.map((one) => describeVerb(one, `${level}#`)),
  ].join("\n\n");
}

function tableOf(options: readonly (readonly [string, Flag])[]): string {
  const rows = options.map(([names, { value, otherwise, meaning }]) => {
    const given = value === undefined ? names : `${names} ${otherwise === undefined ? `<${value}>` : `[${value}]`}`;
    return [`\`${given}\``, escaped(meaning)];
  });
  return formatTable(["option", "meaning"], rows);
}

/** Returns a paragraph, or commands, whose lines begin further in, as code. */
function paragraphOf(text: string): string {
  return text.startsWith("  ") ? `\`\`\`sh\n${text.replace(/^ {2}/gm, "")}\n\`\`\`` : escaped(text);
}

/** Escapes the characters that Markdown would read as markup. */
function escaped(text: string): string {
  return text.replace(/[|*<>_]/g, "\\$&");
}
