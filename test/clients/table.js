/** The table of what works, between its markers in a document. */

import { readFileSync, writeFileSync } from "node:fs";

const [BEGIN, END] = ["<!-- clients -->", "<!-- /clients -->"];

/** Writes what each client can do with each agent: how many steps work, and with a number why others do not. */
export function writeTable(file, columns, rows, notes) {
  const reasons = [];
  const numberOf = (reason) => {
    if (!reasons.includes(reason)) reasons.push(reason);
    return reasons.indexOf(reason) + 1;
  };
  const textOf = ({ skipped, done }) => {
    if (skipped) return `– (${numberOf(skipped)})`;
    const failed = done.filter(({ why }) => why !== undefined);
    if (failed.length === 0) return `all ${done.length}`;
    const why = failed.map(({ name, why: reason }) => numberOf(`${name}: ${reason}`)).join(", ");
    return `${done.length - failed.length} of ${done.length} (${why})`;
  };
  const lines = [
    `| client | ${columns.join(" | ")} |`,
    `| --- | ${columns.map(() => "---").join(" | ")} |`,
    ...rows.map(({ name, cells }) => `| ${name} | ${cells.map(textOf).join(" | ")} |`),
    "",
    ...reasons.map((reason, index) => `${index + 1}. ${plain(reason)}`),
    ...notes.map((note) => `\n${plain(note)}`),
  ];
  const text = readFileSync(file, "utf8");
  const from = text.indexOf(BEGIN);
  const to = text.indexOf(END);
  if (from < 0 || to < from) throw new Error(`${file} has no place for the table: ${BEGIN} and ${END}`);
  writeFileSync(file, `${text.slice(0, from + BEGIN.length)}\n\n${lines.join("\n")}\n\n${text.slice(to)}`);
}

/** Returns a sentence without what would be markup, or the name of a folder of this machine. */
function plain(text) {
  return text
    .replace(/[|<>]/g, " ")
    .replace(/(?:\/[\w.@+-]+){2,}/g, "<path>")
    .replace("<path>", "(a path)");
}
