/** Checks rules against a command, one combination after the other. Always ends, and leaves nothing behind. */

import type { Combination } from "./combination.ts";
import { findProcesses, makeRunFolder, removeFolder } from "./files.ts";
import { type Launched, type Launcher, launch } from "./launch.ts";
import type { Rule, Theme } from "./rule.ts";
import { FIRST_RULE } from "./rules/starting.ts";
import { TestContext } from "./test-context.ts";
import { type Evidence, NotApplicable, RuleBroken } from "./verdict.ts";

export interface ConformanceOptions {
  /** The command that starts the server. */
  readonly command: readonly string[];
  readonly themes: readonly Theme[];
  readonly combinations: readonly Combination[];
  /** Milliseconds that a reply may take. */
  readonly timeout: number;
  /** Milliseconds that the whole run may take. */
  readonly limit: number;
  readonly cwd: string;
  readonly variables: Readonly<Record<string, string | undefined>>;
  /** True to keep the folder of the run. */
  readonly keep?: boolean;
  readonly launcher?: Launcher;
  /** Called with the number of finished checks and of all. */
  readonly progress?: (done: number, total: number) => void;
}

/** A rule that was checked in one combination. */
export interface RuleResult extends Partial<Evidence> {
  readonly rule: string;
  readonly title: string;
  /** The heading in protocol.md below which it stands. */
  readonly source: string;
  readonly verdict: "passed" | "failed" | "skipped";
  /** Why it was skipped. */
  readonly reason?: string;
  /** The latest messages of both sides, and the end of stderr, of a rule that failed. */
  readonly messages?: readonly string[];
  readonly stderr?: string;
  readonly milliseconds: number;
}

export interface CombinationResult extends Combination {
  readonly results: readonly RuleResult[];
}

export interface ConformanceResult {
  readonly command: readonly string[];
  /** True if no rule failed and every one was reached. */
  readonly ok: boolean;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly combinations: readonly CombinationResult[];
  /** Sentences about other observations of the run. */
  readonly notes: readonly string[];
}

/** The command cannot be started; the message says why. */
export class CannotStart extends Error {}

/** A run's limit is over. */
class OutOfTime extends Error {}

/** Replies that one rule may await for the full time of a reply. */
const WAITS = 8;
/** Characters of stderr that a result has. */
const STDERR = 2000;

/** Functions that clean up after the runs that are under way, for a signal that ends this process. */
const underWay = new Set<() => void>();

/** Ends the servers of all runs and removes their folders, at once. */
export function abandonRuns(): void {
  for (const abandon of underWay) abandon();
}

/** Checks rules against a command. Throws CannotStart. */
export async function runRules(options: ConformanceOptions): Promise<ConformanceResult> {
  const folder = makeRunFolder();
  const servers = new Set<Launched>();
  let isClean = false;
  const clean = (): string[] => {
    if (isClean) return [];
    isClean = true;
    for (const server of servers) server.kill();
    const left = findProcesses(folder).filter((pid) => pid !== process.pid);
    for (const pid of left) endQuietly(pid);
    if (!options.keep) removeFolder(folder);
    return [
      ...(left.length > 0 ? [`Processes that the server had started were left, and were ended: ${left.length}.`] : []),
      ...(options.keep ? [`The files of the run are in ${folder}.`] : []),
    ];
  };
  underWay.add(clean);
  const launcher: Launcher = (command, surroundings) => {
    const server = (options.launcher ?? launch)(command, surroundings);
    servers.add(server);
    void server.ended.then(() => servers.delete(server));
    return server;
  };
  try {
    const notes: string[] = [];
    const combinations = await new ConformanceRun({ ...options, launcher }, folder, notes).all();
    return summaryOf(options, combinations, [...notes, ...clean()]);
  } finally {
    clean();
    underWay.delete(clean);
  }
}

class ConformanceRun {
  private readonly options: ConformanceOptions & { readonly launcher: Launcher };
  private readonly folder: string;
  private readonly notes: string[];
  private readonly deadline: number;
  private readonly rules: readonly Rule[];
  private readonly total: number;
  private done = 0;

  constructor(options: ConformanceRun["options"], folder: string, notes: string[]) {
    this.options = options;
    this.folder = folder;
    this.notes = notes;
    this.deadline = performance.now() + options.limit;
    const rules = options.themes.flatMap((theme) => theme.rules);
    // Without an answer to the first message, nothing else can be checked.
    this.rules = [FIRST_RULE, ...rules.filter((rule) => rule !== FIRST_RULE)];
    this.total = options.combinations.reduce((count, one) => count + this.rulesFor(one).length, 0);
  }

  async all(): Promise<CombinationResult[]> {
    const results: CombinationResult[] = [];
    for (const combination of this.options.combinations)
      results.push({ ...combination, results: await this.inCombination(combination) });
    return results;
  }

  private rulesFor(combination: Combination): Rule[] {
    return this.rules.filter((rule) => rule.applies?.(combination) ?? true);
  }

