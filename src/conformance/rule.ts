/** The shape of a rule: its sentence, its place in the protocol, and its check. */

import type { Combination } from "./combination.ts";
import type { Conversation, ProtocolViolations } from "./conversation.ts";

/** Commands that a server need not have; rules that use one which the server does not list are skipped. */
export const OPTIONAL_COMMANDS: ReadonlySet<string> = new Set(
  "archive_session bash branch clone close_session compact compact_append delete_session edit_context exit export_session fork get_context get_session_family import_session list_open_sessions list_sessions open_session prepare_branch_summary prepare_compaction prompt repair_session restore_session rpc.discover search_sessions set_label set_model set_session_name set_thinking_level shutdown unarchive_session verify_session".split(
    " ",
  ),
);

/** Bytes of the largest reply that the modest host takes. */
export const MODEST_REPLY = 4096;

export interface Rule {
  readonly name: string;
  /** The sentence that a server keeps. */
  readonly title: string;
  /** The heading in protocol.md below which it stands. */
  readonly source: string;
  /** Returns whether it says anything about this combination; every one by default. */
  applies?(combination: Combination): boolean;
  /** Checks it. Throws RuleBroken, or NotApplicable. */
  run(context: RuleContext): Promise<void>;
}

/** The rules about one thing. */
export interface Theme {
  readonly name: string;
  readonly rules: readonly Rule[];
}

/** The servers and the folder that a rule may use while it is checked. */
export interface RuleContext {
  readonly combination: Combination;
  /** A folder for files of its own. */
  readonly folder: string;
  /** Returns a conversation that other rules use too, with whatever session is current. */
  plain(): Promise<Conversation>;
  /** Returns another one, which began with `initialize` and all hooks. */
  hooked(): Promise<Conversation>;
  /** Starts a server for this rule alone. `session`: the path that stands for `{session}` in the command. */
  start(session?: string): Conversation;
  /**
   * Returns a third one, whose host asked for little: replies of {@link MODEST_REPLY} bytes at most, no event but
   * session_append, no hook but session_before_fork.
   */
  modest(): Promise<Conversation>;
  /** Makes something that several rules look at, with the first of them. */
  once<T>(name: string, make: () => Promise<T>): Promise<T>;
  /** True if the command takes the path of a session. */
  readonly takesSession: boolean;
  /** Faults that all servers of this combination have shown so far. */
  readonly conducts: readonly ProtocolViolations[];
}
