import { grouped, inert } from "../terminal/text.ts";
import { askAbout, type Result, type Verb } from "../verb.ts";

export default {
  name: "stats",
  meaning: "count the messages, tokens and costs of a session",
  operands: ["<session>"],
  more: "All branches count; the last column is the path to the leaf.",
  run: askAbout("get_session_stats"),
  print(stats, _given, { paint }) {
    const { path, own, inherited, bytesByType } = stats;
    const rows = [["", "ALL", "PATH"], ...COUNTS.map(([name, of]) => [name, of(stats), of(path)])];
    const origins = [
      ["", "TOKENS", "COST"],
      ["made here", grouped(own.tokens.total), money(own.cost)],
      ["from the session it was forked from", grouped(inherited.tokens.total), money(inherited.cost)],
    ];
    const bytes = Object.entries(bytesByType as Record<string, number>);
    const stored = [["", "BYTES"], ...bytes.map(([type, n]) => [inert(type), grouped(n)])];
    return [
      `${paint("dim", "Session")}  ${inert(stats.sessionId)}`,
      `${paint("dim", "File")}     ${inert(stats.sessionFile ?? "none")}`,
      ...[rows, origins, stored].flatMap((table) => ["", ...aligned(table)]),
    ];
  },
} satisfies Verb;

const COUNTS: readonly (readonly [string, (counts: Result) => string])[] = [
  ["user messages", ({ userMessages }) => grouped(userMessages)],
  ["assistant messages", ({ assistantMessages }) => grouped(assistantMessages)],
  ["tool calls", ({ toolCalls }) => grouped(toolCalls)],
  ["tool results", ({ toolResults }) => grouped(toolResults)],
  ["messages", ({ totalMessages }) => grouped(totalMessages)],
  ["input tokens", ({ tokens }) => grouped(tokens.input)],
  ["output tokens", ({ tokens }) => grouped(tokens.output)],
  ["cache read tokens", ({ tokens }) => grouped(tokens.cacheRead)],
  ["cache write tokens", ({ tokens }) => grouped(tokens.cacheWrite)],
  ["tokens", ({ tokens }) => grouped(tokens.total)],
  ["cost", ({ cost }) => money(cost)],
];

function money(cost: number): string {
  return `$${cost.toFixed(4)}`;
}

/** Aligns names to the left and numbers to the right. */
function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => (row[i] ?? "").length)));
  return rows.map((row) =>
    row
      .map((cell, i) => (i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i])))
      .join("  ")
      .trimEnd(),
  );
}
