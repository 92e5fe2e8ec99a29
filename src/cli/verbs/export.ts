import { count, exact, inertLines } from "../terminal/text.ts";
import { askAbout, type Verb } from "../verb.ts";

/** Formats by the ending of the file's name. */
const BY_NAME: readonly (readonly [RegExp, string])[] = [
  [/\.html?$/i, "html"],
  [/\.(md|markdown)$/i, "markdown"],
];

export default {
  name: "export",
  meaning: "write a session as JSONL, HTML, Markdown or training records",
  operands: ["<session>", "[file]"],
  onInterrupt: "A file is written whole or not at all; the same command begins again.",
  flags: {
    "--format": {
      value: "format",
      meaning: "jsonl, html, markdown or training; by default the one that the file's name ends with, else jsonl",
      oneOf: ["jsonl", "html", "markdown", "training"],
    },
    "--branches": {
      value: "all|path",
      meaning: "every branch, or the path to the leaf; all by default for jsonl and html, path for the others",
      oneOf: ["all", "path"],
    },
    "--redact": {
      meaning: "take out keys, tokens and passwords of known shapes, and names of home folders; not for jsonl",
    },
    "--overwrite": { meaning: "replace the file if it exists" },
  },
  more:
    "Without a file, the export is printed. jsonl keeps every byte; training has one record per line. " +
    "What --redact does not know stays: look through the file before you pass it on.",
  async run(asking, given) {
    const result = await exported(asking, given);
    if (result.redacted !== undefined)
      asking.say(`${count(result.redacted, "place was", "places were")} taken out; look through the rest yourself.`);
    return result;
  },
  print({ path, content }, _given, { isTerminal }) {
    if (path !== undefined) return [exact(path, isTerminal)];
    if (!isTerminal) return content;
    const lines = inertLines(content);
    if (lines.at(-1) === "") lines.pop();
    return lines;
  },
} satisfies Verb;

const exported = askAbout("export_session", ({ operands: [, file], flags }) => ({
  format: flags.get("--format") ?? BY_NAME.find(([name]) => name.test(file ?? ""))?.[1] ?? "jsonl",
  branches: flags.get("--branches"),
  outputPath: file,
  overwrite: flags.has("--overwrite") ? true : undefined,
  redact: flags.has("--redact") ? true : undefined,
}));
