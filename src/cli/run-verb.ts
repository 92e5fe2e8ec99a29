/** Runs verbs: commands that are run once and printed. Loaded only when a verb, or the help, is asked for. */

import { Failure, INVALID_PARAMS } from "../core/failure.ts";
import type { World } from "../server/main.ts";
import { AddressError } from "../storage/fleet-module.ts";
import { type AmbiguousSession, describeAmbiguity, formatCandidates } from "./candidates.ts";
import { describeSessionDir } from "./directory-hint.ts";
import { formatUsageLine, formatVerbHelp, getHelpWidth } from "./help.ts";
import { INTERRUPTED, InterruptedError, watchInterrupts } from "./interrupts.ts";
import { type CommandLine, OPTIONS, parseVerbArguments, parseWithCommand, UsageError } from "./options.ts";
import { printLines, printPaged } from "./paging.ts";
import { ProgressLine } from "./progress.ts";
import { makeOutputStyle, type OutputStyle } from "./terminal/page.ts";
import type { Pager } from "./terminal/pager.ts";
import type { Launch } from "./terminal/programs.ts";
import type { Screen } from "./terminal/screen.ts";
import { escapeUnpainted, show, wrapLine } from "./terminal/text.ts";
import { COMMON_FLAGS, CommandFailed, FAILURE, OK, USAGE, type Verb } from "./verb.ts";
import { toCommandFailed, type VerbContext } from "./verb-context.ts";
import { Wire } from "./wire.ts";
import { rewordParamIssues } from "./wording.ts";

/** The world of a verb: that of a server, with a terminal in place of the streams. */
export type VerbWorld = Omit<World, "input" | "output"> & {
  /** Prints on stdout. Returns false if the reader has gone. */
  readonly print: (text: string) => Promise<boolean>;
  readonly terminal: Terminal;
};

/** The terminal of the person who runs the verb, as far as there is one. */
export interface Terminal {
  /** Columns of the terminal at stdout; undefined if it is no terminal. */
  readonly columns: number | undefined;
  /** Rows of the terminal at stdout. */
  readonly rows?: number;
  /** Columns of the terminal at stderr; undefined if it is no terminal. */
  readonly errorColumns: number | undefined;
  /** Writes to stderr. */
  write(text: string): void;
  /** Takes over the terminal at stdin and stderr, or the one that we were started from; undefined without one. */
  openScreen(): Screen | undefined;
  /** Asks a question and returns the line that is typed; undefined when stdin is not a terminal. */
  answer(question: string): Promise<string | undefined>;
  /** Returns all that is on stdin. */
  readInput(): Promise<string>;
  /** Calls back for each interrupt from the keyboard, which does not end the process then. Returns what undoes it. */
  onInterrupt(act: () => void): () => void;
  /** Hands the terminal to a program and returns its exit status. Rejects with an errno error. */
  start(launch: Launch): Promise<number>;
  /** Starts the person's pager; returns undefined where none is wanted. */
  startPager?(): Pager | undefined;
}

/** Options for the wire between a verb and its server. */
const WIRE_OPTIONS = ["--events=none", "--framing=lines", "--dialect=jsonrpc"];

/** A running verb: its arguments, and the destination of its output. */
interface Running {
  readonly verb: Verb;
  readonly world: VerbWorld;
  readonly given: CommandLine;
  readonly page: OutputStyle;
}

export async function runVerb(verb: Verb, words: readonly string[], world: VerbWorld): Promise<number> {
  const [subverb, at] = subverbIn(verb, words);
  if (subverb) return runVerb(subverb, words.toSpliced(at, 1), world);
  const args = verb.argsOf?.(words) ?? words;
  let given: CommandLine;
  try {
    const own = { verb: verb.name, flags: { ...COMMON_FLAGS, ...verb.flags } };
    given = verb.takesCommand
      ? parseWithCommand(args, own)
      : parseVerbArguments([...WIRE_OPTIONS, ...(verb.serverOptions ?? [])], args, own);
    if (given.settings.action !== "help") requireOperands(verb, given);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    world.printError(show`${error.message}`);
    return USAGE;
  }
  const isPlain = given.flags.has("--plain");
  const page = makeOutputStyle(world.variables, world.terminal.columns, world.env.now(), isPlain);
  const running = { verb, world, given, page };
  if (given.settings.action !== "help") return run(running);
  const help = formatVerbHelp(verb, getHelpWidth(world.terminal.columns));
  await printAll(running, help.trimEnd().split("\n"));
  return OK;
}

