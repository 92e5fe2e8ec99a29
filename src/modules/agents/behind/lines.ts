/** Reads the lines of agents, without parsing those that can be passed on. */

import { isJson, parse, skipSpace } from "../../../core/json/json.ts";

/** A reply of the agent. */
export interface PiReply {
  readonly id?: unknown;
  readonly command?: string;
  readonly success?: boolean;
  readonly data?: Readonly<Record<string, unknown>> | null;
  readonly error?: string;
}

/** Nearly every line begins with its type. Replies to requests with an id have the id before it. */
const BEGINNING = /^\{\s*"type"\s*:\s*"([a-z_]+)"/;
const REPLY = /^\{(?:\s*"id"\s*:\s*(?:"(?:[^"\\]|\\.)*"|-?[\d.eE+-]+|null)\s*,)?\s*"type"\s*:\s*"response"/;
/** Bytes of a line that are searched. */
const LOOKED_AT = 512;

/** Returns the type of a line; undefined when it has none, or is not an object. */
export function getLineType(line: Buffer): string | undefined {
  const beginning = line.toString("latin1", 0, 48);
  const usual = BEGINNING.exec(beginning);
  if (usual) return usual[1];
  if (REPLY.test(line.toString("latin1", 0, LOOKED_AT))) return "response";
  const { type } = parseMembers(line);
  return typeof type === "string" ? type : undefined;
}

/** Returns whether a line is a JSON object. */
export function isJsonObject(line: Buffer): boolean {
  return line[skipSpace(line, 0, line.length)] === 0x7b && isJson(line);
}

/** Returns the members of a line; none if it is not an object. */
export function parseMembers(line: Buffer): Readonly<Record<string, unknown>> {
  try {
    const value = parse(line);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** The JSON-RPC message of a dropped line. */
interface DroppedMessage {
  /** JSON text of its id. */
  readonly idText: string;
  readonly isReply: boolean;
}

const OF_MESSAGE =
  /^\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?(\s*"method"\s*:\s*"[^"\\]*"\s*,)?\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,\s*("method")?/;

/** Parses the beginning of a dropped line: the usual members in their usual order. */
export function parseDroppedMessage(beginning: Buffer): DroppedMessage | undefined {
  const found = OF_MESSAGE.exec(beginning.toString("utf8"));
  return found ? { idText: found[2], isReply: (found[1] ?? found[3]) === undefined } : undefined;
}
