/** The shape of a verb of the command line: a command of the table that is run once, and the printing of its result. */

import type { Commands } from "../client/protocol.ts";
import type { Flag } from "./options.ts";
import { openChangedSession, openNamedSession, toSessionParams } from "./sessions.ts";
import type { OutputStyle } from "./terminal/page.ts";
import type { ResultOf, VerbArguments, VerbContext } from "./verb-context.ts";

export { openChangedSession, openNamedSession, toSessionParams } from "./sessions.ts";
export {
  type AnyResult,
  CommandFailed,
  type EventCallback,
  type ResultOf,
  toSentence,
  type VerbArguments,
  type VerbContext,
} from "./verb-context.ts";

/** A verb; `Found`: the type of its result. */
export interface Verb<Found = unknown> {
  readonly name: string;
  /** Other words that people type for it. */
  readonly aliases?: readonly string[];
  /** Verbs that are words after its name, which is a part of theirs. It runs by itself only where none of them follows. */
  readonly subverbs?: readonly Verb[];
  /** Its effect, as a clause for the help. */
  readonly meaning: string;
  /** The operands that follow it: `<needed>`, `[optional]`; dots at the end allow any number of them. */
  readonly operands: readonly string[];
  /** Flags that each make its operands unnecessary. */
  readonly replacesOperands?: readonly string[];
  /** True if its operand is a command line, which follows `--`. Such a verb takes no options of the server. */
  readonly takesCommand?: boolean;
  /** Options for the start of its server. */
  readonly serverOptions?: readonly string[];
  /** Its own flags besides `--json`. */
  readonly flags?: Readonly<Record<string, Flag>>;
  /** Further sentences for its own help. */
  readonly more?: string;
  /** Returns the words of its command line as they are meant, for a verb that takes those of another. */
  argsOf?(args: readonly string[]): readonly string[];
  /**
   * Advice after Ctrl+C in the middle of a change: how to continue, or that nothing was lost. A verb that only reads
   * has none: it ends at once.
   */
  readonly onInterrupt?: string;
  /** True if its output is live, so that no pager holds it back. */
  readonly isLive?: boolean;
  /** Returns true if its lines are data, such as paths and scripts, so that none is broken on a narrow terminal. */
  isExact?(given: VerbArguments): boolean;
  /** Asks the server for the result to print. Throws CommandFailed, UsageError or Failure. */
  run(asking: VerbContext, given: VerbArguments): Promise<Found>;
  /** Returns the lines that a person reads; a single string is printed as it is. */
  print(result: Found, given: VerbArguments, page: OutputStyle): Iterable<string>;
  /** Returns the exit status; 0 by default. */
  status?(result: Found, given: VerbArguments): number;
}

/** Returns a verb, whose `print` and `status` have the type of what its `run` returns. */
export function defineVerb<Found>(verb: Verb<Found>): Verb<Found> {
  return verb;
}

/** Verbs that the help lists under one heading. */
export interface VerbGroup {
  readonly title: string;
  readonly verbs: readonly Verb[];
}

/** Flags that every verb has. */
const JSON_FLAG: Flag = { meaning: "print the result as JSON" };
export const COMMON_FLAGS: Readonly<Record<string, Flag>> = {
  "--json": JSON_FLAG,
  "--plain": { meaning: "no colours, no drawing, no progress and no pager, as screen readers like it" },
  "--no-pager": { meaning: "print everything at once, however long it is" },
};

/** Exit statuses. */
export const OK = 0;
export const FAILURE = 1;
export const USAGE = 2;
export const DAMAGE = 3;

type VerbParams<Name extends keyof Commands> = (given: VerbArguments) => Commands[Name]["params"];

/** Commands of verbs that change the session: for these, a word of a first message names none. */
const CHANGES: ReadonlySet<keyof Commands> = new Set([
  "migrate_session",
  "repair_session",
  "rollback_migration",
  "set_session_name",
]);

/** Returns the `run` of a verb that opens the session of its first operand, and asks one command about it. */
export function askAbout<Name extends keyof Commands>(method: Name, paramsOf?: VerbParams<Name>) {
  const open = CHANGES.has(method) ? openChangedSession : openNamedSession;
  return async (asking: VerbContext, given: VerbArguments): Promise<ResultOf<Name>> => {
    await open(asking, given.operands[0]);
    return asking.ask(method, paramsOf?.(given));
  };
}

/** Does the same for a command that takes the path of any session, even one that cannot be opened; ids are opened. */
export function askAt<Name extends keyof Commands>(method: Name, paramsOf?: VerbParams<Name>) {
  const open = CHANGES.has(method) ? openChangedSession : openNamedSession;
  return async (asking: VerbContext, given: VerbArguments): Promise<ResultOf<Name>> => {
    const where = toSessionParams(given.operands[0]);
    const params = paramsOf?.(given);
    if ("sessionPath" in where) return asking.ask(method, Object.assign({}, params, where));
    await open(asking, where.sessionId);
    return asking.ask(method, params);
  };
}
