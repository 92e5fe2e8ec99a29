/** Messages of the two dialects as a host writes and reads them. */

import { decodeText, findMember, getMembers } from "../core/json/json.ts";
import type { Combination } from "./combination.ts";

// biome-ignore lint/suspicious/noExplicitAny: what a server sends is looked at, member by member, by the rules
export type WireValue = any;

export type Params = Readonly<Record<string, unknown>>;

/** A message of the server, and its kind. */
export interface Received {
  readonly kind: "reply" | "batch" | "event" | "progress" | "hook" | "unknown";
  /** The payload as it came. */
  readonly text: string;
  readonly value: WireValue;
  /** JSON text of the id that a reply or a hook has. */
  readonly idText?: string;
  /** The name of an event or a hook. */
  readonly name?: string;
}

/** One dialect, from the host's side. */
export interface WireDialect {
  /** Returns the text of a request; without an id, of a notification. `params` may be the text of an object. */
  request(idText: string | undefined, command: string, params?: Params | string): string;
  /** Returns the text of the answer to a hook. */
  answer(idText: string, answer: WireValue): string;
  /** Returns the text that fails a hook. */
  failedAnswer(idText: string, sentence: string): string;
  /** Returns what a message of the server is. */
  read(value: WireValue, text: string): Received;
}

function textOfParams(params: Params | string): string {
  return typeof params === "string" ? params : JSON.stringify(params);
}

/** Returns the JSON text of a message's id, as it came. */
function idTextIn(text: string): string | undefined {
  const bytes = Buffer.from(text);
  const found = findMember(getMembers(bytes) ?? [], "id");
  return found && decodeText(bytes, found.start, found.end);
}

const jsonrpc: WireDialect = {
  request(idText, command, params = {}) {
    const id = idText === undefined ? "" : `"id":${idText},`;
    const text = textOfParams(params);
    return `{"jsonrpc":"2.0",${id}"method":${JSON.stringify(command)}${text === "{}" ? "" : `,"params":${text}`}}`;
  },

  answer: (idText, answer) => `{"jsonrpc":"2.0","id":${idText},"result":${JSON.stringify(answer)}}`,

  failedAnswer: (idText, sentence) =>
    `{"jsonrpc":"2.0","id":${idText},"error":${JSON.stringify({ code: -32603, message: sentence })}}`,

  read(value, text) {
    if (Array.isArray(value)) return { kind: "batch", text, value };
    if (!isRecord(value)) return { kind: "unknown", text, value };
    if (typeof value.method === "string") {
      if ("id" in value) return { kind: "hook", text, value, idText: idTextIn(text), name: value.method };
      const { method } = value;
      return { kind: method === "$/progress" ? "progress" : "event", text, value: value.params ?? {}, name: method };
    }
    if (!("result" in value || "error" in value)) return { kind: "unknown", text, value };
    return { kind: "reply", text, value, idText: idTextIn(text) };
  },
};

const pi: WireDialect = {
  request(idText, command, params = {}) {
    const id = idText === undefined ? "" : `"id":${idText},`;
    const text = textOfParams(params).replace(/^\s*\{\s*/, "");
    return `{${id}"type":${JSON.stringify(command)}${text.startsWith("}") ? text : `,${text}`}`;
  },

  answer(idText, answer) {
    const members = JSON.stringify(answer ?? {}).slice(1, -1);
    return `{"type":"hook_response","id":${idText}${members === "" ? "" : `,${members}`}}`;
  },

  failedAnswer: (idText, sentence) => `{"type":"hook_response","id":${idText},"error":${JSON.stringify(sentence)}}`,

  read(value, text) {
    if (!isRecord(value) || typeof value.type !== "string") return { kind: "unknown", text, value };
    const { type } = value;
    if (type === "response") return { kind: "reply", text, value, idText: idTextIn(text) };
    if (type === "hook_request") return { kind: "hook", text, value, idText: idTextIn(text), name: value.hook };
    return { kind: type === "progress" ? "progress" : "event", text, value, name: type };
  },
};

export const DIALECTS: Readonly<Record<Combination["dialect"], WireDialect>> = { jsonrpc, pi };

export function isRecord(value: WireValue): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
