/** The failures of a request, as they reach the caller. */

import type { FailureName } from "./protocol.ts";

/**
 * Names of failures: those of the protocol's tables, and `connection_closed` for a request that was never done because
 * the connection had ended.
 */
export type RequestFailureName =
  | FailureName
  | "parse_error"
  | "invalid_request"
  | "method_not_found"
  | "invalid_params"
  | "internal_error"
  | "connection_closed";

/** A failed request. */
export class RequestFailure extends Error {
  override readonly name: RequestFailureName;
  /** JSON-RPC error code. */
  readonly code: number;
  /** The command that failed, which the message begins with; undefined when there was no server to ask. */
  readonly command: string | undefined;
  /** True if the same request may succeed later without a change to it. */
  readonly retryable: boolean;
  /** All members of `error.data`. */
  readonly data: Readonly<Record<string, unknown>>;

  constructor(
    code: number,
    message: string,
    data: Readonly<Record<string, unknown>> = {},
    cause?: unknown,
    command?: string,
  ) {
    super(command === undefined ? message : `${command}: ${message}`, cause === undefined ? undefined : { cause });
    this.command = command;
    this.name = (data.name ?? "internal_error") as RequestFailureName;
    this.code = code;
    this.retryable = data.retryable === true;
    this.data = data;
  }
}

/**
 * Waits for the reply to a command. Throws its failure with the command's name. It is made here, and not where the reply
 * is read, because only then does its stack have those who wait for it; a request that succeeds pays 1 us for that.
 */
export async function named<T>(command: string, reply: Promise<T>): Promise<T> {
  try {
    return await reply;
  } catch (error) {
    if (!(error instanceof RequestFailure) || error.command !== undefined) throw error;
    throw new RequestFailure(error.code, error.message, error.data, error.cause, command);
  }
}

/** Returns the failure of a command whose outcome cannot be found out any more. */
export function outcomeUnknown(command: string, cause?: unknown): RequestFailure {
  return new RequestFailure(
    -32803,
    `It is unknown whether ${command} was done: the server ended before it answered. Read the state before you repeat it.`,
    { name: "outcome_unknown", retryable: false, command },
    cause,
  );
}

/** Returns the failure of a request that was not done, because there is no server. `why`: a sentence or nothing. */
export function connectionClosed(why: string, cause?: unknown): RequestFailure {
  const message = `The connection has ended, and nothing was changed.${why && ` ${why}`}`;
  return new RequestFailure(-32803, message, { name: "connection_closed", retryable: false }, cause);
}

/** Returns the failure of a request that was cancelled before it was sent. */
export function cancelled(): RequestFailure {
  return new RequestFailure(-32800, "The request was cancelled and nothing was changed.", {
    name: "cancelled",
    retryable: true,
  });
}

/** Returns the failure of a request that was withdrawn when the server had begun it, and that it has done. */
export function withdrawnTooLate(command: string): RequestFailure {
  return new RequestFailure(
    -32803,
    `${command} was done before it could be withdrawn. Read the state and decide again.`,
    { name: "outcome_unknown", retryable: false, command },
  );
}

/** Returns the failure of a start without a program. */
export function noProgram(program: string, cause?: unknown): RequestFailure {
  const advice = "Check `program`: a path to a script, or a list of a command and its first arguments.";
  const data = { name: "connection_closed", retryable: false, program };
  return new RequestFailure(-32803, `There is no program at ${program}. ${advice}`, data, cause);
}