/** Returns the verb that the first operand makes of a verb that has others, and the place of that word. */
function subverbIn({ name, subverbs = [] }: Verb, words: readonly string[]): [Verb | undefined, number] {
  const flags = subverbs.flatMap((one) => Object.entries(one.flags ?? {}));
  const valued = new Set([
    ...OPTIONS.flatMap(({ names, value }) => (value === undefined ? [] : names)),
    ...flags.flatMap(([flag, { value }]) => (value === undefined ? [] : [flag])),
  ]);
  const at = words.findIndex((word, n) => !word.startsWith("-") && !valued.has(words[n - 1]));
  return [subverbs.find((one) => one.name === `${name} ${words[at]}`), at];
}

async function run(running: Running): Promise<number> {
  const { verb, world, given, page } = running;
  const { terminal, variables } = world;
  const line = progressLine(running);
  let wire: Wire | undefined;
  // A verb that asks nothing starts no server.
  const wireOnce = (): Wire => {
    wire ??= new Wire(
      given.settings,
      { ...world, command: verb.name },
      line && ((done, total, method) => line.report(done, total, method)),
    );
    return wire;
  };
  const say = (sentence: string): void => {
    line?.clear();
    world.printError(show`${sentence}`);
  };
  const interrupts = watchInterrupts({ onInterrupt: terminal.onInterrupt, say, wire: () => wire }, verb.onInterrupt);
  if (verb.onInterrupt !== undefined) interrupts.listen();
  if (line) line.onShow = interrupts.listen;
  const asking: VerbContext = {
    async ask(method, params) {
      line?.begin();
      try {
        return await wireOnce().ask(method, params);
      } finally {
        line?.clear();
      }
    },
    get service() {
      return wireOnce().service;
    },
    progress: (done, total, what = "") => line?.report(done, total, what),
    variables,
    cwd: world.cwd,
    isTerminal: terminal.columns !== undefined,
    page: (columns) =>
      columns === undefined ? page : makeOutputStyle(variables, columns, world.env.now(), page.isPlain),
    openScreen() {
      if (variables.TERM === "dumb") return undefined;
      line?.clear();
      return terminal.openScreen();
    },
    async confirm(question) {
      line?.clear();
      const answer = await terminal.answer(`${question} [y/N] `);
      return answer === undefined ? undefined : /^y(es)?$/i.test(answer.trim());
    },
    print: (text) => world.print(terminal.columns === undefined ? text : escapeUnpainted(text)),
    say(sentence) {
      line?.clear();
      terminal.write(show`${sentence}\n`);
    },
    readInput: () => terminal.readInput(),
    listen(callback) {
      wireOnce().callback = callback;
    },
    onInterrupt(act) {
      interrupts.stop();
      // A second one ends the process, whatever keeps the verb.
      const undo = terminal.onInterrupt(() => {
        undo();
        act();
      });
      return undo;
    },
    get isInterrupted() {
      return interrupts.isAsked;
    },
    disk: world.disk,
    async leave() {
      const left = wire;
      wire = undefined;
      await left?.end();
    },
    start(launch) {
      line?.clear();
      return terminal.start(launch);
    },
  };
  let isInterrupted = false;
  try {
    const result = await Promise.race([verb.run(asking, given), interrupts.ended]);
    line?.clear();
    interrupts.stop();
    const last = wire?.last;
    const text = last !== undefined && last.result === result ? last.text : JSON.stringify(result);
    const asJson = given.flags.has("--json");
    if (asJson && result !== undefined) await printJson(world, text);
    else if (!asJson) await printAll(running, verb.print(result, given, page));
    return verb.status?.(result, given) ?? OK;
  } catch (error) {
    line?.clear();
    isInterrupted = error instanceof InterruptedError;
    if (isInterrupted) return INTERRUPTED;
    const status = await printError(error, running);
    return interrupts.isAsked && isCancelled(error) ? INTERRUPTED : status;
  } finally {
    interrupts.stop();
    const { sessionDir } = given.settings;
    const hint = wire && sessionDir !== undefined ? describeSessionDir(world, sessionDir) : undefined;
    if (hint !== undefined) terminal.write(`${hint}\n`);
    // Unfinished work ends with the process, as after a crash.
    if (!isInterrupted) await wire?.end();
  }
}

/** Members of an error that a person sees as sentences and lines. */
interface ShownData extends AmbiguousSession {
  readonly name?: string;
  readonly issues?: Parameters<typeof rewordParamIssues>[0];
}

function isCancelled(error: unknown): boolean {
  return error instanceof CommandFailed && error.error.data?.name === "cancelled";
}

