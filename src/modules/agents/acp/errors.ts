/** Errors of the Agent Client Protocol: its codes, and sentences in its terms, which clients show to the person. */

import { Failure, INVALID_PARAMS, INVALID_REQUEST, NO_SUCH_METHOD } from "../../../core/failure.ts";
import { toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import { toJsonText } from "../../../core/json/json.ts";
import { describeError } from "../../../server/connection/dialect.ts";

export const NOT_FOUND = -32002;
export const CANCELLED = -32800;
/** Our own code for a request that cannot be done here: neither JSON-RPC nor the protocol has one. */
export const REFUSED = -32803;

/** Names of the failures that our own errors report, by their codes. */
const NAMES: Readonly<Record<number, string>> = {
  [INVALID_REQUEST]: "invalid_request",
  [NO_SUCH_METHOD]: "method_not_found",
  [INVALID_PARAMS]: "invalid_params",
  [NOT_FOUND]: "session_not_found",
  [CANCELLED]: "cancelled",
};

/** An error of the protocol. */
export class AcpError extends Error {
  readonly code: number;
  readonly data: unknown;

  /** `data`: by default the name of the failure, if the code has one. */
  constructor(code: number, message: string, { data }: { data?: unknown } = describeCode(code)) {
    super(message);
    this.code = code;
    this.data = data;
  }

  /** Returns the error that the other side sent; `otherwise` is the message if it has none. */
  static fromReply(error: unknown, code: number, otherwise: string): AcpError {
    const { code: theirs, message, data } = toMembers(error);
    return new AcpError(Number.isInteger(theirs) ? (theirs as number) : code, toStored(message) || otherwise, { data });
  }

  /** Returns the value of an error member. */
  toJSON(): object {
    const { code, message, data } = this;
    return { code, message, ...(data === undefined ? {} : { data }) };
  }
}

function describeCode(code: number): { data?: object } {
  return code in NAMES ? { data: { name: NAMES[code], retryable: code === CANCELLED } } : {};
}

/** Makes the failure of a change to a session during a turn. */
export function makeBusyFailure(): Failure {
  const sentence = "The agent is at work in this session. Cancel its turn, or wait until it has ended.";
  return new Failure("session_locked", sentence);
}

/** Returns an error from before the agent got a prompt. A failure of the agent then says so. */
export function toUnsentError(error: unknown): unknown {
  if (!(error instanceof Failure && error.name === "agent_failed")) return error;
  return new Failure(error.name, { ...error.text, state: "The message was neither sent nor stored." });
}

const NO_SESSION = {
  code: NOT_FOUND,
  sentence: "There is no session with this id. session/list shows those that exist.",
};

/** Failures that have a code in the protocol, or whose sentence names commands that clients of the protocol lack. */
const FAILURES: Readonly<Record<string, { readonly code?: number; readonly sentence?: string }>> = {
  session_not_found: NO_SESSION,
  invalid_id: NO_SESSION,
  ambiguous_id: {
    code: NOT_FOUND,
    sentence:
      "No session has exactly this id, or more than one has. session/list shows those that exist, each with a path that names it.",
  },
  entry_not_found: { sentence: "There is no such message in this session. Load it again to see those that exist." },
  cursor_expired: {
    code: INVALID_PARAMS,
    sentence: "The cursor belongs to no list that is known. Ask for the list again, without a cursor.",
  },
  read_only: { sentence: "Nothing can be written here. Fork the session, or start the server without --read-only." },
  unsupported_command: {
    sentence:
      "The agent reads session files, and this session is in a container. pi-session-server rollback <session> makes it a file again.",
  },
  corrupt: { sentence: "The stored session is damaged. pi-session-server verify reports where." },
};

/** Returns the JSON text of an error member about any thrown value. */
export function toErrorText(thrown: unknown): string {
  if (thrown instanceof AcpError) return toJsonText(thrown.toJSON());
  const { code, sentence, name, data } = describeError(thrown);
  const known = Object.hasOwn(FAILURES, name) ? FAILURES[name] : {};
  // The protocol has a method for forks, and none for clones.
  const message = known.sentence ?? sentence.replace(/\bclone\b/, "fork");
  return toJsonText({ code: known.code ?? code, message, data });
}
