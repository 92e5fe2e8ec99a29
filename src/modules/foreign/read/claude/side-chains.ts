/**
 * The side chains in a session's own file, as older versions of Claude Code wrote a subagent's messages: records with
 * `isSidechain` among those of the session that began it. Each is a session of its own. Its name is the subagent's id,
 * if its records have one, else the uuid of its first record.
 */

import { isObject, type JsonObject, toText } from "../../../../core/foreign/messages.ts";
import { parse } from "../../../../core/json/json.ts";
import { getOwnName } from "../file-name.ts";
import type { InnerSessionOf, SourceRecord } from "../translator.ts";

/** Records with a uuid that are parts of the conversation. */
export const SPOKEN = new Set(["user", "assistant"]);

/** Names that can be a part of a path as they are. */
const PLAIN = /^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$/;

export interface Sidechain {
  readonly name: string;
  /** True if it begins with this record. */
  readonly isNew: boolean;
}

export class Sidechains {
  private readonly file: string;
  /** The names of side chains by the uuids of their records. */
  private readonly byUuid = new Map<string, string>();
  private readonly names = new Set<string>();
  private last: string | undefined;
  /**
   * True if the file is a subagent's, so that every record is of a side chain; undefined before the first record of the
   * conversation. The name of the file distinguishes it from a session whose first record is of a side chain.
   */
  isAgents: boolean | undefined;

  /** `file`: the name of the file, as `TranslationTools.name`. `isAgents`: missing if unknown. */
  constructor(file: string, isAgents?: boolean) {
    this.file = file;
    this.isAgents = isAgents;
  }

  /** Returns the side chain of the next record; undefined for one of the session itself. */
  of(source: Pick<SourceRecord, "bytes" | "value" | "number">): Sidechain | undefined {
    const { value, number } = source;
    if (!isObject(value)) return undefined;
    const uuid = getRecordUuid(source, value, toText(value.type) ?? "");
    if (uuid === undefined) return undefined;
    const isSidechain = value.isSidechain === true && saysSidechain(source.bytes);
    this.isAgents ??= isSidechain && value.sessionId !== getOwnName(this.file);
    if (!isSidechain || this.isAgents) return undefined;
    const name = this.byUuid.get(uuid) ?? this.continued(value) ?? getChainName(value, uuid, number);
    this.byUuid.set(uuid, name);
    const isNew = !this.names.has(name);
    this.names.add(name);
    this.last = name;
    return { name, isNew };
  }

  /** Returns the side chain that a record continues; undefined for one that begins its own. */
  private continued(record: JsonObject): string | undefined {
    const { parentUuid, agentId } = record;
    if (isPlain(agentId, record)) return agentId;
    if (typeof parentUuid === "string") return this.byUuid.get(parentUuid);
    // A record without parents is no reply: such files name no parents.
    return parentUuid === undefined || isReply(record) ? this.last : undefined;
  }
}

/** Returns the name of the side chain that begins with a record. */
export function getChainName(record: JsonObject, uuid: string, number: number): string {
  const { agentId } = record;
  if (isPlain(agentId, record)) return agentId;
  return isPlain(uuid, record) ? uuid : `line-${number}`;
}

/** Returns the uuid of a record of the conversation; for one without, a name made from its line number. */
export function getRecordUuid(
  { number }: Pick<SourceRecord, "number">,
  { uuid, message }: JsonObject,
  type: string,
): string | undefined {
  if (typeof uuid === "string" && uuid !== "") return uuid;
  return SPOKEN.has(type) && isObject(message) ? `line:${number}` : undefined;
}

/** Makes a function that finds the records of side chains among lines. It reads little of the session's own. */
export function trackInnerSessions(file: string): InnerSessionOf {
  const chains = new Sidechains(file);
  return (bytes, number) => {
    if (chains.isAgents !== undefined && !saysSidechain(bytes)) return undefined;
    return chains.of({ bytes, value: parse(bytes), number })?.name;
  };
}

const MEMBER = Buffer.from('"isSidechain"');

/** Returns whether a line may be of a side chain. It misses an escaped member name, which no agent writes. */
function saysSidechain({ buffer, byteOffset, length }: Uint8Array): boolean {
  const line = Buffer.from(buffer, byteOffset, length);
  for (let at = line.indexOf(MEMBER); at >= 0; at = line.indexOf(MEMBER, at)) {
    at += MEMBER.length;
    while (line[at] <= 0x20 || line[at] === 0x3a) at++;
    if (line[at] === 0x74) return true;
  }
  return false;
}

/** Returns whether an id is the name of a side chain. The session's own id is not: it means the file itself. */
function isPlain(id: unknown, { sessionId }: JsonObject): id is string {
  return typeof id === "string" && PLAIN.test(id) && id !== sessionId;
}

function isReply({ type, message }: JsonObject): boolean {
  if (type === "assistant") return true;
  const content = isObject(message) ? message.content : undefined;
  return Array.isArray(content) && content.some((block) => isObject(block) && block.type === "tool_result");
}
