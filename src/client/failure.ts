/** The failures of a request, as they reach the caller. */

import type { FailureName } from "./protocol.ts";

/**
 * Names of failures: those of the protocol's tables, and `connection_closed` for what was never done because the
 * connection had ended.
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
  /** Whether the same request may succeed later without a change to it. */
  readonly retryable: boolean;
  /** All members of `error.data`. */
  readonly data: Readonly<Record<string, unknown>>;

  constructor(code: number, message: string, data: Readonly<Record<string, unknown>> = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = (data.name ?? "internal_error") as RequestFailureName;
    this.code = code;
    this.retryable = data.retryable === true;
    this.data = data;
  }
}

/** Returns the failure of a command whose outcome nobody can tell any more. */
export function outcomeUnknown(command: string, cause?: unknown): RequestFailure {
  return new RequestFailure(
    -32803,
    `Whether ${command} was done is not known: the server ended before it answered. Read the state and decide again.`,
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
