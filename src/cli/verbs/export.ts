import { join } from "node:path";
import type { Commands } from "../../client/protocol.ts";
import { getInfo } from "../../storage/fs/files.ts";
import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { runWithEntry } from "../entries.ts";
import { getChoice, UsageError } from "../options.ts";
import { count, escapeLines, formatSize, toRawPath } from "../terminal/text.ts";
import { defineVerb, openNamedSession, type ResultOf, type VerbArguments, type VerbContext } from "../verb.ts";
import { formatFidelity } from "./verify.ts";

type Exported = ResultOf<"export_session">;
export type ExportFormat = Commands["export_session"]["params"]["format"];

/** Formats by the ending of the file's name. */
const BY_NAME: readonly (readonly [RegExp, ExportFormat])[] = [
  [/\.html?$/i, "html"],
  [/\.(md|markdown)$/i, "markdown"],
  [/\.jsonl$/i, "jsonl"],
];

/** Returns the format by the ending of a file's name. Throws UsageError for an ending of another format. */
function formatOf(file: string): ExportFormat {
  const known = BY_NAME.find(([name]) => name.test(file))?.[1];
  if (known !== undefined || !/\.\w+$/.test(file)) return known ?? "jsonl";
  throw new UsageError(`${file} ends like no format of export. Name it .html, .md or .jsonl, or give --format.`);
}

const paramsOf = ({ operands: [, file], flags }: VerbArguments) => ({
  format: getChoice<ExportFormat>(flags, "--format") ?? formatOf(file ?? ""),
  branches: getChoice<"all" | "path" | "recent">(flags, "--branches"),
  outputPath: file,
  overwrite: flags.has("--overwrite") ? true : undefined,
  jsonl: flags.has("--no-jsonl") ? false : undefined,
  redact: flags.has("--redact") ? true : undefined,
  redactEmails: flags.has("--redact-emails") ? true : undefined,
  allowUnjudged: flags.has("--allow-unjudged") ? true : undefined,
});

/** Returns the command for another agent to resume the export, and the outcome for the entries. */
function resumption({ path: written, resume, fidelity }: Exported): string[] {
  if (!resume) return [];
  const { path, command } = resume;
  const place = path === undefined ? "in its folder of sessions" : `at ${path}`;
  const isThere = written !== undefined && written === path;
  return [
    ...formatFidelity(fidelity, "entry", "entries"),
    `${isThere ? "Resume it" : `It belongs ${place}. There, it is resumed by`}: ${command}`,
  ];
}

function isFolder({ disk, cwd }: VerbContext, file: string): boolean {
  return /[/\\]$/.test(file) || getInfo(disk, toAbsolutePath(file, cwd))?.kind === "folder";
}

/** Returns counts by kind as a list: `github_token 2, home_path 14`. */
function listOf(counts: Readonly<Record<string, number>>): string {
  return (
    Object.entries(counts)
      .map(([kind, count]) => `${kind} ${count}`)
      .join(", ") || "nothing"
  );
}

/** Returns a sentence about the parts that are not on a page. */
function leftOutText({ pictures, bytes, jsonl }: NonNullable<Exported["leftOut"]>): string {
  const what = pictures > 0 ? [`${count(pictures, "picture", "pictures")} of ${formatSize(bytes)} in all`] : [];
  if (jsonl) what.push("the session's JSONL");
  return `Not on the page, because browsers open none so large: ${what.join(", and ")}. The format jsonl has everything.`;
}

export default defineVerb({
  name: "export",
  meaning: "write a session as JSONL, HTML, Markdown or training records, or for Claude Code or Codex",
  operands: ["<session>", "[file]"],
  onInterrupt: "A file is written whole or not at all; the same command begins again.",
  flags: {
    "--format": {
      value: "format",
      meaning:
        "write jsonl, html, markdown, training, claude or codex; by default what the name of the file ends with, else jsonl",
      oneOf: ["jsonl", "html", "markdown", "training", "claude", "codex"],
    },
    "--branches": {
      value: "all|path|recent",
      meaning:
        "write every branch, the path to the leaf, or (html, markdown) what the last compaction kept; all by default for jsonl, html and claude, path for the others",
      oneOf: ["all", "path", "recent"],
    },
    "--at": { value: "entry", meaning: "claude, codex: resume from this entry instead of the leaf" },
    "--overwrite": { meaning: "replace the file if it exists" },
    "--no-jsonl": { meaning: "html: leave out the JSONL for download" },
    "--redact": { meaning: "replace secrets and paths of home folders, and print how many of each" },
    "--redact-emails": { meaning: "replace e-mail addresses, too" },
    "--allow-unjudged": {
      meaning:
        "with --redact: export although images, binary data or damage cannot be searched for secrets; leave damage out",
    },
  },
  more: "Without a file, it prints the export. jsonl keeps every byte. For claude and codex, it also prints which entries these agents cannot hold, and the command that resumes the file. --redact does not know every secret, and leaves keys that documents publish as examples: read the file before you pass it on.",
  async run(asking, given) {
    const [, file] = given.operands;
    if (file !== undefined && isFolder(asking, file))
      throw new UsageError(`${file} is a folder. Name a file in it, such as ${join(file, "session.md")}.`);
    if (file === "-") throw new UsageError("Leave out the file to print the export.");
    const params = paramsOf(given);
    await openNamedSession(asking, given.operands[0]);
    const at = given.flags.get("--at");
    const ask = (leafId?: string) => asking.ask("export_session", { ...params, leafId });
    const result = at === undefined ? await ask() : await runWithEntry(asking, at, ask);
    const { redactions, unjudged, review, leftOut } = result;
    if (redactions) asking.say(`Replaced: ${listOf(redactions)}.`);
    if (unjudged) asking.say(`Not searched: ${listOf(unjudged)}.`);
    if (review) asking.say(review);
    if (leftOut) asking.say(leftOutText(leftOut));
    for (const line of resumption(result)) asking.say(line);
    return result;
  },
  isExact: () => true,
  print({ path, content }, _given, { isTerminal }) {
    if (path !== undefined) return [toRawPath(path, isTerminal)];
    if (!isTerminal) return content ?? "";
    const lines = escapeLines(content);
    if (lines.at(-1) === "") lines.pop();
    return lines;
  },
});
