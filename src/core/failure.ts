/** Expected failures: one table, one class (protocol, section 6). The stable identity on the wire is the name. */

/** Error codes of JSON-RPC. */
export const INVALID_REQUEST = -32600;
export const NO_SUCH_METHOD = -32601;
export const INVALID_PARAMS = -32602;
export const INTERNAL = -32603;

interface FailureKind {
  /** JSON-RPC error code. */
  readonly code: number;
  /** True if the same request may succeed later without the host changing it. */
  readonly retryable: boolean;
  /** Its meaning, and the next step. */
  readonly meaning: string;
}

const notFound = (meaning: string) => ({ code: -32002, retryable: false, meaning }) as const;
const refused = (meaning: string) => ({ code: -32803, retryable: false, meaning }) as const;
const refusedForNow = (meaning: string) => ({ code: -32803, retryable: true, meaning }) as const;

export const FAILURES = {
  session_not_found: notFound("No such session. list_sessions shows those that exist."),
  entry_not_found: notFound("No such entry in this session. get_entries and get_tree show the ids that exist."),
  head_not_found: notFound("No such head in this session. list_heads shows those that exist."),
  operation_not_found: notFound(
    "No such operation, or none that is left to take back. list_operations shows those that are recorded.",
  ),
  cursor_expired: notFound("The cursor does not belong to this session's current state. Try again without a cursor."),
  content_modified: {
    code: -32801,
    retryable: false,
    meaning: "The session has changed: its leaf is not the expected one. Read the new state and decide again.",
  },
  cancelled: { code: -32800, retryable: true, meaning: "The request was cancelled and nothing was changed." },
  shutting_down: { code: -32802, retryable: true, meaning: "The server is ending. Start a new one and try again." },
  session_locked: refusedForNow(
    "Another process is writing to this session. Close it there, or open a fork of it here.",
  ),
  no_session: refused("No session is open. Use switch_session or new_session first."),
  read_only: refused("This session is open for reading only. Use clone or fork to continue in a copy."),
  unsupported_version: refused("This version is newer than this server knows. Use a newer server."),
  unsupported_command: refused("This server keeps the history and runs no model or tool. The host does that."),
  agent_failed: refusedForNow(
    "The agent behind this server could not be started, has ended, or does not answer. The next prompt starts it again.",
  ),
  not_a_session: refused(
    "The file is not a session: its first line must have the type session. `format` names the format, if it is known.",
  ),
  not_a_user_message: refused(
    "The entry is not a user message. get_fork_messages lists those; position at accepts any entry.",
  ),
  invalid_boundary: refused(
    "A compaction cannot keep the entries from there on. Choose an entry of the path that begins a turn.",
  ),
  unrelated_sessions: refused(
    "The two sessions have nothing in common: neither is a fork of the other. get_session_family shows the forks.",
  ),
  nothing_to_compact: refused(
    "Nothing that a summary would take in was added since the last compaction. prepare_compaction shows when there is something.",
  ),
  nothing_to_merge: refused(
    "The path to the leaf has all of that branch already. compare_branches shows where two branches part.",
  ),
  invalid_entry: refused("The entry cannot be stored as it is."),
  invalid_id: refused(
    "Ids have at most 128 letters, digits, dots, underscores and hyphens, with a letter or digit at both ends.",
  ),
  ambiguous_id: refused("Several session ids begin with this. Give more of it."),
  path_outside_root: refused(
    "The path lies outside the folders this server may use, or a link in it leads there. Start the server with --allow-path <dir> to allow a folder.",
  ),
  already_exists: refused(
    "Something with that name exists already. Choose another name, or set overwrite where it is offered.",
  ),
  ground_moved: refused(
    "What the operation changed has changed since, so that it cannot be taken back. Nothing was changed.",
  ),
  cannot_undo: refused("The operation cannot be taken back. list_operations says why."),
  storage_full: refusedForNow(
    "The disk is full. Nothing was changed, unless this message names a change; try again when there is room.",
  ),
  storage_failed: refusedForNow(
    "The disk, or the fleet's database, refused. Nothing was changed, unless this message names a change.",
  ),
  outcome_unknown: refused(
    "It is unknown whether the command was done: the process that ran it ended or did not answer, or the disk or the database failed in the middle. Read the state before you repeat it.",
  ),
  unjudged: refused(
    "Something in the session cannot be searched for secrets (an image, binary data, damage), so that nothing was exported. Look at it, then set allowUnjudged.",
  ),
  message_too_large: refused("The message or its reply is over the limit. Send or request less at a time."),
  migration_failed: refused("The session could not be migrated and is as before."),
  corrupt: refused("The stored bytes are damaged. verify_session reports where, repair_session repairs what it can."),
} as const satisfies Record<string, FailureKind>;

export type FailureName = keyof typeof FAILURES;

/** The sentences of a failure, in the order in which a person reads them. */
export interface FailureText {
  /** The event. */
  readonly what: string;
  /** The state of the data after it. */
  readonly state?: string;
  readonly advice?: string;
}

/** Returns the sentences of a failure after which everything is as before. */
export function describeUnchanged(what: string, advice = "Try again."): FailureText {
  return { what, state: "Nothing was changed.", advice };
}

export class Failure extends Error {
  override readonly name: FailureName;
  readonly text: FailureText;
  /** Members of `error.data` besides name and retryable. */
  readonly details: Readonly<Record<string, unknown>>;
  readonly retryable: boolean;
  /** True if another program changed the session's files, so that the failure is no fault of the disk. */
  readonly byOthers: boolean;
  /** Sentences for the person at the client, if there are some in addition to the reply. */
  readonly notice: string | undefined;

  /** Takes its sentences, or what happened with all that follows; by default it is the meaning from the table. */
  constructor(
    name: FailureName,
    said: string | FailureText = FAILURES[name].meaning,
    details: Readonly<Record<string, unknown>> = {},
    options: { cause?: unknown; retryable?: boolean; byOthers?: boolean; notice?: string } = {},
  ) {
    const text = typeof said === "string" ? { what: said } : said;
    const { what, state, advice } = text;
    super([what, state, advice].filter(Boolean).join(" "), "cause" in options ? { cause: options.cause } : undefined);
    this.name = name;
    this.text = text;
    this.details = details;
    this.retryable = options.retryable ?? FAILURES[name].retryable;
    this.byOthers = options.byOthers ?? false;
    this.notice = options.notice;
  }

  get code(): number {
    return FAILURES[this.name].code;
  }
}

/** Bad input: the members of the params that are wrong, and why (JSON-RPC -32602). */
export class BadParams extends Error {
  readonly issues: readonly { path: string; message: string }[];
  constructor(issues: readonly { path: string; message: string }[]) {
    super(`Invalid params: ${issues.map(({ path, message }) => joinClause(path || "params", message)).join("; ")}`);
    this.issues = issues;
  }
}

/** Returns one clause about a param. Messages that begin with a verb continue it; zod makes them, and they have no code. */
export function joinClause(subject: string, message: string): string {
  return `${subject}${/^(?:is|are|must) /.test(message) ? "" : ":"} ${message}`;
}

/** A request that is not valid at this point of the conversation (JSON-RPC -32600). */
export class InvalidRequest extends Error {}

/** The fleet did not answer, and may have entries that this process does not know. */
export class UnaskedFailure extends Failure {}

/** Returns whether an error means that the fleet did not answer. */
export function isAway(error: unknown): boolean {
  return error instanceof Failure && error.name === "storage_failed" && error.details.fleet === true && error.retryable;
}
