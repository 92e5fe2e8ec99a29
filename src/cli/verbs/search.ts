import { basename } from "node:path";
import type { Commands } from "../../client/protocol.ts";
import { makeWordsPattern, parseQuery } from "../../core/search/query.ts";
import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { hintAtDirectory } from "../directory-hint.ts";
import { formatLimits } from "../limits.ts";
import { AGENTS_FLAG, CWD_FLAG, getChoice, HERE_FLAG, parseAgents, parsePositive, UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import {
  count,
  cutFront,
  cutTo,
  escapeLine,
  formatClock,
  getWidth,
  shortenPath,
  show,
  toRawPath,
  wrapOn,
} from "../terminal/text.ts";
import { parseTimeFlag } from "../time-parser.ts";
import { defineVerb, FAILURE, OK, type ResultOf, type VerbArguments, type VerbContext } from "../verb.ts";
import { formatUnreadFiles } from "./doctor.ts";

type SearchParams = Commands["search_sessions"]["params"];
type SearchedPart = NonNullable<SearchParams["in"]>[number];
type PrintedHit = ResultOf<"search_sessions">["hits"][number];
type PrintedSession = Pick<
  PrintedHit,
  "sessionPath" | "shortId" | "name" | "firstMessage" | "cwd" | "agent" | "at" | "isArchived" | "inheritedFrom"
>;

/** Columns before a line. */
const INDENT = 4;
const GAP = "  ";
/** Columns that a directory and a title have at least. */
const FOLDER = 9;
const TITLE = 16;
/** The mark of forks, and how many of them are named under a hit. */
const FORK = "↳";
const MOST_FORKS = 3;
/** Hits that are asked for at once where all are needed. */
const AT_ONCE = 1000;

const OUTPUT: readonly SearchedPart[] = ["toolResult", "bashExecution"];
/** Parts of sessions by the names that `--in` takes. */
const PARTS: Readonly<Record<string, readonly SearchedPart[]>> = {
  user: ["user"],
  assistant: ["assistant"],
  calls: ["toolCall"],
  results: OUTPUT,
  all: ["user", "assistant", "toolCall", ...OUTPUT],
};

export default defineVerb({
  name: "search",
  meaning: "find messages and tool calls that hold all the words",
  operands: ["<words...>"],
  replacesOperands: ["--tool", "--file", "--failed"],
  flags: {
    "--cwd": CWD_FLAG,
    "--agents": AGENTS_FLAG,
    "--in": {
      value: "parts",
      meaning: `search only these parts, with commas between: ${Object.keys(PARTS).join(", ")}; by default user, assistant and calls`,
    },
    "--tool": {
      value: "name",
      meaning: "search only calls of this tool and their results; several with commas between",
    },
    "--file": {
      value: "path",
      meaning: "search only calls that name this file, by its path or the end of it, such as src/x.ts",
    },
    "--role": {
      value: "role",
      meaning: "search only messages of this role: user, assistant, toolResult or bashExecution",
      oneOf: ["user", "assistant", "toolResult", "bashExecution"],
    },
    "--tools": { meaning: "search the output of tools and commands, too" },
    "--failed": { meaning: "search only the output of tools and commands that failed" },
    "--since": {
      value: "time",
      meaning: 'search only from this time on, such as 2d, yesterday, "last week", march or 2026-03-14',
    },
    "--until": { value: "time", meaning: "search only up to this time; a day, week or month means its beginning" },
    "--here": HERE_FLAG,
    "--sessions": { meaning: "print each session once instead of the hits, the one with the best hit first" },
    "--paths": { meaning: "print only the paths of the sessions, one per line" },
    "--count": { meaning: "print only the number of hits or, with --sessions, of sessions" },
    "--limit": { value: "n", meaning: "print at most this many hits or sessions; 50 hits by default" },
    "--cursor": { value: "cursor", meaning: "continue where the last page ended" },
  },
  more:
    `A word is also found inside other words; '"two words"' finds them side by side. Calls are the arguments of tools and the commands that you ran yourself. ` +
    `${FORK} marks a hit that a fork took over from another session. The exit status is 1 if nothing is found.`,
  async run(asking, given) {
    const { flags } = given;
    const params = paramsOf(asking, given);
    const hasWords = params.query === undefined || params.query.trim() !== "";
    if (!hasWords && ["--tool", "--file", "--failed"].every((name) => !flags.has(name)))
      throw new UsageError("The words are empty. Give words, or --tool, --file or --failed.");
    const limit = parsePositive(flags, "--limit");
    if (isWhole(given)) return gathered(asking, params, limit, given);
    const result = await asking.ask("search_sessions", { ...params, limit, cursor: flags.get("--cursor") });
    if (params.cwd !== undefined && result.hits.length === 0 && !flags.has("--json"))
      await hintAtDirectory(asking, params.cwd, true);
    return result;
  },
  isExact: ({ flags }) => flags.has("--paths"),
  *print(result, given, page) {
    const { flags } = given;
    if ("hits" in result) yield* hitLines(result, given, page);
    else if (flags.has("--count")) yield String(flags.has("--sessions") ? result.sessions.length : result.count);
    else if (flags.has("--paths"))
      for (const { sessionPath } of result.sessions) yield toRawPath(sessionPath, page.isTerminal);
    else {
      if (result.sessions.length === 0) yield describeNothing(given);
      for (const session of result.sessions) yield sessionLine(session, page);
    }
    if (!flags.has("--count") && !flags.has("--paths")) {
      yield* formatLimits(result, page);
      yield* formatUnreadFiles(result.notRead, page);
    }
  },
  status: (result) => (("hits" in result ? result.hits : result.sessions).length === 0 ? FAILURE : OK),
});

/** Returns true if the sessions or the number of hits are wanted instead of the hits, for which all are needed. */
function isWhole({ flags }: VerbArguments): boolean {
  return ["--sessions", "--paths", "--count"].some((name) => flags.has(name));
}

function paramsOf(asking: VerbContext, { operands, flags }: VerbArguments): SearchParams {
  const { cwd } = asking;
  const [of, file, tool] = ["--cwd", "--file", "--tool"].map((name) => flags.get(name));
  const role = getChoice<NonNullable<SearchParams["role"]>>(flags, "--role");
  const failed = flags.has("--failed");
  // With a tool, a file or a failure, the command knows which parts can have the text.
  const usual =
    role === undefined && file === undefined && tool === undefined && !failed
      ? ["user", "assistant", "calls"]
      : undefined;
  const parts = flags.has("--in") ? listed("--in", flags) : usual;
  return {
    query: operands.length === 0 ? undefined : operands.join(" "),
    cwd: of === undefined ? undefined : toAbsolutePath(of, cwd),
    agents: parseAgents(flags),
    role,
    in: parts?.flatMap((part) => partsOf(part)),
    tool: tool === undefined ? undefined : listed("--tool", flags),
    file: isHere(file) ? toAbsolutePath(file, cwd) : file,
    includeToolResults: flags.has("--tools") ? true : undefined,
    failed: failed ? true : undefined,
    here: flags.has("--here") ? true : undefined,
    since: parseTimeFlag(flags, "--since", asking),
    until: parseTimeFlag(flags, "--until", asking),
  };
}

/** Returns whether a path is meant from the current directory on. */
function isHere(file: string | undefined): file is string {
  return file !== undefined && /^\.{1,2}(?:[/\\]|$)/.test(file);
}

/** Returns the values of an option that takes several. */
function listed(name: string, flags: ReadonlyMap<string, string>): string[] {
  const values = (flags.get(name) ?? "").split(",").map((value) => value.trim());
  if (values.includes("")) throw new UsageError(`${name} takes names with commas between them; one is empty.`);
  return values;
}

function partsOf(name: string): readonly SearchedPart[] {
  const parts = Object.hasOwn(PARTS, name) ? PARTS[name] : PARTS.all.filter((part) => part === name);
  if (parts.length === 0)
    throw new UsageError(
      `--in takes ${Object.keys(PARTS).join(", ")}, or several with commas between; it got ${name}.`,
    );
  return parts;
}

/** Returns the sessions of all hits, each once and the best first, and the number of the hits. */
async function gathered(
  asking: VerbContext,
  params: SearchParams,
  most = Number.POSITIVE_INFINITY,
  { flags }: VerbArguments,
) {
  const sessions = new Map<string, PrintedSession>();
  const counts = flags.has("--count");
  let count = 0;
  let cursor = flags.get("--cursor");
  let limited: string | undefined;
  let notRead: ResultOf<"search_sessions">["notRead"];
  do {
    const { hits, nextCursor, ...page }: ResultOf<"search_sessions"> = await asking.ask("search_sessions", {
      ...params,
      limit: AT_ONCE,
      cursor,
    });
    count += hits.length;
    limited ??= page.limited;
    notRead ??= page.notRead;
    for (const { sessionPath, sessionId, shortId, name, firstMessage, cwd, agent, at, isArchived, ...hit } of hits) {
      const known = sessions.get(sessionPath);
      if (!known && sessions.size === most) continue;
      const latest = known && (at === null || (known.at ?? "") > at) ? known.at : at;
      // It took all of them over, or it has one of its own.
      const inheritedFrom = known && !known.inheritedFrom ? undefined : hit.inheritedFrom;
      const facts = { sessionPath, sessionId, shortId, name, firstMessage, cwd, agent, at: latest, isArchived };
      sessions.set(sessionPath, inheritedFrom ? { ...facts, inheritedFrom } : facts);
    }
    cursor = nextCursor;
  } while (cursor !== undefined && (counts || sessions.size < most));
  return { sessions: [...sessions.values()], count: counts ? count : undefined, limited, notRead };
}

/** Returns a session on one line: its id, the day of its latest hit, its directory where there is room, and its title. */
function sessionLine(
  { shortId, at, cwd, name, firstMessage, agent, isArchived, inheritedFrom }: PrintedSession,
  { paint, width, home }: OutputStyle,
): string {
  const id = show`${shortId}`;
  const day = dayOf(at);
  const available = width - id.length - day.length - 2 * GAP.length;
  const folder =
    available < FOLDER + TITLE + GAP.length ? "" : cutFront(shortenPath(cwd ?? "", home), Math.floor(available * 0.4));
  const mark = `${isArchived ? "archived: " : ""}${inheritedFrom ? `${FORK} ` : ""}${agent === undefined ? "" : `${agent}: `}`;
  const title = cutTo(
    `${mark}${escapeLine(name ?? firstMessage ?? "")}`,
    available - (folder === "" ? 0 : getWidth(folder) + GAP.length),
  );
  const cells = [paint("cyan", id), paint("dim", day), paint("dim", folder), paint(name ? "bold" : "plain", title)];
  return cells.filter((text) => text !== "").join(GAP);
}

/** A hit with the forks that have it, too. */
interface ShownHit {
  readonly hit: PrintedHit;
  readonly forks: PrintedHit[];
}

/** Returns a key for a hit that is the same wherever the hit is. */
function placeOf(sessionId: string, { entryId, part, line }: PrintedHit): string {
  return JSON.stringify([sessionId, entryId, part, line]);
}

/** Returns the hits, those that forks took over from another of them only with that one. */
function withForks(hits: readonly PrintedHit[]): ShownHit[] {
  const shown = new Map<string, ShownHit>();
  for (const hit of hits) if (!hit.inheritedFrom) shown.set(placeOf(hit.sessionId, hit), { hit, forks: [] });
  return hits.flatMap((hit): ShownHit[] => {
    const own = shown.get(placeOf((hit.inheritedFrom ?? hit).sessionId, hit));
    if (own && own.hit === hit) return [own];
    if (!hit.inheritedFrom || !own) return [{ hit, forks: [] }];
    own.forks.push(hit);
    return [];
  });
}

/** Returns the line for a search without hits. By default, the output of tools is not searched. */
function describeNothing({ flags }: VerbArguments): string {
  const file = flags.get("--file") ?? "";
  // It means the file of this directory, which sessions of a renamed one, or of another clone, do not name.
  if (isHere(file))
    return show`Nothing was found. --file ${file.replace(/^(?:\.{1,2}[/\\])+/, "")} finds it below any directory.`;
  const isUsual = ["--tools", "--in", "--role", "--tool", "--file", "--failed"].every((name) => !flags.has(name));
  return isUsual
    ? "Nothing was found. --tools searches the output of tools, too; list --query searches names and labels."
    : "Nothing was found.";
}

/** Yields the hits under their sessions, in the order of the first hit of each session. */
function* hitLines(
  { hits, nextCursor }: ResultOf<"search_sessions">,
  given: VerbArguments,
  page: OutputStyle,
): Generator<string> {
  if (hits.length === 0) yield describeNothing(given);
  const bySession = new Map<string, ShownHit[]>();
  for (const shown of withForks(hits)) {
    const { sessionPath } = shown.hit;
    bySession.set(sessionPath, [...(bySession.get(sessionPath) ?? []), shown]);
  }
  const words = highlightedWords(given);
  for (const found of bySession.values()) {
    const latest = found
      .map(({ hit: { at } }) => at ?? "")
      .sort()
      .at(-1);
    const inheritedFrom = found.every(({ hit }) => hit.inheritedFrom) ? found[0].hit.inheritedFrom : undefined;
    yield sessionLine({ ...found[0].hit, at: latest || null, inheritedFrom }, page);
    for (const { hit, forks } of found) {
      yield* oneHit(hit, words, page);
      for (const line of originLines(hit, forks)) yield page.paint("dim", cutTo(line, page.width));
    }
  }
  if (nextCursor !== undefined) yield page.paint("dim", show`There is more: --cursor ${nextCursor}`);
}

/** Yields the other places of a hit: the session from which a fork inherited it, and the forks that inherited it. */
function* originLines({ inheritedFrom }: PrintedHit, forks: readonly PrintedHit[]): Generator<string> {
  const space = " ".repeat(INDENT);
  if (inheritedFrom) {
    const { sessionId, name } = inheritedFrom;
    yield `${space}${FORK} from ${name === null ? show`${sessionId}` : escapeLine(name)}`;
  }
  const titles = forks.map(
    ({ shortId, name, firstMessage }) => show`${shortId} ${escapeLine(name ?? firstMessage ?? "")}`,
  );
  for (const title of titles.slice(0, MOST_FORKS)) yield `${space}${FORK} also in ${title}`;
  const more = titles.length - MOST_FORKS;
  if (more > 0) yield `${space}${FORK} and in ${count(more, "more fork", "more forks")}`;
}

function* oneHit(
  { entryId, role, tool, at, line, onActivePath }: PrintedHit,
  words: RegExp | undefined,
  page: OutputStyle,
) {
  const { paint, width } = page;
  const who = tool === undefined || tool === "" ? role : `${role}: ${tool}`;
  const head = cutTo(show`  ${entryId.padEnd(8)}  ${who}`, width);
  const branch = onActivePath ? "" : " (another branch)";
  // The day is in the line of the session, too.
  const rest =
    [`  ${formatClock(at)}${branch}`, branch, ""].find((text) => getWidth(head) + text.length <= width) ?? "";
  yield `${paint("cyan", head)}${paint("dim", rest)}`;
  const shown = escapeLine(line);
  const isPainted = paint("yellow", "x") !== "x";
  const marked = isPainted || !words ? shown : shown.replace(words, (found) => `**${found}**`);
  for (const part of wrapOn(page, marked, INDENT))
    yield `${" ".repeat(INDENT)}${isPainted && words ? part.replace(words, (found) => paint("yellow", found)) : part}`;
}

/** Returns a pattern for highlighting, in any case: the words of the query, or the name of the file. */
function highlightedWords({ operands, flags }: VerbArguments): RegExp | undefined {
  const file = flags.get("--file");
  const words = parseQuery(operands.join(" ")) ?? (file === undefined ? [] : [basename(file)]);
  return words.length === 0 ? undefined : makeWordsPattern(words.map((word) => show`${word}`.replace(/\s+/g, " ")));
}

/** Returns the day of a time here. */
function dayOf(at: string | null): string {
  return formatClock(at).slice(0, 10);
}
