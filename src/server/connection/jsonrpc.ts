/** The JSON-RPC 2.0 dialect (protocol, section 2; JSON-RPC 2.0 specification, sections 4 to 6). */

import { findKnownValueEnd, getElements, type Range } from "../../core/json/json.ts";
import { toPlainText } from "../../core/json/raw.ts";
import { findCommand } from "../../handlers/shared/find.ts";
import { type Call, getIdText } from "./call.ts";
import {
  appendMember,
  checkParams,
  type Decoded,
  type Dialect,
  describeError,
  type HookMessage,
  type Pieces,
  REFUSALS,
  type Refusal,
} from "./dialect.ts";
import { explainOtherDialect, suggestCommand } from "./mistakes.ts";

const NO_ID = "null";

export const jsonrpcDialect: Dialect = {
  name: "jsonrpc",

  decode(value, bytes) {
    if (!Array.isArray(value)) return decodeOne(value, bytes, () => ({ start: 0, end: bytes.length }));
    if (value.length === 0) return refusal("The batch is empty. Send at least one request.", NO_ID);
    let ranges: Range[] | null = null;
    const rangeOf = (index: number): Range => {
      ranges ??= getElements(bytes, 0, bytes.length, findKnownValueEnd) ?? [];
      return ranges[index];
    };
    return { kind: "batch", items: value.map((item, index) => decodeOne(item, bytes, () => rangeOf(index))) };
  },

  refuse,

  reply(call, outcome) {
    const head = `{"jsonrpc":"2.0","id":${call.idText ?? NO_ID}`;
    if (!("error" in outcome)) return appendMember(head, "result", outcome.result);
    const { code, sentence, data } = describeError(outcome.error);
    return [`${head},"error":${toPlainText({ code, message: sentence, data })}}`];
  },

  hook: (message) => [toPlainText(message)],

  event: (name, payload) => appendMember(`{"jsonrpc":"2.0","method":${JSON.stringify(name)}`, "params", payload),
};

function refuse({ kind, sentence, details }: Refusal, idText = NO_ID): Pieces {
  const { name, code } = REFUSALS[kind];
  const error = { code, message: sentence, data: { name, retryable: false, ...details } };
  return [`{"jsonrpc":"2.0","id":${idText},"error":${toPlainText(error)}}`];
}

function refusal(sentence: string, idText: string, kind: Refusal["kind"] = "request"): Decoded {
  return { kind: "refusal", reply: refuse({ kind, sentence }, idText) };
}

function decodeOne(value: unknown, bytes: Buffer, range: () => Range): Decoded {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return refusal("A request is an object with jsonrpc, method and, for a reply, id.", NO_ID);
  const message = value as Record<string, unknown>;
  const { id, method, params } = message;
  const hasId = "id" in message;
  const legalId = typeof id === "string" || typeof id === "number" || id === null;
  const idText = hasId && legalId ? getIdText(id, bytes, range()) : NO_ID;
  if (message.jsonrpc !== "2.0") return refusal(notJsonrpc(message), idText);
  if (!("method" in message) && ("result" in message || "error" in message))
    return { kind: "response", message: value as HookMessage };
  if (hasId && !legalId) return refusal("An id is a string, a number or null.", NO_ID);
  if (typeof method !== "string") return refusal("The member method must be a string.", idText);
  if (params !== undefined && typeof params !== "object")
    return refusal("The member params must be an object.", idText);
  if (method === "$/cancelRequest" || method === "$/cancel_request") {
    if (!hasId) return decodeCancel(params);
    return refusal(
      `${method} is a notification: send it with no id of its own, and the request's as params.id.`,
      idText,
      "method",
    );
  }
  const command = findCommand(method);
  if (!command) {
    // An unknown notification is ignored, because none gets a reply. LSP allows this for those that begin with `$/`.
    if (!hasId) return { kind: "nothing" };
    return refusal(
      `Unknown method: ${method.slice(0, 200)}. ${suggestCommand(method) ?? "rpc.discover lists the commands there are."}`,
      idText,
      "method",
    );
  }
  const { params: checked, fault } = checkParams(command, params, false);
  const call: Call = {
    command,
    name: method,
    params: checked,
    idText: hasId ? idText : undefined,
    messageText: () => ({ bytes, range: range(), toParams: ["params"] }),
    fault,
  };
  return { kind: "call", call };
}

/** Returns the sentence about a message without the member that makes it JSON-RPC. */
function notJsonrpc({ jsonrpc, method, type }: Record<string, unknown>): string {
  return jsonrpc === undefined && method === undefined && typeof type === "string"
    ? explainOtherDialect("JSON-RPC", "pi")
    : 'The member jsonrpc must be the string "2.0".';
}

/** Decodes a cancellation as in LSP and ACP; without a usable id there is nothing to cancel. */
function decodeCancel(params: unknown): Decoded {
  const { id, requestId } = (params ?? {}) as { id?: unknown; requestId?: unknown };
  const cancelled = id ?? requestId;
  if (typeof cancelled !== "string" && typeof cancelled !== "number") return { kind: "nothing" };
  return { kind: "cancel", idText: JSON.stringify(cancelled) };
}
