/** The report of a conformance run as a person reads it. What a server has sent is shown so that it acts on nothing. */

import type { CombinationResult, ConformanceResult, RuleResult } from "../conformance/run.ts";
import type { OutputStyle } from "./terminal/page.ts";
import { show, wrapOn } from "./terminal/text.ts";

/** The rules, without what checks them. */
export interface RuleList {
  readonly themes: readonly {
    readonly name: string;
    readonly rules: readonly { readonly name: string; readonly title: string; readonly source: string }[];
  }[];
}

/** Messages of a conversation that a failure shows. */
const MESSAGES = 6;
/** Characters of each. */
const MESSAGE_LENGTH = 300;

export function* formatRuleList({ themes }: RuleList, { paint }: OutputStyle): Generator<string> {
  for (const { name, rules } of themes) {
    if (rules.length === 0) continue;
    yield paint("bold", name);
    for (const rule of rules) {
      yield `  ${rule.name}`;
      yield `      ${rule.title}`;
      yield paint("dim", `      protocol.md, ${rule.source}`);
    }
    yield "";
  }
  yield `${themes.reduce((count, { rules }) => count + rules.length, 0)} rules`;
}

/** Yields the lines of a report: the failures and reasons, the skipped rules, and the counts. */
export function* formatReport(result: ConformanceResult, page: OutputStyle): Generator<string> {
  for (const combination of result.combinations)
    for (const rule of combination.results) if (rule.verdict === "failed") yield* failureLines(rule, combination, page);
  yield* skippedLines(result);
  const { paint } = page;
  for (const { framing, dialect, results } of result.combinations) {
    const count = (verdict: RuleResult["verdict"]): number => results.filter((rule) => rule.verdict === verdict).length;
    const [passed, failed, skipped] = [count("passed"), count("failed"), count("skipped")];
    const colour = failed > 0 ? "red" : "green";
    yield `${`${framing}, ${dialect}`.padEnd(18)} ${paint(colour, `${passed} passed, ${failed} failed, ${skipped} skipped`)}`;
  }
  for (const note of result.notes) yield show`${note}`;
  yield result.ok
    ? paint("green", "The server keeps the rules that were checked.")
    : paint("red", result.failed > 0 ? "The server breaks rules." : "The run was not brought to its end.");
}

function* failureLines(rule: RuleResult, combination: CombinationResult, page: OutputStyle): Generator<string> {
  const { paint } = page;
  yield paint("red", `FAILED ${rule.rule} (${combination.framing}, ${combination.dialect})`);
  yield* labelled("", rule.title, page);
  yield* labelled("", `protocol.md, ${rule.source}`, page);
  yield* labelled("sent", rule.sent ?? "nothing", page);
  yield* labelled("expected", rule.expected ?? "", page);
  yield* labelled("came", rule.came ?? "", page);
  const { messages = [], stderr = "" } = rule;
  if (messages.length > 0) yield paint("dim", "  the latest messages:");
  for (const message of messages.slice(-MESSAGES))
    yield paint("dim", `    ${show`${message}`.slice(0, MESSAGE_LENGTH)}`);
  for (const line of stderr.trimEnd().split("\n"))
    if (line !== "") yield paint("dim", `    stderr: ${show`${line}`.slice(0, MESSAGE_LENGTH)}`);
  yield "";
}

/** Yields the lines of a text with its label before the first. */
function labelled(label: string, text: string, page: OutputStyle): string[] {
  const head = label === "" ? "  " : `  ${label.padEnd(9)} `;
  return wrapOn(page, show`${text}`, head.length).map(
    (line, at) => `${at === 0 ? head : " ".repeat(head.length)}${line}`,
  );
}

/** Yields the skipped rules and why, each reason once. */
function* skippedLines({ combinations }: ConformanceResult): Generator<string> {
  const byReason = new Map<string, Set<string>>();
  for (const { results } of combinations)
    for (const { rule, verdict, reason = "" } of results) {
      if (verdict !== "skipped") continue;
      byReason.set(reason, (byReason.get(reason) ?? new Set()).add(rule));
    }
  for (const [reason, rules] of byReason) {
    yield show`skipped because ${reason}:`;
    yield `  ${[...rules].join(", ")}`;
  }
  if (byReason.size > 0) yield "";
}
