/** The shape of a verb of the command line: a command of the table that is run once, and how its result is printed. */

import type { Service } from "../server/main.ts";
import { UsageError } from "./options.ts";
import type { Page } from "./terminal/page.ts";
import type { Screen } from "./terminal/screen.ts";

// biome-ignore lint/suspicious/noExplicitAny: results come from the wire, as any client has them
export type Result = any;

export interface Flag {
  /** What its value is called in the help; a flag without one takes no value. */
  readonly value?: string;
  readonly meaning: string;
  /** The values there are, where they can be listed. */
  readonly oneOf?: readonly string[];
}

export interface Given {
  readonly operands: readonly string[];
  /** The verb's own flags, with their values, or "" for those that take none. */
  readonly flags: ReadonlyMap<string, string>;
}

/** What a verb may use while it runs. */
export interface Asking {
  /** The result of a command. Throws {@link Refusal}. */
  ask(method: string, params?: Readonly<Record<string, unknown>>): Promise<Result>;
  readonly service: Service;
  /** The working directory; paths that a person gives refer to it. */
  readonly cwd: string;
  /** Whether stdout is a terminal. */
  readonly isTerminal: boolean;
  /** How to write on a terminal so many columns wide. */
  page(columns: number): Page;
  /** The terminal as a whole; undefined where there is none. */
  takeScreen(): Screen | undefined;
  /** A question with the answers yes and no; undefined where nobody can be asked. */
  confirm(question: string): Promise<boolean | undefined>;
}

export interface Verb {
  readonly name: string;
  /** What it does, as a clause for the help. */
  readonly meaning: string;
  /** What follows it: `<needed>`, `[optional]`; with dots at the end, any number of them. */
  readonly operands: readonly string[];
  /** Its own flags beside `--json`. */
  readonly flags: Readonly<Record<string, Flag>>;
  /** Sentences for its own help. */
  readonly more?: string;
  /** Asks for what it prints. Throws Refusal, UsageError or Failure. */
  run(asking: Asking, given: Given): Promise<Result>;
  /** The lines a person reads; a string by itself is printed as it is. */
  print(result: Result, given: Given, page: Page): Iterable<string>;
  /** Exit status; 0 by default. */
  status?(result: Result, given: Given): number;
}

/** Exit statuses. */
export const OK = 0;
export const FAILURE = 1;
export const USAGE = 2;
export const DAMAGE = 3;

/** A command answered with an error. */
export class Refusal extends Error {
  readonly error: Result;
  constructor(error: Result) {
    super(error.message);
    this.error = error;
  }
}

/** What looks like a path is one; anything else is an id, or the beginning of one. */
export function named(operand: string): { sessionPath: string } | { sessionId: string } {
  return /[/\\]|\.(jsonl|v2|sqlite)$/.test(operand) ? { sessionPath: operand } : { sessionId: operand };
}

/** Opens the session that an operand names; what is asked then is about it. */
export function open({ ask }: Asking, operand: string): Promise<Result> {
  return ask("switch_session", named(operand));
}

/**
 * The same for a command that takes the path of any session, also of one that cannot be opened; answers the params that
 * name it.
 */
export async function point(asking: Asking, operand: string): Promise<{ sessionPath?: string }> {
  const where = named(operand);
  if ("sessionPath" in where || operand.endsWith(".v2")) return { sessionPath: operand };
  await open(asking, operand);
  return {};
}

/** The whole number above 0 that a flag has, if it is given. Throws UsageError. */
export function numberOf({ flags }: Given, name: string): number | undefined {
  const value = flags.get(name);
  if (value === undefined) return undefined;
  const number = /^\d{1,15}$/.test(value) ? Number(value) : 0;
  if (number === 0) throw new UsageError(`${name} takes a whole number above 0; it got ${value}.`);
  return number;
}
