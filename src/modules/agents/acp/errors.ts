/** Errors of the Agent Client Protocol: its codes, and sentences in its terms, which clients show to the person. */

import { INVALID_PARAMS } from "../../../core/failure.ts";
import { toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import { toJsonText } from "../../../core/json/json.ts";
import { describeError } from "../../../server/connection/dialect.ts";

/** An error of the protocol. */
export class AcpError extends Error {
  readonly code: number;
  /** The `data` of an error that the other side sent. */
  readonly data: unknown;

  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }

  /** Returns the error that the other side sent; `otherwise` is the message if it has none. */
  static fromReply(error: unknown, code: number, otherwise: string): AcpError {
    const { code: theirs, message, data } = toMembers(error);
    return new AcpError(Number.isInteger(theirs) ? (theirs as number) : code, toStored(message) || otherwise, data);
  }

  /** Returns the value of an error member. */
  toJSON(): object {
    const { code, message, data } = this;
    return { code, message, ...(data === undefined ? {} : { data }) };
  }
}

export const NOT_FOUND = -32002;
export const CANCELLED = -32800;
/** Our own code for a request that cannot be done here: neither JSON-RPC nor the protocol has one. */
export const REFUSED = -32803;

/** Makes the error about a change to a session during a turn. */
export function makeBusyError(): AcpError {
  return new AcpError(REFUSED, "The agent is at work in this session. Cancel its turn, or wait until it has ended.");
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
  session_locked: {
    sentence: "Another program is writing to this session. Close it there, or fork it and go on in the copy.",
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
  return toJsonText({ code: known.code ?? code, message: known.sentence ?? sentence, data });
}
