/** The contract of the two dialects: a payload becomes calls, an outcome becomes a reply, an event a message. */

import { isErrno } from "../../core/errno.ts";
import {
  BadParams,
  Failure,
  INTERNAL,
  INVALID_PARAMS,
  INVALID_REQUEST,
  InvalidRequest,
  NO_SUCH_METHOD,
} from "../../core/failure.ts";
import { check } from "../../core/format/issues.ts";
import { TextTooLong } from "../../core/json/json.ts";
import { holdsRaw, toPlainText, toTextPieces } from "../../core/json/raw.ts";
import type { Command } from "../../handlers/shared/command.ts";
import type { Call, Outcome } from "./call.ts";

export type DialectName = "jsonrpc" | "pi";
/** A dialect that a face speaks, which takes the whole wire over. */
export type FaceName = "acp" | "mcp";
export type Pieces = (string | Uint8Array)[];

export type Decoded =
  | { readonly kind: "call"; readonly call: Call }
  | { readonly kind: "batch"; readonly items: readonly Decoded[] }
  /** The host's answer to a request from the server. */
  | { readonly kind: "response"; readonly message: HookMessage }
  /** A notification that a call with this id need not run any more. */
  | { readonly kind: "cancel"; readonly idText: string }
  /** A payload that cannot be run; the reply says why. */
  | { readonly kind: "refusal"; readonly reply: Pieces }
  /** A payload without effect or reply: an unknown notification, or a cancellation without a usable id. */
  | { readonly kind: "nothing" };

/** A message about a hook. Inside the server it is JSON-RPC, whichever dialect the host speaks. */
export interface HookMessage {
  readonly jsonrpc: "2.0";
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: unknown;
}

export interface Dialect {
  readonly name: DialectName;
  decode(value: unknown, bytes: Buffer): Decoded;
  /** Returns the reply to a message that could not be cut or parsed. `idText` is the JSON text of its id, if known. */
  refuse(refusal: Refusal, idText?: string): Pieces;
  reply(call: Call, outcome: Outcome): Iterable<string | Uint8Array>;
  hook(message: HookMessage): Pieces;
  event(name: string, payload: Readonly<Record<string, unknown>>): Iterable<string | Uint8Array>;
}

export interface Refusal {
  readonly kind: keyof typeof REFUSALS;
  readonly sentence: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** Names of refusals, and their codes in JSON-RPC. */
export const REFUSALS = {
  parse: { name: "parse_error", code: -32700 },
  request: { name: "invalid_request", code: INVALID_REQUEST },
  method: { name: "method_not_found", code: NO_SUCH_METHOD },
  duplicate_id: { name: "invalid_request", code: INVALID_REQUEST },
  too_large: { name: "message_too_large", code: -32803 },
  bug: { name: "internal_error", code: INTERNAL },
};

/** Returns the params validated against a command's schema, or a fault that names each offending member. */
export function checkParams(command: Command, params: unknown, loose: boolean): Pick<Call, "params" | "fault"> {
  if (Array.isArray(params)) return faulty([{ path: "", message: "params are given by name, in an object" }]);
  const result = check(loose ? command.looseParams : command.params, params ?? {});
  if (result.success) return { params: result.data, fault: undefined };
  return faulty(
    result.error.issues.flatMap((issue) => {
      const path = issue.path.join(".");
      if (issue.code !== "unrecognized_keys") return [{ path, message: issue.message }];
      return issue.keys.map((key) => ({
        path: path === "" ? key : `${path}.${key}`,
        message: `no such member; the known ones are ${Object.keys(command.params.shape).join(", ")}`,
      }));
    }),
  );
}

function faulty(issues: BadParams["issues"]): Pick<Call, "params" | "fault"> {
  return { params: undefined, fault: new BadParams(issues) };
}

/** Returns the failure for an errno error that no earlier function has turned into a failure. */
export function toDiskFailure(error: Error & { readonly code: string }): Failure {
  const { code } = error;
  const full = code === "ENOSPC" || code === "EDQUOT";
  const sentence = `${full ? "No room on the disk" : `The disk refused (${code})`} while the request was handled. Check with get_state and verify_session what the session has now, then try again.`;
  return new Failure(full ? "storage_full" : "storage_failed", sentence, { errno: code }, { cause: error });
}

/** Returns the failure for an entry, or another text of a session, that no string can hold. */
function tooLong({ size }: TextTooLong): Failure {
  const sentence = `Something in the session has ${size} bytes, more than a text of this server can have, and the request needs all of it as one text. get_tree names it, and export_session with the format jsonl has it as it is stored.`;
  return new Failure("message_too_large", sentence, { size });
}

/** An error of a call that another process ran, with all facts that are sent about it. */
export class DescribedError extends Error {
  readonly description: ErrorDescription;

  constructor(description: ErrorDescription) {
    super(description.sentence);
    this.description = description;
  }
}

export interface ErrorDescription {
  readonly code: number;
  readonly sentence: string;
  readonly name: string;
  readonly data: Readonly<Record<string, unknown>>;
}

let references = 0;

/**
 * Returns an error of any kind with all facts that either dialect sends. Errno errors are reported as failures of the
 * disk. An error that is neither that nor a failure nor bad input is a bug in the server: the host gets a reference
 * number and nothing internal, stderr gets the stack with the same number.
 */
export function describeError(thrown: unknown): ErrorDescription {
  if (thrown instanceof DescribedError) return thrown.description;
  const error = isErrno(thrown) ? toDiskFailure(thrown) : thrown instanceof TextTooLong ? tooLong(thrown) : thrown;
  const shape = (code: number, sentence: string, name: string, details?: object, retryable = false) => ({
    code,
    sentence,
    name,
    data: { name, retryable, ...details },
  });
  if (error instanceof Failure) return shape(error.code, error.message, error.name, error.details, error.retryable);
  if (error instanceof BadParams)
    return shape(INVALID_PARAMS, error.message, "invalid_params", { issues: error.issues });
  if (error instanceof InvalidRequest) return shape(INVALID_REQUEST, error.message, "invalid_request");
  const reference = `${process.pid}-${++references}`;
  process.stderr.write(`pi-session-server: internal error ${reference}: ${(error as Error)?.stack ?? error}\n`);
  const sentence = `Internal error ${reference}: it is unknown whether the command was done. Read the state, and report the error with the lines on stderr that name ${reference}.`;
  return shape(INTERNAL, sentence, "internal_error", { reference });
}

/** Returns the pieces of `{<head>,"<member>":<value>}`, where head is JSON text without its closing brace. */
export function appendMember(head: string, member: string, value: unknown): Iterable<string | Uint8Array> {
  return holdsRaw(value) ? lazily(head, member, value) : [`${head},"${member}":${toPlainText(value)}}`];
}

function* lazily(head: string, member: string, value: unknown): Generator<string | Uint8Array> {
  let text = `${head},"${member}":`;
  for (const piece of toTextPieces(value)) {
    if (typeof piece === "string") text += piece;
    else {
      if (text !== "") yield text;
      text = "";
      yield piece;
    }
  }
  yield `${text}}`;
}
