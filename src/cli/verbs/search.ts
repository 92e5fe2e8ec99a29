import { absolute } from "../../storage/fs/paths.ts";
import { CWD_FLAG, numberAbove0 } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { column, inert, oneLine, shortPath, widthOf, wrap } from "../terminal/text.ts";
import type { Result, Verb } from "../verb.ts";

/** Columns before a snippet. */
const INDENT = 4;

export default {
  name: "search",
  meaning: "find messages that hold all the words",
  operands: ["<words...>"],
  flags: {
    "--cwd": CWD_FLAG,
    "--role": {
      value: "role",
      meaning: "only user, assistant, toolResult or bashExecution; user and assistant by default",
      oneOf: ["user", "assistant", "toolResult", "bashExecution"],
    },
    "--tools": { meaning: "also the output of tools and commands" },
    "--since": { value: "time", meaning: "only messages of this time or later, such as 2026-01-24" },
    "--until": { value: "time", meaning: "only messages of this time or earlier" },
    "--limit": { value: "n", meaning: "at most this many; 50 by default" },
    "--cursor": { value: "cursor", meaning: "continue where the last page ended" },
  },
  more: `Words are found inside other words too; '"two words"' finds them side by side.`,
  run({ ask, cwd }, { operands, flags }) {
    const of = flags.get("--cwd");
    return ask("search_sessions", {
      query: operands.join(" "),
      cwd: of === undefined ? undefined : absolute(of, cwd),
      role: flags.get("--role"),
      includeToolResults: flags.has("--tools") ? true : undefined,
      since: flags.get("--since"),
      until: flags.get("--until"),
      limit: numberAbove0(flags, "--limit"),
      cursor: flags.get("--cursor"),
    });
  },
  *print({ hits, nextCursor }, { operands }, page) {
    if (hits.length === 0) yield "Nothing was found.";
    const words = operands.join(" ").replaceAll('"', " ").split(/\s+/).filter(Boolean);
    let path: string | undefined;
    for (const hit of hits) {
      if (hit.sessionPath !== path) yield page.paint("bold", shortPath(hit.sessionPath, page.home));
      path = hit.sessionPath;
      yield* hitLines(hit, words, page);
    }
    if (nextCursor !== undefined) yield page.paint("dim", `There is more: --cursor ${inert(nextCursor)}`);
  },
} satisfies Verb;

function* hitLines(
  { entryId, role, snippet, onActivePath }: Result,
  words: string[],
  page: OutputStyle,
): Generator<string> {
  const { paint, width } = page;
  const head = `  ${column(inert(entryId), Math.max(8, widthOf(inert(entryId))))}  ${inert(role)}`;
  yield `${paint("cyan", head)}${onActivePath ? "" : paint("dim", " (another branch)")}`;
  for (const line of wrap(oneLine(snippet), Math.max(20, width - INDENT)))
    yield `${" ".repeat(INDENT)}${highlighted(line, words, page)}`;
}

/** Highlights the words of the query where they appear in the same spelling, whatever their case. */
function highlighted(line: string, words: string[], { paint }: OutputStyle): string {
  if (words.length === 0) return line;
  const any = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  return line.replace(new RegExp(any, "giu"), (found) => paint("yellow", found));
}