/** Prints an error and returns its exit status. Rethrows bugs. */
async function printError(error: unknown, { verb, world, given, page }: Running): Promise<number> {
  if (error instanceof UsageError || error instanceof AddressError) {
    world.printError(show`${error.message}`);
    return USAGE;
  }
  if (!(error instanceof CommandFailed || error instanceof Failure)) throw error;
  // Failures of a verb without the server read like the server's answers: in verbs, and with --json in commands.
  const { message, error: shape } = error instanceof Failure ? toCommandFailed(error) : error;
  // The command line was wrong.
  const status = shape.code === INVALID_PARAMS ? USAGE : FAILURE;
  if (given.flags.has("--json")) {
    await printJson(world, JSON.stringify({ error: shape }));
    return status;
  }
  const data = (shape.data ?? {}) as ShownData;
  const { issues, candidates = [], matches = 0 } = data;
  const flags = Object.keys(verb.flags ?? {});
  const said = data.name === "ambiguous_id" && candidates.length > 0 ? describeAmbiguity(data) : message;
  world.printError(show`${issues ? rewordParamIssues(issues, flags, verb.operands) : said}`);
  const errorPage = makeOutputStyle(world.variables, world.terminal.errorColumns, page.now, page.isPlain);
  for (const one of formatCandidates(candidates, matches, errorPage)) world.terminal.write(`${one}\n`);
  return status;
}

/** Prints JSON. On a terminal, characters that would act on it are printed as their JSON escapes. */
async function printJson({ print, terminal }: VerbWorld, text: string): Promise<void> {
  await print(`${terminal.columns === undefined ? text : show`${text}`}\n`);
}

/** Prints lines, through the pager where there is a terminal and nothing speaks against it. */
async function printAll({ verb, world, given, page }: Running, printed: Iterable<string>): Promise<void> {
  const { print, terminal } = world;
  // Screen readers and programs get the lines in full.
  const hasWidth = terminal.columns !== undefined && !page.isPlain;
  const isFitted = hasWidth && typeof printed !== "string" && !verb.isExact?.(given);
  const fitted = isFitted ? fittedLines(printed, page.width) : printed;
  const lines = terminal.columns === undefined ? fitted : escapedLines(fitted);
  const { columns, rows = 0 } = terminal;
  const isPaged = columns !== undefined && !page.isPlain && !given.flags.has("--no-pager") && !verb.isLive;
  if (!isPaged) return printLines(lines, print);
  return printPaged(lines, { print, rows, columns, start: () => terminal.startPager?.() });
}

/** Returns what is printed on a terminal; a single text stays one. */
function escapedLines(lines: Iterable<string>): Iterable<string> {
  if (typeof lines === "string") return escapeUnpainted(lines);
  return (function* () {
    for (const line of lines) yield escapeUnpainted(line);
  })();
}

function* fittedLines(lines: Iterable<string>, width: number): Generator<string> {
  for (const line of lines) yield* wrapLine(line, width);
}

/** Returns a line on stderr that shows the progress of long work; undefined if no person would see it. */
function progressLine({ world: { terminal, env, variables }, page }: Running): ProgressLine | undefined {
  const { errorColumns } = terminal;
  if (errorColumns === undefined || page.isPlain || variables.TERM === "dumb") return undefined;
  return new ProgressLine({ columns: errorColumns, write: terminal.write, now: () => env.now() });
}

/** Throws UsageError unless a verb takes so many operands. */
function requireOperands(verb: Verb, { operands, flags, took }: CommandLine): void {
  if (verb.takesCommand) return;
  const isGivenElse = verb.replacesOperands?.some((flag) => flags.has(flag)) ?? false;
  const needed = verb.operands.filter((operand) => operand.startsWith("<") && !isGivenElse);
  const isOpen = verb.operands.some((operand) => operand.includes("..."));
  const missing = operands.length < needed.length ? needed[operands.length] : undefined;
  if (missing === undefined && (operands.length <= verb.operands.length || isOpen)) return;
  const wrong =
    missing === undefined
      ? `${operands[verb.operands.length]} is one too many for ${verb.name}.`
      : `${verb.name} needs ${missing}.`;
  const words = operands.slice(verb.operands.length).join(" ");
  const by =
    missing !== undefined
      ? took.map((option) => ` ${option} took the word after it; put it last, or write ${option}=.`)
      : verb.flags?.["--query"]
        ? [` --query "${words}" chooses by words.`]
        : [];
  throw new UsageError(`${wrong}${by.join("")} Usage: ${formatUsageLine(verb)}. See ${verb.name} --help.`);
}
