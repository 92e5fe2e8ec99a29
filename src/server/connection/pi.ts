/** Pi's own line dialect (protocol, section 2; Pi reference, section 2.1). */

import { isObject } from "../../core/format/loose.ts";
import { toPlainText, toTextPieces } from "../../core/json/raw.ts";
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
} from "./dialect.ts";
import { explainOtherDialect, suggestCommand } from "./mistakes.ts";

export const piDialect: Dialect = {
  name: "pi",

  decode(value, bytes) {
    const range = { start: 0, end: bytes.length };
    if (!isObject(value)) return refusal("parse", undefined, "A command is an object with a type.", "invalid_request");
    const { id, type, hook, ...params } = value;
    const idText = id === undefined ? undefined : getIdText(id, bytes, range);
    if (typeof type !== "string") {
      const isJsonrpc = "jsonrpc" in params || "method" in params;
      const sentence = isJsonrpc
        ? explainOtherDialect("Pi's dialect", "jsonrpc")
        : "A command is an object whose type is a string.";
      return refusal("unknown", idText, sentence, "invalid_request");
    }
    if (type === "hook_response") return { kind: "response", message: hookResponse(value as Record<string, unknown>) };
    // An answer to a question of an extension, as pi-acp gives to a notice too. Pi sends no reply.
    if (type === "extension_ui_response") return { kind: "response", message: hookResponse({ id: "", type }) };
    const command = findCommand(type);
    if (!command) {
      const hint = suggestCommand(type);
      const sentence = `Unknown command: ${type.slice(0, 200)}${hint === undefined ? "" : `. ${hint}`}`;
      return refusal(type, idText, sentence, "unknown_command");
    }
    const { params: checked, fault } = checkParams(
      command,
      hook === undefined ? params : { ...params, _meta: { hook } },
      true,
    );
    const messageText: Call["messageText"] = () => ({ bytes, range, toParams: [] });
    return { kind: "call", call: { command, name: type, params: checked, idText, messageText, fault } };
  },

  refuse: ({ kind, sentence, details }, idText) => failed("parse", idText, sentence, REFUSALS[kind].name, details),

  reply(call, outcome) {
    const head = `{${call.idText === undefined ? "" : `"id":${call.idText},`}"type":"response","command":${JSON.stringify(call.name)}`;
    if ("error" in outcome) {
      const { sentence, name, data } = describeError(outcome.error);
      return failed(call.name, call.idText, sentence, name, data);
    }
    if (outcome.result === null || outcome.result === undefined) return [`${head},"success":true}`];
    return appendMember(`${head},"success":true`, "data", outcome.result);
  },

  hook({ id, method, params }) {
    if (method === "$/cancelRequest")
      return [JSON.stringify({ type: "hook_cancel", id: (params as { id?: unknown } | undefined)?.id })];
    return [toPlainText({ type: "hook_request", id, hook: method, ...(params as object) })];
  },

  event: (name, payload) => toTextPieces({ type: name, ...payload }),
};

let notices = 0;

/** Returns Pi's request to show a sentence to the person at the client. It needs no answer; some clients send one. */
export function makeNotice(message: string): Pieces {
  const id = `notice-${++notices}`;
  return [toPlainText({ type: "extension_ui_request", id, method: "notify", message, notifyType: "warning" })];
}

/** Returns whether an id is that of a notice from this server. */
export function isNotice(id: unknown): boolean {
  return typeof id === "string" && /^notice-\d+$/.test(id) && Number(id.slice(7)) <= notices;
}

/** Converts a host's answer to a hook: the result is all but type and id, unless `error` says that it failed. */
function hookResponse({ type: _type, id, error, ...result }: Record<string, unknown>): HookMessage {
  const answered = { jsonrpc: "2.0" as const, id: id as number | string };
  return error === undefined
    ? { ...answered, result }
    : { ...answered, error: { code: -32603, message: typeof error === "string" ? error : "the hook failed" } };
}

function refusal(...reply: Parameters<typeof failed>): Decoded {
  return { kind: "refusal", reply: failed(...reply) };
}

function failed(
  command: string,
  idText: string | undefined,
  sentence: string,
  code: string,
  data: Readonly<Record<string, unknown>> = {},
): Pieces {
  const { name: _name, retryable: _retryable, ...details } = data;
  const response = { type: "response", command, success: false, error: sentence, code };
  const text = toPlainText(Object.keys(details).length > 0 ? { ...response, data: details } : response);
  return [idText === undefined ? text : `{"id":${idText},${text.slice(1)}`];
}
