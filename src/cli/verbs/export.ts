import { exact, inertLines } from "../terminal/text.ts";
import { askAbout, type Verb } from "../verb.ts";

/** Formats by the ending of the file's name. */
const BY_NAME: readonly (readonly [RegExp, string])[] = [
  [/\.html?$/i, "html"],
  [/\.(md|markdown)$/i, "markdown"],
];

const ask = askAbout("export_session", ({ operands: [, file], flags }) => ({
  format: flags.get("--format") ?? BY_NAME.find(([name]) => name.test(file ?? ""))?.[1] ?? "jsonl",
  branches: flags.get("--branches"),
  outputPath: file,
  overwrite: flags.has("--overwrite") ? true : undefined,
  jsonl: flags.has("--no-jsonl") ? false : undefined,
  redact: flags.has("--redact") ? true : undefined,
  redactEmails: flags.has("--redact-emails") ? true : undefined,
  allowUnjudged: flags.has("--allow-unjudged") ? true : undefined,
}));

/** Returns counts by kind as a list: `github_token 2, home_path 14`. */
function listOf(counts: Readonly<Record<string, number>>): string {
  return (
    Object.entries(counts)
      .map(([kind, count]) => `${kind} ${count}`)
      .join(", ") || "nothing"
  );
}

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
    "--overwrite": { meaning: "replace the file if it exists" },
    "--no-jsonl": { meaning: "html: leave out the session's JSONL, which pages hold for download" },
    "--redact": { meaning: "replace secrets and the paths of home folders, and print how many of each" },
    "--redact-emails": { meaning: "the same, and e-mail addresses" },
    "--allow-unjudged": { meaning: "redact: export although images, binary data or damage cannot be searched" },
  },
  more:
    "Without a file, the export is printed. jsonl keeps every byte that --redact does not replace; training has one " +
    "record per line. Secrets that --redact does not know stay: look through the file before you pass it on.",
  async run(asking, given) {
    const result = await ask(asking, given);
    const { redactions, unjudged } = result;
    if (redactions) asking.say(`Replaced: ${listOf(redactions)}.`);
    if (unjudged) asking.say(`Not searched: ${listOf(unjudged)}.`);
    return result;
  },
  isExact: () => true,
  print({ path, content }, _given, { isTerminal }) {
    if (path !== undefined) return [exact(path, isTerminal)];
    if (!isTerminal) return content;
    const lines = inertLines(content);
    if (lines.at(-1) === "") lines.pop();
    return lines;
  },
} satisfies Verb;
