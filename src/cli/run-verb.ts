/** Runs verbs: commands that are run once and printed. Loaded only when a verb, or the help, is asked for. */

import { Failure } from "../core/failure.ts";
import type { World } from "../server/main.ts";
import { type CommandLine, parseCommandLine, parseWithCommand, UsageError } from "./options.ts";
import { verbs } from "./table.ts";
import { type OutputStyle, pageFor } from "./terminal/page.ts";
import type { Launch } from "./terminal/programs.ts";
import type { Screen } from "./terminal/screen.ts";
import { inert, wrap } from "./terminal/text.ts";
import { CommandFailed, FAILURE, JSON_FLAG, OK, USAGE, type Verb } from "./verb.ts";
import { type ProgressCallback, Wire } from "./wire.ts";

/** The world of a verb: that of a server, with a terminal in place of the streams. */
export type VerbWorld = Omit<World, "input" | "output"> & {
  /** Prints on stdout. Returns false when nobody reads any more. */
  readonly print: (text: string) => Promise<boolean>;
  readonly terminal: Terminal;
};

/** The terminal of the person who runs the verb, as far as there is one. */
export interface Terminal {
  /** Columns of the terminal at stdout; undefined when there is none. */
  readonly columns: number | undefined;
  /** Columns of the terminal at stderr; undefined when there is none. */
  readonly errorColumns: number | undefined;
  /** Writes to stderr. */
  write(text: string): void;
  /** Takes over the terminal at stdin and stderr, or the one that we were started from; undefined without one. */
  openScreen(): Screen | undefined;
  /** Asks a question and returns the line that is typed; undefined when stdin is not a terminal. */
  answer(question: string): Promise<string | undefined>;
  /** Returns all that is on stdin. */
  readInput(): Promise<string>;
  /** Calls back for an interrupt from the keyboard, which does not end the process then. Returns what undoes it. */
  onInterrupt(act: () => void): () => void;
  /** Hands the terminal to a program and returns its exit status. Rejects with an errno error. */
  start(launch: Launch): Promise<number>;
}

/** Options for the wire between a verb and its server. */
const WIRE_OPTIONS = ["--events=none", "--framing=lines", "--dialect=jsonrpc"];

/** JSON-RPC error code for invalid params, which means that the command line was wrong. */
const INVALID_PARAMS = -32602;
/** Columns of the help. */
const HELP_WIDTH = 80;
/** Characters of the pieces in which lines are printed, approximately. */
const PIECE = 1 << 16;

export function findVerb(name: string): Verb | undefined {
  return verbs.find((verb) => verb.name === name);
}

/** Returns the verbs as the help lists them. */
export function verbLines(): string[] {
  return verbs.map((verb) => hanging(`  ${`${verb.name} ${verb.operands.join(" ")}`.padEnd(27)} `, verb.meaning));
}

export async function runVerb(verb: Verb, args: readonly string[], world: VerbWorld): Promise<number> {
  let given: CommandLine;
  try {
    const own = { "--json": JSON_FLAG, ...verb.flags };
    given = verb.takesCommand
      ? parseWithCommand(args, own)
      : parseCommandLine([...WIRE_OPTIONS, ...(verb.serverOptions ?? []), ...args], own);
    if (given.settings.action === "help") {
      await world.print(helpOf(verb));
      return OK;
    }
    requireOperands(verb, given.operands.length);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    world.printError(inert(error.message));
    return USAGE;
  }
  const asJson = given.flags.has("--json");
  const bar = progressBar(world);
  const page = (columns = world.terminal.columns): OutputStyle => pageFor(world.variables, columns, world.env.now());
  let wire: Wire | undefined;
  // A verb that asks nothing starts no server.
  const wireOnce = (): Wire => {
    wire ??= new Wire(given.settings, world, bar?.report);
    return wire;
  };
  try {
    const result = await verb.run(
      {
        ask: (method, params) => wireOnce().ask(method, params),
        get service() {
          return wireOnce().service;
        },
        progress: (done, total) => bar?.report(done, total),
        variables: world.variables,
        cwd: world.cwd,
        isTerminal: world.terminal.columns !== undefined,
        page,
        openScreen() {
          if (world.variables.TERM === "dumb") return undefined;
          bar?.stop();
          return world.terminal.openScreen();
        },
        async confirm(question) {
          const answer = await world.terminal.answer(`${question} [y/N] `);
          return answer === undefined ? undefined : /^y(es)?$/i.test(answer.trim());
        },
        print: (text) => world.print(text),
        say: (sentence) => world.terminal.write(`${inert(sentence)}\n`),
        readInput: () => world.terminal.readInput(),
        listen(told) {
          wireOnce().told = told;
        },
        onInterrupt: (act) => world.terminal.onInterrupt(act),
        disk: world.disk,
        async leave() {
          const left = wire;
          wire = undefined;
          await left?.end();
        },
        start(launch) {
          bar?.stop();
          return world.terminal.start(launch);
        },
      },
      given,
    );
    bar?.stop();
    const last = wire?.last;
    const text = last !== undefined && last.result === result ? last.text : JSON.stringify(result);
    if (asJson && result !== undefined) await printJson(world, text);
    else if (!asJson) await printLines(world, verb.print(result, given, page()));
    return verb.status?.(result, given) ?? OK;
  } catch (error) {
    bar?.stop();
    return printError(error, asJson, world);
  } finally {
    await wire?.end();
  }
}

