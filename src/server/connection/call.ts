/** One request on its way through the server. */

import { knownValueEnd, memberOf, members, type Range } from "../../core/json/json.ts";
import type { SharedClient } from "../../core/ports/attach.ts";
import type { Session } from "../../core/session/session.ts";
import type { Command } from "../../handlers/shared/command.ts";

export type Outcome = { readonly result: unknown } | { readonly error: unknown };

/** Where leaves are after something happened. */
export interface ToldLeaves {
  /** That of our own host. */
  readonly leafId: string | null;
  /** Those of all who have the session, by their heads, and under null the shared one; missing where that is the only one. */
  readonly leaves?: ReadonlyMap<string | null, string | null>;
}

/** A process that joined one of our sessions, whose calls run among those of our own host. */
export interface Peer {
  readonly client: SharedClient;
  /** Answers a call; `left` tells where the leaves are after it, if it changed anything. */
  reply(call: Call, outcome: Outcome, left: ToldLeaves | undefined): void;
}

export interface Call {
  readonly command: Command;
  /** As the host wrote it: name or alias. */
  readonly name: string;
  readonly params: unknown;
  /** JSON text of the id, echoed as it is; undefined for a notification. */
  readonly idText: string | undefined;
  /** Returns the message of the call as JSON text, and where in it the params are. */
  readonly messageText: () => {
    readonly bytes: Uint8Array;
    readonly range: Range;
    readonly toParams: readonly string[];
  };
  /** The error with which the call ends without being run (invalid params, for example), reported in its turn. */
  readonly fault?: unknown;
  /**
   * The open session that the call names, where its command takes any session: null when that is not open, undefined
   * when it names none. The dispatcher finds it when the call comes, and again in its turn.
   */
  readonly target?: Session | null;
  /** The process that asks for it, where that is not our own host: it has joined the session `target`. */
  readonly peer?: Peer;
  /** Takes the outcome of a call that this server itself makes for its host, in place of a reply. Throws nothing. */
  readonly answer?: (outcome: Outcome) => void;
  /** The head at which that process stood when it asked; null for the shared leaf. */
  readonly head?: string | null;
}

/** Returns whether a call is a read that the host makes while it is asked. It sees the session before the change. */
export function asksWhile({ command, params }: Call, questionId: string): boolean {
  const { _meta } = (params ?? {}) as { _meta?: { hook?: string | number } };
  return command.effect === "read" && _meta?.hook !== undefined && JSON.stringify(_meta.hook) === questionId;
}

/** Returns the id as JSON text: from the bytes where a number cannot be held exactly, or it is nested too deep. */
export function idTextOf(id: unknown, bytes: Uint8Array, range: Range): string {
  if (id === null || typeof id === "string" || Number.isSafeInteger(id)) return JSON.stringify(id);
  const member = memberOf(members(bytes, range.start, range.end, knownValueEnd) ?? [], "id");
  return member ? Buffer.from(bytes.subarray(member.start, member.end)).toString() : JSON.stringify(id);
}

const BEGINNING =
  /^\s*\{\s*(?:"(?:jsonrpc|method|type)"\s*:\s*"[^"\\]*"\s*,\s*)*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*[,}]/;

/** Returns the id of a message of which only the beginning was kept, if it can be read. */
export function idTextOfBeginning(bytes: Buffer): string | undefined {
  const found = BEGINNING.exec(bytes.toString("utf8"));
  try {
    JSON.parse(found?.[1] ?? "");
    return found?.[1];
  } catch {
    // The text goes into our reply unchanged, so it must be JSON.
    return undefined;
  }
}
