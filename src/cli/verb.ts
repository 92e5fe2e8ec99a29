/** The shape of a verb of the command line: a command of the table that is run once, and the printing of its result. */

import type { Service } from "../server/main.ts";
import type { Disk } from "../storage/fs/disk.ts";
import type { Variables } from "../storage/fs/paths.ts";
import type { CommandLine, Flag } from "./options.ts";
import type { OutputStyle } from "./terminal/page.ts";
import type { Launch } from "./terminal/programs.ts";
import type { Screen } from "./terminal/screen.ts";
import { inVerbs } from "./wording.ts";

// biome-ignore lint/suspicious/noExplicitAny: results come from the wire, as any client has them
export type Result = any;

/** The operands and options of a verb's command line. */
export type Given = Omit<CommandLine, "settings">;

/** A callback for events, with the text that came. Nothing more is read until it resolves. */
export type EventCallback = (name: string, params: Result, text: string) => Promise<void>;

/** The server and the terminal as a verb sees them while it runs. */
export interface Asking {
  /** Sends a command and returns its result. Throws {@link CommandFailed}. */
  ask(method: string, params?: Readonly<Record<string, unknown>>): Promise<Result>;
  readonly service: Service;
  /** Shows how far the verb is, where somebody would see it. */
  progress(done: number, total: number): void;
  readonly variables: Variables;
  /** The working directory; paths that a person gives refer to it. */
  readonly cwd: string;
  /** Whether stdout is a terminal. */
  readonly isTerminal: boolean;
  /** Returns the page of a terminal with so many columns; without a number, that of stdout. */
  page(columns?: number): OutputStyle;
  /** Takes over the terminal; returns undefined where there is none. */
  openScreen(): Screen | undefined;
  /** Asks a question with the answers yes and no; returns undefined where nobody can be asked. */
  confirm(question: string): Promise<boolean | undefined>;
  /** Prints on stdout at once, for verbs whose lines come while things happen. Returns false when nobody reads. */
  print(text: string): Promise<boolean>;
  /** Tells the person something besides what is printed. */
  say(sentence: string): void;
  /** Returns all that is on stdin. */
  readInput(): Promise<string>;
  /** Calls back for each event that the verb's `serverOptions` ask for. */
  listen(told: EventCallback): void;
  /** Calls back when the person wants the verb to end; without this, the process ends. Returns what undoes it. */
  onInterrupt(act: () => void): () => void;
  /** The files of this machine, for what no command tells. */
  readonly disk: Disk;
  /** Ends the server, which closes its sessions; the next command starts another one. */
  leave(): Promise<void>;
  /** Hands the terminal to a program and returns its exit status. */
  start(launch: Launch): Promise<number>;
}

export interface Verb {
  readonly name: string;
  /** Its effect, as a clause for the help. */
  readonly meaning: string;
  /** The operands that follow it: `<needed>`, `[optional]`; dots at the end allow any number of them. */
  readonly operands: readonly string[];
  /** Whether its operand is a command line, which follows `--`. Such a verb takes no options of the server. */
  readonly takesCommand?: boolean;
  /** Options with which its server is started. */
  readonly serverOptions?: readonly string[];
  /** Its own flags besides `--json`. */
  readonly flags?: Readonly<Record<string, Flag>>;
  /** Further sentences for its own help. */
  readonly more?: string;
  /** Asks the server for the result to print. Throws CommandFailed, UsageError or Failure. */
  run(asking: Asking, given: Given): Promise<Result>;
  /** Returns the lines that a person reads; a single string is printed as it is. */
  print(result: Result, given: Given, page: OutputStyle): Iterable<string>;
  /** Returns the exit status; 0 by default. */
  status?(result: Result, given: Given): number;
}

/** The flag that every verb has. */
export const JSON_FLAG: Flag = { meaning: "print the result as the protocol's command returns it" };

/** Exit statuses. */
export const OK = 0;
export const FAILURE = 1;
export const USAGE = 2;
export const DAMAGE = 3;

/** The error that a command was answered with; its message is in the words of the command line. */
export class CommandFailed extends Error {
  readonly error: Result;
  constructor(error: Result) {
    super(inVerbs(error.message));
    this.error = error;
  }
}

/** Treats operands with a separator or a session suffix as paths, others as ids or the beginnings of ids. */
export function named(operand: string): { sessionPath: string } | { sessionId: string } {
  return /[/\\]|\.(jsonl|v2|sqlite)$/.test(operand) ? { sessionPath: operand } : { sessionId: operand };
}

type VerbParams = (given: Given) => Readonly<Record<string, unknown>>;

/** Returns the `run` of a verb that opens the session of its first operand, and asks one command about it. */
export function askAbout(method: string, paramsOf: VerbParams = () => ({})): Verb["run"] {
  return async (asking, given) => {
    await open(asking, given.operands[0]);
    return asking.ask(method, paramsOf(given));
  };
}

/** Does the same for a command that takes the path of any session, even one that cannot be opened; ids are opened. */
export function askAt(method: string, paramsOf: VerbParams = () => ({})): Verb["run"] {
  return async (asking, given) => {
    const where = named(given.operands[0]);
    const params = paramsOf(given);
    if ("sessionPath" in where) return asking.ask(method, { ...where, ...params });
    await open(asking, where.sessionId);
    return asking.ask(method, params);
  };
}

/** Opens the session that an operand names, and makes it the current one. */
export function open({ ask }: Asking, operand: string): Promise<Result> {
  return ask("switch_session", named(operand));
}