/** Prints what went wrong and returns the exit status for it. Throws what is a bug. */
async function printError(error: unknown, asJson: boolean, world: VerbWorld): Promise<number> {
  if (error instanceof UsageError) {
    world.printError(inert(error.message));
    return USAGE;
  }
  if (!(error instanceof CommandFailed || error instanceof Failure)) throw error;
  const { message } = error;
  const shape =
    error instanceof CommandFailed
      ? error.error
      : { code: error.code, message, data: { name: error.name, retryable: error.retryable, ...error.details } };
  if (asJson) await printJson(world, JSON.stringify({ error: shape }));
  else world.printError(inert(message));
  return shape.code === INVALID_PARAMS ? USAGE : FAILURE;
}

/** Prints JSON. On a terminal, characters that would act on it are printed as their JSON escapes. */
async function printJson({ print, terminal }: VerbWorld, text: string): Promise<void> {
  await print(`${terminal.columns === undefined ? text : inert(text)}\n`);
}

async function printLines(world: VerbWorld, lines: Iterable<string>): Promise<void> {
  if (typeof lines === "string") {
    await world.print(lines);
    return;
  }
  let piece = "";
  for (const line of lines) {
    piece += `${line}\n`;
    if (piece.length < PIECE) continue;
    if (!(await world.print(piece))) return;
    piece = "";
  }
  if (piece !== "") await world.print(piece);
}

/** Returns a line on stderr that shows the progress of long work; undefined where nobody would see it. */
function progressBar({ terminal, variables }: VerbWorld): { report: ProgressCallback; stop(): void } | undefined {
  const { errorColumns } = terminal;
  if (errorColumns === undefined || variables.TERM === "dumb") return undefined;
  let shown = "";
  let isStopped = false;
  const show = (text: string): void => {
    if (text !== shown) terminal.write(`\r${text}\u001b[K`);
    shown = text;
  };
  return {
    report(done, total) {
      if (isStopped) return;
      const width = Math.max(0, Math.min(40, (errorColumns || 80) - 30));
      const full = Math.round((width * done) / total);
      show(`[${"#".repeat(full)}${".".repeat(width - full)}] ${done} of ${total}`);
    },
    stop() {
      isStopped = true;
      show("");
    },
  };
}

/** Throws UsageError unless a verb takes so many operands. */
function requireOperands(verb: Verb, given: number): void {
  if (verb.takesCommand) return;
  const least = verb.operands.filter((operand) => operand.startsWith("<")).length;
  const isOpen = verb.operands.some((operand) => operand.includes("..."));
  if (given < least || (given > verb.operands.length && !isOpen))
    throw new UsageError(`Usage: ${usageOf(verb)}. See ${verb.name} --help.`);
}

function usageOf({ name, operands, takesCommand }: Verb): string {
  const words = takesCommand ? ["[options]", ...operands] : [...operands, "[options]"];
  return ["pi-session-server", name, ...words].join(" ");
}

function helpOf(verb: Verb): string {
  const flags = Object.entries({ "--json": JSON_FLAG, ...verb.flags }).map(([name, { value, meaning }]) => [
    value === undefined ? name : `${name} <${value}>`,
    meaning,
  ]);
  const width = Math.max(...flags.map(([left]) => left.length));
  const { meaning } = verb;
  const more = verb.more?.split("\n").flatMap((line) => wrap(line, HELP_WIDTH)) ?? [];
  return `${usageOf(verb)}

${meaning[0].toUpperCase()}${meaning.slice(1)}.${more.map((line) => `\n${line}`).join("")}

${flags.map(([left, meaning]) => hanging(`  ${left.padEnd(width)}  `, meaning)).join("\n")}
${verb.takesCommand ? "" : FOLDERS_TOO}`;
}

const FOLDERS_TOO = `
The server's options for folders and paths (--session-dir) work here too;
pi-session-server --help lists them.
`;

/** Returns a text after a head, with further lines below its first. */
function hanging(head: string, text: string): string {
  return wrap(text, HELP_WIDTH - head.length)
    .map((line, i) => `${i === 0 ? head : " ".repeat(head.length)}${line}`)
    .join("\n");
}