  private async inCombination(combination: Combination): Promise<RuleResult[]> {
    const { command, cwd, variables, timeout, launcher } = this.options;
    const testContext = new TestContext({
      command,
      combination,
      folder: this.folder,
      cwd,
      variables,
      timeout,
      launcher,
    });
    const [first, ...others] = this.rulesFor(combination);
    try {
      const results = [await this.check(first, testContext)];
      const hasAnswered = results[0].verdict === "passed";
      if (hasAnswered) {
        await this.noteSessions(testContext);
        await testContext.learnCommands();
      }
      for (const rule of others)
        results.push(hasAnswered ? await this.check(rule, testContext) : this.skip(rule, NO_ANSWER));
      return results;
    } finally {
      await testContext.leave();
    }
  }

  /** Notes where the server keeps sessions, if that is not where this run removes them. */
  private async noteSessions(testContext: TestContext): Promise<void> {
    const reply = await (await testContext.plain()).ask("get_state").catch(() => undefined);
    const { sessionFile } = (reply?.isFailure ? undefined : reply?.result) ?? {};
    if (typeof sessionFile !== "string" || sessionFile.startsWith(this.folder)) return;
    const where = `The server keeps sessions outside of the folder of this run, as ${sessionFile}; they are not removed.`;
    const how = "Have it look at HOME, or put {dir} into the command where it takes a folder.";
    this.notes.push(`${where} ${how}`);
  }

  private skip(rule: Rule, reason: string): RuleResult {
    this.options.progress?.(++this.done, this.total);
    return { ...aboutRule(rule), verdict: "skipped", reason, milliseconds: 0 };
  }

  private async check(rule: Rule, testContext: TestContext): Promise<RuleResult> {
    const left = this.deadline - performance.now();
    if (left <= 0) return this.skip(rule, OUT_OF_TIME);
    const limit = this.options.timeout * WAITS;
    const began = performance.now();
    const { context, revoke } = testContext.lend();
    let error: unknown;
    try {
      await within(Math.min(left, limit), rule.run(context));
    } catch (thrown) {
      error = thrown;
    }
    revoke();
    // A timer may fire a part of a millisecond before its time, so no clock is asked again.
    const isOver = error instanceof OutOfTime && left <= limit;
    const { messages, complaints } = testContext.scene();
    const shown = [...messages];
    await testContext.clear(error !== undefined && !(error instanceof NotApplicable));
    if (isOver) return this.skip(rule, OUT_OF_TIME);
    this.options.progress?.(++this.done, this.total);
    const milliseconds = Math.round(performance.now() - began);
    if (error === undefined) return { ...aboutRule(rule), verdict: "passed", milliseconds };
    if (error instanceof NotApplicable)
      return { ...aboutRule(rule), verdict: "skipped", reason: error.message, milliseconds };
    const stderr = complaints.slice(-STDERR);
    return {
      ...aboutRule(rule),
      verdict: "failed",
      ...evidenceOf(error, shown),
      messages: shown,
      ...(stderr === "" ? {} : { stderr }),
      milliseconds,
    };
  }
}

function aboutRule({ name, title, source }: Rule): Pick<RuleResult, "rule" | "title" | "source"> {
  return { rule: name, title, source };
}

const NO_ANSWER = "the server does not answer in this combination";
const OUT_OF_TIME = "the time for the whole run was over; --limit gives it more";

/** Returns what an error shows. A rule that stumbles over a message has one before it that is not as declared. */
function evidenceOf(error: unknown, messages: readonly string[]): Evidence {
  if (error instanceof RuleBroken) return error.evidence;
  if (error instanceof OutOfTime) return { expected: "an end of the rule", came: error.message };
  const came = messages.findLast((message) => message.startsWith("<--")) ?? "nothing";
  return { expected: `a message of the declared shape (${(error as Error)?.message})`, came };
}

/** Resolves with a promise, or rejects when it takes too long. */
async function within(limit: number, done: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new OutOfTime(`no end within ${Math.round(limit)} ms`)), limit);
  });
  try {
    await Promise.race([done, late]);
  } finally {
    clearTimeout(timer);
    // It may still fail, when its server is ended.
    done.catch(() => {});
  }
}

function summaryOf(
  { command }: ConformanceOptions,
  combinations: readonly CombinationResult[],
  notes: readonly string[],
): ConformanceResult {
  const all = combinations.flatMap(({ results }) => results);
  const count = (verdict: RuleResult["verdict"]): number => all.filter((result) => result.verdict === verdict).length;
  const refused = all.find(({ came }) => came?.startsWith("the command cannot be started"));
  if (refused !== undefined) throw new CannotStart(refused.came);
  const isWhole = all.every(({ reason }) => reason !== OUT_OF_TIME);
  const failed = count("failed");
  return {
    command,
    ok: failed === 0 && isWhole,
    passed: count("passed"),
    failed,
    skipped: count("skipped"),
    combinations,
    notes: [...new Set(notes)],
  };
}

function endQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended by itself.
  }
}
