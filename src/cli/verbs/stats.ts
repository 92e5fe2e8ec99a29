import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { hintAtDirectory } from "../directory-hint.ts";
import { formatLimits } from "../limits.ts";
import { CWD_FLAG, HERE_FLAG, parsePositive, UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { formatCost, getWidth, group, pad, show } from "../terminal/text.ts";
import { parseTimeFlag } from "../time-parser.ts";
import { drawChart, formatUsageCsv, GROUPS, type GroupName, tabulate } from "../usage-report.ts";
import { askAbout, defineVerb, type ResultOf, type VerbArguments } from "../verb.ts";
import { formatFact } from "./doctor.ts";

/** Rows that are printed on a terminal by default. */
const ON_TERMINAL = 50;

const SUMS = {
  "--by": {
    value: "day,week,month,model,project,session",
    meaning: "sum by one or several of these; by day by default",
  },
  "--since": { value: "time", meaning: "sum only from this time on, such as 2d, monday or 2026-01-24" },
  "--until": { value: "time", meaning: "sum only up to this time; a day, week or month means its beginning" },
  "--cwd": CWD_FLAG,
  "--archived": { meaning: "count archived sessions, too" },
  "--here": HERE_FLAG,
  "--limit": {
    value: "n",
    meaning: `print at most this many rows; ${ON_TERMINAL} on a terminal unless --all is given`,
  },
  "--all": { meaning: "print all rows" },
  "--chart": { meaning: "draw bars" },
  "--csv": { meaning: "print comma-separated values for a spreadsheet" },
};

const OTHERS = "Only Pi's sessions count; list --agents --sort cost has those of other agents.";

export default defineVerb({
  name: "stats",
  meaning: "sum tokens and cost over all sessions, or count the entries of one",
  operands: ["[session]"],
  flags: SUMS,
  more:
    "Without a session, it sums what all sessions spent, in days of this machine's time zone. What a fork took over counts once, in the session that spent it. " +
    "With a session, it counts messages, tokens and cost of all branches; the last column is the path to the leaf.",
  async run(asking, given) {
    const { operands, flags } = given;
    const [needless] = Object.keys(SUMS).filter((name) => flags.has(name));
    if (operands.length > 0) {
      if (needless !== undefined)
        throw new UsageError(`${needless} is about all sessions. Leave it or ${operands[0]} out.`);
      return askAbout("get_session_stats")(asking, given);
    }
    const all = flags.has("--all") || flags.has("--json") || flags.has("--csv") || !asking.isTerminal;
    const of = flags.get("--cwd");
    const cwd = of === undefined ? undefined : toAbsolutePath(of, asking.cwd);
    const result = await asking.ask("get_usage", {
      groupBy: groupsOf(given).map((group) => (group === "project" ? "cwd" : group)),
      since: parseTimeFlag(flags, "--since", asking),
      until: parseTimeFlag(flags, "--until", asking),
      cwd,
      archived: flags.has("--archived") ? true : undefined,
      here: flags.has("--here") ? true : undefined,
      limit: parsePositive(flags, "--limit") ?? (all ? undefined : ON_TERMINAL),
    });
    const isForPeople = !flags.has("--json") && !flags.has("--csv");
    if (cwd !== undefined && result.total === 0 && isForPeople)
      await hintAtDirectory(asking, cwd, flags.has("--archived"));
    return result;
  },
  print(result, given, page) {
    const { flags } = given;
    if (!("rows" in result)) return sessionStats(result, page);
    const by = groupsOf(given);
    if (flags.has("--csv")) return formatUsageCsv(result, by, page.isTerminal);
    const drawn = flags.has("--chart") ? drawChart(result, by, page) : tabulate(result, by, page);
    return [...drawn, ...formatLimits(result, page), page.paint("dim", OTHERS)];
  },
});

/** Returns the groups that `--by` names, each once. Throws UsageError. */
function groupsOf({ flags }: VerbArguments): GroupName[] {
  const given = (flags.get("--by") ?? "day").split(",").map((name) => name.trim());
  const unknown = given.find((name) => !(GROUPS as readonly string[]).includes(name));
  if (unknown !== undefined)
    throw new UsageError(`--by takes ${GROUPS.join(", ")}, or several of them with commas; it got ${unknown || '""'}.`);
  return [...new Set(given)] as GroupName[];
}

// --- one session -----------------------------------------------------------------------------------------------------

function sessionStats(stats: ResultOf<"get_session_stats">, page: OutputStyle): string[] {
  const { path, own, inherited, bytesByType } = stats;
  const rows = [["", "ALL", "PATH"], ...COUNTS.map(([name, of]) => [name, of(stats), of(path)])];
  const origins = [
    ["", "TOKENS", "COST"],
    ["made here", group(own.tokens.total), formatCost(own.tokens.total, own.cost, DIGITS)],
    [
      "from the session it was forked from",
      group(inherited.tokens.total),
      formatCost(inherited.tokens.total, inherited.cost, DIGITS),
    ],
  ];
  const bytes = Object.entries(bytesByType as Record<string, number>);
  const stored = [["", "BYTES"], ...bytes.map(([type, n]) => [show`${type}`, group(n)])];
  // Programs get each on one line, however long it is.
  const wide = page.isTerminal ? page : { ...page, width: Number.POSITIVE_INFINITY };
  return [
    ...formatFact("Session", [show`${stats.sessionId}`], wide, LABEL),
    ...formatFact("File", [show`${stats.sessionFile ?? "none"}`], wide, LABEL),
    ...[rows, origins, stored].flatMap((table) => ["", ...aligned(table, page.width)]),
  ];
}

/** Columns of a label and the space behind it. */
const LABEL = 9;

/** Digits after the point in the cost of one session. */
const DIGITS = 4;

type SessionCounts = ResultOf<"get_session_stats">["path"];

const COUNTS: readonly (readonly [string, (counts: SessionCounts) => string])[] = [
  ["user messages", ({ userMessages }) => group(userMessages)],
  ["assistant messages", ({ assistantMessages }) => group(assistantMessages)],
  ["tool calls", ({ toolCalls }) => group(toolCalls)],
  ["tool results", ({ toolResults }) => group(toolResults)],
  ["messages", ({ totalMessages }) => group(totalMessages)],
  ["input tokens", ({ tokens }) => group(tokens.input)],
  ["output tokens", ({ tokens }) => group(tokens.output)],
  ["cache read tokens", ({ tokens }) => group(tokens.cacheRead)],
  ["cache write tokens", ({ tokens }) => group(tokens.cacheWrite)],
  ["tokens", ({ tokens }) => group(tokens.total)],
  ["cost", ({ tokens, cost }) => formatCost(tokens.total, cost, DIGITS)],
];

/** Columns of a name at least: numbers are never cut. */
const LEAST_NAME = 8;

/** Aligns names to the left and numbers to the right. Shortens names on a narrow page. */
function aligned(rows: readonly (readonly string[])[], pageWidth: number): string[] {
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => getWidth(row[i] ?? ""))));
  const numbers = widths.slice(1).reduce((sum, width) => sum + width + 2, 0);
  widths[0] = Math.min(widths[0], Math.max(LEAST_NAME, pageWidth - numbers));
  return rows.map((row) =>
    row
      .map((cell, i) => (i === 0 ? pad(cell, widths[i]) : cell.padStart(widths[i])))
      .join("  ")
      .trimEnd(),
  );
}
