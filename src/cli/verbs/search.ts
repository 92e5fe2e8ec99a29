import { basename } from "node:path";
import { parseQuery } from "../../core/search/query.ts";
import { absolute } from "../../storage/fs/paths.ts";
import { timeFlag } from "../moments.ts";
import { CWD_FLAG, numberAbove0, UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { cutFront, cutTo, exact, inert, oneLine, shortPath, widthOf, wrap } from "../terminal/text.ts";
import { type Asking, FAILURE, type Given, OK, type Result, type Verb } from "../verb.ts";

/** Columns before a line. */
const INDENT = 4;
const GAP = "  ";
/** Columns that a directory and a title have at least. */
const FOLDER = 9;
const TITLE = 16;
/** Hits that are asked for at once where all are needed. */
const AT_ONCE = 1000;

const OUTPUT = ["toolResult", "bashExecution"];
/** Parts of sessions by the names that `--in` takes. */
const PARTS: Readonly<Record<string, readonly string[]>> = {
  user: ["user"],
  assistant: ["assistant"],
  calls: ["toolCall"],
  results: OUTPUT,
  all: ["user", "assistant", "toolCall", ...OUTPUT],
};

export default {
  name: "search",
  meaning: "find messages and tool calls that hold all the words",
  operands: ["<words...>"],
  instead: ["--tool", "--file"],
  flags: {
    "--cwd": CWD_FLAG,
    "--in": {
      value: "parts",
      meaning: `only these, with commas between: ${Object.keys(PARTS).join(", ")}; by default user, assistant and calls`,
    },
    "--tool": { value: "name", meaning: "only calls of this tool and their results; several with commas between" },
    "--file": { value: "path", meaning: "only calls that name this file: its path, or the end of it, as src/x.ts" },
    "--role": {
      value: "role",
      meaning: "only what is said in this role: user, assistant, toolResult or bashExecution",
      oneOf: ["user", "assistant", "toolResult", "bashExecution"],
    },
    "--tools": { meaning: "also the output of tools and commands" },
    "--since": {
      value: "time",
      meaning: 'only from this time on, such as 2d, yesterday, "last week", march or 2026-03-14',
    },
    "--until": { value: "time", meaning: "only up to this time; a day, week or month is its beginning" },
    "--sessions": { meaning: "print each session once, and no hits" },
    "--paths": { meaning: "print only the paths of the sessions, one per line" },
    "--count": { meaning: "print only how many hits there are or, with --sessions, how many sessions" },
    "--limit": { value: "n", meaning: "at most this many hits or sessions; 50 hits by default" },
    "--cursor": { value: "cursor", meaning: "continue where the last page ended" },
  },
  more:
    `Words are found inside other words too; '"two words"' finds them side by side. Calls are what tools were given ` +
    "and the commands that you ran yourself; of what is longer than 8,192 characters the beginning is searched. " +
    "Without words, --tool or --file finds all that fit. Ends with 1 when nothing is found.",
  async run(asking, given) {
    const { flags } = given;
    const params = paramsOf(asking, given);
    if (isWhole(given)) return gathered(asking, params, numberAbove0(flags, "--limit"), given);
    return asking.ask("search_sessions", {
      ...params,
      limit: numberAbove0(flags, "--limit"),
      cursor: flags.get("--cursor"),
    });
  },
  *print(result, given, page) {
    const { flags } = given;
    if (flags.has("--count")) yield String(flags.has("--sessions") ? result.sessions.length : result.count);
    else if (flags.has("--paths"))
      for (const { sessionPath } of result.sessions) yield exact(sessionPath, page.isTerminal);
    else if (isWhole(given)) for (const session of result.sessions) yield sessionLine(session, page);
    else yield* hitLines(result, given, page);
  },
  status: ({ hits, sessions }) => ((hits ?? sessions).length === 0 ? FAILURE : OK),
} satisfies Verb;

/** Whether not the hits but their sessions or their number is asked for, for which all are needed. */
function isWhole({ flags }: Given): boolean {
  return ["--sessions", "--paths", "--count"].some((name) => flags.has(name));
}

function paramsOf(asking: Asking, { operands, flags }: Given): Readonly<Record<string, unknown>> {
  const { cwd } = asking;
  const [of, file, tool, role] = ["--cwd", "--file", "--tool", "--role"].map((name) => flags.get(name));
  // Where a tool or a file says what is looked for, the command knows in which parts that can be.
  const usual =
    role === undefined && file === undefined && tool === undefined ? ["user", "assistant", "calls"] : undefined;
  const parts = flags.has("--in") ? listed("--in", flags) : usual;
  const output = flags.has("--tools");
  return {
    query: operands.length === 0 ? undefined : operands.join(" "),
    cwd: of === undefined ? undefined : absolute(of, cwd),
    role,
    in: parts?.flatMap((part) => partsOf(part)),
    tool: tool === undefined ? undefined : listed("--tool", flags),
    file: file !== undefined && /^\.{1,2}(?:[/\\]|$)/.test(file) ? absolute(file, cwd) : file,
    includeToolResults: output ? true : undefined,
    since: timeFlag(flags, "--since", asking),
    until: timeFlag(flags, "--until", asking),
  };
}

/** Returns the values of an option that takes several. */
function listed(name: string, flags: ReadonlyMap<string, string>): string[] {
  const values = (flags.get(name) ?? "").split(",").map((value) => value.trim());
  if (values.includes("")) throw new UsageError(`${name} takes names with commas between them; one is empty.`);
  return values;
}

function partsOf(name: string): readonly string[] {
  const parts = Object.hasOwn(PARTS, name) ? PARTS[name] : PARTS.all.filter((part) => part === name);
  if (parts.length === 0)
    throw new UsageError(
      `--in takes ${Object.keys(PARTS).join(", ")}, or several with commas between; it got ${name}.`,
    );
  return parts;
}

/** Returns the sessions of all hits, each once and the best first, and the number of the hits. */
async function gathered(asking: Asking, params: object, most = Number.POSITIVE_INFINITY, { flags }: Given) {
  const sessions = new Map<string, Result>();
  const counts = flags.has("--count");
  let count = 0;
  let cursor = flags.get("--cursor");
  do {
    const { hits, nextCursor } = await asking.ask("search_sessions", { ...params, limit: AT_ONCE, cursor });
    count += hits.length;
    for (const { sessionPath, sessionId, shortId, name, firstMessage, cwd, at } of hits) {
      const known = sessions.get(sessionPath);
      if (!known && sessions.size === most) continue;
      const latest = known && (at === null || known.at > at) ? known.at : at;
      sessions.set(sessionPath, { sessionPath, sessionId, shortId, name, firstMessage, cwd, at: latest });
    }
    cursor = nextCursor;
  } while (cursor !== undefined && (counts || sessions.size < most));
  return { sessions: [...sessions.values()], count: counts ? count : undefined };
}

/** Returns a session on one line: its id, the day of its latest hit, its directory where there is room, and its title. */
function sessionLine({ shortId, at, cwd, name, firstMessage }: Result, { paint, width, home }: OutputStyle): string {
  const id = inert(shortId);
  const day = dayOf(at);
  const room = width - id.length - day.length - 2 * GAP.length;
  const folder = room < FOLDER + TITLE + GAP.length ? "" : cutFront(shortPath(cwd ?? "", home), Math.floor(room * 0.4));
  const title = cutTo(oneLine(name ?? firstMessage ?? ""), room - (folder === "" ? 0 : widthOf(folder) + GAP.length));
  const cells = [paint("cyan", id), paint("dim", day), paint("dim", folder), paint(name ? "bold" : "plain", title)];
  return cells.filter((text) => text !== "").join(GAP);
}

/** Yields the hits under their sessions, in the order in which each session comes first. */
function* hitLines({ hits, nextCursor }: Result, given: Given, page: OutputStyle): Generator<string> {
  if (hits.length === 0) yield "Nothing was found.";
  const bySession = new Map<string, Result[]>();
  for (const hit of hits) bySession.set(hit.sessionPath, [...(bySession.get(hit.sessionPath) ?? []), hit]);
  const words = highlightedWords(given);
  for (const found of bySession.values()) {
    const latest = found
      .map(({ at }) => at ?? "")
      .sort()
      .at(-1);
    yield sessionLine({ ...found[0], at: latest === "" ? null : latest }, page);
    for (const hit of found) yield* oneHit(hit, words, page);
  }
  if (nextCursor !== undefined) yield page.paint("dim", `There is more: --cursor ${inert(nextCursor)}`);
}

function* oneHit(
  { entryId, role, tool, at, line, onActivePath }: Result,
  words: RegExp | undefined,
  page: OutputStyle,
) {
  const { paint, width } = page;
  const who = tool === undefined || tool === "" ? role : `${role}: ${tool}`;
  const head = cutTo(`  ${inert(entryId).padEnd(8)}  ${inert(who)}`, width);
  const branch = onActivePath ? "" : " (another branch)";
  // The day is in the line of the session, too.
  const rest = [`  ${timeOf(at)}${branch}`, branch, ""].find((text) => widthOf(head) + text.length <= width) ?? "";
  yield `${paint("cyan", head)}${paint("dim", rest)}`;
  const shown = oneLine(line);
  const isPainted = paint("yellow", "x") !== "x";
  const marked = isPainted || !words ? shown : shown.replace(words, (found) => `**${found}**`);
  for (const part of wrap(marked, Math.max(20, width - INDENT)))
    yield `${" ".repeat(INDENT)}${isPainted && words ? part.replace(words, (found) => paint("yellow", found)) : part}`;
}

/** Returns a pattern of what is highlighted, in any case: the words of the query, or the name of the file. */
function highlightedWords({ operands, flags }: Given): RegExp | undefined {
  const file = flags.get("--file");
  const words = parseQuery(operands.join(" ")) ?? (file === undefined ? [] : [basename(file)]);
  // A longer word first: the pattern takes the first that fits.
  const longestFirst = [...words].sort((a, b) => b.length - a.length);
  const any = longestFirst.map((word) =>
    inert(word)
      .replace(/[.*+?^${}()|[\]\\]/g, "\\$&")
      .replace(/\s+/g, " "),
  );
  return any.length === 0 ? undefined : new RegExp(any.join("|"), "giu");
}

/** Returns the day of a time here. */
function dayOf(at: string | null): string {
  return timeOf(at).slice(0, 10);
}

/** Returns a time as clocks here show it. */
function timeOf(at: string | null): string {
  if (at === null) return "";
  const time = new Date(at);
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}`;
}
