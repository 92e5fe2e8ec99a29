/** Expected failures: one table, one class (protocol, section 6). The stable identity on the wire is the name. */

interface FailureKind {
  /** JSON-RPC error code. */
  readonly code: number;
  /** Whether the same request may succeed later without the host changing it. */
  readonly retryable: boolean;
  /** Its meaning, and what to do next. */
  readonly meaning: string;
}

export const FAILURES = {
  session_not_found: {
    code: -32002,
    retryable: false,
    meaning: "No such session. list_sessions shows those that exist.",
  },
  entry_not_found: {
    code: -32002,
    retryable: false,
    meaning: "No such entry in this session. get_entries and get_tree show the ids that exist.",
  },
  cursor_expired: {
    code: -32002,
    retryable: false,
    meaning: "The cursor does not belong to this session's current state. Try again without a cursor.",
  },
  content_modified: {
    code: -32801,
    retryable: false,
    meaning: "The session has changed: its leaf is not the expected one. Read the new state and decide again.",
  },
  cancelled: { code: -32800, retryable: true, meaning: "The request was cancelled and nothing was changed." },
  shutting_down: { code: -32802, retryable: true, meaning: "The server is ending. Start a new one and try again." },
  session_locked: {
    code: -32803,
    retryable: true,
    meaning: "Another process is writing to this session. Close it there, or open a fork of it here.",
  },
  no_session: {
    code: -32803,
    retryable: false,
    meaning: "No session is open. Use switch_session or new_session first.",
  },
  read_only: {
    code: -32803,
    retryable: false,
    meaning: "This session is open for reading only. Use clone or fork to continue in a copy.",
  },
  unsupported_version: {
    code: -32803,
    retryable: false,
    meaning: "This version is newer than this server knows. Use a newer server.",
  },
  unsupported_command: {
    code: -32803,
    retryable: false,
    meaning: "This server keeps the history and runs no model or tool. The host does that.",
  },
  not_a_session: {
    code: -32803,
    retryable: false,
    meaning: "The file is not a session: its first line must have the type session.",
  },
  not_a_user_message: {
    code: -32803,
    retryable: false,
    meaning: "The entry is not a user message. get_fork_messages lists those; position at accepts any entry.",
  },
  invalid_boundary: {
    code: -32803,
    retryable: false,
    meaning: "A compaction cannot keep from there. Choose an entry of the path that begins a turn.",
  },
  invalid_entry: { code: -32803, retryable: false, meaning: "The entry cannot be stored as it is." },
  invalid_id: {
    code: -32803,
    retryable: false,
    meaning: "Ids begin and end with a letter or digit and hold letters, digits, dots, underscores and hyphens.",
  },
  ambiguous_id: { code: -32803, retryable: false, meaning: "Several session ids begin with this. Give more of it." },
  path_outside_root: {
    code: -32803,
    retryable: false,
    meaning:
      "The path lies outside the folders this server may use, or a link in it leads there. Start the server with --allow-path <dir> to allow a folder.",
  },
  already_exists: {
    code: -32803,
    retryable: false,
    meaning: "Something with that name exists already. Choose another name, or set overwrite where it is offered.",
  },
  storage_full: {
    code: -32803,
    retryable: true,
    meaning: "The disk is full. Nothing was changed; try again when there is room.",
  },
  storage_failed: { code: -32803, retryable: true, meaning: "The disk refused. Nothing was changed." },
  message_too_large: {
    code: -32803,
    retryable: false,
    meaning: "The message is over the limit. Send or request less at a time.",
  },
  migration_failed: { code: -32803, retryable: false, meaning: "The session could not be migrated and is as before." },
  corrupt: {
    code: -32803,
    retryable: false,
    meaning: "The stored bytes are damaged. verify_session reports where, repair_session repairs what it can.",
  },
} as const satisfies Record<string, FailureKind>;

export type FailureName = keyof typeof FAILURES;

export class Failure extends Error {
  override readonly name: FailureName;
  /** Members of `error.data` besides name and retryable. */
  readonly details: Readonly<Record<string, unknown>>;
  readonly retryable: boolean;
  /** Whether other programs changed the session's files meanwhile, so that it is no fault of the disk. */
  readonly byOthers: boolean;

  /** Takes a sentence that says what to do next; by default it is the meaning from the table. */
  constructor(
    name: FailureName,
    sentence?: string,
    details: Readonly<Record<string, unknown>> = {},
    options: { cause?: unknown; retryable?: boolean; byOthers?: boolean } = {},
  ) {
    super(sentence ?? FAILURES[name].meaning, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = name;
    this.details = details;
    this.retryable = options.retryable ?? FAILURES[name].retryable;
    this.byOthers = options.byOthers ?? false;
  }

  get code(): number {
    return FAILURES[this.name].code;
  }
}

/** Bad input: the members of the params that are wrong, and why (JSON-RPC -32602). */
export class BadParams extends Error {
  readonly issues: readonly { path: string; message: string }[];
  constructor(issues: readonly { path: string; message: string }[]) {
    super(`Invalid params: ${issues.map((issue) => `${issue.path || "params"}: ${issue.message}`).join("; ")}`);
    this.issues = issues;
  }
}

/** A request that is not valid at this point of the conversation (JSON-RPC -32600). */
export class InvalidRequest extends Error {}
