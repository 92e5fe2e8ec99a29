import type { Combination, ConformanceResult, Theme } from "../../conformance/main.ts";
import { formatReport, formatRuleList, type RuleList } from "../conformance-report.ts";
import { parsePositive, UsageError } from "../options.ts";
import { defineVerb, FAILURE, OK, type VerbArguments } from "../verb.ts";

/** Milliseconds that a reply may take. */
const TIMEOUT = 10_000;
/** Seconds that the whole run may take. */
const LIMIT = 900;

export default defineVerb({
  name: "conformance",
  meaning: "check that a server keeps the rules of the protocol",
  operands: ["--", "<command...>"],
  takesCommand: true,
  flags: {
    "--list": { meaning: "list the rules instead, with their places in protocol.md" },
    "--only": { value: "rules", meaning: "check only these rules or themes, with commas between" },
    "--skip": { value: "rules", meaning: "leave out these rules or themes" },
    "--framing": { value: "lines|headers", meaning: "check only this framing", oneOf: ["lines", "headers"] },
    "--dialect": { value: "jsonrpc|pi", meaning: "check only this dialect", oneOf: ["jsonrpc", "pi"] },
    "--timeout": { value: "ms", meaning: `wait so long for a reply; ${TIMEOUT} by default` },
    "--limit": { value: "seconds", meaning: `end the whole run after this time; ${LIMIT} by default` },
    "--keep": { meaning: "keep the files of the run, and print where they are" },
    "--json": { meaning: "print the result as one JSON document" },
  },
  more: `It starts the command, talks to it as a host does, kills it and looks at its files. The command runs here, with \
a home of its own: HOME and the variables of Pi lead to a temporary folder. {dir} in the command stands for that \
folder, {session} for a path in it, of the session to open.
The status is 0 when no rule fails and 1 when one does. docs/conformance.md describes the rules.
  pi-session-server conformance -- ./my-server --stdio`,
  async run(asking, given) {
    const kit = await import("../../conformance/main.ts");
    const themes = chosen(kit.THEMES, given);
    if (given.flags.has("--list")) return { themes: themes.map(describe) } satisfies RuleList;
    const { operands: command, flags } = given;
    if (command.length === 0)
      throw new UsageError("conformance takes the command of a server after --: conformance -- ./my-server");
    const combinations = kit.COMBINATIONS.filter(
      ({ framing, dialect }) =>
        (flags.get("--framing") ?? framing) === framing && (flags.get("--dialect") ?? dialect) === dialect,
    );
    requireRules(themes, combinations);
    try {
      return await kit.runCommand({
        command,
        themes,
        combinations,
        timeout: parsePositive(flags, "--timeout") ?? TIMEOUT,
        limit: 1000 * (parsePositive(flags, "--limit") ?? LIMIT),
        cwd: asking.cwd,
        variables: asking.variables,
        keep: flags.has("--keep"),
        progress: asking.progress,
      });
    } catch (error) {
      if (error instanceof kit.CannotStart) throw new UsageError(`${sentenceOf(error)} Check what follows --.`);
      throw error;
    }
  },
  print: (result, _given, page) => ("themes" in result ? formatRuleList(result, page) : formatReport(result, page)),
  status: (result) => ("themes" in result || (result as ConformanceResult).ok ? OK : FAILURE),
});

function sentenceOf({ message }: Error): string {
  return `${message[0].toUpperCase()}${message.slice(1)}.`;
}

function describe({ name, rules }: Theme): RuleList["themes"][number] {
  return { name, rules: rules.map((rule) => ({ name: rule.name, title: rule.title, source: rule.source })) };
}

/** Returns the themes with the rules that --only and --skip leave. Throws UsageError. */
function chosen(themes: readonly Theme[], { flags }: VerbArguments): Theme[] {
  const only = namesIn(flags.get("--only"), themes);
  const skip = namesIn(flags.get("--skip"), themes);
  return themes.map(({ name, rules }) => ({
    name,
    rules: rules.filter((rule) => {
      const isNamed = (names: ReadonlySet<string>): boolean => names.has(name) || names.has(rule.name);
      return (only.size === 0 || isNamed(only)) && !isNamed(skip);
    }),
  }));
}

/** Returns the names in a list; each must be a rule or a theme. Throws UsageError. */
function namesIn(list: string | undefined, themes: readonly Theme[]): ReadonlySet<string> {
  const names = (list ?? "").split(",").flatMap((name) => name.trim() || []);
  const known = new Set(themes.flatMap(({ name, rules }) => [name, ...rules.map((rule) => rule.name)]));
  const unknown = names.find((name) => !known.has(name));
  if (unknown !== undefined || (list !== undefined && names.length === 0))
    throw new UsageError(`There is no rule and no theme ${unknown ?? '""'}. conformance --list shows them.`);
  return new Set(names);
}

/** Throws UsageError where nothing would be checked, so that a slip of the pen does not pass for a success. */
function requireRules(themes: readonly Theme[], combinations: readonly Combination[]): void {
  const isLeft = themes.some(({ rules }) =>
    rules.some((rule) => combinations.some((combination) => rule.applies?.(combination) ?? true)),
  );
  if (!isLeft) throw new UsageError("No rule is left to check in these combinations. Name others with --only.");
}
